//! Driver, compiler and device, as they say of themselves.

use std::process::Command;

use serde_json::json;

use super::{Step, StepError, open};
use crate::error::CudaVersion;
use crate::nvrtc::Compiler;
use crate::prebuilt;

/// Longest text of another program that is kept.
const MAX_TEXT: usize = 24_000;

/// Facts of driver, compilers and device.
///
/// # Errors
/// Without a device, in one sentence.
pub fn device(step: &mut Step<'_>) -> Result<(), StepError> {
    let gpu = open(step)?;
    let info = gpu.info().clone();
    step.judge(
        "the driver supports CUDA 12.0 or newer",
        format!("CUDA {}", CudaVersion(info.driver_version)),
        info.driver_version >= 12_000,
    );
    let compilers = Compiler::all();
    let reported: Vec<_> = compilers
        .iter()
        .map(|c| json!({ "version": c.version(), "path": c.path(), "emulated": c.is_emulated() }))
        .collect();
    step.figure("nvrtc", &reported);
    let folder = takt_files::environment::var_os(prebuilt::VARIABLE);
    step.figure("kernels_compiled_beforehand", folder.as_ref().map(|folder| folder.display().to_string()));
    let usable = compilers
        .iter()
        .any(|c| c.version().0 <= info.driver_version / 1000 && c.is_emulated() == info.emulated);
    let measured = match (usable, &folder) {
        (true, _) => "NVRTC is here",
        (false, Some(_)) => "no NVRTC for this driver; precompiled kernels are used",
        (false, None) => "neither NVRTC for this driver nor TAKT_GPU_KERNELS",
    };
    step.judge("kernels are available", measured, usable || folder.is_some());
    let (least, greatest) = info.priorities;
    step.judge("streams have priorities", format!("{least} to {greatest}"), greatest < least);
    step.judge("memory is free", format!("{:?}", gpu.memory()?), gpu.memory()?.free_bytes > 0);
    step.figure("attributes", gpu.attributes()?);
    let words = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    step.figure("kernel_driver", words("/proc/driver/nvidia/version"));
    step.figure("kernel", words("/proc/version"));
    step.figure("cpus", std::thread::available_parallelism().map_or(0, usize::from));
    step.figure("mps", crate::mps::look().to_string());
    if !info.emulated {
        step.progress("nvidia-smi -q");
        let message = Command::new("nvidia-smi").arg("-q").output();
        let message = message.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let mut message = message.unwrap_or_else(|error| format!("nvidia-smi: {error}"));
        message.truncate(message.floor_char_boundary(MAX_TEXT));
        step.figure("nvidia_smi", message);
    }
    Ok(())
}
