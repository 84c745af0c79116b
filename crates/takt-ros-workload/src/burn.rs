//! CPU time used up on purpose.

use takt_rt::clock::thread_cpu_ns;

/// Computes until this thread has used `ns` of CPU time. Arithmetic in between, so that the clock
/// (a system call) is read about once in ten microseconds.
pub(crate) fn burn_ns(ns: u64) {
    let end_ns = thread_cpu_ns() + ns;
    let mut value = ns | 1;
    while thread_cpu_ns() < end_ns {
        for _ in 0..4000 {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        }
        std::hint::black_box(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_what_it_was_asked_to_and_little_more() {
        let before = thread_cpu_ns();
        burn_ns(3_000_000);
        let used = thread_cpu_ns() - before;
        assert!(used >= 3_000_000, "{used}");
    }
}
