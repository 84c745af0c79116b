//! Frames from the wire into the simulated EtherCAT segment.
//!
//! The input is a sequence of frames, each with its length (u16) before it; every frame goes in
//! raw, and once more with sound headers, so that the fuzzer gets to the datagrams.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_link_ethercat::segment::{Segment, SegmentConfig};

fuzz_target!(|data: &[u8]| {
    let Ok(mut segment) = Segment::new(&SegmentConfig::humanoid(6)) else { return };
    let mut rest = data;
    let mut now_ns = 0;
    while let [low, high, tail @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(tail.len()).min(1514);
        let (frame, next) = tail.split_at(length);
        rest = next;
        now_ns += 700_000;
        let mut raw = frame.to_vec();
        segment.process(&mut raw, now_ns);
        let mut sound = vec![0; 14];
        sound[12..].copy_from_slice(&[0x88, 0xA4]);
        sound.extend((frame.len() as u16 & 0x07FF | 0x1000).to_le_bytes());
        sound.extend(frame);
        segment.process(&mut sound, now_ns);
    }
});
