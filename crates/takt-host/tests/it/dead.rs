//! The kernel's account of the reservation of a thread that has ended and was not reaped yet.

#![allow(clippy::unwrap_used)]

use std::process::Command;
use std::time::{Duration, Instant};

use takt_host::reserve::system::{Attributes, Kernel, Linux};

/// A process that has ended and is nobody's yet.
fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_dead_threads_reservation_is_distinguished_from_one_that_was_changed() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id();
    let mut kernel = Linux::new();
    if let Err(error) = kernel.set_attributes(pid, &Attributes::reservation(1_000_000, 100_000_000, false)) {
        child.kill().unwrap();
        child.wait().unwrap();
        takt_witness::skip!("no reservation is granted here: {error}");
        return;
    }
    let alive = kernel.attributes(pid).unwrap();
    assert!(alive.is_deadline() && !alive.is_of_dead(), "{alive}");
    child.kill().unwrap();
    until("it ends", || is_zombie(pid));
    // At its zero-lag time the kernel takes it out of its account.
    until("its reservation is cleared", || kernel.attributes(pid).unwrap().is_of_dead());
    child.wait().unwrap();
    assert!(kernel.attributes(pid).is_err());
}
