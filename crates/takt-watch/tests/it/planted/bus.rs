//! pysoem, a master that nobody here wrote, cycles with simulated devices behind a virtual cable,
//! and delays are planted round it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use takt_link_ethercat::segment::veth::{Server, VethPair, serve};
use takt_link_ethercat::segment::{Segment, SegmentConfig, SegmentControl, When, WireFault};
use takt_watch::link::{LinkPlace, LinkReport};
use takt_watch::{FollowBy, Settings};

use crate::planted::link::{Steered, blamed, done};
use crate::planted::rig::{MS, Role, Watch, can_trace, follow, pause};
use crate::planted::{CPU, FEW, MANY, OTHER_CPU, alone, settings};

/// Longer than what counts as late.
const DELAY: Duration = Duration::from_millis(9);

/// Master, cable, devices.
struct Bus {
    master: Steered,
    control: SegmentControl,
    interface: String,
    _server: Server,
    _pair: VethPair,
}

impl Bus {
    fn start() -> Option<Self> {
        let pair = VethPair::unique().inspect_err(|error| takt_witness::skip!("{error}")).ok()?;
        let segment =
            Segment::new(&SegmentConfig { watchdog_ms: 6000, ..SegmentConfig::humanoid(8) }).unwrap();
        let control = segment.control();
        let server = serve(pair.segment(), segment, "segment", &settings("fifo:45", Some(OTHER_CPU)));
        let server = server.inspect_err(|error| takt_witness::skip!("{error}")).ok()?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/pysoem_segment.py");
        let mut command = Command::new("python3");
        command.arg(script).args([pair.master(), "8", "steered", &CPU.to_string()]);
        let mut master = Steered::start(&mut command)?;
        let interface = pair.master().to_owned();
        // As slow as a field bus: 8 Mbit/s.
        let shaper = ["root", "tbf", "rate", "8mbit", "burst", "2kb", "latency", "200ms"];
        let ready = master.comes_to("steered")
            && done("tc", &[&["qdisc", "add", "dev", &interface][..], &shaper].concat());
        if !ready {
            takt_witness::skip!("no pysoem (pip install pysoem==1.1.13), or no queue tbf (tc)");
            return None;
        }
        Some(Self { master, control, interface, _server: server, _pair: pair })
    }
}

/// Watches the bus while `plant` plants `count` delays.
fn watched(count: usize, follow: FollowBy, plant: &mut dyn FnMut(&mut Bus)) -> Option<LinkReport> {
    let mut bus = Bus::start()?;
    let settings = Settings {
        links: [format!("{}:ethercat", bus.interface).parse().ok(), None, None, None],
        late_ns: Some(6 * MS),
        deadline_ns: Some(6 * MS),
        windows: 1000,
        follow,
        ..Settings::default()
    };
    let watch = Watch::start(bus.master.child.id(), settings);
    for _ in 0..count {
        plant(&mut bus);
        pause(90 * MS);
    }
    let report = watch.finish();
    println!("{:?} {:?}", report.followed_by, report.links);
    report.links.into_iter().next()
}

#[test]
fn delays_of_a_bus_are_put_down_to_their_places() {
    let _machine = alone();
    if !can_trace() {
        return;
    }
    for attempt in 1..=3 {
        let device = &mut |bus: &mut Bus| bus.control.wire(WireFault::Delay(DELAY), When::Next(1));
        let Some(link) = watched(FEW, FollowBy::Auto, device) else { return };
        assert!(link.packets > 50 && link.answered > 0, "{link:?}");
        if blamed(&link, LinkPlace::RobotOrNetwork) >= FEW / 2
            && link.period_us.is_some_and(|us| (us - 20_000.0).abs() < 100.0)
        {
            break;
        }
        // What else this machine does may hide a few.
        assert!(attempt < 3, "{link:?}");
    }
    for attempt in 1..=3 {
        let own = &mut |bus: &mut Bus| bus.master.plant("long");
        let Some(link) = watched(FEW, FollowBy::Events, own) else { return };
        if blamed(&link, LinkPlace::UserCode) >= FEW / 2 {
            return;
        }
        assert!(attempt < 3, "{link:?}");
    }
}

/// Twenty of every class that can be planted.
#[test]
#[ignore = "a campaign of half a minute on a quiet machine"]
fn campaign_eighteen_of_twenty_places_of_a_bus_are_named() {
    let _machine = alone();
    assert!(can_trace());
    let mut short = Vec::new();
    let mut judge_case = |name: &str, place: LinkPlace, plant: &mut dyn FnMut(&mut Bus)| {
        let link = watched(MANY, follow(), plant).unwrap();
        println!("{name}: {} of {MANY} put down to {place:?}; {:?}", blamed(&link, place), link.blame);
        if blamed(&link, place) * 10 < MANY * 9 {
            short.push(name.to_owned());
        }
    };
    judge_case("a slow device", LinkPlace::RobotOrNetwork, &mut |bus| {
        bus.control.wire(WireFault::Delay(DELAY), When::Next(1));
    });
    judge_case("a lost frame", LinkPlace::RobotOrNetwork, &mut |bus| {
        bus.control.wire(WireFault::Drop, When::Next(1))
    });
    judge_case("its own code", LinkPlace::UserCode, &mut |bus| bus.master.plant("long"));
    judge_case("the interface's queue", LinkPlace::SendPath, &mut |bus| bus.master.plant("full"));
    let mut hog = Role::start("long hog");
    judge_case("kept from running", LinkPlace::WokenLate, &mut |_| {
        hog.plant();
    });
    drop(hog);
    let none = watched(MANY, follow(), &mut |_| pause(20 * MS)).unwrap();
    println!("nothing planted: {:?}", none.blame);
    assert!(short.is_empty(), "less than 18 of 20: {short:?}");
}
