//! `takt gate` and `takt history` on run directories that were made up, and
//! `takt export --format mcap` on real ones; held against programs from outside: a reader of JUnit
//! XML, Apache Otava, the reader of MCAP by its makers.

#![allow(clippy::unwrap_used)]

use crate::hold as golden;
use crate::takt;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Serialize;
use serde_json::Value;
use takt_rt::random::SplitMix64;
use takt_rundir::{Experiment, Factor, Machine, Measure, RUN_FILE, RunDir, RunHeader};

use golden::{hold, shape};
use takt::{alone, has, missing, refusal, root, stderr, stdout, takt as run};

#[derive(Serialize)]
struct Job {
    index: u64,
    planned_ns: u64,
    wake_ns: u64,
}

/// A sealed run whose wake-ups are late by about `median_us`, with a tail.
fn made(folder: &Path, number: u64, kernel: &str, median_us: f64) -> PathBuf {
    made_with(folder, number, kernel, median_us, |_| {})
}

/// The same, with a header that `change` has changed.
fn made_with(
    folder: &Path,
    number: u64,
    kernel: &str,
    median_us: f64,
    change: impl FnOnce(&mut RunHeader),
) -> PathBuf {
    let mut dice = SplitMix64::new(number.wrapping_mul(0x9e37_79b9) ^ median_us.to_bits());
    let mut unit = move || ((dice.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let mut normal = || (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
    // Runs differ by some percent, beside what their samples do.
    let level = median_us * 1e3 * (0.04 * normal()).exp();
    let path = folder.join(format!("{number:03}"));
    let dir = RunDir::create_at(&path).unwrap();
    let mut file = dir.samples("jobs").unwrap();
    for index in 0..2000 {
        let planned_ns = 1_000_000_000 + index * 1_000_000;
        file.push(&Job { index, planned_ns, wake_ns: planned_ns + (level * (0.3 * normal()).exp()) as u64 })
            .unwrap();
    }
    file.flush().unwrap();
    let measure = Measure::new("lateness", "Wake-up lateness", "jobs", "wake_ns").since("planned_ns");
    let mut header = RunHeader {
        experiment: Experiment {
            campaign: "nightly".to_owned(),
            factors: vec![Factor { name: "policy".to_owned(), value: "fifo:80".to_owned() }],
            repetition: number as u32,
            ..Experiment::default()
        },
        started_utc: format!("2026-11-{:02}T10:{:02}:00.000Z", 1 + number / 60, number % 60),
        finished_utc: Some("2026-11-30T10:00:00.000Z".to_owned()),
        machine: Machine { kernel: Some(kernel.to_owned()), ..Machine::default() },
        measures: vec![measure.deadline_ns(1_000_000).rate_hz(1000.0)],
        ..RunHeader::new("cyclic", "fifo:80")
    };
    change(&mut header);
    dir.write_json(RUN_FILE, &header).unwrap();
    dir.seal().unwrap();
    path
}

fn many(folder: &Path, numbers: impl IntoIterator<Item = u64>, kernel: &str, median_us: f64) -> PathBuf {
    many_with(folder, numbers, median_us, kernel, |_, _| {})
}

/// The same, with headers that `change` has changed, by number.
fn many_with(
    folder: &Path,
    numbers: impl IntoIterator<Item = u64>,
    median_us: f64,
    kernel: &str,
    change: impl Fn(u64, &mut RunHeader),
) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    numbers.into_iter().for_each(|number| {
        made_with(folder, number, kernel, median_us, |header| change(number, header));
    });
    folder.to_owned()
}

/// Numbers of runs that were made in turns: two old ones, and a new one.
fn old_numbers() -> impl Iterator<Item = u64> {
    (0..30).filter(|number| number % 3 != 2)
}

fn new_numbers() -> impl Iterator<Item = u64> {
    (0..30).filter(|number| number % 3 == 2)
}

/// A gate as JSON, with its exit status.
fn judged(old: &Path, new: &Path, more: &[&str]) -> (Option<i32>, Value) {
    let output = run(["gate", "--json", "--baseline"]).arg(old).args(more).arg(new).output().unwrap();
    (output.status.code(), message(&output))
}

fn message(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

fn python(code: &str, args: &[&Path]) -> Output {
    Command::new("python3").args(["-c", code]).args(args).output().unwrap()
}

fn has_module(module: &str) -> bool {
    Command::new("python3")
        .args(["-c", &format!("import {module}")])
        .output()
        .is_ok_and(|o| o.status.success())
}

/// The part that a CI system reads: name, kind and message of each test. Jenkins refuses what the
/// schema of its xUnit plugin (junit-10.xsd) does not have: of each element the attributes that
/// must be there, others that may be, and the elements in it.
const JUNIT: &str = "
import sys, xml.etree.ElementTree as tree
why = ('', 'type message', '')
schema = {
    'testsuites': ('', 'name time tests failures errors', 'testsuite'),
    'testsuite': ('name tests failures errors', 'group time skipped timestamp hostname id package',
                  'testsuite testcase system-out system-err'),
    'testcase': ('name', 'time classname group', 'skipped error failure system-out system-err'),
    'skipped': why, 'error': why, 'failure': why, 'system-out': ('', '', ''), 'system-err': ('', '', ''),
}
def check(element):
    needed, more, inside = (set(names.split()) for names in schema[element.tag])
    assert needed <= set(element.attrib) <= needed | more, (element.tag, element.attrib)
    for child in element:
        assert child.tag in inside, (element.tag, child.tag)
        check(child)
root = tree.parse(sys.argv[1]).getroot()
assert root.tag == 'testsuites', root.tag
check(root)
for suite in root:
    for case in suite.iter('testcase'):
        kinds = [(c.tag, c.get('message')) for c in case if c.tag in ('failure', 'skipped', 'error')]
        print(suite.get('tests'), suite.get('failures'), suite.get('skipped'), case.get('name'), kinds)
";

fn tests_of(junit: &Path) -> String {
    let output = python(JUNIT, &[junit]);
    assert!(output.status.success(), "{}\n{}", stderr(&output), fs::read_to_string(junit).unwrap());
    stdout(&output)
}

#[test]
fn a_gate_says_worse_same_better_and_inconclusive() {
    let root = tempfile::tempdir().unwrap();
    let old = many(&root.path().join("old"), old_numbers(), "6.12.43", 20.0);
    let junit = root.path().join("gate.xml");
    let gate = |name: &str, count: usize, median_us: f64| {
        let new = many(&root.path().join(name), new_numbers().take(count), "6.12.43", median_us);
        let mut command = run(["gate", "--json", "--baseline"]);
        command.arg(&old).arg("--junit").arg(&junit).arg(&new).output().unwrap()
    };
    let tests = || tests_of(&junit);
    let worse = gate("worse", 10, 24.0);
    let json = message(&worse);
    assert_eq!((worse.status.code(), json["decision"].as_str()), (Some(1), Some("worse")), "{json:#}");
    let number = |key: &str| json[key].as_f64().unwrap();
    assert!((number("difference") - 0.2).abs() < 0.06, "{json:#}");
    assert!(
        0.0 < number("low") && number("low") < number("difference") && number("difference") < number("high")
    );
    assert!(number("minimum_detectable") < 0.2, "{json:#}");
    assert_eq!(json["pairs"][0]["runs"], serde_json::json!([20, 10]));
    let mut seen = shape("--json", &json);
    has(
        &tests(),
        &["2 2 0", "p99 of lateness", "('failure', 'WORSE: p99 of lateness, fifo:80: +", "p95 of lateness"],
    );

    let same = gate("same", 10, 20.0);
    assert_eq!((same.status.code(), message(&same)["decision"].as_str()), (Some(0), Some("same")));
    has(&tests(), &["2 0 0", "p99 of lateness", "[]"]);
    let better = gate("better", 10, 15.0);
    assert_eq!((better.status.code(), message(&better)["decision"].as_str()), (Some(0), Some("better")));

    let few = gate("few", 2, 40.0);
    let json = message(&few);
    assert_eq!((few.status.code(), json["decision"].as_str()), (Some(4), Some("inconclusive")), "{json:#}");
    assert!(
        json["low"].is_null() && json["pairs"][0]["reasons"][0].as_str().unwrap().contains("too few"),
        "{json:#}"
    );
    has(&tests(), &["2 0 2", "'skipped', 'INCONCLUSIVE"]);
    shape::shape_of(&mut seen, "--json", &json);
    hold("gate", &seen);
    // For people.
    let text = run(["gate", "--baseline"]).arg(&old).arg(root.path().join("worse")).output().unwrap();
    has(&stdout(&text), &["WORSE", "p99 of lateness", "interval", "Found in 19 of 20"]);
}

#[test]
fn runs_after_a_baseline_in_one_go_are_never_worse() {
    let root = tempfile::tempdir().unwrap();
    let old = many(&root.path().join("old"), 0..20, "6.12.43", 20.0);
    let new = many(&root.path().join("new"), 100..110, "6.12.43", 24.0);
    let (code, json) = judged(&old, &new, &[]);
    assert_eq!((code, json["decision"].as_str()), (Some(4), Some("inconclusive")), "{json:#}");
    has(
        &json["pairs"][0]["reasons"].to_string(),
        &["in one go, not alternating with the new runs", "several days"],
    );
}

#[test]
fn where_nothing_ran_nothing_is_the_same() {
    let root = tempfile::tempdir().unwrap();
    let empty = |name: &str, numbers: &mut dyn Iterator<Item = u64>| {
        many_with(&root.path().join(name), numbers, 20.0, "6.12.43", |_, header| {
            header.measures[0].time_column = Some("planned_ns".to_owned());
            header.measures[0].window_ns = Some([1, 2]);
        })
    };
    let old = empty("old", &mut old_numbers());
    let new = empty("new", &mut new_numbers());
    let (code, json) = judged(&old, &new, &[]);
    assert_eq!((code, json["decision"].as_str()), (Some(4), Some("inconclusive")), "{json:#}");
    assert!(json["difference"].is_null(), "{json:#}");
    has(&json["pairs"][0]["reasons"].to_string(), &["nothing to compare"]);
    // The P99 of either lies among releases that never ran; a tenth of them, and nine tenths.
    let never = |name: &str, numbers: &mut dyn Iterator<Item = u64>, skipped: u64| {
        many_with(&root.path().join(name), numbers, 20.0, "6.12.43", move |number, header| {
            header.measures[0].skipped = skipped + number;
        })
    };
    let old = never("few", &mut old_numbers(), 222);
    let (code, json) = judged(&old, &never("all", &mut new_numbers(), 222), &[]);
    assert_eq!(code, Some(4), "{json:#}");
    let (code, json) = judged(&old, &never("most", &mut new_numbers(), 18_000), &["--measure", "lateness"]);
    assert_ne!(code, Some(0), "{json:#}");
    has(&json["pairs"][0]["reasons"].to_string(), &["nothing to compare", "never ran in 10 of 10 new runs"]);
}

#[test]
fn runs_that_fail_or_are_gone_are_no_pass() {
    let root = tempfile::tempdir().unwrap();
    let old = many(&root.path().join("old"), old_numbers(), "6.12.43", 20.0);
    let fail = |name: &str, from: u64| {
        many_with(&root.path().join(name), new_numbers(), 20.0, "6.12.43", move |number, header| {
            if number >= from {
                header.failures = vec!["the robot did not obey".to_owned()];
            }
        })
    };
    let (code, json) = judged(&old, &fail("all", 0), &[]);
    assert_eq!((code, json["decision"].as_str()), (Some(1), Some("worse")), "{json:#}");
    has(&json["reasons"].to_string(), &["10 of 10 new runs failed", "0 of 20 before"]);
    has(&json["left_out"].to_string(), &["it failed", "the robot did not obey"]);
    let junit = root.path().join("gate.xml");
    let output = run(["gate", "--baseline"])
        .arg(&old)
        .arg("--junit")
        .arg(&junit)
        .arg(root.path().join("all"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.find("10 of 10 new runs failed") < text.find("Figures of the runs"), "{text}");
    has(&tests_of(&junit), &["runs [('failure', 'WORSE: 10 of 10"]);
    let (code, json) = judged(&old, &fail("one", 29), &[]);
    assert_eq!((code, json["decision"].as_str()), (Some(4), Some("inconclusive")), "{json:#}");
    has(&json["reasons"].to_string(), &["1 of 10 new runs failed", "may be chance"]);
    // One ended without a seal, one has lost its samples, one what it was. What a kill left of one
    // that was done again is none.
    let new = many(&root.path().join("new"), new_numbers(), "6.12.43", 20.0);
    fs::remove_file(new.join("002/hashes.json")).unwrap();
    let bare = new.join("005");
    fs::remove_file(bare.join("samples/jobs.parquet")).unwrap();
    fs::remove_file(bare.join("hashes.json")).unwrap();
    RunDir::open(&bare).unwrap().seal().unwrap();
    fs::remove_file(new.join("008/run.json")).unwrap();
    fs::create_dir(new.join("011.cut-1")).unwrap();
    let (code, json) = judged(&old, &new, &[]);
    assert_eq!(code, Some(4), "{json:#}");
    assert_eq!(json["pairs"][0]["runs"], serde_json::json!([20, 7]));
    has(&json["reasons"].to_string(), &["3 of 10 new runs"]);
    let left_out = json["left_out"].to_string();
    has(
        &left_out,
        &["candidates 002", "candidates 005: lateness", "008: looks like", "011.cut-1: left by a killed run"],
    );
    // A robot that the new runs have not.
    let robots = |name: &str, numbers: &mut dyn Iterator<Item = u64>, robot: &'static str| {
        many_with(&root.path().join(name), numbers, 20.0, "6.12.43", move |_, header| {
            header.robot = robot.to_owned()
        })
    };
    robots("two", &mut (100..110), "uav");
    let both = many(&root.path().join("two/more"), old_numbers(), "6.12.43", 20.0);
    let (code, json) =
        judged(both.parent().unwrap(), &many(&root.path().join("left"), new_numbers(), "6.12.43", 20.0), &[]);
    assert_eq!(code, Some(4), "{json:#}");
    has(&json["reasons"].to_string(), &["uav", "only in the baseline"]);
}

#[test]
fn runs_that_report_other_measures_than_their_configuration_are_no_pass() {
    let root = tempfile::tempdir().unwrap();
    // Each second new run calls its measure otherwise, or reports one of two.
    let named = |name: &str, numbers: &mut dyn Iterator<Item = u64>, change: &dyn Fn(u64, &mut RunHeader)| {
        many_with(&root.path().join(name), numbers, 20.0, "6.12.43", change)
    };
    let old = named("old", &mut old_numbers(), &|_, _| {});
    let other = named("other", &mut new_numbers(), &|number, header| {
        if number % 2 == 1 {
            header.measures[0].name = "jitter".to_owned();
        }
    });
    let (code, json) = judged(&old, &other, &[]);
    assert_ne!(code, Some(0), "{json:#}");
    has(
        &json["reasons"].to_string(),
        &["5 of 10 new runs failed or have no valid figures", "0 of 20 before"],
    );
    has(&json["left_out"].to_string(), &["candidates 005: lateness: it reports other measures"]);
    let (_, json) = judged(&old, &other, &["--measure", "lateness"]);
    has(&json["reasons"].to_string(), &["5 of 10 new runs failed or have no valid figures"]);
    has(&json["left_out"].to_string(), &["candidates 005: lateness: it reports none"]);
    // A measure that is no time is left out, and its run is not.
    let share = named("share", &mut new_numbers(), &|_, header| {
        header.measures.push(Measure::new("share", "Share", "jobs", "index"));
    });
    let (code, json) = judged(&old, &share, &[]);
    assert_eq!((code, &json["reasons"]), (Some(0), &serde_json::json!([])), "{json:#}");
    has(&json["left_out"].to_string(), &["share: column index is not in nanoseconds"]);
    let two = |header: &mut RunHeader| {
        header.measures[0].judged = true;
        header.measures.push(Measure { name: "response".to_owned(), ..header.measures[0].clone() });
    };
    let old = named("both", &mut old_numbers(), &|_, header| two(header));
    let one = named("one", &mut new_numbers(), &|number, header| {
        two(header);
        header.measures.truncate(if number == 29 { 1 } else { 2 });
    });
    let (code, json) = judged(&old, &one, &[]);
    assert_eq!(code, Some(4), "{json:#}");
    has(&json["reasons"].to_string(), &["1 of 10 new runs", "may be chance"]);
    has(&json["left_out"].to_string(), &["candidates 029: response"]);
    let (code, json) = judged(&old, &named("all", &mut new_numbers(), &|_, header| two(header)), &[]);
    assert_eq!((code, &json["left_out"]), (Some(0), &serde_json::json!([])), "{json:#}");
}

#[test]
fn copies_of_a_run_are_one_run() {
    let root = tempfile::tempdir().unwrap();
    let old = many(&root.path().join("old"), old_numbers(), "6.12.43", 20.0);
    let new = root.path().join("new");
    let first = made(&new, 2, "6.12.43", 30.0);
    for copy in 0..9 {
        let to = new.join(format!("copy{copy}"));
        assert!(Command::new("cp").arg("-r").arg(&first).arg(&to).status().unwrap().success());
    }
    let (code, json) = judged(&old, &new, &[]);
    assert_eq!(json["pairs"][0]["runs"], serde_json::json!([20, 1]), "{json:#}");
    assert_eq!(code, Some(4));
    // Copies are no runs that were lost.
    assert_eq!(json["reasons"], serde_json::json!([]));
    has(&json["left_out"].to_string(), &["it is a copy of"]);
    let history = message(&run(["history", "--json"]).arg(&new).output().unwrap());
    assert_eq!(history["series"][0]["points"].as_array().unwrap().len(), 1);
}

#[test]
fn settings_that_differ_are_said() {
    let root = tempfile::tempdir().unwrap();
    let old = many(&root.path().join("old"), old_numbers(), "6.12.43", 20.0);
    let new = many_with(&root.path().join("new"), new_numbers(), 20.0, "6.12.43", |_, header| {
        header.experiment.factors[0].value = "dl".to_owned();
        header.measures[0].rate_hz = Some(100.0);
        header.measures[0].deadline_ns = Some(30_000);
    });
    let (_, json) = judged(&old, &new, &[]);
    assert_eq!(
        json["setting_differences"],
        serde_json::json!([["policy", ["fifo:80", "dl"]], ["rate of lateness", ["1000 Hz", "100 Hz"]]])
    );
    // With another deadline misses say nothing.
    assert_ne!(json["decision"], "worse", "{json:#}");
    assert!(json["pairs"][0]["runs_with_misses"].is_null(), "{json:#}");
    let text = stdout(&run(["gate", "--baseline"]).arg(&old).arg(&new).output().unwrap());
    has(&text, &["Settings that differ between the sides", "policy: fifo:80 / dl"]);
}

#[test]
fn a_junit_file_is_of_this_gate_and_whole() {
    let root = tempfile::tempdir().unwrap();
    let named = |name: &str, numbers: &mut dyn Iterator<Item = u64>| {
        many_with(&root.path().join(name), numbers, 20.0, "6.12.43", |_, header| {
            header.robot = "arm\u{fffe}".to_owned();
            header.measures[0].name = "late\u{fffe}ness".to_owned();
        })
    };
    let (old, new) = (named("old", &mut old_numbers()), named("new", &mut new_numbers()));
    let junit = root.path().join("gate.xml");
    let gate = |new: &Path| {
        run(["gate", "--baseline"]).arg(&old).arg("--junit").arg(&junit).arg(new).output().unwrap()
    };
    assert_eq!(gate(&new).status.code(), Some(0));
    has(&tests_of(&junit), &["p99 of late ness", "[]"]);
    // A gate that fails leaves no report of an earlier one.
    has(&refusal(&gate(&root.path().join("none"))), &["none"]);
    has(&tests_of(&junit), &["gate [('error', "]);
    // The decision is printed before a file that cannot be written.
    let output =
        run(["gate", "--baseline"]).arg(&old).arg("--junit").arg(root.path()).arg(&new).output().unwrap();
    has(&stdout(&output), &["SAME"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn a_history_of_nothing_has_no_level() {
    let root = tempfile::tempdir().unwrap();
    let history = |runs: &Path| {
        let json = message(&run(["history", "--json"]).arg(runs).output().unwrap());
        (json, stdout(&run(["history"]).arg(runs).output().unwrap()))
    };
    let nothing = many_with(&root.path().join("nothing"), 0..20, 20.0, "6.12.43", |number, header| {
        header.measures[0].time_column = Some("planned_ns".to_owned());
        header.measures[0].window_ns = Some([1, 2]);
        header.measures[0].skipped = number / 10 * 100;
    });
    let (json, text) = history(&nothing);
    assert_eq!(
        (&json["change_points"], &json["first_bad"]),
        (&serde_json::json!([]), &Value::Null),
        "{json:#}"
    );
    has(&text, &["too few to judge"]);
    let few = many(&root.path().join("few"), 0..5, "6.12.43", 20.0);
    has(&history(&few).1, &["5 runs: too few to judge"]);
    let from = |begin: u64| {
        many_with(&root.path().join(begin.to_string()), 0..20, 20.0, "6.12.43", move |number, header| {
            header.measures[0].skipped = if number < begin { 0 } else { 500 };
        })
    };
    let (json, text) = history(&from(5));
    assert_eq!(json["change_points"], serde_json::json!([]), "{json:#}");
    has(&text, &["20 runs: too few to judge"]);
    // From the tenth on the P99 never came: a change, and no figure is made up for it.
    let (json, _) = history(&from(10));
    let change = &json["change_points"][0];
    assert!(change["worse"] == true && change["before_ns"].is_number(), "{json:#}");
    assert!(
        change["after_ns"].is_null() && change["difference"].is_null() && change["high"].is_null(),
        "{json:#}"
    );
}

#[test]
fn a_gate_refuses_in_a_sentence() {
    let root = tempfile::tempdir().unwrap();
    let old = many(&root.path().join("old"), 0..3, "6.12.43", 20.0);
    let gate = |new: &Path, more: &[&str]| {
        run(["gate", "--baseline"]).arg(&old).args(more).arg(new).output().unwrap()
    };
    has(&refusal(&gate(&root.path().join("none"), &[])), &["none"]);
    let other = many(&root.path().join("other"), 10..13, "6.13.1", 20.0);
    has(&refusal(&gate(&other, &[])), &["kernel: 6.12.43 and 6.13.1", "--across-machines"]);
    assert_eq!(gate(&other, &["--across-machines"]).status.code(), Some(4));
    has(&refusal(&gate(&other, &["--across-machines", "--measure", "jitter"])), &["jitter", "lateness"]);
    has(&refusal(&gate(&old, &[])), &["baseline: none of 3 runs can be used", "it is one of the new runs"]);
    // Changed after the seal, not sealed: named, and not in the figures.
    let new = many(&root.path().join("new"), 20..24, "6.12.43", 20.0);
    fs::write(new.join("020/run.json"), fs::read_to_string(new.join("020/run.json")).unwrap() + " ").unwrap();
    fs::remove_file(new.join("021/hashes.json")).unwrap();
    let output = gate(&new, &["--json"]);
    let json = message(&output);
    assert_eq!(json["pairs"][0]["runs"][1], 2, "{json:#}");
    let left_out = json["left_out"].to_string();
    has(
        &left_out,
        &[
            "020: files were changed after the run was sealed",
            "021: the run says that it finished, but it has no seal",
        ],
    );
    has(&refusal(&run(["gate", "x"]).output().unwrap()), &["--baseline"]);
    has(&refusal(&gate(&new, &["--tolerance", "much"])), &["0.1% to 1000%"]);
}

#[test]
fn runs_of_a_newer_takt_are_reported_by_whoever_reads_runs() {
    let root = tempfile::tempdir().unwrap();
    let (old, new) = (many(&root.path().join("old"), 0..2, "6.12.43", 20.0), made(root.path(), 9, "x", 20.0));
    let text = fs::read_to_string(new.join(RUN_FILE)).unwrap();
    fs::write(new.join(RUN_FILE), text.replacen("\"format\": 2", "\"format\": 3", 1)).unwrap();
    RunDir::open(&new).unwrap().seal().unwrap();
    let (old, new) = (old.to_str().unwrap(), new.to_str().unwrap());
    let out = root.path().join("out");
    let out = out.to_str().unwrap();
    for asked in [
        &["report", new, "--out", out][..],
        &["compare", old, new],
        &["export", "--format", "mcap", "--out", out, new],
        &["gate", "--baseline", old, new],
        &["gate", "--baseline", new, old],
        &["store", "put", out, new],
    ] {
        let output = run(asked).output().unwrap();
        let message = stderr(&output);
        assert_ne!(output.status.code(), Some(0), "{asked:?}: {message}");
        has(&message, &["run.json: has layout 3", "up to 2"]);
        assert!(!message.contains("panicked"), "{message}");
    }
}

/// Prints the places of the changes that Otava finds in a series of numbers.
const OTAVA: &str = "
import sys, json
from otava.analysis import compute_change_points
series = json.load(open(sys.argv[1]))
print(json.dumps([int(c.index) for c in compute_change_points(series, window_len=30, max_pvalue=0.001)[0]]))
";

#[test]
fn a_history_names_the_first_bad_kernel_as_otava_does() {
    let root = tempfile::tempdir().unwrap();
    let runs = root.path().join("runs");
    // Kernels were not measured in their order.
    many(&runs, 0..12, "6.12.9", 20.0);
    many(&runs, 12..24, "6.12.43", 30.0);
    many(&runs, 24..36, "6.12.10", 20.0);
    many(&runs, 36..48, "6.12.50", 30.0);
    let picture = root.path().join("history.svg");
    let mut command = run(["history", "--measure", "lateness", "--by", "kernel", "--json", "--picture"]);
    let json = message(&command.arg(&picture).arg(&runs).output().unwrap());
    assert_eq!(json["first_bad"], "6.12.43", "{json:#}");
    let changes = json["change_points"].as_array().unwrap();
    assert_eq!(changes.len(), 1, "{json:#}");
    let change = &changes[0];
    assert_eq!((change["at"].as_str(), change["after"].as_str()), (Some("6.12.43"), Some("6.12.10")));
    assert!(change["worse"] == true && change["lasting"] == true, "{change:#}");
    assert!((change["difference"].as_f64().unwrap() - 0.5).abs() < 0.1, "{change:#}");
    let svg = fs::read_to_string(&picture).unwrap();
    has(&svg, &["<svg", "6.12.9", "6.12.43", "p99 of Wake-up lateness"]);
    // By day the same runs come and go twice.
    let by_day = message(&run(["history", "--json"]).arg(&runs).output().unwrap());
    let worse: Vec<bool> =
        by_day["change_points"].as_array().unwrap().iter().map(|c| c["worse"].as_bool().unwrap()).collect();
    assert_eq!(worse, [true, false, true], "{by_day:#}");
    let text = stdout(&run(["history", "--by", "kernel"]).arg(&runs).output().unwrap());
    has(&text, &["worse since kernel 6.12.43", "48 runs, 1 change of level"]);
    has(
        &refusal(&run(["history", "--by", "colour"]).arg(&runs).output().unwrap()),
        &["no run states its colour"],
    );

    if missing("python3 has not Apache Otava", has_module("otava.analysis")) {
        return;
    }
    for history in [&json, &by_day] {
        let points = history["series"][0]["points"].as_array().unwrap();
        let numbers: Vec<&Value> = points.iter().map(|p| &p["ns"]).collect();
        let file = root.path().join("series.json");
        fs::write(&file, serde_json::to_string(&numbers).unwrap()).unwrap();
        let output = python(OTAVA, &[&file]);
        let theirs: Vec<usize> =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(&output)));
        let runs: Vec<&str> = points.iter().map(|p| p["run"].as_str().unwrap()).collect();
        let changes = history["change_points"].as_array().unwrap();
        let ours: Vec<usize> =
            changes.iter().map(|c| runs.iter().position(|run| *run == c["run"]).unwrap()).collect();
        assert_eq!(ours.len(), theirs.len(), "{ours:?} {theirs:?}");
        assert!(ours.iter().zip(&theirs).all(|(a, b)| a.abs_diff(*b) <= 1), "{ours:?} {theirs:?}");
    }
}

/// Reads an MCAP file with its makers' library and holds it against the sealed samples: counts,
/// times, values, schemas.
const MCAP: &str = "
import sys, json, math, pathlib, collections
import pyarrow.parquet as parquet
from mcap.reader import make_reader
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
out, run = sys.argv[1], pathlib.Path(sys.argv[2])
header = json.load(open(run / 'run.json'))
types = {}
def decoded(schema, data):
    if schema.id not in types:
        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(schema.data).file:
            pool.Add(file)
        types[schema.id] = message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.name))
    return types[schema.id].FromString(data)
counts, rows, logs = collections.Counter(), collections.defaultdict(list), []
with open(out, 'rb') as stream:
    reader = make_reader(stream, validate_crcs=True)
    summary = reader.get_summary()
    assert [a.name for a in reader.iter_attachments()] == ['run.json', 'summary.json'], 'attachments'
    for schema, channel, message in reader.iter_messages():
        assert channel.message_encoding == 'protobuf' and schema.encoding == 'protobuf', channel
        value = decoded(schema, message.data)
        counts[channel.topic] += 1
        if channel.topic == '/causes':
            assert schema.name == 'foxglove.Log', schema.name
            assert value.timestamp.ToNanoseconds() == message.log_time and value.level >= 2
            logs.append({'message': value.message})
            continue
        value = {field.name: content for field, content in value.ListFields()}
        rows[channel.topic].append((message.log_time, message.sequence, value))
assert summary.statistics.message_count == sum(counts.values())
tables = {p.stem: parquet.read_table(p).to_pydict() for p in (run / 'samples').glob('*.parquet')}
for name, table in tables.items():
    have = len(next(iter(table.values()), []))
    got = [value for _, _, value in sorted(rows.get('/samples/' + name, []), key=lambda r: r[1])]
    assert len(got) == have, (name, len(got), have)
    for index, value in enumerate(got):
        for column, of in table.items():
            none = of[index] in (None, '') or isinstance(of[index], float) and not math.isfinite(of[index])
            assert column not in value if none else value[column] == of[index], (name, index, column, of[index])
for measure in header['measures']:
    if measure['file'] not in tables:
        continue
    table = tables[measure['file']]
    if not table:
        continue
    since, time, window = measure.get('since_column'), measure.get('time_column'), measure.get('window_ns')
    expected = []
    for i, to in enumerate(table[measure['column']]):
        at = table[time][i] if time else 0
        if window is None or window[0] <= at < window[1]:
            expected.append((at, max(0, to - table[since][i]) if since else to))
    got = [(at, value['ns']) for at, _, value in sorted(rows['/measures/' + measure['name']], key=lambda r: r[1])]
    assert got == expected, (measure['name'], len(got), len(expected))
print(json.dumps({'counts': counts, 'logs': [log['message'] for log in logs], 'columns': {n: list(t) for n, t in tables.items()}}))
";

/// Runs a shipped robot for a moment and holds its MCAP against its samples. Returns what the
/// reader saw.
fn exported(robot: &str, changes: &[(&str, &str)]) -> Option<Value> {
    let folder = tempfile::tempdir().unwrap();
    let mut text = fs::read_to_string(root().join("robots").join(robot).with_extension("toml")).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{robot} has no {from}");
        text = text.replacen(from, to, 1);
    }
    let file = folder.path().join("robot.toml");
    fs::write(&file, text).unwrap();
    let mut command =
        run(["run", file.to_str().unwrap(), "--seconds", "1", "--view", "none", "--json", "--runs"]);
    let output = command.arg(folder.path().join("runs")).output().unwrap();
    let run_dir = PathBuf::from(message(&output)["run_dir"].as_str().unwrap());
    let out = folder.path().join("run.mcap");
    let output = run(["export", "--format", "mcap", "--out"]).arg(&out).arg(&run_dir).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    has(&stdout(&output), &["/samples/"]);
    if missing("python3 has not mcap and pyarrow", has_module("mcap.reader, pyarrow.parquet")) {
        return None;
    }
    let output = python(MCAP, &[&out, &run_dir]);
    Some(
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{robot}: {e}: {}", stderr(&output))),
    )
}

#[test]
#[ignore = "takes 30 s"]
fn every_robots_run_is_mcap_that_its_makers_read() {
    let _machine = alone();
    for (robot, changes, topics, columns) in [
        // A deadline that nothing meets: misses are reported.
        (
            "cyclic",
            vec![("fifo:80\"", "other:0\"\ndeadline_ms = 0.001")],
            vec!["/measures/lateness", "/measures/response"],
            vec![],
        ),
        (
            "uav",
            vec![],
            vec!["/measures/lateness", "/measures/execution"],
            vec![("attitude", "position_error_m")],
        ),
        (
            "daq",
            vec![("kind = \"udp\"", "kind = \"udp\"\ndrop_every = 50")],
            vec!["/measures/latency"],
            vec![("edges", "level_v")],
        ),
        ("servo", vec![], vec!["/measures/packet-to-command"], vec![("cycles", "following_rad")]),
        ("synthetic", vec![], vec!["/measures/reaction"], vec![("ssm_jobs", "separation_m")]),
        ("humanoid", vec![], vec!["/measures/lateness"], vec![("cycles", "late_frames")]),
        ("turtlebot", vec![("policy = \"takt\"", "policy = \"cfs\"\nnodes = \"processes\"")], vec![], vec![]),
    ] {
        let Some(seen) = exported(robot, &changes) else { return };
        for topic in topics {
            assert!(
                seen["counts"][topic].as_u64().is_some_and(|count| count > 0),
                "{robot}: {topic}: {}",
                seen["counts"]
            );
        }
        for (file, column) in columns {
            assert!(seen["columns"][file].to_string().contains(column), "{robot}: {}", seen["columns"]);
        }
    }
}

#[test]
fn measures_that_are_spelled_alike_have_topics_of_their_own() {
    let root = tempfile::tempdir().unwrap();
    let path = made(root.path(), 1, "6.12.43", 20.0);
    let mut header: RunHeader = serde_json::from_value(takt::read_json(&path.join("run.json"))).unwrap();
    let of = |name: &str| Measure { name: name.to_owned(), ..header.measures[0].clone() };
    header.measures = vec![of("a/b"), of("a b")];
    fs::write(path.join("run.json"), serde_json::to_string(&header).unwrap()).unwrap();
    fs::remove_file(path.join("hashes.json")).unwrap();
    RunDir::open(&path).unwrap().seal().unwrap();
    let out = root.path().join("run.mcap");
    let output = run(["export", "--format", "mcap", "--out"]).arg(&out).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let topics: Vec<&str> = text.lines().filter(|line| line.contains("/measures/")).collect();
    assert_eq!(topics.len(), 2, "{text}");
    has(&text, &["/measures/a_b", "/measures/a_b_2"]);
    assert!(topics.iter().all(|line| line.contains("2000")), "{text}");
}

#[test]
fn causes_are_log_messages_at_their_time() {
    let root = tempfile::tempdir().unwrap();
    let path = made(root.path(), 1, "6.12.43", 20.0);
    // As `takt trace` leaves it, and a deadline that some miss.
    let mut header: RunHeader = serde_json::from_value(takt::read_json(&path.join("run.json"))).unwrap();
    header.measures[0].deadline_ns = Some(30_000);
    header.failures = vec!["the link was lost".to_owned()];
    fs::write(path.join("run.json"), serde_json::to_string(&header).unwrap()).unwrap();
    let trace =
        r#"{"windows":[{"index":7,"lateness_us":44.5,"cause":"higher_priority","who":"kworker/0:1"}]}"#;
    fs::write(path.join("trace.json"), trace).unwrap();
    fs::write(path.join("summary.json"), "{}").unwrap();
    let export =
        |out: &Path| run(["export", "--format", "mcap", "--out"]).arg(out).arg(&path).output().unwrap();
    let out = root.path().join("run.mcap");
    // It was changed after its seal.
    has(&refusal(&export(&out)), &["files were changed after the run was sealed"]);
    assert!(!out.exists(), "a refusal leaves a file");
    fs::remove_file(path.join("hashes.json")).unwrap();
    RunDir::open(&path).unwrap().seal().unwrap();
    let output = export(&out);
    assert!(output.status.success(), "{}", stderr(&output));
    has(&refusal(&run(["export", "--format", "mcap"]).arg(&path).output().unwrap()), &["--out FILE.mcap"]);
    if missing("python3 has not mcap and pyarrow", has_module("mcap.reader, pyarrow.parquet")) {
        return;
    }
    let output = python(MCAP, &[&out, &path]);
    let seen: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(&output)));
    assert_eq!(seen["counts"]["/samples/jobs"], 2000);
    let logs = seen["logs"].to_string();
    let late = "release 7: thread of higher or equal priority: kworker/0:1, 44.5 µs late";
    has(&logs, &["the link was lost", late, "lateness: 3", "the deadline is 30 µs"]);
}
