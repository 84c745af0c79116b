//! What is known about an assumption, as values; words are made where somebody reads them.

use std::fmt;

use takt_model::{Broken, Exceeded};

use super::assumption::State;
use crate::words::ms;

/// How an assumption stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Observed<'a> {
    /// It is seen to hold.
    Holds,
    /// It was not looked at, or not enough was seen.
    Unknown,
    /// Nothing shows how long the middleware takes with messages to these callbacks.
    Unshown(&'a [String]),
    /// Something was seen against it.
    Broken(Evidence<'a>),
}

impl Observed<'_> {
    /// It holds where enough is known to say so.
    pub fn if_known(known: bool) -> Self {
        if known { Self::Holds } else { Self::Unknown }
    }

    /// As the status has it.
    pub fn holds(&self) -> Option<bool> {
        match self {
            Self::Holds => Some(true),
            Self::Unknown | Self::Unshown(_) => None,
            Self::Broken(_) => Some(false),
        }
    }

    /// For people; empty where there is nothing to say.
    pub fn words(&self) -> String {
        match self {
            Self::Holds | Self::Unknown => String::new(),
            Self::Unshown(names) => {
                format!("nothing shows how long the middleware takes with messages to {}", names.join(", "))
            }
            Self::Broken(evidence) => evidence.to_string(),
        }
    }
}

/// What was seen against an assumption.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Evidence<'a> {
    /// The bound is longer than the goal.
    Bound { bound_ns: u64 },
    /// The plan keeps no bound.
    NoBound,
    /// A thread or process on the way has ended.
    PartEnded,
    /// These processes are starting.
    Starting(&'a [u32]),
    /// These callbacks are due and have not run yet.
    NotRun(&'a [String]),
    /// Takt only observes.
    NothingReserved,
    /// A reservation, read back, is not what it was made.
    Differs(&'a str),
    /// A reservation was exhausted for too long.
    Overrun(&'a str),
    /// A callback did what the plan did not allow for: the first time, and how many more.
    Breaches { first: &'a Broken, more: usize },
    /// No thread of the middleware of these processes has real-time priority.
    Uncarried(&'a [u32]),
    /// The middleware held messages to these callbacks for so long, nanoseconds.
    Delayed(&'a [(String, u64)]),
    /// Nobody shows whether these callbacks suspend themselves.
    Unseen(&'a [String]),
    /// Events were lost, the last of them so long ago.
    Lost { count: u64, ago_ns: u64 },
    /// Messages on these topics come from publishers that are not observed.
    Unobserved(&'a [String]),
    /// The way from another machine.
    Network(&'a str),
    /// Something on the way cannot be measured.
    Unmeasurable(&'a str),
    /// So many instances began, and none was seen to end for so long.
    Silent { begun: u64, quiet_ns: u64 },
    /// A latency below the best case.
    Below(Exceeded),
    /// A latency above the bound.
    Above(Exceeded),
}

impl Evidence<'_> {
    /// Where a chain stands that this is seen of. `learning`: nothing was said of it yet that a
    /// callback's behaviour could refute.
    pub fn state(&self, learning: bool) -> State {
        match self {
            Self::Starting(_) | Self::NotRun(_) => State::Learning,
            Self::Breaches { .. } if learning => State::Learning,
            Self::Uncarried(_) | Self::Delayed(_) | Self::Network(_) => State::NotAnalysable,
            Self::Unseen(_)
            | Self::Lost { .. }
            | Self::Unobserved(_)
            | Self::Unmeasurable(_)
            | Self::Silent { .. } => State::NotMeasurable,
            Self::Bound { .. }
            | Self::NoBound
            | Self::PartEnded
            | Self::NothingReserved
            | Self::Differs(_)
            | Self::Overrun(_)
            | Self::Breaches { .. }
            | Self::Below(_)
            | Self::Above(_) => State::Refuted,
        }
    }
}

/// The first name, and how many more.
fn first(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [one, rest @ ..] => format!("{one} (and {} more)", rest.len()),
    }
}

fn numbers(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// " (3 times)", where it was more than once.
pub(super) fn times(times: u64) -> String {
    if times > 1 { format!(" ({times} times)") } else { String::new() }
}

impl fmt::Display for Evidence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bound { bound_ns } => write!(f, "the bound is {} ms", ms(*bound_ns)),
            Self::NoBound => f.write_str("there is no bound that the plan keeps"),
            Self::PartEnded => f.write_str("a part of it has ended"),
            Self::Starting(pids) => {
                write!(f, "process {} is starting, and has not shown what it does afterwards", numbers(pids))
            }
            Self::NotRun(timers) => {
                write!(f, "{} has not run yet: what it takes is not known", first(timers))
            }
            Self::NothingReserved => f.write_str("nothing is reserved: only observed"),
            Self::Differs(words) => write!(f, "not as asked: {words}"),
            Self::Overrun(words) | Self::Network(words) | Self::Unmeasurable(words) => f.write_str(words),
            Self::Breaches { first, more: 0 } => write!(f, "{first}"),
            Self::Breaches { first, more } => write!(f, "{first}; and {more} more"),
            Self::Uncarried(pids) => write!(
                f,
                "no thread of the middleware of process {} runs at real-time priority (they need more than helpers may have, or \
                 have a nice value of their own): how long messages wait there is up to everybody else on the machine",
                numbers(pids)
            ),
            Self::Delayed(delayed) => {
                let listed: Vec<String> =
                    delayed.iter().map(|(name, ns)| format!("{} ms to {name}", ms(*ns))).collect();
                write!(
                    f,
                    "messages were delivered after {}: threads of the middleware, which have no reservations, waited for a CPU, \
                     and nothing bounds how long they do. Leave them more of the CPUs (max_bandwidth, max_system_bandwidth), or \
                     take work off them",
                    listed.join(", ")
                )
            }
            Self::Unseen(callbacks) => write!(
                f,
                "whether {} suspends itself or yields cannot be reported by what observes it",
                first(callbacks)
            ),
            Self::Lost { count, ago_ns } => write!(
                f,
                "{count} events were lost, the last {:.1} s ago: what happened meanwhile cannot be known",
                *ago_ns as f64 / 1e9
            ),
            Self::Unobserved(topics) => write!(
                f,
                "messages on {} come from publishers that are not observed: how long they waited cannot be known",
                topics.join(", ")
            ),
            Self::Silent { begun, quiet_ns } => write!(
                f,
                "not measured: {begun} instances began and none was seen to come to its end in {:.1} s",
                *quiet_ns as f64 / 1e9
            ),
            Self::Below(below) => write!(
                f,
                "a latency of {} ms was measured, below the best case of {} ms that its jitter bound rests on{}",
                ms(below.latency_ns()),
                ms(below.bound_ns),
                times(below.times)
            ),
            Self::Above(exceeded) => write!(
                f,
                "a latency of {} ms was measured, above the bound of {} ms, and no execution time or arrival above its curve \
                 explains it",
                ms(exceeded.latency_ns()),
                ms(exceeded.bound_ns)
            ),
        }
    }
}
