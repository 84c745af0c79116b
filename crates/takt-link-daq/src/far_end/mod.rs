//! A plant at the far end of a link, in a process of its own.
//!
//! A loopback without a controller has an echo thread at its far end. A controller needs something
//! to steer, and that must not stand in its own process: simulated beside the controller, a plant
//! waits for it, and lateness never shows. So the far end becomes a process that keeps its own
//! time: it gets the drive level with each pulse level, and sends back the pulse level with what
//! its sensors show. Its behaviour between two of these is defined by [`FarEnd`].

mod near;
mod serve;

pub(crate) use near::FarProcess;
pub use serve::{Make, serve};

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use takt_rt::memory::MemoryLock;
use takt_rt::settings::{Granted, ThreadSettings};

use crate::config::EchoConfig;

/// Longest sleep of an echo thread before it checks whether it must end, milliseconds.
pub const STOP_LATENCY_MS: u64 = 100;

/// Written to end what waits at an eventfd; no sum of levels reaches it.
pub(crate) const END: u64 = 1 << 62;

/// Far end that keeps its own time.
pub trait FarEnd: Send {
    /// The levels of both sensors at `now_ns` (CLOCK_MONOTONIC). Until then the input had the level
    /// of the call before, from then on it has `drive_v`. Called by a real-time thread: no
    /// allocation, no blocking.
    fn exchange(&mut self, now_ns: u64, drive_v: f64) -> [f64; 2];

    /// Its observations, for the run directory.
    fn report(&self) -> serde_json::Value;
}

/// Hidden subcommand of `takt` that is a far end.
pub const FAR_END_COMMAND: &str = "daq-far-end";

/// The program that calls [`serve`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables added to its environment.
    pub variables: Vec<(OsString, OsString)>,
}

static PROGRAM: OnceLock<Program> = OnceLock::new();

/// Names the program of far ends for this process, once. By default it is this very program with
/// [`FAR_END_COMMAND`]; programs that have no such subcommand (tests) say what to start instead.
/// False where it was named before.
pub fn set_program(program: Program) -> bool {
    PROGRAM.set(program).is_ok()
}

fn program() -> std::io::Result<Program> {
    if let Some(program) = PROGRAM.get() {
        return Ok(program.clone());
    }
    let path = std::env::current_exe()?;
    Ok(Program { path, arguments: vec![FAR_END_COMMAND.into()], variables: Vec::new() })
}

/// The far end that a link is opened with.
#[derive(Clone, Debug)]
pub struct FarEndSetup {
    /// Description of the far end, for the program of [`serve`].
    pub description: serde_json::Value,
    /// Memory locking of its process.
    pub lock_memory: MemoryLock,
}

impl FarEndSetup {
    /// Settings of the thread that serves: those of the echo thread, and the memory lock that a
    /// process of its own needs.
    pub(crate) fn settings(&self, echo: &EchoConfig) -> ThreadSettings {
        ThreadSettings { lock_memory: self.lock_memory, ..echo.settings() }
    }
}

/// Connection to a far end; its file descriptors come separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub(crate) enum Wire {
    /// One socket that keeps the boundaries of messages. Every n-th message is dropped; 0: none.
    Datagrams {
        /// See there.
        drop_every: u32,
    },
    /// A terminal in raw mode.
    Stream,
    /// Two event counters and a socket for the levels.
    Counters,
}

/// First message of the near end.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    wire: Wire,
    settings: ThreadSettings,
    description: serde_json::Value,
}

/// Answer of the far end: once when it is ready or has failed, once at its end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ready(Box<Granted>),
    Refused(String),
    Report(serde_json::Value),
}
