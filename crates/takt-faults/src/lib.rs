//! The fault test of the safety cell from outside (`takt bench faults`).
//!
//! Every case is a simulated controller (a process of its own), a proxy on the wire, a recording or
//! a limit of the machine, and the cell (`takt run`, another process). A fault is planted at a
//! known time, and what the robot did is judged by **the controller's own log**
//! (`takt simulate --log`), never by what the cell says of itself. Only one question is put to the
//! cell: whether its verdict names what happened.
//!
//! # The rule
//! A fault that can be known at `t` must have the robot *commanded to stand* (slider at 0, or
//! program, robot or safety mode not one in which it moves) no later than
//!
//! `t` + the documented limit of that fault + one SSM period + link time + time taken from the test
//! itself.
//!
//! Link time is one packet period and two controller cycles, there and back. The time taken from
//! the test is measured in the same run: the worst CPU's sum of what a witness thread of ordinary
//! priority waited too long (see [`witness`]), and the controller's own missed cycles. From then on
//! until the fault ends the command may not be withdrawn, the arm must stand after its ramp, and it
//! may move again only after the recovery time.
//!
//! Imports: this crate knows the wire (`takt-link-rtde`), how recordings are written
//! (`takt-link-camera`) and clocks; no robot, no monitor, no perception. It could not repeat their
//! mistakes if it wanted to.

pub mod case;
pub mod cases;
pub mod cell;
mod children;
mod error;
pub mod judge;
pub mod log;
pub mod proxy;
mod recording;
pub mod report;
mod run;
pub mod witness;

pub use case::{Case, CaseKind};
pub use error::FaultError;
pub use report::{CaseReport, Report, Violation};
pub use run::{Options, run_all};
