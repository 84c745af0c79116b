//! Objects in the monitored volume: depth, back-projected into the robot base frame on a coarse
//! grid.
//!
//! This half of perception needs no network, is exact where depth is, and sees a new person on the
//! next frame. It works in the base frame, so it does not care whether the camera moves with the
//! robot.

#![deny(missing_docs)]

use nalgebra::{Isometry3, Point3, Vector3};
use serde::{Deserialize, Serialize};
use takt_link_camera::Intrinsics;

use crate::config::OccupancyConfig;
use crate::mount::FramePose;
use crate::robot_shape::{self, MAX_ROBOT_CAPSULES};

/// An axis-aligned box in the base frame.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// Lowest corner, metres.
    pub min_m: Point3<f32>,
    /// Highest corner, metres.
    pub max_m: Point3<f32>,
}

impl Volume {
    pub(crate) fn is_valid(&self) -> bool {
        (0..3)
            .all(|i| self.min_m[i].is_finite() && self.max_m[i].is_finite() && self.min_m[i] < self.max_m[i])
    }

    pub(crate) fn contains(&self, p: &Point3<f32>) -> bool {
        (0..3).all(|i| self.min_m[i] <= p[i] && p[i] <= self.max_m[i])
    }
}

/// A fixture: whatever depth lies inside is not reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticBox {
    /// Its name, for people.
    pub name: String,
    /// Lowest corner, base frame, metres.
    pub min_m: Point3<f32>,
    /// Highest corner, base frame, metres.
    pub max_m: Point3<f32>,
    /// Whether it gives no depth: a window, a mirror, a black machine. Missing depth on lines of
    /// sight that end at it is explained then, wherever the camera is. A person in front of it is
    /// noticed only by valid depth: keep it tight. `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_depth: bool,
}

impl StaticBox {
    fn volume(&self) -> Volume {
        Volume { min_m: self.min_m, max_m: self.max_m }
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.volume().is_valid()
    }
}

/// The frame that a capsule moves with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapsuleFrame {
    /// The tool centre point.
    Tcp,
    /// The robot base.
    Base,
}

/// Part of the robot: all points within `radius_m` of a line segment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capsule {
    /// The frame of the ends.
    pub frame: CapsuleFrame,
    /// One end, metres.
    pub from_m: Point3<f32>,
    /// Other end, metres.
    pub to_m: Point3<f32>,
    /// Radius, metres.
    pub radius_m: f32,
}

impl Capsule {
    /// The tool: from the TCP 0.25 m back along its axis, 0.12 m around.
    pub fn tool() -> Self {
        Self {
            frame: CapsuleFrame::Tcp,
            from_m: Point3::origin(),
            to_m: Point3::new(0.0, 0.0, -0.25),
            radius_m: 0.12,
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        let finite = |p: &Point3<f32>| p.iter().all(|v| v.is_finite());
        finite(&self.from_m) && finite(&self.to_m) && self.radius_m.is_finite() && self.radius_m > 0.0
    }

    /// The capsule in the base frame.
    fn at(&self, tcp_in_base: &Isometry3<f32>) -> Self {
        match self.frame {
            CapsuleFrame::Base => *self,
            CapsuleFrame::Tcp => Self {
                frame: CapsuleFrame::Base,
                from_m: tcp_in_base * self.from_m,
                to_m: tcp_in_base * self.to_m,
                radius_m: self.radius_m,
            },
        }
    }

    pub(crate) fn contains(&self, p: &Point3<f32>) -> bool {
        let axis = self.to_m - self.from_m;
        let offset = p - self.from_m;
        let length2 = axis.norm_squared();
        let along = if length2 > 0.0 { (offset.dot(&axis) / length2).clamp(0.0, 1.0) } else { 0.0 };
        (offset - axis * along).norm_squared() <= self.radius_m * self.radius_m
    }
}

/// Back-projection of pixels into the base frame, and the test whether a point is foreground.
#[derive(Debug)]
pub(crate) struct Scene {
    volume: Volume,
    fixtures: Vec<Volume>,
    /// Those fixtures that give no depth.
    without_depth: Vec<Volume>,
    capsules: Vec<Capsule>,
    /// The capsules of this frame, base frame.
    capsules_now: Vec<Capsule>,
    /// Volume around all of them.
    robot: Volume,
    min_depth_mm: u16,
    max_depth_mm: u16,
    fx: f64,
    fy: f64,
    /// `(u - cx) / fx` of each column.
    slope_x: Vec<f32>,
    /// `(v - cy) / fy` of each row.
    slope_y: Vec<f32>,
    /// Directions of the camera axes in the base frame, scaled to millimetres of depth.
    axes: [Vector3<f32>; 3],
    origin: Point3<f32>,
}

impl Scene {
    pub(crate) fn new(
        config: &OccupancyConfig,
        intrinsics: &Intrinsics,
        min_depth_mm: u16,
        max_depth_mm: u16,
    ) -> Self {
        let mut volume = config.volume;
        volume.min_m.z = volume.min_m.z.max(config.floor_m + config.min_height_m);
        Self {
            volume,
            fixtures: config.static_boxes.iter().map(StaticBox::volume).collect(),
            without_depth: config
                .static_boxes
                .iter()
                .filter(|fixture| fixture.without_depth)
                .map(StaticBox::volume)
                .collect(),
            capsules: config.robot.clone(),
            capsules_now: Vec::with_capacity(config.robot.len() + MAX_ROBOT_CAPSULES),
            robot: Volume { min_m: Point3::origin(), max_m: Point3::origin() },
            min_depth_mm,
            max_depth_mm,
            fx: intrinsics.fx,
            fy: intrinsics.fy,
            slope_x: (0..intrinsics.width)
                .map(|u| ((f64::from(u) - intrinsics.cx) / intrinsics.fx) as f32)
                .collect(),
            slope_y: (0..intrinsics.height)
                .map(|v| ((f64::from(v) - intrinsics.cy) / intrinsics.fy) as f32)
                .collect(),
            axes: [Vector3::zeros(); 3],
            origin: Point3::origin(),
        }
    }

    /// Places camera, tool and robot for one frame.
    pub(crate) fn place(&mut self, pose: &FramePose) {
        let FramePose { camera_in_base, tcp_in_base, robot } = pose;
        let rotation = camera_in_base.rotation.to_rotation_matrix();
        let column = |i: usize| rotation.matrix().column(i).into_owned().cast::<f32>() * 1e-3;
        self.axes = [column(0), column(1), column(2)];
        self.origin = Point3::from(camera_in_base.translation.vector.cast::<f32>());
        let tcp = tcp_in_base.cast::<f32>();
        self.capsules_now.clear();
        self.capsules_now.extend(self.capsules.iter().map(|capsule| capsule.at(&tcp)));
        self.capsules_now.extend_from_slice(robot.capsules());
        let [min_m, max_m] = robot_shape::bounds(&self.capsules_now);
        self.robot = Volume { min_m, max_m };
    }

    /// The capsules of this frame, base frame.
    pub(crate) fn capsules_now(&self) -> &[Capsule] {
        &self.capsules_now
    }

    /// Those of them that the robot's joints give.
    pub(crate) fn arm_now(&self) -> &[Capsule] {
        &self.capsules_now[self.capsules.len().min(self.capsules_now.len())..]
    }

    /// Most capsules of a frame.
    pub(crate) fn capsules_capacity(&self) -> usize {
        self.capsules.len() + MAX_ROBOT_CAPSULES
    }

    /// Volume around all capsules of this frame.
    pub(crate) fn robot(&self) -> &Volume {
        &self.robot
    }

    pub(crate) fn fixtures(&self) -> &[Volume] {
        &self.fixtures
    }

    /// Fixtures that give no depth.
    pub(crate) fn without_depth(&self) -> &[Volume] {
        &self.without_depth
    }

    /// The monitored volume, above the floor.
    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// `(u - cx) / fx` of each column, `(v - cy) / fy` of each row.
    pub(crate) fn slopes(&self) -> (&[f32], &[f32]) {
        (&self.slope_x, &self.slope_y)
    }

    /// Directions of the camera axes in the base frame, metres for each millimetre of depth.
    pub(crate) fn axes(&self) -> &[Vector3<f32>; 3] {
        &self.axes
    }

    /// Nearest and farthest depth that are measurements, millimetres.
    pub(crate) fn range_mm(&self) -> (u16, u16) {
        (self.min_depth_mm, self.max_depth_mm)
    }

    /// Whether a depth is a measurement.
    pub(crate) fn is_valid(&self, depth_mm: u16) -> bool {
        (self.min_depth_mm..=self.max_depth_mm).contains(&depth_mm)
    }

    /// The direction of the line of sight of a pixel, base frame, metres for each millimetre of
    /// depth.
    pub(crate) fn ray(&self, u: u32, v: u32) -> Vector3<f32> {
        self.axes[2] + self.axes[0] * self.slope_x[u as usize] + self.axes[1] * self.slope_y[v as usize]
    }

    /// Position of the camera, base frame.
    pub(crate) fn origin(&self) -> Point3<f32> {
        self.origin
    }

    /// The point of a pixel, base frame, metres.
    pub(crate) fn point(&self, u: u32, v: u32, depth_mm: u16) -> Point3<f32> {
        self.origin + self.ray(u, v) * f32::from(depth_mm)
    }

    /// Whether a point counts: inside the monitored volume, above the floor, in no fixture, not the
    /// robot.
    pub(crate) fn is_foreground(&self, p: &Point3<f32>) -> bool {
        self.volume.contains(p)
            && !self.fixtures.iter().any(|fixture| fixture.contains(p))
            && !(self.robot.contains(p) && self.capsules_now.iter().any(|capsule| capsule.contains(p)))
    }

    /// The point of a pixel if its depth is valid and it is foreground.
    pub(crate) fn foreground(&self, u: u32, v: u32, depth_mm: u16) -> Option<Point3<f32>> {
        if !self.is_valid(depth_mm) {
            return None;
        }
        let p = self.point(u, v, depth_mm);
        self.is_foreground(&p).then_some(p)
    }

    /// Seen area of a patch of `step` × `step` pixels (facing the camera), square metres for each
    /// square millimetre of depth.
    pub(crate) fn area_scale(&self, step: u32) -> f64 {
        f64::from(step * step) * 1e-6 / (self.fx * self.fy)
    }
}

/// Label of a cell without foreground.
pub(crate) const NONE: u32 = 0;

/// The coarse grid of one frame.
pub(crate) struct Grid {
    pub(crate) step: u32,
    pub(crate) columns: usize,
    pub(crate) rows: usize,
    /// Point of each cell; meaningful where `depth` is not 0.
    pub(crate) points: Vec<Point3<f32>>,
    /// Depth of each foreground cell in millimetres; 0 elsewhere.
    pub(crate) depth: Vec<u16>,
    stack: Vec<u32>,
}

/// Counts of one frame's samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DepthCounts {
    pub(crate) samples: u32,
    pub(crate) valid: u32,
    pub(crate) impossible: u32,
}

impl Grid {
    pub(crate) fn new(step: u32, width: u32, height: u32) -> Self {
        let (columns, rows) = (width.div_ceil(step) as usize, height.div_ceil(step) as usize);
        let cells = columns * rows;
        Self {
            step,
            columns,
            rows,
            points: vec![Point3::origin(); cells],
            depth: vec![0; cells],
            stack: Vec::with_capacity(cells),
        }
    }

    pub(crate) fn cells(&self) -> usize {
        self.depth.len()
    }

    /// The sampled pixel of a cell: its middle.
    pub(crate) fn pixel(&self, cell: usize, width: u32, height: u32) -> (u32, u32) {
        let (column, row) = ((cell % self.columns) as u32, (cell / self.columns) as u32);
        let half = self.step / 2;
        ((column * self.step + half).min(width - 1), (row * self.step + half).min(height - 1))
    }

    /// Samples depth and keeps what is foreground.
    pub(crate) fn sample(&mut self, scene: &Scene, depth_mm: &[u16], width: u32, height: u32) -> DepthCounts {
        let mut counts = DepthCounts::default();
        for cell in 0..self.cells() {
            let (u, v) = self.pixel(cell, width, height);
            let depth = depth_mm[(v * width + u) as usize];
            counts.samples += 1;
            self.depth[cell] = 0;
            if depth == 0 {
                continue;
            }
            if !scene.is_valid(depth) {
                counts.impossible += 1;
                continue;
            }
            counts.valid += 1;
            let p = scene.point(u, v, depth);
            if scene.is_foreground(&p) {
                self.depth[cell] = depth;
                self.points[cell] = p;
            }
        }
        counts
    }

    /// Labels connected foreground: neighbours (8) whose points are at most `link_m` apart belong
    /// together. Cells for which `take` is false are passed over. Writes labels 1.. into `labels`
    /// ([`NONE`] elsewhere) and one [`Blob`] for each, in label order. There are at most as many
    /// blobs as cells.
    pub(crate) fn label(
        &mut self,
        scene: &Scene,
        config: &OccupancyConfig,
        take: impl Fn(usize) -> bool,
        tcp: &Point3<f32>,
        labels: &mut [u32],
        blobs: &mut Vec<Blob>,
    ) {
        labels.fill(NONE);
        blobs.clear();
        let link2 = config.link_m * config.link_m;
        for seed in 0..self.cells() {
            if self.depth[seed] == 0 || labels[seed] != NONE || !take(seed) {
                continue;
            }
            let label = blobs.len() as u32 + 1;
            let mut blob = Blob::new(label);
            labels[seed] = label;
            self.stack.clear();
            self.stack.push(seed as u32);
            while let Some(cell) = self.stack.pop() {
                let cell = cell as usize;
                let (column, row) = (cell % self.columns, cell / self.columns);
                let p = self.points[cell];
                blob.add(column, row, (p - tcp).norm_squared(), self.depth[cell]);
                for r in row.saturating_sub(1)..=(row + 1).min(self.rows - 1) {
                    for c in column.saturating_sub(1)..=(column + 1).min(self.columns - 1) {
                        let next = r * self.columns + c;
                        if self.depth[next] != 0
                            && labels[next] == NONE
                            && (self.points[next] - p).norm_squared() <= link2
                            && take(next)
                        {
                            labels[next] = label;
                            self.stack.push(next as u32);
                        }
                    }
                }
            }
            blob.finish(self.step, scene.area_scale(self.step));
            blobs.push(blob);
        }
        for blob in blobs.iter_mut() {
            blob.big = blob.samples >= config.min_samples && blob.area_m2 >= config.min_area_m2;
        }
    }
}

/// Connected foreground.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Blob {
    /// Its label; the blob is at `label - 1` of the list.
    pub(crate) label: u32,
    /// Cells.
    pub(crate) samples: u32,
    /// Seen area, square metres.
    pub(crate) area_m2: f32,
    /// Bounding box in pixels: left, top, right, bottom.
    pub(crate) box_px: [f32; 4],
    /// Least squared distance of a cell to the TCP, square metres.
    pub(crate) nearest2: f32,
    /// Whether it is big enough to count.
    pub(crate) big: bool,
    /// Bounding box in cells.
    pub(crate) cells: [usize; 4],
    /// Sum of the squared depths, square millimetres: an integer, so that the order of cells does
    /// not matter and a device gets the same area.
    pub(crate) depth2: u64,
}

impl Blob {
    pub(crate) fn new(label: u32) -> Self {
        Self {
            label,
            samples: 0,
            area_m2: 0.0,
            box_px: [0.0; 4],
            nearest2: f32::INFINITY,
            big: false,
            cells: [usize::MAX, usize::MAX, 0, 0],
            depth2: 0,
        }
    }

    fn add(&mut self, column: usize, row: usize, distance2: f32, depth_mm: u16) {
        self.samples += 1;
        self.depth2 += u64::from(depth_mm).pow(2);
        self.nearest2 = self.nearest2.min(distance2);
        let [left, top, right, bottom] = &mut self.cells;
        *left = column.min(*left);
        *top = row.min(*top);
        *right = column.max(*right);
        *bottom = row.max(*bottom);
    }

    pub(crate) fn finish(&mut self, step: u32, area_scale: f64) {
        self.area_m2 = (self.depth2 as f64 * area_scale) as f32;
        let [left, top, right, bottom] = self.cells;
        let step = step as f32;
        self.box_px =
            [left as f32 * step, top as f32 * step, (right + 1) as f32 * step, (bottom + 1) as f32 * step];
    }
}

#[cfg(test)]
mod tests;
