//! Tables in shapes that papers have, for any measure: lowest shares, conditions with their
//! durations, effects of a factor.

use std::collections::BTreeMap;

use takt_rundir::Factor;
use takt_stats::low::LowRow;

use super::{Context, spread};
use crate::digest::Digest;
use crate::figure::fit;
use crate::table::{Cell, Table};
use crate::words::days_hours_minutes;

/// Configurations side by side in one Low table: the paper's nine tunings.
const SIDE_BY_SIDE: usize = 9;
/// Longest name at the head of a column; longer ones get a key.
const HEAD: usize = 36;
/// Longest value of a factor at the head of a column.
const VALUE: usize = 16;

/// A figure of a share.
type Pick = fn(&LowRow) -> f64;

/// The 2009 paper's Figs. 7 and 8: figures of the lowest 99 %, 99.9 %, … of the values,
/// configurations side by side; a table for each interference, the one without first.
pub fn low(context: &Context<'_>) -> Vec<Table> {
    low_tables(context, None)
}

/// Those of the configurations without interference, or of the others.
pub fn low_of(context: &Context<'_>, idle: bool) -> Vec<Table> {
    low_tables(context, Some(idle))
}

fn low_tables(context: &Context<'_>, wanted: Option<bool>) -> Vec<Table> {
    let parts = by_interference(context);
    let parts = parts.iter().filter(|(idle, ..)| wanted.is_none_or(|wanted| wanted == *idle));
    let tables = parts.flat_map(|(_, what, digests)| {
        let chunks: Vec<&[&Digest]> = digests.chunks(SIDE_BY_SIDE).collect();
        let of = chunks.len();
        let table = |(number, chunk): (usize, &[&Digest])| {
            let mut words = vec![context.unit.sign().to_owned()];
            words.extend(what.clone());
            if of > 1 {
                words.push(format!("part {} of {of}", number + 1));
            }
            low_table(context, chunk, &words.join(", "), what.is_some())
        };
        chunks.into_iter().enumerate().map(table).collect::<Vec<_>>()
    });
    tables.collect()
}

/// Configurations by the values of the factors that are an interference, in words; those without it
/// first. One part without words where no such factor varies.
fn by_interference<'a>(context: &Context<'a>) -> Vec<(bool, Option<String>, Vec<&'a Digest>)> {
    let collection = context.collection;
    let interferences: Vec<&String> =
        collection.varying.iter().filter(|name| crate::collect::is_interference(name)).collect();
    let mut parts: Vec<(bool, Option<String>, Vec<&Digest>)> = Vec::new();
    for digest in context.digests {
        let factors = &collection.configurations[digest.configuration].factors;
        let there = || factors.iter().filter(|factor| interferences.contains(&&factor.name));
        let words: Vec<String> =
            there().map(|factor| crate::words::clean(&format!("{} {}", factor.name, factor.value))).collect();
        // An interference that is the same in all runs is one all the same.
        let all = factors.iter().filter(|factor| crate::collect::is_interference(&factor.name));
        let idle = all.into_iter().all(|factor| crate::collect::is_idle(&factor.value));
        let what = (!words.is_empty()).then(|| words.join(", "));
        match parts.iter_mut().find(|(_, known, _)| *known == what) {
            Some((.., digests)) => digests.push(digest),
            None => parts.push((idle, what, vec![digest])),
        }
    }
    parts.sort_by_key(|(idle, ..)| !idle);
    parts
}

/// A configuration's name beside others under the same interference: the values of its other
/// factors, as the paper has them.
fn name_beside(context: &Context<'_>, digest: &Digest) -> String {
    let factors = &context.collection.configurations[digest.configuration].factors;
    let varying = |factor: &&Factor| {
        context.collection.varying.contains(&factor.name) && !crate::collect::is_interference(&factor.name)
    };
    let others: Vec<&Factor> = factors.iter().filter(varying).collect();
    match others[..] {
        [] => context.name(digest).to_owned(),
        [only] => crate::words::clean(&only.value),
        _ => {
            let words: Vec<String> = others.iter().map(|f| format!("{} {}", f.name, f.value)).collect();
            crate::words::clean(&words.join(" · "))
        }
    }
}

fn low_table(context: &Context<'_>, digests: &[&Digest], words: &str, beside: bool) -> Table {
    let unit = context.unit;
    let mut heads = vec!["Share".to_owned(), "Figure".to_owned()];
    let name = |d: &&Digest| if beside { name_beside(context, d) } else { context.name(d).to_owned() };
    let names: Vec<String> = digests.iter().map(name).collect();
    let (names, key) = fit(&names, HEAD, 'C');
    heads.extend(names.iter().map(|name| format!("#{name}")));
    let mut table = Table::new(format!("{}: lowest shares ({words})", context.group.title), &heads);
    let shares = digests.iter().map(|d| d.low.len()).max().unwrap_or(0);
    for share in 0..shares {
        let label = digests.iter().find_map(|d| d.low.get(share)).map_or(String::new(), |row| row.label());
        let figures: [(&str, Pick); 4] =
            [("min", |r| r.min), ("max", |r| r.max), ("mean", |r| r.mean), ("SD", |r| r.stddev)];
        // The least value is the same in all shares.
        for (figure, pick) in figures.into_iter().filter(|(figure, _)| share == 0 || *figure != "min") {
            let mut row = vec![Cell::text(&label), Cell::text(figure)];
            row.extend(digests.iter().map(|d| match d.low.get(share) {
                Some(low) if low.count > 0 => Cell::number(unit.number(pick(low))),
                _ => Cell::gap(why_empty(context, d).0),
            }));
            table.push(row);
        }
    }
    if shares == 0 {
        let mut row = vec![Cell::text("100 %"), Cell::text("max")];
        row.extend(digests.iter().map(|d| Cell::gap(why_empty(context, d).0)));
        table.push(row);
    }
    for (name, digest) in names.iter().zip(digests).filter(|(_, digest)| digest.summary.count == 0) {
        if let (word, Some(why)) = why_empty(context, digest) {
            table.note(format!("{name}: {word}: {}", crate::words::clean(&why)));
        }
    }
    table.note("Each row leaves out only the greatest values; the last row includes all.");
    for (short, long) in key {
        table.note(format!("{short}: {long}"));
    }
    // A column named after a tuning that the kernel or the machine did not grant is not one of that
    // tuning.
    let mut refused: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, digest) in names.iter().zip(digests) {
        let runs = &context.collection.configurations[digest.configuration].runs;
        for text in
            runs.iter().map(|&run| &context.collection.runs[run]).flat_map(|run| &run.header.not_granted)
        {
            let text = crate::words::clean(text);
            match refused.iter_mut().find(|(known, _)| *known == text) {
                Some((_, columns)) if columns.contains(&name.as_str()) => {}
                Some((_, columns)) => columns.push(name.as_str()),
                None => refused.push((text, vec![name.as_str()])),
            }
        }
    }
    for (text, columns) in refused {
        table.note(format!("Not granted in {}: {text}", columns.join(", ")));
    }
    table
}

/// Reason why a configuration has no values: a word or two, and the full reason if no other note of
/// the table shows it.
fn why_empty(context: &Context<'_>, digest: &Digest) -> (&'static str, Option<String>) {
    let configuration = &context.collection.configurations[digest.configuration];
    let headers = || configuration.runs.iter().map(|&run| &context.collection.runs[run].header);
    if headers().any(|header| !header.not_granted.is_empty()) {
        return ("NOT GRANTED", None);
    }
    let mut unread = digest.failed.iter().map(|(_, why)| why.clone());
    let mut failed = headers().flat_map(|header| header.failures.iter().chain(&header.problems)).cloned();
    let mut absent = configuration.absent.iter().map(|(_, why)| why.clone());
    match unread.next().or_else(|| failed.next()) {
        Some(why) => ("failed", Some(why)),
        None => match absent.next() {
            Some(why) => ("no run", Some(why)),
            None => ("no samples", None),
        },
    }
}

/// The DAQ paper's Tables 1 to 5: condition, greatest and mean latency, duration.
pub fn conditions(context: &Context<'_>) -> Table {
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
            match digest.duration_s().filter(|_| !digest.runs.is_empty()) {
                Some(seconds) => Cell::number(days_hours_minutes(seconds)),
                None => Cell::gap("no times and no rate are recorded"),
            },
            Cell::number(digest.summary.count),
        ]);
    }
    table.note("Duration: from the first sample to the last, all repetitions together. A longer test can only raise Td_max.");
    table
}

/// For each factor with exactly two values: what the change from one to the other did to mean, P99
/// and worst value, everything else equal (the quadrotor paper's Table 5).
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
                // Over repetitions: the median of the runs' figures, so that one bad run does not
                // make the effect.
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
            "Medians over repetitions. Negative: faster. To see whether a change is more than chance, compare with intervals (takt \
             compare).",
        );
        (!table.rows().is_empty()).then_some(table)
    };
    values.into_iter().filter_map(table_of).collect()
}
