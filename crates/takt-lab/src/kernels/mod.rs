//! Robots on other kernels without a reboot: a campaign whose every run boots a kernel of its own
//! in a virtual machine.
//!
//! ```text
//! run of a campaign ─► image (this very program, robot file, setup, tools) ─► machine ─► guest: takt run ─► run directory
//! ```
//!
//! The guest runs the same program as the host would, and its run directory is one like any other;
//! its machine facts say that it is a guest's ([`takt_rundir::VirtualMachine`]).

mod make;
mod rows;

pub use crate::guests::{Accelerator, Guests};
pub use make::Maker;
pub use rows::{KernelRow, kernel_rows};

/// Folder of a campaign with what each guest left beside its run directory: console, kernel log,
/// what it was.
pub const GUESTS: &str = "guests";
