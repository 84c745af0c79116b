//! Layout of the samples of a perf.data: its list of events (`struct perf_event_attr`).

use std::collections::HashMap;

use super::bytes::{u32_at, u64_at};
use super::error::OfflineError;
use super::limits::MAX_ATTRS;
use crate::event::Clock;

/// Bits of `sample_type` (PERF_SAMPLE_*).
mod sample {
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const IDENTIFIER: u64 = 1 << 16;
}

/// PERF_TYPE_TRACEPOINT.
const TYPE_TRACEPOINT: u32 = 2;

/// Layout of the samples of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    sample_type: u64,
    read_format: u64,
    sample_id_all: bool,
    pub(super) tracepoint: bool,
}

/// The fields read from a sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample<'a> {
    pub(super) time_ns: u64,
    pub(super) cpu: u16,
    pub(super) raw: &'a [u8],
}

impl Layout {
    /// Takes a sample apart, in the order that PERF_RECORD_SAMPLE has. None where it is too short,
    /// or where it has no raw record.
    pub(super) fn sample<'a>(&self, body: &'a [u8]) -> Option<Sample<'a>> {
        let mut at = 0usize;
        let has = |bit: u64| self.sample_type & bit != 0;
        let words = |bits: u64| (self.sample_type & bits).count_ones() as usize * 8;
        at += words(sample::IDENTIFIER | sample::IP | sample::TID);
        let time_at = at;
        at += words(sample::TIME | sample::ADDR | sample::ID | sample::STREAM_ID);
        let cpu_at = at;
        at += words(sample::CPU | sample::PERIOD);
        if has(sample::READ) {
            at = at.checked_add(self.read_bytes(body.get(at..)?)?)?;
        }
        if has(sample::CALLCHAIN) {
            let entries = usize::try_from(u64_at(body, at)).ok()?;
            at = at.checked_add(entries.checked_mul(8)?)?.checked_add(8)?;
        }
        if !has(sample::RAW) {
            return None;
        }
        let size = u32_at(body, at) as usize;
        let raw = body.get(at.checked_add(4)?..)?.get(..size)?;
        Some(Sample { time_ns: u64_at(body, time_at), cpu: u32_at(body, cpu_at) as u16, raw })
    }

    /// Bytes of `struct read_format`.
    fn read_bytes(&self, body: &[u8]) -> Option<usize> {
        let has = |bit: u64| usize::from(self.read_format & bit != 0);
        let (times, id, lost) = (has(1) + has(2), has(4), has(16));
        if has(8) == 0 {
            return Some((1 + times + id + lost) * 8);
        }
        let members = usize::try_from(u64_at(body, 0)).ok()?;
        members.checked_mul(1 + id + lost)?.checked_add(1 + times)?.checked_mul(8)
    }

    /// Time and CPU from what stands at the end of records that are not samples (`sample_id_all`).
    pub(super) fn trailer(&self, body: &[u8]) -> Option<(u64, u16)> {
        if !self.sample_id_all {
            return None;
        }
        let words = |bits: u64| (self.sample_type & bits).count_ones() as usize * 8;
        let total = words(
            sample::TID | sample::TIME | sample::ID | sample::STREAM_ID | sample::CPU | sample::IDENTIFIER,
        );
        let trailer = body.get(body.len().checked_sub(total)?..)?;
        let time_at = words(sample::TID);
        let cpu_at = words(sample::TID | sample::TIME | sample::ID | sample::STREAM_ID);
        Some((u64_at(trailer, time_at), u32_at(trailer, cpu_at) as u16))
    }
}

/// The events of the file: how their samples are laid out.
#[derive(Debug, Default)]
pub(super) struct Layouts {
    /// The layout of all, if there is but one.
    only: Option<Layout>,
    by_id: HashMap<u64, Layout>,
    /// Place of a sample's id: the first word, or a later one (in words).
    id_at: Option<usize>,
}

impl Layouts {
    pub(super) fn of(&self, body: &[u8]) -> Option<Layout> {
        match self.only {
            Some(only) => Some(only),
            None => self.by_id.get(&u64_at(body, self.id_at? * 8)).copied(),
        }
    }

    /// The layout of the event `id`.
    pub(super) fn of_id(&self, id: u64) -> Option<Layout> {
        self.only.or_else(|| self.by_id.get(&id).copied())
    }
}

/// Collects the events of a file.
#[derive(Debug, Default)]
pub(super) struct Attrs {
    all: Vec<Layout>,
    by_id: HashMap<u64, Layout>,
    clock: Option<Clock>,
}

impl Attrs {
    /// Takes a `struct perf_event_attr` and the ids of its samples.
    pub(super) fn add(&mut self, attr: &[u8], ids: &[u8]) -> Result<(), OfflineError> {
        // type at 0, sample_type at 24, read_format at 32, flags at 40, clockid at 92.
        let flags = u64_at(attr, 40);
        let layout = Layout {
            sample_type: u64_at(attr, 24),
            read_format: u64_at(attr, 32),
            sample_id_all: flags >> 18 & 1 != 0,
            tracepoint: u32_at(attr, 0) == TYPE_TRACEPOINT,
        };
        let own = match flags >> 25 & 1 {
            0 => Clock::Other("sched_clock (perf's own)".to_owned()),
            _ => clock_of(u32_at(attr, 92).cast_signed()),
        };
        let clock = self.clock.get_or_insert_with(|| own.clone());
        if *clock != own {
            return Err(OfflineError::Unsupported {
                what: format!("a file with events from two clocks ({clock:?} and {own:?})"),
                fix: "record all events with one `perf record -k CLOCK_MONOTONIC`",
            });
        }
        for id in ids.chunks_exact(8) {
            self.by_id.insert(u64_at(id, 0), layout);
        }
        self.all.push(layout);
        match self.all.len() as u64 <= MAX_ATTRS {
            true => Ok(()),
            false => Err(OfflineError::Limit {
                what: "events in the list",
                received: self.all.len() as u64,
                most: MAX_ATTRS,
                fix: "record fewer events: `perf record -e 'sched:*'`",
            }),
        }
    }

    /// The layouts of all events, and the clock.
    pub(super) fn finish(self) -> Result<(Layouts, Clock), OfflineError> {
        let Self { all, by_id, clock } = self;
        let mut layouts = Layouts { by_id, ..Layouts::default() };
        let tracepoints: Vec<&Layout> = all.iter().filter(|layout| layout.tracepoint).collect();
        if tracepoints.is_empty() {
            return Err(OfflineError::Unsupported {
                what: "a file without tracepoints".to_owned(),
                fix: "record with `perf record -a -k CLOCK_MONOTONIC -e 'sched:*,irq:*,irq_vectors:*,timer:hrtimer_*'`",
            });
        }
        let needed = sample::TIME | sample::CPU | sample::RAW;
        if tracepoints.iter().any(|layout| layout.sample_type & needed != needed) {
            return Err(OfflineError::Unsupported {
                what: "a file whose events have no time, CPU or record".to_owned(),
                fix: "record with `perf record -a --timestamp --sample-cpu -R`",
            });
        }
        // If all samples have the same layout, no id has to be looked up. The trailers of others
        // differ in RAW alone, which has no word there.
        let same = all.iter().all(|layout| {
            layout.sample_type | sample::RAW | sample::PERIOD
                == all[0].sample_type | sample::RAW | sample::PERIOD
                && layout.sample_id_all == all[0].sample_id_all
                && (layout.sample_type & sample::READ == 0 || layout.read_format == all[0].read_format)
        });
        let tracepoints_alike = tracepoints.iter().all(|layout| *layout == tracepoints[0]);
        if same && tracepoints_alike {
            layouts.only = Some(*tracepoints[0]);
        } else {
            let before = sample::IP | sample::TID | sample::TIME | sample::ADDR;
            let all_have = |bit: u64| all.iter().all(|layout| layout.sample_type & bit != 0);
            layouts.id_at = if all_have(sample::IDENTIFIER) {
                Some(0)
            } else if all_have(sample::ID)
                && all.iter().all(|layout| layout.sample_type & before == all[0].sample_type & before)
            {
                Some((all[0].sample_type & before).count_ones() as usize)
            } else {
                return Err(OfflineError::Unsupported {
                    what: "a file whose events have different layouts and no id".to_owned(),
                    fix: "record all events with one perf of Linux 3.12 or newer",
                });
            };
        }
        Ok((layouts, clock.unwrap_or(Clock::Monotonic)))
    }
}

fn clock_of(id: i32) -> Clock {
    Clock::Other(
        match id {
            libc::CLOCK_MONOTONIC => return Clock::Monotonic,
            libc::CLOCK_REALTIME => "CLOCK_REALTIME",
            libc::CLOCK_MONOTONIC_RAW => "CLOCK_MONOTONIC_RAW",
            libc::CLOCK_BOOTTIME => "CLOCK_BOOTTIME",
            libc::CLOCK_TAI => "CLOCK_TAI",
            other => return Clock::Other(format!("clock {other}")),
        }
        .to_owned(),
    )
}
