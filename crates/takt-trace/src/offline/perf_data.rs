//! `perf.data` (tools/perf/Documentation/perf.data-file-format.txt, tools/perf/util/header.h, and
//! the records of include/uapi/linux/perf_event.h).

use std::collections::{BTreeMap, HashMap};

use zstd::stream::raw::Operation;

use super::bytes::{Bytes, u32_at, u64_at};
use super::error::OfflineError;
use super::{note_undecoded, tracing_data};
use crate::event::{Clock, Event, Kind, Trace};
use crate::format::{Decoder, note_name};

/// `PERFILE2`, little-endian.
pub(super) const MAGIC: &[u8] = b"PERFILE2";

/// Bytes of the file's header; one of 16 bytes begins a stream (`perf record -o -`).
const HEADER_BYTES: u64 = 104;

/// Features, by their bit (tools/perf/util/header.h).
const FEATURE_TRACING_DATA: usize = 1;
const FEATURES: usize = 256;

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

/// Types of records (PERF_RECORD_*).
mod record {
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const LOST_SAMPLES: u32 = 13;
    pub const AUXTRACE: u32 = 71;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// Unpacked bytes of one compressed record, which holds what one look at a ring buffer found; more
/// is damaged.
const MOST_UNPACKED: usize = 64 << 20;

/// PERF_TYPE_TRACEPOINT.
const TYPE_TRACEPOINT: u32 = 2;

/// How the samples of an event are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    sample_type: u64,
    read_format: u64,
    sample_id_all: bool,
    tracepoint: bool,
}

/// What is read of a sample.
#[derive(Debug, Clone, Copy)]
struct Sample<'a> {
    time_ns: u64,
    cpu: u16,
    raw: &'a [u8],
}

impl Layout {
    /// Takes a sample apart, in the order that PERF_RECORD_SAMPLE has. None where it is too short,
    /// or where it has no raw record.
    fn sample<'a>(&self, body: &'a [u8]) -> Option<Sample<'a>> {
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
    fn trailer(&self, body: &[u8]) -> Option<(u64, u16)> {
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

#[derive(Debug, Clone, Copy)]
struct Section {
    offset: u64,
    size: u64,
}

fn section(bytes: &mut Bytes<'_>, part: &'static str) -> Result<Section, OfflineError> {
    Ok(Section { offset: bytes.u64(part)?, size: bytes.u64(part)? })
}

/// The events of the file: how their samples are laid out.
#[derive(Debug, Default)]
struct Layouts {
    /// The layout of all, if there is but one.
    only: Option<Layout>,
    by_id: HashMap<u64, Layout>,
    /// Where a sample's id stands: the first word, else one behind it (in words).
    id_at: Option<usize>,
}

impl Layouts {
    fn of(&self, body: &[u8]) -> Option<Layout> {
        match self.only {
            Some(only) => Some(only),
            None => self.by_id.get(&u64_at(body, self.id_at? * 8)).copied(),
        }
    }
}

pub(super) fn read(file: &[u8]) -> Result<Trace, OfflineError> {
    let mut bytes = Bytes::new(file);
    bytes.take(MAGIC.len() as u64, "the header")?;
    let size = bytes.u64("the header")?;
    if size == 16 {
        return Err(OfflineError::Unsupported {
            what: "a stream of perf (`perf record -o -`)".to_owned(),
            fix: "make a file of it: `perf inject -i STREAM -o perf.data`, or record with `-o perf.data`",
        });
    }
    if size != HEADER_BYTES {
        return Err(OfflineError::Damaged {
            part: "the header's size",
            offset: 8,
            received: size.to_string(),
            expected: "104, or 16 for a stream",
        });
    }
    let attr_size = bytes.u64("the header")?;
    let attrs = section(&mut bytes, "the header")?;
    let data = section(&mut bytes, "the header")?;
    section(&mut bytes, "the header")?;
    let features = bytes.take(FEATURES as u64 / 8, "the header")?;

    let mut trace = Trace::default();
    let (layouts, clock) = read_attrs(file, attrs, attr_size)?;
    trace.clock = clock;
    if data.size == 0 {
        return Err(OfflineError::Unfinished { part: "the size of its data" });
    }
    let decoder = read_formats(file, data, features, &mut trace)?;
    let mut reader = Reader {
        trace,
        decoder,
        layouts,
        lost: 0,
        lost_samples: 0,
        undecoded: 0,
        pids: BTreeMap::new(),
        unpacker: None,
        carried: Vec::new(),
    };
    reader.records(file, data)?;
    Ok(reader.finish())
}

/// The layouts of all events, and the clock.
fn read_attrs(file: &[u8], attrs: Section, attr_size: u64) -> Result<(Layouts, Clock), OfflineError> {
    const PART: &str = "the list of events";
    // PERF_ATTR_SIZE_VER0 and the section of ids behind it; no kernel's attr is near a page.
    if !(64 + 16..=4096).contains(&attr_size) || !attrs.size.is_multiple_of(attr_size) || attrs.size == 0 {
        return Err(OfflineError::Damaged {
            part: PART,
            offset: 16,
            received: format!("{} bytes in pieces of {attr_size}", attrs.size),
            expected: "at least one piece of 80 to 4096 bytes",
        });
    }
    let mut bytes = Bytes::at(file, attrs.offset, PART)?;
    let mut all = Vec::new();
    let mut layouts = Layouts::default();
    let mut clock: Option<Clock> = None;
    for _ in 0..attrs.size / attr_size {
        let attr = bytes.take(attr_size - 16, PART)?;
        let ids = section(&mut bytes, PART)?;
        // struct perf_event_attr: type at 0, sample_type at 24, read_format at 32, flags at 40,
        // clockid at 92.
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
        if *clock.get_or_insert_with(|| own.clone()) != own {
            return Err(OfflineError::Unsupported {
                what: format!("a file with events of two clocks ({clock:?} and {own:?})"),
                fix: "record all events with one `perf record -k CLOCK_MONOTONIC`",
            });
        }
        let mut list = Bytes::at(file, ids.offset, "the ids of an event")?;
        for id in list.take(ids.size, "the ids of an event")?.chunks_exact(8) {
            layouts.by_id.insert(u64_at(id, 0), layout);
        }
        all.push(layout);
    }
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
            what: "a file whose events lack their time, CPU or record".to_owned(),
            fix: "record with `perf record -a --timestamp --sample-cpu -R`",
        });
    }
    // Where all samples are alike no id has to be looked up. The trailers of others differ in RAW
    // alone, which has no word there.
    let same = all.iter().all(|layout| {
        layout.sample_type | sample::RAW | sample::PERIOD == all[0].sample_type | sample::RAW | sample::PERIOD
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
                what: "a file whose events are laid out differently and bear no id".to_owned(),
                fix: "record all events with one perf of Linux 3.12 or newer",
            });
        };
    }
    Ok((layouts, clock.unwrap_or(Clock::Monotonic)))
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

/// The feature "tracing data", whose place is in a table behind the data.
fn read_formats(
    file: &[u8],
    data: Section,
    features: &[u8],
    trace: &mut Trace,
) -> Result<Decoder, OfflineError> {
    let set = |feature: usize| features[feature / 8] >> (feature % 8) & 1 != 0;
    let missing = || OfflineError::Unfinished { part: "the formats of its events" };
    if !set(FEATURE_TRACING_DATA) {
        return Err(missing());
    }
    let row = (0..FEATURE_TRACING_DATA).filter(|&feature| set(feature)).count() as u64;
    let place = data.offset.saturating_add(data.size).saturating_add(row * 16);
    let mut bytes = Bytes::at(file, place, "the table of features").map_err(|_| missing())?;
    let formats = section(&mut bytes, "the table of features")?;
    let mut decoder = Decoder::default();
    let mut bytes = Bytes::at(file, formats.offset, "the formats of the events")?;
    tracing_data::whole(&mut bytes, &mut decoder, trace)?;
    Ok(decoder)
}

struct Reader {
    trace: Trace,
    decoder: Decoder,
    layouts: Layouts,
    lost: u64,
    lost_samples: u64,
    undecoded: u64,
    pids: BTreeMap<i32, i32>,
    /// For files recorded with `-z`.
    unpacker: Option<zstd::stream::raw::Decoder<'static>>,
    /// Unpacked, but only part of a record.
    carried: Vec<u8>,
}

impl Reader {
    fn records(&mut self, file: &[u8], data: Section) -> Result<(), OfflineError> {
        let mut rest = Bytes::at(file, data.offset, "the data")?;
        let end = data.offset.saturating_add(data.size);
        // A sample of a switch has about 130 bytes.
        self.trace.events.reserve(usize::try_from(data.size.min(file.len() as u64) / 128).unwrap_or(0));
        while rest.offset() < end {
            let offset = rest.offset();
            let outcome = (|| -> Result<(), OfflineError> {
                let head = rest.take(8, "a record")?;
                let (kind, size) = (u32_at(head, 0), u64::from(u32_at(head, 4) >> 16));
                if size < 8 {
                    return Err(OfflineError::Damaged {
                        part: "the size of a record",
                        offset,
                        received: size.to_string(),
                        expected: "8 or more",
                    });
                }
                let body = rest.take(size - 8, "a record")?;
                if kind == record::AUXTRACE {
                    rest.take(u64_at(body, 0), "hardware trace data")?;
                }
                self.record(kind, body, offset)
            })();
            match outcome {
                Ok(()) => {}
                Err(error @ (OfflineError::Torn { .. } | OfflineError::Damaged { .. })) => {
                    self.trace.notes.push(format!(
                        "the file is whole up to byte {offset} of {end} only, with {} events before that: {error}",
                        self.trace.events.len()
                    ));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn record(&mut self, kind: u32, body: &[u8], offset: u64) -> Result<(), OfflineError> {
        match kind {
            record::SAMPLE => self.sample(body),
            record::COMM => {
                let (pid, tid) = (u32_at(body, 0).cast_signed(), u32_at(body, 4).cast_signed());
                let name = body.get(8..).unwrap_or_default().split(|&byte| byte == 0).next();
                note_name(&mut self.trace, tid, name.unwrap_or_default());
                self.pids.insert(tid, pid);
            }
            record::FORK => {
                let (pid, tid) = (u32_at(body, 0).cast_signed(), u32_at(body, 8).cast_signed());
                self.pids.insert(tid, pid);
            }
            record::LOST => {
                let count = u64_at(body, 8);
                self.lost = self.lost.saturating_add(count);
                let layout = self.layouts.only.or_else(|| self.layouts.by_id.get(&u64_at(body, 0)).copied());
                if let Some((time_ns, cpu)) = layout.and_then(|layout| layout.trailer(body)) {
                    self.trace.events.push(Event { time_ns, tid: 0, cpu, kind: Kind::Lost { count } });
                }
            }
            record::LOST_SAMPLES => self.lost_samples = self.lost_samples.saturating_add(u64_at(body, 0)),
            record::COMPRESSED => self.packed(body, offset)?,
            record::COMPRESSED2 => {
                let size = usize::try_from(u64_at(body, 0)).unwrap_or(usize::MAX);
                let data = body.get(8..).unwrap_or_default();
                self.packed(&data[..size.min(data.len())], offset)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Packed records: one stream of zstd for the whole file, flushed at the end of each piece, in
    /// which a record may go on into the next piece.
    fn packed(&mut self, piece: &[u8], offset: u64) -> Result<(), OfflineError> {
        let damaged = |received: String| OfflineError::Damaged {
            part: "a compressed record",
            offset,
            received,
            expected: "a piece of a zstd stream with whole records",
        };
        let mut carried = std::mem::take(&mut self.carried);
        let mut decoder = match self.unpacker.take() {
            Some(decoder) => decoder,
            None => zstd::stream::raw::Decoder::new().map_err(|error| damaged(error.to_string()))?,
        };
        let mut rest = piece;
        let mut chunk = [0; 1 << 14];
        loop {
            let status =
                decoder.run_on_buffers(rest, &mut chunk).map_err(|error| damaged(error.to_string()))?;
            carried.extend_from_slice(&chunk[..status.bytes_written]);
            rest = rest.get(status.bytes_read..).unwrap_or_default();
            if carried.len() > MOST_UNPACKED {
                return Err(damaged(format!("more than {MOST_UNPACKED} bytes unpacked")));
            }
            // A chunk that was not filled: all that came in is out.
            if status.bytes_written < chunk.len() && (rest.is_empty() || status.bytes_read == 0) {
                break;
            }
        }
        self.unpacker = Some(decoder);
        let mut done = 0;
        while let Some(head) = carried.get(done..done + 8) {
            let (kind, size) = (u32_at(head, 0), (u32_at(head, 4) >> 16) as usize);
            if size < 8 || matches!(kind, record::COMPRESSED | record::COMPRESSED2) {
                return Err(damaged(format!("a record of kind {kind} and {size} bytes in it")));
            }
            let Some(body) = carried.get(done + 8..done + size) else { break };
            self.record(kind, body, offset)?;
            done += size;
        }
        carried.drain(..done);
        self.carried = carried;
        Ok(())
    }

    fn sample(&mut self, body: &[u8]) {
        let Some(layout) = self.layouts.of(body) else {
            self.undecoded += 1;
            return;
        };
        if !layout.tracepoint {
            return;
        }
        let Some(sample) = layout.sample(body) else {
            self.undecoded += 1;
            return;
        };
        match self.decoder.decode(sample.raw, &mut self.trace) {
            Some((tid, kind)) => {
                self.trace.events.push(Event { time_ns: sample.time_ns, tid, cpu: sample.cpu, kind });
            }
            None => self.undecoded += 1,
        }
    }

    fn finish(mut self) -> Trace {
        for (tid, pid) in self.pids {
            // Unknown processes are -1.
            if tid != 0 && pid >= 0 {
                self.trace.threads.entry(tid).or_default().pid = Some(pid);
            }
        }
        // perf repeats at the end, in records of the second kind, what the kernel reported in those
        // of the first.
        self.trace.lost_events = self.lost.max(self.lost_samples);
        if self.lost_samples > self.lost {
            self.trace.notes.push(format!(
                "{} lost events have no place in the trace: perf counted them at the end",
                self.lost_samples - self.lost
            ));
        }
        note_undecoded(&mut self.trace, self.undecoded);
        self.trace.sort();
        self.trace
    }
}
