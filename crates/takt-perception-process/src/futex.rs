//! Waiting on a word that two processes share.

use std::sync::atomic::AtomicU32;

/// Waits until somebody wakes the word, while it holds `seen`, at most until `deadline_ns` on CLOCK_MONOTONIC. May return
/// early without reason.
pub(crate) fn wait_until(word: &AtomicU32, seen: u32, deadline_ns: u64) {
    let deadline_ns = deadline_ns.min(i64::MAX as u64);
    let deadline = libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (deadline_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: word and timespec outlive the call; FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC. Not
    // private: the word lies in memory that another process maps.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET,
            seen,
            &deadline,
            std::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        );
    }
}

/// Wakes whoever waits on the word, in any process. Never blocks.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call; FUTEX_WAKE reads no other argument.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}
