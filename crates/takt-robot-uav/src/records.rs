//! Records of a flight's tasks. Plain values without pointers, pushed through wait-free rings.

use crate::plant::Loss;

/// One attitude job. Times are nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttitudeRecord {
    /// Number of the release on the grid; a gap is a skipped release.
    pub index: u64,
    /// Planned release.
    pub planned_ns: u64,
    /// When the thread was awake: the state is the vehicle's at this time.
    pub wake_ns: u64,
    /// When the control law began; from the wake-up until here the vehicle was simulated.
    pub control_start_ns: u64,
    /// When the control law ended: its command takes effect.
    pub control_end_ns: u64,
    /// When the job ended, its results published.
    pub end_ns: u64,
    /// Releases skipped before this one.
    pub skipped: u64,
    /// Number of the force command that was used; 0 before the position loop's first.
    pub force_sequence: u64,
    /// Position of the vehicle, m.
    pub position_m: [f64; 3],
    /// Its reference position, m.
    pub reference_m: [f64; 3],
    /// Distance between the two, m.
    pub position_error_m: f64,
    /// Angle between thrust and vertical, rad.
    pub tilt_rad: f64,
    /// Bit per rotor that stood at a limit because more, or less, was asked.
    pub rotors_at_limit: u8,
    /// Reason of the flight's loss; `None` while it flies.
    pub loss: Option<Loss>,
}

impl AttitudeRecord {
    /// Lateness of the job's wake-up: the paper's scheduling latency.
    pub fn lateness_ns(&self) -> u64 {
        self.wake_ns.saturating_sub(self.planned_ns)
    }

    /// From the planned release to the moment when the command took effect.
    pub fn response_ns(&self) -> u64 {
        self.control_end_ns.saturating_sub(self.planned_ns)
    }

    /// Time of the control law alone, without the simulation of the vehicle.
    pub fn control_ns(&self) -> u64 {
        self.control_end_ns.saturating_sub(self.control_start_ns)
    }

    /// Time of the whole job.
    pub fn job_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.wake_ns)
    }
}

/// One job of the position loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PositionRecord {
    /// Number of the release on the grid.
    pub index: u64,
    /// Planned release.
    pub planned_ns: u64,
    /// When the thread was awake.
    pub wake_ns: u64,
    /// When the force was published.
    pub end_ns: u64,
    /// Releases skipped before this one.
    pub skipped: u64,
    /// Number of the state that was used.
    pub state_sequence: u64,
    /// Desired force, N.
    pub force_n: [f64; 3],
}

/// One line of telemetry: the newest state as a ground station wants it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TelemetryRecord {
    /// Time of the state.
    pub time_ns: u64,
    pub position_m: [f64; 3],
    pub velocity_m_s: [f64; 3],
    pub roll_pitch_yaw_rad: [f64; 3],
    /// Body rates, rad/s.
    pub rates_rad_s: [f64; 3],
    /// Rotor speeds, rad/s.
    pub rotors_rad_s: [f64; 4],
    /// Desired force, N.
    pub force_n: [f64; 3],
}
