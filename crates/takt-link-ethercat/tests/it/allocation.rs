//! Once built, the segment allocates nothing per frame: process data, state checks, mailbox
//! transfers, faults.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use takt_link_ethercat::segment::{Outcome, Segment, SegmentConfig, When, WireFault};
use takt_rt::proof::allocations;

fn frame(command: u8, address: u32, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x10; 12];
    frame.extend([0x88, 0xA4]);
    frame.extend(((data.len() as u16 + 12) | 0x1000).to_le_bytes());
    frame.extend([command, 0]);
    frame.extend(address.to_le_bytes());
    frame.extend((data.len() as u16).to_le_bytes());
    frame.extend([0, 0]);
    frame.extend(data);
    frame.extend([0, 0]);
    frame
}

fn physical(command: u8, station: u16, offset: u16, data: &[u8]) -> Vec<u8> {
    frame(command, u32::from(station) | u32::from(offset) << 16, data)
}

fn sync(start: u16, length: u16, control: u8) -> [u8; 8] {
    let ([a, b], [c, d]) = (start.to_le_bytes(), length.to_le_bytes());
    [a, b, c, d, control, 0, u8::from(length > 0), 0]
}

fn unit(logical: u8, length: u8, physical: u16, kind: u8) -> [u8; 16] {
    let [low, high] = physical.to_le_bytes();
    [logical, 0, 0, 0, length, 0, 0, 7, low, high, 0, kind, 1, 0, 0, 0]
}

#[test]
fn no_frame_allocates() {
    let mut segment = Segment::new(&SegmentConfig::humanoid(59)).unwrap();
    let mut truth = segment.truth(64);
    segment.control().wire(WireFault::WorkingCounter, When::Probability(0.5));
    // Device 3, a drive, to OP; the upload of an object on the way.
    let mut upload = vec![10, 0, 0, 0, 0, 0x13, 0, 0x20, 0x40, 0x00, 0x20, 0, 0, 0, 0, 0];
    upload.resize(128, 0);
    let frames: Vec<Vec<u8>> = vec![
        physical(2, 3_u16.wrapping_neg(), 0x0010, &[3, 0x10]),
        physical(5, 0x1003, 0x0800, &sync(0x1000, 128, 0x26)),
        physical(5, 0x1003, 0x0808, &sync(0x1080, 128, 0x22)),
        physical(5, 0x1003, 0x0120, &[2, 0]),
        physical(5, 0x1003, 0x1000, &upload),
        physical(4, 0x1003, 0x1080, &[0; 128]),
        physical(5, 0x1003, 0x0502, &[0, 1, 8, 0, 0, 0]),
        physical(5, 0x1003, 0x0810, &sync(0x1100, 6, 0x64)),
        physical(5, 0x1003, 0x0818, &sync(0x1400, 6, 0x20)),
        physical(5, 0x1003, 0x0600, &unit(0, 6, 0x1100, 2)),
        physical(5, 0x1003, 0x0610, &unit(6, 6, 0x1400, 1)),
        physical(5, 0x1003, 0x0120, &[4, 0]),
        physical(5, 0x1003, 0x0120, &[8, 0]),
        physical(8, 0, 0x0900, &[0; 4]),
        physical(14, 0x1003, 0x0910, &[0; 8]),
    ];
    let cycle = frame(12, 0, &[0x0F, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut buffers: Vec<Vec<u8>> = frames;
    buffers.extend((0..500).map(|_| cycle.clone()));
    // The first frame carries out the order above, which takes the list of orders.
    let mut first = frame(7, 0, &[0]);
    assert!(matches!(segment.process(&mut first, 0), Outcome::Return { .. }));
    let before = allocations();
    for (at, buffer) in buffers.iter_mut().enumerate() {
        segment.process(buffer, at as u64 * 400_000);
    }
    assert_eq!(allocations() - before, 0);
    let last = buffers.last().unwrap();
    let counter = u16::from_le_bytes([last[38], last[39]]);
    assert!(counter == 3 || counter == 2, "in OP and perhaps corrupted: {counter}");
    let mut facts = Vec::new();
    assert_eq!(truth.take_into(&mut facts, 1), 0, "the probe's process data were not asked for");
}
