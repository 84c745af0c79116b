//! The safety job's connection to the robot: state in, commands out.
//!
//! [`Link::open`] connects, sets the recipes up and splits the connection in two:
//!
//! - a receiver thread, `rtde-recv`, decodes every output packet and publishes it as
//!   [`RobotState`](crate::RobotState) into a wait-free exchange buffer, and the last ones as
//!   [`StateHistory`] into another; it also reconnects;
//! - a [`Commander`], owned by the safety thread, sends one pre-laid-out packet per cycle with one
//!   non-blocking `send(2)`: it never blocks, locks or allocates. Its last command is the stop it
//!   was given, however it ends; [`send_final_stop`] is for handlers of fatal signals.
//!
//! When the link is lost, a state with `connected = false` is published at once and the commander
//! answers [`SendOutcome::Disconnected`]; the robot-side watchdog (see `urscript/takt_cell.script`)
//! stops the robot.
//!
//! The speed slider and ordinary outputs that this link sets are **not safety-rated**.

mod clock;
mod commander;
mod config;
mod history;
mod link;
mod mailbox;
mod recipe;

pub use crate::final_stop::send_final_stop;
pub use crate::outgoing::SendOutcome;
pub use clock::{ClockFollower, Content, Followed, MAX_DRIFT_PPM};
pub use commander::Commander;
pub use config::RtdeConfig;
pub use history::{STATE_HISTORY, StateHistory, StateSample};
pub use link::{Link, LinkEvent, Opened};
