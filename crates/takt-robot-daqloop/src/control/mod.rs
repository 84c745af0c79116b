//! Controllers for the inside of the loop. Each computes one input from the plant's state and the
//! reference, in constant time, without allocating. Terms that add up over time (integrals,
//! learning) use the elapsed time.
//!
//! | kind | its user | work per turn with the defaults |
//! |---|---|---|
//! | `none` | the paper's tables of the bare loop | none |
//! | `neuro_adaptive` | the paper's law, as printed; with larger networks, a law as heavy as one likes | 50 Gaussians |
//! | `pid` | the least law that closes the loop: what a control error is compared with | a dozen operations |
//! | `mpc` | the class of laws that the paper leaves to future work: a plan half a second ahead | 50 gradient steps of 25 inputs |

#![deny(missing_docs)]

mod model;
mod mpc;
mod neuro;
mod pid;
mod rbf;

pub use mpc::{Mpc, MpcConfig};
pub use neuro::{Leak, NeuroAdaptive, NeuroConfig};
pub use pid::{Pid, PidConfig};
pub use rbf::{Rbf, RbfConfig};

use serde::{Deserialize, Serialize};

use crate::error::DaqError;
use crate::plant::{PlantConfig, Reference, State};

/// A control law with its own state.
pub trait Controller: Send {
    /// The input for the plant at `t_s`, seconds since the start, in `state`. `dt_s` is the time
    /// since the turn before: the loop runs as fast as the link lets it, and late turns are long
    /// ones.
    fn control(&mut self, t_s: f64, dt_s: f64, state: State) -> f64;
}

/// Controller in the loop (`[controller]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ControllerConfig {
    /// None. (With braces, so that a key beside `kind` is an error.)
    None {},
    /// The paper's: two networks of radial basis functions, equations 5 to 10 as printed.
    NeuroAdaptive(NeuroConfig),
    /// Proportional, integral, derivative.
    Pid(PidConfig),
    /// Linear model predictive control with limits on the input.
    Mpc(MpcConfig),
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self::None {}
    }
}

impl ControllerConfig {
    /// The kinds, as `kind` spells them.
    pub const KINDS: [&'static str; 4] = ["none", "neuro_adaptive", "pid", "mpc"];

    /// The kind as `kind` spells it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::None {} => "none",
            Self::NeuroAdaptive(_) => "neuro_adaptive",
            Self::Pid(_) => "pid",
            Self::Mpc(_) => "mpc",
        }
    }

    /// The defaults of a kind; None where there is no such kind.
    pub fn of_kind(kind: &str) -> Option<Self> {
        Some(match kind {
            "none" => Self::None {},
            "neuro_adaptive" => Self::NeuroAdaptive(NeuroConfig::default()),
            "pid" => Self::Pid(PidConfig::default()),
            "mpc" => Self::Mpc(MpcConfig::default()),
            _ => return None,
        })
    }

    pub(crate) fn validate(&self, plant: &PlantConfig) -> Result<(), DaqError> {
        match self {
            Self::None {} => Ok(()),
            Self::NeuroAdaptive(config) => config.validate(plant),
            Self::Pid(config) => Ok(config.validate()?),
            Self::Mpc(config) => Ok(config.validate()?),
        }
    }

    /// In what it differs from the law that the paper prints, a sentence each; nothing where it is
    /// another law, or none.
    pub fn deviations(&self) -> Vec<String> {
        match self {
            Self::NeuroAdaptive(config) => config.deviations(),
            Self::None {} | Self::Pid(_) | Self::Mpc(_) => Vec::new(),
        }
    }

    /// Builds the controller; everything that it will need is allocated here.
    ///
    /// # Errors
    /// [`DaqError`] where the plant cannot be controlled so.
    pub fn build(
        &self,
        plant: &PlantConfig,
        reference: &Reference,
    ) -> Result<Option<Box<dyn Controller>>, DaqError> {
        self.validate(plant)?;
        Ok(Some(match self {
            Self::None {} => return Ok(None),
            Self::NeuroAdaptive(config) => Box::new(NeuroAdaptive::new(config, reference)),
            Self::Pid(config) => Box::new(Pid::new(config, plant, reference)),
            Self::Mpc(config) => Box::new(Mpc::new(config, plant, reference)?),
        }))
    }
}

#[cfg(test)]
mod tests;
