//! Steps of an activation, and which of them a trace can show.
//!
//! A recording made elsewhere has the events that somebody asked for. A step that none of its
//! events could show is not missing: a recording with more kinds of events must never explain fewer
//! releases than one with less.

use serde::{Deserialize, Serialize};

use super::path::{Activation, Path};
use crate::event::Trace;

/// A step of an activation that is not there although the trace has events of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingStep {
    /// The timer was programmed (`hrtimer_start`).
    TimerProgrammed,
    /// The timer's interrupt began.
    Interrupt,
    /// The software interrupt was raised.
    SoftirqRaised,
    /// The thread got the CPU.
    SwitchToThread,
}

impl MissingStep {
    /// Words for tables, with the events that show the step.
    pub fn title(self) -> &'static str {
        match self {
            Self::TimerProgrammed => "the timer's programming (hrtimer_start)",
            Self::Interrupt => "the timer's interrupt (irq_vectors:local_timer_entry, irq_handler_entry)",
            Self::SoftirqRaised => "the raise of the software interrupt (softirq_raise)",
            Self::SwitchToThread => "the switch to the thread (sched_switch)",
        }
    }
}

/// Counts of what a trace shows of timers and interrupts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shown {
    /// Timers programmed.
    pub(super) programmed: u64,
    /// Interrupts of the CPU's own timer (x86).
    pub(super) timer_vectors: u64,
    /// Timers that expired, or were left to the software interrupt, within an interrupt.
    pub(super) in_interrupt: u64,
    /// The same outside any interrupt and software interrupt.
    pub(super) outside: u64,
    /// Software interrupts of timers that were raised.
    pub(super) raised: u64,
    /// Software interrupts of timers that began.
    pub(super) softirqs: u64,
}

impl Shown {
    /// The trace has the interrupts in which timers expire. Interrupts of devices, or of other
    /// CPUs, do not show them; a timer expires in one of these only by chance.
    fn interrupts(self) -> bool {
        self.timer_vectors > 0 || self.in_interrupt > self.outside
    }

    /// Whether a timer that expired in `waker`, outside any interrupt, may have come the deferred
    /// way, of which the trace shows a part or nothing.
    fn may_be_deferred(self, waker: &str) -> bool {
        match (self.raised > 0, self.softirqs > 0) {
            (true, true) => false,
            (false, false) => waker.starts_with("ktimers/") || waker.starts_with("ksoftirqd/"),
            _ => true,
        }
    }

    /// The first step that this path lacks although the trace could show it.
    pub(super) fn missing(self, path: &Path, trace: &Trace) -> Option<MissingStep> {
        let is_timed = matches!(path.activation, Activation::Timer | Activation::DeferredTimer);
        if is_timed && path.programmed_ns.is_none() && self.programmed > 0 {
            return Some(MissingStep::TimerProgrammed);
        }
        if path.activation == Activation::DeferredTimer && path.raise_ns.is_none() {
            return Some(MissingStep::SoftirqRaised);
        }
        if is_timed && path.irq_ns.is_none() && self.interrupts() {
            let deferred =
                path.activation == Activation::Timer && self.may_be_deferred(&trace.name(path.waker));
            if !deferred {
                return Some(MissingStep::Interrupt);
            }
        }
        path.switch_in_ns.is_none().then_some(MissingStep::SwitchToThread)
    }

    /// Note for the reader about steps of a timer's way that the trace has no events for.
    pub(super) fn note(self) -> Option<String> {
        let mut absent = Vec::new();
        if self.programmed == 0 {
            absent.push("the timers' programming (`timer:hrtimer_start`)");
        }
        if !self.interrupts() {
            absent.push("the timers' interrupts (`irq_vectors:local_timer_*`, on Arm `irq:irq_handler_*`)");
        }
        (!absent.is_empty()).then(|| {
            let steps = absent.join(" and ");
            format!("the recording has no events of {steps}: no release needs these steps. To see them, record these events, too")
        })
    }
}
