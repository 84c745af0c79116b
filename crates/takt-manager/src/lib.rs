//! Latency goals kept on a running system: what *ROS-Llama* (Blass and others, RTAS 2021) does, on
//! measured models.
//!
//! [`goals`] says what is wanted; [`workload`] and [`curves`] bring a snapshot to the form of the
//! analysis; [`chains`] finds callback paths; [`analysis`] bounds response times; [`budget`],
//! [`partition`] and [`degrade`] choose; [`manager`] keeps a plan from one snapshot to the next;
//! [`plan`] is what it hands on: [`enact`] makes it so through [`system`], and [`restore`] undoes
//! it, whatever ends the manager.
//!
//! [`live`] alone says "guaranteed", and only while every assumption is observed to hold. The pages
//! of `docs/decisions` about ROS 2 and the manager have the reasons: start-up, suspension,
//! enactment, delivery, jitter, shared cores.

pub mod analysis;
pub mod budget;
pub mod chains;
pub mod clocks;
pub mod curves;
pub mod degrade;
pub mod emit;
pub mod enact;
pub mod goals;
mod infrastructure;
pub mod kept;
pub mod learn;
pub mod live;
mod load;
pub mod manager;
pub mod never;
pub mod partition;
pub mod plan;
mod policy;
pub mod recorded;
pub use takt_host::reserve::restore;
pub mod ros_llama;
pub mod simulate;
mod spent;
pub mod system;
pub mod words;
pub mod workload;

pub use goals::Goals;
pub use manager::Manager;
pub use plan::{Plan, Platform};
pub use policy::{Policy, UnknownPolicy};
