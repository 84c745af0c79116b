//! A robot that does what it is instructed, for tests of the monitor without a controller.
#![allow(dead_code, reason = "each test file uses a part of it")]

use takt_link_rtde::RobotState;
use takt_link_rtde::arm::registers as reg;
use takt_link_rtde::client::SendOutcome;
use takt_robot_cell::ssm::{Decision, Inputs, Monitor};

pub struct Obedient {
    heartbeat: i32,
}

impl Obedient {
    pub fn new() -> Self {
        Self { heartbeat: 1000 }
    }

    fn challenge(&self) -> i32 {
        1 + self.heartbeat / 256
    }

    /// The next packet, received at that time.
    pub fn packet(&self, robot: &mut RobotState, received_ns: u64) {
        robot.sequence += 1;
        (robot.received_ns, robot.measured_ns) = (received_ns, received_ns);
        (robot.heartbeat_echo, robot.heartbeat_echo_ns) = (self.heartbeat, received_ns);
        (robot.script_echo, robot.script_echo_ns) = (self.heartbeat, received_ns);
        robot.script_answer = reg::answer(self.challenge());
        robot.script_guard = reg::GUARD_ARMED;
    }

    /// A job: the decision, sent.
    pub fn decide(&mut self, monitor: &mut Monitor, inputs: &Inputs<'_>) -> Decision {
        let decision = monitor.decide(inputs);
        self.heartbeat += 1;
        let challenge = self.challenge();
        monitor.commanded(
            self.heartbeat,
            challenge,
            decision.speed_fraction,
            inputs.now_ns,
            SendOutcome::Sent,
        );
        decision
    }
}
