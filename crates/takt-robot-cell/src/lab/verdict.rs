//! Reasons of failure for a run of the cell besides its series, and reasons that keep it from a
//! PASS: every task, every camera, the link, the records. The verdict itself is that of all robots
//! ([`takt_report::verdict::of_run`]).

use super::summary::{CameraSummary, CellSummary, RunFacts, TaskSummary};
use super::tally::Tally;

/// Share of the configured rate below which a camera starves. 95 %: cameras keep their nominal rate
/// to far below a percent.
const STARVED_BELOW: f64 = 0.95;

/// The thread that times the run and the SSM task paused for so long at least: the whole process
/// stood still.
const STOOD_STILL_MS: f64 = 250.0;

/// Most faults that are named one by one.
const FAULTS_NAMED: usize = 4;

/// Facts that are in no series of the run.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// Reasons for which it fails whatever was measured.
    pub failures: Vec<String>,
    /// Reasons that keep it from a PASS.
    pub doubts: Vec<String>,
}

/// Facts that are in no series of the run, from its facts and its tally.
pub(super) fn found(summary: &CellSummary, tally: &Tally, facts: &RunFacts) -> Found {
    let mut failures = Vec::new();
    failures.extend(summary.tasks.iter().filter_map(|task| task_missed(task, summary)));
    if !failures.is_empty() {
        failures.extend(stolen_misses(tally));
    }
    for (camera, rule) in summary.per_camera.iter().zip(&tally.rules.cameras) {
        let allowed = facts.losses.allow_missing(summary);
        failures.extend(camera_lost(camera, rule.period_ns, summary.seconds, allowed));
    }
    failures.extend(distrust(summary, tally));
    if summary.breaches_not_stopped > 0 {
        failures.push(format!(
            "{} jobs of the SSM task saw somebody within the stop distance but did not stop the robot",
            summary.breaches_not_stopped
        ));
    }
    if summary.ssm.not_sent > facts.losses.max_unsent_commands {
        failures.push(format!(
            "{} commands could not be sent completely to the robot link",
            summary.ssm.not_sent
        ));
    }
    failures.extend(facts.failures.iter().cloned());
    let still_ms = facts.longest_still_ms.min(summary.ssm.longest_pause_ms);
    if still_ms > STOOD_STILL_MS {
        failures.push(format!(
            "the process stood still for {:.1} s: it was stopped, or the machine did not run it",
            still_ms / 1e3
        ));
    }
    if facts.records_lost > 0 {
        failures.push(format!(
            "{} records were lost before they reached the run directory because their ring was full; one of them may be a miss",
            facts.records_lost
        ));
    }
    Found { failures, doubts: facts.doubts.clone() }
}

fn task_missed(task: &TaskSummary, summary: &CellSummary) -> Option<String> {
    if task.misses == 0 {
        return None;
    }
    let (who, without) = match &task.camera {
        Some(camera) => (format!("the perception task of camera {camera}"), "frames never processed"),
        None => ("the SSM task".to_owned(), "releases skipped"),
    };
    let pause = match &task.camera {
        None if summary.ssm.longest_pause_ms > task.deadline_ms => {
            format!("; longest pause {:.1} ms", summary.ssm.longest_pause_ms)
        }
        _ => String::new(),
    };
    let worst = task.worst_ms.map_or_else(|| "no job ran".to_owned(), |ms| format!("worst {ms:.1} ms"));
    Some(format!(
        "{who} missed its {} ms deadline in {} of {} releases: {} {without}, {} late ({worst}){pause}",
        task.deadline_ms, task.misses, task.releases, task.skipped, task.late
    ))
}

fn camera_lost(camera: &CameraSummary, period_ns: Option<u64>, seconds: f64, allowed: bool) -> Vec<String> {
    let name = &camera.name;
    let mut reported = Vec::new();
    let unjudged: u64 = camera.unjudged.values().sum();
    let delivered = camera.frames + unjudged + camera.dropped;
    if delivered == 0 {
        reported.push(format!("camera {name} delivered no frame in the measured window"));
        return reported;
    }
    if unjudged > 0 {
        let reasons: Vec<String> =
            camera.unjudged.iter().map(|(why, count)| format!("{count} {why}")).collect();
        reported.push(format!(
            "camera {name}: {unjudged} of {delivered} frames could not be judged ({})",
            reasons.join(", ")
        ));
    }
    if camera.missing > 0 && !allowed {
        reported.push(format!(
            "camera {name} did not deliver {} of {} frames; longest time without one {:.0} ms",
            camera.missing,
            delivered + camera.missing,
            camera.longest_silence_ms
        ));
    }
    let rate_fps = delivered as f64 / seconds;
    if let Some(asked_fps) = period_ns.map(|period| 1e9 / period as f64)
        // In a window of a few periods the edges decide.
        && seconds * asked_fps >= 20.0
        && rate_fps < STARVED_BELOW * asked_fps
    {
        reported.push(format!(
            "camera {name} starved: {rate_fps:.1} frames a second where {asked_fps:.1} are configured"
        ));
    }
    reported
}

fn distrust(summary: &CellSummary, tally: &Tally) -> Option<String> {
    let ssm = &tally.ssm;
    if ssm.distrusting == 0 {
        return None;
    }
    let mut faults: Vec<(&String, &u64)> = ssm.faults.iter().collect();
    faults.sort_by(|a, b| b.1.cmp(a.1));
    let named = faults.iter().take(FAULTS_NAMED).map(|(fault, jobs)| format!("{fault} in {jobs}"));
    let more = faults.len().saturating_sub(FAULTS_NAMED);
    let more = if more > 0 { format!(", and {more} more kinds") } else { String::new() };
    Some(format!(
        "the monitor could not trust its inputs in {} of {} jobs: {}{more}",
        ssm.distrusting,
        summary.ssm.jobs,
        named.collect::<Vec<_>>().join(", ")
    ))
}

/// Number of misses that coincide with the hypervisor.
fn stolen_misses(tally: &Tally) -> Option<String> {
    let (misses, of) = (tally.steal.misses, tally.steal.of);
    (misses > 0).then(|| format!("{misses} of {of} misses happened while a hypervisor took CPU time"))
}
