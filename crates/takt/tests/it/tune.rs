//! `takt tune`: a loop that knows nothing of it, tuned, and everything as it was afterwards.

#![allow(clippy::unwrap_used)]

use crate::hold as golden;
use crate::takt;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::MutexGuard;
use std::time::Duration;

use serde_json::Value;
use takt::{alone, folders, has, missing, read_json, refusal, root, stderr, stdout, takt as run, wait_for};

/// A loop in Python, in a thread of its own name: its period in seconds, its timer slack in
/// nanoseconds.
const LOOP: &str = "
import ctypes, sys, time
libc = ctypes.CDLL(None)
libc.prctl(29, int(sys.argv[2]), 0, 0, 0)
libc.prctl(15, b'tuned-loop', 0, 0, 0)
while True:
    time.sleep(float(sys.argv[1]))
";

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A loop that runs, a folder for the state file, and how everything was before.
struct Workspace {
    python: Ended,
    folder: tempfile::TempDir,
    state: PathBuf,
    before: Vec<(String, String)>,
    /// Last, so that the next test begins when all of this is gone.
    _machine: MutexGuard<'static, ()>,
}

impl Workspace {
    /// `None`, with the reason printed, where there is no Python, or no tracing and `traced` asks
    /// for it.
    fn new(traced: bool) -> Option<Self> {
        Self::with_loop(traced, ["0.005", "3000000"])
    }

    fn with_loop(traced: bool, period_and_slack: [&str; 2]) -> Option<Self> {
        let machine = alone();
        if traced && !can_trace() {
            return None;
        }
        let python = python(period_and_slack)?;
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("tried/state.json");
        let before = snapshot(python.0.id());
        Some(Self { python, folder, state, before, _machine: machine })
    }

    fn pid(&self) -> u32 {
        self.python.0.id()
    }

    fn now(&self) -> Vec<(String, String)> {
        snapshot(self.pid())
    }

    /// Waits until something is set.
    fn await_change(&self) {
        wait_for("a change", || (self.now() != self.before).then_some(()));
    }

    /// Waits for whoever takes everything back, and sees that it did.
    #[track_caller]
    fn await_restored(&self, after: &str) {
        wait_for("the end of the state file", || (!self.state.exists()).then_some(()));
        assert_eq!(self.now(), self.before, "{after}");
    }
}

fn python(period_and_slack: [&str; 2]) -> Option<Ended> {
    match Command::new("python3").args(["-c", LOOP]).args(period_and_slack).spawn() {
        Ok(child) => {
            let comm = format!("/proc/{}/comm", child.id());
            wait_for("the loop", || {
                fs::read_to_string(&comm).ok().filter(|name| name.trim() == "tuned-loop")
            });
            Some(Ended(child))
        }
        Err(_) => {
            missing("python3 is missing", false);
            None
        }
    }
}

/// Whatever a search may change: files, and scheduling, CPUs and slack of the loop and of the first
/// process.
fn snapshot(pid: u32) -> Vec<(String, String)> {
    let mut paths: Vec<String> = [
        "/proc/sys/kernel/sched_rt_runtime_us",
        "/proc/sys/kernel/timer_migration",
        "/proc/sys/kernel/sched_autogroup_enabled",
        "/proc/sys/kernel/numa_balancing",
        "/proc/sys/kernel/nmi_watchdog",
        "/proc/sys/vm/swappiness",
        "/proc/sys/vm/stat_interval",
        "/proc/sys/vm/compaction_proactiveness",
        "/sys/devices/virtual/workqueue/cpumask",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/kernel/mm/transparent_hugepage/defrag",
        "/sys/kernel/mm/ksm/run",
        "/sys/kernel/rcu_expedited",
    ]
    .map(str::to_owned)
    .to_vec();
    for cpu in 0..2 {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
        paths.push(format!("{folder}/power/pm_qos_resume_latency_us"));
        paths.push(format!("{folder}/cpufreq/scaling_governor"));
        paths.extend((0..4).map(|state| format!("{folder}/cpuidle/state{state}/disable")));
    }
    let irqs = fs::read_dir("/proc/irq").into_iter().flatten().flatten();
    paths.extend(irqs.map(|irq| irq.path().join("smp_affinity_list").to_string_lossy().into_owned()));
    paths.push(format!("/proc/{pid}/timerslack_ns"));
    let mut shown: Vec<(String, String)> = paths
        .into_iter()
        .filter_map(|path| fs::read_to_string(&path).ok().map(|text| (path, text.trim().to_owned())))
        .collect();
    for pid in [pid, 1, 2] {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let cpus = status.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap_or_default();
        let policy = takt_rt::policy::Policy::read(pid as i32).map(|policy| policy.to_string());
        shown.push((format!("thread {pid}"), format!("{cpus} {policy:?}")));
    }
    shown
}

fn can_trace() -> bool {
    let output = run(["watch", "--seconds", "0.2", "--json", "--pid", "1", "--runs"])
        .arg(std::env::temp_dir().join(format!("takt-tune-{}", std::process::id())))
        .output()
        .unwrap();
    let _ = fs::remove_dir_all(std::env::temp_dir().join(format!("takt-tune-{}", std::process::id())));
    // A process that does nothing for so long leaves nothing to report of, and no success.
    let report = serde_json::from_slice::<Value>(&output.stdout);
    let can = report.is_ok_and(|report| report["untraced"].is_null());
    if !can {
        missing("kernel events cannot be had here", false);
    }
    can
}

/// A search that has said something with `word` in it; nothing is waited for without one.
/// Its result goes into a file, and a folder.
struct Search {
    child: Ended,
    result: PathBuf,
    out: PathBuf,
    /// Whether it ended before it said that.
    is_over: bool,
}

impl Search {
    fn start(workspace: &Workspace, word: Option<&str>, arguments: &[&str]) -> Self {
        let [result, out] = ["result.json", "out"].map(|name| workspace.folder.path().join(name));
        let _ = fs::remove_dir_all(&out);
        let mut child = run(["tune", "--json", "--pid", &workspace.pid().to_string(), "--state"])
            .arg(&workspace.state)
            .arg("--out")
            .arg(&out)
            .args(arguments)
            // Its own, so that what a terminal sends to all of a group goes to nobody else.
            .process_group(0)
            .stdout(fs::File::create(&result).unwrap())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut message = String::new();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut is_over = false;
        while word.is_some_and(|word| !message.contains(word)) && !is_over {
            let mut line = String::new();
            is_over = lines.read_line(&mut line).unwrap() == 0;
            message += &line;
        }
        // What it says later must not make it end.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self { child: Ended(child), result, out, is_over }
    }

    fn pid(&self) -> i32 {
        self.child.0.id() as i32
    }

    /// Sends it a signal; a negative number to all of its group.
    fn signal(&self, signal: i32) {
        let to = if signal < 0 { -self.pid() } else { self.pid() };
        // SAFETY: signals a child of this test that is not yet waited for, or its group.
        unsafe { libc::kill(to, signal.abs()) };
    }

    /// Its printed report, which is in its folder as well; None if it printed nothing.
    fn report(&self) -> Option<Value> {
        let text = fs::read_to_string(&self.result).unwrap();
        if text.is_empty() {
            return None;
        }
        let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(read_json(&self.out.join("tune.json")), report);
        Some(report)
    }
}

/// Starts a search and returns when it measures.
fn searching(workspace: &Workspace) -> Ended {
    let search = Search::start(workspace, Some("screening"), &["--seconds", "600"]);
    assert!(!search.is_over, "it ended before it measured");
    search.child
}

#[test]
fn after_a_kill_and_after_control_c_everything_is_as_it_was() {
    let Some(workspace) = Workspace::new(true) else { return };
    for signal in [libc::SIGKILL, libc::SIGINT] {
        let mut search =
            Search::start(&workspace, Some("screening"), &["--seconds", "600", "--block", "60ms"]);
        // In the middle of a block of which something is set.
        workspace.await_change();
        let saved = read_json(&workspace.state);
        assert!(!saved["threads"].as_array().unwrap().is_empty(), "{saved}");
        if signal == libc::SIGINT {
            // Some blocks of the first pairs.
            std::thread::sleep(Duration::from_millis(4000));
        }
        search.signal(signal);
        let status = search.child.0.wait().unwrap();
        // After a kill it is the watchdog's turn.
        workspace.await_restored(&format!("after signal {signal}"));
        if signal == libc::SIGINT {
            assert_eq!(status.code(), Some(2));
            let report = search.report().expect("what was measured is reported");
            assert_eq!(report["stopped"], true, "{report:#}");
            assert!(report["blocks"].as_u64().unwrap() > 0, "{report:#}");
            assert!(
                report["notes"].to_string().contains("stopped before the search was complete"),
                "{report:#}"
            );
        }
    }
}

/// Every setting of this machine, by a program that has nothing of Takt.
fn all_settings(to: &Path) {
    let script = root().join("tests/clients/settings.py");
    let output = Command::new("python3").arg(script).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    fs::write(to, output.stdout).unwrap();
}

/// Searches that are ended at moments of all of their stages, in each way that there is: whatever
/// the way, all settings are as before, and what was measured is reported where there is anybody
/// left to report. TAKT_TUNE_MOMENTS: so many (42).
#[test]
#[ignore = "some minutes"]
fn campaign_a_search_is_ended_at_each_moment_in_each_way() {
    const WORDS: [&str; 6] =
        ["looking for", "the loop:", "can be changed", "screening", "halving", "ablation"];
    // Signals with the pause before each, milliseconds; 0 kills the watchdogs.
    const WAYS: [(&str, &[(u64, i32)]); 7] = [
        ("Ctrl-C", &[(0, libc::SIGINT)]),
        ("Ctrl-C of a terminal", &[(0, -libc::SIGINT)]),
        ("Ctrl-C twice at once", &[(0, libc::SIGINT), (50, libc::SIGINT)]),
        ("Ctrl-C by somebody who will not wait", &[(0, libc::SIGINT), (550, libc::SIGINT)]),
        ("SIGTERM", &[(0, libc::SIGTERM)]),
        ("watchdogs killed, then Ctrl-C", &[(0, 0), (0, libc::SIGINT)]),
        ("SIGKILL", &[(0, libc::SIGKILL)]),
    ];
    let Some(workspace) = Workspace::with_loop(true, ["0.004", "400000"]) else { return };
    let moments = std::env::var("TAKT_TUNE_MOMENTS").map_or(42, |text| text.parse().unwrap());
    let [before, after] = ["before", "after"].map(|name| workspace.folder.path().join(name));
    let (mut partial, mut whole, mut nothing, mut wrong) = (0, 0, 0, 0);
    for moment in 0..moments {
        let (word, (way, signals)) = (WORDS[moment / WAYS.len() % WORDS.len()], WAYS[moment % WAYS.len()]);
        // Spread, and the same in each run.
        let delay_ms = (moment as u64 * 367) % 1100;
        all_settings(&before);
        let began = std::time::Instant::now();
        let mut search =
            Search::start(&workspace, Some(word), &["--seconds", "25", "--block", "60ms", "--link", "lo"]);
        std::thread::sleep(Duration::from_millis(delay_ms));
        let at_s = began.elapsed().as_secs_f64();
        for &(pause_ms, signal) in signals {
            std::thread::sleep(Duration::from_millis(pause_ms));
            match signal {
                0 => watchdogs_of(search.pid() as u32).into_iter().for_each(kill),
                signal => search.signal(signal),
            }
        }
        let asked = std::time::Instant::now();
        let status = search.child.0.wait().unwrap();
        let took_s = asked.elapsed().as_secs_f64();
        wait_for("the end of the state file", || (!workspace.state.exists()).then_some(()));
        // Ended in order: the watchdogs go by themselves.
        std::thread::sleep(Duration::from_millis(200));
        all_settings(&after);
        let compared = Command::new("python3")
            .arg(root().join("tests/clients/settings.py"))
            .arg("--differ")
            .args([&before, &after])
            .output()
            .unwrap();
        let report = search.report();
        let shown = match &report {
            None => "nothing".to_owned(),
            Some(report) => format!("{} blocks, stopped {}", report["blocks"], report["stopped"]),
        };
        println!(
            "{moment}: \"{word}\"{} + {delay_ms} ms (at {at_s:.1} s), {way}: ended with {status} after {took_s:.2} s, reported {shown}; {}",
            if search.is_over { " (over before)" } else { "" },
            stdout(&compared).trim()
        );
        wrong += usize::from(!compared.status.success());
        match &report {
            Some(report) if report["stopped"] == true => {
                partial += 1;
                assert!(report["blocks"].as_u64().unwrap() > 0 && status.code() == Some(2), "{report:#}");
            }
            Some(report) => {
                assert!(report["blocks"].as_u64().unwrap() > 0 && status.success(), "{report:#}");
                whole += 1;
            }
            None => nothing += 1,
        }
    }
    println!(
        "{moments} moments: {wrong} with a setting that differs; reported: {partial} what was measured by then, {whole} whole, {nothing} nothing"
    );
    assert_eq!(wrong, 0);
    assert_eq!(workspace.now(), workspace.before);
}

/// The watchdogs of a search, whichever of its threads started them.
fn watchdogs_of(pid: u32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(Result::ok);
    let children: String =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()).collect();
    let children = children.split_ascii_whitespace().filter_map(|child| child.parse().ok());
    let watches = |child: &i32| {
        fs::read_to_string(format!("/proc/{child}/cmdline")).is_ok_and(|line| line.contains("--watchdog"))
    };
    children.filter(watches).collect()
}

fn kill(pid: i32) {
    // SAFETY: signals a process that a child of this test started, and the child itself.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

#[test]
fn killed_watchdogs_are_started_anew_and_one_of_them_is_enough() {
    let Some(workspace) = Workspace::new(true) else { return };
    let mut child = searching(&workspace);
    let search = child.0.id();
    let both = || Some(watchdogs_of(search)).filter(|pids| pids.len() == 2);
    let first = wait_for("the watchdogs", both);
    first.iter().copied().for_each(kill);
    let now = wait_for("others", || both().filter(|pids| !pids.iter().any(|pid| first.contains(pid))));
    workspace.await_change();
    kill(now[0]);
    kill(search as i32);
    child.0.wait().unwrap();
    workspace.await_restored("after the search and one of them were killed");
}

#[test]
#[ignore = "takes 35 s"]
fn what_can_be_tried_is_listed_and_why_not() {
    let Some(workspace) = Workspace::new(true) else { return };
    let output = run(["tune", "--list", "--json", "--pid", &workspace.pid().to_string(), "--state"])
        .arg(&workspace.state)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["loop"]["thread"], "tuned-loop");
    assert_eq!(workspace.now(), workspace.before);
    let knobs = report["knobs"].as_array().unwrap();
    for knob in knobs {
        for key in ["name", "gain_us", "low", "high", "kept", "placebo"] {
            assert!(knob.get(key).is_some(), "{key} of {knob}");
        }
        let unavailable = knob["stage"] == "unavailable";
        assert_eq!(unavailable, !knob["note"].as_str().unwrap_or_default().is_empty(), "{knob}");
    }
    assert!(knobs.iter().any(|knob| knob["placebo"] == true), "{report}");
    assert!(knobs.iter().any(|knob| knob["name"] == "timer slack: 1 ns" && knob["stage"] != "unavailable"));
    // Where nothing is proposed, a note has the reason.
    let of = |key: &str| report[key].as_array().unwrap().len();
    assert!(of("proposed") + of("notes") > 0, "{report:#}");
}

#[test]
fn a_tuned_file_is_applied_exactly_and_taken_back() {
    let Some(workspace) = Workspace::new(false) else { return };
    let (file, state) =
        (workspace.folder.path().join("tuned.toml"), workspace.folder.path().join("state.json"));
    let of = "process = \"tuned-loop\"\nthread = \"tuned-loop\"";
    let text = format!(
        "format = 1\n[[setting]]\nkind = \"timer_slack\"\n{of}\nslack_ns = 1000\n[[setting]]\nkind = \"cpus\"\n{of}\ncpus = \"0\"\n"
    );
    fs::write(&file, text).unwrap();
    let doctor = |args: &[&std::ffi::OsStr]| {
        run(["doctor", "--json", "--state"]).arg(&state).args(args).output().unwrap()
    };
    let applied = doctor(&["--apply".as_ref(), file.as_os_str()]);
    assert_eq!(applied.status.code(), Some(0), "{} {}", stdout(&applied), stderr(&applied));
    assert_eq!(
        fs::read_to_string(format!("/proc/{}/timerslack_ns", workspace.pid())).unwrap().trim(),
        "1000"
    );
    let changed: Vec<_> =
        workspace.now().into_iter().filter(|entry| !workspace.before.contains(entry)).collect();
    assert_eq!(changed.len(), 2, "{changed:?}");
    let reverted = doctor(&["--revert".as_ref()]);
    assert_eq!(reverted.status.code(), Some(0), "{}", stderr(&reverted));
    assert_eq!(workspace.now(), workspace.before);
    drop(workspace.python);
    has(
        &refusal(&doctor(&["--apply".as_ref(), file.as_os_str()])),
        &["tuned-loop", "start it first", "Nothing was changed"],
    );
    fs::write(&file, "format = 1\n[[setting]]\nkind = \"file\"\npath = \"/etc/passwd\"\nvalue = \"x\"\n")
        .unwrap();
    has(&refusal(&doctor(&["--apply".as_ref(), file.as_os_str()])), &["/etc/passwd", "not a setting"]);
    assert!(!state.exists());
}

/// Killed at ten points, from before its first change to after its last.
#[test]
fn an_apply_that_is_killed_is_undone() {
    let Some(workspace) = Workspace::new(false) else { return };
    let (file, state) =
        (workspace.folder.path().join("tuned.toml"), workspace.folder.path().join("state.json"));
    let mut text = "format = 1\n".to_owned();
    for (path, value) in [("kernel/timer_migration", 0), ("vm/stat_interval", 7), ("vm/swappiness", 3)] {
        text += &format!("[[setting]]\nkind = \"file\"\npath = \"/proc/sys/{path}\"\nvalue = \"{value}\"\n");
    }
    let of = "process = \"tuned-loop\"\nthread = \"tuned-loop\"";
    text += &format!("[[setting]]\nkind = \"cpus\"\n{of}\ncpus = \"0\"\n");
    text += &format!("[[setting]]\nkind = \"timer_slack\"\n{of}\nslack_ns = 1000\n");
    fs::write(&file, text).unwrap();
    let doctor = |argument: &str| {
        let mut command = run(["doctor", "--json", argument]);
        command.args((argument == "--apply").then_some(&file)).arg("--state").arg(&state);
        command
    };
    let mut undone = 0;
    for round in 0..10 {
        let mut child = doctor("--apply").stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(3 * round));
        kill(child.id() as i32);
        child.wait().unwrap();
        let there = state.exists();
        let output = doctor("--undo").output().unwrap();
        assert_eq!(output.status.code(), Some(if there { 0 } else { 2 }), "{}", stderr(&output));
        undone += u32::from(there);
        assert_eq!(workspace.now(), workspace.before, "round {round}");
        assert!(!state.exists());
    }
    println!("{undone} of 10 had written something down");
}

#[test]
#[ignore = "takes 35 s"]
fn a_service_that_starts_slowly_is_waited_for() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let (file, state) = (folder.path().join("tuned.toml"), folder.path().join("state.json"));
    let of = "process = \"tuned-loop\"\nthread = \"tuned-loop\"";
    fs::write(&file, format!("format = 1\n[[setting]]\nkind = \"timer_slack\"\n{of}\nslack_ns = 1000\n"))
        .unwrap();
    let mut doctor = run(["doctor", "--json", "--wait", "600", "--state"]);
    let mut doctor =
        Ended(doctor.arg(&state).arg("--apply").arg(&file).stdout(Stdio::null()).spawn().unwrap());
    assert!(!state.exists(), "nothing is there to be changed");
    let Some(python) = python(["0.005", "3000000"]) else { return };
    assert!(doctor.0.wait().unwrap().success());
    assert_eq!(fs::read_to_string(format!("/proc/{}/timerslack_ns", python.0.id())).unwrap().trim(), "1000");
    has(&refusal(&run(["doctor", "--wait", "1"]).output().unwrap()), &["--apply"]);
}

#[test]
fn what_cannot_be_tuned_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |args: &[&str]| {
        let state = folder.path().join("state.json");
        refusal(&run(["tune", "--seconds", "1", "--state"]).arg(&state).args(args).output().unwrap())
    };
    has(&refused(&["--pid", "999999999"]), &["999999999", "no such process or thread"]);
    has(&refused(&[]), &["nothing to tune", "--pid"]);
    has(&refused(&["--pid", "1", "--aim", "best jitter"]), &["--aim", "expected"]);
    has(&refused(&["--pid", "1", "--name", "x"]), &["cannot be used with"]);
    has(&refused(&["--", "/no/such/program"]), &["/no/such/program"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A stream that no stall of this machine stops: the shipped one stops its arm after 10 ms without
/// news, which another tenant of the machine can take at any moment.
const PATIENT_SERVO: &str = r#"
robot = "servo"
name = "servo"

[simulator]
program = "takt-servo"
rtde_port = 0
dashboard_port = 0
fifo_priority = 95

[servoj]
silent_cycles = 500

[motion]
kind = "hold"

[limits]
stale_cycles = 500
skipped_cycles = 500
"#;

/// A search of one setting in short blocks: what is asserted is that it comes to its end, not what
/// it finds.
#[test]
#[ignore = "takes 35 s"]
fn robots_are_run_tuned_and_ended() {
    let _machine = alone();
    if !can_trace() {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    let mut seen = golden::shape::Shape::new();
    let servo = workspace.path().join("servo.toml");
    fs::write(&servo, PATIENT_SERVO).unwrap();
    let uav = root().join("robots/uav.toml");
    for (robot, file, thread) in [("uav", uav, "uav-attitude"), ("servo", servo, "takt-servo")] {
        let out = workspace.path().join(robot);
        let output =
            run(["tune", "--only", "timer migration", "--block", "60ms", "--seconds", "15", "--json"])
                .arg(file)
                .arg("--state")
                .arg(workspace.path().join("state.json"))
                .arg("--out")
                .arg(&out)
                .current_dir(workspace.path())
                .output()
                .unwrap();
        assert_eq!(output.status.code(), Some(0), "{robot}: {}", stderr(&output));
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        golden::shape::shape_of(&mut seen, "--json", &report);
        // Its critical thread, whatever else of it is faster.
        assert_eq!((&report["loop"]["thread"], &report["loop"]["process"]), (&thread.into(), &"takt".into()));
        assert!(report["blocks"].as_u64().unwrap() > 32, "{report:#}");
        assert!(report["before"]["releases"].as_u64().unwrap() > 0, "{report:#}");
        assert_eq!(read_json(&out.join("tune.json")), report);
        // It has ended, by Ctrl-C and in order: its run directory is sealed.
        let pid = report["loop"]["pid"].as_u64().unwrap();
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{robot} runs on");
        let runs = folders(&workspace.path().join("takt-runs"));
        assert!(!runs.is_empty() && runs.iter().all(|run| run.join("hashes.json").is_file()), "{runs:?}");
        assert!(!workspace.path().join("state.json").exists());
        fs::remove_dir_all(workspace.path().join("takt-runs")).unwrap();
    }
    golden::hold("tune", &seen);
}

#[test]
#[ignore = "takes 40 s"]
fn a_boot_parameter_is_shown_in_guests() {
    // Fast, so that the guests, which measure as many releases of it, are short.
    let Some(loop_of) = Workspace::with_loop(true, ["0.001", "1"]) else { return };
    let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    if missing("no qemu-system-x86_64", qemu.is_ok_and(|output| output.status.success())) {
        return;
    }
    let fetched = run(["kernels", "fetch", "generic"]).output().unwrap();
    if missing(&format!("no kernel: {}", stderr(&fetched)), fetched.status.success()) {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    let pid = loop_of.pid().to_string();
    let output =
        run(["tune", "--list", "--guests", "--only", "preempt=full", "--json", "--pid", &pid, "--state"])
            .arg(workspace.path().join("state.json"))
            .arg("--out")
            .arg(workspace.path().join("out"))
            .output()
            .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    golden::hold("tune-guests", &golden::shape("--json.proposed", &report["proposed"]));
    let [proposed] = report["proposed"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!(proposed["parameters"], "preempt=full");
    let guests = &proposed["in_guests"];
    assert_eq!(guests["time"], "virtual", "{proposed:#}");
    for side in ["without", "with"] {
        let figure = |key: &str| guests[side][key].as_f64().unwrap();
        assert!(figure("releases") > 50.0, "{guests:#}");
        assert!(0.0 < figure("median_us") && figure("median_us") <= figure("worst_us"), "{guests:#}");
    }
    // What each guest was booted with, as it says itself.
    let campaign = folders(&workspace.path().join("out/guests")).remove(0);
    let mut preemption: Vec<String> = folders(&campaign)
        .into_iter()
        .filter(|run| run.join("run.json").is_file())
        .map(|run| read_json(&run.join("run.json"))["machine"]["preemption"].as_str().unwrap().to_owned())
        .collect();
    preemption.sort();
    assert_eq!(preemption.len(), 2);
    assert_eq!(preemption[0], "PREEMPT_DYNAMIC (full)");
    assert_ne!(preemption[1], preemption[0]);
}

/// Threads with reservations that exceed what the kernel admits, until it is dropped.
struct Overload(std::sync::Arc<std::sync::atomic::AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl Overload {
    /// `None` where this user may not reserve.
    fn start() -> Option<Self> {
        use std::sync::atomic::{AtomicBool, Ordering};
        let end = std::sync::Arc::new(AtomicBool::new(false));
        let cpus = std::thread::available_parallelism().unwrap().get();
        let (sender, reserved) = std::sync::mpsc::channel();
        let thread = |_| {
            let (end, sender) = (std::sync::Arc::clone(&end), sender.clone());
            std::thread::spawn(move || {
                let policy: takt_rt::policy::Policy = "deadline:98ms/100ms/100ms".parse().unwrap();
                sender.send(policy.apply(0).is_ok()).unwrap();
                while !end.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(20));
                }
            })
        };
        let threads = (0..cpus + 1).map(thread).collect();
        let own = Self(end, threads);
        (0..cpus + 1).all(|_| reserved.recv().unwrap()).then_some(own)
    }
}

impl Drop for Overload {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Release);
        self.1.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// The limit as it was, whatever happens.
struct Limit(String);

impl Limit {
    const FILE: &str = "/proc/sys/kernel/sched_rt_runtime_us";

    fn now() -> String {
        fs::read_to_string(Self::FILE).unwrap().trim().to_owned()
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        for _ in 0..50 {
            if fs::write(Self::FILE, &self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn what_cannot_be_put_back_while_others_reserve_too_much_is_put_back_when_they_have_ended() {
    let _machine = alone();
    let limit = Limit(Limit::now());
    if limit.0 == "-1" || fs::write(Limit::FILE, "-1").is_err() {
        return takt_witness::skip!("the admission test cannot be switched off here");
    }
    let Some(overload) = Overload::start() else {
        return takt_witness::skip!("no reservation can be had here");
    };
    // What a search leaves that was killed, and its watchdog at the moment of the kill.
    let folder = tempfile::tempdir().unwrap();
    let (state, message) = (folder.path().join("state.json"), folder.path().join("message"));
    let left = serde_json::json!({ "format": 1, "settings": [{ "path": Limit::FILE, "before": limit.0 }] });
    fs::write(&state, left.to_string()).unwrap();
    let mut watchdog = run(["tune", "--watchdog", "1", "--state"]);
    watchdog.arg(&state).stdin(Stdio::null()).stderr(fs::File::create(&message).unwrap());
    // Nobody waits for it: it goes on alone.
    let status = watchdog.status().unwrap();
    let text = fs::read_to_string(&message).unwrap();
    assert_eq!(status.code(), Some(1), "{text}");
    has(&text, &["not yet restored", "sched_rt_runtime_us"]);
    assert_eq!((Limit::now().as_str(), state.exists()), ("-1", true));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(Limit::now(), "-1", "nobody can while they are there");
    drop(overload);
    wait_for("the limit", || (Limit::now() == limit.0 && !state.exists()).then_some(()));
    wait_for("the word that it is done", || {
        fs::read_to_string(&message).unwrap().contains("has restored everything").then_some(())
    });
}
