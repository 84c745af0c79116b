//! Figures of one run of the cell, computed from its run directory alone.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use takt_robot_cell::reaction::{Joiner, Reaction, Stage};
use takt_robot_cell::records::{FrameRecord, SsmJob};
use takt_robot_cell::ssm::ProtectiveTerm;
use takt_stats::{DeadlineEvidence, Summary, Verdict, judge};

use super::rows::{FRAMES, JOBS, JobRow};
use super::worker_rows::{GPU_EVENTS, GPU_FRAMES, WorkerFactsShort, WorkerRow, WorkerSummary};
use crate::LabError;
use takt_rundir::CpuShare;
use takt_rundir::{RUN_FILE, RunDir, read_samples};

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
    /// The perception process, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerFactsShort>,
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
    /// Those of them that were past their deadline when the run ended: counted among the misses.
    #[serde(default)]
    pub unanswered_late: u64,
    /// Frames of the window that were never judged, because a newer one took their place, and whose deadline was over when that
    /// one was answered. Not among the misses, which are of judged frames; the verdict counts both.
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
    /// The protective separation distance at full speed: each term with its source and value of this run.
    #[serde(default)]
    pub protective_distance: Vec<ProtectiveTerm>,
    /// The perception process, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerSummary>,
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

/// One line of `reactions.csv`: a frame and its answer, CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReactionRow {
    /// The camera.
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

/// Sums up a run directory.
///
/// # Errors
/// [`LabError::Io`] or [`LabError::Damaged`] for a directory that is not one, or was cut off before the window
/// was known.
pub fn summarise(dir: &RunDir) -> Result<(CellSummary, Vec<ReactionRow>), LabError> {
    let RunFile { facts } = dir.read_json(RUN_FILE)?;
    let frames: Vec<FrameRecord> = read_samples(&dir.sample_path(FRAMES))?;
    let jobs: Vec<JobRow> = read_samples(&dir.sample_path(JOBS))?;
    let jobs: Vec<SsmJob> = jobs.iter().map(SsmJob::from).collect();
    let (mut summary, reactions) = sum_up(&facts, &frames, &jobs);
    if let Some(worker) = &facts.worker {
        let answers: Vec<WorkerRow> = read_samples(&dir.sample_path(GPU_FRAMES))?;
        let events: Vec<WorkerRow> = read_samples(&dir.sample_path(GPU_EVENTS))?;
        summary.worker = Some(WorkerSummary::of(worker, &answers, &events, facts.window_ns));
    }
    summary.run_dir = dir.path().display().to_string();
    Ok((summary, reactions))
}

const NS_PER_MS: f64 = 1e6;
const NS_PER_US: f64 = 1e3;

fn sum_up(facts: &RunFacts, frames: &[FrameRecord], jobs: &[SsmJob]) -> (CellSummary, Vec<ReactionRow>) {
    let [from_ns, to_ns] = facts.window_ns;
    let inside = |at_ns: u64| (from_ns..to_ns).contains(&at_ns);

    let mut joiner = Joiner::new();
    let mut reactions: Vec<Reaction> = Vec::with_capacity(frames.len());
    let mut answered: HashMap<(u32, u64), u64> = HashMap::with_capacity(frames.len());
    let mut keep = |r: Reaction| {
        answered.insert((r.frame.camera, r.frame.sequence), r.job_end_ns);
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

    let answer_ns = |f: &FrameRecord| answered.get(&(f.camera, f.sequence)).copied().unwrap_or(last_ns);
    let dropped_late = (0..facts.cameras)
        .map(|camera| {
            let judged: Vec<&FrameRecord> = frames.iter().filter(|f| f.camera == camera).collect();
            let gaps = judged.windows(2).map(|pair| {
                let late_ns = answer_ns(pair[1]).saturating_sub((facts.deadline_ms * NS_PER_MS) as u64);
                dropped_between(pair[0], pair[1], from_ns, to_ns.min(late_ns))
            });
            gaps.fold(0, u64::saturating_add)
        })
        .fold(0, u64::saturating_add);

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
        dropped_late,
        records_lost: facts.records_lost,
        not_granted: facts.not_granted.len() as u64,
    });
    let rows = reactions.iter().map(ReactionRow::from).collect();
    let summary = CellSummary {
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
        unanswered_late: unfinished_late,
        dropped_late,
        stages_ms,
        breach_to_stop_ms: of(&mut motion.breach_to_stop_ms.into_iter()),
        breaches_not_stopped: window_jobs.iter().filter(|j| j.decision.breach && !j.decision.stop).count()
            as u64,
        ssm: ssm(&window_jobs, facts.ssm_deadline_ns),
        protective_distance: Vec::new(),
        worker: None,
        per_camera,
        records_lost: facts.records_lost,
        not_granted: facts.not_granted.clone(),
        cpu: facts.cpu,
        run_dir: String::new(),
    };
    (summary, rows)
}

/// How many of the frames that were dropped between two judged ones arrived in `[from_ns, to_ns)`. Nobody saw them arrive; a camera
/// sends at even distances.
fn dropped_between(before: &FrameRecord, after: &FrameRecord, from_ns: u64, to_ns: u64) -> u64 {
    let apart = after.sequence.saturating_sub(before.sequence);
    // A source that restarted counts from 1 again.
    let dropped = after.dropped.min(apart.saturating_sub(1));
    let span_ns = after.arrival_ns.saturating_sub(before.arrival_ns);
    if dropped == 0 || span_ns == 0 || to_ns <= from_ns {
        return 0;
    }
    // Those before `at_ns`: frame k of them arrives at `before + span * k / apart`.
    let earlier = |at_ns: u64| {
        let into_ns = u128::from(at_ns.saturating_sub(before.arrival_ns));
        let frames = (into_ns * u128::from(apart)).div_ceil(u128::from(span_ns)).saturating_sub(1);
        u64::try_from(frames).unwrap_or(u64::MAX).min(dropped)
    };
    earlier(to_ns) - earlier(from_ns)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use takt_link_rtde::client::SendOutcome;
    use takt_perception::FrameHealth;
    use takt_robot_cell::ssm::{Decision, Fault, FaultKind, Light, MAX_CAMERAS};

    use super::*;

    const MS: u64 = 1_000_000;

    fn facts() -> RunFacts {
        RunFacts {
            policy: "DL+RR".to_owned(),
            noise: 0,
            cameras: 1,
            deadline_ms: 37.3,
            ssm_deadline_ns: 2 * MS,
            window_ns: [100 * MS, 1000 * MS],
            records_lost: 0,
            not_granted: Vec::new(),
            cpu: CpuShare::default(),
            worker: None,
        }
    }

    fn frame(sequence: u64, arrival_ms: u64, dropped: u64) -> FrameRecord {
        let at = |ms: u64| (arrival_ms + ms) * MS;
        FrameRecord {
            camera: 0,
            sequence,
            capture_ns: at(0) - MS,
            arrival_ns: at(0),
            start_ns: at(1),
            inferred_ns: at(5),
            projected_ns: at(6),
            published_ns: at(6),
            health: FrameHealth::Ok,
            people: 2,
            unexplained: 0,
            nearest_m: 1.0,
            detected: false,
            masks: 0,
            dropped,
        }
    }

    fn job(index: u64, at_ms: u64, input: u64, decision: Decision) -> SsmJob {
        let mut input_sequences = [0; MAX_CAMERAS];
        input_sequences[0] = input;
        SsmJob {
            index,
            planned_ns: at_ms * MS,
            wake_ns: at_ms * MS + 1000,
            start_ns: at_ms * MS + 2000,
            end_ns: at_ms * MS + 5000,
            input_sequences,
            decision,
            heartbeat: index as i32,
            sent: SendOutcome::Sent,
            echo: 0,
            echo_received_ns: 0,
        }
    }

    const MOVING: Decision = Decision {
        speed_fraction: 1.0,
        stop: false,
        light: Light::Green,
        separation_m: f64::INFINITY,
        stop_distance_m: 1.4,
        ..Decision::STOPPED
    };

    const BREACH: Decision = Decision {
        separation_m: 1.0,
        nearest_camera: Some(0),
        stop_distance_m: 1.4,
        breach: true,
        ..Decision::STOPPED
    };

    #[test]
    fn counts_what_lies_in_the_window_and_nothing_twice() {
        let frames = [frame(1, 50, 0), frame(2, 110, 0), frame(5, 200, 2), frame(6, 990, 0)];
        let fault = Fault { kind: FaultKind::StaleFrame, camera: Some(0) };
        let stale = Decision { fault: Some(fault), ..Decision::STOPPED };
        let jobs = [
            job(1, 60, 1, MOVING),
            job(2, 120, 2, BREACH),
            job(3, 122, 2, MOVING),
            job(5, 250, 5, stale),
            job(6, 252, 5, stale),
        ];
        let (s, _) = sum_up(&facts(), &frames, &jobs);
        assert_eq!((s.frames, s.frames_dropped, s.people_detected), (3, 2, 6));
        assert_eq!((s.reaction_ms.count, s.misses, s.unfinished), (2, 1, 1));
        assert!((s.reaction_ms.worst - 50.005).abs() < 1e-9);
        // The stop before the window's first job is none: the robot did not move within the window before.
        assert_eq!((s.stops, s.stop_causes.get("frames are stale (camera 0)")), (1, Some(&1)));
        assert_eq!((s.ssm.jobs, s.ssm.skipped, s.breaches_not_stopped), (4, 1, 0));
        assert_eq!(s.verdict, Verdict::Fail);
    }

    #[test]
    fn a_frame_that_nobody_answered_is_a_miss_once_it_is_late() {
        let frames = [frame(1, 200, 0), frame(2, 900, 0)];
        let jobs = [job(1, 210, 1, MOVING), job(2, 980, 1, MOVING)];
        let (s, _) = sum_up(&facts(), &frames, &jobs);
        assert_eq!((s.unfinished, s.misses, s.verdict), (1, 1, Verdict::Fail));
    }

    /// A camera at 50 FPS; only every fifth frame is judged, within 4 ms. Its figures look well, and yet what stood in the frames
    /// between was answered up to 84 ms late.
    #[test]
    fn dropped_frames_that_were_answered_late_fail_the_run() {
        let frames = [frame(1, 110, 0), frame(6, 210, 4), frame(11, 310, 4)];
        let jobs = [job(1, 114, 1, MOVING), job(2, 214, 6, MOVING), job(3, 314, 11, MOVING)];
        let (s, _) = sum_up(&facts(), &frames, &jobs);
        assert_eq!((s.reaction_ms.count, s.misses, s.frames_dropped), (3, 0, 8));
        // Of 130, 150, 170 and 190 ms, the last was answered within 24.005 ms.
        assert_eq!((s.dropped_late, s.verdict), (6, Verdict::Fail), "{:?}", s.reasons);
        assert!(s.reasons[0].starts_with("6 of 9 reactions"), "{:?}", s.reasons);
        // Where the window ends before the others, they are no concern of it.
        let short = RunFacts { window_ns: [140 * MS, 200 * MS], ..facts() };
        assert_eq!(sum_up(&short, &frames, &jobs).0.dropped_late, 2);
        // One frame in two is answered soon enough for both.
        let frames = [frame(1, 110, 0), frame(3, 140, 1)];
        let (s, _) = sum_up(&facts(), &frames, &[job(1, 114, 1, MOVING), job(2, 144, 3, MOVING)]);
        assert_eq!((s.frames_dropped, s.dropped_late, s.verdict), (1, 0, Verdict::Inconclusive));
    }

    proptest! {
        #[test]
        fn no_more_frames_are_late_than_were_dropped(
            sequences in (any::<u64>(), any::<u64>()), arrivals in (any::<u64>(), any::<u64>()), dropped in any::<u64>(),
            window in (any::<u64>(), any::<u64>()), middle in any::<u64>(),
        ) {
            let at = |sequence, arrival_ns, dropped| FrameRecord { arrival_ns, ..frame(sequence, 1, dropped) };
            let (before, after) = (at(sequences.0, arrivals.0, 0), at(sequences.1, arrivals.1, dropped));
            let count = |from_ns, to_ns| dropped_between(&before, &after, from_ns, to_ns);
            let (from_ns, to_ns) = (window.0.min(window.1), window.0.max(window.1));
            let all = count(from_ns, to_ns);
            prop_assert!(all <= dropped);
            // Every one lies on one side of any moment.
            let middle = middle.clamp(from_ns, to_ns);
            prop_assert_eq!(count(from_ns, middle) + count(middle, to_ns), all);
        }
    }

    #[test]
    fn breach_to_stop_is_counted_from_publication() {
        let jobs = [job(1, 200, 0, MOVING), job(2, 218, 1, BREACH)];
        let (s, _) = sum_up(&facts(), &[frame(1, 210, 0)], &jobs);
        assert_eq!(s.breach_to_stop_ms.count, 1);
        assert!(
            (s.breach_to_stop_ms.worst - 2.005).abs() < 1e-9,
            "published at 216 ms, job done at 218.005 ms"
        );
        assert_eq!(s.stop_causes.get("separation"), Some(&1));
    }

    #[test]
    fn an_empty_run_is_inconclusive() {
        let (s, _) = sum_up(&facts(), &[], &[]);
        assert_eq!((s.verdict, s.frames, s.stops), (Verdict::Inconclusive, 0, 0));
    }
}
