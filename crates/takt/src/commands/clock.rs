//! `takt clock`: how far the clocks of two machines are apart.

use std::net::ToSocketAddrs;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use takt_manager::clocks::{PORT, roundtrip, synchronised};

use super::{CommandResult, stop_flag};
use crate::args;

pub fn run(args: &args::Clock) -> CommandResult {
    if let Some(peer) = &args.ask {
        let address = match peer.to_socket_addrs() {
            Ok(mut all) => all.next(),
            Err(_) => {
                (peer.as_str(), PORT).to_socket_addrs().map_err(|error| format!("{peer}: {error}"))?.next()
            }
        };
        let address = address.ok_or_else(|| format!("{peer}: the name has no address"))?;
        let offset = roundtrip::ask(address, roundtrip::realtime_ns)
            .map_err(|error| format!("{peer}: {error}. Is `takt clock` running there?"))?;
        println!("{offset}; at most {:.3} ms apart", offset.apart_ns() as f64 / 1e6);
        return Ok(ExitCode::SUCCESS);
    }
    let stop = stop_flag()?;
    let responder = roundtrip::Responder::start(args.listen, roundtrip::realtime_ns)
        .map_err(|error| format!("--listen {}: {error}", args.listen))?;
    println!("answering at {} (UDP)", responder.address());
    if let Some(own) = synchronised::own() {
        println!(
            "this machine's clock: within {:.3} ms of its reference ({})",
            own.error_ns as f64 / 1e6,
            own.by
        );
    }
    let until = args.seconds.map(|s| Instant::now() + Duration::from_secs_f64(s));
    while !stop.load(Ordering::Acquire) && until.is_none_or(|until| Instant::now() < until) {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(ExitCode::SUCCESS)
}
