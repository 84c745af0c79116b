//! `takt campaign`: every run of the matrix, whatever becomes of it, and what a kill leaves.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use takt::{
    Beside, Workspace, alone, folders, has, json, missing, partial_json, read_json, refusal, stderr, stdout,
    takt as run, wait_for,
};

/// A campaign of the bare cyclic task, short and without privileges.
const SMALL: &str = r#"
name = "small"
robot = "cyclic"
repetitions = 2
order = "random"
seed = 7
seconds = 0.3

[set]
rate_hz = 500
policy = "other:0"
lock_memory = "off"

[[factor]]
name = "work_us"
values = [0, 100]

[[factor]]
name = "noise"
values = [0, 2]
"#;

fn factors(row: &Value) -> String {
    let words = row["factors"].as_array().unwrap().iter().map(|f| format!("{}={}", f["name"], f["value"]));
    words.collect::<Vec<_>>().join(" ").replace('"', "")
}

#[test]
fn every_configuration_has_its_row_and_its_run_directories() {
    let _machine = alone();
    let workspace = Workspace::new(SMALL);
    let table = json(&workspace.command(&["--json"]).output().unwrap());
    let rows = table["rows"].as_array().unwrap();
    let names: Vec<String> = rows.iter().map(factors).collect();
    assert_eq!(
        names,
        ["work_us=0 noise=0", "work_us=0 noise=2", "work_us=100 noise=0", "work_us=100 noise=2"]
    );
    for row in rows {
        assert_eq!((&row["measured"], &row["planned"]), (&2.into(), &2.into()), "{row}");
        assert_eq!(row["measure"], "lateness");
        assert!(row["us"]["count"].as_u64() > Some(0), "{row}");
        assert_eq!(row["problems"], serde_json::json!([]), "{row}");
        for dir in row["run_dirs"].as_array().unwrap() {
            let dir = Path::new(dir.as_str().unwrap());
            let header = read_json(&dir.join("run.json"));
            assert_eq!(
                header["asked"]["work_us"].as_f64().unwrap(),
                if names_work(row) { 100.0 } else { 0.0 }
            );
            assert_eq!(header["load"].is_null(), row["factors"][1]["value"] == "0", "{header}");
            assert!(dir.join("samples/cyclic.parquet").is_file() && dir.join("hashes.json").is_file());
            assert!(!dir.join("scratch").exists());
        }
    }
    assert_eq!(table["machine_differences"], serde_json::json!([]));
    assert_eq!(read_json(&Path::new(table["dir"].as_str().unwrap()).join("table.json")), table);
}

fn names_work(row: &Value) -> bool {
    row["factors"][0]["value"] == "100"
}

#[test]
fn a_killed_campaign_goes_on_where_it_stopped() {
    let _machine = alone();
    let workspace = Workspace::new(
        &SMALL.replace("seconds = 0.3", "seconds = 1.0").replace("order = \"random\"", "order = \"given\""),
    );
    let mut killed = Beside::start(workspace.command(&[]));
    let dir = wait_for("the campaign", || folders(&workspace.runs()).into_iter().next());
    let mut runs = wait_for("the second run", || {
        assert!(killed.runs(), "{}", killed.output("stderr"));
        let runs: Vec<PathBuf> = folders(&dir).into_iter().filter(|d| d.join("run.json").is_file()).collect();
        (runs.len() == 2).then_some(runs)
    });
    killed.signal(Signal::KILL);
    killed.end();
    runs.sort_by_key(|run| fs::metadata(run.join("samples")).unwrap().created().unwrap());
    let (first, second) = (&runs[0], &runs[1]);
    let seal = fs::read(first.join("hashes.json")).unwrap();
    assert!(!second.join("hashes.json").exists(), "a cut run looks whole");

    let resumed = run(["campaign", "resume", dir.to_str().unwrap(), "--json"]).output().unwrap();
    let table = json(&resumed);
    assert!(table["rows"].as_array().unwrap().iter().all(|row| row["measured"] == 2), "{table}");
    assert!(stderr(&resumed).contains("measured before"), "{}", stderr(&resumed));
    assert_eq!(fs::read(first.join("hashes.json")).unwrap(), seal, "a finished run was made again");
    let name = second.file_name().unwrap().to_str().unwrap();
    assert!(dir.join(format!("{name}.cut1")).is_dir(), "what the kill left is gone");
    assert!(second.join("hashes.json").is_file());

    // Where the machine is another one, it does not go on unasked.
    let path = first.join("run.json");
    let other = fs::read_to_string(&path).unwrap().replacen(
        "\"clock_source\":",
        "\"clock_source\": \"sundial\", \"_\":",
        1,
    );
    let version = format!("\"takt\": \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(other.contains(&version), "{other}");
    fs::write(&path, other.replacen(&version, "\"takt\": \"0.0.9\"", 1)).unwrap();
    // As if it had been made there: a run whose files were changed would be left out.
    takt_rundir::RunDir::open(first).unwrap().seal().unwrap();
    let refused = run(["campaign", "resume", dir.to_str().unwrap()]).output().unwrap();
    let message = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    has(&message, &["clock_source was sundial", "takt was 0.0.9", "--any-machine"]);
    let reported = run(["campaign", "resume", dir.to_str().unwrap(), "--any-machine"]).output().unwrap();
    has(&stdout(&reported), &["NOT THE SAME MACHINE: clock_source", "NOT THE SAME MACHINE: takt was 0.0.9"]);
}

#[test]
fn a_run_that_fails_is_a_labelled_row_and_no_gap() {
    let _machine = alone();
    let text = SMALL.replace("values = [0, 2]", "values = [0]").replace(
        "[[factor]]\nname = \"work_us\"\nvalues = [0, 100]",
        "[[factor]]\nname = \"stress\"\nvalues = [\"off\", { name = \"tool\", set = { stress = { name = \"tool\", require_tools = \
         true, component = [{ kind = \"matrix\", workers = 1 }] } } }]",
    );
    let workspace = Workspace::new(&text);
    // Nowhere is there a stress-ng.
    let output =
        workspace.command(&["--json", "--repetitions", "1"]).env("PATH", "/nonexistent").output().unwrap();
    let table = partial_json(&output);
    let rows = table["rows"].as_array().unwrap();
    assert_eq!((&rows[0]["measured"], &rows[1]["measured"]), (&1.into(), &0.into()), "{table}");
    let problem = rows[1]["problems"][0].as_str().unwrap();
    assert!(problem.contains("failed: ") && problem.contains("stress-ng"), "{problem}");

    let there = Command::new("stress-ng").arg("--version").output().is_ok();
    if missing("stress-ng is not installed", there) {
        return;
    }
    let dir = table["dir"].as_str().unwrap();
    let table = json(&run(["campaign", "resume", dir, "--json"]).output().unwrap());
    assert_eq!(table["rows"][1]["measured"], 1, "a failed run is tried again: {table}");
    assert_eq!(table["rows"][1]["problems"], serde_json::json!([]), "{table}");
}

#[test]
#[ignore = "takes 10 s"]
fn runs_for_another_kernel_wait_for_it() {
    let _machine = alone();
    let text = SMALL
        .replace("name = \"noise\"\nvalues = [0, 2]", "name = \"kernel\"\nvalues = [\"generic\", \"rt\"]");
    let workspace = Workspace::new(&text);
    let output = workspace.command(&[]).output().unwrap();
    assert!(
        stderr(&output).contains("--kernel") && stderr(&output).contains("generic, rt"),
        "{}",
        stderr(&output)
    );
    assert!(folders(&workspace.runs()).is_empty());
    let table =
        json(&workspace.command(&["--kernel", "rt", "--json", "--repetitions", "1"]).output().unwrap());
    let measured: Vec<(String, u64)> = table["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (factors(row), row["measured"].as_u64().unwrap()))
        .collect();
    let expected = [("work_us=0 kernel=generic", 0), ("work_us=0 kernel=rt", 1)];
    assert_eq!(measured[..2], expected.map(|(name, n)| (name.to_owned(), n)));
    assert!(table["rows"][0]["problems"][0].as_str().unwrap().contains("not measured yet"));
    let dir = table["dir"].as_str().unwrap();
    let table = json(&run(["campaign", "resume", dir, "--kernel", "generic", "--json"]).output().unwrap());
    assert!(table["rows"].as_array().unwrap().iter().all(|row| row["measured"] == 1), "{table}");
}

#[test]
fn what_cannot_work_is_refused_before_the_first_run() {
    for (from, to, words) in [
        ("name = \"work_us\"", "name = \"wrok_us\"", &["wrok_us", "work_us", "rate_hz"][..]),
        ("values = [0, 100]", "values = [0, 1e9]", &["work_us", "1000000000", "accepted are 0 to 2000"]),
        ("values = [0, 2]", "values = [0, -2]", &["noise", "-2", "0 to 4096"]),
        ("values = [0, 2]", "values = [0, 0]", &["noise", "repeats"]),
        ("values = [0, 2]", "values = []", &["noise", "no values"]),
        ("name = \"noise\"", "name = \"work_us\"", &["work_us", "twice"]),
        ("robot = \"cyclic\"", "robot = \"submarine\"", &["submarine", "cyclic"]),
        ("robot = \"cyclic\"", "", &["robot", "config"]),
        ("repetitions = 2", "repetition = 2", &["repetition", "repetitions", "line 4"]),
        ("repetitions = 2", "repetitions = 0", &["repetitions", "1 to 1000"]),
        ("order = \"random\"", "order = \"sorted\"", &["sorted", "random", "given"]),
        ("policy = \"other:0\"", "policy = \"fifo:0\"", &["fifo", "0", "1"]),
        ("policy = \"other:0\"", "policy = \"deadline:5ms/4ms/4ms\"", &["runtime", "5ms"]),
        ("seconds = 0.3", "seconds = -1", &["seconds", "-1"]),
    ] {
        assert!(SMALL.contains(from), "{from}");
        let message = Workspace::new(&SMALL.replacen(from, to, 1)).refused(&[]);
        for word in words {
            assert!(message.contains(word), "\"{word}\" is not in: {message}");
        }
    }
    let workspace = Workspace::new(SMALL);
    for (more, words) in [
        (["--only", "noise=3"], ["noise=3", "0, 2"]),
        (["--only", "colour=3"], ["colour", "work_us, noise"]),
        (["--set", "work_us=3"], ["work_us", "--only"]),
        (["--set", "speed=3"], ["speed", "rate_hz"]),
        (["--kernel", "rt"], ["kernel", "no factor"]),
        (["--label", "desktop=off"], ["desktop", "no factor"]),
    ] {
        let message = workspace.refused(&more);
        assert!(words.iter().all(|word| message.contains(word)), "{more:?}: {message}");
    }
    let unknown = run(["campaign", "run", "everything"]).output().unwrap();
    for shipped in ["sentryrt1, ", "uav-kernels, ", "humanoid, ", "manager", "daq, "] {
        assert!(stderr(&unknown).contains(shipped), "{}", stderr(&unknown));
    }
    let none = run(["campaign", "resume", "/nonexistent"]).output().unwrap();
    assert!(stderr(&none).contains("no campaign.json"), "{}", stderr(&none));
}

#[test]
fn a_second_takt_and_a_node_of_another_version_are_refused() {
    let _machine = alone();
    let workspace = Workspace::new(SMALL);
    let only = ["--repetitions", "1", "--only", "work_us=0", "--only", "noise=0"];
    assert!(workspace.command(&only).output().unwrap().status.success());
    let dir = folders(&workspace.runs()).remove(0);
    // Whoever makes its runs holds this file.
    let lock = fs::File::create(dir.join("lock")).unwrap();
    lock.try_lock().unwrap();
    let mut resume = run(["campaign", "resume"]);
    has(
        &refusal(&resume.arg(&dir).output().unwrap()),
        &["another takt process is running this campaign", "Wait until it ends"],
    );
    drop(lock);
    let path = dir.join("campaign.json");
    let mut plan = read_json(&path);
    plan["takt"] = "0.0.9".into();
    fs::write(&path, plan.to_string()).unwrap();
    let mut block = run(["campaign", "block", "--submission", "s1"]);
    let job = [("SLURM_ARRAY_JOB_ID", "7"), ("SLURM_ARRAY_TASK_ID", "0"), ("SLURMD_NODENAME", "n1")];
    let message = refusal(&block.arg(&dir).envs(job).output().unwrap());
    has(&message, &["node n1 runs takt", "started with takt 0.0.9", "continue with that version"]);
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
}

#[test]
fn shipped_campaigns_resolve_to_the_papers_matrices() {
    for (name, runs) in [
        ("sentryrt1", 60),
        ("sentryrt1-gpu", 400),
        ("sentryrt1-kernels", 24),
        ("uav", 16),
        ("uav-isolation", 4),
        ("uav-kernels", 32),
        ("uav-kernels-one-cpu", 32),
        ("uav-kernels-real-time", 32),
        ("uav-preemption", 8),
        ("humanoid", 18),
        ("humanoid-further", 5),
        ("humanoid-guest", 6),
        ("manager", 4),
        ("daq", 11),
        ("daq-boards", 14),
        ("daq-boards-guest", 8),
        ("daq-cores", 7),
        ("daq-long", 8),
    ] {
        let output = run(["campaign", "run", name, "--dry-run"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
        let text = stdout(&output);
        assert!(text.trim_end().lines().last().unwrap().starts_with(&format!("{runs} runs of ")), "{text}");
        // What `show` prints is a campaign file.
        let shown = run(["campaign", "show", name]).output().unwrap();
        let workspace = Workspace::new(&stdout(&shown));
        assert_eq!(
            run(["check".as_ref(), workspace.file().as_os_str()]).output().unwrap().status.code(),
            Some(0)
        );
    }
}

/// Reads a sealed sample file with pandas, polars and DuckDB, and prints what each makes of it.
const OTHERS: &str = r#"
import sys, pandas, polars, duckdb
path = sys.argv[1]
def show(frame):
    late = frame["wake_ns"].astype("int64") - frame["planned_ns"].astype("int64")
    print(len(frame), int(late.sum()), int(late.max()))
show(pandas.read_parquet(path))
p = polars.read_parquet(path)
print(len(p), (p["wake_ns"] - p["planned_ns"]).sum(), (p["wake_ns"] - p["planned_ns"]).max())
print(*duckdb.sql(f"select count(*), sum(wake_ns - planned_ns)::int64, max(wake_ns - planned_ns) from '{path}'").fetchall()[0])
"#;

#[test]
fn samples_are_read_alike_by_pandas_polars_and_duckdb() {
    let _machine = alone();
    let has = Command::new("python3").args(["-c", "import pandas, pyarrow, polars, duckdb"]).output();
    if missing("python3 has not pandas, pyarrow, polars and duckdb", has.is_ok_and(|o| o.status.success())) {
        return;
    }
    let workspace = Workspace::new(SMALL);
    let table = json(&workspace.command(&["--json", "--repetitions", "1"]).output().unwrap());
    let dir = Path::new(table["rows"][0]["run_dirs"][0].as_str().unwrap());
    let samples = dir.join("samples/cyclic.parquet");
    let output = Command::new("python3").args(["-c", OTHERS]).arg(&samples).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let message = stdout(&output);
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(lines.len(), 3, "{message}");
    assert!(lines.iter().all(|line| *line == lines[0]), "{message}");
    assert!(lines[0].split(' ').all(|n| n.parse::<u64>().unwrap() > 0), "{message}");
}

#[test]
#[ignore = "takes 20 s"]
fn a_long_run_that_was_cut_off_goes_on_where_it_was() {
    let _machine = alone();
    let edges = 60_000;
    let workspace = Workspace::new(&format!(
        "name = \"long\"\nrobot = \"daq\"\nseconds = 900\n[set]\nlink = {{ kind = \"simulated\" }}\n\
         policy = \"other:0\"\n\"acquisition.lock_memory\" = \"off\"\n\"pulse.wait\" = \"50us\"\n\
         \"stop.edges\" = {edges}\n[[factor]]\nname = \"saving.enabled\"\nvalues = [true]\n"
    ));
    let grows = |dir: &Path, from: u64| {
        let samples = dir.join("001-true-r1/samples/edges.csv");
        wait_for("edges", || fs::metadata(&samples).ok().map(|file| file.len()).filter(|&bytes| bytes > from))
    };
    // A kill takes the campaign and its run; Ctrl-C asks both to end.
    let mut killed = Beside::start(workspace.command(&[]));
    let dir = wait_for("the campaign", || folders(&workspace.runs()).into_iter().next());
    let before = grows(&dir, 100_000);
    killed.signal(Signal::KILL);
    killed.end();
    let mut asked = Beside::start(run(["campaign", "resume", dir.to_str().unwrap()]));
    let after = grows(&dir, before + 100_000);
    asked.signal(Signal::INT);
    assert!(!asked.end().success());
    assert!(!dir.join("001-true-r1/hashes.json").exists(), "a cut run looks whole");
    let samples = fs::metadata(dir.join("001-true-r1/samples/edges.csv")).unwrap().len();
    assert!(samples >= after, "samples went: {samples} of {after} bytes");

    let table = json(&run(["campaign", "resume", dir.to_str().unwrap(), "--json"]).output().unwrap());
    assert_eq!(table["rows"][0]["us"]["count"], edges, "{table}");
    let header = read_json(&dir.join("001-true-r1/run.json"));
    assert_eq!(header["figures"]["resumed"], 2.0, "{header}");
    assert_eq!(header["figures"]["edges"], f64::from(edges));
    assert!(!dir.join("001-true-r1.cut1").exists(), "it went on, so that nothing was set aside");
}
