//! Running the cyclic task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use takt_rt::clock::{monotonic_ns, thread_cpu_ns};
use takt_rt::jobs::{Collector, JobRecord, JobRecorder};
use takt_rt::latency::DmaLatency;
use takt_rt::periodic::Periodic;
use takt_rt::thread::{self, Handle};
use takt_rundir::Measure;
use takt_stats::VerdictConfig;

use super::{CyclicFile, SHIPPED};
use crate::LabError;
use crate::jobs::Task;
use crate::journal::{JOURNAL_FILE, Journal};
use crate::keeper::Window;
use crate::options::RunOptions;
use crate::robot::{Conclusion, Critical, End, Kind, Observe, Robot, Running, read};
use crate::session::Session;

/// The cyclic task as a registry lists it.
pub static KIND: Kind = Kind {
    factors: &[("rate", "rate_hz"), ("placement", "cpus")],
    tasks: &[&CYCLIC],
    ..Kind::new("cyclic", &[("cyclic", SHIPPED)], read::<CyclicFile>)
};

const TASK: &str = "cyclic";
const THREAD: &str = "takt-cyclic";

/// The task for the latency manager.
static CYCLIC: Task = Task {
    name: TASK,
    thread: THREAD,
    file: TASK,
    columns: ["planned_ns", "start_ns", "end_ns"],
    number: None,
};

/// What reports read.
fn measures(file: &CyclicFile) -> Vec<Measure> {
    let deadline_ns = file.deadline().as_nanos() as u64;
    let measure = |name, title, column| Measure::new(name, title, TASK, column).rate_hz(file.rate_hz);
    vec![
        measure("lateness", "Wake-up lateness", "wake_ns").since("planned_ns").deadline_ns(deadline_ns),
        measure("response", "Response time", "end_ns").since("planned_ns").deadline_ns(deadline_ns),
    ]
}

impl Robot for CyclicFile {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn validate(&self) -> Result<(), String> {
        self.validate()
    }

    fn verdict(&self) -> &VerdictConfig {
        &self.verdict
    }

    fn measures(&self) -> Result<Vec<Measure>, String> {
        Ok(measures(self))
    }

    fn label(&self) -> String {
        self.policy.to_string()
    }

    fn describe(&self) -> String {
        format!("{} at {} Hz, {}", self.name, self.rate_hz, self.policy)
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

    fn critical(&self) -> Result<Critical, &'static str> {
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
        let dir = session.dir().clone();
        let journal = Journal::new(&dir, &mut session.header.measures, &window, self.period())?;
        let journal = journal.going_on(session.restored(JOURNAL_FILE)?);
        let journal = journal.telling(session.teller(), &CYCLIC);
        let collector = Collector::start(journal, Duration::from_millis(20))?;
        let stop = Arc::new(AtomicBool::new(false));
        // Two seconds of records: a collector that is starved under stress loses none for that long.
        let recorder = collector.recorder(TASK, (2.0 * self.rate_hz) as usize + 64);
        let (period, work_ns, sleep) = (self.period(), (self.work_us * 1e3) as u64, self.sleep);
        Periodic::new(0, period, sleep)?;
        let ended = Arc::clone(&stop);
        let task = thread::spawn(THREAD, &self.settings(), move || {
            Periodic::start_now(period, sleep).map(|periodic| cycle(periodic, recorder, work_ns, &ended))
        })?;
        session.header.not_granted = task.granted().differences.iter().map(ToString::to_string).collect();
        session.note("threads", &[task.granted()])?;
        let length = Duration::from_secs_f64(options.seconds.unwrap_or(self.seconds));
        Ok(Box::new(Cyclic {
            window,
            length,
            collector,
            task,
            stop: Stop(stop),
            _awake: held.and_then(Result::ok),
        }))
    }
}

/// Ends the loop when it is dropped: a run that breaks off must not leave it behind.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A cyclic task that runs.
struct Cyclic {
    window: Window,
    length: Duration,
    collector: Collector<Journal>,
    task: Handle<Result<(), takt_rt::Error>>,
    stop: Stop,
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
        let Self { collector, task, stop, .. } = *self;
        drop(stop);
        task.join()??;
        let collected = collector.stop()?;
        if let Some(error) = collected.error {
            session.header.problems.push(error.to_string());
        }
        let mut journal = collected.sink;
        journal.close().map_err(LabError::io(session.dir().path()))?;
        session.header.records_lost = journal.counts.lost;
        journal.releases.finish();
        journal.releases.tell(&mut session.header.measures);
        session.header.problems.extend(journal.releases.stood_still("the task"));
        Ok(Conclusion::Common)
    }
}

/// The loop.
fn cycle(mut periodic: Periodic, mut recorder: JobRecorder, work_ns: u64, stop: &AtomicBool) {
    // Release 0 is now: its lateness is that of starting, not of waking.
    periodic.next();
    while !stop.load(Ordering::Acquire) {
        let release = periodic.next();
        let start_ns = monotonic_ns();
        if work_ns > 0 {
            let until = thread_cpu_ns() + work_ns;
            while thread_cpu_ns() < until {
                std::hint::spin_loop();
            }
        }
        let record = JobRecord { start_ns, end_ns: monotonic_ns(), ..JobRecord::of(&release) };
        recorder.push(record);
    }
}
