//! How many full frames (process data of 59 devices and 59 state checks) the segment executes a
//! second.
//!
//! The time goes on by 1 ms a frame: every micro-controller, joint included, runs once a frame.
#![allow(clippy::unwrap_used, reason = "a bench that cannot start should say so")]
#![allow(missing_docs, reason = "criterion's macros write undocumented functions")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use takt_link_ethercat::segment::{Outcome, Segment, SegmentConfig};

fn datagram(command: u8, address: [u8; 4], data: &[u8], more: bool) -> Vec<u8> {
    let mut bytes = vec![command, 0];
    bytes.extend(address);
    bytes.extend((data.len() as u16 | u16::from(more) << 15).to_le_bytes());
    bytes.extend([0, 0]);
    bytes.extend(data);
    bytes.extend([0, 0]);
    bytes
}

fn frame(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let body = datagrams.concat();
    let mut frame = vec![0xFF; 6];
    frame.extend([0x10; 6]);
    frame.extend([0x88, 0xA4]);
    frame.extend((body.len() as u16 | 0x1000).to_le_bytes());
    frame.extend(body);
    frame
}

/// A segment in OP, and the frame of one cycle as ethercrab sends it.
fn in_op() -> (Segment, Vec<u8>) {
    let config = SegmentConfig::humanoid(59);
    let mut segment = Segment::new(&config).unwrap();
    let mut send = |command: u8, address: u16, offset: u16, data: &[u8]| {
        let [a, b] = address.to_le_bytes();
        let [c, d] = offset.to_le_bytes();
        let outcome = segment.process(&mut frame(&[datagram(command, [a, b, c, d], data, false)]), 0);
        assert_eq!(outcome, Outcome::Return { copies: 1, delay_ns: 0 });
    };
    let sync = |start: u16, length: usize, control: u8| {
        let mut block = start.to_le_bytes().to_vec();
        block.extend((length as u16).to_le_bytes());
        block.extend([control, 0, u8::from(length > 0), 0]);
        block
    };
    let unit = |logical: usize, length: usize, start: u16, kind: u8| {
        let mut block = (logical as u32).to_le_bytes().to_vec();
        block.extend((length as u16).to_le_bytes());
        block.extend([0, 7]);
        block.extend(start.to_le_bytes());
        block.extend([0, kind, u8::from(length > 0), 0, 0, 0]);
        block
    };
    let (mut inputs_at, mut outputs_at) = (0, config.input_bytes());
    let mut checks = Vec::new();
    for (place, device) in config.devices.iter().enumerate() {
        let station = 0x1000 + place as u16;
        let (outputs, inputs) = (device.kind.output_bytes(), device.kind.input_bytes());
        send(2, (place as u16).wrapping_neg(), 0x0010, &station.to_le_bytes());
        send(5, station, 0x0800, &sync(0x1000, 128, 0x26));
        send(5, station, 0x0808, &sync(0x1080, 128, 0x22));
        send(5, station, 0x0120, &[2, 0]);
        send(5, station, 0x0810, &sync(0x1100, outputs, 0x64));
        send(5, station, 0x0818, &sync(0x1400, inputs, 0x20));
        send(5, station, 0x0600, &unit(outputs_at, outputs, 0x1100, 2));
        send(5, station, 0x0610, &unit(inputs_at, inputs, 0x1400, 1));
        send(5, station, 0x0120, &[4, 0]);
        send(5, station, 0x0120, &[8, 0]);
        (inputs_at, outputs_at) = (inputs_at + inputs, outputs_at + outputs);
        let [a, b] = station.to_le_bytes();
        checks.push(datagram(4, [a, b, 0x30, 0x01], &[0, 0], place + 1 < config.devices.len()));
    }
    let mut datagrams = vec![datagram(12, [0; 4], &vec![0; outputs_at], true)];
    datagrams.extend(checks);
    let full = frame(&datagrams);
    let mut once = full.clone();
    segment.process(&mut once, 0);
    let at = 16 + 10 + outputs_at;
    assert_eq!(u16::from_le_bytes([once[at], once[at + 1]]), config.working_counter(), "all in OP");
    (segment, full)
}

fn frames(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("segment");
    group.throughput(Throughput::Elements(1));
    for (name, step_ns) in
        [("full frame, 59 devices, 1 ms apart", 1_000_000), ("full frame, 50 us apart", 50_000)]
    {
        let (mut segment, full) = in_op();
        let mut buffer = full.clone();
        let mut now_ns = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                buffer.copy_from_slice(&full);
                now_ns += step_ns;
                black_box(segment.process(&mut buffer, now_ns))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, frames);
criterion_main!(benches);
