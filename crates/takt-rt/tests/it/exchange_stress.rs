//! Several readers at full speed against one writer of large values: none is torn, none goes back.

use std::sync::atomic::{AtomicBool, Ordering};

use takt_rt::exchange::latest;

/// About the size of a camera's colour frame in words.
const WORDS: usize = 1 << 14;

#[test]
fn no_reader_sees_a_torn_or_older_value() {
    let writes = 4_000u64;
    let (mut writer, readers) = latest(4, || vec![0u64; WORDS]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (number, mut reader) in readers.into_iter().enumerate() {
            let done = &done;
            scope.spawn(move || {
                let (mut last, mut fresh) = (0, 0u64);
                loop {
                    let finished = done.load(Ordering::Acquire);
                    let newest = reader.sequence();
                    let snapshot = reader.read();
                    assert!(snapshot.sequence >= last && snapshot.sequence >= newest);
                    assert_eq!(snapshot.stamp_ns, snapshot.sequence.wrapping_mul(7));
                    // The last word is written last; the writer meanwhile goes on.
                    assert_eq!(snapshot.value[WORDS - 1], snapshot.sequence);
                    assert!(snapshot.value.iter().all(|&word| word == snapshot.sequence));
                    fresh += u64::from(snapshot.sequence != last);
                    last = snapshot.sequence;
                    if number == 0 {
                        // One reader sleeps on its value while the writer laps it.
                        std::thread::sleep(std::time::Duration::from_micros(300));
                        assert!(reader.held().value.iter().all(|&word| word == last));
                    }
                    if finished {
                        break;
                    }
                }
                assert_eq!(last, writes);
                assert!(fresh > 1);
            });
        }
        let done = &done;
        scope.spawn(move || {
            for sequence in 1..=writes {
                writer.write(sequence.wrapping_mul(7), |words| words.fill(sequence));
                if sequence % 64 == 0 {
                    std::thread::yield_now();
                }
            }
            done.store(true, Ordering::Release);
        });
    });
}
