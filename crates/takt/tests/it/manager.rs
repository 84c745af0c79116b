//! The latency manager through the command line, on processes that behave like ROS 2 nodes.

#![allow(clippy::unwrap_used)]

use crate::hold as golden;
use crate::takt;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use takt::{TAKT, alone, goals_of, has, json, refusal, report, root, stderr, stdout, takt as run};

fn goals() -> PathBuf {
    root().join("goals/turtlebot.toml")
}

#[test]
fn a_workload_runs_and_says_what_it_lost() {
    let _machine = alone();
    let output = run(["workload", "--seconds", "2"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    for node in ["turtlebot_driver", "amcl", "tracker"] {
        assert!(stdout(&output).contains(&format!("{node}: dropped")), "{}", stdout(&output));
    }
}

#[test]
#[ignore = "takes 35 s"]
fn observing_shows_the_graph_and_the_chains_and_changes_nothing() {
    let _machine = alone();
    let mut command = run(["manage", "--observe", "--json"]);
    command.arg(goals()).args(["--", TAKT, "workload", "--seconds", "9"]);
    let all = json(&command.output().unwrap());
    let vertices = all["graph"]["vertices"].as_array().unwrap();
    let names: BTreeSet<&str> = vertices.iter().map(|vertex| vertex["name"].as_str().unwrap()).collect();
    for name in [
        "/turtlebot_driver timer 100ms",
        "/controller_server timer 125ms",
        "/amcl subscription /tf",
        "/laser_driver source /scan",
        "/tracker subscription /rgb",
    ] {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
    let name_of = |id: &serde_json::Value| vertices[id.as_u64().unwrap() as usize]["name"].as_str().unwrap();
    let edges = all["graph"]["edges"].as_array().unwrap();
    assert!(
        edges.iter().any(|edge| {
            (name_of(&edge["from"]), name_of(&edge["to"]))
                == ("/laser_driver source /scan", "/amcl subscription /scan")
        }),
        "{edges:?}"
    );
    // Localization publishes to a topic that it subscribes to; the model has no cycle all the same
    // (section V.a).
    assert!(!edges.iter().any(|edge| edge["from"] == edge["to"]), "{edges:?}");
    let chains = all["status"]["chains"].as_array().unwrap();
    assert_eq!(chains.len(), 7);
    assert!(chains.iter().all(|chain| chain["state"] != "not_found"), "{chains:?}");
    // Nothing is reserved: nothing is guaranteed, and what stands against it is reported.
    assert!(chains.iter().all(|chain| chain["state"] != "guaranteed"), "{chains:?}");
    for chain in all["chains"].as_array().unwrap() {
        let assumptions = chain["assumptions"].as_array().unwrap();
        let reserved = assumptions.iter().find(|one| one["assumption"] == "reserved").unwrap();
        assert_eq!(reserved["holds"], false, "{chain:#}");
        assert_eq!(chain["worst_ms"].is_null(), chain["completions"] == 0, "{chain:#}");
        assert!(chain["state"].is_string() && chain["why"].is_string(), "{chain:#}");
    }
    assert!(["PASS", "FAIL", "INCONCLUSIVE"].contains(&all["verdict"].as_str().unwrap()));
    assert_eq!(all["status"]["observes"], true);
    assert!(all["restored"].is_null());
}

#[test]
#[ignore = "takes 50 s"]
fn a_bench_has_all_chains_and_what_the_manager_cost() {
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    let mut command = run(["bench", "manager", "--seconds", "6", "--policy", "takt,cfs", "--json", "--runs"]);
    let all = json(&command.arg(workspace.path()).output().unwrap());
    golden::hold("bench-manager", &golden::shape("--json", &all));
    let rows = all["rows"].as_array().unwrap();
    for policy in ["takt", "cfs"] {
        for chain in ["heartbeat", "pilot", "odometry-nav", "laser-scanner", "localization", "odometry-loc"] {
            let row = rows.iter().find(|row| row["policy"] == policy && row["chain"] == chain);
            let row = row.unwrap_or_else(|| panic!("{policy} {chain}: {all:#}"));
            let completions = row["completions"].as_u64().unwrap();
            // Without a manager a crowded machine may let a chain starve; the row says so.
            assert!(completions > 0 || policy == "cfs", "{row:#}");
            // A release that never ran is a miss of its own.
            let due = completions + row["skipped"].as_u64().unwrap();
            assert!(row["violations"].as_u64().unwrap_or(0) <= due, "{row:#}");
            assert!(row["goal_ms"].as_f64().unwrap() > 0.0);
            assert_eq!(row["worst_ms"].as_f64().is_some_and(|ms| ms > 0.0), completions > 0, "{row:#}");
            assert_eq!(row["median_ms"].is_null(), completions == 0, "{row:#}");
        }
    }
    assert!(all["manager_cpu_share"].as_f64().unwrap() > 0.0);
    assert!(all["analysis_ms"].as_f64().unwrap() > 0.0);
    // Three load phases, each with its own share of the completions.
    let phases = rows[0]["phases"].as_array().unwrap();
    let of_phases: u64 = phases.iter().map(|phase| phase["completions"].as_u64().unwrap()).sum();
    assert_eq!(phases.len(), 3);
    assert!(of_phases > 0 && of_phases <= rows[0]["completions"].as_u64().unwrap(), "{:#}", rows[0]);
    assert_eq!(all["cost_by_phase"].as_array().unwrap().len(), 3);
    // Steps of Table III, for the whole run and each phase, of the policy that plans.
    let steps = all["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["policy"] == "takt"), "{steps:#?}");
    assert_eq!(steps.len(), 5 * (1 + 3), "{steps:#?}");
    for step in ["extraction", "model", "budgets", "analysis", "enactment"] {
        assert_eq!(steps.iter().filter(|row| row["step"] == step).count(), 4, "{step}: {steps:#?}");
    }
    let mut order: Vec<&str> = all["order"].as_array().unwrap().iter().filter_map(|it| it.as_str()).collect();
    order.sort_unstable();
    assert_eq!(order, ["cfs", "takt"]);
    // The verdict is about all chains: a line for each.
    let first = PathBuf::from(all["run_dirs"][0].as_str().unwrap());
    let reasons = takt::read_json(&first.join("summary.json"))["reasons"].to_string();
    for chain in ["heartbeat", "odometry-loc", "tracker"] {
        assert!(reasons.contains(&format!("\"{chain}: ")), "{reasons}");
    }
    // A bench that is complete is only read again when resumed, and compares with itself.
    let bench = all["bench_dir"].as_str().unwrap();
    let mut command = run_again(bench);
    let again = json(&command.args(["--compare", bench]).output().unwrap());
    assert_eq!(again["rows"], all["rows"]);
    golden::hold("bench-manager-compared", &golden::shape("--json", &again));
    assert!(!again["comparison"]["pairs"].as_array().unwrap().is_empty());
    let report = report(bench);
    assert!(report.contains("Verdicts over all measures") && report.contains("Figures by phase"));
    // What was reserved is given back.
    let left = run(["manage", "--restore"]).output().unwrap();
    assert!(stdout(&left).contains("no manager has left anything"), "{}", stdout(&left));
}

fn run_again(bench: &str) -> std::process::Command {
    run(["bench", "manager", "--json", "--resume", bench])
}

/// A bare cyclic task that works half a millisecond so many times a second, and the goals for it.
fn cyclic(workspace: &Path, rate_hz: u32) -> (PathBuf, PathBuf) {
    let config = workspace.join("cyclic.toml");
    let text = format!(
        "robot = \"cyclic\"\nname = \"beat\"\nrate_hz = {rate_hz}\npolicy = \"other:0\"\nwork_us = 500\n"
    );
    fs::write(&config, text).unwrap();
    (config, goals_of(workspace, "beat", ["cyclic"; 2], "50 ms"))
}

/// A robot of Takt's own: under the manager while it runs, and its run directory afterwards.
#[test]
#[ignore = "takes 25 s"]
fn a_robot_reports_the_manager_its_jobs_and_its_run_directory_the_same() {
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    let (config, goals) = cyclic(workspace.path(), 100);
    let folder = workspace.path().join("run");
    let mut command = run(["manage", "--observe", "--json"]);
    command.arg(&goals).args(["--", TAKT, "run"]).arg(&config);
    command.args(["--view", "none", "--seconds", "9", "--run-dir"]).arg(&folder);
    let all = json(&command.output().unwrap());
    let chain = &all["status"]["chains"][0];
    // Planned after six seconds, measured from then on.
    assert!(chain["completions"].as_u64().unwrap() > 50, "{chain:#}");
    assert!(chain["bound_ns"].as_u64().unwrap() >= 500_000, "{chain:#}");
    let vertices = all["graph"]["vertices"].as_array().unwrap();
    assert_eq!(vertices.len(), 1, "{vertices:?}");
    assert_eq!(vertices[0]["name"], "task cyclic");
    let executors = all["model"]["executors"].to_string();
    assert!(executors.contains("task"), "{executors}");
    let threads = all["model"]["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 1, "the thread that does the jobs, and not the collector: {threads:?}");
    assert_ne!(threads[0]["tid"], threads[0]["pid"]);

    let mut command = run(["manage", "--json", "--trace"]);
    let seen = json(&command.arg(&folder).arg(&goals).output().unwrap());
    let measured = &seen["chains"][0];
    let jobs = takt::read_json(&folder.join("summary.json"))["measures"][0]["us"]["count"].as_u64().unwrap();
    assert!(measured["completions"].as_u64().unwrap() >= jobs, "{measured:#}, {jobs} jobs in the window");
    assert_eq!(seen["graph"]["vertices"][0]["name"], "task cyclic");
    let longest_ms = |all: &serde_json::Value| all["graph"]["vertices"][0]["longest_ms"].as_f64().unwrap();
    assert!(longest_ms(&seen) >= 0.5 && longest_ms(&all) >= 0.5);

    // A run without jobs says which have some.
    let empty = workspace.path().join("empty");
    let mut header = takt::read_json(&folder.join("run.json"));
    header["robot"] = "daq".into();
    fs::create_dir_all(empty.join("samples")).unwrap();
    fs::write(empty.join("run.json"), header.to_string()).unwrap();
    let refused = run(["manage", "--trace"]).arg(&empty).arg(&goals).output().unwrap();
    has(&refusal(&refused), &["have no job records"]);
}

#[test]
#[ignore = "takes 30 s"]
fn a_robot_of_takts_own_gets_a_reservation() {
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    let (config, goals) = cyclic(workspace.path(), 50);
    let mut command = run(["manage", "--json"]);
    command.arg(goals).args(["--", TAKT, "run"]).arg(&config);
    command.args(["--view", "none", "--seconds", "14", "--run-dir"]).arg(workspace.path().join("run"));
    let output = command.output().unwrap();
    if stderr(&output).contains("may not") || stderr(&output).contains("CAP_SYS_NICE") {
        takt_witness::skip!("no right to reserve CPU time: {}", stderr(&output));
        return;
    }
    let all = json(&output);
    let reserved = all["plan"]["reservations"].as_array().unwrap();
    assert_eq!(reserved.len(), 1, "{:#}", all["plan"]);
    assert!(all["restored"].is_string(), "{:#}", all["restored"]);
}

/// Threads with SCHED_DEADLINE in other PID namespaces than ours: our number of each, and its own.
fn reserved_elsewhere() -> BTreeSet<(u32, u32)> {
    let namespace = |process: &Path| fs::read_link(process.join("ns/pid")).ok();
    let ours = namespace(Path::new("/proc/self"));
    let below =
        |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = BTreeSet::new();
    for process in
        below(Path::new("/proc")).filter(|process| namespace(process).is_some_and(|it| Some(it) != ours))
    {
        for thread in below(&process.join("task")) {
            // The policy is the 41st field, the 39th after the name.
            let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
            let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
            let status = fs::read_to_string(thread.join("status")).unwrap_or_default();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
            let numbers: Vec<u32> = numbers.split_whitespace().map(|text| text.parse().unwrap()).collect();
            if let (Some("6"), [outer, .., inner]) = (fields.split_whitespace().nth(38), numbers.as_slice()) {
                found.insert((*outer, *inner));
            }
        }
    }
    found
}

/// A container has its own numbers for processes and threads, another root, and a user whose rights
/// end there. The manager on the host observes it and reserves for it all the same.
#[test]
#[ignore = "takes 30 s"]
fn a_robot_in_namespaces_of_its_own_gets_a_reservation_from_the_host() {
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    let (config, goals) = cyclic(workspace.path(), 50);
    let inside = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc"];
    let may = std::process::Command::new("unshare").args(inside).arg("true").status();
    if !may.is_ok_and(|status| status.success()) {
        takt_witness::skip!("no namespaces can be made here");
        return;
    }
    let mut command = run(["manage", "--json"]);
    command.arg(goals).args(["--", "unshare"]).args(inside).args([TAKT, "run"]).arg(&config);
    command.args(["--view", "none", "--seconds", "14", "--run-dir"]).arg(workspace.path().join("run"));
    let ended = std::sync::atomic::AtomicBool::new(false);
    let (output, seen) = std::thread::scope(|scope| {
        let witness = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !ended.load(std::sync::atomic::Ordering::Acquire) {
                seen.extend(reserved_elsewhere());
                std::thread::sleep(std::time::Duration::from_millis(250));
            }
            seen
        });
        let output = command.output();
        ended.store(true, std::sync::atomic::Ordering::Release);
        (output.unwrap(), witness.join().unwrap())
    });
    // The robot says the same of itself: in there it may not.
    if output.stdout.is_empty() && stderr(&output).contains("CAP_SYS_NICE") {
        takt_witness::skip!("no right to reserve CPU time: {}", stderr(&output));
        return;
    }
    let all = json(&output);
    let chain = &all["status"]["chains"][0];
    assert!(chain["completions"].as_u64().unwrap() > 50, "{chain:#}");
    let threads = all["model"]["threads"].as_array().unwrap();
    let is_its = |&&(outer, _): &&(u32, u32)| threads.iter().any(|thread| thread["tid"] == outer);
    let reserved = seen.iter().find(is_its);
    let (outer, inner) = reserved.unwrap_or_else(|| panic!("{seen:?}, {threads:?}: {}", stderr(&output)));
    assert!(inner < outer, "its own numbers begin at 1: {seen:?}");
    assert!(all["restored"].is_string() && reserved_elsewhere().is_disjoint(&seen), "{:#}", all["restored"]);
}

/// A program that stands where `takt_bench` would be: real nodes are taken where they are found.
#[test]
#[ignore = "takes 15 s"]
fn nodes_on_rclcpp_are_taken_where_they_are_built() {
    use std::os::unix::fs::PermissionsExt;
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    let programs = workspace.path().join("prefix/lib/takt_bench");
    fs::create_dir_all(&programs).unwrap();
    let program = programs.join("takt_bench_node");
    let text = format!(
        "#!/bin/sh\ntest -s \"$1/$2.plan\" && echo \"$2\" >> {}\nexec {TAKT} workload --directory \"$1\" --node \"$2\"\n",
        workspace.path().join("started").display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let bench = |workspace: &Path| {
        let mut command = run(["bench", "manager", "--seconds", "1", "--policy", "cfs", "--json", "--runs"]);
        command.arg(workspace.join("runs")).env("ROS_DISTRO", "jazzy");
        command
    };
    let mut command = bench(workspace.path());
    let all = json(&command.env("AMENT_PREFIX_PATH", workspace.path().join("prefix")).output().unwrap());
    assert_eq!(all["nodes"][0], "rclcpp of ROS 2 jazzy on its own middleware", "{all:#}");
    let started = fs::read_to_string(workspace.path().join("started")).unwrap();
    assert!(started.lines().any(|node| node == "amcl"), "{started}");
    // In one second: chains that did not complete are rows all the same, and no PASS is made up for
    // them.
    let chains = all["rows"].as_array().unwrap();
    assert_eq!(chains.len(), 7, "{chains:?}");
    let first = PathBuf::from(all["run_dirs"][0].as_str().unwrap());
    let summary = takt::read_json(&first.join("summary.json"));
    assert_ne!(summary["verdict"], "PASS", "{summary:#}");
    let reasons = summary["reasons"].to_string();
    for row in chains {
        let line = format!("\"{}: ", row["chain"].as_str().unwrap());
        assert!(reasons.contains(&line), "{line} is not in {reasons}");
    }

    // Without them Takt's own run, and it is said why.
    let config = workspace.path().join("real.toml");
    let shipped = fs::read_to_string(root().join("robots/turtlebot.toml")).unwrap();
    fs::write(&config, shipped.replacen("[goals]", "nodes = \"rclcpp\"\n[goals]", 1)).unwrap();
    let mut command = bench(workspace.path());
    let refused =
        command.arg("--config").arg(&config).env("AMENT_PREFIX_PATH", workspace.path()).output().unwrap();
    assert!(
        format!("{}{}", stderr(&refused), stdout(&refused)).contains("colcon build"),
        "{}\n{}",
        stderr(&refused),
        stdout(&refused)
    );
}

#[test]
fn refusals_name_the_way_out() {
    let workspace = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], words: &[&str]| {
        let output = run(["manage"]).args(args).output().unwrap();
        has(&refusal(&output), words);
    };
    refused(&[], &["expected a goals file", "takt manage --learn"]);
    let goals = goals();
    let goals = goals.to_str().unwrap();
    refused(&[goals], &["nothing to manage", "--pid"]);
    refused(&[goals, "--observe", "--", "/no/such/program"], &["/no/such/program"]);
    refused(&[goals, "--lttng", "/no/such/folder"], &["--observe"]);
    refused(&[goals, "--observe", "--lttng", "/no/such/folder"], &["/no/such/folder"]);
    refused(&[goals, "--observe", "--screen", "--", "true"], &["terminal"]);
    let text = fs::read_to_string(goals).unwrap();
    let twice = workspace.path().join("twice.toml");
    fs::write(&twice, text.replacen("\"tracker\",", "\"tracker\", \"tracker\",", 1)).unwrap();
    refused(&[twice.to_str().unwrap(), "--", "true"], &["tracker", "twice"]);
    let unknown = workspace.path().join("unknown.toml");
    fs::write(&unknown, format!("deadline = 3\n{text}")).unwrap();
    refused(&[unknown.to_str().unwrap(), "--", "true"], &["deadline"]);
}

/// Daemons that nothing in their environment, group or session reports of, one of which ignores
/// requests to end, and what another that came and went leaves for its parent to ask.
#[test]
fn a_run_ends_all_that_it_started() {
    let workspace = tempfile::tempdir().unwrap();
    let script = r#"
        daemon() { (env -i setsid bash -c "$1 echo \$\$ >> pids; while :; do sleep 1000; done" &) }
        daemon ''; daemon 'trap "" INT TERM;'; (env -i bash -c 'trap "" INT TERM; echo $$ >> pids; while :; do sleep 1000; done' &)
        (env -i setsid bash -c 'echo $$ >> ended' &)
        while [ "$(cat pids ended | wc -l)" -lt 4 ]; do sleep 0.05; done
        while read -r pid; do while [ -e /proc/$pid ]; do sleep 0.05; done; done < ended
        touch reaped; sleep 1000
    "#;
    let mut command = run(["manage", "--observe", "--fresh", "--seconds", "4"]);
    command.arg(goals()).args(["--", "bash", "-c", script]).current_dir(workspace.path());
    let output = command.output().unwrap();
    // None of it has anything to do with ROS 2.
    has(&refusal(&output), &["no callback was seen"]);
    assert!(workspace.path().join("reaped").exists(), "a daemon that has ended stays: {}", stderr(&output));
    let pids = fs::read_to_string(workspace.path().join("pids")).unwrap();
    let left: Vec<&str> = pids.lines().filter(|pid| Path::new("/proc").join(pid).exists()).collect();
    assert_eq!((pids.lines().count(), left), (3, vec![]), "{}", stderr(&output));
}

/// The failure of a command under `takt manage` must not be lost.
#[test]
#[ignore = "takes 25 s"]
fn a_command_that_fails_by_itself_after_it_was_seen_is_a_failure() {
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    let ended = |options: &[&str], seconds: &str, after: &str| {
        let script = format!("\"$0\" workload --seconds {seconds} >&2; {after}");
        let mut command = run(["manage", "--json"]);
        command.args(options).args(["--", "sh", "-c", &script, TAKT]).current_dir(workspace.path());
        command.output().unwrap()
    };
    let goals = goals();
    let observe = ["--observe", "--fresh", goals.to_str().unwrap()];
    for (options, after, words) in [
        (&observe[..], "exit 3", "exit status: 3"),
        (&observe, "kill -SEGV $$", "signal: 11"),
        (&["--learn"], "exit 1", "exit status: 1"),
    ] {
        let output = ended(options, "2", after);
        assert_eq!(output.status.code(), Some(2), "{after}: {}", stderr(&output));
        has(&stderr(&output), &["the command itself failed", words]);
        // What was seen is reported all the same.
        let all: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert!(all.is_object(), "{all:#}");
    }
    for (options, seconds, after) in [
        (&observe[..], "2", "exit 0"),
        // It fails because it is asked to end.
        (&["--observe", "--fresh", "--seconds", "3", goals.to_str().unwrap()], "60", "exit 3"),
    ] {
        let output = ended(options, seconds, after);
        assert_eq!(output.status.code(), Some(0), "{after}: {}", stderr(&output));
    }
}

#[test]
#[ignore = "takes 75 s"]
fn a_chain_that_nobody_knows_is_reported_with_what_there_is() {
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    let goals = goals_of(workspace.path(), "a", ["/amlc:/tf", "/amcl:/tf"], "50 ms");
    let mut command = run(["manage", "--observe", "--json", "--seconds", "12"]);
    command.arg(&goals).args(["--", TAKT, "workload", "--seconds", "20"]);
    let all = json(&command.output().unwrap());
    let chain = &all["status"]["chains"][0];
    assert_eq!(chain["state"], "not_found", "{chain:#}");
    assert!(
        all["plan"]["chains"][0].to_string().contains("/amcl"),
        "near misses: {:#}",
        all["plan"]["chains"]
    );
}

#[test]
fn a_recording_of_ros2_is_examined() {
    let workspace = tempfile::tempdir().unwrap();
    let goals = goals_of(workspace.path(), "all", ["/topic3", "/drive"], "500 ms");
    let trace = root().join("crates/takt-ros/tests/data/caret-end-to-end");
    let mut command = run(["manage", "--json", "--trace"]);
    let all = json(&command.arg(&trace).arg(&goals).output().unwrap());
    assert!(all["events"].as_u64().unwrap() > 1000);
    let edges = all["graph"]["edges"].as_array().unwrap();
    assert!(edges.iter().any(|edge| edge["topic"] == "/topic3"), "{edges:?}");
    assert_eq!(all["plan"]["chains"].as_array().unwrap().len(), 1);

    let empty = run(["manage", "--trace"]).arg(workspace.path()).arg(&goals).output().unwrap();
    refusal(&empty);
}
