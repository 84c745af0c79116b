//! The thread that empties the ring buffers, and what becomes of their bytes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CString;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::sync::{LazyLock, PoisonError};

use takt_rt::clock::monotonic_ns;

use takt_rt::procfs;

use super::awake::{IdleTime, IdleWatch, Keeper};
use super::firmware::Watch;
use super::flight::{Chunk, Flight, Mark};
use super::open::Opened;
use super::stacks::Stacks;
use super::steal::StealLog;
use super::window::{Window, covered, inside};
use super::{Control, KeepAwake, TraceOptions, flight};
use crate::error::TraceError;
use crate::event::{Event, Kind, Span, Thread, Trace};
use crate::format::{Decoder, note_name};

/// State of the reader's thread.
#[derive(Debug)]
pub(super) struct Reader {
    opened: Opened,
    options: TraceOptions,
    flights: Vec<Flight>,
    /// When each CPU was drained last.
    drained_ns: Vec<u64>,
    /// Threads whose page faults are recorded.
    threads: BTreeSet<i32>,
    /// Names and processes of the threads met, also of those that have ended, and how many it may
    /// hold before these are forgotten.
    met: BTreeMap<i32, Thread>,
    most_met: usize,
    /// Judges of each CPU's idle time, by the events that it leaves.
    watches: Vec<IdleWatch>,
    keepers: Vec<Keeper>,
    steal: StealLog,
    stacks: Stacks,
    firmware: Watch,
    /// Links of the watched processes' task directories when they were read last: they change with
    /// the threads.
    links: u64,
    /// Losses of each CPU that were handed out already.
    reported_lost: Vec<u64>,
}

/// Names of threads that have ended: each part that is handed out has them all, and a machine that
/// builds something has a hundred new ones in a second.
const MAX_ENDED: usize = 2048;
/// More threads than this, and page faults of all are recorded.
const MAX_FILTERED: usize = 100;

impl Reader {
    pub(super) fn new(opened: Opened, options: TraceOptions) -> Self {
        let count = opened.cpus.len();
        let flights = (0..count).map(|_| Flight::default()).collect();
        let stacks = Stacks::new(if options.stacks { opened.waking_id } else { 0 });
        Self {
            opened,
            options,
            flights,
            drained_ns: vec![0; count],
            threads: BTreeSet::new(),
            met: BTreeMap::new(),
            most_met: MAX_ENDED,
            watches: vec![IdleWatch::default(); count],
            keepers: Vec::new(),
            steal: StealLog::new(is_guest()),
            stacks,
            firmware: Watch::default(),
            links: 0,
            reported_lost: vec![0; count],
        }
    }

    /// From here on events are recorded.
    pub(super) fn begin(&mut self) -> Result<(), TraceError> {
        for cpu in &self.opened.cpus {
            cpu.enable(true)?;
        }
        read_names(&mut self.met);
        if self.options.firmware {
            let cpus: Vec<u16> = self.opened.cpus.iter().map(|cpu| cpu.cpu).collect();
            self.firmware = Watch::start(is_guest(), &cpus, &mut self.opened.notes);
        }
        self.filter_faults();
        self.steal.read(true);
        self.firmware.read();
        self.drained_ns.fill(monotonic_ns());
        Ok(())
    }

    pub(super) fn run(mut self, control: &Control) -> Self {
        loop {
            let seen = control.signal.value();
            if control.stop.load(Ordering::Acquire) {
                break;
            }
            if self.options.drain {
                let marks = control.marks.lock().unwrap_or_else(PoisonError::into_inner).clone();
                self.drain(&marks);
                self.forget_marks(control);
                self.follow(control);
                self.filter_faults();
                self.steal.read(false);
                self.firmware.read();
                self.answer(control);
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
        self.firmware.read();
        self
    }

    /// Takes over the processes that the owner wants followed from now on.
    fn follow(&mut self, control: &Control) {
        let asked = control.processes.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(processes) = asked {
            self.options.processes = processes;
            self.links = 0;
        }
        let asked = control.stacks.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(threads) = asked {
            self.stacks.enable(self.opened.waking_id);
            let filter = threads.iter().map(|tid| format!("pid=={tid}")).collect::<Vec<_>>().join("||");
            self.filter_stacks(filter);
        }
    }

    /// Hands out what is there to an owner who waits for it.
    fn answer(&mut self, control: &Control) {
        let asked = control.take.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((owner, spans)) = asked {
            let marked = control.marked.load(Ordering::Relaxed);
            let trace = match spans {
                Some(spans) => self.windows(&spans, marked),
                None => self.hand_out(marked),
            };
            // An owner who has given up meanwhile has ended the recording.
            let _ = owner.send(trace);
        }
    }

    /// Takes away marks of times that are forgotten or kept by now.
    fn forget_marks(&self, control: &Control) {
        let oldest_ns = self.flights.iter().map(Flight::oldest_ns).min().unwrap_or(0);
        let mut marks = control.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.retain(|mark| mark.span.to_ns >= oldest_ns);
    }

    pub(super) fn drain(&mut self, marks: &[Mark]) {
        let limit = self.options.memory_bytes / self.flights.len().max(1);
        self.stacks.drain(&self.opened.decoder);
        let mut hidden = Vec::new();
        for (index, cpu) in self.opened.cpus.iter_mut().enumerate() {
            // Read before the head: events up to this time are in the ring when the head is read.
            let to_ns = monotonic_ns();
            let unknown = self.options.keep_awake == KeepAwake::Auto
                && self.watches[index].verdict() == IdleTime::Unknown;
            let mut data = Vec::new();
            match self.options.windows_only {
                true if unknown => {
                    let span = Span { from_ns: self.drained_ns[index], to_ns };
                    Window::read(&cpu.ring, &[span], WATCHED_BYTES).oldest_first(&mut data);
                }
                true => {}
                false => {
                    data.reserve(cpu.ring.waiting() + 4096);
                    cpu.ring.drain(&mut data);
                }
            }
            let span = Span { from_ns: self.drained_ns[index], to_ns };
            self.drained_ns[index] = to_ns;
            if unknown {
                watch(&self.opened.decoder, cpu.cpu, &data, &mut self.watches[index]);
                if self.watches[index].verdict() == IdleTime::Hidden {
                    hidden.push(cpu.cpu);
                }
            }
            if !self.options.windows_only {
                self.flights[index].push(Chunk { span, data }, limit, marks);
            }
        }
        for cpu in hidden {
            match Keeper::start(cpu) {
                Ok(keeper) => self.keepers.push(keeper),
                Err(error) => self.opened.notes.push(format!(
                    "CPU {cpu} records no events while it is idle, and takt could not keep it awake: {error}"
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
            for tid in procfs::threads(pid) {
                threads.insert(tid);
                let thread = self.met.entry(tid).or_default();
                thread.pid = Some(pid);
            }
        }
        if threads == self.threads {
            return;
        }
        let of =
            |field: &str| threads.iter().map(|tid| format!("{field}=={tid}")).collect::<Vec<_>>().join("||");
        let many = threads.len() > MAX_FILTERED;
        let filter = if many { "common_pid>0".to_owned() } else { of("common_pid") };
        if !self.options.windows_only {
            // The stacks of everybody's wake-ups would cost everybody.
            self.filter_stacks(if many { "pid<0".to_owned() } else { of("pid") });
        }
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

    fn filter_stacks(&mut self, woken: String) {
        self.stacks.drain(&self.opened.decoder);
        let cpus: Vec<u16> = self.opened.cpus.iter().map(|cpu| cpu.cpu).collect();
        let stacks = CString::new(woken).map(|woken| self.stacks.filter(&cpus, &woken));
        if let Ok(Err(error)) = stacks {
            let note = format!("the kernel's stacks at wake-ups are not recorded: {error}");
            if !self.opened.notes.contains(&note) {
                self.opened.notes.push(note);
            }
        }
    }

    /// The events of `spans` alone, out of rings that are overwritten.
    fn windows(&mut self, spans: &[Span], marked: u64) -> Trace {
        let mut whole_from_ns = 0;
        for (index, cpu) in self.opened.cpus.iter().enumerate() {
            let Some(first) = spans.first() else { break };
            let mut data = Vec::new();
            let window = Window::read(&cpu.ring, spans, usize::MAX);
            window.oldest_first(&mut data);
            whole_from_ns = whole_from_ns.max(window.whole_from_ns());
            let span = Span { from_ns: first.from_ns, to_ns: monotonic_ns() };
            self.flights[index].push(Chunk { span, data }, usize::MAX, &[]);
        }
        let mut trace = self.hand_out(marked);
        trace.spans = covered(spans, whole_from_ns);
        // Beyond the windows the witness of gaps knows of no event that explains one.
        let firmware = &mut trace.firmware;
        firmware.gaps.retain(|gap| trace.spans.iter().any(|span| inside(gap, span)));
        firmware.watched.retain(|watched| trace.spans.iter().any(|span| inside(span, watched)));
        trace
    }

    /// The rest, when the recording has ended.
    pub(super) fn into_trace(mut self, marked: u64) -> Trace {
        let mut trace = self.events(marked);
        read_names(&mut trace.threads);
        trace.steal = self.steal.readings();
        self.stacks.hand_out(&mut trace);
        trace.firmware = self.firmware.finish(&trace.events);
        trace
    }

    /// Everything since the last time, which is forgotten here; the recording goes on.
    pub(super) fn hand_out(&mut self, marked: u64) -> Trace {
        let mut trace = self.events(marked);
        trace.steal = self.steal.hand_out();
        self.stacks.hand_out(&mut trace);
        trace.firmware = self.firmware.hand_out(&trace.events);
        if trace.threads.len() > self.most_met {
            read_names(&mut self.met);
            self.most_met = 2 * self.met.len() + MAX_ENDED;
        } else {
            self.met.clone_from(&trace.threads);
        }
        for flight in &mut self.flights {
            *flight = Flight::default();
        }
        trace
    }

    /// The events in memory, in the order of time, with the names in them, which the trace takes.
    fn events(&mut self, marked: u64) -> Trace {
        let mut trace = Trace { notes: self.opened.notes.clone(), guest: is_guest(), ..Trace::default() };
        trace.threads = std::mem::take(&mut self.met);
        let decoder = &self.opened.decoder;
        // One CPU is decoded after the other, and a thread changes its name when it starts: the
        // newest name counts.
        let mut named_ns = HashMap::new();
        let mut bytes = 0;
        for (index, (cpu, flight)) in self.opened.cpus.iter().zip(&self.flights).enumerate() {
            let mut reported = 0;
            for (span, records) in flight.all() {
                let Some(records) = records else {
                    let kind = Kind::Lost { count: 1 };
                    trace.events.push(Event { time_ns: span.to_ns, tid: 0, cpu: cpu.cpu, kind });
                    reported += 1;
                    continue;
                };
                bytes += records.len();
                reported += decode(decoder, &mut named_ns, cpu.cpu, &records, &mut trace);
            }
            // The ring reports losses when there is room again; what was lost at the end only
            // the kernel's counter shows.
            let counted = cpu.lost();
            let lost = counted.saturating_sub(self.reported_lost[index]).max(reported);
            self.reported_lost[index] = (self.reported_lost[index] + lost).max(counted);
            if lost > reported {
                let kind = Kind::Lost { count: lost - reported };
                let time_ns = self.drained_ns[index];
                trace.events.push(Event { time_ns, tid: 0, cpu: cpu.cpu, kind });
            }
            trace.lost_events += lost;
        }
        trace.kept_awake = self.keepers.iter().map(Keeper::cpu).collect();
        trace.spans = flight::common(self.flights.iter().map(Flight::spans));
        if self.flights.iter().any(|flight| flight.forgotten) {
            let dropped: u64 = self.flights.iter().map(|flight| flight.dropped).sum();
            trace.notes.push(format!(
                "the flight recorder keeps {bytes} bytes: older events are dropped except around {marked} late releases ({dropped} pieces \
                 of these did not fit; raise memory_bytes)"
            ));
        }
        trace.sort();
        trace
    }
}

/// Bytes of a chunk in which a CPU's idle time is looked for, some 150 events: a CPU that is never
/// idle must not cost more.
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

/// Decodes the records of a chunk into the trace and returns how many losses they report of.
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
    static IS: LazyLock<bool> = LazyLock::new(|| {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        flags.split_whitespace().any(|flag| flag == "hypervisor")
    });
    *IS
}

/// Names and processes of the threads that live now; events bring the names of the others.
fn read_names(threads: &mut BTreeMap<i32, Thread>) {
    for pid in procfs::numbers("/proc") {
        for tid in procfs::threads(pid) {
            let thread = threads.entry(tid).or_default();
            thread.name = procfs::thread_name(pid, tid).unwrap_or_default();
            thread.pid = Some(pid);
        }
    }
}
