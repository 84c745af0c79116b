//! What belongs together on the two sides.

use std::collections::{BTreeMap, BTreeSet};

use takt_report::{Collection, Run, clean};
use takt_rundir::{Measure, judged};

use crate::Error;

/// Runs that can be used, in the order in which they were made.
pub(crate) struct Sides<'a> {
    before: Vec<&'a Run>,
    after: Vec<&'a Run>,
    /// What was found and is not used, with the reason.
    pub left_out: Vec<String>,
}

/// Robot, values of what varies, and measure.
type Key = (String, Vec<Option<String>>, String);

/// Runs with the measure in question.
pub(crate) type Members<'a> = Vec<(&'a Run, &'a Measure)>;

/// One measure in one configuration.
pub(crate) struct Match<'a> {
    pub robot: String,
    pub configuration: String,
    /// Before and after.
    pub sides: [Members<'a>; 2],
    pub remarks: Vec<String>,
}

/// The settings that a run reports, by name.
type Facts = BTreeMap<String, String>;

impl<'a> Sides<'a> {
    /// Leaves out what proves nothing: runs without a whole seal, and those that are on both sides.
    pub fn of(before: &'a Collection, after: &'a Collection) -> Result<Self, Error> {
        let mut left_out: Vec<String> =
            before.gaps.iter().chain(&after.gaps).map(|gap| format!("{}: {}", gap.what, gap.why)).collect();
        let candidates = usable(after, "candidates", &[], &mut left_out)?;
        let hashes: Vec<String> = candidates.iter().filter_map(|run| run.dir.seal_hash()).collect();
        let baseline = usable(before, "baseline", &hashes, &mut left_out)?;
        Ok(Self { before: baseline, after: candidates, left_out })
    }

    fn all(&self) -> impl Iterator<Item = &&'a Run> {
        self.before.iter().chain(&self.after)
    }

    /// Facts of the machines that are not the same for all runs.
    pub fn machine_differences(&self) -> Vec<(String, Vec<String>)> {
        let mut facts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let first = &self.before[0].header.machine;
        for run in self.all() {
            for difference in first.differences(&run.header.machine) {
                let values = facts.entry(difference.fact).or_insert_with(|| vec![clean(&difference.before)]);
                let value = clean(&difference.after);
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
        facts.into_iter().collect()
    }

    /// Pairs measures and configurations; what has no partner is reported. A setting that is
    /// constant on each side is what the sides differ in, and names no configuration.
    pub fn matches(&self, measure: Option<&str>) -> Result<(Vec<Match<'a>>, Vec<String>), Error> {
        let sides = [&self.before, &self.after];
        let varying = varying(&[&self.before, &self.after]);
        let mut cells: BTreeMap<Key, [Members<'a>; 2]> = BTreeMap::new();
        for (index, side) in sides.iter().enumerate() {
            for run in side.iter() {
                let mut facts = facts(run);
                let key: Vec<Option<String>> = varying.iter().map(|name| facts.remove(name)).collect();
                for found in asked(run, measure) {
                    let key = (run.header.robot.clone(), key.clone(), found.name.clone());
                    cells.entry(key).or_default()[index].push((*run, found));
                }
            }
        }
        let (mut matches, mut unmatched) = (Vec::new(), Vec::new());
        for ((robot, key, name), sides) in cells {
            let words: Vec<String> = varying
                .iter()
                .zip(key)
                .filter_map(|(name, value)| Some(format!("{name} {}", value?)))
                .collect();
            let first = sides.iter().flatten().next().map(|(run, _)| run.header.label.as_str());
            let configuration = clean(&if words.is_empty() {
                first.unwrap_or_default().to_owned()
            } else {
                words.join(", ")
            });
            match sides.iter().position(Vec::is_empty) {
                Some(missing) => {
                    let there = ["in the new runs", "in the baseline"][missing];
                    unmatched.push(format!("{robot}, {configuration}: {name} is only {there}"));
                }
                None => {
                    same_definition(&name, &sides)?;
                    let remarks = deadlines(&sides).into_iter().collect();
                    matches.push(Match { robot, configuration, sides, remarks });
                }
            }
        }
        if !matches.is_empty() {
            return Ok((matches, unmatched));
        }
        let there: BTreeSet<&str> =
            self.all().flat_map(|run| run.header.measures.iter().map(|m| m.name.as_str())).collect();
        Err(match measure {
            Some(asked) if !there.contains(asked) => takt_report::Error::NoSuchMeasure {
                asked: asked.to_owned(),
                there: there.into_iter().collect::<Vec<_>>().join(", "),
            },
            _ => takt_report::Error::NothingInCommon { reason: unmatched.join("; ") },
        }
        .into())
    }
}

/// Runs whose reasons fit into a sentence.
const MOST_REASONS: usize = 3;

/// Runs of a side whose files are what they left, in the order in which they were made.
pub(crate) fn usable<'a>(
    collection: &'a Collection,
    side: &'static str,
    others: &[String],
    left_out: &mut Vec<String>,
) -> Result<Vec<&'a Run>, Error> {
    let found = collection.runs.len();
    let before = left_out.len();
    let mut runs = crate::in_order(collection);
    runs.retain(|run| {
        let why = match &run.seal {
            takt_rundir::SealState::Whole(hash) if others.contains(hash) => {
                Some("it is one of the new runs".to_owned())
            }
            takt_rundir::SealState::Whole(_) => None,
            seal => Some(seal.doubt_of(&run.header).unwrap_or_else(|| "it is not sealed".to_owned())),
        };
        left_out.extend(why.iter().map(|why| clean(&format!("{side} {}: {why}", run.name))));
        why.is_none()
    });
    if runs.is_empty() {
        let all = &left_out[before..];
        let mut reasons = all[..all.len().min(MOST_REASONS)].join("; ");
        if all.len() > MOST_REASONS {
            reasons.push_str(&format!("; and {} more", all.len() - MOST_REASONS));
        }
        return Err(Error::NoRuns { side, found, reasons });
    }
    Ok(runs)
}

/// Names of the settings that vary within any side.
pub(crate) fn varying(sides: &[&Vec<&Run>]) -> Vec<String> {
    let names: BTreeSet<String> =
        sides.iter().flat_map(|side| side.iter()).flat_map(|run| facts(run).into_keys()).collect();
    let varies = |name: &String| {
        let values =
            |side: &&Vec<&Run>| side.iter().map(|run| facts(run).remove(name)).collect::<BTreeSet<_>>();
        sides.iter().any(|side| values(side).len() > 1)
    };
    names.into_iter().filter(|name| varies(name)).collect()
}

/// What distinguishes runs: the factors of a campaign, or what a run on its own calls itself.
pub(crate) fn facts(run: &Run) -> Facts {
    let factors = &run.header.experiment.factors;
    if factors.is_empty() {
        return Facts::from([("label".to_owned(), run.header.label.clone())]);
    }
    factors.iter().map(|factor| (factor.name.clone(), factor.value.clone())).collect()
}

/// The measure that was asked for, or those that the run's verdict is about, or the main one.
pub(crate) fn asked<'a>(run: &'a Run, measure: Option<&str>) -> Vec<&'a Measure> {
    let measures = &run.header.measures;
    let mut found: Vec<&Measure> = match measure {
        Some(name) => measures.iter().filter(|m| m.name == name).take(1).collect(),
        None => judged(measures).into_iter().map(|index| &measures[index]).collect(),
    };
    if found.is_empty() && measure.is_none() {
        found.extend(measures.first());
    }
    // Only times: a share of anything else may have no meaning.
    found.retain(|m| m.column.ends_with("_ns"));
    found
}

/// A measure must be the same column in all runs.
fn same_definition(name: &str, sides: &[Vec<(&Run, &Measure)>; 2]) -> Result<(), Error> {
    let words = |m: &Measure| {
        let since = m.since_column.as_ref().map_or_else(String::new, |since| format!(" since {since}"));
        format!("{}:{}{since}", m.file, m.column)
    };
    let all: BTreeSet<String> = sides.iter().flatten().map(|(_, m)| words(m)).collect();
    let mut all = all.into_iter();
    match (all.next(), all.next()) {
        (Some(expected), Some(found)) => {
            Err(takt_report::Error::MixedMeasure { measure: name.to_owned(), expected, found }.into())
        }
        _ => Ok(()),
    }
}

fn deadlines(sides: &[Vec<(&Run, &Measure)>; 2]) -> Option<String> {
    let all: BTreeSet<Option<u64>> = sides.iter().flatten().map(|(_, m)| m.deadline_ns).collect();
    (all.len() > 1).then(|| "the deadlines differ, so that runs with misses do not compare".to_owned())
}
