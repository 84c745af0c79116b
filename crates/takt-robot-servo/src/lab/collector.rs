//! Drains the cycles into the run directory: the first ones one by one, all of them in recorders of
//! constant size.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_lab::collect::{Sample, until_stopped};
use takt_lab::jobs::JobReporter;
use takt_lab::keeper::Window;
use takt_lab::releases::Seen;
use takt_lab::{LabError, Session, TaskLog, Timed, Times};
use takt_rt::ring::Consumer;
use takt_rundir::{Measure, RunDir};

use super::run::SERVO_TASK;
use crate::ServoConfig;
use crate::record::{CycleRecord, Totals};

/// Name of the sample file.
pub const CYCLES: &str = "cycles";

/// File of what is counted of the stream, for a run that goes on after a kill.
pub(super) const STREAM_FILE: &str = "stream.json";

/// Period of draining the ring.
const PERIOD: Duration = Duration::from_millis(50);

/// Records taken from the ring at once.
const BATCH: usize = 1024;

/// One line of the sample file. Times are CLOCK_MONOTONIC; column names carry the units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleRow {
    /// Number of the control cycle; a gap is a release that was passed over.
    pub index: u64,
    /// Planned release.
    pub planned_ns: u64,
    /// The thread was awake.
    pub wake_ns: u64,
    /// The newest packet was read.
    pub received_ns: u64,
    /// The command before this one was handed to the kernel.
    pub before_ns: u64,
    /// The command was handed to the kernel; where it was not, the cycle's end.
    pub sent_ns: u64,
    /// The cycle's work ended.
    pub end_ns: u64,
    /// Age of the state that the command answers.
    pub age_ns: u64,
    /// Releases passed over before this one.
    pub skipped: u32,
    /// Packets that came.
    pub packets: u32,
    /// Control cycles that no packet reported.
    pub lost_packets: u32,
    /// Whether the kernel took the command.
    pub sent: bool,
    /// Count of the command, as the controller's log has it.
    pub count: i32,
    /// Control cycles without a command so far, by the count of the program on the robot.
    pub missed: i32,
    /// The controller's time of the state.
    pub controller_s: f64,
    /// Farthest joint from the newest target.
    pub following_rad: f64,
    /// Target of the base joint.
    pub target_0_rad: f64,
    /// Target of the shoulder.
    pub target_1_rad: f64,
    /// Target of the elbow.
    pub target_2_rad: f64,
    /// Target of wrist 1.
    pub target_3_rad: f64,
    /// Target of wrist 2.
    pub target_4_rad: f64,
    /// Target of wrist 3.
    pub target_5_rad: f64,
    /// Base joint, as the controller reports.
    pub joint_0_rad: f64,
    /// Shoulder.
    pub joint_1_rad: f64,
    /// Elbow.
    pub joint_2_rad: f64,
    /// Wrist 1.
    pub joint_3_rad: f64,
    /// Wrist 2.
    pub joint_4_rad: f64,
    /// Wrist 3.
    pub joint_5_rad: f64,
}

/// A record with what only its predecessor reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cycle {
    record: CycleRecord,
    before_ns: u64,
    sent_ns: u64,
}

impl From<&Cycle> for CycleRow {
    fn from(cycle: &Cycle) -> Self {
        let r = &cycle.record;
        let [target_0_rad, target_1_rad, target_2_rad, target_3_rad, target_4_rad, target_5_rad] =
            r.targets_rad;
        let [joint_0_rad, joint_1_rad, joint_2_rad, joint_3_rad, joint_4_rad, joint_5_rad] = r.joints_rad;
        Self {
            index: r.index,
            planned_ns: r.planned_ns,
            wake_ns: r.wake_ns,
            received_ns: r.received_ns,
            before_ns: cycle.before_ns,
            sent_ns: cycle.sent_ns,
            end_ns: r.end_ns,
            age_ns: r.age_ns,
            skipped: r.skipped,
            packets: r.packets,
            lost_packets: r.lost_packets,
            sent: r.sent_ns > 0,
            count: r.count,
            missed: r.missed,
            controller_s: r.controller_s,
            following_rad: r.following_rad,
            target_0_rad,
            target_1_rad,
            target_2_rad,
            target_3_rad,
            target_4_rad,
            target_5_rad,
            joint_0_rad,
            joint_1_rad,
            joint_2_rad,
            joint_3_rad,
            joint_4_rad,
            joint_5_rad,
        }
    }
}

fn sample(measure: &Measure) -> Option<Sample<Cycle>> {
    match measure.name.as_str() {
        "response" => Some(|c| (c.record.planned_ns, c.record.response_ns())),
        "lateness" => Some(|c| (c.record.planned_ns, c.record.lateness_ns())),
        "packet-to-command" => {
            Some(|c| (c.record.planned_ns, c.sent_ns.saturating_sub(c.record.received_ns)))
        }
        "period" => Some(|c| (c.record.planned_ns, c.sent_ns.saturating_sub(c.before_ns))),
        _ => None,
    }
}

/// Counts of the cycles within the window, over all parts of a resumed run; each of them is a
/// separate stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counted {
    pub(super) cycles: u64,
    pub(super) not_sent: u64,
    pub(super) lost_packets: u64,
    pub(super) missed: u64,
    pub(super) following_max_rad: f64,
    pub(super) following_squares_rad2: f64,
    /// Records that found the ring full.
    pub(super) lost: u64,
    /// Sums over all cycles that streamed, also outside of the window.
    pub(super) totals: Totals,
    /// Most control cycles in a row without a command, of any stream.
    pub(super) longest: i32,
    releases: Seen,
    /// The program's count at the first cycle of this part, and what was missed before it.
    first_missed: Option<i32>,
    missed_before: u64,
}

impl Counted {
    /// A new stream begins, whose program on the robot counts from 0.
    fn begin_again(&mut self) {
        self.first_missed = None;
        self.missed_before = self.missed;
        self.totals.begin_again();
    }

    fn see(&mut self, record: &CycleRecord) {
        self.cycles += 1;
        self.not_sent += u64::from(record.sent_ns == 0);
        self.lost_packets += u64::from(record.lost_packets);
        self.following_max_rad = self.following_max_rad.max(record.following_rad);
        self.following_squares_rad2 += record.following_rad.powi(2);
        let first = *self.first_missed.get_or_insert(record.missed);
        let missed = u64::try_from(record.missed.wrapping_sub(first)).unwrap_or(0);
        self.missed = self.missed_before.saturating_add(missed);
    }
}

impl Timed for Cycle {
    fn times(&self) -> Times {
        let CycleRecord { planned_ns, wake_ns, end_ns, skipped, .. } = self.record;
        Times { planned_ns, wake_ns, start_ns: wake_ns, end_ns, skipped: skipped.into() }
    }
}

pub(super) struct StreamCollector {
    dir: RunDir,
    window: Window,
    records: Consumer<CycleRecord>,
    pub(super) log: TaskLog<Cycle>,
    reporter: JobReporter,
    pub(super) counted: Counted,
    /// Records that parts before this one lost.
    lost_before: u64,
    before_ns: u64,
    period_ns: u64,
    deadline_ns: u64,
}

impl StreamCollector {
    /// A collector for the session's measures, which then name their recorders' files; it goes on
    /// counting where a killed part of the run stopped.
    pub(super) fn new(
        file: &ServoConfig,
        session: &mut Session,
        records: Consumer<CycleRecord>,
        window: &Window,
    ) -> Result<Self, LabError> {
        let (dir, reporter) = (session.dir().clone(), session.reporter());
        let mut counted: Counted = session.restored(STREAM_FILE)?.unwrap_or_default();
        counted.begin_again();
        let period = Duration::from_nanos(file.period_ns());
        let measures = &mut session.header.measures;
        let log = TaskLog::new(&dir, &SERVO_TASK, period, measures, window, sample)?;
        Ok(Self {
            dir,
            window: window.clone(),
            records,
            log: log.going_on(Some(&counted.releases)),
            reporter,
            lost_before: counted.lost,
            counted,
            before_ns: 0,
            period_ns: file.period_ns(),
            deadline_ns: file.task.deadline_us.saturating_mul(1000),
        })
    }

    /// Collects until `end` is set and the ring is empty.
    pub(super) fn run(mut self, end: &AtomicBool) -> Result<Self, LabError> {
        until_stopped(&mut self, end, PERIOD, Self::drain, Self::save)?;
        Ok(self)
    }

    fn save(&mut self) -> Result<(), LabError> {
        self.counted.lost = self.lost_before.saturating_add(self.records.lost());
        self.counted.releases = self.log.releases.seen();
        self.log.lost(&mut self.reporter, self.records.lost());
        let mut draft = self.window.draft();
        self.log.keep(&mut draft)?;
        draft.file(STREAM_FILE, &self.counted)?;
        Ok(self.dir.checkpoint(&draft)?)
    }

    fn drain(&mut self) -> Result<(), LabError> {
        let mut batch = Vec::new();
        while self.records.take_into(&mut batch, BATCH) > 0 {
            for record in batch.drain(..).filter(|record| record.streaming) {
                // A command that was not sent ends with its cycle, and counts as none besides.
                let sent_ns = if record.sent_ns > 0 { record.sent_ns } else { record.end_ns };
                let before_ns = if self.before_ns > 0 { self.before_ns } else { sent_ns };
                self.before_ns = sent_ns;
                self.counted.totals.add(&record, self.period_ns, self.deadline_ns);
                self.counted.longest = self.counted.longest.max(record.longest);
                if self.window.elapsed_ns(record.planned_ns).is_some() {
                    self.counted.see(&record);
                }
                let cycle = Cycle { record, before_ns, sent_ns };
                self.log.push(&mut self.reporter, &cycle, || CycleRow::from(&cycle))?;
            }
        }
        Ok(())
    }
}
