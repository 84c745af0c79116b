//! The paper's Table II, and its costs (Table III), from the runs of a campaign.

use serde::{Deserialize, Serialize};
use takt_lab::LabError;
use takt_lab::campaign::Table;
use takt_lab::summary::{RunSummary, summarise};
use takt_rundir::{Measure, RUN_FILE, RunDir, RunHeader, Series};

use super::load::LoadReport;
use super::nodes::{LOAD_KEY, NODES_KEY};

/// Source of the timestamps behind the latencies of a run's chains.
const BY_NODES: &str = "nodes";
const BY_EXTRACTOR: &str = "extractor";

/// One chain under one policy, all repetitions together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChainRow {
    /// `takt`, `ros-llama`, `rr`, `cfs`.
    pub policy: String,
    pub chain: String,
    pub goal_ms: f64,
    /// Times that it came to its end.
    pub completions: u64,
    /// Later than the goal, or never released; null where it neither came to its end nor was due.
    pub violations: Option<u64>,
    /// Completions later than the goal: the paper's violations.
    #[serde(default)]
    pub late: u64,
    /// Releases that never ran, and instances past the goal that had not ended when the nodes did,
    /// each a violation beyond the paper's.
    #[serde(default)]
    pub skipped: u64,
    /// The median of the repetitions' medians; `None`: nothing was measured.
    pub median_ms: Option<f64>,
    /// All but one in a hundred latencies of all repetitions were at most this; `None`: nothing was
    /// measured.
    #[serde(default)]
    pub p99_ms: Option<f64>,
    /// The longest latency; `None`: nothing was measured.
    pub worst_ms: Option<f64>,
    /// Source of the latencies: the `nodes` themselves, or the `extractor`, if a command's nodes
    /// write nothing.
    #[serde(default)]
    pub observed_by: String,
    /// Name of the load ([`LoadReport::name`]); empty: a command's.
    #[serde(default)]
    pub load: String,
    /// Instances that a later one passed.
    pub dropped: u64,
    /// The analysis' last bound; only under a manager.
    pub bound_ms: Option<f64>,
    /// Greatest share of the processor time that the hypervisor took.
    pub stolen: f64,
    /// Reason why its violations do not count against the policy: it was given up in the declared
    /// order.
    pub excused: Option<String>,
    /// The load phases, in their order.
    pub phases: Vec<PhaseRow>,
}

/// One chain in one load phase, all repetitions together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseRow {
    pub phase: String,
    /// Times that the chain came to its end, by when it began.
    pub completions: u64,
    /// Of these, later than the goal.
    pub violations: u64,
    /// The longest latency; `None`: nothing was measured.
    pub worst_ms: Option<f64>,
}

/// Adds a run's samples of a chain, phase by phase.
fn add_phases(rows: &mut Vec<PhaseRow>, header: &RunHeader, measure: &Measure, series: &Series) {
    for phase in &header.phases {
        let found = rows.iter().position(|row| row.phase == phase.name);
        let index = found.unwrap_or_else(|| {
            rows.push(PhaseRow { phase: phase.name.clone(), completions: 0, violations: 0, worst_ms: None });
            rows.len() - 1
        });
        let row = &mut rows[index];
        for value_ns in series.within(phase) {
            row.completions += 1;
            row.violations += u64::from(measure.deadline_ns.is_some_and(|goal_ns| value_ns > goal_ns));
            row.worst_ms = greater(row.worst_ms, value_ns as f64 / 1e6);
        }
    }
}

fn greater(known: Option<f64>, value: f64) -> Option<f64> {
    Some(known.map_or(value, |known| known.max(value)))
}

/// Cost of observing under one policy; means of its runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObservingRow {
    pub policy: String,
    /// `nodes`: they write down their own activations, under every policy. `extractor`: a probe in
    /// the nodes reports to the extractor, under the managers alone. `takt`: all of this program's
    /// process in the measured window, planning included.
    pub observed_by: String,
    /// Share of one CPU.
    pub cpu_share: f64,
    /// Activations written down, or events read.
    pub records: Option<f64>,
}

/// CPU time of one step for each plan (Table III); means of a policy's runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRow {
    pub policy: String,
    /// The load phase; `None`: the whole run.
    pub phase: Option<String>,
    /// `extraction`, `model`, `budgets`, `analysis`, which are the paper's, and `enactment`.
    pub step: String,
    pub ms_per_plan: f64,
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
    /// CPU time for each plan, in the steps of Table III: extraction, model, plan (budgets and
    /// analysis), enactment.
    pub cost_ms_per_plan: Option<[f64; 4]>,
    /// The same in each load phase.
    pub cost_by_phase: Vec<PhaseCost>,
    /// Cost of observing, policy by policy.
    pub observing: Vec<ObservingRow>,
    /// Table III, for each policy that plans.
    pub steps: Vec<StepRow>,
    /// The load beside the paper's; `None`: a command's.
    pub load: Option<LoadReport>,
    /// Policies in the order in which the runs were made.
    pub order: Vec<String>,
    /// Kinds of nodes: processes of Takt, or `rclcpp`'s; each once.
    pub nodes: Vec<String>,
    /// Settings that were not granted, and faults, by policy.
    pub labels: Vec<String>,
    /// The run directories.
    pub run_dirs: Vec<String>,
}

/// Cost of the manager in one load phase; means of the runs under `takt`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseCost {
    pub phase: String,
    /// CPU time for each plan: extraction, model, plan (budgets and analysis), enactment.
    pub ms_per_plan: [f64; 4],
    pub cpu_share: f64,
}

/// The steps of Table III, as figures of a run.
const STEPS: [&str; 4] =
    ["extract_ms_per_plan", "model_ms_per_plan", "plan_ms_per_plan", "enact_ms_per_plan"];

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
        cost_by_phase: Vec::new(),
        observing: Vec::new(),
        steps: Vec::new(),
        load: None,
        order: Vec::new(),
        nodes: Vec::new(),
        labels: Vec::new(),
        run_dirs: Vec::new(),
    };
    let mut managed = Vec::new();
    let mut begun: Vec<(String, String)> = Vec::new();
    for row in &table.rows {
        let policy = row.factor("policy").unwrap_or("takt");
        let labels = row.not_granted.iter().chain(&row.problems);
        result.labels.extend(labels.map(|label| format!("{policy}: {label}")));
        let mut runs = Vec::new();
        let mut dirs = Vec::new();
        for path in &row.run_dirs {
            let dir = RunDir::open(path.as_ref())?;
            runs.push(summarise(&dir)?);
            let all: serde_json::Value = dir.read_json(RUN_FILE)?;
            if let Some(nodes) =
                all[NODES_KEY].as_str().filter(|nodes| !result.nodes.iter().any(|n| n == nodes))
            {
                result.nodes.push(nodes.to_owned());
            }
            if let Ok(load) = serde_json::from_value(all[LOAD_KEY].clone()) {
                result.load.get_or_insert(load);
            }
            let header = dir.header()?;
            begun.push((header.started_utc.clone(), policy.to_owned()));
            dirs.push((header, dir));
            result.run_dirs.push(path.clone());
        }
        let stamped = runs.iter().all(|run| run.figures.contains_key("stamps"));
        let observed_by = if stamped { BY_NODES } else { BY_EXTRACTOR };
        let load = result.load.as_ref().map_or_else(String::new, |load| load.name.clone());
        let mut rows: Vec<ChainRow> = Vec::new();
        for run in &runs {
            for series in &run.measures {
                let figure = |name: &str| run.figures.get(&format!("{name}.{}", series.name)).copied();
                let found = rows.iter_mut().find(|row| row.chain == series.name);
                let dropped = figure("dropped").unwrap_or(0.0) as u64;
                let stolen = run.cpu.stolen;
                let measured_ms = (series.us.count > 0).then_some(series.us.worst / 1e3);
                let skipped = figure("skipped").unwrap_or(0.0) as u64;
                match found {
                    Some(one) => {
                        one.completions += series.us.count;
                        one.violations = one.violations.into_iter().chain(series.misses).reduce(|a, b| a + b);
                        one.dropped += dropped;
                        one.skipped += skipped;
                        one.worst_ms = measured_ms.map_or(one.worst_ms, |ms| greater(one.worst_ms, ms));
                        one.stolen = one.stolen.max(stolen);
                    }
                    None => rows.push(ChainRow {
                        policy: policy.to_owned(),
                        chain: series.name.clone(),
                        goal_ms: series.deadline_us.unwrap_or(0.0) / 1e3,
                        completions: series.us.count,
                        violations: series.misses,
                        late: 0,
                        skipped,
                        median_ms: None,
                        p99_ms: None,
                        worst_ms: measured_ms,
                        observed_by: observed_by.to_owned(),
                        load: load.clone(),
                        dropped,
                        bound_ms: figure("bound_ms"),
                        stolen,
                        excused: None,
                        phases: Vec::new(),
                    }),
                }
            }
        }
        for one in &mut rows {
            let of_chain =
                runs.iter().flat_map(|run| &run.measures).filter(|series| series.name == one.chain);
            let of_chain = of_chain.filter(|series| series.us.count > 0);
            one.median_ms = middle(of_chain.map(|series| series.us.median / 1e3).collect());
            let mut all_ns = Vec::new();
            for (header, dir) in &dirs {
                let Some(measure) = header.measures.iter().find(|measure| measure.name == one.chain) else {
                    continue;
                };
                one.excused = one.excused.take().or_else(|| measure.excused.clone());
                if dir.has_samples(&measure.file)? {
                    let series = dir.series(measure)?;
                    add_phases(&mut one.phases, header, measure, &series);
                    let late = |ns: &&u64| measure.deadline_ns.is_some_and(|goal_ns| **ns > goal_ns);
                    one.late += series.values_ns.iter().filter(late).count() as u64;
                    all_ns.extend(series.values_ns);
                }
            }
            one.p99_ms = p99_ns(all_ns).map(|ns| ns as f64 / 1e6);
        }
        result.rows.append(&mut rows);
        result.observing.extend(observing(policy, &runs));
        result.steps.extend(table_3(policy, None, &runs));
        for phase in dirs.first().map_or(&[][..], |(header, _)| &header.phases) {
            result.steps.extend(table_3(policy, Some(&phase.name), &runs));
        }
        if policy == "takt" {
            managed.append(&mut runs);
        }
    }
    begun.sort();
    result.order = begun.into_iter().map(|(_, policy)| policy).collect();
    result.manager_cpu_share = mean(&managed, "manager_cpu_share");
    let analyses = managed.iter().filter_map(|run| run.figures.get("analysis_ms")).copied();
    result.analysis_ms = analyses.reduce(f64::max);
    result.cost_ms_per_plan = steps(&managed, |step| step.to_owned());
    let mut phases: Vec<String> = Vec::new();
    for path in &result.run_dirs {
        for phase in RunDir::open(path.as_ref())?.header()?.phases {
            if !phases.contains(&phase.name) {
                phases.push(phase.name);
            }
        }
    }
    result.cost_by_phase = phases
        .into_iter()
        .filter_map(|phase| {
            let ms_per_plan = steps(&managed, |step| format!("{step}@{phase}"))?;
            let cpu_share = mean(&managed, &format!("manager_cpu_share@{phase}"))?;
            Some(PhaseCost { phase, ms_per_plan, cpu_share })
        })
        .collect();
    Ok(result)
}

/// Of any number of values; of 100 the 99th.
fn p99_ns(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    let place = (values.len() * 99).div_ceil(100);
    values.get(place.checked_sub(1)?).copied()
}

/// Cost of observing in these runs of a policy.
fn observing(policy: &str, runs: &[RunSummary]) -> Vec<ObservingRow> {
    let row = |observed_by: &str, share: &str, records: Option<&str>| {
        Some(ObservingRow {
            policy: policy.to_owned(),
            observed_by: observed_by.to_owned(),
            cpu_share: mean(runs, share)?,
            records: records.and_then(|name| mean(runs, name)),
        })
    };
    [
        row(BY_NODES, "stamps_cpu_share", Some("stamps")),
        row(BY_EXTRACTOR, "extract_cpu_share", Some("events")),
        row("takt", "takt_cpu_share", None),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Steps of Table III, from the figures of runs; and what enacting a plan takes, which the paper
/// does not state.
fn table_3(policy: &str, phase: Option<&str>, runs: &[RunSummary]) -> Vec<StepRow> {
    let figure = |name: &str| {
        let name = phase.map_or_else(|| name.to_owned(), |phase| format!("{name}@{phase}"));
        mean(runs, &name)
    };
    let steps = [
        ("extraction", "extract_ms_per_plan"),
        ("model", "processing_ms_per_plan"),
        ("budgets", "budgeting_ms_per_plan"),
        ("analysis", "timing_ms_per_plan"),
        ("enactment", "enact_ms_per_plan"),
    ];
    let row = |step: &str, ms_per_plan| StepRow {
        policy: policy.to_owned(),
        phase: phase.map(str::to_owned),
        step: step.to_owned(),
        ms_per_plan,
    };
    steps.into_iter().filter_map(|(step, name)| Some(row(step, figure(name)?))).collect()
}

/// The four steps, where all are there.
fn steps(runs: &[RunSummary], name: impl Fn(&str) -> String) -> Option<[f64; 4]> {
    match STEPS.map(|step| mean(runs, &name(step))) {
        [Some(extract), Some(model), Some(plan), Some(enact)] => Some([extract, model, plan, enact]),
        _ => None,
    }
}

/// Of a figure, over the runs that have it.
fn mean(runs: &[RunSummary], name: &str) -> Option<f64> {
    let values: Vec<f64> = runs.iter().filter_map(|run| run.figures.get(name)).copied().collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The middle one; of two middle ones the lower.
fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_belong_to_the_phase_in_which_they_began() {
        let phase = |name: &str, from_ns, to_ns| takt_rundir::Phase { name: name.to_owned(), from_ns, to_ns };
        let phases = vec![phase("idle", 0, 100), phase("busy", 100, 200)];
        let measure =
            Measure::new("pilot", "Pilot", "chain-pilot", "ended_ns").since("began_ns").deadline_ns(50);
        let series = Series { values_ns: vec![10, 60, 20, 90, 70], times_ns: vec![0, 99, 100, 150, 200] };
        let mut rows = Vec::new();
        let header: RunHeader = serde_json::from_value(serde_json::json!({
            "format": 1, "takt": "", "robot": "ros", "label": "", "started_utc": "",
            "machine": takt_rundir::Machine::default(), "measures": [], "phases": phases,
        }))
        .unwrap();
        add_phases(&mut rows, &header, &measure, &series);
        add_phases(&mut rows, &header, &measure, &series);
        let reported: Vec<_> = rows.iter().map(|r| (r.phase.as_str(), r.completions, r.violations)).collect();
        assert_eq!(reported, [("idle", 4, 2), ("busy", 4, 2)]);
        assert_eq!(rows[1].worst_ms, Some(90.0 / 1e6));
    }

    #[test]
    fn one_in_a_hundred_is_above_the_99th() {
        assert_eq!(p99_ns((1..=100).rev().collect()), Some(99));
        assert_eq!(p99_ns((1..=1000).collect()), Some(990));
        assert_eq!(p99_ns(vec![7]), Some(7));
        assert_eq!(p99_ns(Vec::new()), None);
    }

    #[test]
    fn the_middle_is_one_of_the_values() {
        assert_eq!(middle(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(middle(vec![4.0, 1.0]), Some(1.0));
        assert_eq!(middle(Vec::new()), None, "no figure where nothing was measured");
    }
}
