//! Wake-up lateness of a 1 kHz SCHED_FIFO loop against `cyclictest` with the same priority and CPU.
//! The measurements alternate, so that what else happens on the machine strikes all alike.
//!
//! `cargo bench -p takt-rt --bench lateness [-- --rounds 5 --seconds 4 --cpu 1 --priority 80]`

use std::process::ExitCode;
use std::time::Duration;

use takt_rt::memory::MemoryLock;
use takt_rt::periodic::SleepStrategy;
use takt_rt::placement::{self, CpuSet};
use takt_rt::policy::Policy;
use takt_rt::probe::{Lateness, Probe, cyclictest, wakeup_lateness};
use takt_rt::settings::ThreadSettings;

const PERIOD: Duration = Duration::from_millis(1);

struct Options {
    rounds: usize,
    seconds: usize,
    cpu: usize,
    priority: u8,
}

fn options() -> Result<Options, String> {
    let last = placement::online().map_err(|error| error.to_string())?.iter().last().unwrap_or(0);
    let mut options = Options { rounds: 5, seconds: 4, cpu: last, priority: 80 };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        // Cargo adds `--bench`.
        if name == "--bench" {
            continue;
        }
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        let number: usize = value.parse().map_err(|_| format!("{name}: `{value}` is not a number"))?;
        match name.as_str() {
            "--rounds" => options.rounds = number,
            "--seconds" => options.seconds = number,
            "--cpu" => options.cpu = number,
            "--priority" => options.priority = u8::try_from(number).map_err(|_| "priority beyond 99")?,
            _ => return Err(format!("unknown option {name}; known: --rounds --seconds --cpu --priority")),
        }
    }
    Ok(options)
}

/// One way to wake up, over all rounds.
struct Series {
    name: &'static str,
    rounds: Vec<Lateness>,
}

impl Series {
    fn all(&self) -> Lateness {
        let samples_ns = self.rounds.iter().flat_map(|round| round.samples_ns.iter().copied()).collect();
        Lateness { samples_ns, skipped: 0, granted: None, dma_latency_error: None }
    }

    fn quantile_us(&self, q: f64) -> f64 {
        self.all().quantile_ns(q).unwrap_or(0) as f64 / 1e3
    }

    fn print(&self) {
        let of_round = |q| {
            let each: Vec<_> = self
                .rounds
                .iter()
                .map(|round| format!("{:.1}", round.quantile_ns(q).unwrap_or(0) as f64 / 1e3))
                .collect();
            each.join(" ")
        };
        println!(
            "{:<12} median {:8.2} us   p99.9 {:8.2} us   max {:8.2} us   ({} samples)",
            self.name,
            self.quantile_us(0.5),
            self.quantile_us(0.999),
            self.quantile_us(1.0),
            self.all().samples_ns.len()
        );
        println!("{:<12} medians per round: {}", "", of_round(0.5));
        println!("{:<12} p99.9 per round:   {}", "", of_round(0.999));
    }
}

fn run() -> Result<(), String> {
    let options = options()?;
    let cycles = options.seconds * 1000;
    let settings = ThreadSettings {
        policy: Policy::Fifo { priority: options.priority },
        cpus: Some(CpuSet::single(options.cpu).map_err(|error| error.to_string())?),
        lock_memory: MemoryLock::All,
        prefault_stack_bytes: 64 << 10,
        ..ThreadSettings::default()
    };
    let mut kernel = Series { name: "kernel sleep", rounds: Vec::new() };
    let mut spin = Series { name: "spin sleep", rounds: Vec::new() };
    let mut cyclic = Series { name: "cyclictest", rounds: Vec::new() };
    let mut missing = None;
    println!(
        "1 kHz, SCHED_FIFO {}, CPU {}, {} alternations of {} s each",
        options.priority, options.cpu, options.rounds, options.seconds
    );
    for round in 0..options.rounds {
        for (series, sleep) in [(&mut kernel, SleepStrategy::Kernel), (&mut spin, SleepStrategy::spin())] {
            let probe = Probe { settings: settings.clone(), period: PERIOD, cycles, sleep };
            let lateness = wakeup_lateness(&probe).map_err(|error| error.to_string())?;
            if round == 0 && sleep == SleepStrategy::Kernel {
                for difference in lateness.granted.iter().flat_map(|granted| &granted.differences) {
                    println!("NOT AS ASKED: {difference}");
                }
                if let Some(error) = &lateness.dma_latency_error {
                    println!("NOT AS ASKED: {error}");
                }
            }
            series.rounds.push(lateness);
            // cyclictest between the two, so that it has each for a neighbour.
            if sleep == SleepStrategy::Kernel && missing.is_none() {
                match cyclictest(options.priority, options.cpu, PERIOD, cycles) {
                    Ok(lateness) => cyclic.rounds.push(lateness),
                    Err(error) => missing = Some(error),
                }
            }
        }
    }
    kernel.print();
    spin.print();
    if let Some(error) = missing {
        println!("cyclictest   NO COMPARISON: {error}");
        return Ok(());
    }
    cyclic.print();
    for series in [&kernel, &spin] {
        println!(
            "{} / cyclictest: median {:.3}, p99.9 {:.3}",
            series.name,
            series.quantile_us(0.5) / cyclic.quantile_us(0.5),
            series.quantile_us(0.999) / cyclic.quantile_us(0.999)
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lateness: {error}");
            ExitCode::FAILURE
        }
    }
}
