//! Live capture: kernel tracepoints through perf ring buffers, drained by a best-effort thread into memory.
//!
//! The traced threads do nothing for it: no system call, no allocation. What the kernel writes costs it a few hundred
//! nanoseconds per event, and there are about twenty events per release.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CString;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_rt::clock::monotonic_ns;
use takt_rt::jobs::{JobRecord, JobSink, TaskId};
use takt_rt::signal::Signal;
use takt_rt::thread::{self, Handle};

pub use self::awake::KeepAwake;
use self::awake::{IdleTime, IdleWatch, Keeper};
use self::flight::{Chunk, Flight, Mark};
use self::open::{Opened, open_all};
use self::steal::StealLog;
use crate::error::TraceError;
use crate::event::{Event, Kind, Span, Thread, Trace};
use crate::format::{Decoder, note_name};

pub(crate) mod awake;
mod flight;
mod open;
mod steal;

/// How to trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceOptions {
    /// Ring buffer per CPU, rounded up to a power of two. 8 MiB hold some 100,000 events: seconds of a busy CPU, for
    /// as long may a real-time hog keep the reader away before events are lost.
    pub buffer_bytes: usize,
    /// Memory for the events of all CPUs; beyond it the oldest are forgotten, except in windows that were marked,
    /// which have as much again. 256 MiB hold minutes of a usual robot.
    pub memory_bytes: usize,
    /// How often the reader drains the rings: 20 ms, so that it wakes up seldom.
    #[serde(with = "takt_rt::duration")]
    pub period: Duration,
    /// Processes whose page faults are recorded; this one is always among them. Those of all others would fill the
    /// ring and explain nothing.
    pub processes: Vec<i32>,
    /// Whether the reader drains the rings at all. Off only to measure what full rings cost.
    pub drain: bool,
    /// Whether CPUs whose idle time leaves no events are kept out of it.
    pub keep_awake: KeepAwake,
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
        }
    }
}

impl TraceOptions {
    /// Checks the values.
    ///
    /// # Errors
    /// [`TraceError::Options`].
    pub fn validate(&self) -> Result<(), TraceError> {
        let error = |text: String| Err(TraceError::Options(text));
        if !(64 << 10..=1 << 30).contains(&self.buffer_bytes) {
            return error(format!("buffer_bytes is {}; expected 64 KiB to 1 GiB", self.buffer_bytes));
        }
        if self.memory_bytes < 1 << 20 {
            return error(format!("memory_bytes is {}; expected at least 1 MiB", self.memory_bytes));
        }
        if self.period < Duration::from_millis(1) || self.period > Duration::from_secs(1) {
            return error(format!("period is {:?}; expected 1 ms to 1 s", self.period));
        }
        Ok(())
    }
}

/// What the reader and its owner share.
#[derive(Default)]
struct Control {
    stop: AtomicBool,
    signal: Signal,
    marks: Mutex<Vec<Mark>>,
    marked: AtomicU64,
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

/// Asks a tracer to keep a window, from any thread that may take a lock (a collector, never a real-time thread).
#[derive(Debug, Clone)]
pub struct Marker(Arc<Control>);

/// Windows that wait to be kept at most: those of the worst releases. Each waits until its time would be forgotten.
const MOST_MARKS: usize = 1000;

impl Marker {
    /// Keeps what the kernel did from `from_ns` to `to_ns` (CLOCK_MONOTONIC), for a release that was `weight_ns` late:
    /// where memory runs out, the worst are kept.
    pub fn mark(&self, from_ns: u64, to_ns: u64, weight_ns: u64) {
        self.0.marked.fetch_add(1, Ordering::Relaxed);
        let mark = Mark { span: Span { from_ns, to_ns }, weight_ns };
        let mut marks = self.0.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.len() < MOST_MARKS {
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
        let opened = open_all(&cpus, data_bytes)?;
        let control = Arc::new(Control::default());
        let mut reader = Reader::new(opened, options.clone());
        for cpu in &reader.opened.cpus {
            cpu.enable(true)?;
        }
        read_names(&mut reader.met);
        reader.filter_faults();
        reader.steal.read(true);
        reader.drained_ns.fill(monotonic_ns());
        if options.keep_awake == KeepAwake::Auto {
            awake::nap_everywhere(&cpus);
            reader.drain(&[]);
        }
        let shared = Arc::clone(&control);
        let why = "drains the ring buffers of the trace";
        let handle = thread::spawn_exempt("takt-trace", why, move || reader.run(&shared))
            .map_err(TraceError::Reader)?;
        let tid = handle.tid();
        Ok(Self { control, reader: Some(handle), tid })
    }

    /// Thread id of the reader.
    pub fn reader_tid(&self) -> i32 {
        self.tid
    }

    /// What keeps windows.
    pub fn marker(&self) -> Marker {
        Marker(Arc::clone(&self.control))
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

/// State of the reader's thread.
#[derive(Debug)]
struct Reader {
    opened: Opened,
    options: TraceOptions,
    flights: Vec<Flight>,
    /// When each CPU was drained last.
    drained_ns: Vec<u64>,
    /// Threads whose page faults are recorded.
    threads: BTreeSet<i32>,
    /// Names and processes of all threads met, also of those that have ended.
    met: BTreeMap<i32, Thread>,
    /// What the idle time of each CPU leaves, as far as it is judged.
    watches: Vec<IdleWatch>,
    keepers: Vec<Keeper>,
    steal: StealLog,
    /// Links of the watched processes' task directories when they were read last: they change with the threads.
    links: u64,
}

/// More threads than this, and page faults of all are recorded.
const MOST_FILTERED: usize = 100;

impl Reader {
    fn new(opened: Opened, options: TraceOptions) -> Self {
        let count = opened.cpus.len();
        let flights = (0..count).map(|_| Flight::default()).collect();
        Self {
            opened,
            options,
            flights,
            drained_ns: vec![0; count],
            threads: BTreeSet::new(),
            met: BTreeMap::new(),
            watches: vec![IdleWatch::default(); count],
            keepers: Vec::new(),
            steal: StealLog::new(is_guest()),
            links: 0,
        }
    }

    fn run(mut self, control: &Control) -> Self {
        loop {
            let seen = control.signal.value();
            if control.stop.load(Ordering::Acquire) {
                break;
            }
            if self.options.drain {
                let marks = control.marks.lock().unwrap_or_else(PoisonError::into_inner).clone();
                self.drain(&marks);
                self.forget_marks(control);
                self.filter_faults();
                self.steal.read(false);
            }
            control.signal.wait(seen, self.options.period);
        }
        for cpu in &self.opened.cpus {
            // Closing them ends them as well.
            let _ = cpu.enable(false);
        }
        let marks = control.marks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.drain(&marks);
        self.steal.read(true);
        self
    }

    /// Takes away marks of times that are forgotten or kept by now.
    fn forget_marks(&self, control: &Control) {
        let oldest_ns = self.flights.iter().map(Flight::oldest_ns).min().unwrap_or(0);
        let mut marks = control.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.retain(|mark| mark.span.to_ns >= oldest_ns);
    }

    fn drain(&mut self, marks: &[Mark]) {
        let limit = self.options.memory_bytes / self.flights.len().max(1);
        let mut hidden = Vec::new();
        for (index, cpu) in self.opened.cpus.iter_mut().enumerate() {
            // Read before the head: events up to this time are in the ring when the head is read.
            let to_ns = monotonic_ns();
            let mut data = Vec::with_capacity(cpu.ring.waiting() + 4096);
            cpu.ring.drain(&mut data);
            let span = Span { from_ns: self.drained_ns[index], to_ns };
            self.drained_ns[index] = to_ns;
            if self.options.keep_awake == KeepAwake::Auto
                && self.watches[index].verdict() == IdleTime::Unknown
            {
                watch(&self.opened.decoder, cpu.cpu, &data, &mut self.watches[index]);
                if self.watches[index].verdict() == IdleTime::Hidden {
                    hidden.push(cpu.cpu);
                }
            }
            self.flights[index].push(Chunk { span, data }, limit, marks);
        }
        for cpu in hidden {
            match Keeper::start(cpu) {
                Ok(keeper) => self.keepers.push(keeper),
                Err(error) => self.opened.notes.push(format!(
                    "CPU {cpu} leaves no events while it is idle, and nothing keeps it awake: {error}"
                )),
            }
        }
    }

    fn filter_faults(&mut self) {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let processes = || self.options.processes.iter().copied().chain([own]);
        let links = processes().filter_map(|pid| std::fs::metadata(format!("/proc/{pid}/task")).ok());
        let links = links.map(|directory| directory.nlink()).sum();
        if links == self.links {
            return;
        }
        self.links = links;
        let mut threads = BTreeSet::new();
        for pid in processes() {
            for tid in threads_of(pid) {
                threads.insert(tid);
                let thread = self.met.entry(tid).or_default();
                thread.pid = Some(pid);
            }
        }
        if threads == self.threads {
            return;
        }
        let filter = if threads.len() > MOST_FILTERED {
            "common_pid>0".to_owned()
        } else {
            threads.iter().map(|tid| format!("common_pid=={tid}")).collect::<Vec<_>>().join("||")
        };
        self.threads = threads;
        let Ok(filter) = CString::new(filter) else { return };
        for cpu in &mut self.opened.cpus {
            if let Err(error) = cpu.filter_faults(&filter) {
                let note = format!("page faults of new threads are not recorded: {error}");
                if !self.opened.notes.contains(&note) {
                    self.opened.notes.push(note);
                }
            }
        }
    }

    fn into_trace(self, marked: u64) -> Trace {
        let mut trace = Trace { notes: self.opened.notes, guest: is_guest(), ..Trace::default() };
        trace.threads = self.met;
        read_names(&mut trace.threads);
        let decoder = self.opened.decoder;
        // One CPU is decoded after the other, and a thread changes its name when it starts: the newest name counts.
        let mut named_ns = HashMap::new();
        let mut bytes = 0;
        for ((cpu, flight), &end_ns) in self.opened.cpus.iter().zip(&self.flights).zip(&self.drained_ns) {
            let mut told = 0;
            for chunk in flight.all() {
                bytes += chunk.data.len();
                told += decode(&decoder, &mut named_ns, cpu.cpu, &chunk.data, &mut trace);
            }
            // The ring tells of losses when there is room again; what was lost at the end only the kernel's counter
            // tells.
            let lost = cpu.lost().max(told);
            if lost > told {
                let kind = Kind::Lost { count: lost - told };
                trace.events.push(Event { time_ns: end_ns, tid: 0, cpu: cpu.cpu, kind });
            }
            trace.lost_events += lost;
        }
        trace.steal = self.steal.readings();
        trace.kept_awake = self.keepers.iter().map(Keeper::cpu).collect();
        trace.spans = flight::common(self.flights.iter().map(Flight::spans));
        if self.flights.iter().any(|flight| flight.forgotten) {
            let dropped: u64 = self.flights.iter().map(|flight| flight.dropped).sum();
            trace.notes.push(format!(
                "the flight recorder keeps {bytes} bytes: older events are forgotten except around {marked} late \
                 releases ({dropped} pieces of these did not fit; raise memory_bytes)"
            ));
        }
        trace.sort();
        trace
    }
}

/// Bytes of a chunk in which a CPU's idle time is looked for, some 150 events: a CPU that is never idle must not cost more.
const WATCHED_BYTES: usize = 16 << 10;

/// Lets `watch` see the first events of a chunk.
fn watch(decoder: &Decoder, cpu: u16, data: &[u8], watch: &mut IdleWatch) {
    let mut scratch = Trace::default();
    let seen = &data[..data.len().min(WATCHED_BYTES)];
    decode(decoder, &mut HashMap::new(), cpu, seen, &mut scratch);
    scratch.events.iter().for_each(|event| watch.see(event));
    if seen.len() < data.len() {
        watch.interrupt();
    }
}

/// Decodes the records of a chunk into the trace and returns how many losses they tell of.
fn decode(
    decoder: &Decoder,
    named_ns: &mut HashMap<i32, u64>,
    cpu: u16,
    data: &[u8],
    trace: &mut Trace,
) -> u64 {
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_ne_bytes)
    };
    let mut lost = 0_u64;
    let mut rest = data;
    while rest.len() >= 8 {
        // Type u32, misc u16, size u16.
        let kind = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]);
        let size = usize::from(u16::from_ne_bytes([rest[6], rest[7]]));
        let Some(record) = rest.get(8..size) else {
            trace.notes.push(format!("CPU {cpu}: a torn record, {} bytes left out", rest.len()));
            break;
        };
        rest = &rest[size..];
        match kind {
            perf_event_open_sys::bindings::PERF_RECORD_SAMPLE => {
                let Some(time_ns) = word(record, 0) else { continue };
                // Time, period, size of the raw record, and that record.
                let Some(size) = record.get(16..20).and_then(|size| size.try_into().ok()) else { continue };
                let size = u32::from_ne_bytes(size) as usize;
                let Some(raw) = record.get(20..20usize.saturating_add(size)) else { continue };
                let mut note = |trace: &mut Trace, tid: i32, name: &[u8]| {
                    let newest_ns = named_ns.entry(tid).or_default();
                    if time_ns >= *newest_ns {
                        *newest_ns = time_ns;
                        note_name(trace, tid, name);
                    }
                };
                if let Some((tid, kind)) = decoder.decode_named(raw, trace, &mut note) {
                    trace.events.push(Event { time_ns, tid, cpu, kind });
                }
            }
            perf_event_open_sys::bindings::PERF_RECORD_LOST => {
                // id, count, and the time of the sample_id trailer.
                let (Some(count), Some(time_ns)) = (word(record, 8), word(record, 16)) else { continue };
                lost = lost.saturating_add(count);
                trace.events.push(Event { time_ns, tid: 0, cpu, kind: Kind::Lost { count } });
            }
            _ => {}
        }
    }
    lost
}

/// Whether a hypervisor runs this kernel (the CPU flag that hypervisors set).
fn is_guest() -> bool {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == "hypervisor")
}

/// Thread ids of a process.
fn threads_of(pid: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Names and processes of the threads that live now; events bring the names of the others.
fn read_names(threads: &mut BTreeMap<i32, Thread>) {
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        for tid in threads_of(pid) {
            let name = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
            let thread = threads.entry(tid).or_default();
            thread.name = name.trim_end().to_owned();
            thread.pid = Some(pid);
        }
    }
}

/// A sink that hands job records on and keeps the windows of late releases.
#[derive(Debug)]
pub struct Watched<S> {
    /// The sink behind.
    pub inner: S,
    marker: Marker,
    lateness_ns: u64,
    response_ns: u64,
}

impl<S> Watched<S> {
    /// Keeps the window of every job whose wake-up is later than `lateness_ns`, or whose end is later than
    /// `response_ns` after its release.
    pub fn new(inner: S, marker: Marker, lateness_ns: u64, response_ns: u64) -> Self {
        Self { inner, marker, lateness_ns, response_ns }
    }
}

/// Kept before and after a late job.
const MARGIN_NS: u64 = 5_000_000;

impl<S: JobSink> JobSink for Watched<S> {
    fn task(&mut self, task: TaskId, name: &str) -> std::io::Result<()> {
        self.inner.task(task, name)
    }

    fn records(&mut self, task: TaskId, records: &[JobRecord]) -> std::io::Result<()> {
        for job in records {
            if job.lateness_ns() > self.lateness_ns || job.response_ns() > self.response_ns {
                let weight_ns = job.lateness_ns().max(job.response_ns());
                self.marker.mark_job(job.planned_ns, job.end_ns, weight_ns);
            }
        }
        self.inner.records(task, records)
    }

    fn lost(&mut self, task: TaskId, total: u64) -> std::io::Result<()> {
        self.inner.lost(task, total)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}
