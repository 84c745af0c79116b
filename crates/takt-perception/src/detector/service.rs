//! One thread that runs the detector for all cameras, so that its long inference never sits in a
//! camera's critical path. Frames come in and detections go out through wait-free exchanges.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use takt_link_camera::Frame;
use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::{Reader, Writer, latest};
use takt_rt::signal::Signal;

use super::{DetectionSet, Detector};
use crate::config::DetectorConfig;
use crate::engine::{Engine, EngineError};
use crate::view::FrameView;

const IDLE: u8 = 0;
const ROUTINE: u8 = 1;
const URGENT: u8 = 2;

/// Sleep of the thread without requests; requests wake it, so this only bounds the stop.
const IDLE_WAIT: Duration = Duration::from_millis(200);

/// A frame on its way to the detector.
struct Picture {
    frame_sequence: u64,
    capture_ns: u64,
    width: u32,
    height: u32,
    rgb: Vec<u8>,
}

#[derive(Debug, Default)]
struct ServiceState {
    stop: AtomicBool,
    /// Per camera: what it waits for.
    requests: Box<[AtomicU8]>,
    runs: AtomicU64,
    busy_ns: AtomicU64,
}

/// A camera's side of the shared detector.
pub struct DetectorHandle {
    camera: usize,
    shared: Arc<ServiceState>,
    signal: Signal,
    pictures: Writer<Picture>,
    results: Reader<DetectionSet>,
    taken: u64,
    asked_ns: Option<u64>,
}

impl DetectorHandle {
    /// Whether the last frame that was posted still waits for its turn.
    pub(crate) fn is_waiting(&self) -> bool {
        self.shared.requests[self.camera].load(Ordering::Acquire) != IDLE
    }

    /// When the last frame was posted, CLOCK_MONOTONIC nanoseconds.
    pub fn asked_ns(&self) -> Option<u64> {
        self.asked_ns
    }

    /// Posts a frame; a frame that still waits is replaced. Wait-free: one copy of the colours.
    pub fn post(&mut self, frame: &Frame, now_ns: u64, urgent: bool) {
        self.post_view(&frame.into(), now_ns, urgent);
    }

    pub(crate) fn post_view(&mut self, frame: &FrameView, now_ns: u64, urgent: bool) {
        self.pictures.write(now_ns, |picture| {
            picture.frame_sequence = frame.sequence;
            picture.capture_ns = frame.capture_ns;
            picture.width = frame.width;
            picture.height = frame.height;
            picture.rgb.clear();
            picture.rgb.extend_from_slice(frame.rgb);
        });
        self.asked_ns = Some(now_ns);
        let request = if urgent { URGENT } else { ROUTINE };
        self.shared.requests[self.camera].fetch_max(request, Ordering::AcqRel);
        self.signal.notify();
    }

    /// The newest detections, once.
    pub fn take(&mut self) -> Option<DetectionSet> {
        if self.results.sequence() == self.taken {
            return None;
        }
        let snapshot = self.results.read();
        self.taken = snapshot.sequence;
        Some(*snapshot.value)
    }
}

impl std::fmt::Debug for DetectorHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DetectorHandle").field("camera", &self.camera).finish_non_exhaustive()
    }
}

/// The shared detector. Dropping it asks its thread to end; join that thread before the process
/// exits, or an inference may still run while the engine's library is torn down.
#[derive(Debug)]
pub struct DetectorService {
    shared: Arc<ServiceState>,
    signal: Signal,
}

impl DetectorService {
    /// Loads the detector and starts its thread for cameras of the given sizes (width, height).
    ///
    /// `spawn` gets the thread's body and starts it with the policy of its choice; it keeps the
    /// join handle. The body returns soon after the service is dropped (at most one inference
    /// later).
    ///
    /// # Errors
    /// The errors of [`Detector::new`], and [`EngineError::Thread`] with the error of `spawn`.
    pub fn start(
        engine: &Engine,
        config: &DetectorConfig,
        sizes: &[(u32, u32)],
        spawn: impl FnOnce(Box<dyn FnOnce() + Send + 'static>) -> Result<(), takt_rt::Error>,
    ) -> Result<(Self, Vec<DetectorHandle>), EngineError> {
        let detector = Detector::new(engine, config)?;
        let shared = Arc::new(ServiceState {
            requests: sizes.iter().map(|_| AtomicU8::new(IDLE)).collect(),
            ..ServiceState::default()
        });
        let signal = Signal::new();
        let mut handles = Vec::with_capacity(sizes.len());
        let mut inboxes = Vec::with_capacity(sizes.len());
        for (camera, &(width, height)) in sizes.iter().enumerate() {
            let bytes = width as usize * height as usize * 3;
            let (pictures, incoming) = latest(1, || Picture {
                frame_sequence: 0,
                capture_ns: 0,
                width: 0,
                height: 0,
                rgb: Vec::with_capacity(bytes),
            });
            let (outgoing, results) = latest(1, DetectionSet::default);
            let (Some(incoming), Some(results)) = (incoming.into_iter().next(), results.into_iter().next())
            else {
                return Err(EngineError::NoReader);
            };
            inboxes.push(Inbox { pictures: incoming, results: outgoing });
            handles.push(DetectorHandle {
                camera,
                shared: Arc::clone(&shared),
                signal: signal.clone(),
                pictures,
                results,
                taken: 0,
                asked_ns: None,
            });
        }
        let worker = Worker {
            detector,
            inboxes,
            shared: Arc::clone(&shared),
            signal: signal.clone(),
            max_duty: config.max_duty,
            next: 0,
        };
        spawn(Box::new(move || worker.run())).map_err(EngineError::Thread)?;
        Ok((Self { shared, signal }, handles))
    }

    /// Inferences so far.
    pub fn runs(&self) -> u64 {
        self.shared.runs.load(Ordering::Relaxed)
    }

    /// Wall-clock time of all inferences so far, nanoseconds.
    pub fn busy_ns(&self) -> u64 {
        self.shared.busy_ns.load(Ordering::Relaxed)
    }
}

impl Drop for DetectorService {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.signal.notify();
    }
}

struct Inbox {
    pictures: Reader<Picture>,
    results: Writer<DetectionSet>,
}

struct Worker {
    detector: Detector,
    inboxes: Vec<Inbox>,
    shared: Arc<ServiceState>,
    signal: Signal,
    max_duty: f32,
    /// The camera whose turn it is.
    next: usize,
}

impl Worker {
    fn run(mut self) {
        while !self.stopped() {
            let seen = self.signal.value();
            let Some(camera) = turn(&self.shared.requests, &mut self.next) else {
                self.signal.wait(seen, IDLE_WAIT);
                continue;
            };
            let start_ns = monotonic_ns();
            self.serve(camera);
            let busy_ns = monotonic_ns() - start_ns;
            self.shared.runs.fetch_add(1, Ordering::Relaxed);
            self.shared.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
            self.rest(Duration::from_nanos((busy_ns as f32 * (1.0 / self.max_duty - 1.0)) as u64));
        }
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    /// Sleeps in short pieces, so that a stop is seen soon.
    fn rest(&self, time: Duration) {
        let end_ns = monotonic_ns() + time.as_nanos() as u64;
        while !self.stopped() {
            let left = end_ns.saturating_sub(monotonic_ns());
            if left == 0 {
                return;
            }
            std::thread::sleep(Duration::from_nanos(left).min(IDLE_WAIT));
        }
    }

    fn serve(&mut self, camera: usize) {
        let Inbox { pictures, results } = &mut self.inboxes[camera];
        let picture = pictures.read().value;
        let detector = &mut self.detector;
        results.write(monotonic_ns(), |out| {
            out.frame_sequence = picture.frame_sequence;
            out.capture_ns = picture.capture_ns;
            // The failure is in `out`; what it was is of no use to the camera.
            let _ = detector.detect(&picture.rgb, picture.width, picture.height, out);
        });
    }
}

/// The next camera, whose request is thereby taken: urgent ones first, round robin among equals.
fn turn(requests: &[AtomicU8], next: &mut usize) -> Option<usize> {
    let waiting = |level: u8| {
        (0..requests.len())
            .map(|step| (*next + step) % requests.len())
            .find(|&camera| requests[camera].load(Ordering::Acquire) == level)
    };
    let camera = waiting(URGENT).or_else(|| waiting(ROUTINE))?;
    *next = (camera + 1) % requests.len();
    // Before the picture is read: a picture posted from here on is a new request.
    requests[camera].store(IDLE, Ordering::Release);
    Some(camera)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(cameras: usize) -> (Arc<ServiceState>, impl FnMut() -> Option<usize>) {
        let shared = Arc::new(ServiceState {
            requests: (0..cameras).map(|_| AtomicU8::new(IDLE)).collect(),
            ..ServiceState::default()
        });
        let queue = Arc::clone(&shared);
        let mut next = 0;
        (shared, move || turn(&queue.requests, &mut next))
    }

    #[test]
    fn urgent_cameras_come_first_and_equals_take_turns() {
        let (shared, mut choose) = worker(3);
        for camera in 0..3 {
            shared.requests[camera].store(ROUTINE, Ordering::Release);
        }
        shared.requests[2].store(URGENT, Ordering::Release);
        assert_eq!(choose(), Some(2));
        assert_eq!(choose(), Some(0));
        shared.requests[0].store(ROUTINE, Ordering::Release);
        assert_eq!(choose(), Some(1), "camera 0 was just served");
        assert_eq!(choose(), Some(0));
        assert_eq!(choose(), None);
    }
}
