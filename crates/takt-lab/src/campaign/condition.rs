//! Rows of a campaign about test conditions, in the shape of the DAQ paper's Tables 1 to 4, and
//! with what those leave out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::table::{Row, Table};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConditionRow {
    /// The factors in one line.
    pub condition: String,
    /// Values measured.
    pub count: u64,
    /// Maximum (Td_max), microseconds, as all that follow.
    pub max: Option<f64>,
    /// Mean (Td_mean).
    pub mean: Option<f64>,
    pub median: Option<f64>,
    /// Standard deviation.
    pub stddev: Option<f64>,
    /// Least value.
    pub min: Option<f64>,
    /// 90 % quantile.
    pub p90: Option<f64>,
    /// 99 % quantile.
    pub p99: Option<f64>,
    /// Values beyond the deadline, where there is one.
    pub misses: Option<u64>,
    /// The verdict on all repetitions in one sentence; null without a deadline.
    #[serde(default)]
    pub sentence: Option<String>,
    /// Single figures of the runs, units in the names; none where no run was measured.
    pub figures: BTreeMap<String, f64>,
    /// Greatest share of the processor time that the hypervisor took, 0..=1.
    pub stolen: Option<f64>,
    /// Labels: settings not granted, runs that failed, tools that died.
    pub labels: Vec<String>,
    /// The run directories.
    pub run_dirs: Vec<String>,
}

/// The rows of `table`, in its order.
pub fn condition_rows(table: &Table) -> Vec<ConditionRow> {
    table.rows.iter().map(condition_row).collect()
}

fn condition_row(row: &Row) -> ConditionRow {
    let figure = |value: f64| (row.us.count > 0).then_some(value);
    let values: Vec<&str> = row.factors.iter().map(|f| f.value.as_str()).collect();
    ConditionRow {
        condition: values.join(", "),
        count: row.us.count,
        max: figure(row.us.worst),
        mean: figure(row.us.mean),
        median: figure(row.us.median),
        stddev: (row.us.count > 1).then_some(row.us.stddev),
        min: figure(row.us.min),
        p90: figure(row.us.p90),
        p99: figure(row.us.p99),
        misses: row.misses,
        sentence: row.sentence.clone(),
        figures: row.figures.clone(),
        stolen: row.stolen,
        labels: row.not_granted.iter().chain(&row.problems).cloned().collect(),
        run_dirs: row.run_dirs.clone(),
    }
}
