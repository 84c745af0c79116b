//! ROS 2's messages (`sensor_msgs`, `foxglove_msgs`) in CDR. Their fields are those of the `.msg`
//! files, in that order.

use std::io::Read;

use super::cdr::Cdr;
use super::{Calibration, Front, Kind, Layout};
use crate::recording::limits::MAX_MESSAGE_BYTES;

/// Begin of a Zstandard frame. A CDR message never does: its first byte is 0.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The message itself, where rosbag2 compressed each one (`--compression-mode message`); the file
/// says that nowhere.
pub(super) fn decompressed(cdr: bool, data: Vec<u8>) -> Result<Vec<u8>, String> {
    if !cdr || !data.starts_with(&ZSTD_MAGIC) {
        return Ok(data);
    }
    let wrong = |e: std::io::Error| format!("a message compressed with zstd cannot be decompressed: {e}");
    let mut message = Vec::new();
    let decoder = zstd::Decoder::with_buffer(data.as_slice()).map_err(wrong)?;
    decoder.take(MAX_MESSAGE_BYTES + 1).read_to_end(&mut message).map_err(wrong)?;
    if message.len() as u64 > MAX_MESSAGE_BYTES {
        return Err(format!(
            "a compressed message contains more than the limit of {MAX_MESSAGE_BYTES} bytes"
        ));
    }
    Ok(message)
}

/// `builtin_interfaces/Time` in nanoseconds.
fn time(cdr: &mut Cdr<'_>) -> Result<u64, String> {
    let (sec, nanosec) = (cdr.u32()? as i32, cdr.u32()?);
    let impossible = || format!("impossible time stamp {sec} s {nanosec} ns");
    let sec = u64::try_from(sec).map_err(|_| impossible())?;
    Ok(sec * 1_000_000_000 + u64::from(nanosec))
}

/// Reads an image; its pixels lie in the message between the two places.
pub(super) fn image(kind: Kind, message: &[u8]) -> Result<(Front, usize, usize), String> {
    let mut fields = Cdr::new(message)?;
    let cdr = &mut fields;
    let read = |cdr: &mut Cdr<'_>| -> Result<(Front, std::ops::Range<usize>), String> {
        let stamp_ns = Some(time(cdr)?);
        let frame_id = cdr.string()?.to_owned();
        let front = |encoding: &str, layout, frame_id| Front {
            stamp_ns,
            frame_id,
            encoding: encoding.to_owned(),
            layout,
        };
        Ok(match kind {
            Kind::RosImage => {
                let (height, width) = (cdr.u32()?, cdr.u32()?);
                let encoding = cdr.string()?;
                let (big_endian, step) = (cdr.u8()? != 0, cdr.u32()?);
                let layout = Layout::Rows { width, height, step, big_endian };
                (front(encoding, layout, frame_id), cdr.byte_sequence()?)
            }
            Kind::FoxgloveRaw => {
                let (width, height) = (cdr.u32()?, cdr.u32()?);
                let encoding = cdr.string()?;
                let layout = Layout::Rows { width, height, step: cdr.u32()?, big_endian: false };
                (front(encoding, layout, frame_id), cdr.byte_sequence()?)
            }
            Kind::FoxgloveCompressed => {
                let data = cdr.byte_sequence()?;
                (front(cdr.string()?, Layout::Encoded, frame_id), data)
            }
            _ => (front(cdr.string()?, Layout::Encoded, frame_id), cdr.byte_sequence()?),
        })
    };
    let (front, pixels) = read(cdr).map_err(|e| format!("not a CDR message of its type: {e}"))?;
    Ok((front, pixels.start, pixels.end))
}

/// Reads a calibration.
pub(super) fn calibration(kind: Kind, message: &[u8]) -> Result<Calibration, String> {
    let read = || -> Result<Calibration, String> {
        let mut cdr = Cdr::new(message)?;
        time(&mut cdr)?;
        cdr.string()?;
        if kind == Kind::FoxgloveCalibration {
            let (width, height) = (cdr.u32()?, cdr.u32()?);
            cdr.string()?;
            let d = cdr.f64_sequence()?;
            let k = cdr.f64s(9)?;
            cdr.f64s(9)?;
            return Ok(Calibration { width, height, d, k, p: cdr.f64s(12)?, ..Calibration::default() });
        }
        let (height, width) = (cdr.u32()?, cdr.u32()?);
        cdr.string()?;
        let d = cdr.f64_sequence()?;
        let k = cdr.f64s(9)?;
        cdr.f64s(9)?;
        let p = cdr.f64s(12)?;
        let binning = [cdr.u32()?, cdr.u32()?];
        let [left, top, rows, columns] = [cdr.u32()?, cdr.u32()?, cdr.u32()?, cdr.u32()?];
        // A region without size is the whole image.
        let region = if rows == 0 || columns == 0 { [0; 4] } else { [left, top, columns, rows] };
        Ok(Calibration { width, height, d, k, p, binning, region })
    };
    read().map_err(|e| format!("not a CDR message of its type: {e}"))
}
