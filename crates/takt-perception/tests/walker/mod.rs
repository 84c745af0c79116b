//! The scene of the tests of steady memory.

use nalgebra::Isometry3;
use takt_link_camera::{Frame, Intrinsics};
use takt_perception::{Detection, DetectionSet, FramePose, PerceptionConfig};

/// No networks: nothing but perception's own code.
pub fn config() -> PerceptionConfig {
    let mut config = PerceptionConfig::default();
    config.detector.enabled = false;
    config.segmenter.enabled = false;
    config
}

/// The camera, where it hangs, and a frame with some colour.
pub fn scene() -> (Intrinsics, FramePose, Frame) {
    let intrinsics = Intrinsics { width: 384, height: 288, fx: 300.0, fy: 300.0, cx: 191.5, cy: 143.5 };
    let pose = FramePose::new(Isometry3::translation(0.0, 0.0, -1.0), Isometry3::identity());
    let mut frame = Frame::new(384, 288);
    for (i, value) in frame.rgb.iter_mut().enumerate() {
        *value = (i % 251) as u8;
    }
    (intrinsics, pose, frame)
}

/// A detector's answer for the frame, had it examined it.
pub fn detected(sequence: u64) -> DetectionSet {
    let left = 20.0 + (sequence % 100) as f32 * 3.0;
    let mut set = DetectionSet::of_frame(sequence, 0);
    set.push(Detection { box_px: [left - 2.0, 55.0, left + 42.0, 205.0], score: 0.9 });
    set
}

/// A person who walks from left to right, and a thing that stays.
pub fn draw(frame: &mut Frame, sequence: u64) {
    frame.sequence = sequence;
    frame.capture_ns = sequence * 33_333_333;
    frame.depth_mm.fill(8_000);
    let left = 20 + (sequence % 100) as u32 * 3;
    for v in 0..288 {
        for u in 0..384 {
            let person = (left..left + 40).contains(&u) && (60..200).contains(&v);
            let thing = (300..340).contains(&u) && (100..160).contains(&v);
            if person || thing {
                frame.depth_mm[(v * 384 + u) as usize] = if person { 2_000 } else { 3_000 };
            }
        }
    }
}
