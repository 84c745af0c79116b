//! People in colour and depth images: detection, segmentation, 3-D position and least distance.
//!
//! For every frame of a camera, [`Perception`] says who and what stands in the monitored volume and
//! how near to the robot's tool it is:
//!
//! 1. **Geometry, every frame.** Depth is back-projected into the robot base frame. Whatever lies
//!    in the monitored volume, above the floor, in no declared fixture and is not the robot is
//!    foreground. No network decides whether something is there, so a person is noticed on the
//!    frame they appear in.
//! 2. **Detection, on a schedule.** A person detector in one thread that all cameras share
//!    ([`DetectorService`]) says which foreground is people; tracks carry that from frame to frame.
//! 3. **Segmentation, every frame.** A small network cuts out the nearest people; mask and
//!    foreground together choose the depth points.
//! 4. **What is not seen.** Samples without depth whose lines of sight cross the volume near the
//!    tool are occupied, unless known structure or valid neighbours explain them; too many, and the
//!    camera is blind. Places near the tool that something with depth hides are hidden just as
//!    much, unless another camera sees them ([`Places`]).
//! 5. **Measurement.** The least distance to the tool over every pixel of each person, and of
//!    everything that is not explained: safety treats that as a person.
//!
//! A GPU does the same in a process of its own ([`process`]), under a time budget.
//!
//! Networks run in ONNX Runtime where it is installed and else in an embedded engine ([`Engine`]).

mod background;
mod config;
mod detector;
mod device;
mod engine;
mod error;
mod frame_watch;
pub mod gpu;
mod health;
mod image;
mod judge;
mod measure;
mod mount;
mod occupancy;
mod overlay;
mod perception;
mod picture;
pub mod process;
mod proof;
mod result;
mod robot_shape;
mod segmenter;
mod sensor;
#[cfg(test)]
mod testing;
mod track;
mod unseen;
mod view;

pub use background::{Background, BackgroundError, BackgroundLearner, MAX_LEARNED, MIN_FRAMES};
pub use config::{
    ConfigError, DetectorConfig, DetectorSchedule, HealthConfig, MAX_NEAREST_RANK, OccupancyConfig,
    PerceptionConfig, SegmenterConfig, TrackingConfig,
};
pub use detector::{
    Detection, DetectionSet, Detector, DetectorHandle, DetectorLayout, DetectorService, MAX_DETECTIONS,
};
pub use device::{BreakerConfig, Copies, Device, Fallback, GpuConfig, GpuWait, Streams, WhenOpen};
pub use engine::{
    BUILTIN_MODELS, Backend, BuiltinModel, Engine, EngineConfig, EngineError, LoadedNetwork, ModelSource,
    Network, OnnxError, Provider, Tensor, builtin_model,
};
pub use error::PerceptionError;
pub use frame_watch::FrameWatch;
pub use mount::{FramePose, Mount, MountFrame, PoseHistory};
pub use occupancy::{Capsule, CapsuleFrame, StaticBox, Volume};
pub use overlay::Overlay;
pub use perception::Perception;
pub use proof::prove_networks;
pub use result::{Detections, FrameHealth, MAX_OBJECTS, Object, ObjectKind, StageTimes};
pub use robot_shape::{MAX_ROBOT_CAPSULES, RobotShape, box_capsules};
pub use sensor::{DepthModel, SensorConfig};
pub use unseen::{HiddenPlaces, PLACES_SIDE, Places, UnseenConfig};
pub use view::FrameView;
