//! What can go wrong, with a number for other languages and the way out.

use std::fmt;

use crate::layout::{MAX_LOOPS, MAX_NAME, MAX_PERIOD_NS, MAX_STAGE_NAME, MAX_STAGES};

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An argument is out of its range.
    Argument {
        /// Which one.
        what: &'static str,
        /// What was given.
        received: String,
        /// What can be given.
        accepted: &'static str,
    },
    /// The name of a loop cannot be one.
    Name {
        /// What was given, or its beginning.
        received: String,
    },
    /// The name of a stage cannot be one. Without the name: nothing is allocated within a job.
    StageName,
    /// A period of zero, or a longer one than [`MAX_PERIOD_NS`].
    Period {
        /// What was given, nanoseconds.
        received_ns: u64,
    },
    /// A loop of that name is open in this process.
    DeclaredTwice {
        /// The name.
        name: String,
    },
    /// The process has declared as many different loops as there is room for.
    TooManyLoops,
    /// There is no job under way.
    NoJob,
    /// The loop has as many stages as there is room for.
    TooManyStages,
    /// A periodic loop waits, a driven one is released.
    WrongKind {
        /// Whether the loop is a driven one.
        is_driven: bool,
    },
    /// There is no shared memory to be had.
    Memory {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        errno: i32,
    },
    /// The system refuses a call.
    System {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        errno: i32,
    },
    /// Another thread holds the lock.
    Held,
    /// The calling thread holds the lock.
    Deadlock,
}

impl Error {
    /// Its number in `takt.h`, above 0.
    pub fn code(&self) -> i32 {
        match self {
            Self::Argument { .. } => 1,
            Self::Name { .. } | Self::StageName => 2,
            Self::Period { .. } => 3,
            Self::DeclaredTwice { .. } => 4,
            Self::TooManyLoops => 5,
            Self::NoJob => 6,
            Self::TooManyStages => 7,
            Self::WrongKind { .. } => 8,
            Self::Memory { .. } => 9,
            Self::System { .. } => 10,
            Self::Held => 11,
            Self::Deadlock => 12,
        }
    }

    /// What a number of `takt.h` says, positive or negative: a sentence with the way out.
    pub fn text(code: i32) -> &'static std::ffi::CStr {
        match code.unsigned_abs() {
            0 => c"no error",
            1 => c"an argument is missing or out of its range: see the comment of the function in takt.h",
            2 => {
                c"the name cannot be used: a loop's name has 1 to 47 bytes of UTF-8 without control characters, a stage's name 1 to 15"
            }
            3 => c"the period cannot be used: give one above 0 and up to an hour, in nanoseconds",
            4 => c"a loop of that name is open already in this process: declare each loop once, or close it first",
            5 => c"this process has declared 64 different loops already: use a loop for a task, not for each job",
            6 => c"no job is under way: call takt_loop_wait or takt_loop_release first",
            7 => c"the loop has 8 stages already: use the same names in each job",
            8 => {
                c"this loop is of the other kind: takt_loop_wait is for loops with a period, takt_loop_release for driven ones"
            }
            9 => {
                c"the system gives no memory for the records: memfd_create and mmap must be allowed, and RLIMIT_MEMLOCK must leave room where memory is locked"
            }
            10 => c"the system refuses the call: errno has the reason",
            11 => c"another thread holds the lock: wait with takt_mutex_lock, or try again",
            12 => c"this thread holds the lock already: unlock it first",
            13 => c"a fault of the library: please report it",
            _ => c"unknown error: this library does not know the number; it is older than the program that asks",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument { what, received, accepted } => {
                write!(f, "{what}: received {received}, accepted: {accepted}")
            }
            Self::Name { received } => write!(
                f,
                "the name {received:?} cannot be used: a loop's name has 1 to {MAX_NAME} bytes without control characters"
            ),
            Self::StageName => write!(
                f,
                "a stage's name cannot be used: it has 1 to {MAX_STAGE_NAME} bytes without control characters"
            ),
            Self::Period { received_ns } => write!(
                f,
                "a period of {received_ns} ns cannot be used: give one above 0 and up to {} s",
                MAX_PERIOD_NS / 1_000_000_000
            ),
            Self::DeclaredTwice { name } => write!(
                f,
                "the loop {name:?} is open already in this process: declare each loop once, or close it first"
            ),
            Self::TooManyLoops => write!(
                f,
                "this process has declared {MAX_LOOPS} different loops already: use a loop for a task, not for each job"
            ),
            Self::NoJob => write!(f, "no job is under way: wait for a release first"),
            Self::TooManyStages => {
                write!(f, "the loop has {MAX_STAGES} stages already: use the same names in each job")
            }
            Self::WrongKind { is_driven: true } => {
                write!(f, "this loop is driven by an input: call `release` when one has come")
            }
            Self::WrongKind { is_driven: false } => {
                write!(f, "this loop has a period: call `wait`, or open it with `Loop::driven`")
            }
            Self::Memory { what, errno } => write!(
                f,
                "the system gives no memory for the records: {what}: {}. memfd_create and mmap must be allowed, and \
                 RLIMIT_MEMLOCK must leave room where memory is locked",
                std::io::Error::from_raw_os_error(*errno)
            ),
            Self::System { what, errno } => {
                write!(f, "{what}: {}", std::io::Error::from_raw_os_error(*errno))
            }
            Self::Held => write!(f, "another thread holds the lock: wait with `lock`, or try again"),
            Self::Deadlock => write!(f, "this thread holds the lock already: drop its guard first"),
        }
    }
}

impl std::error::Error for Error {}

/// The system's answer to the last call.
pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_own_sentence_with_a_way_out() {
        let all: Vec<&str> = (-14..=0).map(|code| Error::text(code).to_str().unwrap()).collect();
        for (at, text) in all.iter().enumerate() {
            assert!(!all[..at].contains(text), "{text}");
        }
        assert_eq!(Error::text(4), Error::text(-4));
        assert_eq!(Error::text(i32::MIN), Error::text(99));
        for error in [
            Error::Period { received_ns: 0 },
            Error::DeclaredTwice { name: "control".into() },
            Error::TooManyLoops,
            Error::NoJob,
            Error::Deadlock,
        ] {
            assert!(error.to_string().contains(':'), "{error}");
            assert!((1..=12).contains(&error.code()));
        }
    }
}
