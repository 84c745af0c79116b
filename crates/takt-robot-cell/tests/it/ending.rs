//! A cell that ends, in order or not, leaves a robot that was instructed to stop. Asked of the
//! controller, which outlives the cell.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use support::alone;
use takt_link_rtde::sim::Simulator;
use takt_robot_cell::Cell;
use takt_robot_cell::CellConfig;
use takt_robot_cell::cell::StartOptions;

/// The outputs of the light, and red alone.
const LIGHT: u64 = 0b111;
const RED: u64 = 0b100;

/// A cell without people and the controller that it commands, which is no part of it.
fn apart() -> (CellConfig, Simulator) {
    let mut config = support::config(1);
    support::set_people(&mut config, &[]);
    let simulator = Simulator::start(config.robot.simulator.take().unwrap()).unwrap();
    config.robot.mission = None;
    config.robot.rtde.host = simulator.rtde_address().ip().to_string();
    config.robot.rtde.port = simulator.rtde_address().port();
    (config, simulator)
}

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn moves(simulator: &Simulator) -> bool {
    let state = simulator.state();
    state.slider > 0.0 && state.digital_outputs & LIGHT != RED
}

/// The slider as asked and the light; a watchdog that trips later changes neither.
#[track_caller]
fn is_instructed_to_stop(simulator: &Simulator, how: &str) {
    // The link's last packet is taken in by the next cycle of a controller that may be starved.
    until(how, || {
        let state = simulator.state();
        state.slider <= 0.0 && state.digital_outputs & LIGHT == RED
    });
}

#[test]
fn a_cell_that_is_dropped_or_unwound_stops_the_robot() {
    let _alone = alone();
    for panics in [false, true] {
        let (config, simulator) = apart();
        let outcome = std::thread::scope(|scope| {
            let owner = scope.spawn(|| {
                let _cell = Cell::start(&config, StartOptions::default()).unwrap();
                until("the robot may move", || moves(&simulator));
                assert!(!panics, "the owner of the cell panics");
            });
            owner.join()
        });
        assert_eq!(outcome.is_err(), panics, "{outcome:?}");
        is_instructed_to_stop(&simulator, if panics { "after a panic" } else { "after a drop" });
    }
}

#[test]
fn the_stop_comes_before_everything_else_ends() {
    let _alone = alone();
    let (config, simulator) = apart();
    let stop = Arc::new(AtomicBool::new(false));
    let options = StartOptions { stop: Some(&stop), ..StartOptions::default() };
    let cell = Cell::start(&config, options).unwrap();
    until("the robot may move", || moves(&simulator));
    stop.store(true, Ordering::Release);
    // Cameras, perception and the safety task still run.
    is_instructed_to_stop(&simulator, "while the cell runs");
    assert_eq!(cell.ended_threads(), Vec::<String>::new());
    assert_eq!(cell.stop(Duration::from_secs(20)), Vec::<String>::new());
    is_instructed_to_stop(&simulator, "at the end");
}
