use super::tap::DATA_BYTES;
use super::*;

const MS: u64 = 1_000_000;

fn packet(time_ns: u64, incoming: bool, peer: (IpAddr, u16)) -> Packet {
    Packet { time_ns, incoming, peer, bytes: 60, data: [0; DATA_BYTES], data_bytes: 32, closes: false }
}

fn link(endpoint: &str) -> Vec<Link> {
    vec![Link::of(endpoint.parse().unwrap(), Source::Beside, Settings::default()).unwrap()]
}

/// Hands packets over in the order of time, a tenth of a second at a time.
fn feed(links: &mut Vec<Link>, mut packets: Vec<Packet>) {
    packets.sort_by_key(|packet| packet.time_ns);
    for part in packets.chunk_by(|a, b| a.time_ns / (100 * MS) == b.time_ns / (100 * MS)) {
        for packet in part {
            Link::hand_over(links, 0, packet);
        }
        links.iter_mut().for_each(|link| link.take(false));
    }
}

fn robot(last: u8) -> (IpAddr, u16) {
    (IpAddr::from([192, 0, 2, last]), 5000)
}

/// A packet every 8 ms from `from_ms` on, answered a millisecond later.
fn cycles(from_ms: u64, count: u64, phase_us: u64, peer: (IpAddr, u16)) -> Vec<Packet> {
    let at = |cycle: u64| from_ms * MS + phase_us * 1000 + 8 * MS * cycle;
    (0..count)
        .flat_map(|cycle| [packet(at(cycle), true, peer), packet(at(cycle) + MS, false, peer)])
        .collect()
}

#[test]
fn robots_that_send_to_one_port_are_distinguished() {
    let mut links = link("udp:50002");
    // The second is late once, behind a packet of the first.
    let mut packets = cycles(0, 500, 0, robot(1));
    packets.extend(cycles(0, 250, 3_300, robot(2)));
    packets.extend(cycles(2010, 250, 3_300, robot(2)));
    feed(&mut links, packets);
    assert_eq!(links.len(), 2);
    for (at, violations) in [(0, 0), (1, 1)] {
        let report = links[at].report();
        assert_eq!((report.packets, report.violations), (500, violations), "{report:?}");
        assert!((report.period_us.unwrap() / 8000.0 - 1.0).abs() < 0.001, "{report:?}");
        assert_eq!(report.name, format!("udp:50002 of 192.0.2.{} port 5000", at + 1));
        assert!((990.0..1010.0).contains(&report.response_us.median), "{report:?}");
    }
    assert_eq!(links[1].report().blame[0].place, LinkPlace::RobotOrNetwork);
}

#[test]
fn more_robots_than_are_distinguished_are_said() {
    let mut links = link("udp:50002");
    feed(&mut links, (1..=12).flat_map(|last| cycles(0, 50, 100 * u64::from(last), robot(last))).collect());
    assert_eq!(links.len(), MAX_PEERS);
    assert!(links.iter().flat_map(Link::notes).any(|note| note.contains("not those of one robot")));
}

#[test]
fn a_program_that_starts_again_makes_nobody_late() {
    let mut links = link("tcp:192.0.2.1:30004");
    let own = |port: u16| (IpAddr::from([192, 0, 2, 9]), port);
    let mut packets = cycles(0, 200, 0, own(40001));
    // The last state has no answer: the program was killed, and its connection with it.
    packets.pop();
    packets.push(Packet { data_bytes: 0, closes: true, ..packet(1_599 * MS, false, own(40001)) });
    packets.extend(cycles(2_100, 200, 0, own(40002)));
    // Nobody closes this one: it is another host's cable.
    packets.extend(cycles(9_000, 200, 0, own(40003)));
    feed(&mut links, packets);
    assert_eq!(links.len(), 1);
    let report = links[0].report();
    assert_eq!((report.packets, report.violations), (600, 0), "{report:?}");
    assert!(links[0].notes()[0].contains("2 times, a new connection"), "{:?}", links[0].notes());
    assert_eq!(report.name, "tcp:192.0.2.1:30004");
}

#[test]
fn commands_on_a_connection_of_their_own_answer_the_states_of_another() {
    let mut links = link("tcp:192.0.2.1:30004");
    let own = |port: u16| (IpAddr::from([192, 0, 2, 9]), port);
    let commands = own(40002);
    let on_two = |packet: Packet| if packet.incoming { packet } else { Packet { peer: commands, ..packet } };
    let mut packets: Vec<Packet> = cycles(10, 400, 0, own(40001)).into_iter().map(on_two).collect();
    // One before the first state, and the end of its connection, which is not that of the states'.
    packets.push(packet(0, false, commands));
    packets.push(Packet { closes: true, data_bytes: 0, ..packet(1_615 * MS, true, commands) });
    feed(&mut links, packets);
    assert_eq!(links.len(), 1);
    let report = links[0].report();
    assert_eq!((report.packets, report.answered, report.violations), (400, 400, 0), "{report:?}");
    assert!((990.0..1010.0).contains(&report.response_us.median), "{report:?}");
    assert!(links[0].notes().is_empty(), "{:?}", links[0].notes());
}

#[test]
fn a_link_without_packets_is_said() {
    for endpoint in ["udp:50002", "tcp:192.0.2.1:30004", "tcp:[2001:db8::1]:30004"] {
        let links = link(endpoint);
        let notes = links[0].notes();
        assert!(notes[0].contains(endpoint) && notes[0].contains("the link is not reported"), "{notes:?}");
    }
}
