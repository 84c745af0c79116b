//! The cascade of the paper's section 3: position controller → desired force; attitude controller →
//! torque; control allocator → four rotor speeds. Pure and without allocation.

mod allocator;
mod attitude;
mod config;
mod position;

pub use allocator::{Allocation, ControlAllocator};
pub use attitude::{AttitudeController, collective_n, desired_attitude};
pub use config::ControlConfig;
pub use position::PositionController;

use nalgebra::Vector3;

use crate::vehicle::{State, VehicleConfig};

/// Command from the position controller to the attitude controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForceCommand {
    /// Desired force in the world, N.
    pub force_n: Vector3<f64>,
    /// Desired yaw, rad.
    pub yaw_rad: f64,
}

impl ForceCommand {
    /// Carries the weight.
    pub fn hovering(vehicle: &VehicleConfig) -> Self {
        Self { force_n: Vector3::new(0.0, 0.0, vehicle.weight_n()), yaw_rad: 0.0 }
    }
}

/// The inner loop, attitude controller and allocator: what one attitude job computes.
#[derive(Clone, Debug)]
pub struct AttitudeLaw {
    controller: AttitudeController,
    allocator: ControlAllocator,
}

impl AttitudeLaw {
    pub fn new(config: &ControlConfig, vehicle: &VehicleConfig) -> Self {
        Self {
            controller: AttitudeController::new(config, vehicle),
            allocator: ControlAllocator::new(vehicle),
        }
    }

    /// From the newest state and force command to rotor speeds.
    pub fn rotors(&self, state: &State, command: &ForceCommand) -> Allocation {
        let torque = self.controller.torque(state, command);
        self.allocator.allocate(collective_n(&command.force_n, state), &torque)
    }
}
