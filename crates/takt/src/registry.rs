//! The robots of this program: the only place that lists them.

use takt_lab::Registry;

/// The robots. Without the key `robot`, a file is of the first.
pub static ROBOTS: Registry = Registry::new(&[
    &takt_lab::cell::KIND,
    &takt_lab::cyclic::KIND,
    &takt_robot_uav::lab::KIND,
    &takt_robot_daqloop::lab::KIND,
    &takt_robot_humanoid::lab::KIND,
    &takt_robot_ros::KIND,
]);
