//! Ablation: every setting that is left is removed once again, and only those stay whose removal
//! hurts.

use takt_stats::paired::{self, Paired};

use crate::design::{Bench, Block, Config};
use crate::effects;
use crate::search::{Search, geometric_mean};

/// One way of one factor.
type Chosen = (usize, usize);

/// Behind the arm with all: those with nothing, and with what is kept and no placebo.
const AS_FOUND: usize = 1;
const AS_KEPT: usize = 2;
/// The first arm that lacks one thing.
const FIRST_REMOVED: usize = 3;
/// A search that credits a placebo measures longer, so often.
const LONGER: usize = 2;
/// Cycles between two looks while settings are sorted out, and so many looks at most.
const STEP: usize = 4;
const LOOKS: usize = 3;
/// A removal that costs less than so many standard errors at a look costs nothing that can be seen:
/// at the first only what seems to be no cost at all, since few cycles say little.
const NOT_MISSED: [f64; LOOKS] = [0.0, 1.0, 2.0];
/// And one of which all others cost so many needs no further look.
const MISSED: f64 = 4.0;
/// Fewer cycles than these are no look.
const FEWEST: usize = 3;
/// A last round in which the gain could so likely be chance has no hope, by looks.
const HOPELESS: [f64; LOOKS] = [0.5, 0.3, 0.0];
/// Number of cycles that measure the machine and the placebos if no setting is left.
const WITHOUT_ANY: usize = 12;

/// Result of the last round.
struct LastRound {
    /// Of each setting that was removed.
    gains: Vec<Option<Paired>>,
    hurts: Vec<bool>,
    credited: bool,
    total: Option<Paired>,
}

impl<B: Bench> Search<'_, B> {
    /// Sorts out what is not missed, then measures the rest anew and decides.
    pub(crate) fn ablate(&mut self, finalists: Vec<Chosen>) -> Result<(), B::Error> {
        let kept = self.sort_out(finalists)?;
        self.decide(kept)
    }

    pub(crate) fn with(&self, chosen: &[Chosen]) -> Config {
        let mut config: Config = vec![None; self.factors.len()];
        for &(factor, way) in chosen {
            config[factor] = Some(way);
        }
        config
    }

    /// All but each one of them, `first` of them being no candidates.
    pub(crate) fn each_removed(&self, all: &[Chosen], first: usize) -> Vec<Config> {
        let without = |at: usize| {
            let mut others = all.to_vec();
            others.remove(at);
            self.with(&others)
        };
        (first..all.len()).map(without).collect()
    }

    fn placebos(&self) -> Vec<Chosen> {
        (0..self.factors.len())
            .filter(|&factor| self.factors[factor].placebo && !self.factors[factor].options.is_empty())
            .map(|factor| (factor, 0))
            .collect()
    }

    fn report_ablation(&mut self, kept: &[Chosen]) {
        let names: Vec<String> = kept.iter().map(|&chosen| self.name(chosen)).collect();
        (self.progress)(&match names.len() {
            0 => "measuring the remaining settings: none".to_owned(),
            _ => format!("ablation of {}", names.join(", ")),
        });
    }

    /// Removes one setting at a time whose removal does not hurt, the least missed one that costs
    /// something elsewhere first, since of two that cure the same thing neither would be missed
    /// while the other is there. Nothing is decided here but what falls out.
    fn sort_out(&mut self, mut kept: Vec<Chosen>) -> Result<Vec<Chosen>, B::Error> {
        let placebos = self.placebos();
        while kept.len() > 1 && !self.found.over && self.left() > self.blocks_to_decide(kept.len()) {
            self.report_ablation(&kept);
            let all: Vec<Chosen> = placebos.iter().chain(&kept).copied().collect();
            let mut arms = vec![self.with(&all)];
            arms.extend(self.each_removed(&all, placebos.len()));
            let step = if self.settings.interleave { STEP } else { STEP * LOOKS };
            let mut cycles: Vec<Vec<Block>> = Vec::new();
            let weakest = loop {
                cycles.extend(self.measure(&vec![arms.clone(); step])?);
                if cycles.len() < FEWEST {
                    break None;
                }
                let missed: Vec<f64> = (1..arms.len()).map(|arm| standard_errors(&cycles, arm)).collect();
                let weakest = (0..kept.len()).min_by(|a, b| missed[*a].total_cmp(&missed[*b]));
                let is_last = self.found.over || cycles.len() >= STEP * LOOKS;
                let look = if is_last { LOOKS - 1 } else { cycles.len() / STEP - 1 };
                let is_needless = |at: &usize| missed[*at] < NOT_MISSED[look];
                let costly = (0..kept.len())
                    .filter(|at| is_needless(at) && self.factors[kept[*at].0].costs)
                    .min_by(|a, b| missed[*a].total_cmp(&missed[*b]));
                if weakest.as_ref().is_some_and(is_needless) {
                    break costly.or(weakest);
                }
                let least = weakest.map_or(f64::INFINITY, |at| missed[at]);
                if least > MISSED || is_last {
                    break None;
                }
            };
            let values = effects::without_covariates(&cycles);
            let seed = self.lot.seed();
            for (at, &chosen) in kept.iter().enumerate() {
                let pairs: Vec<(f64, f64)> = values.iter().map(|cycle| (cycle[at + 1], cycle[0])).collect();
                if let Some(gain) = paired::compare(&pairs, 0.95, seed) {
                    self.judge(chosen, gain, false);
                }
            }
            match weakest {
                Some(weakest) => kept.remove(weakest),
                None => break,
            };
        }
        Ok(kept)
    }

    /// Blocks that the last round needs to say anything of so many settings.
    fn blocks_to_decide(&self, settings: usize) -> usize {
        let first = self.looks(self.level(settings, 0), self.settings.cycles)[0];
        first * (FIRST_REMOVED + self.placebos().len() + settings)
    }

    /// The chance of crediting one of so many settings where nothing helps, in a round: all rounds
    /// together stay within what was asked for.
    fn level(&self, settings: usize, round: i32) -> f64 {
        self.settings.error * 0.5_f64.powi(round + 1) / settings.max(1) as f64
    }

    /// After how many cycles a round is looked at: first when the randomisation test can reach the
    /// level, which all looks share.
    fn looks(&self, level: f64, most: usize) -> Vec<usize> {
        let first = (LOOKS as f64 / level.max(1e-9)).log2().ceil() as usize;
        if !self.settings.interleave {
            return vec![most.max(first)];
        }
        let most = most.max(first);
        let mut looks = vec![first, first.midpoint(most), most];
        looks.dedup();
        looks
    }

    /// Measures what is left against nothing, against each removal and against placebos, and keeps
    /// it when every removal hurts; else the least missed goes, and the rest is measured anew.
    fn decide(&mut self, mut kept: Vec<Chosen>) -> Result<(), B::Error> {
        let placebos = self.placebos();
        let (mut most, mut longer, mut round) = (self.settings.cycles, 0, 0);
        let was_over = self.found.over;
        // The blocks with nothing of the round before.
        let mut as_found = Vec::new();
        loop {
            self.report_ablation(&kept);
            // Placebos are set and removed as all others are: whatever makes a removal look harmful
            // makes theirs look so.
            let all: Vec<Chosen> = placebos.iter().chain(&kept).copied().collect();
            let mut arms = vec![self.with(&all), self.with(&[]), self.with(&kept)];
            arms.extend(self.each_removed(&all, 0));
            let level = self.level(kept.len(), round);
            let (looks, level) = match kept.len() {
                0 => (vec![WITHOUT_ANY << longer], level),
                _ => (self.looks(level, most), level / LOOKS as f64),
            };
            let mut cycles: Vec<Vec<Block>> = Vec::new();
            let mut removed = None;
            let mut credited = false;
            for (at, &look) in looks.iter().enumerate() {
                let more = look - cycles.len();
                cycles.extend(self.measure(&vec![arms.clone(); more])?);
                let time_is_over = self.found.over;
                let is_last = at + 1 == looks.len() || time_is_over;
                // If all settings have already been removed, that is an answer, too.
                self.found.over &= was_over || !kept.is_empty();
                let verdict = self.verdict(&cycles, &kept, &placebos, level);
                credited = verdict.credited;
                let all_hurt = verdict.hurts.iter().all(|hurts| *hurts);
                if (all_hurt && (!credited || longer == LONGER)) || time_is_over {
                    self.settle(&kept, &verdict, &cycles);
                    // No time was left for this round.
                    if self.found.blocks[0].is_empty() {
                        self.found.blocks[0] = as_found;
                    }
                    return Ok(());
                }
                if is_last && credited && longer < LONGER {
                    break;
                }
                let weakest = (0..kept.len()).filter(|&at| !verdict.hurts[at]).min_by(|a, b| {
                    let weight = |at: usize| verdict.gains[at].map_or(f64::MIN, |gain| gain.low);
                    weight(*a).total_cmp(&weight(*b))
                });
                let hopeless = |weak: &usize| {
                    verdict.gains[*weak].is_none_or(|gain| gain.p > HOPELESS[at.min(LOOKS - 1)])
                };
                removed = weakest.filter(|at| is_last || (!credited && hopeless(at)));
                if removed.is_some() {
                    break;
                }
            }
            if !cycles.is_empty() {
                as_found = arm(&cycles, AS_FOUND);
            }
            match removed {
                Some(weakest) => {
                    kept.remove(weakest);
                    round += 1;
                }
                None if credited => {
                    longer += 1;
                    most *= 2;
                    let note = format!(
                        "a placebo was credited, so all remaining settings were measured again, up to {most} cycles"
                    );
                    (self.progress)(&note);
                    self.found.notes.push(note);
                }
                None => {}
            }
        }
    }

    /// Judges a round by the cycles that there are.
    fn verdict(
        &mut self,
        cycles: &[Vec<Block>],
        kept: &[Chosen],
        placebos: &[Chosen],
        level: f64,
    ) -> LastRound {
        let values = effects::without_covariates(cycles);
        let seed = self.lot.seed();
        let compare = |without: usize, with: usize| {
            let pairs: Vec<(f64, f64)> = values.iter().map(|cycle| (cycle[without], cycle[with])).collect();
            paired::compare(&pairs, 0.95, seed)
        };
        let reached = geometric_mean(values.iter().map(|cycle| cycle[0]));
        let least_us = self.settings.least_gain_us.max(self.settings.least_gain * reached);
        let helps = |gain: &Paired| gain.p <= level && gain.low > 0.0 && gain.gain >= least_us;
        let of_placebos: Vec<Option<Paired>> =
            (0..placebos.len()).map(|at| compare(FIRST_REMOVED + at, 0)).collect();
        let gains: Vec<Option<Paired>> =
            (0..kept.len()).map(|at| compare(FIRST_REMOVED + placebos.len() + at, 0)).collect();
        let mut credited = false;
        for (&placebo, gain) in placebos.iter().zip(&of_placebos) {
            let Some(gain) = gain else { continue };
            let helps = self.settings.judge_placebos && helps(gain);
            self.judge(placebo, *gain, helps);
            credited |= helps;
        }
        for (&chosen, gain) in kept.iter().zip(&gains) {
            if let Some(gain) = gain {
                self.judge(chosen, *gain, false);
            }
        }
        // A gain as large as a credited placebo's proves nothing.
        let most = of_placebos.iter().flatten().map(|gain| gain.high).fold(f64::MIN, f64::max);
        let beats = |gain: &Paired| !credited || gain.low > most;
        let hurts = gains.iter().map(|gain| gain.as_ref().is_some_and(|gain| helps(gain) && beats(gain)));
        let hurts = hurts.collect();
        LastRound { gains, hurts, credited, total: compare(AS_FOUND, AS_KEPT) }
    }

    /// Keeps what hurts when it is removed; the rest is undecided.
    fn settle(&mut self, kept: &[Chosen], verdict: &LastRound, cycles: &[Vec<Block>]) {
        let of = |hurting: bool| {
            let of = kept.iter().zip(&verdict.hurts).filter(move |(_, hurts)| **hurts == hurting);
            of.map(|(&chosen, _)| chosen).collect::<Vec<Chosen>>()
        };
        (self.found.kept, self.found.undecided) = (of(true), of(false));
        for chosen in self.found.kept.clone() {
            if let Some(row) = self.row(chosen) {
                row.kept = true;
            }
        }
        self.found.placebo_credited = verdict.credited;
        // If undecided settings were present as well, the kept ones were not measured by
        // themselves.
        let measured = self.found.undecided.is_empty();
        self.found.total = verdict.total.filter(|_| measured && !kept.is_empty());
        self.found.blocks = [arm(cycles, AS_FOUND), if measured { arm(cycles, AS_KEPT) } else { Vec::new() }];
    }
}

/// Blocks of one arm.
fn arm(cycles: &[Vec<Block>], at: usize) -> Vec<Block> {
    cycles.iter().map(|cycle| cycle[at]).collect()
}

/// Cost of leaving out the settings that the arm lacks, in standard errors of the pairs with the
/// first arm.
fn standard_errors(cycles: &[Vec<Block>], arm: usize) -> f64 {
    let costs: Vec<f64> = cycles
        .iter()
        .map(|cycle| effects::log(cycle[arm].value_us) - effects::log(cycle[0].value_us))
        .collect();
    let n = costs.len() as f64;
    let mean = costs.iter().sum::<f64>() / n;
    let variance = costs.iter().map(|cost| (cost - mean).powi(2)).sum::<f64>() / (n - 1.0);
    mean / (variance / n).sqrt().max(1e-9)
}
