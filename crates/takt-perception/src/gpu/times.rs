//! Work of the device for a frame, and its time, on the device's own clock.

use serde::Serialize;
use takt_gpu::{Clock, GpuError, Span, SpanRecorder};

use super::rig::{CameraMarks, Marks};

/// Times of one frame on the device, nanoseconds, by its events. Waiting of the host between the
/// parts is not in them, waiting of the stream for other streams is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceTimes {
    /// Copies of frame and pose.
    pub upload_ns: u64,
    /// Geometry, blobs, and the detector's input.
    pub prepare_ns: u64,
    /// The detector.
    pub detect_ns: u64,
    /// Candidates, and copies back.
    pub decode_ns: u64,
    /// Masks: crops, the segmenter, coverage.
    pub masks_ns: u64,
    /// Claims, pieces, distances, and the copy back.
    pub measure_ns: u64,
}

impl DeviceTimes {
    /// All of it.
    pub fn total_ns(&self) -> u64 {
        self.upload_ns + self.prepare_ns + self.detect_ns + self.decode_ns + self.masks_ns + self.measure_ns
    }

    pub(super) fn add_look(&mut self, marks: &Marks) -> Result<(), GpuError> {
        self.upload_ns = between(&marks.start, &marks.uploaded)?;
        self.prepare_ns = between(&marks.uploaded, &marks.prepared)?;
        self.detect_ns = between(&marks.prepared, &marks.detected)?;
        self.decode_ns = between(&marks.detected, &marks.looked)?;
        Ok(())
    }

    pub(super) fn add_masks(&mut self, marks: &CameraMarks) -> Result<(), GpuError> {
        self.masks_ns = between(&marks.masks_start, &marks.masks_done)?;
        Ok(())
    }

    pub(super) fn add_measure(&mut self, marks: &CameraMarks) -> Result<(), GpuError> {
        self.measure_ns = between(&marks.measure_start, &marks.measured)?;
        Ok(())
    }
}

/// Parts of a frame that the device did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    pub(super) looked: bool,
    pub(super) masked: bool,
    pub(super) measured: bool,
}

/// Records what the device did for a frame, on CLOCK_MONOTONIC.
pub(super) fn record(
    (marks, own): (&Marks, &CameraMarks),
    parts: Parts,
    clock: &Clock,
    (camera, frame): (u16, u64),
    recorder: &mut SpanRecorder,
) -> Result<(), GpuError> {
    let Marks { start, uploaded, prepared, detected, looked } = marks;
    let CameraMarks { masks_start, masks_done, measure_start, measured } = own;
    for (name, done, from, to) in [
        ("upload", parts.looked, start, uploaded),
        ("geometry", parts.looked, uploaded, prepared),
        ("detector", parts.looked, prepared, detected),
        ("decode", parts.looked, detected, looked),
        ("masks", parts.masked, masks_start, masks_done),
        ("distances", parts.measured, measure_start, measured),
    ] {
        if done {
            let span = Span::between(name, "perception", clock.stamp(from)?, clock.stamp(to)?);
            recorder.push(span.of_camera(camera, frame));
        }
    }
    Ok(())
}

fn between(from: &takt_gpu::Event, to: &takt_gpu::Event) -> Result<u64, GpuError> {
    Ok(u64::try_from(to.since(from)?).unwrap_or(0))
}
