//! What users and their programs build on, frozen: the keys of `run.json` and `summary.json` of each robot, the columns of its samples,
//! the shape of what commands print with `--json`, exit codes. Values are no part of it.
//!
//! A file under `golden/` has a line for each place of a JSON value, with the types that were seen there. It changes on purpose only:
//!
//! ```text
//! TAKT_GOLDEN=renew cargo test -p takt --test golden
//! ```
//!
//! adds what is new and takes away what is gone; then read the difference. What is there only where something happened, or where the
//! machine has it, is in [`OCCASIONAL`], each with its reason; a line that begins with `?` may be absent in that file alone, for the
//! reason behind it, and a renewal leaves it alone.

#![allow(clippy::unwrap_used)]

mod takt;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;

use takt::{alone, missing, read_json, root, stderr, takt as run};

/// Types by place. `run.measures[].name` is a key of an object in an array.
type Shape = BTreeMap<String, BTreeSet<String>>;

fn add(shape: &mut Shape, place: &str, kind: &str) {
    shape.entry(place.to_owned()).or_default().insert(kind.to_owned());
}

/// The shape of a JSON value.
fn shape_of(shape: &mut Shape, place: &str, value: &Value) {
    match value {
        Value::Null => add(shape, place, "null"),
        Value::Bool(_) => add(shape, place, "bool"),
        Value::Number(_) => add(shape, place, "number"),
        Value::String(_) => add(shape, place, "string"),
        Value::Array(items) => {
            add(shape, place, "array");
            items.iter().for_each(|item| shape_of(shape, &format!("{place}[]"), item));
        }
        Value::Object(fields) => {
            add(shape, place, "object");
            fields.iter().for_each(|(key, field)| shape_of(shape, &format!("{place}.{key}"), field));
        }
    }
}

/// Columns of a run's sealed samples, with their types; names carry the units.
fn columns(shape: &mut Shape, run_dir: &Path) {
    for entry in fs::read_dir(run_dir.join("samples")).unwrap() {
        let path = entry.unwrap().path();
        let list = format!("samples.{}", path.file_stem().unwrap().to_str().unwrap());
        add(shape, &list, "array");
        let reader = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
        for column in reader.metadata().file_metadata().schema_descr().columns() {
            let kind = format!("{:?}", column.physical_type()).to_lowercase();
            add(shape, &format!("{list}[]"), "object");
            add(shape, &format!("{list}[].{}", column.name()), &kind);
        }
    }
}

/// What a run left: `run.json`, `summary.json`, samples.
fn run_shape(run_dir: &Path) -> Shape {
    let mut shape = Shape::new();
    for name in ["run", "summary"] {
        shape_of(&mut shape, name, &read_json(&run_dir.join(format!("{name}.json"))));
    }
    columns(&mut shape, run_dir);
    shape
}

#[derive(Clone, Default)]
struct Line {
    kinds: BTreeSet<String>,
    /// Why it may be absent.
    optional: Option<String>,
}

/// Keys that are there, or whose own keys are, only where something happened or the machine has it: at most their types are frozen.
const OCCASIONAL: [(&str, &str); 24] = [
    ("failures", "only of a run that failed"),
    ("doubts", "only of a run that is in doubt"),
    ("excused", "only of a measure that is not judged"),
    ("longest_miss_run", "only where something was missed"),
    ("measure_more_samples", "only of an INCONCLUSIVE verdict"),
    ("measure_more_s", "likewise"),
    ("misses_per_job_below", "only of a PASS"),
    ("misses_per_hour", "only where it is claimed"),
    ("misses_per_job", "likewise"),
    ("virtual_machine", "only in one of ours"),
    ("policy", "its keys are those of the policy that the kernel granted"),
    ("lights", "keyed by what was shown"),
    ("stop_causes", "keyed by what happened"),
    ("stops", "likewise"),
    ("events", "likewise"),
    ("activations", "likewise"),
    ("unmatched", "likewise"),
    ("switches", "keyed by how many there were"),
    ("health", "keyed by what happened to frames"),
    ("measured", "the doctor's figures: no PSI, no cpufreq, no clock source to compare with, other CPUs"),
    ("changes", "only where the doctor changed something"),
    ("power", "no cpufreq or no cpuidle in a virtual machine"),
    ("detectors", "keyed by what found somebody"),
    ("parts", "keyed by what happened"),
];

/// Whether a place is such a key, or below one.
fn is_occasional(place: &str) -> bool {
    let name = |place: &str| {
        let last = place.rsplit('.').next().unwrap_or(place);
        OCCASIONAL.iter().any(|(key, _)| *key == last.trim_end_matches("[]"))
    };
    name(place) || above(place).any(name)
}

/// The lines of a golden file.
fn parse(text: &str) -> BTreeMap<String, Line> {
    let mut lines = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (line, optional) = match line.strip_prefix("? ") {
            Some(rest) => {
                let (rest, why) = rest.split_once("  # ").expect("an optional line names its reason");
                (rest, Some(why.to_owned()))
            }
            None => (line, None),
        };
        let (place, kinds) = line.rsplit_once("  ").unwrap_or_else(|| panic!("{line}: no type"));
        let kinds = kinds.split('|').map(str::to_owned).collect();
        lines.insert(place.to_owned(), Line { kinds, optional });
    }
    lines
}

/// The places above one, nearest first.
fn above(place: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(place), |place| {
        if let Some(list) = place.strip_suffix("[]") {
            return Some(list);
        }
        place.rfind(['.', '[']).map(|at| if place[at..].starts_with('.') { &place[..at] } else { place })
    })
    .skip(1)
}

/// Whether something above it explains why a place is not there: an empty list, null, something that may be absent.
fn is_excused(place: &str, golden: &BTreeMap<String, Line>, seen: &Shape) -> bool {
    above(place).any(|above| {
        let kinds = seen.get(above);
        let gone = kinds.is_some_and(|kinds| kinds.contains("null"));
        let empty = kinds.is_some_and(|kinds| kinds.contains("array"))
            && place.starts_with(&format!("{above}[]"))
            && !seen.contains_key(&format!("{above}[]"));
        let optional = golden.get(above).is_some_and(|line| line.optional.is_some()) && kinds.is_none();
        gone || empty || optional
    })
}

/// Differences between what is frozen and what was seen.
fn differences(golden: &BTreeMap<String, Line>, seen: &Shape) -> Vec<String> {
    let mut told = Vec::new();
    for (place, kinds) in seen {
        // Only null was ever seen: nothing is promised of what is there when something is.
        let open =
            |place: &str| golden.get(place).is_some_and(|line| line.kinds.iter().all(|kind| kind == "null"));
        if open(place) || above(place).any(open) {
            continue;
        }
        // A list that was empty whenever this was renewed, likewise.
        let unseen = |list: &str| {
            golden.get(list).is_some_and(|line| line.kinds.contains("array"))
                && !golden.contains_key(&format!("{list}[]"))
                && place.starts_with(&format!("{list}[]"))
        };
        if above(place).any(unseen) {
            continue;
        }
        match golden.get(place) {
            None if is_occasional(place) => {}
            None => told.push(format!("{place} is new")),
            // A figure that could not be had is null anywhere.
            Some(line) => told.extend(
                kinds
                    .iter()
                    .filter(|kind| *kind != "null" && !line.kinds.contains(*kind))
                    .map(|kind| format!("{place} is {kind}; it was {:?}", line.kinds)),
            ),
        }
    }
    for (place, line) in golden {
        let may_be_absent = line.optional.is_some() || is_occasional(place);
        if !seen.contains_key(place) && !may_be_absent && !is_excused(place, golden, seen) {
            told.push(format!("{place} is gone"));
        }
    }
    told
}

/// The golden file after a renewal.
fn renewed(golden: &BTreeMap<String, Line>, seen: &Shape) -> String {
    let mut all = golden.clone();
    all.retain(|place, line| {
        let may_be_absent = line.optional.is_some() || is_occasional(place);
        may_be_absent || seen.contains_key(place) || is_excused(place, golden, seen)
    });
    for (place, kinds) in seen {
        all.entry(place.clone()).or_default().kinds.extend(kinds.iter().cloned());
    }
    let mut text =
        String::from("# Renewed by: TAKT_GOLDEN=renew cargo test -p takt --test golden. See golden.rs.\n");
    for (place, Line { kinds, optional }) in &all {
        let kinds: Vec<_> = kinds.iter().map(String::as_str).collect();
        let kinds = kinds.join("|");
        match optional {
            Some(why) => writeln!(text, "? {place}  {kinds}  # {why}").unwrap(),
            None => writeln!(text, "{place}  {kinds}").unwrap(),
        }
    }
    text
}

/// Holds what was seen against the golden file `name`, or renews it.
#[track_caller]
fn hold(name: &str, seen: &Shape) {
    let path = root().join("crates/takt/tests/golden").join(format!("{name}.txt"));
    let golden = parse(&fs::read_to_string(&path).unwrap_or_default());
    if std::env::var_os("TAKT_GOLDEN").is_some_and(|what| what == "renew") {
        fs::write(&path, renewed(&golden, seen)).unwrap();
        return;
    }
    let told = differences(&golden, seen);
    assert!(
        told.is_empty(),
        "{name}: what users build on has changed:\n  {}\nIf that is meant: TAKT_GOLDEN=renew cargo test -p takt --test golden, \
         and a word in CHANGELOG.md",
        told.join("\n  ")
    );
}

/// Standard output as JSON, whatever the verdict.
#[track_caller]
fn answer(output: &Output) -> Value {
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

fn shape(name: &str, value: &Value) -> Shape {
    let mut shape = Shape::new();
    shape_of(&mut shape, name, value);
    shape
}

/// Runs a robot for a moment, and holds what it prints and leaves. Returns its run directory.
fn robot(name: &str, file: &str, seconds: &str, runs: &Path) -> PathBuf {
    let file = root().join("robots").join(file);
    let mut command = run(["run", file.to_str().unwrap(), "--seconds", seconds, "--view", "none", "--json"]);
    let output = command.arg("--runs").arg(runs).output().unwrap();
    let said = answer(&output);
    let run_dir = PathBuf::from(said["run_dir"].as_str().unwrap());
    let mut seen = shape("--json", &said);
    seen.extend(run_shape(&run_dir));
    hold(name, &seen);
    run_dir
}

#[test]
fn the_bare_task_and_what_is_made_of_runs() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let first = robot("cyclic", "cyclic.toml", "0.5", runs.path());
    let second = robot("cyclic", "cyclic.toml", "0.5", runs.path());
    let output = run(["compare", "--json"]).args([&first, &second]).output().unwrap();
    hold("compare", &shape("--json", &answer(&output)));
    let campaign = runs.path().join("campaign.toml");
    fs::write(&campaign, "name = 'golden'\nabout = 'two runs'\nrobot = 'cyclic'\nseconds = 0.3\nrepetitions = 1\n[[factor]]\nname = 'policy'\nvalues = ['other:0', 'other:5']\n").unwrap();
    let mut command = run(["campaign", "run", campaign.to_str().unwrap(), "--json", "--runs"]);
    hold("campaign", &shape("--json", &answer(&command.arg(runs.path()).output().unwrap())));
}

#[test]
fn the_quadrotor() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    robot("uav", "uav.toml", "0.5", runs.path());
    let bench = ["bench", "uav", "--iterations", "50", "--stress", "off", "--policies", "other:0", "--json"];
    let output = run(bench).arg("--runs").arg(runs.path()).output().unwrap();
    hold("bench-uav", &shape("--json", &answer(&output)));
}

#[test]
fn the_daq_loop() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    robot("daq", "daq.toml", "0.5", runs.path());
    let bench = ["bench", "daq", "--seconds", "0.2", "--json", "--runs"];
    hold("bench-daq", &shape("--json", &answer(&run(bench).arg(runs.path()).output().unwrap())));
}

#[test]
fn the_humanoid() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let bench =
        ["bench", "humanoid", "--devices", "8", "--seconds", "1", "--wire", "in-process", "--untraced"];
    let output = run(bench).args(["--json", "--runs"]).arg(runs.path()).output().unwrap();
    let said = answer(&output);
    let run_dir = PathBuf::from(said["run"]["run_dir"].as_str().unwrap());
    let mut seen = shape("--json", &said);
    seen.extend(run_shape(&run_dir));
    hold("humanoid", &seen);
}

#[test]
fn the_cell() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    robot("cell", "synthetic.toml", "2", runs.path());
}

#[test]
fn the_doctor() {
    let _machine = alone();
    let output = run(["doctor", "--json", "--seconds", "0"]).output().unwrap();
    hold("doctor", &shape("--json", &answer(&output)));
}

#[test]
fn a_trace() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let output = run(["trace", "cyclic", "--seconds", "0.5", "--json", "--runs"]).arg(runs.path()).output();
    let output = output.unwrap();
    if missing("the kernel cannot be traced here", output.status.success()) {
        return;
    }
    hold("trace", &shape("--json", &answer(&output)));
}

#[test]
fn exit_codes() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let code = |command: &mut Command| command.output().unwrap().status.code();
    let shipped = root().join("robots/uav.toml");
    assert_eq!(code(run(["check"]).arg(&shipped)), Some(0));
    let broken = runs.path().join("broken.toml");
    fs::write(&broken, "robot = 'uav'\nno_such_key = 1\n").unwrap();
    for command in [["check"], ["run"], ["report"]] {
        assert_eq!(code(run(command).arg(&broken)), Some(2), "{command:?} of what is broken");
    }
    for command in [
        &["run", "/nonexistent.toml"][..],
        &["compare", "/nonexistent"],
        &["export", "/nonexistent"],
        &["no-such-command"],
        &["campaign", "run", "/nonexistent.toml"],
        &["ethercat", "analyse", "/nonexistent.pcapng"],
        &["manage", "/nonexistent.toml"],
        &["trace", "/nonexistent.toml"],
    ] {
        assert_eq!(code(&mut run(command)), Some(2), "{command:?}");
    }
    // Half a second of evidence cannot show what is claimed: no PASS.
    let claimed = runs.path().join("claimed.toml");
    let text = fs::read_to_string(root().join("robots/cyclic.toml")).unwrap();
    fs::write(&claimed, text + "\n[verdict]\nmisses_per_hour = 1e-6\n").unwrap();
    let seconds = ["--seconds", "0.3", "--runs"];
    assert_eq!(code(run(["run"]).arg(&claimed).args(seconds).arg(runs.path())), Some(0));
    assert_eq!(code(run(["run", "--check"]).arg(&claimed).args(seconds).arg(runs.path())), Some(1));
}

#[test]
fn a_change_is_told_and_what_depends_on_the_machine_is_not() {
    let golden = parse(
        "a  object\na.list  array\na.list[]  object\na.list[].key  number\na.old  string\n? a.psi  object  # no PSI\n\
                        ? a.psi.full  number  # no PSI\na.unknown  null\n",
    );
    let seen = |value: Value| shape("a", &value);
    let told = |value: Value| differences(&golden, &seen(value));
    let whole = serde_json::json!({"list": [{"key": 1}], "old": "x", "unknown": null});
    assert_eq!(told(whole.clone()), [""; 0]);
    assert_eq!(told(serde_json::json!({"list": [], "old": null, "unknown": {"any": 1}})), [""; 0]);
    let psi = serde_json::json!({"list": [], "old": "x", "unknown": 1, "psi": {"full": 1}});
    assert_eq!(told(psi), [""; 0]);
    let changed = serde_json::json!({"list": [{"key": "1", "more": 1}], "unknown": null});
    let said = told(changed.clone());
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].starts_with("a.list[].key is string") && said[1] == "a.list[].more is new", "{said:?}");
    assert_eq!(said[2], "a.old is gone");
    // A renewal is what the next comparison holds against.
    let text = renewed(&golden, &seen(changed.clone()));
    assert_eq!(differences(&parse(&text), &seen(changed)), [""; 0]);
    assert!(text.contains("? a.psi.full  number  # no PSI") && !text.contains("a.old"), "{text}");
}
