//! Figures and verdicts of runs whose records are written by hand.

use takt_link_rtde::client::SendOutcome;
use takt_perception::FrameHealth;
use takt_report::verdict::{Source, concluded};
use takt_rundir::RunHeader;
use takt_stats::{SeriesEvidence, judge_series};

use super::*;
use crate::lab::tally::{CameraRule, Rules};
use crate::records::{FrameRecord, SsmJob};
use crate::ssm::{Decision, Fault, FaultKind, Light, MAX_CAMERAS};

const MS: u64 = 1_000_000;

fn facts() -> RunFacts {
    RunFacts {
        policy: "DL+RR".to_owned(),
        noise: 0,
        cameras: 1,
        deadline_ms: 37.3,
        window_ns: [100 * MS, 1000 * MS],
        before_ns: 0,
        records_lost: 0,
        not_granted: Vec::new(),
        cpu: CpuShare::default(),
        failures: Vec::new(),
        doubts: Vec::new(),
        longest_still_ms: 0.0,
        losses: Default::default(),
        link_losses: 0,
        detector_runs: 0,
        visualised: None,
        scaled: None,
        worker: None,
    }
}

/// One camera without a known rate, and an SSM task whose releases are no concern.
fn rules() -> Rules {
    Rules {
        reaction_deadline_ns: 37_300_000,
        ssm_period_ns: u64::MAX / 4,
        ssm_deadline_ns: 2 * MS,
        perception_deadline_ns: 33 * MS,
        cameras: vec![CameraRule { name: "west".to_owned(), period_ns: None }],
    }
}

fn tallied(
    facts: &RunFacts,
    rules: &Rules,
    frames: &[FrameRecord],
    jobs: &[SsmJob],
) -> (Tally, Vec<Reaction>) {
    let mut tally = Tally::new(rules.clone()).unwrap();
    let mut reactions = Vec::new();
    let mut keep = |reaction: &Reaction| reactions.push(*reaction);
    // As the collector does: what was pushed until a job's end is there when the job is looked at.
    let mut frames = frames.iter().peekable();
    for job in jobs {
        while let Some(frame) = frames.next_if(|frame| frame.published_ns <= job.end_ns) {
            tally.frame(frame, facts.window_ns, &mut keep);
        }
        tally.job(job, facts.window_ns, &mut keep);
    }
    frames.for_each(|frame| tally.frame(frame, facts.window_ns, &mut keep));
    tally.finish(facts.window_ns, &mut keep);
    // As it is read back from the run directory.
    (serde_json::from_str(&serde_json::to_string(&tally).unwrap()).unwrap(), reactions)
}

fn sum(facts: &RunFacts, rules: &Rules, frames: &[FrameRecord], jobs: &[SsmJob]) -> CellSummary {
    let tally = tallied(facts, rules, frames, jobs).0;
    let mut summary = sum_up(facts, &tally);
    summary.set_verdict(verdict(&summary, &tally, facts));
    summary
}

/// The verdict that reports have, of the reactions and of what the header is reported.
fn verdict(summary: &CellSummary, tally: &Tally, facts: &RunFacts) -> VerdictReport {
    let Found { failures, doubts } = found(summary, tally, facts);
    let reactions = judge_series(&SeriesEvidence {
        unit: "reactions".to_owned(),
        deadline_ns: tally.rules.reaction_deadline_ns,
        rate_hz: Some(summary.reaction_ms.count as f64 / summary.seconds),
        samples: summary.reaction_ms.count,
        misses: summary.misses - summary.unanswered_late,
        longest_run: tally.reaction.misses().longest_run,
        worst_ns: tally.reaction.max_ns(),
        unfinished_late: summary.unanswered_late.saturating_add(summary.dropped_late),
        not_granted: facts.not_granted.len() as u64,
        ..SeriesEvidence::default()
    });
    let header = RunHeader {
        finished_utc: Some("2026-11-21T15:52:42.000Z".to_owned()),
        failures,
        doubts,
        ..RunHeader::new("cell", "test")
    };
    concluded(reactions, &[Source { header: &header, doubt: None }])
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
        masks: 1,
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
    let s = sum(&facts(), &rules(), &frames, &jobs);
    assert_eq!((s.frames, s.frames_dropped, s.people_detected), (3, 2, 6));
    assert_eq!((s.reaction_ms.count, s.misses, s.unfinished), (2, 1, 1));
    assert!((s.reaction_ms.worst - 50.005).abs() < 1e-9);
    // The stop before the window's first job is none: the robot did not move within the window
    // before.
    assert_eq!((s.stops, s.stop_causes.get("frames are stale (camera west)")), (1, Some(&1)));
    assert_eq!((s.ssm.jobs, s.breaches_not_stopped), (4, 0));
    assert_eq!(s.verdict, Verdict::Fail);
}

#[test]
fn a_frame_that_nobody_answered_is_a_miss_once_it_is_late() {
    let frames = [frame(1, 200, 0), frame(2, 900, 0)];
    let jobs = [job(1, 210, 1, MOVING), job(2, 980, 1, MOVING)];
    let s = sum(&facts(), &rules(), &frames, &jobs);
    assert_eq!((s.unfinished, s.misses, s.verdict), (1, 1, Verdict::Fail));
}

/// A camera at 50 FPS; only every fifth frame is judged, within 4 ms. Its figures look well, and
/// yet what stood in the frames between was answered up to 84 ms late.
#[test]
fn dropped_frames_that_were_answered_late_fail_the_run() {
    let frames = [frame(1, 110, 0), frame(6, 210, 4), frame(11, 310, 4)];
    let jobs = [job(1, 114, 1, MOVING), job(2, 214, 6, MOVING), job(3, 314, 11, MOVING)];
    let s = sum(&facts(), &rules(), &frames, &jobs);
    assert_eq!((s.reaction_ms.count, s.misses, s.frames_dropped), (3, 0, 8));
    // Of 130, 150, 170 and 190 ms, the last was answered within 24.005 ms.
    assert_eq!((s.dropped_late, s.verdict), (6, Verdict::Fail), "{:?}", s.reasons);
    assert!(s.reasons[0].starts_with("6 of 9 reactions"), "{:?}", s.reasons);
    // If the window ends before the others, they do not concern it.
    let short = RunFacts { window_ns: [140 * MS, 200 * MS], ..facts() };
    assert_eq!(sum(&short, &rules(), &frames, &jobs).dropped_late, 2);
    // One frame in two is answered soon enough for both.
    let frames = [frame(1, 110, 0), frame(3, 140, 1)];
    let s = sum(&facts(), &rules(), &frames, &[job(1, 114, 1, MOVING), job(2, 144, 3, MOVING)]);
    // Answered in time, and yet a release without a job.
    assert_eq!((s.frames_dropped, s.dropped_late, s.misses), (1, 0, 0));
    assert_eq!((s.tasks[1].skipped, s.tasks[1].misses, s.verdict), (1, 1, Verdict::Fail));
}

#[test]
fn breach_to_stop_is_counted_from_publication() {
    let jobs = [job(1, 200, 0, MOVING), job(2, 218, 1, BREACH)];
    let s = sum(&facts(), &rules(), &[frame(1, 210, 0)], &jobs);
    assert_eq!(s.breach_to_stop_ms.count, 1);
    assert!((s.breach_to_stop_ms.worst - 2.005).abs() < 1e-9, "published at 216 ms, job done at 218.005 ms");
    assert_eq!(s.stop_causes.get("separation"), Some(&1));
}

#[test]
fn an_empty_run_is_no_pass() {
    let s = sum(&facts(), &rules(), &[], &[]);
    assert_eq!((s.verdict, s.frames, s.stops), (Verdict::Fail, 0, 0));
    assert_eq!(s.reasons[0], "camera west delivered no frame in the measured window");
}

const PERIOD: u64 = 33_333_333;

/// A run that is good in every respect, from before its window until after it.
#[derive(Clone)]
struct Run {
    facts: RunFacts,
    rules: Rules,
    frames: Vec<FrameRecord>,
    jobs: Vec<SsmJob>,
}

impl Run {
    fn good() -> Self {
        Self::lasting(15)
    }

    /// With a window of so many seconds: 15 are too few for a PASS, 32 are not.
    fn lasting(seconds: u64) -> Self {
        let until_s = 1 + seconds;
        let facts = RunFacts { window_ns: [1000 * MS, until_s * 1000 * MS], ..facts() };
        let camera = CameraRule { name: "west".to_owned(), period_ns: Some(PERIOD) };
        let rules = Rules { ssm_period_ns: 2 * MS, cameras: vec![camera], ..rules() };
        let at =
            |n: u64| FrameRecord { arrival_ns: n * PERIOD, capture_ns: n * PERIOD - MS, ..frame(n, 1, 0) };
        let frames = (10..30 * until_s + 10).map(at).map(|f| FrameRecord {
            start_ns: f.arrival_ns + MS,
            inferred_ns: f.arrival_ns + 5 * MS,
            projected_ns: f.arrival_ns + 6 * MS,
            published_ns: f.arrival_ns + 6 * MS,
            ..f
        });
        let mut run = Self { facts, rules, frames: frames.collect(), jobs: Vec::new() };
        run.jobs = (200..500 * until_s + 100).map(|k| job(k, 2 * k, 0, MOVING)).collect();
        run.consume();
        run
    }

    /// Lets every job consume the newest frame that was published when it began.
    fn consume(&mut self) {
        let (mut newest, mut frames) = (0, self.frames.iter().peekable());
        for job in &mut self.jobs {
            while let Some(frame) = frames.next_if(|frame| frame.published_ns <= job.start_ns) {
                newest = frame.sequence;
            }
            job.input_sequences[0] = newest;
        }
    }

    fn summary(&self) -> CellSummary {
        sum(&self.facts, &self.rules, &self.frames, &self.jobs)
    }
}

fn seconds(frame: &FrameRecord) -> f64 {
    frame.arrival_ns as f64 / 1e9
}

#[test]
fn a_good_run_passes_and_all_its_tasks_are_reported() {
    let s = Run::lasting(32).summary();
    assert_eq!(s.verdict, Verdict::Pass, "{:?}", s.reasons);
    // Half of the time shows too little, and nothing else is wrong with it.
    let run = Run::good();
    let s = run.summary();
    assert_eq!(s.verdict, Verdict::Inconclusive, "{:?}", s.reasons);
    assert!(s.reasons[0].starts_with("all 450 reactions met the 37.300 ms deadline"), "{:?}", s.reasons);
    assert!(s.reasons[1].starts_with("measure 14.9 s more"), "{:?}", s.reasons);
    assert_eq!((s.frames, s.frames_dropped, s.misses, s.losses.len()), (450, 0, 0, 0));
    let tasks: Vec<_> =
        s.tasks.iter().map(|t| (&*t.name, t.deadline_ms, t.releases, t.jobs, t.misses)).collect();
    assert_eq!(tasks, [("ssm", 2.0, 7500, 7500, 0), ("perception-0", 33.0, 450, 450, 0)]);
    assert_eq!((s.work.frames_delivered, s.work.frames_judged, s.work.ssm_jobs), (450, 450, 7500));
    assert_eq!((s.work.people_found, s.work.frames_with_networks), (900, 450));
}

/// Every way in which a run was bad and could be called good nevertheless, each with its own
/// sentence.
#[test]
fn no_bad_run_passes() {
    type Break = fn(&mut Run);
    let cases: &[(&str, Break)] = &[
        ("the SSM task missed its 2 ms deadline in 1 of 7500 releases: 1 releases skipped, 0 late", |run| {
            run.jobs.remove(4000);
        }),
        (
            "the SSM task missed its 2 ms deadline in 1 of 7500 releases: 0 releases skipped, 1 late (worst 2.1 ms)",
            |run| {
                run.jobs[4000].end_ns = run.jobs[4000].planned_ns + 2_100_000;
            },
        ),
        // The SSM task died, in the middle or with the last release of the window.
        ("the SSM task missed its 2 ms deadline in 4500 of 7500 releases", |run| {
            run.jobs.retain(|job| job.planned_ns < 7000 * MS);
        }),
        ("the SSM task missed its 2 ms deadline in 1 of 7500 releases", |run| {
            run.jobs.retain(|job| job.planned_ns < 15_997 * MS);
        }),
        ("the SSM task missed its 2 ms deadline in 7500 of 7500 releases", |run| run.jobs.clear()),
        // Stopped for 1.5 s, and the camera's driver with it.
        ("the process stood still for 1.5 s", |run| {
            run.jobs.retain(|job| !(5000 * MS..6496 * MS).contains(&job.planned_ns));
            run.frames.retain(|frame| !(5.0..6.496).contains(&seconds(frame)));
            run.facts.longest_still_ms = 1550.0;
        }),
        ("748 releases skipped", |run| {
            run.jobs.retain(|job| !(5000 * MS..6496 * MS).contains(&job.planned_ns));
        }),
        ("camera west: 1 of 450 frames could not be judged (1 no-pose)", |run| {
            run.frames[300].health = FrameHealth::NoPose;
        }),
        ("camera west: 450 of 450 frames could not be judged (450 empty-depth)", |run| {
            run.frames.iter_mut().for_each(|frame| frame.health = FrameHealth::EmptyDepth);
        }),
        // The camera died: long before the end, within its last tenth of a second, and before the
        // window.
        ("camera west did not deliver 240 of 449 frames; longest time without one 8033 ms", |run| {
            run.frames.retain(|frame| seconds(frame) < 7.99);
        }),
        ("camera west did not deliver 3 of 449 frames", |run| {
            run.frames.retain(|frame| seconds(frame) < 15.89)
        }),
        ("camera west delivered no frame in the measured window", |run| {
            run.frames.retain(|frame| seconds(frame) < 0.9);
        }),
        ("camera west delivered no frame in the measured window", |run| run.frames.clear()),
        // It began late, or stopped for a while.
        ("camera west did not deliver 89 of 450 frames", |run| {
            run.frames.retain(|frame| seconds(frame) > 3.99)
        }),
        ("camera west did not deliver 30 of 450 frames", |run| {
            run.frames.retain(|frame| !(5.0..6.0).contains(&seconds(frame)));
            (10u64..).zip(&mut run.frames).for_each(|(n, frame)| frame.sequence = n);
        }),
        // It sends two frames of three, and numbers those that it sends.
        ("camera west starved: 20.0 frames a second where 30.0 are configured", |run| {
            run.frames.retain(|frame| frame.sequence % 3 != 0);
            (10u64..).zip(&mut run.frames).for_each(|(n, frame)| frame.sequence = n);
        }),
        // It is slower by a quarter, so that no single distance is a frame too long.
        ("camera west starved: 24.0 frames a second", |run| {
            run.frames.iter_mut().for_each(|frame| {
                for at in [&mut frame.capture_ns, &mut frame.arrival_ns, &mut frame.published_ns] {
                    *at = *at / 4 * 5;
                }
            });
        }),
        (
            "the perception task of camera west missed its 33 ms deadline in 1 of 450 releases: 1 frames never",
            |run| {
                run.frames.remove(300);
                run.frames[300].dropped = 1;
            },
        ),
        (
            "the perception task of camera west missed its 33 ms deadline in 1 of 450 releases: 0 frames never processed, 1 late",
            |run| {
                run.frames[300].published_ns = run.frames[300].arrival_ns + 33_100_000;
            },
        ),
        ("2 commands could not be sent completely to the robot link", |run| {
            run.jobs[4000].sent = SendOutcome::WouldBlock;
            run.jobs[4001].sent = SendOutcome::Disconnected;
        }),
        ("the monitor could not trust its inputs in 1 of 7500 jobs: robot link lost in 1", |run| {
            let fault = Fault { kind: FaultKind::RobotLinkLost, camera: None };
            run.jobs[4000].decision = Decision { fault: Some(fault), ..Decision::STOPPED };
        }),
        ("1 jobs of the SSM task saw somebody within the stop distance", |run| {
            run.jobs[4000].decision = Decision { breach: true, ..MOVING };
        }),
        ("the robot link was lost 1 times; first: end of stream", |run| {
            run.facts.failures.push("the robot link was lost 1 times; first: end of stream".to_owned());
        }),
        ("3 records were lost", |run| run.facts.records_lost = 3),
        ("of 450 reactions missed the 5.000 ms deadline", |run| run.rules.reaction_deadline_ns = 5 * MS),
    ];
    for (expected, break_it) in cases {
        let mut run = Run::good();
        break_it(&mut run);
        run.consume();
        let s = run.summary();
        assert_eq!(s.verdict, Verdict::Fail, "{expected}: {:?}", s.reasons);
        assert!(s.reasons.iter().any(|reason| reason.contains(expected)), "{expected}: {:?}", s.reasons);
        if !expected.contains("reactions missed") {
            let first = &s.reasons[0];
            assert!(!first.starts_with("all "), "what was met stands first: {:?}", s.reasons);
        }
    }
}

#[test]
fn doubts_keep_a_run_from_passing_and_fail_none() {
    let doubts: [fn(&mut Run); 3] = [
        |run| run.facts.doubts.push("a stress process died".to_owned()),
        |run| run.facts.not_granted.push("ssm: policy".to_owned()),
        |run| run.facts.window_ns[1] = 5000 * MS,
    ];
    for doubt in doubts {
        let mut run = Run::lasting(32);
        doubt(&mut run);
        let s = run.summary();
        assert_eq!(s.verdict, Verdict::Inconclusive, "{:?}", s.reasons);
    }
}

/// Under CFS with noise, poses reached perception late: it answered "no pose" within microseconds,
/// and that counted as a reaction.
#[test]
fn a_frame_without_a_judgement_is_a_loss_and_in_no_statistics() {
    let mut run = Run::good();
    for frame in run.frames.iter_mut().filter(|frame| frame.sequence % 2 == 0) {
        frame.health = FrameHealth::NoPose;
        (frame.people, frame.masks) = (0, 0);
        frame.published_ns = frame.arrival_ns + 3000;
    }
    run.consume();
    let (tally, reactions) = tallied(&run.facts, &run.rules, &run.frames, &run.jobs);
    let s = sum_up(&run.facts, &tally);
    assert_eq!((s.frames, s.reaction_ms.count, s.per_camera[0].frames), (225, 225, 225));
    assert!(s.reaction_ms.min > 6.0, "no reaction is as short as looking away: {}", s.reaction_ms.min);
    assert!(reactions.iter().all(|reaction| reaction.frame.is_judged()));
    assert_eq!(s.losses, BTreeMap::from([("no-pose".to_owned(), 225)]));
    assert_eq!(s.per_camera[0].unjudged, s.losses);
    assert_eq!((s.work.frames_delivered, s.work.frames_judged), (450, 225));
    assert_eq!(s.work.less_than(&Run::good().summary().work).len(), 3, "frames, masks, people");
}
