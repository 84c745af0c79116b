//! Writes frames of any backend to MCAP.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use ::mcap::records::{MessageHeader, Metadata};
use ::mcap::{Compression, McapError, WriteOptions, Writer};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use prost::Message;

use super::messages::{
    CameraCalibration, CompressedImage, FrameTransform, Quaternion, RawImage, Timestamp, Vector3, schema,
};
use crate::error::CameraError;
use crate::{Frame, Intrinsics};

/// Options of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderOptions {
    /// JPEG quality of colour, 1 to 100.
    pub jpeg_quality: u8,
    /// Frames after which a chunk is closed and handed to the operating system. A killed recorder
    /// loses at most these; larger chunks compress depth better. (What the operating system holds
    /// survives a killed process, not a power cut.)
    pub frames_per_chunk: u32,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self { jpeg_quality: 85, frames_per_chunk: 30 }
    }
}

/// One camera of a recording.
struct Track {
    prefix: String,
    frame_id: String,
    intrinsics: Intrinsics,
    color: u16,
    depth: u16,
    calibration: u16,
    transform: u16,
    frames: u32,
}

/// Writes cameras into one MCAP file, in the form that replay reads and Foxglove opens.
///
/// Without [`finish`](Self::finish) (killed, out of disk) the file lacks its index; replay then
/// reads it with `allow_truncated`, and `mcap recover` of the MCAP tools repairs it.
pub struct Recorder {
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    options: RecorderOptions,
    tracks: Vec<Track>,
    unflushed: u32,
    color: CompressedImage,
    depth: RawImage,
    buffer: Vec<u8>,
}

impl Recorder {
    /// Creates the file; `cameras` are topic prefixes (`/cam0`) with the intrinsics of their
    /// frames.
    ///
    /// # Errors
    /// When the file cannot be created, or an option or a prefix is impossible.
    pub fn create(
        path: impl AsRef<Path>,
        cameras: &[(&str, Intrinsics)],
        options: RecorderOptions,
    ) -> Result<Self, CameraError> {
        let path = path.as_ref().to_path_buf();
        let bad = |key, value: String, expected| Err(CameraError::BadConfig { key, value, expected });
        if !(1..=100).contains(&options.jpeg_quality) {
            return bad("jpeg_quality", options.jpeg_quality.to_string(), "expected 1 to 100");
        }
        if options.frames_per_chunk == 0 {
            return bad("frames_per_chunk", "0".into(), "expected at least 1");
        }
        for (i, (prefix, intrinsics)) in cameras.iter().enumerate() {
            if !prefix.starts_with('/') || prefix.len() < 2 || prefix.ends_with('/') {
                return bad("topic", prefix.to_string(), "expected a prefix like /cam0");
            }
            if cameras[..i].iter().any(|(other, _)| other == prefix) {
                return bad("topic", prefix.to_string(), "expected another prefix for every camera");
            }
            let size = 1..=u32::from(u16::MAX);
            if !size.contains(&intrinsics.width) || !size.contains(&intrinsics.height) {
                let value = format!("{}x{}", intrinsics.width, intrinsics.height);
                return bad("intrinsics", value, "expected a size of 1x1 to 65535x65535");
            }
        }
        let file = takt_files::create_output(&path)
            .map_err(|source| CameraError::File { path: path.clone(), source })?;
        let build = |file| -> Result<_, McapError> {
            let mut writer = WriteOptions::new()
                .compression(Some(Compression::Zstd))
                // Level 1 halves the CPU time of the default; depth of a still scene compresses
                // well anyway.
                .compression_level(1)
                // Chunks are closed by count of frames.
                .chunk_size(None)
                .library(concat!("takt/", env!("CARGO_PKG_VERSION")))
                .create(BufWriter::new(file))?;
            let mut schemas = [0; schema::ALL.len()];
            for (id, (name, descriptor)) in schemas.iter_mut().zip(schema::ALL) {
                *id = writer.add_schema(name, "protobuf", descriptor)?;
            }
            let [color, depth, calibration, transform] = schemas;
            let mut tracks = Vec::with_capacity(cameras.len());
            for (prefix, intrinsics) in cameras {
                let mut channel = |schema, name: &str| {
                    writer.add_channel(schema, &format!("{prefix}/{name}"), "protobuf", &Default::default())
                };
                tracks.push(Track {
                    prefix: prefix.to_string(),
                    frame_id: prefix.trim_matches('/').replace('/', "_"),
                    intrinsics: *intrinsics,
                    color: channel(color, "color")?,
                    depth: channel(depth, "depth")?,
                    calibration: channel(calibration, "calibration")?,
                    transform: channel(transform, "transform")?,
                    frames: 0,
                });
            }
            Ok((writer, tracks))
        };
        let (writer, tracks) = build(file).map_err(|e| write_error(&path, e))?;
        Ok(Self {
            path,
            writer,
            options,
            tracks,
            unflushed: 0,
            color: CompressedImage::default(),
            depth: RawImage::default(),
            buffer: Vec::new(),
        })
    }

    /// Appends a frame of the camera with the given index in `cameras`. The capture time becomes
    /// the time stamp; the sequence number is kept, so that drops remain visible.
    ///
    /// # Errors
    /// When the frame has another size than announced, or the file cannot be written (disk full).
    pub fn write(&mut self, camera: usize, frame: &Frame) -> Result<(), CameraError> {
        let Some(track) = self.tracks.get_mut(camera) else {
            return Err(CameraError::BadConfig {
                key: "camera",
                value: camera.to_string(),
                expected: "expected an index into the cameras given to Recorder::create",
            });
        };
        let Intrinsics { width, height, .. } = track.intrinsics;
        let fits = (frame.width, frame.height) == (width, height)
            && frame.rgb.len() == track.intrinsics.pixels() * 3
            && frame.depth_mm.len() == track.intrinsics.pixels();
        if !fits {
            return Err(CameraError::SizeMismatch {
                what: format!("frame {} of {}", frame.sequence, track.prefix),
                width,
                height,
                found_width: frame.width,
                found_height: frame.height,
            });
        }
        let stamp = Some(Timestamp::from_ns(frame.capture_ns));
        let mut put = |buffer: &mut Vec<u8>, channel_id, message: &dyn PutMessage| {
            buffer.clear();
            message.put(buffer);
            let header = MessageHeader {
                channel_id,
                sequence: frame.sequence as u32,
                log_time: frame.capture_ns,
                publish_time: frame.arrival_ns.max(frame.capture_ns),
            };
            self.writer.write_to_known_channel(&header, buffer).map_err(|e| write_error(&self.path, e))
        };
        if track.frames % self.options.frames_per_chunk == 0 {
            // Again in every chunk: a file that starts in the middle (split, recovered) stays
            // readable.
            put(&mut self.buffer, track.calibration, &calibration(track, stamp))?;
        }
        if let Some(pose) = &frame.camera_in_base {
            let (t, r) = (pose.translation.vector, pose.rotation.coords);
            let transform = FrameTransform {
                timestamp: stamp,
                parent_frame_id: "base".into(),
                child_frame_id: track.frame_id.clone(),
                translation: Some(Vector3 { x: t.x, y: t.y, z: t.z }),
                rotation: Some(Quaternion { x: r.x, y: r.y, z: r.z, w: r.w }),
            };
            put(&mut self.buffer, track.transform, &transform)?;
        }

        self.color.timestamp = stamp;
        self.color.frame_id.clone_from(&track.frame_id);
        self.color.format.replace_range(.., "jpeg");
        self.color.data.clear();
        let mut encoder = Encoder::new(&mut self.color.data, self.options.jpeg_quality);
        encoder.set_sampling_factor(SamplingFactor::R_4_2_0);
        encoder.encode(&frame.rgb, width as u16, height as u16, ColorType::Rgb).map_err(|e| {
            CameraError::BadMessage {
                path: self.path.clone(),
                topic: format!("{}/color", track.prefix),
                log_time_ns: frame.capture_ns,
                reason: format!("cannot encode as JPEG: {e}"),
            }
        })?;
        put(&mut self.buffer, track.color, &self.color)?;

        self.depth.timestamp = stamp;
        self.depth.frame_id.clone_from(&track.frame_id);
        self.depth.encoding.replace_range(.., "16UC1");
        (self.depth.width, self.depth.height, self.depth.step) = (width, height, 2 * width);
        self.depth.data.clear();
        self.depth.data.extend(frame.depth_mm.iter().flat_map(|depth| depth.to_le_bytes()));
        put(&mut self.buffer, track.depth, &self.depth)?;

        track.frames += 1;
        self.unflushed += 1;
        if self.unflushed >= self.options.frames_per_chunk {
            self.flush()?;
        }
        Ok(())
    }

    /// Closes the current chunk and hands everything to the operating system.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn flush(&mut self) -> Result<(), CameraError> {
        self.unflushed = 0;
        self.writer.flush().map_err(|e| write_error(&self.path, e))
    }

    /// Frames written so far, over all cameras.
    pub fn frames(&self) -> u64 {
        self.tracks.iter().map(|track| u64::from(track.frames)).sum()
    }

    /// Adds named text, for example the machine and the configuration, that MCAP tools show.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add_metadata(&mut self, name: &str, entries: &[(&str, &str)]) -> Result<(), CameraError> {
        let metadata = entries.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        self.writer
            .write_metadata(&Metadata { name: name.into(), metadata })
            .map_err(|e| write_error(&self.path, e))
    }

    /// Writes the index and closes the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> Result<(), CameraError> {
        self.writer.finish().map_err(|e| write_error(&self.path, e))?;
        Ok(())
    }
}

/// Object-safe encoding of the four message types.
trait PutMessage {
    fn put(&self, buffer: &mut Vec<u8>);
}

impl<M: Message> PutMessage for M {
    fn put(&self, buffer: &mut Vec<u8>) {
        self.encode_raw(buffer);
    }
}

fn calibration(track: &Track, timestamp: Option<Timestamp>) -> CameraCalibration {
    let Intrinsics { width, height, fx, fy, cx, cy } = track.intrinsics;
    CameraCalibration {
        timestamp,
        width,
        height,
        distortion_model: String::new(),
        d: Vec::new(),
        k: vec![fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0],
        r: vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        p: vec![fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0],
        frame_id: track.frame_id.clone(),
    }
}

fn write_error(path: &Path, error: McapError) -> CameraError {
    let source = match error {
        McapError::Io(source) => source,
        other => std::io::Error::other(other),
    };
    CameraError::File { path: path.into(), source }
}
