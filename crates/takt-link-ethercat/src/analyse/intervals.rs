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

/// Most intervals of a group that repeats.
const MAX_GROUP: usize = 8;
/// Intervals of a group are unequal if they differ by more than so many percent of their mean, and
/// by so many times what those of one place in it differ.
const GROUP_DIFFERS_PERCENT: u64 = 15;
const GROUP_DIFFERS_TIMES: u64 = 4;
/// Of a hundred intervals so many must come again a group later.
const GROUP_REPEATS_PERCENT: usize = 80;

/// Kind of unevenness in a master's sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// A long interval and a short one in turn.
    Pairs,
    /// Several short intervals after each long one.
    Bursts,
    /// Unequal intervals that repeat in groups of three to eight.
    Groups,
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
    /// Whether lateness is judged: most intervals have one length, or the period was given.
    #[serde(skip)]
    pub(super) has_due_times: bool,
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
    // Intervals of 0.9 and 1.1 ms in turn: the median is one of the two, and not the period.
    let group = group(intervals);
    let usual_ns = group.map_or(median_ns, |(_, mean_ns)| mean_ns);
    let odd = |ns: u64| odd(ns, usual_ns);
    let short = intervals.iter().filter(|&&ns| odd(ns) == Odd::Short).count();
    let long = intervals.iter().filter(|&&ns| odd(ns) == Odd::Long).count();
    let is_early = |two: &&[u64]| odd(two[1]) == Odd::Short && odd(two[0]) == Odd::None;
    let early = intervals.windows(2).filter(is_early).count();
    let is_more = |count: usize, percent: usize| count * 100 > intervals.len() * percent;
    // In bursts most intervals are the short ones: the time is in the few others.
    let is_bursts = is_more(long, MAX_EARLY_PERCENT) && mean_ns > 2.0 * median_ns as f64;
    let has_grid = !is_more(short + long, MAX_ODD_OF_GRID_PERCENT) && !is_bursts;
    let is_odd = !has_grid || is_more(short + long, MAX_ODD_PERCENT) || is_more(early, MAX_EARLY_PERCENT);
    let uneven = is_odd || group.is_some();
    let has_period = has_grid || group.is_some();
    let period_ns = asked_ns.unwrap_or(if has_period { usual_ns } else { mean_ns as u64 });
    let pattern = match group {
        _ if is_odd => Some(pattern(intervals, mean_ns as u64, has_grid, early)),
        Some((2, _)) => Some(Pattern::Pairs),
        Some(_) => Some(Pattern::Groups),
        None => None,
    };
    let facts = SendIntervals {
        n: sorted.len(),
        min: micros(sorted[0]),
        median: micros(median_ns),
        p99: micros(sorted[(last as f64 * 0.99) as usize]),
        max: micros(sorted[last]),
        uneven,
        pattern,
        short,
        long,
        has_due_times: has_grid || asked_ns.is_some(),
    };
    Some(Judged { facts, period_ns, mean_ns, has_grid })
}

/// Number and mean of unequal intervals that repeat, where they do. The mean is that of the usual
/// group, so that a pause or a frame too many does not change it.
fn group(intervals: &[u64]) -> Option<(usize, u64)> {
    (2..=MAX_GROUP).filter(|count| intervals.len() >= 4 * count).find_map(|count| {
        let mut sums: Vec<u64> = intervals
            .windows(count)
            .map(|some| some.iter().fold(0, |sum, &ns| ns.saturating_add(sum)))
            .collect();
        let mean_ns = middle(&mut sums)? / count as u64;
        let least_ns = mean_ns.saturating_mul(GROUP_DIFFERS_PERCENT) / 100;
        let again = intervals.iter().zip(&intervals[count..]);
        let repeats = again.filter(|(a, b)| a.abs_diff(**b) <= least_ns).count();
        if repeats * 100 < (intervals.len() - count) * GROUP_REPEATS_PERCENT {
            return None;
        }
        // A pause or a frame too many shifts the places: the shares of the file before and behind
        // it are looked at one by one.
        let chunks = intervals.chunks(8 * count).filter(|some| some.len() >= 4 * count);
        let (mut unequal, mut all) = (0, 0);
        for chunk in chunks {
            all += 1;
            unequal += usize::from(is_unequal(chunk, count, least_ns));
        }
        (all > 0 && unequal * 100 >= all * GROUP_REPEATS_PERCENT).then_some((count, mean_ns))
    })
}

/// Whether the intervals of the `count` places of a group differ by more than `least_ns`, and much
/// more than those of one place.
fn is_unequal(intervals: &[u64], count: usize, least_ns: u64) -> bool {
    let mut off = Vec::new();
    let mut medians = Vec::new();
    for place in 0..count {
        let mut own: Vec<u64> = intervals.iter().skip(place).step_by(count).copied().collect();
        let Some(median_ns) = middle(&mut own) else { return false };
        off.extend(own.iter().map(|ns| ns.abs_diff(median_ns)));
        medians.push(median_ns);
    }
    off.sort_unstable();
    let spread_ns = off.get(off.len() * GROUP_REPEATS_PERCENT / 100).copied().unwrap_or(0);
    let (Some(shortest_ns), Some(longest_ns)) = (medians.iter().min(), medians.iter().max()) else {
        return false;
    };
    let apart_ns = longest_ns - shortest_ns;
    apart_ns > least_ns && apart_ns > spread_ns.saturating_mul(GROUP_DIFFERS_TIMES)
}

fn middle(values: &mut [u64]) -> Option<u64> {
    let at = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(at).1)
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
            Some(Pattern::Groups) => format!(
                "the master's sends are uneven: intervals of unequal length repeat in groups ({spread})"
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
    fn small_groups_are_uneven_and_their_mean_is_the_period() {
        for (some, pattern) in [
            (&[900, 1100][..], Pattern::Pairs),
            (&[880, 1120], Pattern::Pairs),
            (&[1100, 900], Pattern::Pairs),
            (&[900, 900, 1200], Pattern::Groups),
            (&[1000, 800, 1200], Pattern::Groups),
            (&[900, 1000, 1000, 1100], Pattern::Groups),
        ] {
            let mut intervals = repeated(some);
            for changed in [false, true] {
                if changed {
                    // A pause, and a cycle left out.
                    (intervals[300], intervals[611]) = (5_000_000, 2000);
                }
                let judged = of(&intervals);
                assert_eq!((judged.facts.uneven, judged.facts.pattern), (true, Some(pattern)), "{some:?}");
                assert_eq!((judged.period_ns, judged.has_grid), (1_000_000, true), "{some:?}");
            }
        }
        // Equal ones, with what clocks and machines add to them, are none.
        for some in [&[1000, 1000][..], &[950, 1050], &[970, 1000, 1030, 1000]] {
            assert!(!of(&repeated(some)).facts.uneven, "{some:?}");
        }
        let scattered: Vec<u64> = (0..999_u64).map(|at| 850 + at * at * 7919 % 300).collect();
        assert!(!of(&scattered).facts.uneven);
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
