//! Neighbours that want to stop the reader, or to end it: names planted where sessions are made,
//! and files of observed processes that are cut while they are read.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use takt_ros::jobs::JobFile;
use takt_ros::preload::{Probe, ProbeOptions, ProbeSession};
use takt_ros::{Event, Source};

/// A process number that nobody has: the greatest that Linux gives is 4,194,304.
const NOBODY: u32 = 4_194_305;

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// What somebody may plant at a name: one of each kind.
fn plant(kind: &str, at: &Path, elsewhere: &Path) {
    match kind {
        "fifo" => fifo(at),
        "directory" => fs::create_dir(at).unwrap(),
        "link to a device" => symlink("/dev/zero", at).unwrap(),
        "link to a file" => symlink(elsewhere, at).unwrap(),
        "link to nothing" => symlink("nowhere", at).unwrap(),
        "sparse file" => File::create(at).unwrap().set_len(1 << 40).unwrap(),
        "socket" => drop(std::os::unix::net::UnixListener::bind(at).unwrap()),
        other => panic!("{other}"),
    }
}

const KINDS: [&str; 7] =
    ["fifo", "directory", "link to a device", "link to a file", "link to nothing", "sparse file", "socket"];

#[test]
fn a_name_that_was_planted_holds_no_session_up() {
    for kind in KINDS {
        let base = tempfile::tempdir().unwrap();
        let precious = base.path().join("precious");
        fs::write(&precious, "keep").unwrap();
        // As a session that was left, with the lock of that kind; and the session itself.
        let left = base.path().join(format!("takt-probe-{NOBODY}-0"));
        fs::create_dir(&left).unwrap();
        plant(kind, &left.join("session.lock"), &precious);
        plant(kind, &base.path().join(format!("takt-probe-{NOBODY}-1")), &precious);
        let folder = base.path().join("folder");
        fs::create_dir(&folder).unwrap();
        File::create(folder.join("session.lock")).unwrap();
        symlink(&folder, base.path().join(format!("takt-probe-{NOBODY}-2"))).unwrap();
        let options = ProbeOptions { base: Some(base.path().to_owned()), ..ProbeOptions::default() };
        let session = ProbeSession::create(&options).unwrap();
        assert!(session.directory().join("session.lock").is_file(), "{kind}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "keep", "{kind}");
        assert!(folder.join("session.lock").exists(), "{kind}: what a link leads to was removed");
        // Taking such a session up is refused, and not waited for.
        let attached = ProbeSession::attach(&left);
        assert!(attached.is_err(), "{kind}");
    }
}

#[test]
fn options_that_are_no_file_are_refused() {
    for kind in KINDS {
        let base = tempfile::tempdir().unwrap();
        File::create(base.path().join("session.lock")).unwrap();
        let precious = base.path().join("precious");
        fs::write(&precious, "{}").unwrap();
        plant(kind, &base.path().join("options.json"), &precious);
        let attached = ProbeSession::attach(base.path());
        // A link to a good file is one's own affair.
        assert_eq!(attached.is_ok(), kind == "link to a file", "{kind}: {attached:?}");
        if let Ok(session) = attached {
            // Its directory goes with it, and is gone already for the temporary folder.
            drop(session);
            fs::create_dir_all(base.path()).unwrap();
        }
    }
}

#[test]
fn what_observed_processes_plant_breaks_nothing_but_their_own_files() {
    let session = ProbeSession::create(&ProbeOptions::default()).unwrap();
    let precious = session.directory().join("precious");
    fs::write(&precious, vec![0; 1 << 16]).unwrap();
    for (number, kind) in KINDS.iter().enumerate() {
        plant(kind, &session.directory().join(format!("{number}-0.ring")), &precious);
    }
    let mut jobs = JobFile::create(session.directory()).unwrap();
    let mut task = jobs.task("a", std::process::id()).unwrap();
    let mut probe = session.probe().unwrap();
    task.job(&job(1));
    assert!(read(&mut probe).iter().any(|event| event.pid == std::process::id()));
    let broken = probe.take_broken();
    // A sparse file has no magic number: its maker is given time to finish it.
    let refused = |number: usize| broken.iter().any(|it| it.label.starts_with(&format!("{number}-0")));
    for (number, kind) in KINDS.iter().enumerate() {
        assert_eq!(refused(number), *kind != "sparse file", "{kind}: {broken:?}");
    }
}

fn job(at_ns: u64) -> takt_ros::jobs::Job {
    takt_ros::jobs::Job { released_ns: at_ns, started_ns: at_ns, ended_ns: at_ns + 1, used_ns: 1 }
}

fn read(probe: &mut Probe) -> Vec<Event> {
    let mut events = Vec::new();
    probe.poll(&mut |event| events.push(event)).unwrap();
    events
}

fn ring_of(session: &ProbeSession) -> PathBuf {
    let mut files = fs::read_dir(session.directory()).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|end| end == "ring")).unwrap()
}

/// A process that cuts its own file loses its own observation, and ends nobody: neither the reader
/// nor itself.
#[test]
fn a_file_that_is_cut_while_it_is_read_ends_nobody() {
    for round in 0..40_u64 {
        let session = ProbeSession::create(&ProbeOptions::default()).unwrap();
        let mut jobs = JobFile::create(session.directory()).unwrap();
        let mut task = jobs.task("a", std::process::id()).unwrap();
        let mut probe = session.probe().unwrap();
        task.job(&job(1));
        read(&mut probe);
        let file = OpenOptions::new().read(true).write(true).open(ring_of(&session)).unwrap();
        let whole = file.metadata().unwrap().len();
        let done = Arc::new(AtomicBool::new(false));
        let cutter = {
            let done = Arc::clone(&done);
            thread::spawn(move || {
                // Grown again at once, so that no look at its size sees it.
                while !done.load(Ordering::Relaxed) {
                    file.set_len(if round % 2 == 0 { 0 } else { 4096 }).unwrap();
                    file.set_len(whole).unwrap();
                }
            })
        };
        for at in 2..400 {
            task.job(&job(at));
            read(&mut probe);
        }
        done.store(true, Ordering::Relaxed);
        cutter.join().unwrap();
    }
}

#[test]
fn a_file_that_was_cut_is_reported() {
    let session = ProbeSession::create(&ProbeOptions::default()).unwrap();
    let mut jobs = JobFile::create(session.directory()).unwrap();
    let mut task = jobs.task("a", std::process::id()).unwrap();
    let mut probe = session.probe().unwrap();
    task.job(&job(1));
    assert!(!read(&mut probe).is_empty());
    OpenOptions::new().write(true).open(ring_of(&session)).unwrap().set_len(100).unwrap();
    read(&mut probe);
    let broken = probe.take_broken();
    assert!(broken.iter().any(|it| it.error.to_string().contains("cut to 100 bytes")), "{broken:?}");
    // Its writer goes on, into memory that nobody reads.
    task.job(&job(2));
}
