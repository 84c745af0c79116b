//! Configuration of a run of the DAQ loop.

use serde::{Deserialize, Serialize};
use takt_link_daq::LinkConfig;
use takt_rt::config::within;
use takt_rt::placement::CpuSet;
use takt_rundir::Loss;
use takt_stats::{TrendStop, VerdictConfig};

use crate::control::ControllerConfig;
use crate::plant::{PlantConfig, Reference};
use crate::{AcquisitionConfig, DaqConfig, PulseConfig, SavingConfig, StopConfig};

/// The shipped configuration.
pub const SHIPPED: &str = include_str!("../../../../robots/daq.toml");

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

/// What may be lost between output and input within the measured window; more fails the run, and what is allowed is named all the
/// same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Losses {
    /// Edges that never came. 0: a wire from an output to an input loses none.
    pub most_lost_edges: u64,
}

/// A run of the DAQ loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DaqFile {
    /// `daq`.
    pub robot: String,
    /// Name for people.
    pub name: String,
    /// Length of a run, seconds, when the command says nothing. 10.
    pub seconds: f64,
    /// Deadline of an edge, microseconds. Absent: the loop has none, and the verdict is about nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<f64>,
    /// Edges that are kept one by one; all others are counted. 1,000,000: some ten seconds of a fast link, 60 MB while
    /// the run goes on, and a disk that a run of weeks does not fill.
    pub keep_edges: u64,
    /// What may be lost between output and input.
    pub losses: Losses,
    /// What lies between output and input.
    pub link: LinkConfig,
    /// The pulse train.
    pub pulse: PulseConfig,
    /// The task that measures.
    pub acquisition: AcquisitionConfig,
    /// The task that keeps and shows.
    pub saving: SavingConfig,
    /// The controller inside the loop.
    pub controller: ControllerConfig,
    /// What it steers.
    pub plant: PlantConfig,
    /// Where it should steer it.
    pub reference: Reference,
    /// CPUs taken offline for the run, where the kernel allows it, and brought back after it, also after a kill (the paper's
    /// Table 3: "Cores 2 & 3 disabled"). What stays online is told; a strict run is refused then. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offline_cpus: Option<CpuSet>,
    /// When the run ends before its time.
    pub stop: StopRules,
    /// What the robot needs: how rarely it may miss, with which confidence. Nothing is claimed by default: any miss is a FAIL then.
    #[serde(default, skip_serializing_if = "VerdictConfig::is_default")]
    pub verdict: VerdictConfig,
}

impl Default for DaqFile {
    fn default() -> Self {
        let DaqConfig { link, pulse, acquisition, saving, controller, plant, reference, stop: _ } =
            DaqConfig::default();
        Self {
            robot: "daq".to_owned(),
            name: "daq".to_owned(),
            seconds: 10.0,
            deadline_us: None,
            keep_edges: 1_000_000,
            losses: Losses::default(),
            link,
            pulse,
            acquisition,
            saving,
            controller,
            plant,
            reference,
            offline_cpus: None,
            stop: StopRules::default(),
            verdict: VerdictConfig::default(),
        }
    }
}

impl DaqFile {
    /// The loop itself; the lab ends it.
    pub fn config(&self) -> DaqConfig {
        DaqConfig {
            link: self.link.clone(),
            pulse: self.pulse.clone(),
            acquisition: self.acquisition.clone(),
            saving: self.saving.clone(),
            controller: self.controller.clone(),
            plant: self.plant.clone(),
            reference: self.reference,
            stop: StopConfig::default(),
        }
    }

    /// The paper's criteria, as the statistics know them.
    pub fn stop_config(&self) -> takt_stats::StopConfig {
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

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// A sentence with the key, its value and what is accepted.
    pub fn validate(&self) -> Result<(), String> {
        if self.robot != "daq" {
            return Err(format!("robot = \"{}\": this file is for \"daq\"", self.robot));
        }
        self.verdict.validate()?;
        within("seconds", self.seconds, 0.01, 40.0 * 86_400.0)?;
        if let Some(us) = self.deadline_us {
            within("deadline_us", us, 0.001, 60e6)?;
        }
        within("losses.most_lost_edges", self.losses.most_lost_edges as f64, 0.0, Loss::MOST_ALLOWED)?;
        within("keep_edges", self.keep_edges as f64, 0.0, 1e9)?;
        if self.stop.edges == Some(0) {
            return Err("stop.edges = 0: accepted are 1 and more".to_owned());
        }
        self.stop_config().validate().map_err(|error| error.to_string())?;
        self.config().validate().map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_file_is_valid_and_says_what_the_defaults_say() {
        let file: DaqFile = toml::from_str(SHIPPED).unwrap();
        file.validate().unwrap();
        let defaults = DaqFile { deadline_us: file.deadline_us, ..DaqFile::default() };
        assert_eq!(file, defaults, "the shipped file shows the defaults");
        assert_eq!(toml::from_str::<DaqFile>(&toml::to_string(&file).unwrap()).unwrap(), file);
        assert_eq!(file.label(), "udp, fifo:99, saving on");
    }

    #[test]
    fn what_cannot_be_run_is_told_with_its_key() {
        for (text, word) in [
            ("seconds = 0.0", "seconds = 0"),
            ("deadline_us = nan", "deadline_us"),
            ("keep_edges = 2000000000", "keep_edges"),
            ("stop.edges = 0", "stop.edges"),
            ("stop.trend = { grew_less_than_ns = 0, period_s = 1.0 }", "grew_less_than_ns"),
            ("link = { kind = 'can' }", "can"),
            ("acquisition.policy = 'fifo:0'", "priority"),
            ("robot = 'uav'", "uav"),
            ("threshold = 5", "threshold"),
        ] {
            let error = match toml::from_str::<DaqFile>(text) {
                Ok(file) => file.validate().unwrap_err(),
                Err(error) => error.to_string(),
            };
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
