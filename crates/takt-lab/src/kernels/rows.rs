//! Rows about kernels: what each one is, and what it made of the same task.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use takt_rundir::{RunDir, read_json};
use takt_trace::TraceReport;
use takt_trace::analysis::Step;

use super::GUESTS;
use crate::campaign::{Row, Table};
use crate::trace::TRACE_FILE;

/// A configuration on one kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelRow {
    /// The kernel as it was asked for.
    pub kernel: String,
    /// Its release; empty where no run came to its end, as the next two.
    pub release: String,
    /// Preemption model as the kernel reported it while running: `PREEMPT_RT`,
    /// `PREEMPT_DYNAMIC (voluntary)`.
    pub preemption: String,
    /// Time base: `virtual` (instructions) or `real`.
    pub time: String,
    /// The other factors in one line; empty where there are none.
    pub configuration: String,
    /// The measure; all figures are microseconds.
    pub measure: String,
    /// Values measured.
    pub count: u64,
    pub mean: Option<f64>,
    pub median: Option<f64>,
    /// 99 % quantile.
    pub p99: Option<f64>,
    /// Maximum.
    pub max: Option<f64>,
    /// Least and greatest maximum of the repetitions.
    pub max_range: Option<[f64; 2]>,
    /// Standard deviation.
    pub stddev: Option<f64>,
    /// Releases that missed their deadline, were skipped or dropped.
    pub misses: Option<u64>,
    /// Of these, the skipped releases, and frames that were dropped or unanswered. Mean to maximum
    /// are of the others.
    #[serde(rename = "never")]
    pub skipped: Option<u64>,
    /// The verdict on all repetitions in one sentence; null without a deadline.
    #[serde(default)]
    pub sentence: Option<String>,
    /// Of traced runs: releases by how the kernel activated them, all runs together.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub activations: BTreeMap<String, u64>,
    /// Of traced runs: the activation sequence of the first (the UAV paper's Table 6).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sequence: Vec<Step>,
    /// Labels: settings not granted, runs that failed with their cause and console.
    pub labels: Vec<String>,
    /// The run directories.
    pub run_dirs: Vec<String>,
}

/// The rows of `table`, in its order. `kernel` is the one of all rows, where the campaign does not
/// vary it.
pub fn kernel_rows(table: &Table, kernel: Option<&str>) -> Vec<KernelRow> {
    table.rows.iter().map(|row| kernel_row(row, kernel.unwrap_or("unknown"))).collect()
}

fn kernel_row(row: &Row, kernel: &str) -> KernelRow {
    let header = row.run_dirs.first().and_then(|dir| RunDir::open(dir.as_ref()).ok()?.header().ok());
    let machine = header.map(|header| header.machine).unwrap_or_default();
    let time = machine.virtual_machine.as_ref().map(|it| if it.virtual_time { "virtual" } else { "real" });
    let others = row.factors.iter().filter(|factor| factor.name != "kernel");
    let others: Vec<String> = others.map(|factor| format!("{} {}", factor.name, factor.value)).collect();
    let mut activations: BTreeMap<String, u64> = BTreeMap::new();
    let (mut sequence, mut untraced) = (Vec::new(), Vec::new());
    for dir in row.run_dirs.iter().map(Path::new) {
        match read_json::<TraceReport>(&dir.join(TRACE_FILE)) {
            Ok(trace) => {
                for (way, releases) in trace.activations {
                    *activations.entry(way).or_default() += releases;
                }
                if sequence.is_empty() {
                    sequence = trace.sequence;
                }
            }
            Err(_) => untraced.extend(why_untraced(dir)),
        }
    }
    let figure = |value: f64| (row.us.count > 0).then_some(value);
    KernelRow {
        kernel: row.factor("kernel").unwrap_or(kernel).to_owned(),
        release: machine.kernel.unwrap_or_default(),
        preemption: machine.preemption.unwrap_or_default(),
        time: time.unwrap_or_default().to_owned(),
        configuration: others.join(", "),
        measure: row.measure.clone(),
        count: row.us.count,
        mean: figure(row.us.mean),
        median: figure(row.us.median),
        p99: figure(row.us.p99),
        max: figure(row.us.worst),
        max_range: row.max_range_us,
        stddev: figure(row.us.stddev),
        misses: row.misses,
        skipped: row.skipped,
        sentence: row.sentence.clone(),
        activations,
        sequence,
        labels: row.not_granted.iter().chain(&row.problems).chain(&untraced).cloned().collect(),
        run_dirs: row.run_dirs.clone(),
    }
}

/// The fields of a guest's `takt trace` output that matter here.
#[derive(Deserialize)]
struct Printed {
    untraced: Option<String>,
}

/// Reason why a run that was to be traced has no trace.
fn why_untraced(run: &Path) -> Option<String> {
    let (campaign, name) = (run.parent()?, run.file_name()?);
    let printed: Printed =
        read_json(&campaign.join(GUESTS).join(name).join("results/jobs/takt.stdout")).ok()?;
    Some(format!("{}: not traced: {}", name.to_string_lossy(), printed.untraced?))
}
