//! Whether a run of the cell was good: every reaction, every task, every camera, the link, the records. Anything that is not known
//! to be good is a sentence in the reasons.

use takt_stats::{DeadlineEvidence, Verdict, VerdictReport, judge};

use super::summary::{CameraSummary, CellSummary, RunFacts, TaskSummary};
use super::tally::Tally;

/// Share of the configured rate below which a camera starves. 95 %: cameras keep their nominal rate to far below a percent.
const STARVED_BELOW: f64 = 0.95;

/// Share of stolen CPU time from which it is told.
const STOLEN_TOLD: f64 = 1e-3;

/// The thread that times the run and the SSM task paused for so long at least: the whole process stood still.
const STOOD_STILL_MS: f64 = 250.0;

/// Most faults that are named one by one.
const FAULTS_NAMED: usize = 4;

/// The verdict on `summary`, whose own verdict is not set yet.
pub(super) fn verdict(summary: &CellSummary, tally: &Tally, facts: &RunFacts) -> (Verdict, Vec<String>) {
    let reactions = judge(&DeadlineEvidence {
        deadline_ms: summary.deadline_ms,
        samples: summary.reaction_ms.count,
        misses: summary.misses - summary.unanswered_late,
        worst_ms: summary.reaction_ms.worst,
        unfinished_late: summary.unanswered_late,
        dropped_late: summary.dropped_late,
        records_lost: 0,
        not_granted: 0,
    });
    let mut failures = Vec::new();
    failures.extend(summary.tasks.iter().filter_map(|task| task_missed(task, summary)));
    for (camera, rule) in summary.per_camera.iter().zip(&tally.rules.cameras) {
        failures.extend(camera_lost(camera, rule.period_ns, summary.seconds));
    }
    failures.extend(distrust(summary, tally));
    if summary.breaches_not_stopped > 0 {
        failures.push(format!(
            "{} jobs of the SSM task saw somebody within the stop distance and did not stop the robot",
            summary.breaches_not_stopped
        ));
    }
    if summary.ssm.not_sent > 0 {
        failures
            .push(format!("{} commands could not be handed to the robot link whole", summary.ssm.not_sent));
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
            "{} records were lost on their way to the run directory, for their ring was full: a miss may be among them",
            facts.records_lost
        ));
    }
    let mut doubts = facts.doubts.clone();
    if !facts.not_granted.is_empty() {
        let count = facts.not_granted.len();
        doubts.push(format!("{count} settings that were asked for were not granted by the kernel"));
    }
    conclude(reactions, failures, doubts, stolen(tally, facts))
}

fn conclude(
    reactions: VerdictReport,
    failures: Vec<String>,
    doubts: Vec<String>,
    stolen: Option<String>,
) -> (Verdict, Vec<String>) {
    let VerdictReport { verdict: about_reactions, reasons: mut told, .. } = reactions;
    let verdict = match about_reactions {
        _ if !failures.is_empty() => Verdict::Fail,
        Verdict::Pass if !doubts.is_empty() => Verdict::Inconclusive,
        other => other,
    };
    // What was met is no reason for a FAIL: it stands last.
    if about_reactions == Verdict::Fail {
        told.extend(failures);
    } else {
        told.splice(0..0, failures);
    }
    told.extend(doubts);
    told.extend(stolen.filter(|_| verdict != Verdict::Pass));
    (verdict, told)
}

fn task_missed(task: &TaskSummary, summary: &CellSummary) -> Option<String> {
    if task.misses == 0 {
        return None;
    }
    let (who, without) = match &task.camera {
        Some(camera) => (format!("the perception task of camera {camera}"), "frames never taken up"),
        None => ("the SSM task".to_owned(), "releases skipped"),
    };
    let pause = match &task.camera {
        None if summary.ssm.longest_pause_ms > task.deadline_ms => {
            format!("; longest pause {:.1} ms", summary.ssm.longest_pause_ms)
        }
        _ => String::new(),
    };
    Some(format!(
        "{who} missed its {} ms deadline in {} of {} releases: {} {without}, {} late (worst {:.1} ms){pause}",
        task.deadline_ms, task.misses, task.releases, task.skipped, task.late, task.worst_ms
    ))
}

fn camera_lost(camera: &CameraSummary, period_ns: Option<u64>, seconds: f64) -> Vec<String> {
    let name = &camera.name;
    let mut told = Vec::new();
    let unjudged: u64 = camera.unjudged.values().sum();
    let delivered = camera.frames + unjudged + camera.dropped;
    if delivered == 0 {
        told.push(format!("camera {name} delivered no frame in the measured window"));
        return told;
    }
    if unjudged > 0 {
        let reasons: Vec<String> =
            camera.unjudged.iter().map(|(why, count)| format!("{count} {why}")).collect();
        told.push(format!(
            "camera {name}: {unjudged} of {delivered} frames could not be judged ({}), so that nobody looked at them",
            reasons.join(", ")
        ));
    }
    if camera.missing > 0 {
        told.push(format!(
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
        told.push(format!(
            "camera {name} starved: {rate_fps:.1} frames a second where {asked_fps:.1} are configured"
        ));
    }
    told
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

/// What the hypervisor has to do with it.
fn stolen(tally: &Tally, facts: &RunFacts) -> Option<String> {
    if facts.cpu.stolen < STOLEN_TOLD && tally.steal.misses == 0 {
        return None;
    }
    let misses = match tally.steal.of {
        0 => String::new(),
        of => format!("; {} of {of} misses fell into moments in which it did", tally.steal.misses),
    };
    Some(format!("a hypervisor took {:.1} % of the CPU time{misses}", 100.0 * facts.cpu.stolen))
}
