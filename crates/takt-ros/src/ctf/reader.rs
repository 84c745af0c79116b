//! All streams of a recording, merged by time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::path::{Path, PathBuf};

use super::cursor::Cursor;
use super::error::Error;
use super::mapping::{Arguments, Kinds};
use super::stream::{Damage, Next, Stream};
use super::trace::{StreamPlan, Trace, slot};
use crate::event::{Event, Kind};

/// Folders within folders are searched for traces so deep: `ust/uid/1000/64-bit` below an archive below a session.
const MOST_DEEP: usize = 12;
/// Damages that are kept one by one.
const MOST_DAMAGES: usize = 256;
/// Memory for windows onto stream files, shared by all streams.
const WINDOWS_BYTES: u64 = 32 << 20;
/// Threads whose names are kept; beyond, all are forgotten (and told again).
const MOST_THREADS: usize = 1 << 16;

/// What makes a stream the same stream in the next file of a rotated recording.
type Key = ([u8; 16], usize, u64);

/// A stream: one file, or several that follow each other.
#[derive(Debug)]
struct Entry {
    stream: Stream,
    trace: usize,
    later: VecDeque<(Stream, usize)>,
    next: Next,
    waits: bool,
    /// The thread of its last event, its name, and which of the reader's names that was.
    thread: (u32, u32, u128, u64),
    key: Option<Key>,
}

/// All streams of a recording.
#[derive(Debug, Default)]
pub struct Reader {
    /// The traces, those of all files.
    pub traces: Vec<Trace>,
    entries: Vec<Entry>,
    by_key: HashMap<Key, usize>,
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    kinds: Kinds,
    threads: HashMap<(u32, u32), u128>,
    renamed: u64,
    /// For each trace, how many events of each class were read.
    pub counts: Vec<Vec<u64>>,
    /// What could not be read.
    pub damages: Vec<Damage>,
    /// Damages beyond those kept.
    pub more_damages: u64,
    mapped: bool,
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
    /// Nothing yet. With `mapped`, events are brought to ours; those that none of ours corresponds to are read over.
    pub fn new(mapped: bool) -> Self {
        Self { mapped, ..Self::default() }
    }

    /// Adds the trace in `folder` with all its streams.
    pub fn add(&mut self, folder: &Path) -> Result<(), Error> {
        let trace = Trace::open(folder, self.mapped)?;
        self.same_clock(&trace)?;
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
        let number = self.traces.len();
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
        self.counts.push(vec![0; trace.names.len()]);
        self.traces.push(trace);
        for (_, key, stream) in added {
            self.append(stream, number, key);
        }
        Ok(())
    }

    fn append(&mut self, stream: Stream, trace: usize, key: Option<Key>) {
        let known = key.and_then(|key| self.by_key.get(&key).copied());
        let at = match known {
            Some(at) => {
                self.entries[at].later.push_back((stream, trace));
                at
            }
            None => {
                let at = self.entries.len();
                self.entries.push(Entry {
                    stream,
                    trace,
                    later: VecDeque::new(),
                    next: Next::Lost(0),
                    waits: false,
                    thread: (0, 0, 0, u64::MAX),
                    key,
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
    fn same_clock(&self, trace: &Trace) -> Result<(), Error> {
        let of = |trace: &Trace| {
            let clock = trace.clock();
            let name = clock.map_or("none", |clock| &clock.name);
            let boot = clock.and_then(|clock| clock.uuid.as_deref()).unwrap_or("unnamed");
            let host = trace.metadata.env_text("hostname").unwrap_or("an unnamed host");
            format!("{name} {boot} of {host}")
        };
        if let Some(first) = self.traces.first() {
            let (first_clock, second_clock) = (of(first), of(trace));
            if first_clock != second_clock {
                return Err(Error::SeveralClocks {
                    first: first.folder.clone(),
                    second: trace.folder.clone(),
                    first_clock,
                    second_clock,
                });
            }
        }
        Ok(())
    }

    /// The time up to which no stream that has ended so far can bring older events: the least of all streams' ends.
    pub fn least_end_ns(&self) -> Option<u64> {
        self.entries.iter().filter_map(|entry| entry.ends_ns(&self.traces)).min()
    }

    /// Nothing is left to read.
    pub fn is_over(&self) -> bool {
        self.queue.is_empty()
    }

    /// Finds what comes next in a stream, and queues it.
    fn go_on(&mut self, at: usize) {
        let Self { entries, traces, counts, damages, more_damages, queue, .. } = self;
        let Some(entry) = entries.get_mut(at) else { return };
        entry.waits =
            entry.find(traces, counts, &mut |damage| note(damages, more_damages, damage), self.mapped);
        if entry.waits {
            queue.push(Reverse((entry.at_ns(traces), at)));
        }
    }

    /// Hands events up to `until_ns` to `sink`, `most` of them at most. Returns how many.
    pub fn run(&mut self, until_ns: u64, most: usize, sink: &mut dyn FnMut(Event)) -> usize {
        let Self {
            entries,
            traces,
            counts,
            damages,
            more_damages,
            queue,
            kinds,
            threads,
            renamed,
            mapped,
            ..
        } = self;
        let mut made = 0;
        while made < most {
            let Some(Reverse((mut at_ns, at))) = queue.pop() else { break };
            // As long as no other stream has something older, this one goes on.
            let other_ns = queue.peek().map_or(u64::MAX, |Reverse((ns, _))| *ns);
            let Some(entry) = entries.get_mut(at) else { continue };
            loop {
                if at_ns > until_ns || made >= most {
                    queue.push(Reverse((at_ns, at)));
                    if at_ns > until_ns {
                        return made;
                    }
                    break;
                }
                made += entry.emit(
                    traces,
                    counts,
                    &mut |damage| note(damages, more_damages, damage),
                    (kinds, threads, renamed),
                    at_ns,
                    sink,
                );
                let on =
                    entry.find(traces, counts, &mut |damage| note(damages, more_damages, damage), *mapped);
                entry.waits = on;
                if !on {
                    break;
                }
                at_ns = entry.at_ns(traces);
                if at_ns > other_ns {
                    queue.push(Reverse((at_ns, at)));
                    break;
                }
            }
        }
        made
    }

    /// The next event of all, for `visit`: its trace, its stream class, the event's place in it, its stream (the body still
    /// to be read) and its time. `false`: there is none. Losses are left out.
    pub fn next(
        &mut self,
        visit: &mut dyn FnMut(&Trace, usize, u32, Option<u64>, (Cursor<'_>, &mut [u64]), u64),
    ) -> bool {
        loop {
            let Some(Reverse((at_ns, at))) = self.queue.pop() else { return false };
            let mut found = false;
            if let Some(entry) = self.entries.get_mut(at) {
                if let (Next::Event(event), Some(trace)) = (entry.next, self.traces.get(entry.trace)) {
                    let class = entry.stream.class_number();
                    let cpu = entry.stream.cpu;
                    visit(trace, class, event, cpu, entry.stream.body(), at_ns);
                    found = true;
                    let plan = entry.stream.class(trace);
                    let count = plan
                        .and_then(|plan| plan.events.get(event as usize))
                        .and_then(|plan| self.counts.get_mut(entry.trace)?.get_mut(plan.number as usize));
                    if let Some(count) = count {
                        *count += 1;
                    }
                    if let Some(Err(damage)) = plan.map(|plan| entry.stream.take(plan, event)) {
                        note(&mut self.damages, &mut self.more_damages, damage);
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

fn note(damages: &mut Vec<Damage>, more: &mut u64, damage: Damage) {
    if damages.len() < MOST_DAMAGES {
        damages.push(damage);
    } else {
        *more += 1;
    }
}

/// What events are brought to ours with: kinds, names of threads, and how often one was renamed.
type Known<'a> = (&'a mut Kinds, &'a mut HashMap<(u32, u32), u128>, &'a mut u64);

impl Entry {
    #[inline]
    fn at_ns(&self, traces: &[Trace]) -> u64 {
        traces.get(self.trace).map_or(0, |trace| trace.ns(self.stream.ticks()))
    }

    fn ends_ns(&self, traces: &[Trace]) -> Option<u64> {
        let (stream, trace) = match self.later.back() {
            Some((stream, trace)) => (stream, *trace),
            None => (&self.stream, self.trace),
        };
        Some(traces.get(trace)?.ns(stream.end_ticks?))
    }

    /// Finds the next event that is to be told (with `mapped`: of ours), or a loss.
    #[inline]
    fn find(
        &mut self,
        traces: &[Trace],
        counts: &mut [Vec<u64>],
        note: &mut dyn FnMut(Damage),
        mapped: bool,
    ) -> bool {
        loop {
            let Some(trace) = traces.get(self.trace) else { return false };
            match self.stream.advance(trace) {
                Ok(Some(Next::Event(event))) => {
                    let Some(plan) = self.stream.class(trace) else { return false };
                    let Some(of) = plan.events.get(event as usize) else { return false };
                    if !mapped || of.mapping.is_some() {
                        self.next = Next::Event(event);
                        return true;
                    }
                    if let Some(count) =
                        counts.get_mut(self.trace).and_then(|all| all.get_mut(of.number as usize))
                    {
                        *count += 1;
                    }
                    if let Err(damage) = self.stream.take(plan, event) {
                        note(damage);
                    }
                }
                Ok(Some(lost)) => {
                    self.next = lost;
                    return true;
                }
                Ok(None) => {
                    let Some((mut next, trace)) = self.later.pop_front() else { return false };
                    next.counters = self.stream.counters;
                    self.stream = next;
                    self.trace = trace;
                }
                Err(damage) => note(damage),
            }
        }
    }

    /// Hands what was found to `sink`.
    #[inline]
    fn emit(
        &mut self,
        traces: &[Trace],
        counts: &mut [Vec<u64>],
        note: &mut dyn FnMut(Damage),
        known: Known<'_>,
        at_ns: u64,
        sink: &mut dyn FnMut(Event),
    ) -> usize {
        let event = match self.next {
            Next::Event(event) => event,
            Next::Lost(count) => {
                sink(Event { at_ns, cpu_ns: None, pid: 0, tid: 0, kind: Kind::Lost { count } });
                return 1;
            }
        };
        let Some(trace) = traces.get(self.trace) else { return 0 };
        let Some(plan) = self.stream.class(trace) else { return 0 };
        let Some(of) = plan.events.get(event as usize) else { return 0 };
        if let Err(damage) = self.stream.take(plan, event) {
            note(damage);
            return 0;
        }
        if let Some(count) = counts.get_mut(self.trace).and_then(|all| all.get_mut(of.number as usize)) {
            *count += 1;
        }
        let Some(mapping) = &of.mapping else { return 0 };
        let pid = self.stream.value(slot::PID) as u32;
        let tid = self.stream.value(slot::TID) as u32;
        let (kinds, threads, renamed) = known;
        let mut made = 0;
        if plan.context_fields & 1 << slot::NAME != 0 {
            made += self.name(pid, tid, at_ns, (kinds, threads, renamed), sink);
        }
        let Some(kind) = kinds.kind(mapping, pid, &self.stream) else { return made };
        let cpu_ns =
            (plan.context_fields & 1 << slot::CPU_TIME != 0).then(|| self.stream.value(slot::CPU_TIME));
        sink(Event { at_ns, cpu_ns, pid, tid, kind });
        made + 1
    }

    /// Tells the thread's name if it is new.
    #[inline]
    fn name(
        &mut self,
        pid: u32,
        tid: u32,
        at_ns: u64,
        (kinds, threads, renamed): Known<'_>,
        sink: &mut dyn FnMut(Event),
    ) -> usize {
        let bytes = self.stream.bytes(slot::NAME);
        // At most 15 letters and a zero byte (TASK_COMM_LEN).
        let mut letters = [0; 16];
        let length = bytes.len().min(16);
        letters[..length].copy_from_slice(&bytes[..length]);
        let name = u128::from_le_bytes(letters);
        if self.thread == (pid, tid, name, *renamed) {
            return 0;
        }
        self.thread = (pid, tid, name, *renamed);
        if threads.get(&(pid, tid)) == Some(&name) {
            return 0;
        }
        if threads.len() >= MOST_THREADS {
            threads.clear();
        }
        if threads.insert((pid, tid), name).is_some() {
            *renamed += 1;
            self.thread.3 = *renamed;
        }
        let length = letters.iter().position(|&byte| byte == 0).unwrap_or(16);
        let name = kinds.texts.get(&letters[..length]);
        sink(Event { at_ns, cpu_ns: None, pid, tid, kind: Kind::ThreadName { name } });
        1
    }
}
