//! Bounds of the configurations of cameras, whatever the backend.

use takt_rt::config::{SettingError, all_within, within};

use crate::Intrinsics;

/// Images smaller than this resolve nobody: a person of 0.5 m at 5 m is 6 pixels wide in 64.
pub(crate) const MIN_SIZE: (f64, f64) = (64.0, 48.0);

/// The greatest side that the decoders take.
pub(crate) const GREATEST_SIDE: f64 = 8192.0;

/// Focal length over image side: that of a field of view of 170 degrees (0.044) and of 2 degrees
/// (28.6). Beyond, a number is wrong, and every distance that comes from it.
const FOCAL_RATIO: (f64, f64) = (0.044, 28.7);

/// Frames a second of the fastest cameras that are known; below 1 no stale limit that is accepted
/// can be met.
pub(crate) const RATE_FPS: (f64, f64) = (1.0, 1000.0);

/// A camera that says nothing for so long is lost; five seconds suffice for the slowest start of a
/// stream.
pub(crate) const TIMEOUT_MS: (f64, f64) = (1.0, 5000.0);

/// Intrinsics of a configuration: images that resolve somebody, and what
/// [`Intrinsics::check`] asks for.
pub(crate) fn intrinsics(it: &Intrinsics) -> Result<(), SettingError> {
    all_within(
        "intrinsics.",
        &[
            ("width", it.width.into(), MIN_SIZE.0, GREATEST_SIDE),
            ("height", it.height.into(), MIN_SIZE.1, GREATEST_SIDE),
        ],
    )?;
    it.check()
}

impl Intrinsics {
    /// Checks that a camera with this image can have these numbers, wherever they come from: every
    /// distance is computed with them.
    ///
    /// # Errors
    /// Names the number, its value and what is accepted.
    pub fn check(&self) -> Result<(), SettingError> {
        let (width, height) = (f64::from(self.width), f64::from(self.height));
        all_within(
            "intrinsics.",
            &[
                ("width", width, 1.0, GREATEST_SIDE),
                ("height", height, 1.0, GREATEST_SIDE),
                // A field of view of 2 to 170 degrees.
                ("fx", self.fx, FOCAL_RATIO.0 * width, FOCAL_RATIO.1 * width),
                ("fy", self.fy, FOCAL_RATIO.0 * height, FOCAL_RATIO.1 * height),
                // Within the image, whose first pixel has its middle at 0.
                ("cx", self.cx, -0.5, width - 0.5),
                ("cy", self.cy, -0.5, height - 0.5),
            ],
        )?;
        // Pixels of sensors are square; binning in one direction doubles one side.
        within("intrinsics.fx / intrinsics.fy", self.fx / self.fy, 0.5, 2.0)
    }
}
