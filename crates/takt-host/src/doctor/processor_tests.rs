//! Whole machines: what their kernels show of them, as public reports have it, and what the doctor
//! makes of it.

use super::*;
use crate::doctor::examine;
use crate::doctor::options::Options;
use crate::doctor::report::{Report, Status};
use crate::doctor::tree::fake;

type Files = Vec<(String, String)>;

fn examined(files: &Files) -> Report {
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let root = fake::tree(&files);
    examine(&Options { root: root.path().to_owned(), ..Options::default() }).unwrap()
}

fn all(files: &[(&str, &str)]) -> Files {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

/// `/proc/cpuinfo` of cores: implementer, part, variant, revision.
fn cpuinfo(head: &str, cores: &[(&str, &str, &str, u32)]) -> (String, String) {
    let blocks = cores.iter().enumerate().map(|(number, (implementer, part, variant, revision))| {
        format!(
            "processor\t: {number}\n{head}Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics\nCPU implementer\t: \
             {implementer}\nCPU architecture: 8\nCPU variant\t: {variant}\nCPU part\t: {part}\nCPU revision\t: {revision}\n\n"
        )
    });
    ("/proc/cpuinfo".to_owned(), blocks.collect())
}

const CPUS: &str = "/sys/devices/system/cpu";

/// Raspberry Pi 5, 6.12 of Raspberry Pi OS: GIC-400, devices behind the RP1, governor `ondemand`.
fn raspberry_pi_5(throttled: &str) -> Files {
    let mut files = all(&[
        ("/proc/device-tree/model", "Raspberry Pi 5 Model B Rev 1.0\0"),
        ("/proc/device-tree/compatible", "raspberrypi,5-model-b\0brcm,bcm2712\0"),
        ("/proc/sys/kernel/osrelease", "6.12.47+rpt-rpi-2712\n"),
        ("/proc/sys/kernel/version", "#1 SMP PREEMPT Debian 1:6.12.47-1+rpt1 (2025-09-16)\n"),
        ("/sys/devices/system/cpu/online", "0-3\n"),
        ("/sys/devices/system/cpu/isolated", "3\n"),
        ("/sys/devices/system/cpu/nohz_full", "3\n"),
        ("/proc/irq/default_smp_affinity", "f\n"),
        // arch_timer is each core's own; eth0 lies behind the RP1; the mailbox can be moved.
        // GIC-400 has no name here.
        ("/proc/irq/13/smp_affinity_list", "0-3\n"),
        ("/sys/kernel/irq/13/chip_name", "\n"),
        ("/sys/kernel/irq/13/hwirq", "30\n"),
        // A call between CPUs, and a button behind a GPIO controller: number 20 there is no core's
        // own.
        ("/proc/irq/1/smp_affinity_list", "0-3\n"),
        ("/sys/kernel/irq/1/hwirq", "0\n"),
        ("/proc/irq/160/smp_affinity_list", "0-2\n"),
        ("/sys/kernel/irq/160/chip_name", "brcmstb-gpio\n"),
        ("/sys/kernel/irq/160/hwirq", "20\n"),
        ("/proc/irq/106/smp_affinity_list", "0-3\n"),
        ("/sys/kernel/irq/106/chip_name", "rp1_irq_chip\n"),
        ("/sys/kernel/irq/106/hwirq", "6\n"),
        ("/proc/irq/31/smp_affinity_list", "0-3\n"),
        ("/sys/kernel/irq/31/chip_name", "\n"),
        ("/sys/kernel/irq/31/hwirq", "65\n"),
    ]);
    files.push(cpuinfo("BogoMIPS\t: 108.00\n", &[("0x41", "0xd0b", "0x4", 1); 4]));
    files.push((
        "/sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled".to_owned(),
        format!("{throttled}\n"),
    ));
    for cpu in 0..4 {
        let file = |name: &str| format!("{CPUS}/cpu{cpu}/cpufreq/{name}");
        files.push((file("scaling_governor"), "ondemand\n".to_owned()));
        files.push((
            file("scaling_available_governors"),
            "conservative ondemand userspace powersave performance schedutil\n".to_owned(),
        ));
        files.push((file("scaling_cur_freq"), "1500000\n".to_owned()));
        files.push((format!("{CPUS}/cpu{cpu}/cpu_capacity"), "1024\n".to_owned()));
    }
    files
}

/// Jetson Orin Nano, JetPack 6 (L4T 36.4.3), governor `schedutil`.
fn jetson_orin_nano() -> Files {
    let mut files = all(&[
        ("/proc/device-tree/model", "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super\0"),
        (
            "/proc/device-tree/compatible",
            "nvidia,p3768-0000+p3767-0005-super\0nvidia,p3767-0005\0nvidia,tegra234\0",
        ),
        ("/proc/sys/kernel/osrelease", "5.15.148-tegra\n"),
        ("/proc/sys/kernel/version", "#1 SMP PREEMPT Tue Jan 7 17:14:38 PST 2025\n"),
        (
            "/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build\n",
        ),
        (
            "/etc/nv_tegra_release",
            "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 01:49:37 UTC 2025\n",
        ),
        ("/var/lib/nvpmodel/status", "pmode:0001 fmode:cool\n"),
        ("/sys/devices/system/cpu/online", "0-5\n"),
        ("/sys/class/hwmon/hwmon1/name", "soctherm_oc\n"),
        ("/sys/class/hwmon/hwmon1/oc1_event_cnt", "0\n"),
        ("/sys/class/hwmon/hwmon1/oc3_event_cnt", "17\n"),
    ]);
    files.push(cpuinfo("model name\t: ARMv8 Processor rev 1 (v8l)\n", &[("0x41", "0xd42", "0x0", 1); 6]));
    for cpu in 0..6 {
        files.push((format!("{CPUS}/cpu{cpu}/cpufreq/scaling_governor"), "schedutil\n".to_owned()));
        files.push((format!("{CPUS}/cpu{cpu}/cpu_capacity"), "1024\n".to_owned()));
    }
    files
}

/// Radxa Rock 5B (RK3588): four small cores and four big ones.
fn rock_5b() -> Files {
    let mut files = all(&[
        ("/proc/device-tree/model", "Radxa ROCK 5B\0"),
        ("/proc/device-tree/compatible", "radxa,rock-5b\0rockchip,rk3588\0"),
        ("/sys/devices/system/cpu/online", "0-7\n"),
    ]);
    let small = [("0x41", "0xd05", "0x2", 0); 4];
    let big = [("0x41", "0xd0b", "0x4", 0); 4];
    files.push(cpuinfo("BogoMIPS\t: 48.00\n", &[small, big].concat()));
    for cpu in 0..8 {
        let capacity = if cpu < 4 { "414\n" } else { "1024\n" };
        files.push((format!("{CPUS}/cpu{cpu}/cpu_capacity"), capacity.to_owned()));
    }
    files
}

/// QEMU's `virt` with a device tree, as `tools/arm64` boots it.
fn qemu_virt() -> Files {
    let mut files = all(&[
        ("/proc/device-tree/model", "linux,dummy-virt\0"),
        ("/proc/device-tree/compatible", "linux,dummy-virt\0"),
        ("/sys/devices/system/cpu/online", "0-1\n"),
    ]);
    files.push(cpuinfo("BogoMIPS\t: 125.00\n", &[("0x41", "0xd0b", "0x4", 1); 2]));
    files
}

/// Words that hold for x86 alone.
const X86: [&str; 9] =
    ["msr", "SMI", "system management", "legacy USB", "cstate", "amd64", "hpet", "tsc", "Intel"];

#[test]
fn no_arm_machine_gets_advice_for_x86() {
    for files in [raspberry_pi_5("0"), jetson_orin_nano(), rock_5b(), qemu_virt()] {
        let report = examined(&files);
        for check in &report.checks {
            let text = format!("{} {} {}", check.why, check.evidence, check.fix.as_deref().unwrap_or(""));
            let words: Vec<_> = X86.iter().filter(|word| text.contains(**word)).collect();
            assert!(words.is_empty(), "{}: {words:?} in {text}", check.id);
        }
        assert!(report.get("processor").unwrap().evidence.contains("ARM Cortex-A"), "{report:?}");
    }
}

#[test]
fn x86_has_no_findings_of_arm() {
    let report = examined(&all(&[
        ("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: x\nflags\t\t: fpu\n"),
        ("/sys/devices/system/cpu/online", "0\n"),
    ]));
    for id in ["processor", "cpu_capacity", "firmware_throttling"] {
        assert!(report.get(id).is_none(), "{id}");
    }
}

#[test]
fn a_raspberry_pi_is_named_and_its_firmware_asked() {
    let report = examined(&raspberry_pi_5("0"));
    assert_eq!(
        report.get("processor").unwrap().evidence,
        "4 × ARM Cortex-A76 r4p1 (Raspberry Pi 5 Model B Rev 1.0)"
    );
    assert_eq!(report.get("firmware_throttling").unwrap().status, Status::Ok);
    assert_eq!(report.get("cpu_capacity").unwrap().status, Status::Ok);
    assert_eq!(report.get("hypervisor").unwrap().status, Status::Ok);
    let preemption = report.get("preemption").unwrap().fix.clone().unwrap();
    assert!(preemption.contains("linux-image-rpi-v8-rt"), "{preemption}");

    // Seen with a weak supply: under-voltage and throttling now, and before.
    let now = examined(&raspberry_pi_5("50005"));
    let now = now.get("firmware_throttling").unwrap();
    assert_eq!(now.status, Status::Fail);
    assert!(now.evidence.contains("now under-voltage, throttled; since boot under-voltage, throttled"));
    let before = examined(&raspberry_pi_5("0x80000"));
    let before = before.get("firmware_throttling").unwrap();
    assert_eq!(before.status, Status::Warn);
    assert!(
        before.evidence.contains("now nothing; since boot soft temperature limit"),
        "{}",
        before.evidence
    );
    let fix = before.fix.as_deref().unwrap();
    assert!(fix.contains("cooler") && !fix.contains("supply"), "{fix}");
    let unknown = examined(&raspberry_pi_5("many"));
    let unknown = unknown.get("firmware_throttling").unwrap();
    assert!(unknown.status == Status::Unknown && unknown.evidence.contains("vcgencmd"));
}

#[test]
fn only_interrupts_that_can_be_moved_are() {
    let report = examined(&raspberry_pi_5("0"));
    let check = report.get("interrupts").unwrap();
    assert_eq!(check.status, Status::Warn, "{check:?}");
    let changed: Vec<_> = check.changes.iter().filter_map(|change| change.path.to_str()).collect();
    assert_eq!(changed, ["/proc/irq/31/smp_affinity_list", "/proc/irq/default_smp_affinity"]);
    assert!(
        check.evidence.contains("1 of 2 interrupts") && check.evidence.contains("3 others cannot be moved")
    );
}

#[test]
fn a_jetson_gets_nvidias_tools() {
    let report = examined(&jetson_orin_nano());
    let processor = &report.get("processor").unwrap().evidence;
    assert!(processor.starts_with("6 × ARM Cortex-A78AE r0p1 (NVIDIA Jetson Orin Nano"), "{processor}");
    assert!(processor.contains("L4T R36.4.3") && processor.contains("power mode 1"), "{processor}");
    let governor = report.get("governor").unwrap();
    assert_eq!((governor.status, governor.changes.len()), (Status::Warn, 0));
    assert!(governor.fix.as_deref().unwrap().contains("jetson_clocks"));
    let throttling = report.get("firmware_throttling").unwrap();
    assert_eq!((throttling.status, throttling.measured["over_current_events"]), (Status::Warn, 17.0));
    let preemption = report.get("preemption").unwrap().fix.clone().unwrap();
    assert!(preemption.contains("nvidia-l4t-rt-kernel") && !preemption.contains("refuses"), "{preemption}");
    let gpu = report.get("gpu").unwrap();
    assert!(gpu.status == Status::Ok && gpu.evidence.contains("Jetson"), "{gpu:?}");
}

#[test]
fn big_cores_are_recommended() {
    let report = examined(&rock_5b());
    let check = report.get("cpu_capacity").unwrap();
    assert_eq!(check.status, Status::Warn);
    assert!(check.evidence.ends_with("414 on CPUs 0-3, 1024 on CPUs 4-7"), "{}", check.evidence);
    assert!(check.fix.as_deref().unwrap().contains("CPUs 4-7"));
    let processor = &report.get("processor").unwrap().evidence;
    assert_eq!(processor, "4 × ARM Cortex-A55 r2p0, 4 × ARM Cortex-A76 r4p0 (Radxa ROCK 5B)");
    assert!(report.get("isolation").unwrap().fix.as_deref().unwrap().contains("nohz_full=4-7"));
    assert!(report.get("firmware_throttling").is_none());

    // A Snapdragon's or a Jetson TX2's big cores are not the upper half.
    let mut files = rock_5b();
    files.retain(|(path, _)| !path.ends_with("cpu_capacity"));
    for cpu in 0..8 {
        let capacity = if [1, 2].contains(&cpu) { "1024" } else { "600" };
        files.push((format!("{CPUS}/cpu{cpu}/cpu_capacity"), capacity.to_owned()));
    }
    assert!(examined(&files).get("isolation").unwrap().fix.as_deref().unwrap().contains("nohz_full=1-2"));
}

#[test]
fn guests_on_arm_show_themselves() {
    let virtual_with = |files: &[(&str, &str)]| {
        let mut files = all(files);
        files.push(cpuinfo("", &[("0x41", "0xd0c", "0x3", 1)]));
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        crate::doctor::cpus::is_virtual(&Tree::new(fake::tree(&files).path()))
    };
    const VENDOR: &str = "/sys/class/dmi/id/sys_vendor";
    const PRODUCT: &str = "/sys/class/dmi/id/product_name";
    assert!(virtual_with(&[("/proc/device-tree/compatible", "linux,dummy-virt\0")]));
    assert!(virtual_with(&[("/proc/device-tree/hypervisor/compatible", "xen,xen-4.17\0xen,xen\0")]));
    assert!(virtual_with(&[(VENDOR, "QEMU\n"), (PRODUCT, "KVM Virtual Machine\n")]));
    assert!(virtual_with(&[(VENDOR, "Amazon EC2\n"), (PRODUCT, "m7g.large\n")]));
    assert!(!virtual_with(&[(VENDOR, "Amazon EC2\n"), (PRODUCT, "m7g.metal\n")]));
    assert!(!virtual_with(&[(VENDOR, "GIGABYTE\n")]));
    assert!(!virtual_with(&[]));
}

#[test]
fn a_card_of_nvidia_and_a_real_time_kernel_do_not_go_together() {
    let mut files = all(&[
        ("/proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC\n"),
        ("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\n"),
    ]);
    let fix = |files: &Files| examined(files).get("preemption").unwrap().fix.clone().unwrap();
    assert!(!fix(&files).contains("NVIDIA"));
    files.extend(all(&[
        ("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"),
        ("/sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n"),
    ]));
    assert!(fix(&files).contains("refuses to build on PREEMPT_RT") && fix(&files).contains("rt-amd64"));
}
