//! Late cycles that come again and again with a period of their own: whatever holds the loop up has
//! that period, and is found by it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use takt_trace::Cause;

/// Newest times that are looked at.
const MOST: usize = 128;
/// Times that lie so many places apart may be neighbours of the period: others lie between.
const REACH: usize = 8;
/// A time belongs to the period when it is off by no more than this share of it.
const OFF: f64 = 0.03;
/// Fewest times of a period. Two give any period, and by chance the third is often near it.
const FEWEST: usize = 5;
/// Least share of the places at which there was one.
const MIN_FILLED: f64 = 0.75;
/// By chance that many agree once in a hundred searches.
const CHANCE: f64 = 0.01;
/// Late cycles that lie closer, in periods of the loop, are one disturbance.
const APART: f64 = 3.0;
/// Periods that differ by less are one.
const SAME: f64 = 0.05;
/// Most that are reported of one thread.
const MAX_REPORTED: usize = 3;

/// Late cycles that come again with a period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recurrence {
    /// From one to the next, microseconds.
    pub every_us: f64,
    /// Number of occurrences. Late cycles close to each other count as one.
    pub times: u64,
    /// Late cycles in all these times.
    pub cycles: u64,
    /// Cause of most of them; null if none is known.
    pub cause: Option<Cause>,
    /// The thread or device behind it; empty if there is none.
    pub who: String,
}

/// A late cycle whose cause is known.
#[derive(Debug, Clone)]
pub(crate) struct Judged {
    pub(crate) planned_ns: u64,
    pub(crate) cause: Cause,
    pub(crate) who: String,
    /// Its lateness.
    pub(crate) late_ns: u64,
}

/// Periods of the late cycles that were planned at `late` (nanoseconds, in order), of a loop with
/// this period; `judged` are those of which a cause is known.
pub(crate) fn find(late: &[u64], judged: &[Judged], period_ns: f64) -> Vec<Recurrence> {
    let apart_ns = (APART * period_ns) as u64;
    let mut by_cause: BTreeMap<(Cause, &str), (Vec<u64>, u64)> = BTreeMap::new();
    for one in judged {
        let (times, late_ns) = by_cause.entry((one.cause, &one.who)).or_default();
        times.push(one.planned_ns);
        *late_ns = late_ns.saturating_add(one.late_ns);
    }
    let mut found: Vec<(u64, Recurrence)> = Vec::new();
    let mut add = |times: &[u64], late_ns: u64, cause: Option<Cause>, who: &str| {
        let Some((every_ns, hits)) = period(&first_of_each(times, apart_ns), period_ns) else { return };
        let cycles = late.iter().filter(|&&at| hits.iter().any(|hit| at.abs_diff(*hit) <= apart_ns)).count();
        let (times, cycles) = (hits.len() as u64, cycles as u64);
        found.push((
            late_ns,
            Recurrence { every_us: every_ns / 1e3, times, cycles, cause, who: who.to_owned() },
        ));
    };
    for ((cause, who), (times, late_ns)) in &mut by_cause {
        times.sort_unstable();
        add(times, *late_ns, Some(*cause), who);
    }
    add(late, 0, None, "");
    // Of those with one period the cause that took most: others come with it.
    found.sort_by_key(|one| std::cmp::Reverse(one.0));
    let mut kept: Vec<Recurrence> = Vec::new();
    for (_, one) in found {
        let is_new = |kept: &Recurrence| (one.every_us / kept.every_us - 1.0).abs() > SAME;
        if kept.len() < MAX_REPORTED && kept.iter().all(is_new) {
            kept.push(one);
        }
    }
    kept
}

/// The first of each run of times that lie no further apart than this.
fn first_of_each(times: &[u64], apart_ns: u64) -> Vec<u64> {
    let mut firsts = Vec::new();
    let mut last = None;
    for &time in times {
        if last.is_none_or(|last: u64| time.saturating_sub(last) > apart_ns) {
            firsts.push(time);
        }
        last = Some(time);
    }
    firsts.drain(..firsts.len().saturating_sub(MOST));
    firsts
}

/// The period of most of `times`, nanoseconds, and those that belong to it.
fn period(times: &[u64], loop_ns: f64) -> Option<(f64, Vec<u64>)> {
    let span_ns = times.last()?.saturating_sub(*times.first()?) as f64;
    if times.len() < FEWEST || span_ns <= 0.0 {
        return None;
    }
    let mut candidates: Vec<(usize, f64)> = Vec::new();
    for (index, &from) in times.iter().enumerate() {
        let next = times.iter().skip(index + 1).take(REACH);
        candidates.extend(next.map(|&to| (index, to.saturating_sub(from) as f64)));
    }
    let least_ns = 2.0 * APART * loop_ns;
    candidates.retain(|&(_, ns)| ns >= least_ns && (FEWEST - 1) as f64 * ns <= span_ns * (1.0 + OFF));
    let surprise_needed = (candidates.len() as f64 / CHANCE).ln();
    let mut best: Option<(f64, f64, Vec<u64>)> = None;
    for &(first, ns) in &candidates {
        let hits = chain(&times[first..], ns);
        let (Some(&begin), Some(&end)) = (hits.first(), hits.last()) else { continue };
        let places = ((end.saturating_sub(begin)) as f64 / ns).round() + 1.0;
        // A part of the time is no period of the whole: all before and after counts.
        let all = (span_ns / ns).floor() + 1.0;
        if hits.len() < FEWEST || (hits.len() as f64) < MIN_FILLED * places.max(0.9 * all) {
            continue;
        }
        // Each time beyond the two that made the period is one at a place where chance would have
        // put one with this probability.
        let by_chance = (times.len() as f64 * 2.0 * OFF * ns / span_ns).min(1.0);
        let surprise = (hits.len() - 2) as f64 * -by_chance.max(1e-9).ln();
        if surprise >= surprise_needed && best.as_ref().is_none_or(|best| surprise > best.0) {
            let steps = hits.windows(2).map(|pair| ((pair[1] - pair[0]) as f64 / ns).round());
            let mean_ns = end.saturating_sub(begin) as f64 / steps.sum::<f64>();
            best = Some((surprise, mean_ns, hits));
        }
    }
    best.map(|(_, ns, hits)| (ns, hits))
}

/// The times that follow the first one with this period. It may drift, for whatever sleeps for a
/// time and not until one does; and some may be missing.
fn chain(times: &[u64], ns: f64) -> Vec<u64> {
    let Some((&first, rest)) = times.split_first() else { return Vec::new() };
    let mut hits = vec![first];
    let mut last = first;
    for &time in rest {
        let distance = time.saturating_sub(last) as f64;
        let places = (distance / ns).round();
        if places >= 1.0 && (distance - places * ns).abs() <= OFF * ns {
            hits.push(time);
            last = time;
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use takt_rt::random::SplitMix64;

    use super::*;

    const MS: u64 = 1_000_000;

    fn cycle_of(planned_ns: u64, cause: Cause, who: &str, late_ns: u64) -> Judged {
        Judged { planned_ns, cause, who: who.to_owned(), late_ns }
    }

    /// Times every `every` ms with a few per cent of jitter, and `more` at random, within 20 s.
    fn planted(seed: u64, every: u64, more: usize) -> Vec<u64> {
        let mut random = SplitMix64::new(seed);
        let mut times: Vec<u64> = (1..20_000 / every)
            .map(|at| at * every * MS + (random.unit() * 0.01 * (every * MS) as f64) as u64)
            .collect();
        times.extend((0..more).map(|_| (random.unit() * 20e9) as u64));
        times.sort_unstable();
        times
    }

    #[test]
    fn what_comes_every_second_is_found_among_others() {
        for seed in 0..20 {
            for (every, more) in [(1000, 0), (1000, 5), (250, 10), (100, 20), (3000, 0)] {
                let found = find(&planted(seed, every, more), &[], 1e6);
                let right = found.iter().any(|one| (one.every_us / (every * 1000) as f64 - 1.0).abs() < 0.03);
                assert!(right, "seed {seed}, every {every} ms, {more} others: {found:?}");
            }
        }
    }

    #[test]
    fn what_comes_at_random_has_no_period() {
        let wrong = (0..400).filter(|&seed| {
            let mut random = SplitMix64::new(seed);
            let mut times: Vec<u64> = (0..5 + seed % 60).map(|_| (random.unit() * 20e9) as u64).collect();
            times.sort_unstable();
            !find(&times, &[], 1e6).is_empty()
        });
        let wrong = wrong.count();
        assert!(wrong <= 12, "{wrong} of 400");
    }

    #[test]
    fn the_cause_is_named_and_cycles_in_a_row_are_one_time() {
        let mut late = Vec::new();
        let mut judged = Vec::new();
        for second in 1..8_u64 {
            for cycle in 0..4 {
                let at = second * 1000 * MS + cycle * 2 * MS;
                late.push(at);
                judged.push(cycle_of(at, Cause::HigherPriority, "hog", 5 * MS));
                // Its other delays were smaller then.
                if cycle == 3 {
                    judged.push(cycle_of(at, Cause::Interrupt, "local_timer", MS));
                }
            }
            // Somebody else, as chance has it.
            let at = second * 1000 * MS + (second * second * 137 % 900 + 40) * MS;
            late.push(at);
            judged.push(cycle_of(at, Cause::Softirq, "net_rx", MS));
        }
        late.sort_unstable();
        let found = find(&late, &judged, 2e6);
        assert_eq!(found.len(), 1, "{found:?}");
        let one = &found[0];
        assert_eq!((one.times, one.cycles, one.cause), (7, 28, Some(Cause::HigherPriority)));
        assert_eq!((one.who.as_str(), one.every_us.round()), ("hog", 1e6));
    }

    #[test]
    fn any_times_are_answered() {
        assert!(find(&[], &[], 0.0).is_empty());
        assert!(find(&[7; 50], &[], 0.0).is_empty());
        let _ = find(&[0, u64::MAX, u64::MAX, u64::MAX, u64::MAX, u64::MAX], &[], f64::MAX);
    }
}
