//! What a camera delivers: images of each kind, of any size, from any bytes. The first four bytes
//! say kind, width, height, stride.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_link_camera::image::{copy_colour, copy_depth, decode_jpeg, jpeg_size, yuyv_to_rgb};

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, width, height, stride], data)) = data.split_first_chunk() else { return };
    let (width, height, stride) = (u32::from(width), u32::from(height), usize::from(stride) * 4);
    let pixels = (width * height) as usize;
    let (mut rgb, mut depth_mm) = (Vec::new(), Vec::new());
    let done = match kind % 4 {
        0 => {
            let (width, height) = jpeg_size(data).unwrap_or((width, height));
            // The size of a camera's images is known; a big one only takes time.
            if u64::from(width) * u64::from(height) > 1 << 20 {
                return;
            }
            let decoded = decode_jpeg(data, width, height, &mut rgb);
            assert!(decoded.is_err() || rgb.len() == (width * height) as usize * 3);
            return;
        }
        1 => yuyv_to_rgb(data, stride, width, height, &mut rgb),
        2 => copy_colour(data, stride, width, height, kind & 4 != 0, &mut rgb),
        _ => copy_depth(data, stride, width, height, f32::from(kind) / 50.0, &mut depth_mm),
    };
    if done.is_ok() {
        assert!(rgb.len() == pixels * 3 || depth_mm.len() == pixels);
    }
});
