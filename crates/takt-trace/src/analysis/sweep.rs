//! One pass over all events: the state of every CPU and of the traced thread, the activation path
//! of every release, and where the time of every late one went.

use std::collections::{BTreeMap, HashMap};

use takt_rt::jobs::JobRecord;

use super::cause::{Bucket, is_stop, is_stopper, most_fault_ns};
use super::cpu::{Cpu, Interrupt};
use super::path::{Activation, Path};
use super::steal::{self, Gap, GapFinder, Within};
use super::steps::Shown;
use crate::event::{Event, Kind, Softirq, Span, State, Trace, Vector};

/// A stretch of a CPU without events, in which another thread than the one before and the one after
/// had it: the kernel left out what it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hidden {
    pub(super) cpu: u16,
    pub(super) tid: i32,
    pub(super) span: Span,
}

/// The traced thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Now {
    Unknown,
    /// Waits for something.
    Asleep {
        blocked: bool,
    },
    /// Ready; on a run queue of `cpu` once `queued`.
    Ready {
        cpu: u16,
        queued: bool,
    },
    Running {
        cpu: u16,
    },
    Stopped,
}

/// Result for one job.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub(super) path: Option<Path>,
    /// Time of a late job by where it went; empty for the others.
    pub(super) account: BTreeMap<Bucket, u64>,
    pub(super) faults: u32,
    /// Of `own_ns`, what followed its page faults closely enough to be their handling.
    pub(super) fault_own_ns: u64,
    pub(super) migrations: u32,
    pub(super) frequency_changed: bool,
    /// CPU time between start and end.
    pub(super) own_ns: u64,
    pub(super) lost: bool,
}

/// The ends of the spans that a trace holds, as its events pass.
struct Holes<'a>(&'a [Span]);

impl Holes<'_> {
    /// Whether what happens at `time_ns` is the first after the end of a span.
    fn passed(&mut self, time_ns: u64) -> bool {
        let ended = self.0.iter().take_while(|span| span.to_ns < time_ns).count();
        self.0 = &self.0[ended..];
        ended > 0
    }
}

/// Result of a pass.
pub(super) struct Swept {
    /// By job.
    pub(super) found: Vec<Found>,
    /// Parts left out by the kernel.
    pub(super) hidden: Vec<Hidden>,
    /// Time that nobody saw, by CPU.
    pub(super) gaps: Vec<Vec<Gap>>,
    /// What the trace shows of timers and interrupts.
    pub(super) shown: Shown,
}

pub(super) struct Sweep<'a> {
    trace: &'a Trace,
    tid: i32,
    cpus: Vec<Cpu>,
    prios: HashMap<i32, i16>,
    now: Now,
    prio: i16,
    /// The timer that the thread sleeps on: CPU and expiry, by its address.
    timers: HashMap<u64, (u16, u64)>,
    sleeping_on: Option<u64>,
    last_timer: Option<u64>,
    /// The timer that woke the thread last, in an interrupt of this CPU.
    woken_by: Option<(u64, u16)>,
    /// It is ready by inference: no event said so.
    inferred: bool,
    boosted: Vec<i32>,
    fault_ns: u64,
    /// Of the thread's own time, the next so much is taken for the handling of its last page fault.
    handling_ns: u64,
    throttled: bool,
    moved: bool,
    /// The last signal that stops, and who sent it.
    stop: Option<(i32, i32)>,
    asleep_since: u64,
    path: Option<Path>,
    hidden: Vec<Hidden>,
    /// By CPU.
    gaps: Vec<Vec<Gap>>,
    shown: Shown,
    last_ns: u64,
}

impl<'a> Sweep<'a> {
    pub(super) fn new(trace: &'a Trace, tid: i32) -> Self {
        let mut finder = GapFinder::default();
        let mut count = 0;
        let mut holes = Holes(&trace.spans);
        for event in &trace.events {
            if holes.passed(event.time_ns) {
                finder.hole();
            }
            count = count.max(usize::from(event.cpu) + 1);
            finder.see(event);
        }
        Self {
            trace,
            tid,
            cpus: (0..count).map(|_| Cpu::default()).collect(),
            prios: HashMap::new(),
            now: Now::Unknown,
            prio: 120,
            timers: HashMap::new(),
            sleeping_on: None,
            last_timer: None,
            woken_by: None,
            inferred: false,
            boosted: Vec::new(),
            fault_ns: 0,
            handling_ns: 0,
            throttled: false,
            moved: false,
            stop: None,
            asleep_since: 0,
            path: None,
            hidden: Vec::new(),
            gaps: finder.finish(&trace.steal),
            shown: Shown::default(),
            last_ns: 0,
        }
    }

    /// Passes over the trace with `jobs`, the thread's, in the order of time. `accounts[i]` asks
    /// for an account of job i, from its planned release to then.
    pub(super) fn run(mut self, jobs: &[JobRecord], accounts: &[Option<u64>]) -> Swept {
        let mut found = vec![Found::default(); jobs.len()];
        let mut current = 0;
        let mut woken = false;
        let mut holes = Holes(&self.trace.spans);
        for event in &self.trace.events {
            if holes.passed(event.time_ns) {
                // The last state of each CPU is the best guess; its state since then is unknown.
                self.cpus.iter_mut().for_each(Cpu::forget);
            }
            // Everything up to the event happened in the state before it; a job may end within.
            while let Some(job) = jobs.get(current) {
                let previous = current.checked_sub(1).and_then(|index| jobs.get(index));
                let until_ns = event.time_ns.min(job.end_ns);
                self.attribute(
                    job,
                    previous,
                    until_ns,
                    accounts.get(current).copied().flatten(),
                    &mut found[current],
                );
                if !woken && event.time_ns > job.wake_ns {
                    woken = true;
                    found[current].path = self.path_of(job, previous);
                }
                if event.time_ns <= job.end_ns {
                    break;
                }
                current += 1;
                woken = false;
                // The next job's window may have begun before this one ended.
            }
            self.last_ns = event.time_ns;
            if let Some(job) = jobs.get(current) {
                self.note(event, job, &mut found[current]);
            }
            if let Kind::Lost { .. } = event.kind {
                self.mark_lost(event, jobs, current, &mut found);
            }
            self.apply(event);
        }
        Swept { found, hidden: self.hidden, gaps: self.gaps, shown: self.shown }
    }

    /// The path that led to this job's wake-up.
    fn path_of(&mut self, job: &JobRecord, previous: Option<&JobRecord>) -> Option<Path> {
        let before_ns = previous.map_or(0, |job| job.end_ns);
        if let Some(path) = self.path.take()
            && path.waking_ns >= before_ns
            && path.switch_in_ns.is_some_and(|switch_in_ns| switch_in_ns <= job.wake_ns)
        {
            return Some(path);
        }
        // It never slept: the release found it awake.
        (previous.is_some() && self.asleep_since < before_ns && self.now != Now::Unknown)
            .then(|| Path::awake(before_ns.max(job.planned_ns)))
    }

    fn mark_lost(&self, event: &Event, jobs: &[JobRecord], current: usize, found: &mut [Found]) {
        let since_ns = self.cpus.get(usize::from(event.cpu)).map_or(0, |cpu| cpu.last_ns);
        // Jobs before `current` may reach into the hole as well, and jobs after it may lie wholly
        // within.
        let mut index = jobs[..current.min(jobs.len())].partition_point(|job| job.end_ns < since_ns);
        while let Some(job) = jobs.get(index) {
            if job.planned_ns.saturating_sub(1_000_000) > event.time_ns {
                break;
            }
            found[index].lost = true;
            index += 1;
        }
    }

    /// Counts what an event says about the job under way.
    fn note(&mut self, event: &Event, job: &JobRecord, found: &mut Found) {
        if event.time_ns < job.planned_ns {
            return;
        }
        match event.kind {
            Kind::PageFault { .. } if event.tid == self.tid => found.faults += 1,
            Kind::Migrate { tid, .. } if tid == self.tid => found.migrations += 1,
            Kind::CpuFrequency { cpu, .. } if self.now == (Now::Running { cpu }) => {
                found.frequency_changed = true
            }
            // A thread that was given its priority while it ran is known by it only when it leaves.
            Kind::Switch { prev_tid, prev_prio, .. } if prev_prio <= self.prio => {
                if let Some(ns) = found.account.remove(&Bucket::Unpreemptible(prev_tid)) {
                    *found.account.entry(Bucket::Thread(prev_tid, prev_prio)).or_default() += ns;
                }
            }
            // The thread that wakes it in the middle of a job, or instead of a timer, was waited
            // for.
            Kind::Waking { tid, .. } if tid == self.tid => {
                if let Some(ns) = found.account.remove(&Bucket::Waited(-1)) {
                    let in_interrupt =
                        self.cpus.get(usize::from(event.cpu)).is_some_and(|cpu| !cpu.interrupts.is_empty());
                    let waker = if in_interrupt { 0 } else { event.tid };
                    *found.account.entry(Bucket::Waited(waker)).or_default() += ns;
                }
            }
            _ => {}
        }
    }

    /// Charges the time since the last event, as far as it belongs to the job.
    fn attribute(
        &mut self,
        job: &JobRecord,
        previous: Option<&JobRecord>,
        until_ns: u64,
        account_to_ns: Option<u64>,
        found: &mut Found,
    ) {
        let from_ns = self.last_ns.max(job.planned_ns);
        if let Now::Running { cpu } = self.now
            && let Some(state) = self.cpus.get(usize::from(cpu))
            && state.interrupts.is_empty()
            && state.softirq().is_none()
            && self.boosted.is_empty()
        {
            let own_ns = until_ns.saturating_sub(self.last_ns.max(job.start_ns));
            let handling_ns = own_ns.min(self.handling_ns);
            self.handling_ns -= handling_ns;
            found.own_ns += own_ns;
            found.fault_own_ns += handling_ns;
        }
        let Some(account_to_ns) = account_to_ns else { return };
        let until_ns = until_ns.min(account_to_ns);
        if from_ns >= until_ns {
            return;
        }
        let mut from_ns = from_ns;
        if let Some(previous) = previous
            && from_ns < previous.end_ns
        {
            let to_ns = previous.end_ns.min(until_ns);
            *found.account.entry(Bucket::Previous).or_default() += to_ns - from_ns;
            from_ns = to_ns;
        }
        // A slice may reach over the expiry of the timer: only what is after it can be blamed on
        // anybody.
        let expires_ns = match (self.now, self.sleeping_on.and_then(|timer| self.timers.get(&timer))) {
            (Now::Asleep { .. }, Some(&(_, expires_ns))) if from_ns < job.wake_ns => Some(expires_ns),
            _ => None,
        };
        if let Some(expires_ns) = expires_ns
            && from_ns < expires_ns
        {
            let to_ns = expires_ns.min(until_ns);
            *found.account.entry(Bucket::Slack).or_default() += to_ns - from_ns;
            from_ns = to_ns;
        }
        if from_ns >= until_ns {
            return;
        }
        let (bucket, cpu) = self.bucket(expires_ns.is_some());
        let gaps = cpu.and_then(|cpu| self.gaps.get(usize::from(cpu))).map_or(&[][..], Vec::as_slice);
        let all_ns = until_ns - from_ns;
        let mut within = Within::of(gaps, from_ns, until_ns);
        // The firmware stops all CPUs, whatever each of them did.
        if cpu.is_some() {
            let firmware_ns = steal::length_within(&self.trace.firmware.gaps, from_ns, until_ns);
            within.gap_ns += firmware_ns.min(all_ns - within.sum_ns());
        }
        for (bucket, ns) in [
            (Bucket::Steal { idle: false }, within.stolen_ns),
            (Bucket::Steal { idle: true }, within.idle_stolen_ns),
            (Bucket::Gap, within.gap_ns),
            (Bucket::Halted, within.idle_ns),
            (bucket, all_ns - within.sum_ns()),
        ] {
            if ns > 0 {
                *found.account.entry(bucket).or_default() += ns;
            }
        }
    }

    /// The thread's present obstacle, and the CPU that shows it.
    fn bucket(&self, timer: bool) -> (Bucket, Option<u16>) {
        let interrupted = |cpu: &Cpu| match (cpu.interrupts.last(), cpu.softirq()) {
            (Some((Interrupt::Vector(vector), _)), _) => Some(Bucket::Vector(*vector)),
            (Some((Interrupt::Irq(irq), _)), _) => Some(Bucket::Irq(*irq)),
            (None, Some(softirq)) => Some(Bucket::Softirq(softirq)),
            (None, None) => None,
        };
        let state = |cpu: u16| self.cpus.get(usize::from(cpu));
        match self.now {
            Now::Unknown => (Bucket::Unknown, None),
            Now::Stopped => {
                let (signal, by) = self.stop.unwrap_or((0, -1));
                (Bucket::Stopped(signal, by), None)
            }
            Now::Running { cpu } => {
                // The kernel spins for a while on a lock whose holder runs on another CPU.
                let own = self.boosted.last().map_or(Bucket::Own, |&holder| Bucket::Lock(holder));
                (state(cpu).and_then(interrupted).unwrap_or(own), Some(cpu))
            }
            Now::Ready { .. } if self.throttled => (Bucket::Throttled, None),
            Now::Ready { cpu, .. } => {
                let Some(on) = state(cpu) else { return (Bucket::Unknown, None) };
                let bucket = match interrupted(on) {
                    Some(bucket) => bucket,
                    None if on.tid == 0 || on.tid == self.tid => {
                        if self.moved {
                            Bucket::Migration
                        } else {
                            Bucket::Idle
                        }
                    }
                    None if is_stopper(self.trace, on.tid) => Bucket::Migration,
                    None if on.denied && on.prio > self.prio && self.prio >= 0 => Bucket::Throttled,
                    // Carried to a CPU that has yet to notice.
                    None if self.moved && on.prio > self.prio => Bucket::Migration,
                    // Among fair threads whoever runs has a right to; a real-time one must not wait
                    // for a lower one.
                    None if on.prio > self.prio && self.prio < 100 => Bucket::Unpreemptible(on.tid),
                    None => Bucket::Thread(on.tid, on.prio),
                };
                (bucket, Some(cpu))
            }
            Now::Asleep { blocked } => {
                if timer {
                    let cpu = self.sleeping_on.and_then(|timer| self.timers.get(&timer)).map(|timer| timer.0);
                    let Some(on) = cpu.and_then(state) else { return (Bucket::Unknown, None) };
                    let bucket = match interrupted(on) {
                        Some(bucket) => bucket,
                        None if on.timers_deferred() => Bucket::Softirq(Softirq::HRTIMER),
                        None if on.tid == 0 => Bucket::Idle,
                        None => Bucket::InterruptsOff(on.tid),
                    };
                    return (bucket, cpu);
                }
                let bucket = match self.boosted.last() {
                    Some(&holder) => Bucket::Lock(holder),
                    None if blocked && self.fault_ns > 0 => Bucket::Fault,
                    None => Bucket::Waited(-1),
                };
                (bucket, None)
            }
        }
    }

    /// Brings the states up to date.
    fn apply(&mut self, event: &Event) {
        let at = usize::from(event.cpu);
        let own = self.tid;
        let now_ns = event.time_ns;
        let unseen = self.was_woken_unseen(event);
        if let Some(cpu) = self.cpus.get_mut(at) {
            if cpu.tid != event.tid && !matches!(event.kind, Kind::Lost { .. }) {
                // First event of this CPU, or the first after a hole: one that is reported, or
                // one that is not.
                if cpu.known {
                    let span = Span { from_ns: cpu.last_ns, to_ns: now_ns };
                    self.hidden.push(Hidden { cpu: event.cpu, tid: cpu.tid, span });
                }
                cpu.tid = event.tid;
                cpu.prio = self.prios.get(&event.tid).copied().unwrap_or(120);
            }
            cpu.apply(event);
            count_shown(&mut self.shown, event.kind, cpu);
        }
        if let Kind::Migrate { tid, .. } = event.kind {
            for cpu in &mut self.cpus {
                cpu.preempted.retain(|&left| left != tid);
            }
        }
        if event.tid == own && matches!(self.now, Now::Unknown) {
            self.now = Now::Running { cpu: event.cpu };
        }
        if unseen {
            self.now = Now::Ready { cpu: event.cpu, queued: true };
            self.inferred = true;
        }
        match event.kind {
            Kind::TimerStart { timer, expires_ns, .. } => {
                self.timers.insert(timer, (event.cpu, expires_ns));
                if event.tid == own && self.now == (Now::Running { cpu: event.cpu }) {
                    let in_interrupt = self.cpus.get(at).is_some_and(|cpu| !cpu.interrupts.is_empty());
                    if !in_interrupt {
                        self.last_timer = Some(timer);
                    }
                }
            }
            Kind::PageFault { .. } if event.tid == own => {
                self.fault_ns = now_ns;
                self.handling_ns = most_fault_ns(self.trace.guest);
            }
            Kind::Waking { tid, prio, target_cpu } | Kind::WakeupNew { tid, prio, target_cpu } => {
                self.prios.insert(tid, prio);
                if tid == own {
                    self.prio = prio;
                    if self.inferred || !matches!(self.now, Now::Running { .. } | Now::Ready { .. }) {
                        self.inferred = false;
                        self.path = self.activation(event);
                        self.woken_by = self
                            .cpus
                            .get(at)
                            .and_then(Cpu::expiry_in_interrupt)
                            .map(|timer| (timer, event.cpu));
                        self.now = Now::Ready { cpu: target_cpu, queued: false };
                    }
                }
            }
            Kind::Wakeup { tid, target_cpu, .. } if tid == own => {
                if let Now::Ready { cpu, queued } = &mut self.now {
                    *cpu = target_cpu;
                    *queued = true;
                }
            }
            Kind::Migrate { tid, to_cpu, .. } if tid == own => {
                if let Now::Ready { cpu, .. } = &mut self.now {
                    *cpu = to_cpu;
                    self.moved = true;
                }
            }
            Kind::PiSetprio { tid, old_prio, new_prio } => {
                self.prios.insert(tid, new_prio);
                if tid == own {
                    self.prio = new_prio;
                } else if event.tid == own && new_prio < old_prio {
                    self.boosted.push(tid);
                } else if new_prio > old_prio {
                    // It has given the lock away.
                    self.boosted.retain(|&holder| holder != tid);
                }
                for cpu in self.cpus.iter_mut().filter(|cpu| cpu.tid == tid) {
                    cpu.prio = new_prio;
                }
            }
            Kind::Switch { prev_tid, prev_prio, prev_state, next_tid, next_prio } => {
                self.prios.insert(prev_tid, prev_prio);
                self.prios.insert(next_tid, next_prio);
                if let Some(cpu) = self.cpus.get_mut(at) {
                    (cpu.tid, cpu.prio) = (next_tid, next_prio);
                }
                if prev_tid == own {
                    self.prio = prev_prio;
                    self.leave(event.cpu, prev_state, now_ns);
                }
                if next_tid == own {
                    self.enter(event.cpu, next_prio, now_ns);
                } else if let Now::Ready { cpu, queued: true } = self.now
                    && cpu == event.cpu
                    && self.prio < 100
                    && (next_prio > self.prio || next_tid == 0)
                {
                    // The scheduler chose a lower priority although this thread was ready: its
                    // budget is exhausted.
                    self.throttled = true;
                }
            }
            // A signal for the process names one of its threads; that which is stopped may be
            // another.
            Kind::SignalGenerate { signal, tid } if is_stop(signal) && self.is_same_process(tid) => {
                self.stop = Some((signal, event.tid));
            }
            Kind::Lost { .. } => {
                self.stop = None;
                // Whatever began before the hole may have ended in it, or been replaced by
                // something else.
                self.now = Now::Unknown;
                self.path = None;
                self.boosted.clear();
                self.timers.retain(|_, timer| timer.0 != event.cpu);
                self.sleeping_on = None;
                self.last_timer = None;
                self.fault_ns = 0;
                self.handling_ns = 0;
                self.throttled = false;
                self.moved = false;
                // It may have slept in the hole.
                self.asleep_since = now_ns;
            }
            _ => {}
        }
    }

    /// Whether the thread must have been woken although no event says so (a kernel may leave out
    /// what happens while some thread has the CPU): an interrupt of the timer that began after the
    /// expiry runs all timers that are due, and the one that the thread sleeps on woke it in such
    /// an interrupt of this CPU before.
    fn was_woken_unseen(&self, event: &Event) -> bool {
        let Kind::VectorExit(Vector::LocalTimer) = event.kind else { return false };
        let Some(timer) = self.sleeping_on.filter(|_| matches!(self.now, Now::Asleep { .. })) else {
            return false;
        };
        let interrupt = self.cpus.get(usize::from(event.cpu)).and_then(|cpu| cpu.interrupts.last());
        let (Some(&(_, expires_ns)), Some(&(Interrupt::Vector(Vector::LocalTimer), entry_ns))) =
            (self.timers.get(&timer), interrupt)
        else {
            return false;
        };
        self.woken_by == Some((timer, event.cpu)) && expires_ns < entry_ns
    }

    fn is_same_process(&self, tid: i32) -> bool {
        let pid_of = |tid: i32| self.trace.threads.get(&tid).and_then(|thread| thread.pid);
        let own = pid_of(self.tid);
        tid == self.tid || own.is_some_and(|own| own == tid || pid_of(tid) == Some(own))
    }

    fn leave(&mut self, cpu: u16, state: State, now_ns: u64) {
        self.throttled = false;
        self.moved = false;
        self.now = match state {
            State::Runnable => Now::Ready { cpu, queued: true },
            State::Stopped | State::Traced => Now::Stopped,
            state => {
                self.asleep_since = now_ns;
                // Only a fault that waits for its page goes on afterwards.
                if state == State::Sleeping {
                    self.handling_ns = 0;
                }
                self.sleeping_on = self.last_timer.take();
                Now::Asleep { blocked: state == State::Blocked }
            }
        };
        if self.now == Now::Stopped {
            self.asleep_since = now_ns;
            // A debugger's stop has no such signal.
            self.stop = self.stop.filter(|_| state == State::Stopped);
        }
    }

    fn enter(&mut self, cpu: u16, prio: i16, now_ns: u64) {
        self.now = Now::Running { cpu };
        self.inferred = false;
        self.prio = prio;
        self.throttled = false;
        self.moved = false;
        self.fault_ns = 0;
        self.last_timer = None;
        let switches = |at: u16| self.cpus.get(usize::from(at)).map_or(0, |cpu| cpu.switches);
        if let Some(path) = &mut self.path
            && path.switch_in_ns.is_none()
        {
            path.switch_in_ns = Some(now_ns);
            let since = u64::from(path.cpu != cpu) + switches(path.cpu);
            path.switches = u32::try_from(since.saturating_sub(path.switches_before)).unwrap_or(u32::MAX);
        }
    }

    /// The first half of a path: how the wake-up came about.
    fn activation(&self, event: &Event) -> Option<Path> {
        let cpu = self.cpus.get(usize::from(event.cpu))?;
        let mut path = Path {
            activation: Activation::Event,
            programmed_ns: None,
            irq_ns: cpu.interrupts.first().map(|interrupt| interrupt.1),
            raise_ns: None,
            handler: None,
            expire_ns: None,
            waking_ns: event.time_ns,
            switch_in_ns: None,
            switches: 0,
            cpu: event.cpu,
            waker: event.tid,
            switches_before: if cpu.interrupts.is_empty() { cpu.switches } else { cpu.switches_before },
        };
        if let Some(expiry) = cpu.expiry() {
            path.activation = Activation::Timer;
            path.expire_ns = Some(expiry.began_ns);
            path.programmed_ns = self.timers.get(&expiry.timer).map(|timer| timer.1);
            if let Some(raised) = expiry.raised {
                path.activation = Activation::DeferredTimer;
                path.raise_ns = Some(raised.raise_ns);
                path.irq_ns = raised.irq_ns;
                path.handler = raised.handler;
                path.switches_before = raised.switches;
            }
        }
        Some(path)
    }
}

/// Counts what this event, which `cpu` knows by now, shows of timers and interrupts.
fn count_shown(shown: &mut Shown, kind: Kind, cpu: &Cpu) {
    let is_in_interrupt = !cpu.interrupts.is_empty();
    match kind {
        Kind::TimerStart { .. } => shown.programmed += 1,
        Kind::VectorEntry(Vector::LocalTimer) => shown.timer_vectors += 1,
        Kind::SoftirqRaise(Softirq::HRTIMER) => {
            shown.raised += 1;
            shown.in_interrupt += u64::from(is_in_interrupt);
        }
        Kind::SoftirqEntry(Softirq::HRTIMER) => shown.softirqs += 1,
        Kind::TimerExpireEntry { .. } if is_in_interrupt => shown.in_interrupt += 1,
        Kind::TimerExpireEntry { .. } if cpu.softirq().is_none() => shown.outside += 1,
        _ => {}
    }
}
