//! Limits that hold every event against a curve.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Beyond, Excess};

/// Set by whichever of the limits that share it has something to report, so that nobody asks them
/// all while none has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Noticed(Arc<AtomicBool>);

impl Noticed {
    /// There is something to report.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether there was since the last call.
    pub(crate) fn take(&self) -> bool {
        // Limits and the one who asks are of one extractor, so that the order is that of its
        // thread.
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

/// The last values of a growing quantity, as many as the curve has entries.
#[derive(Debug, Clone)]
struct Recent {
    values: Vec<u64>,
    entries: usize,
}

impl Recent {
    fn new(entries: usize) -> Self {
        let entries = entries.max(1);
        Self { values: Vec::with_capacity(2 * entries), entries }
    }

    fn push(&mut self, value: u64) {
        if self.values.len() == 2 * self.entries {
            self.values.copy_within(self.entries + 1.., 0);
            self.values.truncate(self.entries - 1);
        }
        self.values.push(value);
    }

    /// The newest first.
    fn last(&self) -> impl Iterator<Item = u64> + '_ {
        self.values.iter().rev().take(self.entries).copied()
    }

    /// Whether more than `most` has been added up to `total` since any of these: one pass over two
    /// slices, for the many times that none has.
    #[inline]
    fn grew_beyond(&self, total: u64, most: &[u64]) -> bool {
        let from = self.values.len().saturating_sub(self.entries);
        self.values[from..].iter().rev().zip(most).any(|(before, most)| total.saturating_sub(*before) > *most)
    }
}

/// Spans between arrivals that must not become shorter.
#[derive(Debug, Clone)]
pub struct SpanLimit {
    /// Entry `i`: the shortest span of `i + 2` events. Empty: there are no events.
    least_ns: Vec<u64>,
    recent: Recent,
    excess: Option<Excess>,
    noticed: Noticed,
}

impl SpanLimit {
    /// Entry `i` of `least_ns`: the shortest span of `i + 2` consecutive events; empty: none ever
    /// come.
    #[must_use]
    pub fn new(least_ns: Vec<u64>) -> Self {
        let recent = Recent::new(least_ns.len());
        Self { recent, least_ns, excess: None, noticed: Noticed::default() }
    }

    /// Reports there that something is to be reported.
    pub(crate) fn noticed_by(mut self, noticed: &Noticed) -> Self {
        self.noticed = noticed.clone();
        self
    }

    /// One event.
    #[inline]
    pub fn see(&mut self, at_ns: u64) {
        if self.excess.is_none() {
            let spans = self.recent.last().map(|before| at_ns.saturating_sub(before));
            let left = spans.zip(&self.least_ns).position(|(span, least)| span < *least);
            if let Some(index) = left {
                let seen_ns = self.recent.last().nth(index).map_or(0, |before| at_ns.saturating_sub(before));
                let assumed_ns = self.least_ns.get(index).copied();
                self.excess = Some(Excess { events: index as u64 + 2, assumed_ns, seen_ns, at_ns });
                self.noticed.set();
            } else if self.least_ns.is_empty() {
                self.excess = Some(Excess { events: 1, assumed_ns: None, seen_ns: 0, at_ns });
                self.noticed.set();
            }
        }
        self.recent.push(at_ns);
    }

    /// Continues where another one ends, so that a burst which began under that one counts as a
    /// whole.
    pub(crate) fn after(self, before: &Self) -> Self {
        let stamps: Vec<u64> = before.recent.last().collect();
        self.after_events(stamps.into_iter().rev())
    }

    /// The same for events that were held against none. Events that exceeded this limit before it
    /// existed are not reported, and no window reaches across them.
    pub(crate) fn after_events(mut self, stamps: impl IntoIterator<Item = u64>) -> Self {
        for at_ns in stamps {
            self.see(at_ns);
            if self.excess.take().is_some() {
                self.gap();
                self.recent.push(at_ns);
            }
        }
        self
    }

    /// Events may be missing here.
    pub fn gap(&mut self) {
        self.recent.values.clear();
    }

    /// First excess since the last call.
    pub fn take(&mut self) -> Option<Excess> {
        self.excess.take()
    }
}

/// More is not kept between two looks: whoever leaves a curve so often leaves it for good.
const MAX_BEYOND: usize = 256;

/// Execution times of consecutive activations that must not become longer.
#[derive(Debug, Clone)]
pub struct CostLimit {
    /// Entry `i`: of `i + 1` activations.
    most_ns: Vec<u64>,
    recent: Recent,
    total_ns: u64,
    excess: Option<Excess>,
    /// Goes to an account instead; what is beyond the curve is left out of what later activations
    /// are held against.
    beyond: Option<Vec<Beyond>>,
    noticed: Noticed,
    /// More activations take no less.
    rises: bool,
}

impl CostLimit {
    /// Entry `i` of `most_ns`: the most that `i + 1` consecutive activations take together.
    #[must_use]
    pub fn new(most_ns: Vec<u64>) -> Self {
        let (recent, noticed) = (Recent::new(most_ns.len()), Noticed::default());
        let rises = most_ns.is_sorted();
        let mut limit = Self { recent, most_ns, total_ns: 0, excess: None, beyond: None, noticed, rises };
        limit.gap();
        limit
    }

    /// Reports there that something is to be reported.
    pub(crate) fn noticed_by(mut self, noticed: &Noticed) -> Self {
        self.noticed = noticed.clone();
        self
    }

    /// Execution beyond the curve is reported by [`Self::take_beyond`] instead.
    pub(crate) fn with_account(mut self) -> Self {
        self.beyond = Some(Vec::new());
        self
    }

    /// Execution beyond the curve since the last call.
    pub(crate) fn take_beyond(&mut self) -> Vec<Beyond> {
        self.beyond.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn see_beyond(&mut self, at_ns: u64) {
        let total_ns = self.total_ns;
        if !self.recent.grew_beyond(total_ns, &self.most_ns) {
            return;
        }
        let over = |(index, (before, most)): (usize, (u64, &u64))| {
            let sum_ns = total_ns.saturating_sub(before);
            sum_ns.checked_sub(*most).filter(|over| *over > 0).map(|over| (over, index, sum_ns, *most))
        };
        // Of equal ones the shortest row.
        let worst = self.recent.last().zip(&self.most_ns).enumerate().filter_map(over);
        let worst = worst.max_by_key(|(over, index, ..)| (*over, std::cmp::Reverse(*index)));
        let Some((more_ns, index, seen_ns, most_ns)) = worst else { return };
        let excess = Excess { events: index as u64 + 1, assumed_ns: Some(most_ns), seen_ns, at_ns };
        self.total_ns = total_ns.saturating_sub(more_ns);
        self.noticed.set();
        match &mut self.beyond {
            Some(beyond) if beyond.len() < MAX_BEYOND => beyond.push(Beyond { excess, more_ns }),
            _ => self.excess = self.excess.or(Some(excess)),
        }
    }

    /// One activation that ended at `at_ns`.
    #[inline]
    pub fn see(&mut self, at_ns: u64, took_ns: u64) {
        self.total_ns = self.total_ns.saturating_add(took_ns);
        // No window that ends with nothing is beyond its entry without one that ended before: most
        // callbacks never suspend themselves.
        let adds = took_ns > 0 || !self.rises;
        if adds && self.beyond.is_some() {
            self.see_beyond(at_ns);
        } else if adds && self.excess.is_none() && self.recent.grew_beyond(self.total_ns, &self.most_ns) {
            let total_ns = self.total_ns;
            let sums = self.recent.last().map(|before| total_ns - before);
            if let Some(index) = sums.zip(&self.most_ns).position(|(sum, most)| sum > *most) {
                let seen_ns = self.recent.last().nth(index).map_or(0, |before| total_ns - before);
                let assumed_ns = self.most_ns.get(index).copied();
                self.excess = Some(Excess { events: index as u64 + 1, assumed_ns, seen_ns, at_ns });
                self.noticed.set();
            }
        }
        self.recent.push(self.total_ns);
    }

    /// Continues where another one ends, so that activations in a row under both count as a row.
    pub(crate) fn after(self, before: &Self) -> Self {
        let totals: Vec<u64> = before.recent.last().collect();
        self.after_totals(totals.into_iter().rev())
    }

    /// The same for activations that were held against none: what all of them had taken after each.
    /// Activations that exceeded this limit before it existed are not reported, and no window
    /// contains them.
    pub(crate) fn after_totals(mut self, totals_ns: impl IntoIterator<Item = u64>) -> Self {
        let mut last_ns = None;
        for total_ns in totals_ns {
            if let Some(last_ns) = last_ns.replace(total_ns) {
                self.see(0, total_ns.saturating_sub(last_ns));
                self.take_beyond();
                if self.excess.take().is_some() {
                    self.gap();
                }
            }
        }
        self
    }

    /// Activations may be missing here.
    pub fn gap(&mut self) {
        self.recent.values.clear();
        self.recent.push(self.total_ns);
    }

    /// First excess since the last call.
    pub fn take(&mut self) -> Option<Excess> {
        self.excess.take()
    }
}

/// Messages of consecutive activations, to one topic, that must not become more.
#[derive(Debug, Clone)]
pub struct CountLimit {
    /// Entry `i`: of `i + 1` activations.
    most: Vec<u64>,
    /// Activations that sent any, with the messages before each.
    recent: VecDeque<(u64, u64)>,
    total: u64,
    excess: Option<Excess>,
    noticed: Noticed,
}

impl CountLimit {
    /// Entry `i` of `most`: the most messages that `i + 1` consecutive activations send together;
    /// empty: none ever come.
    #[must_use]
    pub fn new(mut most: Vec<u64>) -> Self {
        if most.is_empty() {
            most.push(0);
        }
        let recent = VecDeque::with_capacity(most.len() + 1);
        Self { recent, most, total: 0, excess: None, noticed: Noticed::default() }
    }

    /// Reports there that something is to be reported.
    pub(crate) fn noticed_by(mut self, noticed: &Noticed) -> Self {
        self.noticed = noticed.clone();
        self
    }

    /// One message of the activation of this number.
    #[inline]
    pub fn see(&mut self, at_ns: u64, activation: u64) {
        if self.recent.back().is_none_or(|(last, _)| *last != activation) {
            self.recent.push_back((activation, self.total));
        }
        self.total += 1;
        let entries = self.most.len() as u64;
        while self.recent.front().is_some_and(|(first, _)| activation.wrapping_sub(*first) >= entries) {
            self.recent.pop_front();
        }
        if self.excess.is_some() {
            return;
        }
        for &(first, before) in self.recent.iter().rev() {
            let events = activation.wrapping_sub(first) + 1;
            let most = usize::try_from(events - 1).ok().and_then(|index| self.most.get(index));
            let sent = self.total - before;
            if let Some(&most) = most.filter(|most| sent > **most) {
                self.excess = Some(Excess { events, assumed_ns: Some(most), seen_ns: sent, at_ns });
                self.noticed.set();
                return;
            }
        }
    }

    /// Continues where another one ends, so that messages of activations in a row under both count
    /// as those of a row. Activations that exceeded this limit before it existed are not reported,
    /// and no window contains them.
    pub(crate) fn after(mut self, before: &Self) -> Self {
        let totals = before.recent.iter().skip(1).map(|(_, total)| *total).chain([before.total]);
        for (&(activation, total), next) in before.recent.iter().zip(totals) {
            (total..next).for_each(|_| self.see(0, activation));
            if self.excess.take().is_some() {
                self.gap();
            }
        }
        self
    }

    /// Messages may be missing here.
    pub fn gap(&mut self) {
        self.recent.clear();
    }

    /// First excess since the last call.
    pub fn take(&mut self) -> Option<Excess> {
        self.excess.take()
    }
}

#[cfg(test)]
mod tests;
