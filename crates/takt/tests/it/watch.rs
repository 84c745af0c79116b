//! `takt watch`: programs that know nothing of it, watched from outside.

#![allow(clippy::unwrap_used)]

use crate::hold as golden;
use crate::takt;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use takt::{TAKT, alone, has, missing, read_json, refusal, stderr, takt as run, wait_for};

/// A loop of 10 ms in Python.
const LOOP: &str = "
import time
while True:
    time.sleep(0.01)
";

fn report(output: &std::process::Output) -> Value {
    assert!(matches!(output.status.code(), Some(0 | 2)), "{}", stderr(output));
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(output)));
    let untraced = !report["untraced"].is_null();
    assert_eq!(untraced, output.status.code() == Some(2), "{:?}: {}", output.status, report["untraced"]);
    report
}

fn has_python() -> bool {
    let there = Command::new("python3").arg("--version").output().is_ok();
    if !there {
        missing("python3 is missing", false);
    }
    there
}

#[test]
#[ignore = "takes 10 s"]
fn a_python_loop_is_found_and_leaves_a_run() {
    let _machine = alone();
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let output = run(["watch", "--seconds", "3", "--json", "--out"])
        .arg(&dir)
        .args(["--", "python3", "-c", LOOP])
        .output()
        .unwrap();
    let report = report(&output);
    for key in ["threads", "links", "totals", "seconds", "lost_events", "watcher_cpu_percent"] {
        assert!(!report[key].is_null(), "{key}: {report}");
    }
    // What starts Python (a shell, on some machines) is in the tree as well.
    let threads = report["threads"].as_array().unwrap();
    let thread = threads.iter().max_by_key(|thread| thread["releases"].as_u64()).unwrap();
    for key in ["name", "pid", "releases", "late", "lateness_us", "response_us", "causes"] {
        assert!(!thread[key].is_null(), "{key}: {thread}");
    }
    assert!(thread.as_object().unwrap().contains_key("period_us"));
    assert!(read_json(&dir.join("hashes.json"))["watch.json"].is_string(), "it is not sealed");
    assert_eq!(read_json(&dir.join("run.json"))["robot"], "watch");
    if !report["untraced"].is_null() {
        missing(&format!("not traced: {}", report["untraced"]), false);
        return;
    }
    golden::hold("watch", &golden::shape("--json", &report));
    assert!(thread["releases"].as_u64().unwrap() > 10, "{thread}");
    // A machine that does much else may drop cycles, and a loop that sleeps for a time has no grid
    // to fall back on.
    if let Some(period_us) = thread["period_us"].as_f64() {
        assert!((10_000.0..25_000.0).contains(&period_us), "{thread}");
        assert_eq!(thread["kind"], "periodic");
        assert_eq!(thread["woken_by"][0]["who"], "its timer");
    }
    // Every late cycle has one cause, but for those that looking at would have cost too much.
    let causes = thread["causes"].as_array().unwrap();
    let counted: u64 = causes.iter().map(|cause| cause["count"].as_u64().unwrap()).sum();
    let unjudged = thread["unjudged"].as_u64().unwrap();
    assert_eq!(counted + unjudged, thread["late"].as_u64().unwrap(), "{thread}");
    // As every other run: it can be reported.
    let page = run(["report"]).arg(&dir).arg("--out").arg(folder.path()).output().unwrap();
    assert_eq!(page.status.code(), Some(0), "{}", stderr(&page));
    assert!(folder.path().join("report.html").is_file());
}

/// A watch of `watched` that has begun to keep it in `dir`.
fn watching(watched: &Child, dir: &Path) -> Child {
    let child = run(["watch", "--json", "--pid", &watched.id().to_string(), "--out"])
        .arg(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the run", || dir.join("run.json").is_file().then_some(()));
    child
}

#[test]
fn control_c_keeps_what_was_measured() {
    let _machine = alone();
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut watched = Command::new("python3").args(["-c", LOOP]).spawn().unwrap();
    let dir = folder.path().join("run");
    let child = watching(&watched, &dir);
    std::thread::sleep(Duration::from_secs(2));
    // SAFETY: signals a child of this test that is not yet waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    // What is watched goes on: it was not started by the watch.
    assert!(watched.try_wait().unwrap().is_none());
    watched.kill().unwrap();
    watched.wait().unwrap();
    let report = report(&output);
    assert!(report["seconds"].as_f64().unwrap() > 0.0);
    assert!(dir.join("hashes.json").is_file() && dir.join("watch.json").is_file());
}

/// Ended at moments from before it handles signals to after its last second: what it prints is
/// whole, its run is sealed, or it was ended before it began and left nothing that looks like a
/// run's end.
#[test]
#[ignore = "a minute and a half"]
fn campaign_a_watch_is_ended_at_each_moment_in_each_way() {
    let _machine = alone();
    if !has_python() {
        return;
    }
    let mut watched = Command::new("python3").args(["-c", LOOP]).spawn().unwrap();
    let ways: [(&str, &[(u64, i32)]); 4] = [
        ("Ctrl-C", &[(0, libc::SIGINT)]),
        ("Ctrl-C twice at once", &[(0, libc::SIGINT), (40, libc::SIGINT)]),
        ("SIGTERM", &[(0, libc::SIGTERM)]),
        ("SIGKILL", &[(0, libc::SIGKILL)]),
    ];
    let (mut sealed, mut early, mut killed) = (0, 0, 0);
    for moment in 0..32_u64 {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("run");
        let (way, signals) = ways[(moment % 4) as usize];
        // Dense where it begins.
        let delay_ms = (moment / 4).pow(2) * 40 + (moment % 4) * 7;
        let child = run(["watch", "--json", "--seconds", "3", "--pid", &watched.id().to_string(), "--out"])
            .arg(&dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(delay_ms));
        for &(pause_ms, signal) in signals {
            std::thread::sleep(Duration::from_millis(pause_ms));
            // SAFETY: signals a child of this test that is not yet waited for.
            unsafe { libc::kill(child.id() as i32, signal) };
        }
        let output = child.wait_with_output().unwrap();
        let is_sealed = dir.join("hashes.json").is_file();
        println!("{moment}: {way} after {delay_ms} ms: {}, sealed {is_sealed}", output.status);
        match output.status.code() {
            Some(_) => {
                let report: Value = serde_json::from_slice(&output.stdout).unwrap();
                assert!(is_sealed && report["seconds"].as_f64().unwrap() >= 0.0, "{report}");
                assert_eq!(read_json(&dir.join("watch.json"))["seconds"], report["seconds"]);
                sealed += 1;
            }
            // Before it handles signals, or by one that nobody handles.
            None if signals[0].1 == libc::SIGKILL => {
                assert!(!is_sealed || delay_ms > 3000);
                killed += 1;
            }
            None => {
                assert!(!dir.exists() && delay_ms < 100, "{} after {delay_ms} ms", output.status);
                early += 1;
            }
        }
    }
    assert!(watched.try_wait().unwrap().is_none());
    watched.kill().unwrap();
    watched.wait().unwrap();
    println!("of 32: {sealed} sealed and whole, {early} before it began, {killed} killed");
    assert!(sealed >= 16);
}

/// A file system of its own that holds next to nothing; None where none may be mounted.
struct Small(tempfile::TempDir);

impl Small {
    fn new(bytes: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(folder.path())
            .output();
        let may = mounted.as_ref().is_ok_and(|output| output.status.success());
        (!missing(&format!("no tmpfs: {mounted:?}"), may)).then_some(Self(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Its rows fill the disk within the first second, and other programs the rest of it.
#[test]
#[ignore = "takes 10 s"]
fn a_full_disk_ends_no_watch_and_loses_no_report() {
    let _machine = alone();
    if !has_python() {
        return;
    }
    let Some(disk) = Small::new("64k") else { return };
    let dir = disk.0.path().join("run");
    let child = run(["watch", "--seconds", "2.5", "--json", "--out"])
        .arg(&dir)
        .args(["--", "python3", "-c", LOOP])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the run", || dir.join("run.json").is_file().then_some(()));
    std::fs::write(disk.0.path().join("other"), vec![0; 64 << 10]).unwrap_err();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    has(&stderr(&output), &["the run directory is incomplete", "No space left"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["notes"].to_string().contains("incomplete"), "{report}");
    if missing(&format!("not traced: {}", report["untraced"]), report["untraced"].is_null()) {
        return;
    }
    assert!(!report["threads"].as_array().unwrap().is_empty(), "{report}");
    assert!(!dir.join("hashes.json").exists(), "it is sealed");
}

/// A shell that is gone before anybody has looked, and what it left behind.
#[test]
fn what_a_command_leaves_in_the_background_is_watched() {
    let _machine = alone();
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // With no end of the pipes that this test reads to their end.
    let script = format!("python3 -c '{LOOP}' >/dev/null 2>&1 & echo $! >pid");
    let output = run(["watch", "--seconds", "2.5", "--json", "--out", "run", "--", "sh", "-c", &script])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap();
    let pid: i32 = pid.trim().parse().unwrap();
    // SAFETY: signals what the command left behind, which nobody waits for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0, "it was ended");
    let report = report(&output);
    let threads = report["threads"].as_array().unwrap();
    assert!(threads.iter().any(|thread| thread["pid"] == pid), "{report}");
}

/// Cycles of 10 ms from a line on its standard input on; then it lives, and its loop does not.
const STOPS: &str = "
import sys, time
sys.stdin.readline()
for _ in range(200): time.sleep(0.01)
print('stopped', flush=True)
time.sleep(3600)
";

#[test]
#[ignore = "takes 10 s"]
fn a_loop_that_stops_is_reported_and_misses_its_releases() {
    let _machine = alone();
    if !has_python() {
        return;
    }
    // What else this machine does may hide a rhythm.
    for attempt in 1..=3 {
        let folder = tempfile::tempdir().unwrap();
        let mut python = Command::new("python3");
        let mut watched =
            python.args(["-c", STOPS]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let dir = folder.path().join("run");
        let child = watching(&watched, &dir);
        std::thread::sleep(Duration::from_secs(1));
        watched.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let mut line = String::new();
        BufReader::new(watched.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "stopped\n");
        std::thread::sleep(Duration::from_millis(2500));
        // SAFETY: signals a child of this test that is not yet waited for.
        unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
        let report = report(&child.wait_with_output().unwrap());
        watched.kill().unwrap();
        watched.wait().unwrap();
        if missing(&format!("not traced: {}", report["untraced"]), report["untraced"].is_null()) {
            return;
        }
        let thread =
            report["threads"].as_array().unwrap().iter().find(|thread| !thread["period_us"].is_null());
        let noted = report["notes"].to_string().contains("began no cycle in the last");
        if thread.is_some_and(|thread| thread["missed"].as_u64() > Some(150)) && noted {
            return;
        }
        assert!(attempt < 3, "{report}");
    }
}

/// A folder that everybody may write to, and the program in it.
fn for_another_user() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("takt");
    std::fs::copy(TAKT, &program).unwrap();
    for (path, mode) in [(home.path(), 0o777), (program.as_path(), 0o755)] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }
    (home, program)
}

#[test]
fn without_rights_it_says_what_is_missing_and_reports_rates() {
    let _machine = alone();
    let (home, program) = for_another_user();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--bounding-set=-all"])
        .arg(&program)
        .args(["watch", "--seconds", "1", "--json", "--runs", "runs", "--"])
        .args(["sh", "-c", "while :; do sleep 0.01; done"])
        .current_dir(home.path())
        .output();
    let Ok(output) = output else {
        missing("setpriv does not run", false);
        return;
    };
    let permitted = !stderr(&output).contains("setpriv:");
    if missing(&format!("setpriv is not permitted: {}", stderr(&output)), permitted) {
        return;
    }
    let report = report(&output);
    let why = report["untraced"].as_str().unwrap_or_else(|| panic!("traced without a right: {report}"));
    has(why, &["missing: ", "fix: "]);
    assert!(why.contains("CAP_PERFMON") || why.contains("tracefs"), "{why}");
    let threads = report["threads"].as_array().unwrap();
    assert!(threads.iter().any(|thread| thread["rate_hz"].as_f64() > Some(0.0)), "{report}");
    assert!(
        threads
            .iter()
            .all(|thread| thread["period_us"].is_null() && thread["causes"] == serde_json::json!([]))
    );
    let dir = home.path().join(report["run_dir"].as_str().unwrap());
    assert!(dir.join("hashes.json").is_file());
}

/// It works without the optional rights: memory that may be locked, and programs in the kernel.
#[test]
fn with_the_least_rights_it_sees_events_and_says_what_is_dearer() {
    let _machine = alone();
    let (home, program) = for_another_user();
    let capabilities = "+perfmon,+dac_read_search";
    let mut command = Command::new("prlimit");
    command.args([
        "--memlock=1048576:1048576",
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ]);
    command.arg(format!("--inh-caps={capabilities}")).arg(format!("--ambient-caps={capabilities}"));
    command.arg(&program).args(["watch", "--seconds", "1", "--json", "--runs", "runs", "--"]);
    command.args(["sh", "-c", "while :; do sleep 0.01; done"]).current_dir(home.path());
    let output = command.output();
    let may = output.as_ref().is_ok_and(|output| !stderr(output).contains("setpriv:"));
    if missing(&format!("no capabilities can be given to another user: {output:?}"), may) {
        return;
    }
    let report = report(&output.unwrap());
    assert!(report["untraced"].is_null(), "{}", report["untraced"]);
    assert_eq!(report["followed_by"], "events");
    assert!(report["threads"].as_array().unwrap().iter().any(|thread| thread["releases"].as_u64() > Some(5)));
    let notes = report["notes"].to_string();
    has(&notes, &["missing: CAP_BPF", "missing: CAP_IPC_LOCK", "KiB per CPU instead of 8192", "ulimit -l"]);
}

/// In a numbering of its own, the kernel's events name others than those that are watched.
#[test]
fn in_a_namespace_of_process_ids_nobody_is_taken_for_another() {
    let _machine = alone();
    let home = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", TAKT])
        .args(["watch", "--seconds", "1", "--json", "--", "sh", "-c", "while :; do sleep 0.01; done"])
        .current_dir(home.path())
        .output();
    let may = output.as_ref().is_ok_and(|output| !stderr(output).contains("unshare:"));
    if missing(&format!("no namespace of process ids: {output:?}"), may) {
        return;
    }
    let output = output.unwrap();
    let report = report(&output);
    let why = report["untraced"].as_str().unwrap_or_else(|| panic!("strangers were watched: {report}"));
    has(why, &["another namespace", "the host's process ids", "--pid=host"]);
    assert!(!report["threads"].as_array().unwrap().is_empty(), "rates are reported: {report}");
}

/// A command that was started for a watch that cannot be ends with the refusal.
#[test]
fn a_refusal_leaves_no_command_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (file, pid) = (folder.path().join("file"), folder.path().join("pid"));
    std::fs::write(&file, "").unwrap();
    let script = format!("echo $$ > {}; exec sleep 1000", pid.display());
    let output = run(["watch", "--runs"]).arg(&file).args(["--", "sh", "-c", &script]).output().unwrap();
    refusal(&output);
    let pid = std::fs::read_to_string(&pid).unwrap_or_default();
    let lives = !pid.trim().is_empty() && Path::new("/proc").join(pid.trim()).exists();
    assert!(!lives, "{pid} still runs: {}", stderr(&output));
}

#[test]
fn what_is_not_there_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |args: &[&str]| {
        refusal(&run(["watch", "--seconds", "1", "--runs"]).arg(folder.path()).args(args).output().unwrap())
    };
    has(&refused(&["--pid", "999999999"]), &["999999999", "no such process or thread"]);
    has(&refused(&["--pid", "-1"]), &["-1"]);
    has(&refused(&["--name", "no such thread anywhere"]), &["no such thread anywhere"]);
    has(&refused(&["--cgroup", "/no/such/group"]), &["cgroup.procs"]);
    has(&refused(&["--", "/no/such/program"]), &["/no/such/program"]);
    has(&refused(&["--period", "0ms", "--pid", "1"]), &["--period"]);
    has(&refused(&["--late-us", "nan", "--pid", "1"]), &["--late-us"]);
    has(&refused(&["--pid", "1", "--name", "x"]), &["cannot be used with"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A command that ends at once, for a wrong argument, say: how it ended is the answer.
#[test]
fn how_a_command_ends_is_said_where_nothing_of_it_could_be_watched() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(["watch", "--seconds", "1", "--runs"])
        .arg(folder.path())
        .args(["--", "sh", "-c", "echo usage >&2; exit 64"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    // Where it was seen in time, there is a report without a loop.
    let all = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
    has(&all, &["usage", "with exit status 64"]);
}
