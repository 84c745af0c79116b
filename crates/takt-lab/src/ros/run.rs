//! Running a ROS 2 system under the manager or a baseline.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use takt_manager::live::launch::Launched;
use takt_manager::live::{self, Live, Log, Status};
use takt_manager::system::platform;
use takt_manager::{Goals, Plan};
use takt_model::Model;
use takt_ros::preload::{Probe, Session as ProbeSession, SessionOptions};
use takt_ros_workload::{Program, Running};
use takt_rt::clock::monotonic_ns;
use takt_rt::jobs::JobRecord;
use takt_rundir::{Measure, RunDir, SampleFile};
use takt_trace::event::Trace;
use takt_trace::perfetto::{Task, export};

use super::baseline::criticality_monotonic;
use super::{ManagerPolicy, RosFile};
use crate::LabError;
use crate::options::RunOptions;
use crate::robot::Event;
use crate::session::{Session, file_name};
use crate::summary::RunSummary;

/// Between two looks at the events, as the manager does by itself.
const POLL: Duration = Duration::from_millis(15);
const TICK: Duration = Duration::from_millis(500);
/// Instances of a chain in the picture: half an hour at 50 Hz.
const MOST_SHOWN: usize = 100_000;
/// The picture of the chains.
const PERFETTO_FILE: &str = "chains.perfetto-trace";
/// What a system gets to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// Runs the system and leaves a sealed run directory.
///
/// # Errors
/// [`LabError`]; what was measured until then stays in the run directory.
pub fn run(
    file: &RosFile,
    options: &RunOptions,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<RunSummary, LabError> {
    let goals = file.goals().map_err(LabError::Config)?;
    let mut session = Session::create("ros", &file.policy.to_string(), file, options)?;
    match drive(file, &goals, &mut session, options, observe) {
        Ok(()) => Ok(session.seal()?.1),
        Err(error) => {
            session.discard();
            Err(error)
        }
    }
}

fn drive(
    file: &RosFile,
    goals: &Goals,
    session: &mut Session,
    options: &RunOptions,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<(), LabError> {
    let probe =
        ProbeSession::create(&SessionOptions { stand_in: file.command.is_none(), ..Default::default() })
            .map_err(|error| LabError::Config(error.to_string()))?;
    let mut chains = Chains::open(goals, session)?;
    let mut live = manager(file, goals, &probe, session)?;
    let length = Duration::from_secs_f64(options.seconds.unwrap_or(file.seconds));
    let lead = Duration::from_secs_f64(file.learn_seconds);
    let mut system = Started::start(file, session.dir(), &probe)?;
    session.write()?;
    observe(Event::Started { dir: session.dir(), not_granted: &session.header.not_granted });
    session.start_load(&options.interference)?;
    let (measured_ns, end_ns) = system.begin(file, lead, length)?;
    live.settle();

    let mut baseline = Baseline::default();
    let mut ticked = Instant::now();
    let mut trouble = None;
    let mut open = false;
    while monotonic_ns() < end_ns && !options.stop.load(Ordering::Acquire) && trouble.is_none() {
        let now_ns = monotonic_ns();
        if !open && now_ns >= measured_ns {
            session.begin_window()?;
            open = true;
        }
        live.step(now_ns).map_err(managed)?;
        if file.policy == ManagerPolicy::Rr {
            baseline.follow(goals, &live);
        }
        chains.keep(&mut live)?;
        if ticked.elapsed() >= TICK {
            ticked = Instant::now();
            let elapsed = Duration::from_nanos(now_ns.saturating_sub(measured_ns));
            let line = live.board().read().line();
            observe(Event::Tick { elapsed, of: Some(length), line });
            trouble = session.load_trouble().or_else(|| system.trouble());
        }
        std::thread::sleep(POLL);
    }
    if open {
        session.end_window();
    }
    // What holds now; once the nodes have ended there is nothing left to guarantee.
    let last =
        Last { status: live.status(monotonic_ns()), plan: live.plan().cloned(), model: live.model().clone() };
    session.end_load()?;
    session.header.problems.extend(trouble);
    session.header.problems.extend(system.end(&options.stop));
    live.source_mut().finish();
    // What had not been read when the nodes ended.
    while live.step(monotonic_ns()).map_err(managed)? {}
    chains.keep(&mut live)?;
    chains.close(session)?;
    session.header.not_granted.extend(baseline.refused);
    session.note("rr", &baseline.given)?;
    conclude(live, &last, session)
}

fn managed(error: live::Error) -> LabError {
    LabError::Config(error.to_string())
}

/// The manager, or its eyes alone for the baselines.
fn manager(
    file: &RosFile,
    goals: &Goals,
    probe: &ProbeSession,
    session: &mut Session,
) -> Result<Live<Probe>, LabError> {
    let platform = platform(&goals.options).map_err(|error| LabError::Config(error.to_string()))?;
    let open = |observe: bool| -> Result<Live<Probe>, live::Error> {
        let probe = probe.probe().map_err(|error| live::Error::Source(Box::new(error)))?;
        let options = live::Options {
            observe,
            log: Log::new(log_file(session.dir(), "manager.log"), log_file(session.dir(), "manager.jsonl")),
            watchdog: Some(watchdog_command),
            ..Default::default()
        };
        Live::new(goals.clone(), platform.clone(), probe, options)
    };
    match open(file.policy != ManagerPolicy::Takt) {
        Ok(live) => Ok(live),
        Err(error) if file.strict || file.policy != ManagerPolicy::Takt => Err(managed(error)),
        Err(error) => {
            let live = open(true).map_err(managed)?;
            session.header.not_granted.push(format!("nothing is reserved: {error}"));
            Ok(live)
        }
    }
}

/// A log that cannot be opened is missing from the run directory; the run goes on.
fn log_file(dir: &RunDir, name: &str) -> Option<Box<dyn std::io::Write + Send>> {
    File::create(dir.path().join(name)).ok().map(|file| Box::new(file) as Box<dyn std::io::Write + Send>)
}

/// The watchdog: this program with the state file.
///
/// # Errors
/// The program's own path is not known.
pub fn watchdog_command(state: &Path) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["manage", "--watchdog"]).arg(state);
    Ok(command)
}

/// What runs.
enum Started {
    Workload(Option<Running>),
    Command(Launched),
}

impl Started {
    fn start(file: &RosFile, dir: &RunDir, probe: &ProbeSession) -> Result<Self, LabError> {
        let failed = |error: String| LabError::Config(error);
        if let Some(words) = &file.command {
            let (program, arguments) =
                words.split_first().ok_or_else(|| failed("command: expected a program".to_owned()))?;
            let mut command = Command::new(program);
            command.args(arguments);
            return Launched::start(command, probe)
                .map(Self::Command)
                .map_err(|error| failed(format!("{program}: {error}")));
        }
        let system = file.system();
        let path = dir.path().join("workload.toml");
        let text = toml::to_string(&system).map_err(|error| failed(error.to_string()))?;
        std::fs::write(&path, text).map_err(LabError::io(&path))?;
        let exe =
            std::env::current_exe().map_err(|error| failed(format!("this program's own path: {error}")))?;
        // Sockets go where paths are short, and away with the session.
        let arguments: Vec<OsString> = vec![
            "workload".into(),
            path.into(),
            "--directory".into(),
            probe.directory().as_os_str().to_owned(),
            "--node".into(),
        ];
        let environment = probe.environment(std::env::var_os("LD_PRELOAD"));
        let environment = environment.into_iter().map(|(name, value)| (name.into(), value)).collect();
        let running = Running::start(&system, &Program { path: exe, arguments, environment })
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self::Workload(Some(running)))
    }

    /// Lets it begin. Returns when the measured window begins and ends.
    fn begin(&mut self, file: &RosFile, lead: Duration, length: Duration) -> Result<(u64, u64), LabError> {
        match self {
            Self::Workload(Some(running)) => {
                let window = running
                    .begin(lead, length, file.system().phases.len())
                    .map_err(|error| LabError::Config(error.to_string()))?;
                Ok((window.phases_ns, window.end_ns))
            }
            Self::Workload(None) => Ok((0, 0)),
            Self::Command(_) => {
                let from_ns = monotonic_ns() + lead.as_nanos() as u64;
                Ok((from_ns, from_ns + length.as_nanos() as u64))
            }
        }
    }

    fn trouble(&mut self) -> Option<String> {
        match self {
            Self::Workload(Some(running)) => {
                running.ended().then(|| "the workload ended before its time".to_owned())
            }
            Self::Workload(None) => None,
            Self::Command(launched) => match launched.ended() {
                Ok(None) => None,
                Ok(Some(status)) => Some(format!("the command ended: {status}")),
                Err(error) => Some(format!("the command: {error}")),
            },
        }
    }

    /// Ends it in order where it does not end by itself. Returns what was wrong.
    fn end(&mut self, stop: &AtomicBool) -> Vec<String> {
        let until = Instant::now() + GRACE;
        match self {
            Self::Workload(running) => {
                let Some(mut running) = running.take() else { return Vec::new() };
                while !running.ended() && Instant::now() < until && !stop.load(Ordering::Acquire) {
                    std::thread::sleep(POLL);
                }
                if !running.ended() {
                    // Dropping it ends the nodes, which are finishing a long callback at best.
                    return Vec::new();
                }
                let ended = running.wait().into_iter().filter(|ended| ended.losses.is_none());
                ended.map(|ended| format!("node {} ended before its time", ended.node)).collect()
            }
            Self::Command(launched) => {
                while launched.ended().is_ok_and(|status| status.is_none()) && Instant::now() < until {
                    launched.end();
                    std::thread::sleep(POLL);
                }
                Vec::new()
            }
        }
    }
}

/// The RR baseline, renewed with every plan.
#[derive(Default)]
struct Baseline {
    plans: u64,
    given: Vec<String>,
    refused: BTreeSet<String>,
}

impl Baseline {
    fn follow(&mut self, goals: &Goals, live: &Live<Probe>) {
        let plans = live.plans();
        if plans == self.plans {
            return;
        }
        self.plans = plans;
        let Some(plan) = live.plan() else { return };
        let given = criticality_monotonic(goals, plan, live.model());
        self.given.clear();
        for one in given {
            self.given.push(format!("process {}, thread {}: SCHED_RR {}", one.pid, one.tid, one.priority));
            if let Err(error) = one.apply() {
                self.refused.insert(error);
            }
        }
    }
}

/// Sample files of the chains.
struct Chains {
    chains: Vec<Chain>,
}

struct Chain {
    index: usize,
    measure: String,
    goal_ns: u64,
    file: SampleFile,
    rows: u64,
    /// The first instances, for the picture.
    shown: Vec<JobRecord>,
}

#[derive(Serialize)]
struct Row {
    began_ns: u64,
    ended_ns: u64,
}

impl Chains {
    /// The most critical first: the verdict is about that one, and reports begin with it.
    fn open(goals: &Goals, session: &mut Session) -> Result<Self, LabError> {
        let mut chains = Vec::new();
        for &index in goals.degradation_order.iter().rev() {
            let Some(goal) = goals.chains.get(index) else { continue };
            let samples = file_name("chain", &goal.name);
            session.header.measures.push(
                Measure::new(
                    &goal.name,
                    &format!("End-to-end latency of {}", goal.name),
                    &samples,
                    "ended_ns",
                )
                .since("began_ns")
                .deadline_ns(goal.goal_ns),
            );
            let file = session.dir().samples(&samples)?;
            chains.push(Chain {
                index,
                measure: goal.name.clone(),
                goal_ns: goal.goal_ns,
                file,
                rows: 0,
                shown: Vec::new(),
            });
        }
        Ok(Self { chains })
    }

    fn keep(&mut self, live: &mut Live<Probe>) -> Result<(), LabError> {
        for (index, completions) in live.completions() {
            let Some(chain) = self.chains.iter_mut().find(|chain| chain.index == index) else { continue };
            for done in completions {
                let (began_ns, ended_ns) = (done.began_ns, done.ended_ns);
                chain.file.push(&Row { began_ns, ended_ns })?;
                if chain.shown.len() < MOST_SHOWN {
                    let (index, planned_ns, end_ns) = (chain.rows, began_ns, ended_ns);
                    let (wake_ns, start_ns) = (began_ns, began_ns);
                    chain.shown.push(JobRecord {
                        index,
                        planned_ns,
                        wake_ns,
                        start_ns,
                        end_ns,
                        ..Default::default()
                    });
                }
                chain.rows += 1;
            }
        }
        Ok(())
    }

    /// Chains that never completed have no samples; that is said instead.
    fn close(&mut self, session: &mut Session) -> Result<(), LabError> {
        if let Err(error) = self.draw(&session.dir().path().join(PERFETTO_FILE)) {
            session.header.problems.push(format!("{PERFETTO_FILE}: {error}"));
        }
        for chain in &mut self.chains {
            chain.file.flush()?;
            if chain.rows == 0 {
                let path = session.dir().sample_path(&file_name("chain", &chain.measure));
                std::fs::remove_file(&path).map_err(LabError::io(&path))?;
                session.header.measures.retain(|measure| measure.name != chain.measure);
                session.header.problems.push(format!("chain {} never completed", chain.measure));
            }
        }
        Ok(())
    }
}

impl Chains {
    /// Every chain as a track of its instances, late ones marked, for ui.perfetto.dev.
    fn draw(&self, path: &Path) -> Result<(), String> {
        let task = |chain: &Chain| Task {
            name: format!("chain {}", chain.measure),
            deadline_ns: Some(chain.goal_ns),
            ..Task::default()
        };
        let tasks: Vec<_> = self.chains.iter().map(|chain| (task(chain), chain.shown.as_slice())).collect();
        let file = File::create(path).map_err(|error| error.to_string())?;
        export(std::io::BufWriter::new(file), &Trace::default(), &tasks)
            .map_err(|error| error.to_string())?;
        Ok(())
    }
}

/// The manager at the end of the window.
struct Last {
    status: Status,
    plan: Option<Plan>,
    model: Model,
}

/// Ends the manager, restores the system, and keeps what it did and cost.
fn conclude(live: Live<Probe>, last: &Last, session: &mut Session) -> Result<(), LabError> {
    let finished = live.finish().map_err(managed)?;
    let status = &last.status;
    let figures = &mut session.header.figures;
    let plans = status.plans.max(1) as f64;
    let mut put = |name: &str, value: f64| figures.insert(name.to_owned(), value);
    put("manager_cpu_share", status.cost.cpu_share);
    put("analysis_ms", status.cost.worst_analysis_ns as f64 / 1e6);
    put("extract_ms_per_plan", status.cost.extract_ns as f64 / 1e6 / plans);
    put("model_ms_per_plan", status.cost.model_ns as f64 / 1e6 / plans);
    put("plan_ms_per_plan", status.cost.plan_ns as f64 / 1e6 / plans);
    put("enact_ms_per_plan", status.cost.enact_ns as f64 / 1e6 / plans);
    put("plans", status.plans as f64);
    put("events", status.events as f64);
    for chain in &status.chains {
        put(&format!("dropped.{}", chain.name), chain.dropped as f64);
        if let Some(bound_ns) = chain.bound_ns {
            put(&format!("bound_ms.{}", chain.name), bound_ns as f64 / 1e6);
        }
    }
    session.header.records_lost = status.lost;
    session.header.not_granted.extend(status.differences.iter().cloned());
    let restored = finished.restored.as_ref().filter(|restored| !restored.is_complete());
    session.header.problems.extend(restored.map(ToString::to_string));
    session.note("manager", status)?;
    session.note("plan", &last.plan)?;
    session.note("model", &last.model)
}
