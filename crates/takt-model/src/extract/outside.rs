//! Messages whose publishers are not observed: they run on another machine, in a container, or were
//! there before.
//!
//! When such a message was published is reported by its source time stamp alone, which is of the
//! publisher's clock of the day (CLOCK_REALTIME). It is believed where no message seems to come
//! from the future, and the quickest of a subscription's messages seems to have taken no longer
//! than [`PLAUSIBLE_NS`]: a clock that is ahead by more than the quickest way takes would show, and
//! one that is behind makes latencies longer, not shorter. How far the day's clock is from the
//! monotonic one is reported by messages published here, or by whoever reads events live
//! ([`Extractor::clock`]).

use std::collections::BTreeMap;

use super::Extractor;
use super::names::topic_name;
use super::state::Origin;
use crate::{CallbackId, Model, Outside, TopicId, Unanalysable};

/// The quickest message may seem to have taken so long: more is a clock that is wrong, or a network
/// that no bound holds on.
const PLAUSIBLE_NS: i64 = 100_000_000;
/// Two clocks are not read at the same moment.
const TOLERANCE_NS: i64 = 1_000_000;
/// So often the distance of the two clocks is learnt anew: the day's clock is adjusted.
const RENEWED_NS: u64 = 10_000_000_000;
/// After the day's clock was set, messages may be under way with stamps of before for so long.
const SET_NS: u64 = 1_000_000_000;
/// A distance that changed by more than this from one publication to the next is a clock that was
/// set, and not a publisher that was held up between its stamp and its event.
const SURELY_SET_NS: u64 = 500_000_000;
/// A message waits no longer than this in a queue that is worth measuring: for so long at most
/// nothing is measured after the clock was set back.
const LONGEST_WAIT_NS: u64 = 10_000_000_000;
/// Fewer messages than these are what was under way when observation began.
const UNDER_WAY: u64 = 3;

/// How far the day's clock is ahead of the monotonic one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clocks {
    ahead_ns: Option<i64>,
    /// The greatest since `since_ns`.
    next_ns: Option<i64>,
    since_ns: u64,
    offset_known: bool,
    unstamped: u64,
    /// The day's clock was set; stamps before this may be of before or after it.
    unsure_until_ns: u64,
    /// What seems to have been sent before this may have a stamp of the clock as it was.
    set_ns: u64,
    others: Others,
}

/// The clocks of those who publish what is not observed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Others {
    /// They are this machine's.
    #[default]
    Ours,
    /// They are no further from ours than this, nanoseconds.
    Within(u64),
    /// Nothing is known of them.
    Unknown,
}

impl Clocks {
    /// A message was published here: its stamp was taken a moment before its event. Returns whether
    /// the clock was set since the last one.
    pub(crate) fn published(&mut self, at_ns: u64, stamp: i64) -> bool {
        if self.offset_known {
            return false;
        }
        let ahead_ns = stamp.saturating_sub_unsigned(at_ns);
        if let Some(before_ns) = self.ahead_ns.filter(|known| known.abs_diff(ahead_ns) > SURELY_SET_NS) {
            (self.ahead_ns, self.next_ns, self.since_ns) = (Some(ahead_ns), None, at_ns);
            self.was_set(at_ns, before_ns, ahead_ns);
            return true;
        }
        self.next_ns = Some(self.next_ns.map_or(ahead_ns, |known| known.max(ahead_ns)));
        self.ahead_ns = Some(self.ahead_ns.map_or(ahead_ns, |known| known.max(ahead_ns)));
        if at_ns.saturating_sub(self.since_ns) > RENEWED_NS {
            (self.ahead_ns, self.next_ns, self.since_ns) = (self.next_ns, None, at_ns);
        }
        false
    }

    /// When a message with this stamp was published, by the clock of events.
    pub(crate) fn sent_ns(&self, stamp: i64) -> Option<u64> {
        self.ahead_ns.and_then(|ahead_ns| u64::try_from(stamp.checked_sub(ahead_ns)?).ok())
    }

    /// Whether stamps taken now may be of before or after the clock was set.
    pub(crate) fn is_unsure(&self, at_ns: u64) -> bool {
        at_ns < self.unsure_until_ns
    }

    /// The clock was set, at `at_ns` at the latest. By the new one, stamps of the old lie before
    /// that, and by as much later as it was set back.
    fn was_set(&mut self, at_ns: u64, before_ns: i64, ahead_ns: i64) {
        let back_ns = u64::try_from(before_ns.saturating_sub(ahead_ns)).unwrap_or(0).min(LONGEST_WAIT_NS);
        (self.set_ns, self.unsure_until_ns) = (at_ns.saturating_add(back_ns), at_ns.saturating_add(SET_NS));
    }

    /// A message was published here without a stamp (before Jazzy).
    pub(crate) fn unstamped(&mut self) {
        self.unstamped += 1;
    }
}

/// What is known of one subscription's messages from outside.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OutsideState {
    seen: u64,
    unknown: u64,
    least_ns: Option<i64>,
    most_ns: i64,
    last_ns: u64,
}

impl OutsideState {
    /// One was taken at `at_ns`: when it was published, if that can be reported.
    pub(crate) fn take(&mut self, clocks: &Clocks, at_ns: u64, stamp: i64) -> Option<u64> {
        self.last_ns = at_ns;
        if clocks.is_unsure(at_ns) {
            return None;
        }
        let sent_ns = clocks
            .ahead_ns
            .filter(|_| stamp > 0)
            .and_then(|ahead_ns| u64::try_from(stamp.checked_sub(ahead_ns)?).ok());
        if clocks.set_ns > 0 && sent_ns.is_some_and(|sent_ns| sent_ns < clocks.set_ns) {
            return None;
        }
        self.seen += 1;
        let late_ns = sent_ns.and_then(|sent_ns| i64::try_from(i128::from(at_ns) - i128::from(sent_ns)).ok());
        let Some((sent_ns, late_ns)) = sent_ns.zip(late_ns) else {
            self.unknown += 1;
            return None;
        };
        self.least_ns = Some(self.least_ns.map_or(late_ns, |least| least.min(late_ns)));
        if !self.believed(clocks) {
            self.unknown += 1;
            return None;
        }
        self.most_ns = self.most_ns.max(late_ns);
        Some(sent_ns.min(at_ns))
    }

    fn learn_anew(&mut self) {
        *self = Self { seen: self.seen, last_ns: self.last_ns, ..Self::default() };
    }

    fn believed(&self, clocks: &Clocks) -> bool {
        let error_ns = match clocks.others {
            Others::Ours => 0,
            Others::Within(ns) => i64::try_from(ns).unwrap_or(i64::MAX),
            Others::Unknown => return false,
        };
        let plausible = (-TOLERANCE_NS).saturating_sub(error_ns)..=PLAUSIBLE_NS.saturating_add(error_ns);
        self.least_ns.is_some_and(|least_ns| plausible.contains(&least_ns))
    }
}

impl Extractor {
    /// How far the day's clock (CLOCK_REALTIME) is ahead of the monotonic one at `now_ns`: whoever
    /// reads events live can tell.
    ///
    /// A clock that was set (by more than a millisecond; adjustments are smaller) makes stamps of
    /// before and after it worthless against each other: what was learnt of other publishers'
    /// clocks is learnt anew, and what is taken until `SET_NS` after this look, or seems to have
    /// been sent before it, is not measured: it was set at some time since the look before, and a
    /// reader can have been held up for long. Returns whether it was.
    pub fn clock(&mut self, now_ns: u64, ahead_ns: i64) -> bool {
        let before_ns = self.clocks.ahead_ns.replace(ahead_ns).filter(|_| self.clocks.offset_known);
        self.clocks.offset_known = true;
        let before_ns = before_ns.filter(|before_ns| before_ns.abs_diff(ahead_ns) > TOLERANCE_NS as u64);
        if let Some(before_ns) = before_ns {
            self.clocks.was_set(now_ns.max(self.now_ns), before_ns, ahead_ns);
            self.learn_clocks_anew();
        }
        before_ns.is_some()
    }

    /// What was learnt of other publishers' stamps was by a clock that is no more.
    pub(super) fn learn_clocks_anew(&mut self) {
        for (_, subscription) in self.tables.subscriptions.iter_mut() {
            subscription.outside.learn_anew();
        }
    }

    /// Who publishes what is not observed runs on other machines, whose clocks are no further from
    /// ours than this; `None`: that is not known, and so their stamps say nothing. Without a call
    /// they are taken to run on this one.
    pub fn clock_error(&mut self, error_ns: Option<u64>) {
        let others = error_ns.map_or(Others::Unknown, Others::Within);
        if matches!((self.clocks.others, others), (Others::Unknown, Others::Within(_))) {
            // What could not be known before is no reason to doubt what comes.
            for (_, subscription) in self.tables.subscriptions.iter_mut() {
                subscription.outside.unknown = 0;
            }
        }
        self.clocks.others = others;
    }

    /// Why latencies of a chain over these callbacks cannot be measured, if they cannot; `path` as
    /// in [`crate::ChainSpec`].
    #[must_use]
    pub fn unmeasurable(&self, path: &[String]) -> Option<String> {
        (path.len() > 1 && self.clocks.unstamped > 0).then(|| {
            "not measurable here: messages carry no time stamp when they are published (before Jazzy), so that nothing shows which message \
             activates which callback"
                .to_owned()
        })
    }
}

/// Marks topics that get messages from outside, and says where that leaves their waiting times
/// unknown.
pub(super) fn mark(
    extractor: &Extractor,
    ids: &BTreeMap<usize, CallbackId>,
    topics: &BTreeMap<usize, TopicId>,
    model: &mut Model,
) {
    let tables = &extractor.tables;
    for (&slot, &id) in ids {
        let Origin::Subscription { subscription } = tables.callbacks[slot].origin else { continue };
        let Some(state) = tables.subscriptions.get(subscription) else { continue };
        let outside = state.outside;
        // Without stamps of publications nothing is joined, and nothing shows what is from outside.
        let offset_known = outside.seen >= UNDER_WAY && (extractor.clocks.unstamped == 0 || state.joined > 0);
        if !offset_known {
            continue;
        }
        let believed = outside.believed(&extractor.clocks) && outside.unknown == 0;
        let clock_error_ns = match extractor.clocks.others {
            Others::Within(ns) => ns,
            _ => outside.least_ns.unwrap_or(0).unsigned_abs(),
        };
        if let Some(topic) = topics.get(&tables.topic(state.topic)) {
            let known = &mut model.topics[topic.0].outside;
            *known = match (*known, believed) {
                (Outside::Unknown { seen }, _) => Outside::Unknown { seen: seen.max(outside.seen) },
                (_, false) => Outside::Unknown { seen: outside.seen },
                (Outside::Stamped { seen, most_ns, clock_error_ns: error_ns }, true) => Outside::Stamped {
                    seen: seen.max(outside.seen),
                    most_ns: most_ns.max(outside.most_ns.unsigned_abs()),
                    clock_error_ns: error_ns.max(clock_error_ns),
                },
                (Outside::None, true) => Outside::Stamped {
                    seen: outside.seen,
                    most_ns: outside.most_ns.unsigned_abs(),
                    clock_error_ns,
                },
            };
        }
        if !believed {
            model.unanalysable.push(Unanalysable {
                callbacks: vec![id],
                towards: None,
                reason: format!(
                    "{} messages on {} come from publishers that are not observed, and their time stamps cannot be believed: how long they \
                     waited before they were taken cannot be known. Observe their publishers, too, or synchronise the clocks",
                    outside.seen,
                    topic_name(extractor, state.topic),
                ),
            });
        }
    }
}
