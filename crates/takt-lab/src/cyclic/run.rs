//! Running the cyclic task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use takt_rt::clock::{monotonic_ns, thread_cpu_ns};
use takt_rt::jobs::{Collector, JobRecord, JobRecorder};
use takt_rt::latency::DmaLatency;
use takt_rt::periodic::Periodic;
use takt_rt::thread;
use takt_rundir::Measure;

use super::CyclicFile;
use crate::LabError;
use crate::journal::{JOURNAL_FILE, Journal};
use crate::options::RunOptions;
use crate::robot::Event;
use crate::session::Session;
use crate::summary::RunSummary;

const TASK: &str = "cyclic";
const TICK: Duration = Duration::from_millis(100);

/// What reports read.
pub(crate) fn measures(file: &CyclicFile) -> Vec<Measure> {
    let deadline_ns = file.deadline().as_nanos() as u64;
    let measure = |name, title, column| Measure::new(name, title, TASK, column).rate_hz(file.rate_hz);
    vec![
        measure("lateness", "Wake-up lateness", "wake_ns").since("planned_ns").deadline_ns(deadline_ns),
        measure("response", "Response time", "end_ns").since("planned_ns").deadline_ns(deadline_ns),
    ]
}

/// Runs the task and leaves a sealed run directory.
///
/// # Errors
/// [`LabError`]; what was measured until then stays in the run directory.
pub fn run(
    file: &CyclicFile,
    options: &RunOptions,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<RunSummary, LabError> {
    let mut session = Session::create("cyclic", &file.policy.to_string(), file, options)?;
    session.header.verdict = file.verdict.clone();
    let held = file.no_deep_idle.then(|| DmaLatency::hold(0));
    if let Some(Err(error)) = &held {
        session.header.problems.push(error.to_string());
    }
    session.header.measures = measures(file);
    let window = session.new_window(options.watch.clone());
    let journal = Journal::new(&session.dir().clone(), &mut session.header.measures, &window, file.period())?;
    let journal = journal.going_on(session.restored(JOURNAL_FILE)?);
    let journal = journal.telling(session.teller(), &crate::jobs::CYCLIC);
    let collector = Collector::start(journal, Duration::from_millis(20))?;
    let stop = Arc::new(AtomicBool::new(false));
    // Two seconds of records: a collector that is starved under stress loses none for that long.
    let recorder = collector.recorder(TASK, (2.0 * file.rate_hz) as usize + 64);
    let task = {
        let (stop, period, work_ns) = (Arc::clone(&stop), file.period(), (file.work_us * 1e3) as u64);
        let sleep = file.sleep;
        Periodic::new(0, period, sleep)?;
        thread::spawn("takt-cyclic", &file.settings(), move || {
            Periodic::start_now(period, sleep).map(|periodic| cycle(periodic, recorder, work_ns, &stop))
        })
    };
    let task = match task {
        Ok(task) => task,
        Err(error) => {
            drop(collector);
            session.discard();
            return Err(error.into());
        }
    };
    session.header.not_granted = task.granted().differences.iter().map(ToString::to_string).collect();
    session.note("threads", &[task.granted()])?;
    session.write()?;
    observe(Event::Started { dir: session.dir(), not_granted: &session.header.not_granted });

    session.start_load(&options.interference)?;
    session.begin_window(&window, |from_ns| window.open(from_ns))?;
    let length = Duration::from_secs_f64(options.seconds.unwrap_or(file.seconds));
    let (before, begun) = (session.before(), Instant::now());
    let mut trouble = None;
    while before + begun.elapsed() < length && !options.stop.load(Ordering::Acquire) && trouble.is_none() {
        observe(Event::Tick { elapsed: before + begun.elapsed(), of: Some(length), line: String::new() });
        std::thread::sleep(TICK.min(length.saturating_sub(before + begun.elapsed())));
        trouble = session.load_trouble();
    }
    session.end_window(&window, |to_ns| window.close(to_ns));
    session.end_load()?;
    stop.store(true, Ordering::Release);
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
    drop(held);
    Ok(session.seal()?.1)
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
