//! README, ARCHITECTURE and the book (`docs/`) against the tree and the program: what they name is
//! there, every command that they show is one that the program takes, and crates depend on each
//! other as the invariants say.

#![allow(clippy::unwrap_used)]

#[path = "../takt/documents.rs"]
mod documents;
#[path = "../takt/named.rs"]
mod named;
use crate::sources;
#[path = "../takt/words.rs"]
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use documents::{documents, root, split};
use sources::{sources, words};

/// Lines that a front door may have.
const README_LINES: usize = 130;

/// README's two commands, as CI and readers find them.
const TWO_COMMANDS: [&str; 2] = ["cargo run --release -- demo ", "cargo test --workspace "];

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
    let both =
        |lines: &[String]| lines.iter().zip(TWO_COMMANDS).all(|(line, command)| line.starts_with(command));
    let at = commands.windows(2).position(both);
    let at = at.unwrap_or_else(|| panic!("{TWO_COMMANDS:?} do not follow each other: {commands:?}"));
    // Before them stands what needs no compiler.
    assert!(commands[..at].iter().any(|line| line.starts_with("pip install ./takt_program")), "{commands:?}");
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

/// The crate that every other may use without saying so in its entry.
const EVERYBODYS: &str = "takt-files";

/// Entries of ARCHITECTURE.md's map, in its order: a crate, and those that it may use; `None` where
/// these are all above.
fn map() -> Vec<(String, Option<BTreeSet<String>>)> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let after = text.split_once("\n## Code map\n").expect("ARCHITECTURE.md has a code map").1;
    let section = after.split("\n## ").next().unwrap();
    // An entry goes on in lines that are indented.
    let entries = section.split("\n- ").skip(1).map(|entry| {
        let lines = entry.lines().enumerate();
        let own = lines.take_while(|(number, line)| *number == 0 || line.starts_with("  "));
        own.map(|(_, line)| line.trim()).collect::<Vec<_>>().join(" ")
    });
    entries.map(|entry| parsed(&entry)).collect()
}

/// Name and uses of an entry of the map: "`NAME`: purpose. Main files. Uses these."
fn parsed(entry: &str) -> (String, Option<BTreeSet<String>>) {
    let name = entry.split('`').nth(1).unwrap_or_else(|| panic!("no name: {entry}"));
    let (_, uses) = entry.rsplit_once("Uses ").unwrap_or_else(|| panic!("no \"Uses \": {entry}"));
    // What a crate is used for stands in parentheses.
    let mut depth = 0;
    let kept = uses.trim_end_matches('.').chars().filter(|c| {
        depth += i32::from(*c == '(');
        let outside = depth == 0;
        depth -= i32::from(*c == ')');
        outside
    });
    let named = match kept.collect::<String>().trim() {
        "all above" => None,
        "nothing of ours" => Some(BTreeSet::new()),
        names => Some(names.split(',').map(|name| format!("takt-{}", name.trim())).collect()),
    };
    (name.to_owned(), named)
}

/// The crates of this workspace with those that each uses: of all its tables of dependencies, also
/// optional ones and those of some targets. Tests and build scripts may use what they like.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let read = |path: &Path| fs::read_to_string(path).unwrap().parse::<toml::Table>().unwrap();
    let workspace = read(&root().join("Cargo.toml"));
    // A dependency may have another name than its crate.
    let package = |name: &str, value: &toml::Value| {
        let inherited = value.get("workspace").and(workspace["workspace"]["dependencies"].get(name));
        let renamed = inherited.unwrap_or(value).get("package").and_then(toml::Value::as_str);
        renamed.unwrap_or(name).to_owned()
    };
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let manifests = folders.map(|folder| folder.join("Cargo.toml")).filter(|path| path.exists());
    let all: Vec<toml::Table> = manifests.map(|path| read(&path)).collect();
    let name = |manifest: &toml::Table| manifest["package"]["name"].as_str().unwrap().to_owned();
    let ours: BTreeSet<String> = all.iter().map(name).collect();
    let used = |manifest: &toml::Table| -> BTreeSet<String> {
        let targets = manifest.get("target").and_then(toml::Value::as_table).into_iter().flatten();
        let tables = targets.filter_map(|(_, target)| target.get("dependencies"));
        let tables = tables.chain(manifest.get("dependencies")).filter_map(toml::Value::as_table);
        let packages = tables.flatten().map(|(name, value)| package(name, value));
        packages.filter(|package| ours.contains(package)).collect()
    };
    all.iter().map(|manifest| (name(manifest), used(manifest))).collect()
}

#[test]
fn the_map_of_crates_is_what_the_manifests_say() {
    let (rows, real) = (map(), dependencies());
    let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
    let mut wrong = Vec::new();
    for name in real.keys().filter(|name| !names.contains(&name.as_str())) {
        wrong.push(format!("{name} has no entry"));
    }
    for (place, (name, may)) in rows.iter().enumerate() {
        let above = &names[..place];
        let Some(uses) = real.get(name).filter(|_| !above.contains(&name.as_str())) else {
            wrong.push(format!("{name} is no crate, or has two entries"));
            continue;
        };
        for used in uses.iter().filter(|used| !above.contains(&used.as_str())) {
            wrong.push(format!("{name} uses {used}, whose entry is not above its own"));
        }
        let Some(may) = may else { continue };
        let free = |used: &str| used == EVERYBODYS && !may.is_empty();
        for used in uses.iter().filter(|used| !may.contains(*used) && !free(used)) {
            wrong.push(format!("{name} uses {used}, which its entry does not name"));
        }
        for named in may.difference(uses) {
            wrong.push(format!("{name} does not use {named}, which its entry names"));
        }
    }
    assert!(wrong.is_empty(), "the code map of ARCHITECTURE.md:\n{}", wrong.join("\n"));
}

/// Dependencies that ARCHITECTURE.md's invariants forbid, whatever its map says: of the crates on
/// the left (a name, or the beginning of names) upon those on the right.
const FORBIDDEN: [(&str, &[&str]); 23] = [
    ("takt-files", &["takt-"]),
    ("takt-rt", &["takt-"]),
    ("takt-stats", &["takt-"]),
    ("takt-kernels", &["takt-"]),
    // Programs of others are linked with it.
    ("takt-sdk", &["takt-"]),
    (
        "takt-rundir",
        &["takt-report", "takt-lab", "takt-robot-", "takt-link-", "takt-view", "takt-perception"],
    ),
    (
        "takt-report",
        &["takt-rt", "takt-lab", "takt-robot-", "takt-link-", "takt-view", "takt-perception", "takt-manager"],
    ),
    (
        "takt-history",
        &["takt-rt", "takt-lab", "takt-robot-", "takt-link-", "takt-view", "takt-manager", "takt-watch"],
    ),
    // What is reported is the affair of whoever shows it.
    ("takt-otlp", &["takt-rundir", "takt-lab", "takt-robot-", "takt-link-", "takt-manager", "takt-watch"]),
    ("takt-link-", &["takt-link-", "takt-robot-", "takt-lab", "takt-view", "takt-perception", "takt-rundir"]),
    ("takt-gpu", &["takt-perception", "takt-robot-", "takt-lab", "takt-link-"]),
    ("takt-perception", &["takt-robot-", "takt-lab", "takt-link-rtde", "takt-view"]),
    ("takt-load", &["takt-gpu", "takt-robot-", "takt-lab", "takt-link-", "takt-perception"]),
    ("takt-lab", &["takt-gpu", "takt-robot-", "takt-link-", "takt-perception", "takt-slurm"]),
    ("takt-slurm", &["takt-robot-", "takt-link-", "takt-perception", "takt-view", "takt-manager"]),
    ("takt-robot-", &["takt-robot-"]),
    ("takt-ros", &["takt-model", "takt-manager", "takt-lab"]),
    ("takt-ros-workload", &["takt-model", "takt-manager", "takt-lab"]),
    ("takt-model", &["takt-manager", "takt-lab"]),
    ("takt-faults", &["takt-robot-", "takt-perception", "takt-lab"]),
    ("takt-view", &["takt-robot-", "takt-lab", "takt-report", "takt-perception", "takt-link-", "takt-m"]),
    // It watches programs that know nothing of Takt, and must know nothing of ours. How EtherCAT
    // frames are read is no part of a program.
    (
        "takt-watch",
        &[
            "takt-robot-",
            "takt-lab",
            "takt-link-camera",
            "takt-link-daq",
            "takt-link-rtde",
            "takt-manager",
            "takt-model",
            "takt-ros",
            "takt-view",
        ],
    ),
    // A robot is tuned as any program: by being run.
    (
        "takt-tune",
        &["takt-robot-", "takt-lab", "takt-link-", "takt-manager", "takt-model", "takt-ros", "takt-view"],
    ),
];

#[test]
fn crates_depend_on_each_other_as_the_invariants_say() {
    let mut wrong = Vec::new();
    for (name, uses) in dependencies() {
        let rules =
            FORBIDDEN.iter().filter(|(who, _)| name == *who || who.ends_with('-') && name.starts_with(who));
        let forbidden: Vec<&str> = rules.flat_map(|(_, whom)| whom.iter().copied()).collect();
        for used in uses.iter().filter(|used| forbidden.iter().any(|whom| used.starts_with(whom))) {
            wrong.push(format!("{name} uses {used}: see the invariants in ARCHITECTURE.md"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The beginnings of system calls about threads, clocks, scheduling, locked memory, mounts,
/// namespaces and packet sockets: `takt-rt` alone makes them, so that each is right in one place.
const SYSTEM_CALLS: [&str; 22] = [
    "AF_PACKET",
    "SYS_fs",
    "SYS_sched",
    "clock_getres",
    "clock_gettime",
    "clock_nanosleep",
    "getpriority",
    "getrusage",
    "gettid",
    "mlock",
    "mount",
    "move_mount",
    "open_tree",
    "prctl",
    "pthread_",
    "sched_",
    "set_parent_process_death_signal",
    "setns",
    "setpriority",
    "timerfd",
    "umount",
    "unshare",
];

/// Places that may make them nevertheless, each with its reason.
const ALLOWED: [(&str, &str); 5] = [
    ("takt-host/src/doctor/cache.rs", "mounts the file system of cache allocation, a setting of the machine"),
    ("takt-kernels/", "the first program of a guest: it knows no crate of ours, and is built alone"),
    ("takt-perception/src/process/memory.rs", "locks the mapping that it makes itself"),
    (
        "takt-host/src/reserve/system/linux.rs",
        "whole attributes of other programs' threads, as its journal gives them back",
    ),
    ("takt-sdk/", "programs of others are linked with it: it stands alone"),
];

#[test]
fn system_calls_about_threads_and_clocks_are_in_one_crate() {
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().file_name());
    let crates = crates.map(|name| name.into_string().unwrap()).filter(|name| name != "takt-rt");
    let mut used: BTreeSet<&str> = BTreeSet::new();
    let mut wrong = Vec::new();
    for source in crates.flat_map(|name| sources(&name)) {
        for (number, line) in &source.lines {
            // A call is named by its path, or its crate's module is imported.
            let outside = ["libc::", "rustix::", "nix::"].iter().any(|path| line.contains(path));
            let call = words(line).find(|word| SYSTEM_CALLS.iter().any(|call| word.starts_with(call)));
            let Some(call) = call.filter(|_| outside) else { continue };
            match ALLOWED.iter().find(|(place, _)| source.name.starts_with(place)) {
                Some((place, _)) => _ = used.insert(place),
                None => wrong.push(format!("{}:{number}: {call}: {line}", source.name)),
            }
        }
    }
    assert!(wrong.is_empty(), "takt-rt has, or should have, these:\n{}", wrong.join("\n"));
    assert_eq!(used.len(), ALLOWED.len(), "needed are {used:?} alone");
}

/// Error types of public functions that return a text.
const TEXTS: [&str; 3] = [", String>", ", &str>", ", &'static str>"];

#[test]
fn errors_keep_their_kind_across_crates() {
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().file_name());
    // The program prints its errors, and nobody calls it.
    let crates = crates.map(|name| name.into_string().unwrap()).filter(|name| name != "takt");
    let mut wrong = Vec::new();
    for source in crates.flat_map(|name| sources(&name)) {
        let text = source.lines.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>().join(" ");
        for function in text.split("pub fn ").skip(1) {
            let head = function.split(['{', ';']).next().unwrap();
            let returned = head.rsplit("->").next().unwrap();
            if returned.contains("Result<") && TEXTS.iter().any(|text| returned.contains(text)) {
                wrong.push(format!("{}: pub fn {head}", source.name));
            }
        }
        if text.contains("Config(error.to_string())") || text.contains("internal: {error}") {
            wrong.push(format!("{}: an error of another kind becomes a text", source.name));
        }
    }
    assert!(wrong.is_empty(), "an enum that a caller can match on, please:\n{}", wrong.join("\n"));
}

/// Whether a source has an example in its documentation that rustdoc would run.
fn has_an_example(text: &str) -> bool {
    let mut is_open = false;
    for line in text.lines() {
        let line = line.trim_start();
        let Some(line) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            is_open = false;
            continue;
        };
        let Some(language) = line.trim().strip_prefix("```") else { continue };
        let runs = ["", "rust", "no_run", "should_panic", "compile_fail"].contains(&language);
        if !is_open && runs {
            return true;
        }
        is_open = !is_open;
    }
    false
}

#[test]
fn no_example_is_in_a_crate_whose_examples_are_not_run() {
    let (mut wrong, mut without) = (Vec::new(), 0);
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        // rustdoc takes seconds for each crate, also where it finds nothing.
        if !fs::read_to_string(path.join("Cargo.toml")).unwrap().contains("\ndoctest = false") {
            continue;
        }
        without += 1;
        for file in sources::files_of(&path.join("src")) {
            if has_an_example(&fs::read_to_string(&file).unwrap()) {
                wrong.push(file);
            }
        }
    }
    assert!(wrong.is_empty(), "remove `doctest = false` from the manifests of {wrong:?}");
    assert!(
        without > 0
            && has_an_example("/// ```\n/// f();\n/// ```")
            && !has_an_example("/// ```text\n/// a\n/// ```")
    );
}
