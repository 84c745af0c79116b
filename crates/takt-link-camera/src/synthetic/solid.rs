//! Round bodies in the scene: the links of an arm, a hand.

use std::sync::Arc;

use nalgebra::{Isometry3, Point3, Vector3};
use serde::{Deserialize, Serialize};

use crate::Intrinsics;

/// A body of the scene: all points within `radius_m` of a line segment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Solid {
    /// One end, robot base frame, metres.
    pub from_m: Point3<f64>,
    /// Other end, metres.
    pub to_m: Point3<f64>,
    /// Radius, metres.
    pub radius_m: f64,
    /// Colour, R G B. Default the light grey of a robot's tubes.
    #[serde(default = "grey")]
    pub colour: [u8; 3],
}

const fn grey() -> [u8; 3] {
    [176, 182, 190]
}

/// Says which bodies stand where at a CLOCK_MONOTONIC time in nanoseconds: the moving ones of a
/// scene, for example an arm's links. Appends to the list, which is empty.
pub type SolidSource = Arc<dyn Fn(u64, &mut Vec<Solid>) + Send + Sync>;

impl Solid {
    /// A body of the usual colour.
    pub fn new(from_m: Point3<f64>, to_m: Point3<f64>, radius_m: f64) -> Self {
        Self { from_m, to_m, radius_m, colour: grey() }
    }

    /// Whether it can be drawn.
    pub fn is_valid(&self) -> bool {
        self.from_m.iter().chain(self.to_m.iter()).all(|v| v.abs() <= 1e3)
            && (1e-4..=100.0).contains(&self.radius_m)
    }

    /// How far a point is from the surface, metres; negative inside.
    pub fn distance_m(&self, p: &Point3<f64>) -> f64 {
        let axis = self.to_m - self.from_m;
        let length2 = axis.norm_squared();
        let along =
            if length2 > 0.0 { ((p - self.from_m).dot(&axis) / length2).clamp(0.0, 1.0) } else { 0.0 };
        (p - (self.from_m + axis * along)).norm() - self.radius_m
    }

    /// How far along a ray its surface is first met from outside, in units of `ray`.
    pub fn meet(&self, eye: &Point3<f64>, ray: &Vector3<f64>) -> Option<f64> {
        let axis = self.to_m - self.from_m;
        let (length2, offset) = (axis.norm_squared(), eye - self.from_m);
        let mut first: Option<f64> = None;
        let mut add = |t: f64| {
            if t > 0.0 && first.is_none_or(|f| t < f) {
                first = Some(t);
            }
        };
        if length2 > 0.0 {
            // Square of the distance from the axis, as a polynomial along the ray.
            let (along_ray, along_offset) = (axis.dot(ray), axis.dot(&offset));
            let a = ray.norm_squared() - along_ray * along_ray / length2;
            let b = ray.dot(&offset) - along_ray * along_offset / length2;
            let c =
                offset.norm_squared() - along_offset * along_offset / length2 - self.radius_m * self.radius_m;
            let root = b * b - a * c;
            if root >= 0.0 && a > 1e-12 {
                let t = (-b - root.sqrt()) / a;
                if (0.0..=length2).contains(&(along_offset + t * along_ray)) {
                    add(t);
                }
            }
        }
        for end in [self.from_m, self.to_m] {
            let offset = eye - end;
            let (a, b) = (ray.norm_squared(), ray.dot(&offset));
            let root = b * b - a * (offset.norm_squared() - self.radius_m * self.radius_m);
            if root >= 0.0 && a > 0.0 {
                add((-b - root.sqrt()) / a);
            }
        }
        first
    }

    /// Pixels that it may cover: left, top, right, bottom (the latter two exclusive); `None` where
    /// it is not in view.
    pub(super) fn bounds(
        &self,
        intrinsics: &Intrinsics,
        camera_in_base: &Isometry3<f64>,
    ) -> Option<[usize; 4]> {
        let Intrinsics { width, height, fx, fy, cx, cy } = *intrinsics;
        let ends = [self.from_m, self.to_m].map(|end| camera_in_base.inverse_transform_point(&end));
        let nearest = ends[0].z.min(ends[1].z) - self.radius_m;
        if ends[0].z.max(ends[1].z) + self.radius_m <= 0.0 {
            return None;
        }
        if nearest < 0.02 {
            // It reaches behind the camera: anything may be covered.
            return Some([0, 0, width as usize, height as usize]);
        }
        // A ball lies within its middle's box, widened by its radius, at the least depth that it
        // has.
        let mut bounds = [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
        for end in ends {
            for z in [end.z - self.radius_m, end.z + self.radius_m] {
                for side in [-self.radius_m, self.radius_m] {
                    let (u, v) = ((end.x + side) / z * fx + cx, (end.y + side) / z * fy + cy);
                    bounds = [bounds[0].min(u), bounds[1].min(v), bounds[2].max(u), bounds[3].max(v)];
                }
            }
        }
        let clamp = |value: f64, size: u32| value.clamp(0.0, f64::from(size)) as usize;
        let [left, top] = [clamp(bounds[0].floor(), width), clamp(bounds[1].floor(), height)];
        let [right, bottom] = [clamp(bounds[2].ceil() + 1.0, width), clamp(bounds[3].ceil() + 1.0, height)];
        (left < right && top < bottom).then_some([left, top, right, bottom])
    }

    /// Its colour where a ray meets it: lit from above, with some grain, so that no part looks like
    /// a covered lens.
    pub(super) fn shade(&self, hit: &Point3<f64>) -> [u8; 3] {
        let axis = self.to_m - self.from_m;
        let length2 = axis.norm_squared();
        let along =
            if length2 > 0.0 { ((hit - self.from_m).dot(&axis) / length2).clamp(0.0, 1.0) } else { 0.0 };
        let normal = (hit - (self.from_m + axis * along)) / self.radius_m.max(1e-9);
        let ring = ((along * length2.sqrt() / 0.03) as i64 & 3) as f64 * 4.0;
        let light = 0.72 + 0.28 * normal.z;
        self.colour.map(|channel| (f64::from(channel) * light - ring).clamp(0.0, 255.0) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar() -> Solid {
        Solid::new(Point3::new(0.0, 0.0, 2.0), Point3::new(1.0, 0.0, 2.0), 0.1)
    }

    #[test]
    fn rays_meet_side_and_ends_where_they_are() {
        let eye = Point3::origin();
        let meet = |ray: [f64; 3]| bar().meet(&eye, &Vector3::from(ray));
        assert!((meet([0.25, 0.0, 1.0]).unwrap() - 1.9).abs() < 1e-12, "the side");
        assert!((meet([0.0, 0.0, 1.0]).unwrap() - 1.9).abs() < 1e-12, "an end's top");
        assert_eq!(meet([0.0, 0.1, 1.0]), None);
        assert_eq!(meet([0.25, 0.0, -1.0]), None, "behind");
        let ball = Solid { to_m: bar().from_m, ..bar() };
        assert!((ball.meet(&eye, &Vector3::z()).unwrap() - 1.9).abs() < 1e-12);
        assert!((bar().distance_m(&Point3::new(1.5, 0.0, 2.0)) - 0.4).abs() < 1e-12);
    }

    #[test]
    fn every_pixel_that_meets_it_is_within_its_bounds() {
        let intrinsics = Intrinsics { width: 160, height: 120, fx: 120.0, fy: 120.0, cx: 79.5, cy: 59.5 };
        for case in 0..60 {
            let at = |k: i32| f64::from((case * 7 + k * 13) % 20) * 0.1 - 1.0;
            let solid = Solid::new(
                Point3::new(at(1), at(2), 0.4 + at(3).abs()),
                Point3::new(at(4), at(5), 0.3 + at(6).abs() * 2.0),
                0.05 + at(7).abs() * 0.2,
            );
            let camera = Isometry3::identity();
            let bounds = solid.bounds(&intrinsics, &camera);
            for (v, u) in (0..120usize).flat_map(|v| (0..160usize).map(move |u| (v, u))) {
                let ray = Vector3::new((u as f64 - 79.5) / 120.0, (v as f64 - 59.5) / 120.0, 1.0);
                if solid.meet(&Point3::origin(), &ray).is_some() {
                    let inside =
                        bounds.is_some_and(|[l, t, r, b]| (l..r).contains(&u) && (t..b).contains(&v));
                    assert!(inside, "{solid:?}: {u}, {v} outside {bounds:?}");
                }
            }
        }
    }
}
