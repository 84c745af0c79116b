//! Errors of the lab.

use std::path::PathBuf;

use takt_rt::config::SettingError;

use crate::envelope::ConfigError;
use crate::robot::NoCriticalThread;

/// Errors of the lab. Each names what was found and the way out.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A file or folder could not be read or written, or is not what it should be.
    #[error(transparent)]
    Files(#[from] takt_rundir::Error),
    /// Figures or the verdict of a run could not be made.
    #[error(transparent)]
    Figures(#[from] takt_report::Error),
    /// A configuration file cannot be run.
    #[error("{file}: {}", takt_files::shortened(cause.to_string().trim_end()))]
    File {
        /// The file, or what stands for it.
        file: String,
        /// The reason.
        #[source]
        cause: ConfigError,
    },
    /// There is no such file of a robot.
    #[error(
        "{path}: {found}. Built-in robots are {}: `takt run NAME` runs one without a file, and `takt robots show NAME` prints its \
         file", shipped.join(", "), path = path.display()
    )]
    NoRobotFile {
        /// The file.
        path: PathBuf,
        /// The system's answer, and files that are there instead.
        found: String,
        /// The built-in robots.
        shipped: Vec<&'static str>,
    },
    /// A name is neither a file's nor that of a built-in robot.
    #[error("\"{name}\": no file and no built-in robot has that name; built-in robots: {}{meant}", shipped.join(", "))]
    NoRobot {
        /// The name.
        name: String,
        /// The built-in robots.
        shipped: Vec<&'static str>,
        /// The one that was probably meant, as the end of a sentence.
        meant: String,
    },
    /// A file without the key `robot` has keys that the robot which is assumed then does not have.
    #[error(
        "{source}\nWithout the key `robot`, the file is read as one of the robot \"{assumed}\". Name the robot in the first line, robot = \
         \"NAME\"; the robots are {}", known.join(", ")
    )]
    Unnamed {
        /// Reason why it is not that robot's.
        source: Box<LabError>,
        /// The robot.
        assumed: &'static str,
        /// All robots.
        known: Vec<&'static str>,
    },
    /// A trace has no thread of that name or id.
    #[error(
        "{what}: no thread has the name or id \"{thread}\". The closest of the {seen} names seen: {}. A name has at most 15 characters; \
         `ps -eLo tid,comm` lists the running threads", near.join(", ")
    )]
    NoThread {
        /// The file or the state that was examined.
        what: String,
        /// The name or the id.
        thread: String,
        /// The names most like it.
        near: Vec<String>,
        /// Number of names.
        seen: usize,
    },
    /// An option, or a file of the lab's own, is wrong.
    #[error("{0}")]
    Config(String),
    /// A value that a setting does not take.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A claim about a measure that the robot has not.
    #[error(transparent)]
    Claim(#[from] takt_rundir::HeaderError),
    /// A recorder cannot be made.
    #[error(transparent)]
    Recorder(#[from] takt_stats::RecorderError),
    /// The robot has no thread that a trace explains.
    #[error(transparent)]
    Critical(#[from] NoCriticalThread),
    /// The kernel cannot be traced, or the trace cannot be matched.
    #[error(transparent)]
    Trace(#[from] takt_trace::TraceError),
    /// A recorded trace cannot be read.
    #[error(transparent)]
    Recorded(#[from] takt_trace::offline::OfflineError),
    /// The requested value cannot be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The requested value cannot be written as TOML.
    #[error(transparent)]
    Toml(#[from] toml::ser::Error),
    /// Something that was there once is asked for again.
    #[error("{0} no longer exists: this is a bug in Takt, please report it")]
    Internal(&'static str),
    /// A robot could not be started, or broke.
    #[error(transparent)]
    Robot(Box<dyn std::error::Error + Send + Sync>),
    /// Runs could not be had from those who were to make them.
    #[error(transparent)]
    Executor(Box<dyn std::error::Error + Send + Sync>),
    /// Interference could not be started.
    #[error("interference: {0}")]
    Load(#[from] takt_load::LoadError),
    /// Interference could not be kept on its CPUs.
    #[error("interference: {0}")]
    LoadPlacement(#[source] takt_rt::Error),
    /// A task could not be started.
    #[error(transparent)]
    Runtime(#[from] takt_rt::Error),
    /// A kernel is not to be had.
    #[error(transparent)]
    Kernel(#[from] takt_kernels::packages::PackageError),
    /// A campaign was ended before its last run.
    #[error("stopped. The results so far are in {dir}; `takt campaign resume {dir}` continues", dir = dir.display())]
    Stopped {
        /// The campaign's folder.
        dir: PathBuf,
    },
    /// A campaign goes on elsewhere than it began.
    #[error(
        "{dir}: its runs were made on a machine where {}. Runs from both machines are not comparable. Start a new campaign, or pass \
         --any-machine, and the table will list the differences",
        .differences.iter().map(|d| format!("{} was {} (now {})", d.fact, d.before, d.after)).collect::<Vec<_>>().join(", "),
        dir = dir.display()
    )]
    OtherMachine {
        /// The campaign's folder.
        dir: PathBuf,
        /// The differences.
        differences: Vec<takt_rundir::FactDifference>,
    },
    /// A resumed bench was asked with other parameters than before.
    #[error("{dir} was measured with {before}, but {now} is requested now; omit --resume to start a new bench", dir = dir.display())]
    OtherBench {
        /// The bench directory.
        dir: PathBuf,
        /// The stored configuration.
        before: String,
        /// The configuration requested now.
        now: String,
    },
}

/// Last message of a `takt` that failed, without its own name; `stderr` is its complete standard
/// error.
pub fn last_words(stderr: &str) -> Option<&str> {
    let line = stderr.lines().rev().find(|line| line.starts_with("takt: "))?;
    Some(line.trim_start_matches("takt: "))
}

impl LabError {
    /// A robot's own error.
    pub fn robot(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Robot(Box::new(error))
    }

    /// A configuration that was read from `file`.
    pub fn file(file: &str) -> impl FnOnce(ConfigError) -> Self {
        move |cause| Self::File { file: file.to_owned(), cause }
    }

    /// An input or output error of `path`.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let wrap = takt_rundir::Error::io(path);
        move |source| Self::Files(wrap(source))
    }

    /// `path` holds something else than it should.
    pub fn damaged(path: impl Into<PathBuf>, found: impl Into<String>, expected: &'static str) -> Self {
        Self::Files(takt_rundir::Error::Damaged { path: path.into(), found: found.into(), expected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_the_programs_own() {
        assert_eq!(last_words("takt: first\ntakt: second\nCaused by: a kernel\n"), Some("second"));
        assert_eq!(last_words("a library said something"), None);
    }
}
