//! The cache of the last cycle: the controller writes it, any number of other threads read it.
//!
//! Behind a priority-inheritance mutex a controller that finds it locked waits for the one reader
//! inside, which runs at the controller's priority meanwhile; readers that queued earlier come
//! later (Figure 3 of the paper). With delayed locking a reader does not even enter when it might
//! still be inside at the next release (section 4).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use takt_rt::clock::monotonic_ns;
use takt_rt::exchange;
use takt_rt::pi_mutex::{LockError, PiMutex};

use super::config::{CacheKind, ControlConfig};

/// The data of one cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Cycles so far.
    pub cycle: u64,
    /// When the data were fetched, in CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Working counter of the exchange.
    pub working_counter: u16,
    /// The expected value.
    pub expected_counter: u16,
    /// Whether all devices are in OP.
    pub all_op: bool,
    /// The process image: inputs as fetched, outputs as sent.
    pub image: Vec<u8>,
}

impl Snapshot {
    pub(super) fn empty(image_bytes: usize) -> Self {
        let image = vec![0; image_bytes];
        Self { cycle: 0, at_ns: 0, working_counter: 0, expected_counter: 0, all_op: false, image }
    }

    /// Copies without allocating: images of one link are of one size.
    pub(super) fn copy_from(&mut self, other: &Self) {
        let Self { cycle, at_ns, working_counter, expected_counter, all_op, ref image } = *other;
        (self.cycle, self.at_ns, self.all_op) = (cycle, at_ns, all_op);
        (self.working_counter, self.expected_counter) = (working_counter, expected_counter);
        let length = self.image.len().min(image.len());
        self.image[..length].copy_from_slice(&image[..length]);
    }
}

/// State shared by readers and the controller.
struct CacheState {
    store: Store,
    /// The next release of the controller, for delayed locking; 0 before the first.
    next_release_ns: AtomicU64,
    /// A reader must have left so long before the release; `None` without delayed locking.
    leave_ns: Option<u64>,
    /// Entries of readers that were put off.
    delayed: AtomicU64,
}

enum Store {
    Pi(PiMutex<Snapshot>),
    Plain(Mutex<Snapshot>),
    /// The value travels through an exchange.
    Free,
}

/// The controller's end.
pub struct Publisher {
    shared: Arc<CacheState>,
    writer: Option<exchange::Writer<Snapshot>>,
    most_wait: Duration,
}

/// A reader's end.
pub struct CacheReader {
    shared: Arc<CacheState>,
    reader: Option<exchange::Reader<Snapshot>>,
}

/// A cache and its readers. A wait-free cache has `config.readers` of them; of the others more can
/// be made.
pub fn cache(config: &ControlConfig, image_bytes: usize) -> Result<(Publisher, Vec<CacheReader>), LockError> {
    let empty = || Snapshot::empty(image_bytes);
    let store = match config.cache {
        CacheKind::PiMutex => Store::Pi(PiMutex::new(empty())?),
        CacheKind::PlainMutex => Store::Plain(Mutex::new(empty())),
        CacheKind::Exchange => Store::Free,
    };
    let (writer, ends) = if matches!(store, Store::Free) {
        let (writer, readers) = exchange::latest(config.readers.min(exchange::MAX_READERS), empty);
        (Some(writer), readers.into_iter().map(Some).collect())
    } else {
        (None, (0..config.readers).map(|_| None).collect::<Vec<_>>())
    };
    let shared = Arc::new(CacheState {
        store,
        next_release_ns: AtomicU64::new(0),
        leave_ns: config.delayed_locking_us.map(|us| u64::from(us) * 1000),
        delayed: AtomicU64::new(0),
    });
    let readers =
        ends.into_iter().map(|reader| CacheReader { shared: Arc::clone(&shared), reader }).collect();
    let most_wait = Duration::from_micros(config.max_lock_wait_us.into());
    Ok((Publisher { shared, writer, most_wait }, readers))
}

/// Result of publishing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Whether the snapshot was stored; not when a reader held the cache for too long.
    pub stored: bool,
    /// Whether a reader was inside.
    pub contended: bool,
    /// Time waited for it.
    pub wait_ns: u64,
}

impl Publisher {
    /// Stores `snapshot`. Waits for at most one reader, and at most the configured time (a plain
    /// mutex: without bound).
    pub fn publish(&mut self, snapshot: &Snapshot) -> Published {
        let done = |contended, wait_ns| Published { stored: true, contended, wait_ns };
        if let Some(writer) = &mut self.writer {
            writer.write(snapshot.at_ns, |slot| slot.copy_from(snapshot));
            return done(false, 0);
        }
        match &self.shared.store {
            Store::Pi(mutex) => {
                if let Ok(mut slot) = mutex.try_lock() {
                    slot.copy_from(snapshot);
                    return done(false, 0);
                }
                let begun_ns = monotonic_ns();
                match mutex.lock_for(self.most_wait) {
                    Ok(mut slot) => {
                        let wait_ns = monotonic_ns() - begun_ns;
                        slot.copy_from(snapshot);
                        done(true, wait_ns)
                    }
                    Err(_) => {
                        Published { stored: false, contended: true, wait_ns: monotonic_ns() - begun_ns }
                    }
                }
            }
            Store::Plain(mutex) => {
                if let Ok(mut slot) = mutex.try_lock() {
                    slot.copy_from(snapshot);
                    return done(false, 0);
                }
                let begun_ns = monotonic_ns();
                let mut slot = mutex.lock().unwrap_or_else(PoisonError::into_inner);
                let wait_ns = monotonic_ns() - begun_ns;
                slot.copy_from(snapshot);
                done(true, wait_ns)
            }
            Store::Free => done(false, 0),
        }
    }

    /// Informs readers when the controller will want the cache next.
    pub fn announce(&self, next_release_ns: u64) {
        self.shared.next_release_ns.store(next_release_ns, Ordering::Release);
    }

    /// Entries of readers that delayed locking put off so far.
    pub fn delayed(&self) -> u64 {
        self.shared.delayed.load(Ordering::Relaxed)
    }
}

impl CacheReader {
    /// Another reader of the same cache; `None` for a wait-free cache, whose readers are counted
    /// beforehand.
    pub fn another(&self) -> Option<Self> {
        (!matches!(self.shared.store, Store::Free))
            .then(|| Self { shared: Arc::clone(&self.shared), reader: None })
    }

    /// Lets `look` see the last cycle. Keep it short: the controller may be waiting.
    ///
    /// # Errors
    /// [`LockError::Deadlock`] when called from inside `look`.
    pub fn read<R>(&mut self, look: impl FnOnce(&Snapshot) -> R) -> Result<R, LockError> {
        self.put_off();
        if let Some(reader) = &mut self.reader {
            return Ok(look(reader.read().value));
        }
        match &self.shared.store {
            Store::Pi(mutex) => Ok(look(&*mutex.lock()?)),
            Store::Plain(mutex) => Ok(look(&mutex.lock().unwrap_or_else(PoisonError::into_inner))),
            Store::Free => Err(LockError::Held),
        }
    }

    /// Delayed locking: waits past the next release when the reader might still be inside then.
    fn put_off(&self) {
        let Some(leave_ns) = self.shared.leave_ns else { return };
        if self.reader.is_some() {
            return;
        }
        // Twice at most: a controller that stopped announcing must not lock readers out.
        for _ in 0..2 {
            let next_ns = self.shared.next_release_ns.load(Ordering::Acquire);
            let now_ns = monotonic_ns();
            if now_ns >= next_ns || now_ns + leave_ns <= next_ns {
                return;
            }
            self.shared.delayed.fetch_add(1, Ordering::Relaxed);
            // The controller publishes soon after its release; it wins the race for the lock by its
            // priority.
            takt_rt::clock::sleep_until(next_ns + leave_ns / 2);
        }
    }
}
