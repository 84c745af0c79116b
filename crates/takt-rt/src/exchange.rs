//! The latest-value register: one writer, several readers, each reader sees the newest complete
//! value.
//!
//! Wait-free on both sides: no operation ever waits for, or retries because of, another thread.
//! Values of any size are filled in place and read in place; nothing is copied and nothing is
//! allocated after creation.
//!
//! The algorithm is ARC, Anonymous Readers Counting (Ianni, Pellegrini, Quaglia, "Anonymous Readers
//! Counting: A Wait-Free Multi-Word Atomic Register Algorithm for Scalable Data Sharing on
//! Multi-Core Machines", IEEE TPDS 2019). One word holds the index of the current slot and the
//! number of readers that have entered it. A reader that finds a fresh slot counts itself out of
//! its old slot and enters the new one by one `fetch_add` of that word; a reader that finds nothing
//! new does one plain load. The writer fills a slot that nobody holds and swaps it in; the swap
//! returns how many readers entered the replaced slot, and that slot is free when as many have
//! left. With `R` readers, at most `R` slots are held and one is current, so among `R + 2` one is
//! always free.
//!
//! The word also carries the sequence number, so [`Reader::sequence`] is one load and never
//! disagrees with what [`Reader::read`] returns.
//!
//! The model test runs every interleaving of a small case under loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p takt-rt --release --test loom_exchange`.

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Arc;

use crate::sync::{AtomicU32, AtomicU64, CachePadded, Ordering};

/// Readers that one register can have: the count and the slot index have ten bits each in the
/// shared word.
pub const MAX_READERS: usize = (1 << COUNT_BITS) - 3;

const COUNT_BITS: u32 = 10;
const INDEX_BITS: u32 = 10;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// `sequence | slot index | readers entered`, from the high bits to the low ones.
fn pack(sequence: u64, index: usize, entered: u64) -> u64 {
    // The sequence keeps its low 44 bits: 557 years at 1 kHz.
    (sequence << (COUNT_BITS + INDEX_BITS)) | ((index as u64) << COUNT_BITS) | entered
}

fn index_of(word: u64) -> usize {
    ((word >> COUNT_BITS) & INDEX_MASK) as usize
}

fn entered_of(word: u64) -> u32 {
    (word & COUNT_MASK) as u32
}

fn sequence_of(word: u64) -> u64 {
    word >> (COUNT_BITS + INDEX_BITS)
}

struct Body<T> {
    sequence: u64,
    stamp_ns: u64,
    value: T,
}

struct Slot<T> {
    /// Readers that have left since the slot was last published.
    left: AtomicU32,
    body: UnsafeCell<Body<T>>,
}

struct Register<T> {
    current: CachePadded<AtomicU64>,
    slots: Box<[CachePadded<Slot<T>>]>,
}

// SAFETY: the algorithm gives the writer exclusive access to a slot that nobody holds, and readers
// shared access to a slot that they hold until they leave it. Readers on several threads hold `&T`
// (T: Sync), and the writer changes and drops values that another thread made (T: Send).
unsafe impl<T: Send + Sync> Sync for Register<T> {}

/// Creates a register for `readers` readers, with `readers + 2` slots, each made by `init`.
///
/// Until the first write, readers see a value of `init` with sequence 0 and stamp 0.
///
/// # Panics
/// When `readers` exceeds [`MAX_READERS`].
pub fn latest<T: Send + Sync>(readers: usize, mut init: impl FnMut() -> T) -> (Writer<T>, Vec<Reader<T>>) {
    assert!(readers <= MAX_READERS, "a register has at most {MAX_READERS} readers, asked for {readers}");
    let slots: Box<[_]> = (0..readers + 2)
        .map(|_| {
            let body = Body { sequence: 0, stamp_ns: 0, value: init() };
            CachePadded(Slot { left: AtomicU32::new(0), body: UnsafeCell::new(body) })
        })
        .collect();
    // All readers start inside slot 0.
    let current = CachePadded(AtomicU64::new(pack(0, 0, readers as u64)));
    let shared = Arc::new(Register { current, slots });
    let readers = (0..readers).map(|_| Reader { shared: Arc::clone(&shared), held: 0 }).collect();
    let entered = vec![0; shared.slots.len()].into_boxed_slice();
    (Writer { shared, entered, index: 0, sequence: 0 }, readers)
}

/// The writing side of a register; there is one.
pub struct Writer<T> {
    shared: Arc<Register<T>>,
    /// For every slot but the current one: readers that had entered it when it was replaced.
    entered: Box<[u32]>,
    /// The current slot.
    index: usize,
    sequence: u64,
}

impl<T: Send + Sync> Writer<T> {
    /// Lets `fill` write the next value in place, publishes it with `stamp_ns`, and returns its
    /// sequence number (1 for the first).
    ///
    /// `fill` gets a slot with what an older write, or `init`, left there: buffers are reused, so
    /// fill it wholly. When `fill` panics, nothing is published.
    ///
    /// Takes at most `readers + 2` steps besides `fill`.
    pub fn write(&mut self, stamp_ns: u64, fill: impl FnOnce(&mut T)) -> u64 {
        let free = self.find_free();
        let slot = &self.shared.slots[free].0;
        let sequence = self.sequence + 1;
        // SAFETY: the slot is not current and every reader that entered it has left it; none can
        // enter before the swap below. `find_free` acquired what the leaving readers released, so
        // their reads are over.
        let body = unsafe { &mut *slot.body.get() };
        fill(&mut body.value);
        body.sequence = sequence;
        body.stamp_ns = stamp_ns;
        slot.left.store(0, Ordering::Relaxed);
        // Release publishes the slot. Acquire makes the writer see, with every reader that entered
        // the replaced slot, that it has left its former one: a reader never counts as holding two.
        let replaced = self.shared.current.0.swap(pack(sequence, free, 0), Ordering::AcqRel);
        self.entered[self.index] = entered_of(replaced);
        self.index = free;
        self.sequence = sequence;
        sequence
    }

    /// Publishes `value` with `stamp_ns` and returns its sequence number. For small values; the
    /// value that it replaces in the reused slot is dropped here.
    pub fn publish(&mut self, stamp_ns: u64, value: T) -> u64 {
        self.write(stamp_ns, |slot| *slot = value)
    }

    /// The sequence number of the newest value (0 before the first write).
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// A slot that is not current and that all readers have left; the search starts at the oldest.
    fn find_free(&self) -> usize {
        let slots = &self.shared.slots;
        (1..slots.len())
            .map(|step| {
                let index = self.index + step;
                if index < slots.len() { index } else { index - slots.len() }
            })
            .find(|&index| slots[index].0.left.load(Ordering::Acquire) == self.entered[index])
            .expect("R readers hold at most R slots and one is current, so one of R + 2 is free")
    }
}

impl<T> fmt::Debug for Writer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

/// A reading side of a register. Each reader holds the slot that it read last, until it reads
/// again.
pub struct Reader<T> {
    shared: Arc<Register<T>>,
    held: usize,
}

impl<T: Send + Sync> Reader<T> {
    /// The newest complete value. It stays as it is for as long as the snapshot lives, whatever the
    /// writer does meanwhile.
    ///
    /// One plain load when nothing is new, else two atomic additions more.
    pub fn read(&mut self) -> Snapshot<'_, T> {
        // Relaxed: when the index is the held one, the slot has not been republished since this
        // reader acquired it (it is not free while held); otherwise the addition below acquires.
        if index_of(self.shared.current.0.load(Ordering::Relaxed)) != self.held {
            // Release: the reads of the old value are over before the writer sees the slot free.
            self.shared.slots[self.held].0.left.fetch_add(1, Ordering::Release);
            // Acquire what the writer's swap released (additions of other readers in between
            // continue its release sequence). Release orders the leaving above before the entering,
            // for the writer's swap.
            let word = self.shared.current.0.fetch_add(1, Ordering::AcqRel);
            self.held = index_of(word);
        }
        self.held()
    }

    /// The value of the last [`read`](Self::read) again, without looking for a newer one.
    pub fn held(&self) -> Snapshot<'_, T> {
        // SAFETY: this reader has entered the slot and not left it, so the writer does not touch
        // it. Leaving needs `&mut self`, which the snapshot's borrow forbids.
        let body = unsafe { &*self.shared.slots[self.held].0.body.get() };
        Snapshot { sequence: body.sequence, stamp_ns: body.stamp_ns, value: &body.value }
    }

    /// The sequence number of the newest published value, by one load: what the next
    /// [`read`](Self::read) returns is at least as new. 0 before the first write; the low 44 bits
    /// of the snapshot's sequence.
    pub fn sequence(&self) -> u64 {
        sequence_of(self.shared.current.0.load(Ordering::Acquire))
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        self.shared.slots[self.held].0.left.fetch_add(1, Ordering::Release);
    }
}

impl<T> fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("held", &self.held).finish_non_exhaustive()
    }
}

/// A complete value of a register.
#[derive(Debug)]
pub struct Snapshot<'a, T> {
    /// Counts the writes, from 1; 0 is the initial value.
    pub sequence: u64,
    /// The writer's time stamp in nanoseconds of `CLOCK_MONOTONIC`; 0 for the initial value.
    pub stamp_ns: u64,
    /// The value.
    pub value: &'a T,
}

impl<T> Clone for Snapshot<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Snapshot<'_, T> {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn initial_value_has_sequence_zero() {
        let (writer, mut readers) = latest(2, || 7u32);
        for reader in &mut readers {
            assert_eq!(reader.sequence(), 0);
            let snapshot = reader.read();
            assert_eq!((snapshot.sequence, snapshot.stamp_ns, *snapshot.value), (0, 0, 7));
        }
        assert_eq!(writer.sequence(), 0);
    }

    #[test]
    fn newest_value_wins_and_old_snapshots_stay() {
        let (mut writer, mut readers) = latest(2, || 0u64);
        let mut second = readers.pop().unwrap();
        let mut first = readers.pop().unwrap();
        assert_eq!(writer.publish(10, 100), 1);
        let old = first.read();
        for n in 2..1000u64 {
            assert_eq!(writer.publish(10 * n, 100 * n), n);
            assert_eq!(second.sequence(), n);
            let new = second.read();
            assert_eq!((new.sequence, new.stamp_ns, *new.value), (n, 10 * n, 100 * n));
            assert_eq!((old.sequence, old.stamp_ns, *old.value), (1, 10, 100));
        }
        assert_eq!(first.held().sequence, 1);
        assert_eq!(first.read().sequence, 999);
    }

    #[test]
    fn dropped_and_forgotten_readers_do_not_starve_the_writer() {
        let (mut writer, mut readers) = latest(3, || 0u64);
        drop(readers.pop());
        writer.publish(0, 1);
        readers[0].read();
        std::mem::forget(readers.pop());
        for n in 2..100 {
            writer.publish(0, n);
            assert_eq!(*readers[0].read().value, n);
        }
    }

    #[test]
    fn works_without_readers_and_outlives_either_side() {
        let (mut writer, readers) = latest(0, || 0u8);
        assert!(readers.is_empty());
        assert_eq!(writer.publish(0, 1), 1);
        assert_eq!(writer.publish(0, 2), 2);
        let (mut writer, mut readers) = latest(1, String::new);
        writer.publish(1, "last words".into());
        drop(writer);
        assert_eq!(readers[0].read().value, "last words");
    }

    #[test]
    fn slots_are_filled_in_place() {
        let (mut writer, mut readers) = latest(1, || vec![0u8; 1 << 10]);
        let mut addresses = std::collections::HashSet::new();
        for n in 0..100u8 {
            writer.write(0, |buffer| buffer.fill(n));
            let snapshot = readers[0].read();
            assert!(snapshot.value.iter().all(|&byte| byte == n));
            addresses.insert(snapshot.value.as_ptr());
        }
        assert!(addresses.len() <= 3, "only the buffers made at creation are used");
    }

    #[test]
    fn a_panic_while_filling_publishes_nothing() {
        let (mut writer, mut readers) = latest(1, || 0u32);
        writer.publish(1, 5);
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            writer.write(2, |_| panic!("broken fill"));
        }));
        assert!(broken.is_err());
        assert_eq!(*readers[0].read().value, 5);
        assert_eq!(writer.publish(3, 6), 2);
        assert_eq!(*readers[0].read().value, 6);
    }

    #[test]
    fn every_value_is_dropped_once() {
        let token = Arc::new(());
        let (mut writer, mut readers) = latest(2, || Arc::clone(&token));
        for _ in 0..10 {
            writer.publish(0, Arc::clone(&token));
            readers[0].read();
        }
        drop((writer, readers));
        assert_eq!(Arc::strong_count(&token), 1);
    }

    // Small under miri, which runs this one with real threads and checks the orderings.
    #[test]
    fn concurrent_readers_see_whole_values_in_order() {
        let writes: u64 = if cfg!(miri) { 60 } else { 200_000 };
        let (mut writer, readers) = latest(3, || [0u64; 16]);
        std::thread::scope(|scope| {
            for mut reader in readers {
                scope.spawn(move || {
                    let mut last = 0;
                    while last < writes {
                        let newest = reader.sequence();
                        let snapshot = reader.read();
                        assert!(snapshot.sequence >= newest && snapshot.sequence >= last);
                        assert!(snapshot.value.iter().all(|&word| word == snapshot.sequence));
                        assert_eq!(snapshot.stamp_ns, 3 * snapshot.sequence);
                        last = snapshot.sequence;
                        std::thread::yield_now();
                    }
                });
            }
            scope.spawn(move || {
                for n in 1..=writes {
                    writer.write(3 * n, |words| words.fill(n));
                }
            });
        });
    }
}
