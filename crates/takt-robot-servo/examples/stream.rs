//! Streams the motion of a robot file for some seconds and prints, as JSON, what the thread counted
//! and what the simulated controller's own log says.
//!
//! ```text
//! cargo run -p takt-robot-servo --example stream -- robots/servo.toml 10
//! ```

use std::time::{Duration, Instant};

use takt_robot_servo::{ServoConfig, controller_log};
use takt_rt::ring::ring;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: stream FILE.toml [SECONDS]")?;
    let seconds: f64 = arguments.next().as_deref().unwrap_or("10").parse()?;
    let config: ServoConfig = takt_lab::parse(&std::fs::read_to_string(&path)?)?;
    let log = config.simulator.as_ref().and_then(|simulator| simulator.log.clone());
    let (producer, mut records) = ring(1 << 16);
    let running = takt_robot_servo::start(&config, producer)?;
    for difference in running.granted().iter().flat_map(|granted| &granted.differences) {
        eprintln!("not granted: {difference}");
    }
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut cycles = Vec::with_capacity(1 << 16);
    let mut batch = Vec::with_capacity(4096);
    println!("streaming");
    while Instant::now() < until && !running.is_finished() {
        std::thread::sleep(Duration::from_millis(20));
        records.take_into(&mut batch, 4096);
        cycles.append(&mut batch);
    }
    let finished = running.stop()?;
    let mut packet_to_command: Vec<u64> =
        cycles.iter().filter_map(|cycle| cycle.packet_to_command_ns()).collect();
    packet_to_command.sort_unstable();
    let quantile = |q: f64| packet_to_command.get((packet_to_command.len() as f64 * q) as usize).copied();
    let view = match &log {
        Some(path) => Some(controller_log::view(&controller_log::read(path)?, config.rate_hz())),
        None => None,
    };
    let totals = &finished.totals;
    let summary = serde_json::json!({
        "finished": finished,
        "jitter_ns": totals.jitter_ns(),
        "period_rms_error_ns": totals.period_rms_error_ns(),
        "following_rms_rad": totals.following_rms_rad(),
        "packet_to_command_p50_ns": quantile(0.5),
        "packet_to_command_p999_ns": quantile(0.999),
        "controller": view,
    });
    println!("{}", serde_json::to_string_pretty(&summary)?);
    Ok(())
}
