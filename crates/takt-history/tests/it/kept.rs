//! A store in a folder: whole runs only, checked, whoever is killed or writes at the same time.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use takt_history::store::{Entry, Store, StoreError, write_index};
use takt_rundir::{HASHES_FILE, RUN_FILE, RunDir, RunHeader};

const PATIENCE: Duration = Duration::from_secs(60);

fn run(root: &Path, label: &str, bytes: usize) -> RunDir {
    let dir = RunDir::create(root, label).unwrap();
    dir.write_json(RUN_FILE, &RunHeader::new("cyclic", label)).unwrap();
    let noise: Vec<u8> = (0..bytes).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(dir.path().join("summary.json"), noise).unwrap();
    dir.seal().unwrap();
    dir
}

fn open(at: &Path) -> Store {
    Store::open(at.to_str().unwrap(), true, PATIENCE).unwrap()
}

/// Files below `folder` whose names begin with `start`.
fn files(folder: &Path, start: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, start));
        } else if entry.file_name().to_string_lossy().starts_with(start) {
            found.push(path);
        }
    }
    found
}

#[test]
fn what_is_stored_comes_back_the_same() {
    let root = tempfile::tempdir().unwrap();
    let (runs, at) = (root.path().join("runs"), root.path().join("store"));
    // More than a part.
    let (small, large) = (run(&runs, "small", 100), run(&runs, "large", 40 << 20));
    let store = open(&at);
    for dir in [&small, &large] {
        let stored = store.put(dir).unwrap();
        assert!(stored.new && stored.sent_bytes > 100);
        assert_eq!(stored.run, dir.seal_hash().unwrap());
        let again = store.put(dir).unwrap();
        assert_eq!((again.new, again.sent_bytes), (false, 0));
    }
    let all = store.list().unwrap();
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|row| row.robot == "cyclic" && row.files >= 2 && row.bytes > 100), "{all:?}");
    assert_eq!(store.verify(&[], &mut |_| ()).unwrap(), []);
    let entry = store.find(&large.seal_hash().unwrap()[..9]).unwrap();
    let got = store.get(&entry, &root.path().join("got")).unwrap();
    assert_eq!(got.file_name(), large.path().file_name());
    let back = RunDir::open(&got).unwrap();
    assert_eq!((back.seal_hash(), back.changed_files().unwrap().len()), (large.seal_hash(), 0));
    // A name that leads out of the folder is the index's word alone.
    let out = Entry { name: "../out".to_owned(), ..entry.clone() };
    assert_eq!(
        store.get(&out, &root.path().join("inside")).unwrap(),
        root.path().join("inside").join(&out.run)
    );
    assert!(!root.path().join("out").exists());
    // Once more is no second copy; beside another run of that name is refused.
    assert_eq!(store.get(&entry, &root.path().join("got")).unwrap(), got);
    fs::write(got.join(HASHES_FILE), "{}").unwrap();
    assert!(matches!(store.get(&entry, &root.path().join("got")), Err(StoreError::Run { .. })));
    assert!(matches!(store.find("ff00ff00"), Err(StoreError::Which { found: 0, .. })));
    assert!(matches!(store.find("2"), Err(StoreError::Which { found: 2, .. })));
}

#[test]
fn runs_that_did_not_end_or_were_changed_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root.path().join("store"));
    let dir = RunDir::create(root.path(), "open").unwrap();
    dir.write_json(RUN_FILE, &RunHeader::new("cyclic", "open")).unwrap();
    let error = store.put(&dir).unwrap_err().to_string();
    assert!(error.contains("not sealed"), "{error}");
    let changed = run(root.path(), "changed", 10);
    fs::write(changed.path().join("summary.json"), "other").unwrap();
    let error = store.put(&changed).unwrap_err().to_string();
    assert!(error.contains("summary.json"), "{error}");
    let newer = RunDir::create(root.path(), "newer").unwrap();
    let header = RunHeader { format: 99, ..RunHeader::new("cyclic", "newer") };
    newer.write_json(RUN_FILE, &header).unwrap();
    newer.seal().unwrap();
    let error = store.put(&newer).unwrap_err().to_string();
    assert!(error.contains("layout 99") && error.contains("up to 2"), "{error}");
    assert!(store.list().unwrap().is_empty());
}

#[test]
fn another_version_and_what_is_no_store_are_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().to_str().unwrap();
    fs::write(root.path().join("thesis.txt"), "words").unwrap();
    let error = Store::open(at, true, PATIENCE).unwrap_err().to_string();
    assert!(error.contains("neither empty nor a store"), "{error}");
    assert!(Store::open(at, false, PATIENCE).unwrap_err().to_string().contains("is not a store"));
    fs::write(root.path().join("takt-store.json"), "{ \"version\": 7 }").unwrap();
    let error = Store::open(at, true, PATIENCE).unwrap_err();
    assert!(matches!(error, StoreError::Version { found: 7, known: 1, .. }), "{error}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2);
}

#[test]
fn half_of_an_upload_is_invisible_and_the_next_try_completes_it() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().join("store");
    let store = open(&at);
    let dir = run(&root.path().join("runs"), "half", 1000);
    let id = store.put(&dir).unwrap().run;
    // Everything but the seal, as a kill before it leaves it.
    let seal = at.join(format!("runs/{id}.json"));
    let text = fs::read(&seal).unwrap();
    fs::remove_file(&seal).unwrap();
    assert!(store.list().unwrap().is_empty() && matches!(store.find(&id), Err(StoreError::Which { .. })));
    // Objects are younger than a day: an upload may be under way.
    assert_eq!(store.prune(&[], false).unwrap().objects, 0);
    assert!(store.put(&dir).unwrap().new);
    assert_eq!(fs::read(&seal).unwrap(), text);
    // Old ones are sent again: who takes away what no run names must not find them.
    fs::remove_file(&seal).unwrap();
    let old = SystemTime::now() - Duration::from_secs(13 * 3600);
    for file in files(&at.join("objects"), "") {
        fs::File::options().write(true).open(file).unwrap().set_modified(old).unwrap();
    }
    assert!(store.put(&dir).unwrap().sent_bytes > 1000);
    let is_young = |file: &PathBuf| fs::metadata(file).unwrap().modified().unwrap() > old;
    assert!(files(&at.join("objects"), "").iter().all(is_young));
    // Without its row: it is looked up, and is in the index from then on.
    files(&at.join("index"), "").iter().for_each(|file| fs::remove_file(file).unwrap());
    assert_eq!(store.list().unwrap()[0].run, id);
    assert_eq!(files(&at.join("index"), "").len(), 1);
    // A row that is torn is passed over.
    fs::write(at.join("index/run-torn.parquet"), "torn").unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
}

#[test]
fn damage_is_named_and_never_handed_out() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().join("store");
    let store = open(&at);
    let dir = run(&root.path().join("runs"), "damaged", 1000);
    let id = store.put(&dir).unwrap().run;
    let entry = store.find(&id).unwrap();
    let object =
        files(&at.join("objects"), "").into_iter().find(|file| fs::metadata(file).unwrap().len() == 1000);
    let object = object.unwrap();
    let good = fs::read(&object).unwrap();
    let mut bad = good.clone();
    bad[500] ^= 1;
    fs::write(&object, &bad).unwrap();
    let damages = store.verify(&[], &mut |_| ()).unwrap();
    assert!(damages.len() == 1 && damages[0].why.starts_with("summary.json"), "{damages:?}");
    let to = root.path().join("got");
    assert!(matches!(store.get(&entry, &to), Err(StoreError::Damaged { .. })));
    assert!(files(&to, "").is_empty(), "nothing of it is left");
    fs::remove_file(&object).unwrap();
    assert!(store.verify(&[], &mut |_| ()).unwrap()[0].why.contains("is missing"));
    // It is listed, by its hash where the index is gone as well.
    for index in files(&at.join("index"), "") {
        fs::remove_file(index).unwrap();
    }
    assert_eq!(store.list().unwrap().iter().map(|row| row.run.as_str()).collect::<Vec<_>>(), [id.as_str()]);
    assert!(matches!(store.find(""), Err(StoreError::Which { .. })));
    // Whoever has the run brings what is missing.
    assert_eq!(store.put(&dir).unwrap().sent_bytes, 1000);
    assert!(store.verify(&[], &mut |_| ()).unwrap().is_empty());
    let seal = at.join(format!("runs/{id}.json"));
    fs::write(&seal, fs::read_to_string(&seal).unwrap() + " ").unwrap();
    assert!(store.verify(&[], &mut |_| ()).unwrap()[0].why.contains(&id));
    let other = run(&root.path().join("runs"), "other", 2000);
    let other = store.put(&other).unwrap().run;
    // Not even what was named goes: it could not be brought back.
    let error = store.prune(std::slice::from_ref(&other), false).unwrap_err().to_string();
    assert!(error.contains(&id) && error.contains("nothing was removed"), "{error}");
    assert!(at.join(format!("runs/{other}.json")).is_file());
    assert_eq!(store.prune(&[other.clone(), id], false).unwrap().runs, 2);
}

#[test]
fn whoever_has_the_run_mends_what_is_damaged() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().join("store");
    let store = open(&at);
    let dir = run(&root.path().join("runs"), "damaged", 1000);
    let id = store.put(&dir).unwrap().run;
    let seal = at.join(format!("runs/{id}.json"));
    let object =
        files(&at.join("objects"), "").into_iter().find(|file| fs::metadata(file).unwrap().len() == 1000);
    let object = object.unwrap();
    let good = fs::read(&object).unwrap();
    let mut flipped = good.clone();
    flipped[500] ^= 1;
    let kept_seal = fs::read(&seal).unwrap();
    for (file, bad, sent) in [
        (&object, &good[..10], 1000),
        (&object, &flipped, 1000),
        (&object, b"", 1000),
        (&seal, &kept_seal[..50], 0),
        (&seal, b"", 0),
    ] {
        fs::write(file, bad).unwrap();
        assert_eq!(store.verify(&[], &mut |_| ()).unwrap().len(), 1);
        let again = store.put(&dir).unwrap();
        assert_eq!((again.new, again.mended, again.sent_bytes), (false, 1, sent), "{}", file.display());
        assert_eq!(store.verify(&[], &mut |_| ()).unwrap(), []);
        assert_eq!(store.put(&dir).unwrap().mended, 0);
    }
    assert_eq!((fs::read(&object).unwrap(), fs::read(&seal).unwrap()), (good, kept_seal));
    // An object without a run is believed no more than one with.
    fs::remove_file(&seal).unwrap();
    fs::write(&object, "torn").unwrap();
    let again = store.put(&dir).unwrap();
    assert_eq!((again.new, again.mended, again.sent_bytes), (true, 1, 1000));
    assert_eq!(store.verify(&[], &mut |_| ()).unwrap(), []);
}

/// A seal as a hostile uploader writes it: its own hash is right, and so are those of its files.
fn seal_of(at: &Path, files: &[(&str, &[u8])]) -> String {
    let mut entries = std::collections::BTreeMap::new();
    for (name, bytes) in files {
        let hash = takt_rundir::sha256_of(bytes);
        let folder = at.join("objects").join(&hash[..2]);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(&hash), bytes).unwrap();
        entries.insert((*name).to_owned(), hash);
    }
    let seal = serde_json::to_vec(&entries).unwrap();
    let run = takt_rundir::sha256_of(&seal);
    fs::write(at.join(format!("runs/{run}.json")), seal).unwrap();
    run
}

#[test]
fn one_run_that_no_directory_can_have_is_alone_damaged() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().join("store");
    let store = open(&at);
    let dir = run(&root.path().join("runs"), "good", 1000);
    let good = store.put(&dir).unwrap().run;
    let header = fs::read(dir.path().join(RUN_FILE)).unwrap();
    let long = "n".repeat(300);
    for (number, more) in [
        &[("a", &b"1"[..]), ("a/b", b"2")][..],
        &[("x\0y", b"1")],
        &[(&long, b"1")],
        &[("../../evil", b"1")],
        &[("hashes.json", b"{}")],
    ]
    .into_iter()
    .enumerate()
    {
        let bad = seal_of(&at, &[&[(RUN_FILE, &header[..])], more].concat());
        let all = store.list().unwrap();
        let find = |run: &String| all.iter().find(|row| row.run == *run).unwrap();
        assert_eq!((all.len(), find(&good).robot.as_str(), find(&bad).robot.as_str()), (2, "cyclic", ""));
        let to = root.path().join(format!("got{number}"));
        assert!(store.get(find(&good), &to).is_ok());
        assert!(matches!(store.get(find(&bad), &to), Err(StoreError::Damaged { .. })), "{more:?}");
        let damages = store.verify(&[], &mut |_| ()).unwrap();
        assert!(damages.len() == 1 && damages[0].run == bad, "{damages:?}");
        assert_eq!(store.prune(&[bad], false).unwrap().runs, 1);
        assert_eq!(store.list().unwrap().len(), 1);
    }
    assert!(!root.path().join("evil").exists());
    // What cannot be read at all is no different.
    for (name, file) in [(RUN_FILE, "objects"), ("seal", "runs")] {
        let bad = seal_of(&at, &[(RUN_FILE, &header), (name, b"other")]);
        let hash = takt_rundir::sha256_of(b"other");
        let file = match file {
            "runs" => at.join(format!("runs/{bad}.json")),
            _ => at.join(format!("objects/{}/{hash}", &hash[..2])),
        };
        fs::remove_file(&file).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        assert_eq!(store.list().unwrap().len(), 2, "{name}");
        let damages = store.verify(&[], &mut |_| ()).unwrap();
        assert!(damages.len() == 1 && damages[0].why.contains("a FIFO"), "{damages:?}");
        fs::remove_file(&file).unwrap();
        let _ = fs::remove_file(at.join(format!("runs/{bad}.json")));
    }
}

#[test]
fn what_no_run_names_goes_once_it_is_old() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().join("store");
    let store = open(&at);
    let runs = root.path().join("runs");
    let ids: Vec<String> =
        (0..3).map(|n| store.put(&run(&runs, &format!("run{n}"), 100 + n)).unwrap().run).collect();
    let before = files(&at.join("objects"), "").len();
    // What a write that was cut off has left.
    fs::write(at.join("objects/torn#1"), "half").unwrap();
    let old = SystemTime::now() - Duration::from_secs(48 * 3600);
    for file in files(&at, "") {
        fs::File::options().write(true).open(file).unwrap().set_modified(old).unwrap();
    }
    let gone = [ids[0].clone()];
    let would = store.prune(&gone, true).unwrap();
    assert_eq!(store.list().unwrap().len(), 3);
    let did = store.prune(&gone, false).unwrap();
    assert_eq!((did, did.runs), (would, 1));
    assert!(did.objects >= 2 && files(&at.join("objects"), "").len() < before);
    assert_eq!(store.list().unwrap().len(), 2);
    assert!(store.verify(&[], &mut |_| ()).unwrap().is_empty());
    assert_eq!(store.prune(&[], false).unwrap().objects, 0);
}

#[test]
fn many_that_write_at_once_end_with_all_runs() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().join("store");
    open(&at);
    let shared = run(&root.path().join("runs"), "shared", 5000);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (at, shared, runs) = (&at, &shared, root.path().join(format!("runs{writer}")));
            scope.spawn(move || {
                let store = open(at);
                for n in 0..10 {
                    store.put(shared).unwrap();
                    store.put(&run(&runs, &format!("w{writer}n{n}"), 200 + n)).unwrap();
                    // Puts the index together while others add to it.
                    store.list().unwrap();
                }
            });
        }
    });
    let store = open(&at);
    assert_eq!(store.list().unwrap().len(), 41);
    assert!(store.verify(&[], &mut |_| ()).unwrap().is_empty());
}

/// Nobody writes to the pipe that lies where an object should be.
#[test]
fn a_pipe_in_place_of_an_object_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().join("store");
    let dir = run(&root.path().join("runs"), "slow", 1000);
    let id = open(&at).put(&dir).unwrap().run;
    let object = files(&at.join("objects"), "").pop().unwrap();
    fs::remove_file(&object).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&object).status().unwrap().success());
    let entry = open(&at).find(&id).unwrap();
    let store = Store::open(at.to_str().unwrap(), false, Duration::from_secs(2)).unwrap();
    let to = root.path().join("got");
    let error = store.get(&entry, &to).unwrap_err();
    assert!(error.to_string().contains("a FIFO"), "{error}");
    assert!(files(&to, "").is_empty(), "nothing of it is left");
    assert!(!matches!(store.verify(&[], &mut |_| ()), Ok(wrong) if wrong.is_empty()));
}

#[test]
fn the_index_says_what_was_measured_and_a_changed_file_of_it_is_no_index() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().join("store");
    let dir = RunDir::create(&root.path().join("runs"), "measured").unwrap();
    let mut header = RunHeader::new("cyclic", "measured");
    header.measures = vec![takt_rundir::Measure::new("age", "Age", "ages", "age_ns").deadline_ns(90)];
    dir.write_json(RUN_FILE, &header).unwrap();
    #[derive(serde::Serialize)]
    struct Row {
        age_ns: u64,
    }
    let (mut rows, _) = dir.continue_samples("ages").unwrap();
    (1..=100).for_each(|age_ns| rows.push(&Row { age_ns }).unwrap());
    drop(rows);
    dir.seal().unwrap();
    let store = open(&at);
    store.put(&dir).unwrap();
    let before = store.list().unwrap();
    let age = &before[0].measures[0];
    assert_eq!((age.measure.as_str(), age.samples, age.misses, age.deadline_ns), ("age", 100, 10, 90));
    assert_eq!((age.min_ns, age.max_ns, age.mean_ns), (1.0, 100.0, 50.5));
    assert_eq!(store.verify(&[], &mut |_| ()).unwrap(), []);
    // A row that is not the run's, in a file that is what its name says.
    let run = before[0].run.clone();
    for change in [
        (|row| row.measures[0].p99_ns *= 100.0) as fn(&mut Entry),
        |row| row.measures[0].samples += 1,
        |row| row.measures.clear(),
        |row| row.kernel = "6.0\u{1b}[2J".repeat(1000),
        |row| row.stolen = 0.5,
    ] {
        let mut row = before[0].clone();
        change(&mut row);
        let bytes = write_index(&[row]).unwrap();
        let forged = at.join(format!("index/{}.parquet", takt_rundir::sha256_of(&bytes)));
        fs::write(&forged, bytes).unwrap();
        let damages = store.verify(&[], &mut |_| ()).unwrap();
        assert!(damages.len() == 1 && damages[0].run == run, "{damages:?}");
        let why = &damages[0].why;
        assert!(why.starts_with("the index says ") && !why.contains('\u{1b}'), "{why}");
        assert!(why.len() < 5000, "{}", why.len());
        fs::remove_file(forged).unwrap();
    }
    assert_eq!(store.verify(&[], &mut |_| ()).unwrap(), []);
    // Its figures are looked up in the run where the index cannot be believed.
    let file = files(&at.join("index"), "").pop().unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    let after = store.list().unwrap();
    assert_eq!(after[0].measures, before[0].measures);
    assert!(!file.exists() && files(&at.join("index"), "").len() == 1);
}
