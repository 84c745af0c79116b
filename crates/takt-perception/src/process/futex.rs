//! Waiting on a word that two processes share.

use std::sync::atomic::AtomicU32;

/// Waits until somebody wakes the word, while it holds `seen`, at most until `deadline_ns` on
/// CLOCK_MONOTONIC. May return early without reason.
pub(crate) fn wait_until(word: &AtomicU32, seen: u32, deadline_ns: u64) {
    let deadline_ns = deadline_ns.min(i64::MAX as u64);
    let deadline = libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (deadline_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: word and timespec outlive the call; FUTEX_WAIT_BITSET takes an absolute time of
    // CLOCK_MONOTONIC. Not private: the word lies in memory that another process maps.
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

/// `struct futex_waitv` (linux/futex.h).
#[repr(C)]
#[derive(Clone, Copy)]
struct Waiter {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// `FUTEX2_SIZE_U32`, shared between processes.
const SIZE_U32: u32 = 2;
/// Most words that are waited for at once.
pub(crate) const MAX_WORDS: usize = 8;
/// Wait where the kernel cannot wait for several words (before 5.16), nanoseconds.
const NAP_NS: u64 = 200_000;

/// Waits until any of the words (at most [`MAX_WORDS`]) is woken, while each holds the value
/// beside it, at most until `deadline_ns` on CLOCK_MONOTONIC. May return early without reason.
pub(crate) fn wait_any<'a>(words: impl Iterator<Item = (&'a AtomicU32, u32)>, deadline_ns: u64) {
    let mut waiters = [Waiter { value: 0, address: 0, flags: 0, reserved: 0 }; MAX_WORDS];
    let mut count = 0usize;
    for (waiter, (word, seen)) in waiters.iter_mut().zip(words) {
        let address = word.as_ptr() as u64;
        *waiter = Waiter { value: u64::from(seen), address, flags: SIZE_U32, reserved: 0 };
        count += 1;
    }
    let deadline_ns = deadline_ns.min(i64::MAX as u64);
    let deadline = libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (deadline_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `count` waiters are filled in, whose words and the timespec outlive the call; the
    // time is absolute.
    let rc = unsafe {
        libc::syscall(libc::SYS_futex_waitv, waiters.as_ptr(), count, 0, &deadline, libc::CLOCK_MONOTONIC)
    };
    if rc == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
        takt_rt::clock::sleep_until(deadline_ns.min(takt_rt::clock::monotonic_ns() + NAP_NS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use takt_rt::clock::monotonic_ns;

    #[test]
    fn any_of_several_words_ends_the_wait() {
        let words: [AtomicU32; 3] = std::array::from_fn(|_| AtomicU32::new(0));
        // Already changed, passed, empty: all end at once.
        words[1].store(1, Ordering::SeqCst);
        wait_any(words.iter().map(|word| (word, 0)), u64::MAX);
        wait_any(words[..1].iter().map(|word| (word, 0)), monotonic_ns());
        wait_any(std::iter::empty(), monotonic_ns());
        let all = &words;
        std::thread::scope(|scope| {
            // Without deadline: a lost wake-up would hang the test.
            let waiting = scope.spawn(move || {
                while all[2].load(Ordering::SeqCst) == 0 {
                    wait_any([(&all[0], 0), (&all[2], 0)].into_iter(), u64::MAX);
                }
            });
            all[2].store(1, Ordering::SeqCst);
            while !waiting.is_finished() {
                wake(&all[2]);
                std::thread::yield_now();
            }
        });
    }
}
