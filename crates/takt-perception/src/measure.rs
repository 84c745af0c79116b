//! From labelled cells to people with a least distance: who owns which depth, and how near it is.

use std::ops::Range;

use nalgebra::Point3;
use takt_link_camera::Intrinsics;

use crate::config::{MAX_NEAREST_RANK, PerceptionConfig};
use crate::image::{intersection, widen};
use crate::occupancy::{Blob, Grid, NONE, Scene};
use crate::overlay::Overlay;
use crate::result::{Object, ObjectKind};
use crate::segmenter::MaskCrop;
use crate::track::Track;
use crate::view::FrameView;

/// Objects with more cells than this are measured on every second pixel: they are so near, or so
/// large, that their pixels lie closer together than the depth is accurate.
const DENSE_CELLS: u32 = 1500;

/// A person's box is at least this high in reality, metres: a head and shoulders. Bounds how near
/// somebody without depth can be.
const MIN_PERSON_M: f32 = 0.4;
/// Length and step of lines of sight for a person without depth, metres.
const MAX_ASSUMED_M: f32 = 10.0;
const ASSUMED_STEP_M: f32 = 0.05;

/// A measured unit: a person, or an unexplained piece.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) object: Object,
    /// The mask that may be used for it, index into the masks.
    pub(crate) mask: Option<usize>,
    /// Whether it is an object of the result.
    pub(crate) report: bool,
    cells: u32,
    /// First and last column and row of its cells.
    extent: [usize; 4],
    /// Least squared distance of its cells.
    coarse2: f32,
    nearest: Nearest,
}

impl Item {
    pub(crate) fn new(kind: ObjectKind) -> Self {
        Self {
            object: Object { kind, ..Object::default() },
            mask: None,
            report: false,
            cells: 0,
            extent: [usize::MAX, usize::MAX, 0, 0],
            coarse2: f32::INFINITY,
            nearest: Nearest::new(),
        }
    }

    pub(crate) fn person(track: &Track, mask: Option<usize>) -> Self {
        let mut item = Self::new(ObjectKind::Person);
        item.object.track = track.id;
        item.object.confidence = track.confidence;
        item.object.box_px = track.box_px;
        item.mask = mask;
        item
    }

    pub(crate) fn has_depth(&self) -> bool {
        self.object.points > 0
    }

    /// For a person without depth: the nearest place in the monitored volume where they could
    /// stand, along nine lines of sight of the box. Nowhere in the volume: not reported.
    pub(crate) fn assume_nearest(&mut self, view: &Question) {
        let [left, top, right, bottom] = self.object.box_px;
        let camera_m = view.intrinsics.fy as f32 * MIN_PERSON_M / (bottom - top).max(1.0);
        let steps = (MAX_ASSUMED_M / ASSUMED_STEP_M) as u32;
        for (x, y) in (0..9).map(|i| ((i % 3) as f32 / 2.0, (i / 3) as f32 / 2.0)) {
            let pixel = |low: f32, high: f32, share: f32, end: u32| {
                (low + (high - low) * share).clamp(0.0, (end - 1) as f32) as u32
            };
            let u = pixel(left, right, x, view.frame.width);
            let v = pixel(top, bottom, y, view.frame.height);
            let ray = view.scene.ray(u, v) * 1000.0;
            for step in 0..steps {
                let depth_m = camera_m + step as f32 * ASSUMED_STEP_M;
                let p = view.scene.origin() + ray * depth_m;
                let distance_m = (p - view.tcp).norm();
                if view.scene.is_foreground(&p) && (!self.report || distance_m < self.object.distance_m) {
                    self.report = true;
                    self.object.distance_m = distance_m;
                    self.object.nearest_m = p;
                    self.object.position_m = p;
                }
            }
        }
    }
}

/// The k nearest points seen so far.
#[derive(Clone, Debug)]
struct Nearest {
    rank: usize,
    count: u32,
    kept: usize,
    points: [(f32, Point3<f32>); MAX_NEAREST_RANK],
}

impl Nearest {
    fn new() -> Self {
        Self { rank: 1, count: 0, kept: 0, points: [(f32::INFINITY, Point3::origin()); MAX_NEAREST_RANK] }
    }

    fn add(&mut self, distance2: f32, point: Point3<f32>) {
        self.count += 1;
        if self.kept == self.rank {
            if distance2 >= self.points[self.rank - 1].0 {
                return;
            }
        } else {
            self.kept += 1;
        }
        let mut at = self.kept - 1;
        while at > 0 && self.points[at - 1].0 > distance2 {
            self.points[at] = self.points[at - 1];
            at -= 1;
        }
        self.points[at] = (distance2, point);
    }

    /// The k-th nearest point. Of fewer than k points the nearest one: too few to report an
    /// outlier.
    fn result(&self) -> Option<(f32, Point3<f32>)> {
        let at = if self.kept == self.rank { self.rank - 1 } else { 0 };
        (self.kept > 0).then(|| self.points[at])
    }
}

/// Buffers of the measurement, reused.
pub(crate) struct Measurement {
    /// Item of each cell, from 1; 0 for none.
    owner: Vec<u32>,
    /// Item whose mask left the cell out, from 1; 0 for none.
    unmasked: Vec<u32>,
    labels: Vec<u32>,
    pieces: Vec<Blob>,
    /// Per piece: whether all its cells were left out by masks, and by which item.
    left_by: Vec<Option<u32>>,
    /// The item that each piece became or joined.
    piece_item: Vec<u32>,
    pub(crate) items: Vec<Item>,
    /// Per axis: coarse points of one item.
    axes: [Vec<f32>; 3],
}

/// A frame's request to the stages.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) config: &'a PerceptionConfig,
    pub(crate) intrinsics: &'a Intrinsics,
    pub(crate) frame: &'a FrameView<'a>,
    pub(crate) tcp: Point3<f32>,
}

/// A person who claims depth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// Index of the track.
    pub(crate) track: usize,
    /// Whether the track's blob is theirs alone.
    pub(crate) alone: bool,
    /// The mask that may be used, index into the masks.
    pub(crate) mask: Option<usize>,
}

/// The cells that may belong to a person: those in the box, and the whole blob where it is the
/// person's alone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reach {
    /// The box with its margin, pixels.
    pub(crate) box_px: [f32; 4],
    pub(crate) columns: Range<usize>,
    pub(crate) rows: Range<usize>,
}

impl Reach {
    pub(crate) fn new(
        box_px: &[f32; 4],
        margin: f32,
        own_blob: Option<&Blob>,
        step: u32,
        [columns, rows]: [usize; 2],
    ) -> Self {
        let reach = widen(box_px, margin);
        let mut extent = reach;
        if let Some(Blob { box_px: blob, .. }) = own_blob {
            extent = [
                extent[0].min(blob[0]),
                extent[1].min(blob[1]),
                extent[2].max(blob[2]),
                extent[3].max(blob[3]),
            ];
        }
        let step = step as f32;
        let range = |low: f32, high: f32, end: usize| {
            let clamp = |value: f32| (value / step).clamp(0.0, end as f32);
            clamp(low).floor() as usize..clamp(high).ceil() as usize
        };
        Self {
            box_px: reach,
            columns: range(extent[0], extent[2], columns),
            rows: range(extent[1], extent[3], rows),
        }
    }
}

/// Input of a measurement.
pub(crate) struct View<'a> {
    pub(crate) question: &'a Question<'a>,
    /// Labels and blobs of all foreground.
    pub(crate) labels: &'a [u32],
    pub(crate) blobs: &'a [Blob],
    pub(crate) masks: &'a [MaskCrop],
}

impl<'a> std::ops::Deref for View<'a> {
    type Target = Question<'a>;

    fn deref(&self) -> &Question<'a> {
        self.question
    }
}

impl Measurement {
    pub(crate) fn new(cells: usize) -> Self {
        Self {
            owner: vec![0; cells],
            unmasked: vec![0; cells],
            labels: vec![NONE; cells],
            pieces: Vec::with_capacity(cells),
            left_by: Vec::with_capacity(cells),
            piece_item: Vec::with_capacity(cells),
            items: Vec::with_capacity(cells.min(256)),
            axes: std::array::from_fn(|_| Vec::with_capacity(cells)),
        }
    }

    /// Gives every foreground cell of a blob that counts to a person or to an unexplained item.
    /// `people` are the first items, in this order.
    ///
    /// No cell that is nearer than its person's mask is lost: it joins the person or is
    /// unexplained.
    pub(crate) fn assign(&mut self, view: &View, grid: &mut Grid, tracks: &[Track], people: &[Claim]) {
        self.owner.fill(0);
        self.unmasked.fill(0);
        for (index, claim) in people.iter().enumerate() {
            self.claim(view, grid, index, &tracks[claim.track], claim.alone);
        }
        self.split_rest(view, grid, people.len());
    }

    /// Calls `each` for the foreground cells of a person: those in the box, and the whole blob
    /// where it is the person's alone.
    fn claim(&mut self, view: &View, grid: &Grid, index: usize, track: &Track, alone: bool) {
        let (width, height) = (view.intrinsics.width, view.intrinsics.height);
        let own_blob = if alone { track.label } else { NONE };
        let own = own_blob.checked_sub(1).map(|index| &view.blobs[index as usize]);
        let margin = view.config.tracking.box_margin;
        let Reach { box_px: reach, columns, rows } =
            Reach::new(&track.box_px, margin, own, grid.step, [grid.columns, grid.rows]);
        let item = index as u32 + 1;
        let mask = self.items[index].mask.map(|mask| &view.masks[mask]);
        let (mut all, mut inside) = (0u32, 0u32);
        for row in rows.clone() {
            for column in columns.clone() {
                let cell = row * grid.columns + column;
                if grid.depth[cell] == 0 || self.owner[cell] != 0 {
                    continue;
                }
                let (u, v) = grid.pixel(cell, width, height);
                let (x, y) = (u as f32, v as f32);
                let in_box = (reach[0]..=reach[2]).contains(&x) && (reach[1]..=reach[3]).contains(&y);
                if !in_box && (own_blob == NONE || view.labels[cell] != own_blob) {
                    continue;
                }
                all += 1;
                if mask.is_none_or(|mask| mask.at(u, v) >= view.config.segmenter.threshold) {
                    inside += 1;
                    self.own(view, grid, cell, item);
                } else if self.unmasked[cell] == 0 {
                    self.unmasked[cell] = item;
                }
            }
        }
        if mask.is_none() {
            return;
        }
        let usable = inside > 0 && inside as f32 >= view.config.segmenter.min_agreement * all as f32;
        self.items[index].object.segmented = usable;
        if !usable {
            // The mask misses most of what stands there: depth decides.
            for cell in rows.flat_map(|row| columns.clone().map(move |column| row * grid.columns + column)) {
                if self.unmasked[cell] == item && self.owner[cell] == 0 {
                    self.unmasked[cell] = 0;
                    self.own(view, grid, cell, item);
                }
            }
        }
    }

    fn own(&mut self, view: &View, grid: &Grid, cell: usize, item: u32) {
        self.owner[cell] = item;
        let item = &mut self.items[item as usize - 1];
        item.cells += 1;
        let (column, row) = (cell % grid.columns, cell / grid.columns);
        let [left, top, right, bottom] = item.extent;
        item.extent = [left.min(column), top.min(row), right.max(column), bottom.max(row)];
        item.coarse2 = item.coarse2.min((grid.points[cell] - view.tcp).norm_squared());
    }

    /// Sorts out what no person owns: pieces that a mask left out and that are no nearer than the
    /// person say nothing new; small nearer ones join the person; everything else is unexplained.
    fn split_rest(&mut self, view: &View, grid: &mut Grid, people: usize) {
        let owner = &self.owner;
        let (labels, blobs) = (view.labels, view.blobs);
        let rest = |cell: usize| owner[cell] == 0 && blobs[labels[cell] as usize - 1].big;
        grid.label(view.scene, &view.config.occupancy, rest, &view.tcp, &mut self.labels, &mut self.pieces);

        self.left_by.clear();
        self.left_by.resize(self.pieces.len(), Some(0));
        for cell in 0..grid.cells() {
            if self.labels[cell] == NONE {
                continue;
            }
            let left_by = &mut self.left_by[self.labels[cell] as usize - 1];
            *left_by = match (*left_by, self.unmasked[cell]) {
                (_, 0) | (None, _) => None,
                (Some(0), item) => Some(item),
                (Some(other), item) if other == item => Some(item),
                // Left out by two masks: the nearer person decides, and is the one asked first.
                (Some(other), item) => Some(other.min(item)),
            };
        }
        self.piece_item.clear();
        for piece in 0..self.pieces.len() {
            let item = self.judge(&self.pieces[piece], self.left_by[piece], people, view);
            let item = item.unwrap_or_else(|| {
                let mut item = Item::new(ObjectKind::Unexplained);
                item.object.box_px = self.pieces[piece].box_px;
                self.items.push(item);
                self.items.len() as u32
            });
            self.piece_item.push(item);
        }
        for cell in 0..grid.cells() {
            if self.labels[cell] != NONE {
                let item = self.piece_item[self.labels[cell] as usize - 1];
                if item != 0 {
                    self.own(view, grid, cell, item);
                }
            }
        }
    }

    /// The item that a piece joins: 0 for none, because it says nothing new; `None` where it stands
    /// for itself.
    fn judge(&self, piece: &Blob, left_by: Option<u32>, people: usize, view: &View) -> Option<u32> {
        if let Some(person) = left_by.filter(|&person| person > 0) {
            if piece.nearest2 >= self.items[person as usize - 1].coarse2 {
                return Some(0);
            }
            if !piece.big {
                return Some(person);
            }
        }
        // A small piece here is part of a blob that is not small, so it counts.
        if piece.big { None } else { self.beside(&piece.box_px, people, view) }
    }

    /// The person next to a small piece, item number.
    fn beside(&self, piece: &[f32; 4], people: usize, view: &View) -> Option<u32> {
        let near = |item: &Item| {
            intersection(&widen(&item.object.box_px, 2.0 * view.config.tracking.box_margin), piece) > 0.0
        };
        self.items[..people].iter().position(near).map(|index| index as u32 + 1)
    }

    /// Looks at every pixel of the owned cells and of their rims.
    pub(crate) fn measure(&mut self, view: &View, grid: &Grid, mut overlay: Option<&mut Overlay>) {
        for item in &mut self.items {
            item.nearest.rank = view.config.occupancy.nearest_rank.clamp(1, MAX_NEAREST_RANK);
        }
        let link2 = view.config.occupancy.link_m * view.config.occupancy.link_m;
        for row in 0..grid.rows {
            for column in 0..grid.columns {
                let cell = row * grid.columns + column;
                if self.owner[cell] != 0 {
                    let item = self.owner[cell] as usize;
                    self.scan(view, grid, (column, row), item, None, overlay.as_deref_mut());
                } else if grid.depth[cell] == 0
                    && let Some(near) = self.owned_neighbour(grid, column, row)
                {
                    // The sampled pixel is no foreground, but the edge of an owned neighbour may
                    // reach in.
                    let item = self.owner[near] as usize;
                    let edge = Some((grid.points[near], link2));
                    self.scan(view, grid, (column, row), item, edge, overlay.as_deref_mut());
                }
            }
        }
        self.finish(grid);
    }

    fn owned_neighbour(&self, grid: &Grid, column: usize, row: usize) -> Option<usize> {
        let rows = row.saturating_sub(1)..=(row + 1).min(grid.rows - 1);
        let columns = column.saturating_sub(1)..=(column + 1).min(grid.columns - 1);
        rows.flat_map(|r| columns.clone().map(move |c| r * grid.columns + c))
            .find(|&cell| self.owner[cell] != 0)
    }

    fn scan(
        &mut self,
        view: &View,
        grid: &Grid,
        (column, row): (usize, usize),
        index: usize,
        edge: Option<(Point3<f32>, f32)>,
        mut overlay: Option<&mut Overlay>,
    ) {
        let item = &mut self.items[index - 1];
        let stride = if item.cells > DENSE_CELLS { 2 } else { 1 };
        let (left, top) = (column as u32 * grid.step, row as u32 * grid.step);
        let (right, bottom) =
            ((left + grid.step).min(view.frame.width), (top + grid.step).min(view.frame.height));
        for v in (top..bottom).step_by(stride) {
            let line = (v * view.frame.width) as usize;
            for u in (left..right).step_by(stride) {
                let depth = view.frame.depth_mm[line + u as usize];
                let Some(p) = view.scene.foreground(u, v, depth) else { continue };
                if edge.is_some_and(|(near, link2)| (p - near).norm_squared() > link2) {
                    continue;
                }
                item.nearest.add((p - view.tcp).norm_squared(), p);
                if let Some(overlay) = overlay.as_deref_mut() {
                    let (end_u, end_v) = (u + stride as u32, v + stride as u32);
                    overlay.paint([u, v, end_u.min(right), end_v.min(bottom)], index as u32);
                }
            }
        }
    }

    /// Turns what was gathered into objects.
    fn finish(&mut self, grid: &Grid) {
        for (index, item) in self.items.iter_mut().enumerate() {
            let Some((distance2, nearest)) = item.nearest.result() else { continue };
            item.report = true;
            item.object.points = item.nearest.count;
            item.object.nearest_m = nearest;
            item.object.distance_m = distance2.sqrt();
            for axis in &mut self.axes {
                axis.clear();
            }
            let [left, top, right, bottom] = item.extent;
            for cell in
                (top..=bottom).flat_map(|row| (left..=right).map(move |column| row * grid.columns + column))
            {
                if self.owner[cell] as usize == index + 1 {
                    for (axis, value) in self.axes.iter_mut().zip(grid.points[cell].iter()) {
                        axis.push(*value);
                    }
                }
            }
            let median = self.axes.each_mut().map(|axis| {
                let middle = axis.len() / 2;
                if axis.is_empty() { 0.0 } else { *axis.select_nth_unstable_by(middle, f32::total_cmp).1 }
            });
            item.object.position_m = Point3::from(median);
        }
    }
}
