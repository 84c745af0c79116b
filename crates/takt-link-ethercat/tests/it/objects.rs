//! Objects longer than a mailbox: written, read back, refused, and by whom that is reported.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex};

use takt_link_ethercat::control::{
    Back, ControlConfig, ControlError, DeviceConfig, InProcess, ObjectWrite, SdoError, Wire, bring_up,
    in_process, read_object,
};
use takt_link_ethercat::segment::{DeviceKind, Outcome, Segment, SegmentConfig};

/// The simulated devices' calibration: 512 bytes, a ramp when they are switched on.
const CALIBRATION: u16 = 0x2000;
const LENGTH: usize = 512;
const DEVICES: usize = 12;

/// Places of the drives, which have mailboxes.
fn drives() -> Vec<usize> {
    let devices = SegmentConfig::humanoid(DEVICES).devices;
    (0..DEVICES).filter(|&at| devices[at].kind == DeviceKind::Drive).collect()
}

/// One segment that several masters meet one after the other, and a spoiler of the responses that
/// its mailboxes give.
fn shared(segment: &Arc<Mutex<Segment>>, mut spoil: impl FnMut(&mut [u8]) + Send + 'static) -> Box<dyn Wire> {
    let segment = Arc::clone(segment);
    Box::new(InProcess::new(move |frame: &mut [u8], now_ns| {
        let Outcome::Return { copies, delay_ns } = segment.lock().unwrap().process(frame, now_ns) else {
            return None;
        };
        spoil(frame);
        Some(Back { copies, delay_ns })
    }))
}

fn config(startup: Vec<ObjectWrite>) -> ControlConfig {
    let mut devices = vec![DeviceConfig::default(); DEVICES];
    devices[drives()[0]].startup = startup;
    ControlConfig { devices, bring_up_ms: 20_000, silence_ms: 2000, ..ControlConfig::default() }
}

fn calibration(data: Vec<u8>, verify: bool) -> ObjectWrite {
    ObjectWrite { index: CALIBRATION, data: Some(data), verify, ..ObjectWrite::default() }
}

fn segment() -> Arc<Mutex<Segment>> {
    Arc::new(Mutex::new(Segment::new(&SegmentConfig::humanoid(DEVICES)).unwrap()))
}

#[test]
fn an_object_longer_than_a_mailbox_is_written_and_read_whole() {
    let segment = segment();
    let read = |segment| {
        read_object(shared(segment, |_| {}), &config(Vec::new()), drives()[0], CALIBRATION, 0).unwrap()
    };
    let ramp: Vec<u8> = (0..LENGTH).map(|at| at as u8).collect();
    assert_eq!(read(&segment), ramp);
    let data: Vec<u8> = (0..LENGTH).map(|at| (at * 7 + at / 256) as u8).collect();
    let link =
        bring_up(shared(&segment, |_| {}), &config(vec![calibration(data.clone(), true)]), &mut |_| {});
    drop(link.unwrap());
    assert_eq!(read(&segment), data);
    // Its neighbour has kept its own.
    let other =
        read_object(shared(&segment, |_| {}), &config(Vec::new()), drives()[1], CALIBRATION, 0).unwrap();
    assert_eq!(other, ramp);
    // Shorter than a segment, and by the expedited way.
    let name = read_object(shared(&segment, |_| {}), &config(Vec::new()), drives()[0], 0x1009, 0).unwrap();
    assert_eq!(name, b"1.0");
    let vendor = read_object(shared(&segment, |_| {}), &config(Vec::new()), drives()[0], 0x1018, 1).unwrap();
    assert_eq!(vendor.len(), 4);
}

#[test]
fn a_number_is_read_back_too() {
    let mode = |value| ObjectWrite { index: 0x6060, bytes: 1, value, verify: true, ..ObjectWrite::default() };
    let mut config = ControlConfig { bring_up_ms: 20_000, silence_ms: 2000, ..ControlConfig::default() };
    config.devices = vec![DeviceConfig::default(); DEVICES];
    config.devices[drives()[0]].startup = vec![mode(8)];
    let segment = Segment::new(&SegmentConfig::humanoid(DEVICES)).unwrap();
    bring_up(in_process(segment), &config, &mut |_| {}).unwrap();
}

#[test]
fn what_a_device_refuses_or_spoils_is_reported() {
    let refused = |startup: Vec<ObjectWrite>| {
        bring_up(shared(&segment(), |_| {}), &config(startup), &mut |_| {}).err().unwrap()
    };
    // Too short for that object, longer than the device can take, read only, not there.
    for (write, code) in [
        (calibration(vec![1; 100], false), 0x0607_0010),
        (calibration(vec![1; 5000], false), 0x0504_0005),
        (ObjectWrite { index: 0x1008, ..calibration(vec![1; 9], false) }, 0x0601_0002),
        (ObjectWrite { index: 0x7777, ..calibration(vec![1; 200], false) }, 0x0602_0000),
    ] {
        match refused(vec![write.clone()]) {
            ControlError::Sdo { position, source: SdoError::Abort { code: reported }, length, .. } => {
                assert_eq!(
                    (position, reported, length),
                    (drives()[0], code, write.payload().len()),
                    "{write:?}"
                );
            }
            other => panic!("{write:?}: {other}"),
        }
    }
    for write in [
        ObjectWrite { bytes: 2, ..calibration(vec![1; 9], false) },
        ObjectWrite { index: CALIBRATION, bytes: 3, ..ObjectWrite::default() },
        calibration(Vec::new(), false),
    ] {
        assert!(matches!(refused(vec![write]), ControlError::Invalid(_)));
    }
    let error = read_object(shared(&segment(), |_| {}), &config(Vec::new()), 99, CALIBRATION, 0).unwrap_err();
    assert!(error.to_string().contains("there are 12"), "{error}");
}

/// Every byte of every response, changed: an answer that is right, or an error; never a panic, and
/// never data that were taken for whole while a segment was missing.
#[test]
fn spoilt_responses_end_in_an_error_or_in_whole_data() {
    let ramp: Vec<u8> = (0..LENGTH).map(|at| at as u8).collect();
    let (mut reported, mut whole) = (0, 0);
    // Offset behind the datagram's header, value: headers of mailbox, CoE and SDO.
    for (offset, value) in
        (0..14).flat_map(|offset| [0x00, 0x01, 0x10, 0x41, 0x80, 0xFF].map(|v| (offset, v)))
    {
        let spoil = move |frame: &mut [u8]| {
            // A read of a whole mailbox: FPRD, of the length that the simulated mailboxes have.
            let length = usize::from(u16::from_le_bytes([frame[22], frame[23]]) & 0x7FF);
            if frame[16] == 4 && length > 64 && frame.len() > 26 + offset {
                frame[26 + offset] = value;
            }
        };
        let config = ControlConfig { bring_up_ms: 1500, ..config(Vec::new()) };
        match read_object(shared(&segment(), spoil), &config, drives()[0], CALIBRATION, 0) {
            // Spoilt where nobody looks (addresses, priorities, counters), or with what was there.
            Ok(data) => {
                whole += 1;
                assert_eq!(data.len(), ramp.len(), "offset {offset}, value {value:#x}");
            }
            Err(error) => {
                reported += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(reported > 20 && whole > 5, "{reported} spoilt responses were reported, {whole} were whole");
}
