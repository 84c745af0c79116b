//! One side of a comparison, cut into cells that a draw weighs instead of values.

use rand::RngExt;

use super::block;
use crate::quantile::rank;
use crate::random::Pcg;

/// Most cells of a side, over all its runs: blocks enough for any interval, and few enough to add
/// up quickly.
const CELLS: usize = 1024;
/// Levels on either side of the wanted quantile.
const LEVELS: usize = 512;
/// Within how many standard errors (of independent values) of the wanted rank levels lie; beyond
/// are only the least and the greatest value. Dependence widens the spread of a rank by the root of
/// the length that values hang together: this leaves room for hundreds.
const WINDOW: f64 = 80.0;

/// The runs of one side.
pub(super) struct Side {
    runs: Vec<Run>,
    count: u64,
    /// Values in each cell, run after run.
    counts: Vec<u32>,
    kind: Kind,
}

enum Kind {
    /// Sum of each cell.
    Mean { sums: Vec<f64> },
    /// Level by level, for each cell the number of its values up to that level.
    Quantile { q: f64, levels: Vec<f64>, value: f64, below: Vec<u32> },
}

/// A run's part of the cells.
struct Run {
    first: usize,
    cells: usize,
    /// Cells per block.
    block: usize,
}

impl Side {
    pub(super) fn new(runs: &[&[f64]], q: Option<f64>) -> Self {
        let runs: Vec<&[f64]> = runs.iter().copied().filter(|r| !r.is_empty()).collect();
        let count: usize = runs.iter().map(|r| r.len()).sum();
        // Values per cell, such that all cells of all runs keep the bound (but for very many runs).
        let limit = CELLS.saturating_sub(runs.len()).max(CELLS / 4);
        let width = count.div_ceil(limit).max(1);
        let cells = || runs.iter().flat_map(|r| r.chunks(width));
        let counts: Vec<u32> = cells().map(|c| c.len() as u32).collect();
        let kind = match q {
            None => Kind::Mean { sums: cells().map(|c| c.iter().sum()).collect() },
            Some(q) => {
                let (levels, value) = levels(&runs, count, q);
                let below = counts_below(cells(), counts.len(), &levels);
                Kind::Quantile { q, levels, value, below }
            }
        };
        let mut first = 0;
        let runs = runs
            .iter()
            .map(|values| {
                let cells = values.len().div_ceil(width);
                let length = match &kind {
                    Kind::Mean { .. } => block::length(values.iter().copied(), values.len()),
                    Kind::Quantile { value, .. } => {
                        let above = values.iter().map(|v| f64::from(u8::from(v > value)));
                        block::length(above, values.len())
                    }
                };
                let run = Run { first, cells, block: length.div_ceil(width).clamp(1, cells) };
                first += cells;
                run
            })
            .collect();
        Self { runs, count: count as u64, counts, kind }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn repetitions(&self) -> usize {
        self.runs.len()
    }

    /// Blocks that a draw consists of.
    pub(super) fn blocks_drawn(&self) -> usize {
        self.runs.iter().map(|r| r.cells.div_ceil(r.block)).sum()
    }

    /// The statistic over all values.
    pub(super) fn value(&self) -> f64 {
        match &self.kind {
            Kind::Mean { sums } => sums.iter().sum::<f64>() / self.count as f64,
            Kind::Quantile { value, .. } => *value,
        }
    }

    /// The statistic with each run's blocks drawn anew.
    pub(super) fn draw_blocks(&self, rng: &mut Pcg) -> f64 {
        let mut weights = vec![0u32; self.counts.len()];
        for run in &self.runs {
            let cells = &mut weights[run.first..run.first + run.cells];
            for _ in 0..run.cells.div_ceil(run.block) {
                let start = rng.random_range(0..run.cells);
                let end = start + run.block;
                cells[start..end.min(run.cells)].iter_mut().for_each(|w| *w += 1);
                // Round the end: neighbours of the last cell are the first ones.
                cells[..end.saturating_sub(run.cells)].iter_mut().for_each(|w| *w += 1);
            }
        }
        self.statistic(&weights)
    }

    /// The statistic with whole runs drawn anew.
    pub(super) fn draw_repetitions(&self, rng: &mut Pcg) -> f64 {
        let mut weights = vec![0u32; self.counts.len()];
        for _ in 0..self.runs.len() {
            let run = &self.runs[rng.random_range(0..self.runs.len())];
            weights[run.first..run.first + run.cells].iter_mut().for_each(|w| *w += 1);
        }
        self.statistic(&weights)
    }

    /// The statistic of the cells, each taken as often as its weight says.
    fn statistic(&self, weights: &[u32]) -> f64 {
        let add_up = |numbers: &[u32]| -> u64 {
            weights.iter().zip(numbers).map(|(&w, &n)| u64::from(w) * u64::from(n)).sum()
        };
        let count = add_up(&self.counts);
        match &self.kind {
            Kind::Mean { sums } => {
                weights.iter().zip(sums).map(|(&w, s)| f64::from(w) * s).sum::<f64>() / count as f64
            }
            Kind::Quantile { q, levels, below, .. } => {
                let wanted = rank(*q, count);
                let cells = weights.len();
                // The least level up to which the wanted rank is reached.
                let (mut low, mut high) = (0, levels.len() - 1);
                while low < high {
                    let middle = (low + high) / 2;
                    if add_up(&below[middle * cells..][..cells]) >= wanted {
                        high = middle;
                    } else {
                        low = middle + 1;
                    }
                }
                levels[low]
            }
        }
    }
}

/// For each level a row with each cell's number of values up to it.
fn counts_below<'a>(cells: impl Iterator<Item = &'a [f64]>, count: usize, levels: &[f64]) -> Vec<u32> {
    let mut below = vec![0u32; levels.len() * count];
    let last = levels.len() - 1;
    // Most values lie outside the levels but the first and the last: two comparisons do for them.
    let (inner_first, inner_last) = (levels[1.min(last)], levels[last.saturating_sub(1)]);
    for (place, values) in cells.enumerate() {
        for v in values {
            let level = if *v > inner_last {
                last
            } else if *v <= inner_first {
                usize::from(*v > levels[0]).min(last)
            } else {
                levels.partition_point(|l| l < v)
            };
            below[level * count + place] += 1;
        }
    }
    // A value up to a level is up to all higher ones.
    for level in 1..levels.len() {
        let (lower, upper) = below.split_at_mut(level * count);
        let lower = &lower[(level - 1) * count..];
        upper[..count].iter_mut().zip(lower).for_each(|(u, l)| *u += l);
    }
    below
}

/// Measured values at ranks that spread from the `q`-quantile's in growing steps, ascending, with
/// the least and the greatest value; and that quantile.
fn levels(runs: &[&[f64]], count: usize, q: f64) -> (Vec<f64>, f64) {
    let mut values = Vec::with_capacity(count);
    runs.iter().for_each(|r| values.extend_from_slice(r));
    let centre = rank(q, count as u64) as usize - 1;
    let reach = (WINDOW * (count as f64 * q * (1.0 - q)).sqrt()) as usize + 2 * LEVELS;
    let (first, last) = (centre.saturating_sub(reach), (centre + reach).min(count - 1));
    // Cut the window out of the values, and sort only that.
    let (_, _, rest) = values.select_nth_unstable_by(first, f64::total_cmp);
    if last > first && last + 1 < count {
        rest.select_nth_unstable_by(last - first - 1, f64::total_cmp);
    }
    let least = values[..=first].iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = values[last..].iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let window = &mut values[first..=last];
    window.sort_unstable_by(f64::total_cmp);
    let at = centre - first;
    let mut ranks = vec![at];
    let steps = |limit: usize| {
        (1..=LEVELS).map(move |i| {
            // Single steps where those are finer, geometric ones beyond: the end is reached at the
            // last.
            (i as f64).max((limit as f64).powf(i as f64 / LEVELS as f64)).min(limit as f64) as usize
        })
    };
    ranks.extend(steps(at).map(|d| at - d));
    ranks.extend(steps(last - centre).map(|d| at + d));
    ranks.sort_unstable();
    let mut levels = vec![least];
    levels.extend(ranks.iter().map(|&r| window[r]));
    levels.push(greatest);
    levels.dedup();
    (levels, window[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn drawing_everything_once_gives_the_quantile(
            runs in proptest::collection::vec(proptest::collection::vec(0u32..50, 1..400), 1..4), q in 0.001f64..0.999
        ) {
            let runs: Vec<Vec<f64>> = runs.iter().map(|r| r.iter().map(|&v| f64::from(v)).collect()).collect();
            let refs: Vec<&[f64]> = runs.iter().map(Vec::as_slice).collect();
            let side = Side::new(&refs, Some(q));
            let mut sorted = runs.concat();
            sorted.sort_unstable_by(f64::total_cmp);
            let expected = crate::quantile::of_sorted(&sorted, q).unwrap();
            prop_assert_eq!(side.value(), expected);
            prop_assert_eq!(side.statistic(&vec![1; side.counts.len()]), expected);
            prop_assert_eq!(side.counts.iter().sum::<u32>() as usize, sorted.len());
        }
    }
}
