//! Timing of the exchanges, exported while running.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use takt_rt::exchange::{self, Reader, Writer};
use takt_rt::thread::{self, Handle};

use super::clock::Phase;
use super::port::{Exchanged, Totals};

/// Count, mean, standard deviation, least and greatest of a duration, updated in place (Welford).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Spread {
    /// Values.
    pub count: u64,
    /// Least, nanoseconds; 0 before the first.
    pub min_ns: u64,
    /// Greatest.
    pub max_ns: u64,
    /// Mean.
    pub mean_ns: f64,
    #[serde(skip)]
    squares: f64,
}

impl Spread {
    fn add(&mut self, value_ns: u64) {
        self.count += 1;
        self.min_ns = if self.count == 1 { value_ns } else { self.min_ns.min(value_ns) };
        self.max_ns = self.max_ns.max(value_ns);
        let off = value_ns as f64 - self.mean_ns;
        self.mean_ns += off / self.count as f64;
        self.squares += off * (value_ns as f64 - self.mean_ns);
    }

    /// Standard deviation; 0 for fewer than two values.
    pub(crate) fn deviation_ns(&self) -> f64 {
        if self.count < 2 { 0.0 } else { (self.squares / (self.count - 1) as f64).sqrt() }
    }
}

/// Timing since the bring-up.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Timing {
    /// Counts.
    pub totals: Totals,
    /// From exchange to exchange: the control period.
    pub period: Spread,
    /// Fetching.
    pub fetch: Spread,
    /// Sending.
    pub send: Spread,
    /// Waiting for a reader of the cache, in the cycles that did.
    pub lock_wait: Spread,
    /// Of frames to the reference clock's cycle, either way, while locked.
    pub phase: Spread,
    #[serde(skip)]
    last_ns: u64,
}

impl Timing {
    pub(super) fn add(&mut self, begun_ns: u64, exchanged: &Exchanged, totals: &Totals) {
        if self.last_ns != 0 {
            self.period.add(begun_ns - self.last_ns);
        }
        self.last_ns = begun_ns;
        self.fetch.add(exchanged.fetch_ns);
        self.send.add(exchanged.send_ns);
        if exchanged.lock_wait_ns > 0 {
            self.lock_wait.add(exchanged.lock_wait_ns);
        }
        self.totals = *totals;
    }

    pub(super) fn phase(&mut self, phase: Option<Phase>) {
        if let Some(phase) = phase.filter(|phase| phase.locked) {
            self.phase.add(phase.frame_ns.unsigned_abs().into());
        }
    }

    /// The text that is exported: one `name value` a line.
    pub fn text(&self) -> String {
        let t = &self.totals;
        let mut text = String::new();
        let counts = [
            ("cycles", t.cycles),
            ("lost_frames", t.lost_frames),
            ("late_frames", t.late_frames),
            ("stale_cycles", t.stale_cycles),
            ("working_counter_errors", t.working_counter_errors),
            ("stray_frames", t.stray_frames),
            ("stray_frames_twice", t.strays.twice),
            ("stray_frames_after_lost", t.strays.after_lost),
            ("stray_frames_broken", t.strays.broken),
            ("stray_frames_foreign", t.strays.foreign),
            ("send_errors", t.send_errors),
            ("reader_contended", t.contended),
            ("reader_unpublished", t.unpublished),
        ];
        for (name, value) in counts {
            let _ = writeln!(text, "{name} {value}");
        }
        let spreads = [
            ("period", self.period),
            ("fetch", self.fetch),
            ("send", self.send),
            ("lock_wait", self.lock_wait),
            ("phase", self.phase),
        ];
        for (name, spread) in spreads {
            let _ = writeln!(text, "{name}_min_ns {}", spread.min_ns);
            let _ = writeln!(text, "{name}_mean_ns {:.0}", spread.mean_ns);
            let _ = writeln!(text, "{name}_deviation_ns {:.0}", spread.deviation_ns());
            let _ = writeln!(text, "{name}_max_ns {}", spread.max_ns);
        }
        text
    }
}

/// The controller's end: a wait-free write per cycle.
pub(super) struct TimingWriter(Writer<Timing>);

impl TimingWriter {
    pub fn write(&mut self, timing: &Timing) {
        self.0.publish(0, *timing);
    }
}

/// The exporter's end.
pub struct TimingReader(Reader<Timing>);

impl TimingReader {
    /// Timing up to the last cycle.
    pub fn read(&mut self) -> Timing {
        *self.0.read().value
    }
}

pub(super) fn channel() -> (TimingWriter, TimingReader) {
    let (writer, mut readers) = exchange::latest(1, Timing::default);
    let reader = readers.pop().map(TimingReader);
    match reader {
        Some(reader) => (TimingWriter(writer), reader),
        None => unreachable!("one reader was requested"),
    }
}

/// Writes the timing into a text file while the robot runs. The file is replaced whole: a reader
/// never sees half of it.
pub struct Exporter {
    stop: Arc<AtomicBool>,
    thread: Handle<io::Result<TimingReader>>,
}

impl Exporter {
    /// Starts a best-effort thread that writes `path` each `interval`.
    ///
    /// # Errors
    /// When the thread cannot be started, or the file not be written.
    pub fn start(
        mut reader: TimingReader,
        path: PathBuf,
        interval: Duration,
    ) -> Result<Self, takt_rt::Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = thread::spawn_exempt("ethercat-stats", "writes a text file for people", move || {
            loop {
                // Looked at first: what was there when the stop came is still written.
                let last = stopping.load(Ordering::Acquire);
                replace(&path, &reader.read().text())?;
                if last {
                    return Ok(reader);
                }
                std::thread::park_timeout(interval);
            }
        })?;
        Ok(Self { stop, thread })
    }

    /// Writes the file a last time.
    ///
    /// # Errors
    /// [`takt_rt::Error::File`] when a write failed.
    pub fn stop(self) -> Result<io::Result<TimingReader>, takt_rt::Error> {
        self.stop.store(true, Ordering::Release);
        self.thread.join()
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    takt_files::write(path, text)
}
