//! Whether depth fits what is known to be there: the floor, fixtures, the robot's arm.
//!
//! Something may always stand before known structure, so depth that is too small proves nothing
//! (it hides places, which counts by itself). Nothing is seen through it: where most lines of
//! sight that must end at it go on by one and the same factor, the depth's scale, the camera's
//! focal length, or its place is wrong. A wall that hides a wrongly configured floor in part has
//! no such factor. All kinds of structure in the picture must agree: a fixture may be a fence.

use nalgebra::Point3;

use crate::occupancy::{Scene, Volume};

use super::rays::{enter, through};

/// Greatest factor that floors which are not level and calibrations explain, and one that fixtures
/// which are seen through (glass, a fence) explain.
const ACCEPTED: f32 = 1.28;
const ACCEPTED_OF_FIXTURES: f32 = 1.6;
/// Classes of factors: each is wider than the one before by this, so that one of them begins at
/// what fixtures explain. As many together are one factor.
const CLASS: f32 = 1.118_034;
const CLASSES: usize = 48;
const TOGETHER: usize = 3;
/// Part of the samples that share a factor, and the fewest that say something, as a part of all
/// samples and at least.
const SHARE: f32 = 0.6;
const MIN_PART: usize = 50;
const LEAST: u32 = 48;
/// A fixture is looked at where its far side is at most so much farther than its near one: where
/// the surface is within is not known.
const THIN: f32 = 1.3;
/// Every how many samples are looked at, across and down.
pub(super) const EVERY: usize = 2;

/// Factors by which depths of one frame exceed what is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factors {
    counts: [u32; CLASSES],
    all: u32,
}

impl Factors {
    pub(super) const NONE: Self = Self { counts: [0; CLASSES], all: 0 };

    /// Takes in a sample that must end at known structure `expected_m` away and measured
    /// `depth_m`.
    pub(super) fn add(&mut self, expected_m: f32, depth_m: f32) {
        self.all += 1;
        let factor = depth_m / expected_m;
        if factor > ACCEPTED {
            let class = (factor / ACCEPTED).ln() / CLASS.ln();
            self.counts[(class as usize).min(CLASSES - 1)] += 1;
        }
    }

    /// The factor on which most of them agree, where it is one that cannot be: the lower end of its
    /// class.
    fn common(&self) -> Option<f32> {
        // A factor may lie at the edge of its class.
        let together = self.counts.windows(TOGETHER).map(|few| few.iter().sum::<u32>()).enumerate();
        let (class, most) = together.max_by_key(|&(class, count)| (count, class))?;
        let agree = self.all > 0 && most as f32 >= SHARE * self.all as f32;
        agree.then(|| ACCEPTED * CLASS.powi(class as i32))
    }
}

/// Kinds of known structure.
pub(super) const KINDS: usize = 3;
const FLOOR: usize = 0;
const FIXTURE: usize = 1;
const ARM: usize = 2;

/// Whether all kinds of structure of which a frame with so many samples shows enough contradict
/// its depth.
pub(super) fn contradict(kinds: &[Factors; KINDS], samples: usize) -> bool {
    let least = LEAST.max((samples / MIN_PART) as u32);
    let mut proved = false;
    for (kind, factors) in kinds.iter().enumerate().filter(|(_, factors)| factors.all >= least) {
        let Some(factor) = factors.common() else { return false };
        proved |= kind != FIXTURE || factor >= 0.99 * ACCEPTED_OF_FIXTURES;
    }
    proved
}

/// Depth at which a line of sight meets known structure at the latest, metres, and the kind of it;
/// infinite without. `ray` is one metre of depth along it.
pub(super) fn expected_m(scene: &Scene, floor_m: f32, ray: &nalgebra::Vector3<f32>) -> (f32, usize) {
    let origin: Point3<f32> = scene.origin();
    let (mut nearest, mut kind) = (f32::INFINITY, FLOOR);
    let down_m = origin.z - floor_m;
    if ray.z < -1e-6 && down_m > 0.0 {
        nearest = down_m / -ray.z;
    }
    for fixture in scene.fixtures() {
        if let Some([near, far]) = through(fixture, &origin, ray)
            && near > 0.0
            && far <= THIN * near
            && far < nearest
        {
            (nearest, kind) = (far, FIXTURE);
        }
    }
    let arm = scene.arm_now();
    let [min_m, max_m] = [scene.robot().min_m, scene.robot().max_m];
    if !arm.is_empty() && through(&Volume { min_m, max_m }, &origin, ray).is_some() {
        for capsule in arm {
            // The middle of the capsule is surely robot: its edge is grown.
            let core = crate::occupancy::Capsule { radius_m: 0.4 * capsule.radius_m, ..*capsule };
            if !capsule.contains(&origin)
                && let Some(entry) = enter(&core, &origin, ray)
            {
                let far = entry + 2.0 * capsule.radius_m;
                if far < nearest {
                    (nearest, kind) = (far, ARM);
                }
            }
        }
    }
    (nearest, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(pairs: impl Iterator<Item = (f32, f32)>) -> Factors {
        let mut factors = Factors::NONE;
        pairs.for_each(|(expected_m, depth_m)| factors.add(expected_m, depth_m));
        factors
    }

    fn alone(kind: Factors) -> bool {
        contradict(&[kind, Factors::NONE, Factors::NONE], 2000)
    }

    fn floor() -> impl Iterator<Item = f32> {
        (0..400).map(|row| 1.0 + row as f32 * 0.01)
    }

    #[test]
    fn one_factor_for_all_contradicts_and_a_wall_through_the_floor_does_not() {
        for factor in [1.3f32, 1.5, 1.7, 2.0, 2.54, 4.0, 10.0, 25.4, 1000.0] {
            assert!(alone(factors(floor().map(|m| (m, m * factor)))), "{factor}");
        }
        for factor in [0.1f32, 0.5, 0.9, 1.0, 1.1, 1.2] {
            assert!(!alone(factors(floor().map(|m| (m, m * factor)))), "{factor}");
        }
        // A wall at 8 m where the floor should be seen from 2 m on.
        assert!(!alone(factors(floor().map(|m| (m + 1.0, 8.0)))));
        // A few samples say nothing, and neither do reflections in a third of the floor.
        assert!(!alone(factors(floor().take(30).map(|m| (m, m * 10.0)))));
        let third = floor().enumerate().map(|(at, m)| (m, if at % 3 == 0 { 2.0 * m } else { m }));
        assert!(!alone(factors(third)));
    }

    #[test]
    fn a_fence_that_is_seen_through_is_no_wrong_scale_where_the_floor_fits() {
        let through = factors(floor().map(|_| (4.0, 8.0)));
        let (fits, ten) = (factors(floor().map(|m| (m, m))), factors(floor().map(|m| (m, 10.0 * m))));
        assert!(contradict(&[Factors::NONE, through, Factors::NONE], 2000), "nothing says otherwise");
        assert!(!contradict(&[fits, through, Factors::NONE], 2000));
        assert!(contradict(&[ten, through, ten], 2000));
        assert!(!contradict(&[ten, ten, fits], 2000));
        assert!(!contradict(&[Factors::NONE; KINDS], 2000));
        // Through glass the wall behind it is seen; with a floor or an arm that says the same it is
        // the scale.
        let glass = factors(floor().map(|_| (4.0, 6.0)));
        let scaled = factors(floor().map(|m| (m, 1.5 * m)));
        assert!(!contradict(&[Factors::NONE, glass, Factors::NONE], 2000));
        assert!(contradict(&[scaled, glass, Factors::NONE], 2000));
        assert!(contradict(&[Factors::NONE, glass, scaled], 2000));
        assert!(!contradict(&[fits, glass, scaled], 2000));
    }
}
