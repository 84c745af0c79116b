//! The inner loop: from the desired force and yaw to a torque.

use nalgebra::{Matrix3, Rotation3, UnitQuaternion, Vector3};

use super::{ControlConfig, ForceCommand};
use crate::vehicle::{State, VehicleConfig};

/// The attitude whose z axis is along `force` and whose x axis points towards `yaw_rad`. Upright
/// for a force of zero or one that is no number.
pub fn desired_attitude(force: &Vector3<f64>, yaw_rad: f64) -> UnitQuaternion<f64> {
    let norm = force.norm();
    let up = if norm > 1e-9 && norm.is_finite() { force / norm } else { Vector3::z() };
    let (sin, cos) = if yaw_rad.is_finite() { yaw_rad.sin_cos() } else { (0.0, 1.0) };
    let left = up.cross(&Vector3::new(cos, sin, 0.0));
    // The force lies along the heading only at 90 degrees of tilt, which the position controller
    // never asks.
    let left_norm = left.norm();
    let left = if left_norm > 1e-9 { left / left_norm } else { Vector3::new(-sin, cos, 0.0) };
    let forward = left.cross(&up);
    let axes = Matrix3::from_columns(&[forward, left, up]);
    UnitQuaternion::from_rotation_matrix(&Rotation3::from_matrix_unchecked(axes))
}

/// The part of the desired force along the body's axis: what the rotors can give at the attitude of
/// now, N.
pub fn collective_n(force: &Vector3<f64>, state: &State) -> f64 {
    force.dot(&state.up()).max(0.0)
}

/// Proportional to the rotation that is left, damped by the body rates, with the gyroscopic moment
/// compensated.
#[derive(Clone, Debug)]
pub struct AttitudeController {
    p: Vector3<f64>,
    d: Vector3<f64>,
    limit: Vector3<f64>,
    inertia: Vector3<f64>,
}

impl AttitudeController {
    pub fn new(config: &ControlConfig, vehicle: &VehicleConfig) -> Self {
        let tilt = config.tilt_acceleration_limit_rad_s2;
        Self {
            p: Vector3::new(config.tilt_p_s2, config.tilt_p_s2, config.yaw_p_s2),
            d: Vector3::new(config.tilt_d_s, config.tilt_d_s, config.yaw_d_s),
            limit: Vector3::new(tilt, tilt, config.yaw_acceleration_limit_rad_s2),
            inertia: Vector3::from(vehicle.inertia_kg_m2),
        }
    }

    /// The torque in body axes, N·m.
    pub fn torque(&self, state: &State, command: &ForceCommand) -> Vector3<f64> {
        let desired = desired_attitude(&command.force_n, command.yaw_rad);
        let left = state.attitude.inverse() * desired;
        // Of the two quaternions of one rotation, the one that turns the shorter way.
        let sign = if left.w < 0.0 { -2.0 } else { 2.0 };
        let error = left.imag() * sign;
        let rates = state.rates_rad_s;
        let wanted = self.p.component_mul(&error) - self.d.component_mul(&rates);
        let wanted = wanted.zip_map(&self.limit, |wanted, limit| wanted.clamp(-limit, limit));
        self.inertia.component_mul(&wanted) + rates.cross(&self.inertia.component_mul(&rates))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn torque_turns_towards_the_force() {
        let vehicle = VehicleConfig::default();
        let controller = AttitudeController::new(&ControlConfig::default(), &vehicle);
        let state = State::hovering(&vehicle, Vector3::zeros(), Vector3::zeros());
        let torque = |x, y, yaw_rad| {
            controller.torque(&state, &ForceCommand { force_n: Vector3::new(x, y, 7.0), yaw_rad })
        };
        assert!(torque(0.0, 0.0, 0.0).norm() < 1e-12);
        assert!(torque(1.0, 0.0, 0.0).y > 0.0, "forward: nose down");
        assert!(torque(0.0, 1.0, 0.0).x < 0.0, "left: left side down");
        assert!(torque(0.0, 0.0, 0.5).z > 0.0 && torque(0.0, 0.0, -0.5).z < 0.0);
    }

    #[test]
    fn a_turned_vehicle_still_lifts_no_less_than_nothing() {
        let vehicle = VehicleConfig::default();
        let mut state = State::hovering(&vehicle, Vector3::zeros(), Vector3::zeros());
        assert!((collective_n(&Vector3::new(0.0, 0.0, 7.0), &state) - 7.0).abs() < 1e-12);
        state.attitude = UnitQuaternion::from_euler_angles(std::f64::consts::PI, 0.0, 0.0);
        assert_eq!(collective_n(&Vector3::new(0.0, 0.0, 7.0), &state), 0.0);
    }

    proptest! {
        #[test]
        fn the_desired_attitude_points_where_asked(
            force in proptest::array::uniform3(-10.0..10.0f64),
            yaw in -7.0..7.0f64,
        ) {
            let force = Vector3::from(force);
            prop_assume!(force.norm() > 1e-3);
            let attitude = desired_attitude(&force, yaw);
            prop_assert!((attitude * Vector3::z() - force.normalize()).norm() < 1e-9);
            prop_assert!((attitude.norm() - 1.0).abs() < 1e-9);
            if force.z > 0.1 {
                // Seen from above, the nose points within a right angle of the heading.
                let nose = attitude * Vector3::x();
                prop_assert!(nose.x * yaw.cos() + nose.y * yaw.sin() > 0.0);
            }
        }

        #[test]
        fn odd_numbers_never_panic(bits in proptest::array::uniform4(any::<u64>())) {
            let [x, y, z, yaw_rad] = bits.map(f64::from_bits);
            let vehicle = VehicleConfig::default();
            let law = super::super::AttitudeLaw::new(&ControlConfig::default(), &vehicle);
            let state = State::hovering(&vehicle, Vector3::zeros(), Vector3::zeros());
            let speeds = law.rotors(&state, &ForceCommand { force_n: Vector3::new(x, y, z), yaw_rad }).rotors_rad_s;
            let range = vehicle.rotor_min_rad_s * 0.999..=vehicle.rotor_max_rad_s * 1.001;
            prop_assert!(speeds.iter().all(|speed| range.contains(speed)), "{speeds:?}");
        }
    }
}
