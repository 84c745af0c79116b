//! The preload probe: a library that stands before ROS 2's `libtracetools.so` in the processes that
//! are started under it, and the reader of what it writes. The application is neither rebuilt nor
//! configured, and LTTng neither needed nor disturbed.
//!
//! ```text
//! process: rclcpp ─► ros_trace_* (libtakt_probe.so) ─► ring of the thread ──┐  PID-TIME.ring in the session's directory (tmpfs)
//!                          └─► ros_trace_* (libtracetools.so, LTTng)         │
//! reader:                            Probe: Source  ◄── merged by time ◄─────┘
//! ```
//!
//! Limits: it cannot attach to a process that already runs (see [`crate::uprobes`]), and it cannot
//! observe set-user-ID programs, statically linked ones, processes of another user than the
//! session's, or those in a container that does not see the session's directory under the same path
//! (with `--volume DIR:DIR` it does, and numbers of processes and threads are translated).

mod decode;
mod guard;
mod probe;
pub(crate) mod process;
mod reader;
#[allow(dead_code)]
pub(crate) mod ring;
mod session;
#[cfg(test)]
mod tests;

pub use decode::{Content, Decoded, RecordError};
pub use probe::{Broken, Probe, ProbeError};
pub use process::{ProcessError, ProcessInfo};
pub use reader::{RingError, read_image};
pub use session::{CpuClock, ProbeOptions, ProbeSession, ProbeSessionError};
