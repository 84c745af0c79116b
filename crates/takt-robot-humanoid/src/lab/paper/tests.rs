#![allow(clippy::unwrap_used, reason = "a test that cannot write its runs has nothing to test")]

use takt_report::Supplements;
use takt_rundir::Measure;

use crate::lab::KIND;

#[path = "../../../../takt-report/tests/common/mod.rs"]
mod common;

#[test]
fn the_papers_figures_stand_beside_and_what_differs_is_said() {
    let root = tempfile::tempdir().unwrap();
    for (name, tuning, stress) in
        [("a", "PMCS", "off"), ("b", "PMC", "humanoid"), ("c", "none", "humanoid-limited")]
    {
        let mut header = common::header(&[("tuning", tuning), ("stress", stress)], 1);
        header.robot = "humanoid".to_owned();
        header.experiment.paper = "humanoid-2009".to_owned();
        header.measures =
            vec![Measure { name: super::PERIOD.to_owned(), deadline_ns: None, ..common::measure() }];
        if tuning == "PMC" {
            header.not_granted = vec!["shield: not set up".to_owned()];
            header.load =
                serde_json::json!({ "components": [{ "kind": "ping", "stand_in": "ping cannot be run" }] });
        }
        common::run(&root.path().join(name), &header, (0..500).map(|at| 1_000_000 + at * 100));
    }
    let supplements = Supplements::from_iter([(KIND.name, KIND.report.unwrap())]);
    let collection = takt_report::collect(&[root.path()]).unwrap();
    let markdown = takt_report::markdown(&takt_report::build(&collection, &supplements));
    // The paper's values stand beside ours, for the stress that each was published for.
    for words in ["1020.00", "1100.00", "346148.00"] {
        assert!(markdown.contains(words), "{words}: {markdown}");
    }
    for words in [
        "Stress humanoid-limited is not the paper's script",
        "ping was replaced: ping cannot be run.",
        "Not granted under PMC: shield: not set up.",
    ] {
        assert!(markdown.contains(words), "{words}: {markdown}");
    }
}
