//! The second task of the paper: takes the records out of a ring and keeps and shows them.

use std::io;

use serde::{Deserialize, Serialize};
use takt_rt::clock;
use takt_rt::ring::Consumer;

use crate::config::{DisplayRule, SavingConfig};
use crate::record::EdgeRecord;

/// Destination of records. Called only by the saving thread; may block and allocate.
pub trait EdgeSink: Send {
    /// Keeps one edge. Every one comes here, lost ones too.
    ///
    /// # Errors
    /// The error that the outcome will report; saving continues with the next edge.
    fn edge(&mut self, edge: &EdgeRecord) -> io::Result<()>;

    /// Keeps and shows a line: the paper's "saved and displayed".
    ///
    /// # Errors
    /// As [`edge`](Self::edge).
    fn display(&mut self, line: &DisplayLine) -> io::Result<()>;

    /// Called after every batch.
    ///
    /// # Errors
    /// As [`edge`](Self::edge).
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A sink that keeps nothing: the saving task runs, and its records end with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

impl EdgeSink for Discard {
    fn edge(&mut self, _: &EdgeRecord) -> io::Result<()> {
        Ok(())
    }

    fn display(&mut self, _: &DisplayLine) -> io::Result<()> {
        Ok(())
    }
}

/// Reason why a line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// The least latency has become less.
    Least,
    /// The greatest latency has become greater.
    Greatest,
    /// The first of every so many.
    Every,
}

/// A line, with the paper's four figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DisplayLine {
    /// The edge that made it.
    pub edge: EdgeRecord,
    pub why: Why,
    /// Edges so far that came.
    pub count: u64,
    /// Least latency so far.
    pub min_ns: u64,
    /// Greatest latency so far.
    pub max_ns: u64,
    /// Mean latency so far.
    pub mean_ns: f64,
    /// Standard deviation so far.
    pub stddev_ns: f64,
}

/// Minimum, maximum, mean and standard deviation while they come (Welford 1962), and when to show
/// them.
#[derive(Clone, Debug)]
pub struct Display {
    rule: DisplayRule,
    count: u64,
    min_ns: u64,
    max_ns: u64,
    mean_ns: f64,
    squares: f64,
}

impl Display {
    /// Nothing seen yet.
    pub fn new(rule: DisplayRule) -> Self {
        Self { rule, count: 0, min_ns: u64::MAX, max_ns: 0, mean_ns: 0.0, squares: 0.0 }
    }

    /// Takes an edge in; a line where the rule asks for one.
    pub fn push(&mut self, edge: &EdgeRecord) -> Option<DisplayLine> {
        if !edge.arrived {
            return None;
        }
        let first_of_many = self.rule.every > 0 && self.count.is_multiple_of(self.rule.every);
        let (less, more) = (edge.latency_ns < self.min_ns, edge.latency_ns > self.max_ns);
        self.count += 1;
        self.min_ns = self.min_ns.min(edge.latency_ns);
        self.max_ns = self.max_ns.max(edge.latency_ns);
        let value = edge.latency_ns as f64;
        let before = value - self.mean_ns;
        self.mean_ns += before / self.count as f64;
        self.squares += before * (value - self.mean_ns);
        let why = match (more && self.rule.extremes, less && self.rule.extremes, first_of_many) {
            (true, _, _) => Why::Greatest,
            (_, true, _) => Why::Least,
            (_, _, true) => Why::Every,
            _ => return None,
        };
        let spread = self.squares / self.count.saturating_sub(1).max(1) as f64;
        Some(DisplayLine {
            edge: *edge,
            why,
            count: self.count,
            min_ns: self.min_ns,
            max_ns: self.max_ns,
            mean_ns: self.mean_ns,
            stddev_ns: spread.sqrt(),
        })
    }
}

/// Result of the saving task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Edges taken.
    pub edges: u64,
    /// Lines shown.
    pub lines: u64,
    /// Edges that found the task's ring full.
    pub lost: u64,
    /// First refusal of the sink; none if it accepted everything.
    pub problem: Option<String>,
}

/// The body of the saving thread: runs until acquisition is gone and the ring is empty.
pub(crate) fn save(
    config: &SavingConfig,
    mut ring: Consumer<EdgeRecord>,
    mut sink: Box<dyn EdgeSink>,
) -> Saved {
    let mut saved = Saved::default();
    let mut display = Display::new(config.display);
    let mut batch = vec![EdgeRecord::default(); ring_batch(config.ring)];
    let period_ns = config.period.as_nanos() as u64;
    loop {
        // Before the take: what acquisition pushed before it ended is then taken too.
        let last = ring.is_abandoned();
        let count = ring.take(&mut batch);
        let mut note = |outcome: io::Result<()>| {
            if let Err(error) = outcome {
                saved.problem.get_or_insert(error.to_string());
            }
        };
        for edge in &batch[..count] {
            note(sink.edge(edge));
            if let Some(line) = display.push(edge) {
                saved.lines += 1;
                note(sink.display(&line));
            }
        }
        saved.edges += count as u64;
        if count > 0 {
            note(sink.flush());
        } else if last {
            saved.lost = ring.lost();
            return saved;
        }
        if count < batch.len() {
            clock::sleep_until(clock::monotonic_ns() + period_ns);
        }
    }
}

fn ring_batch(ring: usize) -> usize {
    ring.clamp(1, 4096)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::{Arc, Mutex};

    fn edge(index: u64, latency_ns: u64) -> EdgeRecord {
        EdgeRecord { index, latency_ns, arrived: true, ..EdgeRecord::default() }
    }

    fn lines(rule: DisplayRule, latencies: &[u64]) -> Vec<(u64, Why)> {
        let mut display = Display::new(rule);
        let edges = latencies.iter().enumerate();
        edges
            .filter_map(|(i, &ns)| display.push(&edge(i as u64, ns)))
            .map(|line| (line.edge.index, line.why))
            .collect()
    }

    #[test]
    fn lines_come_by_the_papers_rules() {
        let latencies = [50, 50, 60, 55, 40, 70, 70];
        let both = DisplayRule { extremes: true, every: 4 };
        let expected = [(0, Why::Greatest), (2, Why::Greatest), (4, Why::Least), (5, Why::Greatest)];
        assert_eq!(lines(both, &latencies), expected);
        let every = DisplayRule { extremes: false, every: 3 };
        assert_eq!(lines(every, &latencies), [(0, Why::Every), (3, Why::Every), (6, Why::Every)]);
        assert_eq!(lines(DisplayRule { extremes: false, every: 0 }, &latencies), []);
        assert_eq!(lines(DisplayRule { extremes: false, every: 1 }, &latencies).len(), 7);
    }

    #[test]
    fn a_lost_edge_is_no_latency() {
        let mut display = Display::new(DisplayRule { extremes: true, every: 1 });
        assert!(
            display.push(&EdgeRecord { latency_ns: 1, arrived: false, ..EdgeRecord::default() }).is_none()
        );
        assert_eq!(display.push(&edge(1, 7)).unwrap().min_ns, 7);
    }

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<(Vec<u64>, u64)>>);

    impl EdgeSink for Kept {
        fn edge(&mut self, edge: &EdgeRecord) -> io::Result<()> {
            self.0.lock().unwrap().0.push(edge.index);
            if edge.index == 3 { Err(io::Error::other("disk full")) } else { Ok(()) }
        }

        fn display(&mut self, _: &DisplayLine) -> io::Result<()> {
            self.0.lock().unwrap().1 += 1;
            Ok(())
        }
    }

    #[test]
    fn everything_in_the_ring_is_saved_and_a_failure_is_reported_once() {
        let (mut producer, consumer) = takt_rt::ring::ring(8);
        let pushed = (0..12).filter(|&i| producer.push(edge(i, 10 + i))).count() as u64;
        drop(producer);
        let kept = Kept::default();
        let saved = save(&SavingConfig::default(), consumer, Box::new(kept.clone()));
        assert_eq!(pushed, 8);
        assert_eq!(kept.0.lock().unwrap().0, (0..8).collect::<Vec<_>>());
        assert_eq!((saved.edges, saved.lines, saved.lost), (8, 8, 4));
        assert_eq!(saved.problem.as_deref(), Some("disk full"));
    }

    proptest! {
        #[test]
        fn running_figures_are_those_of_the_whole(latencies in proptest::collection::vec(1u64..1_000_000, 1..200)) {
            let mut display = Display::new(DisplayRule { extremes: false, every: 1 });
            let last = latencies.iter().map(|&ns| display.push(&edge(0, ns)).unwrap()).last().unwrap();
            let n = latencies.len() as f64;
            let mean = latencies.iter().sum::<u64>() as f64 / n;
            let squares: f64 = latencies.iter().map(|&v| (v as f64 - mean).powi(2)).sum();
            prop_assert_eq!(last.min_ns, *latencies.iter().min().unwrap());
            prop_assert_eq!(last.max_ns, *latencies.iter().max().unwrap());
            prop_assert!((last.mean_ns - mean).abs() < 1e-6 * mean);
            prop_assert!((last.stddev_ns - (squares / (n - 1.0).max(1.0)).sqrt()).abs() < 1e-6 * mean);
        }
    }
}
