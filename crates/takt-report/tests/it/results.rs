//! Results that are shipped with the documentation: what a summary holds, what is refused, and that
//! the page follows the summaries.

#![allow(clippy::unwrap_used)]

use crate::common;

use std::path::Path;

use common::{header, run, unsealed};
use takt_report::Error;
use takt_report::results::{keep, page, read};
use takt_rundir::{RUN_FILE, RunDir, read_json};
use takt_stats::Verdict;

/// A sealed run of 1000 releases that says which command made it.
fn made(path: &Path, command: Option<&str>, label: &str, late: usize) -> RunDir {
    let mut header = header(&[], 0);
    header.label = label.to_owned();
    let latencies = (0..1000).map(|index| if index < late { 5_000_000 } else { 50_000 + index as u64 });
    let dir = unsealed(path, &header, latencies);
    if let Some(command) = command {
        let mut whole: serde_json::Value = read_json(&path.join(RUN_FILE)).unwrap();
        whole["command"] = command.into();
        dir.write_json(RUN_FILE, &whole).unwrap();
    }
    dir.seal().unwrap();
    dir
}

#[test]
fn a_summary_reports_the_run_and_the_page_reports_the_summaries() {
    let root = tempfile::tempdir().unwrap();
    let (one, folder) = (root.path().join("one"), root.path().join("results"));
    let dir = made(&one, Some("takt run 'my file.toml'"), "fifo:80", 3);
    let files = keep(&folder, &[&one]).unwrap();
    assert_eq!(files, [folder.join("uav-fifo-80.json")]);
    let runs = read(&folder).unwrap();
    let [summary] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!(summary.verdict, Verdict::Fail);
    assert_eq!(summary.seal_sha256, dir.seal_hash().unwrap());
    let main = &summary.measures[0];
    assert_eq!((main.count, main.misses, main.worst_ns, main.deadline_ns), (1000, 3, 5e6, Some(4_000_000)));
    let text = page(&runs);
    for part in [
        "takt run 'my file.toml'",
        "**FAIL**:",
        "2026-11-21 15:52",
        "3\u{a0}of\u{a0}1000",
        "1.2 %",
        &summary.seal_sha256[..12],
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    // A page is not what the command makes as soon as one figure is another.
    let changed = std::fs::read_to_string(&files[0]).unwrap().replace("\"misses\": 3", "\"misses\": 0");
    std::fs::write(&files[0], changed).unwrap();
    assert_ne!(page(&read(&folder).unwrap()), text);
    // The same configuration again takes its place, another one does not.
    let (two, three) = (root.path().join("two"), root.path().join("three"));
    made(&two, Some("takt run x.toml"), "fifo:80", 0);
    made(&three, Some("takt run x.toml"), "rr:80", 0);
    keep(&folder, &[&two, &three]).unwrap();
    assert_eq!(read(&folder).unwrap().len(), 2);
    assert!(matches!(keep(&folder, &[&one, &two]), Err(Error::NotShippable { .. })));
}

#[test]
fn what_cannot_be_believed_is_refused_and_writes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (whole, folder) = (root.path().join("whole"), root.path().join("results"));
    made(&whole, Some("takt run x.toml"), "fifo:80", 0);
    let refused = |path: &Path, word: &str| {
        let error = keep(&folder, &[whole.as_path(), path]).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert!(!folder.exists(), "written nevertheless");
    };
    let cut = root.path().join("cut-off");
    unsealed(&cut, &header(&[], 0), (0..100).map(|_| 1000));
    refused(&cut, "no seal");
    let changed = root.path().join("changed");
    made(&changed, Some("takt run x.toml"), "rr:80", 3);
    let text = std::fs::read_to_string(changed.join(RUN_FILE)).unwrap();
    std::fs::write(changed.join(RUN_FILE), text.replace("rr:80", "rr:81")).unwrap();
    refused(&changed, "changed");
    let unnamed = root.path().join("unnamed");
    run(&unnamed, &header(&[], 0), (0..100).map(|_| 1000));
    refused(&unnamed, "\"command\"");
    refused(&root.path().join("nothing"), "nothing");
    std::fs::create_dir(&folder).unwrap();
    assert!(read(&folder).unwrap_err().to_string().contains("no summary"));
    std::fs::write(folder.join("x.json"), "{\"robot\": 1}").unwrap();
    assert!(read(&folder).unwrap_err().to_string().contains("x.json"));
}

#[test]
fn a_hostile_summary_stays_within_its_lines() {
    let root = tempfile::tempdir().unwrap();
    let (path, folder) = (root.path().join("one"), root.path().join("results"));
    let command = "takt run x\n# Heading\n```\n<script>alert(1)</script>";
    made(&path, Some(command), "a|b `c` <img src=x onerror=y>\n# more", 0);
    keep(&folder, &[&path]).unwrap();
    let text = page(&read(&folder).unwrap());
    // What is within a line of code is shown and not read; nothing begins a line of its own.
    let code = text.lines().filter(|line| line.starts_with("    ")).count();
    assert_eq!(code, 1, "{text}");
    let elsewhere = text.lines().filter(|line| !line.starts_with("    ")).collect::<Vec<_>>().join("\n");
    assert!(!elsewhere.contains("<img") && !elsewhere.contains("<script"), "{text}");
    assert!(!text.lines().any(|line| line == "# Heading" || line == "# more" || line == "```"), "{text}");
}
