//! The humanoid: 1 kHz motion control of 59 devices over EtherCAT, after "Real-Time Performance
//! Analysis in Linux-Based Robotic Systems" (Linux Symposium 2009).
//!
//! [`Controller`] is pure: process data in, process data out. [`run`] puts it behind a
//! [`Port`](takt_link_ethercat::control::Port) in a real-time thread; [`shield`] keeps other tasks
//! and interrupts off its CPU. [`lab`] makes it a robot of the lab.

pub mod cia402;
mod config;
mod controller;
pub mod joint;
pub mod lab;
mod layout;
mod motion;
mod positive;
pub mod run;
pub mod safety;
pub mod shield;
pub mod topology;
pub mod trajectory;

pub use config::HumanoidConfig;
pub use controller::{Controller, Mode, ProbeView, ProcessData};
pub use motion::{Moment, Motion, Target, Walk};
pub use safety::{SafetyConfig, StopReason};
