//! Errors of a device, and the way out.

use std::fmt;

/// A version as the driver shows it: 12040 is CUDA 12.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion(pub i32);

impl CudaVersion {
    /// The number before the point.
    pub fn major(self) -> i32 {
        self.0 / 1000
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// Error of a device.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GpuError {
    /// The driver's library is not there.
    #[error(
        "no CUDA driver: looked for {}. Fix: install the NVIDIA driver, or run perception on the CPU (`perception.device = \
         \"cpu\"`)",
        looked.join(", ")
    )]
    NoDriver {
        /// The paths tried, with the loader's answers.
        looked: Vec<String>,
    },
    /// The driver does not have what this program calls.
    #[error(
        "the NVIDIA driver is too old: it supports CUDA {has}, but {needs} or newer is needed{}. Fix: update the driver (R525 or newer)",
        missing.map(|symbol| format!(" ({symbol} is missing)")).unwrap_or_default()
    )]
    DriverTooOld {
        has: CudaVersion,
        /// The oldest that will do.
        needs: CudaVersion,
        /// A function that is not in the library, if that is how it was found out.
        missing: Option<&'static str>,
    },
    /// There is no device with this number.
    #[error(
        "no GPU {ordinal}: the driver reports {count}. Fix: set `perception.gpu.ordinal` below {count}; `nvidia-smi -L` lists the GPUs"
    )]
    NoDevice {
        /// The number asked for, from 0.
        ordinal: u32,
        count: u32,
    },
    /// The device's memory is full.
    #[error(
        "out of GPU memory: {asked} bytes requested, {free} free. Fix: end other programs on this GPU (`nvidia-smi`), or use fewer or \
         smaller models"
    )]
    OutOfMemory {
        asked: u64,
        /// Bytes that the driver says are free; fragments may be smaller.
        free: u64,
    },
    /// The device or its context is lost; every further call in this process fails.
    #[error(
        "the GPU is lost (CUDA error {code}, {text}): this process can no longer use it. Fix: restart the process; if it happens again, \
         see `dmesg | grep -i xid`"
    )]
    Lost { code: u32, text: &'static str },
    /// The run-time compiler's library is not there.
    #[error(
        "no CUDA run-time compiler (NVRTC): looked for {}. Fix: `pip install nvidia-cuda-nvrtc-cu12` and set TAKT_NVRTC_LIBRARY to its \
         libnvrtc.so.12, install the CUDA toolkit, or copy kernels that were compiled elsewhere (`takt gpu kernels FOLDER`, then \
         TAKT_GPU_KERNELS=FOLDER)",
        looked.join(", ")
    )]
    NvrtcMissing {
        /// The paths tried, with the loader's answers.
        looked: Vec<String>,
    },
    /// A kernel does not compile.
    #[error("kernel `{kernel}` does not compile: {log}")]
    Compile { kernel: String, log: String },
    /// A module has no function of this name.
    #[error("kernel `{kernel}` has no function `{function}`. Fix: declare it `extern \"C\" __global__`")]
    NoFunction { kernel: String, function: String },
    /// Memory is used by work that has not ended, or by a reader or writer on the host.
    #[error("{what} is in use by {by}: wait for an event after it (work on a device cannot be cancelled)")]
    InFlight { what: &'static str, by: &'static str },
    /// Two sizes do not match.
    #[error("{what}: expected {expected}, received {received}")]
    Size { what: &'static str, expected: String, received: String },
    /// A value that the device or this crate cannot take.
    #[error("{what}: {received} is not in {expected}")]
    Invalid { what: &'static str, expected: String, received: String },
    /// A description of interference that is out of bounds.
    #[error("interference: {0}")]
    Interference(#[from] takt_rt::config::SettingError),
    /// Any other refusal of the driver.
    #[error("{name} failed with CUDA error {code} ({text})")]
    Call { name: &'static str, code: u32, text: String },
    /// The system refused something beside the driver.
    #[error("{what}: {reason}")]
    System { what: &'static str, reason: String },
}

impl GpuError {
    /// Whether only a fresh process can use the device again.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Whether there is no device to work with here, so that a configured fallback is right from
    /// the start.
    pub fn is_absent(&self) -> bool {
        matches!(
            self,
            Self::NoDriver { .. }
                | Self::DriverTooOld { .. }
                | Self::NoDevice { .. }
                | Self::NvrtcMissing { .. }
        )
    }
}

/// The words of a CUDA error after which the context is of no use, `None` for others. Numbers of
/// drivers newer than the declarations are in it: what is passed on is the plain number, so that an
/// unknown one is harmless.
pub(crate) fn sticky(code: u32) -> Option<&'static str> {
    Some(match code {
        4 => "driver shut down",
        46 => "device busy or unavailable",
        214 => "uncorrectable memory (ECC) error",
        220 => "uncorrectable NVLink error",
        226 => "contained memory error",
        700 => "illegal address",
        702 => "launch timed out",
        709 => "context destroyed",
        710 => "device-side assertion",
        714 => "hardware stack error",
        715 => "illegal instruction",
        716 => "misaligned address",
        717 => "invalid address space",
        718 => "invalid program counter",
        719 => "launch failed",
        721 => "tensor memory leak",
        999 => "unknown error of the driver",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sentence_says_what_was_received_and_what_to_do() {
        assert_eq!(CudaVersion(12040).to_string(), "12.4");
        let old =
            GpuError::DriverTooOld { has: CudaVersion(11080), needs: CudaVersion(12000), missing: None };
        let text = old.to_string();
        assert!(text.contains("11.8") && text.contains("12.0") && text.contains("Fix:"), "{text}");
        assert!(old.is_absent() && !old.is_lost());
        let text = GpuError::OutOfMemory { asked: 5, free: 3 }.to_string();
        assert!(text.contains("5 bytes") && text.contains("3 free"), "{text}");
        assert!(GpuError::Lost { code: 719, text: "launch failed" }.is_lost());
    }

    #[test]
    fn only_what_poisons_the_context_is_sticky() {
        for code in [1, 2, 3, 100, 209, 400, 500, 600, 701] {
            assert_eq!(sticky(code), None, "{code}");
        }
        for code in [214, 700, 719, 721, 999] {
            assert!(sticky(code).is_some(), "{code}");
        }
    }
}
