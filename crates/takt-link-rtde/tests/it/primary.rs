//! The primary client interface: the simulated controller reports its own calibration, and only
//! that.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use takt_link_rtde::kinematics::Model;
use takt_link_rtde::primary::read_kinematics;
use takt_link_rtde::sim::{Calibration, SimConfig, Simulator};

const PATIENCE: Duration = Duration::from_secs(20);

fn calibrated() -> SimConfig {
    let calibration = Calibration {
        theta_rad: [1e-4, -2e-4, 3e-4, 0.0, 0.0, 1e-3],
        a_m: [0.0, 4e-4, -3e-4, 0.0, 0.0, 0.0],
        d_m: [2e-4, 0.5, -0.5, 1e-4, 0.0, 0.0],
        alpha_rad: [1e-4, 0.0, 0.0, -1e-4, 0.0, 0.0],
    };
    SimConfig { model: Model::Ur5e, calibration, ..SimConfig::on_free_ports() }
}

#[test]
fn the_calibration_of_the_simulated_arm_is_read() {
    let config = calibrated();
    let simulator = Simulator::start(config.clone()).unwrap();
    let address = simulator.primary_address();
    // A client that talks and one that leaves at once are no hindrance.
    let mut talker = TcpStream::connect(address).unwrap();
    talker.write_all(b"def evil():\n movej([0,0,0,0,0,0])\nend\n").unwrap();
    drop(TcpStream::connect(address).unwrap());
    let info = read_kinematics(&address.ip().to_string(), address.port(), PATIENCE).unwrap();
    assert_eq!(info.arm(&Model::Ur5e.arm()), config.arm());
    // Its own pose agrees with what it reports: the calibration is that of the arm that moves.
    let state = simulator.state();
    let tcp = takt_link_rtde::kinematics::pose_from_vector(&config.tcp);
    let pose = info.arm(&Model::Ur5e.arm()).forward(&state.joints_rad, &tcp);
    let reported = takt_link_rtde::kinematics::pose_from_vector(&state.tcp_pose);
    assert!((pose.translation.vector - reported.translation.vector).norm() < 1e-9);
    assert_eq!(state.moves_finished, 0, "what is written to this port is not executed");
}

#[test]
fn a_port_that_is_something_else_is_said_to_be() {
    let simulator = Simulator::start(SimConfig::on_free_ports()).unwrap();
    let dashboard = simulator.dashboard_address();
    let error = read_kinematics(&dashboard.ip().to_string(), dashboard.port(), PATIENCE).unwrap_err();
    assert!(error.to_string().contains("client interface"), "{error}");
    let rtde = simulator.rtde_address();
    let error = read_kinematics(&rtde.ip().to_string(), rtde.port(), Duration::from_millis(300)).unwrap_err();
    assert!(error.to_string().contains("within 300 ms"), "{error}");
}
