//! Starts the worker process, looks after it, ends it, starts it again. An ordinary thread: nothing
//! real-time waits for it, because the cameras' threads open the breaker themselves.

mod process;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Fallback, GpuConfig, Perception};
use serde::Serialize;
use takt_gpu::sharing::{self, SharingError};
use takt_rt::census::CensusReport;
use takt_rt::clock::monotonic_ns;
use takt_rt::ring::{Consumer, Producer, ring};
use takt_rt::thread;

use crate::process::breaker::{State, Trip};
use crate::process::channel::{Asker, Channel};
use crate::process::event::{EventKind, Record};
use crate::process::message::{About, Message, WorkerThread};
use crate::process::region::{Region, Setup};
use crate::process::remote::{Remote, Rules};
use crate::process::text::Text;
use crate::process::worker_state::WorkerState;
use process::{Process, in_words};

/// Period at which the supervisor checks without being called.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time that a worker may take to end when asked to, before it is killed.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// Longest wait between two starts.
const MAX_BACK_OFF: Duration = Duration::from_secs(30);
/// A run of this length without a restart begins the count anew.
const FORGET_AFTER: Duration = Duration::from_secs(3600);
/// Records that a starving collector may fall behind: a camera at 30 FPS for half an hour.
const RING_CAPACITY: usize = 1 << 12;

/// The program that runs [`worker::run`](super::worker::run).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    pub arguments: Vec<OsString>,
    /// Variables added to its environment.
    pub variables: Vec<(OsString, OsString)>,
}

/// Hidden subcommand of `takt` that is a worker.
pub const WORKER_COMMAND: &str = "perception-worker";

impl Program {
    /// This very program with its hidden subcommand.
    ///
    /// # Errors
    /// When the program's own path is unknown.
    pub fn own() -> io::Result<Self> {
        Ok(Self {
            path: std::env::current_exe()?,
            arguments: vec![WORKER_COMMAND.into()],
            variables: Vec::new(),
        })
    }
}

/// Reason why there is no worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Memory or process could not be had.
    #[error("the perception process cannot be started ({what}): {source}")]
    Start { what: String, source: io::Error },
    /// The worker said why it cannot work.
    #[error("{0}")]
    Refused(String),
    /// The worker ended before it was ready.
    #[error("the perception process ended before it was ready ({status}){last_words}")]
    Ended {
        status: String,
        /// Its last words, with a separator, or nothing.
        last_words: String,
    },
    /// The worker took too long.
    #[error(
        "the perception process was not ready within {waited:?}; the first start with TensorRT builds engines: raise \
         perception.gpu.start_timeout_s"
    )]
    Slow { waited: Duration },
    /// Its starter cancelled it.
    #[error("stopped before the perception process was ready")]
    Stopped,
    /// The device cannot be shared with other programs as asked for.
    #[error("perception.gpu.sharing: {0}")]
    Sharing(#[from] SharingError),
    /// A thread could not be started.
    #[error(transparent)]
    Thread(#[from] takt_rt::Error),
}

/// Facts about the worker, for the run directory.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WorkerFacts {
    /// The judge.
    pub about: About,
    /// Process id of the living worker.
    pub pid: Option<u32>,
    /// Number of the living worker, from 1.
    pub generation: u32,
    /// Its judging threads and what the kernel granted them.
    pub threads: Vec<WorkerThread>,
    /// All its threads.
    pub census: Option<CensusReport>,
    /// Its sharing of the device with other programs.
    pub sharing: String,
}

/// A worker process under supervision.
#[derive(Debug)]
pub struct Supervisor {
    shared: Arc<WorkerState>,
    stop: Arc<AtomicBool>,
    facts: Arc<Mutex<WorkerFacts>>,
    thread: Option<thread::Handle>,
}

/// Everything that starts with a worker.
#[derive(Debug)]
pub struct Started {
    /// Looks after it.
    pub supervisor: Supervisor,
    /// Each camera's side.
    pub remotes: Vec<Remote>,
    /// Records of each camera's side and of the supervisor.
    pub records: Vec<Consumer<Record>>,
}

/// State of the supervisor's thread.
struct Keeper {
    program: Program,
    region: Region,
    wakers: Vec<Channel>,
    shared: Arc<WorkerState>,
    config: GpuConfig,
    stop: Arc<AtomicBool>,
    facts: Arc<Mutex<WorkerFacts>>,
    records: Producer<Record>,
    process: Option<Process>,
    /// Behind the process, which uses what this started.
    sharing: sharing::Shared,
    generation: u32,
    restarts: u32,
    /// Failures in a row, for the back-off.
    failures: u32,
    /// When the last fresh process became ready.
    ready_at: Instant,
}

impl Supervisor {
    /// Starts a worker and waits until it is ready. `fallbacks` are the cameras' own judges for
    /// frames over budget, as the configuration asks for them. `progress` is called with what takes
    /// long; once `stop` is set, nothing is waited for any more.
    ///
    /// # Errors
    /// [`WorkerError`]; nothing is left running.
    pub fn start(
        setup: Setup,
        mut program: Program,
        fallbacks: Vec<Option<Perception>>,
        progress: &mut dyn FnMut(&str),
        stop: &AtomicBool,
    ) -> Result<Started, WorkerError> {
        let asked_to_stop = || stop.load(Ordering::Acquire);
        let config = setup.perception.gpu.clone();
        let sharing = config.sharing.begin(config.ordinal)?;
        program.variables.extend_from_slice(sharing.own());
        let memory = |source| WorkerError::Start { what: "shared memory".to_owned(), source };
        let cameras = setup.cameras.len();
        let region = Region::create(setup).map_err(memory)?;
        region.set_generation(1);
        let shared = Arc::new(WorkerState::new(cameras, config.breaker.trials));
        let channels = region.channels().map_err(memory)?;
        let wakers = channels.iter().map(Channel::again).collect();
        let rules = Rules::of(&config);
        let mut remotes = Vec::new();
        let mut records = Vec::new();
        for (index, (channel, fallback)) in channels.into_iter().zip(fallbacks).enumerate() {
            let (producer, consumer) = ring(RING_CAPACITY);
            let asker = Asker::new(channel);
            let fallback = fallback.filter(|_| config.fallback != Fallback::Drop);
            remotes.push(Remote::new(
                index as u32,
                asker,
                Arc::clone(&shared),
                rules.clone(),
                fallback,
                producer,
            ));
            records.push(consumer);
        }
        let (producer, consumer) = ring(RING_CAPACITY);
        records.push(consumer);
        let stop = Arc::new(AtomicBool::new(false));
        let facts = Arc::new(Mutex::new(WorkerFacts::default()));
        let keeper = Keeper {
            program,
            region,
            wakers,
            shared: Arc::clone(&shared),
            config,
            stop: Arc::clone(&stop),
            facts: Arc::clone(&facts),
            records: producer,
            process: None,
            sharing,
            generation: 1,
            restarts: 0,
            failures: 0,
            ready_at: Instant::now(),
        };
        let (sender, receiver) = mpsc::channel();
        // The worker is killed when the thread that started it ends, so this thread starts all of
        // them.
        let thread = thread::spawn_exempt("supervisor", "supervises the perception process", move || {
            keeper.run(&sender);
        })?;
        let supervisor = Self { shared, stop, facts, thread: Some(thread) };
        loop {
            if asked_to_stop() {
                // Dropping the supervisor ends what it has begun.
                return Err(WorkerError::Stopped);
            }
            match receiver.recv_timeout(LOOK_EVERY) {
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Ok(First::Progress(text)) => progress(&text),
                Ok(First::Ready) => return Ok(Started { supervisor, remotes, records }),
                Ok(First::Failed(error)) => return Err(error),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(WorkerError::Refused("the supervisor ended".to_owned()));
                }
            }
        }
    }

    /// Facts about the worker.
    pub fn facts(&self) -> WorkerFacts {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills the living worker, as the kernel does when memory runs out: for checks of what
    /// follows.
    ///
    /// # Errors
    /// The system's answer; [`io::ErrorKind::NotFound`] when none lives.
    pub fn kill_worker(&self) -> io::Result<()> {
        let pid = self.facts().pid.and_then(|pid| i32::try_from(pid).ok()).ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: kill touches no memory; the worker is not reaped before its facts are renewed.
        if unsafe { libc::kill(pid, libc::SIGKILL) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// State of the breaker.
    pub fn state(&self) -> State {
        self.shared.breaker.view().state()
    }

    /// Ends the worker, and waits for that.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.shared.changed.notify();
        if let Some(thread) = self.thread.take() {
            // Its result no longer matters.
            let _ = thread.join();
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Report of the first start.
enum First {
    Progress(String),
    Ready,
    Failed(WorkerError),
}

/// Reason why the supervisor waits for a while.
enum Until {
    /// The time has passed.
    Passed,
    /// The cell ends.
    Stopped,
}

impl Keeper {
    fn run(mut self, sender: &Sender<First>) {
        let started = self.start_process(&mut |text| drop(sender.send(First::Progress(text))));
        match started {
            Ok(()) => drop(sender.send(First::Ready)),
            Err(error) => {
                self.process = None;
                drop(sender.send(First::Failed(error)));
                return;
            }
        }
        while !self.stop.load(Ordering::Acquire) {
            let seen = self.shared.changed.value();
            self.listen();
            self.look();
            self.shared.changed.wait(seen, LOOK_EVERY);
        }
        self.end();
    }

    /// Takes the messages of the running worker.
    fn listen(&mut self) {
        let Some(process) = &mut self.process else { return };
        loop {
            match process.messages.try_recv() {
                Ok(Message::Census(report)) => {
                    self.facts.lock().unwrap_or_else(PoisonError::into_inner).census = Some(report);
                }
                Ok(_) => {}
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    /// Acts on what happened.
    fn look(&mut self) {
        if let Some(ended) = self.process.as_mut().and_then(Process::ended) {
            let cause = Text::format(format_args!("the perception process {ended}"));
            self.note(EventKind::Crashed, cause);
            if self.shared.breaker.trip(Trip::Crashed) {
                self.note(EventKind::BreakerOpen, cause);
            }
            self.process = None;
            self.facts.lock().unwrap_or_else(PoisonError::into_inner).pid = None;
        }
        let state = self.shared.breaker.view().state();
        if state == State::Closed {
            self.failures = 0;
        }
        if state == State::Open {
            // Waiting threads can stop waiting.
            self.wakers.iter().for_each(Channel::wake_cell);
            self.recover();
        }
    }

    /// From open to half-open, or to given up.
    fn recover(&mut self) {
        if self.ready_at.elapsed() >= FORGET_AFTER {
            (self.restarts, self.failures) = (0, 0);
        }
        let trip = self.shared.breaker.view().trip();
        // A worker that answers late is in order: a fresh one would find the same busy device,
        // seconds later. Only one that has failed its trial, too, is replaced.
        let keep = trip == Trip::Overruns && self.failures == 0 && self.process.is_some();
        self.failures = self.failures.saturating_add(1);
        if !keep {
            self.kill();
        }
        let cool_down = Duration::from_secs_f64(self.config.breaker.cool_down_ms / 1e3);
        let doubled = cool_down.saturating_mul(1 << (self.failures - 1).min(16));
        if let Until::Stopped = self.pause(doubled.clamp(cool_down, MAX_BACK_OFF.max(cool_down))) {
            return;
        }
        if !keep && !self.restart() {
            return;
        }
        if keep && self.process.as_mut().is_some_and(|process| process.ended().is_some()) {
            // Died meanwhile; the next look says so and replaces it.
            return;
        }
        if self.shared.breaker.half_open() {
            let cause =
                Text::format(format_args!("{} frames of each camera on trial", self.config.breaker.trials));
            self.note(EventKind::BreakerHalfOpen, cause);
        }
    }

    /// A fresh process; false when there is none (yet).
    fn restart(&mut self) -> bool {
        if self.restarts >= self.config.breaker.restarts {
            let cause =
                Text::format(format_args!("{} restarts, perception.gpu.breaker.restarts", self.restarts));
            if self.shared.breaker.give_up() {
                self.note(EventKind::GivenUp, cause);
            }
            return false;
        }
        self.restarts += 1;
        self.generation = self.generation.wrapping_add(1).max(1);
        match self.start_process(&mut |_| ()) {
            Ok(()) => {
                // No older process lives: `kill` has waited for that.
                self.shared.set_generation(self.generation);
                let cause = Text::format(format_args!("process {} is ready", self.generation));
                self.note(EventKind::Restarted, cause);
                true
            }
            Err(error) => {
                self.kill();
                self.note(EventKind::RestartFailed, Text::format(format_args!("{error}")));
                false
            }
        }
    }

    /// Starts a process of the current generation and waits until it is ready.
    fn start_process(&mut self, progress: &mut dyn FnMut(String)) -> Result<(), WorkerError> {
        self.region.set_generation(self.generation);
        self.region.set_stop(false);
        let mut process = Process::start(&self.program, &self.region)?;
        let waited = Duration::from_secs_f64(self.config.start_timeout_s);
        let until = Instant::now() + waited;
        let (about, threads) = loop {
            match process.messages.recv_timeout(LOOK_EVERY) {
                Ok(Message::Progress(text)) => progress(text),
                Ok(Message::Ready { about, threads }) => break (about, threads),
                Ok(Message::Failed(sentence)) => return Err(WorkerError::Refused(sentence)),
                Ok(Message::Census(_)) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    // Its last words may still be under way.
                    std::thread::sleep(LOOK_EVERY);
                    let status = match process.child.try_wait() {
                        Ok(Some(status)) => in_words(status),
                        _ => "it closed its output".to_owned(),
                    };
                    return Err(WorkerError::Ended { status, last_words: process.last_words() });
                }
            }
            if self.stop.load(Ordering::Acquire) {
                return Err(WorkerError::Refused("the cell ends".to_owned()));
            }
            if Instant::now() >= until {
                return Err(WorkerError::Slow { waited });
            }
        };
        let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        *facts = WorkerFacts {
            about,
            pid: Some(process.child.id()),
            generation: self.generation,
            threads,
            census: facts.census.take(),
            sharing: self.sharing.in_words().to_owned(),
        };
        drop(facts);
        self.process = Some(process);
        self.ready_at = Instant::now();
        Ok(())
    }

    /// Kills the process and waits until it is gone, however long: while the kernel holds it, its
    /// device is no use to a new process, and its memory not safe to hand on.
    fn kill(&mut self) {
        let Some(process) = &mut self.process else { return };
        if !process.kill() {
            let pid = process.child.id();
            let cause = Text::format(format_args!(
                "process {pid} cannot be stopped while it is inside the device's driver; no new process starts before it ends"
            ));
            self.note(EventKind::RestartFailed, cause);
            while !self.stop.load(Ordering::Acquire) {
                if self.process.as_mut().is_none_or(Process::kill) {
                    break;
                }
            }
        }
        self.process = None;
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).pid = None;
    }

    fn pause(&mut self, length: Duration) -> Until {
        let until = Instant::now() + length;
        while Instant::now() < until {
            if self.stop.load(Ordering::Acquire) {
                return Until::Stopped;
            }
            self.listen();
            std::thread::sleep(LOOK_EVERY.min(until.saturating_duration_since(Instant::now())));
        }
        Until::Passed
    }

    fn note(&mut self, kind: EventKind, cause: Text) {
        self.records.push(Record::of(kind, monotonic_ns(), self.generation, cause));
    }

    /// Ends the worker in order, or else by force.
    fn end(&mut self) {
        self.region.set_stop(true);
        self.wakers.iter().for_each(Channel::wake_worker);
        let Some(process) = &mut self.process else { return };
        let until = Instant::now() + END_PATIENCE;
        while Instant::now() < until {
            if process.ended().is_some() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        process.kill();
    }
}
