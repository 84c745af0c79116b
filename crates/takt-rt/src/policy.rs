//! Scheduling policies: set by `sched_setattr`, read back by `sched_getattr`.
//!
//! In configurations a policy is a short string or a table:
//!
//! ```toml
//! policy = "fifo:80"                        # other, other:-5, rr:10, deadline:500us/2ms/2ms
//! policy = { kind = "deadline", runtime = "500us", deadline = "2ms", period = "2ms" }
//! ```
//!
//! Threads and processes that a real-time thread spawns start as SCHED_OTHER
//! (SCHED_FLAG_RESET_ON_FORK), so a library's helper threads become real-time only where the
//! [census](crate::census) says so, and a SCHED_DEADLINE thread may spawn at all.

use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Cause, Error};
use crate::{duration, placement, sys};

mod text;

/// Lets ready threads of the calling thread's own priority run, where nobody else would let them:
/// under SCHED_FIFO and SCHED_RR. Returns whether it did.
///
/// Under the other policies `sched_yield` gives away what is the thread's own: under SCHED_OTHER
/// its share until all other ready threads have had a slice (with 64 busy threads, 60 to 100 ms),
/// under SCHED_DEADLINE the rest of its budget. There the scheduler shares the CPU by itself.
///
/// The policy is read at each call, since a manager or chrt(1) may change it at any time: one
/// system call of about 100 ns, made where a sleep would have been another. A change between
/// reading and yielding costs one yield.
pub fn yield_to_equals() -> bool {
    let by_priority = by_fixed_priority();
    if by_priority {
        // SAFETY: takes nothing, and concerns the calling thread.
        unsafe { libc::sched_yield() };
    }
    by_priority
}

/// Whether the calling thread runs under SCHED_FIFO or SCHED_RR now.
pub fn by_fixed_priority() -> bool {
    // SAFETY: takes no pointer; 0 is the calling thread. The kernel may set the reset-on-fork bit
    // in the answer.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR)
}

/// Scheduling policy of a thread (sched(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Policy {
    /// SCHED_OTHER: fair share, without guarantees.
    Other {
        /// -20 (largest share) to 19.
        nice: i32,
    },
    /// SCHED_FIFO: runs until it sleeps or a higher priority is ready.
    Fifo {
        /// 1 (lowest) to 99.
        priority: u8,
    },
    /// SCHED_RR: as FIFO, with time slices among equal priorities.
    #[serde(rename = "rr")]
    RoundRobin {
        /// 1 (lowest) to 99.
        priority: u8,
    },
    /// SCHED_DEADLINE: a reservation of `runtime` in every `period`, to be had before `deadline`;
    /// above all other policies, and admitted only when it fits.
    Deadline {
        /// Execution time per period, at least 1024 ns.
        #[serde(with = "duration")]
        runtime: Duration,
        /// Relative deadline.
        #[serde(with = "duration")]
        deadline: Duration,
        /// Period.
        #[serde(with = "duration")]
        period: Duration,
        /// Lets the task use bandwidth that other reservations of its CPU leave unused
        /// (SCHED_FLAG_RECLAIM, GRUB: Lipari and Baruah 2000): a job that needs more than `runtime`
        /// now and then goes on instead of waiting for the next period, and no other reservation is
        /// harmed. Off by default, as in the kernel.
        #[serde(default)]
        reclaim: bool,
    },
}

/// Least SCHED_DEADLINE runtime that the kernel takes (`1 << DL_SCALE`, kernel/sched/deadline.c).
const MIN_RUNTIME_NS: u64 = 1024;

/// Gives SCHED_IDLE to the calling thread: it runs where a CPU would else be idle.
///
/// # Errors
/// The system's error.
pub fn set_idle() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: thread 0 is the calling thread, and the parameters outlive the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The calling thread comes before others that share the CPU fairly, and behind every real-time
/// one, until this is dropped by the same thread: one that does little, and must not wait for its
/// turn behind forty programs to do it. Threads that it starts in the meantime do not inherit that.
#[derive(Debug)]
pub struct Favoured {
    before: Option<Policy>,
    /// Dropped by another thread it would give that one the policy.
    _of_thread: PhantomData<*const ()>,
}

impl Favoured {
    /// Gives the calling thread this nice value, below 0. Without the right to it nothing changes,
    /// nor where it has a real-time policy.
    pub fn begin(nice: i32) -> Self {
        let before = Policy::read(0).ok().filter(|policy| !policy.is_real_time());
        let granted = before.filter(|_| {
            // A real-time policy comes with the flag that children do not inherit, and it stays.
            Policy::Fifo { priority: 1 }.apply(0).is_ok()
        });
        if let Some(before) = granted
            && (Policy::Other { nice }).apply(0).is_err()
        {
            // The thread may have its earlier policy again.
            let _ = before.apply(0);
        }
        Self { before: granted, _of_thread: PhantomData }
    }
}

impl Drop for Favoured {
    fn drop(&mut self) {
        // Refused only where another has changed it.
        let _ = self.before.take().map(|before| before.apply(0));
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::Other { nice: 0 }
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Policy {
    /// Checks the parameters: nice -20..=19, priorities 1..=99, 1024 ns <= runtime <= deadline <=
    /// period.
    pub fn validate(&self) -> Result<(), Error> {
        let error = |reason: String| Err(Error::InvalidPolicy { given: self.to_string(), reason });
        match *self {
            Self::Other { nice } if !(-20..=19).contains(&nice) => {
                error(format!("nice {nice} is not in -20..=19"))
            }
            Self::Fifo { priority } | Self::RoundRobin { priority } if !(1..=99).contains(&priority) => {
                error(format!("priority {priority} is not in 1..=99"))
            }
            Self::Deadline { runtime, deadline, period, .. } => {
                if ns(runtime) < MIN_RUNTIME_NS {
                    error(format!("the runtime is less than {MIN_RUNTIME_NS}ns"))
                } else if runtime > deadline {
                    error("the runtime exceeds the deadline".into())
                } else if deadline > period {
                    error("the deadline exceeds the period".into())
                } else if period.as_nanos() > i64::MAX as u128 {
                    error("the period exceeds 292 years".into())
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }

    /// Whether the policy is a real-time one (all but [`Policy::Other`]).
    pub fn is_real_time(&self) -> bool {
        !matches!(self, Self::Other { .. })
    }

    /// Gives thread `tid` (0: the calling one) this policy.
    ///
    /// # Errors
    /// [`Error::InvalidPolicy`] without asking the kernel; [`Error::Refused`] with the missing
    /// capability or limit and the fix.
    pub fn apply(&self, tid: i32) -> Result<(), Error> {
        self.validate()?;
        let mut attr = self.attributes();
        if !self.is_real_time() {
            // Dropping the reset-on-fork flag needs a privilege and changes nothing for
            // SCHED_OTHER.
            attr.sched_flags = get(tid)?.sched_flags & libc::SCHED_FLAG_RESET_ON_FORK as u64;
        }
        // SAFETY: `attr` is a valid sched_attr whose size field says how much the kernel may read.
        let rc = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &attr, 0) };
        if rc == 0 { Ok(()) } else { Err(self.refused(tid, io::Error::last_os_error())) }
    }

    /// The policy that thread `tid` (0: the calling one) has now, read from the kernel. SCHED_BATCH
    /// and SCHED_IDLE read as [`Policy::Other`].
    pub fn read(tid: i32) -> Result<Self, Error> {
        let attr = get(tid)?;
        let priority = attr.sched_priority as u8;
        Ok(match attr.sched_policy as i32 {
            libc::SCHED_FIFO => Self::Fifo { priority },
            libc::SCHED_RR => Self::RoundRobin { priority },
            libc::SCHED_DEADLINE => Self::Deadline {
                runtime: Duration::from_nanos(attr.sched_runtime),
                deadline: Duration::from_nanos(attr.sched_deadline),
                period: Duration::from_nanos(attr.sched_period),
                reclaim: attr.sched_flags & libc::SCHED_FLAG_RECLAIM as u64 != 0,
            },
            _ => Self::Other { nice: attr.sched_nice },
        })
    }

    fn attributes(&self) -> libc::sched_attr {
        let mut attr = empty();
        match *self {
            Self::Other { nice } => {
                attr.sched_policy = libc::SCHED_OTHER as u32;
                attr.sched_nice = nice;
            }
            Self::Fifo { priority } => {
                attr.sched_policy = libc::SCHED_FIFO as u32;
                attr.sched_priority = priority.into();
            }
            Self::RoundRobin { priority } => {
                attr.sched_policy = libc::SCHED_RR as u32;
                attr.sched_priority = priority.into();
            }
            Self::Deadline { runtime, deadline, period, reclaim } => {
                attr.sched_policy = libc::SCHED_DEADLINE as u32;
                attr.sched_runtime = ns(runtime);
                attr.sched_deadline = ns(deadline);
                attr.sched_period = ns(period);
                if reclaim {
                    attr.sched_flags |= libc::SCHED_FLAG_RECLAIM as u64;
                }
            }
        }
        if self.is_real_time() {
            attr.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
        }
        attr
    }

    /// Explains a refusal by what can be seen from here.
    fn refused(&self, tid: i32, source: io::Error) -> Error {
        let (cause, fix) = match source.raw_os_error() {
            Some(libc::EPERM) => self.not_permitted(tid),
            Some(libc::EBUSY) => self.not_admitted(),
            Some(libc::EINVAL) if matches!(self, Self::Deadline { .. }) => {
                let bound = |name, default| sysctl_us(name).unwrap_or(default);
                let (min_us, max_us) = (
                    bound("sched_deadline_period_min_us", 100),
                    bound("sched_deadline_period_max_us", 1 << 22),
                );
                let fix = "choose a period within these bounds, or `sudo sysctl \
                           kernel.sched_deadline_period_min_us=50` for shorter ones";
                (Cause::PeriodBounds { min_us, max_us }, fix.to_owned())
            }
            _ => match sys::common_cause(&source) {
                cause @ Cause::NoSuchThread => (cause, "check that the thread is alive".to_owned()),
                cause => (cause, "run outside of the sandbox, on a kernel of 3.14 or newer".to_owned()),
            },
        };
        Error::Refused { setting: format!("policy {self} for thread {tid}"), cause, fix, source }
    }

    fn not_permitted(&self, tid: i32) -> (Cause, String) {
        if !sys::has_capability(sys::CAP_SYS_NICE) {
            let limit = |name, resource, needed: u64| {
                let value = sys::soft_limit(resource);
                if value < needed {
                    Cause::Limit { name, value, needed }
                } else {
                    Cause::MissingCapability("CAP_SYS_NICE")
                }
            };
            let cause = match *self {
                Self::Fifo { priority } | Self::RoundRobin { priority } => {
                    limit("RLIMIT_RTPRIO", libc::RLIMIT_RTPRIO, priority.into())
                }
                Self::Other { nice } => limit("RLIMIT_NICE", libc::RLIMIT_NICE, (20 - nice) as u64),
                Self::Deadline { .. } => Cause::MissingCapability("CAP_SYS_NICE"),
            };
            // A limit that suffices leaves the group as the other reason.
            if matches!(cause, Cause::Limit { .. }) || matches!(self, Self::Deadline { .. }) {
                return (cause, sys::nice_fix());
            }
        }
        if matches!(self, Self::Deadline { .. }) {
            if let (Ok(allowed), Ok(online)) = (placement::affinity(tid), placement::online())
                && !online.without(&allowed).is_empty()
            {
                let cause = Cause::DeadlineAffinity { allowed: Box::new(allowed), online: Box::new(online) };
                return (cause, sys::DEADLINE_AFFINITY_FIX.into());
            }
        } else if let Some((file, 0)) = sys::group_runtime_us().filter(|_| self.is_real_time()) {
            let fix = format!(
                "`echo 950000 | sudo tee {}` (its parents need as much), or start from the root group: \
                 `echo $$ | sudo tee /sys/fs/cgroup/cpu/cgroup.procs`",
                file.display()
            );
            return (Cause::NoGroupRuntime { file }, fix);
        }
        (Cause::MissingCapability("CAP_SYS_NICE"), sys::nice_fix())
    }

    fn not_admitted(&self) -> (Cause, String) {
        let asked_ppm = match *self {
            Self::Deadline { runtime, period, .. } => {
                (runtime.as_nanos() * 1_000_000 / period.as_nanos().max(1)) as u64
            }
            _ => 0,
        };
        let runtime = sys::sysctl("sched_rt_runtime_us").unwrap_or(950_000);
        let period = sys::sysctl("sched_rt_period_us").unwrap_or(1_000_000).max(1);
        let limit_ppm =
            if runtime < 0 { 1_000_000 } else { (runtime as u64).saturating_mul(1_000_000) / period as u64 };
        let fix = "lower the runtime or lengthen the period; end other SCHED_DEADLINE threads (`ps -eLo \
                   pid,tid,cls,comm | grep -w DLN`); or `sudo sysctl kernel.sched_rt_runtime_us=-1` switches \
                   admission control off";
        (Cause::Admission { asked_ppm, limit_ppm }, fix.into())
    }
}

fn sysctl_us(name: &str) -> Option<u64> {
    sys::sysctl(name).and_then(|value| u64::try_from(value).ok())
}

fn empty() -> libc::sched_attr {
    libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    }
}

fn get(tid: i32) -> Result<libc::sched_attr, Error> {
    let mut attr = empty();
    // SAFETY: `attr` is writable and the kernel writes at most the size given.
    let rc =
        unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &mut attr, size_of::<libc::sched_attr>(), 0) };
    if rc == 0 {
        return Ok(attr);
    }
    let source = io::Error::last_os_error();
    Err(Error::Refused {
        setting: format!("reading the policy of thread {tid}"),
        cause: sys::common_cause(&source),
        fix: "check that the thread is alive".into(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_parameters_do_not_reach_the_kernel() {
        let refused = Policy::Fifo { priority: 0 }.apply(0);
        assert!(matches!(refused, Err(Error::InvalidPolicy { .. })));
    }

    #[test]
    fn what_is_applied_is_read_back() {
        for text in ["other:5", "fifo:7", "rr:3", "deadline:200us/5ms/10ms", "other:7"] {
            let policy: Policy = text.parse().unwrap();
            let outcome = std::thread::spawn(move || policy.apply(0).map(|()| Policy::read(0).unwrap()))
                .join()
                .unwrap();
            match outcome {
                Ok(effective) => assert_eq!(effective, policy),
                Err(Error::Refused { cause, fix, .. }) => {
                    assert_ne!(cause, Cause::Unknown);
                    assert!(!fix.is_empty());
                    takt_witness::skip!("{text} not granted here: {cause}");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn an_overfull_reservation_names_admission_or_privilege() {
        let all: Policy = "deadline:10ms/10ms/10ms".parse().unwrap();
        let count = placement::online().unwrap().len() + 1;
        let barrier = std::sync::Barrier::new(count);
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let attempt = || {
                let outcome = all.apply(0);
                barrier.wait();
                outcome
            };
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(attempt)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let refusal =
            outcomes.into_iter().find_map(Result::err).expect("more than all CPUs cannot be reserved");
        let Error::Refused { cause, .. } = refusal else { panic!("{refusal}") };
        assert!(matches!(cause, Cause::Admission { .. } | Cause::MissingCapability(_)), "{cause}");
    }

    #[test]
    fn a_bound_thread_cannot_reserve_and_is_reported_why() {
        let online = placement::online().unwrap();
        if online.len() < 2 {
            takt_witness::skip!("needs two CPUs");
            return;
        }
        let refusal = std::thread::spawn(|| {
            let first = placement::affinity(0).unwrap().iter().next().unwrap();
            placement::set_affinity(0, &placement::CpuSet::single(first).unwrap()).unwrap();
            "deadline:1ms/10ms/10ms".parse::<Policy>().unwrap().apply(0).unwrap_err()
        })
        .join()
        .unwrap();
        let Error::Refused { cause, .. } = refusal else { panic!("{refusal}") };
        assert!(matches!(cause, Cause::DeadlineAffinity { .. } | Cause::MissingCapability(_)), "{cause}");
    }

    #[test]
    fn a_dead_thread_is_named() {
        let refusal = Policy::default().apply(i32::MAX).unwrap_err();
        assert!(matches!(refusal, Error::Refused { cause: Cause::NoSuchThread, .. }), "{refusal}");
    }
}
