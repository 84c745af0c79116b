//! Sharing of a device between this program and others: the driver's means besides the streams of
//! one program.
//!
//! [`Sharing::begin`] starts MPS where none runs, or sets the length of time slices, and gives the
//! environment for the programs of both sides. When [`Shared`] is dropped, and when this process is
//! killed, started programs end and settings are restored: a shell waits for its end (`guard`).

mod guard;
mod slices;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use takt_load::gpu::{Beside, Variables};

use crate::mps::{self, MEMORY_VARIABLE, Mps, PIPE_VARIABLE, SHARE_VARIABLE};
use guard::Daemon;

pub use slices::Slice;

/// No service is there: a program that finds none at this place works without one.
const NO_SERVICE: &str = "/nonexistent/takt-without-mps";

/// The driver's treatment of the work of several programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharingMode {
    /// The present state: MPS if it runs, otherwise taking turns. The default: nothing is started,
    /// nothing is set.
    #[default]
    AsIs,
    /// By turns, also where MPS runs.
    Turns,
    /// By turns, whose length is `slice`. Root's to set; a setting of the whole machine, restored
    /// at the end.
    TimeSlices,
    /// Side by side under MPS, which is started where it does not run, and then ends with the run.
    Mps,
}

/// Sharing of the device (`[perception.gpu.sharing]`).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sharing {
    /// Order of the programs' work.
    pub way: SharingMode,
    /// Most of the multiprocessors that this program may use under MPS, per cent, 1 to 100. Unset:
    /// all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<u32>,
    /// The same for GPU interference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others_percent: Option<u32>,
    /// Most of the device's memory that this program may take under MPS, MiB, 64 to 1048576. Unset:
    /// all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// The same for GPU interference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others_memory_mib: Option<u64>,
    /// Length of a time slice with `way = "time-slices"`.
    pub slice: Slice,
}

/// Reason why a device cannot be shared this way, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SharingError {
    /// The driver's tool is not here, or does not do it.
    #[error("{tool}: {why}. Fix: {fix}")]
    Tool {
        /// Its name.
        tool: &'static str,
        /// The obstacle.
        why: String,
        /// The remedy.
        fix: &'static str,
    },
    /// Somebody else shares the device in a way of their own.
    #[error(
        "another run holds {lock} and shares GPU {ordinal} in its own way. Fix: wait until that run ends"
    )]
    Taken {
        /// The file.
        lock: String,
        /// Number of the GPU.
        ordinal: u32,
    },
    /// The system refused something.
    #[error("{what}: {why}")]
    System {
        /// The attempt.
        what: String,
        /// The answer.
        why: String,
    },
}

/// A setting that is not accepted: its name, what was given, what would do.
pub type Unaccepted = (&'static str, String, &'static str);

impl Sharing {
    /// Checks every value.
    ///
    /// # Errors
    /// The first that is not accepted.
    pub fn validate(&self) -> Result<(), Unaccepted> {
        for (name, value) in [
            ("gpu.sharing.share_percent", self.share_percent),
            ("gpu.sharing.others_percent", self.others_percent),
        ] {
            match value {
                Some(value) if !(1..=100).contains(&value) => {
                    return Err((name, value.to_string(), "1 to 100"));
                }
                Some(value) if self.way != SharingMode::Mps => {
                    return Err((name, value.to_string(), "a share with gpu.sharing.way = \"mps\""));
                }
                _ => {}
            }
        }
        for (name, value) in [
            ("gpu.sharing.memory_mib", self.memory_mib),
            ("gpu.sharing.others_memory_mib", self.others_memory_mib),
        ] {
            match value {
                Some(value) if !(64..=1 << 20).contains(&value) => {
                    return Err((name, value.to_string(), "64 to 1048576"));
                }
                Some(value) if self.way != SharingMode::Mps => {
                    return Err((name, value.to_string(), "a limit with gpu.sharing.way = \"mps\""));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Shares device `ordinal` so from now on. GPU interference that this process starts later is
    /// reported, too.
    ///
    /// # Errors
    /// [`SharingError`]; nothing is left started or set.
    pub fn begin(&self, ordinal: u32) -> Result<Shared, SharingError> {
        let mut shared = Shared {
            own: Vec::new(),
            others: Vec::new(),
            reported: String::new(),
            beside: None,
            started: None,
        };
        match self.way {
            SharingMode::AsIs => {
                return Ok(Shared { reported: format!("as it is: {}", mps::look()), ..shared });
            }
            SharingMode::Turns => shared.reported = "taking turns".to_owned(),
            SharingMode::TimeSlices => {
                let set = slices::Set::new(ordinal, self.slice)?;
                shared.reported =
                    format!("taking turns, {} time slices (before: {})", self.slice, set.before());
                shared.started = Some(Started::Slices(set));
            }
            SharingMode::Mps => {
                let pipe = match mps::look() {
                    Mps::Running(pipe) => {
                        shared.reported = format!("MPS running at {}", pipe.display());
                        pipe
                    }
                    Mps::Absent(_) => {
                        let daemon = Daemon::start(ordinal)?;
                        let pipe = daemon.pipe();
                        shared.reported = format!("MPS, started for this at {}", pipe.display());
                        shared.started = Some(Started::Mps(daemon));
                        pipe
                    }
                };
                shared.own = limits(&pipe, ordinal, self.share_percent, self.memory_mib);
                shared.others = limits(&pipe, ordinal, self.others_percent, self.others_memory_mib);
                for (whose, variables) in [("", &shared.own), ("others ", &shared.others)] {
                    for (name, value) in &variables[1..] {
                        shared.reported += &format!(", {whose}{}={}", name.display(), value.display());
                    }
                }
            }
        }
        if self.way != SharingMode::Mps {
            shared.own = vec![(PIPE_VARIABLE.into(), NO_SERVICE.into())];
            shared.others.clone_from(&shared.own);
        }
        shared.beside = Some(Beside::set(shared.others.clone()));
        Ok(shared)
    }
}

fn limits(pipe: &Path, ordinal: u32, percent: Option<u32>, memory_mib: Option<u64>) -> Variables {
    let mut variables: Variables = vec![(PIPE_VARIABLE.into(), pipe.into())];
    variables.extend(percent.map(|percent| (SHARE_VARIABLE.into(), percent.to_string().into())));
    variables.extend(memory_mib.map(|mib| (MEMORY_VARIABLE.into(), format!("{ordinal}={mib}M").into())));
    variables
}

/// A device shared as asked for, until this is dropped.
#[derive(Debug)]
pub struct Shared {
    own: Variables,
    others: Variables,
    reported: String,
    beside: Option<Beside>,
    started: Option<Started>,
}

#[derive(Debug)]
enum Started {
    Mps(Daemon),
    Slices(slices::Set),
}

impl Shared {
    /// Environment for the programs of this side, to be given at their start.
    pub fn own(&self) -> &[(OsString, OsString)] {
        &self.own
    }

    /// Environment for the other programs on the device.
    pub fn others(&self) -> &[(OsString, OsString)] {
        &self.others
    }

    pub fn in_words(&self) -> &str {
        &self.reported
    }

    /// Ends what was started and restores what was set.
    ///
    /// # Errors
    /// The remains, in a sentence.
    pub fn end(mut self) -> Result<(), SharingError> {
        self.beside = None;
        match self.started.take() {
            None => Ok(()),
            Some(Started::Mps(daemon)) => daemon.end(),
            Some(Started::Slices(set)) => set.end(),
        }
    }
}

/// Path of `program` on the PATH.
fn find(program: &'static str, fix: &'static str) -> Result<PathBuf, SharingError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| SharingError::Tool { tool: program, why: "is not on the PATH".to_owned(), fix })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_the_services_alone() {
        let mps = Sharing { way: SharingMode::Mps, share_percent: Some(70), ..Sharing::default() };
        assert!(mps.validate().is_ok() && Sharing::default().validate().is_ok());
        for (wrong, word) in [
            (Sharing { way: SharingMode::Turns, ..mps }, "gpu.sharing.share_percent"),
            (Sharing { others_percent: Some(0), ..mps }, "gpu.sharing.others_percent"),
            (Sharing { memory_mib: Some(63), ..mps }, "gpu.sharing.memory_mib"),
            (Sharing { others_memory_mib: Some(100), ..Sharing::default() }, "gpu.sharing.others_memory_mib"),
        ] {
            assert_eq!(wrong.validate().unwrap_err().0, word);
        }
    }

    #[test]
    fn limits_are_written_as_the_driver_reads_them() {
        let message = limits(Path::new("/run/pipe"), 1, Some(30), Some(512));
        let message: Vec<String> =
            message.iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect();
        assert_eq!(
            message,
            [
                "CUDA_MPS_PIPE_DIRECTORY=/run/pipe",
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30",
                "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=1=512M"
            ]
        );
    }

    #[test]
    fn a_file_says_it_in_the_documented_words() {
        let read = |text: &str| serde_json::from_str::<Sharing>(text).map_err(|error| error.to_string());
        assert_eq!(read(r#"{"way":"time-slices","slice":"short"}"#).unwrap().slice, Slice::Short);
        let error = read(r#"{"way":"mpp"}"#).unwrap_err();
        assert!(error.contains("time-slices") && error.contains("as-is"), "{error}");
    }
}
