//! The search: screening and successive halving, then ablation of what is left, with placebos
//! throughout.

use serde::Serialize;
use takt_stats::paired::{self, Paired};

use crate::design::{Bench, Block, Config, Factor, Live, Lot, folded_pairs, order};
use crate::effects::{self, Effect, Pair};

/// How to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchSettings {
    /// Pairs of each stage of screening and halving. 32: an effect of twice the noise's standard
    /// deviation stands out of them.
    pub pairs: usize,
    /// Cycles of each round of ablation; a cycle measures every arm once. 16: the randomisation
    /// test can say 1 in 65,536.
    pub cycles: usize,
    /// Settings that come into ablation at most. 4: each round of it costs a block more for each.
    pub most: usize,
    /// Chance of crediting anything where nothing has an effect. 0.05.
    pub error: f64,
    /// Gains below this share of what is reached are not worth a setting. 0.05.
    pub least_gain: f64,
    /// Gains below this, microseconds, neither. 1: clocks and events are that exact.
    pub least_gain_us: f64,
    /// Blocks with more of the CPUs' time stolen are measured again, once. 0.03.
    pub most_stolen: f64,
    /// Draws all lots; the same seed on the same values gives the same answer.
    pub seed: u64,
    /// Blocks are interleaved in random order. Only tests that show why switch it off.
    pub interleave: bool,
    /// Placebos are judged. Likewise.
    pub judge_placebos: bool,
}

impl Default for SearchSettings {
    fn default() -> Self {
        Self {
            pairs: 32,
            cycles: 16,
            most: 4,
            error: 0.05,
            least_gain: 0.05,
            least_gain_us: 1.0,
            most_stolen: 0.03,
            seed: 1,
            interleave: true,
            judge_placebos: true,
        }
    }
}

/// How far a setting came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It cannot be set here.
    Unavailable,
    /// It fell out in screening or halving: its gain is an estimate beside all others.
    Screened,
    /// It came into ablation: its gain is what its removal cost.
    Ablated,
}

/// What was found of one way of one factor.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The factor.
    pub factor: usize,
    /// The way.
    pub way: usize,
    /// How far it came.
    pub stage: Stage,
    /// The gain, microseconds: positive helps.
    pub gain: Option<Paired>,
    /// Its removal hurts.
    pub kept: bool,
}

/// The answer of a search.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Found {
    /// Every way of every factor, placebos among them.
    pub judged: Vec<Judged>,
    /// What is kept.
    pub kept: Vec<(usize, usize)>,
    /// All of it together against leaving all as it was.
    pub total: Option<Paired>,
    /// Blocks as found, and with what is kept: those of the last round, interleaved.
    pub blocks: [Vec<Block>; 2],
    /// A placebo was credited to the last, although it was measured for longer: the gains are not
    /// to be believed.
    pub placebo_credited: bool,
    /// Blocks in all.
    pub measured: usize,
    /// Of these, measured again because of stolen time.
    pub remeasured: usize,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// Stages of halving at most: from sixteen settings to two.
const MOST_STAGES: usize = 4;
/// A finalist's gain, in standard errors: one of five without effect comes so far, and one of fifty
/// with two standard errors does not.
const FINALIST: f64 = 0.85;
/// A placebo further out than this in screening, in standard errors, says that something is wrong
/// with all of them.
const PLACEBO_STANDS_OUT: f64 = 4.0;
/// The first arm of ablation that lacks one thing; before it are those with all, with nothing, and
/// with what is kept and no placebo.
const FIRST_REMOVED: usize = 3;
/// A search that credits a placebo measures longer, so often.
const LONGER: usize = 2;

/// Searches, telling what it does.
///
/// # Errors
/// Those of the bench.
pub fn search<B: Bench>(
    bench: &mut B,
    factors: &[Factor],
    settings: &SearchSettings,
    tell: &mut dyn FnMut(&str),
) -> Result<Found, B::Error> {
    let mut first = 0;
    let starts: Vec<usize> = factors
        .iter()
        .map(|factor| {
            first += factor.options.len();
            first - factor.options.len()
        })
        .collect();
    let mut search = Search {
        bench,
        factors,
        settings,
        lot: Lot::new(settings.seed),
        starts,
        columns: first,
        found: Found::default(),
        tell,
    };
    let finalists = search.screen()?;
    search.ablate(finalists)?;
    Ok(search.found)
}

struct Search<'a, B: Bench> {
    bench: &'a mut B,
    factors: &'a [Factor],
    settings: &'a SearchSettings,
    lot: Lot,
    /// The first column of each factor.
    starts: Vec<usize>,
    columns: usize,
    found: Found,
    tell: &'a mut dyn FnMut(&str),
}

impl<B: Bench> Search<'_, B> {
    /// Measures groups of configurations, each group's members next to each other in random order,
    /// and those that lost too much time to the hypervisor once more: told by the stolen time
    /// alone, before anybody has looked at a latency.
    fn measure(&mut self, groups: &[Vec<Config>]) -> Result<Vec<Vec<Block>>, B::Error> {
        let members = groups.first().map_or(0, Vec::len);
        let mut blocks = self.measure_once(groups)?;
        let worst = |blocks: &[Block]| blocks.iter().map(|block| block.stolen).fold(0.0, f64::max);
        let mut again: Vec<usize> =
            (0..groups.len()).filter(|&group| worst(&blocks[group]) > self.settings.most_stolen).collect();
        again.sort_by(|a, b| worst(&blocks[*b]).total_cmp(&worst(&blocks[*a])));
        // Where time is stolen all along, measuring again would not end: the model has to do then.
        again.truncate(groups.len().div_ceil(4));
        if !again.is_empty() {
            let configs: Vec<Vec<Config>> = again.iter().map(|&group| groups[group].clone()).collect();
            let anew = self.measure_once(&configs)?;
            self.found.remeasured += again.len() * members;
            for (group, anew) in again.into_iter().zip(anew) {
                if worst(&anew) < worst(&blocks[group]) {
                    blocks[group] = anew;
                }
            }
        }
        Ok(blocks)
    }

    fn measure_once(&mut self, groups: &[Vec<Config>]) -> Result<Vec<Vec<Block>>, B::Error> {
        let members = groups.first().map_or(0, Vec::len);
        let order = order(groups.len(), members, self.settings.interleave, &mut self.lot);
        let plan: Vec<Config> = order.iter().map(|&(group, member)| groups[group][member].clone()).collect();
        let measured = self.bench.measure(&plan)?;
        self.found.measured += measured.len();
        let mut blocks = vec![vec![Block::default(); members]; groups.len()];
        for ((group, member), block) in order.into_iter().zip(measured) {
            blocks[group][member] = block;
        }
        Ok(blocks)
    }

    fn name(&self, (factor, way): (usize, usize)) -> String {
        let factor = &self.factors[factor];
        match factor.options.get(way) {
            Some(option) if !option.is_empty() => format!("{}: {option}", factor.name),
            _ => factor.name.clone(),
        }
    }

    /// Screening, then halving: all settings vary together in folded pairs, the worse half of
    /// settings and of their ways falls out.
    fn screen(&mut self) -> Result<Vec<(usize, usize)>, B::Error> {
        let mut live: Live = self.factors.iter().map(|factor| (0..factor.options.len()).collect()).collect();
        let (mut pairs, mut logs) = (Vec::new(), Vec::new());
        let mut effects = vec![Effect::default(); self.columns];
        for stage in 0..MOST_STAGES {
            let contenders = self.contenders(&live);
            if contenders.is_empty() {
                break;
            }
            let ways: usize = contenders.iter().map(|&factor| live[factor].len()).sum();
            (self.tell)(&match stage {
                0 => format!("screening {ways} ways of {} settings", contenders.len()),
                _ => format!("halving: {ways} ways of {} settings are left", contenders.len()),
            });
            self.measure_pairs(&live, self.settings.pairs, (&mut pairs, &mut logs))?;
            effects = effects::estimate(&pairs, self.columns);
            if self.settings.judge_placebos && stage == 0 && self.placebo_stands_out(&effects) {
                let note = "a placebo stood out in screening: it was measured for longer";
                (self.tell)(note);
                self.found.notes.push(note.to_owned());
                self.measure_pairs(&live, 2 * self.settings.pairs, (&mut pairs, &mut logs))?;
                effects = effects::estimate(&pairs, self.columns);
            }
            let settled = contenders.len() <= self.settings.most && ways == contenders.len();
            if settled {
                break;
            }
            self.halve(&mut live, &effects);
        }
        let usual_us = (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp();
        self.note_screened(&effects, usual_us);
        let mut finalists: Vec<(usize, usize)> = self
            .contenders(&live)
            .into_iter()
            .filter_map(|factor| Some((factor, self.best_way(&live[factor], factor, &effects)?)))
            .filter(|&(factor, way)| effects[self.starts[factor] + way].t() > FINALIST)
            .collect();
        finalists.sort_by(|a, b| {
            let t = |(factor, way): (usize, usize)| effects[self.starts[factor] + way].t();
            t(*b).total_cmp(&t(*a))
        });
        finalists.truncate(self.settings.most);
        Ok(finalists)
    }

    fn measure_pairs(
        &mut self,
        live: &Live,
        count: usize,
        (pairs, logs): (&mut Vec<Pair>, &mut Vec<f64>),
    ) -> Result<(), B::Error> {
        let configs = folded_pairs(live, count, &mut self.lot);
        let groups: Vec<Vec<Config>> = configs.iter().map(|pair| pair.to_vec()).collect();
        let blocks = self.measure(&groups)?;
        logs.extend(blocks.iter().flatten().map(|block| effects::log(block.value_us)));
        let starts = &self.starts;
        let column = |factor: usize, way: usize| starts[factor] + way;
        pairs.extend(configs.iter().zip(&blocks).filter_map(|(configs, blocks)| {
            let [first, second] = blocks.as_slice() else { return None };
            Some(Pair::of(configs, [first, second], column))
        }));
        Ok(())
    }

    /// Factors that are no placebos and have ways left.
    fn contenders(&self, live: &Live) -> Vec<usize> {
        (0..self.factors.len())
            .filter(|&factor| !self.factors[factor].placebo && !live[factor].is_empty())
            .collect()
    }

    fn best_way(&self, ways: &[usize], factor: usize, effects: &[Effect]) -> Option<usize> {
        let t = |way: usize| effects[self.starts[factor] + way].t();
        ways.iter().copied().max_by(|a, b| t(*a).total_cmp(&t(*b)))
    }

    fn placebo_stands_out(&self, effects: &[Effect]) -> bool {
        let placebos = (0..self.factors.len()).filter(|&factor| self.factors[factor].placebo);
        let mut columns = placebos
            .flat_map(|factor| self.starts[factor]..self.starts[factor] + self.factors[factor].options.len());
        columns.any(|column| effects[column].t().abs() > PLACEBO_STANDS_OUT)
    }

    /// Drops the worse half of the ways of each setting, and the worse half of the settings by
    /// their best way. Placebos stay.
    fn halve(&self, live: &mut Live, effects: &[Effect]) {
        let mut contenders = self.contenders(live);
        for &factor in &contenders {
            let t = |way: usize| effects[self.starts[factor] + way].t();
            live[factor].sort_by(|a, b| t(*b).total_cmp(&t(*a)));
            let keep = live[factor].len().div_ceil(2);
            live[factor].truncate(keep);
        }
        let best = |factor: usize| {
            let way = self.best_way(&live[factor], factor, effects);
            way.map_or(f64::MIN, |way| effects[self.starts[factor] + way].t())
        };
        contenders.sort_by(|a, b| best(*b).total_cmp(&best(*a)));
        let keep = contenders.len().div_ceil(2).max(2.min(contenders.len()));
        for &factor in &contenders[keep..] {
            live[factor].clear();
        }
    }

    fn note_screened(&mut self, effects: &[Effect], usual_us: f64) {
        for (factor, about) in self.factors.iter().enumerate() {
            for way in 0..about.options.len() {
                let effect = effects[self.starts[factor] + way];
                let us = |gain: f64| usual_us * ((gain / 2.0).exp() - (-gain / 2.0).exp());
                let gain = (effect.error > 0.0).then(|| Paired {
                    gain: us(effect.gain),
                    low: us(effect.gain - 2.0 * effect.error),
                    high: us(effect.gain + 2.0 * effect.error),
                    p: 1.0,
                    pairs: effect.pairs,
                });
                self.found.judged.push(Judged { factor, way, stage: Stage::Screened, gain, kept: false });
            }
        }
    }

    /// Every setting that is left is removed once again; those go whose removal does not hurt, one
    /// at a time, since of two that cure the same thing neither would be missed while the other is
    /// there.
    fn ablate(&mut self, mut kept: Vec<(usize, usize)>) -> Result<(), B::Error> {
        let nothing: Config = vec![None; self.factors.len()];
        let placebos: Vec<(usize, usize)> = (0..self.factors.len())
            .filter(|&factor| self.factors[factor].placebo && !self.factors[factor].options.is_empty())
            .map(|factor| (factor, 0))
            .collect();
        let (mut cycles, mut longer) = (self.settings.cycles, 0);
        loop {
            let names: Vec<String> = kept.iter().map(|&chosen| self.name(chosen)).collect();
            (self.tell)(&match names.len() {
                0 => "measuring what is left: nothing".to_owned(),
                _ => format!("ablation of {}", names.join(", ")),
            });
            let with = |chosen: &[(usize, usize)]| {
                let mut config = nothing.clone();
                for &(factor, way) in chosen {
                    config[factor] = Some(way);
                }
                config
            };
            // Arms: all, as found, what is kept, then without each. Placebos are set and removed as
            // all others are: whatever makes a removal look harmful makes theirs look so.
            let all: Vec<(usize, usize)> = placebos.iter().chain(&kept).copied().collect();
            let mut arms = vec![with(&all), nothing.clone(), with(&kept)];
            for without in 0..all.len() {
                let mut others = all.clone();
                others.remove(without);
                arms.push(with(&others));
            }
            let blocks = self.measure(&vec![arms; cycles])?;
            let values = effects::without_covariates(&blocks);
            let seed = self.lot.seed();
            let compare = |without: usize, with: usize| {
                let pairs: Vec<(f64, f64)> =
                    values.iter().map(|cycle| (cycle[without], cycle[with])).collect();
                paired::compare(&pairs, 0.95, seed)
            };
            let reached = geometric_mean(values.iter().map(|cycle| cycle[0]));
            let least_us = self.settings.least_gain_us.max(self.settings.least_gain * reached);
            // One-sided, and shared among all that are judged; half of it is left for the rounds
            // before.
            let level = 0.5 * self.settings.error / kept.len().max(1) as f64;
            let helps = |gain: &Paired| gain.p <= level && gain.low > 0.0 && gain.gain >= least_us;
            let without = |at: usize| compare(FIRST_REMOVED + at, 0);
            let of_placebos: Vec<Option<Paired>> = (0..placebos.len()).map(without).collect();
            let mut credited = false;
            for (&placebo, gain) in placebos.iter().zip(&of_placebos) {
                let Some(gain) = gain else { continue };
                let helps = self.settings.judge_placebos && helps(gain);
                self.judge(placebo, *gain, helps);
                credited |= helps;
            }
            if credited && longer < LONGER {
                longer += 1;
                cycles *= 2;
                let note = format!(
                    "a placebo was credited: everything that was left was measured again, {cycles} cycles"
                );
                (self.tell)(&note);
                self.found.notes.push(note);
                continue;
            }
            let gains: Vec<Option<Paired>> = (0..kept.len()).map(|at| without(placebos.len() + at)).collect();
            for (&chosen, gain) in kept.iter().zip(&gains) {
                if let Some(gain) = gain {
                    self.judge(chosen, *gain, false);
                }
            }
            // What a credited placebo gains, anything can gain.
            let most = of_placebos.iter().flatten().map(|gain| gain.high).fold(f64::MIN, f64::max);
            let beats_placebo = |gain: &Paired| !credited || gain.low > most;
            let hurts =
                |gain: &Option<Paired>| gain.as_ref().is_some_and(|gain| helps(gain) && beats_placebo(gain));
            let weakest = (0..kept.len()).filter(|&at| !hurts(&gains[at])).min_by(|a, b| {
                let weight = |at: usize| gains[at].map_or(f64::MIN, |gain| gain.low);
                weight(*a).total_cmp(&weight(*b))
            });
            if let Some(weakest) = weakest {
                kept.remove(weakest);
                continue;
            }
            for &chosen in &kept {
                if let Some(row) = self.row(chosen) {
                    row.kept = true;
                }
            }
            self.found.placebo_credited = credited;
            self.found.total = compare(1, 2).filter(|_| !kept.is_empty());
            let arm = |at: usize| blocks.iter().map(|cycle| cycle[at]).collect();
            self.found.blocks = [arm(1), arm(2)];
            self.found.kept = kept;
            return Ok(());
        }
    }

    fn row(&mut self, (factor, way): (usize, usize)) -> Option<&mut Judged> {
        self.found.judged.iter_mut().find(|row| row.factor == factor && row.way == way)
    }

    fn judge(&mut self, chosen: (usize, usize), gain: Paired, kept: bool) {
        if let Some(row) = self.row(chosen) {
            (row.gain, row.stage, row.kept) = (Some(gain), Stage::Ablated, kept);
        }
    }
}

/// The usual size of values that spread over orders of magnitude.
pub fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_usize), |all, value| (all.0 + effects::log(value), all.1 + 1));
    if count == 0 { 0.0 } else { (sum / count as f64).exp() }
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
