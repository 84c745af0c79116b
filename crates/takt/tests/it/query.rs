//! `takt compare --by`, and stores in place of folders for `takt gate` and
//! `takt history`, through the binary.

#![allow(clippy::unwrap_used)]
#![cfg(feature = "store")]

use crate::hold as golden;
use crate::made;
use crate::takt;

use std::path::{Path, PathBuf};
use std::process::Output;

use golden::{hold, shape};
use made::Made;
use serde_json::Value;
use takt::{has, refusal, stderr, stdout, takt as run};

/// A folder of runs, and the store that has them.
fn fleet(folder: &Path, count: u64) -> (PathBuf, PathBuf) {
    let (runs, store) = (folder.join("runs"), folder.join("store"));
    (0..count).for_each(|number| drop(Made::of_a_fleet(number, 200).make(&runs)));
    let put = run(["store", "put"]).args([&store, &runs]).output().unwrap();
    assert!(put.status.success(), "{}", stderr(&put));
    (runs, store)
}

fn message(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

#[test]
fn a_store_is_asked_by_columns_and_conditions() {
    let root = tempfile::tempdir().unwrap();
    let (_, store) = fleet(root.path(), 24);
    let by = |more: &[&str]| run(["compare", "--by"]).args(more).arg(&store).output().unwrap();
    let json =
        message(&by(&["kernel,machine,policy", "--where", "robot = 'uav' and stolen < 0.01", "--json"]));
    assert_eq!(json["runs"], serde_json::json!([18, 24]));
    hold("compare-by", &shape("--json", &json));
    has(&stdout(&by(&["kernel"])), &["24 of 24 runs of ", "6.12.43", "Stolen, max (%)"]);
    has(
        &stdout(&by(&["policy", "--samples"])),
        &["Wake-up lateness (uav)", "fifo:80", "other:0", "p99 against the first (%)"],
    );
    // One sentence each.
    has(&refusal(&by(&["colour"])), &["no column colour; the columns are run, "]);
    has(&refusal(&by(&["kernel", "--where", "stoln < 1"])), &["no column stoln; the columns are "]);
    has(&refusal(&by(&["kernel", "--measure", "jitter"])), &["no run has the measure \"jitter\""]);
    let none = root.path().join("none");
    let output = run(["compare", "--by", "kernel"]).arg(&none).output().unwrap();
    has(&refusal(&output), &["none", "no such folder"]);
    let folder = run(["compare", "--by", "kernel"]).arg(root.path()).output().unwrap();
    has(&refusal(&folder), &["is not a store"]);
    let fifo = root.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    has(
        &refusal(&run(["compare", "--by", "kernel"]).arg(&fifo).output().unwrap()),
        &["fifo: is not a folder"],
    );
    has(&refusal(&run(["compare"]).arg(&store).output().unwrap()), &["only one side", "name another"]);
    has(&refusal(&by(&["run,name", "--where", "stolen <"])), &["--where stolen <: "]);
}

#[test]
fn gate_and_history_say_of_a_store_what_they_say_of_its_runs() {
    let root = tempfile::tempdir().unwrap();
    let made = |number: u64, kernel, median_us| Made {
        kernel,
        median_us,
        host: "nuc1",
        stolen: 0.0,
        policy: "fifo:80",
        robot: "uav",
        samples: 300,
        number,
    };
    let runs = root.path().join("runs");
    for number in 0..24 {
        let bad = number >= 12;
        made(number, if bad { "6.13.1" } else { "6.12.43" }, if bad { 30.0 } else { 20.0 }).make(&runs);
    }
    let store = root.path().join("store");
    assert!(run(["store", "put"]).args([&store, &runs]).output().unwrap().status.success());
    let history = |from: &Path, more: &[&str]| {
        message(&run(["history", "--json", "--by", "kernel"]).args(more).arg(from).output().unwrap())
    };
    let of_store = history(&store, &[]);
    assert_eq!(of_store, history(&runs, &[]));
    assert_eq!(of_store["first_bad"], "6.13.1", "{of_store:#}");
    let old = history(&store, &["--where", "kernel = '6.12.43'"]);
    assert_eq!(old["series"][0]["points"].as_array().unwrap().len(), 12);
    let new = root.path().join("new");
    (100..110).for_each(|number| drop(made(number, "6.12.43", 20.0).make(&new)));
    let gate = |condition: &str| {
        let mut command = run(["gate", "--json", "--tolerance", "15%", "--baseline"]);
        command.arg(&store).args(["--where", condition]).arg(&new).output().unwrap()
    };
    let message = message(&gate("kernel = '6.12.43'"));
    assert_eq!(
        (&message["decision"], &message["pairs"][0]["runs"]),
        (&"same".into(), &serde_json::json!([12, 10])),
        "{message:#}"
    );
    has(&refusal(&gate("kernel = '7'")), &["none of the 24 runs in the store matches"]);
    // One that cannot be read is named, and the others are judged.
    let damaged = std::fs::read_dir(store.join("objects")).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_dir_all(damaged).unwrap();
    let of_store = history(&store, &[]);
    let left_out = of_store["left_out"].as_array().unwrap().len();
    assert!((1..24).contains(&left_out), "{of_store:#}");
    assert_eq!(of_store["series"][0]["points"].as_array().unwrap().len(), 24 - left_out);
    has(of_store["left_out"][0].as_str().unwrap(), &["00", " is damaged: "]);
    let no_store = run(["history", "--where", "true"]).arg(&runs).output().unwrap();
    has(&refusal(&no_store), &["none of the arguments is a store"]);
}
