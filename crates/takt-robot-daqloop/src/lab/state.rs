//! A run's knowledge of all its edges, in constant memory, which must survive a kill.

use serde::{Deserialize, Serialize};
use takt_lab::LabError;
use takt_rundir::{Draft, RunDir};
use takt_stats::{MaxTrend, MeanTrend, Recorder, Stop, Stopped};

use super::keep::Flushed;
use super::late::LateKept;
use super::standing::Standing;
use crate::DaqConfig;
use crate::EdgeRecord;

/// Its file in the run directory. The names of its first four keys are those that reports look for.
pub const STATE_FILE: &str = "latency.json";

/// Every edge, counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// Latencies of the edges that came.
    pub recorder: Recorder,
    /// Growth of the maximum.
    pub max_trend: MaxTrend,
    /// Development of the mean.
    pub mean_trend: MeanTrend,
    /// Measured time, nanoseconds, without the gaps between a kill and a resumption.
    pub elapsed_ns: u64,
    /// Times from the output's write to the arrival; none in states of earlier versions.
    #[serde(default)]
    pub link: Option<Recorder>,
    /// Execution times of the controller; absent without one.
    pub controller: Option<Recorder>,
    /// The stop rules.
    pub stop: Stop,
    /// Number of the next edge: how many there were, lost ones included.
    pub next_index: u64,
    /// Edges that never came.
    pub lost_edges: u64,
    /// Releases that did not run; nothing in states of earlier versions.
    #[serde(default)]
    pub standing: Standing,
    /// The late edges; none in states of earlier versions.
    #[serde(default)]
    pub late: LateKept,
    /// Levels that the link sent again.
    pub resends: u64,
    /// When the last edge was sent (CLOCK_MONOTONIC).
    pub last_sent_ns: u64,
    /// Number of times that the run was resumed.
    pub resumed: u32,
}

impl State {
    /// Nothing seen yet.
    ///
    /// # Errors
    /// [`LabError::Robot`] for stop rules that cannot be.
    pub fn new(file: &DaqConfig) -> Result<Self, LabError> {
        Ok(Self {
            recorder: Recorder::new(file.deadline_ns())?,
            max_trend: MaxTrend::default(),
            mean_trend: MeanTrend::default(),
            elapsed_ns: 0,
            link: Some(Recorder::new(None)?),
            controller: if file.controller.kind() == "none" { None } else { Some(Recorder::new(None)?) },
            stop: Stop::new(file.stop_config()).map_err(LabError::robot)?,
            next_index: 0,
            lost_edges: 0,
            standing: Standing::new(file),
            late: LateKept::new(file),
            resends: 0,
            last_sent_ns: 0,
            resumed: 0,
        })
    }

    /// Takes in an edge of number `index`, sent `elapsed_ns` after the run began. Says why the run
    /// should end, once it should.
    pub fn push(&mut self, index: u64, elapsed_ns: u64, edge: &EdgeRecord) -> Option<Stopped> {
        self.next_index = index + 1;
        self.elapsed_ns = self.elapsed_ns.max(elapsed_ns);
        self.last_sent_ns = edge.sent_ns;
        self.resends += u64::from(edge.resends);
        self.standing.edge(edge);
        if let Some(controller) = &mut self.controller {
            controller.record(edge.controller_ns);
        }
        if !edge.arrived {
            self.lost_edges += 1;
            return None;
        }
        self.recorder.record(edge.latency_ns);
        if let Some(link) = &mut self.link {
            link.record(edge.link_ns());
        }
        self.max_trend.push(elapsed_ns, edge.latency_ns);
        self.mean_trend.push(elapsed_ns, edge.latency_ns);
        self.stop.push(elapsed_ns, edge.latency_ns)
    }

    /// A few words for people.
    pub fn line(&self) -> String {
        let (mean_us, max_us) = (self.recorder.mean_ns() / 1e3, self.recorder.max_ns() as f64 / 1e3);
        let lost = match self.lost_edges {
            0 => String::new(),
            lost => format!(", {lost} lost"),
        };
        format!("{} edges, mean {mean_us:.2} us, max {max_us:.2} us{lost}", self.recorder.count())
    }

    /// Puts it into a checkpoint, with what of the sample files belongs to it.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub(super) fn keep(&self, flushed: &Flushed, mut draft: Draft) -> Result<Draft, LabError> {
        flushed.rows.iter().for_each(|(name, rows, sum)| draft.rows(name, *rows, sum.clone()));
        draft.elapsed_ns(self.elapsed_ns);
        draft.file(STATE_FILE, self)?;
        Ok(draft)
    }

    /// State left by the last run; None if it did not write any.
    ///
    /// # Errors
    /// [`LabError::Files`] for a damaged file.
    pub fn read(dir: &RunDir) -> Result<Option<Self>, LabError> {
        Ok(dir.find_json(STATE_FILE)?)
    }
}
