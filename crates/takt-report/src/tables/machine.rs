//! Conditions of the measurement: runs and hashes, machine, interference, refused settings, robots'
//! own figures.

use serde_json::Value;

use super::spread;
use crate::collect::{Collection, Configuration, Seal};
use crate::table::{Cell, Table};
use crate::words::{clean, figure, shorten};

/// Longest text of a machine's fact or a load's proof; the whole is in `run.json`.
const LONG: usize = 300;

/// Every run with its directory, hash and times.
pub fn runs(collection: &Collection) -> Table {
    let heads = [
        "Run",
        "Directory",
        "Configuration",
        "#Repetition",
        "Hash (SHA-256 of hashes.json)",
        "Started",
        "Ended",
        "#Busy (%)",
        "#Stolen (%)",
        "Labels",
    ];
    let mut table = Table::new("Runs", &heads);
    for (number, run) in collection.runs.iter().enumerate() {
        let configuration = collection.configurations.iter().find(|c| c.runs.contains(&number));
        let header = &run.header;
        let labels = run.labels();
        table.push(vec![
            Cell::text(&run.key),
            Cell::text(run.dir.path().display().to_string()),
            configuration.map_or_else(|| Cell::gap("none"), |c| Cell::text(&c.name)),
            match header.experiment.repetition {
                0 => Cell::text("–"),
                repetition => Cell::number(repetition),
            },
            match &run.seal {
                Seal::Whole(hash) => Cell::text(hash),
                Seal::Changed(files) => Cell::gap(format!("changed since the seal: {}", files.join(", "))),
                Seal::Missing if run.seal.is_gone(header) => {
                    Cell::gap("not sealed, although the run says that it finished")
                }
                Seal::Missing => Cell::gap("not sealed: the run did not complete, or is still running"),
            },
            Cell::text(&header.started_utc),
            match &header.finished_utc {
                Some(end) => Cell::text(end),
                None => Cell::gap("not ended"),
            },
            Cell::number(format!("{:.1}", 100.0 * header.cpu.busy)),
            Cell::number(format!("{:.2}", 100.0 * header.cpu.stolen)),
            Cell::text(if labels.is_empty() { "none".to_owned() } else { labels.join("; ") }),
        ]);
    }
    table
}

/// Items found but not in the figures; `None` if there are none.
pub fn gaps(collection: &Collection) -> Option<Table> {
    if collection.gaps.is_empty() {
        return None;
    }
    let mut table = Table::new("Left out", &["What", "Why"]);
    for gap in &collection.gaps {
        table.push(vec![Cell::text(&gap.what), Cell::text(&gap.why)]);
    }
    Some(table)
}

fn show(value: &Value) -> String {
    match value {
        Value::Null => "unknown".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Number(number) => number.as_f64().map_or_else(
            || number.to_string(),
            |n| match number.as_i64() {
                Some(whole) => whole.to_string(),
                None => figure(n),
            },
        ),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(show).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| format!("{name} {}", show(value)))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// The facts of the machines. A fact that differs between runs has each value with its runs.
pub fn machine(collection: &Collection) -> Table {
    let mut table = Table::new("Machine and kernel", &["Fact", "Value"]);
    let facts = serde_json::to_value(&collection.runs[0].header.machine).unwrap_or(Value::Null);
    for (name, value) in facts.as_object().into_iter().flatten() {
        let words = name.replace('_', " ");
        match collection.differing.iter().find(|fact| fact.name == *name) {
            None => table.push(vec![Cell::text(words), Cell::text(shorten(&clean(&show(value)), LONG))]),
            Some(fact) => {
                let each: Vec<String> = fact
                    .values
                    .iter()
                    .map(|(value, runs)| format!("{} in {}", shorten(value, LONG), runs.join(", ")))
                    .collect();
                table.push(vec![Cell::text(format!("{words} (differs)")), Cell::text(each.join("; "))]);
            }
        }
    }
    table
}

/// A part of the load in a line: what ran, what it was asked, what it did. Fields of another shape
/// are shown as they are.
fn component(item: &Value) -> String {
    let text = |name: &str| item.get(name).and_then(Value::as_str);
    let number = |name: &str| item.get(name).and_then(Value::as_f64);
    let (Some(tool), Some(asked), Some(share)) = (text("tool"), text("asked"), number("cpu_share")) else {
        return show(item);
    };
    let mut words = vec![format!("{}: {asked}", text("version").unwrap_or(tool))];
    if let Some(reason) = text("stand_in") {
        words.push(format!("stood in: {reason}"));
    }
    words.extend(number("processes").map(|n| format!("{n} processes or threads")));
    words.push(format!("{:.1} % of the processor time", 100.0 * share));
    words.extend(item.get("proof").map(|proof| format!("proof: {}", show(proof))));
    match item.get("died") {
        None | Some(Value::Null) => {}
        Some(death) => words.push(format!("ENDED EARLY: {}", show(death))),
    }
    words.join("; ")
}

/// Parts of a load report that prove it; anything else is shown field by field.
fn proof(load: &Value) -> Vec<(String, String)> {
    let Some(fields) = load.as_object() else {
        return match load {
            Value::Null => Vec::new(),
            other => vec![("load".to_owned(), show(other))],
        };
    };
    let mut lines = Vec::new();
    for (name, value) in fields {
        match value {
            Value::Array(items) if items.iter().any(Value::is_object) => {
                for (index, item) in items.iter().enumerate() {
                    let kind = item.get("kind").or_else(|| item.get("name")).and_then(Value::as_str);
                    let title = kind.map_or_else(|| format!("{name} {}", index + 1), str::to_owned);
                    lines.push((title, component(item)));
                }
            }
            other => lines.push((name.replace('_', " "), show(other))),
        }
    }
    lines
}

/// Proof that the asked interference was running, of the first run of each configuration that had
/// any.
pub fn interference(collection: &Collection) -> Option<Table> {
    let mut table = Table::new("Running interference", &["Configuration", "Run", "Part", "What it did"]);
    for configuration in &collection.configurations {
        let loaded = |run: &&usize| !collection.runs[**run].header.load.is_null();
        let Some(&run) = configuration.runs.iter().find(loaded) else { continue };
        let run = &collection.runs[run];
        for (part, what) in proof(&run.header.load) {
            table.push(vec![
                Cell::text(&configuration.name),
                Cell::text(&run.key),
                Cell::text(part),
                Cell::text(shorten(&clean(&what), LONG)),
            ]);
        }
    }
    if table.rows().is_empty() {
        return None;
    }
    table.note("First repetition of each configuration; each run's run.json has its own.");
    Some(table)
}

/// Settings that were not granted, and problems, a row for each sentence with its runs.
pub fn shortfalls(collection: &Collection) -> Option<Table> {
    let mut rows: Vec<(&str, String, Vec<&str>)> = Vec::new();
    for run in &collection.runs {
        let not_granted = run.header.not_granted.iter().map(|text| ("not granted", clean(text)));
        let problems = run.header.problems.iter().map(|text| ("problem", clean(text)));
        for (kind, text) in not_granted.chain(problems) {
            match rows.iter_mut().find(|(k, t, _)| *k == kind && *t == text) {
                Some((.., runs)) => runs.push(&run.key),
                None => rows.push((kind, text, vec![&run.key])),
            }
        }
    }
    if rows.is_empty() {
        return None;
    }
    let mut table = Table::new("Settings not granted, and problems", &["Kind", "What", "Runs"]);
    for (kind, text, runs) in rows {
        table.push(vec![Cell::text(kind), Cell::text(text), Cell::text(runs.join(", "))]);
    }
    Some(table)
}

/// More figures than this are rows of their table and no longer its columns.
const FIGURE_COLUMNS: usize = 10;

/// A figure over the repetitions of a configuration.
fn over_runs(collection: &Collection, configuration: &Configuration, name: &str) -> Cell {
    let runs = configuration.runs.iter().map(|r| &collection.runs[*r]);
    let values: Vec<f64> = runs.filter_map(|r| r.header.figures.get(name).copied()).collect();
    let [middle, low, high] = spread(values.iter().copied());
    match values.len() {
        0 => Cell::gap("not reported"),
        1 => Cell::number(figure(middle)),
        _ => Cell::Estimate(figure(middle), Some(figure(low)), Some(figure(high))),
    }
}

/// Names of all phases that runs report, in order.
fn phases(collection: &Collection) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for phase in collection.runs.iter().flat_map(|r| &r.header.phases) {
        if !names.contains(&phase.name.as_str()) {
            names.push(&phase.name);
        }
    }
    names
}

/// The robots' own figures (`position_rms_m`), median over repetitions with least and greatest.
pub fn figures(collection: &Collection) -> Option<Table> {
    let phases = phases(collection);
    let of_phase = |name: &str| name.split_once('@').is_some_and(|(_, phase)| phases.contains(&phase));
    let mut names: Vec<&str> = Vec::new();
    for name in collection.runs.iter().flat_map(|r| r.header.figures.keys()) {
        if !names.contains(&name.as_str()) && !of_phase(name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return None;
    }
    let all = &collection.configurations;
    let mut table;
    if names.len() > FIGURE_COLUMNS && all.len() < names.len() {
        let mut heads = vec!["Figure".to_owned()];
        heads.extend(all.iter().map(|configuration| format!("#{}", configuration.name)));
        table = Table::new("Figures of the robot", &heads);
        for name in &names {
            let mut row = vec![Cell::text(name)];
            row.extend(all.iter().map(|configuration| over_runs(collection, configuration, name)));
            table.push(row);
        }
    } else {
        let mut heads = vec!["Configuration".to_owned()];
        heads.extend(names.iter().map(|name| format!("#{name}")));
        table = Table::new("Figures of the robot", &heads);
        for configuration in all {
            let mut row = vec![Cell::text(&configuration.name)];
            row.extend(names.iter().map(|name| over_runs(collection, configuration, name)));
            table.push(row);
        }
    }
    table.note("Names contain the units. Over repetitions: median [least, greatest].");
    Some(table)
}

/// Figures that runs report for each phase (`name@phase`), beside the same for the whole run
/// (*ROS-Llama*, Table III).
pub fn figures_by_phase(collection: &Collection) -> Option<Table> {
    let phases = phases(collection);
    let mut names: Vec<&str> = Vec::new();
    for name in collection.runs.iter().flat_map(|r| r.header.figures.keys()) {
        if let Some((name, phase)) = name.split_once('@')
            && phases.contains(&phase)
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    if names.is_empty() {
        return None;
    }
    let mut heads = vec!["Figure".to_owned(), "Configuration".to_owned()];
    heads.extend(phases.iter().map(|phase| format!("#{phase}")));
    heads.push("#Whole run".to_owned());
    let mut table = Table::new("Figures by phase", &heads);
    for name in names {
        for configuration in &collection.configurations {
            let mut row = vec![Cell::text(name), Cell::text(&configuration.name)];
            row.extend(phases.iter().map(|p| over_runs(collection, configuration, &format!("{name}@{p}"))));
            row.push(over_runs(collection, configuration, name));
            table.push(row);
        }
    }
    table.note(
        "Names contain the units. Over repetitions: median [least, greatest]. The whole run starts before its first phase.",
    );
    Some(table)
}
