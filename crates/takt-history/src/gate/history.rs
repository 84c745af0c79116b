//! Since when a measure is worse than it was: change points over kernels, versions or days.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use serde::Serialize;
use takt_report::document::{Block, Document, Section};
use takt_report::table::{Cell, Table};
use takt_report::{HistoryPicture, HistoryPoint, Run, clean, time};
use takt_stats::change;

use crate::gate::show::signed;
use crate::gate::{Error, RunFigures, figure_name, judge, sides};

/// Seed of the permutations: the same runs give the same answer.
const SEED: u64 = 0x7461_6b74;

/// Fewest runs with a figure of which a change of level can be reported.
const FEWEST: usize = 6;

/// A change by less, a share, is none: clocks and caches do it.
const MIN_CHANGE: f64 = 0.005;

/// In which order runs make a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// As they were made.
    Day,
    /// By the kernel's release, as versions are ordered.
    Kernel,
    /// By the version of takt.
    Version,
    /// By a factor of the campaign, as versions are ordered.
    Factor(String),
}

impl By {
    fn name(&self) -> &str {
        match self {
            Self::Day => "day",
            Self::Kernel => "kernel",
            Self::Version => "version",
            Self::Factor(name) => name,
        }
    }

    /// Value of a run.
    fn of(&self, run: &Run) -> Option<String> {
        match self {
            Self::Day => Some(run.header.started_utc.get(..10)?.to_owned()),
            Self::Kernel => run.header.machine.kernel.clone(),
            Self::Version => Some(run.header.takt.clone()),
            Self::Factor(name) => sides::facts(run).remove(name),
        }
        .map(|value| clean(&value))
    }
}

/// One run of a history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Its kernel, version, day or factor.
    pub at: String,
    pub run: String,
    pub started_utc: String,
    /// The figure of the run; null where the quantile lies among samples that never came.
    pub ns: Option<f64>,
}

/// A change of level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangePoint {
    pub measure: String,
    pub configuration: String,
    /// Whether it became worse.
    pub worse: bool,
    /// Whether the last level is nearer to the one after it than to the one before.
    pub lasting: bool,
    /// The first kernel, version or day at the new level.
    pub at: String,
    /// The last at the level before; the same where the change came within it.
    pub after: String,
    /// The first run at the new level.
    pub run: String,
    pub started_utc: String,
    /// Level before, and after; null where most of it lies among samples that never came.
    pub before_ns: Option<f64>,
    pub after_ns: Option<f64>,
    /// A share of the level before; null where one of the levels is.
    pub difference: Option<f64>,
    /// Ends of its 99 % interval; null with too few runs.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Probability that chance makes such a change.
    pub p: f64,
}

/// One measure in one configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    pub robot: String,
    pub measure: String,
    pub title: String,
    pub configuration: String,
    /// The figure of a run: `p99`.
    pub figure: String,
    pub points: Vec<Point>,
    /// Begins and ends of levels; empty if there are too few figures.
    #[serde(skip)]
    levels: Vec<usize>,
}

/// Result of a history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct History {
    /// Quantity on its axis: `kernel`, `version`, `day`, or a factor.
    pub by: String,
    /// All changes of level, in the order of the series and of their runs.
    pub change_points: Vec<ChangePoint>,
    /// The first kernel, version or day from which on something is worse to this day; null where
    /// nothing is.
    pub first_bad: Option<String>,
    pub series: Vec<Series>,
    /// Runs that were found and are not in it, with the reason.
    pub left_out: Vec<String>,
}

/// Options of a history.
#[derive(Clone, Debug)]
pub struct Options {
    /// The order of the runs.
    pub by: By,
    /// Only this measure; those that the verdict of the runs is about when absent.
    pub measure: Option<String>,
    /// Quantile that is the figure of a run.
    pub quantile: f64,
}

/// Finds the changes of level in the runs at `paths`: run directories, campaigns, folders of them.
///
/// # Errors
/// As [`takt_report::collect`]; [`Error::NoRuns`]; [`Error::Report`] where no run has the measure;
/// [`Error::NoOrder`] where no run shows what the history is over.
pub fn history(paths: &[PathBuf], options: &Options) -> Result<History, Error> {
    let collection = takt_report::collect(paths)?;
    let mut left_out: Vec<String> =
        collection.gaps.iter().map(|gap| format!("{}: {}", gap.what, gap.why)).collect();
    let mut runs = sides::usable(&collection, "runs", &HashSet::new(), &mut left_out)?.runs;
    let by = options.by.name().to_owned();
    runs.retain(|run| {
        let reported = options.by.of(run).is_some();
        if !reported {
            left_out.push(clean(&format!("{}: it does not state its {by}", run.name)));
        }
        reported
    });
    if runs.is_empty() {
        return Err(Error::NoOrder { by });
    }
    let varying = sides::varying(&[&runs]);
    // By robot, measure and configuration.
    let mut cells: BTreeMap<(String, String, String), sides::Members<'_>> = BTreeMap::new();
    for run in &runs {
        let facts = sides::facts(run);
        let words: Vec<String> = varying
            .iter()
            .filter(|name| **name != by)
            .filter_map(|name| Some(format!("{name} {}", facts.get(name)?)))
            .collect();
        for measure in sides::asked(run, options.measure.as_deref()) {
            let key = (run.header.robot.clone(), measure.name.clone(), clean(&words.join(", ")));
            cells.entry(key).or_default().push((*run, measure));
        }
    }
    if cells.is_empty() {
        let mut there: Vec<&str> =
            runs.iter().flat_map(|run| run.header.measures.iter().map(|m| m.name.as_str())).collect();
        there.sort_unstable();
        there.dedup();
        let asked = options.measure.clone().unwrap_or_else(|| "(the main one)".to_owned());
        return Err(takt_report::Error::NoSuchMeasure { asked, there: there.join(", ") }.into());
    }
    let (mut series, mut change_points) = (Vec::new(), Vec::new());
    for ((robot, _, configuration), members) in cells {
        let (one, mut changes) = of_series(&robot, &configuration, members, options, &mut left_out)?;
        series.push(one);
        change_points.append(&mut changes);
    }
    let worst = change_points.iter().filter(|c| c.worse && c.lasting).map(|c| c.at.clone());
    let first_bad = worst.min_by(|a, b| natural(a, b));
    Ok(History { by, change_points, first_bad, series, left_out })
}

fn of_series(
    robot: &str,
    configuration: &str,
    mut members: sides::Members<'_>,
    options: &Options,
    left_out: &mut Vec<String>,
) -> Result<(Series, Vec<ChangePoint>), Error> {
    let at = |run: &Run| options.by.of(run).unwrap_or_default();
    members.sort_by(|(a, _), (b, _)| {
        natural(&at(a), &at(b)).then_with(|| a.header.started_utc.cmp(&b.header.started_utc))
    });
    if members.len() > change::MOST {
        let more = members.len() - change::MOST;
        left_out
            .push(format!("{configuration}: the first {more} runs: a history has at most {}", change::MOST));
        members.drain(..more);
    }
    let mut points = Vec::with_capacity(members.len());
    let mut logs = Vec::with_capacity(members.len());
    for (run, measure) in &members {
        let figure = match RunFigures::read(run, measure, &[options.quantile]) {
            Ok(figure) => figure,
            Err(error) => {
                left_out.push(clean(&format!("{}: {}: {error}", run.name, measure.name)));
                continue;
            }
        };
        logs.push(figure.log(0));
        points.push(Point {
            at: at(run),
            run: run.name.clone(),
            started_utc: clean(&run.header.started_utc),
            ns: Some(figure.values_ns[0]).filter(|ns| ns.is_finite()),
        });
    }
    let figures = logs.clone();
    let finite = figures.iter().filter(|log| log.is_finite()).count();
    // A sample that never came is worse than all others, and a search for levels needs a number:
    // ten times the worst. Where next to nothing came, there is no level to search for.
    let worst = logs.iter().copied().filter(|log| log.is_finite()).fold(0.0, f64::max);
    logs.iter_mut().filter(|log| !log.is_finite()).for_each(|log| *log = worst + 10f64.ln());
    let mut changes = match finite {
        FEWEST.. => change::changes(&logs, |index| points[index].at != points[index - 1].at, SEED),
        _ => Vec::new(),
    };
    changes.retain(|change| change.shift.estimate.abs() > MIN_CHANGE.ln_1p());
    let (_, measure) = members[0];
    let mut ends: Vec<usize> = std::iter::once(0).chain(changes.iter().map(|c| c.at)).collect();
    ends.push(logs.len());
    let level = |index: usize| judge::middle(&logs[ends[index]..ends[index + 1]]);
    let ns = |index: usize| {
        Some(judge::middle(&figures[ends[index]..ends[index + 1]]).exp()).filter(|ns| ns.is_finite())
    };
    let last = level(ends.len() - 2);
    let change_points = changes.iter().enumerate().map(|(index, change)| {
        let (before, after) = (level(index), level(index + 1));
        let (before_ns, after_ns) = (ns(index), ns(index + 1));
        // Of what never came no share is known.
        let share = |log: f64| before_ns.and(after_ns).map(|_| log.exp_m1());
        let first = &points[change.at];
        ChangePoint {
            measure: clean(&measure.name),
            configuration: configuration.to_owned(),
            worse: change.shift.estimate > 0.0,
            lasting: (last - after).abs() < (last - before).abs(),
            at: first.at.clone(),
            after: points[change.at - 1].at.clone(),
            run: first.run.clone(),
            started_utc: first.started_utc.clone(),
            before_ns,
            after_ns,
            difference: share(change.shift.estimate),
            low: change.shift.low.and_then(share),
            high: change.shift.high.and_then(share),
            p: change.p,
        }
    });
    let change_points = change_points.collect();
    let series = Series {
        robot: clean(robot),
        measure: clean(&measure.name),
        title: clean(&measure.title),
        configuration: configuration.to_owned(),
        figure: figure_name(options.quantile),
        levels: if finite < FEWEST { Vec::new() } else { ends },
        points,
    };
    Ok((series, change_points))
}

/// A piece of a version; the variants are in their order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Piece<'a> {
    /// Mark that makes a version earlier than the one without it: `~` of packages, `-rc` of the
    /// kernel.
    Before(&'a str),
    End,
    Words(&'a str),
    Number(u64),
}

fn pieces(version: &str) -> Vec<Piece<'_>> {
    // Until the first character that is a digit, or is none.
    let until =
        |text: &str, digit: bool| text.find(|c: char| c.is_ascii_digit() == digit).unwrap_or(text.len());
    let (mut pieces, mut rest) = (Vec::new(), version);
    while !rest.is_empty() {
        let (digits, after) = rest.split_at(until(rest, false));
        if !digits.is_empty() {
            pieces.push(Piece::Number(digits.parse().unwrap_or(u64::MAX)));
        }
        let (text, next) = after.split_at(until(after, true));
        let candidate = text.strip_suffix("-rc").filter(|_| !next.is_empty());
        let mut words = candidate.unwrap_or(text).split('~');
        pieces.extend(words.next().filter(|first| !first.is_empty()).map(Piece::Words));
        pieces.extend(words.chain(candidate.map(|_| "rc")).map(Piece::Before));
        rest = next;
    }
    pieces.push(Piece::End);
    pieces
}

/// As versions are ordered: numbers within them count as numbers, and what begins with `-rc` and a
/// number, or with `~`, comes before the release.
fn natural(a: &str, b: &str) -> Ordering {
    pieces(a).cmp(&pieces(b)).then_with(|| a.cmp(b))
}

impl History {
    /// The history as a picture (SVG): every run, the levels, and the changes between them.
    pub fn picture(&self) -> String {
        let pictures: Vec<HistoryPicture> = self
            .series
            .iter()
            .map(|series| HistoryPicture {
                title: format!("{} of {}, {}", series.figure, series.title, series.configuration),
                points: series.points.iter().map(|p| HistoryPoint { at: p.at.clone(), ns: p.ns }).collect(),
                levels: series
                    .levels
                    .windows(2)
                    .map(|ends| {
                        let ns =
                            series.points[ends[0]..ends[1]].iter().map(|p| p.ns.unwrap_or(f64::INFINITY));
                        (ends[0], ends[1], judge::middle(&ns.collect::<Vec<f64>>()))
                    })
                    .collect(),
            })
            .collect();
        takt_report::history_picture(&pictures, &self.by)
    }

    pub fn document(&self) -> Document {
        let mut section = Section::new("history", "Changes of level");
        let heads = [
            "Measure",
            "Configuration",
            "#From",
            "#To",
            "#Change (%)",
            "First",
            "Last before",
            "Run",
            "Lasts",
        ];
        let mut table = Table::new(format!("By {}", self.by), &heads);
        for change in &self.change_points {
            let number = |share: f64| takt_report::short((share * 1000.0).round() / 10.0);
            let ns =
                |ns: Option<f64>| ns.map_or_else(|| Cell::gap("never came"), |ns| Cell::number(time(ns)));
            table.push(vec![
                Cell::text(&change.measure),
                Cell::text(&change.configuration),
                ns(change.before_ns),
                ns(change.after_ns),
                match change.difference {
                    Some(by) => Cell::Estimate(number(by), change.low.map(number), change.high.map(number)),
                    None => Cell::gap("unknown"),
                },
                Cell::text(&change.at),
                Cell::text(&change.after),
                Cell::text(&change.run),
                Cell::text(if change.lasting { "yes" } else { "no" }),
            ]);
        }
        let runs: usize = self.series.iter().map(|series| series.points.len()).sum();
        let runs = takt_report::count(runs, "run", "runs");
        section.add(Block::Paragraph(match (&self.first_bad, self.change_points.len()) {
            _ if self.series.iter().all(|series| series.levels.is_empty()) => format!(
                "{runs}: too few to judge; a history needs at least {FEWEST} runs with a figure, in one configuration."
            ),
            (_, 0) => format!("{runs}, one level: no change beyond chance."),
            (None, n) => format!(
                "{runs}, {} of level; none is a lasting regression.",
                takt_report::count(n, "change", "changes")
            ),
            (Some(first), n) => {
                let change = self.change_points.iter().find(|c| c.worse && c.lasting && c.at == *first);
                let by = change.map_or_else(String::new, |c| {
                    format!(" ({}, {})", c.measure, signed(c.difference))
                });
                format!(
                    "{runs}, {} of level; worse since {} {first}{by}.",
                    takt_report::count(n, "change", "changes"),
                    self.by
                )
            }
        }));
        if !self.change_points.is_empty() {
            table.note(
                "The probability of a change by chance assumes independent runs. If the machine was in one state for several runs, that \
                 causes changes, too.",
            );
            section.add(Block::Table(table));
        }
        let mut sections = vec![section];
        if !self.left_out.is_empty() {
            let mut section = Section::new("left-out", "Left out");
            section.add(Block::List(self.left_out.clone()));
            sections.push(section);
        }
        Document { title: "Takt history".to_owned(), sections, papers: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let mut kernels = ["6.12.9", "6.12.43+deb13-rt", "6.12.43", "6.1.140", "6.12.10", "6.8.0-rt"];
        kernels.sort_by(|a, b| natural(a, b));
        assert_eq!(kernels, ["6.1.140", "6.8.0-rt", "6.12.9", "6.12.10", "6.12.43", "6.12.43+deb13-rt"]);
        let mut candidates = ["6.8.0", "6.8.0-rt1", "6.8.0-rc10", "6.8.1~rc1", "6.8.1", "6.8.0-rc9", "6.7.9"];
        candidates.sort_by(|a, b| natural(a, b));
        assert_eq!(
            candidates,
            ["6.7.9", "6.8.0-rc9", "6.8.0-rc10", "6.8.0", "6.8.0-rt1", "6.8.1~rc1", "6.8.1"]
        );
        assert_eq!(natural("a10", "a9"), Ordering::Greater);
        assert_eq!(natural("", "a"), Ordering::Less);
        // Without its number it is a word like others.
        assert_eq!(natural("6.8.0-rc", "6.8.0"), Ordering::Greater);
        assert_eq!(natural("6.8~~", "6.8~"), Ordering::Less);
        let large = "9".repeat(30);
        assert_eq!(natural(&large, "9"), Ordering::Greater);
    }
}
