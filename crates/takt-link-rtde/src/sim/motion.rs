//! Joint moves with limited speed and acceleration, and limited rates of change.

use crate::kinematics::Arm;

/// A joint move: all joints start and end together; the one with the longest way follows a
/// trapezoid of speed and the others scale with it, as `movej` does.
#[derive(Clone, Debug)]
pub(super) struct Move {
    from: [f64; 6],
    /// Way of every joint over the longest way.
    share: [f64; 6],
    way: f64,
    peak: f64,
    acceleration: f64,
    /// Time on the undisturbed trajectory.
    elapsed_s: f64,
}

/// Position within a move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) joints_rad: [f64; 6],
    /// At full speed fraction; the arm's speed is this times the fraction.
    pub(super) speeds_rad_s: [f64; 6],
}

impl Move {
    /// A move from standstill to standstill; limits that are no positive numbers are refused.
    pub(super) fn new(
        arm: &Arm,
        from: [f64; 6],
        to: [f64; 6],
        speed_rad_s: f64,
        acceleration_rad_s2: f64,
    ) -> Option<Self> {
        let usable = |limit: f64| limit.is_finite() && limit > 0.0;
        let reachable = |angle: &f64| angle.abs() <= arm.joint_range_rad;
        if !usable(speed_rad_s) || !usable(acceleration_rad_s2) || !to.iter().all(reachable) {
            return None;
        }
        let delta: [f64; 6] = std::array::from_fn(|joint| to[joint] - from[joint]);
        let way = delta.iter().fold(0.0_f64, |longest, way| longest.max(way.abs()));
        let share = delta.map(|way_of_joint| if way > 0.0 { way_of_joint / way } else { 0.0 });
        let mut peak = speed_rad_s;
        for (joint, share) in share.iter().enumerate() {
            if *share != 0.0 {
                peak = peak.min(arm.joint_speed_max_rad_s[joint] / share.abs());
            }
        }
        // Too short a way never reaches the speed: the trapezoid becomes a triangle.
        let peak = peak.min((way * acceleration_rad_s2).sqrt());
        Some(Self { from, share, way, peak, acceleration: acceleration_rad_s2, elapsed_s: 0.0 })
    }

    /// Its duration at full speed fraction, in seconds.
    pub(super) fn duration_s(&self) -> f64 {
        if self.way > 0.0 { self.way / self.peak + self.peak / self.acceleration } else { 0.0 }
    }

    /// Goes on by `seconds` of the trajectory: real time times the speed fraction.
    pub(super) fn advance(&mut self, seconds: f64) {
        self.elapsed_s = (self.elapsed_s + seconds).min(self.duration_s());
    }

    pub(super) fn is_done(&self) -> bool {
        self.elapsed_s >= self.duration_s()
    }

    pub(super) fn point(&self) -> Point {
        let ramp_s = if self.way > 0.0 { self.peak / self.acceleration } else { 0.0 };
        let (t, end) = (self.elapsed_s, self.duration_s());
        let (way, speed) = if self.is_done() {
            (self.way, 0.0)
        } else if t < ramp_s {
            (0.5 * self.acceleration * t * t, self.acceleration * t)
        } else if t <= end - ramp_s {
            (self.peak * (t - 0.5 * ramp_s), self.peak)
        } else {
            let left = end - t;
            (self.way - 0.5 * self.acceleration * left * left, self.acceleration * left)
        };
        Point {
            joints_rad: std::array::from_fn(|joint| self.from[joint] + self.share[joint] * way),
            speeds_rad_s: self.share.map(|share| share * speed),
        }
    }
}

/// Moves `value` towards `target` by at most `step`.
pub(super) fn approach(value: f64, target: f64, step: f64) -> f64 {
    value + (target - value).clamp(-step, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinematics::UR10E;

    const FROM: [f64; 6] = [0.0, -1.0, -1.5, -1.5, 1.5, 0.0];

    fn run(mut motion: Move, fraction: f64) -> Vec<Point> {
        let mut points = vec![motion.point()];
        while !motion.is_done() {
            motion.advance(0.002 * fraction);
            points.push(motion.point());
        }
        points
    }

    #[test]
    fn it_arrives_within_its_limits() {
        let to = [1.2, -0.4, -1.7, -1.5, 1.4, 2.0];
        let points = run(Move::new(&UR10E, FROM, to, 1.0, 1.4).unwrap(), 1.0);
        let last = points.last().unwrap();
        assert_eq!(last.speeds_rad_s, [0.0; 6]);
        for (reached, asked) in last.joints_rad.iter().zip(to) {
            assert!((reached - asked).abs() < 1e-12);
        }
        for pair in points.windows(2) {
            for joint in 0..6 {
                let moved = (pair[1].joints_rad[joint] - pair[0].joints_rad[joint]).abs() / 0.002;
                let gained = (pair[1].speeds_rad_s[joint] - pair[0].speeds_rad_s[joint]).abs() / 0.002;
                assert!(moved <= 1.0 + 1e-9, "{moved} rad/s");
                assert!(gained <= 1.4 + 1e-9, "{gained} rad/s2");
            }
        }
    }

    #[test]
    fn half_the_fraction_takes_twice_as_long_on_the_same_path() {
        let to = [1.0, -1.0, -1.0, -1.5, 1.5, 0.0];
        let full = run(Move::new(&UR10E, FROM, to, 1.0, 1.4).unwrap(), 1.0);
        let half = run(Move::new(&UR10E, FROM, to, 1.0, 1.4).unwrap(), 0.5);
        assert!(half.len().abs_diff(2 * full.len()) <= 2);
        for (index, point) in full.iter().enumerate().take(full.len() - 1) {
            for joint in 0..6 {
                assert!((point.joints_rad[joint] - half[2 * index].joints_rad[joint]).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn joint_speed_limits_hold_whatever_is_asked() {
        let points = run(Move::new(&UR10E, FROM, [3.0; 6], 100.0, 50.0).unwrap(), 1.0);
        for point in points {
            for joint in 0..6 {
                assert!(point.speeds_rad_s[joint].abs() <= UR10E.joint_speed_max_rad_s[joint] + 1e-9);
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for limit in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Move::new(&UR10E, FROM, FROM, limit, 1.0).is_none());
            assert!(Move::new(&UR10E, FROM, FROM, 1.0, limit).is_none());
        }
        for angle in [7.0, f64::NAN, f64::INFINITY] {
            assert!(Move::new(&UR10E, FROM, [0.0, 0.0, 0.0, angle, 0.0, 0.0], 1.0, 1.0).is_none());
        }
        let still = Move::new(&UR10E, FROM, FROM, 1.0, 1.0).unwrap();
        assert!(still.is_done());
        assert_eq!(still.point().joints_rad, FROM);
    }
}
