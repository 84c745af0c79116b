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
    // The hub has branches at ports 3 (head), 1 (left arm) and 2 (rest), which the frame passes in this order.
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
    // Masters clear the system time of all first; the offset's writing starts the clocks' control afresh.
    bench.one(physical(BWR, 0, 0x0910, &[0; 8]));
    // As masters do: offsets that bring all to one time, from the receive times.
    for station in 0x1000..0x1008_u16 {
        let local = u64::from_le_bytes(bench.read(station, 0x0918, 8).try_into().unwrap());
        let offset = (1_u64 << 40).wrapping_sub(local);
        bench.write(station, 0x0920, &offset.to_le_bytes());
    }
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
    assert!((1000..5000).contains(&first), "latched seven hops apart: {first} ns");
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
