//! The records of a perf.data (include/uapi/linux/perf_event.h).

use std::collections::BTreeMap;

use zstd::stream::raw::Operation;

use super::bytes::{Bytes, u32_at, u64_at};
use super::error::OfflineError;
use super::limits::{self, MAX_RECORD_BYTES};
use super::note_undecoded;
use super::perf_layout::Layouts;
use crate::event::{Event, Kind, Trace};
use crate::format::{Decoder, note_name};

/// Types of records (PERF_RECORD_*).
pub(super) mod record {
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const LOST_SAMPLES: u32 = 13;
    pub const HEADER_ATTR: u32 = 64;
    pub const TRACING_DATA: u32 = 66;
    pub const AUXTRACE: u32 = 71;
    pub const HEADER_FEATURE: u32 = 80;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// A record: its kind, what stands in it, and what stands behind it without being one.
pub(super) struct Record<'a> {
    pub(super) kind: u32,
    pub(super) body: &'a [u8],
    pub(super) behind: &'a [u8],
}

/// Takes the next record.
pub(super) fn next<'a>(rest: &mut Bytes<'a>) -> Result<Record<'a>, OfflineError> {
    let offset = rest.offset();
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
    let behind = match kind {
        record::AUXTRACE => rest.take(u64_at(body, 0), "hardware trace data")?,
        record::TRACING_DATA => rest.take(u32_at(body, 0).into(), "the formats of the events")?,
        _ => &[],
    };
    Ok(Record { kind, body, behind })
}

pub(super) struct Reader {
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
    /// Unpacked bytes of all files, and the bytes of these.
    unpacked: u64,
    file_bytes: u64,
}

impl Reader {
    pub(super) fn new(trace: Trace, decoder: Decoder, layouts: Layouts) -> Self {
        Self {
            trace,
            decoder,
            layouts,
            lost: 0,
            lost_samples: 0,
            undecoded: 0,
            pids: BTreeMap::new(),
            unpacker: None,
            carried: Vec::new(),
            unpacked: 0,
            file_bytes: 0,
        }
    }

    /// The records of `file` from byte `from` up to `end`. `name` is that of the file where a trace
    /// has several, with a separator.
    pub(super) fn records(
        &mut self,
        file: &[u8],
        from: u64,
        end: u64,
        name: &str,
    ) -> Result<(), OfflineError> {
        let mut rest = Bytes::at(file, from, "the data")?;
        // Each file is a stream of its own.
        (self.unpacker, self.carried) = (None, Vec::new());
        self.file_bytes = self.file_bytes.saturating_add(file.len() as u64);
        // A sample of a switch has about 130 bytes.
        let there = end.saturating_sub(from).min(file.len() as u64);
        self.trace.events.reserve(usize::try_from(there).unwrap_or(0) / 128);
        while rest.offset() < end {
            let offset = rest.offset();
            let outcome = next(&mut rest).and_then(|record| self.record(record.kind, record.body, offset));
            match outcome {
                Ok(()) => limits::events(self.trace.events.len())?,
                Err(error @ (OfflineError::Torn { .. } | OfflineError::Damaged { .. })) => {
                    self.trace.notes.push(format!(
                        "{name}the file is intact only up to byte {offset} of {end}, with {} events before that: {error}",
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
                let layout = self.layouts.of_id(u64_at(body, 0));
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
            if carried.len() > MAX_RECORD_BYTES {
                return Err(damaged(format!("more than {MAX_RECORD_BYTES} bytes unpacked")));
            }
            self.unpacked = self.unpacked.saturating_add(status.bytes_written as u64);
            limits::unpacked(self.unpacked, self.file_bytes)?;
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

    pub(super) fn finish(mut self) -> Trace {
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
                "{} lost events have no time in the trace, because perf counted them at the end",
                self.lost_samples - self.lost
            ));
        }
        note_undecoded(&mut self.trace, self.undecoded);
        self.trace.sort();
        self.trace
    }
}
