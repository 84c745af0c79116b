//! The synthetic scene as a camera.

use takt_rt::clock;

use super::config::SyntheticConfig;
use super::render::Renderer;
use super::scene::Scene;
use super::solid::SolidSource;
use crate::camera::{Camera, PoseSource};
use crate::error::CameraError;
use crate::pacing::Pacer;
use crate::{Frame, Intrinsics};

/// A camera that renders its scene, in real time.
///
/// [`Frame::source_ns`] is the time of the scene, which [`Scene::truth`] takes. It is the same for
/// cameras started with the same origin, so they see the same people at the same places.
/// [`Frame::capture_ns`] is the moment of exposure, `latency_ms` before the frame is due;
/// [`Frame::camera_in_base`] is the pose then.
pub struct SyntheticCamera {
    scene: Scene,
    renderer: Renderer,
    pose: PoseSource,
    solids: Option<SolidSource>,
    intrinsics: Intrinsics,
    pacer: Pacer,
    latency_ns: u64,
    /// Time of the scene at the first frame.
    phase_ns: u64,
    /// Index of the next frame.
    next: u64,
}

impl SyntheticCamera {
    /// Builds the scene and the renderer; `pose` gives the camera's pose in the robot base frame.
    ///
    /// # Errors
    /// When a value of the configuration is impossible.
    pub fn new(config: &SyntheticConfig, pose: PoseSource) -> Result<Self, CameraError> {
        config.check()?;
        Ok(Self {
            scene: Scene::new(&config.scene)?,
            renderer: Renderer::new(config),
            pose,
            solids: None,
            intrinsics: config.intrinsics,
            pacer: Pacer::new(Some(config.rate_fps)),
            latency_ns: (config.latency_ms * 1e6) as u64,
            phase_ns: 0,
            next: 0,
        })
    }

    /// Shows bodies that move, too, where they are at the moment of exposure.
    #[must_use]
    pub(crate) fn with_solids(mut self, source: SolidSource) -> Self {
        self.solids = Some(source);
        self
    }

    /// The scene, for its ground truth.
    pub fn scene(&self) -> &Scene {
        &self.scene
    }

    fn due_ns(&self, index: u64) -> u64 {
        self.pacer.due_ns(index, 0)
    }
}

impl Camera for SyntheticCamera {
    fn intrinsics(&self) -> Intrinsics {
        self.intrinsics
    }

    fn start_at(&mut self, origin_ns: u64, phase_ns: u64) {
        self.pacer.start_at(origin_ns.saturating_add(phase_ns));
        self.phase_ns = phase_ns;
    }

    fn next_frame(&mut self, frame: &mut Frame) -> Result<(), CameraError> {
        if !self.pacer.started() {
            self.pacer.start_at(clock::monotonic_ns() + self.latency_ns);
        }
        // Frames whose successor is due already were never seen: a camera would have overwritten
        // them.
        let now_ns = clock::monotonic_ns();
        while self.pacer.is_stale(now_ns, self.due_ns(self.next + 1)) {
            self.next += 1;
        }
        let due_ns = self.due_ns(self.next);
        let exposure_ns = due_ns.saturating_sub(self.latency_ns);
        clock::sleep_until(exposure_ns);
        let pose = (self.pose)(exposure_ns);
        self.next += 1;
        frame.sequence = self.next;
        frame.source_ns = due_ns - self.due_ns(0) + self.phase_ns;
        frame.capture_ns = exposure_ns;
        if let Some(source) = &self.solids {
            self.scene.place_solids(|solids| source(exposure_ns, solids));
        }
        frame.streams = None;
        self.renderer.render(&self.scene, &pose, frame.source_ns, frame);
        clock::sleep_until(due_ns);
        // A camera would have handed it over then, however late this thread is.
        frame.arrival_ns = due_ns;
        Ok(())
    }
}
