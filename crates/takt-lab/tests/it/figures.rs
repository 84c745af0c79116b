//! One path from a run to its figures: what a run, a bench, a campaign, a report and a comparison
//! say of the same run is the same to the nanosecond, also of values beyond the rows that are kept
//! one by one. The truth is counted here, by itself.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use takt_lab::Registry;
use takt_lab::campaign::{
    Campaign, CampaignFile, Local, Plan, RunFailure, RunOrder, Table, condition_rows, scheduler_rows,
};
use takt_lab::summary::summarise;
use takt_report::compare::{Options, compare};
use takt_report::{collect, digests};
use takt_rundir::{Experiment, Measure, RUN_FILE, RunDir, RunHeader, SUMMARY_FILE};
use takt_stats::{Streamed, Verdict};

static ROBOTS: Registry = Registry::new(&[&takt_lab::cyclic::KIND]);

const CAMPAIGN: &str = r#"
name = "figures"
robot = "cyclic"
repetitions = 2
seconds = 1
[[factor]]
name = "work_us"
values = [0, 10]
"#;

/// Rows that are kept of each run.
const KEPT: u64 = 700;
const VALUES: u64 = 40_000;
const PERIOD_NS: u64 = 1_000_000;
/// A deadline that only values beyond the kept rows miss.
const DEADLINE_NS: u64 = 76_000;
/// Releases that never were.
const SKIPPED: u64 = 3;

/// Measured values of a run: within 76 us while rows are kept, up to 4505 us afterwards.
fn values(seed: u64) -> impl Iterator<Item = u64> {
    (0..VALUES).map(move |i| match i {
        i if i == KEPT + 1000 + seed => 4_505_017,
        i if i > KEPT && i % 997 == seed => 76_001 + i,
        i => 20_000 + (i * 7919 + seed * 131) % 50_021,
    })
}

#[derive(Serialize)]
struct Row {
    planned_ns: u64,
    wake_ns: u64,
}

fn seed(name: &str) -> u64 {
    name.bytes().map(u64::from).sum::<u64>() % 97
}

/// A sealed run as a long one leaves it: the first rows, and a recorder of all.
fn write(path: &Path, experiment: &Experiment, kept: u64, claim: &str) {
    let dir = RunDir::create_at(path).unwrap();
    let mut rows = dir.samples("cyclic").unwrap();
    let mut all = Streamed::new(Some(DEADLINE_NS)).unwrap();
    let seed = seed(&path.file_name().unwrap().to_string_lossy());
    for (i, value) in (0..).zip(values(seed)) {
        let planned_ns = 5_000_000 + i * PERIOD_NS;
        all.push(i * PERIOD_NS, value);
        if i < kept {
            rows.push(&Row { planned_ns, wake_ns: planned_ns + value }).unwrap();
        }
    }
    rows.flush().unwrap();
    dir.write_json("recorder-lateness.json", &all).unwrap();
    let mut lateness = Measure::new("lateness", "Wake-up lateness", "cyclic", "wake_ns")
        .since("planned_ns")
        .deadline_ns(DEADLINE_NS)
        .rate_hz(1000.0);
    lateness.recorder = Some("recorder-lateness.json".to_owned());
    lateness.skipped = SKIPPED;
    let header = RunHeader {
        takt: "test".to_owned(),
        experiment: experiment.clone(),
        started_utc: "2026-01-01T00:00:00Z".to_owned(),
        finished_utc: Some("2026-01-01T00:00:40Z".to_owned()),
        measures: vec![lateness],
        verdict: toml::from_str(claim).unwrap(),
        ..RunHeader::new("cyclic", "written by hand")
    };
    dir.write_json(RUN_FILE, &header).unwrap();
    dir.write_json(SUMMARY_FILE, &summarise(&dir).unwrap()).unwrap();
    dir.seal().unwrap();
}

/// The campaign, each of its runs written by hand but for those that `fails` names.
fn campaign(root: &Path, kept: u64, claim: &str, fails: &str) -> Table {
    let file = CampaignFile::parse(CAMPAIGN, "figures.toml").unwrap();
    let campaign = Campaign::create(ROBOTS, root, Plan::resolve(&ROBOTS, &file).unwrap()).unwrap();
    let make = |order: &RunOrder<'_>| {
        if !fails.is_empty() && order.run.setup.experiment.configuration().contains(fails) {
            return Err(RunFailure::Elsewhere("planted".to_owned()));
        }
        write(order.dir, &order.run.setup.experiment, kept, claim);
        Ok(())
    };
    let labels = BTreeMap::new();
    let local = Local { labels: &labels, any_machine: true, make: &make, go_on: &|| true, folder: None };
    campaign.measure(&local, &mut |_, _, _| {}).unwrap()
}

/// n, mean, maximum and misses of runs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Truth {
    count: u64,
    mean_ns: f64,
    max_ns: u64,
    misses: u64,
}

fn truth(names: &[&str]) -> Truth {
    let all = || names.iter().flat_map(|name| values(seed(name)));
    let sum: u128 = all().map(u128::from).sum();
    let count = all().count() as u64;
    Truth {
        count,
        mean_ns: sum as f64 / count as f64,
        max_ns: all().max().unwrap(),
        misses: all().filter(|value| *value > DEADLINE_NS).count() as u64 + SKIPPED * names.len() as u64,
    }
}

fn same(what: &str, found: (u64, f64, f64, u64), expected: Truth) {
    let (count, mean_ns, max_ns, misses) = found;
    assert_eq!((count, misses), (expected.count, expected.misses), "{what}");
    // Microseconds in floating point: a thousandth of a nanosecond is far below what they round to.
    assert!((mean_ns - expected.mean_ns).abs() < 1e-3, "{what}: {mean_ns} for {}", expected.mean_ns);
    assert!((max_ns - expected.max_ns as f64).abs() < 1e-3, "{what}: {max_ns} for {}", expected.max_ns);
}

#[test]
fn run_bench_campaign_report_and_compare_agree_beyond_the_rows_kept() {
    // All rows kept, some, and none at all.
    for kept in [VALUES, KEPT, 0] {
        let root = tempfile::tempdir().unwrap();
        let table = campaign(root.path(), kept, "", "");
        assert_eq!(table.rows.len(), 2);
        for row in &table.rows {
            let dirs: Vec<&Path> = row.run_dirs.iter().map(Path::new).collect();
            let names: Vec<&str> =
                dirs.iter().map(|dir| dir.file_name().unwrap().to_str().unwrap()).collect();
            let both = truth(&names);
            assert!(both.max_ns >= 4_505_017 && both.misses > 80, "{both:?}");
            // The campaign, and the benches' rows that are made of it.
            let misses = row.misses.unwrap();
            same("campaign", (row.us.count, row.us.mean * 1e3, row.us.worst * 1e3, misses), both);
            let one = Table { rows: vec![row.clone()], ..Table::default() };
            let bench = &condition_rows(&one)[0];
            let us = |value: Option<f64>| value.unwrap() * 1e3;
            same("bench daq", (bench.count, us(bench.mean), us(bench.max), bench.misses.unwrap()), both);
            let bench = &scheduler_rows(&one)[0];
            same("bench uav", (bench.count, us(bench.mean), us(bench.max), bench.misses.unwrap()), both);
            // The report of the same folders.
            let collection = collect(&dirs).unwrap();
            let digest = &digests(&collection, &collection.groups[0])[0];
            let s = &digest.summary;
            same("report", (s.count, s.mean, s.worst, digest.misses() + digest.skipped()), both);
            assert_eq!(row.sentence.as_deref(), Some(digest.verdict.as_ref().unwrap().sentence().as_str()));
            // Each run by itself, its report, and one compared with the other.
            let paths: Vec<_> = dirs.iter().map(|dir| dir.to_path_buf()).collect();
            let comparison = compare(&paths, &Options::default()).unwrap();
            let pair = &comparison.pairs[0];
            for side in 0..2 {
                let own = truth(&names[side..=side]);
                let run = summarise(&RunDir::open(dirs[side]).unwrap()).unwrap();
                let lateness = run.main().unwrap();
                let us = &lateness.us;
                same("run", (us.count, us.mean * 1e3, us.worst * 1e3, lateness.misses.unwrap()), own);
                let collection = collect(&dirs[side..=side]).unwrap();
                let digest = &digests(&collection, &collection.groups[0])[0];
                assert_eq!(run.sentence, digest.verdict.as_ref().unwrap().sentence());
                assert_eq!(pair.verdicts[side].as_ref(), Some(&run.sentence));
                assert_eq!(run.verdict, Verdict::Fail);
                // What samples report of a figure's chance needs samples; without, the figures are
                // still in the sides.
                if kept > 0 {
                    let change = |figure: &str| pair.changes.iter().find(|c| c.figure == figure).unwrap();
                    let value = |figure: &str| [change(figure).before_ns, change(figure).after_ns][side];
                    let found = (pair.samples[side], value("mean"), value("max"), pair.misses[side].unwrap());
                    same("compare", found, own);
                } else {
                    assert_eq!((pair.samples[side], pair.misses[side]), (own.count, Some(own.misses)));
                }
            }
        }
    }
}

#[test]
fn a_claim_is_judged_the_same_wherever_it_is_shown() {
    // 40 misses and 3 that never came in 40,000: some 1.1e-3; each is an event of its own.
    for (claim, expected) in [
        ("misses_per_job = 1e-2\nburst_s = 0.0", Verdict::Pass),
        ("misses_per_job = 1e-2", Verdict::Pass),
        ("misses_per_job = 1.2e-3\nburst_s = 0.0", Verdict::Inconclusive),
        ("misses_per_job = 1e-5\nburst_s = 0.0", Verdict::Fail),
        ("misses_per_hour = 1.0", Verdict::Fail),
        ("misses_per_hour = 1.0\n[measures.lateness]\nmisses_per_job = 0.02", Verdict::Pass),
    ] {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("run");
        write(&path, &Experiment::default(), KEPT, claim);
        let run = summarise(&RunDir::open(&path).unwrap()).unwrap();
        assert_eq!(run.verdict, expected, "{claim}: {}", run.sentence);
        let collection = collect(&[&path]).unwrap();
        let digest = &digests(&collection, &collection.groups[0])[0];
        assert_eq!(digest.verdict.as_ref().unwrap().sentence(), run.sentence);
        let text = takt_report::markdown(&takt_report::build(&collection, &ROBOTS.supplements()));
        assert!(text.contains(&expected.to_string()), "{text}");
        assert_eq!(expected == Verdict::Inconclusive, run.measure_more_s.is_some(), "{}", run.sentence);
    }
}

#[test]
fn figures_of_a_failed_row_are_null_and_never_0() {
    let root = tempfile::tempdir().unwrap();
    let table = campaign(root.path(), KEPT, "", "work_us 10");
    let rows = serde_json::to_value(&table).unwrap();
    let rows = [
        serde_json::to_value(condition_rows(&table)).unwrap(),
        serde_json::to_value(scheduler_rows(&table)).unwrap(),
        rows["rows"].clone(),
    ];
    for kind in &rows {
        let [good, failed] = [&kind[0], &kind[1]];
        for name in ["misses", "stolen", "mean", "max", "us", "mean_range_us", "longest_miss_run", "sentence"]
        {
            let figure = |row: &serde_json::Value| match (name, row.get(name)) {
                ("us", Some(us)) => Some(us["worst"].clone()),
                (_, figure) => figure.cloned(),
            };
            if let Some(value) = figure(failed) {
                assert!(value.is_null(), "{name}: {failed:#}");
                assert!(!figure(good).unwrap().is_null(), "{name}: {good:#}");
            }
        }
    }
    assert!(table.rows[1].problems[0].contains("planted"), "{:?}", table.rows[1].problems);
    // What was written is read again.
    let again: Table = serde_json::from_value(serde_json::to_value(&table).unwrap()).unwrap();
    assert_eq!(again, table);
}
