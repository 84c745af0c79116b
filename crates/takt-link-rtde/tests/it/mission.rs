//! Missions: what is accepted, how restarts of the program on the robot are survived.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::support;

use std::io::Read;
use std::time::Duration;
use support::{Cell, config_for, simulator, wait_for};
use takt_link_rtde::RtdeError;
use takt_link_rtde::arm::{Mission, MissionThread, PROGRAM, Step, Target, upload_program};
use takt_link_rtde::sim::{Fault, RuntimeState};

fn refusal(text: &str) -> String {
    Mission::from_toml(text).unwrap_err().to_string()
}

#[test]
fn bad_missions_are_refused_with_the_way_out() {
    assert!(refusal("name = \"x\"\nsteps = []").contains("at least one"));
    let unknown = refusal("name = \"x\"\nspeed = 3\nsteps = []");
    assert!(unknown.contains("line 2") && unknown.contains("speed_rad_s"), "{unknown}");
    let name = refusal("name=\"x\"\nwaypoints_deg.home=[0,0,0,0,0,0]\n[[steps]]\ndo=\"move\"\nto=\"hoem\"");
    assert!(name.contains("step 1") && name.contains("hoem") && name.contains("home"), "{name}");
    let step = |step: &str| refusal(&format!("name=\"x\"\n[[steps]]\n{step}"));
    assert!(step("do=\"dance\"").contains("dance"));
    assert!(step("do=\"dwell\"\nseconds=-1.0").contains("seconds"));
    assert!(step("do=\"dwell\"\nseconds=nan").contains("seconds"));
    assert!(step("do=\"suction\"\non=true\nforce=1").contains("force"));
    assert!(step("do=\"move\"\nto=[0,0,0,0,0,400]").contains("400"));
    assert!(step("do=\"move\"\nto=[0,0,0,0,0,nan]").contains("NaN"));
    assert!(step("do=\"move\"\nto=[0,0,0,0,0,0]\nspeed_rad_s=0.0").contains("speed_rad_s"));
    assert!(
        step("do=\"move\"\nto=[0,0,0,0,0]").contains("step") || step("do=\"move\"\nto=[0]").contains("to")
    );
}

fn back_and_forth() -> Mission {
    let there = |angle: f64| Step::Move {
        to: Target::JointsDeg([angle, -90.0, -90.0, -90.0, 90.0, 0.0]),
        speed_rad_s: None,
        acceleration_rad_s2: None,
    };
    Mission {
        name: "back-and-forth".to_owned(),
        speed_rad_s: 2.0,
        acceleration_rad_s2: 8.0,
        waypoints_deg: Default::default(),
        steps: vec![there(40.0), there(-40.0)],
    }
}

#[test]
fn nothing_moves_before_the_first_heartbeat() {
    let simulator = simulator();
    let config = config_for(&simulator);
    let mission = MissionThread::start(back_and_forth(), config.clone()).unwrap();
    wait_for("connected", || mission.progress().connected.then_some(()));
    let cycle = simulator.state().cycles;
    let later =
        wait_for("more cycles", || Some(simulator.state()).filter(|state| state.cycles > cycle + 200));
    assert_eq!(later.tcp_way_m, 0.0);
    let mut cell = Cell::open(&config);
    cell.beat_until_sim("it moves", &simulator, |state| state.tcp_way_m > 0.0);
}

#[test]
fn a_program_that_starts_afresh_gets_its_step_again() {
    let simulator = simulator();
    let config = config_for(&simulator);
    let mut cell = Cell::open(&config);
    let mission = MissionThread::start(back_and_forth(), config).unwrap();
    for round in 1..=3 {
        cell.beat_until_sim("it moves", &simulator, |state| state.tcp_speed != [0.0; 6]);
        simulator.inject(Fault::Stop);
        let stopped =
            cell.beat_until_sim("it stops", &simulator, |state| state.runtime == RuntimeState::Stopped);
        assert_eq!(stopped.joint_speeds_rad_s, [0.0; 6]);
        let before = mission.progress().steps_finished;
        simulator.inject(Fault::Play);
        wait_for("the mission goes on", || {
            cell.beat();
            (mission.progress().steps_finished > before).then_some(round)
        });
    }
}

#[test]
fn the_mission_survives_a_lost_link() {
    let simulator = simulator();
    let config = config_for(&simulator);
    let mut cell = Cell::open(&config);
    let mission = MissionThread::start(back_and_forth(), config).unwrap();
    wait_for("a step", || {
        cell.beat();
        (mission.progress().steps_finished > 0).then_some(())
    });
    simulator.inject(Fault::DropLinks);
    wait_for("the loss is noticed", || {
        cell.beat();
        mission.progress().last_problem
    });
    let before = mission.progress().steps_finished;
    wait_for("more steps", || {
        cell.beat();
        // The watchdog may have ended the program while the link was down.
        if simulator.state().runtime == RuntimeState::Stopped {
            simulator.inject(Fault::Play);
        }
        (mission.progress().steps_finished > before + 1).then_some(())
    });
}

#[test]
fn the_program_uses_the_registers_that_the_mission_writes() {
    for line in [
        "read_input_integer_register(25)",
        "read_input_integer_register(26)",
        "write_output_integer_register(24, takt_number)",
        "write_output_integer_register(25, takt_number)",
        "read_input_float_register(30)",
        "read_input_float_register(31)",
        "rtde_set_watchdog(\"input_int_register_24\", 10, \"stop\")",
    ] {
        assert!(PROGRAM.contains(line), "{line}");
    }
    let opened = PROGRAM.lines().map(str::trim).filter(|line| line.ends_with(':') && !line.starts_with('#'));
    let opened = opened.filter(|line| !line.starts_with("el")).count();
    let closed = PROGRAM.lines().filter(|line| line.trim() == "end").count();
    assert_eq!(opened, closed, "every block of the script ends");
}

#[test]
fn upload_sends_one_definition() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
        text
    });
    let sent = upload_program("127.0.0.1", port, PROGRAM, Duration::from_secs(10)).unwrap();
    let text = reader.join().unwrap();
    assert_eq!(text.len(), sent);
    let outer: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with(' ')).collect();
    assert_eq!(outer, ["def takt_program():", "end"]);
    let nobody = upload_program("127.0.0.1", port, PROGRAM, Duration::from_secs(1));
    assert!(matches!(nobody, Err(RtdeError::Connect { .. })));
}
