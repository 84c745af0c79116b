//! State of the CPUs: frequency, idle states, siblings, isolation.

use takt_rt::placement::CpuSet;
use takt_rt::processor::Family;

use crate::doctor::change::Change;
use crate::doctor::processor::{self, Board};
use crate::doctor::report::Check;
use crate::doctor::tree::Tree;

const CPUS: &str = "/sys/devices/system/cpu";

/// Whether a hypervisor is below this kernel.
pub(crate) fn is_virtual(tree: &Tree) -> bool {
    let flags = |line: &str| {
        line.split_once(':').is_some_and(|(key, flags)| {
            key.trim() == "flags" && flags.split_ascii_whitespace().any(|flag| flag == "hypervisor")
        })
    };
    tree.text("/proc/cpuinfo").is_some_and(|text| text.lines().any(flags))
        || tree.line("/sys/hypervisor/type").is_some()
        || (processor::family(tree) == Family::Arm && processor::describes_a_guest(tree))
}

pub(crate) fn governor(tree: &Tree) -> Check {
    let check = Check::new(
        "governor",
        "Frequency governor",
        "a CPU that has slowed down runs the first jobs after a pause slowly, and changing the frequency itself takes time",
    );
    let file = |cpu: usize, name: &str| format!("{CPUS}/cpu{cpu}/cpufreq/{name}");
    let governors: Vec<(usize, String)> = tree
        .online()
        .iter()
        .filter_map(|cpu| Some((cpu, tree.line(&file(cpu, "scaling_governor"))?)))
        .collect();
    if governors.is_empty() {
        let whose = if is_virtual(tree) { "the hypervisor" } else { "the firmware" };
        return check.unknown(format!("no cpufreq: {whose} sets the frequency"));
    }
    let mhz: Vec<i64> = governors
        .iter()
        .filter_map(|(cpu, _)| Some(tree.number(&file(*cpu, "scaling_cur_freq"))? / 1000))
        .collect();
    let now = match (mhz.iter().min(), mhz.iter().max()) {
        (Some(least), Some(most)) => format!("; now {least} to {most} MHz"),
        _ => String::new(),
    };
    let slow: Vec<&(usize, String)> = governors.iter().filter(|(_, name)| name != "performance").collect();
    let Some((_, first)) = slow.first() else {
        return check.ok(format!("all {} CPUs have `performance`{now}", governors.len()));
    };
    let set = CpuSet::from_cpus(slow.iter().map(|(cpu, _)| *cpu)).unwrap_or(CpuSet::EMPTY);
    let can = |cpu: usize| {
        let governors = tree.line(&file(cpu, "scaling_available_governors"));
        governors.is_some_and(|list| list.split_whitespace().any(|name| name == "performance"))
    };
    let changes = slow.iter().filter(|(cpu, _)| can(*cpu));
    let changes =
        changes.map(|(cpu, _)| Change::new(&file(*cpu, "scaling_governor"), "performance")).collect();
    let jetson = match processor::board(tree) {
        Board::Jetson => "`sudo jetson_clocks`, after `sudo nvpmodel -m 0` for the whole power budget; or ",
        Board::RaspberryPi | Board::Other => "",
    };
    check
        .warn(
            format!("CPUs {set} have `{first}`{now}"),
            format!("{jetson}echo performance | sudo tee {CPUS}/cpu*/cpufreq/scaling_governor"),
        )
        .with_changes(changes)
}

/// Exit latencies that a loop notices, and that breaks one of 1 kHz.
const WARN_EXIT_US: i64 = 10;
const FAIL_EXIT_US: i64 = 100;

pub(crate) fn idle(tree: &Tree) -> Check {
    let check = Check::new(
        "idle_states",
        "Idle states",
        "a CPU that sleeps deeply wakes late, and with empty caches; the deeper the state, the later",
    );
    let mut deepest: Option<(i64, String)> = None;
    let mut names = Vec::new();
    for cpu in tree.online().iter() {
        let folder = format!("{CPUS}/cpu{cpu}/cpuidle");
        for state in tree.names(&folder) {
            let read = |file: &str| tree.line(&format!("{folder}/{state}/{file}"));
            let (Some(name), Some(exit_us)) =
                (read("name"), tree.number(&format!("{folder}/{state}/latency")))
            else {
                continue;
            };
            let disabled = tree.number(&format!("{folder}/{state}/disable")) == Some(1);
            let shown = format!("{name} {exit_us} us{}", if disabled { " (off)" } else { "" });
            if !names.contains(&shown) {
                names.push(shown);
            }
            if !disabled && deepest.as_ref().is_none_or(|(most, _)| exit_us > *most) {
                deepest = Some((exit_us, name));
            }
        }
    }
    // A request of 0 keeps all CPUs out of every state but polling; the file holds the native
    // number.
    let held_us = tree
        .bytes("/dev/cpu_dma_latency")
        .and_then(|bytes| Some(i32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?)))
        .filter(|&us| us < 2_000_000_000);
    let driver = tree.line(&format!("{CPUS}/cpuidle/current_driver")).unwrap_or_else(|| "no driver".into());
    let Some((exit_us, name)) = deepest else {
        let polling = boot_has(tree, "idle=poll");
        let shown = format!("no idle states visible ({driver})");
        return if polling { check.ok(format!("{shown}; idle=poll")) } else { check.unknown(shown) };
    };
    let held =
        held_us.map_or_else(String::new, |us| format!("; a program holds /dev/cpu_dma_latency at {us} us"));
    let below = if is_virtual(tree) { "; the hypervisor's own idle states add to this" } else { "" };
    let evidence =
        format!("{driver}: {}; deepest in use: {name}, {exit_us} us to leave{held}{below}", names.join(", "));
    let check = check.with_number("deepest_exit_us", exit_us as f64);
    let fix = format!(
        "hold /dev/cpu_dma_latency at 0 while the robot runs; or `sudo cpupower idle-set -D 2`; or boot with `{}`",
        processor::idle_parameters(processor::family(tree))
    );
    match exit_us {
        _ if held_us.is_some_and(|us| i64::from(us) < WARN_EXIT_US) => check.ok(evidence),
        us if us < WARN_EXIT_US => check.ok(evidence),
        us if us < FAIL_EXIT_US => check.warn(evidence, fix),
        _ => check.fail(evidence, fix),
    }
}

fn boot_has(tree: &Tree, word: &str) -> bool {
    tree.line("/proc/cmdline").is_some_and(|line| line.split_ascii_whitespace().any(|other| other == word))
}

pub(crate) fn siblings(tree: &Tree) -> Check {
    let check = Check::new(
        "smt",
        "SMT siblings",
        "two hardware threads share one core: work on the sibling slows a real-time thread down, and no scheduling policy can prevent it",
    );
    let mut pairs = Vec::new();
    for cpu in tree.online().iter() {
        let set = tree.cpus(&format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list"));
        if let Some(set) = set.filter(|set| set.len() > 1)
            && !pairs.contains(&set)
        {
            pairs.push(set);
        }
    }
    let active = tree.number(&format!("{CPUS}/smt/active"));
    if tree.online().is_empty() || (active.is_none() && !tree.exists(&format!("{CPUS}/cpu0/topology"))) {
        return check.unknown("the topology cannot be read");
    }
    if active == Some(0) || pairs.is_empty() {
        let below =
            if is_virtual(tree) { "; siblings among the hypervisor's CPUs are not visible" } else { "" };
        return check.ok(format!("no two of the CPUs {} share a core{below}", tree.online()));
    }
    let list: Vec<_> = pairs.iter().take(4).map(CpuSet::to_string).collect();
    let more = if pairs.len() > 4 { " and more" } else { "" };
    check.warn(
        format!("SMT is on: {} cores with siblings ({}{more})", pairs.len(), list.join("; ")),
        format!(
            "echo off | sudo tee {CPUS}/smt/control, or boot with `nosmt`; or leave the siblings of real-time CPUs idle"
        ),
    )
}

pub(crate) fn isolation(tree: &Tree) -> Check {
    let check = Check::new(
        "isolation",
        "Isolated CPUs",
        "on a CPU that is not isolated, kernel threads, timers and other programs run between the jobs of a real-time \
         thread, and the tick interrupts it",
    );
    let online = tree.online();
    if online.is_empty() {
        return check.unknown("the CPUs cannot be read");
    }
    let isolated = tree.cpus(&format!("{CPUS}/isolated")).unwrap_or(CpuSet::EMPTY);
    let tickless = tree.cpus(&format!("{CPUS}/nohz_full")).unwrap_or(CpuSet::EMPTY);
    if online.len() == 1 {
        return check.warn(
            "there is only one CPU, which all programs share",
            "use a computer with at least two CPUs",
        );
    }
    // The upper half, which the firmware and most interrupts leave alone; of cores of several
    // kinds, the biggest.
    let keep = online.len() / 2;
    let upper = CpuSet::from_cpus(online.iter().skip(online.len() - keep)).unwrap_or(CpuSet::EMPTY);
    let kinds = processor::by_capacity(tree);
    let biggest = kinds.last_key_value().filter(|_| kinds.len() > 1).map(|(_, cpus)| *cpus);
    let part = biggest.unwrap_or(upper);
    let fix = |set: &CpuSet| {
        format!("boot with `isolcpus=managed_irq,domain,{set} nohz_full={set} rcu_nocbs={set}`")
    };
    if isolated.is_empty() {
        return check.warn(format!("none of the CPUs {online} is isolated"), fix(&part));
    }
    if tickless.is_empty() {
        let evidence = format!("CPUs {isolated} are isolated, but keep their tick (nohz_full is empty)");
        return if tree.config("CONFIG_NO_HZ_FULL").as_deref() == Some("n") {
            check.ok(format!("{evidence}; this kernel has no CONFIG_NO_HZ_FULL"))
        } else {
            check.warn(evidence, fix(&isolated))
        };
    }
    check.ok(format!("CPUs {isolated} are isolated, {tickless} without a tick"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Status;
    use crate::doctor::tree::fake;

    fn on(files: &[(&str, &str)], check: impl Fn(&Tree) -> Check) -> Check {
        let online = [("/sys/devices/system/cpu/online", "0-3\n")];
        let root = fake::tree(&[&online, files].concat());
        check(&Tree::new(root.path()))
    }

    const BASE: &str = "/sys/devices/system/cpu";

    #[test]
    fn slow_governors_are_named_with_their_cpus() {
        let files = |cpu: usize, name: &'static str| {
            [
                (format!("{BASE}/cpu{cpu}/cpufreq/scaling_governor"), name),
                (format!("{BASE}/cpu{cpu}/cpufreq/scaling_available_governors"), "performance powersave"),
                (format!("{BASE}/cpu{cpu}/cpufreq/scaling_cur_freq"), "1200000"),
            ]
        };
        let all = [files(0, "performance"), files(2, "powersave"), files(3, "powersave")].concat();
        let all: Vec<(&str, &str)> = all.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let check = on(&all, governor);
        assert_eq!((check.status, check.changes.len()), (Status::Warn, 2));
        assert_eq!(check.evidence, "CPUs 2-3 have `powersave`; now 1200 to 1200 MHz");
        assert_eq!(on(&all[..3], governor).status, Status::Ok);
        assert_eq!(on(&[], governor).status, Status::Unknown);
        // A governor that is not offered is not set.
        let without: Vec<_> = all.iter().copied().filter(|(path, _)| !path.contains("available")).collect();
        assert!(!on(&without, governor).safe);
    }

    #[test]
    fn deep_idle_states_count_unless_off_or_held() {
        let state = |latency: &'static str, disable: &'static str| {
            [
                ("/sys/devices/system/cpu/cpu1/cpuidle/state1/name", "C6"),
                ("/sys/devices/system/cpu/cpu1/cpuidle/state1/latency", latency),
                ("/sys/devices/system/cpu/cpu1/cpuidle/state1/disable", disable),
                ("/sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL"),
                ("/sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0"),
            ]
        };
        assert_eq!(on(&state("133", "0"), idle).status, Status::Fail);
        assert_eq!(on(&state("20", "0"), idle).status, Status::Warn);
        assert_eq!(on(&state("2", "0"), idle).status, Status::Ok);
        assert_eq!(on(&state("133", "1"), idle).status, Status::Ok);
        let mut held = state("133", "0").to_vec();
        held.push(("/dev/cpu_dma_latency", "\0\0\0\0"));
        assert_eq!(on(&held, idle).status, Status::Ok);
        assert_eq!(on(&[("/dev/cpu_dma_latency", "\0")], idle).status, Status::Unknown);
    }

    #[test]
    fn siblings_and_isolation() {
        let pair = [
            ("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,2\n"),
            ("/sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "0,2\n"),
        ];
        let check = on(&pair, siblings);
        assert_eq!(check.status, Status::Warn);
        assert!(check.evidence.contains("1 cores with siblings (0,2)"), "{}", check.evidence);
        assert_eq!(on(&[("/sys/devices/system/cpu/smt/active", "0")], siblings).status, Status::Ok);
        assert_eq!(on(&[("/sys/devices/system/cpu/online", "x")], siblings).status, Status::Unknown);

        let none = on(&[("/sys/devices/system/cpu/isolated", "\n")], isolation);
        assert_eq!(none.status, Status::Warn);
        assert!(none.fix.unwrap().contains("nohz_full=2-3"));
        let isolated = ("/sys/devices/system/cpu/isolated", "1,3\n");
        assert!(on(&[isolated], isolation).fix.unwrap().contains("domain,1,3"));
        assert_eq!(
            on(&[isolated, ("/sys/devices/system/cpu/nohz_full", "1,3\n")], isolation).status,
            Status::Ok
        );
        assert_eq!(on(&[("/sys/devices/system/cpu/online", "0")], isolation).status, Status::Warn);
    }

    #[test]
    fn hypervisors_show_themselves() {
        let virtual_on = |files: &[(&str, &str)]| is_virtual(&Tree::new(fake::tree(files).path()));
        assert!(virtual_on(&[("/proc/cpuinfo", "model name\t: x\nflags\t\t: fpu hypervisor sse\n")]));
        assert!(!virtual_on(&[("/proc/cpuinfo", "model name\t: hypervisor\nflags\t\t: fpu nohypervisor\n")]));
        assert!(virtual_on(&[("/sys/hypervisor/type", "xen\n")]));
    }
}
