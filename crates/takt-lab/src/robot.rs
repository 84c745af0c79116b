//! Any robot from its configuration file: the key `robot` at the top says which; without it, the safety cell.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use takt_rundir::{Measure, RunDir, check_claims};
use takt_stats::VerdictConfig;

use crate::LabError;
use crate::cell::{self, CellFile};
use crate::cyclic::{self, CyclicFile};
use crate::daq::{self, DaqFile};
use crate::humanoid::{self, HumanoidFile};
use crate::options::RunOptions;
use crate::ros::{self, RosFile};
use crate::summary::RunSummary;
use crate::uav::{self, UavFile};

/// What a run tells while it goes on.
#[derive(Debug)]
pub enum Event<'a> {
    /// All threads run; the measured window begins soon.
    Started {
        /// The run directory.
        dir: &'a RunDir,
        /// What was asked and not granted.
        not_granted: &'a [String],
    },
    /// Every so often.
    Tick {
        /// Time since the window began.
        elapsed: Duration,
        /// Length of the window, where it is known.
        of: Option<Duration>,
        /// How the robot is doing, in a few words.
        line: String,
    },
}

/// A robot's configuration.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one of it in a run, and it is hardly ever moved")]
pub enum RobotFile {
    /// The cobot safety cell.
    Cell(CellFile),
    /// The bare cyclic task.
    Cyclic(CyclicFile),
    /// The quadrotor.
    Uav(UavFile),
    /// The DAQ loop.
    Daq(DaqFile),
    /// The humanoid.
    Humanoid(HumanoidFile),
    /// A ROS 2 system under the latency manager or a baseline.
    Ros(RosFile),
}

/// Names of the robots that can be run.
pub const ROBOTS: [&str; 6] = ["cell", "cyclic", "uav", "daq", "humanoid", "ros"];

/// The key that says which robot it is. A table of that name is the arm of the safety cell.
#[derive(Deserialize)]
struct Which {
    robot: Option<toml::Value>,
}

pub(crate) use takt_rt::range::within;

fn unknown(robot: &str) -> String {
    format!("robot = \"{robot}\": there are {}", ROBOTS.join(", "))
}

impl RobotFile {
    /// Reads a file. Paths within it are relative to its folder.
    ///
    /// # Errors
    /// [`LabError::Files`] or [`LabError::Config`], which names file, line and what is accepted.
    pub fn load(path: &Path) -> Result<Self, LabError> {
        let text =
            takt_files::read_to_string(path, takt_files::CONFIGURATION_BYTES).map_err(LabError::io(path))?;
        Self::parse(&text, &path.display().to_string(), path.parent().unwrap_or(Path::new("")))
    }

    /// The shipped configuration of a robot.
    ///
    /// # Errors
    /// [`LabError::Config`] for a name that no robot has.
    pub fn shipped(robot: &str) -> Result<Self, LabError> {
        Self::parse(shipped_text(robot)?, &format!("{robot} (built in)"), Path::new(""))
    }

    /// Reads a text. `name` stands for it in errors; `folder` is what its paths are relative to.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(text: &str, name: &str, folder: &Path) -> Result<Self, LabError> {
        let file = Self::read(text, name, folder)?;
        let claims = file.measures().and_then(|measures| check_claims(file.verdict(), &measures));
        claims.map_err(|error| LabError::Config(format!("{name}: {error}")))?;
        Ok(file)
    }

    fn read(text: &str, name: &str, folder: &Path) -> Result<Self, LabError> {
        let config =
            |error: String| LabError::Config(format!("{name}: {}", takt_files::shortened(error.trim_end())));
        let which: Which = toml::from_str(text).map_err(|e| config(e.to_string()))?;
        match which.robot.as_ref().and_then(toml::Value::as_str).unwrap_or("cell") {
            "cell" => CellFile::parse(text, name, folder).map(Self::Cell),
            "cyclic" => {
                let file: CyclicFile = toml::from_str(text).map_err(|e| config(e.to_string()))?;
                file.validate().map_err(config)?;
                Ok(Self::Cyclic(file))
            }
            "uav" => {
                let file: UavFile = toml::from_str(text).map_err(|e| config(e.to_string()))?;
                file.validate().map_err(config)?;
                Ok(Self::Uav(file))
            }
            "daq" => {
                let file: DaqFile = toml::from_str(text).map_err(|e| config(e.to_string()))?;
                file.validate().map_err(config)?;
                Ok(Self::Daq(file))
            }
            "humanoid" => {
                let file: HumanoidFile = toml::from_str(text).map_err(|e| config(e.to_string()))?;
                file.validate().map_err(config)?;
                Ok(Self::Humanoid(file))
            }
            "ros" => {
                let file: RosFile = toml::from_str(text).map_err(|e| config(e.to_string()))?;
                file.validate().map_err(config)?;
                Ok(Self::Ros(file))
            }
            other => Err(config(unknown(other))),
        }
    }

    /// The robot's name.
    pub fn robot(&self) -> &'static str {
        match self {
            Self::Cell(_) => "cell",
            Self::Cyclic(_) => "cyclic",
            Self::Uav(_) => "uav",
            Self::Daq(_) => "daq",
            Self::Humanoid(_) => "humanoid",
            Self::Ros(_) => "ros",
        }
    }

    /// What a run of it measures, its windows not yet known.
    fn measures(&self) -> Result<Vec<Measure>, String> {
        Ok(match self {
            Self::Cell(file) => cell::run::measures(file),
            Self::Cyclic(file) => cyclic::measures(file),
            Self::Uav(file) => uav::measures(file),
            Self::Daq(file) => daq::measures(file),
            // On a real bus those without a deadline are missing.
            Self::Humanoid(file) => humanoid::measures(file, true),
            Self::Ros(file) => ros::measures(&file.goals()?),
        })
    }

    /// What the robot needs.
    fn verdict(&self) -> &VerdictConfig {
        match self {
            Self::Cell(file) => &file.verdict,
            Self::Cyclic(file) => &file.verdict,
            Self::Uav(file) => &file.verdict,
            Self::Daq(file) => &file.verdict,
            Self::Humanoid(file) => &file.verdict,
            Self::Ros(file) => &file.verdict,
        }
    }

    /// The configuration in a few words.
    pub fn describe(&self) -> String {
        match self {
            Self::Cell(file) => {
                format!("{} with {} cameras, {}", file.name, file.cameras.len(), file.tasks.policy)
            }
            Self::Cyclic(file) => format!("{} at {} Hz, {}", file.name, file.rate_hz, file.policy),
            Self::Uav(file) => {
                format!(
                    "{}: attitude loop at {} Hz, {}",
                    file.name, file.attitude.rate_hz, file.attitude.policy
                )
            }
            Self::Daq(file) => format!("{}: {}", file.name, file.label()),
            Self::Humanoid(file) => format!(
                "{}: {} devices at {} Hz, tuning {}",
                file.name,
                file.motion.devices().len(),
                file.motion.rate_hz,
                file.tuning()
            ),
            Self::Ros(file) => format!(
                "{}: {} chains, {}",
                file.name,
                file.goals().map_or(0, |goals| goals.chains.len()),
                file.policy
            ),
        }
    }

    /// How long a run takes when nothing says otherwise, seconds; unknown for a robot that runs until it is stopped.
    pub fn expected_seconds(&self) -> Option<f64> {
        match self {
            Self::Cell(_) => None,
            Self::Cyclic(file) => Some(file.seconds),
            Self::Uav(file) => Some(file.expected_seconds()),
            Self::Daq(file) => Some(file.seconds),
            Self::Humanoid(file) => Some(file.seconds),
            Self::Ros(file) => Some(file.expected_seconds()),
        }
    }

    /// Releases of the critical task a second; unknown for a robot that polls, or follows its cameras.
    pub fn rate_hz(&self) -> Option<f64> {
        match self {
            Self::Cyclic(file) => Some(file.rate_hz),
            Self::Uav(file) => Some(file.attitude.rate_hz),
            Self::Humanoid(file) => Some(file.motion.rate_hz),
            Self::Cell(_) | Self::Daq(_) | Self::Ros(_) => None,
        }
    }

    /// The whole configuration as TOML, paths resolved.
    ///
    /// # Errors
    /// [`LabError::Config`] for values that TOML cannot hold.
    pub fn to_toml(&self) -> Result<String, LabError> {
        let text = match self {
            Self::Cell(file) => toml::to_string(file),
            Self::Cyclic(file) => toml::to_string(file),
            Self::Uav(file) => toml::to_string(file),
            Self::Daq(file) => toml::to_string(file),
            Self::Humanoid(file) => toml::to_string(file),
            Self::Ros(file) => toml::to_string(file),
        };
        text.map_err(|error| LabError::Config(error.to_string()))
    }

    /// Whether a run that was killed can go on in its own directory. A ROS 2 system cannot: its nodes are programs of somebody else's,
    /// their phases of load are counted from their start, and the manager's models are of the processes that were killed.
    pub fn can_resume(&self) -> bool {
        !matches!(self, Self::Ros(_))
    }

    /// Refuses to run when the kernel grants less than asked.
    pub fn make_strict(&mut self) {
        match self {
            Self::Cell(file) => file.tasks.strict = true,
            Self::Cyclic(file) => file.strict = true,
            Self::Uav(file) => file.tasks.strict = true,
            Self::Daq(file) => file.make_strict(),
            Self::Humanoid(file) => file.strict = true,
            Self::Ros(file) => file.strict = true,
        }
    }

    /// Runs the robot and leaves a sealed run directory. The safety cell has a runner of its own with views
    /// ([`crate::cell::run`]); here it runs without.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn run(
        &self,
        options: &RunOptions,
        observe: &mut dyn FnMut(Event<'_>),
    ) -> Result<RunSummary, LabError> {
        match self {
            Self::Cell(file) => {
                let cell = crate::cell::run::run(file, options, &mut |_| {})?;
                crate::summary::summarise(&RunDir::open(Path::new(&cell.run_dir))?)
            }
            Self::Cyclic(file) => cyclic::run(file, options, observe),
            Self::Uav(file) => uav::run(file, options, observe),
            Self::Daq(file) => daq::run(file, options, observe),
            Self::Humanoid(file) => humanoid::run(file, options, observe),
            Self::Ros(file) => ros::run(file, options, observe),
        }
    }
}

/// Text of the shipped configuration of a robot.
///
/// # Errors
/// [`LabError::Config`] for a name that no robot has.
pub fn shipped_text(robot: &str) -> Result<&'static str, LabError> {
    match robot {
        "cell" => Ok(crate::cell::DEMO),
        // The cell again, as the paper has it.
        "sentryrt1" => Ok(crate::cell::SENTRYRT1),
        "cyclic" => Ok(cyclic::SHIPPED),
        "uav" => Ok(uav::SHIPPED),
        "daq" => Ok(daq::SHIPPED),
        "humanoid" => Ok(humanoid::SHIPPED),
        "ros" => Ok(ros::SHIPPED),
        other => Err(LabError::Config(unknown(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_configurations_are_read_written_and_read_again() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../robots"));
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            let file = RobotFile::load(&path).unwrap_or_else(|error| panic!("{error}"));
            let text = file.to_toml().unwrap();
            let again =
                RobotFile::parse(&text, "again", Path::new("")).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(again, file, "{}", path.display());
        }
    }

    #[test]
    fn the_papers_configuration_is_the_cell_but_for_what_it_is_about() {
        let RobotFile::Cell(paper) = RobotFile::shipped("sentryrt1").unwrap() else { panic!("a cell") };
        let RobotFile::Cell(ours) = RobotFile::shipped("cell").unwrap() else { panic!("a cell") };
        let mut same = paper.clone();
        (same.name, same.scale) = (ours.name.clone(), None);
        same.tasks.acquisition = ours.tasks.acquisition;
        same.perception.detector = ours.perception.detector.clone();
        same.perception.segmenter = ours.perception.segmenter.clone();
        assert_eq!(same, ours, "a comparison of the two designs compares nothing else");
        // Table I, and the deadline of Fig. 3.
        let tasks = &paper.tasks;
        assert_eq!((tasks.ssm.period_ms, tasks.ssm.deadline_ms), (2.0, 2.0));
        assert_eq!((tasks.perception.period_ms, tasks.perception.deadline_ms), (33.0, 33.0));
        assert_eq!((tasks.reaction_deadline_ms, tasks.rr_priority, paper.cameras.len()), (37.3, 50, 5));
    }

    #[test]
    fn every_robot_has_a_shipped_configuration_of_its_own() {
        for robot in ROBOTS {
            assert_eq!(RobotFile::shipped(robot).unwrap().robot(), robot);
        }
        let error = RobotFile::shipped("submarine").unwrap_err().to_string();
        assert!(error.contains("submarine") && error.contains("cyclic"), "{error}");
        assert!(RobotFile::parse("robot = 3", "x", Path::new("")).is_err());
    }

    #[test]
    fn claims_about_measures_that_a_robot_has_not_are_refused_when_its_file_is_read() {
        for (robot, judged) in [
            ("cell", "reaction"),
            ("cyclic", "response"),
            ("uav", "position-lateness"),
            ("daq", "latency"),
            ("humanoid", "lateness"),
            ("ros", "pilot"),
        ] {
            let read = |measure: &str| {
                let shipped = shipped_text(robot).unwrap();
                let text = format!("{shipped}\n[verdict.measures.{measure}]\nmisses_per_hour = 1.0\n");
                RobotFile::parse(&text, "x.toml", Path::new(""))
            };
            read(judged).unwrap_or_else(|error| panic!("{robot}: {error}"));
            let error = read("latness").unwrap_err().to_string();
            assert!(error.contains("x.toml: verdict.measures.latness: accepted are"), "{robot}: {error}");
            assert!(error.contains(judged), "{robot}: {error}");
        }
        let uav = format!("{}\n[verdict.measures.execution]\nmisses_per_hour = 1.0\n", uav::SHIPPED);
        let error = RobotFile::parse(&uav, "x.toml", Path::new("")).unwrap_err().to_string();
        assert!(error.contains("has no deadline"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn garbage_is_an_error_and_never_a_panic(text in "\\PC{0,200}") {
            let _ = RobotFile::parse(&text, "x", Path::new(""));
            for robot in ROBOTS {
                let _ = RobotFile::parse(&format!("robot = \"{robot}\"\n{text}"), "x", Path::new(""));
            }
        }
    }
}
