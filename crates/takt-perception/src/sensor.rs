//! Properties of each camera's depth sensor: the nearest distance that it measures, and the places
//! where it never measures.

#![deny(missing_docs)]

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::ConfigError;

/// Models of stereo cameras whose least depth is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DepthModel {
    /// RealSense D405 (depth module D401).
    D405,
    /// RealSense D415 (D410).
    D415,
    /// RealSense D435 (D430), the paper's camera.
    #[default]
    D435,
    /// RealSense D455 (D450).
    D455,
}

/// Widths of the depth stream in [`DepthModel::least_mm`]: 424x240, 480x270, 640x360, 640x480,
/// 848x480, 1280x720.
const WIDTHS: [(u32, u32); 6] = [(424, 240), (480, 270), (640, 360), (640, 480), (848, 480), (1280, 720)];

impl DepthModel {
    /// Nearest depth in millimetres at each of the resolutions: table "Minimum-Z Depth" of the D400
    /// series' datasheet (337029). The disparity search covers a fixed number of pixels, so it
    /// grows with the width. The D405's entry for 640x480 is that of 848x480: the table has none.
    const fn table(self) -> [u16; WIDTHS.len()] {
        match self {
            Self::D405 => [40, 45, 55, 70, 70, 100],
            Self::D415 => [160, 180, 240, 310, 310, 450],
            Self::D435 => [105, 120, 150, 175, 195, 280],
            Self::D455 => [180, 200, 260, 320, 350, 520],
        }
    }

    /// Nearest depth in millimetres of a stream of that size. A size between two of the datasheet's
    /// counts as the larger one; beyond the largest the distance grows with the width.
    pub fn least_mm(self, width: u32, height: u32) -> u16 {
        let table = self.table();
        let fits = WIDTHS.iter().zip(table).find(|((w, h), _)| width <= *w && height <= *h);
        fits.map_or_else(
            || {
                let scale = f64::from(width).max(f64::from(height) * 16.0 / 9.0) / 1280.0;
                (f64::from(table[WIDTHS.len() - 1]) * scale.max(1.0)).ceil().min(65_535.0) as u16
            },
            |(_, least_mm)| least_mm,
        )
    }
}

/// The depth sensor of one camera.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SensorConfig {
    /// The model, for the nearest depth that it measures at the stream's resolution. D435.
    pub model: DepthModel,
    /// Nearest depth that this camera measures, millimetres, in place of
    /// `perception.health.min_depth_mm` and of the model's table: for other cameras, and where a
    /// disparity shift is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_depth_mm: Option<u16>,
    /// Pixels at the left, top, right and bottom edge that never have depth, because depth that is
    /// aligned to a colour image of the same field of view has an empty band at one side (D455; its
    /// width is focal length times baseline over the nearest depth). They count as outside of the
    /// image: nothing there is seen, nor expected. None.
    pub border_px: [u32; 4],
    /// Most of this camera's samples that may be unseen, 0..1, in place of
    /// `perception.unseen.max_share`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unseen: Option<f32>,
    /// File with the parts of the picture that never have depth (a window, a mirror, a black
    /// machine), learned while nobody was there, for cameras that stand still. None.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<PathBuf>,
}

impl SensorConfig {
    pub(crate) fn check(&self, max_depth_mm: u16) -> Result<(), ConfigError> {
        if let Some(least) = self.min_depth_mm
            && least >= max_depth_mm
        {
            return Err(ConfigError {
                name: "sensors.min_depth_mm",
                value: least.to_string(),
                accepted: "less than health.max_depth_mm",
            });
        }
        if self.border_px.iter().any(|&side| side > 512) {
            return Err(ConfigError {
                name: "sensors.border_px",
                value: format!("{:?}", self.border_px),
                accepted: "left, top, right, bottom; each 0 to 512, and a quarter of the picture together",
            });
        }
        match self.max_unseen {
            Some(share) if !(0.0..=1.0).contains(&share) => {
                Err(ConfigError { name: "sensors.max_unseen", value: share.to_string(), accepted: "0 to 1" })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_depth_follows_the_streams_resolution() {
        let d435 = |width, height| DepthModel::D435.least_mm(width, height);
        assert_eq!((d435(424, 240), d435(848, 480), d435(1280, 720)), (105, 195, 280));
        assert_eq!((d435(640, 360), d435(640, 480)), (150, 175));
        // Between two sizes the farther of both holds.
        assert_eq!((d435(384, 288), d435(600, 400), d435(1, 1)), (150, 175, 105));
        assert_eq!(d435(1920, 1080), 420);
        assert_eq!(DepthModel::D455.least_mm(848, 480), 350);
        assert_eq!(DepthModel::D405.least_mm(640, 480), 70);
        assert_eq!(DepthModel::D455.least_mm(u32::MAX, u32::MAX), u16::MAX);
    }
}
