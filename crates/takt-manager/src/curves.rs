//! Measured curves in the form in which the analysis asks for them.
//!
//! They accept any measured curve or say why not, are plain data (`Send`), and hold sums of
//! jittered copies of shared roots, which is what propagation over a graph makes of them.

use std::sync::Arc;

use takt_model::{ArrivalCurve, CostCurve};

/// Spans beyond this are cut: a century says nothing more than a day, and sums of times stay far
/// from overflow.
const LONGEST_NS: u64 = 86_400_000_000_000;

/// Reason why a measured curve bounds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CurveError {
    /// All arrivals were seen at one moment, so that any rate is possible.
    #[error("{seen} activations were seen at one moment and no others: watch for longer")]
    Simultaneous { seen: u64 },
}

/// A count of arrivals, and the intervals that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Longer than this,
    pub above_ns: u64,
    /// and no longer than this.
    pub to_ns: u64,
    /// Arrivals.
    pub count: u64,
}

impl Stretch {
    const ZERO: Self = Self { above_ns: 0, to_ns: u64::MAX, count: 0 };

    /// Whether an interval of this length has so many.
    #[must_use]
    pub(crate) fn holds_at(&self, delta_ns: u64) -> bool {
        delta_ns > self.above_ns && delta_ns <= self.to_ns
    }
}

/// A root's arrivals: shortest spans of `i + 2` events, repeated beyond the last.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Spans {
    /// Not decreasing, the last positive; empty: never activated.
    spans_ns: Vec<u64>,
    /// Arrivals in an interval of the last span's length.
    each: u64,
}

impl Spans {
    /// From a measured curve; `margin` shortens all spans by that share.
    ///
    /// # Errors
    ///
    /// The curve bounds nothing.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn measured(curve: &ArrivalCurve, margin: f64) -> Result<Self, CurveError> {
        if curve.seen == 0 && curve.least_span_ns.is_empty() {
            return Ok(Self::default());
        }
        let mut spans = curve.least_span_ns.clone();
        if spans.is_empty() {
            // One event: it took the whole observation, and the next cannot be known to be nearer.
            spans.push(curve.observed_ns);
        }
        // The virtual activation at system start is one of the events of the spans.
        if spans.last() == Some(&0) && spans.len() as u64 + 1 > curve.seen {
            // No more events than these were ever seen: one more would take longer than all
            // observation.
            spans.push(curve.observed_ns);
        }
        let shrink = |ns: u64| (ns as f64 * (1.0 - margin.clamp(0.0, 0.99))) as u64;
        let mut greatest = 0;
        for span in &mut spans {
            greatest = greatest.max(if margin > 0.0 { shrink(*span) } else { *span }.min(LONGEST_NS));
            *span = greatest;
        }
        if greatest == 0 {
            return Err(CurveError::Simultaneous { seen: curve.seen });
        }
        let each = 1 + spans.partition_point(|span| *span < greatest) as u64;
        Ok(Self { spans_ns: spans, each })
    }

    /// The same with all spans shortened to this share, and by `jitter_ns` more; with `extra` one
    /// more arrival in any interval, where more than one span is known. A curve of which nothing
    /// would be left stays as it is.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn denser(&self, share: f64, jitter_ns: u64, extra: bool) -> Self {
        let shorter = |ns: &u64| ((*ns as f64 * share.clamp(0.0, 1.0)) as u64).saturating_sub(jitter_ns);
        let mut spans_ns: Vec<u64> = self.spans_ns.iter().map(shorter).collect();
        let entries = spans_ns.len();
        if extra && entries > 1 && spans_ns[entries - 2] > 0 {
            spans_ns.rotate_right(1);
            spans_ns[0] = 0;
        }
        match spans_ns.last() {
            Some(&last) if last > 0 => {
                let each = 1 + spans_ns.partition_point(|span| *span < last) as u64;
                Self { spans_ns, each }
            }
            _ => self.clone(),
        }
    }

    /// Whether there is no arrival ever.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.spans_ns.is_empty()
    }

    /// Entry `i`: the shortest span of `i + 2` arrivals.
    #[must_use]
    pub fn spans_ns(&self) -> &[u64] {
        &self.spans_ns
    }

    /// Whole repetitions before a positive interval, and the rest (1 to `last`).
    fn split(delta_ns: u64, last: u64) -> (u64, u64) {
        let whole = (delta_ns - 1) / last;
        (whole, delta_ns - whole * last)
    }

    /// Number of spans shorter than `rest`, which is at most `last`. Most curves are nearly even,
    /// so the place is guessed and corrected: this is the innermost loop of all analyses.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn shorter(&self, rest: u64, last: u64) -> usize {
        let length = self.spans_ns.len();
        let guess = (rest as f64 * length as f64 / last as f64) as usize;
        let mut index = guess.min(length);
        for _ in 0..4 {
            if index > 0 && self.spans_ns[index - 1] >= rest {
                index -= 1;
            } else if index < length && self.spans_ns[index] < rest {
                index += 1;
            } else {
                return index;
            }
        }
        self.spans_ns.partition_point(|span| *span < rest)
    }

    /// Greatest number of arrivals in any half-open interval of this length.
    #[must_use]
    pub fn count(&self, delta_ns: u64) -> u64 {
        let Some(&last) = self.spans_ns.last() else { return 0 };
        if delta_ns == 0 {
            return 0;
        }
        let (whole, rest) = Self::split(delta_ns, last);
        whole * self.each + 1 + self.shorter(rest, last) as u64
    }

    /// The interval in which the count of a positive interval holds.
    fn stretch(&self, delta_ns: u64) -> Stretch {
        let Some(&last) = self.spans_ns.last() else { return Stretch::ZERO };
        let (whole, rest) = Self::split(delta_ns, last);
        let index = self.shorter(rest, last);
        let below = index.checked_sub(1).map_or(0, |i| self.spans_ns[i]);
        Stretch {
            above_ns: whole * last + below,
            // The rest is at most the last span, so at least that one is not shorter.
            to_ns: whole * last + self.spans_ns.get(index).copied().unwrap_or(last),
            count: whole * self.each + 1 + index as u64,
        }
    }

    /// Whether no interval has more arrivals here than in `other`, as far as both were measured.
    #[must_use]
    pub fn within(&self, other: &Self) -> bool {
        if self.is_zero() {
            return true;
        }
        !other.is_zero()
            && self.spans_ns.len() >= other.spans_ns.len()
            && self.spans_ns.iter().zip(&other.spans_ns).all(|(new, old)| new >= old)
    }
}

/// A root with the jitter gathered on the way from it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Flow {
    pub root: usize,
    /// Its arrivals.
    pub spans: Arc<Spans>,
    /// Largest difference of delay between two activations.
    pub jitter_ns: u64,
    /// Number of arrivals here for `n` of the root cause, over all paths of the same jitter.
    pub counts: Arc<Counts>,
    /// Its path to here.
    pub travel: Travel,
}

/// Hops that a flow has passed, at most, over all its paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Travel {
    /// Allowance for messages from hop to hop.
    pub way_ns: u64,
    /// The cores of the callbacks, as bits; [`Travel::SOMEWHERE`]: not all of them are known.
    pub cores: u64,
}

impl Travel {
    pub const SOMEWHERE: u64 = 1 << 63;

    fn with(self, other: Self) -> Self {
        Self { way_ns: self.way_ns.max(other.way_ns), cores: self.cores | other.cores }
    }
}

/// Greatest number of messages of `n` activations in a row, repeated beyond the last entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Counts(Vec<u64>);

impl Counts {
    /// More entries are not kept: beyond, the curve repeats, which is never too little.
    const ENTRIES: usize = 64;
    /// More messages at a time are beyond every limit of the analysis.
    const MOST: u64 = 1 << 20;

    /// So many each time.
    #[must_use]
    pub fn each(times: u64) -> Self {
        Self(vec![times.min(Self::MOST)])
    }

    /// From a measured curve of at most `each` messages at a time; an empty one says nothing but
    /// that.
    #[must_use]
    pub fn measured(most: &[u64], each: u64) -> Self {
        if most.is_empty() {
            return Self::each(each);
        }
        let mut counts: Vec<u64> = Vec::with_capacity(most.len().min(Self::ENTRIES));
        let (mut sum, mut greatest) = (0_u64, 0);
        for &most in most.iter().take(Self::ENTRIES) {
            sum = sum.saturating_add(each);
            greatest = most.min(sum).min(Self::MOST * Self::ENTRIES as u64).max(greatest);
            counts.push(greatest);
        }
        Self(counts)
    }

    /// Of `n` activations in a row.
    #[must_use]
    #[inline]
    pub fn of(&self, n: u64) -> u64 {
        if let [each] = self.0.as_slice() {
            return n.saturating_mul(*each);
        }
        let length = self.0.len() as u64;
        if n > 0 && n <= length {
            return self.0[usize::try_from(n - 1).unwrap_or(0)];
        }
        let (whole, rest) = (n / length, n % length);
        let last = self.0.last().copied().unwrap_or(0);
        let tail = if rest == 0 { 0 } else { self.0[usize::try_from(rest - 1).unwrap_or(0)] };
        last.saturating_mul(whole).saturating_add(tail)
    }

    /// Whether there is never a message.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0.last() == Some(&0)
    }

    #[must_use]
    pub fn entries(&self) -> &[u64] {
        &self.0
    }

    /// Messages of `self` for each of those of `before`.
    #[must_use]
    pub fn after(&self, before: &Self) -> Self {
        Self::up_to(if self.0.len() == 1 { before.0.len() } else { Self::ENTRIES }, |n| self.of(before.of(n)))
    }

    /// Both together.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self::up_to(self.0.len().max(other.0.len()), |n| self.of(n).saturating_add(other.of(n)))
    }

    fn up_to(entries: usize, of: impl Fn(u64) -> u64) -> Self {
        Self((1..=entries as u64).map(|n| of(n).min(Self::MOST.saturating_mul(n))).collect())
    }

    /// Whether no number of activations sends more here than in `other`, as far as both were
    /// counted.
    #[must_use]
    pub fn within(&self, other: &Self) -> bool {
        (1..=self.0.len().max(other.0.len()) as u64).all(|n| self.of(n) <= other.of(n))
    }
}

/// Arrivals of a callback: the sum of its flows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Flows(Vec<Flow>);

impl Flows {
    /// Flows from more roots and ways than this are joined: per root one, with the greatest jitter.
    const MANY: usize = 32;

    /// No arrivals.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Those of a root itself.
    #[must_use]
    pub fn root(root: usize, spans: Arc<Spans>) -> Self {
        if spans.is_zero() {
            return Self::none();
        }
        let (counts, travel) = (Arc::new(Counts::each(1)), Travel::default());
        Self(vec![Flow { root, spans, jitter_ns: 0, counts, travel }])
    }

    /// Adds those of another callback, activations of which cause `counts` here after up to
    /// `jitter_ns` more.
    pub fn add(&mut self, other: &Self, jitter_ns: u64, counts: &Arc<Counts>) {
        self.add_each(other, counts, |flow| (flow.jitter_ns.saturating_add(jitter_ns), flow.travel));
    }

    /// The same with the jitter that each flow has here, and how it came here.
    pub(crate) fn add_each(
        &mut self,
        other: &Self,
        counts: &Arc<Counts>,
        mut after: impl FnMut(&Flow) -> (u64, Travel),
    ) {
        if counts.is_zero() {
            return;
        }
        let plain = counts.entries() == [1];
        for flow in &other.0 {
            let (jitter_ns, travel) = after(flow);
            let jitter = jitter_ns.min(LONGEST_NS);
            let counts = if plain {
                flow.counts.clone()
            } else if flow.counts.entries() == [1] {
                counts.clone()
            } else {
                Arc::new(counts.after(&flow.counts))
            };
            match self.0.iter_mut().find(|f| f.root == flow.root && f.jitter_ns == jitter) {
                Some(same) => {
                    same.counts = Arc::new(same.counts.with(&counts));
                    same.travel = same.travel.with(travel);
                }
                None => self.0.push(Flow { jitter_ns: jitter, counts, travel, ..flow.clone() }),
            }
        }
        if self.0.len() > Self::MANY {
            let mut joined: Vec<Flow> = Vec::new();
            for flow in self.0.drain(..) {
                match joined.iter_mut().find(|f| f.root == flow.root) {
                    Some(same) => {
                        same.jitter_ns = same.jitter_ns.max(flow.jitter_ns);
                        same.counts = Arc::new(same.counts.with(&flow.counts));
                        same.travel = same.travel.with(flow.travel);
                    }
                    None => joined.push(flow),
                }
            }
            self.0 = joined;
        }
        // An order of their own makes equal sums equal keys of the cache.
        self.0.sort_unstable_by_key(|f| (f.root, f.jitter_ns));
    }

    /// The flows, by root and jitter.
    #[must_use]
    pub fn flows(&self) -> &[Flow] {
        &self.0
    }

    /// Whether there is no arrival ever.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// Greatest number of arrivals in any half-open interval of this length.
    #[must_use]
    pub fn count(&self, delta_ns: u64) -> u64 {
        if delta_ns == 0 {
            return 0;
        }
        self.0.iter().map(|f| f.counts.of(f.spans.count(delta_ns + f.jitter_ns))).fold(0, u64::saturating_add)
    }

    /// The count of an interval, and where it holds.
    #[must_use]
    pub fn stretch(&self, delta_ns: u64) -> Stretch {
        if delta_ns == 0 {
            return Stretch { above_ns: 0, to_ns: 0, count: 0 };
        }
        let mut all = Stretch::ZERO;
        for flow in &self.0 {
            let one = flow.spans.stretch(delta_ns + flow.jitter_ns);
            all.above_ns = all.above_ns.max(one.above_ns.saturating_sub(flow.jitter_ns));
            all.to_ns = all.to_ns.min(one.to_ns - flow.jitter_ns);
            all.count = all.count.saturating_add(flow.counts.of(one.count));
        }
        all
    }
}

/// Goes from one rise of a callback's count to the next, span by span, so that none is searched
/// for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rising {
    /// One for each flow; empty: at intervals of no length.
    places: Vec<Place>,
    /// Intervals up to this length have so many arrivals.
    to_ns: u64,
    count: u64,
}

/// Position of one flow on its curve.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Length and arrivals of whole repetitions.
    whole_ns: u64,
    whole: u64,
    /// The span up to which the count holds.
    index: usize,
    to_ns: u64,
    count: u64,
}

impl Place {
    fn at(flow: &Flow, delta_ns: u64) -> Self {
        let Some(&last) = flow.spans.spans_ns.last() else {
            return Self { whole_ns: 0, whole: 0, index: 0, to_ns: u64::MAX, count: 0 };
        };
        let (whole, rest) = Spans::split(delta_ns.saturating_add(flow.jitter_ns), last);
        let index = flow.spans.shorter(rest, last);
        let (whole_ns, whole) = (whole * last, whole * flow.spans.each);
        let mut place = Self { whole_ns, whole, index, to_ns: 0, count: 0 };
        place.reach(flow);
        place
    }

    /// Finds the end of this span, and the number of arrivals in it.
    fn reach(&mut self, flow: &Flow) {
        let spans_ns = &flow.spans.spans_ns;
        let span_ns = spans_ns.get(self.index).or(spans_ns.last()).copied().unwrap_or(0);
        self.to_ns = (self.whole_ns + span_ns).saturating_sub(flow.jitter_ns);
        self.count = flow.counts.of(self.whole + 1 + self.index as u64);
    }

    /// To the next longer span.
    fn next(&mut self, flow: &Flow) {
        let spans_ns = &flow.spans.spans_ns;
        let Some(&last) = spans_ns.last() else { return };
        let span_ns = spans_ns.get(self.index).copied().unwrap_or(last);
        if span_ns >= last {
            self.whole_ns += last;
            self.whole += flow.spans.each;
            self.index = spans_ns.iter().take_while(|span| **span == 0).count();
        } else {
            self.index += spans_ns[self.index..].iter().take_while(|span| **span == span_ns).count();
        }
        self.reach(flow);
    }
}

impl Rising {
    /// Behind intervals of this length.
    pub fn from(flows: &Flows, delta_ns: u64) -> Self {
        let mut rising = Self { places: Vec::new(), to_ns: 0, count: 0 };
        if delta_ns > 0 {
            rising.begin(flows, delta_ns);
        }
        rising
    }

    /// Back to intervals of no length, of whatever flows.
    pub fn clear(&mut self) {
        self.places.clear();
        (self.to_ns, self.count) = (0, 0);
    }

    fn begin(&mut self, flows: &Flows, delta_ns: u64) {
        self.places.extend(flows.0.iter().map(|flow| Place::at(flow, delta_ns)));
        self.sum_up();
    }

    fn sum_up(&mut self) {
        self.to_ns = self.places.iter().map(|place| place.to_ns).min().unwrap_or(u64::MAX);
        self.count = self.places.iter().fold(0, |sum, place| sum.saturating_add(place.count));
    }

    /// The shortest interval that has more arrivals, and how many; `None`: there is none. Of the
    /// same flows each time.
    pub fn next(&mut self, flows: &Flows) -> Option<(u64, u64)> {
        let before = self.count;
        let mut at_ns = self.to_ns;
        // If some activations send no message, the count stays the same over several spans.
        for _ in 0..2 * Counts::ENTRIES * Flows::MANY {
            if self.to_ns == u64::MAX {
                return None;
            }
            at_ns = self.to_ns + 1;
            if self.places.is_empty() {
                self.begin(flows, at_ns);
            } else {
                for (place, flow) in self.places.iter_mut().zip(&flows.0) {
                    if place.to_ns < at_ns {
                        place.next(flow);
                    }
                }
                self.sum_up();
            }
            if self.count > before {
                break;
            }
        }
        Some((at_ns, self.count))
    }
}

/// Cumulative execution time of consecutive activations, repeated beyond the last.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cost {
    /// Entry `i`: `i + 1` activations; not decreasing, not empty.
    most_ns: Vec<u64>,
    /// Entry `i`: the least increment up to there.
    least_ns: Vec<u64>,
}

impl Cost {
    /// From a measured worst-case curve.
    #[must_use]
    pub fn measured(curve: &CostCurve, margin: f64) -> Self {
        Self::new(&curve.most_ns, margin)
    }

    /// From a curve of costs of 1, 2, 3, ... activations; `margin` lengthens all by that share. An
    /// empty curve costs nothing.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn new(most_ns: &[u64], margin: f64) -> Self {
        let mut most = Vec::with_capacity(most_ns.len().max(1));
        let mut greatest: u64 = 0;
        for &ns in most_ns {
            let ns = if margin > 0.0 { (ns as f64 * (1.0 + margin)).ceil() as u64 } else { ns };
            greatest = greatest.max(ns.min(LONGEST_NS));
            most.push(greatest);
        }
        if most.is_empty() {
            most.push(0);
        }
        let mut before = 0;
        let mut least = u64::MAX;
        let least_ns = most
            .iter()
            .map(|ns| {
                least = least.min(ns - before);
                before = *ns;
                least
            })
            .collect();
        Self { most_ns: most, least_ns }
    }

    /// Of `n` consecutive activations.
    #[must_use]
    #[inline]
    pub fn of(&self, n: u64) -> u64 {
        let length = self.most_ns.len() as u64;
        if n > 0 && n <= length {
            return self.most_ns[usize::try_from(n - 1).unwrap_or(0)];
        }
        let (whole, rest) = (n / length, n % length);
        let last = self.most_ns.last().copied().unwrap_or(0);
        let tail = if rest == 0 { 0 } else { self.most_ns[usize::try_from(rest - 1).unwrap_or(0)] };
        last.saturating_mul(whole).saturating_add(tail)
    }

    /// Entry `i`: of `i + 1` consecutive activations.
    #[must_use]
    pub fn most_ns(&self) -> &[u64] {
        &self.most_ns
    }

    #[must_use]
    pub fn one(&self) -> u64 {
        self.most_ns[0]
    }

    /// The least that one more activation adds, among the first `n`.
    #[must_use]
    pub fn least(&self, n: u64) -> u64 {
        let entries = self.least_ns.len();
        usize::try_from(n).unwrap_or(usize::MAX).min(entries).checked_sub(1).map_or(0, |i| self.least_ns[i])
    }

    /// Whether no number of activations costs more here than in `other`, as far as both were
    /// measured.
    #[must_use]
    pub fn within(&self, other: &Self) -> bool {
        self.within_by(other, 0)
    }

    /// The same, or no more than so much more.
    #[must_use]
    pub(crate) fn within_by(&self, other: &Self, slack_ns: u64) -> bool {
        let entries = self.most_ns.len().max(other.most_ns.len()) as u64;
        (1..=entries).all(|n| self.of(n) <= other.of(n).saturating_add(slack_ns))
    }
}

#[cfg(test)]
mod tests;
