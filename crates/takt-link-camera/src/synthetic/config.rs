//! What a configuration file says about the synthetic scene.

use serde::{Deserialize, Serialize};

use super::SyntheticCamera;
use super::block::Block;
use super::flaws::Flaws;
use super::solid::Solid;
use super::texture::LOOKS;
use crate::Intrinsics;
use crate::backend::{CameraBackend, CameraSample, Surroundings};
use crate::camera::Camera;
use crate::error::CameraError;

/// A camera that renders a scene.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyntheticConfig {
    /// Intrinsics of the rendered images. The default is a RealSense D435's colour sensor at
    /// 424x240.
    #[serde(default = "default_intrinsics")]
    pub intrinsics: Intrinsics,
    /// Frames per second.
    #[serde(default = "default_rate_fps")]
    pub rate_fps: f64,
    /// The image shows the scene this long before the frame arrives, milliseconds: exposure and
    /// transfer of a real camera. Rendering happens in this time.
    #[serde(default = "default_latency_ms")]
    pub latency_ms: f64,
    /// Depths nearer than this are "no measurement", metres. A D435 measures from 0.105 at 424x240.
    #[serde(default)]
    pub min_depth_m: f64,
    /// Depths farther than this are "no measurement", metres; at most 65.
    #[serde(default = "default_max_depth_m")]
    pub max_depth_m: f64,
    /// Standard deviation of the depth at one metre, metres. It grows with the square of the depth,
    /// as that of stereo cameras does. 0: exact depth, rounded to millimetres, and exact colour;
    /// else half of the pixels have one grey level more or less of green. Pictures without any
    /// noise look frozen while nothing moves.
    #[serde(default)]
    pub depth_noise_m: f64,
    /// Seed of the noise. The same seed gives the same frames.
    #[serde(default)]
    pub seed: u64,
    /// What the depth sensor does not measure, and what happens before its lens. None.
    #[serde(default)]
    pub flaws: Flaws,
    /// What there is to see. Give cameras of one cell the same scene.
    #[serde(default)]
    pub scene: SceneConfig,
}

impl Default for SyntheticConfig {
    fn default() -> Self {
        Self {
            intrinsics: default_intrinsics(),
            rate_fps: default_rate_fps(),
            latency_ms: default_latency_ms(),
            min_depth_m: 0.0,
            max_depth_m: default_max_depth_m(),
            depth_noise_m: 0.0,
            seed: 0,
            flaws: Flaws::default(),
            scene: SceneConfig::default(),
        }
    }
}

fn default_intrinsics() -> Intrinsics {
    Intrinsics { width: 424, height: 240, fx: 308.0, fy: 308.0, cx: 211.5, cy: 119.5 }
}

fn default_rate_fps() -> f64 {
    30.0
}

fn default_latency_ms() -> f64 {
    10.0
}

fn default_max_depth_m() -> f64 {
    10.0
}

/// A rectangular room in the robot base frame (z up), and the people in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SceneConfig {
    /// Least and greatest x of the room, metres.
    #[serde(default = "default_side")]
    pub room_x_m: [f64; 2],
    /// Least and greatest y of the room, metres.
    #[serde(default = "default_side")]
    pub room_y_m: [f64; 2],
    /// Height of the floor, metres: negative when the robot stands on a pedestal.
    #[serde(default)]
    pub floor_m: f64,
    /// Height of the ceiling above the floor, metres.
    #[serde(default = "default_ceiling_m")]
    pub ceiling_m: f64,
    /// The people.
    #[serde(default)]
    pub people: Vec<PersonConfig>,
    /// Round bodies that stand still: a post, a hand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub solids: Vec<Solid>,
    /// Boxes that stand still: a pallet, a cabinet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Block>,
}

fn default_side() -> [f64; 2] {
    [-6.0, 6.0]
}

fn default_ceiling_m() -> f64 {
    3.5
}

impl Default for SceneConfig {
    /// A room of 12 m by 12 m in which one person walks up to the robot and away again.
    fn default() -> Self {
        Self {
            room_x_m: default_side(),
            room_y_m: default_side(),
            floor_m: 0.0,
            ceiling_m: default_ceiling_m(),
            people: vec![PersonConfig::walking(0, &[[5.0, 0.5], [0.9, 0.5]])],
            solids: Vec::new(),
            blocks: Vec::new(),
        }
    }
}

/// A person, drawn as an upright picture that turns towards the camera.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersonConfig {
    /// Which of the built-in pictures, from 0.
    #[serde(default)]
    pub look: usize,
    /// Height of the person, metres.
    #[serde(default = "default_height_m")]
    pub height_m: f64,
    /// Points on the floor that the person walks along, to the last and back, without end: x and y
    /// in the robot base frame, metres. A single point: the person stands there.
    pub path_m: Vec<[f64; 2]>,
    /// Walking speed, metres per second. The default is the human speed of ISO 13855.
    #[serde(default = "default_speed_m_s")]
    pub speed_m_s: f64,
    /// How long the person stands at both ends of the path, seconds.
    #[serde(default)]
    pub pause_s: f64,
    /// Whether the person gives no depth at all, only colour: black cloth or a mirror-like suit.
    #[serde(default)]
    pub without_depth: bool,
    /// Where on the way the person is at the start, as seconds already walked.
    #[serde(default)]
    pub start_s: f64,
}

fn default_height_m() -> f64 {
    1.75
}

fn default_speed_m_s() -> f64 {
    1.6
}

impl PersonConfig {
    /// A person of usual height and speed on a path.
    pub fn walking(look: usize, path_m: &[[f64; 2]]) -> Self {
        Self {
            look,
            height_m: default_height_m(),
            path_m: path_m.to_vec(),
            speed_m_s: default_speed_m_s(),
            pause_s: 0.0,
            without_depth: false,
            start_s: 0.0,
        }
    }
}

impl SyntheticConfig {
    /// Checks every value.
    pub(crate) fn check(&self) -> Result<(), CameraError> {
        let Intrinsics { width, height, fx, fy, cx, cy } = self.intrinsics;
        expect(
            "intrinsics",
            (1..=8192).contains(&width) && (1..=8192).contains(&height),
            || format!("{width}x{height}"),
            "expected a size of 1x1 to 8192x8192",
        )?;
        expect(
            "intrinsics",
            fx > 0.0 && fy > 0.0 && [fx, fy, cx, cy].iter().all(|v| v.is_finite()),
            || format!("fx {fx}, fy {fy}, cx {cx}, cy {cy}"),
            "expected positive focal lengths and a finite centre",
        )?;
        within("rate_fps", self.rate_fps, 1.0, 1000.0, "expected 1 to 1000")?;
        within("latency_ms", self.latency_ms, 0.0, 1000.0, "expected 0 to 1000")?;
        within("max_depth_m", self.max_depth_m, 0.01, 65.0, "expected 0.01 to 65")?;
        within("min_depth_m", self.min_depth_m, 0.0, self.max_depth_m, "expected 0 to max_depth_m")?;
        within("depth_noise_m", self.depth_noise_m, 0.0, 1.0, "expected 0 to 1")?;
        self.flaws.check()?;
        self.scene.check()
    }
}

impl CameraBackend for SyntheticConfig {
    fn name(&self) -> &'static str {
        "synthetic"
    }

    fn open(&self, surroundings: Option<Surroundings>) -> Result<Box<dyn Camera>, CameraError> {
        let Surroundings { pose, solids } = surroundings.ok_or(CameraError::Missing(
            "the synthetic camera needs a pose source: it renders what is seen from there",
        ))?;
        let camera = SyntheticCamera::new(self, pose)?;
        Ok(match solids {
            Some(solids) => Box::new(camera.with_solids(solids)),
            None => Box::new(camera),
        })
    }

    fn validate(&self) -> Result<(), CameraError> {
        self.check()?;
        takt_rt::config::within("scene.people", self.scene.people.len() as f64, 0.0, 100.0)?;
        Ok(crate::bounds::intrinsics(&self.intrinsics)?)
    }

    fn rate_fps(&self) -> Option<f64> {
        Some(self.rate_fps)
    }

    fn set_rate_fps(&mut self, rate: f64) {
        self.rate_fps = rate;
    }

    fn sample(&self, _: usize) -> Result<CameraSample, CameraError> {
        Ok(CameraSample::made_up(self.intrinsics))
    }

    fn inspect(&self) -> Result<String, CameraError> {
        Ok("rendered scene".to_owned())
    }

    fn needs_surroundings(&self) -> bool {
        true
    }
}

impl SceneConfig {
    /// Checks every value.
    pub(super) fn check(&self) -> Result<(), CameraError> {
        for (key, [low, high]) in [("room_x_m", self.room_x_m), ("room_y_m", self.room_y_m)] {
            expect(
                key,
                low.abs() <= 1e3 && high.abs() <= 1e3 && low < high,
                || format!("[{low}, {high}]"),
                "expected two numbers within -1000 to 1000, the lesser first",
            )?;
        }
        within("floor_m", self.floor_m, -100.0, 100.0, "expected -100 to 100")?;
        within("ceiling_m", self.ceiling_m, 0.1, 100.0, "expected 0.1 to 100")?;
        for solid in &self.solids {
            expect(
                "solids",
                solid.is_valid(),
                || format!("{solid:?}"),
                "expected ends within -1000 to 1000 and a radius of 0.0001 to 100",
            )?;
        }
        for block in &self.blocks {
            expect(
                "blocks",
                block.is_valid(),
                || format!("{block:?}"),
                "expected corners within -1000 to 1000, min_m below max_m on every axis",
            )?;
        }
        for person in &self.people {
            expect("look", person.look < LOOKS, || person.look.to_string(), "expected 0 to 3")?;
            within("height_m", person.height_m, 0.2, 3.0, "expected 0.2 to 3")?;
            within("speed_m_s", person.speed_m_s, 0.001, 20.0, "expected 0.001 to 20")?;
            within("pause_s", person.pause_s, 0.0, 1e6, "expected 0 to 1000000")?;
            within("start_s", person.start_s, 0.0, 1e6, "expected 0 to 1000000")?;
            expect(
                "path_m",
                !person.path_m.is_empty() && person.path_m.iter().flatten().all(|v| v.abs() <= 1e3),
                || format!("{:?}", person.path_m),
                "expected at least one point [x, y] within -1000 to 1000",
            )?;
        }
        Ok(())
    }
}

pub(super) fn expect(
    key: &'static str,
    holds: bool,
    value: impl FnOnce() -> String,
    expected: &'static str,
) -> Result<(), CameraError> {
    if holds { Ok(()) } else { Err(CameraError::BadConfig { key, value: value(), expected }) }
}

pub(super) fn within(
    key: &'static str,
    value: f64,
    low: f64,
    high: f64,
    expected: &'static str,
) -> Result<(), CameraError> {
    expect(key, (low..=high).contains(&value), || value.to_string(), expected)
}
