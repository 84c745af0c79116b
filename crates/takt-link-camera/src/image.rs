//! Image conversions into the caller's buffers.

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// Why an image cannot be converted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The JPEG decoder's complaint.
    #[error("not a decodable JPEG image: {0}")]
    Jpeg(String),
    /// The image has another size.
    #[error("image is {found_width}x{found_height}, expected {width}x{height}")]
    Size {
        /// Expected width.
        width: u32,
        /// Expected height.
        height: u32,
        /// Width found.
        found_width: u32,
        /// Height found.
        found_height: u32,
    },
    /// The data is shorter than its size says.
    #[error("{found} bytes of pixels, expected {expected} ({what})")]
    Length {
        /// Layout expected.
        what: &'static str,
        /// Bytes expected.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
}

/// Decodes a JPEG of exactly `width` x `height` into `rgb`, which is resized to fit where it does
/// not.
///
/// The size is compared before pixels are decoded, so a hostile header costs no memory.
pub fn decode_jpeg(data: &[u8], width: u32, height: u32, rgb: &mut Vec<u8>) -> Result<(), ImageError> {
    let jpeg = |e: zune_jpeg::errors::DecodeErrors| ImageError::Jpeg(e.to_string());
    let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(data), options);
    decoder.decode_headers().map_err(jpeg)?;
    let info = decoder.info().ok_or_else(|| ImageError::Jpeg("no image header".into()))?;
    let (found_width, found_height) = (u32::from(info.width), u32::from(info.height));
    if (found_width, found_height) != (width, height) {
        return Err(ImageError::Size { width, height, found_width, found_height });
    }
    let bytes = width as usize * height as usize * 3;
    if decoder.output_buffer_size() != Some(bytes) {
        return Err(ImageError::Jpeg("not a colour image that converts to RGB".into()));
    }
    rgb.resize(bytes, 0);
    decoder.decode_into(rgb).map_err(jpeg)
}

/// Copies rows of `row_bytes` out of an image whose rows are `stride` bytes apart.
fn rows<'a>(
    what: &'static str,
    data: &'a [u8],
    stride: usize,
    row_bytes: usize,
    height: usize,
) -> Result<impl Iterator<Item = &'a [u8]>, ImageError> {
    let stride = stride.max(row_bytes);
    let expected = match height {
        0 => 0,
        // A hostile stride must not overflow; a saturated length is longer than any data.
        _ => stride.saturating_mul(height - 1).saturating_add(row_bytes),
    };
    if data.len() < expected {
        return Err(ImageError::Length { what, expected, found: data.len() });
    }
    Ok((0..height).map(move |row| &data[row * stride..row * stride + row_bytes]))
}

/// Copies packed 24-bit colour, swapping red and blue when `bgr`.
pub fn copy_colour(
    data: &[u8],
    stride: usize,
    width: u32,
    height: u32,
    bgr: bool,
    rgb: &mut Vec<u8>,
) -> Result<(), ImageError> {
    let row_bytes = width as usize * 3;
    let source = rows("8-bit RGB, 3 bytes a pixel", data, stride, row_bytes, height as usize)?;
    rgb.resize(row_bytes * height as usize, 0);
    for (from, to) in source.zip(rgb.chunks_exact_mut(row_bytes.max(1))) {
        to.copy_from_slice(from);
        if bgr {
            to.chunks_exact_mut(3).for_each(|pixel| pixel.swap(0, 2));
        }
    }
    Ok(())
}

/// Copies little-endian 16-bit depth, multiplying by `scale` (millimetres per unit) where that is
/// not 1.
pub fn copy_depth(
    data: &[u8],
    stride: usize,
    width: u32,
    height: u32,
    scale: f32,
    depth_mm: &mut Vec<u16>,
) -> Result<(), ImageError> {
    let width = width as usize;
    let source = rows("16-bit depth, 2 bytes a pixel", data, stride, width * 2, height as usize)?;
    depth_mm.resize(width * height as usize, 0);
    for (from, to) in source.zip(depth_mm.chunks_exact_mut(width.max(1))) {
        for (bytes, depth) in from.chunks_exact(2).zip(to) {
            let value = u16::from_le_bytes([bytes[0], bytes[1]]);
            // A depth beyond 65.5 m does not fit; it becomes "no measurement" rather than a nearer
            // one.
            *depth = if scale == 1.0 {
                value
            } else {
                let mm = f32::from(value) * scale + 0.5;
                if mm < 65_536.0 { mm as u16 } else { 0 }
            };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_rows_are_skipped_and_short_data_is_refused() {
        let mut data = vec![128; 2 * 12];
        data[9..12].fill(0);
        let mut rgb = vec![9; 1];
        copy_colour(&data, 12, 3, 2, false, &mut rgb).unwrap();
        assert_eq!(rgb, [128; 18], "no padding");
        let error = copy_colour(&data[..20], 12, 3, 2, false, &mut rgb).unwrap_err();
        assert_eq!(error, ImageError::Length { what: "8-bit RGB, 3 bytes a pixel", expected: 21, found: 20 });
        assert!(copy_depth(&[0; 8], usize::MAX, 2, 2, 1.0, &mut Vec::new()).is_err());
    }

    #[test]
    fn bgr_is_swapped_and_depth_is_scaled() {
        let mut rgb = Vec::new();
        copy_colour(&[1, 2, 3, 4, 5, 6], 3, 1, 2, true, &mut rgb).unwrap();
        assert_eq!(rgb, [3, 2, 1, 6, 5, 4]);
        let mut depth = Vec::new();
        copy_depth(&[0x10, 0x27, 0xff, 0xff], 4, 2, 1, 0.1, &mut depth).unwrap();
        assert_eq!(depth, [1000, 6554]);
        copy_depth(&[0x10, 0x27, 0xff, 0xff], 4, 2, 1, 2.0, &mut depth).unwrap();
        assert_eq!(depth, [20000, 0], "a depth that does not fit is no measurement");
    }

    #[test]
    fn a_jpeg_of_another_size_or_rubbish_is_refused() {
        let mut data = Vec::new();
        jpeg_encoder::Encoder::new(&mut data, 90)
            .encode(&[200; 16 * 8 * 3], 16, 8, jpeg_encoder::ColorType::Rgb)
            .unwrap();
        let mut rgb = Vec::new();
        decode_jpeg(&data, 16, 8, &mut rgb).unwrap();
        assert!(rgb.iter().all(|v| v.abs_diff(200) < 3));
        let error = decode_jpeg(&data, 8, 16, &mut rgb).unwrap_err();
        assert_eq!(error, ImageError::Size { width: 8, height: 16, found_width: 16, found_height: 8 });
        assert!(matches!(decode_jpeg(b"\xff\xd8rubbish", 8, 8, &mut rgb), Err(ImageError::Jpeg(_))));
    }
}
