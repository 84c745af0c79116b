//! Kernels in a virtual machine: the packages they come from, the image they boot, the machine that
//! runs them and the guest inside.

pub mod guest;
pub mod harness;
pub mod image;
mod image_error;
pub mod machine;
pub mod packages;
mod run;
pub mod transport;

pub use run::{Brought, GuestRun, RunError, TAKT_PATH, run_in_guest};
