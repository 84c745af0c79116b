//! Running a ROS 2 system under the manager or a baseline.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use takt_lab::keeper::Window;
use takt_lab::options::RunOptions;
use takt_lab::robot::{
    Conclusion, Critical, End, NoCriticalThread, Observe, Robot, RobotKind, Running, read,
};
use takt_lab::{ConfigError, LabError, Session};
use takt_manager::enact::platform;
use takt_manager::live::{self, ChainStatus, Live, Log, Status};
use takt_manager::{Goals, Plan};
use takt_model::Model;
use takt_ros::preload::{Probe, ProbeOptions, ProbeSession};
use takt_rt::clock::monotonic_ns;
use takt_rundir::{Measure, RunDir};

use super::baseline::criticality_monotonic;
use super::chains::Chains;
use super::costs::Costs;
use super::known::Known;
use super::nodes::{OwnCpu, Started, note_load, phases, real_nodes, stamps};
use super::plain::Plain;
use super::{ManagerPolicy, RosFile, SHIPPED};

/// Between two looks at the events, as the manager does by itself.
pub(super) const POLL: Duration = Duration::from_millis(25);
/// A ROS 2 system as a registry lists it.
pub static KIND: RobotKind = RobotKind {
    campaigns: &[("manager", include_str!("../../../campaigns/manager.toml"))],
    goals: &[("turtlebot", include_str!("../../../goals/turtlebot.toml"))],
    cannot_resume: Some(
        "its nodes are separate programs that restart with the first phase of their load, and the manager's models describe the killed \
         processes",
    ),
    report: Some(&super::paper::RosPaper),
    ..RobotKind::new("ros", &[("ros", SHIPPED), ("turtlebot", SHIPPED)], read::<RosFile>)
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
        note_load(self, session)?;
        let known = self.command.is_none().then(|| {
            let (known, wrong) = Known::new(self.system(), &goals);
            session.header.problems.extend(wrong);
            known
        });
        let length = options.length(self.seconds);
        let chains = Chains::open(&goals, session)?;
        if let (Some(known), ManagerPolicy::Rr | ManagerPolicy::Cfs) = (&known, self.policy) {
            let plain = Plain::start(self, (&goals, known.clone()), chains, real.as_ref(), session, length)?;
            return Ok(Box::new(plain.stopped_by(Arc::clone(&options.stop))));
        }
        // Real nodes bring their own tracepoints.
        let stand_in = self.command.is_none() && real.is_none();
        let probe = ProbeSession::create(&ProbeOptions { stand_in, ..Default::default() })
            .map_err(LabError::robot)?;
        let (live, enacts) = manager(self, &goals, &probe, session)?;
        let system = Started::observed(self, known.as_ref(), real.as_ref(), session.dir(), &probe)?;
        Ok(Box::new(Managed {
            file: self.clone(),
            goals,
            known,
            chains,
            live,
            enacts,
            length,
            measured: [u64::MAX; 2],
            system,
            costs: Costs::new(&[]),
            cpu: OwnCpu::default(),
            baseline: Baseline::default(),
            trouble: None,
            last: None,
            window: Window::default(),
            stop: Arc::clone(&options.stop),
            probe,
        }))
    }
}

/// A system under the manager, or a command's under a baseline, whose nodes write nothing down.
struct Managed {
    file: RosFile,
    goals: Goals,
    /// The workload, whose nodes write down what they do; `None`: a command's.
    known: Option<Known>,
    chains: Chains,
    live: Live<Probe>,
    enacts: bool,
    length: Duration,
    /// The measured window, which the nodes know beforehand.
    measured: [u64; 2],
    system: Started,
    costs: Costs,
    cpu: OwnCpu,
    baseline: Baseline,
    /// Fault that ended the system early.
    trouble: Option<String>,
    last: Option<Last>,
    window: Window,
    stop: Arc<AtomicBool>,
    // Dropped last: what the nodes' probes write to.
    probe: ProbeSession,
}

impl Running for Managed {
    fn window(&self) -> &Window {
        &self.window
    }

    fn loaded(&mut self, session: &mut Session) -> Result<(), LabError> {
        let lead = Duration::from_secs_f64(self.file.learn_seconds);
        let count = self.known.as_ref().map_or(0, |known| known.system.phases.len());
        let (measured_ns, end_ns) = self.system.begin(count, lead, self.length)?;
        self.measured = [measured_ns, end_ns];
        session.header.phases = phases(self.known.as_ref(), measured_ns, end_ns);
        self.chains.measured(measured_ns, end_ns);
        self.costs = Costs::new(&session.header.phases);
        self.live.settle();
        Ok(())
    }

    fn is_ready(&self) -> bool {
        let [measured_ns, end_ns] = self.measured;
        (measured_ns..end_ns).contains(&monotonic_ns())
    }

    fn begun(&mut self, _session: &mut Session, _from_ns: u64) -> Result<(), LabError> {
        self.cpu.begin();
        Ok(())
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
        self.keep()
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
        std::mem::take(&mut self.cpu).end(session);
        std::mem::replace(&mut self.costs, Costs::new(&[])).close(&self.live, session);
        // The present state; once the nodes have ended, there is nothing left to guarantee.
        let (status, plan) = (self.live.status(monotonic_ns()), self.live.plan().cloned());
        self.last = Some(Last { status, plan, model: self.live.model().clone() });
        Ok(())
    }

    fn stop(mut self: Box<Self>, session: &mut Session, end: &End) -> Result<Conclusion, LabError> {
        session.header.problems.extend(end.trouble.clone().or(self.trouble.take()));
        session.header.problems.extend(self.system.end(&self.stop));
        self.live.source_mut().finish();
        // Events that had not been read when the nodes ended.
        while self.live.step(monotonic_ns()).map_err(LabError::robot)? {}
        self.keep()?;
        let Self { file, known, mut chains, live, baseline, last, probe, length, .. } = *self;
        let last = last.ok_or(LabError::Internal("the status of the window's end"))?;
        if let Some(known) = &known {
            let seconds = file.learn_seconds + length.as_secs_f64();
            chains.take(known, &stamps(known, probe.directory(), session, seconds)?)?;
        }
        chains.close(session)?;
        session.header.not_granted.extend(baseline.refused);
        session.note("rr", &baseline.given)?;
        conclude(live, &last, session, known.is_none())?;
        Ok(Conclusion::Common)
    }
}

impl Managed {
    /// Takes what the manager saw of the chains: what counts of a command's, and nothing where the
    /// nodes write down themselves what they do.
    fn keep(&mut self) -> Result<(), LabError> {
        if self.known.is_none() {
            return self.chains.keep(&mut self.live);
        }
        self.live.completions();
        self.live.skips();
        Ok(())
    }
}

/// The manager, or its eyes alone for a command's baselines; and whether it enacts what it plans.
fn manager(
    file: &RosFile,
    goals: &Goals,
    probe: &ProbeSession,
    session: &mut Session,
) -> Result<(Live<Probe>, bool), LabError> {
    let mut goals = goals.clone();
    let plans = file.policy.manager();
    // Before the platform, which may depend on it.
    if let Some(policy) = plans {
        goals.options.policy = policy;
    }
    let platform = platform(&goals.options).map_err(LabError::robot)?;
    let open = |observe: bool| -> Result<Live<Probe>, live::Error> {
        let probe = probe.probe().map_err(|error| live::Error::Source(Box::new(error)))?;
        let options = live::Options {
            observe,
            log: Log::new(log_file(session.dir(), "manager.log"), log_file(session.dir(), "manager.jsonl"))
                .informing(Box::new(crate::notices::report)),
            watchdog: Some(takt_lab::watchdog_command),
            ..Default::default()
        };
        Live::new(goals.clone(), platform.clone(), probe, options)
    };
    match open(plans.is_none()) {
        Ok(live) => Ok((live, plans.is_some())),
        Err(error) if file.strict || plans.is_none() => Err(LabError::robot(error)),
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

/// The RR baseline of a command, renewed with every plan.
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

/// Ends the manager, restores the system, and keeps what it did and cost. `counts`: what it saw of
/// the chains is what counts.
fn conclude(live: Live<Probe>, last: &Last, session: &mut Session, counts: bool) -> Result<(), LabError> {
    let finished = live.finish().map_err(LabError::robot)?;
    let status = &last.status;
    let figures = &mut session.header.figures;
    let plans = status.plans.max(1) as f64;
    let mut put = |name: &str, value: f64| figures.insert(name.to_owned(), value);
    put("manager_cpu_share", status.cost.cpu_share);
    let extracted_ns = status.cost.extract_ns.saturating_add(status.cost.model_ns);
    put("extract_cpu_share", extracted_ns as f64 / status.running_ns.max(1) as f64);
    put("analysis_ms", status.cost.worst_analysis_ns as f64 / 1e6);
    put("extract_ms_per_plan", status.cost.extract_ns as f64 / 1e6 / plans);
    put("model_ms_per_plan", status.cost.model_ns as f64 / 1e6 / plans);
    put("plan_ms_per_plan", status.cost.plan_ns as f64 / 1e6 / plans);
    let processing_ns = status.cost.model_ns + status.cost.reading_ns;
    put("processing_ms_per_plan", processing_ns as f64 / 1e6 / plans);
    put("budgeting_ms_per_plan", status.cost.budgeting_ns as f64 / 1e6 / plans);
    put("timing_ms_per_plan", status.cost.timing_ns as f64 / 1e6 / plans);
    put("enact_ms_per_plan", status.cost.enact_ns as f64 / 1e6 / plans);
    put("plans", status.plans as f64);
    put("events", status.events as f64);
    for chain in &status.chains {
        if counts {
            put(&format!("dropped.{}", chain.name), chain.dropped as f64);
        }
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
