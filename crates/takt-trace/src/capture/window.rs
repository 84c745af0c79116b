//! Windows out of a ring that the kernel overwrites: only what is asked for is copied and looked
//! at.

use perf_event_open_sys::bindings as b;
use takt_rt::perf_ring::PerfRing;

use crate::event::Span;

/// Records of one CPU that lie in some spans.
#[derive(Debug, Default)]
pub(super) struct Window {
    data: Vec<u8>,
    /// Begin and end of the records, newest first.
    records: Vec<(usize, usize)>,
    /// When the oldest record was written that was looked at, and whether that is because the ring
    /// holds no older one.
    oldest_ns: u64,
    forgotten: bool,
}

/// Type u32, misc u16, size u16, then the time.
const HEADER_BYTES: usize = 8;

impl Window {
    /// Reads the ring back to the begin of the first of `spans` (in the order of time), or until
    /// `most_bytes` were looked at.
    pub(super) fn read(ring: &PerfRing, spans: &[Span], most_bytes: usize) -> Self {
        let mut window = Self { oldest_ns: u64::MAX, ..Self::default() };
        let Some(from_ns) = spans.first().map(|span| span.from_ns) else { return window };
        let mut data = Vec::new();
        let mut at = 0;
        let mut marks: Vec<(usize, usize, u64)> = Vec::new();
        let found = ring.newest(&mut data, &mut |data| {
            while let Some((end, time_ns)) = record(data, at) {
                marks.push((at, end, time_ns));
                at = end;
                if time_ns < from_ns || at >= most_bytes {
                    return true;
                }
            }
            false
        });
        window.forgotten = !found && ring.has_forgotten();
        // The end of what was looked at may have been cut off.
        marks.retain(|mark| mark.1 <= data.len());
        for (begin, end, time_ns) in marks {
            // An event in an event is a little out of order.
            window.oldest_ns = window.oldest_ns.min(time_ns);
            let kind =
                data.get(begin..begin + 4).and_then(|kind| kind.try_into().ok()).map(u32::from_ne_bytes);
            let wanted = spans.iter().any(|span| (span.from_ns..=span.to_ns).contains(&time_ns));
            if wanted && kind == Some(b::PERF_RECORD_SAMPLE) {
                window.records.push((begin, end));
            }
        }
        window.data = data;
        window
    }

    /// From when on the ring holds everything.
    pub(super) fn whole_from_ns(&self) -> u64 {
        if self.forgotten { self.oldest_ns } else { 0 }
    }

    /// Appends the records to `out`.
    pub(super) fn oldest_first(&self, out: &mut Vec<u8>) {
        out.reserve(self.records.iter().map(|record| record.1 - record.0).sum());
        for &(begin, end) in self.records.iter().rev() {
            out.extend_from_slice(&self.data[begin..end]);
        }
    }
}

/// End and time of the record at `at`; None where it is not there as a whole.
pub(super) fn record(data: &[u8], at: usize) -> Option<(usize, u64)> {
    let header = data.get(at..at + HEADER_BYTES)?;
    let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
    let body = data.get(at + HEADER_BYTES..at + size.max(HEADER_BYTES))?;
    // Before the first write, all is zero.
    let time = if body.len() >= 8 { body[..8].try_into().ok()? } else { return None };
    let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
    // Records of the kernel's own end with the time.
    let time_ns = match kind {
        b::PERF_RECORD_SAMPLE => u64::from_ne_bytes(time),
        _ => u64::from_ne_bytes(body[body.len() - 8..].try_into().ok()?),
    };
    Some((at + size, time_ns))
}

/// Whether `inner` lies within `outer`.
pub(super) fn inside(inner: &Span, outer: &Span) -> bool {
    outer.from_ns <= inner.from_ns && inner.to_ns <= outer.to_ns
}

/// Covered part of `spans`, if every ring holds everything from `whole_from_ns` on. Of a span that
/// begins earlier, this is the end, which may hold the requested cycle.
pub(super) fn covered(spans: &[Span], whole_from_ns: u64) -> Vec<Span> {
    let left = spans.iter().map(|span| Span { from_ns: span.from_ns.max(whole_from_ns), ..*span });
    left.filter(|span| span.from_ns < span.to_ns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_span_whose_begin_was_forgotten_the_end_stays() {
        let spans = [(10, 20), (30, 40), (50, 60)].map(|(from_ns, to_ns)| Span { from_ns, to_ns });
        let left = |whole_from_ns| {
            let left = covered(&spans, whole_from_ns);
            left.iter().map(|span| (span.from_ns, span.to_ns)).collect::<Vec<_>>()
        };
        assert_eq!(left(0), [(10, 20), (30, 40), (50, 60)]);
        assert_eq!(left(35), [(35, 40), (50, 60)]);
        assert_eq!(left(40), [(50, 60)]);
        assert_eq!(left(60), []);
    }

    fn sample(time_ns: u64, bytes: u16) -> Vec<u8> {
        let mut record = b::PERF_RECORD_SAMPLE.to_ne_bytes().to_vec();
        record.extend([0, 0]);
        record.extend((16 + bytes).to_ne_bytes());
        record.extend(time_ns.to_ne_bytes());
        record.resize(usize::from(16 + bytes), 7);
        record
    }

    #[test]
    fn records_are_found_one_after_the_other_and_nothing_panics() {
        let mut data = sample(20, 8);
        data.extend(sample(10, 16));
        assert_eq!(record(&data, 0), Some((24, 20)));
        assert_eq!(record(&data, 24), Some((56, 10)));
        assert_eq!(record(&data, 56), None);
        for length in 0..data.len() {
            let _ = record(&data[..length], 0).map(|(at, _)| record(&data[..length], at));
        }
        // Never written.
        assert_eq!(record(&[0; 64], 0), None);
        // A size below a header's would never end.
        assert_eq!(record(&[9, 0, 0, 0, 0, 0, 4, 0, 1, 1, 1, 1, 1, 1, 1, 1], 0), None);
    }
}
