//! What the kernel did: activation paths, the cause of every late release, Perfetto export.

pub mod analysis;
pub mod capture;
mod error;
pub mod event;
pub mod format;
pub mod offline;
pub mod overhead;
pub mod perfetto;
mod tracefs;

pub use analysis::{Cause, Thresholds, TraceReport, analyse, analyse_with};
pub use capture::{Marker, TraceOptions, Tracer, Watched};
pub use error::TraceError;
pub use event::{Clock, Event, Kind, Trace};
pub use format::{Decoder, Format};
