//! The integration tests of takt-link-camera, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[cfg(feature = "realsense")]
#[path = "../standin/mod.rs"]
mod standin;

mod acquire_path;
mod arrival;
mod bags;
mod bombs;
mod feed;
mod made;
mod pairs;
mod realsense;
mod recording;
mod steps;
mod synthetic;

use takt_rt::proof::AllocationCounter;

#[global_allocator]
static ALLOCATOR: AllocationCounter = AllocationCounter;
