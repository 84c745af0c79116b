//! The SSM task: its releases, and what its jobs decided.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use takt_lab::releases::grid;
use takt_stats::{Recorder, RecorderError};

use super::{CameraTally, Rules, StealTally, inside};
use crate::records::SsmJob;
use crate::ssm::{Decision, Fault, Light};

/// The counts of the SSM task, of releases planned within the window.
#[derive(Debug, Serialize, Deserialize)]
pub struct SsmTally {
    pub jobs: u64,
    /// Releases without a job.
    pub skipped: u64,
    /// Jobs that ended after their deadline.
    pub late: u64,
    /// Commands that could not be handed to the kernel whole.
    pub not_sent: u64,
    /// Planned release to wake-up.
    pub lateness: Recorder,
    /// Planned release to the end of the job.
    pub response: Recorder,
    /// Longest time from the end of a job to the next wake-up, nanoseconds.
    pub longest_pause_ns: u64,
    /// Jobs that saw a breach and did not stop the robot.
    pub breaches_not_stopped: u64,
    /// Jobs that did not trust their inputs.
    pub distrusting: u64,
    /// Those jobs by fault.
    pub faults: BTreeMap<String, u64>,
    /// Number of times that the robot was stopped from motion, by cause.
    pub stop_causes: BTreeMap<String, u64>,
    /// Jobs by light.
    pub lights: BTreeMap<String, u64>,
    /// From the publication of a breach to the end of the job that stopped the robot.
    pub breach_to_stop: Recorder,
    last: Option<Last>,
    moving: bool,
    /// What the last job within the window changed, for whoever tells it.
    #[serde(skip)]
    pub(crate) change: Option<Change>,
}

/// A change that those who operate the robot are told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The robot was brought from moving to standing, for this cause.
    Stopped(String),
    /// From standing to moving.
    GoesOn,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Last {
    index: u64,
    planned_ns: u64,
    end_ns: u64,
}

/// A fault in words, its camera by name.
pub(crate) fn fault_text(fault: &Fault, name: impl Fn(u32) -> String) -> String {
    match fault.camera {
        Some(camera) => format!("{} (camera {})", fault.kind.text(), name(camera)),
        None => fault.kind.text().to_owned(),
    }
}

impl SsmTally {
    pub(super) fn new(deadline_ns: u64) -> Result<Self, RecorderError> {
        Ok(Self {
            jobs: 0,
            skipped: 0,
            late: 0,
            not_sent: 0,
            lateness: Recorder::compact(Some(deadline_ns))?,
            response: Recorder::compact(Some(deadline_ns))?,
            longest_pause_ns: 0,
            breaches_not_stopped: 0,
            distrusting: 0,
            faults: BTreeMap::new(),
            stop_causes: BTreeMap::new(),
            lights: BTreeMap::new(),
            breach_to_stop: Recorder::compact(None)?,
            last: None,
            moving: false,
            change: None,
        })
    }

    /// The task starts again, and its grid with it; so does the robot, from standing.
    pub(super) fn begin_anew(&mut self) {
        self.last = None;
        self.moving = false;
    }

    /// End of the last job, 0 without one.
    pub(super) fn last_end_ns(&self) -> u64 {
        self.last.map_or(0, |last| last.end_ns)
    }

    pub(super) fn job(
        &mut self,
        job: &SsmJob,
        rules: &Rules,
        cameras: &mut [CameraTally],
        window_ns: [u64; 2],
        steal: &mut StealTally,
    ) {
        self.since_last(job, rules.ssm_period_ns, window_ns, steal);
        self.last = Some(Last { index: job.index, planned_ns: job.planned_ns, end_ns: job.end_ns });
        let consumed = cameras.iter_mut().zip(job.input_sequences);
        let nearest = job.decision.nearest_camera.map_or(usize::MAX, |camera| camera as usize);
        let mut published_ns = None;
        for (index, (camera, sequence)) in consumed.enumerate() {
            let found = camera.published_ns(sequence);
            if index == nearest {
                published_ns = found;
            }
        }
        self.change = None;
        if !inside(window_ns, job.planned_ns) {
            return;
        }
        let response_ns = job.end_ns.saturating_sub(job.planned_ns);
        self.jobs += 1;
        self.lateness.record(job.wake_ns.saturating_sub(job.planned_ns));
        self.response.record(response_ns);
        if response_ns > rules.ssm_deadline_ns {
            self.late += 1;
            steal.miss(job.planned_ns, job.end_ns, 1);
        }
        self.not_sent += u64::from(!job.sent.is_sent());
        let name = |camera: u32| {
            rules
                .cameras
                .get(camera as usize)
                .map_or_else(|| (camera + 1).to_string(), |rule| rule.name.clone())
        };
        self.decided(&job.decision, job.end_ns, published_ns, name);
    }

    fn decided(
        &mut self,
        decision: &Decision,
        end_ns: u64,
        published_ns: Option<u64>,
        name: impl Fn(u32) -> String,
    ) {
        self.breaches_not_stopped += u64::from(decision.breach && !decision.stop);
        let light = match decision.light {
            Light::Green => "green",
            Light::Orange => "orange",
            Light::Red => "red",
        };
        match self.lights.get_mut(light) {
            Some(jobs) => *jobs += 1,
            None => drop(self.lights.insert(light.to_owned(), 1)),
        }
        let fault = decision.fault.map(|fault| fault_text(&fault, name));
        if let Some(fault) = &fault {
            self.distrusting += 1;
            *self.faults.entry(fault.clone()).or_default() += 1;
        }
        if self.moving && decision.stop {
            let breach = decision.breach && fault.is_none();
            let cause = fault.unwrap_or_else(|| "separation".to_owned());
            self.change = Some(Change::Stopped(cause.clone()));
            *self.stop_causes.entry(cause).or_default() += 1;
            if let Some(published_ns) = published_ns.filter(|_| breach) {
                self.breach_to_stop.record(end_ns.saturating_sub(published_ns));
            }
        }
        if !self.moving && !decision.stop {
            self.change = Some(Change::GoesOn);
        }
        self.moving = !decision.stop;
    }

    /// Releases between the job before and this one.
    fn since_last(&mut self, job: &SsmJob, period_ns: u64, window_ns: [u64; 2], steal: &mut StealTally) {
        let [from_ns, to_ns] = window_ns;
        let (skipped, since_ns) = match self.last {
            Some(last) => {
                let between = job.index.saturating_sub(last.index.saturating_add(1));
                let first_ns = job.planned_ns.saturating_sub(between.saturating_mul(period_ns));
                let skipped = grid(first_ns, period_ns, from_ns, to_ns.min(job.planned_ns)).min(between);
                (skipped, last.end_ns)
            }
            // It should have been running when the window opened.
            None => (job.planned_ns.min(to_ns).saturating_sub(from_ns) / period_ns.max(1), from_ns),
        };
        self.pause(since_ns, job.wake_ns, window_ns);
        if skipped > 0 {
            self.skipped += skipped;
            steal.miss(since_ns, job.wake_ns, skipped);
        }
    }

    fn pause(&mut self, since_ns: u64, until_ns: u64, [from_ns, to_ns]: [u64; 2]) {
        let pause_ns = until_ns.min(to_ns).saturating_sub(since_ns.max(from_ns));
        self.longest_pause_ns = self.longest_pause_ns.max(pause_ns);
    }

    /// The window is over: releases after the last job have none.
    pub(super) fn finish(&mut self, period_ns: u64, window_ns: [u64; 2]) {
        let [from_ns, to_ns] = window_ns;
        match self.last {
            Some(last) => {
                self.skipped += grid(last.planned_ns.saturating_add(period_ns), period_ns, from_ns, to_ns);
                self.pause(last.end_ns, to_ns, window_ns);
            }
            None => {
                self.skipped += to_ns.saturating_sub(from_ns) / period_ns.max(1);
                self.pause(from_ns, to_ns, window_ns);
            }
        }
    }
}
