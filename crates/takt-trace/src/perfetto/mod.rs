//! Export to the Perfetto trace format, which <https://ui.perfetto.dev> opens: the scheduler's view
//! of every CPU, interrupts, threads with their names, and a group of tracks for every task of a
//! robot with its jobs, releases, deadlines, lateness, and the way of values from one task to the
//! next.
//!
//! [`export`] writes a whole [`Trace`](crate::Trace) with its jobs; [`Writer`] is for those who
//! have them in pieces: it keeps one bundle of events for each CPU in memory and nothing else that
//! grows with the trace.
//!
//! **Times.** Perfetto's own clock is called BOOTTIME and differs from CLOCK_MONOTONIC only by the
//! time that the machine was suspended. We write CLOCK_MONOTONIC nanoseconds as they are, so that a
//! time in the picture is the time in the sample files.
//!
//! **What is where.** Switches, wake-ups, device interrupts, softirqs, idle states, frequencies,
//! migrations, timers, signals and system calls are ftrace events, which Perfetto knows. It has no
//! such events for the CPU's own interrupts (except the timer's), page faults and lock contention;
//! these are slices and instants on tracks of their own. `sched_stat_runtime` has no picture and is
//! left out. Work on a GPU has a track for each of its streams, in the host's time with the error
//! of the mapping beside every piece, and marks for what went wrong there.

mod device;
mod jobs;
mod kernel;
mod proto;
mod writer;

pub use device::{Device, DeviceMark, DeviceStream, DeviceWork};
pub use jobs::{Input, Task, export};
pub use writer::{Argument, PerfettoError, Writer, Written};

#[cfg(test)]
mod tests;
