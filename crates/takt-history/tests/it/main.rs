//! The integration tests of takt-history, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../made/mod.rs"]
mod made;

mod kept;
mod outside;
mod simulated;
