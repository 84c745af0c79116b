//! A bounded queue from one thread to another that neither ever waits on: the wire of the job
//! records.
//!
//! Pushing costs two atomic operations on lines of its own; a full ring loses the new item and
//! counts it. Nothing is allocated after creation.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::sync::{AtomicU64, CachePadded, Ordering};

struct RingBuffer<T> {
    /// Items pushed.
    head: CachePadded<AtomicU64>,
    /// Items taken.
    tail: CachePadded<AtomicU64>,
    /// Items that found the ring full.
    lost: CachePadded<AtomicU64>,
    /// A power of two.
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: the producer writes slots between tail + capacity and head, the consumer reads those
// between tail and head; head and tail hand them over. Items are copied from thread to thread (T:
// Send).
unsafe impl<T: Send> Sync for RingBuffer<T> {}

/// Creates a ring of at least `capacity` items (rounded up to a power of two, at least 2).
pub fn ring<T: Copy + Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    // Beyond 2^32 items the allocation fails first.
    let capacity = capacity.clamp(2, 1 << 32).next_power_of_two();
    let shared = Arc::new(RingBuffer {
        head: CachePadded(AtomicU64::new(0)),
        tail: CachePadded(AtomicU64::new(0)),
        lost: CachePadded(AtomicU64::new(0)),
        slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
    });
    (Producer { shared: Arc::clone(&shared), head: 0, tail: 0, lost: 0 }, Consumer { shared, tail: 0 })
}

/// The pushing end.
pub struct Producer<T> {
    shared: Arc<RingBuffer<T>>,
    head: u64,
    /// The tail as last seen.
    tail: u64,
    lost: u64,
}

impl<T: Copy + Send> Producer<T> {
    /// Puts `item` into the ring; false when it is full, and the item is lost and counted.
    /// Wait-free.
    pub fn push(&mut self, item: T) -> bool {
        let capacity = self.shared.slots.len() as u64;
        if self.head - self.tail == capacity {
            // Acquire: the consumer's reads of the slots it freed are over.
            self.tail = self.shared.tail.0.load(Ordering::Acquire);
            if self.head - self.tail == capacity {
                self.lost += 1;
                self.shared.lost.0.store(self.lost, Ordering::Relaxed);
                return false;
            }
        }
        let slot = &self.shared.slots[(self.head & (capacity - 1)) as usize];
        // SAFETY: the slot is free: the consumer took what was in it, or nothing ever was.
        unsafe { (*slot.get()).write(item) };
        self.head += 1;
        self.shared.head.0.store(self.head, Ordering::Release);
        true
    }

    /// Items lost so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Items that fit.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("pushed", &self.head)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

/// The taking end.
pub struct Consumer<T> {
    shared: Arc<RingBuffer<T>>,
    tail: u64,
}

impl<T: Copy + Send> Consumer<T> {
    /// Takes items, oldest first, into the front of `batch`; returns how many. Wait-free.
    pub fn take(&mut self, batch: &mut [T]) -> usize {
        let mut free = batch.iter_mut();
        let most = free.len();
        self.take_each(most, |item| {
            if let Some(place) = free.next() {
                *place = item;
            }
        })
    }

    /// Appends at most `most` items, oldest first, to `batch`; returns how many. For items without
    /// a value to fill a batch with beforehand; allocates where `batch` lacks the capacity.
    pub fn take_into(&mut self, batch: &mut Vec<T>, most: usize) -> usize {
        self.take_each(most, |item| batch.push(item))
    }

    /// Hands out at most `most` items, then gives their slots back.
    fn take_each(&mut self, most: usize, mut put: impl FnMut(T)) -> usize {
        let head = self.shared.head.0.load(Ordering::Acquire);
        let count = ((head - self.tail) as usize).min(most);
        let mask = self.shared.slots.len() as u64 - 1;
        for offset in 0..count as u64 {
            let slot = &self.shared.slots[((self.tail + offset) & mask) as usize];
            // SAFETY: the slot is below the head acquired above, so it was written, and not yet
            // given back.
            put(unsafe { (*slot.get()).assume_init() });
        }
        self.tail += count as u64;
        self.shared.tail.0.store(self.tail, Ordering::Release);
        count
    }

    /// Items lost so far because the ring was full.
    pub fn lost(&self) -> u64 {
        self.shared.lost.0.load(Ordering::Relaxed)
    }

    /// Whether the producer has been dropped; what it pushed before can still be taken.
    pub fn is_abandoned(&self) -> bool {
        let alone = Arc::strong_count(&self.shared) == 1;
        // Orders the takes that follow after the producer's last push (Arc's drop releases).
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        alone
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("taken", &self.tail).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_counts_what_does_not_fit() {
        let (mut producer, mut consumer) = ring(3);
        assert_eq!(producer.capacity(), 4);
        let pushed: Vec<bool> = (0..6u32).map(|item| producer.push(item)).collect();
        assert_eq!(pushed, [true, true, true, true, false, false]);
        let mut batch = [0; 3];
        assert_eq!(consumer.take(&mut batch), 3);
        assert_eq!(batch, [0, 1, 2]);
        assert!(producer.push(6));
        assert_eq!(consumer.take(&mut batch), 2);
        assert_eq!(batch[..2], [3, 6]);
        assert_eq!(consumer.take(&mut batch), 0);
        assert_eq!((producer.lost(), consumer.lost()), (2, 2));
        assert!(!consumer.is_abandoned());
        drop(producer);
        assert!(consumer.is_abandoned());
    }

    #[test]
    fn every_item_arrives_once_or_is_counted() {
        let items: u64 = if cfg!(miri) { 300 } else { 2_000_000 };
        let (mut producer, mut consumer) = ring(64);
        let pusher = std::thread::spawn(move || {
            for item in 0..items {
                producer.push([item, !item]);
            }
        });
        let mut batch = [[0; 2]; 50];
        let (mut taken, mut next) = (0, 0);
        loop {
            let done = consumer.is_abandoned();
            let count = consumer.take(&mut batch);
            for [item, check] in &batch[..count] {
                assert_eq!(*check, !item);
                assert!(*item >= next);
                next = item + 1;
            }
            taken += count as u64;
            if done && count == 0 {
                break;
            }
        }
        pusher.join().unwrap();
        assert_eq!(taken + consumer.lost(), items);
        assert!(taken > 0);
    }
}
