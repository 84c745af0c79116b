//! Declared loops while a watch goes on: found as they come, their jobs summed up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use takt_stats::{Recorder, Summary};

use super::{Declared, Follower, Row, Scanner};

/// Loops that are followed, at most.
const MAX_LOOPS: usize = 256;

/// A declared loop, as the program itself says: its jobs, not what the kernel saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeclaredReport {
    /// The loop's name.
    pub name: String,
    /// Its process, and the thread that runs it; null where the process has none of that number.
    pub pid: i32,
    pub tid: Option<i32>,
    /// The name of the process.
    pub process: String,
    /// Its period; null where an input releases it.
    pub period_us: Option<f64>,
    /// Its deadline; null where it has none.
    pub deadline_us: Option<f64>,
    /// Jobs that it recorded.
    pub jobs: u64,
    /// Jobs that ended after the deadline.
    pub late: u64,
    /// Releases that were passed over.
    pub skipped: u64,
    /// Records that were lost.
    pub lost: u64,
    /// From the release to the begin.
    pub lateness_us: Summary,
    /// From the release to the end.
    pub response_us: Summary,
}

#[derive(Debug)]
struct One {
    declared: Declared,
    follower: Follower,
    lateness: Recorder,
    response: Recorder,
    late: u64,
    skipped: u64,
    lost: u64,
}

impl One {
    fn take(&mut self) {
        let Self { declared, follower, lateness, response, late, skipped, lost } = self;
        let taken = follower.take(&mut |row| {
            let Row::Job(job) = row else { return };
            let response_ns = job.end_ns.saturating_sub(job.release_ns);
            lateness.record(job.begin_ns.saturating_sub(job.release_ns));
            response.record(response_ns);
            *late += u64::from(declared.deadline_ns.is_some_and(|deadline_ns| response_ns > deadline_ns));
            *skipped += u64::from(job.skipped);
        });
        *lost = lost.saturating_add(taken.lost);
    }

    fn report(&self) -> DeclaredReport {
        let Declared { name, pid, tid, process, period_ns, deadline_ns, .. } = &self.declared;
        DeclaredReport {
            name: takt_files::quoted(name),
            pid: *pid,
            tid: *tid,
            process: process.clone(),
            period_us: period_ns.map(|ns| ns as f64 / 1e3),
            deadline_us: deadline_ns.map(|ns| ns as f64 / 1e3),
            jobs: self.response.count(),
            late: self.late,
            skipped: self.skipped,
            lost: self.lost,
            lateness_us: self.lateness.summary().over(1e3),
            response_us: self.response.summary().over(1e3),
        }
    }
}

/// The declared loops of what is watched.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    scanner: Scanner,
    loops: BTreeMap<(u64, u64, usize), One>,
    notes: Vec<String>,
}

impl Watching {
    /// Looks for new ones.
    pub(crate) fn look(&mut self, processes: impl IntoIterator<Item = i32>) {
        self.scanner.scan(processes);
        for declared in self.scanner.loops() {
            let identity = declared.identity();
            if let Some(known) = self.loops.get_mut(&identity) {
                // Its thread is known from its first job on.
                known.declared = declared;
                continue;
            }
            if self.loops.len() >= MAX_LOOPS {
                return;
            }
            let recorders = Recorder::compact(None).ok().zip(Recorder::compact(None).ok());
            let Some((lateness, response)) = recorders else { return };
            match declared.follow() {
                Ok(follower) => {
                    let one = One { declared, follower, lateness, response, late: 0, skipped: 0, lost: 0 };
                    self.loops.insert(identity, one);
                }
                Err(error) => {
                    let note = error.to_string();
                    if !self.notes.contains(&note) {
                        self.notes.push(note);
                    }
                }
            }
        }
    }

    /// Takes what they have recorded since the last time.
    pub(crate) fn take(&mut self) {
        self.loops.values_mut().for_each(One::take);
    }

    /// What they came to, with what a reader should know.
    pub(crate) fn report(&self) -> (Vec<DeclaredReport>, Vec<String>) {
        let mut notes = self.notes.clone();
        for note in self.scanner.refusals().iter().map(ToString::to_string) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        notes.extend(self.scanner.problems().iter().cloned());
        (self.loops.values().map(One::report).collect(), notes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::time::Duration;
    use takt_sdk::Loop;

    #[test]
    fn a_loop_of_a_program_that_runs_is_summed_up() {
        let _alone = super::super::tests::ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let own = i32::try_from(std::process::id()).unwrap();
        let deadline = Duration::from_nanos(1);
        let mut one = Loop::periodic("watched", Duration::from_millis(1)).deadline(deadline).open().unwrap();
        let mut watching = Watching::default();
        watching.look([own]);
        let begin = std::time::Instant::now();
        let mut skipped = 0;
        for _ in 0..20 {
            skipped += one.wait().unwrap().skipped;
            one.end().unwrap();
        }
        watching.take();
        watching.look([own]);
        let (reports, _) = watching.report();
        let report = reports.iter().find(|report| report.name == "watched").unwrap();
        assert_eq!((report.jobs, report.late, report.skipped), (20, 20, skipped));
        assert_eq!((report.period_us, report.tid), (Some(1000.0), Some(takt_rt::thread::own_tid())));
        assert!(report.response_us.worst >= report.lateness_us.worst);
        // None took longer than all.
        assert!(report.response_us.worst <= begin.elapsed().as_micros() as f64 + 1.0);
    }
}
