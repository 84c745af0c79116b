//! What a real depth sensor does not measure, and what may happen before its lens.

use serde::{Deserialize, Serialize};

use takt_rt::random::SplitMix64;

use crate::error::CameraError;
use crate::{Frame, Intrinsics};

use super::config::{expect, within};

/// Flaws of a synthetic camera. The default has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Flaws {
    /// Share of the pixels that lack depth at random places of every frame, 0..1. Stereo depth of a
    /// textured room lacks a few per cent. 0.
    pub holes: f64,
    /// Side of each of these holes, pixels, 1 to 64. 1.
    pub hole_px: u32,
    /// Share of the pixels nearer than `min_depth_m` that have a depth from anywhere in the
    /// camera's range in place of none, 0..1: stereo matching of what is too near finds
    /// accidents. 0.
    pub near_wrong: f64,
    /// What happens before the lens.
    pub events: Vec<LensEvent>,
}

impl Default for Flaws {
    fn default() -> Self {
        Self { holes: 0.0, hole_px: 1, near_wrong: 0.0, events: Vec::new() }
    }
}

/// Something before the lens, for a time of the scene.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LensEvent {
    /// What it is.
    pub what: LensEventKind,
    /// From this time of the scene on, seconds.
    #[serde(default)]
    pub from_s: f64,
    /// Until this time, seconds. Without end.
    #[serde(default = "without_end")]
    pub to_s: f64,
}

fn without_end() -> f64 {
    1e9
}

/// What may be before the lens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LensEventKind {
    /// A hand: an upright rectangle in the camera's frame.
    Hand {
        /// Distance from the lens along the optical axis, metres.
        distance_m: f64,
        /// Its middle, to the right and down, metres.
        at_m: [f64; 2],
        /// Width and height, metres. An open hand is 0.10 by 0.18.
        size_m: [f64; 2],
    },
    /// A board: flat and upright, with depth, as a hand is but for its looks.
    Board {
        /// Distance from the lens along the optical axis, metres.
        distance_m: f64,
        /// Its middle, to the right and down, metres.
        at_m: [f64; 2],
        /// Width and height, metres.
        size_m: [f64; 2],
    },
    /// A cloth that hangs in folds of 4 cm, with depth.
    Cloth {
        /// Distance of its middle from the lens along the optical axis, metres.
        distance_m: f64,
        /// Its middle, to the right and down, metres.
        at_m: [f64; 2],
        /// Width and height, metres.
        size_m: [f64; 2],
    },
    /// Every depth is multiplied: the scale of another model, inches for centimetres.
    Scale {
        /// The factor, 0.001 to 1000.
        factor: f64,
    },
    /// Light that blinds the sensor: white, and no depth, from the left over this share of the
    /// width.
    Glare {
        /// Share of the width, 0..1.
        share: f64,
    },
    /// Something on the lens: black, and no depth.
    Covered,
    /// Light everywhere: white, and the largest depth that 16 bits hold.
    Saturated,
}

impl Flaws {
    pub(super) fn check(&self) -> Result<(), CameraError> {
        within("flaws.holes", self.holes, 0.0, 1.0, "expected 0 to 1")?;
        within("flaws.near_wrong", self.near_wrong, 0.0, 1.0, "expected 0 to 1")?;
        expect(
            "flaws.hole_px",
            (1..=64).contains(&self.hole_px),
            || self.hole_px.to_string(),
            "expected 1 to 64",
        )?;
        for event in &self.events {
            within("flaws.events.from_s", event.from_s, 0.0, 1e9, "expected 0 to 1000000000")?;
            within("flaws.events.to_s", event.to_s, event.from_s, 1e9, "expected from_s to 1000000000")?;
            match event.what {
                LensEventKind::Hand { distance_m, at_m, size_m }
                | LensEventKind::Board { distance_m, at_m, size_m }
                | LensEventKind::Cloth { distance_m, at_m, size_m } => expect(
                    "flaws.events.what.hand, board, cloth",
                    (0.005..=10.0).contains(&distance_m)
                        && at_m.iter().all(|v| v.abs() <= 10.0)
                        && size_m.iter().all(|v| (0.001..=10.0).contains(v)),
                    || format!("distance_m {distance_m}, at_m {at_m:?}, size_m {size_m:?}"),
                    "expected distance_m 0.005 to 10, at_m -10 to 10, size_m 0.001 to 10",
                )?,
                LensEventKind::Glare { share } => {
                    within("flaws.events.what.glare.share", share, 0.0, 1.0, "expected 0 to 1")?;
                }
                LensEventKind::Scale { factor } => {
                    within("flaws.events.what.scale.factor", factor, 0.001, 1000.0, "expected 0.001 to 1000")?
                }
                LensEventKind::Covered | LensEventKind::Saturated => {}
            }
        }
        Ok(())
    }

    /// Whether there are any.
    pub(super) fn is_empty(&self) -> bool {
        self.holes <= 0.0 && self.near_wrong <= 0.0 && self.events.is_empty()
    }

    /// Spoils a frame whose depth was written. `range_mm` is what the sensor measures, `too_near`
    /// says which pixels showed something nearer.
    pub(super) fn spoil(
        &self,
        intrinsics: &Intrinsics,
        range_mm: [f32; 2],
        scene_ns: u64,
        seed: u64,
        too_near: impl Fn(usize) -> bool,
        frame: &mut Frame,
    ) {
        let mut random = SplitMix64::new(seed ^ 0x5851_f42d_4c95_7f2d);
        let wrong_share = (self.near_wrong * 65_536.0) as u64;
        let [near_mm, far_mm] = range_mm;
        let near = |random: &mut SplitMix64, to: &mut u16, mm: f32| {
            *to = if mm >= near_mm {
                mm.min(65_535.0) as u16
            } else if random.bits() & 0xffff < wrong_share {
                let span = (far_mm - near_mm).clamp(1.0, 65_535.0) as u64;
                (near_mm as u64 + random.bits() % span).min(65_535) as u16
            } else {
                0
            };
        };
        if wrong_share > 0 {
            for pixel in (0..frame.depth_mm.len()).filter(|&pixel| too_near(pixel)) {
                near(&mut random, &mut frame.depth_mm[pixel], 0.0);
            }
        }
        let time_s = scene_ns as f64 * 1e-9;
        for event in self.events.iter().filter(|event| (event.from_s..event.to_s).contains(&time_s)) {
            let (width, height) = (frame.width as usize, frame.height as usize);
            if let LensEventKind::Scale { factor } = event.what {
                // The library counts in its own units: what it cannot write is the greatest number.
                for depth in &mut frame.depth_mm {
                    *depth = (f64::from(*depth) * factor).min(65_535.0) as u16;
                }
                continue;
            }
            // Folds: a wave of the depth across the picture.
            let folds_mm = if matches!(event.what, LensEventKind::Cloth { .. }) { 20.0 } else { 0.0 };
            // A hand is there for some frames; of what stays, a picture without noise looks frozen.
            let stays = matches!(event.what, LensEventKind::Cloth { .. } | LensEventKind::Board { .. });
            let mut paint =
                |[left, top, right, bottom]: [usize; 4], grey: u8, mm: Option<f32>, fixed: u16| {
                    for row in top..bottom {
                        for column in left..right {
                            let pixel = row * width + column;
                            let shade = if mm.is_some() { (column * 7 + row * 3) as u8 & 31 } else { 0 };
                            frame.rgb[pixel * 3..pixel * 3 + 3].fill(grey.saturating_add(shade));
                            match mm {
                                Some(mm) => {
                                    let fold_mm = (column as f32 * 0.15 + row as f32 * 0.01).sin() * folds_mm;
                                    let noise_mm = if stays { (random.bits() & 1) as f32 } else { 0.0 };
                                    if stays {
                                        frame.rgb[pixel * 3 + 1] ^= noise_mm as u8;
                                    }
                                    near(&mut random, &mut frame.depth_mm[pixel], mm + fold_mm + noise_mm);
                                }
                                None => frame.depth_mm[pixel] = fixed,
                            }
                        }
                    }
                };
            match event.what {
                LensEventKind::Hand { distance_m, at_m, size_m }
                | LensEventKind::Board { distance_m, at_m, size_m }
                | LensEventKind::Cloth { distance_m, at_m, size_m } => {
                    let side = |axis: usize, sign: f64, f: f64, c: f64, size: usize| {
                        let at = (at_m[axis] + sign * size_m[axis] / 2.0) / distance_m * f + c;
                        at.round().clamp(0.0, size as f64) as usize
                    };
                    let Intrinsics { fx, fy, cx, cy, .. } = *intrinsics;
                    let area = [
                        side(0, -1.0, fx, cx, width),
                        side(1, -1.0, fy, cy, height),
                        side(0, 1.0, fx, cx, width),
                        side(1, 1.0, fy, cy, height),
                    ];
                    paint(area, 120, Some((distance_m * 1e3) as f32), 0);
                }
                LensEventKind::Glare { share } => {
                    paint([0, 0, (share * width as f64) as usize, height], 255, None, 0);
                }
                LensEventKind::Scale { .. } => {}
                LensEventKind::Covered => paint([0, 0, width, height], 4, None, 0),
                LensEventKind::Saturated => paint([0, 0, width, height], 255, None, u16::MAX),
            }
        }
        self.punch(&mut random, frame);
    }

    /// Random holes.
    fn punch(&self, random: &mut SplitMix64, frame: &mut Frame) {
        if self.holes <= 0.0 {
            return;
        }
        if self.hole_px == 1 {
            let share = (self.holes * 65_536.0) as u64;
            for depth in &mut frame.depth_mm {
                if random.bits() & 0xffff < share {
                    *depth = 0;
                }
            }
            return;
        }
        let (width, height) = (frame.width as usize, frame.height as usize);
        let side = self.hole_px as usize;
        let count = (self.holes * frame.depth_mm.len() as f64 / (side * side) as f64).round() as usize;
        for _ in 0..count {
            let (left, top) =
                ((random.bits() % width as u64) as usize, (random.bits() % height as u64) as usize);
            for row in top..(top + side).min(height) {
                frame.depth_mm[row * width + left..row * width + (left + side).min(width)].fill(0);
            }
        }
    }
}
