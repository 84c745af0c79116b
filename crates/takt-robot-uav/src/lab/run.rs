//! The quadrotor as a robot of the lab.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use takt_lab::jobs::Task;
use takt_lab::keeper::Window;
use takt_lab::robot::{
    Conclusion, Critical, End, NoCriticalThread, Observe, Robot, RobotKind, Running, read,
};
use takt_lab::{Collecting, ConfigError, LabError, RunOptions, Session};
use takt_rt::placement::set_affinity;
use takt_rundir::{Counter, Measure};
use takt_trace::counters::ThreadCounters;

use super::collector::{Collected, Counts, FLIGHT_FILE, FlightCollector};
use super::report::Paper;
use super::rows::{ATTITUDE, POSITION};
use crate::{Flight, UavConfig, UavError};

/// The shipped configuration: the paper's.
pub const SHIPPED: &str = include_str!("../../../../robots/uav.toml");

/// The quadrotor as a registry lists it.
pub static KIND: RobotKind = RobotKind {
    campaigns: &[
        ("uav", include_str!("../../../../campaigns/uav.toml")),
        ("uav-isolation", include_str!("../../../../campaigns/uav-isolation.toml")),
        ("uav-kernels", include_str!("../../../../campaigns/uav-kernels.toml")),
        ("uav-kernels-one-cpu", include_str!("../../../../campaigns/uav-kernels-one-cpu.toml")),
        ("uav-kernels-real-time", include_str!("../../../../campaigns/uav-kernels-real-time.toml")),
        ("uav-preemption", include_str!("../../../../campaigns/uav-preemption.toml")),
    ],
    goals: &[("uav", include_str!("../../../../goals/uav.toml"))],
    factors: &[("policy", "attitude.policy"), ("rate", "attitude.rate_hz"), ("placement", "attitude.cpus")],
    tasks: &[&ATTITUDE_TASK, &POSITION_TASK],
    report: Some(&Paper),
    ..RobotKind::new("uav", &[("uav", SHIPPED)], read::<UavConfig>)
};

/// The main measure.
pub(super) const LATENESS: &str = "lateness";
/// Thread of the attitude loop.
const ATTITUDE_THREAD: &str = "uav-attitude";

/// The inner loop, for the latency manager.
pub(super) static ATTITUDE_TASK: Task = Task {
    name: "attitude",
    thread: ATTITUDE_THREAD,
    file: ATTITUDE,
    columns: ["planned_ns", "wake_ns", "end_ns"],
    number: None,
};

/// The outer loop.
pub(super) static POSITION_TASK: Task = Task {
    name: "position",
    thread: "uav-position",
    file: POSITION,
    columns: ["planned_ns", "wake_ns", "end_ns"],
    number: None,
};

impl From<UavError> for LabError {
    fn from(error: UavError) -> Self {
        Self::robot(error)
    }
}

/// Measures that reports read. The lateness of the wake-up is what the paper calls scheduling
/// latency.
fn measures(file: &UavConfig) -> Vec<Measure> {
    let deadline_ns = file.attitude.period().as_nanos() as u64;
    let attitude =
        |name, title, column| Measure::new(name, title, ATTITUDE, column).rate_hz(file.attitude.rate_hz);
    vec![
        attitude(LATENESS, "Wake-up lateness of the attitude loop", "wake_ns")
            .since("planned_ns")
            .deadline_ns(deadline_ns),
        attitude("response", "From the release to the rotor command", "control_end_ns")
            .since("planned_ns")
            .deadline_ns(deadline_ns),
        attitude("execution", "Time of the control law", "control_end_ns").since("control_start_ns"),
        attitude("job", "Time of the attitude job, the vehicle's simulation included", "end_ns")
            .since("wake_ns"),
        Measure::new("position-lateness", "Wake-up lateness of the position loop", POSITION, "wake_ns")
            .since("planned_ns")
            .deadline_ns(file.position.period().as_nanos() as u64)
            .rate_hz(file.position.rate_hz),
    ]
}

impl Robot for UavConfig {
    takt_lab::robot_basics!(KIND);

    fn validate(&self) -> Result<(), ConfigError> {
        Ok(self.validate()?)
    }

    fn measures(&self) -> Result<Vec<Measure>, ConfigError> {
        Ok(measures(self))
    }

    fn label(&self) -> String {
        self.attitude.policy.to_string()
    }

    fn describe(&self) -> String {
        format!("attitude loop at {} Hz, {}", self.attitude.rate_hz, self.attitude.policy)
    }

    fn expected_seconds(&self) -> Option<f64> {
        Some(self.iterations as f64 / self.attitude.rate_hz)
    }

    fn rate_hz(&self) -> Option<f64> {
        Some(self.attitude.rate_hz)
    }

    fn make_strict(&mut self) {
        self.tasks.strict = true;
    }

    fn critical(&self) -> Result<Critical, NoCriticalThread> {
        let columns = ["planned_ns", "wake_ns", "control_start_ns", "control_end_ns"];
        Ok(Critical { thread: ATTITUDE_THREAD, file: ATTITUDE, columns })
    }

    fn start(
        &self,
        session: &mut Session,
        options: &RunOptions,
        _observe: Observe<'_>,
    ) -> Result<Box<dyn Running>, LabError> {
        let mut config = self.clone();
        if let Some(seconds) = options.seconds {
            config.iterations = ((seconds * self.attitude.rate_hz).round() as u64).max(1);
        }
        let before: Option<Counts> = session.restored(FLIGHT_FILE)?;
        // The whole run has so many jobs; a flight that goes on begins at its start again.
        let all = config.iterations;
        config.iterations = all.saturating_sub(before.as_ref().map_or(0, |counts| counts.done)).max(1);
        let mut flight = Flight::prepare(&config)?;
        let window = session.new_window(options.watch.clone());
        let records = flight.take_records().ok_or(LabError::Internal("the ring of records"))?;
        session.header.measures = measures(self);
        let collector = FlightCollector::new(session, records, &config, &window, before)?;
        session.header.not_granted.extend(flight.not_granted());
        session.note("threads", &flight.threads())?;
        session.note("reservations", &flight.placed())?;
        if let Some(placed) = flight.placed() {
            session.header.label = format!("{}, {}", session.header.label, placed.description);
        }
        // From outside: the loop itself makes no system call for it.
        let counters = ThreadCounters::open(flight.threads()[0].granted.effective.tid);
        let epoch_ns = Arc::new(AtomicU64::new(0));
        let flight_epoch_ns = Arc::clone(&epoch_ns);
        // The paper keeps logging with telemetry, off the attitude loop's CPU and the stressed
        // ones.
        let logging = flight.threads().get(2).and_then(|telemetry| telemetry.granted.requested.cpus);
        let collecting = Collecting::start("uav-collector", "drains flight records", move |end| {
            if let Some(cpus) = logging {
                // If that is refused, records are drained elsewhere, and the loop is the same.
                let _ = set_affinity(0, &cpus);
            }
            collector.run(end, || flight_epoch_ns.load(Ordering::Acquire))
        })?;
        let length = Duration::from_secs_f64(all as f64 / self.attitude.rate_hz);
        Ok(Box::new(Flying {
            flight,
            window,
            collecting,
            counters,
            epoch_ns,
            iterations: config.iterations,
            all,
            length,
        }))
    }
}

/// A flight under way. It ends after its iterations.
struct Flying {
    flight: Flight,
    window: Window,
    collecting: Collecting<Collected>,
    counters: ThreadCounters,
    epoch_ns: Arc<AtomicU64>,
    /// Attitude jobs of this part of the run.
    iterations: u64,
    /// Those of the whole run.
    all: u64,
    length: Duration,
}

impl Running for Flying {
    fn window(&self) -> &Window {
        &self.window
    }

    fn begun(&mut self, _session: &mut Session, _from_ns: u64) -> Result<(), LabError> {
        self.counters.restart();
        self.flight.begin();
        self.epoch_ns.store(self.flight.epoch_ns().unwrap_or(0), Ordering::Release);
        Ok(())
    }

    fn line(&mut self) -> String {
        format!("{} of {} jobs", self.all - self.iterations + self.flight.jobs(), self.all)
    }

    fn length(&self) -> Option<Duration> {
        Some(self.length)
    }

    fn is_over(&mut self, _elapsed: Duration) -> bool {
        self.flight.is_finished()
    }

    fn stop(self: Box<Self>, session: &mut Session, _end: &End) -> Result<Conclusion, LabError> {
        let Self { flight, collecting, iterations, mut counters, .. } = *self;
        let jobs = flight.jobs();
        // All loops end with the last attitude job; one that was cut off, or failed, ends with the
        // window.
        let end_ns = flight.landed_ns().unwrap_or(u64::MAX);
        session.header.problems.extend(flight.stop());
        count(session, &mut counters, jobs);
        let Collected { flown, mut releases } = collecting.end()?;
        session.header.records_lost = flown.counts.lost;
        session.header.problems.extend(flown.loss());
        if jobs < iterations {
            session.header.problems.push(format!("ended after {jobs} of {iterations} attitude jobs"));
        }
        session.figures(flown.figures());
        for (releases, task) in releases.iter_mut().zip(["the attitude loop", "the position loop"]) {
            releases.finish_at(end_ns);
            session.releases(releases, task);
        }
        Ok(Conclusion::Common)
    }
}

/// Processor counters of the attitude loop: totals, and the mean per job.
fn count(session: &mut Session, counters: &mut ThreadCounters, jobs: u64) {
    for (counter, count) in counters.read() {
        if let (Ok(count), true) = (&count, jobs > 0) {
            session.figures([(format!("{}_per_job", counter.name), *count as f64 / jobs as f64)]);
        }
        session.header.counters.push(Counter {
            name: counter.name.to_owned(),
            title: counter.title.to_owned(),
            thread: ATTITUDE_THREAD.to_owned(),
            count: count.as_ref().ok().copied(),
            missing: count.err().map(|why| format!("not available here: {why}")),
        });
    }
}
