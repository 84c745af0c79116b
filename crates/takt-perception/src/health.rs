//! Whether a frame can be judged at all.

use takt_link_camera::Frame;

use crate::config::HealthConfig;
use crate::occupancy::{DepthCounts, Grid};
use crate::result::FrameHealth;

/// Judges colour and depth on the samples of the grid.
pub(crate) fn judge(config: &HealthConfig, frame: &Frame, grid: &Grid, counts: DepthCounts) -> FrameHealth {
    let samples = counts.samples.max(1) as f32;
    if counts.impossible as f32 > config.max_impossible_depth * samples {
        return FrameHealth::ImpossibleDepth;
    }
    if (counts.valid as f32) < config.min_valid_depth * samples || counts.valid == 0 {
        return FrameHealth::EmptyDepth;
    }
    if grey_deviation(frame, grid) < config.min_grey_deviation {
        return FrameHealth::EmptyColour;
    }
    FrameHealth::Ok
}

/// Standard deviation of the grey values, 0..255.
fn grey_deviation(frame: &Frame, grid: &Grid) -> f32 {
    let (mut sum, mut squares) = (0u64, 0u64);
    for cell in 0..grid.cells() {
        let (u, v) = grid.pixel(cell, frame.width, frame.height);
        let at = (v * frame.width + u) as usize * 3;
        let grey: u64 = frame.rgb[at..at + 3].iter().map(|&value| u64::from(value)).sum();
        sum += grey;
        squares += grey * grey;
    }
    let cells = grid.cells().max(1) as f64;
    let mean = sum as f64 / cells;
    // Three channels were added up.
    ((squares as f64 / cells - mean * mean).max(0.0).sqrt() / 3.0) as f32
}
