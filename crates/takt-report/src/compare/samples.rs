//! One side of a pair: all of its values in its figures, those that were kept one by one for what
//! chance does to them.

use takt_rundir::Measure;
use takt_stats::bootstrap::{Difference, Statistic};
use takt_stats::{Summary, VerdictReport};

use crate::collect::{Collection, Run};
use crate::figures::{Figures, Pool};
use crate::verdict;
use crate::words::clean;

/// The samples of one side of a pair.
pub(super) struct Samples {
    /// Those that were kept one by one, a series for each repetition.
    pub series: Vec<Vec<f64>>,
    pool: Pool,
    summary: Summary,
    pub deadline_ns: Option<u64>,
    /// The verdict on this side.
    pub verdict: Option<VerdictReport>,
    pub remarks: Vec<String>,
    /// Whether files of a run are not what it left, or its seal is gone.
    pub doubted: bool,
}

impl Samples {
    pub fn read(collection: &Collection, members: &[(usize, Measure)], letter: &str) -> Self {
        let deadline_ns = members.first().and_then(|(_, m)| m.deadline_ns);
        let (mut series, mut remarks, mut read) = (Vec::new(), Vec::new(), Vec::new());
        let (mut sources, mut doubted) = (Vec::new(), false);
        let mut pool = Pool::new(deadline_ns);
        for (index, measure) in members {
            let run: &Run = &collection.runs[*index];
            let mut remark = |text: String| remarks.push(clean(&format!("{letter} {}: {text}", run.name)));
            let figures = Figures::read(&run.dir, measure).map_err(|error| error.to_string());
            let figures = match figures
                .and_then(|figures| pool.add(&figures).map(|()| figures).map_err(|e| e.to_string()))
            {
                Ok(figures) => figures,
                Err(why) => {
                    remark(format!("left out, {why}"));
                    continue;
                }
            };
            if let Some(kept) = figures.kept() {
                remark(format!(
                    "figures cover all {} samples; the intervals are estimated from the first {kept}, which were stored individually",
                    figures.count()
                ));
            }
            figures.remark.into_iter().for_each(&mut remark);
            run.labels().into_iter().for_each(&mut remark);
            if !figures.series.values_ns.is_empty() {
                series.push(figures.series.values_ns.iter().map(|v| *v as f64).collect());
            }
            doubted |= run.seal.doubt_of(&run.header).is_some();
            sources.push(run.verdict_source());
            read.push((&run.header, measure));
        }
        let several = read.iter().any(|(header, _)| takt_rundir::judged(&header.measures).len() > 1);
        if several {
            sources.clear();
        }
        let judged = verdict::of_measure(&read, &pool);
        let verdict = judged.map(|judged| verdict::concluded(judged.report, &sources));
        Self { series, summary: pool.summary(), pool, deadline_ns, verdict, remarks, doubted }
    }

    /// Values measured.
    pub fn count(&self) -> u64 {
        self.summary.count
    }

    /// Samples that were skipped or dropped.
    pub fn skipped(&self) -> u64 {
        self.pool.skipped()
    }

    /// Values beyond the deadline and those that were skipped or dropped; `None` without a
    /// deadline, and where nothing was due.
    pub fn misses(&self) -> Option<u64> {
        let due = self.count() > 0 || self.skipped() > 0;
        self.deadline_ns.filter(|_| due).map(|_| self.pool.misses().misses.saturating_add(self.skipped()))
    }

    /// A statistic over all values, whether or not they were kept one by one.
    fn value(&self, statistic: Statistic) -> Option<f64> {
        match statistic {
            Statistic::Mean => Some(self.summary.mean),
            Statistic::Maximum => Some(self.summary.worst),
            Statistic::Median => Some(self.summary.median),
            Statistic::Quantile(q) => {
                self.pool.quantile(q, takt_stats::INTERVAL_CONFIDENCE).map(|found| found.value)
            }
        }
    }

    /// All that should have come.
    fn due(&self) -> u64 {
        self.count().saturating_add(self.skipped())
    }

    /// Whether a greater share was skipped or dropped than on the other side.
    pub(crate) fn answers_less_than(&self, other: &Self) -> bool {
        let [ours, theirs] = [(self.skipped(), other.due()), (other.skipped(), self.due())]
            .map(|(a, b)| u128::from(a) * u128::from(b));
        ours > theirs
    }

    pub(crate) fn about_skipped(&self, letter: &str) -> Option<String> {
        (self.skipped() > 0).then(|| {
            format!(
                "{letter}: {} of {} were skipped, dropped or unanswered; its figures cover the others",
                self.skipped(),
                self.due()
            )
        })
    }

    fn is_recorded(&self) -> bool {
        self.pool.is_recorded()
    }
}

/// A difference of the figures of all values, where none was found on those kept one by one.
/// Nothing shows then what chance does to it.
pub(super) fn without_interval(
    statistic: Statistic,
    before: &Samples,
    after: &Samples,
    why: &str,
) -> Option<Difference> {
    if before.count() == 0 || after.count() == 0 {
        return None;
    }
    let found = Difference {
        statistic,
        before: 0.0,
        after: 0.0,
        difference: 0.0,
        low: None,
        high: None,
        confidence: takt_stats::INTERVAL_CONFIDENCE,
        percent: None,
        warnings: vec![format!("no interval: of the individually stored samples, {why}")],
    };
    before.value(statistic).zip(after.value(statistic)).map(|_| of_all(found, before, after))
}

/// Puts the figures of all values into a difference that was found on those kept one by one: its
/// interval moves along, for how far chance moves a figure is seen on the kept ones alone.
pub(super) fn of_all(mut found: Difference, before: &Samples, after: &Samples) -> Difference {
    let statistic = found.statistic;
    let (Some(b), Some(a)) = (before.value(statistic), after.value(statistic)) else { return found };
    if before.is_recorded() || after.is_recorded() {
        let moved = (a - b) - found.difference;
        found.low = found.low.map(|low| low + moved);
        found.high = found.high.map(|high| high + moved);
    }
    (found.before, found.after, found.difference) = (b, a, a - b);
    found.percent = (b > 0.0).then(|| 100.0 * (a - b) / b).filter(|p| p.is_finite());
    if statistic == Statistic::Maximum && before.count() != after.count() {
        found.warnings.push(format!(
            "{} samples before and {} after: compare equal numbers, because more samples contain rarer values",
            before.count(),
            after.count()
        ));
    }
    found
}
