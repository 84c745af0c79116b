//! Figures of one run of the cell, computed from its run directory alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use takt_lab::LabError;
use takt_rundir::CpuShare;
use takt_rundir::{RUN_FILE, RunDir};
use takt_stats::{Recorder, Summary, Verdict, VerdictReport};

use super::losses::{CellLosses, NOT_DELIVERED};
use super::scale::Scaled;
use super::tally::{CameraTally, TALLY_FILE, Tally, in_units_of};
use super::verdict::{Found, found};
use super::work::Work;
use super::worker_rows::{WorkerFactsShort, WorkerSummary};
use crate::reaction::{Reaction, Stage};
use crate::ssm::ProtectiveTerm;

/// Inputs of the summary from `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunFacts {
    /// Scheduler configuration.
    pub policy: String,
    /// Noise threads.
    pub noise: u32,
    pub cameras: u32,
    /// Deadline of the critical path, milliseconds.
    pub deadline_ms: f64,
    /// Frames count whose arrival lies in this window, CLOCK_MONOTONIC nanoseconds.
    pub window_ns: [u64; 2],
    /// Measured time of the parts before a resumption, nanoseconds.
    #[serde(default)]
    pub before_ns: u64,
    /// Records that found their ring full.
    pub records_lost: u64,
    /// Settings asked for and not granted.
    pub not_granted: Vec<String>,
    /// Processor time during the window.
    pub cpu: CpuShare,
    /// Reduction because this machine cannot carry the full load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled: Option<Scaled>,
    /// Faults that fail the run, one sentence each: those that left no record because nothing
    /// arrived.
    #[serde(default)]
    pub failures: Vec<String>,
    /// Reasons that keep a run without a miss from a PASS.
    #[serde(default)]
    pub doubts: Vec<String>,
    /// Longest time between two looks of the thread that times the run, milliseconds; they are 50
    /// ms apart.
    #[serde(default)]
    pub longest_still_ms: f64,
    /// Frames that the shared detector looked at within the window.
    #[serde(default)]
    pub detector_runs: u64,
    /// Frames that the visualisation tasks drew within the window, where there are such tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visualised: Option<u64>,
    /// Limits of losses.
    #[serde(default)]
    pub losses: CellLosses,
    /// Number of losses of the robot link.
    #[serde(default)]
    pub link_losses: u64,
    /// The perception process, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerFactsShort>,
}

/// Figures of one camera.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CameraSummary {
    /// Index.
    pub camera: u32,
    /// Name in the configuration.
    #[serde(default)]
    pub name: String,
    /// Frames judged.
    pub frames: u64,
    /// Frames of the source that were never taken up: gaps in its sequence.
    pub dropped: u64,
    /// Frames taken up that could not be judged, by reason. They are no reactions.
    #[serde(default)]
    pub unjudged: BTreeMap<String, u64>,
    /// Frames that the camera should have delivered and did not.
    #[serde(default)]
    pub missing: u64,
    /// Longest time without a frame, milliseconds.
    #[serde(default)]
    pub longest_silence_ms: f64,
    /// People found, summed over the frames.
    pub people: u64,
    /// Reaction time, milliseconds.
    pub reaction_ms: Summary,
    /// Reactions later than the deadline.
    pub misses: u64,
}

/// Figures of the SSM task.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SsmSummary {
    pub jobs: u64,
    /// Releases on the grid that were skipped because an earlier job was late.
    pub skipped: u64,
    /// Wake-up minus planned release, microseconds.
    pub lateness_us: Summary,
    /// Job end minus planned release, microseconds.
    pub response_us: Summary,
    /// Releases that missed the deadline: jobs that ended after it, and skipped ones.
    pub misses: u64,
    /// Jobs that ended after their deadline.
    #[serde(default)]
    pub late: u64,
    /// Longest time from the end of a job to the next wake-up, milliseconds.
    #[serde(default)]
    pub longest_pause_ms: f64,
    /// Commands that could not be handed to the kernel whole.
    pub not_sent: u64,
}

/// A task of Table I against its deadline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskSummary {
    /// Name of its thread: `ssm`, `perception-0`.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub camera: Option<String>,
    /// Deadline after the release, milliseconds.
    pub deadline_ms: f64,
    /// Releases in the window: those of the grid, or the arrivals of frames.
    pub releases: u64,
    /// Jobs that gave a result; a frame that could not be judged is none.
    pub jobs: u64,
    /// Releases that missed the deadline: late jobs and skipped releases.
    pub misses: u64,
    /// Jobs that ended after the deadline.
    pub late: u64,
    /// Releases without a job: the job before was not over, or a newer frame took the place.
    pub skipped: u64,
    /// Longest response time, milliseconds; null without a job.
    pub worst_ms: Option<f64>,
}

/// Figures of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CellSummary {
    /// Did every reaction and every task meet its deadline, and was nothing lost.
    pub verdict: Verdict,
    pub reasons: Vec<String>,
    /// Both in one sentence: the same in reports, benches, campaigns and comparisons.
    #[serde(default)]
    pub sentence: String,
    /// Deadline of the critical path, milliseconds.
    pub deadline_ms: f64,
    /// Scheduler configuration.
    pub policy: String,
    /// Noise threads.
    pub noise: u32,
    pub cameras: u32,
    /// Length of the measured window, seconds.
    pub seconds: f64,
    /// Frames judged in the window.
    pub frames: u64,
    /// Frames of the sources that were never judged: a newer one took their place, or the driver
    /// was late.
    pub frames_dropped: u64,
    /// People found, summed over the judged frames.
    pub people_detected: u64,
    /// Most people found in one frame of one camera.
    pub people_at_once: u32,
    /// Number of times that the robot was stopped from motion.
    pub stops: u64,
    pub stop_causes: BTreeMap<String, u64>,
    /// Share of the window's jobs by light.
    pub lights: BTreeMap<String, f64>,
    /// Reaction time: frame arrival to the end of the first SSM job on it, milliseconds.
    pub reaction_ms: Summary,
    /// Reactions later than the deadline.
    pub misses: u64,
    /// Frames whose result was replaced before a job read it; the newer result answered for them.
    pub superseded: u64,
    /// Frames judged and never seen by a job.
    pub unfinished: u64,
    /// Those of them that were past their deadline when the run ended: counted among the misses.
    #[serde(default)]
    pub unanswered_late: u64,
    /// Frames of the window that were never judged, because a newer one took their place, and whose
    /// deadline was over when that one was answered. Not among the misses, which are of judged
    /// frames; the verdict counts both.
    #[serde(default)]
    pub dropped_late: u64,
    /// Stages of the reaction, milliseconds, by name in order.
    pub stages_ms: Vec<(String, Summary)>,
    /// From publication of a breach to the end of the job that stopped the robot, milliseconds.
    pub breach_to_stop_ms: Summary,
    /// Jobs that saw a breach and did not stop. Must be 0.
    pub breaches_not_stopped: u64,
    /// The SSM task.
    pub ssm: SsmSummary,
    /// Every task that has a deadline: the SSM task, then perception camera by camera.
    #[serde(default)]
    pub tasks: Vec<TaskSummary>,
    /// Frames without a judgement, by reason: `not-delivered`, or why they could not be judged.
    #[serde(default)]
    pub losses: BTreeMap<String, u64>,
    /// Amount of work.
    #[serde(default)]
    pub work: Work,
    /// The protective separation distance at full speed: each term with its source and value of
    /// this run.
    #[serde(default)]
    pub protective_distance: Vec<ProtectiveTerm>,
    /// The perception process, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerSummary>,
    pub per_camera: Vec<CameraSummary>,
    /// Records that found their ring full.
    pub records_lost: u64,
    /// Settings asked for and not granted; empty for a run whose figures stand for what was asked.
    pub not_granted: Vec<String>,
    /// Processor time during the window.
    pub cpu: CpuShare,
    /// Reduction because this machine cannot carry the full load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled: Option<Scaled>,
    /// The same in a sentence: what was left out, which networks judge, by which rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_sentence: Option<String>,
    /// Frames that the visualisation tasks drew, where there are such tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames_visualised: Option<u64>,
    pub run_dir: String,
}

/// One line of `reactions.csv`: a frame and its answer, CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReactionRow {
    pub camera: u32,
    /// Sequence number of the frame.
    pub sequence: u64,
    /// Arrival of the frame.
    pub arrival_ns: u64,
    /// End of the first SSM job on it.
    pub answered_ns: u64,
    /// Whether a newer frame of the camera answered for it.
    pub superseded: bool,
}

impl From<&Reaction> for ReactionRow {
    fn from(r: &Reaction) -> Self {
        Self {
            camera: r.frame.camera,
            sequence: r.frame.sequence,
            arrival_ns: r.frame.arrival_ns,
            answered_ns: r.frame.arrival_ns + r.reaction_ns(),
            superseded: r.superseded,
        }
    }
}

/// The part of `run.json` that holds [`RunFacts`].
#[derive(Deserialize)]
struct RunFile {
    facts: RunFacts,
}

/// Sums up a run directory: from its facts and its tally, which counted everything, however many
/// rows were kept. It is not judged yet.
///
/// # Errors
/// [`LabError::Files`] for a directory that is not one, or was cut off before the window
/// was known.
pub fn summarise(dir: &RunDir) -> Result<CellSummary, LabError> {
    let RunFile { facts } = dir.read_json(RUN_FILE)?;
    let tally: Tally = dir.read_json(TALLY_FILE)?;
    let mut summary = sum_up(&facts, &tally);
    summary.run_dir = dir.path().display().to_string();
    Ok(summary)
}

/// Facts about the run at `dir` that are in none of its series, for its header.
///
/// # Errors
/// As [`summarise`].
pub(super) fn besides(dir: &RunDir, summary: &CellSummary) -> Result<Found, LabError> {
    let RunFile { facts } = dir.read_json(RUN_FILE)?;
    let tally: Tally = dir.read_json(TALLY_FILE)?;
    Ok(found(summary, &tally, &facts))
}

impl CellSummary {
    /// Takes over a verdict.
    pub(super) fn set_verdict(&mut self, report: VerdictReport) {
        self.sentence = report.sentence();
        (self.verdict, self.reasons) = (report.verdict, report.reasons);
    }
}

const NS_PER_MS: f64 = 1e6;
const NS_PER_US: f64 = 1e3;

fn late(recorder: &Recorder) -> u64 {
    recorder.misses().misses
}

fn sum_up(facts: &RunFacts, tally: &Tally) -> CellSummary {
    let [from_ns, to_ns] = facts.window_ns;
    let seconds = to_ns.saturating_sub(from_ns).saturating_add(facts.before_ns) as f64 / 1e9;
    let sum = |of: fn(&CameraTally) -> u64| tally.cameras.iter().map(of).sum::<u64>();
    let stages = Stage::ALL.iter().zip(&tally.stages);
    let unanswered_late = sum(|c| c.unanswered_late);
    let jobs = tally.ssm.jobs;
    CellSummary {
        // Judged from the run directory, as every robot's runs are.
        verdict: Verdict::Inconclusive,
        reasons: Vec::new(),
        sentence: String::new(),
        deadline_ms: facts.deadline_ms,
        policy: facts.policy.clone(),
        noise: facts.noise,
        cameras: facts.cameras,
        seconds,
        frames: sum(|c| c.judged),
        frames_dropped: sum(|c| c.dropped),
        people_detected: sum(|c| c.people),
        people_at_once: tally.people_at_once,
        stops: tally.ssm.stop_causes.values().sum(),
        stop_causes: tally.ssm.stop_causes.clone(),
        lights: tally.ssm.lights.iter().map(|(name, n)| (name.clone(), *n as f64 / jobs as f64)).collect(),
        reaction_ms: in_units_of(NS_PER_MS, &tally.reaction),
        misses: late(&tally.reaction) + unanswered_late,
        superseded: tally.superseded,
        unfinished: sum(|c| c.unanswered),
        unanswered_late,
        dropped_late: sum(|c| c.dropped_late),
        stages_ms: stages.map(|(stage, r)| (stage.name().to_owned(), in_units_of(NS_PER_MS, r))).collect(),
        breach_to_stop_ms: in_units_of(NS_PER_MS, &tally.ssm.breach_to_stop),
        breaches_not_stopped: tally.ssm.breaches_not_stopped,
        ssm: ssm(tally),
        protective_distance: Vec::new(),
        tasks: tasks(tally),
        losses: losses(tally),
        work: Work::of(tally, facts.detector_runs, seconds),
        worker: facts.worker.as_ref().map(|worker| tally.worker.summary(worker)),
        per_camera: tally.cameras.iter().enumerate().map(|(index, c)| camera(index, c, tally)).collect(),
        records_lost: facts.records_lost,
        not_granted: facts.not_granted.clone(),
        cpu: facts.cpu,
        scaled: facts.scaled.clone(),
        scaled_sentence: facts.scaled.as_ref().map(Scaled::text),
        frames_visualised: facts.visualised,
        run_dir: String::new(),
    }
}

fn camera(index: usize, camera: &CameraTally, tally: &Tally) -> CameraSummary {
    CameraSummary {
        camera: index as u32,
        name: tally.camera_name(index as u32),
        frames: camera.judged,
        dropped: camera.dropped,
        unjudged: camera.unjudged.clone(),
        missing: camera.missing,
        longest_silence_ms: camera.longest_silence_ns as f64 / NS_PER_MS,
        people: camera.people,
        reaction_ms: in_units_of(NS_PER_MS, &camera.reaction),
        misses: late(&camera.reaction),
    }
}

fn losses(tally: &Tally) -> BTreeMap<String, u64> {
    let mut losses = BTreeMap::new();
    for camera in &tally.cameras {
        let missing = (NOT_DELIVERED.to_owned(), camera.missing);
        let unjudged = camera.unjudged.iter().map(|(why, count)| (why.clone(), *count));
        for (why, count) in unjudged.chain([missing]).filter(|(_, count)| *count > 0) {
            *losses.entry(why).or_default() += count;
        }
    }
    losses
}

fn tasks(tally: &Tally) -> Vec<TaskSummary> {
    let ms = |ns: u64| ns as f64 / NS_PER_MS;
    let task = |name: String,
                camera: Option<String>,
                deadline_ns: u64,
                jobs: u64,
                skipped: u64,
                response: &Recorder| {
        TaskSummary {
            name,
            camera,
            deadline_ms: ms(deadline_ns),
            releases: jobs + skipped,
            jobs,
            misses: late(response) + skipped,
            late: late(response),
            skipped,
            worst_ms: (response.count() > 0).then(|| ms(response.max_ns())),
        }
    };
    let (rules, ssm) = (&tally.rules, &tally.ssm);
    let first = task("ssm".to_owned(), None, rules.ssm_deadline_ns, ssm.jobs, ssm.skipped, &ssm.response);
    let perception = tally.cameras.iter().enumerate().map(|(index, c)| {
        let name = tally.camera_name(index as u32);
        let deadline_ns = rules.perception_deadline_ns;
        let one =
            task(format!("perception-{index}"), Some(name), deadline_ns, c.judged, c.dropped, &c.response);
        // A frame that could not be judged was released, too; it is reported among the losses.
        TaskSummary { releases: c.delivered(), ..one }
    });
    std::iter::once(first).chain(perception).collect()
}

fn ssm(tally: &Tally) -> SsmSummary {
    let ssm = &tally.ssm;
    SsmSummary {
        jobs: ssm.jobs,
        skipped: ssm.skipped,
        lateness_us: in_units_of(NS_PER_US, &ssm.lateness),
        response_us: in_units_of(NS_PER_US, &ssm.response),
        misses: ssm.late + ssm.skipped,
        late: ssm.late,
        longest_pause_ms: ssm.longest_pause_ns as f64 / NS_PER_MS,
        not_sent: ssm.not_sent,
    }
}

#[cfg(test)]
mod tests;
