//! The ring of one loop's records: one writing thread, one reading session, in shared memory.
//!
//! Neither side waits for the other. The writer looks whether a session is there (a load and a
//! branch when not), whether there is room, writes the record, and says so. A full ring loses the
//! record and counts it. A session that was killed is forgotten when the ring has been full for
//! [`FORGOTTEN_NS`] since it looked last: from then on a record costs a load and a branch again.
//!
//! The model test runs every interleaving of a small case:
//! `RUSTFLAGS="--cfg loom" cargo test -p takt-sdk --release --lib`.

use crate::layout::{Counters, RECORD_WORDS};
use crate::sync::{AtomicU64, Ordering};

/// A session looks more often than this, or is gone. 5 s: a hundred times what lies between two
/// looks of one that runs, also on a busy machine.
pub const FORGOTTEN_NS: u64 = 5_000_000_000;

/// A ring, from either side. The records are as many as fit into `words`, a power of two.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    counters: &'a Counters,
    words: &'a [AtomicU64],
}

impl std::fmt::Debug for Ring<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("records", &self.records()).finish_non_exhaustive()
    }
}

/// What a session took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Records that were handed on.
    pub records: u64,
    /// The counters contradict each other, so that the ring was emptied unread.
    pub is_damaged: bool,
}

impl<'a> Ring<'a> {
    /// A ring over these; `None` where the number of records is no power of two.
    pub fn new(counters: &'a Counters, words: &'a [AtomicU64]) -> Option<Self> {
        let records = words.len() / RECORD_WORDS;
        records.is_power_of_two().then_some(Self { counters, words })
    }

    fn records(&self) -> u64 {
        (self.words.len() / RECORD_WORDS) as u64
    }

    fn place(&self, number: u64) -> &'a [AtomicU64] {
        // The number of records is a power of two.
        let at = (number & (self.records() - 1)) as usize * RECORD_WORDS;
        &self.words[at..at + RECORD_WORDS]
    }

    /// Whether a session takes records.
    #[inline]
    pub fn is_attached(&self) -> bool {
        // What the session wrote before it attached is seen, too.
        self.counters.attached.load(Ordering::Acquire) != 0
    }

    /// Of the program: writes a record down, where a session is there and the ring has room.
    /// `now_ns` is about the time.
    pub fn push(&self, record: [u64; RECORD_WORDS], now_ns: u64) {
        let session = self.counters.attached.load(Ordering::Acquire);
        if session == 0 {
            return;
        }
        // This thread alone writes it.
        let written = self.counters.written.load(Ordering::Relaxed);
        let read = self.counters.read.load(Ordering::Acquire);
        // A session that says that it has read more than there is has no say.
        if written.wrapping_sub(read) >= self.records() {
            let lost = self.counters.lost.load(Ordering::Relaxed);
            self.counters.lost.store(lost.wrapping_add(1), Ordering::Release);
            let looked_ns = self.counters.looked_ns.load(Ordering::Relaxed);
            if now_ns.saturating_sub(looked_ns) > FORGOTTEN_NS {
                // Not where another one has come in between.
                let _ =
                    self.counters.attached.compare_exchange(session, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
            return;
        }
        for (word, value) in self.place(written).iter().zip(record) {
            word.store(value, Ordering::Relaxed);
        }
        self.counters.written.store(written.wrapping_add(1), Ordering::Release);
    }

    /// Of a session: attaches as `session`, a number that is not 0, in the place of `before` (0:
    /// nobody). Records from now on are its own. Returns who is attached instead, where that is
    /// another one.
    ///
    /// # Errors
    /// The number of the session that is attached.
    pub fn attach(&self, session: u64, before: u64, now_ns: u64) -> Result<(), u64> {
        if before != 0 {
            // Nobody reads any more: the program stops to write, and what it wrote is left.
            self.counters.attached.compare_exchange(before, 0, Ordering::AcqRel, Ordering::Acquire)?;
        }
        let written = self.counters.written.load(Ordering::Acquire);
        self.counters.read.store(written, Ordering::Release);
        self.counters.looked_ns.store(now_ns, Ordering::Relaxed);
        self.counters.attached.compare_exchange(0, session, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }

    /// Of a session: leaves. Does nothing where another one has taken its place.
    pub fn detach(&self, session: u64) {
        let _ = self.counters.attached.compare_exchange(session, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Of a session: who is attached.
    pub fn session(&self) -> u64 {
        self.counters.attached.load(Ordering::Acquire)
    }

    /// Of a session: records that found the ring full so far.
    pub fn lost(&self) -> u64 {
        self.counters.lost.load(Ordering::Acquire)
    }

    /// Of a session: hands on the words of what was written since the last time, at most as many
    /// records as the ring has.
    pub fn take(&self, now_ns: u64, mut sink: impl FnMut([u64; RECORD_WORDS])) -> Taken {
        self.counters.looked_ns.store(now_ns, Ordering::Relaxed);
        let read = self.counters.read.load(Ordering::Relaxed);
        let written = self.counters.written.load(Ordering::Acquire);
        let waiting = written.wrapping_sub(read);
        if waiting > self.records() {
            self.counters.read.store(written, Ordering::Release);
            return Taken { records: 0, is_damaged: true };
        }
        for number in 0..waiting {
            let mut record = [0; RECORD_WORDS];
            for (value, word) in record.iter_mut().zip(self.place(read.wrapping_add(number))) {
                *value = word.load(Ordering::Relaxed);
            }
            sink(record);
        }
        self.counters.read.store(written, Ordering::Release);
        Taken { records: waiting, is_damaged: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> Counters {
        let zero = || AtomicU64::new(0);
        Counters {
            attached: zero(),
            looked_ns: zero(),
            read: zero(),
            apart: std::array::from_fn(|_| zero()),
            written: zero(),
            lost: zero(),
            also_apart: std::array::from_fn(|_| zero()),
        }
    }

    fn words(records: usize) -> Vec<AtomicU64> {
        (0..records * RECORD_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    #[cfg(loom)]
    #[test]
    fn a_record_is_whole_and_in_order_or_counted_as_lost() {
        use loom::sync::Arc;
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new((counters(), words(1)));
            let other = Arc::clone(&shared);
            let writer = loom::thread::spawn(move || {
                let ring = Ring::new(&other.0, &other.1).unwrap();
                for n in 1..=2 {
                    ring.push([n; RECORD_WORDS], 0);
                }
            });
            let ring = Ring::new(&shared.0, &shared.1).unwrap();
            ring.attach(7, 0, 0).unwrap();
            let mut seen = Vec::new();
            for _ in 0..2 {
                ring.take(0, |record| seen.push(record));
            }
            writer.join().unwrap();
            ring.take(0, |record| seen.push(record));
            for record in &seen {
                assert!(record.iter().all(|word| *word == record[0]), "{record:?}");
            }
            assert!(seen.is_sorted_by(|one, next| one[0] < next[0]), "{seen:?}");
            // Written before the session came, read, or lost.
            assert!(seen.len() as u64 + ring.lost() <= 2);
            assert!(!seen.is_empty() || ring.lost() == 0);
        });
    }

    #[cfg(not(loom))]
    mod plain {
        use super::*;

        #[test]
        fn without_a_session_nothing_is_written() {
            let (counters, words) = (counters(), words(4));
            let ring = Ring::new(&counters, &words).unwrap();
            ring.push([1; RECORD_WORDS], 0);
            assert_eq!(counters.written.load(Ordering::Relaxed), 0);
            assert!(!ring.is_attached());
            assert!(Ring::new(&counters, &words[..3 * RECORD_WORDS]).is_none());
            assert!(Ring::new(&counters, &[]).is_none());
        }

        #[test]
        fn a_full_ring_loses_counts_and_goes_on() {
            let (counters, words) = (counters(), words(4));
            let ring = Ring::new(&counters, &words).unwrap();
            ring.attach(9, 0, 100).unwrap();
            for n in 0..7 {
                ring.push([n; RECORD_WORDS], 100);
            }
            let mut seen = Vec::new();
            assert_eq!(ring.take(100, |record| seen.push(record[0])).records, 4);
            assert_eq!((seen, ring.lost()), (vec![0, 1, 2, 3], 3));
            ring.push([8; RECORD_WORDS], 100);
            let mut seen = Vec::new();
            ring.take(100, |record| seen.push(record[7]));
            assert_eq!(seen, [8]);
        }

        #[test]
        fn a_dead_session_is_forgotten_once_the_ring_is_full() {
            let (counters, words) = (counters(), words(2));
            let ring = Ring::new(&counters, &words).unwrap();
            ring.attach(9, 0, 100).unwrap();
            for _ in 0..3 {
                ring.push([0; RECORD_WORDS], 100 + FORGOTTEN_NS);
            }
            assert_eq!((ring.session(), ring.lost()), (9, 1));
            ring.push([0; RECORD_WORDS], 101 + FORGOTTEN_NS);
            assert_eq!((ring.session(), ring.lost()), (0, 2));
            ring.push([0; RECORD_WORDS], 102 + FORGOTTEN_NS);
            assert_eq!(ring.lost(), 2, "it costs a load and a branch again");
        }

        #[test]
        fn one_session_at_a_time_and_a_dead_one_is_replaced() {
            let (counters, words) = (counters(), words(2));
            let ring = Ring::new(&counters, &words).unwrap();
            ring.attach(9, 0, 0).unwrap();
            assert_eq!(ring.attach(8, 0, 0), Err(9));
            ring.push([5; RECORD_WORDS], 0);
            ring.attach(8, 9, 0).unwrap();
            assert_eq!(ring.take(0, |_| panic!("a record of the one before")).records, 0);
            // The dead one is not.
            ring.detach(9);
            assert_eq!(ring.session(), 8);
            ring.detach(8);
            assert_eq!(ring.session(), 0);
        }

        #[test]
        fn counters_that_cannot_be_are_damage_and_no_endless_work() {
            let (counters, words) = (counters(), words(4));
            let ring = Ring::new(&counters, &words).unwrap();
            ring.attach(9, 0, 0).unwrap();
            counters.written.store(u64::MAX / 2, Ordering::Relaxed);
            assert!(ring.take(0, |_| panic!("garbage")).is_damaged);
            ring.push([3; RECORD_WORDS], 0);
            let mut seen = 0;
            assert_eq!(ring.take(0, |_| seen += 1), Taken { records: 1, is_damaged: false });
            // A session that says that it has read more than there is.
            counters.read.store(u64::MAX, Ordering::Relaxed);
            ring.push([3; RECORD_WORDS], 0);
            assert_eq!(ring.lost(), 1);
        }

        // Real threads, also under miri.
        #[test]
        fn records_of_a_running_writer_are_whole_and_in_order() {
            let (counters, words) = (counters(), words(8));
            let most: u64 = if cfg!(miri) { 200 } else { 200_000 };
            Ring::new(&counters, &words).unwrap().attach(9, 0, 0).unwrap();
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let ring = Ring::new(&counters, &words).unwrap();
                    (1..=most).for_each(|n| ring.push([n; RECORD_WORDS], 0));
                });
                let ring = Ring::new(&counters, &words).unwrap();
                let (mut last, mut count) = (0, 0);
                loop {
                    let is_last = writer.is_finished();
                    let taken = ring.take(0, |record| {
                        assert!(record[0] > last && record.iter().all(|word| *word == record[0]));
                        (last, count) = (record[0], count + 1);
                    });
                    assert!(!taken.is_damaged);
                    if is_last {
                        break;
                    }
                    std::thread::yield_now();
                }
                assert_eq!(count + ring.lost(), most);
            });
        }
    }
}
