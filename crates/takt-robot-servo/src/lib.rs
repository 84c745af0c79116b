//! Joint streaming to a Universal Robots arm: a target for every joint in every cycle of its
//! controller (500 Hz), which `takt_servo.script` on the robot hands to servoj.
//!
//! - [`config`]: the robot's file;
//! - [`limits`]: what may not be exceeded;
//! - [`motion`]: the built-in motions, and the trait for one's own;
//! - [`monitor`]: when the arm must stop;
//! - [`pacing`]: when a cycle begins: with the controller's packet, or on a grid of one's own;
//! - [`run`]: the real-time thread;
//! - [`record`]: what it leaves behind, for every cycle and in sums;
//! - [`controller_log`]: the same from the other side of the wire, by the simulated controller's
//!   own log;
//! - [`lab`]: the stream as a robot of the lab.
//!
//! Neither the stream nor the script is safety-rated: a risk assessment counts on the robot's
//! safety configuration alone.

pub mod config;
pub mod controller_log;
mod error;
pub mod lab;
pub mod limits;
pub mod monitor;
pub mod motion;
pub mod pacing;
pub mod record;
pub mod run;

pub use config::ServoConfig;
pub use error::ServoError;
pub use run::{RunningStream, start, start_with};
