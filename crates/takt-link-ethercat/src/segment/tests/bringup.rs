//! State machine, sync managers, watchdog, micro-controllers.

use super::*;
use crate::segment::{
    AlState, DeviceConfig, DeviceKind, DriveState, Identity, SiiDefect, Truth, status_code,
};

fn single(kind: DeviceKind) -> Bench {
    let devices = vec![DeviceConfig::new("only", kind)];
    let mut bench = Bench::new(&SegmentConfig { devices, ..SegmentConfig::default() });
    bench.address(1);
    bench
}

#[test]
fn states_are_entered_step_by_step() {
    let mut bench = single(DeviceKind::Drive);
    assert_eq!(bench.request(0x1000, 0x08), (0x11, status_code::INVALID_CHANGE));
    // The error flag holds off every request that does not acknowledge it.
    assert_eq!(bench.request(0x1000, 0x01), (0x11, status_code::INVALID_CHANGE));
    assert_eq!(bench.request(0x1000, 0x11), (0x01, 0));
    assert_eq!(bench.request(0x1000, 0x03), (0x11, status_code::NO_BOOTSTRAP));
    assert_eq!(bench.request(0x1000, 0x17), (0x11, status_code::UNKNOWN_STATE));
    // No mailbox yet.
    assert_eq!(bench.request(0x1000, 0x12), (0x11, status_code::MAILBOX));
    bench.mailboxes(0x1000);
    assert_eq!(bench.request(0x1000, 0x12), (0x02, 0));
    assert_eq!(bench.request(0x1000, 0x04), (0x12, status_code::OUTPUTS));
    bench.sync_manager(0x1000, 2, 0x1100, 6, 0x64);
    assert_eq!(bench.request(0x1000, 0x14), (0x12, status_code::INPUTS));
    bench.sync_manager(0x1000, 3, 0x1400, 5, 0x20);
    assert_eq!(bench.request(0x1000, 0x14), (0x12, status_code::INPUTS), "one byte too few");
    bench.sync_manager(0x1000, 3, 0x1400, 6, 0x20);
    assert_eq!(bench.request(0x1000, 0x14), (0x04, 0));
    assert_eq!(bench.request(0x1000, 0x08), (0x08, 0));
    assert_eq!(bench.request(0x1000, 0x02), (0x02, 0));
}

#[test]
fn process_data_are_open_from_safe_op_on() {
    let mut bench = single(DeviceKind::DigitalIo);
    bench.bring_to_op(0x1000, false, 1, 1);
    assert_eq!(bench.one(logical(LRW, 0, &[1, 0])).counter, 3);
    bench.request(0x1000, 0x04);
    assert_eq!(bench.one(logical(LRW, 0, &[1, 0])).counter, 3);
    bench.request(0x1000, 0x02);
    assert_eq!(bench.one(logical(LRW, 0, &[1, 0])).counter, 0);
}

#[test]
fn without_outputs_the_watchdog_ends_op_and_the_drive_is_safe() {
    let mut bench = single(DeviceKind::Drive);
    bench.bring_to_op(0x1000, true, 6, 6);
    for control in [0x06_u8, 0x07, 0x0F, 0x0F] {
        bench.one(logical(LRW, 0, &[control, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        bench.now_ns += MS;
    }
    let enabled = bench.segment.devices().next().unwrap();
    assert_eq!(enabled.drive.unwrap().state, DriveState::OperationEnabled);
    bench.now_ns += 98 * MS;
    assert_eq!(bench.read(0x1000, 0x0130, 1), [0x08], "99 ms");
    bench.now_ns += 2 * MS;
    let status = bench.read(0x1000, 0x0130, 6);
    assert_eq!((status[0], status[4]), (0x14, 0x1B), "SAFEOP, error, sync manager watchdog");
    let drive = bench.segment.devices().next().unwrap().drive.unwrap();
    assert_eq!(drive.state, DriveState::Fault);
    assert_eq!(bench.read(0x1000, 0x0440, 1), [0]);
    // Back to OP, fault reset: a rising edge of bit 7.
    assert_eq!(bench.request(0x1000, 0x18), (0x08, 0));
    for control in [0x00_u8, 0x80, 0x06, 0x07, 0x0F, 0x0F] {
        bench.one(logical(LRW, 0, &[control, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        bench.now_ns += MS;
    }
    let answer = bench.one(logical(LRW, 0, &[0x0F, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(answer.data[6] & 0x6F, 0x27);
}

#[test]
fn an_enabled_drive_follows_its_target_and_a_quick_stop_ends_it() {
    let mut bench = single(DeviceKind::Drive);
    bench.bring_to_op(0x1000, true, 6, 6);
    let cycle = |bench: &mut Bench, control: u8, target: i32| {
        let mut data = [0; 12];
        data[0] = control;
        data[2..6].copy_from_slice(&target.to_le_bytes());
        let answer = bench.one(logical(LRW, 0, &data));
        bench.now_ns += MS;
        let status = u16::from_le_bytes([answer.data[6], answer.data[7]]);
        (status & 0x6F, i32::from_le_bytes(answer.data[8..12].try_into().unwrap()))
    };
    for control in [0x06, 0x07, 0x0F, 0x0F] {
        cycle(&mut bench, control, 0);
    }
    // 0.5 rad in half a second, then hold.
    let goal = (0.5 * 131_072.0 / std::f64::consts::TAU) as i32;
    for step in 0..500 {
        cycle(&mut bench, 0x0F, goal * step / 500);
    }
    let mut last = (0, 0);
    for _ in 0..200 {
        last = cycle(&mut bench, 0x0F, goal);
    }
    assert_eq!(last.0, 0x27);
    assert!((last.1 - goal).abs() < goal / 50, "{} of {goal}", last.1);
    cycle(&mut bench, 0x0B, goal);
    let after = (0..300).map(|_| cycle(&mut bench, 0x0B, goal)).last().unwrap();
    assert_eq!(after.0, 0x40, "switch on disabled");
}

#[test]
fn a_target_out_of_reach_is_a_following_error() {
    let mut bench = single(DeviceKind::Drive);
    bench.bring_to_op(0x1000, true, 6, 6);
    let target = 50_000_i32.to_le_bytes();
    let mut status = 0;
    for at in 0..120 {
        let mut data = [0; 12];
        data[0] = [0x06, 0x07, 0x0F].get(at).copied().unwrap_or(0x0F);
        if at > 5 {
            data[2..6].copy_from_slice(&target);
        }
        status = bench.one(logical(LRW, 0, &data)).data[6];
        bench.now_ns += MS;
        if status & 0x4F == 0x08 {
            break;
        }
    }
    // With the default inertia the joint needs some time for 2.4 rad; the window is 0.35 rad for 50
    // ms.
    assert_eq!(status & 0x4F, 0x08, "fault");
}

#[test]
fn sensors_and_commands_keep_the_papers_half_cycle() {
    let mut segment = single(DeviceKind::EventProbe);
    let mut truth = segment.segment.truth(256);
    segment.bring_to_op(0x1000, false, 2, 4);
    let mut seen = Vec::new();
    let start = segment.now_ns.next_multiple_of(MS);
    for cycle in 0..100_u64 {
        segment.now_ns = start + cycle * MS - 1000;
        let answer = segment.one(logical(LRW, 0, &[cycle as u8, 0, 0, 0, 0, 0]));
        seen.push(u16::from_le_bytes([answer.data[2], answer.data[3]]));
    }
    let mut facts = [Truth::Applied { device: 0, value: 0, at_ns: 0 }; 256];
    let count = truth.take(&mut facts);
    let mut events = 0;
    for fact in &facts[..count] {
        match *fact {
            Truth::Event { count, at_ns, sampled_ns, .. } => {
                events += 1;
                assert!(sampled_ns >= at_ns && sampled_ns - at_ns < MS, "within a cycle");
                assert_eq!((sampled_ns - start) % MS, MS / 2, "sampled half a cycle after a frame");
                // In the device's memory from then on: the next frame fetches it.
                let fetched = (sampled_ns - start).div_ceil(MS) as usize;
                assert!(fetched >= seen.len() || seen[fetched] >= count && seen[fetched - 1] < count);
            }
            Truth::Applied { value, at_ns, .. } => {
                assert_eq!(at_ns, start + u64::from(value) * MS + MS / 2);
            }
            // Reported by what carries the frames, which is nobody here.
            Truth::Passed { .. } => panic!("nobody reported frames"),
        }
    }
    assert!(events >= 12, "{events} events in 100 ms, one every 7.3 ms");
}

#[test]
fn orders_refuse_states_and_let_devices_fall() {
    let mut bench = single(DeviceKind::DigitalIo);
    let control = bench.segment.control();
    control.refuse(0, AlState::Op, 0x0035).unwrap();
    bench.request(0x1000, 0x02);
    bench.sync_manager(0x1000, 2, 0x1100, 1, 0x64);
    bench.sync_manager(0x1000, 3, 0x1400, 1, 0x20);
    assert_eq!(bench.request(0x1000, 0x04), (0x04, 0));
    assert_eq!(bench.request(0x1000, 0x08), (0x14, 0x35));
    control.accept(0).unwrap();
    assert_eq!(bench.request(0x1000, 0x18), (0x08, 0));
    control.fall(0, AlState::PreOp, 0x0050).unwrap();
    let status = bench.read(0x1000, 0x0130, 6);
    assert_eq!((status[0], status[4]), (0x12, 0x50));
    control.power_cycle(0).unwrap();
    assert_eq!(bench.one(physical(FPRD, 0x1000, 0, &[0])).counter, 0, "the address is forgotten");
    assert_eq!(bench.one(physical(APRD, 0, 0x0130, &[0])).data, [1]);
}

fn sii_words(bench: &mut Bench, word: u16) -> Vec<u8> {
    let mut request = vec![0x00, 0x01];
    request.extend(u32::from(word).to_le_bytes());
    bench.write(0x1000, 0x0502, &request);
    let status = bench.read(0x1000, 0x0502, 2);
    assert_eq!(status[1] & 0x80, 0, "not busy");
    bench.read(0x1000, 0x0508, 8)
}

#[test]
fn the_eeprom_reports_the_identity_with_a_sound_checksum() {
    let mut bench = single(DeviceKind::Drive);
    let mut head = Vec::new();
    for word in [0, 4] {
        head.extend(sii_words(&mut bench, word));
    }
    assert_eq!(
        u16::from_le_bytes([head[14], head[15]]),
        u16::from(crate::segment::sii::checksum(&head[..14]))
    );
    assert_eq!(bench.read(0x1000, 0x0502, 2)[1] & 0x08, 0, "no checksum error");
    assert_eq!(sii_words(&mut bench, 8)[..4], 0x5441_4B54_u32.to_le_bytes());
    let identity = Identity { vendor: 1, product: 2, revision: 3, serial: 4 };
    bench.segment.control().set_identity(0, identity).unwrap();
    assert_eq!(sii_words(&mut bench, 8), [1, 0, 0, 0, 2, 0, 0, 0]);
    bench.segment.control().spoil_sii(0, SiiDefect::Checksum).unwrap();
    assert_eq!(bench.read(0x1000, 0x0502, 2)[1] & 0x08, 0x08);
    // Handed to the micro-controller: commands are not executed.
    bench.segment.control().restore_sii(0).unwrap();
    let before = sii_words(&mut bench, 8);
    bench.write(0x1000, 0x0500, &[1]);
    assert_eq!(sii_words(&mut bench, 0), before);
}

#[test]
fn an_eeprom_word_is_written_only_with_the_enable_bit() {
    let mut bench = single(DeviceKind::Drive);
    for (control, expected) in [([0x00, 0x02], 0x40), ([0x01, 0x02], 0x00)] {
        bench.write(0x1000, 0x0508, &[0xCD, 0xAB]);
        bench.write(0x1000, 0x0502, &[control[0], control[1], 4, 0, 0, 0]);
        assert_eq!(bench.read(0x1000, 0x0502, 2)[1] & 0x40, expected);
    }
    assert_eq!(sii_words(&mut bench, 4)[..2], [0xCD, 0xAB]);
    assert_eq!(bench.read(0x1000, 0x0502, 2)[1] & 0x08, 0x08, "the checksum no longer fits");
}

#[test]
fn free_running_micro_controllers_keep_their_own_rate() {
    let devices = vec![DeviceConfig::new("probe", DeviceKind::EventProbe)];
    let update = crate::segment::Update::FreeRunning { period_us: 2000 };
    let mut bench =
        Bench::new(&SegmentConfig { devices, update, event_period_us: 0, ..SegmentConfig::default() });
    let mut truth = bench.segment.truth(256);
    bench.address(1);
    bench.bring_to_op(0x1000, false, 2, 4);
    for cycle in 1..=100 {
        bench.now_ns += MS;
        bench.one(logical(LRW, 0, &[cycle, 0, 0, 0, 0, 0]));
    }
    let mut facts = Vec::new();
    truth.take_into(&mut facts, 256);
    let times: Vec<u64> = facts
        .iter()
        .map(|fact| match *fact {
            Truth::Applied { at_ns, .. } => at_ns,
            Truth::Event { .. } | Truth::Passed { .. } => panic!("no events were asked for"),
        })
        .collect();
    // Every other command is taken; the micro-controller's period never varies.
    assert!((48..=51).contains(&times.len()), "{} of 100 commands", times.len());
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 2 * MS), "{times:?}");
}

#[test]
fn an_event_can_be_struck_and_inputs_be_set() {
    let mut bench = single(DeviceKind::EventProbe);
    let control = bench.segment.control();
    let mut truth = bench.segment.truth(256);
    bench.bring_to_op(0x1000, false, 2, 4);
    control.strike(0).unwrap();
    bench.one(logical(LRW, 0, &[0; 6]));
    let struck = bench.now_ns;
    bench.now_ns += MS;
    let answer = bench.one(logical(LRW, 0, &[0; 6]));
    assert_eq!(answer.data[2..4], [1, 0]);
    let mut facts = Vec::new();
    truth.take_into(&mut facts, 256);
    assert_eq!(facts, [Truth::Event { device: 0, count: 1, at_ns: struck, sampled_ns: struck + MS / 2 }]);
    let mut bench = single(DeviceKind::DigitalIo);
    bench.bring_to_op(0x1000, false, 1, 1);
    bench.segment.control().set_inputs(0, Some(0xA5)).unwrap();
    bench.one(logical(LRW, 0, &[0; 2]));
    bench.now_ns += MS;
    assert_eq!(bench.one(logical(LRW, 0, &[0; 2])).data[1], 0xA5);
}
