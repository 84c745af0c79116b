//! A comparison as a document: for the terminal, Markdown or HTML.

use takt_stats::{INTERVAL_CONFIDENCE, percent};

use super::{Change, Comparison, Pair};
use crate::document::{Block, Document, Section};
use crate::table::{Cell, Table};
use crate::words::{Unit, short, shorten};

/// Longest value of a machine's fact in the table; the whole is in the JSON.
const LONG: usize = 160;

pub fn document(comparison: &Comparison) -> Document {
    let mut sections = vec![what(comparison)];
    let mut measures: Vec<&str> = Vec::new();
    for pair in &comparison.pairs {
        if !measures.contains(&pair.measure.as_str()) {
            measures.push(&pair.measure);
        }
    }
    for (index, measure) in measures.iter().enumerate() {
        let pairs: Vec<&Pair> = comparison.pairs.iter().filter(|p| p.measure == *measure).collect();
        let mut section = Section::new(format!("m{}", index + 1), pairs[0].title.clone());
        section.add(Block::Table(changes(comparison, &pairs)));
        sections.push(section);
    }
    if !comparison.unmatched.is_empty() {
        let mut section = Section::new("unmatched", "Without a partner");
        section.add(Block::List(comparison.unmatched.clone()));
        sections.push(section);
    }
    let letters: Vec<&str> = comparison.sides.iter().map(|s| s.letter.as_str()).collect();
    Document { title: format!("Takt comparison: {}", letters.join(", ")), sections, papers: 0 }
}

fn what(comparison: &Comparison) -> Section {
    let mut section = Section::new("sides", "What is compared");
    if comparison.machine_differences.is_empty() {
        section.add(Block::Paragraph("The machines are identical on all sides.".to_owned()));
    } else {
        let mut heads = vec!["Fact".to_owned()];
        heads.extend(comparison.sides.iter().map(|s| s.letter.clone()));
        let mut table = Table::new("Differences between the machines", &heads);
        for fact in &comparison.machine_differences {
            let mut row = vec![Cell::text(fact.fact.replace('_', " "))];
            row.extend(fact.values.iter().map(|values| Cell::text(shorten(&values.join(" / "), LONG))));
            table.push(row);
        }
        table.note(
            "A difference in the figures below may come from these rather than from the change under test.",
        );
        section.add(Block::Table(table));
    }
    let mut table = Table::new("Sides", &["Side", "Path", "Runs and hashes", "Labels", "Left out"]);
    for side in &comparison.sides {
        let runs: Vec<String> = side
            .runs
            .iter()
            .map(|r| {
                format!(
                    "{} ({})",
                    r.name,
                    r.hash.as_deref().map_or("not whole".into(), crate::words::short_hash)
                )
            })
            .collect();
        let labels: Vec<String> = side
            .runs
            .iter()
            .flat_map(|r| r.labels.iter().map(|label| format!("{}: {label}", r.name)))
            .collect();
        let or_none =
            |texts: Vec<String>| if texts.is_empty() { "none".to_owned() } else { texts.join("; ") };
        table.push(vec![
            Cell::text(&side.letter),
            Cell::text(&side.path),
            Cell::text(or_none(runs)),
            Cell::text(or_none(labels)),
            Cell::text(or_none(side.left_out.clone())),
        ]);
    }
    section.add(Block::Table(table));
    section
}

fn changes(comparison: &Comparison, pairs: &[&Pair]) -> Table {
    let unit = comparison.unit(&pairs[0].measure);
    let head = |name: &str| format!("#{name} ({})", unit.sign());
    let heads = [
        "Configuration".to_owned(),
        "Sides".to_owned(),
        "Figure".to_owned(),
        head("Before"),
        head("After"),
        head(&format!("Difference [{}]", percent(INTERVAL_CONFIDENCE))),
        "#Change (%)".to_owned(),
        "More than chance".to_owned(),
    ];
    let mut table = Table::new(format!("{} ({})", pairs[0].title, unit.sign()), &heads);
    let mut warnings: Vec<String> = Vec::new();
    for pair in pairs {
        let start = || vec![Cell::text(&pair.configuration), Cell::text(pair.sides.join(" → "))];
        for change in &pair.changes {
            let mut row = start();
            row.extend(cells(change, unit));
            table.push(row);
            for warning in &change.warnings {
                let warning = format!("{}: {warning}", change.figure);
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
            }
        }
        if pair.changes.is_empty() {
            let mut row = start();
            row.push(Cell::gap("nothing to compare"));
            row.extend((0..4).map(|_| Cell::gap("no samples")));
            row.push(Cell::text(pair.remarks.join("; ")));
            table.push(row);
        }
        let mut row = start();
        row.push(Cell::text("misses of samples"));
        row.extend([0, 1].map(|side| match pair.misses[side] {
            Some(misses) => {
                Cell::number(format!("{misses} of {}", pair.samples[side].saturating_add(pair.skipped[side])))
            }
            None if pair.samples[side] == 0 => Cell::gap("no samples"),
            None => Cell::gap("no deadline"),
        }));
        row.extend([Cell::text("–"), Cell::text("–"), Cell::text("–")]);
        table.push(row);
    }
    table.note(
        "Difference: after minus before, so negative is faster; intervals come from a block bootstrap, which keeps bursts together. \
         \"Yes\": the interval excludes zero. A maximum has no interval, because it grows with the measured time.",
    );
    for warning in warnings {
        table.note(warning);
    }
    for pair in pairs {
        for (letter, verdict) in pair.sides.iter().zip(&pair.verdicts) {
            let sentence = verdict.iter().map(|verdict| format!("{letter}: {verdict}"));
            sentence.for_each(|sentence| table.note(format!("{}: {sentence}", pair.configuration)));
        }
        for remark in &pair.remarks {
            table.note(format!("{} ({}): {remark}", pair.configuration, pair.sides.join(" → ")));
        }
    }
    table
}

fn cells(change: &Change, unit: Unit) -> Vec<Cell> {
    let signed = |ns: f64| {
        let text = unit.number(ns);
        if ns > 0.0 { format!("+{text}") } else { text }
    };
    vec![
        Cell::text(&change.figure),
        Cell::number(unit.number(change.before_ns)),
        Cell::number(unit.number(change.after_ns)),
        match (change.low_ns, change.high_ns) {
            (None, None) => Cell::number(signed(change.difference_ns)),
            (low, high) => Cell::Estimate(signed(change.difference_ns), low.map(signed), high.map(signed)),
        },
        match change.percent {
            Some(percent) => Cell::number(format!(
                "{}{}",
                if percent > 0.0 { "+" } else { "" },
                short((percent * 10.0).round() / 10.0)
            )),
            None => Cell::gap("from 0"),
        },
        Cell::text(match change.clear {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not reported",
        }),
    ]
}
