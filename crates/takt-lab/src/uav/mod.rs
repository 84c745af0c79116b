//! The quadrotor in the lab: fly it, keep its samples, say what lateness did to the flight.

mod blackout;
mod collector;
mod file;
mod rows;
mod run;

pub use blackout::{blackout, blackout_text};
pub use file::{SHIPPED, UavFile};
pub use rows::{ATTITUDE, AttitudeRow, POSITION, PositionRow, TELEMETRY, TelemetryRow};
pub(crate) use run::measures;
pub use run::run;
pub use takt_robot_uav::blackout::{Study, StudyOptions};
