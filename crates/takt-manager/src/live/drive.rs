//! The manager's loop for the sources that programs bring.
//!
//! What is generic is compiled with whoever calls it. The command line is not optimised, since it
//! parses and prints; without this the loop that every event goes through was not either.

use std::sync::atomic::AtomicBool;

use takt_ros::{ctf, preload, uprobes};

use super::{Error, Live};

/// A manager whose loop is compiled with this crate.
pub trait Drive {
    /// As [`Live::run`].
    ///
    /// # Errors
    /// As [`Live::run`].
    fn drive(&mut self, stop: &AtomicBool) -> Result<(), Error>;
}

macro_rules! driven {
    ($($source:ty),*) => {
        $(impl Drive for Live<$source> {
            fn drive(&mut self, stop: &AtomicBool) -> Result<(), Error> {
                self.run(stop)
            }
        })*
    };
}

driven!(preload::Probe, uprobes::Probe, ctf::Live);
