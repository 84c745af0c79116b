//! The master's end of a cable through AF_XDP, the simulated segment at the other end through a raw
//! socket.
//!
//! Needs the feature `xdp`, a veth pair and the right to attach an XDP program (CAP_NET_ADMIN,
//! CAP_NET_RAW, CAP_BPF), and a kernel with CONFIG_XDP_SOCKETS. Without them the tests say SKIPPED:
//! no package can bring a kernel that has it.
#![cfg(feature = "xdp")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::patient_humanoid;
use takt_link_ethercat::control::{
    ControlConfig, ControlError, ETHERCAT, ExchangeMode, MAX_FRAME_BYTES, Wire, XdpAttach, XdpOptions,
    bring_up, open_xdp,
};
use takt_link_ethercat::segment::raw::RawSocket;
use takt_link_ethercat::segment::veth::{VethPair, serve};
use takt_link_ethercat::segment::{AlState, Segment};
use takt_rt::clock::monotonic_ns;
use takt_rt::proof::allocations;

/// Names the interface in the process that is killed.
const VICTIM: &str = "TAKT_TEST_XDP_VICTIM";
const WAYS: [XdpAttach; 3] = [XdpAttach::Auto, XdpAttach::Native, XdpAttach::Generic];

fn options(attach: XdpAttach) -> XdpOptions {
    XdpOptions { attach, ..XdpOptions::default() }
}

/// Whether AF_XDP is not available here, without anybody's mistake.
fn not_here(error: &ControlError) -> bool {
    let text = error.to_string();
    text.contains("cap_net_admin") || text.contains("CONFIG_XDP_SOCKETS")
}

/// A cable on whose end AF_XDP can be had, or why there is none.
fn cable() -> Option<VethPair> {
    let pair = match VethPair::unique() {
        Ok(pair) => pair,
        Err(error) => {
            takt_witness::skip!("{error}");
            return None;
        }
    };
    match open_xdp(pair.master(), &options(XdpAttach::Generic)) {
        Ok(_) => Some(pair),
        Err(error) if not_here(&error) => {
            takt_witness::skip!("{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Output of `ip` about an interface.
fn shown(name: &str) -> String {
    let output = Command::new("ip").args(["-details", "link", "show", name]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn attached(name: &str) -> bool {
    shown(name).contains("prog/xdp")
}

/// A frame of `length` bytes with an EtherType.
fn frame(kind: u16, length: usize, last: u8) -> Vec<u8> {
    let mut frame = vec![0xFF; length];
    frame[12..14].copy_from_slice(&kind.to_be_bytes());
    frame[length - 1] = last;
    frame
}

/// The next frame, within five seconds.
fn next(wire: &mut dyn Wire, buffer: &mut [u8]) -> Option<usize> {
    let end_ns = monotonic_ns() + 5_000_000_000;
    loop {
        match wire.receive(buffer).unwrap() {
            Some(length) => return Some(length),
            None if monotonic_ns() > end_ns => return None,
            None => wire.wait(end_ns),
        }
    }
}

#[test]
fn devices_reach_op_and_no_frame_is_lost() {
    for attach in [XdpAttach::Auto, XdpAttach::Generic] {
        let Some(pair) = cable() else { return };
        let segment = Segment::new(&patient_humanoid()).unwrap();
        let control = segment.control();
        let server = serve(pair.segment(), segment, "segment", &Default::default()).unwrap();
        let (wire, how) = open_xdp(pair.master(), &options(attach)).unwrap();
        let expected = if attach == XdpAttach::Auto { "native, copied" } else { "generic, copied" };
        assert_eq!(how, expected, "a veth has room for stamps, and no memory of its own");
        assert!(attached(pair.master()), "{}", shown(pair.master()));
        let config = ControlConfig {
            mode: ExchangeMode::Waiting,
            // Patient with a busy machine.
            timeout_us: 1_000_000,
            silence_ms: 2000,
            bring_up_ms: 20_000,
            ..ControlConfig::default()
        };
        let mut link = bring_up(wire, &config, &mut |_| {}).unwrap();
        assert_eq!(link.devices.len(), 59);
        let before = control.counts().cyclic;
        // More than the rings have places.
        for cycle in 0..1500 {
            if cycle % 8 == 0 {
                std::thread::sleep(Duration::from_micros(500));
            }
            let exchanged = link.port.exchange(0);
            assert!(exchanged.complete() && exchanged.all_op, "{attach:?}, cycle {cycle}: {exchanged:?}");
        }
        assert!(control.counts().cyclic - before >= 1500);
        let totals = link.port.totals();
        assert_eq!((totals.lost_frames, totals.send_errors, totals.working_counter_errors), (0, 0, 0));
        assert!(control.devices().iter().all(|device| device.state == AlState::Op));
        drop(link);
        assert_eq!((server.errors(), control.counts().malformed), ((0, 0), 0));
        assert!(!attached(pair.master()), "{}", shown(pair.master()));
    }
}

#[test]
fn ethercat_frames_come_stamped_and_others_go_their_usual_way() {
    for attach in WAYS {
        let Some(pair) = cable() else { return };
        let far = RawSocket::open(pair.segment(), Duration::from_secs(5)).unwrap();
        let (mut wire, _) = open_xdp(pair.master(), &options(attach)).unwrap();
        let usual = RawSocket::open(pair.master(), Duration::from_millis(1)).unwrap();
        let counters = || {
            let text = shown_with_statistics(pair.master());
            text.lines()
                .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
                .next()
                .unwrap()
        };
        let mut buffer = [0; 2048];
        for length in [14, 60, 1000, MAX_FRAME_BYTES] {
            // A veth has nothing shorter, and nothing to pad with.
            let sent = frame(ETHERCAT, length.max(15), length as u8);
            let before_ns = monotonic_ns();
            far.send(&sent).unwrap();
            assert_eq!(next(&mut *wire, &mut buffer), Some(sent.len()), "{attach:?}");
            assert_eq!(buffer[..sent.len()], sent, "{attach:?}");
            let arrived_ns = wire.arrived_ns().unwrap();
            assert!((before_ns..=monotonic_ns()).contains(&arrived_ns), "{attach:?}: {arrived_ns}");
            assert!(usual.receive(&mut buffer).unwrap().is_none(), "it came once");
            // Back, padded to what Ethernet demands.
            wire.send(&sent).unwrap();
            let got = far.receive(&mut buffer).unwrap().unwrap();
            assert_eq!((got, &buffer[..sent.len()]), (sent.len().max(60), &sent[..]), "{attach:?}");
        }
        assert!(wire.send(&[0; MAX_FRAME_BYTES + 1]).is_err());
        let before = counters();
        far.send(&frame(0x88B5, 100, 1)).unwrap();
        far.send(&frame(ETHERCAT, 100, 2)).unwrap();
        assert_eq!(next(&mut *wire, &mut buffer), Some(100));
        assert_eq!(buffer[99], 2, "{attach:?}: the other frame was before it");
        assert!(wire.receive(&mut buffer).unwrap().is_none());
        assert!(counters() > before, "{attach:?}: the other frame went into the kernel");
    }
}

fn shown_with_statistics(name: &str) -> String {
    let output = Command::new("ip").args(["-statistics", "link", "show", name]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn full_rings_lose_the_newest_and_go_on_and_no_cycle_allocates() {
    for attach in WAYS {
        let Some(pair) = cable() else { return };
        let far = RawSocket::open(pair.segment(), Duration::from_secs(5)).unwrap();
        let (mut wire, _) = open_xdp(pair.master(), &options(attach)).unwrap();
        let mut buffer = [0; 2048];
        // Nobody takes them.
        for number in 0..3000_u32 {
            far.send(&frame(ETHERCAT, 100, number as u8)).unwrap();
        }
        let mut taken = 0;
        while wire.receive(&mut buffer).unwrap().is_some() {
            assert_eq!(buffer[99], taken as u8, "{attach:?}: in order");
            taken += 1;
        }
        assert!((500..3000).contains(&taken), "{attach:?}: {taken}");
        let sent = frame(ETHERCAT, 1400, 7);
        let before = allocations();
        for round in 0..3000_u32 {
            far.send(&sent).unwrap();
            assert_eq!(next(&mut *wire, &mut buffer), Some(1400), "{attach:?}, round {round}");
            wire.send(&sent).unwrap();
            assert_eq!(far.receive(&mut buffer).unwrap(), Some(1400), "{attach:?}, round {round}");
        }
        assert_eq!(allocations() - before, 0, "{attach:?}");
    }
}

#[test]
fn refusals_name_the_cause_and_the_way_out() {
    let Some(pair) = cable() else { return };
    let name = pair.master();
    let refused = |options: &XdpOptions| open_xdp(name, options).err().unwrap().to_string();
    let error = refused(&XdpOptions { queue: 9, ..XdpOptions::default() });
    assert!(error.contains("queue = 9") && error.contains(&format!("{name} has 1")), "{error}");
    let error = refused(&XdpOptions { queue: u32::MAX, ..XdpOptions::default() });
    assert!(error.contains("accepted are 0 to 4095"), "{error}");
    assert!(!attached(name), "nothing is left of what was tried: {}", shown(name));
    {
        let (_wire, _) = open_xdp(name, &XdpOptions::default()).unwrap();
        let error = refused(&XdpOptions::default());
        assert!(error.contains("another AF_XDP socket uses queue 0"), "{error}");
        // The program that is there is for the other queue.
        let c_name = std::ffi::CString::new(name).unwrap();
        let interface = xdp::nic::NicIndex::lookup_by_name(&c_name).unwrap().unwrap();
        let mut queues = interface.queue_counts().unwrap();
        queues.set_rx_and_tx(2);
        interface.set_queue_counts(&queues).unwrap();
        let error = refused(&XdpOptions { queue: 1, ..XdpOptions::default() });
        assert!(error.contains("another XDP program is attached to") && error.contains("xdp off"), "{error}");
    }
    // Rights are the thread's: this one gives its own away for good.
    let error = std::thread::scope(|scope| {
        let without = scope.spawn(|| {
            // SAFETY: no memory is handed over; the bare call concerns this thread alone.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, -1) }, 0);
            refused(&XdpOptions::default())
        });
        without.join().unwrap()
    });
    assert!(error.contains("Operation not permitted") && error.contains("cap_bpf"), "{error}");
    let error = open_xdp("takt-none", &XdpOptions::default()).err().unwrap().to_string();
    assert!(error.contains("takt-none") && error.contains("lo"), "{error}");
    let down = Command::new("ip").args(["link", "set", name, "down"]).status();
    assert!(down.unwrap().success());
    assert!(refused(&XdpOptions::default()).contains("is down"));
}

/// Not a test: the process that is killed.
#[test]
fn the_victims_side() {
    let Some(name) = std::env::var_os(VICTIM) else { return };
    let (_wire, how) = open_xdp(name.to_str().unwrap(), &XdpOptions::default()).unwrap();
    println!("\nvictim: has it, {how}");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn nothing_stays_attached_after_a_kill() {
    let Some(pair) = cable() else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "over_xdp::the_victims_side", "--nocapture"]).env(VICTIM, pair.master());
    let mut victim = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let message = lines.find_map(|line| line.unwrap().strip_prefix("victim: ").map(str::to_owned));
    let during = attached(pair.master());
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert!(message.is_some() && during, "{message:?}: {}", shown(pair.master()));
    // The kernel lets go of descriptors in workers of its own.
    let end = Instant::now() + Duration::from_secs(30);
    while attached(pair.master()) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!attached(pair.master()), "{}", shown(pair.master()));
    open_xdp(pair.master(), &XdpOptions::default()).unwrap();
}
