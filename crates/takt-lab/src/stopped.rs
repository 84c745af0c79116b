//! Whether the process was stopped by a signal during a run, as far as that can be known without a
//! trace of the kernel.
//!
//! The kernel keeps no count of stops, and SIGSTOP cannot be caught. But a process that was stopped
//! goes on by SIGCONT alone (signal(7)), which has a handler here. It says neither when it was
//! stopped nor by whom; a trace does (`takt trace`, cause `stopped`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static WENT_ON: AtomicU64 = AtomicU64::new(0);

/// Number of SIGCONT signals since the first call, which returns 0; `None` if no handler can be
/// installed.
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

/// A sentence about stops between two counts.
pub(crate) fn words(before: Option<u64>, after: Option<u64>) -> Option<String> {
    let times = after?.checked_sub(before?).filter(|&times| times > 0)?;
    let plural = if times == 1 { "" } else { "s" };
    Some(format!(
        "the process received SIGCONT {times} time{plural}, so a signal had probably stopped it; releases that did not run in the meantime \
         are misses"
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
        assert!(reported.contains("received SIGCONT 3 times"), "{reported}");
        assert_eq!(super::words(super::times(), super::times()), None);
        assert_eq!(super::words(None, Some(7)), None, "nobody counted before");
    }
}
