//! `takt watch` on planted loops: cycles in pairs, loops that spin, late cycles that come again,
//! releases behind a blocked one; names that stay; and the command that is watched.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use takt::{alone, has, json, missing, read_json, root, stderr, stdout, takt as run};

/// Other work of this machine may hide a loop.
const ATTEMPTS: usize = 4;

/// The planted loops.
struct Loops {
    folder: tempfile::TempDir,
}

impl Loops {
    fn build() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let source = root().join("crates/takt/tests/watch/loops.c");
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-pthread", "-o"]).arg(folder.path().join("loops")).arg(source);
        let built = cc.status();
        let there = built.as_ref().is_ok_and(|status| status.success());
        (!missing(&format!("no C compiler: {built:?}"), there)).then_some(Self { folder })
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("loops")
    }

    /// A watch of one of them, in its run directory; None where kernel events cannot be had.
    fn watched(&self, seconds: &str, arguments: &[&str], dir: &Path) -> Option<Value> {
        let output = run(["watch", "--seconds", seconds, "--json", "--out"])
            .arg(dir)
            .arg("--")
            .arg(self.program())
            .args(arguments)
            .output()
            .unwrap();
        assert!(matches!(output.status.code(), Some(0 | 2)), "{}", stderr(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let why = &report["untraced"];
        (!missing(&format!("not traced: {why}"), why.is_null())).then_some(report)
    }

    /// Watches until `holds`, a few times at most.
    fn until(&self, seconds: &str, arguments: &[&str], holds: impl Fn(&Value, &Path) -> Result<(), String>) {
        for attempt in 1..=ATTEMPTS {
            let dir = self.folder.path().join(format!("run-{attempt}-{}", arguments.join("-")));
            let Some(report) = self.watched(seconds, arguments, &dir) else { return };
            match holds(&report, &dir) {
                Ok(()) => return,
                Err(why) => {
                    eprintln!("{arguments:?}, attempt {attempt}: {why}");
                    assert!(attempt < ATTEMPTS, "{arguments:?}: {why}: {report}");
                }
            }
        }
    }
}

/// The thread with most cycles.
fn main_loop(report: &Value) -> Result<&Value, String> {
    let threads = report["threads"].as_array().unwrap().iter();
    threads.max_by_key(|thread| thread["releases"].as_u64()).ok_or("no thread".to_owned())
}

fn near(value: &Value, expected: f64, within: f64) -> Result<(), String> {
    let found = value.as_f64().unwrap_or(f64::NAN);
    match (found / expected - 1.0).abs() <= within {
        true => Ok(()),
        false => Err(format!("{found} instead of {expected}")),
    }
}

#[test]
#[ignore = "takes 60 s"]
fn cycles_in_pairs_and_threes_are_a_finding_and_no_longer_period() {
    let _machine = alone();
    let Some(loops) = Loops::build() else { return };
    let cases: [(&[&str], f64, &str); 5] = [
        (&["pairs", "900", "100"], 500.0, "come in pairs"),
        (&["pairs", "600", "400"], 500.0, "come in pairs"),
        (&["pairs", "3200", "800"], 2000.0, "come in pairs"),
        // What a loop that does not come to every third release looks like, but for its work.
        (&["pairs", "1000", "2000"], 1500.0, "come in pairs"),
        (&["pairs", "300", "500", "5200"], 2000.0, "come in groups of 3"),
    ];
    for (arguments, mean_us, words) in cases {
        loops.until("3", arguments, |report, _| {
            let thread = main_loop(report)?;
            near(&thread["period_us"], mean_us, 0.02)?;
            let intervals = &thread["release_interval_us"];
            if intervals["uneven"] != true {
                return Err(format!("{intervals}"));
            }
            let mut pattern: Vec<f64> =
                intervals["pattern"].as_array().unwrap().iter().map(|us| us.as_f64().unwrap()).collect();
            let mut planted: Vec<f64> = arguments[1..].iter().map(|us| us.parse().unwrap()).collect();
            pattern.sort_by(f64::total_cmp);
            planted.sort_by(f64::total_cmp);
            let same = pattern.len() == planted.len()
                && pattern.iter().zip(&planted).all(|(a, b)| (a - b).abs() < 0.05 * mean_us);
            if !same || !report["notes"].to_string().contains(words) {
                return Err(format!("{pattern:?}, {}", report["notes"]));
            }
            Ok(())
        });
    }
    // An even one is even.
    loops.until("2", &["pairs", "1000"], |report, _| {
        let thread = main_loop(report)?;
        near(&thread["period_us"], 1000.0, 0.01)?;
        match thread["release_interval_us"]["uneven"] == false
            && !report["notes"].to_string().contains("pairs")
        {
            true => Ok(()),
            false => Err(thread["release_interval_us"].to_string()),
        }
    });
}

#[test]
#[ignore = "takes 40 s"]
fn a_loop_that_never_sleeps_has_the_period_of_its_sends_or_writes() {
    let _machine = alone();
    let Some(loops) = Loops::build() else { return };
    let cases: [(&[&str], f64); 5] = [
        (&["spin", "udp", "2000"], 2000.0),
        (&["spin", "pipe", "1000"], 1000.0),
        (&["spin", "file", "5000"], 5000.0),
        (&["nap", "2000"], 2000.0),
        // Sleeps that have a period themselves, of a loop that takes a tenth of a CPU and more.
        (&["nap", "60", "10000"], 10_000.0),
    ];
    for (arguments, period_us) in cases {
        loops.until("5", arguments, |report, dir| {
            let thread = main_loop(report)?;
            if thread["kind"] != "spinning" {
                return Err(format!("it is {}; {}", thread["kind"], report["notes"]));
            }
            near(&thread["period_us"], period_us, 0.02)?;
            let measures = read_json(&dir.join("run.json"))["measures"].to_string();
            match measures.contains("lateness-loops") {
                true => Ok(()),
                false => Err(measures),
            }
        });
    }
}

/// The measures that the gate judges are those of its loops, whatever their threads' numbers are.
#[test]
#[ignore = "takes 20 s"]
fn two_watches_of_a_program_are_compared_and_gated_loop_by_loop() {
    let _machine = alone();
    let Some(loops) = Loops::build() else { return };
    let periods = |report: &Value| -> Vec<(String, u64)> {
        let threads = report["threads"].as_array().unwrap().iter();
        let workers = threads.filter(|thread| thread["name"] == "worker" && !thread["period_us"].is_null());
        let period_ms = |thread: &Value| (thread["period_us"].as_f64().unwrap() / 1e3).round() as u64;
        let mut all: Vec<(String, u64)> =
            workers.map(|thread| (thread["label"].as_str().unwrap().to_owned(), period_ms(thread))).collect();
        all.sort();
        all
    };
    let expected = [("loops.worker", 2), ("loops.worker-2", 5), ("loops.worker-3", 10)]
        .map(|(name, ms)| (name.to_owned(), ms));
    let mut dirs = Vec::new();
    for side in ["before", "after"] {
        for number in 0..2 {
            // Each in a run of its own below its side.
            for attempt in 1..=ATTEMPTS {
                let dir = loops.folder.path().join(side).join(format!("{number}"));
                let _ = std::fs::remove_dir_all(&dir);
                std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
                let Some(report) = loops.watched("2", &["names"], &dir) else { return };
                if periods(&report) == expected {
                    dirs.push(dir);
                    break;
                }
                assert!(attempt < ATTEMPTS, "{report}");
            }
        }
    }
    let tids = |dir: &Path| -> Vec<u64> {
        let report = read_json(&dir.join("watch.json"));
        report["threads"].as_array().unwrap().iter().map(|thread| thread["tid"].as_u64().unwrap()).collect()
    };
    assert!(tids(&dirs[0]).iter().all(|tid| !tids(&dirs[2]).contains(tid)), "this test shows nothing");
    let compared = run(["compare", "--json"]).args([&dirs[0], &dirs[2]]).output().unwrap();
    let compared = json(&compared);
    let names: Vec<&str> =
        compared["pairs"].as_array().unwrap().iter().map(|pair| pair["measure"].as_str().unwrap()).collect();
    for (label, ms) in &expected {
        let name = format!("response-{label}");
        assert!(names.contains(&name.as_str()), "{name} is not among {names:?}");
        let pair =
            compared["pairs"].as_array().unwrap().iter().find(|pair| pair["measure"] == *name).unwrap();
        assert_eq!(pair["deadline_ns"][0].as_u64().map(|ns| ns.div_ceil(1_000_000)), Some(*ms), "{pair}");
    }
    assert_eq!(compared["unmatched"], serde_json::json!([]), "{}", compared["unmatched"]);
    let sides = ["before", "after"].map(|side| loops.folder.path().join(side));
    let gate = run(["gate", "--json", "--baseline"]).args(&sides).output().unwrap();
    // Two runs of each side decide nothing, but they are of the same loops.
    assert_eq!(gate.status.code(), Some(4), "{}", stderr(&gate));
    let gate: Value = serde_json::from_slice(&gate.stdout).unwrap();
    let judged: Vec<String> =
        gate["pairs"].as_array().unwrap().iter().map(|pair| pair["measure"].to_string()).collect();
    for (label, _) in &expected {
        assert!(judged.iter().any(|name| name.contains(&format!("response-{label}\""))), "{judged:?}");
    }
    let reasons = gate["reasons"].to_string();
    assert!(!reasons.contains("only in") && !reasons.contains("reports none"), "{reasons}");
}

/// Processes of one name, begun in another order the second time.
#[test]
#[ignore = "takes 10 s"]
fn processes_of_one_name_keep_their_names() {
    let _machine = alone();
    let Some(loops) = Loops::build() else { return };
    let watched = |order: [&str; 2], dir: &str| -> Option<Vec<(String, u64)>> {
        let dir = loops.folder.path().join(dir);
        let begin = |period: &str| {
            Command::new(loops.program()).args(["pairs", period]).stdout(Stdio::null()).spawn().unwrap()
        };
        let mut children = order.map(begin);
        let pattern = loops.program();
        let output = run(["watch", "--seconds", "2", "--json", "--name"])
            .arg(&pattern)
            .arg("--out")
            .arg(&dir)
            .output()
            .unwrap();
        children.iter_mut().for_each(|child| {
            child.kill().unwrap();
            child.wait().unwrap();
        });
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        if missing(&format!("not traced: {}", report["untraced"]), report["untraced"].is_null()) {
            return None;
        }
        let threads = report["threads"].as_array().unwrap().iter();
        let one = |thread: &Value| {
            let us = thread["period_us"].as_f64().unwrap_or(0.0);
            (thread["label"].as_str().unwrap().to_owned(), (us / 1e3).round() as u64)
        };
        let mut found: Vec<(String, u64)> = threads.map(one).collect();
        found.sort();
        Some(found)
    };
    let expected = vec![("loops".to_owned(), 3), ("loops-2".to_owned(), 7)];
    for (number, order) in [["3000", "7000"], ["7000", "3000"]].into_iter().enumerate() {
        for attempt in 1..=ATTEMPTS {
            let Some(found) = watched(order, &format!("{number}-{attempt}")) else { return };
            if found == expected {
                break;
            }
            assert!(attempt < ATTEMPTS, "{order:?}: {found:?}");
        }
    }
}

#[test]
#[ignore = "takes 25 s"]
fn late_cycles_that_come_again_are_reported_with_their_period() {
    let _machine = alone();
    let Some(loops) = Loops::build() else { return };
    for (arguments, seconds, every_us, cause) in [
        (["seldom", "1000"], "9", 1e6, "own_thread"),
        (["seldom", "400"], "5", 4e5, "own_thread"),
        (["work", "500"], "5", 5e5, "execution"),
    ] {
        loops.until(seconds, &arguments, |report, _| {
            let thread = main_loop(report)?;
            let all = thread["recurs"].as_array().unwrap();
            let found = all.iter().find(|one| near(&one["every_us"], every_us, 0.02).is_ok());
            let Some(found) = found else { return Err(format!("{all:?}")) };
            // Where the firmware may have taken the time, that is said.
            match found["cause"].as_str().is_some_and(|found| found.starts_with(cause)) {
                true => Ok(()),
                false => Err(format!("{found}")),
            }
        });
    }
}

#[test]
#[ignore = "takes 15 s"]
fn releases_behind_a_blocked_one_have_its_cause_on_the_terminal_and_in_the_report() {
    let _machine = alone();
    let Some(loops) = Loops::build() else { return };
    loops.until("4", &["lock", "500"], |report, dir| {
        let thread = main_loop(report)?;
        let first = &report["totals"][0];
        if first["cause"] != "lock" || !first["who"].as_str().unwrap().starts_with("hog") {
            return Err(format!("{}", report["totals"]));
        }
        // Each wait of 11 ms holds five more releases up; what is shown one by one are the worst.
        let inherited = thread["windows"].as_array().unwrap().iter().filter(|late| late["inherited"] == true);
        if inherited.count() < 5 {
            return Err(format!("nothing is inherited: {}", thread["windows"]));
        }
        let behind =
            report["totals"].as_array().unwrap().iter().find(|total| total["cause"] == "previous_job");
        let share = behind.map_or(0.0, |total| total["share"].as_f64().unwrap());
        if share > 0.1 {
            return Err(format!("{share} of it is nobody's"));
        }
        // What may help begins with what took most.
        let proposal = report["proposals"][0].as_str().unwrap_or_default();
        if !proposal.contains("lock: ") || !proposal.contains("hog") {
            return Err(format!("{}", report["proposals"]));
        }
        let traced = read_json(&dir.join("trace.json"));
        if traced["causes"][0]["cause"] != "lock" || traced["causes"][0]["who"] != first["who"] {
            return Err(format!("{}", traced["causes"]));
        }
        let page = dir.with_extension("page");
        let output = run(["report"]).arg(dir).arg("--out").arg(&page).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let page = std::fs::read_to_string(page.join("report.md")).unwrap();
        let table = page.split("Causes of late releases").nth(1).unwrap();
        let row = table.lines().filter(|line| line.starts_with('|')).nth(2).unwrap();
        match row.contains("lock held") && row.contains("hog") {
            true => Ok(()),
            false => Err(row.to_owned()),
        }
    });
}

/// The text for people; None if kernel events are not available.
fn printed(output: &Output) -> Option<String> {
    let text = stdout(output);
    (!missing(&format!("not traced: {text}"), !text.contains("NO KERNEL EVENTS"))).then_some(text)
}

#[test]
#[ignore = "takes 50 s"]
fn its_own_share_of_the_lateness_stands_above_the_table() {
    let _machine = alone();
    let Some(loops) = Loops::build() else { return };
    let output = run(["watch", "--seconds", "3", "--out"])
        .arg(loops.folder.path().join("run"))
        .arg("--")
        .arg(loops.program())
        .args(["seldom", "200"])
        .output()
        .unwrap();
    let Some(text) = printed(&output) else { return };
    let own = text.find("% of all lateness below").unwrap_or_else(|| panic!("{text}"));
    assert!(text[..own].contains("takt itself: ") && own < text.find("  thread").unwrap(), "{text}");
    has(&text, &["what may help", "of all lateness"]);
    assert!(text.contains("when asked to, by signal "), "{text}");
    let report = read_json(&loops.folder.path().join("run/watch.json"));
    let share = report["watcher_lateness_share"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&share) && report["watcher_lateness_us"].as_f64() >= Some(0.0), "{report}");
}

#[test]
#[ignore = "takes 85 s"]
fn what_the_command_prints_and_how_it_ends_is_shown() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let script = "echo to-the-one; echo to-the-other >&2; sleep 1.5; exit 7";
    let watch = |more: &[&str], dir: &str, script: &str| {
        run(["watch"])
            .args(more)
            .arg("--out")
            .arg(folder.path().join(dir))
            .args(["--", "sh", "-c", script])
            .output()
            .unwrap()
    };
    let output = watch(&[], "text", script);
    has(&stdout(&output), &["to-the-one\n", "the command ended by itself, with exit status 7"]);
    has(&stderr(&output), &["to-the-other\n"]);
    // With --json standard output is the report's.
    let output = watch(&["--json"], "json", script);
    has(&stderr(&output), &["to-the-one\n", "to-the-other\n"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["exit_status"], &report["exit_signal"]), (&7.into(), &Value::Null), "{report}");
    assert_eq!(report["ended_by_itself"], true);
    let output = watch(&["--json"], "signal", "sleep 1.5; kill -9 $$");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["exit_status"], &report["exit_signal"]), (&137.into(), &9.into()), "{report}");
    let output = watch(&["--json", "--seconds", "1"], "asked", "sleep 60");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The second signal where the first one is not taken: what runs in the background ignores that.
    let asked = [2, 15].map(Value::from).contains(&report["exit_signal"]);
    assert!(report["ended_by_itself"] == false && asked, "{report}");
}

#[test]
fn a_check_fails_where_a_loop_misses_its_deadlines_or_the_command_fails() {
    let _machine = alone();
    let Some(loops) = Loops::build() else { return };
    let check = |options: &[&str], arguments: &[&str], dir: &str| {
        run(["watch", "--check", "--seconds", "3", "--json", "--out"])
            .arg(loops.folder.path().join(dir))
            .args(options)
            .arg("--")
            .args(arguments)
            .output()
            .unwrap()
    };
    let program = loops.program();
    let output = check(&[], &[program.to_str().unwrap(), "work", "50"], "late");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    if missing(&format!("not traced: {}", report["untraced"]), report["untraced"].is_null()) {
        return;
    }
    assert_eq!((output.status.code(), &report["verdict"]), (Some(1), &"FAIL".into()), "{report}");
    has(report["verdict_sentence"].as_str().unwrap(), &["FAIL", "missed the 2.000 ms deadline"]);
    // In time by a period that is not the loop's: that shows nothing.
    let output = check(&["--period", "1s"], &[program.to_str().unwrap(), "pairs", "1000"], "other");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["verdict"]), (Some(1), &"INCONCLUSIVE".into()), "{report}");
    has(report["verdict_sentence"].as_str().unwrap(), &["You passed --period 1.00 s, but the cycles of"]);
    // The report of the run says the same.
    let page = loops.folder.path().join("page");
    let shown =
        run(["report"]).arg(loops.folder.path().join("late")).arg("--out").arg(&page).output().unwrap();
    assert!(
        shown.status.success() && std::fs::read_to_string(page.join("report.md")).unwrap().contains("FAIL")
    );
}

#[test]
fn a_look_ahead_says_what_is_missing_and_watches_nothing() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let own = std::process::id().to_string();
    let output = run(["watch", "--dry-run", "--pid", &own]).current_dir(folder.path()).output().unwrap();
    let text = stdout(&output);
    has(&text, &[&format!("process {own}: "), "periods and causes: ", "--link: "]);
    assert_eq!(output.status.code(), Some(if text.contains("NO KERNEL EVENTS") { 2 } else { 0 }), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it left a run");
    // Nobody is there.
    let output = run(["watch", "--dry-run", "--name", "no-such-loop-as-this"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    has(&stdout(&output), &["no such process or thread"]);
}
