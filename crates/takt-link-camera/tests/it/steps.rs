//! Recordings whose stamps go backwards, and recordings whose calibration changes.

use std::collections::BTreeMap;
use std::io::Cursor;

use mcap::WriteOptions;
use mcap::records::MessageHeader;
use takt_link_camera::recording::{FrameReader, ReplayCamera};
use takt_link_camera::{Camera, CameraError, Frame, Unpaired};

use crate::pairs::{Image, config, file, pairs, replay};

/// Images of which some are stamped by so much less.
fn stepped(back_ms: u64, is_stepped: impl Fn(&Image) -> bool) -> Vec<Image> {
    let set_back = |i: Image| if is_stepped(&i) { (i.0, i.1, i.2 - back_ms, i.3) } else { i };
    let later = |i: Image| (i.0, i.1, i.2 + 20_000, i.3);
    pairs(40).into_iter().map(later).map(set_back).collect()
}

fn replayed(images: &[Image]) -> (Vec<(u64, u8, u8)>, Unpaired) {
    replay(file(images, Some(2000), None), &config(5.0, false), 999)
}

#[test]
fn equal_stamps_are_paired_on_both_sides_of_a_step_of_the_clock() {
    for back_ms in [250, 400, 10_000] {
        // Both topics at the same frame, or depth (colour) one frame or three before the other.
        for [colour, depth] in [[20, 20], [20, 19], [19, 20], [20, 17], [17, 20]] {
            let (frames, unpaired) =
                replayed(&stepped(back_ms, |image| image.1 >= if image.0 { depth } else { colour }));
            let apart = u64::from(u8::abs_diff(colour, depth));
            assert_eq!(frames.len() as u64, 40 - apart, "{back_ms} ms, {colour}, {depth}");
            assert!(frames.iter().all(|(_, colour, depth)| colour == depth), "{frames:?}");
            assert_eq!(frames.last().unwrap().0, 40, "what has no partner is a gap");
            assert_eq!((unpaired.colour, unpaired.depth), (apart, apart));
            assert_eq!((unpaired.steps_back, unpaired.step_ns), (2, back_ms * 1_000_000));
            let text = unpaired.to_string();
            assert!(text.contains(&format!("backwards 2 times, by {back_ms} ms at most")), "{text}");
            assert!(!text.contains("pairing_ms") && !text.contains("away"), "{text}");
        }
    }
}

#[test]
fn a_clock_of_one_topic_that_is_set_back_costs_the_step_and_no_more() {
    for depth in [false, true] {
        let (frames, unpaired) = replayed(&stepped(400, |image| image.0 == depth && image.1 >= 20));
        assert_eq!((unpaired.steps_back, unpaired.step_ns), (1, 400_000_000));
        // Five wait for the other topic's step; then the stamps hold as they are.
        let (_, colour, other) = *frames.last().unwrap();
        assert_eq!(u8::abs_diff(colour, other), 4, "{frames:?}");
        assert!(frames.len() >= 40 - 4 - 5, "{}", frames.len());
    }
}

#[test]
fn a_single_image_that_is_late_is_no_step() {
    let mut images = pairs(30);
    let at: Vec<usize> =
        (0..images.len()).filter(|n| images[*n].0 && [10, 11].contains(&images[*n].1)).collect();
    let (one, other) = (images[at[0]].3, images[at[1]].3);
    (images[at[0]].3, images[at[1]].3) = (other, one);
    let (frames, unpaired) = replayed(&images);
    assert_eq!((unpaired.steps_back, frames.len()), (0, 29));
}

#[test]
fn stamps_that_only_go_backwards_are_paced_by_log_time_and_named() {
    let frames =
        paced(&pairs(30).into_iter().map(|i| (i.0, i.1, 10_000 - i.2, i.3 / 10)).collect::<Vec<_>>());
    assert!(frames > 2, "{frames}");
    // Log times that stand still give no pace.
    let frames = paced(&pairs(30).into_iter().map(|i| (i.0, i.1, 10_000 - i.2, 1000)).collect::<Vec<_>>());
    assert_eq!(frames, 2, "the first and the last");
}

/// Frames that a camera delivers of thirty whose stamps descend; the others are gaps.
fn paced(images: &[Image]) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(5.0, false);
    config.path = folder.path().join("back.mcap");
    std::fs::write(&config.path, file(images, Some(2000), None)).unwrap();
    let mut camera = ReplayCamera::open(&config).unwrap();
    let mut frame = Frame::new(1, 1);
    let (mut last, mut frames) = (0, 0);
    loop {
        match camera.next_frame(&mut frame) {
            Ok(()) => {
                last = frame.sequence;
                frames += 1;
            }
            Err(CameraError::Ended) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(last, 30, "each frame is delivered or a gap before the last one");
    let unpaired = camera.unpaired().unwrap();
    assert_eq!(unpaired.images(), 0, "{unpaired}");
    // Of each topic, all but the first image and the last, which nothing follows.
    assert_eq!(unpaired.steps_back, 56);
    assert!(unpaired.to_string().contains("go backwards 56 times"), "{unpaired}");
    frames
}

/// Ten frames and these calibrations: log time in milliseconds, fx, width.
fn calibrated(calibrations: &[(u64, f64, u32)]) -> Result<usize, CameraError> {
    let mut bytes = Vec::new();
    let mut writer = WriteOptions::new().chunk_size(Some(600)).create(Cursor::new(&mut bytes)).unwrap();
    let none = BTreeMap::new();
    let image = writer.add_schema("foxglove.RawImage", "jsonschema", b"{}").unwrap();
    let info = writer.add_schema("foxglove.CameraCalibration", "jsonschema", b"{}").unwrap();
    let [colour, depth] =
        ["/c/color", "/c/depth"].map(|topic| writer.add_channel(image, topic, "json", &none).unwrap());
    let calibration = writer.add_channel(info, "/c/calibration", "json", &none).unwrap();
    let mut messages = Vec::new();
    for ms in (1000..2000).step_by(100) {
        for (channel, encoding, pixels) in [
            (colour, "rgb8", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
            (depth, "16UC1", "AAAAAAAAAAAAAAAAAAAAAA=="),
        ] {
            let step = if channel == colour { 12 } else { 8 };
            messages.push((
                channel,
                ms,
                format!(
                    "{{\"timestamp\":{{\"sec\":1,\"nsec\":{}}},\"frame_id\":\"c\",\"width\":4,\"height\":2,\
                 \"encoding\":\"{encoding}\",\"step\":{step},\"data\":\"{pixels}\"}}",
                    (ms - 1000) * 1_000_000
                ),
            ));
        }
    }
    for &(ms, fx, width) in calibrations {
        let text = format!(
            "{{\"timestamp\":{{\"sec\":1,\"nsec\":0}},\"frame_id\":\"c\",\"width\":{width},\"height\":2,\"distortion_model\":\"\",\
             \"D\":[],\"K\":[{fx},0,1.5,0,4,0.5,0,0,1],\"R\":[],\"P\":[]}}"
        );
        messages.push((calibration, ms, text));
    }
    messages.sort_by_key(|message| message.1);
    for (channel_id, ms, text) in messages {
        let header = MessageHeader { channel_id, sequence: 0, log_time: ms * 1_000_000, publish_time: 0 };
        writer.write_to_known_channel(&header, text.as_bytes()).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    let mut config = config(5.0, false);
    config.intrinsics = None;
    let mut reader = FrameReader::new(Cursor::new(bytes), &config)?;
    let (mut frame, mut frames) = (Frame::new(1, 1), 0);
    while reader.read(&mut frame)? {
        frames += 1;
    }
    Ok(frames)
}

#[test]
fn a_calibration_that_changes_is_a_fault_at_its_frame() {
    assert_eq!(calibrated(&[(990, 4.0, 4)]).unwrap(), 10);
    // One with each image, rounded a little.
    let each: Vec<_> = (0..10).map(|n| (1000 + n * 100, 4.0 + n as f64 * 1e-5, 4)).collect();
    assert_eq!(calibrated(&each).unwrap(), 10);
    // After the last image.
    assert_eq!(calibrated(&[(990, 4.0, 4), (1950, 3.0, 4)]).unwrap(), 10);
    for (fx, width) in [(3.0, 4), (4.1, 4), (4.0, 5)] {
        let error = calibrated(&[(990, 4.0, 4), (1450, fx, width)]).unwrap_err();
        let CameraError::CalibrationChanged { log_time_ns, .. } = &error else { panic!("{error}") };
        assert_eq!(*log_time_ns, 1_450_000_000);
        let text = error.to_string();
        for part in
            ["/c/calibration", "4x2 with fx 4.0", &format!("{width}x2 with fx {fx:.1}"), "mcap filter"]
        {
            assert!(text.contains(part), "\"{part}\" is not in: {text}");
        }
    }
    // Numbers that cannot be are refused as at the start.
    assert!(matches!(
        calibrated(&[(990, 4.0, 4), (1450, 1e300, 4)]).unwrap_err(),
        CameraError::BadMessage { .. } | CameraError::CalibrationChanged { .. }
    ));
}
