//! A frame as perception reads it, wherever its pixels lie.

use takt_link_camera::Frame;

/// One frame, borrowed: from a camera, or from memory that two processes share.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'a> {
    /// Number of the frame since the start, from 1; 0 for none.
    pub sequence: u64,
    /// When it was captured, CLOCK_MONOTONIC nanoseconds.
    pub capture_ns: u64,
    /// When it was complete in memory, CLOCK_MONOTONIC nanoseconds.
    pub arrival_ns: u64,
    /// Width of colour and depth.
    pub width: u32,
    /// Height of colour and depth.
    pub height: u32,
    /// R G B bytes, row-major.
    pub rgb: &'a [u8],
    /// Depth in millimetres, row-major; 0 where there is none.
    pub depth_mm: &'a [u16],
}

impl<'a> From<&'a Frame> for FrameView<'a> {
    fn from(frame: &'a Frame) -> Self {
        Self {
            sequence: frame.sequence,
            capture_ns: frame.capture_ns,
            arrival_ns: frame.arrival_ns,
            width: frame.width,
            height: frame.height,
            rgb: &frame.rgb,
            depth_mm: &frame.depth_mm,
        }
    }
}
