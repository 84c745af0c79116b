//! Cameras: replay, synthetic scene, V4L2, RealSense, and the MCAP recorder.

mod frame;

pub use frame::{Frame, Intrinsics};
