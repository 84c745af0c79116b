//! All streams of a recording, merged by time.

use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::coverage::{Coverage, Gap, Packet};
use super::cursor::Cursor;
use super::entry::{Entry, Known, PID_BITS, Tally};
use super::error::Error;
use super::stream::{Damage, Next, Stream};
use super::trace::Trace;
use super::tsdl::Metadata;
use super::tsdl::types::Clock;
use super::{metadata, missing};
use crate::event::{Event, GapCause, Kind};

/// Folders within folders are searched for traces so deep: `ust/uid/1000/64-bit` below an archive
/// below a session.
const MAX_DEPTH: usize = 12;
/// Folders below a recording that are looked into: a session that was rotated each second for a day
/// has 86,400 parts of a few folders each.
const MAX_FOLDERS: usize = 1 << 20;
/// Stream files of one trace: buffers of some thousand processes on a hundred processors.
const MAX_STREAMS: usize = 1 << 20;
/// Memory for windows onto stream files, shared by all streams.
const WINDOWS_BYTES: u64 = 32 << 20;
/// A file's packets are looked at through such a window.
const HEADS_BYTES: u64 = 64 << 10;
/// Metadata that is kept compiled, to be used again by the next part of a rotated recording.
const MAX_COMPILED: usize = 16;

/// Identity of a stream in the next file of a rotated recording.
type Key = ([u8; 16], usize, u64, u32);

/// A stream with what it has next. The greatest is the one that comes first; time alone counts, so
/// that comparing costs one instruction.
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

/// All streams of a recording.
#[derive(Default)]
pub struct Reader {
    entries: Vec<Entry>,
    by_key: HashMap<Key, usize>,
    queue: BinaryHeap<Due>,
    compiled: VecDeque<(Vec<u8>, Arc<Trace>)>,
    known: Known,
    coverage: Coverage,
    /// Times in which nothing was recorded, still to be handed out, by their ends.
    gaps: VecDeque<Gap>,
    /// Times in which a stream cannot be read, apart from each other and in order: what happens in
    /// others meanwhile is half of a picture, and is left out.
    muted: VecDeque<(u64, u64)>,
    /// Events read, and parts that could not be read.
    pub tally: Tally,
    /// The first trace's folder, its clock, and what makes the clock the same elsewhere.
    first: Option<(PathBuf, Option<Clock>, String)>,
    /// Traces of the kernel without switches of threads, which were left out.
    pub kernel: Vec<PathBuf>,
    mapped: bool,
    /// Traces of several hosts are brought to the first one's clock.
    together: bool,
    hosts: Vec<String>,
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

/// All folders at and below `folder` that hold a trace, sorted.
pub(crate) fn traces_below(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    fn search(
        folder: &Path,
        depth: usize,
        left: &mut usize,
        found: &mut Vec<PathBuf>,
    ) -> std::io::Result<()> {
        *left = left.checked_sub(1).ok_or_else(|| {
            let text = format!("more than {MAX_FOLDERS} folders; name the folder of one recording");
            std::io::Error::new(std::io::ErrorKind::FileTooLarge, text)
        })?;
        if folder.join("metadata").is_file() {
            found.push(folder.to_owned());
        }
        if depth < MAX_DEPTH {
            for entry in std::fs::read_dir(folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    search(&entry.path(), depth + 1, left, found)?;
                }
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    let mut left = MAX_FOLDERS;
    search(folder, 0, &mut left, &mut found)
        .map_err(|source| Error::Io { path: folder.to_owned(), source })?;
    found.sort();
    Ok(found)
}

/// Identity of a trace's clock: its name, the boot and the host.
pub(crate) fn identity(metadata: &Metadata) -> String {
    let clock = metadata.clocks.first();
    let name = clock.map_or("none", |clock| &clock.name);
    let boot = clock.and_then(|clock| clock.uuid.as_deref()).unwrap_or("unnamed");
    let host = metadata.env_text("hostname").unwrap_or("an unnamed host");
    format!("{name} {boot} of {host}")
}

impl Reader {
    /// Nothing yet. With `mapped`, events are brought to ours: those that none of ours corresponds
    /// to are read over, and traces of the kernel are left out.
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
        reader.find_gaps();
        Ok(reader)
    }

    /// The same of these traces alone. With `together` they may be of several hosts, whose clocks
    /// are related by the time of day that each trace has of its own.
    pub fn of(traces: &[PathBuf], together: bool) -> Result<Self, Error> {
        let mut reader = Self { together, ..Self::new(true) };
        for trace in traces {
            reader.add(trace, 0)?;
        }
        reader.find_gaps();
        Ok(reader)
    }

    /// The clock of all events.
    pub fn clock(&self) -> Option<&Clock> {
        self.first.as_ref()?.1.as_ref()
    }

    /// Adds the trace in `folder` with all its streams, as part number `part` of a recording in
    /// parts.
    pub fn add(&mut self, folder: &Path, part: u64) -> Result<(), Error> {
        let trace = self.compile(folder)?;
        if self.mapped && trace.is_kernel() && !trace.is_of_use() {
            self.kernel.push(folder.to_owned());
            return Ok(());
        }
        self.same_clock(folder, &trace)?;
        let io = |path: &Path, source| Error::Io { path: path.to_owned(), source };
        let mut files = Vec::new();
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(folder).map_err(|source| io(folder, source))? {
            let entry = entry.map_err(|source| io(folder, source))?;
            let name = entry.file_name();
            let hidden = name.as_encoded_bytes().first() == Some(&b'.');
            if entry.path().is_file() && !hidden && name != "metadata" {
                files.push(entry.path());
                names.insert(name.to_string_lossy().into_owned());
            }
            if files.len() > MAX_STREAMS {
                let text = format!("more than {MAX_STREAMS} stream files");
                return Err(io(folder, std::io::Error::new(std::io::ErrorKind::FileTooLarge, text)));
            }
        }
        if let Some(name) = missing::stream(folder, &names, &trace.metadata) {
            return Err(Error::MissingStream { path: folder.to_owned(), name: takt_files::quoted(&name) });
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
                (Some(uuid), Some(instance)) => Some((uuid, stream.class_number(), instance, trace.host)),
                _ => None,
            };
            added.push((stream.begin_ticks, key, stream));
        }
        added.sort_by_key(|(begin, ..)| *begin);
        for (_, key, stream) in added {
            if self.mapped && !trace.is_kernel() {
                self.cover(&stream, &trace, key)?;
            }
            self.append(stream, &trace, part, key);
        }
        Ok(())
    }

    /// Looks at what a stream's file covers.
    fn cover(&mut self, stream: &Stream, trace: &Trace, key: Option<Key>) -> Result<(), Error> {
        let path = stream.path();
        let io = |source| Error::Io { path: path.to_owned(), source };
        let mut heads = Stream::open(path, trace, HEADS_BYTES).map_err(io)?;
        let records = trace.records_callbacks();
        let mut hasher = DefaultHasher::new();
        match key {
            Some(key) => key.hash(&mut hasher),
            None => path.hash(&mut hasher),
        }
        let mut last_ns = 0;
        let packets = std::iter::from_fn(|| {
            let head = heads.next_head(trace)?;
            let (begin_ns, end_ns) = (trace.ns(head.begin_ticks?), trace.ns(head.end_ticks?));
            let is_first = std::mem::replace(&mut last_ns, end_ns) == 0;
            // Of a session that records no callbacks its beginning is enough.
            (records || is_first).then_some(Packet {
                begin_ns,
                end_ns,
                sequence: head.sequence,
                is_empty: head.is_empty,
            })
        });
        if records {
            self.coverage.add(hasher.finish(), packets);
            if last_ns > 0 && (heads.is_cut() || missing::packets_behind(path, heads.length())) {
                self.coverage.cut(hasher.finish(), last_ns);
            }
        } else if trace.is_of_use()
            && let Some(first) = { packets }.next()
        {
            self.coverage.begins(first.begin_ns);
        }
        Ok(())
    }

    /// All of a part was added: what it does not cover is known.
    pub(crate) fn find_gaps(&mut self) {
        let found = self.coverage.gaps();
        note_gaps(found, &mut self.gaps, &mut self.muted);
    }

    /// The trace in `folder`, compiled anew or as the part before.
    fn compile(&mut self, folder: &Path) -> Result<Arc<Trace>, Error> {
        let bytes = metadata::load(folder)?;
        if let Some((_, trace)) = self.compiled.iter().find(|(known, _)| *known == bytes) {
            return Ok(Arc::clone(trace));
        }
        let metadata = metadata::parse(folder, &bytes)?;
        let mut trace = Trace::new(folder, metadata, self.mapped, &mut self.tally.names)?;
        if self.together {
            self.relate(folder, &mut trace)?;
        }
        let trace = Arc::new(trace);
        if self.compiled.len() >= MAX_COMPILED {
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

    /// Brings the trace to the first one's clock, by the time of day at which each clock was zero.
    fn relate(&mut self, folder: &Path, trace: &mut Trace) -> Result<(), Error> {
        let identity = identity(&trace.metadata);
        let known = self.hosts.iter().position(|host| *host == identity);
        let number = known.unwrap_or_else(|| {
            self.hosts.push(identity);
            self.hosts.len() - 1
        });
        trace.host = u32::try_from(number).unwrap_or(u32::MAX).min((1 << (32 - PID_BITS)) - 1);
        let Some(first) = self.clock() else { return Ok(()) };
        let zero = trace.clock().map(Clock::zero_ns);
        let shift_ns = zero.and_then(|zero_ns| i64::try_from(zero_ns - first.zero_ns()).ok());
        trace.shift_ns = shift_ns.ok_or_else(|| Error::UnrelatedClock { path: folder.to_owned() })?;
        Ok(())
    }

    /// All traces must count the same time.
    fn same_clock(&mut self, folder: &Path, trace: &Trace) -> Result<(), Error> {
        let clock = trace.clock();
        let identity = identity(&trace.metadata);
        match &self.first {
            Some((first, _, first_clock)) if *first_clock != identity && !self.together => {
                Err(Error::SeveralClocks {
                    first: first.clone(),
                    second: folder.to_owned(),
                    first_clock: first_clock.clone(),
                    second_clock: identity,
                })
            }
            Some(_) => Ok(()),
            None => {
                self.first = Some((folder.to_owned(), clock.cloned(), identity));
                Ok(())
            }
        }
    }

    /// Nothing is left to read.
    pub fn is_over(&self) -> bool {
        self.queue.is_empty() && self.muted.is_empty()
    }

    /// Forgets streams whose files are read and that are not of part `part`: their processes have
    /// ended.
    pub(crate) fn forget_before(&mut self, part: u64) {
        // Numbers of entries are held by the queue, so only trailing and empty ones could be
        // removed cheaply: rebuilt whole.
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

    /// Hands events to `sink`, `most` of them at most; returns how many. With `part`, the recording
    /// goes on behind that part: a stream of it that has run out may yet bring events from its end
    /// on, so nothing newer than that is handed out.
    pub fn run(&mut self, part: Option<u64>, most: usize, sink: &mut dyn FnMut(Event)) -> usize {
        let Self { entries, tally, queue, known, mapped, gaps, muted, .. } = self;
        let goes_on = |entry: &Entry| part.is_some_and(|part| !entry.waits && entry.part >= part);
        let mut until_ns = u64::MAX;
        for entry in entries.iter().filter(|entry| goes_on(entry)) {
            until_ns = until_ns.min(entry.end_ns());
        }
        let mut made = 0;
        while made < most {
            if !tally.unread.is_empty() {
                note_gaps(std::mem::take(&mut tally.unread), gaps, muted);
            }
            let Some(&Due { ns: mut at_ns, at }) = queue.peek() else { break };
            let Some(entry) = entries.get_mut(at) else { break };
            if at_ns > until_ns {
                break;
            }
            if let Some(gap) = next_gap(at_ns, gaps, muted) {
                let kind = Kind::Gap { from_ns: gap.from_ns, why: gap.why };
                sink(Event { at_ns: gap.to_ns, cpu_ns: None, pid: 0, tid: 0, kind });
                made += 1;
                continue;
            }
            // As long as no other stream has something older, this one goes on: the second of a
            // heap is one of two.
            let seconds = queue.as_slice().get(1..queue.len().min(3)).unwrap_or_default();
            let other_ns = seconds.iter().map(|due| due.ns).min().unwrap_or(u64::MAX).min(until_ns);
            let other_ns = gaps.front().map_or(other_ns, |gap| other_ns.min(gap.to_ns - 1));
            let is_muted = muted.front().is_some_and(|(from_ns, _)| *from_ns < at_ns);
            let other_ns = match muted.front() {
                Some((_, to_ns)) if is_muted => other_ns.min(to_ns - 1),
                Some((from_ns, _)) => other_ns.min(*from_ns),
                None => other_ns,
            };
            let waits = loop {
                made += match is_muted {
                    false => entry.emit(at_ns, tally, known, sink),
                    true => entry.emit(at_ns, tally, known, &mut |event| {
                        if !event.kind.happens() {
                            sink(event);
                        }
                    }),
                };
                if !entry.find(tally, *mapped) {
                    break false;
                }
                at_ns = entry.at_ns();
                if at_ns > other_ns || made >= most || !tally.unread.is_empty() {
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
        if queue.is_empty() && part.is_none() {
            note_gaps(std::mem::take(&mut tally.unread), gaps, muted);
            // No event follows these.
            gaps.clear();
            while let Some(gap) = next_gap(u64::MAX, gaps, muted) {
                let kind = Kind::Gap { from_ns: gap.from_ns, why: gap.why };
                sink(Event { at_ns: gap.to_ns, cpu_ns: None, pid: 0, tid: 0, kind });
                made += 1;
            }
        }
        made
    }

    /// The next event of all, for `visit`: its trace, its stream class, the event's place in it,
    /// its processor, its body (still to be read) and its time. `false`: there is none. Losses are
    /// left out.
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

/// The gap that ends first, if it is over at `at_ns`.
fn next_gap(at_ns: u64, gaps: &mut VecDeque<Gap>, muted: &mut VecDeque<(u64, u64)>) -> Option<Gap> {
    let limit_ns = gaps.front().map_or(at_ns, |gap| gap.to_ns.min(at_ns));
    if let Some((from_ns, to_ns)) = muted.pop_front_if(|(_, to_ns)| *to_ns <= limit_ns) {
        return Some(Gap { from_ns, to_ns, why: GapCause::Unreadable });
    }
    gaps.pop_front_if(|gap| gap.to_ns <= at_ns)
}

/// Takes gaps that were found.
#[cold]
fn note_gaps(found: Vec<Gap>, gaps: &mut VecDeque<Gap>, muted: &mut VecDeque<(u64, u64)>) {
    for gap in found {
        match gap.why {
            GapCause::Unreadable => muted.push_back((gap.from_ns, gap.to_ns)),
            _ => gaps.push_back(gap),
        }
    }
    muted.make_contiguous().sort_unstable();
    let mut apart: VecDeque<(u64, u64)> = VecDeque::with_capacity(muted.len());
    for (from_ns, to_ns) in muted.drain(..) {
        match apart.back_mut() {
            Some(last) if from_ns <= last.1 => last.1 = last.1.max(to_ns),
            _ => apart.push_back((from_ns, to_ns)),
        }
    }
    *muted = apart;
    gaps.make_contiguous().sort_by_key(|gap| gap.to_ns);
}

/// Receiver of events from [`Reader::next`].
pub type Visit<'a> = dyn FnMut(&Trace, usize, u32, Option<u64>, (Cursor<'_>, &mut [u64]), u64) + 'a;
