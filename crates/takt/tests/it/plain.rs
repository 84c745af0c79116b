//! The cell as SentryRT-1's paper has it: what its runs ask of the kernel, read by this program
//! from `/proc` and by its own system calls while the run goes on. Each help is switched on once,
//! so that the reading is seen to find it.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use takt::{Beside, alone, has, missing, read_json, refusal, root, takt as run, wait_for};

/// Numbers of sched(7).
const OTHER: u32 = 0;
const RR: u32 = 2;
const DEADLINE: u32 = 6;
/// `SCHED_FLAG_RECLAIM`.
const RECLAIM: u64 = 2;
const AWAKE: &str = "/dev/cpu_dma_latency";

/// The shipped configuration of the paper with two of its cameras and without networks, which ask
/// nothing of the kernel, changed by `change`; as a file in `folder`.
fn paper(folder: &Path, name: &str, change: impl FnOnce(&mut toml::Table)) -> PathBuf {
    let text = fs::read_to_string(root().join("robots/sentryrt1.toml")).unwrap();
    let mut cell: toml::Table = toml::from_str(&text).unwrap();
    cell.remove("scale");
    cell["cameras"].as_array_mut().unwrap().truncate(2);
    for network in ["detector", "segmenter"] {
        let table = cell["perception"][network].as_table_mut().unwrap();
        table.insert("enabled".to_owned(), false.into());
    }
    change(&mut cell);
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, toml::to_string(&cell).unwrap()).unwrap();
    path
}

fn set(cell: &mut toml::Table, key: &str, value: impl Into<toml::Value>) {
    cell["tasks"].as_table_mut().unwrap().insert(key.to_owned(), value.into());
}

/// A run under way.
struct Cell {
    beside: Beside,
    dir: PathBuf,
}

impl Cell {
    fn start(folder: &Path, name: &str, change: impl FnOnce(&mut toml::Table)) -> Self {
        let dir = folder.join(format!("run-{name}"));
        let file = paper(folder, name, change);
        let mut command = run(["run"]);
        command.arg(file).args(["--view", "none", "--seconds", "600", "--run-dir"]).arg(&dir);
        Self { beside: Beside::start(command), dir }
    }

    /// The threads of these names, once all are there.
    fn threads(&mut self, names: &[&str]) -> BTreeMap<String, i32> {
        wait_for(&format!("{names:?}"), || {
            assert!(self.beside.runs(), "{}", self.beside.output("stderr"));
            let tasks = fs::read_dir(format!("/proc/{}/task", self.beside.pid())).unwrap().flatten();
            let all: BTreeMap<String, i32> = tasks
                .filter_map(|task| {
                    let name = fs::read_to_string(task.path().join("comm")).ok()?;
                    Some((name.trim().to_owned(), task.file_name().to_str()?.parse().ok()?))
                })
                .collect();
            // The window has begun: everything has what it was given.
            let begun = self
                .run_json()
                .is_some_and(|run| run["facts"]["window_ns"][0].as_u64().is_some_and(|ns| ns < u64::MAX));
            (begun && names.iter().all(|name| all.contains_key(*name))).then_some(all)
        })
    }

    fn run_json(&self) -> Option<Value> {
        serde_json::from_str(&fs::read_to_string(self.dir.join("run.json")).ok()?).ok()
    }

    /// Memory that is locked, KiB.
    fn locked_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.beside.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    fn holds_cpus_awake(&self) -> bool {
        let files = fs::read_dir(format!("/proc/{}/fd", self.beside.pid())).unwrap().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|target| target == Path::new(AWAKE))
    }

    /// Ends it in order; what it was labelled with.
    fn end(mut self) -> Value {
        self.beside.signal(rustix::process::Signal::INT);
        self.beside.end();
        read_json(&self.dir.join("run.json"))
    }
}

fn slack_ns(tid: i32) -> u64 {
    fs::read_to_string(format!("/proc/{tid}/timerslack_ns")).unwrap().trim().parse().unwrap()
}

/// Policy and flags, by `sched_getattr`.
fn attributes(tid: i32) -> (u32, u64) {
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>() as u32;
    // SAFETY: the kernel writes at most `size` bytes into the structure of that size.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attributes, size, 0) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    (attributes.policy, attributes.flags)
}

const TASKS: [&str; 5] = ["ssm", "perception-0", "perception-1", "visualise-0", "visualise-1"];
const CRITICAL: [&str; 3] = ["ssm", "perception-0", "perception-1"];

/// Whether this user may have what the tests ask for.
fn is_root() -> bool {
    !missing("not root: no real-time policies", rustix::process::geteuid().is_root())
}

#[test]
fn the_papers_configuration_runs_without_help_and_each_help_is_seen_when_it_is_switched_on() {
    if !is_root() {
        return;
    }
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let untouched_ns = slack_ns(std::process::id() as i32);
    assert!(untouched_ns > 1, "this program's own slack is the kernel's: {untouched_ns}");

    let cfs = |cell: &mut toml::Table| set(cell, "policy", "CFS+CFS");
    let dl = |cell: &mut toml::Table| set(cell, "policy", "DL+RR");
    let mut plain = Cell::start(folder.path(), "cfs", cfs);
    let mut reserved = Cell::start(folder.path(), "dl", dl);
    let threads = plain.threads(&TASKS);
    for name in TASKS {
        assert_eq!(attributes(threads[name]).0, OTHER, "{name}");
        assert_eq!(slack_ns(threads[name]), untouched_ns, "{name}");
    }
    assert_eq!((plain.locked_kib(), plain.holds_cpus_awake()), (0, false));
    let threads = reserved.threads(&TASKS);
    let refused = reserved.run_json().unwrap()["not_granted"].to_string();
    for name in CRITICAL.iter().filter(|_| !refused.contains("SCHED_DEADLINE")) {
        let (policy, flags) = attributes(threads[*name]);
        assert_eq!((policy, flags & RECLAIM), (DEADLINE, 0), "{name}: flags {flags}");
    }
    for name in ["visualise-0", "visualise-1"] {
        assert_eq!(attributes(threads[name]).0, OTHER, "{name} is best effort in every configuration");
    }
    assert_eq!((reserved.locked_kib(), reserved.holds_cpus_awake()), (0, false));
    for cell in [plain, reserved] {
        let run = cell.end();
        assert!(run["figures"]["frames_visualised"].as_f64() > Some(0.0), "{:#}", run["figures"]);
    }

    let helped = |cell: &mut toml::Table| {
        set(cell, "timer_slack_ns", 1);
        set(cell, "lock_memory", true);
        set(cell, "hold_cpu_awake", true);
        set(cell, "reclaim", true);
        set(cell, "visualisation", false);
    };
    let mut plain = Cell::start(folder.path(), "cfs-helped", |cell| {
        cfs(cell);
        helped(cell);
    });
    let mut reserved = Cell::start(folder.path(), "dl-helped", |cell| {
        dl(cell);
        helped(cell);
    });
    let threads = plain.threads(&CRITICAL);
    for name in CRITICAL {
        assert_eq!(slack_ns(threads[name]), 1, "{name}");
    }
    assert!(threads.keys().all(|name| !name.starts_with("visualise")), "{threads:?}");
    assert!(plain.locked_kib() > 0);
    if Path::new(AWAKE).exists() {
        assert!(plain.holds_cpus_awake());
    }
    let threads = reserved.threads(&CRITICAL);
    let refused = reserved.run_json().unwrap()["not_granted"].to_string();
    for name in CRITICAL.iter().filter(|_| !refused.contains("SCHED_DEADLINE")) {
        let (policy, flags) = attributes(threads[*name]);
        assert_eq!((policy, flags & RECLAIM), (DEADLINE, RECLAIM), "{name}: flags {flags}");
    }
    assert!(plain.end()["figures"]["frames_visualised"].is_null());
    reserved.end();
}

#[test]
fn a_reserved_monitor_is_pinned_and_threads_share_one_reservation_or_the_run_says_why_not() {
    if !is_root() {
        return;
    }
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let two = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2);
    if !missing("one CPU alone: nothing to pin to", two) {
        let mut pinned = Cell::start(folder.path(), "pinned", |cell| {
            set(cell, "policy", "DL+RR");
            set(cell, "ssm_cpus", "1");
        });
        let tid = pinned.threads(&CRITICAL)["ssm"];
        let run = pinned.run_json().unwrap();
        let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
        match run["placed"]["way"].as_str() {
            Some(_) => assert_eq!((allowed, attributes(tid).0), ("1", DEADLINE), "{:#}", run["placed"]),
            None => has(&run["not_granted"].to_string(), &["ssm: cpus", "root domain"]),
        }
        pinned.end();
    }

    let mut grouped = Cell::start(folder.path(), "grouped", |cell| {
        set(cell, "policy", "RR+RR");
        let budget = [("runtime_ms", 90.0), ("period_ms", 100.0)];
        let budget: toml::Table = budget.into_iter().map(|(key, ms)| (key.to_owned(), ms.into())).collect();
        set(cell, "group", budget);
    });
    let threads = grouped.threads(&CRITICAL);
    let run = grouped.run_json().unwrap();
    let Some(path) = run["group"]["path"].as_str().map(PathBuf::from) else {
        has(&run["not_granted"].to_string(), &["tasks.group: no reservation for all threads together"]);
        grouped.end();
        takt_witness::skip!("no RT group scheduling here: {}", run["not_granted"]);
        return;
    };
    let value = |file: &str| fs::read_to_string(path.join(file)).unwrap().trim().to_owned();
    assert_eq!(
        (value("cpu.rt_runtime_us"), value("cpu.rt_period_us")),
        ("90000".to_owned(), "100000".to_owned())
    );
    let name = path.file_name().unwrap().to_str().unwrap();
    for thread in CRITICAL {
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", threads[thread])).unwrap();
        assert!(groups.contains(name), "{thread}: {groups}");
        assert_eq!(attributes(threads[thread]).0, RR, "{thread}");
    }
    // What is no task of the cell has a budget of its own.
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", grouped.beside.pid())).unwrap();
    assert!(!groups.contains(name), "{groups}");
    grouped.end();
    assert!(!path.exists(), "{} is left", path.display());
}

#[test]
fn cameras_of_another_kind_than_the_mode_says_do_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let start = |file: &Path| {
        let mut command = run(["run"]);
        refusal(
            &command
                .arg(file)
                .args(["--view", "none", "--seconds", "1"])
                .current_dir(folder.path())
                .output()
                .unwrap(),
        )
    };
    let physical = |cell: &mut toml::Table| drop(cell.insert("camera_mode".to_owned(), "physical".into()));
    let file = paper(folder.path(), "recorded", physical);
    has(
        &start(&file),
        &["camera_mode = \"physical\"", "camera \"west\" is recorded or rendered", "physical_cameras"],
    );
    // The cameras of a live cell take the recordings' place; without the library they do not open.
    let live = root().join("robots/live.toml");
    let file = paper(folder.path(), "live", |cell| {
        physical(cell);
        cell.insert("physical_cameras".to_owned(), live.to_str().unwrap().into());
    });
    has(&start(&file), &["ring-1"]);
    // And the other way round.
    let file = paper(folder.path(), "virtual", |cell| {
        let live: toml::Table = toml::from_str(&fs::read_to_string(&live).unwrap()).unwrap();
        cell["cameras"] = live["cameras"].clone();
    });
    has(&start(&file), &["camera_mode = \"virtual\"", "camera \"ring-1\" is on a cable"]);
}
