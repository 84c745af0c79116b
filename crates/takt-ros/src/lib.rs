//! What ROS 2 processes say of themselves: one event model ([`event`]), filled by live probes or by recorded traces.

mod clock;
pub mod ctf;
pub mod event;
pub mod preload;
mod procfs;
pub mod standin;
pub mod uprobes;

pub use event::{Event, Handle, Kind, Source};
