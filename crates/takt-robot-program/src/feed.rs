//! The thread that empties the rings of declared loops, often enough that they do not fill while
//! the collector is busy with the kernel's events.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use takt_rt::thread::{self, Handle};
use takt_watch::declared::{Follower, Row, Taken};

/// Rings are emptied so often: at 20 kHz each has room for twenty times that.
const PERIOD: Duration = Duration::from_millis(10);

/// Rows of one loop that wait for the collector, at most: 13 s at 20 kHz. More are lost.
const MAX_WAITING: usize = 1 << 18;

/// What has come of one loop since the last time.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) rows: Vec<Row>,
    /// What the ring, or this thread, had no room for.
    pub(crate) lost: u64,
    pub(crate) impossible: u64,
    pub(crate) is_damaged: bool,
    pub(crate) is_replaced: bool,
}

impl Batch {
    fn note(&mut self, taken: Taken) {
        self.lost = self.lost.saturating_add(taken.lost);
        self.impossible = self.impossible.saturating_add(taken.impossible);
        self.is_damaged |= taken.is_damaged;
        self.is_replaced |= taken.is_replaced;
    }

    fn push(&mut self, row: Row) {
        match self.rows.len() < MAX_WAITING {
            true => self.rows.push(row),
            false => self.lost = self.lost.saturating_add(1),
        }
    }
}

/// Empties rings until it is ended.
#[derive(Debug)]
pub(crate) struct Feed {
    batches: Arc<Vec<Mutex<Batch>>>,
    end: Arc<AtomicBool>,
    thread: Option<Handle<()>>,
}

impl Feed {
    /// Of these loops; `None` is one that is not declared.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(crate) fn start(mut followers: Vec<Option<Follower>>) -> Result<Self, takt_rt::Error> {
        let batches: Arc<Vec<Mutex<Batch>>> = Arc::new(followers.iter().map(|_| Mutex::default()).collect());
        let end: Arc<AtomicBool> = Arc::default();
        if followers.iter().all(Option::is_none) {
            return Ok(Self { batches, end, thread: None });
        }
        let (shared, ending) = (Arc::clone(&batches), Arc::clone(&end));
        let why = "takes the records of declared loops";
        let thread = thread::spawn_exempt("takt-declared", why, move || {
            loop {
                // Before emptying: what was written before the wish to end is still taken.
                let is_last = ending.load(Ordering::Acquire);
                for (follower, batch) in followers.iter_mut().zip(shared.iter()) {
                    let Some(follower) = follower else { continue };
                    let mut batch = batch.lock().unwrap_or_else(PoisonError::into_inner);
                    let taken = follower.take(&mut |row| batch.push(row));
                    batch.note(taken);
                }
                if is_last {
                    return;
                }
                std::thread::sleep(PERIOD);
            }
        })?;
        Ok(Self { batches, end, thread: Some(thread) })
    }

    /// What has come of a loop since the last time.
    pub(crate) fn take(&self, at: usize) -> Batch {
        let Some(batch) = self.batches.get(at) else { return Batch::default() };
        std::mem::take(&mut *batch.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Empties the rings once more, and leaves them.
    pub(crate) fn end(&mut self) {
        self.end.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // One that panicked leaves what it had taken.
            let _ = thread.join();
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.end();
    }
}
