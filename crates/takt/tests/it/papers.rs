//! The papers: what campaigns name, what the robots' data say of them, and the book's chapter.

#![allow(clippy::unwrap_used)]

use crate::kinds::ROBOTS;
use crate::takt;

use std::fs;
use std::path::Path;

use takt::root;
use takt_lab::campaign::{CampaignFile, shipped};
use takt_report::paper::{Definition, Headline, PREEMPTION, Paper, overview};
use takt_rundir::{Measure, RUN_FILE, RunDir, RunHeader};

/// Every paper with the robot that reproduces it.
fn papers() -> Vec<(&'static takt_lab::robot::RobotKind, &'static Paper)> {
    let kinds = ROBOTS.kinds().iter().copied();
    kinds
        .flat_map(|kind| {
            kind.report.into_iter().flat_map(|report| report.papers()).map(move |paper| (kind, paper))
        })
        .collect()
}

fn campaigns(kind: &takt_lab::robot::RobotKind) -> Vec<CampaignFile> {
    kind.campaigns.iter().map(|(name, _)| shipped(&ROBOTS, name).unwrap()).collect()
}

#[test]
fn every_paper_that_a_campaign_names_is_one_of_its_robot() {
    let mut named = 0;
    for kind in ROBOTS.kinds() {
        let known: Vec<&str> =
            papers().iter().filter(|(own, _)| own.name == kind.name).map(|(_, p)| p.key).collect();
        for campaign in campaigns(kind) {
            let Some(paper) = &campaign.paper else { continue };
            assert!(
                known.contains(&paper.as_str()),
                "{}: paper = \"{paper}\", known are {known:?}",
                campaign.name
            );
            named += 1;
        }
    }
    assert!(named >= 9, "{named}");
}

/// The measures and configurations that published values are compared with are there: a name with a
/// slip would only ever say that nothing was measured.
#[test]
fn published_values_are_compared_with_measures_and_factors_that_there_are() {
    for (kind, paper) in papers() {
        let measures: Vec<String> = kind
            .shipped
            .iter()
            .flat_map(|(name, _)| ROBOTS.shipped(name).unwrap().measures().unwrap())
            .map(|measure| measure.name)
            .collect();
        let campaigns: Vec<CampaignFile> = campaigns(kind)
            .into_iter()
            .filter(|campaign| campaign.paper.as_deref() == Some(paper.key))
            .collect();
        let has = |campaign: &CampaignFile, (name, value): &(&str, &str)| {
            let factor = campaign.factors.iter().find(|factor| factor.name == *name);
            *name == PREEMPTION
                || factor.is_some_and(|factor| factor.values.iter().any(|level| level.text() == *value))
        };
        for item in paper.items {
            let what = format!("{} {}", paper.name, item.number);
            assert!(!item.caption.is_empty() && item.caption.ends_with('.'), "{what}: {}", item.caption);
            if !matches!(item.definition, Definition::Absent(_)) {
                assert!(!item.ours.is_empty(), "{what} is reproduced by nothing");
            }
            for Headline { what: value, measure, at, .. } in item.headlines {
                assert!(
                    measures.iter().any(|known| known == measure),
                    "{what}: {value}: {measure} of {measures:?}"
                );
                let there = campaigns.iter().any(|campaign| at.iter().all(|factor| has(campaign, factor)));
                assert!(there, "{what}: {value}: no campaign has {at:?}");
            }
        }
    }
}

/// A run of a robot with one loop that wakes up, in two configurations of a factor.
fn made(root: &Path, robot: &str) {
    #[derive(serde::Serialize)]
    struct Job {
        planned_ns: u64,
        wake_ns: u64,
    }
    for (name, value) in [("1", "off"), ("2", "uav")] {
        let measure = Measure::new("lateness", "Wake-up lateness", "jobs", "wake_ns")
            .since("planned_ns")
            .deadline_ns(1_000_000)
            .rate_hz(1000.0);
        let mut header = RunHeader { measures: vec![measure], ..RunHeader::new(robot, value) };
        header.experiment.campaign = "own".to_owned();
        let factor = takt_rundir::Factor { name: "stress".to_owned(), value: value.to_owned() };
        header.experiment.factors = vec![factor];
        let dir = RunDir::create_at(&root.join(name)).unwrap();
        let mut file = dir.samples("jobs").unwrap();
        for index in 0..500u64 {
            let planned_ns = 1_000_000 * (index + 1);
            file.push(&Job { planned_ns, wake_ns: planned_ns + 1000 + index }).unwrap();
        }
        file.flush().unwrap();
        dir.write_json(RUN_FILE, &header).unwrap();
        dir.seal().unwrap();
    }
}

#[test]
fn no_report_has_the_tables_of_another_robots_paper() {
    // Words of each shape, and the robots whose paper has it. A robot without a paper has what no
    // paper is alone with.
    let shapes: [(&str, &[&str]); 4] = [
        ("lowest shares", &["humanoid"]),
        ("Td_max", &["daq"]),
        ("share of the period", &["uav", "cyclic", "servo", "program"]),
        ("effect of", &["uav", "cyclic", "servo", "program"]),
    ];
    for kind in ROBOTS.kinds() {
        let folder = tempfile::tempdir().unwrap();
        made(folder.path(), kind.name);
        let collection = takt_report::collect(&[folder.path()]).unwrap();
        let document = takt_report::build(&collection, &ROBOTS.supplements());
        let text = takt_report::markdown(&document).replace('\\', "");
        for (words, of) in shapes {
            let is_there = text.contains(words);
            assert_eq!(is_there, of.contains(&kind.name), "{}: \"{words}\"", kind.name);
        }
        // No campaign of a paper: its section is not there either.
        assert_eq!(document.papers, 0, "{}", kind.name);
    }
}

/// Text above the tables in the book's chapter.
const HEAD: &str = include_str!("../../../../docs/papers.head.md");

#[test]
fn the_books_chapter_has_every_table_and_figure_of_the_papers() {
    let papers: Vec<&Paper> = papers().into_iter().map(|(_, paper)| paper).collect();
    let text = format!("{}\n\n{}\n", HEAD.trim_end(), overview(&papers).trim_end());
    let path = root().join("docs/src/papers.md");
    if std::env::var_os("TAKT_GOLDEN").is_some_and(|what| what == "renew") {
        fs::write(&path, &text).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        there, text,
        "TAKT_GOLDEN=renew cargo test -p takt --test it papers:: writes docs/src/papers.md"
    );
}
