//! The processes that take everything back after a kill, looked after: they may be killed, too.

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use takt_reserve::restore::watchdog::Watchdog;

/// The end of one is seen at once; so often it is looked whether the search is over.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    again: AtomicU32,
    failed: Mutex<Option<io::Error>>,
}

/// So many watch: whoever kills the search and its watchdog at once leaves the other.
const WATCHDOGS: usize = 2;

/// Watchdogs that are started anew where they end. In a thread of its own: a change of many threads
/// takes longer than one may be away.
#[derive(Debug)]
pub(crate) struct Guard {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Guard {
    /// Starts `command`, a program and its arguments.
    pub(crate) fn start(command: Vec<OsString>) -> io::Result<Self> {
        let mut watchdogs = (0..WATCHDOGS).map(|_| start(&command)).collect::<io::Result<Vec<_>>>()?;
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let look_after = move || {
            while !own.over.load(Ordering::Acquire) {
                for watchdog in &mut watchdogs {
                    if watchdog.is_alive() {
                        continue;
                    }
                    match start(&command) {
                        Ok(another) => *watchdog = another,
                        Err(error) => {
                            *own.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                            return;
                        }
                    }
                    own.again.fetch_add(1, Ordering::AcqRel);
                }
                Watchdog::await_end_of_any(&watchdogs, LOOK);
            }
        };
        let thread = std::thread::Builder::new().name("tune-guard".to_owned()).spawn(look_after)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Whether somebody watches, or why not.
    pub(crate) fn check(&self) -> io::Result<()> {
        self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// How often it had to be started anew.
    pub(crate) fn again(&self) -> u32 {
        self.shared.again.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn start(command: &[OsString]) -> io::Result<Watchdog> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments);
    Watchdog::start(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(what: impl Fn() -> bool) {
        while !what() {
            std::thread::sleep(LOOK);
        }
    }

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn one_that_ends_is_started_anew_and_one_that_stays_is_not() {
        let ending = Guard::start(words(&["sh", "-c", "exit 0"])).unwrap();
        until(|| ending.again() >= 2);
        ending.check().unwrap();
        drop(ending);
        // It ends with its input, as the real one.
        let staying = Guard::start(words(&["cat"])).unwrap();
        std::thread::sleep(5 * LOOK);
        assert_eq!(staying.again(), 0);
    }

    #[test]
    fn one_that_cannot_be_started_again_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("watchdog");
        std::fs::copy("/bin/true", &program).unwrap();
        let guard = Guard::start(vec![program.clone().into()]).unwrap();
        std::fs::remove_file(&program).unwrap();
        until(|| guard.check().is_err());
        assert!(Guard::start(vec![program.into()]).is_err());
        assert!(Guard::start(Vec::new()).is_err());
    }
}
