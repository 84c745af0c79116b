//! The paper's neuro-adaptive controller (section 4.3, after Ghiti Sarand and Karimi 2017): the
//! plant is unknown, and two networks learn `f` and `g` from the tracking error while they control.
//!
//! ```text
//! f^ = W1' Phi1(x)                                             (5)
//! g^ = W2' Phi2(x)                                             (6)
//! v1 = -f^ - k1 e - k2 e' + xr''       e = x1 - xr             (3)
//! u  = v1 / (1 + |g^|)                                         (8)
//! W1 <- alpha1 (Phi1 s - beta W1)                              (9)
//! W2 <- alpha2 (v1 Phi2 s / (1 + |g^|) - gamma W2)            (10)
//! ```
//!
//! By default, equation 10 is computed with `gamma W1` as its last term, as printed. The paper
//! gives no numbers: the gains and rates below are chosen so that the printed law keeps every plant
//! of [`crate::plant`] on its reference. Two keys leave the printed law, and a run that uses them
//! says so ([`NeuroConfig::deviations`]); together they are [`NeuroConfig::corrected`].
//!
//! `leak = "w2"`: the last term of equation 10 takes `W2`. `W1` can hardly be meant. W1 and W2 need
//! not have as many elements, the term does not bound W2 (with W1 at rest it makes W2 drift for
//! ever), and in equation 9 and in the source of the law the term is each network's own leak.
//!
//! `lambda`: the networks learn from `e' + lambda e` and not from `E'B = e'`. Learning from the
//! speed of the error alone adds up to the distance covered: after a step from 0 to 1 the network
//! for `f` has learned the way and not the load, and at rest it only forgets. (Measured on the
//! pendulum with weak gains, in `tests.rs`: six times the error of the same law without learning;
//! on a sine, where something always moves, a twelfth of it.) A Lyapunov argument gives `E'PB`,
//! which is `e' + lambda e` up to a factor, and with it the networks learn the load: the error
//! becomes a hundred times less.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};

use super::rbf::{Rbf, RbfConfig};
use takt_rt::config::within;

use super::Controller;
use crate::error::DaqError;
use crate::plant::{PlantConfig, Reference, State};

/// Weights in the last term of equation 10.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Leak {
    /// W1, as printed.
    #[default]
    W1,
    /// W2, what must have been meant.
    W2,
}

/// Parameters; the paper gives the law but not its numbers. These keep every plant of
/// [`crate::plant`] on the reference 1 and on slow sines, under the law as printed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NeuroConfig {
    /// Gain of the error, 1/s². 400: errors end within a tenth of a second where the input allows.
    pub k1: f64,
    /// Gain of its derivative, 1/s. 40: critically damped with k1 for a gain of 1.
    pub k2: f64,
    /// Rate at which f is learned. 5: small against the gains, else the printed law learns the way
    /// instead of the load.
    pub alpha1: f64,
    /// Rate at which g is learned. 0.05: the error is multiplied by v1 there, which is large.
    pub alpha2: f64,
    /// Leak of f. 0.001: bounds the weights, and forgets in 1 / (alpha1 beta) = 200 s.
    pub beta: f64,
    /// Leak of g. 0.1.
    pub gamma: f64,
    /// Share of the error itself in what the networks learn from, 1/s. 0, as printed.
    pub lambda: f64,
    /// Weights that leak in equation 10. W1, as printed.
    pub leak: Leak,
    /// The network for f. 5 by 5 neurons from -2 to 2 and -4 to 4.
    pub f: RbfConfig,
    /// The network for g. As that for f.
    pub g: RbfConfig,
}

impl Default for NeuroConfig {
    fn default() -> Self {
        Self {
            k1: 400.0,
            k2: 40.0,
            alpha1: 5.0,
            alpha2: 0.05,
            beta: 0.001,
            gamma: 0.1,
            lambda: 0.0,
            leak: Leak::default(),
            f: RbfConfig::even(5, [2.0, 4.0]),
            g: RbfConfig::even(5, [2.0, 4.0]),
        }
    }
}

impl NeuroConfig {
    /// The law with what the printed one lacks: each network has its own leak and learns from the
    /// error as well.
    pub fn corrected() -> Self {
        Self { alpha1: 50.0, lambda: 2.0, leak: Leak::W2, ..Self::default() }
    }

    /// In what it differs from the law as printed, a sentence each.
    pub fn deviations(&self) -> Vec<String> {
        let mut list = Vec::new();
        if self.leak != Leak::W1 {
            list.push("equation 10 leaks W2; the paper prints W1".to_owned());
        }
        if self.lambda != 0.0 {
            let lambda = self.lambda;
            list.push(format!(
                "the networks learn from e' + {lambda} e (equations 9 and 10); the paper prints e'"
            ));
        }
        list
    }

    pub(crate) fn validate(&self, plant: &PlantConfig) -> Result<(), DaqError> {
        // "Positive real constants" (the paper); a leak or a rate of 0 is a law without that term.
        within("controller.k1", self.k1, 1e-9, 1e9)?;
        within("controller.k2", self.k2, 1e-9, 1e9)?;
        for (key, value) in [
            ("controller.alpha1", self.alpha1),
            ("controller.alpha2", self.alpha2),
            ("controller.beta", self.beta),
            ("controller.gamma", self.gamma),
            ("controller.lambda", self.lambda),
        ] {
            within(key, value, 0.0, 1e9)?;
        }
        for (key, rate) in
            [("controller.beta", self.alpha1 * self.beta), ("controller.gamma", self.alpha2 * self.gamma)]
        {
            if rate * plant.period_s() > 1.0 {
                let given = format!("{rate} 1/s with its alpha");
                let accepted = "the leak must not exceed 100 % in one plant.period: lower it or alpha";
                return Err(DaqError::config(key, given, accepted));
            }
        }
        self.f.validate("controller.f")?;
        self.g.validate("controller.g")?;
        if self.leak == Leak::W1 && self.f.neurons() != self.g.neurons() {
            let given =
                format!("\"w1\" with {} neurons for f and {} for g", self.f.neurons(), self.g.neurons());
            let accepted = "equation 10 as printed needs as many neurons in both networks";
            return Err(DaqError::config("controller.leak", given, accepted));
        }
        Ok(())
    }
}

/// The controller with what it has learned.
#[derive(Clone, Debug)]
pub struct NeuroAdaptive {
    config: NeuroConfig,
    reference: Reference,
    f: Rbf,
    g: Rbf,
}

impl NeuroAdaptive {
    /// Knows nothing yet, and is given nothing of the plant.
    pub fn new(config: &NeuroConfig, reference: &Reference) -> Self {
        Self { config: config.clone(), reference: *reference, f: Rbf::new(&config.f), g: Rbf::new(&config.g) }
    }

    /// Its estimates of `f` and `g` at `x`.
    pub fn estimates(&mut self, x: State) -> (f64, f64) {
        (self.f.value(x), self.g.value(x))
    }
}

impl Controller for NeuroAdaptive {
    fn control(&mut self, t_s: f64, dt_s: f64, x: State) -> f64 {
        let NeuroConfig { k1, k2, alpha1, alpha2, beta, gamma, lambda, leak, .. } = self.config;
        let desired = self.reference.at(t_s);
        let (e, de) = (x[0] - desired.x, x[1] - desired.dx);
        let f = self.f.value(x);
        let g = self.g.value(x);
        let v1 = -f - k1 * e - k2 * de + desired.ddx;
        let u = v1 / (1.0 + g.abs());
        if !u.is_finite() {
            // A sensor that shows no number: nothing is learned of it, or the weights never
            // recover.
            return 0.0;
        }
        let s = de + lambda * e;
        let (a1, a2) = (alpha1 * dt_s, alpha2 * dt_s);
        let push_g = a2 * v1 * s / (1.0 + g.abs());
        match leak {
            Leak::W2 => self.g.learn(push_g, a2 * gamma),
            Leak::W1 => self.g.learn_leaking(push_g, a2 * gamma, self.f.weights()),
        }
        self.f.learn(a1 * s, a1 * beta);
        u
    }
}
