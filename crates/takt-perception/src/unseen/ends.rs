//! End of a line of sight with depth.

use crate::background::Background;
use crate::occupancy::{Capsule, Scene, Volume};

use super::SEEN;
use super::places::{End, Samples};

/// Depth noise that known structure is allowed: metres, and a part of the depth.
const NOISE_M: f32 = 0.03;
const NOISE_SHARE: f32 = 0.01;

/// Not looked at yet, in this frame.
pub(super) const NOT_LOOKED: u8 = 0;
const UNKNOWN: u8 = 1;
const BEFORE: u8 = 2;
const WITHIN: u8 = 3;
const EXPLAINED: u8 = 4;

/// The samples of one frame, and what each was found to be.
pub(super) struct Ends<'a> {
    pub(super) scene: &'a Scene,
    pub(super) background: Option<&'a Background>,
    pub(super) columns: usize,
    pub(super) step: u32,
    pub(super) size: [u32; 2],
    /// Depths with a rim of one, millimetres.
    pub(super) samples: &'a [u16],
    pub(super) state: &'a [u8],
    pub(super) found: &'a mut [u8],
}

impl Ends<'_> {
    fn depth_mm(&self, column: usize, row: usize) -> u16 {
        self.samples[(row + 1) * (self.columns + 2) + column + 1]
    }

    fn look(&self, column: usize, row: usize) -> u8 {
        let depth_mm = self.depth_mm(column, row);
        let cell = row * self.columns + column;
        if depth_mm == 0 || self.state[cell] != SEEN {
            return UNKNOWN;
        }
        if self.background.is_some_and(|known| known.ends_at(cell, depth_mm)) {
            return EXPLAINED;
        }
        let half = self.step / 2;
        let pixel = |index: usize, size: u32| (index as u32 * self.step + half).min(size - 1);
        let p = self.scene.point(pixel(column, self.size[0]), pixel(row, self.size[1]), depth_mm);
        let grown_m = NOISE_M + NOISE_SHARE * f32::from(depth_mm) * 1e-3;
        // A camera within a box or capsule is fixed to it and sees out of it: what is before its
        // lens is no part of it.
        let origin = self.scene.origin();
        let is_fixture = |fixture: &Volume| {
            !fixture.contains(&origin)
                && (0..3).all(|i| fixture.min_m[i] - grown_m <= p[i] && p[i] <= fixture.max_m[i] + grown_m)
        };
        let is_robot = |capsule: &Capsule| {
            let grown = Capsule { radius_m: capsule.radius_m + NOISE_M, ..*capsule };
            !capsule.contains(&origin) && grown.contains(&p)
        };
        if self.scene.fixtures().iter().any(is_fixture) || self.scene.capsules_now().iter().any(is_robot) {
            EXPLAINED
        } else if self.scene.volume().contains(&p) {
            WITHIN
        } else {
            BEFORE
        }
    }
}

impl Samples for Ends<'_> {
    fn depth_m(&self, column: usize, row: usize) -> Option<f32> {
        let depth_mm = self.depth_mm(column, row);
        let believed = depth_mm != 0 && self.state[row * self.columns + column] == SEEN;
        believed.then(|| f32::from(depth_mm) * 1e-3)
    }

    fn end(&mut self, column: usize, row: usize) -> End {
        let cell = row * self.columns + column;
        if self.found[cell] == NOT_LOOKED {
            self.found[cell] = self.look(column, row);
        }
        match self.found[cell] {
            BEFORE => End::Before,
            WITHIN => End::Within,
            EXPLAINED => End::Explained,
            _ => End::Unknown,
        }
    }
}
