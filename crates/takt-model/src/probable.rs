//! Empirical pWCET(n): what `n` consecutive activations exceed with a given probability only
//! (*ROS-Llama*, section VII.A.b).
//!
//! For window lengths 1, 2, 4 … the sums of all windows seen are kept in histograms. The curve's
//! value is not the sample's quantile but an upper confidence bound of it (order statistics,
//! whatever the distribution), with as many independent windows as fit side by side into what was
//! seen. A probability for which there are too few gets no value: three thousand activations are
//! needed before anything can be said about one in a thousand.
//!
//! The bound holds for the environment that was seen, and where windows lie too close to be
//! independent it is too sure of itself. Therefore these curves are shown next to the worst ones
//! and never replace them without a request.

use hdrhistogram::Histogram;

use crate::ProbableCost;

/// Probability with which a value is not below the true quantile.
const CONFIDENCE: f64 = 0.95;
/// Resolution of the histograms: one microsecond at the bottom, 1 % above; a value is rounded up.
const LOWEST_NS: u64 = 1024;
const HIGHEST_NS: u64 = 1 << 40;

/// Records the sums of windows of consecutive activations.
#[derive(Debug, Clone)]
pub struct ProbableRecorder {
    windows: Vec<Window>,
    /// Sums so far; the last `longest + 1` of them.
    sums: Vec<u64>,
    next: usize,
    /// Activations since the last gap.
    run: u64,
    total_ns: u64,
    seen: u64,
}

#[derive(Debug, Clone)]
struct Window {
    activations: u64,
    sums: Histogram<u32>,
}

impl ProbableRecorder {
    /// Windows of 1, 2, 4 … up to `longest` activations.
    #[must_use]
    pub fn new(longest: usize) -> Self {
        let windows: Vec<Window> = (0..32)
            .map(|power| 1u64 << power)
            .take_while(|&n| n <= longest.max(1) as u64)
            .filter_map(|activations| {
                let sums = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, 2).ok()?;
                Some(Window { activations, sums })
            })
            .collect();
        let longest = windows.last().map_or(1, |w| w.activations as usize);
        Self {
            windows,
            sums: vec![0; (longest + 1).next_power_of_two()],
            next: 1,
            run: 0,
            total_ns: 0,
            seen: 0,
        }
    }

    /// One activation.
    pub fn record(&mut self, took_ns: u64) {
        self.total_ns = self.total_ns.wrapping_add(took_ns);
        self.run += 1;
        self.seen += 1;
        let mask = self.sums.len() - 1;
        for window in &mut self.windows {
            if window.activations > self.run {
                break;
            }
            let before = self.sums[self.next.wrapping_sub(window.activations as usize) & mask];
            window.sums.saturating_record(self.total_ns.wrapping_sub(before));
        }
        self.sums[self.next & mask] = self.total_ns;
        self.next = self.next.wrapping_add(1);
    }

    /// Activations may be missing here: no window reaches across.
    pub fn gap(&mut self) {
        self.run = 0;
    }

    /// The curve for one exceedance probability; `None` where not even single activations were seen
    /// often enough ([`needed`]), or the probability is none.
    #[must_use]
    pub fn curve(&self, exceedance: f64) -> Option<ProbableCost> {
        let mut most_ns: Vec<u64> = Vec::new();
        for window in &self.windows {
            let side_by_side = window.sums.len() / window.activations;
            let Some(above) = discarded(side_by_side, exceedance) else { break };
            // As many of the overlapping windows may lie above as that share of the independent
            // ones.
            let kept = 1.0 - above as f64 / side_by_side as f64;
            let value = window.sums.value_at_quantile(kept).max(most_ns.last().copied().unwrap_or(0));
            // A shorter window takes no more than the next longer one that was recorded.
            most_ns.resize(window.activations as usize, value);
        }
        (!most_ns.is_empty()).then_some(ProbableCost { exceedance, most_ns })
    }

    /// Activations seen.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }
}

/// Number of activations that must have been seen before anything can be said about this
/// probability.
#[must_use]
pub fn needed(exceedance: f64) -> Option<u64> {
    (exceedance > 0.0 && exceedance < 1.0)
        .then(|| ((1.0 - CONFIDENCE).ln() / (-exceedance).ln_1p()).ceil() as u64)
}

/// Number of the `count` greatest values that may be left out so that the next one still is, with
/// confidence, no less than the quantile of the given exceedance: the greatest `j` with
/// P(Binomial(count, exceedance) ≤ j) ≤ 1 − confidence.
fn discarded(count: u64, exceedance: f64) -> Option<u64> {
    if count < needed(exceedance)? {
        return None;
    }
    let expected = count as f64 * exceedance;
    if expected > 500.0 {
        // The normal approximation, one more kept for its error.
        let deviation = (expected * (1.0 - exceedance)).sqrt();
        return Some((expected - 1.645 * deviation - 1.5).max(0.0) as u64);
    }
    let mut term = (count as f64 * (-exceedance).ln_1p()).exp();
    let (mut below, mut j) = (term, 0u64);
    loop {
        term *= (count - j) as f64 / (j + 1) as f64 * exceedance / (1.0 - exceedance);
        below += term;
        if below > 1.0 - CONFIDENCE || j + 1 >= count {
            return Some(j);
        }
        j += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn too_few_activations_say_nothing() {
        assert_eq!(needed(0.001), Some(2995));
        let mut recorder = ProbableRecorder::new(64);
        for _ in 0..2994 {
            recorder.record(10_000);
        }
        assert_eq!(recorder.curve(0.001), None);
        recorder.record(10_000);
        let curve = recorder.curve(0.001).unwrap();
        assert_eq!(curve.most_ns.len(), 1);
        assert!((10_000..11_300).contains(&curve.most_ns[0]), "{curve:?}");
        for nonsense in [0.0, 1.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(recorder.curve(nonsense), None);
        }
    }

    #[test]
    fn rare_peaks_are_left_out_and_frequent_ones_are_not() {
        let mut recorder = ProbableRecorder::new(8);
        for i in 0..200_000u64 {
            recorder.record(if i % 1000 == 0 { 50_000_000 } else { 1_000_000 });
        }
        let rare = recorder.curve(0.01).unwrap();
        let often = recorder.curve(0.0001).unwrap();
        assert!(rare.most_ns[0] < 1_100_000, "{rare:?}");
        assert!(often.most_ns[0] >= 50_000_000 && often.most_ns[0] < 51_000_000, "{often:?}");
        assert!(rare.most_ns.len() == 8 && rare.most_ns.is_sorted());
    }

    #[test]
    fn the_binomial_tail_is_kept() {
        for count in [300u64, 1000, 10_000, 60_000] {
            let exceedance = 0.01;
            let j = discarded(count, exceedance).unwrap();
            let mut term = (count as f64 * (-exceedance).ln_1p()).exp();
            let mut tail = term;
            for k in 0..j {
                term *= (count - k) as f64 / (k + 1) as f64 * exceedance / (1.0 - exceedance);
                tail += term;
            }
            assert!(tail <= 0.05, "{count}: {tail}");
            assert!(j as f64 >= count as f64 * exceedance * 0.4 - 3.0, "{count}: {j} is far too careful");
        }
    }

    proptest! {
        #[test]
        fn never_below_the_share_that_it_promises(costs in proptest::collection::vec(0u64..100_000_000, 100..600)) {
            let mut recorder = ProbableRecorder::new(16);
            for &cost in &costs {
                recorder.record(cost);
            }
            if let Some(curve) = recorder.curve(0.05) {
                for (i, &most) in curve.most_ns.iter().enumerate() {
                    let windows: Vec<u64> = costs.windows(i + 1).map(|w| w.iter().sum()).collect();
                    let above = windows.iter().filter(|&&sum| sum > most).count();
                    prop_assert!(above as f64 <= 0.05 * windows.len() as f64, "{} of {}", above, windows.len());
                }
            }
        }
    }
}
