//! Neighbours that want to stop the reader, or to end it: names planted where sessions are made,
//! and files of observed processes that are cut while they are read.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use takt_ros::jobs::JobFile;
use takt_ros::preload::{Probe, ProbeOptions, ProbeSession};
use takt_ros::{Event, Source};
use takt_witness::plant::{Plant, Planted};

/// A process number that nobody has: the greatest that Linux gives is 4,194,304.
const NOBODY: u32 = 4_194_305;

/// Plants at a name what can be planted here: a device needs a right that not everybody has.
fn plant(plant: Plant, at: PathBuf, good: &[u8]) -> Option<Planted> {
    match plant.at(&at, good) {
        Ok(planted) => Some(planted),
        Err(error) => {
            takt_witness::skip!("in part: no {plant:?}: {error}");
            None
        }
    }
}

#[test]
fn a_name_that_was_planted_holds_no_session_up() {
    for kind in Plant::ALL {
        let base = tempfile::tempdir().unwrap();
        // As a session that was left, with the lock of that kind; and the session itself.
        let left = base.path().join(format!("takt-probe-{NOBODY}-0"));
        fs::create_dir(&left).unwrap();
        let lock = plant(kind, left.join("session.lock"), b"keep");
        let _session = plant(kind, base.path().join(format!("takt-probe-{NOBODY}-1")), b"keep");
        let folder = base.path().join("folder");
        fs::create_dir(&folder).unwrap();
        File::create(folder.join("session.lock")).unwrap();
        symlink(&folder, base.path().join(format!("takt-probe-{NOBODY}-2"))).unwrap();
        let options = ProbeOptions { base: Some(base.path().to_owned()), ..ProbeOptions::default() };
        let session = ProbeSession::create(&options).unwrap();
        assert!(session.directory().join("session.lock").is_file(), "{kind:?}");
        if kind == Plant::LinkToFile && lock.is_some() {
            let target = base.path().join(format!("takt-probe-{NOBODY}-1.target-of-link"));
            assert_eq!(fs::read(target).unwrap(), b"keep", "{kind:?}");
        }
        assert!(folder.join("session.lock").exists(), "{kind:?}: what a link leads to was removed");
        // Taking such a session up is refused, and not waited for.
        let attached = ProbeSession::attach(&left);
        assert!(attached.is_err(), "{kind:?}");
    }
}

#[test]
fn options_that_are_no_file_are_refused() {
    for kind in Plant::ALL {
        let base = tempfile::tempdir().unwrap();
        File::create(base.path().join("session.lock")).unwrap();
        let Some(_options) = plant(kind, base.path().join("options.json"), b"{}") else { continue };
        let attached = ProbeSession::attach(base.path());
        // A link to a good file is one's own affair, and what changes is good at times.
        let expected = kind == Plant::LinkToFile;
        let changes = matches!(kind, Plant::Growing | Plant::Shrinking);
        assert!(changes || attached.is_ok() == expected, "{kind:?}: {attached:?}");
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
    let mut planted = Vec::new();
    for (number, kind) in Plant::ALL.into_iter().enumerate() {
        let name = session.directory().join(format!("{number}-0.ring"));
        planted.push((number, kind, plant(kind, name, &[0; 1 << 16])));
    }
    let mut jobs = JobFile::create(session.directory()).unwrap();
    let mut task = jobs.task("a", std::process::id()).unwrap();
    let mut probe = session.probe().unwrap();
    task.job(&job(1));
    assert!(read(&mut probe).iter().any(|event| event.pid == std::process::id()));
    let broken = probe.take_broken();
    // A regular file without the magic number: its maker is given time to finish it.
    let refused = |number: usize| broken.iter().any(|it| it.label.starts_with(&format!("{number}-0")));
    for (number, kind, planted) in &planted {
        let waits = matches!(kind, Plant::Sparse | Plant::Growing | Plant::Shrinking);
        assert!(planted.is_none() || waits || refused(*number), "{kind:?}: {broken:?}");
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
