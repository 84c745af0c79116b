//! A vendor's service for a thread that waits for frames: a separate thread receives them and keeps
//! the newest, and the waiting thread copies it. For backends that have no such library.

use std::time::Duration;

use takt_rt::exchange::Reader;

use crate::backend::Surroundings;
use crate::camera::Camera;
use crate::config::CameraConfig;
use crate::error::CameraError;
use crate::feed::{CameraFeed, FeedOptions, FeedState, FeedStatus};
use crate::{Frame, Intrinsics, Unpaired};

/// Period at which a thread that waits in vain checks whether it must end.
const WAIT: Duration = Duration::from_millis(50);

/// A camera behind a frame queue of one place, as librealsense's pipeline has: the newest frame
/// counts.
pub(crate) struct Handover {
    feed: CameraFeed,
    frames: Reader<Frame>,
    taken: u64,
    /// Whether nobody wants frames any more.
    ends: Box<dyn Fn() -> bool + Send>,
}

impl Handover {
    /// Opens the camera and starts the thread that decodes ahead and hands over.
    pub(crate) fn start(
        index: u32,
        config: &CameraConfig,
        pose: Option<Surroundings>,
        options: FeedOptions,
        ends: Box<dyn Fn() -> bool + Send>,
    ) -> Result<Self, CameraError> {
        let (feed, readers) = CameraFeed::start(index, config, pose, 1, options)?;
        let frames = readers.into_iter().next();
        let frames = frames.ok_or(CameraError::Missing("an exchange without a reader"))?;
        Ok(Self { feed, frames, taken: 0, ends })
    }
}

impl Camera for Handover {
    fn intrinsics(&self) -> Intrinsics {
        self.feed.intrinsics()
    }

    fn has_depth(&self) -> bool {
        self.feed.has_depth()
    }

    fn unpaired(&self) -> Option<Unpaired> {
        self.feed.unpaired()
    }

    fn next_frame(&mut self, frame: &mut Frame) -> Result<(), CameraError> {
        let signal = self.feed.signal();
        loop {
            let seen = signal.value();
            // Before the frame: the last one was published before the end was reported.
            let state = self.feed.state();
            let newest = self.frames.read().value;
            if newest.sequence != 0 && newest.sequence != self.taken {
                self.taken = newest.sequence;
                frame.copy_from(newest);
                return Ok(());
            }
            match state {
                FeedState::Ended | FeedState::Stopped => return Err(CameraError::Ended),
                FeedState::Failed => {
                    return Err(match self.feed.status() {
                        FeedStatus::Failed { message, .. } => CameraError::Handover(message),
                        _ => CameraError::Ended,
                    });
                }
                FeedState::Starting | FeedState::Running | FeedState::Retrying if (self.ends)() => {
                    return Err(CameraError::Ended);
                }
                FeedState::Starting | FeedState::Running | FeedState::Retrying => {
                    signal.wait(seen, WAIT);
                }
            }
        }
    }
}
