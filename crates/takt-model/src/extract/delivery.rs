//! The middleware's part of a message's way: from its leaving to its receipt.
//!
//! A message leaves with the end of the activation that sends it (the bound on that activation's
//! response time ends there too), or with its publication where no activation sends it. It is there
//! when the middleware of the subscriber's process has received it: from then on the executor's own
//! waiting is in its bound. Between the two, threads of the middleware work (listeners, flow
//! controllers), which no analysis covers: they have no reservation. So what they take is measured
//! for every message, added to bounds with a margin, and held against what was added.
//!
//! - **Received** is what the middleware's message information says (`received_timestamp` of
//!   `rmw_message_info_t`), against the source time stamp of the same message: one clock where both
//!   are on one machine.
//! - **Where it says nothing** (other middleware, other probes), only a take by an executor that
//!   had been waiting for work since before the message left reports something: the take is no
//!   earlier than the receipt. That counts the executor's waking as well.
//! - **Start-up** is kept apart as for arrivals ([`super::startup`]), by whatever process:
//!   discovery holds the middleware up everywhere. It is held against what is assumed all the same.
//! - **While threads are moved** ([`super::unsettled`]) it is the same.
//! - Messages within a process that pass no middleware take nothing.

use std::collections::VecDeque;

use super::Extractor;
use super::state::ThreadState;
use crate::guard::{Excess, Noticed};
use crate::{Delivery, GreatestRecorder};

/// Activations of a thread whose ends are remembered: messages are taken before their publisher has
/// run this often again, but where queues are long.
const ENDS: usize = 16;

/// What was seen of messages to one callback.
#[derive(Debug, Clone, Default)]
pub(crate) struct Delivered {
    most: GreatestRecorder,
    seen: u64,
    /// Those that the callback's own thread sent: many middlewares deliver them within the
    /// publication.
    own_most: GreatestRecorder,
    own_seen: u64,
    /// Those of start-up, of others and of its own: discovery and bursts hold up the middleware
    /// then. They are what there is to go by until others come.
    apart: GreatestRecorder,
    apart_seen: u64,
    own_apart: GreatestRecorder,
    own_apart_seen: u64,
    /// The middleware reported one.
    pub stamped: bool,
    limits_ns: (Option<u64>, Option<u64>),
    excess: Option<Excess>,
    noticed: Noticed,
}

impl Delivered {
    /// One message took so long.
    pub(crate) fn record(&mut self, at_ns: u64, receipt: Receipt, starting: bool, horizon_ns: Option<u64>) {
        let Receipt { took_ns, stamped, own, .. } = receipt;
        if stamped && !std::mem::replace(&mut self.stamped, true) {
            // What was guessed before it was reported.
            let noticed = std::mem::take(&mut self.noticed);
            *self =
                Self { stamped, limits_ns: self.limits_ns, excess: self.excess, noticed, ..Self::default() };
        }
        let limit_ns = if own { self.limits_ns.1 } else { self.limits_ns.0 };
        let (most, seen) = match (own, starting) {
            (true, false) => (&mut self.own_most, &mut self.own_seen),
            (false, false) => (&mut self.most, &mut self.seen),
            (true, true) => (&mut self.own_apart, &mut self.own_apart_seen),
            (false, true) => (&mut self.apart, &mut self.apart_seen),
        };
        *seen += 1;
        most.record(at_ns, took_ns, horizon_ns);
        if let Some(assumed_ns) = limit_ns.filter(|most_ns| took_ns > *most_ns && self.excess.is_none()) {
            self.excess = Some(Excess { events: 1, assumed_ns: Some(assumed_ns), seen_ns: took_ns, at_ns });
            self.noticed.set();
        }
    }

    /// Holds every message of others, and of its own thread, from now on against these; `None`: no
    /// longer.
    pub(crate) fn limit(&mut self, most_ns: Option<u64>, own_most_ns: Option<u64>, noticed: &Noticed) {
        (self.limits_ns, self.excess) = ((most_ns, own_most_ns), None);
        self.noticed = noticed.clone();
    }

    /// Where a limit was first left since the last call.
    pub(crate) fn excess(&mut self) -> Option<Excess> {
        self.excess.take()
    }

    /// For the model.
    pub(crate) fn seen(&self) -> Option<Delivery> {
        let of = |(seen, most): (u64, &GreatestRecorder), (apart_seen, apart): (u64, &GreatestRecorder)| {
            let known = if seen > 0 { most } else { apart };
            (seen + apart_seen > 0).then(|| known.most())
        };
        let seen = self.seen + self.own_seen + self.apart_seen + self.own_apart_seen;
        (seen > 0).then(|| Delivery {
            seen,
            most_ns: of((self.seen, &self.most), (self.apart_seen, &self.apart)),
            own_most_ns: of((self.own_seen, &self.own_most), (self.own_apart_seen, &self.own_apart)),
            stamped: self.stamped,
        })
    }
}

/// A message's receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// When, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// How long after it had left.
    pub took_ns: u64,
    /// The middleware says so.
    pub stamped: bool,
    /// The thread that takes it has sent it.
    pub own: bool,
}

impl ThreadState {
    /// An activation that no other one is around has ended.
    pub(crate) fn ended(&mut self, began_ns: u64, at_ns: u64) {
        if self.ends.len() == ENDS {
            self.ends.pop_front();
        }
        self.ends.push_back((began_ns, at_ns));
    }

    /// When what this thread published at `at_ns` had left it; `None`: the activation that
    /// published it goes on.
    fn left_ns(&self, at_ns: u64) -> Option<u64> {
        if self.stack.first().is_some_and(|frame| frame.at_ns <= at_ns) {
            return None;
        }
        let ends: &VecDeque<(u64, u64)> = &self.ends;
        let end = ends.iter().rev().find(|(began_ns, ended_ns)| (*began_ns..=*ended_ns).contains(&at_ns));
        Some(end.map_or(at_ns, |(_, ended_ns)| *ended_ns))
    }
}

impl Extractor {
    /// The receipt of a message that is taken now. `after_ns`: how long after its source stamp the
    /// middleware says to have received it.
    pub(super) fn received(
        &self,
        thread: usize,
        message: u64,
        at_ns: u64,
        after_ns: Option<i64>,
    ) -> Option<Receipt> {
        let message = self.messages.get(message)?;
        let own = message.by == thread;
        let publisher = self.tables.threads.get(message.by);
        let left_ns = match publisher {
            Some(publisher) => publisher.left_ns(message.at_ns),
            None => Some(message.at_ns),
        };
        if let Some(after_ns) = after_ns {
            let received_ns = message.stamped_ns.saturating_add_signed(after_ns).clamp(message.at_ns, at_ns);
            let took_ns = left_ns.map_or(0, |left_ns| received_ns.saturating_sub(left_ns));
            return Some(Receipt { at_ns: received_ns, took_ns, stamped: true, own });
        }
        let waiting_ns = self.tables.threads.get(thread)?.waiting_ns?;
        let left_ns = left_ns?;
        (waiting_ns <= left_ns).then(|| Receipt {
            at_ns,
            took_ns: at_ns.saturating_sub(left_ns),
            stamped: false,
            own,
        })
    }

    /// A callback starts with a message that was received so.
    pub(super) fn delivered(&mut self, callback: usize, at_ns: u64, receipt: Receipt, starting: bool) {
        // Whoever starts keeps the whole machine's middleware busy.
        let starting = starting || self.startups.is_any_starting(at_ns);
        let left_ns = receipt.at_ns.saturating_sub(receipt.took_ns);
        let starting = starting || self.unsettled.holds(left_ns, receipt.at_ns);
        let horizon_ns = self.options.horizon_ns;
        let Some(callback) = self.tables.callbacks.get_mut(callback) else { return };
        if receipt.stamped || !callback.delivered.stamped {
            callback.delivered.record(at_ns, receipt, starting, horizon_ns);
        }
    }
}
