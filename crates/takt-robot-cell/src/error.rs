//! Errors that keep the cell from running.

use takt_rt::config::SettingError;

/// Errors of the cell. Each says what was found and the way out.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    /// The configuration is impossible.
    #[error("configuration: {0}")]
    Config(#[from] CellConfigError),
    /// The controller's arm is not the one that is configured.
    #[error(
        "configuration: robot.shape.model = \"{model}\": the controller's own kinematics place the flange up to {off_m:.3} m from there; \
         accepted are {accepted_m} m{looks}. Name the mounted arm: with another arm's shape, people could be mistaken for the robot"
    )]
    OtherArm {
        model: String,
        /// Largest distance between its flange and the controller's.
        off_m: f64,
        /// Largest change by a calibration.
        accepted_m: f64,
        /// Arm to which the controller's kinematics belong, if known, as a part of the sentence.
        looks: String,
    },
    /// A camera could not be opened.
    #[error("camera \"{name}\": {source}")]
    Camera { name: String, source: Box<takt_link_camera::CameraError> },
    /// Perception could not be prepared.
    #[error("perception: {0}")]
    Perception(#[from] takt_perception::PerceptionError),
    /// An inference engine or a network could not be loaded.
    #[error("perception: {0}")]
    Engine(#[from] takt_perception::EngineError),
    /// The perception process could not be started.
    #[error("perception.device = \"{device}\": {source}")]
    Worker { device: takt_perception::Device, source: takt_perception::process::WorkerError },
    /// Its starter cancelled it before it ran.
    #[error("stopped before the cell ran: there are no results to keep")]
    Stopped,
    /// Nothing would stop the robot if this computer died.
    #[error(
        "the robot's program did not answer Takt's watchdog within {waited_s} s ({found}): load and play a program that includes \
         takt_watchdog.script (crates/takt-link-rtde/urscript), or run with tasks.strict = false; the verdict then says that the watchdog \
         is missing"
    )]
    NoWatchdog {
        /// Time waited for it.
        waited_s: u64,
        found: String,
    },
    /// A strict run asked for one reservation for all of its threads.
    #[error(
        "tasks.group: no reservation for all SCHED_RR threads together: {0}. Omit tasks.group, or run with tasks.strict = false; the \
         verdict then says that the reservation is missing"
    )]
    NoGroup(takt_host::reserve::rt_group::GroupError),
    /// The robot could not be reached or simulated.
    #[error("robot: {0}")]
    Robot(#[from] takt_link_rtde::RtdeError),
    /// The kernel refused something that this run cannot do without.
    #[error(transparent)]
    RealTime(#[from] takt_rt::Error),
    /// An exchange was made with too few readers: a mistake in this crate.
    #[error("internal: {0} has no reader left")]
    NoReader(&'static str),
}

/// A configuration of the cell that cannot be meant or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CellConfigError {
    /// A setting of the cell's own.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A camera's source.
    #[error("cameras ({camera}): source.{source}")]
    Source { camera: String, source: Box<takt_link_camera::CameraError> },
    /// Perception cannot work so.
    #[error("{place}{source}")]
    Perception { place: &'static str, source: takt_perception::ConfigError },
    /// The robot's mission cannot be moved.
    #[error("robot.mission: {0}")]
    Mission(takt_link_rtde::RtdeError),
    /// The page or the screen.
    #[error("view: {0}")]
    View(takt_view::Error),
}
