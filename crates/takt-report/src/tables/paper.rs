//! Tables in the shape of the papers: the 2009 humanoid's Low percent, the DAQ loop's conditions, effects of a factor.

use std::collections::BTreeMap;

use takt_rundir::Factor;
use takt_stats::low::LowRow;

use super::{Context, spread};
use crate::digest::Digest;
use crate::figure::fit;
use crate::table::{Cell, Table};
use crate::words::days_hours_minutes;

/// Configurations side by side in one Low table: the paper has nine.
const SIDE_BY_SIDE: usize = 8;
/// Longest name at the head of a column; longer ones get a key.
const HEAD: usize = 36;
/// Longest value of a factor at the head of a column.
const VALUE: usize = 16;

/// A figure of a share.
type Pick = fn(&LowRow) -> f64;

/// The 2009 paper's Figs. 7 and 8: figures of the lowest 99 %, 99.9 %, … of the values, configurations side by side.
pub fn low(context: &Context<'_>) -> Vec<Table> {
    let unit = context.unit;
    let chunks: Vec<&[Digest]> = context.digests.chunks(SIDE_BY_SIDE).collect();
    let table_of = |(number, chunk): (usize, &&[Digest])| {
        let mut heads = vec!["Share".to_owned(), "Figure".to_owned()];
        let names: Vec<String> = chunk.iter().map(|d| context.name(d).to_owned()).collect();
        let (names, key) = fit(&names, HEAD, 'C');
        heads.extend(names.iter().map(|name| format!("#{name}")));
        let part = if chunks.len() > 1 {
            format!(", part {} of {}", number + 1, chunks.len())
        } else {
            String::new()
        };
        let title = format!("{}: lowest shares ({}{part})", context.group.title, unit.sign());
        let mut table = Table::new(title, &heads);
        let shares = chunk.iter().map(|d| d.low.len()).max().unwrap_or(0);
        for share in 0..shares {
            let label = chunk.iter().find_map(|d| d.low.get(share)).map_or(String::new(), |row| row.label());
            let figures: [(&str, Pick); 4] =
                [("min", |r| r.min), ("max", |r| r.max), ("mean", |r| r.mean), ("SD", |r| r.stddev)];
            // The least value is the same in all shares.
            for (figure, pick) in figures.into_iter().filter(|(figure, _)| share == 0 || *figure != "min") {
                let mut row = vec![Cell::text(&label), Cell::text(figure)];
                row.extend(chunk.iter().map(|d| match d.low.get(share) {
                    Some(low) if low.count > 0 => Cell::number(unit.number(pick(low))),
                    _ => Cell::gap("no samples"),
                }));
                table.push(row);
            }
        }
        table.note(
            "Each share leaves out the greatest values and nothing else; the last row has them all (the humanoid paper of \
             2009, Figs. 7 and 8).",
        );
        for (short, long) in key {
            table.note(format!("{short}: {long}"));
        }
        table
    };
    chunks.iter().enumerate().map(table_of).collect()
}

/// The DAQ paper's Tables 1 to 5: condition, greatest and mean latency, duration.
pub fn daq(context: &Context<'_>) -> Table {
    let unit = context.unit;
    let heads = [
        "#Test".to_owned(),
        "Condition".to_owned(),
        context.head("Td_max"),
        context.head("Td_mean"),
        "#Duration (dd:hh:mm:ss)".to_owned(),
        "#Samples".to_owned(),
    ];
    let mut table = Table::new(format!("{}: conditions", context.group.title), &heads);
    for (index, digest) in context.digests.iter().enumerate() {
        let measured = |ns: f64| match digest.summary.count {
            0 => Cell::gap("no samples"),
            _ => Cell::number(unit.number(ns)),
        };
        table.push(vec![
            Cell::number(index + 1),
            Cell::text(context.name(digest)),
            measured(digest.summary.worst),
            measured(digest.summary.mean),
            match digest.duration_s() {
                Some(seconds) => Cell::number(days_hours_minutes(seconds)),
                None => Cell::gap("no times and no rate are recorded"),
            },
            Cell::number(digest.summary.count),
        ]);
    }
    table.note("Duration: from the first sample to the last, all repetitions together. A longer test can only raise Td_max.");
    table
}

/// For each factor with exactly two values: what the change from one to the other did to mean, P99 and worst value,
/// everything else equal (the quadrotor paper's Table 5).
pub fn effects(context: &Context<'_>) -> Vec<Table> {
    let collection = context.collection;
    let factors_of = |d: &Digest| &collection.configurations[d.configuration].factors;
    let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Factor { name, value } in context.digests.iter().flat_map(factors_of) {
        let seen = values.entry(name).or_default();
        if !seen.contains(&value.as_str()) {
            seen.push(value);
        }
    }
    let table_of = |(name, values): (&str, Vec<&str>)| -> Option<Table> {
        let [before, after] = values[..] else { return None };
        let (before, after) = if crate::collect::is_idle(after) && !crate::collect::is_idle(before) {
            (after, before)
        } else {
            (before, after)
        };
        let rest = |d: &Digest| -> Vec<Factor> {
            factors_of(d).iter().filter(|f| f.name != name).cloned().collect()
        };
        let has = |d: &Digest, value: &str| factors_of(d).iter().any(|f| f.name == name && f.value == value);
        let mut heads = vec!["Else".to_owned()];
        let long = [before, after].iter().any(|value| value.chars().count() > VALUE);
        let (a, b) = if long { ("before", "after") } else { (before, after) };
        for figure in ["Mean", "P99", "Max"] {
            heads.extend([context.head(&format!("{figure}, {a}")), context.head(&format!("{figure}, {b}"))]);
            heads.push(format!("#{figure}: change (%)"));
        }
        let title = format!("{}: effect of {name}, {before} to {after}", context.group.title);
        let mut table = Table::new(title, &heads);
        for first in context.digests.iter().filter(|d| has(d, before) && d.summary.count > 0) {
            let same = |d: &&Digest| has(d, after) && rest(d) == rest(first) && d.summary.count > 0;
            let Some(second) = context.digests.iter().find(same) else { continue };
            let varying = |f: &&Factor| !collection.common.contains(f);
            let rest: Vec<String> =
                rest(first).iter().filter(varying).map(|f| format!("{} {}", f.name, f.value)).collect();
            let mut row =
                vec![Cell::text(if rest.is_empty() { "all equal".to_owned() } else { rest.join(" · ") })];
            let figures: [fn(&takt_stats::Summary) -> f64; 3] = [|s| s.mean, |s| s.p99, |s| s.worst];
            for pick in figures {
                // Over repetitions: the median of the runs' figures, so that one bad run does not make the effect.
                let of = |d: &Digest| spread(d.runs.iter().map(|r| pick(&r.summary)))[0];
                let (a, b) = (of(first), of(second));
                row.extend([Cell::number(context.unit.number(a)), Cell::number(context.unit.number(b))]);
                row.push(match a > 0.0 {
                    true => Cell::number(format!("{:+.1}", 100.0 * (b - a) / a)),
                    false => Cell::gap("from 0"),
                });
            }
            table.push(row);
        }
        table.note(
            "Medians over repetitions. Negative: faster. Whether a change is more than chance is what a comparison with \
             intervals says (takt compare).",
        );
        (!table.rows().is_empty()).then_some(table)
    };
    values.into_iter().filter_map(table_of).collect()
}
