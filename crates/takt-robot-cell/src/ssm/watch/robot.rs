//! Whether the robot can be trusted.

use takt_link_rtde::client::Content;
use takt_link_rtde::{RobotMode, RobotState, SafetyMode};

use super::super::SsmConfig;
use super::super::obedience::{Obedience, state_age_ns};
use super::{FaultKind, NS_PER_MS, signed_gap_ns};

/// Judges the robot: first whether its state can be believed, then its motion, then everything
/// else.
pub(in crate::ssm) fn robot_fault(
    config: &SsmConfig,
    obedience: &mut Obedience,
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
