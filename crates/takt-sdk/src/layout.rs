//! The shared memory in which a program's loops lie: what a session of Takt finds in it, byte by
//! byte. Version 1.
//!
//! A process has at most one, an anonymous file (`memfd`) named [`MEMFD_NAME`], which a session
//! finds in `/proc/PID/fd`. It is sealed against shrinking and growing, so that nobody who maps it
//! can be ended by SIGBUS. It begins with a [`Head`]; the ring of slot `n` begins at
//! [`ring_offset`]`(n)`. All numbers are in the machine's byte order, and each is aligned.
//!
//! A session trusts nothing of it but its size, which the kernel keeps.

use crate::sync::{AtomicU8, AtomicU32, AtomicU64};

/// Name of the anonymous file; `/proc/PID/fd` shows `/memfd:takt-loops-1 (deleted)`.
pub const MEMFD_NAME: &std::ffi::CStr = c"takt-loops-1";

/// The first bytes of it.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"TAKTLOOP");

/// Of the layout.
pub const VERSION: u32 = 1;

/// Different loops of one process.
pub const MAX_LOOPS: usize = 64;

/// Bytes of a loop's name.
pub const MAX_NAME: usize = 47;

/// Stages of a loop.
pub const MAX_STAGES: usize = 8;

/// Bytes of a stage's name.
pub const MAX_STAGE_NAME: usize = 15;

/// Refused declarations that are kept.
pub const MAX_REFUSALS: usize = 16;

/// The longest period: an hour.
pub const MAX_PERIOD_NS: u64 = 3_600_000_000_000;

/// Words of a record.
pub const RECORD_WORDS: usize = 8;

/// Records of one ring: 4 s at 1 kHz, 200 ms at 20 kHz.
pub const RING_RECORDS: usize = 4096;

/// Words of one ring.
pub const RING_WORDS: usize = RING_RECORDS * RECORD_WORDS;

/// Bytes of one ring.
pub const RING_BYTES: usize = RING_WORDS * 8;

/// Bytes before the first ring: whole pages of all sizes that a kernel may have, up to 64 KiB.
pub const HEAD_BYTES: usize = 65_536;

/// Bytes of all of it. Pages that nobody touches do not exist.
pub const TOTAL_BYTES: usize = HEAD_BYTES + MAX_LOOPS * RING_BYTES;

/// Where a ring begins.
pub const fn ring_offset(slot: usize) -> usize {
    HEAD_BYTES + slot * RING_BYTES
}

/// `Slot::state`: declared, and not closed.
pub const STATE_OPEN: u32 = 1;
/// `Slot::state`: closed; its name may be declared again.
pub const STATE_CLOSED: u32 = 2;

/// `Slot::kind`: released by time.
pub const KIND_PERIODIC: u32 = 1;
/// `Slot::kind`: released by an input.
pub const KIND_DRIVEN: u32 = 2;

/// `Refusal::why`: the name is open already.
pub const REFUSED_TWICE: u32 = 1;
/// `Refusal::why`: a period of zero, or above an hour.
pub const REFUSED_PERIOD: u32 = 2;
/// `Refusal::why`: no slot is left.
pub const REFUSED_FULL: u32 = 3;

/// What the memory begins with.
#[repr(C)]
pub struct Head {
    /// [`MAGIC`], stored last.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The process, as it numbers itself.
    pub pid: AtomicU32,
    /// [`MAX_LOOPS`].
    pub max_loops: AtomicU32,
    /// [`RING_RECORDS`].
    pub ring_records: AtomicU32,
    /// Slots that have been used.
    pub loops: AtomicU32,
    /// Refused declarations, also those that are not kept.
    pub refused: AtomicU32,
    /// The first refused declarations.
    pub refusals: [Refusal; MAX_REFUSALS],
    /// The loops.
    pub slots: [Slot; MAX_LOOPS],
}

/// A declaration that was refused.
#[repr(C)]
pub struct Refusal {
    /// `REFUSED_…`; 0 while it is being written.
    pub why: AtomicU32,
    /// For alignment.
    pub reserved: AtomicU32,
    /// The period that was asked for.
    pub period_ns: AtomicU64,
    /// The loop's name, ended by a zero.
    pub name: [AtomicU8; MAX_NAME + 1],
}

/// A loop.
#[repr(C)]
pub struct Slot {
    /// Who writes and who reads the ring, and how far they are.
    pub counters: Counters,
    /// `STATE_…`; 0 before the first declaration.
    pub state: AtomicU32,
    /// `KIND_…`.
    pub kind: AtomicU32,
    /// Of a periodic loop.
    pub period_ns: AtomicU64,
    /// After the release; 0: none.
    pub deadline_ns: AtomicU64,
    /// It spins for so long before each release.
    pub spin_ns: AtomicU64,
    /// The thread that runs it, as the process numbers it.
    pub tid: AtomicU32,
    /// Stages that have names.
    pub stages: AtomicU32,
    /// Names of the stages, each ended by a zero.
    pub stage_names: [[AtomicU8; MAX_STAGE_NAME + 1]; MAX_STAGES],
    /// The loop's name, ended by a zero.
    pub name: [AtomicU8; MAX_NAME + 1],
    /// For later versions.
    pub reserved: [AtomicU64; 6],
}

/// The places of a ring's two sides.
#[repr(C, align(64))]
pub struct Counters {
    /// Who takes the records: a number of its own, 0 for nobody. Written by the session.
    pub attached: AtomicU64,
    /// When the session looked last, CLOCK_MONOTONIC. Written by the session.
    pub looked_ns: AtomicU64,
    /// Records that were read. Written by the session.
    pub read: AtomicU64,
    /// So that the two sides do not share a line.
    pub apart: [AtomicU64; 5],
    /// Records that were written. Written by the program.
    pub written: AtomicU64,
    /// Records that found the ring full. Written by the program.
    pub lost: AtomicU64,
    /// As above.
    pub also_apart: [AtomicU64; 6],
}

/// A record's kind: a job.
pub const RECORD_JOB: u8 = 1;
/// A record's kind: a stage of a job.
pub const RECORD_STAGE: u8 = 2;

/// What a loop writes down: a job, or a stage of one. 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// `RECORD_…`.
    pub kind: u8,
    /// Number of the stage, from 0.
    pub stage: u8,
    /// Number of the slot.
    pub slot: u16,
    /// Releases that were passed over before this one.
    pub skipped: u32,
    /// Number of the job, from 0.
    pub job: u64,
    /// When it was released.
    pub release_ns: u64,
    /// When it, or the stage, began.
    pub begin_ns: u64,
    /// When it, or the stage, ended.
    pub end_ns: u64,
    /// Of the input that it consumed; 0: none.
    pub input: u64,
    /// The value of interest; NaN: none.
    pub value: f64,
}

impl Record {
    /// As words.
    pub fn to_words(self) -> [u64; RECORD_WORDS] {
        let Self { kind, stage, slot, skipped, job, release_ns, begin_ns, end_ns, input, value } = self;
        let first =
            u64::from(kind) | u64::from(stage) << 8 | u64::from(slot) << 16 | u64::from(skipped) << 32;
        [first, job, release_ns, begin_ns, end_ns, input, value.to_bits(), 0]
    }

    /// From words, whatever they are.
    pub fn from_words(words: [u64; RECORD_WORDS]) -> Self {
        let [first, job, release_ns, begin_ns, end_ns, input, value, _] = words;
        Self {
            kind: first as u8,
            stage: (first >> 8) as u8,
            slot: (first >> 16) as u16,
            skipped: (first >> 32) as u32,
            job,
            release_ns,
            begin_ns,
            end_ns,
            input,
            value: f64::from_bits(value),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of, size_of};

    #[test]
    fn the_layout_is_the_one_of_version_1() {
        assert_eq!(size_of::<Counters>(), 128);
        assert_eq!((offset_of!(Counters, written), align_of::<Counters>()), (64, 64));
        assert_eq!(size_of::<Slot>(), 128 + 4 + 4 + 24 + 8 + 128 + 48 + 48 + 56);
        assert_eq!(size_of::<Slot>() % 64, 0);
        assert_eq!(offset_of!(Head, refusals), 32);
        assert_eq!(size_of::<Refusal>(), 64);
        assert_eq!(offset_of!(Head, slots) % 64, 0);
        assert!(size_of::<Head>() <= HEAD_BYTES);
        assert_eq!(TOTAL_BYTES, HEAD_BYTES + 64 * 262_144);
    }

    #[test]
    fn words_are_the_record() {
        let record = Record {
            kind: RECORD_STAGE,
            stage: 7,
            slot: 63,
            skipped: u32::MAX,
            job: 1,
            release_ns: 2,
            begin_ns: 3,
            end_ns: 4,
            input: 5,
            value: -1.5,
        };
        assert_eq!(Record::from_words(record.to_words()), record);
    }
}
