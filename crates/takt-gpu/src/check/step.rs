//! One step of `takt gpu check`, in a process of its own: what it says while it works, a line of
//! JSON each.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::Requirement;
use crate::error::GpuError;
use crate::gpu::Info;

/// Message of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepMessage {
    /// The part that begins, which shows where a step was when its time limit ended it.
    Progress(String),
    /// The device that it works on.
    Device(Info),
    /// A requirement, judged.
    Requirement(Requirement),
    /// A figure, or several, under a name.
    Figure(String, serde_json::Value),
    /// The step cannot be run here, and why; nothing failed.
    NotRun(String),
    /// There is no device: no step can be run.
    NoDevice(String),
    /// It ended by an error.
    Failed(String),
    /// It is complete.
    Done,
}

/// Reason why a step ends early.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A requirement is missing here, which is not a failure of the device.
    #[error("{0}")]
    NotRun(String),
    /// Something failed.
    #[error("{0}")]
    Failed(String),
    /// The device.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

/// Input of a step.
pub struct Step<'a> {
    /// Number of the GPU.
    pub ordinal: u32,
    /// Time for measuring, seconds. Preparing comes on top.
    pub work_s: f64,
    send: &'a mut dyn FnMut(StepMessage),
    /// The device is emulated: times do not count.
    emulated: bool,
}

impl std::fmt::Debug for Step<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Step")
            .field("ordinal", &self.ordinal)
            .field("work_s", &self.work_s)
            .finish_non_exhaustive()
    }
}

impl<'a> Step<'a> {
    /// A step whose words go to `send`.
    pub fn new(ordinal: u32, work_s: f64, send: &'a mut dyn FnMut(StepMessage)) -> Self {
        Self { ordinal, work_s, send, emulated: false }
    }

    /// Reports on which device it works; from now on it is known whether times count.
    pub fn device(&mut self, info: &Info) {
        self.emulated = info.emulated;
        (self.send)(StepMessage::Device(info.clone()));
    }

    /// Whether the device is the emulated one.
    pub fn is_emulated(&self) -> bool {
        self.emulated
    }

    /// Reports what begins.
    pub fn progress(&mut self, what: impl Into<String>) {
        (self.send)(StepMessage::Progress(what.into()));
    }

    /// Judges what counts on every device: results, order, words.
    pub fn judge(&mut self, what: &str, measured: impl Into<String>, reached: bool) {
        (self.send)(StepMessage::Requirement(Requirement::measured(what, measured.into(), reached)));
    }

    /// Judges a time, which says nothing where the device is emulated.
    pub fn judge_time(&mut self, what: &str, measured: impl Into<String>, reached: bool) {
        let requirement = Requirement::measured(what, measured.into(), reached);
        let requirement = if self.emulated {
            requirement.does_not_count("the GPU is emulated, so its times say nothing about a real GPU")
        } else {
            requirement
        };
        (self.send)(StepMessage::Requirement(requirement));
    }

    /// Reports of a requirement that could not be judged here.
    pub fn not_run(&mut self, what: &str, why: impl Into<String>) {
        (self.send)(StepMessage::Requirement(Requirement::not_run(what, why)));
    }

    /// Reports a figure.
    pub fn figure(&mut self, name: &str, value: impl Serialize) {
        let value = serde_json::to_value(value).unwrap_or(serde_json::Value::Null);
        (self.send)(StepMessage::Figure(name.to_owned(), value));
    }
}

impl StepMessage {
    /// Prints it as a line; a reader that is gone is the runner's end, which takes this process
    /// with it.
    pub fn print(&self) {
        if let Ok(text) = serde_json::to_string(self) {
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(format!("{text}\n").as_bytes()).and_then(|()| out.flush());
        }
    }
}

/// This process is a step's.
static OWN_PROCESS: AtomicBool = AtomicBool::new(false);

/// The error of work that does not end. The process of a step ends at once, without destructors: a
/// driver that unloads a module or frees memory waits for what runs, and so for ever.
pub fn hung(what: &str, seconds: u64) -> String {
    let why = format!("{what}: did not end within {seconds} s");
    if OWN_PROCESS.load(Ordering::Relaxed) {
        StepMessage::Failed(why).print();
        // SAFETY: ends the process; what it had to say is said and flushed.
        unsafe { libc::_exit(1) };
    }
    why
}

/// Runs `body` as the step of this process; its words go to standard output. Whether it was
/// complete.
pub fn run(ordinal: u32, work_s: f64, body: impl FnOnce(&mut Step<'_>) -> Result<(), StepError>) -> bool {
    OWN_PROCESS.store(true, Ordering::Relaxed);
    let mut send = |message: StepMessage| message.print();
    let outcome = body(&mut Step::new(ordinal, work_s, &mut send));
    let last = match outcome {
        Ok(()) => StepMessage::Done,
        Err(StepError::NotRun(why)) => StepMessage::NotRun(why),
        Err(StepError::Gpu(error))
            if matches!(
                error,
                GpuError::NoDriver { .. } | GpuError::DriverTooOld { .. } | GpuError::NoDevice { .. }
            ) =>
        {
            StepMessage::NoDevice(error.to_string())
        }
        Err(error) => StepMessage::Failed(error.to_string()),
    };
    last.print();
    last == StepMessage::Done
}
