//! A bounded record of work on the device, for pictures of it beside the CPU's threads.

use serde::{Deserialize, Serialize};
use takt_rt::ring::{self, Consumer, Producer};

use crate::clock::Stamp;

/// A piece of work on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Name of the work: `upload`, `inference`...
    pub name: &'static str,
    /// The stream, as its user calls it.
    pub stream: &'static str,
    /// The camera, if it was a camera's.
    pub camera: Option<u16>,
    /// Its frame or cycle, from 0.
    pub index: u64,
    /// Start, CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// End, CLOCK_MONOTONIC.
    pub end_ns: u64,
    /// Both are at most so far off.
    pub error_ns: u64,
}

/// As [`Span`], read back from a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSpan {
    pub name: String,
    pub stream: String,
    pub camera: Option<u16>,
    pub index: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    pub error_ns: u64,
}

impl Span {
    /// Work called `name` from `start` to `end`. A start that lies behind the end, which the error
    /// allows, becomes the end.
    pub fn between(name: &'static str, stream: &'static str, start: Stamp, end: Stamp) -> Self {
        Self {
            name,
            stream,
            camera: None,
            index: 0,
            start_ns: start.at_ns.min(end.at_ns),
            end_ns: end.at_ns,
            error_ns: start.error_ns.max(end.error_ns),
        }
    }

    /// The same, of frame `index` of `camera`.
    pub fn of_camera(self, camera: u16, index: u64) -> Self {
        Self { camera: Some(camera), index, ..self }
    }
}

impl From<&Span> for SavedSpan {
    fn from(span: &Span) -> Self {
        let Span { name, stream, camera, index, start_ns, end_ns, error_ns } = *span;
        Self { name: name.to_owned(), stream: stream.to_owned(), camera, index, start_ns, end_ns, error_ns }
    }
}

/// Destination of one thread's spans; never waits and never allocates. Spans that do not fit are
/// lost and counted.
pub struct SpanRecorder(Producer<Span>);

/// The reading end.
pub struct Spans(Consumer<Span>);

/// A record of at most `capacity` spans that nobody has taken yet.
pub fn recorder(capacity: usize) -> (SpanRecorder, Spans) {
    let (producer, consumer) = ring::ring(capacity);
    (SpanRecorder(producer), Spans(consumer))
}

impl SpanRecorder {
    /// Records `span`; `false` when there was no room.
    pub fn push(&mut self, span: Span) -> bool {
        self.0.push(span)
    }
}

impl Spans {
    /// Appends what has been recorded to `batch`; returns how many.
    pub fn take_into(&mut self, batch: &mut Vec<Span>) -> usize {
        self.0.take_into(batch, usize::MAX)
    }

    /// Spans lost so far.
    pub fn lost(&self) -> u64 {
        self.0.lost()
    }
}

impl std::fmt::Debug for SpanRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpanRecorder").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Spans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spans").field("lost", &self.lost()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_record_loses_and_says_so() {
        let (mut put, mut take) = recorder(4);
        let stamp = |at_ns, error_ns| Stamp { at_ns, error_ns };
        let span = |i| Span::between("inference", "camera", stamp(20, 3), stamp(10, 5)).of_camera(1, i);
        assert_eq!((0..6).filter(|&i| put.push(span(i))).count(), 4);
        let mut all = Vec::new();
        assert_eq!((take.take_into(&mut all), take.lost()), (4, 2));
        let expected = (10, 10, 5, Some(1), 3);
        let last = all[3];
        assert_eq!((last.start_ns, last.end_ns, last.error_ns, last.camera, last.index), expected);
        assert_eq!(SavedSpan::from(&last).name, "inference");
    }
}
