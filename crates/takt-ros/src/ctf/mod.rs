//! Recorded traces of ROS 2: CTF 1.8 as LTTng writes it (`ros2 trace`, `lttng`), offline and from a
//! rotating live session.
//!
//! # Why a reader of our own
//!
//! The registry has no reader of CTF: `babeltrace2-sys` binds the C library (which must be
//! installed, and is the thing to be faster than), `barectf-parser` reads barectf's configuration
//! instead of metadata. Here the [metadata](tsdl) is parsed once and compiled into flat plans; an
//! event then costs one check of its bounds and a few copies, and no allocation unless it brings a
//! text that was never seen before.
//!
//! # What is read
//!
//! - metadata as text or in packets; integers of any size, alignment and byte order, enumerations,
//!   floats, strings, arrays, sequences, variants, nested structures;
//! - LTTng's compact and large event headers, and any other header with a time stamp; stamps that
//!   wrap;
//! - all traces below a folder, of all buffers of processors or processes, merged by time. Index
//!   files are not needed.
//!
//! Events of the provider `ros2` from Foxy to rolling are brought to [`Kind`](crate::Kind), those
//! of CARET's `ros2_caret` where they add something: `dds_bind_addr_to_stamp` and
//! `dispatch_subscription_callback` give the publication's and the take's time stamp, and executors
//! with their callback groups are named. All others are read over and [counted](Recording::seen) by
//! name.
//!
//! # Clocks
//!
//! `at_ns` is the trace's own clock, which is CLOCK_MONOTONIC unless LTTng runs with a clock
//! plugin; [`Recording::epoch_ns`] is what to add for the time of day. Process and thread ids are
//! those of the processes' own namespace (`vpid`, `vtid`): processes of several containers in one
//! recording can have the same.
//!
//! CPU time of threads is there if the recording has the kernel's `sched_switch` as well
//! (`ros2 trace` records it where the kernel tracer is installed; in one namespace with the kernel
//! only), or the context `perf:thread:task-clock`
//! (`lttng add-context -u -t perf:thread:task-clock`). Its zero is anywhere: differences alone mean
//! something.
//!
//! # Gaps
//!
//! A session that is stopped and started again (`ros2 trace pause`), or that begins after what it
//! records, leaves times in which nothing was recorded. They are found by the packets' own stamps
//! (see `coverage`), and stand among the events as [`Kind::Gap`](crate::Kind::Gap).
//!
//! # Damage
//!
//! Unreadable parts are left out, listed ([`Recording::damages`]) and marked by
//! [`Kind::Lost`](crate::Kind::Lost); the other packets and streams continue. A recording that is
//! unreadable from the beginning is an [`Error`].

mod coverage;
mod cpus;
mod cursor;
mod entry;
mod error;
mod header;
mod live;
mod mapping;
mod metadata;
mod missing;
mod plan;
mod reader;
mod recording;
mod records;
mod stream;
#[cfg(test)]
mod tests;
mod trace;
pub mod tsdl;
mod value;

pub use coverage::Gap;
pub use error::{Error, MetadataProblem, PacketProblem, Unusable};
pub use live::Live;
pub use recording::{Host, Recording, Seen};
pub use records::{Record, Records};
pub use stream::Damage;
pub use value::Value;
