//! Whether the robot can be trusted.

use nalgebra::{Isometry3, Vector3};
use takt_link_rtde::client::Content;
use takt_link_rtde::kinematics::{Arm, Model};
use takt_link_rtde::{RobotMode, RobotState, SafetyMode};

use super::super::SsmConfig;
use super::super::obedience::{Obedience, state_age_ns};
use super::{FaultKind, NS_PER_MS, signed_gap_ns};

/// Farthest that the tool centre point may be from the base, metres: the longest arm of its kind
/// reaches 1.75 m (UR20), with [`MAX_TOOL_M`] on its flange 2.75 m.
const MAX_REACH_M: f64 = 2.75;
/// Farthest that the tool centre point may be from the flange, metres: 0.2 to 0.4 m are usual, and
/// a metre is longer than what an arm of this kind holds against its own inertia.
pub(crate) const MAX_TOOL_M: f64 = 1.0;
/// A rotation vector is an axis times an angle of at most half a turn; some controllers write up to
/// a whole one.
const MAX_ROTATION_RAD: f64 = 6.4;
/// Greatest speed of a joint, rad/s: twice that of the fastest (360 degrees a second).
const MAX_JOINT_RAD_S: f64 = 12.6;
/// Greatest angle of a joint, radians: a UR3e's last joint turns without end, and counts turns.
const MAX_JOINT_RAD: f64 = 1e4;
/// Greatest speed of the tool, m/s and rad/s: all joints of the longest arm at their fastest.
const MAX_TOOL_M_S: f64 = 20.0;
const MAX_TOOL_RAD_S: f64 = 80.0;
/// A speed fraction is 0 to 1; the controller's ramps overshoot by rounding alone.
const FRACTIONS: std::ops::RangeInclusive<f64> = -0.01..=1.01;

/// Whether a tool centre point lies within reach of any arm.
pub(crate) fn is_within_reach(position_m: &[f64]) -> bool {
    position_m.iter().map(|v| v * v).sum::<f64>() <= MAX_REACH_M * MAX_REACH_M
}

/// The arms that the robot may be.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    arms: Vec<Arm>,
}

impl Reach {
    /// One arm, or any that is known.
    pub(crate) fn of(arm: Option<Arm>) -> Self {
        let any = || Model::ALL.into_iter().map(|model| model.arm()).collect();
        Self { arms: arm.map_or_else(any, |arm| vec![arm]) }
    }

    /// Finds an impossible value in a state whose numbers are finite.
    fn find(&self, robot: &RobotState) -> Option<FaultKind> {
        let [x, y, z, rx, ry, rz] = robot.tcp_pose;
        let all = |values: &[f64], most: f64| values.iter().all(|value| value.abs() <= most);
        let possible = is_within_reach(&[x, y, z])
            && (rx * rx + ry * ry + rz * rz).sqrt() <= MAX_ROTATION_RAD
            && all(&robot.tcp_speed[..3], MAX_TOOL_M_S)
            && all(&robot.tcp_speed[3..], MAX_TOOL_RAD_S)
            && all(&robot.joints_rad, MAX_JOINT_RAD)
            && all(&robot.joint_speeds_rad_s, MAX_JOINT_RAD_S)
            && FRACTIONS.contains(&robot.speed_fraction);
        if !possible {
            return Some(FaultKind::RobotImpossible);
        }
        let tool = Vector3::new(x, y, z);
        let fits = |arm: &Arm| {
            let flange = arm.forward(&robot.joints_rad, &Isometry3::identity());
            (flange.translation.vector - tool).norm() <= MAX_TOOL_M
        };
        (!self.arms.iter().any(fits)).then_some(FaultKind::RobotPoseNotOfJoints)
    }
}

/// Judges the robot: first whether its state can be believed, then its motion, then everything
/// else.
pub(in crate::ssm) fn robot_fault(
    config: &SsmConfig,
    obedience: &mut Obedience,
    reach: &Reach,
    watchdog: bool,
    robot: &RobotState,
    now_ns: u64,
) -> Option<FaultKind> {
    obedience.see(robot, now_ns);
    let age_ms = signed_gap_ns(now_ns, robot.received_ns) as f64 / NS_PER_MS;
    if !robot.connected || robot.sequence == 0 || age_ms > config.robot_stale_after_ms {
        return Some(FaultKind::RobotLinkLost);
    }
    if age_ms < -config.future_tolerance_ms {
        return Some(FaultKind::RobotFutureDated);
    }
    let numbers = robot.tcp_pose.iter().chain(&robot.tcp_speed).chain(&robot.joints_rad);
    let numbers = numbers.chain(&robot.joint_speeds_rad_s).chain([&robot.speed_fraction]);
    if numbers.into_iter().any(|v| !v.is_finite()) {
        return Some(FaultKind::RobotNotANumber);
    }
    if let Some(kind) = reach.find(robot) {
        return Some(kind);
    }
    if state_age_ns(robot, now_ns) as f64 / NS_PER_MS > config.robot_state_age_ms {
        return Some(match robot.content {
            Content::Repeated => FaultKind::RobotStateRepeated,
            Content::ClockFrozen => FaultKind::RobotClockFrozen,
            Content::New | Content::ClockBackwards | Content::ClockLeapt => FaultKind::RobotStateOld,
        });
    }
    if let Some(kind) = obedience.find_motion(config, robot) {
        return Some(kind);
    }
    if robot.robot_mode != RobotMode::Running {
        return Some(FaultKind::RobotNotRunning);
    }
    if !matches!(robot.safety_mode, SafetyMode::Normal | SafetyMode::Reduced) {
        return Some(FaultKind::RobotSafetyMode);
    }
    if config.require_program && !robot.program_running {
        return Some(FaultKind::ProgramStopped);
    }
    obedience.find(config, robot, watchdog, now_ns)
}
