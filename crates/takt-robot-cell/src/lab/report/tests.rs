#![allow(clippy::unwrap_used, reason = "a test that cannot write its runs has nothing to test")]

use std::path::Path;

use takt_report::Supplements;
use takt_report::document::Document;
use takt_report::table::{Cell, Table};

use crate::lab::KIND;

#[path = "../../../../takt-report/tests/common/mod.rs"]
mod common;

use common::{header, run};

/// A run of the cell with these factors and reaction times.
fn reaction(path: &Path, factors: &[(&str, &str)], figures: &[(&str, f64)], values: &[u64]) {
    let mut header = header(factors, 1);
    header.robot = KIND.name.to_owned();
    header.measures[0].name = "reaction".to_owned();
    header.figures.extend(figures.iter().map(|(name, value)| ((*name).to_owned(), *value)));
    run(path, &header, values.iter().copied());
}

fn report(root: &Path) -> Document {
    let supplements = Supplements::from_iter([(KIND.name, KIND.report.unwrap())]);
    takt_report::build(&takt_report::collect(&[root]).unwrap(), &supplements)
}

/// The table whose title begins so.
fn table_of<'a>(document: &'a Document, title: &str) -> &'a Table {
    document
        .tables()
        .find(|table| table.title().starts_with(title))
        .unwrap_or_else(|| panic!("no table {title}"))
}

#[test]
fn mitigations_of_a_gpu_stand_against_none_with_everything_else_equal() {
    let root = tempfile::tempdir().unwrap();
    // Worst reactions in milliseconds.
    let worst =
        [("off", "none", 30), ("off", "all", 20), ("gpu.compute", "none", 80), ("gpu.compute", "all", 16)];
    for (number, (stress, mitigation, worst_ms)) in worst.into_iter().enumerate() {
        let figures =
            [("gpu_answered", 900.0), ("gpu_overruns", if mitigation == "all" { 12.0 } else { 0.0 })];
        let mut values = [8_000_000; 500];
        values[250] = worst_ms * 1_000_000;
        let path = root.path().join(number.to_string());
        reaction(&path, &[("stress", stress), ("mitigation", mitigation)], &figures, &values);
    }
    let document = report(root.path());
    assert!(document.sections.iter().any(|section| section.id == "gpu"));
    let by_mitigation = document.tables().find(|t| t.title().ends_with("by mitigation")).unwrap();
    let rows: Vec<Vec<String>> =
        by_mitigation.rows().iter().map(|row| row.iter().map(Cell::plain).collect()).collect();
    let row = |stress: &str, mitigation: &str| {
        rows.iter()
            .find(|r| r[0].ends_with(stress) && r[1] == mitigation)
            .unwrap_or_else(|| panic!("{rows:#?}"))
    };
    assert_eq!(row("gpu.compute", "all")[5], "5.0", "the worst is five times lower: {rows:#?}");
    assert_eq!(row("off", "all")[5], "1.5");
    assert_eq!(row("off", "none")[5], "–");
    let process = table_of(&document, "Perception process");
    assert_eq!(process.rows().len(), 4);
    assert!(process.rows().iter().any(|row| row.iter().any(|cell| cell.plain() == "12")), "{process:?}");
}

#[test]
fn the_papers_questions_are_answered_and_a_report_without_a_gpu_has_no_section_about_it() {
    let root = tempfile::tempdir().unwrap();
    for (number, (policy, ns)) in [("CFS+CFS", 60_000_000), ("DL+RR", 6_000_000)].into_iter().enumerate() {
        let path = root.path().join(number.to_string());
        reaction(&path, &[("policy", policy), ("noise", "64")], &[], &[ns; 100]);
    }
    let document = report(root.path());
    let ids: Vec<&str> = document.sections.iter().map(|section| section.id.as_str()).collect();
    assert!(ids.contains(&"questions") && !ids.contains(&"gpu"), "{ids:?}");
    let text = takt_report::text(&document);
    assert!(text.contains("64 noise threads, DL+RR against CFS+CFS: mean 90 % lower"), "{text}");
    let page = takt_report::markdown(&document);
    assert!(page.contains("SentryRT-1, Fig. 3, has the same bars."), "{page}");
}
