//! Latencies per configuration: the quadrotor paper's Table 4, SentryRT-1's worst and average over
//! repetitions, verdicts.

use takt_stats::{INTERVAL_CONFIDENCE, percent};

use super::{Context, interval, spread};
use crate::digest::Digest;
use crate::table::{Cell, Table};
use crate::words::{self, count, time};

/// Reason why a configuration has no figures.
fn nothing(context: &Context<'_>, digest: &Digest) -> Cell {
    let absent = &context.collection.configurations[digest.configuration].absent;
    match (digest.failed.first(), absent.first()) {
        (Some((_, why)), _) | (None, Some((_, why))) => Cell::gap(why),
        (None, None) => Cell::gap("no samples"),
    }
}

/// Verdict per configuration, with the reasons and how much longer to measure.
pub fn verdicts(context: &Context<'_>) -> Table {
    let heads = ["Configuration", "Verdict", "#Deadline", "#Worst", "#Misses", "Reasons", "Measure further"];
    let mut table = Table::new(format!("Verdicts: {}", context.group.title), &heads);
    for digest in context.digests {
        let name = Cell::text(context.name(digest));
        if digest.runs.is_empty() {
            let why = nothing(context, digest);
            table.push(vec![
                name,
                Cell::gap("not measured"),
                Cell::gap("not measured"),
                Cell::gap("not measured"),
                Cell::gap("not measured"),
                why,
                Cell::gap("measure it"),
            ]);
            continue;
        }
        let (Some(verdict), Some(deadline)) = (&digest.verdict, digest.deadline_ns) else {
            table.push(vec![
                name,
                Cell::gap("no deadline is set"),
                Cell::gap("none"),
                match digest.summary.count {
                    0 => nothing(context, digest),
                    _ => Cell::number(time(digest.summary.worst)),
                },
                Cell::gap("no deadline"),
                Cell::text("Without a deadline there is nothing to meet or miss."),
                Cell::gap("no deadline"),
            ]);
            continue;
        };
        table.push(vec![
            name,
            Cell::Verdict(verdict.verdict),
            Cell::number(time(deadline as f64)),
            if digest.summary.count == 0 {
                nothing(context, digest)
            } else {
                Cell::number(time(digest.summary.worst))
            },
            digest.missed().map_or_else(|| Cell::gap("not measured"), Cell::number),
            Cell::text(match digest.excuse() {
                Some(why) => {
                    format!("{}; does not count, because it was given up: {why}", verdict.reasons.join("; "))
                }
                None => verdict.reasons.join("; "),
            }),
            match (verdict.measure_more_s, verdict.measure_more_samples) {
                (Some(seconds), _) if seconds > 0.0 => Cell::text(words::duration(seconds)),
                (_, Some(samples)) if samples > 0 => Cell::text(format!("{samples} samples")),
                _ => Cell::text("no"),
            },
        ]);
    }
    table.note(
        "FAIL: more samples were late or missing than the claim allows (without a claim: any), or the run failed for the reason given \
         there; more samples cannot change that. INCONCLUSIVE: the evidence supports neither a PASS nor a FAIL.",
    );
    table
}

/// Latency per configuration, in the shape of the quadrotor paper's Table 4 with intervals and
/// misses.
pub fn latency(context: &Context<'_>) -> Table {
    let unit = context.unit;
    let names = context.heads();
    let mut heads = names.clone();
    heads.extend(["#Runs", "#Samples"].map(str::to_owned));
    heads.extend(["Mean", "Median", "Max", "SD", "P90", "P99", "P99.9"].map(|name| context.head(name)));
    heads.extend(["#Misses", "#Longest run of misses", "#Stolen (%)", "Labels"].map(str::to_owned));
    let mut table = Table::new(format!("{} ({})", context.group.title, unit.sign()), &heads);
    for digest in context.digests {
        let s = &digest.summary;
        let mut row = context.cells(digest, &names);
        row.extend([Cell::number(digest.runs.len()), Cell::number(s.count)]);
        if s.count == 0 {
            row.push(nothing(context, digest));
            row.extend((0..6).map(|_| Cell::gap("not measured")));
        } else {
            let quantile = |q: f64| match digest.quantile(q) {
                Some(estimate) => interval(unit, estimate),
                None => Cell::gap("no samples"),
            };
            row.extend([
                Cell::number(unit.number(s.mean)),
                quantile(0.5),
                Cell::number(unit.number(s.worst)),
                match s.count {
                    1 => Cell::gap("one sample"),
                    _ => Cell::number(unit.number(s.stddev)),
                },
                quantile(0.9),
                quantile(0.99),
                quantile(0.999),
            ]);
        }
        row.extend(misses(digest));
        let runs = || digest.runs.iter().map(|r| &context.collection.runs[r.run]);
        row.push(match runs().map(|r| r.header.cpu.stolen).reduce(f64::max) {
            Some(stolen) => Cell::number(format!("{:.2}", 100.0 * stolen)),
            None => Cell::gap("no run"),
        });
        row.push(Cell::text(labels(context, digest)));
        table.push(row);
    }
    table.note(format!(
        "Quantiles: value [low, high], the low and high ends of the {} confidence interval from order statistics; – where the sample is \
         too short for one. All are measured values. Max is the greatest value measured: nothing is filtered.",
        percent(INTERVAL_CONFIDENCE)
    ));
    table.note(
        "SD: sample standard deviation (n − 1). Stolen: share of the machine's processor time that a hypervisor took in the measured \
         window (greatest of the runs).",
    );
    if context.digests.iter().any(|d| d.skipped() > 0) {
        table.note(
            "Missing samples (skipped releases, dropped or unanswered inputs) count as misses; the longest run of misses includes them if \
             the run counted along its release grid.",
        );
    }
    let counted = context.digests.iter().filter_map(|d| d.resolution.as_ref().map(|r| (context.name(d), r)));
    for (name, resolution) in counted {
        table.note(format!("{name}: {resolution}."));
    }
    table
}

fn misses(digest: &Digest) -> [Cell; 2] {
    if digest.runs.is_empty() {
        return [Cell::gap("not measured"), Cell::gap("not measured")];
    }
    if digest.deadline_ns.is_none() {
        return [Cell::gap("no deadline"), Cell::gap("no deadline")];
    }
    let skipped = digest.skipped();
    let Some(total) = digest.missed() else {
        return [Cell::gap("no samples"), Cell::gap("no samples")];
    };
    let missed =
        if skipped > 0 { format!("{total} ({skipped} skipped or dropped)") } else { total.to_string() };
    [Cell::number(missed), Cell::number(digest.longest_run())]
}

/// Labels that a reader of a configuration's runs must know; "none" if there are none.
fn labels(context: &Context<'_>, digest: &Digest) -> String {
    let mut labels: Vec<String> = Vec::new();
    for part in &digest.runs {
        let run = &context.collection.runs[part.run];
        labels.extend(run.labels().into_iter().map(|label| format!("{}: {label}", run.key)));
        if let Some(raw) = part.raw_samples {
            labels.push(format!("{}: {raw} of {} samples stored individually", run.key, part.summary.count));
        }
    }
    for part in &digest.runs {
        let key = &context.collection.runs[part.run].key;
        labels.extend(part.remark.as_ref().map(|remark| format!("{key}: {remark}")));
    }
    for (run, why) in &digest.failed {
        labels.push(format!("{}: left out, {why}", context.collection.runs[*run].key));
    }
    for (name, why) in &context.collection.configurations[digest.configuration].absent {
        labels.push(format!("{name}: {why}"));
    }
    if labels.is_empty() { "none".to_owned() } else { labels.join("; ") }
}

/// Worst and mean over repetitions (SentryRT-1, Fig. 3); `None` where nothing was repeated.
pub fn repetitions(context: &Context<'_>) -> Option<Table> {
    if context.digests.iter().all(|d| d.runs.len() < 2) {
        return None;
    }
    let unit = context.unit;
    let heads = [
        "Configuration".to_owned(),
        "#Repetitions".to_owned(),
        context.head("Worst: median [least, greatest]"),
        context.head("Mean: median [least, greatest]"),
    ];
    let mut table = Table::new(format!("{}: over repetitions", context.group.title), &heads);
    for digest in context.digests {
        let figure = |pick: fn(&takt_stats::Summary) -> f64| {
            if digest.summary.count == 0 {
                return nothing(context, digest);
            }
            let measured = digest.runs.iter().map(|r| &r.summary).filter(|s| s.count > 0);
            let [middle, low, high] = spread(measured.map(pick)).map(|v| unit.number(v));
            Cell::Estimate(middle, Some(low), Some(high))
        };
        table.push(vec![
            Cell::text(context.name(digest)),
            Cell::number(digest.runs.len()),
            figure(|s| s.worst),
            figure(|s| s.mean),
        ]);
    }
    let most = context.digests.iter().map(|d| d.runs.len()).max().unwrap_or(0);
    table.note(format!(
        "Each run gives one worst value and one mean; the median over {} is shown with the least and the greatest.",
        count(most, "repetition", "repetitions")
    ));
    Some(table)
}
