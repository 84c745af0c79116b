//! The Foxglove messages of a recording, in their protobuf encoding.
//!
//! Field numbers are those of the descriptors in `schema/`, which the recorder writes beside the
//! data.

use prost::Message;

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Timestamp {
    /// Seconds since the epoch of the recording's clock.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds within the second.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Timestamp {
    /// From nanoseconds.
    pub fn from_ns(ns: u64) -> Self {
        Self { seconds: (ns / 1_000_000_000) as i64, nanos: (ns % 1_000_000_000) as i32 }
    }

    /// Nanoseconds; `None` when negative or out of range.
    pub fn to_ns(self) -> Option<u64> {
        let nanos = u64::try_from(self.nanos).ok()?;
        u64::try_from(self.seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
    }
}

/// `foxglove.CompressedImage`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CompressedImage {
    /// When the image was taken.
    #[prost(message, optional, tag = "1")]
    pub timestamp: Option<Timestamp>,
    /// The encoded image.
    #[prost(bytes = "vec", tag = "2")]
    pub data: Vec<u8>,
    /// `jpeg` here.
    #[prost(string, tag = "3")]
    pub format: String,
    /// Name of the camera's optical frame.
    #[prost(string, tag = "4")]
    pub frame_id: String,
}

/// `foxglove.RawImage`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RawImage {
    /// When the image was taken.
    #[prost(message, optional, tag = "1")]
    pub timestamp: Option<Timestamp>,
    /// Width in pixels.
    #[prost(fixed32, tag = "2")]
    pub width: u32,
    /// Height in pixels.
    #[prost(fixed32, tag = "3")]
    pub height: u32,
    /// `16UC1` or `mono16` for depth; `rgb8` or `bgr8` for colour.
    #[prost(string, tag = "4")]
    pub encoding: String,
    /// Bytes per row.
    #[prost(fixed32, tag = "5")]
    pub step: u32,
    /// The pixels, row by row, little endian.
    #[prost(bytes = "vec", tag = "6")]
    pub data: Vec<u8>,
    /// Name of the camera's optical frame.
    #[prost(string, tag = "7")]
    pub frame_id: String,
}

/// `foxglove.CameraCalibration`.
#[derive(Clone, PartialEq, Message)]
pub struct CameraCalibration {
    /// When it was valid.
    #[prost(message, optional, tag = "1")]
    pub timestamp: Option<Timestamp>,
    /// Width in pixels.
    #[prost(fixed32, tag = "2")]
    pub width: u32,
    /// Height in pixels.
    #[prost(fixed32, tag = "3")]
    pub height: u32,
    /// Name of the distortion model; images here are undistorted.
    #[prost(string, tag = "4")]
    pub distortion_model: String,
    /// Distortion parameters.
    #[prost(double, repeated, tag = "5")]
    pub d: Vec<f64>,
    /// Intrinsic matrix, 3x3 row-major.
    #[prost(double, repeated, tag = "6")]
    pub k: Vec<f64>,
    /// Rectification matrix, 3x3 row-major.
    #[prost(double, repeated, tag = "7")]
    pub r: Vec<f64>,
    /// Projection matrix, 3x4 row-major.
    #[prost(double, repeated, tag = "8")]
    pub p: Vec<f64>,
    /// Name of the camera's optical frame.
    #[prost(string, tag = "9")]
    pub frame_id: String,
}

/// `foxglove.Vector3`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Vector3 {
    /// Metres along x.
    #[prost(double, tag = "1")]
    pub x: f64,
    /// Metres along y.
    #[prost(double, tag = "2")]
    pub y: f64,
    /// Metres along z.
    #[prost(double, tag = "3")]
    pub z: f64,
}

/// `foxglove.Quaternion`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Quaternion {
    /// i.
    #[prost(double, tag = "1")]
    pub x: f64,
    /// j.
    #[prost(double, tag = "2")]
    pub y: f64,
    /// k.
    #[prost(double, tag = "3")]
    pub z: f64,
    /// Real part.
    #[prost(double, tag = "4")]
    pub w: f64,
}

/// `foxglove.FrameTransform`.
#[derive(Clone, PartialEq, Message)]
pub struct FrameTransform {
    /// When the pose was valid.
    #[prost(message, optional, tag = "1")]
    pub timestamp: Option<Timestamp>,
    /// `base` here.
    #[prost(string, tag = "2")]
    pub parent_frame_id: String,
    /// Name of the camera's optical frame.
    #[prost(string, tag = "3")]
    pub child_frame_id: String,
    /// Position of the child in the parent.
    #[prost(message, optional, tag = "4")]
    pub translation: Option<Vector3>,
    /// Orientation of the child in the parent.
    #[prost(message, optional, tag = "5")]
    pub rotation: Option<Quaternion>,
}

/// Full names and descriptors of the messages.
pub mod schema {
    /// Name of [`super::CompressedImage`].
    pub const COMPRESSED_IMAGE: &str = "foxglove.CompressedImage";
    /// Name of [`super::RawImage`].
    pub const RAW_IMAGE: &str = "foxglove.RawImage";
    /// Name of [`super::CameraCalibration`].
    pub const CAMERA_CALIBRATION: &str = "foxglove.CameraCalibration";
    /// Name of [`super::FrameTransform`].
    pub const FRAME_TRANSFORM: &str = "foxglove.FrameTransform";

    /// Name and `FileDescriptorSet` of each.
    pub const ALL: [(&str, &[u8]); 4] = [
        (COMPRESSED_IMAGE, include_bytes!("../../schema/CompressedImage.bin")),
        (RAW_IMAGE, include_bytes!("../../schema/RawImage.bin")),
        (CAMERA_CALIBRATION, include_bytes!("../../schema/CameraCalibration.bin")),
        (FRAME_TRANSFORM, include_bytes!("../../schema/FrameTransform.bin")),
    ];
}
