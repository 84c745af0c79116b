//! Judges on the GPU: each camera on a stream of its own.

use takt_gpu::{CudaVersion, Gpu, Info, Pinned, Wait};
use takt_perception::gpu::{GpuFrame, GpuPerception, GpuPerceptionError, Progress, Resident, Severity};
use takt_perception::{Detections, DetectorSchedule, Device, FramePose, GpuWait};
use takt_rt::census::CensusKeeper;

use crate::judge::{Judge, JudgeError, PixelMemory, Seen, Stages};
use crate::region::Setup;
use crate::said::About;
use crate::worker::Judges;

/// What a run directory keeps of a device.
fn about(info: &Info, device: Device) -> About {
    let mut labels = Vec::new();
    if info.emulated {
        labels.push("the GPU is emulated: its times say nothing about a GPU".to_owned());
    }
    let engine = match device {
        _ if info.emulated => "networks on the CPU (emulated device)",
        Device::Tensorrt => "ONNX Runtime, TensorRT",
        _ => "ONNX Runtime, CUDA",
    };
    About {
        device: format!("{} ({})", info.name, info.uuid),
        driver: format!("CUDA {}", CudaVersion(info.driver_version)),
        engine: engine.to_owned(),
        labels,
    }
}

/// One camera on a stream of its own.
struct GpuJudge {
    perception: GpuPerception,
    gpu: Gpu,
    /// The frames' memory as the device knows it.
    memory: Option<Pinned<u8>>,
}

impl Judge for GpuJudge {
    fn adopt(&mut self, memory: PixelMemory) -> Result<(), JudgeError> {
        // SAFETY: the memory is the camera's part of the shared region, which the worker keeps mapped until the process
        // ends; the cell writes into a slot only while the worker does not hold it, and what a device may still read
        // for a frame that was given up is never used.
        let registered = unsafe { self.gpu.register::<u8>(memory.start, memory.bytes) };
        self.memory = Some(registered.map_err(|e| JudgeError::Lost(e.to_string()))?);
        Ok(())
    }

    fn judge(
        &mut self,
        frame: &Seen<'_>,
        pose: Option<&FramePose>,
        start_ns: u64,
        deadline_ns: u64,
        out: &mut Detections,
    ) -> Result<Stages, JudgeError> {
        let (rgb_at, depth_at) = (frame.rgb_at, frame.depth_at);
        let resident = self.memory.as_ref().map(|memory| Resident { memory, rgb_at, depth_at });
        let frame = GpuFrame { view: frame.view, resident, pose, start_ns, deadline_ns };
        self.perception.process(&frame, out, None).map_err(refused)?;
        let times = self.perception.device_times();
        Ok(Stages {
            upload_ns: times.upload_ns,
            prepare_ns: times.prepare_ns,
            detect_ns: times.detect_ns,
            decode_ns: times.decode_ns,
            masks_ns: times.masks_ns,
            measure_ns: times.measure_ns,
        })
    }
}

/// What an error of the device means for those who wait.
fn refused(error: GpuPerceptionError) -> JudgeError {
    let cause = error.to_string();
    match error.severity() {
        Severity::Frame => JudgeError::Frame(cause),
        Severity::Late => JudgeError::Overrun(cause),
        Severity::Lost | Severity::Setup => JudgeError::Lost(cause),
    }
}

/// Words for a start that takes long.
fn in_words(progress: &Progress<'_>) -> Option<String> {
    match progress {
        Progress::Loading { .. } => None,
        Progress::Building { model, elapsed, folder } => Some(format!(
            "TensorRT builds its engine for {model} ({} s so far); it will be kept in {}",
            elapsed.as_secs(),
            folder.display()
        )),
        Progress::Ready { model, elapsed } if elapsed.as_secs() >= 5 => {
            Some(format!("{model} is ready after {} s", elapsed.as_secs()))
        }
        Progress::Ready { .. } => None,
    }
}

/// Judges on the GPU of the setup.
pub(crate) fn judges(
    setup: &Setup,
    census: &CensusKeeper,
    progress: &(dyn Fn(String) + Sync),
) -> Result<Judges, String> {
    let mut config = setup.perception.clone();
    config.device = setup.device;
    // A GPU affords the detector on every frame, on the camera's own stream.
    config.detector.schedule = DetectorSchedule::EveryFrame;
    let wait = match config.gpu.wait {
        GpuWait::Spin => Wait::Spin,
        GpuWait::Yield => Wait::Yield,
        GpuWait::Block => Wait::Block,
    };
    let tell = |what: Progress<'_>| in_words(&what).into_iter().for_each(progress);
    census.attribute("GPU", || {
        let gpu = Gpu::open_waiting(config.gpu.ordinal, wait).map_err(|e| e.to_string())?;
        let judges = setup.cameras.iter().enumerate().map(|(index, camera)| {
            let perception = GpuPerception::new(&gpu, &config, index as u32, *camera, None, &tell)?;
            Ok(Box::new(GpuJudge { perception, gpu: gpu.clone(), memory: None }) as Box<dyn Judge>)
        });
        let judges = judges.collect::<Result<_, GpuPerceptionError>>().map_err(|e| e.to_string())?;
        Ok(Judges { judges, about: about(gpu.info(), setup.device), keep: Box::new(gpu) })
    })
}
