//! The table of opens in docs/hostile-files.md, row by row: whatever another user can plant at such
//! a name, or do to such a file while it is read, neither holds the program up, nor ends it, nor
//! takes the machine's memory.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use takt_witness::plant::Plant;

use crate::takt::{root, takt as run};

/// Test of a row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tested {
    /// By [`FILES`].
    Here,
    /// In a file of the repository, by the test with that name.
    In(&'static str, &'static str),
    /// Not by a planted file, and why.
    Not(&'static str),
}

/// Rows of the table by what they begin with.
const ROWS: [(&str, Tested); 14] = [
    (
        "probe files",
        Tested::In(
            "crates/takt-ros/tests/it/hostile.rs",
            "what_observed_processes_plant_breaks_nothing_but_their_own_files",
        ),
    ),
    (
        "session folders",
        Tested::In("crates/takt-ros/tests/it/hostile.rs", "a_name_that_was_planted_holds_no_session_up"),
    ),
    (
        "libraries of other processes",
        Tested::In(
            "crates/takt-ros/src/uprobes/library.rs",
            "what_others_call_a_library_takes_no_memory_and_no_time",
        ),
    ),
    ("memory of other processes", Tested::Not("`/proc/PID/mem` is no file that somebody replaces")),
    ("`/proc/PID/maps`", Tested::Not("of the kernel, and bounded in takt_files")),
    ("other files of `/proc`", Tested::Not("of the kernel")),
    ("rings of perf", Tested::Not("of the kernel")),
    (
        "memory shared with the perception worker",
        Tested::In(
            "crates/takt-perception/src/process/memory.rs",
            "both_sides_see_the_same_bytes_and_nobody_can_cut_them_off",
        ),
    ),
    (
        "memory of declared loops",
        Tested::In(
            "crates/takt-watch/src/declared/tests.rs",
            "what_could_be_cut_or_is_something_else_is_refused",
        ),
    ),
    ("recordings", Tested::Here),
    (
        "event files",
        Tested::In("crates/takt-service/src/store.rs", "what_somebody_planted_is_neither_read_nor_written"),
    ),
    ("run folders", Tested::Here),
    (
        "locks",
        Tested::In(
            "crates/takt-files/tests/it/planted.rs",
            "every_way_to_open_survives_whatever_was_planted",
        ),
    ),
    ("sockets", Tested::Not("no file")),
];

/// Files that others make, and a command that reads each. The row of the table, the file in the
/// workspace, the command.
const FILES: &str = "
recordings | perf.data | trace --file perf.data --thread cyclictest
recordings | trace.dat | trace --file trace.dat --thread cyclictest
recordings | threads/data | trace --file threads --thread cyclictest
recordings | threads/data.0 | trace --file threads --thread cyclictest
recordings | bus.pcap | ethercat analyse bus.pcap
recordings | bus.pcap.gz | ethercat analyse bus.pcap.gz
recordings | log.csv | ethercat analyse bus.pcap --clock-offset-ns 0 --run log.csv
recordings | pause/ust/uid/0/64-bit/metadata | manage goals.toml --trace pause
recordings | pause/ust/uid/0/64-bit/ch_0 | manage goals.toml --trace pause
recordings | goals.toml | manage goals.toml --trace pause
recordings | camera.mcap | check camera.toml
recordings | bag/bag_0.mcap | check bag.toml
recordings | bag/metadata.yaml | check bag.toml
recordings | network.onnx | check network.toml
recordings | robot.toml | check robot.toml
recordings | robot.toml | run robot.toml --seconds 0.2 --view none --runs out
run folders | a/run.json | report a --out out
run folders | a/summary.json | report a --out out
run folders | a/hashes.json | report a --out out
run folders | a/samples/SAMPLE | report a --out out
run folders | a/samples/SAMPLE | export a --format csv --out out
run folders | a/samples/SAMPLE | compare a b
run folders | st/runs/SEAL | store verify st
";

fn data(path: &str) -> PathBuf {
    root().join("crates").join(path)
}

/// The only name in a folder with that ending.
fn only(folder: &Path, end: &str) -> String {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(end)).collect();
    names.sort();
    names.swap_remove(0)
}

/// A robot of one camera that replays `recording`.
fn camera(recording: &str) -> String {
    let text = fs::read_to_string(data("takt-link-camera/tests/cases/offset.toml")).unwrap();
    let text = text.replace("\"depth_plus20ms.mcap\"", &format!("{recording:?}"));
    text.replace("topic = \"/cam0\"", "topic = \"/cam0\"\npairing_ms = 25.0")
}

/// Files that the commands read.
fn workspace() -> tempfile::TempDir {
    let workspace = tempfile::tempdir().unwrap();
    let path = |name: &str| workspace.path().join(name);
    let traces = data("takt-trace/tests/data");
    fs::copy(traces.join("cyclictest.perf.data"), path("perf.data")).unwrap();
    fs::copy(traces.join("cyclictest.trace6.dat"), path("trace.dat")).unwrap();
    fs::create_dir(path("threads")).unwrap();
    for entry in fs::read_dir(traces.join("threads")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let out = path("threads").join(name.trim_end_matches(".zst"));
        let mut unpacked = Command::new("zstd");
        unpacked.args(["-dqf", "-o"]).arg(&out).arg(entry.path());
        if !name.ends_with(".zst") || !unpacked.status().is_ok_and(|status| status.success()) {
            fs::copy(entry.path(), &out).unwrap();
        }
    }
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1];
    fs::write(path("bus.pcap"), words.map(u32::to_le_bytes).concat()).unwrap();
    assert!(Command::new("gzip").arg("-k").arg(path("bus.pcap")).status().unwrap().success());
    fs::write(path("log.csv"), "planned_ns,wake_ns,sent_ns,taken_ns\n1,2,3,4\n").unwrap();
    let archive = data("takt-manager/tests/data/recordings/pause.tar.gz");
    let unpacked = Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(workspace.path()).status();
    assert!(unpacked.unwrap().success());
    fs::copy(root().join("goals/turtlebot.toml"), path("goals.toml")).unwrap();
    let recording = data("takt-link-camera/tests/cases/depth_plus20ms.mcap");
    fs::copy(&recording, path("camera.mcap")).unwrap();
    fs::create_dir(path("bag")).unwrap();
    fs::copy(&recording, path("bag/bag_0.mcap")).unwrap();
    fs::write(
        path("bag/metadata.yaml"),
        "  storage_identifier: mcap\n  relative_file_paths:\n    - bag_0.mcap\n",
    )
    .unwrap();
    fs::write(path("camera.toml"), camera("camera.mcap")).unwrap();
    fs::write(path("bag.toml"), camera("bag")).unwrap();
    let network = "[perception.detector]\nmodel = \"network.onnx\"";
    fs::write(
        path("network.toml"),
        camera("camera.mcap").replace("[perception.detector]\nenabled = false", network),
    )
    .unwrap();
    fs::copy(data("takt-perception/tests/data/end2end_1x300x6.onnx"), path("network.onnx")).unwrap();
    let task = "robot = 'cyclic'\nrate_hz = 100\npolicy = 'other:0'\nlock_memory = 'off'\n";
    fs::write(path("robot.toml"), task).unwrap();
    for name in ["a", "b"] {
        let mut command = run(["run", "robot.toml", "--seconds", "0.2", "--view", "none", "--run-dir", name]);
        assert!(
            command.current_dir(workspace.path()).output().unwrap().status.code().is_some_and(|it| it < 2)
        );
    }
    let mut command = run(["store", "put", "st", "a"]);
    assert!(command.current_dir(workspace.path()).output().unwrap().status.success());
    workspace
}

/// End of a command, its output, and the most memory that it had.
struct Ended {
    code: Option<i32>,
    message: String,
    /// Whether it printed anything.
    printed: bool,
    most_mib: i64,
}

/// Runs a command to its end; `None` where it does not come to one.
fn ended(mut command: Command, out: &Path) -> Option<Ended> {
    let file = fs::File::create(out).unwrap();
    let printed = out.with_extension("printed");
    command.stdout(fs::File::create(&printed).unwrap());
    #[allow(clippy::zombie_processes, reason = "wait4 below takes it, and its memory with it")]
    let child = command.stderr(file).spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    let mut status = 0;
    // SAFETY: all zeros is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: of our own child, into memory that lives as long as the call.
        let waited = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
        if waited == pid {
            break;
        }
        if Instant::now() > until {
            // SAFETY: of our own child, which nobody has waited for.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            // SAFETY: as above.
            unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    let message = String::from_utf8_lossy(&fs::read(out).unwrap()).into_owned();
    let printed = fs::metadata(printed).unwrap().len() > 0;
    Some(Ended { code, message, printed, most_mib: usage.ru_maxrss / 1024 })
}

/// More than any of these commands has of a good file of a few hundred kilobytes.
const MAX_MIB: i64 = 1024;

/// Faults in the handling of each plant at `file` by `command`.
fn wrong(workspace: &Path, file: &str, command: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let path = workspace.join(file);
    let good = fs::read(&path).unwrap();
    for plant in Plant::ALL {
        let planted = match plant.at(&path, &good) {
            Ok(planted) => planted,
            Err(error) => {
                takt_witness::skip!("in part: no {plant:?}: {error}");
                continue;
            }
        };
        let mut taken = run(command.split(' '));
        taken.current_dir(workspace);
        let what = format!("{command}, {plant:?} at {file}");
        match ended(taken, &workspace.join("stderr")) {
            None => wrong.push(format!("{what}: does not end")),
            Some(Ended { code, message, printed, most_mib }) => {
                let ends = code.is_some_and(|code| code <= 3) && !message.contains("panicked");
                // Whoever reads it must say so, unless it was good.
                let is_answered = plant.may_be_good() || code != Some(0) || printed || !message.is_empty();
                if !ends || !is_answered || message.len() > 4000 || most_mib > MAX_MIB {
                    wrong.push(format!("{what}: exit status {code:?}, {most_mib} MiB: {message}"));
                }
            }
        }
        drop(planted);
        let _ = fs::remove_dir_all(workspace.join("out"));
        let _ = fs::remove_file(workspace.join("out"));
    }
    fs::write(&path, good).unwrap();
    wrong
}

#[test]
fn nothing_that_is_planted_holds_up_ends_or_fills_whoever_reads_it() {
    let lines: Vec<[&str; 3]> = FILES
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.split(" | ").collect::<Vec<_>>().try_into().unwrap())
        .collect();
    let left = Mutex::new(lines);
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // A workspace of its own: what is planted is planted for one command at a time.
                let workspace = workspace();
                let sample = only(&workspace.path().join("a/samples"), ".parquet");
                let seal = only(&workspace.path().join("st/runs"), "");
                loop {
                    let Some([_, file, command]) = left.lock().unwrap().pop() else { return };
                    let file = file.replace("SAMPLE", &sample).replace("SEAL", &seal);
                    let wrong = wrong(workspace.path(), &file, command);
                    found.lock().unwrap().extend(wrong);
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_row_of_the_table_of_opens_is_tested() {
    let text = fs::read_to_string(root().join("docs/hostile-files.md")).unwrap();
    let begin = text.find("| what | who can plant or change it |").unwrap();
    let table = text[begin..].lines().skip(2).map(str::trim).take_while(|line| line.starts_with('|'));
    let rows: Vec<&str> = table.map(|line| line.trim_start_matches('|').trim()).collect();
    assert_eq!(rows.len(), ROWS.len(), "{rows:#?}");
    for row in rows {
        let known: Vec<_> = ROWS.iter().filter(|(begin, _)| row.starts_with(begin)).collect();
        assert_eq!(known.len(), 1, "{row}");
        match known[0] {
            (begin, Tested::Here) => {
                assert!(FILES.lines().any(|line| line.starts_with(begin)), "{row}");
            }
            (_, Tested::In(file, test)) => {
                let source = fs::read_to_string(root().join(file)).unwrap();
                assert!(source.contains(&format!("fn {test}(")), "{file} has no test {test}");
            }
            (_, Tested::Not(why)) => assert!(!why.is_empty()),
        }
    }
}
