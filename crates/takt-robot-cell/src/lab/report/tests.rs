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

/// A run of the paper's campaign: policy, noise, kernel, mean reaction in milliseconds, and one
/// that is ten times as long.
fn of_paper(path: &Path, (policy, noise, kernel, mean_ms): (&str, &str, &str, u64), repetition: u32) {
    let factors = [
        ("noise", noise),
        ("policy", policy),
        ("kernel", kernel),
        ("camera_mode", "virtual"),
        ("timer_slack", if policy == "RR+RR" { "1ns" } else { "default" }),
    ];
    let mut header = header(&factors, repetition);
    header.robot = KIND.name.to_owned();
    header.experiment.campaign = "sentryrt1".to_owned();
    header.experiment.paper = "sentryrt1".to_owned();
    header.scaled = Some("SCALED DOWN: 1 of 5 cameras".to_owned());
    header.measures[0].name = "reaction".to_owned();
    header.measures[0].title = "Reaction time".to_owned();
    header.measures[0].deadline_ns = Some(37_300_000);
    let ns = mean_ms * 1_000_000;
    let worst = ns * u64::from(9 + repetition);
    run(path, &header, (0..200).map(|index| if index == 7 { worst } else { ns }));
}

#[test]
fn a_report_of_the_papers_campaign_begins_with_its_tables_and_figures_and_published_values() {
    let root = tempfile::tempdir().unwrap();
    let all = [
        ("CFS+CFS", "128", "generic", 60),
        ("DL+RR", "128", "generic", 6),
        ("DL+RR", "128", "realtime", 4),
        ("DL+RR", "0", "generic", 5),
        ("RR+RR", "128", "generic", 7),
    ];
    for (number, one) in all.into_iter().enumerate() {
        for repetition in 1..=3 {
            of_paper(&root.path().join(format!("{number}-{repetition}")), one, repetition);
        }
    }
    let document = report(root.path());
    let first = &document.sections[0];
    assert_eq!((first.id.as_str(), document.papers), ("paper-sentryrt1", 1));
    assert_eq!(document.sections[1].id, "introduction");
    let headings: Vec<&str> = first
        .blocks()
        .iter()
        .filter_map(|block| match block {
            takt_report::document::Block::Heading(text) => {
                text.split_once(". ").map_or(Some(text.as_str()), |(n, r)| {
                    // "Fig. 3. What it shows": the number has a point of its own.
                    Some(if n == "Fig" { r.split('.').next().unwrap_or(r) } else { n })
                })
            }
            _ => None,
        })
        .collect();
    let numbers = ["1", "2", "Table I", "Table II", "3", "4", "What differs in this setup"];
    assert_eq!(headings, numbers, "the paper's order");
    let values = table_of(&document, "Fig. 3: published values");
    let row = |what: &str| {
        let found = values.rows().iter().find(|row| row[0].plain().starts_with(what));
        found.unwrap_or_else(|| panic!("{what}: {values:?}")).iter().map(Cell::plain).collect::<Vec<_>>()
    };
    // 60 ms and one of 11 times that: the median of three repetitions, and how it lies to 353 ms.
    let cfs = row("worst, CFS+CFS");
    assert_eq!(
        (cfs[1].as_str(), cfs[2].as_str(), cfs[3].as_str()),
        ("353 ms", "660 ms [600, 720]", "1.87"),
        "{cfs:?}"
    );
    assert!(cfs[4].contains("camera_mode: virtual, in the paper physical"), "{cfs:?}");
    // The kernel that the paper names is taken where it was measured.
    let best = row("worst, DL+RR, 128");
    assert!(best[4].contains("realtime") && !best[4].contains("in the paper realtime"), "{best:?}");
    assert_eq!(best[1], "44 to 70 ms");
    assert_eq!(row("worst of DL+RR below")[2], "93.3 %");
    // The table states missing measurements.
    assert!(row("mean, DL+CFS")[4].contains("no run with policy DL+CFS, noise 128"));
    assert_eq!(table_of(&document, "Fig. 4: published values").rows()[0][1], Cell::number("3 ms"));
    let figures: Vec<&str> = document.figures().map(|figure| figure.id.as_str()).collect();
    assert_eq!(figures[..2], ["paper-fig-3", "paper-fig-4"]);
    let bars = &document.figures().next().unwrap().svg;
    for word in [
        "camera mode virtual, kernel generic",
        "kernel realtime",
        "noise threads",
        "DL+CFS: mean",
        "published",
    ] {
        assert!(bars.contains(word), "{word}");
    }
    let text = takt_report::text(&document);
    for sentence in
        ["SCALED DOWN: 1 of 5 cameras", "timer slack: 1ns here, default in the paper.", "the paper has 32."]
    {
        assert!(text.contains(sentence), "{sentence}: {text}");
    }
    // Nothing of another paper.
    for words in ["lowest shares", "Td_max", "share of the period", "effect of"] {
        assert!(!text.contains(words), "{words}");
    }
    let page = takt_report::html(&document);
    assert!(
        page.find("<nav").unwrap() < page.find("paper-sentryrt1").unwrap(),
        "the way to the rest stands first"
    );
}
