//! Values that came after their deadline, told while the run goes on: once when they begin, once a
//! minute while they go on, and once more when they are over, so that a robot that is late in every
//! cycle tells no more than one that is late once.

use std::time::{Duration, Instant};

/// Without a late value for so long, a burst is over.
const QUIET: Duration = Duration::from_secs(2);

/// A burst that goes on is told again so often.
const AGAIN: Duration = Duration::from_secs(60);

/// What is told of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// When the first of them was measured; `None`: it is not known to the nanosecond.
    pub at_ns: Option<u64>,
    /// How many there were.
    pub count: u64,
    /// The worst of them, nanoseconds.
    pub worst_ns: u64,
    /// It had been told before.
    pub again: bool,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    first_ns: Option<u64>,
    count: u64,
    worst_ns: u64,
    reported: u64,
    reported_at: Option<Instant>,
    last: Instant,
}

/// Follows the late values of one measure.
#[derive(Debug, Default)]
pub struct Burst {
    /// Seen since the last look.
    first_ns: Option<u64>,
    count: u64,
    worst_ns: u64,
    /// Late values of the recorder at the last look.
    known: Option<u64>,
    open: Option<Open>,
}

impl Burst {
    /// A late value that was measured at `at_ns`.
    pub fn see(&mut self, at_ns: u64, value_ns: u64) {
        self.first_ns.get_or_insert(at_ns);
        self.count += 1;
        self.worst_ns = self.worst_ns.max(value_ns);
    }

    /// What is to be told now. `misses` and `worst_ns` are the recorder's, over the whole run: they
    /// stand in where nobody has called [`see`](Self::see).
    pub fn look(&mut self, misses: u64, worst_ns: u64, now: Instant) -> Option<Reported> {
        // Those of earlier parts of a resumed run were told then.
        let known = self.known.replace(misses).unwrap_or(misses.saturating_sub(self.count));
        if self.count == 0 && misses > known {
            (self.count, self.worst_ns) = (misses - known, worst_ns);
        }
        if self.count > 0 {
            let first_ns = self.first_ns;
            let fresh =
                || Open { first_ns, count: 0, worst_ns: 0, reported: 0, reported_at: None, last: now };
            let open = self.open.get_or_insert_with(fresh);
            open.count += self.count;
            open.worst_ns = open.worst_ns.max(self.worst_ns);
            open.last = now;
            (self.first_ns, self.count, self.worst_ns) = (None, 0, 0);
        }
        let open = self.open.as_mut()?;
        let over = now.duration_since(open.last) >= QUIET;
        let due = open.reported_at.is_none_or(|at| now.duration_since(at) >= AGAIN) || over;
        let reported = (due && open.count > open.reported).then(|| open.report(now));
        if over {
            self.open = None;
        }
        reported
    }

    /// The run ends: what was not told yet.
    pub fn end(&mut self, misses: u64, worst_ns: u64, now: Instant) -> Option<Reported> {
        let reported = self.look(misses, worst_ns, now);
        let mut open = self.open.take()?;
        reported.or_else(|| (open.count > open.reported).then(|| open.report(now)))
    }
}

impl Open {
    fn report(&mut self, now: Instant) -> Reported {
        let again = self.reported > 0;
        (self.reported, self.reported_at) = (self.count, Some(now));
        Reported { at_ns: self.first_ns, count: self.count, worst_ns: self.worst_ns, again }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_told_at_its_begin_and_at_its_end() {
        let (mut burst, mut now) = (Burst::default(), Instant::now());
        assert_eq!(burst.look(0, 0, now), None);
        burst.see(7, 50);
        burst.see(8, 40);
        let first = Reported { at_ns: Some(7), count: 2, worst_ns: 50, again: false };
        assert_eq!(burst.look(2, 50, now), Some(first));
        let mut reported = 0;
        for second in 0..130u64 {
            now += Duration::from_secs(1);
            burst.see(100 + second, 60);
            reported += u64::from(burst.look(3 + second, 60, now).is_some());
        }
        assert_eq!(reported, 2, "once a minute");
        now += QUIET;
        let last = Reported { at_ns: Some(7), count: 132, worst_ns: 60, again: true };
        assert_eq!(burst.look(132, 60, now), Some(last));
        assert_eq!(burst.look(132, 60, now + AGAIN), None);
        // The next one is another.
        burst.see(900, 70);
        assert_eq!(burst.look(133, 70, now).unwrap().at_ns, Some(900));
        assert_eq!(burst.end(133, 70, now), None);
    }

    #[test]
    fn a_recorder_alone_is_enough_and_earlier_parts_are_not_told_again() {
        let (mut burst, now) = (Burst::default(), Instant::now());
        assert_eq!(burst.look(5, 99, now), None, "those of an earlier part of the run");
        let reported = Reported { at_ns: None, count: 3, worst_ns: 120, again: false };
        assert_eq!(burst.look(8, 120, now), Some(reported));
        assert_eq!(burst.end(8, 120, now), None);
        // Late before the first look: these are this part's.
        let mut burst = Burst::default();
        burst.see(4, 5);
        assert_eq!(burst.look(6, 90, now).unwrap().count, 1);
        burst.see(5, 6);
        let reported = burst.end(7, 90, now).unwrap();
        assert_eq!((reported.count, reported.again), (2, true));
    }
}
