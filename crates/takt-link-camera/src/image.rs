//! Image conversions into the caller's buffers.

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// Reason why an image cannot be converted.
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
    /// The PNG decoder's complaint.
    #[error("not a decodable PNG image: {0}")]
    Png(String),
    /// The PNG image has other samples.
    #[error("the PNG image has {found}, expected {expected}")]
    Samples {
        /// Samples expected.
        expected: &'static str,
        /// Samples found.
        found: String,
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

/// Decodes a PNG of exactly `width` x `height` into `samples`, and says what the samples are. The
/// size is compared before pixels are decoded.
fn decode_png(
    data: &[u8],
    width: u32,
    height: u32,
    transformations: png::Transformations,
    samples: &mut Vec<u8>,
) -> Result<(png::ColorType, png::BitDepth), ImageError> {
    let complaint = |e: png::DecodingError| ImageError::Png(e.to_string());
    let limits = png::Limits { bytes: PNG_LIMIT_BYTES };
    let mut decoder = png::Decoder::new_with_limits(std::io::Cursor::new(data), limits);
    decoder.set_ignore_text_chunk(true);
    decoder.set_transformations(transformations);
    let header = decoder.read_header_info().map_err(complaint)?;
    let (found_width, found_height) = (header.width, header.height);
    if (found_width, found_height) != (width, height) {
        return Err(ImageError::Size { width, height, found_width, found_height });
    }
    let mut reader = decoder.read_info().map_err(complaint)?;
    let bytes = reader.output_buffer_size().ok_or_else(|| ImageError::Png("too large".into()))?;
    samples.resize(bytes, 0);
    let info = reader.next_frame(samples).map_err(complaint)?;
    samples.truncate(info.buffer_size());
    Ok((info.color_type, info.bit_depth))
}

/// Memory that the PNG decoder may use beside the image: rows of 8K, and colour profiles.
const PNG_LIMIT_BYTES: usize = 64 << 20;

/// Decodes a PNG of exactly `width` x `height` into `rgb`: colour, grey or palette, of any depth.
pub fn decode_png_colour(data: &[u8], width: u32, height: u32, rgb: &mut Vec<u8>) -> Result<(), ImageError> {
    let transformations = png::Transformations::normalize_to_color8();
    let mut samples = Vec::new();
    let (colour, _) = decode_png(data, width, height, transformations, &mut samples)?;
    let layout = match colour {
        png::ColorType::Rgb => ColourLayout::Rgb,
        png::ColorType::Rgba => ColourLayout::Rgba,
        png::ColorType::Grayscale => ColourLayout::Grey,
        png::ColorType::GrayscaleAlpha => ColourLayout::GreyAlpha,
        // Expanded by the decoder.
        png::ColorType::Indexed => return Err(ImageError::Png("a palette that is not expanded".into())),
    };
    copy_colour(&samples, 0, width, height, layout, rgb)
}

/// Decodes a PNG of exactly `width` x `height` with one sample of 16 bits a pixel.
pub fn decode_png_16(data: &[u8], width: u32, height: u32, values: &mut Vec<u16>) -> Result<(), ImageError> {
    let mut samples = Vec::new();
    let found = decode_png(data, width, height, png::Transformations::IDENTITY, &mut samples)?;
    let (png::ColorType::Grayscale, png::BitDepth::Sixteen) = found else {
        let expected = "one sample of 16 bits a pixel";
        let found = format!("{:?} samples of {} bits", found.0, found.1 as u8);
        return Err(ImageError::Samples { expected, found });
    };
    values.clear();
    values.extend(samples.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])));
    Ok(())
}

/// Copies rows of `row_bytes` out of an image whose rows are `stride` bytes apart; 0 means that
/// they follow each other.
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

/// Order of the samples of 8 bits of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColourLayout {
    /// Red, green, blue.
    Rgb,
    /// Blue, green, red.
    Bgr,
    /// Red, green, blue, and what is left out.
    Rgba,
    /// Blue, green, red, and what is left out.
    Bgra,
    /// Grey.
    Grey,
    /// Grey, and what is left out.
    GreyAlpha,
}

impl ColourLayout {
    /// Bytes of a pixel.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Rgb | Self::Bgr => 3,
            Self::Rgba | Self::Bgra => 4,
            Self::Grey => 1,
            Self::GreyAlpha => 2,
        }
    }
}

/// Copies packed colour of 8 bits a sample into R G B.
pub fn copy_colour(
    data: &[u8],
    stride: usize,
    width: u32,
    height: u32,
    layout: ColourLayout,
    rgb: &mut Vec<u8>,
) -> Result<(), ImageError> {
    let (width, height) = (width as usize, height as usize);
    let bytes = layout.bytes();
    let source = rows("colour, 8 bits a sample", data, stride, width * bytes, height)?;
    rgb.resize(width * height * 3, 0);
    for (from, to) in source.zip(rgb.chunks_exact_mut((width * 3).max(1))) {
        let pixels = from.chunks_exact(bytes).zip(to.chunks_exact_mut(3));
        match layout {
            ColourLayout::Rgb => to.copy_from_slice(from),
            ColourLayout::Bgr | ColourLayout::Bgra => {
                pixels.for_each(|(from, to)| to.copy_from_slice(&[from[2], from[1], from[0]]));
            }
            ColourLayout::Rgba => pixels.for_each(|(from, to)| to.copy_from_slice(&from[..3])),
            ColourLayout::Grey | ColourLayout::GreyAlpha => {
                pixels.for_each(|(from, to)| to.fill(from[0]));
            }
        }
    }
    Ok(())
}

/// Copies 16-bit depth, multiplying by `scale` (millimetres per unit) where that is not 1.
pub fn copy_depth(
    data: &[u8],
    stride: usize,
    width: u32,
    height: u32,
    big_endian: bool,
    scale: f32,
    depth_mm: &mut Vec<u16>,
) -> Result<(), ImageError> {
    let width = width as usize;
    let source = rows("16-bit depth, 2 bytes a pixel", data, stride, width * 2, height as usize)?;
    depth_mm.resize(width * height as usize, 0);
    for (from, to) in source.zip(depth_mm.chunks_exact_mut(width.max(1))) {
        for (bytes, depth) in from.chunks_exact(2).zip(to) {
            let bytes = [bytes[0], bytes[1]];
            let value = if big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) };
            *depth = if scale == 1.0 { value } else { millimetres(f32::from(value) * scale) };
        }
    }
    Ok(())
}

/// Copies depth of 32-bit floating point, in metres.
pub fn copy_depth_metres(
    data: &[u8],
    stride: usize,
    width: u32,
    height: u32,
    big_endian: bool,
    depth_mm: &mut Vec<u16>,
) -> Result<(), ImageError> {
    let width = width as usize;
    let source = rows("floating-point depth, 4 bytes a pixel", data, stride, width * 4, height as usize)?;
    depth_mm.resize(width * height as usize, 0);
    for (from, to) in source.zip(depth_mm.chunks_exact_mut(width.max(1))) {
        for (bytes, depth) in from.chunks_exact(4).zip(to) {
            let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
            let metres = if big_endian { f32::from_be_bytes(bytes) } else { f32::from_le_bytes(bytes) };
            *depth = millimetres(metres * 1000.0);
        }
    }
    Ok(())
}

/// Depth as it is kept. A depth beyond 65.5 m does not fit, and neither do infinity, a negative
/// number and none: each becomes "no measurement" rather than a nearer one.
pub(crate) fn millimetres(mm: f32) -> u16 {
    let rounded = mm + 0.5;
    if (1.0..65_536.0).contains(&rounded) { rounded as u16 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_rows_are_skipped_and_short_data_is_refused() {
        let mut data = vec![128; 2 * 12];
        data[9..12].fill(0);
        let mut rgb = vec![9; 1];
        copy_colour(&data, 12, 3, 2, ColourLayout::Rgb, &mut rgb).unwrap();
        assert_eq!(rgb, [128; 18], "no padding");
        let error = copy_colour(&data[..20], 12, 3, 2, ColourLayout::Rgb, &mut rgb).unwrap_err();
        assert_eq!(error, ImageError::Length { what: "colour, 8 bits a sample", expected: 21, found: 20 });
        assert!(copy_depth(&[0; 8], usize::MAX, 2, 2, false, 1.0, &mut Vec::new()).is_err());
    }

    #[test]
    fn bgr_is_swapped_and_depth_is_scaled() {
        let mut rgb = Vec::new();
        copy_colour(&[1, 2, 3, 4, 5, 6], 3, 1, 2, ColourLayout::Bgr, &mut rgb).unwrap();
        assert_eq!(rgb, [3, 2, 1, 6, 5, 4]);
        let mut depth = Vec::new();
        copy_depth(&[0x10, 0x27, 0xff, 0xff], 4, 2, 1, false, 0.1, &mut depth).unwrap();
        assert_eq!(depth, [1000, 6554]);
        copy_depth(&[0x10, 0x27, 0xff, 0xff], 4, 2, 1, false, 2.0, &mut depth).unwrap();
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
