//! The papers' shapes, and what was lost.

#![allow(clippy::unwrap_used, reason = "a test that cannot write its runs has nothing to test")]

use crate::common;

use common::{header, run};
use takt_report::document::{Block, Document};
use takt_report::table::{Cell, Table};
use takt_report::{PublishedJitter, Shapes, Supplement, Supplements};
use takt_rundir::{Loss, Measure};
use takt_stats::Verdict;

fn tables<'a>(document: &'a Document, title: &str) -> Vec<&'a Table> {
    document.tables().filter(|table| table.title().contains(title)).collect()
}

fn row<'a>(table: &'a Table, words: &[&str]) -> &'a [Cell] {
    let fits = |row: &&Vec<Cell>| words.iter().zip(*row).all(|(word, cell)| cell.plain().contains(word));
    table.rows().iter().find(fits).unwrap_or_else(|| panic!("no row {words:?} in {:#?}", table.rows()))
}

fn build(root: &std::path::Path) -> Document {
    common::build(&takt_report::collect(&[root]).unwrap())
}

/// A robot whose paper has Low tables.
#[derive(Debug)]
struct Low;

impl Supplement for Low {
    fn shapes(&self) -> Shapes {
        Shapes { low: true, ..Shapes::default() }
    }
}

fn build_with_low(root: &std::path::Path) -> Document {
    let low = ["humanoid", "uav"].map(|robot| (robot, &Low as &'static dyn Supplement));
    takt_report::build(&takt_report::collect(&[root]).unwrap(), &Supplements::from_iter(low))
}

#[test]
fn nine_tunings_stand_side_by_side_idle_and_loaded_as_two_tables() {
    let root = tempfile::tempdir().unwrap();
    let tunings = ["none", "M", "C", "MC", "P", "PM", "PC", "PMC", "PMCS"];
    let mut cell = 0;
    // As a campaign numbers them: stress is the last factor, and the loaded run may come first.
    for (place, tuning) in (1..).zip(tunings) {
        for stress in ["humanoid", "off"] {
            cell += 1;
            let mut header = header(&[("tuning", tuning), ("stress", stress)], 1);
            header.robot = "humanoid".to_owned();
            header.experiment.campaign = "humanoid".to_owned();
            if tuning.contains('C') {
                header.not_granted.push("shield: no room".to_owned());
            }
            let base = if stress == "off" { 1_000_000 } else { 2_000_000 } + place * 1000;
            run(&root.path().join(format!("{cell:04}")), &header, (0..1000).map(|i| base + i));
        }
    }
    let document = build_with_low(root.path());
    let low = tables(&document, "lowest shares");
    assert_eq!(low.len(), 2, "{:?}", low.iter().map(|t| t.title()).collect::<Vec<_>>());
    assert!(low[0].title().contains("stress off") && low[1].title().contains("stress humanoid"));
    for (table, base_ms) in low.iter().zip([1.0, 2.0]) {
        let heads: Vec<&str> = table.columns().iter().map(|column| column.title.as_str()).collect();
        assert_eq!(heads[..2], ["Share", "Figure"]);
        assert_eq!(heads[2..], tunings);
        // A tuning that was not granted is not reported as if it had been.
        let refused = "Not granted in C, MC, PC, PMC, PMCS: shield: no room";
        assert!(table.notes().iter().any(|note| note == refused), "{:?}", table.notes());
        // min once; max, mean and SD for each of the five shares.
        assert_eq!(table.rows().len(), 1 + 5 * 3);
        // Each column has its own configuration's figures.
        let least = &table.rows()[0];
        for (place, cell) in (1..).zip(&least[2..]) {
            assert_eq!(cell.plain(), format!("{:.3}", base_ms + f64::from(place) / 1000.0), "{least:?}");
        }
    }
}

#[test]
fn a_table_in_which_nothing_was_measured_says_why() {
    let root = tempfile::tempdir().unwrap();
    for (cell, (tuning, stress)) in
        [("C", "off"), ("P", "off"), ("C", "humanoid"), ("P", "humanoid"), ("none", "humanoid")]
            .into_iter()
            .enumerate()
    {
        let mut header = header(&[("tuning", tuning), ("stress", stress)], 1);
        let loaded = stress != "off";
        match tuning {
            "C" if loaded => header.not_granted.push("shield: no room".to_owned()),
            "P" if loaded => header.failures.push("no device reached OP".to_owned()),
            _ => {}
        }
        run(&root.path().join(format!("{cell:04}")), &header, 1000..if loaded { 1000 } else { 2000 });
    }
    let document = build_with_low(root.path());
    let low = tables(&document, "lowest shares");
    assert_eq!(low.len(), 2);
    let [row] = low[1].rows() else { panic!("{:?}", low[1].rows()) };
    let cells: Vec<String> = row[2..].iter().map(Cell::plain).collect();
    assert_eq!(cells, ["– (NOT GRANTED)", "– (failed)", "– (no samples)"]);
    for note in ["Not granted in C: shield: no room", "P: failed: no device reached OP"] {
        assert!(low[1].notes().iter().any(|reported| reported == note), "{:?}", low[1].notes());
    }
}

#[test]
fn without_an_interference_there_is_one_table_with_whole_names() {
    let root = tempfile::tempdir().unwrap();
    for (cell, policy) in ["fifo:50", "fifo:99"].into_iter().enumerate() {
        let header = header(&[("policy", policy), ("stress", "off")], 1);
        run(&root.path().join(format!("{cell:04}")), &header, 1000..2000);
    }
    let document = build_with_low(root.path());
    let low = tables(&document, "lowest shares");
    assert_eq!(low.len(), 1);
    let heads: Vec<&str> = low[0].columns().iter().map(|column| column.title.as_str()).collect();
    assert_eq!(heads[2..], ["policy fifo:50", "policy fifo:99"]);
}

#[derive(Debug)]
struct Paper;

impl Supplement for Paper {
    fn jitter(&self) -> Option<&'static PublishedJitter> {
        Some(&PublishedJitter {
            title: "a paper's Table 7",
            rows: &[["Another board", "1 GHz", "≈ 224", "4000", "5.6", "high"]],
        })
    }
}

#[test]
fn jitter_is_reported_as_a_share_of_the_period_beside_what_was_published() {
    let root = tempfile::tempdir().unwrap();
    let mut quiet = header(&[("policy", "fifo:99")], 1);
    quiet.cpu.busy = 0.25;
    quiet.cpu.stolen = 0.0;
    run(&root.path().join("1"), &quiet, [5000, 224_000, 7000].into_iter());
    let mut late = header(&[("policy", "other:0")], 1);
    late.measures[0].skipped = 2;
    run(&root.path().join("2"), &late, [5000, 9_400_000].into_iter());
    let supplements = Supplements::from_iter([("uav", &Paper as &'static dyn Supplement)]);
    let document = takt_report::build(&takt_report::collect(&[root.path()]).unwrap(), &supplements);
    let found = tables(&document, "share of the period");
    let [table] = found[..] else { panic!("{} tables", found.len()) };
    assert!(table.title().ends_with("(a paper's Table 7)"));
    let cells = |words: &[&str]| row(table, words)[2..].iter().map(Cell::plain).collect::<Vec<_>>();
    assert_eq!(cells(&["fifo:99"]), ["224.0", "4000", "5.60", "75"]);
    assert_eq!(cells(&["Another board"])[..3], ["≈ 224", "4000", "5.6"]);
    assert_eq!(cells(&["other:0"])[2], "235.00");
    assert!(table.notes().iter().any(|note| note.contains("never ran")), "{:?}", table.notes());

    // A robot that adds nothing has the table of its own rows, and a measure that is no wake-up has
    // none.
    let root = tempfile::tempdir().unwrap();
    let mut other = header(&[], 0);
    other.robot = "cyclic".to_owned();
    run(&root.path().join("1"), &other, 1000..2000);
    let document = build(root.path());
    let found = tables(&document, "share of the period");
    assert_eq!((found.len(), found[0].rows().len()), (1, 1));
    let root = tempfile::tempdir().unwrap();
    other.measures = vec![Measure::new("latency", "Latency", "attitude", "wake_ns").rate_hz(250.0)];
    run(&root.path().join("1"), &other, 1000..2000);
    assert!(tables(&build(root.path()), "share of the period").is_empty());
}

#[test]
fn losses_are_named_and_more_than_allowed_fails() {
    let loss = |lost, allowed| {
        vec![Loss::new(
            "lost_frames",
            "frames of process data",
            [lost, 5003],
            ("losses.max_lost_frames", allowed),
        )]
    };
    let verdict = |lost, allowed| {
        let root = tempfile::tempdir().unwrap();
        let mut header = header(&[], 0);
        header.measures[0].judged = false;
        header.losses = loss(lost, allowed);
        header.failures.extend(header.losses.iter().filter(|l| l.is_exceeded()).filter_map(Loss::sentence));
        // 32 s at 250 Hz: enough for a PASS.
        run(&root.path().join("1"), &header, (0..8000).map(|i| 1000 + i % 7));
        let document = build(root.path());
        let table = tables(&document, "Communication losses")[0].clone();
        let blocks = document.sections.iter().flat_map(|section| section.blocks());
        let reported = blocks.filter_map(|block| match block {
            Block::Verdict(verdict, text) => Some((*verdict, text.clone())),
            _ => None,
        });
        let reported = reported.collect::<Vec<_>>().remove(0);
        (reported, row(&table, &[]).iter().map(Cell::plain).collect::<Vec<_>>())
    };
    let ((found, text), cells) = verdict(5, 0);
    assert!(text.contains("5 of 5003 frames of process data were lost"), "{text}");
    assert_eq!(found, Verdict::Fail);
    assert_eq!(cells[1..6], ["frames of process data", "5", "5003", "0", "losses.max_lost_frames"]);
    assert!(cells[6].contains("above the limit: R1"), "{cells:?}");
    let ((found, text), cells) = verdict(5, 5);
    assert_eq!(found, Verdict::Pass, "{text}");
    assert_eq!(cells[6], "within the limit");
    assert_eq!(verdict(0, 0).1[2], "0", "nothing lost is reported, too");
}

#[test]
fn a_run_whose_values_are_all_0_has_its_report() {
    let root = tempfile::tempdir().unwrap();
    for count in [1, 1000] {
        run(&root.path().join(count.to_string()), &header(&[], 1), std::iter::repeat_n(0, count));
    }
    // Figures as well: a logarithmic axis of nothing but 0 must end.
    assert!(takt_report::html(&build(root.path())).contains("<svg"));
}

#[test]
fn who_failed_without_a_late_job_is_not_said_to_have_missed_the_deadline() {
    let stopped =
        "the robot stopped: frames came too late, or not at all, so that nothing was known of its joints";
    let made = |cases: &[(&str, u64, bool)]| {
        let root = tempfile::tempdir().unwrap();
        for &(tuning, latency_ns, has_stopped) in cases {
            let mut header = header(&[("tuning", tuning)], 1);
            header.failures.extend(has_stopped.then(|| stopped.to_owned()));
            run(&root.path().join(tuning), &header, std::iter::repeat_n(latency_ns, 500));
        }
        let document = build(root.path());
        (takt_report::text(&document), takt_report::html(&document))
    };
    let (text, page) = made(&[("P", 1000, true), ("M", 2000, true)]);
    assert!(
        text.contains("2 of 2 configurations failed for reasons other than the deadline of 4 ms"),
        "{text}"
    );
    assert!(!text.contains("missed the deadline of 4 ms"), "{text}");
    // What is long has room beside columns of numbers.
    assert!(page.contains("class=\"long\""), "{page}");
    let (text, _) = made(&[("P", 1000, true), ("M", 5_000_000, true), ("C", 5_000_000, false)]);
    let message =
        "3 of 3 configurations failed: 2 missed the deadline of 4 ms at least once, 1 for other reasons";
    assert!(text.contains(message), "{text}");
    let (text, _) = made(&[("M", 5_000_000, true), ("C", 5_000_000, false)]);
    assert!(text.contains("2 of 2 configurations missed the deadline of 4 ms at least once."), "{text}");
}
