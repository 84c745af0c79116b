//! Planted faults: what the controller, the wire or a foreign peer does wrong ends in a stop or an
//! error that says so.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use support::{patient, wait_for};
use takt_link_rtde::servo::ProgramState;
use takt_link_rtde::sim::{Fault, SimConfig};
use takt_link_rtde::wire::{ControllerVersion, FrameBuffer, PacketType, PacketWriter, Reply, Request, names};
use takt_link_rtde::{RobotMode, RtdeError, SafetyMode};
use takt_robot_servo::config::Pacing;
use takt_robot_servo::monitor::StopReason;
use takt_robot_servo::run::{Phase, simulated};
use takt_robot_servo::{RunningStream, ServoConfig, ServoError, start};
use takt_rt::ring::ring;

fn config() -> ServoConfig {
    ServoConfig { simulator: Some(simulated()), ..patient() }
}

fn streaming(config: &ServoConfig) -> RunningStream {
    let (producer, _records) = ring(1 << 12);
    let running = start(config, producer).unwrap();
    wait_for("the arm to move", || {
        let moves = running.simulator().unwrap().state().joint_speeds_rad_s[0].abs() > 0.05;
        (moves && running.phase() == Phase::Streaming).then_some(())
    });
    running
}

#[test]
fn what_the_controller_says_against_motion_stops_the_stream() {
    let _alone = crate::support::alone();
    for (fault, expected) in [
        (Fault::ProtectiveStop, StopReason::Safety { mode: SafetyMode::ProtectiveStop }),
        (Fault::EmergencyStop(true), StopReason::Safety { mode: SafetyMode::RobotEmergencyStop }),
        (Fault::PowerOff, StopReason::Robot { mode: RobotMode::PowerOff }),
        (Fault::Pause, StopReason::ProgramEnded),
        (Fault::Stop, StopReason::ProgramEnded),
        (Fault::DropLinks, StopReason::LinkLost),
        // No packet type of RTDE.
        (Fault::RawBytes(vec![0, 9, b'?', 1, 2, 3, 4, 5, 6]), StopReason::LinkLost),
        // A packet of another recipe's length.
        (Fault::RawBytes(vec![0, 6, b'U', 1, 2, 3]), StopReason::LinkLost),
        (Fault::CutPacket, StopReason::LinkLost),
    ] {
        let running = streaming(&config());
        running.simulator().unwrap().inject(fault.clone());
        wait_for("the stream to end", || running.is_finished().then_some(()));
        wait_for("the arm to rest", || {
            (running.simulator().unwrap().state().joint_speeds_rad_s == [0.0; 6]).then_some(())
        });
        let finished = running.wait().unwrap();
        assert_eq!(finished.reason, expected, "{fault:?}");
        // Where the connection is gone the program on the robot stops it, unseen from here.
        assert!(finished.at_rest || expected == StopReason::LinkLost, "{fault:?}: {finished:?}");
    }
}

#[test]
fn lost_packets_are_counted_and_the_stream_goes_on() {
    let _alone = crate::support::alone();
    let running = streaming(&config());
    let simulator = running.simulator().unwrap();
    simulator.inject(Fault::Freeze(true));
    let frozen_at = simulator.state().cycles;
    wait_for("twenty cycles", || (simulator.state().cycles > frozen_at + 20).then_some(()));
    simulator.inject(Fault::Freeze(false));
    let after = simulator.state().cycles;
    wait_for("some more", || (simulator.state().cycles > after + 200).then_some(()));
    assert_eq!(running.phase(), Phase::Streaming);
    let finished = running.stop().unwrap();
    assert_eq!(finished.reason, StopReason::Asked);
    let totals = finished.totals;
    assert!(totals.lost_packets >= 19, "{totals:?}");
    assert!(finished.missed >= 19, "the program on the robot missed as many commands: {finished:?}");
}

#[test]
fn silence_beyond_the_limit_stops_for_a_stale_state() {
    let _alone = crate::support::alone();
    let mut config = config();
    config.limits.stale_cycles = 30;
    config.limits.skipped_cycles = 500;
    // On a loaded machine the simulator may be late by itself: it only has to stop, and to say that
    // the state is old.
    let running = streaming(&config);
    running.simulator().unwrap().inject(Fault::Freeze(true));
    wait_for("the stream to stop", || (running.phase() != Phase::Streaming).then_some(()));
    running.simulator().unwrap().inject(Fault::Freeze(false));
    let finished = running.wait().unwrap();
    assert!(
        matches!(finished.reason, StopReason::Stale { .. } | StopReason::NotSent { .. }),
        "{:?}",
        finished.reason
    );
    assert!(finished.at_rest);
}

/// A peer that answers the first packet with `bytes`.
fn peer(bytes: Vec<u8>) -> ServoConfig {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = patient();
    config.link.port = listener.local_addr().unwrap().port();
    config.link.connect_timeout_ms = 2000;
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(&bytes);
        // Open until the client goes.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    config
}

#[test]
fn another_protocol_is_an_error() {
    let _alone = crate::support::alone();
    let refused = |bytes: Vec<u8>| {
        let (producer, _records) = ring(16);
        let begun = Instant::now();
        let error = start(&peer(bytes), producer).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(30));
        error
    };
    let mut reply = [0; 16];
    let size = Reply::ProtocolVersion { accepted: false }.encode(&mut reply).unwrap();
    let error = refused(reply[..size].to_vec());
    assert!(matches!(error, ServoError::Link(RtdeError::ProtocolRefused)), "{error}");
    assert!(error.to_string().contains("version 2"), "{error}");
    let error = refused(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());
    assert!(matches!(error, ServoError::Link(RtdeError::Wire(_))), "{error}");
    let error = refused(vec![0, 4, PacketType::Start as u8, 1]);
    assert!(matches!(error, ServoError::Link(RtdeError::UnexpectedReply { .. })), "{error}");
}

#[test]
fn another_program_or_an_old_controller_is_refused_with_the_way_out() {
    let _alone = crate::support::alone();
    let refused = |simulator: SimConfig| {
        // Elsewhere than in `simulator`, which takes the right program only.
        let simulator = takt_link_rtde::sim::Simulator::start(simulator).unwrap();
        let mut config = patient();
        config.link.port = simulator.rtde_address().port();
        config.link.connect_timeout_ms = 1000;
        let (producer, _records) = ring(16);
        start(&config, producer).unwrap_err().to_string()
    };
    let other = refused(SimConfig::on_free_ports());
    assert!(other.contains("output_int_register_30 is 0") && other.contains("load the script"), "{other}");
    let stopped = refused(SimConfig { autoplay: false, ..simulated() });
    assert!(stopped.contains("press play"), "{stopped}");
    let old = refused(SimConfig { controller_version: [5, 2, 0, 0], ..simulated() });
    assert!(old.contains("5.3"), "{old}");
    let lacking =
        refused(SimConfig { missing_variables: vec!["output_int_register_32".to_owned()], ..simulated() });
    assert!(lacking.contains("output_int_register_32") && lacking.contains("NOT_FOUND"), "{lacking}");
}

/// A controller that follows at once and whose time stamps are `stamp(packet)`.
fn clockwork(stamp: impl Fn(u64) -> f64 + Send + 'static) -> ServoConfig {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = patient();
    config.link.port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut frames = FrameBuffer::new(4096);
        let mut started = false;
        while !started {
            while let Some(packet) = frames.next_packet().unwrap() {
                let type_of = |name: &str| match name {
                    "actual_q" | "actual_qd" => "VECTOR6D",
                    "runtime_state" => "UINT32",
                    name if name.contains("double") || name == "timestamp" || name.contains("fraction") => {
                        "DOUBLE"
                    }
                    _ => "INT32",
                };
                let types = |list: &str| names(list).map(type_of).collect::<Vec<_>>().join(",");
                let mut buffer = [0; 1024];
                let size = match Request::parse(packet).unwrap() {
                    Request::ProtocolVersion(_) => {
                        Reply::ProtocolVersion { accepted: true }.encode(&mut buffer)
                    }
                    Request::ControllerVersion => {
                        let version = ControllerVersion { major: 5, minor: 12, bugfix: 0, build: 0 };
                        Reply::ControllerVersion(version).encode(&mut buffer)
                    }
                    Request::SetupOutputs { names, .. } => {
                        Reply::SetupOutputs { recipe: 1, types: &types(names) }.encode(&mut buffer)
                    }
                    Request::SetupInputs { names } => {
                        Reply::SetupInputs { recipe: 1, types: &types(names) }.encode(&mut buffer)
                    }
                    _ => {
                        started = true;
                        Reply::Start { accepted: true }.encode(&mut buffer)
                    }
                };
                stream.write_all(&buffer[..size.unwrap()]).unwrap();
            }
            if !started {
                frames.fill(|free| stream.read(free)).unwrap();
            }
        }
        stream.set_nonblocking(true).unwrap();
        let mut program = ProgramState::Waiting;
        for packet in 0_u64.. {
            if matches!(stream.read(&mut [0; 4096]), Ok(1..)) && program == ProgramState::Waiting {
                program = ProgramState::Following;
            }
            if packet > 350 {
                // Long after its clock went wrong.
                program = ProgramState::Asked;
            }
            let mut buffer = [0; 256];
            let size = PacketWriter::new(&mut buffer, PacketType::Data)
                .u8(1)
                .f64(stamp(packet))
                .doubles(&[0.0; 12])
                .i32(7)
                .i32(1)
                .u32(2)
                .f64(1.0)
                .i32(1)
                .i32(program.to_register())
                .i32(0)
                .i32(0)
                .finish()
                .unwrap();
            if stream.write_all(&buffer[..size]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    config
}

#[test]
fn a_controllers_clock_that_stands_runs_back_or_is_none_stops_the_stream() {
    let _alone = crate::support::alone();
    for pacing in [Pacing::Locked, Pacing::Free] {
        let wrong: [fn(u64) -> f64; 4] = [
            |packet| packet.min(300) as f64 * 0.002,
            |packet| if packet < 300 { 100.0 + packet as f64 * 0.002 } else { packet as f64 * 0.002 },
            |packet| if packet < 300 { packet as f64 * 0.002 } else { f64::NAN },
            |packet| packet as f64 * 0.002 + if packet < 300 { 0.0 } else { 5.0 },
        ];
        for (which, stamp) in wrong.into_iter().enumerate() {
            let mut config = clockwork(stamp);
            config.task.pacing = pacing;
            let (producer, _records) = ring(1 << 12);
            let running = start(&config, producer).unwrap();
            wait_for("the stream to end", || running.is_finished().then_some(()));
            let reason = running.wait().unwrap().reason;
            assert!(
                matches!(reason, StopReason::Clock { .. } | StopReason::Skipped { .. }),
                "{pacing:?}, clock {which}: {reason:?}"
            );
        }
    }
}
