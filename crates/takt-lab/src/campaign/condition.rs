//! Rows of a campaign about test conditions, in the shape of the DAQ paper's Tables 1 to 4, and with what those leave out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::table::{Row, Table};

/// One condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConditionRow {
    /// The factors in one line.
    pub condition: String,
    /// Values measured.
    pub count: u64,
    /// Maximum (Td_max), microseconds, as all that follow.
    pub max: f64,
    /// Mean (Td_mean).
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Least value.
    pub min: f64,
    /// 90 % quantile.
    pub p90: f64,
    /// 99 % quantile.
    pub p99: f64,
    /// Values beyond the deadline, where there is one.
    pub misses: u64,
    /// Single figures of the runs, units in the names.
    pub figures: BTreeMap<String, f64>,
    /// Greatest share of the processor time that the hypervisor took, 0..=1.
    pub stolen: f64,
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
    let values: Vec<&str> = row.factors.iter().map(|f| f.value.as_str()).collect();
    ConditionRow {
        condition: values.join(", "),
        count: row.us.count,
        max: row.us.worst,
        mean: row.us.mean,
        median: row.us.median,
        stddev: row.us.stddev,
        min: row.us.min,
        p90: row.us.p90,
        p99: row.us.p99,
        misses: row.misses,
        figures: row.figures.clone(),
        stolen: row.stolen,
        labels: row.not_granted.iter().chain(&row.problems).cloned().collect(),
        run_dirs: row.run_dirs.clone(),
    }
}
