//! Events of ROS 2 processes about themselves: one event model ([`event`]), filled by live probes
//! or by recorded traces.
//!
//! | source | for | privilege | a call costs the process | CPU time | initialisation |
//! |---|---|---|---|---|---|
//! | [`preload`] | processes started under it | none | about 30 ns, and the CPU clock where it is read | yes | whole |
//! | [`uprobes`] | processes that already run | root | 1 to 2 us on metal, 15 us on a virtual machine | from switches | what can be found again |
//! | [`ctf`] | LTTng's traces, recorded or live | LTTng's | LTTng's, about 120 ns | only with a context for it | as recorded |
//!
//! `cargo run -p takt-ros --example probe_cost` measures the first two and LTTng-UST in one run.
//! [`standin`] calls the functions as `rclcpp` does, for workloads and tests without ROS.

pub mod ctf;
pub mod event;
pub mod jobs;
pub mod preload;
mod procfs;
pub mod standin;
pub mod uprobes;

pub use event::{Event, GapCause, Handle, Kind, Source};
