//! The running kernel.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use takt_rt::clock::monotonic_ns;
use takt_rt::placement::CpuSet;

use takt_rt::procfs::Stat;

use super::account::{self, Account};
use super::held::{Held, read_short};
use super::writers::Writers;
use super::{Attributes, GroupVersion, Identity, Kernel, Usage};

/// The running kernel, through system calls, `/proc` and control groups.
#[derive(Debug, Default)]
pub struct Linux {
    scratch: Option<Scratch>,
    fillers: BTreeMap<usize, Scratch>,
    account: Account,
    held: Held,
    writers: Option<Writers>,
}

/// Spinning time, and the channel for the times at which the thread ran.
type Spin = (u64, mpsc::Sender<Vec<(u64, u64)>>);

/// A thread of ours that sleeps.
#[derive(Debug)]
struct Scratch {
    tid: u32,
    work: mpsc::Sender<Spin>,
    thread: JoinHandle<()>,
}

impl Scratch {
    fn start(name: String) -> io::Result<Self> {
        let (work, given) = mpsc::channel::<Spin>();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let _ = sender.send(takt_rt::thread::own_tid() as u32);
            for (for_ns, answer) in given {
                let _ = answer.send(spin(for_ns));
            }
        })?;
        let tid = receiver.recv().map_err(io::Error::other)?;
        Ok(Self { tid, work, thread })
    }

    fn finish(self) {
        drop(self.work);
        let _ = self.thread.join();
    }
}

/// Longer gaps end a run; interrupts are shorter.
const GAP_NS: u64 = 200_000;

/// Spins; when it ran.
fn spin(for_ns: u64) -> Vec<(u64, u64)> {
    let mut runs = Vec::with_capacity(1024);
    let began_ns = monotonic_ns();
    let (mut from_ns, mut last_ns) = (began_ns, began_ns);
    while last_ns < began_ns.saturating_add(for_ns) {
        let now_ns = monotonic_ns();
        if now_ns - last_ns > GAP_NS {
            runs.push((from_ns, last_ns));
            from_ns = now_ns;
        }
        last_ns = now_ns;
    }
    runs.push((from_ns, last_ns));
    runs
}

impl Linux {
    /// The running kernel.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that waits for the end of these reservations, and has the kernel count anew
    /// ([`Kernel::recount`]).
    pub(crate) fn after_the_death_of(reservations: impl Iterator<Item = Attributes>) -> Self {
        let mut kernel = Self::new();
        let tick_ns = kernel.tick_ns();
        reservations.for_each(|reservation| kernel.account.given(&reservation, tick_ns));
        kernel.account.emptied(Err(io::ErrorKind::NotFound.into()));
        kernel
    }

    /// Ends a thread of ours, without a reservation: see [`account`].
    fn finish(&mut self, thread: Scratch) {
        let _ = self.set_attributes(thread.tid, &Attributes::other(0));
        thread.finish();
    }
}

pub(super) fn task_file(pid: u32, tid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/task/{tid}/{name}"))
}

pub(super) fn unexpected(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} has an unexpected format"))
}

fn numbers(path: &str) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        found.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(found)
}

/// Reads a stat file. It uses a buffer on the stack, because hundreds are read every second.
fn of_stat<T>(pid: u32, tid: u32, read: impl FnOnce(&Stat<&[u8]>) -> Option<T>) -> io::Result<T> {
    // 52 fields of numbers and a name.
    let mut bytes = [0; 2048];
    let bytes = read_short(&task_file(pid, tid, "stat"), &mut bytes)?;
    Stat::parse(bytes).as_ref().and_then(read).ok_or_else(|| unexpected("stat"))
}

/// When a thread started, clock ticks since boot.
pub(super) fn start_ticks(pid: u32, tid: u32) -> io::Result<u64> {
    of_stat(pid, tid, |stat| stat.start_ticks())
}

fn outcome(rc: libc::c_long) -> io::Result<()> {
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set(tid: u32, attr: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: `attr` is a valid sched_attr whose size field says how much the kernel may read.
    outcome(unsafe { libc::syscall(libc::SYS_sched_setattr, tid, attr, 0) })
}

fn raw(attributes: &Attributes) -> libc::sched_attr {
    libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: attributes.policy,
        sched_flags: attributes.flags,
        sched_nice: attributes.nice,
        sched_priority: attributes.priority,
        sched_runtime: attributes.runtime_ns,
        sched_deadline: attributes.deadline_ns,
        sched_period: attributes.period_ns,
    }
}

impl Kernel for Linux {
    fn threads(&self, pid: u32) -> io::Result<Vec<u32>> {
        numbers(&format!("/proc/{pid}/task"))
    }

    fn processes(&self) -> io::Result<Vec<u32>> {
        numbers("/proc")
    }

    fn kernel_threads(&self) -> io::Result<Vec<u32>> {
        // Children of kthreadd, which is number 2 and a kernel thread as well.
        let is_kernel = |pid: &u32| *pid == 2 || Stat::of(pid).is_some_and(|stat| stat.parent() == Some(2));
        Ok(numbers("/proc")?.into_iter().filter(is_kernel).collect())
    }

    fn start_ticks(&self, pid: u32, tid: u32) -> io::Result<u64> {
        start_ticks(pid, tid)
    }

    fn thread_name(&self, pid: u32, tid: u32) -> io::Result<String> {
        Ok(fs::read_to_string(task_file(pid, tid, "comm"))?.trim_end().to_owned())
    }

    fn run_ns(&self, pid: u32, tid: u32) -> io::Result<u64> {
        let mut bytes = [0; 80];
        let bytes = read_short(&task_file(pid, tid, "schedstat"), &mut bytes)?;
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let first = text.split_ascii_whitespace().next();
        first.and_then(|text| text.parse().ok()).ok_or_else(|| unexpected("schedstat"))
    }

    fn wants_to_run(&self, pid: u32, tid: u32) -> io::Result<bool> {
        of_stat(pid, tid, |stat| Some(stat.field(3)? == "R"))
    }

    fn last_cpu(&self, pid: u32, tid: u32) -> io::Result<usize> {
        of_stat(pid, tid, |stat| stat.number(39))
    }

    fn attributes(&self, tid: u32) -> io::Result<Attributes> {
        let mut attr = raw(&Attributes::default());
        // SAFETY: `attr` is writable, and the kernel writes at most the size given.
        outcome(unsafe {
            libc::syscall(libc::SYS_sched_getattr, tid, &mut attr, size_of::<libc::sched_attr>(), 0)
        })?;
        Ok(Attributes {
            policy: attr.sched_policy,
            flags: attr.sched_flags,
            nice: attr.sched_nice,
            priority: attr.sched_priority,
            runtime_ns: attr.sched_runtime,
            deadline_ns: attr.sched_deadline,
            period_ns: attr.sched_period,
        })
    }

    fn set_attributes(&mut self, tid: u32, attributes: &Attributes) -> io::Result<()> {
        if attributes.is_deadline() {
            self.account.given(attributes, self.tick_ns());
        } else if self.attributes(tid).is_ok_and(|now| now.is_deadline()) {
            // One that runs is not: it would get into a debt that the least budget pays back in
            // minutes, and carry it into its next reservation.
            if self.wants_to_run(tid, tid).unwrap_or(true) {
                self.account.leaves();
            } else {
                self.account.emptied(set(tid, &raw(&account::weightless())));
            }
        }
        let mut attr = raw(attributes);
        let fair = [libc::SCHED_OTHER, libc::SCHED_BATCH].map(|policy| policy as u32);
        if fair.contains(&attr.sched_policy) && attr.sched_runtime != 0 {
            // Fair threads read back their slice whether they chose it or not. One like ours is the
            // default, and is not to be nailed down: 0 means the default.
            let own = self.attributes(0).map_or(0, |own| own.runtime_ns);
            if own == attr.sched_runtime {
                attr.sched_runtime = 0;
            }
        }
        set(tid, &attr)
    }

    fn owner_file(&self) -> Option<PathBuf> {
        Some(crate::reserve::restore::owner::OWNER_FILE.into())
    }

    fn watch_writes(&mut self, path: &Path) {
        self.writers = Writers::of(path).ok();
    }

    fn last_writer(&mut self) -> Option<String> {
        let pid = self.writers.as_ref()?.last()?;
        let Ok(pid @ 1..) = u32::try_from(pid) else {
            return Some("a process of another container".to_owned());
        };
        Some(match self.thread_name(pid, pid) {
            Ok(name) => format!("process {pid} (`{name}`)"),
            Err(_) => format!("process {pid} (ended since)"),
        })
    }

    fn await_zero_lag(&mut self, died: bool) {
        if self.account.take_leaving() || died {
            std::thread::sleep(self.account.longest());
        }
    }

    fn recount(&mut self) {
        if self.account.take_wrong() {
            let path = Path::new(crate::reserve::ADMISSION_FILE);
            let _ = self.read(path).and_then(|now| self.write(path, now.trim()));
        }
    }

    fn affinity(&self, tid: u32) -> io::Result<CpuSet> {
        use takt_rt::Error;
        let tid = i32::try_from(tid).map_err(io::Error::other)?;
        takt_rt::placement::affinity(tid).map_err(|error| match error {
            Error::Refused { source, .. } => source,
            error => io::Error::other(error),
        })
    }

    fn set_affinity(&mut self, tid: u32, cpus: &CpuSet) -> io::Result<()> {
        let everywhere = self.online()?.without(cpus).is_empty();
        let all = || CpuSet::from_cpus(0..=CpuSet::MAX_CPU);
        let cpus = if everywhere { all().unwrap_or(*cpus) } else { *cpus };
        takt_rt::placement::try_affinity(tid as i32, &cpus)
    }

    fn online(&self) -> io::Result<CpuSet> {
        takt_rt::placement::online().map_err(io::Error::other)
    }

    fn group(&self, pid: u32, tid: u32, version: GroupVersion) -> io::Result<Option<String>> {
        let text = fs::read_to_string(task_file(pid, tid, "cgroup"))?;
        Ok(text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let ours = match version {
                GroupVersion::V1 => controllers.split(',').any(|name| name == "cpuset"),
                GroupVersion::V2 => number == "0" && controllers.is_empty(),
            };
            ours.then(|| path.to_owned())
        }))
    }

    fn group_mount(&self, version: GroupVersion) -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (place, kind, options) = (words.next()?, words.next()?, words.next()?);
            let ours = match version {
                GroupVersion::V1 => kind == "cgroup" && options.split(',').any(|option| option == "cpuset"),
                GroupVersion::V2 => kind == "cgroup2",
            };
            ours.then(|| PathBuf::from(place))
        })
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }

    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        // One write call, and never a new file: the kernel takes values whole.
        fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
    }

    fn make_dir(&mut self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn thread_count(&self, pid: u32) -> io::Result<usize> {
        self.held.thread_count(pid)
    }

    fn usage(&self, thread: &Identity) -> io::Result<Usage> {
        self.held.usage(thread)
    }

    fn is_alive(&self, thread: &Identity) -> bool {
        self.held.is_alive(thread).unwrap_or_else(|| {
            // A thread that has ended but is not reaped holds nothing any more.
            Stat::of_thread(thread.pid, thread.tid)
                .is_some_and(|stat| stat.is_alive() && stat.start_ticks() == Some(thread.start_ticks))
        })
    }

    fn fill(&mut self, cpu: usize, reservation: Option<&Attributes>) -> io::Result<()> {
        let Some(reservation) = reservation else {
            if let Some(filler) = self.fillers.remove(&cpu) {
                self.finish(filler);
            }
            return Ok(());
        };
        let tid = match self.fillers.get(&cpu) {
            Some(filler) => filler.tid,
            None => {
                let filler = Scratch::start(format!("takt-fill-{cpu}"))?;
                let tid = filler.tid;
                self.fillers.insert(cpu, filler);
                self.set_affinity(tid, &CpuSet::single(cpu).map_err(io::Error::other)?)?;
                tid
            }
        };
        if self.attributes(tid)?.serves(reservation) {
            return Ok(());
        }
        self.set_attributes(tid, reservation)
    }

    fn scratch(&mut self) -> io::Result<(u32, u32)> {
        let pid = std::process::id();
        if let Some(scratch) = &self.scratch {
            return Ok((pid, scratch.tid));
        }
        let scratch = Scratch::start("takt-scratch".into())?;
        let tid = scratch.tid;
        self.scratch = Some(scratch);
        Ok((pid, tid))
    }

    fn spin_scratch(&mut self, for_ns: u64) -> io::Result<Vec<(u64, u64)>> {
        let scratch = self.scratch.as_ref().ok_or_else(|| unexpected("the trial's thread"))?;
        let (answer, answered) = mpsc::channel();
        scratch.work.send((for_ns, answer)).map_err(io::Error::other)?;
        answered.recv().map_err(io::Error::other)
    }

    fn tick_ns(&self) -> u64 {
        // The longest that Linux is configured with (HZ=100).
        takt_rt::clock::tick_ns().unwrap_or(10_000_000)
    }

    fn end_scratch(&mut self) {
        if let Some(scratch) = self.scratch.take() {
            self.finish(scratch);
        }
    }
}

impl Drop for Linux {
    fn drop(&mut self) {
        self.end_scratch();
        for (_, filler) in std::mem::take(&mut self.fillers) {
            self.finish(filler);
        }
    }
}

/// The share of each CPU that the kernel admits to reservations:
/// `sched_rt_runtime_us / sched_rt_period_us`, less what the fair server holds (50 ms per second
/// since Linux 6.12, so 0.90 with the defaults). `None` where it cannot be reported.
///
/// The kernel does not show the fair server outside of debugfs, so its presence is taken from there
/// or from the release.
#[must_use]
pub fn deadline_capacity() -> Option<f64> {
    let number = |path: &str| fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<f64>().ok());
    let runtime = number("/proc/sys/kernel/sched_rt_runtime_us")?;
    let period = number("/proc/sys/kernel/sched_rt_period_us").filter(|&us| us > 0.0)?;
    let limit = if runtime < 0.0 { 1.0 } else { runtime / period };
    let server = "/sys/kernel/debug/sched/fair_server/cpu0";
    let held = match (number(&format!("{server}/runtime")), number(&format!("{server}/period"))) {
        (Some(runtime), Some(period)) if period > 0.0 => runtime / period,
        _ if release_is_at_least(6, 12) => 0.05,
        _ => 0.0,
    };
    Some((limit - held).max(0.0))
}

fn release_is_at_least(major: u32, minor: u32) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    super::version(&release).is_some_and(|version| version >= (major, minor))
}
