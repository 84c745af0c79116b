//! Result of a gate, for the terminal.

use takt_report::document::{Block, Document, Section};
use takt_report::table::{Cell, Table};
use takt_report::time;

use crate::gate::judge::percent;
use crate::gate::{Gate, Pair};

/// A share with its sign: `+12.3 %`; "unknown" where it is, or is beyond all bounds.
pub(crate) fn signed(share: Option<f64>) -> String {
    match share {
        None => "unknown".to_owned(),
        Some(share) if share > 0.0 => format!("+{}", percent(share)),
        Some(share) => percent(share),
    }
}

/// The decision on one measure in one sentence.
pub(crate) fn sentence(pair: &Pair) -> String {
    let interval = match (pair.low, pair.high) {
        (None, None) => "no interval".to_owned(),
        (low, high) => format!(
            "{} % interval {} to {}",
            takt_report::short(100.0 * pair.confidence),
            signed(low),
            signed(high)
        ),
    };
    let figure = format!("{} of {}, {}", pair.figure, pair.measure, pair.configuration);
    format!("{}: {figure}: {} ({interval})", pair.decision.word(), signed(pair.difference))
}

/// The numbers behind it.
pub(crate) fn numbers(pair: &Pair) -> String {
    let [before, after] = pair.runs;
    let detectable = match pair.minimum_detectable {
        Some(share) => format!("a rise of {} would have been found in 19 of 20 cases", percent(share)),
        None => "no rise would have been found for certain".to_owned(),
    };
    format!("{before} runs before, {after} after; {detectable}")
}

pub fn document(gate: &Gate) -> Document {
    let mut section = Section::new("gate", gate.decision.word());
    if !gate.reasons.is_empty() {
        section.add(Block::List(gate.reasons.clone()));
    }
    let heads = [
        "Measure",
        "Configuration",
        "Decision",
        "#Before",
        "#After",
        "#Difference (%)",
        "#Found in 19 of 20 cases (%)",
        "#Runs",
        "#Samples of a run",
    ];
    let mut table = Table::new("Figures of the runs", &heads);
    let ns = |ns: Option<f64>| ns.map_or_else(|| Cell::gap("unknown"), |ns| Cell::number(time(ns)));
    let number = |share: Option<f64>| takt_report::short((share.unwrap_or(0.0) * 1000.0).round() / 10.0);
    for pair in &gate.pairs {
        let end = |share: Option<f64>| share.map(|share| number(Some(share)));
        table.push(vec![
            Cell::text(format!("{} of {}", pair.figure, pair.measure)),
            Cell::text(&pair.configuration),
            Cell::text(pair.decision.word()),
            ns(pair.before_ns),
            ns(pair.after_ns),
            Cell::Estimate(number(pair.difference), end(pair.low), end(pair.high)),
            pair.minimum_detectable
                .map_or_else(|| Cell::gap("too few runs"), |share| Cell::number(number(Some(share)))),
            Cell::number(format!("{} / {}", pair.runs[0], pair.runs[1])),
            Cell::number(format!("{} / {}", pair.samples[0], pair.samples[1])),
        ]);
    }
    table.note(
        "Before and after: medians over the runs. The interval covers chance between runs and, unless old and new runs alternated, \
         differences between stretches of the baseline; it holds for all figures at once.",
    );
    section.add(Block::Table(table));
    for pair in &gate.pairs {
        let mut lines = vec![sentence(pair)];
        lines.extend(pair.reasons.iter().cloned());
        section.add(Block::List(lines));
    }
    let mut sections = vec![section];
    let facts = |all: &[(String, Vec<String>)]| -> Vec<String> {
        all.iter().map(|(fact, values)| format!("{fact}: {}", values.join(" / "))).collect()
    };
    let lists = [
        ("machines", "Differences between the machines", facts(&gate.machine_differences)),
        ("settings", "Settings that differ between the sides", facts(&gate.setting_differences)),
        ("left-out", "Left out", gate.left_out.clone()),
        ("unmatched", "Without a partner", gate.unmatched.clone()),
    ];
    for (id, title, items) in lists {
        let items: Vec<String> = items;
        if !items.is_empty() {
            let mut section = Section::new(id, title);
            section.add(Block::List(items));
            sections.push(section);
        }
    }
    Document { title: "Takt gate".to_owned(), sections, papers: 0 }
}
