//! Cameras with a thread each, whichever way they share the device.
//!
//! With `streams = "batch"` the threads take turns at one [`GpuBatch`]: each lays its frame down, and whoever comes to the
//! batch first judges all that lie there. So frames that arrive together are judged together, and none waits for
//! another's arrival.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use takt_gpu::Gpu;
use takt_link_camera::Intrinsics;
use takt_rt::pi_mutex::PiMutex;

use super::load::Progress;
use super::perception::{BatchFrame, GpuBatch, GpuFrame, GpuPerception};
use super::{DeviceTimes, GpuPerceptionError};
use crate::config::PerceptionConfig;
use crate::detector::DetectorHandle;
use crate::device::Streams;
use crate::overlay::Overlay;
use crate::result::Detections;

/// One camera on a device, as `perception.gpu.streams` has it. One thread owns it.
#[derive(Debug)]
pub struct GpuCamera(Way);

#[derive(Debug)]
enum Way {
    Alone(Box<GpuPerception>),
    Member(Member),
}

impl GpuCamera {
    /// Prepares perception of cameras with these numbers and intrinsics, each with its handle of a shared detector.
    ///
    /// # Errors
    /// As [`GpuPerception::new`].
    pub fn all(
        gpu: &Gpu,
        config: &PerceptionConfig,
        cameras: Vec<(u32, Intrinsics, Option<DetectorHandle>)>,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Vec<Self>, GpuPerceptionError> {
        match config.gpu.streams {
            Streams::PerCamera => {
                let alone = |(number, intrinsics, handle)| {
                    let alone = GpuPerception::new(gpu, config, number, intrinsics, handle, progress)?;
                    Ok(Self(Way::Alone(Box::new(alone))))
                };
                cameras.into_iter().map(alone).collect()
            }
            Streams::Batch => {
                let count = cameras.len();
                let batch = GpuBatch::new(gpu, config, cameras, progress)?;
                let inner = Inner { jobs: Vec::with_capacity(count), batch };
                let inner =
                    PiMutex::new(inner).map_err(|error| GpuPerceptionError::Lock(error.to_string()))?;
                let desks = (0..count).map(|_| Desk::default()).collect();
                let shared = Arc::new(Shared { inner, desks });
                let member =
                    |camera| Member { shared: Arc::clone(&shared), camera, times: DeviceTimes::default() };
                Ok((0..count).map(|camera| Self(Way::Member(member(camera)))).collect())
            }
        }
    }

    /// As [`GpuPerception::process`]. In a batch the latest deadline of the frames that are judged together bounds what is
    /// done for all of them.
    ///
    /// # Errors
    /// As [`GpuPerception::process`].
    pub fn process(
        &mut self,
        frame: &GpuFrame,
        out: &mut Detections,
        overlay: Option<&mut Overlay>,
    ) -> Result<(), GpuPerceptionError> {
        match &mut self.0 {
            Way::Alone(alone) => alone.process(frame, out, overlay),
            Way::Member(member) => member.process(frame, out, overlay),
        }
    }

    /// What the device did for the last frame; what a batch did together counts for each.
    pub fn device_times(&self) -> DeviceTimes {
        match &self.0 {
            Way::Alone(alone) => alone.device_times(),
            Way::Member(member) => member.times,
        }
    }
}

/// Nothing lies on a desk.
const FREE: u8 = 0;
/// A frame lies there.
const POSTED: u8 = 1;
/// It is being judged.
const TAKEN: u8 = 2;
/// Its answer lies there.
const ANSWERED: u8 = 3;

struct Shared {
    inner: PiMutex<Inner>,
    desks: Box<[Desk]>,
}

struct Inner {
    /// Empty between the turns; kept for its room.
    jobs: Vec<BatchFrame<'static>>,
    batch: GpuBatch,
}

/// Where a camera's thread lays its frame down.
#[derive(Default)]
struct Desk {
    state: AtomicU8,
    /// The camera's while FREE or ANSWERED; from POSTED on of whoever takes it.
    job: UnsafeCell<Option<BatchFrame<'static>>>,
    answer: UnsafeCell<Option<Result<DeviceTimes, GpuPerceptionError>>>,
}

// SAFETY: `state` says which thread may reach the cells, and is passed on with release and acquire. A frame's borrows are
// of a thread that waits until it is answered.
unsafe impl Sync for Desk {}
// SAFETY: as above.
unsafe impl Send for Desk {}

#[derive(Debug)]
struct Member {
    shared: Arc<Shared>,
    camera: usize,
    times: DeviceTimes,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("cameras", &self.desks.len()).finish_non_exhaustive()
    }
}

impl Member {
    fn process(
        &mut self,
        frame: &GpuFrame,
        out: &mut Detections,
        overlay: Option<&mut Overlay>,
    ) -> Result<(), GpuPerceptionError> {
        let desk = &self.shared.desks[self.camera];
        let job = BatchFrame { camera: self.camera, frame: *frame, out, overlay, failed: None };
        // SAFETY: only lifetimes change. This function does not return, or unwind, before the frame is answered or taken
        // back, so that what is borrowed outlives its use.
        let job = unsafe { std::mem::transmute::<BatchFrame<'_>, BatchFrame<'static>>(job) };
        // SAFETY: the desk is free, so it is this thread's.
        unsafe { *desk.job.get() = Some(job) };
        desk.state.store(POSTED, Ordering::Release);
        match self.shared.inner.lock() {
            Ok(mut inner) => {
                if desk.state.load(Ordering::Acquire) == POSTED {
                    inner.turn(&self.shared.desks);
                }
            }
            Err(error) => {
                let taken_back =
                    desk.state.compare_exchange(POSTED, FREE, Ordering::AcqRel, Ordering::Acquire);
                if taken_back.is_ok() {
                    // SAFETY: free again, so it is this thread's.
                    unsafe { *desk.job.get() = None };
                    return Err(GpuPerceptionError::Lock(error.to_string()));
                }
                // Whoever took it answers, also when it fails.
                while desk.state.load(Ordering::Acquire) != ANSWERED {
                    std::thread::yield_now();
                }
            }
        }
        // SAFETY: answered: by the turn above, or by another before the lock was this thread's.
        let answer = unsafe { (*desk.answer.get()).take() };
        desk.state.store(FREE, Ordering::Release);
        self.times = answer.unwrap_or_else(|| Err(GpuPerceptionError::Lock("no answer".into())))?;
        Ok(())
    }
}

impl Inner {
    /// Judges all that lies on the desks.
    fn turn(&mut self, desks: &[Desk]) {
        let mut answers = Answers { desks };
        self.jobs.clear();
        for desk in desks {
            if desk.state.compare_exchange(POSTED, TAKEN, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                // SAFETY: taken, so it is this thread's.
                self.jobs.extend(unsafe { (*desk.job.get()).take() });
            }
        }
        match self.batch.process(&mut self.jobs) {
            Ok(()) => {
                for job in self.jobs.drain(..) {
                    let times = self.batch.device_times(job.camera).unwrap_or_default();
                    answers.give(job.camera, job.failed.map_or(Ok(times), Err));
                }
            }
            Err(error) => {
                let (severity, cause) = (error.severity(), error.to_string());
                for job in self.jobs.drain(..) {
                    let cause = cause.clone();
                    answers.give(job.camera, Err(GpuPerceptionError::Together { severity, cause }));
                }
            }
        }
    }
}

/// Answers every frame that was taken, also when judging them panics.
struct Answers<'a> {
    desks: &'a [Desk],
}

impl Answers<'_> {
    fn give(&mut self, camera: usize, answer: Result<DeviceTimes, GpuPerceptionError>) {
        let desk = &self.desks[camera];
        // SAFETY: taken by this thread and not answered yet.
        unsafe { *desk.answer.get() = Some(answer) };
        desk.state.store(ANSWERED, Ordering::Release);
    }
}

impl Drop for Answers<'_> {
    fn drop(&mut self) {
        for camera in 0..self.desks.len() {
            if self.desks[camera].state.load(Ordering::Acquire) == TAKEN {
                self.give(
                    camera,
                    Err(GpuPerceptionError::Lock("the thread that judged the batch failed".into())),
                );
            }
        }
    }
}
