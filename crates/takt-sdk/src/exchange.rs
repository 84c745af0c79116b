//! The newest value, from one writing thread to one reading thread, wait-free on both sides.
//!
//! Three buffers: the writer fills one, the reader reads another, and the third is handed over. One
//! byte says which one that is and whether it is new; each side takes it by one swap, and leaves
//! its own in its place. So no side ever finds the other one in its way, and a value is never torn.

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Arc;

use crate::sync::{AtomicU8, Ordering};

/// The handed-over buffer has not been read.
const NEW: u8 = 4;
const PLACE: u8 = 3;

struct Buffer<T> {
    sequence: u64,
    value: T,
}

struct Shared<T> {
    /// Which buffer is handed over, and [`NEW`].
    middle: AtomicU8,
    buffers: [UnsafeCell<Buffer<T>>; 3],
}

// SAFETY: a buffer belongs to the side whose `place` names it, or to nobody (the one in the
// middle); the swaps hand it over with acquire and release. A value is used by one thread at a
// time.
unsafe impl<T: Send> Sync for Shared<T> {}

/// Makes an exchange whose values begin as `first` makes them.
pub fn exchange<T: Send>(mut first: impl FnMut() -> T) -> (Writer<T>, Reader<T>) {
    let mut buffer = || UnsafeCell::new(Buffer { sequence: 0, value: first() });
    let shared = Arc::new(Shared { middle: AtomicU8::new(1), buffers: [buffer(), buffer(), buffer()] });
    let writer = Writer { shared: Arc::clone(&shared), place: 0, sequence: 0 };
    (writer, Reader { shared, place: 2 })
}

/// The writing side.
pub struct Writer<T> {
    shared: Arc<Shared<T>>,
    place: u8,
    sequence: u64,
}

impl<T: Send> Writer<T> {
    /// Real-time: the buffer of the next value; it holds an older one.
    pub fn buffer(&mut self) -> &mut T {
        // SAFETY: the buffer is this side's until it is published, and the borrow is exclusive.
        &mut unsafe { &mut *self.shared.buffers[usize::from(self.place)].get() }.value
    }

    /// Real-time: publishes what the buffer holds; returns the value's number, from 1.
    pub fn publish(&mut self) -> u64 {
        self.sequence = self.sequence.wrapping_add(1);
        // SAFETY: as above.
        unsafe { &mut *self.shared.buffers[usize::from(self.place)].get() }.sequence = self.sequence;
        // Release: the reader sees the value. Acquire: what the reader did with the buffer is over.
        self.place = self.shared.middle.swap(self.place | NEW, Ordering::AcqRel) & PLACE;
        self.sequence
    }

    /// Real-time: publishes a value.
    pub fn write(&mut self, value: T) -> u64 {
        *self.buffer() = value;
        self.publish()
    }
}

impl<T> fmt::Debug for Writer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

/// The reading side.
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    place: u8,
}

impl<T: Send> Reader<T> {
    /// Real-time: the newest value and its number, 0 before the first. It stays as it is until the
    /// next call.
    pub fn read(&mut self) -> (&T, u64) {
        if self.shared.middle.load(Ordering::Relaxed) & NEW != 0 {
            self.place = self.shared.middle.swap(self.place, Ordering::AcqRel) & PLACE;
        }
        // SAFETY: the buffer is this side's until the next call, which the borrow forbids.
        let buffer = unsafe { &*self.shared.buffers[usize::from(self.place)].get() };
        (&buffer.value, buffer.sequence)
    }
}

impl<T> fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(loom)]
    #[test]
    fn a_value_is_whole_and_never_older_than_the_one_before() {
        loom::model(|| {
            let (mut writer, mut reader) = exchange(|| [0u64; 2]);
            let thread = loom::thread::spawn(move || {
                for n in 1..=3 {
                    writer.write([n; 2]);
                }
            });
            let mut last = 0;
            for _ in 0..2 {
                let (value, sequence) = reader.read();
                assert!(*value == [sequence; 2] && sequence >= last);
                last = sequence;
            }
            thread.join().unwrap();
            assert_eq!(reader.read(), (&[3; 2], 3));
        });
    }

    #[cfg(not(loom))]
    #[test]
    fn the_newest_value_is_read_and_stays() {
        let (mut writer, mut reader) = exchange(|| 0u32);
        assert_eq!(reader.read(), (&0, 0));
        writer.write(7);
        assert_eq!(writer.write(8), 2);
        let (value, sequence) = reader.read();
        assert_eq!((*value, sequence), (8, 2));
        *writer.buffer() = 9;
        assert_eq!(reader.read(), (&8, 2), "what is not published is not seen");
        writer.publish();
        assert_eq!(reader.read(), (&9, 3));
    }

    // Real threads, also under miri.
    #[cfg(not(loom))]
    #[test]
    fn values_of_two_threads_are_whole_and_in_order() {
        let most: u64 = if cfg!(miri) { 100 } else { 200_000 };
        let (mut writer, mut reader) = exchange(|| [0u64; 16]);
        std::thread::scope(|scope| {
            scope.spawn(move || (1..=most).for_each(|n| _ = writer.write([n; 16])));
            let mut last = 0;
            while last < most {
                let (value, sequence) = reader.read();
                assert!(sequence >= last && value.iter().all(|word| *word == sequence));
                last = sequence;
                std::thread::yield_now();
            }
        });
    }
}
