//! Recording must not allocate, however long it goes on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use takt_stats::{MaxTrend, MeanTrend, Recorder, Stop, StopConfig, TrendStop};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is handed on to the system's allocator unchanged; the counter is a plain
// thread-local number that allocates nothing and needs no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise about `layout` is the system allocator's requirement.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above, hence from the system's allocator, with this
        // layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn ten_million_records_allocate_nothing() {
    let trend = TrendStop { grew_less_than_ns: 1, period_s: 1e6 };
    let mut recorder = Recorder::new(Some(100_000)).unwrap();
    let mut max = MaxTrend::default();
    let mut mean = MeanTrend::default();
    let mut stop = Stop::new(StopConfig { threshold_ns: None, trend: Some(trend) }).unwrap();
    let bytes = recorder.memory_bytes();

    let before = ALLOCATIONS.get();
    let mut x = 0x9E37_79B9_7F4A_7C15u64;
    for i in 0..10_000_000u64 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        // Values over the whole range and beyond it, and a maximum that grows ever again.
        let value = if i % 1000 == 0 { i * 1000 } else { x >> (20 + x % 44) };
        recorder.record(value);
        max.push(i * 1_000_000, value);
        mean.push(i * 1_000_000, value);
        stop.push(i * 1_000_000, value);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert_eq!((recorder.count(), recorder.memory_bytes()), (10_000_000, bytes));
    assert!(recorder.beyond() > 0 && bytes < 4 << 20);

    // The counter does count: a control that allocates.
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(vec![0u8; 100]));
    assert_eq!(ALLOCATIONS.get() - before, 1);
    let checkpoint = serde_json::to_string(&recorder).unwrap();
    let read: Recorder = serde_json::from_str(&checkpoint).unwrap();
    assert_eq!(read.summary(), recorder.summary());
}
