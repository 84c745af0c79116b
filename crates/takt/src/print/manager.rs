//! Findings, actions and cost of the manager.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};
use takt_manager::live::{ChainStatus, Finished, Interval, Status};
use takt_manager::plan::ChainState;
use takt_manager::recorded::Recorded;
use takt_model::Model;
use takt_robot_ros::ManagerTable;
use takt_stats::VerdictReport;

/// Everything of a managed run, the model as a graph among it.
pub fn managed_json(finished: &Finished, verdict: &VerdictReport) -> Value {
    let chains: Vec<Value> = finished.status.chains.iter().map(chain_json).collect();
    json!({
        "verdict": verdict.verdict,
        "reasons": verdict.reasons,
        "chains": chains,
        "graph": graph(&finished.model),
        "status": finished.status,
        "plan": finished.plan,
        "restored": finished.restored.as_ref().map(ToString::to_string),
        "model": finished.model,
    })
}

/// One chain, in the units of people.
fn chain_json(chain: &ChainStatus) -> Value {
    let ms = |ns: u64| ns as f64 / 1e6;
    json!({
        "name": chain.name,
        "state": chain.state,
        "why": chain.why,
        "goal_ms": ms(chain.goal_ns),
        "bound_ms": chain.bound_ms,
        "worst_ms": chain.worst_ms,
        "median_ms": chain.median_ns.map(ms),
        "p99_ms": chain.p99_ns.map(ms),
        "completions": chain.completions,
        "late": chain.violations,
        "skipped": chain.skipped,
        "dropped": chain.dropped,
        "bound_parts": chain.bound_parts,
        "assumptions": chain.assumptions,
        "run": chain.run,
    })
}

/// Outcome: the chains' state at the end, their record over the whole run, and the verdict on it.
pub fn managed(status: &Status, verdict: &VerdictReport) -> String {
    let mut text = status.text();
    // Writing to a string cannot fail.
    for chain in &status.chains {
        if chain.run.intervals.len() < 2 && chain.run.refutations.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{} over the whole run:", chain.name);
        for interval in shown(&chain.run.intervals) {
            let Interval { state, from_s, to_s, completions, late, .. } = interval;
            let optional = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
            let (bound, worst) = (optional(interval.bound_ms), optional(interval.worst_ms));
            let _ = writeln!(
                text,
                "  {from_s:8.1} to {to_s:8.1} s  {state}: bound {bound} ms, worst {worst} ms, {late} of {completions} late"
            );
        }
        let unlisted = chain.run.refuted_times.saturating_sub(chain.run.refutations.len() as u64);
        for (at_s, words) in &chain.run.refutations {
            let _ = writeln!(text, "  {at_s:8.1} s  {words}");
        }
        if unlisted > 0 {
            let _ = writeln!(text, "  and {unlisted} more failed assumptions");
        }
    }
    let _ = writeln!(text, "\n{}", verdict.sentence());
    text
}

/// The first and the last intervals of many.
fn shown(intervals: &[Interval]) -> impl Iterator<Item = &Interval> {
    const ENDS: usize = 6;
    let count = intervals.len();
    intervals.iter().enumerate().filter(move |(i, _)| *i < ENDS || i + ENDS >= count).map(|(_, one)| one)
}

/// Everything of a recording.
pub fn recorded_json(seen: &Recorded, verdict: &VerdictReport) -> Value {
    json!({
        "verdict": verdict.verdict,
        "reasons": verdict.reasons,
        "graph": graph(&seen.model),
        "events": seen.events,
        "gaps": seen.gaps(),
        "chains": seen.measured(),
        "plan": seen.plan,
        "model": seen.model,
    })
}

/// The chains of a recording for the page of its graph.
pub fn recorded_chains(seen: &Recorded) -> impl Iterator<Item = takt_robot_ros::view::Chain> {
    let measured = seen.measured();
    seen.plan.chains.iter().map(move |chain| {
        let one = measured.iter().find(|one| one.name == chain.name);
        let state = match chain.state {
            ChainState::Guaranteed => "keepable",
            ChainState::Degraded { .. } => "degraded",
            ChainState::NotAnalysable { .. } => "not analysable",
            ChainState::NotFound { .. } => "not found",
        };
        takt_robot_ros::view::Chain {
            name: chain.name.clone(),
            state: state.to_owned(),
            why: words(&chain.state),
            path: chain.path_names.clone(),
            goal_ns: Some(chain.goal_ns),
            bound_ns: chain.bound_ns,
            median_ns: one.and_then(|one| one.median_ns),
            worst_ns: one.filter(|one| one.completions > 0).map(|one| one.worst_ns),
            completions: one.map_or(0, |one| one.completions),
        }
    })
}

/// The chains of a recording for people: bound, goal, what was measured, and the verdict.
pub fn recorded(seen: &Recorded, verdict: &VerdictReport) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    let measured = seen.measured();
    let mut text = format!("{} events, {} lost\n", seen.events, seen.model.lost_events);
    // Writing to a string cannot fail.
    for chain in &seen.plan.chains {
        let bound = chain.bound_ns.map_or("no bound".to_owned(), |ns| format!("at most {:.1} ms", ms(ns)));
        let _ = write!(
            text,
            "{}: goal {:.1} ms, {bound} ({})",
            chain.name,
            ms(chain.goal_ns),
            words(&chain.state)
        );
        match measured.iter().find(|one| one.name == chain.name) {
            Some(one) => {
                let median = one.median_ns.map_or("-".to_owned(), |ns| format!("{:.1}", ms(ns)));
                let _ = writeln!(
                    text,
                    "; measured {} times, {} late, median {median}, worst {:.1} ms",
                    one.completions,
                    one.violations,
                    ms(one.worst_ns)
                );
            }
            None => text.push('\n'),
        }
    }
    let _ = writeln!(text, "\n{}", verdict.sentence());
    text
}

fn words(state: &ChainState) -> String {
    match state {
        ChainState::Guaranteed => "could be kept".to_owned(),
        ChainState::Degraded { why } | ChainState::NotAnalysable { why } => why.clone(),
        ChainState::NotFound { why, near_misses } if near_misses.is_empty() => why.clone(),
        ChainState::NotFound { why, near_misses } => format!("{why}; there are {}", near_misses.join(", ")),
    }
}

/// Vertices are callbacks, edges are topics between them.
pub(super) fn graph(model: &Model) -> Value {
    let vertices = model.callbacks.iter().enumerate().map(|(id, callback)| {
        json!({
            "id": id,
            "name": callback.name,
            "symbol": callback.symbol,
            "executor": callback.executor,
            "activations": callback.arrivals.seen,
            "longest_ms": callback.cost.most_ns.first().map(|ns| *ns as f64 / 1e6),
        })
    });
    let edges = model.callbacks.iter().enumerate().flat_map(|(from, callback)| {
        let topics = callback.publishes.iter().filter_map(|id| model.topics.get(id.0));
        topics.flat_map(move |topic| {
            topic.subscribers.iter().map(move |to| json!({ "from": from, "to": to, "topic": topic.name }))
        })
    });
    json!({ "vertices": vertices.collect::<Vec<_>>(), "edges": edges.collect::<Vec<_>>() })
}

/// Table II for people: chains down, policies across; then what it cost.
pub fn manager_table(table: &ManagerTable) -> String {
    let mut text = String::new();
    let mut chains: Vec<&str> = Vec::new();
    let mut policies: Vec<&str> = Vec::new();
    let mut cells = BTreeMap::new();
    for row in &table.rows {
        if !chains.contains(&row.chain.as_str()) {
            chains.push(&row.chain);
        }
        if !policies.contains(&row.policy.as_str()) {
            policies.push(&row.policy);
        }
        cells.insert((row.chain.as_str(), row.policy.as_str()), row);
    }
    // Writing to a string cannot fail.
    let _ = write!(text, "{:16} {:>8}", "chain", "goal ms");
    for policy in &policies {
        let _ = write!(text, " | {:>32}", format!("{policy}: late / all, median, worst ms"));
    }
    let _ = writeln!(text);
    for chain in &chains {
        let goal = cells.iter().find(|((name, _), _)| name == chain).map_or(0.0, |(_, row)| row.goal_ms);
        let _ = write!(text, "{chain:16} {goal:8.0}");
        for policy in &policies {
            let row = cells.get(&(*chain, *policy)).filter(|row| row.completions > 0);
            match row.and_then(|row| Some((row, row.median_ms?, row.worst_ms?))) {
                Some((row, median_ms, worst_ms)) => {
                    let _ = write!(
                        text,
                        " | {:>5} / {:<6} {:>8.1} {:>9.1}",
                        row.late, row.completions, median_ms, worst_ms
                    );
                }
                None => {
                    let _ = write!(text, " | {:>32}", "never completed");
                }
            }
        }
        let _ = writeln!(text);
    }
    for row in table.rows.iter().filter(|row| row.skipped > 0) {
        let _ = writeln!(
            text,
            "{}, {}: {} more releases never ran, or had not completed when the nodes ended",
            row.policy, row.chain, row.skipped
        );
    }
    text.push_str(&phases(table, &chains, &policies));
    let given_up = table.rows.iter().filter_map(|row| Some((row, row.excused.as_ref()?)));
    for (row, why) in given_up {
        let _ = writeln!(text, "{}, {}: {why}", row.policy, row.chain);
    }
    if let (Some(share), Some(analysis)) = (table.manager_cpu_share, table.analysis_ms) {
        let _ =
            writeln!(text, "\nManager: {:.2} % of one CPU; longest analysis {analysis:.1} ms", share * 100.0);
    }
    text.push_str(&steps(table));
    text.push_str(&observing(table));
    if let Some(load) = &table.load {
        let paper = load.paper.as_ref().map(|paper| {
            let machine = paper.machine.as_deref().unwrap_or("a machine");
            format!(" of {machine}, {} cores", paper.cores)
        });
        let _ = writeln!(
            text,
            "Load: {}{}; on the {} cores here, costs are multiplied by {:.2}. {}",
            load.name,
            paper.unwrap_or_default(),
            load.here.cores,
            load.factor,
            load.rule
        );
    }
    if !table.order.is_empty() {
        let _ = writeln!(text, "Runs were made in this order: {}", table.order.join(", "));
    }
    let stolen = table.rows.iter().map(|row| row.stolen).fold(0.0, f64::max);
    if stolen > 0.001 {
        let _ = writeln!(text, "The hypervisor took up to {:.1} % of the CPU time.", stolen * 100.0);
    }
    for nodes in &table.nodes {
        let _ = writeln!(text, "Nodes: {nodes}");
    }
    for label in &table.labels {
        let _ = writeln!(text, "{label}");
    }
    for dir in &table.run_dirs {
        let _ = writeln!(text, "{dir}");
    }
    text
}

/// Table III: CPU time for each plan, step by step.
fn steps(table: &ManagerTable) -> String {
    let mut text = String::new();
    let mut phases: Vec<(&str, Option<&str>)> = Vec::new();
    for row in &table.steps {
        let key = (row.policy.as_str(), row.phase.as_deref());
        if !phases.contains(&key) {
            phases.push(key);
        }
    }
    for (policy, phase) in phases {
        let own = table.steps.iter().filter(|row| row.policy == policy && row.phase.as_deref() == phase);
        let all: f64 = own.clone().map(|row| row.ms_per_plan).sum();
        let words: Vec<String> = own.map(|row| format!("{} {:.1} ms", row.step, row.ms_per_plan)).collect();
        let of = phase.map_or_else(String::new, |phase| format!(", {phase}"));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{policy}{of}: CPU time for each plan: {}; {all:.1} ms in total",
            words.join(", ")
        );
    }
    if !text.is_empty() {
        text.push_str("Paper, high load at 600 MHz: extraction 1390 ms, model 320, budgets 130, analysis 430; 2270 together\n");
    }
    text
}

/// CPU time of observing, policy by policy.
fn observing(table: &ManagerTable) -> String {
    let mut text = String::new();
    let mut policies: Vec<&str> = Vec::new();
    for row in &table.observing {
        if !policies.contains(&row.policy.as_str()) {
            policies.push(&row.policy);
        }
    }
    for policy in policies {
        let words = table.observing.iter().filter(|row| row.policy == policy).map(|row| {
            let by = match row.observed_by.as_str() {
                "nodes" => "the nodes' own timestamps",
                "extractor" => "the extractor",
                _ => "all of Takt's process",
            };
            format!("{by} {:.3} % of a CPU", row.cpu_share * 100.0)
        });
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{policy}, observing: {}", words.collect::<Vec<_>>().join(", "));
    }
    text
}

/// Late completions phase by phase, for the chains that were late anywhere.
fn phases(table: &ManagerTable, chains: &[&str], policies: &[&str]) -> String {
    let mut text = String::new();
    let late = |chain: &&str| table.rows.iter().any(|row| row.chain == **chain && row.violations > Some(0));
    for chain in chains.iter().filter(|chain| late(chain)) {
        // Writing to a string cannot fail.
        let _ = write!(text, "  {chain:14} late by phase:");
        for policy in policies {
            let row = table.rows.iter().find(|row| row.chain == *chain && row.policy == *policy);
            let phases = row.map_or(&[][..], |row| &row.phases);
            let words: Vec<String> =
                phases.iter().map(|p| format!("{} {} / {}", p.phase, p.violations, p.completions)).collect();
            let _ = write!(
                text,
                "  {policy}: {}",
                if words.is_empty() { "-".to_owned() } else { words.join(", ") }
            );
        }
        let _ = writeln!(text);
    }
    text
}
