//! Latency goals kept on a running system.
//!
//! [`plan`] is what analysis hands to enactment. [`enact`] makes it so through [`system`], and [`restore`] undoes it, whatever ends the manager.

pub mod enact;
pub mod plan;
pub mod restore;
pub mod system;
