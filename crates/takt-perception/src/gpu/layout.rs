//! Layout of the device's memory for the kernels: the mirrors of the structs of `kernels.cu`.
//!
//! The kernel `takt_layout` writes the sizes that its compiler gave them; they are compared before
//! the first frame.

use bytemuck::{Pod, Zeroable};

pub(super) const MAX_PEOPLE: usize = crate::judge::MAX_PEOPLE;
/// Most people and pieces of one frame that are distinguished. A frame with more is an error of
/// that frame: the fallback answers, and no piece is lost.
pub(super) const MAX_ITEMS: usize = 255;
pub(super) const STRIPES: usize = 64;
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Pose {
    pub(super) axes: [f32; 9],
    pub(super) origin: [f32; 3],
    pub(super) tcp: [f32; 3],
    pub(super) robot: [f32; 6],
    pub(super) active: u32,
    pub(super) capsules: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Window {
    pub(super) out: u64,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) origin: [f32; 2],
    pub(super) scale: [f32; 2],
    pub(super) order: [u32; 3],
    pub(super) mean: [f32; 3],
    pub(super) factor: [f32; 3],
    pub(super) padding: f32,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Mask {
    pub(super) values: u64,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) scale: [f32; 2],
    pub(super) offset: [f32; 2],
    pub(super) rect: [u32; 4],
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Masks {
    pub(super) count: u32,
    pub(super) kept_count: u32,
    pub(super) kept: [u32; MAX_PEOPLE],
    pub(super) kept_box: [[f32; 4]; MAX_PEOPLE],
    pub(super) mask: [Mask; MAX_PEOPLE],
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Person {
    pub(super) reach: [f32; 4],
    pub(super) wide: [f32; 4],
    pub(super) box_px: [f32; 4],
    pub(super) range: [u32; 4],
    pub(super) root: u32,
    pub(super) mask: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct People {
    pub(super) count: u32,
    pub(super) masked: u32,
    pub(super) person: [Person; MAX_PEOPLE],
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Queries {
    pub(super) count: u32,
    pub(super) padding: u32,
    pub(super) box_px: [[f32; 4]; MAX_PEOPLE],
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Gather {
    depth2: u64,
    samples: u32,
    nearest2: u32,
    extent: [u32; 4],
    open: u32,
    left_by: u32,
    verdict: u32,
    padding: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Look {
    pub(super) grey: [u64; STRIPES],
    pub(super) grey2: [u64; STRIPES],
    pub(super) valid: [u32; STRIPES],
    pub(super) impossible: [u32; STRIPES],
    pub(super) blobs: u32,
    pub(super) candidates: u32,
    pub(super) covered: [u32; MAX_PEOPLE],
    pub(super) nearest2: [u32; MAX_PEOPLE],
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct BlobRecord {
    pub(super) root: u32,
    pub(super) samples: u32,
    pub(super) area_m2: f32,
    pub(super) nearest2: u32,
    /// First and last column and row: left, top, right, bottom.
    pub(super) cells: [u32; 4],
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct CandidateRecord {
    pub(super) box_px: [f32; 4],
    pub(super) score: f32,
    pub(super) index: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ItemSum {
    cells: u32,
    nearest2: u32,
    points: u32,
    counts: [u32; 4],
    root: u32,
    prefix: [u32; 3],
    rank: [u32; 3],
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ItemRecord {
    pub(super) root: u32,
    pub(super) cells: u32,
    pub(super) points: u32,
    pub(super) segmented: u32,
    pub(super) box_px: [f32; 4],
    pub(super) distance2: f32,
    pub(super) nearest: [f32; 3],
    pub(super) position: [f32; 3],
    pub(super) in_box: u32,
    pub(super) valid: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Report {
    pub(super) pieces: u32,
    pub(super) padding: u32,
    pub(super) item: [ItemRecord; MAX_ITEMS],
}

/// Parameters of one camera. Addresses are the device's.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct CameraBlock {
    pub(super) rgb: u64,
    pub(super) depth: u64,
    pub(super) slope_x: u64,
    pub(super) slope_y: u64,
    pub(super) fixtures: u64,
    pub(super) pose: u64,
    pub(super) windows: u64,
    pub(super) masks: u64,
    pub(super) people: u64,
    pub(super) queries: u64,
    pub(super) points: [u64; 3],
    pub(super) blob_of: u64,
    pub(super) piece_of: u64,
    pub(super) blobs: u64,
    pub(super) pieces: u64,
    pub(super) owner: u64,
    pub(super) unmasked: u64,
    pub(super) scan_item: u64,
    pub(super) scan_near: u64,
    pub(super) keys: u64,
    pub(super) bins: u64,
    pub(super) items: u64,
    pub(super) look: u64,
    pub(super) blob_records: u64,
    pub(super) candidates: u64,
    pub(super) report: u64,
    pub(super) paint: u64,
    pub(super) cell_depth: u64,
    pub(super) scores: [u64; 3],
    pub(super) boxes: [u64; 3],
    pub(super) planes: u64,
    pub(super) sides: [u64; 4],
    pub(super) coefficients: u64,
    pub(super) area_scale: f64,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) step: u32,
    pub(super) columns: u32,
    pub(super) rows: u32,
    pub(super) cells: u32,
    pub(super) fixture_count: u32,
    pub(super) min_depth_mm: u32,
    pub(super) max_depth_mm: u32,
    pub(super) volume: [f32; 6],
    pub(super) link2: f32,
    pub(super) min_area_m2: f32,
    pub(super) min_samples: u32,
    pub(super) rank: u32,
    pub(super) mask_threshold: f32,
    pub(super) min_agreement: f32,
    pub(super) classes: u32,
    pub(super) person_class: u32,
    pub(super) threshold: f32,
    pub(super) head_cells: [u32; 3],
    pub(super) head_columns: [u32; 3],
    pub(super) proto_width: u32,
    pub(super) proto_height: u32,
    pub(super) input_width: u32,
    pub(super) input_height: u32,
    pub(super) blob_capacity: u32,
    pub(super) candidate_capacity: u32,
    pub(super) side_step: u32,
    pub(super) score_step: u32,
    pub(super) objectness_step: u32,
    pub(super) label_step: u32,
    pub(super) coefficient_step: u32,
    pub(super) mask_step: u32,
    pub(super) box_form: u32,
    pub(super) logits: u32,
    pub(super) shares: u32,
    pub(super) first_stride: u32,
    pub(super) levels: u32,
    pub(super) reserved: u32,
}

/// Sizes in the order in which `takt_layout` writes them.
pub(super) fn sizes() -> [u32; 15] {
    [
        size_of::<CameraBlock>(),
        size_of::<Pose>(),
        size_of::<Window>(),
        size_of::<Masks>(),
        size_of::<People>(),
        size_of::<Queries>(),
        size_of::<Gather>(),
        size_of::<Look>(),
        size_of::<BlobRecord>(),
        size_of::<CandidateRecord>(),
        size_of::<ItemSum>(),
        size_of::<ItemRecord>(),
        size_of::<Report>(),
        size_of::<Mask>(),
        size_of::<Person>(),
    ]
    .map(|size| size as u32)
}

/// Hands out places in one piece of memory.
#[derive(Debug, Default)]
pub(super) struct Places {
    end: usize,
}

impl Places {
    /// Room for `count` elements; aligned as devices like it.
    pub(super) fn take<T>(&mut self, count: usize) -> Place {
        let at = self.end.next_multiple_of(256);
        let bytes = count.max(1) * size_of::<T>();
        self.end = at + bytes;
        Place { at, bytes }
    }

    pub(super) fn bytes(&self) -> usize {
        self.end.next_multiple_of(256)
    }
}

/// A range of bytes of a piece of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: usize,
    pub(super) bytes: usize,
}

impl Place {
    pub(super) fn range(self) -> std::ops::Range<usize> {
        self.at..self.at + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap() {
        let mut places = Places::default();
        let (a, b, c) = (places.take::<u8>(3), places.take::<u64>(0), places.take::<f32>(100));
        assert_eq!((a.range(), b.range(), c.range()), (0..3, 256..264, 512..912));
        assert_eq!(places.bytes(), 1024);
    }
}
