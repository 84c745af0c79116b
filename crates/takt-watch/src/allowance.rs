//! Budget of CPU time for analysing late cycles, since a window of a busy machine has ten times the
//! events of a quiet one.
//!
//! All of a watch is to take [`SHARE`] of a CPU. Events around late cycles may use the rest that
//! following threads does not need: if all cycles are late, some of them are examined and the
//! others counted.

/// Of a CPU: 1 % is what ten loops of 1 kHz may cost, from the first 40 s on, what may be taken to
/// begin with among it.
const SHARE: f64 = 0.0072;
/// Assumed CPU share of following until it is measured: nearly that of ten such loops.
const USUAL_FOLLOWING: f64 = 0.004;
/// Share that remains even if following alone takes the whole budget.
const AT_LEAST: f64 = 0.001;
/// To begin with, and saved up at most: some twenty windows of a busy machine.
const BURST_NS: f64 = 100e6;
/// Time over which the cost of following is averaged: it comes in lumps, every second and at every
/// search for a period.
const AVERAGE_NS: f64 = 5e9;
/// When all is used up, reading begins again at so much: each time events are searched that nobody
/// asked for.
const AGAIN_NS: f64 = BURST_NS / 20.0;
/// Of time whose events are read and judged, a second takes this part of a CPU, until it was seen.
const USUAL_COST: f64 = 0.1;
/// So much time weighs that guess.
const GUESS_NS: f64 = 300e6;

/// CPU time for late cycles.
#[derive(Debug)]
pub(crate) struct Allowance {
    left_ns: f64,
    open: bool,
    /// When it was filled last, and what the watch had taken until then.
    filled: (u64, u64),
    /// Of what was taken since, what was spent on late cycles.
    spent_ns: u64,
    /// The part of a CPU that following takes.
    following: f64,
    /// CPU time and time whose events it read.
    cost: (f64, f64),
    /// The latest cycle so far.
    latest_ns: u64,
}

impl Allowance {
    pub(crate) fn new(now_ns: u64, taken_ns: u64) -> Self {
        Self {
            left_ns: BURST_NS,
            open: true,
            filled: (now_ns, taken_ns),
            spent_ns: 0,
            following: USUAL_FOLLOWING,
            cost: (USUAL_COST * GUESS_NS, GUESS_NS),
            latest_ns: 0,
        }
    }

    /// The watch has taken so much CPU time in all.
    pub(crate) fn refill(&mut self, now_ns: u64, taken_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.filled.0) as f64;
        let followed_ns = taken_ns.saturating_sub(self.filled.1).saturating_sub(self.spent_ns) as f64;
        let newest = (passed_ns / AVERAGE_NS).min(1.0);
        self.following += newest * (followed_ns / passed_ns.max(1.0) - self.following);
        let new_ns = (SHARE - self.following).max(AT_LEAST) * passed_ns;
        self.left_ns = (self.left_ns + new_ns).min(BURST_NS);
        self.open |= self.left_ns >= AGAIN_NS;
        (self.filled, self.spent_ns) = ((now_ns, taken_ns), 0);
    }

    /// Whether a cycle that was so late can be taken at all: what cannot must cost nothing.
    pub(crate) fn may_take(&self, late_ns: u64) -> bool {
        self.open || late_ns > self.latest_ns
    }

    /// Takes what reading and judging so much more time is going to cost, for a cycle that was so
    /// late; None where it is too much. A later cycle than all before may take it in advance.
    pub(crate) fn take(&mut self, length_ns: u64, late_ns: u64) -> Option<f64> {
        let is_latest = late_ns > self.latest_ns;
        self.latest_ns = self.latest_ns.max(late_ns);
        let ns = length_ns as f64 * self.cost.0 / self.cost.1;
        let least_ns = if is_latest { -BURST_NS / 2.0 } else { 0.0 };
        if !(self.open || is_latest) || self.left_ns - ns < least_ns {
            self.open &= is_latest;
            return None;
        }
        self.left_ns -= ns;
        Some(ns)
    }

    /// So much it was, where `taken_ns` had been taken for it.
    pub(crate) fn correct(&mut self, taken_ns: f64, was_ns: u64, length_ns: u64) {
        self.left_ns += taken_ns - was_ns as f64;
        self.cost = (self.cost.0 + was_ns as f64, self.cost.1 + length_ns as f64);
    }

    /// Of the watch's CPU time so much was for late cycles.
    pub(crate) fn spent(&mut self, ns: u64) {
        self.spent_ns += ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Ten minutes of ticks: every one has `late` cycles whose windows cost `cost_ns` each, and
    /// following takes `followed_ns`, all of a second at once. Returns the cost of late cycles, and
    /// the number of examined ones.
    fn watched(late: u64, cost_ns: u64, followed_ns: u64) -> (u64, u64) {
        watched_for(6000, late, cost_ns, followed_ns)
    }

    fn watched_for(ticks: u64, late: u64, cost_ns: u64, followed_ns: u64) -> (u64, u64) {
        let mut allowance = Allowance::new(0, 0);
        let (mut taken_ns, mut spent_ns, mut seen) = (0, 0, 0);
        for tick in 1..=ticks {
            taken_ns += if tick % 10 == 0 { 10 * followed_ns } else { 0 };
            allowance.refill(tick * 100 * MS, taken_ns);
            for _ in 0..late {
                let Some(ns) = allowance.take(25 * MS, 500_000) else { continue };
                seen += 1;
                (taken_ns, spent_ns) = (taken_ns + cost_ns, spent_ns + cost_ns);
                allowance.spent(cost_ns);
                allowance.correct(ns, cost_ns, 25 * MS);
            }
        }
        (spent_ns, seen)
    }

    #[test]
    fn all_of_a_watch_stays_within_its_share() {
        for cost_ns in [MS / 2, 3 * MS, 20 * MS] {
            for followed_ns in [0, MS / 2, 600_000] {
                let (spent_ns, seen) = watched(100, cost_ns, followed_ns);
                let all_ns = spent_ns + 6000 * followed_ns;
                // Ten minutes of one CPU: 4.32 s, what there was at first, the last one, and the
                // seconds until it was known what following takes.
                assert!(all_ns <= 4520 * MS + cost_ns, "{all_ns} of windows of {cost_ns}");
                // And what there is is used.
                assert!(all_ns >= 4220 * MS, "{all_ns} of windows of {cost_ns}: {seen}");
            }
        }
    }

    #[test]
    fn from_forty_seconds_on_it_is_one_percent() {
        for cost_ns in [MS / 2, 3 * MS, 20 * MS] {
            for followed_ns in [MS / 2, 550_000, 600_000] {
                let (spent_ns, _) = watched_for(400, 100, cost_ns, followed_ns);
                let all_ns = spent_ns + 400 * followed_ns;
                assert!(all_ns <= 400 * MS + cost_ns, "{all_ns}: windows of {cost_ns}, {followed_ns}");
            }
        }
    }

    #[test]
    fn following_that_takes_it_all_leaves_a_little() {
        let (spent_ns, seen) = watched(100, 3 * MS, 3 * MS);
        assert!((600 * MS..=750 * MS).contains(&spent_ns) && seen > 150, "{spent_ns} {seen}");
    }

    #[test]
    fn what_is_seldom_late_is_always_looked_at() {
        let mut allowance = Allowance::new(0, 0);
        for second in 1..=100 {
            allowance.refill(second * 1000 * MS, 0);
            let ns = allowance.take(40 * MS, MS).unwrap();
            allowance.spent(0);
            allowance.correct(ns, 4 * MS, 40 * MS);
        }
    }

    #[test]
    fn what_is_later_than_all_before_is_looked_at_all_the_same() {
        let mut allowance = Allowance::new(0, 0);
        while allowance.take(25 * MS, MS).is_some() {}
        assert!(allowance.take(25 * MS, MS).is_none() && allowance.take(25 * MS, 2 * MS).is_some());
        assert!(allowance.take(25 * MS, 2 * MS).is_none());
    }
}
