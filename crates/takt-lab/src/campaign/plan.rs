//! The plan: every run of a campaign, resolved and validated before the first one begins.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use takt_load::Profile;
use takt_rt::placement::CpuSet;
use takt_rundir::{Experiment, Factor, sha256_of};

use super::apply::{KERNEL, apply};
use super::file::{CampaignFile, Level, Order};
use crate::LabError;
use crate::machine_asked::MachineAsked;
use crate::options::Interference;
use crate::registry::Registry;
use crate::robot::{RobotFile, RobotKind, Scaled, Scaling};
use crate::session::file_name;

/// Conditions of one run besides the robot itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSetup {
    pub stress: Profile,
    /// Noise threads.
    pub noise: u32,
    /// CPUs that the interference is kept on.
    pub cpus: Option<CpuSet>,
    /// Requested settings of the whole machine.
    #[serde(skip_serializing_if = "MachineAsked::is_empty")]
    pub machine: MachineAsked,
    /// Length of the window, seconds; as the robot's configuration says when absent.
    pub seconds: Option<f64>,
    /// The kernel that a virtual run boots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Boot parameters of a virtual run, with their values; an empty one stands alone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub boot: BTreeMap<String, String>,
    /// Conditions that only a person or a reboot can change, and that the run is for: `kernel`, and
    /// others by their names.
    pub labels: BTreeMap<String, String>,
    /// Position of the run in the campaign.
    pub experiment: Experiment,
}

impl RunSetup {
    pub fn interference(&self) -> Interference {
        Interference { stress: self.stress.clone(), noise: self.noise, cpus: self.cpus }
    }

    /// The boot parameters as the kernel's command line has them.
    pub fn boot_parameters(&self) -> Vec<String> {
        let word = |(name, value): (&String, &String)| match value.as_str() {
            "" => name.clone(),
            value => format!("{name}={value}"),
        };
        self.boot.iter().map(word).collect()
    }
}

/// One run of a campaign.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRun {
    /// Name of its run directory.
    pub name: String,
    /// Conditions besides the robot itself.
    pub setup: RunSetup,
    /// Name of its configuration, which repetitions share.
    pub config: String,
    /// Length of the run as far as it is known beforehand, seconds.
    pub expected_s: f64,
}

/// Every run of a campaign in the order in which they are made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub file: CampaignFile,
    pub robot: String,
    pub runs: Vec<CellRun>,
    /// Resolved configurations: name and TOML text.
    pub configs: Vec<(String, String)>,
    /// Reductions common to all runs because this machine cannot carry the full load, if the
    /// robot's configuration requests that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled: Option<Scaled>,
}

/// Decides what a configuration gives up here; it may measure for some seconds.
pub type Decide<'a> = &'a mut dyn FnMut(&mut RobotFile) -> Result<(), LabError>;

/// A configuration of the matrix before it is repeated.
struct Combination {
    factors: Vec<Factor>,
    setup: RunSetup,
    config: String,
    expected_s: f64,
}

impl Plan {
    /// Resolves a campaign: every combination of factors becomes a configuration, and every
    /// configuration is read by its robot, so that an unknown factor or an impossible combination
    /// is found now and not after an hour.
    ///
    /// # Errors
    /// [`LabError::Config`] with the combination and its error; [`LabError::Files`].
    pub fn resolve(registry: &Registry, file: &CampaignFile) -> Result<Self, LabError> {
        Self::resolve_with(registry, file, &mut |robot| robot.settle())
    }

    /// As [`resolve`](Self::resolve), with a decision of the caller's own about configurations with
    /// a `[scale]`. It is made once, before the factors, so that all runs do the same work.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn resolve_with(
        registry: &Registry,
        file: &CampaignFile,
        decide: Decide<'_>,
    ) -> Result<Self, LabError> {
        let file = &file.chosen();
        let config_error =
            |what: &str, error: String| LabError::Config(format!("campaign {}: {what}{error}", file.name));
        let (text, name, folder) = match (&file.robot, &file.config) {
            (_, Some(path)) => (
                takt_files::read_configuration(path).map_err(LabError::io(path))?,
                path.display().to_string(),
                path.parent().unwrap_or(Path::new("")).to_owned(),
            ),
            (robot, None) => {
                let robot = robot.as_deref().unwrap_or_default();
                (
                    registry.shipped_text(robot)?.to_owned(),
                    format!("{robot} (built in)"),
                    Path::new("").to_owned(),
                )
            }
        };
        // Errors of the base itself name their lines; those of combinations name the combination.
        let kind = registry.parse(&text, &name, &folder)?.kind();
        let mut base: toml::Table = takt_files::parse_configuration(&text)
            .map_err(|e| config_error("", e.to_string().trim_end().to_owned()))?;
        let scaled = Self::scale((registry, kind), file, &mut base, &folder, decide)?;
        let mut combinations: Vec<Combination> = Vec::new();
        for levels in product(file) {
            let mut config = base.clone();
            let mut setup = RunSetup { seconds: file.seconds, ..RunSetup::default() };
            let mut factors = Vec::new();
            let put = |key: &str, value: &toml::Value, config: &mut toml::Table, setup: &mut RunSetup| {
                apply(kind, config, setup, file.guests.is_some(), key, value)
            };
            for (key, value) in &file.set {
                put(key, value, &mut config, &mut setup).map_err(|e| config_error("[set]: ", e))?;
            }
            for (factor, level) in file.factors.iter().zip(&levels) {
                let outcome = match level {
                    Level::Value(value) => put(&factor.name, value, &mut config, &mut setup),
                    Level::Named { set, .. } => {
                        set.iter().try_for_each(|(key, value)| put(key, value, &mut config, &mut setup))
                    }
                };
                outcome.map_err(|e| config_error(&format!("factor {}: ", factor.name), e))?;
                factors.push(Factor { name: factor.name.clone(), value: level.text() });
            }
            if file.guests.is_some() && setup.kernel.is_none() {
                let error = "a virtual campaign needs a factor \"kernel\", or kernel = \"...\" in [set]";
                return Err(config_error("", error.to_owned()));
            }
            let experiment = Experiment {
                campaign: file.name.clone(),
                paper: file.paper.clone().unwrap_or_default(),
                factors,
                ..Experiment::default()
            };
            let what = format!("{}: ", experiment.configuration());
            let text = toml::to_string(&config).map_err(|e| config_error(&what, e.to_string()))?;
            // The combination stands for the file in the robot's own message.
            let resolved = registry.parse(&text, &format!("campaign {}: {what}", file.name), &folder)?;
            combinations.push(Combination {
                expected_s: setup.seconds.or(resolved.expected_seconds()).unwrap_or(0.0),
                config: resolved.to_toml()?,
                setup,
                factors: experiment.factors,
            });
        }
        Ok(Self { scaled, ..Self::of(file, kind.name, combinations) })
    }

    /// Fits the configuration that all runs share to this machine, where it asks for that.
    fn scale(
        (registry, kind): (&Registry, &RobotKind),
        file: &CampaignFile,
        base: &mut toml::Table,
        folder: &Path,
        decide: Decide<'_>,
    ) -> Result<Option<Scaled>, LabError> {
        let name = &file.name;
        let text = |table: &toml::Table| {
            toml::to_string(table).map_err(|e| LabError::Config(format!("campaign {name}: {e}")))
        };
        let mut shared = base.clone();
        let mut setup = RunSetup::default();
        for (key, value) in &file.set {
            apply(kind, &mut shared, &mut setup, file.guests.is_some(), key, value)
                .map_err(|e| LabError::Config(format!("campaign {name}: [set]: {e}")))?;
        }
        let what = format!("campaign {name}: [set]");
        let mut robot = registry.parse(&text(&shared)?, &what, folder)?;
        match robot.scaling() {
            Scaling::Fixed => return Ok(None),
            Scaling::Decided(scaled) => return Ok(Some(scaled)),
            Scaling::Open => {}
        }
        if file.guests.is_some() {
            return Err(LabError::Config(format!(
                "campaign {name}: [scale] measures this machine, but time in a guest differs. Use a configuration without [scale]"
            )));
        }
        decide(&mut robot)?;
        *base = toml::from_str(&robot.to_toml()?)
            .map_err(|e| LabError::Config(format!("campaign {name}: {e}")))?;
        Ok(match robot.scaling() {
            Scaling::Decided(scaled) => Some(scaled),
            Scaling::Fixed | Scaling::Open => None,
        })
    }

    fn of(file: &CampaignFile, robot: &str, combinations: Vec<Combination>) -> Self {
        let mut runs = Vec::new();
        let mut configs: Vec<(String, String)> = Vec::new();
        // Factors shared by all runs would only make their names long.
        let varying = |name: &str| file.factors.iter().any(|f| f.name == name && f.values.len() > 1);
        let any_varies = file.factors.iter().any(|factor| factor.values.len() > 1);
        let mut shuffle = Pcg64::seed_from_u64(file.seed);
        for repetition in 1..=file.repetitions {
            let order = turns(file, repetition, combinations.len(), &mut shuffle);
            for index in order {
                let combination = &combinations[index];
                let hash = &sha256_of(combination.config.as_bytes())[..12];
                let config = format!("{robot}-{hash}");
                if !configs.iter().any(|(name, _)| *name == config) {
                    configs.push((config.clone(), combination.config.clone()));
                }
                let named = combination.factors.iter().filter(|f| !any_varies || varying(&f.name));
                let values: Vec<&str> = named.map(|f| f.value.as_str()).collect();
                let experiment = Experiment {
                    campaign: file.name.clone(),
                    paper: file.paper.clone().unwrap_or_default(),
                    factors: combination.factors.clone(),
                    repetition,
                    place: None,
                };
                runs.push(CellRun {
                    // The number keeps names apart whose special characters were all that reported
                    // them apart.
                    name: format!(
                        "{:03}-{}-r{repetition}",
                        index + 1,
                        file_name("", &values.join("-")).trim_start_matches('-')
                    ),
                    setup: RunSetup { experiment, ..combination.setup.clone() },
                    config,
                    expected_s: combination.expected_s,
                });
            }
        }
        Self { file: file.clone(), robot: robot.to_owned(), runs, configs, scaled: None }
    }

    /// Every label that the campaign asks for has one of its values, and there is no other.
    ///
    /// # Errors
    /// [`LabError::Config`].
    pub fn check_labels(&self, labels: &BTreeMap<String, String>) -> Result<(), LabError> {
        let name = &self.file.name;
        let option =
            |label: &str| if label == KERNEL { "--kernel".to_owned() } else { format!("--label {label}=") };
        let mut known: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (label, value) in self.runs.iter().flat_map(|run| &run.setup.labels) {
            known.entry(label).or_default().insert(value);
        }
        for (label, values) in &known {
            let values = values.iter().copied().collect::<Vec<_>>().join(", ");
            let option = option(label);
            match labels.get(*label) {
                None => {
                    return Err(LabError::Config(format!(
                        "campaign {name} depends on \"{label}\": pass {option} with the value that holds now ({values}); runs with the \
                         other values wait for `takt campaign resume`"
                    )));
                }
                Some(value) if !known[label].contains(value.as_str()) => {
                    return Err(LabError::Config(format!(
                        "{option} {value}: campaign {name} knows {values}"
                    )));
                }
                Some(_) => {}
            }
        }
        match labels.keys().find(|label| !known.contains_key(label.as_str())) {
            Some(label) => {
                Err(LabError::Config(format!("{}: campaign {name} has no factor \"{label}\"", option(label))))
            }
            None => Ok(()),
        }
    }

    /// The configurations, each with its runs in the order of repetitions, in the order of the
    /// factors' values.
    pub fn configurations(&self) -> Vec<(Vec<Factor>, Vec<&CellRun>)> {
        let mut all: Vec<(Vec<Factor>, Vec<&CellRun>)> = product(&self.file)
            .map(|levels| {
                let factor = |(spec, level): (&super::FactorSpec, &Level)| Factor {
                    name: spec.name.clone(),
                    value: level.text(),
                };
                (self.file.factors.iter().zip(&levels).map(factor).collect(), Vec::new())
            })
            .collect();
        for run in &self.runs {
            if let Some((_, runs)) =
                all.iter_mut().find(|(factors, _)| *factors == run.setup.experiment.factors)
            {
                runs.push(run);
            }
        }
        all.iter_mut().for_each(|(_, runs)| runs.sort_by_key(|run| run.setup.experiment.repetition));
        all
    }
}

/// In which order the configurations of a repetition are run.
fn turns(file: &CampaignFile, repetition: u32, count: usize, shuffle: &mut Pcg64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    match file.order {
        Order::Random => order.shuffle(shuffle),
        Order::Given => {}
        Order::Rotated => {
            let turn = file.seed.wrapping_add(u64::from(repetition).saturating_sub(1));
            // The remainder is a place in the list.
            order.rotate_left((turn % count.max(1) as u64) as usize);
        }
    }
    order
}

/// Every combination of levels, the last factor changing fastest.
fn product(file: &CampaignFile) -> impl Iterator<Item = Vec<Level>> {
    let factors: Vec<Vec<Level>> = file.factors.iter().map(|f| f.values.clone()).collect();
    let all: usize = factors.iter().map(Vec::len).product();
    (0..all).map(move |mut index| {
        let mut levels: Vec<Level> = factors
            .iter()
            .rev()
            .map(|values| {
                let level = values[index % values.len()].clone();
                index /= values.len();
                level
            })
            .collect();
        levels.reverse();
        levels
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_take_turns_at_being_the_first() {
        let text = |seed: u64| {
            format!(
                "name = \"turns\"\nrobot = \"ros\"\norder = \"rotated\"\nrepetitions = 4\nseed = {seed}\n\
                 [[factor]]\nname = \"policy\"\nvalues = [\"a\", \"b\", \"c\", \"d\"]\n"
            )
        };
        for (seed, first) in [(0, 0), (1, 1), (6, 2), (1_793_934_307, 3)] {
            let file = CampaignFile::parse(&text(seed), "a test").unwrap();
            let mut shuffle = Pcg64::seed_from_u64(seed);
            let order: Vec<Vec<usize>> =
                (1..=4).map(|repetition| turns(&file, repetition, 4, &mut shuffle)).collect();
            let firsts: Vec<usize> = order.iter().map(|one| one[0]).collect();
            assert_eq!(firsts, (first..first + 4).map(|at| at % 4).collect::<Vec<_>>(), "seed {seed}");
            for one in &order {
                assert_eq!(one.iter().collect::<BTreeSet<_>>().len(), 4, "each once: {one:?}");
            }
        }
        let file = CampaignFile::parse(&text(0), "a test").unwrap();
        assert!(turns(&file, 1, 0, &mut Pcg64::seed_from_u64(0)).is_empty());
        let given = CampaignFile { order: Order::Given, seed: 3, ..file };
        assert_eq!(turns(&given, 2, 3, &mut Pcg64::seed_from_u64(0)), [0, 1, 2]);
    }
}
