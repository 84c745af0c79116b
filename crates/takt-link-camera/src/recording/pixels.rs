//! From the images of a recording to those of a frame.
//!
//! Depth becomes millimetres: 16UC1 and mono16 are (REP 118), 32FC1 is in metres with NaN and
//! infinity for no depth, and `compressedDepth` (compressed_depth_image_transport) is either, as
//! PNG or RVL behind a header of 12 bytes.

use takt_files::quoted;

use super::formats::{Layout, Picture};
use crate::image::{self, ColourLayout, ImageError, millimetres};

/// Reason why a message's image cannot become that of a frame.
#[derive(Debug)]
pub(super) enum PixelError {
    Image(ImageError),
    Format(String),
}

impl From<ImageError> for PixelError {
    fn from(error: ImageError) -> Self {
        Self::Image(error)
    }
}

const PNG_MAGIC: &[u8] = b"\x89PNG";
const JPEG_MAGIC: &[u8] = b"\xff\xd8\xff";

/// Decodes a colour image of exactly the size.
pub(super) fn colour(
    picture: &Picture,
    [width, height]: [u32; 2],
    rgb: &mut Vec<u8>,
) -> Result<(), PixelError> {
    let data = picture.data();
    let encoding = picture.encoding.as_str();
    match picture.layout {
        Layout::Rows { width: found_width, height: found_height, step, .. } => {
            let layout = match encoding {
                "rgb8" => ColourLayout::Rgb,
                "bgr8" => ColourLayout::Bgr,
                "rgba8" => ColourLayout::Rgba,
                "bgra8" => ColourLayout::Bgra,
                "mono8" | "8UC1" => ColourLayout::Grey,
                other => return Err(encoding_error(other, "rgb8, bgr8, rgba8, bgra8 or mono8")),
            };
            same_size([found_width, found_height], [width, height])?;
            let stride = stride(step, width, layout.bytes(), height, data)?;
            image::copy_colour(data, stride, width, height, layout, rgb)?;
        }
        // By what it is: ROS 2's `format` is a list ("rgb8; jpeg compressed bgr8") that drivers
        // fill in by habit.
        Layout::Encoded if data.starts_with(JPEG_MAGIC) => image::decode_jpeg(data, width, height, rgb)?,
        Layout::Encoded if data.starts_with(PNG_MAGIC) => {
            image::decode_png_colour(data, width, height, rgb)?;
        }
        Layout::Encoded => return Err(format_error(picture, "a JPEG or PNG image")),
    }
    Ok(())
}

/// Decodes a depth image of exactly the size.
pub(super) fn depth(
    picture: &Picture,
    [width, height]: [u32; 2],
    depth_mm: &mut Vec<u16>,
) -> Result<(), PixelError> {
    let data = picture.data();
    match picture.layout {
        Layout::Rows { width: found_width, height: found_height, step, big_endian } => {
            let bytes = match picture.encoding.as_str() {
                "16UC1" | "mono16" => 2,
                "32FC1" => 4,
                other => return Err(encoding_error(other, "16UC1, mono16 or 32FC1")),
            };
            same_size([found_width, found_height], [width, height])?;
            let stride = stride(step, width, bytes, height, data)?;
            match bytes {
                2 => image::copy_depth(data, stride, width, height, big_endian, 1.0, depth_mm)?,
                _ => image::copy_depth_metres(data, stride, width, height, big_endian, depth_mm)?,
            }
        }
        Layout::Encoded if picture.encoding.contains("compressedDepth") => {
            compressed_depth(picture, [width, height], depth_mm)?;
        }
        Layout::Encoded if data.starts_with(PNG_MAGIC) => {
            image::decode_png_16(data, width, height, depth_mm)?;
        }
        Layout::Encoded => return Err(format_error(picture, "compressedDepth or a PNG image of 16 bits")),
    }
    Ok(())
}

/// Bytes between the beginnings of two rows. If a writer gave a row that is too short, the rows
/// must follow each other, because their places are otherwise unknown.
fn stride(step: u32, width: u32, bytes: usize, height: u32, data: &[u8]) -> Result<usize, PixelError> {
    let (step, row) = (step as usize, width as usize * bytes);
    if step >= row || step == 0 || data.len() == row * height as usize {
        return Ok(step.max(row));
    }
    Err(PixelError::Format(format!("step = {step} bytes, but a row of {width} pixels has {row}")))
}

/// Header of compressed depth before the pixels: the kind of quantisation, and two parameters of
/// it.
const DEPTH_HEADER_BYTES: usize = 12;

/// Depth of `compressed_depth_image_transport`: 16UC1 as it is, 32FC1 as quantised inverse depth.
fn compressed_depth(picture: &Picture, size: [u32; 2], depth_mm: &mut Vec<u16>) -> Result<(), PixelError> {
    let Some((header, data)) = picture.data().split_first_chunk::<DEPTH_HEADER_BYTES>() else {
        return Err(PixelError::Format(format!(
            "{} bytes of compressedDepth, expected a header of {DEPTH_HEADER_BYTES}",
            picture.data().len()
        )));
    };
    let (kind, packing) = picture.encoding.split_once(';').unwrap_or((&picture.encoding, ""));
    let quantised = match kind.trim() {
        "16UC1" | "mono16" => false,
        "32FC1" => true,
        _ => return Err(format_error(picture, "16UC1 or 32FC1 before compressedDepth")),
    };
    match packing.trim().trim_start_matches("compressedDepth").trim() {
        "" | "png" if data.starts_with(PNG_MAGIC) => {
            image::decode_png_16(data, size[0], size[1], depth_mm)?;
        }
        "rvl" => rvl(data, size, depth_mm)?,
        _ => return Err(format_error(picture, "compressedDepth png or rvl")),
    }
    if quantised {
        let parameter = |from: usize| {
            f32::from_le_bytes([header[from], header[from + 1], header[from + 2], header[from + 3]])
        };
        let (a, b) = (parameter(4), parameter(8));
        if !(a.is_finite() && b.is_finite() && a > 0.0) {
            return Err(PixelError::Format(format!(
                "quantisation parameters {a} and {b}, expected finite ones, the first above 0"
            )));
        }
        // 0 stands for no depth.
        for value in depth_mm.iter_mut().filter(|value| **value != 0) {
            *value = millimetres(a / (f32::from(*value) - b) * 1000.0);
        }
    }
    Ok(())
}

/// RVL (A. D. Wilson, "Fast Lossless Depth Image Compression", 2017): runs of zeros and of
/// differences, in groups of three bits, the first of a word at its top.
fn rvl(data: &[u8], [width, height]: [u32; 2], depth_mm: &mut Vec<u16>) -> Result<(), PixelError> {
    let ends = || PixelError::Format("RVL data ends before the image does".into());
    let word = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
    let (found_width, rest) = data.split_first_chunk().ok_or_else(ends)?;
    let (found_height, rest) = rest.split_first_chunk().ok_or_else(ends)?;
    same_size([word(found_width), word(found_height)], [width, height])?;
    let mut nibbles = rest.chunks_exact(4).flat_map(|bytes| {
        let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        (0..8).map(move |place| (word >> (28 - 4 * place)) & 0xf)
    });
    let mut number = || -> Result<u32, PixelError> {
        let mut value = 0u32;
        for shift in (0..).step_by(3) {
            let nibble = nibbles.next().ok_or_else(ends)?;
            value |= (nibble & 7).checked_shl(shift).unwrap_or(0);
            if nibble & 8 == 0 || shift > 30 {
                break;
            }
        }
        Ok(value)
    };
    let pixels = width as usize * height as usize;
    depth_mm.clear();
    let mut last = 0u16;
    while depth_mm.len() < pixels {
        let left = |depth_mm: &Vec<u16>| pixels - depth_mm.len();
        let zeros = number()? as usize;
        if zeros > left(depth_mm) {
            return Err(PixelError::Format("RVL data extends beyond the image".into()));
        }
        depth_mm.resize(depth_mm.len() + zeros, 0);
        let values = number()? as usize;
        if values > left(depth_mm) || zeros + values == 0 {
            return Err(PixelError::Format("RVL data extends beyond the image or does not advance".into()));
        }
        for _ in 0..values {
            let folded = number()?;
            let difference = (folded >> 1) as i32 ^ -((folded & 1) as i32);
            last = last.wrapping_add(difference as u16);
            depth_mm.push(last);
        }
    }
    Ok(())
}

fn same_size(found: [u32; 2], expected: [u32; 2]) -> Result<(), ImageError> {
    if found == expected {
        return Ok(());
    }
    let ([width, height], [found_width, found_height]) = (expected, found);
    Err(ImageError::Size { width, height, found_width, found_height })
}

fn encoding_error(found: &str, expected: &str) -> PixelError {
    let advice = match found {
        bayer if bayer.starts_with("bayer_") => "; record the debayered topic (image_proc)",
        yuv if yuv.starts_with("yuv") || yuv.starts_with("nv") => {
            "; set the camera driver to rgb8, or convert the recording"
        }
        _ => "",
    };
    PixelError::Format(format!("encoding is `{}`, expected {expected}{advice}", quoted(found)))
}

fn format_error(picture: &Picture, expected: &str) -> PixelError {
    let shown: Vec<u8> = picture.data().iter().take(8).copied().collect();
    PixelError::Format(format!(
        "format is `{}` and the data begins with {shown:02x?}, expected {expected}",
        quoted(&picture.encoding)
    ))
}
