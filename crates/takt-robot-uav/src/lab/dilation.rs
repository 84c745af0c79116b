//! Time of the same control law idle and under stress, next to the processor's counters: the
//! paper's open question (its sections 6.3 and 7.2).

use takt_report::document::{Block, Section};
use takt_report::table::{Cell, Table};
use takt_report::{Context, Digest, is_idle};

/// Measure of the control law alone.
pub(super) const EXECUTION: &str = "execution";
/// Counters that the table shows, by the names that run directories have.
const SHOWN: [(&str, &str); 3] = [
    ("cycles_per_job", "#Cycles a job"),
    ("instructions_per_job", "#Instructions a job"),
    ("llc_misses_per_job", "#Last-level cache misses per job"),
];

/// A configuration idle and under stress.
struct Pair<'a> {
    policy: &'a str,
    kernel: String,
    idle: &'a Digest,
    stressed: &'a Digest,
}

/// Every configuration that was measured both ways.
fn pairs<'a>(context: &Context<'a>) -> Vec<Pair<'a>> {
    let with = |digest: &&'a Digest| digest.summary.count > 0;
    let is = |digest: &Digest, idle: bool| is_idle(context.factor(digest, "stress").unwrap_or("off")) == idle;
    let others = |digest: &Digest| {
        let factors = &context.collection.configurations[digest.configuration].factors;
        factors.iter().filter(|factor| factor.name != "stress").cloned().collect::<Vec<_>>()
    };
    let stressed: Vec<&Digest> = context.digests.iter().filter(with).filter(|d| is(d, false)).collect();
    let idle = context.digests.iter().filter(with).filter(|digest| is(digest, true));
    idle.filter_map(|idle| {
        let stressed = stressed.iter().copied().find(|stressed| others(stressed) == others(idle))?;
        let run = &context.collection.runs[idle.runs.first()?.run];
        Some(Pair {
            policy: context.factor(idle, "policy").unwrap_or("as configured"),
            kernel: super::report::kernel_name(
                context.factor(idle, "kernel"),
                run.header.machine.kernel.as_deref(),
            ),
            idle,
            stressed,
        })
    })
    .collect()
}

/// A counter's mean over the runs of a configuration; `None` where a run has none.
fn counted(context: &Context<'_>, digest: &Digest, name: &str) -> Option<f64> {
    let values = digest.runs.iter().map(|run| context.collection.runs[run.run].header.figures.get(name));
    let values: Option<Vec<f64>> = values.map(Option::<&f64>::copied).collect();
    values.filter(|values| !values.is_empty()).map(|values| values.iter().sum::<f64>() / values.len() as f64)
}

/// The section; nothing where no configuration was measured both ways.
pub(super) fn section(contexts: &[&Context<'_>]) -> Option<Section> {
    let context = contexts.iter().copied().find(|context| context.group.name == EXECUTION)?;
    let pairs = pairs(context);
    if pairs.is_empty() {
        return None;
    }
    let mut heads: Vec<String> = ["Scheduler", "Kernel", "Stress"].map(str::to_owned).to_vec();
    heads.extend(["#Median (µs)", "#P99 (µs)", "#Max (µs)", "#Median, times idle"].map(str::to_owned));
    heads.extend(SHOWN.map(|(_, head)| head.to_owned()));
    let mut table = Table::new("Execution time of the control law, idle and under stress", &heads);
    for pair in &pairs {
        for (digest, stress) in [(pair.idle, "No"), (pair.stressed, "Yes")] {
            let s = &digest.summary;
            let mut cells = vec![Cell::text(pair.policy), Cell::text(&pair.kernel), Cell::text(stress)];
            cells.extend([s.median, s.p99, s.worst].map(|ns| Cell::number(format!("{:.2}", ns / 1e3))));
            let times = s.median / pair.idle.summary.median;
            cells.push(Cell::number(if times.is_finite() { format!("{times:.2}") } else { "-".to_owned() }));
            cells.extend(SHOWN.map(|(name, _)| match counted(context, digest, name) {
                Some(count) => Cell::number(format!("{count:.0}")),
                None => Cell::text("not available here"),
            }));
            table.push(cells);
        }
    }
    table.note(
        "The paper traced about 3.8 µs on PREEMPT_RT and 51 µs on the standard kernel for the same control law, and assumes that caches \
         were polluted. Without the processor's counters, this assumption cannot be checked.",
    );
    for reason in reasons(context) {
        table.note(reason);
    }
    let guests = pairs.iter().flat_map(|pair| &pair.idle.runs).map(|run| &context.collection.runs[run.run]);
    let emulated = guests.filter_map(|run| run.header.machine.virtual_machine.as_ref());
    if emulated
        .into_iter()
        .any(|guest| guest.machine.contains("counted") || guest.machine.contains("emulated"))
    {
        table.note(
            "An emulated processor has no caches: an instruction takes the same time whatever memory it touches, so execution times here \
             show the number of instructions, not slowdown by memory.",
        );
    }
    let mut section = Section::new("dilation", "Execution time under stress");
    section.add(Block::Table(table));
    Some(section)
}

/// Reasons of missing counters, each once.
fn reasons(context: &Context<'_>) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    for counter in context.collection.runs.iter().flat_map(|run| &run.header.counters) {
        if let Some(why) = &counter.missing {
            match reasons.iter_mut().find(|known| known.ends_with(why.as_str())) {
                Some(known) if !known.contains(&counter.title) => {
                    *known = format!("{}, {known}", counter.title)
                }
                Some(_) => {}
                None => reasons.push(format!("{}: {why}", counter.title)),
            }
        }
    }
    reasons
}
