//! The models of Universal Robots, with the maker's numbers.
//!
//! Kinematics: Universal Robots, "DH Parameters for calculations of kinematics and dynamics", and
//! `config/*/` of the maker's ROS 2 description, which also has offsets and joint speeds. Shapes:
//! fitted to the maker's visual meshes in the same description (`meshes/*/visual`), each link's
//! surface sampled at 40 000 points and all its vertices: the capsules of a link and its neighbours
//! hold every point, with 1 to 2 mm to spare, at the least sum of volumes. A capsule ends round
//! where a housing ends flat, so it stands up to some centimetres beyond it.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::{Arm, LINKS, LinkShape, TWISTS_RAD};

/// A model of arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// UR3 (CB series).
    Ur3,
    /// UR5 (CB series).
    Ur5,
    /// UR10 (CB series).
    Ur10,
    /// UR3e.
    Ur3e,
    /// UR5e.
    Ur5e,
    /// UR10e.
    Ur10e,
    /// UR16e.
    Ur16e,
    /// UR20.
    Ur20,
    /// UR30.
    Ur30,
}

/// Data of a model.
struct Data {
    /// d1, a2, a3, d4, d5, d6, metres.
    lengths_m: [f64; 6],
    /// Of the upper arm and of the forearm beside the plane of the shoulder, metres.
    offsets_m: [f64; 2],
    speeds_deg_s: [f64; 6],
    /// Begin, end and radius, metres.
    shapes_m: [[f64; 3]; LINKS],
}

const SMALL: [f64; 6] = [180.0, 180.0, 180.0, 360.0, 360.0, 360.0];
const EQUAL: [f64; 6] = [180.0; 6];
const LARGE: [f64; 6] = [120.0, 120.0, 180.0, 180.0, 180.0, 180.0];
const HEAVY: [f64; 6] = [120.0, 120.0, 150.0, 210.0, 210.0, 210.0];

impl Model {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Ur3,
        Self::Ur5,
        Self::Ur10,
        Self::Ur3e,
        Self::Ur5e,
        Self::Ur10e,
        Self::Ur16e,
        Self::Ur20,
        Self::Ur30,
    ];

    /// The nominal arm. A real one's calibration differs by millimetres.
    pub const fn arm(self) -> Arm {
        let Data { lengths_m: [d1, a2, a3, d4, d5, d6], speeds_deg_s, .. } = self.data();
        let mut speeds = [0.0; 6];
        let mut joint = 0;
        while joint < 6 {
            speeds[joint] = speeds_deg_s[joint] / 180.0 * PI;
            joint += 1;
        }
        Arm {
            a_m: [0.0, a2, a3, 0.0, 0.0, 0.0],
            d_m: [d1, 0.0, 0.0, d4, d5, d6],
            alpha_rad: TWISTS_RAD,
            theta_rad: [0.0; 6],
            joint_speed_max_rad_s: speeds,
            joint_range_rad: 2.0 * PI,
        }
    }

    /// Distance of upper arm and forearm from the plane of the shoulder, metres.
    pub(super) const fn offsets_m(self) -> (f64, f64) {
        let [shoulder, elbow] = self.data().offsets_m;
        (shoulder, elbow)
    }

    /// The links' capsules.
    pub(super) fn shapes(self) -> [LinkShape; LINKS] {
        let shape = |[begin_m, end_m, radius_m]: [f64; 3]| LinkShape { begin_m, end_m, radius_m };
        self.data().shapes_m.map(shape)
    }

    const fn data(self) -> Data {
        match self {
            Self::Ur3 => Data {
                lengths_m: [0.1519, -0.24365, -0.21325, 0.11235, 0.08535, 0.0819],
                offsets_m: [0.1198, 0.0275],
                speeds_deg_s: SMALL,
                shapes_m: [
                    [0.025, 0.115, 0.105],
                    [0.069, 0.156, 0.05],
                    [-0.032, -0.185, 0.049],
                    [0.054, 0.145, 0.049],
                    [-0.029, -0.18, 0.036],
                    [0.01, 0.071, 0.041],
                    [-0.024, 0.047, 0.039],
                    [-0.025, 0.065, 0.039],
                ],
            },
            Self::Ur5 => Data {
                lengths_m: [0.089159, -0.425, -0.39225, 0.10915, 0.09465, 0.0823],
                offsets_m: [0.13585, 0.0165],
                speeds_deg_s: EQUAL,
                shapes_m: [
                    [0.046, 0.053, 0.12],
                    [0.108, 0.166, 0.071],
                    [-0.052, -0.383, 0.061],
                    [0.037, 0.175, 0.067],
                    [-0.047, -0.32, 0.044],
                    [0.014, 0.105, 0.067],
                    [0.056, 0.056, 0.041],
                    [-0.02, 0.044, 0.052],
                ],
            },
            Self::Ur10 => Data {
                lengths_m: [0.1273, -0.612, -0.5723, 0.163941, 0.1157, 0.0922],
                offsets_m: [0.220941, 0.049042],
                speeds_deg_s: LARGE,
                shapes_m: [
                    [0.024, 0.131, 0.101],
                    [0.031, 0.169, 0.117],
                    [-0.114, -0.522, 0.102],
                    [0.03, 0.174, 0.083],
                    [-0.068, -0.506, 0.062],
                    [0.024, 0.088, 0.056],
                    [-0.005, 0.111, 0.07],
                    [0.062, 0.063, 0.052],
                ],
            },
            Self::Ur3e => Data {
                lengths_m: [0.15185, -0.24355, -0.2132, 0.13105, 0.08535, 0.0921],
                offsets_m: [0.12, 0.027],
                speeds_deg_s: SMALL,
                shapes_m: [
                    [0.017, 0.159, 0.068],
                    [0.075, 0.149, 0.054],
                    [-0.037, -0.195, 0.048],
                    [0.044, 0.15, 0.044],
                    [-0.032, -0.159, 0.036],
                    [0.026, 0.129, 0.054],
                    [0.046, 0.057, 0.034],
                    [-0.019, 0.07, 0.04],
                ],
            },
            Self::Ur5e => Data {
                lengths_m: [0.1625, -0.425, -0.3922, 0.1333, 0.0997, 0.0996],
                offsets_m: [0.138, 0.007],
                speeds_deg_s: EQUAL,
                shapes_m: [
                    [0.035, 0.171, 0.085],
                    [0.093, 0.173, 0.068],
                    [-0.043, -0.376, 0.061],
                    [0.024, 0.171, 0.07],
                    [-0.051, -0.345, 0.051],
                    [-0.029, 0.067, 0.042],
                    [-0.002, 0.096, 0.066],
                    [0.07, 0.07, 0.046],
                ],
            },
            Self::Ur10e => Data {
                lengths_m: [0.1807, -0.6127, -0.57155, 0.17415, 0.11985, 0.11655],
                offsets_m: [0.1762, 0.0393],
                speeds_deg_s: LARGE,
                shapes_m: [
                    [0.018, 0.052, 0.099],
                    [0.029, 0.178, 0.126],
                    [-0.108, -0.554, 0.068],
                    [0.079, 0.225, 0.065],
                    [-0.034, -0.525, 0.066],
                    [0.035, 0.168, 0.069],
                    [0.091, 0.114, 0.069],
                    [0.079, 0.074, 0.056],
                ],
            },
            Self::Ur16e => Data {
                lengths_m: [0.1807, -0.4784, -0.36, 0.17415, 0.11985, 0.11655],
                offsets_m: [0.176, 0.04],
                speeds_deg_s: LARGE,
                shapes_m: [
                    [0.018, 0.053, 0.099],
                    [0.03, 0.177, 0.125],
                    [-0.109, -0.412, 0.069],
                    [0.077, 0.214, 0.067],
                    [-0.039, -0.309, 0.064],
                    [0.035, 0.168, 0.069],
                    [0.091, 0.114, 0.068],
                    [0.079, 0.074, 0.056],
                ],
            },
            Self::Ur20 => Data {
                lengths_m: [0.2363, -0.862, -0.7287, 0.201, 0.1593, 0.1543],
                offsets_m: [0.26, 0.043],
                speeds_deg_s: HEAVY,
                shapes_m: [
                    [0.028, 0.235, 0.128],
                    [0.122, 0.253, 0.101],
                    [-0.037, -0.79, 0.096],
                    [0.033, 0.258, 0.082],
                    [-0.045, -0.706, 0.08],
                    [0.099, 0.144, 0.057],
                    [0.001, 0.153, 0.065],
                    [0.053, 0.129, 0.059],
                ],
            },
            Self::Ur30 => Data {
                lengths_m: [0.2363, -0.637, -0.5037, 0.201, 0.1593, 0.1543],
                offsets_m: [0.26, 0.043],
                speeds_deg_s: HEAVY,
                shapes_m: [
                    [0.019, 0.231, 0.127],
                    [0.092, 0.251, 0.101],
                    [-0.029, -0.555, 0.095],
                    [0.035, 0.259, 0.083],
                    [-0.048, -0.48, 0.08],
                    [0.085, 0.154, 0.054],
                    [0.003, 0.15, 0.064],
                    [0.047, 0.125, 0.06],
                ],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinematics::UR10E;

    #[test]
    fn the_ur10e_is_the_one_of_the_simulator() {
        assert_eq!(Model::Ur10e.arm(), UR10E);
    }

    #[test]
    fn names_are_those_of_the_maker() {
        #[derive(Deserialize)]
        struct File {
            model: Model,
        }
        for (name, model) in [("ur3", Model::Ur3), ("ur16e", Model::Ur16e), ("ur30", Model::Ur30)] {
            let file: File = toml::from_str(&format!("model = \"{name}\"")).unwrap();
            assert_eq!(file.model, model);
        }
    }
}
