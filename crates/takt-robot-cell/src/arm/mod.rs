//! The arm does not see itself: which part of what the cameras see is the robot.
//!
//! [`ShapeConfig`] (`[robot.shape]`) says which arm it is and what it carries; [`ArmShape`] says,
//! for a frame, which capsules the robot occupied when the frame was captured. They are grown by
//! what the robot may really have been away from there, and no more: a hand beside the arm must
//! stay outside.
//!
//! A capsule's radius grows by
//! - `margin_m`: calibration of arm and camera, cables, edges of depth images;
//! - three standard deviations of the depth noise at the link's distance from the camera;
//! - the joints' uncertainty times their levers: for each joint, (speed × (time error + time since
//!   the state) + acceleration terms) × distance of the link from the joint's axis. The motion of
//!   link and camera against each other counts: a camera on the tool moves with the last links.

mod config;
mod drawn;
mod joints;
mod prepare;
mod shape;

pub use config::{Held, HeldWhen, KinematicsSource, PartFrame, PartShape, ShapeConfig};
pub use drawn::drawn;
pub use joints::{JointsAt, joints_at};
pub use prepare::{Kinematics, prepare_arm};
pub use shape::{ArmShape, Viewpoint};
