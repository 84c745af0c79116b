//! The loop on the simulated kernel, with time and events made up.

use std::io;
use std::sync::{Arc, Mutex};

use takt_ros::{Event, Kind};

use super::*;
use crate::enact::Mode;
use crate::system::sim::Sim;

const MS: u64 = 1_000_000;

/// Events that are handed out when their time has come.
#[derive(Debug, Default)]
struct Script {
    events: std::collections::VecDeque<Event>,
    now_ns: u64,
    ended: bool,
    broken: bool,
}

impl Source for Script {
    type Error = io::Error;

    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> Result<usize, io::Error> {
        if self.broken {
            return Err(io::Error::other("torn"));
        }
        let mut count = 0;
        while self.events.front().is_some_and(|event| event.at_ns <= self.now_ns) {
            if let Some(event) = self.events.pop_front() {
                sink(event);
                count += 1;
            }
        }
        Ok(count)
    }

    fn ended(&self) -> bool {
        self.ended && self.events.is_empty()
    }
}

/// The driver introduces itself: one node with a timer every 50 ms.
pub(super) fn driver(from_ns: u64, push: &mut dyn FnMut(u64, u64, Kind)) {
    push(from_ns, 0, Kind::ThreadName { name: "driver".into() });
    push(from_ns, 0, Kind::NodeInit { node: 1, name: "driver".into(), namespace: "/".into() });
    push(from_ns, 0, Kind::TimerInit { timer: 2, period_ns: 50_000_000 });
    push(from_ns, 0, Kind::TimerCallback { timer: 2, callback: 3 });
    push(from_ns, 0, Kind::TimerNode { timer: 2, node: 1 });
}

/// The activation that ends next never gave the CPU up by itself.
pub(super) const PREEMPTED: Kind =
    Kind::OffCpu { switches: Some(0), ready_ns: None, yields: Some(0), early_ns: 0 };

/// One node with a timer every 50 ms, whose callback takes 2 ms, in process 10.
fn script(from_ns: u64, seconds: u64) -> Script {
    let (pid, tid) = (10, 10);
    let mut events = Vec::new();
    let mut cpu_ns = 0;
    let mut push = |at_ns: u64, cpu_ns: u64, kind: Kind| {
        events.push(Event { at_ns, cpu_ns: Some(cpu_ns), pid, tid, kind });
    };
    driver(from_ns, &mut push);
    for step in 1..seconds * 20 {
        let at_ns = from_ns + step * 50 * MS;
        push(at_ns - 1000, cpu_ns, Kind::ExecutorWait { timeout_ns: -1 });
        push(at_ns, cpu_ns, Kind::CallbackStart { callback: 3, intra_process: false });
        cpu_ns += 2 * MS;
        push(at_ns + 3 * MS, cpu_ns, PREEMPTED);
        push(at_ns + 3 * MS, cpu_ns, Kind::CallbackEnd { callback: 3 });
    }
    Script { events: events.into(), now_ns: 0, ..Script::default() }
}

fn goals(goal_ms: u64) -> Goals {
    let text = format!(
        "degradation_order = [\"beat\"]\n[[chain]]\nname = \"beat\"\nstart = \"/driver\"\nend = \"/driver\"\ngoal = \"{goal_ms} ms\"\n"
    );
    Goals::parse(&text, "test").unwrap()
}

/// Assumptions that reach no further than the margins.
fn narrow(mut goals: Goals) -> Goals {
    goals.options.widen_assumptions = false;
    goals
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Setup {
    live: Live<Script, Sim>,
    text: Written,
    json: Written,
    from_ns: u64,
    before: Sim,
    _folder: tempfile::TempDir,
}

fn setup(goal_ms: u64, observe: bool) -> Setup {
    setup_of(goal_ms, observe, |from_ns| script(from_ns, 40))
}

fn setup_of(goal_ms: u64, observe: bool, script: impl FnOnce(u64) -> Script) -> Setup {
    setup_with(goals(goal_ms), observe, script)
}

fn setup_with(goals: Goals, observe: bool, script: impl FnOnce(u64) -> Script) -> Setup {
    let folder = tempfile::tempdir().unwrap();
    let (text, json) = (Written::default(), Written::default());
    let mut sim = Sim::new(2);
    sim.spawn(10, 10, "driver");
    sim.spawn(10, 11, "dds");
    sim.spawn(20, 20, "sink");
    let mut options = Options {
        observe,
        log: Log::new(Some(Box::new(text.clone())), Some(Box::new(json.clone()))),
        ..Options::default()
    };
    options.model.keep_ended = observe;
    options.enact.state = folder.path().join("state.json");
    options.enact.modes = vec![Mode::AdmissionOff];
    let platform = Platform::new(vec![1], 0, 0.9);
    let from_ns = monotonic_ns();
    let live = Live::with_kernel(goals, platform, script(from_ns), options, sim.clone()).unwrap();
    Setup { live, text, json, from_ns, before: sim, _folder: folder }
}

impl Setup {
    /// Time passes, in steps of half a second.
    fn pass(&mut self, from_s: f64, to_s: f64) {
        let mut at_s = from_s;
        while at_s <= to_s {
            let now_ns = self.from_ns + (at_s * 1e9) as u64;
            self.live.source.now_ns = now_ns;
            self.live.step(now_ns).unwrap();
            at_s += 0.5;
        }
    }

    fn kernel(&self) -> &Sim {
        self.live.enactor.as_ref().unwrap().kernel()
    }
}

#[test]
fn a_chain_is_found_planned_enacted_measured_and_restored() {
    let mut setup = setup(100, false);
    let board = setup.live.board();
    setup.pass(0.0, 5.5);
    assert_eq!(board.read().plans, 0);
    assert_eq!(board.read().chains[0].state, "learning");
    setup.pass(6.0, 13.0);
    let status = board.read();
    assert_eq!((status.plans, status.chains[0].state.as_str()), (2, "guaranteed"));
    assert!(status.holds && status.differences.is_empty(), "{status:?}");
    assert_eq!(status.reservations.len(), 1);
    assert!(setup.kernel().attributes(10).unwrap().is_deadline());
    // The middleware's thread, of which nothing was measured, keeps what it had.
    assert_eq!(setup.kernel().affinity(11).unwrap(), CpuSet::from_cpus(0..2).unwrap());
    let chain = &status.chains[0];
    assert!(chain.completions > 100 && chain.violations == 0, "{chain:?}");
    assert!(chain.worst_ns <= chain.bound_ns.unwrap());
    assert!(status.text().contains("beat"));
    let finished = setup.live.finish().unwrap();
    assert!(finished.restored.unwrap().is_complete());
    assert_eq!(finished.plan.unwrap().reservations.len(), 1);
    let log = setup.text.text();
    assert!(log.contains("chain beat: guaranteed") && log.contains("enacted: "), "{log}");
    for line in setup.json.text().lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(value["kind"].is_string() && value["at_ns"].is_u64(), "{line}");
    }
}

#[test]
fn observing_changes_nothing() {
    let mut setup = setup(100, true);
    setup.pass(0.0, 13.0);
    let status = setup.live.status(setup.from_ns);
    assert!(status.observes && status.mode.is_none() && status.reservations.is_empty());
    assert_eq!(status.chains[0].state, "keepable");
    let standing = status.chains[0].assumptions.iter().find(|one| one.assumption == Assumption::Reserved);
    assert_eq!(standing.unwrap().holds, Some(false), "nothing is reserved, and nothing is guaranteed");
    assert_eq!(setup.live.plan().unwrap().reservations.len(), 1);
    assert!(setup.live.finish().unwrap().restored.is_none());
    assert_eq!(setup.before.changes, 0);
}

#[test]
fn who_only_looks_keeps_the_plan_for_what_has_ended() {
    let mut setup = setup(100, true);
    setup.pass(0.0, 7.0);
    let plans = setup.live.plans();
    assert_eq!((plans, setup.live.status(0).chains[0].state.as_str()), (1, "keepable"));
    setup.live.source.events.clear();
    for tid in [10, 11] {
        let (at_ns, kind) = (setup.from_ns + 7_100 * MS, Kind::ThreadEnd);
        setup.live.source.events.push_back(Event { at_ns, cpu_ns: None, pid: 10, tid, kind });
    }
    setup.pass(7.5, 20.0);
    let status = setup.live.status(0);
    assert_eq!((setup.live.plans(), status.chains[0].state.as_str()), (plans, "ended"));
    assert!(status.chains[0].why.starts_with("ended after 7."), "{}", status.chains[0].why);
    // All ended together: that is the end of the run, and not of the chain.
    setup.live.source.ended = true;
    let finished = setup.live.finish().unwrap();
    assert_eq!(finished.status.chains[0].state, "keepable");
}

#[test]
fn the_last_decisions_are_there_for_screens() {
    let mut setup = setup(100, false);
    let board = setup.live.board();
    setup.pass(0.0, 7.0);
    let recent = board.read().recent.clone();
    assert!(recent.len() > 3 && recent.len() <= 40, "{recent:?}");
    let log = setup.text.text();
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines.ends_with(&recent.iter().map(String::as_str).collect::<Vec<_>>()), "{recent:?} in {log}");
    // Not a second time in the log for programs.
    assert!(setup.json.text().lines().all(|line| !line.contains("\"recent\"")));
}

#[test]
fn what_was_said_is_not_said_again() {
    let mut setup = setup(100, false);
    setup.pass(0.0, 31.0);
    let log = setup.text.text();
    assert_eq!(log.matches("beat: to be kept").count(), 1, "{log}");
    assert_eq!(log.matches("chain beat: ").count(), 1, "{log}");
}

#[test]
fn a_process_that_dies_is_given_up_and_the_end_is_in_order() {
    let mut setup = setup(100, false);
    setup.pass(0.0, 7.0);
    setup.live.enactor.as_mut().unwrap().kernel_mut().threads.retain(|_, thread| thread.pid != 10);
    setup.live.source.events.clear();
    let (at_ns, kind) = (setup.from_ns + 7_100 * MS, Kind::ThreadEnd);
    setup.live.source.events.push_back(Event { at_ns, cpu_ns: None, pid: 10, tid: 10, kind });
    setup.pass(7.5, 20.0);
    let status = setup.live.status(setup.from_ns + 20_000 * MS);
    assert_eq!(status.reservations.len(), 0);
    assert_ne!(status.chains[0].state, "guaranteed");
    assert!(setup.live.finish().unwrap().restored.unwrap().is_complete());
}

#[path = "delivery_tests.rs"]
mod delivery;
#[path = "held_tests.rs"]
mod held;
#[path = "online_tests.rs"]
mod online;
#[path = "refuted_tests.rs"]
mod refuted;
#[path = "ros_llama_tests.rs"]
mod ros_llama;
#[path = "slack_tests.rs"]
mod slack;

#[path = "jitter_tests.rs"]
mod jitter;

#[test]
fn a_broken_source_is_an_error_and_everything_is_restored() {
    let mut setup = setup(100, false);
    setup.pass(0.0, 7.0);
    setup.live.source.broken = true;
    let error = setup.live.step(setup.from_ns + 8_000 * MS).unwrap_err();
    assert!(matches!(&error, Error::Source(_)), "{error}");
    let state = setup.live.enactor.as_ref().unwrap().state_file().to_owned();
    assert!(state.exists());
    drop(setup.live);
    assert!(!state.exists());
}

#[test]
fn a_source_that_ends_early_is_planned_for_once() {
    let mut setup = setup(100, true);
    setup.live.source.ended = true;
    setup.live.source.now_ns = u64::MAX;
    assert!(!setup.live.step(setup.from_ns + 39_000 * MS).unwrap());
    assert_eq!(setup.live.status(0).plans, 1);
}

#[path = "unknown_tests.rs"]
mod unknown;

#[path = "network_tests.rs"]
mod network;
#[path = "way_tests.rs"]
mod way;
