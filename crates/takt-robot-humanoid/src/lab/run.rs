//! One run, from a configuration to a sealed run directory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use takt_lab::jobs::Task;
use takt_lab::keeper::Window;
use takt_lab::options::RunOptions;
use takt_lab::releases::Releases;
use takt_lab::robot::{
    Conclusion, Critical, End, Event, GuestNeeds, NoCriticalThread, Observe, Robot, RobotKind, Running,
    read as read_file,
};
use takt_lab::{Collecting, ConfigError, LabError, Session};
use takt_link_ethercat::control::{CacheReader, Exporter, Idle, Link, bring_up};
use takt_rt::latency::DmaLatency;
use takt_rt::placement::{self, CpuSet};
use takt_rt::ring;
use takt_rt::settings::ThreadSettings;
use takt_rundir::{Measure, RunDir};
use takt_trace::Trace;

use super::collector::{COUNTS_FILE, Collected, LOST_AFTER, Rings, WalkCollector};
use super::further::Further;
use super::late::{self, THREADS, Threads};
use super::report::LateFrames;
use super::rows::{CYCLES, LATENCIES};
use super::{HumanoidFile, SHIPPED, failed, wire};
use crate::run::{self as motion, Finished};
use crate::shield::{self, Shield};

/// Seconds of cycle records that the ring holds: a collector that starves under load loses none for
/// that long.
const RING_S: f64 = 8.0;
/// Time to come to a standstill before the run ends anyway; the drives' own watchdogs stop them
/// then.
const STOP: Duration = Duration::from_secs(5);
/// Pause of a reader of the cache.
const READ_EVERY: Duration = Duration::from_millis(1);
/// The control interface's timing as text, renewed each second.
const TIMING_FILE: &str = "ethercat.txt";

/// Measures that reports read. The control period leads: it is what the paper's tables show, from
/// one command of the controller at the control interface to the next ("We measured the time" at
/// which it sends its command to ECCI, section 3.3). The verdict is about the releases.
fn measures(file: &HumanoidFile, simulated: bool) -> Vec<Measure> {
    let rate_hz = file.motion.rate_hz;
    let period_ns = file.motion.period().as_nanos() as u64;
    let cycle = |name, title, column| Measure::new(name, title, CYCLES, column).rate_hz(rate_hz);
    let mut list = vec![
        cycle("period", "Control period, from one command at the control interface to the next", "begun_ns")
            .since("previous_begun_ns"),
        cycle("lateness", "Wake-up lateness", "wake_ns").since("planned_ns").deadline_ns(period_ns),
        cycle("response", "From the release to the plan of the next cycle", "end_ns")
            .since("planned_ns")
            .deadline_ns(period_ns),
        cycle("frame-period", "From one frame at the network interface to the next", "sent_ns")
            .since("previous_sent_ns"),
        cycle("exchange", "Fetching and sending process data, readers included", "exchanged_ns")
            .since("wake_ns"),
    ];
    if simulated {
        let latency = |name, title, column| Measure::new(name, title, LATENCIES, column);
        list.push(latency("sensor", "From an event to the cycle that sees it", "seen_ns").since("event_ns"));
        list.push(latency("command", "From a decision to its effect", "applied_ns").since("seen_ns"));
        list.push(latency("reaction", "From an event to the reaction", "applied_ns").since("event_ns"));
    }
    list
}

/// The humanoid as a registry lists it.
pub static KIND: RobotKind = RobotKind {
    campaigns: &[
        ("humanoid", include_str!("../../../../campaigns/humanoid.toml")),
        ("humanoid-further", include_str!("../../../../campaigns/humanoid-further.toml")),
        ("humanoid-guest", include_str!("../../../../campaigns/humanoid-guest.toml")),
    ],
    tasks: &[&TASK],
    report: Some(&LateFrames),
    // Raw sockets between a pair of interfaces, which a program makes.
    guest: GuestNeeds { modules: &["veth", "af_packet"], programs: &["ip"], libraries: &[] },
    ..RobotKind::new("humanoid", &[("humanoid", SHIPPED)], read_file::<HumanoidFile>)
};

/// Thread of the motion controller.
const THREAD: &str = "humanoid";

/// The motion controller for the latency manager.
pub(super) static TASK: Task = Task {
    name: "humanoid",
    thread: THREAD,
    file: CYCLES,
    columns: ["planned_ns", "wake_ns", "end_ns"],
    number: None,
};

impl Robot for HumanoidFile {
    takt_lab::robot_basics!(KIND);

    fn validate(&self) -> Result<(), ConfigError> {
        Ok(self.validate()?)
    }

    fn measures(&self) -> Result<Vec<Measure>, ConfigError> {
        // On a real bus those without a deadline are missing.
        Ok(measures(self, true))
    }

    fn label(&self) -> String {
        self.tuning()
    }

    fn describe(&self) -> String {
        let (devices, rate_hz) = (self.motion.devices().len(), self.motion.rate_hz);
        format!("{devices} devices at {rate_hz} Hz, tuning {}", self.tuning())
    }

    fn expected_seconds(&self) -> Option<f64> {
        Some(self.seconds)
    }

    fn rate_hz(&self) -> Option<f64> {
        Some(self.motion.rate_hz)
    }

    fn make_strict(&mut self) {
        self.strict = true;
    }

    fn critical(&self) -> Result<Critical, NoCriticalThread> {
        let columns = ["planned_ns", "wake_ns", "wake_ns", "end_ns"];
        Ok(Critical { thread: THREAD, file: CYCLES, columns })
    }

    fn start(
        &self,
        session: &mut Session,
        options: &RunOptions,
        observe: Observe<'_>,
    ) -> Result<Box<dyn Running>, LabError> {
        Ok(Box::new(Walking::start(self, options, session, observe)?))
    }

    fn explain(&self, dir: &RunDir, trace: Result<&Trace, &str>) -> Result<(), LabError> {
        late::explain(dir, trace).map(drop)
    }
}

/// A robot in motion.
struct Walking {
    file: HumanoidFile,
    length: Duration,
    running: motion::RunningMotion,
    window: Window,
    collecting: Collecting<(Collected, Releases)>,
    exporter: Exporter,
    readers: Vec<Collecting<u64>>,
    /// Cycles within the window of whose losses the collector cannot tell yet.
    undecided: Arc<AtomicU64>,
    /// For collector and readers.
    devices: usize,
    frames_per_cycle: u64,
    bring_up: Duration,
    // Dropped last: the segment, and what was changed on the machine.
    behind: wire::Behind,
    _shield: Option<Shield>,
    _awake: Option<DmaLatency>,
    further: Further,
}

/// Moves everything else off `cpus`, if what is left is enough; `simulated`: a thread of this host
/// stands for the devices.
fn put_up_shield(cpus: &CpuSet, simulated: bool) -> Result<Shield, String> {
    let online = placement::online().map_err(|error| error.to_string())?;
    match shield::too_few_cpus(&online, cpus, simulated) {
        Some(why) => Err(why),
        None => Shield::up(cpus, &shield_state()).map_err(|error| error.to_string()),
    }
}

impl Walking {
    fn start(
        file: &HumanoidFile,
        options: &RunOptions,
        session: &mut Session,
        observe: Observe<'_>,
    ) -> Result<Self, LabError> {
        // Before anything of the robot runs.
        let (further, refused) = Further::begin(file);
        if let (true, Some(first)) = (file.strict, refused.first()) {
            return Err(LabError::Config(first.clone()));
        }
        session.header.not_granted.extend(refused);
        session.note("further_tunings", &further.words())?;
        let (wire, mut behind) = wire::open(file)?;
        let awake = match file.no_deep_idle.then(|| DmaLatency::hold(0)) {
            Some(Ok(held)) => Some(held),
            Some(Err(error)) => {
                session.header.problems.push(error.to_string());
                None
            }
            None => None,
        };
        // Bring-up allocates and waits; it is not the controller's thread that does it.
        let control = file.motion.control();
        let link = bring_up(wire, &control, &mut |progress| {
            let line =
                format!("{}: {} of {} devices in OP", progress.phase, progress.in_op, progress.devices);
            observe(Event::Tick { elapsed: progress.elapsed, of: None, line });
        })
        .map_err(failed)?;
        let Link { port, mut readers, events, late, timing, devices, took } = link;
        let frames_per_cycle = port.frames_per_cycle() as u64;
        // From here on the wire is never silent: what is prepared below takes longer than a
        // watchdog waits.
        let lenient = ThreadSettings { strict: false, ..file.settings() };
        let idle = Idle::start(port, file.motion.period(), &lenient)?;

        let on_this_host = behind.segment_tid.is_some();
        let shield = match file.cpus.filter(|_| file.shield).map(|cpus| put_up_shield(&cpus, on_this_host)) {
            Some(Ok(shield)) => {
                session.header.not_granted.extend(shield.moved().differences());
                session.note("shield", shield.moved())?;
                Some(shield)
            }
            Some(Err(why)) if file.strict => return Err(LabError::Config(format!("shield = true: {why}"))),
            Some(Err(why)) => {
                session.header.not_granted.push(format!("shield: {why}"));
                None
            }
            None => None,
        };
        let (records_in, records) = ring::ring((RING_S * file.motion.rate_hz) as usize + 64);
        session.header.measures = measures(file, behind.truth.is_some());
        let window = session.new_window(options.watch.clone());
        let before: Option<Collected> = session.restored(COUNTS_FILE)?;
        let dir = session.dir().clone();
        let reporter = session.reporter();
        let undecided = Arc::new(AtomicU64::new(0));
        let (mode, truth) = (control.mode, behind.truth.take());
        let rings = Rings { records, events, late, mode, truth, undecided: Arc::clone(&undecided) };
        let period_ns = file.motion.period().as_nanos() as u64;
        let measures = &mut session.header.measures;
        let collector = WalkCollector::new(&dir, rings, measures, period_ns, &window, before, reporter)?;
        let collecting =
            Collecting::start("hum-collector", "drains cycle records", |end| collector.run(end))?;
        let exporter = Exporter::start(timing, dir.path().join(TIMING_FILE), Duration::from_secs(1))?;
        readers.truncate(file.readers as usize);
        let readers = readers
            .into_iter()
            .map(|reader| {
                let why = "reads the cache like telemetry";
                Collecting::start("hum-reader", why, |end| Ok(read(reader, end)))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let running = motion::start_from(&file.motion, idle, &file.settings(), file.sleep, records_in)?;

        session.header.not_granted.append(&mut behind.not_granted);
        session.granted(&[running.granted()])?;
        session.note("wire", &behind.what)?;
        let threads = Threads { controller: Some(running.tid()), segment: behind.segment_tid };
        session.note(THREADS, &threads)?;
        let names: Vec<_> = devices.iter().map(|device| (&device.name, device.identity)).collect();
        session.note("devices", &names)?;
        Ok(Self {
            file: file.clone(),
            length: options.length(file.seconds),
            running,
            window,
            collecting,
            exporter,
            readers,
            undecided,
            devices: devices.len(),
            frames_per_cycle,
            bring_up: took,
            behind,
            _shield: shield,
            _awake: awake,
            further,
        })
    }
}

impl Running for Walking {
    fn window(&self) -> &Window {
        &self.window
    }

    fn settle(&mut self) {
        // Load and window begin with the walk; a robot that cannot be enabled has stopped by then.
        let enabling = Instant::now();
        while self.running.shared.mode() == 0 && enabling.elapsed() < STOP && !self.running.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn length(&self) -> Option<Duration> {
        Some(self.length)
    }

    fn is_over(&mut self, elapsed: Duration) -> bool {
        elapsed >= self.length || self.running.is_finished()
    }

    fn line(&mut self) -> String {
        let doing = match self.running.shared.mode() {
            0 => "enabling drives",
            1 => "walking",
            2 => "stopping",
            _ => "stopped",
        };
        format!("{} devices, {doing}", self.devices)
    }

    fn stop(self: Box<Self>, session: &mut Session, _end: &End) -> Result<Conclusion, LabError> {
        let file = self.file.clone();
        self.finish(&file, session)?;
        Ok(Conclusion::Common)
    }
}

impl Walking {
    /// Stops the robot safely, and fills in what it measured.
    fn finish(self, file: &HumanoidFile, session: &mut Session) -> Result<(), LabError> {
        // Stopped before the end of the window: for a reason that belongs into the report.
        self.running.shared.stop();
        let begun = Instant::now();
        while self.running.shared.mode() != 3 && begun.elapsed() < STOP && !self.running.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // A frame that the window's last cycles lost is reported as many cycles later; the cycles
        // must not end before. Some more for cycles that are late.
        let drained = file.motion.period() * (LOST_AFTER as u32 + 4);
        if !self.running.is_finished() {
            std::thread::sleep(drained.saturating_sub(begun.elapsed()));
        }
        // By the clock they should have run; on a machine whose CPUs are stolen they may not have.
        let waited = Instant::now();
        while self.undecided.load(Ordering::Acquire) > 0
            && waited.elapsed() < STOP
            && !self.running.is_finished()
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.running.shared.end();
        // One that ends by itself has panicked: what it measured is judged all the same.
        let finished = self.running.join();
        let mut reads = 0;
        for reader in self.readers {
            reads += reader.end()?;
        }
        if let Err(error) = self.exporter.stop()? {
            session.header.problems.push(format!("{TIMING_FILE}: {error}"));
        }
        let (collected, releases) = self.collecting.end()?;
        drop(self.behind);
        session.header.problems.extend(self.further.end());
        session.releases(&releases, "the motion controller");
        let header = &mut session.header;
        if collected.undecided_cycles > 0 {
            header.failures.push(format!(
                "control ended too soon after the last {} cycles, so it is unknown whether their frames were lost",
                collected.undecided_cycles
            ));
        }
        header.records_lost = collected.lost;
        let finished = match finished {
            Ok(finished) => finished,
            Err(error) => {
                header.figures = figures(file, (&collected, &releases), self.devices, self.bring_up, reads);
                header.losses = file.losses.judge(&collected, self.frames_per_cycle);
                let ended = format!("the motion controller ended by itself: {error}");
                header.failures.push(ended.clone());
                header.problems.push(ended);
                return session.note("events", &collected.events);
            }
        };
        if let Some(why) = motion::why(finished.mode) {
            // A robot that stopped by itself did not do its work, however punctual its last cycles
            // were.
            let stopped = format!("the robot stopped: {why}");
            header.failures.push(stopped.clone());
            header.problems.push(stopped);
        }
        if !finished.safe {
            header.problems.push("some drives still held torque when the cycles ended".to_owned());
        }
        if let Some(why) = &finished.not_down {
            header.problems.push(format!("devices were requested to go down to INIT: {why}"));
        }
        header.records_lost = collected.lost.max(finished.records_lost);
        header.losses = file.losses.judge(&collected, self.frames_per_cycle);
        header.figures = figures(file, (&collected, &releases), self.devices, self.bring_up, reads);
        header.figures.append(&mut figures_at_end(&finished));
        session.note("events", &collected.events)?;
        session.note("more_events", &collected.more_events)?;
        session.note("mode", &finished.mode)?;
        session.note("timing", finished.port.timing())
    }
}

/// Reads the cache until the end; how often.
fn read(mut reader: CacheReader, done: &AtomicBool) -> u64 {
    let mut reads = 0;
    let mut copy = Vec::new();
    while !done.load(Ordering::Acquire) {
        let seen = reader.read(|snapshot| {
            copy.clear();
            copy.extend_from_slice(&snapshot.image);
        });
        reads += u64::from(seen.is_ok());
        std::thread::sleep(READ_EVERY);
    }
    reads
}

/// Path of the shield's state: in /run, or in the user's own folder of states if that is not
/// writable.
fn shield_state() -> PathBuf {
    let path = shield::default_state();
    let writable = path.parent().is_some_and(|run| std::fs::metadata(run).is_ok_and(|_| tempfile_works(run)));
    if writable {
        return path;
    }
    let folder = takt_files::state_folder();
    // If it cannot be created, writing the state reports the reason.
    let _ = takt_files::private_folder(&folder);
    folder.join("takt-shield.state")
}

fn tempfile_works(folder: &std::path::Path) -> bool {
    let probe = folder.join(format!("takt-probe-{}", std::process::id()));
    let works = std::fs::write(&probe, "").is_ok();
    let _ = std::fs::remove_file(&probe);
    works
}

/// Figures that are known however control ended.
fn figures(
    file: &HumanoidFile,
    (collected, releases): (&Collected, &Releases),
    devices: usize,
    bring_up: Duration,
    reads: u64,
) -> BTreeMap<String, f64> {
    let mut figures: BTreeMap<String, f64> = [
        ("devices_op", devices as f64),
        ("bring_up_s", bring_up.as_secs_f64()),
        ("cycles", collected.cycles as f64),
        ("lost_frames", collected.lost_frames as f64),
        ("working_counter_errors", collected.counter_errors as f64),
        ("late_frames", collected.late_frames as f64),
        ("stale_cycles", collected.stale_cycles as f64),
        ("clock_locked_cycles", collected.locked_cycles as f64),
        ("clock_unlocked_cycles", collected.unlocked_cycles as f64),
        ("skipped_cycles", releases.skipped as f64),
        ("longest_time_without_control_ms", releases.longest_gap_ns as f64 / 1e6),
        ("reads", reads as f64),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if collected.cycles > 0 {
        let mean_us = collected.exchange_sum_ns as f64 / collected.cycles as f64 / 1e3;
        figures.insert("exchange_mean_us".to_owned(), mean_us);
    }
    if collected.locked_cycles + collected.unlocked_cycles > 0 {
        figures.insert("clock_phase_max_us".to_owned(), f64::from(collected.farthest_phase_ns) / 1e3);
    }
    let latencies = collected.latencies.in_cycles(file.motion.period().as_nanos() as f64);
    for (name, latency) in ["sensor_latency", "command_latency", "reaction"].iter().zip(latencies) {
        if let Some(latency) = latency {
            figures.insert(format!("{name}_cycles"), latency.mean);
            figures.insert(format!("{name}_min_cycles"), latency.min);
            figures.insert(format!("{name}_max_cycles"), latency.max);
        }
    }
    figures
}

/// Figures that only a controller leaves that ended as requested.
fn figures_at_end(finished: &Finished) -> BTreeMap<String, f64> {
    let totals = finished.port.totals();
    let mut figures: BTreeMap<String, f64> = [
        ("stray_frames", totals.stray_frames as f64),
        ("stray_frames_twice", totals.strays.twice as f64),
        ("stray_frames_after_lost", totals.strays.after_lost as f64),
        ("stray_frames_broken", totals.strays.broken as f64),
        ("stray_frames_foreign", totals.strays.foreign as f64),
        ("clock_drift_ppm", totals.clock.drift_ppb as f64 / 1e3),
        ("drives_enabled", finished.enabled.0 as f64),
        ("drives", finished.enabled.1 as f64),
        ("safe_at_end", f64::from(u8::from(finished.safe))),
        ("late_cycles", finished.late as f64),
        ("page_faults", (finished.faults.minor + finished.faults.major) as f64),
        ("reader_contended", totals.contended as f64),
        ("reader_unpublished", totals.unpublished as f64),
        ("reader_delayed", totals.delayed_readers as f64),
        ("longest_lock_wait_us", totals.longest_lock_wait_ns as f64 / 1e3),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if totals.cycles > 0 {
        let cpu_us = finished.cpu_ns as f64 / totals.cycles as f64 / 1e3;
        figures.insert("cpu_per_cycle_us".to_owned(), cpu_us);
    }
    figures
}
