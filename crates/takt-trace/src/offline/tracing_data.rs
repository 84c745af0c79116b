//! Common header of `trace.dat` and of the feature "tracing data" in `perf.data`: byte order,
//! sizes, the layout of the kernel's pages and the formats of all events (man 5 trace-cmd.dat,
//! tools/perf/util/trace-event-read.c).

use std::collections::HashSet;

use super::bytes::Bytes;
use super::error::OfflineError;
use crate::event::Trace;
use crate::format::{Decoder, Format, note_name};

/// Begin of every such block.
pub(super) const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// The head of the block.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) version: u32,
    pub(super) page_size: u32,
}

/// Layout of a page of the kernel's ring buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageLayout {
    /// Bytes of the word that shows how much of the page is used: a `long` of the kernel.
    pub(super) commit_bytes: usize,
    /// Begin of the events.
    pub(super) data: usize,
}

pub(super) fn head(bytes: &mut Bytes<'_>) -> Result<Head, OfflineError> {
    let offset = bytes.offset();
    let magic = bytes.take(MAGIC.len() as u64, "the tracing header")?;
    if magic != MAGIC {
        return Err(OfflineError::Damaged {
            part: "the tracing header",
            offset,
            received: magic.escape_ascii().to_string(),
            expected: "17 08 44 `tracing`",
        });
    }
    let offset = bytes.offset();
    let text = String::from_utf8_lossy(bytes.text("the version")?).into_owned();
    // perf writes 0.5 or 0.6, trace-cmd 6 or 7.
    let version = text.strip_prefix("0.").unwrap_or(&text).parse().map_err(|_| OfflineError::Damaged {
        part: "the version",
        offset,
        received: text.clone(),
        expected: "a number",
    })?;
    if bytes.u8("the byte order")? != 0 {
        return Err(OfflineError::Unsupported {
            what: "a trace of a big-endian machine".to_owned(),
            fix: "analyse it with Takt on a machine of that byte order",
        });
    }
    bytes.u8("the size of a long")?;
    let offset = bytes.offset();
    let page_size = bytes.u32("the page size")?;
    if !page_size.is_power_of_two() || !(4096..=1 << 20).contains(&page_size) {
        return Err(OfflineError::Damaged {
            part: "the page size",
            offset,
            received: page_size.to_string(),
            expected: "a power of two from 4096 to 1048576",
        });
    }
    Ok(Head { version, page_size })
}

/// The formats of the page's and the events' headers.
pub(super) fn page_layout(bytes: &mut Bytes<'_>) -> Result<PageLayout, OfflineError> {
    let offset = bytes.offset();
    let word = bytes.text("the format of a page")?;
    if word != b"header_page" {
        return Err(OfflineError::Damaged {
            part: "the format of a page",
            offset,
            received: word.escape_ascii().to_string(),
            expected: "header_page",
        });
    }
    let page = String::from_utf8_lossy(bytes.sized("the format of a page")?).into_owned();
    bytes.text("the format of an event's header")?;
    bytes.sized("the format of an event's header")?;
    // perf leaves it empty: nothing of its own is in such pages.
    let mut layout = PageLayout { commit_bytes: 8, data: 16 };
    for line in page.lines() {
        let number = |key: &str| -> Option<usize> {
            line.split(';').map(str::trim).find_map(|part| part.strip_prefix(key))?.parse().ok()
        };
        if line.contains("local_t commit;") {
            layout.commit_bytes = number("size:").unwrap_or(layout.commit_bytes);
        } else if line.contains("char data;") {
            layout.data = number("offset:").unwrap_or(layout.data);
        }
    }
    let sane = matches!(layout.commit_bytes, 4 | 8) && (8 + layout.commit_bytes..=64).contains(&layout.data);
    match sane {
        true => Ok(layout),
        false => Err(OfflineError::Damaged {
            part: "the format of a page",
            offset,
            received: format!("{layout:?}"),
            expected: "a commit word of 4 or 8 bytes and data behind it",
        }),
    }
}

/// The formats of ftrace's own events: none that we know.
pub(super) fn skip_ftrace_formats(bytes: &mut Bytes<'_>) -> Result<(), OfflineError> {
    for _ in 0..bytes.u32("the number of formats")? {
        bytes.sized("a format")?;
    }
    Ok(())
}

/// The formats of the kernel's events; those that are known go into the decoder.
pub(super) fn event_formats(
    bytes: &mut Bytes<'_>,
    decoder: &mut Decoder,
    trace: &mut Trace,
) -> Result<(), OfflineError> {
    let known: HashSet<&str> = Decoder::known().collect();
    for _ in 0..bytes.u32("the number of event systems")? {
        let system = String::from_utf8_lossy(bytes.text("the name of an event system")?).into_owned();
        for _ in 0..bytes.u32("the number of formats")? {
            let text = bytes.sized("the format of an event")?;
            let Ok(text) = std::str::from_utf8(text) else { continue };
            let event = text.lines().find_map(|line| line.strip_prefix("name:")).unwrap_or_default();
            let name = format!("{system}:{}", event.trim());
            if !known.contains(name.as_str()) {
                continue;
            }
            // A kernel whose event looks different costs that event, not the trace.
            if let Err(error) = Format::parse(&name, text).and_then(|format| decoder.add(&format)) {
                trace.notes.push(format!("events are left out: {error}"));
            }
        }
    }
    Ok(())
}

/// Addresses of functions and texts of trace_printk: not needed.
pub(super) fn skip_symbols(bytes: &mut Bytes<'_>) -> Result<(), OfflineError> {
    for part in ["the kernel's symbols", "the texts of trace_printk"] {
        let size = bytes.u32(part)?;
        bytes.take(size.into(), part)?;
    }
    Ok(())
}

/// Names of threads, as `PID NAME` lines. Names that events bring later win.
pub(super) fn saved_names(text: &[u8], trace: &mut Trace) {
    for line in text.split(|&byte| byte == b'\n') {
        let mut parts = line.splitn(2, |&byte| byte == b' ');
        let pid = parts.next().and_then(|pid| std::str::from_utf8(pid).ok()).and_then(|pid| pid.parse().ok());
        if let (Some(pid), Some(name)) = (pid, parts.next()) {
            note_name(trace, pid, name);
        }
    }
}

/// All of it, as `perf.data` has it in one piece.
pub(super) fn whole(
    bytes: &mut Bytes<'_>,
    decoder: &mut Decoder,
    trace: &mut Trace,
) -> Result<(), OfflineError> {
    let head = head(bytes)?;
    page_layout(bytes)?;
    skip_ftrace_formats(bytes)?;
    event_formats(bytes, decoder, trace)?;
    skip_symbols(bytes)?;
    if head.version >= 6 {
        saved_names(bytes.sized("the names of threads")?, trace);
    }
    Ok(())
}
