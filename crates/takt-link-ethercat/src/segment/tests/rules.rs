//! Addressing and working counters.

use super::*;
use crate::segment::{DeviceConfig, DeviceKind, Malformed, When, WireFault};

#[test]
fn a_broadcast_read_counts_the_devices_and_ors_their_data() {
    let mut bench = Bench::humanoid(59);
    let answer = bench.one(physical(BRD, 0, 0x0000, &[0]));
    assert_eq!(answer, Answer { address: 59, data: vec![0x11], counter: 59 });
    // DL status: the last device has one link, the others more: OR shows all.
    let answer = bench.one(physical(BRD, 0, 0x0110, &[0, 0]));
    assert_eq!(answer.counter, 59);
    assert_eq!(answer.data[0] & 0x30, 0x30);
}

#[test]
fn auto_increment_reaches_one_device_and_counts_on() {
    let mut bench = Bench::humanoid(5);
    let answer = bench.one(physical(APWR, 3_u16.wrapping_neg(), 0x0010, &[0x34, 0x12]));
    assert_eq!((answer.counter, answer.address & 0xFFFF), (1, 2));
    assert_eq!(bench.read(0x1234, 0x0010, 2), [0x34, 0x12]);
    // Beyond the last device nobody answers.
    let answer = bench.one(physical(APRD, 5_u16.wrapping_neg(), 0x0010, &[0, 0]));
    assert_eq!((answer.counter, answer.data), (0, vec![0, 0]));
}

#[test]
fn two_devices_with_one_address_both_answer() {
    let mut bench = Bench::humanoid(3);
    for place in [0_u16, 1] {
        bench.one(physical(APWR, place.wrapping_neg(), 0x0010, &[1, 0x10]));
    }
    assert_eq!(bench.one(physical(FPRD, 0x1001, 0x0000, &[0])).counter, 2);
}

#[test]
fn reading_and_writing_at_once_counts_three() {
    let mut bench = Bench::humanoid(2);
    bench.address(2);
    let answer = bench.one(physical(FPRW, 0x1001, 0x1800, &[7, 8]));
    assert_eq!((answer.counter, answer.data), (3, vec![0, 0]));
    assert_eq!(bench.read(0x1001, 0x1800, 2), [7, 8]);
}

#[test]
fn read_multiple_write_carries_one_devices_data_to_all_others() {
    let mut bench = Bench::humanoid(4);
    bench.address(4);
    bench.write(0x1001, 0x1800, &[42]);
    // Devices before the addressed one get what the master sent.
    let answer = bench.one(physical(FRMW, 0x1001, 0x1800, &[9]));
    assert_eq!((answer.counter, answer.data), (4, vec![42]));
    assert_eq!(bench.read(0x1000, 0x1800, 1), [9]);
    assert_eq!(bench.read(0x1003, 0x1800, 1), [42]);
}

#[test]
fn what_the_device_reports_cannot_be_written() {
    let mut bench = Bench::humanoid(1);
    bench.address(1);
    let before = bench.read(0x1000, 0x0000, 16);
    let answer = bench.one(physical(FPWR, 0x1000, 0x0000, &[0xAA; 16]));
    assert_eq!(answer.counter, 1);
    assert_eq!(bench.read(0x1000, 0x0000, 16), before);
    bench.write(0x1000, 0x0130, &[8, 0]);
    assert_eq!(bench.read(0x1000, 0x0130, 2), [1, 0]);
}

#[test]
fn beyond_the_memory_nobody_answers() {
    let mut bench = Bench::humanoid(1);
    bench.address(1);
    assert_eq!(bench.one(physical(FPRD, 0x1000, 0x2FFF, &[0])).counter, 1);
    assert_eq!(bench.one(physical(FPRD, 0x1000, 0x2FFF, &[0, 0])).counter, 0);
    assert_eq!(bench.one(physical(FPWR, 0x1000, 0xFFFF, &[0, 0])).counter, 0);
}

#[test]
fn logical_access_counts_one_for_giving_and_two_for_taking() {
    let mut bench = Bench::new(&SegmentConfig {
        devices: vec![DeviceConfig::new("io", DeviceKind::DigitalIo)],
        ..SegmentConfig::default()
    });
    bench.address(1);
    bench.bring_to_op(0x1000, false, 1, 1);
    assert_eq!(bench.one(logical(LRW, 0, &[0x55, 0])).counter, 3);
    assert_eq!(bench.one(logical(LRD, 0, &[0, 0])).counter, 1);
    assert_eq!(bench.one(logical(LWR, 0, &[0x55, 0])).counter, 1);
    assert_eq!(bench.one(logical(LRW, 100, &[0, 0])).counter, 0);
    // The outputs are wired back to the inputs, half a millisecond after the frame.
    bench.now_ns += MS;
    assert_eq!(bench.one(logical(LRW, 0, &[0x55, 0])).data, [0x55, 0x55]);
}

#[test]
fn single_bits_are_mapped() {
    let mut bench = Bench::humanoid(1);
    bench.address(1);
    bench.write(0x1000, 0x1800, &[0b1010_0000]);
    // Bits 5 to 7 of 0x1800 to logical bits 2 to 4 of byte 16.
    let mut block = vec![16, 0, 0, 0, 1, 0, 2, 4, 0x00, 0x18, 5, 1, 1, 0, 0, 0];
    bench.write(0x1000, 0x0600, &block);
    let answer = bench.one(logical(LRD, 16, &[0b1110_0011]));
    assert_eq!((answer.counter, answer.data), (1, vec![0b1111_0111]));
    block[11] = 2;
    bench.write(0x1000, 0x0600, &block);
    assert_eq!(bench.one(logical(LWR, 16, &[0b0000_1000])).counter, 1);
    assert_eq!(bench.read(0x1000, 0x1800, 1), [0b0100_0000]);
}

#[test]
fn several_datagrams_in_a_frame_see_each_others_effects() {
    let mut bench = Bench::humanoid(1);
    let answers = bench.send(&[
        physical(APWR, 0, 0x0010, &[5, 0]),
        physical(FPWR, 5, 0x1900, &[1, 2]),
        physical(FPRD, 5, 0x1900, &[0, 0]),
    ]);
    assert_eq!(answers.iter().map(|answer| answer.counter).collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!(answers[2].data, [1, 2]);
}

#[test]
fn foreign_and_passed_frames_are_left_alone() {
    let mut bench = Bench::humanoid(2);
    let mut passed = frame(&[physical(BRD, 0, 0, &[0])]);
    assert_eq!(bench.segment.process(&mut passed, 1), Outcome::Return { copies: 1, delay_ns: 0 });
    assert_eq!(bench.segment.process(&mut passed, 2), Outcome::Ignored);
    let mut foreign = frame(&[physical(BRD, 0, 0, &[0])]);
    foreign[12] = 0x08;
    assert_eq!(bench.segment.process(&mut foreign, 3), Outcome::Ignored);
    assert_eq!(bench.segment.process(&mut [], 4), Outcome::Ignored);
    assert_eq!(bench.segment.counts().frames, 1);
}

#[test]
fn a_malformed_frame_is_named_and_not_half_executed() {
    let mut bench = Bench::humanoid(1);
    let mut bad = frame(&[physical(APWR, 0, 0x0010, &[5, 0]), physical(BRD, 0, 0, &[0])]);
    // The second datagram claims more than is there.
    bad[16 + 14 + 6] = 0xFF;
    let outcome = bench.segment.process(&mut bad, 1);
    assert_eq!(outcome, Outcome::Malformed(Malformed::Datagram { at: 30, claimed: 255, end: 43 }));
    assert_eq!(bench.one(physical(FPRD, 5, 0, &[0])).counter, 0, "the first datagram was not executed");
    let mut bad = frame(&[physical(BRD, 0, 0, &[0])]);
    bad[15] = 0x40;
    assert_eq!(bench.segment.process(&mut bad, 2), Outcome::Malformed(Malformed::Type { found: 4 }));
    let mut short = frame(&[physical(BRD, 0, 0, &[0])]);
    short.truncate(20);
    assert_eq!(
        bench.segment.process(&mut short, 3),
        Outcome::Malformed(Malformed::TooShort { found: 20, expected: 28 })
    );
    assert_eq!(bench.segment.counts().malformed, 3);
}

#[test]
fn wire_faults_hit_the_frames_they_are_instructed_to() {
    let mut bench = Bench::humanoid(2);
    let control = bench.segment.control();
    let mut outcomes = |control_first: &dyn Fn(), count: usize| {
        control_first();
        (0..count)
            .map(|at| bench.segment.process(&mut frame(&[logical(LRW, 0, &[0])]), at as u64))
            .collect::<Vec<_>>()
    };
    let normal = Outcome::Return { copies: 1, delay_ns: 0 };
    let drop = || control.wire(WireFault::Drop, When::Next(2));
    assert_eq!(outcomes(&drop, 3), [Outcome::Lost, Outcome::Lost, normal]);
    let twice = || control.wire(WireFault::Duplicate, When::Every(2));
    assert_eq!(outcomes(&twice, 2), [normal, Outcome::Return { copies: 2, delay_ns: 0 }]);
    let late = || {
        control.wire(WireFault::Duplicate, When::Never);
        control.wire(WireFault::Delay(std::time::Duration::from_micros(3)), When::Next(1));
    };
    assert_eq!(outcomes(&late, 2), [Outcome::Return { copies: 1, delay_ns: 3000 }, normal]);
    let sometimes = || control.wire(WireFault::Drop, When::Probability(0.25));
    let lost = outcomes(&sometimes, 4000).iter().filter(|outcome| **outcome == Outcome::Lost).count();
    assert!((800..1200).contains(&lost), "{lost} of 4000 at 0.25");
    let counts = control.counts();
    assert_eq!((counts.duplicated, counts.delayed), (1, 1));
    assert_eq!(counts.lost, 2 + lost as u64);
}

#[test]
fn a_corrupt_working_counter_is_one_too_small() {
    let mut bench = Bench::humanoid(1);
    bench.segment.control().wire(WireFault::WorkingCounter, When::Next(1));
    assert_eq!(bench.one(logical(LRD, 0, &[0])).counter, 0xFFFF);
    assert_eq!(bench.one(logical(LRD, 0, &[0])).counter, 0);
}

#[test]
fn an_unplugged_device_takes_all_behind_it_away() {
    let mut bench = Bench::humanoid(59);
    let control = bench.segment.control();
    let elbow = control.find("left-elbow").unwrap();
    control.unplug(elbow).unwrap();
    // Elbow, three wrist drives, wrist force, six fingers, palm and board.
    assert_eq!(bench.one(physical(BRD, 0, 0, &[0])).counter, 59 - 13);
    control.plug(elbow).unwrap();
    assert_eq!(bench.one(physical(BRD, 0, 0, &[0])).counter, 59);
    control.unplug(0).unwrap();
    let mut any = frame(&[physical(BRD, 0, 0, &[0])]);
    assert_eq!(bench.segment.process(&mut any, 1), Outcome::Lost);
    let error = control.unplug(59).unwrap_err();
    assert_eq!(error.to_string(), "there is no device 59; the segment's devices are 0 to 58");
}
