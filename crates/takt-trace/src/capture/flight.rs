//! The flight recorder: raw records of one CPU, the newest kept, and the windows that somebody
//! asked to keep.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::window::record;
use crate::event::Span;

/// Raw records that were drained at once.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Everything of this CPU in this span is in `data`.
    pub(super) span: Span,
    pub(super) data: Vec<u8>,
}

impl Chunk {
    /// Leaves what lies between the first begin and the last end of `marks`: a busy CPU writes as
    /// much in the rest of 20 ms as would keep another window.
    fn cut(&mut self, marks: impl Iterator<Item = Span>) {
        let Some(hull) =
            marks.reduce(|a, b| Span { from_ns: a.from_ns.min(b.from_ns), to_ns: a.to_ns.max(b.to_ns) })
        else {
            return;
        };
        self.span =
            Span { from_ns: hull.from_ns.max(self.span.from_ns), to_ns: hull.to_ns.min(self.span.to_ns) };
        let wanted = self.span.from_ns..=self.span.to_ns;
        let (mut data, mut at) = (Vec::new(), 0);
        while let Some((end, time_ns)) = record(&self.data, at) {
            if wanted.contains(&time_ns) {
                data.extend_from_slice(&self.data[at..end]);
            }
            at = end;
        }
        data.shrink_to_fit();
        self.data = data;
    }
}

/// A window to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) span: Span,
    /// Lateness of the release: if memory runs out, the worst are kept.
    pub(super) weight_ns: u64,
}

/// A chunk that a mark saved from being forgotten.
#[derive(Debug)]
struct Kept {
    span: Span,
    /// Packed (zstd), where that is smaller: records repeat each other, and a run of minutes on a
    /// busy machine has thousands of late moments.
    data: Vec<u8>,
    raw_bytes: usize,
    /// The greatest weight of its marks.
    weight_ns: u64,
}

/// So much less memory a kept chunk counts for at best: what is unpacked at the end stays bounded.
const PACKED_AT_BEST: usize = 4;
/// The fastest level: some 0.1 ms for a chunk, in a thread that nobody waits for.
const LEVEL: i32 = 1;

impl Kept {
    fn new(chunk: Chunk, weight_ns: u64) -> Self {
        let Chunk { span, data } = chunk;
        let raw_bytes = data.len();
        let packed = zstd::bulk::compress(&data, LEVEL).ok();
        let data = packed.filter(|packed| packed.len() < raw_bytes).unwrap_or(data);
        Self { span, data, raw_bytes, weight_ns }
    }

    /// The memory that it counts for.
    fn cost(&self) -> usize {
        self.data.len().max(self.raw_bytes / PACKED_AT_BEST)
    }

    /// Its records; `None` where they cannot be unpacked, which nothing but broken memory explains.
    fn records(&self) -> Option<Vec<u8>> {
        if self.data.len() == self.raw_bytes {
            return Some(self.data.clone());
        }
        let unpacked = zstd::bulk::decompress(&self.data, self.raw_bytes).ok();
        unpacked.filter(|unpacked| unpacked.len() == self.raw_bytes)
    }
}

/// Chunks of one CPU, oldest first.
#[derive(Debug, Default)]
pub(super) struct Flight {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    kept: Vec<Kept>,
    kept_bytes: usize,
    pub(super) forgotten: bool,
    /// Windows that no memory was left for.
    pub(super) dropped: u64,
}

impl Flight {
    /// Adds a chunk, and forgets the oldest beyond `limit_bytes` unless one of `marks` touches
    /// them; marked ones have `limit_bytes` of their own, in which the worst displace the others.
    pub(super) fn push(&mut self, chunk: Chunk, limit_bytes: usize, marks: &[Mark]) {
        self.bytes += chunk.data.len();
        self.chunks.push_back(chunk);
        while self.bytes > limit_bytes && self.chunks.len() > 1 {
            let Some(mut old) = self.chunks.pop_front() else { break };
            self.bytes -= old.data.len();
            let span = old.span;
            let touches = |mark: &&Mark| mark.span.from_ns <= span.to_ns && span.from_ns <= mark.span.to_ns;
            let marks = marks.iter().filter(touches);
            let weight_ns = marks.clone().map(|mark| mark.weight_ns).max();
            old.cut(marks.map(|mark| mark.span));
            let kept = weight_ns.map(|weight_ns| Kept::new(old, weight_ns));
            match kept {
                Some(kept) if self.free_space(kept.cost(), kept.weight_ns, limit_bytes) => {
                    self.kept_bytes += kept.cost();
                    self.kept.push(kept);
                }
                kept => {
                    self.dropped += u64::from(kept.is_some());
                    self.forgotten = true;
                }
            }
        }
    }

    /// Forgets kept chunks of lesser weight until `bytes` more fit; false, and nothing forgotten,
    /// where that is not enough.
    fn free_space(&mut self, bytes: usize, weight_ns: u64, limit_bytes: usize) -> bool {
        let lesser = self.kept.iter().filter(|kept| kept.weight_ns < weight_ns).map(Kept::cost);
        if self.kept_bytes - lesser.sum::<usize>() + bytes > limit_bytes {
            return false;
        }
        while self.kept_bytes + bytes > limit_bytes {
            let least = self.kept.iter().enumerate().min_by_key(|(_, kept)| kept.weight_ns);
            let Some((least, _)) = least else { break };
            // Their order in time stays.
            self.kept_bytes -= self.kept.remove(least).cost();
            self.dropped += 1;
        }
        true
    }

    /// The span and the records of each chunk, oldest first; no records where they cannot be
    /// unpacked.
    pub(super) fn all(&self) -> impl Iterator<Item = (Span, Option<Cow<'_, [u8]>>)> {
        let kept = self.kept.iter().map(|kept| (kept.span, kept.records().map(Cow::Owned)));
        kept.chain(self.chunks.iter().map(|chunk| (chunk.span, Some(Cow::Borrowed(&chunk.data[..])))))
    }

    /// From when on nothing is forgotten yet.
    pub(super) fn oldest_ns(&self) -> u64 {
        self.chunks.front().map_or(u64::MAX, |chunk| chunk.span.from_ns)
    }

    /// The spans that are there, oldest first, neighbours joined.
    pub(super) fn spans(&self) -> Vec<Span> {
        let mut joined: Vec<Span> = Vec::new();
        let kept = self.kept.iter().map(|kept| kept.span);
        for span in kept.chain(self.chunks.iter().map(|chunk| chunk.span)) {
            match joined.last_mut() {
                Some(last) if last.to_ns >= span.from_ns => last.to_ns = last.to_ns.max(span.to_ns),
                _ => joined.push(span),
            }
        }
        joined
    }
}

/// The spans that all lists have in common.
pub(super) fn common(mut lists: impl Iterator<Item = Vec<Span>>) -> Vec<Span> {
    let Some(first) = lists.next() else { return Vec::new() };
    lists.fold(first, |left, right| {
        let mut both = Vec::new();
        for a in &left {
            for b in &right {
                let (from_ns, to_ns) = (a.from_ns.max(b.from_ns), a.to_ns.min(b.to_ns));
                if from_ns < to_ns {
                    both.push(Span { from_ns, to_ns });
                }
            }
        }
        both
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from_ns: u64, to_ns: u64) -> Span {
        Span { from_ns, to_ns }
    }

    /// A chunk with one record, of its begin.
    fn chunk(from_ns: u64, to_ns: u64, bytes: usize) -> Chunk {
        Chunk { span: span(from_ns, to_ns), data: record_of(from_ns, bytes) }
    }

    fn record_of(time_ns: u64, bytes: usize) -> Vec<u8> {
        let mut record = perf_event_open_sys::bindings::PERF_RECORD_SAMPLE.to_ne_bytes().to_vec();
        record.extend([0, 0]);
        record.extend(u16::try_from(bytes).unwrap().to_ne_bytes());
        record.extend(time_ns.to_ne_bytes());
        record.resize(bytes, 7);
        record
    }

    fn mark(from_ns: u64, to_ns: u64, weight_ns: u64) -> Mark {
        Mark { span: span(from_ns, to_ns), weight_ns }
    }

    #[test]
    fn the_newest_and_the_marked_are_kept() {
        let mut flight = Flight::default();
        for index in 0..10 {
            flight.push(chunk(index * 10, index * 10 + 10, 100), 300, &[mark(15, 25, 1)]);
        }
        assert_eq!(flight.spans(), [span(15, 25), span(70, 100)]);
        assert!(flight.forgotten);
        assert_eq!(flight.dropped, 0);
    }

    #[test]
    fn of_a_marked_chunk_the_marked_part_alone_takes_memory() {
        let mut flight = Flight::default();
        let data: Vec<u8> = (0..200).flat_map(|ms| record_of(ms, 100)).collect();
        flight.push(Chunk { span: span(0, 200), data }, 2500, &[]);
        // Two late releases, of which the second goes on beyond the chunk.
        let marks = [mark(190, 210, 1), mark(185, 187, 9)];
        flight.push(chunk(200, 300, 100), 2500, &marks);
        assert_eq!((flight.kept[0].raw_bytes, flight.kept.len(), flight.dropped), (1500, 1, 0));
        assert_eq!(flight.spans(), [span(185, 300)]);
        let (_, first) = flight.all().next().unwrap();
        assert!(record(&first.unwrap(), 0).is_some_and(|(end, time_ns)| (end, time_ns) == (100, 185)));
    }

    #[test]
    fn what_is_kept_is_packed_and_comes_back_as_it_was() {
        let mut flight = Flight::default();
        let alike: Vec<u8> = (0..200).flat_map(|ms| record_of(ms, 100)).collect();
        // Incompressible data counts with its full size.
        let mut state = 1_u64;
        let noise: Vec<u8> = (0..5000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        let all = [mark(0, 400, 1)];
        const LIMIT: usize = 12_000;
        flight.push(Chunk { span: span(0, 200), data: alike.clone() }, LIMIT, &[]);
        let mut record = record_of(250, 5000);
        record[16..].copy_from_slice(&noise[16..]);
        flight.push(Chunk { span: span(200, 400), data: record.clone() }, LIMIT, &all);
        flight.push(chunk(400, 500, 8000), LIMIT, &all);
        assert_eq!(flight.kept.len(), 2);
        assert!(flight.kept[0].data.len() < alike.len() / PACKED_AT_BEST);
        assert_eq!(flight.kept[0].cost(), alike.len() / PACKED_AT_BEST, "what is unpacked is bounded");
        assert_eq!(flight.kept[1].cost(), record.len());
        let records: Vec<Vec<u8>> = flight.all().map(|(_, records)| records.unwrap().into_owned()).collect();
        assert_eq!(records[..2], [alike, record]);
        // Memory that does not hold what was written is no empty time.
        flight.kept[0].data.truncate(9);
        assert!(flight.all().next().unwrap().1.is_none());
    }

    #[test]
    fn memory_is_bounded_even_when_all_is_marked() {
        let mut flight = Flight::default();
        for index in 0..100 {
            flight.push(chunk(index, index + 1, 4000), 12_000, &[mark(0, u64::MAX, 1)]);
        }
        // Three of the present, and twelve packed ones.
        assert_eq!((flight.chunks.len(), flight.kept.len(), flight.kept_bytes), (3, 12, 12_000));
        assert_eq!(flight.dropped, 85);
    }

    #[test]
    fn the_worst_displace_the_others() {
        let mut flight = Flight::default();
        let marks = [mark(0, 0, 5), mark(10, 10, 9), mark(20, 20, 1), mark(30, 30, 7), mark(40, 40, 2)];
        for index in 0..10 {
            flight.push(chunk(index * 10, index * 10 + 9, 4000), 2000, &marks);
        }
        let kept: Vec<u64> = flight.kept.iter().map(|kept| kept.span.from_ns).collect();
        assert_eq!((kept, flight.dropped, flight.kept_bytes), (vec![10, 30], 3, 2000));
        // One that is larger than all memory for kept ones displaces nothing.
        flight.push(chunk(100, 109, 8004), 2000, &[]);
        flight.push(chunk(110, 119, 16), 2000, &[mark(100, 109, 99)]);
        assert_eq!(flight.kept.len(), 2);
    }

    #[test]
    fn only_what_all_cpus_have_counts() {
        let lists = [vec![span(0, 10), span(20, 40)], vec![span(5, 30)]];
        assert_eq!(common(lists.into_iter()), [span(5, 10), span(20, 30)]);
        assert_eq!(common(std::iter::empty()), []);
    }
}
