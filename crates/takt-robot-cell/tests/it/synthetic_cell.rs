//! The configuration files that are shipped can be read, and what was read can be written and read
//! again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use takt_lab::{LabError, RunOptions};
use takt_link_camera::CameraConfig;
use takt_perception::MountFrame;
use takt_robot_cell::CellError;
use takt_robot_cell::lab::CellFile;
use takt_robot_cell::lab::run::run;

#[test]
fn a_run_that_is_stopped_before_the_cell_is_ready_leaves_no_directory() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../robots/synthetic.toml");
    let file = CellFile::load(&path).expect("the shipped file");
    let runs = tempfile::tempdir().expect("a folder");
    let options = RunOptions::below(runs.path(), Arc::new(AtomicBool::new(true)));
    let outcome = run(&file, &options, &mut |_| {}).map(drop);
    let Err(LabError::Robot(error)) = &outcome else { panic!("{outcome:?}") };
    assert!(matches!(error.downcast_ref(), Some(CellError::Stopped)), "{outcome:?}");
    assert_eq!(std::fs::read_dir(runs.path()).expect("it is there").count(), 0);
}

#[test]
fn the_synthetic_cell_is_good() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../robots/synthetic.toml");
    let file = CellFile::load(&path).expect("the shipped file");
    assert_eq!(file.cameras.len(), 5);
    let scenes: Vec<_> = file
        .cameras
        .iter()
        .map(|camera| {
            assert_eq!(camera.mount.frame, MountFrame::Tcp, "{} rides on the tool", camera.name);
            let CameraConfig::Synthetic(source) = &camera.source else {
                panic!("{} is rendered", camera.name)
            };
            &source.scene
        })
        .collect();
    assert!(scenes.windows(2).all(|pair| pair[0] == pair[1]), "all cameras look at the same scene");
    assert_eq!(scenes[0].people.len(), 3);
    let floor_m = f64::from(file.perception.occupancy.floor_m);
    assert!((scenes[0].floor_m - floor_m).abs() < 1e-6, "perception knows where the floor is");
    assert!(file.robot.simulator.is_some() && file.robot.mission.is_some(), "it needs no robot");

    let written = toml::to_string(&file).expect("what was read can be written");
    assert_eq!(CellFile::parse(&written, "again.toml", Path::new("")).expect("accepted once"), file);
}
