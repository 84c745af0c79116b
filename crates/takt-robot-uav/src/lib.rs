//! The quadrotor: cascaded flight control at 250 Hz, its vehicle simulated beside it.
//!
//! [`control`] is the cascade of the paper's section 3 and [`vehicle`] the rigid body that it
//! flies; both are pure. [`plant`] moves the vehicle along with time and holds rotor commands until
//! the next one takes effect, so a late job costs control quality. [`flight`] runs the task set
//! under real policies and placements; [`sim`] runs the same code in simulated time under a chosen
//! pattern of lateness; [`blackout`] uses it to find how long the rotors may hold a command before
//! this vehicle is lost (section 7.4). [`lab`] makes it a robot of the lab.

pub mod blackout;
pub mod config;
pub mod control;
mod error;
pub mod flight;
pub mod lab;
pub mod plant;
pub mod records;
pub mod reference;
pub mod sim;
pub mod tasks;
pub mod vehicle;

pub use config::UavConfig;
pub use error::UavError;
pub use flight::Flight;
