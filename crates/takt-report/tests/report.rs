//! Whole reports on run directories that were made up.

mod common;

use common::{campaign, header, run};

/// Writes reports to look at: `TAKT_REPORT_LOOK=/tmp/look cargo test -p takt-report --test report look`.
#[test]
fn look() {
    let Ok(root) = std::env::var("TAKT_REPORT_LOOK") else {
        eprintln!("SKIPPED: TAKT_REPORT_LOOK names no folder");
        return;
    };
    let root = std::path::PathBuf::from(root);
    let _ = std::fs::remove_dir_all(&root);
    campaign(&root.join("uav"), 3, 10_000);
    takt_report::write(&[root.join("uav")], &root.join("uav-report")).unwrap();
    let mut dice = common::Dice(7);
    let one = (0..10_000).map(|_| dice.latency(40e3, 0.4, 500.0, 6e5));
    run(&root.join("one"), &header(&[], 0), one);
    takt_report::write(&[root.join("one")], &root.join("one-report")).unwrap();
}
