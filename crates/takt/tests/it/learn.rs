//! `takt manage --learn` through the command line: what it writes is what `takt manage` takes.

#![allow(clippy::unwrap_used)]

use crate::hold as golden;
use crate::takt;

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use takt::{TAKT, alone, goals_of, has, json, refusal, root, stderr, stdout, takt as run};

fn strings<'v>(values: &'v Value, key: &str) -> Vec<&'v str> {
    values.as_array().unwrap().iter().map(|value| value[key].as_str().unwrap()).collect()
}

#[test]
#[ignore = "takes 55 s"]
fn a_system_without_goals_is_learnt_and_its_goals_file_is_taken_as_it_is() {
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    let dot = workspace.path().join("graph.dot");
    let mut command = run(["manage", "--learn", "--json", "--dot"]);
    command.arg(&dot).args(["--", TAKT, "workload", "--seconds", "9"]).current_dir(workspace.path());
    let learnt = json(&command.output().unwrap());
    golden::hold("manage-learn", &golden::shape("--json", &learnt));
    let chains = learnt["chains"].as_array().unwrap();
    assert!(!chains.is_empty() && chains.len() <= 16, "{chains:#?}");
    // The chain of the shipped goals from the laser to the localization, across two processes.
    let ends: Vec<(&str, &str)> =
        strings(&learnt["chains"], "start").into_iter().zip(strings(&learnt["chains"], "end")).collect();
    assert!(ends.iter().any(|(start, _)| *start == "/laser_driver source /scan"), "{ends:?}");
    // Those across most executors first, and each has what it was measured by.
    for chain in chains.iter().filter(|chain| chain["completions"].as_u64().unwrap() > 0) {
        let [median, worst, goal] =
            ["median_ms", "worst_ms", "goal_ms"].map(|key| chain[key].as_f64().unwrap());
        assert!(0.0 < median && median <= worst && worst < goal, "{chain:#}");
        assert!(chain["state"] == "could_be_kept" || !chain["why"].as_str().unwrap().is_empty(), "{chain:#}");
        assert!(
            chain["state"] != "could_be_kept" || chain["bound_ms"].as_f64().unwrap() <= goal,
            "{chain:#}"
        );
    }
    assert!(
        chains.iter().filter(|chain| chain["completions"].as_u64().unwrap() > 3).count() >= 3,
        "{chains:#?}"
    );
    assert!(fs::read_to_string(&dot).unwrap().starts_with("digraph"));
    assert!(!learnt["graph"]["edges"].as_array().unwrap().is_empty());

    // Unchanged through the manager: every chain of it is found.
    let goals = workspace.path().join(learnt["goals_file"].as_str().unwrap());
    assert_eq!(fs::read_to_string(&goals).unwrap(), learnt["goals"].as_str().unwrap());
    let mut command = run(["manage", "--observe", "--json"]);
    command.arg(&goals).args(["--", TAKT, "workload", "--seconds", "9"]);
    let seen = json(&command.output().unwrap());
    golden::hold("manage-observe", &golden::shape("--json", &seen));
    let names: BTreeSet<&str> = strings(&seen["status"]["chains"], "name").into_iter().collect();
    let with_goal = chains.iter().filter(|chain| !chain["goal_ms"].is_null());
    let expected: BTreeSet<&str> = with_goal.map(|chain| chain["name"].as_str().unwrap()).collect();
    assert_eq!(names, expected);
    for chain in seen["status"]["chains"].as_array().unwrap() {
        assert_ne!(chain["state"], "not_found", "{chain:#}");
    }

    // The next one gets a name of its own; one that is there is not touched unless that is said.
    let trace = root().join("crates/takt-ros/tests/data/caret-end-to-end");
    let learn = |more: &[&str]| {
        let mut command = run(["manage", "--learn", "--trace"]);
        command.arg(&trace).args(more).current_dir(workspace.path()).output().unwrap()
    };
    let output = learn(&[]);
    assert!(output.status.success(), "{}", stderr(&output));
    has(&stdout(&output), &["takt-goals-2.toml", "/topic3", "goal"]);
    let before = fs::read(&goals).unwrap();
    has(&refusal(&learn(&["takt-goals.toml"])), &["takt-goals.toml already exists", "--overwrite"]);
    assert_eq!(fs::read(&goals).unwrap(), before);
    assert!(learn(&["takt-goals.toml", "--overwrite"]).status.success());
    assert_ne!(fs::read(&goals).unwrap(), before);
    let mut command = run(["manage", "--json", "--trace"]);
    let examined = json(&command.arg(&trace).arg(&goals).output().unwrap());
    let states = examined["plan"]["chains"].to_string();
    assert!(!states.contains("not_found"), "{states}");
}

#[test]
fn refusals_of_learning_name_the_way_out() {
    let workspace = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], words: &[&str]| {
        let mut command = run(["manage", "--learn"]);
        has(&refusal(&command.args(args).current_dir(workspace.path()).output().unwrap()), words);
    };
    refused(&["--", "/no/such/program"], &["/no/such/program"]);
    refused(&["no/such/goals.toml", "--", "true"], &["no folder"]);
    refused(&["--", "true"], &["no callback was seen"]);
    refused(&["--observe", "--", "true"], &["--observe"]);
    refused(&["--chains", "0", "--", "true"], &["1 to 1000"]);
    refused(&["--pid", "1", "--", "true"], &["give one of them"]);
    // Nothing was written, and goals that are there are named before anything is started.
    assert_eq!(fs::read_dir(workspace.path()).unwrap().count(), 0);
    let goals = goals_of(workspace.path(), "a", ["/a", "/b"], "5 ms");
    refused(&[goals.to_str().unwrap(), "--", "touch", "started"], &["--overwrite"]);
    assert!(!workspace.path().join("started").exists());
    let full = workspace.path().join("full");
    fs::create_dir_all(full.join("something")).unwrap();
    let mut command = run(["manage", "--emit", full.to_str().unwrap()]);
    has(&refusal(&command.arg(&goals).args(["--", "touch", "started"]).output().unwrap()), &["--overwrite"]);
    fs::write(workspace.path().join("model.json"), "{}").unwrap();
    let mut command = run(["manage", "--observe", "--model"]);
    command.arg(workspace.path().join("model.json")).arg(&goals).args(["--", "touch", "started"]);
    has(&refusal(&command.output().unwrap()), &["the stored model cannot be used", "delete it"]);
}

/// Each file is read by the program that it is for, or by one that reads its language.
#[test]
#[ignore = "takes 30 s"]
fn a_plan_is_written_as_settings_and_a_restart_begins_with_the_kept_model() {
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    let (folder, model) = (workspace.path().join("settings"), workspace.path().join("model.json"));
    let manage = |more: &[&str]| {
        let mut command = run(["manage", "--observe", "--json", "--model", model.to_str().unwrap()]);
        // Ended before the workload: the plan is for what runs.
        command.args(more).args(["--seconds", "15"]).arg(root().join("goals/turtlebot.toml"));
        command.args(["--", TAKT, "workload", "--seconds", "60"]).output().unwrap()
    };
    let first = manage(&["--emit", folder.to_str().unwrap()]);
    let plan = json(&first)["plan"].clone();
    assert!(!plan["reservations"].as_array().unwrap().is_empty(), "{plan:#}");

    let python = |code: &str, file: &str| {
        let mut command = std::process::Command::new("python3");
        command.args(["-c", code]).arg(folder.join(file)).env("PYTHONDONTWRITEBYTECODE", "1");
        command.output().unwrap()
    };
    let read = python(
        "import sys\nspace = {}\nexec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'), space)\n\
         prefix = space['prefix']('/amcl')\nassert prefix.startswith('taskset --cpu-list '), prefix\nassert space['prefix']('/x') == ''",
        "takt_prefixes.py",
    );
    assert!(read.status.success(), "{}", stderr(&read));
    let yaml = fs::read_to_string(folder.join("callback_groups.yaml")).unwrap();
    has(&yaml, &["/amcl@", "Subscription(/tf)", "SCHED_DEADLINE", "runtime: "]);
    let read = python(
        "import sys, yaml\ngroups = yaml.safe_load(open(sys.argv[1]))['callback_groups']\nassert groups\n\
         for group in groups:\n    assert group['id'].startswith('/') and '@' in group['id'], group\n    \
         assert group['policy'] != 'SCHED_DEADLINE' or 1024 <= group['runtime'] <= group['deadline'] <= group['period'], group",
        "callback_groups.yaml",
    );
    match stderr(&read) {
        message if message.contains("No module named 'yaml'") => {
            takt_witness::skip!("no YAML reader for python3 here")
        }
        message => assert!(read.status.success(), "{message}\n{yaml}"),
    }
    let units: Vec<_> =
        fs::read_dir(folder.join("systemd")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!units.is_empty());
    for drop_in in units {
        // Verified as part of a unit: drop-ins are none by themselves.
        let settings = fs::read_to_string(drop_in.join("50-takt.conf")).unwrap();
        let unit = workspace.path().join("takt-emitted.service");
        fs::write(&unit, format!("[Service]\nExecStart=/bin/true\n{settings}")).unwrap();
        match std::process::Command::new("systemd-analyze").arg("verify").arg(&unit).output() {
            Err(_) => takt_witness::skip!("no systemd-analyze here"),
            Ok(output) => {
                // Other units of the machine may be wrong.
                let message = stderr(&output);
                assert!(!message.contains("takt-emitted.service:"), "{message}\n{settings}");
            }
        }
    }

    // The next start knows what this one learnt, and says so before its first plan.
    let second = manage(&[]);
    json(&second);
    has(&stderr(&second), &["using the model of an earlier run"]);
    assert!(!stderr(&first).contains("using the model of an earlier run"), "{}", stderr(&first));
}
