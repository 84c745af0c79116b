//! One stream of a recording, and what is gathered while streams are read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::coverage::{Gap, SHORTEST_NS};
use super::cpus::Cpus;
use super::mapping::{Arguments, Head, Kinds};
use super::stream::{Damage, Next, Stream};
use super::trace::{Names, Trace, slot};
use crate::event::{Event, GapCause, Kind};

/// Bits of a process number (`PID_MAX_LIMIT`, 4,194,304); those above are the host's.
pub(super) const PID_BITS: u32 = 22;
/// Damages that are kept one by one.
const MAX_DAMAGES: usize = 256;
/// Threads whose names are kept; beyond, all are forgotten (and reported again).
const MAX_THREADS: usize = 1 << 16;

/// A stream: one file, or several that follow each other.
pub(super) struct Entry {
    pub stream: Stream,
    pub trace: Arc<Trace>,
    pub later: VecDeque<(Stream, Arc<Trace>)>,
    pub next: Next,
    /// Something was found, and stands in the queue.
    pub waits: bool,
    /// The part of a rotated recording that its last file is of.
    pub part: u64,
    /// The thread of its last event, its name, and how many threads had been renamed then.
    pub thread: (u32, u32, [u64; 2], u64),
}

/// Tally of a reading.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of events read of each name.
    pub names: Names,
    /// Parts that could not be read.
    pub damages: Vec<Damage>,
    /// Damages beyond those kept.
    pub more_damages: u64,
    /// Times of packets that cannot be read, new since they were taken.
    pub unread: Vec<Gap>,
}

impl Tally {
    #[cold]
    pub fn note(&mut self, stream: &mut Stream) {
        let Some(damage) = stream.take_damage() else { return };
        if self.damages.len() < MAX_DAMAGES {
            self.damages.push(damage);
        } else {
            self.more_damages += 1;
        }
    }
}

/// Knowledge for converting events to ours.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub kinds: Kinds,
    pub threads: HashMap<(u32, u32), [u8; 16]>,
    pub renamed: u64,
    pub cpus: Cpus,
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

impl Entry {
    #[inline]
    pub fn at_ns(&self) -> u64 {
        self.trace.ns(self.stream.ticks())
    }

    /// The end of its last packet.
    pub fn end_ns(&self) -> u64 {
        self.trace.ns(self.stream.end_ticks.unwrap_or(self.stream.ticks()))
    }

    /// Notes what the stream met: damage, and the time that it costs.
    #[cold]
    fn note(&mut self, tally: &mut Tally) {
        tally.note(&mut self.stream);
        let Some((from, to)) = self.stream.take_unread() else { return };
        let (from_ns, to_ns) = (self.trace.ns(from), self.trace.ns(to));
        // Elsewhere it costs definitions at most.
        if to_ns.saturating_sub(from_ns) >= SHORTEST_NS && self.trace.records_callbacks() {
            tally.unread.push(Gap { from_ns, to_ns, why: GapCause::Unreadable });
        }
    }

    /// Finds the next event that is to be reported (with `mapped`: of ours), or a loss.
    #[inline]
    pub fn find(&mut self, tally: &mut Tally, mapped: bool) -> bool {
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
                        self.note(tally);
                    }
                }
                Next::Lost | Next::Gap(_) => {
                    self.note(tally);
                    break true;
                }
                Next::Damage => self.note(tally),
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
    pub fn emit(
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
            let kind = match self.next {
                Next::Gap(why) => {
                    let from_ns = self.trace.ns(self.stream.gap_from());
                    if self.trace.is_kernel() || at_ns.saturating_sub(from_ns) < SHORTEST_NS {
                        return 0;
                    }
                    Kind::Gap { from_ns, why }
                }
                _ => Kind::Lost { count: self.stream.lost() },
            };
            sink(Event { at_ns, cpu_ns: None, pid: 0, tid: 0, kind });
            return 1;
        };
        let Some(plan) = self.stream.class(&self.trace) else { return 0 };
        let Some(of) = plan.events.get(event as usize) else { return 0 };
        if !self.stream.take(of) {
            self.note(tally);
            return 0;
        }
        tally.names.count(of.number);
        let Some(mapping) = &of.mapping else { return 0 };
        if let Some((from, to)) = mapping.switch(&self.stream) {
            known.cpus.switch(self.stream.cpu, from, to, at_ns);
            return 0;
        }
        // Processes of several hosts may have the same number.
        let of_host = self.trace.host << PID_BITS;
        let pid = self.stream.value(slot::PID) as u32 | of_host;
        let tid = self.stream.value(slot::TID) as u32 | of_host;
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

/// Reports the thread's name if it is new; `last` is what the stream reported last.
#[inline]
fn name(
    stream: &Stream,
    last: &mut (u32, u32, [u64; 2], u64),
    (pid, tid): (u32, u32),
    at_ns: u64,
    known: &mut Known,
    sink: &mut dyn FnMut(Event),
) -> usize {
    // At most 15 letters and a zero byte (TASK_COMM_LEN); what stands behind the zero byte is left
    // over from before.
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
    if known.threads.len() >= MAX_THREADS {
        known.threads.clear();
    }
    known.threads.insert((pid, tid), letters);
    let name = known.kinds.texts.get(&letters[..length]);
    sink(Event { at_ns, cpu_ns: None, pid, tid, kind: Kind::ThreadName { name } });
    1
}
