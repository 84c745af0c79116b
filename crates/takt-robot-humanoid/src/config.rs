//! Configuration of the motion controller.

#![deny(missing_docs)]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_link_ethercat::control::{ClockConfig, ControlConfig, MAX_DEVICES, Sync0};
use takt_rt::config::{SettingError, within};

use crate::safety::SafetyConfig;
use crate::topology::{self, Device, DriveLayout, PAPER_DEVICES};

/// The humanoid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HumanoidConfig {
    /// Cycles a second. 1000, as the paper.
    pub rate_hz: f64,
    /// Devices of the built-in humanoid; counts only where `device` lists none. 59, as the paper.
    pub devices: usize,
    /// The devices in the order of the wire. Empty: the built-in humanoid.
    #[serde(rename = "device", skip_serializing_if = "Vec::is_empty")]
    pub list: Vec<Device>,
    /// Places of a drive's objects.
    pub layout: DriveLayout,
    /// Sync0 of all drives: they act at their distributed clock's pulse. Absent: when a frame
    /// passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync0: Option<Sync0>,
    /// Steps a second of the walk. 0.8: a calm walk.
    pub walk_hz: f64,
    /// Time in which joints go from where they stand when they are enabled over to the walk,
    /// seconds. 2.
    pub ramp_s: f64,
    /// When to stop.
    pub safety: SafetyConfig,
    /// The control interface. Its `devices` are filled in from the list here.
    pub link: ControlConfig,
}

impl Default for HumanoidConfig {
    fn default() -> Self {
        Self {
            rate_hz: 1000.0,
            devices: PAPER_DEVICES,
            list: Vec::new(),
            layout: DriveLayout::default(),
            sync0: None,
            walk_hz: 0.8,
            ramp_s: 2.0,
            safety: SafetyConfig::default(),
            link: ControlConfig::default(),
        }
    }
}

impl HumanoidConfig {
    /// The period.
    pub fn period(&self) -> Duration {
        Duration::try_from_secs_f64(1.0 / self.rate_hz).unwrap_or(Duration::MAX)
    }

    fn cycle_ns(&self) -> u32 {
        u32::try_from(self.period().as_nanos()).unwrap_or(u32::MAX)
    }

    /// The devices in the order of the wire.
    pub fn devices(&self) -> Vec<Device> {
        if self.list.is_empty() { topology::humanoid(self.devices) } else { self.list.clone() }
    }

    /// The control interface's configuration with these devices.
    pub fn control(&self) -> ControlConfig {
        let devices = self.devices().iter().map(|device| device.link(&self.layout, self.sync0)).collect();
        let clock = ClockConfig { cycle_ns: Some(self.cycle_ns()), ..self.link.clock.clone() };
        ControlConfig { devices, clock, ..self.link.clone() }
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        within("rate_hz", self.rate_hz, 1.0, 10_000.0)?;
        within("walk_hz", self.walk_hz, 0.0, 5.0)?;
        within("ramp_s", self.ramp_s, 0.0, 60.0)?;
        // Before they are made: each takes some hundred bytes, and one segment has no more
        // addresses in one frame.
        within("devices", self.devices as f64, 1.0, MAX_DEVICES as f64)?;
        within("device (number of entries)", self.list.len() as f64, 0.0, MAX_DEVICES as f64)?;
        if !self.link.devices.is_empty() {
            let way_out = "devices are listed as [[device]]; omit this";
            return Err(SettingError::conflict("link.devices", way_out));
        }
        if let Some(given) = self.link.clock.cycle_ns.filter(|&given| given != self.cycle_ns()) {
            let (rate_hz, cycle_ns) = (self.rate_hz, self.cycle_ns());
            let way_out =
                format!("rate_hz = {rate_hz} makes the cycle {cycle_ns} ns; omit this, or change rate_hz");
            return Err(SettingError::value("link.clock.cycle_ns", given, way_out));
        }
        topology::validate(&self.devices(), &self.layout)?;
        self.safety.validate()?;
        self.control().validate().map_err(|error| error.within_section("link."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_cycle_than_the_motions_is_refused() {
        let of = |text: &str| toml::from_str::<HumanoidConfig>(text).unwrap();
        let refused =
            of("rate_hz = 500\n[link.clock]\ncycle_ns = 1000000").validate().unwrap_err().to_string();
        assert!(
            refused.contains("link.clock.cycle_ns = 1000000") && refused.contains("2000000 ns"),
            "{refused}"
        );
        for text in ["rate_hz = 500\n[link.clock]\ncycle_ns = 2000000", "rate_hz = 500"] {
            of(text).validate().unwrap();
            assert_eq!(of(text).control().clock.cycle_ns, Some(2_000_000));
        }
    }
}
