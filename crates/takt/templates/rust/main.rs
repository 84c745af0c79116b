//! A control loop that Takt measures and judges: `takt run program.toml`.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use takt_sdk::Loop;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// A joint and its controller. Put yours here: read the sensors, compute, command.
#[derive(Default)]
struct Joint {
    position: f64,
    velocity: f64,
}

impl Joint {
    fn step(&mut self, target: f64, seconds: f64) -> f64 {
        let error = target - self.position;
        let torque = 40.0 * error - 8.0 * self.velocity;
        self.velocity += torque * seconds;
        self.position += self.velocity * seconds;
        error
    }
}

fn control(rate_hz: f64, stop: &AtomicBool) -> Outcome {
    let period = Duration::from_secs_f64(1.0 / rate_hz);
    // Without `deadline` it is the period.
    let mut control = Loop::periodic("control", period).open()?;
    println!("ready");
    let mut joint = Joint::default();
    while !stop.load(Ordering::Relaxed) {
        control.wait()?; // sleeps until the next release of the grid
        control.value(joint.step(1.0, period.as_secs_f64()))?;
        control.end()?;
    }
    // However the loop ends, command a stop here.
    Ok(())
}

fn main() -> Outcome {
    let rate = std::env::args().nth(1).unwrap_or_else(|| "500".to_owned());
    let rate_hz = rate.parse().ok().filter(|rate| (1.0..=20_000.0).contains(rate));
    let rate_hz = rate_hz.ok_or("usage: controller RATE, from 1 to 20000 Hz")?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    // The name of its thread is that of the loop, so that Takt finds it by both.
    let thread = thread::Builder::new().name("control".to_owned());
    let running = thread.spawn(move || control(rate_hz, &stop))?;
    running.join().map_err(|_| "the control loop panicked")?
}
