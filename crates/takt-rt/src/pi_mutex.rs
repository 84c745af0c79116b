//! A mutex with priority inheritance: the thread that holds it runs at the priority of the highest
//! waiter, so a real-time thread never waits for a preempted best-effort one
//! (`PTHREAD_PRIO_INHERIT`, FUTEX_LOCK_PI).

use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use crate::clock;

/// Reason why a [`PiMutex`] was not locked or not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another thread holds it.
    #[error("the mutex is held by another thread")]
    Held,
    /// The time passed before it was free.
    #[error("the mutex was not free within {timeout:?}")]
    TimedOut {
        /// The time allowed.
        timeout: Duration,
    },
    /// The calling thread holds it already, or the wait would close a circle.
    #[error("deadlock: this thread holds the mutex, or its holder waits for this thread")]
    Deadlock,
    /// The system's answer.
    #[error("priority-inheritance mutex: {0}; the kernel needs CONFIG_FUTEX_PI")]
    System(io::Error),
}

/// By which clock a bounded wait for a [`PiMutex`] ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitClock {
    /// CLOCK_MONOTONIC.
    Monotonic,
    /// CLOCK_REALTIME in steps of [`WALL_CLOCK_STEP_NS`]: setting that clock back while a thread
    /// waits lengthens the step under way by as much.
    WallClock,
}

/// Longest single wait by the wall clock. 10 ms: some hundred times what a contended lock is held
/// for, and few enough wake-ups.
pub const WALL_CLOCK_STEP_NS: u64 = 10_000_000;

/// By which clock [`PiMutex::lock_for`] waits here.
///
/// FUTEX_LOCK_PI reads every time-out as one of CLOCK_REALTIME; FUTEX_LOCK_PI2 (Linux 5.14) has a
/// flag for the clock, and glibc uses it for `pthread_mutex_clocklock` with priority inheritance
/// from 2.35 on (before, EINVAL).
pub fn wait_clock() -> WaitClock {
    if monotonic_lock().is_some() { WaitClock::Monotonic } else { WaitClock::WallClock }
}

type ClockLock =
    unsafe extern "C" fn(*mut libc::pthread_mutex_t, libc::clockid_t, *const libc::timespec) -> libc::c_int;

/// `pthread_mutex_clocklock`, where it takes CLOCK_MONOTONIC for a mutex with priority inheritance.
/// Looked for once, when the first mutex is made.
fn monotonic_lock() -> Option<ClockLock> {
    static FOUND: OnceLock<Option<ClockLock>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // Not linked to, so that the program starts with older C libraries.
        // SAFETY: both are C strings; the handle is the program's own.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pthread_mutex_clocklock".as_ptr()) };
        if symbol.is_null() || !kernel_has_lock_pi2() {
            return None;
        }
        // SAFETY: the C library's function of this name has this signature (pthread.h).
        let lock = unsafe { std::mem::transmute::<*mut libc::c_void, ClockLock>(symbol) };
        takes_monotonic(lock).then_some(lock)
    })
}

/// Tries FUTEX_LOCK_PI2 on a futex of its own that nobody holds: taken at once, or the kernel does
/// not know the operation.
fn kernel_has_lock_pi2() -> bool {
    let futex = AtomicU32::new(0);
    let operation = |operation: libc::c_int| {
        let none = std::ptr::null::<libc::timespec>();
        // SAFETY: the futex outlives the call, and no time-out is given.
        unsafe {
            libc::syscall(libc::SYS_futex, futex.as_ptr(), operation | libc::FUTEX_PRIVATE_FLAG, 0, none)
        }
    };
    let taken = operation(FUTEX_LOCK_PI2) == 0;
    if taken {
        operation(libc::FUTEX_UNLOCK_PI);
    }
    taken
}

/// `FUTEX_LOCK_PI2` of linux/futex.h.
const FUTEX_LOCK_PI2: libc::c_int = 13;

/// Tries it on a mutex that another thread holds, with a time that has passed: ETIMEDOUT where the
/// clock is taken.
fn takes_monotonic(lock: ClockLock) -> bool {
    let Ok(mutex) = PiMutex::make(()) else { return false };
    let Ok(held) = mutex.lock() else { return false };
    let outcome = std::thread::scope(|scope| {
        let attempt = scope.spawn(|| {
            // A nanosecond after the boot.
            mutex.lock_until(lock, 1)
        });
        attempt.join().unwrap_or(libc::EINVAL)
    });
    drop(held);
    outcome == libc::ETIMEDOUT
}

/// A mutual exclusion lock with priority inheritance. A panic while it is held does not poison it.
pub struct PiMutex<T> {
    /// Boxed: a pthread mutex must not move.
    raw: Box<UnsafeCell<libc::pthread_mutex_t>>,
    value: UnsafeCell<T>,
}

// SAFETY: the mutex gives one thread at a time access to the value, so moving access between
// threads needs T: Send alone.
unsafe impl<T: Send> Send for PiMutex<T> {}
// SAFETY: as above; the pthread mutex is made for concurrent use.
unsafe impl<T: Send> Sync for PiMutex<T> {}

fn check(rc: libc::c_int) -> Result<(), LockError> {
    match rc {
        0 => Ok(()),
        libc::EBUSY => Err(LockError::Held),
        libc::EDEADLK => Err(LockError::Deadlock),
        rc => Err(LockError::System(io::Error::from_raw_os_error(rc))),
    }
}

impl<T> PiMutex<T> {
    /// Makes an unlocked mutex, and finds out by the way how a bounded wait works here: no
    /// real-time thread has to.
    ///
    /// # Errors
    /// [`LockError::System`] where the system has no priority inheritance.
    pub fn new(value: T) -> Result<Self, LockError> {
        let made = Self::make(value)?;
        monotonic_lock();
        Ok(made)
    }

    fn make(value: T) -> Result<Self, LockError> {
        let raw = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: the attributes are initialised first, used while alive, and destroyed once; the
        // mutex is overwritten by its initialisation before anything locks it, at the address where
        // it stays.
        unsafe {
            check(libc::pthread_mutexattr_init(attributes))?;
            let made = check(libc::pthread_mutexattr_setprotocol(attributes, libc::PTHREAD_PRIO_INHERIT))
                .and_then(|()| {
                    check(libc::pthread_mutexattr_settype(attributes, libc::PTHREAD_MUTEX_ERRORCHECK))
                })
                .and_then(|()| check(libc::pthread_mutex_init(raw.get(), attributes)));
            libc::pthread_mutexattr_destroy(attributes);
            made?;
        }
        Ok(Self { raw, value: UnsafeCell::new(value) })
    }

    fn guard(&self) -> PiGuard<'_, T> {
        PiGuard { mutex: self, not_send: PhantomData }
    }

    /// Locks; waits while another thread holds it, lending that thread the caller's priority.
    ///
    /// # Errors
    /// [`LockError::Deadlock`] when the calling thread holds it.
    pub fn lock(&self) -> Result<PiGuard<'_, T>, LockError> {
        // SAFETY: the mutex is initialised and lives as long as `self`.
        check(unsafe { libc::pthread_mutex_lock(self.raw.get()) })?;
        Ok(self.guard())
    }

    /// Locks when that needs no waiting.
    ///
    /// # Errors
    /// [`LockError::Held`] when a thread holds it.
    pub fn try_lock(&self) -> Result<PiGuard<'_, T>, LockError> {
        // SAFETY: as in `lock`.
        check(unsafe { libc::pthread_mutex_trylock(self.raw.get()) })?;
        Ok(self.guard())
    }

    /// Locks; waits at most `timeout` on the clock that [`wait_clock`] reports: CLOCK_MONOTONIC,
    /// which nobody sets, wherever kernel and C library can.
    ///
    /// # Errors
    /// [`LockError::TimedOut`], [`LockError::Deadlock`].
    pub fn lock_for(&self, timeout: Duration) -> Result<PiGuard<'_, T>, LockError> {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let end_ns = clock::monotonic_ns().saturating_add(timeout_ns).min(i64::MAX as u64);
        let rc = match monotonic_lock() {
            Some(lock) => self.lock_until(lock, end_ns),
            None => self.lock_by_wall_clock(end_ns),
        };
        match rc {
            libc::ETIMEDOUT => Err(LockError::TimedOut { timeout }),
            rc => check(rc).map(|()| self.guard()),
        }
    }

    /// Waits until `end_ns` of CLOCK_MONOTONIC.
    fn lock_until(&self, lock: ClockLock, end_ns: u64) -> libc::c_int {
        let end = clock::timespec(end_ns);
        // SAFETY: as in `lock`; the timespec outlives the call, and the function has this
        // signature.
        unsafe { lock(self.raw.get(), libc::CLOCK_MONOTONIC, &raw const end) }
    }

    /// Waits by the wall clock in short steps, until `end_ns` of CLOCK_MONOTONIC: a clock set
    /// forward ends a step early, and the next begins; one set back lengthens the step under way,
    /// and no other.
    fn lock_by_wall_clock(&self, end_ns: u64) -> libc::c_int {
        loop {
            let left_ns = end_ns.saturating_sub(clock::monotonic_ns());
            let step = clock::timespec(clock::realtime_ns().saturating_add(left_ns.min(WALL_CLOCK_STEP_NS)));
            // SAFETY: as in `lock`; the timespec outlives the call.
            let rc = unsafe { libc::pthread_mutex_timedlock(self.raw.get(), &raw const step) };
            if rc != libc::ETIMEDOUT || clock::monotonic_ns() >= end_ns {
                return rc;
            }
        }
    }

    /// The value, without locking: the borrow shows that nobody else has the mutex.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T> Drop for PiMutex<T> {
    fn drop(&mut self) {
        // SAFETY: nobody borrows the mutex any more. A leaked guard leaves it locked; destroying it
        // then returns EBUSY and does nothing, and the memory is not used again.
        unsafe { libc::pthread_mutex_destroy(self.raw.get()) };
    }
}

impl<T> fmt::Debug for PiMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PiMutex").finish_non_exhaustive()
    }
}

/// A locked [`PiMutex`]; unlocks when dropped, in the thread that locked.
#[must_use = "the mutex unlocks when the guard is dropped"]
pub struct PiGuard<'a, T> {
    mutex: &'a PiMutex<T>,
    /// A pthread mutex is unlocked by the thread that locked it.
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives `&T` alone.
unsafe impl<T: Sync> Sync for PiGuard<'_, T> {}

impl<T> Deref for PiGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread holds the mutex.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for PiGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the mutex, and the guard is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for PiGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this thread locked the mutex and has not unlocked it.
        unsafe { libc::pthread_mutex_unlock(self.mutex.raw.get()) };
    }
}

impl<T: fmt::Debug> fmt::Debug for PiGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::sys;
    use std::sync::mpsc;

    #[test]
    fn excludes_and_counts() {
        let counter = PiMutex::new(0u64).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *counter.lock().unwrap() += 1;
                    }
                });
            }
        });
        let mut counter = counter;
        assert_eq!(*counter.get_mut(), 40_000);
    }

    #[test]
    fn misuse_and_waits_end_in_errors() {
        let mutex = PiMutex::new(()).unwrap();
        let guard = mutex.lock().unwrap();
        assert!(matches!(mutex.lock(), Err(LockError::Deadlock)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(matches!(mutex.try_lock(), Err(LockError::Held)));
                let timeout = Duration::from_millis(2);
                assert!(matches!(mutex.lock_for(timeout), Err(LockError::TimedOut { .. })));
            });
        });
        drop(guard);
        drop(mutex.lock_for(Duration::MAX).unwrap());
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = mutex.lock().unwrap();
            panic!("while held");
        }));
        assert!(broken.is_err());
        drop(mutex.try_lock().unwrap());
    }

    /// The futex operation of a waiting thread, from /proc/self/task/TID/syscall.
    fn futex_operation_of_a_waiter(
        timeout: Duration,
        by: impl Fn(&PiMutex<()>, Duration) + Sync,
    ) -> Option<i64> {
        let mutex = PiMutex::new(()).unwrap();
        let guard = mutex.lock().unwrap();
        std::thread::scope(|scope| {
            let (send, receive) = mpsc::channel();
            let (mutex, by) = (&mutex, &by);
            let waiter = scope.spawn(move || {
                send.send(sys::gettid()).unwrap();
                by(mutex, timeout);
            });
            let tid = receive.recv().unwrap();
            let mut seen = None;
            while seen.is_none() && !waiter.is_finished() {
                let line =
                    std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).unwrap_or_default();
                let words: Vec<&str> = line.split_whitespace().collect();
                if let [number, _, operation, ..] = words[..]
                    && number.parse() == Ok(libc::SYS_futex)
                {
                    let operation = i64::from_str_radix(operation.trim_start_matches("0x"), 16).unwrap();
                    // The thread may still be in a futex of the channel's: those are no PI
                    // operations.
                    let plain = operation & !i64::from(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
                    seen = [libc::FUTEX_LOCK_PI, FUTEX_LOCK_PI2]
                        .map(i64::from)
                        .contains(&plain)
                        .then_some(operation);
                }
                std::thread::yield_now();
            }
            drop(guard);
            waiter.join().unwrap();
            seen
        })
    }

    #[test]
    fn a_bounded_wait_is_one_on_the_monotonic_clock_by_the_kernels_own_word() {
        let waits = |mutex: &PiMutex<()>, timeout| drop(mutex.lock_for(timeout));
        let Some(operation) = futex_operation_of_a_waiter(Duration::from_secs(20), waits) else {
            takt_witness::skip!("the kernel does not show the system call of a waiting thread");
            return;
        };
        let by_wall_clock = operation & i64::from(libc::FUTEX_CLOCK_REALTIME) != 0;
        let plain = operation & !i64::from(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
        match wait_clock() {
            WaitClock::Monotonic => {
                assert!(plain == i64::from(FUTEX_LOCK_PI2) && !by_wall_clock, "{operation:#x}")
            }
            WaitClock::WallClock => {
                takt_witness::skip!(
                    "in part: kernel or C library has no monotonic wait with priority inheritance"
                );
                assert!(plain == i64::from(libc::FUTEX_LOCK_PI) || by_wall_clock, "{operation:#x}");
            }
        }
    }

    #[test]
    fn the_fall_back_ends_by_the_monotonic_clock_too() {
        let mutex = PiMutex::new(()).unwrap();
        let guard = mutex.lock().unwrap();
        std::thread::scope(|scope| {
            let waited = scope.spawn(|| {
                let begun_ns = clock::monotonic_ns();
                let rc = mutex.lock_by_wall_clock(begun_ns + 3 * WALL_CLOCK_STEP_NS);
                (rc, clock::monotonic_ns() - begun_ns)
            });
            let (rc, waited_ns) = waited.join().unwrap();
            assert_eq!(rc, libc::ETIMEDOUT);
            assert!(waited_ns >= 3 * WALL_CLOCK_STEP_NS, "{waited_ns}");
        });
        drop(guard);
        assert_eq!(mutex.lock_by_wall_clock(0), 0, "free: taken although the time has passed");
        drop(mutex.guard());
    }

    /// Field 18 of /proc/self/task/TID/stat: the priority with inheritance; negative is real-time.
    fn kernel_priority(tid: i32) -> i64 {
        crate::procfs::Stat::of_thread("self", tid).unwrap().number(18).unwrap()
    }

    #[test]
    fn the_holder_inherits_the_priority_of_the_waiter() {
        let mutex = PiMutex::new(()).unwrap();
        let guard = mutex.lock().unwrap();
        let tid = sys::gettid();
        let own = kernel_priority(tid);
        assert_ne!(own, -51, "as if it had inherited already");
        std::thread::scope(|scope| {
            let (send, receive) = mpsc::channel();
            let mutex = &mutex;
            scope.spawn(move || {
                let outcome = Policy::Fifo { priority: 50 }.apply(0);
                let granted = outcome.is_ok();
                send.send(outcome).unwrap();
                if granted {
                    drop(mutex.lock().unwrap());
                }
            });
            if let Err(refusal) = receive.recv().unwrap() {
                takt_witness::skip!("{refusal}");
                drop(guard);
                return;
            }
            while kernel_priority(tid) != -51 {
                std::thread::yield_now();
            }
            drop(guard);
            assert_eq!(kernel_priority(tid), own, "what was inherited is given back with the lock");
        });
    }
}
