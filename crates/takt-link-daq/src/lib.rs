//! Analog output to analog input: one level out, one level in, and what lies between them.
//!
//! The DAQ paper wires AO0 of a board to AI0 and measures how long an edge takes. [`Link`] is that
//! wire with its two converters. Behind it is a board ([`comedi`](LinkConfig::Comedi), its library
//! loaded at run time; [`iio`](LinkConfig::Iio), with the feature of that name), a converter
//! computed from a data sheet ([`simulated`](LinkConfig::Simulated)), or, where there is no
//! hardware at all, a way through the kernel and back: [`udp`](LinkConfig::Udp) through the network
//! stack, [`pty`](LinkConfig::Pty) through the tty layer, [`eventfd`](LinkConfig::Eventfd) through
//! the scheduler alone.
//!
//! The loopbacks have an echo thread at the far end, with a policy and a placement of its own. It
//! belongs to the link under test: what is measured is two wake-ups or polls, four system calls and
//! the layer between.
//!
//! ```
//! # use takt_link_daq::{Link, LinkConfig};
//! # #[derive(serde::Deserialize)] struct File { link: LinkConfig }
//! let file: File = toml::from_str("link = { kind = 'simulated', ai_rate_hz = 1e6 }")?;
//! let mut link = takt_link_daq::open(&file.link)?;
//! link.write_v(5.0)?;
//! while link.read_v()? < 1.0 {}
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_docs)]

mod comedi;
mod config;
mod echo;
mod error;
mod eventfd;
pub mod far_end;
mod frame;
#[cfg(feature = "iio")]
mod iio;
mod pty;
mod simulated;
#[cfg(test)]
mod testing;
mod udp;

pub use config::{
    Aref, Bus, ComediChannel, ComediConfig, EchoConfig, EventfdConfig, IioChannel, IioConfig, LinkConfig,
    PtyConfig, PtyEcho, SimulatedConfig, UdpConfig, Waiting,
};
pub use error::LinkError;
pub use far_end::{FarEnd, FarEndSetup};
pub use simulated::{Clock, MonotonicClock, Simulated};

use serde::{Deserialize, Serialize};
use takt_rt::settings::Granted;

/// One analog output and one analog input.
pub trait Link: Send {
    /// Puts `level_v` on the output. Returns when the converter, or the kernel, has taken it.
    ///
    /// # Errors
    /// [`LinkError`] when the link is broken; it stays so.
    fn write_v(&mut self, level_v: f64) -> Result<(), LinkError>;

    /// Puts the level that is on the output on it once more, as a loop that writes in every turn
    /// does. On a board this is a write like any other. A loopback sends one copy of the level at
    /// most while its answer is under way: more would queue before its far end, and a converter has
    /// no queue.
    ///
    /// # Errors
    /// As [`write_v`](Self::write_v).
    fn again_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        self.write_v(level_v)
    }

    /// Present input, in volts. Does not wait for an edge: to see one, read until it is there.
    /// (With [`Waiting::Block`] a loopback waits in the kernel for something to arrive, at most a
    /// millisecond.)
    ///
    /// # Errors
    /// [`LinkError`] when the link is broken; it stays so.
    fn read_v(&mut self) -> Result<f64, LinkError>;

    /// Puts `level_v` on the second output, the input of the plant. It takes effect with the next
    /// [`write_v`](Self::write_v) at the latest.
    ///
    /// # Errors
    /// [`LinkError::NoPlant`] where the link was opened without one; else as
    /// [`write_v`](Self::write_v).
    fn drive_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        let _ = level_v;
        Err(self.no_plant())
    }

    /// Readings of the plant's two sensors: position and speed, in volts. A loopback shows what
    /// came with the level that [`read_v`](Self::read_v) has seen last, a converter converts anew.
    ///
    /// # Errors
    /// As [`drive_v`](Self::drive_v).
    fn sense_v(&mut self) -> Result<[f64; 2], LinkError> {
        Err(self.no_plant())
    }

    /// Ends the plant and returns what it says about itself; None where none was simulated. The
    /// link is broken then.
    fn end_plant(&mut self) -> Option<serde_json::Value> {
        None
    }

    /// Error of [`drive_v`](Self::drive_v) without a plant.
    #[doc(hidden)]
    fn no_plant(&self) -> LinkError {
        let reason = "it was opened without a plant; controllers need open_with_plant";
        LinkError::NoPlant { link: "this", reason }
    }

    /// Irregularities so far. Cheap.
    fn counts(&self) -> LinkCounts {
        LinkCounts::default()
    }

    /// Facts about the link.
    fn facts(&self) -> &LinkFacts;
}

/// Irregularities of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounts {
    /// Levels that were sent again because their answer did not come.
    pub resent: u64,
    /// Answers to older levels, left out.
    pub stale: u64,
    /// Bytes or datagrams that are no answer, left out.
    pub rejected: u64,
}

/// Facts about a link: the label of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkFacts {
    /// For people: `UDP 127.0.0.1:40000 -> 127.0.0.1:40001`, the board's name and driver.
    pub description: String,
    /// The name of the echo thread, or of the plant's process, and what the kernel granted it;
    /// absent without one.
    pub echo: Option<(String, Granted)>,
}

/// Opens a link.
///
/// # Errors
/// [`LinkError`] with the key, the value and the way out.
pub fn open(config: &LinkConfig) -> Result<Box<dyn Link>, LinkError> {
    open_either(config, None)
}

/// Opens a link with a plant at its far end, for [`Link::drive_v`] and [`Link::sense_v`]: simulated
/// in a process of its own, or, behind a board, whatever its channels are wired to.
///
/// # Errors
/// [`LinkError`] with the key, the value and the way out.
pub fn open_with_plant(config: &LinkConfig, plant: &FarEndSetup) -> Result<Box<dyn Link>, LinkError> {
    open_either(config, Some(plant))
}

fn open_either(config: &LinkConfig, plant: Option<&FarEndSetup>) -> Result<Box<dyn Link>, LinkError> {
    config.validate()?;
    Ok(match config {
        LinkConfig::Udp(config) => Box::new(udp::Udp::open(config, plant)?),
        LinkConfig::Pty(config) => Box::new(pty::Pty::open(config, plant)?),
        LinkConfig::Eventfd(config) => Box::new(eventfd::Eventfd::open(config, plant)?),
        LinkConfig::Simulated(config) => Box::new(Simulated::open(config, plant)?),
        LinkConfig::Comedi(config) => Box::new(comedi::Comedi::open(config, plant.is_some())?),
        #[cfg(feature = "iio")]
        LinkConfig::Iio(config) => Box::new(iio::Iio::open(config, plant.is_some())?),
        #[cfg(not(feature = "iio"))]
        LinkConfig::Iio(_) => {
            let way_out = "this takt was built without Industrial I/O: build it with `--features takt/iio` (libiio-dev), or use \
                           comedi";
            return Err(LinkError::config("kind", "\"iio\"", way_out));
        }
    })
}
