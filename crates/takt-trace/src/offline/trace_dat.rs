//! `trace.dat` of trace-cmd: what both versions have in common, and version 6 (man 5
//! trace-cmd.dat.v6). Version 7 is in [`sections`](super::sections).

use super::bytes::Bytes;
use super::error::OfflineError;
use super::pages::Pages;
use super::sections;
use super::tracing_data;
use crate::event::{Clock, Trace};
use crate::format::Decoder;

/// Options, by number (trace-cmd-private.h).
pub(super) const OPTION_DONE: u16 = 0;
const OPTION_CPUSTAT: u16 = 2;
pub(super) const OPTION_BUFFER: u16 = 3;
const OPTION_TRACECLOCK: u16 = 4;
const OPTION_OFFSET: u16 = 7;
const OPTION_TIME_SHIFT: u16 = 12;

pub(super) fn read(file: &[u8]) -> Result<Trace, OfflineError> {
    let mut bytes = Bytes::new(file);
    let head = tracing_data::head(&mut bytes)?;
    match head.version {
        6 => version6(file, bytes, head.page_size),
        7 => sections::read(file, bytes, head.page_size),
        other => Err(OfflineError::Unsupported {
            what: format!("a trace.dat of version {other}"),
            fix: "`trace-cmd convert --file-version 7 -i trace.dat -o trace7.dat` of the newest trace-cmd makes one that can",
        }),
    }
}

/// A trace to be filled; the clock is ftrace's own until an option names it.
pub(super) fn empty() -> Trace {
    Trace { clock: Clock::Other("local".to_owned()), ..Trace::default() }
}

fn version6(file: &[u8], mut bytes: Bytes<'_>, page_size: u32) -> Result<Trace, OfflineError> {
    let mut trace = empty();
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
        b"latency  \0" => return Err(text_only()),
        other => {
            return Err(OfflineError::Damaged {
                part: "the kind of data",
                offset,
                received: other.escape_ascii().to_string(),
                expected: "`options`, `flyrecord` or `latency`",
            });
        }
    }
    let mut pages = Pages::new(trace, decoder, layout, page_size as usize);
    for cpu in 0..cpus {
        let (offset, size) = (bytes.u64("the table of CPUs")?, bytes.u64("the table of CPUs")?);
        plain_pages(&mut pages, file, u16::try_from(cpu).unwrap_or(u16::MAX), offset, size);
    }
    Ok(pages.finish())
}

/// The pages of one CPU as they stand in the file.
pub(super) fn plain_pages(pages: &mut Pages, file: &[u8], cpu: u16, offset: u64, size: u64) {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(file.len());
    let there = usize::try_from(size).unwrap_or(usize::MAX).min(file.len() - start);
    let before = pages.trace.events.len();
    pages.pages(cpu, &file[start..start + there], offset);
    if (there as u64) < size {
        torn(pages, cpu, offset.saturating_add(there as u64), offset.saturating_add(size), before);
    }
}

/// Notes that a CPU's data ends too early.
pub(super) fn torn(pages: &mut Pages, cpu: u16, at: u64, end: u64, events_before: usize) {
    let events = pages.trace.events.len() - events_before;
    pages.trace.notes.push(format!(
        "CPU {cpu}: the file is whole up to byte {at} of {end} only, with {events} events of this CPU before that"
    ));
}

pub(super) fn text_only() -> OfflineError {
    OfflineError::Unsupported {
        what: "a trace.dat of a latency tracer, which holds text".to_owned(),
        fix: "record events: `trace-cmd record -C mono -e sched -e irq -e irq_vectors -e hrtimer`",
    }
}

fn options(bytes: &mut Bytes<'_>, trace: &mut Trace) -> Result<(), OfflineError> {
    loop {
        let id = bytes.u16("an option")?;
        if id == OPTION_DONE {
            return Ok(());
        }
        let size = bytes.u32("an option")?;
        let value = bytes.take(size.into(), "an option")?;
        if id == OPTION_BUFFER {
            trace.notes.push("the buffer of a trace instance is left out: only the main one is read".into());
        }
        option(id, value, trace);
    }
}

pub(super) fn option(id: u16, value: &[u8], trace: &mut Trace) {
    let text = String::from_utf8_lossy(value);
    let text = text.trim_end_matches('\0').trim();
    match id {
        OPTION_TRACECLOCK => {
            // Either the clock's name, or all names with brackets around the one.
            let name = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            trace.clock = clock(name.map_or(text, |(name, _)| name));
        }
        // What the kernel overwrote or dropped before it could be read. What is missing in the
        // pages is marked there too, so that the sum would count it twice.
        OPTION_CPUSTAT => {
            for line in text.lines() {
                let count = ["overrun:", "dropped events:"]
                    .iter()
                    .find_map(|key| line.trim().strip_prefix(key)?.trim().parse::<u64>().ok());
                trace.lost_events = trace.lost_events.saturating_add(count.unwrap_or(0));
            }
        }
        OPTION_OFFSET | OPTION_TIME_SHIFT => trace.notes.push(
            "the recorder noted a shift of the clock (--date, or a guest's trace): it is not applied".into(),
        ),
        _ => {}
    }
}

/// ftrace's name of a clock.
pub(super) fn clock(name: &str) -> Clock {
    match name {
        "mono" => Clock::Monotonic,
        name => Clock::Other(name.to_owned()),
    }
}
