//! Linear models of the plant, sampled.

use nalgebra::{SMatrix, Vector2};

use crate::plant::{PlantConfig, State};

/// `x+ = a x + b u + c` over one period.
#[derive(Clone, Copy, Debug)]
pub struct Sampled {
    pub a: SMatrix<f64, 2, 2>,
    pub b: Vector2<f64>,
    pub c: Vector2<f64>,
    /// How a constant acceleration that the model lacks acts over a period.
    pub d: Vector2<f64>,
}

/// The plant linearised about `point` (and no input), with everything constant during a period of `h_s`.
pub fn sampled(plant: &PlantConfig, point: State, h_s: f64) -> Sampled {
    let [f1, f2] = plant.dynamics.gradient(point);
    let g = plant.g(point);
    // What the linear part does not explain of f at the point.
    let rest = plant.dynamics.f(point) - f1 * point[0] - f2 * point[1];
    // Van Loan: the exponential of the system with its constant input as a third state.
    let acceleration =
        exponential(&SMatrix::<f64, 3, 3>::new(0.0, 1.0, 0.0, f1, f2, 1.0, 0.0, 0.0, 0.0).scale(h_s));
    let a = acceleration.fixed_view::<2, 2>(0, 0).into_owned();
    let d = Vector2::new(acceleration[(0, 2)], acceleration[(1, 2)]);
    Sampled { a, b: d * g, c: d * rest, d }
}

/// The exponential of a matrix: Taylor's series after scaling, squared back.
fn exponential<const N: usize>(m: &SMatrix<f64, N, N>) -> SMatrix<f64, N, N> {
    let norm = m.iter().fold(0.0f64, |norm, x| norm.max(x.abs())) * N as f64;
    let halvings = norm.log2().ceil().clamp(0.0, 60.0) as i32 + 1;
    let scaled = m.scale(0.5f64.powi(halvings));
    let identity = SMatrix::<f64, N, N>::identity();
    // The norm is at most a half: 18 terms are exact.
    let mut sum = identity;
    for k in (1..=18).rev() {
        sum = identity + scaled * sum / f64::from(k);
    }
    for _ in 0..halvings {
        sum *= sum;
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
        let quarter = SMatrix::<f64, 2, 2>::new(0.0, -1.0, 1.0, 0.0).scale(std::f64::consts::FRAC_PI_2);
        let turned = exponential(&quarter);
        assert!((turned - SMatrix::<f64, 2, 2>::new(0.0, -1.0, 1.0, 0.0)).norm() < 1e-14);
        let large = exponential(&SMatrix::<f64, 1, 1>::new(20.0));
        assert!((large[0] / 20f64.exp() - 1.0).abs() < 1e-12);
    }

    proptest! {
        /// Near the point, the model and the simulated plant agree to second order.
        #[test]
        fn the_model_is_the_plant_near_its_point(x1 in -1.5f64..1.5, e1 in -1e-3f64..1e-3, e2 in -1e-3f64..1e-3) {
            let plant = PlantConfig {
                dynamics: Dynamics::Duffing { linear: 1.0, cubic: 2.0, damping: 0.2 },
                gain_variation: 0.0,
                start: [x1 + e1, e2],
                ..PlantConfig::default()
            };
            let model = sampled(&plant, [x1, 0.0], plant.period_s());
            let u = 0.7;
            let mut simulated = Plant::new(&plant);
            simulated.step(u);
            let predicted = model.a * Vector2::new(x1 + e1, e2) + model.b * u + model.c;
            let [s1, s2] = simulated.state();
            prop_assert!((predicted[0] - s1).abs() < 1e-7 && (predicted[1] - s2).abs() < 1e-6);
        }
    }
}
