//! A run whose files are not what the run left proves nothing, wherever it is shown.

use crate::common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{build, header, run};
use takt_report::compare::{Options, compare};
use takt_report::{collect, digests, markdown};
use takt_rundir::{HASHES_FILE, RUN_FILE, RunDir, RunHeader, read_json, write_json};
use takt_stats::Verdict;

fn sealed(path: &Path, faster_ns: u64) {
    run(path, &header(&[], 0), (0..400_000u64).map(|index| 50_000 - faster_ns + index % 1000));
}

fn verdict(path: &Path) -> (Verdict, String) {
    let collection = collect(&[path]).expect("a run");
    let digest = &digests(&collection, &collection.groups[0])[0];
    (digest.verdict.as_ref().expect("a deadline").verdict, markdown(&build(&collection)))
}

#[test]
fn a_changed_run_loses_its_pass() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("run");
    sealed(&path, 0);
    let (before, text) = verdict(&path);
    assert_eq!(before, Verdict::Pass, "{text}");
    assert!(!text.contains("proves nothing") && text.contains("PASS"), "{text}");
    let hashes: BTreeMap<String, String> = read_json(&path.join(HASHES_FILE)).unwrap();
    let mut fewer = hashes.clone();
    fewer.remove("samples/attitude.parquet");
    let run_file = std::fs::read_to_string(path.join(RUN_FILE)).unwrap();
    let changes: [&dyn Fn(); 4] = [
        &|| write_json(&path.join(HASHES_FILE), &serde_json::json!({})).unwrap(),
        &|| write_json(&path.join(HASHES_FILE), &fewer).unwrap(),
        &|| std::fs::write(path.join(HASHES_FILE), "").unwrap(),
        &|| std::fs::write(path.join(RUN_FILE), run_file.replace("\"uav\"", "\"uav2\"")).unwrap(),
    ];
    for (number, change) in changes.iter().enumerate() {
        change();
        let (after, text) = verdict(&path);
        assert_eq!(after, Verdict::Inconclusive, "change {number}: {text}");
        assert!(text.contains("files were changed after the run was sealed"), "change {number}: {text}");
        let rows = text.lines().filter(|line| line.starts_with('|') || line.starts_with("**"));
        assert!(rows.clone().count() > 5 && !rows.into_iter().any(|row| row.contains("PASS")), "{text}");
        write_json(&path.join(HASHES_FILE), &hashes).unwrap();
        std::fs::write(path.join(RUN_FILE), &run_file).unwrap();
    }
    assert_eq!(verdict(&path).0, Verdict::Pass);
}

#[test]
fn a_finished_run_whose_seal_is_gone_loses_its_pass() {
    let root = tempfile::tempdir().unwrap();
    let sides = [root.path().join("a"), root.path().join("b")];
    sealed(&sides[0], 0);
    sealed(&sides[1], 20_000);
    let (path, hashes) = (&sides[1], sides[1].join(HASHES_FILE));
    assert_eq!(verdict(path).0, Verdict::Pass);
    let takes: [(&str, &dyn Fn()); 3] = [
        ("deleted", &|| ()),
        ("endless", &|| std::os::unix::fs::symlink("/dev/zero", &hashes).unwrap()),
        ("FIFO", &|| {
            assert!(std::process::Command::new("mkfifo").arg(&hashes).status().unwrap().success());
        }),
    ];
    for (what, take) in takes {
        let _ = std::fs::remove_file(&hashes);
        take();
        let (after, text) = verdict(path);
        assert_eq!(after, Verdict::Inconclusive, "{what}: {text}");
        assert!(text.contains("1 run proves nothing"), "{what}: {text}");
        let dir = RunDir::open(path).unwrap();
        let runs = [(dir.header().unwrap(), dir)];
        let all = takt_report::verdict::of_runs(&runs).unwrap().unwrap().report.unwrap();
        assert_eq!(all.verdict, Verdict::Inconclusive, "{what}");
        let comparison = compare(&sides, &Options::default()).unwrap();
        let pair = &comparison.pairs[0];
        assert!(pair.changes.iter().all(|change| change.clear.is_none()), "{what}: {:?}", pair.changes);
        assert!(
            pair.verdicts[1].as_ref().is_some_and(|reported| reported.contains("INCONCLUSIVE")),
            "{what}"
        );
    }
    std::fs::remove_file(&hashes).unwrap();
    let dir = RunDir::open(path).unwrap();
    let own = takt_report::verdict::of_run(&dir).unwrap();
    assert_eq!(own.report.verdict, Verdict::Pass, "a run sums itself up before its seal");
    let cut = RunHeader { finished_utc: None, ..dir.header().unwrap() };
    write_json(&path.join(RUN_FILE), &cut).unwrap();
    let (after, text) = verdict(path);
    assert_eq!(after, Verdict::Inconclusive);
    assert!(
        text.contains("not stopped in an orderly way") && !text.contains("says that it finished"),
        "{text}"
    );
}

#[test]
fn a_comparison_with_a_changed_run_is_never_clear() {
    let root = tempfile::tempdir().unwrap();
    let sides = [root.path().join("a"), root.path().join("b")];
    sealed(&sides[0], 0);
    sealed(&sides[1], 20_000);
    let clear = || {
        let comparison = compare(&sides, &Options::default()).unwrap();
        let text = takt_report::text(&takt_report::compare::document(&comparison));
        let mean = comparison.pairs[0].changes.iter().find(|c| c.figure == "mean").unwrap().clone();
        (mean.clear, mean.warnings.join("; "), text)
    };
    assert_eq!(clear().0, Some(true));
    write_json(&sides[1].join(HASHES_FILE), &serde_json::json!({})).unwrap();
    let (after, warnings, text) = clear();
    assert_eq!(after, None);
    assert!(
        warnings.contains("proves nothing") && text.contains("changed since the seal"),
        "{warnings}\n{text}"
    );
}
