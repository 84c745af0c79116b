//! From the kernel's records to events: whose thread it is, how much CPU time it had, what the
//! arguments mean.

use std::collections::{HashMap, HashSet};

use super::fill::{Context, Known};
use super::memory::Memory;
use super::points::{Call, Point};
use super::record::{Record, What};
use crate::event::{Event, Handle, Kind, OFF_CPU_NS};

#[derive(Debug, Default)]
struct Thread {
    pid: u32,
    /// CPU time before it last got the CPU, since its first event.
    used_ns: u64,
    /// When it last got the CPU, while it has it.
    on_since: Option<u64>,
    /// Number of times that it gave the CPU up on its own, the total time until it got the CPU
    /// again, and since when.
    gave_up: u64,
    away_ns: u64,
    away_since: Option<u64>,
    /// Number of calls of `sched_yield`.
    yields: u64,
    /// When its executor last selected something, and how often it had given the CPU up by then.
    selected: Option<(u64, u64)>,
    /// The activation under way.
    activation: Option<Activation>,
    message: u64,
    context: Context,
}

/// Stands for the callback of work without events; no object has this address.
const UNTRACED: Handle = 1;

/// The thread's figures when a callback started.
#[derive(Debug, Clone, Copy)]
struct Activation {
    callback: Handle,
    at_ns: u64,
    used_ns: u64,
    gave_up: u64,
    away_ns: u64,
    yields: u64,
    /// Number of times that it had given the CPU up since its executor selected it, and the time
    /// taken.
    early: u64,
    early_ns: u64,
}

impl Thread {
    fn used_at(&self, at_ns: u64) -> u64 {
        // Times of torn records may be any.
        self.used_ns.saturating_add(self.on_since.map_or(0, |since| at_ns.saturating_sub(since)))
    }

    fn switched_in(&mut self, at_ns: u64) {
        // Had it still, as far as was seen: a record was lost.
        self.used_ns = self.used_at(at_ns);
        self.on_since = Some(at_ns);
        if let Some(since) = self.away_since.take() {
            self.away_ns = self.away_ns.saturating_add(at_ns.saturating_sub(since));
        }
    }

    fn switched_out(&mut self, at_ns: u64, preempted: bool) {
        self.used_ns = self.used_at(at_ns);
        self.on_since = None;
        if !preempted {
            self.gave_up += 1;
            self.away_since = Some(at_ns);
        }
    }

    /// Follows activations; returns why the one that ends was off the CPU, if it was. Every switch
    /// is a record, so that it is known of all; calls of `sched_yield` are where `yields`.
    fn follow(&mut self, at_ns: u64, kind: &Kind, yields: bool) -> Option<Kind> {
        match *kind {
            Kind::CallbackStart { callback, .. } => {
                self.begin(callback, at_ns);
                None
            }
            Kind::CallbackEnd { callback } => self.end(callback, at_ns, yields),
            Kind::ExecutorNextReady => {
                // From one selection to the next: a client's callback, or other work without
                // events.
                let why = self.end(UNTRACED, at_ns, yields);
                self.begin(UNTRACED, at_ns);
                self.selected = Some((at_ns, self.gave_up));
                why
            }
            Kind::ExecutorWait { .. } | Kind::ExecutorExecute { .. } => {
                if matches!(kind, Kind::ExecutorWait { .. }) {
                    self.selected = None;
                }
                self.activation = self.activation.filter(|begun| begun.callback != UNTRACED);
                None
            }
            _ => None,
        }
    }

    fn begin(&mut self, callback: Handle, at_ns: u64) {
        let used_ns = self.used_at(at_ns);
        let (gave_up, away_ns, yields) = (self.gave_up, self.away_ns, self.yields);
        let (early, early_ns) = match self.selected.take() {
            Some((since_ns, before)) if before < gave_up => {
                (gave_up - before, at_ns.saturating_sub(since_ns))
            }
            _ => (0, 0),
        };
        self.activation =
            Some(Activation { callback, at_ns, used_ns, gave_up, away_ns, yields, early, early_ns });
    }

    fn end(&mut self, callback: Handle, at_ns: u64, counted: bool) -> Option<Kind> {
        let begun = self.activation.take().filter(|begun| begun.callback == callback)?;
        let used_ns = self.used_at(at_ns).saturating_sub(begun.used_ns);
        let off_ns = at_ns.saturating_sub(begun.at_ns).saturating_sub(used_ns);
        let away_ns = self.away_ns.saturating_sub(begun.away_ns);
        let switches = self.gave_up.saturating_sub(begun.gave_up).saturating_add(begun.early);
        let yields = self.yields.saturating_sub(begun.yields);
        (off_ns > OFF_CPU_NS || switches > 0 || yields > 0).then(|| Kind::OffCpu {
            switches: Some(switches),
            ready_ns: Some(off_ns.saturating_sub(away_ns)),
            yields: counted.then_some(yields),
            early_ns: begun.early_ns,
        })
    }
}

#[derive(Debug, Default)]
struct Process {
    known: Known,
    rmw_publish: u32,
}

/// State from the first record to the last.
#[derive(Debug)]
pub struct Translator<M> {
    points: HashMap<u64, Point>,
    /// Numbers of samples that are calls of `sched_yield`.
    yields: HashSet<u64>,
    /// Processes asked for; `None`: all.
    wanted: Option<HashSet<u32>>,
    threads: HashMap<u32, Thread>,
    processes: HashMap<u32, Process>,
    memory: M,
    /// Processes that have ended, and when.
    gone: HashMap<u32, u64>,
    /// Of processes that have gone.
    filled: (u64, u64),
    /// Counters for whoever asks.
    pub(super) hits: u64,
    pub(super) lost: u64,
    pub(super) lost_texts: u64,
}

impl<M: Memory> Translator<M> {
    pub fn new(wanted: Option<HashSet<u32>>, memory: M) -> Self {
        Self {
            points: HashMap::new(),
            yields: HashSet::new(),
            wanted,
            threads: HashMap::new(),
            processes: HashMap::new(),
            memory,
            gone: HashMap::new(),
            filled: (0, 0),
            hits: 0,
            lost: 0,
            lost_texts: 0,
        }
    }

    /// Samples with this number are calls of this function.
    pub fn add(&mut self, id: u64, point: Point) {
        self.points.insert(id, point);
    }

    /// Samples with this number are calls of `sched_yield`.
    pub(crate) fn add_yields(&mut self, id: u64) {
        self.yields.insert(id);
    }

    /// Whether calls of `sched_yield` are seen.
    pub(crate) fn sees_yields(&self) -> bool {
        !self.yields.is_empty()
    }

    /// Whether all processes that were asked for had ended by then.
    pub(crate) fn all_gone(&self, at_ns: u64) -> bool {
        let gone = |pid: &u32| self.gone.get(pid).is_some_and(|&gone_ns| gone_ns <= at_ns);
        self.wanted.as_ref().is_some_and(|wanted| wanted.iter().all(gone))
    }

    /// Found by looking, not reported by a record: the process has ended.
    pub(crate) fn set_gone(&mut self, pid: u32, at_ns: u64) {
        self.gone.entry(pid).or_insert(at_ns);
    }

    /// Processes asked for.
    pub fn wanted(&self) -> Option<&HashSet<u32>> {
        self.wanted.as_ref()
    }

    /// Objects of initialisation that were found, and callbacks of which nothing was.
    pub fn filled(&self) -> (u64, u64) {
        self.processes.values().fold(self.filled, |(found, unexplained), process| {
            (found + process.known.found, unexplained + process.known.unexplained)
        })
    }

    /// One record after the other, by time.
    pub fn record(&mut self, record: Record, out: &mut Vec<Event>) {
        let Record { at_ns, pid, tid, what } = record;
        let event = |kind| Event { at_ns, cpu_ns: None, pid, tid, kind };
        match what {
            What::Hit { id, .. } if self.yields.contains(&id) => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.yields += 1;
                }
            }
            What::Hit { id, arguments } => {
                let Some(&point) = self.points.get(&id) else { return };
                if self.wanted.as_ref().is_none_or(|wanted| wanted.contains(&pid)) {
                    self.hit(point, record, arguments, out);
                }
            }
            What::SwitchIn => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.switched_in(at_ns);
                }
            }
            What::SwitchOut { preempted } => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.switched_out(at_ns, preempted);
                }
            }
            What::Renamed { name } => {
                if self.threads.contains_key(&tid) {
                    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
                    out.push(event(Kind::ThreadName { name: String::from_utf8_lossy(&name[..end]).into() }));
                }
            }
            What::Ended => {
                if self.threads.remove(&tid).is_some() {
                    out.push(event(Kind::ThreadEnd));
                }
                // The kernel does not say whether it was the last; the first thread rarely ends
                // before the others.
                if pid != tid {
                    return;
                }
                self.memory.forget(pid);
                if let Some(process) = self.processes.remove(&pid) {
                    self.filled.0 += process.known.found;
                    self.filled.1 += process.known.unexplained;
                }
                if self.wanted.as_ref().is_some_and(|wanted| wanted.contains(&pid)) {
                    self.set_gone(pid, at_ns);
                }
            }
            What::Lost { count } => {
                self.lost = self.lost.saturating_add(count);
                // Switches may be among them: CPU time starts anew at each thread's next event.
                self.threads.values_mut().for_each(|thread| {
                    thread.used_ns = thread.used_at(at_ns);
                    (thread.on_since, thread.away_since, thread.activation) = (None, None, None);
                });
                out.push(Event { at_ns, cpu_ns: None, pid: 0, tid: 0, kind: Kind::Lost { count } });
            }
        }
    }

    fn hit(&mut self, point: Point, record: Record, arguments: [u64; 5], out: &mut Vec<Event>) {
        let Record { at_ns, pid, tid, .. } = record;
        self.hits += 1;
        // Thread numbers come again.
        if self.threads.get(&tid).is_none_or(|thread| thread.pid != pid) {
            self.threads.insert(tid, Thread { pid, ..Thread::default() });
            if let Some(name) = self.memory.thread_name(pid, tid) {
                out.push(Event { at_ns, cpu_ns: None, pid, tid, kind: Kind::ThreadName { name } });
            }
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let process = self.processes.entry(pid).or_default();
        // It runs: it has just called.
        thread.on_since.get_or_insert(at_ns);
        let cpu_ns = Some(thread.used_at(at_ns));
        let mut call = Call {
            arguments,
            pid,
            memory: &mut self.memory,
            lost_texts: &mut self.lost_texts,
            message: thread.message,
            rmw_publish: &mut process.rmw_publish,
        };
        let kind = point.1(&mut call);
        if let Kind::RclPublish { message, .. } = kind {
            thread.message = message;
        }
        if let Some(why) = thread.follow(at_ns, &kind, !self.yields.is_empty()) {
            out.push(Event { at_ns, cpu_ns: None, pid, tid, kind: why });
        }
        process.known.before(&mut thread.context, &kind, pid, &mut self.memory, at_ns, &mut |at_ns, kind| {
            out.push(Event { at_ns, cpu_ns: None, pid, tid, kind });
        });
        out.push(Event { at_ns, cpu_ns, pid, tid, kind });
    }
}
