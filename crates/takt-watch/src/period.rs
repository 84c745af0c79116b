//! The period of a series of wake-ups, found from their times alone.
//!
//! The measure is the phase coherence of Rayleigh's test for periodicity (Mardia and Jupp,
//! Directional Statistics, 2000, chapter 6): the times are put on a circle of the length of a
//! candidate period, and what is periodic gathers on one side. It is taken over blocks of 16
//! periods and averaged without phase (Welch's way), because a loop that sleeps for a time, and not
//! until one, drifts. Its square is corrected for the number of times in a block, so that random
//! times come out at zero.
//!
//! Series that a person would not call periodic have no period: random times, and times on a grid
//! of which most places are empty (the kernel's tick is such a grid).

use std::collections::BTreeSet;

/// Fewest times that a period is determined from: by chance alone, fewer agree too often.
pub const FEWEST: usize = 16;
/// The newest so many are looked at.
pub const MOST: usize = 1024;
/// Shortest period, nanoseconds: 8 kHz, with room for one that is set a little faster.
const SHORTEST_NS: f64 = 1e9 / 8_000.0 * 0.8;
/// Longest period, nanoseconds: 1 Hz, with room for a relative sleep that takes longer.
const LONGEST_NS: f64 = 1e9 * 1.3;
/// Periods of one block: long enough to report neighbouring periods apart, short enough for a loop
/// that drifts.
const BLOCK: f64 = 16.0;
/// Candidates lie this close to each other, as a share: over one block the phase is then wrong by a
/// 24th of a period at most.
const STEPS_PER_E: f64 = 192.0;
/// Least squared coherence of many times. Releases spread evenly over 60 % of the period (30 % to
/// either side) have 0.26.
const MIN_COHERENCE: f64 = 0.15;
/// More is asked of few times: n times of one block, spread at random, reach x / n with a
/// probability of exp(-x).
const COHERENCE_OF_FEW: f64 = 8.0;
/// Least share of the places of the grid at which there was a release.
const MIN_FILLED: f64 = 0.5;
/// Most releases of a group that repeats.
pub const MAX_GROUP: usize = 8;
/// Of a group: distances are others when they differ by so much of the mean, and by so many times
/// what those of one place differ; one comes again when it differs by no more than that.
const OTHER: f64 = 0.15;
const OTHER_THAN_ITSELF: f64 = 4.0;
const AGAIN: f64 = 0.15;
/// Least share of the distances of which that must hold.
const MIN_OF_GROUP: f64 = 0.8;

/// A period that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Period {
    /// Its length, nanoseconds.
    pub ns: f64,
    /// Squared phase coherence: 1 for a clock, 0 for random times.
    pub coherence: f64,
    /// Share of its releases that came, 0 to 1: cycles that were dropped lower it.
    pub filled: f64,
    /// Releases come in groups that repeat; none where each is as far from the next as any other.
    pub group: Option<Group>,
}

/// Releases at unequal distances that repeat: pairs 0.1 ms and 0.9 ms apart in turn, say. The
/// period is then the mean distance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Releases of one group.
    pub count: usize,
    /// Their distances, nanoseconds: the first `count`, from the one that ends the longest pause.
    distances_ns: [f64; MAX_GROUP],
    /// The group is one cycle, in which the thread sleeps several times: what it does between
    /// differs. The period is then the group's.
    pub is_one_cycle: bool,
}

impl Group {
    /// Distances of its releases, nanoseconds; the longest is the last.
    pub fn distances_ns(&self) -> &[f64] {
        &self.distances_ns[..self.count.min(MAX_GROUP)]
    }

    /// The longest of them, nanoseconds.
    pub fn longest_ns(&self) -> f64 {
        self.distances_ns().iter().copied().fold(0.0, f64::max)
    }

    /// From one group to the next, nanoseconds.
    pub fn ns(&self) -> f64 {
        self.distances_ns().iter().sum()
    }

    /// The longest distance is a small multiple of the shortest: releases of an even grid of which
    /// some do not come look the same. By how much it is no whole number shows nothing, as jitter
    /// changes the shortest one by a good part.
    fn may_be_on_a_grid(&self) -> bool {
        let shortest = self.distances_ns().iter().copied().fold(f64::INFINITY, f64::min);
        self.longest_ns() < 3.5 * shortest
    }
}

/// The period of `times` (nanoseconds, in order); `None` where they have none. Several wake-ups in
/// one cycle (bursts), dropped cycles and a drifting phase are expected; of two periods in one
/// series the more coherent one is reported, or none. Of releases in groups that repeat it is the
/// mean distance.
pub fn find(times: &[u64]) -> Option<Period> {
    let times = &times[times.len().saturating_sub(MOST)..];
    let first = *times.first()?;
    let mut at: Vec<f64> = times.iter().map(|&ns| ns.saturating_sub(first) as f64).collect();
    at.dedup();
    if at.len() < FEWEST {
        return None;
    }
    let distances: Vec<f64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // A grid that is finer than any loop's is none: pairs may lie on one.
    if let Some(ns) = steady(&distances).filter(|&ns| in_range(ns)) {
        let Score { coherence, filled } = score(&at, ns);
        return Some(Period { ns, coherence, filled, group: None });
    }
    if let Some(period) = in_groups(times) {
        return Some(period);
    }
    let least = MIN_COHERENCE + COHERENCE_OF_FEW / at.len() as f64;
    let found: Vec<(f64, Score)> = candidates(&at, &distances)
        .into_iter()
        .filter(|&ns| in_range(ns))
        .map(|ns| (ns, score(&at, ns)))
        .filter(|(_, score)| score.coherence >= least && score.filled >= MIN_FILLED)
        .collect();
    let best = found.iter().map(|one| one.1.coherence).fold(0.0, f64::max);
    // A divisor of the period is as coherent as the period itself: the longest counts.
    let longest =
        found.iter().filter(|one| one.1.coherence >= 0.85 * best).map(|one| one.0).fold(0.0, f64::max);
    let near = found.iter().filter(|one| one.0 > longest * 0.93);
    let &(ns, score) = near.max_by(|a, b| a.1.coherence.total_cmp(&b.1.coherence))?;
    let Score { coherence, filled } = score;
    Some(Period { ns: refined(&at, ns), coherence, filled, group: None })
}

/// Actions after every wake-up of a series, in the order of its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// When the thread went to sleep again.
    pub end_ns: u64,
    /// CPU time until then.
    pub cpu_ns: u64,
}

/// As [`find`], where it is known what the thread did after each wake-up. This distinguishes two
/// cases that times alone cannot: a loop that comes to two of three releases because it is at work
/// at the third, from one that is woken at unequal distances; and cycles in pairs from one cycle
/// with two sleeps.
pub fn find_by_work(times: &[u64], done: &[Done]) -> Option<Period> {
    let mut found = find(times)?;
    let count = times.len().min(done.len()).min(MOST);
    let (times, done) = (&times[times.len() - count..], &done[done.len() - count..]);
    if found.group.is_none()
        && let Some(period) = in_groups(times)
        && let Some(group) = period.group.filter(Group::may_be_on_a_grid)
        && !is_at_work(times, done, &group)
    {
        found = period;
    }
    if let Some(group) = &mut found.group
        && differs(times, done, group)
    {
        group.is_one_cycle = true;
        found.ns = group.ns();
    }
    Some(found)
}

/// Whether the thread was at work at the end of the shortest distance, in most of the longest: it
/// could not come to a release there.
fn is_at_work(times: &[u64], done: &[Done], group: &Group) -> bool {
    let shortest = group.distances_ns().iter().copied().fold(f64::INFINITY, f64::min);
    let long = times
        .windows(2)
        .zip(done)
        .filter(|(pair, _)| pair[1].saturating_sub(pair[0]) as f64 > (shortest + group.longest_ns()) / 2.0);
    let (mut all, mut busy) = (0, 0);
    for (pair, done) in long {
        all += 1;
        busy += usize::from(done.end_ns.saturating_sub(pair[0]) as f64 > 0.9 * shortest);
    }
    2 * busy > all
}

/// Whether the wake-ups of a group do clearly different work, by their place in it.
fn differs(times: &[u64], done: &[Done], group: &Group) -> bool {
    const MIN_NS: u64 = 20_000;
    let long = (group.longest_ns() + group.ns() / group.count as f64) / 2.0;
    let mut work: Vec<Vec<u64>> = vec![Vec::new(); group.count];
    let mut place = None;
    for (index, done) in done.iter().enumerate() {
        let since = index.checked_sub(1).map(|before| times[index].saturating_sub(times[before]));
        place = match since {
            Some(since) if since as f64 > long => Some(0),
            _ => place.map(|place: usize| place + 1),
        };
        if let Some(work) = place.and_then(|place| work.get_mut(place)) {
            work.push(done.cpu_ns);
        }
    }
    let medians: Vec<u64> = work
        .iter_mut()
        .filter(|work| work.len() >= FEWEST / 4)
        .map(|work| {
            let middle = work.len() / 2;
            *work.select_nth_unstable(middle).1
        })
        .collect();
    let (least, most) = (medians.iter().min(), medians.iter().max());
    least.zip(most).is_some_and(|(&least, &most)| most > 2 * least && most - least > MIN_NS)
}

/// The period of releases in groups that repeat: the mean distance, where distances differ from it
/// and come again after the same number of others.
fn in_groups(times: &[u64]) -> Option<Period> {
    let times = &times[times.len().saturating_sub(MOST)..];
    let distances: Vec<f64> = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64).collect();
    let share = |of: usize, all: usize| all > 0 && of as f64 >= MIN_OF_GROUP * all as f64;
    (2..=MAX_GROUP).filter(|count| distances.len() + 1 >= FEWEST.max(4 * count)).find_map(|count| {
        let mut sums: Vec<f64> = distances.windows(count).map(|some| some.iter().sum()).collect();
        let mean = median(&mut sums)? / count as f64;
        let again = distances.iter().zip(&distances[count..]);
        let repeat = again.clone().filter(|(a, b)| (*a - *b).abs() <= AGAIN * mean).count();
        if !share(repeat, again.len()) || !in_range(mean) {
            return None;
        }
        // Most groups end with the longest pause, so that a hole shifts no place.
        let mut places: Vec<Vec<f64>> = vec![Vec::new(); count];
        for some in distances.windows(count) {
            let longest = some.iter().copied().fold(0.0, f64::max);
            let whole = (some.iter().sum::<f64>() / (mean * count as f64) - 1.0).abs() <= AGAIN;
            if whole && some.last().is_some_and(|&last| last >= longest) {
                places.iter_mut().zip(some).for_each(|(place, &distance)| place.push(distance));
            }
        }
        let mut group = Group { count, distances_ns: [0.0; MAX_GROUP], is_one_cycle: false };
        for (distance_ns, place) in group.distances_ns.iter_mut().zip(&mut places) {
            *distance_ns = median(place)?;
            // Of two timers whose periods are nearly multiples neighbours agree, and the whole does
            // not.
            let near =
                place.iter().filter(|&distance| (distance - *distance_ns).abs() <= AGAIN * mean).count();
            if !share(near, place.len()) {
                return None;
            }
        }
        let spread = spread(&places, group.distances_ns())?;
        let shortest = group.distances_ns().iter().copied().fold(f64::INFINITY, f64::min);
        let apart = group.longest_ns() - shortest;
        if apart < OTHER * mean || apart < OTHER_THAN_ITSELF * spread {
            return None;
        }
        let whole: Vec<f64> =
            sums.iter().copied().filter(|sum| (sum / mean / count as f64 - 1.0).abs() <= AGAIN).collect();
        let ns = whole.iter().sum::<f64>() / whole.len().max(1) as f64 / count as f64;
        let coherence = repeat as f64 / again.len() as f64;
        Some(Period { ns, coherence, filled: 1.0, group: Some(group) })
    })
}

/// Scatter of distances around the median of their place: four of five are nearer.
fn spread(places: &[Vec<f64>], medians: &[f64]) -> Option<f64> {
    let mut off: Vec<f64> = Vec::new();
    for (place, median) in places.iter().zip(medians) {
        off.extend(place.iter().map(|distance| (distance - median).abs()));
    }
    let at = (MIN_OF_GROUP * off.len().checked_sub(1)? as f64) as usize;
    Some(*off.select_nth_unstable_by(at, f64::total_cmp).1)
}

fn in_range(ns: f64) -> bool {
    (SHORTEST_NS..=LONGEST_NS).contains(&ns)
}

/// The period of a series whose distances are nearly all a whole number of it: what most loops
/// have, for little work.
pub(crate) fn steady(distances: &[f64]) -> Option<f64> {
    let mut sorted = distances.to_vec();
    let median = median(&mut sorted)?;
    let (mut whole, mut cycles, mut counted) = (0.0, 0.0, 0_usize);
    for distance in distances {
        let places = (distance / median).round();
        if places >= 1.0 && (distance / median - places).abs() <= 0.1 {
            whole += distance;
            cycles += places;
            counted += 1;
        }
    }
    let most = counted * 10 >= distances.len() * 9 && counted as f64 >= MIN_FILLED * cycles;
    most.then_some(whole / cycles)
}

fn median(values: &mut [f64]) -> Option<f64> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// Periods worth a look: about every distance that is frequent, and about the distances of times
/// that are two to six apart (of wake-ups that come in bursts).
fn candidates(at: &[f64], distances: &[f64]) -> Vec<f64> {
    // Quarter octaves: `FREQUENT` of a hundred distances must lie in one.
    const FREQUENT: usize = 8;
    let bin = |ns: f64| (ns.max(1.0).log2() * 4.0).floor() as i64;
    let mut bins: Vec<i64> = distances.iter().map(|&ns| bin(ns)).collect();
    bins.sort_unstable();
    let mut centres: Vec<f64> = bins
        .chunk_by(|a, b| a == b)
        .filter(|same| same.len() * 100 >= distances.len() * FREQUENT)
        .map(|same| ((same[0] as f64 + 0.5) / 4.0).exp2())
        .collect();
    for apart in 1..=6 {
        let mut longer: Vec<f64> =
            at.iter().zip(at.get(apart..).unwrap_or_default()).map(|(a, b)| b - a).collect();
        centres.extend(median(&mut longer));
    }
    let mut grid = BTreeSet::new();
    for centre in centres {
        let middle = (centre.max(1.0).ln() * STEPS_PER_E).round() as i64;
        // A quarter up and down.
        let reach = (STEPS_PER_E * 0.22) as i64;
        grid.extend(middle - reach..=middle + reach);
    }
    grid.into_iter().map(|step| (step as f64 / STEPS_PER_E).exp()).collect()
}

#[derive(Debug, Clone, Copy)]
struct Score {
    coherence: f64,
    filled: f64,
}

fn score(at: &[f64], ns: f64) -> Score {
    scored(at, ns, BLOCK)
}

/// Coherence and filled share of `at` for the period `ns`, in blocks of so many periods.
fn scored(at: &[f64], ns: f64, block: f64) -> Score {
    let (mut sum, mut pairs, mut places, mut taken) = (0.0, 0.0, 0.0, 0.0);
    let mut rest = at;
    while let Some(&begin) = rest.first() {
        let count = rest.partition_point(|&time| time < begin + block * ns);
        let (this, later) = rest.split_at(count);
        rest = later;
        let (mut x, mut y) = (0.0, 0.0);
        for time in this {
            let (sin, cos) = ((time - begin) / ns * std::f64::consts::TAU).sin_cos();
            x += cos;
            y += sin;
        }
        let n = count as f64;
        sum += x * x + y * y - n;
        pairs += n * (n - 1.0);
        // Places of the grid that have a time: the grid lies where this block's times gather.
        let phase = y.atan2(x) / std::f64::consts::TAU;
        let place = |time: f64| ((time - begin) / ns - phase + 0.5).floor() as i64;
        let (first, last) = (place(begin), this.last().map_or(0, |&time| place(time)));
        let mut seen = first - 1;
        for time in this {
            let at = place(*time);
            taken += f64::from(u8::from(at != seen));
            seen = at;
        }
        // Up to the next block's first time, so that a long hole counts.
        places += later.first().map_or((last - first + 1) as f64, |&next| {
            (((next - begin) / ns).round()).max((last - first + 1) as f64)
        });
    }
    Score {
        coherence: if pairs > 0.0 { (sum / pairs).max(0.0) } else { 0.0 },
        filled: if places > 0.0 { (taken / places).min(1.0) } else { 0.0 },
    }
}

/// A closer value: the most coherent one near `ns` over blocks four times as long.
fn refined(at: &[f64], ns: f64) -> f64 {
    let mut best = (0.0, ns);
    for step in -40..=40 {
        let near = ns * (1.0 + f64::from(step) / 4000.0);
        let coherence = scored(at, near, 4.0 * BLOCK).coherence;
        if coherence > best.0 {
            best = (coherence, near);
        }
    }
    best.1
}

#[cfg(test)]
mod tests;
