//! Reservations held against the bound on their supply, on the running kernel: a thread that always
//! wants to run says when it ran.
//!
//! A reservation outranks everything that Linux runs, so a busy machine does not matter. The
//! computer below a virtual machine does: it takes the CPU away, and with it the timers and ticks
//! that the bound rests on. That is witnessed: by gaps in which the thread that spins was not
//! switched from, and by the time that the kernel was informed was stolen. Every measurement
//! without must keep the bound.
#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Duration;

use takt_host::reserve::Mode;
use takt_host::reserve::enforce::{self, Enforcement};
use takt_host::reserve::partition::{Partition, establish};
use takt_manager::restore::Journal;
use takt_manager::system::{Attributes, Kernel, Linux};
use takt_rt::clock::monotonic_ns;
use takt_rt::placement;
use takt_rt::procfs::CpuTime;

const MS: u64 = 1_000_000;
const TRIES: usize = 6;
/// Interrupts, and the kernel's own work to switch threads.
const NOISE_NS: u64 = 300_000;
/// Time that switches take of a reservation's own budgets, so that four of them are a little less
/// than four times one.
const SWITCHES_NS: u64 = 50_000;

/// Longest time in which a thread that always wants to run gets `work_ns`, with `neighbours` on its
/// core (`takt_manager::analysis`, supply; written anew here).
fn bound_ns(work_ns: u64, budget_ns: u64, period_ns: u64, tick_ns: u64, neighbours: u64) -> u64 {
    let periods = 1 + tick_ns / budget_ns + (work_ns + tick_ns).div_ceil(budget_ns);
    work_ns + tick_ns + (period_ns - budget_ns) * periods + tick_ns * neighbours
}

/// Result of a measurement.
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
            let mut left = work_ns.saturating_sub(SWITCHES_NS);
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

/// Longer gaps are reported.
const GAP_NS: u64 = 200_000;

/// Observations of a thread that always wants to run.
#[derive(Debug, Default)]
struct Spun {
    /// When it ran, from and to.
    runs: Vec<(u64, u64)>,
    /// Gaps in which it was not switched from: interrupts, and what the computer below takes.
    stolen_ns: u64,
}

fn switches() -> i64 {
    // SAFETY: all zeros is a valid rusage, to be overwritten.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the answer.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    usage.ru_nvcsw + usage.ru_nivcsw
}

/// Spins until instructed to stop.
fn spin(stop: &AtomicBool) -> Spun {
    let mut spun = Spun { runs: Vec::with_capacity(4096), stolen_ns: 0 };
    let mut known = switches();
    let (mut from_ns, mut last_ns) = (monotonic_ns(), monotonic_ns());
    while !stop.load(Ordering::Relaxed) {
        let now_ns = monotonic_ns();
        if now_ns - last_ns > GAP_NS {
            let switches = switches();
            if switches == known {
                spun.stolen_ns += now_ns - last_ns;
            }
            known = switches;
            spun.runs.push((from_ns, last_ns));
            from_ns = now_ns;
        }
        last_ns = now_ns;
    }
    spun.runs.push((from_ns, last_ns));
    spun
}

/// A thread that always wants to run.
struct Spinner {
    tid: u32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Spun>>,
}

impl Spinner {
    /// It begins when `go` says so.
    fn start(go: &Arc<Barrier>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = std::sync::mpsc::channel();
        let (stopped, go) = (Arc::clone(&stop), Arc::clone(go));
        let thread = std::thread::spawn(move || {
            // SAFETY: gettid has no preconditions.
            sender.send(unsafe { libc::gettid() } as u32).unwrap();
            go.wait();
            spin(&stopped)
        });
        Self { tid: receiver.recv().unwrap(), stop, thread: Some(thread) }
    }

    fn finish(mut self) -> Spun {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Time that the hypervisor has taken from a CPU, where it is reported.
fn stolen_ns(core: usize) -> u64 {
    let all = CpuTime::read_by_cpu();
    all.into_iter().find(|&(number, _)| number == core).map_or(0, |(_, time)| time.steal_ns())
}

/// Runs of a thread with this reservation, beside others with theirs; and how much was taken from
/// them or stood still meanwhile.
fn attempt(
    kernel: &mut Linux,
    partition: &Partition,
    core: usize,
    reservations: &[Attributes],
) -> (Vec<(u64, u64)>, u64) {
    let go = Arc::new(Barrier::new(reservations.len() + 1));
    let spinners: Vec<Spinner> = reservations.iter().map(|_| Spinner::start(&go)).collect();
    for (spinner, reservation) in spinners.iter().zip(reservations) {
        partition.reserve(kernel, std::process::id(), spinner.tid, core, reservation).unwrap();
    }
    let before = stolen_ns(core);
    go.wait();
    std::thread::sleep(Duration::from_millis(700));
    let mut spun = spinners.into_iter().map(Spinner::finish);
    let first = spun.next().unwrap();
    let stolen = first.stolen_ns + spun.map(|spun| spun.stolen_ns).sum::<u64>();
    (first.runs, stolen + stolen_ns(core) - before)
}

#[test]
fn a_window_that_supplies_too_little_is_seen() {
    // 2 ms in each 10, and once nothing for 19 ms.
    let mut runs: Vec<(u64, u64)> = (0..40).map(|k| (k * 10 * MS, (k * 10 + 2) * MS)).collect();
    let bound = |work_ns| bound_ns(work_ns, 2 * MS, 10 * MS, 0, 0);
    assert!(judge(&runs, bound, 2 * MS).excess_ns < 0);
    runs[20] = (209 * MS, 210 * MS);
    let seen = judge(&runs, bound, 2 * MS);
    assert!(seen.excess_ns > 0 && seen.blackout_ns == 17 * MS, "{seen:?}");
}

#[test]
#[ignore = "takes 10 s"]
fn reservations_keep_the_bound_of_their_supply() {
    let lock = File::create(std::env::temp_dir().join("takt-enact-test.lock")).unwrap();
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
    let online = placement::online().unwrap();
    let Some(core) = online.iter().last().filter(|_| online.len() > 1) else {
        takt_witness::skip!("needs two CPUs");
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
            takt_witness::skip!("{refused:?}");
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
    let own = Attributes::reservation(budget_ns, period_ns, false);
    let other = Attributes::reservation(3 * MS, 15 * MS, false);
    let reservations = [own, other];
    let bound = |work_ns| bound_ns(work_ns, budget_ns, period_ns, tick_ns, neighbours);
    let mut disturbed = Vec::new();
    for _ in 0..TRIES {
        let (runs, stolen_ns) = attempt(kernel, partition, core, &reservations[..=neighbours as usize]);
        if runs.len() < 4 {
            continue;
        }
        let seen = judge(&runs, bound, budget_ns);
        let kept = seen.excess_ns <= 0 && seen.longest_run_ns <= budget_ns + tick_ns + NOISE_NS;
        let ms = |ns: u64| ns as f64 / 1e6;
        let what = format!("{} in {} ms, {neighbours} neighbours", ms(budget_ns), ms(period_ns));
        if kept {
            eprintln!(
                "{what}: {:.2} ms in one go, away for {:.2} of at most {:.2} ms (exact: {:.2})",
                ms(seen.longest_run_ns),
                ms(seen.blackout_ns),
                ms(bound(1)),
                ms(bound_ns(1, budget_ns, period_ns, 0, 0)),
            );
            return;
        }
        assert!(stolen_ns > NOISE_NS, "{what}, enforced {}, nothing stolen: {seen:?}", enforced.by);
        eprintln!("{what}: {:.2} ms were stolen: {seen:?}", ms(stolen_ns));
        disturbed.push(seen);
    }
    takt_witness::skip!("the computer below took the CPU away each time: {disturbed:?}");
}
