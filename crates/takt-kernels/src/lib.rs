//! Kernels in a virtual machine: the packages they come from, the image they boot, the machine that
//! runs them and the guest inside.
//!
//! The guest runs the same program as the host: its bytes are put into an initramfs, it is process
//! 1, and it runs `takt run`. The machine counts instructions, so that two runs leave run
//! directories that are equal to the bit. The reasons are in `docs/decisions/059-guests.md`.

pub mod guest;
pub mod harness;
pub mod image;
mod image_error;
pub mod machine;
pub mod packages;
mod run;
pub mod transport;

pub use run::{Brought, GuestRun, RunError, TAKT_PATH, run_in_guest};
