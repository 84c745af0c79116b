//! SentryRT-1, for reports: its tables and figures, what it publishes, and which measure of ours
//! answers each.

use takt_report::document::Block;
use takt_report::paper::{
    BarsOf, Definition, Figure, Headline, Item, Other, Paper, Published, PublishedPair, ValueUnit,
    distributions, grouped_bars,
};
use takt_report::table::{Cell, Table};
use takt_report::{Collection, Context, Digest, count, time};
use takt_rundir::{Factor, RunHeader};

use super::rows::{PERCEPTION_RESPONSE, REACTION, SSM_RESPONSE};

/// The paper as campaigns name it.
pub(super) static PAPERS: [Paper; 1] = [SENTRYRT1];

type Factors = &'static [(&'static str, &'static str)];

const CFS_128: Factors = &[("policy", "CFS+CFS"), ("noise", "128")];
const DL_RR_128: Factors = &[("policy", "DL+RR"), ("noise", "128")];
const DL_RR: Factors = &[("policy", "DL+RR")];
const GENERIC_PHYSICAL: Factors = &[("kernel", "generic"), ("camera_mode", "physical")];
const REALTIME_PHYSICAL: Factors = &[("kernel", "realtime"), ("camera_mode", "physical")];
const PHYSICAL: Factors = &[("camera_mode", "physical")];

const fn reaction(
    what: &'static str,
    published: Published,
    figure: Figure,
    at: Factors,
    prefer: Factors,
) -> Headline {
    Headline { what, published, unit: ValueUnit::Milliseconds, measure: REACTION, figure, at, prefer }
}

const SENTRYRT1: Paper = Paper {
    key: "sentryrt1",
    name: "SentryRT-1",
    title: "SentryRT-1: A Case Study in Evaluating Real-Time Linux for Safety-Critical Robotic Perception",
    setup: "an Intel i9-14900KF with 32 logical CPUs and an NVIDIA RTX 4060 Ti, Linux 5.15 (generic, lowlatency, realtime), five Intel \
            RealSense D435i at 30 FPS, a UR10e; 30 s a run, three runs a configuration",
    items: &[
        Item {
            number: "Fig. 1",
            caption: "The platform: arm, cameras, light, the monitoring windows.",
            ours: "",
            definition: Definition::Absent("a photograph; takt demo shows ours."),
            headlines: &[],
            show: None,
        },
        Item {
            number: "Fig. 2",
            caption: "Task graph of the runtime.",
            ours: "",
            definition: Definition::Absent("a drawing; \"The way of a frame\" in ARCHITECTURE.md is ours."),
            headlines: &[],
            show: None,
        },
        Item {
            number: "Table I",
            caption: "Task set: period, deadline and criticality of each task.",
            ours: "[tasks] of robots/sentryrt1.toml; the measures ssm-response and perception-response against these deadlines",
            definition: Definition::Same,
            headlines: &[],
            show: Some(table_1),
        },
        Item {
            number: "Table II",
            caption: "Experimental variables and their explored values.",
            ours: "the factors of the campaign sentryrt1",
            definition: Definition::Differs(
                "the policies of main threads and of subthreads are one factor with the paper's four combinations; other settings that \
                 helped the paper's runs or ours are separate factors.",
            ),
            headlines: &[],
            show: Some(table_2),
        },
        Item {
            number: "Fig. 3",
            caption: "Reaction times, mean and worst, by policy, noise threads, kernel and camera mode; median of three runs with least \
                      and greatest.",
            ours: "the measure reaction: from the arrival of a frame to the end of the first SSM job that processed it",
            definition: Definition::Same,
            headlines: &[
                reaction(
                    "worst, CFS+CFS, 128 noise threads",
                    Published::Exactly(353.0),
                    Figure::Worst,
                    CFS_128,
                    GENERIC_PHYSICAL,
                ),
                reaction(
                    "mean, CFS+CFS, 128 noise threads",
                    Published::Exactly(117.0),
                    Figure::Mean,
                    CFS_128,
                    GENERIC_PHYSICAL,
                ),
                reaction(
                    "worst, DL+RR, 128 noise threads",
                    Published::Between(44.0, 70.0),
                    Figure::Worst,
                    DL_RR_128,
                    REALTIME_PHYSICAL,
                ),
                reaction(
                    "mean, DL+RR, 128 noise threads",
                    Published::Between(15.0, 17.0),
                    Figure::Mean,
                    DL_RR_128,
                    REALTIME_PHYSICAL,
                ),
                Headline {
                    unit: ValueUnit::Percent,
                    ..reaction(
                        "worst of DL+RR below that of CFS+CFS, 128 noise threads",
                        Published::About(80.0),
                        Figure::WorstBelow(Other { at: CFS_128, prefer: GENERIC_PHYSICAL }),
                        DL_RR_128,
                        REALTIME_PHYSICAL,
                    )
                },
                Headline {
                    unit: ValueUnit::Percent,
                    ..reaction(
                        "mean of DL+RR below that of CFS+CFS, 128 noise threads",
                        Published::About(85.0),
                        Figure::MeanBelow(Other { at: CFS_128, prefer: GENERIC_PHYSICAL }),
                        DL_RR_128,
                        REALTIME_PHYSICAL,
                    )
                },
                reaction(
                    "mean, RR+RR, 128 noise threads",
                    Published::AtMost(37.3),
                    Figure::Mean,
                    &[("policy", "RR+RR"), ("noise", "128")],
                    PHYSICAL,
                ),
                reaction(
                    "mean, DL+CFS, 128 noise threads",
                    Published::AtMost(37.3),
                    Figure::Mean,
                    &[("policy", "DL+CFS"), ("noise", "128")],
                    PHYSICAL,
                ),
                reaction(
                    "worst, DL+RR, 32 noise threads",
                    Published::AtMost(37.3),
                    Figure::Worst,
                    &[("policy", "DL+RR"), ("noise", "32")],
                    PHYSICAL,
                ),
                reaction(
                    "worst, DL+RR, without noise (an inference of 77 ms)",
                    Published::Exactly(81.0),
                    Figure::Worst,
                    &[("policy", "DL+RR"), ("noise", "0")],
                    &[("kernel", "generic"), ("camera_mode", "virtual")],
                ),
            ],
            show: Some(figure_3),
        },
        Item {
            number: "Fig. 4",
            caption: "Distribution of reaction times on the three kernels, DL+RR, 128 noise threads, physical cameras.",
            ours: "the measure reaction, all repetitions together, a row for each kernel; sentryrt1-kernels boots others",
            definition: Definition::Differs(
                "the paper shows one run of each kernel; heights are logarithmic here, so that one late frame is visible.",
            ),
            headlines: &[reaction(
                "mean on realtime less than on generic, DL+RR",
                Published::Exactly(3.0),
                Figure::MeanLess(Other {
                    at: &[("policy", "DL+RR"), ("kernel", "generic")],
                    prefer: &[("noise", "128"), ("camera_mode", "physical")],
                }),
                &[("policy", "DL+RR"), ("kernel", "realtime")],
                &[("noise", "128"), ("camera_mode", "physical")],
            )],
            show: Some(figure_4),
        },
    ],
    differs: &[
        "Perception runs on the CPU here (ONNX Runtime, or the embedded engine), on a GPU with TensorRT in the paper; perception.device = \
         \"cuda\" runs ours on a GPU, too.",
        "The paper does not name its network. Ours is a person detector and a segmenter, both on every frame.",
        "The paper does not print the runtime of perception's reservation. Ours is 1.3 times the measured cost of a frame.",
        "The robot's controller is simulated in the same process, under SCHED_FIFO 60, instead of on a separate computer.",
        "The visualisation tasks draw into memory: there is no window and no OpenGL.",
        "A frame that was not judged has no reaction time; it counts as a miss here.",
    ],
    differs_here: Some(differs_here),
};

fn by_name<'a, 'c>(contexts: &[&'a Context<'c>], name: &str) -> Option<&'a Context<'c>> {
    contexts.iter().copied().find(|context| context.group.name == name)
}

/// The paper's Table I, our tasks beside it.
fn table_1(item: &Item, collection: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    let heads = [
        "Task",
        "Function",
        "Period (paper)",
        "Period (ours)",
        "Deadline (paper)",
        "Deadline (ours)",
        "Criticality",
        "#Late or never, of all",
    ];
    let mut table = Table::new(format!("{}: the task set", item.number), &heads);
    let mut task = |words: [&str; 4], criticality: &str, measure: Option<&str>| {
        let [name, function, period, deadline] = words;
        let context = measure.and_then(|measure| by_name(contexts, measure));
        let ours = |text: Option<String>| text.map_or_else(|| Cell::gap("none"), Cell::text);
        let first = context.and_then(|context| context.digests.iter().find(|d| d.summary.count > 0));
        let (all, missed) = context.map_or((0, 0), |context| {
            let count = |digest: &Digest| {
                (digest.summary.count.saturating_add(digest.skipped()), digest.missed().unwrap_or(0))
            };
            context.digests.iter().map(count).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
        });
        table.push(vec![
            Cell::text(name),
            Cell::text(function),
            Cell::text(period),
            ours(match measure {
                Some(SSM_RESPONSE) => {
                    first.and_then(|d| d.rate_hz).filter(|r| *r > 0.0).map(|rate| time(1e9 / rate))
                }
                Some(_) => frame_period(collection),
                None if name == "τ_arm" => Some("seconds".to_owned()),
                None => Some("best effort".to_owned()),
            }),
            Cell::text(deadline),
            ours(first.and_then(|d| d.deadline_ns).map(|ns| time(ns as f64))),
            Cell::text(criticality),
            if all > 0 { Cell::number(format!("{missed} of {all}")) } else { Cell::gap("no deadline") },
        ]);
    };
    task(["τ_ssm", "SSM", "2 ms", "2 ms"], "high", Some(SSM_RESPONSE));
    task(["τ_p_i", "Perception (cam. i)", "33 ms", "33 ms"], "high", Some(PERCEPTION_RESPONSE));
    task(["τ_arm", "Arm mission control", "Seconds", "N/A"], "low", None);
    task(["τ_v_i", "Visualization (cam. i)", "Best-effort", "N/A"], "low", None);
    let drawn: Vec<f64> =
        headers(collection).filter_map(|h| h.figures.get("frames_visualised").copied()).collect();
    if drawn.is_empty() {
        table.note("No visualisation task ran (tasks.visualisation).");
    } else {
        let least = drawn.iter().copied().fold(f64::MAX, f64::min);
        table.note(format!("The visualisation tasks drew at least {least:.0} frames a run."));
    }
    vec![Block::Table(table)]
}

fn headers(collection: &Collection) -> impl Iterator<Item = &RunHeader> {
    collection.runs.iter().map(|run| &run.header)
}

/// Time between two frames of a camera.
fn frame_period(collection: &Collection) -> Option<String> {
    let scaled = headers(collection).find_map(|header| header.figures.get("scaled_rate_fps").copied());
    // Without the rule, the cameras' 30 FPS stand.
    scaled
        .filter(|rate| *rate > 0.0)
        .map(|rate| time((1e9 / rate).round()))
        .or_else(|| Some("as the cameras send".to_owned()))
}

/// The paper's variables, and the names of ours.
const VARIABLES: [(&str, &str, &str); 4] = [
    ("Camera mode", "Physical (D435i) / Virtual (dataset)", "camera_mode"),
    ("Linux kernel", "generic / lowlatency / realtime", "kernel"),
    ("Main threads policy, subthreads policy", "CFS+CFS / DL+CFS / DL+RR / RR+RR", "policy"),
    ("Noise thread count", "0 / 16 / 32 / 64 / 128", "noise"),
];

/// Help beside the policy: the value that is the paper's.
const PLAIN: [(&str, &str); 7] = [
    ("timer_slack", "default"),
    ("idle", "as-it-is"),
    ("lock_memory", "false"),
    ("reclaim", "false"),
    ("visualisation", "true"),
    ("pinning", "none"),
    ("group", "none"),
];

/// The values that a factor has in these runs, in their order.
fn explored(collection: &Collection, name: &str) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    let factors = collection.configurations.iter().filter(|c| !c.runs.is_empty()).flat_map(|c| &c.factors);
    for Factor { value, .. } in factors.filter(|factor| factor.name == name) {
        if !values.contains(value) {
            values.push(value.clone());
        }
    }
    values
}

/// The paper's Table II, what these runs explored beside it.
fn table_2(item: &Item, collection: &Collection, _: &[&Context<'_>]) -> Vec<Block> {
    let mut table = Table::new(
        format!("{}: variables and their explored values", item.number),
        &["Variable", "Paper", "These runs", "Our factor"],
    );
    let here = |name: &str| {
        let values = explored(collection, name);
        if values.is_empty() { Cell::gap("not varied") } else { Cell::text(values.join(" / ")) }
    };
    for (variable, paper, factor) in VARIABLES {
        table.push(vec![Cell::text(variable), Cell::text(paper), here(factor), Cell::text(factor)]);
    }
    for (factor, plain) in PLAIN {
        let words = format!("({factor})").replace('_', " ");
        table.push(vec![Cell::text(words), Cell::text(plain), here(factor), Cell::text(factor)]);
    }
    table.note("In brackets: factors that Takt can vary and the paper does not, with the paper's value.");
    vec![Block::Table(table)]
}

fn figure_3(_: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    const FIGURE_3: BarsOf = BarsOf {
        id: "paper-fig-3",
        title: "Fig. 3: reaction times by policy and noise",
        caption: "Bars: median over the repetitions, mean in front of worst; whiskers: least and greatest repetition. Dots: the paper's \
             values for that kernel and camera mode.",
        groups: ("noise", "noise threads", &["0", "16", "32", "64", "128"]),
        series: ("policy", &["CFS+CFS", "DL+CFS", "DL+RR", "RR+RR"]),
        panels: &["camera_mode", "kernel"],
        published: &[
            PublishedPair {
                panel: &["physical", "generic"],
                group: "128",
                series: "CFS+CFS",
                ranges_ns: &[[353e6, 353e6], [117e6, 117e6]],
            },
            PublishedPair {
                panel: &["physical", "realtime"],
                group: "128",
                series: "DL+RR",
                ranges_ns: &[[44e6, 70e6], [15e6, 17e6]],
            },
            PublishedPair {
                panel: &["virtual", "generic"],
                group: "0",
                series: "DL+RR",
                ranges_ns: &[[81e6, 81e6]],
            },
        ],
    };
    by_name(contexts, REACTION).and_then(|context| grouped_bars(context, &FIGURE_3)).into_iter().collect()
}

/// The paper's Fig. 4: its best policy under most noise, a row for each kernel.
fn figure_4(_: &Item, _: &Collection, contexts: &[&Context<'_>]) -> Vec<Block> {
    let Some(context) = by_name(contexts, REACTION) else { return Vec::new() };
    let fits = |digest: &&Digest| {
        digest.summary.count > 0
            && DL_RR.iter().all(|(name, value)| context.factor(digest, name) == Some(*value))
    };
    let noise = |digest: &Digest| context.factor(digest, "noise").and_then(|noise| noise.parse::<u32>().ok());
    let Some(most) = context.digests.iter().filter(fits).filter_map(noise).max() else { return Vec::new() };
    let shown: Vec<&Digest> =
        context.digests.iter().filter(fits).filter(|d| noise(d) == Some(most)).collect();
    let title = format!("Fig. 4: reaction times under DL+RR, {most} noise threads, by kernel");
    let caption = "All repetitions together, bins of equal ratio. The paper's three rows are one run each.";
    distributions(context, ("paper-fig-4", &title, caption), &shown).into_iter().collect()
}

/// Differences of these runs from the paper's.
fn differs_here(collection: &Collection) -> Vec<String> {
    let mut sentences = Vec::new();
    let machine = &collection.runs[0].header.machine;
    let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    sentences.push(format!(
        "CPUs: {} ({}{}); the paper has 32.",
        word(&machine.online_cpus),
        word(&machine.cpu),
        if machine.hypervisor { ", under a hypervisor" } else { "" }
    ));
    let mut kernels: Vec<String> = Vec::new();
    for header in headers(collection) {
        let release = format!("{} ({})", word(&header.machine.kernel), word(&header.machine.preemption));
        if !kernels.contains(&release) {
            kernels.push(release);
        }
    }
    sentences.push(format!("Kernels: {}; the paper has 5.15.0.", kernels.join(", ")));
    match explored(collection, "camera_mode").as_slice() {
        [] => sentences.push("Camera mode: not varied, and not stated.".to_owned()),
        [only] if only == "virtual" => sentences.push(
            "Cameras: only recorded pictures, while the paper's headline uses physical cameras; replay decodes on the CPU.".to_owned(),
        ),
        _ => {}
    }
    for (factor, plain) in PLAIN {
        let other: Vec<String> =
            explored(collection, factor).into_iter().filter(|value| value != plain).collect();
        if !other.is_empty() {
            sentences.push(format!(
                "{}: {} here, {plain} in the paper.",
                factor.replace('_', " "),
                other.join(" and ")
            ));
        }
    }
    let repetitions =
        collection.configurations.iter().map(|c| c.runs.len()).filter(|n| *n > 0).min().unwrap_or(0);
    if repetitions < 3 {
        sentences.push(format!(
            "at least {} of each configuration; the paper has three.",
            count(repetitions, "run", "runs")
        ));
    }
    let window_s = |header: &RunHeader| {
        let [from, to] = header.measures.first()?.window_ns?;
        Some(to.saturating_sub(from) as f64 / 1e9)
    };
    let shortest = headers(collection).filter_map(window_s).fold(f64::MAX, f64::min);
    if shortest < 29.5 {
        sentences.push(format!("Runs of {}; the paper's runs take 30 s.", time((shortest * 1e9).round())));
    }
    sentences
}
