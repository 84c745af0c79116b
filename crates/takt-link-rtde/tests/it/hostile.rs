//! Hostile and careless clients against the simulated controller: it survives and serves the
//! others.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::support;

use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use support::{Cell, config_for, simulator, wait_for};
use takt_link_rtde::sim::Simulator;
use takt_link_rtde::wire::{FrameBuffer, Packet, PacketType, Reply, Request};

struct Raw {
    stream: TcpStream,
    frames: FrameBuffer,
}

impl Raw {
    fn connect(simulator: &Simulator) -> Self {
        let stream = TcpStream::connect(simulator.rtde_address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { stream, frames: FrameBuffer::new(65_535) }
    }

    fn send(&mut self, request: &Request<'_>) {
        let mut buffer = [0; 4096];
        let size = request.encode(&mut buffer).unwrap();
        self.stream.write_all(&buffer[..size]).unwrap();
    }

    /// Next packet that is no output values; `None` when the controller closes.
    fn reply(&mut self) -> Option<(PacketType, Vec<u8>)> {
        loop {
            while let Some(packet) = self.frames.next_packet().unwrap() {
                if packet.kind != PacketType::Data {
                    return Some((packet.kind, packet.payload.to_vec()));
                }
            }
            match self.frames.fill(|free| self.stream.read(free)) {
                Ok(1..) => {}
                _ => return None,
            }
        }
    }

    fn types(&mut self, request: &Request<'_>) -> (u8, String) {
        self.send(request);
        let (kind, payload) = self.reply().unwrap();
        match Reply::parse(Packet { kind, payload: &payload }).unwrap() {
            Reply::SetupInputs { recipe, types } | Reply::SetupOutputs { recipe, types } => {
                (recipe, types.to_owned())
            }
            other => panic!("{other:?}"),
        }
    }

    fn negotiated(simulator: &Simulator) -> Self {
        let mut raw = Self::connect(simulator);
        raw.send(&Request::ProtocolVersion(2));
        assert_eq!(raw.reply(), Some((PacketType::ProtocolVersion, vec![1])));
        raw
    }
}

#[test]
fn recipes_are_answered_as_a_controller_does() {
    let simulator = simulator();
    let mut raw = Raw::negotiated(&simulator);
    let outputs = |names| Request::SetupOutputs { frequency_hz: 125.0, names };
    assert_eq!(raw.types(&outputs("timestamp,actual_q,")), (1, "DOUBLE,VECTOR6D".to_owned()));
    assert_eq!(raw.types(&outputs("timestamp,nonsense")), (0, "DOUBLE,NOT_FOUND".to_owned()));
    assert_eq!(raw.types(&outputs("output_int_register_48")), (0, "NOT_FOUND".to_owned()));
    assert_eq!(raw.types(&outputs("output_int_register_047")), (0, "NOT_FOUND".to_owned()));
    assert_eq!(raw.types(&outputs("output_bit_register_64,joint_mode")), (1, "BOOL,VECTOR6INT32".to_owned()));
    assert_eq!(
        raw.types(&outputs("speed_slider_mask")),
        (0, "NOT_FOUND".to_owned()),
        "an input, not an output"
    );
    let inputs = |names| Request::SetupInputs { names };
    assert_eq!(
        raw.types(&inputs("input_int_register_23,standard_digital_output_mask,standard_digital_output,")),
        (1, "INT32,UINT8,UINT8".to_owned())
    );
    assert_eq!(raw.types(&inputs("input_int_register_23,speed_slider_mask")), (2, "INT32,UINT32".to_owned()));
    assert_eq!(raw.types(&inputs("actual_q")), (0, "NOT_FOUND".to_owned()));
    let mut other = Raw::negotiated(&simulator);
    assert_eq!(
        other.types(&inputs("input_int_register_23,input_int_register_24")),
        (0, "IN_USE,INT32".to_owned())
    );
    assert_eq!(other.types(&inputs("input_int_register_24")), (1, "INT32".to_owned()));
}

#[test]
fn other_protocol_versions_are_refused() {
    let simulator = simulator();
    let mut raw = Raw::connect(&simulator);
    raw.send(&Request::ProtocolVersion(1));
    assert_eq!(raw.reply(), Some((PacketType::ProtocolVersion, vec![0])));
    let mut hasty = Raw::connect(&simulator);
    hasty.send(&Request::Start);
    assert_eq!(hasty.reply().map(|(kind, _)| kind), Some(PacketType::Text));
    assert_eq!(hasty.reply(), None, "closed");
}

#[test]
fn malformed_packets_harm_nobody_else() {
    let simulator = simulator();
    let mut cell = Cell::open(&config_for(&simulator));
    let cases: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0, 0, b'V'],
        &[0, 2],
        &[0xff, 0xff, b'U'],
        &[0, 5, b'V', 0, 2, 0, 3, b'Q'],
        &[0, 5, b'V', 0, 2, 0, 20, b'U', 7, 1, 2],
        &[0, 5, b'V', 0, 2, 0, 9, b'U', 7, 1, 2, 3, 4, 5, 0, 12, b'O', 0, 0, 0, 0, 0, 0, 0, 0, 0xff],
    ];
    for bytes in cases {
        let mut raw = Raw::connect(&simulator);
        raw.stream.write_all(bytes).unwrap();
        raw.stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        let _ = raw.stream.read_to_end(&mut rest);
    }
    let before = cell.beat_until("states", |state| state.connected).sequence;
    let state = cell.beat_until("more states", |state| state.sequence > before + 20);
    assert!(state.connected);
    assert_eq!(cell.link.connections(), 1);
    assert!(simulator.state().packets_refused >= 5);
}

#[test]
fn half_a_request_is_waited_for() {
    let simulator = simulator();
    let mut raw = Raw::connect(&simulator);
    for byte in [0, 5, b'V', 0, 2] {
        let cycle = simulator.state().cycles;
        wait_for("a cycle", || (simulator.state().cycles > cycle + 1).then_some(()));
        raw.stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(raw.reply(), Some((PacketType::ProtocolVersion, vec![1])));
}

#[test]
fn values_that_are_no_fraction_or_too_few_leave_the_slider_alone() {
    let simulator = simulator();
    let mut raw = Raw::negotiated(&simulator);
    let (recipe, _) = raw.types(&Request::SetupInputs { names: "speed_slider_mask,speed_slider_fraction" });
    let mut values = [0_u8; 12];
    for fraction in [f64::NAN, -0.5, 1.5, f64::INFINITY] {
        values[..4].copy_from_slice(&1_u32.to_be_bytes());
        values[4..].copy_from_slice(&fraction.to_be_bytes());
        raw.send(&Request::Data { recipe, values: &values });
        assert_eq!(raw.reply().map(|(kind, _)| kind), Some(PacketType::Text), "it is reported");
    }
    raw.send(&Request::Data { recipe, values: &values[..11] });
    assert_eq!(raw.reply().map(|(kind, _)| kind), Some(PacketType::Text));
    // Mask 0: the value does not count.
    values[..4].copy_from_slice(&0_u32.to_be_bytes());
    values[4..].copy_from_slice(&0.1_f64.to_be_bytes());
    raw.send(&Request::Data { recipe, values: &values });
    raw.send(&Request::ControllerVersion);
    assert_eq!(raw.reply().map(|(kind, _)| kind), Some(PacketType::ControllerVersion));
    assert_eq!(simulator.state().slider, 0.0, "where the program left it at its start");
}

#[test]
fn a_client_that_does_not_read_loses_packets_not_the_cycle() {
    let simulator = simulator();
    let mut lazy = Raw::negotiated(&simulator);
    let all = ["actual_q"; 200].join(",");
    assert_eq!(lazy.types(&Request::SetupOutputs { frequency_hz: 500.0, names: &all }).0, 1);
    lazy.send(&Request::Start);
    let mut cell = Cell::open(&config_for(&simulator));
    let state = cell.beat_until_sim("packets are left out", &simulator, |state| state.packets_dropped > 10);
    assert_eq!(state.clients, 2);
    let before = cell.state().sequence;
    cell.beat_until("the other client is served", |state| state.sequence > before + 20);
}

#[test]
fn unknown_dashboard_commands_are_answered() {
    let simulator = simulator();
    let address = simulator.dashboard_address();
    let mut dashboard = takt_link_rtde::dashboard::Dashboard::connect(
        &address.ip().to_string(),
        address.port(),
        Duration::from_secs(30),
    )
    .unwrap();
    assert_eq!(dashboard.command("make coffee").unwrap(), "could not understand: 'make coffee'");
    assert_eq!(dashboard.command("robotmode").unwrap(), "Robotmode: RUNNING");
    assert_eq!(dashboard.command("load nothing.urp").unwrap(), "File not found: nothing.urp");
    assert!(dashboard.polyscope_version().unwrap().contains("5.12.2.1101534"));
    assert_eq!(dashboard.command("quit").unwrap(), "Disconnected");
    assert!(dashboard.command("robotmode").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn random_bytes_never_end_the_simulator(bytes in proptest::collection::vec(any::<u8>(), 1..400)) {
        static SIMULATOR: std::sync::LazyLock<Simulator> = std::sync::LazyLock::new(simulator);
        let mut negotiated = Raw::negotiated(&SIMULATOR);
        let _ = negotiated.stream.write_all(&bytes);
        let mut foreign = Raw::connect(&SIMULATOR);
        let _ = foreign.stream.write_all(&bytes);
        let mut dashboard = TcpStream::connect(SIMULATOR.dashboard_address()).unwrap();
        let _ = dashboard.write_all(&bytes);
        drop((negotiated, foreign, dashboard));
        let cycle = SIMULATOR.state().cycles;
        wait_for("the simulator goes on", || (SIMULATOR.state().cycles > cycle + 2).then_some(()));
    }
}
