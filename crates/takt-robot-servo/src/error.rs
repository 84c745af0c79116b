//! Errors that keep a stream from starting.

use takt_link_rtde::RtdeError;
use takt_link_rtde::servo::ProgramState;
use takt_rt::config::SettingError;
use thiserror::Error;

/// Reason why a stream does not start, or cannot be judged.
#[derive(Debug, Error)]
pub enum ServoError {
    /// A setting is out of its range.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The link to the robot.
    #[error(transparent)]
    Link(#[from] RtdeError),
    /// A thread.
    #[error(transparent)]
    RealTime(#[from] takt_rt::Error),
    /// The robot is not ready to follow.
    #[error("the robot is not ready: {what}; {fix}")]
    NotReady { what: String, fix: &'static str },
    /// The controller's log is not what the simulated controller writes.
    #[error("controller's log, line {line}: {problem}")]
    Log {
        /// Counted from 1.
        line: usize,
        problem: String,
    },
    #[error("{0}")]
    File(String),
}

/// Error in a program's state for a stream that is about to begin.
pub(crate) fn not_ready(program: ProgramState, running: bool) -> Option<ServoError> {
    let not_ready = |what: String, fix| Some(ServoError::NotReady { what, fix });
    if !running {
        return not_ready(
            "no program runs".to_owned(),
            "load takt_servo.script and press play (see its first lines)",
        );
    }
    match program {
        ProgramState::Waiting => None,
        ProgramState::Foreign(value) => not_ready(
            format!(
                "output_int_register_30 is {value}, but takt_servo.script sets it to {} while it waits",
                ProgramState::Waiting.to_register()
            ),
            "the robot runs another program or another version of this one: load the script of this release",
        ),
        state => not_ready(
            format!("its program does not wait for a stream but is in state {state:?}"),
            "stop the other sender, or press stop and play",
        ),
    }
}
