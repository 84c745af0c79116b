//! Connection to a robot (`[robot.rtde]`).

use serde::{Deserialize, Serialize};
use std::time::Duration;

use takt_rt::config::SettingError;

/// Connection to the robot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RtdeConfig {
    /// Robot's name or address. Default `127.0.0.1`: the simulator. A real robot belongs on a
    /// network of its own; RTDE has no authentication.
    pub host: String,
    /// RTDE port. Default 30004, fixed on a real robot.
    pub port: u16,
    /// Output packets per second. Default 500, an e-Series controller's cycle and the safety job's
    /// rate; a CB-series controller gives at most 125.
    pub frequency_hz: f64,
    /// Time for connecting and for every answer of the set-up. Default 1000 ms: a controller that
    /// boots answers late, a robot that is not there should be reported soon.
    pub connect_timeout_ms: u64,
    /// Silence after which the link counts as lost. Default 100 ms: 50 missing packets at 500 Hz.
    /// The safety job judges the age of the state by itself, every cycle, and stops long before.
    pub silence_timeout_ms: u64,
    /// First pause before connecting again. Default 50 ms; it doubles with every failure.
    pub reconnect_min_ms: u64,
    /// Longest pause before connecting again. Default 2000 ms: a rebooted robot is back soon
    /// enough, and its boot is not disturbed by connection storms.
    pub reconnect_max_ms: u64,
}

impl Default for RtdeConfig {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 30004,
            frequency_hz: 500.0,
            connect_timeout_ms: 1000,
            silence_timeout_ms: 100,
            reconnect_min_ms: 50,
            reconnect_max_ms: 2000,
        }
    }
}

impl RtdeConfig {
    /// Judges the values.
    ///
    /// # Errors
    /// [`SettingError`] names the key and what it accepts.
    pub fn check(&self) -> Result<(), SettingError> {
        let refuse = |key: &str, received: String, accepted: &str| {
            Err(SettingError::value(key, received, format!("accepted: {accepted}")))
        };
        if !(1.0..=500.0).contains(&self.frequency_hz) {
            return refuse("frequency_hz", self.frequency_hz.to_string(), "1 to 500 (CB-series: to 125)");
        }
        let times = [
            ("connect_timeout_ms", self.connect_timeout_ms),
            ("silence_timeout_ms", self.silence_timeout_ms),
            ("reconnect_min_ms", self.reconnect_min_ms),
            ("reconnect_max_ms", self.reconnect_max_ms),
        ];
        for (key, value) in times {
            if !(1..=60_000).contains(&value) {
                return refuse(key, value.to_string(), "1 to 60000");
            }
        }
        if self.reconnect_max_ms < self.reconnect_min_ms {
            return refuse(
                "reconnect_max_ms",
                self.reconnect_max_ms.to_string(),
                "at least reconnect_min_ms",
            );
        }
        Ok(())
    }

    pub(crate) const fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }
}
