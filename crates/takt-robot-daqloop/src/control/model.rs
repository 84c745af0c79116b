//! The plant, linearised and sampled: what model predictive control predicts with.

use crate::plant::{PlantConfig, State};

/// A matrix of three rows.
type Matrix3 = [[f64; 3]; 3];

/// `x+ = a x + b u + c` over one step, and `d`: what a constant acceleration adds that the model
/// lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampled {
    pub a: [[f64; 2]; 2],
    pub b: State,
    pub c: State,
    pub d: State,
}

impl Sampled {
    /// The state after one step.
    pub fn next(&self, x: State, u: f64, load: f64) -> State {
        let Self { a, b, c, d } = self;
        [0, 1].map(|i| a[i][0] * x[0] + a[i][1] * x[1] + b[i] * u + c[i] + d[i] * load)
    }
}

/// The part of `f` near `point` that is linear: its slopes, and what they leave of it.
pub(crate) fn linearised(plant: &PlantConfig, point: State) -> ([f64; 2], f64) {
    let [f1, f2] = plant.dynamics.gradient(point);
    ([f1, f2], plant.dynamics.f(point) - f1 * point[0] - f2 * point[1])
}

/// The plant linearised about `point`, with everything constant during `h_s`.
pub(crate) fn sampled(plant: &PlantConfig, point: State, h_s: f64) -> Sampled {
    let ([f1, f2], rest) = linearised(plant, point);
    let gain = plant.g(point);
    // Van Loan (1978): the exponential of the system with its constant input as a third state.
    let system: Matrix3 = [[0.0, h_s, 0.0], [f1 * h_s, f2 * h_s, h_s], [0.0; 3]];
    let e = exponential(&system);
    let d = [e[0][2], e[1][2]];
    Sampled { a: [[e[0][0], e[0][1]], [e[1][0], e[1][1]]], b: d.map(|d| d * gain), c: d.map(|d| d * rest), d }
}

fn product(a: &Matrix3, b: &Matrix3) -> Matrix3 {
    let mut product = [[0.0; 3]; 3];
    for (row, a) in product.iter_mut().zip(a) {
        for (j, value) in row.iter_mut().enumerate() {
            *value = a[0] * b[0][j] + a[1] * b[1][j] + a[2] * b[2][j];
        }
    }
    product
}

/// The exponential of a matrix: Taylor's series after halving, squared back.
fn exponential(m: &Matrix3) -> Matrix3 {
    let norm = m.iter().flatten().fold(0.0f64, |norm, x| norm.max(x.abs())) * 3.0;
    let halvings = norm.log2().ceil().clamp(0.0, 60.0) as i32 + 1;
    let scaled = m.map(|row| row.map(|x| x * 0.5f64.powi(halvings)));
    let identity: Matrix3 = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let mut sum = identity;
    // The norm is at most a half: 18 terms are exact.
    for k in (1..=18).rev() {
        let next = product(&scaled, &sum);
        for (row, (next, identity)) in sum.iter_mut().zip(next.iter().zip(&identity)) {
            for (value, (next, identity)) in row.iter_mut().zip(next.iter().zip(identity)) {
                *value = identity + next / f64::from(k);
            }
        }
    }
    for _ in 0..halvings {
        sum = product(&sum, &sum);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plant::{Dynamics, Plant};
    use proptest::prelude::*;

    #[test]
    fn the_exponential_of_a_rotation_turns() {
        let quarter = std::f64::consts::FRAC_PI_2;
        let turned = exponential(&[[0.0, -quarter, 0.0], [quarter, 0.0, 0.0], [0.0; 3]]);
        let expected = [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]];
        for (row, expected) in turned.iter().zip(&expected) {
            assert!(row.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-14), "{turned:?}");
        }
        let large = exponential(&[[20.0, 0.0, 0.0], [0.0; 3], [0.0; 3]])[0][0];
        assert!((large / 20f64.exp() - 1.0).abs() < 1e-12, "{large}");
    }

    proptest! {
        /// Near its point the model and the simulated plant agree to second order.
        #[test]
        fn the_model_is_the_plant_near_its_point(
            x1 in -1.5f64..1.5, e1 in -1e-3f64..1e-3, e2 in -1e-3f64..1e-3
        ) {
            let plant = PlantConfig {
                dynamics: Dynamics::Duffing { linear: 1.0, cubic: 2.0, damping: 0.2 },
                gain_variation: 0.0,
                start: [x1 + e1, e2],
                ..PlantConfig::default()
            };
            let model = sampled(&plant, [x1, 0.0], plant.period_s());
            let mut simulated = Plant::new(&plant);
            simulated.step(0.7);
            let predicted = model.next([x1 + e1, e2], 0.7, 0.0);
            let [s1, s2] = simulated.state();
            prop_assert!((predicted[0] - s1).abs() < 1e-7 && (predicted[1] - s2).abs() < 1e-6);
        }
    }
}
