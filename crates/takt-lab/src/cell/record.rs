//! Records the cameras of a configuration to MCAP, one file a camera.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use takt_link_camera::recording::{Recorder, RecorderOptions};
use takt_link_camera::{CameraError, CameraFeed, FeedOptions, FeedState, Frame};
use takt_robot_cell::CellError;
use takt_rt::exchange::Reader;

use super::CellFile;
use crate::LabError;

/// What became of one camera.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Name of the camera.
    pub camera: String,
    /// The file.
    pub path: PathBuf,
    /// Frames written.
    pub frames: u64,
}

struct Track {
    name: String,
    path: PathBuf,
    feed: CameraFeed,
    frames: Reader<Frame>,
    last: u64,
    recorder: Recorder,
}

/// Records until `seconds` have passed, `stop` is set or every camera has ended.
///
/// # Errors
/// A camera that cannot be opened or a file that cannot be written. What was recorded until then stays.
pub fn record(
    file: &CellFile,
    folder: &Path,
    seconds: Option<f64>,
    stop: &AtomicBool,
) -> Result<Vec<Recorded>, LabError> {
    fs::create_dir_all(folder).map_err(LabError::io(folder))?;
    let mut tracks = Vec::new();
    for (index, camera) in file.cameras.iter().enumerate() {
        let failed =
            |source: CameraError| LabError::Cell(CellError::Camera { name: camera.name.clone(), source });
        let mount = camera.mount.isometry();
        // Without the robot the camera stands where its mounting says.
        let pose: takt_link_camera::PoseSource = std::sync::Arc::new(move |_| mount);
        let (feed, readers) =
            CameraFeed::start(index as u32, &camera.source, Some(pose.into()), 1, FeedOptions::default())
                .map_err(failed)?;
        let path = folder.join(format!("{}.mcap", camera.name));
        let prefix = format!("/cam{index}");
        let recorder = Recorder::create(&path, &[(&prefix, feed.intrinsics())], RecorderOptions::default())
            .map_err(failed)?;
        let frames = readers.into_iter().next().ok_or_else(|| LabError::internal("frames"))?;
        tracks.push(Track { name: camera.name.clone(), path, feed, frames, last: 0, recorder });
    }
    let until = seconds.map(|s| Instant::now() + Duration::from_secs_f64(s));
    loop {
        let over = stop.load(Ordering::Acquire) || until.is_some_and(|until| Instant::now() >= until);
        let mut living = 0;
        for track in &mut tracks {
            let ended = matches!(track.feed.state(), FeedState::Ended | FeedState::Failed);
            let frame = track.frames.read().value;
            if frame.sequence != track.last && frame.sequence != 0 {
                track.last = frame.sequence;
                track.recorder.write(0, frame).map_err(|source| {
                    LabError::Cell(CellError::Camera { name: track.name.clone(), source })
                })?;
            }
            living += usize::from(!ended);
        }
        if over || living == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    tracks
        .into_iter()
        .map(|mut track| {
            track.feed.stop();
            let frames = track.recorder.frames();
            track
                .recorder
                .finish()
                .map_err(|source| LabError::Cell(CellError::Camera { name: track.name.clone(), source }))?;
            Ok(Recorded { camera: track.name, path: track.path, frames })
        })
        .collect()
}
