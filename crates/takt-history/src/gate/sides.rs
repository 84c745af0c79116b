//! Matches the runs of the two sides.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use takt_report::{Collection, Run, clean};
use takt_rundir::{Measure, judged};

use crate::gate::Error;

/// Runs that can be used, in the order in which they were made.
pub(crate) struct Sides<'a> {
    before: Vec<&'a Run>,
    after: Vec<&'a Run>,
    /// Items found but not used, with the reason.
    pub left_out: Vec<String>,
    /// Runs that should be in the figures and are not, or that failed, by side and name.
    lost: [BTreeSet<String>; 2],
    /// All runs that should be, by side.
    expected: [usize; 2],
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
    /// Whether all have one deadline, so that misses compare.
    pub is_one_deadline: bool,
}

/// The settings that a run reports, by name.
type Facts = BTreeMap<String, String>;

impl<'a> Sides<'a> {
    /// Leaves out what proves nothing: runs without a whole seal, and those that are on both sides.
    pub fn of(before: &'a Collection, after: &'a Collection) -> Result<Self, Error> {
        let mut left_out: Vec<String> =
            before.gaps.iter().chain(&after.gaps).map(|gap| format!("{}: {}", gap.what, gap.why)).collect();
        let mut new = usable(after, "candidates", &HashSet::new(), &mut left_out)?;
        let hashes: HashSet<&str> = new.runs.iter().filter_map(|run| seal_of(run)).collect();
        let mut old = usable(before, "baseline", &hashes, &mut left_out)?;
        for (usable, collection) in [(&mut old, before), (&mut new, after)] {
            let by_key: HashMap<&str, &Run> =
                collection.runs.iter().map(|run| (run.key.as_str(), run)).collect();
            let gone = collection.gaps.iter().filter(|gap| is_run(&gap.what, &by_key));
            usable.lost.extend(gone.map(|gap| gap.what.clone()));
            let failed = usable.runs.iter().filter(|run| !run.header.failures.is_empty());
            usable.lost.extend(failed.map(|run| name_of(run)));
        }
        let expected = [&old, &new].map(|side| {
            let there: BTreeSet<String> = side.runs.iter().map(|run| name_of(run)).collect();
            side.lost.union(&there).count()
        });
        for (side, usable) in [("baseline", &old), ("candidates", &new)] {
            left_out.extend(usable.runs.iter().filter_map(|run| {
                let failure = run.header.failures.first()?;
                Some(clean(&format!(
                    "{side} {}: it failed but is included in the figures: {failure}",
                    run.name
                )))
            }));
        }
        Ok(Self { before: old.runs, after: new.runs, left_out, lost: [old.lost, new.lost], expected })
    }

    /// Leaves a run out of the figures that are judged.
    pub fn lose(&mut self, side: usize, run: &Run, measure: &str, why: &str) {
        self.lost[side].insert(name_of(run));
        let side = ["baseline", "candidates"][side];
        self.left_out.push(clean(&format!("{side} {}: {measure}: {why}", run.name)));
    }

    /// Runs of each side that failed, or are not in the figures though they should be, and of how
    /// many.
    pub fn lost(&self) -> [(usize, usize); 2] {
        [0, 1].map(|side| (self.lost[side].len(), self.expected[side]))
    }

    /// Settings that are one on each side, and not the same: what is compared beside the builds.
    pub fn setting_differences(&self) -> Vec<(String, Vec<String>)> {
        let settings = |runs: &[&Run]| -> BTreeMap<String, BTreeSet<String>> {
            let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for run in runs {
                let rates = run.header.measures.iter().filter_map(|measure| {
                    Some((
                        format!("rate of {}", measure.name),
                        format!("{} Hz", takt_report::short(measure.rate_hz?)),
                    ))
                });
                for (name, value) in facts(run).into_iter().chain(rates) {
                    all.entry(clean(&name)).or_default().insert(clean(&value));
                }
            }
            all
        };
        let (before, after) = (settings(&self.before), settings(&self.after));
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let value = |side: &BTreeMap<String, BTreeSet<String>>, name: &String| {
            let values = side.get(name).map(|values| values.iter().cloned().collect::<Vec<_>>().join(", "));
            values.unwrap_or_else(|| "not reported".to_owned())
        };
        let is_one = |side: &BTreeMap<String, BTreeSet<String>>, name: &String| {
            side.get(name).is_none_or(|v| v.len() == 1)
        };
        names
            .into_iter()
            .filter(|name| is_one(&before, name) && is_one(&after, name))
            .map(|name| (name.clone(), vec![value(&before, name), value(&after, name)]))
            .filter(|(_, values)| values[0] != values[1])
            .collect()
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
    pub fn matches(&mut self, measure: Option<&str>) -> Result<(Vec<Match<'a>>, Vec<Unmatched>), Error> {
        // Robots that measure it: their runs should.
        let robots: BTreeSet<&str> = self
            .all()
            .filter(|run| !asked(run, measure).is_empty())
            .map(|run| run.header.robot.as_str())
            .collect();
        for side in 0..2 {
            let all = [&self.before, &self.after];
            let lacks =
                |run: &&&Run| asked(run, measure).is_empty() && robots.contains(run.header.robot.as_str());
            let without: Vec<&Run> = all[side].iter().filter(lacks).copied().collect();
            without
                .into_iter()
                .for_each(|run| self.lose(side, run, measure.unwrap_or("measures"), "it reports none"));
        }
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
        for (side, run, name) in partial(&cells) {
            self.lose(
                side,
                run,
                &name,
                "it reports other measures, but other runs of its configuration report this one",
            );
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
                    let words = clean(&format!("{robot}, {configuration}: {name} exists only {there}"));
                    unmatched.push(Unmatched { words, is_gone: missing == 1 });
                }
                None => {
                    same_definition(&name, &sides)?;
                    let remarks: Vec<String> = deadlines(&sides).into_iter().collect();
                    let is_one_deadline = remarks.is_empty();
                    matches.push(Match { robot, configuration, sides, remarks, is_one_deadline });
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
            _ => {
                let words: Vec<String> = unmatched.into_iter().map(|unmatched| unmatched.words).collect();
                takt_report::Error::NothingInCommon { reason: words.join("; ") }
            }
        }
        .into())
    }
}

/// Runs that lack a measure which others of their side and configuration have, where both sides
/// have it: by side, with the measure.
fn partial<'a>(cells: &BTreeMap<Key, [Members<'a>; 2]>) -> Vec<(usize, &'a Run, String)> {
    let mut lacking = Vec::new();
    for side in 0..2 {
        // Each once, however many measures it has.
        let mut groups: BTreeMap<_, BTreeMap<*const Run, &'a Run>> = BTreeMap::new();
        for ((robot, key, _), members) in cells {
            let runs = members[side].iter().map(|(run, _)| (std::ptr::from_ref(*run), *run));
            groups.entry((robot, key)).or_default().extend(runs);
        }
        for ((robot, key, name), members) in cells.iter().filter(|(_, m)| !m.iter().any(Vec::is_empty)) {
            let mut without = groups.get(&(robot, key)).cloned().unwrap_or_default();
            for (run, _) in &members[side] {
                without.remove(&std::ptr::from_ref(*run));
            }
            lacking.extend(without.into_values().map(|run| (side, run, name.clone())));
        }
    }
    lacking
}

/// A measure in a configuration that only one side has.
pub(crate) struct Unmatched {
    pub words: String,
    /// The baseline has it, and the new runs have not.
    pub is_gone: bool,
}

/// Runs of a side.
pub(crate) struct Usable<'a> {
    pub runs: Vec<&'a Run>,
    /// Those that prove nothing, by name; not copies, which are no runs.
    lost: BTreeSet<String>,
}

fn name_of(run: &Run) -> String {
    run.dir.path().display().to_string()
}

fn seal_of(run: &Run) -> Option<&str> {
    match &run.seal {
        takt_rundir::SealState::Whole(hash) => Some(hash),
        _ => None,
    }
}

/// Whether what was left out is a whole run, and not a measure of one or what a kill left of one
/// that was done again.
fn is_run(what: &str, by_key: &HashMap<&str, &Run>) -> bool {
    let key = what.split(' ').next().unwrap_or_default();
    let is_of = |run: &&Run| what.starts_with(&clean(&format!("{} {}", run.key, run.name)));
    let is_cut = Path::new(what).extension().is_some_and(|end| end.to_string_lossy().starts_with("cut"));
    !is_cut && !by_key.get(key).is_some_and(is_of)
}

/// Runs whose reasons fit into a sentence.
const MAX_REASONS: usize = 3;

/// Runs of a side whose files are what they left, each once, in the order in which they were made.
pub(crate) fn usable<'a>(
    collection: &'a Collection,
    side: &'static str,
    others: &HashSet<&str>,
    left_out: &mut Vec<String>,
) -> Result<Usable<'a>, Error> {
    let found = collection.runs.len();
    let before = left_out.len();
    let mut runs = crate::gate::in_order(collection);
    let mut lost = BTreeSet::new();
    let mut seen: BTreeMap<&'a str, &'a str> = BTreeMap::new();
    runs.retain(|run| {
        let why = match &run.seal {
            takt_rundir::SealState::Whole(hash) if others.contains(hash.as_str()) => {
                Some("it is one of the new runs".to_owned())
            }
            // Of runs that are copies of each other one says as much as all.
            takt_rundir::SealState::Whole(hash) => match seen.get(hash.as_str()) {
                Some(first) => Some(format!("it is a copy of {first}")),
                None => {
                    seen.insert(hash, &run.name);
                    None
                }
            },
            seal => {
                lost.insert(name_of(run));
                Some(seal.doubt_of(&run.header).unwrap_or_else(|| "it is not sealed".to_owned()))
            }
        };
        left_out.extend(why.iter().map(|why| clean(&format!("{side} {}: {why}", run.name))));
        why.is_none()
    });
    if runs.is_empty() {
        let all = &left_out[before..];
        let mut reasons = all[..all.len().min(MAX_REASONS)].join("; ");
        if all.len() > MAX_REASONS {
            reasons.push_str(&format!("; and {} more", all.len() - MAX_REASONS));
        }
        return Err(Error::NoRuns { side, found, reasons });
    }
    Ok(Usable { runs, lost })
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

/// Facts that distinguish runs: the factors of a campaign, or the name of a single run.
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
    (all.len() > 1).then(|| "the deadlines differ, so misses cannot be compared".to_owned())
}
