//! Kernel activity from the traces of runs: releases, causes of the late ones, activation paths.

use crate::collect::Collection;
use crate::figure::unaccounted_ns;
use crate::table::{Cell, Table};
use crate::traces::{Segment, Step, TRACE_FILE, Trace, Traced, Window, cause_title, sound};
use crate::words::{Unit, clean, short, shorten, time};

/// Runs beside one another in a table of activation sequences: with more, the page would have to be
/// pushed sideways.
const BESIDE: usize = 4;
/// Longest name of a thread or interrupt in a cell.
const WHO: usize = 60;

/// The segment that compares what the same code took: the job itself, without all that interrupted
/// it.
const OWN_TIME: &str = "execution_on_cpu";

/// A run with a trace that could be read.
pub type Good<'a> = (&'a Traced, &'a Trace);

/// Those of the traces that could be read.
pub fn good(traced: &[Traced]) -> Vec<Good<'_>> {
    traced.iter().filter_map(|t| Some((t, t.trace.as_ref().ok()?))).collect()
}

fn key<'a>(collection: &'a Collection, traced: &Traced) -> &'a str {
    &collection.runs[traced.run].key
}

fn configuration(collection: &Collection, traced: &Traced) -> Cell {
    let found = collection.configurations.iter().find(|c| c.runs.contains(&traced.run));
    found.map_or_else(|| Cell::gap("none"), |c| Cell::text(&c.name))
}

fn micro(us: Option<f64>) -> Cell {
    sound(us).map_or_else(|| Cell::gap("not reported"), |us| Cell::number(Unit::Micro.number(us * 1e3)))
}

fn whole(count: Option<u64>) -> Cell {
    count.map_or_else(|| Cell::gap("not reported"), Cell::number)
}

fn who(who: &str) -> Cell {
    let who = shorten(&clean(who), WHO);
    Cell::text(if who.is_empty() { "–".to_owned() } else { who })
}

/// Warnings for readers of the tables.
pub fn warnings(collection: &Collection, traced: &[Traced]) -> Vec<String> {
    let mut warnings = Vec::new();
    for one in traced {
        let key = key(collection, one);
        match &one.trace {
            Err(reason) => {
                warnings.push(format!("{key} has a trace that cannot be used ({TRACE_FILE}: {reason})."))
            }
            Ok(trace) => {
                if !trace.kept_awake.is_empty() {
                    let cpus: Vec<String> = trace.kept_awake.iter().map(u16::to_string).collect();
                    warnings.push(format!(
                        "In {key}, the tracer kept CPU {} awake, because the kernel records nothing there while the CPU is idle: the run \
                         has no idle exits there, and its figures are those of a machine that never sleeps.",
                        cpus.join(", ")
                    ));
                }
                let Some(lost) = trace.lost_events.filter(|lost| *lost > 0) else { continue };
                let share = match trace.events {
                    // As floating point: the sum of two counts from a damaged file may overflow.
                    Some(kept) => {
                        format!(" ({:.1} % of all)", 100.0 * lost as f64 / (lost as f64 + kept as f64))
                    }
                    None => String::new(),
                };
                warnings.push(format!(
                    "In {key}, {lost} events were lost{share}: releases that overlap a gap are not matched and have no cause, so segments \
                     and causes cover the others."
                ));
            }
        }
    }
    warnings
}

/// Every traced run: how much of it the trace holds.
pub fn releases(collection: &Collection, traced: &[Traced]) -> Table {
    let heads = [
        "Run",
        "Configuration",
        "Thread",
        "#Releases",
        "#Matched (%)",
        "#Late",
        "Late from",
        "#Events",
        "#Events lost",
    ];
    let mut table = Table::new("Traced runs", &heads);
    let mut notes: Vec<(String, Vec<String>)> = Vec::new();
    for one in traced {
        let mut row = vec![Cell::text(key(collection, one)), configuration(collection, one)];
        match &one.trace {
            Err(reason) => row.push(Cell::gap(reason)),
            Ok(trace) => {
                let matched = match (trace.matched, trace.releases) {
                    (Some(matched), Some(all)) if all > 0 => {
                        Cell::number(format!("{:.1}", 100.0 * matched as f64 / all as f64))
                    }
                    (Some(_), Some(_)) => Cell::gap("no releases"),
                    _ => Cell::gap("not reported"),
                };
                row.extend([
                    trace.task.as_ref().map_or_else(|| Cell::gap("not reported"), Cell::text),
                    whole(trace.releases),
                    matched,
                    whole(trace.late),
                    limits(trace),
                    whole(trace.events),
                    whole(trace.lost_events),
                ]);
                remarks(key(collection, one), trace, &mut notes);
            }
        }
        table.push(row);
    }
    table.note("Matched: every step of the activation is in the trace. Sequence and segments cover only these releases.");
    for (text, runs) in notes {
        table.note(format!("{}: {text}", runs.join(", ")));
    }
    table
}

fn limits(trace: &Trace) -> Cell {
    let limit = |what: &str, ns: Option<u64>| {
        ns.filter(|ns| *ns < u64::MAX).map(|ns| format!("{what} after {}", time(ns as f64)))
    };
    let limits = [limit("wake-up", trace.thresholds.lateness_ns), limit("end", trace.thresholds.response_ns)];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if limits.is_empty() { Cell::gap("not reported") } else { Cell::text(limits.join(", ")) }
}

/// Adds a run's remarks; the same sentence stands once, with all its runs.
fn remarks(key: &str, trace: &Trace, notes: &mut Vec<(String, Vec<String>)>) {
    let mut texts: Vec<(String, usize)> = Vec::new();
    for note in &trace.notes {
        let note = shorten(&clean(note), 300);
        match texts.iter_mut().find(|(text, _)| *text == note) {
            Some((_, times)) => *times += 1,
            None => texts.push((note, 1)),
        }
    }
    for (text, times) in texts {
        let run = if times > 1 { format!("{key} ({times} times)") } else { key.to_owned() };
        match notes.iter_mut().find(|(known, _)| *known == text) {
            Some((_, runs)) => runs.push(run),
            None => notes.push((text, vec![run])),
        }
    }
}

/// Causes of late releases, over all traced runs.
pub fn causes(collection: &Collection, good: &[Good<'_>]) -> Table {
    let heads = ["Run", "Cause", "Who, most often", "#Count", "#Worst (µs)", "#Total (µs)", "#Never ran"];
    let mut table = Table::new("Causes of late releases", &heads);
    for (one, trace) in good {
        let run = Cell::text(key(collection, one));
        if trace.causes.is_empty() {
            table.push(match trace.late {
                Some(0) => vec![
                    run,
                    Cell::text("no late release"),
                    who(""),
                    Cell::number(0),
                    Cell::text("–"),
                    Cell::text("–"),
                    Cell::text("–"),
                ],
                _ => vec![run],
            });
            continue;
        }
        for row in &trace.causes {
            table.push(vec![
                run.clone(),
                Cell::text(cause_title(&row.cause)),
                who(&row.who),
                whole(row.count),
                micro(row.worst_us),
                micro(row.total_us),
                whole(row.never_ran),
            ]);
        }
    }
    table.note(
        "Worst and total: wake-up after the planned release, or the end of the job where only the end was late. Never ran: releases \
         skipped after the late ones.",
    );
    table
}

/// Activation sequences side by side (the quadrotor paper's Table 6).
pub fn sequences(collection: &Collection, good: &[Good<'_>]) -> Vec<Table> {
    let reported: Vec<&Good<'_>> = good.iter().filter(|(_, trace)| !trace.sequence.is_empty()).collect();
    let all = reported.len().div_ceil(BESIDE);
    let mut tables = Vec::new();
    for (number, chunk) in reported.chunks(BESIDE).enumerate() {
        let part = if all > 1 { format!(" (part {} of {all})", number + 1) } else { String::new() };
        let heads: Vec<String> = chunk
            .iter()
            .flat_map(|(one, _)| {
                let key = key(collection, one);
                [format!("#{key}: Δt (µs)"), format!("{key}: event")]
            })
            .collect();
        let mut table = Table::new(format!("Activation sequence{part}"), &heads);
        let longest = chunk.iter().map(|(_, trace)| trace.sequence.len()).max().unwrap_or(0);
        for index in 0..longest {
            let pair = |(_, trace): &&Good<'_>| match trace.sequence.get(index) {
                Some(step) => [micro(step.median_us), Cell::text(event(step))],
                None => [Cell::text("–"), Cell::text("–")],
            };
            table.push(chunk.iter().flat_map(pair).collect());
        }
        table.note("Δt: median time since the entry of the interrupt.");
        for (one, _) in chunk {
            let name = configuration(collection, one).plain();
            table.note(format!("{}: {name}.", key(collection, one)));
        }
        tables.push(table);
    }
    tables
}

/// An event; one that only some releases had says how many.
fn event(step: &Step) -> String {
    let event = shorten(&clean(&step.event), WHO);
    match sound(step.share) {
        Some(share) if share < 0.9995 => format!("{event}, in {} %", short((share * 1e3).round() / 10.0)),
        _ => event,
    }
}

/// Distribution of each segment of the path, for each run.
pub fn segments(collection: &Collection, good: &[Good<'_>]) -> Option<Table> {
    let heads = [
        "Run",
        "Segment",
        "#Releases",
        "#Mean (µs)",
        "#Median (µs)",
        "#99 % (µs)",
        "#99.9 % (µs)",
        "#Worst (µs)",
    ];
    let mut table = Table::new("Segments of the activation path", &heads);
    for (one, trace) in good {
        for segment in &trace.segments_us {
            let title = if segment.title.trim().is_empty() { &segment.name } else { &segment.title };
            table.push(vec![
                Cell::text(key(collection, one)),
                Cell::text(shorten(&clean(title), 80)),
                whole(segment.count),
                micro(segment.mean),
                micro(segment.median),
                micro(segment.p99),
                micro(segment.p999),
                micro(segment.worst),
            ]);
        }
    }
    (!table.rows().is_empty()).then_some(table)
}

/// Cost of tracing: a 1 kHz loop with tracing off, on, and with rings that are not drained.
pub fn overhead(collection: &Collection, good: &[Good<'_>]) -> Option<Table> {
    let heads = [
        "Run",
        "Tracing",
        "#Lateness, median (µs)",
        "#99 % (µs)",
        "#Worst (µs)",
        "#Reader (% of a CPU)",
        "#Events per second",
        "#Lost",
    ];
    let mut table = Table::new("What tracing costs", &heads);
    let percent = |value: Option<f64>| match sound(value) {
        Some(value) => Cell::number(format!("{value:.2}")),
        None => Cell::gap("not reported"),
    };
    for (one, trace) in good {
        let Some(overhead) = &trace.overhead else { continue };
        for cost in &overhead.costs {
            table.push(vec![
                Cell::text(key(collection, one)),
                Cell::text(shorten(&clean(&cost.mode), 40)),
                micro(cost.lateness_us.median),
                micro(cost.lateness_us.p99),
                micro(cost.lateness_us.worst),
                percent(cost.reader_cpu_percent),
                whole(sound(cost.events_per_s).map(|events| events.round() as u64)),
                whole(cost.lost_events),
            ]);
        }
        if let (Some(ns), Some(share)) = (sound(overhead.ns_per_event), sound(overhead.cpu_percent)) {
            table.note(format!(
                "{}: an event costs {ns:.0} ns; together with the reader, tracing took {share:.2} % of the machine's CPU time.",
                key(collection, one)
            ));
        }
    }
    (!table.rows().is_empty()).then_some(table)
}

/// Additional time of the same code in one run compared with the first traced one.
pub fn dilation(collection: &Collection, good: &[Good<'_>]) -> Option<Table> {
    let own = |segment: &&Segment| segment.name == OWN_TIME;
    let median = |trace: &Trace| sound(trace.segments_us.iter().find(own)?.median).filter(|m| *m > 0.0);
    let reported: Vec<(&Traced, f64)> = good.iter().filter_map(|(one, t)| Some((*one, median(t)?))).collect();
    let &[(first, base), _, ..] = &reported[..] else { return None };
    let heads = [
        "Run".to_owned(),
        "Configuration".to_owned(),
        "#Median (µs)".to_owned(),
        format!("#Times {}", key(collection, first)),
    ];
    let mut table = Table::new("Execution of the job, without interrupts and other threads", &heads);
    for (one, median) in &reported {
        table.push(vec![
            Cell::text(key(collection, one)),
            configuration(collection, one),
            micro(Some(*median)),
            Cell::number(format!("{:.2}", median / base)),
        ]);
    }
    table.note("For the same code, more time means slower caches, memory or processor clock.");
    Some(table)
}

/// Late releases one by one.
pub fn windows(collection: &Collection, worst: &[(usize, &Window)]) -> Option<Table> {
    if worst.is_empty() {
        return None;
    }
    let heads = [
        "Run",
        "#Release",
        "#Wake-up (µs)",
        "#End (µs)",
        "Cause",
        "Who",
        "#Explains (%)",
        "Where the time went (µs)",
    ];
    let mut table = Table::new("The worst late releases", &heads);
    for (run, window) in worst {
        let mut cause = cause_title(&window.cause);
        if window.inherited {
            cause += ", of the previous release";
        }
        let share = sound(window.share).map(|share| Cell::number(format!("{:.0}", 100.0 * share.min(1.0))));
        table.push(vec![
            Cell::text(&collection.runs[*run].key),
            whole(window.index),
            micro(window.lateness_us),
            micro(window.response_us),
            Cell::text(cause),
            who(&window.who),
            share.unwrap_or_else(|| Cell::gap("not reported")),
            parts(window),
        ]);
    }
    table.note("Wake-up and end: after the planned release. Explains: share of the time that the analysis accounts for.");
    Some(table)
}

fn parts(window: &Window) -> Cell {
    let reported = |part: &crate::traces::Part| {
        let ns = sound(part.ns)?;
        let who = shorten(&clean(&part.who), WHO);
        let who = if who.is_empty() { who } else { format!(" ({who})") };
        Some(format!("{}{who} {}", cause_title(&part.cause), Unit::Micro.number(ns)))
    };
    let mut parts: Vec<String> = window.parts.iter().filter_map(reported).collect();
    let known = window.parts.iter().filter_map(|part| sound(part.ns)).sum();
    if !parts.is_empty()
        && let Some(ns) = unaccounted_ns(window.length_ns(), known)
    {
        parts.insert(0, format!("not accounted for {}", Unit::Micro.number(ns)));
    }
    if parts.is_empty() { Cell::gap("not reported") } else { Cell::text(shorten(&parts.join("; "), 400)) }
}
