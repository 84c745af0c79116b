//! Intervals between the sends of cycles: how they spread, and whether they have a common length.

use serde::Serialize;

use super::report::micros;

/// Part of the period by which an interval may differ from it: a quarter, beyond which a send is
/// late.
const TOLERANCE: u64 = 4;
/// Of a hundred intervals so many may differ before the sends count as uneven: a busy machine is
/// late from time to time.
const MAX_ODD_PERCENT: usize = 10;
/// As before, of intervals that are too short with nothing late before them: sends are held up by
/// many things, and nothing but the program makes one early.
const MAX_EARLY_PERCENT: usize = 1;
/// Beyond so many the sends have no common interval that one of them could be late by.
const MAX_ODD_OF_GRID_PERCENT: usize = 25;

/// Kind of unevenness in a master's sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// A long interval and a short one in turn.
    Pairs,
    /// Several short intervals after each long one.
    Bursts,
    /// Frames that leave early now and then.
    Early,
    /// No pattern of these.
    Mixed,
}

/// From the send of a cycle to the next one's, microseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SendIntervals {
    /// Number of intervals.
    pub n: usize,
    /// Least.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Exceeded by one in a hundred.
    pub p99: f64,
    /// Greatest.
    pub max: f64,
    /// Whether the sends have no common interval, or leave early again and again.
    pub uneven: bool,
    /// Kind of unevenness.
    pub pattern: Option<Pattern>,
    /// Intervals shorter than three quarters of the period, and longer than five quarters.
    pub short: usize,
    /// See `short`.
    pub long: usize,
}

/// Intervals, and the period that they are judged by.
pub(super) struct Judged {
    pub facts: SendIntervals,
    pub period_ns: u64,
    /// First send to last, divided by the sends between.
    pub mean_ns: f64,
    /// Whether a send can be late or early: most intervals have one length.
    pub has_grid: bool,
}

/// Judges `intervals`, in their order, by `asked_ns` where the period is known. `None` without any.
pub(super) fn judge(intervals: &[u64], asked_ns: Option<u64>) -> Option<Judged> {
    let mut sorted = intervals.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().checked_sub(1)?;
    let median_ns = sorted[last / 2];
    let sum: u128 = sorted.iter().map(|&ns| u128::from(ns)).sum();
    let mean_ns = sum as f64 / sorted.len() as f64;
    let odd = |ns: u64| odd(ns, median_ns);
    let short = intervals.iter().filter(|&&ns| odd(ns) == Odd::Short).count();
    let long = intervals.iter().filter(|&&ns| odd(ns) == Odd::Long).count();
    let is_early = |two: &&[u64]| odd(two[1]) == Odd::Short && odd(two[0]) == Odd::None;
    let early = intervals.windows(2).filter(is_early).count();
    let is_more = |count: usize, percent: usize| count * 100 > intervals.len() * percent;
    // In bursts most intervals are the short ones: the time is in the few others.
    let is_bursts = is_more(long, MAX_EARLY_PERCENT) && mean_ns > 2.0 * median_ns as f64;
    let has_grid = !is_more(short + long, MAX_ODD_OF_GRID_PERCENT) && !is_bursts;
    let uneven = !has_grid || is_more(short + long, MAX_ODD_PERCENT) || is_more(early, MAX_EARLY_PERCENT);
    let period_ns = asked_ns.unwrap_or(if has_grid { median_ns } else { mean_ns as u64 });
    let facts = SendIntervals {
        n: sorted.len(),
        min: micros(sorted[0]),
        median: micros(median_ns),
        p99: micros(sorted[(last as f64 * 0.99) as usize]),
        max: micros(sorted[last]),
        uneven,
        pattern: uneven.then(|| pattern(intervals, mean_ns as u64, has_grid, early)),
        short,
        long,
    };
    Some(Judged { facts, period_ns, mean_ns, has_grid })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Odd {
    None,
    Short,
    Long,
}

fn odd(ns: u64, period_ns: u64) -> Odd {
    let slack_ns = period_ns / TOLERANCE;
    match ns {
        ns if ns < period_ns.saturating_sub(slack_ns) => Odd::Short,
        ns if ns > period_ns.saturating_add(slack_ns) => Odd::Long,
        _ => Odd::None,
    }
}

/// By the lengths of runs of intervals below the mean one: all 1 in pairs, all longer in bursts.
fn pattern(intervals: &[u64], mean_ns: u64, has_grid: bool, early: usize) -> Pattern {
    if has_grid {
        return if early > 0 { Pattern::Early } else { Pattern::Mixed };
    }
    let mut runs: Vec<usize> = intervals
        .split(|&ns| ns >= mean_ns)
        .map(<[u64]>::len)
        // The first and the last may be cut off.
        .skip(1)
        .collect();
    runs.pop();
    runs.sort_unstable();
    let Some(&usual) = runs.get(runs.len() / 2) else { return Pattern::Mixed };
    let as_usual = runs.iter().filter(|&&run| run == usual).count();
    match usual {
        _ if as_usual * 10 < runs.len() * 8 => Pattern::Mixed,
        1 => Pattern::Pairs,
        0 => Pattern::Mixed,
        _ => Pattern::Bursts,
    }
}

impl SendIntervals {
    /// The unevenness in words.
    pub(super) fn in_words(&self) -> String {
        let Self { n, min, max, short, long, .. } = self;
        let spread = format!("{min:.0} to {max:.0} µs, median {:.0} µs", self.median);
        match self.pattern {
            Some(Pattern::Pairs) => format!(
                "the master does not send periodically: its frames leave in pairs, with long and short intervals alternating ({spread})"
            ),
            Some(Pattern::Bursts) => format!(
                "the master does not send periodically: its frames leave in bursts, several close together and then none ({spread})"
            ),
            Some(Pattern::Early) => format!(
                "the master's sends are uneven: {short} of {n} intervals are too short and {long} too long, as frames leave early ({spread})"
            ),
            Some(Pattern::Mixed) => format!(
                "the master's sends are uneven: {short} of {n} intervals are much shorter than the median and {long} much longer ({spread})"
            ),
            None => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(intervals: &[u64]) -> Judged {
        let ns: Vec<u64> = intervals.iter().map(|us| us * 1000).collect();
        judge(&ns, None).unwrap()
    }

    fn repeated(some: &[u64]) -> Vec<u64> {
        some.iter().copied().cycle().take(999).collect()
    }

    #[test]
    fn pairs_and_bursts_are_no_grid() {
        let pairs = of(&repeated(&[900, 100]));
        assert_eq!((pairs.facts.uneven, pairs.facts.pattern), (true, Some(Pattern::Pairs)));
        assert_eq!((pairs.facts.min, pairs.facts.median, pairs.facts.max), (100.0, 900.0, 900.0));
        assert!(!pairs.has_grid && (500_000..501_000).contains(&pairs.period_ns), "{}", pairs.period_ns);
        let bursts = of(&repeated(&[10, 10, 10, 3970]));
        assert_eq!(bursts.facts.pattern, Some(Pattern::Bursts));
        assert!(!bursts.has_grid && (990_000..1_010_000).contains(&bursts.period_ns), "{}", bursts.period_ns);
        let long_bursts = of(&[[5; 30].as_slice(), &[10_000]].concat().repeat(30));
        assert_eq!((long_bursts.facts.uneven, long_bursts.facts.pattern), (true, Some(Pattern::Bursts)));
        // A pause is none.
        let paused = of(&[[1000; 500].as_slice(), &[900_000], &[1000; 500]].concat());
        assert!(paused.has_grid && !paused.facts.uneven && paused.period_ns == 1_000_000);
        assert!(of(&repeated(&[500, 900, 300, 700, 100, 800, 200])).facts.uneven);
    }

    #[test]
    fn a_steady_master_is_even_and_rare_lateness_leaves_it_so() {
        let steady = of(&repeated(&[1000, 1010, 990]));
        assert!(!steady.facts.uneven && steady.has_grid && steady.facts.pattern.is_none());
        assert_eq!(steady.period_ns, 1_000_000);
        let mut late = repeated(&[1000]);
        (late[500], late[501]) = (1400, 600);
        let late = of(&late);
        assert_eq!((late.facts.uneven, late.facts.short, late.facts.long), (false, 1, 1));
    }

    #[test]
    fn early_sends_are_uneven_though_few() {
        let mut early = repeated(&[1000]);
        for at in (10..990).step_by(50) {
            (early[at], early[at + 1]) = (600, 1400);
        }
        let early = of(&early);
        assert_eq!((early.facts.uneven, early.facts.pattern), (true, Some(Pattern::Early)));
        assert!(early.has_grid);
        assert!(judge(&[], None).is_none());
        assert_eq!(judge(&[5, 6], Some(9)).unwrap().period_ns, 9);
    }
}
