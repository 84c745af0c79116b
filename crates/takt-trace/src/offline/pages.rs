//! Pages of the kernel's ring buffer (Documentation/trace/ring-buffer-design, libtraceevent's
//! kbuffer).

use super::bytes::{u32_at, u64_at};
use super::error::OfflineError;
use super::limits;
use super::note_undecoded;
use super::tracing_data::PageLayout;
use crate::event::{Event, Kind, Trace};
use crate::format::Decoder;

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

/// Takes pages apart.
pub(super) struct Pages {
    pub(super) trace: Trace,
    decoder: Decoder,
    layout: PageLayout,
    pub(super) page_bytes: usize,
    undecoded: u64,
    damaged: u64,
    first_damaged: Option<String>,
    /// Events marked as missing in pages.
    lost: u64,
    unpacked: u64,
}

impl Pages {
    pub(super) fn new(trace: Trace, decoder: Decoder, layout: PageLayout, page_bytes: usize) -> Self {
        Self {
            trace,
            decoder,
            layout,
            page_bytes,
            undecoded: 0,
            damaged: 0,
            first_damaged: None,
            lost: 0,
            unpacked: 0,
        }
    }

    /// Pages of one CPU, which begin at byte `offset` of the file; what is behind the last whole
    /// one is left.
    pub(super) fn pages(&mut self, cpu: u16, data: &[u8], offset: u64) -> Result<(), OfflineError> {
        for (index, page) in data.chunks_exact(self.page_bytes.max(1)).enumerate() {
            if let Err(reason) = self.page(cpu, page) {
                let at = offset.saturating_add(index as u64 * self.page_bytes as u64);
                self.damaged += 1;
                self.first_damaged
                    .get_or_insert_with(|| format!("the first at byte {at}, CPU {cpu}: {reason}"));
            }
            limits::events(self.trace.events.len())?;
        }
        Ok(())
    }

    /// Counts unpacked bytes of a file of `file_bytes`.
    pub(super) fn unpacked(&mut self, bytes: u64, file_bytes: u64) -> Result<(), OfflineError> {
        self.unpacked = self.unpacked.saturating_add(bytes);
        limits::unpacked(self.unpacked, file_bytes)
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
                    length.checked_next_multiple_of(4).ok_or("an event of impossible length")?
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

    pub(super) fn finish(mut self) -> Trace {
        self.trace.lost_events = self.trace.lost_events.max(self.lost);
        if let Some(first) = self.first_damaged {
            self.trace.notes.push(format!(
                "{} pages are damaged ({first}); the rest of each such page is left out",
                self.damaged
            ));
        }
        note_undecoded(&mut self.trace, self.undecoded);
        self.trace.sort();
        self.trace
    }
}
