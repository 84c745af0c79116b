//! The GPU under control: what the mitigations do for the reaction time, and what happened to the
//! perception process.

use std::collections::BTreeMap;

use takt_report::table::{Cell, Table};
use takt_report::{Collection, Context, Digest, Run, clean, spread};

/// The factor that says what is done about the GPU.
const MITIGATION: &str = "mitigation";
/// Its value for a GPU without control.
const NONE: &str = "none";
/// The figure that every run with a perception process has.
const MARK: &str = "gpu_answered";
/// Other figures of the perception process, with their heads.
const FIGURES: [(&str, &str); 7] = [
    ("gpu_answer_mean_ms", "#Answer, mean (ms)"),
    ("gpu_answer_p999_ms", "#Answer, p99.9 (ms)"),
    ("gpu_answer_worst_ms", "#Answer, worst (ms)"),
    ("gpu_overruns", "#Overruns"),
    ("gpu_late", "#Late"),
    ("gpu_breaker_opened", "#Breaker opened"),
    ("gpu_restarts", "#Restarts"),
];

/// Whether any run had a perception process.
fn concerns(collection: &Collection) -> bool {
    collection.runs.iter().any(|run| run.header.figures.contains_key(MARK))
}

/// Activity of the perception process in each configuration; counts are sums over the repetitions.
pub(super) fn perception_process(collection: &Collection) -> Option<Table> {
    if !concerns(collection) {
        return None;
    }
    let mut heads = vec!["Configuration", "#Answered in time"];
    heads.extend(FIGURES.iter().map(|(_, head)| *head));
    let mut table = Table::new("Perception process", &heads);
    for configuration in &collection.configurations {
        let runs: Vec<&Run> = configuration.runs.iter().map(|run| &collection.runs[*run]).collect();
        let values = |name: &str| -> Vec<f64> {
            runs.iter().filter_map(|run| run.header.figures.get(name).copied()).collect()
        };
        let mut row = vec![Cell::text(&configuration.name)];
        for name in std::iter::once(MARK).chain(FIGURES.iter().map(|(name, _)| *name)) {
            let found = values(name);
            row.push(match name {
                _ if found.is_empty() && values(MARK).is_empty() => Cell::gap("no perception process"),
                _ if found.is_empty() => Cell::gap("nothing was answered"),
                _ if name.ends_with("_ms") => {
                    let [middle, _, high] = spread(found.iter().copied());
                    let worst = name.contains("worst");
                    Cell::number(format!("{:.2}", if worst { high } else { middle }))
                }
                _ => Cell::number(format!("{:.0}", found.iter().sum::<f64>())),
            });
        }
        table.push(row);
    }
    table.note(
        "Answers: from the camera thread's request to the worker's answer, for frames answered in time. Counts are sums over the \
         repetitions, worst values maxima, other values medians.",
    );
    Some(table)
}

/// Reaction time by mitigation, against none, everything else being equal.
pub(super) fn mitigations(context: &Context<'_>) -> Option<Table> {
    let Context { collection, digests, unit, .. } = *context;
    if !collection.varying.iter().any(|name| name == MITIGATION) {
        return None;
    }
    // Configurations that differ in the mitigation only stand together.
    type Others = Vec<(String, String)>;
    let mut groups: BTreeMap<Others, Vec<(&str, &Digest)>> = BTreeMap::new();
    let mut order: Vec<Others> = Vec::new();
    for digest in digests {
        let factors = &collection.configurations[digest.configuration].factors;
        let Some(own) = factors.iter().find(|f| f.name == MITIGATION) else { continue };
        let others = factors.iter().filter(|f| f.name != MITIGATION && collection.varying.contains(&f.name));
        let key: Others = others.map(|f| (f.name.clone(), f.value.clone())).collect();
        if !order.contains(&key) {
            order.push(key.clone());
        }
        groups.entry(key).or_default().push((&own.value, digest));
    }
    let heads = [
        "Otherwise equal".to_owned(),
        "Mitigation".to_owned(),
        context.head("Mean"),
        context.head("Worst"),
        "#Mean, times lower than without".to_owned(),
        "#Worst, times lower than without".to_owned(),
        "#Reactions".to_owned(),
    ];
    let mut table = Table::new(format!("{}: by mitigation", context.group.title), &heads);
    for key in &order {
        let Some(members) = groups.get(key) else { continue };
        let none = members.iter().find(|(value, _)| *value == NONE).map(|(_, digest)| &digest.summary);
        let words: Vec<String> = key.iter().map(|(name, value)| clean(&format!("{name} {value}"))).collect();
        for (value, digest) in members {
            let s = &digest.summary;
            let mut row = vec![Cell::text(words.join(", ")), Cell::text(value)];
            if s.count == 0 {
                row.extend((0..4).map(|_| Cell::gap("no reactions")));
                row.push(Cell::number(0));
                table.push(row);
                continue;
            }
            row.push(Cell::number(unit.number(s.mean)));
            row.push(Cell::number(unit.number(s.worst)));
            for (with, without) in [(s.mean, none.map(|n| n.mean)), (s.worst, none.map(|n| n.worst))] {
                row.push(match without {
                    _ if *value == NONE => Cell::text("–"),
                    Some(without) if with > 0.0 && without > 0.0 => {
                        Cell::number(format!("{:.1}", without / with))
                    }
                    _ => Cell::gap("not measured without"),
                });
            }
            row.push(Cell::number(s.count));
            table.push(row);
        }
    }
    table.note(
        "A frame that the GPU did not answer within its budget was answered by the fallback or dropped; see the table of the perception \
         process for the counts.",
    );
    Some(table)
}
