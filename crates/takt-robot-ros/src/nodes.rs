//! The nodes that run: the workload's, as processes of Takt's or on `rclcpp`, or a command's.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use takt_lab::{LabError, Session};
use takt_manager::live::launch::Launched;
use takt_ros::preload::ProbeSession;
use takt_ros_workload::rclcpp::{self, Nodes};
use takt_ros_workload::stamps::path_of;
use takt_ros_workload::{self as workload, Program, Stamped, System};
use takt_rt::clock::monotonic_ns;
use takt_rundir::{Phase, RunDir};

use super::known::Known;
use super::run::POLL;
use super::{NodeKind, RosFile};

/// Key of `run.json` that says what the nodes are.
pub(super) const NODES_KEY: &str = "nodes";
/// Key of `run.json` that says what the load is.
pub(super) const LOAD_KEY: &str = "nodes_load";
const OWN_NODES: &str = "processes of Takt that behave like nodes";
/// Time that a system gets to end on its own.
const GRACE: Duration = Duration::from_secs(5);
/// Folder of a run directory with what the nodes wrote down.
const STAMPS: &str = "stamps";

/// The workload's nodes on `rclcpp`, where they are wanted and there. `run.json` records the
/// choice: `nodes`.
pub(super) fn real_nodes(file: &RosFile, session: &mut Session) -> Result<Option<Nodes>, LabError> {
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
        // Users who have sourced ROS 2 should see the reason why it is not used.
        Some(Err(missing)) => (format!("{OWN_NODES} ({missing})"), None),
    };
    session.note(NODES_KEY, &words)?;
    Ok(nodes)
}

/// The load phases of the measured window; none of a command, which reports nothing of its load.
pub(super) fn phases(known: Option<&Known>, from_ns: u64, to_ns: u64) -> Vec<Phase> {
    let names = known.map(|known| known.system.phases.clone()).unwrap_or_default();
    let (count, length) = (names.len().max(1) as u128, u128::from(to_ns.saturating_sub(from_ns)));
    let at = |index: usize| from_ns + (length * index as u128 / count) as u64;
    let phase = |(index, name): (usize, String)| Phase { name, from_ns: at(index), to_ns: at(index + 1) };
    if names.len() < 2 { Vec::new() } else { names.into_iter().enumerate().map(phase).collect() }
}

/// Notes what the load is, where that is known.
pub(super) fn note_load(file: &RosFile, session: &mut Session) -> Result<(), LabError> {
    let report = file.load_report(session.header.machine.cpu.clone());
    report.map_or(Ok(()), |report| session.note(LOAD_KEY, &report))
}

/// Reads what the nodes wrote down, keeps it in the run directory, and notes what writing it took
/// of a CPU in so many seconds.
pub(super) fn stamps(
    known: &Known,
    place: &Path,
    session: &mut Session,
    seconds: f64,
) -> Result<Stamped, LabError> {
    let kept = session.dir().path().join(STAMPS);
    std::fs::create_dir_all(&kept).map_err(LabError::io(&kept))?;
    for node in &known.system.node {
        let (from, to) = (path_of(place, &node.name), path_of(&kept, &node.name));
        std::fs::copy(&from, &to).map_err(LabError::io(&from))?;
    }
    let stamped = Stamped::read(&known.system, &kept).map_err(LabError::robot)?;
    let figures = &mut session.header.figures;
    figures.insert("stamps".to_owned(), stamped.lines as f64);
    figures.insert("stamps_cpu_share".to_owned(), stamped.write_ns as f64 / 1e9 / seconds.max(1e-9));
    Ok(stamped)
}

/// CPU time of this process in the window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OwnCpu {
    from: Option<(u64, u64)>,
}

impl OwnCpu {
    /// The window begins.
    pub(super) fn begin(&mut self) {
        self.from = Some((monotonic_ns(), takt_rt::clock::process_cpu_ns()));
    }

    /// It ends: the share of a CPU that this process took in it.
    pub(super) fn end(self, session: &mut Session) {
        let Some((at_ns, cpu_ns)) = self.from else { return };
        let (length_ns, used_ns) =
            (monotonic_ns().saturating_sub(at_ns), takt_rt::clock::process_cpu_ns().saturating_sub(cpu_ns));
        let share = used_ns as f64 / length_ns.max(1) as f64;
        session.header.figures.insert("takt_cpu_share".to_owned(), share);
    }
}

/// Fault in a node's end.
fn wrong(ended: workload::launch::Ended) -> Option<String> {
    let node = ended.node;
    match ended.losses {
        None => Some(format!("node {node} ended before its time")),
        Some(losses) if losses.unwritten > 0 => {
            Some(format!("node {node} could not write {} of its stamps: is the disk full?", losses.unwritten))
        }
        Some(_) => None,
    }
}

/// The running system.
pub(super) enum Started {
    Workload(Option<workload::Running>),
    Command(Launched),
}

impl Started {
    /// A command under a probe.
    fn launch(words: &[String], probe: &ProbeSession) -> Result<Self, LabError> {
        let failed = LabError::Config;
        let (program, arguments) =
            words.split_first().ok_or_else(|| failed("command: expected a program".to_owned()))?;
        let mut command = Command::new(program);
        command.args(arguments);
        Launched::start(command, probe)
            .map(Self::Command)
            .map_err(|error| failed(format!("{program}: {error}")))
    }

    /// The command, or the workload, under a probe.
    pub(super) fn observed(
        file: &RosFile,
        known: Option<&Known>,
        real: Option<&Nodes>,
        dir: &RunDir,
        probe: &ProbeSession,
    ) -> Result<Self, LabError> {
        match (&file.command, known) {
            (Some(words), _) => Self::launch(words, probe),
            (None, Some(known)) => {
                let environment = probe.environment(std::env::var_os("LD_PRELOAD"));
                let environment = environment.into_iter().map(|(name, value)| (name.into(), value)).collect();
                Self::workload(&known.system, real, dir, probe.directory(), environment)
            }
            (None, None) => Err(LabError::Internal("a workload that is known")),
        }
    }

    /// The workload. Its nodes meet, and write their stamps, in the folder `place`.
    pub(super) fn workload(
        system: &System,
        real: Option<&Nodes>,
        dir: &RunDir,
        place: &Path,
        environment: Vec<(OsString, OsString)>,
    ) -> Result<Self, LabError> {
        let path = dir.path().join("workload.toml");
        let text = toml::to_string(system)?;
        std::fs::write(&path, text).map_err(LabError::io(&path))?;
        if let Some(nodes) = real {
            let program = nodes.program(system, place).map_err(LabError::io(place))?;
            let running = workload::Running::start(system, &Program { environment, ..program })
                .map_err(LabError::robot)?;
            return Ok(Self::Workload(Some(running)));
        }
        let exe = std::env::current_exe()
            .map_err(|error| LabError::Config(format!("this program's own path: {error}")))?;
        // Sockets go where paths are short.
        let arguments: Vec<OsString> = vec![
            "workload".into(),
            path.into(),
            "--directory".into(),
            place.as_os_str().to_owned(),
            "--node".into(),
        ];
        let running = workload::Running::start(system, &Program { path: exe, arguments, environment })
            .map_err(LabError::robot)?;
        Ok(Self::Workload(Some(running)))
    }

    /// Names of the workload's nodes, and their processes.
    pub(super) fn processes(&self) -> BTreeMap<String, u32> {
        match self {
            Self::Workload(Some(running)) => {
                running.processes().map(|(name, pid)| (name.to_owned(), pid)).collect()
            }
            Self::Workload(None) | Self::Command(_) => BTreeMap::new(),
        }
    }

    /// Lets it begin. Returns when the measured window begins and ends.
    pub(super) fn begin(
        &mut self,
        phases: usize,
        lead: Duration,
        length: Duration,
    ) -> Result<(u64, u64), LabError> {
        match self {
            Self::Workload(Some(running)) => {
                let window = running.begin(lead, length, phases).map_err(LabError::robot)?;
                Ok((window.phases_ns, window.end_ns))
            }
            Self::Workload(None) => Ok((0, 0)),
            Self::Command(_) => {
                let from_ns = monotonic_ns() + lead.as_nanos() as u64;
                Ok((from_ns, from_ns + length.as_nanos() as u64))
            }
        }
    }

    pub(super) fn trouble(&mut self) -> Option<String> {
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
    pub(super) fn end(&mut self, stop: &AtomicBool) -> Vec<String> {
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
                running.wait().into_iter().filter_map(wrong).collect()
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
