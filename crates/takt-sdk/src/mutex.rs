//! A lock with priority inheritance: the thread that holds it runs at the priority of the highest
//! waiter, so that a real-time thread never waits for a preempted best-effort one.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

use crate::error::Error;

/// The bare lock: who locks it unlocks it.
pub struct RawMutex {
    /// Boxed: a pthread mutex must not move.
    raw: Box<UnsafeCell<libc::pthread_mutex_t>>,
}

// SAFETY: a pthread mutex is made for use by several threads.
unsafe impl Send for RawMutex {}
// SAFETY: as above.
unsafe impl Sync for RawMutex {}

fn check(what: &'static str, answer: libc::c_int) -> Result<(), Error> {
    match answer {
        0 => Ok(()),
        libc::EBUSY => Err(Error::Held),
        libc::EDEADLK => Err(Error::Deadlock),
        errno => Err(Error::System { what, errno }),
    }
}

impl RawMutex {
    /// An unlocked one.
    ///
    /// # Errors
    /// [`Error::System`] where the system has no priority inheritance.
    pub fn new() -> Result<Self, Error> {
        let raw = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: the attributes are initialised first, used while alive, and destroyed once; the
        // mutex is initialised at the address where it stays, before anything locks it.
        unsafe {
            check("pthread_mutexattr_init", libc::pthread_mutexattr_init(attributes))?;
            let protocol = libc::pthread_mutexattr_setprotocol(attributes, libc::PTHREAD_PRIO_INHERIT);
            let made = check("priority inheritance (the kernel needs CONFIG_FUTEX_PI)", protocol)
                .and_then(|()| {
                    let kind = libc::pthread_mutexattr_settype(attributes, libc::PTHREAD_MUTEX_ERRORCHECK);
                    check("pthread_mutexattr_settype", kind)
                })
                .and_then(|()| {
                    let made = libc::pthread_mutex_init(raw.get(), attributes);
                    check("priority inheritance (the kernel needs CONFIG_FUTEX_PI)", made)
                });
            libc::pthread_mutexattr_destroy(attributes);
            made?;
        }
        Ok(Self { raw })
    }

    /// Waits while another thread holds it.
    ///
    /// # Errors
    /// [`Error::Deadlock`] where this thread holds it.
    pub fn lock(&self) -> Result<(), Error> {
        // SAFETY: the mutex is initialised and lives as long as `self`.
        check("pthread_mutex_lock", unsafe { libc::pthread_mutex_lock(self.raw.get()) })
    }

    /// Locks where that needs no waiting.
    ///
    /// # Errors
    /// [`Error::Held`].
    pub fn try_lock(&self) -> Result<(), Error> {
        // SAFETY: as above.
        check("pthread_mutex_trylock", unsafe { libc::pthread_mutex_trylock(self.raw.get()) })
    }

    /// Unlocks; of the thread that holds it.
    ///
    /// # Errors
    /// [`Error::System`] (EPERM) where this thread does not hold it.
    pub fn unlock(&self) -> Result<(), Error> {
        // SAFETY: as above; a mutex of this kind refuses a thread that does not hold it.
        check("unlocking a lock that this thread does not hold", unsafe {
            libc::pthread_mutex_unlock(self.raw.get())
        })
    }
}

impl Drop for RawMutex {
    fn drop(&mut self) {
        // SAFETY: nobody borrows it any more; a locked one is left alone by the system (EBUSY).
        unsafe { libc::pthread_mutex_destroy(self.raw.get()) };
    }
}

impl fmt::Debug for RawMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawMutex").finish_non_exhaustive()
    }
}

/// A value behind a lock with priority inheritance. A panic while it is held does not poison it.
#[derive(Debug)]
pub struct PiMutex<T> {
    raw: RawMutex,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives one thread at a time access to the value.
unsafe impl<T: Send> Sync for PiMutex<T> {}

impl<T> PiMutex<T> {
    /// An unlocked one.
    ///
    /// # Errors
    /// [`Error::System`] where the system has no priority inheritance.
    pub fn new(value: T) -> Result<Self, Error> {
        Ok(Self { raw: RawMutex::new()?, value: UnsafeCell::new(value) })
    }

    fn guard(&self) -> PiGuard<'_, T> {
        PiGuard { mutex: self, not_send: PhantomData }
    }

    /// Waits while another thread holds it.
    ///
    /// # Errors
    /// [`Error::Deadlock`] where this thread holds it.
    pub fn lock(&self) -> Result<PiGuard<'_, T>, Error> {
        self.raw.lock()?;
        Ok(self.guard())
    }

    /// Locks where that needs no waiting.
    ///
    /// # Errors
    /// [`Error::Held`].
    pub fn try_lock(&self) -> Result<PiGuard<'_, T>, Error> {
        self.raw.try_lock()?;
        Ok(self.guard())
    }
}

/// A locked [`PiMutex`], unlocked when dropped.
#[must_use = "the lock ends when the guard is dropped"]
pub struct PiGuard<'a, T> {
    mutex: &'a PiMutex<T>,
    /// Unlocked by the thread that locked it.
    not_send: PhantomData<*const ()>,
}

impl<T> Deref for PiGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for PiGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the lock, and the borrow is exclusive.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for PiGuard<'_, T> {
    fn drop(&mut self) {
        // This thread holds it: it cannot be refused.
        let _ = self.mutex.raw.unlock();
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

    #[test]
    fn it_excludes_and_says_who_is_wrong() {
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
        let guard = counter.lock().unwrap();
        assert_eq!(*guard, 40_000);
        assert_eq!(counter.lock().unwrap_err(), Error::Deadlock);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(counter.try_lock().unwrap_err(), Error::Held));
        });
        drop(guard);
        drop(counter.try_lock().unwrap());
        assert!(matches!(RawMutex::new().unwrap().unlock(), Err(Error::System { errno: libc::EPERM, .. })));
    }
}
