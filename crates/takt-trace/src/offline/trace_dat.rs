//! `trace.dat` of trace-cmd: what both versions have in common, and version 6 (man 5
//! trace-cmd.dat.v6). Version 7 is in [`sections`](super::sections).

use std::collections::BTreeMap;

use super::bytes::{Bytes, u32_at, u64_at};
use super::error::OfflineError;
use super::limits::{MAX_CPUS, MAX_INSTANCES};
use super::pages::Pages;
use super::sections::{self, Chunks};
use super::tracing_data::{self, PageLayout};
use crate::event::{Clock, Trace};
use crate::format::Decoder;

/// Options, by number (trace-cmd-private.h).
pub(super) const OPTION_DONE: u16 = 0;
const OPTION_CPUSTAT: u16 = 2;
pub(super) const OPTION_BUFFER: u16 = 3;
const OPTION_TRACECLOCK: u16 = 4;
const OPTION_OFFSET: u16 = 7;
const OPTION_CPUCOUNT: u16 = 8;
const OPTION_TIME_SHIFT: u16 = 12;
const OPTION_TSC2NSEC: u16 = 14;

/// Most bytes of the text of tracefs' `trace_clock`, which lists all clocks.
const MAX_CLOCK_TEXT_BYTES: u64 = 4096;

/// A buffer of events: the main one, whose name is empty, or a trace instance's.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    pub(super) name: String,
    /// ftrace's name of its clock.
    pub(super) clock: String,
    pub(super) page_bytes: usize,
    /// CPU, offset, size.
    pub(super) cpus: Vec<(u16, u64, u64)>,
    /// Whether pages are packed in chunks (version 7).
    pub(super) packed: bool,
}

impl Buffer {
    fn bytes(&self) -> u64 {
        self.cpus.iter().fold(0, |sum, cpu| sum.saturating_add(cpu.2))
    }
}

/// Contents of a file's options.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// ftrace's name of the main buffer's clock.
    clock: Option<String>,
    /// Option 4 is there and empty: the clock's name is behind the table of CPUs.
    clock_behind: bool,
    /// CPUs in each table, where that is not the number in the head.
    cpus: Option<u32>,
    /// Instances of version 6: the place of the table of CPUs, and the name.
    instances: Vec<(u64, String)>,
    /// Events lost, by buffer.
    lost: BTreeMap<String, u64>,
    /// The buffer that the next statistics are of.
    about: String,
    /// Conversion of cycles to nanoseconds: multiplier, shift, and the count that is 0.
    cycles: Option<(u32, u32, u64)>,
}

/// A file up to its events.
pub(super) struct Recorded<'a> {
    pub(super) file: &'a [u8],
    pub(super) trace: Trace,
    pub(super) decoder: Decoder,
    pub(super) layout: PageLayout,
    pub(super) options: Options,
    pub(super) buffers: Vec<Buffer>,
    /// Buffers of tracers that write text.
    pub(super) texts: usize,
}

/// Reads the main buffer, or that of `instance`.
pub(super) fn read(file: &[u8], instance: Option<&str>) -> Result<Trace, OfflineError> {
    let mut bytes = Bytes::new(file);
    let head = tracing_data::head(&mut bytes)?;
    match head.version {
        6 => version6(file, bytes, head.page_size)?.events(instance, None),
        7 => {
            let (recorded, chunks) = sections::read(file, bytes, head.page_size)?;
            recorded.events(instance, Some(&chunks))
        }
        other => Err(OfflineError::Unsupported {
            what: format!("a trace.dat of version {other}"),
            fix: "`trace-cmd convert --file-version 7 -i trace.dat -o trace7.dat` with the newest trace-cmd converts it to a readable version",
        }),
    }
}

fn version6<'a>(file: &'a [u8], mut bytes: Bytes<'a>, page_size: u32) -> Result<Recorded<'a>, OfflineError> {
    let mut trace = Trace::default();
    let mut decoder = Decoder::default();
    let layout = tracing_data::page_layout(&mut bytes)?;
    tracing_data::skip_ftrace_formats(&mut bytes)?;
    tracing_data::event_formats(&mut bytes, &mut decoder, &mut trace)?;
    tracing_data::skip_symbols(&mut bytes)?;
    tracing_data::saved_names(bytes.sized("the names of threads")?, &mut trace);
    let offset = bytes.offset();
    let cpus = count_of_cpus(bytes.u32("the number of CPUs")?, offset)?;
    let mut recorded =
        Recorded { file, trace, decoder, layout, options: Options::default(), buffers: Vec::new(), texts: 0 };
    recorded.buffer6(bytes, "", cpus, page_size)?;
    for (offset, name) in std::mem::take(&mut recorded.options.instances) {
        // A file that was cut off may still have its main buffer.
        match Bytes::at(file, offset, "a trace instance") {
            Ok(bytes) => recorded.buffer6(bytes, &name, cpus, page_size)?,
            Err(error) => {
                recorded.trace.notes.push(format!("the trace instance `{name}` is left out: {error}"))
            }
        }
    }
    Ok(recorded)
}

fn count_of_cpus(cpus: u32, offset: u64) -> Result<u32, OfflineError> {
    match (1..=MAX_CPUS).contains(&cpus) {
        true => Ok(cpus),
        false => Err(OfflineError::Damaged {
            part: "the number of CPUs",
            offset,
            received: cpus.to_string(),
            expected: "1 to 65535",
        }),
    }
}

impl Recorded<'_> {
    /// The description of a buffer of version 6: options, its kind, the table of CPUs and, until
    /// trace-cmd 3.0, its clock.
    fn buffer6(
        &mut self,
        mut bytes: Bytes<'_>,
        name: &str,
        cpus: u32,
        page_size: u32,
    ) -> Result<(), OfflineError> {
        let mut offset = bytes.offset();
        let mut kind = bytes.take(10, "the kind of data")?;
        if kind == b"options  \0" {
            loop {
                let id = bytes.u16("an option")?;
                if id == OPTION_DONE {
                    break;
                }
                let size = bytes.u32("an option")?;
                let value = bytes.take(size.into(), "an option")?;
                self.option(id, value)?;
            }
            offset = bytes.offset();
            kind = bytes.take(10, "the kind of data")?;
        }
        match kind {
            b"flyrecord\0" => {}
            b"latency  \0" => {
                self.texts += 1;
                return Ok(());
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
        let cpus = self.options.cpus.unwrap_or(cpus);
        let mut table = Vec::new();
        for cpu in 0..cpus {
            let (offset, size) = (bytes.u64("the table of CPUs")?, bytes.u64("the table of CPUs")?);
            table.push((u16::try_from(cpu).unwrap_or(u16::MAX), offset, size));
        }
        let mut clock = self.options.clock.clone();
        if self.options.clock_behind {
            // trace-cmd takes a text that cannot be read for `local` as well.
            clock = bytes
                .u64("the clock")
                .ok()
                .filter(|&size| size <= MAX_CLOCK_TEXT_BYTES)
                .and_then(|size| bytes.take(size, "the clock").ok())
                .and_then(clock_name);
        }
        self.buffers.push(Buffer {
            name: name.to_owned(),
            clock: clock.unwrap_or_else(|| "local".to_owned()),
            page_bytes: page_size as usize,
            cpus: table,
            packed: false,
        });
        Ok(())
    }

    /// An option that is no place of a section.
    pub(super) fn option(&mut self, id: u16, value: &[u8]) -> Result<(), OfflineError> {
        let options = &mut self.options;
        match id {
            OPTION_TRACECLOCK => match clock_name(value) {
                Some(name) => options.clock = Some(name),
                None => options.clock_behind = true,
            },
            OPTION_CPUCOUNT => options.cpus = Some(count_of_cpus(u32_at(value, 0), 0)?),
            OPTION_BUFFER => {
                let name = value.get(8..).unwrap_or_default().split(|&byte| byte == 0).next();
                let name = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
                options.instances.push((u64_at(value, 0), name));
                within_instances(options.instances.len())?;
            }
            OPTION_CPUSTAT => options.statistics(&String::from_utf8_lossy(value)),
            OPTION_TSC2NSEC => {
                options.cycles = Some((u32_at(value, 0), u32_at(value, 4), u64_at(value, 8)));
            }
            OPTION_OFFSET | OPTION_TIME_SHIFT => self.trace.notes.push(
                "the recorder noted a clock offset (--date, or a guest's trace), which is not applied".into(),
            ),
            _ => {}
        }
        Ok(())
    }

    /// The events of `instance`; without one those of the main buffer or, where that has none, of
    /// the only instance that has.
    fn events(self, instance: Option<&str>, chunks: Option<&Chunks<'_>>) -> Result<Trace, OfflineError> {
        let Self { file, trace, decoder, layout, options, buffers, texts } = self;
        let main = buffers.iter().find(|buffer| buffer.name.is_empty());
        let others: Vec<&Buffer> =
            buffers.iter().filter(|buffer| !buffer.name.is_empty() && buffer.bytes() > 0).collect();
        let names = |of: &[&Buffer]| {
            of.iter()
                .map(|buffer| format!("`{}` ({} bytes)", shown(&buffer.name), buffer.bytes()))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let mut pages = Pages::new(trace, decoder, layout, 0);
        let read = |buffer: &Buffer, pages: &mut Pages| -> Result<(), OfflineError> {
            pages.trace.clock = clock(&buffer.clock);
            pages.trace.lost_events = options.lost.get(&buffer.name).copied().unwrap_or(0);
            pages.page_bytes = buffer.page_bytes;
            buffer_pages(buffer, file, chunks, pages)
        };
        match (instance, main) {
            (Some(name), _) => {
                let Some(buffer) = buffers.iter().find(|buffer| buffer.name == name) else {
                    return Err(OfflineError::NoInstance {
                        wanted: shown(name),
                        received: match others.as_slice() {
                            [] => "none".to_owned(),
                            others => names(others),
                        },
                    });
                };
                read(buffer, &mut pages)?;
            }
            (None, Some(buffer)) => {
                read(buffer, &mut pages)?;
                if !pages.trace.events.is_empty() && !others.is_empty() {
                    pages.trace.notes.push(format!(
                        "these events come from the main buffer; `--instance NAME` reads those of a trace instance: {}",
                        names(&others)
                    ));
                }
            }
            (None, None) => {}
        }
        if instance.is_none() && pages.trace.events.is_empty() {
            match others.as_slice() {
                [] if texts > 0 => return Err(text_only()),
                [] if buffers.is_empty() => {
                    return Err(OfflineError::Unfinished { part: "the place of its events" });
                }
                [] => {}
                [only] => {
                    read(only, &mut pages)?;
                    pages.trace.notes.push(format!(
                        "the main buffer has no events, so these come from the trace instance `{}`",
                        shown(&only.name)
                    ));
                }
                several => return Err(OfflineError::SeveralInstances { received: names(several) }),
            }
        }
        let mut trace = pages.finish();
        cycles(&mut trace, options.cycles);
        Ok(trace)
    }
}

/// A name from a file, short enough for a message.
fn shown(name: &str) -> String {
    takt_files::quoted(name)
}

pub(super) fn within_instances(count: usize) -> Result<(), OfflineError> {
    match count <= MAX_INSTANCES {
        true => Ok(()),
        false => Err(OfflineError::Limit {
            what: "trace instances",
            received: count as u64,
            most: MAX_INSTANCES as u64,
            fix: "record fewer in one file",
        }),
    }
}

/// Makes nanoseconds of the CPU's cycles where the file says how.
fn cycles(trace: &mut Trace, how: Option<(u32, u32, u64)>) {
    let (Some((multiplier, shift, zero)), Clock::Other(name)) = (how, &trace.clock) else { return };
    if multiplier == 0 || shift >= 64 || !matches!(name.as_str(), "x86-tsc" | "tsc2nsec") {
        return;
    }
    for event in &mut trace.events {
        let cycles = u128::from(event.time_ns.saturating_sub(zero));
        event.time_ns = u64::try_from((cycles * u128::from(multiplier)) >> shift).unwrap_or(u64::MAX);
    }
    trace.clock = Clock::Other("tsc2nsec".to_owned());
}

fn buffer_pages(
    buffer: &Buffer,
    file: &[u8],
    chunks: Option<&Chunks<'_>>,
    pages: &mut Pages,
) -> Result<(), OfflineError> {
    for &(cpu, offset, size) in &buffer.cpus {
        match chunks {
            Some(chunks) if buffer.packed => {
                if size > 0 {
                    chunks.read(cpu, offset, size, pages)?;
                }
            }
            _ => plain_pages(pages, file, cpu, offset, size)?,
        }
    }
    Ok(())
}

/// The pages of one CPU as they stand in the file.
fn plain_pages(pages: &mut Pages, file: &[u8], cpu: u16, offset: u64, size: u64) -> Result<(), OfflineError> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(file.len());
    let there = usize::try_from(size).unwrap_or(usize::MAX).min(file.len() - start);
    let before = pages.trace.events.len();
    pages.pages(cpu, &file[start..start + there], offset)?;
    if (there as u64) < size {
        torn(pages, cpu, offset.saturating_add(there as u64), offset.saturating_add(size), before);
    }
    Ok(())
}

/// Notes that a CPU's data ends too early.
pub(super) fn torn(pages: &mut Pages, cpu: u16, at: u64, end: u64, events_before: usize) {
    let events = pages.trace.events.len() - events_before;
    pages.trace.notes.push(format!(
        "CPU {cpu}: the file is intact only up to byte {at} of {end}, with {events} events of this CPU before that"
    ));
}

fn text_only() -> OfflineError {
    OfflineError::Unsupported {
        what: "a trace.dat of a latency tracer, which holds text".to_owned(),
        fix: "record events: `trace-cmd record -C mono -e sched -e irq -e irq_vectors -e 'timer:hrtimer_*'`",
    }
}

impl Options {
    /// Counts events that the kernel overwrote or dropped before they could be read. Events missing
    /// in the pages are marked there as well, so the sum would count them twice.
    fn statistics(&mut self, text: &str) {
        for line in text.trim_end_matches('\0').lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("Buffer:") {
                name.trim().clone_into(&mut self.about);
            }
            let count = ["overrun:", "dropped events:"]
                .iter()
                .find_map(|key| line.strip_prefix(key)?.trim().parse::<u64>().ok());
            if let Some(count) = count.filter(|&count| count > 0) {
                let lost = self.lost.entry(self.about.clone()).or_default();
                *lost = lost.saturating_add(count);
            }
        }
    }
}

/// The clock in the text of `trace_clock`: either its name alone, or all names with brackets around
/// the one. None where nothing is there.
fn clock_name(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let text = text.trim_end_matches('\0').trim();
    let name = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text, |(name, _)| name);
    (!name.is_empty()).then(|| name.to_owned())
}

/// ftrace's name of a clock.
pub(super) fn clock(name: &str) -> Clock {
    match name {
        "mono" => Clock::Monotonic,
        name => Clock::Other(takt_files::quoted(name)),
    }
}
