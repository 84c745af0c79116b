//! Adaptive sliding mode control with a large network: feedback linearisation with the nominal input gain, a network
//! of thousands of neurons for the whole of `f`, and a switching term for what is left. The heavy one: what the paper
//! leaves as future work ("computationally intensive nonlinear controllers").
//!
//! ```text
//! s = e' + lambda e
//! u = (xr'' - lambda e' - f^(x) - k s - eta sat(s / layer)) / g(x)
//! W <- rate Phi s, outside of the layer
//! ```

use serde::{Deserialize, Serialize};

use super::rbf::{Rbf, RbfConfig};
use super::{Controller, within};
use crate::error::DaqError;
use crate::plant::{PlantConfig, Reference, State};

/// Parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlidingConfig {
    /// Slope of the sliding line, 1/s. 10.
    pub lambda: f64,
    /// Gain towards the line, 1/s. 20.
    pub k: f64,
    /// Height of the switching term: bounds what the network does not know. 2.
    pub eta: f64,
    /// Thickness of the layer about the line within which switching is gradual and learning rests: no chattering, and
    /// no drift of the weights. 0.01.
    pub layer: f64,
    /// Rate of learning. 5.
    pub rate: f64,
    /// Neurons on each axis. 64: 4096 in all.
    pub neurons: usize,
    /// How far they reach, `x1` and `x2`. 2 and 8.
    pub reach: [f64; 2],
}

impl Default for SlidingConfig {
    fn default() -> Self {
        Self { lambda: 10.0, k: 20.0, eta: 2.0, layer: 0.01, rate: 5.0, neurons: 64, reach: [2.0, 8.0] }
    }
}

impl SlidingConfig {
    pub(crate) fn validate(&self) -> Result<(), DaqError> {
        within("controller.lambda", self.lambda, 1e-9..=1e6)?;
        within("controller.k", self.k, 0.0..=1e6)?;
        within("controller.eta", self.eta, 0.0..=1e6)?;
        within("controller.layer", self.layer, 1e-9..=1e6)?;
        within("controller.rate", self.rate, 0.0..=1e6)?;
        within("controller.reach", self.reach[0], 1e-9..=1e6)?;
        within("controller.reach", self.reach[1], 1e-9..=1e6)?;
        if !(1..=2048).contains(&self.neurons) {
            return Err(DaqError::config(
                "controller.neurons",
                self.neurons,
                "accepted are 1 to 2048 on each axis",
            ));
        }
        Ok(())
    }
}

/// The controller.
#[derive(Clone, Debug)]
pub struct SlidingRbf {
    config: SlidingConfig,
    plant: PlantConfig,
    reference: Reference,
    f: Rbf,
}

impl SlidingRbf {
    /// Knows the input gain and nothing of `f`.
    pub fn new(config: &SlidingConfig, plant: &PlantConfig, reference: &Reference) -> Self {
        let f = Rbf::new(&RbfConfig::even(config.neurons, config.reach));
        Self { config: config.clone(), plant: plant.clone(), reference: *reference, f }
    }
}

impl Controller for SlidingRbf {
    fn control(&mut self, t_s: f64, dt_s: f64, x: State) -> f64 {
        let SlidingConfig { lambda, k, eta, layer, rate, .. } = self.config;
        let desired = self.reference.at(t_s);
        let (e, de) = (x[0] - desired.x, x[1] - desired.dx);
        let s = de + lambda * e;
        let saturated = (s / layer).clamp(-1.0, 1.0);
        let f = self.f.value(x);
        let u = (desired.ddx - lambda * de - f - k * s - eta * saturated) / self.plant.g(x);
        // The same work in every turn, also where nothing is learned.
        let outside = s - layer * saturated;
        self.f.learn(rate * outside * dt_s, 0.0);
        let limit = self.plant.input_limit;
        u.clamp(-limit, limit)
    }
}
