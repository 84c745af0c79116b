//! The robots of this program: the only place that lists them.

use takt_lab::Registry;

/// The robots. Without the key `robot`, a file is of the safety cell, which has a table of that
/// name: its arm.
pub static ROBOTS: Registry = Registry::new(&[
    #[cfg(feature = "cell")]
    &takt_robot_cell::lab::KIND,
    &takt_lab::cyclic::KIND,
    #[cfg(feature = "uav")]
    &takt_robot_uav::lab::KIND,
    #[cfg(feature = "daq")]
    &takt_robot_daqloop::lab::KIND,
    #[cfg(feature = "humanoid")]
    &takt_robot_humanoid::lab::KIND,
    #[cfg(feature = "ros")]
    &takt_robot_ros::KIND,
    #[cfg(feature = "servo")]
    &takt_robot_servo::lab::KIND,
    &takt_robot_program::KIND,
])
.unnamed("cell");
