//! What a load has done: the proof that it was there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::system::Rates;

/// How a component ended before it was instructed to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Death {
    /// Seconds since the load ran.
    pub after_s: f64,
    /// What is known of the cause.
    pub why: String,
}

/// What one component was and has done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComponentReport {
    /// The component's kind, as in the profile.
    pub kind: String,
    /// What ran it: `stress-ng`, `hackbench` or `built-in`.
    pub tool: String,
    /// What the tool says of its version.
    pub version: Option<String>,
    /// Why built-in threads stood in for the tool that the profile means; `None` when they did not.
    pub stand_in: Option<String>,
    /// What was asked, as the command line or in words; bounds that were applied are in it.
    pub asked: String,
    /// Processes (of a tool) or threads (built in) that were seen running at the start.
    pub processes: usize,
    /// CPU time used, seconds.
    pub cpu_s: f64,
    /// CPU time used as a share of what all online CPUs had, 0..=1.
    pub cpu_share: f64,
    /// Work done, by unit: `matrix_bogo_ops`, `bytes_written`, `datagrams_echoed`...
    pub proof: BTreeMap<String, u64>,
    /// How it ended, if it did not last.
    pub died: Option<Death>,
}

impl ComponentReport {
    /// Whether the component worked from the start to the end.
    pub fn ran(&self) -> bool {
        self.died.is_none() && self.processes > 0 && self.cpu_s > 0.0 && self.proof.values().any(|&n| n > 0)
    }
}

/// What a load has done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    pub profile: String,
    /// From the moment when every component ran to the moment when they were instructed to end.
    pub seconds: f64,
    /// One entry per component, in the order of the profile.
    pub components: Vec<ComponentReport>,
    /// What the whole machine did meanwhile.
    pub system: Rates,
}

impl LoadReport {
    /// Sentences for everything that makes this load other than the profile means: deaths,
    /// stand-ins, work not done.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for component in &self.components {
            let (kind, tool) = (&component.kind, &component.tool);
            if let Some(reason) = &component.stand_in {
                problems.push(format!("load {kind}: built-in threads stood in: {reason}"));
            }
            if let Some(Death { after_s, why }) = &component.died {
                problems.push(format!("load {kind} ({tool}) ended after {after_s:.1} s: {why}"));
            } else if !component.ran() {
                problems.push(format!("load {kind} ({tool}) has nothing to show for itself"));
            }
        }
        problems
    }
}
