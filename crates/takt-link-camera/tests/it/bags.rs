//! Recordings of rosbag2 that are folders of several files, split anywhere.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;

use takt_link_camera::recording::FrameReader;
use takt_link_camera::{CameraError, Frame, ReplayConfig};

/// Images of the recording, and the time between them.
const FRAMES: u64 = 6;
const PERIOD_NS: u64 = 100_000_000;

fn made(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/makers/made").join(name);
    zstd::decode_all(fs::File::open(path).unwrap()).unwrap()
}

/// Splits the recording `bytes` before each message of which the number is in `before`, as `ros2
/// bag record` does when a file is full.
fn split(bytes: &[u8], folder: &Path, before: &[usize]) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut writer: Option<mcap::Writer<BufWriter<fs::File>>> = None;
    let mut channels: BTreeMap<u16, u16> = BTreeMap::new();
    for (number, message) in mcap::MessageStream::new(bytes).unwrap().enumerate() {
        let message = message.unwrap();
        if writer.is_none() || before.contains(&number) {
            if let Some(mut full) = writer.take() {
                full.finish().unwrap();
            }
            let path = folder.join(format!("bag_{}.mcap", files.len()));
            let options = mcap::WriteOptions::new().compression(None).profile("ros2");
            let file = BufWriter::new(fs::File::create(&path).unwrap());
            writer = Some(options.create(file).unwrap());
            channels.clear();
            files.push(path);
        }
        let writer = writer.as_mut().unwrap();
        let channel = &message.channel;
        let id = *channels.entry(channel.id).or_insert_with(|| {
            let schema = channel.schema.as_ref().unwrap();
            let schema = writer.add_schema(&schema.name, &schema.encoding, &schema.data).unwrap();
            writer.add_channel(schema, &channel.topic, &channel.message_encoding, &channel.metadata).unwrap()
        });
        let header = mcap::records::MessageHeader {
            channel_id: id,
            sequence: message.sequence,
            log_time: message.log_time,
            publish_time: message.publish_time,
        };
        writer.write_to_known_channel(&header, &message.data).unwrap();
    }
    writer.unwrap().finish().unwrap();
    files
}

/// Metadata that rosbag2 writes when it ends.
fn metadata(folder: &Path, storage: &str, files: &[&str]) {
    let list: String = files.iter().map(|name| format!("    - {name}\n")).collect();
    let text = format!(
        "rosbag2_bagfile_information:\n  version: 9\n  storage_identifier: {storage}\n  compression_format: \"\"\n  \
         compression_mode: \"\"\n  relative_file_paths:\n{list}  files:\n    - path: other\n"
    );
    fs::write(folder.join("metadata.yaml"), text).unwrap();
}

/// Stamps, first bytes of colour, and depths in the middle of the frames.
fn frames(config: &ReplayConfig, most: usize) -> Result<Vec<(u64, u64, u8, u16)>, CameraError> {
    let mut reader = FrameReader::open(config)?;
    let (mut frames, mut frame) = (Vec::new(), Frame::new(1, 1));
    while frames.len() < most && reader.read(&mut frame)? {
        let middle = frame.depth_mm.len() / 2 + 9;
        frames.push((frame.sequence, frame.source_ns, frame.rgb[3 * middle + 2], frame.depth_mm[middle]));
    }
    assert_eq!(reader.unpaired().images(), 0, "{}", config.path.display());
    Ok(frames)
}

fn of(path: impl Into<PathBuf>) -> ReplayConfig {
    ReplayConfig::new(path, "/camera")
}

fn refused(folder: &Path, parts: &[&str]) {
    let error = FrameReader::open(&of(folder)).map(drop).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "\"{part}\" is not in: {error}");
    }
}

#[test]
fn a_recording_that_was_split_anywhere_is_replayed_as_a_whole() {
    let bytes = made("ros2-rgb8.mcap.zst");
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.mcap");
    fs::write(&whole, &bytes).unwrap();
    let expected = frames(&of(&whole), 99).unwrap();
    assert_eq!(expected.len() as u64, FRAMES);
    let messages = mcap::MessageStream::new(&bytes).unwrap().count();
    // Between two messages each: between colour and its depth, and between frames; all of them;
    // and a dozen files.
    let mut splits: Vec<Vec<usize>> = (1..messages).map(|at| vec![at]).collect();
    splits.push((1..messages).collect());
    splits.push((1..messages).step_by(3).collect());
    for (number, before) in splits.iter().enumerate() {
        let bag = folder.path().join(format!("bag-{number}"));
        fs::create_dir(&bag).unwrap();
        let files = split(&bytes, &bag, before);
        assert_eq!(files.len(), before.len() + 1);
        // Of a recorder that was killed, names are the order: 10 comes after 9.
        assert_eq!(frames(&of(&bag), 99).unwrap(), expected, "{before:?}");
        let names: Vec<String> =
            files.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        metadata(&bag, "mcap", &names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(frames(&of(&bag), 99).unwrap(), expected, "{before:?} by metadata.yaml");
    }
}

#[test]
fn a_split_recording_loops_begins_later_and_breaks_off_in_its_last_file() {
    let bytes = made("ros2-rgb8.mcap.zst");
    let folder = tempfile::tempdir().unwrap();
    let messages = mcap::MessageStream::new(&bytes).unwrap().count();
    let files = split(&bytes, folder.path(), &(2..messages).step_by(5).collect::<Vec<_>>());
    let whole = frames(&of(folder.path()), 99).unwrap();
    let looped = ReplayConfig { looped: true, ..of(folder.path()) };
    let twice = frames(&looped, 13).unwrap();
    for (number, frame) in twice.iter().enumerate() {
        let (_, stamp, blue, depth) = whole[number % FRAMES as usize];
        assert_eq!(*frame, (number as u64 + 1, stamp, blue, depth));
    }
    let later = ReplayConfig { start_offset_s: 0.25, ..of(folder.path()) };
    let (_, first, ..) = frames(&later, 99).unwrap()[0];
    assert_eq!(first, whole[0].1 + 3 * PERIOD_NS);
    // The recorder was killed: all but the last file are whole.
    let last = files.last().unwrap();
    let length = fs::metadata(last).unwrap().len();
    fs::OpenOptions::new().write(true).open(last).unwrap().set_len(length - 20).unwrap();
    let cut = ReplayConfig { allow_truncated: true, ..of(folder.path()) };
    assert_eq!(frames(&cut, 99).unwrap(), whole);
    let error = frames(&of(folder.path()), 99).unwrap_err().to_string();
    let name = last.file_name().unwrap().to_str().unwrap();
    assert!(error.contains("truncated MCAP file") && error.contains(name), "{error}");
}

#[test]
fn a_folder_that_is_no_whole_recording_says_what_is_missing_and_what_to_do() {
    let bytes = made("ros2-rgb8.mcap.zst");
    let messages = mcap::MessageStream::new(&bytes).unwrap().count();
    let folder = tempfile::tempdir().unwrap();
    refused(folder.path(), &["a folder without an MCAP file", "set `path` to a recording"]);
    let files = split(&bytes, folder.path(), &(2..messages).step_by(5).collect::<Vec<_>>());
    metadata(folder.path(), "mcap", &["bag_0.mcap", "bag_1.mcap", "bag_77.mcap"]);
    refused(folder.path(), &["metadata.yaml lists `bag_77.mcap`, which is missing", "remove its line"]);
    fs::remove_file(folder.path().join("metadata.yaml")).unwrap();
    fs::remove_file(&files[1]).unwrap();
    refused(folder.path(), &["no part between `bag_0.mcap` and `bag_2.mcap`"]);
    fs::write(folder.path().join("elsewhere.mcap"), &bytes).unwrap();
    refused(folder.path(), &["not parts of one recording (bag_0.mcap, ", "set `path` to one of its files"]);
    // Storage that is not read: with its list, and without.
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("bag_0.db3"), "SQLite format 3\0").unwrap();
    refused(other.path(), &["SQLite storage", "ros2 bag convert"]);
    metadata(other.path(), "sqlite3", &["bag_0.db3"]);
    refused(other.path(), &["`sqlite3` storage, expected `mcap`", "ros2 bag convert"]);
    let one = tempfile::tempdir().unwrap();
    fs::write(one.path().join("old.bag"), "#ROSBAG V2.0\n").unwrap();
    refused(one.path(), &["bags of ROS 1", "rosbags-convert"]);
    // `ros2 bag record --compression-mode file`.
    let packed = tempfile::tempdir().unwrap();
    fs::write(packed.path().join("bag_0.mcap.zstd"), zstd::encode_all(&bytes[..], 1).unwrap()).unwrap();
    refused(packed.path(), &["compressed (`bag_0.mcap.zstd`)", "zstd -d"]);
    metadata(packed.path(), "mcap", &["bag_0.mcap.zstd"]);
    refused(packed.path(), &["compressed (`bag_0.mcap.zstd`)", "zstd -d"]);
    // What the advice makes is read, though the list still has the old name.
    fs::write(packed.path().join("bag_0.mcap"), &bytes).unwrap();
    fs::remove_file(packed.path().join("bag_0.mcap.zstd")).unwrap();
    assert_eq!(frames(&of(packed.path()), 99).unwrap().len() as u64, FRAMES);
    // A list that leads elsewhere leads into the folder.
    metadata(packed.path(), "mcap", &["../../../etc/passwd"]);
    refused(packed.path(), &["lists `passwd`, which is missing"]);
}

/// The makers' own reader agrees that these folders are such recordings.
#[test]
fn a_split_recording_is_one_for_the_makers_reader_too() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join(".venv/bin/python3");
    if !Command::new(&python).args(["-c", "import rosbags"]).output().is_ok_and(|it| it.status.success()) {
        return takt_witness::skip!("no rosbags in .venv: tools/install-outside");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/makers/split.py");
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(python).arg(script).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // What it read, by its own reckoning: the stamps of the colour images.
    let text = String::from_utf8(output.stdout).unwrap();
    let expected: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let found: Vec<u64> =
        frames(&of(folder.path().join("bag")), 99).unwrap().iter().map(|frame| frame.1).collect();
    assert!(found.len() == 40 && found == expected, "{found:?} instead of {expected:?}");
}
