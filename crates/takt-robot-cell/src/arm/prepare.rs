//! Gets the arm's shape ready before the cell starts, by the controller's own calibration.

use std::time::Duration;

use nalgebra::Isometry3;
use takt_link_rtde::kinematics::{Arm, Body, Model};
use takt_link_rtde::primary::read_kinematics;

use super::config::{KinematicsSource, ShapeConfig};
use super::shape::ArmShape;
use crate::error::CellError;

/// Time that the controller may take to report its kinematics: it sends them ten times a second.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most that a calibrated arm's flange may be away from the nominal one's, metres. Calibrations
/// differ by millimetres; the two models that are nearest to each other by 20 mm and more.
const MAX_CALIBRATION_M: f64 = 0.015;

/// An arm's kinematics, and their source.
#[derive(Clone, Debug)]
pub struct Kinematics {
    pub arm: Arm,
    /// Note that must be reported: they are not the requested ones.
    pub note: Option<String>,
}

/// Gets the arm's shape ready: reads the controller's calibration where that is asked for. Blocks
/// for some seconds.
///
/// # Errors
/// The controller's arm is not the one that is configured.
pub fn prepare_arm(
    config: &ShapeConfig,
    host: &str,
    primary_port: u16,
) -> Result<(ArmShape, Option<String>), CellError> {
    let Kinematics { arm, note } = kinematics(config, host, primary_port)?;
    Ok((ArmShape::new(config, Body::new(config.model, &arm)), note))
}

fn kinematics(config: &ShapeConfig, host: &str, port: u16) -> Result<Kinematics, CellError> {
    let nominal = config.model.arm();
    if config.kinematics == KinematicsSource::Nominal {
        return Ok(Kinematics { arm: nominal, note: None });
    }
    match read_kinematics(host, port, PATIENCE) {
        Ok(info) => {
            let arm = info.arm(&nominal);
            let off_m = distance_m(&arm, &nominal);
            if off_m.is_finite() && off_m <= MAX_CALIBRATION_M {
                return Ok(Kinematics { arm, note: None });
            }
            let best = Model::ALL.into_iter().map(|model| (model, distance_m(&arm, &model.arm())));
            let best = best.filter(|(_, off)| *off <= MAX_CALIBRATION_M).map(|(model, _)| model).next();
            let looks =
                best.map_or(String::new(), |model| format!("; it reports those of a {}", name(model)));
            Err(CellError::OtherArm {
                model: name(config.model),
                off_m,
                accepted_m: MAX_CALIBRATION_M,
                looks,
            })
        }
        Err(error) => Ok(Kinematics {
            arm: nominal,
            note: Some(format!(
                "robot.shape.kinematics = \"controller\": not read ({error}); the maker's nominal values for a {} are used. Open port \
                 {port}, or set \"nominal\"",
                name(config.model)
            )),
        }),
    }
}

/// The model as a file names it.
fn name(model: Model) -> String {
    format!("{model:?}").to_ascii_lowercase()
}

/// Greatest distance between the flanges of two arms over poses that use every joint.
fn distance_m(a: &Arm, b: &Arm) -> f64 {
    (0..40u32)
        .map(|case| {
            let joints = std::array::from_fn(|j| f64::from((case * 37 + j as u32 * 53) % 61) * 0.1 - 3.0);
            let at = |arm: &Arm| arm.forward(&joints, &Isometry3::identity()).translation.vector;
            (at(a) - at(b)).norm()
        })
        .fold(0.0, |most, off| if off.is_nan() { f64::NAN } else { f64::max(most, off) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_link_rtde::sim::{Calibration, SimConfig, Simulator};

    fn simulated(model: Model, calibration: Calibration) -> Simulator {
        Simulator::start(SimConfig { model, calibration, ..SimConfig::on_free_ports() }).unwrap()
    }

    fn prepare(config: &ShapeConfig, simulator: &Simulator) -> Result<(ArmShape, Option<String>), CellError> {
        let address = simulator.primary_address();
        prepare_arm(config, &address.ip().to_string(), address.port())
    }

    #[test]
    fn models_are_further_apart_than_calibrations() {
        for a in Model::ALL {
            for b in Model::ALL.into_iter().filter(|b| *b != a) {
                let off = distance_m(&a.arm(), &b.arm());
                assert!(off > 1.3 * MAX_CALIBRATION_M, "{a:?} and {b:?}: {off}");
            }
        }
    }

    #[test]
    fn the_controller_s_calibration_is_used_and_another_arm_is_refused() {
        let calibration = Calibration { a_m: [0.0, 1e-3, -1e-3, 0.0, 0.0, 0.0], ..Calibration::default() };
        let simulator = simulated(Model::Ur10e, calibration);
        let (shape, note) = prepare(&ShapeConfig::of(Model::Ur10e), &simulator).unwrap();
        assert_eq!((shape.body().arm(), note), (&calibration.of(&Model::Ur10e.arm()), None));
        let error = prepare(&ShapeConfig::of(Model::Ur5e), &simulator).unwrap_err().to_string();
        assert!(error.contains("those of a ur10e") && error.contains("\"ur5e\""), "{error}");
    }

    #[test]
    fn a_controller_that_does_not_report_leaves_the_nominal_arm_and_a_note() {
        let simulator = simulated(Model::Ur10e, Calibration::default());
        let address = simulator.dashboard_address();
        let mut config = ShapeConfig::of(Model::Ur10e);
        let (shape, note) = prepare_arm(&config, &address.ip().to_string(), address.port()).unwrap();
        assert_eq!(shape.body().arm(), &Model::Ur10e.arm());
        assert!(note.unwrap().contains("nominal"));
        config.kinematics = KinematicsSource::Nominal;
        assert_eq!(prepare_arm(&config, "256.0.0.1", 1).unwrap().1, None, "nobody is asked");
    }
}
