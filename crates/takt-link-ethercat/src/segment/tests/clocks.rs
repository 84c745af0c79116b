//! Distributed clocks and topology.

use super::*;
use crate::segment::{ConfigError, DeviceConfig, DeviceKind};

#[test]
fn receive_times_follow_the_tree() {
    let mut bench = Bench::humanoid(59);
    bench.address(59);
    assert_eq!(bench.one(physical(BWR, 0, 0x0900, &[0; 4])).counter, 59);
    let mut times = |station: u16| -> Vec<u32> {
        let bytes = bench.read(station, 0x0900, 16);
        bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    };
    // The hub has branches at ports 3 (head), 1 (left arm) and 2 (rest), which the frame passes in
    // this order.
    let hub = times(0x1002);
    let (head, arm, rest) = (hub[3] - hub[0], hub[1] - hub[3], hub[2] - hub[1]);
    assert!(head > 4 * 300 && arm > 16 * 300 && rest > 36 * 300, "{hub:?}");
    assert!(head < arm && arm < rest, "4, 16 and 36 devices: {head} {arm} {rest}");
    // The last device has one port.
    let last = times(0x1000 + 58);
    assert!(last[0] > 0 && last[1..] == [0, 0, 0]);
}

#[test]
fn the_reference_clock_pulls_the_others() {
    let mut bench = Bench::humanoid(8);
    bench.address(8);
    bench.one(physical(BWR, 0, 0x0900, &[0; 4]));
    // Masters clear the system time of all first; the offset's writing starts the clocks' control
    // afresh.
    bench.one(physical(BWR, 0, 0x0910, &[0; 8]));
    // As masters do: offsets that bring all to one time, from the receive times.
    for station in 0x1000..0x1008_u16 {
        let local = u64::from_le_bytes(bench.read(station, 0x0918, 8).try_into().unwrap());
        let offset = (1_u64 << 40).wrapping_sub(local);
        bench.write(station, 0x0920, &offset.to_le_bytes());
    }
    // Seven hops behind the reference, as a frame takes them.
    bench.write(0x1007, 0x0928, &2450_u32.to_le_bytes());
    let difference = |bench: &mut Bench, station: u16| {
        let word = u32::from_le_bytes(bench.read(station, 0x092C, 4).try_into().unwrap());
        word & 0x7FFF_FFFF
    };
    let mut first = 0;
    for round in 0..2000 {
        bench.now_ns += MS;
        let answer = bench.one(physical(FRMW, 0x1000, 0x0910, &[0; 8]));
        assert_eq!(answer.counter, 8);
        if round == 0 {
            first = difference(&mut bench, 0x1007);
        }
    }
    let last = difference(&mut bench, 0x1007);
    assert!(
        (1000..5000).contains(&first),
        "latched seven hops apart, which the delay makes up for: {first} ns"
    );
    assert!(last < 300, "{last} ns after 2000 rounds with up to 40 ppm between two clocks");
}

#[test]
fn without_clocks_their_registers_do_not_answer() {
    let mut bench = Bench::new(&SegmentConfig { distributed_clocks: false, ..SegmentConfig::humanoid(3) });
    assert_eq!(bench.one(physical(BWR, 0, 0x0900, &[0; 4])).counter, 0);
    assert_eq!(bench.one(physical(BRD, 0, 0x0008, &[0, 0])).data, [0, 0]);
}

#[test]
fn the_humanoid_has_59_devices_in_one_frame() {
    let config = SegmentConfig::humanoid(59);
    config.validate().unwrap();
    assert_eq!(config, SegmentConfig::default());
    let drives = config.devices.iter().filter(|device| device.kind == DeviceKind::Drive).count();
    assert_eq!((config.devices.len(), drives), (59, 43));
    // ethercrab asks every device's state in the same frame: 14 bytes each, beside the LRW's 12.
    let bytes = config.output_bytes() + config.input_bytes();
    assert!(12 + bytes + 14 * 59 <= 1498, "{bytes} bytes of process data");
    SegmentConfig::humanoid(200).validate().unwrap();
    SegmentConfig::humanoid(1).validate().unwrap();
}

#[test]
fn the_configuration_survives_toml() {
    let config = SegmentConfig::humanoid(59);
    let text = toml::to_string(&config).unwrap();
    assert_eq!(toml::from_str::<SegmentConfig>(&text).unwrap(), config);
    let error = toml::from_str::<SegmentConfig>("watchdog = 3").unwrap_err();
    assert!(error.to_string().contains("watchdog_ms"), "{error}");
}

#[test]
fn lists_that_are_no_tree_are_refused() {
    let device = |name: &str, parent: Option<&str>| DeviceConfig {
        parent: parent.map(str::to_owned),
        ..DeviceConfig::new(name, DeviceKind::DigitalIo)
    };
    let refused = |devices: Vec<DeviceConfig>| {
        Segment::new(&SegmentConfig { devices, ..SegmentConfig::default() }).unwrap_err()
    };
    assert_eq!(refused(vec![]), ConfigError::Count { found: 0 });
    assert!(matches!(
        refused(vec![device("a", None), device("a", None)]),
        ConfigError::DuplicateName { first: 1, second: 2, .. }
    ));
    assert!(matches!(
        refused(vec![device("a", Some("b")), device("b", None)]),
        ConfigError::UnknownParent { .. }
    ));
    let four = vec![
        device("hub", None),
        device("a", Some("hub")),
        device("b", Some("hub")),
        device("c", Some("hub")),
        device("d", Some("hub")),
    ];
    assert!(matches!(refused(four), ConfigError::TooManyChildren { found: 4, .. }));
    let order =
        vec![device("hub", None), device("a", Some("hub")), device("b", Some("hub")), device("c", Some("a"))];
    assert!(matches!(refused(order), ConfigError::Order { .. }));
    let mut bad = vec![DeviceConfig::new("knee", DeviceKind::Drive)];
    bad[0].joint.inertia_kg_m2 = f64::NAN;
    let error = refused(bad).to_string();
    assert_eq!(error, "device \"knee\": joint.inertia_kg_m2 = NaN, expected a number above 0");
}

#[test]
fn sync0_pulses_come_by_the_devices_own_clock_and_run_its_application() {
    let mut bench = Bench::new(&SegmentConfig { clock_drift_ppb: 100_000, ..SegmentConfig::humanoid(4) });
    bench.address(4);
    bench.one(physical(BWR, 0, 0x0900, &[0; 4]));
    bench.bring_to_op(0x1003, true, 6, 6);
    let time = |bench: &mut Bench| u64::from_le_bytes(bench.read(0x1003, 0x0910, 8).try_into().unwrap());
    let view = |bench: &Bench| bench.segment.devices().nth(3).unwrap().clock;
    // A start that has passed never comes, and the device will not work like that.
    let now = time(&mut bench);
    bench.write(0x1003, 0x0990, &(now - 1).to_le_bytes());
    bench.write(0x1003, 0x09A0, &1_000_000_u32.to_le_bytes());
    bench.write(0x1003, 0x0981, &[3]);
    assert_eq!(bench.request(0x1003, 0x04), (0x04, 0));
    assert_eq!(bench.request(0x1003, 0x08), (0x14, 0x2D));
    bench.write(0x1003, 0x0981, &[0]);
    let start = time(&mut bench) + 5 * MS;
    bench.write(0x1003, 0x0990, &start.to_le_bytes());
    bench.write(0x1003, 0x0981, &[3]);
    assert_eq!(bench.request(0x1003, 0x14), (0x04, 0));
    assert_eq!(bench.request(0x1003, 0x08), (0x08, 0));
    assert_eq!(view(&bench).pulses, 0);
    let mut pulses = Vec::new();
    for _ in 0..1000 {
        bench.now_ns += MS;
        bench.one(logical(LRW, 0, &[0; 12]));
        pulses.push((view(&bench).pulses, view(&bench).sync0_ns));
    }
    let (count, last) = *pulses.last().unwrap();
    let (_, first) = pulses.iter().find(|pulse| pulse.0 == 1).copied().unwrap();
    // Device 3 runs at 100 ppm times (3 * 7 % 11 - 5) / 5 against the time of the segment.
    let ppb = 100_000 * (21 % 11 - 5) / 5;
    assert!((990..=1005).contains(&count), "{count}");
    let expected = (count - 1) * MS - ((count - 1) as i64 * ppb / 1000) as u64;
    assert!((last - first).abs_diff(expected) < 200, "{} against {expected}", last - first);
    // Frames come every 1.001 ms: a pulse now and then falls between two.
    let before = view(&bench).starved;
    assert!(before <= 2, "{before}");
    // Without outputs its application goes on, and counts.
    bench.now_ns += 10 * MS;
    bench.read(0x1003, 0x0130, 2);
    assert!((8..=10).contains(&(view(&bench).starved - before)), "{:?}", view(&bench));
    // A clock that is set forward by an hour sets off no flood of pulses, nor does the shortest
    // cycle.
    bench.write(0x1003, 0x0920, &3_600_000_000_000_u64.to_le_bytes());
    bench.now_ns += MS;
    bench.read(0x1003, 0x0130, 2);
    let start = time(&mut bench) + 1000;
    bench.write(0x1003, 0x0981, &[0]);
    bench.write(0x1003, 0x0990, &(start + 2000).to_le_bytes());
    bench.write(0x1003, 0x09A0, &[1, 0, 0, 0]);
    bench.write(0x1003, 0x0981, &[3]);
    bench.now_ns += 3_600_000 * MS;
    bench.read(0x1003, 0x0130, 2);
    assert!(view(&bench).pulses < 2000, "{:?}", view(&bench));
}

#[test]
fn an_absolute_encoder_shows_its_own_zero_and_direction() {
    use crate::segment::JointConfig;
    let joint = JointConfig {
        start_rad: 1.0,
        gear: 50.0,
        counts_per_turn: 4096,
        encoder_zero_counts: i32::MAX - 100,
        encoder_reversed: true,
        ..JointConfig::default()
    };
    let devices = vec![DeviceConfig { joint, ..DeviceConfig::new("knee", DeviceKind::Drive) }];
    let mut bench = Bench::new(&SegmentConfig { devices, ..SegmentConfig::default() });
    bench.address(1);
    bench.bring_to_op(0x1000, true, 6, 6);
    let position = |bench: &mut Bench| {
        bench.now_ns += MS;
        let data = bench.one(logical(LRW, 0, &[0; 12])).data;
        i32::from_le_bytes(data[8..12].try_into().unwrap())
    };
    position(&mut bench);
    let expected = (i32::MAX - 100).wrapping_sub((1.0 * 50.0 * 4096.0 / std::f64::consts::TAU) as i32);
    assert!(position(&mut bench).wrapping_sub(expected).abs() <= 1);
    let mut bad = vec![DeviceConfig::new("knee", DeviceKind::Drive)];
    bad[0].joint.start_rad = 3.0;
    assert!(Segment::new(&SegmentConfig { devices: bad, ..SegmentConfig::default() }).is_err());
}
