//! What a killed process leaves behind: nothing, by the word of `ip link` and of the directory of
//! shared memory.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
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

/// Files of Takt's in shared memory: others make and remove theirs meanwhile.
fn shared_memory() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("takt")).collect()
}

/// Not a test: the process that is killed.
#[test]
fn the_victims_side() {
    if std::env::var_os(VICTIM).is_none() {
        return;
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
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_victims_side", "--nocapture"]).env(VICTIM, "1");
    let mut victim = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let message = lines.find_map(|line| line.unwrap().strip_prefix("victim: ").map(str::to_owned)).unwrap();
    let during = links();
    victim.kill().unwrap();
    victim.wait().unwrap();
    let Some(master) = message.strip_prefix("has ") else {
        eprintln!("SKIPPED: {message}");
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
    assert_eq!(shared_memory(), shared_before);
}
