//! Calls of the safety thread on the link: no allocation and no free, also while the link drops and
//! comes back (the descriptors of lost connections are closed by the receiver thread).
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::support;

use std::time::Duration;
use support::{Cell, config_for, simulator, wait_for};
use takt_link_rtde::client::SendOutcome;
use takt_link_rtde::sim::Fault;
use takt_rt::clock::{monotonic_ns, sleep_until};
use takt_rt::proof::{allocations, frees, system_calls_beyond};

#[test]
fn sending_and_reading_never_touch_the_heap() {
    let simulator = simulator();
    let mut cell = Cell::open(&config_for(&simulator));
    for round in 0..3 {
        simulator.inject(Fault::DropLinks);
        // Counted per thread: what the simulator and the receiver do is theirs.
        let (allocated, freed) = (allocations(), frees());
        let mut sent = 0;
        for _ in 0..30_000 {
            let outcome = cell.beat();
            let state = cell.state();
            let again = cell.link.connections() >= round + 2;
            sent += u32::from(again && state.connected && outcome == SendOutcome::Sent);
            if sent >= 100 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(sent >= 100, "round {round}: {sent} sent on the new connection");
        assert_eq!((allocations() - allocated, frees() - freed), (0, 0), "round {round}");
    }
}

#[test]
fn a_command_is_one_system_call_and_reading_is_none() {
    let simulator = simulator();
    let config = config_for(&simulator);
    let judged = system_calls_beyond(&[libc::SYS_sendto], move || {
        let mut cell = Cell::open(&config);
        cell.beat_until("a state", |state| state.connected);
        move || {
            for _ in 0..200 {
                // A simulator that is kept from running may let the buffer fill: an outcome, not a
                // fault.
                assert!(matches!(
                    cell.beat(),
                    SendOutcome::Sent | SendOutcome::WouldBlock | SendOutcome::Partial
                ));
                assert!(cell.state().sequence > 0);
                sleep_until(monotonic_ns() + 1_000_000);
            }
            // Closing the link is no part of the real-time path.
            std::mem::forget(cell);
        }
    });
    match judged {
        Ok(unexpected) => assert_eq!(unexpected.calls, 0, "{unexpected:?}"),
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            takt_witness::skip!("no seccomp: {error}")
        }
        Err(error) => panic!("{error}"),
    }
    wait_for("the commands arrive", || (simulator.state().heartbeat > 100).then_some(()));
}
