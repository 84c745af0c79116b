//! Whatever comes over the network ends in packets or in an error, and what parses packs to the
//! same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_link_rtde::wire::{Answer, Fields, FrameBuffer, Reply, Request, names, split};

fuzz_target!(|bytes: &[u8]| {
    let mut buffer = vec![0; 65_535];
    let mut rest = bytes;
    while let Ok(Some((packet, size))) = split(rest) {
        if let Ok(request) = Request::parse(packet)
            && let Ok(packed) = request.encode(&mut buffer)
        {
            assert_eq!(&buffer[..packed], &rest[..size]);
        }
        if let Ok(reply) = Reply::parse(packet) {
            if let Reply::SetupOutputs { types, .. } | Reply::SetupInputs { types, .. } = reply {
                names(types).for_each(|name| {
                    let _ = Answer::parse(name);
                });
            }
            if let Ok(packed) = reply.encode(&mut buffer) {
                let (again, _) = split(&buffer[..packed]).unwrap().unwrap();
                assert_eq!(Reply::parse(again), Ok(reply));
            }
        }
        let mut fields = Fields::new(packet.payload);
        let _ = fields.u8().and_then(|_| fields.doubles::<6>()).and_then(|_| fields.i32());
        rest = &rest[size..];
    }

    // The same bytes in pieces whose sizes the bytes choose: the stream must give the same packets.
    let mut frames = FrameBuffer::new(4096);
    let mut left = bytes;
    let mut at = 0;
    loop {
        match frames.next_packet() {
            Ok(Some(packet)) => {
                let size = packet.payload.len() + 3;
                assert_eq!(&bytes[at + 3..at + size], packet.payload);
                at += size;
            }
            Ok(None) if left.is_empty() => break,
            Ok(None) => {
                let piece = usize::from(left[0] % 17) + 1;
                let filled = frames.fill(|free| {
                    let count = piece.min(left.len()).min(free.len());
                    free[..count].copy_from_slice(&left[..count]);
                    Ok::<_, ()>(count)
                });
                let count = filled.unwrap();
                assert!(count > 0, "there is room whenever no packet is complete");
                left = &left[count..];
            }
            Err(_) => break,
        }
    }
});
