//! Rendering, cheap enough for five cameras on a part of one core.
//!
//! The room is ray cast per row in single precision, and kept while the camera stands still. People
//! are rasterised over it within the bounds of their pictures.

use nalgebra::{Isometry3, Point3, Vector3};

use takt_rt::random::SplitMix64;

use super::config::SyntheticConfig;
use super::flaws::Flaws;
use super::scene::{Billboard, Person, Room, Scene};
use crate::{Frame, Intrinsics};

/// Renders the frames of one camera.
#[derive(Clone, Debug)]
pub struct Renderer {
    intrinsics: Intrinsics,
    min_mm: f32,
    max_mm: f32,
    noise_m: f32,
    flaws: Flaws,
    seed: u64,
    /// The empty room as seen from `background_pose`.
    background_rgb: Vec<u8>,
    background_m: Vec<f32>,
    background_pose: Option<Isometry3<f64>>,
    /// Depth of the frame in work, metres along the optical axis.
    depth_m: Vec<f32>,
}

impl Renderer {
    /// A renderer with all its buffers.
    pub fn new(config: &SyntheticConfig) -> Self {
        let pixels = config.intrinsics.pixels();
        Self {
            intrinsics: config.intrinsics,
            min_mm: (config.min_depth_m * 1e3) as f32,
            max_mm: (config.max_depth_m * 1e3) as f32,
            noise_m: config.depth_noise_m as f32,
            flaws: config.flaws.clone(),
            seed: config.seed,
            background_rgb: vec![0; pixels * 3],
            background_m: vec![0.0; pixels],
            background_pose: None,
            depth_m: vec![0.0; pixels],
        }
    }

    /// Draws what a camera with the pose `camera_in_base` sees at a time of the scene. Fills image,
    /// depth, size and pose of the frame; the sequence number must be set before, it seeds the
    /// noise.
    pub fn render(
        &mut self,
        scene: &Scene,
        camera_in_base: &Isometry3<f64>,
        scene_ns: u64,
        frame: &mut Frame,
    ) {
        let pixels = self.intrinsics.pixels();
        (frame.width, frame.height) = (self.intrinsics.width, self.intrinsics.height);
        frame.rgb.resize(pixels * 3, 0);
        frame.depth_mm.resize(pixels, 0);
        frame.camera_in_base = Some(*camera_in_base);

        if self.background_pose.as_ref() != Some(camera_in_base) {
            self.draw_room(&scene.room, camera_in_base);
            self.background_pose = Some(*camera_in_base);
        }
        frame.rgb.copy_from_slice(&self.background_rgb);
        self.depth_m.copy_from_slice(&self.background_m);
        let eye = Point3::from(camera_in_base.translation.vector);
        for (index, person) in scene.people.iter().enumerate() {
            if let Some(billboard) = scene.billboard(index, &eye, scene_ns) {
                self.draw_person(&billboard, person, camera_in_base, &mut frame.rgb);
            }
        }
        for solid in scene.solids() {
            let bounds = solid.bounds(&self.intrinsics, camera_in_base);
            self.draw_body(bounds, camera_in_base, &mut frame.rgb, |eye, ray| {
                solid.meet(eye, ray).map(|t| (t, solid.shade(&(eye + ray * t))))
            });
        }
        for block in &scene.blocks {
            let bounds = block.bounds(&self.intrinsics, camera_in_base);
            self.draw_body(bounds, camera_in_base, &mut frame.rgb, |eye, ray| {
                block.meet(eye, ray).map(|(t, side)| (t, block.shade(&(eye + ray * t), side)))
            });
        }
        self.write_depth(frame);
        if !self.flaws.is_empty() {
            let seed = self.seed ^ frame.sequence.wrapping_mul(0xd134_2543_de82_ef95);
            let too_near = |pixel: usize| {
                let mm = self.depth_m[pixel] * 1e3;
                mm > 0.0 && mm < self.min_mm
            };
            let range_mm = [self.min_mm, self.max_mm];
            self.flaws.spoil(&self.intrinsics, range_mm, scene_ns, seed, too_near, frame);
        }
    }

    /// Draws a body within its bounds: how far along a ray it is met, and its colour there.
    fn draw_body(
        &mut self,
        bounds: Option<[usize; 4]>,
        camera_in_base: &Isometry3<f64>,
        rgb: &mut [u8],
        meet: impl Fn(&Point3<f64>, &Vector3<f64>) -> Option<(f64, [u8; 3])>,
    ) {
        let Some([left, top, right, bottom]) = bounds else { return };
        let width = self.intrinsics.width as usize;
        let eye = Point3::from(camera_in_base.translation.vector);
        let step = self.direction(camera_in_base, 1.0, 0.0) - self.direction(camera_in_base, 0.0, 0.0);
        for row in top..bottom {
            let first = self.direction(camera_in_base, 0.0, row as f64);
            for column in left..right {
                let ray = first + step * column as f64;
                let Some((t, colour)) = meet(&eye, &ray) else { continue };
                let pixel = row * width + column;
                let behind = self.depth_m[pixel];
                if behind == 0.0 || t < f64::from(behind.abs()) {
                    self.depth_m[pixel] = t as f32;
                    rgb[pixel * 3..pixel * 3 + 3].copy_from_slice(&colour);
                }
            }
        }
    }

    /// Direction of a pixel's ray in the base frame, one metre along the optical axis.
    fn direction(&self, camera_in_base: &Isometry3<f64>, u: f64, v: f64) -> Vector3<f64> {
        let Intrinsics { fx, fy, cx, cy, .. } = self.intrinsics;
        camera_in_base.rotation * Vector3::new((u - cx) / fx, (v - cy) / fy, 1.0)
    }

    fn draw_room(&mut self, room: &Room, camera_in_base: &Isometry3<f64>) {
        let width = self.intrinsics.width as usize;
        let eye = camera_in_base.translation.vector.cast::<f32>();
        let low = room.low.coords.cast::<f32>();
        let high = room.high.coords.cast::<f32>();
        let step = (self.direction(camera_in_base, 1.0, 0.0) - self.direction(camera_in_base, 0.0, 0.0))
            .cast::<f32>();
        for row in 0..self.intrinsics.height as usize {
            let first = self.direction(camera_in_base, 0.0, row as f64).cast::<f32>();
            let depths = &mut self.background_m[row * width..(row + 1) * width];
            let colours = &mut self.background_rgb[row * width * 3..(row + 1) * width * 3];
            for (column, (depth, colour)) in depths.iter_mut().zip(colours.chunks_exact_mut(3)).enumerate() {
                let ray = first + step * column as f32;
                // Distance to the wall ahead on each axis; the nearest is what is seen from inside.
                let reach = |axis: usize| {
                    let wall = if ray[axis] > 0.0 { high[axis] } else { low[axis] };
                    let t = (wall - eye[axis]) / ray[axis];
                    // A ray along the wall never reaches it; from outside the room it lies behind.
                    if t > 0.0 { t } else { f32::INFINITY }
                };
                let t = [reach(0), reach(1), reach(2)];
                let axis = if t[2] <= t[0] && t[2] <= t[1] { 2 } else { usize::from(t[1] < t[0]) };
                let seen = t[axis];
                *depth = if seen.is_finite() { seen } else { 0.0 };
                let hit = eye + ray * if seen.is_finite() { seen } else { 0.0 };
                colour.copy_from_slice(&room_colour(axis, ray[2] < 0.0, &hit));
            }
        }
    }

    fn draw_person(
        &mut self,
        billboard: &Billboard,
        person: &Person,
        camera_in_base: &Isometry3<f64>,
        rgb: &mut [u8],
    ) {
        let Some([left, top, right, bottom]) = self.bounds(billboard, camera_in_base) else { return };
        let width = self.intrinsics.width as usize;
        let eye = Point3::from(camera_in_base.translation.vector);
        let step = self.direction(camera_in_base, 1.0, 0.0) - self.direction(camera_in_base, 0.0, 0.0);
        for row in top..bottom {
            let first = self.direction(camera_in_base, 0.0, row as f64);
            for column in left..right {
                let ray = first + step * column as f64;
                let Some((t, u, v)) = billboard.meet(&eye, &ray) else { continue };
                let pixel = row * width + column;
                let behind = self.depth_m[pixel];
                if (behind == 0.0 || t < f64::from(behind.abs())) && person.texture.covers(u, v) {
                    // Negative: something is there, but the sensor measures nothing.
                    self.depth_m[pixel] = if person.without_depth() { -t as f32 } else { t as f32 };
                    rgb[pixel * 3..pixel * 3 + 3].copy_from_slice(&person.texture.colour(u, v));
                }
            }
        }
    }

    /// Pixels that the picture may cover: left, top, right, bottom (the latter two exclusive).
    fn bounds(&self, billboard: &Billboard, camera_in_base: &Isometry3<f64>) -> Option<[usize; 4]> {
        let Intrinsics { width, height, fx, fy, cx, cy } = self.intrinsics;
        let mut low = [f64::INFINITY; 2];
        let mut high = [f64::NEG_INFINITY; 2];
        let mut cut = 0;
        for corner in 0..4 {
            let side = if corner % 2 == 0 { -0.5 } else { 0.5 } * billboard.width_m;
            let up = if corner < 2 { 0.0 } else { billboard.height_m };
            let point = billboard.foot + billboard.right * side + Vector3::z() * up;
            let point = camera_in_base.inverse_transform_point(&point);
            if point.z < 0.02 {
                cut += 1;
                continue;
            }
            let pixel = [point.x / point.z * fx + cx, point.y / point.z * fy + cy];
            for axis in 0..2 {
                low[axis] = low[axis].min(pixel[axis]);
                high[axis] = high[axis].max(pixel[axis]);
            }
        }
        match cut {
            0 => {}
            4 => return None,
            // The picture reaches behind the camera: anything may be covered.
            _ => (low, high) = ([0.0; 2], [f64::from(width), f64::from(height)]),
        }
        let clamp = |value: f64, size: u32| value.clamp(0.0, f64::from(size)) as usize;
        let bounds = [
            clamp(low[0].floor(), width),
            clamp(low[1].floor(), height),
            clamp(high[0].ceil() + 1.0, width),
            clamp(high[1].ceil() + 1.0, height),
        ];
        (bounds[0] < bounds[2] && bounds[1] < bounds[3]).then_some(bounds)
    }

    fn write_depth(&self, frame: &mut Frame) {
        let frame_seed = self.seed ^ frame.sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let noisy = self.noise_m > 0.0;
        for (pixel, (to, &depth_m)) in frame.depth_mm.iter_mut().zip(&self.depth_m).enumerate() {
            let mut mm = depth_m * 1e3;
            if noisy {
                let hash = SplitMix64::new(frame_seed.wrapping_add(pixel as u64)).bits();
                // Every colour sensor has noise, too: one grey level of green is enough to show
                // that it lives.
                frame.rgb[pixel * 3 + 1] ^= (hash >> 63) as u8;
                mm += normal(hash) * self.noise_m * depth_m * depth_m * 1e3;
            }
            *to = if mm >= self.min_mm && mm <= self.max_mm { (mm + 0.5) as u16 } else { 0 };
        }
    }
}

/// A normally distributed number from a hash: the sum of its eight uniform bytes, which has no
/// values beyond 4.9 standard deviations.
fn normal(hash: u64) -> f32 {
    let sum: u32 = hash.to_le_bytes().into_iter().map(u32::from).sum();
    // A byte has mean 127.5 and variance (256^2 - 1) / 12.
    (sum as f32 - 8.0 * 127.5) / (8.0f32 * 65_535.0 / 12.0).sqrt()
}

/// Floor tiles, panelled walls, plain ceiling: enough structure not to look covered, quiet enough
/// not to confuse a detector.
fn room_colour(axis: usize, down: bool, hit: &Vector3<f32>) -> [u8; 3] {
    let cell = |v: f32, size: f32| (v / size).floor() as i32;
    let grain = |v: i32| ((v.wrapping_mul(73) & 7) - 4) as i16;
    let (base, shade) = match axis {
        2 if down => {
            let (x, y) = (cell(hit.x, 0.5), cell(hit.y, 0.5));
            ([132, 128, 120], if (x + y) & 1 == 0 { 0 } else { -14 } + grain(x * 31 + y))
        }
        2 => ([206, 206, 202], 0),
        axis => {
            let along = if axis == 0 { hit.y } else { hit.x };
            let panel = cell(along, 1.2);
            ([186, 190, 182], if axis == 0 { 0 } else { -16 } + grain(panel * 5 + axis as i32))
        }
    };
    base.map(|channel: i16| (channel + shade).clamp(0, 255) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_unit_variance_and_no_bias() {
        let n = 100_000u32;
        let values: Vec<f64> =
            (0..n).map(|i| f64::from(normal(SplitMix64::new(u64::from(i)).bits()))).collect();
        let mean = values.iter().sum::<f64>() / f64::from(n);
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / f64::from(n);
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "mean {mean}, variance {variance}");
    }
}
