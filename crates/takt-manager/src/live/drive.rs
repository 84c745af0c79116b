//! The manager's loop for the sources that programs bring.
//!
//! Generic code is compiled with its caller. The command line is not optimised, since it parses and
//! prints; without this, the loop for every event would not be optimised either.

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
