//! Pictures of people: cut-outs of real pedestrians, so that a network trained on photographs finds
//! them.
//!
//! They come from `vtest.avi` of OpenCV's samples (Apache-2.0) and were made by
//! `tools/recording/make_cutouts.py`; see `people/README.md`.

use std::io::Cursor;

/// Number of built-in pictures.
pub const LOOKS: usize = 4;

const FILES: [&[u8]; LOOKS] = [
    include_bytes!("people/person0.png"),
    include_bytes!("people/person1.png"),
    include_bytes!("people/person2.png"),
    include_bytes!("people/person3.png"),
];

/// A picture with transparency; every texel is either opaque or not there.
#[derive(Clone, Debug)]
pub struct Texture {
    width: usize,
    height: usize,
    rgba: Vec<u8>,
}

impl Texture {
    /// The built-in picture with that number, or the first for a number too high.
    pub fn built_in(look: usize) -> Self {
        let file = FILES.get(look).unwrap_or(&FILES[0]);
        Self::decode(file).expect("the built-in pictures are valid 8-bit RGBA, as a test shows")
    }

    fn decode(file: &[u8]) -> Option<Self> {
        let mut reader = png::Decoder::new(Cursor::new(file)).read_info().ok()?;
        let mut rgba = vec![0; reader.output_buffer_size()?];
        let info = reader.next_frame(&mut rgba).ok()?;
        let (width, height) = (info.width as usize, info.height as usize);
        let rgba8 = (info.color_type, info.bit_depth) == (png::ColorType::Rgba, png::BitDepth::Eight);
        (rgba8 && rgba.len() == width * height * 4 && width > 1 && height > 1).then_some(Self {
            width,
            height,
            rgba,
        })
    }

    /// Width over height.
    pub(crate) fn aspect(&self) -> f64 {
        self.width as f64 / self.height as f64
    }

    /// Whether the person covers the place `(u, v)`, 0..1 from the left and from the top.
    pub fn covers(&self, u: f64, v: f64) -> bool {
        if !(0.0..1.0).contains(&u) || !(0.0..1.0).contains(&v) {
            return false;
        }
        let (x, y) = ((u * self.width as f64) as usize, (v * self.height as f64) as usize);
        self.rgba[(y * self.width + x) * 4 + 3] >= 128
    }

    /// Colour at `(u, v)`, interpolated between the four nearest texels.
    pub fn colour(&self, u: f64, v: f64) -> [u8; 3] {
        let place = |t: f64, size: usize| {
            let t = (t * size as f64 - 0.5).clamp(0.0, (size - 1) as f64);
            let low = (t as usize).min(size - 2);
            (low, (t - low as f64) as f32)
        };
        let ((x, fx), (y, fy)) = (place(u, self.width), place(v, self.height));
        let texel =
            |x: usize, y: usize, channel: usize| f32::from(self.rgba[(y * self.width + x) * 4 + channel]);
        std::array::from_fn(|channel| {
            let top = texel(x, y, channel) * (1.0 - fx) + texel(x + 1, y, channel) * fx;
            let bottom = texel(x, y + 1, channel) * (1.0 - fx) + texel(x + 1, y + 1, channel) * fx;
            (top * (1.0 - fy) + bottom * fy + 0.5) as u8
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_pictures_are_people_sized() {
        for look in 0..LOOKS {
            let texture = Texture::built_in(look);
            assert!((0.2..0.8).contains(&texture.aspect()), "picture {look}: {}", texture.aspect());
            let covered = (0..100 * 100)
                .filter(|i| texture.covers(f64::from(i % 100) / 100.0, f64::from(i / 100) / 100.0));
            let share = covered.count() as f64 / 1e4;
            assert!((0.25..0.9).contains(&share), "picture {look} covers {share}");
        }
    }

    #[test]
    fn nothing_is_covered_outside() {
        let texture = Texture::built_in(0);
        for (u, v) in [(-0.01, 0.5), (1.0, 0.5), (0.5, -0.01), (0.5, 1.0), (f64::NAN, 0.5)] {
            assert!(!texture.covers(u, v));
        }
    }
}
