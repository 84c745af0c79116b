//! Kills at every step of a checkpoint, a seal and a resumption, by ending a process of its own
//! there.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::dir::RunDir;
use crate::{Draft, RUN_FILE, SUMMARY_FILE, SealState, read_json, write_json};

const FOLDER: &str = "TAKT_TEST_KILLS_DIR";
const STEP: &str = "TAKT_TEST_KILLS_STEP";
/// File of the accumulated sum.
const SUM: &str = "sum.json";

/// Steps left; 0 for a process that is not to be killed.
static LEFT: AtomicU64 = AtomicU64::new(0);
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// A step is about to be taken.
pub(crate) fn step(_what: &str, _path: &Path) {
    TAKEN.fetch_add(1, Ordering::Relaxed);
    if LEFT.load(Ordering::Relaxed) > 0 && LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
        std::process::abort();
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Row {
    index: u64,
    text: String,
}

/// Sums over all rows.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sum {
    count: u64,
    indices: u64,
}

/// One life of a run: begins or goes on, takes twenty samples with a checkpoint after every five,
/// seals. Says on its standard output how many samples are safe.
fn live(path: &Path) -> Result<(), crate::Error> {
    let dir = match RunDir::open(path) {
        Ok(dir) if dir.is_complete() => return dir.seal(),
        Ok(dir) => dir,
        Err(_) => {
            std::fs::remove_dir_all(path).ok();
            let dir = RunDir::create_at(path)?;
            // Before anything else: a run without a checkpoint cannot go on.
            dir.checkpoint(&Draft::default())?;
            dir.write_json(RUN_FILE, &1)?;
            dir
        }
    };
    let _claim = dir.claim()?;
    let before = dir.resume()?;
    let (mut rows, there) = dir.continue_samples("jobs")?;
    assert_eq!(there, before.rows.get("jobs").copied().unwrap_or(0));
    let mut sum: Sum = dir.find_json(SUM)?.unwrap_or_default();
    assert_eq!(sum.count, there, "rows and sums are of the same samples");
    for _ in 0..20 {
        let index = sum.count;
        rows.push(&Row { index, text: format!("of {index},\n\"so\"") })?;
        sum = Sum { count: index + 1, indices: sum.indices + index };
        if sum.count.is_multiple_of(5) {
            let mut draft = Draft::after(&before);
            draft.samples(&mut rows)?;
            draft.file(SUM, &sum)?;
            dir.checkpoint(&draft)?;
            println!("safe {}", sum.count);
            std::io::stdout().flush().expect("a pipe");
        }
        if sum.count.is_multiple_of(10) {
            dir.make_durable()?;
        }
    }
    drop(rows);
    dir.write_json(SUMMARY_FILE, &sum)?;
    dir.seal()
}

/// A process of its own lives, and ends before its step number `kill` (never for 0). Returns how
/// many samples it said were safe, and whether it came to its end.
fn process(path: &Path, kill: u64) -> (u64, bool) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills_tests::child", "--nocapture"])
        .env(FOLDER, path)
        .env(STEP, kill.to_string())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!errors.contains("panicked"), "{errors}");
    let safe = message.lines().filter_map(|line| line.split("safe ").nth(1)?.parse().ok()).max();
    (safe.unwrap_or(0), output.status.success())
}

#[test]
fn child() {
    let Some(path) = std::env::var_os(FOLDER) else { return };
    LEFT.store(std::env::var(STEP).unwrap().parse().unwrap(), Ordering::Relaxed);
    live(Path::new(&path)).unwrap();
    LEFT.store(0, Ordering::Relaxed);
    println!("steps {}", TAKEN.load(Ordering::Relaxed));
}

/// Every sample once, and as many as were said to be safe.
fn whole(path: &Path, safe: u64) -> u64 {
    let dir = RunDir::open(path).unwrap();
    assert!(matches!(dir.seal_state(), SealState::Whole(_)), "{:?}", dir.seal_state());
    let indices = dir.columns("jobs", &["index"]).unwrap().remove(0);
    let count = indices.len() as u64;
    assert_eq!(indices, (0..count).collect::<Vec<_>>(), "lost or counted twice");
    assert!(count >= safe, "{count} of {safe} samples are left");
    let sum: Sum = dir.read_json(SUM).unwrap();
    assert_eq!(sum, Sum { count, indices: indices.iter().sum() });
    let mut names: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .chain(std::fs::read_dir(path.join("samples")).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["hashes.json", "jobs.parquet", RUN_FILE, "samples", SUM, SUMMARY_FILE]);
    count
}

#[test]
fn a_run_that_is_killed_at_any_step_goes_on_and_loses_nothing_that_was_safe() {
    let root = tempfile::tempdir().unwrap();
    let mut kill = 1;
    // Until a life is too short for its kill.
    loop {
        let path = root.path().join(kill.to_string());
        let (safe, ended) = process(&path, kill);
        if ended {
            assert!(kill > 30, "only {kill} steps");
            assert_eq!(whole(&path, safe), 20);
            return;
        }
        // Killed once more at the same step of its next life, which is another one.
        let (again, _) = process(&path, kill);
        let (last, ended) = process(&path, 0);
        assert!(ended, "killed at step {kill}: the run cannot go on");
        let count = whole(&path, safe.max(again).max(last));
        assert!(count >= 20, "{count}");
        // Sealed is sealed: going on changes nothing.
        assert!(process(&path, 0).1);
        assert_eq!(whole(&path, count), count);
        kill += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 40, ..ProptestConfig::default() })]
    #[test]
    fn a_run_that_is_killed_any_number_of_times_goes_on(kills in proptest::collection::vec(1u64..70, 1..8)) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("run");
        let mut safe = 0;
        for kill in kills {
            safe = safe.max(process(&path, kill).0);
        }
        let (last, ended) = process(&path, 0);
        prop_assert!(ended);
        whole(&path, safe.max(last));
    }
}

/// After a power failure the newest checkpoint may be empty, or name rows that never reached the
/// disk.
#[test]
fn after_a_power_failure_the_run_goes_on_from_what_is_on_the_disk() {
    for torn in [b"" as &[u8], b"\0\0\0\0", b"{}", b"{\"elapsed_ns\": 1"] {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::create_at(&root.path().join("run")).unwrap();
        write_json(&dir.path().join(RUN_FILE), &1).unwrap();
        let mut rows = dir.samples("jobs").unwrap();
        let take = |rows: &mut crate::SampleFile, from: u64, to: u64| {
            (from..to).for_each(|index| rows.push(&Row { index, text: String::new() }).unwrap());
            let mut draft = Draft::default();
            draft.elapsed_ns(to);
            draft.samples(rows).unwrap();
            draft.file(SUM, &to).unwrap();
            dir.checkpoint(&draft).unwrap();
        };
        take(&mut rows, 0, 10);
        dir.make_durable().unwrap();
        take(&mut rows, 10, 30);
        drop(rows);
        if torn == b"{}" {
            // The checkpoint came through, its rows did not.
            let path = dir.sample_path("jobs");
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, &text[..text.len() - 20]).unwrap();
        } else {
            std::fs::write(dir.path().join(crate::checkpoint::CHECKPOINT_FILE), torn).unwrap();
        }
        let found = dir.resume().unwrap();
        assert_eq!((found.elapsed_ns, found.resumed, found.rows["jobs"]), (10, 1, 10));
        assert_eq!(dir.columns("jobs", &["index"]).unwrap()[0], (0..10).collect::<Vec<u64>>());
        assert_eq!(dir.read_json::<u64>(SUM).unwrap(), 10);
    }
}

#[test]
fn what_cannot_go_on_is_refused_and_left_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    let dir = RunDir::create_at(&root.path().join("run")).unwrap();
    write_json(&dir.path().join(RUN_FILE), &1).unwrap();
    let mut rows = dir.samples("jobs").unwrap();
    (0..10).for_each(|index| rows.push(&Row { index, text: String::new() }).unwrap());
    rows.flush().unwrap();
    let refused = |why: &str| {
        let error = dir.resume().unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("nothing was changed"), "{error}");
        assert_eq!(dir.columns("jobs", &["index"]).unwrap()[0].len(), 10);
    };
    refused("no checkpoint.json");
    let mut draft = Draft::default();
    draft.file("../outside", &1).unwrap();
    std::fs::create_dir(root.path().join("run/..").join("x")).unwrap();
    let text = serde_json::json!({"elapsed_ns": 0, "resumed": 0, "rows": {}, "files": {"../x/y": "1"}});
    dir.write_json(crate::checkpoint::CHECKPOINT_FILE, &text).unwrap();
    refused("not a plain file name");
    assert!(!root.path().join("x/y").exists());
    let mut draft = Draft::default();
    draft.samples(&mut rows).unwrap();
    dir.checkpoint(&draft).unwrap();
    // As an older version's seal left it when it was killed: the samples are sealed and their
    // journal is gone.
    let journal = dir.sample_path("jobs");
    crate::parquet::convert(&journal, &journal.with_extension("parquet")).unwrap();
    std::fs::remove_file(&journal).unwrap();
    refused("jobs.parquet is sealed and has no journal");
    for made in [dir.samples("jobs").map(drop), dir.continue_samples("jobs").map(drop)] {
        assert!(made.unwrap_err().to_string().contains("never overwritten"));
    }
    let claim = dir.claim().unwrap();
    assert!(dir.claim().unwrap_err().to_string().contains("another process"));
    drop(claim);
    dir.claim().unwrap();
}

#[test]
fn no_entry_can_be_taken_from_a_seal() {
    let root = tempfile::tempdir().unwrap();
    let dir = RunDir::create_at(&root.path().join("run")).unwrap();
    dir.write_json(RUN_FILE, &1).unwrap();
    dir.write_json(SUMMARY_FILE, &2).unwrap();
    drop(dir.samples("jobs").unwrap());
    dir.seal().unwrap();
    let path = dir.path().join(crate::HASHES_FILE);
    let sealed: std::collections::BTreeMap<String, String> = read_json(&path).unwrap();
    let doubted = |what: &str| {
        let state = dir.seal_state();
        assert!(matches!(&state, SealState::Changed(_)), "{what}: {state:?}");
        assert!(state.doubt().is_some_and(|why| why.contains("changed after the run was sealed")), "{what}");
    };
    for text in ["{}", "{\"*\": \"\"}", "[]", "", "{\"run.json\": \"x\"}"] {
        std::fs::write(&path, text).unwrap();
        doubted(text);
    }
    for name in sealed.keys() {
        let mut fewer = sealed.clone();
        fewer.remove(name);
        write_json(&path, &fewer).unwrap();
        doubted(name);
        // The file as well.
        let file = dir.path().join(name);
        if file.is_file() {
            let bytes = std::fs::read(&file).unwrap();
            std::fs::remove_file(&file).unwrap();
            doubted(name);
            std::fs::write(&file, bytes).unwrap();
        }
    }
    write_json(&path, &sealed).unwrap();
    assert!(matches!(dir.seal_state(), SealState::Whole(_)));
    assert_eq!(dir.seal_state().doubt(), None);
    // Reports are written beside what they report on; evidence is not.
    std::fs::write(dir.path().join("report.html"), "x").unwrap();
    assert!(matches!(dir.seal_state(), SealState::Whole(_)));
    for name in ["samples/more.parquet", "samples/more.csv", "recorder-lateness.json"] {
        std::fs::write(dir.path().join(name), "x").unwrap();
        assert_eq!(dir.seal_state(), SealState::Changed(vec![name.to_owned()]));
        std::fs::remove_file(dir.path().join(name)).unwrap();
    }
}

#[test]
fn a_journal_whose_sealed_file_is_lost_is_the_only_copy_and_stays() {
    for damage in ["gone", "changed"] {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::create_at(&root.path().join("run")).unwrap();
        dir.write_json(RUN_FILE, &1).unwrap();
        let mut rows = dir.samples("jobs").unwrap();
        (0..40).for_each(|index| rows.push(&Row { index, text: String::new() }).unwrap());
        rows.flush().unwrap();
        drop(rows);
        let journal = dir.path().join("samples/jobs.csv");
        let text = std::fs::read(&journal).unwrap();
        dir.seal().unwrap();
        // As after a kill before the last step; and then the sealed file was lost.
        std::fs::write(&journal, &text).unwrap();
        let sealed = dir.path().join("samples/jobs.parquet");
        match damage {
            "gone" => std::fs::remove_file(&sealed).unwrap(),
            _ => std::fs::write(&sealed, "PAR1 half of it").unwrap(),
        }
        dir.seal().unwrap();
        let indices = dir.columns("jobs", &["index"]).unwrap();
        assert_eq!(indices, [(0..40).collect::<Vec<u64>>()], "{damage}");
        assert!(matches!(dir.seal_state(), SealState::Whole(_)), "{damage}");
        assert!(sealed.is_file() && !journal.exists(), "{damage}");
    }
}
