//! Flights of the quadrotor leave whole run directories, whatever becomes of them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_lab::robot::{Event, Observe};
use takt_lab::{RunOptions, RunSummary, Session};
use takt_robot_uav::UavConfig;
use takt_robot_uav::lab::AttitudeRow;
use takt_robot_uav::reference::Reference;
use takt_rundir::RunDir;

/// A flight that needs no privilege.
fn file(iterations: u64) -> UavConfig {
    let mut file = UavConfig { iterations, ..UavConfig::default() };
    file.attitude.policy = "other:0".parse().expect("a policy");
    file.position.policy = "other:0".parse().expect("a policy");
    file.tasks.lock_memory = false;
    file
}

fn run(file: &UavConfig, options: &RunOptions, observe: Observe<'_>) -> RunSummary {
    Session::run(file, options, observe).and_then(|ran| ran.into_summary()).expect("a flight")
}

fn options(root: &Path) -> RunOptions {
    RunOptions::below(root, Arc::new(AtomicBool::new(false)))
}

#[test]
fn a_flight_leaves_a_sealed_run_directory() {
    let root = tempfile::tempdir().expect("a folder");
    let mut started = 0;
    let summary = run(&file(250), &options(root.path()), &mut |event| {
        started += u32::from(matches!(event, Event::Started { .. }));
    });
    assert_eq!(started, 1);
    assert_eq!(summary.robot, "uav");
    let names: Vec<_> = summary.measures.iter().map(|measure| measure.name.as_str()).collect();
    assert_eq!(names, ["lateness", "response", "execution", "job", "position-lateness"]);
    assert_eq!(summary.measures[0].us.count, 250, "every job lies in the window");
    assert_eq!(summary.measures[0].deadline_us, Some(4000.0));
    assert!(summary.measures[1].us.worst >= summary.measures[0].us.worst, "a response contains its lateness");
    assert_eq!(summary.problems, Vec::<String>::new());
    assert_eq!(summary.figures["diverged"], 0.0);
    assert!((0.0..0.5).contains(&summary.figures["position_rms_m"]));
    assert!(summary.figures["oldest_force_ms"] > 10.0, "a force command is used until the next, 20 ms later");
    assert!(summary.figures["deviation_rms_m"] <= summary.figures["max_deviation_m"]);
    let dir = RunDir::open(Path::new(&summary.run_dir)).expect("a run directory");
    assert!(dir.is_complete());
    let header = dir.header().expect("a header");
    assert_eq!(header.records_lost, 0);
    let index = &dir.columns("attitude", &["index"]).expect("a column")[0];
    assert_eq!(index.len(), 250);
    assert_eq!(
        *index.last().expect("rows") + 1,
        250 + header.measures[0].skipped,
        "skipped releases are counted"
    );
}

#[test]
fn a_lost_vehicle_is_a_problem_of_the_run_and_its_jobs_are_measured_on() {
    let root = tempfile::tempdir().expect("a folder");
    let mut file = file(150);
    // Farther than the vehicle may be from its reference, at once.
    file.reference = Reference::Step { from_m: [0.0, 0.0, 5.0], to_m: [8.0, 0.0, 5.0], hold_s: 0.2 };
    let summary = run(&file, &options(root.path()), &mut |_| {});
    assert_eq!(summary.figures["diverged"], 1.0);
    assert!(summary.figures["diverged_at_s"] >= 0.2);
    assert!(summary.problems.iter().any(|problem| problem.contains("too far")), "{:?}", summary.problems);
    assert!(summary.problems.iter().any(|problem| problem.contains("force command")));
    assert_eq!(summary.measures[0].us.count, 150);
}

#[test]
fn a_stopped_flight_says_so() {
    let root = tempfile::tempdir().expect("a folder");
    let options = options(root.path());
    let stop = Arc::clone(&options.stop);
    let summary = run(&file(1_000_000), &options, &mut |event| {
        if matches!(event, Event::Tick { .. }) {
            stop.store(true, Ordering::Release);
        }
    });
    assert!(summary.problems.iter().any(|problem| problem.contains("of 1000000")), "{:?}", summary.problems);
}

#[test]
fn seconds_of_the_command_win_over_iterations() {
    let root = tempfile::tempdir().expect("a folder");
    let options = RunOptions { seconds: Some(0.4), ..options(root.path()) };
    let summary = run(&file(1_000_000), &options, &mut |_| {});
    assert_eq!(summary.measures[0].us.count, 100);
}

#[test]
fn samples_are_rows_before_the_seal() {
    // What a kill leaves is read as rows; the seal turns them into columns.
    let row = AttitudeRow::new(
        &takt_robot_uav::records::AttitudeRecord {
            index: 3,
            planned_ns: 1,
            wake_ns: 2,
            control_start_ns: 3,
            control_end_ns: 4,
            end_ns: 5,
            skipped: 1,
            force_sequence: 6,
            position_m: [1.0, 2.0, 3.0],
            reference_m: [0.5, 2.0, 3.0],
            position_error_m: 0.5,
            tilt_rad: 0.1,
            rotors_at_limit: 5,
            loss: Some(takt_robot_uav::plant::Loss::Tilt),
        },
        0.25,
    );
    let root = tempfile::tempdir().expect("a folder");
    let dir = RunDir::create(root.path(), "x").expect("a run directory");
    let mut file = dir.samples("attitude").expect("a file");
    file.push(&row).expect("a row");
    file.push(&AttitudeRow { loss: None, ..row.clone() }).expect("a row");
    file.flush().expect("flushed");
    let back: Vec<AttitudeRow> = takt_rundir::read_samples(&dir.sample_path("attitude")).expect("rows");
    assert_eq!(back, [row.clone(), AttitudeRow { loss: None, ..row }]);
}
