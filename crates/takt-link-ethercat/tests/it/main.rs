//! The integration tests of takt-link-ethercat, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod after_a_kill;
mod allocation;
mod cache;
mod capture;
mod control;
mod foreign;
mod in_process;
mod objects;
mod over_veth;
mod over_xdp;
mod simulated_time;

use takt_rt::proof::AllocationCounter;

#[global_allocator]
static ALLOCATOR: AllocationCounter = AllocationCounter;
