//! Recordings of several hosts in one folder, with process numbers that are alike and clocks that
//! began at different times.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use takt_ros::ctf::{Error, Host, Recording};
use takt_ros::{Kind, Source};

use crate::support::{Header, Packet, metadata, write};

/// A host's trace: its clock was zero at so many seconds since the Epoch.
fn host(folder: &Path, name: &str, zero_s: u64, starts: &[u64]) {
    let text = metadata(Header::Large)
        .replace("hostname = \"here\"", &format!("hostname = \"{name}\""))
        .replace("offset = 1655772632839550660", &format!("offset = {zero_s}000000000"))
        .replace("f734e23f-4e6c-4955", &format!("f734e23f-4e6c-{:04}", name.len()));
    let mut packet = Packet::new(Header::Large, 0, starts[0]);
    for (callback, at) in starts.iter().enumerate() {
        packet.callback_start(*at, 7, callback as u64);
    }
    write(folder, &text, &[("c_0", packet.bytes(0))]);
}

#[test]
fn hosts_are_read_one_by_one_or_together_by_the_time_of_day() {
    let folder = tempfile::tempdir().unwrap();
    // The second one was started a second later by the time of day.
    host(&folder.path().join("a"), "arm", 1_700_000_000, &[5_000_000_000, 5_400_000_000]);
    host(&folder.path().join("b"), "base0", 1_700_000_001, &[4_200_000_000, 4_600_000_000]);
    assert!(matches!(Recording::open(folder.path()), Err(Error::SeveralClocks { .. })));
    let hosts = Recording::by_host(folder.path()).unwrap();
    assert_eq!(hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["arm", "base0"]);
    let alone = starts(Recording::of(&hosts[1].traces).unwrap());
    assert_eq!(alone, [(4_200_000_000, 100, 0), (4_600_000_000, 100, 1)]);
    let traces: Vec<_> = hosts.iter().flat_map(|host| host.traces.clone()).collect();
    let together = starts(Recording::together(&traces).unwrap());
    let times: Vec<u64> = together.iter().map(|(at_ns, ..)| *at_ns).collect();
    assert_eq!(times, [5_000_000_000, 5_200_000_000, 5_400_000_000, 5_600_000_000]);
    let of: Vec<u32> = together.iter().map(|(_, pid, _)| Host::of_process(*pid)).collect();
    assert_eq!(of, [0, 1, 0, 1]);
    // One host is one host, in how many folders ever.
    fs::rename(folder.path().join("b"), folder.path().join("c")).unwrap();
    host(&folder.path().join("b"), "base0", 1_700_000_001, &[4_300_000_000]);
    assert_eq!(Recording::by_host(folder.path()).unwrap().len(), 2);
}

fn starts(mut recording: Recording) -> Vec<(u64, u32, u64)> {
    let mut starts = Vec::new();
    while !recording.ended() {
        let mut keep = |event: takt_ros::Event| {
            if let Kind::CallbackStart { callback, .. } = event.kind {
                starts.push((event.at_ns, event.pid, callback));
            }
        };
        recording.poll(&mut keep).unwrap();
    }
    starts
}
