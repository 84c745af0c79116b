//! Estimates from blocks: effects of settings from folded pairs, with stolen time and load removed
//! as covariates.

use crate::design::{Block, Config};

/// One pair of a screening.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    /// Logarithm of the first member's value less that of the second's.
    pub(crate) difference: f64,
    /// Columns with +1 where the second member sets them (a gain makes the difference greater), -1
    /// where the first does.
    pub(crate) signs: Vec<(usize, f64)>,
    /// Differences of stolen time and load.
    pub(crate) covariates: [f64; 2],
}

/// The estimate for one column: the logarithm of the value without over that with it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Effect {
    pub(crate) gain: f64,
    pub(crate) error: f64,
    pub(crate) pairs: usize,
}

impl Effect {
    /// The gain in standard errors; 0 if there is too little data.
    pub(crate) fn t(&self) -> f64 {
        if self.error > 0.0 && self.pairs >= 3 { self.gain / self.error } else { 0.0 }
    }
}

/// A logarithm needs a positive number, and no clock shows less.
pub(crate) fn log(value_us: f64) -> f64 {
    value_us.max(1e-3).ln()
}

impl Pair {
    /// `column` gives the number of a factor's way.
    pub(crate) fn of(
        configs: &[Config; 2],
        blocks: [&Block; 2],
        column: impl Fn(usize, usize) -> usize,
    ) -> Self {
        let mut signs = Vec::new();
        for (config, sign) in configs.iter().zip([-1.0, 1.0]) {
            let set = config.iter().enumerate().filter_map(|(factor, way)| Some((factor, (*way)?)));
            signs.extend(set.map(|(factor, way)| (column(factor, way), sign)));
        }
        let [first, second] = blocks;
        Self {
            difference: log(first.value_us) - log(second.value_us),
            signs,
            covariates: [first.stolen - second.stolen, first.load - second.load],
        }
    }
}

/// Columns that are fitted together at most: each takes some pairs to report from the others.
const MAX_TOGETHER: usize = 8;
/// Pairs for each of them.
const PAIRS_EACH: usize = 4;
/// Rounds of fitting each column to what the others leave; they converge within a few, the columns
/// being nearly orthogonal.
const ROUNDS: usize = 30;
/// Effects that stand out by more than this, in standard errors, are removed from the noise of the
/// others.
const STANDS_OUT: f64 = 2.5;
/// The variance of all pairs counts as much as that of so many more of a column's own.
const USUAL_WEIGHT: f64 = 3.0;
/// A covariate that hardly varies says nothing.
const MIN_VARIATION: f64 = 1e-4;

/// Estimates of all columns: the greatest effects one after the other (each is the noise of all
/// others until it is taken out), with stolen time and load beside them; the rest against what is
/// left.
pub(crate) fn estimate(pairs: &[Pair], columns: usize) -> Vec<Effect> {
    let of_column = pairs_of_columns(pairs, columns);
    let mut active: Vec<usize> = Vec::new();
    loop {
        let (gains, left) = fit(pairs, &of_column, &active);
        let effects = against_all(&of_column, &gains, &left);
        let strongest = (0..columns)
            .filter(|column| !active.contains(column))
            .max_by(|a, b| effects[*a].t().abs().total_cmp(&effects[*b].t().abs()));
        let may_grow = active.len() < MAX_TOGETHER.min(pairs.len() / PAIRS_EACH);
        match strongest.filter(|column| may_grow && effects[*column].t().abs() > STANDS_OUT) {
            Some(column) => active.push(column),
            None => return effects,
        }
    }
}

/// Estimates of all columns, each by itself: all others are noise. If settings can replace each
/// other, a column that by chance goes with them in a few pairs takes all of their effect in
/// [`estimate`]; here they show it nevertheless.
pub(crate) fn estimate_alone(pairs: &[Pair], columns: usize) -> Vec<Effect> {
    let of_column = pairs_of_columns(pairs, columns);
    let (gains, left) = fit(pairs, &of_column, &[]);
    against_all(&of_column, &gains, &left)
}

/// For each column its pairs, with the sign.
fn pairs_of_columns(pairs: &[Pair], columns: usize) -> Vec<Vec<(usize, f64)>> {
    let mut of_column: Vec<Vec<(usize, f64)>> = vec![Vec::new(); columns];
    for (at, pair) in pairs.iter().enumerate() {
        for &(column, sign) in &pair.signs {
            if let Some(entries) = of_column.get_mut(column) {
                entries.push((at, sign));
            }
        }
    }
    of_column
}

fn against_all(of_column: &[Vec<(usize, f64)>], gains: &[f64], left: &[f64]) -> Vec<Effect> {
    let usual = left.iter().map(|left| left * left).sum::<f64>() / left.len().max(1) as f64;
    of_column.iter().zip(gains).map(|(entries, gain)| against(entries, left, *gain, usual)).collect()
}

/// Least squares by turns (Gauss-Seidel on the normal equations). Returns the gains of the active
/// columns and what is left of each pair.
fn fit(pairs: &[Pair], of_column: &[Vec<(usize, f64)>], active: &[usize]) -> (Vec<f64>, Vec<f64>) {
    let mut gains = vec![0.0; of_column.len()];
    let mut slopes = [0.0; 2];
    let mut left: Vec<f64> = pairs.iter().map(|pair| pair.difference).collect();
    for _ in 0..ROUNDS {
        for (which, slope) in slopes.iter_mut().enumerate() {
            let variation: f64 = pairs.iter().map(|pair| pair.covariates[which].powi(2)).sum();
            if variation < MIN_VARIATION * pairs.len() as f64 {
                continue;
            }
            let product: f64 =
                pairs.iter().zip(&left).map(|(pair, left)| pair.covariates[which] * left).sum();
            // Neither stolen time nor load makes anybody earlier.
            let fitted = (*slope + product / variation).max(0.0);
            let step = fitted - *slope;
            *slope = fitted;
            pairs.iter().zip(&mut left).for_each(|(pair, left)| *left -= step * pair.covariates[which]);
        }
        for &column in active {
            let entries = &of_column[column];
            let sum: f64 = entries.iter().map(|&(at, sign)| sign * left[at]).sum();
            let step = sum / entries.len().max(1) as f64;
            gains[column] += step;
            entries.iter().for_each(|&(at, sign)| left[at] -= sign * step);
        }
    }
    (gains, left)
}

/// The estimate of one column beside what is already fitted of it. The variance of few pairs is
/// drawn towards that of all, `usual`: three that agree by chance are no proof.
fn against(entries: &[(usize, f64)], left: &[f64], fitted: f64, usual: f64) -> Effect {
    let count = entries.len();
    if count < 2 {
        return Effect { gain: fitted, error: 0.0, pairs: count };
    }
    let values = || entries.iter().map(|&(at, sign)| sign * left[at]);
    let mean = values().sum::<f64>() / count as f64;
    let squares = values().map(|value| (value - mean).powi(2)).sum::<f64>();
    let variance = (squares + USUAL_WEIGHT * usual) / ((count - 1) as f64 + USUAL_WEIGHT);
    Effect { gain: fitted + mean, error: (variance / count as f64).sqrt(), pairs: count }
}

/// Takes out of the values of a randomised block design what stolen time and load explain: within
/// cycles and arms (each has its own mean), so that no arm's effect is taken for that of its
/// covariates. Returns values that are still microseconds.
pub(crate) fn without_covariates(cycles: &[Vec<Block>]) -> Vec<Vec<f64>> {
    let mut logs: Vec<Vec<f64>> =
        cycles.iter().map(|cycle| cycle.iter().map(|block| log(block.value_us)).collect()).collect();
    let arms = cycles.first().map_or(0, Vec::len);
    // Each slope takes a degree of freedom of the few that means of cycles and arms leave.
    let enough = cycles.len() >= 6 && arms >= 2;
    for pick in [|block: &Block| block.stolen, |block: &Block| block.load] {
        let covariate: Vec<Vec<f64>> = cycles.iter().map(|cycle| cycle.iter().map(pick).collect()).collect();
        let (centred, of_logs) = (centre(&covariate), centre(&logs));
        let variation: f64 = centred.iter().flatten().map(|x| x * x).sum();
        if !enough || variation < MIN_VARIATION * (cycles.len() * arms) as f64 {
            continue;
        }
        let product: f64 = centred.iter().flatten().zip(of_logs.iter().flatten()).map(|(x, y)| x * y).sum();
        let slope = (product / variation).max(0.0);
        let mean = covariate.iter().flatten().sum::<f64>() / (cycles.len() * arms) as f64;
        for (cycle, covariates) in logs.iter_mut().zip(&covariate) {
            cycle.iter_mut().zip(covariates).for_each(|(log, x)| *log -= slope * (x - mean));
        }
    }
    logs.into_iter().map(|cycle| cycle.into_iter().map(f64::exp).collect()).collect()
}

/// Less the means of rows and columns.
fn centre(values: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let (rows, columns) = (values.len().max(1) as f64, values.first().map_or(0, Vec::len));
    let all = values.iter().flatten().sum::<f64>() / (rows * columns.max(1) as f64);
    let of_column: Vec<f64> =
        (0..columns).map(|column| values.iter().map(|row| row[column]).sum::<f64>() / rows).collect();
    let centred = values.iter().map(|row| {
        let of_row = row.iter().sum::<f64>() / columns.max(1) as f64;
        row.iter().zip(&of_column).map(|(value, of_column)| value - of_row - of_column + all).collect()
    });
    centred.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::{Live, Lot, folded_pairs};

    #[test]
    fn effects_that_act_together_are_distinguished() {
        let live: Live = vec![vec![0], vec![0, 1], vec![0], vec![0]];
        let column = |factor: usize, way: usize| [0, 1, 3, 4][factor] + way;
        let truth = [1.0, 0.0, 2.0, 0.0, -0.5];
        let mut lot = Lot::new(3);
        let configs = folded_pairs(&live, 40, &mut lot);
        let pairs: Vec<Pair> = configs
            .iter()
            .map(|configs| {
                let mut block = |config: &Config| {
                    let stolen = lot.below(100) as f64 / 100.0;
                    let gain: f64 = config
                        .iter()
                        .enumerate()
                        .filter_map(|(factor, way)| Some(truth[column(factor, (*way)?)]))
                        .sum();
                    let noise = lot.below(1000) as f64 / 2500.0;
                    Block {
                        value_us: 1000.0 * (3.0 * stolen - gain + noise).exp(),
                        stolen,
                        ..Block::default()
                    }
                };
                let (first, second) = (block(&configs[0]), block(&configs[1]));
                Pair::of(configs, [&first, &second], column)
            })
            .collect();
        let effects = estimate(&pairs, 5);
        for (effect, truth) in effects.iter().zip(truth) {
            assert!((effect.gain - truth).abs() < 0.2, "{effect:?} is not {truth}");
        }
        assert!(effects[2].t() > 10.0 && effects[3].t().abs() < 4.0);
    }

    #[test]
    fn stolen_time_is_taken_out_and_the_effect_stays() {
        // The second arm is twice as slow; steal comes at random and makes ten times of it.
        let cycles: Vec<Vec<Block>> = (0..20_usize)
            .map(|cycle| {
                let block = |arm: usize| {
                    let stolen: f64 = if (cycle * 7 + arm * 3).is_multiple_of(5) { 0.1 } else { 0.0 };
                    let value_us = 100.0 * (1.0 + arm as f64) * (23.0 * stolen).exp();
                    Block { value_us, stolen, ..Block::default() }
                };
                vec![block(0), block(1)]
            })
            .collect();
        let cleaned = without_covariates(&cycles);
        for cycle in &cleaned {
            assert!((cycle[1] / cycle[0] - 2.0).abs() < 0.1, "{cycle:?}");
        }
        // Too few to report are left alone.
        assert_eq!(without_covariates(&cycles[..2])[0][0].round(), cycles[0][0].value_us.round());
        assert!(without_covariates(&[]).is_empty());
    }
}
