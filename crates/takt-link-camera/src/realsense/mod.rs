//! Intel RealSense D4xx: colour, and depth aligned to it, through librealsense2 (cargo feature
//! `realsense`).
//!
//! The library is loaded at run time, so that one binary runs with and without it. Depth is aligned
//! to the colour image by the library's align block in this thread; its own threads are helpers in
//! the sense of the thread census. Colour is taken as an ideal pinhole image: the lens distortion
//! left in a D4xx's colour is not corrected.

mod config;

#[cfg(feature = "realsense")]
mod camera;
#[cfg(feature = "realsense")]
mod stamp;
#[cfg(feature = "realsense")]
mod sys;

#[cfg(feature = "realsense")]
pub use camera::RealsenseCamera;
pub use config::RealsenseConfig;
