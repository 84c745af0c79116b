#![allow(clippy::unwrap_used, reason = "a test that cannot write its runs has nothing to test")]

use super::*;

#[test]
fn a_run_says_in_what_it_is_not_the_papers() {
    let of = |text: &str| deviations(&toml::from_str(text).unwrap());
    let shipped = of("");
    for words in ["no board: udp", "CLOCK_MONOTONIC", "one write per edge"] {
        assert!(shipped.iter().any(|text| text.contains(words)), "{words}: {shipped:?}");
    }
    let paper = "pulse = { clock = 'realtime', write = 'turn' }\n";
    assert!(of(&format!("{paper}link = {{ kind = 'comedi' }}")).is_empty());
    let simulated = of(&format!("{paper}link = {{ kind = 'simulated', bus = 'pcie' }}"));
    assert!(simulated.len() == 1 && simulated[0].contains("PCIe"), "{simulated:?}");
    let other = of(&format!(
        "link = {{ kind = 'comedi' }}\ncontroller = {{ kind = 'neuro_adaptive', leak = 'w2' }}\n{}",
        "pulse = { clock = 'realtime', write = 'turn', wait = '2us', stamp = 'write' }"
    ));
    for words in ["W2", "sleep 2us", "from the write"] {
        assert!(other.iter().any(|text| text.contains(words)), "{words}: {other:?}");
    }
}

#[path = "../../../../takt-report/tests/common/mod.rs"]
mod common;

#[test]
fn the_papers_figures_stand_beside_and_what_differs_is_said() {
    let root = tempfile::tempdir().unwrap();
    for (name, condition) in [
        ("a", "saving on"),
        ("b", "neuro-adaptive controller as printed"),
        ("c", "model predictive controller"),
    ] {
        let mut header = common::header(&[("condition", condition)], 1);
        header.robot = "daq".to_owned();
        header.experiment.paper = "daq-latency".to_owned();
        header.measures = vec![takt_rundir::Measure { name: "latency".to_owned(), ..common::measure() }];
        let dir = common::unsealed(&root.path().join(name), &header, (0..500).map(|at| 40_000 + at));
        let mut run: serde_json::Value = dir.read_json(takt_rundir::RUN_FILE).unwrap();
        run[DEVIATIONS] = serde_json::json!(["no board: udp through the kernel and back"]);
        dir.write_json(takt_rundir::RUN_FILE, &run).unwrap();
        dir.seal().unwrap();
    }
    let supplements = takt_report::Supplements::from_iter([("daq", &Paper as &'static dyn Supplement)]);
    let collection = takt_report::collect(&[root.path()]).unwrap();
    let markdown = takt_report::markdown(&takt_report::build(&collection, &supplements));
    // Ours beside the paper's Table 1, line 2, and Table 2.
    for words in ["40.50", "89.6", "52.83", "95.67"] {
        assert!(markdown.contains(words), "{words}: {markdown}");
    }
    assert!(markdown.contains("no board: udp through the kernel and back"), "{markdown}");
}
