//! Measures what the RTDE link costs: `send`, the way of a command to the controller and back, and
//! the simulator's share of a CPU.
//!
//! Usage: `cargo run --release -p takt-link-rtde --example rtde_costs [SECONDS]`

use std::time::Duration;
use takt_link_rtde::Command;
use takt_link_rtde::arm::{Mission, MissionThread};
use takt_link_rtde::client::{Link, Opened, RtdeConfig};
use takt_link_rtde::sim::{SimConfig, Simulator};
use takt_rt::clock::{monotonic_ns, process_cpu_ns, sleep_until, thread_cpu_ns};

const PERIOD_NS: u64 = 2_000_000;

fn quantile(sorted: &[u64], share: f64) -> f64 {
    let index = ((sorted.len().saturating_sub(1)) as f64 * share) as usize;
    sorted.get(index).copied().unwrap_or(0) as f64 / 1000.0
}

fn row(name: &str, samples: &mut [u64]) {
    samples.sort_unstable();
    println!(
        "{name:<34} n {:>6}  p50 {:>9.1} us  p99 {:>9.1} us  p99.9 {:>9.1} us  max {:>9.1} us",
        samples.len(),
        quantile(samples, 0.5),
        quantile(samples, 0.99),
        quantile(samples, 0.999),
        quantile(samples, 1.0),
    );
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(10), |text| text.parse())?;
    let simulator = Simulator::start(SimConfig::on_free_ports())?;
    let config = RtdeConfig { port: simulator.rtde_address().port(), ..RtdeConfig::default() };
    let Opened { link, mut commander, mut states, .. } = Link::open(&config, 1, 0)?;
    let mut reader = states.pop().ok_or("no reader")?;
    let mission = MissionThread::start(Mission::pick_and_place()?, config)?;

    let cycles = (seconds * 1_000_000_000 / PERIOD_NS) as usize;
    let mut sent_ns = vec![0_u64; cycles + 1];
    let (mut cost, mut trip) = (Vec::with_capacity(cycles), Vec::with_capacity(cycles));
    let (mut echoed, mut not_sent) = (0_usize, 0_u64);
    let (cpu_before, simulator_before) = (process_cpu_ns(), simulator.cpu_ns());
    let (start_ns, mine_before) = (monotonic_ns(), thread_cpu_ns());
    let mut next_ns = start_ns;
    for beat in 1..=cycles {
        next_ns += PERIOD_NS;
        sleep_until(next_ns);
        let state = *reader.read().value;
        let echo = usize::try_from(state.heartbeat_echo).unwrap_or(0);
        if echo > echoed {
            echoed = echo;
            trip.push(state.received_ns.saturating_sub(sent_ns[echo]));
        }
        let command = Command {
            speed_fraction: 1.0,
            digital_outputs: 1,
            digital_outputs_mask: 7,
            heartbeat: i32::try_from(beat)?,
            challenge: 1 + i32::try_from(beat / 500)?,
        };
        let before = monotonic_ns();
        let outcome = commander.send(&command);
        cost.push(monotonic_ns() - before);
        sent_ns[beat] = before;
        not_sent += u64::from(!outcome.is_sent());
    }
    let wall = (monotonic_ns() - start_ns) as f64;
    let mine = (thread_cpu_ns() - mine_before) as f64;
    // The simulator publishes its CPU time once a second.
    std::thread::sleep(Duration::from_millis(1100));
    let simulator_cpu = (simulator.cpu_ns() - simulator_before) as f64;
    let all = (process_cpu_ns() - cpu_before) as f64;
    row("Commander::send", &mut cost);
    row("command -> heartbeat echo received", &mut trip);
    println!("commands {cycles}, not sent {not_sent}, connections {}", link.connections());
    println!(
        "CPU: simulator {:.2} %, sending loop {:.2} %",
        simulator_cpu / wall * 100.0,
        mine / wall * 100.0
    );
    println!("CPU: whole process {:.2} %", all / wall * 100.0);
    println!("mission steps finished: {}", mission.progress().steps_finished);
    Ok(())
}
