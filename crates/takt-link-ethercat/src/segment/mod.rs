//! A segment of EtherCAT sub-devices in software: any number of them, in process or behind a veth
//! pair.
//!
//! [`Segment`] is pure: it takes a frame and the time, executes the frame in place as the wire
//! through all devices would, and says what becomes of it. It opens nothing, asks no clock and,
//! once built, allocates nothing per frame. The fronts carry frames to it: [`inprocess`] from
//! ethercrab in the same process, [`veth`] from any master over a network interface.
//!
//! Behind every device is a micro-controller with a rate of its own ([`Update`]): outputs take
//! effect and inputs are renewed when it runs, not when the frame passes. [`Segment::truth`] shows
//! when events really happened and commands really took effect, so that a master's latencies can be
//! reported in cycles.

mod app;
mod clock;
mod coe;
mod config;
mod device;
mod drive;
mod esc;
mod fault;
mod fmmu;

pub mod inprocess;
mod late;
mod objects;
mod orders;
mod process;
pub mod raw;
mod registers;
mod sii;
#[cfg(test)]
mod tests;
mod topology;
mod truth;
pub mod veth;
mod wire;

pub use config::{ConfigError, DeviceConfig, MAX_DEVICES, SegmentConfig, Update};
pub use device::{AlState, status_code};
pub use drive::{DriveState, JointConfig};
pub use fault::{ClockView, ControlError, Counts, DeviceView, DriveView, SegmentControl, When, WireFault};
pub use objects::{DeviceKind, Entry, Pdo, Profile, VENDOR};
pub use process::{Outcome, Segment};
pub use sii::{Identity, SiiDefect};
pub use truth::{Stay, Truth};
pub use wire::{ETHERTYPE, MAX_FRAME, Malformed};
