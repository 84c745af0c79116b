//! Tracks running work: every stream counts the work submitted to it and the work known to have
//! ended, and every piece of memory holds the ticket of the last work that uses it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Streams that one device can have at a time. Constant, so that a ticket is one word and marking
/// never allocates.
pub(crate) const STREAMS: usize = 254;

const SHIFT: u32 = 56;
const NONE: u64 = 0;
/// Several streams use the memory; it is free when all of them are idle.
const MANY: u64 = u64::MAX;

/// One stream's progress.
#[derive(Debug)]
pub(crate) struct Timeline {
    taken: AtomicBool,
    submitted: AtomicU64,
    /// Of these, what the driver has: a number is taken before the call that submits its work.
    handed: AtomicU64,
    completed: AtomicU64,
    /// The driver's handle, 0 when there is none; locked while it is asked, so that it is not
    /// destroyed meanwhile.
    stream: Mutex<usize>,
}

impl Timeline {
    pub(crate) fn stream(&self) -> MutexGuard<'_, usize> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a new piece of work.
    pub(crate) fn submit(&self) -> u64 {
        self.submitted.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::SeqCst)
    }

    /// The driver has all that was submitted. Called by the stream's own thread.
    pub(crate) fn hand_over(&self) {
        self.handed.store(self.submitted(), Ordering::SeqCst);
    }

    /// Work that the driver certainly has: an idle stream reports *another* thread of no more.
    pub(crate) fn handed(&self) -> u64 {
        self.handed.load(Ordering::SeqCst)
    }

    /// All up to `number` has ended.
    pub(crate) fn complete(&self, number: u64) {
        self.completed.fetch_max(number, Ordering::SeqCst);
    }

    fn is_idle(&self) -> bool {
        self.completed.load(Ordering::SeqCst) >= self.submitted.load(Ordering::SeqCst)
    }
}

/// The last work that uses a piece of memory.
#[derive(Debug, Default)]
pub(crate) struct Ticket(AtomicU64);

/// All streams of a device.
#[derive(Debug)]
pub(crate) struct Timelines(Box<[Timeline]>);

impl Timelines {
    pub(crate) fn new() -> Self {
        let timeline = || Timeline {
            taken: AtomicBool::new(false),
            submitted: AtomicU64::new(0),
            handed: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            stream: Mutex::new(0),
        };
        Self((0..STREAMS).map(|_| timeline()).collect())
    }

    /// A slot for a new stream, `None` when there is no more.
    pub(crate) fn take(&self) -> Option<usize> {
        self.0.iter().position(|timeline| !timeline.taken.swap(true, Ordering::SeqCst))
    }

    /// Gives a slot back, unless work is under way there: its numbers must not be taken for those
    /// of a later stream.
    pub(crate) fn give_back(&self, slot: usize) {
        if self.0[slot].is_idle() {
            self.0[slot].taken.store(false, Ordering::SeqCst);
        }
    }

    pub(crate) fn of(&self, slot: usize) -> &Timeline {
        &self.0[slot]
    }

    /// Whether all work behind `ticket` has ended, as far as is known.
    pub(crate) fn is_over(&self, ticket: &Ticket) -> bool {
        self.over(ticket.0.load(Ordering::SeqCst))
    }

    fn over(&self, ticket: u64) -> bool {
        match ticket {
            NONE => true,
            MANY => self.0.iter().all(Timeline::is_idle),
            _ => {
                let number = ticket & ((1 << SHIFT) - 1);
                self.0[(ticket >> SHIFT) as usize].completed.load(Ordering::SeqCst) >= number
            }
        }
    }

    /// Work `number` of the stream in `slot` uses the memory of `ticket`.
    pub(crate) fn mark(&self, ticket: &Ticket, slot: usize, number: u64) {
        let new = (slot as u64) << SHIFT | number;
        let mut old = ticket.0.load(Ordering::SeqCst);
        loop {
            let same = old != MANY && old >> SHIFT == new >> SHIFT;
            // The work itself is submitted already, and keeps its own stream from being idle.
            let over = match old {
                MANY => self.0.iter().enumerate().all(|(other, line)| {
                    line.is_idle() || (other == slot && line.completed.load(Ordering::SeqCst) + 1 >= number)
                }),
                _ => self.over(old),
            };
            let next = if same || over { new } else { MANY };
            match ticket.0.compare_exchange(old, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(newer) => old = newer,
            }
        }
    }

    /// Slots that have work under way behind `ticket`.
    pub(crate) fn pending(&self, ticket: &Ticket) -> impl Iterator<Item = usize> {
        let ticket = ticket.0.load(Ordering::SeqCst);
        let (one, all) = ((ticket >> SHIFT) as usize, ticket == MANY);
        let busy = !self.over(ticket);
        (0..STREAMS).filter(move |&slot| busy && (all || slot == one) && !self.0[slot].is_idle())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_of_two_streams_is_free_when_both_are_idle() {
        let lines = Timelines::new();
        let (a, b) = (lines.take().unwrap(), lines.take().unwrap());
        let ticket = Ticket::default();
        assert!(lines.is_over(&ticket));
        lines.mark(&ticket, a, lines.of(a).submit());
        lines.mark(&ticket, b, lines.of(b).submit());
        lines.of(b).complete(1);
        assert!(!lines.is_over(&ticket), "the first stream still works");
        lines.of(a).complete(1);
        assert!(lines.is_over(&ticket));
        // Known to be over: the next user is the only one again.
        lines.mark(&ticket, b, lines.of(b).submit());
        lines.of(a).submit();
        assert_eq!(lines.pending(&ticket).collect::<Vec<_>>(), [b]);
        lines.of(b).complete(2);
        assert!(lines.is_over(&ticket));
    }

    #[test]
    fn work_that_the_driver_has_not_got_yet_is_never_over() {
        let lines = Timelines::new();
        let slot = lines.take().unwrap();
        let (line, ticket) = (lines.of(slot), Ticket::default());
        lines.mark(&ticket, slot, line.submit());
        // Another thread finds the stream idle before the call.
        line.complete(line.handed());
        assert!(!lines.is_over(&ticket));
        line.hand_over();
        line.complete(line.handed());
        assert!(lines.is_over(&ticket));
    }

    #[test]
    fn a_slot_with_work_under_way_is_not_used_again() {
        let lines = Timelines::new();
        let slots: Vec<_> = std::iter::from_fn(|| lines.take()).collect();
        assert_eq!(slots.len(), STREAMS);
        lines.of(3).submit();
        lines.give_back(3);
        assert_eq!(lines.take(), None);
        lines.give_back(4);
        assert_eq!(lines.take(), Some(4));
    }

    proptest! {
        /// Against the plain rule: memory is free when everything that was ever marked on it has
        /// ended. The ticket may be more careful than that, never less.
        #[test]
        fn a_ticket_is_never_over_too_soon(steps in prop::collection::vec((0usize..3, 0u8..3), 1..60)) {
            let lines = Timelines::new();
            for _ in 0..3 { lines.take(); }
            let ticket = Ticket::default();
            let mut marked = [0u64; 3];
            let mut completed = [0u64; 3];
            for (slot, action) in steps {
                match action {
                    0 => { marked[slot] = lines.of(slot).submit(); lines.mark(&ticket, slot, marked[slot]); }
                    1 => { lines.of(slot).submit(); }
                    _ => { completed[slot] = lines.of(slot).submitted(); lines.of(slot).complete(completed[slot]); }
                }
                if lines.is_over(&ticket) {
                    for slot in 0..3 { prop_assert!(completed[slot] >= marked[slot]); }
                }
            }
            for slot in 0..3 { lines.of(slot).complete(lines.of(slot).submitted()); }
            prop_assert!(lines.is_over(&ticket));
        }
    }
}
