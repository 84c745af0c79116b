//! Common header of every run, whatever the robot: the part of `run.json` that reports, comparisons
//! and exports read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use takt_rt::procfs::CpuShare;
use takt_stats::VerdictConfig;

use crate::dir::utc_now;
use crate::error::HeaderError;
use crate::loss::Loss;
use crate::machine::Machine;

/// Version of the layout of run directories. 1 had CSV samples and no measures.
pub const FORMAT: u32 = 2;

/// A factor of an experiment and the value that it has in a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Factor {
    /// Name, as the campaign spells it: `policy`, `stress`, `attitude.rate_hz`.
    pub name: String,
    /// Value, as text: `fifo:80`.
    pub value: String,
}

/// Position of a run in an experiment. Empty for a run on its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Experiment {
    /// Name of the campaign; empty for none.
    pub campaign: String,
    /// The paper whose experiment it is, by the robot's name for it; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub paper: String,
    /// The factors in the campaign's order: together they name the configuration.
    pub factors: Vec<Factor>,
    /// Repetition, from 1; 0 for a run on its own.
    pub repetition: u32,
    /// Place that a cluster's scheduler gave the run; absent for other runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<ClusterPlace>,
}

/// Place that a cluster's scheduler gave a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterPlace {
    /// The node, by the scheduler's name for it.
    pub node: String,
    /// The job, as the scheduler's commands take it: `1234_5` for task 5 of an array of Slurm.
    pub job: String,
    /// The block of the campaign: runs that belong on one node, in random order, so that nodes are
    /// a factor and not noise.
    pub block: String,
}

impl Experiment {
    /// The configuration in one line: `policy fifo:80, stress uav`; empty for a run on its own.
    pub fn configuration(&self) -> String {
        let words: Vec<String> = self.factors.iter().map(|f| format!("{} {}", f.name, f.value)).collect();
        words.join(", ")
    }
}

/// A series of times that a run measured, and where its samples lie. The first measure of a run is
/// its main one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Short name, equal for equal things in different runs: `lateness`, `reaction`, `latency`.
    pub name: String,
    /// For people: "Wake-up lateness of the attitude loop".
    pub title: String,
    /// Name of the sample file, without folder and extension.
    pub file: String,
    /// Column of the values. Its name ends in `_ns`: all measures are integer nanoseconds.
    pub column: String,
    /// The column from which the value counts, if it is the time from one column to another
    /// (`wake_ns` since `planned_ns` is the lateness). A value that would be negative counts as 0.
    #[serde(default)]
    pub since_column: Option<String>,
    /// Column of the time of each sample (CLOCK_MONOTONIC nanoseconds), for time series.
    pub time_column: Option<String>,
    /// Only samples whose time lies within `[from, to)` count; all when absent.
    pub window_ns: Option<[u64; 2]>,
    /// Measured part of the window of a run that was killed and resumed, without the time in
    /// between. The whole window when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_ns: Option<u64>,
    /// A value above this is a miss.
    pub deadline_ns: Option<u64>,
    /// Samples per second when nothing is late: what makes an exceedance probability one per hour.
    pub rate_hz: Option<f64>,
    /// Samples that are missing and count as misses: skipped releases, frames dropped or
    /// unanswered. `never` in files.
    #[serde(default, rename = "never")]
    pub skipped: u64,
    /// Longest row of misses on the release grid, those included that were skipped or dropped;
    /// absent where the samples have no grid, or nobody counted along it: then only the values that
    /// came report rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_miss_run: Option<u64>,
    /// File of a streaming recorder, in the run directory, that saw every value where the sample
    /// file keeps only the first ones (long runs).
    pub recorder: Option<String>,
    /// Whether the run's verdict needs this measure to keep its deadline. If no measure is marked
    /// so, the verdict is about the first one that has a deadline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub judged: bool,
    /// Reason why its misses do not count against the run: it was given up in a declared order so
    /// that others could be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excused: Option<String>,
    /// Plural name of its samples for sentences: "reactions", "edges". "jobs" when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl Measure {
    /// The measure `name` of sample file `file`: `column`, as it is, of every sample.
    pub fn new(name: &str, title: &str, file: &str, column: &str) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            file: file.to_owned(),
            column: column.to_owned(),
            since_column: None,
            time_column: None,
            window_ns: None,
            measured_ns: None,
            deadline_ns: None,
            rate_hz: None,
            skipped: 0,
            longest_miss_run: None,
            recorder: None,
            judged: false,
            excused: None,
            unit: None,
        }
    }

    /// Counted from `column`, which is also the time of the sample.
    #[must_use]
    pub fn since(mut self, column: &str) -> Self {
        self.since_column = Some(column.to_owned());
        self.time_column = Some(column.to_owned());
        self
    }

    #[must_use]
    pub fn deadline_ns(mut self, deadline_ns: u64) -> Self {
        self.deadline_ns = Some(deadline_ns);
        self
    }

    /// Its samples by their name, plural.
    #[must_use]
    pub fn unit(mut self, unit: &str) -> Self {
        self.unit = Some(unit.to_owned());
        self
    }

    /// Needed for the run's verdict.
    #[must_use]
    pub fn judged(mut self) -> Self {
        self.judged = true;
        self
    }

    #[must_use]
    pub fn rate_hz(mut self, rate_hz: f64) -> Self {
        self.rate_hz = Some(rate_hz);
        self
    }
}

/// The measures that a run's verdict is about, with their places: those that say so, or else the
/// first with a deadline.
pub fn judged(measures: &[Measure]) -> Vec<usize> {
    let with = |pick: &dyn Fn(&Measure) -> bool| -> Vec<usize> {
        measures.iter().enumerate().filter(|(_, measure)| pick(measure)).map(|(index, _)| index).collect()
    };
    let message = with(&|measure| measure.judged && measure.deadline_ns.is_some());
    if !message.is_empty() {
        return message;
    }
    let mut first = with(&|measure| measure.deadline_ns.is_some());
    first.truncate(1);
    first
}

/// A part of the measured window under a condition of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Name of the condition: `high load`.
    pub name: String,
    /// From when, CLOCK_MONOTONIC nanoseconds.
    pub from_ns: u64,
    /// Until when, without.
    pub to_ns: u64,
}

/// Common header of every run. Other keys of `run.json` belong to the robot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunHeader {
    /// [`FORMAT`] when it was written.
    pub format: u32,
    /// Version of takt.
    pub takt: String,
    /// The robot: `cell`, `uav`, `daq`, `cyclic`.
    pub robot: String,
    /// The run in a few words, for people: "fifo:80, stress uav".
    pub label: String,
    /// Its position in an experiment.
    #[serde(default)]
    pub experiment: Experiment,
    /// When it began, RFC 3339.
    pub started_utc: String,
    /// When it ended; absent while it runs and after a kill.
    pub finished_utc: Option<String>,
    pub machine: Machine,
    /// Use of the processor time in the measured window.
    #[serde(default)]
    pub cpu: CpuShare,
    /// Settings that were asked for and not granted, a sentence each.
    #[serde(default)]
    pub not_granted: Vec<String>,
    /// Problems that did not end the run, one sentence each.
    #[serde(default)]
    pub problems: Vec<String>,
    /// Proof that the asked interference was running; null without interference.
    #[serde(default)]
    pub load: serde_json::Value,
    /// Records lost on their way to the samples.
    #[serde(default)]
    pub records_lost: u64,
    pub measures: Vec<Measure>,
    /// Parts of the measured window whose conditions differed by intent, in order; none where all
    /// of it was alike. A figure `name@phase` belongs to one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// Part of the configuration that was not run because this machine cannot carry it, with the
    /// rule and the models: one sentence. Absent if everything is run as configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled: Option<String>,
    /// Single figures of the run, units in the names: `position_rms_m`.
    #[serde(default)]
    pub figures: BTreeMap<String, f64>,
    /// Work that the run did. A comparison shows it, and calls no side better that did less.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<Work>,
    /// Processor counters of the robot's critical thread in its own code over the measured window,
    /// or the reason why they are not available.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<Counter>,
    /// Losses between the run's computers, sensors and drives, with the limits; also listed if
    /// nothing was lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Loss>,
    /// Reasons for which the run fails whatever its measures show, one sentence each: a lost link,
    /// a robot that did not obey, missing frames. Part of the one verdict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// Reasons that keep the run from a PASS although nothing was missed, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// Claims of the robot's file about its measures; the verdict judges them.
    #[serde(default, skip_serializing_if = "VerdictConfig::is_default")]
    pub verdict: VerdictConfig,
    /// The run ended by a condition of its own (a number of jobs, a threshold) before its time, so
    /// that more of `--seconds` makes it no longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_end: bool,
}

impl RunHeader {
    /// Of a run that begins now on this machine, and has measured nothing yet.
    #[must_use]
    pub fn new(robot: &str, label: &str) -> Self {
        Self {
            format: FORMAT,
            takt: env!("CARGO_PKG_VERSION").to_owned(),
            robot: robot.to_owned(),
            label: label.to_owned(),
            experiment: Experiment::default(),
            started_utc: utc_now(),
            finished_utc: None,
            machine: Machine::read(),
            cpu: CpuShare::default(),
            not_granted: Vec::new(),
            problems: Vec::new(),
            load: serde_json::Value::Null,
            records_lost: 0,
            measures: Vec::new(),
            phases: Vec::new(),
            scaled: None,
            figures: BTreeMap::new(),
            work: Vec::new(),
            counters: Vec::new(),
            losses: Vec::new(),
            failures: Vec::new(),
            doubts: Vec::new(),
            verdict: VerdictConfig::default(),
            own_end: false,
        }
    }

    /// Makes the measures that the robot's file claims something of needed for the verdict, beside
    /// those that are anyway.
    ///
    /// # Errors
    /// A measure that this robot has not, or that has no deadline to miss.
    pub fn judge_claims(&mut self) -> Result<(), HeaderError> {
        check_claims(&self.verdict, &self.measures)?;
        let anyway = judged(&self.measures);
        for measure in &mut self.measures {
            measure.judged |= self.verdict.measures.contains_key(&measure.name);
        }
        if !self.verdict.measures.is_empty() {
            anyway.into_iter().for_each(|index| self.measures[index].judged = true);
        }
        Ok(())
    }

    /// Refuses claims and rates that cannot be meant: whoever changed the file could state one that
    /// any run keeps.
    ///
    /// # Errors
    /// The first such claim or rate.
    pub fn validate(&self) -> Result<(), HeaderError> {
        self.verdict.validate()?;
        for measure in &self.measures {
            if let Some(rate_hz) = measure.rate_hz.filter(|rate_hz| !(*rate_hz >= 0.0 && rate_hz.is_finite()))
            {
                return Err(HeaderError::Rate { measure: measure.name.clone(), rate_hz });
            }
        }
        Ok(())
    }

    /// Losses within the limits, one sentence each: shown next to a verdict without influencing it.
    pub fn loss_notes(&self) -> Vec<String> {
        self.losses.iter().filter(|loss| !loss.is_exceeded()).filter_map(Loss::sentence).collect()
    }
}

/// Refuses claims about measures that are not there, or that have no deadline.
///
/// # Errors
/// The first such claim.
pub fn check_claims(verdict: &VerdictConfig, measures: &[Measure]) -> Result<(), HeaderError> {
    for name in verdict.measures.keys() {
        match measures.iter().find(|measure| measure.name == *name) {
            Some(measure) if measure.deadline_ns.is_some() => {}
            Some(_) => return Err(HeaderError::NoDeadline { measure: name.clone() }),
            None => {
                let with = measures.iter().filter(|measure| measure.deadline_ns.is_some());
                let accepted = with.map(|measure| measure.name.clone()).collect();
                return Err(HeaderError::NoMeasure { measure: name.clone(), accepted });
            }
        }
    }
    Ok(())
}

/// One kind of work that a run did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Short name: `frames_judged`.
    pub name: String,
    /// For people, plural: "frames judged".
    pub title: String,
    /// Amount over the measured window.
    pub count: u64,
    /// Difference (a share) up to which the work counts as the same; the robot knows the reason.
    pub tolerance: f64,
}

/// Something that the processor counts: cycles, instructions, cache misses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// Short name: `llc_misses`.
    pub name: String,
    /// For people, plural.
    pub title: String,
    /// Name of the thread.
    pub thread: String,
    /// The count; null where it is not available here.
    pub count: Option<u64>,
    /// Reason why it is not available here; null if it is.
    pub missing: Option<String>,
}
