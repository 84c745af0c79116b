//! The rigid body with four rotors, integrated by the classical Runge-Kutta method.
//!
//! World axes are x, y and z upwards; body axes are x forward, y left and z along the thrust. A
//! body velocity of the vehicle moves the air past each rotor: thrust falls with speed along the
//! axis, and a turning rotor drags across it. Both act at the rotor's place, so they damp turning
//! as well.

mod params;

use nalgebra::{Quaternion, UnitQuaternion, Vector3};
use takt_rt::config::SettingError;

pub use params::{GRAVITY_M_S2, Layout, ROTORS, VehicleConfig};

/// Rotor speeds, rad/s.
pub type RotorSpeeds = [f64; ROTORS];

/// Position and motion of the vehicle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Position in the world, m.
    pub position_m: Vector3<f64>,
    /// Velocity in the world, m/s.
    pub velocity_m_s: Vector3<f64>,
    /// Turns body axes into world axes.
    pub attitude: UnitQuaternion<f64>,
    /// Angular velocity in body axes, rad/s.
    pub rates_rad_s: Vector3<f64>,
    pub rotors_rad_s: RotorSpeeds,
}

impl State {
    /// Upright, at rest in rotation, rotors carrying the weight.
    pub fn hovering(vehicle: &VehicleConfig, position_m: Vector3<f64>, velocity_m_s: Vector3<f64>) -> Self {
        Self {
            position_m,
            velocity_m_s,
            attitude: UnitQuaternion::identity(),
            rates_rad_s: Vector3::zeros(),
            rotors_rad_s: [vehicle.hover_rad_s(); ROTORS],
        }
    }

    /// Whether every number is one.
    pub fn is_finite(&self) -> bool {
        let q = self.attitude.coords;
        self.position_m
            .iter()
            .chain(&self.velocity_m_s)
            .chain(&self.rates_rad_s)
            .chain(&q)
            .all(|x| x.is_finite())
            && self.rotors_rad_s.iter().all(|x| x.is_finite())
    }

    /// The body's z axis in the world.
    pub fn up(&self) -> Vector3<f64> {
        self.attitude * Vector3::z()
    }

    /// Angle between the thrust and the vertical, rad.
    pub fn tilt_rad(&self) -> f64 {
        self.up().z.clamp(-1.0, 1.0).acos()
    }
}

/// Rate of change of a [`State`].
#[derive(Clone, Copy)]
struct Rate {
    position: Vector3<f64>,
    velocity: Vector3<f64>,
    attitude: Quaternion<f64>,
    rates: Vector3<f64>,
    rotors: RotorSpeeds,
}

/// The equations of motion.
#[derive(Clone, Debug)]
pub struct Vehicle {
    config: VehicleConfig,
    positions: [Vector3<f64>; ROTORS],
    inertia: Vector3<f64>,
    frame_drag: Vector3<f64>,
}

impl Vehicle {
    /// The vehicle of a valid configuration.
    ///
    /// # Errors
    /// As [`VehicleConfig::validate`].
    pub fn new(config: &VehicleConfig) -> Result<Self, SettingError> {
        config.validate()?;
        Ok(Self {
            positions: config.rotor_positions(),
            inertia: Vector3::from(config.inertia_kg_m2),
            frame_drag: Vector3::from(config.frame_drag_kg_m),
            config: config.clone(),
        })
    }

    /// Its parameters.
    pub fn config(&self) -> &VehicleConfig {
        &self.config
    }

    /// One step of `step_s` with the rotor command held. Neither allocates nor panics on any
    /// numbers; numbers beyond f64 come out as such, see [`State::is_finite`].
    pub fn step(&self, state: &State, command: &RotorSpeeds, step_s: f64) -> State {
        let k1 = self.rate(state, command);
        let k2 = self.rate(&moved(state, &k1, step_s / 2.0), command);
        let k3 = self.rate(&moved(state, &k2, step_s / 2.0), command);
        let k4 = self.rate(&moved(state, &k3, step_s), command);
        let mean = Rate {
            position: (k1.position + 2.0 * (k2.position + k3.position) + k4.position) / 6.0,
            velocity: (k1.velocity + 2.0 * (k2.velocity + k3.velocity) + k4.velocity) / 6.0,
            attitude: (k1.attitude + (k2.attitude + k3.attitude) * 2.0 + k4.attitude) / 6.0,
            rates: (k1.rates + 2.0 * (k2.rates + k3.rates) + k4.rates) / 6.0,
            rotors: std::array::from_fn(|i| {
                (k1.rotors[i] + 2.0 * (k2.rotors[i] + k3.rotors[i]) + k4.rotors[i]) / 6.0
            }),
        };
        moved(state, &mean, step_s)
    }

    fn rate(&self, state: &State, command: &RotorSpeeds) -> Rate {
        let c = &self.config;
        let velocity = state.attitude.inverse() * state.velocity_m_s;
        let mut force = -self.frame_drag.component_mul(&velocity.component_mul(&velocity.abs()));
        let mut torque = Vector3::zeros();
        let mut rotors = [0.0; ROTORS];
        let signs = c.yaw_signs();
        for i in 0..ROTORS {
            let (speed, place) = (state.rotors_rad_s[i], self.positions[i]);
            let air = velocity + state.rates_rad_s.cross(&place);
            let thrust = c.thrust_n_s2 * speed * speed;
            let own = Vector3::new(
                -c.rotor_drag_kg * speed * air.x,
                -c.rotor_drag_kg * speed * air.y,
                thrust - c.rotor_inflow_kg * speed * air.z,
            );
            force += own;
            torque += place.cross(&own);
            torque.z += signs[i] * c.torque_per_thrust_m * thrust;
            let change = command[i] - speed;
            let lag_ms = if change > 0.0 { c.spin_up_ms } else { c.spin_down_ms };
            rotors[i] = change / (lag_ms * 1e-3);
        }
        let momentum = self.inertia.component_mul(&state.rates_rad_s);
        let w = state.rates_rad_s;
        Rate {
            position: state.velocity_m_s,
            velocity: state.attitude * force / c.mass_kg - GRAVITY_M_S2 * Vector3::z(),
            attitude: state.attitude.into_inner() * Quaternion::from_parts(0.0, w) * 0.5,
            rates: (torque - w.cross(&momentum)).component_div(&self.inertia),
            rotors,
        }
    }
}

fn moved(state: &State, rate: &Rate, step_s: f64) -> State {
    State {
        position_m: state.position_m + rate.position * step_s,
        velocity_m_s: state.velocity_m_s + rate.velocity * step_s,
        attitude: UnitQuaternion::new_normalize(state.attitude.into_inner() + rate.attitude * step_s),
        rates_rad_s: state.rates_rad_s + rate.rates * step_s,
        rotors_rad_s: std::array::from_fn(|i| state.rotors_rad_s[i] + rate.rotors[i] * step_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vehicle() -> Vehicle {
        Vehicle::new(&VehicleConfig::default()).unwrap()
    }

    /// Nothing but gravity and inertia.
    fn in_vacuum() -> Vehicle {
        let air = VehicleConfig::default();
        let config = VehicleConfig {
            rotor_drag_kg: 0.0,
            rotor_inflow_kg: 0.0,
            frame_drag_kg_m: [0.0; 3],
            rotor_min_rad_s: 0.0,
            inertia_kg_m2: [0.007, 0.009, 0.012],
            ..air
        };
        Vehicle::new(&config).unwrap()
    }

    fn run(vehicle: &Vehicle, mut state: State, command: &RotorSpeeds, seconds: f64, step_s: f64) -> State {
        for _ in 0..(seconds / step_s).round() as usize {
            state = vehicle.step(&state, command, step_s);
        }
        state
    }

    fn tumbling() -> State {
        State {
            position_m: Vector3::new(1.0, 2.0, 3.0),
            velocity_m_s: Vector3::new(2.0, -1.0, 0.5),
            attitude: UnitQuaternion::from_euler_angles(0.3, -0.4, 0.9),
            rates_rad_s: Vector3::new(3.0, -2.0, 1.5),
            rotors_rad_s: [0.0; ROTORS],
        }
    }

    #[test]
    fn hovering_is_an_equilibrium() {
        let vehicle = vehicle();
        let start = State::hovering(vehicle.config(), Vector3::new(0.0, 0.0, 2.0), Vector3::zeros());
        let end = run(&vehicle, start, &[vehicle.config().hover_rad_s(); ROTORS], 5.0, 1e-3);
        assert!((end.position_m - start.position_m).norm() < 1e-9, "{end:?}");
        assert!(end.tilt_rad() < 1e-9);
    }

    #[test]
    fn without_air_and_thrust_energy_and_momentum_stay() {
        let vehicle = in_vacuum();
        let inertia = Vector3::from(vehicle.config().inertia_kg_m2);
        let mass = vehicle.config().mass_kg;
        let energy = |s: &State| {
            mass * (s.velocity_m_s.norm_squared() / 2.0 + GRAVITY_M_S2 * s.position_m.z)
                + inertia.component_mul(&s.rates_rad_s).dot(&s.rates_rad_s) / 2.0
        };
        let momentum = |s: &State| s.attitude * inertia.component_mul(&s.rates_rad_s);
        let start = tumbling();
        let end = run(&vehicle, start, &[0.0; ROTORS], 2.0, 1e-3);
        assert!((energy(&end) - energy(&start)).abs() < 1e-8, "{} {}", energy(&start), energy(&end));
        assert!((momentum(&end) - momentum(&start)).norm() < 1e-8);
        assert!((end.attitude.norm() - 1.0).abs() < 1e-12);
        let fall = start.position_m.z + start.velocity_m_s.z * 2.0 - GRAVITY_M_S2 * 2.0;
        assert!((end.position_m.z - fall).abs() < 1e-9);
    }

    #[test]
    fn air_takes_energy() {
        let vehicle = vehicle();
        let hover = vehicle.config().hover_rad_s();
        let mut start = State::hovering(vehicle.config(), Vector3::zeros(), Vector3::new(3.0, 0.0, 0.0));
        start.rates_rad_s = Vector3::new(0.0, 0.0, 2.0);
        let end = run(&vehicle, start, &[hover; ROTORS], 1.0, 1e-3);
        assert!(end.velocity_m_s.xy().norm() < 3.0 && end.rates_rad_s.z < 2.0 && end.rates_rad_s.z > 0.0);
        start.rates_rad_s = Vector3::new(1.0, 0.0, 0.0);
        assert!(vehicle.step(&start, &[hover; ROTORS], 1e-2).rates_rad_s.x < 1.0, "roll is damped");
    }

    #[test]
    fn the_method_is_of_fourth_order() {
        let vehicle = vehicle();
        let mut start = tumbling();
        start.rotors_rad_s = [300.0, 420.0, 500.0, 610.0];
        let command = [700.0, 600.0, 300.0, 400.0];
        let exact = run(&vehicle, start, &command, 0.32, 1e-4);
        let error = |step_s| {
            let end = run(&vehicle, start, &command, 0.32, step_s);
            (end.position_m - exact.position_m).norm() + (end.rates_rad_s - exact.rates_rad_s).norm()
        };
        let (coarse, fine) = (error(4e-3), error(2e-3));
        let order = (coarse / fine).log2();
        assert!((3.6..4.6).contains(&order), "order {order}: {coarse} {fine}");
    }

    #[test]
    fn torques_turn_the_way_they_should() {
        let vehicle = vehicle();
        let hover = vehicle.config().hover_rad_s();
        let start = State::hovering(vehicle.config(), Vector3::zeros(), Vector3::zeros());
        let turned = |rotor: usize| {
            let mut command = [hover; ROTORS];
            command[rotor] += 50.0;
            run(&vehicle, start, &command, 0.1, 1e-3).rates_rad_s
        };
        assert!(turned(0).y < 0.0 && turned(0).z > 0.0, "a faster front rotor pitches the nose up");
        assert!(turned(1).x > 0.0 && turned(1).z < 0.0, "a faster left rotor rolls right");
    }

    #[test]
    fn a_rotor_reaches_63_percent_in_its_time_constant() {
        let vehicle = vehicle();
        let start = State { rotors_rad_s: [400.0; ROTORS], ..tumbling() };
        let up = run(&vehicle, start, &[500.0; ROTORS], 0.0125, 1e-4).rotors_rad_s[0];
        let down = run(&vehicle, start, &[300.0; ROTORS], 0.025, 1e-4).rotors_rad_s[0];
        assert!((up - 463.212).abs() < 0.01 && (down - 336.788).abs() < 0.01, "{up} {down}");
    }

    #[test]
    fn impossible_vehicles_are_refused_by_name() {
        let refused = |config: VehicleConfig| Vehicle::new(&config).unwrap_err().to_string();
        let ok = VehicleConfig::default;
        assert!(refused(VehicleConfig { mass_kg: f64::NAN, ..ok() }).contains("mass_kg"));
        assert!(refused(VehicleConfig { mass_kg: 3.0, ..ok() }).contains("hovering takes"));
        assert!(refused(VehicleConfig { inertia_kg_m2: [0.001, 0.001, 0.1], ..ok() }).contains("sum"));
        assert!(toml::from_str::<VehicleConfig>("mass = 1").unwrap_err().to_string().contains("mass_kg"));
    }

    proptest! {
        #[test]
        fn the_quaternion_stays_one_and_numbers_never_panic(
            rates in proptest::array::uniform3(-30.0..30.0f64),
            command in proptest::array::uniform4(prop_oneof![0.0..838.0f64, Just(f64::NAN), Just(f64::INFINITY)]),
            step_s in 1e-5..5e-3f64,
        ) {
            let vehicle = vehicle();
            let mut state = State { rates_rad_s: Vector3::from(rates), ..tumbling() };
            for _ in 0..50 {
                state = vehicle.step(&state, &command, step_s);
            }
            if command.iter().all(|c| c.is_finite()) {
                prop_assert!(state.is_finite());
                prop_assert!((state.attitude.norm() - 1.0).abs() < 1e-12);
            } else {
                prop_assert!(!state.is_finite());
            }
        }
    }
}
