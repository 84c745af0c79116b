//! All streams of a recording, merged by time.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cpus::Cpus;
use super::cursor::Cursor;
use super::error::Error;
use super::mapping::{Arguments, Head, Kinds};
use super::metadata;
use super::stream::{Damage, Next, Stream};
use super::trace::{Names, Trace, slot};
use super::tsdl::types::Clock;
use crate::event::{Event, Kind};

/// Folders within folders are searched for traces so deep: `ust/uid/1000/64-bit` below an archive below a session.
const MOST_DEEP: usize = 12;
/// Damages that are kept one by one.
const MOST_DAMAGES: usize = 256;
/// Memory for windows onto stream files, shared by all streams.
const WINDOWS_BYTES: u64 = 32 << 20;
/// Threads whose names are kept; beyond, all are forgotten (and told again).
const MOST_THREADS: usize = 1 << 16;
/// Metadata that is kept compiled, to be used again by the next part of a rotated recording.
const MOST_COMPILED: usize = 16;

/// What makes a stream the same stream in the next file of a rotated recording.
type Key = ([u8; 16], usize, u64);

/// A stream: one file, or several that follow each other.
struct Entry {
    stream: Stream,
    trace: Arc<Trace>,
    later: VecDeque<(Stream, Arc<Trace>)>,
    next: Next,
    /// Something was found, and stands in the queue.
    waits: bool,
    /// The part of a rotated recording that its last file is of.
    part: u64,
    /// The thread of its last event, its name, and how many threads had been renamed then.
    thread: (u32, u32, [u64; 2], u64),
}

/// A stream with what it has next. The greatest is the one that comes first; time alone counts, so that comparing costs one
/// instruction.
#[derive(Debug, Clone, Copy)]
struct Due {
    ns: u64,
    at: usize,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.ns == other.ns
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.ns.cmp(&self.ns)
    }
}

/// What is gathered while reading.
#[derive(Debug, Default)]
pub struct Tally {
    /// How many events of each name were read.
    pub names: Names,
    /// What could not be read.
    pub damages: Vec<Damage>,
    /// Damages beyond those kept.
    pub more_damages: u64,
}

impl Tally {
    #[cold]
    fn note(&mut self, stream: &mut Stream) {
        let Some(damage) = stream.take_damage() else { return };
        if self.damages.len() < MOST_DAMAGES {
            self.damages.push(damage);
        } else {
            self.more_damages += 1;
        }
    }
}

/// What events are brought to ours with.
#[derive(Debug, Default)]
struct Known {
    kinds: Kinds,
    threads: HashMap<(u32, u32), [u8; 16]>,
    renamed: u64,
    cpus: Cpus,
}

/// All streams of a recording.
#[derive(Default)]
pub struct Reader {
    entries: Vec<Entry>,
    by_key: HashMap<Key, usize>,
    queue: BinaryHeap<Due>,
    compiled: VecDeque<(Vec<u8>, Arc<Trace>)>,
    known: Known,
    /// What was read, and what could not be.
    pub tally: Tally,
    /// The first trace's folder, its clock, and what makes the clock the same elsewhere.
    first: Option<(PathBuf, Option<Clock>, String)>,
    /// Traces of the kernel without switches of threads, which were left out.
    pub kernel: Vec<PathBuf>,
    mapped: bool,
}

/// Without the contents of files.
impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("first", &self.first)
            .field("streams", &self.entries.len())
            .field("unfinished", &self.queue.len())
            .field("damages", &self.tally.damages)
            .finish_non_exhaustive()
    }
}

impl Arguments for Stream {
    #[inline]
    fn value(&self, slot: u32) -> u64 {
        self.slots.get(slot as usize).copied().unwrap_or(0)
    }

    #[inline]
    fn text(&self, slot: u32) -> &[u8] {
        self.bytes(slot)
    }
}

/// All folders at and below `folder` that hold a trace, sorted.
pub fn traces_below(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    fn search(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
        if folder.join("metadata").is_file() {
            found.push(folder.to_owned());
        }
        if depth < MOST_DEEP {
            for entry in std::fs::read_dir(folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    search(&entry.path(), depth + 1, found)?;
                }
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    search(folder, 0, &mut found).map_err(|source| Error::Io { path: folder.to_owned(), source })?;
    found.sort();
    Ok(found)
}

impl Reader {
    /// Nothing yet. With `mapped`, events are brought to ours: those that none of ours corresponds to are read over, and
    /// traces of the kernel are left out.
    pub fn new(mapped: bool) -> Self {
        Self { mapped, ..Self::default() }
    }

    /// All traces at or below `folder`, as one part; there must be one.
    pub fn below(folder: &Path, mapped: bool) -> Result<Self, Error> {
        let found = traces_below(folder)?;
        if found.is_empty() {
            return Err(Error::NoTrace { path: folder.to_owned() });
        }
        let mut reader = Self::new(mapped);
        for trace in found {
            reader.add(&trace, 0)?;
        }
        Ok(reader)
    }

    /// The clock of all events.
    pub fn clock(&self) -> Option<&Clock> {
        self.first.as_ref()?.1.as_ref()
    }

    /// Adds the trace in `folder` with all its streams, as part number `part` of a recording in parts.
    pub fn add(&mut self, folder: &Path, part: u64) -> Result<(), Error> {
        let trace = self.compile(folder)?;
        if self.mapped && trace.is_kernel() && !trace.is_of_use() {
            self.kernel.push(folder.to_owned());
            return Ok(());
        }
        self.same_clock(folder, &trace)?;
        let io = |path: &Path, source| Error::Io { path: path.to_owned(), source };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|source| io(folder, source))? {
            let entry = entry.map_err(|source| io(folder, source))?;
            let name = entry.file_name();
            let hidden = name.as_encoded_bytes().first() == Some(&b'.');
            if entry.path().is_file() && !hidden && name != "metadata" {
                files.push(entry.path());
            }
        }
        files.sort();
        let streams = (files.len() + self.entries.len()) as u64;
        let window = (WINDOWS_BYTES / streams.max(1)).clamp(4096, 256 << 10);
        let mut added = Vec::new();
        for path in files {
            let mut stream = Stream::open(&path, &trace, window).map_err(|source| io(&path, source))?;
            if stream.is_empty() {
                continue;
            }
            stream.probe(&trace).map_err(|Damage { path, at, problem }| Error::Stream {
                path,
                at,
                problem,
            })?;
            let key = match (trace.metadata.uuid, stream.instance) {
                (Some(uuid), Some(instance)) => Some((uuid, stream.class_number(), instance)),
                _ => None,
            };
            added.push((stream.begin_ticks, key, stream));
        }
        added.sort_by_key(|(begin, ..)| *begin);
        for (_, key, stream) in added {
            self.append(stream, &trace, part, key);
        }
        Ok(())
    }

    /// The trace in `folder`, compiled anew or as the part before.
    fn compile(&mut self, folder: &Path) -> Result<Arc<Trace>, Error> {
        let bytes = metadata::load(folder)?;
        if let Some((_, trace)) = self.compiled.iter().find(|(known, _)| *known == bytes) {
            return Ok(Arc::clone(trace));
        }
        let metadata = metadata::parse(folder, &bytes)?;
        let trace = Arc::new(Trace::new(folder, metadata, self.mapped, &mut self.tally.names)?);
        if self.compiled.len() >= MOST_COMPILED {
            self.compiled.pop_front();
        }
        self.compiled.push_back((bytes, Arc::clone(&trace)));
        Ok(trace)
    }

    fn append(&mut self, stream: Stream, trace: &Arc<Trace>, part: u64, key: Option<Key>) {
        let known = key.and_then(|key| self.by_key.get(&key).copied());
        let at = match known {
            Some(at) => {
                self.entries[at].later.push_back((stream, Arc::clone(trace)));
                self.entries[at].part = part;
                at
            }
            None => {
                let at = self.entries.len();
                self.entries.push(Entry {
                    stream,
                    trace: Arc::clone(trace),
                    later: VecDeque::new(),
                    next: Next::Lost,
                    waits: false,
                    part,
                    thread: (0, 0, [0; 2], u64::MAX),
                });
                if let Some(key) = key {
                    self.by_key.insert(key, at);
                }
                at
            }
        };
        if !self.entries[at].waits {
            self.go_on(at);
        }
    }

    /// All traces must count the same time.
    fn same_clock(&mut self, folder: &Path, trace: &Trace) -> Result<(), Error> {
        let clock = trace.clock();
        let name = clock.map_or("none", |clock| &clock.name);
        let boot = clock.and_then(|clock| clock.uuid.as_deref()).unwrap_or("unnamed");
        let host = trace.metadata.env_text("hostname").unwrap_or("an unnamed host");
        let identity = format!("{name} {boot} of {host}");
        match &self.first {
            Some((first, _, first_clock)) if *first_clock != identity => Err(Error::SeveralClocks {
                first: first.clone(),
                second: folder.to_owned(),
                first_clock: first_clock.clone(),
                second_clock: identity,
            }),
            Some(_) => Ok(()),
            None => {
                self.first = Some((folder.to_owned(), clock.cloned(), identity));
                Ok(())
            }
        }
    }

    /// Nothing is left to read.
    pub fn is_over(&self) -> bool {
        self.queue.is_empty()
    }

    /// Forgets streams whose files are read and that are not of part `part`: their processes have ended.
    pub fn forget_before(&mut self, part: u64) {
        // Numbers of entries are held by the queue, so only trailing and empty ones could be removed cheaply: rebuilt whole.
        if self.entries.iter().all(|entry| entry.waits || entry.part >= part) {
            return;
        }
        let mut numbers = HashMap::new();
        let mut kept = Vec::with_capacity(self.entries.len());
        for (at, entry) in std::mem::take(&mut self.entries).into_iter().enumerate() {
            if entry.waits || entry.part >= part {
                numbers.insert(at, kept.len());
                kept.push(entry);
            }
        }
        self.entries = kept;
        self.by_key.retain(|_, at| match numbers.get(at) {
            Some(number) => {
                *at = *number;
                true
            }
            None => false,
        });
        let queue = std::mem::take(&mut self.queue);
        self.queue = queue
            .into_iter()
            .filter_map(|due| Some(Due { ns: due.ns, at: *numbers.get(&due.at)? }))
            .collect();
    }

    /// Finds what comes next in a stream, and queues it.
    fn go_on(&mut self, at: usize) {
        let Self { entries, tally, queue, mapped, .. } = self;
        let Some(entry) = entries.get_mut(at) else { return };
        if entry.find(tally, *mapped) {
            queue.push(Due { ns: entry.at_ns(), at });
        }
    }

    /// Hands events to `sink`, `most` of them at most; returns how many. With `part`, the recording goes on behind that
    /// part: a stream of it that has run out may yet bring events from its end on, so nothing newer than that is handed out.
    pub fn run(&mut self, part: Option<u64>, most: usize, sink: &mut dyn FnMut(Event)) -> usize {
        let Self { entries, tally, queue, known, mapped, .. } = self;
        let goes_on = |entry: &Entry| part.is_some_and(|part| !entry.waits && entry.part >= part);
        let mut until_ns = u64::MAX;
        for entry in entries.iter().filter(|entry| goes_on(entry)) {
            until_ns = until_ns.min(entry.end_ns());
        }
        let mut made = 0;
        while made < most {
            let Some(&Due { ns: mut at_ns, at }) = queue.peek() else { break };
            let Some(entry) = entries.get_mut(at) else { break };
            if at_ns > until_ns {
                break;
            }
            // As long as no other stream has something older, this one goes on: the second of a heap is one of two.
            let seconds = queue.as_slice().get(1..queue.len().min(3)).unwrap_or_default();
            let other_ns = seconds.iter().map(|due| due.ns).min().unwrap_or(u64::MAX).min(until_ns);
            let waits = loop {
                made += entry.emit(at_ns, tally, known, sink);
                if !entry.find(tally, *mapped) {
                    break false;
                }
                at_ns = entry.at_ns();
                if at_ns > other_ns || made >= most {
                    break true;
                }
            };
            if waits {
                if let Some(mut top) = queue.peek_mut() {
                    *top = Due { ns: at_ns, at };
                }
            } else {
                queue.pop();
                if goes_on(entry) {
                    until_ns = until_ns.min(entry.end_ns());
                }
            }
        }
        made
    }

    /// The next event of all, for `visit`: its trace, its stream class, the event's place in it, its processor, its body
    /// (still to be read) and its time. `false`: there is none. Losses are left out.
    pub fn next(&mut self, visit: &mut Visit<'_>) -> bool {
        loop {
            let Some(Due { ns: at_ns, at }) = self.queue.pop() else { return false };
            let mut found = false;
            if let Some(entry) = self.entries.get_mut(at)
                && let Next::Event(event) = entry.next
            {
                let class = entry.stream.class_number();
                let cpu = entry.stream.cpu;
                visit(&entry.trace, class, event, cpu, entry.stream.body(), at_ns);
                found = true;
                let plan = entry.stream.class(&entry.trace);
                if let Some(of) = plan.and_then(|plan| plan.events.get(event as usize)) {
                    self.tally.names.count(of.number);
                    if !entry.stream.take(of) {
                        self.tally.note(&mut entry.stream);
                    }
                }
            }
            self.go_on(at);
            if found {
                return true;
            }
        }
    }
}

/// What [`Reader::next`] hands an event to.
pub type Visit<'a> = dyn FnMut(&Trace, usize, u32, Option<u64>, (Cursor<'_>, &mut [u64]), u64) + 'a;

impl Entry {
    #[inline]
    fn at_ns(&self) -> u64 {
        self.trace.ns(self.stream.ticks())
    }

    /// The end of its last packet.
    fn end_ns(&self) -> u64 {
        self.trace.ns(self.stream.end_ticks.unwrap_or(self.stream.ticks()))
    }

    /// Finds the next event that is to be told (with `mapped`: of ours), or a loss.
    #[inline]
    fn find(&mut self, tally: &mut Tally, mapped: bool) -> bool {
        self.waits = loop {
            self.next = self.stream.advance(&self.trace);
            match self.next {
                Next::Event(event) => {
                    let Some(plan) = self.stream.class(&self.trace) else { break false };
                    let Some(of) = plan.events.get(event as usize) else { break false };
                    if !mapped || of.mapping.is_some() {
                        break true;
                    }
                    tally.names.count(of.number);
                    if !self.stream.take(of) {
                        tally.note(&mut self.stream);
                    }
                }
                Next::Lost => break true,
                Next::Damage => tally.note(&mut self.stream),
                Next::End => {
                    let Some((mut next, trace)) = self.later.pop_front() else { break false };
                    next.counters = self.stream.counters;
                    self.stream = next;
                    self.trace = trace;
                }
            }
        };
        self.waits
    }

    /// Hands what was found to `sink`.
    #[inline]
    fn emit(
        &mut self,
        at_ns: u64,
        tally: &mut Tally,
        known: &mut Known,
        sink: &mut dyn FnMut(Event),
    ) -> usize {
        let Next::Event(event) = self.next else {
            if self.trace.is_kernel() {
                known.cpus.lost(self.stream.cpu);
            }
            let kind = Kind::Lost { count: self.stream.lost() };
            sink(Event { at_ns, cpu_ns: None, pid: 0, tid: 0, kind });
            return 1;
        };
        let Some(plan) = self.stream.class(&self.trace) else { return 0 };
        let Some(of) = plan.events.get(event as usize) else { return 0 };
        if !self.stream.take(of) {
            tally.note(&mut self.stream);
            return 0;
        }
        tally.names.count(of.number);
        let Some(mapping) = &of.mapping else { return 0 };
        if let Some((from, to)) = mapping.switch(&self.stream) {
            known.cpus.switch(self.stream.cpu, from, to, at_ns);
            return 0;
        }
        let pid = self.stream.value(slot::PID) as u32;
        let tid = self.stream.value(slot::TID) as u32;
        let mut made = 0;
        if plan.context_fields & 1 << slot::NAME != 0 {
            made += name(&self.stream, &mut self.thread, (pid, tid), at_ns, known, sink);
        }
        let has_cpu_time = plan.context_fields & 1 << slot::CPU_TIME != 0;
        let cpu_ns = match has_cpu_time {
            true => Some(self.stream.value(slot::CPU_TIME)),
            false => known.cpus.used_ns(self.stream.cpu, tid, at_ns),
        };
        made + known.kinds.send(mapping, Head { at_ns, cpu_ns, pid, tid }, &self.stream, sink)
    }
}

/// Tells the thread's name if it is new; `last` is what the stream told last.
#[inline]
fn name(
    stream: &Stream,
    last: &mut (u32, u32, [u64; 2], u64),
    (pid, tid): (u32, u32),
    at_ns: u64,
    known: &mut Known,
    sink: &mut dyn FnMut(Event),
) -> usize {
    // At most 15 letters and a zero byte (TASK_COMM_LEN); what stands behind the zero byte is left over from before.
    let bytes = stream.bytes(slot::NAME);
    let mut letters = match bytes.first_chunk() {
        Some(letters) => *letters,
        None => {
            let mut letters = [0; 16];
            letters[..bytes.len()].copy_from_slice(bytes);
            letters
        }
    };
    let (low, high) = letters.split_at(8);
    let raw = [low, high].map(|half| half.first_chunk().map_or(0, |half| u64::from_le_bytes(*half)));
    if *last == (pid, tid, raw, known.renamed) {
        return 0;
    }
    let length = letters.iter().position(|&byte| byte == 0).unwrap_or(16);
    letters[length..].fill(0);
    let before = known.threads.get(&(pid, tid)).copied();
    if before.is_some_and(|before| before != letters) {
        known.renamed += 1;
    }
    *last = (pid, tid, raw, known.renamed);
    if before == Some(letters) {
        return 0;
    }
    if known.threads.len() >= MOST_THREADS {
        known.threads.clear();
    }
    known.threads.insert((pid, tid), letters);
    let name = known.kinds.texts.get(&letters[..length]);
    sink(Event { at_ns, cpu_ns: None, pid, tid, kind: Kind::ThreadName { name } });
    1
}
