//! The cache between the controller and its readers.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::mpsc;

use takt_link_ethercat::control::{CacheKind, CacheReader, ControlConfig, Publisher, Snapshot, cache};
use takt_rt::clock::monotonic_ns;
use takt_rt::policy::Policy;

fn snapshot(cycle: u64) -> Snapshot {
    Snapshot {
        cycle,
        at_ns: 0,
        working_counter: 1,
        expected_counter: 1,
        all_op: true,
        image: vec![cycle as u8; 64],
    }
}

fn made(kind: CacheKind, change: impl FnOnce(&mut ControlConfig)) -> (Publisher, Vec<CacheReader>) {
    let mut config =
        ControlConfig { cache: kind, max_lock_wait_us: 1_000_000, readers: 3, ..ControlConfig::default() };
    change(&mut config);
    cache(&config, 64).unwrap()
}

/// Field 18 of a thread's stat: its priority with inheritance; -1 - priority for real-time
/// policies.
fn kernel_priority(tid: i32) -> i64 {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(15).unwrap().parse().unwrap()
}

#[test]
fn every_kind_shows_the_last_cycle() {
    for kind in [CacheKind::PiMutex, CacheKind::PlainMutex, CacheKind::Exchange] {
        let (mut publisher, mut readers) = made(kind, |_| {});
        assert_eq!(readers.len(), 3);
        for cycle in 1..=5 {
            assert!(publisher.publish(&snapshot(cycle)).stored);
        }
        for reader in &mut readers {
            let seen = reader.read(|seen| (seen.cycle, seen.image[63])).unwrap();
            assert_eq!(seen, (5, 5), "{kind:?}");
        }
        assert_eq!(readers[0].another().is_some(), kind != CacheKind::Exchange);
    }
}

#[test]
fn readers_never_see_half_a_cycle() {
    for kind in [CacheKind::PiMutex, CacheKind::Exchange] {
        let (mut publisher, mut readers) = made(kind, |_| {});
        let mut reader = readers.pop().unwrap();
        let writing = std::thread::spawn(move || {
            for cycle in 1..20_000 {
                publisher.publish(&snapshot(cycle % 200));
            }
        });
        while !writing.is_finished() {
            let whole = reader.read(|seen| seen.image.iter().all(|&byte| byte == seen.cycle as u8)).unwrap();
            assert!(whole, "{kind:?}");
        }
        writing.join().unwrap();
    }
}

/// Figure 3 of the paper: B holds the cache, C has queued for it, and D, the controller, comes last
/// and is served before C. Meanwhile B runs at the priority of whoever waits.
#[test]
fn the_controller_waits_for_one_reader_and_lends_it_its_priority() {
    let (mut publisher, mut readers) = made(CacheKind::PiMutex, |config| config.max_lock_wait_us = 1_000_000);
    let (mut b, mut c) = (readers.pop().unwrap(), readers.pop().unwrap());
    // SAFETY: gettid has no preconditions.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    let outcome = b.read(move |_| {
        let (send, granted) = mpsc::channel();
        let ready = send.clone();
        let c = std::thread::spawn(move || {
            let policy = Policy::Fifo { priority: 10 }.apply(0);
            let skip = policy.is_err();
            ready.send(policy).unwrap();
            if skip { None } else { Some(c.read(|seen| seen.cycle).unwrap()) }
        });
        if let Err(refusal) = granted.recv().unwrap() {
            takt_witness::skip!("{refusal}");
            c.join().unwrap();
            return None;
        }
        while kernel_priority(tid) != -11 {
            std::thread::yield_now();
        }
        let d = std::thread::spawn(move || {
            let policy = Policy::Fifo { priority: 50 }.apply(0);
            send.send(policy).unwrap();
            publisher.publish(&snapshot(77))
        });
        granted.recv().unwrap().unwrap();
        while kernel_priority(tid) != -51 {
            std::thread::yield_now();
        }
        Some((c, d))
    });
    if let Some((c, d)) = outcome.unwrap() {
        let published = d.join().unwrap();
        assert!(published.stored && published.contended);
        // C came first, and saw what D wrote: D was served before it.
        assert_eq!(c.join().unwrap(), Some(77));
        assert!(kernel_priority(tid) >= 0);
    }
}

#[test]
fn a_reader_that_stays_does_not_hold_the_controller_for_ever() {
    let (mut publisher, mut readers) = made(CacheKind::PiMutex, |config| config.max_lock_wait_us = 2000);
    let mut reader = readers.pop().unwrap();
    let published =
        reader.read(|_| std::thread::spawn(move || publisher.publish(&snapshot(1))).join().unwrap());
    let published = published.unwrap();
    assert!(!published.stored && published.contended && published.wait_ns >= 2_000_000);
}

#[test]
fn with_delayed_locking_a_reader_stays_out_when_the_release_is_near() {
    let (publisher, mut readers) =
        made(CacheKind::PiMutex, |config| config.delayed_locking_us = Some(100_000));
    let mut reader = readers.pop().unwrap();
    // Nothing announced: nothing to wait for.
    reader.read(|_| ()).unwrap();
    assert_eq!(publisher.delayed(), 0);
    let release_ns = monotonic_ns() + 20_000_000;
    publisher.announce(release_ns);
    let entered_ns = reader.read(|_| monotonic_ns()).unwrap();
    assert!(entered_ns >= release_ns);
    // Far away: in at once.
    publisher.announce(monotonic_ns() + 3_600_000_000_000);
    let before = publisher.delayed();
    reader.read(|_| ()).unwrap();
    assert_eq!(publisher.delayed(), before);
}
