//! README, ARCHITECTURE and the book (`docs/`) against the tree and the program: what they name is there, every command that they show is
//! one that the program takes, and crates depend on each other as the invariants say.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines that a front door may have.
const README_LINES: usize = 130;

/// README's two commands, as CI and readers find them.
const TWO_COMMANDS: [&str; 2] = ["cargo run --release -- demo ", "cargo test --workspace "];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// README, what stands beside it, and the chapters of the book.
fn documents() -> BTreeMap<PathBuf, String> {
    let root = root();
    let beside =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name));
    let chapters = fs::read_dir(root.join("docs/src")).unwrap().map(|entry| entry.unwrap().path());
    let chapters = chapters.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    beside.into_iter().chain(chapters).map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The text without its blocks of code, and the lines of its blocks marked `sh`.
fn split(text: &str) -> (String, Vec<String>) {
    let (mut prose, mut commands, mut block) = (String::new(), Vec::new(), None);
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), block) {
            (Some(language), None) => block = Some(language == "sh"),
            (Some(_), Some(_)) => block = None,
            (None, Some(true)) => commands.push(line.to_owned()),
            (None, Some(false)) => {}
            (None, None) => prose += &format!("{line}\n"),
        }
    }
    assert_eq!(block, None, "a block of code has no end");
    (prose, commands)
}

/// Targets of `[words](target)` and `![words](target)`.
fn links(prose: &str) -> Vec<&str> {
    prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect()
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let (prose, _) = split(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            words.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
        })
        .collect()
}

#[test]
fn the_front_door_is_short_and_ci_runs_its_second_command() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let lines = readme.lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines: what is longer belongs to docs/src");
    let (_, commands) = split(&readme);
    assert!(commands.len() >= 2, "{commands:?}");
    for (line, command) in commands.iter().zip(TWO_COMMANDS) {
        assert!(line.starts_with(command), "\"{line}\" is not \"{command}\"");
    }
    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    assert!(ci.lines().any(|line| line.starts_with("cargo test --workspace")), "CI runs another command");
}

#[test]
fn every_link_leads_somewhere_and_every_chapter_is_in_the_summary() {
    let documents = documents();
    let book = root().join("docs/src");
    let mut wrong = Vec::new();
    for (path, text) in &documents {
        let (prose, _) = split(text);
        for link in links(&prose).into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let Ok(target) = target.canonicalize() else {
                wrong.push(format!("{}: ({link}) leads nowhere", path.display()));
                continue;
            };
            // A page of the book is read as HTML, too, where nothing else of the tree is.
            if path.starts_with(&book) && !target.starts_with(&book) {
                wrong.push(format!("{}: ({link}) leads out of the book", path.display()));
            }
            let known =
                anchor.is_empty() || documents.get(&target).is_some_and(|t| anchors(t).contains(anchor));
            if !known {
                wrong.push(format!("{}: ({link}) has no such heading", path.display()));
            }
        }
    }
    let summary = &documents[&book.join("SUMMARY.md")];
    for chapter in documents.keys().filter(|path| path.starts_with(&book) && !path.ends_with("SUMMARY.md")) {
        let name = chapter.file_name().unwrap().to_str().unwrap();
        if links(summary).iter().filter(|link| **link == name).count() != 1 {
            wrong.push(format!("SUMMARY.md has not {name}, or twice"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Folders whose files the documents name by their path from the root.
const FOLDERS: [&str; 9] =
    ["robots/", "goals/", "campaigns/", "recordings/", "models/", "crates/", "tools/", "docs/", "ros2/"];

/// Files that a reader has to write first are of this name.
const TO_BE_WRITTEN: [&str; 2] = ["NAME", "yours.toml"];

#[test]
fn every_file_that_is_named_is_there() {
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        let ends = |c: char| !(c.is_alphanumeric() || "/._-".contains(c));
        for word in text.split(ends).map(|word| word.trim_end_matches(['.', '-'])) {
            let named = FOLDERS.iter().any(|folder| word.starts_with(folder) && word.len() > folder.len());
            if named && !TO_BE_WRITTEN.iter().any(|name| word.contains(name)) && !root().join(word).exists() {
                wrong.push(format!("{}: there is no {word}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a line of a shell block gives to takt: the words of the first command after `takt`, without what other programs are given.
fn given_to_takt(line: &str) -> Option<Vec<String>> {
    let line = line.split(" #").next()?.trim();
    let after = line.strip_prefix("cargo run --release -- ").or_else(|| line.strip_prefix("takt "))?;
    let words = after.split_whitespace().take_while(|word| *word != "--" && *word != "|");
    Some(words.map(str::to_owned).collect())
}

#[test]
fn the_program_takes_every_command_that_is_shown() {
    // The help of a command, once each.
    let mut pages: BTreeMap<Vec<String>, Option<String>> = BTreeMap::new();
    let mut help = |command: &[String]| -> Option<String> {
        let page = pages.entry(command.to_vec()).or_insert_with(|| {
            let run = Command::new(env!("CARGO_BIN_EXE_takt")).args(command).arg("--help").output().unwrap();
            run.status.success().then(|| String::from_utf8(run.stdout).unwrap())
        });
        page.clone()
    };
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (path, text) in documents() {
        let at = path.display();
        for line in split(&text).1 {
            let Some(words) = given_to_takt(&line) else { continue };
            seen += 1;
            // `takt kernels list`, `takt bench uav`: commands of a command.
            let depth = match words.first().map(String::as_str) {
                Some("bench" | "campaign" | "kernels" | "ethercat") => 2,
                _ => 1,
            };
            let Some(page) = words.get(..depth).and_then(&mut help) else {
                wrong.push(format!("{at}: takt has no command of \"{line}\""));
                continue;
            };
            for option in words.iter().filter(|word| word.starts_with("--")) {
                let name = option.split('=').next().unwrap();
                let known = page.split(|c: char| !(c.is_alphanumeric() || c == '-')).any(|word| word == name);
                if !known {
                    wrong.push(format!("{at}: {name} is no option of \"{line}\""));
                }
            }
        }
    }
    assert!(seen > 40, "only {seen} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_page_of_results_is_what_the_command_makes() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("results.md");
    let mut report = Command::new(env!("CARGO_BIN_EXE_takt"));
    let run = report.args(["report", "--results", "docs/results", "--page"]).arg(&page).current_dir(root());
    let run = run.output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let shipped = fs::read_to_string(root().join("docs/src/results.md")).unwrap();
    assert!(
        shipped == fs::read_to_string(&page).unwrap(),
        "docs/src/results.md was edited, or its summaries were: takt report --results docs/results --page docs/src/results.md"
    );
}

/// Dependencies that ARCHITECTURE.md's invariants forbid: of the crates on the left (a name, or the beginning of names) upon those on
/// the right. Tests and build scripts may use what they like.
const FORBIDDEN: [(&str, &[&str]); 18] = [
    ("takt-files", &["takt-"]),
    ("takt-rt", &["takt-"]),
    ("takt-stats", &["takt-"]),
    ("takt-kernels", &["takt-r", "takt-l", "takt-link-", "takt-m", "takt-perception"]),
    (
        "takt-rundir",
        &["takt-report", "takt-lab", "takt-robot-", "takt-link-", "takt-view", "takt-perception"],
    ),
    (
        "takt-report",
        &["takt-rt", "takt-lab", "takt-robot-", "takt-link-", "takt-view", "takt-perception", "takt-manager"],
    ),
    ("takt-link-", &["takt-link-", "takt-robot-", "takt-lab", "takt-view", "takt-perception", "takt-rundir"]),
    ("takt-gpu", &["takt-perception", "takt-robot-", "takt-lab", "takt-link-"]),
    ("takt-perception", &["takt-robot-", "takt-lab", "takt-link-rtde", "takt-view"]),
    ("takt-load", &["takt-gpu", "takt-robot-", "takt-lab", "takt-link-", "takt-perception"]),
    ("takt-lab", &["takt-gpu", "takt-robot-", "takt-link-", "takt-perception"]),
    ("takt-robot-", &["takt-robot-"]),
    ("takt-ros", &["takt-model", "takt-manager", "takt-lab"]),
    ("takt-ros-workload", &["takt-model", "takt-manager", "takt-lab"]),
    ("takt-model", &["takt-manager", "takt-lab"]),
    ("takt-faults", &["takt-robot-", "takt-perception", "takt-lab"]),
    ("takt-view", &["takt-robot-", "takt-lab", "takt-report", "takt-perception", "takt-link-", "takt-m"]),
    // It watches programs that know nothing of Takt, and must know nothing of ours.
    (
        "takt-watch",
        &["takt-robot-", "takt-lab", "takt-link-", "takt-manager", "takt-model", "takt-ros", "takt-view"],
    ),
];

#[test]
fn crates_depend_on_each_other_as_the_invariants_say() {
    let manifests = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut wrong = Vec::new();
    for manifest in manifests.map(|folder| folder.join("Cargo.toml")).filter(|path| path.exists()) {
        let text = fs::read_to_string(&manifest).unwrap();
        let name = manifest.parent().unwrap().file_name().unwrap().to_str().unwrap();
        let mut section = "";
        for line in text.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let Some(used) = line.split(['.', '=', ' ']).next().filter(|word| word.starts_with("takt-"))
            else {
                continue;
            };
            let rules = FORBIDDEN
                .iter()
                .filter(|(who, _)| name == *who || who.ends_with('-') && name.starts_with(who));
            let mut forbidden = rules.flat_map(|(_, whom)| whom.iter());
            if section == "[dependencies]" && used != name && forbidden.any(|whom| used.starts_with(whom)) {
                wrong.push(format!("{name} uses {used}: see the invariants in ARCHITECTURE.md"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
