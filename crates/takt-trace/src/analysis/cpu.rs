//! State of one CPU: the thread that has it, the interrupts on top of it, and the software
//! interrupts of its threads.

use super::path::Handler;
use crate::event::{Event, Kind, Softirq, State, Vector};

/// Kind of interruption of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    Vector(Vector),
    Irq(u32),
}

/// An interrupt that left its timers to the software interrupt.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimerRaise {
    pub(super) raise_ns: u64,
    pub(super) irq_ns: Option<u64>,
    /// `Cpu::switches` then.
    pub(super) switches: u64,
    /// The thread that the CPU had to switch to for it.
    pub(super) handler: Option<Handler>,
}

/// A timer whose function runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expiry {
    pub(super) timer: u64,
    pub(super) began_ns: u64,
    /// On the deferred path: where that began.
    pub(super) raised: Option<TimerRaise>,
}

/// A software interrupt in progress. On PREEMPT_RT it runs in a thread (`ktimers`, `ksoftirqd`, one
/// that enables software interrupts again), which an interrupt can interrupt and another thread
/// preempt; elsewhere it runs on top of whatever thread has the CPU, until it ends.
#[derive(Debug, Clone, Copy)]
struct Deferred {
    tid: i32,
    softirq: Softirq,
    raised: Option<TimerRaise>,
    expiry: Option<Expiry>,
}

#[derive(Debug, Default)]
pub(super) struct Cpu {
    pub(super) tid: i32,
    pub(super) prio: i16,
    /// Interrupts in progress, the outermost first, with their begin.
    pub(super) interrupts: Vec<(Interrupt, u64)>,
    /// One a thread, mostly none.
    deferred: Vec<Deferred>,
    /// Timer whose function runs in an interrupt.
    expiry: Option<Expiry>,
    /// Timers wait for the software interrupt.
    raised: Option<TimerRaise>,
    /// Wake-ups of threads since then, the first of each: one of them may be to run the software
    /// interrupt.
    woken: Vec<(i32, u64)>,
    /// When `tid` got the CPU.
    switch_in_ns: u64,
    /// A fair thread runs although a real-time one is ready: the budget of real-time threads is
    /// exhausted.
    pub(super) denied: bool,
    /// Real-time threads that left this CPU ready, and have not come back.
    pub(super) preempted: Vec<i32>,
    pub(super) switches: u64,
    /// `switches` when the outermost interrupt came.
    pub(super) switches_before: u64,
    pub(super) last_ns: u64,
    /// Whether `tid` is what the events said, and nothing was lost since.
    pub(super) known: bool,
}

impl Cpu {
    /// The software interrupt that the thread on this CPU runs, or is held up by.
    pub(super) fn softirq(&self) -> Option<Softirq> {
        self.deferred.iter().find(|deferred| deferred.tid == self.tid).map(|deferred| deferred.softirq)
    }

    /// The timer whose function runs now: an interrupt's, though it may have come into the middle
    /// of a software interrupt; or the software interrupt's.
    pub(super) fn expiry(&self) -> Option<Expiry> {
        let here = self.deferred.iter().find(|deferred| deferred.tid == self.tid);
        match here {
            Some(deferred) if self.interrupts.is_empty() => deferred.expiry,
            _ => self.expiry,
        }
    }

    /// The timer whose function runs in an interrupt.
    pub(super) fn expiry_in_interrupt(&self) -> Option<u64> {
        self.expiry.filter(|_| !self.interrupts.is_empty()).map(|expiry| expiry.timer)
    }

    /// Whether timers wait for the software interrupt, or it was preempted before it had done them
    /// all.
    pub(super) fn timers_deferred(&self) -> bool {
        self.raised.is_some() || self.deferred.iter().any(|deferred| deferred.softirq == Softirq::HRTIMER)
    }

    /// Brings the state up to date; `tid` must be the event's by now.
    pub(super) fn apply(&mut self, event: &Event) {
        self.last_ns = event.time_ns;
        self.known = !matches!(event.kind, Kind::Lost { .. });
        match event.kind {
            Kind::VectorEntry(vector) => self.enter(Interrupt::Vector(vector), event.time_ns),
            Kind::IrqEntry { irq } => self.enter(Interrupt::Irq(irq), event.time_ns),
            Kind::VectorExit(vector) => self.exit(Interrupt::Vector(vector)),
            Kind::IrqExit { irq } => self.exit(Interrupt::Irq(irq)),
            Kind::SoftirqRaise(Softirq::HRTIMER) if self.raised.is_none() => {
                let irq_ns = self.interrupts.first().map(|interrupt| interrupt.1);
                let switches = if irq_ns.is_some() { self.switches_before } else { self.switches };
                self.raised = Some(TimerRaise { raise_ns: event.time_ns, irq_ns, switches, handler: None });
                self.woken.clear();
            }
            Kind::Waking { tid, .. }
                if self.raised.is_some() && !self.woken.iter().any(|woken| woken.0 == tid) =>
            {
                self.woken.push((tid, event.time_ns));
            }
            Kind::SoftirqEntry(softirq) => {
                // They do not nest in one thread: the end of an earlier one was not recorded.
                self.deferred.retain(|deferred| deferred.tid != event.tid);
                // From here on it can be raised anew.
                let mut raised = if softirq == Softirq::HRTIMER { self.raised.take() } else { None };
                if let Some(raised) = &mut raised {
                    raised.handler = self.handler(event.tid, raised.raise_ns);
                }
                self.deferred.push(Deferred { tid: event.tid, softirq, raised, expiry: None });
            }
            Kind::SoftirqExit(_) => self.deferred.retain(|deferred| deferred.tid != event.tid),
            Kind::TimerExpireEntry { timer, .. } => {
                let expiry = Expiry { timer, began_ns: event.time_ns, raised: None };
                match self.running_deferred() {
                    Some(deferred) => deferred.expiry = Some(Expiry { raised: deferred.raised, ..expiry }),
                    None => self.expiry = Some(expiry),
                }
            }
            Kind::TimerExpireExit { .. } => match self.running_deferred() {
                Some(deferred) => deferred.expiry = None,
                None => self.expiry = None,
            },
            Kind::Switch { prev_tid, prev_state, prev_prio, next_tid, next_prio } => {
                self.switches += 1;
                self.switch_in_ns = event.time_ns;
                self.preempted.retain(|&tid| tid != prev_tid && tid != next_tid);
                if (0..100).contains(&prev_prio) && prev_state == State::Runnable {
                    self.preempted.push(prev_tid);
                }
                if next_prio < 100 {
                    self.denied = false;
                } else if !self.preempted.is_empty() {
                    self.denied = true;
                }
                // No switch happens within an interrupt: whatever is still open was lost.
                self.interrupts.clear();
                self.expiry = None;
                // Nor does a software interrupt sleep, unless on a lock.
                if prev_state == State::Sleeping {
                    self.deferred.retain(|deferred| deferred.tid != prev_tid);
                }
            }
            Kind::Lost { .. } => self.forget(),
            _ => {}
        }
    }

    /// Events are missing here: whatever had begun may have ended.
    pub(super) fn forget(&mut self) {
        self.known = false;
        self.interrupts.clear();
        self.deferred.clear();
        self.expiry = None;
        self.raised = None;
        self.denied = false;
        self.preempted.clear();
    }

    /// The software interrupt that the thread on this CPU runs, unless an interrupt came on top of
    /// it.
    fn running_deferred(&mut self) -> Option<&mut Deferred> {
        let running = self.interrupts.is_empty();
        self.deferred.iter_mut().find(|deferred| running && deferred.tid == self.tid)
    }

    /// The thread that begins the software interrupt, where it got the CPU after that was raised.
    fn handler(&self, tid: i32, raise_ns: u64) -> Option<Handler> {
        let waking_ns = self.woken.iter().find(|woken| woken.0 == tid).map(|woken| woken.1);
        (self.switch_in_ns >= raise_ns).then_some(Handler { tid, waking_ns, switch_in_ns: self.switch_in_ns })
    }

    fn enter(&mut self, interrupt: Interrupt, now_ns: u64) {
        if self.interrupts.is_empty() {
            self.switches_before = self.switches;
        }
        // An interrupt cannot nest in itself: its end was not recorded.
        if let Some(open) = self.interrupts.iter().position(|open| open.0 == interrupt) {
            self.interrupts.truncate(open);
        }
        self.interrupts.push((interrupt, now_ns));
    }

    fn exit(&mut self, interrupt: Interrupt) {
        if let Some(open) = self.interrupts.iter().rposition(|open| open.0 == interrupt) {
            self.interrupts.truncate(open);
        }
    }
}
