//! How long questions across a fleet's runs take, and how much memory: 100,000 runs in the index,
//! 1,000 runs with 60,000 samples each.
//!
//! ```text
//! cargo bench -p takt-history --features store --profile dev --bench fleet [-- FOLDER [RUNS SAMPLED]]
//! ```
//!
//! Each question is a process of its own, so that its peak of memory is its own. With FOLDER the
//! stores are made there once and stay; else they lie in memory (`/dev/shm`) and go.

#![allow(clippy::unwrap_used)]

#[path = "../tests/made/mod.rs"]
mod made;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use made::Made;
use takt_history::query::Options;
use takt_history::store::Store;

fn open(place: &Path, create: bool) -> Store {
    Store::open(place.to_str().unwrap(), create, Duration::from_secs(60)).unwrap()
}

fn make(place: &Path, runs: u64, samples: u64) {
    if place.exists() {
        return;
    }
    let began = Instant::now();
    let draft = place.with_extension("draft");
    let _ = std::fs::remove_dir_all(&draft);
    let store = open(&draft, true);
    let work = draft.with_extension("work");
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(number) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < runs) {
                    let run = Made::of_a_fleet(number, samples).make(&work);
                    store.put(&run).unwrap();
                    run.discard();
                }
            });
        }
    });
    let _ = std::fs::remove_dir_all(&work);
    std::fs::rename(&draft, place).unwrap();
    println!("made {runs} runs of {samples} samples in {:.0} s", began.elapsed().as_secs_f64());
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

const QUESTIONS: [(&str, &str, &str); 4] = [
    ("index", "by", "kernel,machine,policy"),
    // Of two large groups all pairs of runs are in the interval.
    ("index", "by", "policy"),
    ("index", "where", "robot = 'uav' and stolen < 0.01"),
    ("samples", "by", "kernel,machine,policy"),
];

fn ask(place: &Path, number: usize) {
    let (kind, what, text) = QUESTIONS[number];
    let began = Instant::now();
    let store = Arc::new(open(place, false));
    let mut options = Options { samples: kind == "samples", ..Options::default() };
    match what {
        "by" => options.by = text.split(',').map(str::to_owned).collect(),
        _ => (options.by, options.condition) = (vec!["kernel".to_owned()], Some(text.to_owned())),
    }
    let answer = takt_history::query::compare(&store, &options).unwrap();
    assert!(answer.left_out.is_empty(), "{:?}", answer.left_out);
    let rows = answer.groups.len();
    println!(
        "{:8.3} s {:6} MiB {rows:5} rows: {kind} {what}: {text}",
        began.elapsed().as_secs_f64(),
        peak_kib() >> 10
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if let [ask_of, place, number] = &arguments[..]
        && ask_of == "ask"
    {
        return ask(Path::new(place), number.parse().unwrap());
    }
    // As a test, it is only seen to work.
    let is_test = arguments.iter().any(|argument| argument == "--test");
    let (runs, with_samples, samples) = if is_test { (60, 12, 500) } else { (100_000, 1000, 60_000) };
    let memory =
        if Path::new("/dev/shm").is_dir() { Path::new("/dev/shm").to_owned() } else { std::env::temp_dir() };
    let given: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let number =
        |place: usize, usual: u64| given.get(place).and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (runs, with_samples) = (number(1, runs), number(2, with_samples));
    let goes = tempfile::TempDir::with_prefix_in("takt-fleet-", memory).unwrap();
    let folder = match given.first() {
        Some(folder) => Path::new(folder).to_owned(),
        None => goes.path().to_owned(),
    };
    let (index, measured) = (folder.join("index"), folder.join("samples"));
    make(&measured, with_samples, samples);
    // Some samples each: groups without any are distinguished without a comparison.
    make(&index, runs, 20);
    for (number, (kind, ..)) in QUESTIONS.iter().enumerate() {
        let place = if *kind == "index" { &index } else { &measured };
        let mut command = Command::new(std::env::current_exe().unwrap());
        let status = command.arg("ask").arg(place).arg(number.to_string()).status().unwrap();
        assert!(status.success());
    }
}
