//! Reasons of a callback's time off the CPU, reported by the probes and compared with the child's
//! own account: how often it slept, and for how long it must have been preempted because another
//! thread had its CPU.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use takt_ros::preload::{ProbeOptions, ProbeSession};
use takt_ros::standin::Tracepoints;
use takt_ros::uprobes::{Probe, UprobeError, UprobeOptions};
use takt_ros::{Event, Kind, Source};

const ROLE: &str = "TAKT_TEST_ROLE";
const SIGN: &str = "the child says:";
/// Callbacks: one that only computes, one that sleeps at every third call, one that waits for a
/// lock, one that is preempted by a thread on its CPU.
const BUSY: u64 = 0x1000;
const SLEEPER: u64 = 0x2000;
const LOCKER: u64 = 0x3000;
const ROUNDS: u64 = 30;
const SLEEP: Duration = Duration::from_millis(20);

fn address<T>(value: u64) -> *const T {
    std::ptr::without_provenance(value as usize)
}

fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn burn(time: Duration) {
    let start = cpu_time();
    while cpu_time() - start < time {}
}

/// This thread, and those that it starts, on one CPU.
fn pin() {
    // SAFETY: a set of the kernel's size, which is only read.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

#[test]
fn child() {
    let Ok(_) = std::env::var(ROLE) else { return };
    let calls = Tracepoints::find();
    println!("\n{SIGN} ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    if std::env::var(ROLE).unwrap() == "short" {
        return short(&calls);
    }
    let lock = Arc::new(Mutex::new(()));
    pin();
    // Takes turns with the callbacks on their one CPU: they are preempted time and again.
    let rival = std::thread::spawn(|| burn(Duration::from_millis(600)));
    for number in 0..ROUNDS {
        calls.callback_start(address(BUSY), false);
        burn(Duration::from_millis(8));
        calls.callback_end(address(BUSY));
        calls.callback_start(address(SLEEPER), false);
        burn(Duration::from_millis(1));
        if number % 3 == 2 {
            std::thread::sleep(SLEEP);
        }
        calls.callback_end(address(SLEEPER));
        let held = number.is_multiple_of(5).then(|| {
            let (lock, (report, reported)) = (Arc::clone(&lock), std::sync::mpsc::channel());
            let holder = std::thread::spawn(move || {
                let _held = lock.lock().unwrap();
                report.send(()).unwrap();
                std::thread::sleep(SLEEP);
            });
            reported.recv().unwrap();
            holder
        });
        calls.callback_start(address(LOCKER), false);
        drop(lock.lock().unwrap());
        calls.callback_end(address(LOCKER));
        held.map(std::thread::JoinHandle::join);
        // Work without events between two selections: a client's callback.
        calls.rclcpp_executor_get_next_ready();
        burn(Duration::from_millis(1));
        if number % 3 == 2 {
            std::thread::sleep(SLEEP);
        }
        calls.rclcpp_executor_get_next_ready();
        calls.rclcpp_executor_wait_for_work(-1);
    }
    rival.join().unwrap();
}

/// Callbacks that give the CPU up for microseconds, yield, or are only preempted.
const SHORT: [u64; 5] = [0x5000, 0x6000, 0x7000, 0x8000, 0x9000];

/// None of [`SHORT`].
const WARM_UP: u64 = 0xa000;

/// Number of times that this thread gave the CPU up by itself.
fn voluntary() -> i64 {
    // SAFETY: the kernel writes one `rusage`.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw
    }
}

/// Runs each of [`SHORT`] so often, counts itself what each activation does, and says it at the
/// end: switches and yields.
fn short(calls: &Tracepoints) {
    // SAFETY: one microsecond of slack instead of fifty.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000_u64) };
    let (partner, ours) = std::sync::mpsc::channel::<std::thread::Thread>();
    let done = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let answers = Arc::clone(&done);
    // The other side of a futex: wakes this thread as soon as it is woken.
    let other = std::thread::spawn(move || {
        while let Ok(thread) = ours.recv() {
            answers.fetch_add(1, std::sync::atomic::Ordering::Release);
            thread.unpark();
        }
    });
    let lock = Arc::new(Mutex::new(()));
    let shared = Arc::clone(&lock);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    // Holds a lock time and again, for some microseconds.
    let holder = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            let held = shared.lock().unwrap();
            burn(Duration::from_micros(20));
            drop(held);
        }
    });
    let mut truth = String::new();
    // Pages that are used for the first time may have to be read: a wait between the probe and this
    // program's own look, which only the probe sees. So everything is used once before it counts,
    // as callbacks that nobody looks for.
    for round in 0..=ROUNDS {
        let counted = round > 0;
        for callback in SHORT {
            calls.callback_start(address(if counted { callback } else { WARM_UP }), false);
            let before = voluntary();
            let mut yields = 0;
            match callback {
                0x5000 => std::thread::sleep(Duration::from_micros(5)),
                0x6000 => {
                    let rounds = done.load(std::sync::atomic::Ordering::Acquire);
                    partner.send(std::thread::current()).unwrap();
                    while done.load(std::sync::atomic::Ordering::Acquire) == rounds {
                        std::thread::park();
                    }
                }
                0x7000 => {
                    yields = 3;
                    std::thread::yield_now();
                    // SAFETY: takes nothing.
                    (0..2).for_each(|_| assert_eq!(unsafe { libc::sched_yield() }, 0));
                }
                0x8000 => drop(lock.lock().unwrap()),
                _ => burn(Duration::from_millis(1)),
            }
            let switches = voluntary() - before;
            calls.callback_end(address(if counted { callback } else { WARM_UP }));
            if counted {
                truth.push_str(&format!("{switches} {yields}\n"));
            }
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    drop(partner);
    other.join().unwrap();
    holder.join().unwrap();
    println!("{SIGN} truth\n{truth}");
}

/// Every switch and every yield is reported, of each activation as many as the child counted,
/// however short they were.
fn judge_short(events: &[Event], output: &mut BufReader<std::process::ChildStdout>) {
    let mut text = String::new();
    std::io::Read::read_to_string(output, &mut text).unwrap();
    let truth = text.split_once(&format!("{SIGN} truth\n")).unwrap().1;
    let truth: Vec<(u64, u64)> = truth
        .lines()
        .map_while(|line| {
            let (switches, yields) = line.split_once(' ')?;
            Some((switches.parse().ok()?, yields.parse().ok()?))
        })
        .collect();
    assert_eq!(truth.len() as u64, ROUNDS * SHORT.len() as u64);
    let mut found = Vec::new();
    let (mut reported, mut shortest_ns, mut start) = ((0, 0), u64::MAX, (0, 0));
    for event in events {
        match event.kind {
            Kind::CallbackStart { callback, .. } if SHORT.contains(&callback) => {
                (reported, start) = ((0, 0), (event.at_ns, event.cpu_ns.unwrap()));
            }
            Kind::OffCpu { switches, yields, early_ns, .. } => {
                assert_eq!(early_ns, 0);
                reported = (switches.unwrap(), yields.unwrap());
            }
            Kind::CallbackEnd { callback } if SHORT.contains(&callback) => {
                let off_ns = (event.at_ns - start.0).saturating_sub(event.cpu_ns.unwrap() - start.1);
                if reported.0 > 0 {
                    shortest_ns = shortest_ns.min(off_ns);
                }
                found.push(reported);
            }
            _ => {}
        }
    }
    for (number, (found, truth)) in found.iter().zip(&truth).enumerate() {
        assert_eq!(found, truth, "activation {number} of {:#x}", SHORT[number % SHORT.len()]);
    }
    // The end of the last one may come after the reader's last look at a process that is ending.
    assert!(
        found.len() <= truth.len() && found.len() + 1 >= truth.len(),
        "{} of {}",
        found.len(),
        truth.len()
    );
    let of = |callback: usize, what: fn(&(u64, u64)) -> u64| {
        truth.iter().skip(callback).step_by(SHORT.len()).filter(|one| what(one) > 0).count()
    };
    println!(
        "switched: {} sleeping, {} playing, {} locking; the shortest took {shortest_ns} ns",
        of(0, |one| one.0),
        of(1, |one| one.0),
        of(3, |one| one.0)
    );
    // A truth of zeros would prove nothing.
    assert_eq!(of(2, |one| one.1) as u64, ROUNDS);
    assert!(of(0, |one| one.0) + of(1, |one| one.0) > 0, "{truth:?}");
}

#[test]
fn the_preload_probe_counts_the_shortest_suspensions_and_yields() {
    let session = ProbeSession::create(&ProbeOptions { stand_in: true, ..ProbeOptions::default() }).unwrap();
    let mut probe = session.probe().unwrap();
    let (child, mut output) = start_as("short", &session, true);
    let events = observe(&mut probe, child);
    judge_short(&events, &mut output);
}

/// Uprobes on `child`; `None` where they are not permitted: that is said, and the child is ended.
fn attach(child: &mut std::process::Child) -> Option<Probe> {
    match Probe::attach(&UprobeOptions { pids: vec![child.id()], ..Default::default() }) {
        Ok(probe) => Some(probe),
        Err(error @ (UprobeError::NotPermitted { .. } | UprobeError::NoKernelSupport)) => {
            assert!(std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none(), "{error}");
            child.kill().unwrap();
            child.wait().unwrap();
            takt_witness::skip!("{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn uprobes_count_the_shortest_suspensions_and_yields() {
    let session = ProbeSession::create(&ProbeOptions { stand_in: true, ..ProbeOptions::default() }).unwrap();
    let (mut child, mut output) = start_as("short", &session, false);
    let Some(mut probe) = attach(&mut child) else { return };
    let events = observe(&mut probe, child);
    assert!(!probe.info().missing.iter().any(|name| name.contains("sched_yield")), "{:?}", probe.info());
    judge_short(&events, &mut output);
}

fn start(session: &ProbeSession, observed: bool) -> (Child, BufReader<std::process::ChildStdout>) {
    start_as("1", session, observed)
}

fn start_as(
    role: &str,
    session: &ProbeSession,
    observed: bool,
) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "off_cpu::child", "--test-threads=1", "--nocapture"]).env(ROLE, role);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    match observed {
        true => {
            session.prepare(&mut command);
        }
        false => {
            command.env("LD_PRELOAD", session.directory().join("libtracetools.so"));
        }
    }
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with(SIGN) {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the child says nothing");
    }
    (child, output)
}

fn observe(source: &mut impl Source, mut child: Child) -> Vec<Event> {
    let mut events = Vec::new();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let ended = child.try_wait().unwrap().is_some();
        source.poll(&mut |event| events.push(event)).unwrap();
        if ended {
            break;
        }
        assert!(Instant::now() < until, "the child does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    events
}

/// An activation as its events report it.
#[derive(Debug)]
struct Activation {
    off_ns: u64,
    reported: Option<(Option<u64>, Option<u64>)>,
}

fn activations(events: &[Event], of: u64) -> Vec<Activation> {
    let (mut found, mut start, mut reported) = (Vec::new(), None, None);
    for event in events {
        match event.kind {
            Kind::CallbackStart { callback, .. } => {
                reported = None;
                start = (callback == of).then_some((event.at_ns, event.cpu_ns.unwrap(), event.tid));
            }
            Kind::OffCpu { switches, ready_ns, .. } => reported = Some((switches, ready_ns)),
            Kind::CallbackEnd { callback } if callback == of => {
                let (at_ns, cpu_ns, tid) = start.take().unwrap();
                assert_eq!(event.tid, tid);
                let used_ns = event.cpu_ns.unwrap() - cpu_ns;
                let off_ns = (event.at_ns - at_ns).saturating_sub(used_ns);
                found.push(Activation { off_ns, reported: reported.take() });
            }
            _ => {}
        }
    }
    assert_eq!(found.len() as u64, ROUNDS);
    for activation in &found {
        assert_eq!(
            activation.off_ns > takt_ros::event::OFF_CPU_NS,
            activation.reported.is_some(),
            "{activation:?}"
        );
    }
    found
}

fn message(event: &Event) -> bool {
    matches!(event.kind, Kind::OffCpu { .. })
}

/// Checks the reports that must exist, whatever else the machine did.
fn judge(events: &[Event]) {
    let preempted = activations(events, BUSY);
    for activation in &preempted {
        assert!(matches!(activation.reported, None | Some((Some(0), _))), "it never waits: {activation:?}");
    }
    assert!(preempted.iter().any(|activation| activation.reported.is_some()), "its rival never ran");
    let sleep_ns = SLEEP.as_nanos() as u64;
    let mut exact = 0;
    for (number, activation) in activations(events, SLEEPER).iter().enumerate() {
        // Counted from the start: a thread's first activations are.
        let Some((switches, ready_ns)) = activation.reported else {
            assert!(number % 3 != 2, "{number}: {activation:?}");
            continue;
        };
        let switches = switches.unwrap();
        if number % 3 == 2 {
            let slept_ns = activation.off_ns.saturating_sub(ready_ns.unwrap_or(0));
            assert!((1..20).contains(&switches), "{number}: {activation:?}");
            assert!(slept_ns >= sleep_ns - 100_000, "{number}: {activation:?}");
            exact += usize::from(ready_ns.is_some());
        }
    }
    // All but the first, and where the machine came between two readings.
    assert!(exact >= 5, "{exact}");
    // It waits where the lock's holder did not end its sleep before.
    let locked = activations(events, LOCKER);
    let waited = locked.iter().filter(|lock| matches!(lock.reported, Some((Some(1..), _)))).count();
    assert!(waited >= 1 && waited <= locked.len() / 2, "{locked:?}");
    // Where it was asked for, which is from the first on that took long.
    let mut reported = Vec::new();
    for pair in
        events.iter().filter(|event| event.cpu_ns.is_some() || message(event)).collect::<Vec<_>>().windows(2)
    {
        if let (Kind::OffCpu { switches, .. }, Kind::ExecutorNextReady) = (&pair[0].kind, &pair[1].kind) {
            reported.push(switches.unwrap());
        }
    }
    assert!(reported.iter().filter(|&&switches| switches > 0).count() >= 7, "{reported:?}");
}

#[test]
fn the_preload_probe_distinguishes_sleep_from_preemption() {
    let session = ProbeSession::create(&ProbeOptions { stand_in: true, ..ProbeOptions::default() }).unwrap();
    let mut probe = session.probe().unwrap();
    let (child, _output) = start(&session, true);
    judge(&observe(&mut probe, child));
}

#[test]
fn uprobes_distinguish_sleep_from_preemption() {
    let session = ProbeSession::create(&ProbeOptions { stand_in: true, ..ProbeOptions::default() }).unwrap();
    let (mut child, _output) = start(&session, false);
    let Some(mut probe) = attach(&mut child) else { return };
    judge(&observe(&mut probe, child));
}
