//! Whole reports on run directories that were made up.

use crate::common;

use std::path::Path;

use common::{Dice, build, campaign, header, run, unsealed, write};
use proptest::prelude::*;
use takt_report::table::Cell;
use takt_report::{Error, Seal, Shapes, Supplement, Supplements, collect};
use takt_rundir::{FORMAT, Factor, Measure, RUN_FILE, RunDir};

fn steady(count: usize) -> impl Iterator<Item = u64> {
    let mut dice = Dice::new(3);
    (0..count).map(move |_| dice.latency(40e3, 0.3, 1e9, 0.0))
}

/// `takt report DIR` as root, in a folder where another user has planted links in the places of
/// what is written.
#[test]
fn planted_links_are_replaced_and_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let runs = root.path().join("runs");
    campaign(&runs, 1, 60);
    let victim = root.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    let out = root.path().join("out");
    std::fs::create_dir(&out).unwrap();
    for name in ["report.html", "report.html.tmp", "report.md", "report.md.tmp"] {
        std::os::unix::fs::symlink(&victim, out.join(name)).unwrap();
    }
    write(&[&runs], &out).unwrap();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    assert!(out.join("report.html").symlink_metadata().unwrap().is_file());

    // A link in the place of the folder of figures leads into a folder that is not ours to write
    // to.
    std::fs::remove_dir_all(out.join("figures")).unwrap();
    let elsewhere = root.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, out.join("figures")).unwrap();
    assert!(write(&[&runs], &out).is_err());
    assert_eq!(elsewhere.read_dir().unwrap().count(), 0);
}

#[test]
fn a_campaign_becomes_a_page_its_text_and_pictures() {
    let root = tempfile::tempdir().unwrap();
    campaign(&root.path().join("uav"), 2, 600);
    let out = root.path().join("report");
    let written = write(&[root.path().join("uav")], &out).unwrap();
    let html = std::fs::read_to_string(&written.html).unwrap();
    let markdown = std::fs::read_to_string(&written.markdown).unwrap();

    // Opens offline: nothing is fetched, nothing is run.
    assert!(!html.contains("<script") && !html.contains("src=") && !html.contains("@import"));
    let links = html.matches("http").count();
    assert_eq!(links, html.matches("xmlns=\"http://www.w3.org/2000/svg\"").count(), "a link leads outside");
    // Every section is reached from the contents.
    for section in written.document.sections.iter().skip(1) {
        assert!(
            html.contains(&format!("href=\"#{}\"", section.id))
                && html.contains(&format!("id=\"{}\"", section.id))
        );
    }
    // The Markdown has the same tables.
    for table in written.document.tables() {
        assert!(html.contains(table.title()) || table.title().contains('&'), "{}", table.title());
        for cell in table.rows().iter().flatten() {
            // Words are escaped in ways of their own; numbers stand as they are.
            if let Cell::Number(_) | Cell::Estimate(..) = cell {
                assert!(markdown.contains(&cell.plain()), "{cell:?}");
            }
        }
        let heads: Vec<String> =
            table.columns().iter().map(|c| takt_report::table::escape_inline(&c.title)).collect();
        assert!(markdown.contains(&format!("| {} |", heads.join(" | "))), "{heads:?}");
    }
    // The quadrotor paper's Table 4: sixteen configurations of twelve hundred samples each.
    let rows = markdown.lines().filter(|l| l.contains("| 2 | 1200 |")).count();
    assert_eq!(rows, 16, "{markdown}");
    // All kinds of figures, each beside the Markdown, each naming every run that it was drawn from,
    // with the hash.
    for kind in ["bars", "boxes", "distribution", "above", "series", "max-trend", "mean-trend"] {
        assert!(written.document.figures().any(|f| f.id == format!("m1-{kind}-1")), "{kind}");
    }
    assert_eq!(written.figures.len(), written.document.figures().count());
    for (figure, path) in written.document.figures().zip(&written.figures) {
        let svg = std::fs::read_to_string(path).unwrap();
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(svg.contains("(µs)"), "{}: no unit", figure.id);
        assert!(!figure.sources.is_empty());
        for source in &figure.sources {
            assert!(svg.contains(&source.line()), "{}: {}", figure.id, source.line());
            let whole = written.collection.runs.iter().find(|r| r.key == source.key).unwrap();
            assert!(matches!(&whole.seal, Seal::Whole(hash) if hash.starts_with(&source.hash)));
        }
    }
}

#[test]
fn size_does_not_follow_the_number_of_samples() {
    let root = tempfile::tempdir().unwrap();
    let mut sizes = Vec::new();
    for samples in [20_000, 400_000] {
        let path = root.path().join(samples.to_string());
        let spike = samples / 3;
        let latencies = steady(samples).enumerate().map(|(i, v)| if i == spike { 3_500_000 } else { v });
        run(&path, &header(&[], 0), latencies);
        let written = write(&[&path], &root.path().join(format!("report-{samples}"))).unwrap();
        sizes.push(std::fs::metadata(&written.html).unwrap().len());
        let digests = takt_report::digests(&written.collection, &written.collection.groups[0]);
        let part = &digests[0].runs[0];
        assert!(part.columns.len() <= 360 && part.mean_trend.len() <= 1024 && digests[0].above.len() <= 1000);
        assert_eq!(part.columns.iter().map(|c| c.2).fold(0.0, f64::max), 3_500_000.0, "the spike vanished");
        assert_eq!(digests[0].bins.iter().map(|b| b.2).sum::<u64>(), samples as u64, "a sample is in no bin");
    }
    assert!(sizes[1] < 300_000 && sizes[1] < 2 * sizes[0], "{sizes:?}");
}

#[test]
fn what_cannot_be_read_is_reported_and_not_lost() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join("runs").join(name);
    let factors = |policy| [("policy", policy)];
    run(&path("01"), &header(&factors("fifo:50"), 1), steady(500));
    // A header of another format.
    std::fs::create_dir_all(path("02")).unwrap();
    std::fs::write(path("02").join(RUN_FILE), "{\"robot\": 7}").unwrap();
    // Samples without a header.
    std::fs::create_dir_all(path("03").join("samples")).unwrap();
    // A run that was cut off.
    let mut cut = header(&factors("fifo:60"), 1);
    cut.finished_utc = None;
    unsealed(&path("04"), &cut, steady(400));
    // One whose samples were changed after the seal.
    run(&path("05"), &header(&factors("fifo:70"), 1), steady(400));
    std::fs::write(path("05").join("samples/attitude.parquet"), "garbage").unwrap();
    // One that measures something else under the same name, and one in milliseconds.
    let mut other = header(&factors("fifo:80"), 1);
    other.measures[0].since_column = None;
    run(&path("06"), &other, steady(10));
    let mut unit = header(&factors("fifo:90"), 1);
    unit.measures[0].column = "wake_ms".into();
    run(&path("07"), &unit, steady(10));

    let written = write(&[root.path().join("runs")], &root.path().join("report")).unwrap();
    let markdown = std::fs::read_to_string(&written.markdown).unwrap();
    let gaps = |part: &str| written.collection.gaps.iter().any(|g| g.what.contains(part));
    assert!(gaps("02") && gaps("03") && gaps("06") && gaps("07"), "{:?}", written.collection.gaps);
    assert!(markdown.contains("looks like a run directory but has no run.json"), "{markdown}");
    assert!(markdown.contains("wake_ns since planned_ns in other runs: not combined"));
    assert!(markdown.contains("is not in nanoseconds"));
    assert!(markdown.contains("R2: unfinished") && markdown.contains("Not sealed"));
    assert!(markdown.contains("Runs whose files were changed after sealing: R3"));
    // Its samples are broken: a labelled row, and the verdict is no PASS.
    let row = markdown.lines().find(|l| l.starts_with("| policy fifo:70 |")).unwrap();
    assert!(row.contains("attitude.parquet") && !row.contains("PASS"), "{row}");
    // Only nonsense: an error that says why.
    let error = write(&[path("02")], &root.path().join("none")).unwrap_err();
    assert!(matches!(error, Error::NothingReadable { found: 1, .. }), "{error}");
    let error = write(&[root.path().join("report")], &root.path().join("none")).unwrap_err().to_string();
    assert!(error.contains("run.json"), "{error}");
    assert!(!root.path().join("none").exists(), "nothing is written where there is nothing to report");
}

#[test]
fn planned_runs_that_are_missing_keep_their_row() {
    let root = tempfile::tempdir().unwrap();
    let campaign = root.path().join("campaign");
    let factors = |policy| [("policy", policy)];
    run(&campaign.join("001-fifo-r1"), &header(&factors("fifo:50"), 1), steady(500));
    run(&campaign.join("003-rr-r1"), &header(&factors("rr:50"), 1), steady(500));
    let planned = |name: &str, policy: &'static str| {
        let e = header(&factors(policy), 1).experiment;
        serde_json::json!({ "name": name, "setup": { "stress": {}, "experiment": e }, "config": "x" })
    };
    let runs = [
        planned("001-fifo-r1", "fifo:50"),
        planned("002-deadline-r1", "deadline:1ms"),
        planned("003-rr-r1", "rr:50"),
    ];
    let plan = serde_json::json!({ "takt": "0", "plan": { "robot": "uav", "runs": runs } });
    std::fs::write(campaign.join("campaign.json"), plan.to_string()).unwrap();
    std::fs::write(
        campaign.join("failures.json"),
        r#"{"002-deadline-r1": "no permission for SCHED_DEADLINE"}"#,
    )
    .unwrap();
    let written = write(&[&campaign], &root.path().join("report")).unwrap();
    let names: Vec<&str> = written.collection.configurations.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["policy fifo:50", "policy deadline:1ms", "policy rr:50"], "the campaign's order");
    let markdown = std::fs::read_to_string(&written.markdown).unwrap();
    let reported = markdown
        .lines()
        .filter(|l| l.contains("deadline:1ms") && l.contains("no permission for SCHED_DEADLINE"))
        .count();
    assert!(reported >= 2, "{markdown}");
}

#[test]
fn machines_that_differ_are_stated() {
    let root = tempfile::tempdir().unwrap();
    run(&root.path().join("a"), &header(&[("kernel", "rt")], 1), steady(500));
    let mut other = header(&[("kernel", "generic")], 1);
    other.machine.kernel = Some("6.8.0-generic".into());
    run(&root.path().join("b"), &other, steady(500));
    let collection = collect(&[root.path()]).unwrap();
    assert_eq!(collection.differing.len(), 1);
    assert_eq!(collection.differing[0].values[1], ("6.8.0-generic".to_owned(), vec!["R2".to_owned()]));
    let document = build(&collection);
    let markdown = takt_report::markdown(&document);
    assert!(markdown.contains("The machines of the runs differ (kernel)"), "{markdown}");
    assert!(markdown.contains("kernel (differs)"));
}

#[test]
fn repetitions_are_pooled_and_runs_on_their_own_are_not() {
    let root = tempfile::tempdir().unwrap();
    for repetition in 1..=3 {
        run(
            &root.path().join(format!("r{repetition}")),
            &header(&[("policy", "rr:9")], repetition),
            steady(100),
        );
    }
    for name in ["x", "y"] {
        run(&root.path().join(name), &header(&[], 0), steady(100));
    }
    let collection = collect(&[root.path()]).unwrap();
    let members: Vec<usize> = collection.configurations.iter().map(|c| c.runs.len()).collect();
    assert_eq!(members, [3, 1, 1]);
    let mut names: Vec<&str> = collection.configurations.iter().map(|c| c.name.as_str()).collect();
    names.dedup();
    assert_eq!(names.len(), 3, "{names:?}");
    let digests = takt_report::digests(&collection, &collection.groups[0]);
    assert_eq!(digests[0].summary.count, 300);
    assert_eq!(digests[0].summary.worst, digests[0].runs.iter().map(|r| r.summary.worst).fold(0.0, f64::max));
    // The same run twice is one run.
    assert_eq!(collect(&[root.path(), root.path()]).unwrap().runs.len(), 5);
}

#[test]
fn samples_that_never_came_are_misses() {
    let root = tempfile::tempdir().unwrap();
    let mut header = header(&[], 0);
    header.measures[0].skipped = 2;
    run(&root.path().join("a"), &header, steady(1000));
    let collection = collect(&[root.path()]).unwrap();
    let digest = &takt_report::digests(&collection, &collection.groups[0])[0];
    assert_eq!(digest.verdict.as_ref().unwrap().verdict, takt_stats::Verdict::Fail);
    assert!(takt_report::markdown(&build(&collection)).contains("2 (2 skipped or dropped)"));
}

/// A robot whose paper has tables of conditions, with the duration of each test.
#[derive(Debug)]
struct Conditions;

impl Supplement for Conditions {
    fn shapes(&self) -> Shapes {
        Shapes { conditions: true, ..Shapes::default() }
    }
}

#[test]
fn a_long_run_is_reported_by_its_recorder() {
    let root = tempfile::tempdir().unwrap();
    let mut header = header(&[], 0);
    header.measures[0].recorder = Some("lateness.json".into());
    let dir = unsealed(&root.path().join("long"), &header, steady(1000));
    let mut recorder = takt_stats::recorder::Recorder::new(Some(4_000_000)).unwrap();
    steady(50_000).for_each(|v| recorder.record(v));
    recorder.record(9_000_000);
    let mut streamed = takt_stats::Streamed::new(Some(4_000_000)).unwrap();
    streamed.recorder = recorder;
    streamed.elapsed_ns = 40 * 86_400 * 1_000_000_000;
    dir.write_json("lateness.json", &streamed).unwrap();
    dir.seal().unwrap();
    let collection = collect(&[root.path()]).unwrap();
    let digest = &takt_report::digests(&collection, &collection.groups[0])[0];
    assert_eq!((digest.summary.count, digest.misses(), digest.summary.worst), (50_001, 1, 9e6));
    assert_eq!(digest.bins.iter().map(|b| b.2).sum::<u64>(), 50_001);
    assert!(digest.above.is_sorted_by(|a, b| a.0 <= b.0 && a.1 >= b.1), "{:?}", digest.above);
    let supplements = Supplements::from_iter([("uav", &Conditions as &'static dyn Supplement)]);
    let markdown = takt_report::markdown(&takt_report::build(&collection, &supplements));
    assert!(markdown.contains("1000 of 50001 samples stored individually"), "{markdown}");
    assert!(markdown.contains("40:00:00:00"), "{markdown}");
}

fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        Just("<img id=pwn src=x onerror=alert(1)>".to_owned()),
        Just("</style></svg><b id=pwn>\u{202e}\0|`*_[x](y)\n# head".to_owned()),
        "[a-z:0-9|<>&\"']{0,120}",
    ]
}

fn values() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![
        Just(vec![]),
        (0u64..=1_000_000_000_000).prop_map(|v| vec![v]),
        (0u64..=1_000_000_000_000, 2usize..50).prop_map(|(v, n)| vec![v; n]),
        proptest::collection::vec(prop_oneof![Just(0u64), 1u64..100_000, 0u64..=1_000_000_000_000], 2..200),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_run_breaks_a_report(
        texts in proptest::collection::vec(hostile(), 14),
        series in proptest::collection::vec(values(), 1..4),
        deadline in proptest::option::of(any::<u64>()),
        rate in proptest::option::of(prop_oneof![Just(0.0), 1e-3f64..1e6, Just(f64::MAX)]),
        skipped in any::<u64>(),
        timed in any::<bool>(),
        share in 0.0f64..1.0,
    ) {
        let root = tempfile::tempdir().unwrap();
        for (index, values) in series.iter().enumerate() {
            let mut header = header(&[], index as u32);
            let text = |i: usize| texts[(i + index) % texts.len()].clone();
            header.format = FORMAT;
            header.robot = text(0);
            header.label = text(1);
            header.experiment.campaign = text(2);
            header.experiment.factors = vec![
                Factor { name: text(3), value: text(4) },
                Factor { name: "stress".into(), value: if index == 0 { "off".into() } else { text(5) } },
            ];
            header.started_utc = text(6);
            header.machine.host = Some(text(7));
            header.not_granted = vec![text(8)];
            header.problems = vec![text(9)];
            header.load = serde_json::json!({ "profile": text(10), "components": [{ "kind": text(11), "cpu_s": 1.5 }] });
            header.figures.insert(text(12), 1e300);
            header.cpu.stolen = share;
            header.measures = vec![Measure {
                title: text(13),
                deadline_ns: deadline,
                rate_hz: rate,
                skipped,
                time_column: timed.then(|| "planned_ns".to_owned()),
                ..header.measures[0].clone()
            }];
            run(&root.path().join("runs").join(index.to_string()), &header, values.iter().copied());
        }
        let written = write(&[root.path().join("runs")], &root.path().join("report")).unwrap();
        let html = std::fs::read_to_string(&written.html).unwrap();
        prop_assert!(!html.contains("<img") && !html.contains("<b id=pwn"));
        prop_assert!(!html.chars().any(|c| c.is_control() && c != '\n'));
        prop_assert!(!html.contains("NaN") && !html.contains("inf "), "a number that is none");
        let markdown = std::fs::read_to_string(&written.markdown).unwrap();
        prop_assert!(!markdown.contains("<img") && !markdown.contains("<b id"));
        for figure in written.document.figures() {
            prop_assert!(!figure.svg.contains("<img") && !figure.svg.contains("<b id") && !figure.svg.contains("NaN"));
        }
        let text = takt_report::text(&written.document);
        prop_assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "a terminal would obey");
    }
}

/// First sentence of the report of two chains for a run with these failures.
#[allow(clippy::unwrap_used, reason = "a test that cannot write its runs has nothing to test")]
fn answer_of(given_up: bool, failures: &[&str], change: impl FnOnce(&mut takt_rundir::RunHeader)) -> String {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("takt");
    chains(&path, "takt", given_up);
    let text = std::fs::read_to_string(path.join(RUN_FILE)).unwrap();
    let mut header: takt_rundir::RunHeader = serde_json::from_str(&text).unwrap();
    header.failures = failures.iter().map(|&failure| failure.to_owned()).collect();
    header.problems = header.failures.clone();
    change(&mut header);
    std::fs::write(path.join(RUN_FILE), serde_json::to_string(&header).unwrap()).unwrap();
    std::fs::remove_file(path.join("hashes.json")).unwrap();
    RunDir::open(&path).unwrap().seal().unwrap();
    takt_report::text(&build(&collect(&[root.path()]).unwrap()))
}

#[test]
#[allow(clippy::unwrap_used, reason = "a test that cannot write its runs has nothing to test")]
fn a_verdict_over_all_measures_says_what_failed() {
    // Nothing was late: what failed is something else.
    let text = answer_of(true, &["the bus lost 3 frames, 0 are allowed"], |_| {});
    let reported =
        "FAIL: No measure that counts missed its deadline, but the run failed: the bus lost 3 frames";
    assert!(text.contains(reported), "{text}");
    assert!(!text.contains("A measure that counts missed"), "{text}");
    let text = answer_of(false, &["the robot stopped", "another thing"], |_| {});
    let reported = "A measure that counts missed its deadline (tracker), and the run failed for 2 reasons, the \
                first: the robot stopped";
    assert!(text.contains(reported), "{text}");
    let text = answer_of(false, &[], |_| {});
    assert!(text.contains("A measure that counts missed its deadline (tracker)."), "{text}");
    // A claim that allows for misses: they are reported, and are no failure.
    for (misses_per_job, reported) in [
        (0.99, "PASS: Every measure that counts met its claim, with enough evidence, in spite of misses"),
        (0.9, "INCONCLUSIVE: The evidence supports neither a PASS nor a FAIL of the claim"),
    ] {
        let claim = serde_json::json!({ "misses_per_job": misses_per_job, "confidence": 0.95 });
        let text = answer_of(false, &[], |header| header.verdict = serde_json::from_value(claim).unwrap());
        assert!(text.contains(reported), "{text}");
    }
}

/// A run of two chains that all must keep their goals, in two phases: in the second the last one is
/// late.
#[allow(clippy::unwrap_used, reason = "a test that cannot write its runs has nothing to test")]
fn chains(path: &Path, policy: &str, given_up: bool) {
    let mut header = common::header(&[("policy", policy)], 1);
    header.robot = "ros".into();
    let measure = |name: &str| {
        Measure::new(name, &format!("End-to-end latency of {name}"), &format!("chain-{name}"), "ended_ns")
            .since("began_ns")
            .deadline_ns(50_000_000)
            .judged()
    };
    header.measures = vec![measure("pilot"), measure("tracker")];
    if given_up {
        header.measures[1].excused = Some("degraded for 20.0 of 40.0 s: too much is asked".into());
    }
    let phase = |name: &str, from_ns, to_ns| takt_rundir::Phase { name: name.into(), from_ns, to_ns };
    header.phases =
        vec![phase("no load", 0, 20_000_000_000), phase("high load", 20_000_000_000, 40_000_000_000)];
    header.figures.insert("plan_ms_per_plan".into(), 4.5);
    header.figures.insert("plan_ms_per_plan@no load".into(), 3.5);
    header.figures.insert("plan_ms_per_plan@high load".into(), 5.5);
    let dir = RunDir::create_at(path).unwrap();
    for (name, late_ns) in [("pilot", 0), ("tracker", 45_000_000)] {
        let mut file = dir.samples(&format!("chain-{name}")).unwrap();
        for index in 0..800u64 {
            let began_ns = index * 50_000_000;
            let slow = if index >= 400 { late_ns } else { 0 };
            file.push(&Instance { began_ns, ended_ns: began_ns + 10_000_000 + index * 1000 + slow }).unwrap();
        }
        file.flush().unwrap();
    }
    dir.write_json(RUN_FILE, &header).unwrap();
    dir.seal().unwrap();
}

#[derive(serde::Serialize)]
struct Instance {
    began_ns: u64,
    ended_ns: u64,
}

#[test]
fn the_verdict_is_about_all_chains_and_who_was_given_up_does_not_count() {
    let root = tempfile::tempdir().unwrap();
    chains(&root.path().join("takt"), "takt", true);
    chains(&root.path().join("cfs"), "cfs", false);
    let text = takt_report::text(&build(&collect(&[root.path()]).unwrap()));
    assert!(text.contains("FAIL") && text.contains("policy cfs: a measure that counts missed"), "{text}");
    assert!(text.contains("policy takt: every measure that counts met"), "{text}");
    let table = |title: &str| {
        let document = build(&collect(&[root.path()]).unwrap());
        let found = document.tables().find(|table| table.title() == title).cloned();
        found.unwrap_or_else(|| panic!("{title} is missing"))
    };
    let rows = |title: &str| -> Vec<Vec<String>> {
        table(title)
            .rows()
            .iter()
            .map(|row| row.iter().map(takt_report::table::Cell::plain).collect())
            .collect()
    };
    let late = rows("Late samples by measure, configuration and phase");
    assert_eq!(late.len(), 4);
    let tracker = late.iter().find(|row| row[0] == "tracker" && row[2] == "policy takt").unwrap();
    assert_eq!((tracker[3].as_str(), tracker[5].as_str()), ("0 / 400", "400 / 400"), "{tracker:?}");
    assert_eq!(tracker[9], "given up", "{tracker:?}");
    let cost = rows("Figures by phase");
    assert_eq!(cost[0][0], "plan_ms_per_plan");
    assert_eq!(cost[0][2..], ["3.5", "5.5", "4.5"].map(str::to_owned), "{cost:?}");
    let all = rows("Figures of the robot");
    assert_eq!(all[0].len(), 2, "figures of phases stand in their own table: {all:?}");
    let document = build(&collect(&[root.path()]).unwrap());
    let pictures: Vec<&str> = document.figures().map(|figure| figure.id.as_str()).collect();
    assert!(pictures.contains(&"m1-phases-1") && pictures.contains(&"m2-phases-1"), "{pictures:?}");
    let curves = document.figures().find(|figure| figure.id == "m2-phases-1").unwrap();
    assert!(curves.svg.contains("high load") && curves.svg.contains("goal 50 ms"));
    // One run alone: a line for each chain.
    let text = takt_report::text(&build(&collect(&[root.path().join("takt")]).unwrap()));
    assert!(text.contains("tracker: does not count, because degraded for 20.0 of 40.0 s"), "{text}");
}

fn folder(variable: &str) -> Option<std::path::PathBuf> {
    let found = std::env::var(variable).ok().filter(|name| !name.is_empty());
    if found.is_none() {
        takt_witness::skip!("{variable} names no folder");
    }
    found.map(Into::into)
}

/// Writes reports to look at:
/// `TAKT_REPORT_LOOK=/tmp/look cargo test -p takt-report --test it report::look`.
#[test]
fn look() {
    let Some(root) = folder("TAKT_REPORT_LOOK") else { return };
    for name in ["uav", "one", "cell"] {
        let _ = std::fs::remove_dir_all(root.join(name));
    }
    campaign(&root.join("uav"), 3, 10_000);
    write(&[root.join("uav")], &root.join("uav-report")).unwrap();
    let mut dice = common::Dice::new(7);
    let one = (0..10_000).map(|_| dice.latency(40e3, 0.4, 500.0, 6e5));
    run(&root.join("one"), &header(&[], 0), one);
    write(&[root.join("one")], &root.join("one-report")).unwrap();
    // Milliseconds, long names, many levels of noise, a name that wants to break out.
    let mut cell = 0;
    for policies in ["main deadline:8ms/33ms/33ms, fallback rr:40", "main rr:50, fallback other <b>0</b>"] {
        for kernel in ["6.8.0-58-generic-with-a-long-local-version", "6.8.1-rt"] {
            for noise in ["0", "16", "128"] {
                for repetition in 1..=3 {
                    cell += 1;
                    let factors = [
                        ("task_set.policies_of_all_threads", policies),
                        ("kernel", kernel),
                        ("noise", noise),
                    ];
                    let mut header = header(&factors, repetition);
                    header.robot = "cell".into();
                    header.measures[0].title = "Reaction time from the arrival of a frame to the end of the first job of the safety monitor".into();
                    header.measures[0].deadline_ns = Some(37_300_000);
                    header.measures[0].rate_hz = Some(30.0);
                    let mut dice = common::Dice::new(cell);
                    let median = 15e6 + if noise == "128" { 9e6 } else { 0.0 };
                    run(
                        &root.join(format!("cell/{cell:03}")),
                        &header,
                        (0..900).map(|_| dice.latency(median, 0.12, 200.0, 4e7)),
                    );
                }
            }
        }
    }
    write(&[root.join("cell")], &root.join("cell-report")).unwrap();
}

/// The goal: 10 million samples in less than 5 s and 1 GiB. Reported, not asserted, since time
/// depends on the machine:
/// `TAKT_REPORT_LARGE=/tmp/large cargo test -p takt-report --test it report::large -- --nocapture`,
/// twice: the first makes the run, the second reports on it in a process that has made nothing.
#[test]
fn large() {
    let Some(root) = folder("TAKT_REPORT_LARGE") else { return };
    if !root.join("run").exists() {
        let mut dice = common::Dice::new(1);
        let latencies = (0..10_000_000).map(|_| dice.latency(40e3, 0.4, 5000.0, 6e5));
        run(&root.join("run"), &header(&[], 0), latencies);
        eprintln!("made; run again to report");
        return;
    }
    let begun = std::time::Instant::now();
    let written = write(&[root.join("run")], &root.join("report")).unwrap();
    let took = begun.elapsed();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or_default();
    let size = std::fs::metadata(&written.html).unwrap().len();
    eprintln!("10 million samples: {:.2} s, {peak}, page {size} bytes", took.as_secs_f64());
}

#[test]
fn guests_say_what_their_time_is() {
    let root = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(5);
    for (number, (kernel, preemption, spike_ns)) in
        [("generic", "PREEMPT_DYNAMIC (voluntary)", 7e5), ("rt", "PREEMPT_RT", 3e3)].into_iter().enumerate()
    {
        let mut header = header(&[("policy", "fifo:99"), ("kernel", kernel), ("stress", "uav")], 1);
        header.machine.preemption = Some(preemption.into());
        header.machine.virtual_machine = Some(takt_rundir::VirtualMachine {
            virtual_time: true,
            machine: "QEMU, instructions counted".into(),
            cpus: 1,
            memory_mib: 1024,
            kernel: kernel.into(),
            kernel_sha256: format!("{number:064}"),
            ..Default::default()
        });
        let latencies: Vec<u64> = (0..500).map(|_| dice.latency(4e3, 0.1, 20.0, spike_ns)).collect();
        run(&root.path().join(kernel), &header, latencies.into_iter());
    }
    let written = write(&[root.path().to_path_buf()], &root.path().join("report")).unwrap();
    let markdown = std::fs::read_to_string(&written.markdown).unwrap();
    assert!(markdown.contains("What virtual time means") && markdown.contains("No caches"), "{markdown}");
}

#[test]
fn the_first_screen_has_verdict_figure_and_next_steps_and_details_are_folded() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("run");
    run(&dir, &header(&[("policy", "fifo:50")], 1), (0..50).map(|_| 40_000));
    let written = write(&[&dir], &root.path().join("report")).unwrap();
    let html = std::fs::read_to_string(&written.html).unwrap();
    let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("no {text}"));
    let places = [
        at("class=\"answer\""),
        at("-distribution-1\""),
        at("What to do next"),
        at("Get enough evidence: measure "),
        at("1 run of robot"),
        at("<table"),
    ];
    assert!(places.is_sorted(), "{places:?}");
    // Shown once, and in both renderings.
    assert_eq!(html.matches("id=\"m1-distribution-1\"").count(), 1);
    let markdown = std::fs::read_to_string(&written.markdown).unwrap();
    assert!(markdown.contains("What to do next") && markdown.contains("m1-distribution-1"));
    // The reader opens what stands behind it; the measure itself is open.
    for (id, is_folded) in [("m1", false), ("machine", true), ("runs", true)] {
        let section = &html[at(&format!("<section id=\"{id}\""))..];
        let head = &section[..section.find("<h2>").unwrap()];
        assert_eq!(head.contains("<details>"), is_folded, "{id}: {head}");
    }
}
