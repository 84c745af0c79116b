//! A machine that is simulated, for tests of the search: usual latencies with a heavy tail, drift,
//! time stolen in bursts, load that comes and goes, and hindrances that are planted with what cures
//! them.

use crate::design::{Bench, Block, Config, Factor, Lot};

/// Something that makes blocks slow, unless one of its cures is set.
#[derive(Debug, Clone)]
pub struct Hindrance {
    /// Its latency, microseconds: the block's value is the worst of everything.
    pub us: f64,
    /// Share of the blocks that it comes in.
    pub share: f64,
    /// Ways (factor, way) of which each cures it.
    pub cures: Vec<(usize, usize)>,
}

#[derive(Debug)]
pub struct Simulated {
    lot: Lot,
    pub hindrances: Vec<Hindrance>,
    /// Everything gets slower by this factor from the first block to the `of`-th.
    pub drift: (f64, usize),
    /// Share of the blocks in bursts of stolen time.
    pub stolen: f64,
    /// Blocks for which there is time.
    pub budget: usize,
    /// Somebody ends it after so many blocks.
    pub stopped_after: usize,
    at: usize,
    burst: usize,
    wander: f64,
}

impl Simulated {
    pub fn new(seed: u64) -> Self {
        Self {
            lot: Lot::new(seed ^ 0x5eed),
            hindrances: Vec::new(),
            drift: (1.0, 400),
            stolen: 0.05,
            budget: usize::MAX,
            stopped_after: usize::MAX,
            at: 0,
            burst: 0,
            wander: 0.0,
        }
    }

    fn uniform(&mut self) -> f64 {
        (self.lot.below(1 << 30) as f64 + 0.5) / f64::from(1 << 30)
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    fn block(&mut self, config: &Config) -> Block {
        self.at += 1;
        // Wanders slowly, by some 20 %.
        self.wander = 0.97 * self.wander + 0.05 * self.normal();
        let drift = self.drift.0.powf((self.at as f64 / self.drift.1 as f64).min(1.0));
        let slow = drift * self.wander.exp();
        // The worst of a thousand usual latencies, with a Pareto tail that has no variance.
        let mut value_us = 40.0 * (0.25 * self.normal()).exp() * self.uniform().powf(-0.2);
        if self.uniform() < 0.03 {
            value_us = value_us.max(100.0 * self.uniform().powf(-1.0 / 1.5));
        }
        for at in 0..self.hindrances.len() {
            let Hindrance { us, share, cures } = self.hindrances[at].clone();
            let cured = cures.iter().any(|&(factor, way)| config[factor] == Some(way));
            if self.uniform() < share && !cured {
                value_us = value_us.max(us * (0.4 * self.normal()).exp());
            }
        }
        if self.burst == 0 && self.uniform() < self.stolen / 4.0 {
            self.burst = 4;
        }
        let mut stolen = 0.0;
        if self.burst > 0 {
            self.burst -= 1;
            stolen = 0.02 + 0.2 * self.uniform();
            value_us = value_us.max(20_000.0 * stolen * (0.3 * self.normal()).exp());
        }
        let load = 0.3 + 0.1 * self.normal().abs();
        Block {
            value_us: value_us * slow * (0.5 * load).exp(),
            worst_us: value_us,
            releases: 500,
            stolen,
            load,
        }
    }
}

impl Bench for Simulated {
    type Error = std::convert::Infallible;

    fn measure(&mut self, plan: &[Config]) -> Result<Vec<Block>, Self::Error> {
        let most = self.left().min(self.stopped_after - self.at);
        Ok(plan.iter().take(most).map(|config| self.block(config)).collect())
    }

    fn left(&self) -> usize {
        // Nobody knows before that it will be ended.
        if self.is_stopped() { 0 } else { self.budget - self.at }
    }

    fn is_stopped(&self) -> bool {
        self.at >= self.stopped_after
    }
}

/// Settings as a machine offers them: several ways of some, two placebos.
pub fn factors() -> Vec<Factor> {
    let of = |name: &str, options: &[&str], placebo: bool| Factor {
        name: name.to_owned(),
        options: options.iter().map(|&option| option.to_owned()).collect(),
        placebo,
        costs: name == "policy",
    };
    vec![
        of("policy", &["fifo:49", "fifo:80", "fifo:98"], false),
        of("placement", &["CPU 0", "CPU 1", "CPU 0 alone", "CPU 1 alone"], false),
        of("timer slack", &["1 ns"], false),
        of("interrupts", &["off CPU 0", "off CPU 1"], false),
        of("idle states", &["none"], false),
        of("real-time throttling", &["off"], false),
        of("timer migration", &["off"], false),
        of("workqueues", &["off CPU 0", "off CPU 1"], false),
        of("huge pages", &["never"], false),
        of("autogroup", &["off"], false),
        of("placebo 1", &["set"], true),
        of("placebo 2", &["set"], true),
    ]
}
