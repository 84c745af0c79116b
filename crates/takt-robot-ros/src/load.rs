//! The load that a run of the shipped robot has, and how it was fitted to this machine.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use takt_ros_workload::System;

/// Load of the built-in robot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// The paper's: one tracker.
    #[default]
    Paper,
    /// Heavier: eight trackers, seven of them in no chain.
    EightTrackers,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Paper => "paper",
            Self::EightTrackers => "eight-trackers",
        })
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = [Self::Paper, Self::EightTrackers];
        let found = known.into_iter().find(|load| load.to_string() == text);
        found.ok_or_else(|| format!("accepted are {}", known.map(|load| load.to_string()).join(", ")))
    }
}

impl Load {
    /// As its description has it, before it is fitted to a machine.
    #[must_use]
    pub fn system(self) -> System {
        match self {
            Self::Paper => System::turtlebot(),
            Self::EightTrackers => System::eight_trackers(),
        }
    }
}

/// A machine and how many of its cores the nodes may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadMachine {
    /// Its processor; `None`: the kernel names none.
    pub machine: Option<String>,
    /// Cores that the nodes may use.
    pub cores: usize,
}

/// The load of a run, beside the paper's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// `paper`, `eight-trackers`, or `own`: the robot's file describes it.
    pub name: String,
    /// The machine that the costs are of; `None`: they are as written on any machine.
    pub paper: Option<LoadMachine>,
    /// This machine.
    pub here: LoadMachine,
    /// Factor of the costs.
    pub factor: f64,
    /// The rule that gives the factor.
    pub rule: String,
}

/// The paper's machine (section VI).
const PAPER: &str = "Raspberry Pi 4B, ARM Cortex-A72 at 600 MHz";
const RULE: &str = "Costs are multiplied by cores / 4, at most by 1, so that each callback takes the same share of the machine as on the paper's \
                    four cores. The tracker's costs are not multiplied: they are shares of its frame period, because the paper gives none, and \
                    one thread fills one core on any machine. Periods and goals are the paper's.";
const AS_WRITTEN: &str = "Costs are used as written, on any machine.";

/// Cores that this process and its children may use: its affinity and its control group's quota
/// count.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

impl LoadReport {
    /// Of a description, by its name, on a machine with this processor.
    #[must_use]
    pub fn of(name: &str, described: &System, cpu: Option<String>) -> Self {
        let cores = cores();
        let (_, factor) = described.fitted(cores);
        let paper = described.cores.map(|of| LoadMachine {
            machine: Some(if name == "own" { "the description's own".to_owned() } else { PAPER.to_owned() }),
            cores: of as usize,
        });
        let rule = match described.cores {
            Some(4) => RULE.to_owned(),
            Some(of) => {
                format!(
                    "Costs are multiplied by cores / {of}, at most by 1, except those with scales = false."
                )
            }
            None => AS_WRITTEN.to_owned(),
        };
        Self { name: name.to_owned(), paper, here: LoadMachine { machine: cpu, cores }, factor, rule }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_says_what_it_was_made_of() {
        let paper = LoadReport::of("paper", &Load::Paper.system(), Some("a processor".to_owned()));
        assert_eq!(paper.paper.as_ref().map(|paper| paper.cores), Some(4));
        assert_eq!(paper.here.cores, cores());
        assert_eq!(paper.factor, (cores() as f64 / 4.0).min(1.0));
        assert!(paper.rule.contains("cores / 4"), "{}", paper.rule);
        let heavy = LoadReport::of("eight-trackers", &Load::EightTrackers.system(), None);
        assert_eq!((heavy.paper, heavy.factor), (None, 1.0));
        let own = System { cores: Some(64), ..Load::Paper.system() };
        let own = LoadReport::of("own", &own, None);
        assert!(own.rule.contains("cores / 64") && own.factor < 1.0, "{own:?}");
    }

    #[test]
    fn names_in_files_are_those_in_reports() {
        assert!("heavy".parse::<Load>().unwrap_err().contains("eight-trackers"));
        for load in [Load::Paper, Load::EightTrackers] {
            assert_eq!(serde_json::to_value(load).unwrap(), load.to_string());
            assert_eq!(load.to_string().parse(), Ok(load));
        }
    }
}
