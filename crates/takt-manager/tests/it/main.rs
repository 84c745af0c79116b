//! The integration tests of takt-manager, as one program: each file is a module.
//! A test that changes its whole process has a program of its own beside this folder.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../common/mod.rs"]
mod common;

mod clocks;
mod enact;
mod evidence;
mod extracted;
mod helpers;
mod jitter;
mod plans;
mod properties;
mod python;
mod recordings;
mod reference;
mod refute;
mod replay;
mod ros_llama;
mod safety;
mod shared;
mod supply;
