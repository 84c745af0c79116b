//! Wake-up for event loops: a futex word that counts notifications.
//!
//! A notifier never blocks and enters the kernel only when somebody waits, so a real-time thread
//! may notify best-effort listeners at the price of two atomic operations. Take [`Signal::value`],
//! look at the shared state, and [`wait`](Signal::wait) with the value taken: a notification in
//! between makes the wait return at once, so none is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::clock;

#[derive(Debug, Default)]
struct Notifications {
    word: AtomicU32,
    waiters: AtomicU32,
}

/// A cloneable wake-up: all clones share one counter of notifications (it wraps).
#[derive(Debug, Clone, Default)]
pub struct Signal {
    shared: Arc<Notifications>,
}

impl Signal {
    /// A signal whose value is 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one notification and wakes every waiter. Wait-free; a system call only when somebody
    /// waits.
    pub fn notify(&self) {
        // SeqCst here and in `wait`: either the waiter sees the new word, or this thread sees the
        // waiter.
        self.shared.word.fetch_add(1, Ordering::SeqCst);
        if self.shared.waiters.load(Ordering::SeqCst) != 0 {
            // SAFETY: the word lives as long as `self`; FUTEX_WAKE reads no other argument.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.shared.word.as_ptr(),
                    libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                    i32::MAX,
                );
            }
        }
    }

    /// The number of notifications so far, modulo 2^32.
    pub fn value(&self) -> u32 {
        self.shared.word.load(Ordering::Acquire)
    }

    /// Waits until the value differs from `seen`, at most `timeout`. Returns the value then; equal
    /// to `seen` when the time has passed.
    pub fn wait(&self, seen: u32, timeout: Duration) -> u32 {
        let now = self.value();
        if now != seen || timeout.is_zero() {
            return now;
        }
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // Far enough for ever, and small enough for the kernel's signed 64-bit nanoseconds.
        let deadline_ns = clock::monotonic_ns().saturating_add(timeout_ns).min(i64::MAX as u64);
        let deadline = clock::timespec(deadline_ns);
        self.shared.waiters.fetch_add(1, Ordering::SeqCst);
        while self.shared.word.load(Ordering::SeqCst) == seen {
            // SAFETY: the word and the timespec outlive the call; FUTEX_WAIT_BITSET takes an
            // absolute time of CLOCK_MONOTONIC, so a retry after a signal does not wait longer in
            // all.
            let rc = unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.shared.word.as_ptr(),
                    libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
                    seen,
                    &deadline,
                    std::ptr::null::<u32>(),
                    libc::FUTEX_BITSET_MATCH_ANY,
                )
            };
            if rc == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT) {
                break;
            }
        }
        self.shared.waiters.fetch_sub(1, Ordering::SeqCst);
        self.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_passed_notification_is_not_waited_for() {
        let signal = Signal::new();
        let seen = signal.value();
        signal.notify();
        assert_eq!(signal.wait(seen, Duration::MAX), seen + 1);
    }

    #[test]
    fn timeout_returns_what_was_seen() {
        let signal = Signal::new();
        assert_eq!(signal.wait(0, Duration::from_millis(1)), 0);
        assert_eq!(signal.wait(0, Duration::ZERO), 0);
        assert_eq!(signal.shared.waiters.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn every_waiter_wakes_and_no_notification_is_lost() {
        const ROUNDS: u64 = 20_000;
        let (ping, pong) = (Signal::new(), Signal::new());
        let state = Arc::new(AtomicU64::new(0));
        // Ping-pong without timeout: one lost wake-up would hang the test.
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (ping, pong, state) = (ping.clone(), pong.clone(), state.clone());
                std::thread::spawn(move || {
                    for round in 1..=ROUNDS {
                        loop {
                            let seen = ping.value();
                            if state.load(Ordering::SeqCst) >= round {
                                break;
                            }
                            ping.wait(seen, Duration::MAX);
                        }
                        pong.notify();
                    }
                })
            })
            .collect();
        for round in 1..=ROUNDS {
            state.store(round, Ordering::SeqCst);
            ping.notify();
            loop {
                let seen = pong.value();
                if u64::from(seen) >= 2 * round {
                    break;
                }
                pong.wait(seen, Duration::MAX);
            }
        }
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(u64::from(pong.value()), 2 * ROUNDS);
    }
}
