//! Captures of masters at work, with a delay planted at each place: does the analysis find it
//! there?
//!
//! ```text
//!  master ── pair ── proxy (the wire: delays, losses) ── pair ── segment (devices: delays, losses)
//!         tap                                              tap
//! ```
//!
//! Needs CAP_NET_ADMIN and CAP_NET_RAW; pysoem needs `pip install pysoem==1.1.13`. Without them the
//! tests say SKIPPED, unless `TAKT_REQUIRE_OUTSIDE=1` makes that a failure.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use takt_link_ethercat::analyse::{AppLog, Blame, FindingKind, Limits, Report, Traffic, analyse};
use takt_link_ethercat::capture::{CaptureFacts, Recorder, Side, read};
use takt_link_ethercat::control::{ControlConfig, ExchangeMode, Interface, Link, Wire, bring_up};
use takt_link_ethercat::segment::raw::RawSocket;
use takt_link_ethercat::segment::veth::{Server, VethPair, serve};
use takt_link_ethercat::segment::{Segment, SegmentConfig, SegmentControl, When, WireFault};
use takt_rt::clock::monotonic_ns;

/// The planted delay. Far above what a busy machine does by itself, most of the time.
const PLANTED: Duration = Duration::from_millis(150);
/// Limits of the reports: half of it.
const LIMITS: Limits = Limits { slow_ns: Some(75_000_000), late_ns: Some(75_000_000), period_ns: None };
const PERIOD: Duration = Duration::from_millis(4);

fn skip(reason: &str) {
    let required = std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_some_and(|value| value == "1");
    assert!(!required, "TAKT_REQUIRE_OUTSIDE=1, but {reason}");
    takt_witness::skip!("{reason}");
}

/// Treatment of the next frame with process data on its way to the devices.
#[derive(Default)]
struct Fate {
    hold: AtomicBool,
    lose: AtomicBool,
    stop: AtomicBool,
}

/// Two cables with a wire between them that can be slow and lossy.
struct Bench {
    fate: Arc<Fate>,
    control: SegmentControl,
    master: String,
    segment: String,
    proxies: Vec<std::thread::JoinHandle<()>>,
    _server: Server,
    _pairs: [VethPair; 2],
    folder: tempfile::TempDir,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.fate.stop.store(true, Ordering::Release);
        for proxy in self.proxies.drain(..) {
            let _ = proxy.join();
        }
    }
}

fn bench() -> Option<Bench> {
    let pairs = match (VethPair::unique(), VethPair::unique()) {
        (Ok(first), Ok(second)) => [first, second],
        (Err(error), _) | (_, Err(error)) => {
            skip(&error.to_string());
            return None;
        }
    };
    let config = SegmentConfig { watchdog_ms: 6000, ..SegmentConfig::humanoid(8) };
    let segment = Segment::new(&config).unwrap();
    let control = segment.control();
    let server = match serve(pairs[1].segment(), segment, "segment", &Default::default()) {
        Ok(server) => server,
        Err(error) => {
            skip(&error.to_string());
            return None;
        }
    };
    let fate = Arc::new(Fate::default());
    let patience = Duration::from_millis(20);
    let ends = [pairs[0].segment(), pairs[1].master()];
    let proxies = [(ends[0], ends[1], true), (ends[1], ends[0], false)].map(|(from, to, outward)| {
        let (from, to) = (RawSocket::open(from, patience).unwrap(), RawSocket::open(to, patience).unwrap());
        let fate = Arc::clone(&fate);
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !fate.stop.load(Ordering::Acquire) {
                let Ok(Some(length)) = from.receive(&mut buffer) else { continue };
                let frame = &buffer[..length];
                if outward && is_cyclic(frame) {
                    if fate.lose.swap(false, Ordering::AcqRel) {
                        continue;
                    }
                    if fate.hold.swap(false, Ordering::AcqRel) {
                        std::thread::sleep(PLANTED);
                    }
                }
                to.send(frame).unwrap();
            }
        })
    });
    Some(Bench {
        fate,
        control,
        master: pairs[0].master().to_owned(),
        segment: pairs[1].segment().to_owned(),
        proxies: proxies.into(),
        _server: server,
        _pairs: pairs,
        folder: tempfile::tempdir().unwrap(),
    })
}

fn is_cyclic(frame: &[u8]) -> bool {
    use takt_link_ethercat::frame;
    frame::datagrams(frame).any(|datagram| frame::command::is_logical(datagram.command))
}

impl Bench {
    fn record(&self) -> (PathBuf, Recorder) {
        let path = self.folder.path().join("capture.pcapng");
        let taps = [(self.master.as_str(), Side::Master), (self.segment.as_str(), Side::Segment)];
        (path.clone(), Recorder::start(&path, &taps).unwrap())
    }
}

/// The capture, with both taps and with the master's alone.
fn analysed(path: &Path, log: Option<&str>) -> (CaptureFacts, Report, Report) {
    let (mut both, mut master) = (Traffic::default(), Traffic::default());
    let facts = read(path, &mut |packet| {
        both.add(&packet);
        if packet.side == Side::Master {
            master.add(&packet);
        }
    })
    .unwrap();
    let log = log.map(|text| AppLog::from_csv(text, facts.clock_offset_ns.unwrap()).unwrap());
    let reports = [both, master].map(|traffic| analyse(&traffic, log.as_ref(), &LIMITS));
    assert!(facts.interfaces.iter().all(|interface| interface.dropped == Some(0)), "{facts:?}");
    assert_eq!(facts.cut, None);
    let [both, master] = reports;
    (facts, both, master)
}

/// The planted one is reported, whatever a busy machine has of its own.
fn reported(report: &Report, kind: FindingKind, blame: Blame, what: &str) {
    let found = report.findings.iter().any(|finding| (finding.kind, finding.blame) == (kind, blame));
    assert!(found, "{what}: nothing {kind:?} by {blame:?}:\n{}", report.text(50, false));
}

/// A wire whose frames wait in the host: withheld on their way out or in, on demand.
struct Sluggish {
    interface: Interface,
    hold: Arc<[AtomicU64; 2]>,
}

impl Sluggish {
    fn held(&self, way: usize) -> bool {
        monotonic_ns() < self.hold[way].load(Ordering::Acquire)
    }
}

impl Wire for Sluggish {
    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        while self.held(0) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.interface.send(frame)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if self.held(1) { Ok(None) } else { self.interface.receive(buffer) }
    }

    fn wait(&mut self, deadline_ns: u64) {
        if self.held(1) {
            takt_rt::clock::sleep_until(deadline_ns.min(monotonic_ns() + 1_000_000));
        } else {
            self.interface.wait(deadline_ns);
        }
    }
}

fn up(bench: &Bench, mode: ExchangeMode) -> (Link, Arc<[AtomicU64; 2]>) {
    let hold: Arc<[AtomicU64; 2]> = Arc::default();
    let interface = Interface::open(&bench.master).unwrap();
    let wire = Box::new(Sluggish { interface, hold: Arc::clone(&hold) });
    let config = ControlConfig {
        mode,
        timeout_us: 1_000_000,
        bring_up_ms: 60_000,
        silence_ms: 5000,
        ..ControlConfig::default()
    };
    (bring_up(wire, &config, &mut |_| {}).unwrap(), hold)
}

/// Cycles of Takt's master with its own stamps; `plant` is called in each.
fn takt_cycles(link: &mut Link, count: u64, mut plant: impl FnMut(u64)) -> String {
    let mut log = String::from("planned_ns,wake_ns,sent_ns,taken_ns\n");
    let mut planned_ns = monotonic_ns();
    for cycle in 0..count {
        plant(cycle);
        takt_rt::clock::sleep_until(planned_ns);
        let wake_ns = monotonic_ns();
        let exchanged = link.port.exchange(0);
        let (sent_ns, taken_ns) = (exchanged.sent_at_ns, exchanged.taken_at_ns);
        log.push_str(&format!("{planned_ns},{wake_ns},{sent_ns},{taken_ns}\n"));
        planned_ns = (planned_ns + PERIOD.as_nanos() as u64).max(monotonic_ns());
    }
    log
}

fn ahead() -> u64 {
    monotonic_ns() + PLANTED.as_nanos() as u64
}

#[test]
fn takt_with_a_delay_planted_at_each_place() {
    let Some(bench) = bench() else { return };
    let (mut link, hold) = up(&bench, ExchangeMode::Waiting);
    let place = |name: &str, plant: &mut dyn FnMut(), kind, blame, alone| {
        let _ = std::fs::remove_file(bench.folder.path().join("capture.pcapng"));
        let (path, recorder) = bench.record();
        let log = takt_cycles(&mut link, 40, |cycle| {
            if cycle == 20 {
                plant();
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(recorder.stop().unwrap() >= 160, "{name}: four sightings a cycle");
        let (_, both, master) = analysed(&path, Some(&log));
        // Every cycle has its frame, and every frame its cycle: neither clock nor counting is off.
        assert_eq!((both.cycles_found, both.cyclic_frames), (Some(40), 40), "{name}");
        reported(&both, kind, blame, name);
        reported(&master, kind, alone, name);
    };
    let mut place = place;
    use Blame::{Application, Device, HostStack, Wire, WireOrDevice};
    place(
        "device",
        &mut || bench.control.wire(WireFault::Delay(PLANTED), When::Next(1)),
        FindingKind::Slow,
        Device,
        WireOrDevice,
    );
    place(
        "wire",
        &mut || bench.fate.hold.store(true, Ordering::Release),
        FindingKind::Slow,
        Wire,
        WireOrDevice,
    );
    let send = || hold[0].store(ahead(), Ordering::Release);
    place("host, out", &mut { send }, FindingKind::SentLate, HostStack, HostStack);
    let receive = || hold[1].store(ahead(), Ordering::Release);
    place("host, in", &mut { receive }, FindingKind::TakenLate, HostStack, HostStack);
    place(
        "application",
        &mut || std::thread::sleep(PLANTED),
        FindingKind::SentLate,
        Application,
        Application,
    );
}

#[test]
fn takt_with_a_loss_planted_at_each_place() {
    let Some(bench) = bench() else { return };
    let (mut link, _hold) = up(&bench, ExchangeMode::Pipelined);
    for (device, blame) in [(true, Blame::Device), (false, Blame::Wire)] {
        let _ = std::fs::remove_file(bench.folder.path().join("capture.pcapng"));
        let (path, recorder) = bench.record();
        let log = takt_cycles(&mut link, 40, |cycle| match (cycle, device) {
            (20, true) => bench.control.wire(WireFault::Drop, When::Next(1)),
            (20, false) => bench.fate.lose.store(true, Ordering::Release),
            _ => {}
        });
        std::thread::sleep(Duration::from_millis(50));
        recorder.stop().unwrap();
        let (_, both, master) = analysed(&path, Some(&log));
        let missing = |report: &Report| {
            let all = report.findings.iter().filter(|finding| finding.kind == FindingKind::Missing);
            all.map(|finding| finding.blame).collect::<Vec<_>>()
        };
        // A machine that stands still may leave a frame of its own at either end of the capture.
        assert!(missing(&both).contains(&blame), "{}", both.text(50, false));
        assert!(missing(&master).contains(&Blame::WireOrDevice), "{}", master.text(50, false));
    }
}

/// Exit status of the script without pysoem.
const NOT_INSTALLED: i32 = 3;

#[test]
fn pysoem_with_a_delay_planted_at_each_place() {
    let Some(bench) = bench() else { return };
    let (path, recorder) = bench.record();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/pysoem_segment.py");
    let log_path = bench.folder.path().join("log.csv");
    let mut child = Command::new("python3");
    child.arg(script).args([&bench.master, "8", "plant", "0.15"]).arg(&log_path);
    child.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = match child.spawn() {
        Ok(child) => child,
        Err(error) => return skip(&format!("python3 does not run: {error}")),
    };
    let mut lines = io::BufRead::lines(io::BufReader::new(child.stdout.take().unwrap()));
    // It says where it is, and waits for a line at each place.
    let places = ["device", "wire", "host", "application"];
    let (mut message, mut has_tbf) = (Vec::new(), true);
    while let Some(Ok(line)) = lines.next() {
        message.push(line.clone());
        let Some(place) = line.strip_prefix("plant ") else { continue };
        match place {
            "device" => bench.control.wire(WireFault::Delay(PLANTED), When::Next(1)),
            "wire" => bench.fate.hold.store(true, Ordering::Release),
            "host" => {
                // A full bucket lets some frames pass, then one each 100 ms or so: they wait in the
                // queue before the interface.
                has_tbf = tc(&[
                    "qdisc",
                    "replace",
                    "dev",
                    &bench.master,
                    "root",
                    "tbf",
                    "rate",
                    "8kbit",
                    "burst",
                    "1600",
                    "latency",
                    "2s",
                ]);
                if !has_tbf {
                    takt_witness::skip!("the kernel has no tbf queue: no delay in pysoem's host stack");
                }
            }
            "unhost" => {
                tc(&["qdisc", "del", "dev", &bench.master, "root"]);
            }
            _ => {}
        }
        io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
    }
    let status = child.wait().unwrap();
    if status.code() == Some(NOT_INSTALLED) {
        return skip("pysoem is not installed; install it with: pip install pysoem==1.1.13");
    }
    assert!(status.success(), "{message:?}");
    recorder.stop().unwrap();
    let log = std::fs::read_to_string(&log_path).unwrap();
    let offset_ns = {
        let facts = read(&path, &mut |_| {}).unwrap();
        facts.clock_offset_ns.unwrap()
    };
    // Each place has a stretch of the log of its own, from one line of the script to the next.
    let app = AppLog::from_csv(&log, offset_ns).unwrap();
    let stretch = |place: &str| {
        let at = |name: &str| {
            let line = message.iter().find_map(|line| line.strip_prefix(&format!("at {name} "))).unwrap();
            line.parse::<u64>().unwrap().saturating_add_signed(offset_ns)
        };
        at(place)..at(&format!("{place}-end"))
    };
    use Blame::{Application, Device, HostStack, Wire, WireOrDevice};
    let expected = [
        (FindingKind::Slow, Device, WireOrDevice),
        (FindingKind::Slow, Wire, WireOrDevice),
        (FindingKind::SentLate, HostStack, HostStack),
        (FindingKind::SentLate, Application, Application),
    ];
    for (place, (kind, blame, alone)) in places.into_iter().zip(expected) {
        let range = stretch(place);
        let (mut both, mut master) = (Traffic::default(), Traffic::default());
        read(&path, &mut |packet| {
            if range.contains(&packet.time_ns) {
                both.add(&packet);
                if packet.side == Side::Master {
                    master.add(&packet);
                }
            }
        })
        .unwrap();
        let [both, master] = [both, master].map(|traffic| analyse(&traffic, Some(&app), &LIMITS));
        if place == "host" && !has_tbf {
            continue;
        }
        reported(&both, kind, blame, place);
        reported(&master, kind, alone, place);
    }
}

fn tc(arguments: &[&str]) -> bool {
    Command::new("tc").args(arguments).status().is_ok_and(|status| status.success())
}
