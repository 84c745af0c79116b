//! The scene of the tests of steady memory.

use takt_link_camera::Frame;

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
