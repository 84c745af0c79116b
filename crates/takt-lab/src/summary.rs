//! Figures of a run of any robot, computed from its run directory alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use takt_report::Figures;
use takt_report::verdict::{RunVerdict, of_run};
use takt_rundir::{CpuShare, Experiment, Loss, Measure, RunDir};
use takt_stats::{Summary, Verdict};

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
    /// Values above the deadline, and those that never came; null without a deadline, and where no
    /// value was due.
    pub misses: Option<u64>,
    /// Longest row of misses without one in time between; null likewise.
    pub longest_miss_run: Option<u64>,
}

/// Figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    pub robot: String,
    /// The run in a few words.
    pub label: String,
    /// Its position in an experiment.
    pub experiment: Experiment,
    /// Did everything meet its deadline.
    pub verdict: Verdict,
    /// The reasons.
    pub reasons: Vec<String>,
    /// Both in one sentence: the same in reports, benches, campaigns and comparisons.
    pub sentence: String,
    /// The miss probability per job lies below this at the claim's confidence; null where the
    /// verdict is about several measures.
    pub misses_per_job_below: Option<f64>,
    /// Additional time to measure for a verdict, seconds; null if more would not help, or if there
    /// is a verdict.
    pub measure_more_s: Option<f64>,
    /// Length of the measured window, seconds.
    pub seconds: f64,
    /// The measures, the main one first.
    pub measures: Vec<SeriesSummary>,
    /// Single figures, units in the names.
    pub figures: BTreeMap<String, f64>,
    /// Processor time in the window.
    pub cpu: CpuShare,
    /// Proof that the asked interference was running; null without.
    pub load: serde_json::Value,
    /// Settings asked for and not granted.
    pub not_granted: Vec<String>,
    /// Problems that did not end the run.
    pub problems: Vec<String>,
    /// Records lost on their way to the samples.
    pub records_lost: u64,
    /// Losses on the robot's wires, with the limits.
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

/// Sums up a run directory. The verdict is the one that reports have ([`takt_report::verdict`]):
/// about the measures that say so, or else the first that has a deadline.
///
/// # Errors
/// [`LabError::Files`] for a directory that is not one.
pub fn summarise(dir: &RunDir) -> Result<RunSummary, LabError> {
    let RunVerdict { header, figures, report, measures: _ } = of_run(dir)?;
    let measures: Vec<SeriesSummary> = header
        .measures
        .iter()
        .zip(&figures)
        .map(|(measure, figures)| series_summary(measure, figures))
        .collect();
    Ok(RunSummary {
        robot: header.robot,
        label: header.label,
        experiment: header.experiment,
        verdict: report.verdict,
        sentence: report.sentence(),
        reasons: report.reasons,
        measure_more_s: report.measure_more_s,
        misses_per_job_below: report.misses_per_job_below,
        seconds: figures.iter().filter_map(|figures| figures.seconds).fold(0.0, f64::max),
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

fn series_summary(measure: &Measure, figures: &Figures) -> SeriesSummary {
    SeriesSummary {
        name: measure.name.clone(),
        title: measure.title.clone(),
        deadline_us: measure.deadline_ns.map(|ns| ns as f64 / 1e3),
        us: figures.summary.over(1e3),
        misses: figures.missed(),
        longest_miss_run: figures.longest_miss_run(),
    }
}
