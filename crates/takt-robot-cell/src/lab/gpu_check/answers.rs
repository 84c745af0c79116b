//! Whether the device says what the CPU says.

use takt_gpu::Gpu;
use takt_gpu::check::step::{Step, StepError};
use takt_link_camera::Frame;
use takt_perception::gpu::GpuPerception;
use takt_perception::{
    Backend, Copies, DetectionSet, Detections, Engine, FramePose, Overlay, Perception, PerceptionConfig,
    Provider,
};
use takt_rt::clock::monotonic_ns;

use super::scenes::Scene;
use super::{View, configuration, failed, of_perception, open, patient, views};
use crate::lab::CellFile;
use crate::lab::gpu_bench::{MAX_DISTANCE_M, MIN_OVERLAP, Same};

const MIN_SCENES: u64 = 3;

/// Least frames of each recorded view.
const MIN_FRAMES: u64 = 2;

/// Recorded frames between two that are compared: people move.
const STRIDE: u64 = 7;

/// Both, for one camera.
struct Pair {
    cpu: Perception,
    device: GpuPerception,
    /// Last result and picture of each.
    seen: [(Detections, Overlay); 2],
}

/// A frame's differences.
#[derive(Default)]
struct Exact {
    frames: u64,
    objects: u64,
    differing: u64,
    first: Option<String>,
}

impl Pair {
    fn new(
        gpu: &Gpu,
        config: &PerceptionConfig,
        camera: u32,
        view: takt_link_camera::Intrinsics,
    ) -> Result<Self, StepError> {
        let mut on_cpu = config.clone();
        on_cpu.engine.provider = Provider::Cpu;
        let engine = Engine::open(&on_cpu.engine).map_err(failed)?;
        let cpu = Perception::new(&on_cpu, camera, view, &engine, None).map_err(failed)?;
        let device = GpuPerception::new(gpu, config, camera, view, None, &|_| ()).map_err(of_perception)?;
        Ok(Self { cpu, device, seen: Default::default() })
    }

    fn judge(
        &mut self,
        frame: &Frame,
        pose: &FramePose,
        set: Option<&DetectionSet>,
    ) -> Result<(), StepError> {
        let Self { cpu, device, seen: [(a, drawn_a), (b, drawn_b)] } = self;
        cpu.process_with_detections(frame, Some(pose), 5, set, a, Some(drawn_a));
        let asked = patient(frame, pose);
        let judged = match set {
            Some(_) => device.process_with_detections(&asked, set, b, Some(drawn_b)),
            None => device.process(&asked, b, Some(drawn_b)),
        };
        judged.map_err(of_perception)
    }

    fn compare(&self, exact: &mut Exact, what: &str) {
        let [(a, drawn_a), (b, drawn_b)] = &self.seen;
        exact.frames += 1;
        exact.objects += a.objects().len() as u64;
        let pixels = drawn_a.mask.iter().zip(&drawn_b.mask).filter(|(a, b)| a != b).count();
        let same = (a.health, a.valid_depth.to_bits(), a.left_out)
            == (b.health, b.valid_depth.to_bits(), b.left_out);
        if same && a.objects() == b.objects() && pixels == 0 {
            return;
        }
        exact.differing += 1;
        exact.first.get_or_insert_with(|| {
            let reported = |d: &Detections| {
                format!("{:?}, {} objects, {:?}", d.health, d.objects().len(), d.objects().first())
            };
            format!("{what}: CPU {}; GPU {}; {pixels} pixels drawn differently", reported(a), reported(b))
        });
    }
}

impl Exact {
    fn judge(self, step: &mut Step<'_>, what: &str) {
        let Self { frames, objects, differing, first } = self;
        let mut reported = format!("{frames} frames with {objects} objects, {differing} differ");
        if let Some(first) = first {
            reported += &format!("; {first}");
        }
        step.judge(what, reported, differing == 0 && objects > 0);
    }
}

/// Geometry to the bit on random scenes and on the shipped recording; then all kernels, with the
/// networks between them on the CPU.
///
/// # Errors
/// The first error of opening or of any piece of work.
pub fn answers(step: &mut Step<'_>) -> Result<(), StepError> {
    let gpu = open(step)?;
    step.progress("random scenes");
    let mut exact = Exact::default();
    let until_ns = ends(step);
    for number in 0.. {
        if number >= MIN_SCENES && monotonic_ns() >= until_ns {
            break;
        }
        let mut scene = Scene::new(number);
        scene.config.gpu.copies = in_turn(number);
        let mut pair = Pair::new(&gpu, &scene.config, 3, scene.intrinsics)?;
        for sequence in 1..=3 {
            let (frame, pose, set) = scene.step(sequence);
            pair.judge(frame, pose, set)?;
            pair.compare(&mut exact, &format!("scene {number}, frame {sequence}"));
        }
    }
    exact.judge(step, "geometry of random scenes is the CPU's to the bit");

    step.progress("the shipped recording");
    let file = CellFile::demo().map_err(failed)?;
    let config = configuration(&file, step.ordinal, false);
    let mut exact = Exact::default();
    let until_ns = ends(step);
    recorded(&gpu, &config, &mut views(&file)?, until_ns, &mut |pair, what| pair.compare(&mut exact, what))?;
    exact.judge(step, "geometry of the shipped recording is the CPU's to the bit");

    step.progress("the shipped recording, with networks on the CPU between the kernels");
    let mut config = configuration(&file, step.ordinal, true);
    config.engine.backend = Backend::Embedded;
    let until_ns = ends(step);
    // Networks on the CPU take their time: some views are enough.
    let some = views(&file)?.into_iter().take(if step.is_emulated() { 1 } else { 3 });
    close(step, &gpu, &config, &mut some.collect::<Vec<_>>(), until_ns, "the networks on the CPU")
}

/// The networks' answers on the device against the CPU's, on the shipped recording.
///
/// # Errors
/// [`StepError::NotRun`] where the networks cannot be had, or what any piece of work met.
pub fn network_answers(step: &mut Step<'_>) -> Result<(), StepError> {
    let gpu = open(step)?;
    let file = CellFile::demo().map_err(failed)?;
    if step.is_emulated() {
        return Err(StepError::NotRun("the GPU is emulated: it has no networks".to_owned()));
    }
    step.progress("networks on the device against the CPU's");
    let config = configuration(&file, step.ordinal, true);
    let until_ns = monotonic_ns() + (step.work_s / 4.0 * 1e9) as u64;
    close(step, &gpu, &config, &mut views(&file)?, until_ns, "the networks on the device")
}

/// Every other one copies by kernels.
fn in_turn(number: u64) -> Copies {
    if number.is_multiple_of(2) { Copies::Engines } else { Copies::Kernels }
}

/// The end of a third of the step's time.
fn ends(step: &Step<'_>) -> u64 {
    monotonic_ns() + (step.work_s / 3.0 * 1e9) as u64
}

/// Both judge the same frames of every view, in turn.
fn recorded(
    gpu: &Gpu,
    config: &PerceptionConfig,
    views: &mut [View],
    until_ns: u64,
    look: &mut dyn FnMut(&Pair, &str),
) -> Result<(), StepError> {
    let mut pairs = Vec::new();
    for (camera, view) in views.iter().enumerate() {
        let frame = Frame::new(view.intrinsics.width, view.intrinsics.height);
        let mut config = config.clone();
        config.gpu.copies = in_turn(camera as u64);
        pairs.push((Pair::new(gpu, &config, camera as u32, view.intrinsics)?, frame));
    }
    for sequence in 1.. {
        if sequence > MIN_FRAMES && monotonic_ns() >= until_ns {
            break;
        }
        for (camera, (view, (pair, frame))) in views.iter_mut().zip(&mut pairs).enumerate() {
            for _ in 0..STRIDE {
                view.next(frame, sequence)?;
            }
            pair.judge(frame, &view.pose, None)?;
            look(pair, &format!("camera {camera}, frame {}", sequence * STRIDE));
        }
    }
    Ok(())
}

fn close(
    step: &mut Step<'_>,
    gpu: &Gpu,
    config: &PerceptionConfig,
    views: &mut [View],
    until_ns: u64,
    with: &str,
) -> Result<(), StepError> {
    let mut same = Same { least_overlap: 1.0, ..Same::default() };
    recorded(gpu, config, views, until_ns, &mut |pair, _| {
        let [(a, drawn_a), (b, drawn_b)] = &pair.seen;
        same.add((a, drawn_a), (b, drawn_b));
    })?;
    step.figure(with, same);
    step.judge(
        &format!(
            "with {with}, masks overlap by {MIN_OVERLAP} of the CPU's and distances are within {:.0} cm",
            100.0 * MAX_DISTANCE_M
        ),
        same.to_string(),
        same.is_enough(),
    );
    Ok(())
}
