//! Counts the kernel requests of a poll: a manager that reads all of `/proc` forty times a second
//! keeps its goals, too, but takes a CPU for it.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

use takt_rt::placement::CpuSet;

use super::*;
use crate::system::sim::Sim;
use crate::system::{Attributes, GroupVersion, Usage};

const MS: u64 = 1_000_000;
/// Time between two looks: the manager's own.
const POLL_NS: u64 = 25 * MS;
const PROCESSES: u32 = 3;
const THREADS: u32 = 40;

/// A kernel that counts what it is asked.
#[derive(Debug)]
struct Counted {
    sim: Sim,
    asked: RefCell<BTreeMap<&'static str, usize>>,
}

impl Counted {
    fn asked(&self, what: &'static str) -> &Sim {
        *self.asked.borrow_mut().entry(what).or_default() += 1;
        &self.sim
    }

    fn count(&self, what: &str) -> usize {
        self.asked.borrow().get(what).copied().unwrap_or(0)
    }
}

impl Kernel for Counted {
    fn threads(&self, pid: u32) -> io::Result<Vec<u32>> {
        self.asked("threads").threads(pid)
    }
    fn processes(&self) -> io::Result<Vec<u32>> {
        self.asked("processes").processes()
    }
    fn kernel_threads(&self) -> io::Result<Vec<u32>> {
        self.asked("kernel_threads").kernel_threads()
    }
    fn start_ticks(&self, pid: u32, tid: u32) -> io::Result<u64> {
        self.asked("start_ticks").start_ticks(pid, tid)
    }
    fn thread_name(&self, pid: u32, tid: u32) -> io::Result<String> {
        self.asked("thread_name").thread_name(pid, tid)
    }
    fn run_ns(&self, pid: u32, tid: u32) -> io::Result<u64> {
        self.asked("run_ns").run_ns(pid, tid)
    }
    fn wants_to_run(&self, pid: u32, tid: u32) -> io::Result<bool> {
        self.asked("wants_to_run").wants_to_run(pid, tid)
    }
    fn last_cpu(&self, pid: u32, tid: u32) -> io::Result<usize> {
        self.asked("last_cpu").last_cpu(pid, tid)
    }
    fn attributes(&self, tid: u32) -> io::Result<Attributes> {
        self.asked("attributes").attributes(tid)
    }
    fn set_attributes(&mut self, tid: u32, attributes: &Attributes) -> io::Result<()> {
        self.asked("set_attributes");
        self.sim.set_attributes(tid, attributes)
    }
    fn affinity(&self, tid: u32) -> io::Result<CpuSet> {
        self.asked("affinity").affinity(tid)
    }
    fn set_affinity(&mut self, tid: u32, cpus: &CpuSet) -> io::Result<()> {
        self.asked("set_affinity");
        self.sim.set_affinity(tid, cpus)
    }
    fn online(&self) -> io::Result<CpuSet> {
        self.asked("files").online()
    }
    fn group(&self, pid: u32, tid: u32, version: GroupVersion) -> io::Result<Option<String>> {
        self.asked("files").group(pid, tid, version)
    }
    fn group_mount(&self, version: GroupVersion) -> Option<PathBuf> {
        self.asked("files").group_mount(version)
    }
    fn read(&self, path: &Path) -> io::Result<String> {
        self.asked("files").read(path)
    }
    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        self.asked("writes");
        self.sim.write(path, text)
    }
    fn make_dir(&mut self, path: &Path) -> io::Result<()> {
        self.sim.make_dir(path)
    }
    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        self.sim.remove_dir(path)
    }
    fn thread_count(&self, pid: u32) -> io::Result<usize> {
        self.asked("thread_count").thread_count(pid)
    }
    fn usage(&self, thread: &Identity) -> io::Result<Usage> {
        self.asked("usage").usage(thread)
    }
    fn is_alive(&self, thread: &Identity) -> bool {
        self.asked("usage").is_alive(thread)
    }
    fn fill(&mut self, cpu: usize, reservation: Option<&Attributes>) -> io::Result<()> {
        self.sim.fill(cpu, reservation)
    }
    fn scratch(&mut self) -> io::Result<(u32, u32)> {
        self.sim.scratch()
    }
    fn spin_scratch(&mut self, for_ns: u64) -> io::Result<Vec<(u64, u64)>> {
        self.sim.spin_scratch(for_ns)
    }
    fn tick_ns(&self) -> u64 {
        self.sim.tick_ns()
    }
    fn end_scratch(&mut self) {
        self.sim.end_scratch();
    }
}

/// Some processes of many threads, of which the first has a reservation and the second serves at
/// best effort.
fn managed(folder: &Path) -> (Enactor<Counted>, Target) {
    let mut sim = Sim::new(4);
    let pids = (1..=PROCESSES).map(|process| process * 1000);
    for pid in pids.clone() {
        (pid..pid + THREADS).for_each(|tid| sim.spawn(pid, tid, "worker"));
    }
    let held = |pid| Held { budget_ns: 2 * MS, period_ns: 20 * MS, core: 1 + (pid as usize / 1000) % 3 };
    let wanted =
        |pid| Wanted { pid, tid: pid, name: "executor".into(), held: held(pid), patience_ns: 50 * MS };
    let target = Target {
        reservations: pids.clone().map(wanted).collect(),
        best_effort: pids.clone().map(|pid| (pid, pid + 1)).collect(),
        processes: pids.collect(),
        alone: false,
    };
    let options =
        Options { modes: vec![Mode::AdmissionOff], state: folder.join("state.json"), ..Options::default() };
    let kernel = Counted { sim, asked: RefCell::default() };
    let mut enactor = Enactor::new(kernel, &Platform::new(vec![1, 2, 3], 0, 0.9), options).unwrap();
    assert!(enactor.enact(&target).unwrap().holds());
    (enactor, target)
}

/// Looks from `from_ns` on, for a second; returns when the next one is.
fn a_second(enactor: &mut Enactor<Counted>, from_ns: u64) -> u64 {
    let until_ns = from_ns + 1000 * MS;
    let mut now_ns = from_ns;
    while now_ns < until_ns {
        enactor.watch(now_ns);
        if (now_ns - from_ns).is_multiple_of(250 * MS) {
            assert_eq!(enactor.check(), []);
        }
        now_ns += POLL_NS;
    }
    now_ns
}

#[test]
fn a_second_of_looks_asks_for_each_helper_once_and_opens_no_file_of_known_threads() {
    let folder = tempfile::tempdir().unwrap();
    let (mut enactor, _) = managed(folder.path());
    let mut now_ns = a_second(&mut enactor, monotonic_ns());
    for _ in 0..3 {
        enactor.kernel.asked.borrow_mut().clear();
        now_ns = a_second(&mut enactor, now_ns);
        let kernel = &enactor.kernel;
        let (processes, reserved) = (PROCESSES as usize, PROCESSES as usize);
        let helpers = (PROCESSES * (THREADS - 2)) as usize;
        let looks = (1000 * MS / POLL_NS) as usize;
        assert_eq!(kernel.count("thread_count"), looks * processes, "new threads are found within a poll");
        // Twice its period, or the next poll after that.
        let budgets = reserved * looks.div_ceil(2);
        assert!(kernel.count("usage") <= helpers + budgets, "{:?}", kernel.asked);
        assert!(kernel.count("usage") >= helpers, "and demand is measured");
        let settings = helpers + 4 * reserved;
        // A thread that has spent its budget is asked for once more.
        assert!((settings..=settings + budgets).contains(&kernel.count("attributes")), "{:?}", kernel.asked);
        assert_eq!(kernel.count("affinity"), settings);
        assert!(kernel.count("threads") <= processes, "{:?}", kernel.asked);
        assert!(kernel.count("files") <= 1, "{:?}", kernel.asked);
        let forbidden = ["start_ticks", "thread_name", "run_ns", "last_cpu", "processes", "kernel_threads"];
        let changes = ["set_attributes", "set_affinity", "writes"];
        for what in forbidden.iter().chain(&changes) {
            assert_eq!(kernel.count(what), 0, "{what}: {:?}", kernel.asked);
        }
    }
}

#[test]
fn a_new_thread_is_found_within_a_poll_and_costs_what_it_costs_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (mut enactor, _) = managed(folder.path());
    let mut now_ns = a_second(&mut enactor, monotonic_ns());
    // The reserved thread makes one, which inherits its CPU.
    enactor.kernel.sim.fork(1000, 1500);
    assert_eq!(enactor.kernel.sim.affinity(1500).unwrap().len(), 1);
    enactor.kernel.asked.borrow_mut().clear();
    now_ns += POLL_NS;
    enactor.watch(now_ns);
    assert_eq!(enactor.kernel.sim.affinity(1500).unwrap().len(), 4, "it gets the CPUs of its process");
    let kernel = &enactor.kernel;
    assert!(kernel.count("set_affinity") == 1 && kernel.count("thread_name") <= 1, "{:?}", kernel.asked);
    assert!(kernel.count("start_ticks") <= 2, "its own and its process's: {:?}", kernel.asked);
    // One that ends and one that comes instead leave the number of threads as it was: found by the
    // look at all.
    enactor.kernel.sim.threads.remove(&1010);
    enactor.kernel.sim.fork(1000, 1501);
    a_second(&mut enactor, now_ns + POLL_NS);
    assert_eq!(enactor.kernel.sim.affinity(1501).unwrap().len(), 4);
}

#[test]
fn the_same_plan_again_opens_no_file_of_known_threads() {
    let folder = tempfile::tempdir().unwrap();
    let (mut enactor, target) = managed(folder.path());
    enactor.kernel.asked.borrow_mut().clear();
    let enacted = enactor.enact(&target).unwrap();
    assert!(enacted.holds() && enacted.reserved.len() == PROCESSES as usize, "{enacted:?}");
    let kernel = &enactor.kernel;
    for what in ["thread_name", "last_cpu", "kernel_threads", "set_attributes", "set_affinity", "writes"] {
        assert_eq!(kernel.count(what), 0, "{what}: {:?}", kernel.asked);
    }
    // Whom nobody asks for between plans: the manager's own main thread is the only one.
    assert!(kernel.count("start_ticks") <= 1, "{:?}", kernel.asked);
    let threads = (PROCESSES * THREADS) as usize;
    assert!(kernel.count("usage") <= 6 * threads, "{:?}", kernel.asked);
}
