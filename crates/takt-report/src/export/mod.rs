//! Samples for other tools: cyclictest's histogram, CSV, MCAP.

mod mcap;
mod proto;

use std::io::Write;
use std::path::Path;

use takt_rundir::{Measure, RunDir, RunHeader};
use takt_stats::histogram::Histogram;

use crate::Error;
use crate::figures::Figures;

pub use mcap::{Exported, mcap};

/// Bins of a histogram where none are asked for: 10 ms, as most plots of cyclictest need.
pub const BINS: usize = 10_000;

/// Most bins: beyond ten seconds a bin of 1 µs says nothing.
pub(crate) const BINS_AT_MOST: usize = 10_000_000;

fn open(run: &Path, measure: Option<&str>) -> Result<(RunDir, RunHeader, Measure), Error> {
    let dir = RunDir::open(run)?;
    let header = dir.header()?;
    let found = match measure {
        // The first is the main one.
        None => header.measures.first(),
        Some(name) => header.measures.iter().find(|m| m.name == name),
    };
    let Some(found) = found.cloned() else {
        let names: Vec<&str> = header.measures.iter().map(|m| m.name.as_str()).collect();
        return Err(Error::NoSuchMeasure {
            asked: measure.unwrap_or("(the main one)").to_owned(),
            there: if names.is_empty() { "none".to_owned() } else { names.join(", ") },
        });
    };
    if !found.column.ends_with("_ns") {
        return Err(Error::MixedMeasure {
            measure: found.name,
            expected: "nanoseconds (a column whose name ends in _ns)".to_owned(),
            found: format!("column {}", found.column),
        });
    }
    Ok((dir, header, found))
}

/// The histogram of a run's measure (its main one by default) in bins of 1 µs, shown as
/// `cyclictest --histogram` prints it. Of a long run, every value counts, also those that were not
/// kept one by one.
///
/// # Errors
/// [`Error::RunDir`] for a run that cannot be read, [`Error::NoSuchMeasure`],
/// [`Error::MixedMeasure`].
pub fn histogram(run: &Path, measure: Option<&str>, bins: usize) -> Result<Histogram, Error> {
    let (dir, header, measure) = open(run, measure)?;
    let bins = bins.clamp(1, BINS_AT_MOST);
    let figures = Figures::read(&dir, &measure)?;
    if let Some(remark) = figures.remark {
        return Err(Error::NotWhole { run: header.label, remark });
    }
    // The samples kept one by one report the cycles of overflows too; the recorder reports more
    // where they are not all.
    Ok(match &figures.streamed {
        Some(all) => Histogram::of_recorder(&all.recorder, bins),
        None => Histogram::of(&figures.series.values_ns, bins),
    })
}

/// Writes a run's measure as CSV: `sample,time_ns,<measure>_ns`, a line each in the order of time;
/// without the time column where the run has none. Returns the number of samples.
///
/// # Errors
/// As [`histogram`], and [`Error::RunDir`] where `out` cannot be written.
pub fn csv(run: &Path, measure: Option<&str>, out: &mut impl Write) -> Result<u64, Error> {
    let (dir, _, measure) = open(run, measure)?;
    let series = dir.series(&measure)?;
    let mut write = || -> std::io::Result<()> {
        // The name becomes a column's name: nothing in it may end the field.
        let word = |c: char| if c.is_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
        let name: String = measure.name.chars().map(word).collect();
        let timed = series.times_ns.len() == series.values_ns.len() && !series.times_ns.is_empty();
        writeln!(out, "sample,{}{name}_ns", if timed { "time_ns," } else { "" })?;
        for (index, value) in series.values_ns.iter().enumerate() {
            match timed {
                true => writeln!(out, "{index},{},{value}", series.times_ns[index])?,
                false => writeln!(out, "{index},{value}")?,
            }
        }
        out.flush()
    };
    write().map_err(Error::io("the exported file"))?;
    Ok(series.values_ns.len() as u64)
}
