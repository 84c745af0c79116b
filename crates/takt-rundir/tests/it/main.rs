//! The integration tests of takt-rundir, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod formats;
mod unwritten;
