//! The verdict on runs: evidence from their directories, judged by [`takt_stats::judge_series`].
//! `takt run`, benches, campaigns, reports and comparisons all ask here, so that a run has one
//! verdict and one sentence.

use takt_rundir::{Measure, RunDir, RunHeader, judged};
use takt_stats::evt::{Refusal, Tail};
use takt_stats::{Longer, Part, SeriesEvidence, Verdict, VerdictReport, judge_series, overall, stolen_words};

use crate::Error;
use crate::figures::{Figures, Pool};
use crate::words::{clean, count};

/// Name of samples whose measure gives none.
const UNIT: &str = "jobs";

/// A measure judged over runs of one configuration.
#[derive(Clone, Debug)]
pub struct Judged {
    pub report: VerdictReport,
    /// The fitted tail, or why there is none; `None` without a rate.
    pub tail: Option<Result<Tail, NoTail>>,
}

/// Reason why no tail is reported.
#[derive(Clone, Debug, PartialEq)]
pub struct NoTail {
    /// The analysis's refusal.
    pub refusal: Refusal,
    /// Samples that it was made from and all of them, where only the first are kept one by one.
    pub kept: Option<[u64; 2]>,
}

impl std::fmt::Display for NoTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.refusal)?;
        self.kept.map_or(Ok(()), |kept| write!(f, " ({})", of_the_first(kept)))
    }
}

fn of_the_first([kept, all]: [u64; 2]) -> String {
    format!("from the first {kept} of {all} samples, which were stored individually")
}

/// Judges a measure over its runs, which have the same deadline. `None` without a deadline.
pub(crate) fn of_measure(runs: &[(&RunHeader, &Measure)], pool: &Pool) -> Option<Judged> {
    let (header, measure) = runs.first()?;
    let mut evidence = SeriesEvidence {
        unit: measure.unit.clone().unwrap_or_else(|| UNIT.to_owned()),
        deadline_ns: measure.deadline_ns?,
        rate_hz: measure.rate_hz,
        measured_s: pool.seconds(),
        runs: pool.runs(),
        longer: if runs.iter().any(|(h, _)| h.own_end) { Longer::OwnEnd } else { Longer::Seconds },
        samples: pool.count(),
        misses: pool.misses().misses,
        longest_run: pool.misses().longest_run,
        worst_ns: pool.summary().worst as u64,
        unfinished_late: pool.skipped(),
        records_lost: runs.iter().fold(0, |sum, (h, _)| sum.saturating_add(h.records_lost)),
        not_granted: runs.iter().map(|(h, _)| h.not_granted.len() as u64).sum(),
        claim: header.verdict.claim(&measure.name),
        ..SeriesEvidence::default()
    };
    let tail = evidence.see(pool.ordered()).filter(|_| !pool.ordered().is_empty());
    // A tail that did not see the greatest value shows no claim; where nothing is claimed, it can
    // only keep from a PASS.
    if evidence.claim.limit.is_some() && !pool.has_kept_worst() {
        evidence.tail_per_hour = None;
    }
    let kept = pool.is_recorded().then(|| [pool.ordered().len() as u64, pool.count()]);
    let tail = tail.map(|reported| match reported {
        Ok(mut tail) => {
            tail.caveats.extend(kept.map(of_the_first));
            Ok(tail)
        }
        Err(refusal) => Err(NoTail { refusal, kept }),
    });
    Some(Judged { report: judge_series(&evidence), tail })
}

/// Inputs of a verdict from a run besides its series.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// The run's header.
    pub header: &'a RunHeader,
    /// Reason why its files prove nothing ([`takt_rundir::SealState::doubt_of`]); for a run that
    /// sums itself up before its seal, [`takt_rundir::SealState::doubt`].
    pub doubt: Option<String>,
}

/// Adds the parts of runs that are in no series: reasons of failure, and doubts that prevent a
/// PASS.
pub fn concluded(report: VerdictReport, sources: &[Source<'_>]) -> VerdictReport {
    let runs: Vec<&RunHeader> = sources.iter().map(|source| source.header).collect();
    // A changed file may hide misses. Those that are still there stay a FAIL.
    let changed: Vec<&String> = sources.iter().filter_map(|source| source.doubt.as_ref()).collect();
    let failed = runs.iter().filter(|header| !header.failures.is_empty());
    let failures = gather(failed.map(|header| &header.failures[..]).collect(), "failed");
    let unfinished = runs.iter().filter(|header| header.finished_utc.is_none()).count();
    let doubted = runs.iter().filter(|header| !header.doubts.is_empty());
    let mut doubts = gather(doubted.map(|header| &header.doubts[..]).collect(), "left doubts");
    if let Some(first) = changed.first() {
        let words = count(changed.len(), "run proves nothing", "runs prove nothing");
        doubts.push(format!("{words}: {}", clean(first)));
    }
    if unfinished > 0 {
        let words = count(
            unfinished,
            "run was not stopped in an orderly way",
            "runs were not stopped in an orderly way",
        );
        doubts.push(format!("{words}, so the numbers of skipped and dropped samples are unknown"));
    }
    let mut report = report.concluded(&failures, &doubts);
    let allowed: Vec<Vec<String>> = runs.iter().map(|header| header.loss_notes()).collect();
    let allowed = allowed.iter().filter(|notes| !notes.is_empty());
    report.reasons.extend(gather(allowed.map(Vec::as_slice).collect(), "lost only what the limit allows"));
    // Other failures, which do not affect the verdict.
    let mut others: Vec<Vec<String>> = Vec::new();
    for header in &runs {
        let reported =
            |problem: &&String| !header.failures.contains(problem) && !header.doubts.contains(problem);
        let besides: Vec<String> = header.problems.iter().filter(reported).cloned().collect();
        others.extend((!besides.is_empty()).then_some(besides));
    }
    report.reasons.extend(gather(others.iter().map(Vec::as_slice).collect(), "had problems"));
    report.reasons.extend(runs.iter().map(|h| h.cpu.stolen).reduce(f64::max).and_then(stolen_words));
    report
}

/// All sentences of one run; of several, how many and the first.
fn gather(runs: Vec<&[String]>, what: &str) -> Vec<String> {
    match &runs[..] {
        [] => Vec::new(),
        [one] => one.iter().map(|sentence| clean(sentence)).collect(),
        several => {
            let first = several[0].first().map_or_else(String::new, |sentence| clean(sentence));
            vec![format!("{} runs {what}; the first: {first}", several.len())]
        }
    }
}

/// A run with its figures and its verdict.
#[derive(Clone, Debug)]
pub struct RunVerdict {
    /// The run's header.
    pub header: RunHeader,
    /// The figures of each measure of the header, in its order. Their samples one by one are
    /// dropped.
    pub figures: Vec<Figures>,
    /// Verdicts of the judged measures, with their places in the header.
    pub measures: Vec<(usize, VerdictReport)>,
    pub report: VerdictReport,
}

/// Sums up and judges a run directory, sealed or not: a run does it just before its seal, so that a
/// seal that is not there is no doubt.
///
/// # Errors
/// [`Error::RunDir`] for a directory that cannot be read.
pub fn of_run(dir: &RunDir) -> Result<RunVerdict, Error> {
    let header = dir.header()?;
    let (mut all, mut measures) = (Vec::new(), Vec::new());
    let places = judged(&header.measures);
    for (index, measure) in header.measures.iter().enumerate() {
        let mut figures = Figures::read(dir, measure)?;
        if places.contains(&index) {
            let mut pool = Pool::new(measure.deadline_ns);
            pool.add(&figures)
                .map_err(|source| Error::Recorder { run: dir.path().display().to_string(), source })?;
            measures.extend(of_measure(&[(&header, measure)], &pool).map(|judged| (index, judged.report)));
        }
        // Of a long run they are gigabytes over all measures, and whoever wants them reads them.
        figures.series.times_ns = Vec::new();
        all.push(figures);
    }
    let parts: Vec<Part<'_>> = measures
        .iter()
        .map(|(index, report)| {
            let Measure { name, excused, .. } = &header.measures[*index];
            Part { name, report, excused: excused.as_deref() }
        })
        .collect();
    let report = concluded(of_parts(&parts), &[Source { header: &header, doubt: dir.seal_state().doubt() }]);
    Ok(RunVerdict { figures: all, report, measures, header })
}

/// Repetitions of a configuration together.
#[derive(Debug)]
pub struct RunsVerdict {
    /// The main measure over all runs.
    pub main: Pool,
    /// Misses, skipped releases among them, and the longest row of them: of the main measure, or of
    /// the judged ones where that has no deadline.
    pub missed: [u64; 2],
    /// The verdict; `None` where no measure has a deadline.
    pub report: Option<VerdictReport>,
}

/// Judges repetitions of one configuration together. `None` without a run, or a measure.
///
/// # Errors
/// [`Error::RunDir`] for samples that cannot be read, [`Error::MixedMeasure`] where runs have not
/// the same measures.
pub fn of_runs(runs: &[(RunHeader, RunDir)]) -> Result<Option<RunsVerdict>, Error> {
    let Some((first, _)) = runs.first() else { return Ok(None) };
    let mut reports: Vec<(&Measure, VerdictReport)> = Vec::new();
    let mut main = None;
    let mut missed: Option<[u64; 2]> = None;
    let places = judged(&first.measures);
    for (index, measure) in first.measures.iter().enumerate() {
        if index != 0 && !places.contains(&index) {
            continue;
        }
        let (mut pool, mut sources) = (Pool::new(measure.deadline_ns), Vec::new());
        for (header, dir) in runs {
            let own = header.measures.iter().find(|own| own.name == measure.name);
            let Some(own) = own.filter(|own| own.deadline_ns == measure.deadline_ns) else {
                let show =
                    |d: Option<u64>| d.map_or("no deadline".to_owned(), |d| crate::words::time(d as f64));
                return Err(Error::MixedMeasure {
                    measure: measure.name.clone(),
                    expected: show(measure.deadline_ns),
                    found: own.map_or("missing".to_owned(), |own| show(own.deadline_ns)),
                });
            };
            let add = pool.add(&Figures::read(dir, own)?);
            add.map_err(|source| Error::Recorder { run: dir.path().display().to_string(), source })?;
            sources.push((header, own));
        }
        if places.contains(&index) {
            reports.extend(of_measure(&sources, &pool).map(|judged| (measure, judged.report)));
        }
        if measure.deadline_ns.is_some() && missed.is_none() {
            let misses = pool.misses();
            missed = Some([misses.misses.saturating_add(pool.skipped()), misses.longest_run]);
        }
        if index == 0 {
            main = Some(pool);
        }
    }
    let excuse = |name: &str| -> Option<&str> {
        let own = |(header, _): &'_ (RunHeader, RunDir)| header.measures.iter().position(|m| m.name == name);
        let all = runs.iter().all(|run| own(run).is_some_and(|i| run.0.measures[i].excused.is_some()));
        let measure = &runs[0].0.measures[own(&runs[0])?];
        measure.excused.as_deref().filter(|_| all)
    };
    let parts: Vec<Part<'_>> = reports
        .iter()
        .map(|(measure, report)| Part { name: &measure.name, report, excused: excuse(&measure.name) })
        .collect();
    let sources: Vec<Source<'_>> = runs
        .iter()
        .map(|(header, dir)| Source { header, doubt: dir.seal_state().doubt_of(header) })
        .collect();
    let report = (!parts.is_empty()).then(|| concluded(of_parts(&parts), &sources));
    let missed = missed.unwrap_or_default();
    Ok(main.map(|main| RunsVerdict { main, missed, report }))
}

/// One verdict about several measures, before what is in no series.
pub(crate) fn of_parts(parts: &[Part<'_>]) -> VerdictReport {
    if parts.is_empty() {
        return VerdictReport::new(Verdict::Inconclusive, vec!["no measure has a deadline".to_owned()]);
    }
    overall(parts)
}
