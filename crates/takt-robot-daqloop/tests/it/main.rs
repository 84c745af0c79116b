//! The integration tests of takt-robot-daqloop, as one program: each file is a module.
//! A test that changes its whole process has a program of its own beside this folder.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod daq;
mod lab;
mod steady_state;

use takt_rt::proof::AllocationCounter;

#[global_allocator]
static ALLOCATOR: AllocationCounter = AllocationCounter;
