//! Ranges of perception's numbers. A number beyond them switches the watching off, by accident or
//! not; each bound has its reason here.

use super::{ConfigError, PerceptionConfig};
use crate::occupancy::Volume;

/// Nothing of a cell lies farther from its robot, metres: three times what a depth camera measures.
pub(crate) const FARTHEST_M: f32 = 200.0;

/// Least side of the monitored volume, metres. A smaller one holds no part of a person that moves
/// at 2 m/s from one frame to the next.
const MIN_SIDE_M: f32 = 0.1;

/// Greatest radius of a capsule of the robot, metres: the thickest link of a UR20 is 0.12, with a
/// box in its gripper 0.5.
const GREATEST_RADIUS_M: f32 = 0.5;

/// Farthest end of a capsule from its frame, metres: beyond the reach of the longest arm of its
/// kind (UR20: 1.75).
const LONGEST_REACH_M: f32 = 3.0;

fn refused(name: &'static str, value: impl std::fmt::Debug, accepted: &'static str) -> ConfigError {
    ConfigError { name, value: format!("{value:?}"), accepted }
}

fn within(
    name: &'static str,
    value: f64,
    low: f64,
    high: f64,
    accepted: &'static str,
) -> Result<(), ConfigError> {
    if (low..=high).contains(&value) { Ok(()) } else { Err(refused(name, value, accepted)) }
}

pub(crate) fn check(config: &PerceptionConfig) -> Result<(), ConfigError> {
    let PerceptionConfig { engine, health, occupancy, detector, segmenter, tracking, .. } = config;
    let numbers: [(&'static str, f64, f64, f64, &'static str); 15] = [
        // No usable image has a deviation of a quarter of its range as its least.
        ("health.min_grey_deviation", health.min_grey_deviation.into(), 0.0, 64.0, "0 to 64"),
        // A floor that is farther down than a hall is high is none.
        ("occupancy.floor_m", occupancy.floor_m.into(), -20.0, 20.0, "-20 to 20"),
        // Above half a metre, somebody who crawls is floor.
        ("occupancy.min_height_m", occupancy.min_height_m.into(), 0.0, 0.5, "0 to 0.5"),
        ("occupancy.link_m", occupancy.link_m.into(), 0.01, 2.0, "0.01 to 2"),
        // A hand has 0.015 m² and some tens of samples; beyond, people are overlooked.
        ("occupancy.min_samples", occupancy.min_samples.into(), 1.0, 64.0, "1 to 64"),
        ("occupancy.min_area_m2", occupancy.min_area_m2.into(), 0.0, 0.02, "above 0, up to 0.02"),
        ("detector.person_class", detector.person_class as f64, 0.0, 10_000.0, "0 to 10000"),
        // Unseen for so long, a person is unexplained anyway: a minute is a mistake.
        ("detector.interval_ms", detector.interval_ms.into(), 0.0, 60_000.0, "0 to 60000"),
        ("detector.urgent_interval_ms", detector.urgent_interval_ms.into(), 0.0, 60_000.0, "0 to 60000"),
        ("segmenter.max_per_frame", segmenter.max_per_frame as f64, 0.0, 64.0, "0 to 64"),
        ("segmenter.crop_factor", segmenter.crop_factor.into(), 0.1, 10.0, "0.1 to 10"),
        ("segmenter.reject_after", segmenter.reject_after.into(), 0.0, 10_000.0, "0 to 10000"),
        ("tracking.timeout_ms", tracking.timeout_ms.into(), 0.0, 60_000.0, "0 to 60000"),
        ("tracking.confirm_timeout_ms", tracking.confirm_timeout_ms.into(), 0.0, 600_000.0, "0 to 600000"),
        // Threads of one inference: more than any machine has processors for it, and each takes
        // memory.
        ("engine.threads", engine.threads as f64, 0.0, 256.0, "0 to 256"),
    ];
    numbers
        .into_iter()
        .try_for_each(|(name, value, low, high, accepted)| within(name, value, low, high, accepted))?;
    within("engine.device", engine.device.into(), 0.0, 1023.0, "0 to 1023")?;
    // A person who fills less than this of the picture is no blob: a tenth of a 424 pixels wide
    // one.
    let least_blob = f64::from(occupancy.step_px).powi(2) * f64::from(occupancy.min_samples);
    within(
        "occupancy.min_samples times the square of occupancy.step_px",
        least_blob,
        1.0,
        1024.0,
        "1 to 1024",
    )?;
    if let Some(frames) = segmenter.every_frames {
        within("segmenter.every_frames", frames.into(), 1.0, 1000.0, "1 to 1000")?;
    }
    for side in detector.input_size.iter().flatten() {
        within("detector.input_size", *side as f64, 32.0, 4096.0, "32 to 4096 each")?;
    }
    shapes(config)
}

fn is_near(corner: &nalgebra::Point3<f32>, most_m: f32) -> bool {
    corner.iter().all(|value| value.abs() <= most_m)
}

fn shapes(config: &PerceptionConfig) -> Result<(), ConfigError> {
    let Volume { min_m, max_m } = &config.occupancy.volume;
    // Occupancy itself begins above the floor.
    let mut low = *min_m;
    low.z = low.z.max(config.occupancy.floor_m + config.occupancy.min_height_m);
    let large_enough = (0..3).all(|i| max_m[i] - low[i] >= MIN_SIDE_M);
    if !(large_enough && is_near(min_m, FARTHEST_M) && is_near(max_m, FARTHEST_M)) {
        let accepted = "corners within 200 m, min_m at least 0.1 m below max_m on every axis, and max_m as much above \
                        occupancy.floor_m + occupancy.min_height_m";
        return Err(refused("occupancy.volume", (min_m, max_m), accepted));
    }
    for fixture in &config.occupancy.static_boxes {
        let swallows = (0..3).all(|i| fixture.min_m[i] <= min_m[i] && fixture.max_m[i] >= max_m[i]);
        if swallows || !is_near(&fixture.min_m, FARTHEST_M) || !is_near(&fixture.max_m, FARTHEST_M) {
            let accepted = "corners within 200 m, and a box that leaves part of occupancy.volume free";
            return Err(refused("occupancy.static_boxes", fixture, accepted));
        }
    }
    for capsule in &config.occupancy.robot {
        let sized = (0.0..=GREATEST_RADIUS_M).contains(&capsule.radius_m);
        if !(sized && is_near(&capsule.from_m, LONGEST_REACH_M) && is_near(&capsule.to_m, LONGEST_REACH_M)) {
            let accepted = "ends within 3 m and a radius up to 0.5 m, because objects inside are not seen";
            return Err(refused("occupancy.robot", capsule, accepted));
        }
    }
    Ok(())
}
