use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// A thread that reports late, as one does that interference keeps from the CPU.
#[test]
fn nobody_counts_with_another_window_than_the_run_however_late_it_is_reported() {
    let window = Window::default();
    let (done, counting) = (AtomicBool::new(false), AtomicBool::new(false));
    let slow = Duration::from_nanos(4 * AHEAD_NS);
    let mut reported = Vec::new();
    let (bounds, values) = std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            let mut values = Vec::new();
            while !done.load(Ordering::Acquire) {
                let at_ns = monotonic_ns();
                values.push((at_ns, window.elapsed_ns(at_ns).is_some()));
                counting.store(true, Ordering::Release);
                std::thread::sleep(Duration::from_micros(100));
            }
            values
        });
        while !counting.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let from_ns = bounded(&window, |at_ns| {
            reported.push(at_ns);
            std::thread::sleep(slow);
            window.open(at_ns);
        });
        std::thread::sleep(slow);
        let to_ns = bounded(&window, |at_ns| {
            reported.push(at_ns);
            std::thread::sleep(slow);
            window.close(at_ns);
        });
        std::thread::sleep(slow);
        done.store(true, Ordering::Release);
        ([from_ns, to_ns], collector.join().expect("the collector"))
    });
    assert_eq!(reported, bounds, "each bound is passed on once");
    let within = |at_ns: u64| (bounds[0]..bounds[1]).contains(&at_ns);
    for (at_ns, counted) in values {
        assert_eq!(
            counted,
            within(at_ns),
            "{} ns after the beginning",
            at_ns as i128 - i128::from(bounds[0])
        );
    }
}
