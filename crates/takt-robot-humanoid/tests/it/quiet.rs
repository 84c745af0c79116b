//! Calls that the motion controller's loop must not make, proven.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use takt_link_ethercat::control::{bring_up, in_process};
use takt_link_ethercat::segment::{Segment, SegmentConfig};
use takt_robot_humanoid::run::{Loop, MotionState, cycles};
use takt_robot_humanoid::{Controller, HumanoidConfig};
use takt_rt::periodic::{Periodic, SleepStrategy};
use takt_rt::proof::{allocations, frees};
use takt_rt::ring::ring;

#[test]
fn the_loop_neither_allocates_nor_frees() {
    let mut config = HumanoidConfig { ramp_s: 0.1, ..HumanoidConfig::default() };
    config.link.bring_up_ms = 20_000;
    config.link.silence_ms = 2000;
    let segment =
        Segment::new(&SegmentConfig { watchdog_ms: 6000, ..SegmentConfig::humanoid(config.devices) })
            .unwrap();
    let link = bring_up(in_process(segment), &config.control(), &mut |_| {}).unwrap();
    let shared = Arc::new(MotionState::default());
    let ending = Arc::clone(&shared);
    // Enabling, walking, and the stop.
    let conductor = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        ending.stop();
        std::thread::sleep(Duration::from_millis(300));
        ending.end();
    });
    let (records, mut taken) = ring(1 << 12);
    let periodic = Periodic::start_now(config.period(), SleepStrategy::Kernel).unwrap();
    let parts = Loop { controller: Controller::new(&config), port: link.port, periodic, records };
    let before = (allocations(), frees());
    let finished = cycles(parts, &shared);
    let after = (allocations(), frees());
    // The ring's end for pushing goes with the loop; it is the one thing that may be given back.
    assert_eq!(after.0 - before.0, 0);
    assert!(after.1 - before.1 <= 2, "{} frees", after.1 - before.1);
    conductor.join().unwrap();
    let mut list = Vec::new();
    taken.take_into(&mut list, usize::MAX);
    assert_eq!(list.len() as u64, finished.port.totals().cycles);
    assert!(list.iter().any(|record| record.mode == 3));
}
