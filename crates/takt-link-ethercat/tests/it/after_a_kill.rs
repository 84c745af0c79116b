//! Remains of a killed process: none, according to `ip link` and the directory of shared memory.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::patient_humanoid;
use takt_link_ethercat::segment::Segment;
use takt_link_ethercat::segment::veth::{VethPair, serve};

/// Set in the process that is killed.
const VICTIM: &str = "TAKT_TEST_VICTIM";

fn links() -> String {
    let output = Command::new("ip").args(["-o", "link"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Files in shared memory with Takt's name: others make and remove theirs meanwhile.
fn shared_memory() -> BTreeSet<PathBuf> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().contains("takt")).collect()
}

/// Files in shared memory that a process has open or mapped, whatever they are called.
fn held(process: &Path) -> BTreeSet<PathBuf> {
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let open = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    let mapped = maps.lines().filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])));
    open.chain(mapped).filter(|path| path.starts_with("/dev/shm")).collect()
}

/// Those of `left` that are still there and that no living process has open or mapped: what others
/// make and remove meanwhile is held by them, and a process that was killed holds nothing.
fn nobodys(left: BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let of_others: BTreeSet<PathBuf> = processes.flat_map(|process| held(&process)).collect();
    let is_held = |path: &PathBuf| of_others.iter().any(|other| other.starts_with(path));
    left.into_iter().filter(|path| path.exists() && !is_held(path)).collect()
}

/// Starts the victim, reads what it says of itself, and which files in shared memory it holds.
fn victim(what: &str) -> (Child, String, BTreeSet<PathBuf>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "after_a_kill::the_victims_side", "--nocapture"]).env(VICTIM, what);
    let mut victim = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let message = lines.find_map(|line| line.unwrap().strip_prefix("victim: ").map(str::to_owned)).unwrap();
    let held = held(&Path::new("/proc").join(victim.id().to_string()));
    (victim, message, held)
}

/// Not a test: the process that is killed.
#[test]
fn the_victims_side() {
    let Some(what) = std::env::var_os(VICTIM) else { return };
    if let Some(planted) = what.to_str().filter(|what| what.starts_with('/')) {
        let _held = fs::File::create(planted).unwrap();
        println!("\nvictim: planted");
        return std::thread::sleep(Duration::from_secs(60));
    }
    let pair = match VethPair::unique() {
        Ok(pair) if pair.dies_with_the_process() => pair,
        Ok(_) => return println!("\nvictim: no network namespace can be made here"),
        Err(error) => return println!("\nvictim: {error}"),
    };
    let segment = Segment::new(&patient_humanoid()).unwrap();
    let _server = serve(pair.segment(), segment, "segment", &Default::default()).unwrap();
    println!("\nvictim: has {}", pair.master());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn nothing_stays_after_a_kill() {
    let shared_before = shared_memory();
    let (mut victim, message, held) = victim("segment");
    let during = links();
    victim.kill().unwrap();
    victim.wait().unwrap();
    let Some(master) = message.strip_prefix("has ") else {
        takt_witness::skip!("{message}");
        return;
    };
    assert!(during.contains(master), "{during}");
    assert!(!during.contains(&master.replace("tkm", "tks")), "the segment's end is out of sight: {during}");
    // The kernel takes a namespace down in a worker of its own.
    let end = Instant::now() + Duration::from_secs(30);
    while links().contains(master) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!links().contains(master), "{}", links());
    let left = |path: &&PathBuf| path.exists();
    assert_eq!(held.iter().find(left), None, "left in shared memory");
    // Others may be about to open what they have just made, or to remove what they have closed.
    let mut left = shared_memory().difference(&shared_before).cloned().collect();
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        left = nobodys(left);
        if left.is_empty() || Instant::now() > end {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(left, BTreeSet::new(), "left in shared memory");
}

/// Remains like those that the test above looks for are found.
#[test]
fn what_stays_in_shared_memory_is_seen() {
    let planted = PathBuf::from(format!("/dev/shm/planted-{}", std::process::id()));
    let (mut victim, message, held) = victim(planted.to_str().unwrap());
    victim.kill().unwrap();
    victim.wait().unwrap();
    let there = planted.exists();
    let left = nobodys(held.clone());
    let _ = fs::remove_file(&planted);
    assert_eq!((message.as_str(), there), ("planted", true));
    assert!(held.contains(&planted) && left.contains(&planted), "{held:?} {left:?}");
}
