#![allow(clippy::unwrap_used, reason = "a test that cannot write its runs has nothing to test")]

use takt_report::Supplements;

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
