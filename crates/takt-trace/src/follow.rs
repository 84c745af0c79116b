//! Kernel events to activations: from each wake-up of a watched thread to its next sleep.

use std::collections::{BTreeMap, HashMap};

use crate::bpf::{Awake, Waker};
use crate::event::{Event, Kind, State};

/// Waker of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// A timer, by its address; by its function where a thread has ever new ones of it: those of
    /// sleeps lie on the kernel's stack, at places that are chosen at random
    /// (CONFIG_RANDOMIZE_KSTACK_OFFSET).
    Timer(u64),
    /// Another thread: a lock given back, a condition signalled, data written into a pipe or
    /// socket, a signal.
    Thread(i32),
    /// A device's interrupt, by its number.
    Interrupt(u32),
    /// A software interrupt, by its number: 3 is the network's input.
    Softirq(u8),
    /// The CPU's own interrupts, or one that nobody reported.
    Other,
    /// Nothing: it was awake, and called the kernel to hand something out.
    Call {
        /// Number of the call.
        number: u32,
        /// The file that it was about.
        file: i32,
    },
}

/// From a wake-up to the next sleep. Times are CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activation {
    /// Its waker.
    pub source: Source,
    /// When it was to be woken: what its timer was set to, else the begin of the wake-up.
    pub planned_ns: u64,
    /// It got a CPU.
    pub awake_ns: u64,
    /// It went to sleep.
    pub end_ns: u64,
    /// CPU time in between.
    pub cpu_ns: u64,
    /// State at its end.
    pub state: State,
    /// The timer that it set before it went to sleep.
    pub slept_on: Option<u64>,
    /// CPU that it ended on.
    pub cpu: u16,
}

impl Activation {
    /// One that has just got a CPU.
    fn begin(source: Source, planned_ns: u64, now_ns: u64, cpu: u16) -> Self {
        Self {
            source,
            planned_ns,
            awake_ns: now_ns,
            end_ns: now_ns,
            cpu_ns: 0,
            state: State::Other,
            slept_on: None,
            cpu,
        }
    }
}

/// Knowledge about a watched thread from its events.
#[derive(Debug, Default)]
pub struct Followed {
    now: Now,
    pending: Option<(Source, u64)>,
    current: Option<Activation>,
    running_since_ns: u64,
    /// The timer that it set last, and whether that was due already.
    armed: Option<(u64, bool)>,
    /// Addresses of its timers, by their function.
    timers: BTreeMap<u64, Vec<u64>>,
    /// Object on which the thread slept last.
    slept_on: Option<u64>,
    /// Finished activations that nobody has taken yet.
    pub activations: Vec<Activation>,
    /// CPU time so far.
    pub cpu_ns: u64,
    /// So often did it lose its CPU while it was ready to go on.
    pub preempted: u64,
    /// Its page faults so far.
    pub faults: u64,
    /// Threads that ran while it was ready and waited for its CPU (0: none; the CPU came out of
    /// idle, or was about to switch).
    pub kept_by: BTreeMap<i32, u64>,
    /// CPUs that it ran on, with the time.
    pub ran_on: BTreeMap<u16, u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Now {
    #[default]
    Unknown,
    Asleep,
    Ready {
        cpu: u16,
        since_ns: u64,
    },
    Running {
        cpu: u16,
    },
}

/// State of a CPU.
#[derive(Debug, Default)]
struct Cpu {
    tid: i32,
    /// Since when the current thread has had it.
    since_ns: u64,
    irq: Option<u32>,
    vector: bool,
    softirq: Option<u8>,
    /// The timers whose functions run, those functions, and when they were due: an interrupt's lies
    /// on top of a deferred one.
    expiring: Vec<(u64, u64, u64)>,
    /// Watched threads that wait for it.
    waiting: Vec<i32>,
}

/// An expiry further from its event than this is of another clock.
const SAME_CLOCK_NS: u64 = 60_000_000_000;
/// Timers of one function that a thread may have, and each is a timer of its own.
const MAX_LASTING: usize = 4;
/// Timers that are remembered: those of threads that have ended stay, so all are forgotten now and
/// then.
const MAX_TIMERS: usize = 1 << 16;

/// Functions of timers that lie on top of each other on a CPU.
const DEEPEST: usize = 4;

/// Time from then until `now_ns`, if both can be times of one clock.
fn since(before_ns: u64, now_ns: u64) -> Option<u64> {
    now_ns.checked_sub(before_ns).filter(|&since_ns| since_ns < SAME_CLOCK_NS)
}

/// Follows threads through the events of a trace, which may come in parts.
#[derive(Debug, Default)]
pub struct Follower {
    cpus: Vec<Cpu>,
    /// Function and expiry by address: the earliest expiry, since the slack behind it is lateness
    /// as any other.
    timers: HashMap<u64, (u64, u64)>,
    /// The watched threads.
    pub threads: HashMap<i32, Followed>,
}

impl Follower {
    /// Takes the next event.
    pub fn see(&mut self, event: &Event) {
        let at = usize::from(event.cpu);
        if self.cpus.len() <= at {
            self.cpus.resize_with(at + 1, Cpu::default);
        }
        let now_ns = event.time_ns;
        if let Kind::Lost { .. } = event.kind {
            self.lose();
            return;
        }
        let cpu = &mut self.cpus[at];
        if cpu.tid != event.tid {
            // Some kernels leave out what happens while certain threads are current.
            (cpu.tid, cpu.since_ns) = (event.tid, now_ns);
            (cpu.irq, cpu.vector, cpu.softirq) = (None, false, None);
            cpu.expiring.clear();
        }
        match event.kind {
            Kind::TimerStart { timer, function, expires_ns, slack_ns } => {
                if self.timers.len() >= MAX_TIMERS {
                    self.timers.clear();
                }
                self.timers.insert(timer, (function, expires_ns.saturating_sub(slack_ns.into())));
                let in_thread = cpu.irq.is_none() && !cpu.vector && cpu.softirq.is_none();
                if in_thread && let Some(thread) = self.threads.get_mut(&event.tid) {
                    thread.armed = Some((timer, since(expires_ns, now_ns).is_some()));
                }
            }
            Kind::TimerExpireEntry { timer, function, now_ns: of_timer_ns } => {
                let due_ns = self.timers.get(&timer).map_or(now_ns, |&(_, set_ns)| {
                    // Set on another clock than the events': how late it is there holds here as
                    // well.
                    let late_ns = since(set_ns, now_ns).or(since(set_ns, of_timer_ns)).unwrap_or(0);
                    now_ns.saturating_sub(late_ns)
                });
                if cpu.expiring.len() < DEEPEST {
                    cpu.expiring.push((timer, function, due_ns));
                }
                if let Some(thread) = self.threads.get_mut(&event.tid)
                    && thread.armed == Some((timer, true))
                {
                    thread.release_awake(event.cpu, (timer, function), due_ns, now_ns);
                }
            }
            Kind::TimerExpireExit { timer } => cpu.expiring.retain(|one| one.0 != timer),
            Kind::VectorEntry(_) => cpu.vector = true,
            Kind::VectorExit(_) => cpu.vector = false,
            Kind::IrqEntry { irq } => cpu.irq = Some(irq),
            Kind::IrqExit { .. } => cpu.irq = None,
            Kind::SoftirqEntry(softirq) => cpu.softirq = Some(softirq.0),
            Kind::SoftirqExit(_) => cpu.softirq = None,
            Kind::PageFault { .. } => {
                if let Some(thread) = self.threads.get_mut(&event.tid) {
                    thread.faults += 1;
                }
            }
            Kind::Waking { tid, target_cpu, .. } | Kind::WakeupNew { tid, target_cpu, .. } => {
                self.wake(event, tid, target_cpu);
            }
            Kind::Wakeup { tid, target_cpu, .. } | Kind::Migrate { tid, to_cpu: target_cpu, .. } => {
                self.queue(tid, target_cpu, now_ns);
            }
            Kind::Switch { prev_tid, prev_state, next_tid, .. } => {
                self.switch(event.cpu, prev_tid, prev_state, next_tid, now_ns);
            }
            Kind::Exit { tid } => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.armed = None;
                }
            }
            _ => {}
        }
    }

    /// Events are missing: what was under way may be over.
    fn lose(&mut self) {
        for thread in self.threads.values_mut() {
            (thread.now, thread.pending, thread.current) = (Now::Unknown, None, None);
            (thread.armed, thread.slept_on) = (None, None);
        }
        self.timers.clear();
        self.cpus.clear();
    }

    fn wake(&mut self, event: &Event, tid: i32, target_cpu: u16) {
        let cpu = &self.cpus[usize::from(event.cpu)];
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        if matches!(thread.now, Now::Running { .. } | Now::Ready { .. }) {
            return;
        }
        let now_ns = event.time_ns;
        let (source, planned_ns) = match (cpu.expiring.last().copied(), cpu.irq, cpu.softirq) {
            (Some((timer, function, due_ns)), ..) => {
                (Source::Timer(thread.timer_id(timer, function)), due_ns.min(now_ns))
            }
            (None, Some(irq), _) => (Source::Interrupt(irq), now_ns),
            (None, None, Some(softirq)) => (Source::Softirq(softirq), now_ns),
            (None, None, None) if cpu.vector || event.tid == 0 => (Source::Other, now_ns),
            (None, None, None) => (Source::Thread(event.tid), now_ns),
        };
        thread.pending = Some((source, planned_ns));
        thread.now = Now::Unknown;
        self.queue(tid, target_cpu, now_ns);
    }

    /// The thread waits for `cpu` from now on.
    fn queue(&mut self, tid: i32, cpu: u16, now_ns: u64) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let from = match thread.now {
            Now::Running { .. } => return,
            Now::Ready { cpu: same, .. } if same == cpu => return,
            Now::Ready { cpu: other, since_ns } => {
                if let Some(other) = self.cpus.get_mut(usize::from(other)) {
                    other.waiting.retain(|&waiting| waiting != tid);
                    let waited_ns = now_ns.saturating_sub(since_ns.max(other.since_ns));
                    let kept = thread.kept_by.entry(other.tid).or_default();
                    *kept = kept.saturating_add(waited_ns);
                }
                now_ns
            }
            _ if thread.pending.is_none() => return,
            _ => now_ns,
        };
        thread.now = Now::Ready { cpu, since_ns: from };
        let at = usize::from(cpu);
        if self.cpus.len() <= at {
            self.cpus.resize_with(at + 1, Cpu::default);
        }
        self.cpus[at].waiting.push(tid);
    }

    fn switch(&mut self, at: u16, prev_tid: i32, prev_state: State, next_tid: i32, now_ns: u64) {
        let cpu = &mut self.cpus[usize::from(at)];
        for tid in &cpu.waiting {
            if let Some(thread) = self.threads.get_mut(tid)
                && let Now::Ready { since_ns, .. } = thread.now
            {
                let waited_ns = now_ns.saturating_sub(since_ns.max(cpu.since_ns));
                let kept = thread.kept_by.entry(prev_tid).or_default();
                *kept = kept.saturating_add(waited_ns);
            }
        }
        cpu.waiting.retain(|&tid| tid != next_tid);
        (cpu.tid, cpu.since_ns) = (next_tid, now_ns);
        cpu.expiring.clear();
        if let Some(thread) = self.threads.get_mut(&prev_tid)
            && thread.leave(at, prev_state, now_ns, &self.timers)
        {
            cpu.waiting.push(prev_tid);
        }
        if let Some(thread) = self.threads.get_mut(&next_tid) {
            thread.enter(at, now_ns, &self.timers);
        }
    }
}

impl Followed {
    /// Takes what the kernel itself has followed.
    pub fn take(&mut self, awake: &Awake) -> Activation {
        let source = match awake.waker {
            Waker::Timer { timer, function } => Source::Timer(self.timer_id(timer, function)),
            Waker::Thread(tid) => Source::Thread(tid),
            Waker::Interrupt(irq) => Source::Interrupt(irq),
            Waker::Softirq(number) => Source::Softirq(number),
            Waker::Other => Source::Other,
        };
        self.cpu_ns += awake.cpu_ns;
        self.preempted += awake.preempted;
        *self.ran_on.entry(awake.cpu).or_default() += awake.cpu_ns;
        let (who, waited_ns) = awake.kept_by;
        if waited_ns > 0 {
            *self.kept_by.entry(who).or_default() += waited_ns;
        }
        Activation {
            source,
            planned_ns: awake.planned_ns,
            awake_ns: awake.awake_ns,
            end_ns: awake.end_ns,
            cpu_ns: awake.cpu_ns,
            state: awake.state,
            slept_on: awake.slept_on.map(|(timer, function)| self.timer_id(timer, function)),
            cpu: awake.cpu,
        }
    }

    /// Identity of a timer of this thread.
    fn timer_id(&mut self, timer: u64, function: u64) -> u64 {
        let known = self.timers.entry(function).or_default();
        if known.len() <= MAX_LASTING && !known.contains(&timer) {
            known.push(timer);
        }
        if known.len() > MAX_LASTING { function } else { timer }
    }

    /// It asked to sleep until a time that had passed: the timer fires at once, and the thread goes
    /// on without having slept. This is the end of a cycle and the begin of the next.
    fn release_awake(&mut self, cpu: u16, (timer, function): (u64, u64), due_ns: u64, now_ns: u64) {
        let Now::Running { .. } = self.now else { return };
        let id = self.timer_id(timer, function);
        self.armed = None;
        let ran_ns = now_ns.saturating_sub(self.running_since_ns);
        self.cpu_ns += ran_ns;
        *self.ran_on.entry(cpu).or_default() += ran_ns;
        self.running_since_ns = now_ns;
        if let Some(current) = self.current.take() {
            let cpu_ns = current.cpu_ns + ran_ns;
            let state = State::Sleeping;
            self.activations.push(Activation {
                end_ns: now_ns,
                cpu_ns,
                state,
                slept_on: Some(id),
                cpu,
                ..current
            });
        }
        self.current = Some(Activation::begin(Source::Timer(id), due_ns, now_ns, cpu));
    }

    /// It gets a CPU.
    fn enter(&mut self, cpu: u16, now_ns: u64, timers: &HashMap<u64, (u64, u64)>) {
        let was = std::mem::replace(&mut self.now, Now::Running { cpu });
        self.running_since_ns = now_ns;
        self.armed = None;
        if self.current.is_some() {
            return;
        }
        let mut woken = self.pending.take();
        // Nobody reported the wake-up. The timer that it slept on was due, so it was that.
        if woken.is_none()
            && was == Now::Asleep
            && let Some(timer) = self.slept_on
            && let Some(&(function, due_ns)) = timers.get(&timer)
            && since(due_ns, now_ns).is_some()
        {
            woken = Some((Source::Timer(self.timer_id(timer, function)), due_ns));
        }
        let (source, planned_ns) = match woken {
            Some(woken) => woken,
            None if was == Now::Asleep => (Source::Other, now_ns),
            // It may have run for long: its begin was not seen.
            None => return,
        };
        self.current = Some(Activation::begin(source, planned_ns, now_ns, cpu));
    }

    /// It leaves a CPU; true where it goes on waiting for it.
    fn leave(&mut self, cpu: u16, state: State, now_ns: u64, timers: &HashMap<u64, (u64, u64)>) -> bool {
        let ran_ns = match self.now {
            Now::Running { .. } => now_ns.saturating_sub(self.running_since_ns),
            _ => 0,
        };
        self.cpu_ns += ran_ns;
        *self.ran_on.entry(cpu).or_default() += ran_ns;
        if let Some(current) = &mut self.current {
            current.cpu_ns += ran_ns;
        }
        if state == State::Runnable {
            self.preempted += 1;
            self.now = Now::Ready { cpu, since_ns: now_ns };
            return true;
        }
        self.now = Now::Asleep;
        self.pending = None;
        self.slept_on = self.armed.take().map(|armed| armed.0).filter(|timer| timers.contains_key(timer));
        let slept_on = self.slept_on.and_then(|timer| Some((timer, timers.get(&timer)?.0)));
        let slept_on = slept_on.map(|(timer, function)| self.timer_id(timer, function));
        if let Some(current) = self.current.take() {
            self.activations.push(Activation { end_ns: now_ns, state, slept_on, cpu, ..current });
        }
        false
    }
}

#[cfg(test)]
mod tests;
