//! The robot's recent states, published by the receiver thread itself: whoever needs the pose at a
//! past moment (perception, a rendered scene, the arm's own shape) has it without any other task
//! having to run.

use crate::RobotState;

/// States that a [`StateHistory`] keeps: 256 ms at 500 Hz. A frame is judged up to 120 ms after its
/// capture, and a perception thread that was late by as much again still finds the pose.
pub const STATE_HISTORY: usize = 128;

/// One past state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StateSample {
    /// Number of the packet, as [`RobotState::sequence`].
    pub sequence: u64,
    /// When the packet was read, CLOCK_MONOTONIC nanoseconds.
    pub received_ns: u64,
    /// When the controller measured it, as far as that can be distinguished from here,
    /// CLOCK_MONOTONIC nanoseconds: [`RobotState::measured_ns`]. Rises strictly within a history.
    pub measured_ns: u64,
    /// Joint angles in radians.
    pub joints_rad: [f64; 6],
    /// Joint speeds in rad/s.
    pub joint_speeds_rad_s: [f64; 6],
    /// TCP position in metres and rotation vector in radians, base frame.
    pub tcp_pose: [f64; 6],
    /// Digital outputs, as [`RobotState::digital_outputs`].
    pub digital_outputs: u64,
}

/// The last [`STATE_HISTORY`] states: a plain value, for an exchange.
#[derive(Clone, Debug)]
pub struct StateHistory {
    /// A ring; `next` is the oldest entry once it is full.
    samples: [StateSample; STATE_HISTORY],
    next: usize,
    count: usize,
}

impl Default for StateHistory {
    fn default() -> Self {
        Self { samples: [StateSample::default(); STATE_HISTORY], next: 0, count: 0 }
    }
}

impl StateHistory {
    /// Adds a state; false for one that is no newer measurement than the newest here, or from a
    /// lost link.
    pub fn push(&mut self, state: &RobotState) -> bool {
        let newer = self.newest().is_none_or(|newest| state.measured_ns > newest.measured_ns);
        if !state.connected || state.sequence == 0 || !newer {
            return false;
        }
        self.samples[self.next] = StateSample {
            sequence: state.sequence,
            received_ns: state.received_ns,
            measured_ns: state.measured_ns,
            joints_rad: state.joints_rad,
            joint_speeds_rad_s: state.joint_speeds_rad_s,
            tcp_pose: state.tcp_pose,
            digital_outputs: state.digital_outputs,
        };
        self.next = (self.next + 1) % STATE_HISTORY;
        self.count = (self.count + 1).min(STATE_HISTORY);
        true
    }

    /// The newest state.
    pub fn newest(&self) -> Option<&StateSample> {
        (self.count > 0).then(|| &self.samples[(self.next + STATE_HISTORY - 1) % STATE_HISTORY])
    }

    /// All states, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &StateSample> + '_ {
        let oldest = (self.next + STATE_HISTORY - self.count) % STATE_HISTORY;
        (0..self.count).map(move |i| &self.samples[(oldest + i) % STATE_HISTORY])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(at: u64) -> RobotState {
        RobotState {
            sequence: at,
            connected: true,
            received_ns: at,
            measured_ns: at,
            tcp_pose: [at as f64; 6],
            ..RobotState::default()
        }
    }

    #[test]
    fn keeps_the_newest_in_order_and_each_once() {
        let mut history = StateHistory::default();
        assert_eq!((history.iter().count(), history.newest()), (0, None));
        let last = STATE_HISTORY as u64 + 10;
        for at in 1..=last {
            assert!(history.push(&state(at)));
            assert!(!history.push(&state(at)), "the same measurement again");
        }
        let times: Vec<u64> = history.iter().map(|sample| sample.measured_ns).collect();
        assert_eq!(times, (11..=last).collect::<Vec<_>>());
        assert!(history.iter().all(|sample| sample.tcp_pose[0] == sample.measured_ns as f64));
        assert!(!history.push(&RobotState { connected: false, ..state(last + 1) }));
        assert!(!history.push(&state(3)), "backwards");
        assert_eq!(history.newest().map(|sample| sample.measured_ns), Some(last));
    }
}
