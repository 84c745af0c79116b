//! Runs of a store, grouped by columns: `takt compare --by kernel,policy --where CONDITION STORE`.
//!
//! The unit of replication is the run, as in [`gate`](crate::gate): one figure of each (its P99)
//! enters, and of two groups it is reported how far the figures of their runs lie apart, whatever
//! their distribution (`takt_stats::shift`). The figures are those of the index, or of the samples,
//! of which those of a few runs are in memory at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::store::{Entry, Measured, Store};
use serde::Serialize;
use takt_report::clean;
use takt_rundir::{FORMAT, Measure, judged};

use crate::query::QueryError;
use crate::query::figures::{OfRun, middle, rows};
use crate::query::filter::Filter;
use crate::query::runs::Views;
use crate::query::table::{Cell, Table};

/// Threads that read runs. More of them would hold more runs in memory.
const MAX_READERS: usize = 4;

/// Most groups: of more, nobody reads what is said.
const MAX_GROUPS: usize = 1000;

/// Columns that make a difference doubtful where they are not what is compared.
const MACHINE: [&str; 4] = ["host", "kernel", "cpu", "takt"];

/// The question.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Columns whose values make the groups.
    pub by: Vec<String>,
    /// Only the runs of which this is true.
    pub condition: Option<String>,
    /// Only this measure; those that the verdict of the runs is about when absent.
    pub measure: Option<String>,
    /// Figures from the samples; else those that the index has, and no run is opened.
    pub samples: bool,
}

/// Runs that have the same values in the columns asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Name and value of each column; null where it is not known.
    #[serde(serialize_with = "as_object")]
    pub values: Vec<(String, Option<String>)>,
    pub runs: usize,
    /// Runs with something that fails them whatever their measures say.
    pub failed: usize,
    /// Runs with something that keeps them from a PASS.
    pub doubtful: usize,
    /// Runs with settings that were not granted.
    pub not_granted: usize,
    /// Share of the CPUs' time that the hypervisor took: median of the runs.
    pub stolen_median: f64,
    /// The greatest.
    pub stolen_max: f64,
    /// When the first and the last of them began.
    pub started_utc: [String; 2],
}

fn as_object<S: serde::Serializer>(values: &[(String, Option<String>)], out: S) -> Result<S::Ok, S::Error> {
    out.collect_map(values.iter().map(|(name, value)| (name, value)))
}

impl Group {
    /// Its values in a few words.
    pub fn name(&self) -> String {
        let values: Vec<&str> =
            self.values.iter().map(|(_, value)| value.as_deref().unwrap_or("unknown")).collect();
        clean(&values.join(", "))
    }
}

/// A figure of the runs of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name of the figure: `median`, `p99`, `p99.9`, `max`.
    pub figure: String,
    /// Median over the runs, nanoseconds; null where it lies among samples that never came.
    pub ns: Option<f64>,
    /// Least and greatest among the runs.
    pub range_ns: [Option<f64>; 2],
    /// Against the first group that has the measure, a share of it: 0.2 is a fifth more; null for
    /// that group itself.
    pub difference: Option<f64>,
    /// Lower end of its 95 % interval; null with too few runs.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Whether the interval excludes no difference; null without one, and for less where less work
    /// was done.
    pub clear: Option<bool>,
}

/// A measure in a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Place of the group in `groups`.
    pub group: usize,
    pub runs: usize,
    /// Samples of all of them.
    pub samples: u64,
    /// Samples that are missing: skipped releases, inputs dropped or unanswered.
    #[serde(rename = "never")]
    pub skipped: u64,
    /// Misses, with those that were skipped or dropped; null without a deadline.
    pub misses: Option<u64>,
    pub runs_with_misses: Option<usize>,
    pub figures: Vec<Figure>,
    /// Remarks that a reader must know.
    pub remarks: Vec<String>,
}

/// A measure of a robot over the groups.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    pub robot: String,
    pub measure: String,
    pub title: String,
    pub rows: Vec<Row>,
}

impl Compared {
    fn new(robot: &str, measure: &str, title: &str, groups: &[Vec<OfRun>]) -> Self {
        Self { robot: clean(robot), measure: clean(measure), title: clean(title), rows: rows(groups) }
    }
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub store: String,
    pub by: Vec<String>,
    #[serde(rename = "where")]
    pub condition: Option<String>,
    /// Runs that are compared, and runs of the store.
    pub runs: [usize; 2],
    /// Facts of the machines that differ between the groups and are not what is compared.
    pub machine_differences: Vec<String>,
    pub groups: Vec<Group>,
    pub measures: Vec<Compared>,
    /// Runs that could not be read, with the reason.
    pub left_out: Vec<String>,
}

/// Compares the runs of `store` for which the condition is true, group by group.
///
/// # Errors
/// [`QueryError`]: a column or condition that is none, no runs left, a store that cannot be read.
/// A run that cannot be read is left out and reported.
pub fn compare(store: &Arc<Store>, options: &Options) -> Result<Comparison, QueryError> {
    let table = Table::of(store)?;
    let by: Vec<usize> = options.by.iter().map(|name| table.column(name)).collect::<Result<_, _>>()?;
    let (picked, unread): (Vec<usize>, Vec<usize>) = pick(&table, options.condition.as_deref())?
        .into_iter()
        .partition(|row| why_unread(&table.runs[*row]).is_none());
    let groups = group_by(&table, &by, &picked);
    if groups.len() > MAX_GROUPS {
        return Err(QueryError::Groups { by: options.by.join(","), groups: groups.len(), most: MAX_GROUPS });
    }
    let (keys, members): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
    let (measures, unreadable) = if options.samples {
        measured(store, &table, &members, options.measure.as_deref())?
    } else {
        (reported(&table, &members, options.measure.as_deref())?, Vec::new())
    };
    let unread = unread.into_iter().map(|row| &table.runs[row]);
    let mut left_out: Vec<String> = unread.filter_map(|run| Some(report(run, &why_unread(run)?))).collect();
    left_out.extend(unreadable);
    Ok(Comparison {
        store: store.name(),
        by: options.by.clone(),
        condition: options.condition.clone(),
        runs: [picked.len(), table.runs.len()],
        machine_differences: machine_differences(&table, &options.by, &members)?,
        groups: keys.into_iter().zip(&members).map(|(key, rows)| group(&table, options, key, rows)).collect(),
        measures,
        left_out,
    })
}

/// Reason why an existing run is unknown; `None` for one that can be compared.
pub(crate) fn why_unread(run: &Entry) -> Option<String> {
    match run.format {
        0 => Some(format!(
            "is damaged (see takt store verify), or its layout is not {FORMAT}, the one that this takt reads"
        )),
        layout if layout != i64::from(FORMAT) => {
            Some(format!("has layout {layout}, but this takt reads layout {FORMAT}"))
        }
        _ => None,
    }
}

/// Describes a run's fault, with its name.
pub(crate) fn report(run: &Entry, why: &str) -> String {
    clean(&format!("{}: {why}", if run.name.is_empty() { &run.run } else { &run.name }))
}

/// Places of the runs of which the condition is true.
///
/// # Errors
/// [`QueryError::Where`] and [`QueryError::NoColumn`]; [`QueryError::NoRuns`].
pub fn pick(table: &Table, condition: Option<&str>) -> Result<Vec<usize>, QueryError> {
    let all = 0..table.runs.len();
    let Some(text) = condition else { return Ok(all.collect()) };
    let filter = Filter::new(text, table)?;
    let rows: Vec<usize> = all.filter(|row| filter.holds(table, *row)).collect();
    if rows.is_empty() {
        return Err(QueryError::NoRuns { text: text.to_owned(), of: table.runs.len() });
    }
    Ok(rows)
}

/// A value that orders groups.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(u64, String),
    Text(String),
    Null,
}

impl Key {
    fn of(cell: Cell<'_>) -> Self {
        match cell {
            Cell::Null => Self::Null,
            Cell::Text(text) => Self::Text(clean(text)),
            Cell::Count(count) => Self::number(count as f64),
            Cell::Number(number) => Self::number(number),
        }
    }

    fn number(number: f64) -> Self {
        let bits = (number + 0.0).to_bits();
        // The order of numbers, as that of their bits: negative ones downwards, below all others.
        let ordered = if number < 0.0 { !bits } else { bits ^ (1 << 63) };
        Self::Number(ordered, format!("{number}"))
    }

    fn value(self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) | Self::Number(_, text) => Some(text),
        }
    }
}

/// A value of a column as it stands there.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Raw<'a> {
    Null,
    Text(&'a str),
    Number(u64),
}

impl<'a> From<Cell<'a>> for Raw<'a> {
    fn from(cell: Cell<'a>) -> Self {
        match cell {
            Cell::Null => Self::Null,
            Cell::Text(text) => Self::Text(text),
            Cell::Count(count) => Self::Number(count as u64),
            Cell::Number(number) => Self::Number((number + 0.0).to_bits()),
        }
    }
}

/// Of each row its number among the different values of a column, and a row that has each.
fn codes(table: &Table, column: usize, rows: &[usize]) -> (Vec<u32>, Vec<usize>) {
    let (mut numbers, mut first) = (HashMap::new(), Vec::new());
    let of = rows.iter().map(|row| {
        *numbers.entry(Raw::from(table.cell(*row, column))).or_insert_with(|| {
            first.push(*row);
            (first.len() - 1) as u32
        })
    });
    (of.collect(), first)
}

/// Rows that have the same values in some columns, in the order of the values.
fn group_by(table: &Table, by: &[usize], rows: &[usize]) -> BTreeMap<Vec<Key>, Vec<usize>> {
    // Whatever a value is, it is looked at once.
    let mut of: Vec<u32> = vec![0; rows.len()];
    for column in by {
        let (more, _) = codes(table, *column, rows);
        let mut numbers = HashMap::new();
        for (of, more) in of.iter_mut().zip(more) {
            let next = numbers.len() as u32;
            *of = *numbers.entry((*of, more)).or_insert(next);
        }
    }
    let mut members: Vec<Vec<usize>> = Vec::new();
    for (row, of) in rows.iter().zip(of) {
        // Numbers are given in order.
        if members.len() <= of as usize {
            members.push(Vec::new());
        }
        members[of as usize].push(*row);
    }
    let mut groups: BTreeMap<Vec<Key>, Vec<usize>> = BTreeMap::new();
    for members in members {
        let key = by.iter().map(|column| Key::of(table.cell(members[0], *column))).collect();
        let group = groups.entry(key).or_default();
        let is_new = group.is_empty();
        group.extend(members);
        if !is_new {
            // Two texts that print alike.
            group.sort_unstable();
        }
    }
    groups
}

fn group(table: &Table, options: &Options, key: Vec<Key>, rows: &[usize]) -> Group {
    let runs = || rows.iter().map(|row| &table.runs[*row]);
    let with = |count: fn(&Entry) -> i64| runs().filter(|run| count(run) > 0).count();
    let mut stolen: Vec<f64> = runs().map(|run| run.stolen).collect();
    let ends = |run: Option<&usize>| run.map_or_else(String::new, |row| table.runs[*row].started_utc.clone());
    Group {
        values: options.by.iter().cloned().zip(key.into_iter().map(Key::value)).collect(),
        runs: rows.len(),
        failed: with(|run| run.failures),
        doubtful: with(|run| run.doubts),
        not_granted: with(|run| run.not_granted),
        stolen_median: middle(&mut stolen),
        stolen_max: stolen.iter().copied().fold(0.0, f64::max),
        started_utc: [ends(rows.first()), ends(rows.last())],
    }
}

fn machine_differences(
    table: &Table,
    by: &[String],
    groups: &[Vec<usize>],
) -> Result<Vec<String>, QueryError> {
    let mut differences = Vec::new();
    let compared = |name: &str| by.iter().any(|by| by == name || (by == "machine" && name == "host"));
    for name in MACHINE.into_iter().filter(|name| !compared(name)) {
        let column = table.column(name)?;
        let values: Vec<BTreeSet<Key>> = groups
            .iter()
            .map(|rows| {
                let (_, first) = codes(table, column, rows);
                first.into_iter().map(|row| Key::of(table.cell(row, column))).collect()
            })
            .collect();
        if values.windows(2).any(|pair| pair[0] != pair[1]) {
            let all: BTreeSet<Key> = values.into_iter().flatten().collect();
            let all: Vec<String> =
                all.into_iter().map(|key| key.value().unwrap_or_else(|| "unknown".to_owned())).collect();
            differences.push(format!(
                "{name} is not the same in all groups ({}): a difference may come from it",
                takt_report::count(all.len(), "value", "values")
            ));
        }
    }
    Ok(differences)
}

/// Robot, measure, where its numbers come from.
type Kind = (String, String, String);

/// Findings of a kind in each group: title, and the runs.
type Found = BTreeMap<Kind, (String, Vec<Vec<OfRun>>)>;

fn measured(
    store: &Arc<Store>,
    table: &Table,
    groups: &[Vec<usize>],
    asked: Option<&str>,
) -> Result<(Vec<Compared>, Vec<String>), QueryError> {
    let views = Views::new(store)?;
    let jobs: Vec<(usize, usize)> = groups
        .iter()
        .enumerate()
        .flat_map(|(group, rows)| rows.iter().map(move |row| (group, *row)))
        .collect();
    let (next, read) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(jobs.len())));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_READERS);
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let done = of_run(&views, &table.runs[job.1], asked);
            read.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((*job, done));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // If no thread can be started, this one reads them all.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let mut read = read.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    // Whichever thread was first: the same runs give the same answer.
    read.sort_by_key(|(job, _)| *job);
    let (mut found, mut left_out, mut there) = (Found::new(), Vec::new(), BTreeSet::new());
    for ((group, row), done) in read {
        let run = &table.runs[row];
        match done {
            Ok((names, _)) if asked.is_some() && !names.iter().any(|name| Some(name.as_str()) == asked) => {
                there.extend(names);
            }
            Ok((names, measures)) => {
                there.extend(names);
                for (measure, one) in measures {
                    let from = measure.since_column.as_deref().unwrap_or_default();
                    let definition = format!("{}:{} {from}", measure.file, measure.column);
                    let kind = (run.robot.clone(), measure.name, definition);
                    let fresh = || (measure.title, groups.iter().map(|_| Vec::new()).collect());
                    found.entry(kind).or_insert_with(fresh).1[group].push(one);
                }
            }
            Err(QueryError::Store(error @ crate::store::StoreError::Slow { .. })) => return Err(error.into()),
            Err(error) => left_out.push(report(run, &error.to_string())),
        }
    }
    if let (Some(asked), true, true) = (asked, found.is_empty(), left_out.is_empty()) {
        let there = there.into_iter().collect::<Vec<_>>().join(", ");
        return Err(takt_report::Error::NoSuchMeasure { asked: asked.to_owned(), there }.into());
    }
    let one = |((robot, measure, _), (title, groups)): (Kind, (String, Vec<Vec<OfRun>>))| {
        Compared::new(&robot, &measure, &title, &groups)
    };
    Ok((found.into_iter().map(one).collect(), left_out))
}

/// The figures that the index has.
fn reported(table: &Table, groups: &[Vec<usize>], asked: Option<&str>) -> Result<Vec<Compared>, QueryError> {
    let mut found: BTreeMap<(&str, &str), Vec<Vec<OfRun>>> = BTreeMap::new();
    let mut there = BTreeSet::new();
    for (group, row) in
        groups.iter().enumerate().flat_map(|(group, rows)| rows.iter().map(move |row| (group, *row)))
    {
        let run = &table.runs[row];
        let all = &run.measures;
        // As in `takt_rundir::judged`.
        let judged = |measure: &&Measured| measure.judged > 0 && measure.deadline_ns > 0;
        let wanted: Vec<&Measured> = match asked {
            Some(name) => all.iter().filter(|measure| measure.measure == name).take(1).collect(),
            None if all.iter().any(|measure| judged(&measure)) => all.iter().filter(judged).collect(),
            None => {
                let first = all.iter().find(|measure| measure.deadline_ns > 0).or(all.first());
                first.into_iter().collect()
            }
        };
        if wanted.is_empty() {
            there.extend(all.iter().map(|measure| measure.measure.as_str()));
        }
        for one in wanted {
            let kind = found.entry((&run.robot, &one.measure)).or_default();
            kind.resize_with(groups.len(), Vec::new);
            kind[group].push(OfRun::reported(run, one));
        }
    }
    if let (Some(asked), true) = (asked, found.is_empty()) {
        let there = there.into_iter().collect::<Vec<_>>().join(", ");
        return Err(takt_report::Error::NoSuchMeasure { asked: asked.to_owned(), there }.into());
    }
    let one = |((robot, measure), groups): ((&str, &str), Vec<Vec<OfRun>>)| {
        Compared::new(robot, measure, measure, &groups)
    };
    Ok(found.into_iter().map(one).collect())
}

/// Names of a run's measures, and those that were asked for with their figures.
type Read = (Vec<String>, Vec<(Measure, OfRun)>);

fn of_run(views: &Views, run: &Entry, asked: Option<&str>) -> Result<Read, QueryError> {
    let view = views.open(run)?;
    let measures = &view.header.measures;
    let mut wanted: Vec<&Measure> = match asked {
        Some(name) => measures.iter().filter(|measure| measure.name == name).take(1).collect(),
        None => judged(measures).into_iter().map(|index| &measures[index]).collect(),
    };
    if wanted.is_empty() && asked.is_none() {
        wanted.extend(measures.first());
    }
    let read = wanted.into_iter().map(|measure| {
        let figures = views.figures(run, &view, measure)?;
        Ok((measure.clone(), OfRun::new(&view.header, measure, &figures)))
    });
    let read = read.collect::<Result<Vec<_>, QueryError>>();
    views.close(&view);
    Ok((measures.iter().map(|measure| measure.name.clone()).collect(), read?))
}
