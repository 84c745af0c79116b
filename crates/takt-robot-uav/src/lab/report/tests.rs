#![allow(clippy::unwrap_used, reason = "a test that cannot write its runs has nothing to test")]

use takt_report::Supplements;
use takt_rundir::Counter;

use super::*;
use crate::lab::KIND;

#[path = "../../../../takt-report/tests/common/mod.rs"]
mod common;

use common::{Dice, header, run};

#[test]
fn the_papers_own_figures_keep_its_orders() {
    for row in &PAPER {
        let [standard, realtime] = [row.cells[1][2], row.cells[3][2]];
        match row.scheduler.starts_with("OTHER") {
            true => assert!(standard > PERIOD_US && realtime > PERIOD_US, "{}", row.scheduler),
            false => assert!(realtime < standard, "{}", row.scheduler),
        }
    }
}

#[test]
fn guests_stand_beside_the_papers_table() {
    let root = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(5);
    for (kernel, preemption, spike_ns) in
        [("generic", "PREEMPT_DYNAMIC (voluntary)", 7e5), ("rt", "PREEMPT_RT", 3e3)]
    {
        let mut header = header(&[("policy", "fifo:99"), ("kernel", kernel), ("stress", "uav")], 1);
        header.machine.preemption = Some(preemption.into());
        let latencies: Vec<u64> = (0..500).map(|_| dice.latency(4e3, 0.1, 20.0, spike_ns)).collect();
        run(&root.path().join(kernel), &header, latencies.into_iter());
    }
    let supplements = Supplements::from_iter([(KIND.name, KIND.report.unwrap())]);
    let collection = takt_report::collect(&[root.path()]).unwrap();
    let document = takt_report::build(&collection, &supplements);
    let markdown = takt_report::markdown(&document);
    // Table 7's rows.
    assert!(markdown.contains("STM32F7"), "{markdown}");
    // The paper's own maxima under stress, and its order judged on both sides.
    let line =
        |start: &str| markdown.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    assert!(line("| FIFO priority 99 | Yes | Standard |").contains("| 1848.00 |"), "{markdown}");
    assert!(
        line("| FIFO priority 99 | Yes | PREEMPT\\_RT |").contains("| 224.00 |")
            || line("| FIFO priority 99 | Yes | PREEMPT_RT |").contains("| 224.00 |"),
        "{markdown}"
    );
    let order = line("| less on PREEMPT");
    assert_eq!(order.matches("| holds |").count(), 2, "{order}");
}

/// A run's record of its stressors, as takt-load writes it.
fn load(forks: u64) -> serde_json::Value {
    serde_json::json!({
        "profile": "uav", "seconds": 2.0,
        "components": [{
            "kind": "fork", "tool": "stress-ng", "version": null, "stand_in": null, "asked": "", "processes": 2,
            "cpu_s": 1.0, "cpu_share": 0.5, "proof": { "fork_bogo_ops": forks }, "died": null,
        }],
        "system": {
            "switches_per_s": 0.0, "forks_per_s": 0.0, "interrupts_per_s": 0.0, "softirqs_per_s": 0.0, "busy": 1.0, "stolen": 0.0,
        },
    })
}

#[test]
fn unequal_stress_is_no_comparison() {
    for (forks, here) in [(90, "| holds |"), (60, "| not comparable |")] {
        let root = tempfile::tempdir().unwrap();
        let mut dice = Dice::new(5);
        for (kernel, preemption, spike_ns, forks) in
            [("generic", "PREEMPT_DYNAMIC (voluntary)", 7e5, 100), ("rt", "PREEMPT_RT", 3e3, forks)]
        {
            let mut header = header(&[("policy", "fifo:99"), ("kernel", kernel), ("stress", "uav")], 1);
            header.machine.preemption = Some(preemption.into());
            header.load = load(forks);
            let latencies: Vec<u64> = (0..500).map(|_| dice.latency(4e3, 0.1, 20.0, spike_ns)).collect();
            run(&root.path().join(kernel), &header, latencies.into_iter());
        }
        let supplements = Supplements::from_iter([(KIND.name, KIND.report.unwrap())]);
        let document = takt_report::build(&takt_report::collect(&[root.path()]).unwrap(), &supplements);
        let markdown = takt_report::markdown(&document);
        let order = markdown.lines().find(|line| line.starts_with("| less on PREEMPT")).unwrap();
        assert!(order.contains(here), "{order}");
        assert_eq!(markdown.contains("40 % less"), forks == 60, "{markdown}");
    }
}

#[test]
fn kernels_have_the_name_that_says_more() {
    let name = |asked, release| kernel_name(asked, Some(release));
    assert_eq!(name(Some("6.12-rt"), "6.12.117-rt-amd64"), "6.12.117-rt-amd64");
    assert_eq!(name(Some("lazy"), "7.2.13"), "lazy (7.2.13)");
    assert_eq!(name(Some("rt"), "6.1.0-56-rt"), "6.1.0-56-rt");
    assert_eq!(kernel_name(None, None), "unknown");
}

/// Runs whose only measure is the execution time: idle 3.8 us, stressed ten times that.
fn execution_report(counters: bool) -> String {
    let root = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(3);
    for (stress, median_ns) in [("off", 3.8e3), ("uav", 38e3)] {
        let mut header = header(&[("policy", "fifo:99"), ("stress", stress)], 1);
        header.robot = KIND.name.to_owned();
        header.measures[0].name = crate::lab::dilation::EXECUTION.to_owned();
        let missing = (!counters).then(|| "not available here: no PMU".to_owned());
        let shown = [
            ("llc_misses", "last-level cache misses"),
            ("cycles", "cycles"),
            ("instructions", "instructions"),
        ];
        for (name, title) in shown {
            let count = counters.then_some(700);
            header.counters.push(Counter {
                name: name.to_owned(),
                title: title.to_owned(),
                thread: "uav-attitude".to_owned(),
                count,
                missing: missing.clone(),
            });
            header.figures.extend(counters.then(|| (format!("{name}_per_job"), 7.0)));
        }
        let times: Vec<u64> = (0..300).map(|_| dice.latency(median_ns, 0.01, 1.0, 10.0)).collect();
        run(&root.path().join(stress), &header, times.into_iter());
    }
    let supplements = Supplements::from_iter([(KIND.name, KIND.report.unwrap())]);
    takt_report::markdown(&takt_report::build(&takt_report::collect(&[root.path()]).unwrap(), &supplements))
}

#[test]
fn dilation_stands_beside_what_was_counted() {
    let text = execution_report(true);
    assert!(!text.contains("not available here"), "{text}");
    let times = text.lines().filter(|line| line.starts_with("| fifo:99 |") && line.contains("| Yes |"));
    let times: Vec<&str> = times.collect();
    assert!(times.iter().any(|line| line.contains("| 7 |")), "{times:?}");
    assert!(times.iter().any(|line| line.contains("| 10.") || line.contains("| 9.9")), "{times:?}\n{text}");
}

#[test]
fn counters_that_are_missing_are_no_zeros() {
    let text = execution_report(false);
    assert!(text.contains("not available here: no PMU"), "{text}");
    let row = text.lines().find(|line| line.starts_with("| fifo:99 |") && line.contains("| Yes |")).unwrap();
    assert!(row.contains("not available here") && !row.contains("| 0 |"), "{row}");
}
