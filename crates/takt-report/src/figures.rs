//! The figures of a measure of a run: the one path from a run directory to n, mean, maximum and
//! misses, whoever shows them (`run`, `bench`, `campaign`, `report`, `compare`).
//!
//! A sample file keeps the first rows of a long run; a recorder of constant size saw every value of
//! the measured window. If it saw more than the rows within the window report, the figures are its
//! own; otherwise both hold the same values, and samples give quantiles exactly. Count, mean,
//! deviation, extremes and misses are exact either way.

use takt_rundir::{Measure, RunDir, Series};
use takt_stats::low::{self, LowRow};
use takt_stats::misses::Misses;
use takt_stats::quantile::Quantile;
use takt_stats::{Recorder, RecorderError, Streamed, Summary};

use crate::Error;
use crate::values::Values;

/// A measure of one run.
#[derive(Clone, Debug)]
pub struct Figures {
    /// All values, nanoseconds.
    pub summary: Summary,
    /// Misses; `None` without a deadline.
    pub misses: Option<Misses>,
    /// Samples that were skipped or dropped and count as misses.
    pub skipped: u64,
    /// The samples that were kept one by one, in the order of time: all of them, or the first ones.
    pub series: Series,
    /// Counts of every value, if the samples are only the first ones.
    pub streamed: Option<Streamed>,
    /// Time that was measured, seconds; `None` where nothing shows it.
    pub seconds: Option<f64>,
    /// Further remark about the samples.
    pub remark: Option<String>,
}

impl Figures {
    /// Reads the figures of `measure`.
    ///
    /// # Errors
    /// [`Error::RunDir`] where neither samples nor a recorder can be read.
    pub fn read(dir: &RunDir, measure: &Measure) -> Result<Self, Error> {
        // A measure that is judged and never came to an end (a chain) has no file: it is judged all
        // the same.
        let none_yet = measure.judged && !dir.has_samples(&measure.file)?;
        let series = if none_yet { Ok(Series::default()) } else { dir.series(measure) };
        let recorded = measure.recorder.as_deref().map(|file| streamed(dir, file));
        let (recorded, remark) = match recorded {
            Some(Ok(recorded)) => (Some(recorded), None),
            Some(Err(why)) => (None, Some(format!("only the individually stored samples, because {why}"))),
            None => (None, None),
        };
        let inside = series.as_ref().map_or(0, |s| s.values_ns.len() as u64);
        // Rows may be missing in the file, and after a reboot, when the clock began again, rows of
        // the part before lie outside of the window: either way the recorder counts more.
        let all = recorded.filter(|all| all.recorder.count() > inside);
        let deadline = measure.deadline_ns;
        let Some(all) = all else {
            let series = series?;
            return Ok(Self {
                summary: Summary::of(&mut in_floats(&series.values_ns)),
                misses: deadline
                    .map(|deadline_ns| along_the_grid(Misses::of(&series.values_ns, deadline_ns), measure)),
                skipped: measure.skipped,
                seconds: span_s(measure, &series),
                series,
                streamed: None,
                remark,
            });
        };
        Ok(Self {
            summary: all.recorder.summary(),
            misses: deadline.map(|_| along_the_grid(all.recorder.misses(), measure)),
            skipped: measure.skipped,
            seconds: match all.elapsed_ns {
                0 => rate_of(measure).map(|rate| all.recorder.count() as f64 / rate),
                elapsed_ns => Some(elapsed_ns as f64 / 1e9),
            },
            series: series.unwrap_or_default(),
            streamed: Some(all),
            remark,
        })
    }

    /// Values measured.
    pub fn count(&self) -> u64 {
        self.summary.count
    }

    /// Values beyond the deadline, and those that were skipped or dropped; `None` where there was
    /// no value and none was due, or no deadline and none was skipped.
    pub fn missed(&self) -> Option<u64> {
        let late = self.misses.filter(|_| self.count() > 0).map(|misses| misses.misses);
        (late.is_some() || self.skipped > 0).then(|| late.unwrap_or(0).saturating_add(self.skipped))
    }

    /// Longest row of misses; `None` as [`missed`](Self::missed), and without a deadline.
    pub fn longest_miss_run(&self) -> Option<u64> {
        self.missed().and(self.misses).map(|misses| misses.longest_run)
    }

    /// Number of individually stored samples, if these are only the first ones.
    pub fn kept(&self) -> Option<u64> {
        self.streamed.as_ref().map(|_| self.series.values_ns.len() as u64)
    }

    /// The paper's shares (2009, Tables of the control period), nanoseconds.
    pub fn low(&self) -> Vec<LowRow> {
        match &self.streamed {
            Some(all) => all.recorder.low_table(),
            None => {
                let mut values = in_floats(&self.series.values_ns);
                values.sort_unstable_by(f64::total_cmp);
                low::table(&values)
            }
        }
    }

    /// Puts the values into `recorder`, in time order.
    fn record_into(&self, recorder: &mut Recorder) -> Result<(), RecorderError> {
        match &self.streamed {
            Some(all) => recorder.merge(&all.recorder)?,
            None => self.series.values_ns.iter().for_each(|value| recorder.record(*value)),
        }
        Ok(())
    }
}

/// The row of misses may be longer than the values that came report: releases that never ran are in
/// it.
fn along_the_grid(misses: Misses, measure: &Measure) -> Misses {
    Misses { longest_run: misses.longest_run.max(measure.longest_miss_run.unwrap_or(0)), ..misses }
}

fn rate_of(measure: &Measure) -> Option<f64> {
    measure.rate_hz.filter(|rate| *rate > 0.0)
}

/// Measured time of the window: from the window, the samples' own times, or their number.
fn span_s(measure: &Measure, series: &Series) -> Option<f64> {
    if let Some(measured_ns) = measure.measured_ns {
        return Some(measured_ns as f64 / 1e9);
    }
    let count = series.values_ns.len() as f64;
    match (measure.window_ns, series.times_ns.first(), series.times_ns.last()) {
        (Some([from, to]), ..) if to != u64::MAX => Some(to.saturating_sub(from) as f64 / 1e9),
        (_, Some(first), Some(last)) => Some(last.saturating_sub(*first) as f64 / 1e9),
        _ => rate_of(measure).map(|rate| count / rate),
    }
}

fn in_floats(values_ns: &[u64]) -> Vec<f64> {
    values_ns.iter().map(|&ns| ns as f64).collect()
}

/// Reads the file in which a long run keeps every value by size.
pub(crate) fn streamed(dir: &RunDir, file: &str) -> Result<Streamed, String> {
    if file.is_empty() || file.contains(['/', '\\', '\0']) || file.starts_with('.') {
        return Err(format!("recorder file \"{file}\" is not a plain name"));
    }
    dir.read_json(file).map_err(|e| e.to_string())
}

/// Samples that are pooled one by one over the repetitions of a configuration: 20 million take 320
/// MB. Beyond, all are put into a recorder of constant size and known resolution.
const POOLED_AT_MOST: usize = 20_000_000;

/// A measure over several runs.
#[derive(Debug)]
pub struct Pool {
    deadline_ns: Option<u64>,
    /// Values in time order; all of them while there is no recorder.
    ordered: Vec<u64>,
    recorder: Option<Recorder>,
    misses: Misses,
    skipped: u64,
    runs: u64,
    /// Time that was measured, seconds; `None` where a run does not show it.
    seconds: Option<f64>,
}

impl Pool {
    /// Nothing yet; values above `deadline_ns` are misses.
    pub fn new(deadline_ns: Option<u64>) -> Self {
        Self {
            deadline_ns,
            ordered: Vec::new(),
            recorder: None,
            misses: Misses::default(),
            skipped: 0,
            runs: 0,
            seconds: Some(0.0),
        }
    }

    /// Adds a run whose measure has the same deadline.
    ///
    /// # Errors
    /// Its recorder cannot be merged with the earlier ones.
    pub fn add(&mut self, figures: &Figures) -> Result<(), RecorderError> {
        let values = &figures.series.values_ns;
        let left = POOLED_AT_MOST.saturating_sub(self.ordered.len());
        if figures.streamed.is_some() || self.recorder.is_some() || values.len() > left {
            let mut recorder = match self.recorder.take() {
                Some(recorder) => recorder,
                None => {
                    let mut recorder = Recorder::new(self.deadline_ns)?;
                    self.ordered.iter().for_each(|value| recorder.record(*value));
                    recorder
                }
            };
            figures.record_into(&mut recorder)?;
            self.recorder = Some(recorder);
        }
        self.ordered.extend(values.iter().take(left));
        if let Some(misses) = &figures.misses {
            self.misses.merge(misses);
        }
        self.skipped = self.skipped.saturating_add(figures.skipped);
        self.runs += 1;
        self.seconds = self.seconds.zip(figures.seconds).map(|(sum, seconds)| sum + seconds);
        Ok(())
    }

    /// The values that were kept one by one, in the order of time: for whatever depends on it.
    pub fn ordered(&self) -> &[u64] {
        &self.ordered
    }

    /// Values measured.
    pub fn count(&self) -> u64 {
        self.recorder.as_ref().map_or(self.ordered.len() as u64, Recorder::count)
    }

    /// Misses among them, runs of misses not joined from one run to the next.
    pub fn misses(&self) -> Misses {
        self.misses
    }

    /// Samples that were skipped or dropped.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Runs that were added.
    pub(crate) fn runs(&self) -> u64 {
        self.runs
    }

    /// Time that was measured in all runs, seconds; `None` where one of them does not show it.
    pub(crate) fn seconds(&self) -> Option<f64> {
        self.seconds.filter(|seconds| *seconds > 0.0)
    }

    /// Whether only the first values were kept one by one.
    pub(crate) fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// Whether the greatest of all values is among those that were kept one by one.
    pub(crate) fn has_kept_worst(&self) -> bool {
        let kept = || self.ordered.iter().copied().max().unwrap_or(0);
        self.recorder.as_ref().is_none_or(|recorder| kept() as f64 >= recorder.summary().worst)
    }

    /// All values, summed up.
    pub fn summary(&self) -> Summary {
        match &self.recorder {
            Some(recorder) => recorder.summary(),
            None => Summary::of(&mut in_floats(&self.ordered)),
        }
    }

    /// Their distribution, which takes their place.
    pub(crate) fn into_values(self) -> (Values, Summary) {
        match self.recorder {
            Some(recorder) => {
                let summary = recorder.summary();
                (Values::Recorded(Box::new(recorder)), summary)
            }
            None => {
                let mut values = in_floats(&self.ordered);
                drop(self.ordered);
                let summary = Summary::of(&mut values);
                (Values::Sorted(values), summary)
            }
        }
    }

    /// A quantile with its interval; `None` without values.
    pub fn quantile(&self, q: f64, confidence: f64) -> Option<Quantile> {
        match &self.recorder {
            Some(recorder) => recorder.quantile_estimate(q, confidence),
            None => {
                let mut values = in_floats(&self.ordered);
                values.sort_unstable_by(f64::total_cmp);
                takt_stats::quantile::estimate(&values, q, confidence)
            }
        }
    }
}
