//! Common parts of all robots' collectors: the rhythm, sample files with an end, the recorders of
//! one kind of record.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use takt_rundir::{Draft, Measure, RunDir, SampleFile};

use crate::LabError;
use crate::keeper::{Keeper, MAX_ROWS, Window, recorder_file, rows_kept};

/// A kill loses at most this much. Twice a second, so that no sample is lost that is older than a
/// second, though the thread that writes may starve for a while.
pub const FLUSH_PERIOD: Duration = Duration::from_millis(500);

/// Lets `collector` empty its rings every `period` and save twice a second, until `stop` is set and
/// the rings have been empty once more.
///
/// # Errors
/// The collector's error.
pub fn until_stopped<C>(
    collector: &mut C,
    stop: &AtomicBool,
    period: Duration,
    mut empty: impl FnMut(&mut C) -> Result<(), LabError>,
    mut save: impl FnMut(&mut C) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let mut saved = Instant::now();
    loop {
        // Before emptying: whatever was pushed before the wish to stop is still taken.
        let last = stop.load(Ordering::Acquire);
        empty(collector)?;
        if last || saved.elapsed() >= FLUSH_PERIOD {
            save(collector)?;
            saved = Instant::now();
        }
        if last {
            return Ok(());
        }
        std::thread::sleep(period);
    }
}

/// A sample file with an end.
#[derive(Debug)]
pub struct Rows {
    file: SampleFile,
    left: u64,
}

impl Rows {
    /// Takes [`MAX_ROWS`], or what the environment says ([`rows_kept`]).
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn new(dir: &RunDir, name: &str) -> Result<Self, LabError> {
        Self::bounded(dir, name, rows_kept(MAX_ROWS)?)
    }

    /// Takes the first `most` rows, with those that a resumed run has already.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn bounded(dir: &RunDir, name: &str, most: u64) -> Result<Self, LabError> {
        let (file, rows) = dir.continue_samples(name)?;
        Ok(Self { file, left: most.saturating_sub(rows) })
    }

    /// Adds a row, which is made only where it fits.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn push<T: Serialize>(&mut self, row: impl FnOnce() -> T) -> Result<(), LabError> {
        if self.left > 0 {
            self.left -= 1;
            self.file.push(&row())?;
        }
        Ok(())
    }

    /// Hands everything to the kernel and puts the number of rows into a checkpoint.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn keep(&mut self, draft: &mut Draft) -> Result<(), LabError> {
        Ok(draft.samples(&mut self.file)?)
    }
}

/// Extracts a measure's sample from a record: time and value, nanoseconds.
pub type Sample<R> = fn(&R) -> (u64, u64);

/// The recorders of all measures that one kind of record has.
#[derive(Debug)]
pub struct Recorders<R> {
    all: Vec<(Keeper, Sample<R>)>,
}

impl<R> Recorders<R> {
    /// A recorder for each of `measures` that `sample` knows, which then names the recorder's file.
    ///
    /// # Errors
    /// [`LabError::Files`] for a damaged recorder file.
    pub fn open(
        dir: &RunDir,
        measures: &mut [Measure],
        window: &Window,
        sample: impl Fn(&Measure) -> Option<Sample<R>>,
    ) -> Result<Self, LabError> {
        let mut all = Vec::new();
        for measure in measures {
            if let Some(sample) = sample(measure) {
                all.push((Keeper::open(dir, measure, window)?, sample));
                measure.recorder = Some(recorder_file(&measure.name));
            }
        }
        Ok(Self { all })
    }

    /// Takes a record.
    pub fn push(&mut self, record: &R) {
        for (keeper, sample) in &mut self.all {
            let (at_ns, value_ns) = sample(record);
            keeper.push(at_ns, value_ns);
        }
    }

    /// Puts their state into a checkpoint.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn keep(&self, draft: &mut Draft) -> Result<(), LabError> {
        self.all.iter().try_for_each(|(keeper, _)| keeper.keep(draft))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pushed_before_the_wish_to_stop_is_taken_and_saved() {
        struct Ring {
            waiting: u32,
            taken: u32,
            saved: u32,
        }
        let stop = AtomicBool::new(false);
        let mut ring = Ring { waiting: 3, taken: 0, saved: 0 };
        let empty = |ring: &mut Ring| {
            ring.taken += std::mem::take(&mut ring.waiting);
            // The wish comes together with more, once the rings have been emptied.
            if !stop.swap(true, Ordering::Release) {
                ring.waiting = 4;
            }
            Ok(())
        };
        let save = |ring: &mut Ring| {
            ring.saved = ring.taken;
            Ok(())
        };
        until_stopped(&mut ring, &stop, Duration::ZERO, empty, save).unwrap();
        assert_eq!((ring.taken, ring.saved), (7, 7));
    }

    #[test]
    fn rows_end_and_recorders_go_on() {
        #[derive(Serialize)]
        struct Row {
            age_ns: u64,
        }
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::create(root.path(), "test").unwrap();
        let mut measures =
            [Measure::new("age", "Age", "ages", "age_ns"), Measure::new("other", "Other", "ages", "age_ns")];
        let window = Window::default();
        window.open(0);
        let sample: Sample<u64> = |&age_ns| (age_ns, age_ns);
        let known = |measure: &Measure| (measure.name == "age").then_some(sample);
        let mut recorders = Recorders::open(&dir, &mut measures, &window, known).unwrap();
        assert_eq!(measures.map(|measure| measure.recorder), [Some(recorder_file("age")), None]);
        let mut rows = Rows::bounded(&dir, "ages", 2).unwrap();
        for age_ns in 1..=5u64 {
            recorders.push(&age_ns);
            rows.push(|| Row { age_ns }).unwrap();
        }
        let mut draft = window.draft();
        rows.keep(&mut draft).unwrap();
        recorders.keep(&mut draft).unwrap();
        dir.checkpoint(&draft).unwrap();
        assert_eq!(dir.columns("ages", &["age_ns"]).unwrap(), [[1, 2]]);
        let kept: takt_stats::Streamed = dir.read_json(&recorder_file("age")).unwrap();
        assert_eq!(kept.recorder.count(), 5);
    }
}
