//! One side of a comparison, cut into cells that a draw adds up instead of values.

use rand::RngExt;

use super::block;
use crate::quantile::rank;
use crate::random::Pcg;

/// Most cells of a side, over all its runs: blocks enough for any interval, and few enough to add up quickly.
const CELLS: usize = 1024;
/// Levels on either side of the wanted quantile.
const LEVELS: usize = 512;

/// The runs of one side.
pub(super) struct Side {
    runs: Vec<Run>,
    count: u64,
    /// What is resampled: sums, or counts below levels.
    kind: Kind,
}

enum Kind {
    Mean,
    Quantile { q: f64, levels: Vec<f64>, value: f64 },
}

/// A run as running totals over its cells.
struct Run {
    cells: usize,
    /// Cells per block.
    block: usize,
    /// Values before cell i (cells + 1 entries).
    counts: Vec<u64>,
    /// Sums before cell i, for a mean.
    sums: Vec<f64>,
    /// For a quantile, level by level: values up to that level before cell i (cells + 1 entries each).
    below: Vec<u32>,
}

/// Which cells a draw takes: (run, first cell), each a block long.
type Draw = Vec<(u32, u32)>;

impl Side {
    pub(super) fn new(runs: &[&[f64]], q: Option<f64>) -> Self {
        let runs: Vec<&[f64]> = runs.iter().copied().filter(|r| !r.is_empty()).collect();
        let count: usize = runs.iter().map(|r| r.len()).sum();
        let kind = match q {
            None => Kind::Mean,
            Some(q) => {
                let (levels, value) = levels(&runs, count, q);
                Kind::Quantile { q, levels, value }
            }
        };
        // Values per cell, such that all cells of all runs keep the bound.
        let room = CELLS.saturating_sub(runs.len()).max(CELLS / 4);
        let cell = count.div_ceil(room).max(1);
        let runs = runs.iter().map(|values| Run::new(values, cell, &kind)).collect();
        Self { runs, count: count as u64, kind }
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
            Kind::Mean => {
                let sum: f64 = self.runs.iter().filter_map(|r| r.sums.last()).sum();
                sum / self.count as f64
            }
            Kind::Quantile { value, .. } => *value,
        }
    }

    /// The statistic with each run's blocks drawn anew.
    pub(super) fn draw_blocks(&self, rng: &mut Pcg) -> f64 {
        let mut draw = Draw::new();
        for (i, run) in self.runs.iter().enumerate() {
            for _ in 0..run.cells.div_ceil(run.block) {
                draw.push((i as u32, rng.random_range(0..run.cells) as u32));
            }
        }
        self.statistic(&draw, |run| run.block)
    }

    /// The statistic with whole runs drawn anew.
    pub(super) fn draw_repetitions(&self, rng: &mut Pcg) -> f64 {
        let draw: Draw = (0..self.runs.len()).map(|_| (rng.random_range(0..self.runs.len()) as u32, 0)).collect();
        self.statistic(&draw, |run| run.cells)
    }

    fn statistic(&self, draw: &Draw, length: impl Fn(&Run) -> usize) -> f64 {
        // What lies in cells first..first + length of a run, round its end, from running totals.
        fn within<T: Copy + Into<f64>>(totals: &[T], first: usize, length: usize) -> f64 {
            let cells = totals.len() - 1;
            let end = first + length.min(cells);
            let straight: f64 = totals[end.min(cells)].into() - totals[first].into();
            if end > cells { straight + totals[end - cells].into() - totals[0].into() } else { straight }
        }
        let count: f64 = draw
            .iter()
            .map(|&(run, first)| {
                let run = &self.runs[run as usize];
                let (first, length) = (first as usize, length(run).min(run.cells));
                let end = first + length;
                let straight = run.counts[end.min(run.cells)] - run.counts[first];
                let round = if end > run.cells { run.counts[end - run.cells] } else { 0 };
                (straight + round) as f64
            })
            .sum();
        match &self.kind {
            Kind::Mean => {
                let sum: f64 = draw
                    .iter()
                    .map(|&(run, first)| {
                        let run = &self.runs[run as usize];
                        within(&run.sums, first as usize, length(run))
                    })
                    .sum();
                sum / count
            }
            Kind::Quantile { q, levels, .. } => {
                let wanted = rank(*q, count as u64) as f64;
                // The least level up to which the wanted rank is reached.
                let (mut low, mut high) = (0, levels.len() - 1);
                while low < high {
                    let middle = (low + high) / 2;
                    let below: f64 = draw
                        .iter()
                        .map(|&(run, first)| {
                            let run = &self.runs[run as usize];
                            let row = middle * (run.cells + 1);
                            within(&run.below[row..=row + run.cells], first as usize, length(run))
                        })
                        .sum();
                    if below >= wanted {
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

impl Run {
    fn new(values: &[f64], cell: usize, kind: &Kind) -> Self {
        let cells = values.len().div_ceil(cell);
        let mut counts = Vec::with_capacity(cells + 1);
        counts.push(0);
        counts.extend(values.chunks(cell).scan(0, |seen, c| {
            *seen += c.len() as u64;
            Some(*seen)
        }));
        let mut run = Self { cells, block: 1, counts, sums: Vec::new(), below: Vec::new() };
        let length = match kind {
            Kind::Mean => {
                run.sums.reserve(cells + 1);
                run.sums.push(0.0);
                let mut sum = 0.0;
                for chunk in values.chunks(cell) {
                    sum += chunk.iter().sum::<f64>();
                    run.sums.push(sum);
                }
                block::length(values.iter().copied(), values.len())
            }
            Kind::Quantile { levels, value, .. } => {
                run.below = counts_below(values, cell, cells, levels);
                let above = values.iter().map(|v| f64::from(u8::from(v > value)));
                block::length(above, values.len())
            }
        };
        run.block = length.div_ceil(cell).clamp(1, cells);
        run
    }
}

/// For each level a row of cells + 1 running counts of values up to it.
fn counts_below(values: &[f64], cell: usize, cells: usize, levels: &[f64]) -> Vec<u32> {
    let width = cells + 1;
    let mut below = vec![0u32; levels.len() * width];
    for (i, chunk) in values.chunks(cell).enumerate() {
        for v in chunk {
            let level = levels.partition_point(|l| l < v);
            if level < levels.len() {
                below[level * width + i + 1] += 1;
            }
        }
    }
    // First over the levels (a value up to a level is up to all higher ones), then over the cells.
    for level in 1..levels.len() {
        let (lower, upper) = below.split_at_mut(level * width);
        let lower = &lower[(level - 1) * width..];
        upper[..width].iter_mut().zip(lower).for_each(|(u, l)| *u += l);
    }
    for row in below.chunks_exact_mut(width) {
        for i in 1..width {
            row[i] += row[i - 1];
        }
    }
    below
}

/// Measured values at ranks that spread from the `q`-quantile's in growing steps to both ends, ascending, and that
/// quantile.
fn levels(runs: &[&[f64]], count: usize, q: f64) -> (Vec<f64>, f64) {
    let mut values = Vec::with_capacity(count);
    runs.iter().for_each(|r| values.extend_from_slice(r));
    let centre = rank(q, count as u64) as usize - 1;
    let mut ranks = vec![0, centre, count - 1];
    let steps = |room: usize| {
        (1..=LEVELS).map(move |i| {
            // Linear where that is finer, geometric beyond: both reach the end at the last step.
            (i as f64).max((room as f64).powf(i as f64 / LEVELS as f64)).min(room as f64) as usize
        })
    };
    ranks.extend(steps(centre).map(|d| centre - d));
    ranks.extend(steps(count - 1 - centre).map(|d| centre + d));
    ranks.sort_unstable();
    ranks.dedup();
    select(&mut values, 0, &ranks);
    let value = values[centre];
    let mut levels: Vec<f64> = ranks.iter().map(|&r| values[r]).collect();
    levels.dedup();
    (levels, value)
}

/// Puts the values of the given ranks (ascending; counted from `offset`) into their places: a quicksort that only
/// follows the parts that hold one.
fn select(values: &mut [f64], offset: usize, ranks: &[usize]) {
    if ranks.is_empty() || values.len() < 2 {
        return;
    }
    let middle = ranks.len() / 2;
    let place = ranks[middle] - offset;
    let (below, _, above) = values.select_nth_unstable_by(place, f64::total_cmp);
    select(below, offset, &ranks[..middle]);
    select(above, offset + place + 1, &ranks[middle + 1..]);
}
