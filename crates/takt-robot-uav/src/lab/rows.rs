//! Rows of the quadrotor's sample files. Column names carry the units; times are CLOCK_MONOTONIC.

use serde::{Deserialize, Serialize};

use crate::plant::Loss;
use crate::records::{AttitudeRecord, PositionRecord, TelemetryRecord};

/// Name of the sample file of attitude jobs.
pub const ATTITUDE: &str = "attitude";
/// Name of the sample file of position jobs.
pub const POSITION: &str = "position";
pub const TELEMETRY: &str = "telemetry";

/// One line of the attitude file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttitudeRow {
    /// Index on the release grid; a gap is a skipped release.
    pub index: u64,
    /// Planned release.
    pub planned_ns: u64,
    /// Wake-up; the state is the vehicle's at this time.
    pub wake_ns: u64,
    /// The control law began.
    pub control_start_ns: u64,
    /// The control law ended and its command took effect.
    pub control_end_ns: u64,
    /// Job done.
    pub end_ns: u64,
    /// Releases skipped before this one.
    pub skipped: u64,
    /// Number of the force command used.
    pub force_sequence: u64,
    /// Position.
    pub x_m: f64,
    /// Position.
    pub y_m: f64,
    /// Height.
    pub z_m: f64,
    /// Its reference position, x.
    pub reference_x_m: f64,
    /// Its reference position, y.
    pub reference_y_m: f64,
    /// Its reference position, z.
    pub reference_z_m: f64,
    /// Distance between the two.
    pub position_error_m: f64,
    /// Distance from the same flight with punctual jobs.
    pub deviation_m: f64,
    /// Angle between thrust and vertical.
    pub tilt_rad: f64,
    /// Bit per rotor that stood at a limit.
    pub rotors_at_limit: u8,
    /// Reason of the flight's loss; empty while it flies.
    pub loss: Option<Loss>,
}

impl AttitudeRow {
    /// The line of a record.
    pub fn new(r: &AttitudeRecord, deviation_m: f64) -> Self {
        let [x_m, y_m, z_m] = r.position_m;
        let [reference_x_m, reference_y_m, reference_z_m] = r.reference_m;
        Self {
            index: r.index,
            planned_ns: r.planned_ns,
            wake_ns: r.wake_ns,
            control_start_ns: r.control_start_ns,
            control_end_ns: r.control_end_ns,
            end_ns: r.end_ns,
            skipped: r.skipped,
            force_sequence: r.force_sequence,
            x_m,
            y_m,
            z_m,
            reference_x_m,
            reference_y_m,
            reference_z_m,
            position_error_m: r.position_error_m,
            deviation_m,
            tilt_rad: r.tilt_rad,
            rotors_at_limit: r.rotors_at_limit,
            loss: r.loss,
        }
    }
}

/// One line of the position file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PositionRow {
    /// Index on the release grid.
    pub index: u64,
    /// Planned release.
    pub planned_ns: u64,
    /// Wake-up.
    pub wake_ns: u64,
    /// Force published.
    pub end_ns: u64,
    /// Releases skipped before this one.
    pub skipped: u64,
    /// Number of the state used.
    pub state_sequence: u64,
    /// Desired force.
    pub force_x_n: f64,
    /// Desired force.
    pub force_y_n: f64,
    /// Desired force.
    pub force_z_n: f64,
}

impl From<&PositionRecord> for PositionRow {
    fn from(r: &PositionRecord) -> Self {
        let [force_x_n, force_y_n, force_z_n] = r.force_n;
        Self {
            index: r.index,
            planned_ns: r.planned_ns,
            wake_ns: r.wake_ns,
            end_ns: r.end_ns,
            skipped: r.skipped,
            state_sequence: r.state_sequence,
            force_x_n,
            force_y_n,
            force_z_n,
        }
    }
}

/// One line of telemetry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TelemetryRow {
    /// Time of the state.
    pub time_ns: u64,
    /// Position.
    pub x_m: f64,
    /// Position.
    pub y_m: f64,
    /// Height.
    pub z_m: f64,
    pub speed_m_s: f64,
    pub roll_rad: f64,
    pub pitch_rad: f64,
    pub yaw_rad: f64,
    pub rotor0_rad_s: f64,
    pub rotor1_rad_s: f64,
    pub rotor2_rad_s: f64,
    pub rotor3_rad_s: f64,
}

impl From<&TelemetryRecord> for TelemetryRow {
    fn from(r: &TelemetryRecord) -> Self {
        let [x_m, y_m, z_m] = r.position_m;
        let [roll_rad, pitch_rad, yaw_rad] = r.roll_pitch_yaw_rad;
        let [rotor0_rad_s, rotor1_rad_s, rotor2_rad_s, rotor3_rad_s] = r.rotors_rad_s;
        Self {
            time_ns: r.time_ns,
            x_m,
            y_m,
            z_m,
            speed_m_s: r.velocity_m_s.iter().map(|v| v * v).sum::<f64>().sqrt(),
            roll_rad,
            pitch_rad,
            yaw_rad,
            rotor0_rad_s,
            rotor1_rad_s,
            rotor2_rad_s,
            rotor3_rad_s,
        }
    }
}
