//! Judge of the frames: the CPU, or a GPU in a separate process under a time budget.

#![deny(missing_docs)]

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use takt_gpu::Interference;
use takt_gpu::sharing::Sharing;

use crate::config::ConfigError;

/// Judge of the frames (`perception.device`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// The CPU, in the cell's own process. The default: it runs everywhere.
    #[default]
    Cpu,
    /// A GPU; networks by ONNX Runtime's CUDA provider. A machine without a usable GPU refuses the
    /// run.
    Cuda,
    /// A GPU; networks by ONNX Runtime's TensorRT provider, whose engines are built once and
    /// cached.
    Tensorrt,
    /// A GPU where one can be used, else the CPU; the run says which and why.
    Auto,
}

impl Device {
    /// Whether a GPU is asked for, by name or if there is one.
    pub const fn wants_gpu(self) -> bool {
        !matches!(self, Self::Cpu)
    }

    /// The name that configurations use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Tensorrt => "tensorrt",
            Self::Auto => "auto",
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Sharing of the GPU between cameras.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Streams {
    /// A stream per camera. The default: cameras are not synchronised, so no frame waits for
    /// another's arrival.
    #[default]
    PerCamera,
    /// One stream for all cameras: what has arrived is judged together.
    Batch,
}

/// Method of moving frames and results between host and device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Copies {
    /// The device's copy engines, beside its multiprocessors. They serve streams and programs in
    /// turn, whatever their priorities. The default: answers with kernels were compared with the
    /// CPU's on the emulated device alone.
    #[default]
    Engines,
    /// Kernels of the camera's stream, which have its priority: as quick on an idle device, and
    /// where others keep the engines busy a frame takes 1 ms and not 20 (on an H200). A device that
    /// does not reach the host's memory by its address is refused.
    Kernels,
}

/// Waiting method for the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuWait {
    /// Asks again and again: the least latency, at one CPU per camera.
    Spin,
    /// Asks and yields the CPU in between: useful under SCHED_OTHER only.
    Yield,
    /// Sleeps until the GPU is done. The default: five waiting cameras leave the CPUs to those who
    /// work.
    #[default]
    Block,
}

/// Answer for a frame that the GPU did not answer within its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    /// Depth alone, on the CPU, in the camera's own thread: whatever stands in the volume counts as
    /// unexplained, and so as a person. The default: it takes about 2 ms and cannot overlook
    /// anybody.
    #[default]
    Geometry,
    /// The whole of perception on the CPU with its networks: people keep their names, at tens of
    /// milliseconds.
    Network,
    /// Nobody: the frame is dropped, and the camera is stale by the monitor's rules if that goes
    /// on.
    Drop,
}

/// Answer of a camera while the circuit breaker is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenOpen {
    /// Answers that it cannot judge, which stops the robot at once. The default: a GPU that fails
    /// again and again is a fault of the cell that somebody should see.
    #[default]
    Stop,
    /// The fallback's answer: the robot continues if nobody stands in the volume.
    Fallback,
}

/// When the GPU is no longer asked, and when again (`[perception.gpu.breaker]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerConfig {
    /// Overruns of one camera in a row that open the breaker. 5: a sixth of a second at 30 FPS;
    /// single overruns have the fallback.
    pub overruns: u32,
    /// A worker that answers nothing for so long, milliseconds, though a frame waits, is hung: it
    /// is killed and started anew. 500: far beyond any inference, far below what a person would
    /// wait for.
    pub hang_ms: f64,
    /// Restarts after which the GPU is given up for this run, counted anew after an hour without
    /// one. 10.
    pub restarts: u32,
    /// Least time between opening and the next try, milliseconds; doubles with every try that
    /// fails, up to 30 s. 1000.
    pub cool_down_ms: f64,
    /// Frames of each camera in a row that must be answered in time before the breaker closes
    /// again. 10.
    pub trials: u32,
    /// Answer of the cameras in the meantime.
    pub when_open: WhenOpen,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            overruns: 5,
            hang_ms: 500.0,
            restarts: 10,
            cool_down_ms: 1000.0,
            trials: 10,
            when_open: WhenOpen::Stop,
        }
    }
}

/// The GPU and how it is kept under control (`[perception.gpu]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuConfig {
    /// Number of the GPU, as in `nvidia-smi`. 0.
    pub ordinal: u32,
    /// Sharing between the cameras.
    pub streams: Streams,
    /// Streams of the cameras above all other work of this machine's processes on the GPU. `true`;
    /// `false` to measure what it brings.
    pub priorities: bool,
    /// Streams are made without a priority and get it afterwards (`cuStreamSetAttribute`), where
    /// `priorities` is `true`: to compare the two ways. `false`.
    pub late_priorities: bool,
    /// Sharing of the device with other programs: taking turns, in time slices of another length,
    /// or under MPS with limits. This uses the driver's means, in addition to the measures here.
    pub sharing: Sharing,
    /// Fixed sequences of kernels are launched as one CUDA graph: one launch, and so one chance to
    /// be delayed. `true`.
    pub graphs: bool,
    /// Inferences of ONNX Runtime's CUDA provider are captured at the start and launched as one
    /// CUDA graph each: a frame takes a sixth of the CPU and 58 % of the time (on an H200). One
    /// that cannot be captured, or whose graph answers otherwise, is launched kernel by kernel, and
    /// the start says so. `true`.
    pub network_graphs: bool,
    /// Method of moving frames and results between host and device.
    pub copies: Copies,
    /// Waiting method for it.
    pub wait: GpuWait,
    /// Time for one frame, milliseconds, from the moment that the camera's thread takes it up. 15:
    /// a GPU needs 2 to 5, and with the fallback's 2 ms after it the answer still comes within half
    /// a frame period.
    pub budget_ms: f64,
    /// Whether the budget is enforced. `false` waits for the GPU as the paper does, up to
    /// `breaker.hang_ms`: only to measure what the budget brings.
    pub enforce_budget: bool,
    /// Answer for a frame over budget.
    pub fallback: Fallback,
    /// When the GPU is no longer asked.
    pub breaker: BreakerConfig,
    /// Folder of TensorRT engines and compiled kernels. Unset: `~/.cache/takt/gpu`.
    pub engine_cache: Option<PathBuf>,
    /// Work that gets in the way in the perception process itself, on streams beside the cameras'.
    /// Unset: none. To measure what priorities bring: the driver gives *programs* the GPU by turns
    /// whatever their priorities, and only within one program do they order the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interference: Option<Interference>,
    /// Longest time from the start of the worker process to its readiness, seconds. 300: TensorRT
    /// builds its engines on the first start; with a full cache it takes seconds.
    pub start_timeout_s: f64,
}

impl Default for GpuConfig {
    fn default() -> Self {
        Self {
            ordinal: 0,
            streams: Streams::default(),
            priorities: true,
            late_priorities: false,
            sharing: Sharing::default(),
            graphs: true,
            network_graphs: true,
            copies: Copies::default(),
            wait: GpuWait::default(),
            budget_ms: 15.0,
            enforce_budget: true,
            fallback: Fallback::default(),
            breaker: BreakerConfig::default(),
            engine_cache: None,
            interference: None,
            start_timeout_s: 300.0,
        }
    }
}

impl GpuConfig {
    /// Checks ranges that types cannot express.
    ///
    /// # Errors
    /// The first setting out of range, with what is accepted.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let within = |name, value: f64, most: f64, accepted| {
            if value > 0.0 && value <= most {
                Ok(())
            } else {
                Err(ConfigError { name, value: value.to_string(), accepted })
            }
        };
        let count = |name, value: u32, range: std::ops::RangeInclusive<u32>, accepted| {
            if range.contains(&value) {
                Ok(())
            } else {
                Err(ConfigError { name, value: value.to_string(), accepted })
            }
        };
        let breaker = &self.breaker;
        within("gpu.budget_ms", self.budget_ms, 1000.0, "above 0, up to 1000")?;
        within("gpu.start_timeout_s", self.start_timeout_s, 86_400.0, "above 0, up to 86400")?;
        count("gpu.breaker.overruns", breaker.overruns, 1..=10_000, "1 to 10000")?;
        count("gpu.breaker.trials", breaker.trials, 1..=10_000, "1 to 10000")?;
        count("gpu.breaker.restarts", breaker.restarts, 0..=1_000_000, "0 to 1000000")?;
        within("gpu.breaker.cool_down_ms", breaker.cool_down_ms, 3_600_000.0, "above 0, up to 3600000")?;
        within("gpu.breaker.hang_ms", breaker.hang_ms, 60_000.0, "above 0, up to 60000")?;
        if breaker.hang_ms < self.budget_ms {
            return Err(ConfigError {
                name: "gpu.breaker.hang_ms",
                value: breaker.hang_ms.to_string(),
                accepted: "at least gpu.budget_ms",
            });
        }
        if let Some(Err(error)) = self.interference.as_ref().map(Interference::validate) {
            let accepted =
                "streams 1..=32, share 0.01..=4, duty 0.01..=1, kernel_us 10..=1000000, mib 1..=16384";
            return Err(ConfigError { name: "gpu.interference", value: error.to_string(), accepted });
        }
        if let Err((name, value, accepted)) = self.sharing.validate() {
            return Err(ConfigError { name, value, accepted });
        }
        count("gpu.ordinal", self.ordinal, 0..=1023, "0 to 1023")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PerceptionConfig;

    #[test]
    fn the_cpu_is_the_default_and_the_defaults_are_accepted() {
        let config: PerceptionConfig = toml::from_str("").unwrap();
        assert_eq!((config.device, &config.gpu), (Device::Cpu, &GpuConfig::default()));
        config.check().unwrap();
    }

    #[test]
    fn a_file_says_it_in_the_documented_words() {
        let config: PerceptionConfig = toml::from_str(
            "device = \"tensorrt\"\n[gpu]\nstreams = \"batch\"\nwait = \"spin\"\nfallback = \"network\"\n\
             [gpu.breaker]\noverruns = 2\nwhen_open = \"fallback\"\n",
        )
        .unwrap();
        config.check().unwrap();
        assert_eq!(config.device, Device::Tensorrt);
        assert_eq!((config.gpu.streams, config.gpu.wait), (Streams::Batch, GpuWait::Spin));
        assert_eq!(config.gpu.fallback, Fallback::Network);
        assert_eq!((config.gpu.breaker.overruns, config.gpu.breaker.when_open), (2, WhenOpen::Fallback));
        let again: PerceptionConfig = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
        assert_eq!(again, config);
    }

    #[test]
    fn unknown_words_are_refused_with_those_accepted() {
        let refused = |text: &str| toml::from_str::<PerceptionConfig>(text).unwrap_err().to_string();
        let message = refused("device = \"gpu\"");
        assert!(message.contains("tensorrt") && message.contains("auto"), "{message}");
        assert!(refused("[gpu]\nbudget = 3").contains("budget_ms"));
        assert!(refused("[gpu.breaker]\nhang = 3").contains("hang_ms"));
        assert!(refused("[gpu.interference]\nkidn = 3").contains("kernel_us"));
    }

    #[test]
    fn values_out_of_range_are_named() {
        let refused = |change: &dyn Fn(&mut GpuConfig)| {
            let mut config = PerceptionConfig::default();
            change(&mut config.gpu);
            config.check().unwrap_err().name
        };
        assert_eq!(refused(&|c| c.budget_ms = f64::NAN), "gpu.budget_ms");
        assert_eq!(refused(&|c| c.budget_ms = 0.0), "gpu.budget_ms");
        assert_eq!(refused(&|c| c.breaker.hang_ms = 10.0), "gpu.breaker.hang_ms");
        assert_eq!(refused(&|c| c.breaker.overruns = 0), "gpu.breaker.overruns");
        assert_eq!(refused(&|c| c.breaker.trials = 0), "gpu.breaker.trials");
        assert_eq!(refused(&|c| c.breaker.cool_down_ms = -1.0), "gpu.breaker.cool_down_ms");
        assert_eq!(refused(&|c| c.start_timeout_s = f64::INFINITY), "gpu.start_timeout_s");
        assert_eq!(refused(&|c| c.ordinal = 5000), "gpu.ordinal");
        assert_eq!(refused(&|c| c.sharing.share_percent = Some(30)), "gpu.sharing.share_percent");
        let interference = Interference { share: 0.0, ..Interference::default() };
        assert_eq!(refused(&|c| c.interference = Some(interference.clone())), "gpu.interference");
    }
}
