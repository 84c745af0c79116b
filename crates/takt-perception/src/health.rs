//! Whether a frame can be judged at all.

use crate::config::HealthConfig;
use crate::occupancy::{DepthCounts, Grid};
use crate::result::FrameHealth;
use crate::view::FrameView;

/// Sums over the grey values (three channels added up) of the samples of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GreySums {
    pub(crate) sum: u64,
    pub(crate) squares: u64,
}

impl GreySums {
    pub(crate) fn of(frame: &FrameView, grid: &Grid) -> Self {
        let mut sums = Self::default();
        for cell in 0..grid.cells() {
            let (u, v) = grid.pixel(cell, frame.width, frame.height);
            let at = (v * frame.width + u) as usize * 3;
            let grey: u64 = frame.rgb[at..at + 3].iter().map(|&value| u64::from(value)).sum();
            sums.sum += grey;
            sums.squares += grey * grey;
        }
        sums
    }

    /// Standard deviation of the grey values, 0..255.
    fn deviation(&self, cells: u32) -> f32 {
        let cells = f64::from(cells.max(1));
        let mean = self.sum as f64 / cells;
        // Three channels were added up.
        ((self.squares as f64 / cells - mean * mean).max(0.0).sqrt() / 3.0) as f32
    }
}

/// Judges colour and depth on the samples of the grid.
pub(crate) fn judge(
    config: &HealthConfig,
    counts: DepthCounts,
    grey: impl FnOnce() -> GreySums,
) -> FrameHealth {
    let samples = counts.samples.max(1) as f32;
    if counts.impossible as f32 > config.max_impossible_depth * samples {
        return FrameHealth::ImpossibleDepth;
    }
    if (counts.valid as f32) < config.min_valid_depth * samples || counts.valid == 0 {
        return FrameHealth::EmptyDepth;
    }
    if grey().deviation(counts.samples) < config.min_grey_deviation {
        return FrameHealth::EmptyColour;
    }
    FrameHealth::Ok
}
