use super::*;
use crate::doctor::report::Status;
use crate::doctor::tree::fake;

fn gaps(worst_alone_ns: u64) -> CpuGaps {
    CpuGaps {
        cpu: 1,
        looked_ns: 750_000_000,
        gaps: 5,
        preempted: 2,
        worst_ns: 900_000,
        worst_alone_ns,
        lost_ns: 1_000_000,
        stalls: 400,
        interrupts: Some(300),
        steal_ns: 0,
        smis: None,
        real_time: true,
    }
}

fn judged_on(files: &[(&str, &str)], gaps: CpuGaps) -> Check {
    let root = fake::tree(files);
    judge_gaps(Check::new("x", "X", "w"), &[gaps], &Tree::new(root.path()), Duration::from_micros(10))
}

fn judged(gaps: CpuGaps) -> Check {
    judged_on(&[], gaps)
}

#[test]
fn gaps_are_judged_by_the_longest_that_no_task_explains() {
    assert_eq!(judged(gaps(40_000)).status, Status::Ok);
    assert_eq!(judged(gaps(200_000)).status, Status::Warn);
    assert_eq!(judged(gaps(600_000)).status, Status::Fail);
    // Counted by the CPU itself: they are there, however short.
    let check = judged(CpuGaps { smis: Some(3), ..gaps(40_000) });
    assert_eq!(check.status, Status::Warn);
    assert_eq!(check.measured["system_management_interrupts"], 3.0);
    let evidence = judged(gaps(40_000)).evidence;
    for words in ["0.75 s", "5 gaps above 10µs, 2 of them another task", "40.0 us (CPU 1)", "at least 98"] {
        assert!(evidence.contains(words), "{words}: {evidence}");
    }
    // As many interrupts as jumps: long soft interrupts are no fault of the hardware.
    let busy = CpuGaps { interrupts: Some(398), ..gaps(600_000) };
    let check = judged(busy.clone());
    assert!(
        check.status == Status::Warn && check.fix.unwrap().contains("smp_affinity"),
        "{}",
        check.evidence
    );
    assert_eq!(judged(CpuGaps { smis: Some(2), ..busy }).status, Status::Fail);
    let check = judged(CpuGaps { real_time: false, ..gaps(600_000) });
    assert!(check.status == Status::Unknown && check.evidence.contains("without real-time priority"));
    let none = judge_gaps(Check::new("x", "X", "w"), &[], &Tree::new(fake::tree(&[]).path()), Duration::ZERO);
    assert_eq!(none.status, Status::Unknown);
}

/// An ARM core has no such counter and no such setup.
#[test]
fn gaps_of_arm_get_no_advice_for_x86() {
    let arm = [("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n")];
    let words = |files: &[(&str, &str)]| {
        let check = judged_on(files, gaps(600_000));
        assert_eq!(check.status, Status::Fail);
        format!("{} {}", check.evidence, check.fix.unwrap())
    };
    for x86 in ["modprobe msr", "system management", "legacy USB"] {
        assert!(words(&[]).contains(x86) && !words(&arm).contains(x86), "{x86}");
    }
    assert!(words(&arm).contains("TF-A"), "{}", words(&arm));
    let pi = [arm[0], ("/proc/device-tree/compatible", "raspberrypi,5-model-b\0brcm,bcm2712\0")];
    assert!(words(&pi).contains("vcgencmd get_throttled"));
    let jetson = [arm[0], ("/proc/device-tree/compatible", "nvidia,p3767-0005\0nvidia,tegra234\0")];
    assert!(words(&jetson).contains("jetson_clocks"));
}

fn measured(samples_ns: Vec<u64>, skipped: u64, stolen: Option<f64>) -> Measured {
    let lateness = Lateness { samples_ns, skipped, granted: None, dma_latency_error: None };
    Measured {
        lateness: vec![(0, lateness.clone())],
        real_time: true,
        other: Some(lateness),
        rates: None,
        gaps: vec![gaps(1)],
        clock: Reading { cost_ns: 20.0, step_ns: 20, backwards: 0 },
        stolen,
        seconds: 1.0,
    }
}

#[test]
fn lateness_is_judged_by_its_worst() {
    let with = |samples, skipped| wakeups(Some(&measured(samples, skipped, None)));
    assert_eq!(with(vec![3_000, 9_000, 4_000], 0).status, Status::Ok);
    let check = with(vec![3_000, 4_000, 150_000], 0);
    assert_eq!(
        (check.status, check.measured["median_us"], check.measured["worst_us"]),
        (Status::Warn, 4.0, 150.0)
    );
    assert_eq!(with(vec![3_000, 700_000], 0).status, Status::Fail);
    assert_eq!(with(vec![3_000], 1).status, Status::Fail);
    assert_eq!(with(vec![], 0).status, Status::Unknown);
    assert_eq!(wakeups(None).status, Status::Unknown);
    let reduced = Measured { real_time: false, ..measured(vec![700_000], 3, None) };
    assert_eq!(wakeups(Some(&reduced)).status, Status::Unknown);
}

#[test]
fn steal_weighs_more_than_a_hypervisor() {
    let on = |cpuinfo: &str, stat: &str, stolen| {
        let root = fake::tree(&[("/proc/cpuinfo", cpuinfo), ("/proc/stat", stat)]);
        hypervisor(&Tree::new(root.path()), Some(&measured(vec![1], 0, stolen)))
    };
    let (bare, guest) = ("flags\t: fpu\n", "flags\t: fpu hypervisor\n");
    let quiet = "cpu  10 0 10 80 0 0 0 0 0 0\n";
    assert_eq!(on(bare, quiet, Some(0.0)).status, Status::Ok);
    assert_eq!(on(guest, quiet, Some(0.0)).status, Status::Warn);
    assert_eq!(on(guest, quiet, Some(0.05)).status, Status::Fail);
    assert_eq!(on(bare, "cpu  10 0 10 70 0 0 0 10 0 0\n", None).status, Status::Warn);
}
