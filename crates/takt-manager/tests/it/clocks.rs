//! Two machines, as two network namespaces on a veth pair, and a clock that is wrong by what is
//! planted.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::process::Command;

use takt_manager::clocks::roundtrip::{Responder, ask, realtime_ns};
use takt_rt::net::Namespace;

fn ip(arguments: &str) -> Result<(), String> {
    let output =
        Command::new("ip").args(arguments.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    output
        .status
        .success()
        .then_some(())
        .ok_or_else(|| format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Two namespaces with an address each.
fn machines() -> Result<(Namespace, Namespace), String> {
    let namespace = || Namespace::new().map_err(|error| format!("no network namespace: {error}"));
    let (here, there) = (namespace()?, namespace()?);
    let path = there.path();
    here.run(|| {
        ip(&format!("link add tkc0 type veth peer name tkc1 netns {}", path.display()))?;
        ip("addr add 10.77.0.1/24 dev tkc0")?;
        ip("link set tkc0 up")
    })
    .map_err(|error| error.to_string())??;
    there
        .run(|| {
            ip("addr add 10.77.0.2/24 dev tkc1")?;
            ip("link set tkc1 up")
        })
        .map_err(|error| error.to_string())??;
    Ok((here, there))
}

#[test]
fn planted_offsets_are_found_within_the_error_between_two_namespaces() {
    let (here, there) = match machines() {
        Ok(machines) => machines,
        Err(why) => return takt_witness::skip!("{why}"),
    };
    let address: SocketAddr = "10.77.0.2:7117".parse().unwrap();
    for planted_ns in [0_i64, 3_000_000, -250_000_000, 40_000] {
        let responder =
            there.run(|| Responder::start(address, move || realtime_ns() + planted_ns)).unwrap().unwrap();
        let found = here.run(|| ask(address, realtime_ns)).unwrap().unwrap();
        println!("planted {planted_ns} ns: {found}");
        assert!(found.ahead_ns.abs_diff(planted_ns) <= found.error_ns, "planted {planted_ns}: {found:?}");
        assert!(found.apart_ns() >= planted_ns.unsigned_abs(), "{found:?}");
        drop(responder);
    }
    assert!(here.run(|| ask(address, realtime_ns)).unwrap().is_err(), "nobody answers any more");
}
