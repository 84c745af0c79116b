//! A mutex with priority inheritance: the thread that holds it runs at the priority of the highest waiter, so
//! a real-time thread never waits for a preempted best-effort one (`PTHREAD_PRIO_INHERIT`, FUTEX_LOCK_PI).

use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::clock;

/// Why a [`PiMutex`] was not locked or not made.
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

/// A mutual exclusion lock with priority inheritance. A panic while it is held does not poison it.
pub struct PiMutex<T> {
    /// Boxed: a pthread mutex must not move.
    raw: Box<UnsafeCell<libc::pthread_mutex_t>>,
    value: UnsafeCell<T>,
}

// SAFETY: the mutex gives one thread at a time access to the value, so moving access between threads needs
// T: Send alone.
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
    /// Makes an unlocked mutex.
    ///
    /// # Errors
    /// [`LockError::System`] where the system has no priority inheritance.
    pub fn new(value: T) -> Result<Self, LockError> {
        let raw = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: the attributes are initialised first, used while alive, and destroyed once; the mutex is
        // overwritten by its initialisation before anything locks it, at the address where it stays.
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

    /// Locks; waits at most `timeout`, by the wall clock (CLOCK_REALTIME, as `pthread_mutex_timedlock` does):
    /// setting that clock lengthens or shortens the wait.
    ///
    /// # Errors
    /// [`LockError::TimedOut`], [`LockError::Deadlock`].
    pub fn lock_for(&self, timeout: Duration) -> Result<PiGuard<'_, T>, LockError> {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let deadline = clock::timespec(clock::realtime_ns().saturating_add(timeout_ns).min(i64::MAX as u64));
        // SAFETY: as in `lock`; the timespec outlives the call.
        match unsafe { libc::pthread_mutex_timedlock(self.raw.get(), &deadline) } {
            libc::ETIMEDOUT => Err(LockError::TimedOut { timeout }),
            rc => check(rc).map(|()| self.guard()),
        }
    }

    /// The value, without locking: the borrow shows that nobody else has the mutex.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T> Drop for PiMutex<T> {
    fn drop(&mut self) {
        // SAFETY: nobody borrows the mutex any more. A leaked guard leaves it locked; destroying it then
        // returns EBUSY and does nothing, and the memory is not used again.
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

    /// Field 18 of /proc/self/task/TID/stat: the priority with inheritance; negative is real-time.
    fn kernel_priority(tid: i32) -> i64 {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
        let after_name = stat.rsplit_once(')').unwrap().1;
        after_name.split_whitespace().nth(15).unwrap().parse().unwrap()
    }

    #[test]
    fn the_holder_inherits_the_priority_of_the_waiter() {
        let mutex = PiMutex::new(()).unwrap();
        let guard = mutex.lock().unwrap();
        let tid = sys::gettid();
        assert!(kernel_priority(tid) >= 0);
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
                eprintln!("SKIPPED: {refusal}");
                drop(guard);
                return;
            }
            while kernel_priority(tid) != -51 {
                std::thread::yield_now();
            }
            drop(guard);
            assert!(kernel_priority(tid) >= 0);
        });
    }
}
