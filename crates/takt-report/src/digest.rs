//! Digest of a measure in one configuration, in bounded size: samples are read once, digested and
//! dropped, so that a campaign of any number of runs needs the memory of its largest configuration.

use takt_rundir::{Measure, Series, judged as judged_places};
use takt_stats::evt;
use takt_stats::low::LowRow;
use takt_stats::misses::Misses;
use takt_stats::quantile::Quantile;
use takt_stats::trend::{MaxPoint, MaxTrend, MeanPoint, MeanTrend};
use takt_stats::{Summary, VerdictReport};

use crate::collect::{Collection, Group, Run};
use crate::figure::{BoxRow, COLUMNS};
use crate::figures::{Figures, Pool};
use crate::phase::{PhaseDigest, phases};
use crate::verdict::{self, NoTail};

/// Samples that are kept by phase: 20 million take 160 MB.
const PHASES_AT_MOST: usize = 20_000_000;

/// One run's part.
#[derive(Clone, Debug)]
pub struct RunDigest {
    pub run: usize,
    /// Its values, summarised, nanoseconds.
    pub summary: Summary,
    /// Its misses; `None` without a deadline.
    pub misses: Option<Misses>,
    /// Samples that were skipped or dropped.
    pub skipped: u64,
    /// Time from its first sample to its last, seconds, where that is known.
    pub duration_s: Option<f64>,
    /// Whether the level axis of [`columns`](Self::columns) is seconds; else numbers of samples.
    pub timed: bool,
    /// The series, thinned to least and greatest values per column.
    pub columns: Vec<(f64, f64, f64)>,
    /// Growth of its maximum.
    pub max_trend: Vec<MaxPoint>,
    /// Development of its mean.
    pub mean_trend: Vec<MeanPoint>,
    /// Number of raw samples, if these are only the first ones of those that the recorder saw.
    pub raw_samples: Option<u64>,
    /// Further remark about its samples.
    pub remark: Option<String>,
}

/// A measure in one configuration, over its repetitions.
#[derive(Clone, Debug)]
pub struct Digest {
    pub configuration: usize,
    pub runs: Vec<RunDigest>,
    /// Runs whose samples could not be read, with the reason.
    pub failed: Vec<(usize, String)>,
    /// All values together, nanoseconds.
    pub summary: Summary,
    /// 50 %, 90 %, 99 % and 99.9 % quantiles with intervals; empty without samples.
    pub quantiles: Vec<Quantile>,
    /// The 2009 paper's shares.
    pub low: Vec<LowRow>,
    /// Box: 1 %, 25 %, 50 %, 75 %, 99 %.
    pub box_quantiles: [f64; 5],
    /// Distribution: from, to, count.
    pub bins: Vec<(f64, f64, u64)>,
    /// Value and share of samples above it.
    pub above: Vec<(f64, f64)>,
    /// The deadline, where all runs have the same.
    pub deadline_ns: Option<u64>,
    /// Planned samples per second.
    pub rate_hz: Option<f64>,
    /// Extreme values, or why none are reported; `None` where rate or deadline are missing.
    pub tail: Option<Result<evt::Tail, NoTail>>,
    /// The verdict; `None` without a deadline.
    pub verdict: Option<VerdictReport>,
    /// Resolution of the quantiles, if they have that of a recorder.
    pub resolution: Option<String>,
    /// Whether the verdict of a run needs this measure beside others.
    pub judged: bool,
    /// Reasons why misses of a run do not count, by the run's number.
    pub excused: Vec<(usize, String)>,
    /// The phases of the runs, repetitions together; none where a run reported none or kept only
    /// its first samples.
    pub phases: Vec<PhaseDigest>,
}

impl Digest {
    /// Misses over all runs.
    pub fn misses(&self) -> u64 {
        self.runs.iter().filter_map(|r| r.misses.as_ref()).map(|m| m.misses).sum()
    }

    /// Misses and what was skipped, over all runs; `None` where nothing was due.
    pub fn missed(&self) -> Option<u64> {
        let (late, skipped) = (self.misses(), self.skipped());
        (self.summary.count > 0 || skipped > 0).then(|| late.saturating_add(skipped))
    }

    /// Longest run of misses of any run.
    pub fn longest_run(&self) -> u64 {
        self.runs.iter().filter_map(|r| r.misses.as_ref()).map(|m| m.longest_run).max().unwrap_or(0)
    }

    /// Samples that were skipped or dropped.
    pub fn skipped(&self) -> u64 {
        self.runs.iter().fold(0, |sum, r| sum.saturating_add(r.skipped))
    }

    /// Measured time, where all runs report it.
    pub fn duration_s(&self) -> Option<f64> {
        self.runs.iter().map(|r| r.duration_s).sum()
    }

    /// A quantile's estimate.
    pub fn quantile(&self, q: f64) -> Option<&Quantile> {
        self.quantiles.iter().find(|estimate| (estimate.q - q).abs() < 1e-12)
    }

    /// Reason why its misses do not count; `None` if any run without an excuse has one.
    pub fn excuse(&self) -> Option<&str> {
        let excused = |run: usize| self.excused.iter().any(|(other, _)| *other == run);
        let counts = |r: &RunDigest| {
            !excused(r.run) && (r.skipped > 0 || r.misses.as_ref().is_some_and(|m| m.misses > 0))
        };
        let all = self.runs.iter().all(|r| excused(r.run)) || !self.runs.iter().any(counts);
        self.excused.first().filter(|_| all).map(|(_, why)| why.as_str())
    }

    pub(crate) fn box_row(&self, name: &str) -> BoxRow {
        BoxRow {
            name: name.to_owned(),
            min: self.summary.min,
            quantiles: self.box_quantiles,
            p999: self.summary.p999,
            max: self.summary.worst,
            deadline_ns: self.deadline_ns.map(|d| d as f64),
        }
    }
}

/// Sample files of a configuration up to this size are digested beside others: eight of them stay
/// far below 1 GiB.
const BESIDE_OTHERS_BYTES: u64 = 8 << 20;
/// Most threads.
const THREADS: usize = 8;

/// Digests all configurations of a measure: small ones side by side, large ones one after the
/// other.
pub fn digests(collection: &Collection, group: &Group) -> Vec<Digest> {
    let size = |(_, runs): &(usize, Vec<(usize, Measure)>)| -> u64 {
        runs.iter().map(|(run, measure)| sample_bytes(&collection.runs[*run], measure)).sum()
    };
    let small = group.cells.iter().all(|runs| size(runs) <= BESIDE_OTHERS_BYTES);
    let threads =
        if small { std::thread::available_parallelism().map_or(1, |n| n.get().min(THREADS)) } else { 1 };
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((configuration, runs)) =
            group.cells.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
        {
            done.push(digest(collection, *configuration, runs));
        }
        done
    };
    let mut digests = std::thread::scope(|scope| {
        // If no thread can be started (little address space, a limit of processes), this one does
        // all the work.
        let helper = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
        let helpers: Vec<_> = (1..threads).filter_map(helper).collect();
        let mut digests = work();
        for helper in helpers {
            // A panic of a helper is one of ours: it goes on here, as it would without threads.
            digests.extend(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        digests
    });
    digests.sort_by_key(|digest| digest.configuration);
    digests
}

fn sample_bytes(run: &Run, measure: &Measure) -> u64 {
    let folder = run.dir.path().join(takt_rundir::SAMPLES_FOLDER);
    let size = |extension: &str| {
        std::fs::metadata(folder.join(format!("{}.{extension}", measure.file))).map_or(0, |m| m.len())
    };
    size("parquet") + size("csv")
}

/// Data collected while the runs of a configuration are read.
struct Gathered {
    pool: Pool,
    runs: Vec<RunDigest>,
    failed: Vec<(usize, String)>,
    /// Values by phase; emptied for good by a run whose samples are not all there.
    phases: Vec<(String, Vec<u64>)>,
    incomplete: bool,
}

impl Gathered {
    fn add_phases(&mut self, source: &Run, series: &Series) {
        let left = |phases: &[(String, Vec<u64>)]| {
            PHASES_AT_MOST.saturating_sub(phases.iter().map(|(_, values)| values.len()).sum())
        };
        for phase in &source.header.phases {
            let name = crate::words::clean(&phase.name);
            let index = self.phases.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                self.phases.push((name, Vec::new()));
                self.phases.len() - 1
            });
            let values: Vec<u64> = series.within(phase).collect();
            self.incomplete |= values.len() > left(&self.phases);
            if !self.incomplete {
                self.phases[index].1.extend(values);
            }
        }
    }

    fn take(&mut self, run: usize, source: &Run, measure: &Measure) -> Result<(), String> {
        let figures = Figures::read(&source.dir, measure).map_err(|e| e.to_string())?;
        let mut digest = of_series(run, measure, &figures.series);
        (digest.summary, digest.misses) = (figures.summary, figures.misses);
        digest.raw_samples = figures.kept();
        digest.remark = figures.remark.as_deref().map(crate::words::clean);
        match &figures.streamed {
            None => self.add_phases(source, &figures.series),
            Some(all) => {
                // The raw samples of a long run are only its first ones: they serve the time series
                // and nothing else.
                self.incomplete = true;
                digest.duration_s = figures.seconds.or(digest.duration_s);
                if !all.max_trend.points().is_empty() {
                    digest.max_trend = all.max_trend.points().to_vec();
                }
                if !all.mean_trend.points().is_empty() {
                    digest.mean_trend = all.mean_trend.finish();
                }
            }
        }
        self.pool.add(&figures).map_err(|e| e.to_string())?;
        self.runs.push(digest);
        Ok(())
    }
}

fn digest(collection: &Collection, configuration: usize, members: &[(usize, Measure)]) -> Digest {
    let deadline_ns = members.first().and_then(|(_, m)| m.deadline_ns);
    let rate_hz = members.first().and_then(|(_, m)| m.rate_hz);
    let mut gathered = Gathered {
        pool: Pool::new(deadline_ns),
        runs: Vec::new(),
        failed: Vec::new(),
        phases: Vec::new(),
        incomplete: false,
    };
    for (run, measure) in members {
        let outcome = if measure.deadline_ns != deadline_ns {
            let show = |d: Option<u64>| d.map_or("no deadline".to_owned(), |d| crate::words::time(d as f64));
            Err(format!(
                "its deadline is {}, but other repetitions have {}: not combined",
                show(measure.deadline_ns),
                show(deadline_ns)
            ))
        } else {
            gathered.take(*run, &collection.runs[*run], measure)
        };
        if let Err(why) = outcome {
            gathered.failed.push((*run, crate::words::clean(&why)));
        }
    }
    let Gathered { pool, runs, failed, phases: by_phase, incomplete } = gathered;
    let header = |run: &usize| &collection.runs[*run].header;
    let read = |(run, _): &&(usize, Measure)| !failed.iter().any(|(other, _)| other == run);
    let sources: Vec<_> = members.iter().filter(read).map(|(run, measure)| (header(run), measure)).collect();
    let judged = verdict::of_measure(&sources, &pool);
    let (values, summary) = pool.into_values();
    let (verdict, tail) = judged.map_or((None, None), |judged| (Some(judged.report), judged.tail));
    let mut digest = Digest {
        configuration,
        runs,
        failed,
        summary,
        quantiles: [0.5, 0.9, 0.99, 0.999].iter().filter_map(|q| values.estimate(*q)).collect(),
        low: values.low(),
        box_quantiles: [0.01, 0.25, 0.5, 0.75, 0.99].map(|q| values.quantile(q).unwrap_or(0.0)),
        bins: values.bins(),
        above: values.above(),
        deadline_ns,
        rate_hz,
        tail,
        verdict: None,
        resolution: values.resolution(),
        judged: members.iter().any(|(_, m)| m.judged),
        excused: members
            .iter()
            .filter_map(|(run, m)| Some((*run, crate::words::clean(m.excused.as_ref()?))))
            .collect(),
        phases: if incomplete { Vec::new() } else { phases(by_phase, deadline_ns) },
    };
    digest.verdict = verdict.map(|report| {
        // If several measures are judged, samples that belong to none of them belong to the verdict
        // over all.
        let several = members.iter().any(|(run, _)| judged_places(&header(run).measures).len() > 1);
        let own = || members.iter().map(|(run, _)| collection.runs[*run].verdict_source());
        let runs: Vec<_> = if several { Vec::new() } else { own().collect() };
        unread(verdict::concluded(report, &runs), &digest)
    });
    digest
}

/// With what could not be read, which cannot be a PASS.
fn unread(report: VerdictReport, digest: &Digest) -> VerdictReport {
    if digest.failed.is_empty() {
        return report;
    }
    let words = crate::words::count(digest.failed.len(), "run could not be read", "runs could not be read");
    report.concluded(&[], &[format!("{words}, so its samples may include a miss")])
}

fn of_series(run: usize, measure: &Measure, series: &Series) -> RunDigest {
    let values = &series.values_ns;
    let timed = series.times_ns.len() == values.len() && !values.is_empty();
    let first = series.times_ns.iter().copied().min().unwrap_or(0);
    let last = series.times_ns.iter().copied().max().unwrap_or(0);
    let mut max_trend = MaxTrend::default();
    let mut mean_trend = MeanTrend::default();
    // Without times, the planned rate shows when a sample came.
    let period_ns = measure.rate_hz.filter(|r| *r > 0.0).map_or(0.0, |rate| 1e9 / rate);
    let elapsed = |index: usize| {
        if timed { series.times_ns[index] - first } else { (index as f64 * period_ns) as u64 }
    };
    for (index, &value) in values.iter().enumerate() {
        max_trend.push(elapsed(index), value);
        mean_trend.push(elapsed(index), value);
    }
    let duration_s = if timed {
        Some((last - first) as f64 / 1e9)
    } else {
        (period_ns > 0.0).then(|| values.len() as f64 * period_ns / 1e9)
    };
    let mut copy: Vec<f64> = values.iter().map(|v| *v as f64).collect();
    RunDigest {
        run,
        summary: Summary::of(&mut copy),
        misses: measure.deadline_ns.map(|deadline| Misses::of(values, deadline)),
        skipped: measure.skipped,
        duration_s,
        timed,
        columns: thin(series, timed.then_some((first, last))),
        max_trend: max_trend.points().to_vec(),
        mean_trend: mean_trend.finish(),
        raw_samples: None,
        remark: None,
    }
}

/// Thins a series to at most [`COLUMNS`] columns, each with its least and greatest value: no
/// outlier vanishes.
pub(crate) fn thin(series: &Series, span_ns: Option<(u64, u64)>) -> Vec<(f64, f64, f64)> {
    let count = series.values_ns.len();
    let mut columns = vec![None; COLUMNS];
    let place = |index: usize| match span_ns {
        Some((first, last)) => {
            let share = (series.times_ns[index] - first) as f64 / (last - first).max(1) as f64;
            (share * COLUMNS as f64) as usize
        }
        None => index * COLUMNS / count.max(1),
    };
    for (index, &value) in series.values_ns.iter().enumerate() {
        let column: &mut Option<(u64, u64)> = &mut columns[place(index).min(COLUMNS - 1)];
        let (low, high) = column.unwrap_or((value, value));
        *column = Some((low.min(value), high.max(value)));
    }
    let length = span_ns.map_or(count as f64, |(first, last)| (last - first) as f64 / 1e9);
    let middle = |column: usize| length * (column as f64 + 0.5) / COLUMNS as f64;
    let whole = |(column, value): (usize, Option<(u64, u64)>)| {
        value.map(|(low, high)| (middle(column), low as f64, high as f64))
    };
    columns.into_iter().enumerate().filter_map(whole).collect()
}
