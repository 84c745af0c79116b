//! Parts of a picture that never have depth, and the depth of what stands still: learned while
//! nobody is there, kept in a file, used as long as the camera has not moved.

#![deny(missing_docs)]

use std::path::Path;

use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};
use serde::{Deserialize, Serialize};
use takt_link_camera::Intrinsics;

use crate::config::{ConfigError, PerceptionConfig};
use crate::mount::FramePose;
use crate::occupancy::Scene;
use crate::unseen::{Unseen, ends_before_volume, meets_robot};
use crate::view::FrameView;

/// Most of the samples that may be learned to have no depth, 0..1: a camera that sees less is badly
/// placed, or was covered while it learned.
pub const MAX_LEARNED: f32 = 0.25;
/// Frames in which a sample must have been without depth.
pub const MIN_FRAMES: u32 = 60;
/// Of these frames at least so many, 0..1.
const MIN_SHARE: f32 = 0.95;
/// Depths of one surface that stands still differ by no more than this part: the noise of a stereo
/// camera at 5 m.
const STILL: f32 = 0.04;
/// Largest motion of the camera since then, metres and radians.
const MOVED_M: f64 = 0.005;
const MOVED_RAD: f64 = 0.005;

/// Reason why nothing was learned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BackgroundError {
    /// A frame of another camera.
    #[error("a frame of {}x{}: expected {}x{}", found_px[0], found_px[1], expected_px[0], expected_px[1])]
    Size {
        /// Its width and height.
        found_px: [u32; 2],
        /// Those of the camera.
        expected_px: [u32; 2],
    },
    /// The camera does not stand still.
    #[error("the camera moves: only cameras mounted in the base frame can learn a background")]
    Moved,
    /// It was ended too soon.
    #[error("{0} frames: learning takes at least {MIN_FRAMES}")]
    TooFew(u32),
    /// The camera sees too little.
    #[error(
        "{:.0} % of the picture has no depth; {:.0} % is accepted: uncover the camera, or move it",
        share * 100.0,
        MAX_LEARNED * 100.0
    )]
    TooMuch {
        /// Samples without depth, 0..1.
        share: f32,
    },
    /// Something stands between the camera and what is monitored.
    #[error(
        "in {:.0} % of the picture an object in front of the monitored volume hides it; {:.0} % is accepted: remove the object, or move \
         the camera",
        share * 100.0,
        MAX_LEARNED * 100.0
    )]
    Hides {
        /// Samples that end before the volume, 0..1.
        share: f32,
    },
}

/// Samples of a fixed camera that never have depth.
///
/// There nothing is expected, so nothing is noticed but what has depth: a window or a mirror behind
/// a place where people walk stays a blind spot. Learning is an act of its own, never done while
/// the robot runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// Width, height and sampling step of the picture, pixels.
    size_px: [u32; 3],
    /// Place of the camera, base frame: position in metres, rotation as a quaternion i, j, k, w.
    position_m: [f64; 3],
    rotation: [f64; 4],
    /// Frames that were looked at.
    frames: u32,
    /// The samples row by row: `#` never has depth, `.` has.
    rows: Vec<String>,
    /// Depth of the samples row by row, four hexadecimal digits each, millimetres: what stands
    /// there. 0000 where it changes, or has none.
    #[serde(default)]
    depth_mm: Vec<String>,
    #[serde(skip)]
    holes: Vec<bool>,
    #[serde(skip)]
    depths: Vec<u16>,
    #[serde(skip)]
    camera_in_base: Isometry3<f64>,
}

impl Background {
    /// Reads a file and checks that it is of a picture of that width, height and sampling step.
    pub(crate) fn load(path: &Path, size_px: [u32; 3]) -> Result<Self, ConfigError> {
        let error = |value: String, accepted| ConfigError { name: "sensors.background", value, accepted };
        let text = takt_files::read_to_string(path, takt_files::FIGURES_BYTES).map_err(|e| {
            error(format!("{} ({e})", path.display()), "a readable file written by learning, or omit the key")
        })?;
        Self::parse(&text, size_px).map_err(|why| {
            error(
                format!("{} ({why})", path.display()),
                "a background learned with this camera's size and `occupancy.step_px`: learn it again",
            )
        })
    }

    fn parse(text: &str, size_px: [u32; 3]) -> Result<Self, String> {
        let mut found: Self = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        if found.size_px != size_px {
            return Err(format!(
                "it has {:?} pixels and step, but the camera has {size_px:?}",
                found.size_px
            ));
        }
        let [columns, rows] = [0, 1].map(|side| size_px[side].div_ceil(size_px[2]) as usize);
        let fits = |row: &String| row.len() == columns && row.bytes().all(|b| matches!(b, b'#' | b'.'));
        if found.rows.len() != rows || !found.rows.iter().all(fits) {
            return Err(format!("expected {rows} rows of {columns} characters `#` or `.`"));
        }
        let digits = |row: &String| row.len() == 4 * columns && row.bytes().all(|b| b.is_ascii_hexdigit());
        if !found.depth_mm.is_empty() && (found.depth_mm.len() != rows || !found.depth_mm.iter().all(digits))
        {
            return Err(format!("expected {rows} rows of {columns} depths of four hexadecimal digits"));
        }
        let numbers = found.position_m.iter().chain(&found.rotation);
        let [i, j, k, w] = found.rotation;
        let rotation = Quaternion::new(w, i, j, k);
        if !numbers.into_iter().all(|v| v.is_finite()) || (rotation.norm() - 1.0).abs() > 1e-3 {
            return Err("the pose of the camera is invalid".into());
        }
        found.holes = found.rows.iter().flat_map(|row| row.bytes().map(|b| b == b'#')).collect();
        let depth =
            |row: &String, column: usize| u16::from_str_radix(&row[4 * column..4 * column + 4], 16).ok();
        let line =
            |row: &String| (0..columns).map(|column| depth(row, column).unwrap_or(0)).collect::<Vec<_>>();
        found.depths = found.depth_mm.iter().flat_map(line).collect();
        found.camera_in_base = Isometry3::from_parts(
            Translation3::from(nalgebra::Vector3::from(found.position_m)),
            UnitQuaternion::from_quaternion(rotation),
        );
        if found.share() > MAX_LEARNED {
            return Err(format!("{:.0} % of the picture without depth is too much", found.share() * 100.0));
        }
        Ok(found)
    }

    /// Whether the camera still stands where it learned.
    pub(crate) fn fits(&self, pose: &FramePose) -> bool {
        let moved = self.camera_in_base.inverse() * pose.camera_in_base;
        moved.translation.vector.norm() <= MOVED_M && moved.rotation.angle() <= MOVED_RAD
    }

    /// Whether a sample never has depth.
    pub(crate) fn holds(&self, cell: usize) -> bool {
        self.holes.get(cell).copied().unwrap_or(false)
    }

    /// Whether a depth is that of what was there while it learned. A farther depth is another
    /// object that came after the known one was gone.
    pub(crate) fn ends_at(&self, cell: usize, depth_mm: u16) -> bool {
        let learned = f32::from(self.depths.get(cell).copied().unwrap_or(0));
        learned > 0.0 && (f32::from(depth_mm) - learned).abs() <= STILL * learned
    }

    /// Share of the samples that never have depth.
    pub fn share(&self) -> f32 {
        self.holes.iter().filter(|&&hole| hole).count() as f32 / self.holes.len().max(1) as f32
    }

    /// The text of the file.
    ///
    /// # Errors
    /// The format's error.
    pub fn to_text(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

/// Learns the [`Background`] of one camera from frames in which nobody is near.
#[derive(Debug)]
pub struct BackgroundLearner {
    unseen: Unseen,
    scene: Scene,
    size_px: [u32; 3],
    /// Of each sample: frames in which the robot was not in its line of sight, and of these those
    /// without depth.
    counts: Vec<[u32; 2]>,
    /// Of each sample: least and greatest depth in these frames, millimetres.
    depths_mm: Vec<[u16; 2]>,
    frames: u32,
    camera_in_base: Option<Isometry3<f64>>,
}

impl BackgroundLearner {
    /// A learner for a camera with that number; a background that it has already is left aside.
    ///
    /// # Errors
    /// A setting out of range.
    pub fn new(config: &PerceptionConfig, camera: u32, intrinsics: &Intrinsics) -> Result<Self, ConfigError> {
        let mut config = config.clone();
        if let Some(sensor) = config.sensors.get_mut(camera as usize) {
            sensor.background = None;
        }
        config.check()?;
        let (near, far) = config.depth_range_mm(camera, intrinsics);
        let unseen = Unseen::new(&config, camera, intrinsics)?;
        Ok(Self {
            scene: Scene::new(&config.occupancy, intrinsics, near, far),
            size_px: [intrinsics.width, intrinsics.height, config.occupancy.step_px],
            counts: vec![[0; 2]; unseen.cells()],
            depths_mm: vec![[u16::MAX, 0]; unseen.cells()],
            unseen,
            frames: 0,
            camera_in_base: None,
        })
    }

    /// Looks at one frame.
    ///
    /// # Errors
    /// The camera moved, or the frame has another size.
    pub fn add(&mut self, frame: &FrameView, pose: &FramePose) -> Result<(), BackgroundError> {
        let [width, height, _] = self.size_px;
        if (frame.width, frame.height) != (width, height) || frame.depth_mm.len() != (width * height) as usize
        {
            let found_px = [frame.width, frame.height];
            return Err(BackgroundError::Size { found_px, expected_px: [width, height] });
        }
        let first = *self.camera_in_base.get_or_insert(pose.camera_in_base);
        let moved = first.inverse() * pose.camera_in_base;
        if moved.translation.vector.norm() > MOVED_M || moved.rotation.angle() > MOVED_RAD {
            return Err(BackgroundError::Moved);
        }
        self.scene.place(pose);
        self.frames += 1;
        self.unseen.mark(frame, pose);
        for (cell, [looked, without]) in self.counts.iter_mut().enumerate() {
            let (u, v) = self.unseen.pixel_of(cell);
            if !meets_robot(&self.scene, &(self.scene.ray(u, v) * 1000.0)) {
                *looked += 1;
                let missing = self.unseen.is_missing(cell);
                *without += u32::from(missing);
                let depth_mm = frame.depth_mm[(v * frame.width + u) as usize];
                if !missing && self.scene.is_valid(depth_mm) {
                    let [least, most] = &mut self.depths_mm[cell];
                    (*least, *most) = (depth_mm.min(*least), depth_mm.max(*most));
                }
            }
        }
        Ok(())
    }

    /// The learned background.
    ///
    /// # Errors
    /// Too few frames, or too much without depth.
    pub fn finish(self) -> Result<Background, BackgroundError> {
        let Some(camera_in_base) = self.camera_in_base.filter(|_| self.frames >= MIN_FRAMES) else {
            return Err(BackgroundError::TooFew(self.frames));
        };
        let hole = |&[looked, without]: &[u32; 2]| {
            looked >= MIN_FRAMES && without as f32 >= MIN_SHARE * looked as f32
        };
        let holes: Vec<bool> = self.counts.iter().map(hole).collect();
        let columns = self.size_px[0].div_ceil(self.size_px[2]) as usize;
        let still = |(&[looked, without], &[least, most]): (&[u32; 2], &[u16; 2])| {
            let seen = looked >= MIN_FRAMES && without as f32 <= (1.0 - MIN_SHARE) * looked as f32;
            let same = f32::from(most) - f32::from(least) <= 2.0 * STILL * f32::from(most);
            if seen && same { least.midpoint(most) } else { 0 }
        };
        let depths: Vec<u16> = self.counts.iter().zip(&self.depths_mm).map(still).collect();
        let hidden = (0..depths.len()).filter(|&cell| {
            let (u, v) = self.unseen.pixel_of(cell);
            depths[cell] != 0 && ends_before_volume(&self.scene, u, v, depths[cell])
        });
        let share = hidden.count() as f32 / depths.len().max(1) as f32;
        if share > MAX_LEARNED {
            return Err(BackgroundError::Hides { share });
        }
        let [i, j, k, w] = camera_in_base.rotation.coords.into();
        let learned = Background {
            depth_mm: depths
                .chunks(columns)
                .map(|row| row.iter().map(|depth| format!("{depth:04x}")).collect())
                .collect(),
            depths,
            size_px: self.size_px,
            position_m: camera_in_base.translation.vector.into(),
            rotation: [i, j, k, w],
            frames: self.frames,
            rows: holes
                .chunks(columns)
                .map(|row| row.iter().map(|&h| if h { '#' } else { '.' }).collect())
                .collect(),
            holes,
            camera_in_base,
        };
        if learned.share() > MAX_LEARNED {
            return Err(BackgroundError::TooMuch { share: learned.share() });
        }
        Ok(learned)
    }
}
