//! Figures of one run of the cell, computed from its run directory alone.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use takt_robot_cell::reaction::{Joiner, Reaction, Stage};
use takt_robot_cell::records::{FrameRecord, SsmJob};
use takt_stats::{DeadlineEvidence, Summary, Verdict, judge};

use super::rows::{FRAMES, FrameRow, JOBS, JobRow};
use crate::LabError;
use crate::machine::CpuShare;
use crate::rundir::{RUN_FILE, RunDir, read_samples};

/// What the summary needs of `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunFacts {
    /// Scheduler configuration.
    pub policy: String,
    /// Noise threads.
    pub noise: u32,
    /// Number of cameras.
    pub cameras: u32,
    /// Deadline of the critical path, milliseconds.
    pub deadline_ms: f64,
    /// Deadline of the SSM job, nanoseconds.
    pub ssm_deadline_ns: u64,
    /// Frames count whose arrival lies in this window, CLOCK_MONOTONIC nanoseconds.
    pub window_ns: [u64; 2],
    /// Records that found their ring full.
    pub records_lost: u64,
    /// Settings asked for and not granted.
    pub not_granted: Vec<String>,
    /// Processor time during the window.
    pub cpu: CpuShare,
}

/// Figures of one camera.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CameraSummary {
    /// Index.
    pub camera: u32,
    /// Frames judged.
    pub frames: u64,
    /// Frames of the source that were never judged: gaps in its sequence.
    pub dropped: u64,
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
    /// Jobs.
    pub jobs: u64,
    /// Releases on the grid that were skipped because an earlier job was late.
    pub skipped: u64,
    /// Wake-up minus planned release, microseconds.
    pub lateness_us: Summary,
    /// Job end minus planned release, microseconds.
    pub response_us: Summary,
    /// Jobs that ended after their deadline.
    pub misses: u64,
    /// Commands that could not be handed to the kernel whole.
    pub not_sent: u64,
}

/// Figures of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CellSummary {
    /// Did every reaction meet the deadline.
    pub verdict: Verdict,
    /// Why.
    pub reasons: Vec<String>,
    /// Deadline of the critical path, milliseconds.
    pub deadline_ms: f64,
    /// Scheduler configuration.
    pub policy: String,
    /// Noise threads.
    pub noise: u32,
    /// Number of cameras.
    pub cameras: u32,
    /// Length of the measured window, seconds.
    pub seconds: f64,
    /// Frames judged in the window.
    pub frames: u64,
    /// Frames of the sources that were never judged: a newer one took their place, or the driver was late.
    pub frames_dropped: u64,
    /// People found, summed over the judged frames.
    pub people_detected: u64,
    /// Most people found in one frame of one camera.
    pub people_at_once: u32,
    /// How often the robot was brought from moving to standing.
    pub stops: u64,
    /// The stops by cause.
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
    /// Stages of the reaction, milliseconds, by name in order.
    pub stages_ms: Vec<(String, Summary)>,
    /// From publication of a breach to the end of the job that stopped the robot, milliseconds.
    pub breach_to_stop_ms: Summary,
    /// Jobs that saw a breach and did not stop. Must be 0.
    pub breaches_not_stopped: u64,
    /// The SSM task.
    pub ssm: SsmSummary,
    /// Each camera.
    pub per_camera: Vec<CameraSummary>,
    /// Records that found their ring full.
    pub records_lost: u64,
    /// Settings asked for and not granted; empty for a run whose figures stand for what was asked.
    pub not_granted: Vec<String>,
    /// Processor time during the window.
    pub cpu: CpuShare,
    /// The run directory.
    pub run_dir: String,
}

/// The part of `run.json` that holds [`RunFacts`].
#[derive(Deserialize)]
struct RunFile {
    facts: RunFacts,
}

/// Sums up a run directory.
///
/// # Errors
/// [`LabError::Io`] or [`LabError::Damaged`] for a directory that is not one, or was cut off before the window
/// was known.
pub fn summarise(dir: &RunDir) -> Result<CellSummary, LabError> {
    let RunFile { facts } = dir.read_json(RUN_FILE)?;
    let frames: Vec<FrameRow> = read_samples(&dir.sample_path(FRAMES))?;
    let jobs: Vec<JobRow> = read_samples(&dir.sample_path(JOBS))?;
    let frames: Vec<FrameRecord> = frames.iter().map(FrameRecord::from).collect();
    let jobs: Vec<SsmJob> = jobs.iter().map(SsmJob::from).collect();
    let mut summary = sum_up(&facts, &frames, &jobs);
    summary.run_dir = dir.path().display().to_string();
    Ok(summary)
}

const NS_PER_MS: f64 = 1e6;
const NS_PER_US: f64 = 1e3;

fn sum_up(facts: &RunFacts, frames: &[FrameRecord], jobs: &[SsmJob]) -> CellSummary {
    let [from_ns, to_ns] = facts.window_ns;
    let inside = |at_ns: u64| (from_ns..to_ns).contains(&at_ns);

    let mut joiner = Joiner::new();
    let mut reactions: Vec<Reaction> = Vec::with_capacity(frames.len());
    let mut keep = |r: Reaction| {
        if inside(r.frame.arrival_ns) {
            reactions.push(r);
        }
    };
    frames.iter().for_each(|f| joiner.frame(*f, &mut keep));
    jobs.iter().for_each(|j| joiner.job(j, &mut keep));
    let open: Vec<_> = joiner.finish(&mut keep).into_iter().filter(|f| inside(f.arrival_ns)).collect();

    let late = |ms: f64| ms > facts.deadline_ms;
    let of = |values: &mut dyn Iterator<Item = f64>| Summary::of(&mut values.collect::<Vec<_>>());
    let reaction_ms = |r: &Reaction| r.reaction_ns() as f64 / NS_PER_MS;
    let misses = reactions.iter().filter(|r| late(reaction_ms(r))).count() as u64;
    let all = of(&mut reactions.iter().map(reaction_ms));
    let last_ns = jobs.last().map_or(to_ns, |j| j.end_ns);
    let unfinished_late =
        open.iter().filter(|f| late(last_ns.saturating_sub(f.arrival_ns) as f64 / NS_PER_MS)).count() as u64;

    let stages_ms = Stage::ALL
        .iter()
        .enumerate()
        .map(|(index, stage)| {
            let seen = |r: &&Reaction| *stage != Stage::Acknowledged || r.acknowledged_ns.is_some();
            let values = &mut reactions.iter().filter(seen).map(|r| r.stages_ns()[index] as f64 / NS_PER_MS);
            (stage.name().to_owned(), of(values))
        })
        .collect();

    let per_camera: Vec<CameraSummary> = (0..facts.cameras)
        .map(|camera| {
            let mine = || reactions.iter().filter(move |r| r.frame.camera == camera);
            let judged = frames.iter().filter(|f| f.camera == camera && inside(f.arrival_ns));
            let (mut count, mut people, mut dropped) = (0, 0, 0);
            for frame in judged {
                count += 1;
                people += u64::from(frame.people);
                dropped += frame.dropped;
            }
            CameraSummary {
                camera,
                frames: count,
                dropped,
                people,
                reaction_ms: of(&mut mine().map(reaction_ms)),
                misses: mine().filter(|r| late(reaction_ms(r))).count() as u64,
            }
        })
        .collect();

    let window_jobs: Vec<&SsmJob> = jobs.iter().filter(|j| inside(j.planned_ns)).collect();
    let motion = Motion::of(&window_jobs, frames);
    let report = judge(&DeadlineEvidence {
        deadline_ms: facts.deadline_ms,
        samples: all.count,
        misses,
        worst_ms: all.worst,
        unfinished_late,
        records_lost: facts.records_lost,
        not_granted: facts.not_granted.len() as u64,
    });
    CellSummary {
        verdict: report.verdict,
        reasons: report.reasons,
        deadline_ms: facts.deadline_ms,
        policy: facts.policy.clone(),
        noise: facts.noise,
        cameras: facts.cameras,
        seconds: to_ns.saturating_sub(from_ns) as f64 / 1e9,
        frames: per_camera.iter().map(|c| c.frames).sum(),
        frames_dropped: per_camera.iter().map(|c| c.dropped).sum(),
        people_detected: per_camera.iter().map(|c| c.people).sum(),
        people_at_once: frames.iter().filter(|f| inside(f.arrival_ns)).map(|f| f.people).max().unwrap_or(0),
        stops: motion.causes.values().sum(),
        stop_causes: motion.causes,
        lights: motion.lights,
        reaction_ms: all,
        misses: misses + unfinished_late,
        superseded: reactions.iter().filter(|r| r.superseded).count() as u64,
        unfinished: open.len() as u64,
        stages_ms,
        breach_to_stop_ms: of(&mut motion.breach_to_stop_ms.into_iter()),
        breaches_not_stopped: window_jobs.iter().filter(|j| j.decision.breach && !j.decision.stop).count()
            as u64,
        ssm: ssm(&window_jobs, facts.ssm_deadline_ns),
        per_camera,
        records_lost: facts.records_lost,
        not_granted: facts.not_granted.clone(),
        cpu: facts.cpu,
        run_dir: String::new(),
    }
}

fn ssm(jobs: &[&SsmJob], deadline_ns: u64) -> SsmSummary {
    let of = |value: fn(&SsmJob) -> u64| {
        Summary::of(&mut jobs.iter().map(|j| value(j) as f64 / NS_PER_US).collect::<Vec<_>>())
    };
    let releases = match (jobs.first(), jobs.last()) {
        (Some(first), Some(last)) => last.index.saturating_sub(first.index) + 1,
        _ => 0,
    };
    let late = |j: &&&SsmJob| j.end_ns.saturating_sub(j.planned_ns) > deadline_ns;
    SsmSummary {
        jobs: jobs.len() as u64,
        skipped: releases.saturating_sub(jobs.len() as u64),
        lateness_us: of(|j| j.wake_ns.saturating_sub(j.planned_ns)),
        response_us: of(|j| j.end_ns.saturating_sub(j.planned_ns)),
        misses: jobs.iter().filter(late).count() as u64,
        not_sent: jobs.iter().filter(|j| !j.sent.is_sent()).count() as u64,
    }
}

/// When and why the robot was stopped.
struct Motion {
    causes: BTreeMap<String, u64>,
    lights: BTreeMap<String, f64>,
    breach_to_stop_ms: Vec<f64>,
}

impl Motion {
    fn of(jobs: &[&SsmJob], frames: &[FrameRecord]) -> Self {
        let published: HashMap<(u32, u64), u64> =
            frames.iter().map(|f| ((f.camera, f.sequence), f.published_ns)).collect();
        let mut motion =
            Self { causes: BTreeMap::new(), lights: BTreeMap::new(), breach_to_stop_ms: Vec::new() };
        let mut moving = false;
        for job in jobs {
            let decision = &job.decision;
            *motion.lights.entry(format!("{:?}", decision.light).to_lowercase()).or_default() +=
                1.0 / jobs.len() as f64;
            if moving && decision.stop {
                let cause = match decision.fault {
                    Some(fault) => match fault.camera {
                        Some(camera) => format!("{} (camera {camera})", fault.kind.text()),
                        None => fault.kind.text().to_owned(),
                    },
                    None => "separation".to_owned(),
                };
                *motion.causes.entry(cause).or_default() += 1;
                let seen = decision.nearest_camera.filter(|_| decision.breach && decision.fault.is_none());
                let published = seen.and_then(|camera| {
                    published.get(&(camera, job.input_sequences[camera as usize])).copied()
                });
                if let Some(published_ns) = published {
                    motion.breach_to_stop_ms.push(job.end_ns.saturating_sub(published_ns) as f64 / NS_PER_MS);
                }
            }
            moving = !decision.stop;
        }
        motion
    }
}
