//! When the runs of both sides were made, as far as a difference depends on it.

use std::ops::Range;

/// Stretches of a baseline that report anything about the next one.
pub(crate) const FEWEST_STRETCHES: usize = 3;

/// Largest distance, in standard deviations of a random order, between an order and one in which
/// the sides alternate by chance.
const CHANCE: f64 = 1.645;

/// Without runs for so long a machine is another one.
const PAUSE_SECONDS: i64 = 3600;

/// Runs in an order that are enough to see whether both sides have their share there, and most
/// parts into which the order is divided for that.
const PART: usize = 6;
const MAX_PARTS: usize = 8;

/// When the runs of both sides were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// In turns, so that the machine was the same for both.
    InTurns,
    /// One side after the other. The stretches of the baseline, by index of its runs, that are as
    /// much a state of the machine as the new runs are.
    Apart(Vec<Range<usize>>),
}

impl Made {
    /// So many runs, one after the other without a pause.
    pub fn apart(before: usize, after: usize) -> Self {
        Self::Apart(stretches(0..before, after))
    }

    /// By when runs began, RFC 3339, each side in its order.
    pub fn of(before: &[&str], after: &[&str]) -> Self {
        let seconds =
            |side: &[&str]| -> Option<Vec<i64>> { side.iter().map(|began| seconds(began)).collect() };
        let times = seconds(before).zip(seconds(after));
        // Times that cannot be read have an order all the same.
        let are_shared = times.as_ref().is_none_or(|(old, new)| are_sittings_shared(old, new));
        if are_shared && in_turns(before, after) {
            return Self::InTurns;
        }
        let Some((old, new)) = times else {
            // Nothing is known of pauses: one state.
            return Self::Apart(std::iter::once(0..before.len()).collect());
        };
        let span = new.iter().max().zip(new.iter().min()).map_or(0, |(last, first)| last - first);
        let pause = span.max(PAUSE_SECONDS);
        let mut sittings: Vec<Range<usize>> = Vec::new();
        for (index, began) in old.iter().enumerate() {
            match sittings.last_mut() {
                Some(sitting) if began - old[index - 1] <= pause => sitting.end = index + 1,
                _ => sittings.push(index..index + 1),
            }
        }
        // If the new runs followed a pause, a stretch of the baseline must follow one, too.
        let near = |began: &i64| new.iter().any(|new| (new - began).abs() <= pause);
        if old.iter().any(near) {
            sittings = sittings.into_iter().flat_map(|sitting| stretches(sitting, after.len())).collect();
        }
        Self::Apart(sittings)
    }

    /// Whether the baseline reports nothing about what the machine does between times.
    pub fn is_one_go(&self) -> bool {
        matches!(self, Self::Apart(stretches) if stretches.len() < FEWEST_STRETCHES)
    }
}

/// Stretches of at least `length` runs, as even as they can be; one where there are fewer.
fn stretches(runs: Range<usize>, length: usize) -> Vec<Range<usize>> {
    let count = (runs.len() / length.max(1)).max(1);
    let end = |index: usize| runs.start + runs.len() * index / count;
    (0..count).map(|index| end(index)..end(index + 1)).collect()
}

/// Whether runs of both sides share each of the times between two pauses: what a machine is on a
/// day is then in both.
fn are_sittings_shared(before: &[i64], after: &[i64]) -> bool {
    let all = before.iter().map(|began| (*began, false)).chain(after.iter().map(|began| (*began, true)));
    let mut all: Vec<(i64, bool)> = all.collect();
    all.sort_unstable();
    let sittings = all.chunk_by(|a, b| b.0 - a.0 <= PAUSE_SECONDS);
    are_shared(sittings.map(|sitting| counts(sitting.iter().map(|(_, is_new)| *is_new))))
}

/// Old and new ones of some runs.
fn counts(runs: impl Iterator<Item = bool>) -> [f64; 2] {
    runs.fold([0.0, 0.0], |[old, new], is_new| if is_new { [old, new + 1.0] } else { [old + 1.0, new] })
}

/// Whether parts of the time have the two sides in shares that differ no more than chance makes
/// (Pearson's chi-square; its distribution by Wilson and Hilferty).
fn are_shared(parts: impl Iterator<Item = [f64; 2]>) -> bool {
    let parts: Vec<[f64; 2]> = parts.collect();
    let [old, new] = parts.iter().fold([0.0, 0.0], |[old, new], part| [old + part[0], new + part[1]]);
    let freedom = parts.len() as f64 - 1.0;
    if freedom < 1.0 {
        return true;
    }
    let share = new / (old + new);
    let apart = |[old, new]: &[f64; 2]| {
        let expected = (old + new) * share;
        (new - expected).powi(2) / (expected * (1.0 - share))
    };
    let apart: f64 = parts.iter().map(apart).sum();
    let by = 2.0 / (9.0 * freedom);
    ((apart / freedom).cbrt() - (1.0 - by)) / by.sqrt() <= CHANCE
}

/// Whether the runs of both sides were made in turns, by when they began: the sides take turns as
/// often as in a random order at least (the runs test of Wald and Wolfowitz), no stretch of one
/// side is longer than those that a coin throws, neither side is the earlier one as a whole, and no
/// part of the time has clearly more of one side than others have. The machine was then the same
/// for both, whatever it did over the hours, and its drift is in what the runs scatter.
pub fn in_turns<T: Ord>(before: &[T], after: &[T]) -> bool {
    let all = before.iter().map(|began| (began, false)).chain(after.iter().map(|began| (began, true)));
    let mut all: Vec<(&T, bool)> = all.collect();
    all.sort();
    if before.is_empty() || after.is_empty() {
        return false;
    }
    let (old, new) = (before.len() as f64, after.len() as f64);
    let count = old + new;
    // By the share of the side, the longest stretch that a coin with such sides throws.
    let longest = |is_new: bool| {
        let share = if is_new { new } else { old } / count;
        (4.0 * count * (1.0 - share)).ln() / -share.ln()
    };
    let are_short =
        all.chunk_by(|a, b| a.1 == b.1).all(|stretch| stretch.len() as f64 <= longest(stretch[0].1));
    let (pairs, turns) = (2.0 * old * new, all.chunk_by(|a, b| a.1 == b.1).count() as f64);
    let expected = pairs / count + 1.0;
    let deviation = (pairs * (pairs - count) / (count * count * (count - 1.0).max(1.0))).max(0.0).sqrt();
    // The number of pairs in which the old run came first.
    let earlier: f64 = all
        .iter()
        .scan(0.0, |olds, (_, is_new)| {
            *olds += f64::from(u8::from(!is_new));
            Some(if *is_new { *olds } else { 0.0 })
        })
        .sum();
    let by_chance = (old * new * (count + 1.0) / 12.0).sqrt();
    let part = all.len().div_ceil((all.len() / PART).clamp(1, MAX_PARTS));
    let parts = all.chunks(part).map(|part| counts(part.iter().map(|(_, is_new)| *is_new)));
    are_short
        && are_shared(parts)
        && turns >= expected - CHANCE * deviation
        && (earlier - old * new / 2.0).abs() <= CHANCE * by_chance
}

/// Seconds since 1970 of `2026-11-27T19:24:23.000Z`.
fn seconds(utc: &str) -> Option<i64> {
    let number = |range: Range<usize>| utc.get(range)?.parse::<u32>().ok().map(i64::from);
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March, so that the odd day is their last (Hinnant, "chrono-compatible
    // low-level date algorithms").
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + number(11..13)? * 3600 + number(14..16)? * 60 + number(17..19)?)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Places of the old and of the new runs in an order of `false` and `true`.
    fn places(order: &[bool]) -> [Vec<usize>; 2] {
        [false, true].map(|side| (0..order.len()).filter(|index| order[*index] == side).collect())
    }

    #[test]
    fn blocks_are_no_turns() {
        let blocks = |count: usize, length: usize| -> Vec<bool> {
            (0..count * length).map(|index| index / length % 2 == 1).collect()
        };
        for (count, length, expected) in
            [(14, 7, false), (8, 5, false), (12, 4, false), (20, 3, false), (60, 1, true)]
        {
            let [old, new] = places(&blocks(count, length));
            assert_eq!(in_turns(&old, &new), expected, "{count} blocks of {length}");
        }
        // One side ten times in a row, in turns before and after.
        let mut order = [false, true].repeat(13);
        order.extend([false; 10]);
        order.extend([true, false].repeat(13));
        let [old, new] = places(&order);
        assert!(!in_turns(&old, &new));
        // A baseline that goes on before and after: in turns in its middle alone.
        let mut order = vec![false; 12];
        order.extend([false, true].repeat(12));
        order.extend([false; 12]);
        let [old, new] = places(&order);
        assert!(!in_turns(&old, &new));
        // Short stretches, and the old ones are most of the first half.
        let mut order = [false, false, true].repeat(15);
        order.extend([false, true, true].repeat(15));
        let [old, new] = places(&order);
        assert!(!in_turns(&old, &new));
    }

    #[test]
    fn stretches_are_states_of_the_machine() {
        let at = |day: usize, minute: usize| {
            format!("2026-11-{day:02}T{:02}:{:02}:00.000Z", minute / 60, minute % 60)
        };
        let of = |before: &[String], after: &[String]| {
            let [before, after] =
                [before, after].map(|side| side.iter().map(String::as_str).collect::<Vec<&str>>());
            Made::of(&before, &after)
        };
        let row = |day: usize, from: usize, count: usize| -> Vec<String> {
            (from..from + count).map(|m| at(day, m)).collect()
        };
        // At once after it: as long as the new runs.
        assert_eq!(of(&row(1, 0, 35), &row(1, 40, 10)), Made::Apart(vec![0..11, 11..23, 23..35]));
        // On another day, and after some hours: one state, however many runs.
        assert!(of(&row(1, 0, 300), &row(2, 0, 10)).is_one_go());
        assert!(of(&row(1, 0, 300), &row(1, 600, 10)).is_one_go());
        // Days are states.
        let days: Vec<String> = (1..=5).flat_map(|day| row(day, 0, 10)).collect();
        assert_eq!(
            of(&days, &row(6, 0, 10)),
            Made::Apart((0..5).map(|day| day * 10..day * 10 + 10).collect())
        );
        // New runs over three hours: two hours without a run are no pause.
        let hours: Vec<String> = [0, 130, 260].into_iter().flat_map(|from| row(1, from, 10)).collect();
        assert!(of(&hours, &[at(2, 0), at(2, 180)]).is_one_go());
        // A run a night, and ten new ones in a row.
        let nights: Vec<String> = (1..=20).map(|day| at(day, 0)).collect();
        assert_eq!(
            of(&nights, &row(20, 30, 10)),
            Made::Apart((0..20).map(|night| night..night + 1).collect())
        );
        assert!(of(&vec!["zzz".to_owned(); 30], &row(1, 0, 4)).is_one_go());
        assert_eq!(of(&[at(1, 0), at(1, 2)], &[at(1, 1), at(1, 3)]), Made::InTurns);
        // In turns by their order, and each day has one side alone.
        let pairs = |from: usize| -> Vec<String> {
            (from..from + 20).step_by(2).flat_map(|day| row(day, 0, 2)).collect()
        };
        let (old, new) = (pairs(1), pairs(2));
        assert!(in_turns(&old, &new));
        assert_ne!(of(&old, &new), Made::InTurns);
        // Both sides on each of the days.
        let both = |from: usize| -> Vec<String> {
            (1..=10).flat_map(|day| [at(day, from), at(day, from + 2)]).collect()
        };
        assert_eq!(of(&both(0), &both(1)), Made::InTurns);
        assert_eq!(seconds("2026-11-27T19:24:23.000Z"), Some(1_795_807_463));
    }
}
