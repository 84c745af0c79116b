//! Keeps series of any length: the first samples one by one, all of them in recorders of constant
//! size.
//!
//! Twice a second the recorders go into the run's checkpoint together with the number of rows of
//! its sample files; a kill then loses less than a second, of both alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use takt_rundir::{Checkpoint, Draft, Measure, RunDir};
use takt_stats::Streamed;

use crate::LabError;
use crate::late_watch::LateWatch;
use crate::live::{LiveMeasures, LiveSeries};
use crate::notices::Pulse;

/// Rows of a sample file beyond which only recorders go on. 4 million: over an hour at 1 kHz, about
/// 250 MB while running and a tenth of that sealed; enough for time series and extremes, and the
/// disk of a run of weeks stays bounded.
pub const MAX_ROWS: u64 = 4_000_000;

/// Environment variable with a smaller number of rows to keep, for tests of what long runs do and
/// for machines with a small disk. Figures and verdicts are of all values either way; only what is
/// reported value by value (time series, tails, exports) gets shorter.
pub const KEEP_ROWS: &str = "TAKT_KEEP_ROWS";

/// Rows of a sample file that are kept: `most`, or what [`KEEP_ROWS`] says, where that is less.
///
/// # Errors
/// [`LabError::Config`] for a value that is no number.
pub fn rows_kept(most: u64) -> Result<u64, LabError> {
    let Some(text) = std::env::var_os(KEEP_ROWS) else { return Ok(most) };
    let asked = text.to_str().and_then(|text| text.trim().parse::<u64>().ok());
    asked.map(|asked| asked.min(most)).ok_or_else(|| {
        LabError::Config(format!(
            "{KEEP_ROWS}={}: expected a number of rows from 0 to {most}",
            text.display()
        ))
    })
}

/// From when to when values count, CLOCK_MONOTONIC nanoseconds: set by the thread that times the
/// run, read by the collector.
#[derive(Clone, Debug)]
pub struct Window {
    bounds: Arc<[AtomicU64; 2]>,
    /// Tellings of bounds under way.
    held: Arc<AtomicU64>,
    watch: Option<LateWatch>,
    live: Option<LiveMeasures>,
    pulse: Arc<Pulse>,
    /// State left by earlier parts of the run.
    before: Arc<Checkpoint>,
}

/// Period at which a collector checks whether the bounds have been reported.
const HELD_LOOK: Duration = Duration::from_micros(200);

/// See [`Window::hold`].
#[derive(Debug)]
pub struct Held(Arc<AtomicU64>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Default for Window {
    fn default() -> Self {
        Self::watched(None)
    }
}

impl Window {
    /// A window whose late values `watch` is informed of.
    pub fn watched(watch: Option<LateWatch>) -> Self {
        Self {
            bounds: Arc::new([AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)]),
            held: Arc::default(),
            watch,
            live: None,
            pulse: Arc::default(),
            before: Arc::default(),
        }
    }

    /// The same of a run that goes on from this checkpoint.
    pub fn going_on(self, before: &Checkpoint) -> Self {
        Self { before: Arc::new(before.clone()), ..self }
    }

    /// The same, whose measures are reported there as they stand.
    pub fn reporting(self, live: Option<LiveMeasures>) -> Self {
        Self { live, ..self }
    }

    /// Tells those who operate the machine of a stop, a fault or a recovery at `at_ns`,
    /// CLOCK_MONOTONIC. Waits for nobody; collectors may, real-time threads have no business here.
    pub fn report_event(&self, kind: takt_service::Kind, at_ns: u64, cause: String) {
        self.pulse.report(kind, at_ns, cause);
    }

    pub(crate) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// A checkpoint to be filled.
    pub fn draft(&self) -> Draft {
        let mut draft = Draft::after(&self.before);
        let [from_ns, _] = self.bounds();
        if from_ns != u64::MAX {
            draft.begun(from_ns);
        }
        draft
    }

    /// Whether a row of `at_ns` is kept. Rows before the window show how the robot started; those
    /// of a resumption would lie within the window of the whole run, which they do not belong to.
    pub fn keeps(&self, at_ns: u64) -> bool {
        self.before.resumed == 0 || self.elapsed_ns(at_ns).is_some()
    }

    pub fn open(&self, from_ns: u64) {
        self.bounds[0].store(from_ns, Ordering::Release);
    }

    pub fn close(&self, to_ns: u64) {
        self.bounds[1].store(to_ns, Ordering::Release);
    }

    /// From now on whoever asks for bounds waits, until the value returned is dropped: a bound that
    /// lies after this moment is then known to all before they judge the first value beyond it,
    /// however late it is reported.
    pub fn hold(&self) -> Held {
        self.held.fetch_add(1, Ordering::SeqCst);
        Held(Arc::clone(&self.held))
    }

    /// Both bounds, CLOCK_MONOTONIC nanoseconds; `u64::MAX` where one is not known yet. Waits while
    /// they are being reported: collectors may, real-time threads have no business here.
    pub fn bounds(&self) -> [u64; 2] {
        while self.held.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(HELD_LOOK);
        }
        [&self.bounds[0], &self.bounds[1]].map(|bound| bound.load(Ordering::Acquire))
    }

    /// Receiver of a measure's late values.
    pub fn late(&self, measure: &Measure) -> Late {
        let above_ns = self.watch.as_ref().and_then(|watch| watch.limit_ns(measure));
        Late { window: self.clone(), above_ns: above_ns.unwrap_or(u64::MAX) }
    }

    /// Has the tracer, if any, keep what the kernel did from `from_ns` to `to_ns`.
    pub fn mark(&self, from_ns: u64, to_ns: u64) {
        if let Some(watch) = &self.watch {
            watch.keep(from_ns, to_ns);
        }
    }

    /// Time since the opening, for a time within the window.
    pub fn elapsed_ns(&self, at_ns: u64) -> Option<u64> {
        let [from, to] = self.bounds();
        (at_ns < to).then(|| at_ns.checked_sub(from)).flatten()
    }
}

/// Reports the window's watch of late values of one measure; nobody, where there is no watch or the
/// measure is none of its.
#[derive(Clone, Debug)]
pub struct Late {
    window: Window,
    above_ns: u64,
}

impl Late {
    /// Sees a value that was measured at `at_ns`; outside the window none is late.
    pub fn see(&self, at_ns: u64, value_ns: u64) {
        if value_ns > self.above_ns
            && let Some(watch) = &self.window.watch
            && self.window.elapsed_ns(at_ns).is_some()
        {
            watch.late(at_ns, value_ns);
        }
    }
}

/// Name of the recorder's file of a measure, for [`Measure::recorder`].
pub(crate) fn recorder_file(measure: &str) -> String {
    format!("recorder-{measure}.json")
}

/// Keeps one measured series.
#[derive(Debug)]
pub struct Keeper {
    file: String,
    window: Window,
    streamed: Streamed,
    /// Time that had been measured before this process went on with it.
    before_ns: u64,
    late: Late,
    live: Option<LiveSeries>,
}

impl Keeper {
    /// Begins a series, or goes on with the one that a resumption put back into `dir`.
    ///
    /// # Errors
    /// [`LabError::Files`] for a damaged recorder file.
    pub fn open(dir: &RunDir, measure: &Measure, window: &Window) -> Result<Self, LabError> {
        let file = recorder_file(&measure.name);
        let streamed = match dir.find_json(&file)? {
            Some(streamed) => streamed,
            None => Streamed::new(measure.deadline_ns)?,
        };
        window.pulse.opened();
        Ok(Self {
            before_ns: streamed.elapsed_ns,
            file,
            late: window.late(measure),
            live: window.live.as_ref().map(|live| live.open(measure)),
            window: window.clone(),
            streamed,
        })
    }

    /// Takes a value that was measured at `at_ns`; outside the window it does not count.
    pub fn push(&mut self, at_ns: u64, value_ns: u64) {
        self.window.pulse.beat();
        if let Some(elapsed_ns) = self.window.elapsed_ns(at_ns) {
            self.streamed.push(self.before_ns + elapsed_ns, value_ns);
            self.late.see(at_ns, value_ns);
            if let Some(live) = &self.live {
                live.see(at_ns, value_ns);
            }
        }
    }

    /// State so far.
    pub fn streamed(&self) -> &Streamed {
        &self.streamed
    }

    /// Puts the state into a checkpoint.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn keep(&self, draft: &mut Draft) -> Result<(), LabError> {
        draft.elapsed_ns(self.streamed.elapsed_ns);
        if let Some(live) = &self.live {
            live.report(&self.streamed.recorder);
        }
        Ok(draft.file(&self.file, &self.streamed)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_goes_on_after_a_kill_and_counts_what_lies_in_the_window() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::create(root.path(), "test").unwrap();
        let measure = Measure::new("lateness", "Lateness", "jobs", "wake_ns").deadline_ns(50);
        for round in 1..=3u64 {
            let window = Window::default();
            let mut keeper = Keeper::open(&dir, &measure, &window).unwrap();
            keeper.push(5, 1000);
            window.open(10);
            (0..20).for_each(|at| keeper.push(at, at + 40));
            let mut draft = window.draft();
            keeper.keep(&mut draft).unwrap();
            dir.checkpoint(&draft).unwrap();
            window.close(15);
            keeper.push(17, 1000);
            // 10 to 19 were pushed before the window closed; the last push after it did not count.
            let recorder = &keeper.streamed().recorder;
            assert_eq!((recorder.count(), recorder.max_ns()), (10 * round, 59));
            assert_eq!(recorder.misses().misses, 9 * round);
            // 9 ns in each round: the time between two rounds does not count.
            assert_eq!(keeper.streamed().elapsed_ns, 9 * round);
        }
        let mut draft = Draft::default();
        draft.file(&recorder_file("lateness"), &serde_json::json!({})).unwrap();
        dir.checkpoint(&draft).unwrap();
        assert!(Keeper::open(&dir, &measure, &Window::default()).is_err());
    }

    #[test]
    fn a_checkpoint_shows_when_the_first_part_began_before_the_header_does() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::create(root.path(), "test").unwrap();
        let kept = |window: &Window| {
            dir.checkpoint(&window.draft()).unwrap();
            let mut text: serde_json::Value = dir.read_json("checkpoint.json").unwrap();
            text.as_object_mut().unwrap().remove("sha256");
            serde_json::from_value::<Checkpoint>(text).unwrap()
        };
        let first = Window::default();
        assert_eq!(kept(&first).from_ns, None);
        first.open(10);
        let before = kept(&first);
        assert_eq!(before.from_ns, Some(10));
        let second = Window::default().going_on(&before);
        assert_eq!(kept(&second).from_ns, Some(10));
        second.open(30);
        assert_eq!(kept(&second).from_ns, Some(10));
    }
}
