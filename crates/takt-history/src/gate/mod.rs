//! Whether new runs are worse than those before, for CI systems; and since when a measure is worse
//! than it was.
//!
//! The unit of replication is the **run**. Runs of one configuration differ from each other far
//! more than the samples within them report, and samples within a run hang together: one figure of
//! each run (its P99) enters, however many samples it has. The statement on their difference is
//! free of assumptions about its distribution (`takt_stats::shift`).
//!
//! A tail that interrupts and other programs make differs from run to run by several times what
//! the samples below it do. A build that is slower moves both, so that a second figure with five
//! times as many samples beyond it (the P95) finds it in a fraction of the runs; what moves the
//! tail alone is the first one's.
//!
//! ```text
//! takt_report::collect (find, read, seals) -> sides (what belongs together) -> judge (one figure a run) -> text, JSON, JUnit
//! ```

mod error;
pub mod history;
pub mod judge;
mod junit;
mod made;
mod show;
mod sides;

use std::path::PathBuf;

use serde::Serialize;
use takt_report::compare::{Did, did_less, seconds};
use takt_report::{Collection, Figures, Run, clean};
use takt_stats::binomial;

pub use error::Error;
pub use judge::Decision;
use judge::{Happened, Made, Settings};
pub use junit::{junit, junit_error};
pub use show::document;
use sides::{Match, Sides, Unmatched};

/// Options of the judgement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Judge even where facts of the machines differ.
    pub across_machines: bool,
    /// Only this measure; those that the verdict of the runs is about when absent.
    pub measure: Option<String>,
    /// Quantile that is the figure of a run; beyond the P95 with a second one, of five times as
    /// many samples.
    pub quantile: f64,
    /// Changes within this share of the figure are none.
    pub tolerance: f64,
    /// The rise for which the number of runs is reported that would find it in 19 of 20.
    pub find: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { across_machines: false, measure: None, quantile: 0.99, tolerance: 0.10, find: 0.20 }
    }
}

/// One figure of a measure in one configuration. Shares are of the figure before: 0.2 is a fifth
/// more. Null stands for what is unknown, or beyond all bounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    pub robot: String,
    pub measure: String,
    pub title: String,
    pub configuration: String,
    /// The figure of a run: `p99`.
    pub figure: String,
    pub decision: Decision,
    /// Median of the figure over the runs before, nanoseconds.
    pub before_ns: Option<f64>,
    /// The same of the new runs.
    pub after_ns: Option<f64>,
    /// After against before, a share of before.
    pub difference: Option<f64>,
    /// Lower end of its interval.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Confidence of the interval, over all figures that were judged.
    pub confidence: f64,
    /// The rise that so many runs would have found in 19 of 20 repetitions.
    pub minimum_detectable: Option<f64>,
    /// Largest shift between old and new runs by the machine alone, from the differences between
    /// stretches of the baseline: no smaller difference is distinguished from chance. Null for runs
    /// that alternate, which share it, and with too few before.
    pub drift: Option<f64>,
    /// Runs on each side with which a rise by `find` is found in 19 of 20; null where more runs do
    /// not help.
    pub runs_needed: Option<usize>,
    /// The rise.
    pub find: f64,
    /// Runs before and after.
    pub runs: [usize; 2],
    /// Samples of a run, the median of each side.
    pub samples: [u64; 2],
    /// Runs with misses; null without a deadline, or with several.
    pub runs_with_misses: Option<[usize; 2]>,
    /// Reasons of the decision, and facts to know about it, one sentence each.
    pub reasons: Vec<String>,
}

/// Result of a gate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gate {
    /// Worse where anything is; else inconclusive where anything is; else better where anything is.
    pub decision: Decision,
    /// Facts to know before all figures: new runs that failed or are not in them, and things that
    /// only the baseline has.
    pub reasons: Vec<String>,
    /// Decision from these facts.
    #[serde(skip)]
    pub(crate) whole: Decision,
    /// The measure that decided, with its figures, as they are in `pairs`.
    pub measure: String,
    pub configuration: String,
    pub difference: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub minimum_detectable: Option<f64>,
    /// Everything that was judged.
    pub pairs: Vec<Pair>,
    /// Facts of the machines that are not the same in all runs: name and values.
    pub machine_differences: Vec<(String, Vec<String>)>,
    /// Settings that are one on each side, and not the same: name and values, before and after.
    pub setting_differences: Vec<(String, Vec<String>)>,
    /// Runs that were found and are not in the figures, with the reason.
    pub left_out: Vec<String>,
    /// Configurations and measures that only one side has.
    pub unmatched: Vec<String>,
}

/// Judges the runs at `candidates` by those at `baseline`: run directories, campaigns, folders of
/// them.
///
/// # Errors
/// As [`takt_report::collect`] for a side that cannot be read; [`Error::Report`] where the machines
/// differ and nobody asked for that, where there is no such measure, and where nothing on one side
/// matches anything on the other; [`Error::NoRuns`].
pub fn gate(baseline: &[PathBuf], candidates: &[PathBuf], options: &Options) -> Result<Gate, Error> {
    let (before, after) = (takt_report::collect(baseline)?, takt_report::collect(candidates)?);
    let mut sides = Sides::of(&before, &after)?;
    let machine_differences = sides.machine_differences();
    if !machine_differences.is_empty() && !options.across_machines {
        let words: Vec<String> = machine_differences
            .iter()
            .map(|(fact, values)| format!("{fact}: {}", values.join(" and ")))
            .collect();
        return Err(takt_report::Error::MachinesDiffer { differences: words.join("; ") }.into());
    }
    let (matches, mut unmatched) = sides.matches(options.measure.as_deref())?;
    let quantiles = quantiles(options.quantile);
    let mut read = Vec::new();
    for mut found in matches {
        let figures = figures_of(&mut found, &mut sides, &quantiles);
        match figures.iter().position(Vec::is_empty) {
            Some(side) => unmatched.push(Unmatched {
                words: clean(&format!(
                    "{}, {}: no run {} has samples that can be read",
                    found.robot,
                    found.configuration,
                    ["of the baseline", "of the new ones"][side]
                )),
                is_gone: side == 1,
            }),
            None => read.push((found, figures)),
        }
    }
    if read.is_empty() {
        let reasons: Vec<String> = unmatched.into_iter().map(|unmatched| unmatched.words).collect();
        return Err(takt_report::Error::NothingInCommon { reason: reasons.join("; ") }.into());
    }
    let settings = Settings {
        // All figures together: one that is worse by chance fails as well as another.
        tail: judge::TAIL / (read.len() * quantiles.len()) as f64,
        tolerance: options.tolerance,
        find: options.find,
    };
    let pairs: Vec<Pair> =
        read.iter().flat_map(|(found, figures)| judged(found, figures, &quantiles, &settings)).collect();
    let (whole, reasons) = of_whole_runs(sides.lost(), &unmatched);
    let decision = Decision::of_all(pairs.iter().map(|pair| pair.decision).chain([whole]));
    let deciding = pairs.iter().find(|pair| pair.decision == decision).unwrap_or(&pairs[0]).clone();
    Ok(Gate {
        decision,
        reasons,
        whole,
        measure: deciding.measure,
        configuration: deciding.configuration,
        difference: deciding.difference,
        low: deciding.low,
        high: deciding.high,
        minimum_detectable: deciding.minimum_detectable,
        pairs,
        machine_differences,
        setting_differences: sides.setting_differences(),
        left_out: sides.left_out,
        unmatched: unmatched.into_iter().map(|unmatched| unmatched.words).collect(),
    })
}

/// Decision from the runs that are in no figure: a build whose runs fail or never end is not as
/// good as one whose runs all complete, whatever the remaining ones show.
fn of_whole_runs([before, after]: [(usize, usize); 2], unmatched: &[Unmatched]) -> (Decision, Vec<String>) {
    let (mut decision, mut reasons) = (Decision::Same, Vec::new());
    let words = || {
        format!(
            "{} of {} new runs failed or have no valid figures, {} of {} before",
            after.0, after.1, before.0, before.1
        )
    };
    if binomial::more_often(before, after) <= judge::TAIL {
        decision = Decision::Worse;
        reasons.push(words());
    } else if after.0 * before.1 > before.0 * after.1 {
        decision = Decision::Inconclusive;
        reasons.push(format!("{}, which may be chance", words()));
    }
    let gone: Vec<&str> = unmatched
        .iter()
        .filter(|unmatched| unmatched.is_gone)
        .map(|unmatched| unmatched.words.as_str())
        .collect();
    if !gone.is_empty() {
        decision = Decision::of_all([decision, Decision::Inconclusive].into_iter());
        reasons.push(format!("the new runs lack something that the baseline has: {}", gone.join("; ")));
    }
    (decision, reasons)
}

/// The figures of the runs of both sides. Runs that have none are lost.
fn figures_of(found: &mut Match<'_>, sides: &mut Sides<'_>, quantiles: &[f64]) -> [Vec<RunFigures>; 2] {
    [0, 1].map(|side| {
        let mut all = Vec::new();
        found.sides[side].retain(|(run, measure)| match RunFigures::read(run, measure, quantiles) {
            Ok(figures) => {
                all.push(figures);
                true
            }
            Err(error) => {
                sides.lose(side, run, &measure.name, &error.to_string());
                false
            }
        });
        all
    })
}

/// The value below which a share `q` of a run's samples lies. A missing sample is the worst of all:
/// it counts above every existing one, so the quantile may be infinite.
pub fn quantile_of(figures: &Figures, q: f64) -> f64 {
    let all = figures.count().saturating_add(figures.skipped);
    let rank = (q * all as f64).ceil();
    if figures.count() == 0 || rank > figures.count() as f64 {
        return f64::INFINITY;
    }
    let of_all = match &figures.streamed {
        Some(streamed) => {
            let among = (rank / figures.count() as f64).clamp(f64::MIN_POSITIVE, 1.0 - f64::EPSILON);
            streamed.recorder.quantile(among)
        }
        None => {
            let mut values = figures.series.values_ns.clone();
            let place = (rank as usize).clamp(1, values.len()) - 1;
            Some(*values.select_nth_unstable(place).1 as f64)
        }
    };
    of_all.unwrap_or(f64::INFINITY)
}

/// The figures of a run that are judged: the asked one, and one with five times as many samples
/// beyond it where that is a tail as well.
fn quantiles(asked: f64) -> Vec<f64> {
    let wider = ((1.0 - 5.0 * (1.0 - asked)) * 1e9).round() / 1e9;
    if asked > 0.95 { vec![asked, wider] } else { vec![asked] }
}

/// The figures of a run, with what else is asked of it.
struct RunFigures {
    /// Nanoseconds, by quantile; infinite where one lies among samples that never came.
    values_ns: Vec<f64>,
    samples: u64,
    missed: u64,
    skipped: u64,
    stolen: f64,
}

impl RunFigures {
    fn read(run: &Run, measure: &takt_rundir::Measure, quantiles: &[f64]) -> Result<Self, Error> {
        let figures = Figures::read(&run.dir, measure)?;
        Ok(Self {
            values_ns: quantiles.iter().map(|q| quantile_of(&figures, *q)).collect(),
            samples: figures.count().saturating_add(figures.skipped),
            missed: figures.missed().unwrap_or(0),
            skipped: figures.skipped,
            stolen: run.header.cpu.stolen,
        })
    }

    /// Shares are what differs: a logarithm, of a nanosecond at least.
    fn log(&self, figure: usize) -> f64 {
        self.values_ns[figure].max(1.0).ln()
    }
}

/// The work of a run in the window of a measure.
fn did<'a>((run, measure): &(&'a Run, &'a takt_rundir::Measure)) -> Did<'a> {
    (&run.header.work, seconds(measure))
}

/// A measure in one configuration, by each of the quantiles.
fn judged(
    found: &Match<'_>,
    figures: &[Vec<RunFigures>; 2],
    quantiles: &[f64],
    settings: &Settings,
) -> Vec<Pair> {
    (0..quantiles.len()).map(|figure| pair(found, figures, figure, quantiles, settings)).collect()
}

fn pair(
    found: &Match<'_>,
    figures: &[Vec<RunFigures>; 2],
    figure: usize,
    quantiles: &[f64],
    settings: &Settings,
) -> Pair {
    let quantile = quantiles[figure];
    let mut reasons = found.remarks.clone();
    let logs = |side: usize| -> Vec<f64> { figures[side].iter().map(|run| run.log(figure)).collect() };
    let (before, after) = (logs(0), logs(1));
    let began = |side: usize| -> Vec<&str> {
        found.sides[side].iter().map(|(run, _)| run.header.started_utc.as_str()).collect()
    };
    let made = Made::of(&began(0), &began(1));
    let judged = judge::judge(&before, &after, &made, settings);
    let mut decision = judged.interval.decision;
    reasons.extend(judged.reasons);
    let (_, measure) = found.sides[0][0];
    let happened = |what: &'static str, times: fn(&RunFigures) -> u64| Happened {
        what,
        sides: [0, 1].map(|side| figures[side].iter().map(|run| (times(run), run.samples)).collect()),
    };
    let misses = (measure.deadline_ns.is_some() && found.is_one_deadline)
        .then(|| happened("missed their deadline", |run| run.missed));
    // Once, however many figures there are.
    if figure == 0 {
        if let Some(misses) = &misses {
            judge::judge_happened(&mut decision, misses, &made, settings, &mut reasons);
        }
        let never = happened("never ran", |run| run.skipped);
        judge::judge_happened(&mut decision, &never, &made, settings, &mut reasons);
    }
    if decision == Decision::Worse {
        let stolen = |side: usize| -> Vec<f64> { figures[side].iter().map(|figure| figure.stolen).collect() };
        let (sides, rise) = ([&stolen(0)[..], &stolen(1)[..]], judged.interval.difference);
        judge::excuse_stolen(&mut decision, sides, quantile, rise, &mut reasons);
    }
    if decision == Decision::Better {
        let of = |side: usize| found.sides[side].iter().map(did);
        let less = did_less(of(0), of(1));
        if !less.is_empty() {
            decision = Decision::Inconclusive;
            reasons.push(format!("a side that did less work does not count as better: {}", less.join("; ")));
        }
    }
    let samples = [0, 1].map(|side| median_of(figures[side].iter().map(|figure| figure.samples)));
    let beyond = samples.iter().map(|n| *n as f64 * (1.0 - quantile)).fold(f64::INFINITY, f64::min);
    if beyond < 10.0 {
        reasons.push(format!(
            "only about {beyond:.0} samples of a run lie beyond its {}: make longer runs, which differ less from each other",
            figure_name(quantile)
        ));
    }
    let share = |log: f64| Some(log.exp_m1()).filter(|share| share.is_finite());
    let ns = |logs: &[f64]| Some(judge::middle(logs).exp()).filter(|ns| ns.is_finite());
    Pair {
        robot: clean(&found.robot),
        measure: clean(&measure.name),
        title: clean(&measure.title),
        configuration: found.configuration.clone(),
        figure: figure_name(quantile),
        decision,
        before_ns: ns(&before),
        after_ns: ns(&after),
        difference: share(judged.interval.difference),
        low: judged.interval.low.and_then(share),
        high: judged.interval.high.and_then(share),
        confidence: 1.0 - 2.0 * judge::TAIL,
        minimum_detectable: judged.minimum_detectable.and_then(share),
        drift: judged.interval.drift.and_then(share),
        runs_needed: judged.runs_needed,
        find: settings.find,
        runs: [before.len(), after.len()],
        samples,
        runs_with_misses: misses.map(|misses| [misses.runs(0).0, misses.runs(1).0]),
        reasons,
    }
}

/// `p99`, `p99.9`.
fn figure_name(quantile: f64) -> String {
    format!("p{}", takt_report::short(100.0 * quantile))
}

fn median_of(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Runs in the order in which they were made.
fn in_order(collection: &Collection) -> Vec<&Run> {
    let mut runs: Vec<&Run> = collection.runs.iter().collect();
    runs.sort_by(|a, b| a.header.started_utc.cmp(&b.header.started_utc));
    runs
}
