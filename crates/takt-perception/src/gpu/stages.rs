//! The stages of a frame on the device: the same calls as the CPU's, with small results alone
//! coming back.

use takt_gpu::GpuError;

use super::kernels::Kernel;
use super::layout::{Look, MAX_PEOPLE, Mask, Masks, NONE, People, Person, Queries, Window};
use super::network::Budget;
use super::plan::window;
use super::rig::{Rig, Row};
use super::state::CameraState;
use super::{GpuPerceptionError, Resident};
use crate::detector::{DetectionSet, conclude, place_mask};
use crate::engine::EngineError;
use crate::health::GreySums;
use crate::image::widen;
use crate::judge::{MaskRequest, MaskSource, Stages};
use crate::measure::{Claim, Item, Question, Reach};
use crate::occupancy::{Blob, DepthCounts};
use crate::overlay::Overlay;
use crate::segmenter::{self, MaskCrop};
use crate::track::Tracks;
use crate::view::FrameView;

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

    /// Writes down where masks lie and what makes them: so many crops, and whether the detector's
    /// are wanted.
    fn place_masks(&mut self, wanted: &[MaskRequest]) -> Result<(usize, bool), GpuPerceptionError> {
        let host = self.camera.places;
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
                    (MaskSource::Detection(detection), Some((_, reading, input)), _) => {
                        let size = reading.decoder.mask_size().unwrap_or_default();
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
        Ok((crops, decoded))
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
        let Some((_, reading, input)) = &self.rig.networks.detector else { return Ok(false) };
        let camera = &mut *self.camera;
        reading.decoder.plausible(&camera.candidates, *input).map_err(EngineError::nonsense)?;
        let size = [frame.width, frame.height];
        conclude(&mut camera.candidates, &mut camera.kept, self.nms_iou, &camera.letterbox, size, set);
        Ok(true)
    }

    fn detector_has_masks(&self) -> bool {
        self.rig.networks.mask_size().is_some()
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
        self.camera.copy_out(self.rig, device.look, host.look)?;
        self.rig.wait(&self.budget, "what is nearest in boxes")?;
        let down = self.camera.down.read()?;
        let look: &Look = bytemuck::from_bytes(&down[host.look.range()]);
        for (to, from) in nearest2.iter_mut().zip(look.nearest2) {
            *to = f32::from_bits(from);
        }
        Ok(())
    }

    fn masks(&mut self, _question: &Question, wanted: &mut [MaskRequest]) -> Result<(), GpuPerceptionError> {
        let (host, device) = (self.camera.places, *self.camera.places(self.rig));
        let (crops, decoded) = self.place_masks(wanted)?;
        let (index, segments) = (self.camera.index, self.rig.segments_each);
        self.rig.stream.record(&self.camera.marks.masks_start)?;
        self.camera.copy_in(self.rig, host.masks, device.masks)?;
        if crops > 0 {
            self.camera.copy_in(self.rig, host.windows, device.windows)?;
        }
        if decoded && let Some([height, width]) = self.rig.networks.mask_size() {
            let plane = height * width;
            self.launch(Kernel::TableMasks, plane * self.camera.kept.len().min(MAX_PEOPLE), 0)?;
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
        self.camera.copy_out(self.rig, device.look, host.look)?;
        self.rig.stream.record(&self.camera.marks.masks_done)?;
        self.rig.wait(&self.budget, "masks")?;
        self.camera.times.add_masks(&self.camera.marks)?;
        self.camera.parts.masked = true;
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
        self.rig.stream.record(&self.camera.marks.measure_start)?;
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
            self.rig.fetch(device.paint.at, &self.camera.paint, 0, device.paint.bytes)?;
        }
        self.rig.stream.record(&self.camera.marks.measured)?;
        self.rig.wait(&self.budget, "distances")?;
        self.camera.times.add_measure(&self.camera.marks)?;
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
