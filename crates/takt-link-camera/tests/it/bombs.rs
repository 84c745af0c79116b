//! Files that are small and demand much: each is refused for what it demands, at once, and a limit
//! is called a limit.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::Cursor;

use takt_link_camera::recording::FrameReader;
use takt_link_camera::{CameraError, Frame, Intrinsics, ReplayConfig};

const SIZE: Intrinsics = Intrinsics { width: 64, height: 48, fx: 60.0, fy: 61.0, cx: 31.5, cy: 23.5 };

fn record(opcode: u8, data: &[u8]) -> Vec<u8> {
    [&[opcode][..], &(data.len() as u64).to_le_bytes(), data].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

/// A Zstandard frame of `blocks` times 128 KiB of one byte, four bytes each.
fn repeated(byte: u8, blocks: usize) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
    for block in 0..blocks {
        let head = (0x20000u32 << 3) | (1 << 1) | u32::from(block + 1 == blocks);
        frame.extend_from_slice(&head.to_le_bytes()[..3]);
        frame.push(byte);
    }
    frame
}

fn chunk(uncompressed_bytes: u64, compression: &str, data: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&[0; 16]);
    body.extend_from_slice(&uncompressed_bytes.to_le_bytes());
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&text(compression));
    body.extend_from_slice(&(data.len() as u64).to_le_bytes());
    body.extend_from_slice(data);
    record(6, &body)
}

fn channel(id: u16, topic: &str, schema: u16, encoding: &str) -> Vec<u8> {
    let fields = [&id.to_le_bytes()[..], &schema.to_le_bytes(), &text(topic), &text(encoding), &[0; 4]];
    record(4, &fields.concat())
}

fn schema(id: u16, name: &str) -> Vec<u8> {
    record(3, &[&id.to_le_bytes()[..], &text(name), &text("ros2msg"), &[0; 4]].concat())
}

fn message(channel: u16, data: &[u8]) -> Vec<u8> {
    record(5, &[&channel.to_le_bytes()[..], &[0; 20], data].concat())
}

/// Colour and depth of ROS 2 and of JSON, as channels 1 to 4.
fn channels() -> Vec<u8> {
    let parts = [
        schema(1, "sensor_msgs/msg/Image"),
        schema(2, "foxglove.RawImage"),
        schema(3, "sensor_msgs/msg/CompressedImage"),
        channel(1, "/c/color", 1, "cdr"),
        channel(2, "/c/depth", 1, "cdr"),
        channel(3, "/j/color", 2, "json"),
        channel(4, "/p/color", 3, "cdr"),
    ];
    parts.concat()
}

fn file(records: &[u8]) -> Vec<u8> {
    let magic = b"\x89MCAP0\r\n";
    let end = [record(0x0f, &[0; 4]), record(2, &[0; 20])].concat();
    [magic, &record(1, &[text(""), text("")].concat())[..], records, &end, magic].concat()
}

fn open(bytes: Vec<u8>, topic: &str) -> Result<Frame, CameraError> {
    let mut config = ReplayConfig::new("bomb.mcap", topic);
    config.intrinsics = Some(SIZE);
    config.color_only = true;
    let mut reader = FrameReader::new(Cursor::new(bytes), &config)?;
    let mut frame = Frame::new(1, 1);
    reader.read(&mut frame)?;
    Ok(frame)
}

#[track_caller]
fn limit(bytes: Vec<u8>) -> String {
    match open(bytes, "/c") {
        Err(error @ CameraError::Limit { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_chunk_that_would_hold_gigabytes_is_refused_for_its_size() {
    let data = repeated(0, 24_000);
    let bomb = file(&[channels(), chunk(24_000 << 17, "zstd", &data)].concat());
    assert!(bomb.len() < 100_000);
    let error = limit(bomb);
    for part in ["size after decompression: 2.9 GiB", "the limit of 1.0 GiB", "mcap compress --chunk-size"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn records_without_end_are_a_limit() {
    // Within the limit of one chunk: 119 million empty records.
    let data = repeated(0, 8000);
    let error = limit(file(&[channels(), chunk(8000 << 17, "zstd", &data)].concat()));
    assert!(error.contains("decompressed without finding a frame"), "{error}");
    // And many chunks that are each small enough.
    let small = chunk(2000 << 17, "zstd", &repeated(0xff, 2000));
    let many: Vec<u8> = (0..8).flat_map(|_| small.clone()).collect();
    let error = open(file(&[channels(), many].concat()), "/c").unwrap_err();
    assert!(matches!(error, CameraError::DamagedMcap { .. } | CameraError::Limit { .. }), "{error}");
}

#[test]
fn a_chunk_whose_declared_size_is_wrong_is_damage() {
    let data = repeated(0x80, 2);
    for (declared, part) in
        [(100, "longer than the rest of the chunk"), (1 << 20, "longer than the rest of the chunk")]
    {
        let error = open(file(&[channels(), chunk(declared, "zstd", &data)].concat()), "/c").unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    let records = [channels(), message(1, &[])].concat();
    let packed = zstd::encode_all(&records[..], 1).unwrap();
    let (all, less) = (records.len() as u64, records.len() as u64 - message(1, &[]).len() as u64);
    for (declared, part) in [(less, "contains more than"), (all + 40, "it ends after less than")] {
        let error = open(file(&chunk(declared, "zstd", &packed)), "/c").unwrap_err();
        assert!(error.to_string().contains(part), "{declared}: {error}");
    }
    let error = open(file(&chunk(1, "brotli", &[0])), "/c").unwrap_err().to_string();
    assert!(error.contains("compressed with `brotli`, expected zstd, lz4 or none"), "{error}");
}

#[test]
fn definitions_without_end_are_a_limit_and_errors_quote_few() {
    let long = "x".repeat(60_000);
    let many: Vec<u8> = (10..400).flat_map(|id| channel(id, &format!("/{id}{long}"), 1, "cdr")).collect();
    let error = limit(file(&many));
    assert!(error.contains("names of schemas and topics") && error.len() < 600, "{error}");
    let some: Vec<u8> = (10..200).flat_map(|id| channel(id, &format!("/{id}{long}"), 1, "cdr")).collect();
    let error = open(file(&some), "/c").unwrap_err();
    assert!(matches!(error, CameraError::MissingTopic { .. }));
    assert!(error.to_string().len() < 8000 && error.to_string().contains("and 150 more"));
}

/// The fields of `sensor_msgs/msg/CompressedImage` before its data.
fn compressed(format: &str, data: &[u8]) -> Vec<u8> {
    let mut message = vec![0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&(format.len() as u32 + 1).to_le_bytes());
    message.extend_from_slice(format.as_bytes());
    message.push(0);
    message.resize(message.len().next_multiple_of(4), 0);
    message.extend_from_slice(&(data.len() as u32).to_le_bytes());
    message.extend_from_slice(data);
    message
}

#[test]
fn a_compressed_message_or_image_that_expands_is_refused_before_it_does() {
    let zstd = file(&[channels(), message(1, &repeated(0, 24_000))].concat());
    let error = open(zstd, "/c").unwrap_err().to_string();
    assert!(error.contains("contains more than the limit of 134217728 bytes"), "{error}");

    // A PNG of 50,000 x 50,000, which a few bytes announce.
    let mut header = Vec::from(*b"IHDR");
    header.extend_from_slice(&50_000u32.to_be_bytes());
    header.extend_from_slice(&50_000u32.to_be_bytes());
    header.extend_from_slice(&[8, 2, 0, 0, 0]);
    let mut png = Vec::from(*b"\x89PNG\r\n\x1a\n\0\0\0\x0d");
    png.extend_from_slice(&header);
    png.extend_from_slice(&crc32fast::hash(&header).to_be_bytes());
    png.extend_from_slice(&[0; 12]);
    let error = open(file(&[channels(), message(4, &compressed("png", &png))].concat()), "/p").unwrap_err();
    assert!(matches!(error, CameraError::SizeMismatch { found_width: 50_000, .. }), "{error}");

    // A JPEG of 65,500 x 65,500.
    let jpeg = b"\xff\xd8\xff\xc0\0\x11\x08\xff\xdc\xff\xdc\x03\x01\x11\0\x02\x11\0\x03\x11\0\xff\xda\0\x0c\x03\x01\0\x02\0\x03\0\0?\0";
    let error = open(file(&[channels(), message(4, &compressed("jpeg", jpeg))].concat()), "/p").unwrap_err();
    assert!(matches!(error, CameraError::SizeMismatch { .. } | CameraError::BadMessage { .. }), "{error}");
}

#[test]
fn lengths_and_nesting_that_lie_are_errors_of_their_message() {
    let mut image = vec![0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    image.extend_from_slice(&u32::MAX.to_le_bytes());
    let error = open(file(&[channels(), message(1, &image)].concat()), "/c").unwrap_err().to_string();
    assert!(error.contains("not a CDR message of its type") && error.contains("4294967295 more"), "{error}");
    let deep = format!("{{\"timestamp\":{}", "[".repeat(1 << 20));
    let error =
        open(file(&[channels(), message(3, deep.as_bytes())].concat()), "/j").unwrap_err().to_string();
    assert!(error.contains("recursion limit"), "{error}");
}

#[test]
fn a_message_beyond_the_limit_is_no_damage() {
    // 130 MiB of one byte behind the head of a message.
    let length = 130u64 << 20;
    let mut records = channels();
    records.push(5);
    records.extend_from_slice(&(22 + length).to_le_bytes());
    records.extend_from_slice(&1u16.to_le_bytes());
    records.extend_from_slice(&[0; 20]);
    let mut packed = zstd::encode_all(&records[..], 1).unwrap();
    packed.extend_from_slice(&repeated(0, 130 * 8));
    let error = limit(file(&chunk(records.len() as u64 + length, "zstd", &packed)));
    assert!(error.contains("130.0 MiB, more than the limit of 128.0 MiB"), "{error}");
}

/// Bytes of memory that the process has held at most.
fn most_resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

/// Colour of the whole time, then depth of the whole time, in one chunk of 2 GB.
#[test]
#[ignore = "decompresses 6 GB"]
fn a_chunk_of_gigabytes_is_replayed_without_holding_it() {
    let (width, height, frames) = (1280u32, 720u32, 440u64);
    let image = |encoding: &str, bytes: u32, number: u64| {
        let mut message = vec![0, 1, 0, 0, 1, 0, 0, 0];
        message.extend_from_slice(&(number as u32 * 1_000_000).to_le_bytes());
        message.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        message.extend_from_slice(&height.to_le_bytes());
        message.extend_from_slice(&width.to_le_bytes());
        message.extend_from_slice(&text(&format!("{encoding}\0")));
        message.push(0);
        message.resize(message.len().next_multiple_of(4), 0);
        message.extend_from_slice(&(width * bytes).to_le_bytes());
        message.extend_from_slice(&(width * height * bytes).to_le_bytes());
        // Noise in front, so that the file is no bomb.
        let noise = (0..40_000u64).map(|n| {
            let mixed = (n + 40_000 * number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed >> 56) as u8
        });
        message.extend(noise);
        message.resize(message.len() - 40_000 + (width * height * bytes) as usize, number as u8);
        message
    };
    let mut records = zstd::Encoder::new(Vec::new(), 1).unwrap();
    let mut length = 0;
    let mut put = |bytes: &[u8]| {
        length += bytes.len() as u64;
        std::io::Write::write_all(&mut records, bytes).unwrap();
    };
    put(&channels());
    for (channel, encoding, bytes) in [(1u16, "rgb8", 3), (2, "16UC1", 2)] {
        for number in 0..frames {
            let mut record = message(channel, &image(encoding, bytes, number));
            record[15..23].copy_from_slice(&number.to_le_bytes());
            put(&record);
        }
    }
    let bytes = file(&chunk(length, "zstd", &records.finish().unwrap()));
    assert!(length > 2_000_000_000);
    let mut config = ReplayConfig::new("large.mcap", "/c");
    config.intrinsics = Some(Intrinsics { width, height, fx: 900.0, fy: 900.0, cx: 640.0, cy: 360.0 });
    let before = most_resident_kib();
    let mut reader = FrameReader::new(Cursor::new(bytes), &config).unwrap();
    let mut frame = Frame::new(1, 1);
    for number in 0..frames {
        assert!(reader.read(&mut frame).unwrap(), "{number}");
        assert_eq!((frame.rgb.last(), frame.sequence), (Some(&(number as u8)), number + 1));
    }
    assert!(!reader.read(&mut frame).unwrap());
    let held_mib = (most_resident_kib() - before) >> 10;
    assert!(held_mib < 500, "{held_mib} MiB");
    eprintln!("{held_mib} MiB held for {} MiB of images", length >> 20);
}
