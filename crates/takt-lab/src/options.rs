//! Options of a run, for any robot.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use takt_load::{Component, Profile};
use takt_rt::placement::{CpuSet, online};
use takt_rundir::{Experiment, RunDir};

use crate::LabError;
use crate::late_watch::LateWatch;
use crate::live::LiveMeasures;
use crate::machine_asked::MachineAsked;

/// Display of the robot while it runs. Only the safety cell has views; the others ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// Nothing: no thread, no work.
    #[default]
    None,
    /// The web page.
    Web,
    /// The terminal screen.
    Terminal,
}

/// Destination of the run directory.
#[derive(Clone, Debug)]
pub enum Target {
    /// A new folder below this one, named after the time.
    Below(PathBuf),
    /// This very folder, which must not exist.
    Exactly(PathBuf),
    /// This very folder, which a kill left: the run goes on in it. For robots that can
    /// ([`crate::robot::RobotKind::cannot_resume`]).
    Resume(PathBuf),
}

impl Target {
    /// Makes the run directory, or opens the one to go on with.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn open(&self, label: &str) -> Result<RunDir, LabError> {
        Ok(match self {
            Self::Below(root) => RunDir::create(root, label)?,
            Self::Exactly(path) => RunDir::create_at(path)?,
            Self::Resume(path) => RunDir::open(path)?,
        })
    }
}

/// Interference during a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interference {
    /// Stress profile; the default one does nothing.
    pub stress: Profile,
    /// Noise threads on top (SentryRT-1, section V.B).
    pub noise: u32,
    /// CPUs that all of it is kept on: shielding the others from it (humanoid paper, section 3.1).
    /// All when absent.
    pub cpus: Option<CpuSet>,
}

impl Interference {
    /// Refuses CPUs that this machine has not, before a run has begun.
    ///
    /// # Errors
    /// [`LabError::Config`] with those that are missing and those that there are.
    pub fn check(&self) -> Result<(), LabError> {
        match (self.cpus, online()) {
            (Some(cpus), Ok(online)) => check_cpus(&cpus, &online),
            _ => Ok(()),
        }
    }

    /// Everything as one profile.
    pub fn profile(&self) -> Profile {
        let mut profile = self.stress.clone();
        if self.noise > 0 {
            profile.components.push(Component::Noise { threads: self.noise as usize });
        }
        profile
    }

    /// In a few words: "stress uav, 128 noise threads"; empty for none.
    pub fn label(&self) -> String {
        let stress = (!self.stress.is_off()).then(|| format!("stress {}", self.stress.name));
        let noise = (self.noise > 0).then(|| format!("{} noise threads", self.noise));
        let cpus =
            self.cpus.filter(|_| stress.is_some() || noise.is_some()).map(|c| format!("kept on CPUs {c}"));
        [stress, noise, cpus].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

fn check_cpus(cpus: &CpuSet, online: &CpuSet) -> Result<(), LabError> {
    let missing = cpus.without(online);
    if missing.is_empty() {
        return Ok(());
    }
    // The kernel takes such a list for the rest of it, and one without a rest for an error in the
    // middle of the run.
    Err(LabError::Config(format!(
        "load CPUs {cpus}: CPU {missing} is not online; accepted are CPUs of {online}. Fix: --load-cpus, or load_cpus in the campaign"
    )))
}

#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Length of the measured window, seconds; until stopped, or as long as the robot's file says,
    /// when absent.
    pub seconds: Option<f64>,
    pub interference: Interference,
    /// Settings of the whole machine that the experiment requests.
    pub machine: MachineAsked,
    /// Destination of the run directory.
    pub target: Target,
    /// Display of the robot.
    pub view: View,
    /// Position of the run in an experiment.
    pub experiment: Experiment,
    /// Reports of late releases while the robot runs (a flight recorder).
    pub watch: Option<LateWatch>,
    /// Receiver of the run's measures while it runs.
    pub live: Option<LiveMeasures>,
    /// Ends the run early, in order.
    pub stop: Arc<AtomicBool>,
}

impl RunOptions {
    /// A run on its own below `root`, without interference and view, as long as the robot's file
    /// says.
    pub fn below(root: impl Into<PathBuf>, stop: Arc<AtomicBool>) -> Self {
        Self {
            seconds: None,
            interference: Interference::default(),
            machine: MachineAsked::default(),
            target: Target::Below(root.into()),
            view: View::None,
            experiment: Experiment::default(),
            watch: None,
            live: None,
            stop,
        }
    }

    /// Length of the run, for a robot whose file has the key `seconds`.
    pub fn length(&self, seconds: f64) -> Duration {
        Duration::try_from_secs_f64(self.seconds.unwrap_or(seconds)).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_on_cpus_that_are_not_there_is_refused_with_those_that_are() {
        let set = |text: &str| text.parse::<CpuSet>().expect("a list");
        assert!(check_cpus(&set("0-1"), &set("0-3")).is_ok());
        for (asked, missing) in [("7", "CPU 7 "), ("0,5-6", "CPU 5-6 ")] {
            let refused = check_cpus(&set(asked), &set("0-3")).expect_err(asked).to_string();
            assert!(refused.contains(missing) && refused.contains("0-3"), "{refused}");
        }
    }
}
