//! The whole cell against a simulated controller that is not its own: the watchdog's proof at the
//! start, a robot that does not obey, the dashboard's stop, and every way to end. Judged by the
//! controller's state.

use crate::support;

use std::process::{Command, Stdio};
use std::time::Duration;

use support::{Running, alone, config, set_people, wait_until, worker};
use takt_link_rtde::sim::{Fault, RuntimeState, SimConfig, SimProgram, Simulator};
use takt_robot_cell::cell::StartOptions;
use takt_robot_cell::ssm::FaultKind;
use takt_robot_cell::{Cell, CellConfig, CellError};

/// Set for a child process that runs a cell until it is killed: the RTDE port of its robot.
const CHILD_PORT: &str = "TAKT_TEST_CELL_OF_PORT";

fn robot(program: SimProgram) -> Simulator {
    // A second: this machine has other work.
    Simulator::start(SimConfig { program, watchdog_min_hz: 1.0, ..SimConfig::on_free_ports() })
        .expect("free ports")
}

/// A cell without people at this robot.
fn at(rtde_port: u16, dashboard_port: u16, strict: bool) -> CellConfig {
    let mut config = config(1);
    set_people(&mut config, &[]);
    config.robot.simulator = None;
    config.robot.rtde.port = rtde_port;
    config.robot.dashboard_port = dashboard_port;
    config.tasks.strict = strict;
    // What the scheduler grants is not the question here.
    config.tasks.policy = takt_robot_cell::tasks::PolicyMix::CfsCfs;
    // Obedience within a second on a busy machine.
    config.ssm.ack_after_ms = 300.0;
    config
}

fn of(robot: &Simulator, strict: bool) -> CellConfig {
    at(robot.rtde_address().port(), robot.dashboard_address().port(), strict)
}

fn moves_freely(robot: &Simulator) -> bool {
    let state = robot.state();
    state.slider == 1.0 && state.speed_fraction == 1.0 && state.joint_speeds_rad_s != [0.0; 6]
}

fn run(config: &CellConfig, robot: &Simulator) -> Running {
    let mut running = Running::start(config);
    running.until("the arm moves at full speed", 0, |_, _| moves_freely(robot));
    running
}

fn rests(robot: &Simulator) -> bool {
    robot.state().joint_speeds_rad_s == [0.0; 6]
}

#[test]
#[ignore = "takes 15 s"]
fn a_strict_run_does_not_start_without_the_watchdog_and_a_lenient_one_says_so() {
    let _alone = alone();
    let own = robot(SimProgram::Own);
    let options = StartOptions { worker: Some(worker("")), ..StartOptions::default() };
    match Cell::start(&of(&own, true), options) {
        Err(error @ CellError::NoWatchdog { .. }) => {
            let message = error.to_string();
            assert!(
                message.contains("takt_watchdog.script") && message.contains("program running: true"),
                "{message}"
            );
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("a robot without a watchdog was accepted"),
    }
    let running = run(&of(&own, false), &own);
    let message = running.cell.not_granted().join("; ");
    assert!(message.contains("never answered Takt's watchdog"), "{message}");
    drop(running);

    for program in [SimProgram::TaktCell, SimProgram::OwnWithWatchdog] {
        let guarded = robot(program);
        let running = run(&of(&guarded, true), &guarded);
        assert!(running.cell.robot_facts().watchdog_proved());
        let message = running.cell.not_granted().join("; ");
        assert!(!message.contains("watchdog"), "{message}");
        let terms = running.cell.protective_distance();
        let command = terms.iter().find(|term| term.symbol == "T_command").expect("a term");
        assert!(command.value > 0.0, "a round trip takes time: {command:?}");
    }
}

#[test]
fn a_robot_that_disregards_the_slider_is_stopped_over_the_dashboard() {
    let _alone = alone();
    let robot = robot(SimProgram::OwnWithWatchdog);
    let mut running = run(&of(&robot, false), &robot);
    let from = running.jobs.len();
    robot.inject(Fault::IgnoreSlider(true));
    // A reason to stop that is not the robot's: the only camera stands still.
    running.cell.feeds_mut().iter_mut().for_each(takt_link_camera::CameraFeed::stop);
    running.until("the disobedience is seen", from, |_, jobs| {
        jobs.iter().any(|job| job.decision.fault.map(|f| f.kind) == Some(FaultKind::MovesDespiteStop))
    });
    wait_until("the dashboard has stopped the program", || robot.state().runtime == RuntimeState::Stopped);
    wait_until("the arm rests", || rests(&robot));
    wait_until("the attempt is recorded", || !running.cell.dashboard_stops().is_empty());
    let stops = running.cell.dashboard_stops();
    assert!(stops[0].stopped && stops[0].cause.kind == FaultKind::MovesDespiteStop, "{stops:?}");
    assert_eq!(stops.len(), 1, "once per event");
    running.collect();
    assert!(running.jobs[from..].iter().skip(2000).all(|job| job.decision.stop));
}

#[test]
fn a_watchdog_that_hangs_is_noticed_though_the_controller_echoes_on() {
    let _alone = alone();
    let robot = robot(SimProgram::TaktCell);
    let mut running = run(&of(&robot, false), &robot);
    let from = running.jobs.len();
    robot.inject(Fault::HangWatchdog(true));
    running.until("it is noticed", from, |_, jobs| {
        jobs.iter().any(|job| {
            let kind = job.decision.fault.map(|f| f.kind);
            matches!(kind, Some(FaultKind::ScriptNotEchoing | FaultKind::WatchdogNotProven))
        })
    });
    wait_until("the arm rests", || rests(&robot));
    wait_until("the dashboard's stop was tried", || !running.cell.dashboard_stops().is_empty());
    wait_until("the program has ended", || robot.state().runtime == RuntimeState::Stopped);
}

#[test]
fn the_last_command_is_stop() {
    let _alone = alone();
    let robot = robot(SimProgram::TaktCell);
    let config = of(&robot, false);
    let running = run(&config, &robot);
    running.stop();
    // At once, not when the watchdog trips: its program still plays.
    let state = robot.state();
    assert_eq!((state.slider, state.digital_outputs & 0b111), (0.0, 1 << config.robot.light.red));
    wait_until("the arm rests", || rests(&robot));
}

#[test]
fn a_killed_takt_leaves_no_robot_that_moves() {
    let _alone = alone();
    for program in [SimProgram::TaktCell, SimProgram::OwnWithWatchdog] {
        let robot = robot(program);
        let mut child = Command::new(std::env::current_exe().expect("the test program"))
            .args(["guard::cell_process", "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD_PORT, robot.rtde_address().port().to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("a child");
        wait_until("the arm moves at full speed", || moves_freely(&robot));
        let before = robot.state();
        // SIGKILL: no destructor, no signal handler, no last command.
        child.kill().expect("killed");
        child.wait().expect("reaped");
        wait_until("the watchdog trips", || robot.state().watchdog_trips == 1);
        let tripped = robot.state();
        // The limit in cycles of the controller, the stop, and what this machine's load may delay
        // the look at it.
        println!("{program:?}: tripped within {} cycles of the last look", tripped.cycles - before.cycles);
        wait_until("the arm rests", || rests(&robot));
        let state = robot.state();
        assert_eq!((state.slider, state.digital_outputs & 0b111), (0.0, 0b100), "red light, slider 0");
        robot.inject(Fault::Play);
        wait_until("hundreds of cycles later", || robot.state().cycles > state.cycles + 400);
        assert_eq!(robot.state().tcp_way_m, state.tcp_way_m, "nobody moves it before Takt is back");
    }
}

/// Main function of a child process; does nothing in the test itself.
#[test]
fn cell_process() {
    let Ok(port) = std::env::var(CHILD_PORT) else { return };
    let config = at(port.parse().expect("a port"), 0, false);
    let _running = Running::start(&config);
    std::thread::sleep(Duration::from_secs(120));
}
