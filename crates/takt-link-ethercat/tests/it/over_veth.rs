//! Masters on the other end of a cable: ethercrab, and pysoem, which nobody here wrote.
//!
//! Needs CAP_NET_ADMIN and CAP_NET_RAW for the veth pair; pysoem needs `python3` with
//! `pip install pysoem==1.1.13`. Without them the tests say SKIPPED, unless
//! `TAKT_REQUIRE_OUTSIDE=1` makes that a failure.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::support;

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use ethercrab::error::Error;
use ethercrab::{MainDevice, RetryBehaviour};
use support::{block_on, master_with, patient_humanoid};
use takt_link_ethercat::control::{ControlConfig, ExchangeMode, Interface, bring_up};
use takt_link_ethercat::frame::{FrameBuilder, command};
use takt_link_ethercat::segment::raw::{InterfaceError, RawSocket, check_interface};
use takt_link_ethercat::segment::veth::{Server, VethError, VethPair, serve};
use takt_link_ethercat::segment::{Segment, SegmentControl, Truth, When, WireFault};

/// Exit status of the script without pysoem.
const NOT_INSTALLED: i32 = 3;

fn skip(reason: &str) {
    assert!(
        std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none_or(|value| value != "1"),
        "TAKT_REQUIRE_OUTSIDE=1, but {reason}"
    );
    takt_witness::skip!("{reason}");
}

/// A cable with the humanoid at one end, or why there is none.
fn cable() -> Option<(VethPair, Server, SegmentControl)> {
    let pair = match VethPair::unique() {
        Ok(pair) => pair,
        Err(error) => {
            skip(&error.to_string());
            return None;
        }
    };
    let segment = Segment::new(&patient_humanoid()).unwrap();
    let control = segment.control();
    match serve(pair.segment(), segment, "segment", &Default::default()) {
        Ok(server) => Some((pair, server, control)),
        Err(error @ VethError::Interface(InterfaceError::NoRight { .. })) => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Attempts of the outside master: once in some hundred sessions on a busy machine it gets no
/// answer to any frame from the start on, however often it sends again, while the others on cables
/// of their own do.
const ATTEMPTS: usize = 3;

#[test]
fn ethercrab_brings_59_devices_to_op() {
    for attempt in 1..=ATTEMPTS {
        let Some((pair, server, control)) = cable() else { return };
        // A packet socket may drop a frame on a busy machine: it is sent again, as its users have
        // it.
        let (main_device, tx, rx) = master_with(Duration::from_secs(1), RetryBehaviour::Count(3));
        let task = ethercrab::std::tx_rx_task(pair.master(), tx, rx).unwrap();
        let sender = std::thread::spawn(move || block_on(task).map(drop));
        match block_on(walk(&main_device, &control)) {
            Err(error @ Error::Timeout(_)) if attempt < ATTEMPTS => {
                let ended = sender.is_finished().then(|| sender.join().map(|ended| ended.err()));
                let counts = control.counts();
                eprintln!("attempt {attempt}: {error:?}; its sender: {ended:?}; the segment: {counts:?}");
                continue;
            }
            walked => walked.unwrap(),
        }
        assert_eq!(server.errors(), (0, 0));
        assert_eq!(control.counts().malformed, 0);
        return;
    }
}

/// From the scan to 200 cycles in OP.
async fn walk(main_device: &MainDevice<'static>, control: &SegmentControl) -> Result<(), Error> {
    let group = main_device.init_single_group::<64, 1024>(ethercrab::std::ethercat_now).await?;
    assert_eq!(group.len(), 59);
    let group = group.into_op(main_device).await?;
    let before = control.counts().cyclic;
    for _ in 0..200 {
        let response = group.tx_rx(main_device).await?;
        assert_eq!(response.working_counter, patient_humanoid().working_counter());
        assert!(response.all_op());
    }
    // A frame that was sent again is counted again.
    assert!(control.counts().cyclic - before >= 200);
    Ok(())
}

fn pysoem(interface: &str, devices: usize, mode: &str, seconds: &str) -> Option<Output> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/pysoem_segment.py");
    let mut command = Command::new("python3");
    command.arg(script).args([interface, &devices.to_string(), mode, seconds]);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            skip(&format!("python3 does not run: {error}"));
            return None;
        }
    };
    if output.status.code() == Some(NOT_INSTALLED) {
        let message = String::from_utf8_lossy(&output.stdout).into_owned();
        skip(&format!("{}; install it with: pip install pysoem==1.1.13", message.trim()));
        return None;
    }
    Some(output)
}

#[test]
fn pysoem_brings_59_devices_to_op_transfers_objects_and_moves_a_joint() {
    let Some((pair, server, control)) = cable() else { return };
    let Some(output) = pysoem(pair.master(), 59, "check", "0") else { return };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(out.contains("\"devices_op\": 59"), "{out}");
    assert_eq!(control.counts().malformed, 0);
    assert_eq!(server.errors(), (0, 0));
    // Its distributed clocks: every drive had its Sync0, and the delays that it measured are the
    // wire's.
    for (place, view) in control.devices().iter().enumerate() {
        let off_ns = u64::from(view.clock.written_delay_ns).abs_diff(view.clock.pass_ns);
        assert!(off_ns <= 1000, "device {place}: {:?}", view.clock);
        assert_eq!(view.clock.pulses > 10, view.drive.is_some(), "device {place}: {:?}", view.clock);
    }
}

#[test]
fn a_waiting_exchange_goes_on_after_a_lost_frame() {
    let Some((pair, _server, control)) = cable() else { return };
    let config = ControlConfig {
        mode: ExchangeMode::Waiting,
        // However late this machine runs the segment: it is the answer that ends a wait.
        timeout_us: 900_000,
        bring_up_ms: 20_000,
        silence_ms: 2000,
        ..ControlConfig::default()
    };
    let interface = Interface::open(pair.master()).unwrap();
    let mut link = bring_up(Box::new(interface), &config, &mut |_| {}).unwrap();
    for cycle in 0..100 {
        let exchanged = link.port.exchange(0);
        assert!(exchanged.complete() && exchanged.all_op, "cycle {cycle}: {exchanged:?}");
    }
    control.wire(WireFault::Drop, When::Next(1));
    assert!(!link.port.exchange(0).fresh, "its frame was lost");
    assert!(link.port.exchange(0).complete());
    assert_eq!(link.port.totals().stray_frames, 0);
    link.port.shut_down(Duration::from_millis(1)).unwrap();
}

#[test]
fn pysoem_sees_a_device_unplugged() {
    let Some((pair, _server, control)) = cable() else { return };
    let other = control.clone();
    let watcher = std::thread::spawn(move || {
        // Once the master cycles, pull the cable of the left arm for good.
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while other.counts().cyclic < 100 && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        other.unplug(other.find("left-shoulder-pitch").unwrap()).unwrap();
    });
    let output = pysoem(pair.master(), 59, "hold", "2");
    watcher.join().unwrap();
    let Some(output) = output else { return };
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{out}\n{}", String::from_utf8_lossy(&output.stderr));
    let full = patient_humanoid().working_counter();
    assert!(out.contains(&format!("working counter {full}\n")), "{out}");
    // The arm: 13 drives and the hand board count 3 each, force and touch 1 each.
    assert!(out.contains(&format!("working counter {}\n", full - 14 * 3 - 2)), "{out}");
}

#[test]
fn interfaces_that_will_not_do_are_named_with_the_fix() {
    let error = check_interface("takt-none").unwrap_err().to_string();
    assert!(error.contains("takt-none") && error.contains("lo"), "{error}");
    let error = check_interface("lo").unwrap_err().to_string();
    assert!(error.contains("expected 1 (Ethernet)"), "{error}");
    for bad in ["", "a/b", "sixteen-letters!", "a b", "..", "tkt\0"] {
        assert!(matches!(check_interface(bad), Err(InterfaceError::Name { .. })), "{bad:?}");
    }
    let pair = match VethPair::unique() {
        Ok(pair) => pair,
        Err(error) => return skip(&error.to_string()),
    };
    let down = || Command::new("ip").args(["link", "set", pair.segment(), "down"]).status();
    assert!(pair.within(down).unwrap().unwrap().success());
    let segment = Segment::new(&patient_humanoid()).unwrap();
    let error = serve(pair.segment(), segment, "segment", &Default::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("network interface \"{0}\" is down. Fix: ip link set {0} up", pair.segment())
    );
    let name = pair.master().to_owned();
    assert!(VethPair::create(&name, "tkt-other").is_err(), "the name is taken");
    assert!(check_interface("tkt-other").is_err(), "and nothing is left behind");
    drop(pair);
    assert!(matches!(check_interface(&name), Err(InterfaceError::NoInterface { .. })), "removed");
}

#[test]
fn a_segment_stamps_what_it_kept_on_purpose_and_nothing_else() {
    let Some((pair, server, control)) = cable() else { return };
    let mut segment = server.stop().unwrap();
    let mut truth = segment.truth(64);
    let _server = serve(pair.segment(), segment, "segment", &Default::default()).unwrap();
    let socket = RawSocket::open(pair.master(), Duration::from_secs(5)).unwrap();
    let mut builder = FrameBuilder::new([0x10; 6]);
    builder.push(command::LRW, 1, 0, 8).unwrap();
    let sent = builder.finish().to_vec();
    let mut buffer = [0; 2048];
    let mut pass = |fault: Option<WireFault>| {
        if let Some(fault) = fault {
            control.wire(fault, When::Next(1));
        }
        socket.send(&sent).unwrap();
        assert!((0..1000).any(|_| socket.receive(&mut buffer).unwrap().is_some()), "no answer");
        let mut seen = Vec::new();
        let mut reported = || {
            std::thread::sleep(Duration::from_millis(1));
            truth.take_into(&mut seen, 64) > 0
        };
        assert!((0..10_000).any(|_| reported()), "the segment says nothing of the frame");
        let Truth::Passed { stay, .. } = seen[0] else { panic!("{seen:?}") };
        stay
    };
    for _ in 0..20 {
        let stay = pass(None);
        assert_eq!(stay.held_ns, 0, "nothing was planted: {stay:?}");
        let took_ns = stay.left_ns - stay.at_ns;
        assert!(stay.ran_ns.is_none_or(|ran_ns| ran_ns <= took_ns + 1_000_000), "{stay:?}");
    }
    let stay = pass(Some(WireFault::Delay(Duration::from_millis(3))));
    assert!(stay.held_ns == 3_000_000 && stay.left_ns >= stay.at_ns + stay.held_ns, "{stay:?}");
    assert_eq!(pass(None).held_ns, 0);
}
