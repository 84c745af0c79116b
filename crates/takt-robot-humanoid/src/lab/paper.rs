//! The humanoid's paper, for reports: its tables and figures, what it publishes, and which measure
//! of ours answers each.

use takt_report::document::Block;
use takt_report::paper::{Definition, Figure, Headline, Item, Paper, Published, ValueUnit};
use takt_report::table::{Cell, Table};
use takt_report::{Collection, Context, Run, is_idle, shapes, time};

/// The paper as campaigns name it.
pub(super) static PAPERS: [Paper; 1] = [HUMANOID];

/// The control period of our measures.
const PERIOD: &str = "period";
/// The stress that is the paper's Fig. 5.
const STORM: &str = "humanoid";

const fn period(
    what: &'static str,
    published: f64,
    figure: Figure,
    at: &'static [(&'static str, &'static str)],
) -> Headline {
    Headline {
        what,
        published: Published::Exactly(published),
        unit: ValueUnit::Microseconds,
        measure: PERIOD,
        figure,
        at,
        prefer: &[],
    }
}

const fn absent(number: &'static str, caption: &'static str, why: &'static str) -> Item {
    Item { number, caption, ours: "", definition: Definition::Absent(why), headlines: &[], show: None }
}

const DRAWING: &str = "a drawing.";

const HUMANOID: Paper = Paper {
    key: "humanoid-2009",
    name: "Humanoid paper",
    title: "The paper on a humanoid robot with EtherCAT of the Linux Symposium 2009",
    setup: "an x86 quad-core at 2.4 GHz with 2 GB of memory, Linux 2.6.26.8-rt16, EtherLab with 59 slave devices, 1 kHz; ten minutes a \
            run",
    items: &[
        absent("Fig. 1", "Deployment of EtherCAT master and slave devices.", DRAWING),
        absent("Fig. 2", "Software architecture of the control subsystem.", DRAWING),
        absent(
            "Fig. 3",
            "Concurrency control of the interface's buffer by an RT-mutex.",
            "a drawing; tests of the control interface show that a real-time cycle waits for at most one reader.",
        ),
        Item {
            number: "Fig. 4",
            caption: "Data flow in a cycle: a sensor value takes 1.5 to 2.5 cycles, a command 1.5, the reaction to an event 3 to 4.",
            ours: "the measures sensor, command and reaction of simulated devices",
            definition: Definition::Same,
            headlines: &[
                Headline {
                    published: Published::Between(1.5, 2.5),
                    unit: ValueUnit::Milliseconds,
                    measure: "sensor",
                    ..period("from an event to the cycle that sees it, median", 0.0, Figure::Median, &[])
                },
                Headline {
                    published: Published::Exactly(1.5),
                    unit: ValueUnit::Milliseconds,
                    measure: "command",
                    ..period("from a decision to its effect, median", 0.0, Figure::Median, &[])
                },
                Headline {
                    published: Published::Between(3.0, 4.0),
                    unit: ValueUnit::Milliseconds,
                    measure: "reaction",
                    ..period("from an event to the reaction, median", 0.0, Figure::Median, &[])
                },
            ],
            show: None,
        },
        Item {
            number: "Fig. 5",
            caption: "The stress: dd of 1 GB in a loop, hackbench 20, a flood of pings, du of the whole disk.",
            ours: "the stress profile humanoid; the report's table of interference shows its work",
            definition: Definition::Differs(
                "dd writes the same file repeatedly instead of filling the disk; replacements for missing programs are listed below.",
            ),
            headlines: &[],
            show: None,
        },
        absent(
            "Fig. 6",
            "The test environment.",
            "a description of the paper's computer; ours is in the section on the machine.",
        ),
        Item {
            number: "Fig. 7",
            caption: "Control period without load by tuning: lowest 99 % to 100 % of the values.",
            ours: "the measure period",
            definition: Definition::Same,
            headlines: &[
                period(
                    "greatest, no tuning",
                    1482.0,
                    Figure::Worst,
                    &[("tuning", "none"), ("stress", "off")],
                ),
                period("greatest, PMC", 1044.0, Figure::Worst, &[("tuning", "PMC"), ("stress", "off")]),
                period("mean, PMC", 1017.6, Figure::Mean, &[("tuning", "PMC"), ("stress", "off")]),
                period("greatest, PMCS", 1020.0, Figure::Worst, &[("tuning", "PMCS"), ("stress", "off")]),
                period("mean, PMCS", 1002.77, Figure::Mean, &[("tuning", "PMCS"), ("stress", "off")]),
            ],
            show: Some(figure_7),
        },
        Item {
            number: "Fig. 8",
            caption: "Control period under heavy load by tuning: lowest 99 % to 100 % of the values.",
            ours: "the measure period",
            definition: Definition::Same,
            headlines: &[
                period(
                    "greatest, no tuning",
                    346_148.0,
                    Figure::Worst,
                    &[("tuning", "none"), ("stress", "humanoid")],
                ),
                period("greatest, PMC", 1100.0, Figure::Worst, &[("tuning", "PMC"), ("stress", "humanoid")]),
                period("mean, PMC", 1006.12, Figure::Mean, &[("tuning", "PMC"), ("stress", "humanoid")]),
                period(
                    "greatest, PMCS",
                    1071.0,
                    Figure::Worst,
                    &[("tuning", "PMCS"), ("stress", "humanoid")],
                ),
                period("mean, PMCS", 1002.11, Figure::Mean, &[("tuning", "PMCS"), ("stress", "humanoid")]),
            ],
            show: Some(figure_8),
        },
    ],
    differs: &[
        "The devices are a simulated segment of 59 on a virtual Ethernet cable, unless motion.link names a network card.",
        "The master runs in the program, over a raw socket; the paper's is a kernel module with its own driver.",
        "The grid is absolute here: a late cycle is followed by a shorter one, and the mean stays 1,000 µs. The paper sleeps for the rest \
         of the period, so every wake-up delay lengthens the period, and its mean lies above 1,000 µs.",
    ],
    differs_here: Some(differs_here),
};

/// The paper's nine tunings.
const TUNINGS: [&str; 9] = ["No tuning", "M", "C", "MC", "P", "PM", "PC", "PMC", "PMCS"];

/// A row of Figs. 7 and 8: share, figure, a value for each tuning (µs).
type Row = (&'static str, &'static str, [f64; 9]);

const FIGURE_7: [Row; 16] = [
    ("99 %", "min", [1005.0, 1006.0, 1005.0, 1005.0, 1005.0, 1005.0, 1004.0, 1004.0, 1001.0]),
    ("99 %", "max", [1023.0, 1032.0, 1030.0, 1028.0, 1029.0, 1030.0, 1029.0, 1032.0, 1006.0]),
    ("99 %", "mean", [1013.45, 1020.54, 1020.01, 1014.19, 1019.46, 1019.75, 1014.48, 1017.43, 1002.72]),
    ("99 %", "SD", [5.02, 4.94, 4.51, 5.10, 4.03, 4.37, 5.34, 4.21, 0.48]),
    ("99.9 %", "max", [1060.0, 1061.0, 1072.0, 1062.0, 1034.0, 1035.0, 1030.0, 1037.0, 1008.0]),
    ("99.9 %", "mean", [1013.56, 1020.65, 1020.11, 1014.33, 1019.56, 1019.86, 1014.61, 1017.58, 1002.76]),
    ("99.9 %", "SD", [5.17, 5.06, 4.65, 5.33, 4.15, 4.50, 5.50, 4.48, 0.65]),
    ("99.99 %", "max", [1351.0, 1085.0, 1355.0, 1331.0, 1038.0, 1038.0, 1034.0, 1039.0, 1013.0]),
    ("99.99 %", "mean", [1013.62, 1020.70, 1020.19, 1014.41, 1019.57, 1019.88, 1014.62, 1017.60, 1002.77]),
    ("99.99 %", "SD", [5.76, 5.32, 5.82, 6.16, 4.17, 4.53, 5.52, 4.52, 0.69]),
    ("99.999 %", "max", [1474.0, 1394.0, 1463.0, 1444.0, 1043.0, 1040.0, 1040.0, 1041.0, 1016.0]),
    ("99.999 %", "mean", [1013.66, 1020.71, 1020.22, 1014.44, 1019.57, 1019.88, 1014.63, 1017.60, 1002.77]),
    ("99.999 %", "SD", [6.96, 5.59, 6.86, 7.08, 4.18, 4.53, 5.52, 4.52, 0.70]),
    ("100 %", "max", [1482.0, 1464.0, 1484.0, 1477.0, 1064.0, 1044.0, 1044.0, 1044.0, 1020.0]),
    ("100 %", "mean", [1013.67, 1020.71, 1020.23, 1014.45, 1019.58, 1019.88, 1014.63, 1017.60, 1002.77]),
    ("100 %", "SD", [7.12, 5.74, 7.02, 7.23, 4.18, 4.53, 5.52, 4.52, 0.70]),
];

const FIGURE_8: [Row; 16] = [
    ("99 %", "min", [1002.0, 1003.0, 1004.0, 1004.0, 1004.0, 1004.0, 1004.0, 1004.0, 1001.0]),
    ("99 %", "max", [36_967.0, 37_019.0, 1249.0, 1215.0, 1020.0, 1026.0, 1027.0, 1027.0, 1004.0]),
    ("99 %", "mean", [2072.05, 2066.02, 1006.85, 1006.66, 1006.96, 1007.08, 1005.83, 1005.81, 1002.03]),
    ("99 %", "SD", [3935.35, 3915.51, 13.03, 11.83, 1.85, 2.11, 3.28, 3.23, 0.20]),
    ("99.9 %", "max", [88_376.0, 87_678.0, 2004.0, 2004.0, 1050.0, 1051.0, 1048.0, 1048.0, 1019.0]),
    ("99.9 %", "mean", [2529.41, 2521.51, 1013.85, 1013.33, 1007.17, 1007.30, 1006.09, 1006.07, 1002.08]),
    ("99.9 %", "SD", [6314.70, 6283.76, 78.55, 76.08, 2.90, 3.25, 4.29, 4.26, 0.74]),
    ("99.99 %", "max", [156_548.0, 152_964.0, 16_513.0, 19_003.0, 1173.0, 1160.0, 1068.0, 1071.0, 1038.0]),
    ("99.99 %", "mean", [2624.61, 2615.18, 1016.26, 1016.09, 1007.23, 1007.36, 1006.13, 1006.11, 1002.10]),
    ("99.99 %", "SD", [7081.89, 7029.08, 138.80, 161.27, 3.57, 3.84, 4.52, 4.51, 0.99]),
    ("99.999 %", "max", [236_548.0, 228_477.0, 39_079.0, 33_098.0, 1387.0, 1319.0, 1081.0, 1088.0, 1055.0]),
    ("99.999 %", "mean", [2640.65, 2630.67, 1018.49, 1018.29, 1007.25, 1007.38, 1006.13, 1006.12, 1002.11]),
    ("99.999 %", "SD", [7284.39, 7219.58, 280.70, 285.45, 4.23, 4.36, 4.56, 4.56, 1.06]),
    ("100 %", "max", [346_148.0, 284_092.0, 50_158.0, 56_006.0, 1510.0, 1464.0, 1098.0, 1100.0, 1071.0]),
    ("100 %", "mean", [2643.59, 2633.28, 1018.92, 1018.73, 1007.25, 1007.39, 1006.14, 1006.12, 1002.11]),
    ("100 %", "SD", [7341.15, 7264.35, 310.66, 317.71, 4.46, 4.53, 4.57, 4.57, 1.08]),
];

fn figure_7(_: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    both(contexts, true, "Fig. 7", &FIGURE_7)
}

fn figure_8(_: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    both(contexts, false, "Fig. 8", &FIGURE_8)
}

/// Ours in the paper's shape, then the paper's.
fn both(contexts: &[&Context<'_>], idle: bool, number: &str, published: &[Row]) -> Vec<Block> {
    let Some(context) = contexts.iter().find(|context| context.group.name == PERIOD) else {
        return Vec::new();
    };
    let ours = shapes::low_of(context, idle);
    if ours.is_empty() {
        return Vec::new();
    }
    let heads: Vec<String> = ["Share", "Figure"]
        .map(str::to_owned)
        .into_iter()
        .chain(TUNINGS.map(|name| format!("#{name}")))
        .collect();
    let mut paper = Table::new(format!("{number} as published (µs)"), &heads);
    for (share, figure, values) in published {
        let mut row = vec![Cell::text(share), Cell::text(figure)];
        row.extend(values.iter().map(|value| Cell::number(format!("{value:.2}"))));
        paper.push(row);
    }
    paper.note("P: maximum priority, M: memory locking, C: CPU shielding, S: spinning nanosleep.");
    ours.into_iter().chain([paper]).map(Block::Table).collect()
}

/// Differences of these runs from the paper's.
fn differs_here(collection: &Collection) -> Vec<String> {
    let machine = &collection.runs[0].header.machine;
    let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut sentences = vec![
        format!("CPUs: {} ({}); the paper has four.", word(&machine.online_cpus), word(&machine.cpu)),
        format!(
            "Kernel: {} ({}); the paper has 2.6.26.8-rt16.",
            word(&machine.kernel),
            word(&machine.preemption)
        ),
    ];
    let refused = collection.runs.iter().filter(|run| !run.header.not_granted.is_empty()).count();
    if refused > 0 {
        sentences.push(format!(
            "{refused} of {} runs did not get all settings; their columns are labelled.",
            collection.runs.len()
        ));
    }
    for sentence in collection.runs.iter().flat_map(differences) {
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
    let window = collection.runs.iter().filter_map(|run| {
        let [from, to] = run.header.measures.first()?.window_ns?;
        Some(to.saturating_sub(from) as f64)
    });
    let shortest = window.fold(f64::MAX, f64::min);
    if shortest < 590e9 {
        sentences.push(format!(
            "Runs of {}; the paper's runs take ten minutes.",
            time((shortest / 1e9).round() * 1e9)
        ));
    }
    sentences
}

/// In what a run differs from the paper's, a sentence each.
fn differences(run: &Run) -> Vec<String> {
    let header = &run.header;
    let factor = |name: &str| {
        let factors = &header.experiment.factors;
        factors.iter().find(|factor| factor.name == name).map(|factor| factor.value.as_str())
    };
    let mut list = Vec::new();
    let stress = factor("stress").unwrap_or("off");
    if !is_idle(stress) && stress != STORM {
        list.push(format!("Stress {stress} is not the paper's script (Fig. 5), which is stress {STORM}."));
    }
    for component in header.load["components"].as_array().into_iter().flatten() {
        if let (Some(kind), Some(why)) = (component["kind"].as_str(), component["stand_in"].as_str()) {
            list.push(format!("{kind} was replaced: {why}."));
        }
    }
    let tuning = factor("tuning").unwrap_or("a run");
    list.extend(header.not_granted.iter().map(|text| format!("Not granted under {tuning}: {text}.")));
    if let Some(machine) = header.machine.virtual_machine.as_ref().filter(|machine| machine.virtual_time) {
        list.push(format!("Time is counted in a virtual machine ({}).", machine.machine));
    }
    list
}

#[cfg(test)]
mod tests;
