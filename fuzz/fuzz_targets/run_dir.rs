//! Whatever lies in a run directory: an answer or an error that names the file, and never a panic.
#![no_main]

use std::fs;

use libfuzzer_sys::{arbitrary, fuzz_target};
use takt_rundir::{Measure, RunDir};

#[derive(Debug, arbitrary::Arbitrary)]
struct Input<'a> {
    header: &'a str,
    journal: &'a [u8],
    sealed: Option<&'a [u8]>,
}

fuzz_target!(|input: Input<'_>| {
    let folder = tempfile::tempdir().expect("a folder");
    let samples = folder.path().join("samples");
    fs::create_dir(&samples).expect("a folder");
    fs::write(folder.path().join("run.json"), input.header).expect("a file");
    fs::write(samples.join("jobs.csv"), input.journal).expect("a file");
    if let Some(sealed) = input.sealed {
        fs::write(samples.join("jobs.parquet"), sealed).expect("a file");
    }
    let dir = RunDir::open(folder.path()).expect("it has a run.json");
    if let Ok(header) = dir.header() {
        for measure in &header.measures {
            let _ = dir.series(measure);
        }
    }
    let _ = dir.series(&Measure::new("lateness", "Lateness", "jobs", "wake_ns").since("planned_ns"));
    let _ = dir.seal();
});
