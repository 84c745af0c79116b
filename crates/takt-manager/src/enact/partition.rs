//! How each reserved core becomes a scheduling domain of its own, so that SCHED_DEADLINE is partitioned: four ways, each tried for real
//! with a thread of our own before any other thread is touched.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use takt_rt::placement::CpuSet;

use crate::restore::{self, Change, Hidden, Journal, ThreadBefore};
use crate::system::{self, Attributes, GroupVersion, Kernel};

/// A way of binding reservations to cores, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Partition roots of cgroup v2: the kernel admits per core, and keeps all other threads off those cores.
    PartitionRoots,
    /// Exclusive cpusets of cgroup v1: the kernel admits per core; other threads keep their CPUs but are no longer balanced between
    /// the domains.
    ExclusiveSets,
    /// Admission control off (`sched_rt_runtime_us = -1`) and plain affinity: the kernel keeps budgets but no longer checks that they
    /// fit, so the plan alone sees to that. Fair threads are balanced over all CPUs as ever.
    AdmissionOff,
    /// No binding: global earliest deadline first. Budgets are kept, but bounds that assume a core of one's own do not hold strictly.
    Global,
}

impl Mode {
    /// All, best first. The admission test off comes before exclusive sets of version 1: those switch load balancing off for every
    /// thread of the machine, managed or not, and refuse a reservation where an ended one has not left its domain yet; a thread in
    /// a set without its reservation starves.
    pub const ALL: [Self; 4] = [Self::PartitionRoots, Self::AdmissionOff, Self::ExclusiveSets, Self::Global];

    /// The control groups that it uses.
    #[must_use]
    pub fn groups(self) -> Option<GroupVersion> {
        match self {
            Self::PartitionRoots => Some(GroupVersion::V2),
            Self::ExclusiveSets => Some(GroupVersion::V1),
            Self::AdmissionOff | Self::Global => None,
        }
    }

    /// Whether threads that exhaust their budget may reclaim what others leave (GRUB) without harm to others.
    ///
    /// With admission off they may not: the kernel spreads the bandwidth of every reservation over all CPUs of the domain when it
    /// computes what is free, while ours sit on one. Several of them would take the same free bandwidth.
    #[must_use]
    pub fn reclaim_is_sound(self) -> bool {
        self != Self::AdmissionOff
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PartitionRoots => "partition roots (cgroup v2)",
            Self::ExclusiveSets => "exclusive cpusets (cgroup v1)",
            Self::AdmissionOff => "affinity, admission control off",
            Self::Global => "global, not partitioned",
        })
    }
}

/// Why a way cannot be gone here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The way.
    pub mode: Mode,
    /// Why not.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.mode, self.reason)
    }
}

/// What went wrong within one way.
pub(super) enum Trouble {
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

fn at(path: &Path) -> impl FnOnce(io::Error) -> Trouble + '_ {
    move |error| Trouble::Closed(format!("{}: {error}", path.display()))
}

const SYSCTL: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// The least budget that the kernel takes (`1 << DL_SCALE`).
pub(super) const LEAST_BUDGET_NS: u64 = 1024;

/// Cores made ready for reservations.
#[derive(Debug)]
pub(super) struct Partition {
    pub mode: Mode,
    /// Groups by core.
    groups: BTreeMap<usize, PathBuf>,
    /// Where managed processes live with cgroup v2.
    home: Option<PathBuf>,
    mount: Option<PathBuf>,
    /// With cgroup v2.
    hidden: Option<Hidden>,
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
                set(kernel, journal, Path::new(SYSCTL), "-1", None)?;
            }
            Mode::Global => {}
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

    fn exclusive_sets(
        &mut self,
        kernel: &mut dyn Kernel,
        journal: &mut Journal,
        cores: &[usize],
    ) -> Result<(), Trouble> {
        let version = GroupVersion::V1;
        let mount = kernel
            .group_mount(version)
            .ok_or_else(|| Trouble::Closed("no cpuset hierarchy of cgroup v1 is mounted".into()))?;
        let memory = mount.join("cpuset.mems");
        let memory = kernel.read(&memory).map_err(at(&memory))?;
        let online = kernel.online().map_err(|error| Trouble::Closed(error.to_string()))?;
        let reserved = cpu_set(cores)?;
        let rest = online.without(&reserved);
        let mut sets: Vec<(String, CpuSet, Option<usize>)> = Vec::new();
        for &core in cores {
            sets.push((format!("takt-{core}"), cpu_set(&[core])?, Some(core)));
        }
        // Without a set of their own the other CPUs would not be balanced among each other.
        if !rest.is_empty() {
            sets.push(("takt-system".into(), rest, None));
        }
        for (name, cpus, core) in sets {
            let path = mount.join(name);
            group(kernel, journal, &path, version, &mount)?;
            for (file, value) in [
                ("cpuset.mems", memory.trim()),
                ("cpuset.cpus", &cpus.to_string()),
                ("cpuset.cpu_exclusive", "1"),
                ("cpuset.sched_load_balance", "1"),
            ] {
                let file = path.join(file);
                kernel.write(&file, value).map_err(at(&file))?;
            }
            if let Some(core) = core {
                self.groups.insert(core, path);
            }
        }
        set(kernel, journal, &mount.join("cpuset.sched_load_balance"), "0", None)?;
        self.mount = Some(mount);
        Ok(())
    }

    fn partition_roots(
        &mut self,
        kernel: &mut dyn Kernel,
        journal: &mut Journal,
        cores: &[usize],
    ) -> Result<(), Trouble> {
        let version = GroupVersion::V2;
        let mount = kernel
            .group_mount(version)
            .ok_or_else(|| Trouble::Closed("no cgroup v2 hierarchy is mounted".into()))?;
        let has_cpuset = |text: &str| text.split_whitespace().any(|name| name == "cpuset");
        let list = mount.join("cgroup.controllers");
        if !has_cpuset(&kernel.read(&list).map_err(at(&list))?) {
            let reason = "the cpuset controller is not in the cgroup v2 hierarchy (cgroup v1 holds it, or the kernel lacks it)";
            return Err(Trouble::Closed(reason.into()));
        }
        let enabled = mount.join("cgroup.subtree_control");
        if !has_cpuset(&kernel.read(&enabled).map_err(at(&enabled))?) {
            set(kernel, journal, &enabled, "+cpuset", Some("-cpuset"))?;
        }
        // Threads of one process are to run in several groups, so the groups are threaded ones below the group in which
        // the processes live. That one is no partition root, which makes its children remote partitions.
        let home = mount.join("takt-managed");
        group(kernel, journal, &home, version, &mount)?;
        let exclusive = home.join("cpuset.cpus.exclusive");
        if kernel.read(&exclusive).is_err() {
            let reason = "threaded partition roots need cpuset.cpus.exclusive (Linux 6.7 or newer)";
            return Err(Trouble::Closed(reason.into()));
        }
        let reserved = cpu_set(cores)?;
        let online = kernel.online().map_err(|error| Trouble::Closed(error.to_string()))?;
        let hidden = Hidden { cores: reserved, online };
        journal.hide(kernel, hidden);
        self.hidden = Some(hidden);
        for &core in cores {
            let path = home.join(format!("core-{core}"));
            group(kernel, journal, &path, version, &home)?;
            let kind = path.join("cgroup.type");
            kernel.write(&kind, "threaded").map_err(at(&kind))?;
            self.groups.insert(core, path);
        }
        let enabled = home.join("cgroup.subtree_control");
        kernel.write(&enabled, "+cpuset").map_err(at(&enabled))?;
        kernel.write(&exclusive, &reserved.to_string()).map_err(at(&exclusive))?;
        for (core, path) in &self.groups {
            let core = core.to_string();
            for (file, value) in [
                ("cpuset.cpus", core.as_str()),
                ("cpuset.cpus.exclusive", &core),
                ("cpuset.cpus.partition", "root"),
            ] {
                let file = path.join(file);
                kernel.write(&file, value).map_err(at(&file))?;
            }
            let file = path.join("cpuset.cpus.partition");
            let state = kernel.read(&file).map_err(at(&file))?;
            if state.trim() != "root" {
                return Err(Trouble::Closed(format!("{}: {}", file.display(), state.trim())));
            }
        }
        self.home = Some(home);
        self.mount = Some(mount);
        Ok(())
    }

    /// Reserves for a thread of ours on each core, and reads back.
    fn attempt(
        &self,
        kernel: &mut dyn Kernel,
        journal: &mut Journal,
        cores: &[usize],
    ) -> Result<(), Trouble> {
        let (pid, tid) =
            kernel.scratch().map_err(|error| Trouble::Closed(format!("no thread to try with: {error}")))?;
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
            return Err(format!("asked for {asked} on CPU {core}, read back {has}"));
        }
        let cpus = kernel.affinity(tid).map_err(|error| refused("reading back", error))?;
        if self.mode != Mode::Global && (cpus.len() != 1 || !cpus.contains(core)) {
            return Err(format!("asked for CPU {core} alone, read back {cpus}"));
        }
        Ok(())
    }

    /// Puts a thread that has no reservation on a core and gives it one.
    ///
    /// A sleeping thread counts as being on the CPU where it went to sleep, whatever its group, and the kernel grants a reservation only in
    /// the domain of that CPU (EPERM otherwise). So it gets its reservation there and moves with it. The way must not lead
    /// from a group that holds both CPUs: the kernel would not account the move.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: that domain is full. The thread waits on its core without reservation; try again when it has woken.
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
                // An affinity that the thread chose for itself would be applied within the set; none is left then.
                kernel.write(&self.group_of(core)?.join("tasks"), &tid.to_string())
            }
            Mode::AdmissionOff => kernel.set_affinity(tid, &single(core).map_err(io::Error::other)?),
            Mode::Global => {
                let online = kernel.online()?;
                if kernel.affinity(tid)? == online { Ok(()) } else { kernel.set_affinity(tid, &online) }
            }
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

    /// What a thread shows that [`Partition::settle`] let run on `cpus`.
    pub fn shown(&self, cpus: &CpuSet) -> CpuSet {
        match &self.hidden {
            Some(hidden) if self.core_of(cpus).is_none() => hidden.shown(cpus),
            _ => *cpus,
        }
    }

    /// The core of the partition that is all of `cpus`.
    fn core_of(&self, cpus: &CpuSet) -> Option<usize> {
        cpus.iter().next().filter(|core| cpus.len() == 1 && self.groups.contains_key(core))
    }

    /// Sets the CPUs of a thread outside of the partition.
    fn confine(&self, kernel: &mut dyn Kernel, tid: u32, cpus: &CpuSet) -> io::Result<()> {
        let shown = self.hidden.map_or(*cpus, |hidden| hidden.shown(cpus));
        if kernel.affinity(tid)? == shown {
            return Ok(());
        }
        // The kernel cuts off what is hidden and remembers the rest, but refuses a set of which nothing is left.
        let hidden = shown.without(cpus) == shown;
        kernel.set_affinity(tid, if hidden { &shown } else { cpus })
    }

    /// Lets a thread without reservation run on `cpus`, which are one core of the partition or those outside of it.
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
        matches!(self.mode, Mode::AdmissionOff | Mode::Global)
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
        let missing =
            || io::Error::new(io::ErrorKind::InvalidInput, format!("CPU {core} was not made ready"));
        self.groups.get(&core).map(PathBuf::as_path).ok_or_else(missing)
    }
}

fn single(core: usize) -> Result<CpuSet, takt_rt::Error> {
    CpuSet::single(core)
}

fn cpu_set(cores: &[usize]) -> Result<CpuSet, Trouble> {
    CpuSet::from_cpus(cores.iter().copied())
        .ok_or_else(|| Trouble::Closed(format!("core list {cores:?} exceeds CPU {}", CpuSet::MAX_CPU)))
}

/// Writes a setting after recording what undoes it: `undo`, or what is there now.
pub(super) fn set(
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

fn group(
    kernel: &mut dyn Kernel,
    journal: &mut Journal,
    path: &Path,
    version: GroupVersion,
    heir: &Path,
) -> Result<(), Trouble> {
    journal.change(Change::Group { path: path.to_owned(), version, heir: heir.to_owned() })?;
    match kernel.make_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(at(path)(error)),
        _ => Ok(()),
    }
}

/// Makes the cores ready in the first way that works.
pub(super) fn establish(
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
pub(super) fn gone(error: &io::Error) -> bool {
    system::is_gone(error)
}
