//! Records the cameras of a configuration to MCAP, one file a camera.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use takt_lab::LabError;
use takt_link_camera::CameraError;
use takt_link_camera::recording::{Recorder, RecorderOptions};

use super::CellFile;
use super::standing::Standing;
use crate::CellError;

/// Result for one camera.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub camera: String,
    pub path: PathBuf,
    /// Frames written.
    pub frames: u64,
}

struct Track {
    camera: Standing,
    path: PathBuf,
    recorder: Recorder,
}

fn failed(camera: &str) -> impl Fn(CameraError) -> LabError {
    move |source| CellError::Camera { name: camera.to_owned(), source: Box::new(source) }.into()
}

/// Records until `seconds` have passed, `stop` is set or every camera has ended.
///
/// # Errors
/// A camera that cannot be opened or a file that cannot be written. Frames recorded until then
/// stay.
pub fn record(
    file: &CellFile,
    folder: &Path,
    seconds: Option<f64>,
    stop: &AtomicBool,
) -> Result<Vec<Recorded>, LabError> {
    takt_files::make_folder(folder).map_err(LabError::io(folder))?;
    let mut tracks = Vec::new();
    for (index, camera) in file.cameras.iter().enumerate() {
        let camera = Standing::start(index, camera)?;
        let path = folder.join(format!("{}.mcap", camera.name));
        let prefix = format!("/cam{index}");
        let topics = [(prefix.as_str(), camera.feed.intrinsics())];
        let recorder =
            Recorder::create(&path, &topics, RecorderOptions::default()).map_err(failed(&camera.name))?;
        tracks.push(Track { camera, path, recorder });
    }
    let until = seconds.map(|s| Instant::now() + Duration::from_secs_f64(s));
    loop {
        let over = stop.load(Ordering::Acquire) || until.is_some_and(|until| Instant::now() >= until);
        let mut living = 0;
        for track in &mut tracks {
            // Asked first: a frame that came before the end is still taken.
            let ended = track.camera.has_ended();
            let written = track.camera.next().map_or(Ok(()), |frame| track.recorder.write(0, frame));
            written.map_err(failed(&track.camera.name))?;
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
            track.camera.feed.stop();
            let frames = track.recorder.frames();
            track.recorder.finish().map_err(failed(&track.camera.name))?;
            Ok(Recorded { camera: track.camera.name, path: track.path, frames })
        })
        .collect()
}
