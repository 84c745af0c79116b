//! Errors of a camera, with the expected and the found value, and the way out.

use std::path::PathBuf;

use crate::unpaired::{Milliseconds, Unpaired};

/// Reason why a camera cannot be opened or does not deliver.
#[derive(Debug, thiserror::Error)]
pub enum CameraError {
    /// The recording is over and the configuration does not loop it.
    #[error("the recording has ended (set loop = true to start again)")]
    Ended,
    /// A file could not be opened, read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file does not start like an MCAP file.
    #[error(
        "{path}: not an MCAP file: it starts with {found:02x?}, expected the magic bytes \
         89 4d 43 41 50 30 0d 0a{}",
        conversion(.found)
    )]
    NotMcap {
        /// The file.
        path: PathBuf,
        /// Its first bytes, at most eight.
        found: Vec<u8>,
    },
    /// The folder is no recording of MCAP files.
    #[error("{path}: {found}; {advice}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Its kind, or its missing part.
        found: String,
        /// The remedy.
        advice: &'static str,
    },
    /// The file has no MCAP end: recording was interrupted, or the copy is incomplete.
    #[error(
        "{path}: truncated MCAP file ({bytes} bytes, end magic missing): copy it again, or replay the existing part with allow_truncated = \
         true"
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// The file is damaged.
    #[error("{path}: damaged MCAP file: {reason}")]
    DamagedMcap {
        /// The file.
        path: PathBuf,
        /// The fault, in the words of the MCAP library.
        reason: String,
    },
    /// The file demands more than is granted to a recording. This is not damage.
    #[error("{path}: {what}: {found}, more than the limit of {limit}; {advice}")]
    Limit {
        /// The file.
        path: PathBuf,
        /// The limited thing.
        what: String,
        /// The value found.
        found: String,
        /// The limit.
        limit: String,
        /// The remedy.
        advice: &'static str,
    },
    /// The chunks of the file are compressed by something else.
    #[error(
        "{path}: its chunks are compressed with `{found}`, expected zstd, lz4 or none: \
         mcap compress rewrites the file"
    )]
    Compression {
        /// The file.
        path: PathBuf,
        /// Name of the compression.
        found: String,
    },
    /// No colour and depth image lie near enough in time.
    #[error(
        "{path}: none of the {} colour images (`{colour}`) and {} depth images (`{depth}`) are within pairing_ms = {} of each other: the \
         nearest are {} ms apart; {}",
        .unpaired.colour,
        .unpaired.depth,
        Milliseconds(.unpaired.pairing_ns),
        Milliseconds(.unpaired.nearest_ns),
        .unpaired.advice()
    )]
    NoPartner {
        /// The file.
        path: PathBuf,
        /// Topic of colour.
        colour: String,
        /// Topic of depth.
        depth: String,
        /// The examined images.
        unpaired: Box<Unpaired>,
    },
    /// The calibration changes in the middle of the recording.
    #[error(
        "{path}: topic `{topic}` changes the calibration at {log_time_ns} ns, from {first} to {found}: replay keeps one calibration; cut the \
         recording there (mcap filter --end-nsecs, --start-nsecs), or set the camera's `intrinsics` if one of them holds for all images"
    )]
    CalibrationChanged {
        /// The file.
        path: PathBuf,
        /// The topic.
        topic: String,
        /// Log time of the message.
        log_time_ns: u64,
        /// The first calibration.
        first: String,
        /// The new one.
        found: String,
    },
    /// Depth is not aligned to colour.
    #[error(
        "{path}: depth of topic `{topic}` is not aligned to colour: {reason}; record the aligned topic \
         (realsense2_camera: align_depth.enable:=true and aligned_depth_to_color), of colour's size"
    )]
    NotAligned {
        /// The file.
        path: PathBuf,
        /// Topic of depth.
        topic: String,
        /// The evidence.
        reason: String,
    },
    /// A topic is announced, but no message of it is there.
    #[error("{path}: topic `{topic}` has no messages")]
    EmptyTopic {
        /// The file.
        path: PathBuf,
        /// The topic.
        topic: String,
    },
    /// The recording lacks a topic that the camera needs.
    #[error("{path}: no topic `{topic}` with frames; the file has: {found}; {advice}")]
    MissingTopic {
        /// The file.
        path: PathBuf,
        /// The topic expected.
        topic: String,
        /// The topics found, with their types.
        found: String,
        /// The remedy.
        advice: &'static str,
    },
    /// A topic has messages of a type or encoding that cannot be replayed.
    #[error("{path}: topic `{topic}` is {found}, expected {expected}")]
    WrongType {
        /// The file.
        path: PathBuf,
        /// The topic.
        topic: String,
        /// Accepted types.
        expected: &'static str,
        /// Type found.
        found: String,
    },
    /// A message cannot be decoded.
    #[error("{path}: topic `{topic}`, message at {log_time_ns} ns: {reason}")]
    BadMessage {
        /// The file.
        path: PathBuf,
        /// The topic.
        topic: String,
        /// Its time in the recording, nanoseconds.
        log_time_ns: u64,
        /// The fault.
        reason: String,
    },
    /// An image has another size than the camera's calibration or configuration says.
    #[error("{what}: image is {found_width}x{found_height}, expected {width}x{height}")]
    SizeMismatch {
        /// The image.
        what: String,
        /// Expected width.
        width: u32,
        /// Expected height.
        height: u32,
        /// Width found.
        found_width: u32,
        /// Height found.
        found_height: u32,
    },
    /// A configured value is impossible.
    #[error("{key} = {value}: {expected}")]
    BadConfig {
        /// The configuration key.
        key: &'static str,
        /// Its value.
        value: String,
        /// Accepted values.
        expected: &'static str,
    },
    /// A configured value is out of its range.
    #[error(transparent)]
    Setting(#[from] takt_rt::config::SettingError),
    /// The camera needs something that the caller did not give.
    #[error("{0}")]
    Missing(&'static str),
    /// The device exists but cannot do what is needed.
    #[error("{device}: {reason}; {advice}")]
    Unsupported {
        /// The device.
        device: String,
        /// The missing part.
        reason: String,
        /// The remedy.
        advice: &'static str,
    },
    /// The device delivered nothing for the given time.
    #[error("{device}: no frame within {timeout_ms} ms (camera unplugged, or bus overloaded)")]
    Timeout {
        /// The device.
        device: String,
        /// Time waited.
        timeout_ms: u64,
    },
    /// A vendor library is missing or too old.
    #[error("{library}: {reason}; {advice}")]
    Library {
        /// The library.
        library: &'static str,
        /// The loader's message.
        reason: String,
        /// Way to install it.
        advice: &'static str,
    },
    /// This build lacks the backend.
    #[error("backend `{backend}` is not in this build: build with --features {feature}")]
    NotBuilt {
        /// The backend.
        backend: &'static str,
        /// The cargo feature that adds it.
        feature: &'static str,
    },
    /// A reopened camera delivers another image than before.
    #[error("the camera came back as {found:?}, but was {before:?}: restart with the new calibration")]
    Changed {
        /// Intrinsics when first opened.
        before: crate::Intrinsics,
        /// Intrinsics now.
        found: crate::Intrinsics,
    },
    /// The thread that hands frames over ended.
    #[error("{0}")]
    Handover(std::sync::Arc<str>),
    /// The driver thread could not be started.
    #[error("cannot start the camera thread: {0}")]
    Thread(std::io::Error),
}

/// Way to convert another kind of recording to MCAP, by its first bytes.
fn conversion(found: &[u8]) -> &'static str {
    match found {
        b"SQLite f" => {
            "; this is SQLite storage of ROS 2: ros2 bag convert, or rosbags-convert --dst-storage mcap"
        }
        b"#ROSBAG " => "; this is a bag of ROS 1: rosbags-convert --dst-storage mcap",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            "; this is a file compressed with zstd: decompress it first (zstd -d)"
        }
        _ => "",
    }
}

impl CameraError {
    /// Whether opening the camera again may help: a device that vanished may come back, a damaged
    /// file or a wrong configuration will not.
    pub fn may_recover(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Unsupported { .. })
    }
}
