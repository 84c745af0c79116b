//! Campaigns: the plan, the progress, the tables.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use indicatif::ProgressBar;
use takt_lab::campaign::{ConditionRow, Plan, Progress, Queue, SchedulerRow, Table};

use super::left::{Countdown, span};
use super::{bar, colour, counted, not_granted, number, percent, skipped};
use crate::registry::ROBOTS;

// Writing to a String cannot fail, so the results of `write!` are dropped throughout.

/// Every run that would be made.
pub fn plan(plan: &Plan) -> String {
    let mut out = String::new();
    for run in &plan.runs {
        let known = if run.expected_s > 0.0 { format!(", {} s", run.expected_s) } else { String::new() };
        let _ = writeln!(out, "{}: {}{known}", run.name, run.setup.experiment.configuration());
    }
    let seconds: f64 = plan.runs.iter().map(|run| run.expected_s).sum();
    let _ = writeln!(
        out,
        "{} runs of {}, {} in all",
        plan.runs.len(),
        plan.robot,
        span(Duration::from_secs_f64(seconds))
    );
    out
}

/// Factors that are columns: those that vary, or all if none does; and the others with the value
/// that all rows have.
fn columns(table: &Table) -> (Vec<usize>, Vec<String>) {
    let Some(first) = table.rows.first() else { return (Vec::new(), Vec::new()) };
    let same = |place: &usize| table.rows.iter().all(|row| row.factors[*place] == first.factors[*place]);
    let (constant, varying): (Vec<usize>, Vec<usize>) = (0..first.factors.len()).partition(same);
    if varying.is_empty() {
        return (constant, Vec::new());
    }
    let words = |place: usize| format!("{} {}", first.factors[place].name, first.factors[place].value);
    (varying, constant.into_iter().map(words).collect())
}

/// A campaign's table.
pub fn table(table: &Table) -> String {
    let mut out = String::new();
    let (places, same) = columns(table);
    let factor = |place: usize| table.rows.first().map_or("", |row| row.factors[place].name.as_str());
    let names: Vec<&str> = places.iter().map(|&place| factor(place)).collect();
    let widths: Vec<usize> = places
        .iter()
        .zip(&names)
        .map(|(&i, name)| {
            table.rows.iter().map(|r| r.factors[i].value.chars().count()).max().unwrap_or(0).max(name.len())
        })
        .collect();
    let measure = table.rows.iter().map(|r| r.measure.as_str()).find(|m| !m.is_empty()).unwrap_or("nothing");
    let _ = writeln!(out, "{} of {}, {measure} in us", table.campaign, table.robot);
    let cells = |values: &[&str]| -> String {
        values.iter().zip(&widths).map(|(value, width)| format!("  {value:<width$}")).collect()
    };
    let _ = writeln!(
        out,
        "{}{:>6}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}{:>9}",
        cells(&names),
        "runs",
        "n",
        "mean",
        "median",
        "P99",
        "max",
        "SD",
        "misses",
        "stolen"
    );
    for row in &table.rows {
        let values: Vec<&str> = places.iter().map(|&place| row.factors[place].value.as_str()).collect();
        let us = &row.us;
        let figure = |value: f64| number((us.count > 0).then_some(value), 1);
        let figures: String =
            row.figures.iter().map(|(name, value)| format!("  {name} {value:.4}")).collect();
        let _ = writeln!(
            out,
            "{}{:>6}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}{:>9}{figures}",
            cells(&values),
            format!("{}/{}", row.measured, row.planned),
            us.count,
            figure(us.mean),
            figure(us.median),
            figure(us.p99),
            figure(us.worst),
            figure(us.stddev),
            counted(row.misses),
            percent(row.stolen)
        );
        out.extend(skipped(row.skipped.unwrap_or(0), us.count));
        out.extend(row.sentence.iter().map(|sentence| format!("      {sentence}\n")));
        out.extend(not_granted(&row.not_granted).map(|line| format!("      {line}\n")));
        if !row.node.is_empty() {
            let nodes: BTreeSet<&str> = row.node.iter().map(String::as_str).collect();
            let nodes: Vec<&str> = nodes.into_iter().collect();
            let _ = writeln!(out, "      on {}; jobs {}", nodes.join(", "), row.job.join(", "));
        }
        for problem in &row.problems {
            let _ = writeln!(out, "      {problem}");
        }
    }
    for compared in &table.stress_work {
        let _ = writeln!(out, "{compared}");
    }
    for split in &table.split_blocks {
        let _ = writeln!(out, "NOT ONE NODE: {split}");
    }
    for d in &table.machine_differences {
        let _ = writeln!(out, "NOT THE SAME MACHINE: {} was {} and {}", d.fact, d.before, d.after);
    }
    if !same.is_empty() {
        let _ = writeln!(out, "Identical in all runs: {}", same.join(", "));
    }
    if let Some(text) = table.scaled.as_ref().and_then(|scaled| ROBOTS.scaled_text(&table.robot, scaled)) {
        let _ = writeln!(out, "{text}");
    }
    for answer in &table.questions {
        let _ = writeln!(out, "\n{} {}", answer.name, answer.question);
        for sentence in &answer.sentences {
            let _ = writeln!(out, "  {sentence}");
        }
    }
    let _ = writeln!(out, "Run directories: {}", table.dir);
    out
}

/// Scheduler settings as in the UAV paper's Table 4, and what they cost the flight.
pub fn scheduler_rows(rows: &[SchedulerRow]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "  {:<9}{:<14}{:<8}{:>10}{:>10}{:>11}{:>10}{:>10}{:>10}{:>8}{:>11}{:>11}{:>9}",
        "policy",
        "parameter",
        "stress",
        "mean us",
        "median",
        "max",
        "SD",
        "P90",
        "P99",
        "misses",
        "RMS error",
        "deviation",
        "stolen"
    );
    let mm = |m: Option<f64>| m.map_or_else(|| "-".to_owned(), |m| format!("{:.1} mm", 1e3 * m));
    for r in rows {
        let _ = writeln!(
            out,
            "  {:<9}{:<14}{:<8}{:>10}{:>10}{:>11}{:>10}{:>10}{:>10}{:>8}{:>11}{:>11}{:>9}",
            r.policy,
            r.parameter,
            r.stress,
            number(r.mean, 2),
            number(r.median, 2),
            number(r.max, 2),
            number(r.stddev, 2),
            number(r.p90, 2),
            number(r.p99, 2),
            counted(r.misses),
            mm(r.position_rms_m),
            mm(r.deviation_rms_m),
            percent(r.stolen)
        );
        out.extend(r.sentence.iter().map(|sentence| format!("      {sentence}\n")));
        if r.diverged.is_some_and(|share| share > 0.0) {
            let _ = writeln!(out, "      VEHICLE LOST; its errors cover the time until then");
        }
        for label in &r.labels {
            let _ = writeln!(out, "      {label}");
        }
    }
    out
}

/// Conditions as in the DAQ paper's tables.
pub fn condition_rows(rows: &[ConditionRow]) -> String {
    let mut out = String::new();
    let width = rows.iter().map(|r| r.condition.chars().count()).max().unwrap_or(0).max(9);
    let _ = writeln!(
        out,
        "  {:<width$}{:>12}{:>12}{:>12}{:>10}{:>10}{:>10}{:>9}",
        "condition", "edges", "Td_max us", "Td_mean us", "median", "P99", "SD", "stolen"
    );
    for r in rows {
        let _ = writeln!(
            out,
            "  {:<width$}{:>12}{:>12}{:>12}{:>10}{:>10}{:>10}{:>9}",
            r.condition,
            r.count,
            number(r.max, 2),
            number(r.mean, 2),
            number(r.median, 2),
            number(r.p99, 2),
            number(r.stddev, 2),
            percent(r.stolen)
        );
        out.extend(r.sentence.iter().map(|sentence| format!("      {sentence}\n")));
        for label in &r.labels {
            let _ = writeln!(out, "      {label}");
        }
    }
    out
}

/// State of the runs that other machines make.
fn queued(queue: &Queue, done: usize, failed: usize, with_time: bool) -> String {
    let why = if queue.reason.is_empty() { String::new() } else { format!(" ({})", queue.reason) };
    let left = if with_time { format!(", about {} left", span(queue.left)) } else { String::new() };
    format!("{} queued{why}, {} running, {done} done, {failed} failed{left}", queue.queued, queue.running)
}

/// Progress of a campaign, on standard error: a bar on a terminal, a line a run elsewhere.
pub struct CampaignProgress {
    bar: ProgressBar,
    left: Countdown,
    /// Runs that failed and were not made since.
    failed: BTreeSet<String>,
}

impl CampaignProgress {
    pub fn new() -> Self {
        let left = Countdown::default();
        let bar = bar(0, "{elapsed} {wide_bar} {pos}/{len}  {left}  {msg}", |style| left.on(style));
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, left, failed: BTreeSet::new() }
    }

    /// Number of runs that failed and were not repeated since.
    pub fn failed(&self) -> usize {
        self.failed.len()
    }

    /// `ended` of `all` runs have been made, or failed.
    pub fn see(&mut self, event: &Progress<'_>, ended: usize, all: usize) {
        self.bar.set_length(all as u64);
        self.bar.set_position(ended as u64);
        match event {
            Progress::Failed { run, .. } => {
                self.failed.insert(run.name.clone());
            }
            Progress::End { run } | Progress::Again { run } => {
                self.failed.remove(&run.name);
            }
            _ => {}
        }
        let line = match event {
            Progress::Begin { run, left } => {
                self.left.set(*left);
                let what = run.setup.experiment.configuration();
                if self.bar.is_hidden() { format!("{what}, about {} left", span(*left)) } else { what }
            }
            Progress::Kept { run } => format!("{}: measured before", run.name),
            Progress::Waits { run } => format!("{}: waiting for its kernel", run.name),
            Progress::End { run } => format!("{}: done", run.name),
            Progress::Failed { run, cause } => format!("{}: FAILED: {cause}", run.name),
            Progress::Again { run } => format!("{}: being repeated", run.name),
            Progress::Note(sentence) => (*sentence).to_owned(),
            Progress::Queue(queue) => {
                self.left.set(queue.left);
                queued(queue, ended.saturating_sub(self.failed()), self.failed(), self.bar.is_hidden())
            }
        };
        if self.bar.is_hidden() {
            eprintln!("[{ended}/{all}] {line}");
        } else if matches!(event, Progress::Begin { .. } | Progress::Queue(_)) {
            self.bar.set_message(line);
        } else {
            self.bar.println(colour::for_stderr(&line));
        }
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
