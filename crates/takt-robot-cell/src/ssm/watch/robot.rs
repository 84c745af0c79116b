//! Whether the robot can be trusted.

use takt_link_rtde::{RobotMode, RobotState, SafetyMode};

use super::super::SsmConfig;
use super::{FaultKind, NS_PER_MS, signed_gap_ns};

/// Judges the robot.
pub(in crate::ssm) fn robot_fault(config: &SsmConfig, robot: &RobotState, now_ns: u64) -> Option<FaultKind> {
    let age_ms = signed_gap_ns(now_ns, robot.received_ns) as f64 / NS_PER_MS;
    if !robot.connected || robot.sequence == 0 || age_ms > config.robot_stale_after_ms {
        return Some(FaultKind::RobotLinkLost);
    }
    if age_ms < -config.future_tolerance_ms {
        return Some(FaultKind::RobotFutureDated);
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
    let numbers = robot.tcp_pose.iter().chain(&robot.tcp_speed);
    if numbers.into_iter().any(|v| !v.is_finite()) {
        return Some(FaultKind::RobotNotANumber);
    }
    None
}
