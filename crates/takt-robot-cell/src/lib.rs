//! The cobot safety cell of SentryRT-1: cameras are watched, people found, the robot slows and
//! stops.
//!
//! [`ssm`] is the pure decision, [`tasks`] the task set of the paper's Table I with its scheduler
//! configurations, [`threads`] the bodies of the critical threads, [`cell`] starts and ends them,
//! [`arm`] which part of a picture is the robot itself, [`records`] is what they leave behind and
//! [`reaction`] how reaction time is read out of it. [`view`] shows it, and [`lab`] makes it a
//! robot of the lab, with its bench.
//!
//! The speed slider and the standard digital outputs that the cell commands are **not
//! safety-rated**, and this is not a certified safety function.

pub mod arm;
pub mod cell;
pub mod config;
mod error;
pub mod guard;
pub mod lab;
pub mod poses;
pub mod reaction;
pub mod records;
pub mod ssm;
pub mod tasks;
pub mod threads;
pub mod view;

pub use cell::Cell;
pub use config::CellConfig;
pub use error::{CellConfigError, CellError};
