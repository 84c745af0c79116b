//! People in colour and depth images: detection, segmentation, 3-D position and least distance.

mod result;

pub use result::{Detections, FrameHealth, MAX_OBJECTS, Object, ObjectKind, StageTimes};
