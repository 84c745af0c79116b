//! Reads one camera's messages of an MCAP stream, pairing colour with depth, in bounded memory.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ::mcap::records::{MessageHeader, Record};
use ::mcap::sans_io::linear_reader::{LinearReadEvent, LinearReader, LinearReaderOptions};
use prost::Message;

use super::messages::{CameraCalibration, CompressedImage, RawImage, Timestamp, schema};
use crate::config::ReplayConfig;
use crate::error::CameraError;
use crate::image::{self, ImageError};
use crate::{Frame, Intrinsics};

/// Longest record accepted: a raw 8K colour image is 100 MB.
const MAX_RECORD_BYTES: usize = 128 << 20;

const COLOUR_TYPES: &str = "foxglove.CompressedImage (jpeg) or foxglove.RawImage (rgb8, bgr8), protobuf";
const DEPTH_TYPES: &str = "foxglove.RawImage (16UC1, mono16), protobuf";
const CALIBRATION_TYPES: &str = "foxglove.CameraCalibration, protobuf";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Colour,
    RawColour,
    Depth,
    Calibration,
}

/// What one step through the stream found.
enum Step {
    Frame { stamp_ns: u64 },
    Calibration,
    End,
}

struct Topics {
    colour: String,
    depth: Option<String>,
    calibration: String,
}

/// The messages of one camera in a stream.
pub(super) struct FrameSource<R> {
    input: R,
    path: PathBuf,
    reader: LinearReader,
    topics: Topics,
    pairing_ns: u64,
    allow_truncated: bool,
    schemas: HashMap<u16, (String, String)>,
    roles: HashMap<u16, Option<Role>>,
    /// Topic and type of every channel, for error messages.
    found: Vec<(String, String)>,
    compressed: CompressedImage,
    raw: RawImage,
    raw_colour: bool,
    depth: RawImage,
    calibration: CameraCalibration,
    colour_stamp_ns: Option<u64>,
    depth_stamp_ns: Option<u64>,
    /// Log time of the message decoded last, for error messages.
    log_time_ns: u64,
}

impl<R: Read + Seek> FrameSource<R> {
    pub(super) fn new(mut input: R, config: &ReplayConfig) -> Result<Self, CameraError> {
        let prefix = config.topic.trim_end_matches('/');
        let topic = |name: &Option<String>, suffix| name.clone().unwrap_or(format!("{prefix}/{suffix}"));
        let topics = Topics {
            colour: topic(&config.color_topic, "color"),
            depth: (!config.color_only).then(|| topic(&config.depth_topic, "depth")),
            calibration: topic(&config.calibration_topic, "calibration"),
        };
        check_ends(&mut input, &config.path, config.allow_truncated)?;
        Ok(Self {
            input,
            path: config.path.clone(),
            reader: new_reader(),
            topics,
            pairing_ns: (config.pairing_ms * 1e6) as u64,
            allow_truncated: config.allow_truncated,
            schemas: HashMap::new(),
            roles: HashMap::new(),
            found: Vec::new(),
            compressed: CompressedImage::default(),
            raw: RawImage::default(),
            raw_colour: false,
            depth: RawImage::default(),
            calibration: CameraCalibration::default(),
            colour_stamp_ns: None,
            depth_stamp_ns: None,
            log_time_ns: 0,
        })
    }

    /// Starts again at the beginning of the stream.
    pub(super) fn rewind(&mut self) -> Result<(), CameraError> {
        self.input.seek(SeekFrom::Start(0)).map_err(|e| file_error(&self.path, e))?;
        self.reader = new_reader();
        self.schemas.clear();
        self.roles.clear();
        self.found.clear();
        self.colour_stamp_ns = None;
        self.depth_stamp_ns = None;
        Ok(())
    }

    /// Finds the intrinsics in the recording's calibration, without images. Leaves the stream
    /// anywhere.
    pub(super) fn find_intrinsics(&mut self) -> Result<Intrinsics, CameraError> {
        loop {
            match self.step(false)? {
                Step::Calibration => return self.checked_calibration(),
                Step::Frame { .. } => {}
                Step::End => return Err(self.missing(&self.topics.calibration)),
            }
        }
    }

    fn checked_calibration(&self) -> Result<Intrinsics, CameraError> {
        let CameraCalibration { width, height, k, d, .. } = &self.calibration;
        let bad = |reason: String| self.bad_message(&self.topics.calibration, reason);
        let &[fx, skew, cx, _, fy, cy, _, _, _] = k.as_slice() else {
            return Err(bad(format!("K has {} elements, expected 9", k.len())));
        };
        if ![fx, fy, cx, cy].iter().all(|v| v.is_finite()) || fx <= 0.0 || fy <= 0.0 || skew != 0.0 {
            return Err(bad(format!("K = {k:?}: expected positive focal lengths, finite centre, no skew")));
        }
        let intrinsics = Intrinsics { width: *width, height: *height, fx, fy, cx, cy };
        if !intrinsics.has_plausible_size() {
            return Err(bad(format!("size is {width}x{height}, expected 1x1 to 7680x4320")));
        }
        if d.iter().any(|&parameter| parameter != 0.0) {
            return Err(bad(format!("images are distorted (D = {d:?}): record rectified images")));
        }
        Ok(intrinsics)
    }

    /// The next colour image with its depth, still encoded; its time stamp, or `None` at the end.
    pub(super) fn next_pair(&mut self) -> Result<Option<u64>, CameraError> {
        loop {
            match self.step(true)? {
                Step::Frame { stamp_ns } => return Ok(Some(stamp_ns)),
                Step::Calibration => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// Error that says that the camera's frames are not in the recording.
    pub(super) fn no_frames(&self) -> CameraError {
        let has = |topic: &str| self.found.iter().any(|(found, _)| found == topic);
        match &self.topics.depth {
            Some(depth) if has(&self.topics.colour) => self.missing(depth),
            _ => self.missing(&self.topics.colour),
        }
    }

    fn missing(&self, topic: &str) -> CameraError {
        let found: Vec<_> = self.found.iter().map(|(topic, kind)| format!("{topic} ({kind})")).collect();
        let found = if found.is_empty() { "no topics".into() } else { found.join(", ") };
        CameraError::MissingTopic { path: self.path.clone(), topic: topic.into(), found }
    }

    fn bad_message(&self, topic: &str, reason: String) -> CameraError {
        CameraError::BadMessage {
            path: self.path.clone(),
            topic: topic.into(),
            log_time_ns: self.log_time_ns,
            reason,
        }
    }

    /// Decodes the pair found last into `frame`.
    pub(super) fn decode(&mut self, size: &Intrinsics, frame: &mut Frame) -> Result<(), CameraError> {
        let (width, height) = (size.width, size.height);
        frame.width = width;
        frame.height = height;
        let colour = if self.raw_colour {
            expect_size(&self.raw, width, height).and_then(|()| {
                let bgr = self.raw.encoding == "bgr8";
                image::copy_colour(&self.raw.data, self.raw.step as usize, width, height, bgr, &mut frame.rgb)
            })
        } else {
            image::decode_jpeg(&self.compressed.data, width, height, &mut frame.rgb)
        };
        colour.map_err(|e| self.image_error(&self.topics.colour, e))?;
        let Some(topic) = &self.topics.depth else {
            frame.depth_mm.clear();
            frame.depth_mm.resize(size.pixels(), 0);
            return Ok(());
        };
        expect_size(&self.depth, width, height)
            .and_then(|()| {
                let step = self.depth.step as usize;
                image::copy_depth(&self.depth.data, step, width, height, 1.0, &mut frame.depth_mm)
            })
            .map_err(|e| self.image_error(topic, e))
    }

    fn image_error(&self, topic: &str, error: ImageError) -> CameraError {
        match error {
            ImageError::Size { width, height, found_width, found_height } => CameraError::SizeMismatch {
                what: format!("{}: topic `{topic}` at {} ns", self.path.display(), self.log_time_ns),
                width,
                height,
                found_width,
                found_height,
            },
            other => self.bad_message(topic, other.to_string()),
        }
    }

    fn step(&mut self, images: bool) -> Result<Step, CameraError> {
        loop {
            match self.reader.next_event() {
                None => return Ok(Step::End),
                Some(Ok(LinearReadEvent::ReadRequest(bytes))) => {
                    // The hint comes from the file: read in bounded pieces, so that a lie costs no
                    // memory.
                    let buffer = self.reader.insert(bytes.min(1 << 20));
                    let read = self.input.read(buffer).map_err(|e| file_error(&self.path, e))?;
                    self.reader.notify_read(read);
                }
                Some(Ok(LinearReadEvent::Record { opcode, data })) => {
                    if !matches!(
                        opcode,
                        ::mcap::records::op::SCHEMA
                            | ::mcap::records::op::CHANNEL
                            | ::mcap::records::op::MESSAGE
                    ) {
                        continue;
                    }
                    match ::mcap::parse_record(opcode, data) {
                        Ok(Record::Schema { header, .. }) => {
                            self.schemas.insert(header.id, (header.name, header.encoding));
                        }
                        Ok(Record::Channel(channel)) => {
                            if self.roles.contains_key(&channel.id) {
                                continue;
                            }
                            let role = role_of(&self.topics, &self.path, &self.schemas, &channel)?;
                            let kind = self.schemas.get(&channel.schema_id);
                            let kind = kind.map_or("no schema", |(name, _)| name);
                            self.found.push((channel.topic, format!("{kind}, {}", channel.message_encoding)));
                            self.roles.insert(channel.id, role);
                        }
                        Ok(Record::Message { header, data }) => {
                            let Some(&Some(role)) = self.roles.get(&header.channel_id) else { continue };
                            if !images && role != Role::Calibration {
                                continue;
                            }
                            let slots = Slots {
                                compressed: &mut self.compressed,
                                raw: &mut self.raw,
                                depth: &mut self.depth,
                                calibration: &mut self.calibration,
                            };
                            self.log_time_ns = header.log_time;
                            match slots.take(role, &header, &data) {
                                Ok(stamp_ns) => {
                                    if let Some(step) = self.pair(role, stamp_ns) {
                                        return Ok(step);
                                    }
                                }
                                Err(reason) => return Err(self.bad_message(self.topic_of(role), reason)),
                            }
                        }
                        Ok(_) => {}
                        Err(error) => return self.broken(error),
                    }
                }
                Some(Err(error)) => return self.broken(error),
            }
        }
    }

    /// The stream cannot be read on: its end where a truncated file is allowed, else an error.
    fn broken(&self, error: ::mcap::McapError) -> Result<Step, CameraError> {
        if self.allow_truncated {
            return Ok(Step::End);
        }
        Err(CameraError::DamagedMcap { path: self.path.clone(), reason: error.to_string() })
    }

    fn topic_of(&self, role: Role) -> &str {
        match role {
            Role::Colour | Role::RawColour => &self.topics.colour,
            Role::Depth => self.topics.depth.as_deref().unwrap_or_default(),
            Role::Calibration => &self.topics.calibration,
        }
    }

    /// Notes an image; a frame is there when colour and depth have the same time.
    fn pair(&mut self, role: Role, stamp_ns: u64) -> Option<Step> {
        match role {
            Role::Calibration => return Some(Step::Calibration),
            Role::Depth => self.depth_stamp_ns = Some(stamp_ns),
            Role::Colour | Role::RawColour => {
                self.raw_colour = role == Role::RawColour;
                self.colour_stamp_ns = Some(stamp_ns);
            }
        }
        let colour_ns = self.colour_stamp_ns?;
        if self.topics.depth.is_some() {
            let depth_ns = self.depth_stamp_ns?;
            if colour_ns.abs_diff(depth_ns) > self.pairing_ns {
                // The older one waits in vain: its partner is not in the recording.
                if colour_ns < depth_ns {
                    self.colour_stamp_ns = None;
                } else {
                    self.depth_stamp_ns = None;
                }
                return None;
            }
        }
        self.colour_stamp_ns = None;
        self.depth_stamp_ns = None;
        Some(Step::Frame { stamp_ns: colour_ns })
    }
}

/// The messages that a record is decoded into, reused from one to the next.
struct Slots<'a> {
    compressed: &'a mut CompressedImage,
    raw: &'a mut RawImage,
    depth: &'a mut RawImage,
    calibration: &'a mut CameraCalibration,
}

impl Slots<'_> {
    /// Decodes one message; returns its time stamp (the log time where it has none), or what is
    /// wrong with it.
    fn take(self, role: Role, header: &MessageHeader, data: &[u8]) -> Result<u64, String> {
        fn merge<M: Message>(message: &mut M, data: &[u8]) -> Result<(), String> {
            // Not `decode`: clearing and merging keeps the buffers.
            message.clear();
            message.merge(data).map_err(|e| format!("not a protobuf message of its type: {e}"))
        }
        let encoding = |image: &RawImage, accepted: &[&str]| {
            if accepted.contains(&image.encoding.as_str()) {
                return Ok(());
            }
            Err(format!("encoding is `{}`, expected {}", image.encoding, accepted.join(" or ")))
        };
        let stamp: Option<Timestamp> = match role {
            Role::Colour => {
                merge(self.compressed, data)?;
                if !matches!(self.compressed.format.as_str(), "jpeg" | "jpg" | "image/jpeg") {
                    return Err(format!("format is `{}`, expected jpeg", self.compressed.format));
                }
                self.compressed.timestamp
            }
            Role::RawColour => {
                merge(self.raw, data)?;
                encoding(self.raw, &["rgb8", "bgr8"])?;
                self.raw.timestamp
            }
            Role::Depth => {
                merge(self.depth, data)?;
                encoding(self.depth, &["16UC1", "mono16"])?;
                self.depth.timestamp
            }
            Role::Calibration => {
                merge(self.calibration, data)?;
                self.calibration.timestamp
            }
        };
        match stamp {
            None => Ok(header.log_time),
            Some(stamp) => stamp.to_ns().ok_or_else(|| format!("impossible time stamp {stamp:?}")),
        }
    }
}

fn role_of(
    topics: &Topics,
    path: &Path,
    schemas: &HashMap<u16, (String, String)>,
    channel: &::mcap::records::Channel,
) -> Result<Option<Role>, CameraError> {
    let (wanted, expected): (&[(&str, Role)], _) = if channel.topic == topics.colour {
        (&[(schema::COMPRESSED_IMAGE, Role::Colour), (schema::RAW_IMAGE, Role::RawColour)], COLOUR_TYPES)
    } else if Some(&channel.topic) == topics.depth.as_ref() {
        (&[(schema::RAW_IMAGE, Role::Depth)], DEPTH_TYPES)
    } else if channel.topic == topics.calibration {
        (&[(schema::CAMERA_CALIBRATION, Role::Calibration)], CALIBRATION_TYPES)
    } else {
        return Ok(None);
    };
    let name = schemas.get(&channel.schema_id).map_or("without a schema", |(name, _)| name);
    let role = wanted.iter().find(|(wanted, _)| *wanted == name && channel.message_encoding == "protobuf");
    match role {
        Some((_, role)) => Ok(Some(*role)),
        None => Err(CameraError::WrongType {
            path: path.into(),
            topic: channel.topic.clone(),
            expected,
            found: format!("{name}, {}", channel.message_encoding),
        }),
    }
}

fn new_reader() -> LinearReader {
    LinearReader::new_with_options(
        LinearReaderOptions::default()
            .with_validate_chunk_crcs(true)
            .with_record_length_limit(MAX_RECORD_BYTES),
    )
}

fn expect_size(raw: &RawImage, width: u32, height: u32) -> Result<(), ImageError> {
    if (raw.width, raw.height) == (width, height) {
        return Ok(());
    }
    Err(ImageError::Size { width, height, found_width: raw.width, found_height: raw.height })
}

fn file_error(path: &Path, source: std::io::Error) -> CameraError {
    CameraError::File { path: path.into(), source }
}

/// Checks the magic bytes at both ends.
fn check_ends<R: Read + Seek>(input: &mut R, path: &Path, allow_truncated: bool) -> Result<(), CameraError> {
    let file = |e| file_error(path, e);
    let mut start = Vec::with_capacity(8);
    input.seek(SeekFrom::Start(0)).map_err(file)?;
    input.by_ref().take(8).read_to_end(&mut start).map_err(file)?;
    if start != ::mcap::MAGIC {
        return Err(CameraError::NotMcap { path: path.into(), found: start });
    }
    let bytes = input.seek(SeekFrom::End(0)).map_err(file)?;
    let mut end = Vec::with_capacity(8);
    // At least as long as the two magics, or the end would be the start.
    if bytes >= 16 {
        input.seek(SeekFrom::End(-8)).map_err(file)?;
        input.by_ref().take(8).read_to_end(&mut end).map_err(file)?;
    }
    if end != ::mcap::MAGIC && !allow_truncated {
        return Err(CameraError::Truncated { path: path.into(), bytes });
    }
    input.seek(SeekFrom::Start(0)).map_err(file)?;
    Ok(())
}
