//! Reading a recording takes memory when it begins, not for every event.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use takt_ros::Source;
use takt_ros::ctf::Recording;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn events_take_no_memory() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let made = support::busy(scratch.path(), 4, 20_000, 32 << 10);
    let mut recording = Recording::open(scratch.path()).expect("a recording");
    let mut read = recording.poll(&mut |_| {}).expect("events");
    assert!(!recording.ended(), "more than one portion");
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    while !recording.ended() {
        read += recording.poll(&mut |_| {}).expect("events");
    }
    let taken = ALLOCATIONS.load(Ordering::Relaxed) - before;
    // Two threads for each processor, each named once.
    assert_eq!(read as u64, made + 8);
    assert_eq!(taken, 0, "allocations for {read} events");
}
