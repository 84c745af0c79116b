//! The examination.

use crate::doctor::error::DoctorError;
use crate::doctor::interrupts;
use crate::doctor::measure;
use crate::doctor::options::Options;
use crate::doctor::report::{Check, Report};
use crate::doctor::tree::Tree;
use crate::doctor::{clocks, cpus, gpu, kernel, memory, network, processor, rights, threads};

/// The lowest SCHED_FIFO priority that the shipped robots' files give to a fastest loop (80 to 99):
/// a thread of the kernel at or above it delays such a loop.
const ROBOTS: u8 = 80;

/// Looks at everything that makes a machine unfit for real time. Without privilege it sees less,
/// and says what.
///
/// # Errors
/// [`DoctorError::Option`].
pub fn examine(options: &Options) -> Result<Report, DoctorError> {
    if !(0.0..=3600.0).contains(&options.seconds) {
        let given = options.seconds.to_string();
        return Err(DoctorError::Option { field: "seconds", given, expected: "0..=3600" });
    }
    let tree = Tree::new(&options.root);
    let measured = match tree.is_live() && options.seconds > 0.0 {
        true => Some(measure::measure(&tree, options)?),
        false => None,
    };
    let measured = measured.as_ref();
    let tried = |attempt: &dyn Fn() -> Check| if tree.is_live() { Some(attempt()) } else { None };
    let mut checks = vec![
        measure::wakeups(measured),
        measure::hardware_gaps(&tree, measured, options.gap),
        measure::hypervisor(&tree, measured),
        kernel::preemption(&tree),
        kernel::throttling(&tree),
        kernel::group_scheduling(&tree),
    ];
    checks.extend(tried(&rights::fifo));
    checks.extend(tried(&rights::deadline));
    checks.extend(tried(&rights::memory_lock));
    checks.extend(tried(&|| rights::dma_latency_in(&tree)));
    checks.extend([
        cpus::governor(&tree),
        cpus::idle(&tree),
        cpus::siblings(&tree),
        cpus::isolation(&tree),
        interrupts::placement(&tree, measured.and_then(|measured| measured.rates.as_deref())),
        threads::priorities(&tree, ROBOTS),
        threads::workqueues(&tree),
        clocks::source(&tree, measured.map(|measured| measured.clock)),
        measure::slack(measured),
        kernel::timer_migration(&tree),
        memory::swap(&tree),
        memory::huge_pages(&tree),
        kernel::autogroup(&tree),
        network::coalescing(&tree),
        gpu::driver(&tree),
    ]);
    checks.extend(processor::findings(&tree));
    Ok(Report { checks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Status;
    use crate::doctor::tree::fake;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Everything that is read.
    const FILES: &[&str] = &[
        "/proc/cmdline",
        "/proc/config.gz",
        "/proc/driver/nvidia/version",
        "/proc/17/stat",
        "/proc/cpuinfo",
        "/proc/interrupts",
        "/proc/irq/4/smp_affinity_list",
        "/proc/irq/default_smp_affinity",
        "/proc/self/cgroup",
        "/proc/stat",
        "/proc/swaps",
        "/proc/sys/kernel/osrelease",
        "/proc/sys/kernel/sched_autogroup_enabled",
        "/proc/sys/kernel/sched_rt_period_us",
        "/proc/sys/kernel/sched_rt_runtime_us",
        "/proc/sys/kernel/timer_migration",
        "/proc/sys/kernel/version",
        "/sys/bus/pci/devices/0000:01:00.0/class",
        "/sys/bus/pci/devices/0000:01:00.0/vendor",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        "/sys/devices/system/cpu/cpu0/cpuidle/state0/latency",
        "/sys/devices/system/cpu/cpu0/cpuidle/state0/name",
        "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
        "/sys/devices/system/cpu/isolated",
        "/sys/devices/system/cpu/nohz_full",
        "/sys/devices/system/cpu/online",
        "/sys/devices/system/cpu/smt/active",
        "/sys/devices/virtual/workqueue/cpumask",
        "/sys/kernel/debug/sched/preempt",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/kernel/realtime",
    ];

    fn examine_copy(root: &std::path::Path) -> Report {
        examine(&Options { root: root.to_owned(), ..Options::default() }).unwrap()
    }

    /// Conditions of every report.
    fn assert_sound(report: &Report) {
        let ids: HashSet<_> = report.checks.iter().map(|check| &check.id).collect();
        assert_eq!(ids.len(), report.checks.len());
        for check in &report.checks {
            assert!(
                !check.evidence.is_empty() && !check.why.is_empty() && !check.title.is_empty(),
                "{check:?}"
            );
            let unwell = matches!(check.status, Status::Warn | Status::Fail);
            assert_eq!(check.fix.is_some(), unwell, "{check:?}");
            assert_eq!(check.safe, !check.changes.is_empty(), "{check:?}");
        }
    }

    #[test]
    fn this_machine_is_examined() {
        let _machine = crate::doctor::alone();
        let report = examine(&Options { seconds: 0.3, priority: 3, ..Options::default() }).unwrap();
        assert_sound(&report);
        // On ARM there are more.
        let further = processor::findings(&Tree::new(std::path::Path::new("/"))).len();
        assert_eq!(report.checks.len(), 25 + further);
        for id in ["wakeup_lateness", "clock", "interrupts", "hypervisor"] {
            assert!(!report.get(id).unwrap().measured.is_empty(), "{id}");
        }
        let text = report.to_text();
        assert!(report.checks.iter().all(|check| text.contains(&check.title)));
    }

    #[test]
    fn an_empty_copy_reports_nothing_and_fails_nothing() {
        let report = examine_copy(fake::tree(&[]).path());
        assert_sound(&report);
        assert_eq!(report.count(Status::Fail), 0);
        assert_eq!(report.count(Status::Warn), 0);
    }

    #[test]
    fn options_are_checked() {
        let _machine = crate::doctor::alone();
        for seconds in [-1.0, 4000.0, f64::NAN] {
            assert!(examine(&Options { seconds, ..Options::default() }).is_err());
        }
        assert!(examine(&Options { priority: 99, seconds: 0.01, ..Options::default() }).is_err());
    }

    /// A word that some file might hold, so that readers get further than their first line.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..60),
            "[0-9,\\-: \\n]{0,30}".prop_map(String::into_bytes),
            "(CPU0 CPU1\\n)?([0-9A-Z]{1,3}: [0-9]{1,20} [0-9]{1,20} x\\n){0,4}".prop_map(String::into_bytes),
            "cpu ( [0-9]{1,20}){0,10}\\n".prop_map(String::into_bytes),
            Just(b"0-7\n".to_vec()),
            Just(b"99999999999999999999".to_vec()),
        ]
    }

    proptest! {
        // Each case writes all files.
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn garbage_never_panics(texts in proptest::collection::vec(text(), FILES.len())) {
            let root = fake::tree(&[]);
            for (path, text) in FILES.iter().zip(&texts) {
                fake::write(root.path(), path, text);
            }
            let report = examine_copy(root.path());
            assert_sound(&report);
            report.to_text();
            prop_assert!(serde_json::to_string(&report).is_ok());
        }
    }
}
