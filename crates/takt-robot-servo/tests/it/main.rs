//! The integration tests of takt-robot-servo, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod faults;
mod stream;
mod third_party;

use takt_rt::proof::AllocationCounter;

#[global_allocator]
static ALLOCATOR: AllocationCounter = AllocationCounter;
