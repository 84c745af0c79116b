//! Ground truth by ray casting every pixel, independent of the renderer and of perception.

use nalgebra::{Isometry3, Point3, Vector3};

use super::scene::{Room, Scene};
use crate::Intrinsics;

/// A camera's real view of one person.
#[derive(Clone, Debug, PartialEq)]
pub struct PersonTruth {
    /// Index of the person in the scene.
    pub person: usize,
    /// Whether each pixel (row-major) shows this person.
    pub mask: Vec<bool>,
    /// Number of pixels that do.
    pub pixels: usize,
    /// The visible surface point nearest to the reference point, robot base frame, metres.
    pub nearest_m: Point3<f64>,
    /// Its distance to the reference point, metres.
    pub distance_m: f64,
}

impl Scene {
    /// Everyone of whom the camera sees at least one pixel, nearest to `reference_m` (the TCP)
    /// first.
    ///
    /// A pixel shows what the ray through its centre meets first. Distances are of these points,
    /// exactly: no rounding to millimetres, no noise, no range of the sensor. Casts every ray
    /// against every surface, so it takes some milliseconds; it is for checking, not for the
    /// real-time path.
    pub fn truth(
        &self,
        intrinsics: &Intrinsics,
        camera_in_base: &Isometry3<f64>,
        scene_ns: u64,
        reference_m: &Point3<f64>,
    ) -> Vec<PersonTruth> {
        let eye = Point3::from(camera_in_base.translation.vector);
        let billboards: Vec<_> = (0..self.people.len()).map(|i| self.billboard(i, &eye, scene_ns)).collect();
        let mut all: Vec<_> = (0..self.people.len())
            .map(|person| PersonTruth {
                person,
                mask: vec![false; intrinsics.pixels()],
                pixels: 0,
                nearest_m: Point3::origin(),
                distance_m: f64::INFINITY,
            })
            .collect();
        for pixel in 0..intrinsics.pixels() {
            let (column, row) = (pixel % intrinsics.width as usize, pixel / intrinsics.width as usize);
            let ray = camera_in_base.rotation
                * Vector3::new(
                    (column as f64 - intrinsics.cx) / intrinsics.fx,
                    (row as f64 - intrinsics.cy) / intrinsics.fy,
                    1.0,
                );
            let mut seen = (room_distance(&self.room, &eye, &ray), None);
            for (person, billboard) in billboards.iter().enumerate() {
                let Some((t, u, v)) = billboard.as_ref().and_then(|b| b.meet(&eye, &ray)) else { continue };
                if t < seen.0 && self.people[person].texture.covers(u, v) {
                    seen = (t, Some(person));
                }
            }
            for solid in self.solids() {
                if let Some(t) = solid.meet(&eye, &ray).filter(|t| *t < seen.0) {
                    seen = (t, None);
                }
            }
            for block in &self.blocks {
                if let Some((t, _)) = block.meet(&eye, &ray).filter(|(t, _)| *t < seen.0) {
                    seen = (t, None);
                }
            }
            let (t, Some(person)) = seen else { continue };
            let truth = &mut all[person];
            truth.mask[pixel] = true;
            truth.pixels += 1;
            let point = eye + ray * t;
            let distance_m = (point - reference_m).norm();
            if distance_m < truth.distance_m {
                (truth.distance_m, truth.nearest_m) = (distance_m, point);
            }
        }
        all.retain(|truth| truth.pixels > 0);
        all.sort_by(|a, b| a.distance_m.total_cmp(&b.distance_m));
        all
    }
}

/// How far along the ray the room's inner surface is: where the ray leaves the box (slab method).
fn room_distance(room: &Room, eye: &Point3<f64>, ray: &Vector3<f64>) -> f64 {
    (0..3)
        .filter(|&axis| ray[axis] != 0.0)
        .map(|axis| ((room.low[axis] - eye[axis]) / ray[axis]).max((room.high[axis] - eye[axis]) / ray[axis]))
        .filter(|&t| t > 0.0)
        .fold(f64::INFINITY, f64::min)
}
