//! The facts of the machine and kernel that a run depends on, read at its start and end.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cpu::{self, CpuPower};

/// Facts that do not change during a run. Whatever the kernel does not report is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub host: Option<String>,
    /// Kernel release (`uname -r`).
    pub kernel: Option<String>,
    /// Kernel version line: holds the preemption model of its build.
    pub kernel_version: Option<String>,
    /// Preemption model in force where the kernel shows it (debugfs), else as built.
    pub preemption: Option<String>,
    pub boot_parameters: Option<String>,
    /// CPU model: of x86 its name, of ARM implementer and part (MIDR), of RISC-V the
    /// microarchitecture, each with the board.
    pub cpu: Option<String>,
    /// Online CPUs, as the kernel lists them.
    pub online_cpus: Option<String>,
    /// Isolated CPUs, as the kernel lists them.
    pub isolated_cpus: Option<String>,
    /// CPUs that keep no tick while one task runs, as the kernel lists them.
    #[serde(default)]
    pub nohz_full_cpus: Option<String>,
    /// Governor and idle states of every CPU, CPUs with the same ones together.
    #[serde(default)]
    pub power: Vec<CpuPower>,
    /// Frequency governor of CPU 0.
    pub governor: Option<String>,
    /// Idle states of CPU 0, shallowest first.
    pub idle_states: Vec<String>,
    /// Times that the CPUs were slowed down for heat since boot, all together.
    #[serde(default)]
    pub thermal_throttles: Option<u64>,
    pub clock_source: Option<String>,
    /// Microseconds per second that real-time threads may use (`sched_rt_runtime_us`); -1: no
    /// limit.
    pub rt_runtime_us: Option<i64>,
    /// Whether a hypervisor is below this kernel.
    pub hypervisor: bool,
    pub memory_kib: Option<u64>,
    /// Facts about Takt's virtual machine; absent on any other machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_machine: Option<VirtualMachine>,
}

/// File in which a guest of Takt finds the facts about its machine that only the host knows.
pub const VIRTUAL_MACHINE_FILE: &str = "/etc/takt/virtual-machine.json";

/// Takt's own virtual machine, as its maker describes it to the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VirtualMachine {
    /// Whether time is counted in instructions instead of passing: then no figure is one of a real
    /// machine.
    pub virtual_time: bool,
    /// The machine and how it counts time: "QEMU 7.2.22, TCG, 1 ns an instruction".
    pub machine: String,
    pub cpus: u32,
    pub memory_mib: u32,
    /// The kernel as the campaign calls it.
    pub kernel: String,
    /// The package that the kernel is from, with its version; nothing for a kernel by path.
    #[serde(default)]
    pub package: Option<String>,
    /// SHA-256 of the kernel's file.
    pub kernel_sha256: String,
    /// Boot parameters asked for, beside the machine's own.
    #[serde(default)]
    pub boot: Vec<String>,
}

impl VirtualMachine {
    /// The time base and the number of CPUs, which determine the meaning of its figures.
    #[must_use]
    pub fn in_words(&self) -> String {
        let time = if self.virtual_time { "counted time" } else { "real time" };
        let cpus = if self.cpus == 1 { "CPU" } else { "CPUs" };
        format!("in {time} on {} virtual {cpus}", self.cpus)
    }

    /// Reads a guest's file. Returns nothing on any other machine: a guest is recognised by its
    /// kernel's command line.
    fn of_guest(boot_parameters: Option<&str>) -> Option<Self> {
        let reported = boot_parameters?.split_whitespace().any(|word| word == GUEST_PARAMETER);
        reported.then(|| serde_json::from_str(&fs::read_to_string(VIRTUAL_MACHINE_FILE).ok()?).ok())?
    }
}

/// The boot parameter that marks a guest of Takt; kernels take no notice of it.
pub const GUEST_PARAMETER: &str = "takt.guest";

fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn keyed<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find(|l| l.split([':', '\t', ' ']).next() == Some(key) || l.starts_with(key))?;
    Some(line.split_once(':')?.1.trim())
}

/// Preemption model: the one in force is shown in parentheses in debugfs (`none voluntary (full)`).
fn preemption(kernel_version: Option<&str>) -> Option<String> {
    let in_force = line("/sys/kernel/debug/sched/preempt")
        .and_then(|modes| Some(modes.split_once('(')?.1.split_once(')')?.0.to_owned()));
    let built = kernel_version.and_then(|version| {
        version.split_whitespace().find(|word| word.starts_with("PREEMPT")).map(str::to_owned)
    });
    match (built, in_force) {
        (Some(built), Some(in_force)) => Some(format!("{built} ({in_force})")),
        (built, in_force) => in_force.or(built),
    }
}

fn thermal_throttles() -> Option<u64> {
    let counts = (0..1024).map_while(|cpu| {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
        fs::metadata(&folder).ok()?;
        Some(
            line(&format!("{folder}/thermal_throttle/core_throttle_count"))
                .and_then(|v| v.parse::<u64>().ok()),
        )
    });
    counts.flatten().reduce(|a, b| a + b)
}

/// Facts of a [`Machine`] that another kernel changes with it: who varies the kernel on purpose
/// expects them to differ.
pub const KERNEL_FACTS: [&str; 11] = [
    "kernel",
    "kernel_version",
    "preemption",
    "boot_parameters",
    "isolated_cpus",
    "rt_runtime_us",
    "idle_states",
    "nohz_full_cpus",
    "power",
    // Of a guest: what the kernel leaves of it, and the guest's own description, which names the
    // kernel.
    "memory_kib",
    "virtual_machine",
];

/// A fact that is not the same on two machines, or on one machine at two times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactDifference {
    /// The fact: a field of [`Machine`].
    pub fact: String,
    /// Its value in the first.
    pub before: String,
    /// Its value in the second.
    pub after: String,
}

impl Machine {
    /// Facts that differ between two machines and that can change latencies. Counters that always
    /// grow are none.
    pub fn differences(&self, other: &Self) -> Vec<FactDifference> {
        let facts = |machine: &Self| match serde_json::to_value(machine) {
            Ok(serde_json::Value::Object(mut facts)) => {
                facts.remove("thermal_throttles");
                facts
            }
            // A struct of plain fields becomes an object.
            _ => serde_json::Map::new(),
        };
        let show = |value: &serde_json::Value| match value {
            serde_json::Value::Null => "unknown".to_owned(),
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let (before, after) = (facts(self), facts(other));
        let differs = before.iter().filter_map(|(fact, value)| Some((fact, value, after.get(fact)?)));
        differs
            .filter(|(_, a, b)| a != b)
            .map(|(fact, a, b)| FactDifference { fact: fact.clone(), before: show(a), after: show(b) })
            .collect()
    }

    /// Reads the facts.
    pub fn read() -> Self {
        let root = Path::new("/");
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel_version = line("/proc/sys/kernel/version");
        let idle_states = (0..16)
            .map_while(|state| line(&format!("/sys/devices/system/cpu/cpu0/cpuidle/state{state}/name")))
            .collect();
        Self {
            host: line("/proc/sys/kernel/hostname"),
            kernel: line("/proc/sys/kernel/osrelease"),
            preemption: preemption(kernel_version.as_deref()),
            kernel_version,
            virtual_machine: VirtualMachine::of_guest(line("/proc/cmdline").as_deref()),
            boot_parameters: line("/proc/cmdline"),
            cpu: takt_rt::processor::name(root),
            online_cpus: line("/sys/devices/system/cpu/online"),
            isolated_cpus: line("/sys/devices/system/cpu/isolated"),
            // Without any, kernels write this.
            nohz_full_cpus: line("/sys/devices/system/cpu/nohz_full").filter(|list| list != "(null)"),
            power: cpu::power(root),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            idle_states,
            thermal_throttles: thermal_throttles(),
            clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            rt_runtime_us: line("/proc/sys/kernel/sched_rt_runtime_us").and_then(|v| v.parse().ok()),
            hypervisor: cpuinfo.lines().any(|l| l.starts_with("flags") && l.contains(" hypervisor")),
            memory_kib: keyed(&meminfo, "MemTotal").and_then(|v| v.split_whitespace().next()?.parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_the_fact_and_both_values() {
        let here = Machine::read();
        assert!(here.differences(&here.clone()).is_empty());
        let there = Machine { kernel: Some("9.9".into()), thermal_throttles: Some(77), ..here.clone() };
        let differences = here.differences(&there);
        assert_eq!(differences.len(), 1);
        assert_eq!((differences[0].fact.as_str(), differences[0].after.as_str()), ("kernel", "9.9"));
        assert_eq!(differences[0].before, here.kernel.unwrap());
    }

    #[test]
    fn this_machine_reports_its_kernel() {
        let machine = Machine::read();
        assert!(machine.kernel.is_some() && machine.cpu.is_some() && machine.memory_kib > Some(0));
        assert!(!machine.power.is_empty(), "every online CPU is in it");
    }
}
