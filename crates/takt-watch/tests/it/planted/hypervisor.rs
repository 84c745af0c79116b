//! Time for which a CPU comes out of idle, and time that a hypervisor takes away. The first is
//! planted by letting go of `/dev/cpu_dma_latency`; nobody in a guest can plant the second, so that
//! it is waited for, and known by the loop that it hits and by the counter of stolen time.

use std::fs::File;
use std::io::{BufRead, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use takt_rt::clock::monotonic_ns;
use takt_rt::procfs::CpuTime;
use takt_trace::{Cause, KeepAwake, TraceOptions};
use takt_watch::Settings;

use crate::planted::rig::{MS, Outcome, Role, Watch, judged, pause};
use crate::planted::{CPU, Ended, loop_with, patient, settings, windows};

/// Longest wake-up on a CPU that polls; one that sleeps takes longer.
const AWAKE_NS: u64 = 30_000;

/// Holds all CPUs in their shallowest idle state until dropped.
fn shallow() -> Option<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency").ok()?;
    file.write_all(&0_i32.to_ne_bytes()).ok()?;
    Some(file)
}

/// A loop on a CPU that sleeps deeply in the windows alone; None where there is but one idle state.
pub fn idle_exits(count: usize) -> Option<Outcome> {
    let states = std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{CPU}/cpuidle")).ok()?.count();
    let held = shallow().filter(|_| states > 1);
    if held.is_none() {
        takt_witness::skip!("no idle states, or no right to /dev/cpu_dma_latency");
        return None;
    }
    // --laptop: it does not hold them itself.
    let child = Command::new("cyclictest")
        .args(["-t1", "-p50", "-i2000", "-q", "-D600", "--laptop", "-a", &CPU.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let child = Ended(child);
    pause(300 * MS);
    let trace = TraceOptions { keep_awake: KeepAwake::Off, ..TraceOptions::default() };
    let limits = Settings { late_ns: Some(AWAKE_NS), ..patient() };
    let watch = Watch::start_with(child.0.id(), limits, trace);
    let mut held = held;
    let windows = windows(count, || {
        let from_ns = monotonic_ns();
        drop(held.take());
        pause(20 * MS);
        let to_ns = monotonic_ns();
        held = shallow();
        (from_ns, to_ns)
    });
    Some(judged(&watch.finish(), &windows, &[Cause::IdleExit], ""))
}

/// So long does the loop below read the clock in each of its cycles of 10 ms.
const READING_NS: u64 = 5 * MS;
/// Between two readings of the clock it was hit.
const HIT_NS: u64 = 4 * MS;
/// The counter of stolen time has spoken by then.
const COUNTED: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(200);

/// A loop that does nothing but read the clock, and reports every leap of it in which it was not
/// switched from its CPU and the counter of stolen time moved by as much.
pub fn clock_reader() {
    let leaps = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&leaps);
    let begin_ns = monotonic_ns();
    let reads = (0..).take_while(|_| monotonic_ns() < begin_ns + READING_NS).count();
    let _loop = loop_with("victim", &settings("fifo:50", Some(CPU)), Duration::from_millis(10), move |_| {
        let before = (switches(), stolen_ns());
        let mut last_ns = monotonic_ns();
        let mut longest = (0, 0);
        for _ in 0..reads {
            let now_ns = monotonic_ns();
            if now_ns - last_ns > longest.1 - longest.0 {
                longest = (last_ns, now_ns);
            }
            last_ns = now_ns;
        }
        if longest.1 - longest.0 > HIT_NS && switches() == before.0 {
            seen.lock().unwrap().push((longest, before.1));
        }
    });
    println!("\nRESULT ready");
    let until = Instant::now() + PATIENCE;
    for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
        let found = loop {
            pause(100 * MS);
            let next = leaps.lock().unwrap().pop();
            if let Some(((from_ns, to_ns), before_ns)) = next {
                std::thread::sleep(COUNTED);
                // It counts in hundredths of a second.
                if stolen_ns() - before_ns + 10 * MS >= to_ns - from_ns && stolen_ns() > before_ns {
                    break (from_ns, to_ns);
                }
                println!("a leap of {} us was not counted as stolen", (to_ns - from_ns) / 1000);
            }
            if Instant::now() > until {
                break (0, 0);
            }
        };
        println!("RESULT {} {}", found.0, found.1);
        std::io::stdout().flush().unwrap();
    }
}

fn stolen_ns() -> u64 {
    CpuTime::read_by_cpu().into_iter().find(|one| one.0 == CPU).map_or(0, |one| one.1.steal_ns())
}

/// So often did this thread leave its CPU.
fn switches() -> i64 {
    // SAFETY: a structure of integers, which the kernel fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    usage.ru_nvcsw + usage.ru_nivcsw
}

/// Time that the host took, for as many moments as occurred within some minutes.
pub fn stolen(count: usize) -> Option<Outcome> {
    let mut role = Role::start("stolen");
    let limits = Settings { deadline_ns: Some(READING_NS + HIT_NS - MS), ..patient() };
    let watch = Watch::start(role.child.id(), limits);
    let until = Instant::now() + PATIENCE;
    let mut windows = Vec::new();
    while windows.len() < count && Instant::now() < until {
        windows.extend(Some(role.plant()).filter(|window| window.1 > 0));
    }
    println!("{} leaps of the clock, counted as stolen", windows.len());
    let outcome = judged(&watch.finish(), &windows, &[Cause::Steal], "");
    (!windows.is_empty()).then_some(outcome)
}
