//! `takt simulate`

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use takt_link_rtde::sim::{SimConfig, Simulator};

use super::{CommandResult, stop_flag};
use crate::args::Simulate;

pub fn run(args: &Simulate) -> CommandResult {
    let stop = stop_flag()?;
    let simulator = Simulator::start(SimConfig {
        address: args.address,
        rtde_port: args.rtde_port,
        dashboard_port: args.dashboard_port,
        ..SimConfig::default()
    })?;
    println!("RTDE: {}, dashboard: {}", simulator.rtde_address(), simulator.dashboard_address());
    let until = args.seconds.map(|s| Instant::now() + Duration::from_secs_f64(s));
    while !stop.load(Ordering::Acquire) && until.is_none_or(|until| Instant::now() < until) {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(ExitCode::SUCCESS)
}
