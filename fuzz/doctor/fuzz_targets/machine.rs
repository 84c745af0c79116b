//! The doctor before a machine whose files say anything. Parts: the files, in the order of the
//! list.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use parts::parts;
use takt_host::doctor::{Options, Status, examine};

const FILES: [&str; 24] = [
    "proc/cmdline",
    "proc/interrupts",
    "proc/stat",
    "proc/swaps",
    "proc/cpuinfo",
    "proc/config.gz",
    "proc/irq/4/smp_affinity_list",
    "proc/irq/default_smp_affinity",
    "proc/self/cgroup",
    "proc/sys/kernel/osrelease",
    "proc/sys/kernel/version",
    "proc/sys/kernel/sched_autogroup_enabled",
    "proc/sys/kernel/sched_rt_period_us",
    "proc/sys/kernel/sched_rt_runtime_us",
    "proc/sys/kernel/timer_migration",
    "proc/driver/nvidia/version",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "sys/devices/system/cpu/cpu0/cpuidle/state0/latency",
    "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
    "sys/devices/system/cpu/isolated",
    "sys/devices/system/cpu/online",
    "sys/kernel/debug/sched/preempt",
    "sys/kernel/mm/transparent_hugepage/enabled",
];

fuzz_target!(|data: &[u8]| {
    let root = tempfile::tempdir().expect("a folder");
    for (file, text) in FILES.iter().zip(parts::<24>(data)) {
        if !text.is_empty() {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
    }
    let report =
        examine(&Options { root: root.path().to_owned(), ..Options::default() }).expect("sound options");
    for check in &report.checks {
        assert!(!check.evidence.is_empty() && !check.title.is_empty());
        assert_eq!(check.fix.is_some(), matches!(check.status, Status::Warn | Status::Fail), "{check:?}");
    }
    assert!(!report.to_text().is_empty());
});
