//! The integration tests of takt-perception, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../recording/mod.rs"]
mod recording;
#[path = "../rig/mod.rs"]
mod rig;
#[path = "../walker/mod.rs"]
mod walker;

mod allocation;
mod gpu_faults;
mod gpu_provider;
mod gpu_races;
mod gpu_real;
mod gpu_recording;
mod ground_truth;
mod layouts;
mod process_emulated;
mod process_faults;
mod process_steady;

use takt_rt::proof::AllocationCounter;

#[global_allocator]
static ALLOCATOR: AllocationCounter = AllocationCounter;
