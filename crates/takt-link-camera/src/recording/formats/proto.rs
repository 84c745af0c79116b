//! Foxglove's messages in protobuf.

use prost::Message;

use super::{Calibration, Front, Layout};
use crate::recording::messages::{CameraCalibration, CompressedImage, RawImage, Timestamp};

/// Messages that are decoded into, so that buffers are used again.
#[derive(Default)]
pub(in super::super) struct Scratch {
    raw: RawImage,
    compressed: CompressedImage,
}

fn merge<M: Message>(message: &mut M, data: &[u8]) -> Result<(), String> {
    // Not `decode`: clearing and merging keeps the buffers.
    message.clear();
    message.merge(data).map_err(|e| format!("not a protobuf message of its type: {e}"))
}

fn stamp(stamp: Option<Timestamp>) -> Result<Option<u64>, String> {
    let ns = |stamp: Timestamp| stamp.to_ns().ok_or_else(|| format!("impossible time stamp {stamp:?}"));
    stamp.map(ns).transpose()
}

impl Scratch {
    /// Decodes the image in `buffer`, which holds its pixels afterwards.
    pub(super) fn image(&mut self, raw: bool, buffer: &mut Vec<u8>) -> Result<Front, String> {
        if raw {
            let image = &mut self.raw;
            merge(image, buffer)?;
            std::mem::swap(buffer, &mut image.data);
            let RawImage { width, height, step, .. } = *image;
            return Ok(Front {
                stamp_ns: stamp(image.timestamp)?,
                frame_id: image.frame_id.clone(),
                encoding: image.encoding.clone(),
                layout: Layout::Rows { width, height, step, big_endian: false },
            });
        }
        let image = &mut self.compressed;
        merge(image, buffer)?;
        std::mem::swap(buffer, &mut image.data);
        Ok(Front {
            stamp_ns: stamp(image.timestamp)?,
            frame_id: image.frame_id.clone(),
            encoding: image.format.clone(),
            layout: Layout::Encoded,
        })
    }
}

pub(super) fn calibration(data: &[u8]) -> Result<Calibration, String> {
    let mut message = CameraCalibration::default();
    merge(&mut message, data)?;
    let CameraCalibration { width, height, k, d, p, .. } = message;
    Ok(Calibration { width, height, k, d, p, ..Calibration::default() })
}
