//! Drains the humanoid's rings into the run directory. Best effort: the rings hold seconds of
//! records.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_lab::collect::{Recorders, Rows, Sample, until_stopped};
use takt_lab::jobs::JobReporter;
use takt_lab::keeper::{Window, rows_kept};
use takt_lab::releases::{Job, Releases, Seen};
use takt_lab::{Happening, LabError};
use takt_link_ethercat::control::{ExchangeMode, LateAnswer, LinkEvent};
use takt_link_ethercat::segment::Truth;
use takt_rt::clock::monotonic_ns;
use takt_rt::ring::Consumer;
use takt_rundir::{Measure, RunDir};

use super::late::{LATE, LateJoiner, LateRow};
use super::latency::{Joiner, Latencies, LatencyRow};
use super::rows::{Before, CYCLES, CycleRow, LATENCIES};
use super::run::TASK;
use crate::run::CycleRecord;
use crate::safety::StopReason;

/// Period of draining the rings.
const PERIOD: Duration = Duration::from_millis(20);
/// Records taken from a ring at once.
const BATCH: usize = 1024;
/// Events kept for the run's header; the rest is counted.
const MAX_EVENTS: usize = 1000;
/// Rows of latencies that are kept; the figures are of all.
const MAX_LATENCIES: u64 = 1 << 20;
/// Rows of late frames that are kept.
const MAX_LATE: u64 = 1 << 18;

/// The drained rings.
pub(super) struct Rings {
    pub records: Consumer<CycleRecord>,
    pub events: Consumer<LinkEvent>,
    pub late: Consumer<LateAnswer>,
    /// When the answers are fetched that may be late.
    pub mode: ExchangeMode,
    pub truth: Option<Consumer<Truth>>,
    /// Cycles within the window of whose losses nobody has reported yet, for whoever ends the
    /// cycles.
    pub undecided: Arc<AtomicU64>,
}

/// When a value was measured is the time column of its measure, so that recorder and samples count
/// the same.
fn cycle_sample(measure: &Measure) -> Option<Sample<CycleRow>> {
    match measure.name.as_str() {
        "period" => Some(|r| (r.previous_begun_ns, r.begun_ns.saturating_sub(r.previous_begun_ns))),
        "frame-period" => Some(|r| (r.previous_sent_ns, r.sent_ns.saturating_sub(r.previous_sent_ns))),
        "lateness" => Some(|r| (r.planned_ns, r.wake_ns.saturating_sub(r.planned_ns))),
        "response" => Some(|r| (r.planned_ns, r.end_ns.saturating_sub(r.planned_ns))),
        "exchange" => Some(|r| (r.wake_ns, r.exchanged_ns.saturating_sub(r.wake_ns))),
        _ => None,
    }
}

fn latency_sample(measure: &Measure) -> Option<Sample<LatencyRow>> {
    match measure.name.as_str() {
        "sensor" => Some(|r| (r.event_ns, r.seen_ns.saturating_sub(r.event_ns))),
        "command" => Some(|r| (r.seen_ns, r.applied_ns.saturating_sub(r.seen_ns))),
        "reaction" => Some(|r| (r.event_ns, r.applied_ns.saturating_sub(r.event_ns))),
        _ => None,
    }
}

/// Cycles after which a frame that has not come counts as lost
/// ([`Exchanged::lost`](takt_link_ethercat::control::Exchanged::lost)), until it comes.
pub(super) const LOST_AFTER: usize = 16;

/// Whether each of the last [`LOST_AFTER`] cycles sent its frames within the window: a loss belongs
/// to the cycle that sent the frame, and is reported by a later one.
#[derive(Debug, Default)]
struct Sendings(VecDeque<bool>);

impl Sendings {
    /// A cycle that reports `lost` frames, and whether it lies `within` the window itself. Returns
    /// how many of them were sent within the window.
    fn cycle(&mut self, within: bool, lost: u16) -> u64 {
        // Those sent before the first record were sent before the window.
        let sent_within = self.0.len() == LOST_AFTER && self.0.pop_front().unwrap_or(false);
        self.0.push_back(within);
        if sent_within { lost.into() } else { 0 }
    }

    /// Cycles that sent within the window and whose losses nobody has reported.
    fn undecided(&self) -> u64 {
        self.0.iter().filter(|&&within| within).count() as u64
    }
}

pub(super) struct WalkCollector {
    rings: Rings,
    window: Window,
    cycles: Rows,
    latencies: Rows,
    cycle_recorders: Recorders<CycleRow>,
    latency_recorders: Recorders<LatencyRow>,
    late: Rows,
    joiner: Joiner,
    late_joiner: LateJoiner,
    before: Option<Before>,
    /// Why the robot has stopped, if it has.
    stopped: Option<StopReason>,
    sendings: Sendings,
    /// Frames that were sent within the window and came after they had counted as lost.
    found: u64,
    /// Length of a cycle, nanoseconds.
    period_ns: u64,
    releases: Releases,
    collected: Collected,
    dir: RunDir,
    lost_before: u64,
    reporter: JobReporter,
}

pub(super) const COUNTS_FILE: &str = "humanoid.json";

/// Counts of the collector, over all parts of a resumed run.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Collected {
    /// Events of the wire.
    pub events: Vec<String>,
    /// Events beyond those.
    pub more_events: u64,
    /// Latencies within the window.
    pub latencies: Latencies,
    /// Cycles within the window.
    pub cycles: u64,
    /// Frames that were sent within the window and lost.
    pub lost_frames: u64,
    /// Cycles within the window of whose frames nobody can say whether they were lost: control
    /// ended too soon after them.
    #[serde(rename = "untold_cycles")]
    pub undecided_cycles: u64,
    /// Frames within the window that came back after the cycle that waited for them.
    pub late_frames: u64,
    /// Cycles within the window that went on with inputs of an earlier cycle.
    pub stale_cycles: u64,
    /// Farthest that a frame passed the reference clock from its phase, while locked, nanoseconds.
    pub farthest_phase_ns: u32,
    /// Cycles locked to the reference clock.
    pub locked_cycles: u64,
    /// Cycles that were to be, and were not: out of phase, or the reference clock was silent or
    /// said something else.
    pub unlocked_cycles: u64,
    /// Cycles within the window whose working counter was wrong though the frames came.
    pub counter_errors: u64,
    /// Sum of fetching and sending, nanoseconds.
    pub exchange_sum_ns: u64,
    /// Records that found their ring full.
    pub lost: u64,
    /// Releases of the controller.
    releases: Option<Seen>,
}

impl WalkCollector {
    /// A collector for `measures`, which then name their recorders' files.
    pub fn new(
        dir: &RunDir,
        rings: Rings,
        measures: &mut [Measure],
        period_ns: u64,
        window: &Window,
        before: Option<Collected>,
        reporter: JobReporter,
    ) -> Result<Self, LabError> {
        let collected = before.unwrap_or_default();
        let (has_truth, mode) = (rings.truth.is_some(), rings.mode);
        let releases = Releases::new(period_ns, window, measures, &["lateness", "response"])
            .going_on(collected.releases.as_ref());
        Ok(Self {
            dir: dir.clone(),
            lost_before: collected.lost,
            rings,
            releases,
            window: window.clone(),
            cycles: Rows::new(dir, CYCLES)?,
            latencies: Rows::bounded(dir, LATENCIES, rows_kept(MAX_LATENCIES)?)?,
            late: Rows::bounded(dir, LATE, rows_kept(MAX_LATE)?)?,
            late_joiner: LateJoiner::new(mode, has_truth),
            cycle_recorders: Recorders::open(dir, measures, window, cycle_sample)?,
            latency_recorders: Recorders::open(dir, measures, window, latency_sample)?,
            joiner: Joiner::default(),
            before: None,
            stopped: None,
            sendings: Sendings::default(),
            found: 0,
            period_ns,
            collected,
            reporter,
        })
    }

    /// Collects until `stop` is set and the rings are empty.
    pub fn run(mut self, stop: &AtomicBool) -> Result<(Collected, Releases), LabError> {
        let empty = |this: &mut Self| {
            while this.drain()? {}
            Ok(())
        };
        until_stopped(&mut self, stop, PERIOD, empty, Self::save)?;
        self.late_frames(true)?;
        self.collected.undecided_cycles += self.sendings.undecided();
        self.save()?;
        self.releases.finish();
        Ok((self.collected, self.releases))
    }

    fn save(&mut self) -> Result<(), LabError> {
        self.collected.lost = self.lost_before + self.rings.records.lost();
        self.collected.releases = Some(self.releases.seen());
        let mut draft = self.window.draft();
        self.cycles.keep(&mut draft)?;
        self.latencies.keep(&mut draft)?;
        self.late.keep(&mut draft)?;
        self.cycle_recorders.keep(&mut draft)?;
        self.latency_recorders.keep(&mut draft)?;
        draft.file(COUNTS_FILE, &self.collected)?;
        Ok(self.dir.checkpoint(&draft)?)
    }

    /// Takes one batch; false when the rings were empty.
    fn drain(&mut self) -> Result<bool, LabError> {
        let (mut records, mut events, mut truths) = (Vec::new(), Vec::new(), Vec::new());
        let mut taken = self.rings.records.take_into(&mut records, BATCH);
        taken += self.rings.events.take_into(&mut events, BATCH);
        if let Some(truth) = &mut self.rings.truth {
            taken += truth.take_into(&mut truths, BATCH);
        }
        for event in events {
            takt_lab::report_event(Happening::Link, monotonic_ns(), None, event.to_string());
            if self.collected.events.len() < MAX_EVENTS {
                self.collected.events.push(event.to_string());
            } else {
                self.collected.more_events += 1;
            }
        }
        for truth in &truths {
            match *truth {
                // Frames of another master say no cycle, and nobody waits for their answers here.
                Truth::Passed { cycle: Some(cycle), address, stay } => {
                    self.late_joiner.passed((cycle, address), stay);
                }
                _ => self.joiner.truth(truth),
            }
        }
        // After the records, and all of them: whatever those took late is there.
        let mut late = Vec::new();
        while self.rings.late.take_into(&mut late, BATCH) > 0 {}
        taken += late.len();
        for answer in late {
            let counted = usize::from(answer.cycles) >= LOST_AFTER;
            // The first cycles of the window may have been lost before it began.
            let begun_ns = self.window.elapsed_ns(answer.sent_ns);
            let within = begun_ns.is_some_and(|begun_ns| begun_ns >= self.period_ns.saturating_mul(2));
            self.found += u64::from(counted && within);
            self.late_joiner.answer(answer);
        }
        for record in &records {
            self.cycle(record)?;
        }
        // Late and not lost. What was not counted as lost is not taken back from later losses.
        let found = std::mem::take(&mut self.found).min(self.collected.lost_frames);
        self.collected.lost_frames -= found;
        self.rings.undecided.store(self.sendings.undecided(), Ordering::Release);
        self.late_frames(false)?;
        let mut rows = Vec::new();
        self.joiner.take(|row| rows.push(row));
        for row in rows {
            self.latency(row)?;
        }
        Ok(taken > 0)
    }

    /// Tells those who operate the robot that it stops by itself: whoever asked it to knows.
    fn report_stop(&mut self, record: &CycleRecord) {
        let reason = record.reason.filter(|reason| *reason != StopReason::Asked);
        if let (Some(reason), None) = (reason, self.stopped) {
            self.window.report_event(Happening::Stop, record.end_ns, reason.to_string());
        }
        self.stopped = self.stopped.or(record.reason);
    }

    fn cycle(&mut self, record: &CycleRecord) -> Result<(), LabError> {
        self.report_stop(record);
        self.joiner.cycle(record);
        self.reporter.job(&TASK, 0, [record.planned_ns, record.wake_ns, record.end_ns]);
        let CycleRecord { planned_ns, wake_ns, end_ns, skipped, .. } = *record;
        self.releases.job(Job { planned_ns, wake_ns, skipped: skipped.into() }, |measure| match measure {
            "lateness" => Some(wake_ns.saturating_sub(planned_ns)),
            _ => Some(end_ns.saturating_sub(planned_ns)),
        });
        let before = self.before.replace(Before::of(record));
        // A period counts where it began within the window; so does its cycle, so that rows and
        // recorders hold the same.
        let begun = before.filter(|before| {
            let times_ns = [record.planned_ns, before.wake_ns, before.begun_ns, before.sent_ns];
            times_ns.iter().all(|at_ns| self.window.elapsed_ns(*at_ns).is_some())
        });
        let all = &mut self.collected;
        all.lost_frames += self.sendings.cycle(begun.is_some(), record.lost);
        self.late_joiner.cycle(record, begun.is_some());
        let Some(before) = begun else { return Ok(()) };
        all.cycles += 1;
        all.late_frames += u64::from(record.late);
        all.stale_cycles += u64::from(record.stale > 0);
        match record.phase {
            Some(phase) if phase.locked => {
                all.locked_cycles += 1;
                all.farthest_phase_ns = all.farthest_phase_ns.max(phase.frame_ns.unsigned_abs());
            }
            Some(_) => all.unlocked_cycles += 1,
            None => {}
        }
        all.counter_errors += u64::from(record.counter_wrong);
        all.exchange_sum_ns += record.exchange_ns;
        let row = CycleRow::new(record, &before);
        self.cycle_recorders.push(&row);
        self.cycles.push(|| row)
    }

    fn late_frames(&mut self, all: bool) -> Result<(), LabError> {
        let mut rows: Vec<LateRow> = Vec::new();
        self.late_joiner.take(all, |row| rows.push(row));
        for row in rows {
            // In a waiting exchange it begins with sending. One whose own cycle is not recorded
            // took nobody knows how long.
            if row.way.gave_up_ns > 0 {
                let begun_ns = if row.way.planned_ns > 0 { row.way.planned_ns } else { row.way.sent_ns };
                self.window.mark(begun_ns, row.way.taken_ns);
            }
            self.late.push(|| row)?;
        }
        Ok(())
    }

    fn latency(&mut self, row: LatencyRow) -> Result<(), LabError> {
        if self.window.elapsed_ns(row.event_ns).is_none() {
            return Ok(());
        }
        self.latency_recorders.push(&row);
        self.collected.latencies.push(&row);
        self.latencies.push(|| row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cycles of which `within` are in the window, each of which loses a frame where `lost` says
    /// so.
    fn counted(cycles: usize, within: std::ops::Range<usize>, lost: &[usize]) -> u64 {
        let mut sendings = Sendings::default();
        (0..cycles)
            .map(|cycle| {
                let has_truth = cycle.checked_sub(LOST_AFTER).is_some_and(|sent| lost.contains(&sent));
                sendings.cycle(within.contains(&cycle), has_truth.into())
            })
            .sum()
    }

    #[test]
    fn a_loss_belongs_to_the_cycle_that_sent_the_frame() {
        // The window's last cycle, and its first.
        assert_eq!(counted(140, 20..120, &[119]), 1);
        assert_eq!(counted(140, 20..120, &[20]), 1);
        // Before the window, though reported within it; and after it.
        assert_eq!(counted(140, 20..120, &[3, 19]), 0);
        assert_eq!(counted(140, 20..120, &[120, 121]), 0);
        assert_eq!(counted(140, 20..120, &[19, 20, 50, 51, 119, 120]), 4);
    }

    #[test]
    fn what_is_not_reported_is_known_to_be_so() {
        let mut sendings = Sendings::default();
        let lost: u64 = (0..40).map(|cycle| sendings.cycle((5..30).contains(&cycle), 0)).sum();
        // 40 cycles report the first 24.
        assert_eq!((sendings.undecided(), lost), (6, 0));
        let lost: u64 = (40..50).map(|_| sendings.cycle(false, 0)).sum();
        assert_eq!((sendings.undecided(), lost), (0, 0));
    }

    #[test]
    fn losses_from_before_the_first_record_are_not_of_the_window() {
        let mut sendings = Sendings::default();
        assert_eq!(sendings.cycle(true, 2), 0);
    }
}
