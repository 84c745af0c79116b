//! What the command line says of one run: the same figures and the same sentence, whoever is asked.

#![allow(clippy::unwrap_used)]

mod takt;

use std::fs;
use std::path::Path;

use takt::{alone, json, read_json, stderr, stdout, takt as run};

/// A task that needs no privileges, with a claim that a short run neither shows nor refutes.
const ROBOT: &str = "robot = \"cyclic\"\nrate_hz = 500\npolicy = \"other:0\"\nlock_memory = \"off\"\nno_deep_idle = false\n\
                     deadline_ms = 60000\n[verdict]\nmisses_per_hour = 1e-3\n";

#[test]
fn a_run_longer_than_the_rows_kept_has_one_set_of_figures_and_one_sentence() {
    let _machine = alone();
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("robot.toml");
    fs::write(&file, ROBOT).unwrap();
    let file = file.to_str().unwrap();
    let measured = |name: &str, keep: &str| {
        let dir = root.path().join(name);
        let arguments = ["run", file, "--seconds", "1", "--json", "--run-dir", dir.to_str().unwrap()];
        let output = run(arguments).env("TAKT_KEEP_ROWS", keep).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        (dir.display().to_string(), json(&output))
    };
    let runs = [measured("a", "50"), measured("b", "1000000")];
    for (dir, summary) in &runs {
        let sentence = summary["sentence"].as_str().unwrap();
        assert!(
            sentence.starts_with("INCONCLUSIVE: all ") && sentence.contains("1e-3 an hour"),
            "{sentence}"
        );
        assert!(sentence.contains("measure ") && sentence.contains(" longer"), "{sentence}");
        assert_eq!(summary["verdict"], "INCONCLUSIVE");
        assert!(summary["measure_more_s"].as_f64() > Some(3600.0), "{summary}");
        let report = run(["report", dir, "--out", dir]).output().unwrap();
        assert!(report.status.success(), "{}", stderr(&report));
        let text = fs::read_to_string(Path::new(dir).join("report.md")).unwrap();
        let reasons = sentence.trim_start_matches("INCONCLUSIVE: ");
        assert!(text.to_lowercase().contains(&reasons.to_lowercase()), "{reasons}\n{text}");
        assert_eq!(&read_json(&Path::new(dir).join("summary.json"))["sentence"], &summary["sentence"]);
    }
    let exported =
        |dir: &str| stdout(&run(["export", dir, "--format", "csv"]).output().unwrap()).lines().count();
    assert_eq!(exported(&runs[0].0), 51, "a head and the rows kept");
    let compared = json(&run(["compare", &runs[0].0, &runs[1].0, "--json"]).output().unwrap());
    let pair =
        compared["pairs"].as_array().unwrap().iter().find(|pair| pair["measure"] == "lateness").unwrap();
    for (side, (_, summary)) in runs.iter().enumerate() {
        let us = &summary["measures"][0]["us"];
        assert!(us["count"].as_u64() > Some(100), "{us}");
        assert_eq!(pair["samples"][side], us["count"]);
        assert_eq!(pair["misses"][side], summary["measures"][0]["misses"]);
        assert_eq!(pair["verdicts"][side], summary["sentence"]);
        let place = ["before_ns", "after_ns"][side];
        for (figure, name) in [("mean", "mean"), ("max", "worst")] {
            let change = pair["changes"].as_array().unwrap().iter().find(|c| c["figure"] == figure).unwrap();
            let (found, own) = (change[place].as_f64().unwrap(), us[name].as_f64().unwrap() * 1e3);
            assert!((found - own).abs() < 1e-3, "{figure}: {found} ns beside {own} ns");
        }
    }
    let refused = run(["run", file, "--seconds", "1", "--runs", root.path().to_str().unwrap()])
        .env("TAKT_KEEP_ROWS", "many")
        .output()
        .unwrap();
    assert!(
        !refused.status.success() && stderr(&refused).contains("TAKT_KEEP_ROWS=many: accepted"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn a_claim_of_a_measure_that_is_not_there_names_those_that_are() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("robot.toml");
    let refusal = |text: String| {
        fs::write(&file, text).unwrap();
        let output =
            run(["run", file.to_str().unwrap(), "--seconds", "0.1", "--runs", root.path().to_str().unwrap()])
                .output()
                .unwrap();
        assert!(!output.status.success());
        stderr(&output)
    };
    let said = refusal(format!("{ROBOT}[verdict.measures.latness]\nmisses_per_job = 1e-3\n"));
    assert!(said.contains("verdict.measures.latness: accepted are lateness, response"), "{said}");
    let said = refusal(ROBOT.replace("1e-3", "0"));
    assert!(said.contains("verdict.misses_per_hour = 0: accepted is a number above 0"), "{said}");
    let said = refusal(ROBOT.replace("misses_per_hour", "misses_per_second"));
    assert!(said.contains("misses_per_second") && said.contains("misses_per_job"), "{said}");
}
