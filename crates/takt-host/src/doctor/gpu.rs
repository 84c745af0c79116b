//! NVIDIA GPUs: whether perception could use one, from what the kernel shows; the driver is not
//! called.

use crate::doctor::kernel;
use crate::doctor::processor::{self, Board};
use crate::doctor::report::Check;
use crate::doctor::tree::Tree;

/// PCI vendor of NVIDIA.
const NVIDIA: &str = "0x10de";
/// Class of display and 3-D controllers, without the last digits.
const DISPLAY: &str = "0x03";
const DEVICES: &str = "/sys/bus/pci/devices";
/// The oldest driver with CUDA 12.0, which the program calls.
const OLDEST_DRIVER: u32 = 525;

/// Note on the card under a PREEMPT_RT kernel (NVIDIA's `conftest.sh`, which checks for it).
pub(crate) const REFUSAL: &str = "NVIDIA's driver refuses to build on PREEMPT_RT kernels except with IGNORE_PREEMPT_RT_PRESENCE=1 in the \
     environment of its build (`sudo env IGNORE_PREEMPT_RT_PRESENCE=1 dkms autoinstall -k KERNEL`), which NVIDIA does not support";

/// NVIDIA's cards on the PCI bus.
fn cards(tree: &Tree) -> Vec<String> {
    let starts = |path: String, with: &str| tree.line(&path).is_some_and(|line| line.starts_with(with));
    let mut cards: Vec<String> = tree
        .names(DEVICES)
        .into_iter()
        .filter(|name| {
            starts(format!("{DEVICES}/{name}/vendor"), NVIDIA)
                && starts(format!("{DEVICES}/{name}/class"), DISPLAY)
        })
        .collect();
    cards.sort();
    cards
}

/// Whether a card of NVIDIA's is there, with a driver or without.
pub(crate) fn has_card(tree: &Tree) -> bool {
    !cards(tree).is_empty()
}

/// Version in the first line of the driver's own file, such as `535.161.08`.
fn version(line: &str) -> Option<&str> {
    line.split_whitespace().find(|word| {
        let mut parts = word.split('.');
        word.contains('.') && parts.all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    })
}

pub(crate) fn driver(tree: &Tree) -> Check {
    let check = Check::new(
        "gpu",
        "GPU",
        "perception on a GPU needs the NVIDIA driver; without its persistence daemon, the driver releases the device when no program uses \
         it, and the next start, or restart after a fault, waits seconds for it",
    );
    let gpus = cards(tree);
    if gpus.is_empty() && processor::board(tree) == Board::Jetson {
        return check.ok("the Jetson's own GPU, which needs no persistence daemon");
    }
    let driver = tree.line("/proc/driver/nvidia/version");
    let Some(line) = driver else {
        if gpus.is_empty() {
            return check.ok("no NVIDIA GPU: perception runs on the CPU");
        }
        let real_time = if kernel::is_real_time(tree) { format!("; {REFUSAL}") } else { String::new() };
        return check.warn(
            format!("NVIDIA GPU at {} without a driver", gpus.join(", ")),
            format!(
                "install the NVIDIA driver (R525 or newer), or leave perception.device = \"cpu\"{real_time}"
            ),
        );
    };
    let found = version(&line);
    let major = found.and_then(|v| v.split('.').next()).and_then(|major| major.parse::<u32>().ok());
    let name = format!("driver {}, {} on the PCI bus", found.unwrap_or("of unknown version"), gpus.len());
    if major.is_some_and(|major| major < OLDEST_DRIVER) {
        return check
            .warn(name, "update the NVIDIA driver to R525 or newer, the first with CUDA 12, or use perception.device = \"cpu\"");
    }
    if !tree.exists("/run/nvidia-persistenced/socket") && !tree.exists("/var/run/nvidia-persistenced/socket")
    {
        return check.warn(
            format!("{name}; its persistence daemon is not running"),
            "`sudo systemctl enable --now nvidia-persistenced`, or `sudo nvidia-smi -pm 1` until the next boot",
        );
    }
    check.ok(format!("{name}; its persistence daemon is running"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Status;
    use crate::doctor::tree::fake;

    const VENDOR: (&str, &str) = ("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
    const CLASS: (&str, &str) = ("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
    const SOCKET: (&str, &str) = ("/run/nvidia-persistenced/socket", "");

    fn with(files: &[(&str, &str)]) -> Check {
        driver(&Tree::new(fake::tree(files).path()))
    }

    fn kernel_module(version: &str) -> String {
        format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Sat Feb 24 01:09:07 UTC 2024\n")
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(with(&[]).status, Status::Ok);
        let sound = ("/sys/bus/pci/devices/0000:01:00.0/class", "0x040300\n");
        assert_eq!(with(&[VENDOR, sound]).status, Status::Ok, "its sound device is no GPU");
        let bare = with(&[VENDOR, CLASS]);
        assert!(bare.status == Status::Warn && bare.evidence.contains("0000:01:00.0"), "{bare:?}");
        assert!(!bare.fix.unwrap().contains("PREEMPT_RT"));
        let real_time = with(&[VENDOR, CLASS, ("/sys/kernel/realtime", "1\n")]);
        assert!(real_time.fix.unwrap().contains("IGNORE_PREEMPT_RT_PRESENCE=1"));

        let new = kernel_module("535.161.08");
        let driver = ("/proc/driver/nvidia/version", new.as_str());
        let idle = with(&[VENDOR, CLASS, driver]);
        assert!(idle.status == Status::Warn && idle.fix.unwrap().contains("nvidia-persistenced"));
        let good = with(&[VENDOR, CLASS, driver, SOCKET]);
        assert!(good.status == Status::Ok && good.evidence.contains("535.161.08"), "{good:?}");

        let old = kernel_module("470.82.01");
        let old = with(&[VENDOR, CLASS, ("/proc/driver/nvidia/version", &old), SOCKET]);
        assert!(old.status == Status::Warn && old.evidence.contains("470.82.01"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build\n";
        assert_eq!(with(&[VENDOR, CLASS, ("/proc/driver/nvidia/version", open), SOCKET]).status, Status::Ok);
    }
}
