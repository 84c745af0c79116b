//! Drains the record rings into the run directory and keeps count of the flight: the first records
//! one by one, all of them in recorders of constant size. Best effort: the rings hold minutes of
//! records, so a collector that starves delays nobody and loses nothing.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_lab::collect::{Rows, Sample, until_stopped};
use takt_lab::jobs::JobReporter;
use takt_lab::keeper::Window;
use takt_lab::releases::{Releases, Seen};
use takt_lab::{LabError, Session, TaskLog, Timed, Times};
use takt_rundir::{Measure, RunDir};

use super::rows::{AttitudeRow, PositionRow, TELEMETRY, TelemetryRow};
use super::run::{ATTITUDE_TASK, LATENESS, POSITION_TASK};
use crate::flight::Records;
use crate::plant::Loss;
use crate::records::{AttitudeRecord, PositionRecord};
use crate::sim::Simulation;
use crate::{UavConfig, UavError};

/// Period of draining the rings.
const PERIOD: Duration = Duration::from_millis(50);

/// Records taken from a ring at once.
const BATCH: usize = 1024;

/// File of what is counted of the flight.
pub(super) const FLIGHT_FILE: &str = "flight.json";

/// Result of the flight.
#[derive(Debug)]
pub(super) struct Flown {
    ideal: Simulation,
    /// Counts over all parts of a resumed run; each of them is a flight from the start.
    pub counts: Counts,
    /// Number of the newest force command, and since when it has been used.
    force: (u64, u64),
}

/// Counts of a flight.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counts {
    /// Attitude jobs, whatever became of the vehicle.
    pub done: u64,
    /// Those until the vehicle was lost.
    jobs: u64,
    errors: Errors,
    deviations: Errors,
    at_limit: u64,
    loss: Option<(f64, Loss)>,
    oldest_force_ns: u64,
    latest_ns: u64,
    /// Records that found their ring full.
    pub lost: u64,
    /// Releases of the attitude loop, and of the position loop.
    releases: [Seen; 2],
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Errors {
    sum_squares_m2: f64,
    max_m: f64,
}

impl Errors {
    fn add(&mut self, error_m: f64) {
        self.sum_squares_m2 += error_m * error_m;
        self.max_m = self.max_m.max(error_m);
    }

    fn rms_m(&self, count: u64) -> f64 {
        (self.sum_squares_m2 / count.max(1) as f64).sqrt()
    }
}

impl Flown {
    fn new(config: &UavConfig, before: Option<Counts>) -> Result<Self, LabError> {
        Ok(Self {
            ideal: Simulation::new(config).map_err(UavError::from)?,
            counts: before.unwrap_or_default(),
            force: (0, 0),
        })
    }

    /// Counts a job, and returns how far the vehicle is from where punctual jobs would have brought
    /// it.
    fn see(&mut self, job: &AttitudeRecord, epoch_ns: u64) -> f64 {
        let counts = &mut self.counts;
        counts.done += 1;
        let time_ns = job.wake_ns.saturating_sub(epoch_ns);
        let ideal_m = self.ideal.punctual_at(time_ns).position_m;
        let deviation_m =
            ideal_m.iter().zip(&job.position_m).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
        // A lost vehicle stays where it was lost; what it would still do to the figures says
        // nothing.
        if counts.loss.is_none() {
            counts.jobs += 1;
            if self.force.1 == 0 || job.force_sequence != self.force.0 {
                self.force = (job.force_sequence, job.wake_ns);
            }
            counts.oldest_force_ns = counts.oldest_force_ns.max(job.wake_ns.saturating_sub(self.force.1));
            counts.latest_ns = counts.latest_ns.max(job.lateness_ns());
            counts.errors.add(job.position_error_m);
            counts.deviations.add(deviation_m);
            counts.at_limit += u64::from(job.rotors_at_limit != 0);
            counts.loss = job.loss.map(|why| (time_ns as f64 / 1e9, why));
        }
        deviation_m
    }

    /// Single figures; none of a flight without a job. Those of a lost one are of the time until
    /// then.
    pub(super) fn figures(&self) -> Vec<(&'static str, f64)> {
        let counts = &self.counts;
        if counts.jobs == 0 {
            return Vec::new();
        }
        let mut figures = vec![
            ("position_rms_m", counts.errors.rms_m(counts.jobs)),
            ("max_position_error_m", counts.errors.max_m),
            ("deviation_rms_m", counts.deviations.rms_m(counts.jobs)),
            ("max_deviation_m", counts.deviations.max_m),
            ("rotors_at_limit_share", counts.at_limit as f64 / counts.jobs as f64),
            ("oldest_force_ms", counts.oldest_force_ns as f64 / 1e6),
            ("diverged", f64::from(u8::from(counts.loss.is_some()))),
        ];
        figures.extend(counts.loss.map(|(at_s, _)| ("diverged_at_s", at_s)));
        figures
    }

    /// Reason of a lost flight, in a sentence, with the age of its commands: a position loop that
    /// is late for seconds loses the vehicle as surely as the attitude loop.
    pub(super) fn loss(&self) -> Option<String> {
        let (at_s, why) = self.counts.loss?;
        let how = match why {
            Loss::Position => "it was too far from its reference",
            Loss::Tilt => "it tilted too far",
            Loss::Ground => "it hit the ground",
            Loss::NotANumber => "its state was no longer a number",
            Loss::Silence => "it was not controlled for two seconds",
        };
        Some(format!(
            "the vehicle was lost after {at_s:.3} s: {how}. Until then the attitude loop was late by at most {:.3} ms, and used one force \
             command of the position loop for up to {:.1} ms",
            self.counts.latest_ns as f64 / 1e6,
            self.counts.oldest_force_ns as f64 / 1e6
        ))
    }
}

/// Extracts a measure's sample from an attitude job.
fn attitude_sample(measure: &Measure) -> Option<Sample<AttitudeRecord>> {
    match measure.name.as_str() {
        LATENESS => Some(|job| (job.planned_ns, job.lateness_ns())),
        "response" => Some(|job| (job.planned_ns, job.response_ns())),
        "execution" => Some(|job| (job.control_start_ns, job.control_ns())),
        "job" => Some(|job| (job.wake_ns, job.job_ns())),
        _ => None,
    }
}

fn position_sample(measure: &Measure) -> Option<Sample<PositionRecord>> {
    match measure.name.as_str() {
        "position-lateness" => Some(|job| (job.planned_ns, job.wake_ns.saturating_sub(job.planned_ns))),
        _ => None,
    }
}

impl Timed for AttitudeRecord {
    fn times(&self) -> Times {
        let Self { planned_ns, wake_ns, end_ns, skipped, .. } = *self;
        Times { planned_ns, wake_ns, start_ns: wake_ns, end_ns, skipped }
    }
}

impl Timed for PositionRecord {
    fn times(&self) -> Times {
        let Self { planned_ns, wake_ns, end_ns, skipped, .. } = *self;
        Times { planned_ns, wake_ns, start_ns: wake_ns, end_ns, skipped }
    }
}

pub(super) struct FlightCollector {
    records: Records,
    attitude: TaskLog<AttitudeRecord>,
    position: TaskLog<PositionRecord>,
    telemetry: Rows,
    flown: Flown,
    dir: RunDir,
    window: Window,
    lost_before: u64,
    reporter: JobReporter,
}

/// Result of the collector.
pub(super) struct Collected {
    pub flown: Flown,
    /// Releases of the attitude loop, and of the position loop.
    pub releases: [Releases; 2],
}

impl FlightCollector {
    /// A collector for the session's measures, which then name their recorders' files.
    pub(super) fn new(
        session: &mut Session,
        records: Records,
        config: &UavConfig,
        window: &Window,
        before: Option<Counts>,
    ) -> Result<Self, LabError> {
        let (dir, reporter) = (session.dir().clone(), session.reporter());
        let measures = &mut session.header.measures;
        let seen = |task: usize| before.as_ref().map(|counts| &counts.releases[task]);
        let period = config.attitude.period();
        let attitude = TaskLog::new(&dir, &ATTITUDE_TASK, period, measures, window, attitude_sample)?;
        let period = config.position.period();
        let position = TaskLog::new(&dir, &POSITION_TASK, period, measures, window, position_sample)?;
        Ok(Self {
            records,
            attitude: attitude.going_on(seen(0)),
            position: position.going_on(seen(1)),
            telemetry: Rows::new(&dir, TELEMETRY)?,
            lost_before: before.as_ref().map_or(0, |counts| counts.lost),
            flown: Flown::new(config, before)?,
            dir,
            window: window.clone(),
            reporter,
        })
    }

    /// Collects until `end` is set and the rings are empty. `epoch_ns` is asked once there are
    /// records.
    pub(super) fn run(mut self, end: &AtomicBool, epoch_ns: impl Fn() -> u64) -> Result<Collected, LabError> {
        let empty = |this: &mut Self| {
            while this.drain(&epoch_ns)? {}
            Ok(())
        };
        until_stopped(&mut self, end, PERIOD, empty, Self::save)?;
        Ok(Collected { flown: self.flown, releases: [self.attitude.releases, self.position.releases] })
    }

    /// Hands everything to the kernel, with a checkpoint.
    fn save(&mut self) -> Result<(), LabError> {
        let Records { attitude, position, telemetry } = &self.records;
        self.attitude.lost(&mut self.reporter, attitude.lost());
        self.position.lost(&mut self.reporter, position.lost());
        self.flown.counts.lost = self.lost_before + attitude.lost() + position.lost() + telemetry.lost();
        self.flown.counts.releases = [self.attitude.releases.seen(), self.position.releases.seen()];
        let mut draft = self.window.draft();
        self.attitude.keep(&mut draft)?;
        self.position.keep(&mut draft)?;
        self.telemetry.keep(&mut draft)?;
        draft.file(FLIGHT_FILE, &self.flown.counts)?;
        Ok(self.dir.checkpoint(&draft)?)
    }

    /// Takes one batch of each; false when the rings were empty.
    fn drain(&mut self, epoch_ns: &impl Fn() -> u64) -> Result<bool, LabError> {
        let (mut attitudes, mut positions, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        let mut taken = self.records.attitude.take_into(&mut attitudes, BATCH);
        taken += self.records.position.take_into(&mut positions, BATCH);
        taken += self.records.telemetry.take_into(&mut lines, BATCH);
        for job in &attitudes {
            let deviation_m = self.flown.see(job, epoch_ns());
            self.attitude.push(&mut self.reporter, job, || AttitudeRow::new(job, deviation_m))?;
        }
        for job in &positions {
            self.position.push(&mut self.reporter, job, || PositionRow::from(job))?;
        }
        for line in &lines {
            self.telemetry.push(|| TelemetryRow::from(line))?;
        }
        Ok(taken > 0)
    }
}
