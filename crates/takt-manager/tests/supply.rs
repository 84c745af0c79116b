//! Reservations held against the bound on their supply, on the running kernel: a thread that always wants to run says when it ran.
//!
//! A reservation outranks everything that Linux runs, so a busy machine does not matter; the computer below a virtual machine does. So each
//! measurement is repeated, and one that keeps the bound is enough: a bound that is wrong is broken every time, as the one of an
//! exact server is where budgets are enforced on ticks.
#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_manager::restore::Journal;
use takt_manager::system::{Attributes, Kernel, Linux};
use takt_reserve::Mode;
use takt_reserve::enforce::{self, Enforcement};
use takt_reserve::partition::{Partition, establish};
use takt_rt::placement::{self, CpuSet};

const MS: u64 = 1_000_000;
const TRIES: usize = 6;
/// Interrupts, and the kernel's own work to switch threads.
const NOISE_NS: u64 = 300_000;

/// Longest time in which a thread that always wants to run gets `work_ns`, with `neighbours` on its core (`takt_manager::analysis`,
/// supply; written anew here).
fn bound_ns(work_ns: u64, budget_ns: u64, period_ns: u64, tick_ns: u64, neighbours: u64) -> u64 {
    let periods = 1 + tick_ns / budget_ns + (work_ns + tick_ns).div_ceil(budget_ns);
    work_ns + tick_ns + (period_ns - budget_ns) * periods + tick_ns * neighbours
}

/// What a measurement showed.
#[derive(Debug, Clone, Copy)]
struct Seen {
    longest_run_ns: u64,
    blackout_ns: u64,
    /// By how much the worst window exceeds the bound; less than 0: it keeps it.
    excess_ns: i64,
}

/// Every window that begins with a blackout, and several amounts of work.
fn judge(runs: &[(u64, u64)], bound: impl Fn(u64) -> u64, budget_ns: u64) -> Seen {
    // The first begins with the reservation's, and the last ends with the measurement.
    let whole = &runs[1..runs.len() - 1];
    let longest_run_ns = whole.iter().map(|(from, to)| to - from).max().unwrap_or(0);
    let blackout_ns = runs.windows(2).map(|pair| pair[1].0 - pair[0].1).max().unwrap_or(0);
    let mut excess_ns = i64::MIN;
    for (index, (_, since)) in runs.iter().enumerate() {
        for work_ns in [1, budget_ns / 2, budget_ns, 2 * budget_ns, 4 * budget_ns] {
            let mut left = work_ns;
            for (from, to) in &runs[index + 1..] {
                if to - from >= left {
                    let took = from + left - since;
                    excess_ns = excess_ns.max(took as i64 - (bound(work_ns) + NOISE_NS) as i64);
                    break;
                }
                left -= to - from;
            }
        }
    }
    Seen { longest_run_ns, blackout_ns, excess_ns }
}

/// Another thread on the same core that always wants to run, too.
struct Neighbour {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Neighbour {
    fn start(kernel: &mut Linux, core: usize, reservation: &Attributes) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = std::sync::mpsc::channel();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            // SAFETY: gettid has no preconditions.
            tell.send(unsafe { libc::gettid() } as u32).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let tid = told.recv().unwrap();
        kernel.set_affinity(tid, &CpuSet::single(core).unwrap()).unwrap();
        kernel.set_attributes(tid, reservation).unwrap();
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

fn spin(kernel: &mut Linux, partition: &Partition, core: usize, reservation: &Attributes) -> Vec<(u64, u64)> {
    let (pid, tid) = kernel.scratch().unwrap();
    partition.reserve(kernel, pid, tid, core, reservation).unwrap();
    let runs = kernel.spin_scratch(700 * MS).unwrap();
    kernel.end_scratch();
    runs
}

#[test]
fn reservations_keep_the_bound_of_their_supply() {
    let lock = File::create(std::env::temp_dir().join("takt-enact-test.lock")).unwrap();
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
    let online = placement::online().unwrap();
    let Some(core) = online.iter().last().filter(|_| online.len() > 1) else {
        eprintln!("SKIPPED: needs two CPUs");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut kernel = Linux::new();
    let features = |kernel: &Linux| kernel.read(enforce::FEATURE_FILES[0].as_ref()).unwrap_or_default();
    let before = features(&kernel);
    for exact in [false, true] {
        let (mut journal, _) = Journal::begin(&mut kernel, &folder.path().join("state.json")).unwrap();
        let (partition, refused) =
            establish(&mut kernel, &mut journal, &[Mode::AdmissionOff], &[core]).unwrap();
        let Some(partition) = partition else {
            eprintln!("SKIPPED: {refused:?}");
            return;
        };
        let why = match exact {
            true => enforce::sharpen(&mut kernel, &mut journal).unwrap(),
            false => Some("as it was".to_owned()),
        };
        let enforced = enforce::measure(&mut kernel, &mut journal, &partition, core, why);
        eprintln!("budgets are enforced {}", enforced.by);
        for (budget_ns, period_ns) in [(MS / 2, 10 * MS), (2 * MS, 10 * MS), (5 * MS, 20 * MS)] {
            for neighbours in [0, 1] {
                keeps(&mut kernel, &partition, core, (budget_ns, period_ns), neighbours, &enforced);
            }
        }
        let restored = journal.undo(&mut kernel).unwrap();
        assert!(restored.is_complete(), "{restored}");
        assert_eq!(features(&kernel), before);
    }
}

fn keeps(
    kernel: &mut Linux,
    partition: &Partition,
    core: usize,
    (budget_ns, period_ns): (u64, u64),
    neighbours: u64,
    enforced: &Enforcement,
) {
    let tick_ns = enforced.granularity_ns;
    let reservation = Attributes::reservation(budget_ns, period_ns, false);
    let bound = |work_ns| bound_ns(work_ns, budget_ns, period_ns, tick_ns, neighbours);
    let mut tries = Vec::new();
    for _ in 0..TRIES {
        let other = Attributes::reservation(3 * MS, 15 * MS, false);
        let _neighbour = (neighbours > 0).then(|| Neighbour::start(kernel, core, &other));
        let runs = spin(kernel, partition, core, &reservation);
        if runs.len() < 4 {
            continue;
        }
        let seen = judge(&runs, bound, budget_ns);
        tries.push(seen);
        if seen.excess_ns <= 0 && seen.longest_run_ns <= budget_ns + tick_ns + NOISE_NS {
            let ms = |ns: u64| ns as f64 / 1e6;
            eprintln!(
                "{} in {} ms, {neighbours} neighbours: {:.2} ms in one go, away for {:.2} of at most {:.2} ms (exact: {:.2})",
                ms(budget_ns),
                ms(period_ns),
                ms(seen.longest_run_ns),
                ms(seen.blackout_ns),
                ms(bound(1)),
                ms(bound_ns(1, budget_ns, period_ns, 0, 0)),
            );
            return;
        }
    }
    panic!("{budget_ns} in {period_ns} ns beside {neighbours}, enforced {}: {tries:?}", enforced.by);
}
