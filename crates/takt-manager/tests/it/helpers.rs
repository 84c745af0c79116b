//! A node as perception has them, with OpenMP's threads that compute for it and threads that carry
//! messages, by turns managed and not: none of them may be worse off under the manager.
//!
//! Others use this machine, too, and not always the same. So blocks with and without the manager
//! follow each other, each pair is one comparison in which half are expected on either side if the
//! manager changes nothing. Worse is what is worse in all of them, and clearly: by chance that is
//! one in 32 at most, and far less with the margin.
#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use takt_manager::enact::order::Held;
use takt_manager::enact::{Enactor, Error, Mode, Options, Target, Wanted};
use takt_manager::plan::Platform;
use takt_manager::system::{Kernel, Linux};
use takt_rt::clock::monotonic_ns;
use takt_rt::placement;

const MESSENGERS: usize = 3;
const MS: u64 = 1_000_000;
/// Frames in each block: a second.
const FRAMES: usize = 25;
/// Pairs of blocks.
const PAIRS: usize = 5;
/// One chunk of work of the ten that a frame has: some milliseconds for all of them.
const STEPS: &str = "2000000";

struct Node {
    child: Child,
    output: BufReader<ChildStdout>,
    threads: BTreeMap<String, Vec<u32>>,
}

/// Medians over a block.
#[derive(Debug, Clone, Copy)]
struct Block {
    latency_ms: f64,
    cpu_ms: f64,
    message_late_ms: f64,
}

impl Node {
    fn start(program: &Path) -> Self {
        let mut command = Command::new(program);
        command.arg(STEPS).stdout(Stdio::piped());
        // A nice value that this test was started with would be one that the node chose for itself.
        // It ends with this test, however that ends.
        // SAFETY: setpriority and prctl are async-signal-safe and have no memory effects.
        unsafe {
            command.pre_exec(|| {
                libc::setpriority(libc::PRIO_PROCESS, 0, 0);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut node = Self { child, output, threads: BTreeMap::new() };
        while !node.threads.contains_key("ready")
            || node.threads.get("messenger").map_or(0, Vec::len) < MESSENGERS
        {
            let line = node.line();
            if let Some((name, tid)) = line.strip_prefix("thread ").and_then(|rest| rest.split_once(' ')) {
                node.threads.entry(name.into()).or_default().push(tid.parse().unwrap());
            }
        }
        node
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the node ended");
        line.trim().to_owned()
    }

    /// The next block of frames, with `each` after every one.
    fn block(&mut self, mut each: impl FnMut()) -> Block {
        let mut columns: [Vec<f64>; 3] = Default::default();
        while columns[0].len() < FRAMES {
            let line = self.line();
            let Some(rest) = line.strip_prefix("frame ") else { continue };
            let figures: Vec<f64> = rest.split(' ').map(|text| text.parse::<f64>().unwrap() / 1e6).collect();
            for (column, at) in columns.iter_mut().zip([0, 1, 3]) {
                column.push(figures[at]);
            }
            each();
        }
        let [latency_ms, cpu_ms, message_late_ms] = columns.map(|mut column| {
            column.sort_by(f64::total_cmp);
            column[FRAMES / 2]
        });
        Block { latency_ms, cpu_ms, message_late_ms }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not in CI: half a minute, and on a machine that others load the pairs report little.
#[test]
#[ignore = "a bench: `cargo test -p takt-manager --test it helpers:: -- --ignored --nocapture`"]
fn campaign_a_perception_node_is_no_worse_off_than_without_the_manager() {
    let lock = File::create(std::env::temp_dir().join("takt-enact-test.lock")).unwrap();
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
    let online = placement::online().unwrap();
    let cores: Vec<usize> = online.iter().collect();
    let [first, .., last] = cores.as_slice() else {
        takt_witness::skip!("needs two CPUs");
        return;
    };
    let platform = Platform::new(vec![*first, *last], *first, 0.9);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("perception");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/perception.c");
    let built = Command::new("cc").args(["-O2", "-fopenmp", "-o"]).arg(&program).arg(source).output();
    if !built.as_ref().is_ok_and(|output| output.status.success()) {
        takt_witness::skip!("no C compiler with OpenMP: {built:?}");
        return;
    }
    let mut node = Node::start(&program);
    let (pid, executor) = (node.child.id(), node.threads["executor"][0]);
    let options = || Options {
        modes: vec![Mode::AdmissionOff],
        state: folder.path().join("state.json"),
        kernel_workers: false,
        kernel_threads: false,
        ..Options::default()
    };
    node.block(|| {});
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        let without = node.block(|| {});
        let mut enactor = match Enactor::new(Linux::new(), &platform, options()) {
            Ok(enactor) => enactor,
            Err(Error::NothingGranted { refusals }) => {
                takt_witness::skip!("{refusals:?}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let held = Held { budget_ns: 2 * MS, period_ns: 10 * MS, core: *last };
        let wanted = Wanted { pid, tid: executor, name: "executor".into(), held, patience_ns: 40 * MS };
        let target = Target {
            reservations: vec![wanted],
            best_effort: Vec::new(),
            processes: BTreeSet::from([pid]),
            alone: false,
        };
        let enacted = enactor.enact(&target).unwrap();
        assert!(enacted.holds(), "{:?}", enacted.differences);
        // A second to be known, then measured.
        let mut overruns = 0;
        node.block(|| drop(enactor.watch(monotonic_ns())));
        let with = node.block(|| overruns += enactor.watch(monotonic_ns()).len());
        let kernel = Linux::new();
        for tid in node.threads.get("pool").into_iter().flatten() {
            assert_eq!(kernel.attributes(*tid).unwrap().policy, 0, "what computes is not raised");
            assert_eq!(kernel.affinity(*tid).unwrap(), online, "and keeps its CPUs");
        }
        let raised = |tid: &&u32| kernel.attributes(**tid).unwrap().policy == libc::SCHED_RR as u32;
        let raised = node.threads["messenger"].iter().filter(raised).count();
        assert!(enactor.restore().unwrap().is_complete());
        eprintln!("without {without:.2?}, with {with:.2?}, {raised} messengers raised, {overruns} overruns");
        pairs.push((without, with));
    }
    type Figure = fn(&Block) -> f64;
    // Less than this is nothing that anybody would notice: a tenth, and for messages a tenth of a
    // millisecond.
    let figures: [(&str, Figure, f64); 3] = [
        ("latency of frames", |block| block.latency_ms, 0.1),
        ("CPU time for the same work", |block| block.cpu_ms, 0.1),
        ("lateness of messengers", |block| block.message_late_ms, 0.1),
    ];
    for (what, of, margin_ms) in figures {
        let worse = |(without, with): &&(Block, Block)| of(with) > 1.1 * of(without) + margin_ms;
        let worse = pairs.iter().filter(worse).count();
        assert!(worse < PAIRS, "{what}: worse in {worse} of {PAIRS} pairs: {pairs:.2?}");
    }
}
