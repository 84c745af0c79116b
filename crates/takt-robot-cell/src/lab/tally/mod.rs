//! Counts of a running cell in constant memory: every frame, job and reaction exactly, their
//! distributions in recorders of constant size. The summary is computed only from this, so it is
//! the same whether the sample files hold all rows or the first ones.

mod camera;
mod ssm;
mod steal;

use serde::{Deserialize, Serialize};
use takt_stats::{Recorder, RecorderError, Summary};

use crate::reaction::{Joiner, Reaction, Stage};
use crate::records::{FrameRecord, SsmJob};
use crate::ssm::MAX_CAMERAS;

pub use camera::{CameraRule, CameraTally};
pub use ssm::SsmTally;
pub(crate) use ssm::{Change, fault_text};
pub use steal::StealTally;

use super::worker_rows::WorkerTally;

/// File of the tally in the run directory.
pub const TALLY_FILE: &str = "cell-tally.json";

/// Rules for the records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// Deadline of the critical path, nanoseconds.
    pub reaction_deadline_ns: u64,
    /// Period of the SSM task, nanoseconds.
    pub ssm_period_ns: u64,
    pub ssm_deadline_ns: u64,
    /// Deadline of a perception task, from the arrival of the frame to the publication of its
    /// result.
    pub perception_deadline_ns: u64,
    pub cameras: Vec<CameraRule>,
}

/// Whether a time lies in a window.
pub(super) fn inside([from_ns, to_ns]: [u64; 2], at_ns: u64) -> bool {
    (from_ns..to_ns).contains(&at_ns)
}

pub(super) fn in_units_of(ns: f64, recorder: &Recorder) -> Summary {
    let s = recorder.summary();
    let scaled = |value: f64| value / ns;
    Summary {
        count: s.count,
        mean: scaled(s.mean),
        stddev: scaled(s.stddev),
        min: scaled(s.min),
        median: scaled(s.median),
        p90: scaled(s.p90),
        p99: scaled(s.p99),
        p999: scaled(s.p999),
        worst: scaled(s.worst),
    }
}

/// The counts of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Tally {
    /// Rules for the records.
    pub rules: Rules,
    /// Each camera and its perception task.
    pub cameras: Vec<CameraTally>,
    /// The SSM task and what it decided.
    pub ssm: SsmTally,
    /// Reaction times within the window.
    pub reaction: Recorder,
    /// Stages of the reactions, in order.
    pub stages: Vec<Recorder>,
    /// Reactions whose result was replaced before a job read it.
    pub superseded: u64,
    /// Most people in one frame of one camera.
    pub people_at_once: u32,
    /// The perception process.
    pub worker: WorkerTally,
    /// When the hypervisor took CPU time.
    pub steal: StealTally,
    /// Records that found their ring full.
    #[serde(default)]
    pub lost: u64,
    #[serde(skip)]
    joiner: Joiner,
}

impl Tally {
    /// Nothing counted yet.
    ///
    /// # Errors
    /// As [`Recorder::compact`].
    pub fn new(rules: Rules) -> Result<Self, RecorderError> {
        let deadline_ns = rules.reaction_deadline_ns;
        let cameras = rules.cameras.iter().take(MAX_CAMERAS);
        Ok(Self {
            cameras: cameras.map(|_| CameraTally::new(&rules)).collect::<Result<_, _>>()?,
            ssm: SsmTally::new(rules.ssm_deadline_ns)?,
            reaction: Recorder::compact(Some(deadline_ns))?,
            stages: Stage::ALL.iter().map(|_| Recorder::compact(None)).collect::<Result<_, _>>()?,
            superseded: 0,
            people_at_once: 0,
            worker: WorkerTally::new()?,
            steal: StealTally::default(),
            lost: 0,
            joiner: Joiner::new(),
            rules,
        })
    }

    /// The counts of a run that goes on after a kill: cameras and tasks begin anew, so that nothing
    /// is missing between their last records and the next. Frames that waited for their answer when
    /// the kill came have none, and never will.
    pub fn going_on(mut self) -> Self {
        self.cameras.iter_mut().for_each(CameraTally::begin_anew);
        self.ssm.begin_anew();
        self
    }

    /// The configured name of a camera; its number where it has none.
    pub(crate) fn camera_name(&self, camera: u32) -> String {
        let rule = self.rules.cameras.get(camera as usize);
        rule.map_or_else(|| (camera + 1).to_string(), |rule| rule.name.clone())
    }

    /// Takes a frame's record; `out` gets the reactions that are complete with it.
    pub fn frame(&mut self, frame: &FrameRecord, window_ns: [u64; 2], out: &mut impl FnMut(&Reaction)) {
        let Self { rules, cameras, joiner, .. } = self;
        let index = frame.camera as usize;
        let (Some(camera), Some(rule)) = (cameras.get_mut(index), rules.cameras.get(index)) else { return };
        camera.frame(frame, rule, rules.perception_deadline_ns, window_ns, &mut self.steal);
        if inside(window_ns, frame.arrival_ns) {
            self.people_at_once = self.people_at_once.max(frame.people);
        }
        let mut done = Done::default();
        if let Some(given_up) = joiner.frame(*frame, &mut |reaction| done.push(reaction)) {
            camera.given_up(&given_up, rules.reaction_deadline_ns, window_ns);
        }
        self.answered(done, window_ns, out);
    }

    /// Takes a job's record.
    pub fn job(&mut self, job: &SsmJob, window_ns: [u64; 2], out: &mut impl FnMut(&Reaction)) {
        self.ssm.job(job, &self.rules, &mut self.cameras, window_ns, &mut self.steal);
        let mut done = Done::default();
        self.joiner.job(job, &mut |reaction| done.push(reaction));
        self.answered(done, window_ns, out);
    }

    fn answered(&mut self, done: Done, window_ns: [u64; 2], out: &mut impl FnMut(&Reaction)) {
        for reaction in done {
            if let Some(camera) = self.cameras.get_mut(reaction.frame.camera as usize) {
                camera.answered(reaction.job_end_ns, self.rules.reaction_deadline_ns, window_ns);
            }
            if inside(window_ns, reaction.frame.arrival_ns) {
                self.count(&reaction);
            }
            out(&reaction);
        }
    }

    fn count(&mut self, reaction: &Reaction) {
        let took_ns = reaction.reaction_ns();
        self.reaction.record(took_ns);
        if took_ns > self.rules.reaction_deadline_ns {
            self.steal.miss(reaction.frame.arrival_ns, reaction.job_end_ns, 1);
        }
        self.superseded += u64::from(reaction.superseded);
        let stages = reaction.stages_ns();
        for ((recorder, ns), stage) in self.stages.iter_mut().zip(stages).zip(Stage::ALL) {
            if stage != Stage::Acknowledged || reaction.acknowledged_ns.is_some() {
                recorder.record(ns);
            }
        }
        if let Some(camera) = self.cameras.get_mut(reaction.frame.camera as usize) {
            camera.reaction.record(took_ns);
        }
    }

    /// Counts what lies between the last records and the window's end, and what was never answered.
    /// No record may come after.
    pub fn finish(&mut self, window_ns: [u64; 2], out: &mut impl FnMut(&Reaction)) {
        let mut last = Vec::new();
        let open = std::mem::take(&mut self.joiner).finish(&mut |reaction| last.push(reaction));
        for reaction in last {
            self.answered(Done::from(reaction), window_ns, out);
        }
        // A task that died must not make the frames after its death look punctual.
        let [_, to_ns] = window_ns;
        let end_ns = self.ssm.last_end_ns().max(to_ns);
        for frame in &open {
            if let Some(camera) = self.cameras.get_mut(frame.camera as usize) {
                camera.unanswered(frame, end_ns, self.rules.reaction_deadline_ns, window_ns);
            }
        }
        for (camera, rule) in self.cameras.iter_mut().zip(&self.rules.cameras) {
            camera.finish(end_ns, rule, self.rules.reaction_deadline_ns, window_ns);
        }
        self.ssm.finish(self.rules.ssm_period_ns, window_ns);
    }

    /// Records that wait for their counterpart.
    pub fn waiting(&self) -> usize {
        self.joiner.waiting() + self.cameras.iter().map(CameraTally::waiting).sum::<usize>()
    }
}

/// Reactions that one record completed: mostly one, so that none is allocated for.
#[derive(Default)]
struct Done {
    first: Option<Reaction>,
    more: Vec<Reaction>,
}

impl Done {
    fn push(&mut self, reaction: Reaction) {
        match &self.first {
            None => self.first = Some(reaction),
            Some(_) => self.more.push(reaction),
        }
    }
}

impl From<Reaction> for Done {
    fn from(reaction: Reaction) -> Self {
        Self { first: Some(reaction), more: Vec::new() }
    }
}

impl IntoIterator for Done {
    type Item = Reaction;
    type IntoIter = std::iter::Chain<std::option::IntoIter<Reaction>, std::vec::IntoIter<Reaction>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}
