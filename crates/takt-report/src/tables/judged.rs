//! Several measures that one verdict is about: which were late, in which phase, in which
//! configuration (*ROS-Llama*, Table II).

use takt_stats::{Part, Verdict, VerdictReport};

use super::Context;
use crate::digest::Digest;
use crate::phase::PhaseDigest;
use crate::table::{Cell, Table};
use crate::verdict::{concluded, of_parts};
use crate::words::{clean, short, time};

/// The measures of one robot that its verdicts are about, where these are several.
pub fn judged<'a, 'b>(contexts: &'b [Context<'a>], robot: &str) -> Vec<&'b Context<'a>> {
    let judged = |c: &&Context<'_>| c.group.robot == robot && c.digests.iter().any(|d| d.judged);
    let found: Vec<&Context<'a>> = contexts.iter().filter(judged).collect();
    if found.len() > 1 { found } else { Vec::new() }
}

/// Numbers of the configurations that have any of the measures, in order.
fn configurations(contexts: &[&Context<'_>]) -> Vec<usize> {
    let mut all: Vec<usize> = contexts
        .iter()
        .flat_map(|c| c.digests)
        .filter(|d| !d.runs.is_empty() || !d.failed.is_empty())
        .map(|d| d.configuration)
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn digest<'a>(context: &Context<'a>, configuration: usize) -> Option<&'a Digest> {
    context.digests.iter().find(|d| d.configuration == configuration)
}

/// The verdict of each configuration over all measures.
pub(crate) fn overalls(contexts: &[&Context<'_>]) -> Vec<(usize, VerdictReport)> {
    let one = |configuration: usize| {
        let found = contexts.iter().filter_map(|context| {
            let digest = digest(context, configuration)?;
            let (name, report) = (context.group.name.as_str(), digest.verdict.as_ref()?);
            Some(Part { name, report, excused: digest.excuse() })
        });
        let parts: Vec<Part<'_>> = found.collect();
        let collection = contexts[0].collection;
        let runs: Vec<_> = collection.configurations[configuration]
            .runs
            .iter()
            .map(|run| collection.runs[*run].verdict_source())
            .collect();
        (!parts.is_empty()).then(|| (configuration, concluded(of_parts(&parts), &runs)))
    };
    configurations(contexts).into_iter().filter_map(one).collect()
}

/// Reason of a configuration's verdict `report`, as the end of a sentence.
pub(crate) fn what_came(contexts: &[&Context<'_>], configuration: usize, report: &VerdictReport) -> String {
    let missed: Vec<&str> = contexts
        .iter()
        .filter(|context| {
            digest(context, configuration).is_some_and(|d| {
                let has_missed = d.misses().saturating_add(d.skipped()) > 0;
                // Beside a FAIL, misses that a claim allows are no reason.
                let counts = d
                    .verdict
                    .as_ref()
                    .is_some_and(|v| report.verdict != Verdict::Fail || v.verdict == Verdict::Fail);
                has_missed && counts && d.excuse().is_none()
            })
        })
        .map(|context| context.group.name.as_str())
        .collect();
    let missed = (!missed.is_empty()).then(|| missed.join(", "));
    match (report.verdict, missed) {
        (Verdict::Pass, None) => {
            "every measure that counts met its deadline, with enough evidence".to_owned()
        }
        (Verdict::Pass, Some(names)) => format!(
            "every measure that counts met its claim, with enough evidence, in spite of misses ({names})"
        ),
        (Verdict::Inconclusive, None) => {
            "no measure that counts missed its deadline, but the evidence is too weak for a PASS".to_owned()
        }
        (Verdict::Inconclusive, Some(names)) => format!(
            "the evidence supports neither a PASS nor a FAIL of the claim; a measure that counts missed its deadline ({names})"
        ),
        (Verdict::Fail, missed) => {
            let collection = contexts[0].collection;
            let runs = collection.configurations[configuration].runs.iter().map(|run| &collection.runs[*run]);
            let failed: Vec<&[String]> =
                runs.map(|run| &run.header.failures[..]).filter(|failures| !failures.is_empty()).collect();
            let besides = failed.first().and_then(|failures| failures.first()).map(|first| {
                let first = clean(first);
                match (failed.len(), failed.iter().map(|failures| failures.len()).sum::<usize>()) {
                    (1, 1) => format!("the run failed: {first}"),
                    (1, all) => format!("the run failed for {all} reasons, the first: {first}"),
                    (runs, _) => format!("{runs} runs failed, the first: {first}"),
                }
            });
            match (missed, besides) {
                (Some(names), None) => {
                    format!("a measure that counts missed its deadline ({names})")
                }
                (Some(names), Some(besides)) => {
                    format!("a measure that counts missed its deadline ({names}), and {besides}")
                }
                (None, Some(besides)) => {
                    format!("no measure that counts missed its deadline, but {besides}")
                }
                (None, None) => report.reasons.join("; "),
            }
        }
    }
}

/// A line for each configuration: its verdict, and which measures kept their deadlines.
pub fn verdicts(contexts: &[&Context<'_>], overalls: &[(usize, VerdictReport)]) -> Table {
    let heads =
        ["Configuration", "Verdict", "Kept", "Missed", "Given up in the declared order", "Too little seen"];
    let mut table = Table::new("Verdicts over all measures", &heads);
    for (configuration, report) in overalls {
        let of = |pick: &dyn Fn(&Digest, &VerdictReport) -> bool| {
            let with = contexts.iter().filter(|c| {
                digest(c, *configuration).is_some_and(|d| d.verdict.as_ref().is_some_and(|v| pick(d, v)))
            });
            let names: Vec<&str> = with.map(|c| c.group.name.as_str()).collect();
            Cell::text(if names.is_empty() { "none".to_owned() } else { names.join(", ") })
        };
        let counts = |d: &Digest| d.excuse().is_none();
        table.push(vec![
            Cell::text(&contexts[0].collection.configurations[*configuration].name),
            Cell::Verdict(report.verdict),
            of(&|d, v| counts(d) && v.verdict == Verdict::Pass),
            of(&|d, v| counts(d) && v.verdict == Verdict::Fail),
            of(&|d, _| !counts(d)),
            of(&|d, v| counts(d) && v.verdict == Verdict::Inconclusive),
        ]);
    }
    table.note(
        "FAIL: a measure that counts missed its deadline, or the run failed for the reason given above. Given up: the manager withdrew its \
         guarantee in the declared order, so its misses do not count. Too little seen: no miss, but less evidence than a PASS needs.",
    );
    table
}

/// Misses by measure, configuration and phase.
pub fn misses(contexts: &[&Context<'_>]) -> Table {
    let mut phases: Vec<&str> = Vec::new();
    for phase in contexts.iter().flat_map(|c| c.digests).flat_map(|d| &d.phases) {
        if !phases.contains(&phase.name.as_str()) {
            phases.push(&phase.name);
        }
    }
    let mut heads: Vec<String> = ["Measure", "#Deadline", "Configuration"].map(str::to_owned).to_vec();
    for phase in &phases {
        heads.extend([format!("#{phase}: late / all"), "#Worst".to_owned()]);
    }
    heads.extend(["#Late / all", "#Worst", "Verdict"].map(str::to_owned));
    let mut table = Table::new("Late samples by measure, configuration and phase", &heads);
    for context in contexts {
        for digest in context.digests {
            let mut row = vec![
                Cell::text(&context.group.name),
                digest.deadline_ns.map_or_else(|| Cell::gap("none"), |d| Cell::number(time(d as f64))),
                Cell::text(context.name(digest)),
            ];
            let late = |misses: u64, count: u64| match count {
                0 => Cell::gap("no samples"),
                _ => Cell::number(format!("{misses} / {count}")),
            };
            let worst = |count: u64, ns: f64| match count {
                0 => Cell::gap("no samples"),
                _ => Cell::number(format!("{} ms", short((ns / 1e4).round() / 100.0))),
            };
            for phase in &phases {
                match digest.phases.iter().find(|p| p.name == *phase) {
                    Some(PhaseDigest { misses, count, worst: ns, .. }) => {
                        row.extend([late(*misses, *count), worst(*count, *ns)]);
                    }
                    None => row.extend([Cell::gap("not reported"), Cell::gap("not reported")]),
                }
            }
            let all = digest.summary.count.saturating_add(digest.skipped());
            row.push(late(digest.misses().saturating_add(digest.skipped()), all));
            row.push(worst(digest.summary.count, digest.summary.worst));
            row.push(match (&digest.verdict, digest.excuse()) {
                (_, Some(_)) => Cell::text("given up"),
                (Some(report), None) => Cell::Verdict(report.verdict),
                (None, None) => Cell::gap("no verdict"),
            });
            table.push(row);
        }
    }
    table
}
