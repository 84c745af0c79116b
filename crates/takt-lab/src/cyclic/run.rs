//! Running the cyclic task.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_rt::clock::{monotonic_ns, thread_cpu_ns};
use takt_rt::jobs::JobRecord;
use takt_rt::latency::DmaLatency;
use takt_rt::periodic::Periodic;
use takt_rt::ring::{Consumer, Producer, ring};
use takt_rt::thread::{self, Handle};
use takt_rundir::{Measure, RunDir};

use super::{CyclicFile, SHIPPED};
use crate::collect::{Sample, until_stopped};
use crate::jobs::{JobReporter, Task};
use crate::keeper::Window;
use crate::options::RunOptions;
use crate::releases::Seen;
use crate::robot::{Conclusion, Critical, End, NoCriticalThread, Observe, Robot, RobotKind, Running, read};
use crate::session::Session;
use crate::{Collecting, ConfigError, EndFlag, LabError, TaskLog};

/// The cyclic task as a registry lists it.
pub static KIND: RobotKind = RobotKind {
    factors: &[("rate", "rate_hz"), ("placement", "cpus")],
    tasks: &[&CYCLIC],
    ..RobotKind::new("cyclic", &[("cyclic", SHIPPED)], read::<CyclicFile>)
};

const TASK: &str = "cyclic";
const THREAD: &str = "takt-cyclic";

/// Period of draining the ring.
const PERIOD: Duration = Duration::from_millis(20);

/// Records taken from it at once.
const BATCH: usize = 1024;

/// The task for the latency manager.
static CYCLIC: Task = Task {
    name: TASK,
    thread: THREAD,
    file: TASK,
    columns: ["planned_ns", "start_ns", "end_ns"],
    number: None,
};

/// Measures that reports read.
fn measures(file: &CyclicFile) -> Vec<Measure> {
    let deadline_ns = file.deadline().as_nanos() as u64;
    let measure = |name, title, column| Measure::new(name, title, TASK, column).rate_hz(file.rate_hz);
    vec![
        measure("lateness", "Wake-up lateness", "wake_ns").since("planned_ns").deadline_ns(deadline_ns),
        measure("response", "Response time", "end_ns").since("planned_ns").deadline_ns(deadline_ns),
    ]
}

impl Robot for CyclicFile {
    crate::robot_basics!(KIND);

    fn validate(&self) -> Result<(), ConfigError> {
        self.validate()
    }

    fn measures(&self) -> Result<Vec<Measure>, ConfigError> {
        Ok(measures(self))
    }

    fn label(&self) -> String {
        self.policy.to_string()
    }

    fn describe(&self) -> String {
        format!("{} Hz, {}", self.rate_hz, self.policy)
    }

    fn expected_seconds(&self) -> Option<f64> {
        Some(self.seconds)
    }

    fn rate_hz(&self) -> Option<f64> {
        Some(self.rate_hz)
    }

    fn make_strict(&mut self) {
        self.strict = true;
    }

    fn critical(&self) -> Result<Critical, NoCriticalThread> {
        let columns = ["planned_ns", "wake_ns", "start_ns", "end_ns"];
        Ok(Critical { thread: THREAD, file: TASK, columns })
    }

    fn start(
        &self,
        session: &mut Session,
        options: &RunOptions,
        _observe: Observe<'_>,
    ) -> Result<Box<dyn Running>, LabError> {
        let held = self.no_deep_idle.then(|| DmaLatency::hold(0));
        if let Some(Err(error)) = &held {
            session.header.problems.push(error.to_string());
        }
        session.header.measures = measures(self);
        let window = session.new_window(options.watch.clone());
        // Two seconds of records: a collector that is starved under stress loses none for that
        // long.
        let (producer, records) = ring((2.0 * self.rate_hz) as usize + 64);
        let collector = CyclicCollector::new(self, session, records, &window)?;
        let collecting = Collecting::start("takt-collector", "drains job records", |end| collector.run(end))?;
        let (period, work_ns, sleep) = (self.period(), (self.work_us * 1e3) as u64, self.sleep);
        Periodic::new(0, period, sleep)?;
        let end = EndFlag::default();
        let ending = end.listener();
        let task = thread::spawn(THREAD, &self.settings(), move || {
            Periodic::start_now(period, sleep).map(|periodic| cycle(periodic, producer, work_ns, &ending))
        })?;
        session.granted(&[task.granted()])?;
        let (length, awake) = (options.length(self.seconds), held.and_then(Result::ok));
        Ok(Box::new(Cyclic { window, length, task, end, collecting, _awake: awake }))
    }
}

/// One line of the sample file. CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Serialize)]
struct JobRow {
    index: u64,
    planned_ns: u64,
    wake_ns: u64,
    start_ns: u64,
    end_ns: u64,
    skipped: u32,
}

/// File of what is counted beside the recorders.
const COUNTS_FILE: &str = "journal.json";

/// Counts kept besides the recorders, over all parts of a resumed run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Counts {
    /// Records that found the ring full.
    lost: u64,
    /// Releases within the window.
    releases: Option<Seen>,
}

/// Drains the job records into the run directory.
struct CyclicCollector {
    dir: RunDir,
    window: Window,
    records: Consumer<JobRecord>,
    log: TaskLog<JobRecord>,
    reporter: JobReporter,
    lost_before: u64,
    counts: Counts,
}

fn sample(measure: &Measure) -> Option<Sample<JobRecord>> {
    match measure.name.as_str() {
        "lateness" => Some(|job| (job.planned_ns, job.lateness_ns())),
        "response" => Some(|job| (job.planned_ns, job.response_ns())),
        _ => None,
    }
}

impl CyclicCollector {
    fn new(
        file: &CyclicFile,
        session: &mut Session,
        records: Consumer<JobRecord>,
        window: &Window,
    ) -> Result<Self, LabError> {
        let counts: Counts = session.restored(COUNTS_FILE)?.unwrap_or_default();
        let (dir, reporter) = (session.dir().clone(), session.reporter());
        let log = TaskLog::new(&dir, &CYCLIC, file.period(), &mut session.header.measures, window, sample)?;
        let log = log.going_on(counts.releases.as_ref());
        Ok(Self { dir, window: window.clone(), records, log, reporter, lost_before: counts.lost, counts })
    }

    fn run(mut self, end: &AtomicBool) -> Result<Self, LabError> {
        until_stopped(&mut self, end, PERIOD, Self::drain, Self::save)?;
        Ok(self)
    }

    fn drain(&mut self) -> Result<(), LabError> {
        let mut batch = Vec::new();
        while self.records.take_into(&mut batch, BATCH) > 0 {
            for record in batch.drain(..) {
                let JobRecord { index, planned_ns, wake_ns, start_ns, end_ns, skipped, .. } = record;
                let row = || JobRow { index, planned_ns, wake_ns, start_ns, end_ns, skipped };
                self.log.push(&mut self.reporter, &record, row)?;
            }
        }
        Ok(())
    }

    fn save(&mut self) -> Result<(), LabError> {
        let lost = self.records.lost();
        self.log.lost(&mut self.reporter, lost);
        self.counts = Counts { lost: self.lost_before + lost, releases: Some(self.log.releases.seen()) };
        let mut draft = self.window.draft();
        self.log.keep(&mut draft)?;
        draft.file(COUNTS_FILE, &self.counts)?;
        Ok(self.dir.checkpoint(&draft)?)
    }
}

/// A cyclic task that runs.
struct Cyclic {
    window: Window,
    length: Duration,
    task: Handle<Result<(), takt_rt::Error>>,
    end: EndFlag,
    collecting: Collecting<CyclicCollector>,
    _awake: Option<DmaLatency>,
}

impl Running for Cyclic {
    fn window(&self) -> &Window {
        &self.window
    }

    fn length(&self) -> Option<Duration> {
        Some(self.length)
    }

    fn stop(self: Box<Self>, session: &mut Session, _end: &End) -> Result<Conclusion, LabError> {
        let Self { task, end, collecting, .. } = *self;
        drop(end);
        task.join()??;
        let mut collector = collecting.end()?;
        session.header.records_lost = collector.counts.lost;
        collector.log.releases.finish();
        session.releases(&collector.log.releases, "the task");
        Ok(Conclusion::Common)
    }
}

/// The loop.
fn cycle(mut periodic: Periodic, mut records: Producer<JobRecord>, work_ns: u64, end: &AtomicBool) {
    // Release 0 is now: its lateness is that of starting, not of waking.
    periodic.next();
    while !end.load(Ordering::Acquire) {
        let release = periodic.next();
        let start_ns = monotonic_ns();
        if work_ns > 0 {
            let until = thread_cpu_ns() + work_ns;
            while thread_cpu_ns() < until {
                std::hint::spin_loop();
            }
        }
        let record = JobRecord { start_ns, end_ns: monotonic_ns(), ..JobRecord::of(&release) };
        records.push(record);
    }
}
