//! `takt simulate`

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use takt_link_rtde::sim::{SimConfig, Simulator};

use super::{CommandResult, stop_flag};
use crate::args::Simulate;

pub fn run(args: &Simulate) -> CommandResult {
    let stop = stop_flag()?;
    let config = match &args.config {
        Some(path) => {
            let name = path.display();
            let text = takt_files::read_configuration(path).map_err(|e| format!("{name}: {e}"))?;
            toml::from_str(&text).map_err(|e| format!("{name}: {}", e.to_string().trim_end()))?
        }
        None => SimConfig::default(),
    };
    let simulator = Simulator::start(SimConfig {
        address: args.address.unwrap_or(config.address),
        rtde_port: args.rtde_port.unwrap_or(config.rtde_port),
        dashboard_port: args.dashboard_port.unwrap_or(config.dashboard_port),
        log: args.log.clone().or(config.log),
        ..config
    })?;
    println!("RTDE: {}, dashboard: {}", simulator.rtde_address(), simulator.dashboard_address());
    let until = args.seconds.map(|s| Instant::now() + Duration::from_secs_f64(s));
    while !stop.load(Ordering::Acquire) && until.is_none_or(|until| Instant::now() < until) {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(ExitCode::SUCCESS)
}
