//! Common parts of several tests: the reference picture and hand-made scenes.

use nalgebra::{Isometry3, Matrix3, Rotation3, Translation3, UnitQuaternion};
use takt_link_camera::{Frame, Intrinsics};

use crate::mount::FramePose;

/// Width and height of the reference picture.
pub(crate) const PICTURE: (u32, u32) = (384, 288);

/// R G B bytes of the reference picture.
pub(crate) fn picture() -> Vec<u8> {
    let bytes = include_bytes!("../tests/data/pedestrians.png");
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.height), PICTURE);
    assert_eq!(info.color_type, png::ColorType::Rgb);
    pixels
}

pub(crate) fn intrinsics() -> Intrinsics {
    Intrinsics { width: 384, height: 288, fx: 300.0, fy: 300.0, cx: 191.5, cy: 143.5 }
}

/// A camera 1 m above the base origin that looks along +x, level; the tool at the camera.
pub(crate) fn pose() -> FramePose {
    // Optical z is base x, optical x is base -y, optical y is base -z.
    let rotation = Rotation3::from_matrix_unchecked(Matrix3::new(
        0.0, 0.0, 1.0, //
        -1.0, 0.0, 0.0, //
        0.0, -1.0, 0.0,
    ));
    let camera_in_base = Isometry3::from_parts(
        Translation3::new(0.0, 0.0, 1.0),
        UnitQuaternion::from_rotation_matrix(&rotation),
    );
    FramePose::new(camera_in_base, Isometry3::translation(0.0, 0.0, 1.0))
}

/// A frame with a wall 8 m ahead (outside the default volume), textured.
pub(crate) fn wall(sequence: u64) -> Frame {
    let mut frame = Frame::new(384, 288);
    frame.sequence = sequence;
    frame.capture_ns = sequence * 33_333_333;
    frame.arrival_ns = frame.capture_ns + 1;
    frame.depth_mm.fill(8_000);
    for (i, value) in frame.rgb.iter_mut().enumerate() {
        *value = (i % 251) as u8;
    }
    frame
}

/// Puts a flat thing at `depth_mm` into the pixels left..right, top..bottom.
pub(crate) fn put(frame: &mut Frame, [left, top, right, bottom]: [u32; 4], depth_mm: u16) {
    for v in top..bottom {
        for u in left..right {
            frame.depth_mm[(v * frame.width + u) as usize] = depth_mm;
        }
    }
}
