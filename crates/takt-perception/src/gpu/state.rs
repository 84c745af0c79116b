//! One camera's side of the host: pinned copies of its memory on the device, and what was read from
//! them.

use nalgebra::Point3;
use takt_gpu::Pinned;

use super::layout::{
    BlobRecord, CandidateRecord, ItemRecord, Look, MAX_ITEMS, MAX_PEOPLE, Masks, People, Place, Places, Pose,
    Queries, Report, Window,
};
use super::network::Budget;
use super::plan::{CameraPlaces, FIRST, corners, detector_window};
use super::rig::{CameraMarks, Rig};
use super::times::Parts;
use super::{DeviceTimes, GpuPerceptionError, Resident};
use crate::detector::Candidate;
use crate::image::Letterbox;
use crate::measure::{Claim, Item, Question};
use crate::occupancy::Blob;
use crate::overlay::Overlay;
use crate::result::ObjectKind;
use crate::segmenter::MaskCrop;
use crate::track::Tracks;

/// Places in the pinned copies of a camera's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostPlaces {
    pub(super) pose: Place,
    pub(super) masks: Place,
    pub(super) windows: Place,
    pub(super) queries: Place,
    pub(super) people: Place,
    pub(super) rgb: Place,
    pub(super) depth: Place,
    pub(super) look: Place,
    pub(super) blobs: Place,
    pub(super) candidates: Place,
    pub(super) report: Place,
}

/// One camera's side of the host.
pub(super) struct CameraState {
    pub(super) index: usize,
    pub(super) up: Pinned<u8>,
    pub(super) down: Pinned<u8>,
    /// The whole list of blobs or candidates, when the first part does not do.
    pub(super) more: Pinned<u8>,
    pub(super) paint: Pinned<u8>,
    pub(super) places: HostPlaces,
    pub(super) grid: [usize; 2],
    pub(super) blobs: Vec<Blob>,
    pub(super) roots: Vec<u32>,
    pub(super) look: Look,
    pub(super) candidates: Vec<Candidate>,
    pub(super) kept: Vec<Candidate>,
    pub(super) letterbox: Letterbox,
    /// Places of this frame's masks; their values are on the device.
    pub(super) masks: Vec<MaskCrop>,
    pub(super) items: Vec<Item>,
    /// Record of each piece, in order of the pieces.
    pub(super) pieces: Vec<usize>,
    pub(super) box_counts: [(u32, u32); MAX_PEOPLE],
    pub(super) detects: bool,
    pub(super) looked: bool,
    /// Of the batch under way.
    pub(super) takes_part: bool,
    pub(super) times: DeviceTimes,
    /// Parts of the last frame that have times.
    pub(super) parts: Parts,
    pub(super) marks: CameraMarks,
}

impl std::fmt::Debug for CameraState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CameraState").field("index", &self.index).finish_non_exhaustive()
    }
}

impl CameraState {
    pub(super) fn new(rig: &Rig, index: usize) -> Result<Self, GpuPerceptionError> {
        let (device, block) = (&rig.places[index], &rig.blocks[index]);
        let (mut up, mut down) = (Places::default(), Places::default());
        let places = HostPlaces {
            pose: up.take::<u8>(device.pose.bytes),
            masks: up.take::<Masks>(1),
            windows: up.take::<Window>(1 + MAX_PEOPLE),
            queries: up.take::<Queries>(1),
            people: up.take::<People>(1),
            rgb: up.take::<u8>(device.rgb.bytes),
            depth: up.take::<u8>(device.depth.bytes),
            look: down.take::<Look>(1),
            blobs: down.take::<BlobRecord>(FIRST),
            candidates: down.take::<CandidateRecord>(FIRST),
            report: down.take::<Report>(1),
        };
        let mut letterbox = Letterbox::default();
        let mut up = rig.gpu.pinned::<u8>(up.bytes())?;
        if let Some((network, decoder, size)) = &rig.networks.detector {
            let intrinsics = takt_link_camera::Intrinsics {
                width: block.width,
                height: block.height,
                fx: 1.0,
                fy: 1.0,
                cx: 0.0,
                cy: 0.0,
            };
            letterbox = Letterbox::new(size[1], size[0]);
            letterbox.prepare(block.width, block.height);
            let window = detector_window(&intrinsics, network.input(index), decoder, *size);
            let windows = &mut up.write()?[places.windows.range()];
            bytemuck::cast_slice_mut::<u8, Window>(windows)[0] = window;
        }
        let more = device.blob_records.bytes.max(device.candidates.bytes);
        let cells = device.cells;
        Ok(Self {
            index,
            up,
            down: rig.gpu.pinned(down.bytes())?,
            more: rig.gpu.pinned(more)?,
            paint: rig.gpu.pinned(device.paint.bytes)?,
            places,
            grid: [block.columns as usize, block.rows as usize],
            blobs: Vec::with_capacity(device.blob_capacity),
            roots: Vec::with_capacity(device.blob_capacity),
            look: bytemuck::Zeroable::zeroed(),
            candidates: Vec::with_capacity(device.candidate_capacity.max(FIRST)),
            kept: Vec::with_capacity(crate::MAX_DETECTIONS),
            letterbox,
            masks: Vec::with_capacity(MAX_PEOPLE),
            items: Vec::with_capacity(MAX_ITEMS.min(cells + MAX_PEOPLE)),
            pieces: Vec::with_capacity(MAX_ITEMS),
            box_counts: [(0, 0); MAX_PEOPLE],
            detects: rig.networks.detector.is_some(),
            looked: false,
            takes_part: false,
            times: DeviceTimes::default(),
            parts: Parts::default(),
            marks: CameraMarks::new(&rig.stream)?,
        })
    }

    /// Place of a frame's report.
    pub(super) fn report_place(&self) -> Place {
        self.places.report
    }

    /// Puts the upload of a frame on the stream.
    pub(super) fn upload(
        &mut self,
        rig: &Rig,
        question: &Question,
        resident: Option<&Resident>,
    ) -> Result<(), GpuPerceptionError> {
        let device = rig.places[self.index];
        let frame = question.frame;
        {
            let mut up = self.up.write()?;
            let pose = &mut up[self.places.pose.range()];
            let scene = question.scene;
            let (head, capsules) = pose.split_at_mut(size_of::<Pose>());
            let axes = scene.axes();
            *bytemuck::from_bytes_mut(head) = Pose {
                axes: std::array::from_fn(|i| axes[i / 3][i % 3]),
                origin: scene.origin().coords.into(),
                tcp: question.tcp.coords.into(),
                robot: corners(scene.robot()),
                active: 1,
                capsules: scene.capsules_now().len() as u32,
                padding: 0,
            };
            let capsules: &mut [f32] = bytemuck::cast_slice_mut(capsules);
            for (out, capsule) in capsules.chunks_exact_mut(7).zip(scene.capsules_now()) {
                let (a, b) = (capsule.from_m, capsule.to_m);
                out.copy_from_slice(&[a.x, a.y, a.z, b.x, b.y, b.z, capsule.radius_m]);
            }
            if resident.is_none() {
                up[self.places.rgb.range()].copy_from_slice(frame.rgb);
                up[self.places.depth.range()].copy_from_slice(bytemuck::cast_slice(frame.depth_mm));
            }
        }
        self.copy_in(rig, self.places.pose, device.pose)?;
        match resident {
            None => {
                self.copy_in(rig, self.places.rgb, device.rgb)?;
                self.copy_in(rig, self.places.depth, device.depth)?;
            }
            Some(Resident { memory, rgb_at, depth_at }) => {
                let (rgb, depth) = (device.rgb, device.depth);
                rig.bring(memory, *rgb_at, rgb.at, rgb.bytes)?;
                rig.bring(memory, *depth_at, depth.at, depth.bytes)?;
            }
        }
        Ok(())
    }

    /// Says that this camera has no frame in a batch.
    pub(super) fn pass(&mut self, rig: &Rig) -> Result<(), GpuPerceptionError> {
        let head = Place { bytes: size_of::<Pose>(), ..self.places.pose };
        *bytemuck::from_bytes_mut(&mut self.up.write()?[head.range()]) = Pose::default();
        self.copy_in(rig, head, Place { bytes: head.bytes, ..rig.places[self.index].pose })
    }

    pub(super) fn copy_in(&self, rig: &Rig, from: Place, to: Place) -> Result<(), GpuPerceptionError> {
        Ok(rig.bring(&self.up, from.at, to.at, from.bytes.min(to.bytes))?)
    }

    pub(super) fn copy_out(&self, rig: &Rig, from: Place, to: Place) -> Result<(), GpuPerceptionError> {
        Ok(rig.fetch(from.at, &self.down, to.at, to.bytes)?)
    }

    /// Puts the copies of what the first part found on the stream.
    pub(super) fn fetch_look(&self, rig: &Rig) -> Result<(), GpuPerceptionError> {
        let (device, host) = (&rig.places[self.index], &self.places);
        for (from, to) in [
            (device.look, host.look),
            (device.blob_records, host.blobs),
            (device.candidates, host.candidates),
        ] {
            if to.at != host.candidates.at || self.detects {
                self.copy_out(rig, from, to)?;
            }
        }
        Ok(())
    }

    /// Reads what the first part found.
    pub(super) fn read_look(&mut self, rig: &mut Rig, budget: &Budget) -> Result<(), GpuPerceptionError> {
        self.look = *bytemuck::from_bytes(&self.down.read()?[self.places.look.range()]);
        let device = rig.places[self.index];
        let block = rig.blocks[self.index];
        let count = self.look.blobs as usize;
        {
            let whole = self.fetch_more(rig, budget, count, device.blob_records)?;
            let (memory, place) = match whole {
                Some(place) => (self.more.read()?, place),
                None => (self.down.read()?, self.places.blobs),
            };
            let records: &[BlobRecord] = bytemuck::cast_slice(&memory[place.range()]);
            self.blobs.clear();
            self.blobs.extend(records[..count.min(records.len())].iter().map(|record| Blob {
                // The root for now; its place after sorting.
                label: record.root,
                samples: record.samples,
                area_m2: record.area_m2,
                nearest2: f32::from_bits(record.nearest2),
                box_px: box_of(record.cells, block.step),
                cells: record.cells.map(|side| side as usize),
                big: true,
                depth2: 0,
            }));
        }
        // On the device blobs come in any order.
        self.blobs.sort_unstable_by_key(|blob| blob.label);
        self.roots.clear();
        for (index, blob) in self.blobs.iter_mut().enumerate() {
            self.roots.push(blob.label);
            blob.label = index as u32 + 1;
        }
        self.candidates.clear();
        if self.detects {
            let count = self.look.candidates as usize;
            let whole = self.fetch_more(rig, budget, count, device.candidates)?;
            let (memory, place) = match whole {
                Some(place) => (self.more.read()?, place),
                None => (self.down.read()?, self.places.candidates),
            };
            let records: &[CandidateRecord] = bytemuck::cast_slice(&memory[place.range()]);
            self.candidates.extend(records[..count.min(records.len())].iter().map(|record| Candidate {
                box_px: record.box_px,
                score: record.score,
                index: record.index as usize,
            }));
        }
        self.looked = true;
        Ok(())
    }

    /// Fetches the whole of a list of `count`, unless the first part is all.
    fn fetch_more(
        &self,
        rig: &mut Rig,
        budget: &Budget,
        count: usize,
        all: Place,
    ) -> Result<Option<Place>, GpuPerceptionError> {
        if count <= FIRST {
            return Ok(None);
        }
        rig.fetch(all.at, &self.more, 0, all.bytes)?;
        rig.wait(budget, "a long list")?;
        Ok(Some(Place { at: 0, bytes: all.bytes }))
    }

    pub(super) fn places<'a>(&self, rig: &'a Rig) -> &'a CameraPlaces {
        &rig.places[self.index]
    }

    /// Forgets a frame that was broken off.
    pub(super) fn forget(&mut self) {
        self.looked = false;
    }

    pub(super) fn read_report(
        &mut self,
        tracks: &Tracks,
        people: &[Claim],
    ) -> Result<(), GpuPerceptionError> {
        let down = self.down.read()?;
        let report: &Report = bytemuck::from_bytes(&down[self.places.report.range()]);
        let found = people.len() + report.pieces as usize;
        if found > MAX_ITEMS {
            return Err(GpuPerceptionError::TooManyPieces { found, limit: MAX_ITEMS });
        }
        // On the device pieces come in any order; on the CPU in that of their first cells.
        self.pieces.clear();
        self.pieces.extend(people.len()..found);
        self.pieces.sort_unstable_by_key(|&item| report.item[item].root);
        self.items.clear();
        for (index, claim) in people.iter().enumerate() {
            let record = &report.item[index];
            let mut item = Item::person(&tracks.all()[claim.track], claim.mask);
            item.object.segmented = record.segmented != 0;
            if let Some(counts) = self.box_counts.get_mut(index) {
                *counts = (record.in_box, record.valid);
            }
            fill(&mut item, record);
            self.items.push(item);
        }
        for &piece in &self.pieces {
            let record = &report.item[piece];
            let mut item = Item::new(ObjectKind::Unexplained);
            item.object.box_px = record.box_px;
            fill(&mut item, record);
            self.items.push(item);
        }
        Ok(())
    }

    /// Items are numbered as on the CPU from here on.
    pub(super) fn paint_into(&self, overlay: &mut Overlay, people: usize) -> Result<(), GpuPerceptionError> {
        let mut number = [0u8; MAX_ITEMS + 1];
        for person in 0..people {
            number[person + 1] = person as u8 + 1;
        }
        for (index, &piece) in self.pieces.iter().enumerate() {
            number[piece + 1] = (people + index + 1).min(255) as u8;
        }
        let paint = self.paint.read()?;
        for (to, &from) in overlay.mask.iter_mut().zip(&*paint) {
            *to = number[usize::from(from)];
        }
        Ok(())
    }
}

fn box_of([left, top, right, bottom]: [u32; 4], step: u32) -> [f32; 4] {
    let step = step as f32;
    [left as f32 * step, top as f32 * step, (right + 1) as f32 * step, (bottom + 1) as f32 * step]
}

fn fill(item: &mut Item, record: &ItemRecord) {
    if record.points == 0 {
        return;
    }
    item.report = true;
    item.object.points = record.points;
    item.object.nearest_m = Point3::from(record.nearest);
    item.object.distance_m = record.distance2.sqrt();
    item.object.position_m = Point3::from(record.position);
}
