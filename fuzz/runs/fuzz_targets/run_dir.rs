//! Whatever lies in a run directory: an answer or an error that names the file, and never a panic.
//! Parts: header, journal, sealed samples, hashes.
#![no_main]

use std::fs;
use std::sync::Once;

use libfuzzer_sys::fuzz_target;
use parts::parts;
use takt_rundir::{Measure, RunDir};

static QUIET: Once = Once::new();

fuzz_target!(|data: &[u8]| {
    // The reader of Parquet fails in ways of its own, which are caught; libFuzzer's hook would end
    // the process before. A panic that nobody catches still does.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|info| eprintln!("{info}"))));
    let [header, journal, sealed, hashes] = parts(data);
    let folder = tempfile::tempdir().expect("a folder");
    let samples = folder.path().join("samples");
    fs::create_dir(&samples).expect("a folder");
    fs::write(folder.path().join("run.json"), header).expect("a file");
    fs::write(samples.join("jobs.csv"), journal).expect("a file");
    if !sealed.is_empty() {
        fs::write(samples.join("jobs.parquet"), sealed).expect("a file");
    }
    if !hashes.is_empty() {
        fs::write(folder.path().join("hashes.json"), hashes).expect("a file");
    }
    let dir = RunDir::open(folder.path()).expect("it has a run.json");
    let _ = dir.changed_files();
    if let Ok(header) = dir.header() {
        for measure in &header.measures {
            let _ = dir.series(measure);
        }
    }
    let measure = Measure::new("lateness", "Lateness", "jobs", "wake_ns").since("planned_ns");
    let _ = dir.series(&measure);
    fs::remove_file(samples.join("jobs.parquet")).ok();
    let before = dir.series(&measure);
    if dir.seal().is_ok() {
        assert!(dir.changed_files().expect("a seal was just made").is_empty());
        if let Ok(before) = before {
            assert_eq!(dir.series(&measure).expect("it was readable before the seal"), before);
        }
    }
});
