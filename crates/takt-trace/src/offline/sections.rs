//! `trace.dat` of version 7 (man 5 trace-cmd.dat.v7): sections anywhere in the file, compressed or
//! not, found through options.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Read;

use super::bytes::{Bytes, u32_at, u64_at};
use super::error::OfflineError;
use super::limits::{MAX_OPTION_SECTIONS, MAX_SECTION_BYTES};
use super::pages::Pages;
use super::trace_dat::{self, Buffer, OPTION_BUFFER, OPTION_DONE, Options, Recorded};
use super::tracing_data::{self, PageLayout};
use crate::event::Trace;
use crate::format::Decoder;

const OPTION_HEADERS: u16 = 16;
const OPTION_EVENT_FORMATS: u16 = 18;
const OPTION_NAMES: u16 = 21;
const OPTION_BUFFER_TEXT: u16 = 22;

/// Flag of a section.
const COMPRESSED: u16 = 1;

/// Compression of the file.
#[derive(Debug, Clone, Copy)]
enum Packing {
    None,
    Zlib,
    Zstd,
}

impl Packing {
    fn unpack(self, packed: &[u8], size: u32, offset: u64) -> Result<Vec<u8>, OfflineError> {
        let damaged = |received: String| OfflineError::Damaged {
            part: "a compressed section",
            offset,
            received,
            expected: "data that unpacks to its declared size, 256 MiB at most",
        };
        if size > MAX_SECTION_BYTES {
            return Err(damaged(format!("{size} bytes unpacked")));
        }
        let mut out = Vec::new();
        let outcome = match self {
            Self::None => packed.take(size.into()).read_to_end(&mut out),
            Self::Zlib => flate2::read::ZlibDecoder::new(packed).take(size.into()).read_to_end(&mut out),
            Self::Zstd => zstd::Decoder::with_buffer(packed)
                .and_then(|decoder| decoder.take(size.into()).read_to_end(&mut out)),
        };
        outcome.map_err(|error| damaged(error.to_string()))?;
        match out.len() == size as usize {
            true => Ok(out),
            false => Err(damaged(format!("{} bytes instead of {size}", out.len()))),
        }
    }
}

#[derive(Debug)]
pub(super) struct Sections<'a> {
    file: &'a [u8],
    packing: Packing,
}

/// The part read of the packed pages.
pub(super) type Chunks<'a> = Sections<'a>;

pub(super) fn read<'a>(
    file: &'a [u8],
    mut bytes: Bytes<'a>,
    page_size: u32,
) -> Result<(Recorded<'a>, Chunks<'a>), OfflineError> {
    let name = bytes.text("the name of the compression")?;
    let packing = match name {
        b"none" | b"" => Packing::None,
        b"zlib" => Packing::Zlib,
        b"zstd" => Packing::Zstd,
        other => {
            return Err(OfflineError::Unsupported {
                what: format!(
                    "a trace.dat compressed by `{}`",
                    takt_files::quoted(&other.escape_ascii().to_string())
                ),
                fix: "`trace-cmd convert --compression none -i trace.dat -o plain.dat`",
            });
        }
    };
    bytes.text("the version of the compression")?;
    let mut next = bytes.u64("the place of the options")?;
    if next == 0 {
        return Err(OfflineError::Unfinished { part: "the place of its options" });
    }

    let sections = Sections { file, packing };
    let mut recorded = Recorded {
        file,
        trace: Trace::default(),
        decoder: Decoder::default(),
        layout: PageLayout { commit_bytes: 8, data: 16 },
        options: Options::default(),
        buffers: Vec::new(),
        texts: 0,
    };
    let (mut headers, mut formats, mut names) = (None, None, None);
    let mut buffers: Vec<(u64, Buffer)> = Vec::new();
    let mut seen = HashSet::new();
    while next != 0 {
        // A chain that leads back to itself would never end.
        if !seen.insert(next) {
            return Err(OfflineError::Damaged {
                part: "the place of the next options",
                offset: next,
                received: "a place that has already been read".to_owned(),
                expected: "another place, or 0",
            });
        }
        if seen.len() > MAX_OPTION_SECTIONS {
            return Err(OfflineError::Limit {
                what: "sections of options",
                received: seen.len() as u64,
                most: MAX_OPTION_SECTIONS as u64,
                fix: "copy or record it again: trace-cmd writes two, and one for each trace instance",
            });
        }
        let data = sections.section(next, "a section of options")?;
        let mut options = Bytes::new(&data);
        next = loop {
            let id = options.u16("an option")?;
            let value = options.u32("an option")?;
            let value = options.take(value.into(), "an option")?;
            match id {
                OPTION_DONE => break u64_at(value, 0),
                OPTION_HEADERS => headers = Some(u64_at(value, 0)),
                OPTION_EVENT_FORMATS => formats = Some(u64_at(value, 0)),
                OPTION_NAMES => names = Some(u64_at(value, 0)),
                OPTION_BUFFER => {
                    buffers.push(buffer(value, page_size)?);
                    trace_dat::within_instances(buffers.len())?;
                }
                OPTION_BUFFER_TEXT => recorded.texts += 1,
                _ => recorded.option(id, value)?,
            }
        };
    }
    let (Some(headers), Some(formats)) = (headers, formats) else {
        return Err(OfflineError::Unfinished { part: "the formats of its events" });
    };
    recorded.layout =
        tracing_data::page_layout(&mut Bytes::new(&sections.section(headers, "the format of a page")?))?;
    let data = sections.section(formats, "the formats of the events")?;
    tracing_data::event_formats(&mut Bytes::new(&data), &mut recorded.decoder, &mut recorded.trace)?;
    if let Some(names) = names {
        let data = sections.section(names, "the names of threads")?;
        tracing_data::saved_names(Bytes::new(&data).sized("the names of threads")?, &mut recorded.trace);
    }
    for (section, mut buffer) in buffers {
        // A buffer without data may have no section either.
        if buffer.cpus.iter().any(|cpu| cpu.2 > 0) {
            buffer.packed = sections.head(section, "the events")?.0 & COMPRESSED != 0;
        }
        recorded.buffers.push(buffer);
    }
    Ok((recorded, sections))
}

/// An option that describes a buffer: the place of its section, and the rest.
fn buffer(value: &[u8], page_size: u32) -> Result<(u64, Buffer), OfflineError> {
    const PART: &str = "the description of a buffer";
    let mut bytes = Bytes::new(value);
    let section = bytes.u64(PART)?;
    let name = String::from_utf8_lossy(bytes.text(PART)?).into_owned();
    let clock = String::from_utf8_lossy(bytes.text(PART)?).into_owned();
    let own = bytes.u32(PART)?;
    // Sub-buffers may be of another size than the machine's pages.
    let page_size = if own.is_power_of_two() && (4096..=1 << 20).contains(&own) { own } else { page_size };
    let mut cpus = Vec::new();
    for _ in 0..bytes.u32(PART)? {
        let cpu = u16::try_from(bytes.u32(PART)?).unwrap_or(u16::MAX);
        cpus.push((cpu, bytes.u64(PART)?, bytes.u64(PART)?));
    }
    Ok((section, Buffer { name, clock, page_bytes: page_size as usize, cpus, packed: false }))
}

impl Sections<'_> {
    /// Flags of a section, and its bytes.
    fn head(&self, offset: u64, part: &'static str) -> Result<(u16, Bytes<'_>, u64), OfflineError> {
        let mut bytes = Bytes::at(self.file, offset, part)?;
        bytes.u16(part)?;
        let flags = bytes.u16(part)?;
        bytes.u32(part)?;
        let size = bytes.u64(part)?;
        Ok((flags, bytes, size))
    }

    /// A section, unpacked.
    fn section(&self, offset: u64, part: &'static str) -> Result<Cow<'_, [u8]>, OfflineError> {
        let (flags, mut bytes, size) = self.head(offset, part)?;
        if flags & COMPRESSED == 0 {
            return Ok(Cow::Borrowed(self.rest(&mut bytes, size, part)?));
        }
        let (packed, unpacked) = (bytes.u32(part)?, bytes.u32(part)?);
        let data = self.rest(&mut bytes, packed.into(), part)?;
        Ok(Cow::Owned(self.packing.unpack(data, unpacked, offset)?))
    }

    /// Bytes of the file's lifetime, not of the reader's.
    fn rest(&self, bytes: &mut Bytes<'_>, size: u64, part: &'static str) -> Result<&[u8], OfflineError> {
        let start = bytes.offset();
        bytes.take(size, part)?;
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        Ok(self.file.get(start..).and_then(|rest| rest.get(..size as usize)).unwrap_or_default())
    }

    /// Packed pages of a CPU, as far as they are whole.
    pub(super) fn read(
        &self,
        cpu: u16,
        offset: u64,
        size: u64,
        pages: &mut Pages,
    ) -> Result<(), OfflineError> {
        let before = pages.trace.events.len();
        match self.chunks(cpu, offset, pages) {
            Ok(()) => Ok(()),
            Err((_, error @ OfflineError::Limit { .. })) => Err(error),
            Err((at, error)) => {
                trace_dat::torn(pages, cpu, at, offset.saturating_add(size), before);
                pages.trace.notes.push(format!("CPU {cpu}: {error}"));
                Ok(())
            }
        }
    }

    /// Packed pages of a CPU; at an error its place, up to which they were whole.
    fn chunks(&self, cpu: u16, offset: u64, pages: &mut Pages) -> Result<(), (u64, OfflineError)> {
        const PART: &str = "a chunk of events";
        let at = |offset: u64| move |error| (offset, error);
        let mut bytes = Bytes::at(self.file, offset, PART).map_err(at(offset))?;
        for _ in 0..bytes.u32(PART).map_err(at(offset))? {
            let start = bytes.offset();
            let sizes = bytes.take(8, PART).map_err(at(start))?;
            let packed = bytes.take(u32_at(sizes, 0).into(), PART).map_err(at(start))?;
            let data = self.packing.unpack(packed, u32_at(sizes, 4), start).map_err(at(start))?;
            pages.unpacked(data.len() as u64, self.file.len() as u64).map_err(at(start))?;
            pages.pages(cpu, &data, start).map_err(at(start))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The recorded files have zstd, which Debian's trace-cmd prefers; others have zlib.
    #[test]
    fn zlib_is_unpacked_to_its_size_and_no_further() {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&[7; 100_000]).unwrap();
        let packed = encoder.finish().unwrap();
        assert_eq!(Packing::Zlib.unpack(&packed, 100_000, 0).unwrap(), [7; 100_000]);
        for size in [100_001, u32::MAX] {
            let error = Packing::Zlib.unpack(&packed, size, 4711).unwrap_err().to_string();
            assert!(error.contains("byte 4711") && error.contains("unpacks"), "{error}");
        }
        assert!(Packing::Zlib.unpack(&packed[..20], 100_000, 0).is_err());
        assert!(Packing::Zstd.unpack(&packed, 100_000, 0).is_err());
    }
}
