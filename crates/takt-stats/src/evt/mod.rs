//! Extreme values: how likely is a latency that was never seen?
//!
//! The practice of measurement-based probabilistic timing analysis (Cucu-Grosjean et al., ECRTS
//! 2012; Reghenzani, Massari, Fornaciari, "Probabilistic-WCET reliability: statistical testing of
//! EVT hypotheses", 2020): test that the theory applies, fit, test the fit, and refuse otherwise.
//! In order:
//!
//! 1. *Enough and varied*: at least 500 values, not all equal.
//! 2. *Stationary*: block maxima without a trend (Mann-Kendall), peaks at an even rate (χ²).
//! 3. *Independent*: extremal index by Ferro and Segers' intervals estimator; bursts are
//!    declustered to their peaks.
//! 4. *Threshold*: candidates leave N = 50, 70, 100, … up to 1000 exceedances, at most the upper
//!    tenth. The highest must not be rejected (Anderson-Darling, p ≥ 0.02), or the analysis is
//!    refused. The lowest that is not (p ≥ 0.05) is used, since it has the most data. (Going down
//!    from the highest until the first rejection would pick the place where the sample happens to
//!    change: simulated, its 95 % intervals covered 86 %.)
//! 5. *One kind of tail*: no gap that the fit makes improbable (p < 0.015), shape below 0.5 (finite
//!    variance).
//! 6. *Peaks over threshold*: generalised Pareto by maximum likelihood; intervals by profile
//!    likelihood, the number of peaks being Poisson. For a negative shape the upper end of what is
//!    reported about a deadline is never below that of an exponential tail: tails like the normal
//!    one approach their limit slowly, their fitted shapes are negative though they have no end,
//!    and the error is on the unsafe side (simulated: half-normal latencies were covered in 156 of
//!    194 runs without this, and in all with it).
//! 7. *Block maxima*: a generalised extreme value distribution as a second opinion.
//!
//! A result of the run holds for the hour only if the load stays the same: the answer is about this
//! load, not the worst.

mod anderson;
mod gev;
mod gpd;
mod refusal;
mod series;

use serde::Serialize;

pub use gev::Gev;
pub use gpd::Gpd;
pub use refusal::Refusal;

use crate::random::generator;
use gpd::{FitTest, RegionPoint};
use series::Clusters;

/// Fewest peaks that a tail is fitted to.
const MIN_PEAKS: usize = 50;
/// Most: beyond, the threshold would leave the tail, and the tests would reject any model.
const MAX_PEAKS: usize = 1000;
/// The tail is at most this part of the values: one in ten.
const TAIL_DIVISOR: usize = 10;
/// Fewest values: the upper tenth must have [`MIN_PEAKS`].
const MIN_SAMPLES: usize = MIN_PEAKS * TAIL_DIVISOR;
/// Simulated samples per fit test.
const ROUNDS: usize = 199;
/// Below this p-value the highest threshold's fit is rejected, and the analysis refused.
const REFUSED_BELOW: f64 = 0.02;
/// Below this p-value no lower threshold is taken.
const LOWER_BELOW: f64 = 0.05;
/// A gap with a lower p-value separates two populations.
const GAP_BELOW: f64 = 0.015;
/// From this shape on the variance is infinite.
const SHAPE_LIMIT: f64 = 0.5;
/// A more frequent value than this share of the peaks shows a coarse clock.
const TIE_SHARE: f64 = 0.05;
/// p-value below which peaks do not come at an even rate, and normal deviate beyond which maxima
/// drift (p = 0.003): small, since both are looked at in every run.
const UNEVEN_BELOW: f64 = 0.003;
const DRIFT_BEYOND: f64 = 3.0;
/// Blocks of maxima: fewest, most, and least length.
const MIN_BLOCKS: usize = 50;
const MAX_BLOCKS: usize = 200;
const MIN_BLOCK: usize = 20;
/// Seed of the simulated samples: the same data gives the same answer.
const SEED: u64 = 0x7A6B_7453_6565_6431;

/// A number with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, serde::Deserialize)]
pub struct Estimate {
    /// Most likely value.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// The block maxima's opinion.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Blocks {
    /// Number of blocks.
    pub blocks: u64,
    /// Values in each.
    pub length: u64,
    /// The fitted distribution.
    pub gev: Gev,
    /// Shape with its parametric-bootstrap interval.
    pub shape: Estimate,
    /// Anderson-Darling p-value of the fit.
    pub fit_p_value: f64,
    /// Probability of at least one value beyond the deadline in an hour.
    pub per_hour: Estimate,
}

/// The fitted tail of a series.
#[derive(Clone, Debug, Serialize)]
pub struct Tail {
    /// Values analysed.
    pub samples: u64,
    /// Values per second.
    pub rate_hz: f64,
    /// The deadline that [`Tail::per_hour`] is about.
    pub deadline_ns: u64,
    /// Greatest value seen.
    pub max_ns: u64,
    /// The threshold chosen.
    pub threshold_ns: u64,
    /// Values above it.
    pub exceedances: u64,
    /// Independent peaks above it: what was fitted.
    pub peaks: u64,
    /// Extremal index: 1 when large values come independently, 1/m when in bursts of m.
    pub extremal_index: f64,
    /// Shape ξ of the generalised Pareto distribution.
    pub shape: Estimate,
    /// Its scale σ, nanoseconds.
    pub scale_ns: Estimate,
    /// Anderson-Darling p-value of the fit, by parametric bootstrap.
    pub fit_p_value: f64,
    /// End of the fitted tail, for a negative shape.
    pub upper_end_ns: Option<f64>,
    /// Probability of at least one value beyond the deadline in an hour.
    pub per_hour: Estimate,
    /// The level that one hour's greatest value exceeds once on average.
    pub hour_level_ns: Estimate,
    /// Block maxima as a second opinion, or why there is none.
    pub blocks: Result<Blocks, Refusal>,
    /// Caveats about this answer, one sentence each.
    pub caveats: Vec<String>,
    #[serde(skip)]
    fit: Gpd,
    #[serde(skip)]
    region: Vec<RegionPoint>,
    /// Only for upper ends; empty where the shape is not negative.
    #[serde(skip)]
    exponential: Vec<RegionPoint>,
}

/// Analyses the tail of a series in time order. Deterministic; takes under a second.
pub fn analyse(series_ns: &[u64], rate_hz: f64, deadline_ns: u64) -> Result<Tail, Refusal> {
    analyse_at(series_ns, rate_hz, deadline_ns, crate::INTERVAL_CONFIDENCE)
}

/// The same with intervals of another (two-sided) confidence.
pub(crate) fn analyse_at(
    series_ns: &[u64],
    rate_hz: f64,
    deadline_ns: u64,
    confidence: f64,
) -> Result<Tail, Refusal> {
    if !(rate_hz > 0.0 && rate_hz.is_finite()) {
        return Err(Refusal::Rate { rate_hz });
    }
    let samples = series_ns.len();
    if samples < MIN_SAMPLES {
        return Err(Refusal::TooFewSamples { samples: samples as u64, needed: MIN_SAMPLES as u64 });
    }
    let top = greatest(series_ns, (samples / TAIL_DIVISOR).min(MAX_PEAKS) + 1);
    let max_ns = top[0];
    if top.last() == Some(&max_ns) {
        return Err(Refusal::NoVariation { value_ns: max_ns });
    }
    no_drift(series_ns)?;
    let chosen = choose(series_ns, &top)?;
    let mut tail = chosen.into_tail(series_ns, rate_hz, deadline_ns, max_ns, confidence);
    tail.per_hour = tail.exceedance_per_hour(deadline_ns as f64, rate_hz);
    tail.hour_level_ns = tail.return_level_ns(1.0, rate_hz);
    tail.blocks = block_opinion(series_ns, rate_hz, deadline_ns);
    tail.note_caveats();
    Ok(tail)
}

/// The `count` greatest values, descending, without sorting the series.
fn greatest(series: &[u64], count: usize) -> Vec<u64> {
    let mut values = series.to_vec();
    let count = count.clamp(1, values.len());
    if count < values.len() {
        values.select_nth_unstable_by(count - 1, |a, b| b.cmp(a));
        values.truncate(count);
    }
    values.sort_unstable_by(|a, b| b.cmp(a));
    values
}

/// Refuses a series whose block maxima climb or fall.
fn no_drift(series: &[u64]) -> Result<(), Refusal> {
    let (_, length) = block_plan(series.len());
    let deviate = series::trend_deviate(&series::block_maxima(series, length));
    if deviate.abs() <= DRIFT_BEYOND {
        return Ok(());
    }
    let direction = if deviate > 0.0 { "climb" } else { "fall" };
    Err(Refusal::NonStationary {
        what: format!("the maxima of {length} values each {direction} (Mann-Kendall deviate {deviate:.1})"),
    })
}

/// A threshold with its peaks and their fit.
struct Candidate {
    threshold: u64,
    clusters: Clusters,
    /// Excesses of the peaks, ascending.
    excesses: Vec<f64>,
    fit: Gpd,
    test: FitTest,
}

impl Candidate {
    /// Fits the peaks above `threshold`; `Ok(None)` when they are too few.
    fn new(series: &[u64], threshold: u64) -> Result<Option<Self>, Refusal> {
        let clusters = Clusters::above(series, threshold);
        if clusters.peaks.len() < MIN_PEAKS {
            return Ok(None);
        }
        not_discretised(&clusters)?;
        let places = clusters.peaks.iter().map(|p| p.0);
        if series::even_rate_p_value(places, series.len()) < UNEVEN_BELOW {
            return Err(Refusal::NonStationary {
                what: format!("its peaks beyond {threshold} ns do not come at an even rate"),
            });
        }
        let mut excesses: Vec<f64> = clusters.peaks.iter().map(|p| (p.1 - threshold) as f64).collect();
        excesses.sort_unstable_by(f64::total_cmp);
        let Some(fit) = Gpd::fit(&excesses) else {
            return Err(Refusal::NoVariation { value_ns: series.iter().copied().max().unwrap_or(0) });
        };
        let test = fit.test(&excesses, ROUNDS, &mut generator(SEED ^ excesses.len() as u64));
        Ok(Some(Self { threshold, clusters, excesses, fit, test }))
    }

    /// Reason why this tail may not be extrapolated, if it may not.
    fn objection(&self, least_p: f64) -> Option<Refusal> {
        let peaks = self.excesses.len() as u64;
        let needed = MIN_PEAKS as u64;
        let FitTest { fit_p, gap_p, above_gap } = self.test;
        if gap_p < GAP_BELOW {
            return Some(Refusal::StandsApart { values: above_gap as u64, peaks, p_value: gap_p, needed });
        }
        if fit_p < least_p {
            let threshold_ns = self.threshold;
            return Some(Refusal::Mixture { peaks, threshold_ns, p_value: fit_p, needed });
        }
        (self.fit.shape >= SHAPE_LIMIT)
            .then_some(Refusal::TooHeavy { shape: self.fit.shape, limit: SHAPE_LIMIT })
    }

    fn into_tail(self, series: &[u64], rate_hz: f64, deadline_ns: u64, max_ns: u64, confidence: f64) -> Tail {
        let region = gpd::region(&self.excesses, confidence);
        let over = |value: f64, f: &dyn Fn(&RegionPoint) -> f64| {
            let (low, high) = region.iter().map(f).fold((value, value), |(l, h), v| (l.min(v), h.max(v)));
            Estimate { value, low, high }
        };
        Tail {
            samples: series.len() as u64,
            rate_hz,
            deadline_ns,
            max_ns,
            threshold_ns: self.threshold,
            exceedances: self.clusters.exceedances as u64,
            peaks: self.excesses.len() as u64,
            extremal_index: self.clusters.index,
            shape: over(self.fit.shape, &|p| p.theta * p.scale),
            scale_ns: over(self.fit.scale, &|p| p.scale),
            fit_p_value: self.test.fit_p,
            upper_end_ns: self.fit.upper_end().map(|e| e + self.threshold as f64),
            per_hour: Estimate::default(),
            hour_level_ns: Estimate::default(),
            blocks: Err(Refusal::TooFewSamples { samples: 0, needed: MIN_SAMPLES as u64 }),
            caveats: Vec::new(),
            exponential: if self.fit.shape < 0.0 {
                gpd::exponential_region(&self.excesses, confidence)
            } else {
                Vec::new()
            },
            fit: self.fit,
            region,
        }
    }
}

/// Refuses peaks of which too many are equal.
fn not_discretised(clusters: &Clusters) -> Result<(), Refusal> {
    let mut values: Vec<u64> = clusters.peaks.iter().map(|p| p.1).collect();
    values.sort_unstable();
    let most = values.chunk_by(|a, b| a == b).max_by_key(|c| c.len()).unwrap_or(&[]);
    let share = most.len() as f64 / values.len().max(1) as f64;
    match most.first() {
        Some(&value_ns) if most.len() >= 4 && share > TIE_SHARE => {
            Err(Refusal::Discretised { value_ns, share, peaks: values.len() as u64 })
        }
        _ => Ok(()),
    }
}

/// Chooses the threshold (step 4 of the module's list). `top` are the greatest values, descending.
fn choose(series: &[u64], top: &[u64]) -> Result<Candidate, Refusal> {
    let mut thresholds = Vec::new();
    let mut exceedances = MIN_PEAKS as f64;
    while exceedances as usize + 1 < top.len() {
        thresholds.push(top[exceedances as usize]);
        exceedances *= 2f64.sqrt();
    }
    thresholds.push(top[top.len() - 1]);
    thresholds.dedup();
    // The highest with enough peaks, which everything rests on.
    let mut highest = None;
    let mut tried = 0;
    for &threshold in &thresholds {
        tried += 1;
        highest = Candidate::new(series, threshold)?;
        if highest.is_some() {
            break;
        }
    }
    let Some(highest) = highest else { return Err(too_few(series, top)) };
    if let Some(refusal) = highest.objection(REFUSED_BELOW) {
        return Err(refusal);
    }
    // The lowest that nothing speaks against. What speaks against a low threshold is no reason to
    // refuse.
    for &threshold in thresholds[tried..].iter().rev() {
        if let Ok(Some(candidate)) = Candidate::new(series, threshold)
            && candidate.objection(LOWER_BELOW).is_none()
        {
            return Ok(candidate);
        }
    }
    Ok(highest)
}

/// Reason why no threshold leaves enough peaks.
fn too_few(series: &[u64], top: &[u64]) -> Refusal {
    let border = top[top.len() - 1];
    let clusters = Clusters::above(series, border);
    let peaks = clusters.peaks.len();
    if peaks == 0 || clusters.exceedances < MIN_PEAKS {
        // Fewer values above the tenth's border than the tenth has: the border value itself
        // repeats.
        let share = top.iter().filter(|&&v| v == border).count() as f64 / top.len() as f64;
        return Refusal::Discretised { value_ns: border, share, peaks: top.len() as u64 };
    }
    Refusal::TooFewPeaks {
        peaks: peaks as u64,
        needed: MIN_PEAKS as u64,
        extremal_index: clusters.index,
        factor: (MIN_PEAKS as f64 / peaks as f64).ceil(),
    }
}

/// Number and length of blocks for a series: about √n blocks, so that both grow.
fn block_plan(samples: usize) -> (usize, usize) {
    let blocks = ((samples as f64).sqrt() as usize).clamp(MIN_BLOCKS, MAX_BLOCKS);
    (blocks, (samples / blocks).max(1))
}

/// Fits block maxima.
fn block_opinion(series: &[u64], rate_hz: f64, deadline_ns: u64) -> Result<Blocks, Refusal> {
    let (blocks, length) = block_plan(series.len());
    if length < MIN_BLOCK {
        return Err(Refusal::TooFewBlocks {
            blocks: (series.len() / MIN_BLOCK) as u64,
            length: MIN_BLOCK as u64,
            needed: MIN_BLOCKS as u64,
            least_length: MIN_BLOCK as u64,
        });
    }
    let mut maxima = series::block_maxima(series, length);
    maxima.truncate(blocks);
    maxima.sort_unstable_by(f64::total_cmp);
    let value_ns = maxima.last().map_or(0, |&m| m as u64);
    let gev = Gev::fit(&maxima).ok_or(Refusal::NoVariation { value_ns })?;
    if gev.shape >= SHAPE_LIMIT {
        return Err(Refusal::TooHeavy { shape: gev.shape, limit: SHAPE_LIMIT });
    }
    let (fit_p_value, refits) = gev.fit_p_value(&maxima, ROUNDS, &mut generator(SEED));
    if fit_p_value < REFUSED_BELOW {
        return Err(Refusal::Mixture {
            peaks: maxima.len() as u64,
            threshold_ns: maxima.first().map_or(0, |&m| m as u64),
            p_value: fit_p_value,
            needed: MIN_BLOCKS as u64,
        });
    }
    let blocks_per_hour = rate_hz * 3600.0 / length as f64;
    // 1 - G^m = -expm1(m ln G), with ln G = ln(1 - survival).
    let per_hour = |g: &Gev| -(blocks_per_hour * (-g.survival(deadline_ns as f64)).ln_1p()).exp_m1();
    let spread = |f: &dyn Fn(&Gev) -> f64| {
        let mut values: Vec<f64> = refits.iter().map(f).collect();
        values.sort_unstable_by(f64::total_cmp);
        let at = |q| crate::quantile::of_sorted(&values, q).unwrap_or(f64::NAN);
        let value = f(&gev);
        Estimate { value, low: at(0.025).min(value), high: at(0.975).max(value) }
    };
    Ok(Blocks {
        blocks: maxima.len() as u64,
        length: length as u64,
        gev,
        shape: spread(&|g| g.shape),
        fit_p_value,
        per_hour: spread(&per_hour),
    })
}

impl Tail {
    /// Independent peaks per hour above the threshold, most likely.
    fn peaks_per_hour(&self, rate_hz: f64) -> f64 {
        self.peaks as f64 / self.samples as f64 * rate_hz * 3600.0
    }

    /// Probability of at least one value beyond `deadline_ns` in an hour at `rate_hz` values per
    /// second. Below the threshold the tail says only "at least that of the threshold": the upper
    /// end is 1 there.
    pub(crate) fn exceedance_per_hour(&self, deadline_ns: f64, rate_hz: f64) -> Estimate {
        let excess = (deadline_ns - self.threshold_ns as f64).max(0.0);
        let hourly = self.peaks_per_hour(rate_hz);
        let probability = |expected: f64| -(-expected).exp_m1();
        let value = probability(hourly * self.fit.survival(excess));
        let (mut low, mut high) = (value, value);
        for p in &self.region {
            let survival = (-gpd::hazard(p.theta, p.scale, excess)).exp();
            low = low.min(probability(hourly * p.rate_low * survival));
            high = high.max(probability(hourly * p.rate_high * survival));
        }
        for p in &self.exponential {
            high = high.max(probability(hourly * p.rate_high * (-excess / p.scale).exp()));
        }
        if deadline_ns < self.threshold_ns as f64 {
            high = 1.0;
        }
        Estimate { value, low, high }
    }

    /// The level exceeded once in `hours` on average, at `rate_hz` values per second; never below
    /// the threshold.
    pub(crate) fn return_level_ns(&self, hours: f64, rate_hz: f64) -> Estimate {
        let expected = self.peaks_per_hour(rate_hz) * hours.max(0.0);
        let level = |theta: f64, scale: f64, expected: f64| {
            let e = expected.max(1.0).ln() * scale;
            let excess = if (theta * e).abs() < 1e-8 { e } else { (theta * e).exp_m1() / theta };
            self.threshold_ns as f64 + excess
        };
        let value = level(self.fit.shape / self.fit.scale, self.fit.scale, expected);
        let (mut low, mut high) = (value, value);
        for p in &self.region {
            low = low.min(level(p.theta, p.scale, expected * p.rate_low));
            high = high.max(level(p.theta, p.scale, expected * p.rate_high));
        }
        for p in &self.exponential {
            high = high.max(level(0.0, p.scale, expected * p.rate_high));
        }
        Estimate { value, low, high }
    }

    fn note_caveats(&mut self) {
        let mut notes = Vec::new();
        let measured_h = self.samples as f64 / self.rate_hz / 3600.0;
        if measured_h < 1.0 {
            notes.push(format!(
                "the run was {:.1} minutes long: a statement about an hour is an extrapolation, {:.0}-fold in time",
                measured_h * 60.0,
                (1.0 / measured_h).ceil()
            ));
        }
        if self.extremal_index < 0.5 {
            notes.push(format!(
                "large values come in bursts of about {:.0}: when one deadline is missed, so are the next",
                1.0 / self.extremal_index.max(1e-3)
            ));
        }
        if self.shape.value > 0.0 {
            notes.push(
                "the fitted tail has no upper end: every latency is possible, but larger ones are ever rarer"
                    .to_owned(),
            );
        }
        match &self.blocks {
            Ok(b) if b.shape.low > self.shape.high || b.shape.high < self.shape.low => notes.push(format!(
                "block maxima disagree on the shape of the tail ({:.2} against {:.2}): use the greater probability",
                b.shape.value, self.shape.value
            )),
            Ok(_) => {}
            Err(refusal) => notes.push(format!("no second opinion from block maxima: {refusal}")),
        }
        self.caveats = notes;
    }
}

#[cfg(test)]
mod tests;
