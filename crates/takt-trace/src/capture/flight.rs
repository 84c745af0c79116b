//! The flight recorder: raw records of one CPU, the newest kept, and the windows that somebody
//! asked to keep.

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
    /// How late the release was: where memory runs out, the worst are kept.
    pub(super) weight_ns: u64,
}

/// Chunks of one CPU, oldest first.
#[derive(Debug, Default)]
pub(super) struct Flight {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    /// Chunks that a mark saved from being forgotten, with the greatest weight of their marks.
    kept: Vec<(Chunk, u64)>,
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
            let saved =
                weight_ns.is_some_and(|weight_ns| self.free_space(old.data.len(), weight_ns, limit_bytes));
            if let (Some(weight_ns), true) = (weight_ns, saved) {
                self.kept_bytes += old.data.len();
                self.kept.push((old, weight_ns));
            } else {
                self.dropped += u64::from(weight_ns.is_some());
                self.forgotten = true;
            }
        }
    }

    /// Forgets kept chunks of lesser weight until `bytes` more fit; false, and nothing forgotten,
    /// where that is not enough.
    fn free_space(&mut self, bytes: usize, weight_ns: u64, limit_bytes: usize) -> bool {
        let lesser = self.kept.iter().filter(|kept| kept.1 < weight_ns).map(|kept| kept.0.data.len());
        if self.kept_bytes - lesser.sum::<usize>() + bytes > limit_bytes {
            return false;
        }
        while self.kept_bytes + bytes > limit_bytes {
            let least = self.kept.iter().enumerate().min_by_key(|(_, kept)| kept.1).map(|(index, _)| index);
            let Some(least) = least else { break };
            // Their order in time stays.
            self.kept_bytes -= self.kept.remove(least).0.data.len();
            self.dropped += 1;
        }
        true
    }

    /// All chunks, oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Chunk> {
        self.kept.iter().map(|kept| &kept.0).chain(&self.chunks)
    }

    /// From when on nothing is forgotten yet.
    pub(super) fn oldest_ns(&self) -> u64 {
        self.chunks.front().map_or(u64::MAX, |chunk| chunk.span.from_ns)
    }

    /// The spans that are there, oldest first, neighbours joined.
    pub(super) fn spans(&self) -> Vec<Span> {
        let mut joined: Vec<Span> = Vec::new();
        for span in self.all().map(|chunk| chunk.span) {
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
        assert_eq!((flight.kept_bytes, flight.dropped), (1500, 0));
        assert_eq!(flight.spans(), [span(185, 300)]);
        let first = flight.all().next().unwrap();
        assert!(record(&first.data, 0).is_some_and(|(end, time_ns)| (end, time_ns) == (100, 185)));
    }

    #[test]
    fn memory_is_bounded_even_when_all_is_marked() {
        let mut flight = Flight::default();
        for index in 0..100 {
            flight.push(chunk(index, index + 1, 100), 300, &[mark(0, u64::MAX, 1)]);
        }
        assert_eq!(flight.kept.len() + flight.chunks.len(), 6);
        assert_eq!(flight.dropped, 94);
    }

    #[test]
    fn the_worst_displace_the_others() {
        let mut flight = Flight::default();
        let marks = [mark(0, 0, 5), mark(10, 10, 9), mark(20, 20, 1), mark(30, 30, 7), mark(40, 40, 2)];
        for index in 0..10 {
            flight.push(chunk(index * 10, index * 10 + 9, 100), 200, &marks);
        }
        let kept: Vec<u64> = flight.kept.iter().map(|kept| kept.0.span.from_ns).collect();
        assert_eq!((kept, flight.dropped, flight.kept_bytes), (vec![10, 30], 3, 200));
        // One that is larger than all memory for kept ones displaces nothing.
        flight.push(chunk(100, 109, 201), 200, &[]);
        flight.push(chunk(110, 119, 16), 200, &[mark(100, 109, 99)]);
        assert_eq!(flight.kept.len(), 2);
    }

    #[test]
    fn only_what_all_cpus_have_counts() {
        let lists = [vec![span(0, 10), span(20, 40)], vec![span(5, 30)]];
        assert_eq!(common(lists.into_iter()), [span(5, 10), span(20, 30)]);
        assert_eq!(common(std::iter::empty()), []);
    }
}
