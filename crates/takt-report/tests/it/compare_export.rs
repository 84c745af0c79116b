//! Comparisons and exports on run directories that were made up.

use crate::common;

use std::path::{Path, PathBuf};

use common::{Dice, header, run};
use takt_report::compare::{Options, compare, document};
use takt_report::{Error, export};

/// Latencies about a median, with a seed.
fn about(median_ns: f64, seed: u64, count: usize) -> impl Iterator<Item = u64> {
    let mut dice = Dice::new(seed);
    (0..count).map(move |_| dice.latency(median_ns, 0.2, 1e9, 0.0))
}

fn side(root: &Path, name: &str, kernel: &str, medians: &[(&str, f64)]) -> PathBuf {
    let path = root.join(name);
    for (index, (policy, median)) in medians.iter().enumerate() {
        for repetition in 1..=2 {
            let mut header = header(&[("policy", policy), ("kernel", kernel)], repetition);
            header.machine.kernel = Some(kernel.to_owned());
            let seed = (index as u64 + 1) * 100 + u64::from(repetition) + median.to_bits();
            let dir = path.join(format!("{:03}-r{repetition}", index + 1));
            run(&dir, &header, about(*median, seed, 3000));
        }
    }
    path
}

#[test]
fn what_changed_is_distinguished_from_chance() {
    let root = tempfile::tempdir().unwrap();
    let before = side(root.path(), "before", "6.8", &[("fifo:50", 50e3), ("rr:50", 30e3)]);
    let after = side(root.path(), "after", "6.8", &[("fifo:50", 40e3), ("rr:50", 30e3)]);
    let comparison = compare(&[before, after], &Options::default()).unwrap();
    assert!(comparison.machine_differences.is_empty() && comparison.unmatched.is_empty());
    assert_eq!(comparison.pairs.len(), 2);
    let change = |pair: usize, figure: &str| {
        comparison.pairs[pair].changes.iter().find(|c| c.figure == figure).unwrap().clone()
    };
    for figure in ["mean", "median", "p99"] {
        let faster = change(0, figure);
        assert_eq!(faster.clear, Some(true), "{faster:?}");
        assert!((faster.percent.unwrap() + 20.0).abs() < 4.0, "{faster:?}");
        assert!(
            faster.low_ns.unwrap() <= faster.difference_ns && faster.difference_ns <= faster.high_ns.unwrap()
        );
    }
    let same = change(1, "mean");
    assert_eq!(same.clear, Some(false), "{same:?}");
    // A maximum has no interval, and that is said.
    let max = change(0, "max");
    assert!(max.low_ns.is_none() && max.clear.is_none());
    assert_eq!(comparison.pairs[0].samples, [6000, 6000]);
    assert_eq!(comparison.pairs[0].misses, [Some(0), Some(0)]);
    assert_eq!(comparison.sides[0].runs.len(), 4);
    assert!(
        comparison.sides.iter().flat_map(|s| &s.runs).all(|r| r.hash.as_ref().is_some_and(|h| h.len() == 64))
    );

    let json = serde_json::to_value(&comparison).unwrap();
    assert!(json["pairs"][0]["changes"][0]["before_ns"].as_f64().unwrap() > 45e3);
    let text = takt_report::text(&document(&comparison));
    assert!(text.contains("policy fifo:50") && text.contains("p99.9") && text.contains("A → B"), "{text}");
    // The same question gives the same answer.
    let paths: Vec<PathBuf> = comparison.sides.iter().map(|s| s.path.clone().into()).collect();
    assert_eq!(compare(&paths, &Options::default()).unwrap(), comparison);
}

#[test]
fn who_answers_less_is_not_better() {
    let root = tempfile::tempdir().unwrap();
    // Two frames in three are dropped there, and what is left is fast.
    let with_skipped = |name: &str, median: f64, skipped: u64| {
        let path = root.path().join(name);
        let mut header = header(&[("noise", "32")], 1);
        header.machine.kernel = Some("6.8".to_owned());
        header.measures[0].skipped = skipped;
        run(&path.join("001-r1"), &header, about(median, skipped + 1, 3000));
        path
    };
    let (all, few) = (with_skipped("all", 50e3, 0), with_skipped("few", 30e3, 6000));
    for (sides, skipped) in [([&all, &few], [0, 6000]), ([&few, &all], [6000, 0])] {
        let comparison = compare(&sides.map(Clone::clone), &Options::default()).unwrap();
        let pair = &comparison.pairs[0];
        assert_eq!((pair.samples, pair.skipped), ([3000, 3000], skipped));
        for change in &pair.changes {
            assert_eq!(change.clear, None, "{change:?}");
            assert!(
                change.warnings.iter().any(|warning| warning.contains("does not count as better")),
                "{change:?}"
            );
        }
        let text = takt_report::text(&document(&comparison));
        assert!(text.contains("6000 of 9000"), "{text}");
        assert!(text.contains("6000 of 9000 were skipped, dropped or unanswered"), "{text}");
    }
    // Slower and less: reported as ever.
    let slow = with_skipped("slow", 80e3, 6000);
    let comparison = compare(&[all, slow], &Options::default()).unwrap();
    assert_eq!(comparison.pairs[0].changes[0].clear, Some(true));
}

#[test]
fn who_did_less_work_is_not_better() {
    let root = tempfile::tempdir().unwrap();
    // 12 s each; one side judges a third of the frames, and those soon.
    let with_work = |name: &str, median: f64, judged: u64, found: u64| {
        let path = root.path().join(name);
        let mut header = header(&[("noise", "32")], 1);
        header.machine.kernel = Some("6.8".to_owned());
        header.measures[0].window_ns = Some([5_000_000_000, 17_000_000_000]);
        let work = |name: &str, title: &str, count, tolerance| takt_rundir::Work {
            name: name.to_owned(),
            title: title.to_owned(),
            count,
            tolerance,
        };
        header.work = vec![
            work("frames_judged", "frames judged", judged, 0.02),
            work("people_found", "people found", found, 0.1),
        ];
        run(&path.join("001-r1"), &header, about(median, judged, 3000));
        path
    };
    let (all, few) = (with_work("all", 50e3, 1800, 2330), with_work("few", 30e3, 600, 0));
    for (sides, letter) in [([&all, &few], "B"), ([&few, &all], "A")] {
        let comparison = compare(&sides.map(Clone::clone), &Options::default()).unwrap();
        let pair = &comparison.pairs[0];
        for change in &pair.changes {
            assert_eq!(change.clear, None, "{change:?}");
            let reported = format!(
                "{letter} does not count as better: it did less work (frames judged: 50.0 a second against 150.0"
            );
            assert!(change.warnings.iter().any(|warning| warning.starts_with(&reported)), "{change:?}");
        }
        assert!(pair.work[0].counts.contains(&Some(1800)) && pair.work[1].counts.contains(&Some(0)));
        let text = takt_report::text(&document(&comparison));
        assert!(
            text.contains("frames judged 1800 / 600") || text.contains("frames judged 600 / 1800"),
            "{text}"
        );
        assert_eq!(serde_json::to_value(pair).unwrap()["work"][0]["name"], "frames_judged");
    }
    // Within the tolerance it is the same work; and who is slower with less is still slower.
    let near = with_work("near", 30e3, 1770, 2200);
    assert_eq!(
        compare(&[all.clone(), near], &Options::default()).unwrap().pairs[0].changes[0].clear,
        Some(true)
    );
    let slow = with_work("slow", 80e3, 600, 0);
    assert_eq!(compare(&[all, slow], &Options::default()).unwrap().pairs[0].changes[0].clear, Some(true));
}

#[test]
fn machines_that_differ_are_only_compared_when_asked() {
    let root = tempfile::tempdir().unwrap();
    let a = side(root.path(), "a", "6.8-generic", &[("fifo:50", 50e3)]);
    let b = side(root.path(), "b", "6.8-rt", &[("fifo:50", 40e3)]);
    let paths = [a, b];
    let error = compare(&paths, &Options::default()).unwrap_err();
    assert!(matches!(error, Error::MachinesDiffer { .. }));
    let text = error.to_string();
    assert!(text.contains("kernel: 6.8-generic and 6.8-rt"), "{text}");
    let comparison = compare(&paths, &Options { across_machines: true, measure: None }).unwrap();
    assert_eq!(comparison.machine_differences.len(), 1);
    assert_eq!(comparison.machine_differences[0].values, [["6.8-generic"], ["6.8-rt"]]);
    // Stated first.
    let text = takt_report::text(&document(&comparison));
    assert!(text.find("Differences between the machines").unwrap() < text.find("p99").unwrap());
}

#[test]
fn what_has_no_partner_is_reported() {
    let root = tempfile::tempdir().unwrap();
    let a = side(root.path(), "a", "6.8", &[("fifo:50", 50e3), ("rr:50", 50e3)]);
    let b = side(root.path(), "b", "6.8", &[("fifo:50", 40e3), ("other:0", 40e3)]);
    let comparison = compare(&[a.clone(), b.clone()], &Options::default()).unwrap();
    assert_eq!(comparison.pairs.len(), 1);
    assert_eq!(comparison.unmatched.len(), 2, "{:?}", comparison.unmatched);
    assert!(comparison.unmatched[0].contains("only in A") && comparison.unmatched[1].contains("only in B"));
    let asked = Options { measure: Some("jitter".into()), ..Options::default() };
    let error = compare(&[a.clone(), b.clone()], &asked).unwrap_err().to_string();
    assert!(error.contains("jitter") && error.contains("lateness"), "{error}");
    assert!(compare(std::slice::from_ref(&a), &Options::default()).is_err());
    // Another column under the same name.
    let mut other = header(&[("policy", "fifo:50")], 1);
    other.machine.kernel = Some("6.8".into());
    other.measures[0].since_column = None;
    let c = root.path().join("c");
    run(&c, &other, about(1e3, 1, 10));
    let error = compare(&[b, c], &Options::default()).unwrap_err();
    assert!(matches!(error, Error::MixedMeasure { .. }), "{error}");
    // Nothing there.
    assert!(compare(&[a, root.path().join("none")], &Options::default()).is_err());
}

#[test]
fn a_histogram_is_cyclictests() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("run");
    run(&path, &header(&[], 0), [1_500, 1_999, 2_000, 7_000_000].into_iter());
    let text = export::histogram(&path, None, 10).unwrap().to_string();
    let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    assert_eq!(lines.len(), 10);
    assert_eq!((lines[1], lines[2], lines[3]), ("000001 000002", "000002 000001", "000003 000000"));
    for part in [
        "# Min Latencies: 00001",
        "# Avg Latencies: 01751",
        "# Max Latencies: 07000",
        "# Histogram Overflows: 00001",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(export::histogram(&path, None, usize::MAX).is_ok(), "the number of bins is bounded");
}

#[test]
fn samples_as_csv() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("run");
    run(&path, &header(&[], 0), [10, 20].into_iter());
    let mut out = Vec::new();
    assert_eq!(export::csv(&path, Some("lateness"), &mut out).unwrap(), 2);
    let expected = "sample,time_ns,lateness_ns\n0,5000000000,10\n1,5004000000,20\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    let error = export::csv(&path, Some("jitter"), &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("jitter") && error.contains("lateness"), "{error}");
    assert!(export::csv(root.path(), None, &mut Vec::new()).is_err());
}
