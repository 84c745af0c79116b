//! Whatever comes by wire, nothing panics and nothing grows.

use super::*;
use proptest::prelude::*;

fn datagram() -> impl Strategy<Value = Datagram> {
    let offset = prop_oneof![
        0_u16..0x1000,
        Just(0x0120),
        Just(0x0502),
        0x0600_u16..0x0700,
        0x0800_u16..0x0840,
        0x1000_u16..0x1500,
        any::<u16>(),
    ];
    let address =
        prop_oneof![0_u16..6, (0_u16..6).prop_map(u16::wrapping_neg), 0x1000_u16..0x1006, any::<u16>()];
    (0_u8..16, address, offset, proptest::collection::vec(any::<u8>(), 1..200))
        .prop_map(|(command, address, offset, data)| physical(command, address, offset, &data))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), now in any::<u64>()) {
        let mut segment = Segment::new(&SegmentConfig::humanoid(3)).unwrap();
        segment.process(&mut bytes, now);
        // The same as EtherCAT.
        if bytes.len() >= 16 {
            bytes[6] = 0;
            bytes[12..14].copy_from_slice(&[0x88, 0xA4]);
            bytes[15] = bytes[15] & 0x07 | 0x10;
            segment.process(&mut bytes, now);
        }
    }

    #[test]
    fn any_datagrams_are_survived(
        frames in proptest::collection::vec(proptest::collection::vec(datagram(), 1..6), 1..20),
        step in 0_u64..300_000_000,
    ) {
        let mut segment = Segment::new(&SegmentConfig::humanoid(6)).unwrap();
        for place in 0_u16..6 {
            let set = physical(APWR, place.wrapping_neg(), 0x0010, &(0x1000 + place).to_le_bytes());
            segment.process(&mut frame(&[set]), 0);
        }
        let mut now = 0;
        for datagrams in &frames {
            let mut bytes = frame(datagrams);
            let length = bytes.len();
            now += step;
            segment.process(&mut bytes, now);
            prop_assert_eq!(bytes.len(), length);
        }
    }

    #[test]
    fn any_mailbox_message_is_answered_or_refused(body in proptest::collection::vec(any::<u8>(), 122), kind in 0_u8..16) {
        let mut bench = Bench::new(&SegmentConfig {
            devices: vec![crate::segment::DeviceConfig::new("d", crate::segment::DeviceKind::Drive)],
            ..SegmentConfig::default()
        });
        bench.address(1);
        bench.mailboxes(0x1000);
        bench.request(0x1000, 0x02);
        for length in [0_u16, 10, 122, 0xFFFF] {
            let mut message = length.to_le_bytes().to_vec();
            message.extend([0, 0, 0, kind]);
            message.extend(&body);
            bench.write(0x1000, 0x1000, &message);
            prop_assert_eq!(bench.read(0x1000, 0x080D, 1)[0] & 8, 8);
            bench.read(0x1000, 0x1080, 128);
        }
    }
}
