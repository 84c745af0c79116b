//! A robot from the lab's point of view: a configuration that can be started, and a running system
//! that can be stopped. Every robot's crate implements both traits of this file; the lab itself
//! knows no robot.

#![deny(missing_docs)]

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use takt_report::Supplement;
use takt_rt::config::SettingError;
use takt_rt::jobs::JobRecord;
use takt_rundir::{Measure, RunDir};
use takt_stats::VerdictConfig;
use takt_trace::perfetto::Task as Track;
use takt_trace::{Trace, TraceReport};

use crate::LabError;
use crate::envelope::{ConfigError, Envelope, parse};
use crate::jobs::Task;
use crate::keeper::Window;
use crate::options::RunOptions;
use crate::picture::Picture;
use crate::questions::Questions;
use crate::session::Session;

pub use self::file::{Erased, RobotFile};

mod file;

/// Events that a run reports while it runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// Something takes long before the robot runs.
    Preparing {
        /// Name of the step.
        what: &'a str,
    },
    /// All threads run; the measured window begins soon.
    Started {
        /// The run directory.
        dir: &'a RunDir,
        /// Settings that were requested but not granted.
        not_granted: &'a [String],
        /// Notes for the user on how it runs, one line each.
        notes: &'a [String],
        /// Address of the page that shows it.
        url: Option<&'a str>,
    },
    /// Every so often.
    Tick {
        /// Time since the window began.
        elapsed: Duration,
        /// Length of the window, where it is known.
        of: Option<Duration>,
        /// State of the robot, in a few words.
        line: String,
    },
}

/// Receiver of a run's events.
pub type Observe<'a> = &'a mut dyn FnMut(Event<'_>);

/// Common properties of all robots of one sort. A registry lists one static of it from the robot's
/// crate.
#[derive(Debug)]
pub struct RobotKind {
    /// Value of the key `robot` in its files.
    pub name: &'static str,
    /// Shipped configurations: name and TOML. The first has the robot's name; of several names of
    /// one text, the last is the file's.
    pub shipped: &'static [(&'static str, &'static str)],
    /// Shipped campaigns: name and TOML.
    pub campaigns: &'static [(&'static str, &'static str)],
    /// Shipped goals files of the latency manager: name and TOML.
    pub goals: &'static [(&'static str, &'static str)],
    /// Keys of the configuration that common names of factors (`policy`, `rate`, `placement`) stand
    /// for in campaigns.
    pub factors: &'static [(&'static str, &'static str)],
    /// A table of the configuration whose keys are factors by themselves.
    pub values: Option<&'static str>,
    /// Its tasks, as the latency manager knows them.
    pub tasks: &'static [&'static Task],
    /// Reports in a sentence what was given up because a machine cannot carry a configuration.
    pub scaled_text: Option<fn(&Scaled) -> Option<String>>,
    /// Answers to the questions of its paper from a campaign over `policy` and `noise`.
    pub questions: Option<Questions>,
    /// Additions to reports and exports of its runs: the tables of its paper.
    pub report: Option<&'static dyn Supplement>,
    /// Requirements in a virtual machine.
    pub guest: GuestNeeds,
    /// Whether it has a page and a terminal screen ([`crate::View`]); the others ignore what is
    /// asked.
    pub has_views: bool,
    /// Reason why a run that was killed cannot continue in its own directory; absent if it can.
    pub cannot_resume: Option<&'static str>,
    /// Reads a configuration: text, its name in errors, the folder that its paths are relative to.
    pub read: fn(&str, &str, &Path) -> Result<RobotFile, LabError>,
}

impl RobotKind {
    /// A robot that has nothing but its configuration.
    pub const fn new(
        name: &'static str,
        shipped: &'static [(&'static str, &'static str)],
        read: fn(&str, &str, &Path) -> Result<RobotFile, LabError>,
    ) -> Self {
        Self {
            name,
            shipped,
            campaigns: &[],
            goals: &[],
            factors: &[],
            values: None,
            tasks: &[],
            scaled_text: None,
            questions: None,
            report: None,
            guest: GuestNeeds { modules: &[], programs: &[], libraries: &[] },
            has_views: false,
            cannot_resume: None,
            read,
        }
    }

    /// The key of `config` that a factor stands for.
    pub(crate) fn key_of(&self, factor: &str, config: &toml::Table) -> String {
        let has = |table: &&str| {
            config.get(*table).and_then(toml::Value::as_table).is_some_and(|table| table.contains_key(factor))
        };
        if let Some(table) = self.values.filter(has) {
            return format!("{table}.{factor}");
        }
        self.factors.iter().find(|(name, _)| *name == factor).map_or(factor, |(_, key)| key).to_owned()
    }
}

/// Requirements of a robot in a virtual machine besides Takt.
#[derive(Clone, Copy, Debug)]
pub struct GuestNeeds {
    /// Kernel modules.
    pub modules: &'static [&'static str],
    /// Programs of the host: names in PATH, or whole paths.
    pub programs: &'static [&'static str],
    /// Libraries of the host that are loaded at run time, by the names that the loader knows
    /// (`libcomedi.so.0`).
    pub libraries: &'static [&'static str],
}

/// Reads a configuration whose types say all but what [`Robot::validate`] checks: what most robots
/// have for [`RobotKind::read`].
///
/// # Errors
/// [`LabError::File`], which names file, line and what is accepted.
pub fn read<R: Robot + DeserializeOwned + Clone + PartialEq + Serialize>(
    text: &str,
    name: &str,
    _folder: &Path,
) -> Result<RobotFile, LabError> {
    parse::<R>(text).map(RobotFile::of).map_err(LabError::file(name))
}

/// The critical thread of a robot, and where its jobs are kept: what a kernel trace explains.
#[derive(Clone, Copy, Debug)]
pub struct Critical {
    /// Name of the thread.
    pub thread: &'static str,
    /// Sample file.
    pub file: &'static str,
    /// Columns of planned release, wake-up, start and end of the work.
    pub columns: [&'static str; 4],
}

/// Reason why a kernel trace cannot explain a robot's late releases, with an alternative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoCriticalThread(pub &'static str);

/// Whether a machine may decide how much of a configuration is run.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    /// It may not: everything is run.
    Fixed,
    /// It may, and has not yet.
    Open,
    /// It has.
    Decided(Scaled),
}

/// Reductions because the machine cannot carry the full load.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Scaled(Value);

impl Scaled {
    /// Of a decision of the robot's own.
    pub fn of<S: Serialize>(decision: &S) -> Self {
        // Plain numbers and texts, which JSON can hold.
        Self(serde_json::to_value(decision).unwrap_or_default())
    }

    /// The robot's own decision.
    pub fn get<S: DeserializeOwned>(&self) -> Option<S> {
        serde_json::from_value(self.0.clone()).ok()
    }
}

/// A robot, configured: what its file says, and how it is started.
///
/// The implementing type is the robot's own table of its file: `#[serde(deny_unknown_fields)]`,
/// with the [`Envelope`] as a field that [`parse`] fills: `#[serde(flatten, skip_deserializing)]`.
pub trait Robot: Erased + Debug + Send + Sync {
    /// Common properties of all robots of this sort.
    fn kind(&self) -> &'static RobotKind;

    /// The common part of its file.
    fn envelope(&self) -> &Envelope;

    /// The same, to be changed.
    fn envelope_mut(&mut self) -> &mut Envelope;

    /// Its name for people.
    fn name(&self) -> &str {
        &self.envelope().name
    }

    /// Claims about the robot: the permitted miss rate, with its confidence.
    fn verdict(&self) -> &VerdictConfig {
        &self.envelope().verdict
    }

    /// Refuses what cannot be run. The envelope is judged elsewhere.
    ///
    /// # Errors
    /// [`ConfigError`], which names the key, its value and what is accepted.
    fn validate(&self) -> Result<(), ConfigError>;

    /// Opens what its file names, as a start does, without starting it: models, recordings. Returns
    /// the findings, and features that this build lacks, one sentence each.
    ///
    /// # Errors
    /// [`LabError`] for what a start would refuse.
    fn inspect(&self) -> Result<Vec<String>, LabError> {
        Ok(Vec::new())
    }

    /// Measures of a run, without their windows, which are not yet known.
    ///
    /// # Errors
    /// [`ConfigError`] for a configuration of which that cannot be said.
    fn measures(&self) -> Result<Vec<Measure>, ConfigError>;

    /// A run of it in a few words, which also name its folder: its policy or tuning.
    fn label(&self) -> String;

    /// The configuration in a few words, after its name.
    fn describe(&self) -> String;

    /// Name and configuration in a line.
    fn title(&self) -> String {
        format!("{}: {}", self.name(), self.describe())
    }

    /// Default length of a run, seconds; unknown for a robot that runs until it is stopped.
    fn expected_seconds(&self) -> Option<f64>;

    /// Releases of the critical task a second; unknown for a robot that polls, or follows its
    /// inputs.
    fn rate_hz(&self) -> Option<f64> {
        None
    }

    /// Refuses to run when the kernel grants less than asked.
    fn make_strict(&mut self);

    /// Takes another scheduling policy than the file's, by `--policy`.
    ///
    /// # Errors
    /// [`ConfigError`], of a robot whose file alone says it.
    fn set_policy(&mut self, _policy: &str) -> Result<(), ConfigError> {
        let why = "this robot does not support it; set `policy` in its file";
        Err(SettingError::conflict("--policy", why).into())
    }

    /// The thread whose late releases a kernel trace explains.
    ///
    /// # Errors
    /// [`NoCriticalThread`], of a robot that has none, or many.
    fn critical(&self) -> Result<Critical, NoCriticalThread>;

    /// Name of the critical thread of a robot that polls: it has no releases
    /// ([`critical`](Self::critical) refuses), and a trace of it is put into words by
    /// [`polled`](Self::polled). `None` for all others.
    fn polls(&self) -> Option<&'static str> {
        None
    }

    /// Trace report of a robot that [polls](Self::polls). Called after [`explain`](Self::explain).
    ///
    /// # Errors
    /// [`LabError::Files`].
    fn polled(&self, _dir: &RunDir, _trace: &Trace) -> Result<TraceReport, LabError> {
        Err(LabError::Internal("the report of a robot that polls"))
    }

    /// Whether the machine may decide how much of the configuration is run. Campaigns let it decide
    /// once for all of their runs.
    fn scaling(&self) -> Scaling {
        Scaling::Fixed
    }

    /// Has the machine decide ([`Scaling::Open`]); it may measure for some seconds.
    ///
    /// # Errors
    /// [`LabError`].
    fn settle(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    /// Configuration that a single run uses instead of this one, if it depends on the machine or on
    /// the time at which the run begins.
    ///
    /// # Errors
    /// [`LabError`].
    fn settled(&self, _options: &RunOptions, _observe: Observe<'_>) -> Result<Option<RobotFile>, LabError> {
        Ok(None)
    }

    /// Starts it: its threads run when this returns, and what they leave is collected. It fills in
    /// the measures, and what is known before the window, of the session's header; the session does
    /// everything else.
    ///
    /// # Errors
    /// [`LabError`]; nothing of the robot is left then.
    fn start(
        &self,
        session: &mut Session,
        options: &RunOptions,
        observe: Observe<'_>,
    ) -> Result<Box<dyn Running>, LabError>;

    /// The tracks that a Perfetto file of a traced run shows; `own` with `jobs` is the critical
    /// task's.
    ///
    /// # Errors
    /// [`LabError::Files`].
    fn picture(&self, _dir: &RunDir, own: Track, jobs: &[JobRecord]) -> Result<Picture, LabError> {
        Ok(Picture::of_task(own, jobs.to_vec()))
    }

    /// Adds to a run's directory what a kernel trace of it says, or why there is none.
    ///
    /// # Errors
    /// [`LabError::Files`].
    fn explain(&self, _dir: &RunDir, _trace: Result<&Trace, &str>) -> Result<(), LabError> {
        Ok(())
    }
}

/// Methods of [`Robot`] that all robots' files have alike: of which kind it is (a static of that
/// name), and where the envelope is (the field `envelope`).
#[macro_export]
macro_rules! robot_basics {
    ($kind:ident) => {
        fn kind(&self) -> &'static $crate::robot::RobotKind {
            &$kind
        }

        fn envelope(&self) -> &$crate::Envelope {
            &self.envelope
        }

        fn envelope_mut(&mut self) -> &mut $crate::Envelope {
            &mut self.envelope
        }
    };
}

/// End of a window.
#[derive(Clone, Debug)]
pub struct End {
    /// Somebody asked for the end before its time.
    pub cut_off: bool,
    /// Part of the interference that died and ended the run.
    pub trouble: Option<String>,
}

/// A robot that runs. One that is dropped, because the run broke off, ends its threads and stops
/// safely.
pub trait Running {
    /// The window that its values are judged by.
    fn window(&self) -> &Window;

    /// Writes the robot's part of `run.json` anew, where more is known now.
    ///
    /// # Errors
    /// [`LabError`].
    fn note(&mut self, _session: &mut Session) -> Result<(), LabError> {
        Ok(())
    }

    /// Notes for the user on how it runs, one line each.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Address of the page that shows it.
    fn url(&self) -> Option<String> {
        None
    }

    /// Waits until interference may begin: a robot that must be enabled first.
    fn settle(&mut self) {}

    /// The interference runs.
    ///
    /// # Errors
    /// [`LabError`].
    fn loaded(&mut self, _session: &mut Session) -> Result<(), LabError> {
        Ok(())
    }

    /// Whether the window may begin. A robot that learns first says no for a while; it ticks
    /// meanwhile.
    fn is_ready(&self) -> bool {
        true
    }

    /// The window begins at `from_ns`, which is reported to [`window`](Self::window) here.
    fn open(&mut self, from_ns: u64) {
        self.window().open(from_ns);
    }

    /// The window has begun.
    ///
    /// # Errors
    /// [`LabError`].
    fn begun(&mut self, _session: &mut Session, _from_ns: u64) -> Result<(), LabError> {
        Ok(())
    }

    /// Period at which it is to be polled.
    fn pace(&self) -> Duration {
        Duration::from_millis(100)
    }

    /// Looks after what runs. `open`: the window has begun.
    ///
    /// # Errors
    /// [`LabError`], which ends the run without a seal.
    fn tick(&mut self, _session: &mut Session, _open: bool) -> Result<(), LabError> {
        Ok(())
    }

    /// State of the robot, in a few words.
    fn line(&mut self) -> String {
        String::new()
    }

    /// Length of the window with all earlier parts of the run, where it is known.
    fn length(&self) -> Option<Duration>;

    /// Whether the run is at its end, so long after the window began.
    fn is_over(&mut self, elapsed: Duration) -> bool {
        self.length().is_some_and(|length| elapsed >= length)
    }

    /// The window ends at `to_ns`, which is reported to [`window`](Self::window) here.
    fn close(&mut self, to_ns: u64) {
        self.window().close(to_ns);
    }

    /// The window has ended; the interference goes on still.
    ///
    /// # Errors
    /// [`LabError`].
    fn closed(&mut self, _session: &mut Session) -> Result<(), LabError> {
        Ok(())
    }

    /// Stops the robot safely, and fills in what it measured.
    ///
    /// # Errors
    /// [`LabError`], which leaves the run without a seal.
    fn stop(self: Box<Self>, session: &mut Session, end: &End) -> Result<Conclusion, LabError>;
}

/// Summary of a run.
pub enum Conclusion {
    /// The common one.
    Common,
    /// One of the robot's own, computed when the header has all that the verdict needs.
    Own(Box<Summarise>),
}

/// Makes a robot's own summary of a run directory.
pub type Summarise = dyn FnOnce(&RunDir) -> Result<Value, LabError>;

impl Conclusion {
    /// A summary of the robot's own.
    pub fn own<S: Serialize>(summarise: impl FnOnce(&RunDir) -> Result<S, LabError> + 'static) -> Self {
        Self::Own(Box::new(|dir| Ok(serde_json::to_value(summarise(dir)?)?)))
    }
}

impl Debug for Conclusion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Common => "Common",
            Self::Own(_) => "Own",
        })
    }
}
