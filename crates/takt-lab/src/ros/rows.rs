//! The paper's Table II, and its costs (Table III), from the runs of a campaign.

use serde::{Deserialize, Serialize};
use takt_rundir::RunDir;

use crate::LabError;
use crate::campaign::Table;
use crate::summary::{RunSummary, summarise};

/// One chain under one policy, all repetitions together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChainRow {
    /// `takt`, `rr`, `cfs`.
    pub policy: String,
    /// The chain.
    pub chain: String,
    /// Its goal.
    pub goal_ms: f64,
    /// Times that it came to its end.
    pub completions: u64,
    /// Of these, later than the goal.
    pub violations: u64,
    /// The median of the repetitions' medians.
    pub median_ms: f64,
    /// The longest latency.
    pub worst_ms: f64,
    /// Instances that a later one passed.
    pub dropped: u64,
    /// The analysis' last bound; only under the manager.
    pub bound_ms: Option<f64>,
    /// Greatest share of the processor time that the hypervisor took.
    pub stolen: f64,
}

/// The whole experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ManagerTable {
    /// Policies in the campaign's order, chains most critical first.
    pub rows: Vec<ChainRow>,
    /// Share of one CPU that extractor and manager took; mean of the runs under `takt`.
    pub manager_cpu_share: Option<f64>,
    /// The longest single analysis.
    pub analysis_ms: Option<f64>,
    /// CPU time for each plan, in the steps of Table III: extraction, model, plan (budgets and analysis), enactment.
    pub cost_ms_per_plan: Option<[f64; 4]>,
    /// What was not granted or went wrong, by policy.
    pub labels: Vec<String>,
    /// The run directories.
    pub run_dirs: Vec<String>,
}

/// Reads the runs of `table`.
///
/// # Errors
/// [`LabError::Files`] for a run directory that cannot be read.
pub fn manager_table(table: &Table) -> Result<ManagerTable, LabError> {
    let mut result = ManagerTable {
        rows: Vec::new(),
        manager_cpu_share: None,
        analysis_ms: None,
        cost_ms_per_plan: None,
        labels: Vec::new(),
        run_dirs: Vec::new(),
    };
    let mut managed = Vec::new();
    for row in &table.rows {
        let policy = row.factor("policy").unwrap_or("takt");
        let labels = row.not_granted.iter().chain(&row.problems);
        result.labels.extend(labels.map(|label| format!("{policy}: {label}")));
        let mut runs = Vec::new();
        for path in &row.run_dirs {
            runs.push(summarise(&RunDir::open(path.as_ref())?)?);
            result.run_dirs.push(path.clone());
        }
        let mut rows: Vec<ChainRow> = Vec::new();
        for run in &runs {
            for series in &run.measures {
                let figure = |name: &str| run.figures.get(&format!("{name}.{}", series.name)).copied();
                let found = rows.iter_mut().find(|row| row.chain == series.name);
                let dropped = figure("dropped").unwrap_or(0.0) as u64;
                let stolen = run.cpu.stolen;
                match found {
                    Some(one) => {
                        one.completions += series.us.count;
                        one.violations += series.misses;
                        one.dropped += dropped;
                        one.worst_ms = one.worst_ms.max(series.us.worst / 1e3);
                        one.stolen = one.stolen.max(stolen);
                    }
                    None => rows.push(ChainRow {
                        policy: policy.to_owned(),
                        chain: series.name.clone(),
                        goal_ms: series.deadline_us.unwrap_or(0.0) / 1e3,
                        completions: series.us.count,
                        violations: series.misses,
                        median_ms: 0.0,
                        worst_ms: series.us.worst / 1e3,
                        dropped,
                        bound_ms: (policy == "takt").then(|| figure("bound_ms")).flatten(),
                        stolen,
                    }),
                }
            }
        }
        for one in &mut rows {
            let of_chain =
                runs.iter().flat_map(|run| &run.measures).filter(|series| series.name == one.chain);
            one.median_ms = middle(of_chain.map(|series| series.us.median / 1e3).collect());
        }
        result.rows.append(&mut rows);
        if policy == "takt" {
            managed.append(&mut runs);
        }
    }
    result.manager_cpu_share = mean(&managed, "manager_cpu_share");
    let analyses = managed.iter().filter_map(|run| run.figures.get("analysis_ms")).copied();
    result.analysis_ms = analyses.reduce(f64::max);
    let steps = ["extract_ms_per_plan", "model_ms_per_plan", "plan_ms_per_plan", "enact_ms_per_plan"];
    let steps = steps.map(|name| mean(&managed, name));
    if let [Some(extract), Some(model), Some(plan), Some(enact)] = steps {
        result.cost_ms_per_plan = Some([extract, model, plan, enact]);
    }
    Ok(result)
}

/// Of a figure, over the runs that have it.
fn mean(runs: &[RunSummary], name: &str) -> Option<f64> {
    let values: Vec<f64> = runs.iter().filter_map(|run| run.figures.get(name)).copied().collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The middle one; of two middle ones the lower.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_one_of_the_values() {
        assert_eq!(middle(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(middle(vec![4.0, 1.0]), 1.0);
        assert!(middle(Vec::new()).is_nan());
    }
}
