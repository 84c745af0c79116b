//! The integration tests of takt-link-rtde, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod hostile;
mod link;
mod mission;
mod primary;
mod program;
mod real_time;
mod third_party;
mod wire;

use takt_rt::proof::AllocationCounter;

#[global_allocator]
static ALLOCATOR: AllocationCounter = AllocationCounter;
