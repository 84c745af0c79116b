//! The safety job's link against the simulated controller.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::support;

use std::time::Duration;
use support::{Cell, config_for, simulator, wait_for};
use takt_link_rtde::arm::{Mission, MissionThread};
use takt_link_rtde::client::{Link, LinkEvent, RtdeConfig, SendOutcome};
use takt_link_rtde::dashboard::Dashboard;
use takt_link_rtde::sim::{Fault, RuntimeState, SimConfig, Simulator, WatchdogAction};
use takt_link_rtde::{RobotMode, RtdeError, SafetyMode};

#[test]
fn state_flows_and_commands_come_back() {
    let simulator = simulator();
    let mut cell = Cell::open(&config_for(&simulator));
    assert_eq!(cell.link.controller_version().map(|version| version.major), Some(5));
    cell.command.speed_fraction = 0.25;
    (cell.command.digital_outputs, cell.command.digital_outputs_mask) = (0b010, 0b111);
    let state = cell.beat_until("speed and light are taken over", |state| {
        state.speed_fraction == 0.25 && state.digital_outputs & 0b111 == 0b010
    });
    assert!(state.connected && state.program_running);
    assert_eq!((state.robot_mode, state.safety_mode), (RobotMode::Running, SafetyMode::Normal));
    assert!(state.heartbeat_echo > 0 && state.heartbeat_echo <= cell.command.heartbeat);
    assert!(state.received_ns > 0 && state.sequence > 0 && state.controller_s > 0.0);
    // Outputs outside the mask keep their values.
    (cell.command.digital_outputs, cell.command.digital_outputs_mask) = (0b101, 0b001);
    cell.beat_until("only the masked light changes", |state| state.digital_outputs & 0b111 == 0b011);
    assert_eq!(simulator.state().slider, 0.25);
}

#[test]
fn every_packet_is_counted_and_controller_time_goes_on() {
    let simulator = simulator();
    let mut cell = Cell::open(&config_for(&simulator));
    let first = cell.beat_until("a state", |state| state.sequence > 0);
    let later = cell.beat_until("more states", |state| state.sequence >= first.sequence + 50);
    let cycles = (later.controller_s - first.controller_s) * 500.0;
    // One packet per cycle; the simulator may send one for several cycles that it makes up for.
    assert!(cycles.round() as u64 >= later.sequence - first.sequence);
}

#[test]
fn the_arm_slows_with_the_slider_and_stopping_takes_way() {
    let simulator = simulator();
    let config = config_for(&simulator);
    let mut cell = Cell::open(&config);
    let mission = MissionThread::start(Mission::pick_and_place().unwrap(), config).unwrap();
    cell.beat_until("the arm moves fast", |state| {
        let [x, y, z, ..] = state.tcp_speed;
        (x * x + y * y + z * z).sqrt() > 0.3
    });
    cell.command.speed_fraction = 0.0;
    let asked = simulator.state();
    let stopped = cell.beat_until_sim("standstill", &simulator, |state| {
        state.speed_fraction == 0.0 && state.tcp_speed == [0.0; 6]
    });
    let way_m = stopped.tcp_way_m - asked.tcp_way_m;
    assert!(way_m > 0.01, "an arm at speed does not stop on the spot, it took {way_m} m");
    let cycle = stopped.cycles;
    let later =
        cell.beat_until_sim("some cycles at standstill", &simulator, |state| state.cycles > cycle + 50);
    assert_eq!(later.tcp_way_m, stopped.tcp_way_m);
    assert_eq!(later.runtime, RuntimeState::Playing, "the program goes on when the slider does");
    cell.command.speed_fraction = 1.0;
    wait_for("the mission goes on", || {
        cell.beat();
        (mission.progress().steps_finished >= 3).then_some(())
    });
}

#[test]
fn the_mission_picks_and_places() {
    let simulator = simulator();
    let config = config_for(&simulator);
    let mut cell = Cell::open(&config);
    let mission = MissionThread::start(Mission::pick_and_place().unwrap(), config).unwrap();
    let holding = cell.beat_until_sim("the gripper sucks", &simulator, |state| state.suction);
    assert!((holding.tcp_pose[2] - 0.05).abs() < 0.05, "it picks near the table: {:?}", holding.tcp_pose);
    assert_eq!(holding.digital_outputs & 0xff, 0b100, "suction leaves the lights alone");
    wait_for("a whole cycle", || {
        cell.beat();
        (mission.progress().cycles_finished > 0).then_some(())
    });
    assert!(simulator.state().moves_finished >= 8);
}

#[test]
fn a_silent_client_stops_the_arm() {
    let simulator = simulator();
    let config = config_for(&simulator);
    let mut cell = Cell::open(&config);
    let _mission = MissionThread::start(Mission::pick_and_place().unwrap(), config).unwrap();
    cell.beat_until_sim("the arm moves", &simulator, |state| state.tcp_speed != [0.0; 6]);
    assert!(simulator.state().watchdog_armed);
    // From here on: no heartbeat, though the connection is up.
    let paused = wait_for("the watchdog ends the program", || {
        let state = simulator.state();
        (state.runtime == RuntimeState::Stopped).then_some(state)
    });
    // As `takt_watchdog.script` leaves it for whoever presses play: red light, slider at its stop.
    assert_eq!((paused.slider, paused.digital_outputs & 0b111, paused.watchdog_armed), (0.0, 0b100, false));
    assert_eq!(paused.joint_speeds_rad_s, [0.0; 6]);
    assert_eq!(paused.watchdog_trips, 1);
    assert!(
        !wait_for("the state says so", || Some(cell.state()).filter(|state| !state.program_running))
            .program_running
    );
    let reported = wait_for("the controller says why", || {
        cell.link.events().into_iter().find(|event| matches!(event, LinkEvent::Message { .. }))
    });
    assert!(format!("{reported:?}").contains("watchdog"), "{reported:?}");
    // A heartbeat alone does not set the arm in motion: a person, or the dashboard, presses play.
    let cycle = paused.cycles;
    let still = cell.beat_until_sim("more cycles", &simulator, |state| state.cycles > cycle + 100);
    assert_eq!(still.runtime, RuntimeState::Stopped);
    let address = simulator.dashboard_address();
    let mut dashboard =
        Dashboard::connect(&address.ip().to_string(), address.port(), Duration::from_secs(10)).unwrap();
    dashboard.play().unwrap();
    cell.beat_until_sim("the arm moves again", &simulator, |state| state.tcp_speed != [0.0; 6]);
}

#[test]
fn the_watchdog_can_stop_the_program_and_resume_by_itself() {
    let simulator = Simulator::start(SimConfig {
        watchdog_action: WatchdogAction::Stop,
        watchdog_auto_resume: true,
        ..SimConfig::on_free_ports()
    })
    .unwrap();
    let mut cell = Cell::open(&config_for(&simulator));
    cell.beat_until_sim("armed", &simulator, |state| state.watchdog_armed);
    wait_for("the program stops", || (simulator.state().runtime == RuntimeState::Stopped).then_some(()));
    cell.beat_until_sim("the program plays again", &simulator, |state| {
        state.runtime == RuntimeState::Playing
    });
}

#[test]
fn a_dropped_link_is_reported_and_comes_back() {
    let simulator = simulator();
    let mut cell = Cell::open(&config_for(&simulator));
    let before = cell.beat_until("a state", |state| state.connected && state.sequence > 0);
    simulator.inject(Fault::RefuseLinks(true));
    simulator.inject(Fault::DropLinks);
    let lost = cell.beat_until("the loss is reported", |state| !state.connected);
    assert!(lost.sequence >= before.sequence);
    assert_eq!(lost.joints_rad, before.joints_rad, "the last known values stay");
    wait_for("the commander knows", || (cell.beat() == SendOutcome::Disconnected).then_some(()));
    simulator.inject(Fault::RefuseLinks(false));
    let back = cell.beat_until("states again", |state| state.connected);
    assert!(back.sequence > lost.sequence);
    cell.command.speed_fraction = 0.5;
    cell.beat_until("commands arrive again", |state| state.speed_fraction == 0.5);
    assert!(cell.link.connections() >= 2);
    let events = cell.link.events();
    let lost_at = events.iter().position(|event| matches!(event, LinkEvent::Lost { .. }));
    assert!(lost_at.is_some(), "{events:?}");
    assert!(matches!(events[0], LinkEvent::Connected { .. }));
}

#[test]
fn many_reconnects_leak_no_descriptor() {
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let simulator = simulator();
    let mut cell = Cell::open(&config_for(&simulator));
    // Other tests of this process open and close descriptors meanwhile: only growth with every
    // reconnect reports.
    let before = count();
    for round in 2..42 {
        simulator.inject(Fault::DropLinks);
        wait_for("a new connection", || {
            cell.beat();
            (cell.link.connections() >= round).then_some(())
        });
        cell.beat_until("states on it", |state| state.connected);
        cell.beat_until_sim("commands on it", &simulator, |state| state.clients == 1);
    }
    let grown = count().saturating_sub(before);
    assert!(grown < 120, "{grown} descriptors more after 40 reconnects (3 each would be a leak of all)");
}

#[test]
fn a_frozen_controller_counts_as_lost() {
    let simulator = simulator();
    let config = RtdeConfig { silence_timeout_ms: 300, ..config_for(&simulator) };
    let mut cell = Cell::open(&config);
    cell.beat_until("a state", |state| state.connected);
    simulator.inject(Fault::Freeze(true));
    cell.beat_until("the silence is reported", |state| !state.connected);
    let reason = wait_for("the reason", || {
        cell.link.events().into_iter().find_map(|event| match event {
            LinkEvent::Lost { reason, .. } => Some(reason),
            _ => None,
        })
    });
    assert!(reason.contains("300 ms"), "{reason}");
    simulator.inject(Fault::Freeze(false));
    cell.beat_until("back", |state| state.connected);
}

#[test]
fn packets_in_halves_arrive_whole() {
    let simulator = simulator();
    let mut cell = Cell::open(&config_for(&simulator));
    let first = cell.beat_until("a state", |state| state.connected);
    simulator.inject(Fault::SplitPackets(20));
    let state = cell.beat_until("states go on", |state| state.sequence > first.sequence + 60);
    assert!(state.connected);
    assert_eq!(cell.link.connections(), 1, "half a packet is no reason to reconnect");
}

#[test]
fn a_cut_packet_and_foreign_bytes_end_in_a_reconnect() {
    let simulator = simulator();
    let mut cell = Cell::open(&config_for(&simulator));
    cell.beat_until("a state", |state| state.connected);
    let faults = [
        Fault::CutPacket,
        Fault::RawBytes(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        Fault::RawBytes(vec![0, 2, b'U']),
        // A data packet of the recipe, but too short.
        Fault::RawBytes(vec![0, 6, b'U', 1, 0, 0]),
        // A recipe that nobody has set up.
        Fault::RawBytes(vec![0, 5, b'U', 99, 0]),
        Fault::RawBytes(vec![0, 4, b'U', 1]),
        Fault::RawBytes(vec![0, 3, b'U']),
    ];
    for (round, fault) in faults.into_iter().enumerate() {
        simulator.inject(fault.clone());
        wait_for("a reconnect", || {
            cell.beat();
            (cell.link.connections() >= round as u64 + 2).then_some(())
        });
        cell.beat_until("states again", |state| state.connected);
        let events = cell.link.events();
        assert!(events.iter().any(|event| matches!(event, LinkEvent::Lost { .. })), "{fault:?}: {events:?}");
    }
}

#[test]
fn stops_of_the_robot_show_in_the_state() {
    let simulator = simulator();
    let mut cell = Cell::open(&config_for(&simulator));
    cell.beat_until("running", |state| state.program_running);
    simulator.inject(Fault::ProtectiveStop);
    cell.beat_until("protective stop", |state| {
        state.safety_mode == SafetyMode::ProtectiveStop && !state.program_running
    });
    let address = simulator.dashboard_address();
    let mut dashboard =
        Dashboard::connect(&address.ip().to_string(), address.port(), Duration::from_secs(10)).unwrap();
    assert!(matches!(dashboard.play(), Err(RtdeError::Dashboard { .. })), "no play before it is unlocked");
    assert_eq!(dashboard.command("unlock protective stop").unwrap(), "Protective stop releasing");
    dashboard.play().unwrap();
    cell.beat_until("running again", |state| {
        state.safety_mode == SafetyMode::Normal && state.program_running
    });
    simulator.inject(Fault::EmergencyStop(true));
    cell.beat_until("emergency stop", |state| {
        state.safety_mode == SafetyMode::RobotEmergencyStop && state.robot_mode == RobotMode::PowerOff
    });
    simulator.inject(Fault::EmergencyStop(false));
    simulator.inject(Fault::PowerOn);
    cell.beat_until("powered", |state| state.robot_mode == RobotMode::Running && !state.program_running);
    simulator.inject(Fault::Play);
    cell.beat_until("running once more", |state| state.program_running);
    simulator.inject(Fault::PowerOff);
    cell.beat_until("off", |state| state.robot_mode == RobotMode::PowerOff);
}

#[test]
fn inputs_have_one_owner_until_it_leaves() {
    let simulator = simulator();
    let config = config_for(&simulator);
    let first = Cell::open(&config);
    match Link::open(&config, 1, 0) {
        Err(RtdeError::InUse { name }) => assert_eq!(name, "speed_slider_mask"),
        other => panic!("expected IN_USE, got {other:?}"),
    }
    drop(first);
    wait_for("the owner has left", || Link::open(&config, 1, 0).ok());
}

#[test]
fn a_missing_variable_is_named() {
    for (missing, direction) in [("actual_TCP_speed", "output"), ("speed_slider_fraction", "input")] {
        let simulator = Simulator::start(SimConfig {
            missing_variables: vec![missing.to_owned()],
            ..SimConfig::on_free_ports()
        })
        .unwrap();
        let error = Link::open(&config_for(&simulator), 1, 0)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(error.contains(missing) && error.contains(direction) && error.contains("5.12.2"), "{error}");
    }
}

#[test]
fn an_old_controller_is_refused() {
    for (version, accepted) in
        [([3, 8, 0, 1], false), ([5, 2, 0, 1], false), ([3, 15, 0, 1], true), ([10, 1, 0, 1], true)]
    {
        let simulator =
            Simulator::start(SimConfig { controller_version: version, ..SimConfig::on_free_ports() })
                .unwrap();
        let opened = Link::open(&config_for(&simulator), 1, 0);
        assert_eq!(opened.is_ok(), accepted, "{version:?}");
        assert!(accepted || matches!(opened, Err(RtdeError::ControllerTooOld { .. })));
    }
}

#[test]
fn nobody_there_is_a_clear_error() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = RtdeConfig { port: free.port(), ..RtdeConfig::default() };
    let error = Link::open(&config, 1, 0).err().unwrap();
    assert!(matches!(error, RtdeError::Connect { .. }));
    assert!(error.to_string().contains(&free.to_string()), "{error}");
}

#[test]
fn a_port_in_use_names_port_and_key() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let start =
        |config| Simulator::start(config).err().map(|error: RtdeError| error.to_string()).unwrap_or_default();
    let error = start(SimConfig { rtde_port: port, ..SimConfig::on_free_ports() });
    assert!(error.contains(&port.to_string()) && error.contains("rtde_port"), "{error}");
    let error = start(SimConfig { dashboard_port: port, ..SimConfig::on_free_ports() });
    assert!(error.contains(&port.to_string()) && error.contains("dashboard_port"), "{error}");
}

#[test]
fn settings_out_of_range_are_named() {
    let config =
        |text: &str| toml::from_str::<RtdeConfig>(text).unwrap().check().err().map(|e| e.to_string());
    assert_eq!(config(""), None);
    assert!(config("frequency_hz = 0.0").unwrap().contains("frequency_hz"));
    assert!(config("frequency_hz = nan").unwrap().contains("frequency_hz"));
    assert!(config("silence_timeout_ms = 0").unwrap().contains("silence_timeout_ms"));
    assert!(config("reconnect_max_ms = 10").unwrap().contains("reconnect_max_ms"));
    assert!(toml::from_str::<RtdeConfig>("prt = 3").unwrap_err().to_string().contains("prt"));
    let sim = |text: &str| toml::from_str::<SimConfig>(text).unwrap().check().err().map(|e| e.to_string());
    assert_eq!(sim(""), None);
    assert!(sim("address = \"0.0.0.0\"").unwrap().contains("loopback"));
    assert!(sim("slider_rate_per_s = nan").unwrap().contains("slider_rate_per_s"));
    assert!(sim("fifo_priority = 100").unwrap().contains("fifo_priority"));
    assert!(toml::from_str::<SimConfig>("autply = true").is_err());
}
