//! GPU interference as a child process: the driver, which can hang and takes its process with it
//! when the device is lost, never comes into the process with the robot's threads.

use std::path::Path;
use std::time::Instant;

use super::{DeviceInfo, Interference, InterferenceWork, Line};
use crate::tool::Process;

/// The child.
#[derive(Debug)]
pub(crate) struct GpuLoad {
    process: Option<Process>,
    asked_to_end: bool,
    /// CPU time, and what it printed, once it has ended.
    ended: Option<(u64, String)>,
    why: Option<String>,
}

impl GpuLoad {
    /// Starts it in process group `group`; what was asked of it in words.
    pub(crate) fn start(
        program: &Path,
        arguments: &[String],
        config: &Interference,
        group: i32,
    ) -> Result<(Self, String), String> {
        let text = serde_json::to_string(config).map_err(|error| error.to_string())?;
        let mut all = arguments.to_vec();
        all.push(text.clone());
        let process = Process::start_with(program, &all, group, super::beside::variables())
            .map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
        Ok((Self { process: Some(process), asked_to_end: false, ended: None, why: None }, text))
    }

    /// Waits until its first piece of work has run on the device.
    pub(crate) fn await_ready(&mut self, until: Instant) -> Result<DeviceInfo, String> {
        loop {
            if let Some(why) = self.death() {
                return Err(why);
            }
            let printed = self.process.as_ref().map(Process::printed).unwrap_or_default();
            if let Some(device) = Line::all_in(&printed).find_map(|line| match line {
                Line::Ready(device) => Some(device),
                _ => None,
            }) {
                return Ok(device);
            }
            if Instant::now() > until {
                return Err("no work has run on the device".into());
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Why it works no more.
    pub(crate) fn death(&mut self) -> Option<String> {
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

    /// Ends it; CPU time and the work done, as far as it has reported.
    pub(crate) fn end(&mut self) -> (u64, InterferenceWork) {
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
