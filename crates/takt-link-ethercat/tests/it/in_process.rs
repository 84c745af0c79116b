//! ethercrab brings the segment to OP in the same process, and sees every fault.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::support;

use std::time::Duration;

use ethercrab::subdevice_group::Op;
use ethercrab::{DefaultLock, MainDevice, SubDeviceGroup, SubDeviceState};
use support::{block_on, master, patient_humanoid};
use takt_link_ethercat::segment::inprocess::InProcess;
use takt_link_ethercat::segment::{
    AlState, DriveState, Identity, Segment, SegmentConfig, SegmentControl, SiiDefect, When, WireFault,
    status_code,
};

type Group = SubDeviceGroup<64, 1024, DefaultLock, Op>;

struct Running {
    group: Group,
    main_device: MainDevice<'static>,
    control: SegmentControl,
    wire: InProcess,
    counter: u16,
}

fn running(config: &SegmentConfig, pdu: Duration) -> Running {
    let segment = Segment::new(config).unwrap();
    let control = segment.control();
    let (main_device, tx, rx) = master(pdu);
    let wire = InProcess::start("wire", &Default::default(), segment, tx, rx).unwrap();
    let group = block_on(async {
        let group = main_device.init_single_group::<64, 1024>(ethercrab::std::ethercat_now).await.unwrap();
        group.into_op(&main_device).await.unwrap()
    });
    Running { group, main_device, control, wire, counter: config.working_counter() }
}

fn patient(devices: usize) -> SegmentConfig {
    SegmentConfig { watchdog_ms: 5000, ..SegmentConfig::humanoid(devices) }
}

#[test]
fn fifty_nine_devices_reach_op_and_one_frame_carries_a_cycle() {
    let running = running(&patient_humanoid(), Duration::from_secs(5));
    assert_eq!(running.group.len(), 59);
    let before = running.control.counts();
    for _ in 0..100 {
        let response = block_on(running.group.tx_rx(&running.main_device)).unwrap();
        assert!(response.all_op());
        assert_eq!(response.working_counter, running.counter);
    }
    let after = running.control.counts();
    assert_eq!(after.frames - before.frames, 100, "process data and 59 state checks in one frame");
    assert_eq!((after.malformed, after.lost, running.wire.refused()), (0, 0, 0));
    assert!(running.control.devices().iter().all(|device| device.state == AlState::Op && !device.error));
}

#[test]
fn a_drive_is_enabled_and_moves() {
    let running = running(&patient(6), Duration::from_secs(5));
    let index = running.control.find("head-yaw").unwrap();
    let cycle = |control: u16, target: i32| {
        let device = running.group.subdevice(&running.main_device, index).unwrap();
        {
            let mut outputs = device.outputs_raw_mut();
            outputs[..2].copy_from_slice(&control.to_le_bytes());
            outputs[2..6].copy_from_slice(&target.to_le_bytes());
        }
        block_on(running.group.tx_rx(&running.main_device)).unwrap();
        // The micro-controller runs half a millisecond after the frame.
        std::thread::sleep(Duration::from_millis(1));
        let inputs = device.inputs_raw();
        (u16::from_le_bytes([inputs[0], inputs[1]]), i32::from_le_bytes(inputs[2..6].try_into().unwrap()))
    };
    let reach = |control: u16, pattern: u16| {
        for _ in 0..1000 {
            if cycle(control, 0).0 & 0x6F == pattern {
                return;
            }
        }
        panic!("statusword never {pattern:#x}");
    };
    for (control, pattern) in [(0x06, 0x21), (0x07, 0x23), (0x0F, 0x27)] {
        reach(control, pattern);
    }
    let mut target = 0;
    let mut last = (0, 0);
    for _ in 0..2000 {
        target = (target + 50).min(3000);
        last = cycle(0x0F, target);
        if (last.1 - 3000).abs() < 150 {
            break;
        }
    }
    assert!((last.1 - 3000).abs() < 150, "the joint is at {} of 3000", last.1);
    let drive = running.control.devices()[index].drive.unwrap();
    assert_eq!(drive.state, DriveState::OperationEnabled);
    running.control.drive_fault(index).unwrap();
    reach(0x0F, 0x08);
}

#[test]
fn faults_of_the_wire_are_seen() {
    let running = running(&patient(8), Duration::from_millis(200));
    let exchange = || block_on(running.group.tx_rx(&running.main_device));
    running.control.wire(WireFault::WorkingCounter, When::Next(1));
    assert_eq!(exchange().unwrap().working_counter, running.counter - 1);
    assert_eq!(exchange().unwrap().working_counter, running.counter);
    running.control.wire(WireFault::Drop, When::Next(1));
    assert!(exchange().is_err(), "a lost frame is a time-out");
    assert_eq!(exchange().unwrap().working_counter, running.counter);
    running.control.wire(WireFault::Duplicate, When::Next(1));
    assert_eq!(exchange().unwrap().working_counter, running.counter);
    assert_eq!(exchange().unwrap().working_counter, running.counter);
    assert_eq!(running.wire.refused(), 1, "the second copy finds nobody waiting");
    running.control.wire(WireFault::Delay(Duration::from_millis(400)), When::Next(1));
    assert!(exchange().is_err(), "later than the time-out");
    let counts = running.control.counts();
    assert_eq!((counts.lost, counts.duplicated, counts.delayed, counts.corrupted), (1, 1, 1, 1));
}

#[test]
fn devices_that_drop_out_are_seen() {
    let running = running(&patient(8), Duration::from_secs(5));
    let exchange = || block_on(running.group.tx_rx(&running.main_device)).unwrap();
    let last = running.counter;
    running.control.fall(3, AlState::SafeOp, status_code::NO_VALID_OUTPUTS).unwrap();
    let response = exchange();
    assert!(!response.all_op());
    assert_eq!(response.subdevice_states[3], SubDeviceState::SafeOp);
    running.control.fall(4, AlState::PreOp, status_code::NO_VALID_OUTPUTS).unwrap();
    assert!(exchange().working_counter < last, "its process data are closed");
    running.control.unplug(5).unwrap();
    let response = exchange();
    assert!(response.working_counter <= last - 6, "three devices are gone");
    running.control.plug(5).unwrap();
    running.control.power_cycle(6).unwrap();
    let response = exchange();
    assert!(response.working_counter < last && !response.all_op());
}

#[test]
fn a_refused_state_fails_the_bring_up() {
    let segment = Segment::new(&patient(4)).unwrap();
    let control = segment.control();
    control.refuse(2, AlState::Op, 0x0035).unwrap();
    let (main_device, tx, rx) = master(Duration::from_secs(5));
    let _wire = InProcess::start("wire", &Default::default(), segment, tx, rx).unwrap();
    block_on(async {
        let group = main_device.init_single_group::<64, 1024>(ethercrab::std::ethercat_now).await.unwrap();
        let group = group.into_safe_op(&main_device).await.unwrap();
        assert!(group.into_op(&main_device).await.is_err());
    });
    let view = control.devices_now(Duration::from_millis(1))[2];
    assert!(view.error && view.code == 0x0035 || view.state == AlState::Init, "{view:?}");
}

#[test]
fn another_identity_is_reported() {
    let segment = Segment::new(&patient(4)).unwrap();
    let identity = Identity { vendor: 0xE000_0001, product: 7, revision: 8, serial: 9 };
    segment.control().set_identity(1, identity).unwrap();
    let (main_device, tx, rx) = master(Duration::from_secs(5));
    let _wire = InProcess::start("wire", &Default::default(), segment, tx, rx).unwrap();
    block_on(async {
        let group = main_device.init_single_group::<64, 1024>(ethercrab::std::ethercat_now).await.unwrap();
        let identities = group.subdevice(&main_device, 1).unwrap().identity();
        assert_eq!(
            (identities.vendor_id, identities.product_id, identities.revision, identities.serial),
            (0xE000_0001, 7, 8, 9)
        );
        let probe = group.subdevice(&main_device, 0).unwrap();
        assert_eq!((probe.name(), probe.identity().serial), ("TAKT-PROBE", 1));
    });
}

/// The master may react to broken EEPROMs as it likes (ethercrab 0.7.1 panics on some of them): the
/// segment must go on, and a sound EEPROM must make all well again.
#[test]
fn broken_eeproms_do_not_break_the_segment() {
    for defect in [
        SiiDefect::Checksum,
        SiiDefect::HugeCategory,
        SiiDefect::HugeMailbox,
        SiiDefect::LongString,
        SiiDefect::HugeSyncManagers,
        SiiDefect::Blank,
        SiiDefect::Zero,
    ] {
        let mut segment = Segment::new(&patient(4)).unwrap();
        segment.control().spoil_sii(3, defect).unwrap();
        for sound in [false, true] {
            let control = segment.control();
            if sound {
                control.restore_sii(3).unwrap();
            }
            let (main_device, tx, rx) = master(Duration::from_secs(5));
            let wire = InProcess::start("wire", &Default::default(), segment, tx, rx).unwrap();
            let (report, reported) = std::sync::mpsc::channel();
            // A thread of its own: the master may panic or never come back.
            std::thread::spawn(move || {
                let outcome = block_on(async {
                    let group =
                        main_device.init_single_group::<64, 1024>(ethercrab::std::ethercat_now).await?;
                    group.into_op(&main_device).await.map(|group| group.len())
                });
                let _ = report.send(outcome);
            });
            let outcome = reported.recv_timeout(Duration::from_secs(if sound { 60 } else { 5 }));
            eprintln!("{defect:?}, sound {sound}: {outcome:?}");
            if sound || defect == SiiDefect::Checksum {
                // With a wrong checksum the categories are sound; only what the ESC takes at
                // power-on is not.
                assert_eq!(outcome.unwrap().unwrap(), 4, "{defect:?}");
            } else if matches!(defect, SiiDefect::HugeMailbox | SiiDefect::Zero | SiiDefect::Blank) {
                assert!(!matches!(outcome, Ok(Ok(_))), "{defect:?} cannot reach OP");
            }
            assert_eq!(control.counts().malformed, 0, "{defect:?}");
            segment = wire.stop().unwrap();
        }
    }
}
