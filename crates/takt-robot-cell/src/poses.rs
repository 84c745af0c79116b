//! The robot's recent poses, handed from the SSM job (which sees every packet) to the cameras' threads (which
//! need the pose at capture time).

use nalgebra::{Isometry3, Translation3, UnitQuaternion, Vector3};
use takt_link_rtde::RobotState;

/// Number of poses handed over: 128 ms at 500 Hz, four camera periods.
pub const WINDOW: usize = 64;

/// A plain value for an exchange buffer.
#[derive(Clone, Copy, Debug)]
pub struct PoseWindow {
    /// A ring; `next` is the oldest entry once it is full.
    entries: [(u64, [f64; 6]); WINDOW],
    next: usize,
    count: usize,
}

impl Default for PoseWindow {
    fn default() -> Self {
        Self { entries: [(0, [0.0; 6]); WINDOW], next: 0, count: 0 }
    }
}

impl PoseWindow {
    /// Adds the pose of a packet, unless it is the one added last.
    pub fn push(&mut self, robot: &RobotState) {
        let last = (self.next + WINDOW - 1) % WINDOW;
        let known = self.count > 0 && self.entries[last].0 == robot.received_ns;
        if !robot.connected || robot.received_ns == 0 || known {
            return;
        }
        self.entries[self.next] = (robot.received_ns, robot.tcp_pose);
        self.next = (self.next + 1) % WINDOW;
        self.count = (self.count + 1).min(WINDOW);
    }

    /// Times and TCP poses in the base frame, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Isometry3<f64>)> + '_ {
        let oldest = (self.next + WINDOW - self.count) % WINDOW;
        (0..self.count).map(move |i| {
            let (t_ns, pose) = self.entries[(oldest + i) % WINDOW];
            (t_ns, isometry(pose))
        })
    }
}

/// A Universal Robots pose (position in metres, rotation vector in radians) as an isometry.
pub fn isometry([x, y, z, rx, ry, rz]: [f64; 6]) -> Isometry3<f64> {
    Isometry3::from_parts(
        Translation3::new(x, y, z),
        UnitQuaternion::from_scaled_axis(Vector3::new(rx, ry, rz)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_in_order_and_each_once() {
        let mut window = PoseWindow::default();
        assert_eq!(window.iter().count(), 0);
        for t in 1..=(WINDOW as u64 + 10) {
            let robot = RobotState {
                connected: true,
                received_ns: t,
                tcp_pose: [t as f64, 0.0, 0.0, 0.0, 0.0, 0.0],
                ..RobotState::default()
            };
            window.push(&robot);
            window.push(&robot);
        }
        let times: Vec<u64> = window.iter().map(|(t, _)| t).collect();
        assert_eq!(times, (11..=WINDOW as u64 + 10).collect::<Vec<_>>());
        assert!(window.iter().all(|(t, pose)| pose.translation.x == t as f64));
        window.push(&RobotState { connected: false, received_ns: 999, ..RobotState::default() });
        assert_eq!(window.iter().last().map(|(t, _)| t), Some(WINDOW as u64 + 10));
    }
}
