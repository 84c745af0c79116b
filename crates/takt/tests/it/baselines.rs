//! The paper's baselines of the ROS 2 bench, looked at from outside: what runs beside the nodes,
//! and whether the latencies are those that the nodes wrote down. Nothing of Takt's reads the
//! stamps here.

#![allow(clippy::unwrap_used)]

use crate::ros2;
use crate::takt;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use takt::{Beside, alone, json, root, takt as run, wait_for};

/// The shipped robot, learnt for so many seconds.
fn config(folder: &Path, learn_seconds: f64) -> PathBuf {
    let path = folder.join("robot.toml");
    let shipped = fs::read_to_string(root().join("robots/turtlebot.toml")).unwrap();
    let changed = shipped.replacen("learn_seconds = 7.0", &format!("learn_seconds = {learn_seconds:?}"), 1);
    assert!(changed.contains(&format!("learn_seconds = {learn_seconds:?}")), "{changed}");
    fs::write(&path, changed).unwrap();
    path
}

fn bench(folder: &Path, policy: &str, seconds: &str, learn_seconds: f64) -> Command {
    let mut command =
        run(["bench", "manager", "--policy", policy, "--seconds", seconds, "--json", "--config"]);
    command.arg(config(folder, learn_seconds)).arg("--runs").arg(folder.join("runs"));
    command
}

/// The kernel's figures of one process.
#[derive(Debug)]
struct Process {
    command: Vec<String>,
    threads: BTreeMap<u32, String>,
    maps: String,
    files: Vec<String>,
    environment: String,
}

fn text(path: &str) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn numbers(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn process(pid: u32) -> Process {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let threads = numbers(&format!("/proc/{pid}/task")).into_iter();
    Process {
        command: text(&format!("/proc/{pid}/cmdline")).split_terminator('\0').map(str::to_owned).collect(),
        threads: threads
            .map(|tid| (tid, text(&format!("/proc/{pid}/task/{tid}/comm")).trim().to_owned()))
            .collect(),
        maps: text(&format!("/proc/{pid}/maps")),
        files: files
            .filter_map(|file| Some(fs::read_link(file.path()).ok()?.to_string_lossy().into_owned()))
            .collect(),
        environment: text(&format!("/proc/{pid}/environ")),
    }
}

/// All processes below one, itself included.
fn below(pid: u32) -> BTreeMap<u32, Process> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = text(&format!("/proc/{pid}/stat"));
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let parents: Vec<(u32, u32)> =
        numbers("/proc").into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = BTreeSet::from([pid]);
    loop {
        let more = parents.iter().filter(|(pid, of)| found.contains(of) && !found.contains(pid));
        let more: Vec<u32> = more.map(|(pid, _)| *pid).collect();
        if more.is_empty() {
            return found.into_iter().map(|pid| (pid, process(pid))).collect();
        }
        found.extend(more);
    }
}

/// Number of times that the threads of a process went to sleep.
fn sleeps(pid: u32) -> u64 {
    let of = |tid: u32| -> u64 {
        let status = text(&format!("/proc/{pid}/task/{tid}/status"));
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.map_or(0, |count| count.trim().parse().unwrap())
    };
    numbers(&format!("/proc/{pid}/task")).into_iter().map(of).sum()
}

fn policy_of(pid: u32, tid: u32) -> String {
    ros2::managed::scheduling(pid, tid)
        .map_or_else(String::new, |[policy, priority, _]| format!("{policy}:{priority}"))
}

/// Parts of Takt's infrastructure that exist while the nodes run.
#[derive(Debug, Default)]
struct Census {
    nodes: usize,
    /// Policies and priorities of the nodes' threads, by node and thread.
    policies: BTreeMap<(String, String), String>,
    /// Everything that is neither the bench's own process nor a node, and everything that observes.
    found: BTreeSet<String>,
    /// Numbers of times that the process that runs the robot, and the one that makes the runs of
    /// the bench, went to sleep within two seconds.
    sleeps: [u64; 2],
}

/// Runs a bench with one policy and looks at it in the middle of its window.
fn census(policy: &str, folder: &Path) -> Census {
    let mut bench = Beside::start(bench(folder, policy, "8", 1.0));
    let is_node = |process: &Process| process.command.iter().any(|word| word == "--node");
    let pid = bench.pid();
    // The last that the nodes do before they begin is to start the threads of their sources.
    wait_for("the nodes", || {
        let all = below(pid);
        let begun = |process: &Process| process.threads.values().any(|name| name == "frame-reader");
        all.values().any(|process| is_node(process) && begun(process)).then_some(())
    });
    // Into the window.
    std::thread::sleep(Duration::from_millis(2500));
    let all = below(pid);
    // A bench makes each run by a process of its own.
    let is_run = |process: &Process| process.command.get(1).is_some_and(|word| word == "run");
    let run = all.iter().find(|(_, process)| is_run(process)).map(|(pid, _)| *pid).unwrap();
    let before = [run, pid].map(sleeps);
    std::thread::sleep(Duration::from_secs(2));
    let after = [run, pid].map(sleeps);
    let mut census = Census { sleeps: [after[0] - before[0], after[1] - before[1]], ..Census::default() };
    for (&number, process) in &all {
        let what = if number == pid { "the bench".to_owned() } else { process.command.join(" ") };
        if is_node(process) {
            census.nodes += 1;
            let node = process.command.last().unwrap();
            for (&tid, name) in &process.threads {
                let known =
                    number == tid || ["dds-recv", "laser-reader", "frame-reader"].contains(&name.as_str());
                if !known {
                    census.found.insert(format!("{node}: a thread {name}"));
                }
                let name = if number == tid { "main" } else { name };
                census.policies.insert((node.clone(), name.to_owned()), policy_of(number, tid));
            }
        } else if ![pid, run].contains(&number) {
            census.found.insert(format!("process {what}"));
        }
        for mapped in ["takt_probe", "tracetools", "/dev/shm/takt-probe"] {
            if process.maps.contains(mapped) {
                census.found.insert(format!("{what}: maps {mapped}"));
            }
        }
        if process.environment.contains("takt-probe") {
            census.found.insert(format!("{what}: a probe in its environment"));
        }
        for file in &process.files {
            let observes = ["perf_event", "[bpf", "tracing", "uprobe", "takt-probe", "cpu_dma_latency"];
            if observes.iter().any(|part| file.contains(part)) {
                census.found.insert(format!("{what}: {file}"));
            }
        }
    }
    for file in ["/sys/kernel/tracing/uprobe_events", "/sys/kernel/debug/tracing/uprobe_events"] {
        if !text(file).trim().is_empty() {
            census.found.insert(format!("{file}: {}", text(file)));
        }
    }
    bench.end();
    let answer: Value = serde_json::from_str(&bench.output("stdout")).unwrap_or_else(|error| {
        panic!("{error}: {}", bench.output("stderr"));
    });
    for row in answer["rows"].as_array().unwrap() {
        assert_eq!((&row["observed_by"], &row["load"]), (&"nodes".into(), &"paper".into()), "{row:#}");
    }
    census
}

/// Under the baselines there are the nodes, and two processes of Takt's that sleep: the one that
/// started them, and the one that makes the bench's runs. Under the manager the same look finds the
/// probe, so it can find one.
#[test]
#[ignore = "takes 40 s"]
fn nothing_of_takt_runs_beside_a_baseline() {
    let _machine = alone();
    for policy in ["cfs", "rr"] {
        let folder = tempfile::tempdir().unwrap();
        let census = census(policy, folder.path());
        assert_eq!(census.nodes, 6, "{census:#?}");
        assert!(census.found.is_empty(), "{policy}: {census:#?}");
        // It looks twice a second, and the bench whether the run has ended; the extractor reads
        // forty times a second.
        assert!(census.sleeps[0] <= 20 && census.sleeps[1] <= 60, "{policy}: {census:#?}");
        let of = |node: &str, thread: &str| census.policies[&(node.to_owned(), thread.to_owned())].as_str();
        let real_time = census.policies.values().filter(|policy| policy.starts_with("2:")).count();
        if policy == "cfs" {
            assert!(census.policies.values().all(|policy| policy == "0:0"), "{census:#?}");
        } else if real_time == 0 {
            takt_witness::skip!("no right to set SCHED_RR");
        } else {
            // By the degradation order, the tracker's chain the lowest; what serves no chain stays.
            let expected = [
                (("turtlebot_driver", "main"), "2:17"),
                (("controller_server", "main"), "2:16"),
                (("laser_driver", "laser-reader"), "2:14"),
                (("amcl", "main"), "2:14"),
                (("tracker", "main"), "2:11"),
                (("camera", "frame-reader"), "2:11"),
                (("tracker", "dds-recv"), "0:0"),
                (("camera", "main"), "0:0"),
            ];
            for ((node, thread), policy) in expected {
                assert_eq!(of(node, thread), policy, "{node}, {thread}: {census:#?}");
            }
            assert_eq!(real_time, 6, "{census:#?}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let managed = census("takt", folder.path());
    assert!(managed.found.iter().any(|found| found.contains("takt_probe")), "{managed:#?}");
    assert!(managed.sleeps[0] > 40, "{managed:#?}");
}

/// One line of a node's file: number, index, release, start, end, input, sent.
type Line = [String; 7];

fn stamps(run_dir: &Path) -> (HashMap<String, String>, Vec<Line>) {
    let (mut names, mut lines) = (HashMap::new(), Vec::new());
    let files = fs::read_dir(run_dir.join("stamps")).unwrap().map(|entry| entry.unwrap().path());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let whole = &text[..text.rfind('\n').unwrap()];
        for line in whole.lines().skip(1) {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields[0] {
                "activity" => drop(names.insert(fields[2].to_owned(), fields[1].to_owned())),
                "run" => lines.push(std::array::from_fn(|i| fields[i + 1].to_owned())),
                other => panic!("{other}: {line}"),
            }
        }
    }
    (names, lines)
}

/// Latencies of instances that began in the window, along `path`, each with its end; read with
/// nothing of Takt's.
fn latencies(run_dir: &Path, path: &[&str], [from, to]: [u64; 2]) -> Vec<(u64, u64)> {
    let (names, lines) = stamps(run_dir);
    let of = |name: &str| -> Vec<&Line> { lines.iter().filter(|line| line[0] == names[name]).collect() };
    let ns = |text: &String| text.parse::<u64>().ok();
    let mut found = Vec::new();
    for first in of(path[0]) {
        let sender = first[5]
            .split_once(':')
            .and_then(|(number, index)| lines.iter().find(|line| line[0] == number && line[1] == index));
        // A timer's release, a source's message, or the message that activates a subscription.
        let source = ["laser_driver/laser-reader", "camera/frame-reader"].contains(&path[0]);
        let began = if source { ns(&first[6]) } else { ns(&first[2]).or_else(|| ns(&sender?[6])) };
        let Some(began) = began.filter(|began| (from..to).contains(began)) else { continue };
        let mut last = Some(first);
        for step in &path[1..] {
            let id = last.map(|line| format!("{}:{}", line[0], line[1]));
            last = of(step).into_iter().find(|line| Some(&line[5]) == id.as_ref());
        }
        found.extend(last.and_then(|line| ns(&line[4])).map(|end| (end - began, end)));
    }
    found.sort_unstable();
    found
}

const PATHS: [(&str, &[&str]); 7] = [
    ("heartbeat", &["turtlebot_driver/heartbeat"]),
    ("pilot", &["controller_server/compute_velocity", "turtlebot_driver/write_wheels"]),
    ("odometry-nav", &["turtlebot_driver/odometry", "controller_server/on_odometry"]),
    ("laser-scanner", &["laser_driver/laser-reader", "amcl/on_scan"]),
    ("localization", &["amcl/localize"]),
    ("odometry-loc", &["turtlebot_driver/odometry", "amcl/on_transform"]),
    ("tracker", &["camera/frame-reader", "tracker/track"]),
];

/// Every row is what another reader makes of the nodes' files.
fn rows_are_the_nodes(answer: &Value) {
    let run_dir = PathBuf::from(answer["run_dirs"][0].as_str().unwrap());
    let header = takt::read_json(&run_dir.join("run.json"));
    for (chain, path) in PATHS {
        let measure = header["measures"].as_array().unwrap().iter().find(|it| it["name"] == chain).unwrap();
        let window = [0, 1].map(|place| measure["window_ns"][place].as_u64().unwrap());
        let seen: Vec<u64> = latencies(&run_dir, path, window).into_iter().map(|(ns, _)| ns).collect();
        let row = answer["rows"].as_array().unwrap().iter().find(|row| row["chain"] == chain).unwrap();
        assert_eq!(row["completions"], seen.len(), "{row:#}");
        let goal_ns = (row["goal_ms"].as_f64().unwrap() * 1e6) as u64;
        let late = seen.iter().filter(|latency| **latency > goal_ns).count();
        assert_eq!(row["late"], late, "{row:#}");
        assert_eq!(
            row["violations"].as_u64().unwrap_or(0),
            late as u64 + row["skipped"].as_u64().unwrap(),
            "{row:#}"
        );
        let ms = |latency: Option<&u64>| latency.map(|ns| *ns as f64 / 1e6);
        assert_eq!(row["worst_ms"].as_f64().map(f32_of), ms(seen.last()).map(f32_of), "{row:#}");
        let p99 = (!seen.is_empty()).then(|| &seen[(seen.len() * 99).div_ceil(100) - 1]);
        assert_eq!(row["p99_ms"].as_f64().map(f32_of), ms(p99).map(f32_of), "{row:#}");
    }
}

/// Microseconds and milliseconds are converted in another order.
fn f32_of(value: f64) -> f32 {
    value as f32
}

/// Rows of a baseline are what an independent reader makes of the nodes' own files.
#[test]
#[ignore = "takes 10 s"]
fn latencies_of_a_baseline_are_those_that_the_nodes_wrote_down() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let answer = json(&bench(folder.path(), "cfs", "6", 0.5).output().unwrap());
    rows_are_the_nodes(&answer);
    let observing = answer["observing"].as_array().unwrap();
    let by: Vec<&str> = observing.iter().map(|row| row["observed_by"].as_str().unwrap()).collect();
    assert_eq!(by, ["nodes", "takt"], "no extractor: {observing:#?}");
    assert!(observing.iter().all(|row| row["cpu_share"].as_f64() > Some(0.0)), "{observing:#?}");
    let load = &answer["load"];
    assert_eq!((&load["name"], &load["paper"]["cores"]), (&"paper".into(), &4.into()), "{load:#}");
    let cores = load["here"]["cores"].as_f64().unwrap();
    assert_eq!(load["factor"], (cores / 4.0).min(1.0), "{load:#}");
    assert!(load["rule"].as_str().unwrap().contains("cores / 4"), "{load:#}");
}

/// The same on real `rclcpp`: under the manager, whose extractor measured the same chains by its
/// own events, and under a baseline.
#[test]
#[ignore = "takes 40 s"]
fn the_nodes_on_rclcpp_write_down_what_the_extractor_sees() {
    let Some(environment) = ros2::environment() else { return };
    let _machine = alone();
    for policy in ["takt", "cfs"] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = bench(folder.path(), policy, "6", 7.0);
        command.env_clear().envs(environment.iter().map(|(key, value)| (key, value)));
        let answer = json(&command.env("ROS_DOMAIN_ID", ros2::domain()).output().unwrap());
        assert!(answer["nodes"][0].as_str().unwrap().starts_with("rclcpp of ROS 2"), "{}", answer["nodes"]);
        rows_are_the_nodes(&answer);
        for row in answer["rows"].as_array().unwrap().iter().filter(|row| row["chain"] != "tracker") {
            assert!(row["completions"].as_u64() > Some(0), "{row:#}");
        }
        if policy == "cfs" {
            continue;
        }
        // The extractor followed the same instances from the first plan on, which is before the
        // window.
        let run_dir = PathBuf::from(answer["run_dirs"][0].as_str().unwrap());
        let header = takt::read_json(&run_dir.join("run.json"));
        let seen = &header["manager"]["chains"];
        let window = [0, 1].map(|place| header["measures"][0]["window_ns"][place].as_u64().unwrap());
        for row in answer["rows"].as_array().unwrap().iter().filter(|row| row["chain"] != "tracker") {
            let chain = seen.as_array().unwrap().iter().find(|chain| chain["name"] == row["chain"]).unwrap();
            let (worst, median) =
                (chain["worst_ms"].as_f64().unwrap(), chain["median_ns"].as_f64().unwrap() / 1e6);
            // What the extractor says is of the window's end; it reads forty times a second.
            let path = PATHS.iter().find(|(name, _)| row["chain"] == *name).unwrap().1;
            let by_then = |(_, end): &(u64, u64)| end + 250_000_000 < window[1];
            let own = latencies(&run_dir, path, window).into_iter().rfind(by_then).unwrap();
            assert!(worst + 1.0 >= own.0 as f64 / 1e6, "{row:#} {worst} {own:?}");
            let own = row["median_ms"].as_f64().unwrap();
            assert!((median - own).abs() <= 1.0 + own / 4.0, "{row:#} {median}");
        }
    }
}
