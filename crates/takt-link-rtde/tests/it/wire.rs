//! The wire format: round trips, captured bytes of a third-party client, and hostile bytes.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use proptest::prelude::*;
use takt_link_rtde::wire::{
    Answer, ControllerVersion, DataType, Fields, FrameBuffer, Message, PacketType, Reply, Request, WireError,
    names, split,
};

/// `ur_rtde` 1.6.5, `RTDEIOInterface.setSpeedSlider(0.25)`, as captured on the wire.
const CAPTURED_SLIDER: [u8; 20] = [0, 20, b'U', 4, 0, 0, 0, 0x16, 0, 0, 0, 1, 0x3f, 0xd0, 0, 0, 0, 0, 0, 0];

#[test]
fn captured_slider_packet_parses() {
    let (packet, size) = split(&CAPTURED_SLIDER).unwrap().unwrap();
    assert_eq!(size, 20);
    let Request::Data { recipe, values } = Request::parse(packet).unwrap() else {
        panic!("not a data packet")
    };
    assert_eq!(recipe, 4);
    let mut fields = Fields::new(values);
    assert_eq!(fields.i32(), Ok(0x16), "input_int_register_23");
    assert_eq!(fields.u32(), Ok(1), "speed_slider_mask");
    assert_eq!(fields.f64(), Ok(0.25), "speed_slider_fraction");
    assert_eq!(fields.finish(), Ok(()));
}

#[test]
fn every_type_name_parses_back() {
    for kind in
        ["BOOL", "UINT8", "UINT32", "UINT64", "INT32", "DOUBLE", "VECTOR3D", "VECTOR6D", "VECTOR6INT32"]
    {
        let Ok(Answer::Type(parsed)) = Answer::parse(kind) else { panic!("{kind} is a type") };
        assert_eq!(parsed.name(), kind);
    }
    assert_eq!(Answer::parse("NOT_FOUND"), Ok(Answer::NotFound));
    assert_eq!(Answer::parse("IN_USE"), Ok(Answer::InUse));
    assert_eq!(Answer::parse("FLOAT"), Err(WireError::UnknownDataType));
    assert_eq!(DataType::Vector6d.size(), 48);
}

#[test]
fn name_list_may_end_with_a_comma() {
    assert_eq!(names("actual_q, timestamp,").collect::<Vec<_>>(), ["actual_q", "timestamp"]);
    assert_eq!(names("").count(), 0);
}

#[test]
fn malformed_headers_are_named() {
    assert_eq!(split(&[0, 2, b'U']), Err(WireError::SizeTooSmall { announced: 2 }));
    assert_eq!(split(&[0, 3, b'G']), Err(WireError::UnknownType { received: b'G' }));
    assert_eq!(split(b"GET / HTTP/1.1\r\n"), Err(WireError::UnknownType { received: b'T' }));
    assert_eq!(split(&[0]), Ok(None));
    assert_eq!(split(&[0, 20, b'U', 4]), Ok(None), "half a packet waits for the rest");
}

#[test]
fn oversize_packet_is_refused_before_its_payload_comes() {
    let mut frames = FrameBuffer::new(1024);
    frames
        .fill(|free| {
            free[..3].copy_from_slice(&[0x10, 0, b'U']);
            Ok::<_, ()>(3)
        })
        .unwrap();
    assert_eq!(frames.next_packet(), Err(WireError::SizeTooLarge { announced: 4096, limit: 1024 }));
}

#[test]
fn payloads_of_the_wrong_length_are_refused() {
    let reply = |bytes: &[u8]| split(bytes).unwrap().map(|(packet, _)| Reply::parse(packet).map(|_| ()));
    assert_eq!(reply(&[0, 3, b'V']), Some(Err(WireError::Short { needed: 1, left: 0 })));
    assert_eq!(reply(&[0, 5, b'S', 1, 1]), Some(Err(WireError::Trailing { left: 1 })));
    assert_eq!(reply(&[0, 6, b'M', 200, b'x', b'y']), Some(Err(WireError::Short { needed: 200, left: 2 })));
    assert_eq!(reply(&[0, 6, b'O', 1, 0xff, 0xfe]), Some(Err(WireError::NotText)));
    let long = "x".repeat(2049);
    let mut buffer = [0; 4096];
    assert_eq!(
        Request::SetupInputs { names: &long }.encode(&mut buffer),
        Err(WireError::NamesTooLong { received: 2049, limit: 2048 })
    );
    assert_eq!(
        Request::ProtocolVersion(2).encode(&mut buffer[..4]),
        Err(WireError::BufferFull { needed: 5, capacity: 4 })
    );
}

fn message() -> impl Strategy<Value = (String, String, u8)> {
    ("[ -~]{0,255}", "[ -~]{0,40}", any::<u8>())
}

proptest! {
    #[test]
    fn any_bytes_end_in_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(Some((packet, size))) = split(&bytes) {
            prop_assert!(size <= bytes.len());
            let _ = Request::parse(packet);
            let _ = Reply::parse(packet);
        }
    }

    #[test]
    fn data_packets_come_through_any_fragmentation(
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..20),
        cuts in proptest::collection::vec(1usize..97, 1..40),
    ) {
        let mut stream = Vec::new();
        let mut buffer = [0; 512];
        for values in &payloads {
            let size = Request::Data { recipe: 7, values }.encode(&mut buffer).unwrap();
            stream.extend_from_slice(&buffer[..size]);
        }
        let mut frames = FrameBuffer::new(256);
        let mut received = Vec::new();
        let mut at = 0;
        for cut in cuts.iter().cycle() {
            if at == stream.len() { break; }
            let piece = &stream[at..stream.len().min(at + cut)];
            at += frames.fill(|free| {
                let count = piece.len().min(free.len());
                free[..count].copy_from_slice(&piece[..count]);
                Ok::<_, ()>(count)
            }).unwrap();
            while let Some(packet) = frames.next_packet().unwrap() {
                prop_assert_eq!(packet.kind, PacketType::Data);
                received.push(packet.payload[1..].to_vec());
            }
        }
        prop_assert_eq!(received, payloads);
    }

    #[test]
    fn requests_round_trip(frequency_hz in 1.0f64..500.0, list in "[a-z_0-9,]{0,300}", text in message(), version in any::<u16>()) {
        let (message, source, level) = &text;
        let mut buffer = [0; 1024];
        for request in [
            Request::ProtocolVersion(version),
            Request::ControllerVersion,
            Request::SetupOutputs { frequency_hz, names: &list },
            Request::SetupInputs { names: &list },
            Request::Start,
            Request::Pause,
            Request::Text(Message { text: message, source, level: *level }),
        ] {
            let size = request.encode(&mut buffer).unwrap();
            let (packet, consumed) = split(&buffer[..size]).unwrap().unwrap();
            prop_assert_eq!(consumed, size);
            prop_assert_eq!(Request::parse(packet).unwrap(), request);
        }
    }

    #[test]
    fn replies_round_trip(recipe in any::<u8>(), types in "[A-Z0-9_,]{0,300}", accepted in any::<bool>(), version in any::<[u32; 4]>()) {
        let [major, minor, bugfix, build] = version;
        let mut buffer = [0; 1024];
        for reply in [
            Reply::ProtocolVersion { accepted },
            Reply::ControllerVersion(ControllerVersion { major, minor, bugfix, build }),
            Reply::SetupOutputs { recipe, types: &types },
            Reply::SetupInputs { recipe, types: &types },
            Reply::Start { accepted },
            Reply::Pause { accepted },
            Reply::Data { recipe, values: types.as_bytes() },
        ] {
            let size = reply.encode(&mut buffer).unwrap();
            let (packet, _) = split(&buffer[..size]).unwrap().unwrap();
            prop_assert_eq!(Reply::parse(packet).unwrap(), reply);
        }
    }
}
