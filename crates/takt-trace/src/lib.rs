//! What the kernel did: activation paths, the cause of every late release, Perfetto export.

pub mod event;
pub mod perfetto;

pub use event::{Clock, Event, Kind, Trace};
