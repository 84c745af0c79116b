//! The [`Watchdog`] looked after: it may be killed, too, and then another one has to watch.

use std::io;
use std::process::{ChildStdin, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::watchdog::Watchdog;

/// Between two starts: one that ends at once must not take the CPU.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct State {
    /// The watchdog ends where this is closed.
    input: Option<ChildStdin>,
    over: bool,
    again: u32,
    failed: Option<io::Error>,
}

/// A watchdog that is started anew where it ends. A thread waits for its end, so that nobody is
/// without one for longer than a start takes, whatever the caller does meanwhile.
#[derive(Debug)]
pub struct Guard {
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

impl Guard {
    /// Starts what `command` makes, which is to call [`run`](super::watchdog::run).
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(command: impl Fn() -> io::Result<Command> + Send + 'static) -> io::Result<Self> {
        let mut watchdog = Watchdog::start(command()?)?;
        let state = Arc::new(Mutex::new(State::default()));
        let own = Arc::clone(&state);
        let look_after = move || {
            loop {
                let mut state = lock(&own);
                if state.over {
                    return;
                }
                state.input = watchdog.take_input();
                drop(state);
                watchdog.wait();
                let mut state = lock(&own);
                if state.over {
                    return;
                }
                match command().and_then(Watchdog::start) {
                    Ok(another) => watchdog = another,
                    Err(error) => {
                        state.failed = Some(error);
                        return;
                    }
                }
                state.again += 1;
                drop(state);
                std::thread::sleep(PAUSE);
            }
        };
        let thread = std::thread::Builder::new().name("takt-guard".to_owned()).spawn(look_after)?;
        Ok(Self { state, thread: Some(thread) })
    }

    /// Checks the process; returns the number of its restarts.
    ///
    /// # Errors
    /// Nobody watches any more, and another one cannot be started.
    pub fn check(&self) -> io::Result<u32> {
        let mut state = lock(&self.state);
        state.failed.take().map_or(Ok(state.again), Err)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.over = true;
        state.input = None;
        drop(state);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(what: impl Fn() -> bool) {
        let came = (0..10_000).any(|_| {
            std::thread::sleep(PAUSE);
            what()
        });
        assert!(came, "it never came");
    }

    #[test]
    fn one_that_ends_is_started_anew_and_one_that_stays_is_not() {
        let ending = Guard::start(|| Ok(Command::new("true"))).unwrap();
        until(|| ending.check().unwrap() >= 2);
        drop(ending);
        // It ends with its input, as the real one.
        let staying = Guard::start(|| Ok(Command::new("cat"))).unwrap();
        std::thread::sleep(5 * PAUSE);
        assert_eq!(staying.check().unwrap(), 0);
    }

    #[test]
    fn one_that_cannot_be_started_again_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("watchdog");
        // A copy could not be started while another test's child holds it open for writing.
        std::os::unix::fs::symlink("/bin/true", &program).unwrap();
        let of = program.clone();
        let guard = Guard::start(move || Ok(Command::new(&of))).unwrap();
        std::fs::remove_file(&program).unwrap();
        until(|| guard.check().is_err());
        assert!(Guard::start(move || Ok(Command::new(&program))).is_err());
        assert!(Guard::start(|| Err(io::ErrorKind::NotFound.into())).is_err());
    }
}
