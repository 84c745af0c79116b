//! `trace.dat` of trace-cmd, version 6 (man 5 trace-cmd.dat.v6), with the pages of the kernel's ring buffer
//! (Documentation/trace/ring-buffer-design, libtraceevent's kbuffer).

use super::bytes::{Bytes, u32_at, u64_at};
use super::error::OfflineError;
use super::tracing_data::{self, PageLayout};
use crate::event::{Clock, Event, Kind, Trace};
use crate::format::Decoder;

/// Options, by number (trace-cmd-private.h).
const OPTION_DONE: u16 = 0;
const OPTION_CPUSTAT: u16 = 2;
const OPTION_TRACECLOCK: u16 = 4;
const OPTION_OFFSET: u16 = 7;
const OPTION_TIME_SHIFT: u16 = 12;

/// Bits of a page's commit word.
const COMMIT_BYTES: u64 = (1 << 27) - 1;
const COMMIT_MISSED: u64 = 1 << 31;
const COMMIT_MISSED_STORED: u64 = 1 << 30;

/// Types of an event in a page.
const TYPE_PADDING: u32 = 29;
const TYPE_TIME_EXTEND: u32 = 30;
const TYPE_TIME_STAMP: u32 = 31;

/// A time stamp of an event has 59 bits; the rest comes from the page's.
const STAMP_BITS: u64 = (1 << 59) - 1;

pub(super) fn read(file: &[u8]) -> Result<Trace, OfflineError> {
    let mut bytes = Bytes::new(file);
    let head = tracing_data::head(&mut bytes)?;
    if head.version != 6 {
        return Err(OfflineError::Unsupported {
            what: format!("a trace.dat of version {}", head.version),
            fix: "`trace-cmd convert --file-version 6 -i trace.dat -o trace6.dat` makes one of version 6",
        });
    }
    let mut trace = Trace { clock: Clock::Other("local".to_owned()), ..Trace::default() };
    let mut decoder = Decoder::default();
    let layout = tracing_data::page_layout(&mut bytes)?;
    tracing_data::skip_ftrace_formats(&mut bytes)?;
    tracing_data::event_formats(&mut bytes, &mut decoder, &mut trace)?;
    tracing_data::skip_symbols(&mut bytes)?;
    tracing_data::saved_names(bytes.sized("the names of threads")?, &mut trace);
    let offset = bytes.offset();
    let cpus = bytes.u32("the number of CPUs")?;
    if cpus == 0 || cpus > u32::from(u16::MAX) {
        return Err(OfflineError::Damaged {
            part: "the number of CPUs",
            offset,
            received: cpus.to_string(),
            expected: "1 to 65535",
        });
    }
    let mut offset = bytes.offset();
    let mut kind = bytes.take(10, "the kind of data")?;
    if kind == b"options  \0" {
        options(&mut bytes, &mut trace)?;
        offset = bytes.offset();
        kind = bytes.take(10, "the kind of data")?;
    }
    match kind {
        b"flyrecord\0" => {}
        b"latency  \0" => {
            return Err(OfflineError::Unsupported {
                what: "a trace.dat of a latency tracer, which holds text".to_owned(),
                fix: "record events: `trace-cmd record -C mono -e sched -e irq -e irq_vectors -e hrtimer`",
            });
        }
        other => {
            return Err(OfflineError::Damaged {
                part: "the kind of data",
                offset,
                received: other.escape_ascii().to_string(),
                expected: "`options`, `flyrecord` or `latency`",
            });
        }
    }
    let mut places = Vec::new();
    for cpu in 0..cpus {
        let place = (bytes.u64("the table of CPUs")?, bytes.u64("the table of CPUs")?);
        places.push((u16::try_from(cpu).unwrap_or(u16::MAX), place));
    }
    let mut pages = Pages { trace, decoder, layout, undecoded: 0, lost: 0 };
    for (cpu, (offset, size)) in places {
        pages.cpu(file, cpu, offset, size, u64::from(head.page_size));
    }
    Ok(pages.finish())
}

fn options(bytes: &mut Bytes<'_>, trace: &mut Trace) -> Result<(), OfflineError> {
    loop {
        let id = bytes.u16("an option")?;
        if id == OPTION_DONE {
            return Ok(());
        }
        let size = bytes.u32("an option")?;
        let value = bytes.take(size.into(), "an option")?;
        let text = String::from_utf8_lossy(value);
        let text = text.trim_end_matches('\0').trim();
        match id {
            OPTION_TRACECLOCK => {
                // Either the clock's name, or all names with brackets around the one.
                let name = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
                trace.clock = match name.map_or(text, |(name, _)| name) {
                    "mono" => Clock::Monotonic,
                    name => Clock::Other(name.to_owned()),
                };
            }
            // What the kernel overwrote or dropped before it could be read; what is missing in the pages themselves
            // is marked there too, so that the sum would count it twice.
            OPTION_CPUSTAT => {
                for line in text.lines() {
                    let count = ["overrun:", "dropped events:"]
                        .iter()
                        .find_map(|key| line.trim().strip_prefix(key)?.trim().parse::<u64>().ok());
                    trace.lost_events = trace.lost_events.saturating_add(count.unwrap_or(0));
                }
            }
            OPTION_OFFSET | OPTION_TIME_SHIFT => {
                trace.notes.push(
                    "the recorder noted a shift of the clock (--date, or a guest's trace): it is not applied"
                        .into(),
                );
            }
            _ => {}
        }
    }
}

struct Pages {
    trace: Trace,
    decoder: Decoder,
    layout: PageLayout,
    undecoded: u64,
    /// Events marked as missing in pages.
    lost: u64,
}

impl Pages {
    fn cpu(&mut self, file: &[u8], cpu: u16, offset: u64, size: u64, page_size: u64) {
        let Ok(page_bytes) = usize::try_from(page_size) else { return };
        let before = self.trace.events.len();
        let there = (file.len() as u64).saturating_sub(offset).min(size);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(file.len());
        let data = &file[start..start + usize::try_from(there).unwrap_or(0)];
        let mut at = offset;
        let mut torn = there < size;
        for page in data.chunks_exact(page_bytes) {
            if let Err(reason) = self.page(cpu, page) {
                self.trace.notes.push(format!(
                    "CPU {cpu}: the page at byte {at} is damaged ({reason}), what is behind that in the page is left out"
                ));
            }
            at += page_size;
        }
        torn |= at < offset.saturating_add(size);
        if torn {
            self.trace.notes.push(format!(
                "CPU {cpu}: the file is whole up to byte {at} of {} only, with {} events of this CPU before that",
                offset.saturating_add(size),
                self.trace.events.len() - before
            ));
        }
    }

    fn page(&mut self, cpu: u16, page: &[u8]) -> Result<(), &'static str> {
        let commit = match self.layout.commit_bytes {
            4 => u64::from(u32_at(page, 8)),
            _ => u64_at(page, 8),
        };
        let mut time_ns = u64_at(page, 0);
        let used = usize::try_from(commit & COMMIT_BYTES).unwrap_or(usize::MAX);
        let data = page.get(self.layout.data..).unwrap_or_default();
        let all = data.get(..used).ok_or("more bytes used than it has")?;
        if commit & COMMIT_MISSED != 0 {
            // The count stands behind the events if there is room for it.
            let count = match commit & COMMIT_MISSED_STORED {
                0 => 0,
                _ if self.layout.commit_bytes == 4 => u64::from(u32_at(data, used)),
                _ => u64_at(data, used),
            };
            self.lost = self.lost.saturating_add(count.max(1));
            self.trace.events.push(Event { time_ns, tid: 0, cpu, kind: Kind::Lost { count: count.max(1) } });
        }
        let mut rest = all;
        while let Some((word, behind)) = rest.split_first_chunk::<4>() {
            let word = u32::from_le_bytes(*word);
            let (kind, delta) = (word & 0x1f, u64::from(word >> 5));
            rest = behind;
            let length = match kind {
                0 => {
                    let length =
                        (u32_at(rest, 0) as usize).checked_sub(4).ok_or("an event without length")?;
                    rest = rest.get(4..).ok_or("half an event")?;
                    // Records are kept at multiples of 4.
                    length.checked_next_multiple_of(4).ok_or("an event beyond all sizes")?
                }
                TYPE_PADDING if delta == 0 => return Ok(()),
                TYPE_PADDING => {
                    time_ns = time_ns.wrapping_add(delta);
                    let length = (u32_at(rest, 0) as usize).max(4);
                    rest = rest.get(length..).ok_or("padding beyond its end")?;
                    continue;
                }
                TYPE_TIME_EXTEND | TYPE_TIME_STAMP => {
                    let high = u64::from(u32_at(rest, 0)) << 27;
                    time_ns = match kind {
                        TYPE_TIME_EXTEND => time_ns.wrapping_add(high + delta),
                        _ => time_ns & !STAMP_BITS | (high + delta) & STAMP_BITS,
                    };
                    rest = rest.get(4..).ok_or("half a time stamp")?;
                    continue;
                }
                words => words as usize * 4,
            };
            time_ns = time_ns.wrapping_add(delta);
            let record = rest.get(..length).ok_or("an event beyond its end")?;
            rest = &rest[length..];
            match self.decoder.decode(record, &mut self.trace) {
                Some((tid, kind)) => self.trace.events.push(Event { time_ns, tid, cpu, kind }),
                None => self.undecoded += 1,
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Trace {
        self.trace.lost_events = self.trace.lost_events.max(self.lost);
        if self.undecoded > 0 {
            self.trace.notes.push(format!(
                "{} records of events that Takt does not use, or that are damaged, are left out",
                self.undecoded
            ));
        }
        self.trace.sort();
        self.trace
    }
}
