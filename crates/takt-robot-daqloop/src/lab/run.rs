//! Running the DAQ loop.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use takt_lab::options::RunOptions;
use takt_lab::robot::{
    Conclusion, Critical, End, GuestNeeds, NoCriticalThread, Observe, Robot, RobotKind, Running, read,
};
use takt_lab::{ConfigError, LabError, LiveSeries, Session};
use takt_link_daq::Waiting;
use takt_rt::offline::Offline;
use takt_rt::ring::Consumer;
use takt_rundir::{Draft, Loss, Measure, RunDir};
use takt_stats::Stopped;
use takt_trace::{Trace, TraceReport};

use super::keep::{EDGES, Keep, LastFlushed, Numbering, Window};
use super::late::{self, THREADS, Threads};
use super::layout;
use super::report::Paper;
use super::resume::replay;
use super::state::{STATE_FILE, State};
use crate::saving::{Discard, EdgeSink};
use crate::{DaqConfig, DaqLoop, DaqOutcome, EdgeRecord, SHIPPED};

/// Thread of the loop.
const ACQUISITION: &str = "daq-acquire";
/// Key of `run.json`: in what the run differs from the paper's, a sentence each.
pub(super) const DEVIATIONS: &str = "differs_from_paper";
/// Period of reading the records. The rings hold some hundred times what comes meanwhile.
const READ: Duration = Duration::from_millis(4);
/// Period of writing the state: a kill loses at most three times this.
const CHECKPOINT: Duration = Duration::from_millis(300);

/// The DAQ loop as a registry lists it.
pub static KIND: RobotKind = RobotKind {
    campaigns: &[
        ("daq", include_str!("../../../../campaigns/daq.toml")),
        ("daq-boards", include_str!("../../../../campaigns/daq-boards.toml")),
        ("daq-boards-guest", include_str!("../../../../campaigns/daq-boards-guest.toml")),
        ("daq-cores", include_str!("../../../../campaigns/daq-cores.toml")),
        ("daq-long", include_str!("../../../../campaigns/daq-long.toml")),
    ],
    factors: &[("policy", "acquisition.policy"), ("placement", "acquisition.cpus")],
    report: Some(&Paper),
    // A simulated board with its library, and what brings CPUs back after a kill.
    guest: GuestNeeds { modules: &["comedi_test"], programs: &["/bin/sh"], libraries: &["libcomedi.so.0"] },
    ..RobotKind::new("daq", &[("daq", SHIPPED)], read::<DaqConfig>)
};

impl Robot for DaqConfig {
    takt_lab::robot_basics!(KIND);

    fn validate(&self) -> Result<(), ConfigError> {
        self.validate().map_err(ConfigError::robot)
    }

    fn measures(&self) -> Result<Vec<Measure>, ConfigError> {
        Ok(measures(self))
    }

    fn label(&self) -> String {
        self.label()
    }

    fn describe(&self) -> String {
        self.label()
    }

    fn expected_seconds(&self) -> Option<f64> {
        Some(self.seconds)
    }

    fn make_strict(&mut self) {
        self.make_strict();
    }

    fn critical(&self) -> Result<Critical, NoCriticalThread> {
        Err(NoCriticalThread(
            "the DAQ loop polls without releases, so there is no activation to trace; `takt trace` shows the causes of its late edges",
        ))
    }

    fn polls(&self) -> Option<&'static str> {
        Some(ACQUISITION)
    }

    fn polled(&self, dir: &RunDir, trace: &Trace) -> Result<TraceReport, LabError> {
        let edges = State::read(dir)?.map_or(0, |state| state.next_index);
        late::report(dir, trace, edges)
    }

    fn explain(&self, dir: &RunDir, trace: Result<&Trace, &str>) -> Result<(), LabError> {
        late::explain(dir, trace).map(drop)
    }

    fn start(
        &self,
        session: &mut Session,
        options: &RunOptions,
        _observe: Observe<'_>,
    ) -> Result<Box<dyn Running>, LabError> {
        let mut state = match session.restored(STATE_FILE)? {
            Some(state) => state,
            None => State::new(self)?,
        };
        state.resumed = session.resumed();
        if state.resumed > 0 {
            let replayed = replay(session.dir(), &mut state)?;
            state.standing.goes_on();
            session.note("resumed", &state.resumed)?;
            session.note("edges_found_in_samples", &replayed)?;
        }
        // Before any is taken away.
        let machine = takt_rt::placement::online();
        let (offline, online) = match &self.offline_cpus {
            Some(cpus) => Offline::take(cpus),
            None => Default::default(),
        };
        if self.acquisition.strict && !online.is_empty() {
            return Err(LabError::Config(format!("offline_cpus: {}", online.join("; "))));
        }
        let most = self.stop.edges.map_or(u64::MAX, |edges| edges.saturating_sub(state.next_index));
        let bounds = takt_lab::keeper::Window::watched(options.watch.clone());
        let window = Arc::new(Window::new(bounds, most, state.next_index));
        let keep = Keep::new(session.dir(), self.saving.enabled, self.keep_edges, &window)?;
        let (kept, flushed) = (keep.kept(), keep.last_flushed());
        let (sink, keep): (Box<dyn EdgeSink>, _) =
            if self.saving.enabled { (Box::new(keep), None) } else { (Box::new(Discard), Some(keep)) };
        let started = DaqLoop::start_endless(self, sink);
        let mut daq = started.map_err(LabError::robot)?;
        let records = daq.take_records().ok_or(LabError::Internal("the ring of records"))?;
        describe(session, self, &daq)?;
        if let Ok(machine) = &machine {
            session.header.not_granted.extend(layout::beyond(self, machine));
        }
        if self.offline_cpus.is_some() {
            session.note("offline_cpus", &offline.taken())?;
            session.header.not_granted.extend(online.iter().map(|why| format!("offline_cpus: {why}")));
        }
        let reader = Reader {
            numbering: Numbering::new(&window),
            records,
            batch: vec![EdgeRecord::default(); 8192],
            before_ns: state.elapsed_ns,
            from_ns: u64::MAX,
            stopped: None,
            window: Arc::clone(&window),
        };
        let length = options.length(self.seconds);
        let checkpoints = Checkpoints::new(session, flushed);
        let file = self.clone();
        Ok(Box::new(Loop { file, daq, state, reader, keep, kept, checkpoints, window, length, offline }))
    }
}

/// A loop that runs, and the reading ends of what it leaves.
struct Loop {
    file: DaqConfig,
    daq: DaqLoop,
    state: State,
    reader: Reader,
    /// Store of edges in memory, for this thread, if saving is off.
    keep: Option<Keep>,
    kept: Arc<std::sync::atomic::AtomicU64>,
    checkpoints: Checkpoints,
    window: Arc<Window>,
    length: Duration,
    offline: Offline,
}

impl Running for Loop {
    fn window(&self) -> &takt_lab::keeper::Window {
        &self.window.bounds
    }

    fn begun(&mut self, _session: &mut Session, from_ns: u64) -> Result<(), LabError> {
        self.reader.from_ns = from_ns;
        Ok(())
    }

    fn pace(&self) -> Duration {
        READ
    }

    fn tick(&mut self, _session: &mut Session, _open: bool) -> Result<(), LabError> {
        self.reader.read(&mut self.state, self.keep.as_mut());
        self.checkpoints.turn(&self.state)
    }

    fn line(&mut self) -> String {
        self.state.line()
    }

    fn length(&self) -> Option<Duration> {
        Some(self.length)
    }

    fn is_over(&mut self, elapsed: Duration) -> bool {
        let enough = has_enough(&self.file, &self.state);
        elapsed >= self.length || enough || self.reader.stopped.is_some() || self.daq.is_finished()
    }

    fn stop(self: Box<Self>, session: &mut Session, end: &End) -> Result<Conclusion, LabError> {
        let Self {
            file, daq, mut state, mut reader, mut keep, kept, mut checkpoints, offline, window, ..
        } = *self;
        let outcome = daq.stop();
        // Before anything can fail.
        session.header.problems.extend(offline.restore());
        let outcome = outcome.map_err(LabError::robot)?;
        // The records in the ring when the loop ended.
        reader.read(&mut state, keep.as_mut());
        if let Some(keep) = &mut keep {
            keep.finish().map_err(LabError::io(session.dir().path()))?;
        }
        // A run that ends with its number of edges is over with the last of them, and the window
        // some milliseconds later: nothing was due in between.
        if !has_enough(&file, &state) {
            let [_, to_ns] = window.bounds.bounds();
            state.standing.finish(outcome.ended_ns.min(to_ns));
        }
        checkpoints.write(&state)?;
        let whole = kept.load(Ordering::Relaxed) == state.recorder.count();
        conclude(session, &file, &state, &outcome, (reader.stopped, end.cut_off), whole)?;
        // In a campaign it is shorter than asked: it stays open and goes on when the campaign does.
        if end.cut_off && !session.header.experiment.campaign.is_empty() {
            session.write()?;
            return Err(LabError::Stopped { dir: session.dir().path().to_owned() });
        }
        Ok(Conclusion::Common)
    }
}

/// Whether all edges came that the run was to have.
fn has_enough(file: &DaqConfig, state: &State) -> bool {
    file.stop.edges.is_some_and(|edges| state.next_index >= edges)
}

/// Writes checkpoints: state and rows that belong together.
struct Checkpoints {
    dir: RunDir,
    empty: Draft,
    flushed: LastFlushed,
    written: Instant,
    /// Series for telemetry: latency, link and controller.
    live: Vec<LiveSeries>,
    /// A state that waits until the saving task has handed its edges to the kernel.
    waiting: Option<(State, Instant)>,
}

impl Checkpoints {
    fn new(session: &Session, flushed: LastFlushed) -> Self {
        let (dir, empty) = (session.dir().clone(), session.new_window(None).draft());
        let live =
            session.header.measures.iter().filter_map(|measure| session.live_series(measure)).collect();
        Self { dir, empty, flushed, written: Instant::now(), live, waiting: None }
    }

    /// Takes the state every now and then, and writes it as soon as its edges are in the files, or
    /// some time later whatever became of the saving task: counting must not depend on it.
    fn turn(&mut self, state: &State) -> Result<(), LabError> {
        if self.waiting.is_none() && self.written.elapsed() >= CHECKPOINT {
            self.waiting = Some((state.clone(), Instant::now()));
        }
        let Some((taken, since)) = self.waiting.take() else { return Ok(()) };
        let flushed = self.flushed.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = flushed.full || flushed.next_index >= taken.next_index || since.elapsed() >= CHECKPOINT;
        drop(flushed);
        if ready {
            return self.write(&taken);
        }
        self.waiting = Some((taken, since));
        Ok(())
    }

    fn write(&mut self, state: &State) -> Result<(), LabError> {
        self.written = Instant::now();
        let recorders = [Some(&state.recorder), state.link.as_ref(), state.controller.as_ref()];
        for (live, recorder) in self.live.iter().zip(recorders) {
            recorder.into_iter().for_each(|recorder| live.report(recorder));
        }
        let flushed = self.flushed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(self.dir.checkpoint(&state.keep(&flushed, self.empty.clone())?)?)
    }
}

/// Takes the records of the window into the state.
struct Reader {
    numbering: Numbering,
    records: Consumer<EdgeRecord>,
    batch: Vec<EdgeRecord>,
    /// Measured time before this part of the run.
    before_ns: u64,
    from_ns: u64,
    stopped: Option<Stopped>,
    window: Arc<Window>,
}

impl Reader {
    fn read(&mut self, state: &mut State, mut keep: Option<&mut Keep>) {
        loop {
            let count = self.records.take(&mut self.batch);
            for edge in &self.batch[..count] {
                if let Some(keep) = &mut keep {
                    // In memory: cannot fail.
                    let _ = keep.edge(edge);
                }
                let Some(index) = self.numbering.number(edge) else { continue };
                let elapsed_ns = self.before_ns + edge.sent_ns.saturating_sub(self.from_ns);
                let stopped = state.push(index, elapsed_ns, edge);
                self.stopped = self.stopped.or(stopped);
                if let Some([from_ns, to_ns]) = state.late.push(index, edge) {
                    self.window.bounds.mark(from_ns, to_ns);
                }
            }
            if count < self.batch.len() {
                return;
            }
        }
    }
}

/// Measures that reports read.
fn measures(file: &DaqConfig) -> Vec<Measure> {
    let latency = Measure::new("latency", "Latency of an edge", EDGES, "latency_ns");
    let timed = |measure: Measure| Measure { time_column: Some("sent_ns".to_owned()), ..measure };
    let latency = Measure { deadline_ns: file.deadline_ns(), ..latency };
    // From the write to the arrival: what the paper's latency has beside controller and sleep.
    let link = Measure::new("link", "Latency of the bare link", EDGES, "received_ns").since("sent_ns");
    let mut measures = vec![timed(latency), link];
    if file.controller.kind() != "none" {
        let controller =
            Measure::new("controller", "Execution time of the controller", EDGES, "controller_ns");
        measures.push(timed(controller));
    }
    measures
}

/// Records the facts known before the window.
fn describe(session: &mut Session, file: &DaqConfig, daq: &DaqLoop) -> Result<(), LabError> {
    session.header.measures = measures(file);
    session.header.not_granted.extend(daq.not_granted());
    let granted: Vec<_> = daq.granted().iter().map(|(_, granted)| granted).collect();
    session.note("threads", &granted)?;
    session.note("link", &daq.link().description)?;
    let tid = |name: &str| {
        let named = daq.granted().iter().find(|(thread, _)| thread.starts_with(name));
        named.map(|(_, granted)| granted.effective.tid)
    };
    let threads = Threads {
        acquisition: tid(ACQUISITION),
        far_end: tid("daq-echo").or_else(|| tid("daq-far-end")),
        wait_ns: u64::try_from(file.pulse.wait.as_nanos()).unwrap_or(u64::MAX),
    };
    session.note(THREADS, &threads)?;
    session.note(DEVIATIONS, &super::report::deviations(file))?;
    Ok(())
}

/// Records the facts known after the window.
fn conclude(
    session: &mut Session,
    file: &DaqConfig,
    state: &State,
    outcome: &DaqOutcome,
    (stopped, cut_off): (Option<Stopped>, bool),
    whole: bool,
) -> Result<(), LabError> {
    let seconds = state.elapsed_ns as f64 / 1e9;
    let edges = state.recorder.count();
    let rate_hz = (seconds > 0.0).then(|| edges as f64 / seconds);
    for measure in &mut session.header.measures {
        measure.rate_hz = rate_hz.filter(|rate_hz| *rate_hz > 0.0);
    }
    // A comparison of this run with others must know that they may have had more chances to be
    // late.
    let asked = file.stop.edges.filter(|asked| state.next_index < *asked);
    let by_time = !cut_off && stopped.is_none() && outcome.ended.problem().is_none();
    let too_few = asked.filter(|_| by_time).map(|asked| {
        let had = state.next_index;
        format!("its time ended after {had} of {asked} edges (stop.edges); runs with all edges did more work")
    });
    let loss = Loss::new(
        "lost_edges",
        "edges",
        [state.lost_edges, state.next_index],
        ("losses.max_lost_edges", file.losses.max_lost_edges),
    );
    if let Some(latency) = session.header.measures.first_mut() {
        // Losses within the limit are named but are not misses.
        let lost = if loss.is_exceeded() { state.lost_edges } else { 0 };
        latency.skipped = state.standing.skipped.saturating_add(lost);
        latency.longest_miss_run = latency.deadline_ns.map(|_| state.standing.longest_row);
        latency.recorder = (!whole).then(|| STATE_FILE.to_owned());
    }
    let header = &mut session.header;
    header.records_lost = outcome.records_lost;
    if let Some(problem) = outcome.ended.problem() {
        header.problems.push(problem.to_owned());
        // A loop whose link is gone controls nothing, however good it was before.
        header.failures.push(problem.to_owned());
    }
    header.problems.extend(state.standing.stood_still());
    header.problems.extend(too_few);
    header.losses = vec![loss];
    let mut figure = |name: &str, value: f64| {
        header.figures.insert(name.to_owned(), value);
    };
    figure("edges", edges as f64);
    if let Some(rate_hz) = rate_hz {
        figure("edges_per_s", rate_hz);
    }
    figure("lost_edges", state.lost_edges as f64);
    figure("skipped_releases", state.standing.skipped as f64);
    figure("resends", state.resends as f64);
    if state.resumed > 0 {
        figure("resumed", f64::from(state.resumed));
    }
    if let Some(link) = state.link.as_ref().filter(|link| link.count() > 0) {
        figure("link_mean_us", link.mean_ns() / 1e3);
        figure("link_max_us", link.max_ns() as f64 / 1e3);
    }
    if let Some(controller) = state.controller.as_ref().filter(|controller| controller.count() > 0) {
        figure("controller_mean_us", controller.mean_ns() / 1e3);
        figure("controller_max_us", controller.max_ns() as f64 / 1e3);
    }
    if let Some(tracking) = outcome.tracking.as_ref().filter(|tracking| tracking.steps > 0) {
        figure("tracking_rms_error", tracking.rms_error);
        figure("tracking_max_error", tracking.max_error);
    }
    if let Some(steady) = &outcome.steady {
        figure("page_faults", (steady.minor_faults + steady.major_faults) as f64);
        figure("preemptions", steady.preemptions as f64);
    }
    if let Some(saved) = &outcome.saved {
        figure("display_lines", saved.lines as f64);
        if saved.lost > 0 {
            let (lost, ring) = (saved.lost, file.saving.ring);
            header.problems.push(format!("the saving task missed {lost} edges: its ring of {ring} was full"));
        }
        header.problems.extend(saved.problem.as_ref().map(|problem| format!("saving: {problem}")));
    }
    header.problems.extend(kept_for_others(file, state.recorder.max_ns()));
    if outcome.totals.clock_steps > 0 {
        let steps = outcome.totals.clock_steps;
        header.problems.push(format!(
            "CLOCK_REALTIME was changed during {steps} edges, so their latencies are wrong. Fix: set pulse.clock = \"monotonic\", or stop \
             the time service during the run"
        ));
    }
    if edges == 0 && outcome.ended.problem().is_none() {
        header.problems.push("no edge arrived within the measured window".to_owned());
    }
    session.note("outcome", outcome)?;
    session.header.own_end = stopped.is_some() || has_enough(file, state);
    session.note("stopped", &stopped)?;
    Ok(())
}

/// Latencies of at least this size can be the kernel's share for others.
const SHARE_FROM_NS: u64 = 5_000_000;

/// A real-time task that polls hardly ever leaves its CPU. The kernel then takes it away, by
/// default for 50 ms of every second, so that the rest of the system lives: by RT throttling, since
/// Linux 6.12 by the fair server. Such a gap says nothing of the board or the loop, so a run that
/// may hold one is labelled.
fn kept_for_others(file: &DaqConfig, max_ns: u64) -> Option<String> {
    let policy = file.acquisition.policy;
    let polls = file.link.waiting() == Waiting::Poll && policy.is_real_time();
    (polls && max_ns >= SHARE_FROM_NS).then(|| {
        format!(
            "the greatest latency, {:.1} ms, may be the time that the kernel reserves for other tasks on a CPU where a polling {policy} \
             task never sleeps (50 ms of every second by default). Fix: give the task a CPU without other tasks (isolcpus= and \
             acquisition.cpus), reduce that time with runtime in /sys/kernel/debug/sched/fair_server/ (before Linux 6.12: `sudo sysctl \
             kernel.sched_rt_runtime_us=-1`), or let the link sleep (link.waiting = \"block\")",
            max_ns as f64 / 1e6
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_polling_real_time_task_with_a_long_gap_is_labelled() {
        let file = |text: &str| toml::from_str::<DaqConfig>(text).expect("a valid file");
        let label = kept_for_others(&file(""), 50_000_000).expect("fifo:99 polls by default");
        assert!(label.contains("50.0 ms") && label.contains("fifo:99"), "{label}");
        assert_eq!(kept_for_others(&file(""), 200_000), None);
        assert_eq!(kept_for_others(&file("acquisition.policy = 'other'"), 50_000_000), None);
        assert_eq!(kept_for_others(&file("link = { kind = 'udp', waiting = 'block' }"), 50_000_000), None);
    }
}
