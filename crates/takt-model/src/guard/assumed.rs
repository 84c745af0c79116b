//! Assumptions about callbacks, and the report when one no longer holds.

use serde::{Deserialize, Serialize};

use super::{Allowance, Excess};

/// Assumptions about one callback.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assumed {
    /// Its name in the model.
    pub callback: String,
    /// The most execution time of 1, 2, 3 ... consecutive activations; `None`: nothing was assumed.
    pub cost_ns: Option<Vec<u64>>,
    /// The least spans of 2, 3, 4 ... consecutive arrivals, empty where it was assumed never to be
    /// activated; `None`: nothing was assumed.
    pub spans_ns: Option<Vec<u64>>,
    /// The longest that 1, 2, 3 ... consecutive activations suspended themselves, empty: not at
    /// all; `None`: nothing was assumed.
    pub suspension_ns: Option<Vec<u64>>,
    /// The longest that the middleware takes with a message to it; `None`: nothing was assumed.
    pub delivery_ns: Option<u64>,
    /// The same with a message that its own thread sent.
    pub own_delivery_ns: Option<u64>,
    /// Largest numbers of suspensions, and of yields; counts if `suspension_ns` is given.
    pub suspensions: Vec<u64>,
    pub yields: Vec<u64>,
    /// Topics by name, and how many messages 1, 2, 3 ... consecutive activations send there at
    /// most. Topics that are not named are not looked at.
    pub outputs: Vec<(String, Vec<u64>)>,
    /// Topics by name that it is activated by, to which nobody sends but who has them among its
    /// `outputs`.
    pub senders: Vec<String>,
    /// The account, by its place among those of the plan, that takes what is beyond its execution
    /// times and the lengths of its suspensions.
    pub account: Option<usize>,
    /// Its executor is planned for: callbacks that are not among those assumed must not run there.
    pub closed: bool,
}

/// An assumption that no longer holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    pub callback: String,
    /// The assumption.
    pub what: Breach,
    /// When it was seen, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
}

/// Assumption about a callback that no longer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "breach")]
pub enum Breach {
    /// It took longer than its curve.
    Cost(Excess),
    /// It, with others of its account, took more beyond their curves than is allowed for.
    Beyond {
        /// The last activation's excess.
        excess: Excess,
        /// It was suspended for so long, and did not execute.
        suspended: bool,
        /// Sum of the execution beyond the curves.
        sum_ns: u64,
        /// The allowance.
        allowance: Allowance,
    },
    /// It was activated more densely than its curve.
    Arrivals(Excess),
    /// It suspended itself for longer than was known.
    Suspension(Excess),
    /// The middleware took longer to deliver a message to it.
    Delivery(Excess),
    /// It suspended itself more often than was known: times, where others have nanoseconds.
    Suspensions(Excess),
    /// It called `sched_yield` more often than was known: times, where others have nanoseconds.
    Yields(Excess),
    /// It sent more messages to a topic than was known: messages, where others have nanoseconds.
    Output(Excess),
    /// It gets messages of a sender that the plan did not know.
    Sender,
    /// It runs in an executor whose plan did not know it.
    Unplanned {
        /// The executor's thread.
        tid: u32,
    },
    /// It is gone, with its thread or process.
    Ended,
}

impl Breach {
    /// The exceeded limit, if it is a curve.
    #[must_use]
    pub fn excess(&self) -> Option<Excess> {
        match *self {
            Self::Cost(excess)
            | Self::Beyond { excess, .. }
            | Self::Arrivals(excess)
            | Self::Suspension(excess)
            | Self::Suspensions(excess)
            | Self::Yields(excess)
            | Self::Delivery(excess)
            | Self::Output(excess) => Some(excess),
            Self::Sender | Self::Unplanned { .. } | Self::Ended => None,
        }
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |ns: u64| format!("{:.3} ms", ns as f64 / 1e6);
        let name = &self.callback;
        let of = |events: u64, one: &str, many: &str| match events {
            1 => format!("one {one}"),
            n => format!("{n} {many} in a row"),
        };
        match &self.what {
            Breach::Beyond { excess, suspended, sum_ns, allowance } => {
                let (excess, Allowance { most_ns, window_ns }) = (*excess, *allowance);
                let alone = if *suspended { Breach::Suspension(excess) } else { Breach::Cost(excess) };
                let one = Self { callback: name.clone(), what: alone, at_ns: self.at_ns };
                write!(
                    f,
                    "{one}; together, callbacks of its core took {} beyond their assumed times within {}; {} are allowed",
                    ms(*sum_ns),
                    ms(window_ns),
                    ms(most_ns)
                )
            }
            Breach::Cost(excess) => {
                let Excess { events, assumed_ns, seen_ns, .. } = *excess;
                let activations = of(events, "activation", "activations");
                let assumed = ms(assumed_ns.unwrap_or(0));
                write!(
                    f,
                    "{name}: {activations} took {} of execution time; at most {assumed} was assumed",
                    ms(seen_ns)
                )
            }
            Breach::Arrivals(Excess { assumed_ns: None, .. }) => {
                write!(f, "{name}: it was activated, but was assumed never to be")
            }
            Breach::Arrivals(Excess { events, assumed_ns: Some(assumed_ns), seen_ns, .. }) => {
                let (seen, assumed) = (ms(*seen_ns), ms(*assumed_ns));
                write!(f, "{name}: {events} activations came within {seen}; at least {assumed} was assumed")
            }
            Breach::Suspension(excess) => {
                let Excess { events, assumed_ns, seen_ns, .. } = *excess;
                let activations = of(events, "activation", "activations");
                let assumed = ms(assumed_ns.unwrap_or(0));
                write!(
                    f,
                    "{name}: {activations} suspended themselves for {} (sleep, lock, device); at most {assumed} was assumed",
                    ms(seen_ns)
                )
            }
            Breach::Delivery(excess) => write!(
                f,
                "{name}: a message was received {} after it was sent; at most {} was assumed: threads of the middleware or the network \
                 delayed it",
                ms(excess.seen_ns),
                ms(excess.assumed_ns.unwrap_or(0))
            ),
            Breach::Suspensions(excess) | Breach::Yields(excess) => {
                let Excess { events, assumed_ns, seen_ns, .. } = *excess;
                let activations = of(events, "activation", "activations");
                let assumed = assumed_ns.unwrap_or(0);
                let (did, how) = match self.what {
                    Breach::Yields(_) => ("yielded the CPU", "sched_yield"),
                    _ => ("suspended themselves", "sleep, lock, device"),
                };
                write!(
                    f,
                    "{name}: {activations} {did} {seen_ns} times ({how}); at most {assumed} was assumed"
                )
            }
            Breach::Output(excess) => {
                let Excess { events, assumed_ns, seen_ns, .. } = *excess;
                let activations = of(events, "activation", "activations");
                let assumed = assumed_ns.unwrap_or(0);
                write!(
                    f,
                    "{name}: {activations} sent {seen_ns} messages to a topic; at most {assumed} was assumed"
                )
            }
            Breach::Sender => {
                write!(f, "{name}: it gets messages from a callback that the plan assumed to send none")
            }
            Breach::Unplanned { .. } => {
                write!(f, "{name}: it runs in an executor whose plan does not include it")
            }
            Breach::Ended => write!(f, "{name}: it has ended"),
        }
    }
}
