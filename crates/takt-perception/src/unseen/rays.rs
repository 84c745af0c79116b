//! Path of a line of sight through the monitored volume, near the tool, and before known structure.

use nalgebra::{Point3, Vector3};

use crate::occupancy::{Capsule, Scene, Volume};

/// A line of sight that crosses the monitored volume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sight {
    /// It does not cross the volume, or known structure ends it before.
    Outside,
    /// It crosses the volume, but not within the protected radius.
    Far,
    /// It crosses the volume within the radius; this is the point nearest to the tool.
    Near(Point3<f32>, f32),
}

/// Part of the volume that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zone {
    /// The tool centre point.
    pub tcp: Point3<f32>,
    /// Radius around it, metres; infinite for the whole volume.
    pub radius_m: f32,
    /// Nearest depth that the sensor measures, metres.
    pub least_m: f32,
}

/// Follows the line of sight of a pixel. `ray` is one metre of depth along it.
pub(super) fn follow(scene: &Scene, zone: &Zone, ray: &Vector3<f32>) -> Sight {
    let origin = scene.origin();
    let Some([from, mut to]) = through(scene.volume(), &origin, ray) else { return Sight::Outside };
    let ends_at = |fixture: &Volume| !fixture.contains(&origin) && through(fixture, &origin, ray).is_some();
    if scene.without_depth().iter().any(ends_at) {
        return Sight::Outside;
    }
    for fixture in scene.fixtures() {
        if fixture.contains(&origin) {
            continue;
        }
        if let Some([entry, _]) = through(fixture, &origin, ray) {
            to = to.min(known(entry, zone.least_m));
        }
    }
    for capsule in scene.capsules_now() {
        if let Some(entry) = enter(capsule, &origin, ray) {
            to = to.min(known(entry, zone.least_m));
        }
    }
    if from >= to {
        return Sight::Outside;
    }
    let to_tcp = zone.tcp - origin;
    let length2 = ray.norm_squared();
    let nearest = (to_tcp.dot(ray) / length2).clamp(from, to);
    let point = origin + ray * nearest;
    let distance_m = (point - zone.tcp).norm();
    if distance_m < zone.radius_m { Sight::Near(point, distance_m) } else { Sight::Far }
}

/// Whether the robot is in a line of sight.
pub(crate) fn meets_robot(scene: &Scene, ray: &Vector3<f32>) -> bool {
    let origin = scene.origin();
    scene.capsules_now().iter().any(|capsule| enter(capsule, &origin, ray).is_some())
}

/// Whether a line of sight ends at that depth before it has reached the monitored volume.
pub(crate) fn ends_before_volume(scene: &Scene, u: u32, v: u32, depth_mm: u16) -> bool {
    let entry = through(scene.volume(), &scene.origin(), &scene.ray(u, v));
    entry.is_some_and(|[from, _]| f32::from(depth_mm) < from)
}

/// Depth at which known structure ends a line of sight. Structure nearer than the sensor measures
/// fully explains the missing depth, so nothing is expected along that line.
fn known(entry_m: f32, least_m: f32) -> f32 {
    if entry_m < least_m { 0.0 } else { entry_m }
}

/// The part of a ray inside a box, from the camera on.
pub(super) fn through(volume: &Volume, origin: &Point3<f32>, ray: &Vector3<f32>) -> Option<[f32; 2]> {
    let (mut from, mut to) = (0.0f32, f32::INFINITY);
    for axis in 0..3 {
        let (low, high) = (volume.min_m[axis] - origin[axis], volume.max_m[axis] - origin[axis]);
        if ray[axis].abs() < 1e-12 {
            if low > 0.0 || high < 0.0 {
                return None;
            }
            continue;
        }
        let (a, b) = (low / ray[axis], high / ray[axis]);
        from = from.max(a.min(b));
        to = to.min(a.max(b));
    }
    (from < to && to.is_finite()).then_some([from, to])
}

/// Point at which a ray from outside enters a capsule. A camera inside (on the tool) sees out of
/// it.
pub(super) fn enter(capsule: &Capsule, origin: &Point3<f32>, ray: &Vector3<f32>) -> Option<f32> {
    let length = ray.norm();
    let ray = ray / length;
    let axis = capsule.to_m - capsule.from_m;
    let radius2 = capsule.radius_m * capsule.radius_m;
    let ball = |centre: &Point3<f32>| {
        let offset = origin - centre;
        let along = ray.dot(&offset);
        let rest = along * along - (offset.norm_squared() - radius2);
        (rest > 0.0).then(|| -along - rest.sqrt()).filter(|&t| t > 0.0)
    };
    if capsule.contains(origin) {
        return None;
    }
    let side = {
        let offset = origin - capsule.from_m;
        let (axis2, axis_ray) = (axis.norm_squared(), axis.dot(&ray));
        let (axis_offset, ray_offset) = (axis.dot(&offset), ray.dot(&offset));
        let a = axis2 - axis_ray * axis_ray;
        let b = axis2 * ray_offset - axis_offset * axis_ray;
        let c = axis2 * offset.norm_squared() - axis_offset * axis_offset - radius2 * axis2;
        let rest = b * b - a * c;
        // Along the axis (or without one) only the ends can be met.
        if a > 1e-9 * axis2.max(1e-9) && rest > 0.0 {
            let t = (-b - rest.sqrt()) / a;
            let along = axis_offset + t * axis_ray;
            (t > 0.0 && along > 0.0 && along < axis2).then_some(t)
        } else {
            None
        }
    };
    let first = [side, ball(&capsule.from_m), ball(&capsule.to_m)]
        .into_iter()
        .flatten()
        .fold(f32::INFINITY, f32::min);
    first.is_finite().then_some(first / length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::occupancy::CapsuleFrame;

    fn point() -> impl Strategy<Value = Point3<f32>> {
        (-2.0f32..2.0, -2.0f32..2.0, -2.0f32..2.0).prop_map(|(x, y, z)| Point3::new(x, y, z))
    }

    proptest! {
        /// Against marching along the ray.
        #[test]
        fn entries_are_where_a_walk_along_the_ray_finds_them(
            from in point(), to in point(), radius_m in 0.05f32..0.5, origin in point(), target in point(),
        ) {
            let capsule = Capsule { frame: CapsuleFrame::Base, from_m: from, to_m: to, radius_m };
            let ray = target - origin;
            prop_assume!(ray.norm() > 0.1 && !capsule.contains(&origin));
            let walked = (1..6000).map(|i| i as f32 * 0.001).find(|t| capsule.contains(&(origin + ray * *t)));
            match (enter(&capsule, &origin, &ray), walked) {
                (Some(found), Some(walked)) => prop_assert!((found - walked).abs() < 0.02, "{found} {walked}"),
                (Some(found), None) if found < 5.9 => {
                    // A graze shorter than a step of the walk.
                    let p = origin + ray * found;
                    let inward = Capsule { radius_m: radius_m + 1e-3, ..capsule };
                    prop_assert!(inward.contains(&p), "{found}");
                }
                (None, Some(walked)) => {
                    let inner = Capsule { radius_m: radius_m - 2e-3, ..capsule };
                    prop_assert!(!inner.contains(&(origin + ray * (walked + 0.001))), "{walked}");
                }
                _ => {}
            }
        }
    }

    #[test]
    fn a_ray_that_misses_the_box_is_outside_and_one_from_inside_begins_at_the_camera() {
        let volume = Volume { min_m: Point3::new(-1.0, -1.0, -1.0), max_m: Point3::new(1.0, 1.0, 1.0) };
        let x = Vector3::x();
        assert_eq!(through(&volume, &Point3::origin(), &x), Some([0.0, 1.0]));
        assert_eq!(through(&volume, &Point3::new(-3.0, 0.0, 0.0), &x), Some([2.0, 4.0]));
        assert_eq!(through(&volume, &Point3::new(3.0, 0.0, 0.0), &x), None);
        assert_eq!(through(&volume, &Point3::new(-3.0, 2.0, 0.0), &x), None);
    }
}
