//! The sink of the saving task: raw samples, as many as are asked for.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use takt_lab::LabError;
use takt_lab::keeper::{self, rows_kept};
use takt_rundir::{RunDir, SampleFile, Sum};

use crate::EdgeRecord;
use crate::saving::{DisplayLine, EdgeSink, Why};

/// Sample file of the edges that came.
pub const EDGES: &str = "edges";
/// Sample file of those that did not.
pub const LOST: &str = "lost_edges";
/// Sample file of the lines shown.
pub const DISPLAY: &str = "display";

/// A kill loses at most this much.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

/// Edges that are kept in memory where saving is off: 48 MB, as many as by default where it is on,
/// so that both can be compared.
const MAX_IN_MEMORY: u64 = 1_000_000;

/// An edge as a line. Times are CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeRow {
    /// Number, over all parts of a resumed run.
    pub index: u64,
    pub sent_ns: u64,
    pub received_ns: u64,
    pub latency_ns: u64,
    pub controller_ns: u64,
    pub resends: u32,
    /// Volts.
    pub level_v: f32,
}

impl EdgeRow {
    fn of(index: u64, edge: &EdgeRecord) -> Self {
        let EdgeRecord { sent_ns, received_ns, latency_ns, controller_ns, resends, level_v, .. } = *edge;
        Self { index, sent_ns, received_ns, latency_ns, controller_ns, resends, level_v }
    }

    /// As far as a line knows it: times between polls are kept of late edges alone.
    pub fn record(&self, arrived: bool) -> EdgeRecord {
        let Self { index, sent_ns, received_ns, latency_ns, controller_ns, resends, level_v } = *self;
        EdgeRecord {
            index,
            sent_ns,
            received_ns,
            latency_ns,
            controller_ns,
            resends,
            level_v,
            arrived,
            ..EdgeRecord::default()
        }
    }
}

#[derive(Debug, Serialize)]
struct DisplayRow {
    sent_ns: u64,
    why: Why,
    latency_ns: u64,
    count: u64,
    min_ns: u64,
    max_ns: u64,
    mean_ns: f64,
    stddev_ns: f64,
}

/// The measured part of a run, which is decided while it goes on.
#[derive(Debug)]
pub struct Window {
    /// When it opens and closes; whoever asks waits while that is being reported, so that all
    /// readers count the same edges.
    pub bounds: keeper::Window,
    /// Edges of this part that count at most.
    pub most: u64,
    /// Number of its first edge.
    pub first_index: u64,
}

impl Window {
    /// Closed. `bounds` knows who is informed of late edges.
    pub fn new(bounds: keeper::Window, most: u64, first_index: u64) -> Self {
        Self { bounds, most, first_index }
    }
}

/// Numbers the edges of a window. Each reader of a ring has its own.
#[derive(Debug)]
pub struct Numbering {
    window: Arc<Window>,
    /// The loop's number of the first edge in the window.
    first: Option<u64>,
}

impl Numbering {
    /// Nothing seen yet.
    pub fn new(window: &Arc<Window>) -> Self {
        Self { window: Arc::clone(window), first: None }
    }

    /// The run's number of an edge; None outside of the window.
    pub fn number(&mut self, edge: &EdgeRecord) -> Option<u64> {
        self.window.bounds.elapsed_ns(edge.sent_ns)?;
        let position = edge.index - *self.first.get_or_insert(edge.index);
        (position < self.window.most).then(|| self.window.first_index + position)
    }
}

/// Edges that the kernel has: all that a kill leaves of them.
#[derive(Clone, Debug, Default)]
pub struct Flushed {
    /// Rows of each sample file, and what they are.
    pub rows: Vec<(&'static str, u64, Option<Sum>)>,
    /// Number of the first edge that is in none of them.
    pub next_index: u64,
    /// No more edges are kept: nothing is to be waited for.
    pub full: bool,
}

/// The newest, for the thread that writes checkpoints.
pub type LastFlushed = Arc<Mutex<Flushed>>;

/// Destination of edges.
#[expect(clippy::large_enum_variant, reason = "there is one, and it lasts as long as the run")]
enum Place {
    /// Saving is on: as they come.
    Files { edges: SampleFile, lost: SampleFile, display: SampleFile },
    /// Saving is off: nothing is written while the loop runs.
    Memory { dir: RunDir, edges: Vec<EdgeRow>, lost: Vec<EdgeRow> },
}

/// Keeps the first edges of a run.
pub struct Keep {
    place: Place,
    numbering: Numbering,
    /// Number that still fit of each.
    edges_left: u64,
    lost_left: u64,
    display_left: u64,
    /// Edges kept, over all parts of the run, for whoever asks after the loop.
    kept: Arc<AtomicU64>,
    flushed: Instant,
    /// Number of the next edge.
    next_index: u64,
    last: LastFlushed,
}

fn io_error(error: takt_rundir::Error) -> io::Error {
    io::Error::other(error.to_string())
}

impl Keep {
    /// Begins the sample files of `dir`, or goes on with them.
    pub fn new(dir: &RunDir, saving: bool, most: u64, window: &Arc<Window>) -> Result<Self, LabError> {
        let most = rows_kept(most)?;
        let (edges, kept) = dir.continue_samples(EDGES)?;
        let (lost, lost_kept) = dir.continue_samples(LOST)?;
        let (display, shown) = dir.continue_samples(DISPLAY)?;
        let mut left = most.saturating_sub(kept);
        let place = if saving {
            Place::Files { edges, lost, display }
        } else {
            drop((edges, lost, display));
            left = left.min(MAX_IN_MEMORY);
            let capacity = usize::try_from(left).unwrap_or(usize::MAX);
            Place::Memory { dir: dir.clone(), edges: Vec::with_capacity(capacity), lost: Vec::new() }
        };
        Ok(Self {
            place,
            numbering: Numbering::new(window),
            edges_left: left,
            lost_left: most.saturating_sub(lost_kept).min(MAX_IN_MEMORY),
            display_left: most.saturating_sub(shown),
            kept: Arc::new(AtomicU64::new(kept)),
            flushed: Instant::now(),
            next_index: window.first_index,
            last: Arc::new(Mutex::new(Flushed {
                rows: vec![(EDGES, kept, None), (LOST, lost_kept, None), (DISPLAY, shown, None)],
                next_index: window.first_index,
                full: !saving || left == 0,
            })),
        })
    }

    /// Number of edges kept, also after this has moved to the saving task.
    pub fn kept(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.kept)
    }

    /// Last state in the kernel, also after this has moved to the saving task.
    pub(crate) fn last_flushed(&self) -> LastFlushed {
        Arc::clone(&self.last)
    }

    fn publish(&self, rows: [(u64, Option<Sum>); 3]) {
        let rows = [EDGES, LOST, DISPLAY].into_iter().zip(rows);
        let rows = rows.map(|(name, (rows, sum))| (name, rows, sum)).collect();
        let full = self.edges_left == 0 || matches!(self.place, Place::Memory { .. });
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) =
            Flushed { rows, next_index: self.next_index, full };
    }

    /// Hands everything to the files. Without saving, this is the first time that anything is
    /// written.
    pub fn finish(&mut self) -> io::Result<()> {
        let rows = match &mut self.place {
            Place::Files { edges, lost, display } => {
                let mut rows = [const { (0, None) }; 3];
                for (file, rows) in [edges, lost, display].into_iter().zip(&mut rows) {
                    file.flush().map_err(io_error)?;
                    *rows = (file.rows(), file.sum());
                }
                rows
            }
            Place::Memory { dir, edges, lost } => {
                let mut counts = [const { (0, None) }; 3];
                for ((name, rows), count) in
                    [(EDGES, edges), (LOST, lost), (DISPLAY, &mut Vec::new())].into_iter().zip(&mut counts)
                {
                    let (mut file, _) = dir.continue_samples(name).map_err(io_error)?;
                    rows.iter().try_for_each(|row| file.push(row).map_err(io_error))?;
                    file.flush().map_err(io_error)?;
                    *count = (file.rows(), file.sum());
                    rows.clear();
                }
                counts
            }
        };
        self.publish(rows);
        Ok(())
    }
}

impl EdgeSink for Keep {
    fn edge(&mut self, edge: &EdgeRecord) -> io::Result<()> {
        let left = if edge.arrived { &mut self.edges_left } else { &mut self.lost_left };
        if *left == 0 {
            return Ok(());
        }
        let Some(index) = self.numbering.number(edge) else { return Ok(()) };
        *left -= 1;
        self.next_index = index + 1;
        let row = EdgeRow::of(index, edge);
        match &mut self.place {
            Place::Files { edges, lost, .. } => {
                let file = if edge.arrived { edges } else { lost };
                file.push(&row).map_err(io_error)?;
            }
            Place::Memory { edges, lost, .. } => if edge.arrived { edges } else { lost }.push(row),
        }
        if edge.arrived {
            self.kept.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn display(&mut self, line: &DisplayLine) -> io::Result<()> {
        let Place::Files { display, .. } = &mut self.place else { return Ok(()) };
        if self.display_left == 0 {
            return Ok(());
        }
        self.display_left -= 1;
        let DisplayLine { edge, why, count, min_ns, max_ns, mean_ns, stddev_ns } = *line;
        let (sent_ns, latency_ns) = (edge.sent_ns, edge.latency_ns);
        let row = DisplayRow { sent_ns, why, latency_ns, count, min_ns, max_ns, mean_ns, stddev_ns };
        display.push(&row).map_err(io_error)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.flushed.elapsed() >= FLUSH_EVERY && matches!(self.place, Place::Files { .. }) {
            self.flushed = Instant::now();
            return self.finish();
        }
        Ok(())
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        // In the saving task nobody else does it; what fails here has failed before and was
        // reported.
        let _ = self.finish();
    }
}
