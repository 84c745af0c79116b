//! The flight recorder: raw records of one CPU, the newest kept, and the windows that somebody asked to keep.

use std::collections::VecDeque;

use crate::event::Span;

/// Raw records that were drained at once.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Everything of this CPU in this span is in `data`.
    pub(super) span: Span,
    pub(super) data: Vec<u8>,
}

/// Chunks of one CPU, oldest first.
#[derive(Debug, Default)]
pub(super) struct Flight {
    pub(super) chunks: VecDeque<Chunk>,
    bytes: usize,
    /// Chunks that a mark saved from being forgotten.
    pub(super) kept: Vec<Chunk>,
    kept_bytes: usize,
    pub(super) forgotten: bool,
    /// Windows that no memory was left for.
    pub(super) dropped: u64,
}

impl Flight {
    /// Adds a chunk, and forgets the oldest beyond `limit_bytes` unless one of `marks` touches them; marked ones have
    /// `limit_bytes` of their own.
    pub(super) fn push(&mut self, chunk: Chunk, limit_bytes: usize, marks: &[Span]) {
        self.bytes += chunk.data.len();
        self.chunks.push_back(chunk);
        while self.bytes > limit_bytes && self.chunks.len() > 1 {
            let Some(old) = self.chunks.pop_front() else { break };
            self.bytes -= old.data.len();
            let marked =
                marks.iter().any(|mark| mark.from_ns <= old.span.to_ns && old.span.from_ns <= mark.to_ns);
            if marked && self.kept_bytes + old.data.len() <= limit_bytes {
                self.kept_bytes += old.data.len();
                self.kept.push(old);
            } else {
                self.dropped += u64::from(marked);
                self.forgotten = true;
            }
        }
    }

    /// The spans that are there, oldest first, neighbours joined.
    pub(super) fn spans(&self) -> Vec<Span> {
        let mut joined: Vec<Span> = Vec::new();
        for span in self.kept.iter().chain(&self.chunks).map(|chunk| chunk.span) {
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

    #[test]
    fn the_newest_and_the_marked_are_kept() {
        let mut flight = Flight::default();
        for index in 0..10 {
            let chunk = Chunk { span: span(index * 10, index * 10 + 10), data: vec![0; 100] };
            flight.push(chunk, 300, &[span(22, 25)]);
        }
        assert_eq!(flight.spans(), [span(20, 30), span(70, 100)]);
        assert!(flight.forgotten);
        assert_eq!(flight.dropped, 0);
    }

    #[test]
    fn memory_is_bounded_even_when_all_is_marked() {
        let mut flight = Flight::default();
        for index in 0..100 {
            let chunk = Chunk { span: span(index, index + 1), data: vec![0; 100] };
            flight.push(chunk, 300, &[span(0, u64::MAX)]);
        }
        assert_eq!(flight.kept.len() + flight.chunks.len(), 6);
        assert_eq!(flight.dropped, 94);
    }

    #[test]
    fn only_what_all_cpus_have_counts() {
        let lists = [vec![span(0, 10), span(20, 40)], vec![span(5, 30)]];
        assert_eq!(common(lists.into_iter()), [span(5, 10), span(20, 30)]);
        assert_eq!(common(std::iter::empty()), []);
    }
}
