//! `robot = "program"`: a command as a user writes it, and a truth that its own loop wrote down.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use rustix::process::Signal;
use serde_json::Value;
use takt_rundir::RunDir;

use crate::takt::{
    Beside, alone, folders, has, json, missing, read_json, refusal, root, stderr, stdout, takt, wait_for,
};

/// A loop that writes down when each of its cycles was due, began and ended.
const LOOP: &str = r#"
import ctypes, signal, sys, time
name, period_ns, work_ns, long_ns, every, log = sys.argv[1], *map(int, sys.argv[2:6]), sys.argv[6]
# PR_SET_NAME
ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
rows, end = [], False
def stop(*_):
    global end
    end = True
signal.signal(signal.SIGINT, stop)
due = time.monotonic_ns() + period_ns
print("ready", flush=True)
while not end:
    time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
    begin = time.monotonic_ns()
    busy = long_ns if len(rows) % every == every - 1 else work_ns
    while time.monotonic_ns() - begin < busy:
        pass
    rows.append((due, begin, time.monotonic_ns(), busy))
    due += period_ns
with open(log, "w") as out:
    for row in rows:
        print(*row, file=out)
"#;

/// A folder with a program and a robot's file.
struct Place(tempfile::TempDir);

impl Place {
    fn new(file: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::write(place.path("loop.py"), LOOP).unwrap();
        place.write(file);
        place
    }

    fn write(&self, file: &str) {
        fs::write(self.path("program.toml"), format!("robot = \"program\"\n{file}")).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, seconds: &str) -> Output {
        let mut command = takt(["run", "--view", "none", "--json", "--seconds", seconds]);
        command.arg(self.path("program.toml")).arg("--runs").arg(self.path("runs")).output().unwrap()
    }
}

/// Whether kernel events cannot be had here, without which no loop can be followed.
fn unseen(output: &Output) -> bool {
    let message = stderr(output);
    missing("the loops of a program cannot be followed here", !message.contains("cannot be followed"))
}

fn python(name: &str, arguments: &str) -> String {
    format!(
        "command = [\"python3\", \"loop.py\", \"{name}\", {arguments}, \"log.txt\"]\nready = {{ line = \"ready\" }}\n"
    )
}

/// The loop's own log: due, begin, end, and intended length of its work.
fn truth(place: &Place) -> Vec<[u64; 4]> {
    let text = fs::read_to_string(place.path("log.txt")).unwrap();
    let row = |line: &str| {
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        <[u64; 4]>::try_from(numbers).unwrap()
    };
    text.lines().map(row).collect()
}

const MS: u64 = 1_000_000;

#[test]
fn rows_are_those_that_the_program_wrote_down_and_planted_delays_are_late() {
    let _machine = alone();
    // 5 ms of work in every 20th cycle of 10 ms.
    let file = python("control", "\"10000000\", \"300000\", \"5000000\", \"20\"")
        + "[[loop]]\nname = \"control\"\nperiod = \"10 ms\"\ndeadline = \"4 ms\"\npolicy = \"fifo:60\"\n";
    let place = Place::new(&file);
    let output = place.run("2");
    if unseen(&output) {
        return;
    }
    let message = json(&output);
    assert_eq!(message["loops"][0]["source"], "seen");
    let dir = PathBuf::from(message["run_dir"].as_str().unwrap());
    let header = read_json(&dir.join("run.json"));
    assert_eq!(header["loops"][0]["source"], "seen");
    assert_eq!(header["loops"][0]["policy"], "fifo:60");
    assert_eq!(header["program"]["exit_status"], 0, "{}", header["program"]);
    let measure = &header["measures"][0];
    assert_eq!((&measure["name"], &measure["deadline_ns"]), (&"response-control".into(), &4_000_000.into()));
    let window = measure["window_ns"].as_array().unwrap();
    let [from_ns, to_ns] = [&window[0], &window[1]].map(|bound| bound.as_u64().unwrap());
    assert!((1_900 * MS..4_000 * MS).contains(&(to_ns - from_ns)), "{window:?}");
    let names = ["planned_ns", "wake_ns", "end_ns"];
    let columns = RunDir::open(&dir).unwrap().columns("loop-control", &names).unwrap();
    let rows: Vec<[u64; 3]> =
        (0..columns[0].len()).map(|at| [columns[0][at], columns[1][at], columns[2][at]]).collect();
    let truth = truth(&place);
    let (mut planted, mut compared) = (0, 0);
    for &[planned_ns, wake_ns, end_ns] in rows.iter().filter(|row| (from_ns..to_ns).contains(&row[0])) {
        let within = |row: &&[u64; 4]| wake_ns <= row[1] && row[2] <= end_ns;
        let own: Vec<&[u64; 4]> = truth.iter().filter(within).collect();
        assert!(!own.is_empty(), "no cycle of the program lies in {planned_ns} {wake_ns} {end_ns}");
        // More than one: the loop was late and caught up without a sleep.
        if let [[due_ns, begin_ns, ..]] = own[..] {
            assert!((due_ns - 1000..=*begin_ns).contains(&planned_ns), "{due_ns} {planned_ns} {begin_ns}");
            compared += 1;
        }
        if own.iter().any(|row| row[3] == 5 * MS) {
            planted += 1;
            assert!(end_ns - planned_ns > 4 * MS, "a planted delay is not late: {planned_ns} {end_ns}");
        }
    }
    assert!(compared > 100 && planted >= 8, "{compared} cycles compared, {planted} delays");
    // A cycle of the program without a row is a release that counts as one that never ran.
    let has_row = |row: &&[u64; 4]| rows.iter().any(|seen| seen[1] <= row[1] && row[2] <= seen[2]);
    let in_window = truth.iter().filter(|row| (from_ns + MS..to_ns - MS).contains(&row[0]));
    let without = in_window.filter(|row| !has_row(row)).count() as u64;
    assert!(without <= measure["never"].as_u64().unwrap(), "{without} cycles have no row: {measure}");
    let response = &message["measures"][0];
    let misses = response["misses"].as_u64().unwrap();
    let late = rows.iter().filter(|row| (from_ns..to_ns).contains(&row[0]) && row[2] - row[0] > 4 * MS);
    assert_eq!(misses, late.count() as u64 + measure["never"].as_u64().unwrap());
    assert!(misses >= planted, "{misses} misses, {planted} planted");
    assert_eq!(message["verdict"], "FAIL", "{}", message["sentence"]);
    // The watch names the cause: its own work.
    let causes = read_json(&dir.join("trace.json"))["causes"].clone();
    let first = causes.as_array().and_then(|rows| rows.first()).map(|row| row["cause"].clone());
    let first = first.as_ref().and_then(Value::as_str).unwrap_or_default();
    assert!(first.starts_with("execution"), "{causes}");
}

#[test]
fn a_killed_takt_leaves_no_process() {
    let _machine = alone();
    // A number in the command line that no other process has.
    let mark = format!("36{}", std::process::id());
    let script = format!(
        "sleep {mark}1 & (setsid sleep {mark}2 &) ; (trap '' INT TERM HUP; sleep {mark}3) & echo ready; exec sleep {mark}4"
    );
    let file = format!(
        "command = [\"sh\", \"-c\", \"{script}\"]\nready = {{ line = \"ready\" }}\n[[loop]]\nname = \"sleep\"\n\
         process = \"nobody\"\nhz = 100\n"
    );
    let place = Place::new(&file);
    let left = || -> Vec<String> {
        let all = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            (line.starts_with("sleep ") && line.contains(&mark)).then_some(line)
        });
        all.collect()
    };
    let mut command = takt(["run", "--view", "none", "--seconds", "60"]);
    command.arg(place.path("program.toml")).arg("--runs").arg(place.path("runs"));
    let mut beside = Beside::start(command);
    wait_for("four processes", || (left().len() == 4).then_some(()));
    beside.signal(Signal::KILL);
    beside.end();
    wait_for("the end of all", || left().is_empty().then_some(()));
}

#[test]
fn what_cannot_be_run_is_refused_in_a_sentence_and_leaves_nothing() {
    let place = Place::new("");
    let one = "[[loop]]\nname = \"control\"\nhz = 100\n";
    let sh = |script: &str, more: &str| format!("command = [\"sh\", \"-c\", \"{script}\"]\n{more}\n{one}");
    let quick = "ready.within = \"300 ms\"";
    for (file, parts) in [
        (format!("command = [\"./controller\"]\n{one}"), vec!["controller", "does not exist"]),
        (sh("echo no arm found >&2; exit 3", ""), vec!["ended with status 3", "no arm found"]),
        (sh("kill -9 $$", ""), vec!["ended by signal 9"]),
        (
            sh("sleep 60", "ready = { line = \"up\", within = \"300 ms\" }"),
            vec!["not ready after 0.3 s", "\"up\"", "printed nothing", "flush"],
        ),
        (sh("sleep 60", "ready = { port = 1, within = \"300 ms\" }"), vec!["port 1"]),
        (sh("sleep 60", "ready = { file = \"up\", within = \"300 ms\" }"), vec!["written", "/up"]),
        (sh("sleep 60; true", quick), vec!["\"control\"", "Its threads are", "\"sh\"", "\"sleep\""]),
        (sh("sleep 60", "seconds = 0"), vec!["seconds"]),
    ] {
        place.write(&file);
        let message = refusal(&place.run("1"));
        has(&message, &parts);
        assert_eq!(message.lines().filter(|line| line.starts_with("takt: ")).count(), 1, "{message}");
        assert!(folders(&place.path("runs")).is_empty(), "something was left of {file}");
    }
}

#[test]
#[ignore = "takes 40 s"]
fn what_happens_to_the_program_within_the_window_is_said_and_what_was_measured_stays() {
    let _machine = alone();
    let place = Place::new("");
    // It lives for seconds more than Takt needs until the window begins, also on a busy machine.
    let script = |then: &str| {
        format!(
            "import ctypes, os, threading, time\nprctl = ctypes.CDLL(None).prctl\nbegin = time.monotonic()\n\
             def run():\n    prctl(15, b'control', 0, 0, 0)\n    while True:\n        time.sleep(0.01)\n        \
             if time.monotonic() - begin > 6:\n            {then}\n\
             threading.Thread(target=run, daemon=True).start()\ntime.sleep(60)\n"
        )
    };
    let file = "command = [\"python3\", \"own.py\"]\n[[loop]]\nname = \"control\"\nhz = 100\n";
    for (then, failures, problems) in [
        ("print('no torque', flush=True); os._exit(7)", "the command ended with status 7", ""),
        ("os.kill(os.getpid(), 9)", "the command ended by signal 9", ""),
        ("return", "its thread", ""),
        ("prctl(15, b'other', 0, 0, 0)", "", "is now named \\\"other\\\""),
    ] {
        place.write(file);
        fs::write(place.path("own.py"), script(then)).unwrap();
        let output = place.run("6");
        if unseen(&output) {
            return;
        }
        let message = json(&output);
        let dir = PathBuf::from(message["run_dir"].as_str().unwrap());
        let header = read_json(&dir.join("run.json"));
        has(&header["failures"].to_string(), &[failures]);
        has(&header["problems"].to_string(), &[problems]);
        assert_eq!(failures.is_empty(), header["failures"].is_null(), "{}", header["failures"]);
        let cycles = message["measures"][0]["us"]["count"].as_u64().unwrap();
        assert!(cycles > 20, "{then}: {cycles}");
        assert!(dir.join("hashes.json").exists(), "it is sealed");
        if !failures.is_empty() {
            assert_eq!(message["verdict"], "FAIL", "{}", message["sentence"]);
        }
        assert!(
            fs::read_to_string(dir.join("output.txt")).unwrap().contains("torque")
                || !then.contains("torque")
        );
    }
}

#[test]
fn threads_of_one_name_are_recognised_by_their_period_and_another_period_is_a_doubt() {
    let _machine = alone();
    let text = "import threading, time\ndef run(s):\n    while True:\n        time.sleep(s)\n\
                for s in (0.02, 0.05):\n    threading.Thread(target=run, args=(s,), daemon=True).start()\ntime.sleep(60)\n";
    let of = |period: &str| {
        format!("command = [\"python3\", \"own.py\"]\n[[loop]]\nname = \"python3\"\nperiod = \"{period}\"\n")
    };
    // Twenty percent off: the same loop, and not what the file says.
    let place = Place::new(&of("24 ms"));
    fs::write(place.path("own.py"), text).unwrap();
    let output = place.run("1");
    if unseen(&output) {
        return;
    }
    let message = json(&output);
    let seen_us = message["loops"][0]["seen_period_us"].as_f64().unwrap();
    assert!((20_000.0..22_000.0).contains(&seen_us), "{seen_us}");
    let header = read_json(&Path::new(message["run_dir"].as_str().unwrap()).join("run.json"));
    has(&header["doubts"].to_string(), &["loop \\\"python3\\\" ran every 20.", "24.000 ms"]);
    assert_ne!(message["verdict"], "PASS");
    place.write(&of("100 ms"));
    let message = refusal(&place.run("1"));
    has(
        &message,
        &["3 threads have that name", "none of them", "100ms", "every 20.", "every 50.", "`process`"],
    );
}

#[test]
fn what_the_kernel_refuses_labels_the_run_or_ends_it_where_that_is_asked() {
    let _machine = alone();
    // SCHED_DEADLINE on a part of the CPUs is refused to everybody; and that is what runs.
    let file = python("control", "\"10000000\", \"300000\", \"300000\", \"20\"")
        + "[[loop]]\nname = \"control\"\nperiod = \"10 ms\"\npolicy = \"deadline:1ms/10ms/10ms\"\ncpus = \"0\"\n";
    let place = Place::new(&file);
    let output = place.run("1");
    if unseen(&output) {
        return;
    }
    let message = json(&output);
    let refused = message["not_granted"].to_string();
    if std::thread::available_parallelism().unwrap().get() > 1 {
        has(&refused, &["control: policy: requested deadline:1ms/10ms/10ms", "Fix"]);
        let header = read_json(&Path::new(message["run_dir"].as_str().unwrap()).join("run.json"));
        assert_eq!(header["loops"][0]["cpus"], "0");
        place.write(&format!("strict = true\n{file}"));
        has(&refusal(&place.run("1")), &["control", "policy"]);
    }
}

#[test]
#[ignore = "takes 10 s"]
fn a_campaign_over_placeholders_is_reported_compared_and_gated_as_any() {
    let _machine = alone();
    let file = python("control", "\"{period_ns}\", \"300000\", \"300000\", \"20\"")
        + "[values]\nperiod_ns = 10000000\n[[loop]]\nname = \"control\"\nperiod = \"{period_ns} ns\"\n";
    let place = Place::new(&file);
    let campaign = "name = \"rates\"\nabout = \"two rates\"\nconfig = \"program.toml\"\nseconds = 1\nrepetitions = 1\n\
                    [[factor]]\nname = \"period_ns\"\nvalues = [10000000, 20000000]\n\
                    [[factor]]\nname = \"policy\"\nvalues = [\"other:5\"]\n";
    fs::write(place.path("campaign.toml"), campaign).unwrap();
    let runs = place.path("runs");
    let mut command = takt(["campaign", "run", "--json", "--runs"]);
    let output = command.arg(&runs).arg(place.path("campaign.toml")).output().unwrap();
    if unseen(&output) {
        return;
    }
    let table: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    let dirs: Vec<PathBuf> = all_runs(&runs);
    assert_eq!(dirs.len(), 2, "{table}");
    let mut cycles: Vec<f64> = Vec::new();
    for dir in &dirs {
        let header = read_json(&dir.join("run.json"));
        cycles.push(header["loops"][0]["seen_period_us"].as_f64().unwrap());
        assert_eq!(header["loops"][0]["policy"], "other:5");
    }
    cycles.sort_by(f64::total_cmp);
    assert!(
        (9_900.0..11_000.0).contains(&cycles[0]) && (19_900.0..22_000.0).contains(&cycles[1]),
        "{cycles:?}"
    );
    for words in [vec!["report"], vec!["compare", "--json"], vec!["history"]] {
        let output = takt(&words).args(&dirs).current_dir(place.path("")).output().unwrap();
        assert!(
            matches!(output.status.code(), Some(0 | 1)),
            "{words:?}: {}{}",
            stdout(&output),
            stderr(&output)
        );
    }
    let mut command = takt(["gate", "--baseline"]);
    let output = command.arg(&dirs[0]).arg(&dirs[1]).output().unwrap();
    let decision = stdout(&output);
    assert!(decision.contains("response-control"), "{:?} {decision} {}", output.status, stderr(&output));
    let store = place.path("store");
    let output = takt(["store", "put"]).arg(&store).arg(&dirs[0]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// Sealed runs below a folder.
fn all_runs(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in folders(below) {
        if folder.join("run.json").exists() { found.push(folder) } else { found.extend(all_runs(&folder)) }
    }
    found
}

#[test]
fn a_command_that_goes_into_the_background_is_followed_and_ends_with_the_run() {
    let _machine = alone();
    let mark = format!("37{}", std::process::id());
    let file = format!(
        "command = [\"sh\", \"-c\", \"setsid python3 own.py {mark} >/dev/null 2>&1 & exit 0\"]\n\
         [[loop]]\nname = \"python3\"\nhz = 50\n"
    );
    let place = Place::new(&file);
    fs::write(place.path("own.py"), "import time\nwhile True:\n    time.sleep(0.02)\n").unwrap();
    let output = place.run("1");
    if unseen(&output) {
        return;
    }
    let message = json(&output);
    assert!(message["measures"][0]["us"]["count"].as_u64().unwrap() > 20, "{message}");
    has(&stderr(&output), &["left processes behind"]);
    let left = fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&mark))
    });
    assert!(!left, "it still runs");
}

#[test]
fn the_shipped_file_is_checked() {
    let output = takt(["check"]).arg(root().join("robots/program.toml")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    has(&stdout(&output), &["python3"]);
}
