//! The integration tests of takt-sdk, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod forks;
mod real_time;
mod releases;
