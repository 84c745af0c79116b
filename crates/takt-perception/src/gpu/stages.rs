//! The stages of a frame on the device: the same calls as the CPU's, with small results alone coming back.

use nalgebra::Point3;
use takt_gpu::{GpuError, Pinned};

use super::kernels::Kernel;
use super::layout::{
    BlobRecord, CandidateRecord, ItemRecord, Look, MAX_ITEMS, MAX_PEOPLE, Mask, Masks, NONE, People, Person,
    Place, Places, Pose, Queries, Report, Window,
};
use super::network::Budget;
use super::rig::{CameraPlaces, FIRST, Rig, Row, detector_window, window};
use super::times::Parts;
use super::{DeviceTimes, GpuPerceptionError, Resident};
use crate::detector::{Candidate, DetectionSet, conclude, place_mask};
use crate::health::GreySums;
use crate::image::{Letterbox, widen};
use crate::judge::{MaskRequest, MaskSource, Stages};
use crate::measure::{Claim, Item, Question, Reach};
use crate::occupancy::{Blob, DepthCounts};
use crate::overlay::Overlay;
use crate::result::ObjectKind;
use crate::segmenter::{self, MaskCrop};
use crate::track::Tracks;
use crate::view::FrameView;

/// Places in the pinned twins of a camera's memory.
#[derive(Clone, Copy, Debug)]
struct HostPlaces {
    pose: Place,
    masks: Place,
    windows: Place,
    queries: Place,
    people: Place,
    rgb: Place,
    depth: Place,
    look: Place,
    blobs: Place,
    candidates: Place,
    report: Place,
}

/// One camera's side of the host.
pub(super) struct CameraState {
    index: usize,
    up: Pinned<u8>,
    pub(super) down: Pinned<u8>,
    /// The whole list of blobs or candidates, when the first part does not do.
    more: Pinned<u8>,
    paint: Pinned<u8>,
    places: HostPlaces,
    grid: [usize; 2],
    blobs: Vec<Blob>,
    roots: Vec<u32>,
    look: Look,
    candidates: Vec<Candidate>,
    kept: Vec<Candidate>,
    letterbox: Letterbox,
    /// Where the masks of this frame lie; their values are on the device.
    masks: Vec<MaskCrop>,
    items: Vec<Item>,
    /// Record of each piece, in order of the pieces.
    pieces: Vec<usize>,
    box_counts: [(u32, u32); MAX_PEOPLE],
    detects: bool,
    looked: bool,
    /// Of the batch under way.
    pub(super) takes_part: bool,
    pub(super) times: DeviceTimes,
    /// What of the last frame has times.
    pub(super) parts: Parts,
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
            blobs: Vec::with_capacity(device.blob_room),
            roots: Vec::with_capacity(device.blob_room),
            look: bytemuck::Zeroable::zeroed(),
            candidates: Vec::with_capacity(device.candidate_room.max(FIRST)),
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
        })
    }

    /// Where the report of a frame goes.
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
                active: 1,
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
                rig.stream.upload_part(memory, *rgb_at, &rig.arena, rgb.at, rgb.bytes)?;
                rig.stream.upload_part(memory, *depth_at, &rig.arena, depth.at, depth.bytes)?;
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

    fn copy_in(&self, rig: &Rig, from: Place, to: Place) -> Result<(), GpuPerceptionError> {
        Ok(rig.stream.upload_part(&self.up, from.at, &rig.arena, to.at, from.bytes.min(to.bytes))?)
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
                rig.stream.download_part(&rig.arena, from.at, &self.down, to.at, to.bytes)?;
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
        rig.stream.download_part(&rig.arena, all.at, &self.more, 0, all.bytes)?;
        rig.wait(budget, "a long list")?;
        Ok(Some(Place { at: 0, bytes: all.bytes }))
    }

    fn places<'a>(&self, rig: &'a Rig) -> &'a CameraPlaces {
        &rig.places[self.index]
    }
}

fn box_of([left, top, right, bottom]: [u32; 4], step: u32) -> [f32; 4] {
    let step = step as f32;
    [left as f32 * step, top as f32 * step, (right + 1) as f32 * step, (bottom + 1) as f32 * step]
}

/// One frame of one camera on the device.
pub(super) struct Run<'a> {
    pub(super) rig: &'a mut Rig,
    pub(super) camera: &'a mut CameraState,
    pub(super) budget: Budget,
    pub(super) resident: Option<&'a Resident<'a>>,
    pub(super) crop_factor: f32,
    pub(super) nms_iou: f32,
}

impl Run<'_> {
    fn row(&self) -> Row {
        Row::Camera(self.camera.index)
    }

    fn launch(&self, kernel: Kernel, items: usize, index: usize) -> Result<(), GpuError> {
        self.rig.launch(kernel, items, index, self.row())
    }

    /// The first part for this camera alone.
    fn start(&mut self, question: &Question) -> Result<(), GpuPerceptionError> {
        let marks = &self.rig.marks;
        self.rig.stream.record(&marks.start)?;
        self.camera.upload(self.rig, question, self.resident)?;
        self.rig.stream.record(&marks.uploaded)?;
        match &self.rig.look_graph {
            Some(graph) => self.rig.stream.launch_graph(graph)?,
            None => self.rig.prepare_look(self.row())?,
        }
        self.rig.stream.record(&marks.prepared)?;
        if let Some((network, ..)) = &mut self.rig.networks.detector {
            network.run(self.camera.index, &self.rig.stream, &self.budget)?;
        }
        self.rig.stream.record(&marks.detected)?;
        self.rig.decode(self.row())?;
        self.camera.fetch_look(self.rig)?;
        self.rig.stream.record(&marks.looked)?;
        self.rig.wait(&self.budget, "geometry and detector")?;
        self.camera.times.add_look(&self.rig.marks)?;
        self.camera.parts.looked = true;
        self.camera.read_look(self.rig, &self.budget)
    }
}

impl Stages for Run<'_> {
    type Error = GpuPerceptionError;

    fn look(&mut self, question: &Question) -> Result<DepthCounts, GpuPerceptionError> {
        if !self.camera.looked {
            self.start(question)?;
        }
        self.camera.looked = false;
        let sum = |values: &[u32]| values.iter().sum();
        let look = &self.camera.look;
        let samples = self.camera.places(self.rig).cells as u32;
        Ok(DepthCounts { samples, valid: sum(&look.valid), impossible: sum(&look.impossible) })
    }

    fn grey(&mut self, _frame: &FrameView) -> GreySums {
        let look = &self.camera.look;
        GreySums { sum: look.grey.iter().sum(), squares: look.grey2.iter().sum() }
    }

    fn label(&mut self, _question: &Question) {}

    fn blobs(&self) -> &[Blob] {
        &self.camera.blobs
    }

    fn detect(&mut self, frame: &FrameView, set: &mut DetectionSet) -> Result<bool, GpuPerceptionError> {
        if self.rig.networks.detector.is_none() {
            return Ok(false);
        }
        let camera = &mut *self.camera;
        let size = [frame.width, frame.height];
        conclude(&mut camera.candidates, &mut camera.kept, self.nms_iou, &camera.letterbox, size, set);
        Ok(true)
    }

    fn detector_has_masks(&self) -> bool {
        self.rig.networks.detector.as_ref().is_some_and(|(_, decoder, _)| decoder.mask_size().is_some())
    }

    fn has_segmenter(&self) -> bool {
        self.rig.networks.segmenter.is_some()
    }

    fn nearest_in(
        &mut self,
        _question: &Question,
        boxes: &[[f32; 4]],
        nearest2: &mut [f32],
    ) -> Result<(), GpuPerceptionError> {
        let (host, device) = (self.camera.places, *self.camera.places(self.rig));
        {
            let mut up = self.camera.up.write()?;
            let queries: &mut Queries = bytemuck::from_bytes_mut(&mut up[host.queries.range()]);
            queries.count = boxes.len().min(MAX_PEOPLE) as u32;
            for (to, from) in queries.box_px.iter_mut().zip(boxes) {
                *to = *from;
            }
        }
        self.camera.copy_in(self.rig, host.queries, device.queries)?;
        self.launch(Kernel::Nearest, device.cells, 0)?;
        self.rig.stream.download_part(
            &self.rig.arena,
            device.look.at,
            &self.camera.down,
            host.look.at,
            host.look.bytes,
        )?;
        self.rig.wait(&self.budget, "what is nearest in boxes")?;
        let down = self.camera.down.read()?;
        let look: &Look = bytemuck::from_bytes(&down[host.look.range()]);
        for (to, from) in nearest2.iter_mut().zip(look.nearest2) {
            *to = f32::from_bits(from);
        }
        Ok(())
    }

    fn masks(&mut self, question: &Question, wanted: &mut [MaskRequest]) -> Result<(), GpuPerceptionError> {
        let (host, device) = (self.camera.places, *self.camera.places(self.rig));
        let (index, crop_factor) = (self.camera.index, self.crop_factor);
        let segments = self.rig.segments_each;
        let mut crops = 0;
        let mut decoded = false;
        {
            let CameraState { up, masks, kept, letterbox, .. } = &mut *self.camera;
            let mut up = up.write()?;
            let (block, windows) =
                up[host.masks.at..host.windows.range().end].split_at_mut(host.windows.at - host.masks.at);
            let block: &mut Masks = bytemuck::from_bytes_mut(&mut block[..size_of::<Masks>()]);
            let windows: &mut [Window] = bytemuck::cast_slice_mut(windows);
            block.count = wanted.len().min(MAX_PEOPLE) as u32;
            block.kept_count = 0;
            masks.clear();
            for (slot, request) in wanted.iter().take(MAX_PEOPLE).enumerate() {
                let mut mask = MaskCrop::default();
                let networks = &self.rig.networks;
                let values = match (request.source, &networks.detector, &networks.segmenter) {
                    (MaskSource::Detection(detection), Some((_, decoder, input)), _) => {
                        let size = decoder.mask_size().unwrap_or_default();
                        place_mask(letterbox, size, *input, &mut mask);
                        decoded = true;
                        let plane = (size[0] * size[1] * size_of::<f32>()) as u64;
                        self.rig.blocks[index].planes + detection as u64 * plane
                    }
                    (MaskSource::Crop, _, Some((network, [height, width]))) if crops < segments => {
                        let (origin, scale) =
                            segmenter::crop_of(&request.box_px, [*width, *height], crop_factor);
                        mask.place([*width, *height], origin, scale);
                        let place = index * segments + crops;
                        let out = network.input(place);
                        let norm = &segmenter::NORMALISATION;
                        windows[1 + crops] = window([*width, *height], out, origin, scale, norm);
                        crops += 1;
                        network.output(place, 0)
                    }
                    _ => 0,
                };
                let [columns, rows] = mask.lattice(&request.box_px);
                block.mask[slot] = Mask {
                    values,
                    width: mask.width as u32,
                    height: mask.height as u32,
                    scale: mask.scale,
                    offset: mask.offset,
                    rect: [
                        columns.start,
                        columns.end.max(columns.start),
                        rows.start,
                        rows.end.max(rows.start),
                    ]
                    .map(|side| side as u32),
                };
                masks.push(mask);
            }
            if decoded {
                block.kept_count = kept.len().min(MAX_PEOPLE) as u32;
                for (slot, candidate) in kept.iter().take(MAX_PEOPLE).enumerate() {
                    block.kept[slot] = candidate.index as u32;
                    block.kept_box[slot] = candidate.box_px;
                }
            }
        }
        self.rig.stream.record(&self.rig.marks.masks_start)?;
        self.camera.copy_in(self.rig, host.masks, device.masks)?;
        if crops > 0 {
            self.camera.copy_in(self.rig, host.windows, device.windows)?;
        }
        if decoded && let Some((_, decoder, _)) = &self.rig.networks.detector {
            let plane = decoder.mask_size().map_or(0, |[height, width]| height * width);
            self.launch(Kernel::YoloMasks, plane * self.camera.kept.len().min(MAX_PEOPLE), 0)?;
        }
        for crop in 0..crops {
            let row = self.row();
            let Some((_, [height, width])) = &self.rig.networks.segmenter else { break };
            let (pixels, slot) = (*height * *width, index * segments + crop);
            self.rig.launch(Kernel::Resample, pixels, 1 + crop, row)?;
            let Some((network, _)) = &mut self.rig.networks.segmenter else { break };
            network.run(slot, &self.rig.stream, &self.budget)?;
        }
        for slot in 0..wanted.len().min(MAX_PEOPLE) {
            let mask = &self.camera.masks[slot];
            self.launch(Kernel::Coverage, (mask.width.div_ceil(8) * mask.height).max(1), slot)?;
        }
        self.rig.stream.download_part(
            &self.rig.arena,
            device.look.at,
            &self.camera.down,
            host.look.at,
            host.look.bytes,
        )?;
        self.rig.stream.record(&self.rig.marks.masks_done)?;
        self.rig.wait(&self.budget, "masks")?;
        self.camera.times.add_masks(&self.rig.marks)?;
        self.camera.parts.masked = true;
        let _ = question;
        let down = self.camera.down.read()?;
        let look: &Look = bytemuck::from_bytes(&down[host.look.range()]);
        for (slot, request) in wanted.iter_mut().take(MAX_PEOPLE).enumerate() {
            let mask = &self.camera.masks[slot];
            let [columns, rows] = mask.lattice(&request.box_px);
            let all = columns.len() * rows.len();
            let made = mask.width > 0;
            request.coverage =
                made.then(|| if all == 0 { 0.0 } else { look.covered[slot] as f32 / all as f32 });
        }
        Ok(())
    }

    fn measure(
        &mut self,
        question: &Question,
        tracks: &Tracks,
        people: &[Claim],
        overlay: Option<&mut Overlay>,
    ) -> Result<(), GpuPerceptionError> {
        let (host, device) = (self.camera.places, *self.camera.places(self.rig));
        let margin = question.config.tracking.box_margin;
        let step = self.rig.blocks[self.camera.index].step;
        let masked = people.iter().filter(|claim| claim.mask.is_some()).count();
        {
            let CameraState { up, blobs, roots, grid, .. } = &mut *self.camera;
            let mut up = up.write()?;
            let block: &mut People = bytemuck::from_bytes_mut(&mut up[host.people.range()]);
            block.count = people.len().min(MAX_PEOPLE) as u32;
            block.masked = masked as u32;
            for (person, claim) in block.person.iter_mut().zip(people) {
                let track = &tracks.all()[claim.track];
                let own = if claim.alone { track.label.checked_sub(1) } else { None };
                let own = own.map(|index| index as usize);
                let reach = Reach::new(&track.box_px, margin, own.map(|index| &blobs[index]), step, *grid);
                let (columns, rows) = (&reach.columns, &reach.rows);
                *person = Person {
                    reach: reach.box_px,
                    wide: widen(&track.box_px, 2.0 * margin),
                    box_px: track.box_px,
                    range: [columns.start, columns.end, rows.start, rows.end].map(|side| side as u32),
                    root: own.map_or(NONE, |index| roots[index]),
                    mask: claim.mask.map_or(NONE, |mask| mask as u32),
                };
            }
        }
        self.rig.stream.record(&self.rig.marks.measure_start)?;
        self.camera.copy_in(self.rig, host.people, device.people)?;
        for person in 0..masked {
            self.launch(Kernel::Claim, device.cells.div_ceil(8), person)?;
            self.launch(Kernel::Settle, device.cells, person)?;
        }
        match &self.rig.measure_graphs[self.camera.index] {
            Some(graph) => self.rig.stream.launch_graph(graph)?,
            None => self.rig.measure(self.camera.index, &self.camera.down, host.report)?,
        }
        if overlay.is_some() {
            self.launch(Kernel::Paint, device.paint.bytes, 0)?;
            let (arena, paint) = (&self.rig.arena, &self.camera.paint);
            self.rig.stream.download_part(arena, device.paint.at, paint, 0, device.paint.bytes)?;
        }
        self.rig.stream.record(&self.rig.marks.measured)?;
        self.rig.wait(&self.budget, "distances")?;
        self.camera.times.add_measure(&self.rig.marks)?;
        self.camera.parts.measured = true;
        self.camera.read_report(tracks, people)?;
        if let Some(overlay) = overlay {
            self.camera.paint_into(overlay, people.len())?;
        }
        Ok(())
    }

    fn items(&mut self) -> &mut [Item] {
        &mut self.camera.items
    }

    fn valid_share(&self, _question: &Question, person: usize, _box_px: &[f32; 4]) -> f32 {
        let (in_box, valid) = self.camera.box_counts.get(person).copied().unwrap_or_default();
        valid as f32 / in_box.max(1) as f32
    }
}

impl CameraState {
    /// Forgets a frame that was broken off.
    pub(super) fn forget(&mut self) {
        self.looked = false;
    }

    fn read_report(&mut self, tracks: &Tracks, people: &[Claim]) -> Result<(), GpuPerceptionError> {
        let down = self.down.read()?;
        let report: &Report = bytemuck::from_bytes(&down[self.places.report.range()]);
        let found = people.len() + report.pieces as usize;
        if found > MAX_ITEMS {
            return Err(GpuPerceptionError::TooManyPieces { found, room: MAX_ITEMS });
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
    fn paint_into(&self, overlay: &mut Overlay, people: usize) -> Result<(), GpuPerceptionError> {
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
