//! The integration tests of takt-host, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod dead;
mod rt_group;
