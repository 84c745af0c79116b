//! Space of the robot in one frame: capsules in its base frame, from the joint angles at capture.

use nalgebra::{Isometry3, Point3, Vector3};

use crate::occupancy::{Capsule, CapsuleFrame};

/// Most capsules of one frame: eight links, a gripper and a held part.
pub const MAX_ROBOT_CAPSULES: usize = 24;

/// Space of the robot in one frame, stored in place: it travels with the frame to its judge.
///
/// Samples inside are the robot, and whatever is in there with it is not seen: capsules must be
/// tight, and grown by no more than the robot's place is uncertain.
#[derive(Clone, Copy, PartialEq)]
pub struct RobotShape {
    capsules: [Capsule; MAX_ROBOT_CAPSULES],
    count: usize,
}

impl Default for RobotShape {
    fn default() -> Self {
        let nothing = Capsule {
            frame: CapsuleFrame::Base,
            from_m: Point3::origin(),
            to_m: Point3::origin(),
            radius_m: 0.0,
        };
        Self { capsules: [nothing; MAX_ROBOT_CAPSULES], count: 0 }
    }
}

impl std::fmt::Debug for RobotShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.capsules()).finish()
    }
}

impl RobotShape {
    /// Adds a capsule of the base frame; false, and nothing is added, where it is not finite, has
    /// no radius, is of another frame, or there is no room. Less is left out then, so that the
    /// robot stops rather than overlooks.
    pub fn push(&mut self, capsule: Capsule) -> bool {
        if capsule.frame != CapsuleFrame::Base || !capsule.is_valid() || self.count == MAX_ROBOT_CAPSULES {
            return false;
        }
        self.capsules[self.count] = capsule;
        self.count += 1;
        true
    }

    /// The capsules, in the order in which they came.
    pub fn capsules(&self) -> &[Capsule] {
        &self.capsules[..self.count]
    }
}

impl Capsule {
    /// The same capsule in the base frame, where its own frame is at `frame_in_base`, with
    /// `grown_m` added to its radius.
    pub fn placed(&self, frame_in_base: &Isometry3<f64>, grown_m: f64) -> Self {
        let at = |p: &Point3<f32>| (frame_in_base * p.cast::<f64>()).cast::<f32>();
        Self {
            frame: CapsuleFrame::Base,
            from_m: at(&self.from_m),
            to_m: at(&self.to_m),
            radius_m: (f64::from(self.radius_m) + grown_m) as f32,
        }
    }
}

/// Capsules that hold a box and stand out of it by no more than they must: side by side along its
/// longest side, as few of one to four as keep the overshoot beside it below 15 mm, else as many as
/// have the least (a fifth of its side for a square bar, a quarter at the most). Beyond its ends
/// they stand out by their radius.
///
/// `centre` is the box's middle with its axes, `sides_m` its full lengths along them.
pub fn box_capsules(
    frame: CapsuleFrame,
    centre: &Isometry3<f64>,
    sides_m: [f64; 3],
) -> impl Iterator<Item = Capsule> {
    const OVERSHOOT_M: f64 = 0.015;
    let mut order = [0, 1, 2];
    order.sort_by(|&a: &usize, &b: &usize| sides_m[b].total_cmp(&sides_m[a]));
    let [long, wide, thin] = order.map(|axis| (axis, sides_m[axis]));
    // Each capsule holds a bar of the box: its radius is half the bar's diagonal.
    let radius = move |bars: usize| (wide.1 / bars as f64).hypot(thin.1) / 2.0;
    let overshoot = |bars: usize| radius(bars) - thin.1.min(wide.1 / bars as f64) / 2.0;
    let least = (1..=4).min_by(|&a, &b| overshoot(a).total_cmp(&overshoot(b))).unwrap_or(1);
    let bars = (1..=4).find(|&bars| overshoot(bars) <= OVERSHOOT_M).unwrap_or(least);
    let centre = *centre;
    (0..bars).map(move |bar| {
        let mut middle = Vector3::zeros();
        middle[wide.0] = ((bar as f64 + 0.5) / bars as f64 - 0.5) * wide.1;
        let end = |side: f64| {
            let mut at = middle;
            at[long.0] = side * long.1 / 2.0;
            (centre * Point3::from(at)).cast::<f32>()
        };
        Capsule { frame, from_m: end(-1.0), to_m: end(1.0), radius_m: radius(bars) as f32 }
    })
}

/// The least box that holds capsules, so that most samples are tested against it alone; inside out
/// without any.
pub(crate) fn bounds(capsules: &[Capsule]) -> [Point3<f32>; 2] {
    let mut low = Point3::from([f32::INFINITY; 3]);
    let mut high = Point3::from([f32::NEG_INFINITY; 3]);
    for capsule in capsules {
        let radius = Vector3::repeat(capsule.radius_m);
        low = low.inf(&(capsule.from_m.inf(&capsule.to_m) - radius));
        high = high.sup(&(capsule.from_m.sup(&capsule.to_m) + radius));
    }
    [low, high]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn capsule(radius_m: f32) -> Capsule {
        Capsule {
            frame: CapsuleFrame::Base,
            from_m: Point3::origin(),
            to_m: Point3::new(0.0, 0.0, 1.0),
            radius_m,
        }
    }

    #[test]
    fn what_is_no_capsule_leaves_nothing_out() {
        let mut shape = RobotShape::default();
        assert!(
            !shape.push(capsule(0.0))
                && !shape.push(capsule(f32::NAN))
                && !shape.push(capsule(f32::INFINITY))
        );
        assert!(!shape.push(Capsule { from_m: Point3::new(f32::NAN, 0.0, 0.0), ..capsule(0.1) }));
        assert!(!shape.push(Capsule { frame: CapsuleFrame::Tcp, ..capsule(0.1) }));
        assert!(shape.capsules().is_empty());
        assert_eq!((0..40).filter(|_| shape.push(capsule(0.1))).count(), MAX_ROBOT_CAPSULES);
        let [low, high] = bounds(&[]);
        assert!((0..3).all(|axis| low[axis] > high[axis]));
    }

    proptest! {
        #[test]
        fn a_box_is_held_and_hardly_more(
            sides in prop::array::uniform3(0.02f64..0.4),
            inside in prop::array::uniform3(-0.5f64..0.5),
            turn in prop::array::uniform3(-2.0f64..2.0),
        ) {
            let centre = Isometry3::new(Vector3::new(0.1, -0.2, 0.3), Vector3::from(turn));
            let capsules: Vec<_> = box_capsules(CapsuleFrame::Base, &centre, sides).collect();
            let at = Point3::from(Vector3::from(inside).component_mul(&Vector3::from(sides)));
            let p = (centre * at).cast::<f32>();
            let held = capsules.iter().any(|c| Capsule { radius_m: c.radius_m + 1e-5, ..*c }.contains(&p));
            prop_assert!(held, "{:?} lies outside", p);
            // Beside it, across the longest side, nothing stands out by more than is said.
            let mut order = [0, 1, 2];
            order.sort_by(|&a: &usize, &b: &usize| sides[b].total_cmp(&sides[a]));
            for capsule in &capsules {
                let middle = centre.inverse_transform_point(&nalgebra::center(&capsule.from_m, &capsule.to_m).cast());
                for axis in [order[1], order[2]] {
                    let out = middle[axis].abs() + f64::from(capsule.radius_m) - sides[axis] / 2.0;
                    prop_assert!(out <= f64::max(0.015, 0.24 * sides[order[1]]) + 1e-5, "{out} beyond {sides:?}");
                }
            }
        }
    }
}
