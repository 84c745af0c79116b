//! The integration tests of takt-files, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod on_the_way;
mod planted;
mod source;
