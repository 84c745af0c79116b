//! A program that is watched, interference planted beside it or in it, and what the watch says of
//! each planted window.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_rt::clock::{monotonic_ns, sleep_until};
use takt_trace::Cause;
use takt_trace::analysis::Late;
use takt_watch::{FollowBy, Options, Report, Settings, Target, TraceOptions, watch};

pub const MS: u64 = 1_000_000;

pub fn pause(ns: u64) {
    sleep_until(monotonic_ns() + ns);
}

/// Follower of the threads in the campaigns: TAKT_FOLLOW is `kernel` or `events`.
pub fn follow() -> FollowBy {
    match std::env::var("TAKT_FOLLOW").as_deref() {
        Ok("kernel") => FollowBy::Kernel,
        Ok("events") => FollowBy::Events,
        _ => FollowBy::Auto,
    }
}

pub fn spin(ns: u64) {
    let until_ns = monotonic_ns() + ns;
    while monotonic_ns() < until_ns {
        std::hint::spin_loop();
    }
}

/// This very program, started anew in a role; `steer` and `output` are its standard input and
/// output.
pub struct Role {
    pub child: Child,
    pub steer: ChildStdin,
    pub output: BufReader<ChildStdout>,
}

impl Role {
    pub fn start(name: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "planted::a_role", "--nocapture"])
            .env("TAKT_WATCH_ROLE", name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (steer, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut role = Self { child, steer, output };
        assert_eq!(role.line(), "ready", "the role {name} did not start");
        role
    }

    /// The next line that begins with `RESULT `; empty at the end.
    pub fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return String::new();
            }
            if let Some(output) = line.split_once("RESULT ") {
                return output.1.trim().to_owned();
            }
        }
    }

    /// One planted disturbance: asked for, done, and the window that it took.
    pub fn plant(&mut self) -> (u64, u64) {
        writeln!(self.steer, "plant").unwrap();
        let line = self.line();
        let (from, to) = line.split_once(' ').unwrap_or_else(|| panic!("\"{line}\" is no window"));
        (from.parse().unwrap(), to.parse().unwrap())
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Outcome of planted windows.
#[derive(Debug, Default)]
pub struct Outcome {
    pub cases: usize,
    pub right: usize,
    pub wrong: Vec<(Cause, String)>,
    /// Windows in which no cycle was late at all.
    pub not_late: usize,
}

/// A watch of one process in the background.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Report>,
}

impl Watch {
    pub fn start(pid: u32, settings: Settings) -> Self {
        Self::start_with(pid, settings, TraceOptions::default())
    }

    pub fn start_with(pid: u32, settings: Settings, trace: TraceOptions) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let options = Options {
                target: Target::Process(pid as i32),
                seconds: None,
                settings,
                expected: Default::default(),
                trace,
            };
            watch(&options, &flag, None, &mut |_| {}).unwrap()
        });
        // The capture has begun and the rhythm was seen.
        pause(1_500 * MS);
        Self { stop, thread }
    }

    pub fn finish(self) -> Report {
        pause(50 * MS);
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

/// Whether kernel events can be had here; where not, says SKIPPED.
pub fn can_trace() -> bool {
    match takt_trace::Tracer::start(&TraceOptions::default()) {
        Ok(_) => true,
        Err(error) => {
            takt_witness::skip!("{error}");
            false
        }
    }
}

/// Judges windows by the worst late cycle that each touches; `who` is a part of the name that must
/// be blamed. Of real-time threads: what else a role has (it reads lines, it holds a lock) waits
/// for whatever the machine does besides.
pub fn judged(report: &Report, windows: &[(u64, u64)], expected: &[Cause], who: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let judged = report.threads.iter().filter(|thread| !thread.policy.starts_with("other"));
    let late: Vec<&Late> = judged.flat_map(|thread| &thread.windows).collect();
    for &(from_ns, to_ns) in windows {
        let touched = late.iter().filter(|late| late.end_ns >= from_ns && late.planned_ns <= to_ns);
        let weight = |late: &Late| late.lateness_us.max(late.response_us);
        let Some(worst) = touched.max_by(|a, b| weight(a).total_cmp(&weight(b))) else {
            outcome.not_late += 1;
            continue;
        };
        outcome.cases += 1;
        if expected.contains(&worst.cause) && worst.who.contains(who) {
            outcome.right += 1;
        } else {
            let parts: Vec<_> =
                worst.parts.iter().map(|part| (part.cause, part.who.as_str(), part.ns / 1000)).collect();
            println!("  wrong: {:?} {} {:.0} us: {parts:?}", worst.cause, worst.who, weight(worst));
            outcome.wrong.push((worst.cause, worst.who.clone()));
        }
    }
    if outcome.not_late > 0 || !outcome.wrong.is_empty() {
        let late: u64 = report.threads.iter().map(|thread| thread.late).sum();
        println!("  {} events lost, {late} cycles late, {:?}", report.lost_events, report.notes);
    }
    outcome
}
