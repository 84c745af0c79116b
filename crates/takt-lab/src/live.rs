//! Measured values of a run so far, for telemetry.
//!
//! Collectors hand over a copy of their histograms at each checkpoint, twice a second. They never
//! wait for a reader: where one looks just then, the copy before stays for another half second.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use takt_otlp::Exponential;
use takt_rundir::{Measure, RunDir};
use takt_service::{Burst, Kind, Report, Reported};
use takt_stats::Recorder;

/// One measure as it stands.
#[derive(Clone, Debug)]
pub struct LiveMeasure {
    /// Its short name: `lateness`.
    pub name: String,
    /// For people.
    pub title: String,
    /// All values in the window, of earlier parts of a resumed run too.
    pub values: Exponential,
    /// Later than the deadline; `None` without one.
    pub late: Option<u64>,
    /// Misses without a value, as releases that never ran: known at the end.
    pub skipped: u64,
}

type Slot = Arc<Mutex<LiveMeasure>>;

/// All measures of a run.
#[derive(Clone, Debug, Default)]
pub struct LiveMeasures(Arc<Mutex<Vec<Slot>>>);

impl LiveMeasures {
    /// As they stand, in the order in which they were opened.
    pub fn read(&self) -> Vec<LiveMeasure> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.iter().map(|one| one.lock().unwrap_or_else(PoisonError::into_inner).clone()).collect()
    }

    /// The one of this name, which is added where it is missing: before the robot runs.
    pub(crate) fn open(&self, measure: &Measure) -> LiveSeries {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let named = |slot: &&Slot| slot.lock().unwrap_or_else(PoisonError::into_inner).name == measure.name;
        if let Some(known) = all.iter().find(named) {
            return LiveSeries::new(Arc::clone(known), measure);
        }
        let slot = Arc::new(Mutex::new(LiveMeasure {
            name: measure.name.clone(),
            title: measure.title.clone(),
            values: Exponential::default(),
            late: measure.deadline_ns.map(|_| 0),
            skipped: 0,
        }));
        all.push(Arc::clone(&slot));
        LiveSeries::new(slot, measure)
    }

    /// Adds values known only after the end of the run: misses without a value, and measures
    /// without reports during the run, from their samples.
    pub fn complete(&self, dir: &RunDir) {
        for measure in dir.header().map(|header| header.measures).unwrap_or_default() {
            let series = self.open(&measure);
            let mut slot = series.slot.lock().unwrap_or_else(PoisonError::into_inner);
            slot.skipped = measure.skipped;
            // The last word of a collector is left out where somebody read just then.
            if let Ok(takt_report::Figures { streamed: Some(all), .. }) =
                takt_report::Figures::read(dir, &measure)
            {
                slot.values = Exponential::of(&all.recorder);
                slot.late = measure.deadline_ns.map(|_| all.recorder.misses().misses);
                continue;
            }
            // All are among the samples.
            slot.values = Exponential::default();
            let Ok(series) = dir.series(&measure) else { continue };
            series.values_ns.iter().for_each(|&value_ns| slot.values.add(value_ns, 1));
            slot.late = measure.deadline_ns.map(|deadline_ns| {
                series.values_ns.iter().filter(|&&value_ns| value_ns > deadline_ns).count() as u64
            });
        }
    }
}

/// Slot in which a collector leaves one measure. Late values are told as events where anybody takes
/// those.
#[derive(Debug)]
pub struct LiveSeries {
    slot: Slot,
    name: String,
    title: String,
    deadline_ns: Option<u64>,
    /// With the misses and the worst value that the recorder had last.
    burst: Mutex<(Burst, u64, u64)>,
}

impl LiveSeries {
    fn new(slot: Slot, measure: &Measure) -> Self {
        Self {
            slot,
            name: measure.name.clone(),
            title: measure.title.clone(),
            deadline_ns: measure.deadline_ns,
            burst: Mutex::default(),
        }
    }

    /// A value that was measured at `at_ns`, CLOCK_MONOTONIC.
    pub fn see(&self, at_ns: u64, value_ns: u64) {
        if self.deadline_ns.is_some_and(|deadline_ns| value_ns > deadline_ns) {
            self.burst().0.see(at_ns, value_ns);
        }
    }

    /// Leaves a copy, unless somebody reads.
    pub fn report(&self, recorder: &Recorder) {
        if self.deadline_ns.is_some() && takt_service::is_on() {
            let (misses, worst_ns) = (recorder.misses().misses, recorder.max_ns());
            let mut known = self.burst();
            (known.1, known.2) = (misses, worst_ns);
            let reported = known.0.look(misses, worst_ns, Instant::now());
            drop(known);
            reported.into_iter().for_each(|reported| self.report_burst(reported));
        }
        if let Ok(mut slot) = self.slot.try_lock() {
            slot.values = Exponential::of(recorder);
            if let Some(late) = &mut slot.late {
                *late = recorder.misses().misses;
            }
        }
    }

    fn burst(&self) -> std::sync::MutexGuard<'_, (Burst, u64, u64)> {
        self.burst.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report_burst(&self, reported: Reported) {
        let Reported { at_ns, count, worst_ns, again } = reported;
        let ms = |ns: u64| ns as f64 / 1e6;
        let plural = if count == 1 { "value" } else { "values" };
        let more = if again { " in all" } else { "" };
        let cause = format!(
            "{}: {count} {plural} beyond {} ms{more}, worst {:.3} ms",
            self.title,
            ms(self.deadline_ns.unwrap_or(0)),
            ms(worst_ns)
        );
        let measure = Some(self.name.clone());
        let report = Report { at_ns, cause, measure, count: Some(count), worst_ns: Some(worst_ns) };
        takt_service::report(Kind::Late, report);
    }
}

impl Drop for LiveSeries {
    fn drop(&mut self) {
        if !takt_service::is_on() {
            return;
        }
        let (burst, misses, worst_ns) = self.burst.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(reported) = burst.end(*misses, *worst_ns, Instant::now()) {
            self.report_burst(reported);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_never_waits_for_a_reader() {
        let all = LiveMeasures::default();
        let series = all.open(&Measure::new("lateness", "Lateness", "jobs", "wake_ns").deadline_ns(50));
        let mut recorder = Recorder::new(Some(50)).unwrap();
        (1..=100).for_each(|n| recorder.record(n));
        {
            let _reading = series.slot.lock().unwrap();
            series.report(&recorder);
        }
        assert_eq!(all.read()[0].values.count, 0);
        series.report(&recorder);
        let one = &all.read()[0];
        assert_eq!((one.name.as_str(), one.values.count, one.late), ("lateness", 100, Some(50)));
    }
}
