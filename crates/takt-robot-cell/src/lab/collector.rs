//! Drains the record rings into the run directory and reports views how the cell is doing: the
//! first records one by one, all of them in a tally and recorders of constant size, so that a run
//! of any length takes constant memory and bounded disk. Best effort: the rings hold a minute of
//! records, so that a collector that starves delays nobody and loses nothing.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use takt_lab::collect::{Recorders, Rows, Sample, until_stopped};
use takt_lab::jobs::JobReporter;
use takt_lab::keeper::{MAX_ROWS, Window, rows_kept};
use takt_lab::{Happening, LabError};
use takt_link_rtde::RobotState;
use takt_perception::process::{EventKind, Record};
use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::{Reader, Writer};
use takt_rundir::{CpuTime, Draft, Measure, RunDir};

use super::rows::{
    FRAMES, JOBS, JobRow, PERCEPTION_RESPONSE, REACTION, REACTIONS, SSM_LATENESS, SSM_RESPONSE, UNJUDGED,
};
use super::run::{PERCEPTION_TASK, SSM_TASK};
use super::summary::ReactionRow;
use super::tally::{Change, Rules, TALLY_FILE, Tally, fault_text};
use super::worker_rows::{GPU_EVENTS, GPU_FRAMES, WorkerRow};
use crate::cell::Records;
use crate::guard::SsmFacts;
use crate::reaction::Reaction;
use crate::records::{FrameRecord, SsmJob};
use crate::ssm::{Decision, Fault, SsmConfig, terms};
use crate::tasks::TaskSet;
use crate::view::{CameraList, CellStatus, Label, ProtectiveStatus, ReactionStatus, ThreadSummary};

/// Period of draining the rings: short enough for a live view.
const PERIOD: Duration = Duration::from_millis(50);

/// Records taken from a ring at once.
const BATCH: usize = 512;

/// Data for the views besides records.
#[derive(Debug)]
pub struct Board {
    /// Destination of the status.
    pub status: Writer<CellStatus>,
    pub robot: Reader<RobotState>,
    /// Policy label.
    pub policy: String,
    /// Thresholds.
    pub ssm: SsmConfig,
    /// The task set, for the reaction time that is tolerated.
    pub tasks: TaskSet,
    /// Measurements of the robot's link by the SSM job.
    pub facts: Arc<SsmFacts>,
    /// Deadline of the critical path, milliseconds.
    pub deadline_ms: f64,
    pub cameras: usize,
    /// The census in short; the main thread renews it now and then.
    pub threads: Arc<Mutex<ThreadSummary>>,
}

fn job_sample(measure: &Measure) -> Option<Sample<SsmJob>> {
    match measure.name.as_str() {
        SSM_LATENESS => Some(|job| (job.planned_ns, job.wake_ns.saturating_sub(job.planned_ns))),
        SSM_RESPONSE => Some(|job| (job.planned_ns, job.end_ns.saturating_sub(job.planned_ns))),
        _ => None,
    }
}

/// Extracts a measure's sample from a judged frame.
fn frame_sample(measure: &Measure) -> Option<Sample<FrameRecord>> {
    match measure.name.as_str() {
        PERCEPTION_RESPONSE => {
            Some(|frame| (frame.arrival_ns, frame.published_ns.saturating_sub(frame.arrival_ns)))
        }
        _ => None,
    }
}

fn reaction_sample(measure: &Measure) -> Option<Sample<Reaction>> {
    match measure.name.as_str() {
        REACTION => Some(|reaction| (reaction.frame.arrival_ns, reaction.reaction_ns())),
        _ => None,
    }
}

/// File of what the thread that times the run saw go wrong.
pub(super) const TROUBLES_FILE: &str = "cell-troubles.json";

/// Faults that leave no record, one sentence each: they must outlive a kill as records do.
pub(super) type Troubles = Arc<Mutex<Vec<String>>>;

/// The sample files.
#[derive(Debug)]
struct Files {
    jobs: Rows,
    frames: Rows,
    unjudged: Rows,
    reactions: Rows,
    /// Answers and events of the perception process, where there is one.
    worker: Option<(Rows, Rows)>,
}

impl Files {
    fn open(dir: &RunDir, worker: bool, most: u64) -> Result<Self, LabError> {
        let rows = |name| Rows::bounded(dir, name, most);
        Ok(Self {
            jobs: rows(JOBS)?,
            frames: rows(FRAMES)?,
            unjudged: rows(UNJUDGED)?,
            reactions: rows(REACTIONS)?,
            worker: if worker { Some((rows(GPU_FRAMES)?, rows(GPU_EVENTS)?)) } else { None },
        })
    }

    fn keep(&mut self, draft: &mut Draft) -> Result<(), LabError> {
        let Self { jobs, frames, unjudged, reactions, worker } = self;
        let worker = worker.iter_mut().flat_map(|(answers, events)| [answers, events]);
        [jobs, frames, unjudged, reactions].into_iter().chain(worker).try_for_each(|rows| rows.keep(draft))
    }
}

/// The recorders of the measures that reports read.
#[derive(Debug)]
struct Series {
    jobs: Recorders<SsmJob>,
    frames: Recorders<FrameRecord>,
    reactions: Recorders<Reaction>,
}

/// The collector's own state.
#[derive(Debug)]
pub struct CellCollector {
    dir: RunDir,
    records: Records,
    files: Files,
    series: Series,
    tally: Tally,
    window: Window,
    worker_batch: Vec<Record>,
    board: Board,
    live: CellStatus,
    last_job: Option<SsmJob>,
    /// The robot has moved within the window, and what the last job did not trust.
    has_moved: bool,
    fault: Option<Fault>,
    begun: Instant,
    job_batch: Vec<SsmJob>,
    frame_batch: Vec<FrameRecord>,
    reaction_batch: Vec<Reaction>,
    lost_before: u64,
    troubles: Troubles,
    reporter: JobReporter,
}

/// Result of the collector.
#[derive(Clone, Copy, Debug)]
pub struct Collected {
    /// Records that found their ring full.
    pub lost: u64,
}

impl CellCollector {
    /// A collector for `measures`, which then name their recorders' files.
    ///
    /// # Errors
    /// [`LabError`] when its files cannot be made.
    pub fn new(
        dir: &RunDir,
        records: Records,
        board: Board,
        rules: Rules,
        measures: &mut [Measure],
        window: &Window,
    ) -> Result<Self, LabError> {
        Self::bounded(dir, records, board, rules, measures, window, rows_kept(MAX_ROWS)?)
    }

    /// As [`new`](Self::new), with at most so many rows in each sample file.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn bounded(
        dir: &RunDir,
        records: Records,
        board: Board,
        rules: Rules,
        measures: &mut [Measure],
        window: &Window,
        most_rows: u64,
    ) -> Result<Self, LabError> {
        let mut live = CellStatus { policy: Label::new(&board.policy), ..CellStatus::default() };
        live.reaction = ReactionStatus { deadline_ms: board.deadline_ms as f32, ..ReactionStatus::default() };
        live.reduce_distance_m = board.ssm.reduce_below_m as f32;
        live.cameras = CameraList::new(board.cameras);
        Ok(Self {
            dir: dir.clone(),
            files: Files::open(dir, !records.worker.is_empty(), most_rows)?,
            series: Series {
                jobs: Recorders::open(dir, measures, window, job_sample)?,
                frames: Recorders::open(dir, measures, window, frame_sample)?,
                reactions: Recorders::open(dir, measures, window, reaction_sample)?,
            },
            tally: Tally::new(rules)?,
            window: window.clone(),
            records,
            worker_batch: Vec::with_capacity(BATCH),
            board,
            live,
            last_job: None,
            has_moved: false,
            fault: None,
            begun: Instant::now(),
            job_batch: Vec::with_capacity(BATCH),
            frame_batch: Vec::with_capacity(BATCH),
            reaction_batch: Vec::with_capacity(BATCH),
            lost_before: 0,
            troubles: Troubles::default(),
            reporter: JobReporter::default(),
        })
    }

    /// Goes on counting after a resumption, and keeps what goes wrong beside.
    pub(super) fn going_on(mut self, before: Option<Tally>, troubles: &Troubles) -> Self {
        self.troubles = Arc::clone(troubles);
        if let Some(before) = before {
            self.lost_before = before.lost;
            self.tally = before.going_on();
        }
        self
    }

    /// Also reports the jobs to a manager.
    pub(crate) fn reporting(mut self, reporter: JobReporter) -> Self {
        self.reporter = reporter;
        self
    }

    /// Collects until `stop` is set and the rings are empty.
    ///
    /// # Errors
    /// [`LabError`] when a file cannot be written.
    pub fn run(mut self, stop: &AtomicBool) -> Result<Collected, LabError> {
        until_stopped(&mut self, stop, PERIOD, Self::turn, Self::save)?;
        self.finish()
    }

    /// Empties the rings and reports the views.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn turn(&mut self) -> Result<(), LabError> {
        self.tally.steal.reading(monotonic_ns(), CpuTime::read().steal);
        while self.drain()? {}
        self.publish();
        Ok(())
    }

    /// Counts what lies between the last records and the window's end, and saves all.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn finish(mut self) -> Result<Collected, LabError> {
        let mut reactions = std::mem::take(&mut self.reaction_batch);
        self.tally.finish(self.window.bounds(), &mut |reaction| reactions.push(*reaction));
        self.keep_reactions(&mut reactions)?;
        self.save()?;
        Ok(Collected { lost: self.tally.lost })
    }

    /// Hands everything to the kernel, with a checkpoint.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn save(&mut self) -> Result<(), LabError> {
        let mut draft = self.window.draft();
        self.files.keep(&mut draft)?;
        self.series.jobs.keep(&mut draft)?;
        self.series.frames.keep(&mut draft)?;
        self.series.reactions.keep(&mut draft)?;
        self.tally.lost = self.lost_before + self.lost();
        draft.file(TALLY_FILE, &self.tally)?;
        draft.file(TROUBLES_FILE, &*self.troubles.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(self.dir.checkpoint(&draft)?)
    }

    /// Records of this part of the run that found their ring full.
    fn lost(&self) -> u64 {
        let Records { jobs, frames, worker, .. } = &self.records;
        let rings = frames.iter().map(|f| f.lost()).chain(worker.iter().map(|w| w.lost()));
        jobs.lost() + rings.sum::<u64>()
    }

    /// Takes one batch; false when the rings were empty. Jobs are taken before frames and handled
    /// after them: a frame's record is pushed before any job can consume it.
    fn drain(&mut self) -> Result<bool, LabError> {
        let mut jobs = std::mem::take(&mut self.job_batch);
        let mut frames = std::mem::take(&mut self.frame_batch);
        let mut reactions = std::mem::take(&mut self.reaction_batch);
        self.records.jobs.take_into(&mut jobs, BATCH);
        for ring in &mut self.records.frames {
            ring.take_into(&mut frames, BATCH);
        }
        // Asked after taking: a bound that was reported before the last record was made holds for
        // it.
        let window_ns = self.window.bounds();
        for frame in &frames {
            if frame.is_judged() {
                if self.window.keeps(frame.arrival_ns) {
                    self.files.frames.push(|| *frame)?;
                }
                self.series.frames.push(frame);
                let times_ns = [frame.arrival_ns, frame.start_ns, frame.published_ns];
                self.reporter.job(&PERCEPTION_TASK, frame.camera, times_ns);
            } else if self.window.keeps(frame.arrival_ns) {
                self.files.unjudged.push(|| *frame)?;
            }
            self.see_frame(frame);
            self.tally.frame(frame, window_ns, &mut |reaction| reactions.push(*reaction));
        }
        for job in &jobs {
            if self.window.keeps(job.planned_ns) {
                self.files.jobs.push(|| JobRow::from(job))?;
            }
            self.reporter.job(&SSM_TASK, 0, [job.planned_ns, job.wake_ns, job.end_ns]);
            self.series.jobs.push(job);
            self.tally.job(job, window_ns, &mut |reaction| reactions.push(*reaction));
            self.report_change(job);
        }
        self.keep_reactions(&mut reactions)?;
        self.last_job = jobs.last().copied().or(self.last_job);
        let any = !(jobs.is_empty() && frames.is_empty()) | self.drain_worker()?;
        jobs.clear();
        frames.clear();
        (self.job_batch, self.frame_batch, self.reaction_batch) = (jobs, frames, reactions);
        Ok(any)
    }

    /// Tells those who operate the robot what this job changed.
    fn report_change(&mut self, job: &SsmJob) {
        let decision = &job.decision;
        let name = |camera: u32| self.tally.camera_name(camera);
        match self.tally.ssm.change.clone() {
            Some(Change::Stopped(cause)) => {
                let more = match decision.fault {
                    Some(_) => String::new(),
                    None => format!(": {}", stop_reason(decision, name)),
                };
                self.window.report_event(Happening::Stop, job.end_ns, format!("{cause}{more}"));
            }
            // The first motion is none after a stop.
            Some(Change::GoesOn) if self.has_moved => {
                self.window.report_event(
                    Happening::Recovery,
                    job.end_ns,
                    "all inputs are trusted and clear".to_owned(),
                );
            }
            // Another cause than that of the stop, while it stands.
            None if decision.fault != self.fault && self.has_moved => {
                if let Some(fault) = decision.fault.filter(|_| decision.stop) {
                    self.window.report_event(Happening::Fault, job.end_ns, fault_text(&fault, name));
                }
            }
            _ => {}
        }
        self.has_moved |= self.tally.ssm.change == Some(Change::GoesOn);
        self.fault = decision.fault;
    }

    fn keep_reactions(&mut self, reactions: &mut Vec<Reaction>) -> Result<(), LabError> {
        for reaction in reactions.drain(..) {
            self.see_reaction(&reaction);
            self.series.reactions.push(&reaction);
            if self.window.keeps(reaction.frame.arrival_ns) {
                self.files.reactions.push(|| ReactionRow::from(&reaction))?;
            }
        }
        Ok(())
    }

    /// Takes what the perception process left; false when there was nothing.
    fn drain_worker(&mut self) -> Result<bool, LabError> {
        let Some((answers, events)) = &mut self.files.worker else { return Ok(false) };
        let batch = &mut self.worker_batch;
        batch.clear();
        for ring in &mut self.records.worker {
            ring.take_into(batch, BATCH);
        }
        let window_ns = self.window.bounds();
        for record in batch.iter() {
            let file = if record.kind == EventKind::Answered { &mut *answers } else { &mut *events };
            file.push(|| WorkerRow::from(record))?;
            self.tally.worker.see(record, window_ns);
            report_worker(record);
        }
        Ok(!batch.is_empty())
    }

    fn see_frame(&mut self, frame: &FrameRecord) {
        if let Some(camera) = self.live.cameras.get_mut(frame.camera as usize) {
            camera.separation_m = frame.nearest_m.is_finite().then_some(frame.nearest_m);
            camera.health = frame.health;
            camera.objects = frame.people + frame.unexplained;
            camera.frames += 1;
            camera.dropped += frame.dropped;
            camera.unjudged += u64::from(!frame.is_judged());
        }
    }

    fn see_reaction(&mut self, reaction: &Reaction) {
        let ms = reaction.reaction_ns() as f32 / 1e6;
        self.live.reaction.record(ms);
        if let Some(camera) = self.live.cameras.get_mut(reaction.frame.camera as usize) {
            camera.last_reaction_ms = Some(ms);
            camera.worst_reaction_ms = Some(camera.worst_reaction_ms.map_or(ms, |worst| worst.max(ms)));
        }
    }

    fn publish(&mut self) {
        let robot = self.board.robot.read().value;
        let live = &mut self.live;
        live.elapsed_s = self.begun.elapsed().as_secs_f64();
        live.threads = *self.board.threads.lock().unwrap_or_else(PoisonError::into_inner);
        live.robot.connected = robot.connected;
        live.robot.robot_mode = robot.robot_mode;
        live.robot.safety_mode = robot.safety_mode;
        live.robot.speed_fraction = robot.speed_fraction as f32;
        live.robot.tcp_pose = robot.tcp_pose;
        let [x, y, z, ..] = robot.tcp_speed;
        live.robot.tcp_speed_m_s = (x * x + y * y + z * z).sqrt() as f32;
        live.protective = protective(&self.board);
        if let Some(job) = &self.last_job {
            let d = &job.decision;
            live.light = d.light;
            live.speed_fraction = d.speed_fraction as f32;
            live.stop = d.stop;
            live.stop_reason = Label::new(&stop_reason(d, |camera| self.tally.camera_name(camera)));
            live.separation_m = d.separation_m.is_finite().then_some(d.separation_m as f32);
            live.protective_distance_m = d.stop_distance_m as f32;
        }
        self.board.status.publish(monotonic_ns(), *live);
    }
}

/// Tells those who operate the cell what becomes of the perception process; single frames are in
/// the verdict.
fn report_worker(record: &Record) {
    let (kind, what) = match record.kind {
        EventKind::Hung => (Happening::Fault, "hangs"),
        EventKind::Crashed => (Happening::Fault, "has ended"),
        EventKind::Lost => (Happening::Fault, "has lost its device"),
        EventKind::RestartFailed => (Happening::Fault, "could not be started again"),
        EventKind::BreakerOpen => (Happening::Fault, "is not asked for a while"),
        EventKind::GivenUp => (Happening::Fault, "is given up for this run"),
        EventKind::Restarted => (Happening::Link, "has been started again"),
        EventKind::BreakerClosed => (Happening::Link, "is asked again"),
        _ => return,
    };
    takt_lab::report_event(kind, record.time_ns, None, format!("the perception process {what}"));
}

/// The formula for the page.
fn protective(board: &Board) -> ProtectiveStatus {
    let facts = &board.facts;
    let terms = terms(&board.ssm, &board.tasks, facts.delays(), facts.capture_to_command_ns());
    let value = |symbol: &str| {
        terms.iter().find(|term| term.symbol == symbol).map_or(f32::NAN, |term| term.value as f32)
    };
    ProtectiveStatus {
        human_speed_m_s: value("v_h"),
        robot_speed_m_s: value("v_r"),
        reaction_s: value("T_r"),
        tolerated_s: value("T_tolerated"),
        measured_s: value("T_measured"),
        stopping_s: value("T_s"),
        constants_m: value("C") + value("Z_d") + value("Z_r"),
        distance_m: value("S_p"),
    }
}

/// Reason of the robot's stop, for the person in front of the cell.
pub(super) fn stop_reason(decision: &Decision, name: impl Fn(u32) -> String) -> String {
    match decision.fault {
        _ if !decision.stop => String::new(),
        Some(fault) => match fault.camera {
            Some(camera) => format!("camera {}: {}", name(camera), fault.kind.text()),
            None => fault.kind.text().to_owned(),
        },
        None if decision.recovering => "waiting for fresh data from every camera".to_owned(),
        None if decision.separation_m.is_finite() => match decision.nearest_camera {
            Some(camera) => format!("somebody at {:.2} m (camera {})", decision.separation_m, name(camera)),
            None => format!("somebody at {:.2} m", decision.separation_m),
        },
        None => "waiting for the field to stay clear".to_owned(),
    }
}

#[cfg(test)]
mod tests;
