//! Configuration files of the cell (TOML). Unknown keys are errors; every error names file and
//! line.

#![deny(missing_docs)]

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use takt_lab::{ConfigError, Envelope, LabError};
use takt_perception::{ModelSource, PerceptionConfig};

use super::builtin;
use super::losses::CellLosses;
use super::scale::{ScaleRule, Scaled};
use crate::CellConfig;
use crate::config::{CellCamera, RobotConfig};
use crate::error::CellConfigError;
use crate::ssm::SsmConfig;
use crate::tasks::TaskSet;
use crate::view::ViewConfig;

/// The shipped demonstration: five replayed cameras, the simulated robot.
pub const DEMO: &str = include_str!("../../../../robots/demo.toml");

/// A cell of rendered cameras, in which everything is known exactly.
pub const SYNTHETIC: &str = include_str!("../../../../robots/synthetic.toml");

/// A cell of five RealSense cameras, to put one's own numbers into.
pub const LIVE: &str = include_str!("../../../../robots/live.toml");

/// The paper's own configuration, replayed.
pub const SENTRYRT1: &str = include_str!("../../../../robots/sentryrt1.toml");

/// Keys of earlier versions: words of the error that names them, and the text to write instead.
const GONE: [(&[&str], &str); 2] = [
    (
        &["unknown field `process`", "`device`"],
        "perception runs in the cell's threads (perception.device = \"cpu\") or in the GPU's worker process (\"cuda\", \"tensorrt\", \
         \"auto\"): omit perception.process",
    ),
    (
        &["unknown variant `v4l2`"],
        "a camera without depth can never let the robot move: use a depth camera (backend = \"realsense\"), or a recording \
         (\"replay\")",
    ),
];

/// Camera mode of the paper's Table II.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CameraMode {
    /// Recorded or rendered pictures.
    Virtual,
    /// Cameras on a cable.
    Physical,
}

impl CameraMode {
    /// The word of configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Physical => "physical",
        }
    }
}

/// The keys read from a file of cameras; its other keys are that cell's.
#[derive(Deserialize)]
struct CamerasOf {
    cameras: Vec<CellCamera>,
}

/// A configuration file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellFile {
    /// Name and claims.
    #[serde(flatten, skip_deserializing)]
    pub envelope: Envelope,
    /// Kind of the cameras, so that nobody confuses them (SentryRT-1, Table II): a run whose
    /// cameras are of another kind does not start. Absent: nothing is said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub camera_mode: Option<CameraMode>,
    /// A file with `[[cameras]]` of one's own, such as a live cell's: what `camera_mode =
    /// "physical"` takes in place of the configured ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical_cameras: Option<PathBuf>,
    /// The cameras.
    pub cameras: Vec<CellCamera>,
    /// Perception.
    #[serde(default)]
    pub perception: PerceptionConfig,
    /// The monitor.
    #[serde(default)]
    pub ssm: SsmConfig,
    /// The task set.
    #[serde(default)]
    pub tasks: TaskSet,
    /// The robot.
    #[serde(default)]
    pub robot: RobotConfig,
    /// The web view.
    #[serde(default)]
    pub view: ViewConfig,
    /// Limits of losses between the cell and its cameras and controller.
    #[serde(default)]
    pub losses: CellLosses,
    /// The rule by which less is run where a machine cannot carry this configuration. Absent:
    /// everything is run, and what a machine cannot carry is late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScaleRule>,
    /// Decision of that rule, written by benches, campaigns and runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled: Option<Scaled>,
}

impl CellFile {
    /// Reads a file. Paths within it are relative to its folder.
    ///
    /// # Errors
    /// [`LabError::Files`]; [`LabError::File`] or [`LabError::Config`], which name file, line and
    /// what is accepted.
    pub fn load(path: &Path) -> Result<Self, LabError> {
        let text = takt_files::read_configuration(path).map_err(LabError::io(path))?;
        Self::parse(&text, &path.display().to_string(), path.parent().unwrap_or(Path::new("")))
    }

    /// The shipped demonstration.
    ///
    /// # Errors
    /// [`LabError::Files`] when the recording cannot be unpacked.
    pub fn demo() -> Result<Self, LabError> {
        Self::parse(DEMO, "demo.toml (built in)", Path::new(""))
    }

    /// The paper's own configuration, replayed; [`super::scale::settle`] fits it to the machine.
    ///
    /// # Errors
    /// [`LabError::Files`] when the recording cannot be unpacked.
    pub fn sentryrt1() -> Result<Self, LabError> {
        Self::parse(SENTRYRT1, "sentryrt1.toml (built in)", Path::new(""))
    }

    /// Reads a text. `name` stands for it in errors; `folder` is what its paths are relative to.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(text: &str, name: &str, folder: &Path) -> Result<Self, LabError> {
        let mut file: Self = takt_lab::read_table(text).map_err(|error| {
            let error_text = error.to_string();
            let gone = GONE.iter().find(|(words, _)| words.iter().all(|words| error_text.contains(words)));
            match gone {
                Some((_, hint)) => {
                    let error_text = takt_files::shortened(&format!("{name}: {}", error_text.trim_end()));
                    LabError::Config(format!("{error_text}\n{hint}"))
                }
                None => LabError::file(name)(error),
            }
        })?;
        file.take_physical_cameras(folder)?;
        for camera in &mut file.cameras {
            if let Some(background) = &mut camera.sensor.background {
                *background = folder.join(&*background);
            }
            if let Some(path) = camera.source.path_mut() {
                *path = match path.to_str().and_then(|path| path.strip_prefix(builtin::PREFIX)) {
                    Some(shipped) => builtin::unpack(shipped)?,
                    None => folder.join(&*path),
                };
            }
        }
        let PerceptionConfig { detector, segmenter, .. } = &mut file.perception;
        for model in [&mut detector.model, &mut segmenter.model] {
            // A model beside the file is meant; one relative to the working folder was meant
            // before.
            if let ModelSource::File(path) = model
                && let beside = folder.join(&*path)
                && (beside.exists() || !path.exists())
            {
                *path = beside;
            }
        }
        file.validate().map_err(ConfigError::robot).map_err(LabError::file(name))?;
        Ok(file)
    }

    /// Takes the cameras of `physical_cameras` where `camera_mode` asks for them: as many as are
    /// left where the machine cannot carry all, and at that rate.
    fn take_physical_cameras(&mut self, folder: &Path) -> Result<(), LabError> {
        let Some(path) = &mut self.physical_cameras else { return Ok(()) };
        *path = folder.join(&*path);
        if self.camera_mode != Some(CameraMode::Physical) {
            return Ok(());
        }
        let text = takt_files::read_configuration(path).map_err(LabError::io(&*path))?;
        let CamerasOf { cameras } = toml::from_str(&text).map_err(|error| {
            let error = format!("{}: {}", path.display(), error.to_string().trim_end());
            LabError::Config(takt_files::shortened(&error))
        })?;
        self.cameras = cameras;
        // They are part of this configuration now.
        self.physical_cameras = None;
        if let Some(scaled) = self.scaled.clone() {
            super::scale::apply_cameras(self, &scaled);
        }
        Ok(())
    }

    /// Refuses cameras that are of another kind than `camera_mode` says.
    ///
    /// # Errors
    /// [`LabError::Config`] names the camera and what to do.
    pub fn check_camera_mode(&self) -> Result<(), LabError> {
        let Some(mode) = self.camera_mode else { return Ok(()) };
        let is_physical = |camera: &&CellCamera| camera.source.device().is_some();
        let other = self.cameras.iter().find(|camera| is_physical(camera) != (mode == CameraMode::Physical));
        let Some(camera) = other else { return Ok(()) };
        let (is, fix) = match mode {
            CameraMode::Physical => (
                "recorded or rendered",
                "name a file with your cameras, such as robots/live.toml with your serial numbers: physical_cameras = \
                 \"FILE\" (`takt campaign run … --set physical_cameras=FILE`)",
            ),
            CameraMode::Virtual => ("on a cable", "set camera_mode = \"physical\", or omit the key"),
        };
        Err(LabError::Config(format!(
            "camera_mode = \"{}\": camera \"{}\" is {is}; {fix}",
            mode.name(),
            camera.name
        )))
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// [`CellConfigError`] names the key, its value and what is accepted.
    pub fn validate(&self) -> Result<(), CellConfigError> {
        self.cell().validate()?;
        self.scale.as_ref().map_or(Ok(()), ScaleRule::validate)?;
        self.scaled.as_ref().map_or(Ok(()), |scaled| scaled.validate(self.cameras.len()))?;
        self.losses.validate()?;
        self.view.check().map_err(CellConfigError::View)
    }

    /// The cell's own configuration.
    pub fn cell(&self) -> CellConfig {
        CellConfig {
            name: self.envelope.name.clone(),
            cameras: self.cameras.clone(),
            perception: self.perception.clone(),
            ssm: self.ssm.clone(),
            tasks: self.tasks.clone(),
            robot: self.robot.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        CellFile::parse(text, "cell.toml", Path::new("")).expect_err("refused").to_string()
    }

    #[test]
    fn the_demonstration_parses() {
        let file = CellFile::demo().unwrap();
        assert_eq!(file.cameras.len(), 5);
    }

    #[test]
    fn errors_name_file_line_and_accepted_values() {
        let demo = DEMO.replace("[ssm]", "[ssm]\nstop_bellow_m = 1");
        let line = demo.lines().position(|l| l.starts_with("stop_bellow_m")).unwrap() + 1;
        let message = error(&demo);
        assert!(message.starts_with("cell.toml: "), "{message}");
        assert!(message.contains(&format!("line {line}")), "{message}");
        assert!(message.contains("stop_bellow_m") && message.contains("stop_below_m"), "{message}");

        let message = error(&DEMO.replace("policy = \"DL+RR\"", "policy = \"FIFO\""));
        assert!(message.contains("FIFO") && message.contains("CFS+CFS"), "{message}");

        let message = error(&DEMO.replace("rate_fps = 30.0", "rate = 30.0"));
        assert!(message.contains("rate_fps") && message.contains("line "), "{message}");
    }

    #[test]
    fn what_is_no_longer_there_is_refused_with_what_to_write_instead() {
        let message = error(&format!("{DEMO}\n[perception]\nprocess = true"));
        assert!(message.contains("process") && message.contains("omit perception.process"), "{message}");
        let message = error(&DEMO.replacen("backend = \"replay\"", "backend = \"v4l2\"", 1));
        assert!(message.contains("line ") && message.contains("backend = \"realsense\""), "{message}");
    }

    #[test]
    fn impossible_values_are_refused() {
        assert!(error(&DEMO.replace("stop_below_m = ", "stop_below_m = 10")).contains("stop_below_m"));
        assert!(error("name = \"x\"\ncameras = []").contains("accepted are 1 to 8"));
        assert!(error("name = 3").contains("line 1"));
    }

    proptest::proptest! {
        #[test]
        fn garbage_is_an_error_and_never_a_panic(text in "\\PC{0,200}", cut in 0usize..4000) {
            let _ = CellFile::parse(&text, "x", Path::new(""));
            let end = (0..=cut.min(DEMO.len())).rev().find(|&i| DEMO.is_char_boundary(i)).unwrap_or(0);
            let _ = CellFile::parse(&DEMO[..end], "x", Path::new(""));
        }
    }
}
