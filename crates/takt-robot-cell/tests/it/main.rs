//! The integration tests of takt-robot-cell, as one program: each file is a module.
//! A test that changes its whole process has a program of its own beside this folder.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../arm_scene/mod.rs"]
mod arm_scene;
#[path = "../support/obedient.rs"]
mod obedient;
#[cfg(feature = "realsense")]
#[path = "../../../takt-link-camera/tests/standin/mod.rs"]
mod standin;
#[path = "../support/mod.rs"]
mod support;
#[path = "../view_cell/mod.rs"]
mod view_cell;

mod arm;
mod arm_cell;
mod cell;
mod ending;
mod frame_stamps;
mod frozen;
mod guard;
mod hidden;
mod obedience;
mod paper;
mod poses;
mod realsense;
mod ssm;
mod ssm_path;
mod ssm_stamps;
mod synthetic_cell;
mod unseen_recording;
mod unseen_scene;
mod view_cost;
mod view_http;
mod view_screenshot;
mod view_terminal;
mod worker;

use takt_rt::proof::AllocationCounter;

#[global_allocator]
static ALLOCATOR: AllocationCounter = AllocationCounter;
