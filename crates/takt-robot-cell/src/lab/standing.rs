//! A camera alone, without the robot: what recording and learning a background look through.

use std::sync::Arc;

use takt_lab::LabError;
use takt_link_camera::{CameraFeed, FeedOptions, FeedState, Frame, PoseSource};
use takt_rt::exchange::Reader;

use crate::CellError;
use crate::config::CellCamera;

/// A camera that runs, and the number of its last frame that was taken.
pub(super) struct Standing {
    pub name: String,
    pub feed: CameraFeed,
    frames: Reader<Frame>,
    last: u64,
}

impl Standing {
    /// Opens it. Without the robot it stands where its mounting says.
    pub fn start(index: usize, camera: &CellCamera) -> Result<Self, LabError> {
        let mount = camera.mount.isometry();
        let pose: PoseSource = Arc::new(move |_| mount);
        let (feed, readers) =
            CameraFeed::start(index as u32, &camera.source, Some(pose.into()), 1, FeedOptions::default())
                .map_err(|source| {
                    LabError::from(CellError::Camera { name: camera.name.clone(), source: Box::new(source) })
                })?;
        let frames = readers.into_iter().next().ok_or(LabError::Internal("frames"))?;
        Ok(Self { name: camera.name.clone(), feed, frames, last: 0 })
    }

    /// The newest frame, if it was not taken before.
    pub fn next(&mut self) -> Option<&Frame> {
        let frame = self.frames.read().value;
        let fresh = frame.sequence != self.last && frame.sequence != 0;
        self.last = frame.sequence;
        fresh.then_some(frame)
    }

    /// No frame will come any more.
    pub fn has_ended(&self) -> bool {
        matches!(self.feed.state(), FeedState::Ended | FeedState::Failed)
    }
}
