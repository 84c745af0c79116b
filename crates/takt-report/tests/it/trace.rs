//! Reports on runs that were traced. `data/trace.json` is from a real run on a busy machine,
//! shortened to seven windows.

#![allow(clippy::unwrap_used, reason = "a test that cannot write its runs has nothing to test")]

use crate::common;

use std::path::Path;

use common::{build, header, run};
use proptest::prelude::*;
use serde_json::{Value, json};
use takt_report::document::{Block, Document, Section};
use takt_report::table::Table;
use takt_report::{collect, html, markdown};

const SAMPLE: &str = include_str!("../data/trace.json");

fn sample() -> Value {
    serde_json::from_str(SAMPLE).unwrap()
}

/// The report on runs with these files; `None` for a run that was not traced.
fn report(traces: &[Option<&[u8]>]) -> Document {
    let root = tempfile::tempdir().unwrap();
    for (number, trace) in traces.iter().enumerate() {
        let dir = root.path().join(format!("run-{number}"));
        run(&dir, &header(&[], 0), (0..50).map(|i| 40_000 + i));
        if let Some(bytes) = trace {
            std::fs::write(dir.join("trace.json"), bytes).unwrap();
        }
    }
    build(&collect(&[root.path().to_path_buf()]).unwrap())
}

fn kernel(document: &Document) -> Option<&Section> {
    document.sections.iter().find(|section| section.id == "kernel")
}

fn table<'a>(section: &'a Section, title: &str) -> Option<&'a Table> {
    section.blocks().iter().find_map(|block| match block {
        Block::Table(table) if table.title() == title => Some(table),
        _ => None,
    })
}

fn rows(section: &Section, title: &str) -> Vec<Vec<String>> {
    let table = table(section, title).unwrap_or_else(|| panic!("no table {title}"));
    table.rows().iter().map(|row| row.iter().map(|cell| cell.plain()).collect()).collect()
}

fn warnings(section: &Section) -> String {
    let texts = section.blocks().iter().filter_map(|block| match block {
        Block::Warning(texts) => Some(texts.join(" ")),
        _ => None,
    });
    texts.collect()
}

#[test]
fn without_a_trace_there_is_no_section() {
    assert!(kernel(&report(&[None, None])).is_none());
}

#[test]
fn a_traced_run_reports_causes_sequence_segments_and_windows() {
    let document = report(&[None, Some(SAMPLE.as_bytes())]);
    let section = kernel(&document).unwrap();
    assert_eq!(
        rows(section, "Traced runs")[0][2..],
        ["uav-attitude", "500", "99.4", "14", "wake-up after 100 µs, end after 4 ms", "48819", "0"]
    );
    let causes = rows(section, "Causes of late releases");
    assert_eq!(causes.len(), 4);
    assert_eq!(
        causes[0],
        ["R2", "timer fired late", "while rustc ran", "10", "1991.03", "5054.89", "– (not reported)"]
    );
    let sequence = rows(section, "Activation sequence");
    assert_eq!(sequence.len(), 6);
    assert_eq!(sequence[3], ["23.36", "sched_switch (to uav-attitude)"]);
    assert_eq!(rows(section, "Segments of the activation path").len(), 9);
    // There is nothing to compare one run with.
    assert!(table(section, "Execution of the job, without interrupts and other threads").is_none());
    let late = rows(section, "The worst late releases");
    assert_eq!(late.len(), 7);
    assert_eq!(late[0][..4], ["R2", "395", "1991.03", "1997.52"]);
    let figure = document.figures().find(|figure| figure.id == "kernel-late-1").unwrap();
    for words in ["R2 release 395", "A  timer fired late", "late from here", "wake-up after 100 µs"] {
        assert!(figure.svg.contains(words), "{words}");
    }
    assert_eq!(figure.sources.len(), 1);
    assert_eq!(figure.sources[0].key, "R2");
    assert!(warnings(section).is_empty());
    // Both hold the same.
    let (page, text) = (html(&document), markdown(&document));
    for words in ["What the kernel did", "1991.03", "sched_waking (uav-attitude)"] {
        assert!(page.contains(words) && text.contains(words), "{words}");
    }
}

#[test]
fn two_runs_stand_side_by_side_and_dilation_compares_them() {
    let mut slow = sample();
    for segment in slow["segments_us"].as_array_mut().unwrap() {
        if segment["name"] == "execution_on_cpu" {
            segment["median"] = json!(0.85 * 13.0);
        }
    }
    slow["lost_events"] = json!(48_819);
    slow["notes"] = json!(["a note", "a note"]);
    let slow = slow.to_string();
    let document = report(&[Some(SAMPLE.as_bytes()), Some(slow.as_bytes())]);
    let section = kernel(&document).unwrap();
    let sequence = table(section, "Activation sequence").unwrap();
    let heads: Vec<&str> = sequence.columns().iter().map(|column| column.title.as_str()).collect();
    assert_eq!(heads, ["R1: Δt (µs)", "R1: event", "R2: Δt (µs)", "R2: event"]);
    let dilation = rows(section, "Execution of the job, without interrupts and other threads");
    assert_eq!((&*dilation[0][3], &*dilation[1][3]), ("1.00", "13.00"));
    assert!(warnings(section).contains("In R2, 48819 events were lost (50.0 % of all)"));
    let notes = table(section, "Traced runs").unwrap().notes();
    assert!(notes.contains(&"R2 (2 times): a note".to_owned()), "{notes:?}");
    // The worst of both runs, and no more than a page holds.
    assert_eq!(rows(section, "The worst late releases").len(), 12);
}

#[test]
fn six_runs_need_two_tables_of_sequences() {
    let document = report(&[Some(SAMPLE.as_bytes()); 6]);
    let section = kernel(&document).unwrap();
    assert_eq!(table(section, "Activation sequence (part 1 of 2)").unwrap().columns().len(), 8);
    assert_eq!(table(section, "Activation sequence (part 2 of 2)").unwrap().columns().len(), 4);
}

#[test]
fn a_run_without_late_releases_says_so() {
    let mut calm = sample();
    (calm["late"], calm["causes"], calm["windows"]) = (json!(0), json!([]), json!([]));
    let calm = calm.to_string();
    let document = report(&[Some(calm.as_bytes())]);
    let section = kernel(&document).unwrap();
    assert_eq!(rows(section, "Causes of late releases")[0][..4], ["R1", "no late release", "–", "0"]);
    assert!(table(section, "The worst late releases").is_none());
    assert!(document.figures().all(|figure| !figure.id.starts_with("kernel")));
}

#[test]
fn far_shorter_windows_get_a_picture_of_their_own() {
    let mut wide = sample();
    wide["windows"][0]["response_us"] = json!(580_000.0);
    let wide = wide.to_string();
    let document = report(&[Some(wide.as_bytes())]);
    let ids: Vec<&str> =
        document.figures().map(|figure| figure.id.as_str()).filter(|id| id.starts_with("kernel")).collect();
    assert_eq!(ids, ["kernel-late-1", "kernel-late-2"]);
}

#[test]
fn a_damaged_trace_is_a_labelled_gap_beside_a_good_one() {
    let cut = &SAMPLE.as_bytes()[..SAMPLE.len() / 2];
    let document = report(&[Some(cut), Some(SAMPLE.as_bytes()), Some(b"{}")]);
    let section = kernel(&document).unwrap();
    assert!(warnings(section).contains("R1 has a trace that cannot be used (trace.json: damaged"));
    let traced = rows(section, "Traced runs");
    assert_eq!(traced.len(), 3);
    assert!(traced[0][2].starts_with("– (damaged"), "{traced:?}");
    assert_eq!(traced[1][3], "500");
    // An empty object is a trace that reports nothing, and says so in every cell.
    assert!(traced[2][2..].iter().all(|cell| cell == "– (not reported)"), "{traced:?}");
    let causes = rows(section, "Causes of late releases");
    assert!(causes.iter().all(|row| row[0] != "R1") && causes[0][0] == "R2");
    assert_eq!(causes.last().unwrap()[1], "– (not reported)");
}

#[test]
fn a_folder_and_a_dead_link_are_gaps_too() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| -> std::path::PathBuf {
        let dir = root.path().join(name);
        run(&dir, &header(&[], 0), (0..50).map(|i| 40_000 + i));
        dir.join("trace.json")
    };
    std::fs::create_dir(at("a")).unwrap();
    std::os::unix::fs::symlink(Path::new("/nowhere/at/all"), at("b")).unwrap();
    let document = build(&collect(&[root.path().to_path_buf()]).unwrap());
    let reported = warnings(kernel(&document).unwrap());
    assert!(
        reported.contains("R1 has a trace that cannot be used (trace.json: is a directory)"),
        "{reported}"
    );
    assert!(reported.contains("R2 has a trace that cannot be used"), "{reported}");
}

/// A JSON value of any shape.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Value::from))
}

/// Puts a value in the place of the `place`-th one of the sample, counted through all lists and
/// objects.
fn replace(value: &mut Value, place: &mut usize, by: &Value) {
    if *place == 0 {
        *value = by.clone();
    }
    *place = place.wrapping_sub(1);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, place, by)),
        Value::Object(fields) => fields.values_mut().for_each(|item| replace(item, place, by)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_stands_in_the_file_the_report_comes_out(
        changes in prop::collection::vec((1usize..250, any_json()), 1..4),
        number in prop_oneof![any::<f64>(), Just(f64::MAX), Just(-1.0), Just(0.0)],
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut trace = sample();
        // Numbers of any size where numbers belong pass the parser and reach tables and pictures.
        trace["windows"][0]["response_us"] = json!(number);
        trace["windows"][1]["parts"][0]["ns"] = json!(number);
        trace["segments_us"][0]["median"] = json!(number);
        if changes.len() > 1 {
            for (place, by) in &changes {
                replace(&mut trace, &mut place.clone(), by);
            }
        }
        let mut text = trace.to_string().into_bytes();
        if let Some(cut) = cut.filter(|_| changes.len() > 2) {
            text.truncate(cut.index(text.len()));
        }
        let document = report(&[Some(&text)]);
        prop_assert!(kernel(&document).is_some());
        let page = html(&document);
        prop_assert!(!page.contains("NaN") || String::from_utf8_lossy(&text).contains("NaN"));
        prop_assert!(markdown(&document).contains("What the kernel did"));
    }
}
