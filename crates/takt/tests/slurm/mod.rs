//! `takt campaign run --on slurm` on a real Slurm: a controller and three nodes on the loopback
//! interface.

mod cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use super::takt::{
    Beside, Workspace, alone, folders, has, json, missing, read_json, refusal, stderr, takt, wait_for,
};
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
        (&["--partition", "none"][..], &["--partition none", "the partitions are lab"][..]),
        (
            &["--constraint", "fast"],
            &["--constraint fast", "\"fast\"", "n0 (rt, big), n1 (rt), n2 (generic)"],
        ),
        (
            &["--constraint", "big"],
            &["--constraint big and factors kernel", "all of big, generic", "n2 (generic)"],
        ),
        (&["--constraint", "big|rt"], &["\"(big|rt)&generic\"", "not available", "n2 (generic)"]),
        (&["--sbatch=--array=1"], &["--sbatch --array=1", "takt itself sets"]),
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
    has(&stderr(&resumed), &["queued", "running", " done, 0 failed", "about"]);

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

    // Nothing is left to do, which needs no cluster, and nothing is left behind.
    let mut resume = takt(["campaign", "resume"]);
    let done = resume.arg(&dir).env("PATH", "/nonexistent").output().unwrap();
    assert!(
        done.status.success() && stderr(&done).matches("measured before").count() == 12,
        "{}",
        stderr(&done)
    );
    wait_for("an empty queue", || cluster.ask("squeue", &["--noheader"]).is_empty().then_some(()));
}

#[test]
#[ignore = "takes 75 s"]
fn a_node_is_booted_into_the_kernel_that_a_run_asks_for() {
    let _machine = alone();
    let Some(cluster) = Cluster::start_rebooting() else { return };
    let workspace = Workspace::new(CAMPAIGN);
    let more = ["--on", "slurm", "--json", "--repetitions", "1", "--only", "work_us=0"];
    let mut command = workspace.command(&more);
    let ran = command.env("SLURM_CONF", cluster.configuration()).output().unwrap();
    let table = json(&ran);
    let measured: Vec<&Value> =
        table["rows"].as_array().unwrap().iter().map(|row| &row["measured"]).collect();
    assert_eq!(measured, [1, 1], "{table}");
    // Booted before the run that asked for it: each job found its kernel there.
    has(&cluster.file("n0", "boots"), &["rt\n"]);
    let dir = folders(&workspace.runs()).remove(0);
    let runs = sealed(&dir);
    assert_eq!(runs.len(), 2, "{runs:?}");
    for header in runs.values() {
        let experiment = &header["experiment"];
        let kernel =
            experiment["factors"].as_array().unwrap().iter().find(|f| f["name"] == "kernel").unwrap();
        let found = |of: &Value| of.as_str().unwrap().to_owned();
        let began = format!("{} {}\n", found(&experiment["place"]["job"]), found(&kernel["value"]));
        has(&cluster.file("n0", "jobs"), &[&began]);
    }
    // Its clock is not this machine's: said once.
    assert_eq!(stderr(&ran).matches("the clock of node n0 is 30.").count(), 1, "{}", stderr(&ran));
    has(&stderr(&ran), &["ahead of this machine's", "latencies are not", "NTP"]);

    // A program of another version measures nothing for this campaign.
    let about = fs::read_to_string(dir.join("campaign.json")).unwrap();
    let version = format!("\"takt\": \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(about.contains(&version), "{about}");
    fs::write(dir.join("campaign.json"), about.replace(&version, "\"takt\": \"0.0.9\"")).unwrap();
    let lost = folders(&dir).into_iter().find(|run| run.join("hashes.json").is_file()).unwrap();
    fs::remove_dir_all(lost).unwrap();
    let mut resume = takt(["campaign", "resume"]);
    let resumed = resume.arg(&dir).arg("--json").env("SLURM_CONF", cluster.configuration()).output().unwrap();
    assert_eq!(resumed.status.code(), Some(1), "{}", stderr(&resumed));
    has(&stderr(&resumed), &["node n0 runs takt ", "this campaign was started with takt 0.0.9"]);
}

/// Slurm's commands as a site has them that allows `$MOST` tasks in an array (none: any number) and
/// says so where `$SAYS` is set. What they are asked, and with which variables, is in `asked`.
const COMMANDS: [(&str, &str); 4] = [
    ("sinfo", "case \"$*\" in *%P*) echo 'lab*';; *) echo 'n1|idle|rt'; echo 'n2|idle|generic';; esac"),
    ("squeue", "printf \"$QUEUE\""),
    ("scontrol", "[ -n \"$SAYS\" ] || exit 1; echo \"MaxArraySize            = $SAYS\""),
    (
        "sbatch",
        "case \"$*\" in *--test-only*) exit 0;; esac
         for a in \"$@\"; do case \"$a\" in --array=0-*) n=${a#--array=0-};; esac; done
         [ \"$n\" -lt \"$MOST\" ] && echo 77 && exit 0
         echo 'sbatch: error: Batch job submission failed: Invalid job array specification' >&2; exit 1",
    ),
];

/// A folder with these commands.
fn commands() -> tempfile::TempDir {
    let commands = tempfile::tempdir().unwrap();
    for (name, text) in COMMANDS {
        let path = commands.path().join(name);
        let log = "{ echo \"${0##*/} $*\"; env | grep -E '^(SBATCH|SQUEUE|SINFO|SLURM)_'; } >> \"$ASKED\"";
        fs::write(&path, format!("#!/bin/sh\n{log}\n{text}\n")).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    commands
}

/// The folder of the only campaign, once its jobs have been submitted.
fn submitted(waits: &mut Beside, runs: &Path, asked: &Path) -> std::path::PathBuf {
    wait_for("the submissions", || {
        assert!(waits.runs(), "{}", waits.output("stderr"));
        fs::read_to_string(asked).unwrap_or_default().contains("squeue ").then_some(())
    });
    folders(runs).remove(0)
}

#[test]
fn who_waits_counts_what_becomes_of_runs_and_outlives_the_folder() {
    let workspace = Workspace::new(CAMPAIGN);
    let (commands, other) = (commands(), tempfile::tempdir().unwrap());
    let asked = commands.path().join("asked");
    let path = format!("{}:{}", commands.path().display(), std::env::var("PATH").unwrap());
    let with = |mut command: std::process::Command| {
        command.env("PATH", &path).env("ASKED", &asked).env("MOST", "9").env("SAYS", "9");
        let queue = [0, 1, 2].map(|task| format!("x|77|{task}|PENDING||Resources\\n"));
        command.env("QUEUE", queue.concat());
        command
    };
    // Whoever is killed while the program is staged, here by the largest file that it may write,
    // leaves no campaign, which would be made on this machine; a full disk leaves nothing at all.
    let limited = |trap: &str| {
        let script = format!("ulimit -f 2000; {trap} exec \"$@\"");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, "sh", super::takt::TAKT, "campaign", "run", "--on", "slurm"]);
        command.arg(workspace.file()).arg("--runs").arg(other.path().join("runs"));
        with(command).output().unwrap()
    };
    assert!(limited("").status.code().is_none());
    let cut = folders(&other.path().join("runs")).remove(0);
    assert!(folders(&cut.join("slurm")).iter().any(|folder| folder.ends_with("program")), "{cut:?}");
    let mut resume = with(takt(["campaign", "resume"]));
    has(&refusal(&resume.arg(&cut).output().unwrap()), &["no campaign.json"]);
    has(&refusal(&limited("trap '' XFSZ;")), &["slurm/program/takt-", "File too large"]);
    assert_eq!(folders(&other.path().join("runs")), [cut]);

    let mut waits = Beside::start(with(workspace.command(&["--on", "slurm"])));
    let dir = submitted(&mut waits, &workspace.runs(), &asked);
    let reports = |waits: &Beside, words: &str| {
        wait_for(words, || waits.output("stderr").contains(words).then_some(()));
    };
    // The folder is away for a moment.
    let away = workspace.runs().join("away");
    fs::rename(&dir, &away).unwrap();
    reports(&waits, "the jobs continue, and takt keeps waiting");
    fs::rename(&away, &dir).unwrap();
    reports(&waits, "the campaign's folder can be read again");
    // A run failed on one node and was made by another, whose clock is behind, all between two
    // looks.
    let state = read_json(&dir.join("slurm/slurm.json"));
    let submission = &state["submissions"][1];
    let (run, place) = ("001-rt-0-r1", dir.join("001-rt-0-r1"));
    let line = |at_s: u64, event: Value| {
        let mut event = event;
        event["at_ns"] = (at_s * 1_000_000_000).into();
        event.to_string() + "\n"
    };
    let start = |node: &str| {
        serde_json::json!({"what": "start", "submission": submission["name"], "block": submission["blocks"][0], "node": node,
            "job": "77_0", "takt": "0.1.0", "storage_ahead_s": 0.0})
    };
    let failed = serde_json::json!({"what": "failed", "run": run, "cause": "broke"});
    let journals = dir.join("slurm/journals");
    fs::write(journals.join("77_0.0.jsonl"), line(1, start("n1")) + &line(2, failed.clone())).unwrap();
    reports(&waits, "001-rt-0-r1: FAILED: node n1: broke");
    reports(&waits, "11 queued (Resources), 0 running, 0 done, 1 failed, about ");
    fs::create_dir(&place).unwrap();
    for file in ["run.json", "hashes.json"] {
        fs::write(place.join(file), "{}").unwrap();
    }
    let end = serde_json::json!({"what": "end", "run": run, "took_s": 1.0});
    fs::write(journals.join("77_0.1.jsonl"), line(1, start("n2")) + &line(2, end)).unwrap();
    reports(&waits, "001-rt-0-r1: done");
    let next = serde_json::json!({"what": "begin", "run": "002-rt-100-r1"});
    fs::write(journals.join("77_0.2.jsonl"), line(1, start("n1")) + &line(9, failed) + &line(10, next))
        .unwrap();
    reports(&waits, "kernel rt, work_us 100, about");
    reports(&waits, "10 queued, 1 running, 1 done, 0 failed, about");
    waits.signal(Signal::INT);
    assert_eq!(waits.end().code(), Some(2));
    let message = waits.output("stderr");
    has(&message, &["stopped waiting; the jobs 77 77 continue", "takt campaign resume", "scancel 77"]);
    assert_eq!(message.matches("FAILED").count(), 1, "{message}");
    assert_eq!(message.matches("being repeated").count(), 1, "{message}");
    assert_eq!(read_json(&dir.join("failures.json")), serde_json::json!({}));
}

#[test]
fn arrays_are_as_large_as_the_site_allows_and_asked_for_as_takt_asks() {
    let campaign = CAMPAIGN.replace("repetitions = 3", "repetitions = 5");
    let workspace = Workspace::new(&campaign);
    let commands = commands();
    let asked = commands.path().join("asked");
    let with = |mut command: std::process::Command, most: &str, says: &str| {
        let path = format!("{}:{}", commands.path().display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("ASKED", &asked).env("MOST", most).env("SAYS", says);
        let mine =
            [("SBATCH_WAIT", "1"), ("SBATCH_PARTITION", "other"), ("SQUEUE_SORT", "x"), ("SINFO_ALL", "1")];
        command.envs(mine).env("SLURM_CLUSTERS", "other").env("SBATCH_ACCOUNT", "robots");
        command
    };
    let arrays = || {
        let text = fs::read_to_string(&asked).unwrap_or_default();
        let words = text.lines().filter(|line| line.starts_with("sbatch ") && !line.contains("--test-only"));
        let words = words.flat_map(|line| line.split(' ').find_map(|word| word.strip_prefix("--array=0-")));
        words.map(|last| last.parse::<usize>().unwrap() + 1).collect::<Vec<_>>()
    };
    let blocks = |dir: &Path| {
        let state = read_json(&dir.join("slurm/slurm.json"));
        let all = state["submissions"].as_array().unwrap();
        all.iter().map(|one| one["blocks"].as_array().unwrap().len()).collect::<Vec<_>>()
    };
    // Five blocks on each of two kernels: as the site says, and where it does not, as it refuses.
    for (most, says, expected) in [("3", "3", &[3, 2, 3, 2][..]), ("2", "", &[5, 2, 3, 1, 2, 5, 2, 3, 1, 2])]
    {
        let _ = fs::remove_file(&asked);
        let before = folders(&workspace.runs());
        let mut waits = Beside::start(with(workspace.command(&["--on", "slurm"]), most, says));
        wait_for("the submissions", || {
            assert!(waits.runs(), "{}", waits.output("stderr"));
            // The queue is asked for once all have been submitted.
            fs::read_to_string(&asked).unwrap_or_default().contains("squeue ").then_some(())
        });
        waits.signal(Signal::KILL);
        waits.end();
        assert_eq!(arrays(), expected);
        let dir = folders(&workspace.runs()).into_iter().find(|dir| !before.contains(dir)).unwrap();
        let accepted: Vec<usize> =
            expected.iter().copied().filter(|tasks| *tasks <= most.parse().unwrap()).collect();
        assert_eq!(blocks(&dir), accepted);
    }
    let text = fs::read_to_string(&asked).unwrap();
    has(&text, &["SBATCH_ACCOUNT=robots"]);
    for mine in ["SBATCH_WAIT", "SBATCH_PARTITION", "SQUEUE_SORT", "SINFO_ALL", "SLURM_CLUSTERS"] {
        assert!(!text.contains(mine), "{text}");
    }
    // What is refused altogether leaves nothing behind, however often it is tried.
    let before = folders(&workspace.runs());
    let message = stderr(&with(workspace.command(&["--on", "slurm"]), "0", "").output().unwrap());
    has(&message, &["sbatch: Batch job submission failed: Invalid job array specification"]);
    let dir = folders(&workspace.runs()).into_iter().find(|dir| !before.contains(dir)).unwrap();
    let mut resume = takt(["campaign", "resume"]);
    resume.arg(&dir);
    let message = stderr(&with(resume, "0", "").output().unwrap());
    has(&message, &["Invalid job array specification"]);
    assert_eq!(blocks(&dir), [0; 0]);
    let scripts = fs::read_dir(dir.join("slurm")).unwrap().flatten();
    assert_eq!(scripts.filter(|file| file.path().extension().is_some_and(|end| end == "sh")).count(), 0);
    // Options that would undo what takt asks for, and a folder that no job can be given.
    for option in ["--wait", "--clusters=all", "--part=debug"] {
        let sbatch = format!("--sbatch={option}");
        let mut command = with(workspace.command(&["--on", "slurm", &sbatch]), "9", "");
        has(&refusal(&command.output().unwrap()), &[option, "takt itself sets"]);
    }
    let folder: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"runs\xff");
    let folder = commands.path().join(folder);
    let mut command = takt(["campaign", "run", "--on", "slurm"]);
    command.arg(workspace.file()).arg("--runs").arg(&folder);
    has(
        &refusal(&with(command, "9", "").output().unwrap()),
        &["runs\\xFF\" is not UTF-8", "pass --runs a folder"],
    );
    assert!(!folder.exists());
}

#[test]
fn without_slurm_it_says_so() {
    let workspace = Workspace::new(CAMPAIGN);
    let message =
        refusal(&workspace.command(&["--on", "slurm"]).env("PATH", "/nonexistent").output().unwrap());
    has(&message, &["sinfo is not on this machine", "slurm-client", "--on local"]);
    let there = std::process::Command::new("sinfo").arg("--version").output();
    if !missing("there is no sinfo", there.is_ok()) {
        let mut command = workspace.command(&["--on", "slurm"]);
        // Nothing is configured in it.
        let message = refusal(&command.env("SLURM_CONF", "/dev/null").output().unwrap());
        has(&message, &["find no cluster", "SLURM_CONF=FILE", "--on local"]);
    }
    let message = workspace.refused(&["--partition", "lab", "--kernel", "rt"]);
    has(&message, &["--partition applies to --on slurm"]);
    let message = refusal(&takt(["campaign", "block", "nowhere", "--submission", "x"]).output().unwrap());
    has(&message, &["nowhere"]);
}
