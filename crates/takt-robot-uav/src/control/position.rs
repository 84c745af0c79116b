//! The outer loop: from position and velocity errors to a desired force.

use nalgebra::Vector3;

use super::{ControlConfig, ForceCommand};
use crate::reference::{Reference, Setpoint};
use crate::vehicle::{GRAVITY_M_S2, State, VehicleConfig};

/// Proportional, derivative and integral of the position error, with the reference's acceleration,
/// and the drag at its speed, fed forward.
#[derive(Clone, Debug)]
pub struct PositionController {
    config: ControlConfig,
    mass_kg: f64,
    period_s: f64,
    tan_tilt: f64,
    /// Deceleration by the rotors' drag over speed, 1/s.
    drag_s: f64,
    /// Acceleration asked by the integral.
    integral: Vector3<f64>,
}

impl PositionController {
    /// A controller that runs every `period_s`.
    pub fn new(config: &ControlConfig, vehicle: &VehicleConfig, period_s: f64) -> Self {
        Self {
            config: config.clone(),
            mass_kg: vehicle.mass_kg,
            period_s,
            tan_tilt: config.tilt_limit_deg.to_radians().tan(),
            drag_s: 4.0 * vehicle.hover_rad_s() * vehicle.rotor_drag_kg / vehicle.mass_kg,
            integral: Vector3::zeros(),
        }
    }

    /// One job: the force for a state of time `t_s` of the reference.
    pub fn follow(&mut self, reference: &Reference, t_s: f64, state: &State) -> ForceCommand {
        self.force(&reference.with_lead(t_s, self.config.acceleration_lead_ms * 1e-3), state)
    }

    /// The force that brings the vehicle to the set point.
    pub fn force(&mut self, setpoint: &Setpoint, state: &State) -> ForceCommand {
        let c = &self.config;
        let error = setpoint.position_m - state.position_m;
        let error_rate = setpoint.velocity_m_s - state.velocity_m_s;
        let along = Vector3::new(setpoint.velocity_m_s.x, setpoint.velocity_m_s.y, 0.0);
        let wanted = setpoint.acceleration_m_s2
            + along * self.drag_s
            + error * c.position_p_s2
            + error_rate * c.position_d_s
            + self.integral;
        let horizontal = clamp_norm(Vector3::new(wanted.x, wanted.y, 0.0), c.horizontal_limit_m_s2);
        let vertical = wanted.z.clamp(-c.vertical_limit_m_s2, c.vertical_limit_m_s2);
        let lift = GRAVITY_M_S2 + vertical;
        let horizontal = clamp_norm(horizontal, lift * self.tan_tilt);
        let given = Vector3::new(horizontal.x, horizontal.y, vertical);
        // Against wind-up: no integration far away, nor while a limit holds.
        if error.norm() <= c.integral_zone_m && (given - wanted).norm_squared() < 1e-18 {
            let next = self.integral + error * (c.position_i_s3 * self.period_s);
            self.integral = clamp_norm(next, c.integral_limit_m_s2);
        }
        let force_n = self.mass_kg * (given + GRAVITY_M_S2 * Vector3::z());
        ForceCommand { force_n, yaw_rad: setpoint.yaw_rad }
    }
}

fn clamp_norm(vector: Vector3<f64>, most: f64) -> Vector3<f64> {
    let norm = vector.norm();
    if norm > most { vector * (most / norm) } else { vector }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn setpoint(position_m: Vector3<f64>) -> Setpoint {
        Setpoint { position_m, ..Setpoint::default() }
    }

    #[test]
    fn at_the_set_point_it_carries_the_weight() {
        let vehicle = VehicleConfig::default();
        let mut controller = PositionController::new(&ControlConfig::default(), &vehicle, 0.02);
        let state = State::hovering(&vehicle, Vector3::new(1.0, 2.0, 3.0), Vector3::zeros());
        let command = controller.force(&setpoint(state.position_m), &state);
        assert!((command.force_n - Vector3::new(0.0, 0.0, vehicle.weight_n())).norm() < 1e-12);
    }

    #[test]
    fn a_standing_error_is_integrated_up_to_its_limit() {
        let vehicle = VehicleConfig::default();
        let mut controller = PositionController::new(&ControlConfig::default(), &vehicle, 0.02);
        let state = State::hovering(&vehicle, Vector3::zeros(), Vector3::zeros());
        let near = setpoint(Vector3::new(0.1, 0.0, 0.0));
        let first = controller.force(&near, &state).force_n.x;
        let last = (0..5000).map(|_| controller.force(&near, &state).force_n.x).last().unwrap();
        assert!(last > first);
        assert!((last - vehicle.mass_kg * (0.6 + 2.0)).abs() < 1e-9, "{last}");
        let mut far = PositionController::new(&ControlConfig::default(), &vehicle, 0.02);
        for _ in 0..1000 {
            far.force(&setpoint(Vector3::new(50.0, 0.0, 0.0)), &state);
            let fast = State { velocity_m_s: Vector3::new(9.0, 0.0, 0.0), ..state };
            far.force(&near, &fast);
        }
        assert_eq!(far.integral, Vector3::zeros(), "no wind-up far away or behind a limit");
    }

    proptest! {
        #[test]
        fn force_stays_within_tilt_and_limits(
            at in proptest::array::uniform3(-100.0..100.0f64),
            speed in proptest::array::uniform3(-50.0..50.0f64),
        ) {
            let vehicle = VehicleConfig::default();
            let config = ControlConfig::default();
            let mut controller = PositionController::new(&config, &vehicle, 0.02);
            let state = State::hovering(&vehicle, Vector3::from(at), Vector3::from(speed));
            let force = controller.force(&setpoint(Vector3::zeros()), &state).force_n;
            let tilt = force.xy().norm().atan2(force.z).to_degrees();
            prop_assert!(tilt <= config.tilt_limit_deg + 1e-9);
            let vertical = force.z / vehicle.mass_kg - GRAVITY_M_S2;
            prop_assert!(vertical.abs() <= config.vertical_limit_m_s2 + 1e-9);
        }
    }
}
