//! What can keep the cell from running.

/// Errors of the cell. Each says what was found and the way out.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    /// The configuration is impossible.
    #[error("configuration: {0}")]
    Config(String),
    /// A camera could not be opened.
    #[error("camera \"{name}\": {source}")]
    Camera {
        /// Its name.
        name: String,
        /// Why.
        source: takt_link_camera::CameraError,
    },
    /// Perception could not be prepared.
    #[error("perception: {0}")]
    Perception(#[from] takt_perception::PerceptionError),
    /// An inference engine or a network could not be loaded.
    #[error("perception: {0}")]
    Engine(#[from] takt_perception::EngineError),
    /// The perception process could not be started.
    #[error("perception.device = \"{device}\": {source}")]
    Worker {
        /// What was asked for.
        device: takt_perception::Device,
        /// Why.
        source: takt_perception::process::WorkerError,
    },
    /// Whoever started it wanted it no longer before it ran.
    #[error("stopped before the cell ran: there is nothing to keep of it")]
    Stopped,
    /// Nothing would stop the robot if this computer died.
    #[error(
        "the program on the robot did not prove Takt's watchdog within {waited_s} s ({found}): load and play a program \
         that includes takt_watchdog.script (crates/takt-link-rtde/urscript), or run with tasks.strict = false, whose \
         verdict says that it is missing"
    )]
    NoWatchdog {
        /// How long it was waited for.
        waited_s: u64,
        /// What was there instead.
        found: String,
    },
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
