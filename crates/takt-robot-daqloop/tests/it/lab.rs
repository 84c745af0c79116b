//! Runs of the DAQ loop: what they leave, how they end, and that a kill takes little.

#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use takt_lab::{Event, LabError, Registry, RobotFile, RunOptions, RunSummary, Session, Target};
use takt_robot_daqloop::lab::State;
use takt_rundir::{RunDir, find_runs};

static ROBOTS: Registry = Registry::new(&[&takt_robot_daqloop::lab::KIND]);

/// A loop that leaves the other tests their processors.
const POLITE: &str =
    "robot = 'daq'\nacquisition = { policy = 'other', lock_memory = 'off' }\npulse.wait = '50us'\n";

/// Not a test: the plant's process of the tests below is this very program.
#[test]
fn far_end() {
    if std::env::var_os("TAKT_TEST_IS_FAR_END").is_some() {
        let code = takt_robot_daqloop::lab::far_end();
        std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
    }
}

fn use_this_program_as_plant() {
    takt_link_daq::far_end::set_program(takt_link_daq::far_end::Program {
        path: std::env::current_exe().unwrap(),
        arguments: ["lab::far_end", "--exact", "--nocapture", "--test-threads=1"].map(Into::into).into(),
        variables: vec![("TAKT_TEST_IS_FAR_END".into(), "1".into())],
    });
}

fn file(text: &str) -> RobotFile {
    ROBOTS.parse(&format!("{POLITE}{text}"), "test", Path::new("")).unwrap()
}

fn run(file: &RobotFile, root: &Path) -> (RunSummary, RunDir) {
    let options = RunOptions::below(root, Arc::new(AtomicBool::new(false)));
    let summary = Session::run(&**file, &options, &mut |_| {}).and_then(|ran| ran.into_summary()).unwrap();
    let dir = RunDir::open(Path::new(&summary.run_dir)).unwrap();
    (summary, dir)
}

fn go_on(file: &RobotFile, dir: &Path) -> Result<RunSummary, LabError> {
    let mut options = RunOptions::below(dir, Arc::new(AtomicBool::new(false)));
    options.target = Target::Resume(dir.to_owned());
    Session::run(&**file, &options, &mut |_| {}).and_then(|ran| ran.into_summary())
}

fn state(dir: &RunDir) -> State {
    State::read(dir).unwrap().expect("every run leaves its state")
}

const SIMULATED: &str = "link = { kind = 'simulated' }\n";
const UDP: &str = "link = { kind = 'udp', waiting = 'block', echo.policy = 'other' }\n";

#[test]
fn a_run_keeps_every_edge_with_saving_on_and_off() {
    use_this_program_as_plant();
    for saving in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let text = format!(
            "{UDP}seconds = 0.5\ndeadline_us = 50000000.0\nsaving = {{ enabled = {saving}, display = 'every-edge' }}\n\
             controller.kind = 'neuro_adaptive'"
        );
        let (summary, dir) = run(&file(&text), root.path());
        assert!(dir.is_complete());
        let header = dir.header().unwrap();
        assert_eq!((header.robot.as_str(), header.measures.len()), ("daq", 3));
        let latencies = dir.series(&header.measures[0]).unwrap().values_ns;
        let state = state(&dir);
        assert!(!latencies.is_empty());
        // The bare link is a measure of its own, and less than what the paper calls latency, edge
        // by edge.
        assert_eq!(header.measures[1].name, "link");
        let links = dir.series(&header.measures[1]).unwrap().values_ns;
        assert_eq!(links.len(), latencies.len());
        assert!(links.iter().zip(&latencies).all(|(link, latency)| link < latency));
        assert_eq!(latencies.len() as u64, state.recorder.count(), "saving {saving}");
        assert_eq!(header.measures[0].recorder, None, "the samples are whole");
        assert_eq!(latencies.iter().max(), Some(&state.recorder.max_ns()));
        assert_eq!(summary.measures[0].us.count, state.recorder.count());
        assert_eq!(state.controller.as_ref().unwrap().count(), state.next_index);
        assert!(summary.figures["controller_mean_us"] > 0.0 && summary.figures["tracking_rms_error"] > 0.0);
        // Half a second shows too little for a PASS, however many edges it has.
        assert_eq!(summary.verdict.to_string(), "INCONCLUSIVE", "{:?}", summary.reasons);
        assert!(summary.reasons[0].starts_with("all "), "{:?}", summary.reasons);
        assert!(summary.measure_more_s.is_some_and(|s| s > 29.0), "{:?}", summary.reasons);
        // Every edge was displayed: a line each, or none where saving is off.
        let shown = dir.columns("display", &["count"]).map_or(0, |columns| columns[0].len() as u64);
        assert_eq!(shown > 0, saving);
    }
}

#[test]
fn beyond_the_bound_edges_are_counted_and_not_kept() {
    let root = tempfile::tempdir().unwrap();
    let text =
        format!("{SIMULATED}seconds = 60\nkeep_edges = 100\nstop.edges = 1500\ndeadline_us = 50000000.0");
    let (summary, dir) = run(&file(&text), root.path());
    let header = dir.header().unwrap();
    assert_eq!(header.measures[0].recorder.as_deref(), Some("latency.json"));
    assert_eq!(dir.series(&header.measures[0]).unwrap().values_ns.len(), 100);
    assert_eq!(summary.measures[0].us.count, 1500);
    // It ended by its edges: no `--seconds` makes it longer.
    assert!(header.own_end && summary.verdict != takt_stats::Verdict::Pass, "{}", summary.sentence);
    let asks = summary.sentence.contains("measure ") && summary.measure_more_s.is_some();
    assert!(asks && !summary.sentence.contains("--seconds"), "{}", summary.sentence);
    assert_eq!(summary.measures[0].us.worst, state(&dir).recorder.max_ns() as f64 / 1e3);
    // A report reads the same directory.
    let collection = takt_report::collect(&[dir.path().to_owned()]);
    assert!(collection.is_ok(), "{:?}", collection.err());
}

#[test]
fn the_first_latency_above_the_threshold_ends_a_run() {
    let root = tempfile::tempdir().unwrap();
    // Every edge takes longer than a nanosecond.
    let text = format!("{SIMULATED}seconds = 60\nstop.threshold_ns = 1");
    let (summary, dir) = run(&file(&text), root.path());
    assert!(summary.seconds < 30.0);
    let run: serde_json::Value = dir.read_json("run.json").unwrap();
    assert_eq!(run["stopped"]["criterion"], "threshold");
    assert_eq!(run["stopped"]["count"], 1);
}

/// Conditions are compared at the same number of edges: a run that had fewer says so, unless
/// somebody ended it.
#[test]
fn a_run_that_its_time_ends_before_its_edges_says_so() {
    for (edges, reported) in [(20, false), (1_000_000_000, true)] {
        let root = tempfile::tempdir().unwrap();
        let (summary, _) =
            run(&file(&format!("{SIMULATED}seconds = 0.3\nstop.edges = {edges}")), root.path());
        let message = summary.problems.iter().any(|problem| problem.contains(&format!("of {edges} edges")));
        assert_eq!(message, reported, "{:?}", summary.problems);
    }
}

/// The window ends some milliseconds after the last edge that counts, and a loop of edges every
/// tenth of a millisecond has missed nothing then.
#[test]
fn what_comes_after_the_last_edge_of_a_run_is_no_miss() {
    let root = tempfile::tempdir().unwrap();
    let text = format!("{SIMULATED}seconds = 60\ndeadline_us = 100.0\nstop.edges = 300");
    let (summary, dir) = run(&file(&text), root.path());
    let columns = dir.columns("edges", &["sent_ns", "received_ns", "latency_ns"]).unwrap();
    let [sent_ns, received_ns, latency_ns] = [&columns[0], &columns[1], &columns[2]];
    assert_eq!(received_ns.len(), 300);
    // By the samples alone: whole deadlines from edge to edge beyond the pause, of which a late
    // edge is one.
    let misses: u64 = (0..received_ns.len())
        .map(|at| {
            let last_ns = if at > 0 { received_ns[at - 1] } else { sent_ns[0] };
            let stood_ns = (received_ns[at] - last_ns).saturating_sub(50_000);
            let late = u64::from(latency_ns[at] > 100_000);
            late + (stood_ns / 100_000).saturating_sub(late)
        })
        .sum();
    assert_eq!(summary.measures[0].misses, Some(misses), "{}", summary.sentence);
}

#[test]
fn a_maximum_that_has_settled_ends_a_run() {
    let root = tempfile::tempdir().unwrap();
    let growth = u64::MAX / 4;
    let text =
        format!("{SIMULATED}seconds = 60\nstop.trend = {{ grew_less_than_ns = {growth}, period_s = 0.2 }}");
    let (_, dir) = run(&file(&text), root.path());
    let run: serde_json::Value = dir.read_json("run.json").unwrap();
    assert_eq!(run["stopped"]["criterion"], "trend");
}

#[test]
fn a_broken_loop_is_a_labelled_run() {
    let root = tempfile::tempdir().unwrap();
    // Ends by itself before the window: no edge can come through a converter that stops at half a
    // volt.
    let text = "link = { kind = 'simulated', range_v = [0.0, 0.5] }\npulse.timeout = '1ms'\nseconds = 5";
    let file = ROBOTS
        .parse(
            &format!("robot = 'daq'\nacquisition = {{ policy = 'other', lock_memory = 'off' }}\n{text}"),
            "test",
            Path::new(""),
        )
        .unwrap();
    let (summary, dir) = run(&file, root.path());
    assert!(dir.is_complete());
    assert!(
        summary.problems.iter().any(|problem| problem.contains("did not return")),
        "{:?}",
        summary.problems
    );
    assert_eq!(summary.measures[0].us.count, 0);
    // Nothing was measured, so that there is nothing to report of it.
    assert_eq!((summary.measures[0].misses, summary.measures[0].longest_miss_run), (None, None));
    assert_eq!(summary.verdict, takt_stats::Verdict::Fail, "{}", summary.sentence);
}

/// The run that [`a_killed_run_goes_on`] kills: this test's own binary, started again.
#[test]
fn child() {
    let Some(dir) = std::env::var_os("TAKT_TEST_DAQ_DIR") else { return };
    let text = std::env::var("TAKT_TEST_DAQ_FILE").unwrap();
    let mut options = RunOptions::below(&dir, Arc::new(AtomicBool::new(false)));
    options.target = Target::Exactly(dir.into());
    let tick = &mut |event: Event<'_>| {
        if let Event::Tick { line, .. } = event {
            println!("tick {line}");
        }
    };
    Session::run(&*file(&text), &options, tick).unwrap();
}

/// Starts a run in a process of its own, kills it after `ticks` signs of life, and returns how many
/// edges it had counted a second of its own time before.
fn killed(text: &str, dir: &Path, ticks: usize) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lab::child", "--nocapture"])
        .env("TAKT_TEST_DAQ_DIR", dir)
        .env("TAKT_TEST_DAQ_FILE", text)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let counts = lines.filter_map(|line| {
        let rest = line.split("tick ").nth(1)?.to_owned();
        rest.split(' ').next()?.parse::<u64>().ok()
    });
    let counts: Vec<u64> = counts.take(ticks).collect();
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(counts.len(), ticks, "the child ended by itself");
    // A tick comes every tenth of a second at most, so ten ticks are a second at least.
    counts[ticks - 11]
}

#[test]
#[ignore = "takes 10 s"]
fn a_killed_run_goes_on() {
    for saving in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("killed");
        let text = format!("{SIMULATED}seconds = 600\nsaving.enabled = {saving}\n");
        let sure = killed(&text, &dir, 25);
        assert!(!dir.join("hashes.json").exists());
        let left = state(&RunDir::open(&dir).unwrap());
        assert!(left.recorder.count() > 0);
        assert!(sure > 0);
        let found = left.recorder.count();
        assert!(found >= sure, "saving {saving}: {found} of {sure} edges are left");

        // Another configuration is another run.
        let other = go_on(&file(&format!("{text}pulse.high_v = 4.0\n")), &dir).unwrap_err().to_string();
        assert!(other.contains("pulse"), "{other}");

        // So that it ends: its length may change.
        let shorter = text.replace("600", &format!("{}", left.elapsed_ns as f64 / 1e9 + 1.5));
        let summary = go_on(&file(&shorter), &dir).unwrap();
        let after = state(&RunDir::open(&dir).unwrap());
        assert!(after.recorder.count() > found, "it has measured on");
        assert_eq!((after.resumed, summary.figures["resumed"]), (1, 1.0));
        assert_eq!(summary.measures[0].us.count, after.recorder.count());
        assert!(after.elapsed_ns > left.elapsed_ns);
        let runs = find_runs(root.path()).unwrap();
        assert_eq!((runs.len(), runs[0].is_complete()), (1, true));
        if saving {
            // Numbers go on over the kill, each once, in order.
            let numbers = runs[0].columns("edges", &["index"]).unwrap().remove(0);
            assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        }
        let again = go_on(&file(&shorter), &dir).unwrap_err().to_string();
        assert!(again.contains("sealed"), "{again}");
    }
}

#[test]
fn only_runs_of_daq_go_on() {
    let root = tempfile::tempdir().unwrap();
    let nothing = go_on(&file(SIMULATED), root.path()).unwrap_err().to_string();
    assert!(nothing.contains("run.json"), "{nothing}");
}
