//! Runs of which the sample file reports less than the recorder, and headers that claim what cannot
//! be meant.

#![allow(clippy::unwrap_used)]

use crate::common;

use std::path::Path;

use common::{Dice, Job, header, run};
use takt_report::compare::{Options, compare};
use takt_report::figures::Figures;
use takt_report::{collect, digests};
use takt_rundir::{Measure, RUN_FILE, RunDir, RunHeader};
use takt_stats::{Streamed, Verdict};

const SECOND_NS: u64 = 1_000_000_000;

/// A sealed run with rows of these times and latencies, and a recorder of these latencies.
fn recorded(
    path: &Path,
    header: &RunHeader,
    window_ns: Option<[u64; 2]>,
    rows: &[(u64, u64)],
    all: impl Iterator<Item = u64>,
) -> RunDir {
    let mut header = header.clone();
    let measure = &mut header.measures[0];
    (measure.window_ns, measure.recorder) = (window_ns, Some("recorder-lateness.json".to_owned()));
    let mut streamed = Streamed::new(measure.deadline_ns).unwrap();
    all.enumerate().for_each(|(index, value)| streamed.push(index as u64 * 4_000_000, value));
    let dir = RunDir::create_at(path).unwrap();
    let mut file = dir.samples("attitude").unwrap();
    for (index, (planned_ns, latency)) in (0u64..).zip(rows) {
        file.push(&Job { index, planned_ns: *planned_ns, wake_ns: planned_ns + latency }).unwrap();
    }
    file.flush().unwrap();
    dir.write_json("recorder-lateness.json", &streamed).unwrap();
    dir.write_json(RUN_FILE, &header).unwrap();
    dir.seal().unwrap();
    dir
}

#[test]
fn figures_of_a_run_over_two_boots_are_of_both() {
    let root = tempfile::tempdir().unwrap();
    // The clock began anew between them: the first part's rows lie beyond the window of the whole,
    // [100 s, 110 s).
    let first = (0..2000u64).map(|i| (5000 * SECOND_NS + i * 4_000_000, 30_000 + i));
    let late = [(5009 * SECOND_NS, 19_089_000u64), (5009 * SECOND_NS + 4_000_000, 8_000_000)];
    let second = (0..1977u64).map(|i| (100 * SECOND_NS + i * 4_000_000, 40_000 + i));
    let rows: Vec<(u64, u64)> = first.chain(late).chain(second).collect();
    let values = || rows.iter().map(|row| row.1);
    let window = Some([100 * SECOND_NS, 110 * SECOND_NS]);
    let paths = [root.path().join("a"), root.path().join("b")];
    let dir = recorded(&paths[0], &header(&[], 0), window, &rows, values());
    recorded(&paths[1], &header(&[], 0), window, &rows, values());
    let mean = values().sum::<u64>() as f64 / 3979.0;
    let figures = Figures::read(&dir, &dir.header().unwrap().measures[0]).unwrap();
    assert_eq!((figures.count(), figures.summary.worst, figures.missed()), (3979, 19_089_000.0, Some(2)));
    assert!((figures.summary.mean - mean).abs() < 1e-3, "{}", figures.summary.mean);
    let collection = collect(&paths[..1]).unwrap();
    let digest = &digests(&collection, &collection.groups[0])[0];
    assert_eq!((digest.summary.count, digest.misses(), digest.summary.worst), (3979, 2, 19_089_000.0));
    assert!((digest.summary.mean - mean).abs() < 1e-3, "{}", digest.summary.mean);
    assert_eq!(digest.verdict.as_ref().unwrap().verdict, Verdict::Fail);
    let pair = &compare(&paths, &Options::default()).unwrap().pairs[0];
    assert_eq!((pair.samples, pair.misses), ([3979; 2], [Some(2); 2]));
    for change in pair.changes.iter().filter(|change| ["mean", "max"].contains(&change.figure.as_str())) {
        let expected = if change.figure == "max" { 19_089_000.0 } else { mean };
        assert!((change.before_ns - expected).abs() < 1e-3, "{change:?}");
    }
}

#[test]
fn time_between_the_parts_of_a_run_was_not_measured() {
    let root = tempfile::tempdir().unwrap();
    // Two parts of a second each, nine seconds apart; every row is kept, so that no recorder has
    // more.
    let rows: Vec<(u64, u64)> = (0..500u64)
        .map(|i| (100 * SECOND_NS + i * 4_000_000 + if i < 250 { 0 } else { 9 * SECOND_NS }, 30_000 + i))
        .collect();
    let window = Some([100 * SECOND_NS, 111 * SECOND_NS]);
    let dir = recorded(&root.path().join("a"), &header(&[], 0), window, &rows, rows.iter().map(|row| row.1));
    let mut measure = dir.header().unwrap().measures.remove(0);
    let seconds = |measure: &Measure| Figures::read(&dir, measure).unwrap().seconds;
    assert_eq!(seconds(&measure), Some(11.0));
    measure.measured_ns = Some(2 * SECOND_NS);
    assert_eq!(seconds(&measure), Some(2.0));
}

#[test]
fn a_comparison_has_figures_where_no_kept_row_lies_in_the_window() {
    let root = tempfile::tempdir().unwrap();
    let rows: Vec<(u64, u64)> = (0..1000u64).map(|i| (i * 4_000_000, 30_000 + i)).collect();
    let window = Some([100 * SECOND_NS, 110 * SECOND_NS]);
    let paths = [root.path().join("a"), root.path().join("b")];
    for (path, slower) in paths.iter().zip([0, 10_000]) {
        recorded(path, &header(&[], 0), window, &rows, (0..1000).map(|i| 50_000 + slower + i));
    }
    let pair = &compare(&paths, &Options::default()).unwrap().pairs[0];
    assert_eq!(pair.samples, [1000; 2]);
    let figure = |name: &str| pair.changes.iter().find(|change| change.figure == name).unwrap();
    let (mean, max) = (figure("mean"), figure("max"));
    assert!((mean.before_ns - 50_499.5).abs() < 1e-3 && (mean.difference_ns - 10_000.0).abs() < 1e-3);
    assert_eq!((max.before_ns, max.after_ns), (50_999.0, 60_999.0));
    assert!(mean.low_ns.is_none() && mean.high_ns.is_none() && mean.clear.is_none(), "{mean:?}");
    assert!(mean.warnings.iter().any(|warning| warning.contains("no interval")), "{mean:?}");
}

#[test]
fn a_tail_that_has_not_seen_the_worst_shows_no_claim() {
    let root = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(7);
    let values: Vec<u64> = (0..60_000).map(|_| dice.latency(50_000.0, 0.2, 1e12, 0.0)).collect();
    let rows: Vec<(u64, u64)> = (0u64..).zip(&values).map(|(i, value)| (i * 4_000_000, *value)).collect();
    let mut header = header(&[], 0);
    // Shown by the tail alone: the number of jobs shows some misses an hour.
    header.verdict.misses_per_hour = Some(30.0);
    let verdict = |name: &str, later: u64| {
        let path = root.path().join(name);
        recorded(&path, &header, None, &rows, values.iter().copied().chain([later; 2]));
        let collection = collect(&[path]).unwrap();
        let report = digests(&collection, &collection.groups[0])[0].verdict.clone().unwrap();
        (report.verdict, report.sentence())
    };
    let (quiet, reported) = verdict("quiet", 50_000);
    assert!(quiet == Verdict::Pass && reported.contains("fitted tail"), "{reported}");
    let (worse, reported) = verdict("worse", 3_900_000);
    assert!(worse == Verdict::Inconclusive && !reported.contains("fitted tail"), "{reported}");
}

#[test]
fn a_header_that_claims_what_cannot_be_meant_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("run");
    let dir = run(&path, &header(&[], 0), (0..5000u64).map(|i| 50_000 + i * 7919 % 1009));
    let good: serde_json::Value = dir.read_json(RUN_FILE).unwrap();
    assert!(collect(&[&path]).is_ok());
    for (pointer, value, part) in [
        ("/verdict", serde_json::json!({ "confidence": -5 }), "verdict.confidence = -5"),
        ("/verdict", serde_json::json!({ "misses_per_job": 2.0 }), "verdict.misses_per_job = 2"),
        (
            "/verdict",
            serde_json::json!({ "measures": { "x": { "burst_s": -1 } } }),
            "verdict.measures.x.burst_s",
        ),
        ("/measures/0/rate_hz", serde_json::json!(-250.0), "measure lateness: rate_hz = -250"),
    ] {
        let mut changed = good.clone();
        changed["verdict"] = serde_json::json!({});
        *changed.pointer_mut(pointer).unwrap() = value;
        dir.write_json(RUN_FILE, &changed).unwrap();
        let error = collect(&[&path]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let mut unknown = good;
    unknown["measures"][0]["rate_hz"] = serde_json::Value::Null;
    dir.write_json(RUN_FILE, &unknown).unwrap();
    let collection = collect(&[&path]).unwrap();
    let digest = &digests(&collection, &collection.groups[0])[0];
    assert_eq!(digest.verdict.as_ref().unwrap().verdict, Verdict::Inconclusive, "the seal is broken");
}
