//! Output of every camera: colour and aligned depth with the times from which reaction is measured.

use nalgebra::Isometry3;
use serde::{Deserialize, Serialize};

/// Pinhole intrinsics of the colour image, to which depth is aligned.
///
/// Pixel `(u, v)` (column, row; centre of the top-left pixel is `(0, 0)`) at depth `z` is the point
/// `((u - cx) * z / fx, (v - cy) * z / fy, z)` in the optical frame: x right, y down, z forward.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intrinsics {
    /// Image width in pixels.
    pub width: u32,
    /// Image height in pixels.
    pub height: u32,
    /// Focal length along the columns, in pixels.
    pub fx: f64,
    /// Focal length along the rows, in pixels.
    pub fy: f64,
    /// Principal point, column, in pixels.
    pub cx: f64,
    /// Principal point, row, in pixels.
    pub cy: f64,
}

impl Intrinsics {
    /// Number of pixels of an image.
    pub fn pixels(&self) -> usize {
        self.width as usize * self.height as usize
    }

    /// Whether the size is one that cameras have: at least one pixel, at most 8K UHD. Buffers are
    /// allocated by it, so a size that comes from a file must not be believed beyond that.
    pub fn has_plausible_size(&self) -> bool {
        const MAX_PIXELS: u64 = 7680 * 4320;
        (1..=MAX_PIXELS).contains(&(u64::from(self.width) * u64::from(self.height)))
    }
}

/// One image of a frame, as the sensor that took it numbers and dates it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStamp {
    /// Number of the image at the source. The same number again is the same image again: the sensor
    /// has stalled.
    pub number: u64,
    /// When it was exposed, CLOCK_MONOTONIC nanoseconds.
    pub capture_ns: u64,
    /// Largest error of `capture_ns` because it was converted from another clock, nanoseconds.
    pub error_ns: u64,
}

/// The images of a frame whose colour and depth come from two sensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// The colour image.
    pub colour: StreamStamp,
    /// The depth image.
    pub depth: StreamStamp,
}

/// One colour image with aligned depth. Buffers are allocated once and reused.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Counts from 1 at the source; a gap is a dropped frame. 0 means "no frame yet".
    pub sequence: u64,
    /// When the sensor exposed the image, CLOCK_MONOTONIC nanoseconds (best estimate of the
    /// backend); with two sensors, the older of the two images.
    pub capture_ns: u64,
    /// When driver or library had the whole frame, CLOCK_MONOTONIC nanoseconds. Reaction time
    /// starts here, so that whatever user space then does with it counts: waking up, decoding,
    /// copying, in whichever thread.
    ///
    /// RealSense: the library's time of arrival, the later one of colour and depth. Replay and
    /// synthetic scene: when the frame is due, which is when a camera would have handed it over;
    /// decoding and rendering ahead of that stand for the camera and cost no reaction time, being
    /// late does. A backend without a stamp leaves 0; the feed then stamps the frame when it is
    /// taken in.
    pub arrival_ns: u64,
    /// Time stamp of the source itself (recording time, device clock), nanoseconds of that clock.
    pub source_ns: u64,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// `width * height * 3` bytes, row-major, R G B.
    pub rgb: Vec<u8>,
    /// `width * height` depths along the optical axis in millimetres; 0 means "no measurement".
    pub depth_mm: Vec<u16>,
    /// Pose of the camera's optical frame in the robot base frame at capture, where the source
    /// knows it (the synthetic scene); `None` where the configured mounting and the robot's pose
    /// history give it.
    pub camera_in_base: Option<Isometry3<f64>>,
    /// Colour and depth, each as its own sensor dates it; `None` where one exposure gave both.
    pub streams: Option<Streams>,
}

impl Frame {
    /// A black frame without depth, sequence 0, with buffers of the right size.
    pub fn new(width: u32, height: u32) -> Self {
        let pixels = width as usize * height as usize;
        Self {
            sequence: 0,
            capture_ns: 0,
            arrival_ns: 0,
            source_ns: 0,
            width,
            height,
            rgb: vec![0; pixels * 3],
            depth_mm: vec![0; pixels],
            camera_in_base: None,
            streams: None,
        }
    }

    /// Number and capture of both images, whether they are distinguished or not.
    pub fn stamps(&self) -> Streams {
        let one = StreamStamp { number: self.sequence, capture_ns: self.capture_ns, error_ns: 0 };
        self.streams.unwrap_or(Streams { colour: one, depth: one })
    }

    /// Copies `other`, pixels and all, into the buffers that are there already: no allocation when
    /// they are of its size.
    pub fn copy_from(&mut self, other: &Self) {
        let Self { rgb, depth_mm, .. } = self;
        rgb.clear();
        rgb.extend_from_slice(&other.rgb);
        depth_mm.clear();
        depth_mm.extend_from_slice(&other.depth_mm);
        self.sequence = other.sequence;
        self.capture_ns = other.capture_ns;
        self.arrival_ns = other.arrival_ns;
        self.source_ns = other.source_ns;
        (self.width, self.height) = (other.width, other.height);
        self.camera_in_base = other.camera_in_base;
        self.streams = other.streams;
    }
}
