//! What every backend is to its users, so that nobody else needs to know which backends there are.

use std::fmt;
use std::path::PathBuf;

use crate::camera::{Camera, PoseSource};
use crate::error::CameraError;
use crate::synthetic::SolidSource;
use crate::{Frame, Intrinsics};

/// What a rendered scene is given of the world: where its camera is, and which bodies move in
/// it.
#[derive(Clone)]
pub struct Surroundings {
    /// Where the camera is.
    pub pose: PoseSource,
    /// The bodies that move, for example the links of an arm; none without.
    pub solids: Option<SolidSource>,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("solids", &self.solids.is_some()).finish_non_exhaustive()
    }
}

impl From<PoseSource> for Surroundings {
    fn from(pose: PoseSource) -> Self {
        Self { pose, solids: None }
    }
}

/// A camera on a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CameraDevice<'a> {
    /// Its maker's name for such cameras.
    pub kind: &'static str,
    /// Its serial number; without, the first one found.
    pub serial: Option<&'a str>,
    /// How to find serial numbers.
    pub advice: &'static str,
}

/// Images as a camera delivers them, to measure with.
#[derive(Clone, Debug)]
pub struct CameraSample {
    /// Of every image.
    pub intrinsics: Intrinsics,
    /// The images.
    pub frames: Vec<Frame>,
}

impl CameraSample {
    /// One made-up image: texture, and the depth of a far wall, nothing that counts as blind.
    pub fn made_up(intrinsics: Intrinsics) -> Self {
        let mut frame = Frame::new(intrinsics.width, intrinsics.height);
        frame.rgb.iter_mut().enumerate().for_each(|(index, value)| *value = (index * 37 % 251) as u8);
        frame.depth_mm.fill(5_000);
        Self { intrinsics, frames: vec![frame] }
    }

    /// The same of a camera of which only the size of its images is known.
    pub fn of_size(width: u32, height: u32) -> Self {
        let (fx, cx, cy) = (f64::from(width), f64::from(width) / 2.0, f64::from(height) / 2.0);
        Self::made_up(Intrinsics { width, height, fx, fy: fx, cx, cy })
    }
}

/// A backend, by the keys that configure it. A new one is a struct of its keys with this trait, and
/// a variant of [`CameraConfig`](crate::CameraConfig).
pub trait CameraBackend {
    /// The backend as the configuration names it; also part of the driver thread's name.
    fn name(&self) -> &'static str;

    /// Whether this build can open such a camera at all, without looking for it.
    ///
    /// # Errors
    /// [`CameraError::NotBuilt`], with what to build instead.
    fn is_built(&self) -> Result<(), CameraError> {
        Ok(())
    }

    /// Opens the camera; [`open`](crate::open) checks its intrinsics, too. Where
    /// [`needs_surroundings`](Self::needs_surroundings), they must be given.
    ///
    /// # Errors
    /// Says what is missing or wrong and how to put it right; see [`CameraError`].
    fn open(&self, surroundings: Option<Surroundings>) -> Result<Box<dyn Camera>, CameraError>;

    /// Checks what the types cannot, without touching a device or a file.
    ///
    /// # Errors
    /// Names the key, the value and what is accepted.
    fn validate(&self) -> Result<(), CameraError>;

    /// Frames per second that the camera has to deliver; `None` for a recording that is paced by
    /// its own time stamps.
    fn rate_fps(&self) -> Option<f64>;

    /// Sets that rate, or the nearest that the camera may have.
    fn set_rate_fps(&mut self, rate: f64);

    /// Images to measure with, `most` at most: recorded ones, or a made-up one of the camera's
    /// size.
    ///
    /// # Errors
    /// A recording cannot be read.
    fn sample(&self, most: usize) -> Result<CameraSample, CameraError>;

    /// What a check of the configuration finds, in words, without starting a device.
    ///
    /// # Errors
    /// What opening it would refuse, as far as that is known without the device.
    fn inspect(&self) -> Result<String, CameraError>;

    /// The camera on a cable; `None` for recorded and rendered pictures. Kernel or library receive
    /// the frames of such a camera, so that whoever wants one need only wait for it; all others
    /// need a thread that stands in for them.
    fn device(&self) -> Option<CameraDevice<'_>> {
        None
    }

    /// The file or folder that is read, which may be relative to the configuration's folder.
    fn path_mut(&mut self) -> Option<&mut PathBuf> {
        None
    }

    /// Whether it renders what is seen from a pose, and must be told that.
    fn needs_surroundings(&self) -> bool {
        false
    }
}
