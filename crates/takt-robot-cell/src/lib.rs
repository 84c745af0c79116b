//! The cobot safety cell of SentryRT-1: cameras are watched, people found, the robot slows and stops.
//!
//! [`ssm`] is the pure decision.

pub mod ssm;
