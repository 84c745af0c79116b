//! Each cause planted beside or within a watched program must be named, and none where nothing was
//! planted.
//!
//! The short tests plant a few; the campaign (`--ignored`) plants twenty of each class and shows
//! how many were named. Programs that are watched are cyclictest and Python where they are there,
//! and this program in a role of its own, never the thread that watches.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rig::{MS, Outcome, Role, Watch, can_trace, follow, judged, pause, spin};
use takt_rt::clock::monotonic_ns;
use takt_rt::periodic::{Periodic, SleepStrategy};
use takt_rt::pi_mutex::PiMutex;
use takt_rt::placement::CpuSet;
use takt_rt::settings::ThreadSettings;
use takt_trace::Cause;
use takt_watch::{LoopKind, Report, Settings};

mod bus;
mod hypervisor;
mod kernel;
mod link;
mod rig;
mod ten;

/// CPU of the watched loops and of what disturbs them.
const CPU: usize = 0;
const OTHER_CPU: usize = 1;
/// Windows of the campaign, and of the short tests.
const MANY: usize = 20;
const FEW: usize = 4;

/// The plants disturb each other.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn settings(policy: &str, cpu: Option<usize>) -> ThreadSettings {
    let cpus = cpu.map(|cpu| CpuSet::single(cpu).unwrap());
    ThreadSettings { policy: policy.parse().unwrap(), cpus, ..ThreadSettings::default() }
}

/// Settings with a limit of a millisecond, which an undisturbed machine keeps.
fn patient() -> Settings {
    Settings { late_ns: Some(MS), windows: 10_000, follow: follow(), ..Settings::default() }
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// cyclictest's loop of 2 ms; None where it is missing or may not have its policy.
fn cyclictest() -> Option<Ended> {
    let child = Command::new("cyclictest")
        .args(["-t1", "-p50", "-i2000", "-q", "-D600", "-a", &CPU.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = child else {
        takt_witness::skip!("cyclictest is missing (Debian package rt-tests)");
        return None;
    };
    let mut child = Ended(child);
    pause(300 * MS);
    if child.0.try_wait().unwrap().is_some() {
        takt_witness::skip!("cyclictest ended at once: it may not have its policy here");
        return None;
    }
    Some(child)
}

fn python(code: &str) -> Option<Ended> {
    let child = Command::new("python3").args(["-c", code]).stdout(Stdio::null()).spawn();
    match child {
        Ok(child) => Some(Ended(child)),
        Err(error) => {
            takt_witness::skip!("python3: {error}");
            None
        }
    }
}

/// The roles of this program: steered by lines on its standard input.
#[test]
fn a_role() {
    let Ok(role) = std::env::var("TAKT_WATCH_ROLE") else { return };
    match role.as_str() {
        "hog" => steered(takt_rt::thread::spawn("hog", &settings("fifo:90", Some(CPU)), || {
            answer(|| spin(5 * MS));
        })),
        // Longer than a cycle of 20 ms, whichever part of it is hit.
        "long hog" => steered(takt_rt::thread::spawn("hog", &settings("fifo:90", Some(CPU)), || {
            answer(|| spin(30 * MS));
        })),
        "long" => victim(|_| spin(6 * MS)),
        "faults" => victim(|_| touch_new_pages()),
        "lock" => {
            let mutex = Arc::new(PiMutex::new(()).unwrap());
            let taken = Arc::clone(&mutex);
            holder(
                move || drop(taken.lock().unwrap()),
                move |hold| {
                    let guard = mutex.lock().unwrap();
                    hold();
                    drop(guard);
                },
            );
        }
        // Nothing shows the kernel who holds it.
        "waited" => {
            let mutex = Arc::new(Mutex::new(()));
            let taken = Arc::clone(&mutex);
            holder(
                move || drop(taken.lock().unwrap()),
                move |hold| {
                    let guard = mutex.lock().unwrap();
                    hold();
                    drop(guard);
                },
            );
        }
        "own" => {
            let _loop = loop_of("victim", |_| {});
            let helper = settings("fifo:90", Some(CPU));
            steered(takt_rt::thread::spawn("helper", &helper, || answer(|| spin(5 * MS))));
        }
        // The kernel may look at budgets at its ticks alone (without HRTICK), up to 4 ms late.
        "throttled" => {
            victim_of("deadline:4ms/20ms/20ms", None, Duration::from_millis(20), |_| spin(9 * MS));
        }
        "softirq" => kernel::softirqs(5 * MS),
        // Longer than a cycle of 20 ms, whichever part of it is hit.
        "long softirq" => kernel::softirqs(30 * MS),
        "protocols" => kernel::protocols(9 * MS),
        "interrupt" => kernel::timers(),
        "stolen" => hypervisor::clock_reader(),
        other => panic!("no role {other}"),
    }
}

fn steered(thread: Result<takt_rt::thread::Handle<()>, takt_rt::Error>) {
    thread.unwrap().join().unwrap();
}

/// A loop that does `take` in every cycle, and a thread of lower priority on another CPU that holds
/// what it takes when it is asked to.
fn holder(mut take: impl FnMut() + Send + 'static, held: impl Fn(&dyn Fn()) + Send + 'static) {
    let _loop = loop_of("victim", move |_| take());
    steered(takt_rt::thread::spawn("holder", &settings("other", Some(OTHER_CPU)), move || {
        answer(move || held(&|| spin(6 * MS)));
    }));
}

/// Does `act` for every line that comes, and shows when.
fn answer(mut act: impl FnMut()) {
    println!("\nRESULT ready");
    for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
        let from_ns = monotonic_ns();
        act();
        println!("RESULT {from_ns} {}", monotonic_ns());
        std::io::stdout().flush().unwrap();
    }
}

/// A loop of 2 ms at real-time priority, for as long as the program lives.
fn loop_of(name: &str, job: impl FnMut(u64) + Send + 'static) -> takt_rt::thread::Handle<()> {
    loop_with(name, &settings("fifo:50", Some(CPU)), Duration::from_millis(2), job)
}

fn loop_with(
    name: &str,
    settings: &ThreadSettings,
    period: Duration,
    mut job: impl FnMut(u64) + Send + 'static,
) -> takt_rt::thread::Handle<()> {
    let thread = takt_rt::thread::spawn(name, settings, move || {
        let mut periodic = Periodic::start_now(period, SleepStrategy::Kernel).unwrap();
        loop {
            let release = periodic.next();
            job(release.index);
        }
    });
    thread.unwrap()
}

/// A loop that does `act` in a cycle when it is asked to.
fn victim(act: impl Fn(u64) + Send + 'static) {
    victim_of("fifo:50", Some(CPU), Duration::from_millis(2), act);
}

fn victim_of(policy: &str, cpu: Option<usize>, period: Duration, act: impl Fn(u64) + Send + 'static) {
    let (ask, asked) = std::sync::mpsc::channel::<()>();
    let (judge_case, output) = std::sync::mpsc::channel::<(u64, u64)>();
    let _loop = loop_with("victim", &settings(policy, cpu), period, move |index| {
        if asked.try_recv().is_ok() {
            let from_ns = monotonic_ns();
            act(index);
            judge_case.send((from_ns, monotonic_ns())).unwrap();
        }
    });
    println!("\nRESULT ready");
    for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
        ask.send(()).unwrap();
        let (from_ns, to_ns) = output.recv().unwrap();
        println!("RESULT {from_ns} {to_ns}");
        std::io::stdout().flush().unwrap();
    }
}

/// Some milliseconds of page faults, whatever one takes.
fn touch_new_pages() {
    const PAGE: usize = 4096;
    const PAGES: usize = 8192;
    let until_ns = monotonic_ns() + 6 * MS;
    // SAFETY: new anonymous memory of its own, unmapped below.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at =
            libc::mmap(std::ptr::null_mut(), PAGE * PAGES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        // Pages of 2 MiB would be one fault each.
        libc::madvise(at, PAGE * PAGES, libc::MADV_NOHUGEPAGE);
        for page in 0..PAGES {
            at.cast::<u8>().add(page * PAGE).write_volatile(1);
            if monotonic_ns() > until_ns {
                break;
            }
        }
        libc::munmap(at, PAGE * PAGES);
    }
}

/// `count` windows, a little apart.
fn windows(count: usize, mut plant: impl FnMut() -> (u64, u64)) -> Vec<(u64, u64)> {
    (0..count)
        .map(|_| {
            pause(40 * MS);
            plant()
        })
        .collect()
}

fn hog(count: usize) -> Option<(Report, Outcome)> {
    let child = cyclictest()?;
    let watch = Watch::start(child.0.id(), patient());
    let mut hog = Role::start("hog");
    let windows = windows(count, || hog.plant());
    let report = watch.finish();
    let outcome = judged(&report, &windows, &[Cause::HigherPriority], "hog");
    Some((report, outcome))
}

fn stopped(count: usize) -> Option<Outcome> {
    let child = cyclictest()?;
    let watch = Watch::start(child.0.id(), patient());
    let pid = child.0.id() as i32;
    let windows = windows(count, || {
        let from_ns = monotonic_ns();
        // SAFETY: signals a child of this test that is not yet waited for.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        pause(10 * MS);
        // SAFETY: as above.
        unsafe { libc::kill(pid, libc::SIGCONT) };
        (from_ns, monotonic_ns())
    });
    Some(judged(&watch.finish(), &windows, &[Cause::Stopped], ""))
}

/// Beside cyclictest, by a role of this program.
fn beside(role: &str, count: usize, expected: &[Cause], who: &str) -> Option<Outcome> {
    let child = cyclictest()?;
    let watch = Watch::start(child.0.id(), patient());
    let mut role = Role::start(role);
    let windows = windows(count, || {
        // Thousands of timers are as many events: the kernel's memory for them must not run over
        // before they are read.
        pause(200 * MS);
        role.plant()
    });
    Some(judged(&watch.finish(), &windows, expected, who))
}

fn in_role(role: &str, count: usize, expected: &[Cause], who: &str) -> Outcome {
    in_role_with(role, count, expected, who, patient())
}

fn in_role_with(role: &str, count: usize, expected: &[Cause], who: &str, settings: Settings) -> Outcome {
    let mut role = Role::start(role);
    let watch = Watch::start(role.child.id(), settings);
    let windows = windows(count, || role.plant());
    judged(&watch.finish(), &windows, expected, who)
}

/// The program's own long cycle, in a language that nobody here made: a loop that sleeps for 2 ms
/// and computes for long now and then.
fn long_python(count: usize) -> Option<Outcome> {
    let code = "
import os, time
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(40))
n = 0
while True:
    time.sleep(0.005)
    n += 1
    if n % 100 == 0:
        begin = time.monotonic()
        while time.monotonic() < begin + 0.02: pass
";
    let child = python(code)?;
    let watch = Watch::start(child.0.id(), Settings { late_ns: Some(4 * MS), ..patient() });
    pause(count as u64 * 700 * MS);
    let report = watch.finish();
    let thread = report.threads.iter().find(|thread| thread.period_us.is_some())?;
    // Its own computing is the only thing that takes 20 ms in one cycle.
    let long: Vec<_> = thread.windows.iter().filter(|late| late.response_us > 19_000.0).take(count).collect();
    let mut outcome = Outcome { cases: long.len(), ..Outcome::default() };
    for late in long {
        match late.cause {
            Cause::Execution | Cause::ExecutionOrFirmware => outcome.right += 1,
            cause => outcome.wrong.push((cause, late.who.clone())),
        }
    }
    Some(outcome)
}

const LONG: [Cause; 2] = [Cause::Execution, Cause::ExecutionOrFirmware];
const FAULTS: [Cause; 1] = [Cause::PageFault];
const LOCK: [Cause; 1] = [Cause::Lock];

#[test]
fn a_hog_beside_cyclictest_is_named() {
    let _machine = alone();
    if !can_trace() {
        return;
    }
    // What else this machine does may hide a few.
    for attempt in 1..=3 {
        let Some((report, outcome)) = hog(FEW) else { return };
        let thread = report.threads.iter().max_by(|a, b| a.rate_hz.total_cmp(&b.rate_hz)).unwrap();
        let period_us = thread.period_us.unwrap_or(0.0);
        let found = thread.kind == LoopKind::Periodic && (period_us - 2000.0).abs() < 20.0;
        let text = format!("{outcome:?}, period {period_us}, {:?}", thread.kind);
        if found && outcome.right >= FEW / 2 {
            assert_eq!(thread.policy, "fifo:50");
            assert!(thread.kept_by.iter().any(|share| share.who.contains("hog")), "{:?}", thread.kept_by);
            assert!(
                report.totals.iter().any(|total| total.cause == Cause::HigherPriority),
                "{:?}",
                report.totals
            );
            return;
        }
        assert!(attempt < 3, "{text}");
    }
}

#[test]
fn a_long_cycle_of_its_own_is_named() {
    let _machine = alone();
    if !can_trace() {
        return;
    }
    for attempt in 1..=3 {
        let outcome = in_role("long", FEW, &LONG, "");
        if outcome.right >= FEW / 2 {
            return;
        }
        assert!(attempt < 3, "{outcome:?}");
    }
}

/// Twenty of every class, and twenty windows in which nothing was planted.
#[test]
#[ignore = "a campaign of a few minutes on a quiet machine"]
fn campaign_eighteen_of_twenty_are_named_in_every_class() {
    let _machine = alone();
    assert!(can_trace());
    let mut short = Vec::new();
    let only = std::env::var("TAKT_CLASS").unwrap_or_default();
    let mut judge_case = |name: &str, plant: &dyn Fn() -> Option<Outcome>| {
        let Some(outcome) = name.contains(&only).then(plant).flatten() else { return };
        println!(
            "{name}: {} of {} named, {} not late, wrong: {:?}",
            outcome.right, outcome.cases, outcome.not_late, outcome.wrong
        );
        if outcome.right * 10 < MANY * 9 {
            short.push(name.to_owned());
        }
    };
    judge_case("another thread (hog beside cyclictest)", &|| hog(MANY).map(|found| found.1));
    judge_case("stopped (SIGSTOP to cyclictest)", &|| stopped(MANY));
    judge_case("lock held", &|| Some(in_role("lock", MANY, &LOCK, "holder")));
    judge_case("waited for", &|| Some(in_role("waited", MANY, &[Cause::Waited], "holder")));
    judge_case("own helper thread", &|| Some(in_role("own", MANY, &[Cause::OwnThread], "helper")));
    judge_case("throttled", &|| {
        let settings = Settings { deadline_ns: Some(10 * MS), ..patient() };
        Some(in_role_with("throttled", MANY, &[Cause::Throttled], "", settings))
    });
    judge_case("software interrupt", &|| beside("softirq", MANY, &[Cause::Softirq], "NET_RX"));
    judge_case("interrupt", &|| beside("interrupt", MANY, &[Cause::Interrupt], ""));
    judge_case("page faults", &|| Some(in_role("faults", MANY, &FAULTS, "")));
    judge_case("its own long cycle", &|| Some(in_role("long", MANY, &LONG, "")));
    judge_case("its own long cycle, Python", &|| long_python(MANY));
    judge_case("idle exit", &|| hypervisor::idle_exits(MANY));
    judge_case("steal", &|| hypervisor::stolen(MANY));
    let made_up = if "nothing planted".contains(&only) { nothing_planted() } else { 0 };
    assert!(short.is_empty() && made_up == 0, "less than 18 of 20: {short:?}; made up: {made_up}");
}

/// Number of twenty windows that are given a planted class: the machine's own disturbances must not
/// be.
fn nothing_planted() -> usize {
    let child = cyclictest().unwrap();
    let watch = Watch::start(child.0.id(), patient());
    let windows = windows(MANY, || {
        let from_ns = monotonic_ns();
        pause(40 * MS);
        (from_ns, monotonic_ns())
    });
    let report = watch.finish();
    let planted = [
        Cause::Stopped,
        Cause::Lock,
        Cause::Waited,
        Cause::OwnThread,
        Cause::Throttled,
        Cause::Softirq,
        Cause::Interrupt,
        Cause::PageFault,
        Cause::Execution,
        Cause::ExecutionOrFirmware,
    ];
    let none = judged(&report, &windows, &planted, "");
    let hogs = judged(&report, &windows, &[Cause::HigherPriority], "hog");
    println!(
        "nothing planted: {} of {MANY} windows called a planted class, others {:?}",
        none.right, none.wrong
    );
    none.right + hogs.right
}
