//! Differences between processors and boards: cores of several kinds, firmware that changes the
//! frequency, and advice for one of them only.
//!
//! The tree decides, and not the processor that this program was built for: a copy of a Raspberry
//! Pi's `/proc` and `/sys` gets the advice for a Raspberry Pi.

use std::collections::BTreeMap;

use takt_rt::placement::CpuSet;
use takt_rt::processor::{self, Family};

use crate::doctor::gpu;
use crate::doctor::report::Check;
use crate::doctor::tree::Tree;

/// Boards with tools and kernels of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Board {
    RaspberryPi,
    /// NVIDIA's Tegra, with L4T's kernel.
    Jetson,
    Other,
}

pub(crate) fn family(tree: &Tree) -> Family {
    processor::family(&tree.at("/"))
}

/// A property of the device tree: strings that end with NUL.
fn property(tree: &Tree, name: &str) -> Vec<String> {
    let text = ["/sys/firmware/devicetree/base", "/proc/device-tree"]
        .iter()
        .find_map(|folder| tree.text(&format!("{folder}/{name}")));
    let text = text.unwrap_or_default();
    text.split('\0').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

pub(crate) fn board(tree: &Tree) -> Board {
    let compatible = property(tree, "compatible");
    let any = |prefix: &str| compatible.iter().any(|word| word.starts_with(prefix));
    match () {
        () if any("raspberrypi,") => Board::RaspberryPi,
        () if any("nvidia,tegra") => Board::Jetson,
        () => Board::Other,
    }
}

/// Whether the machine's own description says that it is a virtual one. ARM has no flag for that
/// in `/proc/cpuinfo`, so these are the marks that systemd-detect-virt takes.
pub(crate) fn describes_a_guest(tree: &Tree) -> bool {
    const VENDORS: [&str; 12] = [
        "QEMU",
        "KVM",
        "OpenStack",
        "KubeVirt",
        "Amazon EC2",
        "VMware",
        "innotek GmbH",
        "Xen",
        "Parallels",
        "Apple Virtualization",
        "Google",
        "Microsoft Corporation",
    ];
    let dmi = |file: &str| tree.line(&format!("/sys/class/dmi/id/{file}")).unwrap_or_default();
    let (vendor, product) = (dmi("sys_vendor"), dmi("product_name"));
    // Both makers sell machines as well.
    let machine = product.ends_with(".metal") || product.starts_with("Surface");
    (VENDORS.iter().any(|name| vendor.starts_with(name)) && !machine)
        || !property(tree, "hypervisor/compatible").is_empty()
        || property(tree, "compatible").iter().any(|word| word == "linux,dummy-virt")
}

/// Source of a PREEMPT_RT kernel for this machine, and its cost.
pub(crate) fn rt_kernel(tree: &Tree) -> String {
    const BUILD: &str = "otherwise build 6.12 or newer with CONFIG_PREEMPT_RT=y";
    let install = match (family(tree), board(tree)) {
        (_, Board::Jetson) => "NVIDIA's, from its apt repository `jetson/rt-kernel` (L4T 36 or newer): `sudo apt-get install \
                               nvidia-l4t-rt-kernel nvidia-l4t-rt-kernel-headers nvidia-l4t-rt-kernel-oot-modules \
                               nvidia-l4t-display-rt-kernel`, which brings the modules of the GPU"
            .to_owned(),
        (_, Board::RaspberryPi) => format!(
            "Raspberry Pi OS `sudo apt-get install linux-image-rpi-v8-rt` and `kernel=kernel8_rt.img` in \
             /boot/firmware/config.txt, Ubuntu `sudo pro enable realtime-kernel --variant=raspi`, {BUILD}"
        ),
        (Family::Arm, Board::Other) => format!(
            "Debian `sudo apt-get install linux-image-rt-arm64`, Ubuntu `sudo pro enable realtime-kernel`, {BUILD}"
        ),
        (Family::Riscv, Board::Other) => format!("your board's, {BUILD}"),
        (Family::X86 | Family::Unknown, Board::Other) => format!(
            "Debian `sudo apt-get install linux-image-rt-amd64`, Ubuntu `sudo pro enable realtime-kernel`, {BUILD}"
        ),
    };
    let gpu = if gpu::has_card(tree) && board(tree) != Board::Jetson {
        format!("; {}", gpu::REFUSAL)
    } else {
        String::new()
    };
    format!("install a PREEMPT_RT kernel: {install}{gpu}")
}

/// Component that stops a CPU without the kernel's knowledge, for the reason of the finding.
pub(crate) fn below_the_kernel(family: Family) -> &'static str {
    match family {
        Family::Arm => {
            "firmware (the secure monitor at EL3, which the kernel calls for power and idle states)"
        }
        Family::Riscv => "firmware (in machine mode)",
        Family::X86 | Family::Unknown => "firmware (system management interrupts)",
    }
}

/// Remedy against firmware that takes CPU time.
pub(crate) fn firmware_fix(tree: &Tree) -> &'static str {
    match (family(tree), board(tree)) {
        (_, Board::RaspberryPi) => {
            "update the firmware (`sudo rpi-eeprom-update -a`), and check whether it slows the CPUs down (`vcgencmd get_throttled`)"
        }
        (_, Board::Jetson) => {
            "`sudo jetson_clocks` keeps all clocks at their highest; update L4T, which brings the firmware"
        }
        (Family::Arm | Family::Riscv, Board::Other) => {
            "update the board's firmware (TF-A, OpenSBI, U-Boot), and keep CPUs out of idle states and frequencies that it switches"
        }
        (Family::X86 | Family::Unknown, Board::Other) => {
            "in the firmware's setup, switch off legacy USB, power capping and memory scrubbing; update the firmware"
        }
    }
}

/// The boot parameters that keep CPUs out of deep idle states.
pub(crate) fn idle_parameters(family: Family) -> &'static str {
    match family {
        Family::Arm | Family::Riscv => "cpuidle.off=1",
        Family::X86 | Family::Unknown => "processor.max_cstate=1 intel_idle.max_cstate=1",
    }
}

/// The findings that only processors of the family ARM have.
pub(crate) fn findings(tree: &Tree) -> Vec<Check> {
    if family(tree) != Family::Arm {
        return Vec::new();
    }
    let throttling = match board(tree) {
        Board::RaspberryPi => Some(raspberry_throttling(tree)),
        Board::Jetson => Some(jetson_throttling(tree)),
        Board::Other => None,
    };
    [cores(tree), capacities(tree)].into_iter().chain(throttling).collect()
}

fn cores(tree: &Tree) -> Check {
    let check = Check::new("processor", "Processor", "the right advice depends on core, board and kernel");
    let Some(name) = processor::name(&tree.at("/")) else {
        return check.unknown("neither /proc/cpuinfo nor the device tree names it");
    };
    let mut evidence = name;
    if board(tree) == Board::Jetson {
        // "# R36 (release), REVISION: 4.3, GCID: …".
        if let Some(line) = tree.text("/etc/nv_tegra_release").and_then(|text| l4t(&text)) {
            evidence.push_str(&format!("; L4T {line}"));
        }
        // "pmode:0002 fmode:fanNull".
        let mode = tree.line("/var/lib/nvpmodel/status").and_then(|line| {
            let mode = line.split_whitespace().find_map(|word| word.strip_prefix("pmode:"))?;
            mode.parse::<u32>().ok()
        });
        if let Some(mode) = mode {
            evidence.push_str(&format!("; power mode {mode} (`nvpmodel -q`)"));
        }
    }
    check.ok(evidence)
}

/// "R36.4.3" from the first line of `/etc/nv_tegra_release`.
fn l4t(text: &str) -> Option<String> {
    let line = text.lines().next()?.strip_prefix("# ")?;
    let release = line.split_whitespace().next()?;
    let revision = line.split_once("REVISION: ")?.1.split(',').next()?.trim();
    Some(format!("{release}.{revision}"))
}

/// Capacity of each CPU according to the kernel, of 1024; empty if the kernel does not report it.
pub(crate) fn by_capacity(tree: &Tree) -> BTreeMap<i64, CpuSet> {
    let mut alike: BTreeMap<i64, CpuSet> = BTreeMap::new();
    for cpu in tree.online().iter() {
        if let Some(capacity) = tree.number(&format!("/sys/devices/system/cpu/cpu{cpu}/cpu_capacity")) {
            alike.entry(capacity).or_default().insert(cpu);
        }
    }
    alike
}

fn capacities(tree: &Tree) -> Check {
    let check = Check::new(
        "cpu_capacity",
        "Kinds of cores",
        "a small core takes two to four times as long for the same job, and the scheduler moves threads of every policy between small and \
         big cores unless they are pinned",
    );
    let alike = by_capacity(tree);
    let Some((most, biggest)) = alike.last_key_value() else {
        return check.unknown("the kernel reports no capacities");
    };
    if alike.len() == 1 {
        return check.ok(format!("all CPUs {} are identical", tree.online()));
    }
    let shown: Vec<String> =
        alike.iter().map(|(capacity, cpus)| format!("{capacity} on CPUs {cpus}")).collect();
    check.with_number("largest_capacity", *most as f64).warn(
        format!("cores of {} kinds, by capacity: {}", alike.len(), shown.join(", ")),
        format!("pin the real-time threads to CPUs {biggest} (`cpus = \"{biggest}\"` for each task), and measure there"),
    )
}

fn throttling_check() -> Check {
    Check::new(
        "firmware_throttling",
        "Firmware throttling",
        "because of heat, current or a weak supply, the firmware slows all CPUs down without telling the governor: every job suddenly \
         takes longer",
    )
}

/// Flags of the firmware's `get_throttled`: the bit of what is so now. The same conditions since
/// the boot are 16 bits higher.
const FLAGS: [(u32, &str); 4] =
    [(0, "under-voltage"), (1, "frequency capped"), (2, "throttled"), (3, "soft temperature limit")];

fn raspberry_throttling(tree: &Tree) -> Check {
    const PLATFORM: &str = "/sys/devices/platform";
    let check = throttling_check();
    // /sys/devices/platform/soc/soc:firmware up to the Pi 4, with an address in both names on the
    // Pi 5.
    let bridges = tree.names(PLATFORM).into_iter().filter(|name| name.starts_with("soc"));
    let flags = bridges.into_iter().find_map(|bridge| {
        let folder = format!("{PLATFORM}/{bridge}");
        tree.names(&folder).into_iter().filter(|name| name.ends_with("firmware")).find_map(|name| {
            let text = tree.line(&format!("{folder}/{name}/get_throttled"))?;
            u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
        })
    });
    let Some(flags) = flags else {
        return supply(tree, check);
    };
    let of = |shift: u32| -> Vec<&str> {
        FLAGS.iter().filter(|(bit, _)| flags >> (bit + shift) & 1 == 1).map(|(_, words)| *words).collect()
    };
    let (now, before) = (of(0), of(16));
    let list = |words: &[&str]| if words.is_empty() { "nothing".to_owned() } else { words.join(", ") };
    let evidence = format!("get_throttled is {flags:#x}: now {}; since boot {}", list(&now), list(&before));
    let all = || now.iter().chain(&before);
    let mut fixes = Vec::new();
    if all().any(|words| *words == "under-voltage") {
        fixes.push("use a supply that the board's maker recommends (Pi 5: 5.1 V, 5 A), and a short cable");
    }
    if all().any(|words| *words != "under-voltage") || fixes.is_empty() {
        fixes.push("use a cooler with a fan, or a lower `arm_freq` in /boot/firmware/config.txt");
    }
    match (now.is_empty(), before.is_empty()) {
        (true, true) => check.ok(evidence),
        (true, false) => check.warn(evidence, fixes.join("; ")),
        (false, _) => check.fail(evidence, fixes.join("; ")),
    }
}

/// The kernel's own watch of the supply, where the firmware's flags are not shown.
fn supply(tree: &Tree, check: Check) -> Check {
    const HWMON: &str = "/sys/class/hwmon";
    let alarm = tree.names(HWMON).into_iter().find_map(|name| {
        let folder = format!("{HWMON}/{name}");
        (tree.line(&format!("{folder}/name")).as_deref() == Some("rpi_volt"))
            .then(|| tree.number(&format!("{folder}/in0_lcrit_alarm")))?
    });
    match alarm {
        Some(0) => check.unknown(
            "no under-voltage (rpi_volt); `vcgencmd get_throttled` shows whether heat slows the CPUs down (0x0: never)",
        ),
        Some(_) => check.fail(
            "under-voltage since boot (rpi_volt)",
            "use a supply that the board's maker recommends (Pi 5: 5.1 V, 5 A), and a short cable",
        ),
        None => check.unknown("the firmware's flags are not in /sys: `vcgencmd get_throttled` shows them (0x0: never)"),
    }
}

/// Over-current events of a Jetson, each of which slows the clocks down.
fn jetson_throttling(tree: &Tree) -> Check {
    const HWMON: &str = "/sys/class/hwmon";
    let check = throttling_check();
    let mut counts = Vec::new();
    for monitor in tree.names(HWMON) {
        for file in tree.names(&format!("{HWMON}/{monitor}")) {
            if file.starts_with("oc") && file.ends_with("_event_cnt") {
                counts.extend(tree.number(&format!("{HWMON}/{monitor}/{file}")));
            }
        }
    }
    if counts.is_empty() {
        return check.unknown("no counts of over-current events (/sys/class/hwmon/hwmon*/oc*_event_cnt)");
    }
    let sum = counts.iter().fold(0_i64, |sum, count| sum.saturating_add(*count));
    let check = check.with_number("over_current_events", sum as f64);
    let evidence = format!("{sum} over-current events since boot");
    if sum == 0 {
        return check.ok(evidence);
    }
    check.warn(
        evidence,
        "use a power mode with a smaller budget (`sudo nvpmodel -q --verbose`, then `-m`), or a stronger supply",
    )
}

#[cfg(test)]
#[path = "processor_tests.rs"]
mod tests;
