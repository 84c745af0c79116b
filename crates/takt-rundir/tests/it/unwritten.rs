//! Runs that could not be written, and bytes that were changed before a run goes on.

use std::fs;
use std::path::Path;

use serde::Serialize;
use takt_rundir::{Draft, Error, RunDir};

#[derive(Serialize)]
struct Row {
    index: u64,
    time_ns: u64,
}

fn rows(file: &mut takt_rundir::SampleFile, from: u64, to: u64) {
    (from..to).for_each(|index| file.push(&Row { index, time_ns: index * 1_000_003 }).unwrap());
    file.flush().unwrap();
}

fn shelter(error: &Error) -> String {
    let text = error.to_string();
    let (_, rest) = text.split_once("it stays in memory, in ").unwrap_or_else(|| panic!("{text}"));
    rest.split(',').next().unwrap().to_owned()
}

#[test]
fn a_run_whose_folder_is_taken_away_is_whole_in_memory() {
    let root = tempfile::tempdir().unwrap();
    let dir = RunDir::create(root.path(), "test").unwrap();
    dir.keep_in_memory();
    let (mut file, _) = dir.continue_samples("jobs").unwrap();
    rows(&mut file, 0, 100);
    fs::remove_dir_all(dir.path()).unwrap();
    // The first flush sees it, and everything goes on.
    rows(&mut file, 100, 200);
    let mut late = dir.samples("begun-later").unwrap();
    rows(&mut late, 0, 3);
    rows(&mut file, 200, 250);
    let mut draft = Draft::default();
    draft.samples(&mut file).unwrap();
    draft.file("recorder.json", &[1, 2, 3]).unwrap();
    dir.checkpoint(&draft).unwrap();
    dir.write_json("run.json", &"as it stands").unwrap();
    assert_eq!(dir.columns("jobs", &["index"]).unwrap(), [(0..250).collect::<Vec<u64>>()]);
    assert_eq!(dir.columns("begun-later", &["index"]).unwrap(), [[0, 1, 2]]);
    assert_eq!(dir.read_json::<[u32; 3]>("recorder.json").unwrap(), [1, 2, 3]);
    assert_eq!(dir.read_json::<String>("run.json").unwrap(), "as it stands");
    let error = dir.seal().unwrap_err();
    assert!(matches!(&error, Error::Unwritten { rows_lost: 0, .. }), "{error}");
    for words in ["No such file", "not sealed", "--runs"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    // A run directory of its own, for whoever wants it.
    let folder = shelter(&error);
    assert!(Path::new(&folder).join("run.json").is_file() && !dir.path().exists());
    let kept = fs::read_to_string(Path::new(&folder).join("samples/jobs.csv")).unwrap();
    assert_eq!(kept.lines().count(), 251);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn without_that_wish_a_failure_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let dir = RunDir::create(root.path(), "test").unwrap();
    let (mut file, _) = dir.continue_samples("jobs").unwrap();
    file.push(&Row { index: 1, time_ns: 2 }).unwrap();
    fs::remove_dir_all(dir.path()).unwrap();
    assert!(file.flush().is_err());
    assert!(dir.checkpoint(&Draft::default()).is_err());
    assert!(dir.write_json("run.json", &1).is_err());
    assert!(dir.unwritten().is_none());
}

/// A killed run with a checkpoint of 40 rows and some that came after it.
fn killed(root: &Path) -> RunDir {
    let dir = RunDir::create(root, "test").unwrap();
    dir.write_json("run.json", &1).unwrap();
    let (mut file, _) = dir.continue_samples("jobs").unwrap();
    rows(&mut file, 0, 40);
    let mut draft = Draft::default();
    draft.samples(&mut file).unwrap();
    dir.checkpoint(&draft).unwrap();
    dir.make_durable().unwrap();
    rows(&mut file, 40, 60);
    draft.samples(&mut file).unwrap();
    dir.checkpoint(&draft).unwrap();
    rows(&mut file, 60, 65);
    dir
}

#[test]
fn a_flipped_byte_is_refused_before_the_run_goes_on_and_not_after_it() {
    let root = tempfile::tempdir().unwrap();
    let journal = killed(root.path()).path().join("samples/jobs.csv");
    let whole = fs::read(&journal).unwrap();
    let dir = RunDir::open(journal.parent().unwrap().parent().unwrap()).unwrap();
    let counted = whole.split_inclusive(|byte| *byte == b'\n').take(61).map(<[u8]>::len).sum::<usize>();
    for at in 0..counted {
        for bit in [0, 3, 6] {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << bit;
            fs::write(&journal, &flipped).unwrap();
            let error = dir.resume().expect_err(&format!("byte {at}, bit {bit}")).to_string();
            assert!(
                error.contains("somebody changed them") && error.contains("nothing was changed"),
                "{error}"
            );
            assert_eq!(fs::read(&journal).unwrap(), flipped, "byte {at}");
        }
    }
    // Behind the checkpoint nothing counts.
    let mut later = whole.clone();
    *later.last_mut().unwrap() = b'x';
    fs::write(&journal, &later).unwrap();
    assert_eq!(dir.resume().unwrap().rows["jobs"], 60);
    // And it goes on from there, summed as if it had never been killed.
    let (mut file, there) = dir.continue_samples("jobs").unwrap();
    assert_eq!(there, 60);
    rows(&mut file, 60, 70);
    let mut draft = Draft::default();
    draft.samples(&mut file).unwrap();
    dir.checkpoint(&draft).unwrap();
    drop(file);
    let mut again = fs::read(&journal).unwrap();
    assert_eq!(again.iter().filter(|byte| **byte == b'\n').count(), 71);
    again[5] ^= 1;
    fs::write(&journal, &again).unwrap();
    assert!(dir.resume().is_err());
    again[5] ^= 1;
    fs::write(&journal, &again).unwrap();
    assert_eq!(dir.resume().unwrap().rows["jobs"], 70);
}

#[test]
fn blocks_that_never_reached_the_disk_cost_what_came_after_the_durable_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let dir = killed(root.path());
    let journal = dir.path().join("samples/jobs.csv");
    let mut bytes = fs::read(&journal).unwrap();
    let durable = bytes.split_inclusive(|byte| *byte == b'\n').take(41).map(<[u8]>::len).sum::<usize>();
    bytes[durable + 10..].fill(0);
    fs::write(&journal, &bytes).unwrap();
    assert_eq!(dir.resume().unwrap().rows["jobs"], 40);
}

#[test]
fn a_flipped_byte_in_a_checkpoint_is_refused_and_costs_no_rows() {
    let root = tempfile::tempdir().unwrap();
    let dir = killed(root.path());
    let path = dir.path().join("checkpoint.json");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << bit;
            fs::write(&path, &flipped).unwrap();
            let error = dir.resume().expect_err(&format!("byte {at}, bit {bit}")).to_string();
            let changed = error.contains("somebody changed it") || error.contains("or it was changed");
            assert!(changed && error.contains("nothing was changed"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), flipped, "byte {at}");
        }
    }
    // Nor are its figures shown as the run's.
    let mut draft = Draft::default();
    draft.file("recorder.json", &[1, 2, 3]).unwrap();
    dir.checkpoint(&draft).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("[1,2,3]", "[1,2,7]")).unwrap();
    assert!(dir.read_json::<[u32; 3]>("recorder.json").is_err());
    fs::write(&path, text).unwrap();
    assert_eq!(dir.read_json::<[u32; 3]>("recorder.json").unwrap(), [1, 2, 3]);
    // A power failure leaves less, or zeros: the older one goes on.
    for torn in [&whole[..0], &whole[..whole.len() / 2], &[&whole[..9], &[0; 40]].concat()] {
        let root = tempfile::tempdir().unwrap();
        let dir = killed(root.path());
        fs::write(dir.path().join("checkpoint.json"), torn).unwrap();
        assert_eq!(dir.resume().unwrap().rows["jobs"], 40);
    }
    // Of a takt that wrote no sums.
    let older = br#"{"elapsed_ns":0,"resumed":0,"rows":{"jobs":60},"files":{}}"#;
    fs::write(&path, older).unwrap();
    assert_eq!(dir.resume().unwrap().rows["jobs"], 60);
}

#[test]
fn a_byte_of_a_journal_that_became_zero_is_no_power_failure() {
    let root = tempfile::tempdir().unwrap();
    let dir = killed(root.path());
    let journal = dir.path().join("samples/jobs.csv");
    let mut bytes = fs::read(&journal).unwrap();
    bytes[200] = 0;
    fs::write(&journal, &bytes).unwrap();
    let error = dir.resume().unwrap_err().to_string();
    assert!(error.contains("somebody changed them"), "{error}");
}

/// Mounts a file system of `bytes`; `None` where none may be mounted.
fn small_disk(bytes: &str) -> Option<Disk> {
    let folder = tempfile::tempdir().unwrap();
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "none"]).arg(folder.path());
    let output = mount.output().unwrap();
    if !output.status.success() {
        takt_witness::skip!("no file system can be mounted here: {output:?}");
        return None;
    }
    Some(Disk(folder))
}

struct Disk(tempfile::TempDir);

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_disk_that_fills_up_loses_no_row_of_any_file() {
    let Some(disk) = small_disk("64k") else { return };
    let dir = RunDir::create(disk.0.path(), "test").unwrap();
    dir.keep_in_memory();
    let mut file = dir.samples("jobs").unwrap();
    let mut numbers = dir.numbers("wakes", &["index", "time_ns"]).unwrap();
    for index in 0..40_000 {
        file.push(&Row { index, time_ns: index * 1_000_003 }).unwrap();
        numbers.push(&[index, index * 7]).unwrap();
        if index % 5_000 == 4_999 {
            file.flush().unwrap();
            numbers.flush().unwrap();
        }
    }
    dir.rename_samples("wakes", "wakes-of-control").unwrap();
    let all: Vec<u64> = (0..40_000).collect();
    assert_eq!(dir.columns("jobs", &["index"]).unwrap(), std::slice::from_ref(&all));
    assert_eq!(dir.columns("wakes-of-control", &["index"]).unwrap(), [all]);
    let error = dir.seal().unwrap_err();
    assert!(matches!(&error, Error::Unwritten { rows_lost: 0, .. }), "{error}");
    fs::remove_dir_all(shelter(&error)).unwrap();
}

#[test]
fn a_run_begins_on_a_full_disk_for_whoever_wants_it_and_in_no_other_case() {
    let Some(disk) = small_disk("64k,nr_inodes=2") else { return };
    fs::write(disk.0.path().join("the last inode"), "").unwrap();
    let refused = || RunDir::create(disk.0.path(), "test").unwrap_err();
    assert!(refused().to_string().contains("No space left"));
    let dir = RunDir::in_memory(refused()).unwrap();
    let mut file = dir.samples("jobs").unwrap();
    rows(&mut file, 0, 10);
    assert_eq!(dir.columns("jobs", &["index"]).unwrap(), [(0..10).collect::<Vec<u64>>()]);
    let error = dir.seal().unwrap_err();
    assert_eq!(Path::new(&shelter(&error)), dir.path());
    assert!(error.to_string().contains("No space left"), "{error}");
    fs::remove_dir_all(dir.path()).unwrap();
    // What somebody named wrongly is for them to name.
    let there = tempfile::tempdir().unwrap();
    let wrong = RunDir::create_at(there.path()).unwrap_err();
    assert!(RunDir::in_memory(wrong).unwrap_err().to_string().contains("already exists"));
    let wrong = RunDir::create_at(Path::new("/proc/no-folder/run")).unwrap_err();
    assert!(RunDir::in_memory(wrong).is_err());
}
