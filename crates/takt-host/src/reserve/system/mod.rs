//! Kernel operations of enactment, as a trait: the real one is [`Linux`]; tests use a simulated one
//! that refuses, loses threads and stops in the middle, which a real kernel does too rarely to be
//! tested with.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use takt_rt::placement::CpuSet;

mod account;
mod held;
mod linux;
#[cfg(any(test, feature = "simulated"))]
pub mod sim;
mod writers;

pub use linux::{Linux, deadline_capacity};

/// The first two numbers of a kernel's release.
#[must_use]
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.trim().split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    }
}

/// The kernel's unit of bandwidth: `to_ratio` of kernel/sched/core.c, rounded down as there.
#[must_use]
pub fn ratio(budget_ns: u64, period_ns: u64) -> u64 {
    if period_ns == 0 {
        return 0;
    }
    u64::try_from((u128::from(budget_ns) << 20) / u128::from(period_ns)).unwrap_or(u64::MAX)
}

/// A thread that is meant and no other: thread numbers are used again, numbers with the start time
/// are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    pub tid: u32,
    /// When it started, clock ticks since boot (field 22 of its stat file).
    pub start_ticks: u64,
}

/// Use of a thread since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// CPU time.
    pub run_ns: u64,
    /// Number of times that it got a CPU.
    pub turns: u64,
}

/// Scheduling attributes exactly as `sched_getattr` reports them, so that what is restored is what
/// was, SCHED_BATCH and flags included ([`takt_rt::policy::Policy`] knows only what Takt sets).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Attributes {
    /// SCHED_OTHER (0), SCHED_FIFO (1), SCHED_RR (2), SCHED_BATCH (3), SCHED_IDLE (5),
    /// SCHED_DEADLINE (6).
    pub policy: u32,
    /// SCHED_FLAG_RESET_ON_FORK (1), SCHED_FLAG_RECLAIM (2) and others.
    pub flags: u64,
    /// Nice value of the fair policies.
    pub nice: i32,
    /// Priority of FIFO and RR.
    pub priority: u32,
    /// Run time per period of SCHED_DEADLINE; for fair policies the slice, on kernels that have
    /// one.
    pub runtime_ns: u64,
    /// Relative deadline.
    pub deadline_ns: u64,
    pub period_ns: u64,
}

/// `SCHED_FLAG_RESET_ON_FORK`: a reserved thread may create threads only with it, and they start as
/// SCHED_OTHER.
pub const RESET_ON_FORK: u64 = 1;
/// `SCHED_FLAG_RECLAIM`: GRUB.
pub const RECLAIM: u64 = 2;

impl Attributes {
    /// SCHED_OTHER.
    #[must_use]
    pub fn other(nice: i32) -> Self {
        Self { nice, ..Self::default() }
    }

    /// A reservation whose deadline is its period.
    #[must_use]
    pub fn reservation(budget_ns: u64, period_ns: u64, reclaim: bool) -> Self {
        Self {
            policy: libc::SCHED_DEADLINE as u32,
            flags: RESET_ON_FORK | if reclaim { RECLAIM } else { 0 },
            runtime_ns: budget_ns,
            deadline_ns: period_ns,
            period_ns,
            ..Self::default()
        }
    }

    /// Whether this is a reservation.
    #[must_use]
    pub fn is_deadline(&self) -> bool {
        self.policy == libc::SCHED_DEADLINE as u32
    }

    /// Whether its thread is dead and only its number is still there: the kernel clears the
    /// parameters of a reservation when it takes a dead thread out of its account
    /// (`__dl_clear_params` in `kernel/sched/deadline.c`), and grants none of less than a
    /// microsecond to who lives.
    #[must_use]
    pub fn is_of_dead(&self) -> bool {
        self.is_deadline() && self.runtime_ns == 0
    }

    /// Whether this is a reservation that reclaims what others leave.
    #[must_use]
    pub fn reclaims(&self) -> bool {
        self.is_deadline() && self.flags & RECLAIM != 0
    }

    /// Whether a thread with these attributes runs as `asked`: fields that its policy does not use
    /// are not compared.
    #[must_use]
    pub fn serves(&self, asked: &Self) -> bool {
        let flags = RESET_ON_FORK | RECLAIM;
        self.policy == asked.policy
            && self.flags & flags == asked.flags & flags
            && match i32::try_from(asked.policy) {
                Ok(libc::SCHED_FIFO | libc::SCHED_RR) => self.priority == asked.priority,
                Ok(libc::SCHED_DEADLINE) => {
                    (self.runtime_ns, self.deadline_ns, self.period_ns)
                        == (asked.runtime_ns, asked.deadline_ns, asked.period_ns)
                }
                _ => self.nice == asked.nice,
            }
    }
}

impl std::fmt::Display for Attributes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match i32::try_from(self.policy) {
            Ok(libc::SCHED_FIFO) => write!(f, "fifo:{}", self.priority),
            Ok(libc::SCHED_RR) => write!(f, "rr:{}", self.priority),
            Ok(libc::SCHED_DEADLINE) => {
                let (budget_us, period_us) = (self.runtime_ns / 1000, self.period_ns / 1000);
                let reclaim = if self.flags & RECLAIM == 0 { "" } else { " reclaim" };
                write!(f, "deadline:{budget_us}us/{period_us}us{reclaim}")
            }
            Ok(libc::SCHED_BATCH) => write!(f, "batch:{}", self.nice),
            Ok(libc::SCHED_IDLE) => write!(f, "idle"),
            _ => write!(f, "other:{}", self.nice),
        }
    }
}

/// Kernel operations of enactment.
pub trait Kernel {
    fn threads(&self, pid: u32) -> io::Result<Vec<u32>>;
    /// All processes, kernel threads among them.
    fn processes(&self) -> io::Result<Vec<u32>>;
    fn kernel_threads(&self) -> io::Result<Vec<u32>>;
    /// When the thread started, clock ticks since boot.
    fn start_ticks(&self, pid: u32, tid: u32) -> io::Result<u64>;
    fn thread_name(&self, pid: u32, tid: u32) -> io::Result<String>;
    /// CPU time that it has used.
    fn run_ns(&self, pid: u32, tid: u32) -> io::Result<u64>;
    /// Whether it wants to run: on a CPU, waiting for one, or held back by its reservation.
    fn wants_to_run(&self, pid: u32, tid: u32) -> io::Result<bool>;
    /// The CPU that it is on, or was on when it went to sleep.
    fn last_cpu(&self, pid: u32, tid: u32) -> io::Result<usize>;
    /// Its scheduling.
    fn attributes(&self, tid: u32) -> io::Result<Attributes>;
    /// Changes how it is scheduled. A reservation that ends leaves nothing in the kernel's account
    /// ([`Linux`]).
    fn set_attributes(&mut self, tid: u32, attributes: &Attributes) -> io::Result<()>;
    /// CPUs on which it may run.
    fn affinity(&self, tid: u32) -> io::Result<CpuSet>;
    /// Changes where it may run. A set of all online CPUs means every CPU, also those that come
    /// online later.
    fn set_affinity(&mut self, tid: u32, cpus: &CpuSet) -> io::Result<()>;
    fn online(&self) -> io::Result<CpuSet>;
    /// Path of the thread's group in the hierarchy that holds the cpuset controller, from its mount
    /// point on; `None` where there is no such hierarchy.
    fn group(&self, pid: u32, tid: u32, version: GroupVersion) -> io::Result<Option<String>>;
    /// Mount point of that hierarchy.
    fn group_mount(&self, version: GroupVersion) -> Option<std::path::PathBuf>;
    /// Contents of a file of the system.
    fn read(&self, path: &Path) -> io::Result<String>;
    /// Writes a file of the system.
    fn write(&mut self, path: &Path, text: &str) -> io::Result<()>;
    /// Makes a control group.
    fn make_dir(&mut self, path: &Path) -> io::Result<()>;
    /// Removes a control group.
    fn remove_dir(&mut self, path: &Path) -> io::Result<()>;
    /// Number of a process's threads; cheap enough to be read every few milliseconds.
    fn thread_count(&self, pid: u32) -> io::Result<usize> {
        self.threads(pid).map(|threads| threads.len())
    }
    /// Use of the intended thread; an error for which [`is_gone`] holds when it is gone, also when
    /// another has its number. Cheap enough to be called for hundreds of threads every second.
    fn usage(&self, thread: &Identity) -> io::Result<Usage>;
    /// Whether the thread meant is still there.
    fn is_alive(&self, thread: &Identity) -> bool {
        self.start_ticks(thread.pid, thread.tid).is_ok_and(|ticks| ticks == thread.start_ticks)
    }
    /// Keeps a thread of this process asleep on a CPU with this reservation
    /// ([`crate::reserve::reclaim`]); `None` ends it.
    fn fill(&mut self, cpu: usize, reservation: Option<&Attributes>) -> io::Result<()>;
    /// A thread of this process that sleeps and may be tried things with; it ends with
    /// [`Kernel::end_scratch`].
    fn scratch(&mut self) -> io::Result<(u32, u32)>;
    /// Has the thread of [`Kernel::scratch`] spin for so long; when it ran, from and to, on the
    /// monotonic clock.
    fn spin_scratch(&mut self, for_ns: u64) -> io::Result<Vec<(u64, u64)>>;
    /// Length of the scheduler's tick.
    fn tick_ns(&self) -> u64;
    /// Path of the lock that keeps two programs from changing settings of the whole machine at
    /// once; none for a kernel in memory.
    fn owner_file(&self) -> Option<std::path::PathBuf> {
        None
    }
    /// From now on, who writes to this file of the system is to be known.
    fn watch_writes(&mut self, path: &Path) {
        let _ = path;
    }
    /// The last other process that wrote to it since the last call, for people; `None` where that
    /// cannot be known.
    fn last_writer(&mut self) -> Option<String> {
        None
    }
    /// Waits until the kernel has taken out of its account whose reservation ended while it ran, or
    /// who `died` with one. To be called before it counts anew.
    fn await_zero_lag(&mut self, died: bool) {
        let _ = died;
    }
    /// Has the kernel count anew where ending a reservation left something in its account.
    fn recount(&mut self) {}
    /// Ends the thread of [`Kernel::scratch`].
    fn end_scratch(&mut self);
}

/// Version of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupVersion {
    /// The cpuset hierarchy of cgroup v1.
    V1,
    /// The unified hierarchy.
    V2,
}

/// Whether the answer means that the thread or process is gone, which is never an error here.
#[must_use]
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT))
        || error.kind() == io::ErrorKind::NotFound
}

/// The thread's identity now; `None` when it is gone.
#[must_use]
pub fn identify(kernel: &dyn Kernel, pid: u32, tid: u32) -> Option<Identity> {
    let start_ticks = kernel.start_ticks(pid, tid).ok()?;
    Some(Identity { pid, tid, start_ticks })
}

/// Whether the thread meant is still there.
#[must_use]
pub fn is_alive(kernel: &dyn Kernel, of: &Identity) -> bool {
    kernel.is_alive(of)
}
