//! Turns each reserved core into its own scheduling domain, so that SCHED_DEADLINE is partitioned:
//! four ways, each tried for real with a thread of our own before any other thread is touched.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use takt_rt::placement::CpuSet;

use crate::reserve::ADMISSION_FILE;
use crate::reserve::mode::{Mode, Refusal};
use crate::reserve::restore::{self, Change, Hidden, Journal, ThreadBefore};
use crate::reserve::system::{self, Attributes, GroupVersion, Kernel};

/// Error within one way.
#[derive(Debug)]
pub enum Trouble {
    /// This way is closed; another may be open.
    Closed(String),
    /// The state file cannot be written, so nothing may be changed.
    Journal(restore::Error),
}

impl From<restore::Error> for Trouble {
    fn from(error: restore::Error) -> Self {
        Self::Journal(error)
    }
}

pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Trouble + '_ {
    move |error| Trouble::Closed(format!("{}: {error}", path.display()))
}

/// Writes a setting after recording what undoes it: `undo`, or what is there now.
///
/// # Errors
///
/// The file cannot be read or written, or the journal cannot.
pub fn set(
    kernel: &mut dyn Kernel,
    journal: &mut Journal,
    path: &Path,
    value: &str,
    undo: Option<&str>,
) -> Result<(), Trouble> {
    let now = kernel.read(path).map_err(at(path))?;
    if now.trim() == value {
        return Ok(());
    }
    let undo = undo.unwrap_or(now.trim()).to_owned();
    journal.change(Change::File { path: path.to_owned(), undo })?;
    kernel.write(path, value).map_err(at(path))
}

/// The least budget that the kernel takes (`1 << DL_SCALE`).
pub const MIN_BUDGET_NS: u64 = 1024;

/// Cores made ready for reservations.
#[derive(Debug)]
pub struct Partition {
    pub mode: Mode,
    /// Groups by core.
    pub(crate) groups: BTreeMap<usize, PathBuf>,
    /// Group of managed processes with cgroup v2.
    pub(crate) home: Option<PathBuf>,
    pub(crate) mount: Option<PathBuf>,
    /// With cgroup v2.
    pub(crate) hidden: Option<Hidden>,
}

impl Partition {
    /// Makes `cores` ready in one way and tries each with a thread of our own.
    pub fn establish(
        kernel: &mut dyn Kernel,
        journal: &mut Journal,
        mode: Mode,
        cores: &[usize],
    ) -> Result<Self, Trouble> {
        let mut partition = Self { mode, groups: BTreeMap::new(), home: None, mount: None, hidden: None };
        match mode {
            Mode::PartitionRoots => partition.partition_roots(kernel, journal, cores)?,
            Mode::ExclusiveSets => partition.exclusive_sets(kernel, journal, cores)?,
            Mode::AdmissionOff => {
                set(kernel, journal, Path::new(ADMISSION_FILE), "-1", None)?;
            }
        }
        for &core in cores {
            partition.give(journal, core)?;
        }
        partition.attempt(kernel, journal, cores)?;
        Ok(partition)
    }

    fn give(&self, journal: &mut Journal, core: usize) -> Result<(), Trouble> {
        journal.give(single(core).map_err(|error| Trouble::Closed(error.to_string()))?)?;
        Ok(())
    }

    /// Reserves for a thread of ours on each core, and reads back.
    fn attempt(
        &self,
        kernel: &mut dyn Kernel,
        journal: &mut Journal,
        cores: &[usize],
    ) -> Result<(), Trouble> {
        let (pid, tid) = kernel
            .scratch()
            .map_err(|error| Trouble::Closed(format!("cannot start a thread for the trial: {error}")))?;
        journal.record(kernel, [(pid, tid)], self.mode.groups())?;
        let before = journal.before(pid, tid).cloned();
        let asked = Attributes::reservation(100_000, 10_000_000, false);
        let mut outcome = Ok(());
        for &core in cores {
            outcome = self.attempt_on(kernel, (pid, tid), core, &asked);
            let _ =
                kernel.set_attributes(tid, &before.as_ref().map_or(Attributes::other(0), |b| b.attributes));
            if outcome.is_err() {
                break;
            }
        }
        if let Some(before) = before {
            let _ = self.displace(kernel, &before);
        }
        kernel.end_scratch();
        outcome.map_err(Trouble::Closed)
    }

    fn attempt_on(
        &self,
        kernel: &mut dyn Kernel,
        (pid, tid): (u32, u32),
        core: usize,
        asked: &Attributes,
    ) -> Result<(), String> {
        let refused = |what: &str, error: io::Error| {
            let fix = match error.raw_os_error() {
                Some(libc::EPERM) => "; fix: run as root (CAP_SYS_NICE), outside of a sandbox",
                Some(libc::EBUSY) => {
                    "; fix: end other SCHED_DEADLINE threads (`ps -eLo pid,tid,cls,comm | grep DLN`)"
                }
                _ => "",
            };
            format!("{what} on CPU {core}: {error}{fix}")
        };
        self.reserve(kernel, pid, tid, core, asked).map_err(|error| refused("a trial reservation", error))?;
        let has = kernel.attributes(tid).map_err(|error| refused("reading back", error))?;
        if !has.serves(asked) {
            return Err(format!("requested {asked} on CPU {core}, read back {has}"));
        }
        let cpus = kernel.affinity(tid).map_err(|error| refused("reading back", error))?;
        if cpus.len() != 1 || !cpus.contains(core) {
            return Err(format!("requested only CPU {core}, read back {cpus}"));
        }
        Ok(())
    }

    /// Puts a thread that has no reservation on a core and gives it one.
    ///
    /// A sleeping thread counts as being on the CPU where it went to sleep, whatever its group, and
    /// the kernel grants a reservation only in the domain of that CPU (EPERM otherwise). So it gets
    /// its reservation there and moves with it. The way must not lead from a group that holds both
    /// CPUs: the kernel would not account the move.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: that domain is full. The thread waits on its core without reservation; try again
    /// when it has woken.
    pub fn reserve(
        &self,
        kernel: &mut dyn Kernel,
        pid: u32,
        tid: u32,
        core: usize,
        attributes: &Attributes,
    ) -> io::Result<()> {
        if self.mode.groups().is_none() {
            self.place(kernel, pid, tid, core)?;
            return kernel.set_attributes(tid, attributes);
        }
        let mut attempts = 5;
        loop {
            let outcome = (|| {
                let last = kernel.last_cpu(pid, tid)?;
                if last == core {
                    self.place(kernel, pid, tid, core)?;
                    return kernel.set_attributes(tid, attributes);
                }
                self.settle_at(kernel, pid, tid, last)?;
                match kernel.set_attributes(tid, attributes) {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                        self.place(kernel, pid, tid, core)?;
                        Err(io::Error::from_raw_os_error(libc::EAGAIN))
                    }
                    Err(error) => Err(error),
                    Ok(()) => self.place(kernel, pid, tid, core),
                }
            })();
            match outcome {
                // It woke and slept elsewhere between two of the steps.
                Err(error) if error.raw_os_error() == Some(libc::EPERM) && attempts > 0 => {
                    attempts -= 1;
                    if kernel.attributes(tid)?.is_deadline() {
                        kernel.set_attributes(tid, &Attributes::other(0))?;
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// Puts a thread into the group whose domain holds `cpu`.
    fn settle_at(&self, kernel: &mut dyn Kernel, pid: u32, tid: u32, cpu: usize) -> io::Result<()> {
        if self.groups.contains_key(&cpu) {
            return self.place(kernel, pid, tid, cpu);
        }
        match (&self.home, &self.mount) {
            (Some(home), _) => {
                self.adopt(kernel, pid)?;
                kernel.write(&home.join("cgroup.threads"), &tid.to_string())
            }
            (None, Some(mount)) => kernel.write(&mount.join("takt-system/tasks"), &tid.to_string()),
            (None, None) => Ok(()),
        }
    }

    /// Puts a thread on a core.
    pub fn place(&self, kernel: &mut dyn Kernel, pid: u32, tid: u32, core: usize) -> io::Result<()> {
        match self.mode {
            Mode::PartitionRoots => {
                self.adopt(kernel, pid)?;
                kernel.write(&self.group_of(core)?.join("cgroup.threads"), &tid.to_string())
            }
            Mode::ExclusiveSets => {
                // An affinity that the thread chose for itself would be applied within the set;
                // none is left then.
                kernel.write(&self.group_of(core)?.join("tasks"), &tid.to_string())
            }
            Mode::AdmissionOff => kernel.set_affinity(tid, &single(core).map_err(io::Error::other)?),
        }
    }

    /// Brings a thread back to where it was, as far as the partition allows.
    pub fn displace(&self, kernel: &mut dyn Kernel, before: &ThreadBefore) -> io::Result<()> {
        let tid = before.thread.tid;
        // The kernel does not account the move of a reservation between groups that overlap.
        if self.mode.groups().is_some() && kernel.attributes(tid)?.is_deadline() {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        match (self.mode, &self.mount, &self.home) {
            (Mode::PartitionRoots, _, Some(home)) => {
                let inside = kernel.group(before.thread.pid, tid, GroupVersion::V2)?;
                if inside.is_some_and(|group| group.contains("/takt-managed/")) {
                    kernel.write(&home.join("cgroup.threads"), &tid.to_string())?;
                }
            }
            (Mode::ExclusiveSets, Some(mount), _) => {
                let was = before.group.as_deref().unwrap_or("/");
                if kernel.group(before.thread.pid, tid, GroupVersion::V1)?.as_deref() != Some(was) {
                    let file = mount.join(was.trim_start_matches('/')).join("tasks");
                    kernel.write(&file, &tid.to_string())?;
                }
            }
            _ => {}
        }
        self.confine(kernel, tid, &before.cpus)
    }

    /// CPU set that a thread shows after [`Partition::settle`] let it run on `cpus`.
    pub fn shown(&self, cpus: &CpuSet) -> CpuSet {
        match &self.hidden {
            Some(hidden) if self.core_of(cpus).is_none() => hidden.shown(cpus),
            _ => *cpus,
        }
    }

    fn core_of(&self, cpus: &CpuSet) -> Option<usize> {
        cpus.iter().next().filter(|core| cpus.len() == 1 && self.groups.contains_key(core))
    }

    /// Sets the CPUs of a thread outside of the partition.
    fn confine(&self, kernel: &mut dyn Kernel, tid: u32, cpus: &CpuSet) -> io::Result<()> {
        let shown = self.hidden.map_or(*cpus, |hidden| hidden.shown(cpus));
        if kernel.affinity(tid)? == shown {
            return Ok(());
        }
        // The kernel cuts off what is hidden and remembers the rest, but refuses a set of which
        // nothing is left.
        let hidden = shown.without(cpus) == shown;
        kernel.set_affinity(tid, if hidden { &shown } else { cpus })
    }

    /// Lets a thread without reservation run on `cpus`, which are one core of the partition or
    /// those outside of it.
    pub fn settle(&self, kernel: &mut dyn Kernel, before: &ThreadBefore, cpus: &CpuSet) -> io::Result<()> {
        let (pid, tid) = (before.thread.pid, before.thread.tid);
        match (self.mode, self.core_of(cpus)) {
            (Mode::PartitionRoots, Some(core)) => return self.place(kernel, pid, tid, core),
            (Mode::PartitionRoots, None) => {
                self.adopt(kernel, pid)?;
                self.displace(kernel, before)?;
            }
            (Mode::ExclusiveSets, _) => self.displace(kernel, before)?,
            _ => {}
        }
        self.confine(kernel, tid, cpus)
    }

    /// Whether the kernel balances fair threads over all CPUs all the same.
    pub fn balances(&self) -> bool {
        self.mode == Mode::AdmissionOff
    }

    /// Brings a process into the group below which its threads can be distributed (cgroup v2).
    fn adopt(&self, kernel: &mut dyn Kernel, pid: u32) -> io::Result<()> {
        let Some(home) = &self.home else { return Ok(()) };
        let inside = kernel.group(pid, pid, GroupVersion::V2)?;
        if inside.is_some_and(|group| Path::new(&group).iter().any(|part| part == "takt-managed")) {
            return Ok(());
        }
        kernel.write(&home.join("cgroup.procs"), &pid.to_string())
    }

    fn group_of(&self, core: usize) -> io::Result<&Path> {
        let missing = || io::Error::new(io::ErrorKind::InvalidInput, format!("CPU {core} was not prepared"));
        self.groups.get(&core).map(PathBuf::as_path).ok_or_else(missing)
    }
}

fn single(core: usize) -> Result<CpuSet, takt_rt::Error> {
    CpuSet::single(core)
}

pub(crate) fn cpu_set(cores: &[usize]) -> Result<CpuSet, Trouble> {
    CpuSet::from_cpus(cores.iter().copied())
        .ok_or_else(|| Trouble::Closed(format!("core list {cores:?} exceeds CPU {}", CpuSet::MAX_CPU)))
}

/// Makes the cores ready in the first way that works.
pub fn establish(
    kernel: &mut dyn Kernel,
    journal: &mut Journal,
    modes: &[Mode],
    cores: &[usize],
) -> Result<(Option<Partition>, Vec<Refusal>), restore::Error> {
    let mut refusals = Vec::new();
    for &mode in modes {
        let reason = match Partition::establish(kernel, journal, mode, cores) {
            Ok(partition) => return Ok((Some(partition), refusals)),
            Err(Trouble::Journal(error)) => return Err(error),
            Err(Trouble::Closed(reason)) => reason,
        };
        kernel.end_scratch();
        let undone = journal.undo(kernel)?;
        let reason = if undone.is_complete() { reason } else { format!("{reason}; {undone}") };
        refusals.push(Refusal { mode, reason });
    }
    Ok((None, refusals))
}

/// Whether the thread is gone, by the error of an operation on it.
pub fn gone(error: &io::Error) -> bool {
    system::is_gone(error)
}
