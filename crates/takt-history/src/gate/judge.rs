//! The decision, from one number of each run: logarithms, so that a difference is a share.
//!
//! Three things are in the interval of a difference. **Chance between runs**: the rank interval of
//! Hodges and Lehmann, exact for any distribution of runs that can change places. **Drift**: where
//! they cannot, because the machine was another one at another time, stretches of the baseline as
//! long as the new runs are a sample of what the machine is, and the new runs are one more of it
//! ([`Made`]). Runs of both sides that were made in turns share what drifts. **All measures at
//! once**: the error is of the whole gate.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use takt_stats::binomial;
use takt_stats::shift::{self, Spread};

use crate::gate::made::FEWEST_STRETCHES;
pub use crate::gate::made::{Made, in_turns};

/// Probability that a gate over builds that are equal says "worse", and that it says "better": in
/// 100 such gates more than one false "worse" comes with probability 0.005.
pub const TAIL: f64 = 0.001;

/// Seed of what is drawn for a power: the same runs give the same answer.
const SEED: u64 = 0x7461_6b74;

/// Most runs that are proposed.
const MAX_RUNS: usize = 2000;

/// Share of repetitions that miss the least rise that is said to be detectable.
const MISSED: f64 = 0.05;

/// Most stretches of a baseline that are compared with the rest of it.
const STRETCHES: usize = 40;

/// Decision of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Clearly less, by more than the tolerance.
    Better,
    /// The whole interval lies within the tolerance.
    Same,
    /// Clearly more, by more than the tolerance.
    Worse,
    /// Nothing of these can be distinguished from chance.
    Inconclusive,
}

impl Decision {
    /// Of several: worse where anything is, inconclusive where anything is, better where anything
    /// is, same.
    pub fn of_all(decisions: impl Iterator<Item = Self>) -> Self {
        let rank = |decision: &Self| match decision {
            Self::Worse => 3,
            Self::Inconclusive => 2,
            Self::Better => 1,
            Self::Same => 0,
        };
        decisions.max_by_key(rank).unwrap_or(Self::Inconclusive)
    }

    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Better => "BETTER",
            Self::Same => "SAME",
            Self::Worse => "WORSE",
            Self::Inconclusive => "INCONCLUSIVE",
        }
    }
}

/// Settings of the judgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Probability with which either end of the interval may miss.
    pub tail: f64,
    /// Changes within this share are none.
    pub tolerance: f64,
    /// The rise for which the number of runs is reported.
    pub find: f64,
}

/// A decision with what would decide more.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    pub interval: Interval,
    /// The least rise that would have been found in 19 of 20.
    pub minimum_detectable: Option<f64>,
    /// Runs on each side with which [`Settings::find`] is found.
    pub runs_needed: Option<usize>,
    /// The reasons, one sentence each.
    pub reasons: Vec<String>,
}

/// The difference with its interval, in logarithms, and what is decided by it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub decision: Decision,
    /// After less before.
    pub difference: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Largest shift between old and new runs by the machine alone; `None` with too few runs
    /// before, and for runs that alternate.
    pub drift: Option<f64>,
}

/// The interval of the difference of `after` from `before`, each in the order in which the runs
/// were made.
pub fn interval(before: &[f64], after: &[f64], made: &Made, settings: &Settings) -> Interval {
    let drift = drift(before, after.len(), made, settings.tail);
    let unknown =
        |difference| Interval { decision: Decision::Inconclusive, difference, low: None, high: None, drift };
    if is_nothing(before, after) {
        return unknown(f64::NAN);
    }
    match shift::shift(before, after, settings.tail) {
        Some(shift::Shift { estimate, low: Some(low), high: Some(high) }) => {
            let apart = drift.unwrap_or(0.0);
            let (low, high) = if apart.is_finite() {
                (low.min(estimate - apart), high.max(estimate + apart))
            } else {
                (f64::NEG_INFINITY, f64::INFINITY)
            };
            let decision = match (decide(estimate, low, high, settings.tolerance.ln_1p()), made) {
                (Decision::Worse | Decision::Better, made) if made.is_one_go() => Decision::Inconclusive,
                (_, Made::Apart(_)) if drift.is_none() => Decision::Inconclusive,
                (decision, _) => decision,
            };
            Interval { decision, difference: estimate, low: Some(low), high: Some(high), drift }
        }
        found => unknown(found.map_or(f64::NAN, |found| found.estimate)),
    }
}

/// Whether neither side has a figure: it lies among what never came in most runs of both, so that
/// nothing says which is worse.
fn is_nothing(before: &[f64], after: &[f64]) -> bool {
    [before, after].iter().all(|side| !middle(side).is_finite())
}

/// Judges `after` by `before`, each in the order in which the runs were made.
pub fn judge(before: &[f64], after: &[f64], made: &Made, settings: &Settings) -> Judged {
    let found = interval(before, after, made, settings);
    let (tolerance, wanted) = (settings.tolerance.ln_1p(), settings.find.ln_1p());
    let least = tolerance.max(found.drift.unwrap_or(0.0));
    let spread = Spread::of(&[before, after]);
    // In one go before, no number of runs reports a rise.
    let known = spread.as_ref().filter(|_| !made.is_one_go());
    // The next stretch may be a faster one, and hide as much of a rise.
    let hidden = match made {
        Made::InTurns => Some(0.0),
        Made::Apart(stretches) => one_more(before, stretches, MISSED),
    };
    let minimum_detectable = known.zip(hidden).and_then(|(spread, hidden)| {
        let seen = spread.minimum_detectable(before.len(), after.len(), settings.tail, least, SEED)?;
        Some(seen + hidden)
    });
    let runs_needed =
        known.zip(hidden).filter(|(_, hidden)| least + hidden < wanted).and_then(|(spread, hidden)| {
            spread.values_needed(wanted - hidden, settings.tail, least, MAX_RUNS, SEED)
        });
    let mut reasons = Vec::new();
    if is_nothing(before, after) {
        reasons.push(
            "neither side measured anything, or the figure falls among releases that never ran, so there is nothing to compare"
                .to_owned(),
        );
    } else if found.low.is_none() {
        reasons.push(format!(
            "{} before and {} after are too few for any interval: each side needs at least {}",
            runs(before.len()),
            runs(after.len()),
            fewest(settings.tail),
        ));
    }
    if made.is_one_go() {
        reasons.push(one_go(&found));
    }
    if found.decision == Decision::Inconclusive && !is_nothing(before, after) {
        let there = [before.len(), after.len()];
        let apart = found.drift.zip(hidden);
        reasons.extend(advice(apart, runs_needed, there, spread.is_some(), made, settings));
    }
    Judged { interval: found, minimum_detectable, runs_needed, reasons }
}

/// Explains what remains unknown with a baseline of one machine state.
fn one_go(found: &Interval) -> String {
    let what = match found.decision {
        Decision::Same => "the interval covers chance between runs, but not changes of the machine over time",
        _ => "changes of the machine over time are unknown, so no difference can be told apart from them",
    };
    format!(
        "the baseline was made in one go, not alternating with the new runs: {what}. Alternate old and new runs (one of each build after \
         the other), or keep a baseline over several days"
    )
}

fn decide(estimate: f64, low: f64, high: f64, tolerance: f64) -> Decision {
    if low >= -tolerance && high <= tolerance {
        Decision::Same
    } else if low > 0.0 && estimate > tolerance {
        Decision::Worse
    } else if high < 0.0 && estimate < -tolerance {
        Decision::Better
    } else {
        Decision::Inconclusive
    }
}

/// Advice. `apart` is the largest shift of new runs by the machine alone, and the largest rise that
/// it may hide.
fn advice(
    apart: Option<(f64, f64)>,
    needed: Option<usize>,
    there: [usize; 2],
    is_spread_known: bool,
    made: &Made,
    settings: &Settings,
) -> Option<String> {
    let find = percent(settings.find);
    if !is_spread_known {
        return Some(format!(
            "with so few runs, the variation between runs is unknown: make at least {} on each side",
            fewest(settings.tail)
        ));
    }
    if made.is_one_go() {
        return None;
    }
    Some(match (apart, needed) {
        (Some((drift, hidden)), _) if drift + hidden >= settings.find.ln_1p() => format!(
            "stretches of the baseline differ so much that the machine alone can move new runs by up to {}, and no number of runs would \
             reveal a rise of {find}: alternate old and new runs, on a machine that does nothing else",
            percent(drift.exp_m1())
        ),
        (_, Some(needed)) => {
            let [before, after] = there.map(|there| needed.saturating_sub(there));
            let more = match (before, after) {
                (0, 0) => String::new(),
                _ => format!(": {before} more before, {after} more after"),
            };
            format!("{} on each side would reveal a rise of {find} in 19 of 20 cases{more}", runs(needed))
        }
        (_, None) => {
            format!(
                "{MAX_RUNS} runs on each side would not reveal a rise of {find}: make longer runs, which differ less"
            )
        }
    })
}

/// Largest shift of new runs by the machine alone. `None` for runs that alternate, and with fewer
/// than four before.
fn drift(before: &[f64], length: usize, made: &Made, tail: f64) -> Option<f64> {
    let Made::Apart(stretches) = made else { return None };
    let seen = farthest(before, length)?;
    Some(seen.max(one_more(before, stretches, tail).unwrap_or(0.0)))
}

/// Largest distance of one more stretch from those of the baseline: each has a state of the
/// machine, and so many states show where the next one lies. `None` with too few.
fn one_more(values: &[f64], stretches: &[Range<usize>], tail: f64) -> Option<f64> {
    let figures: Vec<f64> = stretches.iter().map(|range| middle(&values[range.clone()])).collect();
    one_more_of(&figures, tail)
}

fn one_more_of(figures: &[f64], tail: f64) -> Option<f64> {
    (figures.len() >= FEWEST_STRETCHES).then(|| shift::one_more(figures, tail))?
}

/// The greatest difference between `length` runs in a row and all others of the same side: a
/// comparison of one build with itself, made as the new runs are compared. `None` with fewer than
/// four.
fn farthest(runs: &[f64], length: usize) -> Option<f64> {
    let length = length.clamp(1, (runs.len() / 2).max(1));
    if runs.len() < 4 {
        return None;
    }
    let apart = |start: usize| {
        let rest = || runs[..start].iter().chain(&runs[start + length..]);
        let difference = |a: f64, b: f64| if a == b { 0.0 } else { a - b };
        let stretch = &runs[start..start + length];
        // As the shift is estimated: the median of all differences.
        let mut all: Vec<f64> =
            stretch.iter().flat_map(|a| rest().map(move |b| difference(*a, *b))).collect();
        median_within(&mut all).abs()
    };
    let step = (runs.len() - length).div_ceil(STRETCHES).max(1);
    Some((0..=runs.len() - length).step_by(step).map(apart).fold(0.0, f64::max))
}

/// The fewest runs on each side whose order says as much.
fn fewest(tail: f64) -> usize {
    // One order of (2n over n).
    let (mut orders, mut n) = (1.0, 0.0);
    while 1.0 / orders > tail {
        n += 1.0;
        orders *= (2.0 * n - 1.0) * 2.0 / n;
    }
    n as usize
}

/// Events of releases, by run: their number, and that of the releases.
pub(crate) struct Happened<'a> {
    /// "missed their deadline".
    pub what: &'a str,
    pub sides: [Vec<(u64, u64)>; 2],
}

/// Difference of the runs' numbers of releases (a share) up to which runs with a miss are compared.
const ALIKE: f64 = 0.2;

impl Happened<'_> {
    /// The runs of a side in which it happened, and all of them.
    pub(crate) fn runs(&self, side: usize) -> (usize, usize) {
        (self.sides[side].iter().filter(|(times, _)| *times > 0).count(), self.sides[side].len())
    }

    fn rates(&self, side: usize) -> Vec<f64> {
        self.sides[side].iter().map(|(times, of)| *times as f64 / (*of).max(1) as f64).collect()
    }

    /// Whether runs of both sides had as many releases in which it could happen.
    fn are_alike(&self) -> bool {
        let [before, after] = [0, 1].map(|side| {
            middle(&self.sides[side].iter().map(|(_, of)| *of as f64).collect::<Vec<f64>>()).max(1.0)
        });
        before.max(after) <= (1.0 + ALIKE) * before.min(after)
    }

    /// Whether it happened more often than chance between runs deals: in more of the runs (Fisher's
    /// exact test), or more often in each (ranks).
    fn is_more(&self, settings: &Settings) -> bool {
        let (before, after) = (self.rates(0), self.rates(1));
        let clear = shift::shift(&before, &after, settings.tail / 2.0)
            .is_some_and(|found| found.low.is_some_and(|low| low > 0.0));
        binomial::more_often(self.runs(0), self.runs(1)) <= settings.tail / 2.0
            || clear && middle(&after) > (1.0 + settings.tolerance) * middle(&before)
    }

    /// Whether it is more than the machine alone makes between times.
    fn is_beyond_drift(&self, made: &Made, settings: &Settings) -> bool {
        let Made::Apart(stretches) = made else { return true };
        // Scatters alike, whatever the rate.
        let level = |runs: &[(u64, u64)]| 2.0 * pooled(runs).sqrt().asin();
        let levels: Vec<f64> = stretches.iter().map(|range| level(&self.sides[0][range.clone()])).collect();
        let usual = levels.iter().sum::<f64>() / levels.len().max(1) as f64;
        one_more_of(&levels, settings.tail / 2.0).is_some_and(|apart| level(&self.sides[1]) - usual > apart)
    }
}

/// Share of all releases.
fn pooled(runs: &[(u64, u64)]) -> f64 {
    let (times, of) =
        runs.iter().fold((0.0, 0.0), |(times, of), run| (times + run.0 as f64, of + run.1 as f64));
    if of > 0.0 { f64::min(times / of, 1.0) } else { 0.0 }
}

/// Releases that missed a deadline, or never ran: more in the new runs than chance deals are worse,
/// whatever the quantile says.
pub(crate) fn judge_happened(
    decision: &mut Decision,
    happened: &Happened<'_>,
    made: &Made,
    settings: &Settings,
    reasons: &mut Vec<String>,
) {
    let ((before, before_runs), (after, after_runs)) = (happened.runs(0), happened.runs(1));
    let rates = [0, 1].map(|side| pooled(&happened.sides[side]));
    let what = happened.what;
    let words = format!(
        "releases {what} in {after} of {after_runs} new runs, in {before} of {before_runs} before ({} of the releases against {})",
        share(rates[1]),
        share(rates[0])
    );
    let undecided = |decision: &mut Decision| {
        if matches!(decision, Decision::Better | Decision::Same) {
            *decision = Decision::Inconclusive;
        }
    };
    if !happened.are_alike() {
        if rates[1] > rates[0] {
            undecided(decision);
            reasons.push(format!(
                "{words}: runs of such different lengths cannot be compared; make them equally long"
            ));
        }
    } else if happened.is_more(settings) {
        if happened.is_beyond_drift(made, settings) {
            *decision = Decision::Worse;
            reasons.push(words);
        } else {
            undecided(decision);
            reasons.push(format!("{words}, which may come from changes of the machine over time"));
        }
    } else if after * before_runs > before * after_runs || rates[1] > (1.0 + settings.tolerance) * rates[0] {
        reasons.push(format!("{words}, which may be chance"));
        if *decision == Decision::Better {
            *decision = Decision::Inconclusive;
        }
    }
}

/// A share that may be small: `0.005 %`.
fn share(share: f64) -> String {
    format!("{} %", takt_report::short((share * 1e6).round() / 1e4))
}

/// Stolen time that is a difference between machines, a share of the processors.
const STOLEN: f64 = 0.01;

/// Time that the hypervisor took is no work of the build's: where it took clearly more, and enough
/// for such a rise, what is worse may be that.
pub(crate) fn excuse_stolen(
    decision: &mut Decision,
    [before, after]: [&[f64]; 2],
    quantile: f64,
    rise: f64,
    reasons: &mut Vec<String>,
) {
    let more = middle(after) - middle(before);
    // 5 %: the burden is on whoever says that the machine was the same.
    let clear = shift::shift(before, after, 0.05).is_some_and(|found| found.low.is_some_and(|low| low > 0.0));
    // Taken in pieces it is in as many of the samples as lie beyond the quantile; taken evenly, all
    // take as much longer.
    let left = |stolen: &[f64]| 1.0 - middle(stolen).clamp(0.0, 0.99);
    let explains = more >= 1.0 - quantile || (left(before) / left(after)).ln() >= rise;
    if clear && more > STOLEN && explains {
        *decision = Decision::Inconclusive;
        let share = |stolen: &[f64]| percent(middle(stolen));
        reasons.push(format!(
            "the hypervisor took {} of the CPU time from the new runs and {} from those before: the conditions differed",
            share(after),
            share(before)
        ));
    }
}

/// The median of values whose order is not needed any more.
fn median_within(values: &mut [f64]) -> f64 {
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    let upper = *values.select_nth_unstable_by(values.len() / 2, f64::total_cmp).1;
    let lower = *values.select_nth_unstable_by(last / 2, f64::total_cmp).1;
    if lower == upper { lower } else { (lower + upper) / 2.0 }
}

/// The median.
pub fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n => (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0,
    }
}

/// A share for people: `12.3 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", takt_report::short((share * 1000.0).round() / 10.0))
}

fn runs(n: usize) -> String {
    takt_report::count(n, "run", "runs")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings { tail: TAIL, tolerance: 0.1, find: 0.2 };

    /// Runs that scatter evenly by ±`by` around `at`, in an order without drift.
    fn scattered(count: usize, at: f64, by: f64) -> Vec<f64> {
        (0..count).map(|i| at + by * (2.0 * ((i * 7919) % count) as f64 / (count - 1) as f64 - 1.0)).collect()
    }

    /// A baseline of so many runs, in stretches as long as the new runs.
    fn apart(before: usize, after: usize) -> Made {
        Made::apart(before, after)
    }

    #[test]
    fn each_decision_is_reached() {
        let before = scattered(20, 10.0, 0.05);
        let judged = |after: &[f64]| judge(&before, after, &Made::InTurns, &SETTINGS);
        let decision = |after: &[f64]| judged(after).interval.decision;
        assert_eq!(decision(&scattered(11, 10.0, 0.05)), Decision::Same);
        assert_eq!(decision(&scattered(11, 10.0 + 1.2f64.ln(), 0.05)), Decision::Worse);
        assert_eq!(decision(&scattered(11, 10.0 - 1.2f64.ln(), 0.05)), Decision::Better);
        // Clear, and perhaps within the tolerance.
        let slightly = judged(&scattered(11, 10.08, 0.05)).interval;
        assert_eq!(slightly.decision, Decision::Inconclusive);
        assert!(slightly.low.unwrap() > 0.0, "{slightly:?}");
        let few = judged(&[10.0, 10.1]);
        assert_eq!((few.interval.decision, few.interval.low), (Decision::Inconclusive, None));
        assert!(few.reasons[0].contains("needs at least 7"), "{few:?}");
    }

    #[test]
    fn a_baseline_that_drifts_reports_no_smaller_difference() {
        // The second half of the baseline was measured on a day a quarter worse.
        let mut before = scattered(20, 10.0, 0.02);
        before[10..].iter_mut().for_each(|v| *v += 0.25);
        let after = scattered(5, 10.25, 0.02);
        let judged = judge(&before, &after, &apart(20, 5), &SETTINGS);
        let drift = judged.interval.drift.unwrap();
        assert_eq!(judged.interval.decision, Decision::Inconclusive);
        assert!(drift > 0.2 && judged.runs_needed.is_none(), "{judged:?}");
        assert!(judged.reasons[0].contains("alternate old and new runs"), "{judged:?}");
        assert!(judged.minimum_detectable.unwrap() >= drift);
    }

    #[test]
    fn runs_in_turns_share_what_drifts() {
        // A machine that is half as fast in the second half of the time.
        let drifting = |count: usize, by: f64| -> Vec<f64> {
            let level = |i: usize| 10.0 + if 2 * i < count { 0.0 } else { 0.4 };
            scattered(count, by, 0.02).iter().enumerate().map(|(i, v)| level(i) + v).collect()
        };
        let before = drifting(40, 0.0);
        let judged = |by: f64, in_turns: bool| {
            let made = if in_turns { Made::InTurns } else { apart(40, 40) };
            judge(&before, &drifting(40, by), &made, &SETTINGS)
        };
        assert_eq!(judged(1.2f64.ln(), true).interval.decision, Decision::Worse);
        assert_ne!(judged(0.0, true).interval.decision, Decision::Worse);
        // The same figures, one build after the other.
        let apart = judged(1.2f64.ln(), false);
        assert_eq!(apart.interval.decision, Decision::Inconclusive, "{apart:?}");
    }

    #[test]
    fn a_baseline_in_one_go_reports_no_rise() {
        let before = scattered(20, 10.0, 0.05);
        let judged = |after: &[f64], made: &Made| judge(&before, after, made, &SETTINGS);
        for by in [1.2f64.ln(), -(1.2f64.ln())] {
            let found = judged(&scattered(10, 10.0 + by, 0.05), &apart(20, 10));
            assert_eq!(found.interval.decision, Decision::Inconclusive, "{found:?}");
            assert!(
                found.reasons[0].contains("in one go") && found.reasons[0].contains("alternating"),
                "{found:?}"
            );
            assert_eq!((found.minimum_detectable, found.runs_needed), (None, None));
        }
        let same = judged(&scattered(10, 10.0, 0.05), &apart(20, 10));
        assert_eq!(same.interval.decision, Decision::Same, "{same:?}");
        // Of three runs nobody knows how they drift, not even that nothing changed.
        let three = judge(&[10.0, 10.01, 10.02], &scattered(30, 10.5, 0.05), &apart(3, 30), &SETTINGS);
        assert_eq!(three.interval.decision, Decision::Inconclusive, "{three:?}");
        let alike = judge(&[10.0, 10.01, 10.02], &scattered(30, 10.01, 0.03), &apart(3, 30), &SETTINGS);
        assert!(alike.interval.high.is_some_and(|high| high < SETTINGS.tolerance.ln_1p()), "{alike:?}");
        assert_eq!(alike.interval.decision, Decision::Inconclusive, "{alike:?}");
        // A baseline in one go that moved by more than the tolerance is the same as nothing.
        let mut moved = scattered(40, 10.0, 0.01);
        moved[20..].iter_mut().for_each(|value| *value += 0.12);
        let between = judge(&moved, &scattered(30, 10.06, 0.01), &apart(40, 30), &SETTINGS);
        assert_eq!(between.interval.decision, Decision::Inconclusive, "{between:?}");
        // Many stretches that hardly differ find it.
        let long = scattered(200, 10.0, 0.02);
        let found = judge(&long, &scattered(10, 10.0 + 1.3f64.ln(), 0.02), &apart(200, 10), &SETTINGS);
        assert_eq!(found.interval.decision, Decision::Worse, "{found:?}");
    }

    #[test]
    fn what_never_came_on_both_sides_is_no_figure() {
        for made in [Made::InTurns, apart(10, 10)] {
            let found = judge(&[f64::INFINITY; 10], &[f64::INFINITY; 10], &made, &SETTINGS);
            assert_eq!(found.interval.decision, Decision::Inconclusive, "{found:?}");
            assert!(found.reasons[0].contains("nothing to compare"), "{found:?}");
            assert!(!found.interval.difference.is_finite());
        }
        let found = judge(&scattered(10, 10.0, 0.1), &[f64::INFINITY; 10], &Made::InTurns, &SETTINGS);
        assert_eq!(found.interval.decision, Decision::Worse);
    }

    #[test]
    fn runs_needed_know_of_the_drift() {
        // Stretches that differ by 2 %, so that the next one may differ by 14.
        let before: Vec<f64> =
            (0..80).map(|i| 10.0 + 0.035 * f64::from(i * 7 % 20) + 0.02 * f64::from(i / 20 % 2)).collect();
        let after: Vec<f64> = before[20..40].iter().map(|v| v + 0.02).collect();
        let needed = |made: &Made| {
            let judged = judge(&before, &after, made, &SETTINGS);
            (judged.interval.drift, judged.runs_needed)
        };
        let (turns, apart) =
            (needed(&Made::InTurns), needed(&Made::Apart(vec![0..20, 20..40, 40..60, 60..80])));
        assert_eq!(turns.0, None);
        assert!(apart.0.is_some_and(|drift| drift > SETTINGS.tolerance.ln_1p()), "{apart:?}");
        assert!(apart.1 > turns.1 && turns.1.is_some(), "{turns:?} {apart:?}");
        // A change that the next stretch may hide cannot be found.
        let hidden = one_more(&before, &[0..20, 20..40, 40..60, 60..80], MISSED).unwrap();
        let spread = Spread::of(&[&before, &after]).unwrap();
        let of = |wanted: f64| spread.values_needed(wanted, SETTINGS.tail, apart.0.unwrap(), MAX_RUNS, SEED);
        assert_eq!(apart.1, of(SETTINGS.find.ln_1p() - hidden));
        assert!(apart.1 > of(SETTINGS.find.ln_1p()), "{apart:?}");
        let one = judge(&[10.0], &[10.0], &Made::InTurns, &SETTINGS);
        assert!(one.reasons.iter().any(|reason| reason.contains("unknown")), "{one:?}");
        assert!(!one.reasons.iter().any(|reason| reason.contains("2000 runs")), "{one:?}");
    }

    #[test]
    fn what_is_detectable_is_found_beside_a_state_that_hides_some_of_it() {
        // Stretches with a state each, and a new one.
        let mut dice = takt_rt::random::SplitMix64::new(11);
        let mut normal = || {
            let mut unit = || ((dice.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
            (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos()
        };
        let (count, length) = (12, 10);
        let stretches: Vec<Range<usize>> = (0..count).map(|i| i * length..(i + 1) * length).collect();
        let made = Made::Apart(stretches);
        let mut found = 0;
        for _ in 0..100 {
            let mut stretch = || -> Vec<f64> {
                let state = 10.0 + 0.05 * normal();
                (0..length).map(|_| state + 0.03 * normal()).collect()
            };
            let before: Vec<f64> = (0..count).flat_map(|_| stretch()).collect();
            let same = stretch();
            let least = judge(&before, &same, &made, &SETTINGS).minimum_detectable.unwrap();
            let risen: Vec<f64> = stretch().iter().map(|v| v + least).collect();
            found += usize::from(interval(&before, &risen, &made, &SETTINGS).decision == Decision::Worse);
        }
        assert!(found >= 92, "{found} of 100");
    }

    fn happened(before: [u64; 2], after: [u64; 2], runs: [usize; 2]) -> Happened<'static> {
        let side = |[times, of]: [u64; 2], runs: usize| vec![(times, of); runs];
        Happened { what: "missed", sides: [side(before, runs[0]), side(after, runs[1])] }
    }

    fn of_happened(happened: &Happened<'_>, made: &Made) -> (Decision, Vec<String>) {
        let (mut decision, mut reasons) = (Decision::Same, Vec::new());
        judge_happened(&mut decision, happened, made, &SETTINGS, &mut reasons);
        (decision, reasons)
    }

    #[test]
    fn misses_are_compared_by_release() {
        let some = |missed: usize| {
            let mut found = happened([0, 2000], [0, 2000], [20, 10]);
            found.sides[1][..missed].fill((1, 2000));
            found
        };
        let (decision, reasons) = of_happened(&some(2), &Made::InTurns);
        assert_eq!((decision, reasons.len()), (Decision::Same, 1));
        assert_eq!(of_happened(&some(7), &Made::InTurns).0, Decision::Worse);
        // In one go before, it may be the machine.
        assert_eq!(of_happened(&some(7), &apart(20, 10)).0, Decision::Inconclusive);
        // In every run of both, eight times as often.
        assert_eq!(of_happened(&happened([1, 2000], [8, 2000], [20, 10]), &Made::InTurns).0, Decision::Worse);
        assert_eq!(of_happened(&happened([8, 2000], [8, 1990], [20, 10]), &Made::InTurns).0, Decision::Same);
        // The same rate in runs that are sixty times as long.
        let mut longer = happened([0, 1000], [3, 60_000], [40, 30]);
        longer.sides[0][..2].fill((1, 1000));
        assert_eq!(of_happened(&longer, &Made::InTurns).0, Decision::Same);
        longer.sides[0].fill((0, 1000));
        assert_eq!(of_happened(&longer, &Made::InTurns).0, Decision::Inconclusive);
        // A tenth of all releases, and nine tenths.
        assert_eq!(
            of_happened(&happened([200, 2000], [1800, 2000], [10, 10]), &Made::InTurns).0,
            Decision::Worse
        );
        assert_eq!(
            of_happened(&happened([200, 2000], [1800, 2000], [40, 10]), &apart(40, 10)).0,
            Decision::Worse
        );
        // Days of the baseline that miss ten times as often as others.
        let mut days = happened([1, 2000], [10, 2000], [40, 10]);
        days.sides[0][10..20].fill((10, 2000));
        assert_ne!(of_happened(&days, &apart(40, 10)).0, Decision::Worse);
    }

    #[test]
    fn stolen_time_excuses_what_it_explains() {
        let excused = |before: f64, after: f64, quantile: f64, rise: f64| {
            let mut decision = Decision::Worse;
            let sides = [&[before; 20][..], &[after; 10][..]];
            excuse_stolen(&mut decision, sides, quantile, rise, &mut Vec::new());
            decision == Decision::Inconclusive
        };
        assert!(!excused(0.0, 0.0, 0.99, 0.2));
        assert!(excused(0.0, 0.05, 0.99, 0.2));
        // Clear, and next to nothing.
        assert!(!excused(0.0, 0.0002, 0.99, 3f64.ln()));
        // In more samples than lie beyond the quantile, and half a point of the CPUs.
        assert!(!excused(0.0, 0.005, 0.999, 0.2));
        // Not in a twentieth of the samples, and no rise by three.
        assert!(!excused(0.0, 0.02, 0.95, 3f64.ln()));
        assert!(excused(0.0, 0.02, 0.95, 0.01));
    }

    #[test]
    fn the_worst_of_all_decides() {
        use Decision::{Better, Inconclusive, Same, Worse};
        assert_eq!(Decision::of_all([Same, Better, Same].into_iter()), Better);
        assert_eq!(Decision::of_all([Better, Inconclusive].into_iter()), Inconclusive);
        assert_eq!(Decision::of_all([Inconclusive, Worse, Better].into_iter()), Worse);
        assert_eq!((fewest(0.005), fewest(0.001), fewest(0.05)), (5, 7, 3));
    }
}
