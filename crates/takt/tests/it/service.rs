//! What `run`, `manage` and `watch` tell the machine: events at a stand-in for journald against
//! what the run wrote itself, the file of events, systemd's notifications, the units.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::takt::{
    self, Beside, TAKT, alone, folders, has, json, missing, patient_cell, read_json, root, stderr, stdout,
    takt as run, wait_for, without_rights,
};

/// When it came, and its bytes.
type Datagram = (u64, Vec<u8>);

/// A socket that stands in for journald's or systemd's, with what came and when (CLOCK_MONOTONIC
/// nanoseconds).
struct StandIn {
    path: PathBuf,
    over: Arc<AtomicBool>,
    reader: Option<std::thread::JoinHandle<Vec<Datagram>>>,
}

impl StandIn {
    fn new(folder: &Path, name: &str) -> Self {
        let path = folder.join(name);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&over);
        let reader = std::thread::spawn(move || {
            let (mut all, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
            loop {
                match socket.recv(&mut buffer) {
                    Ok(length) => all.push((now_ns(), buffer[..length].to_vec())),
                    Err(_) if ending.load(Ordering::Acquire) => return all,
                    Err(_) => {}
                }
            }
        });
        Self { path, over, reader: Some(reader) }
    }

    fn end(mut self) -> Vec<(u64, Vec<u8>)> {
        self.over.store(true, Ordering::Release);
        self.reader.take().unwrap().join().unwrap()
    }
}

fn now_ns() -> u64 {
    takt_rt::clock::monotonic_ns()
}

/// The fields of an entry of journald's native protocol, read by its rules and not by ours.
fn fields(entry: &[u8]) -> BTreeMap<String, String> {
    let (mut all, mut rest) = (BTreeMap::new(), entry);
    while !rest.is_empty() {
        let line = rest.iter().position(|&byte| byte == b'\n').expect("a field ends with a line break");
        let (name, value);
        match rest[..line].iter().position(|&byte| byte == b'=') {
            Some(equals) => {
                (name, value) = (&rest[..equals], &rest[equals + 1..line]);
                rest = &rest[line + 1..];
            }
            None => {
                name = &rest[..line];
                let length = u64::from_le_bytes(rest[line + 1..line + 9].try_into().unwrap()) as usize;
                value = &rest[line + 9..line + 9 + length];
                assert_eq!(rest[line + 9 + length], b'\n');
                rest = &rest[line + 10 + length..];
            }
        }
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let valid = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
        assert!(!name.is_empty() && name.iter().all(valid), "journald drops the field {}", text(name));
        assert!(all.insert(text(name), text(value)).is_none(), "{} twice", text(name));
    }
    all
}

/// `takt` whose events go to a folder and a socket of the test.
fn command(arguments: &[&str], events: &Path, socket: &Path) -> Command {
    let mut command = run(arguments);
    command.env("TAKT_EVENTS", events).env("TAKT_JOURNAL_SOCKET", socket).env_remove("NOTIFY_SOCKET");
    command
}

/// The bare task for ordinary users, as a file in `folder`.
fn cyclic(folder: &Path, more: &str) -> PathBuf {
    let path = folder.join("cyclic.toml");
    let text = format!(
        "robot = \"cyclic\"\nname = \"cyclic\"\nrate_hz = 500\npolicy = \"other:0\"\nlock_memory = \"off\"\nno_deep_idle = false\n{more}\n"
    );
    fs::write(&path, text).unwrap();
    path
}

fn listed(events: &Path, more: &[&str]) -> Vec<Value> {
    let output = run(["events", "--json"]).args(more).env("TAKT_EVENTS", events).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The values of a measure with their times, nanoseconds.
fn exported(dir: &Path, measure: &str) -> Vec<(u64, u64)> {
    let output = run(["export", "--format", "csv", "--measure", measure]).arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let row = |line: &str| {
        let mut parts = line.split(',').skip(1).map(|part| part.parse().unwrap());
        (parts.next().unwrap(), parts.next().unwrap())
    };
    stdout(&output).lines().skip(1).map(row).collect()
}

/// A loaded machine makes ordinary tasks late, which is told as well.
fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).filter(|kind| *kind != "late").collect()
}

/// The cell with people who walk into it: each stop at the stand-in is one that the run counted
/// itself, with its cause.
#[test]
#[ignore = "takes 20 s"]
fn every_stop_of_a_cell_is_told_with_the_cause_that_the_run_counts() {
    let _alone = alone();
    let workspace = tempfile::tempdir().unwrap();
    let journal = StandIn::new(workspace.path(), "journal");
    let events = workspace.path().join("events");
    let cell = patient_cell(workspace.path(), "");
    let dir = workspace.path().join("run");
    let arguments =
        ["run", cell.to_str().unwrap(), "--seconds", "12", "--view", "none", "--json", "--run-dir"];
    let output = command(&arguments, &events, &journal.path).arg(&dir).output().unwrap();
    let summary = json(&output);
    let entries: Vec<_> = journal.end().iter().map(|(_, entry)| fields(entry)).collect();
    let causes = summary["stop_causes"].as_object().unwrap();
    let counted: u64 = causes.values().map(|count| count.as_u64().unwrap()).sum();
    assert!(counted > 0, "nobody came near the robot: {summary}");
    // The run's own end is one more, where the robot moved then.
    let stops: Vec<_> = entries.iter().filter(|entry| entry["TAKT_EVENT"] == "stop").collect();
    type Entry = BTreeMap<String, String>;
    let (ends, own): (Vec<&Entry>, Vec<&Entry>) =
        stops.into_iter().partition(|entry| entry["TAKT_CAUSE"].starts_with("the time of the run"));
    assert!(ends.len() <= 1);
    for (cause, count) in causes {
        let reported = own.iter().filter(|entry| entry["TAKT_CAUSE"].starts_with(cause.as_str())).count();
        assert_eq!(reported as u64, count.as_u64().unwrap(), "{cause}: {own:?}");
    }
    assert_eq!(own.len() as u64, counted, "{own:?}");
    let recoveries = entries.iter().filter(|entry| entry["TAKT_EVENT"] == "recovery").count();
    assert!(recoveries.abs_diff(own.len()) <= 1, "{recoveries} recoveries of {} stops", own.len());
    for entry in &entries {
        assert_eq!(entry["TAKT_ROBOT"], "cell");
        assert_eq!(entry["SYSLOG_IDENTIFIER"], "takt");
        assert_eq!(entry["TAKT_RUN_DIR"], dir.to_str().unwrap());
        assert!(!entry["MESSAGE"].is_empty() && "3456".contains(&entry["PRIORITY"]));
    }
    // The moment is the end of a job in the run's own rows.
    let ends: BTreeSet<u64> = exported(&dir, "ssm-response")
        .iter()
        .map(|(planned_ns, response_ns)| planned_ns + response_ns)
        .collect();
    for entry in &own {
        assert!(ends.contains(&entry["TAKT_AT_NS"].parse().unwrap()), "{entry:?}");
    }
    // The file has the same, in the same order.
    let lines = listed(&events, &[]);
    let shown: Vec<_> = lines.iter().map(|event| event["cause"].as_str().unwrap()).collect();
    let sent: Vec<_> = entries.iter().map(|entry| entry["TAKT_CAUSE"].as_str()).collect();
    let sorted = |mut list: Vec<&str>| {
        list.sort_unstable();
        list.iter().map(|cause| (*cause).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(sorted(shown), sorted(sent));
    // One line answers.
    let output =
        run(["events", "--kind", "stop", "--last", "1"]).env("TAKT_EVENTS", &events).output().unwrap();
    has(&stdout(&output), &["cell stopped: ", dir.to_str().unwrap(), " s ("]);
}

#[test]
fn late_bursts_are_told_as_often_as_the_run_missed_and_once_each() {
    let workspace = tempfile::tempdir().unwrap();
    let journal = StandIn::new(workspace.path(), "journal");
    let events = workspace.path().join("events");
    // Hardly anybody wakes up within a microsecond.
    let robot = cyclic(workspace.path(), "deadline_ms = 0.001");
    let dir = workspace.path().join("run");
    let arguments = ["run", robot.to_str().unwrap(), "--seconds", "1.5", "--json", "--run-dir"];
    let output = command(&arguments, &events, &journal.path).arg(&dir).output().unwrap();
    json(&output);
    let entries: Vec<_> = journal.end().iter().map(|(_, entry)| fields(entry)).collect();
    let reported: Vec<&str> = entries.iter().map(|entry| entry["TAKT_EVENT"].as_str()).collect();
    assert_eq!((reported.first(), reported.last()), (Some(&"started"), Some(&"ended")), "{reported:?}");
    let header = read_json(&dir.join("run.json"));
    for measure in ["lateness", "response"] {
        let late: Vec<_> = entries
            .iter()
            .filter(|entry| entry["TAKT_EVENT"] == "late" && entry["TAKT_MEASURE"] == measure)
            .collect();
        // Its begin, and its sum at the end.
        assert_eq!(late.len(), 2, "{measure}: {reported:?}");
        // By the run's own values.
        let late_rows: Vec<(u64, u64)> =
            exported(&dir, measure).into_iter().filter(|(_, value_ns)| *value_ns > 1000).collect();
        assert_eq!(late[1]["TAKT_COUNT"].parse::<usize>().unwrap(), late_rows.len(), "{measure}");
        let worst_ns = late_rows.iter().map(|(_, value_ns)| *value_ns).max().unwrap();
        assert_eq!(late[1]["TAKT_WORST_NS"].parse::<u64>().unwrap(), worst_ns, "{measure}");
        let at_ns: u64 = late[0]["TAKT_AT_NS"].parse().unwrap();
        assert_eq!(at_ns, late_rows[0].0, "{measure}");
        let from_ns = header["measures"][0]["window_ns"][0].as_u64().unwrap();
        let moment_s: f64 = late[0]["TAKT_MOMENT_S"].parse().unwrap();
        assert!((moment_s - (at_ns - from_ns) as f64 / 1e9).abs() < 1e-3);
    }
    let last = entries.last().unwrap();
    has(&last["TAKT_CAUSE"], &["FAIL"]);
    let stop = entries.iter().find(|entry| entry["TAKT_EVENT"] == "stop").unwrap();
    assert_eq!(stop["TAKT_CAUSE"], "the time of the run was over");
}

#[test]
fn a_killed_run_is_found_by_whoever_asks() {
    let workspace = tempfile::tempdir().unwrap();
    let events = workspace.path().join("events");
    let none = workspace.path().join("no-socket");
    let robot = cyclic(workspace.path(), "");
    let runs = workspace.path().join("runs");
    let arguments = ["run", robot.to_str().unwrap(), "--seconds", "600", "--runs", runs.to_str().unwrap()];
    let mut killed = Beside::start(command(&arguments, &events, &none));
    let dir = wait_for("a checkpoint", || {
        let dir = folders(&runs).into_iter().next()?;
        let part = read_json_of(&dir.join("checkpoint.json"))?;
        (part["elapsed_ns"].as_u64()? > 300_000_000).then_some(dir)
    });
    // It goes on: neither killed nor old.
    assert_eq!(kinds(&listed(&events, &[])), ["started"]);
    let prune = ["runs", "prune", runs.to_str().unwrap(), "--keep-bytes", "0", "--json"];
    let pruned = json(&run(prune).output().unwrap());
    assert_eq!(pruned["kept"][0]["why"], "goes_on", "{pruned}");
    assert!(dir.join("run.json").is_file());
    let at = Instant::now();
    killed.signal(Signal::KILL);
    killed.end();
    let found = listed(&events, &["--since", "1h", "--kind", "started,ended,killed"]);
    assert_eq!(kinds(&found), ["started", "killed"]);
    has(found[1]["cause"].as_str().unwrap(), &["killed or crashed", "checkpoint"]);
    assert_eq!(found[1]["run_dir"], dir.to_str().unwrap());
    let ns = |event: &Value| event["at_ns"].as_u64().unwrap();
    let killed_ns = now_ns() - at.elapsed().as_nanos() as u64;
    assert!(ns(&found[1]) <= killed_ns && killed_ns - ns(&found[1]) < 3_000_000_000, "{found:?}");
    // What a kill left can be taken up again, and then it was old.
    let pruned = json(&run(prune).output().unwrap());
    assert_eq!(pruned["kept"][0]["why"], "resumable", "{pruned}");
    let pinned = run(["runs", "pin"]).arg(&dir).output().unwrap();
    assert!(pinned.status.success(), "{}", stderr(&pinned));
    let pruned = json(&run(prune).output().unwrap());
    assert_eq!(pruned["kept"][0]["why"], "pinned", "{pruned}");
}

fn read_json_of(path: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

/// A socket that takes nothing, and folders that are no place for events: the run is the same, and
/// what can be kept is.
#[test]
fn a_full_socket_and_a_planted_file_change_nothing_of_a_run() {
    let workspace = tempfile::tempdir().unwrap();
    let socket_path = workspace.path().join("full");
    let _receiver = UnixDatagram::bind(&socket_path).unwrap();
    let filler = UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    while filler.send_to(b"MESSAGE=x\n", &socket_path).is_ok() {}
    let robot = cyclic(workspace.path(), "");
    let events = workspace.path().join("events");
    let arguments = ["run", robot.to_str().unwrap(), "--seconds", "0.5", "--json", "--run-dir"];
    let begun = Instant::now();
    let output = command(&arguments, &events, &socket_path).arg(workspace.path().join("a")).output().unwrap();
    json(&output);
    assert!(begun.elapsed() < takt::PATIENCE);
    assert_eq!(kinds(&listed(&events, &[]))[..1], ["started"]);
    has(&stderr(&output), &["journald did not take", "takt events"]);
    // A FIFO in the file's place, which would wait for a reader for ever.
    let planted = workspace.path().join("planted");
    fs::create_dir(&planted).unwrap();
    assert!(Command::new("mkfifo").arg(planted.join("events.jsonl")).status().unwrap().success());
    let journal = StandIn::new(workspace.path(), "journal");
    let output =
        command(&arguments, &planted, &journal.path).arg(workspace.path().join("b")).output().unwrap();
    json(&output);
    has(&stderr(&output), &["events cannot be kept in a file", "TAKT_EVENTS"]);
    let entries = journal.end();
    assert_eq!(fields(&entries[0].1)["TAKT_EVENT"], "started");
    assert_eq!(fields(&entries.last().unwrap().1)["TAKT_EVENT"], "ended");
    let listed = run(["events"]).env("TAKT_EVENTS", &planted).output().unwrap();
    assert_eq!(listed.status.code(), Some(1));
    has(&stderr(&listed), &["events.jsonl", "FIFO"]);
}

/// Ready after the first release by the run's own rows, alive while it runs, stopping before its
/// end, and nothing where systemd does not listen.
#[test]
fn systemd_is_told_what_is_true() {
    let workspace = tempfile::tempdir().unwrap();
    let systemd = StandIn::new(workspace.path(), "notify");
    let robot = cyclic(workspace.path(), "");
    let dir = workspace.path().join("run");
    let arguments = ["run", robot.to_str().unwrap(), "--seconds", "600", "--run-dir", dir.to_str().unwrap()];
    let mut command = command(&arguments, &workspace.path().join("events"), &workspace.path().join("none"));
    command.env("NOTIFY_SOCKET", &systemd.path).env("WATCHDOG_USEC", "300000").env_remove("WATCHDOG_PID");
    let mut service = Beside::start(command);
    wait_for("rows", || (takt::rows(&dir, "cyclic.csv") > 500).then_some(()));
    // A loop that stands still gets nobody to vouch for it: the whole process is stopped here.
    service.signal(Signal::TERM);
    assert!(service.end().success(), "{}", service.output("stderr"));
    let ended_ns = now_ns();
    let came = systemd.end();
    let text = |entry: &[u8]| String::from_utf8(entry.to_vec()).unwrap();
    let first = |prefix: &str| {
        came.iter().find(|(_, entry)| text(entry).lines().any(|line| line == prefix)).map(|(at_ns, _)| *at_ns)
    };
    let (ready_ns, stopping_ns) = (first("READY=1").unwrap(), first("STOPPING=1").unwrap());
    let rows =
        takt_rundir::RunDir::open(&dir).unwrap().columns("cyclic", &["planned_ns", "wake_ns"]).unwrap();
    let first_ns = rows[1][0];
    let events = listed(&workspace.path().join("events"), &[]);
    let started_ns = events[0]["at_ns"].as_u64().unwrap();
    let window_ns = read_json(&dir.join("run.json"))["measures"][0]["window_ns"].clone();
    let to_ns = window_ns[1].as_u64().unwrap();
    assert!(ready_ns > first_ns, "ready before the first wake-up");
    assert!(ready_ns > started_ns && ready_ns < stopping_ns, "{started_ns} {ready_ns} {stopping_ns}");
    assert!(stopping_ns >= to_ns.saturating_sub(1_000_000_000) && stopping_ns < ended_ns);
    let ready = came.iter().filter(|(_, entry)| text(entry).contains("READY=1")).count();
    assert_eq!(ready, 1);
    let alive = came.iter().filter(|(_, entry)| text(entry) == "WATCHDOG=1").count();
    assert!(alive >= 5, "{alive} signs of life in a second and more");
    assert!(came.iter().any(|(_, entry)| text(entry).starts_with("STATUS=")));
    // A signal is a reason, too.
    let stop = events.iter().find(|event| event["event"] == "stop").unwrap();
    has(stop["cause"].as_str().unwrap(), &["asked to stop"]);
    assert_eq!(kinds(&events), ["started", "stop", "ended"]);
}

#[test]
fn a_watchdog_of_another_process_is_not_ours() {
    let workspace = tempfile::tempdir().unwrap();
    let systemd = StandIn::new(workspace.path(), "notify");
    let robot = cyclic(workspace.path(), "");
    let arguments = ["run", robot.to_str().unwrap(), "--seconds", "0.5", "--run-dir"];
    let mut command = command(&arguments, &workspace.path().join("events"), &workspace.path().join("none"));
    command.arg(workspace.path().join("run")).env("NOTIFY_SOCKET", &systemd.path);
    command.env("WATCHDOG_USEC", "300000").env("WATCHDOG_PID", "1");
    assert!(command.output().unwrap().status.success());
    let came = systemd.end();
    assert!(!came.iter().any(|(_, entry)| entry.starts_with(b"WATCHDOG")), "{came:?}");
    assert!(came.iter().any(|(_, entry)| entry.starts_with(b"READY=1")));
}

#[test]
fn a_watch_for_weeks_tells_what_was_late() {
    let workspace = tempfile::tempdir().unwrap();
    let (journal, systemd) =
        (StandIn::new(workspace.path(), "journal"), StandIn::new(workspace.path(), "notify"));
    let robot = cyclic(workspace.path(), "");
    let inner = workspace.path().join("inner");
    let dir = workspace.path().join("watch");
    let arguments =
        ["watch", "--flight-recorder", "--late-us", "0.001", "--seconds", "2.5", "--json", "--out"];
    let mut command = command(&arguments, &workspace.path().join("events"), &journal.path);
    command.arg(&dir).env("NOTIFY_SOCKET", &systemd.path).arg("--").arg(TAKT).arg("run").arg(&robot);
    command.args(["--seconds", "60", "--run-dir"]).arg(&inner);
    let output = command.output().unwrap();
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    if takt::untraced(&report) {
        return;
    }
    let watch: Vec<_> = journal
        .end()
        .iter()
        .map(|(_, entry)| fields(entry))
        .filter(|entry| entry["TAKT_COMMAND"] == "watch")
        .collect();
    let kinds: Vec<&str> = watch.iter().map(|entry| entry["TAKT_EVENT"].as_str()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"started"), Some(&"ended")), "{kinds:?}");
    let late: Vec<_> = watch.iter().filter(|entry| entry["TAKT_EVENT"] == "late").collect();
    assert!(late.iter().any(|entry| entry["TAKT_CAUSE"].contains("takt-cyclic")), "{late:?}");
    assert!(late.iter().all(|entry| entry["TAKT_RUN_DIR"] == dir.to_str().unwrap()));
    let came = systemd.end();
    assert!(came.iter().any(|(_, entry)| entry.starts_with(b"READY=1")));
    assert!(came.iter().any(|(_, entry)| entry.starts_with(b"STOPPING=1")));
}

#[test]
#[cfg(feature = "ros")]
#[ignore = "takes 8 s"]
fn a_manager_is_ready_when_it_turns_and_tells_its_end() {
    let _alone = alone();
    let workspace = tempfile::tempdir().unwrap();
    let (journal, systemd) =
        (StandIn::new(workspace.path(), "journal"), StandIn::new(workspace.path(), "notify"));
    let goals = root().join("goals/turtlebot.toml");
    let arguments =
        ["manage", goals.to_str().unwrap(), "--observe", "--json", "--seconds", "5", "--fresh", "--"];
    let mut command = command(&arguments, &workspace.path().join("events"), &journal.path);
    command.arg(TAKT).args(["workload", "--seconds", "30"]).env("NOTIFY_SOCKET", &systemd.path);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let entries: Vec<_> = journal.end().iter().map(|(_, entry)| fields(entry)).collect();
    let own: Vec<_> = entries.iter().filter(|entry| entry["TAKT_COMMAND"] == "manage").collect();
    assert_eq!((&own[0]["TAKT_EVENT"][..], &own[0]["TAKT_ROBOT"][..]), ("started", "turtlebot"));
    assert_eq!(own.last().unwrap()["TAKT_EVENT"], "ended");
    let came = systemd.end();
    let place = |what: &str| came.iter().position(|(_, entry)| entry.starts_with(what.as_bytes()));
    assert!(place("READY=1").unwrap() < place("STOPPING=1").unwrap());
}

#[test]
fn events_are_asked_for_by_time_kind_and_robot_and_followed() {
    let workspace = tempfile::tempdir().unwrap();
    let events = workspace.path().join("events");
    let none = workspace.path().join("none");
    let robot = cyclic(workspace.path(), "");
    let go = |name: &str| {
        let arguments = ["run", robot.to_str().unwrap(), "--seconds", "0.3", "--json", "--run-dir"];
        json(&command(&arguments, &events, &none).arg(workspace.path().join(name)).output().unwrap());
    };
    go("a");
    let mut follower = Beside::start({
        let mut command = run(["events", "--follow", "--json", "--kind", "ended", "--since", "1h"]);
        command.env("TAKT_EVENTS", &events);
        command
    });
    wait_for("the first", || (follower.output("stdout").lines().count() == 1).then_some(()));
    go("b");
    wait_for("the second", || (follower.output("stdout").lines().count() == 2).then_some(()));
    follower.signal(Signal::INT);
    assert!(follower.end().success());
    assert_eq!(listed(&events, &["--kind", "started,ended"]).len(), 4);
    assert_eq!(listed(&events, &["--last", "1"]).len(), 1);
    assert_eq!(listed(&events, &["--robot", "another"]).len(), 0);
    assert_eq!(listed(&events, &["--since", "1970-01-01", "--until", "1980-01-01"]).len(), 0);
    let refused = run(["events", "--since", "yesterday"]).output().unwrap();
    has(&stderr(&refused), &["14:00", "2h"]);
    assert_eq!(refused.status.code(), Some(2));
    let nothing = run(["events"]).env("TAKT_EVENTS", workspace.path().join("nothing")).output().unwrap();
    has(&stderr(&nothing), &["no such events", "nothing"]);
    // What systemd saw of a unit's end.
    let ended = |result: &str| {
        let mut command = run(["events", "--unit-ended", "takt-run@cell.service"]);
        command.env("TAKT_EVENTS", &events).env("TAKT_JOURNAL_SOCKET", &none);
        command.env("SERVICE_RESULT", result).env("EXIT_CODE", "killed").env("EXIT_STATUS", "KILL");
        assert!(command.status().unwrap().success());
    };
    ended("success");
    assert_eq!(listed(&events, &["--kind", "killed"]).len(), 0);
    ended("signal");
    let killed = listed(&events, &["--kind", "killed"]);
    assert_eq!(killed[0]["robot"], "takt-run@cell.service");
    has(killed[0]["cause"].as_str().unwrap(), &["signal", "killed (KILL)"]);
}

/// `chrt` and `prlimit` are other programs: what they may do as this user is what Takt says.
#[test]
fn rights_are_those_that_other_programs_have() {
    let rights = |mut command: Command| -> Vec<Value> {
        let output = command.args([TAKT, "doctor", "--rights", "--json"]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let of = |rights: &[Value], id: &str| {
        rights.iter().find(|right| right["id"] == id).unwrap_or_else(|| panic!("no {id}")).clone()
    };
    let fifo = |mut command: Command| {
        command.args(["chrt", "-f", "99", "true"]).stderr(std::process::Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let plain = || Command::new("env");
    let own = rights(plain());
    assert_eq!(of(&own, "run_realtime")["possible"], fifo(plain()), "{own:?}");
    for right in &own {
        assert_eq!(right["possible"] == false, right["fix"].is_string(), "{right}");
        assert!(right["evidence"].as_str().is_some_and(|text| !text.is_empty()), "{right}");
    }
    if missing("setpriv needs root", rustix::process::geteuid().is_root()) {
        return;
    }
    let nobody = rights(without_rights());
    assert_eq!(of(&nobody, "run_realtime")["possible"], fifo(without_rights()), "{nobody:?}");
    for id in ["tune", "manage_groups", "ethernet"] {
        let right = of(&nobody, id);
        assert_ne!(right["possible"], true, "{right}");
    }
    let text = without_rights().args([TAKT, "doctor", "--rights", "--check"]).output().unwrap();
    assert_eq!(text.status.code(), Some(1));
    has(&stdout(&text), &["NO ", "mend: "]);
}

fn units() -> Vec<PathBuf> {
    let folder = root().join("packaging/systemd");
    let mut all: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

/// The units with this program in place of the installed one, under names that systemd-analyze
/// takes.
fn instances(folder: &Path) -> Vec<PathBuf> {
    units()
        .iter()
        .map(|unit| {
            let text = fs::read_to_string(unit).unwrap().replace("/usr/bin/takt", TAKT);
            let name = unit.file_name().unwrap().to_str().unwrap().replace('@', "@test");
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            path
        })
        .collect()
}

#[test]
fn systemd_understands_the_units_and_finds_them_hardened() {
    let there = Command::new("systemd-analyze").arg("--version").output().is_ok();
    if missing("there is no systemd-analyze", there) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let instances = instances(folder.path());
    assert!(instances.len() >= 5);
    let verify =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&instances).output().unwrap();
    // Where systemd does not run, it may also speak of the machine's own units.
    let ours: Vec<_> =
        stderr(&verify).lines().filter(|line| line.contains("takt")).map(str::to_owned).collect();
    assert!(ours.is_empty(), "{ours:?}");
    for unit in instances.iter().filter(|unit| unit.extension().is_some_and(|end| end == "service")) {
        let mut command = Command::new("systemd-analyze");
        command.args(["security", "--offline=true", "--no-pager", "--threshold=40"]).arg(unit);
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{}: {}",
            unit.display(),
            stdout(&output).lines().last().unwrap_or("")
        );
    }
}

/// What the book promises of the units, whether or not systemd is there.
#[test]
fn no_unit_starts_a_robot_again_and_all_that_write_have_their_folders() {
    let text = |name: &str| fs::read_to_string(root().join("packaging/systemd").join(name)).unwrap();
    let robot = text("takt-run@.service");
    let lines = [
        "Type=notify",
        "Restart=no",
        "KillSignal=SIGTERM",
        "WatchdogSec=10",
        "WatchdogSignal=SIGABRT",
        "LimitRTPRIO=99",
        "LimitMEMLOCK=infinity",
        "ExecStopPost=/usr/bin/takt manage --restore",
    ];
    for line in lines {
        assert!(robot.lines().any(|found| found == line), "takt-run@.service has no {line}");
    }
    for name in ["takt-run@.service", "takt-manage@.service", "takt-watch@.service"] {
        let text = text(name);
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        assert_eq!(value("Type="), "notify", "{name}");
        assert!(value("TimeoutStopSec=").parse::<u32>().unwrap() >= 30, "{name}");
        assert!(value("StateDirectory=").contains("takt/events"), "{name}");
        assert!(!value("WatchdogSec=").is_empty() && !value("OOMScoreAdjust=").is_empty(), "{name}");
        // The command lines are ones that the program takes.
        for line in text.lines().filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/takt ")) {
            let command = line.split(' ').next().unwrap();
            let options: Vec<&str> = line.split(' ').filter(|word| word.starts_with("--")).collect();
            let help = stdout(&run([command, "--help"]).output().unwrap());
            has(&help, &options);
        }
    }
}

/// Every metric of the rules is one that the manager's page or `--otlp` has.
#[test]
fn alarms_are_about_metrics_that_exist() {
    let rules = fs::read_to_string(root().join("packaging/prometheus/takt.rules.yml")).unwrap();
    let page = fs::read_to_string(root().join("crates/takt-manager/src/live/metrics.rs")).unwrap();
    let telemetry = fs::read_to_string(root().join("crates/takt/src/commands/otlp.rs")).unwrap();
    let names: Vec<&str> = rules
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("takt_"))
        .collect();
    assert!(names.len() >= 9);
    for name in names {
        let plain = name.strip_suffix("_total").unwrap_or(name);
        let of_otlp = format!("\"{}\"", plain.replace('_', "."));
        let known = page.contains(&format!("\"{name}\"")) || telemetry.contains(&of_otlp);
        assert!(known, "{name} is no metric");
    }
    // Commands in the rules are ones that the program takes.
    for line in rules.lines().filter(|line| line.contains("takt events")) {
        for option in line.split(['"', ' ', ';', '\'']).filter(|word| word.starts_with("--")) {
            has(&stdout(&run(["events", "--help"]).output().unwrap()), &[option]);
        }
    }
    let there = Command::new("promtool").arg("--version").output().is_ok();
    if !there {
        takt_witness::skip!("there is no promtool");
        return;
    }
    let checked = Command::new("promtool")
        .args(["check", "rules"])
        .arg(root().join("packaging/prometheus/takt.rules.yml"))
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", stderr(&checked));
}
