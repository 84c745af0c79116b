//! Running a ROS 2 system under the manager or a baseline.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use takt_lab::keeper::Window;
use takt_lab::options::RunOptions;
use takt_lab::robot::{Conclusion, Critical, End, Kind, NoCriticalThread, Observe, Robot, Running, read};
use takt_lab::{ConfigError, LabError, Session};
use takt_manager::enact::platform;
use takt_manager::live::launch::Launched;
use takt_manager::live::{self, ChainStatus, Live, Log, Status};
use takt_manager::{Goals, Plan};
use takt_model::Model;
use takt_ros::preload::{Probe, ProbeOptions, ProbeSession};
use takt_ros_workload::rclcpp::{self, Nodes};
use takt_ros_workload::{self as workload, Program};
use takt_rt::clock::monotonic_ns;
use takt_rundir::{Measure, Phase, RunDir};

use super::baseline::criticality_monotonic;
use super::chains::Chains;
use super::costs::Costs;
use super::{ManagerPolicy, NodeKind, RosFile, SHIPPED};

/// Between two looks at the events, as the manager does by itself.
const POLL: Duration = Duration::from_millis(25);
/// Key of `run.json` that says what the nodes are.
pub(super) const NODES_KEY: &str = "nodes";
const OWN_NODES: &str = "processes of Takt's that behave like nodes";
/// What a system gets to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// A ROS 2 system as a registry lists it.
pub static KIND: Kind = Kind {
    campaigns: &[("manager", include_str!("../../../campaigns/manager.toml"))],
    cannot_resume: Some(
        "its nodes are programs of their own that begin anew with the first phase of their load, and the manager's models \
         are of the processes that were killed",
    ),
    report: Some(&super::paper::RosPaper),
    ..Kind::new("ros", &[("ros", SHIPPED)], read::<RosFile>)
};

impl Robot for RosFile {
    takt_lab::robot_basics!(KIND);

    fn validate(&self) -> Result<(), ConfigError> {
        self.validate()
    }

    fn measures(&self) -> Result<Vec<Measure>, ConfigError> {
        Ok(super::chains::measures(&self.goals()?))
    }

    fn label(&self) -> String {
        self.policy.to_string()
    }

    fn describe(&self) -> String {
        let chains = self.goals().map_or(0, |goals| goals.chains.len());
        format!("{chains} chains, {}", self.policy)
    }

    fn expected_seconds(&self) -> Option<f64> {
        Some(self.expected_seconds())
    }

    fn make_strict(&mut self) {
        self.strict = true;
    }

    fn critical(&self) -> Result<Critical, NoCriticalThread> {
        Err(NoCriticalThread(
            "a ROS 2 system has many critical threads: trace one of them while it runs, with --thread NAME",
        ))
    }

    fn start(
        &self,
        session: &mut Session,
        options: &RunOptions,
        _observe: Observe<'_>,
    ) -> Result<Box<dyn Running>, LabError> {
        let goals = self.goals().map_err(LabError::file(self.name()))?;
        let real = real_nodes(self, session)?;
        // Real nodes bring their own tracepoints.
        let stand_in = self.command.is_none() && real.is_none();
        let probe = ProbeSession::create(&ProbeOptions { stand_in, ..Default::default() })
            .map_err(LabError::robot)?;
        let chains = Chains::open(&goals, session)?;
        let (live, enacts) = manager(self, &goals, &probe, session)?;
        let length = options.length(self.seconds);
        let system = Started::start(self, real.as_ref(), session.dir(), &probe)?;
        Ok(Box::new(Managed {
            file: self.clone(),
            goals,
            chains,
            live,
            enacts,
            length,
            measured: [u64::MAX; 2],
            system,
            costs: Costs::new(&[]),
            baseline: Baseline::default(),
            trouble: None,
            last: None,
            window: Window::default(),
            stop: Arc::clone(&options.stop),
            _probe: probe,
        }))
    }
}

/// A system under the manager, or under a baseline.
struct Managed {
    file: RosFile,
    goals: Goals,
    chains: Chains,
    live: Live<Probe>,
    enacts: bool,
    length: Duration,
    /// The measured window, which the nodes know beforehand.
    measured: [u64; 2],
    system: Started,
    costs: Costs,
    baseline: Baseline,
    /// What ended the system before its time.
    trouble: Option<String>,
    last: Option<Last>,
    window: Window,
    stop: Arc<AtomicBool>,
    // Dropped last: what the nodes' probes write to.
    _probe: ProbeSession,
}

impl Running for Managed {
    fn window(&self) -> &Window {
        &self.window
    }

    fn loaded(&mut self, session: &mut Session) -> Result<(), LabError> {
        let lead = Duration::from_secs_f64(self.file.learn_seconds);
        let (measured_ns, end_ns) = self.system.begin(&self.file, lead, self.length)?;
        self.measured = [measured_ns, end_ns];
        session.header.phases = self.system.phases(&self.file, measured_ns, end_ns);
        self.chains.measured(measured_ns, end_ns);
        self.costs = Costs::new(&session.header.phases);
        self.live.settle();
        Ok(())
    }

    fn is_ready(&self) -> bool {
        let [measured_ns, end_ns] = self.measured;
        (measured_ns..end_ns).contains(&monotonic_ns())
    }

    fn pace(&self) -> Duration {
        POLL
    }

    fn tick(&mut self, _session: &mut Session, open: bool) -> Result<(), LabError> {
        let now_ns = monotonic_ns();
        if now_ns >= self.measured[1] {
            return Ok(());
        }
        self.live.step(now_ns).map_err(LabError::robot)?;
        self.costs.follow(now_ns, &self.live);
        if open && self.enacts {
            self.chains.follow(now_ns, &self.live);
        }
        if self.file.policy == ManagerPolicy::Rr {
            self.baseline.follow(&self.goals, &self.live);
        }
        self.chains.keep(&mut self.live)
    }

    fn line(&mut self) -> String {
        // As often as a user is reported, and no oftener: it asks the kernel for each node.
        self.trouble = self.system.trouble();
        self.live.status(monotonic_ns()).line()
    }

    fn length(&self) -> Option<Duration> {
        Some(self.length)
    }

    fn is_over(&mut self, _elapsed: Duration) -> bool {
        self.trouble.is_some() || monotonic_ns() >= self.measured[1]
    }

    fn closed(&mut self, session: &mut Session) -> Result<(), LabError> {
        std::mem::replace(&mut self.costs, Costs::new(&[])).close(&self.live, session);
        // What holds now; once the nodes have ended there is nothing left to guarantee.
        let (status, plan) = (self.live.status(monotonic_ns()), self.live.plan().cloned());
        self.last = Some(Last { status, plan, model: self.live.model().clone() });
        Ok(())
    }

    fn stop(self: Box<Self>, session: &mut Session, end: &End) -> Result<Conclusion, LabError> {
        let Self { mut chains, mut live, mut system, baseline, trouble, last, stop, _probe, .. } = *self;
        let last = last.ok_or(LabError::Internal("the status of the window's end"))?;
        session.header.problems.extend(end.trouble.clone().or(trouble));
        session.header.problems.extend(system.end(&stop));
        live.source_mut().finish();
        // What had not been read when the nodes ended.
        while live.step(monotonic_ns()).map_err(LabError::robot)? {}
        chains.keep(&mut live)?;
        chains.close(session)?;
        session.header.not_granted.extend(baseline.refused);
        session.note("rr", &baseline.given)?;
        conclude(live, &last, session)?;
        Ok(Conclusion::Common)
    }
}

/// The workload's nodes on `rclcpp`, where they are wanted and there. What runs is said in
/// `run.json`: `nodes`.
fn real_nodes(file: &RosFile, session: &mut Session) -> Result<Option<Nodes>, LabError> {
    if file.command.is_some() {
        return Ok(None);
    }
    let found = match file.nodes {
        NodeKind::Processes => None,
        NodeKind::Auto | NodeKind::Rclcpp => Some(rclcpp::find()),
    };
    let (words, nodes) = match found {
        None => (OWN_NODES.to_owned(), None),
        Some(Ok(nodes)) => {
            let middleware = nodes.middleware.as_deref().unwrap_or("its own middleware");
            (format!("rclcpp of ROS 2 {} on {middleware}", nodes.distribution), Some(nodes))
        }
        Some(Err(missing)) if file.nodes == NodeKind::Rclcpp => {
            return Err(LabError::Config(format!("nodes = \"rclcpp\": {missing}")));
        }
        // Who has ROS 2 sourced should know why it is not what runs.
        Some(Err(missing)) => (format!("{OWN_NODES} ({missing})"), None),
    };
    session.note(NODES_KEY, &words)?;
    Ok(nodes)
}

/// The manager, or its eyes alone for the baselines; and whether it enacts what it plans.
fn manager(
    file: &RosFile,
    goals: &Goals,
    probe: &ProbeSession,
    session: &mut Session,
) -> Result<(Live<Probe>, bool), LabError> {
    let platform = platform(&goals.options).map_err(LabError::robot)?;
    let open = |observe: bool| -> Result<Live<Probe>, live::Error> {
        let probe = probe.probe().map_err(|error| live::Error::Source(Box::new(error)))?;
        let options = live::Options {
            observe,
            log: Log::new(log_file(session.dir(), "manager.log"), log_file(session.dir(), "manager.jsonl")),
            watchdog: Some(takt_lab::watchdog_command),
            ..Default::default()
        };
        Live::new(goals.clone(), platform.clone(), probe, options)
    };
    match open(file.policy != ManagerPolicy::Takt) {
        Ok(live) => Ok((live, file.policy == ManagerPolicy::Takt)),
        Err(error) if file.strict || file.policy != ManagerPolicy::Takt => Err(LabError::robot(error)),
        Err(error) => {
            let live = open(true).map_err(LabError::robot)?;
            session.header.not_granted.push(format!("nothing is reserved: {error}"));
            Ok((live, false))
        }
    }
}

/// A log that cannot be opened is missing from the run directory; the run goes on.
fn log_file(dir: &RunDir, name: &str) -> Option<Box<dyn std::io::Write + Send>> {
    File::create(dir.path().join(name)).ok().map(|file| Box::new(file) as Box<dyn std::io::Write + Send>)
}

/// What runs.
enum Started {
    Workload(Option<workload::Running>),
    Command(Launched),
}

impl Started {
    fn start(
        file: &RosFile,
        real: Option<&Nodes>,
        dir: &RunDir,
        probe: &ProbeSession,
    ) -> Result<Self, LabError> {
        let failed = LabError::Config;
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
        let text = toml::to_string(&system)?;
        std::fs::write(&path, text).map_err(LabError::io(&path))?;
        let environment = probe.environment(std::env::var_os("LD_PRELOAD"));
        let environment: Vec<(OsString, OsString)> =
            environment.into_iter().map(|(name, value)| (name.into(), value)).collect();
        if let Some(nodes) = real {
            let program = nodes.program(&system, probe.directory());
            let program = program.map_err(LabError::io(probe.directory()))?;
            let running = workload::Running::start(&system, &Program { environment, ..program })
                .map_err(LabError::robot)?;
            return Ok(Self::Workload(Some(running)));
        }
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
        let running = workload::Running::start(&system, &Program { path: exe, arguments, environment })
            .map_err(LabError::robot)?;
        Ok(Self::Workload(Some(running)))
    }

    /// Lets it begin. Returns when the measured window begins and ends.
    fn begin(&mut self, file: &RosFile, lead: Duration, length: Duration) -> Result<(u64, u64), LabError> {
        match self {
            Self::Workload(Some(running)) => {
                let window =
                    running.begin(lead, length, file.system().phases.len()).map_err(LabError::robot)?;
                Ok((window.phases_ns, window.end_ns))
            }
            Self::Workload(None) => Ok((0, 0)),
            Self::Command(_) => {
                let from_ns = monotonic_ns() + lead.as_nanos() as u64;
                Ok((from_ns, from_ns + length.as_nanos() as u64))
            }
        }
    }

    /// The load phases of the measured window; none of a command, which reports nothing of its
    /// load.
    fn phases(&self, file: &RosFile, from_ns: u64, to_ns: u64) -> Vec<Phase> {
        let names = match self {
            Self::Workload(_) => file.system().phases,
            Self::Command(_) => Vec::new(),
        };
        let (count, length) = (names.len().max(1) as u128, u128::from(to_ns.saturating_sub(from_ns)));
        let at = |index: usize| from_ns + (length * index as u128 / count) as u64;
        let phase = |(index, name): (usize, String)| Phase { name, from_ns: at(index), to_ns: at(index + 1) };
        if names.len() < 2 { Vec::new() } else { names.into_iter().enumerate().map(phase).collect() }
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
                launched.end_rest();
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
                self.refused.insert(format!("thread {}, SCHED_RR {}: {error}", one.tid, one.priority));
            }
        }
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
    let finished = live.finish().map_err(LabError::robot)?;
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
        put(&format!("false_guarantees.{}", chain.name), chain.run.false_guarantees as f64);
    }
    session.header.doubts.extend(status.chains.iter().filter_map(ChainStatus::doubt));
    session.header.records_lost = status.lost;
    session.header.not_granted.extend(status.differences.iter().cloned());
    let restored = finished.restored.as_ref().filter(|restored| !restored.is_complete());
    session.header.problems.extend(restored.map(ToString::to_string));
    session.note("manager", status)?;
    session.note("plan", &last.plan)?;
    session.note("model", &last.model)
}
