//! Two or more runs, kernels or machines side by side: differences with bootstrap confidence
//! intervals.
//!
//! The first side is what the others are compared with. Facts of the machines that differ come
//! first, and unless the caller asked for a comparison across machines they end it: a difference
//! would have two causes.

mod samples;
mod show;
mod sides;
mod work;

use std::path::PathBuf;

use serde::Serialize;
use takt_rundir::Measure;
use takt_stats::VerdictReport;
use takt_stats::bootstrap::{self, Statistic};

use crate::Error;
use crate::collect::{Collection, Fact, Group};
use crate::words::{Unit, clean};

use samples::{Samples, of_all, without_interval};

pub use show::document;
pub use work::{Did, WorkOfSides, did_less, seconds};

/// Compared statistics with their names.
const STATISTICS: [(Statistic, &str); 5] = [
    (Statistic::Mean, "mean"),
    (Statistic::Median, "median"),
    (Statistic::Quantile(0.99), "p99"),
    (Statistic::Quantile(0.999), "p99.9"),
    (Statistic::Maximum, "max"),
];

/// Seed of the resampling: the same runs give the same intervals.
const SEED: u64 = 0x7461_6b74;

/// Options of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Compare even where facts of the machines differ: kernels and machines are compared this way.
    pub across_machines: bool,
    /// Only this measure; all that the sides share when absent.
    pub measure: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Its letter: `A`, `B`.
    pub letter: String,
    pub path: String,
    /// Its runs: directory name and hash.
    pub runs: Vec<SideRun>,
    /// Items found there but not used.
    pub left_out: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideRun {
    /// Name of its directory.
    pub name: String,
    /// SHA-256 of its hashes; null for a run that is not whole.
    pub hash: Option<String>,
    /// Labels that a reader must know.
    pub labels: Vec<String>,
}

/// A fact that differs, with its value on each side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FactOfSides {
    pub fact: String,
    /// Its values on each side, in the order of the sides; several where the runs of a side differ.
    pub values: Vec<Vec<String>>,
}

/// A figure on two sides. Nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Name of the figure: `mean`, `median`, `p99`, `p99.9`, `max`.
    pub figure: String,
    /// On the first side.
    pub before_ns: f64,
    /// On the other side.
    pub after_ns: f64,
    /// After less before.
    pub difference_ns: f64,
    /// Lower end of the 95 % interval of the difference; null where none can be given (never for a
    /// maximum).
    pub low_ns: Option<f64>,
    /// Upper end.
    pub high_ns: Option<f64>,
    /// The difference in percent of before; null from 0.
    pub percent: Option<f64>,
    /// Whether the interval excludes no difference; null without an interval, for the better figure
    /// of the side on which more were skipped or dropped, or which did less work, and where a run's
    /// files were changed after its seal or the seal is gone.
    pub clear: Option<bool>,
    /// Warnings about it.
    pub warnings: Vec<String>,
}

/// A measure in one configuration, on two sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    pub measure: String,
    pub title: String,
    /// The configuration as the first side names it; the other's name behind it where it differs.
    pub configuration: String,
    /// Letters of the sides.
    pub sides: [String; 2],
    pub samples: [u64; 2],
    /// Samples of each that are missing: skipped releases, inputs dropped or unanswered.
    #[serde(rename = "never")]
    pub skipped: [u64; 2],
    /// Misses of each, with those that were skipped or dropped; null without a deadline.
    pub misses: [Option<u64>; 2],
    pub deadline_ns: [Option<u64>; 2],
    /// The verdict on each side in one sentence, as its runs and reports have it; null without a
    /// deadline.
    pub verdicts: [Option<String>; 2],
    /// Amount of work of each side, if its runs report it: a side that did less does not count as
    /// better.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<WorkOfSides>,
    /// The figures; empty where a side has no samples.
    pub changes: Vec<Change>,
    /// Reasons why there are none, or facts to know about the samples.
    pub remarks: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub sides: Vec<Side>,
    /// Facts of the machines that differ, first of all.
    pub machine_differences: Vec<FactOfSides>,
    /// The compared pairs.
    pub pairs: Vec<Pair>,
    /// Configurations and measures that only one side has.
    pub unmatched: Vec<String>,
}

impl Comparison {
    /// The unit in which a measure is shown.
    pub(crate) fn unit(&self, measure: &str) -> Unit {
        let medians = self
            .pairs
            .iter()
            .filter(|p| p.measure == measure)
            .flat_map(|p| &p.changes)
            .filter(|c| c.figure == "median")
            .map(|c| c.before_ns);
        Unit::for_typical(crate::tables::spread(medians)[0])
    }
}

/// Compares sides: each a run directory, a campaign or a folder of runs. The first is what the
/// others are compared with.
///
/// # Errors
/// As [`crate::collect`] for a side that cannot be read; [`Error::MachinesDiffer`] unless asked
/// for; [`Error::MixedMeasure`] where a measure is not the same thing on both sides;
/// [`Error::NothingInCommon`].
pub fn compare(paths: &[PathBuf], options: &Options) -> Result<Comparison, Error> {
    if paths.len() < 2 {
        return Err(Error::NothingInCommon {
            reason: format!("{} given, at least 2 are needed", paths.len()),
        });
    }
    let collections: Vec<Collection> =
        paths.iter().map(|path| crate::collect(std::slice::from_ref(path))).collect::<Result<_, _>>()?;
    let machine_differences = sides::machine_differences(&collections);
    if !machine_differences.is_empty() && !options.across_machines {
        let differences: Vec<String> = machine_differences
            .iter()
            .map(|d| {
                let values: Vec<String> = d.values.iter().map(|v| v.join(" / ")).collect();
                format!("{}: {}", d.fact, values.join(" and "))
            })
            .collect();
        return Err(Error::MachinesDiffer { differences: differences.join("; ") });
    }
    let sides: Vec<Side> = paths
        .iter()
        .zip(&collections)
        .enumerate()
        .map(|(index, (path, c))| sides::side(index, path, c))
        .collect();
    let mut pairs = Vec::new();
    let mut unmatched = Vec::new();
    let (first, others) = (&collections[0], &collections[1..]);
    for (index, other) in others.iter().enumerate() {
        let letters = [sides[0].letter.clone(), sides[index + 1].letter.clone()];
        let matched = sides::matches(first, other, &letters, options.measure.as_deref(), &mut unmatched)?;
        for found in matched {
            pairs.push(pair(first, other, &found, &letters));
        }
    }
    if pairs.is_empty() {
        if let Some(asked) = &options.measure {
            let names: Vec<&str> = first.groups.iter().map(|g| g.name.as_str()).collect();
            return Err(Error::NoSuchMeasure { asked: asked.clone(), there: names.join(", ") });
        }
        return Err(Error::NothingInCommon { reason: unmatched.join("; ") });
    }
    Ok(Comparison { sides, machine_differences, pairs, unmatched })
}

/// A measure and a configuration that both sides have.
struct Match<'a> {
    group: &'a Group,
    names: [String; 2],
    before: &'a [(usize, Measure)],
    after: &'a [(usize, Measure)],
}

fn pair(first: &Collection, other: &Collection, found: &Match<'_>, letters: &[String; 2]) -> Pair {
    let before = Samples::read(first, found.before, &letters[0]);
    let after = Samples::read(other, found.after, &letters[1]);
    let [a, b] = &found.names;
    let mut remarks: Vec<String> = before.remarks.iter().chain(&after.remarks).cloned().collect();
    if before.deadline_ns != after.deadline_ns {
        remarks.push("the deadlines differ, so the numbers of misses cannot be compared".to_owned());
    }
    remarks.extend(before.about_skipped(&letters[0]));
    remarks.extend(after.about_skipped(&letters[1]));
    let work = work::of_sides(
        [(&first.runs, found.before), (&other.runs, found.after)]
            .map(|(runs, members)| members.iter().map(|(index, measure)| (&runs[*index].header, measure))),
    );
    remarks.extend(work::remark(&work, letters));
    let mut changes = Vec::new();
    let x: Vec<&[f64]> = before.series.iter().map(Vec::as_slice).collect();
    let y: Vec<&[f64]> = after.series.iter().map(Vec::as_slice).collect();
    for (statistic, name) in STATISTICS {
        let found = bootstrap::difference(&x, &y, statistic, SEED).map(|d| of_all(d, &before, &after));
        let found = found
            .or_else(|error| without_interval(statistic, &before, &after, &error.to_string()).ok_or(error));
        match found {
            Ok(d) => {
                // Unanswered samples are in no figure, and would have been the worst of all.
                let flattered = (d.difference < 0.0 && after.answers_less_than(&before))
                    || (d.difference > 0.0 && before.answers_less_than(&after));
                let mut warnings = d.warnings.clone();
                if flattered {
                    let letter = if d.difference < 0.0 { &letters[1] } else { &letters[0] };
                    warnings.push(format!(
                        "{letter} does not count as better: more of its samples were skipped or dropped"
                    ));
                }
                let better = usize::from(d.difference < 0.0);
                let less = if d.difference == 0.0 { Vec::new() } else { work::less(&work, better) };
                if !less.is_empty() {
                    let letter = &letters[better];
                    warnings.push(format!(
                        "{letter} does not count as better: it did less work ({})",
                        less.join("; ")
                    ));
                }
                let doubted = before.doubted || after.doubted;
                if doubted {
                    warnings.push(
                        "it proves nothing: files of a run were changed after the seal, or the seal is gone"
                            .to_owned(),
                    );
                }
                let flattered = flattered || !less.is_empty() || doubted;
                changes.push(Change {
                    figure: name.to_owned(),
                    before_ns: d.before,
                    after_ns: d.after,
                    difference_ns: d.difference,
                    low_ns: d.low,
                    high_ns: d.high,
                    percent: d.percent,
                    clear: d.is_clear().filter(|_| !flattered),
                    warnings,
                });
            }
            Err(error) => {
                remarks.push(clean(&format!("{name}: {error}")));
            }
        }
    }
    Pair {
        measure: found.group.name.clone(),
        title: found.group.title.clone(),
        configuration: if a == b { a.clone() } else { format!("{a} → {b}") },
        sides: letters.clone(),
        samples: [before.count(), after.count()],
        skipped: [before.skipped(), after.skipped()],
        misses: [before.misses(), after.misses()],
        deadline_ns: [before.deadline_ns, after.deadline_ns],
        verdicts: [before.verdict.as_ref(), after.verdict.as_ref()]
            .map(|report| report.map(VerdictReport::sentence)),
        work,
        changes,
        remarks,
    }
}

/// Values of a fact among the runs of a collection.
fn values_of(fact: &Fact) -> Vec<String> {
    fact.values.iter().map(|(value, _)| value.clone()).collect()
}
