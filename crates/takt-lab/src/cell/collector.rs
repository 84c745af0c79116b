//! Drains the record rings into the run directory and tells views how the cell is doing. Best effort: the rings
//! hold a minute of records, so that a collector that starves delays nobody and loses nothing.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use takt_link_rtde::RobotState;
use takt_perception_process::{EventKind, Record};
use takt_robot_cell::cell::Records;
use takt_robot_cell::reaction::{Joiner, Reaction};
use takt_robot_cell::records::{FrameRecord, SsmJob};
use takt_robot_cell::ssm::{Decision, Light, SsmConfig};
use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::{Reader, Writer};
use takt_view::{CameraList, CellStatus, Label, ReactionStatus, ThreadSummary};

use super::rows::{FRAMES, JOBS, JobRow, SSM_LATENESS, SSM_RESPONSE};
use super::summary::camera_name;
use super::worker_rows::{GPU_EVENTS, GPU_FRAMES, WorkerRow};
use crate::LabError;
use crate::collect::until_stopped;
use crate::jobs::Teller;
use crate::keeper::{Late, Window};
use takt_rundir::{Measure, RunDir, SampleFile};

/// How often rings are drained: often enough for a live view.
const PERIOD: Duration = Duration::from_millis(50);

/// Records taken from a ring at once.
const BATCH: usize = 512;

/// What the views are told besides records.
pub(super) struct Board {
    /// Where the status goes.
    pub status: Writer<CellStatus>,
    /// The robot.
    pub robot: Reader<RobotState>,
    /// Policy label.
    pub policy: String,
    /// Thresholds.
    pub ssm: SsmConfig,
    /// Deadline of the critical path, milliseconds.
    pub deadline_ms: f64,
    /// Number of cameras.
    pub cameras: usize,
    /// Their configured names, in order.
    pub camera_names: Vec<String>,
    /// The census in short; the main thread renews it now and then.
    pub threads: Arc<Mutex<ThreadSummary>>,
}

/// What of an SSM job a measure is, nanoseconds since its release.
type Since = fn(&SsmJob) -> u64;

fn since_release(measure: &Measure) -> Option<Since> {
    match measure.name.as_str() {
        SSM_LATENESS => Some(|job| job.wake_ns.saturating_sub(job.planned_ns)),
        SSM_RESPONSE => Some(|job| job.end_ns.saturating_sub(job.planned_ns)),
        _ => None,
    }
}

/// The collector's own state.
pub(super) struct Collector {
    records: Records,
    jobs: SampleFile,
    frames: SampleFile,
    /// Answers and events of the perception process, where there is one.
    worker: Option<(SampleFile, SampleFile)>,
    worker_batch: Vec<Record>,
    board: Board,
    joiner: Joiner,
    live: CellStatus,
    last_job: Option<SsmJob>,
    begun: Instant,
    job_batch: Vec<SsmJob>,
    frame_batch: Vec<FrameRecord>,
    /// Who is told of late jobs while the run goes on.
    late: Vec<(Late, Since)>,
    teller: Teller,
}

/// What the collector ends with.
pub(super) struct Collected {
    /// Records that found their ring full.
    pub lost: u64,
}

impl Collector {
    pub(super) fn new(
        dir: &RunDir,
        records: Records,
        board: Board,
        measures: &[Measure],
        window: &Window,
        teller: Teller,
    ) -> Result<Self, LabError> {
        let mut live = CellStatus { policy: Label::new(&board.policy), ..CellStatus::default() };
        live.reaction = ReactionStatus { deadline_ms: board.deadline_ms as f32, ..ReactionStatus::default() };
        live.reduce_distance_m = board.ssm.reduce_below_m as f32;
        live.cameras = CameraList::new(board.cameras);
        let worker = match records.worker.is_empty() {
            true => None,
            false => Some((dir.samples(GPU_FRAMES)?, dir.samples(GPU_EVENTS)?)),
        };
        Ok(Self {
            records,
            worker,
            worker_batch: Vec::with_capacity(BATCH),
            jobs: dir.samples(JOBS)?,
            frames: dir.samples(FRAMES)?,
            board,
            joiner: Joiner::new(),
            live,
            last_job: None,
            begun: Instant::now(),
            job_batch: Vec::with_capacity(BATCH),
            frame_batch: Vec::with_capacity(BATCH),
            late: measures.iter().filter_map(|m| Some((window.late(m), since_release(m)?))).collect(),
            teller,
        })
    }

    /// Collects until `stop` is set and the rings are empty.
    pub(super) fn run(mut self, stop: &AtomicBool) -> Result<Collected, LabError> {
        let empty = |this: &mut Self| {
            while this.drain()? {}
            this.publish();
            Ok(())
        };
        until_stopped(&mut self, stop, PERIOD, empty, Self::save)?;
        let records = &self.records;
        let lost = records.jobs.lost()
            + records.frames.iter().map(|f| f.lost()).sum::<u64>()
            + records.worker.iter().map(|w| w.lost()).sum::<u64>();
        Ok(Collected { lost })
    }

    /// Hands everything to the kernel.
    fn save(&mut self) -> Result<(), LabError> {
        self.jobs.flush()?;
        self.frames.flush()?;
        if let Some((answers, events)) = &mut self.worker {
            answers.flush()?;
            events.flush()?;
        }
        Ok(())
    }

    /// Takes one batch; false when the rings were empty. Jobs are taken before frames and handled after them: a
    /// frame's record is pushed before any job can consume it.
    fn drain(&mut self) -> Result<bool, LabError> {
        let mut jobs = std::mem::take(&mut self.job_batch);
        let mut frames = std::mem::take(&mut self.frame_batch);
        self.records.jobs.take_into(&mut jobs, BATCH);
        for ring in &mut self.records.frames {
            ring.take_into(&mut frames, BATCH);
        }
        let mut reactions = Vec::new();
        for frame in &frames {
            self.frames.push(frame)?;
            let times_ns = [frame.arrival_ns, frame.start_ns, frame.published_ns];
            self.teller.job(&crate::jobs::PERCEPTION, frame.camera, times_ns);
            self.see_frame(frame);
            self.joiner.frame(*frame, &mut |r| reactions.push(r));
        }
        for job in &jobs {
            self.jobs.push(&JobRow::from(job))?;
            self.teller.job(&crate::jobs::SSM, 0, [job.planned_ns, job.wake_ns, job.end_ns]);
            self.late.iter().for_each(|(late, since)| late.see(job.planned_ns, since(job)));
            self.joiner.job(job, &mut |r| reactions.push(r));
        }
        reactions.iter().for_each(|reaction| self.see_reaction(reaction));
        self.last_job = jobs.last().copied().or(self.last_job);
        let any = !(jobs.is_empty() && frames.is_empty()) | self.drain_worker()?;
        jobs.clear();
        frames.clear();
        (self.job_batch, self.frame_batch) = (jobs, frames);
        Ok(any)
    }

    /// Takes what the perception process left; false when there was nothing.
    fn drain_worker(&mut self) -> Result<bool, LabError> {
        let Some((answers, events)) = &mut self.worker else { return Ok(false) };
        let batch = &mut self.worker_batch;
        batch.clear();
        for ring in &mut self.records.worker {
            ring.take_into(batch, BATCH);
        }
        for record in batch.iter() {
            let file = if record.kind == EventKind::Answered { &mut *answers } else { &mut *events };
            file.push(&WorkerRow::from(record))?;
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
        if let Some(job) = &self.last_job {
            let d = &job.decision;
            live.light = match d.light {
                Light::Green => takt_view::Light::Green,
                Light::Orange => takt_view::Light::Orange,
                Light::Red => takt_view::Light::Red,
            };
            live.speed_fraction = d.speed_fraction as f32;
            live.stop = d.stop;
            live.stop_reason = Label::new(&stop_reason(d, &self.board.camera_names));
            live.separation_m = d.separation_m.is_finite().then_some(d.separation_m as f32);
            live.protective_distance_m = d.stop_distance_m as f32;
        }
        self.board.status.publish(monotonic_ns(), *live);
    }
}

/// Why the robot stands, for the person in front of the cell.
pub(super) fn stop_reason(decision: &Decision, names: &[String]) -> String {
    match decision.fault {
        _ if !decision.stop => String::new(),
        Some(fault) => match fault.camera {
            Some(camera) => {
                format!("camera {}: {}", camera_name(names, camera), fault.kind.text())
            }
            None => fault.kind.text().to_owned(),
        },
        None if decision.recovering => "waiting for fresh data from every camera".to_owned(),
        None if decision.separation_m.is_finite() => match decision.nearest_camera {
            Some(camera) => {
                let name = camera_name(names, camera);
                format!("somebody at {:.2} m (camera {name})", decision.separation_m)
            }
            None => format!("somebody at {:.2} m", decision.separation_m),
        },
        None => "waiting until the field stays clear".to_owned(),
    }
}
