//! What a call of `ros_trace_*` costs the process, in one run with all probes by turns: nobody
//! listens, the preload probe (with and without CPU time), LTTng-UST (the provider `ros2`, with the
//! contexts that `ros2 trace` adds), uprobes.
//!
//! `cargo run -p takt-ros --example probe_cost -- [turns]`. Figures are CPU nanoseconds of the
//! calling thread per call, so that load on the machine does not count: of batches of 90 calls
//! (nine of each function that a callback with one publication makes), the median, and the tenth
//! percentile. Between batches it sleeps, as executors do, and readers come to run.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use takt_ros::Source;
use takt_ros::preload::{CpuClock, ProbeOptions, ProbeSession};
use takt_ros::standin::Tracepoints;
use takt_ros::uprobes::{self, UprobeOptions};

const ROLE: &str = "TAKT_COST_CHILD";
const ROUNDS: u64 = 10;
const CALLS: u64 = 9 * ROUNDS;
const BATCHES: usize = 400;

type Failure = Box<dyn std::error::Error>;

fn address<T>(value: u64) -> *const T {
    std::ptr::without_provenance(value as usize)
}

fn cpu_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

fn batch(calls: &Tracepoints) {
    for number in 1..=ROUNDS {
        calls.rclcpp_executor_get_next_ready();
        calls.rclcpp_executor_execute(address(1));
        calls.rmw_take(address(2), address(3), number as i64, true);
        calls.callback_start(address(4), false);
        calls.rclcpp_publish(address(5), address(6));
        calls.rcl_publish(address(7), address(6));
        calls.rmw_publish(address(8), address(6), number as i64);
        calls.callback_end(address(4));
        calls.rclcpp_executor_wait_for_work(-1);
    }
}

/// Prints one line: CPU nanoseconds of each batch.
fn child() -> Result<(), Failure> {
    let calls = Tracepoints::find();
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    for _ in 0..20 {
        batch(&calls);
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut spent = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        // Warm again after the sleep, as the calls within one callback are.
        batch(&calls);
        let before = cpu_ns();
        batch(&calls);
        spent.push((cpu_ns() - before).to_string());
        std::thread::sleep(Duration::from_micros(500));
    }
    println!("{}", spent.join(" "));
    Ok(())
}

enum Listener {
    Nobody,
    Preload(CpuClock),
    Lttng,
    Uprobes,
}

struct Turn {
    spent: Vec<u64>,
    events: u64,
    lost: u64,
    /// CPU time of the reader.
    read_ns: u64,
    /// Time until all probes were there, and for taking them away.
    attach: Duration,
    detach: Duration,
}

fn run(listener: &Listener, lttng: Option<&Lttng>) -> Result<Turn, Failure> {
    let cpu_clock = match listener {
        Listener::Preload(cpu_clock) => *cpu_clock,
        _ => CpuClock::Needed,
    };
    let session =
        ProbeSession::create(&ProbeOptions { stand_in: true, cpu_clock, ..ProbeOptions::default() })?;
    let mut command = Command::new(std::env::current_exe()?);
    command.env(ROLE, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    match (listener, lttng) {
        (Listener::Preload(_), _) => {
            session.prepare(&mut command);
        }
        (Listener::Lttng, Some(lttng)) => {
            command.env("LD_PRELOAD", &lttng.library);
        }
        _ => {
            command.env("LD_PRELOAD", session.directory().join("libtracetools.so"));
        }
    }
    let mut process = command.spawn()?;
    let mut output = BufReader::new(process.stdout.take().ok_or("no output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    let before_attach = Instant::now();
    let mut uprobes = match listener {
        Listener::Uprobes => {
            let attached =
                uprobes::Probe::attach(&UprobeOptions { pids: vec![process.id()], ..Default::default() });
            if attached.is_err() {
                process.kill()?;
                process.wait()?;
            }
            Some(attached?)
        }
        _ => None,
    };
    let attach = before_attach.elapsed();
    let mut preload = session.probe()?;
    process.stdin.take().ok_or("no input")?.write_all(b"go\n")?;
    let reader = std::thread::spawn(move || {
        let mut line = String::new();
        output.read_line(&mut line).map(|_| line)
    });
    let (mut events, mut read_ns) = (0, 0);
    loop {
        let done = reader.is_finished();
        let before = cpu_ns();
        events += match &mut uprobes {
            Some(uprobes) => uprobes.poll(&mut |_| ())? as u64,
            None => preload.poll(&mut |_| ())? as u64,
        };
        read_ns += cpu_ns() - before;
        if done {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    process.wait()?;
    let line = reader.join().map_err(|_| "the reading thread failed")??;
    let lost = preload.processes().map(|info| info.lost).sum::<u64>()
        + uprobes.as_ref().map_or(0, |probe| probe.info().lost);
    let before_detach = Instant::now();
    drop(uprobes);
    let detach = before_detach.elapsed();
    let spent = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    Ok(Turn { spent, events, lost, read_ns, attach, detach })
}

/// A session of LTTng and the library that reports to it.
struct Lttng {
    library: PathBuf,
    name: String,
    _directory: tempfile::TempDir,
}

impl Lttng {
    fn start() -> Result<Self, Failure> {
        let directory = tempfile::tempdir()?;
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/reference/lttng-ros2");
        let library = directory.path().join("libtracetools.so");
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-fPIC", "-shared", "-o"]).arg(&library).arg("-I").arg(&sources);
        succeeded(cc.arg(sources.join("tracetools.c")).args(["-llttng-ust", "-ldl"]))?;
        let name = format!("takt-cost-{}", std::process::id());
        let traces = directory.path().join("trace");
        lttng(&["create", &name, "--output", traces.to_str().ok_or("path")?])?;
        let session = Self { library, name, _directory: directory };
        let session_name = session.name.as_str();
        lttng(&["enable-event", "--userspace", "--session", session_name, "ros2:*"])?;
        let contexts = ["-t", "vpid", "-t", "vtid", "-t", "procname"];
        lttng(&[&["add-context", "--userspace", "--session", session_name][..], &contexts].concat())?;
        lttng(&["start", session_name])?;
        Ok(session)
    }
}

impl Drop for Lttng {
    fn drop(&mut self) {
        let _ = lttng(&["destroy", "--no-wait", &self.name]);
    }
}

fn lttng(arguments: &[&str]) -> Result<(), Failure> {
    succeeded(Command::new("lttng").arg("--quiet").args(arguments))
}

fn succeeded(command: &mut Command) -> Result<(), Failure> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// Reads the clocks as often as a batch has calls, for comparison.
fn clock_cost(clock: libc::clockid_t) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..50 {
        let before = Instant::now();
        for _ in 0..100 {
            let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the kernel writes one timespec.
            unsafe { libc::clock_gettime(clock, &raw mut now) };
            std::hint::black_box(now.tv_nsec);
        }
        best = best.min(before.elapsed().as_nanos() as f64 / 100.0);
    }
    best
}

fn main() -> Result<(), Failure> {
    if std::env::var_os(ROLE).is_some() {
        return child();
    }
    let turns: usize = std::env::args().nth(1).map_or(Ok(5), |turns| turns.parse())?;
    println!(
        "reading CLOCK_MONOTONIC: {:.0} ns, CLOCK_THREAD_CPUTIME_ID: {:.0} ns (least of 50)",
        clock_cost(libc::CLOCK_MONOTONIC),
        clock_cost(libc::CLOCK_THREAD_CPUTIME_ID)
    );
    let lttng = Lttng::start().inspect_err(|error| println!("without LTTng-UST: {error}")).ok();
    let mut listeners = vec![
        ("nobody listens", Listener::Nobody),
        ("preload, no CPU time", Listener::Preload(CpuClock::None)),
        ("preload, CPU time where needed", Listener::Preload(CpuClock::Needed)),
        ("preload, CPU time always", Listener::Preload(CpuClock::All)),
        ("LTTng-UST", Listener::Lttng),
        ("uprobes", Listener::Uprobes),
    ];
    listeners.retain(|(_, listener)| lttng.is_some() || !matches!(listener, Listener::Lttng));
    let mut results = BTreeMap::<usize, Turn>::new();
    for _ in 0..turns {
        for (index, (name, listener)) in listeners.iter().enumerate() {
            match run(listener, lttng.as_ref()) {
                Ok(turn) => {
                    let Some(sum) = results.get_mut(&index) else {
                        results.insert(index, turn);
                        continue;
                    };
                    sum.spent.extend(turn.spent);
                    sum.events += turn.events;
                    sum.lost += turn.lost;
                    sum.read_ns += turn.read_ns;
                    (sum.attach, sum.detach) = (sum.attach.max(turn.attach), sum.detach.max(turn.detach));
                }
                Err(error) => println!("without {name}: {error}"),
            }
        }
    }
    let sorted = |index: usize| {
        let mut spent = results.get(&index).map(|turn| turn.spent.clone()).unwrap_or_default();
        spent.sort_unstable();
        spent
    };
    let at = |spent: &[u64], share: f64| {
        let place = (spent.len() as f64 * share) as usize;
        spent.get(place).map_or(f64::NAN, |&ns| ns as f64 / CALLS as f64)
    };
    let base = at(&sorted(0), 0.5);
    println!(
        "{:32} {:>8} {:>8} {:>14} {:>9} {:>6} {:>15}",
        "CPU ns per call", "median", "p10", "less nobody's", "events", "lost", "reader ns/event"
    );
    for (index, (name, _)) in listeners.iter().enumerate() {
        let Some(turn) = results.get(&index) else { continue };
        let spent = sorted(index);
        let (median, low, more) = (at(&spent, 0.5), at(&spent, 0.1), at(&spent, 0.5) - base);
        let read = turn.read_ns as f64 / turn.events as f64;
        println!(
            "{name:32} {median:8.1} {low:8.1} {more:14.1} {:9} {:6} {read:15.0}",
            turn.events, turn.lost
        );
        if turn.attach > Duration::from_millis(10) {
            println!("{:32} attached within {:?}, detached within {:?}", "", turn.attach, turn.detach);
        }
    }
    Ok(())
}
