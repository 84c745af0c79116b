//! Requirements of perception on a GPU, measured: each with its figure, or with the reason why it
//! could not be run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::Isometry3;
use serde::Serialize;
use takt_gpu::Gpu;
pub use takt_gpu::Requirement;
use takt_lab::LabError;
use takt_lab::options::RunOptions;
use takt_lab::robot::Observe;
use takt_link_camera::recording::FrameReader;
use takt_link_camera::{CameraConfig, Frame};
use takt_perception::gpu::{GpuFrame, GpuPerception};
use takt_perception::{Detections, DetectorSchedule, Device, Engine, ObjectKind, Overlay, Perception};
use takt_rt::clock::monotonic_ns;
use takt_rundir::{RUN_FILE, RunDir};
use takt_stats::Summary;

use super::CellFile;
use super::rows::FRAMES;
use super::run::run;
use super::summary::RunFacts;

/// Least overlap of masks with the CPU's.
pub const MIN_OVERLAP: f64 = 0.98;
/// Greatest difference of distances to the CPU's, metres.
pub const MAX_DISTANCE_M: f64 = 0.01;
/// p99.9 of perception of one frame, arrival to result, milliseconds.
pub const PERCEPTION_P999_MS: f64 = 5.0;
/// Factor by which the mitigations must lower the worst reaction under interference.
pub const MIN_RATIO: f64 = 5.0;

/// Comparison of the GPU's answers with the CPU's on the shipped recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Same {
    /// Frames compared.
    pub frames: u32,
    /// Frames on which both do not see as many people and things.
    pub differing: u32,
    /// People seen by the CPU.
    pub people: u32,
    /// Greatest difference of a distance, metres.
    pub worst_distance_m: f64,
    /// Least overlap of what both mark in a frame, intersection over union.
    pub least_overlap: f64,
}

impl fmt::Display for Same {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} frames with {} people: least IoU {:.4}, greatest difference {:.2} mm, {} frames differ in what is seen",
            self.frames,
            self.people,
            self.least_overlap,
            1e3 * self.worst_distance_m,
            self.differing
        )
    }
}

impl Same {
    /// Whether that is what must be reached.
    pub fn is_enough(&self) -> bool {
        self.frames > 0
            && self.differing == 0
            && self.people > 0
            && self.worst_distance_m <= MAX_DISTANCE_M
            && self.least_overlap >= MIN_OVERLAP
    }

    pub(super) fn add(&mut self, cpu: (&Detections, &Overlay), gpu: (&Detections, &Overlay)) {
        self.frames += 1;
        let kinds = |d: &Detections| d.objects().iter().map(|o| o.kind).collect::<Vec<_>>();
        self.people += kinds(cpu.0).iter().filter(|kind| **kind == ObjectKind::Person).count() as u32;
        self.differing += u32::from(kinds(cpu.0) != kinds(gpu.0) || cpu.0.health != gpu.0.health);
        for (a, b) in cpu.0.objects().iter().zip(gpu.0.objects()) {
            self.worst_distance_m = self.worst_distance_m.max(f64::from((a.distance_m - b.distance_m).abs()));
        }
        let marked = |a: &u8, b: &u8| (u32::from(*a != 0 && *a == *b), u32::from(*a != 0 || *b != 0));
        let (mut both, mut either) = (0, 0);
        for (a, b) in cpu.1.mask.iter().zip(&gpu.1.mask) {
            let (one, all) = marked(a, b);
            both += one;
            either += all;
        }
        if either > 0 {
            self.least_overlap = self.least_overlap.min(f64::from(both) / f64::from(either));
        }
    }
}

/// The demonstration, judged on the device, by every frame's own detection and masks.
fn demonstration(device: Device, ordinal: u32) -> Result<CellFile, LabError> {
    let mut file = CellFile::demo()?;
    file.perception.device = device;
    file.perception.gpu.ordinal = ordinal;
    file.perception.detector.schedule = DetectorSchedule::EveryFrame;
    file.perception.segmenter.every_frames = Some(1);
    Ok(file)
}

/// Judges `frames` frames of every camera of the shipped recording on both devices.
///
/// # Errors
/// One sentence.
pub fn same_answers(ordinal: u32, frames: u64) -> Result<Same, LabError> {
    let gpu = Gpu::open(ordinal).map_err(LabError::robot)?;
    let file = demonstration(Device::Cuda, ordinal)?;
    let engine = Engine::open(&file.perception.engine).map_err(LabError::robot)?;
    let in_force = file.cell().perception_in_force();
    let mut same = Same { least_overlap: 1.0, ..Same::default() };
    for (index, camera) in file.cameras.iter().enumerate() {
        let CameraConfig::Replay(replay) = &camera.source else { continue };
        let mut reader = FrameReader::open(replay).map_err(LabError::robot)?;
        let intrinsics = reader.intrinsics();
        let number = index as u32;
        let mut cpu =
            Perception::new(&in_force, number, intrinsics, &engine, None).map_err(LabError::robot)?;
        let mut device = GpuPerception::new(&gpu, &in_force, number, intrinsics, None, &|_| ())
            .map_err(LabError::robot)?;
        let pose = camera.mount.at(&Isometry3::translation(0.0, 0.0, 1.0));
        let mut frame = Frame::new(intrinsics.width, intrinsics.height);
        let (mut a, mut b) = (Detections::default(), Detections::default());
        let (mut drawn_a, mut drawn_b) = (Overlay::default(), Overlay::default());
        for sequence in 1..=frames {
            if !reader.read(&mut frame).map_err(LabError::robot)? {
                break;
            }
            frame.sequence = sequence;
            let start_ns = monotonic_ns();
            let asked = GpuFrame {
                view: (&frame).into(),
                resident: None,
                pose: Some(&pose),
                start_ns,
                deadline_ns: u64::MAX,
            };
            cpu.process_with_detections(&frame, Some(&pose), start_ns, None, &mut a, Some(&mut drawn_a));
            device.process(&asked, &mut b, Some(&mut drawn_b)).map_err(LabError::robot)?;
            same.add((&a, &drawn_a), (&b, &drawn_b));
        }
    }
    Ok(same)
}

/// Memory of the device while perception runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Growth {
    /// Seconds watched.
    pub seconds: f64,
    /// Frames meanwhile.
    pub frames: u64,
    /// Free bytes when the pipeline was warm.
    pub free_before_bytes: u64,
    /// Least free bytes since.
    pub least_free_bytes: u64,
    /// Free bytes at the end.
    pub free_after_bytes: u64,
}

impl Growth {
    /// Bytes more in use at the end.
    pub fn bytes(&self) -> u64 {
        self.free_before_bytes.saturating_sub(self.free_after_bytes)
    }
}

/// Frames until the pipeline is warm: libraries choose their algorithms and take their memory.
const WARM_FRAMES: u64 = 200;

/// Judges the shipped recording over and over, all cameras in turn, and watches the device's
/// memory.
///
/// # Errors
/// One sentence.
pub fn growth(device: Device, ordinal: u32, seconds: f64, stop: &AtomicBool) -> Result<Growth, LabError> {
    let gpu = Gpu::open(ordinal).map_err(LabError::robot)?;
    let file = demonstration(device, ordinal)?;
    let in_force = file.cell().perception_in_force();
    let mut cameras = Vec::new();
    for (index, camera) in file.cameras.iter().enumerate() {
        let CameraConfig::Replay(replay) = &camera.source else { continue };
        let mut replay = replay.clone();
        replay.looped = true;
        let reader = FrameReader::open(&replay).map_err(LabError::robot)?;
        let intrinsics = reader.intrinsics();
        let perception = GpuPerception::new(&gpu, &in_force, index as u32, intrinsics, None, &|_| ())
            .map_err(LabError::robot)?;
        let pose = camera.mount.at(&Isometry3::translation(0.0, 0.0, 1.0));
        cameras.push((reader, perception, pose, Frame::new(intrinsics.width, intrinsics.height)));
    }
    let mut out = Detections::default();
    let mut judge_all = |sequence: u64| -> Result<u64, LabError> {
        for (reader, perception, pose, frame) in &mut cameras {
            reader.read(frame).map_err(LabError::robot)?;
            frame.sequence = sequence;
            let (view, start_ns) = ((&*frame).into(), monotonic_ns());
            let asked = GpuFrame { view, resident: None, pose: Some(pose), start_ns, deadline_ns: u64::MAX };
            perception.process(&asked, &mut out, None).map_err(LabError::robot)?;
        }
        Ok(cameras.len() as u64)
    };
    let mut sequence = 1;
    let mut warm = 0;
    while warm < WARM_FRAMES {
        warm += judge_all(sequence)?;
        sequence += 1;
    }
    let free = || gpu.memory().map(|memory| memory.free_bytes).map_err(LabError::robot);
    let before = free()?;
    let (mut least, mut frames) = (before, 0);
    let begin = std::time::Instant::now();
    while begin.elapsed().as_secs_f64() < seconds && !stop.load(std::sync::atomic::Ordering::Acquire) {
        frames += judge_all(sequence)?;
        sequence += 1;
        least = least.min(free()?);
    }
    Ok(Growth {
        seconds: begin.elapsed().as_secs_f64(),
        frames,
        free_before_bytes: before,
        least_free_bytes: least,
        free_after_bytes: free()?,
    })
}

/// Time of perception for a frame in the running cell.
#[derive(Clone, Debug, Serialize)]
pub struct Perceived {
    pub cameras: u32,
    /// Frames judged, of all cameras.
    pub frames: u64,
    /// Frames delivered and never judged.
    pub dropped: u64,
    /// From the arrival of a frame to its result, milliseconds.
    pub ms: Summary,
    /// Frames that the GPU did not answer in time.
    pub overruns: u64,
    pub run_dir: String,
}

/// Runs the shipped cell of five cameras at 30 FPS on the device.
///
/// # Errors
/// As a run.
pub fn five_cameras(
    device: Device,
    ordinal: u32,
    seconds: f64,
    runs: &std::path::Path,
    stop: Arc<AtomicBool>,
    observe: Observe<'_>,
) -> Result<Perceived, LabError> {
    let mut file = CellFile::demo()?;
    file.perception.device = device;
    file.perception.gpu.ordinal = ordinal;
    let options = RunOptions { seconds: Some(seconds), ..RunOptions::below(runs, stop) };
    let summary = run(&file, &options, observe)?;
    let dir = RunDir::open(std::path::Path::new(&summary.run_dir))?;
    #[derive(serde::Deserialize)]
    struct Facts {
        facts: RunFacts,
    }
    let Facts { facts } = dir.read_json(RUN_FILE)?;
    let [from_ns, to_ns] = facts.window_ns;
    let mut ms = perceived_ms(&dir, from_ns..to_ns)?;
    let worker = summary.worker.clone().unwrap_or_default();
    Ok(Perceived {
        cameras: summary.cameras,
        frames: summary.frames,
        dropped: summary.frames_dropped,
        ms: Summary::of(&mut ms),
        overruns: worker.count(takt_perception::process::EventKind::Overrun),
        run_dir: summary.run_dir,
    })
}

/// From arrival to result, milliseconds, of the frames that arrived within the window.
fn perceived_ms(dir: &RunDir, window_ns: std::ops::Range<u64>) -> Result<Vec<f64>, LabError> {
    let columns = dir.columns(FRAMES, &["arrival_ns", "published_ns"])?;
    let [arrivals, published] = &columns[..] else { return Ok(Vec::new()) };
    let inside = arrivals.iter().zip(published).filter(|(arrival, _)| window_ns.contains(arrival));
    Ok(inside.map(|(arrival, published)| published.saturating_sub(*arrival) as f64 / 1e6).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_from_a_sealed_run() {
        #[derive(Serialize)]
        struct Frame {
            camera: u32,
            arrival_ns: u64,
            published_ns: u64,
        }
        let folder = tempfile::tempdir().unwrap();
        let dir = RunDir::create(folder.path(), "gpu").unwrap();
        let mut file = dir.samples(FRAMES).unwrap();
        for (arrival_ns, published_ns) in
            [(900_000, 1_900_000), (1_000_000, 3_500_000), (9_000_000, 9_900_000)]
        {
            file.push(&Frame { camera: 0, arrival_ns, published_ns }).unwrap();
        }
        file.flush().unwrap();
        drop(file);
        assert_eq!(perceived_ms(&dir, 1_000_000..9_000_000).unwrap(), [2.5]);
        dir.seal().unwrap();
        assert_eq!(perceived_ms(&dir, 1_000_000..9_000_000).unwrap(), [2.5], "sealed");
    }

    #[test]
    fn equal_answers_are_enough_and_others_are_not() {
        let mut same = Same { least_overlap: 1.0, ..Same::default() };
        assert!(!same.is_enough(), "nothing was compared");
        let object =
            takt_perception::Object { kind: ObjectKind::Person, distance_m: 2.0, ..Default::default() };
        let mut seen = Detections::default();
        seen.insert(object);
        let mut drawn = Overlay::new(10, 10);
        drawn.mask[..50].fill(1);
        same.add((&seen, &drawn), (&seen, &drawn));
        assert!(same.is_enough());

        let mut farther = Detections::default();
        farther.insert(takt_perception::Object { distance_m: 2.02, ..object });
        let mut other = same;
        other.add((&seen, &drawn), (&farther, &drawn));
        assert!(!other.is_enough() && other.worst_distance_m > 0.019);

        let mut smaller = drawn.clone();
        smaller.mask[..5].fill(0);
        let mut other = same;
        other.add((&seen, &drawn), (&seen, &smaller));
        assert!((other.least_overlap - 0.9).abs() < 1e-9 && !other.is_enough());

        let mut other = same;
        other.add((&seen, &drawn), (&Detections::default(), &Overlay::new(10, 10)));
        assert_eq!(other.differing, 1);
        assert!(!other.is_enough());
    }
}
