//! A camera with its driver thread: frames arrive in a latest-value register, as from a vendor's
//! library.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::{Reader, Writer, latest};
use takt_rt::signal::Signal;

use crate::backend::Surroundings;
use crate::camera::Camera;
use crate::config::CameraConfig;
use crate::error::CameraError;
use crate::gate::StartGate;
use crate::handover::Handover;
use crate::open::open;
use crate::{Frame, Intrinsics, Streams, Unpaired};

/// Options of a feed's start, and of its reaction when its camera vanishes.
#[derive(Clone, Debug)]
pub struct FeedOptions {
    /// Offset of the frames of paced cameras from the common origin: five cameras at 30 FPS that do
    /// not all deliver at once are 6.7 ms apart.
    pub phase: Duration,
    /// Wait here until all cameras are ready.
    pub gate: Option<StartGate>,
    /// First wait before a vanished camera is opened again; it doubles with every failure.
    pub retry_first: Duration,
    /// Longest wait between attempts.
    pub retry_most: Duration,
}

impl Default for FeedOptions {
    fn default() -> Self {
        Self {
            phase: Duration::ZERO,
            gate: None,
            retry_first: Duration::from_millis(250),
            retry_most: Duration::from_secs(5),
        }
    }
}

/// State of a feed without details: one atomic load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedState {
    /// Open, waiting for the gate or the first frame.
    Starting,
    /// Frames arrive.
    Running,
    /// The recording is over.
    Ended,
    /// The camera vanished; it is being opened again.
    Retrying,
    /// The camera failed for good.
    Failed,
    /// Stopped by its owner.
    Stopped,
}

const STATES: [FeedState; 6] = [
    FeedState::Starting,
    FeedState::Running,
    FeedState::Ended,
    FeedState::Retrying,
    FeedState::Failed,
    FeedState::Stopped,
];

/// State of a feed, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedStatus {
    /// Open, waiting for the gate or the first frame.
    Starting,
    /// Frames arrive.
    Running,
    /// The recording is over.
    Ended,
    /// No frames arrive.
    Failed {
        /// The camera's message.
        message: Arc<str>,
        /// Whether it is being opened again.
        retrying: bool,
    },
    /// Stopped by its owner.
    Stopped,
}

#[derive(Debug, Default)]
struct FeedControl {
    state: AtomicU8,
    delivered: AtomicU64,
    interruptions: AtomicU64,
    stop: AtomicBool,
    /// Wakes the driver thread from a wait between attempts.
    wake: Signal,
    message: Mutex<Option<Arc<str>>>,
    unpaired: UnpairedCounts,
}

/// [`Unpaired`] as the driver thread counts on: no lock, because a task that acquires itself may
/// have priority.
#[derive(Debug, Default)]
struct UnpairedCounts {
    colour: AtomicU64,
    depth: AtomicU64,
    nearest_ns: AtomicU64,
    farthest_ns: AtomicU64,
    pairing_ns: AtomicU64,
    steps_back: AtomicU64,
    step_ns: AtomicU64,
}

impl UnpairedCounts {
    fn set(&self, now: &Unpaired) {
        self.colour.store(now.colour, Ordering::Relaxed);
        self.depth.store(now.depth, Ordering::Relaxed);
        self.nearest_ns.store(now.nearest_ns, Ordering::Relaxed);
        self.farthest_ns.store(now.farthest_ns, Ordering::Relaxed);
        self.pairing_ns.store(now.pairing_ns, Ordering::Relaxed);
        self.steps_back.store(now.steps_back, Ordering::Relaxed);
        self.step_ns.store(now.step_ns, Ordering::Relaxed);
    }

    fn get(&self) -> Option<Unpaired> {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let unpaired = Unpaired {
            colour: of(&self.colour),
            depth: of(&self.depth),
            nearest_ns: of(&self.nearest_ns),
            farthest_ns: of(&self.farthest_ns),
            pairing_ns: of(&self.pairing_ns),
            steps_back: of(&self.steps_back),
            step_ns: of(&self.step_ns),
        };
        (unpaired.images() > 0 || unpaired.steps_back > 0).then_some(unpaired)
    }
}

impl FeedControl {
    fn state(&self) -> FeedState {
        STATES[usize::from(self.state.load(Ordering::Acquire)) % STATES.len()]
    }

    fn set(&self, state: FeedState) {
        self.state.store(state as u8, Ordering::Release);
    }

    fn fail(&self, error: &str, state: FeedState) {
        // Only ever replaced as a whole, so a panic elsewhere leaves it valid.
        *self.message.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.into());
        // Attempts to open it again are the same interruption.
        if self.state() != FeedState::Retrying {
            self.interruptions.fetch_add(1, Ordering::Release);
        }
        self.set(state);
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// A camera that runs.
///
/// The driver thread, named for example `cam0-replay`, is a plain thread with ordinary scheduling,
/// like those that vendors' libraries start (a *subthread*): the thread census finds it and gives
/// it the policy configured for such threads. It decodes ahead, waits until the frame is due,
/// publishes and notifies. Consumers see dropped frames as gaps in [`Frame::sequence`].
/// [`in_task`](Self::in_task) does without that thread: whoever judges the frames acquires them,
/// too.
#[derive(Debug)]
pub struct CameraFeed {
    index: u32,
    intrinsics: Intrinsics,
    has_depth: bool,
    signal: Signal,
    shared: Arc<FeedControl>,
    thread: Option<JoinHandle<()>>,
}

impl CameraFeed {
    /// Opens the camera and starts its driver thread. `index` is the camera's number, `readers` how
    /// many consumers read frames (each holds the frame that it read last, so another frame buffer
    /// is allocated for each).
    ///
    /// # Errors
    /// When the camera cannot be opened or the thread not be started. Later failures are in
    /// [`status`](Self::status).
    pub fn start(
        index: u32,
        config: &CameraConfig,
        pose: Option<Surroundings>,
        readers: usize,
        options: FeedOptions,
    ) -> Result<(Self, Vec<Reader<Frame>>), CameraError> {
        let config = config.clone();
        let backend = config.name();
        Self::start_with(index, backend, move || open(&config, pose.clone()), readers, options)
    }

    /// Like [`start`](Self::start) with a camera of the caller's own: `open` is called now, and
    /// again when the camera has vanished. `backend` is part of the thread's name.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        index: u32,
        backend: &str,
        open: impl FnMut() -> Result<Box<dyn Camera>, CameraError> + Send + 'static,
        readers: usize,
        options: FeedOptions,
    ) -> Result<(Self, Vec<Reader<Frame>>), CameraError> {
        let shared = Arc::new(FeedControl::default());
        let (mut feed, driver, readers) = Self::assemble(index, Box::new(open), readers, options, shared)?;
        let thread = std::thread::Builder::new()
            .name(format!("cam{index}-{backend}"))
            .spawn(move || driver.run())
            .map_err(CameraError::Thread)?;
        feed.thread = Some(thread);
        Ok((feed, readers))
    }

    /// Opens the camera for a thread that acquires and judges in one, as in SentryRT-1 (section
    /// III): it calls [`Acquisition::acquire`], which waits for the camera, decodes or copies, and
    /// publishes. No thread is started here but those of the camera's own library; for replay and
    /// the synthetic scene, which have none, one stands in that decodes ahead and hands frames over
    /// when they are due, as librealsense's threads do.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn in_task(
        index: u32,
        config: &CameraConfig,
        pose: Option<Surroundings>,
        readers: usize,
        options: FeedOptions,
    ) -> Result<(Self, Acquisition, Vec<Reader<Frame>>), CameraError> {
        let shared = Arc::new(FeedControl::default());
        let config = config.clone();
        let outer = FeedOptions { phase: Duration::ZERO, gate: None, ..options.clone() };
        let stopped = Arc::clone(&shared);
        let open = move || -> Result<Box<dyn Camera>, CameraError> {
            if config.device().is_some() {
                return open(&config, pose.clone());
            }
            let stopped = Arc::clone(&stopped);
            let ends = Box::new(move || stopped.stopping());
            Ok(Box::new(Handover::start(index, &config, pose.clone(), options.clone(), ends)?))
        };
        let (feed, driver, readers) = Self::assemble(index, Box::new(open), readers, outer, shared)?;
        Ok((feed, Acquisition(driver), readers))
    }

    /// Like [`in_task`](Self::in_task) with a camera of the caller's own.
    ///
    /// # Errors
    /// The error of `open`.
    pub fn in_task_with(
        index: u32,
        open: impl FnMut() -> Result<Box<dyn Camera>, CameraError> + Send + 'static,
        readers: usize,
        options: FeedOptions,
    ) -> Result<(Self, Acquisition, Vec<Reader<Frame>>), CameraError> {
        let shared = Arc::new(FeedControl::default());
        let (feed, driver, readers) = Self::assemble(index, Box::new(open), readers, options, shared)?;
        Ok((feed, Acquisition(driver), readers))
    }

    fn assemble(
        index: u32,
        mut open: Open,
        readers: usize,
        options: FeedOptions,
        shared: Arc<FeedControl>,
    ) -> Result<(Self, Driver, Vec<Reader<Frame>>), CameraError> {
        let camera = open()?;
        let intrinsics = camera.intrinsics();
        let has_depth = camera.has_depth();
        let new_frame = || Frame::new(intrinsics.width, intrinsics.height);
        let (writer, readers) = latest(readers, new_frame);
        let signal = Signal::new();
        let driver = Driver {
            intrinsics,
            camera: Some(camera),
            started: false,
            open,
            writer,
            spare: new_frame(),
            options,
            signal: signal.clone(),
            shared: Arc::clone(&shared),
            sequence_base: 0,
            last_sequence: 0,
        };
        Ok((Self { index, intrinsics, has_depth, signal, shared, thread: None }, driver, readers))
    }

    /// Number of the camera.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Intrinsics of all frames.
    pub fn intrinsics(&self) -> Intrinsics {
        self.intrinsics
    }

    /// Whether the camera measures depth.
    pub fn has_depth(&self) -> bool {
        self.has_depth
    }

    /// Notified after every frame and every change of state.
    pub fn signal(&self) -> Signal {
        self.signal.clone()
    }

    /// State of the feed: one atomic load, fit for real-time threads.
    pub fn state(&self) -> FeedState {
        self.shared.state()
    }

    /// State of the feed, and the reason of a failure. Takes a lock that is held for the copy of a
    /// pointer; real-time threads use [`state`](Self::state).
    pub fn status(&self) -> FeedStatus {
        let state = self.state();
        match state {
            FeedState::Starting => FeedStatus::Starting,
            FeedState::Running => FeedStatus::Running,
            FeedState::Ended => FeedStatus::Ended,
            FeedState::Stopped => FeedStatus::Stopped,
            FeedState::Retrying | FeedState::Failed => {
                let message = self.shared.message.lock().unwrap_or_else(PoisonError::into_inner).clone();
                FeedStatus::Failed {
                    message: message.unwrap_or_else(|| "unknown".into()),
                    retrying: state == FeedState::Retrying,
                }
            }
        }
    }

    /// Frames published so far.
    pub fn delivered(&self) -> u64 {
        self.shared.delivered.load(Ordering::Acquire)
    }

    /// Number of failures of the camera after it had been opened, whether it came back or not. The
    /// end of a recording does not count.
    pub fn interruptions(&self) -> u64 {
        self.shared.interruptions.load(Ordering::Acquire)
    }

    /// Images of a recording that have no partner within its `pairing_ms` and count as dropped,
    /// until now; `None` where there is none.
    pub fn unpaired(&self) -> Option<Unpaired> {
        self.shared.unpaired.get()
    }

    /// The camera's message at its last failure, even if it has come back since.
    pub fn last_failure(&self) -> Option<Arc<str>> {
        self.shared.message.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops the driver thread and waits for it: at most the time to the next frame, or the
    /// camera's time-out. A thread that acquires itself is reported and not waited for. Readers
    /// keep the last frame.
    pub fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.notify();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is in the state already.
            let _ = thread.join();
        }
    }
}

impl Drop for CameraFeed {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A camera whose frames are acquired by the thread that judges them.
pub struct Acquisition(Driver);

impl Acquisition {
    /// Blocks until the camera has a frame, takes it in, publishes it, and says true; false when
    /// none will come any more ([`CameraFeed::status`] says why) or the feed was stopped. A camera
    /// that vanished is opened again here.
    pub fn acquire(&mut self) -> bool {
        self.0.acquire()
    }
}

impl std::fmt::Debug for Acquisition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acquisition").field("intrinsics", &self.0.intrinsics).finish_non_exhaustive()
    }
}

type Open = Box<dyn FnMut() -> Result<Box<dyn Camera>, CameraError> + Send>;

/// State of the acquiring thread.
struct Driver {
    intrinsics: Intrinsics,
    /// `None` once no frame will come any more.
    camera: Option<Box<dyn Camera>>,
    /// Whether the camera knows when its frames start.
    started: bool,
    open: Open,
    writer: Writer<Frame>,
    spare: Frame,
    options: FeedOptions,
    signal: Signal,
    shared: Arc<FeedControl>,
    /// Added to the camera's sequence numbers, so that they go on growing when it was opened again.
    sequence_base: u64,
    last_sequence: u64,
}

/// Reports a thread that ends by a panic; consumers would take a silent end for a slow camera.
impl Drop for Driver {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.fail("the thread that acquires the frames panicked", FeedState::Failed);
            self.signal.notify();
        }
    }
}

impl Driver {
    fn run(mut self) {
        while self.acquire() {}
    }

    /// Publishes one frame; false when none will come any more.
    fn acquire(&mut self) -> bool {
        while let Some(mut camera) = self.camera.take() {
            if !self.started {
                let Some(origin_ns) = self.origin_ns() else { return self.end(FeedState::Stopped) };
                camera.start_at(origin_ns, self.options.phase.as_nanos() as u64);
                self.started = true;
            }
            if self.shared.stopping() {
                return self.end(FeedState::Stopped);
            }
            match self.deliver(camera.as_mut()) {
                Ok(()) => {
                    self.camera = Some(camera);
                    return true;
                }
                Err(_) if self.shared.stopping() => return self.end(FeedState::Stopped),
                Err(CameraError::Ended) => return self.end(FeedState::Ended),
                Err(error) if error.may_recover() => {
                    // The device must be closed before it can be opened again.
                    drop(camera);
                    self.report(&error, FeedState::Retrying);
                    match self.reopen() {
                        Ok(Some(again)) => (self.camera, self.started) = (Some(again), false),
                        Ok(None) => return self.end(FeedState::Stopped),
                        Err(error) => self.report(&error, FeedState::Failed),
                    }
                }
                Err(error) => self.report(&error, FeedState::Failed),
            }
        }
        false
    }

    fn end(&self, last: FeedState) -> bool {
        self.shared.set(last);
        self.signal.notify();
        false
    }

    /// When frames start; `None` when stopped before.
    fn origin_ns(&mut self) -> Option<u64> {
        let Some(gate) = self.options.gate.take() else { return Some(monotonic_ns()) };
        gate.arrive();
        loop {
            if self.shared.stopping() {
                return None;
            }
            if let Some(origin_ns) = gate.origin_ns(Duration::from_millis(50)) {
                return Some(origin_ns);
            }
        }
    }

    /// Publishes the camera's next frame.
    fn deliver(&mut self, camera: &mut dyn Camera) -> Result<(), CameraError> {
        // The buffers were another frame's: a backend that has no stamp must not inherit that
        // one's.
        self.spare.arrival_ns = 0;
        let acquired = camera.next_frame(&mut self.spare);
        // Also at the end of a recording, whose last images may have no partner.
        if let Some(unpaired) = camera.unpaired() {
            self.shared.unpaired.set(&unpaired);
        }
        acquired?;
        let spare = &mut self.spare;
        let size = (self.intrinsics.width, self.intrinsics.height);
        if (spare.width, spare.height) != size
            || spare.rgb.len() != self.intrinsics.pixels() * 3
            || spare.depth_mm.len() != self.intrinsics.pixels()
        {
            return Err(CameraError::SizeMismatch {
                what: format!("frame {}", spare.sequence),
                width: size.0,
                height: size.1,
                found_width: spare.width,
                found_height: spare.height,
            });
        }
        // Saturating: numbers are the device's, and may be anything.
        spare.sequence = spare.sequence.saturating_add(self.sequence_base);
        if let Some(Streams { colour, depth }) = &mut spare.streams {
            for stream in [colour, depth] {
                stream.number = stream.number.saturating_add(self.sequence_base);
            }
        }
        self.last_sequence = spare.sequence;
        // The backend's stamp lies before decoding and copying. Later than now it is of no clock of
        // ours.
        let now_ns = monotonic_ns();
        if spare.arrival_ns == 0 || spare.arrival_ns > now_ns {
            spare.arrival_ns = now_ns;
        }
        // Swapping moves the buffers, not the pixels: the slot's old ones take the next frame.
        self.writer.write(spare.arrival_ns, |slot| std::mem::swap(slot, spare));
        self.shared.delivered.fetch_add(1, Ordering::Release);
        if self.shared.state() != FeedState::Running {
            self.shared.set(FeedState::Running);
        }
        self.signal.notify();
        Ok(())
    }

    fn report(&self, error: &CameraError, state: FeedState) {
        self.shared.fail(&error.to_string(), state);
        self.signal.notify();
    }

    /// Opens the camera again, waiting longer after every failure; `None` when stopped.
    fn reopen(&mut self) -> Result<Option<Box<dyn Camera>>, CameraError> {
        // One number is left out: frames were lost, and consumers see that.
        // Unless the camera's numbers were such that they cannot.
        self.sequence_base = if self.last_sequence < u64::MAX / 2 { self.last_sequence + 1 } else { 0 };
        let mut wait = self.options.retry_first;
        loop {
            let seen = self.shared.wake.value();
            if self.shared.stopping() {
                return Ok(None);
            }
            self.shared.wake.wait(seen, wait);
            if self.shared.stopping() {
                return Ok(None);
            }
            match (self.open)() {
                Ok(camera) if camera.intrinsics() == self.intrinsics => return Ok(Some(camera)),
                Ok(camera) => {
                    return Err(CameraError::Changed { before: self.intrinsics, found: camera.intrinsics() });
                }
                Err(error) if error.may_recover() => self.report(&error, FeedState::Retrying),
                Err(error) => return Err(error),
            }
            wait = (wait * 2).min(self.options.retry_most);
        }
    }
}
