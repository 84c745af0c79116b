//! Mailbox and SDO transfers.

use super::*;
use crate::segment::DeviceKind;

const STATION: u16 = 0x1000;

fn drive() -> Bench {
    let devices = vec![crate::segment::DeviceConfig::new("left-elbow", DeviceKind::Drive)];
    let mut bench = Bench::new(&SegmentConfig { devices, ..SegmentConfig::default() });
    bench.address(1);
    bench.mailboxes(STATION);
    assert_eq!(bench.request(STATION, 0x02), (0x02, 0));
    bench
}

/// Sends a CoE request and fetches the response: from the SDO command byte on.
fn sdo(bench: &mut Bench, request: &[u8]) -> Vec<u8> {
    let mut mailbox = vec![0; 128];
    mailbox[..2].copy_from_slice(&(request.len() as u16 + 2).to_le_bytes());
    mailbox[5] = 0x13;
    mailbox[7] = 0x20;
    mailbox[8..8 + request.len()].copy_from_slice(request);
    bench.write(STATION, 0x1000, &mailbox);
    assert_eq!(bench.read(STATION, 0x080D, 1)[0] & 8, 8, "a response is there");
    let response = bench.read(STATION, 0x1080, 128);
    assert_eq!(bench.read(STATION, 0x080D, 1)[0] & 8, 0, "fetched");
    let length = usize::from(u16::from_le_bytes([response[0], response[1]]));
    response[8..6 + length].to_vec()
}

fn upload(index: u16, sub: u8) -> [u8; 8] {
    let [low, high] = index.to_le_bytes();
    [0x40, low, high, sub, 0, 0, 0, 0]
}

fn abort_code(response: &[u8]) -> u32 {
    assert_eq!(response[0], 0x80, "{response:x?}");
    u32::from_le_bytes(response[4..8].try_into().unwrap())
}

#[test]
fn a_full_mailbox_takes_nothing_and_an_empty_one_gives_nothing() {
    let mut bench = drive();
    assert_eq!(bench.one(physical(FPRD, STATION, 0x1080, &[0; 128])).counter, 0);
    let mut request = vec![0; 128];
    request[0] = 10;
    request[5] = 0x13;
    request[7] = 0x20;
    request[8..16].copy_from_slice(&upload(0x1018, 1));
    bench.write(STATION, 0x1000, &request);
    // The first response waits in sync manager 1, so the second request stays in sync manager 0.
    bench.write(STATION, 0x1000, &request);
    assert_eq!(bench.one(physical(FPWR, STATION, 0x1000, &request)).counter, 0);
    let first = bench.read(STATION, 0x1080, 128);
    let second = bench.read(STATION, 0x1080, 128);
    assert_eq!((first[5] >> 4, second[5] >> 4), (1, 2), "counted");
    assert_eq!(first[6..], second[6..]);
}

#[test]
fn a_lost_response_is_given_again() {
    let mut bench = drive();
    let first = sdo(&mut bench, &upload(0x1018, 2));
    let activate = bench.read(STATION, 0x080E, 1)[0];
    bench.write(STATION, 0x080E, &[activate ^ 2]);
    assert_eq!(bench.read(STATION, 0x080F, 1)[0] & 2, 2, "acknowledged");
    let again = bench.read(STATION, 0x1080, 128);
    assert_eq!(again[8..16], first[..]);
}

#[test]
fn small_objects_are_expedited() {
    let mut bench = drive();
    assert_eq!(sdo(&mut bench, &upload(0x1C12, 0)), [0x4F, 0x12, 0x1C, 0, 1, 0, 0, 0]);
    assert_eq!(sdo(&mut bench, &upload(0x1C12, 1)), [0x4B, 0x12, 0x1C, 1, 0x00, 0x16, 0, 0]);
    assert_eq!(sdo(&mut bench, &upload(0x1600, 2)), [0x43, 0x00, 0x16, 2, 32, 0, 0x7A, 0x60]);
    assert_eq!(abort_code(&sdo(&mut bench, &upload(0x1C12, 2))), 0x0609_0011);
    assert_eq!(abort_code(&sdo(&mut bench, &upload(0x5FFF, 0))), 0x0602_0000);
    // Complete access.
    let mut complete = upload(0x1C12, 0);
    complete[0] |= 0x10;
    assert_eq!(abort_code(&sdo(&mut bench, &complete)), 0x0601_0004);
}

#[test]
fn long_objects_come_in_segments_with_toggling() {
    let mut bench = drive();
    let first = sdo(&mut bench, &upload(0x2000, 0));
    assert_eq!((first[0], u32::from_le_bytes(first[4..8].try_into().unwrap())), (0x41, 512));
    let mut data = first[8..].to_vec();
    let mut toggle = 0;
    loop {
        let segment = sdo(&mut bench, &[0x60 | toggle, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(segment[0] & 0xF0, toggle);
        let unused = usize::from(segment[0] >> 1 & 7);
        data.extend(&segment[1..segment.len() - unused]);
        toggle ^= 0x10;
        if segment[0] & 1 != 0 {
            break;
        }
    }
    assert_eq!(data, (0..512).map(|at| at as u8).collect::<Vec<_>>());
    // No transfer is under way any more.
    assert_eq!(abort_code(&sdo(&mut bench, &[0x60, 0, 0, 0, 0, 0, 0, 0])), 0x0504_0001);
}

#[test]
fn a_wrong_toggle_ends_the_transfer() {
    let mut bench = drive();
    sdo(&mut bench, &upload(0x2000, 0));
    assert_eq!(abort_code(&sdo(&mut bench, &[0x70, 0, 0, 0, 0, 0, 0, 0])), 0x0503_0000);
    assert_eq!(abort_code(&sdo(&mut bench, &[0x60, 0, 0, 0, 0, 0, 0, 0])), 0x0504_0001);
}

#[test]
fn long_objects_are_written_in_segments() {
    let mut bench = drive();
    let table: Vec<u8> = (0..512_u32).map(|at| (at * 5 + 1) as u8).collect();
    let mut request = vec![0x21, 0x00, 0x20, 0];
    request.extend(512_u32.to_le_bytes());
    request.extend(&table[..112]);
    assert_eq!(sdo(&mut bench, &request)[..4], [0x60, 0x00, 0x20, 0]);
    let (mut at, mut toggle) = (112, 0);
    while at < 512 {
        let end = (at + 119).min(512);
        let mut segment = vec![toggle | u8::from(end == 512)];
        segment.extend(&table[at..end]);
        segment.resize(segment.len().max(8), 0);
        assert_eq!(sdo(&mut bench, &segment)[0], 0x20 | toggle);
        (at, toggle) = (end, toggle ^ 0x10);
    }
    let first = sdo(&mut bench, &upload(0x2000, 0));
    assert_eq!(first[8..], table[..112]);
    // More than the object has.
    let mut huge = vec![0x21, 0x00, 0x20, 0];
    huge.extend(0xFFFF_FFFF_u32.to_le_bytes());
    assert_eq!(abort_code(&sdo(&mut bench, &huge)), 0x0504_0005);
}

#[test]
fn the_wide_pdo_is_assigned_in_pre_op_only() {
    let mut bench = drive();
    let clear = [0x2F, 0x12, 0x1C, 0, 0, 0, 0, 0];
    let assign = [0x2B, 0x12, 0x1C, 1, 0x01, 0x16, 0, 0];
    let one = [0x2F, 0x12, 0x1C, 0, 1, 0, 0, 0];
    assert_eq!(abort_code(&sdo(&mut bench, &assign)), 0x0601_0000, "not before it is cleared");
    assert_eq!(sdo(&mut bench, &clear)[0], 0x60);
    let unknown = [0x2B, 0x12, 0x1C, 1, 0x77, 0x16, 0, 0];
    assert_eq!(abort_code(&sdo(&mut bench, &unknown)), 0x0604_0041);
    assert_eq!(sdo(&mut bench, &assign)[0], 0x60);
    assert_eq!(sdo(&mut bench, &one)[0], 0x60);
    bench.sync_manager(STATION, 2, 0x1100, 14, 0x64);
    bench.sync_manager(STATION, 3, 0x1400, 6, 0x20);
    assert_eq!(bench.request(STATION, 0x04), (0x04, 0));
    assert_eq!(abort_code(&sdo(&mut bench, &clear)), 0x0800_0022);
}

#[test]
fn values_are_checked() {
    let mut bench = drive();
    let mode = |value: u8| [0x2F, 0x60, 0x60, 0, value, 0, 0, 0];
    assert_eq!(sdo(&mut bench, &mode(9))[0], 0x60);
    assert_eq!(sdo(&mut bench, &upload(0x6061, 0))[4], 9);
    assert_eq!(abort_code(&sdo(&mut bench, &mode(77))), 0x0609_0030);
    let too_long = [0x23, 0x60, 0x60, 0, 8, 0, 0, 0];
    assert_eq!(abort_code(&sdo(&mut bench, &too_long)), 0x0607_0010);
    let read_only = [0x2B, 0x41, 0x60, 0, 0, 0, 0, 0];
    assert_eq!(abort_code(&sdo(&mut bench, &read_only)), 0x0601_0002);
}

#[test]
fn other_protocols_get_a_mailbox_error() {
    let mut bench = drive();
    let mut request = vec![0; 128];
    request[0] = 10;
    request[5] = 0x14;
    bench.write(STATION, 0x1000, &request);
    let response = bench.read(STATION, 0x1080, 128);
    assert_eq!((response[5] & 0x0F, &response[6..10]), (0, &[1, 0, 2, 0][..]));
}
