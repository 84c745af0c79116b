//! The release grid of a task: which releases ran, which were late, and which never ran at all.
//!
//! A controller that stands still leaves one late job and nothing else, so that whoever counts jobs
//! counts one miss. Here each release that did not run is a miss of its own, in the sums and in the
//! rows of misses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use takt_rundir::Measure;

use crate::keeper::Window;

/// A task that ran nothing for so long stood still, which is reported beside the misses. 250 ms:
/// several times what the scheduler takes from a thread without tuning, and a tenth of what a
/// person notices.
const STOOD_STILL_NS: u64 = 250_000_000;

/// Points of the grid `first_ns + k * period_ns` within `[from_ns, to_ns)`.
pub fn grid(first_ns: u64, period_ns: u64, from_ns: u64, to_ns: u64) -> u64 {
    let before = |at_ns: u64| at_ns.saturating_sub(first_ns).div_ceil(period_ns.max(1));
    before(to_ns).saturating_sub(before(from_ns))
}

/// One job, as far as its releases go. CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Planned release.
    pub planned_ns: u64,
    /// Wake-up.
    pub wake_ns: u64,
    /// Releases passed over since the job before, by the task's own count.
    pub skipped: u64,
}

/// A measure of the jobs, with the row of misses that it is in.
#[derive(Debug)]
struct Misses {
    measure: String,
    deadline_ns: u64,
    row: u64,
    longest: u64,
}

impl Misses {
    fn missed(&mut self, releases: u64) {
        self.row = self.row.saturating_add(releases);
        self.longest = self.longest.max(self.row);
    }
}

/// Known releases of a task, for a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    jobs: u64,
    #[serde(rename = "never")]
    skipped: u64,
    longest_gap_ns: u64,
    /// Longest rows of misses, by measure.
    longest: BTreeMap<String, u64>,
}

/// The releases of one task.
#[derive(Debug)]
pub struct Releases {
    period_ns: u64,
    window: Window,
    misses: Vec<Misses>,
    last: Option<Job>,
    /// Jobs of releases within the window.
    pub jobs: u64,
    /// Releases within the window that never ran.
    pub skipped: u64,
    /// Longest time within the window from one job's wake-up to the next, nanoseconds.
    pub longest_gap_ns: u64,
}

impl Releases {
    /// Of a task with that period; rows of misses are followed for those of `measures` that are
    /// named and have a deadline.
    pub fn new(period_ns: u64, window: &Window, measures: &[Measure], names: &[&str]) -> Self {
        let named = measures.iter().filter(|measure| names.contains(&measure.name.as_str()));
        let misses = named.filter_map(|measure| {
            let (measure, deadline_ns) = (measure.name.clone(), measure.deadline_ns?);
            Some(Misses { measure, deadline_ns, row: 0, longest: 0 })
        });
        Self {
            period_ns: period_ns.max(1),
            window: window.clone(),
            misses: misses.collect(),
            last: None,
            jobs: 0,
            skipped: 0,
            longest_gap_ns: 0,
        }
    }

    /// The state until now.
    pub fn seen(&self) -> Seen {
        let longest = self.misses.iter().map(|misses| (misses.measure.clone(), misses.longest)).collect();
        let Self { jobs, skipped, longest_gap_ns, .. } = *self;
        Seen { jobs, skipped, longest_gap_ns, longest }
    }

    /// Goes on after a resumption: the grid begins anew, and the time without the task is none of
    /// the measured.
    pub fn going_on(mut self, before: Option<&Seen>) -> Self {
        let Some(Seen { jobs, skipped, longest_gap_ns, longest }) = before else { return self };
        (self.jobs, self.skipped, self.longest_gap_ns) = (*jobs, *skipped, *longest_gap_ns);
        for misses in &mut self.misses {
            misses.longest = longest.get(&misses.measure).copied().unwrap_or(0);
        }
        self
    }

    /// Takes a job; `value_ns` of a measure, for those that are followed.
    pub fn job(&mut self, job: Job, value_ns: impl Fn(&str) -> Option<u64>) {
        let [from_ns, to_ns] = self.window.bounds();
        let last = self.last.replace(job);
        let first_ns = job.planned_ns.saturating_sub(job.skipped.saturating_mul(self.period_ns));
        let skipped = grid(first_ns, self.period_ns, from_ns, to_ns.min(job.planned_ns)).min(job.skipped);
        self.skip(skipped);
        self.gap(last.map(|last| last.wake_ns), job.wake_ns, [from_ns, to_ns]);
        if !(from_ns..to_ns).contains(&job.planned_ns) {
            return;
        }
        self.jobs += 1;
        for misses in &mut self.misses {
            match value_ns(&misses.measure) {
                Some(value_ns) if value_ns > misses.deadline_ns => misses.missed(1),
                _ => misses.row = 0,
            }
        }
    }

    fn skip(&mut self, releases: u64) {
        if releases > 0 {
            self.skipped = self.skipped.saturating_add(releases);
            self.misses.iter_mut().for_each(|misses| misses.missed(releases));
        }
    }

    fn gap(&mut self, since_ns: Option<u64>, until_ns: u64, [from_ns, to_ns]: [u64; 2]) {
        if let Some(since_ns) = since_ns {
            let gap_ns = until_ns.min(to_ns).saturating_sub(since_ns.max(from_ns));
            self.longest_gap_ns = self.longest_gap_ns.max(gap_ns);
        }
    }

    /// The window is over, and the task went on beyond it: releases after the last job have none.
    pub fn finish(&mut self) {
        self.finish_at(u64::MAX);
    }

    /// The same of a task that was to run until `end_ns`, where that is before the window's end.
    pub fn finish_at(&mut self, end_ns: u64) {
        let [from_ns, to_ns] = self.window.bounds();
        let to_ns = to_ns.min(end_ns);
        if to_ns == u64::MAX {
            return;
        }
        match self.last {
            Some(last) => {
                let next_ns = last.planned_ns.saturating_add(self.period_ns);
                self.skip(grid(next_ns, self.period_ns, from_ns, to_ns));
                self.gap(Some(last.wake_ns), to_ns, [from_ns, to_ns]);
            }
            None => self.skip(to_ns.saturating_sub(from_ns) / self.period_ns),
        }
    }

    /// Reports the measures what never came, and how long their rows of misses were.
    pub fn count_in(&self, measures: &mut [Measure]) {
        for misses in &self.misses {
            for measure in measures.iter_mut().filter(|measure| measure.name == misses.measure) {
                measure.skipped = self.skipped;
                measure.longest_miss_run = Some(misses.longest);
            }
        }
    }

    /// A sentence that `task` stood still, if it did.
    pub fn stood_still(&self, task: &str) -> Option<String> {
        let long = self.longest_gap_ns >= STOOD_STILL_NS && self.longest_gap_ns >= 2 * self.period_ns;
        long.then(|| {
            format!(
                "{task} stood still for {:.1} ms (its period is {} ms): {} of {} releases never ran",
                self.longest_gap_ns as f64 / 1e6,
                self.period_ns as f64 / 1e6,
                self.skipped,
                self.jobs.saturating_add(self.skipped)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn measures() -> [Measure; 2] {
        ["lateness", "period"].map(|name| Measure::new(name, name, "jobs", "wake_ns").deadline_ns(MS))
    }

    /// Jobs of a 1 kHz loop that stands still from `at` for `still` milliseconds while it sleeps.
    fn frozen(releases: &mut Releases, count: u64, at: u64, still: u64) {
        let mut skipped = 0;
        for index in 0..count {
            if index > at && index < at + still {
                skipped += 1;
                continue;
            }
            let planned_ns = index * MS;
            let late_ns = if index == at { still * MS } else { 1000 };
            let job = Job { planned_ns, wake_ns: planned_ns + late_ns, skipped };
            releases.job(job, |name| (name == "lateness").then_some(late_ns));
            skipped = 0;
        }
    }

    #[test]
    fn each_release_that_did_not_run_is_a_miss_of_its_own() {
        let window = Window::default();
        window.open(0);
        let mut list = measures();
        let mut releases = Releases::new(MS, &window, &list, &["lateness"]);
        frozen(&mut releases, 4000, 1000, 608);
        window.close(4000 * MS);
        releases.finish();
        // The late one runs; 607 after it do not.
        assert_eq!((releases.jobs, releases.skipped), (4000 - 607, 607));
        assert_eq!(releases.longest_gap_ns / MS, 608);
        releases.count_in(&mut list);
        assert_eq!((list[0].skipped, list[0].longest_miss_run), (607, Some(608)));
        assert_eq!((list[1].skipped, list[1].longest_miss_run), (0, None), "nobody asked for the other");
        let reported = releases.stood_still("the loop").unwrap();
        assert!(reported.contains("607 of 4000 releases") && reported.contains("609.0 ms"), "{reported}");
    }

    #[test]
    fn the_edges_of_the_window_and_a_dead_task_are_counted() {
        let window = Window::default();
        window.open(1100 * MS);
        let mut releases = Releases::new(MS, &window, &measures(), &["lateness"]);
        // Frozen from 1000 to 1608, and the window opens at 1100; dead from 2000, and it closes
        // at 2500.
        frozen(&mut releases, 2000, 1000, 608);
        window.close(2500 * MS);
        releases.finish();
        assert_eq!((releases.jobs, releases.skipped), (2000 - 1608, 508 + 500));
        // Nothing ran at all.
        let window = Window::default();
        let mut releases = Releases::new(MS, &window, &measures(), &["lateness"]);
        window.open(5 * MS);
        releases.finish();
        assert_eq!(releases.skipped, 0, "a window that never closed reports nothing");
        window.close(105 * MS);
        releases.finish();
        assert_eq!((releases.jobs, releases.skipped), (0, 100));
    }

    /// The window closes some time after a task has done all that it had to.
    #[test]
    fn a_task_that_had_ended_before_the_window_owes_nothing_after_its_end() {
        let window = Window::default();
        window.open(0);
        window.close(3000 * MS);
        let ended = |still: u64, end_ms: u64| {
            let mut releases = Releases::new(MS, &window, &measures(), &["lateness"]);
            frozen(&mut releases, 1001, 1000, still);
            releases.finish_at(end_ms * MS);
            (releases.jobs, releases.skipped)
        };
        assert_eq!(ended(0, 1001), (1001, 0));
        // A freeze in its last job, with which it ended.
        assert_eq!(ended(608, 1609), (1001, 608));
        assert_eq!(ended(0, u64::MAX / MS), (1001, 1999));
    }

    #[test]
    fn rows_end_with_the_first_punctual_job_and_nothing_overflows() {
        let window = Window::default();
        window.open(0);
        let mut releases = Releases::new(0, &window, &measures(), &["lateness"]);
        for (planned_ns, skipped) in [(u64::MAX, u64::MAX), (0, u64::MAX), (5, 0)] {
            releases.job(Job { planned_ns, wake_ns: 0, skipped }, |_| Some(u64::MAX));
        }
        let window = Window::default();
        window.open(0);
        let mut list = measures();
        let mut releases = Releases::new(MS, &window, &list, &["lateness"]);
        for (index, late) in [2, 3, 0, 2, 2, 2, 0].into_iter().enumerate() {
            let planned_ns = index as u64 * MS;
            let job = Job { planned_ns, wake_ns: planned_ns, skipped: 0 };
            releases.job(job, |_| Some(late * MS));
        }
        releases.count_in(&mut list);
        assert_eq!((list[0].skipped, list[0].longest_miss_run), (0, Some(3)));
        assert_eq!(releases.stood_still("x"), None);
    }

    #[test]
    fn a_grid_is_counted_without_walking_it() {
        for (first, from, to) in
            [(0, 0, 100), (7, 0, 100), (7, 8, 100), (7, 17, 18), (50, 0, 50), (50, 60, 10)]
        {
            let walked =
                (0..100u64).map(|k| first + k * 10).filter(|t| (from..to).contains(t)).count() as u64;
            assert_eq!(grid(first, 10, from, to), walked, "{first} {from} {to}");
        }
        assert_eq!(grid(0, 0, 0, 5), 5, "a period of nothing ends nothing");
        grid(u64::MAX, 1, 0, u64::MAX);
    }
}
