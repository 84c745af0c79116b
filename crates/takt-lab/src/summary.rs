//! Figures of a run of any robot, computed from its run directory alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use takt_rundir::{CpuShare, Experiment, Loss, Measure, RunDir, RunHeader, Series, judged};
use takt_stats::misses::Misses;
use takt_stats::{Part, SeriesEvidence, Streamed, Summary, Verdict, VerdictReport, judge_series, overall};

use crate::LabError;

/// Figures of one measured series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesSummary {
    /// Short name of the measure.
    pub name: String,
    /// For people.
    pub title: String,
    /// Deadline, microseconds.
    pub deadline_us: Option<f64>,
    /// The values, microseconds.
    pub us: Summary,
    /// Values above the deadline, and those that never came.
    pub misses: u64,
    /// Longest row of misses without one in time between.
    pub longest_miss_run: u64,
}

/// Figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// The robot.
    pub robot: String,
    /// The run in a few words.
    pub label: String,
    /// Where it stands in an experiment.
    pub experiment: Experiment,
    /// Did everything meet its deadline.
    pub verdict: Verdict,
    /// Why.
    pub reasons: Vec<String>,
    /// How much longer to measure for a verdict, seconds; null where more would not help, or it has one.
    pub measure_more_s: Option<f64>,
    /// Length of the measured window, seconds.
    pub seconds: f64,
    /// What was measured, the main measure first.
    pub measures: Vec<SeriesSummary>,
    /// Single figures, units in the names.
    pub figures: BTreeMap<String, f64>,
    /// Processor time in the window.
    pub cpu: CpuShare,
    /// Proof that the asked interference was running; null without.
    pub load: serde_json::Value,
    /// Settings asked for and not granted.
    pub not_granted: Vec<String>,
    /// What went wrong without ending the run.
    pub problems: Vec<String>,
    /// Records lost on their way to the samples.
    pub records_lost: u64,
    /// What was lost on the robot's wires, and what of it is allowed.
    #[serde(default)]
    pub losses: Vec<Loss>,
    /// The run directory.
    pub run_dir: String,
}

impl RunSummary {
    /// The main measure.
    pub fn main(&self) -> Option<&SeriesSummary> {
        self.measures.first()
    }
}

/// Sums up a run directory. The verdict is about the measures that say so, or else the first that has a deadline.
///
/// # Errors
/// [`LabError::Files`] for a directory that is not one.
pub fn summarise(dir: &RunDir) -> Result<RunSummary, LabError> {
    let header = dir.header()?;
    let mut measures = Vec::new();
    let mut seconds = 0.0f64;
    for measure in &header.measures {
        let (series, span_s) = sum_up(dir, measure)?;
        seconds = seconds.max(span_s);
        measures.push(series);
    }
    let judged: Vec<(usize, VerdictReport)> = judged(&header.measures)
        .into_iter()
        .map(|index| {
            let measure = &header.measures[index];
            let deadline_ns = measure.deadline_ns.unwrap_or(u64::MAX);
            (index, judge_series(&evidence(&header, measure, &measures[index], deadline_ns)))
        })
        .collect();
    let part = |(index, report)| {
        let Measure { name, excused, .. } = &header.measures[index];
        Part { name, report, excused: excused.as_deref() }
    };
    let parts: Vec<Part<'_>> = judged.iter().map(|(index, report)| part((*index, report))).collect();
    let mut report = overall(&parts);
    if parts.is_empty() {
        report.reasons = vec!["no measure has a deadline".to_owned()];
    }
    if !header.failures.is_empty() {
        report.verdict = Verdict::Fail;
        report.reasons.extend(header.failures.iter().cloned());
    }
    let VerdictReport { verdict, mut reasons, measure_more_s, .. } = report;
    reasons.extend(header.loss_notes());
    reasons.extend(header.problems.iter().filter(|problem| !header.failures.contains(problem)).cloned());
    Ok(RunSummary {
        robot: header.robot,
        label: header.label,
        experiment: header.experiment,
        verdict,
        reasons,
        measure_more_s,
        seconds,
        measures,
        figures: header.figures,
        cpu: header.cpu,
        load: header.load,
        not_granted: header.not_granted,
        problems: header.problems,
        records_lost: header.records_lost,
        losses: header.losses,
        run_dir: dir.path().display().to_string(),
    })
}

fn sum_up(dir: &RunDir, measure: &Measure) -> Result<(SeriesSummary, f64), LabError> {
    let series = match dir.has_samples(&measure.file)? {
        // A chain that never came to its end has none: it is judged all the same.
        false if measure.judged => Series::default(),
        _ => dir.series(measure)?,
    };
    let streamed: Option<Streamed> = match &measure.recorder {
        Some(file) => Some(dir.read_json(file)?),
        None => None,
    };
    // A recorder saw all values where the sample file kept the first ones only.
    let beyond = streamed.filter(|s| s.recorder.count() > series.values_ns.len() as u64);
    if let Some(Streamed { recorder, elapsed_ns, .. }) = &beyond {
        let summary = in_us(recorder.summary());
        return Ok((series_summary(measure, summary, recorder.misses()), *elapsed_ns as f64 / 1e9));
    }
    let misses =
        measure.deadline_ns.map(|deadline| Misses::of(&series.values_ns, deadline)).unwrap_or_default();
    let mut us: Vec<f64> = series.values_ns.iter().map(|&ns| ns as f64 / 1e3).collect();
    let span_ns = match (measure.window_ns, series.times_ns.first(), series.times_ns.last()) {
        (Some([from, to]), ..) if to != u64::MAX => to.saturating_sub(from),
        (_, Some(first), Some(last)) => last.saturating_sub(*first),
        _ => 0,
    };
    Ok((series_summary(measure, Summary::of(&mut us), misses), span_ns as f64 / 1e9))
}

fn series_summary(measure: &Measure, us: Summary, misses: Misses) -> SeriesSummary {
    SeriesSummary {
        name: measure.name.clone(),
        title: measure.title.clone(),
        deadline_us: measure.deadline_ns.map(|ns| ns as f64 / 1e3),
        us,
        misses: misses.misses + measure.never,
        longest_miss_run: misses.longest_run.max(measure.longest_miss_run.unwrap_or(0)),
    }
}

/// Nanoseconds as microseconds.
fn in_us(ns: Summary) -> Summary {
    Summary {
        count: ns.count,
        mean: ns.mean / 1e3,
        stddev: ns.stddev / 1e3,
        min: ns.min / 1e3,
        median: ns.median / 1e3,
        p90: ns.p90 / 1e3,
        p99: ns.p99 / 1e3,
        p999: ns.p999 / 1e3,
        worst: ns.worst / 1e3,
    }
}

fn evidence(
    header: &RunHeader,
    measure: &Measure,
    series: &SeriesSummary,
    deadline_ns: u64,
) -> SeriesEvidence {
    SeriesEvidence {
        unit: "values".to_owned(),
        deadline_ns,
        rate_hz: measure.rate_hz,
        samples: series.us.count,
        misses: series.misses - measure.never,
        longest_run: series.longest_miss_run,
        worst_ns: (series.us.worst * 1e3).round() as u64,
        unfinished_late: measure.never,
        records_lost: header.records_lost,
        not_granted: header.not_granted.len() as u64,
        stolen: Some(header.cpu.stolen),
        ..SeriesEvidence::default()
    }
}
