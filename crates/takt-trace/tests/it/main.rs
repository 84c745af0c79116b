//! The integration tests of takt-trace, as one program: each file is a module.
//! A test that changes its whole process has a program of its own beside this folder.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod live;
mod planted;
mod recorded;

use takt_rt::proof::AllocationCounter;

#[global_allocator]
static ALLOCATOR: AllocationCounter = AllocationCounter;
