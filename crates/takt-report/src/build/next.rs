//! Next steps for a reader: at most three, each with its command.

use takt_stats::Verdict;

use crate::collect::Collection;
use crate::supplement::Context;

/// The steps, the one that most follows from the verdict first.
pub(super) fn steps(collection: &Collection, contexts: &[Context<'_>], is_traced: bool) -> Vec<String> {
    let reports = || contexts.iter().flat_map(|c| c.digests).filter_map(|digest| digest.verdict.as_ref());
    let has = |verdict: Verdict| reports().any(|report| report.verdict == verdict);
    let mut steps = Vec::new();
    if has(Verdict::Fail) {
        let step = match is_traced {
            true => {
                "Read the causes of the late releases in the section \"What the kernel did\", and change one thing at a time."
            }
            false => {
                "Find the cause of each late release: takt trace FILE, or takt watch --name PROCESS while it runs."
            }
        };
        steps.push(step.to_owned());
    }
    if !collection.runs.iter().all(|run| run.header.not_granted.is_empty()) {
        steps.push("Get the settings that were not granted: takt doctor lists what this machine lacks, and how to get it.".to_owned());
    }
    let more = reports().filter(|report| report.verdict == Verdict::Inconclusive);
    let more = more.filter_map(|report| Some((report.measure_more_samples?, report.measure_more.as_ref()?)));
    if let Some((_, instruction)) = more.max_by_key(|(samples, _)| *samples) {
        steps.push(format!("Get enough evidence: {instruction}."));
    }
    if collection.runs.len() == 1 && steps.len() < 3 {
        steps.push(match reports().next().is_some() && !has(Verdict::Fail) && !has(Verdict::Inconclusive) {
            true => "Detect regressions: takt gate compares new runs with this one, also in CI.".to_owned(),
            false => "Compare with the next run: takt compare THIS NEXT shows what changed, and whether it is more than chance.".to_owned(),
        });
    }
    steps.truncate(3);
    steps
}
