//! Motion of the robot once all drives are in operation: the built-in walk, or one's own.
//!
//! A motion says where joints are to be; everything around it stays: enabling where each joint
//! stands, limits of speed, acceleration and range, the watch that stops the robot, safe stop. So
//! an own motion cannot make a joint jump, and one that panics is not asked again: the robot stops
//! ([`StopReason::MotionPanicked`](crate::StopReason::MotionPanicked)).
//! `examples/own_controller.rs` is one in under 100 lines.

use crate::config::HumanoidConfig;
use crate::topology::DeviceClass;

/// Target of a joint.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Target {
    pub position_rad: f64,
    /// Speed there, which lets the limiter follow without a lag.
    pub velocity_rad_s: f64,
}

/// A motion's knowledge in a cycle. Joints are the drives in the order of the wire.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// Since the motion began, seconds.
    pub time_s: f64,
    /// Positions at which joints were held when it began.
    pub start_rad: &'a [f64],
    /// Measured positions of the joints, as of this cycle's inputs.
    pub measured_rad: &'a [f64],
}

/// Moves the robot.
pub trait Motion: Send {
    /// One cycle: where each joint is to be, as it was left in the cycle before. Called at every
    /// cycle's time while the robot moves, in the real-time thread: it must not allocate, lock or
    /// block. A target that is no number holds the joint where it is.
    fn plan(&mut self, moment: &Moment<'_>, targets: &mut [Target]);
}

/// A joint's part in the walk.
struct Swing {
    middle_rad: f64,
    swing_rad: f64,
    phase_turns: f64,
    swings: f64,
}

/// The built-in walk: over the ramp, from where a joint stood to a sine around its middle.
pub struct Walk {
    swings: Vec<Swing>,
    walk_hz: f64,
    ramp_s: f64,
}

impl Walk {
    pub fn new(config: &HumanoidConfig) -> Self {
        let devices = config.devices();
        let drives = devices.iter().filter(|device| device.kind == DeviceClass::Drive);
        let swings = drives
            .map(|spec| Swing {
                middle_rad: spec.middle_rad,
                swing_rad: spec.swing_rad,
                phase_turns: spec.phase_turns,
                swings: f64::from(spec.swings),
            })
            .collect();
        Self { swings, walk_hz: config.walk_hz, ramp_s: config.ramp_s }
    }
}

impl Motion for Walk {
    fn plan(&mut self, moment: &Moment<'_>, targets: &mut [Target]) {
        let time_s = moment.time_s;
        let share = if self.ramp_s > 0.0 { (time_s / self.ramp_s).min(1.0) } else { 1.0 };
        let growth = if share < 1.0 && self.ramp_s > 0.0 { 1.0 / self.ramp_s } else { 0.0 };
        for ((swing, target), &start_rad) in self.swings.iter().zip(targets).zip(moment.start_rad) {
            let Swing { middle_rad, swing_rad, phase_turns, swings } = *swing;
            let rate = std::f64::consts::TAU * self.walk_hz * swings;
            let angle = rate * time_s + std::f64::consts::TAU * phase_turns;
            let wave = middle_rad + swing_rad * angle.sin();
            *target = Target {
                position_rad: start_rad + share * (wave - start_rad),
                velocity_rad_s: share * swing_rad * rate * angle.cos() + growth * (wave - start_rad),
            };
        }
    }
}
