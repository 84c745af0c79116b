//! The table of a campaign: a row per configuration, whatever became of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use takt_report::Figures;
use takt_rundir::{FactDifference, Factor, Loss, RunDir, RunHeader};
use takt_stats::{Summary, Verdict};

use super::engine::Campaign;
use super::plan::CellRun;
use super::stress::{self, StressComparison};
use crate::LabError;
use crate::questions::{Answer, Point, Questions};
use crate::robot::Scaled;

/// A configuration over its repetitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The factors and their values.
    pub factors: Vec<Factor>,
    /// Repetitions measured.
    pub measured: u32,
    /// Repetitions planned.
    pub planned: u32,
    /// Name of the measure; the first of the robot's.
    pub measure: String,
    /// Its values over all repetitions, microseconds; null where nothing was measured, as all
    /// figures.
    pub us: Summary,
    /// Means of the repetitions: least and greatest, microseconds.
    pub mean_range_us: Option<[f64; 2]>,
    /// Maxima of the repetitions: least and greatest, microseconds.
    pub max_range_us: Option<[f64; 2]>,
    /// Deadline, microseconds.
    pub deadline_us: Option<f64>,
    /// Values beyond the deadline, and those that were skipped or dropped; of the measure that the
    /// verdict is about, where the main one has no deadline.
    pub misses: Option<u64>,
    /// Of these, the skipped releases, and inputs that were dropped or unanswered. Mean to maximum
    /// are of the others.
    #[serde(default, rename = "never")]
    pub skipped: Option<u64>,
    /// Longest row of misses in one repetition.
    pub longest_miss_run: Option<u64>,
    /// The verdict on all repetitions together, as reports have it.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// The verdict in one sentence.
    #[serde(default)]
    pub sentence: Option<String>,
    /// Single figures: means over the repetitions that report them, units in the names.
    pub figures: BTreeMap<String, f64>,
    /// The work of the stressors: means over the repetitions, units in the names; none without
    /// stress.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stress_work: BTreeMap<String, f64>,
    /// Greatest share of the processor time that the hypervisor took in one repetition.
    pub stolen: Option<f64>,
    pub records_lost: Option<u64>,
    /// Losses on the robot's wires over all repetitions, with the limits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Loss>,
    /// Settings asked for and not granted.
    pub not_granted: Vec<String>,
    /// Problems with the name of the run: runs that failed, tools that died.
    pub problems: Vec<String>,
    /// The run directories.
    pub run_dirs: Vec<String>,
    /// The cluster's nodes that made them, one for each; empty where they were made on this
    /// machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node: Vec<String>,
    /// The scheduler's jobs that made them, one for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job: Vec<String>,
}

impl Row {
    /// Value of a factor.
    pub fn factor(&self, name: &str) -> Option<&str> {
        self.factors.iter().find(|f| f.name == name).map(|f| f.value.as_str())
    }

    fn add(&mut self, dir: RunDir, runs: &mut Vec<(RunHeader, RunDir)>) -> Result<(), LabError> {
        let header = dir.header()?;
        if let Some(measure) = header.measures.first() {
            if !self.measure.is_empty() && self.measure != measure.name {
                let found = format!("main measure \"{}\"", measure.name);
                return Err(LabError::damaged(dir.path(), found, "the measure that the other runs report"));
            }
            let one = Figures::read(&dir, measure)?.summary.over(1e3);
            self.measure.clone_from(&measure.name);
            self.deadline_us = measure.deadline_ns.map(|ns| ns as f64 / 1e3);
            if one.count > 0 {
                widen(&mut self.mean_range_us, one.mean);
                widen(&mut self.max_range_us, one.worst);
            }
        }
        self.measured += 1;
        self.stolen = Some(self.stolen.map_or(header.cpu.stolen, |before| before.max(header.cpu.stolen)));
        self.records_lost = Some(self.records_lost.unwrap_or(0) + header.records_lost);
        Loss::add_all(&mut self.losses, &header.losses);
        self.not_granted.extend(header.not_granted.iter().cloned());
        self.run_dirs.push(dir.path().display().to_string());
        if let Some(place) = &header.experiment.place {
            self.node.push(place.node.clone());
            self.job.push(place.job.clone());
        }
        runs.push((header, dir));
        Ok(())
    }

    /// Figures and verdict of all repetitions together, by the reports' own way.
    fn conclude(&mut self, runs: &[(RunHeader, RunDir)]) -> Result<(), LabError> {
        let mut reported: BTreeMap<&String, (f64, u32)> = BTreeMap::new();
        for (name, value) in runs.iter().flat_map(|(header, _)| &header.figures) {
            let (sum, count) = reported.entry(name).or_default();
            *sum += value;
            *count += 1;
        }
        let mean = |(name, (sum, count)): (&String, (f64, u32))| (name.clone(), sum / f64::from(count));
        self.figures = reported.into_iter().map(mean).collect();
        self.stress_work = stress::mean_work(runs.iter().map(|(header, _)| header));
        let Some(all) = takt_report::verdict::of_runs(runs)? else { return Ok(()) };
        self.us = all.main.summary().over(1e3);
        if let Some(report) = all.report {
            let [misses, longest_run] = all.missed;
            if self.us.count > 0 || all.main.skipped() > 0 {
                (self.misses, self.longest_miss_run) = (Some(misses), Some(longest_run));
            }
            (self.verdict, self.sentence) = (Some(report.verdict), Some(report.sentence()));
        }
        self.skipped = Some(all.main.skipped());
        Ok(())
    }
}

fn widen(range: &mut Option<[f64; 2]>, value: f64) {
    let [low, high] = range.unwrap_or([value; 2]);
    *range = Some([low.min(value), high.max(value)]);
}

/// The table of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Name of the campaign.
    pub campaign: String,
    pub robot: String,
    /// A row per configuration, in the order of the factors' values.
    pub rows: Vec<Row>,
    /// Facts in which the machine was not the same for all runs, beyond what a factor varies.
    /// Figures on both sides of such a difference are not comparable.
    pub machine_differences: Vec<FactDifference>,
    /// Blocks whose runs were not all made on one node, a sentence each: within these, nodes are
    /// noise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub split_blocks: Vec<String>,
    /// The campaign's folder.
    pub dir: String,
    /// Reductions common to all runs because this machine cannot carry the full load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled: Option<Scaled>,
    /// The same in a sentence: what was left out, with which models, by which rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_sentence: Option<String>,
    /// Work of the stressors on each kernel, if kernels were compared under stress. Rows whose
    /// stressors did different amounts of work are not comparable, and list this among their
    /// problems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stress_work: Vec<StressComparison>,
    /// The questions of the paper that the campaign reproduces, answered from the rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Answer>,
}

impl Table {
    pub(super) fn of(campaign: &Campaign, failures: &BTreeMap<String, String>) -> Result<Self, LabError> {
        let plan = campaign.plan();
        let mut first: Option<RunHeader> = None;
        let mut differences: Vec<FactDifference> = Vec::new();
        let mut rows = Vec::new();
        let mut blocks: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (factors, runs) in plan.configurations() {
            let mut row = Row { factors, planned: runs.len() as u32, ..Row::default() };
            let mut read = Vec::new();
            for run in runs {
                if !add(campaign, run, failures, &mut row, &mut read) {
                    continue;
                }
                let Some((header, _)) = read.last() else { continue };
                if let Some(place) = &header.experiment.place {
                    blocks.entry(place.block.clone()).or_default().insert(place.node.clone());
                }
                let before = first.get_or_insert_with(|| header.clone());
                let (before, after) = ((&before.machine, &*before.takt), (&header.machine, &*header.takt));
                for difference in campaign.unplanned(before, after) {
                    if !differences.contains(&difference) {
                        differences.push(difference);
                    }
                }
            }
            row.conclude(&read)?;
            row.not_granted.sort();
            row.not_granted.dedup();
            rows.push(row);
        }
        let stress_work = stress::compare(&mut rows);
        let questions = questions(campaign).map_or_else(Vec::new, |answers| answers(&points(&rows)));
        Ok(Self {
            scaled: plan.scaled.clone(),
            scaled_sentence: plan.scaled.as_ref().and_then(|scaled| campaign.kind()?.scaled_text?(scaled)),
            questions,
            stress_work,
            campaign: plan.file.name.clone(),
            robot: plan.robot.clone(),
            rows,
            machine_differences: differences,
            split_blocks: split(&blocks),
            dir: campaign.path().display().to_string(),
        })
    }
}

/// Blocks that are not of one node, a sentence each.
fn split(blocks: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let split = blocks.iter().filter(|(_, nodes)| nodes.len() > 1);
    split
        .map(|(block, nodes)| {
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            format!("block {block} was made on {}", nodes.join(" and "))
        })
        .collect()
}

/// Answers to the robot's questions about policies under noise, if both were varied.
fn questions(campaign: &Campaign) -> Option<Questions> {
    let varies = |name: &str| campaign.plan().file.factors.iter().any(|factor| factor.name == name);
    campaign.kind()?.questions.filter(|_| varies("policy") && varies("noise"))
}

/// The rows as the questions want them.
fn points(rows: &[Row]) -> Vec<Point> {
    let point = |row: &Row| {
        Some(Point {
            policy: row.factor("policy")?.to_owned(),
            noise: row.factor("noise")?.parse().ok()?,
            kernel: row.factor("kernel").unwrap_or_default().to_owned(),
            count: row.us.count,
            skipped: row.skipped.unwrap_or(0),
            misses: row.misses.unwrap_or(0),
            mean_ms: row.us.mean / 1e3,
            worst_ms: row.us.worst / 1e3,
            stddev_ms: row.us.stddev / 1e3,
            p99_ms: row.us.p99 / 1e3,
        })
    };
    rows.iter().filter_map(point).filter(|point| point.count > 0).collect()
}

/// Adds a run, whatever became of it; whether its figures are there.
fn add(
    campaign: &Campaign,
    run: &CellRun,
    failures: &BTreeMap<String, String>,
    row: &mut Row,
    read: &mut Vec<(RunHeader, RunDir)>,
) -> bool {
    let dir = RunDir::open(&campaign.path().join(&run.name)).ok().filter(RunDir::is_complete);
    let Some(dir) = dir else {
        row.problems.push(match failures.get(&run.name) {
            Some(cause) => format!("{}: failed: {cause}", run.name),
            None => format!("{}: not measured yet", run.name),
        });
        return false;
    };
    if let Some(doubt) = dir.seal_state().doubt() {
        row.problems.push(format!("{}: left out, because it proves nothing: {doubt}", run.name));
        return false;
    }
    if let Err(error) = row.add(dir, read) {
        row.problems.push(format!("{}: {error}", run.name));
        return false;
    }
    let problems = read.iter().rev().take(1).flat_map(|(header, _)| &header.problems);
    row.problems.extend(problems.map(|problem| format!("{}: {problem}", run.name)));
    true
}
