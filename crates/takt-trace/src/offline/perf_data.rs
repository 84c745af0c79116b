//! `perf.data` (tools/perf/Documentation/perf.data-file-format.txt, tools/perf/util/header.h): a
//! file, a stream (`perf record -o -`), or a folder (`perf record --threads`).

use super::bytes::{Bytes, u32_at};
use super::error::OfflineError;
use super::perf_layout::Attrs;
use super::perf_records::{self, Reader, record};
use super::tracing_data;
use crate::event::Trace;
use crate::format::Decoder;

/// `PERFILE2`, little-endian.
pub(super) const MAGIC: &[u8] = b"PERFILE2";

/// Bytes of the file's header; one of 16 bytes begins a stream.
const HEADER_BYTES: u64 = 104;
const STREAM_HEADER_BYTES: u64 = 16;

/// Features, by their bit (tools/perf/util/header.h). The others describe the machine and the
/// recording, and change nothing in how records are read.
const FEATURE_TRACING_DATA: usize = 1;
const FEATURE_DIR_FORMAT: usize = 24;
const FEATURE_COMPRESSED: usize = 27;
const FEATURES: usize = 256;

/// The version of a folder's layout, and the kind of compression (zstd), that are read.
const DIR_VERSION: u64 = 1;
const COMPRESSED_BY_ZSTD: u32 = 1;

#[derive(Debug, Clone, Copy)]
struct Section {
    offset: u64,
    size: u64,
}

fn section(bytes: &mut Bytes<'_>, part: &'static str) -> Result<Section, OfflineError> {
    Ok(Section { offset: bytes.u64(part)?, size: bytes.u64(part)? })
}

/// Reads a file whose folder has `beside` it: the names and bytes of `data.0`, `data.1`, … of a
/// recording by several threads.
pub(super) fn read(file: &[u8], beside: &[(String, Vec<u8>)]) -> Result<Trace, OfflineError> {
    let mut bytes = Bytes::new(file);
    bytes.take(MAGIC.len() as u64, "the header")?;
    let size = bytes.u64("the header")?;
    if size == STREAM_HEADER_BYTES {
        return stream(file);
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
    let features = Features { bits: bytes.take(FEATURES as u64 / 8, "the header")?, file, data };

    let mut trace = Trace::default();
    let (layouts, clock) = read_attrs(file, attrs, attr_size)?.finish()?;
    trace.clock = clock;
    if data.size == 0 {
        return Err(OfflineError::Unfinished { part: "the size of its data" });
    }
    let decoder = features.formats(&mut trace)?;
    if let Some(place) = features.place(FEATURE_COMPRESSED)? {
        check_compression(&mut Bytes::at(file, place.offset, "the kind of compression")?)?;
    }
    let folder = match features.place(FEATURE_DIR_FORMAT)? {
        Some(place) => {
            check_folder(&mut Bytes::at(file, place.offset, "the version of the folder")?)?;
            true
        }
        None => false,
    };
    let mut reader = Reader::new(trace, decoder, layouts);
    reader.records(file, data.offset, data.offset.saturating_add(data.size), "")?;
    for (name, file) in beside.iter().filter(|_| folder) {
        reader.records(file, 0, file.len() as u64, &format!("{name}: "))?;
    }
    let trace = reader.finish();
    if folder && beside.is_empty() && trace.events.is_empty() {
        return Err(OfflineError::Unsupported {
            what: "one file of a folder of `perf record --threads`, whose events are in data.0, data.1, … next to it,".to_owned(),
            fix: "pass the whole folder that perf wrote: `--file perf.data`, with all files in it",
        });
    }
    Ok(trace)
}

/// Reads a stream, in which everything that precedes the events has records of its own, which come
/// first. Compressed records contain none of these.
fn stream(file: &[u8]) -> Result<Trace, OfflineError> {
    let mut trace = Trace::default();
    let mut attrs = Attrs::default();
    let mut decoder: Option<Decoder> = None;
    let mut rest = Bytes::at(file, STREAM_HEADER_BYTES, "the stream")?;
    let end = file.len() as u64;
    while rest.offset() < end {
        // Torn or damaged records are noted when the events are read.
        let Ok(record) = perf_records::next(&mut rest) else { break };
        match record.kind {
            record::HEADER_ATTR => {
                let size = (u32_at(record.body, 4) as usize).min(record.body.len());
                let (attr, ids) = record.body.split_at(size);
                attrs.add(attr, ids)?;
            }
            record::TRACING_DATA => {
                let decoder = decoder.get_or_insert_default();
                tracing_data::whole(&mut Bytes::new(record.behind), decoder, &mut trace)?;
            }
            record::HEADER_FEATURE => {
                let mut bytes = Bytes::new(record.body);
                match usize::try_from(bytes.u64("a feature")?) {
                    Ok(FEATURE_COMPRESSED) => check_compression(&mut bytes)?,
                    Ok(FEATURE_DIR_FORMAT) => check_folder(&mut bytes)?,
                    _ => {}
                }
            }
            _ => {}
        }
    }
    let (layouts, clock) = attrs.finish()?;
    trace.clock = clock;
    let decoder = decoder.ok_or(OfflineError::Unfinished { part: "the formats of its events" })?;
    let mut reader = Reader::new(trace, decoder, layouts);
    reader.records(file, STREAM_HEADER_BYTES, end, "")?;
    Ok(reader.finish())
}

fn check_compression(bytes: &mut Bytes<'_>) -> Result<(), OfflineError> {
    bytes.u32("the kind of compression")?;
    match bytes.u32("the kind of compression")? {
        COMPRESSED_BY_ZSTD => Ok(()),
        other => Err(OfflineError::Unsupported {
            what: format!("a file with records packed by method {other} (1, zstd, is read)"),
            fix: "record without packing: `perf record` without `-z`",
        }),
    }
}

fn check_folder(bytes: &mut Bytes<'_>) -> Result<(), OfflineError> {
    match bytes.u64("the version of the folder")? {
        DIR_VERSION => Ok(()),
        other => Err(OfflineError::Unsupported {
            what: format!("a folder of perf of version {other} (1 is read)"),
            fix: "record into one file: `perf record` without `--threads`",
        }),
    }
}

/// The list of events in the file's header.
fn read_attrs(file: &[u8], attrs: Section, attr_size: u64) -> Result<Attrs, OfflineError> {
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
    let mut all = Attrs::default();
    for _ in 0..attrs.size / attr_size {
        let attr = bytes.take(attr_size - 16, PART)?;
        let ids = section(&mut bytes, PART)?;
        let mut list = Bytes::at(file, ids.offset, "the ids of an event")?;
        all.add(attr, list.take(ids.size, "the ids of an event")?)?;
    }
    Ok(all)
}

/// The features of a file: bits in its header, places in a table behind its data.
struct Features<'a> {
    bits: &'a [u8],
    file: &'a [u8],
    data: Section,
}

impl Features<'_> {
    fn has(&self, feature: usize) -> bool {
        self.bits.get(feature / 8).is_some_and(|byte| byte >> (feature % 8) & 1 != 0)
    }

    /// Place of a feature; None if the file does not have it.
    fn place(&self, feature: usize) -> Result<Option<Section>, OfflineError> {
        if !self.has(feature) {
            return Ok(None);
        }
        let row = (0..feature).filter(|&feature| self.has(feature)).count() as u64;
        let place = self.data.offset.saturating_add(self.data.size).saturating_add(row * 16);
        let mut bytes = Bytes::at(self.file, place, "the table of features")?;
        Ok(Some(section(&mut bytes, "the table of features")?))
    }

    /// The feature "tracing data".
    fn formats(&self, trace: &mut Trace) -> Result<Decoder, OfflineError> {
        let missing = || OfflineError::Unfinished { part: "the formats of its events" };
        let place = self.place(FEATURE_TRACING_DATA).map_err(|_| missing())?.ok_or_else(missing)?;
        let mut decoder = Decoder::default();
        let mut bytes = Bytes::at(self.file, place.offset, "the formats of the events")?;
        tracing_data::whole(&mut bytes, &mut decoder, trace)?;
        Ok(decoder)
    }
}
