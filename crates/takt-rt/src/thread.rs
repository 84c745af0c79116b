//! Named threads whose settings hold before their body runs.

use std::any::Any;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use serde::Serialize;

use crate::census;
use crate::error::Error;
use crate::policy::Policy;
use crate::settings::{Granted, ThreadSettings};
use crate::sys;

/// Longest name that the kernel keeps (TASK_COMM_LEN less the NUL).
pub const MAX_NAME_BYTES: usize = 15;

/// Stack beyond the prefaulted part.
const SPARE_STACK: usize = 256 << 10;
const DEFAULT_STACK: usize = 2 << 20;

/// A thread started by [`spawn`]. Dropping it lets the thread run on.
#[derive(Debug)]
pub struct Handle<T = ()> {
    name: String,
    granted: Granted,
    thread: JoinHandle<Result<T, String>>,
}

/// A thread and what the kernel granted it.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadReport {
    /// Its name.
    pub name: String,
    /// Asked and granted.
    pub granted: Granted,
}

/// Number of the calling thread.
pub fn own_tid() -> i32 {
    sys::gettid()
}

/// Gives the calling thread another name in the kernel, which cuts it after
/// [`MAX_NAME_BYTES`].
pub fn set_own_name(name: &CStr) {
    // SAFETY: the name is a string with its end.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Starts thread `name`, applies `settings` inside it, registers it with the [census] as a main
/// thread, and then runs `body` there. Returns when the settings have been applied.
///
/// The stack is 2 MiB, or the prefaulted part and 256 KiB where that is more.
///
/// # Errors
/// [`Error::NotGranted`] when the settings are strict and something was not granted (`body` has not
/// run then); [`Error::InvalidName`]; [`Error::Spawn`].
pub fn spawn<T, F>(name: &str, settings: &ThreadSettings, body: F) -> Result<Handle<T>, Error>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    spawn_with(name, settings, |_| body())
}

/// As [`spawn`]; the body is informed what was granted.
pub fn spawn_with<T, F>(name: &str, settings: &ThreadSettings, body: F) -> Result<Handle<T>, Error>
where
    T: Send + 'static,
    F: FnOnce(&Granted) -> T + Send + 'static,
{
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains('\0') {
        return Err(Error::InvalidName { given: name.to_owned() });
    }
    let stack = DEFAULT_STACK.max(settings.prefault_stack_bytes.saturating_add(SPARE_STACK));
    let (report, reported) = mpsc::sync_channel(1);
    let settings = settings.clone();
    let own_name = name.to_owned();
    let main = move || {
        // Before the settings: the census must not take this thread for a library's.
        let _registration = census::Registration::main(sys::gettid(), &own_name);
        let granted = settings.apply();
        let refused = granted.check(&own_name).is_err();
        if !refused {
            crate::ran_on::begin(&own_name, &granted);
        }
        // A send fails only when the spawner is gone, and it waits for this message.
        let _ = report.send(granted.clone());
        drop(report);
        if refused {
            return Err("refused by strict settings".to_owned());
        }
        catch_unwind(AssertUnwindSafe(|| body(&granted))).map_err(|payload| panic_message(payload.as_ref()))
    };
    let thread = Builder::new()
        .name(name.to_owned())
        .stack_size(stack)
        .spawn(main)
        .map_err(|source| Error::Spawn { thread: name.to_owned(), source })?;
    match reported.recv() {
        Ok(granted) => match granted.check(name) {
            Ok(()) => Ok(Handle { name: name.to_owned(), granted, thread }),
            Err(error) => {
                let _ = thread.join();
                Err(error)
            }
        },
        Err(_) => {
            let message = match thread.join() {
                Err(payload) => panic_message(payload.as_ref()),
                Ok(_) => "ended before its settings were applied".to_owned(),
            };
            Err(Error::Panicked { thread: name.to_owned(), message })
        }
    }
}

/// Starts a best-effort thread of Takt's own (SCHED_OTHER, whatever its parent has) that the census
/// leaves alone, for reason `why`: collectors, views, watchers.
///
/// # Errors
/// [`Error::InvalidName`]; [`Error::Spawn`].
pub fn spawn_exempt<T, F>(name: &str, why: &str, body: F) -> Result<Handle<T>, Error>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let why = why.to_owned();
    // The policy is set once more under the exemption: a scan may have come before it.
    spawn(name, &ThreadSettings::default(), move || {
        let _registration = census::Registration::exempt_self(&why);
        let _ = Policy::default().apply(0);
        body()
    })
}

impl<T> Handle<T> {
    /// The thread's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its thread id.
    pub fn tid(&self) -> i32 {
        self.granted.effective.tid
    }

    /// The requested and the granted settings.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// Both together.
    pub fn report(&self) -> ThreadReport {
        ThreadReport { name: self.name.clone(), granted: self.granted.clone() }
    }

    /// Whether the body has returned or panicked.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the body and returns its result.
    ///
    /// # Errors
    /// [`Error::Panicked`] when the body panicked.
    pub fn join(self) -> Result<T, Error> {
        let outcome = self.thread.join().unwrap_or_else(|payload| Err(panic_message(payload.as_ref())));
        outcome.map_err(|message| Error::Panicked { thread: self.name, message })
    }
}

/// The text of a panic payload.
fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::CpuSet;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn settings_hold_before_the_body_runs() {
        let settings = ThreadSettings {
            policy: Policy::Fifo { priority: 5 },
            prefault_stack_bytes: 3 << 20,
            ..Default::default()
        };
        let handle = spawn_with("rt-test", &settings, |granted| {
            assert_eq!(granted.effective.policy, Policy::read(0).ok());
            let comm = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            (comm, sys::gettid())
        })
        .unwrap();
        let tid = handle.tid();
        if !handle.granted().is_complete() {
            takt_witness::skip!("FIFO not granted: {:?}", handle.granted().differences);
        }
        assert_eq!(handle.join().unwrap(), ("rt-test\n".to_owned(), tid));
    }

    #[test]
    fn strict_refuses_and_lenient_labels() {
        let ran = Arc::new(AtomicBool::new(false));
        let mut settings =
            ThreadSettings { cpus: CpuSet::from_cpus([CpuSet::MAX_CPU]), strict: true, ..Default::default() };
        let flag = ran.clone();
        let refused = spawn("strict", &settings, move || flag.store(true, Ordering::SeqCst));
        assert!(matches!(refused, Err(Error::NotGranted { .. })));
        assert!(!ran.load(Ordering::SeqCst));

        settings.strict = false;
        let flag = ran.clone();
        let handle = spawn("lenient", &settings, move || flag.store(true, Ordering::SeqCst)).unwrap();
        assert_eq!(handle.granted().differences.len(), 1);
        handle.join().unwrap();
        assert!(ran.load(Ordering::SeqCst));
    }

    #[test]
    fn a_panic_is_an_error_of_the_join() {
        let handle =
            spawn("broken", &ThreadSettings::default(), || -> u32 { panic!("gear {} lost", 3) }).unwrap();
        let error = handle.join().unwrap_err();
        assert_eq!(error.to_string(), "thread `broken` panicked: gear 3 lost");
    }

    #[test]
    fn names_are_checked() {
        for name in ["", "sixteen bytes ab", "a\0b"] {
            assert!(matches!(spawn(name, &ThreadSettings::default(), || ()), Err(Error::InvalidName { .. })));
        }
    }
}
