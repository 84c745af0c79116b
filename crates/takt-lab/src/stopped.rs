//! Whether the process was stopped by a signal during a run, as far as that can be known without a
//! trace of the kernel.
//!
//! The kernel keeps no count of stops, and SIGSTOP cannot be caught. But a process that was stopped
//! goes on by SIGCONT alone (signal(7)), which has a handler here. It says neither when it was
//! stopped nor by whom; a trace does (`takt trace`, cause `stopped`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static WENT_ON: AtomicU64 = AtomicU64::new(0);

/// How often SIGCONT came since the first call, whose own answer is 0; `None` where no handler can
/// be had.
pub(crate) fn times() -> Option<u64> {
    static HANDLED: OnceLock<bool> = OnceLock::new();
    let handled = HANDLED.get_or_init(|| {
        let count = || {
            WENT_ON.fetch_add(1, Ordering::Relaxed);
        };
        // SAFETY: the handler adds to an atomic number, which is async-signal-safe, and it never
        // panics.
        unsafe { signal_hook::low_level::register(signal_hook::consts::SIGCONT, count) }.is_ok()
    });
    handled.then(|| WENT_ON.load(Ordering::Relaxed))
}

/// What is known of stops between two counts, as a sentence.
pub(crate) fn words(before: Option<u64>, after: Option<u64>) -> Option<String> {
    let times = after?.checked_sub(before?).filter(|&times| times > 0)?;
    let plural = if times == 1 { "" } else { "s" };
    Some(format!(
        "the process was instructed to go on {times} time{plural} (SIGCONT), as one is that a signal had stopped: releases that did not run \
         meanwhile are misses"
    ))
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_time_that_it_goes_on_is_counted() {
        let before = super::times();
        for _ in 0..3 {
            // SAFETY: sends this process a signal that it handles, and that stops nobody.
            unsafe { libc::raise(libc::SIGCONT) };
        }
        let reported = super::words(before, super::times()).expect("a handler");
        assert!(reported.contains("3 times (SIGCONT)"), "{reported}");
        assert_eq!(super::words(super::times(), super::times()), None);
        assert_eq!(super::words(None, Some(7)), None, "nobody counted before");
    }
}
