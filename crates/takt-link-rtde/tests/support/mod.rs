//! Common parts of the tests: a simulator and a link on free ports, and waiting for a condition.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::time::{Duration, Instant};
use takt_link_rtde::client::{Commander, Link, Opened, RtdeConfig};
use takt_link_rtde::sim::{SimConfig, SimState, Simulator};
use takt_link_rtde::{Command, RobotState};
use takt_rt::exchange::Reader;

/// Long enough for a loaded machine; a condition that comes ends the wait at once.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "never came: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn simulator() -> Simulator {
    // 1 Hz: on a loaded machine a test, too, may fall silent for longer than a safety job would.
    Simulator::start(SimConfig { watchdog_min_hz: 1.0, ..SimConfig::on_free_ports() }).unwrap()
}

pub fn config_for(simulator: &Simulator) -> RtdeConfig {
    let address = simulator.rtde_address();
    RtdeConfig {
        host: address.ip().to_string(),
        port: address.port(),
        // On a machine where many tests share few cores the simulator may be kept from running for
        // a while.
        silence_timeout_ms: 2000,
        connect_timeout_ms: 10_000,
        reconnect_min_ms: 5,
        reconnect_max_ms: 20,
        ..RtdeConfig::default()
    }
}

/// A link with one reader, and the heartbeat that a safety job would send.
pub struct Cell {
    pub link: Link,
    pub commander: Commander,
    pub reader: Reader<RobotState>,
    pub command: Command,
}

impl Cell {
    pub fn open(config: &RtdeConfig) -> Self {
        let Opened { link, commander, mut states, .. } = Link::open(config, 1, 0).unwrap();
        let reader = states.pop().unwrap();
        let command = Command {
            speed_fraction: 1.0,
            digital_outputs: 0,
            digital_outputs_mask: 0,
            heartbeat: 0,
            challenge: 1,
        };
        Self { link, commander, reader, command }
    }

    pub fn state(&mut self) -> RobotState {
        *self.reader.read().value
    }

    /// One cycle of a safety job.
    pub fn beat(&mut self) -> takt_link_rtde::client::SendOutcome {
        self.command.heartbeat += 1;
        self.command.challenge = 1 + self.command.heartbeat / 50;
        self.commander.send(&self.command)
    }

    /// Beats until the condition holds.
    pub fn beat_until(&mut self, what: &str, mut holds: impl FnMut(&RobotState) -> bool) -> RobotState {
        wait_for(what, || {
            self.beat();
            let state = self.state();
            holds(&state).then_some(state)
        })
    }

    /// Beats until the simulator is in a state.
    pub fn beat_until_sim(
        &mut self,
        what: &str,
        simulator: &Simulator,
        mut holds: impl FnMut(&SimState) -> bool,
    ) -> SimState {
        wait_for(what, || {
            self.beat();
            let state = simulator.state();
            holds(&state).then_some(state)
        })
    }
}
