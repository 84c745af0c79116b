//! One flight, from a configuration to a sealed run directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use takt_robot_uav::Flight;
use takt_rt::thread;
use takt_rundir::Measure;

use super::UavFile;
use super::collector::{Collector, Counts, FLIGHT_FILE};
use super::rows::{ATTITUDE, POSITION};
use crate::LabError;
use crate::options::RunOptions;
use crate::robot::Event;
use crate::session::Session;
use crate::summary::RunSummary;

/// How often the main thread looks after the flight.
const TICK: Duration = Duration::from_millis(100);

/// What reports read. The lateness of the wake-up is what the paper calls scheduling latency.
pub(crate) fn measures(file: &UavFile) -> Vec<Measure> {
    let deadline_ns = file.attitude.period().as_nanos() as u64;
    let attitude =
        |name, title, column| Measure::new(name, title, ATTITUDE, column).rate_hz(file.attitude.rate_hz);
    vec![
        attitude("lateness", "Wake-up lateness of the attitude loop", "wake_ns")
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

/// Flies and leaves a sealed run directory. The flight ends after the file's iterations, or after `options.seconds`.
///
/// # Errors
/// [`LabError`]; what was measured until then stays in the run directory.
pub fn run(
    file: &UavFile,
    options: &RunOptions,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<RunSummary, LabError> {
    let mut config = file.config();
    if let Some(seconds) = options.seconds {
        config.iterations = ((seconds * file.attitude.rate_hz).round() as u64).max(1);
    }
    let mut session = Session::create("uav", &file.attitude.policy.to_string(), file, options)?;
    let before: Option<Counts> = session.restored(FLIGHT_FILE)?;
    // The whole run has so many jobs; a flight that goes on begins at its start again.
    let all = config.iterations;
    config.iterations = all.saturating_sub(before.as_ref().map_or(0, |counts| counts.done)).max(1);
    session.header.verdict = file.verdict.clone();
    let mut flight = match Flight::prepare(&config) {
        Ok(flight) => flight,
        Err(error) => {
            session.discard();
            return Err(error.into());
        }
    };
    let window = session.new_window(options.watch.clone());
    let mut measures = measures(file);
    let records = flight.take_records().ok_or_else(|| LabError::internal("records"))?;
    let (dir, teller) = (session.dir().clone(), session.teller());
    let collector = Collector::new(&dir, records, &config, &mut measures, &window, before, teller)?;
    session.header.measures = measures;
    session.header.not_granted = flight.not_granted();
    session.note("threads", &flight.threads())?;
    session.note("reservations", &flight.placed())?;
    if let Some(placed) = flight.placed() {
        session.header.label = format!("{}, {}", session.header.label, placed.says);
    }
    session.write()?;
    observe(Event::Started { dir: session.dir(), not_granted: &session.header.not_granted });

    let landed = Arc::new(AtomicBool::new(false));
    let epoch_ns = Arc::new(AtomicU64::new(0));
    let collecting = {
        let (landed, epoch_ns) = (Arc::clone(&landed), Arc::clone(&epoch_ns));
        thread::spawn_exempt("uav-collector", "drains flight records", move || {
            collector.run(&landed, || epoch_ns.load(Ordering::Acquire))
        })?
    };

    session.start_load(&options.interference)?;
    session.begin_window(&window, |from_ns| window.open(from_ns))?;
    flight.begin();
    epoch_ns.store(flight.epoch_ns().unwrap_or(0), Ordering::Release);
    let length = Duration::from_secs_f64(all as f64 / file.attitude.rate_hz);
    let (measured, begun) = (session.before(), Instant::now());
    let mut trouble = None;
    while !flight.is_finished() && !options.stop.load(Ordering::Acquire) && trouble.is_none() {
        let line = format!("{} of {all} jobs", all - config.iterations + flight.jobs());
        observe(Event::Tick { elapsed: measured + begun.elapsed(), of: Some(length), line });
        std::thread::sleep(TICK);
        trouble = session.load_trouble();
    }
    let jobs = flight.jobs();
    session.end_window(&window, |to_ns| window.close(to_ns));
    session.end_load()?;
    session.header.problems.extend(flight.stop());
    landed.store(true, Ordering::Release);
    let collected = collecting.join()??;
    let flown = &collected.flown;
    session.header.records_lost = collected.lost;
    session.header.problems.extend(flown.loss());
    if jobs < config.iterations {
        session.header.problems.push(format!("ended after {jobs} of {} attitude jobs", config.iterations));
    }
    session.header.figures = flown.figures();
    for (releases, task) in collected.releases.iter().zip(["the attitude loop", "the position loop"]) {
        releases.tell(&mut session.header.measures);
        session.header.problems.extend(releases.stood_still(task));
    }
    Ok(session.seal()?.1)
}
