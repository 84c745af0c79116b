//! Effects rarer than a block: each kept setting, over stretches of several blocks.
//!
//! A block of a second's tenth ends before the rare hitch that an aim like `worst` is about, so
//! that a setting may win every block and lose the minute. A virtual CPU that polls instead of
//! sleeping wakes up sooner, and is taken from its guest for milliseconds once in a while.

use serde::Serialize;
use takt_stats::paired;

use crate::design::{Bench, Config};
use crate::search::{Search, geometric_mean};

/// Rounds, by looks: of the first a randomisation test can be below [`CLEAR`], then as many again.
const LOOKS: [usize; 2] = [6, 12];
/// A comparison is clear with so little chance of it, in either direction: 5 % over both looks.
const CLEAR: f64 = 0.025;

/// A kept setting over stretches: without it and with it, beside all else that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stretches {
    /// Blocks of a stretch.
    pub blocks: usize,
    /// Pairs of stretches, in random order.
    pub pairs: usize,
    /// The typical stretch's worst block without it, microseconds (geometric mean over stretches).
    pub without_us: f64,
    /// With it.
    pub with_us: f64,
    /// Chance of so great a gain where there is none.
    pub p: f64,
    /// Chance of so great a loss where there is none.
    pub p_loss: f64,
}

impl Stretches {
    /// Of pairs without and with it.
    fn of(pairs: &[(f64, f64)], blocks: usize, seed: u64) -> Option<Self> {
        let turned: Vec<(f64, f64)> = pairs.iter().map(|&(without, with)| (with, without)).collect();
        let p = |pairs: &[(f64, f64)]| paired::compare(pairs, 0.95, seed).map(|paired| paired.p);
        Some(Self {
            blocks,
            pairs: pairs.len(),
            without_us: geometric_mean(pairs.iter().map(|pair| pair.0)),
            with_us: geometric_mean(pairs.iter().map(|pair| pair.1)),
            p: p(pairs)?,
            p_loss: p(&turned)?,
        })
    }

    /// It helps over stretches, too.
    pub fn helps(&self) -> bool {
        self.p <= CLEAR
    }

    /// It does harm over stretches.
    pub fn harms(&self) -> bool {
        self.p_loss <= CLEAR
    }
}

impl<B: Bench> Search<'_, B> {
    /// Looks at stretches with the time that is left: with all that is kept, and without each of
    /// it. Settings that do harm there are not kept. Time that the hypervisor stole is neither
    /// taken out nor measured again: a setting may be what it was stolen for.
    pub(crate) fn look_at_stretches(&mut self) -> Result<(), B::Error> {
        let (length, kept) = (self.settings.stretch, self.found.kept.clone());
        if length < 2 || kept.is_empty() || self.found.placebo_credited {
            return Ok(());
        }
        (self.progress)(&format!(
            "measuring stretches of {length} blocks, with all kept settings and without each of them"
        ));
        let mut arms = vec![self.with(&kept)];
        arms.extend(self.each_removed(&kept, 0));
        // The worst block of each arm's stretch.
        let mut rounds: Vec<Vec<f64>> = Vec::new();
        for look in LOOKS {
            while rounds.len() < look && self.left() >= arms.len() * length {
                let Some(round) = self.round_of_stretches(&arms, length)? else { break };
                rounds.push(round);
            }
            let is_short = rounds.len() < look;
            if rounds.len() < LOOKS[0] {
                self.without_stretches();
                break;
            }
            let is_clear = self.judge_stretches(&kept, &rounds);
            if is_clear || is_short {
                break;
            }
        }
        Ok(())
    }

    fn without_stretches(&mut self) {
        if self.bench.is_stopped() {
            self.found.over = true;
            return;
        }
        let note = "no time was left to look for effects rarer than one per block; pass a longer --budget";
        self.found.notes.push(note.to_owned());
    }

    /// One stretch of each arm, in random order; none where the time was over before its end.
    fn round_of_stretches(&mut self, arms: &[Config], length: usize) -> Result<Option<Vec<f64>>, B::Error> {
        let order = self.lot.permutation(arms.len());
        let plan: Vec<Config> = order.iter().flat_map(|&arm| vec![arms[arm].clone(); length]).collect();
        let blocks = self.measure_as_planned(&plan)?;
        if blocks.len() < plan.len() {
            return Ok(None);
        }
        let mut worst = vec![0.0; arms.len()];
        for (&arm, stretch) in order.iter().zip(blocks.chunks(length)) {
            worst[arm] = stretch.iter().map(|block| block.value_us).fold(0.0, f64::max);
        }
        Ok(Some(worst))
    }

    /// True where every setting is clear.
    fn judge_stretches(&mut self, kept: &[(usize, usize)], rounds: &[Vec<f64>]) -> bool {
        let length = self.settings.stretch;
        let mut is_clear = true;
        for (at, &chosen) in kept.iter().enumerate() {
            let pairs: Vec<(f64, f64)> = rounds.iter().map(|round| (round[at + 1], round[0])).collect();
            let seed = self.lot.seed();
            let Some(stretches) = Stretches::of(&pairs, length, seed) else { continue };
            is_clear &= stretches.helps() || stretches.harms();
            if let Some(row) = self.row(chosen) {
                row.stretches = Some(stretches);
                row.kept = !stretches.harms();
            }
            self.found.kept.retain(|one| *one != chosen);
            if !stretches.harms() {
                self.found.kept.push(chosen);
            }
        }
        if self.found.kept.len() < kept.len() {
            // The remaining settings were not compared with nothing.
            (self.found.total, self.found.blocks[1]) = (None, Vec::new());
        }
        is_clear
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::{Block, Factor};
    use crate::search::{Found, SearchSettings, search};

    /// A setting that makes each block a third of what it was, and one block in `rare` awful.
    struct Polled {
        rare: u64,
        at: u64,
        budget: usize,
    }

    impl Bench for Polled {
        type Error = std::convert::Infallible;

        fn measure(&mut self, plan: &[Config]) -> Result<Vec<Block>, Self::Error> {
            let blocks = plan.iter().take(self.budget).map(|config| {
                self.at += 1;
                // Something that changes from block to block, in no step with any plan.
                let spread = 1.0 + (self.at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as f64 / 8e6;
                let polls = config.first().is_some_and(Option::is_some);
                let value_us = match (polls, self.at.is_multiple_of(self.rare)) {
                    (true, true) => 5000.0,
                    (true, false) => 25.0,
                    (false, _) => 75.0,
                };
                Block { value_us: value_us * spread, releases: 50, ..Block::default() }
            });
            let blocks: Vec<Block> = blocks.collect();
            self.budget -= blocks.len();
            Ok(blocks)
        }

        fn left(&self) -> usize {
            self.budget
        }
    }

    fn searched(rare: u64, stretch: usize, budget: usize) -> Found {
        let of = |name: &str, placebo| Factor {
            name: name.to_owned(),
            options: vec!["on".to_owned()],
            placebo,
            costs: false,
        };
        let factors = [of("polling", false), of("placebo 1", true), of("placebo 2", true)];
        let settings = SearchSettings { stretch, ..SearchSettings::default() };
        let Ok(found) = search(&mut Polled { rare, at: 0, budget }, &factors, &settings, &mut |_| {});
        found
    }

    fn polling(found: &Found) -> (Option<Stretches>, bool) {
        let row = found.judged.iter().find(|row| row.factor == 0).unwrap();
        assert_eq!(row.kept, found.kept == [(0, 0)], "{found:?}");
        (row.stretches, row.kept)
    }

    #[test]
    fn what_wins_each_block_and_loses_the_stretch_is_not_kept() {
        let found = searched(40, 64, usize::MAX);
        let (stretches, kept) = polling(&found);
        assert!(stretches.is_some_and(|one| one.harms() && !one.helps() && one.with_us > one.without_us));
        assert!(!kept && found.total.is_none() && found.blocks[1].is_empty());
        // By blocks alone, it is.
        assert_eq!(polling(&searched(40, 0, usize::MAX)), (None, true));
    }

    #[test]
    fn what_wins_the_stretch_too_is_kept_after_the_first_look() {
        let (stretches, kept) = polling(&searched(u64::MAX, 16, usize::MAX));
        let stretches = stretches.unwrap();
        assert!(kept && stretches.helps() && stretches.pairs == LOOKS[0], "{stretches:?}");
        assert!(stretches.without_us > 2.0 * stretches.with_us, "{stretches:?}");
    }

    #[test]
    fn without_time_for_it_nothing_is_said_of_stretches() {
        let whole = searched(u64::MAX, 16, usize::MAX);
        let found = searched(u64::MAX, 16, whole.measured - 2 * 16);
        assert_eq!(polling(&found), (None, true));
        assert!(found.notes.iter().any(|note| note.contains("no time was left")), "{:?}", found.notes);
    }
}
