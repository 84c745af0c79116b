//! Since when a series is at another level: change points by E-divisive with means (Matteson &
//! James, JASA 109:334, 2014), the method that MongoDB and Hunter (now Apache Otava) find
//! regressions with.
//!
//! A segment is split where the energy distance between the parts, weighed by their lengths, is
//! greatest; whether that is more than chance is reported by the same search over permutations of
//! the segment. Then both parts are searched. It asks nothing of the distribution. In the end each
//! change is held against its neighbours with the rank interval of [`crate::shift`]: one that is no
//! change of level goes.
//!
//! Values that each follow the one before have levels that come and go by themselves. If a change
//! was found, the search is made a second time: chance is then not a permutation, but a series of
//! one level whose values follow each other as they do around the found levels (an autoregressive
//! bootstrap; Bühlmann, Bernoulli 3:123, 1997).

use rand::RngExt;

use crate::random::{Pcg, generator};
use crate::shift::{self, Shift};

/// Permutations per split.
const PERMUTATIONS: usize = 499;
/// Probability with which chance makes a split.
const LEVEL: f64 = 0.01;
/// Fewest values between two changes.
const LEAST: usize = 3;
/// Most values: the search takes the square of their number.
pub const MOST: usize = 1000;
/// The most of a value that is taken to be in the next one: values that wander have no levels.
const MAX_FOLLOWING: f64 = 0.95;
/// A preferred place is taken where its distance reaches this share of the greatest.
const NEAR: f64 = 0.9;

/// A change of level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Index of the first value at the new level.
    pub at: usize,
    /// From the values since the change before to those until the next one, in the unit of the
    /// values.
    pub shift: Shift,
    /// Probability that chance makes such a split.
    pub p: f64,
}

/// The changes of level of `values`, in order. `prefer` reports places where a change is likelier
/// than beside them: the first value of a new version. None for values that are not finite, and for
/// more than [`MOST`].
pub fn changes(values: &[f64], prefer: impl Fn(usize) -> bool, seed: u64) -> Vec<Change> {
    if values.len() > MOST || values.iter().any(|v| !v.is_finite()) {
        return Vec::new();
    }
    let mut rng = generator(seed);
    let found = search(values, &prefer, None, &mut rng);
    match Following::of(values, &found) {
        Some(following) => search(values, &prefer, Some(&following), &mut rng),
        None => found,
    }
}

/// The changes that are clearer than what chance makes: of values that follow each other, or of
/// such as can change places.
fn search(
    values: &[f64],
    prefer: &impl Fn(usize) -> bool,
    following: Option<&Following>,
    rng: &mut Pcg,
) -> Vec<Change> {
    let mut found: Vec<(usize, f64)> = Vec::new();
    let mut open = vec![(0, values.len())];
    while let Some((from, to)) = open.pop() {
        let Some((at, p)) = split(&values[from..to], |index| prefer(from + index), following, rng) else {
            continue;
        };
        found.push((from + at, p));
        open.extend([(from, from + at), (from + at, to)]);
    }
    found.sort_unstable_by_key(|(at, _)| *at);
    held(values, found)
}

/// Dependence of values on their predecessors, around their levels.
struct Following {
    /// The share of a value that is in the next one.
    share: f64,
    /// The new part of each value.
    news: Vec<f64>,
}

impl Following {
    /// `None` without a change, of values that do not follow each other, and of too few to see it.
    ///
    /// Levels that are found where there are none take up what values have in common. So the
    /// changes are taken away one after the other, the least first, and what explains the values
    /// with the fewest numbers is believed (Schwarz, Ann. Stat. 6:461, 1978): fewer levels whose
    /// values follow each other, or more whose do not.
    fn of(values: &[f64], changes: &[Change]) -> Option<Self> {
        let mut places: Vec<usize> = changes.iter().map(|change| change.at).collect();
        let mut best: Option<(f64, Self)> = None;
        while !changes.is_empty() {
            let levels = around_levels(values, &places);
            let (cost, following) = Self::around(&levels, values.len() as f64);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, following));
            }
            let without = |index: &usize| {
                let mut fewer = places.clone();
                fewer.remove(*index);
                fewer
            };
            let square = |index: &usize| squares(&around_levels(values, &without(index)));
            match (0..places.len()).min_by(|a, b| square(a).total_cmp(&square(b))) {
                Some(least) => places = without(&least),
                None => break,
            }
        }
        best.map(|(_, following)| following).filter(|following| following.share > 0.0)
    }

    /// Of `count` values around their levels; and what such levels cost.
    fn around(levels: &[Vec<f64>], count: f64) -> (f64, Self) {
        let pairs = || levels.iter().flat_map(|level| level.windows(2));
        let of = pairs().count() as f64;
        let product = pairs().map(|pair| pair[0] * pair[1]).sum::<f64>() / of;
        let common = product / (squares(levels) / count);
        let seen = common.max(0.0);
        let news = |share: f64| -> Vec<f64> { pairs().map(|pair| pair[1] - share * pair[0]).collect() };
        let left = news(seen).iter().map(|new| new * new).sum::<f64>() / of;
        // Each level, each place of a change, and the share.
        let numbers = 2.0 * levels.len() as f64 - 1.0 + f64::from(u8::from(seen > 0.0));
        // A mean takes up a part of what values have in common (Kendall, Biometrika 41:403, 1954),
        // and so does a place that was sought.
        let taken = (2 * levels.len() - 1) as f64 / count;
        let share = if 3.0 * taken < 1.0 { (common + taken) / (1.0 - 3.0 * taken) } else { 0.0 };
        let share = share.clamp(0.0, MAX_FOLLOWING);
        (count * left.ln() + numbers * count.ln(), Self { share, news: news(share) })
    }

    /// As many values of one level, which nothing but chance made.
    fn draw(&self, drawn: &mut [f64], rng: &mut Pcg) {
        let mut next = 0.0;
        let mut step = || {
            next = self.share * next + self.news[rng.random_range(0..self.news.len())];
            next
        };
        // Until nothing is left of the beginning.
        for _ in 0..(3.0 / (1.0 - self.share)) as usize {
            step();
        }
        drawn.fill_with(step);
    }
}

/// Takes away, the least sure first, what is no change of level between its neighbours.
fn held(values: &[f64], mut found: Vec<(usize, f64)>) -> Vec<Change> {
    loop {
        let ends: Vec<usize> =
            std::iter::once(0).chain(found.iter().map(|(at, _)| *at)).chain([values.len()]).collect();
        let made: Vec<Change> = found
            .iter()
            .enumerate()
            .filter_map(|(index, (at, p))| {
                let (before, after) = (&values[ends[index]..*at], &values[*at..ends[index + 2]]);
                Some(Change { at: *at, shift: shift::shift(before, after, LEVEL / 2.0)?, p: *p })
            })
            .collect();
        // Too few values for an interval: the permutations alone have spoken.
        let is_none = |c: &Change| matches!((c.shift.low, c.shift.high), (Some(low), Some(high)) if low <= 0.0 && high >= 0.0);
        let weakest = made.iter().filter(|change| is_none(change)).max_by(|a, b| a.p.total_cmp(&b.p));
        match weakest {
            None => return made,
            Some(weakest) => found.retain(|(at, _)| *at != weakest.at),
        }
    }
}

/// Remainders of the values around the means of the levels that begin at `places`.
fn around_levels(values: &[f64], places: &[usize]) -> Vec<Vec<f64>> {
    let ends = std::iter::once(0).chain(places.iter().copied()).chain([values.len()]);
    let ends: Vec<usize> = ends.collect();
    let around = |end: &[usize]| {
        let level = &values[end[0]..end[1]];
        let mean = level.iter().sum::<f64>() / level.len() as f64;
        level.iter().map(|value| value - mean).collect()
    };
    ends.windows(2).map(around).collect()
}

fn squares(levels: &[Vec<f64>]) -> f64 {
    levels.iter().flatten().map(|value| value * value).sum()
}

/// Best split of a segment, and the probability that chance makes one as clear; `None` if it may be
/// chance.
fn split(
    values: &[f64],
    prefer: impl Fn(usize) -> bool,
    following: Option<&Following>,
    rng: &mut Pcg,
) -> Option<(usize, f64)> {
    let distances = distances(values);
    let greatest = |distances: &[f64]| distances.iter().copied().fold(0.0, f64::max);
    let most = greatest(&distances);
    if most <= 0.0 {
        return None;
    }
    let mut drawn = values.to_vec();
    let mut as_clear = 0;
    for _ in 0..PERMUTATIONS {
        match following {
            Some(following) => following.draw(&mut drawn, rng),
            None => (1..drawn.len()).rev().for_each(|last| drawn.swap(last, rng.random_range(0..=last))),
        }
        as_clear += usize::from(greatest(&self::distances(&drawn)) >= most);
        if as_clear as f64 > LEVEL * (PERMUTATIONS + 1) as f64 {
            return None;
        }
    }
    let p = (as_clear + 1) as f64 / (PERMUTATIONS + 1) as f64;
    let best = |pick: &dyn Fn(usize) -> bool| {
        let places = (0..distances.len()).filter(|index| pick(index + LEAST));
        places.max_by(|a, b| distances[*a].total_cmp(&distances[*b]))
    };
    let near = best(&|at| prefer(at)).filter(|index| distances[*index] >= NEAR * most);
    Some((near.or_else(|| best(&|_| true))? + LEAST, p)).filter(|(_, p)| *p <= LEVEL)
}

/// The weighed energy distance between the two parts of each split, the first after [`LEAST`]
/// values: the greatest over all ends of the right part, so that a level which comes back later
/// does not hide that it changed.
fn distances(values: &[f64]) -> Vec<f64> {
    let n = values.len();
    if n < 2 * LEAST {
        return Vec::new();
    }
    let mut found = vec![f64::NEG_INFINITY; n - 2 * LEAST + 1];
    // For each value, sums of its distances to the first 0, 1, 2, … of those before it.
    let sums: Vec<Vec<f64>> = (0..n)
        .map(|j| {
            let mut sum = 0.0;
            let to = values[..j].iter().map(|v| {
                sum += (v - values[j]).abs();
                sum
            });
            std::iter::once(0.0).chain(to).collect()
        })
        .collect();
    let mut left: f64 = (0..LEAST).map(|j| sums[j][j]).sum();
    for (at, greatest) in (LEAST..).zip(&mut found) {
        // Within the right part and between the parts, as the right one grows.
        let (mut within, mut between) = (0.0, 0.0);
        for end in at + 1..=n {
            let last = &sums[end - 1];
            within += last[end - 1] - last[at];
            between += last[at];
            if end - at >= LEAST {
                let (m, k) = (at as f64, (end - at) as f64);
                let energy =
                    2.0 * between / (m * k) - 2.0 * left / (m * (m - 1.0)) - 2.0 * within / (k * (k - 1.0));
                *greatest = greatest.max(m * k / (m + k) * energy);
            }
        }
        left += sums[at][at];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// About 0, with a deviation of 1.
    fn noise(count: usize, seed: u64) -> Vec<f64> {
        let mut rng = generator(seed);
        (0..count).map(|_| (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0).collect()
    }

    fn stepped(steps: &[(usize, f64)], seed: u64) -> Vec<f64> {
        let levels = steps.iter().flat_map(|(count, level)| std::iter::repeat_n(*level, *count));
        let levels: Vec<f64> = levels.collect();
        noise(levels.len(), seed).iter().zip(levels).map(|(v, level)| v + level).collect()
    }

    #[test]
    fn distances_are_those_of_the_definition() {
        let values = noise(17, 3);
        let found = distances(&values);
        let pairs = |a: &[f64], b: &[f64]| -> f64 {
            a.iter().flat_map(|x| b.iter().map(move |y| (x - y).abs())).sum()
        };
        for (index, distance) in found.iter().enumerate() {
            let (left, rest) = values.split_at(index + LEAST);
            let until = |end: usize| {
                let right = &rest[..end];
                let (m, k) = (left.len() as f64, end as f64);
                let energy = 2.0 / (m * k) * pairs(left, right)
                    - pairs(left, left) / (m * (m - 1.0))
                    - pairs(right, right) / (k * (k - 1.0));
                m * k / (m + k) * energy
            };
            let expected = (LEAST..=rest.len()).map(until).fold(f64::NEG_INFINITY, f64::max);
            assert!((distance - expected).abs() < 1e-9, "{index}");
        }
        assert_eq!(found.len(), 17 - 2 * LEAST + 1);
        assert!(distances(&values[..5]).is_empty());
    }

    #[test]
    fn steps_are_found_where_they_are() {
        for seed in 0..5 {
            let values = stepped(&[(20, 0.0), (15, 5.0), (25, 1.0)], seed);
            let found = changes(&values, |_| false, 1);
            let places: Vec<usize> = found.iter().map(|change| change.at).collect();
            assert!(
                places.len() == 2 && places[0].abs_diff(20) <= 1 && places[1].abs_diff(35) <= 1,
                "{seed}: {places:?}"
            );
            assert!(found[0].shift.low.unwrap() > 0.0 && found[1].shift.high.unwrap() < 0.0, "{found:?}");
        }
    }

    #[test]
    fn a_level_that_comes_back_hides_no_change() {
        let levels = [(12, 0.0), (12, 6.0), (12, 0.0), (12, 6.0)];
        for seed in 0..5 {
            let found = changes(&stepped(&levels, seed), |_| false, 1);
            let places: Vec<usize> = found.iter().map(|change| change.at).collect();
            assert!(
                places.len() == 3 && places.iter().zip([12, 24, 36]).all(|(a, b)| a.abs_diff(b) <= 1),
                "{places:?}"
            );
        }
    }

    #[test]
    fn a_preferred_place_beside_the_step_is_taken() {
        let mut values = stepped(&[(20, 0.0), (20, 4.0)], 1);
        // The last run before the change had bad luck.
        values[19] = 4.0;
        assert_eq!(changes(&values, |_| false, 1)[0].at, 19);
        assert_eq!(changes(&values, |at| at % 10 == 0, 1)[0].at, 20);
    }

    /// Each `share` of the one before.
    fn following(count: usize, share: f64, seed: u64) -> Vec<f64> {
        let mut at = 0.0;
        let follow = |new: f64| {
            at = share * at + (1.0 - share * share).sqrt() * new;
            at
        };
        noise(count + 20, seed).into_iter().map(follow).skip(20).collect()
    }

    #[test]
    fn values_that_follow_each_other_have_no_levels_of_their_own() {
        let shown = |share: f64, step: f64| {
            let changed = |seed: &u64| {
                let mut values = following(40, share, *seed);
                values[20..].iter_mut().for_each(|value| *value += step);
                !changes(&values, |_| false, 1).is_empty()
            };
            (0..200).filter(changed).count()
        };
        let none = shown(0.5, 0.0);
        assert!(none <= 20, "{none} of 200");
        // An existing change is found.
        let (apart, together) = (shown(0.0, 2.0), shown(0.5, 4.0));
        assert!(apart >= 180 && together >= 170, "{apart} and {together} of 200");
    }

    #[test]
    fn levels_that_explain_nothing_are_not_believed() {
        let [count, every, series] = [100, 10, 50];
        let shift = shift::shift(&noise(10, 1), &noise(10, 2), LEVEL).unwrap();
        let made_up = |at: usize| Change { at, shift, p: LEVEL };
        let made_up: Vec<Change> = (every..count).step_by(every).map(made_up).collect();
        let found = |seed| Following::of(&following(count, 0.5, seed), &made_up).map_or(0.0, |f| f.share);
        let apart = |seed| (found(seed) - 0.5).powi(2);
        let apart = ((0..series as u64).map(apart).sum::<f64>() / series as f64).sqrt();
        // Nine levels take up so much of what values have in common that the rest reports next to
        // nothing: 0.42.
        assert!(apart < 0.15, "{apart:.3}");
    }

    #[test]
    fn one_level_has_no_changes() {
        let found: usize = (0..100).map(|seed| changes(&noise(30, seed), |_| false, 1).len()).sum();
        assert!(found <= 4, "{found} in 100 histories");
        assert!(changes(&[3.0; 40], |_| false, 1).is_empty());
        assert!(changes(&[], |_| false, 1).is_empty());
        assert!(changes(&[1.0, f64::NAN, 2.0], |_| false, 1).is_empty());
        // More spread is no other level.
        let mut values = noise(60, 5);
        values[30..].iter_mut().for_each(|v| *v *= 6.0);
        assert!(changes(&values, |_| false, 1).is_empty());
    }
}
