//! A stream with everything that works on it: kernels, networks, the memory of its cameras.

use takt_gpu::{Arg, DeviceBuffer, Event, Gpu, GpuError, Graph, Grid, Pinned, Stream, Waited};

use super::kernels::{Kernel, Kernels};
use super::layout::{self, CameraBlock, MAX_ITEMS, MAX_PEOPLE, Place, Places, Window};
use super::network::{Budget, DeviceNetwork, ask, misfit};
use super::plan::{CameraPlaces, CameraPlan, connect, detector_window, plan, relocate};
use super::{GpuPerceptionError, KERNELS, settle};
use crate::config::{DetectorConfig, PerceptionConfig, SegmenterConfig};
use crate::detector::{Decoder, Reading, understand};
use crate::device::Copies;
use crate::{proof, segmenter};

/// Threads of a block.
const THREADS: u32 = 128;
/// Lanes of a warp, and how many cells of each `takt_gather` adds up: as in `kernels.cu`.
const LANES: usize = 32;
const CHUNKS: usize = 4;

/// Detector and segmenter of a rig.
#[derive(Debug, Default)]
pub(super) struct Networks {
    /// With how it is read, and height and width of its input.
    pub(super) detector: Option<(Box<dyn DeviceNetwork>, Reading, [usize; 2])>,
    /// With height and width of its input.
    pub(super) segmenter: Option<(Box<dyn DeviceNetwork>, [usize; 2])>,
}

impl Networks {
    /// Takes in a detector, proved on pictures.
    pub(super) fn set_detector(
        &mut self,
        gpu: &Gpu,
        stream: &Stream,
        config: &DetectorConfig,
        mut network: Box<dyn DeviceNetwork>,
    ) -> Result<(), GpuPerceptionError> {
        let (model, facts) = (network.model().to_owned(), network.facts().clone());
        let (input, outputs) = (network.input_shape().to_vec(), network.outputs().to_vec());
        let mut infer = |values: &[f32]| ask(gpu, stream, &mut *network, values);
        let (reading, size) = understand(&facts, &input, &outputs, config, &model, &mut infer)?;
        self.detector = Some((network, reading, size));
        Ok(())
    }

    /// Takes in a segmenter, proved on pictures.
    pub(super) fn set_segmenter(
        &mut self,
        gpu: &Gpu,
        stream: &Stream,
        config: &SegmenterConfig,
        mut network: Box<dyn DeviceNetwork>,
    ) -> Result<(), GpuPerceptionError> {
        let size = segmenter::input_of(network.input_shape(), network.outputs())
            .map_err(|expected| misfit(&*network, expected))?;
        let model = network.model().to_owned();
        let mut infer = |values: &[f32]| ask(gpu, stream, &mut *network, values);
        proof::prove_segmenter::<GpuPerceptionError>(size, config, &model, &mut infer)?;
        self.segmenter = Some((network, size));
        Ok(())
    }

    /// Height and width of the detector's masks.
    pub(super) fn mask_size(&self) -> Option<[usize; 2]> {
        self.detector.as_ref()?.1.decoder.mask_size()
    }
}

/// Cameras of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Row {
    All,
    Camera(usize),
}

/// Moments of the first part of a frame, or of a batch, on the device's clock.
#[derive(Debug)]
pub(super) struct Marks {
    pub(super) start: Event,
    pub(super) uploaded: Event,
    pub(super) prepared: Event,
    pub(super) detected: Event,
    pub(super) looked: Event,
}

/// Moments of what a camera does on its own.
#[derive(Debug)]
pub(super) struct CameraMarks {
    pub(super) masks_start: Event,
    pub(super) masks_done: Event,
    pub(super) measure_start: Event,
    pub(super) measured: Event,
}

impl CameraMarks {
    pub(super) fn new(stream: &Stream) -> Result<Self, GpuError> {
        let mark = || stream.event(true);
        Ok(Self { masks_start: mark()?, masks_done: mark()?, measure_start: mark()?, measured: mark()? })
    }
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
    /// Cells, rows of them: the most that a camera has.
    most: [usize; 2],
    copies: Copies,
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
        };
        let most = [
            blocks.iter().map(|block| block.cells as usize).max().unwrap_or(1),
            blocks.iter().map(|block| block.rows as usize).max().unwrap_or(1),
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
            copies: reached(gpu, config.gpu.copies)?,
            done: stream.event(false)?,
            marks,
            stream,
            gpu: gpu.clone(),
            unsettled: false,
        };
        if let Some((network, reading, size)) = &rig.networks.detector {
            for (index, (camera, place)) in cameras.iter().zip(&rig.places).enumerate() {
                let window = detector_window(&camera.intrinsics, network.input(index), reading, *size);
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
            settle(&self.stream)?;
        }
        Ok(())
    }

    /// Host and device must mean the same by every struct.
    fn check_layout(&self) -> Result<(), GpuPerceptionError> {
        let expected = layout::sizes();
        let bytes = size_of_val(&expected);
        let down = self.gpu.pinned::<u8>(bytes)?;
        self.launch(Kernel::Layout, 1, 0, Row::Camera(0))?;
        self.stream.download_part(&self.arena, self.places[0].report.at, &down, 0, bytes)?;
        settle(&self.stream)?;
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
        // SAFETY: all kernels take the table of cameras and a number; their blocks name memory of
        // the arena and of the networks, with sizes that `check_layout` compared.
        unsafe { self.stream.launch(self.kernels.get(kernel), grid, &[table, Arg::value(index as u32)]) }
    }

    /// Prepares the part that does not need the detector.
    pub(super) fn prepare_look(&self, row: Row) -> Result<(), GpuError> {
        let [cells, rows] = self.most;
        self.launch(Kernel::Begin, MAX_ITEMS * 256, 0, row)?;
        self.launch(Kernel::Sample, cells, 0, row)?;
        self.launch(Kernel::Rows, rows * LANES, 0, row)?;
        self.launch(Kernel::Link, cells, 0, row)?;
        self.launch(Kernel::Gather, cells.div_ceil(CHUNKS), 0, row)?;
        self.launch(Kernel::Blobs, cells, 0, row)?;
        if let Some((.., [height, width])) = &self.networks.detector {
            self.launch(Kernel::Resample, height * width, 0, row)?;
        }
        Ok(())
    }

    /// Candidates of the detector's outputs.
    pub(super) fn decode(&self, row: Row) -> Result<(), GpuError> {
        let candidates = self.places.iter().map(|place| place.candidate_capacity).max().unwrap_or(1);
        match self.networks.detector.as_ref().map(|(_, reading, _)| reading.decoder) {
            Some(Decoder::Nanodet(_)) => self.launch(Kernel::Nanodet, candidates, 0, row),
            Some(Decoder::Table(_)) => self.launch(Kernel::Table, candidates, 0, row),
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
        self.launch(Kernel::Rows, block.rows as usize * LANES, 1, row)?;
        self.launch(Kernel::Link, cells, 1, row)?;
        self.launch(Kernel::Gather, cells.div_ceil(CHUNKS), 1, row)?;
        self.launch(Kernel::Judge, cells, 0, row)?;
        self.launch(Kernel::Own, strips, 1, row)?;
        self.launch(Kernel::Rim, cells, 0, row)?;
        for pass in 0..block.rank as usize {
            self.launch(Kernel::Measure, cells * block.step as usize, pass, row)?;
        }
        for pass in 0..4 {
            self.launch(Kernel::MedianCount, cells, pass, row)?;
            self.launch(Kernel::MedianPick, MAX_ITEMS * 3 * LANES, pass, row)?;
        }
        self.launch(Kernel::Report, MAX_ITEMS, 0, row)?;
        self.fetch(self.places[camera].report.at, down, to.at, to.bytes)
    }

    /// Puts a copy from the host to the arena on the stream.
    pub(super) fn bring(
        &self,
        from: &Pinned<u8>,
        from_at: usize,
        to_at: usize,
        bytes: usize,
    ) -> Result<(), GpuError> {
        if self.copies == Copies::Engines {
            return self.stream.upload_part(from, from_at, &self.arena, to_at, bytes);
        }
        self.within((from_at, from.len()), to_at, bytes)?;
        let (from, to) = (Arg::pinned_at(from, from_at).read_only(), Arg::buffer_at(&self.arena, to_at));
        // SAFETY: both ranges are inside their memory.
        unsafe { self.copy(from, to, bytes) }
    }

    /// Puts a copy from the arena to the host on the stream.
    pub(super) fn fetch(
        &self,
        from_at: usize,
        to: &Pinned<u8>,
        to_at: usize,
        bytes: usize,
    ) -> Result<(), GpuError> {
        if self.copies == Copies::Engines {
            return self.stream.download_part(&self.arena, from_at, to, to_at, bytes);
        }
        self.within((to_at, to.len()), from_at, bytes)?;
        let (from, to) = (Arg::buffer_at(&self.arena, from_at), Arg::pinned_at(to, to_at));
        // SAFETY: both ranges are inside their memory.
        unsafe { self.copy(from, to, bytes) }
    }

    /// Whether so many bytes are there, on the host and in the arena.
    fn within(&self, host: (usize, usize), arena_at: usize, bytes: usize) -> Result<(), GpuError> {
        for (at, len) in [host, (arena_at, self.arena.len())] {
            if at.checked_add(bytes).is_none_or(|end| end > len) {
                let (expected, received) =
                    (format!("at most {len} bytes"), format!("{bytes} from byte {at}"));
                return Err(GpuError::Size { what: "copy by a kernel", expected, received });
            }
        }
        Ok(())
    }

    /// # Safety
    /// There are so many bytes at both.
    unsafe fn copy(&self, from: Arg<'_>, to: Arg<'_>, bytes: usize) -> Result<(), GpuError> {
        let grid = Grid::over(bytes.div_ceil(16), THREADS);
        // SAFETY: as the kernel declares, and as the caller says.
        unsafe {
            self.stream.launch(self.kernels.get(Kernel::Copy), grid, &[from, to, Arg::value(bytes as u64)])
        }
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

/// Refuses copies by kernels where the device does not reach registered memory of the host by the
/// host's address.
fn reached(gpu: &Gpu, asked: Copies) -> Result<Copies, GpuError> {
    if asked == Copies::Engines {
        return Ok(asked);
    }
    let name = "can_use_host_pointer_for_registered_mem";
    let found = gpu.attributes()?.get(name).copied().unwrap_or(0);
    if found != 1 {
        return Err(GpuError::Invalid {
            what: "perception.gpu.copies",
            expected: format!("\"engines\" on this device, whose {name} is {found}"),
            received: "\"kernels\"".to_owned(),
        });
    }
    Ok(asked)
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Graphs and buffers look after themselves; networks do not know what the device still does
        // with them.
        let deadline_ns = takt_rt::clock::monotonic_ns() + 1_000_000_000;
        if !matches!(self.stream.drain(deadline_ns, takt_gpu::Wait::Block), Ok(Waited::Done)) {
            // Hung or lost: the process ends soon, and memory that the device may use must stay.
            std::mem::forget(std::mem::take(&mut self.networks));
        }
    }
}
