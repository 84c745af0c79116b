//! Measured curves in the form in which the analysis crate asks for them.
//!
//! The crate's own `Curve` types panic on a single arrival, divide by zero on simultaneous ones and never end on curves that are all
//! zero; they search linearly and clone themselves for every jitter. These here accept any measured curve or say why not, are plain data
//! (`Send`), and hold sums of jittered copies of shared roots, which is what propagation over a graph
//! makes of them.

use std::sync::Arc;

use response_time_analysis::arrival::ArrivalBound;
use response_time_analysis::time::{Duration, Service};
use response_time_analysis::wcet::JobCostModel;
use takt_model::{ArrivalCurve, CostCurve};

/// Spans beyond this are cut: a century says nothing more than a day, and sums of times stay far from overflow.
const LONGEST_NS: u64 = 86_400_000_000_000;

/// Why a measured curve bounds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CurveError {
    /// All arrivals were seen at one moment, so that any rate is possible.
    #[error("{seen} activations were seen at one moment and none apart from them: watch for longer")]
    Simultaneous {
        /// Activations seen.
        seen: u64,
    },
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
    const NEVER: Self = Self { above_ns: 0, to_ns: u64::MAX, count: 0 };

    /// Whether an interval of this length has so many.
    #[must_use]
    pub fn holds_at(&self, delta_ns: u64) -> bool {
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
            // One event: it took the whole observation, and the next cannot be told to be nearer.
            spans.push(curve.observed_ns);
        }
        // The virtual activation at system start is one of the events of the spans.
        if spans.last() == Some(&0) && spans.len() as u64 + 1 > curve.seen {
            // No more events than these were ever seen: one more would take longer than all observation.
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

    /// Whether there is no arrival ever.
    #[must_use]
    pub fn never(&self) -> bool {
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

    /// Number of spans shorter than `rest`, which is at most `last`. Most curves are nearly even, so the place is guessed and
    /// corrected: this is the innermost loop of all analyses.
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

    /// Where the count of a positive interval holds.
    fn stretch(&self, delta_ns: u64) -> Stretch {
        let Some(&last) = self.spans_ns.last() else { return Stretch::NEVER };
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
        if self.never() {
            return true;
        }
        !other.never()
            && self.spans_ns.len() >= other.spans_ns.len()
            && self.spans_ns.iter().zip(&other.spans_ns).all(|(new, old)| new >= old)
    }
}

/// A root with the jitter gathered on the way from it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Number of the root.
    pub root: usize,
    /// Its arrivals.
    pub spans: Arc<Spans>,
    /// How much one activation can be delayed more than another.
    pub jitter_ns: u64,
    /// How often: ways of the same jitter, messages per activation.
    pub times: u64,
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
        if spans.never() {
            return Self::none();
        }
        Self(vec![Flow { root, spans, jitter_ns: 0, times: 1 }])
    }

    /// Adds those of another callback, each activation of which causes `times` here after up to `jitter_ns` more.
    pub fn add(&mut self, other: &Self, jitter_ns: u64, times: u64) {
        for flow in &other.0 {
            let jitter = flow.jitter_ns.saturating_add(jitter_ns).min(LONGEST_NS);
            let times = flow.times.saturating_mul(times).min(1 << 20);
            match self.0.iter_mut().find(|f| f.root == flow.root && f.jitter_ns == jitter) {
                Some(same) => same.times = (same.times + times).min(1 << 20),
                None => self.0.push(Flow { jitter_ns: jitter, times, ..flow.clone() }),
            }
        }
        if self.0.len() > Self::MANY {
            let mut joined: Vec<Flow> = Vec::new();
            for flow in self.0.drain(..) {
                match joined.iter_mut().find(|f| f.root == flow.root) {
                    Some(same) => {
                        same.jitter_ns = same.jitter_ns.max(flow.jitter_ns);
                        same.times = (same.times + flow.times).min(1 << 20);
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
    pub fn never(&self) -> bool {
        self.0.is_empty()
    }

    /// Greatest number of arrivals in any half-open interval of this length.
    #[must_use]
    pub fn count(&self, delta_ns: u64) -> u64 {
        if delta_ns == 0 {
            return 0;
        }
        self.0
            .iter()
            .map(|f| f.times.saturating_mul(f.spans.count(delta_ns + f.jitter_ns)))
            .fold(0, u64::saturating_add)
    }

    /// The count of an interval, and where it holds.
    #[must_use]
    pub fn stretch(&self, delta_ns: u64) -> Stretch {
        if delta_ns == 0 {
            return Stretch { above_ns: 0, to_ns: 0, count: 0 };
        }
        let mut all = Stretch::NEVER;
        for flow in &self.0 {
            let one = flow.spans.stretch(delta_ns + flow.jitter_ns);
            all.above_ns = all.above_ns.max(one.above_ns.saturating_sub(flow.jitter_ns));
            all.to_ns = all.to_ns.min(one.to_ns - flow.jitter_ns);
            all.count = all.count.saturating_add(flow.times.saturating_mul(one.count));
        }
        all
    }

    /// The shortest interval longer than `delta_ns` that has more arrivals; `None`: there is none.
    fn next_step(&self, delta_ns: u64) -> Option<u64> {
        (!self.never()).then(|| self.stretch(delta_ns).to_ns + 1)
    }
}

impl ArrivalBound for Flows {
    fn number_arrivals(&self, delta: Duration) -> usize {
        usize::try_from(self.count(delta.into())).unwrap_or(usize::MAX)
    }

    fn steps_iter<'a>(&'a self) -> Box<dyn Iterator<Item = Duration> + 'a> {
        let mut at = 0;
        Box::new(std::iter::from_fn(move || {
            at = self.next_step(at)?;
            Some(Duration::from(at))
        }))
    }

    fn clone_with_jitter(&self, jitter: Duration) -> Box<dyn ArrivalBound> {
        let mut flows = Self::none();
        flows.add(self, jitter.into(), 1);
        Box::new(flows)
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

    /// From a curve of costs of 1, 2, 3, ... activations; `margin` lengthens all by that share. An empty curve costs nothing.
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

    /// Of one.
    #[must_use]
    pub fn one(&self) -> u64 {
        self.most_ns[0]
    }

    /// Whether no number of activations costs more here than in `other`, as far as both were measured.
    #[must_use]
    pub fn within(&self, other: &Self) -> bool {
        (1..=self.most_ns.len().max(other.most_ns.len()) as u64).all(|n| self.of(n) <= other.of(n))
    }
}

impl JobCostModel for Cost {
    fn cost_of_jobs(&self, n: usize) -> Service {
        // Three days are beyond every limit of the search, and keep the crate's sums and products from overflow.
        Service::from(self.of(n as u64).min(1 << 48))
    }

    fn least_wcet(&self, n: usize) -> Service {
        if n == 0 {
            return Service::none();
        }
        Service::from(self.least_ns[n.min(self.least_ns.len()) - 1])
    }

    fn job_cost_iter<'a>(&'a self) -> Box<dyn Iterator<Item = Service> + 'a> {
        Box::new((1..).map(|n| Service::from(self.of(n) - self.of(n - 1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use response_time_analysis::arrival::Curve;

    fn spans(ns: &[u64]) -> Result<Spans, CurveError> {
        let curve = ArrivalCurve { least_span_ns: ns.to_vec(), seen: ns.len() as u64 + 1, observed_ns: 1000 };
        Spans::measured(&curve, 0.0)
    }

    #[test]
    fn degenerate_curves_have_a_meaning_or_a_reason() {
        assert!(Spans::measured(&ArrivalCurve::default(), 0.0).unwrap().never());
        let one = ArrivalCurve { least_span_ns: vec![], seen: 1, observed_ns: 500 };
        assert_eq!(Spans::measured(&one, 0.0).unwrap().count(500), 1);
        let two_at_once = ArrivalCurve { least_span_ns: vec![0], seen: 2, observed_ns: 1000 };
        assert_eq!(
            Spans::measured(&two_at_once, 0.0),
            Err(CurveError::Simultaneous { seen: 2 }),
            "the span of start and both is missing"
        );
        let with_start = ArrivalCurve { least_span_ns: vec![0, 700], seen: 2, observed_ns: 1000 };
        let curve = Spans::measured(&with_start, 0.0).unwrap();
        assert_eq!((curve.count(1), curve.count(700), curve.count(701)), (2, 2, 4));
        assert!(Cost::new(&[], 0.0).of(5) == 0);
    }

    #[test]
    fn costs_repeat_and_margins_apply() {
        let cost = Cost::new(&[10, 12, 14], 0.0);
        assert_eq!((cost.of(0), cost.of(1), cost.of(3), cost.of(4), cost.of(7)), (0, 10, 14, 24, 38));
        assert_eq!(Cost::new(&[10, 12], 0.5).of(2), 18);
        assert!(cost.within(&Cost::new(&[10, 12, 14], 0.1)));
        assert!(!cost.within(&Cost::new(&[10, 12, 13], 0.0)));
    }

    proptest! {
        #[test]
        fn agrees_with_the_crates_own_curves(
            mut ns in prop::collection::vec(1_u64..500, 2..12),
            deltas in prop::collection::vec(0_u64..3000, 1..30),
            jitter in 0_u64..400,
        ) {
            ns.sort_unstable();
            ns.dedup();
            prop_assume!(ns.len() > 1);
            let ours = Flows::root(0, Arc::new(spans(&ns).unwrap()));
            let mut jittered = Flows::none();
            jittered.add(&ours, jitter, 1);
            let theirs: Curve = ns.iter().map(|n| Duration::from(*n)).collect();
            let theirs_jittered = theirs.clone_with_jitter(Duration::from(jitter));
            for d in deltas {
                prop_assert_eq!(ours.number_arrivals(d.into()), theirs.number_arrivals(d.into()));
                prop_assert_eq!(jittered.number_arrivals(d.into()), theirs_jittered.number_arrivals(d.into()));
            }
        }

        #[test]
        fn steps_are_where_counts_rise(
            mut ns in prop::collection::vec(0_u64..60, 1..6),
            jitters in prop::collection::vec(0_u64..90, 1..4),
        ) {
            ns.sort_unstable();
            prop_assume!(ns.last() != Some(&0));
            let root = Flows::root(0, Arc::new(spans(&ns).unwrap()));
            let mut sum = Flows::none();
            for jitter in jitters {
                sum.add(&root, jitter, 1);
            }
            let listed: Vec<u64> = sum.steps_iter().map(u64::from).take_while(|s| *s <= 300).collect();
            let risen: Vec<u64> = (1..=300).filter(|d| sum.count(d - 1) < sum.count(*d)).collect();
            prop_assert_eq!(listed, risen);
        }
    }
}
