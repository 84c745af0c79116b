//! Rows of a campaign about scheduler settings, in the shape of the UAV paper's Table 4.

use serde::{Deserialize, Serialize};
use takt_rt::policy::Policy;

use super::table::{Row, Table};

/// One configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SchedulerRow {
    /// `OTHER`, `FIFO`, `RR` or `DEADLINE`.
    pub policy: String,
    /// `nice 0`, `priority 50`, `R400 D4000`: runtime and deadline in microseconds, as in the
    /// paper.
    pub parameter: String,
    /// Stress profile; `off` for none.
    pub stress: String,
    /// Values measured.
    pub count: u64,
    /// Mean, microseconds, as all that follow.
    pub mean: Option<f64>,
    pub median: Option<f64>,
    /// Maximum.
    pub max: Option<f64>,
    /// Standard deviation.
    pub stddev: Option<f64>,
    /// 90 % quantile.
    pub p90: Option<f64>,
    /// 99 % quantile.
    pub p99: Option<f64>,
    /// Releases that missed their deadline or never came.
    pub misses: Option<u64>,
    /// Longest row of misses.
    pub longest_miss_run: Option<u64>,
    /// The verdict on all repetitions in one sentence; null without a deadline.
    #[serde(default)]
    pub sentence: Option<String>,
    /// Root mean square of the position error, metres; null for a robot that has none.
    pub position_rms_m: Option<f64>,
    /// Root mean square of the distance from the same flight with punctual jobs, metres: what
    /// lateness alone cost.
    pub deviation_rms_m: Option<f64>,
    /// Share of the repetitions whose vehicle was lost, 0..=1; their position errors are of the
    /// time until then.
    pub diverged: Option<f64>,
    /// Greatest share of the processor time that the hypervisor took, 0..=1.
    pub stolen: Option<f64>,
    /// Labels: settings not granted, runs that failed, tools that died.
    pub labels: Vec<String>,
    /// The run directories.
    pub run_dirs: Vec<String>,
}

/// The rows of `table`, in its order.
pub fn scheduler_rows(table: &Table) -> Vec<SchedulerRow> {
    table.rows.iter().map(scheduler_row).collect()
}

fn scheduler_row(row: &Row) -> SchedulerRow {
    let text = row.factor("policy").unwrap_or("unknown");
    let (policy, parameter) = match text.parse::<Policy>() {
        Ok(policy) => words(&policy),
        Err(_) => (text.to_owned(), String::new()),
    };
    let figure = |value: f64| (row.us.count > 0).then_some(value);
    SchedulerRow {
        policy,
        parameter,
        stress: row.factor("stress").unwrap_or("off").to_owned(),
        count: row.us.count,
        mean: figure(row.us.mean),
        median: figure(row.us.median),
        max: figure(row.us.worst),
        stddev: (row.us.count > 1).then_some(row.us.stddev),
        p90: figure(row.us.p90),
        p99: figure(row.us.p99),
        misses: row.misses,
        longest_miss_run: row.longest_miss_run,
        sentence: row.sentence.clone(),
        position_rms_m: row.figures.get("position_rms_m").copied(),
        deviation_rms_m: row.figures.get("deviation_rms_m").copied(),
        diverged: row.figures.get("diverged").copied(),
        stolen: row.stolen,
        labels: row.not_granted.iter().chain(&row.problems).cloned().collect(),
        run_dirs: row.run_dirs.clone(),
    }
}

fn words(policy: &Policy) -> (String, String) {
    let (name, parameter) = match policy {
        Policy::Other { nice } => ("OTHER", format!("nice {nice}")),
        Policy::Fifo { priority } => ("FIFO", format!("priority {priority}")),
        Policy::RoundRobin { priority } => ("RR", format!("priority {priority}")),
        Policy::Deadline { runtime, deadline, .. } => {
            ("DEADLINE", format!("R{} D{}", runtime.as_micros(), deadline.as_micros()))
        }
    };
    (name.to_owned(), parameter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_read_as_in_the_paper() {
        let read = |text: &str| words(&text.parse().unwrap());
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(read("other:-19"), pair("OTHER", "nice -19"));
        assert_eq!(read("fifo:50"), pair("FIFO", "priority 50"));
        assert_eq!(read("rr:99"), pair("RR", "priority 99"));
        assert_eq!(read("deadline:400us/4ms/4ms"), pair("DEADLINE", "R400 D4000"));
    }
}
