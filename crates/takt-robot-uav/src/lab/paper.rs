//! The quadrotor's paper, for reports: its tables and figures, what it publishes, and which measure
//! of ours answers each.

use takt_report::document::Block;
use takt_report::paper::{
    Definition, Figure, Headline, Item, Other, PREEMPTION, Paper, Published, ValueUnit, boxes_of,
};
use takt_report::table::{Cell, Table};
use takt_report::{Collection, Context, Digest, count, is_idle, shapes, time};

use super::report;
use super::run::LATENESS;

/// The paper as campaigns name it.
pub(super) static PAPERS: [Paper; 1] = [UAV];

type Factors = &'static [(&'static str, &'static str)];

const fn lateness(what: &'static str, published: f64, figure: Figure, at: Factors) -> Headline {
    Headline {
        what,
        published: Published::Exactly(published),
        unit: ValueUnit::Microseconds,
        measure: LATENESS,
        figure,
        at,
        prefer: &[],
    }
}

const ABSENT_DRAWING: Definition = Definition::Absent("a drawing.");

const UAV: Paper = Paper {
    key: "uav-preempt-rt",
    name: "UAV paper",
    title: "Scheduling Analysis of UAV Flight Control Workloads on PREEMPT_RT Linux Using a Raspberry Pi 5",
    setup: "a Raspberry Pi 5 (four Cortex-A76 at 2.4 GHz, performance governor), Ubuntu 24.04 with 6.8.0-raspi and \
            6.8.0-raspi-realtime, isolcpus=2,3, the attitude task pinned to core 2, memory locked, sched_rt_runtime_us = -1; 10,000 \
            releases a run",
    items: &[
        Item {
            number: "Table 1",
            caption: "Scheduling policies of Linux.",
            ours: "",
            definition: Definition::Absent("a summary from the kernel's documentation, not measured."),
            headlines: &[],
            show: None,
        },
        Item {
            number: "Fig. 1",
            caption: "Architecture of the flight control.",
            ours: "",
            definition: ABSENT_DRAWING,
            headlines: &[],
            show: None,
        },
        Item {
            number: "Table 2",
            caption: "Components of the stress: four matrix workers, memory (75 % of RAM, two workers), switches and forks.",
            ours: "the stress profile uav; the report's table of interference shows its work",
            definition: Definition::Differs(
                "the table of interference shows the work of each component, because a machine with less memory gets less load.",
            ),
            headlines: &[],
            show: None,
        },
        Item {
            number: "Table 3",
            caption: "Configurations: four policies with two parameters each, without and with stress, on two kernels.",
            ours: "the factors policy, stress and kernel of the campaigns uav and uav-kernels",
            definition: Definition::Same,
            headlines: &[],
            show: Some(table_3),
        },
        Item {
            number: "Table 4",
            caption: "Wake-up latency of the 250 Hz loop: mean, median, greatest, deviation, P90 and P99 by scheduler, kernel and stress.",
            ours: "the measure lateness: from the planned release to the wake-up of the attitude loop",
            definition: Definition::Same,
            headlines: &[
                lateness(
                    "greatest, FIFO 99 under stress, standard kernel",
                    1848.0,
                    Figure::Worst,
                    &[("policy", "fifo:99"), ("stress", "uav"), (PREEMPTION, "standard")],
                ),
                lateness(
                    "greatest, FIFO 99 under stress, PREEMPT_RT",
                    224.0,
                    Figure::Worst,
                    &[("policy", "fifo:99"), ("stress", "uav"), (PREEMPTION, "PREEMPT_RT")],
                ),
                lateness(
                    "greatest, OTHER nice -19 under stress, standard kernel",
                    9424.0,
                    Figure::Worst,
                    &[("policy", "other:-19"), ("stress", "uav"), (PREEMPTION, "standard")],
                ),
                Headline {
                    published: Published::Exactly(87.9),
                    unit: ValueUnit::Percent,
                    ..lateness(
                        "greatest of FIFO 99 on PREEMPT_RT below that on the standard kernel, under stress",
                        87.9,
                        Figure::WorstBelow(Other {
                            at: &[("policy", "fifo:99"), ("stress", "uav"), (PREEMPTION, "standard")],
                            prefer: &[],
                        }),
                        &[("policy", "fifo:99"), ("stress", "uav"), (PREEMPTION, "PREEMPT_RT")],
                    )
                },
            ],
            show: Some(table_4),
        },
        Item {
            number: "Fig. 2",
            caption: "Box plots of the latency under stress on both kernels, with the deadline.",
            ours: "the same measure; no value is left out as an outlier",
            definition: Definition::Same,
            headlines: &[],
            show: Some(figure_2),
        },
        Item {
            number: "Figs. 3 to 9",
            caption: "Latency over the releases, idle and stressed, by policy and kernel.",
            ours: "the time series in the section of the measure below",
            definition: Definition::Same,
            headlines: &[],
            show: None,
        },
        Item {
            number: "Table 5",
            caption: "Greatest latency of SCHED_OTHER under stress with and without the graphical interface.",
            ours: "the campaign uav-isolation",
            definition: Definition::Same,
            headlines: &[
                lateness(
                    "greatest, OTHER nice -19, interface enabled",
                    9424.0,
                    Figure::Worst,
                    &[("policy", "other:-19"), ("label.services", "on")],
                ),
                lateness(
                    "greatest, OTHER nice -19, interface disabled",
                    3635.0,
                    Figure::Worst,
                    &[("policy", "other:-19"), ("label.services", "off")],
                ),
                lateness(
                    "greatest, OTHER nice 0, interface enabled",
                    8626.0,
                    Figure::Worst,
                    &[("policy", "other:0"), ("label.services", "on")],
                ),
                lateness(
                    "greatest, OTHER nice 0, interface disabled",
                    5993.0,
                    Figure::Worst,
                    &[("policy", "other:0"), ("label.services", "off")],
                ),
            ],
            show: Some(table_5),
        },
        Item {
            number: "Table 6",
            caption: "The kernel's steps from the timer's interrupt to the task, with their times, on both kernels.",
            ours: "takt kernels run uav --kernels generic,rt --trace, and takt trace uav: the wake-up path in the report's section on the \
                   kernel",
            definition: Definition::Differs(
                "the paper shows one activation; ours are medians of all activations, and in a guest their times are counted instructions.",
            ),
            headlines: &[],
            show: None,
        },
        Item {
            number: "Table 7",
            caption: "Worst-case jitter as a share of the period, next to a microcontroller's.",
            ours: "the measure lateness over its period; the microcontroller's row is the paper's own from the literature",
            definition: Definition::Same,
            headlines: &[],
            show: Some(table_7),
        },
    ],
    differs: &[
        "The vehicle is simulated in the attitude job, as in the paper; sensors and rotors are simulated, too.",
    ],
    differs_here: Some(differs_here),
};

fn main<'a, 'c>(contexts: &[&'a Context<'c>]) -> Option<&'a Context<'c>> {
    contexts.iter().copied().find(|context| context.group.name == LATENESS)
}

/// The configurations that were measured, as the paper counts them.
fn table_3(item: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    let Some(context) = main(contexts) else { return Vec::new() };
    let mut table = Table::new(
        format!("{}: configurations", item.number),
        &[
            "Scheduler",
            "Parameters (paper)",
            "Parameters (here)",
            "Stress (here)",
            "#Tests (paper, each kernel)",
            "#Tests (here)",
        ],
    );
    for (scheduler, prefix, paper) in [
        ("SCHED_OTHER", "other:", "nice 0, -19"),
        ("SCHED_FIFO", "fifo:", "priority 50, 99"),
        ("SCHED_RR", "rr:", "priority 50, 99"),
        ("SCHED_DEADLINE", "deadline:", "runtime 400, 800 µs"),
    ] {
        let fits = |digest: &&Digest| {
            context.factor(digest, "policy").is_some_and(|policy| policy.starts_with(prefix))
        };
        let own: Vec<&Digest> = context.digests.iter().filter(fits).collect();
        let values = |pick: &dyn Fn(&Digest) -> Option<String>| {
            let mut seen: Vec<String> = Vec::new();
            for value in own.iter().filter_map(|digest| pick(digest)) {
                if !seen.contains(&value) {
                    seen.push(value);
                }
            }
            if seen.is_empty() { Cell::gap("none") } else { Cell::text(seen.join(", ")) }
        };
        table.push(vec![
            Cell::text(scheduler),
            Cell::text(paper),
            values(&|digest| Some(context.factor(digest, "policy")?.strip_prefix(prefix)?.to_owned())),
            values(&|digest| {
                context.factor(digest, "stress").map(|s| if is_idle(s) { "off" } else { "on" }.to_owned())
            }),
            Cell::number(4),
            Cell::number(own.iter().filter(|digest| digest.summary.count > 0).count()),
        ]);
    }
    vec![Block::Table(table)]
}

fn table_4(_: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    let Some(context) = main(contexts) else { return Vec::new() };
    report::table_4(context).into_iter().map(Block::Table).collect()
}

/// The stressed configurations.
fn figure_2(_: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    let Some(context) = main(contexts) else { return Vec::new() };
    let stressed = |digest: &&Digest| context.factor(digest, "stress").is_some_and(|stress| !is_idle(stress));
    let digests: Vec<&Digest> = context.digests.iter().filter(stressed).collect();
    let caption =
        "Box: the middle half, line: median; whiskers: 1 % to 99 %; tick: 99.9 %; dot: the greatest value.";
    boxes_of(context, ("paper-fig-2", "Fig. 2: lateness under stress", caption), &digests)
        .into_iter()
        .collect()
}

fn table_5(_: &Item, collection: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    let varied = collection.varying.iter().any(|name| name == "label.services");
    let Some(context) = main(contexts).filter(|_| varied) else { return Vec::new() };
    shapes::effects(context).into_iter().map(Block::Table).collect()
}

fn table_7(_: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    main(contexts).and_then(shapes::share_of_the_period).map(Block::Table).into_iter().collect()
}

/// Differences of these runs from the paper's.
fn differs_here(collection: &Collection) -> Vec<String> {
    let machine = &collection.runs[0].header.machine;
    let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut kernels: Vec<String> = Vec::new();
    for header in collection.runs.iter().map(|run| &run.header) {
        let kernel = format!("{} ({})", word(&header.machine.kernel), word(&header.machine.preemption));
        if !kernels.contains(&kernel) {
            kernels.push(kernel);
        }
    }
    let mut sentences = vec![
        format!("CPUs: {} ({}); the paper has four.", word(&machine.online_cpus), word(&machine.cpu)),
        format!("Kernels: {}; the paper has 6.8.0.", kernels.join(", ")),
    ];
    if collection.runs.iter().any(|run| run.header.machine.virtual_machine.is_some()) {
        sentences.push(
            "Runs in guests of QEMU: their time is counted instructions, and caches are not modelled."
                .to_owned(),
        );
    }
    if let Some(runtime_us) = machine.rt_runtime_us.filter(|runtime_us| *runtime_us != -1) {
        sentences.push(format!(
            "Runtime throttling is on (sched_rt_runtime_us = {runtime_us}); the paper switches it off."
        ));
    }
    let releases = collection.runs.iter().filter_map(|run| {
        let [from, to] = run.header.measures.first()?.window_ns?;
        Some((to.saturating_sub(from), run.header.measures.first()?.rate_hz?))
    });
    let least = releases.map(|(ns, rate_hz)| ns as f64 / 1e9 * rate_hz).fold(f64::MAX, f64::min);
    if least < 9_900.0 {
        let shortest = time((least / 250.0 * 1e9).round());
        sentences.push(format!(
            "At least {} per run ({shortest}); the paper has 10,000.",
            count(least as usize, "release", "releases")
        ));
    }
    sentences
}
