//! Interference: noise threads.

pub mod noise;
