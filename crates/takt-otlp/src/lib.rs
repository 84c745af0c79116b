//! Metrics and log records to an OpenTelemetry collector (OTLP over HTTP, Protocol Buffers).
//!
//! ```text
//! source (asked at each interval) ─► Points ─┐
//! Exporter::log ─► bounded queue ────────────┴► thread at nice 19 ─► POST {endpoint}/v1/metrics, …/v1/logs
//! ```
//!
//! Nobody waits for the collector: points are asked for by the thread that sends them, and a log
//! record for which the queue has no room is counted and forgotten. All metrics are cumulative, so
//! that what could not be sent costs resolution in time and no counts. A call takes ten seconds at
//! most, of an answer 64 KiB are read, and where nothing is accepted the time between two tries
//! grows to a minute, or to what the collector asks for, by chance up to half as long again, so
//! that a fleet does not come back as one. Metrics and logs wait each for themselves.

#![deny(missing_docs)]

#[cfg(feature = "send")]
mod endpoint;
mod exponential;
#[cfg(feature = "send")]
mod exporter;
#[cfg(feature = "send")]
mod http;
#[cfg(feature = "send")]
pub mod messages;
#[cfg(feature = "send")]
mod pause;
#[cfg(feature = "send")]
mod points;
#[cfg(feature = "send")]
mod tls;

#[cfg(feature = "send")]
pub use endpoint::{Endpoint, EndpointError, PairsError, pairs};
pub use exponential::Exponential;
#[cfg(feature = "send")]
pub use exporter::{Exporter, Options, Outcome, Record, Severity, StartError};
#[cfg(feature = "send")]
pub use points::{Points, Value};
