//! The decision, from one number of each run: logarithms, so that a difference is a share.
//!
//! Three things are in the interval of a difference. **Chance between runs**: the rank interval of
//! Hodges and Lehmann, exact for any distribution of runs that can change places. **Drift**: where
//! they cannot, because the machine was another one on another day, each stretch of the baseline as
//! long as the new runs is compared with the rest of it, a comparison of the same build with
//! itself; no difference that one of them reached is distinguished from chance. Runs of both sides
//! that were made in turns share what drifts. **All measures at once**: the error is of the whole
//! gate.

use serde::{Deserialize, Serialize};
use takt_stats::binomial;
use takt_stats::shift::{self, Spread};

/// Probability that a gate over builds that are equal says "worse", and that it says "better": in
/// 100 such gates more than one false "worse" comes with probability 0.005.
pub const TAIL: f64 = 0.001;

/// Seed of what is drawn for a power: the same runs give the same answer.
const SEED: u64 = 0x7461_6b74;

/// Most runs that are proposed.
const MOST_RUNS: usize = 2000;

/// Most stretches of a baseline that are compared with the rest of it.
const STRETCHES: usize = 40;

/// What a gate says.
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

/// What is asked.
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
    /// Why, a sentence each.
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
    /// The greatest difference between a stretch of the runs before and the others of them; `None`
    /// of few runs, and of runs that were made in turns.
    pub drift: Option<f64>,
}

/// Whether the runs of both sides were made in turns, by when they began: no stretch of one side is
/// longer than those that a fair coin throws in so many runs. The machine was then the same for
/// both, whatever it did over the hours, and its drift is in what the runs scatter.
pub fn in_turns<T: Ord>(before: &[T], after: &[T]) -> bool {
    let all = before.iter().map(|began| (began, false)).chain(after.iter().map(|began| (began, true)));
    let mut all: Vec<(&T, bool)> = all.collect();
    all.sort();
    let longest = all.chunk_by(|a, b| a.1 == b.1).map(<[_]>::len).max().unwrap_or(0);
    let most = (all.len() as f64).log2() + 1.0;
    !before.is_empty() && !after.is_empty() && longest as f64 <= most
}

/// The interval of the difference of `after` from `before`, each in the order in which the runs
/// were made.
pub fn interval(before: &[f64], after: &[f64], in_turns: bool, settings: &Settings) -> Interval {
    let drift = if in_turns { None } else { drift(before, after.len()) };
    match shift::shift(before, after, settings.tail) {
        Some(shift::Shift { estimate, low: Some(low), high: Some(high) }) => {
            let apart = drift.unwrap_or(0.0);
            let (low, high) = (low.min(estimate - apart), high.max(estimate + apart));
            let decision = decide(estimate, low, high, settings.tolerance.ln_1p());
            Interval { decision, difference: estimate, low: Some(low), high: Some(high), drift }
        }
        found => {
            let difference = found.map_or(f64::NAN, |found| found.estimate);
            Interval { decision: Decision::Inconclusive, difference, low: None, high: None, drift }
        }
    }
}

/// Judges `after` by `before`, each in the order in which the runs were made.
pub fn judge(before: &[f64], after: &[f64], in_turns: bool, settings: &Settings) -> Judged {
    let found = interval(before, after, in_turns, settings);
    let (tolerance, wanted) = (settings.tolerance.ln_1p(), settings.find.ln_1p());
    let least = tolerance.max(found.drift.unwrap_or(0.0));
    let spread = Spread::of(&[before, after]);
    let minimum_detectable = spread
        .as_ref()
        .and_then(|spread| spread.minimum_detectable(before.len(), after.len(), settings.tail, least, SEED));
    let runs_needed = spread
        .as_ref()
        .filter(|_| found.drift.is_none_or(|drift| drift < wanted))
        .and_then(|spread| spread.values_needed(wanted, settings.tail, tolerance, MOST_RUNS, SEED));
    let mut reasons = Vec::new();
    if found.low.is_none() {
        reasons.push(format!(
            "{} before and {} after are too few for any interval: {} on each side are the fewest",
            runs(before.len()),
            runs(after.len()),
            fewest(settings.tail),
        ));
    }
    if found.decision == Decision::Inconclusive {
        reasons.extend(advice(found.drift, runs_needed, [before.len(), after.len()], settings));
    }
    Judged { interval: found, minimum_detectable, runs_needed, reasons }
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

/// What would help.
fn advice(
    drift: Option<f64>,
    needed: Option<usize>,
    there: [usize; 2],
    settings: &Settings,
) -> Option<String> {
    let find = percent(settings.find);
    Some(match (drift, needed) {
        (Some(drift), _) if drift >= settings.find.ln_1p() => format!(
            "stretches of the baseline lie up to {} apart from the rest of it, so that no number of runs reports a rise of {find} from \
             chance on this machine: make old and new runs in turn, on a machine that does nothing else",
            percent(drift.exp_m1())
        ),
        (_, Some(needed)) => {
            let [before, after] = there.map(|there| needed.saturating_sub(there));
            let more = match (before, after) {
                (0, 0) => String::new(),
                _ => format!(": {before} more before, {after} more after"),
            };
            format!("{} on each side would find a rise of {find} in 19 of 20{more}", runs(needed))
        }
        (_, None) => {
            format!("{MOST_RUNS} runs on each side would not find a rise of {find}: longer runs differ less")
        }
    })
}

/// The greatest difference between `length` runs in a row and all others of the same side: a
/// comparison of one build with itself, made as the new runs are compared. `None` with fewer than
/// four.
fn drift(runs: &[f64], length: usize) -> Option<f64> {
    let length = length.clamp(1, (runs.len() / 2).max(1));
    if runs.len() < 4 {
        return None;
    }
    let apart = |start: usize| {
        let rest = || runs[..start].iter().chain(&runs[start + length..]);
        let difference = |a: f64, b: f64| if a == b { 0.0 } else { a - b };
        let stretch = &runs[start..start + length];
        // As the shift is estimated: the median of all differences.
        middle(&stretch.iter().flat_map(|a| rest().map(move |b| difference(*a, *b))).collect::<Vec<f64>>())
            .abs()
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

/// Runs that missed a deadline: more of the new ones than chance deals are worse, whatever the
/// quantile says.
pub(crate) fn judge_misses(
    decision: &mut Decision,
    [before, after]: [usize; 2],
    runs: [usize; 2],
    settings: &Settings,
    reasons: &mut Vec<String>,
) {
    let words =
        || format!("{after} of {} new runs missed their deadline, {before} of {} before", runs[1], runs[0]);
    if binomial::more_often((before, runs[0]), (after, runs[1])) <= settings.tail {
        *decision = Decision::Worse;
        reasons.push(words());
    } else if after * runs[0] > before * runs[1] {
        reasons.push(format!("{}, which can be chance", words()));
        if *decision == Decision::Better {
            *decision = Decision::Inconclusive;
        }
    }
}

/// Time that the hypervisor took is no work of the build's: where it took clearly more, what is
/// worse may be that.
pub(crate) fn excuse_stolen(
    decision: &mut Decision,
    before: &[f64],
    after: &[f64],
    reasons: &mut Vec<String>,
) {
    // 5 %: the burden is on whoever says that the machine was the same.
    let more = shift::shift(before, after, 0.05).filter(|found| found.low.is_some_and(|low| low > 0.0));
    if more.is_some() {
        *decision = Decision::Inconclusive;
        let share = |stolen: &[f64]| percent(middle(stolen));
        reasons.push(format!(
            "the hypervisor took {} of the CPUs from the new runs and {} from those before: the machine was not the same",
            share(after),
            share(before)
        ));
    }
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

    #[test]
    fn each_decision_is_reached() {
        let before = scattered(20, 10.0, 0.05);
        let judged = |after: &[f64]| judge(&before, after, false, &SETTINGS);
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
        assert!(few.reasons[0].contains("7 on each side"), "{few:?}");
    }

    #[test]
    fn a_baseline_that_drifts_reports_no_smaller_difference() {
        // The second half of the baseline was measured on a day a quarter worse.
        let mut before = scattered(20, 10.0, 0.02);
        before[10..].iter_mut().for_each(|v| *v += 0.25);
        let after = scattered(10, 10.25, 0.02);
        let judged = judge(&before, &after, false, &SETTINGS);
        let drift = judged.interval.drift.unwrap();
        assert_eq!(judged.interval.decision, Decision::Inconclusive);
        assert!(drift > 0.2 && judged.runs_needed.is_none(), "{judged:?}");
        assert!(judged.reasons[0].contains("make old and new runs in turn"), "{judged:?}");
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
        let judged = |by: f64, in_turns: bool| judge(&before, &drifting(40, by), in_turns, &SETTINGS);
        assert_eq!(judged(1.2f64.ln(), true).interval.decision, Decision::Worse);
        assert_ne!(judged(0.0, true).interval.decision, Decision::Worse);
        // The same figures, one build after the other.
        let apart = judged(1.2f64.ln(), false);
        assert_eq!(apart.interval.decision, Decision::Inconclusive, "{apart:?}");
    }

    #[test]
    fn turns_are_known_by_their_order() {
        let every = |step: usize, from: usize| (0..20).map(|i| i * step + from).collect::<Vec<usize>>();
        assert!(in_turns(&every(2, 0), &every(2, 1)));
        // Twice as many of one side.
        assert!(in_turns(&every(2, 0), &every(4, 1)[..10]));
        assert!(!in_turns(&every(1, 0), &every(1, 20)));
        // In turns, but for a day of old runs before.
        let mut older = every(2, 20);
        older.extend(0..12);
        assert!(!in_turns(&older, &every(2, 21)));
        assert!(!in_turns(&every(1, 0), &[]));
    }

    #[test]
    fn misses_and_stolen_time() {
        let mut decision = Decision::Same;
        let mut reasons = Vec::new();
        judge_misses(&mut decision, [0, 2], [20, 10], &SETTINGS, &mut reasons);
        assert_eq!((decision, reasons.len()), (Decision::Same, 1));
        judge_misses(&mut decision, [0, 7], [20, 10], &SETTINGS, &mut reasons);
        assert_eq!(decision, Decision::Worse);
        excuse_stolen(&mut decision, &[0.0; 20], &[0.0; 10], &mut reasons);
        assert_eq!(decision, Decision::Worse);
        excuse_stolen(&mut decision, &[0.0; 20], &[0.05; 10], &mut reasons);
        assert_eq!(decision, Decision::Inconclusive);
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
