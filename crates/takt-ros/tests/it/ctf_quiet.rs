//! Reading a recording takes memory when it begins, not for every event.

use crate::support;

use takt_ros::Source;
use takt_ros::ctf::Recording;
use takt_rt::proof::allocations;

#[test]
fn events_take_no_memory() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let made = support::busy(scratch.path(), 4, 20_000, 32 << 10);
    let mut recording = Recording::open(scratch.path()).expect("a recording");
    let mut read = recording.poll(&mut |_| {}).expect("events");
    assert!(!recording.ended(), "more than one portion");
    let before = allocations();
    while !recording.ended() {
        read += recording.poll(&mut |_| {}).expect("events");
    }
    let taken = allocations() - before;
    // Two threads for each processor, each named once.
    assert_eq!(read as u64, made + 8);
    assert_eq!(taken, 0, "allocations for {read} events");
}
