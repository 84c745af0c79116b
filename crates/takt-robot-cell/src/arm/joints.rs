//! The arm's joints at the moment of a capture.

use takt_link_rtde::client::{StateHistory, StateSample};

/// The joints at a past moment, and how wrong their angles can be by the way in which they were
/// found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JointsAt {
    /// Angles, radians.
    pub joints_rad: [f64; 6],
    /// Greatest speed of each joint around that moment, rad/s: the greatest of what the controller
    /// says and what the angles show.
    pub speeds_rad_s: [f64; 6],
    /// Time from the moment to the state that was held for it, seconds; 0 between two states.
    pub held_s: f64,
    /// Time between the two states, seconds.
    pub gap_s: f64,
    /// Digital outputs that were on in either state.
    pub outputs: u64,
}

impl JointsAt {
    /// Largest error of each angle if, in addition, state and moment may differ by `time_error_s`
    /// and a joint accelerates by at most `acceleration_rad_s2`.
    pub fn errors_rad(&self, time_error_s: f64, acceleration_rad_s2: f64) -> [f64; 6] {
        let off_s = self.held_s + time_error_s;
        // Within `off_s` of a known speed, and between two states a line is off by an eighth of the
        // arc at most.
        let bent = acceleration_rad_s2 * (0.5 * off_s * off_s + self.gap_s * self.gap_s / 8.0);
        self.speeds_rad_s.map(|speed| speed * off_s + bent)
    }
}

/// Finds the joints at `t_ns` (CLOCK_MONOTONIC): between two states at most `max_gap_ns` apart on
/// the line between them, up to `max_age_ns` after the newest state its own. `None` where nothing
/// is known of that moment, or it is no number.
pub fn joints_at(history: &StateHistory, t_ns: u64, max_age_ns: u64, max_gap_ns: u64) -> Option<JointsAt> {
    let mut after: Option<&StateSample> = None;
    for state in history.iter().rev() {
        if state.measured_ns <= t_ns {
            return match after {
                None => held(state, t_ns, max_age_ns),
                Some(after) => between(state, after, t_ns, max_gap_ns),
            };
        }
        after = Some(state);
    }
    None
}

fn held(state: &StateSample, t_ns: u64, max_age_ns: u64) -> Option<JointsAt> {
    let age_ns = t_ns - state.measured_ns;
    (age_ns <= max_age_ns && is_finite(state)).then(|| JointsAt {
        joints_rad: state.joints_rad,
        speeds_rad_s: state.joint_speeds_rad_s.map(f64::abs),
        held_s: age_ns as f64 / 1e9,
        gap_s: 0.0,
        outputs: state.digital_outputs,
    })
}

fn between(before: &StateSample, after: &StateSample, t_ns: u64, max_gap_ns: u64) -> Option<JointsAt> {
    let gap_ns = after.measured_ns - before.measured_ns;
    if gap_ns > max_gap_ns || !is_finite(before) || !is_finite(after) {
        return None;
    }
    let gap_s = gap_ns as f64 / 1e9;
    let share = (t_ns - before.measured_ns) as f64 / gap_ns as f64;
    let (from, to) = (&before.joints_rad, &after.joints_rad);
    Some(JointsAt {
        joints_rad: std::array::from_fn(|joint| from[joint] + share * (to[joint] - from[joint])),
        speeds_rad_s: std::array::from_fn(|joint| {
            let shown = (to[joint] - from[joint]).abs() / gap_s;
            shown.max(before.joint_speeds_rad_s[joint].abs()).max(after.joint_speeds_rad_s[joint].abs())
        }),
        held_s: 0.0,
        gap_s,
        outputs: before.digital_outputs | after.digital_outputs,
    })
}

fn is_finite(state: &StateSample) -> bool {
    state.joints_rad.iter().chain(&state.joint_speeds_rad_s).all(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_link_rtde::RobotState;

    const MS: u64 = 1_000_000;

    fn history(states: &[(u64, f64, f64)]) -> StateHistory {
        let mut history = StateHistory::default();
        for (index, &(at_ms, angle, speed)) in states.iter().enumerate() {
            history.push(&RobotState {
                sequence: index as u64 + 1,
                connected: true,
                received_ns: at_ms * MS,
                measured_ns: at_ms * MS,
                joints_rad: [angle; 6],
                joint_speeds_rad_s: [speed; 6],
                ..RobotState::default()
            });
        }
        history
    }

    fn at(history: &StateHistory, ms: u64) -> Option<JointsAt> {
        joints_at(history, ms * MS, 40 * MS, 50 * MS)
    }

    #[test]
    fn angles_lie_on_the_line_and_speeds_are_the_greater() {
        let history = history(&[(100, 1.0, 0.2), (110, 1.02, -0.5), (120, 1.02, 0.0)]);
        let found = at(&history, 105).unwrap();
        assert!((found.joints_rad[3] - 1.01).abs() < 1e-12 && (found.speeds_rad_s[3] - 2.0).abs() < 1e-9);
        assert_eq!((found.held_s, found.gap_s), (0.0, 0.01));
        assert_eq!(at(&history, 115).unwrap().speeds_rad_s[0], 0.5, "said by the state before");
        let held = at(&history, 150).unwrap();
        assert_eq!((held.joints_rad[0], held.held_s), (1.02, 0.03));
        // 0.5 rad/s over 5 ms, and 8 rad/s² over them and between the states.
        let errors = at(&history, 115).unwrap().errors_rad(0.005, 8.0);
        assert!((errors[0] - (0.0025 + 8.0 * (0.5 * 25e-6 + 1e-4 / 8.0))).abs() < 1e-12, "{errors:?}");
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        assert_eq!(at(&StateHistory::default(), 5), None);
        let known = history(&[(100, 1.0, 0.0), (200, 1.0, 0.0)]);
        assert_eq!(at(&known, 99), None, "older than all states");
        assert_eq!(at(&known, 150), None, "a gap");
        assert_eq!(at(&known, 241), None, "too old");
        assert!(at(&known, 240).is_some());
        for (angle, speed) in [(f64::NAN, 0.0), (f64::INFINITY, 0.0), (0.0, f64::NAN)] {
            let broken = history(&[(100, 1.0, 0.0), (110, angle, speed)]);
            assert_eq!((at(&broken, 105), at(&broken, 115)), (None, None));
        }
    }
}
