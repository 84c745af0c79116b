//! Finding runs and putting together what belongs together: configurations over repetitions,
//! measures over runs.
//!
//! Nothing that was found is left out silently: what cannot be used becomes a [`Gap`] with its
//! reason.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use takt_rundir::{
    Experiment, Factor, HASHES_FILE, Measure, RUN_FILE, RunDir, RunHeader, SAMPLES_FOLDER, find_runs,
};

use crate::Error;
use crate::figure::Source;
use crate::plan::{self, Absent};
use crate::words::{clean, short_hash};

/// Whether a run's files are what the run left.
pub use takt_rundir::SealState as Seal;

/// A run that could be read.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its number in the report: `R1`.
    pub key: String,
    pub dir: RunDir,
    /// Name of the directory.
    pub name: String,
    /// Its header.
    pub header: RunHeader,
    /// Whether that can be believed.
    pub seal: Seal,
}

impl Run {
    /// Inputs of a verdict about it besides its series.
    pub(crate) fn verdict_source(&self) -> crate::verdict::Source<'_> {
        crate::verdict::Source { header: &self.header, doubt: self.seal.doubt_of(&self.header) }
    }

    /// The run as the origin of a figure.
    pub fn source(&self) -> Source {
        let hash = match &self.seal {
            Seal::Whole(hash) => short_hash(hash),
            Seal::Changed(files) => format!("changed since it was sealed: {}", clean(&files.join(", "))),
            Seal::Missing => "not sealed".to_owned(),
        };
        Source { key: self.key.clone(), name: self.name.clone(), hash }
    }

    /// Labels that a reader of figures from this run must know, a few words each.
    pub fn labels(&self) -> Vec<String> {
        let mut labels = Vec::new();
        match &self.seal {
            Seal::Whole(_) => {}
            Seal::Changed(files) => {
                labels.push(format!("files changed since the seal: {}", clean(&files.join(", "))))
            }
            Seal::Missing if self.header.finished_utc.is_none() => labels.push("unfinished".to_owned()),
            Seal::Missing => labels.push("not sealed".to_owned()),
        }
        if self.header.records_lost > 0 {
            labels.push(format!("{} records lost", self.header.records_lost));
        }
        let granted = self.header.not_granted.len();
        if granted > 0 {
            labels.push(counted(granted, "setting not granted", "settings not granted"));
        }
        if !self.header.problems.is_empty() {
            labels.push(counted(self.header.problems.len(), "problem", "problems"));
        }
        labels
    }
}

/// Something that was found and is not in the figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// A directory, or a measure of a run.
    pub what: String,
    /// Reason why it is left out.
    pub why: String,
}

/// Runs with the same settings.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The settings in which it differs from others of the report; what a run calls itself where
    /// there is no experiment.
    pub name: String,
    pub factors: Vec<Factor>,
    /// Numbers of its runs in [`Collection::runs`], in the order of repetitions.
    pub runs: Vec<usize>,
    /// Runs that were planned and are not there: name of the directory and why.
    pub absent: Vec<(String, String)>,
    robot: String,
    /// Actual or expected path of its first run: configurations are listed in the order of their
    /// directories.
    first: PathBuf,
}

/// A measure over all configurations that have it.
#[derive(Clone, Debug)]
pub struct Group {
    pub robot: String,
    /// Name of the measure.
    pub name: String,
    pub title: String,
    /// Number of the configuration and, for each of its runs with this measure, number of the run
    /// and the measure there.
    pub cells: Vec<(usize, Vec<(usize, Measure)>)>,
}

/// A fact of the machines that is not the same for all runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    pub name: String,
    /// Each value with the runs that have it.
    pub values: Vec<(String, Vec<String>)>,
}

/// Runs, grouped.
#[derive(Clone, Debug)]
pub struct Collection {
    /// The runs, in the order of their directories.
    pub runs: Vec<Run>,
    /// Items left out.
    pub gaps: Vec<Gap>,
    /// The configurations, in the order of their directories: a campaign numbers them in the order
    /// of its factors.
    pub configurations: Vec<Configuration>,
    /// The measures, main ones first.
    pub groups: Vec<Group>,
    /// Factors that have the same value in all runs.
    pub common: Vec<Factor>,
    /// Names of the other factors, in their order.
    pub varying: Vec<String>,
    /// Facts of the machines that differ.
    pub differing: Vec<Fact>,
}

/// Values that mean "without interference".
pub fn is_idle(value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    matches!(value.as_str(), "" | "off" | "none" | "no" | "idle" | "false" | "0")
}

/// Whether a factor is an interference, by its name.
pub(crate) fn is_interference(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last = name.rsplit('.').next().unwrap_or_default();
    ["stress", "noise", "load", "interference"].iter().any(|word| last.contains(word))
}

/// Finds, reads and groups the runs at `paths`: run directories, campaigns, folders of them.
///
/// # Errors
/// [`Error::RunDir`] where a path holds no run directory, [`Error::NothingReadable`] where none can
/// be read.
pub fn collect(paths: &[impl AsRef<Path>]) -> Result<Collection, Error> {
    let mut found: Vec<RunDir> = Vec::new();
    let mut gaps = Vec::new();
    let mut absent = Vec::new();
    for path in paths {
        let path = path.as_ref();
        found.extend(find_runs(path)?);
        search(path, 3, &mut gaps, &mut absent);
    }
    let mut seen = HashSet::new();
    found.retain(|dir| seen.insert(fs::canonicalize(dir.path()).unwrap_or_else(|_| dir.path().to_owned())));
    let total = found.len();
    let mut runs: Vec<Run> = Vec::new();
    for dir in found {
        let name = dir.path().file_name().map_or_else(
            || fs::canonicalize(dir.path()).map_or_else(|_| ".".into(), |p| p.display().to_string()),
            |name| name.to_string_lossy().into_owned(),
        );
        match dir.header() {
            Ok(header) => {
                let seal = dir.seal_state();
                runs.push(Run { key: format!("R{}", runs.len() + 1), name: clean(&name), header, seal, dir });
            }
            Err(error) => gaps
                .push(Gap { what: clean(&dir.path().display().to_string()), why: clean(&error.to_string()) }),
        }
    }
    if runs.is_empty() {
        let reasons: Vec<String> = gaps.iter().map(|g| g.why.clone()).collect();
        return Err(Error::NothingReadable { found: total, reasons: reasons.join("; ") });
    }
    Ok(group(runs, absent, gaps))
}

/// Looks for what is not a readable run: folders that look like runs and say nothing about
/// themselves, what a kill left beside the run that replaced it, planned runs that are not there.
fn search(path: &Path, depth: usize, gaps: &mut Vec<Gap>, absent: &mut Vec<Absent>) {
    if path.join(RUN_FILE).is_file() || depth == 0 {
        return;
    }
    match plan::absent(path) {
        Ok(runs) => absent.extend(runs),
        Err(why) => gaps.push(Gap { what: clean(&path.display().to_string()), why: clean(&why) }),
    }
    let Ok(entries) = fs::read_dir(path) else { return };
    let mut folders: Vec<PathBuf> =
        entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| p.is_dir()).collect();
    folders.sort();
    for folder in folders {
        let what = clean(&folder.display().to_string());
        if folder.extension().is_some_and(|e| e.to_string_lossy().starts_with("cut")) {
            gaps.push(Gap { what, why: "left by a killed run that was repeated".to_owned() });
        } else if !folder.join(RUN_FILE).is_file()
            && (folder.join(SAMPLES_FOLDER).is_dir() || folder.join(HASHES_FILE).is_file())
        {
            gaps.push(Gap { what, why: format!("looks like a run directory but has no {RUN_FILE}") });
        } else {
            search(&folder, depth - 1, gaps, absent);
        }
    }
}

/// Groups runs that were read.
pub(crate) fn group(runs: Vec<Run>, absent: Vec<Absent>, mut gaps: Vec<Gap>) -> Collection {
    let experiments =
        || runs.iter().map(|r| &r.header.experiment).chain(absent.iter().map(|a| &a.experiment));
    let campaigns = distinct(experiments().map(|e| e.campaign.as_str()));
    let robots =
        distinct(runs.iter().map(|r| r.header.robot.as_str()).chain(absent.iter().map(|a| a.robot.as_str())));
    // Every factor that any run has, with whether all runs have it with one value.
    let mut factors: Vec<&str> = Vec::new();
    for factor in experiments().flat_map(|e| &e.factors) {
        if !factors.contains(&factor.name.as_str()) {
            factors.push(&factor.name);
        }
    }
    let value = |e: &Experiment, name: &str| -> Option<String> {
        e.factors.iter().find(|f| f.name == name).map(|f| f.value.clone())
    };
    let (common, varying): (Vec<&str>, Vec<&str>) =
        factors.iter().partition(|name| distinct(experiments().map(|e| value(e, name))).len() == 1);
    let common: Vec<Factor> = common
        .iter()
        .filter_map(|name| {
            Some(Factor { name: (*name).to_owned(), value: value(&runs[0].header.experiment, name)? })
        })
        .collect();

    let mut configurations: Vec<Configuration> = Vec::new();
    let mut place = |robot: &str, e: &Experiment, path: &Path, own: &str| -> usize {
        let mut words: Vec<String> = Vec::new();
        if robots.len() > 1 {
            words.push(robot.to_owned());
        }
        if campaigns.len() > 1 && !e.campaign.is_empty() {
            words.push(e.campaign.clone());
        }
        words.extend(varying.iter().filter_map(|name| value(e, name).map(|value| format!("{name} {value}"))));
        if words.is_empty() || e.factors.is_empty() {
            words.push(own.to_owned());
        }
        let name = clean(&words.join(" · "));
        // Runs of an experiment with equal factors are repetitions. Runs on their own may differ in
        // settings that no factor reports, so that each stands alone.
        let alone = e.factors.is_empty() && e.repetition == 0;
        let same = |c: &Configuration| !alone && c.name == name && c.factors == e.factors && c.robot == robot;
        if let Some(there) = configurations.iter().position(same) {
            return there;
        }
        configurations.push(Configuration {
            name,
            factors: e.factors.clone(),
            runs: Vec::new(),
            absent: Vec::new(),
            robot: robot.to_owned(),
            first: path.to_owned(),
        });
        configurations.len() - 1
    };
    let mut members: Vec<(usize, usize)> = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        let own = if run.header.label.trim().is_empty() { &run.name } else { &run.header.label };
        members.push((place(&run.header.robot, &run.header.experiment, run.dir.path(), own), index));
    }
    let mut missing: Vec<(usize, String, String)> = Vec::new();
    for run in &absent {
        let name = run.path.file_name().map_or_else(String::new, |n| clean(&n.to_string_lossy()));
        let there = place(&run.robot, &run.experiment, &run.path, &name);
        gaps.push(Gap { what: clean(&run.path.display().to_string()), why: clean(&run.why) });
        missing.push((there, name, clean(&run.why)));
    }
    for (there, index) in members {
        configurations[there].runs.push(index);
    }
    for (there, name, why) in missing {
        configurations[there].absent.push((name, why));
    }
    if !absent.is_empty() {
        configurations.sort_by(|a, b| a.first.cmp(&b.first));
    }
    for configuration in &mut configurations {
        configuration.runs.sort_by_key(|&run| runs[run].header.experiment.repetition);
    }
    disambiguate(&mut configurations, &runs);
    let groups = groups(&runs, &configurations, &mut gaps);
    let differing = differing(&runs);
    let varying = varying.into_iter().map(str::to_owned).collect();
    Collection { runs, gaps, configurations, groups, common, varying, differing }
}

/// Two configurations never share a name: the directory's is added.
fn disambiguate(configurations: &mut [Configuration], runs: &[Run]) {
    let names: Vec<String> = configurations.iter().map(|c| c.name.clone()).collect();
    for (index, configuration) in configurations.iter_mut().enumerate() {
        if names.iter().enumerate().any(|(other, name)| other != index && *name == configuration.name) {
            let own = match configuration.runs.first() {
                Some(run) => format!("{} {}", runs[*run].key, runs[*run].name),
                None => configuration.first.display().to_string(),
            };
            configuration.name = clean(&format!("{} · {own}", configuration.name));
        }
    }
}

/// Definition of a measure: the source of its numbers.
pub(crate) fn definition(measure: &Measure) -> String {
    match &measure.since_column {
        Some(since) => format!("{}:{} since {since}", measure.file, measure.column),
        None => format!("{}:{}", measure.file, measure.column),
    }
}

fn groups(runs: &[Run], configurations: &[Configuration], gaps: &mut Vec<Gap>) -> Vec<Group> {
    let mut groups: Vec<(Group, String)> = Vec::new();
    for (number, configuration) in configurations.iter().enumerate() {
        for &index in &configuration.runs {
            let run = &runs[index];
            if run.header.measures.is_empty() {
                gaps.push(Gap {
                    what: format!("{} {}", run.key, run.name),
                    why: "it reports no measure".to_owned(),
                });
            }
            let mut gap = |measure: &Measure, why: String| {
                gaps.push(Gap {
                    what: clean(&format!("{} {}: {}", run.key, run.name, measure.name)),
                    why: clean(&why),
                });
            };
            for measure in &run.header.measures {
                if !measure.column.ends_with("_ns") {
                    gap(
                        measure,
                        format!("column {} is not in nanoseconds (its name must end in _ns)", measure.column),
                    );
                    continue;
                }
                let place =
                    groups.iter().position(|(g, _)| g.robot == run.header.robot && g.name == measure.name);
                let place = place.unwrap_or_else(|| {
                    let group = Group {
                        robot: run.header.robot.clone(),
                        name: measure.name.clone(),
                        title: clean(&measure.title),
                        cells: Vec::new(),
                    };
                    groups.push((group, definition(measure)));
                    groups.len() - 1
                });
                let (group, defined) = &mut groups[place];
                if *defined != definition(measure) {
                    let why = format!(
                        "it is {} here but {defined} in other runs: not combined",
                        definition(measure)
                    );
                    gap(measure, why);
                    continue;
                }
                match group.cells.last_mut() {
                    Some((last, known)) if *last == number => {
                        if known.iter().any(|(other, _)| *other == index) {
                            gap(measure, "the run reports this measure twice".to_owned());
                        } else {
                            known.push((index, measure.clone()));
                        }
                    }
                    _ => group.cells.push((number, vec![(index, measure.clone())])),
                }
            }
        }
    }
    let mut groups: Vec<Group> = groups.into_iter().map(|(group, _)| group).collect();
    // A configuration without a run has its row in the tables too, which says why it is empty.
    for group in &mut groups {
        let empty = |c: &Configuration| c.runs.is_empty() && c.robot == group.robot;
        let rows = configurations
            .iter()
            .enumerate()
            .filter(|(_, c)| empty(c))
            .map(|(number, _)| (number, Vec::new()));
        group.cells.extend(rows.collect::<Vec<_>>());
        group.cells.sort_by_key(|(configuration, _)| *configuration);
    }
    groups
}

/// A number of things, with their name.
fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

fn differing(runs: &[Run]) -> Vec<Fact> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for run in &runs[1..] {
        for difference in runs[0].header.machine.differences(&run.header.machine) {
            names.insert(difference.fact, difference.before);
        }
    }
    names
        .into_iter()
        .map(|(name, first)| {
            let mut values: Vec<(String, Vec<String>)> = vec![(clean(&first), vec![runs[0].key.clone()])];
            for run in &runs[1..] {
                let value = runs[0]
                    .header
                    .machine
                    .differences(&run.header.machine)
                    .into_iter()
                    .find(|d| d.fact == name)
                    .map_or_else(|| first.clone(), |d| d.after);
                let value = clean(&value);
                match values.iter_mut().find(|(v, _)| *v == value) {
                    Some((_, keys)) => keys.push(run.key.clone()),
                    None => values.push((value, vec![run.key.clone()])),
                }
            }
            Fact { name, values }
        })
        .collect()
}
