//! GPU interference as a child process: the driver, which can hang and takes its process with it
//! when the device is lost, never comes into the process with the robot's threads.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::{DeviceInfo, Interference, InterferenceWork, Line};
use crate::tool::Process;

/// Reason why there is no such process, or none that works.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GpuLoadError {
    /// It cannot be started.
    #[error("{} cannot be run: {source}", program.display())]
    Run {
        /// The one that was to work on the GPU.
        program: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The request cannot be passed on.
    #[error("request to the GPU's load: {0}")]
    Asked(#[from] serde_json::Error),
    /// It has ended, with what it said of it.
    #[error("{0}")]
    Ended(String),
    /// It runs, and its first piece of work does not end.
    #[error("no work ran on the device")]
    Silent,
}

/// The child. It is killed where this is dropped without [`end`](Self::end).
#[derive(Debug)]
pub struct GpuLoad {
    process: Option<Process>,
    asked_to_end: bool,
    /// CPU time, and what it printed, once it has ended.
    ended: Option<(u64, String)>,
    why: Option<String>,
}

impl GpuLoad {
    /// Starts it in process group `group`; what was asked of it in words.
    pub(crate) fn in_group(
        program: &Path,
        arguments: &[String],
        config: &Interference,
        group: i32,
    ) -> Result<(Self, String), GpuLoadError> {
        let mut command = Command::new(program);
        command.args(arguments).envs(super::beside::variables()).process_group(group);
        Self::start(command, config)
    }

    /// Starts `command`, which does the work that it is given as its last argument; that argument.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn start(mut command: Command, config: &Interference) -> Result<(Self, String), GpuLoadError> {
        let asked = serde_json::to_string(config)?;
        command.arg(&asked);
        let process = Process::spawn(&mut command)
            .map_err(|source| GpuLoadError::Run { program: command.get_program().into(), source })?;
        Ok((Self { process: Some(process), asked_to_end: false, ended: None, why: None }, asked))
    }

    /// Waits until its first piece of work has run on the device.
    ///
    /// # Errors
    /// It has ended, or nothing has run until then.
    pub fn await_ready(&mut self, until: Instant) -> Result<DeviceInfo, GpuLoadError> {
        loop {
            if let Some(why) = self.death() {
                return Err(GpuLoadError::Ended(why));
            }
            let printed = self.process.as_ref().map(Process::printed).unwrap_or_default();
            if let Some(device) = Line::all_in(&printed).find_map(|line| match line {
                Line::Ready(device) => Some(device),
                _ => None,
            }) {
                return Ok(device);
            }
            if Instant::now() > until {
                return Err(GpuLoadError::Silent);
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Reason why it no longer works.
    pub fn death(&mut self) -> Option<String> {
        if let Some(process) = &mut self.process
            && let Some(ended) = process.reap(false)
        {
            if !self.asked_to_end {
                let message = Line::all_in(&ended.output).find_map(|line| match line {
                    Line::Failed(why) => Some(why),
                    _ => None,
                });
                self.why = Some(message.unwrap_or_else(|| ended.why()));
            }
            self.ended = Some((ended.cpu_ns, ended.output));
            self.process = None;
        }
        self.why.clone()
    }

    pub(crate) fn ask_to_end(&mut self) {
        if let (Some(process), false) = (&self.process, self.asked_to_end) {
            process.signal(libc::SIGTERM);
            self.asked_to_end = true;
        }
    }

    /// Asks it to end, and kills it only where it does not within seconds: under MPS a client that
    /// is killed at work leaves a server that takes no new ones for a while (CUDA error 807, seen
    /// on an H200). CPU time and the work done, as far as it has reported.
    pub fn end(&mut self) -> (u64, InterferenceWork) {
        self.ask_to_end();
        if let Some(ended) = self.process.take().and_then(|mut process| process.await_end()) {
            self.ended = Some((ended.cpu_ns, ended.output));
        }
        let Some((cpu_ns, printed)) = &self.ended else { return Default::default() };
        let mut reported = Line::all_in(printed).filter_map(|line| match line {
            Line::Work(work) => Some(work),
            _ => None,
        });
        (*cpu_ns, reported.next_back().unwrap_or_default())
    }
}
