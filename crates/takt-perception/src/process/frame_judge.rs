//! Judges frames inside the worker process.

use crate::{Detections, FramePose, FrameView};
use serde::Serialize;

/// A frame in the memory that cell and worker share; nothing is copied.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub view: FrameView<'a>,
    /// Offset of its colour in the camera's [`PixelMemory`], bytes.
    pub rgb_at: usize,
    /// Offset of its depth there, bytes.
    pub depth_at: usize,
}

/// Memory of all frames of a camera, for judges whose device reads them itself.
#[derive(Clone, Copy, Debug)]
pub struct PixelMemory {
    /// Begins at a page.
    pub start: *mut u8,
    /// Whole pages.
    pub bytes: usize,
}

// SAFETY: an address and a length; whoever uses them must know that the memory is there.
unsafe impl Send for PixelMemory {}

/// When a part of the work began and ended, CLOCK_MONOTONIC nanoseconds; `[0, 0]` where there was
/// none.
pub type Span = [u64; 2];

/// Number of parts of a frame's work.
pub const PARTS: usize = 6;

/// The parts of one frame's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StageSpans {
    /// Each part, in the order of [`StageSpans::NAMES`].
    pub spans: [Span; PARTS],
    /// Largest error of these times, nanoseconds: a device's clock is mapped onto CLOCK_MONOTONIC.
    pub error_ns: u64,
}

impl StageSpans {
    /// Names of the parts: copies to the device; geometry, things, the detector's input; the
    /// detector; candidates and their way back; masks; nearest points and their way back.
    pub const NAMES: [&'static str; PARTS] = ["upload", "prepare", "detect", "decode", "masks", "measure"];
}

/// Reason why a frame has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JudgeError {
    /// This frame only; the next one may do.
    #[error("{0}")]
    Frame(String),
    /// It took longer than allowed and was given up; the device may still be at it.
    #[error("{0}")]
    Overrun(String),
    /// The device is lost to this process; only a new process can use it again.
    #[error("{0}")]
    Lost(String),
}

/// One camera's perception inside the worker process.
pub trait FrameJudge: Send {
    /// Reports where all frames will lie: mapped for as long as this process lives. Called once,
    /// before the first frame.
    ///
    /// # Errors
    /// When the device cannot use that memory.
    fn adopt(&mut self, memory: PixelMemory) -> Result<(), JudgeError> {
        let _ = memory;
        Ok(())
    }

    /// Judges a frame. `deadline_ns` (CLOCK_MONOTONIC) is when nobody waits for the answer any
    /// more; an answer after that is discarded. A judge that cannot look at the time ignores it.
    ///
    /// # Errors
    /// [`JudgeError`]; `out` does not count then.
    fn judge(
        &mut self,
        frame: &Seen<'_>,
        pose: Option<&FramePose>,
        start_ns: u64,
        deadline_ns: u64,
        out: &mut Detections,
    ) -> Result<StageSpans, JudgeError>;

    /// Called when the answer is on its way: for what need not delay it.
    fn after(&mut self) {}
}

impl FrameJudge for Box<dyn FrameJudge> {
    fn after(&mut self) {
        (**self).after();
    }

    fn adopt(&mut self, memory: PixelMemory) -> Result<(), JudgeError> {
        (**self).adopt(memory)
    }

    fn judge(
        &mut self,
        frame: &Seen<'_>,
        pose: Option<&FramePose>,
        start_ns: u64,
        deadline_ns: u64,
        out: &mut Detections,
    ) -> Result<StageSpans, JudgeError> {
        (**self).judge(frame, pose, start_ns, deadline_ns, out)
    }
}
