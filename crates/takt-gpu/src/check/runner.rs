//! The steps of `takt gpu check`, one process after the other, each with a time limit, each with a
//! small file of results. A step that hangs, crashes or loses the device loses itself; what is
//! complete is not run again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::Requirement;
use crate::gpu::Info;

use self::attend::attend;

mod attend;

/// All of it together, seconds.
pub const WHOLE_S: f64 = 540.0;

/// File with the requested options.
const ABOUT: &str = "check.json";

/// File with the results, for people.
pub const SUMMARY: &str = "summary.txt";

/// One step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    pub name: &'static str,
    /// Its purpose, in a line.
    pub about: &'static str,
    /// Longest time, seconds; it is killed then.
    pub limit_s: f64,
    /// Of this, time for measuring; 0: what the other steps leave.
    pub work_s: f64,
}

/// Options of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunnerOptions {
    /// Folder of the results.
    pub out: PathBuf,
    /// Goes on with what is in the folder.
    pub resume: bool,
    /// Only these steps; empty: all.
    pub only: Vec<String>,
    /// Time for all measurements, seconds, at most [`WHOLE_S`]; limits stay as they are.
    pub seconds: f64,
    /// Number of the GPU.
    pub ordinal: u32,
    /// Steps leave out what changes a setting of the machine.
    pub leave_settings: bool,
}

/// Outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Nothing of what counts was missed.
    Passed,
    /// Something was missed, or the step ended by an error.
    Failed,
    /// Killed at its time limit.
    TimedOut,
    /// A requirement is missing here.
    NotRun,
}

/// Report of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Its name.
    pub step: String,
    /// Its purpose.
    pub about: String,
    /// Its outcome.
    pub outcome: Outcome,
    /// The reason, if it did not pass.
    pub why: Option<String>,
    /// Its duration, seconds.
    pub seconds: f64,
    /// Its time for measuring, seconds.
    pub work_s: f64,
    /// Its limit, seconds.
    pub limit_s: f64,
    /// Judged requirements.
    pub requirements: Vec<Requirement>,
    /// Measurements, by name.
    pub figures: serde_json::Map<String, serde_json::Value>,
    /// The last lines of its standard error.
    pub words: String,
}

/// Origin of the folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct About {
    version: String,
    program: String,
    ordinal: u32,
    seconds: f64,
    #[serde(default)]
    leave_settings: bool,
    device: Option<Info>,
}

/// Reason why the check did not complete.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// There is no device.
    #[error("{0}")]
    NoDevice(String),
    /// A value that is not accepted.
    #[error("{what} {received}: expected {accepted}")]
    Setting {
        /// The option.
        what: &'static str,
        /// The received value.
        received: String,
        /// The accepted values.
        accepted: String,
    },
    /// The folder holds something else.
    #[error("{path}: {why}")]
    Folder {
        /// The folder.
        path: String,
        /// The fault.
        why: String,
    },
    /// It was asked to end.
    #[error("stopped; `--resume` continues")]
    Stopped,
    /// A file or process.
    #[error("{what}: {source}")]
    Io {
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> RunnerError {
    let what = path.display().to_string();
    move |source| RunnerError::Io { what, source }
}

impl RunnerOptions {
    fn validate(&self, steps: &[Plan]) -> Result<(), RunnerError> {
        if !(self.seconds >= 1.0 && self.seconds <= WHOLE_S) {
            let (received, accepted) = (self.seconds.to_string(), format!("1 to {WHOLE_S} seconds"));
            return Err(RunnerError::Setting { what: "--seconds", received, accepted });
        }
        let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
        match self.only.iter().find(|name| !names.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(RunnerError::Setting {
                what: "--only",
                received: name.clone(),
                accepted: names.join(", "),
            }),
        }
    }
}

/// Runs the steps. `command` makes a step's process, which reports on its standard output what it
/// finds (`StepMessage`); `program` says which program that is, so that a folder is not gone on
/// with by another.
///
/// # Errors
/// [`RunnerError`]; what was complete is in the folder. Without a device nothing is left behind.
pub fn run(
    steps: &[Plan],
    options: &RunnerOptions,
    program: &str,
    command: &dyn Fn(&Plan, f64) -> Command,
    progress: &mut dyn FnMut(&str),
    stop: &AtomicBool,
) -> Result<Vec<StepReport>, RunnerError> {
    options.validate(steps)?;
    let mut folder = Folder::open(options, program)?;
    let wanted = |step: &Plan| options.only.is_empty() || options.only.iter().any(|name| name == step.name);
    for (number, step) in steps.iter().enumerate() {
        // Named steps are repeated, complete ones stay.
        if !wanted(step) || (options.only.is_empty() && folder.report(number, step).is_some()) {
            continue;
        }
        let (work_s, limit_s) = folder.time_for(steps, number, options.seconds);
        progress(&format!("{} of {}: {}: {}", number + 1, steps.len(), step.name, step.about));
        let ended = attend(command(step, work_s), limit_s, progress, stop);
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                folder.leave_nothing();
                return Err(error);
            }
        };
        if let Some(why) = ended.no_device {
            folder.leave_nothing();
            return Err(RunnerError::NoDevice(why));
        }
        folder.is_of(ended.device)?;
        let report =
            StepReport { step: step.name.to_owned(), about: step.about.to_owned(), work_s, ..ended.report };
        progress(&report.line());
        folder.write(number, step, &report)?;
        folder.write_summary(steps)?;
    }
    folder.write_summary(steps)?;
    Ok(folder.reports(steps))
}

/// The folder of the results.
struct Folder {
    path: PathBuf,
    about: About,
    /// Made by this run.
    fresh: bool,
}

impl Folder {
    fn open(options: &RunnerOptions, program: &str) -> Result<Self, RunnerError> {
        let path = options.out.clone();
        let wrong = |why: String| RunnerError::Folder { path: path.display().to_string(), why };
        let asked = About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            program: program.to_owned(),
            ordinal: options.ordinal,
            seconds: options.seconds,
            leave_settings: options.leave_settings,
            device: None,
        };
        // A named step goes into the folder that is there.
        if options.resume || (!options.only.is_empty() && path.join(ABOUT).exists()) {
            let text = takt_files::read_to_string(&path.join(ABOUT), 1 << 20)
                .map_err(|error| wrong(format!("no check to resume: {error}")))?;
            let about: About =
                serde_json::from_str(&text).map_err(|error| wrong(format!("{ABOUT}: {error}")))?;
            let before = About { device: None, ..about.clone() };
            if before != asked {
                return Err(wrong(format!(
                    "started as {}, now requested: {}. Use the same options and the same program, or another folder",
                    in_words(&before),
                    in_words(&asked)
                )));
            }
            return Ok(Self { path, about, fresh: false });
        }
        if path.join(ABOUT).exists() {
            return Err(wrong(
                "contains a check: `--resume` continues it, or name another folder".to_owned(),
            ));
        }
        let fresh = !path.exists();
        if !fresh && path.read_dir().map_err(io(&path))?.next().is_some() {
            return Err(wrong("is not empty: name an empty or new folder".to_owned()));
        }
        takt_files::make_folder(&path).map_err(io(&path))?;
        let folder = Self { path, about: asked, fresh };
        folder.write_about()?;
        Ok(folder)
    }

    fn write_about(&self) -> Result<(), RunnerError> {
        self.put(ABOUT, &self.about)
    }

    /// Whole or not at all: a check may be killed at any time.
    fn put(&self, name: &str, value: &impl Serialize) -> Result<(), RunnerError> {
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        self.put_text(name, &text)
    }

    fn put_text(&self, name: &str, text: &str) -> Result<(), RunnerError> {
        let path = self.path.join(name);
        takt_files::write(&path, text).map_err(io(&path))
    }

    fn file(number: usize, step: &Plan) -> String {
        format!("{:02}-{}.json", number + 1, step.name)
    }

    fn report(&self, number: usize, step: &Plan) -> Option<StepReport> {
        let text = takt_files::read_to_string(&self.path.join(Self::file(number, step)), 16 << 20).ok()?;
        serde_json::from_str(&text).ok()
    }

    fn reports(&self, steps: &[Plan]) -> Vec<StepReport> {
        steps.iter().enumerate().filter_map(|(number, step)| self.report(number, step)).collect()
    }

    fn write(&self, number: usize, step: &Plan, report: &StepReport) -> Result<(), RunnerError> {
        self.put(&Self::file(number, step), report)
    }

    /// Time for measuring, and the limit: what is left of the whole for the step that takes the
    /// rest.
    fn time_for(&self, steps: &[Plan], number: usize, seconds: f64) -> (f64, f64) {
        let (step, share) = (&steps[number], seconds / WHOLE_S);
        if step.work_s > 0.0 {
            return (step.work_s * share, step.limit_s);
        }
        let used: f64 = self.reports(steps).iter().map(|report| report.seconds).sum();
        let later: f64 = steps[number + 1..].iter().map(|step| step.limit_s).sum();
        let left_s = (WHOLE_S - used - later).max(step.limit_s);
        // Its own preparing and ending.
        ((left_s - step.limit_s / 2.0).min(WHOLE_S) * share, left_s)
    }

    /// The steps of one folder are of one device.
    fn is_of(&mut self, device: Option<Info>) -> Result<(), RunnerError> {
        let Some(device) = device else { return Ok(()) };
        match &self.about.device {
            Some(before) if before.uuid != device.uuid || before.driver_version != device.driver_version => {
                Err(RunnerError::Folder {
                    path: self.path.display().to_string(),
                    why: format!(
                        "was made on {} ({}, CUDA {}), but this is {} ({}, CUDA {}): name another folder",
                        before.name,
                        before.uuid,
                        crate::CudaVersion(before.driver_version),
                        device.name,
                        device.uuid,
                        crate::CudaVersion(device.driver_version)
                    ),
                })
            }
            Some(_) => Ok(()),
            None => {
                self.about.device = Some(device);
                self.write_about()
            }
        }
    }

    /// Takes away what this run has made, unless a step is complete.
    fn leave_nothing(&self) {
        let Ok(entries) = self.path.read_dir() else { return };
        let steps = entries
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().as_bytes()[0].is_ascii_digit());
        if self.fresh && steps.count() == 0 {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }

    fn write_summary(&self, steps: &[Plan]) -> Result<(), RunnerError> {
        let About { version, program, seconds, leave_settings, device, .. } = &self.about;
        let mut text = format!("takt gpu check, takt {version} ({program}), measurements of {seconds} s\n");
        if *leave_settings {
            text += "--leave-settings: without steps that change a setting of the machine\n";
        }
        match device {
            Some(info) => {
                let (major, minor) = info.compute_capability;
                text += &format!(
                    "{} ({}), sm_{major}{minor}, {} multiprocessors, {} MiB, driver for CUDA {}\n",
                    info.name,
                    info.uuid,
                    info.multiprocessors,
                    info.total_bytes >> 20,
                    crate::CudaVersion(info.driver_version)
                );
            }
            None => text += "device: not known yet\n",
        }
        for (number, step) in steps.iter().enumerate() {
            let Some(report) = self.report(number, step) else {
                text += &format!("\nNOT YET RUN  {}: {}\n", step.name, step.about);
                continue;
            };
            text += &format!("\n{}\n", report.line());
            for requirement in &report.requirements {
                text += &requirement.line();
                text.push('\n');
            }
        }
        self.put_text(SUMMARY, &text)
    }
}

fn in_words(about: &About) -> String {
    let About { version, program, ordinal, seconds, leave_settings, .. } = about;
    let left = if *leave_settings { " --leave-settings" } else { "" };
    format!("takt {version} ({program}) --ordinal {ordinal} --seconds {seconds}{left}")
}

impl StepReport {
    /// As a line for people.
    pub fn line(&self) -> String {
        let word = match self.outcome {
            Outcome::Passed => "PASSED",
            Outcome::Failed => "FAILED",
            Outcome::TimedOut => "TIMED OUT",
            Outcome::NotRun => "NOT RUN",
        };
        let missed = self.requirements.iter().filter(|r| r.reached == Some(false)).map(|r| r.what.clone());
        let why: Vec<String> = self.why.iter().cloned().chain(missed).collect();
        let colon = if why.is_empty() { "" } else { ": " };
        format!("{word:<13}{} ({:.1} s){colon}{}", self.step, self.seconds, why.join("; "))
    }
}
