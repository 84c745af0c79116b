//! Figures of runs, and what they say of two groups.

use std::collections::{BTreeSet, HashMap};

use crate::gate::quantile_of;
use crate::store::{Entry, Measured};
use takt_report::Figures;
use takt_report::compare::{Did, did_less, seconds};
use takt_rundir::{Measure, RunHeader, Work};
use takt_stats::shift::{rank, shift_within};

use crate::query::compare::{Figure, Row};

/// Either end of an interval misses with this probability.
const TAIL: f64 = 0.025;

/// Quantiles of a run that are compared; its greatest value comes besides.
const QUANTILES: [(f64, &str); 3] = [(0.5, "median"), (0.99, "p99"), (0.999, "p99.9")];

/// A measure of a run, in numbers.
pub(crate) struct OfRun {
    deadline_ns: Option<u64>,
    quantiles: [f64; QUANTILES.len() + 1],
    samples: u64,
    skipped: u64,
    missed: Option<u64>,
    work: Vec<Work>,
    /// In which it did that.
    seconds: Option<f64>,
}

impl OfRun {
    pub fn new(header: &RunHeader, measure: &Measure, figures: &Figures) -> Self {
        let mut quantiles = [0.0; QUANTILES.len() + 1];
        for (place, (q, _)) in quantiles.iter_mut().zip(QUANTILES) {
            *place = quantile_of(figures, q);
        }
        // A sample that never came was the worst.
        let none = figures.skipped > 0 || figures.count() == 0;
        quantiles[QUANTILES.len()] = if none { f64::INFINITY } else { figures.summary.worst };
        Self {
            deadline_ns: measure.deadline_ns,
            quantiles,
            samples: figures.count(),
            skipped: figures.skipped,
            missed: measure.deadline_ns.map(|_| figures.missed().unwrap_or(0)),
            work: header.work.clone(),
            seconds: seconds(measure),
        }
    }

    /// Figures in the index. Its quantiles cover only the samples that arrived.
    pub fn reported(run: &Entry, reported: &Measured) -> Self {
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let (samples, skipped) = (count(reported.samples), count(reported.skipped));
        let all = samples.saturating_add(skipped) as f64;
        let came = |q: f64, ns: f64| {
            if samples > 0 && (q * all).ceil() <= samples as f64 { ns } else { f64::INFINITY }
        };
        let deadline_ns = Some(count(reported.deadline_ns)).filter(|ns| *ns > 0);
        Self {
            deadline_ns,
            quantiles: [
                came(0.5, reported.p50_ns),
                came(0.99, reported.p99_ns),
                came(0.999, reported.p999_ns),
                came(1.0, reported.max_ns),
            ],
            samples,
            skipped,
            missed: deadline_ns.map(|_| count(reported.misses)),
            work: run.work(),
            seconds: Some(reported.window_s).filter(|seconds| *seconds > 0.0),
        }
    }

    fn did(&self) -> Did<'_> {
        (&self.work, self.seconds)
    }
}

/// Ranks of the ends of intervals, by the numbers of runs.
type Ranks = HashMap<[usize; 2], Option<usize>>;

/// The median.
pub(crate) fn middle(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let (left, right) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    if left == right { left } else { (left + right) / 2.0 }
}

/// A row for each group that has the measure, against the first of them.
pub(crate) fn rows(groups: &[Vec<OfRun>]) -> Vec<Row> {
    let Some(first) = groups.iter().position(|runs| !runs.is_empty()) else { return Vec::new() };
    let there = groups.iter().enumerate().filter(|(_, runs)| !runs.is_empty());
    let mut ranks = Ranks::new();
    there
        .map(|(place, runs)| {
            let before = (place != first).then(|| &groups[first][..]);
            let rank = before.and_then(|before| {
                let counts = [before.len(), runs.len()];
                *ranks.entry(counts).or_insert_with(|| rank(counts[0], counts[1], TAIL))
            });
            row(place, runs, before.zip(rank))
        })
        .collect()
}

/// Runs to compare with, and the rank of the interval's ends.
type Before<'a> = Option<(&'a [OfRun], usize)>;

fn row(group: usize, runs: &[OfRun], before: Before<'_>) -> Row {
    let mut remarks = Vec::new();
    let earlier = before.map_or(&[][..], |(before, _)| before);
    let deadlines: BTreeSet<_> = runs.iter().chain(earlier).map(|run| run.deadline_ns).collect();
    if deadlines.len() > 1 {
        remarks.push("the deadlines differ, so the numbers of misses cannot be compared".to_owned());
    }
    let less = did_less(earlier.iter().map(OfRun::did), runs.iter().map(OfRun::did));
    if !less.is_empty() {
        remarks.push(format!("a side that did less work does not count as better: {}", less.join("; ")));
    }
    let names = QUANTILES.iter().map(|(_, name)| *name).chain(["max"]);
    let figures =
        names.enumerate().map(|(place, name)| figure(place, name, runs, before, !less.is_empty())).collect();
    let missed: Option<Vec<u64>> = runs.iter().map(|run| run.missed).collect();
    Row {
        group,
        runs: runs.len(),
        samples: runs.iter().map(|run| run.samples).sum(),
        skipped: runs.iter().map(|run| run.skipped).sum(),
        misses: missed.as_ref().map(|missed| missed.iter().sum()),
        runs_with_misses: missed.map(|missed| missed.iter().filter(|missed| **missed > 0).count()),
        figures,
        remarks,
    }
}

fn figure(place: usize, name: &str, runs: &[OfRun], before: Before<'_>, less: bool) -> Figure {
    let finite = |ns: f64| Some(ns).filter(|ns| ns.is_finite());
    let mut values: Vec<f64> = runs.iter().map(|run| run.quantiles[place]).collect();
    let ns = middle(&mut values);
    let range_ns = [values.first(), values.last()].map(|end| end.copied().and_then(finite));
    // Shares are what differs: logarithms, of a nanosecond at least.
    let logs =
        |runs: &[OfRun]| -> Vec<f64> { runs.iter().map(|run| run.quantiles[place].max(1.0).ln()).collect() };
    let found = before.and_then(|(before, rank)| shift_within(&logs(before), &logs(runs), rank));
    let share = |log: f64| finite(log.exp_m1());
    let (low, high) = found.map_or((None, None), |found| (found.low, found.high));
    let clear = match (low, high) {
        (Some(low), Some(high)) => Some(low > 0.0 || high < 0.0),
        _ => None,
    };
    let difference = found.and_then(|found| share(found.estimate));
    Figure {
        figure: name.to_owned(),
        ns: finite(ns),
        range_ns,
        difference,
        low: low.and_then(share),
        high: high.and_then(share),
        clear: clear.filter(|_| !(less && difference.is_some_and(|difference| difference < 0.0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_did_less_is_not_called_better_by_the_index_either() {
        let runs = |ns: f64, count: u64| -> Vec<OfRun> {
            let work =
                format!(r#"[{{"name": "jobs", "title": "jobs run", "count": {count}, "tolerance": 0.1}}]"#);
            let run = Entry { work, ..Entry::default() };
            let measured = |n: u32| {
                let ns = ns + f64::from(n);
                let quantiles =
                    Measured { p50_ns: ns, p99_ns: ns, p999_ns: ns, max_ns: ns, ..Measured::default() };
                Measured { samples: 100, window_s: 2.0, ..quantiles }
            };
            (0..12).map(|n| OfRun::reported(&run, &measured(n))).collect()
        };
        let reported = |after: Vec<OfRun>| {
            let row = rows(&[runs(2000.0, 100), after]).remove(1);
            (row.figures[0].clear, row.remarks.join("; "))
        };
        assert_eq!(reported(runs(1000.0, 95)), (Some(true), String::new()));
        let (clear, remarks) = reported(runs(1000.0, 80));
        assert_eq!(clear, None);
        assert!(remarks.contains("jobs run: 40.0 a second against 50.0"), "{remarks}");
        // Worse is worse all the same.
        assert_eq!(reported(runs(3000.0, 80)).0, Some(true));
    }
}
