//! Threads that work beside a run until it ends: a robot's collector, and whatever else it has of
//! the kind.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_rt::thread::{self, Handle};

use crate::LabError;

/// Reports those who hold a [`listener`](Self::listener) to end. It does so when it is dropped, so
/// that a run that breaks off leaves no thread behind.
#[derive(Debug, Default)]
pub struct EndFlag(Arc<AtomicBool>);

impl EndFlag {
    /// For a thread that is to end.
    pub fn listener(&self) -> Ending {
        Ending(Arc::clone(&self.0))
    }
}

impl Drop for EndFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Becomes true when the [`EndFlag`] is dropped.
#[derive(Clone, Debug)]
pub struct Ending(Arc<AtomicBool>);

impl Deref for Ending {
    type Target = AtomicBool;

    fn deref(&self) -> &AtomicBool {
        &self.0
    }
}

/// A best-effort thread that takes what a robot leaves, until it is asked to end or dropped.
#[derive(Debug)]
pub struct Collecting<C> {
    end: EndFlag,
    thread: Handle<Result<C, LabError>>,
}

impl<C: Send + 'static> Collecting<C> {
    /// Starts thread `name`, for reason `why`. `collect` takes until the flag is set and everything
    /// has been taken once more ([`until_stopped`](crate::collect::until_stopped)).
    ///
    /// # Errors
    /// [`LabError::Runtime`].
    pub fn start(
        name: &str,
        why: &str,
        collect: impl FnOnce(&AtomicBool) -> Result<C, LabError> + Send + 'static,
    ) -> Result<Self, LabError> {
        let end = EndFlag::default();
        let ending = end.listener();
        let thread = thread::spawn_exempt(name, why, move || collect(&ending))?;
        Ok(Self { end, thread })
    }

    /// Whether it has ended, by itself or because it failed.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until everything has been taken.
    ///
    /// # Errors
    /// The collector's error; [`LabError::Runtime`] if it panicked.
    pub fn end(self) -> Result<C, LabError> {
        self.join()?
    }

    /// The same, for a run that has a result even where its collector panicked: what it came to is
    /// apart from the panic.
    ///
    /// # Errors
    /// The panic.
    pub fn join(self) -> Result<Result<C, LabError>, takt_rt::Error> {
        drop(self.end);
        self.thread.join()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn counting(sender: mpsc::Sender<u32>) -> Collecting<u32> {
        Collecting::start("test-collect", "counts", move |end| {
            let mut turns = 0;
            while !end.load(Ordering::Acquire) {
                turns += 1;
                std::thread::yield_now();
            }
            sender.send(turns).expect("the test listens");
            Ok(turns)
        })
        .expect("a thread")
    }

    #[test]
    fn a_collector_ends_when_asked_and_when_dropped() {
        let (sender, ended) = mpsc::channel();
        let turns = counting(sender.clone()).end().unwrap();
        assert_eq!(ended.recv().unwrap(), turns);
        drop(counting(sender));
        // Nobody waits for the thread but this.
        ended.recv().unwrap();
    }

    #[test]
    fn what_it_fails_with_is_reported() {
        let failing = |_: &AtomicBool| -> Result<(), LabError> { Err(LabError::Internal("a test")) };
        let error = Collecting::start("test-collect", "fails", failing).unwrap().end().unwrap_err();
        assert!(matches!(error, LabError::Internal("a test")), "{error}");
    }
}
