//! Amount of work of two sides. A side that judged fewer frames, or ran fewer jobs, answered the
//! others sooner: that is not better.

use serde::Serialize;
use takt_rundir::{Measure, RunHeader};

/// One kind of work on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkOfSides {
    /// Short name: `frames_judged`.
    pub name: String,
    /// For people.
    pub title: String,
    /// Amount over all repetitions; null if a side does not report it.
    pub counts: [Option<u64>; 2],
    /// The same a second, where the length of the windows is known.
    pub per_second: [Option<f64>; 2],
    /// Difference (a share) up to which the work counts as the same.
    pub tolerance: f64,
}

/// Work of a run, and its time in seconds, if known.
pub type Did<'a> = (&'a [takt_rundir::Work], Option<f64>);

/// Work of a run in the window of a measure.
fn did<'a>((header, measure): (&'a RunHeader, &'a Measure)) -> Did<'a> {
    (&header.work, seconds(measure))
}

/// Length of a measure's window; `None` if unknown.
pub fn seconds(measure: &Measure) -> Option<f64> {
    let window = measure.window_ns.filter(|[_, to]| *to != u64::MAX);
    window.map(|[from, to]| to.saturating_sub(from) as f64 / 1e9)
}

/// The work of one side: counts and seconds, by name in the order of the first run.
struct Side {
    items: Vec<(takt_rundir::Work, u64)>,
    seconds: Option<f64>,
}

impl Side {
    fn of<'a>(runs: impl Iterator<Item = Did<'a>>) -> Self {
        let mut side = Self { items: Vec::new(), seconds: Some(0.0) };
        for (works, seconds) in runs {
            side.seconds = side.seconds.zip(seconds).map(|(sum, one)| sum + one);
            for work in works {
                match side.items.iter_mut().find(|(known, _)| known.name == work.name) {
                    Some((_, count)) => *count = count.saturating_add(work.count),
                    None => side.items.push((work.clone(), work.count)),
                }
            }
        }
        side
    }

    fn count(&self, name: &str) -> Option<u64> {
        self.items.iter().find(|(work, _)| work.name == name).map(|(_, count)| *count)
    }
}

/// Work of both sides: every kind of work that at least one of them reports.
pub(super) fn of_sides<'a, I>(sides: [I; 2]) -> Vec<WorkOfSides>
where
    I: Iterator<Item = (&'a RunHeader, &'a Measure)>,
{
    kinds(sides.map(|runs| Side::of(runs.map(did))))
}

fn kinds(sides: [Side; 2]) -> Vec<WorkOfSides> {
    let mut kinds: Vec<&takt_rundir::Work> = Vec::new();
    for (work, _) in sides.iter().flat_map(|side| &side.items) {
        if !kinds.iter().any(|known| known.name == work.name) {
            kinds.push(work);
        }
    }
    let of_kind = |work: &takt_rundir::Work| {
        let counts = [0, 1].map(|side| sides[side].count(&work.name));
        let per_second = [0, 1].map(|side| {
            let seconds = sides[side].seconds.filter(|seconds| *seconds > 0.0)?;
            Some(counts[side]? as f64 / seconds)
        });
        WorkOfSides {
            name: crate::words::clean(&work.name),
            title: crate::words::clean(&work.title),
            counts,
            per_second,
            // A share from a file: no run may allow itself everything.
            tolerance: if (0.0..=0.5).contains(&work.tolerance) { work.tolerance } else { 0.0 },
        }
    };
    kinds.into_iter().map(of_kind).collect()
}

/// Kinds of work of which `side` did less than the other, beyond the tolerance; empty if either
/// does not report.
pub(super) fn less(work: &[WorkOfSides], side: usize) -> Vec<String> {
    let less = |kind: &WorkOfSides| {
        let (mine, theirs) = (kind.per_second[side]?, kind.per_second[1 - side]?);
        (mine < theirs * (1.0 - kind.tolerance)).then(|| {
            format!(
                "{}: {mine:.1} a second against {theirs:.1}, {:.0} % less counts as the same work",
                kind.title,
                100.0 * kind.tolerance
            )
        })
    };
    work.iter().filter_map(less).collect()
}

/// In what the runs after did less than those before, beyond the tolerance; nothing where either
/// does not report.
pub fn did_less<'a>(
    before: impl Iterator<Item = Did<'a>>,
    after: impl Iterator<Item = Did<'a>>,
) -> Vec<String> {
    less(&kinds([Side::of(before), Side::of(after)]), 1)
}

/// The work of both sides in a sentence.
pub(super) fn remark(work: &[WorkOfSides], letters: &[String; 2]) -> Option<String> {
    if work.is_empty() {
        return None;
    }
    let count =
        |count: Option<u64>| count.map_or_else(|| "not reported".to_owned(), |count| count.to_string());
    let kind =
        |kind: &WorkOfSides| format!("{} {} / {}", kind.title, count(kind.counts[0]), count(kind.counts[1]));
    let kinds: Vec<String> = work.iter().map(kind).collect();
    Some(format!("work of {} / {}: {}", letters[0], letters[1], kinds.join(", ")))
}
