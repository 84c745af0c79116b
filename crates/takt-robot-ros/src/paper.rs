//! ROS-Llama's paper, for reports: its tables and figures, what it publishes, and which measure of
//! ours answers each.

use takt_report::document::Block;
use takt_report::paper::{Definition, Figure, Headline, Item, Paper, Published, ValueUnit, by_phase};
use takt_report::table::{Cell, Table};
use takt_report::{Collection, Context, Supplement, time};

/// Additions of ROS 2 systems to reports.
#[derive(Debug)]
pub(crate) struct RosPaper;

impl Supplement for RosPaper {
    fn papers(&self) -> &'static [Paper] {
        &PAPERS
    }
}

static PAPERS: [Paper; 1] = [ROS_LLAMA];

/// A chain of Table I with what Table II says of it: violations and completions under ROS-Llama,
/// SCHED_RR and CFS.
struct Chain {
    name: &'static str,
    purpose: &'static str,
    order: &'static str,
    length: u32,
    goal_ms: u32,
    counts: [[u64; 2]; 3],
}

const CHAINS: [Chain; 7] = [
    Chain {
        name: "heartbeat",
        purpose: "Keep-alive signal",
        order: "(last) 7",
        length: 1,
        goal_ms: 100,
        counts: [[0, 7324], [0, 6908], [0, 6907]],
    },
    Chain {
        name: "pilot",
        purpose: "Navigation & control",
        order: "6",
        length: 2,
        goal_ms: 125,
        counts: [[0, 4826], [2, 4857], [3, 4869]],
    },
    Chain {
        name: "odometry-nav",
        purpose: "Odometry (navigation)",
        order: "5",
        length: 2,
        goal_ms: 75,
        counts: [[0, 14_648], [0, 13_814], [0, 13_812]],
    },
    Chain {
        name: "laser-scanner",
        purpose: "Sensor data acquisition",
        order: "4",
        length: 2,
        goal_ms: 150,
        counts: [[0, 3636], [15, 3432], [0, 3428]],
    },
    Chain {
        name: "localization",
        purpose: "Self-localization",
        order: "3",
        length: 1,
        goal_ms: 450,
        counts: [[0, 3636], [0, 3433], [0, 3429]],
    },
    Chain {
        name: "odometry-loc",
        purpose: "Odometry (localization)",
        order: "2",
        length: 2,
        goal_ms: 100,
        counts: [[0, 14_648], [1, 13_814], [0, 13_812]],
    },
    Chain {
        name: "tracker",
        purpose: "Track objects",
        order: "(first) 1",
        length: 2,
        goal_ms: 990,
        counts: [[208, 584], [219, 700], [238, 700]],
    },
];

/// The paper's policies, as campaigns spell them.
const POLICIES: [(&str, &str); 3] = [("ROS-Llama", "ros-llama"), ("SCHED_RR", "rr"), ("CFS", "cfs")];

type Factors = &'static [(&'static str, &'static str)];

const fn violations(
    what: &'static str,
    measure: &'static str,
    published: f64,
    at: Factors,
    prefer: Factors,
) -> Headline {
    Headline {
        what,
        published: Published::Exactly(published),
        unit: ValueUnit::Count,
        measure,
        figure: Figure::Misses,
        at,
        prefer,
    }
}

const LLAMA: Factors = &[("policy", "ros-llama")];
const RR: Factors = &[("policy", "rr")];
const CFS: Factors = &[("policy", "cfs")];

const ROS_LLAMA: Paper = Paper {
    key: "ros-llama",
    name: "ROS-Llama",
    title: "Automatic Latency Management for ROS 2: Benefits, Challenges, and Open Problems",
    setup: "a Turtlebot3 Burger with a Raspberry Pi 4B (four Cortex-A72 at 600 MHz), Linux 4.19.71-rt24, ROS 2 Dashing with Cyclone DDS",
    items: &[
        Item {
            number: "Fig. 1",
            caption: "Overview of the manager.",
            ours: "",
            definition: Definition::Absent("a drawing; ARCHITECTURE.md has ours."),
            headlines: &[],
            show: None,
        },
        Item {
            number: "Fig. 2",
            caption: "Execution times of AMCL's /tf callback, and the demand of n activations by WCET and by execution-time curve.",
            ours: "the models of takt manage (model.json): an execution-time curve and an arrival curve for each callback",
            definition: Definition::Differs(
                "the callback is a workload with the published peak and sum, not AMCL.",
            ),
            headlines: &[],
            show: None,
        },
        Item {
            number: "Table I",
            caption: "The processing chains with their goals, in reverse degradation order.",
            ours: "goals/turtlebot.toml",
            definition: Definition::Same,
            headlines: &[],
            show: Some(table_1),
        },
        Item {
            number: "Table II",
            caption: "Completions of the chains and violations of their goals under ROS-Llama, SCHED_RR and CFS.",
            ours: "the measures of the chains: completions later than the goal and releases that never ran, of all",
            definition: Definition::Differs(
                "instances that never completed count as violations here; the paper counts completions. Nodes are workloads with the \
                 paper's costs and rates, not a robot in a room.",
            ),
            headlines: &[
                violations("violations of pilot, ROS-Llama", "pilot", 0.0, &[], LLAMA),
                violations("violations of pilot, SCHED_RR", "pilot", 2.0, RR, &[]),
                violations("violations of pilot, CFS", "pilot", 3.0, CFS, &[]),
                violations("violations of odometry-loc, SCHED_RR", "odometry-loc", 1.0, RR, &[]),
                violations("violations of laser-scanner, SCHED_RR", "laser-scanner", 15.0, RR, &[]),
                violations("violations of tracker, ROS-Llama", "tracker", 208.0, &[], LLAMA),
                violations("violations of tracker, CFS", "tracker", 238.0, CFS, &[]),
            ],
            show: Some(table_2),
        },
        Item {
            number: "Fig. 3",
            caption: "Distribution functions of the pilot chain's latency by phase of load.",
            ours: "the measure pilot by phase",
            definition: Definition::Same,
            headlines: &[],
            show: Some(figure_3),
        },
        Item {
            number: "Fig. 4",
            caption: "Distribution functions of the odometry-loc chain's latency by phase of load.",
            ours: "the measure odometry-loc by phase",
            definition: Definition::Same,
            headlines: &[],
            show: Some(figure_4),
        },
        Item {
            number: "Table III",
            caption: "Cost of one decision of the manager, by part and phase.",
            ours: "the figures extract_ms_per_plan, model_ms_per_plan and plan_ms_per_plan by phase",
            definition: Definition::Differs(
                "budget selection and timing analysis are one figure if the runs do not separate them.",
            ),
            headlines: &[],
            show: Some(table_3),
        },
    ],
    differs: &[
        "The nodes are processes that behave like ROS 2 nodes with known costs, or real ones where the configuration says so; there is no robot, \
         no navigation and no video.",
    ],
    differs_here: Some(differs_here),
};

fn by_name<'a, 'c>(contexts: &[&'a Context<'c>], name: &str) -> Option<&'a Context<'c>> {
    contexts.iter().copied().find(|context| context.group.name == name)
}

fn table_1(item: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    let heads = ["Name", "Purpose", "Deg. order", "#Length", "#Goal (paper, ms)", "#Goal (ours, ms)"];
    let mut table = Table::new(format!("{}: chains", item.number), &heads);
    for chain in &CHAINS {
        let goal = by_name(contexts, chain.name).and_then(|c| c.digests.iter().find_map(|d| d.deadline_ns));
        table.push(vec![
            Cell::text(chain.name),
            Cell::text(chain.purpose),
            Cell::text(chain.order),
            Cell::number(chain.length),
            Cell::number(chain.goal_ms),
            goal.map_or_else(|| Cell::gap("not measured"), |ns| Cell::number(ns / 1_000_000)),
        ]);
    }
    vec![Block::Table(table)]
}

/// The policies that these runs have, in their order.
fn policies(contexts: &[&Context<'_>]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for context in contexts {
        for policy in context.digests.iter().filter_map(|digest| context.factor(digest, "policy")) {
            if !found.iter().any(|known| known == policy) {
                found.push(policy.to_owned());
            }
        }
    }
    found
}

fn table_2(item: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    let ours = policies(contexts);
    if ours.is_empty() {
        return Vec::new();
    }
    let paper = POLICIES.iter().map(|(name, _)| format!("#{name} (paper)"));
    let heads: Vec<String> = std::iter::once("Name".to_owned())
        .chain(paper)
        .chain(ours.iter().map(|policy| format!("#{policy} (ours)")))
        .collect();
    let mut table = Table::new(format!("{}: violations of completions", item.number), &heads);
    for chain in &CHAINS {
        let mut row = vec![Cell::text(chain.name)];
        row.extend(
            chain.counts.iter().map(|[violations, count]| Cell::number(format!("{violations} of {count}"))),
        );
        row.extend(ours.iter().map(|policy| {
            let found = by_name(contexts, chain.name).and_then(|context| {
                context
                    .digests
                    .iter()
                    .find(|digest| context.factor(digest, "policy") == Some(policy.as_str()))
            });
            match found.and_then(|digest| {
                Some((digest.missed()?, digest.summary.count.saturating_add(digest.skipped())))
            }) {
                Some((missed, all)) => Cell::number(format!("{missed} of {all}")),
                None => Cell::gap("not measured"),
            }
        }));
        table.push(row);
    }
    table.note(
        "These figures include chains that were given up in the declared order; the verdict excuses them.",
    );
    vec![Block::Table(table)]
}

fn figure_3(_: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    by_name(contexts, "pilot").map_or_else(Vec::new, |context| by_phase(context, "paper-fig-3"))
}

fn figure_4(_: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    by_name(contexts, "odometry-loc").map_or_else(Vec::new, |context| by_phase(context, "paper-fig-4"))
}

/// The paper's parts: seconds in its three phases, and our figures.
const PARTS: [(&str, [f64; 3], &[&str]); 4] = [
    ("Model extractor", [1.17, 1.38, 1.39], &["extract_ms_per_plan"]),
    ("Model processing", [0.28, 0.32, 0.32], &["model_ms_per_plan"]),
    ("Budget selection and timing analysis", [0.23, 0.53, 0.56], &["plan_ms_per_plan"]),
    ("Total", [1.68, 2.23, 2.27], &["extract_ms_per_plan", "model_ms_per_plan", "plan_ms_per_plan"]),
];

fn table_3(item: &Item, collection: &Collection, _: &[&Context<'_>]) -> Vec<Block> {
    let managed = collection.runs.iter().map(|run| &run.header).find(|header| {
        !header.phases.is_empty() && header.figures.keys().any(|name| name.starts_with("plan_ms_per_plan@"))
    });
    let Some(header) = managed else { return Vec::new() };
    let phases: Vec<&str> = header.phases.iter().map(|phase| phase.name.as_str()).collect();
    let paper = ["No load", "Medium load", "High load"].map(|phase| format!("#{phase} (paper, s)"));
    let heads: Vec<String> = std::iter::once("Part".to_owned())
        .chain(paper)
        .chain(phases.iter().map(|phase| format!("#{phase} (ours, ms)")))
        .collect();
    let mut table = Table::new(format!("{}: cost of a decision", item.number), &heads);
    for (part, seconds, figures) in PARTS {
        let mut row = vec![Cell::text(part)];
        row.extend(seconds.map(|seconds| Cell::number(format!("{seconds:.2}"))));
        row.extend(phases.iter().map(|phase| {
            let all: Option<f64> =
                figures.iter().map(|name| header.figures.get(&format!("{name}@{phase}")).copied()).sum();
            all.map_or_else(|| Cell::gap("no decision"), |ms| Cell::number(format!("{ms:.2}")))
        }));
        table.push(row);
    }
    table.note(format!("Ours: of the run {}.", header.label));
    vec![Block::Table(table)]
}

/// Differences of these runs from the paper's.
fn differs_here(collection: &Collection) -> Vec<String> {
    let machine = &collection.runs[0].header.machine;
    let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut sentences = vec![
        format!("CPUs: {} ({}); the paper has four.", word(&machine.online_cpus), word(&machine.cpu)),
        format!(
            "Kernel: {} ({}); the paper has 4.19.71-rt24.",
            word(&machine.kernel),
            word(&machine.preemption)
        ),
    ];
    let window = collection.runs.iter().filter_map(|run| {
        let [from, to] = run.header.measures.first()?.window_ns?;
        Some(to.saturating_sub(from) as f64)
    });
    let shortest = window.fold(f64::MAX, f64::min);
    if shortest < 600e9 {
        sentences.push(format!(
            "Runs of {}; the paper's runs take some twelve minutes (7,324 heartbeats).",
            time((shortest / 1e9).round() * 1e9)
        ));
    }
    sentences
}
