//! Reports for the quadrotor's paper (Scheduling Analysis of UAV Flight Control Workloads): Table 4
//! next to the same configurations here, schedulers and stress on a standard kernel and on a
//! PREEMPT_RT kernel, of which the orders are checked and not the microseconds; and the rows of
//! Table 7.

use std::collections::BTreeSet;

use takt_lab::campaign::unequal_stress;
use takt_report::document::Section;
use takt_report::table::{Cell, Table};
use takt_report::{Collection, Context, Digest, PublishedJitter, Shapes, Supplement, is_idle};
use takt_rundir::RunHeader;

use super::dilation;
use super::run::LATENESS;

/// The quadrotor's additions to reports.
#[derive(Debug)]
pub(super) struct Paper;

impl Supplement for Paper {
    fn papers(&self) -> &'static [takt_report::paper::Paper] {
        &super::paper::PAPERS
    }

    fn shapes(&self) -> Shapes {
        Shapes { effects: true, ..Shapes::default() }
    }

    fn tables(&self, context: &Context<'_>) -> Vec<Table> {
        beside_the_paper(context)
    }

    fn sections(&self, _collection: &Collection, contexts: &[&Context<'_>]) -> Vec<Section> {
        dilation::section(contexts).into_iter().collect()
    }

    fn jitter(&self) -> Option<&'static PublishedJitter> {
        Some(&JITTER)
    }
}

/// The paper's Table 7.
static JITTER: PublishedJitter = PublishedJitter {
    title: "the quadrotor paper's Table 7",
    rows: &[
        ["Raspberry Pi 5, PREEMPT_RT (paper)", "2.4 GHz", "≈ 224", "4000", "5.6", "high (vision, AI)"],
        [
            "STM32F7 with an RTOS (paper, from the literature)",
            "216 MHz",
            "10 to 20",
            "4000",
            "0.5",
            "low (control only)",
        ],
    ],
};

/// Mean, median, maximum, standard deviation, 90 % and 99 % quantile; microseconds.
type Figures = [f64; 6];

struct Row {
    /// The policy as Takt spells it.
    policy: &'static str,
    /// As the paper does.
    scheduler: &'static str,
    /// Standard kernel idle and stressed, then PREEMPT_RT.
    cells: [Figures; 4],
}

/// The paper's release period: its deadline.
const PERIOD_US: f64 = 4000.0;

const PAPER: [Row; 8] = [
    Row {
        policy: "other:0",
        scheduler: "OTHER nice 0",
        cells: [
            [58.53, 54.0, 2724.0, 73.89, 57.0, 72.0],
            [274.01, 103.0, 8626.0, 563.32, 451.0, 3070.0],
            [59.64, 58.0, 2570.0, 36.78, 59.0, 66.0],
            [196.84, 97.0, 9015.0, 414.98, 290.0, 2420.0],
        ],
    },
    Row {
        policy: "other:-19",
        scheduler: "OTHER nice -19",
        cells: [
            [56.59, 54.0, 2451.0, 45.36, 57.0, 70.0],
            [136.54, 101.0, 9424.0, 227.57, 188.0, 642.0],
            [64.79, 58.0, 2779.0, 88.06, 60.0, 90.0],
            [110.81, 85.0, 4351.0, 186.65, 124.0, 669.0],
        ],
    },
    Row {
        policy: "fifo:50",
        scheduler: "FIFO priority 50",
        cells: [
            [4.07, 3.0, 45.0, 2.90, 6.0, 21.0],
            [58.37, 39.0, 700.0, 48.83, 137.0, 201.0],
            [5.29, 4.0, 135.0, 4.55, 7.0, 21.0],
            [36.07, 28.0, 160.0, 23.78, 68.0, 123.0],
        ],
    },
    Row {
        policy: "fifo:99",
        scheduler: "FIFO priority 99",
        cells: [
            [4.25, 4.0, 63.0, 1.97, 5.0, 12.0],
            [49.37, 40.0, 1848.0, 40.67, 89.0, 156.0],
            [4.19, 4.0, 100.0, 1.90, 4.0, 7.0],
            [31.33, 25.0, 224.0, 21.61, 50.0, 130.0],
        ],
    },
    Row {
        policy: "rr:50",
        scheduler: "RR priority 50",
        cells: [
            [4.56, 4.0, 51.0, 2.14, 6.0, 13.0],
            [38.01, 30.0, 787.0, 28.30, 64.0, 125.0],
            [4.35, 4.0, 76.0, 2.53, 5.0, 13.0],
            [44.09, 32.0, 225.0, 31.75, 92.0, 152.0],
        ],
    },
    Row {
        policy: "rr:99",
        scheduler: "RR priority 99",
        cells: [
            [4.76, 4.0, 86.0, 3.40, 6.0, 16.0],
            [43.18, 36.0, 472.0, 26.12, 76.0, 121.0],
            [4.14, 4.0, 51.0, 1.15, 4.0, 6.0],
            [41.08, 31.0, 182.0, 27.01, 82.0, 122.0],
        ],
    },
    Row {
        policy: "deadline:400us/4ms/4ms",
        scheduler: "DEADLINE R400 D4000",
        cells: [
            [6.53, 7.0, 33.0, 2.23, 8.0, 16.0],
            [43.77, 36.0, 345.0, 27.17, 78.0, 137.0],
            [4.20, 4.0, 96.0, 1.86, 5.0, 7.0],
            [44.16, 33.0, 209.0, 29.57, 90.0, 137.0],
        ],
    },
    Row {
        policy: "deadline:800us/4ms/4ms",
        scheduler: "DEADLINE R800 D4000",
        cells: [
            [6.17, 6.0, 58.0, 1.98, 7.0, 14.0],
            [40.94, 35.0, 443.0, 22.67, 70.0, 112.0],
            [4.21, 4.0, 84.0, 2.00, 4.0, 8.0],
            [32.30, 27.0, 197.0, 18.75, 51.0, 116.0],
        ],
    },
];

/// A configuration's column among the paper's four, and its name.
struct Place<'a> {
    policy: &'a str,
    stressed: bool,
    realtime: bool,
    kernel: String,
}

fn place<'a>(context: &Context<'a>, digest: &Digest) -> Option<Place<'a>> {
    let factor = |name: &str| context.factor(digest, name);
    let machine = &context.collection.runs[digest.runs.first()?.run].header.machine;
    let preemption = machine.preemption.as_deref().unwrap_or_default();
    Some(Place {
        policy: factor("policy")?,
        stressed: !is_idle(factor("stress").unwrap_or("off")),
        realtime: preemption.starts_with("PREEMPT_RT"),
        kernel: kernel_name(context.factor(digest, "kernel"), machine.kernel.as_deref()),
    })
}

/// A kernel by its release, with the campaign's name for it where that says more (`lazy`,
/// `sched_ext`).
pub(super) fn kernel_name(asked: Option<&str>, release: Option<&str>) -> String {
    let release = release.unwrap_or("unknown");
    let is_more = |name: &&str| {
        !release.starts_with(name.trim_end_matches("-rt")) && !matches!(*name, "generic" | "rt")
    };
    match asked.filter(is_more) {
        Some(name) => format!("{name} ({release})"),
        None => release.to_owned(),
    }
}

/// The measured configurations that are in the paper's table, each with its row there.
fn matches<'a>(context: &Context<'a>) -> Vec<(Place<'a>, &'a Digest, &'static Row)> {
    if context.group.name != LATENESS {
        return Vec::new();
    }
    let found = context.digests.iter().filter(|digest| digest.summary.count > 0).filter_map(|digest| {
        let place = place(context, digest)?;
        let row = PAPER.iter().find(|row| row.policy == place.policy)?;
        Some((place, digest, row))
    });
    found.collect()
}

/// Both beside each other; nothing where none of the paper's configurations was measured on its two
/// kinds of kernel.
fn beside_the_paper(context: &Context<'_>) -> Vec<Table> {
    let found = matches(context);
    let kinds = [false, true].map(|realtime| found.iter().any(|(place, ..)| place.realtime == realtime));
    if kinds == [true, true] { tables_of(context, &found) } else { Vec::new() }
}

/// The same of one kind of kernel, too: what was measured stands beside that kind's figures.
pub(super) fn table_4(context: &Context<'_>) -> Vec<Table> {
    let found = matches(context);
    if found.is_empty() { Vec::new() } else { tables_of(context, &found) }
}

fn tables_of(context: &Context<'_>, found: &[(Place<'_>, &Digest, &'static Row)]) -> Vec<Table> {
    let mut heads: Vec<String> = ["Scheduler", "Stress", "Kernel"].map(str::to_owned).to_vec();
    for figure in ["Mean", "Median", "Max", "SD", "P90", "P99"] {
        heads.extend([format!("#{figure} (µs)"), format!("#paper's {figure}")]);
    }
    let mut table = Table::new("Comparison with the quadrotor paper's Table 4", &heads);
    // The table is wide: which kernels these are is reported once, where there is one of each kind.
    let kernels = [false, true].map(|realtime| {
        let of_kind = found.iter().filter(|(place, ..)| place.realtime == realtime);
        of_kind.map(|(place, ..)| place.kernel.as_str()).collect::<BTreeSet<_>>()
    });
    let several = kernels.iter().any(|releases| releases.len() > 1);
    for (place, digest, row) in found {
        let s = &digest.summary;
        let kind = if place.realtime { "PREEMPT_RT" } else { "Standard" };
        let kind = if several { format!("{kind} {}", place.kernel) } else { kind.to_owned() };
        let mut cells = vec![
            Cell::text(row.scheduler),
            Cell::text(if place.stressed { "Yes" } else { "No" }),
            Cell::text(kind),
        ];
        let paper = &row.cells[usize::from(place.realtime) * 2 + usize::from(place.stressed)];
        for (ours, paper) in [s.mean, s.median, s.worst, s.stddev, s.p90, s.p99].iter().zip(paper) {
            cells.extend([Cell::number(format!("{:.2}", ours / 1e3)), Cell::number(format!("{paper:.2}"))]);
        }
        table.push(cells);
    }
    if let (false, [Some(standard), Some(realtime)]) =
        (several, kernels.each_ref().map(|releases| releases.first()))
    {
        table.note(format!("Standard is {standard} here, PREEMPT_RT is {realtime}."));
    }
    table.note(
        "The paper measured on a Raspberry Pi 5 (kernels 6.8, 10,000 releases each). Only the order of the configurations can agree, which \
         the next table checks; absolute times differ between machines.",
    );
    table.note(
        "OTHER depends on the kernel's version: since 6.6, a task that wakes up waits for its turn according to its lag and virtual \
         deadline (EEVDF); before, a task that had slept went first (CFS).",
    );
    let orders = orders(context, found);
    // On one kernel there is nothing to put in an order.
    std::iter::once(table).chain((!orders.rows().is_empty()).then_some(orders)).collect()
}

/// The paper's statements, each with both sides' figures.
fn orders(context: &Context<'_>, found: &[(Place<'_>, &Digest, &'static Row)]) -> Table {
    let heads = [
        "Statement",
        "Scheduler",
        "#Standard: max (µs)",
        "#PREEMPT_RT: max (µs)",
        "Here",
        "#paper's",
        "#paper's",
        "Paper",
    ];
    let mut table = Table::new("The orders of Table 4: greatest lateness under stress", &heads);
    let word = |holds: bool| Cell::text(if holds { "holds" } else { "does not hold" });
    let mut refused = Vec::new();
    for row in &PAPER {
        let max = |realtime: bool| {
            let of = |(place, ..): &&(Place<'_>, &Digest, &Row)| {
                place.policy == row.policy && place.stressed && place.realtime == realtime
            };
            let digests = found.iter().filter(of).map(|(_, digest, _)| digest.summary.worst / 1e3);
            digests.reduce(f64::max)
        };
        let headers = |realtime: bool| -> Vec<&RunHeader> {
            let of = |(place, ..): &&(Place<'_>, &Digest, &Row)| {
                place.policy == row.policy && place.stressed && place.realtime == realtime
            };
            let runs = found.iter().filter(of).flat_map(|(_, digest, _)| &digest.runs);
            runs.map(|run| &context.collection.runs[run.run].header).collect()
        };
        let ordinary = row.scheduler.starts_with("OTHER");
        let statement =
            if ordinary { "unbounded on both: above the period of 4 ms" } else { "less on PREEMPT_RT" };
        let judge = |standard: f64, realtime: f64| match ordinary {
            true => standard > PERIOD_US && realtime > PERIOD_US,
            false => realtime < standard,
        };
        let (Some(standard), Some(realtime)) = (max(false), max(true)) else { continue };
        let paper = [row.cells[1][2], row.cells[3][2]];
        let unequal = unequal_stress([("Standard", headers(false)), ("PREEMPT_RT", headers(true))]);
        let here =
            if unequal.is_empty() { word(judge(standard, realtime)) } else { Cell::text("not comparable") };
        refused.extend((!unequal.is_empty()).then(|| format!("{}: {}", row.scheduler, unequal.join("; "))));
        table.push(vec![
            Cell::text(statement),
            Cell::text(row.scheduler),
            Cell::number(format!("{standard:.2}")),
            Cell::number(format!("{realtime:.2}")),
            here,
            Cell::number(paper[0]),
            Cell::number(paper[1]),
            word(judge(paper[0], paper[1])),
        ]);
    }
    for refused in refused {
        table
            .note(format!("Not comparable, because the stressors did different amounts of work. {refused}."));
    }
    table
}

#[cfg(test)]
mod tests;
