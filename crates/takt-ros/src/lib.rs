//! What ROS 2 processes say of themselves: one event model ([`event`]), filled by live probes or by recorded traces.

pub mod ctf;
pub mod event;
pub mod preload;
pub mod standin;

pub use event::{Event, Handle, Kind, Source};
