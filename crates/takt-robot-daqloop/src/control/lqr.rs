//! Linear quadratic regulator with integral action, about the nominal input of the reference.

use nalgebra::{SMatrix, SVector};
use serde::{Deserialize, Serialize};

use super::{Controller, model, within};
use crate::error::DaqError;
use crate::plant::{PlantConfig, Reference, State};

/// Weights of the cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LqrConfig {
    /// Of the squared error. 1000.
    pub error: f64,
    /// Of the squared error of the speed. 1.
    pub speed: f64,
    /// Of the squared integral of the error. 2000: what the linear model does not know is taken up within a second.
    pub integral: f64,
    /// Of the squared input. 0.01.
    pub input: f64,
}

impl Default for LqrConfig {
    fn default() -> Self {
        Self { error: 1000.0, speed: 1.0, integral: 2000.0, input: 0.01 }
    }
}

impl LqrConfig {
    pub(crate) fn validate(&self) -> Result<(), DaqError> {
        within("controller.error", self.error, 1e-9..=1e12)?;
        within("controller.speed", self.speed, 0.0..=1e12)?;
        within("controller.integral", self.integral, 1e-9..=1e12)?;
        within("controller.input", self.input, 1e-9..=1e12)
    }
}

/// The stabilising solution of the discrete algebraic Riccati equation
/// `p = a'pa - a'pb (r + b'pb)^-1 b'pa + q`, by doubling (Chu, Fan, Lin, Wang 2004: quadratic convergence), and the
/// gain `(r + b'pb)^-1 b'pa`. None where it does not converge: the pair (a, b) cannot be stabilised, or (a, q) not be
/// seen.
pub fn riccati<const N: usize>(
    a: &SMatrix<f64, N, N>,
    b: &SVector<f64, N>,
    q: &SMatrix<f64, N, N>,
    r: f64,
) -> Option<(SMatrix<f64, N, N>, SVector<f64, N>)> {
    let identity = SMatrix::<f64, N, N>::identity();
    let (mut f, mut g, mut p) = (*a, b * b.transpose() / r, *q);
    for _ in 0..64 {
        let inverse = (identity + g * p).try_inverse()?;
        let step = f.transpose() * p * inverse * f;
        g += f * inverse * g * f.transpose();
        f = f * inverse * f;
        p += step;
        // Rounding must not make it unsymmetric.
        p = (p + p.transpose()) / 2.0;
        if !p.norm().is_finite() {
            return None;
        }
        if step.norm() <= 1e-12 * p.norm() {
            let gain = (b.transpose() * p * a).transpose() / (r + (b.transpose() * p * b)[0]);
            return Some((p, gain));
        }
    }
    None
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Lqr {
    gain: SVector<f64, 3>,
    plant: PlantConfig,
    reference: Reference,
    integral: f64,
}

impl Lqr {
    /// Solves the Riccati equation for the plant linearised about the reference.
    ///
    /// # Errors
    /// [`DaqError::Controller`] where it has no solution.
    pub fn new(config: &LqrConfig, plant: &PlantConfig, reference: &Reference) -> Result<Self, DaqError> {
        let h = plant.period_s();
        let model = model::sampled(plant, reference.operating_point(), h);
        // The third state adds up the error.
        let mut a = SMatrix::<f64, 3, 3>::identity();
        a.fixed_view_mut::<2, 2>(0, 0).copy_from(&model.a);
        a[(2, 0)] = h;
        let b = SVector::<f64, 3>::new(model.b[0], model.b[1], 0.0);
        let q = SMatrix::<f64, 3, 3>::from_diagonal(&SVector::<f64, 3>::new(
            config.error,
            config.speed,
            config.integral,
        ));
        let (_, gain) = riccati(&a, &b, &q, config.input).ok_or_else(|| DaqError::Controller {
            controller: "lqr",
            reason: "the Riccati equation of this plant and these weights has no stabilising solution; choose weights \
                     nearer to each other"
                .to_owned(),
        })?;
        Ok(Self { gain, plant: plant.clone(), reference: *reference, integral: 0.0 })
    }
}

impl Controller for Lqr {
    fn control(&mut self, t_s: f64, dt_s: f64, x: State) -> f64 {
        let desired = self.reference.at(t_s);
        let (e, de) = (x[0] - desired.x, x[1] - desired.dx);
        let on_reference = [desired.x, desired.dx];
        // What holds the nominal plant on the reference.
        let feedforward = (desired.ddx - self.plant.dynamics.f(on_reference)) / self.plant.g(on_reference);
        let u = feedforward - self.gain[0] * e - self.gain[1] * de - self.gain[2] * self.integral;
        let limit = self.plant.input_limit;
        // At the limit the integral stands still, unless it helps to leave it.
        if u.abs() <= limit || -u * self.gain[2] * e < 0.0 {
            self.integral += e * dt_s;
        }
        u.clamp(-limit, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_scalar_equation_has_its_known_solution() {
        // p = p - p²/(1 + p) + 1: p² - p - 1 = 0, the golden ratio.
        let one = SMatrix::<f64, 1, 1>::new(1.0);
        let (p, gain) = riccati(&one, &SVector::<f64, 1>::new(1.0), &one, 1.0).unwrap();
        let golden = (1.0 + 5f64.sqrt()) / 2.0;
        assert!((p[0] - golden).abs() < 1e-12);
        assert!((gain[0] - golden / (1.0 + golden)).abs() < 1e-12);
    }

    #[test]
    fn what_cannot_be_stabilised_is_refused() {
        let a = SMatrix::<f64, 2, 2>::new(2.0, 0.0, 0.0, 0.5);
        let b = SVector::<f64, 2>::new(0.0, 1.0);
        assert!(riccati(&a, &b, &SMatrix::identity(), 1.0).is_none());
    }

    proptest! {
        #[test]
        fn the_solution_solves_and_stabilises(
            entries in proptest::array::uniform9(-1.5f64..1.5),
            inputs in proptest::array::uniform3(-1.0f64..1.0),
            r in 0.01f64..10.0,
        ) {
            let a = SMatrix::<f64, 3, 3>::from_row_slice(&entries);
            let b = SVector::<f64, 3>::from_row_slice(&inputs);
            let reach = SMatrix::<f64, 3, 3>::from_columns(&[b, a * b, a * a * b]);
            prop_assume!(reach.determinant().abs() > 1e-3);
            let q = SMatrix::<f64, 3, 3>::identity();
            let (p, gain) = riccati(&a, &b, &q, r).expect("a reachable pair has a solution");
            let closed = a - b * gain.transpose();
            let residual = a.transpose() * p * closed + q - p;
            prop_assert!(residual.norm() <= 1e-7 * p.norm(), "{}", residual.norm() / p.norm());
            let power = (0..12).fold(closed, |m, _| m * m);
            prop_assert!(power.norm() < 1.0, "not stable: {}", power.norm());
        }
    }
}
