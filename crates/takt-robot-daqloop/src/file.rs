//! The robot's file: the loop, and a run of it. Unknown keys are errors.

#![deny(missing_docs)]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_lab::Envelope;
use takt_link_daq::{FarEndSetup, LinkConfig, Waiting};
use takt_rt::config::{SettingError, within};
use takt_rt::placement::{self, CpuSet};
use takt_rt::policy::Policy;
use takt_rundir::Loss;
use takt_stats::TrendStop;

use crate::config::{AcquisitionConfig, PulseConfig, SavingConfig};
use crate::control::ControllerConfig;
use crate::error::DaqError;
use crate::plant::{Description, PlantConfig, Reference};

/// The shipped configuration.
pub const SHIPPED: &str = include_str!("../../../robots/daq.toml");

/// When a run ends before its time (`[stop]`): the DAQ paper's two criteria, and a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StopRules {
    /// After so many edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edges: Option<u64>,
    /// The first latency above this ends the run (the paper's sections 4.1 to 4.4: 75 us).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold_ns: Option<u64>,
    /// A maximum that has settled ends the run (section 4.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trend: Option<TrendStop>,
}

/// Limits of losses between output and input within the measured window; more losses fail the run,
/// and permitted ones are listed nevertheless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Losses {
    /// Edges that never came. 0: a wire from an output to an input loses none.
    pub max_lost_edges: u64,
}

/// The DAQ loop and a run of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DaqConfig {
    /// Name and claims.
    #[serde(flatten, skip_deserializing)]
    pub envelope: Envelope,
    /// Length of a run, seconds, when the command says nothing. 32: a
    /// PASS takes 30 s of evidence.
    pub seconds: f64,
    /// Deadline of an edge, microseconds. Absent: the loop has none, and the verdict is about
    /// nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<f64>,
    /// Edges that are kept one by one; all others are counted. 1,000,000: some ten seconds of a
    /// fast link, 60 MB while the run goes on, and a disk that a run of weeks does not fill.
    pub keep_edges: u64,
    /// Limits of losses between output and input.
    pub losses: Losses,
    /// Link between output and input.
    pub link: LinkConfig,
    /// The pulse train.
    pub pulse: PulseConfig,
    /// The task that measures.
    pub acquisition: AcquisitionConfig,
    /// The task that keeps and shows what was measured.
    pub saving: SavingConfig,
    /// The controller inside the loop. None, as in the paper's Table 1.
    pub controller: ControllerConfig,
    /// The plant that it steers.
    pub plant: PlantConfig,
    /// Reference to which it steers the plant. The constant 1, as in the paper.
    pub reference: Reference,
    /// CPUs taken offline for the run, where the kernel allows it, and brought back after it, also
    /// after a kill (the paper's Table 3: "Cores 2 & 3 disabled"). CPUs that stay online are
    /// reported; a strict run is then refused. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offline_cpus: Option<CpuSet>,
    /// When the run ends before its time.
    pub stop: StopRules,
}

impl Default for DaqConfig {
    fn default() -> Self {
        Self {
            envelope: Envelope::named("daq"),
            seconds: 32.0,
            deadline_us: None,
            keep_edges: 1_000_000,
            losses: Losses::default(),
            link: LinkConfig::default(),
            pulse: PulseConfig::default(),
            acquisition: AcquisitionConfig::default(),
            saving: SavingConfig::default(),
            controller: ControllerConfig::default(),
            plant: PlantConfig::default(),
            reference: Reference::default(),
            offline_cpus: None,
            stop: StopRules::default(),
        }
    }
}

impl DaqConfig {
    /// The paper's criteria, as the statistics know them.
    pub(crate) fn stop_config(&self) -> takt_stats::StopConfig {
        takt_stats::StopConfig { threshold_ns: self.stop.threshold_ns, trend: self.stop.trend }
    }

    /// The deadline, nanoseconds.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.deadline_us.map(|us| (us * 1e3).round() as u64)
    }

    /// The run in a few words.
    pub fn label(&self) -> String {
        let saving = if self.saving.enabled { "saving on" } else { "saving off" };
        let controller = match self.controller.kind() {
            "none" => String::new(),
            kind => format!(", {kind}"),
        };
        let cpus = self.acquisition.cpus.map(|cpus| format!(" on CPU {cpus}")).unwrap_or_default();
        format!("{}, {}{cpus}, {saving}{controller}", self.link.kind(), self.acquisition.policy)
    }

    /// Refuses to run when the kernel grants less than asked.
    pub fn make_strict(&mut self) {
        self.acquisition.strict = true;
        match &mut self.link {
            LinkConfig::Udp(link) => link.echo.strict = true,
            LinkConfig::Pty(link) => link.echo.strict = true,
            LinkConfig::Eventfd(link) => link.echo.strict = true,
            LinkConfig::Simulated(_) | LinkConfig::Comedi(_) | LinkConfig::Iio(_) => {}
        }
    }

    /// The far end's process, for a link with a plant.
    pub(crate) fn far_end(&self) -> Result<FarEndSetup, DaqError> {
        let description = Description { plant: self.plant.clone(), reference: self.reference };
        let description = serde_json::to_value(description)
            .map_err(|error| DaqError::config("plant", "a plant", error.to_string()))?;
        Ok(FarEndSetup { description, lock_memory: self.acquisition.lock_memory })
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`DaqError`] with the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), DaqError> {
        within("seconds", self.seconds, 0.01, 40.0 * 86_400.0)?;
        if let Some(us) = self.deadline_us {
            within("deadline_us", us, 0.001, 60e6)?;
        }
        within("losses.max_lost_edges", self.losses.max_lost_edges as f64, 0.0, Loss::MAX_ALLOWED)?;
        within("keep_edges", self.keep_edges as f64, 0.0, 1e9)?;
        self.link.validate()?;
        self.acquisition.policy.validate()?;
        self.saving.policy.validate()?;
        self.pulse.validate()?;
        let rings = [("acquisition.ring", self.acquisition.ring), ("saving.ring", self.saving.ring)];
        for (key, ring) in rings {
            // A million edges is a minute at the fastest rate of the paper, and tens of megabytes.
            if !(2..=1 << 20).contains(&ring) {
                return Err(DaqError::config(key, ring, "accepted are 2 to 1048576 records"));
            }
        }
        if !(Duration::from_micros(10)..=Duration::from_secs(10)).contains(&self.saving.period) {
            let given = takt_rt::duration::format(self.saving.period);
            return Err(DaqError::config("saving.period", given, "accepted are 10us to 10s"));
        }
        if self.stop.edges == Some(0) {
            return Err(DaqError::config("stop.edges", 0, "accepted are numbers from 1"));
        }
        let stop = self.stop_config().validate();
        stop.map_err(|error| SettingError::conflict("stop", error.to_string()))?;
        self.reference.validate()?;
        self.plant.validate()?;
        self.controller.validate(&self.plant)?;
        self.check_starvation()
    }

    /// Refuses a task that spins for ever above what it waits for.
    fn check_starvation(&self) -> Result<(), DaqError> {
        let policy = self.acquisition.policy;
        let spins = match policy {
            Policy::Fifo { .. } | Policy::RoundRobin { .. } => true,
            // Reservations are throttled, and SCHED_OTHER is preempted: both let others in.
            Policy::Deadline { .. } | Policy::Other { .. } => false,
        };
        if !(spins && self.link.waiting() == Waiting::Poll && self.link.needs_other_threads()) {
            return Ok(());
        }
        let online = placement::online()?;
        let own = self.acquisition.cpus.unwrap_or(online);
        if own.len() > 1 {
            return Ok(());
        }
        let (elsewhere, outranks, answerer) = match self.link.echo() {
            Some(echo) => {
                let elsewhere = !echo.cpus.unwrap_or(online).without(&own).is_empty();
                let answerer = format!("the echo thread, {}", echo.policy);
                (elsewhere, priority(&echo.policy) > priority(&policy), answerer)
            }
            // The tty layer's workers are the kernel's.
            None => (!online.without(&own).is_empty(), false, "a kernel worker, other".to_owned()),
        };
        if elsewhere || outranks {
            return Ok(());
        }
        Err(DaqError::Starved { policy: policy.to_string(), cpus: own.to_string(), answerer })
    }
}

/// Rank among policies; reservations are above all.
fn priority(policy: &Policy) -> u8 {
    match policy {
        Policy::Other { .. } => 0,
        Policy::Fifo { priority } | Policy::RoundRobin { priority } => *priority,
        Policy::Deadline { .. } => u8::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DisplayRule;

    #[test]
    fn the_shipped_file_is_valid_and_says_what_the_defaults_say() {
        let file: DaqConfig = takt_lab::parse(SHIPPED).unwrap();
        let defaults = DaqConfig { deadline_us: file.deadline_us, ..DaqConfig::default() };
        assert_eq!(file, defaults, "the shipped file shows the defaults");
        assert_eq!(file.label(), "udp, fifo:99, saving on");
    }

    #[test]
    fn what_cannot_be_run_is_reported_with_its_key() {
        for (text, word) in [
            ("seconds = 0.0", "seconds = 0"),
            ("deadline_us = nan", "deadline_us"),
            ("keep_edges = 2000000000", "keep_edges"),
            ("stop.edges = 0", "stop.edges"),
            ("stop.trend = { grew_less_than_ns = 0, period_s = 1.0 }", "grew_less_than_ns"),
            ("link = { kind = 'can' }", "can"),
            ("acquisition.policy = 'fifo:0'", "priority"),
            ("stop.duration = '5s'", "duration"),
            ("robot = 'uav'", "uav"),
            ("threshold = 5", "threshold"),
        ] {
            let error = takt_lab::parse::<DaqConfig>(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    fn read(text: &str) -> DaqConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn defaults_are_valid_and_survive_a_round_trip() {
        let config = DaqConfig::default();
        config.validate().unwrap();
        let written = takt_lab::RobotFile::of(config.clone()).to_toml().unwrap();
        assert_eq!(takt_lab::parse::<DaqConfig>(&written).unwrap(), config);
        assert!(
            toml::from_str::<DaqConfig>("pulse.hihg_v = 3.0").unwrap_err().to_string().contains("hihg_v")
        );
    }

    #[test]
    fn display_rules_are_words_or_tables() {
        let rule = |text: &str| toml::from_str::<DaqConfig>(&format!("saving.display = {text}"));
        let of = |text: &str| rule(text).unwrap().saving.display;
        assert_eq!(of("'paper'"), DisplayRule::default());
        assert_eq!(of("'every-edge'"), DisplayRule { extremes: true, every: 1 });
        assert_eq!(of("'never'"), DisplayRule { extremes: false, every: 0 });
        assert_eq!(of("{ every = 7 }"), DisplayRule { extremes: true, every: 7 });
        for wrong in ["'often'", "{ evry = 7 }", "3"] {
            assert!(rule(wrong).unwrap_err().to_string().contains("every-edge"), "{wrong}");
        }
    }

    #[test]
    fn a_part_of_a_table_leaves_the_other_defaults() {
        let config = read("acquisition.cpus = '0'");
        assert_eq!(config.acquisition.policy, Policy::Fifo { priority: 99 });
    }

    #[test]
    fn impossible_values_are_reported_with_their_key() {
        for (text, key) in [
            ("pulse.high_v = -1.0", "pulse.high_v"),
            ("pulse.high_v = nan", "pulse.high_v"),
            ("pulse.threshold_v = 5.0", "pulse.threshold_v = 5"),
            ("pulse.timeout = '1us'", "pulse.timeout = 1us"),
            ("pulse.wait = '11s'", "pulse.wait"),
            ("pulse.lost_in_a_row = 0", "pulse.lost_in_a_row"),
            ("acquisition.policy = { kind = 'fifo', priority = 0 }", "priority 0"),
            ("acquisition.ring = 1", "acquisition.ring"),
            ("saving.period = '1ns'", "saving.period"),
            ("stop.edges = 0", "stop.edges"),
            ("plant.period = '0s'", "plant.period"),
            ("reference = { kind = 'constant', value = nan }", "reference.value"),
        ] {
            let error = match toml::from_str::<DaqConfig>(text) {
                Ok(config) => config.validate().unwrap_err().to_string(),
                Err(error) => error.to_string(),
            };
            assert!(error.contains(key), "{text}: {error}");
        }
    }

    #[test]
    fn a_task_that_would_starve_its_echo_is_refused() {
        let text = "acquisition.cpus = '0'\nlink = { kind = 'udp', echo.cpus = '0' }";
        let error = read(text).validate().unwrap_err().to_string();
        assert!(error.contains("fifo:99") && error.contains("fifo:98") && error.contains("CPU 0"), "{error}");
        for way_out in [
            "link = { kind = 'udp', echo.cpus = '0', waiting = 'block' }",
            "link = { kind = 'simulated' }",
            "acquisition.policy = 'fifo:50'\nlink = { kind = 'udp', echo.cpus = '0' }",
            "acquisition.policy = 'other'\nlink = { kind = 'udp', echo.cpus = '0' }",
        ] {
            read(&format!("acquisition.cpus = '0'\n{way_out}")).validate().unwrap();
        }
    }
}
