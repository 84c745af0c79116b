//! The DAQ paper, for reports: its tables and figures, what it publishes, and which measure of ours
//! answers each.

use takt_report::document::Block;
use takt_report::paper::{Definition, Figure, Headline, Item, Paper, Published, ValueUnit};
use takt_report::{Collection, Context, shapes, time};

use super::report::differences;

pub(super) static PAPERS: [Paper; 1] = [DAQ];

/// The measure that is the paper's Td.
const LATENCY: &str = "latency";

type Factors = &'static [(&'static str, &'static str)];

const fn max(what: &'static str, published: f64, at: Factors) -> Headline {
    Headline {
        what,
        published: Published::Exactly(published),
        unit: ValueUnit::Microseconds,
        measure: LATENCY,
        figure: Figure::Worst,
        at,
        prefer: &[],
    }
}

const fn mean(what: &'static str, published: f64, at: Factors) -> Headline {
    Headline { figure: Figure::Mean, ..max(what, published, at) }
}

const SAVING_OFF: Factors = &[("condition", "saving off")];
const SAVING_ON: Factors = &[("condition", "saving on")];
const PRIORITY_97: Factors = &[("condition", "priority 97")];
const EVERY_EDGE: Factors = &[("condition", "display every edge")];
const NEURO: Factors = &[("condition", "neuro-adaptive controller as printed")];

const OURS: &str = "the measure latency: from before the write of an edge to the read that sees it";
const LINK: Definition = Definition::Differs(
    "ours is the latency of the configured link (loopback UDP, pty, eventfd, a simulated converter or a comedi board), the paper's that of \
     a DAQ card, which accounts for most of the paper's mean.",
);

const DAQ: Paper = Paper {
    key: "daq-latency",
    name: "DAQ paper",
    title: "An Experimental Analysis of the Latency of Linux Kernels Applicable for Real-Time Control Strategies",
    setup: "an Intel Core i3 dual-core with an Advantech PCI1716 and a Core i7-4790 with a PCIe1816, PREEMPT_RT 5.2.21-rt15 and other \
            kernels, priority 99; hours to weeks a test",
    items: &[
        Item {
            number: "Table 1",
            caption: "Greatest and mean latency by data saving, priority, display rate and kernel.",
            ours: OURS,
            definition: LINK,
            headlines: &[
                max("Td_max, saving disabled", 73.88, SAVING_OFF),
                mean("Td_mean, saving disabled", 52.50, SAVING_OFF),
                max("Td_max, saving enabled", 89.60, SAVING_ON),
                mean("Td_mean, saving enabled", 52.83, SAVING_ON),
                max("Td_max, priority 97", 95.22, PRIORITY_97),
                mean("Td_mean, priority 97", 52.68, PRIORITY_97),
                max("Td_max, saving and display of every run", 90.48, EVERY_EDGE),
                mean("Td_mean, saving and display of every run", 52.79, EVERY_EDGE),
            ],
            show: Some(conditions_by_condition),
        },
        Item {
            number: "Table 1, lines 5 to 8",
            caption: "The same on Xenomai 4.19 (137.75 µs), standard Linux (264.43 µs), PREEMPT_RT 4.14 (89.72 µs) and a low-latency \
                      kernel (97.59 µs).",
            ours: "the campaign daq under each kernel, and takt compare",
            definition: Definition::Differs(
                "Xenomai is not reproduced; the other kernels are the booted ones.",
            ),
            headlines: &[],
            show: None,
        },
        Item {
            number: "Figs. 1 and 2",
            caption: "Td_max and Td_mean of three DAQ cards, without and with data saving.",
            ours: "the campaigns daq-boards and daq-boards-guest: links of other kinds, simulated converters on stated buses, and comedi's \
                   virtual board",
            definition: LINK,
            headlines: &[],
            show: Some(conditions_by_board),
        },
        Item {
            number: "Table 2",
            caption: "Latency with the neuro-adaptive controller in the loop.",
            ours: OURS,
            definition: LINK,
            headlines: &[
                max("Td_max, neuro-adaptive controller", 95.67, NEURO),
                mean("Td_mean, neuro-adaptive controller", 52.81, NEURO),
            ],
            show: None,
        },
        Item {
            number: "Table 3",
            caption: "Latency by core layout, with cores taken offline.",
            ours: "the campaign daq-cores",
            definition: Definition::Differs(
                "our copy of the paper repeats the values of Table 1 in Table 3, so none is compared; the link differs as in Table 1.",
            ),
            headlines: &[],
            show: Some(conditions_by_layout),
        },
        Item {
            number: "Table 4",
            caption: "Latency of short and of long tests, on two and four cores.",
            ours: "the campaign daq-long",
            definition: Definition::Differs(
                "our copy of the paper repeats the values of Table 1 in Table 4, so none is compared; the link differs as in Table 1.",
            ),
            headlines: &[],
            show: Some(conditions_by_cores),
        },
        Item {
            number: "Figs. 3 to 5",
            caption: "Greatest and mean latency over days.",
            ours: "the trends of maximum and mean in the section of the measure below",
            definition: LINK,
            headlines: &[],
            show: None,
        },
        Item {
            number: "Table 5",
            caption: "Latency on Ubuntu 18.04 (110.46 µs, 40 days), 20.04 (133.21 µs) and PREEMPT_RT 5.2 (100.24 µs).",
            ours: "the campaign daq-long under each kernel",
            definition: LINK,
            headlines: &[],
            show: None,
        },
    ],
    differs: &[
        "The paper ends a short test at the first latency above 75 µs; ours ends after a fixed number of edges, so that conditions have \
         equal numbers.",
    ],
    differs_here: Some(differs_here),
};

/// The conditions of the campaign whose factor is `name`, in the shape of the paper's tables.
fn conditions(contexts: &[&Context<'_>], name: &str) -> Vec<Block> {
    let context = contexts.iter().find(|context| context.group.name == LATENCY);
    let has =
        |context: &&&Context<'_>| context.digests.iter().any(|digest| context.factor(digest, name).is_some());
    context.filter(has).map(|context| Block::Table(shapes::conditions(context))).into_iter().collect()
}

fn conditions_by_condition(_: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    conditions(contexts, "condition")
}

fn conditions_by_board(_: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    conditions(contexts, "board")
}

fn conditions_by_layout(_: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    conditions(contexts, "layout")
}

fn conditions_by_cores(_: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    conditions(contexts, "cores")
}

/// Differences of these runs from the paper's.
fn differs_here(collection: &Collection) -> Vec<String> {
    let machine = &collection.runs[0].header.machine;
    let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut sentences = vec![
        format!("CPUs: {} ({}); the paper has two and four.", word(&machine.online_cpus), word(&machine.cpu)),
        format!(
            "Kernel: {} ({}); the paper has 5.2.21-rt15.",
            word(&machine.kernel),
            word(&machine.preemption)
        ),
    ];
    for sentence in collection.runs.iter().flat_map(|run| differences(&run.dir)) {
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
    let window = collection.runs.iter().filter_map(|run| {
        let [from, to] = run.header.measures.first()?.window_ns?;
        Some(to.saturating_sub(from) as f64)
    });
    let shortest = window.fold(f64::MAX, f64::min);
    if shortest < 3600e9 {
        sentences.push(format!(
            "Runs of at least {}; the paper's take hours to weeks.",
            time((shortest / 1e9).round() * 1e9)
        ));
    }
    sentences
}
