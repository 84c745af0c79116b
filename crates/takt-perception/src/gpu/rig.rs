//! A stream with everything that works on it: kernels, networks, the memory of its cameras.

use takt_gpu::{Arg, DeviceBuffer, Event, Gpu, GpuError, Graph, Grid, Pinned, Stream, Waited};
use takt_link_camera::Intrinsics;

use super::kernels::{Kernel, Kernels};
use super::layout::{
    self, BlobRecord, CameraBlock, CandidateRecord, Gather, ItemSum, Look, MAX_ITEMS, MAX_PEOPLE, Masks,
    People, Place, Places, Pose, Queries, Report, Window,
};
use super::network::{Budget, DeviceNetwork, misfit};
use super::{GpuPerceptionError, KERNELS};
use crate::config::PerceptionConfig;
use crate::detector::Decoder;
use crate::image::{Letterbox, Normalisation};
use crate::occupancy::Scene;
use crate::segmenter;

/// So many blobs and candidates come back with every frame; more, which is rare, in a second copy.
pub(super) const FIRST: usize = 256;
/// Threads of a block.
const THREADS: u32 = 128;

/// Where the pieces of one camera's memory lie. The same offsets serve the pinned twins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CameraPlaces {
    /// Copied in with every frame: the pose and its capsules.
    pub(super) pose: Place,
    pub(super) rgb: Place,
    pub(super) depth: Place,
    /// Copied in as one, when masks are wanted.
    pub(super) masks: Place,
    pub(super) windows: Place,
    pub(super) queries: Place,
    pub(super) people: Place,
    /// Copied out.
    pub(super) look: Place,
    pub(super) blob_records: Place,
    pub(super) candidates: Place,
    pub(super) report: Place,
    pub(super) paint: Place,
    pub(super) blob_room: usize,
    pub(super) candidate_room: usize,
    pub(super) cells: usize,
}

/// Detector and segmenter of a rig.
#[derive(Debug, Default)]
pub(super) struct Networks {
    pub(super) detector: Option<(Box<dyn DeviceNetwork>, Decoder, [usize; 2])>,
    /// With height and width of its input.
    pub(super) segmenter: Option<(Box<dyn DeviceNetwork>, [usize; 2])>,
}

impl Networks {
    pub(super) fn new(
        detector: Option<Box<dyn DeviceNetwork>>,
        segmenter: Option<Box<dyn DeviceNetwork>>,
        person_class: usize,
    ) -> Result<Self, GpuPerceptionError> {
        let detector = detector.map(|network| {
            match Decoder::find(network.input_shape(), network.outputs(), person_class) {
                Ok((decoder, size)) => Ok((network, decoder, size)),
                Err(expected) => Err(misfit(&*network, expected)),
            }
        });
        let segmenter =
            segmenter.map(|network| match segmenter::input_of(network.input_shape(), network.outputs()) {
                Ok(size) => Ok((network, size)),
                Err(expected) => Err(misfit(&*network, expected)),
            });
        Ok(Self { detector: detector.transpose()?, segmenter: segmenter.transpose()? })
    }
}

/// Which cameras a launch is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Row {
    All,
    Camera(usize),
}

/// Moments of a frame on the device's clock.
#[derive(Debug)]
pub(super) struct Marks {
    pub(super) start: Event,
    pub(super) uploaded: Event,
    pub(super) prepared: Event,
    pub(super) detected: Event,
    pub(super) looked: Event,
    pub(super) masks_start: Event,
    pub(super) masks_done: Event,
    pub(super) measure_start: Event,
    pub(super) measured: Event,
}

pub(super) struct Rig {
    // Graphs before what they launch.
    pub(super) look_graph: Option<Graph>,
    pub(super) measure_graphs: Vec<Option<Graph>>,
    pub(super) networks: Networks,
    pub(super) arena: DeviceBuffer<u8>,
    kernels: Kernels,
    pub(super) places: Vec<CameraPlaces>,
    pub(super) blocks: Vec<CameraBlock>,
    pub(super) segments_each: usize,
    /// Cells, pixels: the most that a camera has.
    most: [usize; 2],
    done: Event,
    pub(super) marks: Marks,
    pub(super) stream: Stream,
    pub(super) gpu: Gpu,
    /// Whether work may be under way that nobody waited for.
    pub(super) unsettled: bool,
}

impl std::fmt::Debug for Rig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rig").field("networks", &self.networks).field("cameras", &self.places.len()).finish()
    }
}

/// What the memory of one camera is made after.
pub(super) struct CameraPlan<'a> {
    pub(super) intrinsics: Intrinsics,
    pub(super) scene: &'a Scene,
}

impl Rig {
    pub(super) fn new(
        gpu: &Gpu,
        stream: Stream,
        config: &PerceptionConfig,
        cameras: &[CameraPlan],
        networks: Networks,
    ) -> Result<Self, GpuPerceptionError> {
        let kernels = match &config.gpu.engine_cache {
            Some(folder) => Kernels::load(&gpu.module_cached(&KERNELS, Some(folder))?)?,
            None => Kernels::load(&gpu.module(&KERNELS)?)?,
        };
        let mut all = Places::default();
        let table = all.take::<CameraBlock>(cameras.len());
        let (mut places, mut blocks, mut constants) = (Vec::new(), Vec::new(), Vec::new());
        for camera in cameras {
            let (place, block) = plan(&mut all, config, camera, &networks, &mut constants);
            places.push(place);
            blocks.push(block);
        }
        let arena = gpu.buffer::<u8>(all.bytes())?;
        for (index, block) in blocks.iter_mut().enumerate() {
            relocate(block, arena.device_ptr());
            connect(block, &networks, index);
        }
        let mark = || stream.event(true);
        let marks = Marks {
            start: mark()?,
            uploaded: mark()?,
            prepared: mark()?,
            detected: mark()?,
            looked: mark()?,
            masks_start: mark()?,
            masks_done: mark()?,
            measure_start: mark()?,
            measured: mark()?,
        };
        let most = [
            blocks.iter().map(|block| block.cells as usize).max().unwrap_or(1),
            blocks.iter().map(|block| block.width as usize * block.height as usize).max().unwrap_or(1),
        ];
        let rig = Self {
            look_graph: None,
            measure_graphs: (0..cameras.len()).map(|_| None).collect(),
            networks,
            arena,
            kernels,
            places,
            blocks,
            segments_each: config.segmenter.max_per_frame.clamp(1, MAX_PEOPLE),
            most,
            done: stream.event(false)?,
            marks,
            stream,
            gpu: gpu.clone(),
            unsettled: false,
        };
        if let Some((network, decoder, size)) = &rig.networks.detector {
            for (index, (camera, place)) in cameras.iter().zip(&rig.places).enumerate() {
                let window = detector_window(&camera.intrinsics, network.input(index), decoder, *size);
                let at = Place { at: place.windows.at, bytes: size_of::<Window>() };
                constants.push((at, bytemuck::bytes_of(&window).to_vec()));
            }
        }
        constants.push((table, bytemuck::cast_slice(&rig.blocks).to_vec()));
        rig.fill(&constants)?;
        rig.check_layout()?;
        Ok(rig)
    }

    /// Copies what never changes; everything else starts as zero.
    fn fill(&self, constants: &[(Place, Vec<u8>)]) -> Result<(), GpuPerceptionError> {
        self.stream.fill(&self.arena, 0)?;
        for (place, bytes) in constants {
            let mut staging = self.gpu.pinned::<u8>(bytes.len())?;
            staging.write()?.copy_from_slice(bytes);
            self.stream.upload_part(&staging, 0, &self.arena, place.at, bytes.len())?;
            self.settle()?;
        }
        Ok(())
    }

    /// Waits as long as it takes; for the start, where nothing waits for an answer.
    fn settle(&self) -> Result<(), GpuPerceptionError> {
        match self.stream.drain(u64::MAX, takt_gpu::Wait::Block)? {
            Waited::Done => Ok(()),
            Waited::Overrun => Err(GpuPerceptionError::Overrun { stage: "start" }),
        }
    }

    /// Host and device must mean the same by every struct.
    fn check_layout(&self) -> Result<(), GpuPerceptionError> {
        let expected = layout::sizes();
        let bytes = size_of_val(&expected);
        let down = self.gpu.pinned::<u8>(bytes)?;
        self.launch(Kernel::Layout, 1, 0, Row::Camera(0))?;
        self.stream.download_part(&self.arena, self.places[0].report.at, &down, 0, bytes)?;
        self.settle()?;
        let down = down.read()?;
        let found: &[u32] = bytemuck::cast_slice(&down);
        if *found != expected {
            let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
            return Err(GpuPerceptionError::Layout { expected, found });
        }
        Ok(())
    }

    /// Puts a kernel for `items` items on the stream.
    pub(super) fn launch(
        &self,
        kernel: Kernel,
        items: usize,
        index: usize,
        row: Row,
    ) -> Result<(), GpuError> {
        let mut grid = Grid::over(items, THREADS);
        let table = match row {
            Row::All => {
                grid.blocks[1] = self.blocks.len() as u32;
                Arg::buffer(&self.arena)
            }
            Row::Camera(camera) => Arg::buffer_at(&self.arena, camera * size_of::<CameraBlock>()),
        };
        // SAFETY: all kernels take the table of cameras and a number; their blocks name memory of the arena and of the
        // networks, with sizes that `check_layout` compared.
        unsafe { self.stream.launch(self.kernels.get(kernel), grid, &[table, Arg::value(index as u32)]) }
    }

    pub(super) fn most_cells(&self) -> usize {
        self.most[0]
    }

    /// What can be done before the detector has run.
    pub(super) fn prepare_look(&self, row: Row) -> Result<(), GpuError> {
        let cells = self.most_cells();
        self.launch(Kernel::Begin, MAX_ITEMS * 256, 0, row)?;
        self.launch(Kernel::Sample, cells, 0, row)?;
        self.launch(Kernel::Link, cells, 0, row)?;
        self.launch(Kernel::Gather, cells.div_ceil(8), 0, row)?;
        self.launch(Kernel::Blobs, cells, 0, row)?;
        if let Some((.., [height, width])) = &self.networks.detector {
            self.launch(Kernel::Resample, height * width, 0, row)?;
        }
        Ok(())
    }

    /// Candidates of the detector's outputs.
    pub(super) fn decode(&self, row: Row) -> Result<(), GpuError> {
        let candidates = self.places.iter().map(|place| place.candidate_room).max().unwrap_or(1);
        match &self.networks.detector {
            Some((_, Decoder::Nanodet(_), _)) => self.launch(Kernel::Nanodet, candidates, 0, row),
            Some((_, Decoder::Yolo(_), _)) => self.launch(Kernel::Yolo, candidates, 0, row),
            None => Ok(()),
        }
    }

    /// Everything after the people's claims, down to the report.
    pub(super) fn measure(&self, camera: usize, down: &Pinned<u8>, to: Place) -> Result<(), GpuError> {
        let row = Row::Camera(camera);
        let block = &self.blocks[camera];
        let cells = block.cells as usize;
        let strips = cells.div_ceil(8);
        self.launch(Kernel::Rest, cells, 0, row)?;
        self.launch(Kernel::Own, strips, 0, row)?;
        self.launch(Kernel::Link, cells, 1, row)?;
        self.launch(Kernel::Gather, strips, 1, row)?;
        self.launch(Kernel::Judge, cells, 0, row)?;
        self.launch(Kernel::Own, strips, 1, row)?;
        self.launch(Kernel::Rim, cells, 0, row)?;
        for pass in 0..block.rank as usize {
            self.launch(Kernel::Measure, cells * block.step as usize, pass, row)?;
        }
        for pass in 0..4 {
            self.launch(Kernel::MedianCount, cells, pass, row)?;
            self.launch(Kernel::MedianPick, MAX_ITEMS * 3, pass, row)?;
        }
        self.launch(Kernel::Report, MAX_ITEMS, 0, row)?;
        self.stream.download_part(&self.arena, self.places[camera].report.at, down, to.at, to.bytes)
    }

    /// Makes graphs of the fixed parts.
    pub(super) fn capture(&mut self, downs: &[(&Pinned<u8>, Place)]) -> Result<(), GpuPerceptionError> {
        let row = if self.blocks.len() == 1 { Row::Camera(0) } else { Row::All };
        self.look_graph = Some(self.stream.capture(|| self.prepare_look(row))?);
        for (camera, (down, to)) in downs.iter().enumerate() {
            let graph = self.stream.capture(|| self.measure(camera, down, *to))?;
            self.measure_graphs[camera] = Some(graph);
        }
        Ok(())
    }

    /// Waits for all that was put on the stream.
    pub(super) fn wait(&mut self, budget: &Budget, stage: &'static str) -> Result<(), GpuPerceptionError> {
        self.stream.record(&self.done)?;
        self.unsettled = true;
        budget.wait(&self.done, stage)?;
        self.unsettled = false;
        Ok(())
    }

    /// Before a frame: work that an earlier one left must be over.
    pub(super) fn clear_way(&mut self, budget: &Budget) -> Result<(), GpuPerceptionError> {
        self.gpu.check()?;
        if self.unsettled {
            if self.stream.drain(budget.deadline_ns, budget.wait)? == Waited::Overrun {
                return Err(GpuPerceptionError::Overrun { stage: "the frame before" });
            }
            self.unsettled = false;
        }
        Ok(())
    }

    /// An error of a library may be the device's: asks it.
    pub(super) fn explain(&self, error: GpuPerceptionError) -> GpuPerceptionError {
        if let GpuPerceptionError::Engine(_) = &error
            && let Err(lost) = self.stream.is_idle()
        {
            return lost.into();
        }
        error
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Graphs and buffers look after themselves; networks do not know what the device still does with them.
        let deadline_ns = takt_rt::clock::monotonic_ns() + 1_000_000_000;
        if !matches!(self.stream.drain(deadline_ns, takt_gpu::Wait::Block), Ok(Waited::Done)) {
            // Hung or lost: the process ends soon, and memory that the device may use must stay.
            std::mem::forget(std::mem::take(&mut self.networks));
        }
    }
}

/// Lays out the memory of one camera. Addresses in the block are offsets into the arena until it is there.
fn plan(
    all: &mut Places,
    config: &PerceptionConfig,
    camera: &CameraPlan,
    networks: &Networks,
    constants: &mut Vec<(Place, Vec<u8>)>,
) -> (CameraPlaces, CameraBlock) {
    let Intrinsics { width, height, .. } = camera.intrinsics;
    let pixels = camera.intrinsics.pixels();
    let step = config.occupancy.step_px;
    let (columns, rows) = (width.div_ceil(step), height.div_ceil(step));
    let cells = (columns * rows) as usize;
    let rank = config.occupancy.nearest_rank;
    let candidate_room = match &networks.detector {
        Some((network, Decoder::Nanodet(heads), _)) => {
            heads.heads.iter().map(|&(scores, ..)| network.outputs()[scores].1[1]).sum()
        }
        Some((network, Decoder::Yolo(layout), _)) => network.outputs()[layout.boxes].1[2],
        None => 0,
    };
    let planes = match &networks.detector {
        Some((_, decoder, _)) => decoder.mask_size().map_or(0, |[height, width]| height * width),
        None => 0,
    };
    // A blob that counts has at least so many cells.
    let blob_room = cells / (config.occupancy.min_samples.max(1) as usize) + 1;
    let capsules = camera.scene.capsules_now().len();
    let fixtures: Vec<f32> = camera.scene.fixtures().iter().flat_map(corners).collect();
    let place = CameraPlaces {
        pose: all.take::<u8>(size_of::<Pose>() + capsules * 7 * size_of::<f32>()),
        rgb: all.take::<u8>(pixels * 3),
        depth: all.take::<u16>(pixels),
        masks: all.take::<Masks>(1),
        windows: all.take::<Window>(1 + MAX_PEOPLE),
        queries: all.take::<Queries>(1),
        people: all.take::<People>(1),
        look: all.take::<Look>(1),
        blob_records: all.take::<BlobRecord>(blob_room.max(FIRST)),
        candidates: all.take::<CandidateRecord>(candidate_room.max(FIRST)),
        report: all.take::<Report>(1),
        paint: all.take::<u8>(pixels),
        blob_room,
        candidate_room,
        cells,
    };
    let mut room = |bytes: usize| all.take::<u8>(bytes);
    let mut constant = |values: &[f32]| {
        let place = room(size_of_val(values));
        if !values.is_empty() {
            constants.push((place, bytemuck::cast_slice(values).to_vec()));
        }
        place.at as u64
    };
    let (slope_x, slope_y) = camera.scene.slopes();
    let (slope_x, slope_y, fixture_at) = (constant(slope_x), constant(slope_y), constant(&fixtures));
    let mut words = |count: usize| all.take::<u32>(count).at as u64;
    let block = CameraBlock {
        rgb: place.rgb.at as u64,
        depth: place.depth.at as u64,
        slope_x,
        slope_y,
        fixtures: fixture_at,
        pose: place.pose.at as u64,
        windows: place.windows.at as u64,
        masks: place.masks.at as u64,
        people: place.people.at as u64,
        queries: place.queries.at as u64,
        points: [words(cells), words(cells), words(cells)],
        blob_of: words(cells),
        piece_of: words(cells),
        owner: words(cells),
        unmasked: words(cells),
        scan_item: words(cells),
        scan_near: words(cells),
        keys: words(MAX_ITEMS * rank * 2),
        bins: words(MAX_ITEMS * 3 * 256),
        cell_depth: words(cells.div_ceil(2)),
        planes: words(planes * MAX_PEOPLE),
        blobs: all.take::<Gather>(cells).at as u64,
        pieces: all.take::<Gather>(cells).at as u64,
        items: all.take::<ItemSum>(MAX_ITEMS).at as u64,
        look: place.look.at as u64,
        blob_records: place.blob_records.at as u64,
        candidates: place.candidates.at as u64,
        report: place.report.at as u64,
        paint: place.paint.at as u64,
        area_scale: camera.scene.area_scale(step),
        width,
        height,
        step,
        columns,
        rows,
        cells: cells as u32,
        fixture_count: (fixtures.len() / 6) as u32,
        capsule_count: capsules as u32,
        min_depth_mm: config.health.min_depth_mm.into(),
        max_depth_mm: config.health.max_depth_mm.into(),
        volume: corners(camera.scene.volume()),
        link2: config.occupancy.link_m * config.occupancy.link_m,
        min_area_m2: config.occupancy.min_area_m2,
        min_samples: config.occupancy.min_samples,
        rank: rank as u32,
        mask_threshold: config.segmenter.threshold,
        min_agreement: config.segmenter.min_agreement,
        person_class: config.detector.person_class as u32,
        threshold: config.detector.threshold,
        blob_room: blob_room as u32,
        candidate_room: candidate_room as u32,
        ..CameraBlock::default()
    };
    (place, block)
}

/// The whole image as the detector's input.
pub(super) fn detector_window(
    intrinsics: &Intrinsics,
    out: u64,
    decoder: &Decoder,
    [height, width]: [usize; 2],
) -> Window {
    let mut letterbox = Letterbox::new(width, height);
    letterbox.prepare(intrinsics.width, intrinsics.height);
    let (origin, scale) = letterbox.window();
    window([width, height], out, origin, scale, decoder.normalisation())
}

/// A window of the image as an input of that size (width, height).
pub(super) fn window(
    [width, height]: [usize; 2],
    out: u64,
    origin: [f32; 2],
    scale: f32,
    norm: &Normalisation,
) -> Window {
    Window {
        out,
        width: width as u32,
        height: height as u32,
        origin,
        scale: [scale; 2],
        order: norm.order.map(|byte| byte as u32),
        mean: norm.mean,
        factor: norm.scale,
        padding: norm.padding,
    }
}

fn corners(volume: &crate::occupancy::Volume) -> [f32; 6] {
    let (low, high) = (volume.min_m, volume.max_m);
    [low.x, low.y, low.z, high.x, high.y, high.z]
}

/// Makes addresses of offsets.
fn relocate(block: &mut CameraBlock, base: u64) {
    let CameraBlock {
        rgb,
        depth,
        slope_x,
        slope_y,
        fixtures,
        pose,
        windows,
        masks,
        people,
        queries,
        points: [points_x, points_y, points_z],
        blob_of,
        piece_of,
        blobs,
        pieces,
        owner,
        unmasked,
        scan_item,
        scan_near,
        keys,
        bins,
        items,
        look,
        blob_records,
        candidates,
        report,
        paint,
        cell_depth,
        planes,
        ..
    } = block;
    for address in [
        rgb,
        depth,
        slope_x,
        slope_y,
        fixtures,
        pose,
        windows,
        masks,
        people,
        queries,
        points_x,
        points_y,
        points_z,
        blob_of,
        piece_of,
        blobs,
        pieces,
        owner,
        unmasked,
        scan_item,
        scan_near,
        keys,
        bins,
        items,
        look,
        blob_records,
        candidates,
        report,
        paint,
        cell_depth,
        planes,
    ] {
        *address += base;
    }
}

/// Where the detector's outputs of a camera are.
fn connect(block: &mut CameraBlock, networks: &Networks, camera: usize) {
    let Some((network, decoder, [height, width])) = &networks.detector else { return };
    block.classes = decoder.classes() as u32;
    (block.input_width, block.input_height) = (*width as u32, *height as u32);
    match decoder {
        Decoder::Nanodet(heads) => {
            for (head, &(scores, boxes, columns)) in heads.heads.iter().enumerate() {
                block.scores[head] = network.output(camera, scores);
                block.boxes[head] = network.output(camera, boxes);
                block.head_cells[head] = network.outputs()[scores].1[1] as u32;
                block.head_columns[head] = columns as u32;
            }
        }
        Decoder::Yolo(layout) => {
            block.boxes[0] = network.output(camera, layout.boxes);
            block.head_cells[0] = network.outputs()[layout.boxes].1[2] as u32;
            if let Some((prototypes, height, width)) = layout.masks {
                block.boxes[1] = network.output(camera, prototypes);
                (block.proto_width, block.proto_height) = (width as u32, height as u32);
            }
        }
    }
}
