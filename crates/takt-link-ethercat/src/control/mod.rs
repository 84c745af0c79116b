//! The control interface (the paper's ECCI) over the master `ethercrab`: bring-up, one exchange of
//! process data per cycle for the motion controller, a cache of the last cycle for everybody else,
//! events, and timing.
//!
//! ```text
//!  cycle k    wake ─ fetch frame k-1 ─ send frame k ─ publish to readers ─ plan k+1 ─ sleep
//!  cycle k+1  wake ─ fetch frame k   ─ ...
//! ```
//!
//! **Why not the master's `tx_rx`.** It sends the process data and a status request per device (14
//! bytes each), one frame after the other, and holds a spin lock over the process image from
//! sending to receiving. With 59 devices that is two round trips a cycle, and readers that spin.
//! Here a cycle sends the whole image and one broadcast read of the states in one frame where they
//! fit, and fetches it in the next cycle; the image belongs to the controller alone. State changes,
//! EEPROM, mailboxes and mapping stay the master's. Its public interface puts one datagram into a
//! frame, so cyclic frames are made here.
//!
//! **Why no thread for the wire.** The controller sends and fetches by two system calls each; the
//! socket's buffer keeps the answer until the next cycle, as the network card's did for the paper's
//! polled driver. A thread would add two context switches a cycle.

mod answer_time;
mod bring_up;
mod cache;
mod clock;
mod config;
mod cyclic;
mod delays;
mod error;
mod event;
mod flights;
mod idle;
mod master;
mod objects;
mod port;
mod requests;
mod sdo;
mod simulated;
mod states;
mod stats;
mod wire;
mod xdp;

pub use bring_up::{Found, Link, Progress, bring_up};
pub use cache::{CacheReader, Published, Publisher, Snapshot, cache};
pub use clock::{ClockConfig, ClockTotals, LOCKED_CYCLES, LOCKED_NS, Phase, Sync0};
pub use config::{
    CacheKind, ControlConfig, DeviceConfig, ExchangeMode, Identity, MAX_DEVICES, ObjectWrite, ProcessCommands,
};
pub use error::{ControlError, Mismatch};
pub use event::{EventKind, LinkEvent, state_name};
pub use idle::Idle;
pub use objects::read_object;
pub use port::{Exchanged, ImagePlace, LateAnswer, Port, Strays, Totals};
pub use sdo::SdoError;
pub use simulated::{SimulatedTime, in_simulated_time};
pub use stats::{Exporter, Spread, Timing, TimingReader};
pub use wire::{Back, ETHERCAT, InProcess, Interface, MAX_FRAME_BYTES, Wire, in_process};
pub use xdp::{MAX_QUEUES, XdpAttach, XdpOptions, open_xdp};
