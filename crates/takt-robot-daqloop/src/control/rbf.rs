//! A network of radial basis functions over the plane of the states: `w' phi(x)` with Gaussians on
//! a grid.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};

use crate::error::DaqError;
use crate::plant::State;

/// Most neurons of one network: 32 MiB of weights.
const MAX_NEURONS: usize = 1 << 22;

/// A grid of Gaussians. A neuron stands at every pair of a centre of `x1` and a centre of `x2`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RbfConfig {
    /// Centres along `x1`.
    pub centres_x1: Vec<f64>,
    /// Centres along `x2`.
    pub centres_x2: Vec<f64>,
    /// Width along `x1`: at this distance from its centre a neuron has fallen to exp(-1/2).
    pub width_x1: f64,
    /// Width along `x2`.
    pub width_x2: f64,
}

impl RbfConfig {
    /// `count` centres on each axis, evenly from `-reach` to `reach`, each as wide as their
    /// distance.
    pub fn even(count: usize, reach: [f64; 2]) -> Self {
        let distance = |reach: f64| 2.0 * reach / count.saturating_sub(1).max(1) as f64;
        let centres = |reach: f64| (0..count).map(|i| -reach + distance(reach) * i as f64).collect();
        Self {
            centres_x1: centres(reach[0]),
            centres_x2: centres(reach[1]),
            width_x1: distance(reach[0]),
            width_x2: distance(reach[1]),
        }
    }

    pub(crate) fn neurons(&self) -> usize {
        self.centres_x1.len().saturating_mul(self.centres_x2.len())
    }

    pub(crate) fn validate(&self, key: &'static str) -> Result<(), DaqError> {
        let neurons = self.neurons();
        if !(1..=MAX_NEURONS).contains(&neurons) {
            let accepted = format!("accepted are 1 to {MAX_NEURONS} neurons (centres_x1 times centres_x2)");
            return Err(DaqError::config(key, format!("{neurons} neurons"), accepted));
        }
        if let Some(centre) = self.centres_x1.iter().chain(&self.centres_x2).find(|c| !c.is_finite()) {
            return Err(DaqError::config(key, format!("centre {centre}"), "accepted are finite centres"));
        }
        for width in [self.width_x1, self.width_x2] {
            if !(1e-9..=1e9).contains(&width) {
                return Err(DaqError::config(
                    key,
                    format!("width {width}"),
                    "accepted are widths of 1e-9 to 1e9",
                ));
            }
        }
        Ok(())
    }
}

/// `a' b`, in eight sums at once: one sum would wait for each addition.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(x, y)| x * y).sum();
    let mut sums = [0.0; 8];
    for (a, b) in a.zip(b) {
        for (sum, (x, y)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += x * y;
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// A network with its weights.
#[derive(Clone, Debug)]
pub struct Rbf {
    centres_x1: Vec<f64>,
    centres_x2: Vec<f64>,
    /// `1 / (2 width²)`.
    narrow_x1: f64,
    narrow_x2: f64,
    /// The factors of the Gaussians at the last state: a Gaussian of two axes is a product of two
    /// of one.
    along_x1: Vec<f64>,
    along_x2: Vec<f64>,
    weights: Vec<f64>,
}

impl Rbf {
    /// With all weights 0: it knows nothing.
    pub fn new(config: &RbfConfig) -> Self {
        let narrow = |width: f64| 1.0 / (2.0 * width * width);
        Self {
            centres_x1: config.centres_x1.clone(),
            centres_x2: config.centres_x2.clone(),
            narrow_x1: narrow(config.width_x1),
            narrow_x2: narrow(config.width_x2),
            along_x1: vec![0.0; config.centres_x1.len()],
            along_x2: vec![0.0; config.centres_x2.len()],
            weights: vec![0.0; config.neurons()],
        }
    }

    /// The network's value at `x`; the neurons' activations stay for [`learn`](Self::learn).
    pub fn value(&mut self, [x1, x2]: State) -> f64 {
        for (phi, centre) in self.along_x1.iter_mut().zip(&self.centres_x1) {
            *phi = (-(x1 - centre) * (x1 - centre) * self.narrow_x1).exp();
        }
        for (phi, centre) in self.along_x2.iter_mut().zip(&self.centres_x2) {
            *phi = (-(x2 - centre) * (x2 - centre) * self.narrow_x2).exp();
        }
        let rows = self.weights.chunks_exact(self.along_x2.len());
        let row = |(phi1, weights): (&f64, &[f64])| phi1 * dot(weights, &self.along_x2);
        self.along_x1.iter().zip(rows).map(row).sum()
    }

    /// `w += push phi - forget w`, with the activations of the last [`value`](Self::value).
    pub fn learn(&mut self, push: f64, forget: f64) {
        let keep = 1.0 - forget;
        let width = self.along_x2.len();
        for (phi1, row) in self.along_x1.iter().zip(self.weights.chunks_exact_mut(width)) {
            let push = push * phi1;
            for (w, phi2) in row.iter_mut().zip(&self.along_x2) {
                *w = keep * *w + push * phi2;
            }
        }
    }

    /// As [`learn`](Self::learn), but the forgetting takes the weights of another network of as
    /// many neurons: `w += push phi - forget other`.
    pub(crate) fn learn_leaking(&mut self, push: f64, forget: f64, other: &[f64]) {
        let width = self.along_x2.len();
        let rows = self.weights.chunks_exact_mut(width).zip(other.chunks_exact(width));
        for (phi1, (row, other)) in self.along_x1.iter().zip(rows) {
            let push = push * phi1;
            for ((w, phi2), other) in row.iter_mut().zip(&self.along_x2).zip(other) {
                *w += push * phi2 - forget * other;
            }
        }
    }

    /// The weights, row by row along `x2`.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_the_sum_over_neurons() {
        let config = RbfConfig {
            centres_x1: vec![-1.0, 0.5],
            centres_x2: vec![0.0, 1.0, 3.0],
            width_x1: 0.7,
            width_x2: 1.3,
        };
        let mut rbf = Rbf::new(&config);
        rbf.weights = vec![1.0, -2.0, 0.5, 3.0, 0.25, -1.0];
        let x = [0.2, 0.9];
        let mut expected = 0.0;
        for (i, c1) in config.centres_x1.iter().enumerate() {
            for (j, c2) in config.centres_x2.iter().enumerate() {
                let distance = ((x[0] - c1) / 0.7f64).powi(2) + ((x[1] - c2) / 1.3f64).powi(2);
                expected += rbf.weights[i * 3 + j] * (-distance / 2.0).exp();
            }
        }
        assert!((rbf.value(x) - expected).abs() < 1e-14);
    }

    #[test]
    fn it_learns_a_function_from_errors() {
        let target = |x: State| x[0].sin() - 0.3 * x[1];
        let mut rbf = Rbf::new(&RbfConfig::even(7, [2.0, 2.0]));
        let points: Vec<State> = (0..400)
            .map(|i| [(f64::from(i) * 0.37).sin() * 1.5, (f64::from(i) * 0.61).cos() * 1.5])
            .collect();
        for _ in 0..400 {
            for &x in &points {
                let error = target(x) - rbf.value(x);
                rbf.learn(0.2 * error, 0.0);
            }
        }
        let worst = points.iter().map(|&x| (target(x) - rbf.value(x)).abs()).fold(0.0, f64::max);
        assert!(worst < 0.02, "{worst}");
        // Forgetting alone returns to nothing.
        for _ in 0..2000 {
            rbf.learn(0.0, 0.01);
        }
        assert!(rbf.value([0.5, 0.5]).abs() < 1e-6);
    }

    #[test]
    fn grids_are_even_and_checked() {
        let even = RbfConfig::even(5, [2.0, 4.0]);
        assert_eq!(even.centres_x1, [-2.0, -1.0, 0.0, 1.0, 2.0]);
        assert_eq!((even.width_x2, even.neurons()), (2.0, 25));
        even.validate("k").unwrap();
        for wrong in [
            RbfConfig { centres_x1: vec![], ..even.clone() },
            RbfConfig { centres_x2: vec![f64::NAN], ..even.clone() },
            RbfConfig { width_x1: 0.0, ..even.clone() },
        ] {
            assert!(wrong.validate("controller.f").unwrap_err().to_string().contains("controller.f"));
        }
    }
}
