//! Recordings that others' libraries wrote: ROS 2's bags, Foxglove's messages in protobuf and JSON,
//! and MCAP in every order and with every kind of index. The truth is computed here, and by
//! `makers/make.py` on its own.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use takt_link_camera::recording::FrameReader;
use takt_link_camera::{CameraError, Frame, Intrinsics, ReplayConfig};

const SIZE: Intrinsics = Intrinsics { width: 64, height: 48, fx: 60.0, fy: 61.0, cx: 31.5, cy: 23.5 };
const FRAMES: u64 = 6;
const FIRST_NS: u64 = 1_700_000_000_000_000_000;
const PERIOD_NS: u64 = 100_000_000;

/// Exactness of a file.
#[derive(Clone, Copy, PartialEq)]
enum Colour {
    Exact,
    Jpeg,
    /// Red stands for all three.
    Grey,
}

fn depth_mm(number: u64, index: usize) -> u16 {
    let (x, y) = (index as u64 % 64, index as u64 / 64);
    if x == 0 { 0 } else { (500 + 10 * x + y + 100 * number) as u16 }
}

fn rgb(number: u64, index: usize, kind: Colour) -> [u8; 3] {
    let (x, y) = (index as u64 % 64, index as u64 / 64);
    let red = (4 * x) as u8;
    if kind == Colour::Grey { [red; 3] } else { [red, (5 * y) as u8, (40 * number) as u8] }
}

fn read_all(config: &ReplayConfig) -> Result<(Intrinsics, Vec<Frame>), CameraError> {
    let mut reader = FrameReader::open(config)?;
    let mut frames = Vec::new();
    let mut frame = Frame::new(1, 1);
    while reader.read(&mut frame)? {
        frames.push(frame.clone());
    }
    assert_eq!(reader.unpaired().images(), 0);
    Ok((reader.intrinsics(), frames))
}

/// Each frame has the pixels that its number says. `apart_mm` is what quantisation may change.
fn check(config: &ReplayConfig, colour: Colour, apart_mm: u16) {
    let name = config.path.display();
    let (intrinsics, frames) = read_all(config).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(intrinsics, SIZE, "{name}");
    assert_eq!(frames.len() as u64, FRAMES, "{name}");
    for (number, frame) in (0..).zip(&frames) {
        assert_eq!(frame.sequence, number + 1, "{name}");
        assert_eq!(frame.source_ns, FIRST_NS + number * PERIOD_NS, "{name}");
        for (index, &found) in frame.depth_mm.iter().enumerate() {
            let expected = depth_mm(number, index);
            let near = found.abs_diff(expected) <= apart_mm && (expected == 0) == (found == 0);
            assert!(near, "{name}: frame {number}, pixel {index}: {found} mm, expected {expected}");
        }
        let apart = frame.rgb.chunks_exact(3).enumerate().map(|(index, found)| {
            let expected = rgb(number, index, colour);
            expected.iter().zip(found).map(|(a, b)| u64::from(a.abs_diff(*b))).sum::<u64>()
        });
        let apart: u64 = apart.sum();
        let allowed = if colour == Colour::Jpeg { 4 * frame.rgb.len() as u64 } else { 0 };
        assert!(apart <= allowed, "{name}: frame {number} is {apart} off");
    }
}

/// The files as they were made once, unpacked into a folder.
fn unpacked() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/makers/made");
    for entry in fs::read_dir(made).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap();
        fs::write(folder.path().join(name), zstd::decode_all(fs::File::open(&path).unwrap()).unwrap())
            .unwrap();
    }
    folder
}

/// The folder that a name stands for: as rosbag2 writes it, or the file alone.
fn of(folder: &Path, name: &str) -> PathBuf {
    let bag = folder.join(name);
    if bag.is_dir() { bag } else { folder.join(format!("{name}.mcap")) }
}

fn ros(folder: &Path, name: &str) -> ReplayConfig {
    ReplayConfig::new(of(folder, name), "/camera")
}

fn foxglove(folder: &Path, name: &str) -> ReplayConfig {
    ReplayConfig::new(of(folder, name), "/c")
}

fn all_replay(folder: &Path) {
    for name in ["rgb8", "bgr8", "rgba8", "bgra8", "big-endian", "32fc1", "32fc1-big", "padded"] {
        check(&ros(folder, &format!("ros2-{name}")), Colour::Exact, 0);
    }
    for name in ["rvl-depth", "messages-compressed", "rectified", "png-old-compressed-depth"] {
        check(&ros(folder, &format!("ros2-{name}")), Colour::Exact, 0);
    }
    check(&ros(folder, "ros2-mono8"), Colour::Grey, 0);
    check(&ros(folder, "ros2-jpeg-compressed-depth"), Colour::Jpeg, 0);
    // A step of the quantisation is 0.5 mm at 2.3 m.
    check(&ros(folder, "ros2-quantised-depth"), Colour::Exact, 1);
    for name in ["by-topic", "by-topic-one-chunk", "backwards-lz4", "uncompressed", "no-chunks", "no-index"] {
        check(&foxglove(folder, &format!("mcap-{name}")), Colour::Exact, 0);
    }
    check(&foxglove(folder, "mcap-no-repeats"), Colour::Exact, 0);
    for name in ["foxglove-jpeg", "foxglove-sdk", "json-by-schema", "json-by-protobuf"] {
        check(&foxglove(folder, name), Colour::Jpeg, 0);
    }
    for name in ["foxglove-png", "foxglove-raw-32fc1"] {
        check(&foxglove(folder, name), Colour::Exact, 0);
    }
}

#[test]
fn what_others_wrote_is_replayed_to_the_pixel() {
    all_replay(unpacked().path());
}

#[test]
fn what_others_write_today_is_replayed_to_the_pixel() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join(".venv/bin/python3");
    let modules = "import PIL, foxglove, foxglove_schemas_protobuf, mcap_protobuf, mcap_ros2, numpy, rosbags";
    let has = Command::new(&python).args(["-c", modules]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        return takt_witness::skip!("no rosbags, mcap and foxglove-sdk in .venv: tools/install-outside");
    }
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/makers/make.py");
    let output = Command::new(python).arg(script).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    all_replay(folder.path());
}

#[test]
fn explicit_topics_are_those_of_the_file() {
    let folder = unpacked();
    let mut config = ros(folder.path(), "ros2-rgb8");
    config.topic = "/anything".into();
    config.color_topic = Some("/camera/color/image_raw".into());
    config.depth_topic = Some("/camera/aligned_depth_to_color/image_raw".into());
    // The calibration beside the colour topic is found.
    check(&config, Colour::Exact, 0);
    config.calibration_topic = Some("/camera/color/camera_info".into());
    check(&config, Colour::Exact, 0);
    config.calibration_topic = Some("/camera/other".into());
    let error = read_all(&config).unwrap_err().to_string();
    assert!(error.contains("no topic `/camera/other`"), "{error}");
    assert!(error.contains("/camera/color/image_raw (sensor_msgs/msg/Image, cdr)"), "{error}");
}

#[test]
fn what_cannot_be_depth_of_the_colour_image_is_refused() {
    let folder = unpacked();
    for (name, reason) in [
        (
            "ros2-depth-of-depth",
            "its frame is `camera_depth_optical_frame`, but colour's is `camera_color_optical_frame`",
        ),
        ("ros2-depth-other-camera", "`/camera/aligned_depth_to_color/camera_info` says 64x48 with fx 90.0"),
        ("ros2-depth-other-size", "it has 32x24 pixels, but colour has 64x48"),
    ] {
        let error = read_all(&ros(folder.path(), name)).unwrap_err();
        assert!(matches!(error, CameraError::NotAligned { .. }), "{name}: {error}");
        let text = error.to_string();
        assert!(text.contains(reason) && text.contains("align_depth.enable:=true"), "{text}");
    }
    let text = |name: &str| read_all(&ros(folder.path(), name)).unwrap_err().to_string();
    let distorted = text("ros2-distorted");
    assert!(distorted.contains("images are distorted") && distorted.contains("rectified"), "{distorted}");
    let yuv = text("ros2-yuv");
    assert!(yuv.contains("encoding is `yuv422_yuy2`, expected rgb8, bgr8"), "{yuv}");
}

#[test]
fn depth_of_another_moment_is_no_missing_topic() {
    let folder = unpacked();
    let mut config = ros(folder.path(), "ros2-depth-late");
    let error = read_all(&config).unwrap_err().to_string();
    for part in
        ["pairing_ms = 5", "the nearest are 20 ms apart", "set a larger pairing_ms", "6 colour images"]
    {
        assert!(error.contains(part), "\"{part}\" is not in: {error}");
    }
    config.pairing_ms = 25.0;
    check(&config, Colour::Exact, 0);
}

#[test]
fn a_folder_without_one_recording_says_what_it_has() {
    let folder = unpacked();
    let error = read_all(&ReplayConfig::new(folder.path(), "/c")).unwrap_err().to_string();
    assert!(error.contains("MCAP files that are not parts of one recording"), "{error}");
    assert!(error.contains("set `path` to one of its files"), "{error}");
}

/// The recording with a change in its bytes.
fn changed(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Result<usize, CameraError> {
    let folder = unpacked();
    let mut bytes = fs::read(of(folder.path(), name)).unwrap();
    change(&mut bytes);
    let mut reader = FrameReader::new(std::io::Cursor::new(bytes), &ReplayConfig::new("x.mcap", "/c"))?;
    let mut frame = Frame::new(1, 1);
    let mut frames = 0;
    while reader.read(&mut frame)? {
        frames += 1;
    }
    Ok(frames)
}

/// Positions of the records of an opcode, without those in chunks, and lengths of their data.
fn records(bytes: &[u8], wanted: u8) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 8;
    while at + 9 < bytes.len() - 8 {
        let length = u64::from_le_bytes(bytes[at + 1..at + 9].try_into().unwrap()) as usize;
        if bytes[at] == wanted {
            found.push((at + 9, length));
        }
        at += 9 + length;
    }
    found
}

/// Takes the summary's checksum away, which would find every lie in it.
fn without_summary_crc(bytes: &mut [u8]) {
    let end = bytes.len();
    bytes[end - 12..end - 8].fill(0);
}

#[test]
fn an_index_that_lies_is_damage_with_its_place() {
    const MESSAGE_INDEX: u8 = 7;
    const CHUNK_INDEX: u8 = 8;
    let name = "mcap-by-topic";
    assert_eq!(changed(name, |_| ()).unwrap(), FRAMES as usize);
    let damaged = |change: &dyn Fn(&mut Vec<u8>)| match changed(name, change) {
        Err(CameraError::DamagedMcap { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    // Of chunks: beside the record, too long, another time. (start, end, place, length, …)
    for (field, reason) in [(16, "but no record begins there"), (24, "extends beyond the end of the data")] {
        let found = damaged(&|bytes| {
            let (at, _) = records(bytes, CHUNK_INDEX)[1];
            bytes[at + field] ^= 1;
            without_summary_crc(bytes);
        });
        assert!(found.contains(reason), "{found}");
    }
    let later = damaged(&|bytes| {
        let (at, _) = records(bytes, CHUNK_INDEX)[0];
        bytes[at + 7] ^= 0x20;
        without_summary_crc(bytes);
    });
    assert!(later.contains("it declares its begin as"), "{later}");
    let summary = damaged(&|bytes| {
        let (at, _) = records(bytes, CHUNK_INDEX)[0];
        bytes[at] ^= 1;
    });
    assert!(summary.contains("the summary's checksum"), "{summary}");
    // Of messages: another place, another time, one left out.
    let place = damaged(&|bytes| {
        let (at, _) = records(bytes, MESSAGE_INDEX)[0];
        bytes[at + 6 + 8] ^= 3;
    });
    assert!(place.contains("the message index"), "{place}");
    let omitted = damaged(&|bytes| {
        // Two messages of one chunk become twice the first.
        let (at, _) = *records(bytes, MESSAGE_INDEX).iter().find(|(_, length)| *length >= 6 + 32).unwrap();
        bytes.copy_within(at + 6..at + 22, at + 22);
    });
    assert!(omitted.contains("names the message at byte") && omitted.contains("twice"), "{omitted}");
}

#[test]
fn records_that_nobody_asked_for_have_no_limit() {
    // Bytes as a sparse file: an attachment of 3 GB, in front of everything.
    let folder = unpacked();
    let original = fs::read(of(folder.path(), "mcap-no-chunks")).unwrap();
    let path = folder.path().join("attached.mcap");
    let mut file = fs::File::create(&path).unwrap();
    use std::io::{Seek, SeekFrom, Write};
    let attachment = 3u64 << 30;
    file.write_all(&original[..8]).unwrap();
    for opcode in [9, 0x0c, 0x80] {
        file.write_all(&[opcode]).unwrap();
        file.write_all(&attachment.to_le_bytes()).unwrap();
        file.seek(SeekFrom::Current(attachment as i64)).unwrap();
    }
    // Without a summary, whose places would all be others.
    let footer = original.len() - 8 - 29;
    let (data_end, _) = records(&original, 0x0f)[0];
    file.write_all(&original[8..data_end - 9]).unwrap();
    file.write_all(&original[footer..footer + 9]).unwrap();
    file.write_all(&[0; 20]).unwrap();
    file.write_all(&original[original.len() - 8..]).unwrap();
    drop(file);
    check(&ReplayConfig::new(&path, "/c"), Colour::Exact, 0);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

    /// Damaged bytes anywhere in any of the files, with and without the checksum that would find
    /// them: an error or fewer frames, never a panic, never without end.
    #[test]
    fn damage_of_what_others_wrote_never_panics(
        which in proptest::prelude::any::<proptest::sample::Index>(),
        at in proptest::collection::vec((0.0f64..1.0, proptest::prelude::any::<u8>()), 1..6),
        keep in 0.0f64..1.0,
        (truncated, ends) in (proptest::prelude::any::<bool>(), proptest::prelude::any::<bool>()),
    ) {
        static FILES: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
        let files = FILES.get_or_init(|| {
            let folder = unpacked();
            let paths = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
            let mut paths: Vec<_> = paths.collect();
            paths.sort();
            paths.iter().map(|path| fs::read(path).unwrap()).collect()
        });
        let mut bytes = files[which.index(files.len())].clone();
        for (place, value) in at {
            // Definitions lie at the beginning, indexes at the end.
            let place = if ends { 1.0 - place * place * place } else { place * place };
            let index = ((place * bytes.len() as f64) as usize).min(bytes.len() - 1);
            bytes[index] = value;
        }
        without_summary_crc(&mut bytes);
        if truncated {
            bytes.truncate((keep * bytes.len() as f64) as usize);
        }
        for topic in ["/c", "/camera"] {
            let mut config = ReplayConfig::new("damaged.mcap", topic);
            config.allow_truncated = truncated;
            if let Ok(mut reader) = FrameReader::new(std::io::Cursor::new(&bytes), &config) {
                let mut frame = Frame::new(1, 1);
                for _ in 0..100 {
                    if !matches!(reader.read(&mut frame), Ok(true)) {
                        break;
                    }
                }
            }
        }
    }
}

/// A recording that was cut off anywhere is replayed up to there, whatever its indexes.
#[test]
fn what_others_wrote_and_was_cut_off_is_replayed_to_its_end() {
    let folder = unpacked();
    for name in ["ros2-rgb8", "ros2-messages-compressed", "mcap-no-index", "mcap-no-chunks", "mcap-by-topic"]
    {
        let whole = fs::read(of(folder.path(), name)).unwrap();
        let prefix = if name.starts_with("ros2") { "/camera" } else { "/c" };
        let mut config = ReplayConfig::new("cut.mcap", prefix);
        config.allow_truncated = true;
        let mut counts = Vec::new();
        for part in 0..=24 {
            let cut = &whole[..whole.len() * part / 24];
            let mut frame = Frame::new(1, 1);
            let mut count = 0;
            if let Ok(mut reader) = FrameReader::new(std::io::Cursor::new(cut), &config) {
                while reader.read(&mut frame).unwrap() {
                    assert_eq!(frame.depth_mm[1], depth_mm(count, 1), "{name} at {part}/24");
                    count += 1;
                }
            }
            counts.push(count);
        }
        assert!(counts.is_sorted() && counts[24] == FRAMES, "{name}: {counts:?}");
        // Depth comes last there; elsewhere a cut in the middle leaves frames.
        assert!(name == "mcap-by-topic" || counts[..24].iter().any(|count| *count > 0), "{name}: {counts:?}");
    }
}
