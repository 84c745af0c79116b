//! The search: screening and successive halving, then ablation of what is left,
//! with placebos throughout. Every stage ends as soon as it is clear what it is to say, and the
//! whole when the time is over, with what is decided by then.

use serde::Serialize;
use takt_stats::paired::Paired;

use crate::design::{Bench, Block, Config, Factor, Live, Lot, folded_pairs, order};
use crate::effects::{self, Effect, Pair};
use crate::stretches::Stretches;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchSettings {
    /// Pairs of each stage of screening and halving at most. 32: an effect of twice the noise's
    /// standard deviation stands out of them.
    pub pairs: usize,
    /// Cycles of the last round of ablation at most; a cycle measures every arm once. 32: an effect
    /// of its noise's standard deviation is seen; one that is ten times that is after nine.
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
    /// Blocks that make a stretch, in which what is kept is looked at once more for what is rarer
    /// than a block; less than 2 where a block is enough for the aim. 8: a second or two.
    pub stretch: usize,
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
            cycles: 32,
            most: 4,
            error: 0.05,
            least_gain: 0.05,
            least_gain_us: 1.0,
            most_stolen: 0.03,
            stretch: 8,
            seed: 1,
            interleave: true,
            judge_placebos: true,
        }
    }
}

/// Last stage that a setting reached.
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

/// Result for one value of one factor.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    pub factor: usize,
    pub way: usize,
    /// The stage that it reached.
    pub stage: Stage,
    /// The gain, microseconds: positive helps.
    pub gain: Option<Paired>,
    /// Result over stretches; none if it did not get so far.
    pub stretches: Option<Stretches>,
    /// Its removal hurts.
    pub kept: bool,
}

/// The answer of a search.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Found {
    /// Every way of every factor, placebos among them.
    pub judged: Vec<Judged>,
    pub kept: Vec<(usize, usize)>,
    /// Settings that were still in the search at the end of the time, neither kept nor removed.
    pub undecided: Vec<(usize, usize)>,
    /// The time was over before the search was.
    pub over: bool,
    /// Because somebody ended it.
    pub stopped: bool,
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
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// Stages of halving at most: from sixteen settings to two.
const MAX_STAGES: usize = 4;
/// A finalist's gain, in standard errors: one of five without effect comes so far, and one of fifty
/// with two standard errors does not.
const FINALIST: f64 = 0.85;
/// A placebo further out than this in screening, in standard errors, says that something is wrong
/// with all of them.
const PLACEBO_STANDS_OUT: f64 = 4.0;
/// Pairs between two looks at a stage.
const STEP: usize = 8;
/// A stage may be clear after so many.
const MIN_PAIRS: usize = 16;
/// An effect so far out, in standard errors, is clear: what is not within reach of it falls out.
const CLEAR: f64 = 6.0;
/// Beside a clear effect so much is worth another look.
const BESIDE_CLEAR: f64 = 2.0;
/// The share of the time that screening and halving may take.
const SCREENING: f64 = 0.5;

/// Searches, telling what it does.
///
/// # Errors
/// Those of the bench.
pub fn search<B: Bench>(
    bench: &mut B,
    factors: &[Factor],
    settings: &SearchSettings,
    progress: &mut dyn FnMut(&str),
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
        progress,
    };
    let finalists = search.screen()?;
    search.ablate(finalists)?;
    search.look_at_stretches()?;
    if search.found.over {
        search.found.stopped = search.bench.is_stopped();
        let note = search.out_of_time();
        search.found.notes.push(note);
    }
    Ok(search.found)
}

pub(crate) struct Search<'a, B: Bench> {
    pub(crate) bench: &'a mut B,
    pub(crate) factors: &'a [Factor],
    pub(crate) settings: &'a SearchSettings,
    pub(crate) lot: Lot,
    /// The first column of each factor.
    starts: Vec<usize>,
    columns: usize,
    pub(crate) found: Found,
    pub(crate) progress: &'a mut dyn FnMut(&str),
}

impl<B: Bench> Search<'_, B> {
    /// For how many blocks there is still time.
    pub(crate) fn left(&self) -> usize {
        self.bench.left()
    }

    /// Measures groups of configurations, each group's members next to each other in random order,
    /// and those that lost too much time to the hypervisor once more: reported by the stolen time
    /// alone, before anybody has looked at a latency. Fewer groups where the time is over.
    pub(crate) fn measure(&mut self, groups: &[Vec<Config>]) -> Result<Vec<Vec<Block>>, B::Error> {
        let members = groups.first().map_or(0, Vec::len);
        let mut blocks = self.measure_once(groups)?;
        let worst = |blocks: &[Block]| blocks.iter().map(|block| block.stolen).fold(0.0, f64::max);
        let mut again: Vec<usize> =
            (0..blocks.len()).filter(|&group| worst(&blocks[group]) > self.settings.most_stolen).collect();
        again.sort_by(|a, b| worst(&blocks[*b]).total_cmp(&worst(&blocks[*a])));
        // If time is stolen all along, repetitions would never end: the model has to do then.
        again.truncate(groups.len().div_ceil(4));
        if !again.is_empty() {
            let configs: Vec<Vec<Config>> = again.iter().map(|&group| groups[group].clone()).collect();
            let anew = self.measure_once(&configs)?;
            self.found.remeasured += anew.len() * members;
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
        let measured = self.measure_as_planned(&plan)?;
        self.found.over |= measured.len() < plan.len();
        let mut blocks = vec![vec![None; members]; groups.len()];
        for ((group, member), block) in order.into_iter().zip(measured) {
            blocks[group][member] = Some(block);
        }
        // A group that is not whole compares nothing.
        Ok(blocks.into_iter().map_while(|group| group.into_iter().collect()).collect())
    }

    pub(crate) fn measure_as_planned(&mut self, plan: &[Config]) -> Result<Vec<Block>, B::Error> {
        let measured = self.bench.measure(plan)?;
        self.found.measured += measured.len();
        Ok(measured)
    }

    /// States which decisions were possible, and which were not.
    fn out_of_time(&self) -> String {
        let names: Vec<String> = self.found.undecided.iter().map(|&chosen| self.name(chosen)).collect();
        let of = match (self.found.kept.is_empty(), names.is_empty()) {
            (true, true) => "before it decided anything".to_owned(),
            (false, true) => "after all kept settings were decided".to_owned(),
            (_, false) => format!("undecided are {}", names.join(", ")),
        };
        if self.found.stopped {
            return format!("stopped before the search was complete, {of}");
        }
        format!("the time ended before the search was complete, {of}; a longer --budget finds more")
    }

    pub(crate) fn name(&self, (factor, way): (usize, usize)) -> String {
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
        let at_most = (SCREENING * self.left() as f64) as usize / 2;
        for stage in 0..MAX_STAGES {
            let contenders = self.contenders(&live);
            if contenders.is_empty() {
                break;
            }
            let ways: usize = contenders.iter().map(|&factor| live[factor].len()).sum();
            (self.progress)(&match stage {
                0 => format!("screening {ways} values of {} settings", contenders.len()),
                _ => format!("halving: {ways} values of {} settings are left", contenders.len()),
            });
            let stages = self.stages(contenders.len()).min(MAX_STAGES - stage);
            let fit = at_most.saturating_sub(pairs.len()) / stages;
            let most = self.settings.pairs.min(fit.max(STEP));
            let clear = self.measure_stage(&live, most, &mut pairs, &mut logs)?;
            effects = effects::estimate(&pairs, self.columns);
            if self.settings.judge_placebos && stage == 0 && !clear && self.placebo_stands_out(&effects) {
                let note = "a placebo stood out in screening, so screening was repeated for longer";
                (self.progress)(note);
                self.found.notes.push(note.to_owned());
                self.measure_stage(&live, 2 * most, &mut pairs, &mut logs)?;
                effects = effects::estimate(&pairs, self.columns);
            }
            let settled = contenders.len() <= self.settings.most && ways == contenders.len();
            if settled || self.found.over {
                break;
            }
            if clear {
                self.keep_clear(&mut live, &effects, &effects::estimate_alone(&pairs, self.columns));
                self.measure_pairs(&live, STEP, (&mut pairs, &mut logs))?;
                effects = effects::estimate(&pairs, self.columns);
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

    /// Number of stages that halve so many settings to those that may enter ablation.
    fn stages(&self, mut settings: usize) -> usize {
        let mut stages = 1;
        while settings > self.settings.most.max(2) {
            settings = settings.div_ceil(2);
            stages += 1;
        }
        stages
    }

    /// Measures pairs until an effect is clear, `most` at most; true where one is.
    fn measure_stage(
        &mut self,
        live: &Live,
        most: usize,
        pairs: &mut Vec<Pair>,
        logs: &mut Vec<f64>,
    ) -> Result<bool, B::Error> {
        // Without interleaving a stage is one series, which nobody looks into.
        let step = if self.settings.interleave { STEP } else { most };
        let mut done = 0;
        while done < most && !self.found.over {
            let count = step.min(most - done);
            self.measure_pairs(live, count, (&mut *pairs, &mut *logs))?;
            done += count;
            if pairs.len() >= MIN_PAIRS && self.is_clear(&effects::estimate(pairs, self.columns)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the best of all is far out.
    fn is_clear(&self, effects: &[Effect]) -> bool {
        let of = |factor: usize| {
            let first = self.starts[factor];
            effects[first..first + self.factors[factor].options.len()]
                .iter()
                .map(Effect::t)
                .fold(0.0, f64::max)
        };
        (0..self.factors.len()).any(|factor| !self.factors[factor].placebo && of(factor) > CLEAR)
    }

    /// Beside a clear effect all that is not worth another look falls out at once: neither beside
    /// the others nor by itself.
    fn keep_clear(&self, live: &mut Live, effects: &[Effect], alone: &[Effect]) {
        for factor in self.contenders(live) {
            let of = |effects: &[Effect], way: usize| effects[self.starts[factor] + way].t();
            let t = |way: usize| of(effects, way).max(of(alone, way));
            live[factor].retain(|&way| t(way) > BESIDE_CLEAR);
            live[factor].sort_by(|a, b| t(*b).total_cmp(&t(*a)));
            live[factor].truncate(2);
        }
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
                let judged =
                    Judged { factor, way, stage: Stage::Screened, gain, stretches: None, kept: false };
                self.found.judged.push(judged);
            }
        }
    }

    pub(crate) fn row(&mut self, (factor, way): (usize, usize)) -> Option<&mut Judged> {
        self.found.judged.iter_mut().find(|row| row.factor == factor && row.way == way)
    }

    pub(crate) fn judge(&mut self, chosen: (usize, usize), gain: Paired, kept: bool) {
        if let Some(row) = self.row(chosen) {
            (row.gain, row.stage, row.kept) = (Some(gain), Stage::Ablated, kept);
        }
    }
}

/// The usual size of values that spread over orders of magnitude.
pub(crate) fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_usize), |all, value| (all.0 + effects::log(value), all.1 + 1));
    if count == 0 { 0.0 } else { (sum / count as f64).exp() }
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
