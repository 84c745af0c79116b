//! What ROS 2 processes say of themselves: one event model ([`event`]), filled by live probes or by recorded traces.

pub mod event;

pub use event::{Event, Handle, Kind, Source};
