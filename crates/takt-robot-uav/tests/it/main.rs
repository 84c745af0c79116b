//! The integration tests of takt-robot-uav, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod flight;
mod lab;
mod offline;
mod pinned;

use takt_rt::proof::AllocationCounter;

#[global_allocator]
static ALLOCATOR: AllocationCounter = AllocationCounter;
