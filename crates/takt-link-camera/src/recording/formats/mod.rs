//! The messages that replay reads, whatever they are encoded in.
//!
//! | schema | encoding |
//! |---|---|
//! | `foxglove.CompressedImage`, `.RawImage`, `.CameraCalibration` | protobuf, JSON |
//! | `sensor_msgs/msg/Image`, `CompressedImage`, `CameraInfo` | CDR (ROS 2) |
//! | `foxglove_msgs/msg/CompressedImage`, `RawImage`, `CameraCalibration` | CDR (ROS 2) |

mod cdr;
mod json;
mod proto;
mod ros;

use super::contents::Channel;
use crate::Intrinsics;
pub(super) use proto::Scratch;

/// Role of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Colour,
    Depth,
    Calibration,
}

/// Encoding of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Protobuf,
    Json,
    Cdr,
}

/// Kind of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    FoxgloveRaw,
    FoxgloveCompressed,
    FoxgloveCalibration,
    RosImage,
    RosCompressed,
    RosCameraInfo,
}

/// Type of the messages of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Type {
    kind: Kind,
    encoding: Encoding,
}

const COLOUR_TYPES: &str = "foxglove.CompressedImage (jpeg, png) or foxglove.RawImage (rgb8, bgr8, rgba8, bgra8, \
     mono8), protobuf or json, or ROS 2's sensor_msgs/msg/Image or CompressedImage, cdr";
const DEPTH_TYPES: &str = "foxglove.RawImage (16UC1, mono16, 32FC1) or foxglove.CompressedImage (16-bit png), protobuf \
     or json, or ROS 2's sensor_msgs/msg/Image (16UC1, 32FC1) or CompressedImage (compressedDepth, 16-bit png), cdr";
const CALIBRATION_TYPES: &str =
    "foxglove.CameraCalibration, protobuf or json, or ROS 2's sensor_msgs/msg/CameraInfo, cdr";

impl Role {
    /// Accepted types, for an error.
    pub(super) fn expected(self) -> &'static str {
        match self {
            Self::Colour => COLOUR_TYPES,
            Self::Depth => DEPTH_TYPES,
            Self::Calibration => CALIBRATION_TYPES,
        }
    }
}

impl Type {
    /// The type of a channel's messages, where it is one that serves the role.
    pub(super) fn of(channel: &Channel, role: Role) -> Option<Self> {
        let encoding = match channel.encoding.as_str() {
            "protobuf" => Encoding::Protobuf,
            "json" => Encoding::Json,
            "cdr" => Encoding::Cdr,
            _ => return None,
        };
        let kind = match channel.schema.as_str() {
            "foxglove.RawImage" | "foxglove_msgs/msg/RawImage" => Kind::FoxgloveRaw,
            "foxglove.CompressedImage" | "foxglove_msgs/msg/CompressedImage" => Kind::FoxgloveCompressed,
            "foxglove.CameraCalibration" | "foxglove_msgs/msg/CameraCalibration" => Kind::FoxgloveCalibration,
            "sensor_msgs/msg/Image" => Kind::RosImage,
            "sensor_msgs/msg/CompressedImage" => Kind::RosCompressed,
            "sensor_msgs/msg/CameraInfo" => Kind::RosCameraInfo,
            _ => return None,
        };
        let ros = matches!(kind, Kind::RosImage | Kind::RosCompressed | Kind::RosCameraInfo);
        let calibrates = matches!(kind, Kind::FoxgloveCalibration | Kind::RosCameraInfo);
        let fits = calibrates == (role == Role::Calibration) && (!ros || encoding == Encoding::Cdr);
        fits.then_some(Self { kind, encoding })
    }

    /// Whether it is of ROS, whose calibrations say which images they are of by their topic.
    pub(super) fn is_camera_info(self) -> bool {
        self.kind == Kind::RosCameraInfo
    }
}

/// Layout of an image's pixels in its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// JPEG, PNG and the like.
    Encoded,
    /// Row by row.
    Rows { width: u32, height: u32, step: u32, big_endian: bool },
}

/// An image that has not been decoded yet.
#[derive(Debug)]
pub(super) struct Picture {
    /// When it was taken: the message's own stamp, or its log time where it has none.
    pub stamp_ns: u64,
    pub log_time_ns: u64,
    pub frame_id: String,
    /// `rgb8`, or what the data is compressed by.
    pub encoding: String,
    pub layout: Layout,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

impl Picture {
    /// The pixels.
    pub(super) fn data(&self) -> &[u8] {
        self.buffer.get(self.from..self.to).unwrap_or_default()
    }

    /// The buffer, for the next one.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }
}

/// Content of a message besides its pixels.
struct Front {
    /// Nanoseconds; 0 means that there is none.
    stamp_ns: Option<u64>,
    frame_id: String,
    encoding: String,
    layout: Layout,
}

/// Content of a calibration.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Calibration {
    pub width: u32,
    pub height: u32,
    pub k: Vec<f64>,
    pub d: Vec<f64>,
    pub p: Vec<f64>,
    /// Pixels that were summed up to one, along columns and rows.
    pub binning: [u32; 2],
    /// Part of the sensor: left, top, width, height; all 0 means the whole.
    pub region: [u32; 4],
}

/// Reads an image. `data` is the message; it becomes the picture's buffer.
pub(super) fn picture(
    of: Type,
    data: Vec<u8>,
    log_time_ns: u64,
    scratch: &mut Scratch,
) -> Result<Picture, String> {
    let mut buffer = ros::decompressed(of.encoding == Encoding::Cdr, data)?;
    let (front, from, to) = match of.encoding {
        Encoding::Protobuf => {
            let front = scratch.image(of.kind == Kind::FoxgloveRaw, &mut buffer)?;
            let to = buffer.len();
            (front, 0, to)
        }
        Encoding::Json => {
            let front = json::image(of.kind == Kind::FoxgloveRaw, &mut buffer)?;
            let to = buffer.len();
            (front, 0, to)
        }
        Encoding::Cdr => ros::image(of.kind, &buffer)?,
    };
    let stamp_ns = front.stamp_ns.filter(|stamp| *stamp != 0 || of.encoding != Encoding::Cdr);
    Ok(Picture {
        stamp_ns: stamp_ns.unwrap_or(log_time_ns),
        log_time_ns,
        frame_id: front.frame_id,
        encoding: front.encoding,
        layout: front.layout,
        buffer,
        from,
        to,
    })
}

/// Reads a calibration.
pub(super) fn calibration(of: Type, data: Vec<u8>) -> Result<Calibration, String> {
    let data = ros::decompressed(of.encoding == Encoding::Cdr, data)?;
    match of.encoding {
        Encoding::Protobuf => proto::calibration(&data),
        Encoding::Json => json::calibration(&data),
        Encoding::Cdr => ros::calibration(of.kind, &data),
    }
}

impl Calibration {
    /// The intrinsics of its images. `rectified`: the images are, so that the projection of the
    /// rectified image holds and distortion is taken out already.
    pub(super) fn intrinsics(&self, rectified: bool) -> Result<Intrinsics, String> {
        let (fx, fy, cx, cy) = match (rectified, self.k.as_slice(), self.p.as_slice()) {
            (true, _, &[fx, 0.0, cx, _, 0.0, fy, cy, ..]) => (fx, fy, cx, cy),
            (true, ..) => return Err(format!("P = {:?}: expected 12 elements without skew", self.p)),
            (false, &[fx, 0.0, cx, _, fy, cy, _, _, _], _) => (fx, fy, cx, cy),
            (false, &[_, _, _, _, _, _, _, _, _], _) => {
                return Err(format!(
                    "K = {:?}: expected positive focal lengths, finite centre, no skew",
                    self.k
                ));
            }
            (false, k, _) => return Err(format!("K has {} elements, expected 9", k.len())),
        };
        if ![fx, fy, cx, cy].iter().all(|v| v.is_finite()) || fx <= 0.0 || fy <= 0.0 {
            let (name, matrix) = if rectified { ("P", &self.p) } else { ("K", &self.k) };
            return Err(format!(
                "{name} = {matrix:?}: expected positive focal lengths, finite centre, no skew"
            ));
        }
        if !rectified && self.d.iter().any(|&parameter| parameter != 0.0) {
            return Err(format!(
                "images are distorted (D = {:?}): record rectified images, or set the camera's `intrinsics` if the distortion does not \
                 matter",
                self.d
            ));
        }
        // The matrices are those of the whole sensor (sensor_msgs/CameraInfo).
        let [left, top, width, height] = self.region;
        let (width, height) = if self.region == [0; 4] { (self.width, self.height) } else { (width, height) };
        let [across, down] = self.binning.map(|pixels| pixels.max(1));
        let intrinsics = Intrinsics {
            width: width / across,
            height: height / down,
            fx: fx / f64::from(across),
            fy: fy / f64::from(down),
            cx: (cx - f64::from(left)) / f64::from(across),
            cy: (cy - f64::from(top)) / f64::from(down),
        };
        if !intrinsics.has_plausible_size() {
            let Intrinsics { width, height, .. } = intrinsics;
            return Err(format!("size is {width}x{height}, expected 1x1 to 7680x4320"));
        }
        Ok(intrinsics)
    }
}
