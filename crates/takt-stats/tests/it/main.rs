//! The integration tests of takt-stats, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod constant_memory;
mod false_pass;
mod scipy;
