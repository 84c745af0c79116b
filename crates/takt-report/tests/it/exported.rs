//! A run as MCAP: typed messages, read back by the crate of MCAP's makers.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use serde::Serialize;
use takt_report::Supplements;
use takt_report::export::mcap;
use takt_rundir::{Measure, RUN_FILE, RunDir, RunHeader};

#[derive(Serialize)]
struct Job {
    planned_ns: u64,
    wake_ns: u64,
    fault: &'static str,
}

#[test]
fn samples_and_causes_are_typed_messages() {
    let folder = tempfile::tempdir().unwrap();
    let dir = RunDir::create_at(&folder.path().join("run")).unwrap();
    let mut file = dir.samples("jobs").unwrap();
    for (late_ns, fault) in [(5, ""), (300, "stuck"), (7, "")] {
        file.push(&Job { planned_ns: 1000, wake_ns: 1000 + late_ns, fault }).unwrap();
    }
    file.flush().unwrap();
    let lateness = Measure::new("lateness", "Lateness", "jobs", "wake_ns").since("planned_ns");
    let header = RunHeader {
        finished_utc: Some("2026-11-30T10:00:00.000Z".to_owned()),
        measures: vec![lateness.deadline_ns(200)],
        ..RunHeader::new("cyclic", "fifo:80")
    };
    dir.write_json(RUN_FILE, &header).unwrap();
    dir.seal().unwrap();
    let out = folder.path().join("run.mcap");
    let reported = mcap(dir.path(), &Supplements::default(), || std::fs::File::create(&out)).unwrap();
    assert_eq!(
        reported,
        BTreeMap::from(
            [("/causes", 3), ("/measures/lateness", 3), ("/samples/jobs", 3)].map(|(t, n)| (t.to_owned(), n))
        )
    );
    let bytes = std::fs::read(&out).unwrap();
    let mut seen: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for message in ::mcap::MessageStream::new(&bytes).unwrap() {
        let message = message.unwrap();
        let schema = message.channel.schema.clone().unwrap();
        assert_eq!((&*message.channel.message_encoding, &*schema.encoding), ("protobuf", "protobuf"));
        let name = if message.channel.topic == "/causes" { "foxglove.Log" } else { "takt." };
        assert!(schema.name.starts_with(name), "{}", schema.name);
        seen.entry(message.channel.topic.clone()).or_default().push(message.data.to_vec());
    }
    // ns: 300, us: 0.3, missed: true
    let expected = [&[0x08, 0xac, 0x02, 0x11][..], &0.3f64.to_le_bytes(), &[0x18, 0x01]].concat();
    assert_eq!(seen["/measures/lateness"][1], expected);
    // A row without a word has none in its message.
    assert_eq!(seen["/samples/jobs"][0], [0x08, 0xe8, 0x07, 0x10, 0xed, 0x07]);
    assert!(seen["/samples/jobs"][1].ends_with(b"\x1a\x05stuck"));
}
