//! The controller's client interface (primary: port 30001), for the one thing that RTDE does not
//! deliver: the calibrated kinematics of this very arm.
//!
//! Source: Universal Robots, "Client Interface" (e-Series). Frames are big-endian: `i32` size with
//! itself, `u8` type; a robot state (type 16) is a list of sub-packages of the same shape, and
//! sub-package 5 is "kinematics info": six checksums, six angles theta, six lengths a, six offsets
//! d, six twists alpha, a calibration status. Controllers before 3.6 (CB) do not send it. It is
//! sent to every client that connects, about ten times a second, to reading clients too; nothing is
//! ever written to this port, which would execute it.

mod message;
mod read;

pub use message::{KinematicsInfo, MAX_MESSAGE_BYTES, PrimaryError, StateBuffer, kinematics_in};
pub use read::{PRIMARY_PORT, read_kinematics};
