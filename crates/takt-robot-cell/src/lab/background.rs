//! `takt background`: which parts of the pictures of standing cameras never have depth, learned
//! while nobody is there.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use takt_lab::LabError;
use takt_link_camera::FeedState;
use takt_perception::{BackgroundError, BackgroundLearner, FramePose, FrameView, MountFrame};

use super::CellFile;
use super::standing::Standing;

/// Reason why a camera learned nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotLearned {
    /// It does not stand still.
    #[error("it is mounted on the robot: only a camera with mount.frame = \"base\" has a background")]
    OnRobot,
    /// It delivered no more.
    #[error("the camera failed while learning its background")]
    Failed,
    /// The error in its pictures.
    #[error(transparent)]
    Background(#[from] BackgroundError),
}

/// Result for one camera.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    pub camera: String,
    /// Its file and the share of its samples that never have depth, 0..1; else why there is none.
    pub outcome: Result<(PathBuf, f32), NotLearned>,
}

struct Learning {
    camera: Standing,
    pose: FramePose,
    /// Learning, or why it has ended.
    learner: Result<BackgroundLearner, NotLearned>,
}

/// Looks for `seconds` at the pictures of all cameras that stand still, and writes `NAME.toml` for
/// each into `folder`; a file that is there is replaced. When `stop` is set before, nothing is
/// written.
///
/// Pixels without depth during learning are expected to have none from then on: nobody may be in
/// the pictures, not even standing still.
///
/// Nothing is asked of the robot: it must stand outside of the pictures, or where it always has
/// depth, because the place that it hides is learned as it looks.
///
/// # Errors
/// A camera that cannot be opened or a file that cannot be written. A camera that learned nothing
/// says so in its [`Learned`].
pub fn learn(
    file: &CellFile,
    folder: &Path,
    seconds: f64,
    stop: &AtomicBool,
) -> Result<Vec<Learned>, LabError> {
    let target = takt_files::Folder::output(folder).map_err(LabError::io(folder))?;
    let config = file.cell().perception_in_force();
    let mut outcomes = Vec::new();
    let mut cameras = Vec::new();
    for (index, camera) in file.cameras.iter().enumerate() {
        if camera.mount.frame != MountFrame::Base {
            outcomes.push(Learned { camera: camera.name.clone(), outcome: Err(NotLearned::OnRobot) });
            continue;
        }
        let pose = FramePose::new(camera.mount.isometry(), nalgebra::Isometry3::identity());
        let camera = Standing::start(index, camera)?;
        let learner = BackgroundLearner::new(&config, index as u32, &camera.feed.intrinsics())
            .map_err(LabError::robot)?;
        cameras.push(Learning { camera, pose, learner: Ok(learner) });
    }
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while !stop.load(Ordering::Acquire) && Instant::now() < until {
        let mut living = 0;
        for learning in &mut cameras {
            let ended = learning.camera.has_ended();
            learning.look();
            living += usize::from(!ended && learning.learner.is_ok());
        }
        if living == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    // Learning may have been aborted because somebody walked in.
    if stop.load(Ordering::Acquire) {
        return Err(LabError::Config(
            "learning was aborted: nothing was written, and existing files are unchanged".to_owned(),
        ));
    }
    for Learning { mut camera, mut learner, .. } in cameras {
        let failed = camera.feed.state() == FeedState::Failed;
        camera.feed.stop();
        if failed {
            learner = Err(NotLearned::Failed);
        }
        let outcome = match learner.and_then(|learner| Ok(learner.finish()?)) {
            Ok(background) => {
                let name = format!("{}.toml", camera.name);
                let path = folder.join(&name);
                let text = background.to_text()?;
                target.write(name, text).map_err(LabError::io(&path))?;
                Ok((path, background.share()))
            }
            Err(why) => Err(why),
        };
        outcomes.push(Learned { camera: camera.name, outcome });
    }
    Ok(outcomes)
}

impl Learning {
    fn look(&mut self) {
        if let (Some(frame), Ok(learner)) = (self.camera.next(), &mut self.learner)
            && let Err(why) = learner.add(&FrameView::from(frame), &self.pose)
        {
            self.learner = Err(why.into());
        }
    }
}
