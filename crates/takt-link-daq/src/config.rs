//! Configuration of a link. Unknown keys are errors.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;
use takt_rt::settings::ThreadSettings;

use crate::error::LinkError;

/// A link, by its kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum LinkConfig {
    /// A pair of sockets through the loopback interface.
    Udp(UdpConfig),
    /// A pseudo-terminal: through the tty layer.
    Pty(PtyConfig),
    /// Two event counters: through the scheduler alone.
    Eventfd(EventfdConfig),
    /// A converter computed from its data sheet.
    Simulated(SimulatedConfig),
    /// A board through comedi.
    Comedi(ComediConfig),
    /// Converters of the kernel's Industrial I/O subsystem.
    Iio(IioConfig),
}

impl Default for LinkConfig {
    /// Needs no hardware and no privilege, and goes through more of the kernel than the others.
    fn default() -> Self {
        Self::Udp(UdpConfig::default())
    }
}

impl LinkConfig {
    /// The kinds, as `kind` spells them.
    pub const KINDS: [&'static str; 6] = ["udp", "pty", "eventfd", "simulated", "comedi", "iio"];

    /// The kind as `kind` spells it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Udp(_) => "udp",
            Self::Pty(_) => "pty",
            Self::Eventfd(_) => "eventfd",
            Self::Simulated(_) => "simulated",
            Self::Comedi(_) => "comedi",
            Self::Iio(_) => "iio",
        }
    }

    /// The echo thread at the far end, where there is one.
    pub fn echo(&self) -> Option<&EchoConfig> {
        match self {
            Self::Udp(UdpConfig { echo, .. }) | Self::Eventfd(EventfdConfig { echo, .. }) => Some(echo),
            Self::Pty(PtyConfig { echo, echo_by: PtyEcho::Thread, .. }) => Some(echo),
            _ => None,
        }
    }

    /// Waiting method of the near end; boards and the simulated converter are always polled.
    pub fn waiting(&self) -> Waiting {
        match self {
            Self::Udp(UdpConfig { waiting, .. })
            | Self::Pty(PtyConfig { waiting, .. })
            | Self::Eventfd(EventfdConfig { waiting, .. }) => *waiting,
            Self::Simulated(_) | Self::Comedi(_) | Self::Iio(_) => Waiting::Poll,
        }
    }

    /// Whether other threads (an echo thread, the kernel's workers) must run for an edge to arrive.
    pub fn needs_other_threads(&self) -> bool {
        !matches!(self, Self::Simulated(_) | Self::Comedi(_) | Self::Iio(_))
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`LinkError::Config`] with the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), LinkError> {
        if let Some(echo) = self.echo() {
            echo.policy.validate()?;
        }
        match self {
            Self::Udp(config) => config.validate(),
            Self::Simulated(config) => config.validate(),
            Self::Comedi(config) => config.validate(),
            Self::Iio(config) => config.validate(),
            Self::Pty(_) | Self::Eventfd(_) => Ok(()),
        }
    }
}

/// Waiting method of the near end for its input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    /// It asks again and again, as the paper's Algorithm 1 asks its board. Never gives the CPU
    /// away: at a real-time priority everything below it on its CPU stands still.
    #[default]
    Poll,
    /// It sleeps in the kernel until something arrives: one more wake-up is measured, and one CPU
    /// is enough.
    Block,
}

/// The echo thread at the far end of a loopback.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EchoConfig {
    /// Its scheduling policy. `fifo:98`: it stands for hardware, which waits for nobody, and must
    /// not be held up by more than the acquisition task (99 in the paper).
    pub policy: Policy,
    /// Its CPUs; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// Whether to refuse to run when the kernel does not grant that. False: the run is labelled.
    pub strict: bool,
}

impl Default for EchoConfig {
    fn default() -> Self {
        Self { policy: Policy::Fifo { priority: 98 }, cpus: None, strict: false }
    }
}

impl EchoConfig {
    pub(crate) fn settings(&self) -> ThreadSettings {
        ThreadSettings {
            policy: self.policy,
            cpus: self.cpus,
            strict: self.strict,
            timer_slack_ns: (!self.policy.is_real_time()).then_some(1),
            prefault_stack_bytes: 32 << 10,
            ..ThreadSettings::default()
        }
    }
}

/// A pair of sockets through the loopback interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UdpConfig {
    /// Waiting method of the near end.
    pub waiting: Waiting,
    /// The far end.
    pub echo: EchoConfig,
    /// A level without an answer after this time is sent again. 10 ms: a hundred times what the way
    /// takes, and short enough that a lost datagram costs little of a run.
    #[serde(with = "takt_rt::duration")]
    pub resend_after: Duration,
    /// The far end drops every n-th datagram, to see what loss does. 0: none.
    pub drop_every: u32,
}

impl Default for UdpConfig {
    fn default() -> Self {
        Self {
            waiting: Waiting::default(),
            echo: EchoConfig::default(),
            resend_after: Duration::from_millis(10),
            drop_every: 0,
        }
    }
}

impl UdpConfig {
    fn validate(&self) -> Result<(), LinkError> {
        if !(Duration::from_micros(100)..=Duration::from_secs(10)).contains(&self.resend_after) {
            let given = takt_rt::duration::format(self.resend_after);
            return Err(LinkError::config("resend_after", given, "accepted are 100us to 10s"));
        }
        if self.drop_every == 1 {
            return Err(LinkError::config(
                "drop_every",
                1,
                "accepted are 0 (none) and numbers from 2 (1 would drop all)",
            ));
        }
        Ok(())
    }
}

/// Sender of the returned bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PtyEcho {
    /// A thread that reads the terminal and writes to it, as a device at the other end of a line
    /// would.
    #[default]
    Thread,
    /// The line discipline itself (the terminal's ECHO flag): the kernel's workers alone, no thread
    /// of ours.
    Line,
}

/// A pseudo-terminal in raw mode. A kernel worker (SCHED_OTHER, on any CPU) passes the written
/// bytes on, not the writer: the tty layer's latency includes that worker's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PtyConfig {
    /// Waiting method of the near end.
    pub waiting: Waiting,
    /// Sender of the returned bytes.
    pub echo_by: PtyEcho,
    /// The far end, where it is a thread.
    pub echo: EchoConfig,
}

/// Two event counters and an echo thread: what a wake-up costs and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventfdConfig {
    /// Waiting method of the near end.
    pub waiting: Waiting,
    /// The far end.
    pub echo: EchoConfig,
}

/// The bus that a simulated board sits on. It says how long one access to a register takes, unless
/// `register` does. The times are usual ones, and none of a particular machine: the paper names
/// buses and no times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bus {
    /// 1 us: a read across a bridge to a bus of 33 MHz.
    #[default]
    Pci,
    /// 500 ns: a read to an endpoint with one lane, and back.
    Pcie,
    /// 125 us: a microframe of USB 2.0, in which one transfer is done.
    Usb,
}

impl Bus {
    /// Time of one access to a register.
    pub fn register(self) -> Duration {
        match self {
            Self::Pci => Duration::from_micros(1),
            Self::Pcie => Duration::from_nanos(500),
            Self::Usb => Duration::from_micros(125),
        }
    }

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pci => "PCI",
            Self::Pcie => "PCIe",
            Self::Usb => "USB 2.0",
        }
    }
}

/// A time that may be absent.
mod optional {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "serde's signature")]
    pub fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => takt_rt::duration::serialize(time, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        takt_rt::duration::deserialize(deserializer).map(Some)
    }
}

/// A converter computed from its data sheet. The processor is kept busy as long as a register
/// access and a conversion take, as it is with a real board and a polling driver.
///
/// Rates of the paper's boards: PCI1716 AI 250 kS/s, AO 1 MS/s, 16 bits (the defaults); PCIe1816 1
/// MS/s, 3 MS/s, 16 bits; NI 6281 625 kS/s, 2.86 MS/s, 18 bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimulatedConfig {
    /// Conversions of the input per second. 250 kS/s (PCI1716).
    pub ai_rate_hz: f64,
    /// Updates of the output per second: an update shows at the output that much later. 1 MS/s
    /// (PCI1716).
    pub ao_rate_hz: f64,
    /// Until the output has settled to half a step of the converter, exponentially. 5 us, usual for
    /// 16 bits.
    #[serde(with = "takt_rt::duration")]
    pub settling: Duration,
    /// The bus that it sits on. `pci`.
    pub bus: Bus,
    /// One access to a register of the board: an output update is one, an input conversion two
    /// (start, fetch). Absent: as the bus has it.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub register: Option<Duration>,
    /// Noise at the input, RMS volts. 0.5 mV: a few steps of 16 bits.
    pub noise_v: f64,
    /// Bits of both converters. 16 (PCI1716).
    pub bits: u32,
    /// Least and greatest level of both converters, volts. -10 to 10, the usual range.
    pub range_v: [f64; 2],
    /// Seed of the noise: the same seed, the same noise.
    pub seed: u64,
}

impl Default for SimulatedConfig {
    fn default() -> Self {
        Self {
            ai_rate_hz: 250e3,
            ao_rate_hz: 1e6,
            settling: Duration::from_micros(5),
            bus: Bus::default(),
            register: None,
            noise_v: 0.5e-3,
            bits: 16,
            range_v: [-10.0, 10.0],
            seed: 1,
        }
    }
}

impl SimulatedConfig {
    /// Time of one access to a register.
    pub fn register(&self) -> Duration {
        self.register.unwrap_or_else(|| self.bus.register())
    }

    fn validate(&self) -> Result<(), LinkError> {
        let second = Duration::from_secs(1);
        for (key, rate_hz) in [("ai_rate_hz", self.ai_rate_hz), ("ao_rate_hz", self.ao_rate_hz)] {
            if !(1.0..=1e9).contains(&rate_hz) {
                return Err(LinkError::config(key, rate_hz, "accepted are 1 to 1e9 conversions per second"));
            }
        }
        for (key, time) in [("settling", self.settling), ("register", self.register())] {
            if time > second {
                let given = takt_rt::duration::format(time);
                return Err(LinkError::config(key, given, "accepted are 0ns to 1s"));
            }
        }
        if !(1..=32).contains(&self.bits) {
            return Err(LinkError::config("bits", self.bits, "accepted are 1 to 32"));
        }
        let [low_v, high_v] = self.range_v;
        if !(low_v.is_finite() && high_v.is_finite() && low_v < high_v) {
            let given = format!("[{low_v}, {high_v}]");
            return Err(LinkError::config("range_v", given, "accepted are two levels, the lower one first"));
        }
        if !(0.0..=high_v - low_v).contains(&self.noise_v) {
            return Err(LinkError::config("noise_v", self.noise_v, "accepted are 0 to the width of range_v"));
        }
        Ok(())
    }
}

/// Reference of a board's input (comedi's `AREF_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aref {
    /// The board's ground.
    #[default]
    Ground,
    /// A common reference of all channels.
    Common,
    /// The next channel: differential.
    Diff,
    /// Something else, by the driver.
    Other,
}

impl Aref {
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Ground => 0,
            Self::Common => 1,
            Self::Diff => 2,
            Self::Other => 3,
        }
    }
}

/// One channel of a board.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ComediChannel {
    /// The subdevice; absent: the first one of the right type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subdevice: Option<u32>,
    /// The channel. 0, as in the paper (AO0, AI0).
    pub channel: u32,
    /// The range, by comedi's number. 0: the driver's first.
    pub range: u32,
    /// The reference.
    pub aref: Aref,
}

/// A board through comedi.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ComediConfig {
    /// The library. `libcomedi.so.0`, the name that all its releases have had.
    pub library: PathBuf,
    /// The device file. `/dev/comedi0`.
    pub device: PathBuf,
    /// The output.
    pub output: ComediChannel,
    /// The input.
    pub input: ComediChannel,
    /// The output that drives the plant, where a controller runs. Channel 1, beside the pulse.
    pub drive: ComediChannel,
    /// The inputs of the plant's sensors, position and speed, where a controller runs. Channels 1
    /// and 2, beside the pulse.
    pub sensors: [ComediChannel; 2],
    /// Pause between choosing the input channel and converting. 0: one channel alone needs none,
    /// and the paper has none. The library rounds it up to microseconds.
    #[serde(with = "takt_rt::duration")]
    pub settling: Duration,
}

impl Default for ComediConfig {
    fn default() -> Self {
        Self {
            library: "libcomedi.so.0".into(),
            device: "/dev/comedi0".into(),
            output: ComediChannel::default(),
            input: ComediChannel::default(),
            drive: ComediChannel { channel: 1, ..ComediChannel::default() },
            sensors: [1, 2].map(|channel| ComediChannel { channel, ..ComediChannel::default() }),
            settling: Duration::ZERO,
        }
    }
}

impl ComediConfig {
    fn validate(&self) -> Result<(), LinkError> {
        // The kernel refuses longer pauses than 100 us in one instruction (INSN_WAIT).
        if self.settling > Duration::from_micros(100) {
            let given = takt_rt::duration::format(self.settling);
            return Err(LinkError::config(
                "settling",
                given,
                "accepted are 0ns to 100us, comedi's longest pause",
            ));
        }
        Ok(())
    }
}

/// One channel of an Industrial I/O device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IioChannel {
    /// The device, by its name (`ad5592r`) or number (`iio:device0`). Empty: the first one that has
    /// such a channel.
    pub device: String,
    /// The channel, as libiio calls it. `voltage0`.
    pub channel: String,
}

impl Default for IioChannel {
    fn default() -> Self {
        Self { device: String::new(), channel: "voltage0".to_owned() }
    }
}

impl IioChannel {
    fn numbered(number: u32) -> Self {
        Self { channel: format!("voltage{number}"), ..Self::default() }
    }
}

/// Converters of the kernel's Industrial I/O subsystem, by their sysfs attributes: one conversion
/// for each access. Libiio finds device, channel, scale and offset; conversions read and write the
/// open attribute, because libiio allocates in each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IioConfig {
    /// The output. The first device's output `voltage0`.
    pub output: IioChannel,
    /// The input. The first device's input `voltage0`.
    pub input: IioChannel,
    /// The output that drives the plant, where a controller runs. `voltage1`.
    pub drive: IioChannel,
    /// The inputs of the plant's sensors, position and speed, where a controller runs. `voltage1`
    /// and `voltage2`.
    pub sensors: [IioChannel; 2],
}

impl Default for IioConfig {
    fn default() -> Self {
        Self {
            output: IioChannel::default(),
            input: IioChannel::default(),
            drive: IioChannel::numbered(1),
            sensors: [1, 2].map(IioChannel::numbered),
        }
    }
}

impl IioConfig {
    fn validate(&self) -> Result<(), LinkError> {
        let [position, speed] = &self.sensors;
        let all = [
            ("output.channel", &self.output),
            ("input.channel", &self.input),
            ("drive.channel", &self.drive),
            ("sensors[0].channel", position),
            ("sensors[1].channel", speed),
        ];
        for (key, IioChannel { device, channel }) in all {
            let plain = |text: &str| !text.contains(['/', '\0']) && !text.starts_with('.');
            if channel.is_empty() || !plain(channel) || !plain(device) {
                let given = format!("\"{channel}\" of \"{device}\"");
                return Err(LinkError::config(key, given, "accepted are names such as \"voltage0\""));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
