//! Flies the default quadrotor in real time and prints lateness and control quality:
//! `cargo run -p takt-robot-uav --example fly -- fifo:99 2500`.

use std::time::Duration;

use takt_robot_uav::{Flight, UavConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut config = UavConfig::default();
    if let Some(policy) = arguments.next() {
        config.attitude.policy = policy.parse()?;
    }
    if let Some(iterations) = arguments.next() {
        config.iterations = iterations.parse()?;
    }
    let mut flight = Flight::start(&config)?;
    for sentence in flight.not_granted() {
        println!("not granted: {sentence}");
    }
    let mut rings = flight.take_records().ok_or("the records are there once")?;
    let mut records = Vec::new();
    while !flight.is_finished() {
        rings.attitude.take_into(&mut records, usize::MAX);
        std::thread::sleep(Duration::from_millis(10));
    }
    for problem in flight.stop() {
        println!("problem: {problem}");
    }
    rings.attitude.take_into(&mut records, usize::MAX);
    let show = |name: &str, mut times_ns: Vec<u64>| {
        times_ns.sort_unstable();
        let us = |quantile: f64| {
            let rank = ((quantile * times_ns.len() as f64).ceil() as usize).clamp(1, times_ns.len());
            times_ns[rank - 1] as f64 / 1e3
        };
        println!("{name:>12}: median {:.1} us, P99 {:.1} us, max {:.1} us", us(0.5), us(0.99), us(1.0));
    };
    show("lateness", records.iter().map(|record| record.lateness_ns()).collect());
    show("control law", records.iter().map(|record| record.control_ns()).collect());
    show("whole job", records.iter().map(|record| record.job_ns()).collect());
    let mean_square = records.iter().map(|r| r.position_error_m.powi(2)).sum::<f64>() / records.len() as f64;
    let skipped: u64 = records.iter().map(|record| record.skipped).sum();
    let loss = records.last().and_then(|record| record.loss);
    println!(
        "{} jobs, {skipped} skipped, RMS {:.1} mm, loss {loss:?}",
        records.len(),
        mean_square.sqrt() * 1e3
    );
    Ok(())
}
