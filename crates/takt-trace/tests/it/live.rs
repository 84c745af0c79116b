//! Live capture beside a real-time loop: what it finds, what it costs the loop, and how it refuses.

// Helpers outside `#[test]` functions may fail loudly as well.
#![allow(clippy::unwrap_used)]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use takt_rt::clock::monotonic_ns;
use takt_rt::jobs::{JobCollector, JobRecord, MemorySink};
use takt_rt::periodic::{Periodic, SleepStrategy};
use takt_rt::proof::{allocations, system_calls_beyond};
use takt_rt::settings::ThreadSettings;
use takt_trace::{Cause, Kind, TraceError, TraceOptions, Tracer, Watched, analyse};

/// One test at a time: what one does floods the rings of the others.
static ONE: Mutex<()> = Mutex::new(());

/// A tracer, or the reason why there is none.
fn tracer(options: &TraceOptions) -> Option<(Tracer, MutexGuard<'static, ()>)> {
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    match Tracer::start(options) {
        Ok(tracer) => Some((tracer, guard)),
        Err(error) => {
            assert!(std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none(), "{error}");
            takt_witness::skip!("{error}");
            None
        }
    }
}

/// `count` releases at 1 kHz; some of them hold the CPU for `long_ns`.
fn run_loop(count: u64, long: impl Fn(u64) -> u64) -> Vec<JobRecord> {
    let mut jobs = Vec::with_capacity(count as usize);
    let mut periodic = Periodic::start_now(Duration::from_millis(1), SleepStrategy::Kernel).unwrap();
    while jobs.len() < count as usize {
        let release = periodic.next();
        let start_ns = monotonic_ns();
        while monotonic_ns() < start_ns + long(release.index) {}
        jobs.push(JobRecord { start_ns, end_ns: monotonic_ns(), ..JobRecord::of(&release) });
    }
    jobs
}

fn fifo() -> ThreadSettings {
    ThreadSettings { policy: "fifo:70".parse().unwrap(), ..ThreadSettings::default() }
}

#[test]
fn releases_are_matched_with_their_activation() {
    let Some((tracer, _one)) = tracer(&TraceOptions::default()) else { return };
    // Also where a CPU's idle time leaves no events: the tracer finds that out and keeps the CPU
    // awake.
    let handle = takt_rt::thread::spawn("matched", &fifo(), || run_loop(500, |_| 0)).unwrap();
    let tid = handle.tid();
    let jobs = handle.join().unwrap();
    let trace = tracer.stop().unwrap();
    let report = analyse(&trace, tid, &jobs).unwrap();
    assert_eq!(report.task, "matched");
    assert!(report.releases >= 499, "{report:#?}");
    assert!(report.matched_share().is_some_and(|share| share >= 0.95), "{report:#?}");
    // Every step of the path, in its order.
    let medians: Vec<f64> = report.sequence.iter().map(|step| step.median_us).collect();
    assert!(medians.len() >= 6 && medians.is_sorted(), "{:?}", report.sequence);
    // What the kernel says about time and what the thread says agree: no path ends after its
    // wake-up.
    assert!(trace.events.is_sorted_by_key(|event| event.time_ns));
    serde_json::to_string(&report).unwrap();
    // Said in the report, and over with the trace.
    assert_eq!(
        report.kept_awake.is_empty(),
        !report.notes.iter().any(|note| note.contains("WITHOUT IDLE TIME"))
    );
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    assert!(!names.any(|name| name.starts_with("takt-awake/")));
}

/// A thread that is in the kernel all the time, on the CPU of the traced one: the stacks of its
/// wake-ups say in which function.
#[test]
fn wakeups_report_what_they_interrupted_in_the_kernel() {
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    if symbols.lines().next().is_none_or(|line| line.starts_with("0000000000000000")) {
        takt_witness::skip!("/proc/kallsyms reports no addresses");
        return;
    }
    let Some((tracer, _one)) = tracer(&TraceOptions::default()) else { return };
    let cpu = takt_rt::placement::CpuSet::single(0).unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    let busy = std::thread::spawn(move || {
        use std::io::Read;
        takt_rt::placement::set_affinity(0, &cpu).unwrap();
        let mut random = std::fs::File::open("/dev/urandom").unwrap();
        let mut bytes = vec![0; 1 << 20];
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            random.read_exact(&mut bytes).unwrap();
        }
    });
    let settings = ThreadSettings { cpus: Some(cpu), ..fifo() };
    // The reader finds new threads at its next turn, 20 ms later or so.
    let handle = takt_rt::thread::spawn("sampled", &settings, || run_loop(700, |_| 0)).unwrap();
    let tid = handle.tid();
    handle.join().unwrap();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    busy.join().unwrap();
    let trace = tracer.stop().unwrap();
    if let Some(note) = trace.notes.iter().find(|note| note.contains("stacks")) {
        takt_witness::skip!("{note}");
        return;
    }
    let own: Vec<&[String]> = trace
        .wake_stacks
        .iter()
        .filter(|one| one.tid == tid)
        .map(|one| trace.stacks[one.stack as usize].as_slice())
        .collect();
    assert!(own.len() >= 300, "{} stacks", own.len());
    let reported =
        own.iter().filter(|stack| stack.iter().any(|function| function.contains("random"))).count();
    // The busy thread has nearly all of the CPU, but on a loaded machine not all.
    assert!(
        reported * 10 >= own.len(),
        "{reported} of {}: {:?}",
        own.len(),
        &trace.stacks[..trace.stacks.len().min(20)]
    );
    // Each is found from the activation that it belongs to.
    let matched = trace.events.iter().filter(|event| {
        matches!(event.kind, Kind::Waking { tid: woken, .. } if woken == tid)
            && trace.interrupted_by_wakeup(tid, event.cpu, event.time_ns).is_some()
    });
    assert!(matched.count() * 10 >= own.len());
}

#[test]
fn the_traced_thread_does_nothing_for_it() {
    let Some((tracer, _one)) = tracer(&TraceOptions::default()) else { return };
    let handle = takt_rt::thread::spawn("frugal", &ThreadSettings::default(), || {
        let mut periodic = Periodic::start_now(Duration::from_millis(1), SleepStrategy::Kernel).unwrap();
        let before = allocations();
        for _ in 0..100 {
            let _ = periodic.next();
        }
        allocations() - before
    });
    assert_eq!(handle.unwrap().join().unwrap(), 0);
    let calls = system_calls_beyond(&[libc::SYS_clock_nanosleep, libc::SYS_sched_getscheduler], || {
        let mut periodic = Periodic::start_now(Duration::from_millis(1), SleepStrategy::Kernel).unwrap();
        move || {
            for _ in 0..100 {
                let _ = periodic.next();
            }
        }
    });
    match calls {
        Ok(calls) => assert_eq!(calls.calls, 0, "{calls:?}"),
        Err(error) => takt_witness::skip!("no seccomp filter: {error}"),
    }
    drop(tracer);
}

#[test]
fn full_rings_lose_events_and_nothing_is_guessed() {
    // The smallest ring, drained once a second: full long before.
    let options = TraceOptions { buffer_bytes: 64 << 10, drain: false, ..TraceOptions::default() };
    let Some((tracer, _one)) = tracer(&options) else { return };
    let handle = takt_rt::thread::spawn("lossy", &fifo(), || run_loop(1000, |_| 0)).unwrap();
    let tid = handle.tid();
    let mut jobs = handle.join().unwrap();
    let trace = tracer.stop().unwrap();
    assert!(trace.lost_events > 0);
    // All count as late: what lies in the hole has no cause.
    for job in &mut jobs {
        job.planned_ns -= 900_000;
    }
    let report = analyse(&trace, tid, &jobs).unwrap();
    assert_eq!(report.lost_events, trace.lost_events);
    assert!(report.matched < report.releases.max(1000), "{} of {}", report.matched, report.releases);
    let unknown = |cause| matches!(cause, Cause::EventsLost | Cause::NotRecorded);
    let unknown: u64 = report.causes.iter().filter(|row| unknown(row.cause)).map(|row| row.count).sum();
    assert!(unknown >= 500, "{:?}", report.causes);
}

#[test]
fn late_windows_outlive_the_flight_recorder() {
    let options =
        TraceOptions { memory_bytes: 1 << 20, period: Duration::from_millis(2), ..TraceOptions::default() };
    let Some((tracer, _one)) = tracer(&options) else { return };
    let sink = Watched::new(MemorySink::default(), tracer.marker(), 50_000_000, 4_000_000);
    let collector = JobCollector::start(sink, Duration::from_millis(2)).unwrap();
    let mut recorder = collector.recorder("watched", 4096);
    let handle = takt_rt::thread::spawn("watched", &fifo(), move || {
        for job in run_loop(60, |index| if index == 20 { 8_000_000 } else { 0 }) {
            recorder.push(job);
        }
    });
    let tid = handle.as_ref().unwrap().tid();
    handle.unwrap().join().unwrap();
    // Events enough to push the window out: two threads that wake each other.
    let (go, gone) = (std::sync::mpsc::sync_channel::<()>(0), std::sync::mpsc::sync_channel::<()>(0));
    let pong = std::thread::spawn(move || while go.1.recv().is_ok() && gone.0.send(()).is_ok() {});
    let until_ns = monotonic_ns() + 1_500_000_000;
    while monotonic_ns() < until_ns {
        go.0.send(()).unwrap();
        gone.1.recv().unwrap();
    }
    drop(go.0);
    pong.join().unwrap();
    let jobs = collector.stop().unwrap().sink.inner.tasks[0].records.clone();
    let trace = tracer.stop().unwrap();
    let late = jobs.iter().find(|job| job.execution_ns() >= 8_000_000).unwrap();
    if !trace.notes.iter().any(|note| note.contains("older events are dropped")) {
        takt_witness::skip!("so few events that nothing was forgotten");
        return;
    }
    assert!(trace.covers(late.planned_ns, late.end_ns), "{:?} has not {late:?}", trace.spans);
    let early = trace.between(late.planned_ns, late.end_ns);
    assert!(early.iter().any(|event| event.tid == tid
        && matches!(event.kind, Kind::VectorEntry(_) | Kind::IrqEntry { .. } | Kind::Runtime { .. })));
    // A release long before it is gone, unless it lies within the margin of the window.
    assert!(trace.spans.len() > 1, "{:?}", trace.spans);
}

#[test]
fn without_the_right_there_is_a_sentence_with_the_way_out() {
    let error = std::thread::spawn(|| {
        // This thread alone becomes nobody; the C library's function would change the whole
        // process. SAFETY: takes integers.
        if unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) } != 0 {
            return None;
        }
        Tracer::start(&TraceOptions::default()).err()
    });
    let Some(error) = error.join().unwrap() else {
        takt_witness::skip!("cannot become an unprivileged user, or that one may trace too");
        return;
    };
    assert!(matches!(error, TraceError::NotPermitted { .. } | TraceError::Lockdown { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("setcap") || text.contains("lockdown="), "{text}");
}

#[test]
fn senseless_options_are_refused() {
    for options in [
        TraceOptions { buffer_bytes: 0, ..TraceOptions::default() },
        TraceOptions { buffer_bytes: usize::MAX, ..TraceOptions::default() },
        TraceOptions { memory_bytes: 0, ..TraceOptions::default() },
        TraceOptions { period: Duration::ZERO, ..TraceOptions::default() },
    ] {
        assert!(matches!(Tracer::start(&options), Err(TraceError::Options(_))), "{options:?}");
    }
}
