//! What a cycle costs a master beyond waking up for it: CPU time per cycle at 1 kHz above that of a
//! loop that only sleeps, for Takt's master (`Port::exchange`) and for pysoem, in turn on one
//! simulated segment of 59 devices.
//!
//! `cargo run --release -p takt-link-ethercat --example cost_above_sleep -- [ROUNDS [SECONDS]]` as
//! root, with `pip install pysoem==1.1.13`. The segment runs in a process of its own; each master
//! is a process of its own, too, and the time reported is that process's, system calls included:
//! handing a frame to a veth pair carries it to the other end, which a network card's driver would
//! not.

use std::error::Error;
use std::io::Write;
use std::process::{Command, Stdio};

use takt_link_ethercat::control::{ControlConfig, ExchangeMode, Interface, Port, bring_up};
use takt_link_ethercat::segment::veth::{VethPair, serve};
use takt_link_ethercat::segment::{Segment, SegmentConfig};
use takt_rt::clock;
use takt_rt::placement::{self, CpuSet};

use served::Served;

mod served;

const DEVICES: usize = 59;
const PERIOD_NS: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", interface] => return run_segment(interface),
        ["takt", mode, interface, seconds] => return run_takt(interface, seconds.parse()?, mode),
        _ => {}
    }
    let rounds: usize = words.first().map_or(Ok(5), |text| text.parse())?;
    let seconds = words.get(1).unwrap_or(&"3");
    let pair = VethPair::unique()?;
    let masters = ["takt pipelined", "takt waiting", "pysoem"];
    // The segment has a CPU and the master another: else the scheduler puts them together in some
    // rounds and apart in others.
    let cpus: Vec<usize> = placement::online()?.iter().collect();
    let [of_segment, of_master] = [0, 1].map(|at| CpuSet::single(cpus[at % cpus.len()]));
    let (of_segment, of_master) = (of_segment?, of_master?);
    let mut costs: Vec<Vec<f64>> = vec![Vec::new(); masters.len()];
    println!("{:<16} {:>12} {:>12} {:>12}  (us of CPU a cycle)", "master", "sleep", "cycle", "above sleep");
    for _ in 0..rounds {
        for (master, costs) in masters.iter().zip(&mut costs) {
            placement::set_affinity(0, &of_segment)?;
            let segment = Served::start(&pair)?;
            placement::set_affinity(0, &of_master)?;
            let mut command = match master.strip_prefix("takt ") {
                Some(mode) => {
                    let mut command = Command::new(std::env::current_exe()?);
                    command.args(["takt", mode, pair.master(), seconds]);
                    command
                }
                None => {
                    let script =
                        concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/pysoem_segment.py");
                    let mut command = Command::new("python3");
                    command.args([script, pair.master(), &DEVICES.to_string(), "cost", seconds]);
                    command
                }
            };
            let output = command.stderr(Stdio::inherit()).output()?;
            drop(segment);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let line = text.lines().find_map(|line| line.strip_prefix("cost "));
            let numbers: Vec<f64> =
                line.unwrap_or_default().split(' ').filter_map(|word| word.parse().ok()).collect();
            let [sleep, cycle, wrong] = numbers[..] else {
                // As where a device was not in SAFE-OP in time: the round goes on without this one.
                println!("{master:<16} did not end well ({}): {}", output.status, text.trim_end());
                continue;
            };
            println!(
                "{master:<16} {sleep:>12.2} {cycle:>12.2} {:>12.2}  {wrong} cycles wrong",
                cycle - sleep
            );
            costs.push(cycle - sleep);
        }
    }
    for (master, costs) in masters.iter().zip(&mut costs) {
        costs.sort_by(f64::total_cmp);
        let at =
            |share: usize| costs.get(costs.len().saturating_sub(1) * share / 2).copied().unwrap_or(f64::NAN);
        println!("{master:<16} above sleep: least {:.2}, median {:.2}, greatest {:.2}", at(0), at(1), at(2));
    }
    Ok(())
}

fn run_takt(interface: &str, seconds: f64, mode: &str) -> Result<(), Box<dyn Error>> {
    let pipelined = mode == "pipelined";
    let config = ControlConfig {
        mode: if pipelined { ExchangeMode::Pipelined } else { ExchangeMode::Waiting },
        // However busy this machine is: what is measured is CPU time.
        silence_ms: 2000,
        bring_up_ms: 20_000,
        ..ControlConfig::default()
    };
    let mut link = bring_up(Box::new(Interface::open(interface)?), &config, &mut |_| {})?;
    let mut wrong = 0_u64;
    // Bare sleep last: devices in OP want cycles.
    let exchange = |port: &mut Port| {
        let exchanged = port.exchange(0);
        wrong += u64::from(!exchanged.complete());
    };
    let cycle_us = paced(seconds, &mut link.port, exchange);
    let sleep_us = paced(seconds, &mut link.port, |_| {});
    println!("cost {sleep_us} {cycle_us} {wrong}");
    Ok(())
}

/// CPU time a cycle at 1 kHz, microseconds.
fn paced(seconds: f64, port: &mut Port, mut cycle: impl FnMut(&mut Port)) -> f64 {
    let cycles = (seconds * 1e9 / PERIOD_NS as f64) as u64;
    let cpu_ns = clock::process_cpu_ns();
    let mut due_ns = clock::monotonic_ns();
    for _ in 0..cycles {
        cycle(port);
        due_ns += PERIOD_NS;
        clock::sleep_until(due_ns);
    }
    (clock::process_cpu_ns() - cpu_ns) as f64 / 1e3 / cycles as f64
}

/// The child: serves until its input ends.
fn run_segment(interface: &str) -> Result<(), Box<dyn Error>> {
    let segment = Segment::new(&SegmentConfig { watchdog_ms: 5000, ..SegmentConfig::humanoid(DEVICES) })?;
    let server = serve(interface, segment, "segment", &Default::default())?;
    println!("bound");
    std::io::stdout().flush()?;
    std::io::stdin().lines().for_each(drop);
    drop(server);
    Ok(())
}
