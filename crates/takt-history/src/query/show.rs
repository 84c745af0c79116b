//! A comparison as a document.

use takt_report::document::{Block, Document, Section};
use takt_report::table::{Cell, Table};
use takt_report::{short, time};
use takt_stats::{INTERVAL_CONFIDENCE, percent};

use crate::query::compare::{Compared, Comparison, Figure, Row};

/// The comparison, for the terminal.
pub fn document(comparison: &Comparison) -> Document {
    let mut sections = vec![groups(comparison)];
    for (place, measure) in comparison.measures.iter().enumerate() {
        let mut section =
            Section::new(format!("m{}", place + 1), format!("{} ({})", measure.title, measure.robot));
        section.add(Block::Table(figures(comparison, measure)));
        for row in measure.rows.iter().filter(|row| !row.remarks.is_empty()) {
            let name = comparison.groups[row.group].name();
            section.add(Block::List(row.remarks.iter().map(|remark| format!("{name}: {remark}")).collect()));
        }
        sections.push(section);
    }
    if !comparison.left_out.is_empty() {
        let mut section = Section::new("left-out", "Left out");
        section.add(Block::List(comparison.left_out.clone()));
        sections.push(section);
    }
    Document { title: format!("Takt comparison by {}", comparison.by.join(", ")), sections, papers: 0 }
}

fn groups(comparison: &Comparison) -> Section {
    let mut section = Section::new("groups", "What is compared");
    let [runs, of] = comparison.runs;
    let condition = comparison.condition.as_ref().map_or_else(String::new, |text| format!(" where {text}"));
    section.add(Block::Paragraph(format!("{runs} of {of} runs of {}{condition}.", comparison.store)));
    if !comparison.machine_differences.is_empty() {
        section.add(Block::Warning(comparison.machine_differences.clone()));
    }
    let mut heads = comparison.by.clone();
    heads.extend(
        [
            "#Runs",
            "#Failed",
            "#Doubtful",
            "#Not granted",
            "#Stolen, median (%)",
            "#Stolen, max (%)",
            "From",
            "To",
        ]
        .map(str::to_owned),
    );
    let mut table = Table::new("Groups", &heads);
    for group in &comparison.groups {
        let mut row: Vec<Cell> = group
            .values
            .iter()
            .map(|(_, value)| value.as_ref().map_or_else(|| Cell::gap("unknown"), Cell::text))
            .collect();
        row.extend([group.runs, group.failed, group.doubtful, group.not_granted].map(Cell::number));
        row.extend([group.stolen_median, group.stolen_max].map(|share| Cell::number(short(100.0 * share))));
        row.extend(group.started_utc.iter().map(Cell::text));
        table.push(row);
    }
    section.add(Block::Table(table));
    section
}

fn figures(comparison: &Comparison, measure: &Compared) -> Table {
    let mut heads = vec!["Group".to_owned(), "#Runs".to_owned(), "#Samples".to_owned(), "#Misses".to_owned()];
    for figure in measure.rows.first().into_iter().flat_map(|row| &row.figures) {
        heads.push(format!("#{}", figure.figure));
        heads.push(format!("#{} against the first (%)", figure.figure));
    }
    let mut table = Table::new("Medians of the runs' figures", &heads);
    for (place, row) in measure.rows.iter().enumerate() {
        table.push(line(comparison, row, place == 0));
    }
    table.note(format!(
        "Each run has one figure. The table shows the medians over the runs of a group, and their difference from the first group with its \
         {} interval.",
        percent(INTERVAL_CONFIDENCE)
    ));
    table
}

fn line(comparison: &Comparison, row: &Row, is_first: bool) -> Vec<Cell> {
    let mut cells = vec![
        Cell::text(comparison.groups[row.group].name()),
        Cell::number(row.runs),
        Cell::number(row.samples),
        row.misses.map_or_else(|| Cell::gap("no deadline"), Cell::number),
    ];
    for figure in &row.figures {
        cells.push(figure.ns.map_or_else(|| Cell::gap("never came"), |ns| Cell::number(time(ns))));
        cells.push(if is_first { Cell::text("") } else { difference(figure) });
    }
    cells
}

fn difference(figure: &Figure) -> Cell {
    let percent = |share: f64| short((1000.0 * share).round() / 10.0);
    match figure.difference {
        None => Cell::gap("unknown"),
        Some(share) => Cell::Estimate(percent(share), figure.low.map(percent), figure.high.map(percent)),
    }
}
