//! `takt manage` on real ROS 2, held against what the nodes themselves wrote down
//! (`ros2/takt_truth`).
//!
//! Long tests are ignored, and reported here: the campaign, the ten runs, and typical values
//! without and with the manager, each as
//! `cargo test -p takt --test it ros2_truth:: -- --ignored --nocapture NAME`. The campaign leaves
//! everything in `TAKT_TRUTH_KEEP` while it runs (with `TAKT_TRUTH_ATTACH=1` the manager comes
//! later, by `--pid`), and `TAKT_TRUTH_READ=1` judges what an earlier one, broken off or not, left
//! there.

#![allow(clippy::unwrap_used)]

use crate::ros2;
use crate::takt;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ros2::compare::{answer, differences, false_guarantees};
use ros2::managed::{self, Managed, Word, broken};
use ros2::{CHAINS, Completion, Run, Truth};
use serde_json::{Value, json};
use takt::{alone, json as read_json, takt as run};

/// A folder for a run, kept where a person asks for it.
struct Workspace {
    path: PathBuf,
    _own: Option<tempfile::TempDir>,
}

impl Workspace {
    fn new(name: &str) -> Self {
        if let Some(kept) = std::env::var_os("TAKT_TRUTH_KEEP") {
            let path = Path::new(&kept).join(name);
            let _ = std::fs::remove_dir_all(&path);
            return Self { path, _own: None };
        }
        let own = tempfile::tempdir().unwrap();
        Self { path: own.path().to_owned(), _own: Some(own) }
    }
}

fn manage(environment: &[(String, String)], more: &[&str], scale: &str, seconds: u32, name: &str) -> Managed {
    let workspace = Workspace::new(name);
    managed::run(environment, more, scale, seconds, &workspace.path, false);
    Managed::read(&workspace.path)
}

/// Differences of some runs, each with the reason; printed, not asserted.
const SOMETIMES: &[(&str, &str)] = &[
    (
        "/stereo subscription /left: an edge to ",
        "whichever of two joined inputs comes last publishes, so both have that edge",
    ),
    ("/stereo subscription /right: an edge to ", "the same"),
    ("/fuser subscription /depth: an edge to ", "the same"),
    ("/fuser subscription /range: an edge to ", "the same"),
    (
        "/encoder timer 30ms: period ",
        "an events executor's timer that runs late for long is not distinguished from a longer period",
    ),
    ("events: worst ", "and so the release of one that waited with others in the queue is not known"),
    ("events: median ", "the same"),
    ("static: worst ", "the same"),
    ("static: median ", "the same"),
];

/// Whether a difference fails the test. All do where `TAKT_TRUTH_STRICT=1` asks for it. Otherwise
/// structure does, costs do, a latency above a guaranteed bound does, and where no event was lost
/// the completions and latencies of chains: whether there is a bound depends on what else the CPUs
/// did, and so does how much of the executor's work falls into one activation. Everything is
/// printed.
fn judged(difference: &str, lost: u64) -> bool {
    if std::env::var_os("TAKT_TRUTH_STRICT").is_some_and(|value| value == "1") {
        return true;
    }
    let always = [
        "not in the model",
        ": period ",
        ": no edge to ",
        ": an edge to ",
        ": executor ",
        ": threads ",
        ": FALSE GUARANTEE: ",
        "python: ",
    ];
    let complete = [" completions, in truth", ": worst ", ": median ", ": costs less: ", ": costs more: "];
    !SOMETIMES.iter().any(|(start, _)| difference.starts_with(start))
        && (always.iter().any(|words| difference.contains(words))
            || (lost == 0 && complete.iter().any(|words| difference.contains(words))))
}

/// A run, and what differs in it and is judged.
fn run_and_compare(environment: &[(String, String)]) -> (Managed, Vec<String>) {
    let managed = manage(environment, &["--observe"], "0.5", 15, "observed");
    assert!(managed.truth.runs.len() > 1000, "{} activations", managed.truth.runs.len());
    let lost = managed.status()["lost"].as_u64().unwrap();
    let (judged, other): (Vec<_>, Vec<_>) =
        differences(&managed).into_iter().partition(|one| judged(one, lost));
    for one in other {
        println!("DIFFERS: {one}");
    }
    (managed, judged)
}

/// Subject of a difference, without its figures.
fn kind(one: &str) -> String {
    one.split_whitespace().take(4).collect::<Vec<_>>().join(" ")
}

#[test]
#[ignore = "takes 45 s"]
fn the_model_and_the_measurements_are_what_the_nodes_wrote_down() {
    let Some(environment) = ros2::environment() else { return };
    let _machine = alone();
    let (mut managed, mut unknown) = run_and_compare(&environment);
    if !unknown.is_empty() {
        // Others use these CPUs, too: what differs must differ twice.
        println!("again, because of {unknown:#?}");
        let (second, again) = run_and_compare(&environment);
        let first: BTreeSet<String> = unknown.iter().map(|one| kind(one)).collect();
        unknown = again.into_iter().filter(|one| first.contains(&kind(one))).collect();
        managed = second;
    }
    assert!(unknown.is_empty(), "{} differences:\n{unknown:#?}", unknown.len());

    // Were the last callbacks of a chain three milliseconds later than the nodes say, it would be
    // noticed.
    let runs = managed.truth.runs.clone();
    let of_gauge = |run: &&mut Run| run.callback == "/gauge subscription /charge";
    for run in managed.truth.runs.iter_mut().filter(of_gauge) {
        run.end_ns += 3_000_000;
        run.left_ns += 3_000_000;
    }
    let noticed = differences(&managed);
    for what in ["battery: worst", "battery: median"] {
        assert!(noticed.iter().any(|one| one.starts_with(what)), "{what} is not in {noticed:#?}");
    }
    // So would messages that never arrived,
    let mut lossy = runs.clone();
    for run in lossy.iter_mut().filter(of_gauge).step_by(5) {
        run.inputs.clear();
    }
    managed.truth = Truth::new(lossy);
    let noticed = differences(&managed);
    let counted = |one: &String| one.starts_with("battery: ") && one.contains(" completions");
    assert!(noticed.iter().any(counted), "{noticed:#?}");
    // messages that came another way, a callback in another thread,
    let mut other = runs.clone();
    for run in other.iter_mut().filter(of_gauge) {
        run.inputs.clear();
        run.tid += 100_000;
    }
    managed.truth = Truth::new(other);
    let noticed = differences(&managed);
    for what in [": an edge to /gauge subscription /charge", "/gauge subscription /charge: threads"] {
        assert!(noticed.iter().any(|one| one.contains(what)), "{what} is not in {noticed:#?}");
    }
    // and execution times that are half of what they are, or three milliseconds more each time.
    managed.truth = Truth::new(runs);
    for (factor, more_ns, what) in [(0.5, 0.0, ": costs less: "), (1.0, 3e6, ": costs more: ")] {
        let real = managed.all.clone();
        for callback in managed.all["model"]["callbacks"].as_array_mut().unwrap() {
            for (i, ns) in callback["cost"]["most_ns"].as_array_mut().unwrap().iter_mut().enumerate() {
                *ns = json!((ns.as_f64().unwrap() * factor + more_ns * (i + 1) as f64) as u64);
            }
        }
        let noticed = differences(&managed);
        let about = |one: &&String| one.contains(what);
        let callbacks: BTreeSet<&str> = noticed
            .iter()
            .filter(about)
            .filter_map(|one| one.split_once(what))
            .map(|(name, _)| name)
            .collect();
        let computing =
            ["/planner timer 50ms", "/rectify subscription /image", "/filter subscription /scans"];
        assert!(computing.iter().all(|it| callbacks.contains(it)), "{what}: {callbacks:?}");
        println!("{what} seen of {} callbacks", callbacks.len());
        managed.all = real;
    }
}

/// Under reservations, for a short time: everything that was said to be guaranteed was kept by the
/// nodes' own clock, and the same chains can be analysed as in a run without.
#[test]
#[ignore = "takes 45 s"]
fn what_is_guaranteed_is_kept_by_the_clock_of_the_nodes() {
    let Some(environment) = ros2::environment() else { return };
    let _machine = alone();
    let mut twice: Option<BTreeSet<String>> = None;
    let managed = loop {
        let managed = manage(&environment, &[], "0.5", 20, "kept");
        if !managed.reserved() {
            takt_witness::skip!(
                "nothing was reserved: {}, {}",
                managed.status()["mode"],
                managed.status()["differences"]
            );
            return;
        }
        let mut found = Vec::new();
        for chain in CHAINS {
            false_guarantees(&managed, chain, &mut found);
        }
        if found.is_empty() {
            break managed;
        }
        println!("{found:#?}");
        let about: BTreeSet<String> = found.iter().map(|one| kind(one)).collect();
        // What this machine's other users do can hit one chain once.
        match &twice {
            Some(first) => assert!(first.is_disjoint(&about), "again: {found:#?}"),
            None => {
                twice = Some(about);
                continue;
            }
        }
        break managed;
    };
    let mut guaranteed = 0;
    for chain in CHAINS {
        let one = managed.broken(chain);
        let (word_s, all_s) = managed.guaranteed_s(chain.name);
        println!(
            "{:13} guaranteed {word_s:5.1} of {all_s:5.1} s, {:>4} latencies, {} stolen, closest {:.0} % of the bound",
            chain.name,
            one.guaranteed,
            one.stolen,
            one.closest * 100.0
        );
        guaranteed += one.guaranteed;
        // Were every bound half of the greatest latency, that would be seen.
        if one.guaranteed >= 10 && one.above == 0 {
            let mut message = managed.message(chain.name);
            for word in &mut message {
                word.bound_ms = word.bound_ms.map(|bound| bound * one.closest / 2.0);
            }
            let planted = broken(&message, &managed.truth, chain.path, &[]);
            assert!(planted.above > 0 && planted.guaranteed == one.guaranteed, "{}: {planted:?}", chain.name);
        }
    }
    println!("{guaranteed} latencies were guaranteed");
}

/// The check itself: bounds that are half of what they must be, and a word that is kept when it was
/// taken, are seen.
#[test]
fn a_false_guarantee_is_seen() {
    let ms = |ms: f64| (ms * 1e6) as u64;
    let node = |callback: &str, at_ms: f64, lasts_ms: f64, inputs: &[String], outputs: &[String]| Run {
        callback: callback.to_owned(),
        executor: "single_threaded".to_owned(),
        pid: 1,
        tid: 1,
        release_ns: ms(at_ms),
        start_ns: ms(at_ms),
        end_ns: ms(at_ms + lasts_ms),
        left_ns: ms(at_ms + lasts_ms),
        cpu_ns: 0,
        inputs: inputs.to_vec(),
        outputs: outputs.to_vec(),
    };
    // Every 100 ms one that takes 8 ms; from 5 s on 30 ms.
    let mut runs = Vec::new();
    for i in 0..100 {
        let (at_ms, id) = (f64::from(i) * 100.0, vec![format!("m#{i}")]);
        runs.push(node("a", at_ms, 1.0, &[], &id));
        runs.push(node("b", at_ms + 1.0, if i < 50 { 7.0 } else { 29.0 }, &id, &[]));
    }
    let truth = Truth::new(runs);
    let word = |at_ms: f64, state: &str, bound_ms: Option<f64>| Word {
        at_ns: ms(at_ms),
        state: state.to_owned(),
        bound_ms,
    };
    let judge = |message: &[Word]| {
        let one = broken(message, &truth, &["a", "b"], &[]);
        (one.guaranteed, one.above)
    };
    let learning = word(0.0, "learning", None);
    let given = word(950.0, "guaranteed", Some(10.0));
    // Taken before the first long one began.
    assert_eq!(judge(&[learning.clone(), given.clone(), word(4990.0, "refuted", None)]), (40, 0));
    // Kept too long: for three of the long ones, for ever, and while the first of them was under
    // way.
    assert_eq!(judge(&[learning.clone(), given.clone(), word(5250.0, "refuted", None)]), (43, 3));
    assert_eq!(judge(&[learning.clone(), given.clone()]), (90, 50));
    assert_eq!(judge(&[learning.clone(), given.clone(), word(5020.0, "refuted", None)]), (40, 0));
    // Taken and given anew while it was under way.
    let again = [word(5010.0, "refuted", None), word(5020.0, "guaranteed", Some(10.0))];
    assert_eq!(
        judge(&[&[learning.clone(), given.clone()], &again[..], &[word(5090.0, "learning", None)]].concat()),
        (40, 0)
    );
    // A bound of half: all are above it. A wider one afterwards holds for what began before.
    let half = word(950.0, "guaranteed", Some(4.0));
    assert_eq!(judge(&[learning.clone(), half, word(4990.0, "refuted", None)]), (40, 40));
    assert_eq!(judge(&[learning.clone(), given.clone(), word(5015.0, "guaranteed", Some(35.0))]), (90, 0));
    // The hypervisor took the machine away meanwhile; only a part of it; at another time.
    let one = |stolen: &[(u64, u64)]| {
        let message = [learning.clone(), given.clone(), word(5050.0, "refuted", None)];
        let one = broken(&message, &truth, &["a", "b"], stolen);
        (one.above, one.stolen)
    };
    assert_eq!(one(&[(ms(5020.0), ms(20.0))]), (0, 1));
    assert_eq!(one(&[(ms(5020.0), ms(5.0))]), (1, 0));
    assert_eq!(one(&[(ms(4000.0), ms(20.0))]), (1, 0));

    // What was said is read from the log: a plan's bound, states between plans, and the status of
    // each period, when they were written.
    let log = [
        json!({"kind": "plan", "at_ns": 1_000, "wall_s": 100.0, "chains": [{"name": "it", "bound_ns": 5_000_000, "path_names": ["a", "b"]}]}),
        json!({"kind": "chain", "at_ns": 1_000, "wall_s": 100.5, "chain": "it", "state": "guaranteed"}),
        json!({"kind": "chain", "at_ns": 2_000, "wall_s": 101.0, "chain": "other", "state": "refuted"}),
        json!({"kind": "status", "at_ns": 3_000, "wall_s": 102.0, "status": {"chains": [{"name": "it", "state": "learning", "bound_ns": null}]}}),
    ];
    let managed = Managed::of(Value::Null, log.to_vec(), truth.clone());
    let message = managed.message("it");
    let states: Vec<(&str, Option<f64>)> =
        message.iter().map(|it| (it.state.as_str(), it.bound_ms)).collect();
    assert_eq!(states, [("guaranteed", Some(5.0)), ("learning", None)]);
    assert_eq!((message[1].at_ns - message[0].at_ns) / 1_000_000, 1500);
    assert_eq!(managed.measured_from_ns("it"), Some(1_000));
}

/// `TAKT_TRUTH_RUNS` runs (10 unless set) of 12 s say the same of every callback and every chain.
#[test]
#[ignore = "minutes"]
fn campaign_the_same_system_gives_the_same_answer_each_time() {
    let Some(environment) = ros2::environment() else { return };
    let _machine = alone();
    let runs = std::env::var("TAKT_TRUTH_RUNS").map_or(10, |text| text.parse().unwrap());
    let mut answers = Vec::new();
    for number in 1..=runs {
        let managed = manage(&environment, &["--observe"], "0.5", 12, &format!("run-{number}"));
        let status = managed.status();
        println!("run {number}: {} events, {} lost", status["events"], status["lost"]);
        answers.push(answer(&managed));
    }
    let mut others = Vec::new();
    for about in answers.iter().flat_map(|one| one.keys()).collect::<BTreeSet<_>>() {
        let message: BTreeSet<Option<&String>> = answers.iter().map(|one| one.get(about)).collect();
        match message.len() {
            1 => println!("{about}: {}", message.into_iter().next().flatten().unwrap()),
            _ => others.push(format!("{about}: {message:#?}")),
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}

/// The campaign: three levels of load, each for `TAKT_TRUTH_SECONDS` (600 unless set), under
/// reservations; how many latencies that the nodes wrote down were above a bound that was called
/// guaranteed at that time, and for how long each chain was.
///
/// With `TAKT_TRUTH_KEEP=FOLDER` everything is in `FOLDER/load-SCALE` while it runs;
/// `TAKT_TRUTH_READ=1` judges what is there instead of running. `TAKT_TRUTH_SCALES=0.5` runs one
/// level, and `TAKT_TRUTH_OPTIONS="order_executors = true"` runs with that option.
#[test]
#[ignore = "half an hour"]
fn campaign_no_latency_is_above_a_bound_that_is_called_guaranteed() {
    let seconds = std::env::var("TAKT_TRUTH_SECONDS").map_or(600, |text| text.parse().unwrap());
    let scales = std::env::var("TAKT_TRUTH_SCALES").unwrap_or_else(|_| "0.5,1.0,1.5".to_owned());
    let reads = std::env::var_os("TAKT_TRUTH_READ").is_some_and(|value| value == "1");
    let kept = std::env::var_os("TAKT_TRUTH_KEEP").map(PathBuf::from);
    let workspace = tempfile::tempdir().unwrap();
    let folder = kept.unwrap_or_else(|| workspace.path().to_owned());
    let _machine = alone();
    let (mut above, mut guaranteed) = (0, 0);
    for scale in scales.split(',') {
        let folder = folder.join(format!("load-{scale}"));
        if !reads {
            let Some(environment) = ros2::environment() else { return };
            let _ = std::fs::remove_dir_all(&folder);
            println!("\nload {scale}, {seconds} s, in {}", folder.display());
            managed::run(&environment, &[], scale, seconds, &folder, true);
        }
        let managed = Managed::read(&folder);
        print_level(&managed, scale);
        for chain in CHAINS {
            let one = managed.broken(chain);
            (above, guaranteed) = (above + one.above, guaranteed + one.guaranteed);
        }
    }
    println!("\n{above} of {guaranteed} latencies above a bound that was called guaranteed");
    // Where nothing is promised, nothing is broken.
    assert!(guaranteed > 0, "nothing was guaranteed");
    assert_eq!(above, 0);
}

/// `TAKT_TRUTH_RUNS` runs (5 unless set): the manager is killed 30 s after its first reservations,
/// its watchdog gives everything back, and the test system runs on for 30 s. The medians of each
/// chain by the nodes' own stamps, with the manager and without. Of one run, because timers keep
/// the phases that they began with, and with other phases a chain's median is another: runs of the
/// same system without a manager had medians of 11 and 52 ms (`burst`). Beside it what the same
/// comparison says of the two halves without a manager, between which nothing differs. Printed, not
/// asserted: on a machine that does nothing else the ratios are to be within 1.3.
/// `TAKT_TRUTH_KEEP=FOLDER` keeps what each was seen by.
#[test]
#[ignore = "minutes"]
fn campaign_typical_latencies_without_and_with_the_manager() {
    let Some(environment) = ros2::environment() else { return };
    let _machine = alone();
    let runs: u32 = std::env::var("TAKT_TRUTH_RUNS").map_or(5, |text| text.parse().unwrap());
    let scale = std::env::var("TAKT_TRUTH_SCALES").unwrap_or_else(|_| "0.5".to_owned());
    let workspace = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("TAKT_TRUTH_KEEP").map(PathBuf::from);
    let workspace = kept.as_deref().unwrap_or(workspace.path());
    const SECOND_NS: u64 = 1_000_000_000;
    let mut ratios: BTreeMap<&str, Vec<[f64; 4]>> = BTreeMap::new();
    for run in 0..runs {
        let folder = workspace.join(run.to_string());
        let Some(killed_ns) = managed::run_and_kill(&environment, &scale, 30, &folder) else {
            takt_witness::skip!("nothing was reserved");
            return;
        };
        let managed = Managed::read(&folder);
        let with = managed.reserved_from_ns().unwrap() + SECOND_NS..killed_ns;
        // The watchdog looks every so often.
        let without = killed_ns + 3 * SECOND_NS..killed_ns + 29 * SECOND_NS;
        let middle_ns = without.start.midpoint(without.end);
        let halves = [without.start..middle_ns, middle_ns..without.end];
        println!(
            "run {}: {:.2} % of a CPU",
            run + 1,
            managed.status()["cost"]["cpu_share"].as_f64().unwrap() * 100.0
        );
        for chain in CHAINS {
            let ends = managed.truth.completions(chain.path);
            let within = |span: &std::ops::Range<u64>| {
                median(ends.iter().filter(|end| span.contains(&end.began_ns)).map(Completion::latency_ms))
            };
            let all = (within(&with), within(&without), within(&halves[0]), within(&halves[1]));
            if let (Some(with), Some(without), Some(first), Some(second)) = all {
                if kept.is_some() {
                    println!("  {:13} {without:>9.2} {with:>9.2}   {first:>9.2} {second:>9.2}", chain.name);
                }
                ratios.entry(chain.name).or_default().push([without, with, with / without, second / first]);
            }
        }
    }
    println!(
        "{:13} {:>10} {:>8} {:>6}   range          halves without, ratio and range, of {runs} runs",
        "chain", "without ms", "with ms", "ratio"
    );
    for (chain, of_runs) in &ratios {
        let column = |which: usize| of_runs.iter().map(move |run| run[which]);
        let middle = |which: usize| median(column(which)).unwrap();
        let range = |which: usize| {
            let (low, high) = (column(which).fold(f64::MAX, f64::min), column(which).fold(0.0, f64::max));
            format!("{low:.2} to {high:.2}")
        };
        println!(
            "{chain:13} {:>10.2} {:>8.2} {:>6.2}   {:13}  {:>6.2}   {}",
            middle(0),
            middle(1),
            middle(2),
            range(2),
            middle(3),
            range(3)
        );
    }
    assert!(ratios.values().filter(|of_runs| of_runs.len() == runs as usize).count() > 10, "{ratios:?}");
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn print_level(managed: &Managed, scale: &str) {
    let status = managed.status();
    println!(
        "\nload {scale}, {:.0} s: mode {}, {} events, {} lost; manager {:.2} % of a CPU, longest analysis {:.1} ms of it in {:.1} ms; verdict {}",
        status["running_ns"].as_f64().unwrap_or(0.0) / 1e9,
        status["mode"],
        status["events"],
        status["lost"],
        status["cost"]["cpu_share"].as_f64().unwrap_or(f64::NAN) * 100.0,
        status["cost"]["worst_analysis_ns"].as_f64().unwrap_or(f64::NAN) / 1e6,
        status["cost"]["worst_analysis_wall_ns"].as_f64().unwrap_or(f64::NAN) / 1e6,
        managed.all["verdict"],
    );
    println!(
        "{:13} {:>7} {:>10} {:>6} {:>6} {:>7} {:>10} {:>9} {:>9} {:>8} {:>9}  state at the end",
        "chain",
        "ends",
        "guaranteed",
        "above",
        "stolen",
        "noticed",
        "seconds",
        "bound ms",
        "worst ms",
        "closest",
        "excess ms"
    );
    for chain in CHAINS {
        let ends = managed.truth.completions(chain.path);
        let worst = ends.iter().map(Completion::latency_ms).fold(0.0, f64::max);
        let one = managed.broken(chain);
        let (word_s, all_s) = managed.guaranteed_s(chain.name);
        let seen = managed.chain(chain.name);
        let mut why: String = seen["why"].as_str().unwrap_or("").chars().take(160).collect();
        if !why.is_empty() {
            why.insert_str(0, ": ");
        }
        println!(
            "{:13} {:>7} {:>10} {:>6} {:>6} {:>7} {word_s:>4.0} / {all_s:>3.0} {:>9} {worst:>9.1} {:>6.0} % {:>9.1}  {}{why}",
            chain.name,
            ends.len(),
            one.guaranteed,
            one.above,
            one.stolen,
            managed.run_of(chain.name)["false_guarantees"],
            seen["bound_ns"].as_u64().map_or("-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e6)),
            one.closest * 100.0,
            one.worst_excess_ms,
            seen["state"].as_str().unwrap_or(""),
        );
    }
}

/// The bench's nodes on real `rclcpp`: all seven chains are found and measured.
#[test]
#[ignore = "takes 30 s"]
fn the_bench_runs_on_rclcpp() {
    let Some(environment) = ros2::environment() else { return };
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    let mut command = run(["bench", "manager", "--seconds", "6", "--policy", "takt", "--json", "--runs"]);
    command.arg(workspace.path()).env_clear().envs(environment.iter().map(|(key, value)| (key, value)));
    let all = read_json(&command.env("ROS_DOMAIN_ID", ros2::domain()).output().unwrap());
    assert!(all["nodes"][0].as_str().unwrap().starts_with("rclcpp of ROS 2"), "{}", all["nodes"]);
    let rows = all["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7, "{rows:#?}");
    // The tracker's work may not fit on a machine that does something else.
    for row in rows.iter().filter(|row| row["chain"] != "tracker") {
        assert!(row["completions"].as_u64().unwrap() > 0, "{row:#}");
    }
}
