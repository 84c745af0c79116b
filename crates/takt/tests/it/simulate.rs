//! `takt simulate`: a controller for other clients.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;

use takt::{Beside, PATIENCE, takt as run};

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap_or_else(|e| panic!("{address}: {e}"));
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn the_simulator_names_its_ports_and_answers() {
    let mut simulator = Beside::start(run(["simulate", "--rtde-port", "0", "--dashboard-port", "0"]));
    let ports = simulator.line("stdout", "RTDE: ");
    let (rtde, dashboard) = ports.split_once(", dashboard: ").unwrap();

    // RTDE_REQUEST_PROTOCOL_VERSION: size 5, 'V', version 2; the answer is size 4, 'V', accepted.
    let mut stream = connect(rtde);
    stream.write_all(&[0, 5, b'V', 0, 2]).unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [0, 4, b'V', 1]);
    // Version 9 does not exist.
    let mut stream = connect(rtde);
    stream.write_all(&[0, 5, b'V', 0, 9]).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [0, 4, b'V', 0]);

    let mut stream = connect(dashboard);
    let mut greeting = [0; 9];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"Connected");

    simulator.signal(Signal::INT);
    assert_eq!(simulator.end().code(), Some(0), "{}", simulator.output("stderr"));
}
