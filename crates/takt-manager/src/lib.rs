//! Latency goals kept on a running system.
//!
//! [`plan`] is what analysis hands to enactment.

pub mod plan;
