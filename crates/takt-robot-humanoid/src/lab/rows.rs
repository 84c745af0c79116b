//! Rows of the humanoid's sample files. Column names carry the units; times are CLOCK_MONOTONIC.

use serde::{Deserialize, Serialize};

use crate::run::CycleRecord;

pub const CYCLES: &str = "cycles";
pub const LATENCIES: &str = "latencies";

/// A cycle's knowledge of the previous one.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// Its wake-up.
    pub wake_ns: u64,
    /// When its command was handed to the control interface.
    pub begun_ns: u64,
    /// When its frame was about to be handed to the wire.
    pub sent_ns: u64,
}

impl Before {
    pub fn of(r: &CycleRecord) -> Self {
        Self { wake_ns: r.wake_ns, begun_ns: r.begun_ns, sent_ns: r.sent_ns }
    }
}

/// One line of the cycles file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleRow {
    /// Index on the release grid; a gap is a skipped release.
    pub index: u64,
    /// Planned release.
    pub planned_ns: u64,
    /// Wake-up.
    pub wake_ns: u64,
    /// Wake-up of the cycle before. The same as `wake_ns` in the first line.
    pub previous_wake_ns: u64,
    /// When the controller handed its command to the control interface, which then fetches and
    /// sends.
    pub begun_ns: u64,
    /// The same of the cycle before; the difference is the control period as the paper has it. The
    /// same as `begun_ns` in the first line.
    pub previous_begun_ns: u64,
    /// When the frame of the cycle before was about to be handed to the wire.
    pub previous_sent_ns: u64,
    /// When the frame was about to be handed to the wire.
    pub sent_ns: u64,
    /// When the answer to the frame of the cycle before (in a waiting exchange: of this one) had
    /// been taken; 0 when it was not there.
    pub taken_ns: u64,
    /// Inputs fetched, outputs sent, readers served.
    pub exchanged_ns: u64,
    /// Plan of the next cycle made.
    pub end_ns: u64,
    /// Time of fetching and sending alone.
    pub exchange_ns: u64,
    /// Time waited for a reader of the cache.
    pub lock_wait_ns: u64,
    /// Working counter of the frame that was fetched; 0 when none came.
    pub working_counter: u16,
    /// Frames given up by now: they never came back.
    pub lost_frames: u16,
    /// Frames that came now, cycles after they should have.
    pub late_frames: u16,
    /// Cycles by which inputs are older than fresh ones.
    pub stale_cycles: u16,
    /// Phase of the frame at the reference clock against its cycle; 0 without one.
    pub phase_ns: i32,
    /// Releases skipped before this one.
    pub skipped: u32,
    /// 0 enabling, 1 walking, 2 stopping, 3 stopped.
    pub mode: u8,
}

impl CycleRow {
    /// The line of a record, after the one `before` it.
    pub fn new(r: &CycleRecord, before: &Before) -> Self {
        Self {
            index: r.index,
            planned_ns: r.planned_ns,
            wake_ns: r.wake_ns,
            previous_wake_ns: before.wake_ns,
            begun_ns: r.begun_ns,
            previous_begun_ns: before.begun_ns,
            previous_sent_ns: before.sent_ns,
            sent_ns: r.sent_ns,
            taken_ns: r.taken_ns,
            exchanged_ns: r.exchanged_ns,
            end_ns: r.end_ns,
            exchange_ns: r.exchange_ns,
            lock_wait_ns: r.lock_wait_ns,
            working_counter: r.working_counter,
            lost_frames: r.lost,
            late_frames: r.late,
            stale_cycles: r.stale,
            phase_ns: r.phase.map_or(0, |phase| phase.frame_ns),
            skipped: r.skipped,
            mode: r.mode,
        }
    }
}
