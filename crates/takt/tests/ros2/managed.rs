//! A run of the test system under `takt manage`: what the manager said, and when, beside what the
//! nodes wrote down.
//!
//! Everything is written into a folder while it happens and read from there, so that a run that was
//! broken off can be judged, too.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use takt_rt::clock::monotonic_ns;
use takt_rt::procfs::CpuTime;

use super::super::takt::{Beside, root, takt, wait_for};
use super::{Chain, Truth, domain};

/// The kernel counts stolen time in ticks of a hundredth of a second, and it is looked at every so
/// often.
const LOOK: Duration = Duration::from_millis(100);
const TICK_NS: u64 = 10_000_000;
/// Between two lines that report how far it is.
const REPORT_EVERY: Duration = Duration::from_secs(30);

/// Results of a run.
pub struct Managed {
    /// Output with `--json`; null if the run was broken off.
    pub all: Value,
    pub log: Vec<Value>,
    pub truth: Truth,
    /// Time that the hypervisor has taken from all CPUs together since the start, where it grew.
    stolen: Vec<(u64, u64)>,
}

/// A state of a chain, and the time of its report.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    pub at_ns: u64,
    pub state: String,
    pub bound_ms: Option<f64>,
}

/// Latencies above a bound that was called guaranteed from when their instance began until it
/// ended.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Broken {
    /// Instances throughout which the chain was called guaranteed.
    pub guaranteed: usize,
    /// Of these with a latency above the bound.
    pub above: usize,
    /// By how much at most.
    pub worst_excess_ms: f64,
    /// Above the bound by less than the hypervisor took from this machine meanwhile, of which no
    /// scheduler knows. Not among `above`.
    pub stolen: usize,
    /// The greatest latency as a share of its bound.
    pub closest: f64,
}

/// The goals of the test system; with `TAKT_TRUTH_OPTIONS`, lines of `[options]`, a copy in
/// `folder` that has these.
fn goals(folder: &Path) -> PathBuf {
    let shipped = root().join("ros2/takt_truth/goals.toml");
    let Ok(options) = std::env::var("TAKT_TRUTH_OPTIONS") else { return shipped };
    let copy = folder.join("goals.toml");
    let text = fs::read_to_string(shipped).unwrap();
    fs::write(&copy, format!("{text}\n[options]\n{options}\n")).unwrap();
    copy
}

/// Runs the test system in `folder`, under `takt manage` with `more` arguments. With
/// `TAKT_TRUTH_ATTACH=1` the manager comes 20 s after the system's start, by `--pid`.
pub fn run(
    environment: &[(String, String)],
    more: &[&str],
    scale: &str,
    seconds: u32,
    folder: &Path,
    report: bool,
) {
    fs::create_dir_all(folder).unwrap();
    // What an earlier run of another load left is no part of this one.
    let mut command: Command = takt(["manage", "--fresh", "--json", "--log"]);
    command.arg(folder.join("log.json")).args(more).arg(goals(folder));
    let late = std::env::var_os("TAKT_TRUTH_ATTACH").is_some_and(|value| value == "1");
    let arguments = |seconds: u32| {
        let truth = folder.join("truth").display().to_string();
        let fixed =
            ["takt_truth_run", "--scale", scale, "--domain", &domain(), "--seconds"].map(String::from);
        fixed.into_iter().chain([seconds.to_string(), truth]).collect::<Vec<_>>()
    };
    // A thread for each goal of an action is a publisher that no plan knows: every chain would be
    // learnt anew all the time.
    let threads = if more.contains(&"--observe") { "1" } else { "0" };
    let variables = || {
        let own = [("TAKT_TRUTH_GOAL_THREADS", threads)].into_iter();
        environment.iter().map(|(key, value)| (key.as_str(), value.as_str())).chain(own)
    };
    let mut system = late.then(|| {
        let arguments = arguments(seconds + 30);
        let mut system = Command::new(&arguments[0]);
        system.args(&arguments[1..]).env_clear().envs(variables());
        let system = Beside::start(system);
        std::thread::sleep(Duration::from_secs(20));
        system
    });
    match &system {
        Some(_) => {
            command.args(["--seconds", &seconds.to_string()]);
            for pid in Truth::pids(&folder.join("truth")) {
                command.args(["--pid", &pid.to_string()]);
            }
        }
        None => {
            command.arg("--").args(arguments(seconds));
        }
    }
    command.env_clear().envs(variables());
    command.stdout(Stdio::from(File::create(folder.join("manage.json")).unwrap()));
    command.stderr(Stdio::from(File::create(folder.join("manage.err")).unwrap()));
    let mut stolen = File::create(folder.join("stolen")).unwrap();
    let (first_ns, mut last_ns, mut reported) = (CpuTime::read().steal_ns(), 0, Instant::now());
    let mut child = command.spawn().unwrap();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let so_far_ns = CpuTime::read().steal_ns().saturating_sub(first_ns);
        if so_far_ns > last_ns {
            last_ns = so_far_ns;
            writeln!(stolen, "{} {so_far_ns}", monotonic_ns()).unwrap();
        }
        if report && reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            println!("{}", Managed::read(folder).progress());
        }
        std::thread::sleep(LOOK);
    };
    // 1: a goal was missed, which is for the checks to judge.
    let message = fs::read_to_string(folder.join("manage.err")).unwrap_or_default();
    assert!(matches!(status.code(), Some(0 | 1)), "{status}: {message}");
    if let Some(system) = &mut system {
        assert!(system.end().success(), "{}", system.output("stderr"));
    }
}

/// Runs the test system in `folder` under a manager, kills the manager `seconds` after its first
/// reservations, and lets the system run for as long again. Returns when it was killed, or `None`
/// where nothing was reserved.
pub fn run_and_kill(
    environment: &[(String, String)],
    scale: &str,
    seconds: u32,
    folder: &Path,
) -> Option<u64> {
    fs::create_dir_all(folder).unwrap();
    let mut command: Command = takt(["manage", "--fresh", "--log"]);
    command.arg(folder.join("log.json")).arg("--state").arg(folder.join("state")).arg(goals(folder));
    // Ten seconds to be learnt in, and to end in.
    command.args(["--", "takt_truth_run", "--seconds", &(2 * seconds + 20).to_string(), "--scale", scale]);
    command.args(["--domain", &domain()]).arg(folder.join("truth")).env_clear();
    command.envs(environment.iter().map(|(key, value)| (key, value))).env("TAKT_TRUTH_GOAL_THREADS", "0");
    let mut manager = Beside::start(command);
    let reserved = wait_for("reservations", || {
        let reserved = Managed::read(folder).reserved();
        (reserved || !manager.runs()).then_some(reserved)
    });
    if !reserved {
        return None;
    }
    std::thread::sleep(Duration::from_secs(seconds.into()));
    let system: Vec<u32> = children_of(manager.pid());
    let killed_ns = monotonic_ns();
    manager.signal(rustix::process::Signal::KILL);
    manager.end();
    let pids = Truth::pids(&folder.join("truth"));
    wait_for("the watchdog", || (!pids.iter().any(|pid| is_real_time(*pid))).then_some(()));
    wait_for("the system's end", || {
        system.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
    Some(killed_ns)
}

/// Whether a thread of a process is not scheduled as usual: the test system asks for nothing else.
fn is_real_time(pid: u32) -> bool {
    takt_rt::procfs::threads(pid).any(|tid| scheduling(pid, tid).is_some_and(|[policy, ..]| policy != "0"))
}

/// The scheduler's fields of a thread's `stat`: policy and real-time priority (the 41st and the
/// 40th), nice value.
pub fn scheduling(pid: u32, tid: u32) -> Option<[String; 3]> {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some([38, 37, 16].map(|field| fields[field].to_owned()))
}

fn children_of(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let children = threads.filter_map(|it| fs::read_to_string(it.unwrap().path().join("children")).ok());
    children
        .flat_map(|it| it.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

impl Managed {
    /// Made up.
    pub fn of(all: Value, log: Vec<Value>, truth: Truth) -> Self {
        Self { all, log, truth, stolen: Vec::new() }
    }

    pub fn read(folder: &Path) -> Self {
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let log_text = text("log.json");
        let log = log_text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let pair = |line: &str| {
            let (at_ns, stolen_ns) = line.split_once(' ')?;
            Some((at_ns.parse().ok()?, stolen_ns.parse().ok()?))
        };
        Self {
            all: serde_json::from_str(&text("manage.json")).unwrap_or_default(),
            log,
            truth: Truth::read(&folder.join("truth")),
            stolen: text("stolen").lines().filter_map(pair).collect(),
        }
    }

    /// The last state that was reported: at the end, or until it was broken off.
    pub fn status(&self) -> &Value {
        match &self.all["status"] {
            Value::Null => self
                .log
                .iter()
                .rev()
                .find(|it| it["kind"] == "status")
                .map_or(&Value::Null, |it| &it["status"]),
            status => status,
        }
    }

    fn progress(&self) -> String {
        let status = self.status();
        let mut states: BTreeMap<&str, usize> = BTreeMap::new();
        for chain in status["chains"].as_array().into_iter().flatten() {
            *states.entry(chain["state"].as_str().unwrap_or("")).or_default() += 1;
        }
        let states: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
        let (mut guaranteed, mut above) = (0, 0);
        for chain in super::CHAINS {
            let one = self.broken(chain);
            (guaranteed, above) = (guaranteed + one.guaranteed, above + one.above);
        }
        format!(
            "{:4.0} s: {}; {above} of {guaranteed} latencies above a guaranteed bound",
            status["running_ns"].as_f64().unwrap_or(0.0) / 1e9,
            states.join(", ")
        )
    }

    pub fn chain(&self, name: &str) -> &Value {
        let chains = self.status()["chains"].as_array().into_iter().flatten();
        chains.into_iter().find(|chain| chain["name"] == name).unwrap_or(&Value::Null)
    }

    pub fn run_of(&self, name: &str) -> &Value {
        &self.chain(name)["run"]
    }

    pub fn callback(&self, name: &str) -> Option<&Value> {
        self.all["model"]["callbacks"].as_array().unwrap().iter().find(|callback| callback["name"] == name)
    }

    fn plans<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = (&'a Value, &'a Value)> {
        let plans = self.log.iter().filter(|record| record["kind"] == "plan");
        plans.filter_map(move |record| {
            let chains = record["chains"].as_array()?;
            Some((record, chains.iter().find(|it| it["name"] == name)?))
        })
    }

    /// When the first plan was made that knew the chain's path: it is measured from then on.
    pub fn measured_from_ns(&self, name: &str) -> Option<u64> {
        let mut knew = self
            .plans(name)
            .filter(|(_, chain)| chain["path_names"].as_array().is_some_and(|it| !it.is_empty()));
        knew.next().and_then(|(record, _)| record["at_ns"].as_u64())
    }

    /// When the first reservations of a plan were there, on the clock of the nodes.
    pub fn reserved_from_ns(&self) -> Option<u64> {
        let has =
            |record: &&Value| record["enacted"]["reserved"].as_array().is_some_and(|all| !all.is_empty());
        self.log.iter().find(has).and_then(|record| record["at_ns"].as_u64())
    }

    /// The path of a chain in the last plan.
    pub fn path<'a>(&'a self, name: &'a str) -> Vec<&'a str> {
        let last = self.plans(name).next_back();
        last.into_iter()
            .flat_map(|(_, chain)| chain["path_names"].as_array())
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    /// States reported for a chain, each with its time and bound. A record's own stamp is that of
    /// the decision's beginning; it was said when it was written, which the wall clock beside it
    /// reports.
    pub fn message(&self, name: &str) -> Vec<Word> {
        let wall_ns = |record: &Value| record["wall_s"].as_f64().unwrap_or(0.0) * 1e9;
        let at_ns = |record: &Value| record["at_ns"].as_f64().unwrap_or(0.0);
        let offset_ns = self.log.iter().map(|it| wall_ns(it) - at_ns(it)).fold(f64::INFINITY, f64::min);
        let ms = |value: &Value| value.as_u64().map(|ns| ns as f64 / 1e6);
        let mut message: Vec<Word> = Vec::new();
        let mut planned_ms = None;
        for record in &self.log {
            let (state, bound_ms) = match record["kind"].as_str() {
                // Nothing is said of the chain with it; what is said afterwards is of this plan.
                Some("plan") => {
                    let chains = record["chains"].as_array().into_iter().flatten();
                    if let Some(chain) = chains.into_iter().find(|it| it["name"] == name) {
                        planned_ms = ms(&chain["bound_ns"]);
                    }
                    continue;
                }
                // Everything has been given back: nothing is said any more.
                Some("note") if record["words"].as_str().is_some_and(|it| it.contains(" restored, ")) => {
                    let ended =
                        Word { at_ns: at_ns(record) as u64, state: "ended".to_owned(), bound_ms: None };
                    message.push(ended);
                    continue;
                }
                // A word given or taken between two plans.
                Some("chain") if record["chain"] == name => (&record["state"], planned_ms),
                Some("status") => {
                    let chains = record["status"]["chains"].as_array().into_iter().flatten();
                    let Some(chain) = chains.into_iter().find(|it| it["name"] == name) else { continue };
                    (&chain["state"], ms(&chain["bound_ns"]))
                }
                _ => continue,
            };
            let at_ns = (wall_ns(record) - offset_ns) as u64;
            message.push(Word { at_ns, state: state.as_str().unwrap_or("").to_owned(), bound_ms });
        }
        message
    }

    /// Whether threads ever had reservations.
    pub fn reserved(&self) -> bool {
        self.reserved_from_ns().is_some()
    }

    /// Seconds for which a chain was called guaranteed, and seconds with any state.
    pub fn guaranteed_s(&self, name: &str) -> (f64, f64) {
        let message = self.message(name);
        let end_ns = self.log.iter().filter_map(|it| it["at_ns"].as_u64()).max().unwrap_or(0);
        let (mut guaranteed_ns, mut all_ns) = (0, 0);
        for (i, word) in message.iter().enumerate() {
            let until_ns = message.get(i + 1).map_or(end_ns, |next| next.at_ns);
            let lasted_ns = until_ns.saturating_sub(word.at_ns);
            all_ns += if word.state == "ended" { 0 } else { lasted_ns };
            guaranteed_ns += if word.state == "guaranteed" { lasted_ns } else { 0 };
        }
        (guaranteed_ns as f64 / 1e9, all_ns as f64 / 1e9)
    }

    pub fn broken(&self, chain: &Chain) -> Broken {
        broken(&self.message(chain.name), &self.truth, chain.path, &self.stolen)
    }
}

/// Upper bound of the time that the hypervisor took between two moments.
fn stolen_between_ns(stolen: &[(u64, u64)], from_ns: u64, to_ns: u64) -> u64 {
    // Seen after it happened.
    let slack_ns = 2 * LOOK.as_nanos() as u64;
    let before = stolen.iter().rev().find(|(at_ns, _)| *at_ns < from_ns).map_or(0, |(_, ns)| *ns);
    let after = stolen.iter().rev().find(|(at_ns, _)| *at_ns <= to_ns + slack_ns).map_or(0, |(_, ns)| *ns);
    match after.saturating_sub(before) {
        0 => 0,
        // Counted in whole ticks.
        ns => ns + TICK_NS,
    }
}

/// Holds what the nodes measured against what was said while it went on. The bound is the greater
/// one where it changed.
pub fn broken(message: &[Word], truth: &Truth, path: &[&str], stolen: &[(u64, u64)]) -> Broken {
    let mut result = Broken::default();
    for end in truth.completions(path) {
        let Some(first) = message.iter().rposition(|word| word.at_ns <= end.began_ns) else { continue };
        let meanwhile = message[first..].iter().take_while(|word| word.at_ns <= end.ended_ns);
        let mut bound_ms: f64 = 0.0;
        if !meanwhile.into_iter().all(|word| {
            bound_ms = bound_ms.max(word.bound_ms.unwrap_or(f64::INFINITY));
            word.state == "guaranteed"
        }) {
            continue;
        }
        result.guaranteed += 1;
        result.closest = result.closest.max(end.latency_ms() / bound_ms);
        let excess_ms = end.latency_ms() - bound_ms;
        if excess_ms <= 0.0 {
            continue;
        }
        if excess_ms <= stolen_between_ns(stolen, end.began_ns, end.ended_ns) as f64 / 1e6 {
            result.stolen += 1;
        } else {
            result.above += 1;
            result.worst_excess_ms = result.worst_excess_ms.max(excess_ms);
        }
    }
    result
}
