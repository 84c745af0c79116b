//! The records of one loop, as they come.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use takt_rt::clock::monotonic_ns;
use takt_rt::procfs;
use takt_sdk::layout::{RECORD_JOB, RECORD_STAGE, Record};
use takt_sdk::ring::Ring;

use super::memory::{Region, RingMapping};

/// A record that says that it ends so long after now is none.
const AHEAD_NS: u64 = 1_000_000;

/// Why a loop's records cannot be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeclaredError {
    /// One session takes them.
    #[error("the records of loop \"{name}\" are taken by process {pid} already: end that one first")]
    Followed {
        /// The loop.
        name: String,
        /// The session's process.
        pid: u32,
    },
    /// The ring cannot be mapped.
    #[error("the records of loop \"{name}\" cannot be mapped: {source}")]
    Mapping {
        /// The loop.
        name: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// A job of a declared loop. CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// Its number.
    pub job: u64,
    /// When it was released.
    pub release_ns: u64,
    /// When it began.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Releases that were passed over before it, by the program's own count.
    pub skipped: u32,
    /// Sequence number of the input that it consumed.
    pub input: Option<u64>,
    /// Its value of interest.
    pub value: Option<f64>,
}

/// What a loop wrote down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Row {
    /// A job.
    Job(Job),
    /// A stage of a job.
    Stage {
        /// The job's number.
        job: u64,
        /// Number of the stage, in [`Declared::stages`](super::Declared::stages).
        stage: usize,
        /// When it began and ended.
        span_ns: [u64; 2],
    },
}

/// What was taken at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Records that were handed on.
    pub rows: u64,
    /// Records that found the ring full since the last time.
    pub lost: u64,
    /// Records that cannot be, and were left out: an end before the begin, a time to come.
    pub impossible: u64,
    /// The ring's counters contradict each other, so that it was emptied unread.
    pub is_damaged: bool,
    /// Another session takes the records now.
    pub is_replaced: bool,
}

/// Takes the records of a loop. One session at a time; it leaves when this is dropped.
#[derive(Debug)]
pub struct Follower {
    region: Arc<Region>,
    words: RingMapping,
    slot: usize,
    session: u64,
    lost: u64,
}

/// A session's number: its process, when that began (so that a pid that came again is another one),
/// and which of its sessions it is. 22 bits hold every pid that Linux gives.
fn session_of(pid: u32, nth: u64) -> u64 {
    u64::from(pid) & PID | (began(pid) << PID_BITS) & BEGAN | nth << (64 - NTH_BITS)
}

const PID_BITS: u32 = 22;
const NTH_BITS: u32 = 10;
const PID: u64 = (1 << PID_BITS) - 1;
const BEGAN: u64 = (1 << (64 - NTH_BITS)) - 1 - PID;

/// A new session of this process.
fn new_session() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    session_of(std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn pid_of(session: u64) -> u32 {
    // 22 bits.
    (session & PID) as u32
}

fn began(pid: u32) -> u64 {
    procfs::Stat::of(pid).and_then(|stat| stat.start_ticks()).unwrap_or(0)
}

/// Whether the process of that session still runs.
fn lives(session: u64) -> bool {
    let pid = pid_of(session);
    procfs::Stat::of(pid).is_some_and(|stat| stat.is_alive())
        && (session_of(pid, 0) ^ session) & (PID | BEGAN) == 0
}

impl Follower {
    pub(super) fn new(region: Arc<Region>, slot: usize, name: &str) -> Result<Self, DeclaredError> {
        let mapped = region.ring(slot);
        let words = mapped.map_err(|source| DeclaredError::Mapping { name: name.to_owned(), source })?;
        let mut follower = Self { region, words, slot, session: new_session(), lost: 0 };
        follower.attach().map_err(|pid| DeclaredError::Followed { name: name.to_owned(), pid })?;
        Ok(follower)
    }

    fn ring(&self) -> Option<Ring<'_>> {
        Ring::new(&self.region.slot(self.slot)?.counters, self.words.words())
    }

    fn attach(&mut self) -> Result<(), u32> {
        let Some(ring) = self.ring() else { return Err(0) };
        let there = ring.session();
        if there != 0 && there != self.session && lives(there) {
            return Err(pid_of(there));
        }
        let lost = ring.lost();
        ring.attach(self.session, there, monotonic_ns()).map_err(pid_of)?;
        self.lost = lost;
        Ok(())
    }

    /// Hands on what was written since the last time.
    pub fn take(&mut self, sink: &mut dyn FnMut(Row)) -> Taken {
        let now_ns = monotonic_ns();
        let Some(ring) = self.ring() else { return Taken::default() };
        let session = ring.session();
        if session != self.session && session != 0 {
            return Taken { is_replaced: true, ..Taken::default() };
        }
        let (mut rows, mut impossible) = (0, 0);
        let slot = self.slot;
        let taken = ring.take(now_ns, |words| match row(Record::from_words(words), slot, now_ns) {
            Some(row) => {
                rows += 1;
                sink(row);
            }
            None => impossible += 1,
        });
        let lost = ring.lost();
        let newly_lost = lost.wrapping_sub(self.lost);
        self.lost = lost;
        if session == 0 {
            // The program took this session for dead: it was not on a CPU for seconds.
            let _ = self.attach();
        }
        // A counter that a program sets back says nothing.
        let lost = if newly_lost > u64::MAX / 2 { 0 } else { newly_lost };
        Taken { rows, lost, impossible, is_damaged: taken.is_damaged, is_replaced: false }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(ring) = self.ring() {
            ring.detach(self.session);
        }
    }
}

/// A record as a row, where it can be one.
fn row(record: Record, slot: usize, now_ns: u64) -> Option<Row> {
    let Record { kind, stage, job, release_ns, begin_ns, end_ns, skipped, input, value, .. } = record;
    let can_be = usize::from(record.slot) == slot
        && release_ns > 0
        && begin_ns > 0
        && release_ns <= end_ns
        && begin_ns <= end_ns
        && end_ns <= now_ns.saturating_add(AHEAD_NS);
    match kind {
        _ if !can_be => None,
        RECORD_JOB => Some(Row::Job(Job {
            job,
            release_ns,
            begin_ns,
            end_ns,
            skipped,
            input: (input > 0).then_some(input),
            value: (!value.is_nan()).then_some(value),
        })),
        RECORD_STAGE if usize::from(stage) < takt_sdk::layout::MAX_STAGES => {
            Some(Row::Stage { job, stage: usize::from(stage), span_ns: [begin_ns, end_ns] })
        }
        _ => None,
    }
}

/// The session of another process, for tests.
#[cfg(test)]
pub(super) fn session_of_another(pid: u32, is_later: bool) -> u64 {
    session_of(pid, 0).wrapping_add(u64::from(is_later) << PID_BITS)
}
