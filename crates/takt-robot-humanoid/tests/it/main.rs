//! The integration tests of takt-robot-humanoid, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod joints;
mod quiet;
mod walk;

use takt_rt::proof::AllocationCounter;

#[global_allocator]
static ALLOCATOR: AllocationCounter = AllocationCounter;
