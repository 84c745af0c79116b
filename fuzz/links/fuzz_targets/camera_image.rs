//! What a camera delivers: images of each kind, of any size, from any bytes. The first four bytes
//! say kind, width, height, stride.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_link_camera::image::{
    ColourLayout, copy_colour, copy_depth, copy_depth_metres, decode_jpeg, decode_png_16, decode_png_colour,
};

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, width, height, stride], data)) = data.split_first_chunk() else { return };
    let (width, height, stride) = (u32::from(width), u32::from(height), usize::from(stride) * 4);
    let pixels = (width * height) as usize;
    let (mut rgb, mut depth_mm) = (Vec::new(), Vec::new());
    let layouts = [
        ColourLayout::Rgb,
        ColourLayout::Bgr,
        ColourLayout::Rgba,
        ColourLayout::Bgra,
        ColourLayout::Grey,
        ColourLayout::GreyAlpha,
    ];
    let big_endian = kind & 8 != 0;
    let done = match kind % 6 {
        0 => decode_jpeg(data, width, height, &mut rgb),
        1 => decode_png_colour(data, width, height, &mut rgb),
        2 => decode_png_16(data, width, height, &mut depth_mm),
        3 => copy_colour(data, stride, width, height, layouts[usize::from(kind / 6) % 6], &mut rgb),
        4 => copy_depth_metres(data, stride, width, height, big_endian, &mut depth_mm),
        _ => copy_depth(data, stride, width, height, big_endian, f32::from(kind) / 50.0, &mut depth_mm),
    };
    if done.is_ok() {
        assert!(rgb.len() == pixels * 3 || depth_mm.len() == pixels);
    }
});
