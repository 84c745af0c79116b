//! `takt watch` on programs that nobody here wrote: cyclictest, a loop in Python, ur_rtde against
//! the simulated controller, pysoem on a simulated segment. Their threads are found with their
//! periods, whichever way they are named to the watch; and where nothing is planted, nothing is
//! called by a name that only a plant would deserve.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use takt::{Beside, alone, missing, root, stderr, takt as run};

/// A loop of 10 ms in Python.
const LOOP: &str = "
import time
while True:
    time.sleep(0.01)
";
/// Causes that a machine does not have by itself: each takes somebody who does it.
const NOT_BY_ITSELF: [&str; 3] = ["stopped", "lock", "throttled"];
/// Other work of this machine may hide a loop.
const ATTEMPTS: usize = 3;

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Ended {
    fn start(command: &mut Command, what: &str) -> Option<Self> {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        if missing(&format!("{what} does not run"), child.is_ok()) {
            return None;
        }
        let mut child = Self(child.unwrap());
        std::thread::sleep(Duration::from_millis(500));
        let ended = child.0.try_wait().unwrap();
        (!missing(&format!("{what} ended at once: {ended:?}"), ended.is_none())).then_some(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

/// Two loops of 2 ms; no right is needed for them.
fn cyclictest() -> Option<Ended> {
    Ended::start(
        Command::new("cyclictest").args(["-t2", "-i2000", "-d0", "-q", "-D600"]),
        "cyclictest (Debian package rt-tests)",
    )
}

fn python() -> Option<Ended> {
    Ended::start(Command::new("python3").args(["-c", LOOP]), "python3")
}

/// Report of a watch; None if kernel events are not available.
fn watched(seconds: &str, arguments: &[&str]) -> Option<Value> {
    let folder = tempfile::tempdir().unwrap();
    let output = run(["watch", "--seconds", seconds, "--json", "--out"])
        .arg(folder.path().join("run"))
        .args(arguments)
        .output()
        .unwrap();
    assert!(matches!(output.status.code(), Some(0 | 2)), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let why = &report["untraced"];
    (!missing(&format!("not traced: {why}"), why.is_null())).then_some(report)
}

/// Threads of a process that are reported with a period near this one.
fn loops(report: &Value, pid: u32, period_us: f64) -> Vec<&Value> {
    let threads = report["threads"].as_array().unwrap().iter();
    let near = |thread: &&Value| {
        let found_us = thread["period_us"].as_f64().unwrap_or(0.0);
        thread["pid"] == pid && (found_us / period_us - 1.0).abs() < 0.03
    };
    threads.filter(near).collect()
}

/// Nothing was planted, so none of what only a plant does is named; every late cycle has a cause
/// all the same.
fn assert_nothing_made_up(report: &Value) {
    for thread in report["threads"].as_array().unwrap() {
        for cause in thread["causes"].as_array().unwrap() {
            assert!(!NOT_BY_ITSELF.contains(&cause["cause"].as_str().unwrap()), "{thread}");
        }
    }
}

#[test]
#[ignore = "takes 30 s"]
fn loops_are_found_by_process_by_name_and_on_the_whole_machine() {
    let _machine = alone();
    let (Some(cyclictest), Some(python)) = (cyclictest(), python()) else { return };
    let (cyclictest, python) = (cyclictest.pid(), python.pid());
    let ways: [(&[&str], bool, bool); 3] = [
        (&["--pid", &cyclictest.to_string()], true, false),
        (&["--name", "cyclictest"], true, false),
        (&[], true, true),
    ];
    for (arguments, fast, slow) in ways {
        for attempt in 1..=ATTEMPTS {
            let Some(report) = watched("4", arguments) else { return };
            assert_nothing_made_up(&report);
            let (two, one) = (loops(&report, cyclictest, 2000.0), loops(&report, python, 10_150.0));
            // Python sleeps for a time and not until one: what it does meanwhile, and the timer
            // slack, come on top.
            if (!fast || two.len() == 2) && (!slow || one.len() == 1) {
                assert!(two.iter().chain(&one).all(|thread| thread["kind"] == "periodic"), "{report}");
                assert!(two.iter().chain(&one).all(|thread| thread["woken_by"][0]["who"] == "its timer"));
                assert!(fast != two.is_empty() && slow != one.is_empty(), "{report}");
                break;
            }
            assert!(attempt < ATTEMPTS, "{arguments:?}: {report}");
        }
    }
}

/// A loop of 20 ms beside a thread that computes: in the same interpreter.
const CROWDED: &str = "
import threading, time
def hog():
    while True: sum(range(100000))
threading.Thread(target=hog, daemon=True).start()
while True:
    time.sleep(0.02)
    for _ in range(100): pass
";
/// A loop of 20 ms that leaves cycles of objects behind, and much that is looked at in each
/// collection.
const WASTEFUL: &str = "
import gc, time
kept = [[i] for i in range(400000)]
n = 0
while True:
    time.sleep(0.02)
    n += 1
    if n % 20 == 0: gc.collect()
";

/// Length for another attempt: if a busy machine left too little to see, it is watched for longer.
fn longer(attempt: usize) -> &'static str {
    ["5", "10", "20"][(attempt - 1).min(2)]
}

#[test]
#[ignore = "takes 25 s"]
fn whoever_holds_python_s_lock_is_named_and_so_is_its_collector() {
    let _machine = alone();
    let start = |code: &str| Ended::start(Command::new("python3").args(["-c", code]), "python3");
    for attempt in 1..=ATTEMPTS {
        let Some(child) = start(CROWDED) else { return };
        let Some(report) = watched(longer(attempt), &["--pid", &child.pid().to_string()]) else { return };
        let python = &report["python"][0];
        if missing("the interpreter does not report where its lock is", !python["lock"].is_null()) {
            return;
        }
        let waits = python["lock"].as_array().unwrap();
        let wait = waits.iter().find(|wait| wait["tid"] == child.pid());
        let held = wait.and_then(|wait| {
            wait["holders"].as_array()?.iter().find(|holder| holder["who"] != "not known").cloned()
        });
        // Its waits last for 5 ms, of every 25; more where the machine is busy.
        let looks = python["looks"].as_f64().unwrap();
        let much = wait.is_some_and(|wait| wait["share"].as_f64().unwrap() * looks >= 3.0);
        let proposed = report["proposals"].to_string().contains("process split");
        if much && held.is_some() && proposed {
            break;
        }
        assert!(attempt < ATTEMPTS, "{report}");
    }
    for attempt in 1..=ATTEMPTS {
        let Some(child) = start(WASTEFUL) else { return };
        let Some(report) =
            watched(longer(attempt), &["--pid", &child.pid().to_string(), "--deadline-us", "5000", "--gc"])
        else {
            return;
        };
        let python = &report["python"][0];
        if missing(&format!("no collector is followed: {}", python["notes"]), !python["collector"].is_null())
        {
            return;
        }
        let lock = python["lock"].as_array().map_or(0, Vec::len);
        let collector = &python["collector"];
        let named = report["threads"].to_string().contains("garbage collector");
        if lock == 0
            && collector["collections"].as_u64() >= Some(5)
            && collector["late_cycles"].as_u64() >= Some(3)
            && named
        {
            return;
        }
        assert!(attempt < ATTEMPTS, "{report}");
    }
}

/// A control group of its own, below the first hierarchy that may be written.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let name = format!("takt-watch-{}", std::process::id());
        let places = ["", "unified", "freezer", "pids", "systemd"]
            .map(|place| Path::new("/sys/fs/cgroup").join(place).join(&name));
        let made = places.into_iter().find(|path| {
            std::fs::create_dir(path).is_ok() && path.join("cgroup.procs").is_file() || {
                let _ = std::fs::remove_dir(path);
                false
            }
        });
        missing("no control group can be made", made.is_some());
        made.map(Self)
    }

    fn take(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes have ended; the kernel may take a while to see that.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
#[ignore = "takes 80 s"]
fn a_control_group_is_watched_with_those_below_it_and_nobody_else() {
    let _machine = alone();
    let Some(group) = Group::new() else { return };
    let below = group.0.join("below");
    std::fs::create_dir(&below).unwrap();
    let below = Group(below);
    let (Some(inside), Some(outside)) = (python(), cyclictest()) else { return };
    below.take(inside.pid());
    let name = group.0.strip_prefix("/sys/fs/cgroup").unwrap().to_str().unwrap().to_owned();
    // As a path, and below the mount.
    for path in [group.0.to_str().unwrap(), &name] {
        for attempt in 1..=ATTEMPTS {
            let Some(report) = watched("3", &["--cgroup", path]) else { return };
            assert_nothing_made_up(&report);
            let threads = report["threads"].as_array().unwrap();
            assert!(threads.iter().all(|thread| thread["pid"] == inside.pid()), "{report}");
            if loops(&report, inside.pid(), 10_150.0).len() == 1 {
                break;
            }
            assert!(attempt < ATTEMPTS, "{report}");
        }
    }
    drop((inside, outside));
}

/// The simulated controller on a loopback address of its own: ur_rtde knows the standard ports
/// alone.
fn controller() -> (Beside, String) {
    for last in 1..=8 {
        let address = format!("127.0.9.{last}");
        let mut simulator = Beside::start(run(["simulate", "--address", &address]));
        for _ in 0..500 {
            if simulator.output("stdout").contains("RTDE: ") {
                return (simulator, address);
            }
            if !simulator.runs() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    panic!("no loopback address is free");
}

/// A script of `tests/clients`, once it has said `ready`; None where what it needs is not
/// installed.
fn client(script: &str, arguments: &[&str], ready: &str) -> Option<Beside> {
    let mut command = Command::new("python3");
    command.arg(root().join("tests/clients").join(script)).args(arguments);
    let mut client = Beside::start(command);
    for _ in 0..3000 {
        if client.output("stdout").contains(ready) {
            return Some(client);
        }
        if !client.runs() {
            let message = client.output("stdout");
            assert_eq!(client.end().code(), Some(3), "{message}{}", client.output("stderr"));
            missing(message.trim(), false);
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it never said {ready}: {}", client.output("stdout"));
}

#[test]
#[ignore = "takes 20 s"]
fn ur_rtde_s_loop_and_its_link_are_followed() {
    let _machine = alone();
    let (robot, address) = controller();
    let Some(client) = client("ur_rtde_loop.py", &[&address], "ready") else { return };
    let pid = client.pid().to_string();
    let link = format!("tcp:{address}:30004");
    // Both of its threads look many times in each period of the robot: that is their period.
    for attempt in 1..=ATTEMPTS {
        let Some(report) = watched("4", &["--pid", &pid, "--link", &link]) else { return };
        assert_nothing_made_up(&report);
        let threads = report["threads"].as_array().unwrap();
        let found = threads.iter().filter(|thread| !thread["period_us"].is_null()).count();
        let link = &report["links"][0];
        let period_us = link["period_us"].as_f64().unwrap_or(0.0);
        // Each state is answered, some after the next has come.
        let answered = link["answered"].as_u64().unwrap() * 10 > link["packets"].as_u64().unwrap() * 8;
        if found == 2 && (period_us / 8000.0 - 1.0).abs() < 0.01 && answered {
            assert!(link["packets"].as_u64().unwrap() > 400, "{link}");
            assert!(!link["robot_clock"].is_null(), "RTDE's time stamp is not found: {link}");
            assert_eq!(link["lost"], 0);
            break;
        }
        assert!(attempt < ATTEMPTS, "{report}");
    }
    // The robot stands still for a while, again and again: that is the robot's fault, and nobody
    // else's.
    let stop = std::thread::spawn(move || {
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(400));
            robot.signal(Signal::STOP);
            std::thread::sleep(Duration::from_millis(60));
            robot.signal(Signal::CONT);
        }
        robot
    });
    let report =
        watched("4", &["--pid", &pid, "--link", &link, "--late-us", "40000", "--deadline-us", "40000"]);
    let _robot = stop.join().unwrap();
    let Some(report) = report else { return };
    let blame = report["links"][0]["blame"].as_array().unwrap();
    let count: u64 = blame.iter().map(|one| one["count"].as_u64().unwrap()).sum();
    let robot: u64 = blame
        .iter()
        .filter(|one| one["place"] == "robot_or_network")
        .map(|one| one["count"].as_u64().unwrap())
        .sum();
    assert!(robot >= 4 && robot * 2 >= count, "{}", report["links"]);
}

#[test]
#[ignore = "takes 25 s"]
fn pysoem_s_cycle_is_found_and_its_frames_are_followed() {
    let _machine = alone();
    let mut segment = Beside::start(run(["segment", "--devices", "8"]));
    for _ in 0..500 {
        if segment.output("stdout").contains("Master's end") || !segment.runs() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if missing(&format!("no simulated segment: {}", segment.output("stderr")), segment.runs()) {
        return;
    }
    let interface = segment.line("stdout", "Master's end of the pair: ");
    let Some(client) = client("pysoem_segment.py", &[&interface, "8", "hold", "60"], "working counter ")
    else {
        return;
    };
    let (pid, link) = (client.pid().to_string(), format!("{interface}:ethercat"));
    for attempt in 1..=ATTEMPTS {
        let Some(report) = watched("4", &["--pid", &pid, "--link", &link]) else { return };
        assert_nothing_made_up(&report);
        let link = &report["links"][0];
        let (packets, answered) = (link["packets"].as_u64().unwrap(), link["answered"].as_u64().unwrap());
        // It sleeps for a millisecond behind each exchange.
        let period_us = link["period_us"].as_f64().unwrap_or(0.0);
        let thread =
            report["threads"].as_array().unwrap().iter().max_by_key(|thread| thread["releases"].as_u64());
        let of_thread_us = thread.and_then(|thread| thread["period_us"].as_f64()).unwrap_or(0.0);
        if (1000.0..3000.0).contains(&period_us) && (of_thread_us / period_us - 1.0).abs() < 0.05 {
            assert!(packets > 500 && answered + 5 >= packets, "{link}");
            assert_eq!(link["lost"], 0);
            return;
        }
        assert!(attempt < ATTEMPTS, "{report}");
    }
}
