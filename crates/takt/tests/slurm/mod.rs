//! `takt campaign run --on slurm` on a real Slurm: a controller and three nodes on the loopback
//! interface.

mod cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use super::takt::{Beside, Workspace, alone, folders, has, json, read_json, refusal, stderr, takt, wait_for};
use cluster::Cluster;

/// 12 runs in 6 blocks: three repetitions on each of two kernels.
const CAMPAIGN: &str = r#"
name = "fleet"
robot = "cyclic"
repetitions = 3
seed = 3
seconds = 0.3

[set]
rate_hz = 200
policy = "other:0"
lock_memory = "off"

[[factor]]
name = "kernel"
values = ["rt", "generic"]

[[factor]]
name = "work_us"
values = [0, 100]
"#;

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Sealed runs of a campaign, those left out that were set aside.
fn sealed(dir: &Path) -> BTreeMap<String, Value> {
    let runs = folders(dir).into_iter().filter(|run| run.join("hashes.json").is_file());
    let name = |run: &Path| run.file_name().unwrap().to_str().unwrap().to_owned();
    runs.filter(|run| !name(run).contains(".cut"))
        .map(|run| (name(&run), read_json(&run.join("run.json"))))
        .collect()
}

/// Lines of all journals of a campaign.
fn journal(dir: &Path) -> Vec<Value> {
    let files = fs::read_dir(dir.join("slurm/journals")).into_iter().flatten().flatten();
    let texts = files.map(|file| fs::read_to_string(file.path()).unwrap());
    texts
        .flat_map(|text| text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect::<Vec<_>>())
        .collect()
}

#[test]
fn a_campaign_survives_its_node_its_controller_and_whoever_waits() {
    let _machine = alone();
    let Some(mut cluster) = Cluster::start() else { return };
    let workspace = Workspace::new(CAMPAIGN);
    let on_slurm = |more: &[&str]| {
        let mut command = workspace.command(&[&["--on", "slurm"], more].concat());
        command.env("SLURM_CONF", cluster.configuration());
        command
    };

    // What cannot be is refused before anything is written, with what exists.
    for (more, parts) in [
        (&["--partition", "none"][..], &["--partition none", "there are lab"][..]),
        (
            &["--constraint", "fast"],
            &["--constraint fast", "\"fast\"", "n0 (rt, big), n1 (rt), n2 (generic)"],
        ),
        (&["--constraint", "big"], &["\"big&generic\"", "not available", "n2 (generic)"]),
        (&["--sbatch=--array=1"], &["--sbatch --array=1", "set by takt"]),
        (&["--kernel", "rt"], &["--on slurm", "features"]),
    ] {
        has(&refusal(&on_slurm(more).output().unwrap()), parts);
        assert!(folders(&workspace.runs()).is_empty(), "{more:?} left something");
    }

    // Whoever waits is killed while a run goes on at node n1, then the node and all that runs
    // there, then the controller.
    let mut waits = Beside::start(on_slurm(&[]));
    let dir = wait_for("the campaign", || folders(&workspace.runs()).into_iter().next());
    let attempt = |node: &str| {
        let lines = journal(&dir);
        let place = lines.iter().find(|line| line["what"] == "start" && line["node"] == node)?;
        Some(place["job"].as_str().unwrap().to_owned())
    };
    let lost = wait_for("a block on n1", || {
        assert!(waits.runs(), "{}", waits.output("stderr"));
        attempt("n1")
    });
    let _run = wait_for("a run on n1", || {
        fs::read_dir(dir.join("slurm/attempts").join(format!("{lost}.0"))).unwrap().next()
    });
    waits.signal(Signal::KILL);
    waits.end();
    cluster.kill_node("n1");
    let before = sealed(&dir);
    assert!(before.len() < 12, "nothing is left to go on with");
    cluster.restart_controller();
    cluster.start_at_once(&lost);

    let mut resume = takt(["campaign", "resume"]);
    resume.arg(&dir).arg("--json").env("SLURM_CONF", cluster.configuration());
    let resumed = resume.output().unwrap();
    let table = json(&resumed);
    has(&stderr(&resumed), &["running", "about"]);

    // Every run is there once, where its factors can be had, each block on one node.
    let runs = sealed(&dir);
    assert_eq!(runs.len(), 12, "{runs:?}");
    let mut nodes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for header in runs.values() {
        let place = &header["experiment"]["place"];
        let text = |key: &str| place[key].as_str().unwrap().to_owned();
        nodes.entry(text("block")).or_default().insert(text("node"));
        assert!(text("job").contains('_'), "{place}");
    }
    let expected = |block: &String| if block.contains("generic") { &["n2"][..] } else { &["n0", "n1"] };
    assert_eq!(nodes.len(), 6, "{nodes:?}");
    for (block, nodes) in &nodes {
        assert_eq!(nodes.len(), 1, "{block} is split");
        assert!(nodes.iter().all(|node| expected(block).contains(&node.as_str())), "{block}: {nodes:?}");
    }
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert_eq!((&row["measured"], &row["planned"]), (&3.into(), &3.into()), "{row}");
        assert_eq!(row["problems"], serde_json::json!([]), "{row}");
    }
    // What was lost with the node was cut, and made again; what had been published elsewhere was
    // not.
    let lines = journal(&dir);
    let again: Vec<&Value> =
        lines.iter().filter(|line| line["what"] == "start" && line["job"] == *lost).collect();
    assert_eq!(again.len(), 2, "{lines:?}");
    let block = again[0]["block"].as_str().unwrap();
    for (name, header) in before.iter().filter(|(_, h)| h["experiment"]["place"]["block"] != block) {
        assert_eq!(&runs[name], header, "{name} was made again");
    }
    assert!(table.get("split_blocks").is_none(), "{table}");

    // The same shape as on this machine, and two keys more.
    let local = workspace
        .command(&["--json", "--kernel", "rt", "--repetitions", "1", "--only", "work_us=0"])
        .output()
        .unwrap();
    let local = json(&local);
    let more: Vec<&str> = keys(&rows[0]).difference(&keys(&local["rows"][0])).copied().collect();
    assert_eq!((keys(&table), more), (keys(&local), vec!["job", "node"]));
    assert_eq!(rows[0]["node"].as_array().unwrap().len(), 3);

    // Nothing is left to do, and nothing is left behind.
    let mut resume = takt(["campaign", "resume"]);
    let done = resume.arg(&dir).env("SLURM_CONF", cluster.configuration()).output().unwrap();
    assert!(
        done.status.success() && stderr(&done).matches("measured before").count() == 12,
        "{}",
        stderr(&done)
    );
    wait_for("an empty queue", || cluster.ask("squeue", &["--noheader"]).is_empty().then_some(()));
}

#[test]
fn without_slurm_it_says_so() {
    let workspace = Workspace::new(CAMPAIGN);
    let message =
        refusal(&workspace.command(&["--on", "slurm"]).env("PATH", "/nonexistent").output().unwrap());
    has(&message, &["no sinfo", "slurm-client", "--on local"]);
    let message = workspace.refused(&["--partition", "lab", "--kernel", "rt"]);
    has(&message, &["--partition is for --on slurm"]);
    let message = refusal(&takt(["campaign", "block", "nowhere", "--submission", "x"]).output().unwrap());
    has(&message, &["nowhere"]);
}
