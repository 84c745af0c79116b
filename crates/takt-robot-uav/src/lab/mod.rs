//! The quadrotor in the lab: fly it, keep its samples, say what lateness did to the flight.

mod blackout;
mod collector;
mod dilation;
mod paper;
mod report;
mod rows;
mod run;

pub use blackout::{blackout, blackout_text};
pub use rows::{ATTITUDE, AttitudeRow, POSITION, PositionRow, TELEMETRY, TelemetryRow};
pub use run::{KIND, SHIPPED};
