//! Every interleaving of small cases of the latest-value register, under loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p takt-rt --release --test loom_exchange`.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use loom::cell::UnsafeCell;
use takt_rt::exchange::{Reader, Writer, latest};

/// A value whose accesses loom checks for races.
struct Checked(UnsafeCell<u64>);

// SAFETY: what the tests prove; loom reports any access that is not ordered.
unsafe impl Sync for Checked {}

fn checked() -> Checked {
    Checked(UnsafeCell::new(0))
}

fn write(writer: &mut Writer<Checked>, value: u64) {
    // SAFETY: loom checks that nobody else has the cell.
    writer.write(10 * value, |slot| slot.0.with_mut(|cell| unsafe { *cell = value }));
}

/// Reads and checks that the value is whole; returns its sequence.
fn read(reader: &mut Reader<Checked>) -> u64 {
    let newest = reader.sequence();
    let snapshot = reader.read();
    // SAFETY: loom checks that nobody writes the cell.
    let value = snapshot.value.0.with(|cell| unsafe { *cell });
    assert_eq!(value, snapshot.sequence);
    assert_eq!(snapshot.stamp_ns, 10 * snapshot.sequence);
    assert!(snapshot.sequence >= newest);
    value
}

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

#[test]
fn one_reader_sees_whole_values_in_order() {
    // Four writes reuse every one of the three slots. All interleavings.
    loom::model(|| {
        let (mut writer, mut readers) = latest(1, checked);
        let mut reader = readers.pop().unwrap();
        let thread = loom::thread::spawn(move || {
            let first = read(&mut reader);
            let second = read(&mut reader);
            assert!(second >= first);
            reader
        });
        for value in 1..=4 {
            write(&mut writer, value);
        }
        let mut reader = thread.join().unwrap();
        assert_eq!(read(&mut reader), 4);
    });
}

#[test]
fn two_readers_never_share_a_slot_with_the_writer() {
    // Two preemptions: one for each reader within its read. Three take many minutes.
    model(2, || {
        let (mut writer, mut readers) = latest(2, checked);
        let threads: Vec<_> = readers
            .drain(..)
            .map(|mut reader| {
                loom::thread::spawn(move || {
                    let first = read(&mut reader);
                    assert!(read(&mut reader) >= first);
                })
            })
            .collect();
        // As many writes as slots: the last one needs a slot that was current before.
        for value in 1..=4 {
            write(&mut writer, value);
        }
        for thread in threads {
            thread.join().unwrap();
        }
        // Both readers were dropped: what they held is free again.
        write(&mut writer, 5);
    });
}
