//! The cell's part of a run's header: the measures, the rules for records, and the results.

use takt_perception::process::EventKind;
use takt_rundir::{Measure, RunHeader};

use super::losses::missing;
use super::rows::{FRAMES, JOBS, PERCEPTION_RESPONSE, REACTION, REACTIONS, SSM_LATENESS, SSM_RESPONSE};
use super::summary::RunFacts;
use super::tally::{CameraRule, Rules};
use super::worker_rows::WorkerSummary;
use super::{CellFile, CellSummary};

fn ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

/// Measures that reports read: reactions, joined from frames and jobs, and the response times of
/// the tasks that have a deadline.
pub(super) fn measures(file: &CellFile) -> Vec<Measure> {
    let (ssm, perception) = (&file.tasks.ssm, &file.tasks.perception);
    let ssm_measure = |name, title, column| {
        Measure::new(name, title, JOBS, column)
            .since("planned_ns")
            .deadline_ns(ssm.deadline().as_nanos() as u64)
            .rate_hz(1e3 / ssm.period_ms)
    };
    vec![
        Measure::new(
            REACTION,
            "Reaction time, frame arrival to end of the SSM job",
            REACTIONS,
            "answered_ns",
        )
        .since("arrival_ns")
        .deadline_ns(ns(file.tasks.reaction_deadline_ms))
        .unit("reactions")
        .judged(),
        ssm_measure(SSM_LATENESS, "Wake-up lateness of the SSM task", "wake_ns"),
        ssm_measure(SSM_RESPONSE, "Response time of the SSM task", "end_ns").judged(),
        Measure::new(
            PERCEPTION_RESPONSE,
            "Response time of the perception tasks, frame arrival to publication",
            FRAMES,
            "published_ns",
        )
        .since("arrival_ns")
        .deadline_ns(perception.deadline().as_nanos() as u64)
        .unit("frames")
        .judged(),
    ]
}

/// Rules for records.
pub(super) fn rules(file: &CellFile) -> Rules {
    let camera = |camera: &crate::config::CellCamera| CameraRule {
        name: camera.name.clone(),
        period_ns: camera
            .source
            .rate_fps()
            .filter(|rate| *rate > 0.0)
            .map(|rate| (1e9 / rate).round() as u64),
    };
    Rules {
        reaction_deadline_ns: ns(file.tasks.reaction_deadline_ms),
        ssm_period_ns: file.tasks.ssm.period().as_nanos() as u64,
        ssm_deadline_ns: file.tasks.ssm.deadline().as_nanos() as u64,
        perception_deadline_ns: file.tasks.perception.deadline().as_nanos() as u64,
        cameras: file.cameras.iter().map(camera).collect(),
    }
}

/// Fills in the part of the summary that reports and comparisons read.
pub(super) fn fill_header(header: &mut RunHeader, summary: &CellSummary, facts: &RunFacts) {
    let skipped: u64 = summary.tasks.iter().skip(1).map(|task| task.skipped).sum();
    let lost: u64 = summary.losses.values().sum();
    // Samples that may be missing are named but are not misses.
    let allowed = if facts.losses.allow_missing(summary) { missing(summary) } else { 0 };
    let unanswered = lost.saturating_sub(allowed);
    header.losses = facts.losses.judge(summary, facts.link_losses);
    for measure in &mut header.measures {
        // A skipped release is a job that never was, and a frame that nobody judged a reaction that
        // never came.
        measure.skipped = match measure.name.as_str() {
            REACTION => {
                summary.unanswered_late.saturating_add(summary.dropped_late).saturating_add(unanswered)
            }
            PERCEPTION_RESPONSE => skipped.saturating_add(unanswered),
            _ => summary.ssm.skipped,
        };
        if summary.seconds > 0.0 && [REACTION, PERCEPTION_RESPONSE].contains(&measure.name.as_str()) {
            let count = if measure.name == REACTION { summary.reaction_ms.count } else { summary.frames };
            measure.rate_hz = Some(count as f64 / summary.seconds);
        }
    }
    header.work = summary.work.header();
    header.figures.insert("frames_dropped".to_owned(), summary.frames_dropped as f64);
    header.figures.insert("frames_lost".to_owned(), lost as f64);
    header.figures.insert("stops".to_owned(), summary.stops as f64);
    if let Some(scaled) = &summary.scaled {
        header.figures.insert("scaled_cameras".to_owned(), f64::from(scaled.cameras));
        header.figures.insert("scaled_rate_fps".to_owned(), scaled.rate_fps);
    }
    if let Some(drawn) = summary.frames_visualised {
        header.figures.insert("frames_visualised".to_owned(), drawn as f64);
    }
    if let Some(worker) = &summary.worker {
        header.figures.extend(worker_figures(worker));
    }
}

/// Figures of the perception process that campaigns compare.
fn worker_figures(worker: &WorkerSummary) -> impl Iterator<Item = (String, f64)> {
    let answer = worker.answer_ms;
    let reported = |value: f64| if answer.count > 0 { value } else { f64::NAN };
    let figures = [
        ("gpu_answered", worker.answered as f64),
        ("gpu_answer_mean_ms", reported(answer.mean)),
        ("gpu_answer_p999_ms", reported(answer.p999)),
        ("gpu_answer_worst_ms", reported(answer.worst)),
        ("gpu_overruns", worker.count(EventKind::Overrun) as f64),
        ("gpu_late", worker.count(EventKind::Late) as f64),
        ("gpu_breaker_opened", worker.count(EventKind::BreakerOpen) as f64),
        ("gpu_restarts", worker.count(EventKind::Restarted) as f64),
    ];
    figures.into_iter().filter(|(_, value)| value.is_finite()).map(|(name, value)| (name.to_owned(), value))
}
