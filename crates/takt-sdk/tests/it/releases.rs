//! Declarations and releases.

use std::time::Duration;

use takt_sdk::{Error, Loop, now_ns};

const MS: u64 = 1_000_000;

#[test]
fn releases_are_on_the_grid_and_never_early() {
    let mut one = Loop::periodic("grid", Duration::from_micros(500)).open().unwrap();
    let first = one.wait().unwrap();
    let mut last = first;
    for _ in 0..50 {
        let release = one.wait().unwrap();
        assert!(release.begin_ns >= release.release_ns);
        assert_eq!((release.release_ns - first.release_ns) % 500_000, 0);
        let periods = (release.release_ns - last.release_ns) / 500_000;
        assert_eq!(periods, release.skipped + 1);
        assert_eq!(release.job, last.job + 1);
        last = release;
    }
}

#[test]
fn an_overrun_keeps_the_phase_and_is_counted() {
    let mut one = Loop::periodic("overrun", Duration::from_millis(1)).open().unwrap();
    let first = one.wait().unwrap();
    let until = first.release_ns + 5 * MS + MS / 2;
    while now_ns() < until {}
    let late = one.wait().unwrap();
    // At least: the machine may take more.
    assert!(late.skipped >= 4, "{late:?}");
    assert_eq!(late.release_ns, first.release_ns + (late.skipped + 1) * MS);
    assert_eq!(one.skipped(), late.skipped + first.skipped);
    let next = one.wait().unwrap();
    assert_eq!((next.release_ns - first.release_ns) % MS, 0);
}

#[test]
fn the_two_halves_are_the_whole() {
    let mut one = Loop::periodic("halves", Duration::from_millis(1))
        .spin_margin(Duration::from_secs(1))
        .open()
        .unwrap();
    assert_eq!(one.begin().unwrap_err(), Error::NoJob);
    let due = one.next_release().unwrap();
    assert_eq!(one.next_release().unwrap(), due, "asked twice");
    while now_ns() < due {}
    let release = one.begin().unwrap();
    assert_eq!((release.release_ns, release.job), (due, 0));
    assert_eq!(one.next_release().unwrap(), due + MS * (1 + one.passed_over()));
    // Nobody slept in time: the newest that has passed.
    while now_ns() < due + 4 * MS {}
    let late = one.next_release().unwrap();
    assert!(late >= due + 4 * MS, "{late} {due}");
    assert_eq!(one.begin().unwrap().skipped, (late - due) / MS - 1);
}

#[test]
fn each_loop_is_declared_once_and_again_after_it_was_closed() {
    let one = Loop::periodic("twice", Duration::from_millis(1)).open().unwrap();
    let again = Loop::periodic("twice", Duration::from_millis(2)).open();
    assert_eq!(again.unwrap_err(), Error::DeclaredTwice { name: "twice".into() });
    drop(one);
    let mut again = Loop::periodic("twice", Duration::from_millis(2)).open().unwrap();
    assert_eq!(again.period(), Some(Duration::from_millis(2)));
    assert_eq!(again.wait().unwrap().job, 0);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let period = Duration::from_millis(1);
    for name in ["", "a\nb", &"x".repeat(48), "\0"] {
        assert!(matches!(Loop::periodic(name, period).open(), Err(Error::Name { .. })), "{name:?}");
    }
    assert!(Loop::periodic(&"\u{e4}".repeat(23), period).open().is_ok());
    for period in [Duration::ZERO, Duration::MAX, Duration::from_secs(3601)] {
        assert!(matches!(Loop::periodic("period", period).open(), Err(Error::Period { .. })));
    }
    let mut one = Loop::periodic("misused", period).open().unwrap();
    assert_eq!(one.end(), Err(Error::NoJob));
    assert_eq!(one.value(1.0), Err(Error::NoJob));
    assert_eq!(one.stage("x"), Err(Error::NoJob));
    assert_eq!(one.release(0), Err(Error::WrongKind { is_driven: false }));
    let mut driven = Loop::driven("driven").deadline(period).open().unwrap();
    assert_eq!(driven.wait(), Err(Error::WrongKind { is_driven: true }));
    let before = now_ns();
    assert!(driven.release(0).unwrap().release_ns >= before);
    assert_eq!(driven.release(77).unwrap().release_ns, 77);
    driven.end().unwrap();
}
