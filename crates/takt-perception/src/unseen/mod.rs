//! Space that a camera does not see: samples without usable depth whose lines of sight cross the
//! monitored volume.
//!
//! A hand at the lens, black cloth, a mirror, glare and a dirty lens all give holes, not small
//! depths. A hole counts as occupied, at the point of its lines of sight that is nearest to the
//! tool, unless something explains it:
//!
//! - **fresh valid neighbours**: the hole is too small to hide a hand at any depth that matters;
//! - **fixtures and the robot's own shape**: the line of sight ends there before it comes near the
//!   tool, or the structure is nearer than the sensor measures, so that no depth can be expected;
//! - a **learned background** that never has depth ([`Background`](crate::Background)).
//!
//! Valid depth hides what is behind it just as much: the places near the tool that a line of sight
//! does not reach are hidden, unless it ended at the robot, a fixture or the learned background
//! ([`Places`]).
//!
//! Depth without support of its neighbours is no depth: what is too near for stereo matching gives
//! wrong, often far values beside holes, and those do not agree with each other.
//!
//! All of it works on samples of the host's copy of the frame, so it is the same code for every
//! device.

#![deny(missing_docs)]

mod ends;
mod places;
mod rays;
mod structure;

use nalgebra::Point3;
use serde::{Deserialize, Serialize};
use takt_link_camera::Intrinsics;

use crate::background::Background;
use crate::config::{ConfigError, PerceptionConfig};
use crate::mount::FramePose;
use crate::occupancy::Scene;
use crate::result::{Object, ObjectKind};
use crate::view::FrameView;
use ends::{Ends, NOT_LOOKED};
pub use places::{HiddenPlaces, PLACES_SIDE, Places};
use places::{Limits, Looker};
use rays::{Sight, Zone, follow};
pub(crate) use rays::{ends_before_volume, meets_robot};
use structure::{EVERY, Factors, KINDS, contradict, expected_m};

/// When missing depth counts as occupied, and when as blindness.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UnseenConfig {
    /// Distance from the tool centre point within which missing depth counts as occupied, metres.
    /// Unset: the cell takes the largest separation at which it stops; perception without a cell
    /// takes the whole volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_m: Option<f32>,
    /// Least width of what must not hide in a hole, metres. 0.08: a hand or a forearm. Smaller
    /// holes, as stereo matching leaves at edges and on plain surfaces, are closed by the valid
    /// depth around them.
    pub hidden_m: f32,
    /// Most samples, as a share of all, that may lie in holes which nothing explains while their
    /// lines of sight cross the monitored volume anywhere; above, the camera is blind. 0.10: holes
    /// of this size within `within_m` stop the robot anyway, this bounds what is overlooked farther
    /// away.
    pub max_share: f32,
    /// Most of the places within `within_m` in a camera's picture, as a share of them, that
    /// something *within the monitored volume* may hide while no other camera sees them, 0..1:
    /// above, they count as occupied. The cause of the hiding is reported separately, and people
    /// walk in front of each other. Places hidden by something *before* the volume, or nearer to
    /// the lens than half the way to them, always count. 0.25: in the shipped recording passers-by
    /// hide up to 0.21 while nobody is near. 0: whoever walks between camera and robot stops it,
    /// unless another camera looks behind.
    pub max_hidden: f32,
    /// Longest time for which something within the monitored volume may hide a place within
    /// `within_m` while no other camera sees it, seconds, 0 to 60: then the place counts as
    /// occupied, however few are hidden. 3.0: whoever walks by hides a place for a shorter time,
    /// and what stands still may have somebody behind it. 0: as `max_hidden = 0`.
    pub max_hidden_s: f32,
}

impl Default for UnseenConfig {
    fn default() -> Self {
        Self { within_m: None, hidden_m: 0.08, max_share: 0.10, max_hidden: 0.25, max_hidden_s: 3.0 }
    }
}

impl UnseenConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let error =
            |name, value: f32, accepted| Err(ConfigError { name, value: value.to_string(), accepted });
        match self.within_m {
            Some(within) if !(within > 0.0 && within <= 200.0) => {
                return error("unseen.within_m", within, "above 0, up to 200");
            }
            _ => {}
        }
        if !(0.02..=0.5).contains(&self.hidden_m) {
            return error("unseen.hidden_m", self.hidden_m, "0.02 to 0.5");
        }
        if !(0.0..=1.0).contains(&self.max_share) {
            return error("unseen.max_share", self.max_share, "0 to 1");
        }
        if !(0.0..=1.0).contains(&self.max_hidden) {
            return error("unseen.max_hidden", self.max_hidden, "0 to 1");
        }
        if !(0.0..=60.0).contains(&self.max_hidden_s) {
            return error("unseen.max_hidden_s", self.max_hidden_s, "0 to 60");
        }
        Ok(())
    }
}

/// Most separate holes that are distinguished; more join the last one.
const MAX_HOLES: usize = 32;
/// Fewer samples than this are no hole, as fewer are no thing (`occupancy.min_samples`).
const MIN_SAMPLES: u32 = 4;
/// A hole fills at least this part of a window as wide as what must not hide (two small holes side
/// by side do not), or this part of one twice as wide (wrong values that agree by chance do not
/// open what is near and therefore large).
const FILLED: [u32; 2] = [7, 8];
const FILLED_WIDE: [u32; 2] = [1, 2];
/// A window of samples this wide is enough for every purpose.
const MAX_WINDOW: usize = 64;
/// Above so many samples without depth one line of sight is followed for two by two of them: holes
/// are wide then.
const MANY: u32 = 4096;

/// State of a sample's line of sight. The order is that of the passes.
const SEEN: u8 = 0;
const MISSING: u8 = 1;
/// In a hole that could hide somebody near the tool, not yet part of an object.
const NEAR: u8 = 2;

/// The samples of one camera that have no depth.
#[derive(Debug)]
pub(crate) struct Unseen {
    width: u32,
    height: u32,
    step: u32,
    columns: usize,
    rows: usize,
    min_mm: u16,
    max_mm: u16,
    within_m: f32,
    hidden_px: f32,
    max_share: f32,
    /// First and last column and row that are expected to have depth (the latter exclusive).
    expected: [usize; 4],
    background: Option<Background>,
    /// Depth of each sample with a rim of one: 0 where it is no measurement.
    samples: Vec<u16>,
    state: Vec<u8>,
    /// Sums of missing samples above and to the left.
    sums: Vec<u32>,
    /// Nearest point of each sample in state [`NEAR`].
    near: Vec<(Point3<f32>, f32)>,
    /// First obstacle on the line of sight of each row, or block of rows.
    sights: Vec<Option<Sight>>,
    stack: Vec<u32>,
    objects: Vec<Object>,
    share: f32,
    looker: Looker,
    places: Places,
    /// End of each sample, if a place requested it.
    found: Vec<u8>,
    floor_m: f32,
}

/// Whether a frame can be believed and shows enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sees {
    Enough,
    /// More than the configured share is unseen.
    TooLittle,
    /// Its depth goes through what is known to be there.
    ThroughStructure,
}

impl Unseen {
    pub(crate) fn new(
        config: &PerceptionConfig,
        camera: u32,
        intrinsics: &Intrinsics,
    ) -> Result<Self, ConfigError> {
        let (step, Intrinsics { width, height, .. }) = (config.occupancy.step_px, *intrinsics);
        let (columns, rows) = (width.div_ceil(step) as usize, height.div_ceil(step) as usize);
        let cells = columns * rows;
        let sensor = config.sensor(camera);
        let [left, top, right, bottom] = sensor.border_px;
        let (min_mm, max_mm) = config.depth_range_mm(camera, intrinsics);
        let background = sensor.background.as_deref();
        Ok(Self {
            width,
            height,
            step,
            columns,
            rows,
            min_mm,
            max_mm,
            within_m: config.unseen.within_m.unwrap_or(f32::INFINITY),
            hidden_px: config.unseen.hidden_m * intrinsics.fx.min(intrinsics.fy) as f32,
            max_share: sensor.max_unseen.unwrap_or(config.unseen.max_share),
            expected: [
                left.div_ceil(step) as usize,
                top.div_ceil(step) as usize,
                columns.saturating_sub(right.div_ceil(step) as usize),
                rows.saturating_sub(bottom.div_ceil(step) as usize),
            ],
            background: background.map(|path| Background::load(path, [width, height, step])).transpose()?,
            samples: vec![0; (columns + 2) * (rows + 2)],
            state: vec![SEEN; cells],
            sums: vec![0; (columns + 1) * (rows + 1)],
            near: vec![(Point3::origin(), 0.0); cells],
            sights: vec![None; columns],
            stack: Vec::with_capacity(cells),
            objects: Vec::with_capacity(MAX_HOLES),
            share: 0.0,
            looker: Looker::new(
                Limits {
                    radius_m: config.unseen.within_m.unwrap_or(f32::INFINITY),
                    max_hidden: config.unseen.max_hidden,
                    max_hidden_s: config.unseen.max_hidden_s,
                    hidden_m: config.unseen.hidden_m,
                },
                step,
                intrinsics,
            ),
            places: Places::default(),
            found: vec![NOT_LOOKED; cells],
            floor_m: config.occupancy.floor_m,
        })
    }

    /// Looks at a frame; the scene is placed for it.
    pub(crate) fn look(&mut self, scene: &Scene, frame: &FrameView, pose: &FramePose) -> Sees {
        self.objects.clear();
        self.share = 0.0;
        self.take_samples(frame.depth_mm);
        let missing = self.find_missing(frame.depth_mm, pose);
        if self.is_through_structure(scene) {
            return Sees::ThroughStructure;
        }
        let tcp = Point3::from(pose.tcp_in_base.translation.vector.cast());
        self.look_at_places(scene, pose, &tcp, frame.capture_ns);
        if missing < MIN_SAMPLES {
            return Sees::Enough;
        }
        self.sum_up();
        let zone = Zone { tcp, radius_m: self.within_m, least_m: f32::from(self.min_mm) * 1e-3 };
        let near = self.follow_holes(scene, &zone, missing);
        if near > 0 {
            self.gather();
        }
        if self.share <= self.max_share { Sees::Enough } else { Sees::TooLittle }
    }

    /// Finds the visible and hidden places near the tool.
    fn look_at_places(&mut self, scene: &Scene, pose: &FramePose, tcp: &Point3<f32>, now_ns: u64) {
        self.found.fill(NOT_LOOKED);
        let mut ends = Ends {
            scene,
            background: self.background.as_ref().filter(|known| known.fits(pose)),
            columns: self.columns,
            step: self.step,
            size: [self.width, self.height],
            samples: &self.samples,
            state: &self.state,
            found: &mut self.found,
        };
        self.looker.look(scene, tcp, now_ns, self.expected, &mut ends, &mut self.places);
    }

    /// Whether depth goes on where known structure must end it.
    fn is_through_structure(&self, scene: &Scene) -> bool {
        let [left, top, right, bottom] = self.expected;
        let range_m = f32::from(self.min_mm) * 1e-3..=f32::from(self.max_mm) * 1e-3;
        let mut factors = [Factors::NONE; KINDS];
        for row in (top..bottom).step_by(EVERY) {
            for column in (left..right).step_by(EVERY) {
                let depth_mm = self.samples[(row + 1) * (self.columns + 2) + column + 1];
                if depth_mm == 0 {
                    continue;
                }
                let (u, v) = self.pixel(column, row);
                let (expected_m, kind) = expected_m(scene, self.floor_m, &(scene.ray(u, v) * 1000.0));
                if range_m.contains(&expected_m) {
                    factors[kind].add(expected_m, f32::from(depth_mm) * 1e-3);
                }
            }
        }
        contradict(&factors, self.state.len().div_ceil(EVERY * EVERY))
    }

    /// The last frame's view of the places near the tool.
    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// Share of all samples of the last frame that are unseen, nothing explains it, and the volume
    /// lies behind. Of a blind camera no more are counted than it takes.
    pub(crate) fn share(&self) -> f32 {
        self.share
    }

    /// Objects that could stand in the holes of the last frame.
    pub(crate) fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Samples of a frame.
    pub(crate) fn cells(&self) -> usize {
        self.state.len()
    }

    /// Marks which samples of a frame have no depth, for [`is_missing`](Self::is_missing).
    pub(crate) fn mark(&mut self, frame: &FrameView, pose: &FramePose) {
        self.take_samples(frame.depth_mm);
        self.find_missing(frame.depth_mm, pose);
    }

    /// Whether a sample has no depth, after [`mark`](Self::mark).
    pub(crate) fn is_missing(&self, cell: usize) -> bool {
        self.state[cell] == MISSING
    }

    /// The pixel of a sample.
    pub(crate) fn pixel_of(&self, cell: usize) -> (u32, u32) {
        self.pixel(cell % self.columns, cell / self.columns)
    }

    fn pixel(&self, column: usize, row: usize) -> (u32, u32) {
        let half = self.step / 2;
        let at = |index: usize, size: u32| (index as u32 * self.step + half).min(size - 1);
        (at(column, self.width), at(row, self.height))
    }

    fn is_usable(&self, depth_mm: u16) -> bool {
        (self.min_mm..=self.max_mm).contains(&depth_mm)
    }

    fn take_samples(&mut self, depth_mm: &[u16]) {
        let (step, width) = (self.step as usize, self.width as usize);
        let last = width - 1;
        for row in 0..self.rows {
            let (_, v) = self.pixel(0, row);
            let line = &depth_mm[v as usize * width..][..width];
            let start = (row + 1) * (self.columns + 2) + 1;
            let (min_mm, max_mm) = (self.min_mm, self.max_mm);
            for (column, sample) in self.samples[start..start + self.columns].iter_mut().enumerate() {
                let depth = line[(column * step + step / 2).min(last)];
                *sample = if (min_mm..=max_mm).contains(&depth) { depth } else { 0 };
            }
        }
    }

    /// Marks samples without depth that agrees with what is around it. Returns how many.
    fn find_missing(&mut self, depth_mm: &[u16], pose: &FramePose) -> u32 {
        let (stride, columns) = (self.columns + 2, self.columns);
        for (row, states) in self.state.chunks_exact_mut(columns).enumerate() {
            // Plain slices of one length, so that the compiler can look at many samples at once.
            let line = |row: usize, column: usize| &self.samples[row * stride + column..][..columns];
            let (here, above, below) = (line(row + 1, 1), line(row, 1), line(row + 2, 1));
            let (left, right) = (line(row + 1, 0), line(row + 1, 2));
            for column in 0..columns {
                let depth = here[column];
                let agreeing = agrees(depth, above[column])
                    + agrees(depth, below[column])
                    + agrees(depth, left[column])
                    + agrees(depth, right[column]);
                states[column] = if agreeing >= 2 { SEEN } else { MISSING };
            }
        }
        let [left, top, right, bottom] = self.expected;
        let background = self.background.take();
        let known = background.as_ref().filter(|known| known.fits(pose));
        let mut missing = 0;
        for cell in 0..self.state.len() {
            if self.state[cell] == SEEN {
                continue;
            }
            let (column, row) = (cell % columns, cell / columns);
            let seen = !((left..right).contains(&column) && (top..bottom).contains(&row))
                || self.is_closed(depth_mm, column, row)
                || known.is_some_and(|known| known.holds(cell));
            if seen {
                self.state[cell] = SEEN;
            } else {
                missing += 1;
            }
        }
        self.background = background;
        missing
    }

    /// Sums up the missing samples above and to the left of each place.
    fn sum_up(&mut self) {
        let columns = self.columns;
        let mut rows = self.sums.chunks_exact_mut(columns + 1);
        let Some(mut above) = rows.next() else { return };
        for (states, sums) in self.state.chunks_exact(columns).zip(rows) {
            let mut line = 0;
            for ((state, sum), above) in states.iter().zip(&mut sums[1..]).zip(&above[1..]) {
                line += u32::from(*state != SEEN);
                *sum = above + line;
            }
            above = sums;
        }
    }

    /// Whether other pixels of a sample's patch have depth that agrees: three of five. Within a
    /// hole, with nothing on any side, nobody looks.
    fn is_closed(&self, depth_mm: &[u16], column: usize, row: usize) -> bool {
        let stride = self.columns + 2;
        let at = (row + 1) * stride + column + 1;
        if [at, at - 1, at + 1, at - stride, at + stride].iter().all(|&at| self.samples[at] == 0) {
            return false;
        }
        let (near, far) = (self.step / 4, self.step * 3 / 4);
        let (left, top) = (column as u32 * self.step, row as u32 * self.step);
        let at = |x: u32, y: u32| {
            let (u, v) = ((left + x).min(self.width - 1), (top + y).min(self.height - 1));
            depth_mm[(v * self.width + u) as usize]
        };
        let half = self.step / 2;
        let probes = [at(half, half), at(near, near), at(far, near), at(near, far), at(far, far)];
        probes.iter().any(|&one| {
            let agreeing = |&&other: &&u16| self.is_usable(other) && agrees(one, other) == 1;
            self.is_usable(one) && probes.iter().filter(agreeing).count() >= 3
        })
    }

    /// Missing samples in a window of samples around one, and how many the window has.
    fn missing_around(&self, column: usize, row: usize, window: usize) -> (u32, u32) {
        // Moved inside at the edges: half a window would take half a hole for one.
        let range = |at: usize, first: usize, end: usize| {
            let low = at.saturating_sub(window / 2).min(end.saturating_sub(window)).max(first);
            (low, (low + window).min(end))
        };
        let [first_column, first_row, end_column, end_row] = self.expected;
        let (left, right) = range(column, first_column, end_column);
        let (top, bottom) = range(row, first_row, end_row);
        let sum = |column: usize, row: usize| self.sums[row * (self.columns + 1) + column];
        let missing = sum(right, bottom) + sum(left, top) - sum(left, bottom) - sum(right, top);
        (missing, ((right - left) * (bottom - top)) as u32)
    }

    /// Width in samples of the least thing that must not hide, at the greatest depth that matters.
    fn window(&self, scene: &Scene, zone: &Zone) -> usize {
        let origin = scene.origin();
        let farthest = |axis: usize| {
            let volume = scene.volume();
            (volume.min_m[axis] - origin[axis]).abs().max((volume.max_m[axis] - origin[axis]).abs())
        };
        let corner_m = (farthest(0).powi(2) + farthest(1).powi(2) + farthest(2).powi(2)).sqrt();
        let reach_m = ((origin - zone.tcp).norm() + zone.radius_m).min(corner_m).max(0.01);
        ((self.hidden_px / reach_m / self.step as f32) as usize).clamp(2, MAX_WINDOW)
    }

    /// Follows the lines of sight of all holes. Returns how many lead near the tool.
    fn follow_holes(&mut self, scene: &Scene, zone: &Zone, missing: u32) -> u32 {
        let window = self.window(scene, zone);
        let is_hole = |unseen: &Self, column: usize, row: usize| {
            [(window, FILLED), (2 * window, FILLED_WIDE)].into_iter().any(|(window, [part, of])| {
                let (missing, all) = unseen.missing_around(column, row, window);
                missing >= MIN_SAMPLES.max((all * part).div_ceil(of))
            })
        };
        let every = if missing > MANY { 2 } else { 1 };
        let cells = (self.columns * self.rows) as f32;
        let (mut near, mut unexplained) = (0, 0);
        for row in 0..self.rows {
            if row % every == 0 {
                self.sights.fill(None);
            }
            // A blind camera stops the robot, wherever its holes are.
            if unexplained as f32 > self.max_share * cells {
                break;
            }
            for column in 0..self.columns {
                let cell = row * self.columns + column;
                if self.state[cell] != MISSING || !is_hole(self, column, row) {
                    continue;
                }
                let sight = match self.sights[column / every] {
                    Some(sight) if every > 1 => sight,
                    _ => {
                        let (u, v) = self.pixel(column, row);
                        let sight = follow(scene, zone, &(scene.ray(u, v) * 1000.0));
                        self.sights[column / every] = Some(sight);
                        sight
                    }
                };
                match sight {
                    Sight::Outside => {}
                    Sight::Far => unexplained += 1,
                    Sight::Near(point, distance_m) => {
                        unexplained += 1;
                        near += 1;
                        self.state[cell] = NEAR;
                        self.near[cell] = (point, distance_m);
                    }
                }
            }
        }
        self.share = unexplained as f32 / cells;
        near
    }

    /// Connected holes become objects.
    fn gather(&mut self) {
        for seed in 0..self.state.len() {
            if self.state[seed] != NEAR {
                continue;
            }
            let mut extent = [usize::MAX, usize::MAX, 0, 0];
            let mut object =
                Object { kind: ObjectKind::Unseen, distance_m: f32::INFINITY, ..Object::default() };
            self.state[seed] = SEEN;
            self.stack.clear();
            self.stack.push(seed as u32);
            while let Some(cell) = self.stack.pop() {
                let cell = cell as usize;
                let (column, row) = (cell % self.columns, cell / self.columns);
                let [left, top, right, bottom] = extent;
                extent = [left.min(column), top.min(row), right.max(column + 1), bottom.max(row + 1)];
                let (point, distance_m) = self.near[cell];
                if distance_m < object.distance_m {
                    (object.nearest_m, object.position_m, object.distance_m) = (point, point, distance_m);
                }
                for r in row.saturating_sub(1)..=(row + 1).min(self.rows - 1) {
                    for c in column.saturating_sub(1)..=(column + 1).min(self.columns - 1) {
                        let next = r * self.columns + c;
                        if self.state[next] == NEAR {
                            self.state[next] = SEEN;
                            self.stack.push(next as u32);
                        }
                    }
                }
            }
            object.box_px = extent.map(|side| side as f32 * self.step as f32);
            self.keep(object);
        }
    }

    fn keep(&mut self, object: Object) {
        if self.objects.len() < MAX_HOLES {
            self.objects.push(object);
        } else if let Some(last) = self.objects.last_mut() {
            let [left, top, right, bottom] = object.box_px;
            let [l, t, r, b] = last.box_px;
            if object.distance_m < last.distance_m {
                *last = object;
            }
            last.box_px = [l.min(left), t.min(top), r.max(right), b.max(bottom)];
        }
    }
}

/// 1 when another depth may be of the same surface: within an eighth of the farther one, which a
/// floor at a grazing angle keeps from one sample to the next. 0 for no depth.
fn agrees(depth: u16, other: u16) -> u8 {
    let (a, b) = (u32::from(depth), u32::from(other));
    u8::from(a.abs_diff(b) * 8 <= a.max(b) && a != 0)
}

#[cfg(test)]
mod tests;
