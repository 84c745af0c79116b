//! Interference on a GPU: what is asked of it, and what the process that does it answers. The work
//! itself is `takt-gpu`'s, in a process of its own, so that programs without a robot that uses a
//! GPU are built without it.

#![deny(missing_docs)]

mod beside;
mod process;

use serde::{Deserialize, Serialize};
use takt_rt::config::{SettingError, within};

pub use crate::tool::{SUBCOMMAND, Variables};
pub use beside::Beside;
pub use process::{GpuLoad, GpuLoadError};

/// Urgency of a stream's work among the work of the device. Between kernels and at block boundaries
/// only: a block that runs is never stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// The least that the device has: interference and whatever can wait.
    Background,
    /// Between the two others.
    #[default]
    Normal,
    /// The greatest: camera work.
    Critical,
}

/// Kind of interference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuLoadKind {
    /// Arithmetic: occupies multiprocessors.
    #[default]
    Compute,
    /// Reads and writes of the device's memory: occupies its bus and its cache.
    Memory,
    /// Copies from and to the host: occupies the copy engines and PCIe.
    Copies,
}

/// Amount and urgency of interference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Interference {
    /// Kind of interference. Default compute: it delays whatever comes after it by its whole
    /// kernel.
    pub kind: GpuLoadKind,
    /// Number of the GPU. Default 0.
    pub ordinal: u32,
    /// Streams, 1 to 32, each with its own pieces of work ahead and its own memory, all served by
    /// one thread. Default 4: a heavy user of a GPU has several (an inference server one for each
    /// model instance and a training job others for copies and collectives), and work without a
    /// priority then waits for the kernels of all of them, not of one.
    pub streams: u32,
    /// Share of the multiprocessors that the blocks of a kernel fill, 0.01 to 4; above 1 blocks
    /// queue up. Default 1: another program's kernel fills the device.
    pub share: f64,
    /// Length of a compute kernel, microseconds, 10 to 1,000,000. Default 2000: layers of a large
    /// network take so long, and a kernel's blocks are not stopped for anybody.
    pub kernel_us: u64,
    /// MiB that a memory kernel or a copy of one stream moves, 1 to 16384; each stream takes twice
    /// as much of the device's memory. Default 64: more than the cache of any GPU.
    pub mib: u64,
    /// Share of the time that the device is kept at work, 0.01 to 1. Default 1.
    pub duty: f64,
    /// Priority of its streams. Default normal, what other programs have; background is what a
    /// well-behaved one would take.
    pub priority: Priority,
}

impl Default for Interference {
    fn default() -> Self {
        Self {
            kind: GpuLoadKind::Compute,
            ordinal: 0,
            streams: 4,
            share: 1.0,
            kernel_us: 2000,
            mib: 64,
            duty: 1.0,
            priority: Priority::Normal,
        }
    }
}

impl Interference {
    /// Checks every value.
    ///
    /// # Errors
    /// The first that is out of bounds.
    pub fn validate(&self) -> Result<(), SettingError> {
        within("streams", f64::from(self.streams), 1.0, 32.0)?;
        within("share", self.share, 0.01, 4.0)?;
        within("duty", self.duty, 0.01, 1.0)?;
        within("kernel_us", self.kernel_us as f64, 10.0, 1e6)?;
        within("mib", self.mib as f64, 1.0, 16_384.0)
    }
}

/// Work done, the proof that it was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct InterferenceWork {
    /// Kernels or pairs of copies that have ended.
    pub launches: u64,
    /// Bytes moved, read and written ones both.
    pub bytes: u64,
    /// From their starts to their ends on the device, all together: with several streams more than
    /// passes, and under contention this holds waiting too.
    pub device_ns: u64,
    /// CPU time of its thread.
    pub cpu_ns: u64,
}

/// The device that it works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Its name; the emulated device says that it is one.
    pub name: String,
    /// Its identity, as `nvidia-smi -L` prints it.
    pub uuid: String,
    /// It is the emulated device of the tests: nothing measured on it says anything about a GPU.
    pub emulated: bool,
}

/// Output of the process, one JSON value per line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first piece of work has run on this device.
    Ready(DeviceInfo),
    /// Work done so far.
    Work(InterferenceWork),
    /// It ends for this reason.
    Failed(String),
}

impl Line {
    /// Prints it.
    pub fn print(&self) {
        use std::io::Write;
        if let Ok(text) = serde_json::to_string(self) {
            // In one piece, and on a line of its own whatever stands before it. That nobody reads
            // it is no reason to stop.
            let _ = std::io::stdout().lock().write_all(format!("\n{text}\n").as_bytes());
        }
    }

    /// The lines in `printed`; everything else in it is passed over.
    pub(crate) fn all_in(printed: &str) -> impl DoubleEndedIterator<Item = Self> {
        printed.lines().filter_map(|line| serde_json::from_str(line).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_bounds_are_named() {
        assert!(Interference::default().validate().is_ok());
        for (config, word) in [
            (Interference { streams: 0, ..Default::default() }, "streams"),
            (Interference { streams: 33, ..Default::default() }, "streams"),
            (Interference { share: f64::NAN, ..Default::default() }, "share"),
            (Interference { duty: 0.0, ..Default::default() }, "duty"),
            (Interference { kernel_us: 5, ..Default::default() }, "kernel_us"),
            (Interference { mib: 0, ..Default::default() }, "mib"),
        ] {
            let text = config.validate().unwrap_err().to_string();
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn lines_are_found_among_others() {
        let work = InterferenceWork { launches: 3, bytes: 4, device_ns: 5, cpu_ns: 6 };
        let text = serde_json::to_string(&Line::Work(work)).unwrap();
        let printed = format!("running 1 test\n{text}\nwarning: x\n{{\"failed\":\"why\"}}\n{{\"work\"");
        assert_eq!(
            Line::all_in(&printed).collect::<Vec<_>>(),
            [Line::Work(work), Line::Failed("why".into())]
        );
    }
}
