//! Colour and depth become frames by their time, whatever the order of the bytes, and what finds no
//! partner is counted.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mcap::records::MessageHeader;
use mcap::{Compression, WriteOptions};
use takt_link_camera::recording::FrameReader;
use takt_link_camera::{CameraError, Frame, Intrinsics, ReplayConfig, Unpaired};

const SIZE: Intrinsics = Intrinsics { width: 4, height: 2, fx: 4.0, fy: 4.0, cx: 1.5, cy: 0.5 };

/// One image: whether it is depth, its number, its stamp and its log time in milliseconds.
pub(crate) type Image = (bool, u8, u64, u64);

/// Writes the images in the order given.
pub(crate) fn file(images: &[Image], chunk_bytes: Option<u64>, compression: Option<Compression>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let options = WriteOptions::new().chunk_size(chunk_bytes).compression(compression);
    let mut writer = options.create(Cursor::new(&mut bytes)).unwrap();
    let schema = writer.add_schema("foxglove.RawImage", "jsonschema", b"{}").unwrap();
    let none = BTreeMap::new();
    let channels =
        ["/c/color", "/c/depth"].map(|topic| writer.add_channel(schema, topic, "json", &none).unwrap());
    for &(depth, number, stamp_ms, log_ms) in images {
        let (encoding, pixels) = match depth {
            true => ("16UC1", vec![number; 16]),
            false => ("rgb8", vec![number; 24]),
        };
        let (sec, nsec) = (stamp_ms / 1000, stamp_ms % 1000 * 1_000_000);
        let message = format!(
            "{{\"timestamp\":{{\"sec\":{sec},\"nsec\":{nsec}}},\"frame_id\":\"c\",\"width\":4,\"height\":2,\
             \"encoding\":\"{encoding}\",\"step\":{},\"data\":\"{}\"}}",
            pixels.len() / 2,
            STANDARD.encode(pixels)
        );
        let header = MessageHeader {
            channel_id: channels[usize::from(depth)],
            sequence: 0,
            log_time: log_ms * 1_000_000,
            publish_time: 0,
        };
        writer.write_to_known_channel(&header, message.as_bytes()).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    bytes
}

pub(crate) fn config(pairing_ms: f64, looped: bool) -> ReplayConfig {
    let mut config = ReplayConfig::new("pairs.mcap", "/c");
    config.intrinsics = Some(SIZE);
    config.pairing_ms = pairing_ms;
    config.looped = looped;
    config
}

/// Sequence number, number of the colour image and number of the depth image of each frame.
pub(crate) fn replay(bytes: Vec<u8>, config: &ReplayConfig, most: usize) -> (Vec<(u64, u8, u8)>, Unpaired) {
    let mut reader = FrameReader::new(Cursor::new(bytes), config).unwrap();
    let mut frame = Frame::new(1, 1);
    let mut found = Vec::new();
    while found.len() < most && reader.read(&mut frame).unwrap() {
        found.push((frame.sequence, frame.rgb[0], (frame.depth_mm[0] & 0xff) as u8));
    }
    (found, reader.unpaired())
}

/// Colour and depth of `count` frames at 10 Hz with equal stamps.
pub(crate) fn pairs(count: u8) -> Vec<Image> {
    let at = |number: u8| 1000 + 100 * u64::from(number);
    (0..count).flat_map(|n| [(false, n, at(n), at(n)), (true, n, at(n), at(n))]).collect()
}

fn in_order(count: u8) -> Vec<(u64, u8, u8)> {
    (0..count).map(|n| (u64::from(n) + 1, n, n)).collect()
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]

    /// Any order of the bytes, any chunks: the same frames.
    #[test]
    fn the_order_of_the_bytes_changes_nothing(
        images in proptest::strategy::Strategy::prop_shuffle(proptest::strategy::Just(pairs(30))),
        chunk_bytes in proptest::option::of(300u64..20_000),
        kind in 0..3,
    ) {
        let compression = [None, Some(Compression::Zstd), Some(Compression::Lz4)][kind as usize];
        let (frames, unpaired) = replay(file(&images, chunk_bytes, compression), &config(5.0, false), 99);
        assert_eq!(frames, in_order(30));
        assert_eq!(unpaired.images(), 0);
    }
}

#[test]
fn topic_by_topic_and_in_blocks_is_replayed_whole() {
    let images = pairs(60);
    let by_topic: Vec<Image> =
        [false, true].iter().flat_map(|kind| images.iter().filter(move |i| i.0 == *kind).copied()).collect();
    let blocks: Vec<Image> = images
        .chunks(20)
        .flat_map(|block| [true, false].map(|kind| block.iter().filter(move |i| i.0 == kind).copied()))
        .flatten()
        .collect();
    for order in [by_topic, blocks] {
        for chunk_bytes in [None, Some(2000)] {
            let bytes = file(&order, chunk_bytes, Some(Compression::Zstd));
            let (frames, unpaired) = replay(bytes, &config(5.0, true), 120);
            assert_eq!(unpaired.images(), 0);
            let twice: Vec<_> = (0..120u64).map(|n| (n + 1, (n % 60) as u8, (n % 60) as u8)).collect();
            assert_eq!(frames, twice);
        }
    }
}

#[test]
fn images_without_a_partner_are_gaps_and_are_counted_with_their_distance() {
    // A third of depth is missing.
    let some: Vec<Image> = pairs(30).into_iter().filter(|i| !(i.0 && i.1 % 3 == 1)).collect();
    let (frames, unpaired) = replay(file(&some, None, None), &config(5.0, false), 99);
    assert_eq!(frames.len(), 20);
    assert_eq!(frames.last().unwrap(), &(30, 29, 29), "a gap for each");
    assert_eq!((unpaired.colour, unpaired.depth), (10, 0));
    assert_eq!((unpaired.nearest_ns, unpaired.farthest_ns), (100_000_000, 100_000_000));

    // A third of depth is 20 ms late: two images, one frame.
    let late = |i: Image| if i.0 && i.1 % 3 == 1 { (i.0, i.1, i.2 + 20, i.3 + 20) } else { i };
    let some: Vec<Image> = pairs(30).into_iter().map(late).collect();
    let (frames, unpaired) = replay(file(&some, None, None), &config(5.0, false), 99);
    assert_eq!((frames.len(), frames.last().unwrap().0), (20, 30));
    assert_eq!((unpaired.colour, unpaired.depth, unpaired.nearest_ns), (10, 10, 20_000_000));
    let text = unpaired.to_string();
    for part in ["10 colour and 10 depth images", "pairing_ms = 5 ", "20 ms away", "pairing_ms = 25"] {
        assert!(text.contains(part), "\"{part}\" is not in: {text}");
    }
    let (frames, unpaired) = replay(file(&some, None, None), &config(25.0, false), 99);
    assert_eq!((frames.len(), unpaired.images()), (30, 0));

    // Depth that begins and ends in the middle: five images at each end are forgiven, more are not.
    for (missing, counted) in [(5, 0), (6, 12)] {
        let some: Vec<Image> =
            pairs(30).into_iter().filter(|i| !i.0 || (missing..30 - missing).contains(&i.1)).collect();
        let (_, unpaired) = replay(file(&some, None, None), &config(5.0, false), 99);
        assert_eq!(unpaired.colour, counted, "{missing}");
    }
}

#[test]
fn the_nearest_image_is_the_partner() {
    // Depth lies 20 ms behind and 13 ms before colour, at 30 Hz: the nearer one is taken.
    let images: Vec<Image> = (0..20u8)
        .flat_map(|n| {
            let at = 1000 + 33 * u64::from(n);
            [(false, n, at, at), (true, n, at + 20, at + 20)]
        })
        .collect();
    let (frames, unpaired) = replay(file(&images, None, None), &config(25.0, false), 99);
    // The first colour image has no earlier depth.
    assert_eq!(frames.first(), Some(&(1, 1, 0)));
    assert_eq!(frames.len(), 19);
    assert!(frames.iter().all(|(_, colour, depth)| colour - depth == 1));
    assert_eq!(unpaired.images(), 0, "one image at each end");
}

#[test]
fn stamps_far_apart_say_that_no_key_helps() {
    let images: Vec<Image> =
        pairs(30).into_iter().map(|i| if i.0 { (i.0, i.1, i.2 + 60_000, i.3) } else { i }).collect();
    let bytes = file(&images, None, None);
    let error = FrameReader::new(Cursor::new(bytes), &config(5.0, false)).err().unwrap().to_string();
    assert!(
        error.contains("57100 ms apart") && error.contains("more than the greatest pairing_ms"),
        "{error}"
    );
}

#[test]
fn a_topic_without_messages_is_another_error_than_one_without_partners() {
    let images: Vec<Image> = pairs(10).into_iter().filter(|i| !i.0).collect();
    let error = FrameReader::new(Cursor::new(file(&images, None, None)), &config(5.0, false)).err().unwrap();
    assert!(matches!(&error, CameraError::EmptyTopic { topic, .. } if topic == "/c/depth"), "{error}");
}

fn case(name: &str, pairing_ms: f64) -> Result<usize, CameraError> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name);
    let mut config = ReplayConfig::new(path, "/cam0");
    config.pairing_ms = pairing_ms;
    let mut reader = FrameReader::open(&config)?;
    let mut frame = Frame::new(1, 1);
    let mut frames = 0;
    while reader.read(&mut frame)? {
        frames += 1;
        assert_eq!(frame.sequence, frames as u64);
    }
    assert_eq!(reader.unpaired().images(), 0);
    Ok(frames)
}

#[test]
fn a_recording_topic_by_topic_of_the_makers_writer_is_whole() {
    assert_eq!(case("topicwise.mcap", 5.0).unwrap(), 60);
}

#[test]
fn a_recording_whose_imagers_are_not_synchronised_names_the_key() {
    let error = case("depth_plus20ms.mcap", 5.0).unwrap_err();
    let CameraError::NoPartner { unpaired, .. } = &error else { panic!("{error}") };
    assert_eq!((unpaired.colour, unpaired.depth, unpaired.nearest_ns), (60, 60, 20_000_000));
    let text = error.to_string();
    for part in
        ["none of the 60 colour images (`/cam0/color`)", "pairing_ms = 5 ", "20 ms apart", "pairing_ms = 25"]
    {
        assert!(text.contains(part), "\"{part}\" is not in: {text}");
    }
    assert_eq!(case("depth_plus20ms.mcap", 25.0).unwrap(), 60);
}
