use super::*;
use crate::files::sha256_of;
use crate::samples::read_samples;
use serde::Deserialize;
use std::fs::File;
use std::io::Write;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    index: u64,
    lateness_ns: i64,
}

#[test]
fn texts_are_the_same_before_and_after_the_seal() {
    #[derive(Serialize)]
    struct Event {
        time_ns: u64,
        camera: Option<u32>,
        share: f64,
        cause: String,
    }
    let root = tempfile::tempdir().unwrap();
    let dir = RunDir::create(root.path(), "test").unwrap();
    let names = ["cause", "camera", "time_ns", "share"];
    let mut file = dir.samples("events").unwrap();
    dir.samples("none").unwrap();
    for (camera, cause) in [(Some(1), "late, \"so\""), (None, ""), (Some(0), "two\nlines")] {
        let event = Event { time_ns: u64::MAX, camera, share: 0.5, cause: cause.to_owned() };
        file.push(&event).unwrap();
    }
    file.flush().unwrap();
    let before = dir.texts("events", &names).unwrap();
    assert_eq!(before[0], ["late, \"so\"", "", "two\nlines"]);
    assert_eq!(before[1], ["1", "", "0"]);
    assert_eq!(before[2], vec![u64::MAX.to_string(); 3]);
    assert_eq!(dir.texts("none", &names).unwrap(), vec![Vec::<String>::new(); 4]);
    fs::write(dir.path().join(RUN_FILE), "{}").unwrap();
    dir.seal().unwrap();
    assert_eq!(dir.texts("events", &names).unwrap(), before);
    assert_eq!(dir.texts("none", &names).unwrap(), vec![Vec::<String>::new(); 4]);
    // A file that nothing was ever written to has no wrong columns, sealed or not.
    assert_eq!(dir.columns("none", &["time_ns"]).unwrap(), vec![Vec::<u64>::new()]);
    let error = dir.texts("events", &["colour"]).unwrap_err().to_string();
    assert!(error.contains("no column colour"), "{error}");
}

#[test]
fn samples_survive_a_kill_in_the_middle_of_a_line() {
    let root = tempfile::tempdir().unwrap();
    let dir = RunDir::create(root.path(), "test").unwrap();
    let mut file = dir.samples("jobs").unwrap();
    for index in 0..3 {
        file.push(&Row { index, lateness_ns: -5 }).unwrap();
    }
    file.flush().unwrap();
    let path = dir.sample_path("jobs");
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("3,4");
    fs::write(&path, &text).unwrap();
    assert_eq!(read_samples::<Row>(&path).unwrap().len(), 3);
    fs::write(&path, text.replace("1,-5", "1,x")).unwrap();
    let error = read_samples::<Row>(&path).unwrap_err().to_string();
    assert!(error.contains("jobs.csv") && error.contains("line: 3"), "{error}");
    assert!(dir.samples("jobs").is_err(), "samples are never overwritten");
}

#[test]
fn only_a_seal_that_is_not_there_is_missing() {
    let root = tempfile::tempdir().unwrap();
    let dir = RunDir::create(root.path(), "test").unwrap();
    dir.write_json(RUN_FILE, &1).unwrap();
    assert_eq!(dir.seal_state(), SealState::Missing);
    dir.seal().unwrap();
    let hashes = dir.path().join(HASHES_FILE);
    let changed = SealState::Changed(vec![HASHES_FILE.to_owned()]);
    for target in ["/dev/zero", "/nowhere/hashes.json"] {
        fs::remove_file(&hashes).unwrap();
        std::os::unix::fs::symlink(target, &hashes).unwrap();
        assert_eq!(dir.seal_state(), changed, "{target}");
    }
    fs::remove_file(&hashes).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&hashes).status().unwrap().success());
    assert_eq!(dir.seal_state(), changed, "a FIFO");
    fs::remove_file(&hashes).unwrap();
    assert_eq!(dir.seal_state(), SealState::Missing);
}

#[test]
fn a_sealed_directory_names_the_hash_of_every_file() {
    let root = tempfile::tempdir().unwrap();
    let dir = RunDir::create(root.path(), "test").unwrap();
    assert!(RunDir::open(dir.path()).is_err());
    dir.write_json(RUN_FILE, &1).unwrap();
    let mut jobs = dir.samples("jobs").unwrap();
    (0..3).for_each(|index| jobs.push(&Row { index, lateness_ns: -5 }).unwrap());
    jobs.flush().unwrap();
    assert!(!dir.is_complete() && dir.seal_hash().is_none());
    dir.seal().unwrap();
    assert!(RunDir::open(dir.path()).unwrap().is_complete());
    let hashes: serde_json::Value = dir.read_json(HASHES_FILE).unwrap();
    // SHA-256 of "1\n".
    assert_eq!(hashes[RUN_FILE], "4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865");
    let sealed = dir.path().join("samples/jobs.parquet");
    assert_eq!(hashes["samples/jobs.parquet"], sha256(&sealed).unwrap());
    assert!(!dir.sample_path("jobs").exists(), "the journal is gone once it is sealed");
    assert!(dir.changed_files().unwrap().is_empty() && dir.seal_hash().is_some());
    fs::write(&sealed, "x").unwrap();
    assert_eq!(dir.changed_files().unwrap(), ["samples/jobs.parquet"]);
}

/// A run directory may come from elsewhere: what its list of hashes names is not read outside of
/// it, and nothing without end is.
#[test]
fn a_list_of_hashes_leads_nowhere_else() {
    let root = tempfile::tempdir().unwrap();
    let dir = RunDir::create(root.path(), "test").unwrap();
    fs::write(root.path().join("outside"), "x").unwrap();
    fs::write(dir.path().join("inside"), "x").unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("zero")).unwrap();
    let outside = root.path().join("outside").display().to_string();
    let names = ["inside", "../outside", &outside, "samples/../../outside", "zero", "samples", ""];
    let hashes: std::collections::BTreeMap<&str, String> =
        names.iter().map(|&name| (name, sha256_of(b"x"))).collect();
    dir.write_json(HASHES_FILE, &hashes).unwrap();
    // Neither does the list say that it is whole.
    let mut expected: Vec<&str> = [&names[1..], &[HASHES_FILE]].concat();
    expected.sort_unstable();
    assert_eq!(dir.changed_files().unwrap(), expected);
}

fn measure() -> Measure {
    let mut measure = Measure::new("lateness", "Lateness", "jobs", "lateness_ns");
    measure.time_column = Some("planned_ns".into());
    measure.window_ns = Some([10, 30]);
    measure
}

#[derive(Serialize)]
struct Job {
    planned_ns: u64,
    what: &'static str,
    lateness_ns: u64,
}

#[test]
fn a_series_is_the_same_before_and_after_the_seal() {
    let root = tempfile::tempdir().unwrap();
    let dir = RunDir::create(root.path(), "test").unwrap();
    dir.write_json(RUN_FILE, &1).unwrap();
    let mut jobs = dir.samples("jobs").unwrap();
    for index in 0..5 {
        jobs.push(&Job { planned_ns: 10 * index, what: "x,y", lateness_ns: 7 * index }).unwrap();
    }
    jobs.flush().unwrap();
    let journal = dir.series(&measure()).unwrap();
    assert_eq!(journal, Series { values_ns: vec![7, 14], times_ns: vec![10, 20] });
    dir.seal().unwrap();
    assert_eq!(dir.series(&measure()).unwrap(), journal);
    // 7 i since 10 i is negative, so 0; 10 i since 7 i is 3 i.
    let since = |column: &str, from: &str| {
        dir.series(&Measure::new("x", "X", "jobs", column).since(from)).unwrap().values_ns
    };
    assert_eq!(since("lateness_ns", "planned_ns"), [0; 5]);
    assert_eq!(since("planned_ns", "lateness_ns"), [0, 3, 6, 9, 12]);
    assert_eq!(dir.columns("jobs", &["lateness_ns"]).unwrap(), [[0, 7, 14, 21, 28]]);

    let error = dir.columns("jobs", &["latness_ns"]).unwrap_err().to_string();
    assert!(error.contains("no column latness_ns") && error.contains("planned_ns"), "{error}");
    assert!(dir.columns("jobs", &["what"]).unwrap_err().to_string().contains("not integers"));
    let outside = Measure { file: "../jobs".into(), ..measure() };
    assert!(dir.series(&outside).unwrap_err().to_string().contains("plain name"));
    let sealed = dir.path().join("samples/jobs.parquet");
    let mut bytes = fs::read(&sealed).unwrap();
    for at in [4, bytes.len() / 2, bytes.len() - 9] {
        bytes[at] ^= 0x5a;
        fs::write(&sealed, &bytes).unwrap();
        // Whatever comes of it: an answer or an error, and no panic.
        let _ = dir.series(&measure());
    }
    fs::write(&sealed, "PAR1").unwrap();
    assert!(matches!(dir.series(&measure()), Err(Error::Damaged { .. })));
}

/// Found by fuzzing: the journal of a run that ended before its first sample was damaged once it
/// was sealed.
#[test]
fn a_series_without_a_sample_is_the_same_before_and_after_the_seal() {
    for text in ["", "planned_ns,lateness_ns\n", "planned_ns\n"] {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::create(root.path(), "test").unwrap();
        fs::write(dir.sample_path("jobs"), text).unwrap();
        assert_eq!(dir.series(&measure()).unwrap(), Series::default(), "{text:?}");
        dir.seal().unwrap();
        assert_eq!(dir.series(&measure()).unwrap(), Series::default(), "{text:?}");
    }
}

#[test]
fn samples_go_on_after_a_kill() {
    let root = tempfile::tempdir().unwrap();
    let dir = RunDir::create(root.path(), "test").unwrap();
    for round in 0..3u64 {
        let (mut jobs, rows) = dir.continue_samples("jobs").unwrap();
        assert_eq!(rows, 2 * round);
        for index in 0..2 {
            jobs.push(&Row { index: 2 * round + index, lateness_ns: 1 }).unwrap();
        }
        jobs.flush().unwrap();
        drop(jobs);
        let mut file = File::options().append(true).open(dir.sample_path("jobs")).unwrap();
        file.write_all(b"99,9").unwrap();
    }
    let rows = read_samples::<Row>(&dir.sample_path("jobs")).unwrap();
    assert_eq!(rows.iter().map(|r| r.index).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn runs_are_found_below_a_folder_without_those_that_a_kill_cut() {
    let root = tempfile::tempdir().unwrap();
    for name in ["b/second", "b/first", "a", "b/first.cut1"] {
        let dir = RunDir::create_at(&root.path().join(name)).unwrap();
        dir.write_json(RUN_FILE, &1).unwrap();
    }
    let found = find_runs(root.path()).unwrap();
    let names: Vec<_> =
        found.iter().map(|d| d.path().strip_prefix(root.path()).unwrap().to_owned()).collect();
    assert_eq!(names, ["a", "b/first", "b/second"].map(PathBuf::from));
    assert_eq!(find_runs(&root.path().join("a")).unwrap().len(), 1);
    assert!(find_runs(&root.path().join("a/samples")).is_err());
}

#[test]
fn two_runs_in_one_second_do_not_collide() {
    let root = tempfile::tempdir().unwrap();
    let dirs: Vec<_> = (0..4).map(|_| RunDir::create(root.path(), "same").unwrap()).collect();
    let mut paths: Vec<_> = dirs.iter().map(RunDir::path).collect();
    paths.dedup();
    assert_eq!(paths.len(), 4);
}

#[test]
fn a_run_of_a_newer_layout_is_named_whatever_else_it_says() {
    let root = tempfile::tempdir().unwrap();
    let dir = RunDir::create(root.path(), "newer").unwrap();
    let newer = RunHeader { format: FORMAT + 1, ..RunHeader::new("cyclic", "newer") };
    dir.write_json(RUN_FILE, &newer).unwrap();
    let known = dir.header().unwrap_err().to_string();
    dir.write_json(RUN_FILE, &serde_json::json!({ "format": FORMAT + 1, "device": "cyclic" })).unwrap();
    let foreign = dir.header().unwrap_err().to_string();
    assert!(known.contains("has layout 3") && known.contains("up to 2"), "{known}");
    assert_eq!(known, foreign);
    dir.write_json(RUN_FILE, &RunHeader::new("cyclic", "own")).unwrap();
    assert!(dir.header().is_ok());
}
