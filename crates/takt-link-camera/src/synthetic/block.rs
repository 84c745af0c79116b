//! Upright boxes in the scene: a pallet, a cabinet, a board on a stand.

use nalgebra::{Isometry3, Point3, Vector3};
use serde::{Deserialize, Serialize};

use crate::Intrinsics;

/// A box of the scene, along the axes of the base frame.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// Lowest corner, robot base frame, metres.
    pub min_m: Point3<f64>,
    /// Highest corner, metres.
    pub max_m: Point3<f64>,
    /// Colour, R G B. Default that of wood.
    #[serde(default = "wood")]
    pub colour: [u8; 3],
}

const fn wood() -> [u8; 3] {
    [172, 140, 98]
}

impl Block {
    /// A box of the usual colour.
    pub fn new(min_m: Point3<f64>, max_m: Point3<f64>) -> Self {
        Self { min_m, max_m, colour: wood() }
    }

    /// Whether it can be drawn.
    pub fn is_valid(&self) -> bool {
        (0..3).all(|axis| {
            self.min_m[axis].abs() <= 1e3
                && self.max_m[axis].abs() <= 1e3
                && self.min_m[axis] < self.max_m[axis]
        })
    }

    /// How far along a ray it is first met from outside, in units of `ray`, and the axis of the
    /// side that is met.
    pub fn meet(&self, eye: &Point3<f64>, ray: &Vector3<f64>) -> Option<(f64, usize)> {
        let (mut from, mut to, mut side) = (0.0f64, f64::INFINITY, 0);
        for axis in 0..3 {
            let (low, high) = (self.min_m[axis] - eye[axis], self.max_m[axis] - eye[axis]);
            if ray[axis].abs() < 1e-12 {
                if low > 0.0 || high < 0.0 {
                    return None;
                }
                continue;
            }
            let (a, b) = (low / ray[axis], high / ray[axis]);
            if a.min(b) > from {
                (from, side) = (a.min(b), axis);
            }
            to = to.min(a.max(b));
        }
        (from > 0.0 && from <= to).then_some((from, side))
    }

    /// Pixels that it may cover: left, top, right, bottom (the latter two exclusive); `None` where
    /// it is not in view.
    pub(super) fn bounds(
        &self,
        intrinsics: &Intrinsics,
        camera_in_base: &Isometry3<f64>,
    ) -> Option<[usize; 4]> {
        let Intrinsics { width, height, fx, fy, cx, cy } = *intrinsics;
        let mut bounds = [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
        let mut behind = 0;
        for corner in 0..8 {
            let pick =
                |axis: usize| if corner >> axis & 1 == 0 { self.min_m[axis] } else { self.max_m[axis] };
            let at = camera_in_base.inverse_transform_point(&Point3::new(pick(0), pick(1), pick(2)));
            if at.z < 0.02 {
                behind += 1;
                continue;
            }
            let (u, v) = (at.x / at.z * fx + cx, at.y / at.z * fy + cy);
            bounds = [bounds[0].min(u), bounds[1].min(v), bounds[2].max(u), bounds[3].max(v)];
        }
        match behind {
            0 => {}
            8 => return None,
            // It reaches behind the camera: anything may be covered.
            _ => return Some([0, 0, width as usize, height as usize]),
        }
        let clamp = |value: f64, size: u32| value.clamp(0.0, f64::from(size)) as usize;
        let [left, top] = [clamp(bounds[0].floor(), width), clamp(bounds[1].floor(), height)];
        let [right, bottom] = [clamp(bounds[2].ceil() + 1.0, width), clamp(bounds[3].ceil() + 1.0, height)];
        (left < right && top < bottom).then_some([left, top, right, bottom])
    }

    /// Its colour on a side: boards of 12 cm.
    pub(super) fn shade(&self, hit: &Point3<f64>, side: usize) -> [u8; 3] {
        let light = [0.86, 0.78, 1.0][side.min(2)];
        let board = ((hit.x + hit.y + hit.z) / 0.12).floor() as i64 & 1;
        self.colour.map(|channel| (f64::from(channel) * light - board as f64 * 10.0).clamp(0.0, 255.0) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rays_meet_the_side_that_faces_them_and_none_from_inside() {
        let block = Block::new(Point3::new(1.0, -1.0, 0.0), Point3::new(2.0, 1.0, 2.0));
        let meet = |eye: [f64; 3], ray: [f64; 3]| block.meet(&Point3::from(eye), &Vector3::from(ray));
        assert_eq!(meet([0.0, 0.0, 1.0], [1.0, 0.0, 0.0]), Some((1.0, 0)));
        assert_eq!(meet([1.5, 0.0, 4.0], [0.0, 0.0, -2.0]), Some((1.0, 2)));
        assert_eq!(meet([0.0, 0.0, 1.0], [-1.0, 0.0, 0.0]), None, "behind");
        assert_eq!(meet([0.0, 3.0, 1.0], [1.0, 0.0, 0.0]), None, "beside");
        assert_eq!(meet([1.5, 0.0, 1.0], [1.0, 0.0, 0.0]), None, "from inside");
    }

    #[test]
    fn every_pixel_that_meets_it_is_within_its_bounds() {
        let intrinsics = Intrinsics { width: 160, height: 120, fx: 120.0, fy: 120.0, cx: 79.5, cy: 59.5 };
        let camera = Isometry3::identity();
        for case in 0..40 {
            let at = |k: i32| f64::from((case * 7 + k * 13) % 20) * 0.1 - 1.0;
            let low = Point3::new(at(1), at(2), 0.3 + at(3));
            let block = Block::new(low, low + Vector3::new(0.4 + at(4).abs(), 0.3, 0.2 + at(5).abs()));
            let bounds = block.bounds(&intrinsics, &camera);
            for (v, u) in (0..120usize).flat_map(|v| (0..160usize).map(move |u| (v, u))) {
                let ray = Vector3::new((u as f64 - 79.5) / 120.0, (v as f64 - 59.5) / 120.0, 1.0);
                if block.meet(&Point3::origin(), &ray).is_some() {
                    let inside =
                        bounds.is_some_and(|[l, t, r, b]| (l..r).contains(&u) && (t..b).contains(&v));
                    assert!(inside, "{block:?}: {u}, {v} outside {bounds:?}");
                }
            }
        }
    }
}
