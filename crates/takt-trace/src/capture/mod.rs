//! Live capture: kernel tracepoints through perf ring buffers, drained by a best-effort thread into
//! memory.
//!
//! The traced threads do nothing for it: no system call, no allocation. The kernel's records cost
//! it a few hundred nanoseconds per event, and there are about twenty events per release.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_rt::config::SettingError;
use takt_rt::signal::Signal;
use takt_rt::thread::{self, Handle};

pub use self::awake::{KeepAwake, helper_process};
use self::flight::Mark;
use self::open::{How, open_all};
use self::reader::Reader;
pub use self::watched::Watched;
use crate::error::TraceError;
use crate::event::{Span, Trace};

pub(crate) mod awake;
mod firmware;
mod flight;
pub(crate) mod open;
mod reader;
mod stacks;
mod steal;
mod watched;
mod window;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceOptions {
    /// Ring buffer per CPU, rounded up to a power of two. 8 MiB hold some 100,000 events: seconds
    /// of a busy CPU, for as long may a real-time hog keep the reader away before events are lost.
    pub buffer_bytes: usize,
    /// Memory for the events of all CPUs; beyond it the oldest are forgotten, except in windows
    /// that were marked, which have as much again and are packed to a quarter. 256 MiB hold minutes
    /// of a usual robot.
    pub memory_bytes: usize,
    /// Period at which the reader drains the rings: 20 ms, so that it seldom wakes up.
    #[serde(with = "takt_rt::duration")]
    pub period: Duration,
    /// Processes whose page faults are recorded; this one is always among them. Those of all others
    /// would fill the ring and explain nothing.
    pub processes: Vec<i32>,
    /// Whether the reader drains the rings at all. Off only to measure what full rings cost.
    pub drain: bool,
    /// Whether CPUs whose idle time leaves no events are kept out of it.
    pub keep_awake: KeepAwake,
    /// Whether the kernel's stack is taken at the wake-ups of the traced processes' threads, so
    /// that "interrupts off" and "not preemptible" say where. Default on: it costs a traced thread
    /// a microsecond or two of each release.
    pub stacks: bool,
    /// Whether gaps by the firmware (SMI) are looked for on bare metal: by the count of SMIs, or
    /// where that cannot be read by a thread that keeps one CPU busy below all others (SCHED_IDLE).
    /// Default on: else they are charged to the job itself.
    pub firmware: bool,
    /// Whether the kernel alone keeps the events, the newest overwriting the oldest, and only the
    /// windows are read that [`Tracer::windows`] asks for. A program chooses it, no configuration:
    /// everything else that is read is empty then.
    #[serde(skip)]
    pub windows_only: bool,
    /// Whether the steps of packets through the kernel are recorded as well. As above, whoever
    /// follows a link chooses it.
    #[serde(skip)]
    pub packets: bool,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            buffer_bytes: 8 << 20,
            memory_bytes: 256 << 20,
            period: Duration::from_millis(20),
            processes: Vec::new(),
            drain: true,
            keep_awake: KeepAwake::Auto,
            stacks: true,
            firmware: true,
            windows_only: false,
            packets: false,
        }
    }
}

impl TraceOptions {
    /// Checks the values.
    ///
    /// # Errors
    /// [`TraceError::Options`].
    pub fn validate(&self) -> Result<(), TraceError> {
        let refused = |key, received: String, accepted| {
            Err(TraceError::Options(SettingError::value(key, received, accepted)))
        };
        if !(64 << 10..=1 << 30).contains(&self.buffer_bytes) {
            return refused("buffer_bytes", self.buffer_bytes.to_string(), "accepted are 64 KiB to 1 GiB");
        }
        if self.memory_bytes < 1 << 20 {
            return refused("memory_bytes", self.memory_bytes.to_string(), "accepted is 1 MiB or more");
        }
        if self.period < Duration::from_millis(1) || self.period > Duration::from_secs(1) {
            return refused("period", format!("{:?}", self.period), "accepted are 1 ms to 1 s");
        }
        Ok(())
    }
}

/// Destination of the answer, and the requested windows; None for everything since the last time.
type Asked = (SyncSender<Trace>, Option<Vec<Span>>);

/// State shared by the reader and its owner.
#[derive(Default)]
struct Control {
    stop: AtomicBool,
    signal: Signal,
    marks: Mutex<Vec<Mark>>,
    marked: AtomicU64,
    /// Request of an owner that waits for everything so far, or for some windows of it.
    take: Mutex<Option<Asked>>,
    /// Processes that the owner wants followed from now on.
    processes: Mutex<Option<Vec<i32>>>,
    /// Threads whose wake-ups' stacks the owner wants from now on.
    stacks: Mutex<Option<Vec<i32>>>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

/// A capture under way. Dropping it ends it and throws the events away.
#[derive(Debug)]
pub struct Tracer {
    control: Arc<Control>,
    reader: Option<Handle<Reader>>,
    tid: i32,
}

/// Asks a tracer to keep a window, from any thread that may take a lock (a collector, never a
/// real-time thread).
#[derive(Debug, Clone)]
pub struct Marker(Arc<Control>);

/// Of the reader's thread: before what else has no real-time policy.
const NICE: i32 = -10;

/// Kept before and after a late job.
const MARGIN_NS: u64 = 5_000_000;

/// Windows that wait to be kept at most: those of the worst releases. Each waits until its time
/// would be forgotten.
const MAX_MARKS: usize = 1000;

impl Marker {
    /// Keeps what the kernel did from `from_ns` to `to_ns` (CLOCK_MONOTONIC), for a release that
    /// was `weight_ns` late: where memory runs out, the worst are kept.
    pub fn mark(&self, from_ns: u64, to_ns: u64, weight_ns: u64) {
        self.0.marked.fetch_add(1, Ordering::Relaxed);
        let mark = Mark { span: Span { from_ns, to_ns }, weight_ns };
        let mut marks = self.0.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.len() < MAX_MARKS {
            marks.push(mark);
        } else if let Some(least) = marks.iter_mut().min_by_key(|mark| mark.weight_ns)
            && least.weight_ns < weight_ns
        {
            *least = mark;
        }
    }

    /// Keeps the window of a late job, with a little before and after it.
    pub fn mark_job(&self, planned_ns: u64, end_ns: u64, weight_ns: u64) {
        self.mark(planned_ns.saturating_sub(MARGIN_NS), end_ns.saturating_add(MARGIN_NS), weight_ns);
    }

    /// Windows that were asked for so far.
    pub fn marked(&self) -> u64 {
        self.0.marked.load(Ordering::Relaxed)
    }
}

impl Tracer {
    /// Starts to record on every CPU.
    ///
    /// # Errors
    /// [`TraceError`], each with the way out. The run itself can go on untraced.
    pub fn start(options: &TraceOptions) -> Result<Self, TraceError> {
        options.validate()?;
        let data_bytes = takt_rt::perf_ring::buffer_bytes(options.buffer_bytes);
        let cpus = online_cpus();
        let opened =
            open_all(&cpus, How { data_bytes, overwritten: options.windows_only, packets: options.packets })?;
        let control = Arc::new(Control::default());
        let mut reader = Reader::new(opened, options.clone());
        reader.begin()?;
        if options.keep_awake == KeepAwake::Auto {
            awake::nap_everywhere(&cpus);
            reader.drain(&[]);
        }
        let shared = Arc::clone(&control);
        let why = "drains the ring buffers of the trace";
        let read = move || {
            // Events that it does not read in time are lost, and the examined machine is often one
            // that is overloaded.
            let _favoured = takt_rt::policy::Favoured::begin(NICE);
            reader.run(&shared)
        };
        let handle = thread::spawn_exempt("takt-trace", why, read).map_err(TraceError::Reader)?;
        let tid = handle.tid();
        Ok(Self { control, reader: Some(handle), tid })
    }

    /// Thread id of the reader.
    pub(crate) fn reader_tid(&self) -> i32 {
        self.tid
    }

    /// CPU time that the reader has taken so far.
    pub fn reader_cpu_ns(&self) -> u64 {
        takt_rt::clock::cpu_ns_of_thread(self.tid)
    }

    /// Returns the marker that keeps windows.
    pub fn marker(&self) -> Marker {
        Marker(Arc::clone(&self.control))
    }

    /// Hands out what was recorded since the last time, and forgets it; the recording goes on.
    /// Events of the CPUs that are newer than the end of [`Trace::spans`] may lack those of other
    /// CPUs, which come with the next part.
    ///
    /// # Errors
    /// [`TraceError::Ended`] when the reader has ended.
    pub fn take(&self) -> Result<Trace, TraceError> {
        self.ask(None)
    }

    /// With [`TraceOptions::windows_only`]: reads the events of `spans` (in the order of time, and
    /// apart from each other) out of the kernel's memory, with what was read of counters since the
    /// last time. [`Trace::spans`] are those that were still there, of one the end alone where its
    /// begin was overwritten.
    ///
    /// # Errors
    /// [`TraceError::Ended`] when the reader has ended.
    pub fn windows(&self, spans: Vec<Span>) -> Result<Trace, TraceError> {
        self.ask(Some(spans))
    }

    /// With [`TraceOptions::windows_only`]: the kernel's stacks at the wake-ups of these threads
    /// are recorded from now on.
    pub fn stacks_of(&self, threads: Vec<i32>) {
        *self.control.stacks.lock().unwrap_or_else(PoisonError::into_inner) = Some(threads);
        self.control.signal.notify();
    }

    fn ask(&self, spans: Option<Vec<Span>>) -> Result<Trace, TraceError> {
        let (owner, answer) = sync_channel(1);
        *self.control.take.lock().unwrap_or_else(PoisonError::into_inner) = Some((owner, spans));
        self.control.signal.notify();
        // A reader that panics drops nothing of `control`, so it is asked now and then whether it
        // lives.
        loop {
            match answer.recv_timeout(Duration::from_secs(1)) {
                Ok(trace) => return Ok(trace),
                Err(_) if self.reader.as_ref().is_some_and(|reader| !reader.is_finished()) => {}
                Err(_) => return Err(TraceError::Ended),
            }
        }
    }

    /// From now on the page faults and the stacks at wake-ups of these processes are recorded,
    /// instead of those that the options named.
    pub fn follow(&self, processes: Vec<i32>) {
        *self.control.processes.lock().unwrap_or_else(PoisonError::into_inner) = Some(processes);
        self.control.signal.notify();
    }

    /// Ends the recording and brings the events into the order of time.
    ///
    /// # Errors
    /// [`TraceError::Reader`] when the reader panicked.
    pub fn stop(mut self) -> Result<Trace, TraceError> {
        self.request_stop();
        let Some(reader) = self.reader.take() else { return Ok(Trace::default()) };
        let reader = reader.join().map_err(TraceError::Reader)?;
        Ok(reader.into_trace(self.control.marked.load(Ordering::Relaxed)))
    }

    fn request_stop(&self) {
        self.control.stop.store(true, Ordering::Release);
        self.control.signal.notify();
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            self.request_stop();
            let _ = reader.join();
        }
    }
}

/// The CPUs that are online; the first where the system does not say.
fn online_cpus() -> Vec<u16> {
    let online = takt_rt::placement::online().map(|online| online.iter().map(|cpu| cpu as u16).collect());
    online.unwrap_or_else(|_| vec![0])
}
