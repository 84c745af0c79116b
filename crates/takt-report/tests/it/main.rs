//! The integration tests of takt-report, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../common/mod.rs"]
mod common;

mod compare_export;
mod exported;
mod losses_and_shapes;
mod recorder;
mod report;
mod results;
mod seal;
mod trace;
