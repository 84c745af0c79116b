//! The replay reader over arbitrary bytes: whatever a recording contains, an error or frames, no
//! panic.
//!
//! The MCAP magic is put in front, so that the fuzzer need not find it; the first byte chooses the
//! options. Seeds: files written by the recorder and by others (ROS 2 in CDR, Foxglove in JSON and
//! PNG, without chunks and without an index), without their first eight bytes and with a byte in
//! front.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use takt_link_camera::recording::FrameReader;
use takt_link_camera::{Frame, Intrinsics, ReplayConfig};

const MAGIC: &[u8] = b"\x89MCAP0\r\n";

fuzz_target!(|data: &[u8]| {
    let Some((&options, data)) = data.split_first() else { return };
    // The prefixes of the seeds.
    let topic = ["/cam0", "/camera", "/c"][usize::from(options >> 4) % 3];
    let mut config = ReplayConfig::new("fuzz.mcap", topic);
    config.allow_truncated = options & 1 != 0;
    config.looped = options & 2 != 0;
    config.color_only = options & 4 != 0;
    if options & 8 != 0 {
        config.intrinsics =
            Some(Intrinsics { width: 48, height: 32, fx: 40.0, fy: 40.0, cx: 23.5, cy: 15.5 });
    }
    let file: Vec<u8> = MAGIC.iter().chain(data).copied().collect();
    if let Ok(mut reader) = FrameReader::new(Cursor::new(file), &config) {
        let mut frame = Frame::new(1, 1);
        let size = reader.intrinsics();
        for _ in 0..32 {
            match reader.read(&mut frame) {
                Ok(true) => assert_eq!(frame.depth_mm.len(), size.pixels()),
                Ok(false) | Err(_) => break,
            }
        }
    }
});
