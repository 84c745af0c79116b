//! Parameters of the vehicle. The defaults are one published airframe.

#![deny(missing_docs)]

use nalgebra::Vector3;
use serde::{Deserialize, Serialize};
use takt_rt::config::{SettingError, all_within};

/// Standard gravity, m/s².
pub const GRAVITY_M_S2: f64 = 9.806_65;

/// Rotors of the vehicle.
pub const ROTORS: usize = 4;

/// Arrangement of the rotors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Front, left, back, right.
    #[default]
    Plus,
    /// Front left, back left, back right, front right.
    X,
}

/// `[vehicle]`. The defaults are the AscTec Hummingbird with its four rotors, as identified for the
/// RotorS simulator (Furrer et al., "RotorS: A Modular Gazebo MAV Simulator Framework", 2016;
/// `hummingbird.xacro`), and for the air, where RotorS has nothing, as in RotorPy (Folk, Paulos,
/// Kumar, 2023; `hummingbird_params.py`).
///
/// Left out, being small beside these: the rotors' gyroscopic moment and the reaction to their
/// acceleration (rotor inertia below 1e-5 kg·m²), blade flapping, and the ground effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VehicleConfig {
    /// Mass, kg. 0.716: body 0.68 and four rotors of 0.009 (RotorS).
    pub mass_kg: f64,
    /// Moments of inertia about the body's axes, kg·m². Body 0.007, 0.007, 0.012 (RotorS), and the
    /// rotors as points at the ends of the arms.
    pub inertia_kg_m2: [f64; 3],
    /// Distance of a rotor's axis from the centre of mass, m. 0.17 (RotorS).
    pub arm_m: f64,
    /// Arrangement of the rotors. `plus`, as the Hummingbird flies.
    pub layout: Layout,
    /// Thrust of a rotor over its speed squared, N·s²/rad². 8.54858e-6 (RotorS).
    pub thrust_n_s2: f64,
    /// Drag torque of a rotor over its thrust, m. 0.016 (RotorS).
    pub torque_per_thrust_m: f64,
    /// Time constant of a rotor that speeds up, ms. 12.5 (RotorS).
    pub spin_up_ms: f64,
    /// Time constant of a rotor that slows down, ms. 25 (RotorS).
    pub spin_down_ms: f64,
    /// Least commanded rotor speed, rad/s. 100: motors do not stop in flight (a choice; an eighth
    /// of the greatest speed is a seventieth of the thrust).
    pub rotor_min_rad_s: f64,
    /// Greatest rotor speed, rad/s. 838 (RotorS): 24 N in all, 3.4 times the weight.
    pub rotor_max_rad_s: f64,
    /// Drag of a turning rotor across its axis, N over (rad/s · m/s). 8.06428e-5 (RotorS).
    pub rotor_drag_kg: f64,
    /// Loss of thrust of a rotor that moves along its axis, N over (rad/s · m/s); with the arms it
    /// is what damps roll and pitch. 2.32e-4 (RotorPy).
    pub rotor_inflow_kg: f64,
    /// Drag of the frame along the body's axes, N over (m/s)². 0.005, 0.005, 0.01 (RotorPy).
    pub frame_drag_kg_m: [f64; 3],
}

impl Default for VehicleConfig {
    fn default() -> Self {
        let (rotor_kg, arm_m) = (0.009, 0.17);
        let rotor = rotor_kg * arm_m * arm_m;
        Self {
            mass_kg: 0.68 + 4.0 * rotor_kg,
            inertia_kg_m2: [0.007 + 2.0 * rotor, 0.007 + 2.0 * rotor, 0.012 + 4.0 * rotor],
            arm_m,
            layout: Layout::Plus,
            thrust_n_s2: 8.548_58e-6,
            torque_per_thrust_m: 0.016,
            spin_up_ms: 12.5,
            spin_down_ms: 25.0,
            rotor_min_rad_s: 100.0,
            rotor_max_rad_s: 838.0,
            rotor_drag_kg: 8.064_28e-5,
            rotor_inflow_kg: 2.32e-4,
            frame_drag_kg_m: [0.005, 0.005, 0.01],
        }
    }
}

impl VehicleConfig {
    /// Positions of the rotors in the body frame (x forward, y left, z up).
    pub(crate) fn rotor_positions(&self) -> [Vector3<f64>; ROTORS] {
        let (a, d) = (self.arm_m, self.arm_m * std::f64::consts::FRAC_1_SQRT_2);
        let at = |(x, y): (f64, f64)| Vector3::new(x, y, 0.0);
        match self.layout {
            Layout::Plus => [(a, 0.0), (0.0, a), (-a, 0.0), (0.0, -a)].map(at),
            Layout::X => [(d, d), (-d, d), (-d, -d), (d, -d)].map(at),
        }
    }

    /// The sign of the torque about z with which each rotor's drag turns the body: the first turns
    /// clockwise seen from above, so its drag turns the body the other way.
    pub(crate) const fn yaw_signs(&self) -> [f64; ROTORS] {
        [1.0, -1.0, 1.0, -1.0]
    }

    /// Weight, N.
    pub(crate) fn weight_n(&self) -> f64 {
        self.mass_kg * GRAVITY_M_S2
    }

    /// Speed at which four rotors carry the weight, rad/s.
    pub(crate) fn hover_rad_s(&self) -> f64 {
        (self.weight_n() / (4.0 * self.thrust_n_s2)).sqrt()
    }

    /// Least and greatest thrust of one rotor, N.
    pub(crate) fn rotor_thrust_range_n(&self) -> (f64, f64) {
        let thrust = |speed: f64| self.thrust_n_s2 * speed * speed;
        (thrust(self.rotor_min_rad_s), thrust(self.rotor_max_rad_s))
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        let [jx, jy, jz] = self.inertia_kg_m2;
        let [dx, dy, dz] = self.frame_drag_kg_m;
        all_within(
            "vehicle.",
            &[
                ("mass_kg", self.mass_kg, 0.01, 100.0),
                ("inertia_kg_m2[0]", jx, 1e-7, 100.0),
                ("inertia_kg_m2[1]", jy, 1e-7, 100.0),
                ("inertia_kg_m2[2]", jz, 1e-7, 100.0),
                ("arm_m", self.arm_m, 0.01, 5.0),
                ("thrust_n_s2", self.thrust_n_s2, 1e-12, 1.0),
                ("torque_per_thrust_m", self.torque_per_thrust_m, 1e-6, 1.0),
                ("spin_up_ms", self.spin_up_ms, 2.0, 1000.0),
                ("spin_down_ms", self.spin_down_ms, 2.0, 1000.0),
                ("rotor_min_rad_s", self.rotor_min_rad_s, 0.0, 1e5),
                ("rotor_max_rad_s", self.rotor_max_rad_s, 1.0, 1e5),
                ("rotor_drag_kg", self.rotor_drag_kg, 0.0, 1.0),
                ("rotor_inflow_kg", self.rotor_inflow_kg, 0.0, 1.0),
                ("frame_drag_kg_m[0]", dx, 0.0, 10.0),
                ("frame_drag_kg_m[1]", dy, 0.0, 10.0),
                ("frame_drag_kg_m[2]", dz, 0.0, 10.0),
            ],
        )?;
        if jx + jy < jz || jy + jz < jx || jz + jx < jy {
            return Err(SettingError::value(
                "vehicle.inertia_kg_m2",
                format!("[{jx}, {jy}, {jz}]"),
                "no moment of inertia may exceed the sum of the others",
            ));
        }
        if self.rotor_min_rad_s >= self.hover_rad_s() || self.hover_rad_s() * 1.2 > self.rotor_max_rad_s {
            let [least, greatest, hover] =
                [self.rotor_min_rad_s, self.rotor_max_rad_s, self.hover_rad_s().round()];
            return Err(SettingError::conflict(
                format!("vehicle: rotors run at {least} to {greatest} rad/s, but hovering takes {hover}"),
                "accepted: a lowest speed below it, and a highest at least a fifth above it",
            ));
        }
        Ok(())
    }
}
