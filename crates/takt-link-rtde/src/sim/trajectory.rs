//! A mission as the simulated arm would move through it, without a controller and without waiting.

use super::motion::Move;
use takt_rt::config::SettingError;

use crate::RtdeError;
use crate::arm::{Mission, Step};
use crate::kinematics::Arm;

/// State of the arm at one moment of a mission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MissionSample {
    /// Since the start, seconds.
    pub t_s: f64,
    /// Joint angles, radians.
    pub joints_rad: [f64; 6],
    /// Joint speeds, rad/s.
    pub speeds_rad_s: [f64; 6],
    /// Whether the suction gripper is on.
    pub suction: bool,
}

/// Samples of one round of a mission, `step_s` apart, at full speed; the first at `start_rad`. At
/// most as many as two hours hold.
///
/// # Errors
/// A mission that [`Mission::check`] refuses, a move that the arm cannot make, or a `step_s` below
/// 0.1 ms.
pub fn trajectory(
    arm: &Arm,
    mission: &Mission,
    start_rad: [f64; 6],
    step_s: f64,
) -> Result<Vec<MissionSample>, RtdeError> {
    mission.check()?;
    if !(1e-4..=60.0).contains(&step_s) {
        let received = step_s.to_string();
        return Err(SettingError::value("step_s", received, "accepted: 0.0001 to 60 s").into());
    }
    let most = (7200.0 / step_s) as usize;
    let (mut joints_rad, mut suction, mut t_s) = (start_rad, false, 0.0);
    let mut samples = vec![MissionSample { t_s, joints_rad, speeds_rad_s: [0.0; 6], suction }];
    for (index, step) in mission.steps.iter().enumerate() {
        let refused = |problem| RtdeError::Mission { step: index + 1, problem };
        let duration_s = match step {
            Step::Suction { on } => {
                suction = *on;
                continue;
            }
            Step::Dwell { seconds } => *seconds,
            Step::Move { .. } => f64::INFINITY,
        };
        let mut motion =
            match step {
                Step::Move { to, speed_rad_s, acceleration_rad_s2 } => {
                    let to = mission.joints_rad(to).map_err(refused)?;
                    let speed = speed_rad_s.unwrap_or(mission.speed_rad_s);
                    let acceleration = acceleration_rad_s2.unwrap_or(mission.acceleration_rad_s2);
                    let motion = Move::new(arm, joints_rad, to, speed, acceleration);
                    Some(motion.ok_or_else(|| {
                        refused(String::from("angles or limits are out of the arm's range"))
                    })?)
                }
                _ => None,
            };
        let mut elapsed_s = 0.0;
        while elapsed_s < duration_s && samples.len() < most {
            elapsed_s += step_s;
            t_s += step_s;
            let mut speeds_rad_s = [0.0; 6];
            if let Some(motion) = &mut motion {
                motion.advance(step_s);
                let point = motion.point();
                (joints_rad, speeds_rad_s) = (point.joints_rad, point.speeds_rad_s);
            }
            samples.push(MissionSample { t_s, joints_rad, speeds_rad_s, suction });
            if motion.as_ref().is_some_and(Move::is_done) {
                break;
            }
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinematics::UR10E;

    #[test]
    fn the_shipped_mission_runs_through_all_its_waypoints() {
        let mission = Mission::pick_and_place().unwrap();
        let start = super::super::SimConfig::default().start_joints_rad;
        let samples = trajectory(&UR10E, &mission, start, 0.01).unwrap();
        assert!(samples.iter().any(|s| s.suction) && samples.iter().any(|s| !s.suction));
        for target in mission.waypoints_deg.values() {
            let near = samples.iter().any(|s| {
                s.joints_rad.iter().zip(target).all(|(angle, deg)| (angle - deg.to_radians()).abs() < 1e-6)
            });
            assert!(near, "{target:?} is never reached");
        }
        let fastest = samples.iter().flat_map(|s| s.speeds_rad_s).fold(0.0, |a: f64, b| a.max(b.abs()));
        assert!(fastest > 1.0 && fastest <= mission.speed_rad_s + 1e-9, "{fastest}");
        assert!(trajectory(&UR10E, &mission, start, 0.0).is_err());
    }
}
