//! What the loop is made of. Unknown keys are errors.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_link_daq::{FarEndSetup, LinkConfig, Waiting};
use takt_rt::memory::MemoryLock;
use takt_rt::placement::{self, CpuSet};
use takt_rt::policy::Policy;
use takt_rt::settings::ThreadSettings;

use crate::control::ControllerConfig;
use crate::error::DaqError;
use crate::plant::{Description, PlantConfig, Reference};

/// The whole loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DaqConfig {
    /// What lies between output and input.
    pub link: LinkConfig,
    /// The pulse train.
    pub pulse: PulseConfig,
    /// The task that measures.
    pub acquisition: AcquisitionConfig,
    /// The task that keeps and shows what was measured.
    pub saving: SavingConfig,
    /// The controller inside the loop. None, as in the paper's Table 1.
    pub controller: ControllerConfig,
    /// What the controller steers.
    pub plant: PlantConfig,
    /// Where it should steer it. The constant 1, as in the paper.
    pub reference: Reference,
    /// When the loop ends.
    pub stop: StopConfig,
}

/// From where an edge's latency counts. The time from the output's write to the arrival is a measure of its own (`link`)
/// either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stamp {
    /// From the arrival of the edge before, as in Algorithm 1 (`LastSentTime = ReceiveTime`): what the paper calls latency is
    /// input, controller, the sleep between edges, output, and the way back to the input.
    #[default]
    Receive,
    /// From just before the output is written: the bare link, without controller and sleep.
    Write,
}

/// The pulse train (`[pulse]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PulseConfig {
    /// The high level, volts. 5 (Algorithm 1).
    pub high_v: f64,
    /// The low level, volts. 0 (Algorithm 1).
    pub low_v: f64,
    /// The input is high from here on, volts. 1 (Algorithm 1).
    pub threshold_v: f64,
    /// Sleep between an edge's arrival and the next edge. 1 us (Algorithm 1). `0ns`: no sleep, and then nothing below
    /// the acquisition task ever runs on its CPU.
    #[serde(with = "takt_rt::duration")]
    pub wait: Duration,
    /// An edge that has not come after this time is lost. 100 ms: far above any latency worth measuring.
    #[serde(with = "takt_rt::duration")]
    pub timeout: Duration,
    /// So many lost edges in a row end the loop. 10: a second.
    pub lost_in_a_row: u32,
    /// From where the latency counts.
    pub stamp: Stamp,
}

impl Default for PulseConfig {
    fn default() -> Self {
        Self {
            high_v: 5.0,
            low_v: 0.0,
            threshold_v: 1.0,
            wait: Duration::from_micros(1),
            timeout: Duration::from_millis(100),
            lost_in_a_row: 10,
            stamp: Stamp::default(),
        }
    }
}

/// The task that measures (`[acquisition]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AcquisitionConfig {
    /// Its scheduling policy. `fifo:99`, the paper's.
    pub policy: Policy,
    /// Its CPUs; absent: all. The paper gives each task a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// Memory locking of the process. `all`: a page fault in the loop is a latency of its own.
    pub lock_memory: MemoryLock,
    /// Whether to refuse to run when the kernel does not grant all this. False: the run is labelled.
    pub strict: bool,
    /// Records that wait for a reader before new ones are lost. 65536: some tenths of a second at the rates of fast
    /// links, 4 MiB.
    pub ring: usize,
}

impl Default for AcquisitionConfig {
    fn default() -> Self {
        Self {
            policy: Policy::Fifo { priority: 99 },
            cpus: None,
            lock_memory: MemoryLock::All,
            strict: false,
            ring: 1 << 16,
        }
    }
}

impl AcquisitionConfig {
    pub(crate) fn settings(&self) -> ThreadSettings {
        ThreadSettings {
            policy: self.policy,
            cpus: self.cpus,
            timer_slack_ns: (!self.policy.is_real_time()).then_some(1),
            lock_memory: self.lock_memory,
            prefault_stack_bytes: 64 << 10,
            strict: self.strict,
        }
    }
}

/// When a line is shown and kept: a table of these keys, or one of the words `paper` (the defaults), `every-edge` and
/// `never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "DisplayText")]
pub struct DisplayRule {
    /// Whenever the least or the greatest latency has changed. True, as in the paper.
    pub extremes: bool,
    /// The first of every so many edges. 1,000,000, as in the paper; 1 is its test 4 ("for every run"); 0: never.
    pub every: u64,
}

impl Default for DisplayRule {
    fn default() -> Self {
        Self { extremes: true, every: 1_000_000 }
    }
}

/// A rule as it is written.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected \"paper\", \"every-edge\", \"never\", or a table with the keys extremes (true \
                               or false) and every (a number of edges)"
)]
enum DisplayText {
    Word(DisplayWord),
    Table(DisplayTable),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DisplayWord {
    Paper,
    EveryEdge,
    Never,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DisplayTable {
    extremes: bool,
    every: u64,
}

impl Default for DisplayTable {
    fn default() -> Self {
        let DisplayRule { extremes, every } = DisplayRule::default();
        Self { extremes, every }
    }
}

impl From<DisplayText> for DisplayRule {
    fn from(text: DisplayText) -> Self {
        match text {
            DisplayText::Word(DisplayWord::Paper) => Self::default(),
            DisplayText::Word(DisplayWord::EveryEdge) => Self { extremes: true, every: 1 },
            DisplayText::Word(DisplayWord::Never) => Self { extremes: false, every: 0 },
            DisplayText::Table(DisplayTable { extremes, every }) => Self { extremes, every },
        }
    }
}

/// The task that keeps and shows (`[saving]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SavingConfig {
    /// Whether it runs. True; off is the paper's test 1.
    pub enabled: bool,
    /// Its scheduling policy. `other`: it has no deadline.
    pub policy: Policy,
    /// Its CPUs; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// What is shown.
    pub display: DisplayRule,
    /// How often it looks for new records. 1 ms: small batches, and no spinning beside the measurement.
    #[serde(with = "takt_rt::duration")]
    pub period: Duration,
    /// Records that wait for it before new ones are lost to it. 65536.
    pub ring: usize,
}

impl Default for SavingConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            policy: Policy::default(),
            cpus: None,
            display: DisplayRule::default(),
            period: Duration::from_millis(1),
            ring: 1 << 16,
        }
    }
}

impl SavingConfig {
    pub(crate) fn settings(&self) -> ThreadSettings {
        ThreadSettings { policy: self.policy, cpus: self.cpus, ..ThreadSettings::default() }
    }
}

/// When the loop ends (`[stop]`): at the first of these, or when it is asked to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StopConfig {
    /// After this time. Absent: not by time.
    #[serde(with = "optional_duration", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// After so many edges, lost ones included. Absent: not by number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edges: Option<u64>,
}

/// A duration that may be absent.
mod optional_duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    struct Written(#[serde(with = "takt_rt::duration")] Duration);

    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => takt_rt::duration::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Written>::deserialize(deserializer)?.map(|Written(duration)| duration))
    }
}

impl DaqConfig {
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
            return Err(DaqError::config("stop.edges", 0, "accepted are 1 and more"));
        }
        if self.stop.duration == Some(Duration::ZERO) {
            return Err(DaqError::config("stop.duration", "0ns", "accepted are times above zero"));
        }
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

impl PulseConfig {
    fn validate(&self) -> Result<(), DaqError> {
        let Self { high_v, low_v, threshold_v, .. } = *self;
        // Boards reach 10 V; the kernel loopbacks carry any level within 1000 V.
        if !(low_v >= -1000.0 && high_v <= 1000.0 && low_v < high_v) {
            let given = format!("{high_v}, pulse.low_v = {low_v}");
            return Err(DaqError::config("pulse.high_v", given, "accepted are two levels, high above low"));
        }
        if !(low_v < threshold_v && threshold_v < high_v) {
            let accepted = format!("accepted are levels between low_v = {low_v} and high_v = {high_v}");
            return Err(DaqError::config("pulse.threshold_v", threshold_v, accepted));
        }
        if self.wait > Duration::from_secs(10) {
            let given = takt_rt::duration::format(self.wait);
            return Err(DaqError::config("pulse.wait", given, "accepted are 0ns to 10s"));
        }
        if !(Duration::from_micros(100)..=Duration::from_secs(60)).contains(&self.timeout) {
            let given = takt_rt::duration::format(self.timeout);
            return Err(DaqError::config("pulse.timeout", given, "accepted are 100us to 60s"));
        }
        if self.lost_in_a_row == 0 {
            return Err(DaqError::config("pulse.lost_in_a_row", 0, "accepted are 1 and more"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> DaqConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn defaults_are_valid_and_survive_a_round_trip() {
        let config = DaqConfig::default();
        config.validate().unwrap();
        assert_eq!(read(&toml::to_string(&config).unwrap()), config);
        assert_eq!(read("stop.duration = '5s'").stop.duration, Some(Duration::from_secs(5)));
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
    fn impossible_values_are_told_with_their_key() {
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
            ("stop.duration = '0s'", "stop.duration"),
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
