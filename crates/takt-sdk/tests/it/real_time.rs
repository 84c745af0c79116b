//! The real-time path: no allocation, no system call but the clock and the sleep, with a session
//! and without one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use takt_rt::proof::{AllocationCounter, allocations, frees, system_calls_beyond};
use takt_sdk::layout::{HEAD_BYTES, Head, RING_BYTES};
use takt_sdk::{Loop, exchange};

#[global_allocator]
static COUNTER: AllocationCounter = AllocationCounter;

/// The process's own memory, mapped once more: what a session sees.
fn head() -> &'static Head {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path());
    let path = all
        .into_iter()
        .find(|path| {
            std::fs::read_link(path).is_ok_and(|link| link.to_string_lossy().contains("takt-loops-1"))
        })
        .unwrap();
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    assert!(file.metadata().unwrap().len() as usize > HEAD_BYTES + RING_BYTES);
    use std::os::fd::AsRawFd;
    // SAFETY: a new mapping at an address of the kernel's choice, which is never unmapped.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            HEAD_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(base, libc::MAP_FAILED);
    // SAFETY: mapped whole; atomics alone.
    unsafe { &*base.cast::<Head>() }
}

fn cycle(one: &mut Loop, number: u64) {
    one.wait().unwrap();
    one.input(number).unwrap();
    one.stage("sense").unwrap();
    one.stage("act").unwrap();
    one.value(0.5).unwrap();
    one.end().unwrap();
}

#[test]
fn nothing_is_allocated_and_no_system_call_is_made_but_the_sleep() {
    for (name, is_attached) in [("alone", false), ("attached", true)] {
        let heap = Arc::new(AtomicU64::new(u64::MAX));
        let records = Arc::new(AtomicU64::new(0));
        let (count, written) = (Arc::clone(&heap), Arc::clone(&records));
        let outcome = system_calls_beyond(&[libc::SYS_clock_nanosleep], move || {
            let mut one = Loop::periodic(name, Duration::from_micros(200)).open().unwrap();
            // The first job learns the thread, and names the stages.
            cycle(&mut one, 0);
            let slot = head().slots.iter().find(|slot| {
                let bytes = slot.name.iter().map(|byte| byte.load(Ordering::Relaxed));
                bytes.take(name.len()).eq(name.bytes())
            });
            if is_attached {
                slot.unwrap().counters.attached.store(7, Ordering::Release);
                cycle(&mut one, 0);
            }
            let (mut writer, mut reader) = exchange(|| [0u64; 8]);
            move || {
                let before = (allocations(), frees());
                for number in 0..50 {
                    cycle(&mut one, number);
                    writer.write([number; 8]);
                    assert_eq!(reader.read().0[7], number);
                }
                // A panic in here would wait for locks that it may not have.
                let after = (allocations(), frees());
                count.store((after.0 - before.0) + (after.1 - before.1), Ordering::Release);
                if is_attached {
                    written.store(slot.unwrap().counters.written.load(Ordering::Acquire), Ordering::Release);
                }
                std::mem::forget(one);
            }
        });
        match outcome {
            Ok(calls) => {
                assert_eq!((calls.calls, calls.first), (0, None), "{name}");
                assert_eq!(heap.load(Ordering::Acquire), 0, "a job allocates or frees: {name}");
                // Jobs and two stages each.
                assert_eq!(records.load(Ordering::Acquire) >= 150, is_attached, "{records:?}");
            }
            Err(error) if error.to_string().contains("panicked") => panic!("{error}"),
            Err(error) => println!("skipped: no seccomp filter: {error}"),
        }
    }
}
