//! Errors of this crate, with the way out.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::placement::CpuSet;
use crate::settings::Difference;

/// An error of the real-time core. Messages name what was asked, what was found, and the fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A policy whose parameters cannot work, whatever the privileges.
    #[error("policy `{given}`: {reason}; accepted: {ACCEPTED_POLICIES}")]
    InvalidPolicy {
        /// The policy as written.
        given: String,
        /// The mistake in it.
        reason: String,
    },
    /// A duration that is not a number with a unit.
    #[error(
        "duration `{given}`: {reason}; accepted: a number with a unit of ns, us, ms, s or min, such as `500us` or `33.3ms`"
    )]
    InvalidDuration {
        /// The duration as written.
        given: String,
        /// The mistake in it.
        reason: &'static str,
    },
    /// A CPU list that cannot be read.
    #[error(
        "CPU list `{given}`: {reason}; accepted: numbers and ranges separated by commas, such as `0-3,5`, up to CPU {}",
        CpuSet::MAX_CPU
    )]
    InvalidCpuList {
        /// The list as written.
        given: String,
        /// The mistake in it.
        reason: String,
    },
    /// CPUs that this machine does not have, or has switched off.
    #[error("CPUs {missing} are not online (asked: {asked}, online: {online}); choose among the online ones")]
    CpusOffline {
        /// The requested CPUs.
        asked: Box<CpuSet>,
        /// The CPUs of the machine.
        online: Box<CpuSet>,
        /// Asked and not online.
        missing: Box<CpuSet>,
    },
    /// The kernel refused a setting.
    #[error("{setting} refused ({source}): {cause}. Fix: {fix}")]
    Refused {
        /// The requested setting, with its values.
        setting: String,
        /// The reason, as far as it can be reported.
        cause: Cause,
        /// The remedy, as a command where there is one.
        fix: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Strict settings that the kernel did not grant as asked.
    #[error(
        "thread `{thread}` does not run with the requested settings, and they are strict: {}",
        list(differences)
    )]
    NotGranted {
        /// The thread's name.
        thread: String,
        /// Every setting that differs.
        differences: Vec<Difference>,
    },
    /// A thread name that the kernel cannot take.
    #[error("thread name `{given}`: expected 1 to 15 bytes without NUL, got {} bytes", given.len())]
    InvalidName {
        /// The name as given.
        given: String,
    },
    /// The system could not start a thread.
    #[error(
        "cannot start thread `{thread}`: {source}. Fix: start fewer threads, or raise `ulimit -u` or the cgroup's pids.max"
    )]
    Spawn {
        /// The thread's name.
        thread: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A thread's body panicked.
    #[error("thread `{thread}` panicked: {message}")]
    Panicked {
        /// The thread's name.
        thread: String,
        /// The panic message.
        message: String,
    },
    /// A period of zero, or of more than 292 years.
    #[error("period {period:?} cannot be kept: expected more than zero and at most 292 years")]
    InvalidPeriod {
        /// The period as given.
        period: Duration,
    },
    /// A policy that a census must not give to threads that it does not know.
    #[error(
        "fallback policy `{given}`: library threads cannot share SCHED_DEADLINE parameters; use other, fifo or rr"
    )]
    InvalidFallback {
        /// The policy as written.
        given: String,
    },
    /// A file of the system could not be read or written.
    #[error("{}: {source}{fix}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
        /// The remedy, beginning with a separator, or empty.
        fix: String,
    },
    /// A file of the system holds something else than expected.
    #[error("{}: expected {expected}, found `{found}`", path.display())]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// The expected value.
        expected: &'static str,
        /// The value found.
        found: String,
    },
    /// An external program that a measurement needs.
    #[error("{program}: {reason}. Fix: {fix}")]
    Program {
        /// The program's name.
        program: &'static str,
        /// The reason of the failure.
        reason: String,
        /// The remedy.
        fix: &'static str,
    },
    /// A job sink failed; draining went on.
    #[error("job sink: {source}; {unsaved} records were drained and not saved")]
    Sink {
        /// The sink's first error.
        source: io::Error,
        /// Records that the sink did not take.
        unsaved: u64,
    },
}

/// The forms of a policy, for messages.
pub(crate) const ACCEPTED_POLICIES: &str = "other[:NICE] with nice -20 to 19, fifo:PRIORITY and rr:PRIORITY with 1 to 99, \
     deadline:RUNTIME/DEADLINE/PERIOD with 1024ns <= runtime <= deadline <= period, such as `deadline:500us/2ms/2ms`";

fn list(differences: &[Difference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Reason why the kernel refused a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The process lacks a capability.
    MissingCapability(&'static str),
    /// A resource limit is too low.
    Limit {
        /// The limit's name, as `RLIMIT_RTPRIO`.
        name: &'static str,
        /// Its value now.
        value: u64,
        /// The value needed.
        needed: u64,
    },
    /// Real-time group scheduling gives this process's control group no real-time run time.
    NoGroupRuntime {
        /// The file that says so.
        file: PathBuf,
    },
    /// The reservation does not fit beside the others.
    Admission {
        /// Share of one CPU asked for, in parts per million.
        asked_ppm: u64,
        /// Share of each CPU that real-time threads may use together, in parts per million.
        limit_ppm: u64,
    },
    /// A SCHED_DEADLINE thread must be allowed on every CPU of its scheduling domain.
    DeadlineAffinity {
        /// CPUs on which the thread may run.
        allowed: Box<CpuSet>,
        /// The online CPUs.
        online: Box<CpuSet>,
    },
    /// The period is outside the kernel's bounds.
    PeriodBounds {
        /// Least period, microseconds.
        min_us: u64,
        /// Greatest period, microseconds.
        max_us: u64,
    },
    /// The thread has ended, or the id names none.
    NoSuchThread,
    /// The kernel lacks the feature, or a sandbox hides it.
    Unsupported,
    /// Nothing found that explains it.
    Unknown,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingCapability(name) => write!(f, "the process lacks {name}"),
            Self::Limit { name, value, needed } => write!(f, "{name} is {value}, needed {needed}"),
            Self::NoGroupRuntime { file } => write!(
                f,
                "real-time group scheduling is on and {} is 0, so no thread of this control group may be real-time",
                file.display()
            ),
            Self::Admission { asked_ppm, limit_ppm } => write!(
                f,
                "admission control: {:.1} % of a CPU does not fit next to the existing reservations (the limit is {:.1} % of each CPU in \
                 total)",
                *asked_ppm as f64 / 1e4,
                *limit_ppm as f64 / 1e4
            ),
            Self::DeadlineAffinity { allowed, online } => write!(
                f,
                "a SCHED_DEADLINE thread must be allowed on every CPU of its scheduling domain, but this one is bound to {allowed} of \
                 {online}"
            ),
            Self::PeriodBounds { min_us, max_us } => {
                write!(f, "the kernel accepts SCHED_DEADLINE periods from {min_us} us to {max_us} us")
            }
            Self::NoSuchThread => f.write_str("no thread has this id"),
            Self::Unsupported => f.write_str("the kernel lacks this, or a sandbox hides it"),
            Self::Unknown => f.write_str("no known cause applies"),
        }
    }
}
