//! The program on the robot, judged by the simulated controller's own state: what its watchdog
//! proves, and that nothing moves after a link loss before Takt is back, whoever presses play.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::support;

use support::{Cell, config_for, wait_for};
use takt_link_rtde::arm::registers as reg;
use takt_link_rtde::arm::{Mission, MissionThread, PROGRAM, WATCHDOG};
use takt_link_rtde::client::Content;
use takt_link_rtde::sim::{Fault, RuntimeState, SimConfig, SimProgram, Simulator, WatchdogAction};

fn start(program: SimProgram) -> Simulator {
    Simulator::start(SimConfig { program, watchdog_min_hz: 2.0, ..SimConfig::on_free_ports() }).unwrap()
}

fn later(simulator: &Simulator, cycles: u64) -> takt_link_rtde::sim::SimState {
    let cycle = simulator.state().cycles;
    wait_for("more cycles", || Some(simulator.state()).filter(|state| state.cycles > cycle + cycles))
}

#[test]
fn the_watchdog_answers_challenges_and_copies_the_heartbeat() {
    for program in [SimProgram::TaktCell, SimProgram::OwnWithWatchdog] {
        let simulator = start(program);
        let mut cell = Cell::open(&config_for(&simulator));
        cell.beat_until("first proof", |state| state.script_guard == reg::GUARD_ARMED);
        let mut proved = 0;
        cell.beat_until("every challenge answered in turn", |state| {
            let challenge = (state.script_answer - 7) / 3;
            proved = proved.max(challenge);
            state.proves(challenge) && state.script_echo > 300 && proved > 5
        });
        simulator.inject(Fault::HangWatchdog(true));
        let stuck = cell.beat_until("the controller's echo runs ahead of the script's", |state| {
            state.heartbeat_echo > state.script_echo + 100
        });
        assert!(!stuck.proves(cell.command.challenge));
    }
}

#[test]
fn a_program_without_the_watchdog_proves_nothing_and_moves_on_when_takt_is_silent() {
    let simulator = start(SimProgram::Own);
    let mut cell = Cell::open(&config_for(&simulator));
    let mut beats = 0;
    cell.beat_until("some beats", |state| {
        beats += 1;
        assert!(!state.proves(cell_challenge(state)));
        beats > 200
    });
    let way_m = later(&simulator, 1000).tcp_way_m;
    assert!(later(&simulator, 500).tcp_way_m > way_m + 0.1, "that is why such a program is refused");
}

fn cell_challenge(state: &takt_link_rtde::RobotState) -> i32 {
    1 + state.heartbeat_echo / 50
}

#[test]
fn after_a_link_loss_nothing_moves_before_takt_is_back() {
    for (program, action) in [
        (SimProgram::TaktCell, WatchdogAction::Stop),
        (SimProgram::TaktCell, WatchdogAction::Pause),
        (SimProgram::OwnWithWatchdog, WatchdogAction::Stop),
    ] {
        let simulator = Simulator::start(SimConfig {
            program,
            watchdog_action: action,
            watchdog_min_hz: 2.0,
            ..SimConfig::on_free_ports()
        })
        .unwrap();
        let config = config_for(&simulator);
        let mut cell = Cell::open(&config);
        (cell.command.digital_outputs, cell.command.digital_outputs_mask) = (0b001, 0b111);
        let mission = (program == SimProgram::TaktCell)
            .then(|| MissionThread::start(Mission::pick_and_place().unwrap(), config.clone()).unwrap());
        let fast = |state: &takt_link_rtde::sim::SimState| {
            state.slider == 1.0 && state.speed_fraction == 1.0 && state.joint_speeds_rad_s != [0.0; 6]
        };
        cell.beat_until_sim("full speed", &simulator, fast);
        drop(cell);
        let rests = wait_for("the watchdog trips", || {
            let state = simulator.state();
            (state.watchdog_trips == 1 && state.joint_speeds_rad_s == [0.0; 6]).then_some(state)
        });
        assert_eq!((rests.slider, rests.digital_outputs & 0b111), (0.0, 0b100), "{action:?}: red, slider 0");
        for _ in 0..3 {
            simulator.inject(Fault::Play);
            let after = later(&simulator, 400);
            assert_eq!(after.tcp_way_m, rests.tcp_way_m, "{action:?}: it moved without Takt");
            assert_eq!((after.slider, after.digital_outputs & 0b111), (0.0, 0b100), "{action:?}");
        }
        let mut cell = Cell::open(&config);
        // Another number than the one that was left behind: a client counts on or draws a new one.
        cell.command.heartbeat = 100_000;
        simulator.inject(Fault::Play);
        cell.beat_until_sim("it moves once Takt is back", &simulator, |state| {
            if state.runtime != RuntimeState::Playing {
                simulator.inject(Fault::Play);
            }
            state.joint_speeds_rad_s != [0.0; 6]
        });
        drop(mission);
    }
}

#[test]
fn an_arm_that_disregards_the_slider_is_seen_in_its_speed() {
    let simulator = start(SimProgram::OwnWithWatchdog);
    let mut cell = Cell::open(&config_for(&simulator));
    cell.beat_until_sim("it moves", &simulator, |state| state.joint_speeds_rad_s[0].abs() > 0.5);
    simulator.inject(Fault::IgnoreSlider(true));
    cell.command.speed_fraction = 0.0;
    cell.beat_until("stop is taken over and the joints move", |state| {
        state.speed_fraction == 0.0 && state.joint_speeds_rad_s[0].abs() > 0.5
    });
}

#[test]
fn a_new_connection_follows_the_controllers_clock_anew() {
    let simulator = start(SimProgram::TaktCell);
    let mut cell = Cell::open(&config_for(&simulator));
    let state = cell.beat_until("states", |state| state.sequence > 50);
    assert_eq!((state.content, state.clock_faults), (Content::New, 0));
    assert!(state.measured_ns <= state.received_ns);
    simulator.inject(Fault::DropLinks);
    cell.beat_until("back again", |state| state.connected && state.sequence > 200);
    assert_eq!(cell.state().clock_faults, 0);
}

#[test]
fn the_scripts_agree_with_the_registers() {
    for text in [WATCHDOG, PROGRAM] {
        assert!(text.contains(&format!(
            "write_output_integer_register({}, {})",
            reg::GUARD,
            reg::GUARD_ARMED
        )));
        assert!(text.contains(&format!(
            "write_output_integer_register({}, {})",
            reg::GUARD,
            reg::GUARD_WAITING
        )));
        assert!(text.contains(&format!(
            "write_output_integer_register({}, 3 * read_input_integer_register({}) + 7)",
            reg::ANSWER,
            reg::CHALLENGE
        )));
        assert!(text.contains(&format!(
            "rtde_set_watchdog(\"input_int_register_{}\", 10, \"stop\")",
            reg::HEARTBEAT
        )));
    }
    let starts = PROGRAM.find("takt_watchdog_start()\n\n").unwrap();
    assert!(starts < PROGRAM.find("movej(").unwrap(), "nothing moves before the watchdog stands");
}
