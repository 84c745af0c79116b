//! Places near the tool that a camera sees, and those that something hides from it.
//!
//! A line of sight that ends before it has crossed the monitored volume says nothing about what is
//! behind its end. Places are cubes of one lattice in the base frame, the same for every camera of
//! a cell, so that the monitor can put the cameras' views together: a place that one camera sees
//! is seen.

use nalgebra::{Point3, Vector3};
use takt_link_camera::Intrinsics;

use crate::occupancy::Scene;

/// Places along each axis of the window around the tool.
pub const PLACES_SIDE: usize = 16;
/// Rows of places along x.
const ROWS: usize = PLACES_SIDE * PLACES_SIDE;
/// Places across the zone: one less than the window has, so that the lattice may lie anywhere.
const ACROSS: f32 = (PLACES_SIDE - 1) as f32;
/// The samples of a place lie within this part of its side: its edges belong to its neighbours.
const PROBED: f32 = 0.35;
/// A thing whose shadow is this many times as large as itself is taken for one before the volume
/// wherever it is: what is reported of it says little of what it hides.
const NEAR_LENS: f32 = 2.0;
/// Fewest samples that must end before a place, of nine: one may be wrong.
const MIN_PROBES: u32 = 2;
/// Samples of a place along each axis of the picture.
const PROBES: usize = 3;
/// Nobody fits into less, metres: places are not made smaller, however small the zone is.
const MIN_SIDE_M: f32 = 0.05;

/// One camera's view of the places near the tool.
#[derive(Clone, Copy, PartialEq)]
pub struct Places {
    side_m: f32,
    first: [i32; 3],
    looked: u32,
    allowed: u32,
    seen: [u16; ROWS],
    before: [u16; ROWS],
    within: [u16; ROWS],
}

impl Default for Places {
    fn default() -> Self {
        Self {
            side_m: 0.0,
            first: [0; 3],
            looked: 0,
            allowed: 0,
            seen: [0; ROWS],
            before: [0; ROWS],
            within: [0; ROWS],
        }
    }
}

impl std::fmt::Debug for Places {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Places")
            .field("side_m", &self.side_m)
            .field("first", &self.first)
            .field("looked", &self.looked)
            .field("before", &count(&self.before))
            .field("within", &count(&self.within))
            .finish_non_exhaustive()
    }
}

fn count(rows: &[u16; ROWS]) -> u32 {
    rows.iter().map(|row| row.count_ones()).sum()
}

/// Places that a camera does not see and no other camera sees either.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HiddenPlaces {
    /// Least distance of one that counts as occupied from the tool, metres.
    pub distance_m: f32,
    /// Places that count.
    pub places: u32,
    /// Places that the camera looks at.
    pub looked: u32,
}

impl Places {
    /// Number of words of `words`.
    pub const WORDS: usize = 3 + 3 * ROWS / 4;

    /// Places that the camera has in its picture, whatever it sees of them.
    pub fn looked(&self) -> u32 {
        self.looked
    }

    /// Whether places near the tool were looked for and none is in the camera's picture.
    pub fn are_out_of_the_picture(&self) -> bool {
        self.side_m.is_finite() && self.side_m > 0.0 && self.looked == 0
    }

    /// Share of the places in the picture that something hides, 0..1.
    pub fn hidden_share(&self) -> f32 {
        (count(&self.before) + count(&self.within)) as f32 / self.looked.max(1) as f32
    }

    /// Places that are hidden by something before the monitored volume, or so near to the lens
    /// that it hides twice its own size.
    pub fn hidden_before(&self) -> u32 {
        count(&self.before)
    }

    /// Places that are hidden by something else within the monitored volume.
    pub fn hidden_within(&self) -> u32 {
        count(&self.within)
    }

    /// Whether nothing is hidden.
    fn is_clear(&self) -> bool {
        self.before.iter().chain(&self.within).all(|row| *row == 0)
    }

    /// The places that are hidden from this camera and that none of `others` sees, where they
    /// count as occupied: those hidden by something before the monitored volume always, those
    /// hidden by something within it (which is reported itself) from the allowed share on.
    pub fn hidden_from_all<'a>(
        &self,
        tcp_m: &Vector3<f32>,
        others: impl Iterator<Item = &'a Self> + Clone,
    ) -> Option<HiddenPlaces> {
        if self.is_clear() || !(self.side_m.is_finite() && self.side_m > 0.0) {
            return None;
        }
        let mut left = [[0u16; ROWS]; 2];
        let (mut before, mut within) = (0, 0);
        let [left_before, left_within] = &mut left;
        for (row, (of_before, of_within)) in left_before.iter_mut().zip(left_within).enumerate() {
            let (b, w) = (self.before[row], self.within[row]);
            if b | w == 0 {
                continue;
            }
            let seen = others.clone().fold(0, |seen, other| seen | self.seen_by(other, row));
            *of_before = b & !seen;
            *of_within = w & !seen;
            before += of_before.count_ones();
            within += of_within.count_ones();
        }
        let all = within > self.allowed;
        let places = before + if all { within } else { 0 };
        if places == 0 {
            return None;
        }
        let mut least2 = f32::INFINITY;
        for (row, (of_before, of_within)) in left[0].iter().zip(left[1]).enumerate() {
            let mut bits = of_before | if all { of_within } else { 0 };
            while bits != 0 {
                let x = bits.trailing_zeros() as i32;
                bits &= bits - 1;
                let at = [x, (row % PLACES_SIDE) as i32, (row / PLACES_SIDE) as i32];
                let off2 = (0..3).map(|axis| {
                    let low = self.first[axis].saturating_add(at[axis]) as f32 * self.side_m;
                    // Nearest point of the cube.
                    let off = (low - tcp_m[axis]).max(tcp_m[axis] - low - self.side_m).max(0.0);
                    off * off
                });
                least2 = least2.min(off2.sum());
            }
        }
        Some(HiddenPlaces { distance_m: least2.sqrt(), places, looked: self.looked })
    }

    /// Another camera's view of a row of this one's places.
    fn seen_by(&self, other: &Self, row: usize) -> u16 {
        if other.side_m.to_bits() != self.side_m.to_bits() {
            return 0;
        }
        let shift = |axis: usize| i64::from(self.first[axis]) - i64::from(other.first[axis]);
        let at = |index: usize, axis: usize| {
            usize::try_from(index as i64 + shift(axis)).ok().filter(|&at| at < PLACES_SIDE)
        };
        let (Some(y), Some(z)) = (at(row % PLACES_SIDE, 1), at(row / PLACES_SIDE, 2)) else { return 0 };
        let seen = u32::from(other.seen[z * PLACES_SIDE + y]);
        match shift(0) {
            by @ 0..=15 => (seen >> by) as u16,
            by @ -15..=-1 => (seen << -by) as u16,
            _ => 0,
        }
    }

    /// All of it as words, for memory that processes share.
    pub(crate) fn words(&self) -> [u64; Self::WORDS] {
        let mut words = [0; Self::WORDS];
        let low = |value: i32| u64::from(value as u32);
        words[0] = u64::from(self.side_m.to_bits()) | low(self.first[0]) << 32;
        words[1] = low(self.first[1]) | low(self.first[2]) << 32;
        words[2] = u64::from(self.looked) | u64::from(self.allowed) << 32;
        for (plane, rows) in [&self.seen, &self.before, &self.within].into_iter().enumerate() {
            for (word, four) in words[3 + plane * ROWS / 4..].iter_mut().zip(rows.chunks_exact(4)) {
                *word = four.iter().rev().fold(0, |word, row| word << 16 | u64::from(*row));
            }
        }
        words
    }

    /// Places encoded in `words`. Any words are valid: an impossible number of places allows
    /// nothing.
    pub(crate) fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
        let mut places = Self {
            side_m: f32::from_bits(low(words[0])),
            first: [high(words[0]), low(words[1]), high(words[1])].map(|value| value as i32),
            looked: low(words[2]),
            allowed: high(words[2]).min(low(words[2])),
            ..Self::default()
        };
        let planes = [&mut places.seen, &mut places.before, &mut places.within];
        for (plane, rows) in planes.into_iter().enumerate() {
            for (index, row) in rows.iter_mut().enumerate() {
                *row = (words[3 + plane * ROWS / 4 + index / 4] >> (index % 4 * 16)) as u16;
            }
        }
        places
    }
}

/// Meaning of a place's sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// No depth that can be believed.
    Unknown,
    /// Something before the monitored volume.
    Before,
    /// Something in the monitored volume.
    Within,
    /// The robot, a fixture, or the learned background.
    Explained,
}

/// Places along each axis for which it is known since when they are hidden: twice the window, as
/// the tool goes to and fro. Two that are so far apart share an entry.
const HELD_SIDE: usize = 32;

/// Since when something within the volume hides places.
#[derive(Debug)]
struct Held {
    /// Rows along x of places that are hidden, as bits.
    rows: Vec<u32>,
    /// Since when, capture time in nanoseconds.
    since_ns: Vec<u64>,
}

impl Held {
    fn new() -> Self {
        Self { rows: vec![0; HELD_SIDE * HELD_SIDE], since_ns: vec![0; HELD_SIDE * HELD_SIDE * HELD_SIDE] }
    }

    /// Takes in a row of places that begins at `at`: a place that is seen is hidden no longer, one
    /// that nobody looks at is as it was. Returns those that have been hidden for `most_ns`.
    fn note(&mut self, at: [i32; 3], seen: u16, within: u16, now_ns: u64, most_ns: u64) -> u16 {
        // Also of negative numbers: what is left of a division by 32.
        let [x, y, z] = at.map(|value| value as usize % HELD_SIDE);
        let row = z * HELD_SIDE + y;
        let here = |bits: u16| u32::from(bits).rotate_left(x as u32);
        let before = self.rows[row];
        self.rows[row] = before & !here(seen) | here(within);
        let (mut long, mut left) = (0, within);
        while left != 0 {
            let bit = left & left.wrapping_neg();
            left ^= bit;
            let place = here(bit);
            let since_ns = &mut self.since_ns[row * HELD_SIDE + place.trailing_zeros() as usize];
            // A stamp of the future must not keep a place free until then.
            if before & place == 0 || *since_ns > now_ns {
                *since_ns = now_ns;
            }
            if now_ns - *since_ns >= most_ns {
                long |= bit;
            }
        }
        long
    }
}

/// Samples of a frame.
pub(super) trait Samples {
    /// Depth of a sample in metres; `None` where it has none that can be believed.
    fn depth_m(&self, column: usize, row: usize) -> Option<f32>;
    /// End of a line of sight before the sought place.
    fn end(&mut self, column: usize, row: usize) -> End;
}

/// Part of the picture in which depth is expected, in samples: left, top, right, bottom.
type Expected = [usize; 4];

/// Limits of hidden space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Radius around the tool, metres; infinite for the whole volume.
    pub(super) radius_m: f32,
    /// Most of the places in the picture that something in the volume may hide, 0..1.
    pub(super) max_hidden: f32,
    /// For how long it may hide one, seconds.
    pub(super) max_hidden_s: f32,
    /// Least width of what must not hide, metres.
    pub(super) hidden_m: f32,
}

/// Looks for hidden places.
#[derive(Debug)]
pub(super) struct Looker {
    radius_m: f32,
    max_hidden: f32,
    most_ns: u64,
    hidden_m: f32,
    held: Held,
    step: f32,
    fx: f32,
    fy: f32,
    cx: f32,
    cy: f32,
}

impl Looker {
    pub(super) fn new(limits: Limits, step: u32, intrinsics: &Intrinsics) -> Self {
        let Limits { radius_m, max_hidden, max_hidden_s, hidden_m } = limits;
        let Intrinsics { fx, fy, cx, cy, .. } = *intrinsics;
        let [fx, fy, cx, cy] = [fx, fy, cx, cy].map(|value| value as f32);
        let most_ns = (f64::from(max_hidden_s) * 1e9) as u64;
        Self { radius_m, max_hidden, most_ns, hidden_m, held: Held::new(), step: step as f32, fx, fy, cx, cy }
    }

    /// Fills `out` for one frame, which was captured at `now_ns`. The scene is placed for it.
    pub(super) fn look(
        &mut self,
        scene: &Scene,
        tcp: &Point3<f32>,
        now_ns: u64,
        expected: Expected,
        samples: &mut impl Samples,
        out: &mut Places,
    ) {
        *out = Places::default();
        // Nobody fits into less: nothing is looked for.
        if self.radius_m < MIN_SIDE_M {
            return;
        }
        let volume = scene.volume();
        let longest_m = (volume.max_m - volume.min_m).max();
        let side_m = ((2.0 * self.radius_m).min(longest_m) / ACROSS).max(MIN_SIDE_M);
        let low: [f32; 3] = std::array::from_fn(|axis| volume.min_m[axis].max(tcp[axis] - self.radius_m));
        let high: [f32; 3] = std::array::from_fn(|axis| volume.max_m[axis].min(tcp[axis] + self.radius_m));
        out.side_m = side_m;
        // The monitored volume ends before the zone around the tool: no place of it is looked at.
        if (0..3).any(|axis| low[axis].is_nan() || low[axis] >= high[axis]) {
            return;
        }
        out.first = low.map(|low| (low / side_m).floor() as i32);
        let origin = scene.origin();
        // From base to camera: metres along the camera's axes.
        let axes = scene.axes().map(|axis| axis * 1000.0);
        let to_camera = |v: &Vector3<f32>| Vector3::new(axes[0].dot(v), axes[1].dot(v), axes[2].dot(v));
        let step_x = to_camera(&Vector3::new(side_m, 0.0, 0.0));
        let radius2 = self.radius_m * self.radius_m;
        for row in 0..ROWS {
            let index = [0, (row % PLACES_SIDE) as i32, (row / PLACES_SIDE) as i32];
            let start = Point3::from(std::array::from_fn(|axis| {
                ((out.first[axis] + index[axis]) as f32 + 0.5) * side_m
            }));
            let beside = |axis: usize| start[axis] < volume.min_m[axis] || start[axis] > volume.max_m[axis];
            let across2 = (1..3).map(|axis| (start[axis] - tcp[axis]).powi(2)).sum::<f32>();
            if across2 > radius2 || beside(1) || beside(2) {
                continue;
            }
            let first = to_camera(&(start - origin));
            let (mut looked, mut seen, mut before, mut within) = (0, 0, 0, 0);
            for x in 0..PLACES_SIDE {
                let at_x = start.x + x as f32 * side_m;
                let along = at_x - tcp.x;
                if at_x < volume.min_m.x || at_x > volume.max_m.x || across2 + along * along > radius2 {
                    continue;
                }
                let at = first + step_x * x as f32;
                let bit = 1u16 << x;
                match self.look_at(&at, side_m, expected, samples) {
                    None => continue,
                    Some(View::Seen) => seen |= bit,
                    Some(View::Before) => before |= bit,
                    Some(View::Within) => within |= bit,
                    Some(View::Unknown) => {}
                }
                looked += 1;
            }
            let [x, y, z]: [i32; 3] = std::array::from_fn(|axis| out.first[axis].saturating_add(index[axis]));
            let long = self.held.note([x, y, z], seen, within, now_ns, self.most_ns);
            (out.seen[row], out.before[row], out.within[row]) = (seen, before | long, within & !long);
            out.looked += looked;
        }
        out.allowed = (self.max_hidden * out.looked as f32) as u32;
    }

    /// Meaning of one place's samples; `None` if it is not in the picture.
    fn look_at(
        &self,
        at: &Vector3<f32>,
        side_m: f32,
        [left, top, right, bottom]: Expected,
        samples: &mut impl Samples,
    ) -> Option<View> {
        let near_m = at.z - 0.5 * side_m;
        if near_m <= 0.0 {
            return None;
        }
        let scale = 1.0 / (at.z * self.step);
        let column = (at.x * self.fx) * scale + self.cx / self.step;
        let row = (at.y * self.fy) * scale + self.cy / self.step;
        let inside = |at: f32, low: usize, high: usize| at >= low as f32 && at < high as f32;
        if !(inside(column, left, right) && inside(row, top, bottom)) {
            return None;
        }
        let (wide, high) = (PROBED * side_m * self.fx * scale, PROBED * side_m * self.fy * scale);
        let (mut all, mut seen, mut before, mut within, mut explained) = (0, 0, 0, 0, 0);
        // Columns and rows of samples that end before everything, as bits.
        let mut grid = [0u8; PROBES];
        for (line, dy) in [-high, 0.0, high].into_iter().enumerate() {
            for (place, dx) in [-wide, 0.0, wide].into_iter().enumerate() {
                let (column, row) = (column + dx, row + dy);
                if !(inside(column, left, right) && inside(row, top, bottom)) {
                    continue;
                }
                all += 1;
                match Self::probe(column as usize, row as usize, near_m, at.z, samples) {
                    Probe::Seen => seen += 1,
                    Probe::Before => {
                        before += 1;
                        grid[line] |= 1 << place;
                    }
                    Probe::Within => within += 1,
                    Probe::Explained => explained += 1,
                    Probe::Unknown => {}
                }
            }
        }
        // An object that hides somebody hides a column or a row of its samples, and is as wide as
        // an object that must not hide. Otherwise a third of a place is as much as a hand: seen in
        // part, it hides nobody.
        let strip = before >= PROBES as u32 && before < 9 && {
            let [a, b, c] = grid;
            let upright = (0..PROBES).find(|place| a & b & c & 1 << place != 0);
            let lying = (0..PROBES).find(|&line| grid[line] == 0b111);
            let offset = |place: usize, by: f32| (place as f32 - 1.0) * by;
            let width = |focal: f32| (self.hidden_m * focal * scale).ceil().max(1.0) as usize;
            upright.is_some_and(|place| {
                let from = [column + offset(place, wide), row];
                self.is_wide(from, 0, width(self.fx), [left, top, right, bottom], near_m, at.z, samples)
            }) || lying.is_some_and(|line| {
                let from = [column, row + offset(line, high)];
                self.is_wide(from, 1, width(self.fy), [left, top, right, bottom], near_m, at.z, samples)
            })
        };
        Some(if strip {
            View::Before
        } else if seen * 3 >= all {
            View::Seen
        } else if before + within > seen + explained && before + within >= MIN_PROBES {
            if before >= within { View::Before } else { View::Within }
        } else {
            View::Unknown
        })
    }

    /// Meaning of one sample for a place whose nearest side is `near_m` deep and whose middle is
    /// `middle_m`.
    fn probe(column: usize, row: usize, near_m: f32, middle_m: f32, samples: &mut impl Samples) -> Probe {
        match samples.depth_m(column, row) {
            None => Probe::Unknown,
            Some(depth_m) if depth_m >= near_m => Probe::Seen,
            Some(depth_m) => match samples.end(column, row) {
                // Small and near the lens, it hides far more than itself.
                End::Within if depth_m * NEAR_LENS < middle_m => Probe::Before,
                End::Before => Probe::Before,
                End::Within => Probe::Within,
                End::Explained => Probe::Explained,
                End::Unknown => Probe::Unknown,
            },
        }
    }

    /// Whether at least `width` samples along an axis of the picture (0: to the right, 1: down),
    /// the one at `from` among them, end before a place.
    #[allow(clippy::too_many_arguments, reason = "what a sample of a place is looked up by")]
    fn is_wide(
        &self,
        from: [f32; 2],
        axis: usize,
        width: usize,
        [left, top, right, bottom]: Expected,
        near_m: f32,
        middle_m: f32,
        samples: &mut impl Samples,
    ) -> bool {
        let mut found = 1;
        for by in [-1i64, 1] {
            let mut at = from.map(|value| value as i64);
            while found < width {
                at[axis] += by;
                let [column, row] = at.map(|value| usize::try_from(value).ok());
                let (Some(column), Some(row)) = (column, row) else { break };
                let inside = (left..right).contains(&column) && (top..bottom).contains(&row);
                if !inside || Self::probe(column, row, near_m, middle_m, samples) != Probe::Before {
                    break;
                }
                found += 1;
            }
        }
        found >= width
    }
}

/// Meaning of one sample for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    Seen,
    /// Ended before the monitored volume, or nearer to the lens than half the way.
    Before,
    Within,
    Explained,
    Unknown,
}

/// A camera's view of a place in its picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Seen,
    /// Hidden by something before the monitored volume, or nearer to the lens than half the way.
    Before,
    /// Hidden by something else within the volume.
    Within,
    /// Neither: no depth, or behind what is known.
    Unknown,
}

#[cfg(test)]
mod tests;
