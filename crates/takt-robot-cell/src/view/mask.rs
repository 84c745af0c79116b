//! Segmentation masks for display, and how they are laid over a colour image.

use takt_perception::Overlay;

use crate::view::status::Zone;

impl Zone {
    /// The colour of the zone, R G B. The page and the terminal use the same ones.
    pub const fn colour(self) -> [u8; 3] {
        match self {
            Zone::Clear => [61, 220, 132],
            Zone::Reduce => [255, 176, 32],
            Zone::Stop => [255, 82, 82],
        }
    }
}

/// Tints the masked pixels of `rgb` (`width * height * 3` bytes) by the zone of their object,
/// stronger at the outline. Labels beyond `zones` and masks of a wrong size are ignored.
pub(crate) fn tint(rgb: &mut [u8], width: u32, height: u32, mask: &Overlay, zones: &[Zone]) {
    let (width, height) = (width as usize, height as usize);
    let whole = mask.width > 0 && mask.height > 0;
    let whole = whole && mask.mask.len() == mask.width as usize * mask.height as usize;
    if !whole || zones.is_empty() || rgb.len() != width * height * 3 {
        return;
    }
    let (mask_width, mask_height) = (mask.width as usize, mask.height as usize);
    let label =
        |x: usize, y: usize| mask.mask[(y * mask_height / height) * mask_width + x * mask_width / width];
    for y in 0..height {
        for x in 0..width {
            let here = label(x, y);
            let Some(zone) = (here as usize).checked_sub(1).and_then(|i| zones.get(i)) else { continue };
            let outline = x < 2
                || y < 2
                || x + 2 >= width
                || y + 2 >= height
                || label(x - 2, y) != here
                || label(x + 2, y) != here
                || label(x, y - 2) != here
                || label(x, y + 2) != here;
            let weight = if outline { 220_u16 } else { 95 };
            let pixel = &mut rgb[(y * width + x) * 3..][..3];
            for (value, tint) in pixel.iter_mut().zip(zone.colour()) {
                *value = ((u16::from(*value) * (256 - weight) + u16::from(tint) * weight) >> 8) as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labelled_pixels_change_and_a_coarse_mask_is_stretched() {
        let mut mask = Overlay::new(4, 4);
        mask.mask[5] = 1; // covers columns 8..16 and rows 8..16 of a 32 x 32 image
        mask.mask[10] = 9; // no such object
        let mut rgb = vec![0; 32 * 32 * 3];
        tint(&mut rgb, 32, 32, &mask, &[Zone::Stop]);
        for (i, pixel) in rgb.chunks_exact(3).enumerate() {
            let (x, y) = (i % 32, i / 32);
            let inside = (8..16).contains(&x) && (8..16).contains(&y);
            assert_eq!(pixel != [0, 0, 0], inside, "at {x},{y}");
        }
        let outline = rgb[(8 * 32 + 8) * 3];
        let inner = rgb[(12 * 32 + 12) * 3];
        assert!(outline > inner && inner > 0);
    }

    #[test]
    fn a_mask_of_wrong_size_is_ignored() {
        let mask = Overlay { mask: vec![1; 3], ..Overlay::new(4, 4) };
        let mut rgb = vec![7; 4 * 4 * 3];
        tint(&mut rgb, 4, 4, &mask, &[Zone::Stop]);
        assert!(rgb.iter().all(|&v| v == 7));
    }
}
