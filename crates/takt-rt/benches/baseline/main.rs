//! Whether Takt's loop under SCHED_OTHER is the baseline that it is called: against a plain
//! `clock_nanosleep` loop in C ([`plain.c`](plain.c), compiled here with `cc`), with busy threads
//! beside both. A baseline that runs fewer jobs or comes later than a plain program would makes
//! every comparison with it void.
//!
//! `cargo bench -p takt-rt --bench baseline [-- --rounds 4 --most-rounds 12 --seconds 3 --period-us 2000 --loads 0,16,64]`
//!
//! Both loops are processes of their own, run one after the other with the order swapped each
//! round, so that what else happens on the machine strikes both alike. There are `--rounds` of
//! them, and more, up to `--most-rounds`, while the standard error of a ratio is above 5 %. Ends
//! with 0 where jobs and mean lateness of all rounds together are within 10 %, with 1 where they
//! are not, and with 2 where that cannot be reported: nothing ran, or the ratio is beyond 10 % by
//! less than two standard errors.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use takt_rt::periodic::{Periodic, SleepStrategy};

/// How far apart the two may be.
const TOLERANCE: f64 = 0.10;

/// Standard error of a ratio from which on more rounds are not worth their time.
const SETTLED: f64 = 0.05;

struct Options {
    rounds: usize,
    most_rounds: usize,
    seconds: u64,
    period_us: u64,
    loads: Vec<usize>,
}

fn options() -> Result<Options, String> {
    let mut options =
        Options { rounds: 4, most_rounds: 12, seconds: 3, period_us: 2000, loads: vec![0, 16, 64] };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        // Cargo adds `--bench`.
        if name == "--bench" {
            continue;
        }
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        let number = |text: &str| match text.parse::<u64>() {
            Ok(number @ 0..=1_000_000) => Ok(number),
            _ => Err(format!("{name}: `{text}` is not a number from 0 to 1000000")),
        };
        match name.as_str() {
            "--rounds" => options.rounds = number(&value)?.max(1) as usize,
            "--most-rounds" => options.most_rounds = number(&value)?.max(1) as usize,
            "--seconds" => options.seconds = number(&value)?.max(1),
            "--period-us" => options.period_us = number(&value)?.max(1),
            "--loads" => {
                let loads = value.split(',').map(|load| number(load).map(|load| load as usize));
                options.loads = loads.collect::<Result<_, _>>()?;
            }
            _ => {
                return Err(format!(
                    "unknown option {name}; known: --rounds --most-rounds --seconds --period-us --loads"
                ));
            }
        }
    }
    Ok(options)
}

/// What a loop did.
#[derive(Debug, Clone, Copy, Default)]
struct Outcome {
    jobs: u64,
    skipped: u64,
    lateness_ns: u64,
    greatest_ns: u64,
}

impl Outcome {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Self { jobs: next()?, skipped: next()?, lateness_ns: next()?, greatest_ns: next()? })
    }

    fn add(&mut self, other: Self) {
        self.jobs += other.jobs;
        self.skipped += other.skipped;
        self.lateness_ns += other.lateness_ns;
        self.greatest_ns = self.greatest_ns.max(other.greatest_ns);
    }

    fn mean_us(self) -> f64 {
        self.lateness_ns as f64 / 1e3 / self.jobs as f64
    }
}

/// Takt's loop, in the child: `main takt PERIOD_NS SECONDS`.
fn takt_loop(period_ns: u64, seconds: u64) -> Result<(), String> {
    let period = Duration::from_nanos(period_ns);
    let mut periodic =
        Periodic::start_now(period, SleepStrategy::Kernel).map_err(|error| error.to_string())?;
    let first_ns = periodic.planned_ns(0);
    let mut outcome = Outcome::default();
    loop {
        let release = periodic.next();
        if release.wake_ns - first_ns >= seconds * 1_000_000_000 {
            break;
        }
        outcome.jobs += 1;
        outcome.lateness_ns += release.lateness_ns();
        outcome.greatest_ns = outcome.greatest_ns.max(release.lateness_ns());
        outcome.skipped = periodic.skipped();
    }
    let Outcome { jobs, skipped, lateness_ns, greatest_ns } = outcome;
    println!("{jobs} {skipped} {lateness_ns} {greatest_ns}");
    Ok(())
}

fn compile(folder: &Path) -> Result<PathBuf, String> {
    let binary = folder.join("plain");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/baseline/plain.c");
    let status = Command::new("cc").args(["-O2", "-Wall", "-o"]).arg(&binary).arg(&source).status();
    match status {
        Ok(status) if status.success() => Ok(binary),
        Ok(status) => Err(format!("cc ended with {status} on {}", source.display())),
        Err(error) => Err(format!("no C compiler (`cc`): {error}")),
    }
}

fn outcome_of(command: &mut Command, period_ns: u64, seconds: u64) -> Result<Outcome, String> {
    let output = command.args([period_ns.to_string(), seconds.to_string()]).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Outcome::parse(&text)
        .filter(|outcome| outcome.jobs > 0)
        .ok_or_else(|| format!("{command:?} ended with {} and said `{}`", output.status, text.trim()))
}

/// Threads that compute until dropped, under the policy of the bench.
struct Busy(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl Busy {
    fn start(threads: usize) -> Result<Self, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut busy = Self(Arc::clone(&stop), Vec::new());
        for _ in 0..threads {
            let stop = Arc::clone(&stop);
            let body = move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            busy.1.push(std::thread::Builder::new().spawn(body).map_err(|error| error.to_string())?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        for thread in self.1.drain(..) {
            let _ = thread.join();
        }
    }
}

fn print(name: &str, outcome: Outcome) {
    println!(
        "  {name:<12} {:6} jobs  {:6} skipped   late {:10.1} us in the mean, {:10.1} us at most",
        outcome.jobs,
        outcome.skipped,
        outcome.mean_us(),
        outcome.greatest_ns as f64 / 1e3
    );
}

/// What a comparison comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Comparison {
    Alike,
    CannotTell,
    Differ,
}

/// A ratio of sums over all rounds, and how far chance moves it.
struct Ratio {
    value: f64,
    /// Of the mean of the rounds' logarithms; infinite for fewer than two rounds.
    standard_error: f64,
}

impl Ratio {
    /// Of what `of` reads from Takt's and the plain loop's outcomes.
    fn over(rounds: &[[Outcome; 2]], of: impl Fn(Outcome) -> f64) -> Self {
        let mut totals = [Outcome::default(); 2];
        for round in rounds {
            totals.iter_mut().zip(round).for_each(|(total, one)| total.add(*one));
        }
        let logs: Vec<f64> = rounds.iter().map(|[plain, takt]| (of(*takt) / of(*plain)).ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let standard_error = match logs.len() {
            0 | 1 => f64::INFINITY,
            count => (squares / (count - 1) as f64 / count as f64).sqrt(),
        };
        Self { value: of(totals[1]) / of(totals[0]), standard_error }
    }

    fn verdict(&self) -> Comparison {
        if (self.value - 1.0).abs() <= TOLERANCE {
            Comparison::Alike
        } else if self.value.ln().abs() - 2.0 * self.standard_error <= (1.0 + TOLERANCE).ln() {
            Comparison::CannotTell
        } else {
            Comparison::Differ
        }
    }
}

fn compare(options: &Options) -> Result<Comparison, String> {
    let folder = std::env::temp_dir().join(format!("takt-baseline-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let plain = compile(&folder);
    let compared = plain.and_then(|plain| {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        println!("SCHED_OTHER, a release every {} us, {} s a piece", options.period_us, options.seconds);
        let mut worst = Comparison::Alike;
        for &load in &options.loads {
            worst = worst.max(compare_at(options, load, &plain, &own)?);
        }
        Ok(worst)
    });
    let _ = std::fs::remove_dir_all(&folder);
    compared
}

/// All rounds at one load.
fn compare_at(options: &Options, load: usize, plain: &Path, own: &Path) -> Result<Comparison, String> {
    println!("{load} busy threads");
    let mut rounds: Vec<[Outcome; 2]> = Vec::new();
    loop {
        let number = rounds.len();
        let mut outcomes = [Outcome::default(); 2];
        let busy = Busy::start(load)?;
        for which in [number % 2, (number + 1) % 2] {
            let mut command = [Command::new(plain), Command::new(own)];
            command[1].arg("takt");
            let period_ns = options.period_us * 1000;
            outcomes[which] = outcome_of(&mut command[which], period_ns, options.seconds)?;
            print(["plain C", "Takt"][which], outcomes[which]);
        }
        drop(busy);
        rounds.push(outcomes);
        let jobs = Ratio::over(&rounds, |outcome| outcome.jobs as f64);
        let lateness = Ratio::over(&rounds, Outcome::mean_us);
        let settled = jobs.standard_error.max(lateness.standard_error) <= SETTLED;
        if rounds.len() >= options.most_rounds.max(options.rounds)
            || rounds.len() >= options.rounds && settled
        {
            let verdict = jobs.verdict().max(lateness.verdict());
            println!(
                "  Takt / plain C over {} rounds: jobs {:.3} (standard error {:.1} %), mean lateness {:.3} ({:.1} %): {}",
                rounds.len(),
                jobs.value,
                100.0 * jobs.standard_error,
                lateness.value,
                100.0 * lateness.standard_error,
                match verdict {
                    Comparison::Alike => "within 10 %",
                    Comparison::CannotTell => "CANNOT BE KNOWN, the machine does too much else",
                    Comparison::Differ => "NOT within 10 %",
                }
            );
            return Ok(verdict);
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        [word, period_ns, seconds] if word == "takt" => match (period_ns.parse(), seconds.parse()) {
            (Ok(period_ns), Ok(seconds)) => takt_loop(period_ns, seconds).map(|()| Comparison::Alike),
            _ => Err("takt PERIOD_NS SECONDS".to_owned()),
        },
        _ => options().and_then(|options| compare(&options)),
    };
    match outcome {
        Ok(Comparison::Alike) => ExitCode::SUCCESS,
        Ok(Comparison::Differ) => ExitCode::FAILURE,
        Ok(Comparison::CannotTell) => ExitCode::from(2),
        Err(error) => {
            eprintln!("baseline: {error}");
            ExitCode::from(2)
        }
    }
}
