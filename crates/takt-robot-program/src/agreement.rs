//! Declared jobs against what the kernel saw of the same thread: a program's own word is worth as
//! much as it agrees.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use takt_rt::jobs::JobRecord;
use takt_watch::declared::Job;

/// The tracer's own error: events are stamped by the same clock, some microseconds before the
/// thread itself can read it; a timer without a real-time policy comes 50 us after what it was set
/// to.
const TOLERANCE_NS: u64 = 100_000;

/// Jobs and cycles that wait for each other, at most: more than a second of 20 kHz.
const MAX_WAITING: usize = 1 << 16;

/// A share of jobs that may disagree without a doubt: what is lost at the edges.
const ALLOWED: f64 = 0.01;

/// A share of cycles without a job that may be: a thread does other things, too.
const ALLOWED_CYCLES: f64 = 0.2;

/// How many declared jobs were compared, and how many of them disagree with the kernel's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// Jobs that were compared.
    pub jobs: u64,
    /// The thread was not on a CPU at any time of the job.
    pub unseen: u64,
    /// Declared to be released after the thread's timer was due.
    pub released_late: u64,
    /// Declared to begin before the thread had a CPU.
    pub began_early: u64,
    /// Declared to end after the thread slept.
    pub ended_late: u64,
    /// Declared to end in time, by a thread that ran on beyond the deadline.
    pub ran_on: u64,
    /// Cycles that the kernel saw, with no job declared in them.
    pub undeclared: u64,
    /// Largest distance of a release from what the thread's timer was set to, nanoseconds.
    pub worst_release_ns: u64,
    /// Largest distance of a begin from when the thread got a CPU.
    pub worst_begin_ns: u64,
    /// Largest distance of an end from when the thread slept.
    pub worst_end_ns: u64,
}

impl Compared {
    /// What the disagreement is, where there is one, as a sentence about `name`.
    pub(crate) fn doubt(&self, name: &str) -> Option<String> {
        let jobs = self.jobs + self.unseen;
        if jobs == 0 {
            return None;
        }
        let many = |count: u64, of: u64, share: f64| count >= 2 && count as f64 > share * of as f64;
        let kinds = [
            (self.unseen, "lie where the thread did not run"),
            (self.released_late, "are released after the thread's timer was due"),
            (self.began_early, "begin before the thread had a CPU"),
            (self.ended_late, "end after the thread had gone to sleep"),
            (self.ran_on, "end in time, while the thread ran on beyond the deadline"),
        ];
        let mut words: Vec<String> = kinds
            .into_iter()
            .filter(|(count, _)| many(*count, jobs, ALLOWED))
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if many(self.undeclared, jobs + self.undeclared, ALLOWED_CYCLES) {
            words.push(format!("{} cycles of the thread have no job", self.undeclared));
        }
        (!words.is_empty()).then(|| {
            format!(
                "loop \"{}\" declares what the kernel did not see: of {jobs} jobs {}",
                takt_files::quoted(name),
                words.join(", ")
            )
        })
    }
}

/// Compares one loop, as jobs and cycles come.
#[derive(Debug)]
pub(crate) struct Agreement {
    deadline_ns: u64,
    /// The loop stops sleeping so long before its release.
    spin_ns: u64,
    /// Its releases are those of a timer.
    is_periodic: bool,
    declared: VecDeque<Job>,
    /// With whether a job was declared in it.
    seen: VecDeque<(JobRecord, bool)>,
    last_end_ns: u64,
    window_ns: [u64; 2],
    pub(crate) compared: Compared,
}

impl Agreement {
    pub(crate) fn new(deadline_ns: u64, spin_ns: u64, is_periodic: bool) -> Self {
        Self {
            deadline_ns,
            spin_ns,
            is_periodic,
            declared: VecDeque::new(),
            seen: VecDeque::new(),
            last_end_ns: 0,
            window_ns: [u64::MAX, u64::MAX],
            compared: Compared::default(),
        }
    }

    /// Jobs that begin within these bounds are compared, once they are known.
    pub(crate) fn within(&mut self, window_ns: [u64; 2]) {
        self.window_ns = window_ns;
    }

    pub(crate) fn declare(&mut self, job: &Job) {
        if self.declared.len() >= MAX_WAITING {
            // No cycle comes: the thread is not followed.
            self.declared.pop_front();
        }
        self.declared.push_back(*job);
    }

    pub(crate) fn see(&mut self, cycles: &[JobRecord]) {
        for cycle in cycles {
            if self.seen.len() >= MAX_WAITING {
                self.seen.pop_front();
            }
            self.seen.push_back((*cycle, false));
        }
        self.settle();
    }

    /// Compares the jobs whose cycles are all there.
    fn settle(&mut self) {
        let Some(newest_ns) = self.seen.back().map(|(cycle, _)| cycle.wake_ns) else { return };
        while let Some(job) = self.declared.front().copied().filter(|job| job.end_ns < newest_ns) {
            self.declared.pop_front();
            self.compare(&job);
        }
    }

    fn is_within(&self, at_ns: u64) -> bool {
        (self.window_ns[0]..self.window_ns[1]).contains(&at_ns)
    }

    fn compare(&mut self, job: &Job) {
        // A cycle that ended before this job can belong to none that follows.
        while let Some((cycle, has_job)) = self.seen.front().copied()
            && cycle.end_ns.saturating_add(TOLERANCE_NS) < job.begin_ns
        {
            self.seen.pop_front();
            if !has_job && self.is_within(cycle.wake_ns) && self.last_end_ns > 0 {
                self.compared.undeclared += 1;
            }
        }
        let before_ns = std::mem::replace(&mut self.last_end_ns, job.end_ns);
        let of_job = |cycle: &JobRecord| {
            cycle.wake_ns <= job.end_ns && cycle.end_ns.saturating_add(TOLERANCE_NS) >= job.begin_ns
        };
        let own: Vec<usize> = (0..self.seen.len())
            .take_while(|&at| self.seen[at].0.wake_ns <= job.end_ns)
            .filter(|&at| of_job(&self.seen[at].0))
            .collect();
        for &at in &own {
            self.seen[at].1 = true;
        }
        if !self.is_within(job.begin_ns) {
            return;
        }
        let (Some(&first), Some(&last)) = (own.first(), own.last()) else {
            // The first cycles of a thread are not seen: its rhythm is not known yet.
            self.compared.unseen += u64::from(before_ns > 0);
            return;
        };
        let (first, last) = (self.seen[first].0, self.seen[last].0);
        let compared = &mut self.compared;
        compared.jobs += 1;
        // A job that catches up follows another one without a sleep: the cycle's release is not its
        // own.
        let is_first = before_ns < first.wake_ns;
        if is_first && self.is_periodic && first.wake_ns <= job.begin_ns {
            let due_ns = first.planned_ns.saturating_add(self.spin_ns);
            compared.worst_release_ns = compared.worst_release_ns.max(due_ns.abs_diff(job.release_ns));
            compared.released_late += u64::from(job.release_ns > due_ns.saturating_add(TOLERANCE_NS));
        }
        compared.began_early += u64::from(job.begin_ns.saturating_add(TOLERANCE_NS) < first.wake_ns);
        compared.ended_late += u64::from(job.end_ns > last.end_ns.saturating_add(TOLERANCE_NS));
        if is_first {
            compared.worst_begin_ns = compared.worst_begin_ns.max(job.begin_ns.abs_diff(first.wake_ns));
            compared.worst_end_ns = compared.worst_end_ns.max(job.end_ns.abs_diff(last.end_ns));
        }
        let in_time = job.end_ns.saturating_sub(job.release_ns) <= self.deadline_ns;
        let ran_ns = last.end_ns.saturating_sub(job.release_ns);
        compared.ran_on += u64::from(in_time && ran_ns > self.deadline_ns.saturating_add(TOLERANCE_NS));
    }

    /// Nothing follows.
    pub(crate) fn finish(&mut self) -> Compared {
        self.settle();
        self.compared
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const US: u64 = 1_000;

    fn cycle(number: u64) -> JobRecord {
        let planned_ns = number * 2 * MS;
        JobRecord {
            index: number,
            planned_ns,
            wake_ns: planned_ns + 20 * US,
            end_ns: planned_ns + 400 * US,
            ..JobRecord::default()
        }
    }

    fn job(number: u64) -> Job {
        let release_ns = number * 2 * MS;
        Job {
            job: number,
            release_ns,
            begin_ns: release_ns + 25 * US,
            end_ns: release_ns + 390 * US,
            skipped: 0,
            input: None,
            value: None,
        }
    }

    fn compared(change_job: impl Fn(&mut Job), change_cycle: impl Fn(&mut JobRecord)) -> Compared {
        let mut agreement = Agreement::new(2 * MS, 0, true);
        agreement.within([200 * MS, 1000 * MS]);
        // In other parts than each other.
        for part in 0..60 {
            for number in part * 10 + 1..=part * 10 + 10 {
                let mut one = job(number);
                change_job(&mut one);
                agreement.declare(&one);
            }
            let cycles: Vec<JobRecord> = (part * 10..part * 10 + 10)
                .map(|number| {
                    let mut one = cycle(number);
                    change_cycle(&mut one);
                    one
                })
                .collect();
            agreement.see(&cycles);
        }
        agreement.finish()
    }

    #[test]
    fn jobs_that_lie_within_their_cycles_agree() {
        let same = compared(|_| {}, |_| {});
        assert_eq!(same.jobs, 400, "{same:?}");
        assert_eq!(same.doubt("control"), None);
        assert_eq!((same.worst_release_ns, same.worst_begin_ns, same.worst_end_ns), (0, 5 * US, 10 * US));
    }

    #[test]
    fn each_untruth_is_a_doubt_of_its_own() {
        let moved = |change: fn(&mut Job)| compared(change, |_| {}).doubt("control").unwrap();
        assert!(moved(|job| job.release_ns += 200 * US).contains("released after the thread's timer"));
        assert!(moved(|job| job.begin_ns -= 200 * US).contains("begin before the thread had a CPU"));
        assert!(moved(|job| job.end_ns += 200 * US).contains("end after the thread had gone to sleep"));
        let shifted = moved(|job| {
            job.release_ns += MS;
            job.begin_ns += MS;
            job.end_ns += MS;
        });
        assert!(shifted.contains("lie where the thread did not run"), "{shifted}");
        let long = compared(
            |_| {},
            |cycle| {
                if cycle.index % 10 == 0 {
                    // It works on after it has said that the job is done.
                    cycle.end_ns += 1_900 * US;
                }
            },
        );
        assert!(
            long.doubt("control").unwrap().contains("40 end in time, while the thread ran on"),
            "{long:?}"
        );
    }

    #[test]
    fn cycles_without_a_job_are_a_doubt() {
        let mut agreement = Agreement::new(2 * MS, 0, true);
        agreement.within([0, 1000 * MS]);
        (1..100).filter(|number| number % 2 == 0).for_each(|number| agreement.declare(&job(number)));
        agreement.see(&(1..120).map(cycle).collect::<Vec<_>>());
        let compared = agreement.finish();
        assert!(
            compared.doubt("control").unwrap().contains("cycles of the thread have no job"),
            "{compared:?}"
        );
    }

    #[test]
    fn nothing_to_compare_with_is_no_disagreement() {
        let mut agreement = Agreement::new(2 * MS, 0, true);
        agreement.within([0, 1000 * MS]);
        for number in 0..200_000 {
            agreement.declare(&job(number));
        }
        assert_eq!(agreement.finish(), Compared::default());
        assert!(agreement.declared.len() <= MAX_WAITING);
    }
}
