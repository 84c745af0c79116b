//! The paper's baselines: the workload under the kernel's fair scheduler, or under SCHED_RR, and
//! nothing of Takt beside it. No extractor, no planner and no probe runs; this process sleeps until
//! the nodes are over. Then it reads what they wrote down.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use takt_lab::keeper::Window;
use takt_lab::robot::{Conclusion, End, Running};
use takt_lab::{LabError, Session};
use takt_manager::Goals;
use takt_ros_workload::rclcpp::Nodes;
use takt_rt::clock::monotonic_ns;
use tempfile::TempDir;

use super::chains::Chains;
use super::known::{Known, Serving};
use super::nodes::{OwnCpu, Started, phases, stamps};
use super::run::POLL;
use super::{ManagerPolicy, RosFile};

/// Between two looks whether all is well, once nothing is left to be done. Long, because each is
/// CPU time that the nodes do not have.
const LOOK: Duration = Duration::from_millis(500);

/// A workload under a baseline.
pub(super) struct Plain {
    known: Known,
    chains: Chains,
    lead: Duration,
    length: Duration,
    /// The measured window, which the nodes know beforehand.
    measured: [u64; 2],
    system: Started,
    /// SCHED_RR priorities of threads that have not been found yet.
    wanted: BTreeMap<Serving, u8>,
    given: Vec<String>,
    refused: BTreeSet<String>,
    cpu: OwnCpu,
    trouble: Option<String>,
    window: Window,
    stop: Arc<AtomicBool>,
    // Dropped last: where the nodes meet.
    place: TempDir,
}

impl Plain {
    pub(super) fn start(
        file: &RosFile,
        (goals, known): (&Goals, Known),
        chains: Chains,
        real: Option<&Nodes>,
        session: &mut Session,
        length: Duration,
    ) -> Result<Self, LabError> {
        let place = meeting_place()?;
        let system = Started::workload(&known.system, real, session.dir(), place.path(), Vec::new())?;
        let wanted = match file.policy {
            ManagerPolicy::Rr => known.priorities(goals),
            _ => BTreeMap::new(),
        };
        Ok(Self {
            known,
            chains,
            lead: Duration::from_secs_f64(file.learn_seconds),
            length,
            measured: [u64::MAX; 2],
            system,
            wanted,
            given: Vec::new(),
            refused: BTreeSet::new(),
            cpu: OwnCpu::default(),
            trouble: None,
            window: Window::default(),
            stop: Arc::default(),
            place,
        })
    }

    pub(super) fn stopped_by(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    /// Gives priorities to threads that are there by now.
    fn give(&mut self) {
        let processes = self.system.processes();
        let (given, refused) = (&mut self.given, &mut self.refused);
        self.wanted.retain(|serving, priority| {
            let Some(one) = serving.given(&processes, *priority) else { return true };
            given.push(format!("process {}, thread {}: SCHED_RR {}", one.pid, one.tid, one.priority));
            if let Err(error) = one.apply() {
                refused.insert(format!("{serving}, SCHED_RR {}: {error}", one.priority));
            }
            false
        });
    }
}

/// Folder in which nodes meet and write, like the probe's sessions: in memory, where nothing is
/// ever written to a disk, otherwise in the temporary directory.
fn meeting_place() -> Result<TempDir, LabError> {
    let make = |base: &Path| tempfile::Builder::new().prefix("takt-nodes-").tempdir_in(base);
    let other = std::env::temp_dir();
    make(Path::new("/dev/shm")).or_else(|_| make(&other)).map_err(LabError::io(&other))
}

impl Running for Plain {
    fn window(&self) -> &Window {
        &self.window
    }

    fn loaded(&mut self, session: &mut Session) -> Result<(), LabError> {
        let count = self.known.system.phases.len();
        let (measured_ns, end_ns) = self.system.begin(count, self.lead, self.length)?;
        self.measured = [measured_ns, end_ns];
        session.header.phases = phases(Some(&self.known), measured_ns, end_ns);
        self.chains.measured(measured_ns, end_ns);
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
        let longest = if self.wanted.is_empty() { LOOK } else { POLL };
        // The window begins when the nodes' does.
        let left_ns = self.measured[0].saturating_sub(monotonic_ns());
        if left_ns == 0 { longest } else { longest.min(Duration::from_nanos(left_ns + 1)) }
    }

    fn tick(&mut self, _session: &mut Session, _open: bool) -> Result<(), LabError> {
        if !self.wanted.is_empty() {
            self.give();
        }
        Ok(())
    }

    fn line(&mut self) -> String {
        self.trouble = self.system.trouble();
        "Takt itself does not run next to the nodes; they write their own log".to_owned()
    }

    fn length(&self) -> Option<Duration> {
        Some(self.length)
    }

    fn is_over(&mut self, _elapsed: Duration) -> bool {
        self.trouble.is_some() || monotonic_ns() >= self.measured[1]
    }

    fn closed(&mut self, session: &mut Session) -> Result<(), LabError> {
        std::mem::take(&mut self.cpu).end(session);
        Ok(())
    }

    fn stop(mut self: Box<Self>, session: &mut Session, end: &End) -> Result<Conclusion, LabError> {
        session.header.problems.extend(end.trouble.clone().or(self.trouble.take()));
        session.header.problems.extend(self.system.end(&self.stop));
        let missing = self.wanted.keys().map(|serving| format!("{serving}: no such thread was found"));
        session.header.not_granted.extend(missing.chain(std::mem::take(&mut self.refused)));
        session.note("rr", &self.given)?;
        let seconds = (self.lead + self.length).as_secs_f64();
        let stamped = stamps(&self.known, self.place.path(), session, seconds)?;
        self.chains.take(&self.known, &stamped)?;
        self.chains.close(session)?;
        Ok(Conclusion::Common)
    }
}
