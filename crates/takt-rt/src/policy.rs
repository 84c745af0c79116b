//! Scheduling policies: set by `sched_setattr`, read back by `sched_getattr`.
//!
//! In configurations a policy is a short string or a table:
//!
//! ```toml
//! policy = "fifo:80"                        # other, other:-5, rr:10, deadline:500us/2ms/2ms
//! policy = { kind = "deadline", runtime = "500us", deadline = "2ms", period = "2ms" }
//! ```
//!
//! Threads and processes that a real-time thread spawns start as SCHED_OTHER (SCHED_FLAG_RESET_ON_FORK), so a
//! library's helper threads become real-time only where the [census](crate::census) says so, and a
//! SCHED_DEADLINE thread may spawn at all.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::error::{Cause, Error};
use crate::{duration, placement, sys};

/// How the kernel schedules a thread (sched(7)).
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
    /// SCHED_DEADLINE: a reservation of `runtime` in every `period`, to be had before `deadline`; above all
    /// other policies, and admitted only when it fits.
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
    },
}

/// Least SCHED_DEADLINE runtime that the kernel takes (`1 << DL_SCALE`, kernel/sched/deadline.c).
const MIN_RUNTIME_NS: u64 = 1024;

impl Default for Policy {
    fn default() -> Self {
        Self::Other { nice: 0 }
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Policy {
    /// Checks the parameters: nice -20..=19, priorities 1..=99, 1024 ns <= runtime <= deadline <= period.
    pub fn validate(&self) -> Result<(), Error> {
        let error = |reason: String| Err(Error::InvalidPolicy { given: self.to_string(), reason });
        match *self {
            Self::Other { nice } if !(-20..=19).contains(&nice) => {
                error(format!("nice {nice} is not in -20..=19"))
            }
            Self::Fifo { priority } | Self::RoundRobin { priority } if !(1..=99).contains(&priority) => {
                error(format!("priority {priority} is not in 1..=99"))
            }
            Self::Deadline { runtime, deadline, period } => {
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
    /// [`Error::InvalidPolicy`] without asking the kernel; [`Error::Refused`] with the missing capability or
    /// limit and the fix.
    pub fn apply(&self, tid: i32) -> Result<(), Error> {
        self.validate()?;
        let mut attr = self.attributes();
        if !self.is_real_time() {
            // Dropping the reset-on-fork flag needs a privilege and changes nothing for SCHED_OTHER.
            attr.sched_flags = get(tid)?.sched_flags & libc::SCHED_FLAG_RESET_ON_FORK as u64;
        }
        // SAFETY: `attr` is a valid sched_attr whose size field says how much the kernel may read.
        let rc = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &attr, 0) };
        if rc == 0 { Ok(()) } else { Err(self.refused(tid, io::Error::last_os_error())) }
    }

    /// The policy that thread `tid` (0: the calling one) has now, read from the kernel. SCHED_BATCH and
    /// SCHED_IDLE read as [`Policy::Other`].
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
            Self::Deadline { runtime, deadline, period } => {
                attr.sched_policy = libc::SCHED_DEADLINE as u32;
                attr.sched_runtime = ns(runtime);
                attr.sched_deadline = ns(deadline);
                attr.sched_period = ns(period);
            }
        }
        if self.is_real_time() {
            attr.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
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

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Other { nice: 0 } => f.write_str("other"),
            Self::Other { nice } => write!(f, "other:{nice}"),
            Self::Fifo { priority } => write!(f, "fifo:{priority}"),
            Self::RoundRobin { priority } => write!(f, "rr:{priority}"),
            Self::Deadline { runtime, deadline, period } => {
                let [runtime, deadline, period] = [runtime, deadline, period].map(duration::format);
                write!(f, "deadline:{runtime}/{deadline}/{period}")
            }
        }
    }
}

impl FromStr for Policy {
    type Err = Error;

    /// Reads the short form and validates it.
    fn from_str(text: &str) -> Result<Self, Error> {
        let error = |reason: String| Error::InvalidPolicy { given: text.to_owned(), reason };
        let (kind, parameters) = match text.trim().split_once(':') {
            Some((kind, parameters)) => (kind.trim(), Some(parameters.trim())),
            None => (text.trim(), None),
        };
        let priority = || {
            let given = parameters.ok_or_else(|| error("the priority is missing".into()))?;
            given.parse::<u8>().map_err(|_| error(format!("`{given}` is not a priority")))
        };
        let policy = match kind {
            "other" => Self::Other {
                nice: parameters.map_or(Ok(0), |given| {
                    given.parse().map_err(|_| error(format!("`{given}` is not a nice value")))
                })?,
            },
            "fifo" => Self::Fifo { priority: priority()? },
            "rr" => Self::RoundRobin { priority: priority()? },
            "deadline" => {
                let parts: Vec<_> = parameters.unwrap_or_default().split('/').collect();
                let [runtime, deadline, period] = parts[..] else {
                    return Err(error(format!("expected three durations, found {}", parts.len())));
                };
                let read = |part| duration::parse(part).map_err(|reason| error(reason.to_string()));
                Self::Deadline { runtime: read(runtime)?, deadline: read(deadline)?, period: read(period)? }
            }
            _ => return Err(error(format!("unknown policy `{kind}`"))),
        };
        policy.validate()?;
        Ok(policy)
    }
}

/// The table form, field by field.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum Table {
    Other {
        #[serde(default)]
        nice: i32,
    },
    Fifo {
        priority: u8,
    },
    Rr {
        priority: u8,
    },
    Deadline {
        #[serde(with = "duration")]
        runtime: Duration,
        #[serde(with = "duration")]
        deadline: Duration,
        #[serde(with = "duration")]
        period: Duration,
    },
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Policy;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a policy as `fifo:80` or a table with `kind`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Policy, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Policy, A::Error> {
                let policy = match Table::deserialize(de::value::MapAccessDeserializer::new(map))? {
                    Table::Other { nice } => Policy::Other { nice },
                    Table::Fifo { priority } => Policy::Fifo { priority },
                    Table::Rr { priority } => Policy::RoundRobin { priority },
                    Table::Deadline { runtime, deadline, period } => {
                        Policy::Deadline { runtime, deadline, period }
                    }
                };
                policy.validate().map_err(de::Error::custom)?;
                Ok(policy)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_policy() -> impl Strategy<Value = Policy> {
        prop_oneof![
            (-20..=19).prop_map(|nice| Policy::Other { nice }),
            (1..=99u8).prop_map(|priority| Policy::Fifo { priority }),
            (1..=99u8).prop_map(|priority| Policy::RoundRobin { priority }),
            (1024u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40).prop_map(|(runtime, slack, rest)| {
                Policy::Deadline {
                    runtime: Duration::from_nanos(runtime),
                    deadline: Duration::from_nanos(runtime + slack),
                    period: Duration::from_nanos(runtime + slack + rest),
                }
            }),
        ]
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Config {
        policy: Policy,
    }

    #[test]
    fn toml_reads_both_forms() {
        let read = |text: &str| toml::from_str::<Config>(text).unwrap().policy;
        assert_eq!(read("policy = 'fifo:80'"), Policy::Fifo { priority: 80 });
        assert_eq!(read("policy = { kind = 'rr', priority = 10 }"), Policy::RoundRobin { priority: 10 });
        assert_eq!(read("policy = { kind = 'other' }"), Policy::default());
        let reservation = read("policy = 'deadline:500us/2ms/2ms'");
        assert_eq!(
            read("policy = { kind = 'deadline', runtime = '500us', deadline = '2ms', period = '2ms' }"),
            reservation
        );
        assert_eq!(reservation.to_string(), "deadline:500us/2ms/2ms");
    }

    #[test]
    fn wrong_policies_say_what_is_accepted() {
        for text in [
            "fifo",
            "fifo:0",
            "fifo:100",
            "fifo:-1",
            "rr:x",
            "other:20",
            "idle",
            "",
            "deadline:1ms",
            "deadline:",
            "deadline:3ms/2ms/2ms",
            "deadline:1ms/3ms/2ms",
            "deadline:1us/1ms/1ms",
            "deadline:1/2/3",
        ] {
            let message = text.parse::<Policy>().unwrap_err().to_string();
            assert!(message.contains("accepted:"), "{message}");
        }
        let unknown =
            toml::from_str::<Config>("policy = { kind = 'fifo', priority = 1, nice = 3 }").unwrap_err();
        assert!(unknown.to_string().contains("nice"), "{unknown}");
        assert!(toml::from_str::<Config>("policy = { kind = 'fifo', priority = 0 }").is_err());
        assert!(toml::from_str::<Config>("policy = 3").is_err());
    }

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
                    eprintln!("SKIPPED: {text} not granted here: {cause}");
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
    fn a_bound_thread_cannot_reserve_and_is_told_why() {
        let online = placement::online().unwrap();
        if online.len() < 2 {
            eprintln!("SKIPPED: needs two CPUs");
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

    proptest! {
        #[test]
        fn text_and_toml_round_trip(policy in any_policy()) {
            prop_assert_eq!(policy.to_string().parse::<Policy>().unwrap(), policy);
            let text = toml::to_string(&Config { policy }).unwrap();
            prop_assert_eq!(toml::from_str::<Config>(&text).unwrap(), Config { policy });
        }

        #[test]
        fn parsing_never_panics(text in "(other|fifo|rr|deadline|x)?:?[0-9a-z/.µ-]{0,16}") {
            if let Ok(policy) = text.parse::<Policy>() {
                prop_assert!(policy.validate().is_ok());
            }
        }
    }
}
