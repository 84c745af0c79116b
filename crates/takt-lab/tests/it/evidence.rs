//! A PASS states evidence, wherever it is shown: without a claim of the robot's file less than one
//! miss in 100 at 95 % by effective sample size. The runs are written by hand and miss nothing;
//! only their length differs, and what is asked for is then made.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use takt_lab::Registry;
use takt_lab::campaign::{
    Campaign, CampaignFile, Local, Plan, RunOrder, Table, condition_rows, scheduler_rows,
};
use takt_lab::kernels::kernel_rows;
use takt_lab::summary::{RunSummary, summarise};
use takt_report::compare::{Options, compare};
use takt_report::{collect, digests};
use takt_rundir::{Experiment, Measure, RUN_FILE, RunDir, RunHeader, SUMMARY_FILE};
use takt_stats::Verdict;

static ROBOTS: Registry = Registry::new(&[&takt_lab::cyclic::KIND]);

const PERIOD_NS: u64 = 1_000_000;
/// When the measured time begins.
const FROM_NS: u64 = 5_000_000_000;

#[derive(Serialize)]
struct Row {
    planned_ns: u64,
    wake_ns: u64,
}

/// Statement of a run's measure.
#[derive(Clone, Copy)]
struct Stated {
    /// With its rate, as a loop's.
    rate: bool,
    /// With its window; a run that was never ended has none.
    window: bool,
    claim: &'static str,
}

const LOOP: Stated = Stated { rate: true, window: true, claim: "" };

/// A sealed run of so many seconds at 1 kHz that misses nothing.
fn write(path: &Path, experiment: &Experiment, seconds: u64, stated: Stated) {
    let dir = RunDir::create_at(path).unwrap();
    let mut rows = dir.samples("cyclic").unwrap();
    for index in 0..seconds * 1000 {
        let planned_ns = FROM_NS + index * PERIOD_NS;
        rows.push(&Row { planned_ns, wake_ns: planned_ns + 20_000 + (index * 7919) % 50_021 }).unwrap();
    }
    rows.flush().unwrap();
    let mut lateness = Measure::new("lateness", "Wake-up lateness", "cyclic", "wake_ns")
        .since("planned_ns")
        .deadline_ns(PERIOD_NS);
    lateness.rate_hz = stated.rate.then_some(1000.0);
    lateness.window_ns = stated.window.then_some([FROM_NS, FROM_NS + seconds * 1_000_000_000]);
    let header = RunHeader {
        takt: "test".to_owned(),
        experiment: experiment.clone(),
        started_utc: "2026-01-01T00:00:00Z".to_owned(),
        finished_utc: Some("2026-01-01T00:00:40Z".to_owned()),
        measures: vec![lateness],
        verdict: toml::from_str(stated.claim).unwrap(),
        ..RunHeader::new("cyclic", "written by hand")
    };
    dir.write_json(RUN_FILE, &header).unwrap();
    dir.write_json(SUMMARY_FILE, &summarise(&dir).unwrap()).unwrap();
    dir.seal().unwrap();
}

/// A run by itself.
fn run(root: &Path, seconds: u64, stated: Stated) -> RunSummary {
    let path = root.join(format!("run-{seconds}-{}-{}", stated.rate, stated.window));
    write(&path, &Experiment::default(), seconds, stated);
    summarise(&RunDir::open(&path).unwrap()).unwrap()
}

/// The seconds of "`--seconds N`" at a sentence's end.
fn asked_for(sentence: &str) -> u64 {
    let (_, option) = sentence.rsplit_once("`--seconds ").unwrap_or_else(|| panic!("{sentence}"));
    option.strip_suffix('`').unwrap_or_else(|| panic!("{sentence}")).parse().unwrap()
}

#[test]
fn a_run_of_a_second_is_no_pass_and_the_length_that_it_asks_for_is() {
    let root = tempfile::tempdir().unwrap();
    for seconds in [1, 5, 10, 29] {
        let short = run(root.path(), seconds, LOOP);
        assert_eq!(short.verdict, Verdict::Inconclusive, "{}", short.sentence);
        assert!(short.sentence.contains("without a claim, a PASS needs a miss rate below 1 in 100"));
        let length = asked_for(&short.sentence);
        assert_eq!(short.measure_more_s, Some((length - seconds) as f64), "{}", short.sentence);
        let long = tempfile::tempdir().unwrap();
        let long = run(long.path(), length, LOOP);
        assert_eq!(long.verdict, Verdict::Pass, "{seconds} s, then {length} s: {}", long.sentence);
        assert!(long.misses_per_job_below.unwrap() <= 0.01 && long.measure_more_s.is_none());
        assert!(length <= 32, "{length} s");
    }
}

#[test]
fn a_rate_that_nobody_states_is_no_way_around_it() {
    let root = tempfile::tempdir().unwrap();
    for stated in [
        Stated { rate: false, ..LOOP },
        // Its samples' own times, and no window.
        Stated { window: false, ..LOOP },
        Stated { rate: false, window: false, ..LOOP },
    ] {
        let short = run(root.path(), 2, stated);
        assert_eq!(short.verdict, Verdict::Inconclusive, "{}", short.sentence);
        let length = asked_for(&short.sentence);
        let long = run(root.path(), length, stated);
        assert_eq!(long.verdict, Verdict::Pass, "{length} s: {}", long.sentence);
    }
}

#[test]
fn a_claim_of_the_robots_file_is_judged_as_it_is_stated() {
    let root = tempfile::tempdir().unwrap();
    let claim = "misses_per_job = 0.1\nburst_s = 0.01";
    let weak = run(root.path(), 1, Stated { claim, ..LOOP });
    assert_eq!(weak.verdict, Verdict::Pass, "{}", weak.sentence);
    // What is no claim is none: a burst, or less confidence.
    for claim in ["confidence = 0.5", "burst_s = 0.05", "burst_s = 0.05\nconfidence = 0.6"] {
        let root = tempfile::tempdir().unwrap();
        let short = run(root.path(), 10, Stated { claim, ..LOOP });
        assert_eq!(short.verdict, Verdict::Inconclusive, "{claim}: {}", short.sentence);
    }
}

/// A campaign of one configuration, two runs of `seconds` each.
fn campaign(root: &Path, seconds: u64) -> Table {
    let text = "name = \"evidence\"\nrobot = \"cyclic\"\nrepetitions = 2\nseconds = 1\n";
    let file = CampaignFile::parse(text, "evidence.toml").unwrap();
    let campaign = Campaign::create(ROBOTS, root, Plan::resolve(&ROBOTS, &file).unwrap()).unwrap();
    let make = |order: &RunOrder<'_>| {
        write(order.dir, &order.run.setup.experiment, seconds, LOOP);
        Ok(())
    };
    let labels = BTreeMap::new();
    let local = Local { labels: &labels, any_machine: true, make: &make, go_on: &|| true, folder: None };
    campaign.measure(&local, &mut |_, _, _| {}).unwrap()
}

#[test]
fn tables_of_campaigns_benches_and_kernels_reports_and_comparisons_follow_the_same_rule() {
    for (seconds, expected) in [(4, Verdict::Inconclusive), (16, Verdict::Pass)] {
        let root = tempfile::tempdir().unwrap();
        let table = campaign(root.path(), seconds);
        let row = &table.rows[0];
        assert_eq!((row.measured, row.verdict), (2, Some(expected)), "{:?}", row.sentence);
        let sentence = row.sentence.clone().unwrap();
        if expected == Verdict::Inconclusive {
            // 8 s of 30 are there; the rest is shared.
            assert!(sentence.contains("s more in each of 2 runs"), "{sentence}");
            let length = asked_for(&sentence);
            let again = tempfile::tempdir().unwrap();
            let again = campaign(again.path(), length);
            assert_eq!(
                again.rows[0].verdict,
                Some(Verdict::Pass),
                "{length} s: {:?}",
                again.rows[0].sentence
            );
            assert!(length <= 16, "{length}");
        }
        // Rows of benches and kernels are made of the campaign's.
        assert_eq!(condition_rows(&table)[0].sentence.as_ref(), Some(&sentence));
        assert_eq!(scheduler_rows(&table)[0].sentence.as_ref(), Some(&sentence));
        assert_eq!(kernel_rows(&table, None)[0].sentence.as_ref(), Some(&sentence));
        // The report of the same folders.
        let dirs: Vec<_> = row.run_dirs.iter().map(std::path::PathBuf::from).collect();
        let collection = collect(&dirs).unwrap();
        let digest = &digests(&collection, &collection.groups[0])[0];
        assert_eq!(digest.verdict.as_ref().unwrap().sentence(), sentence);
        let text = takt_report::markdown(&takt_report::build(&collection, &ROBOTS.supplements()));
        assert!(text.contains(&expected.to_string()), "{text}");
        let passes = text.lines().filter(|line| line.starts_with('|') || line.starts_with("**"));
        let passes = passes.filter(|line| line.contains("PASS") && !line.contains("a PASS needs")).count();
        assert_eq!(passes > 0, expected == Verdict::Pass, "{text}");
        // Each run by itself has half of the evidence, also in a comparison.
        let comparison = compare(&dirs, &Options::default()).unwrap();
        for (side, dir) in dirs.iter().take(2).enumerate() {
            let own = summarise(&RunDir::open(dir).unwrap()).unwrap();
            assert_eq!(own.verdict, Verdict::Inconclusive, "{}", own.sentence);
            assert_eq!(comparison.pairs[0].verdicts[side].as_ref(), Some(&own.sentence));
        }
    }
}
