//! Recorded traces: metadata and one stream file, whatever they hold. The first two bytes say where
//! one ends.

#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_ros::Source;
use takt_ros::ctf::{Recording, Records};

fuzz_target!(|data: &[u8]| {
    let Some((length, rest)) = data.split_first_chunk::<2>() else { return };
    let (metadata, stream) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("metadata"), metadata).expect("metadata");
    std::fs::write(folder.path().join("c_0"), stream).expect("a stream");
    if let Ok(mut recording) = Recording::open(folder.path()) {
        while !recording.ended() {
            recording.poll(&mut |_| {}).expect("a recording never fails in passing");
        }
    }
    if let Ok(records) = Records::open(folder.path()) {
        // A stream of nothing but tiny events is long to show, and shows nothing new.
        records.take(1000).for_each(|record| drop(record.to_string()));
    }
});
