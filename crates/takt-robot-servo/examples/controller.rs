//! The simulated controller that follows a stream, as a process of its own: prints its RTDE
//! address, runs until its standard input ends.
//!
//! ```text
//! cargo run -p takt-robot-servo --example controller [LOG.csv]
//! ```

use std::io::{Read, Write};

use takt_link_rtde::sim::Simulator;
use takt_robot_servo::run::simulated;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let log = std::env::args_os().nth(1).map(Into::into);
    // Where it may: a real controller has a computer of its own.
    let simulator =
        Simulator::start(takt_link_rtde::sim::SimConfig { log, fifo_priority: 95, ..simulated() })?;
    println!("{}", simulator.rtde_address());
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
