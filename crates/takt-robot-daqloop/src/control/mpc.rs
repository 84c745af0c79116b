//! Linear model predictive control with limits on the input: the states are eliminated ("condensed"), and what is
//! left, a quadratic cost of the inputs in a box, is descended by a fixed number of Nesterov's fast gradient steps
//! from the last solution, moved on (Richter, Jones, Morari 2012). Constant time, no allocation.

use nalgebra::{DMatrix, DVector, Matrix2, Vector2};
use serde::{Deserialize, Serialize};

use super::model::Sampled;
use super::{Controller, model, within};
use crate::error::DaqError;
use crate::plant::{PlantConfig, Reference, State};

/// Horizon and weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MpcConfig {
    /// Inputs that are planned. 25.
    pub horizon: usize,
    /// Time that each of them holds in the plan, in periods of the plant. 20: the plan then reaches half a second
    /// ahead, about as long as the plant takes to move.
    pub periods_per_step: usize,
    /// Weight of the squared error. 100.
    pub error: f64,
    /// Weight of the squared error of the speed. 1.
    pub speed: f64,
    /// Weight of the squared deviation from the input that would hold the reference. 0.01.
    pub input: f64,
    /// Gradient steps per turn. 50.
    pub iterations: usize,
    /// How fast a load that the model does not know is found, 1/s. 20.
    pub observer: f64,
}

impl Default for MpcConfig {
    fn default() -> Self {
        Self {
            horizon: 25,
            periods_per_step: 20,
            error: 100.0,
            speed: 1.0,
            input: 0.01,
            iterations: 50,
            observer: 20.0,
        }
    }
}

impl MpcConfig {
    pub(crate) fn validate(&self) -> Result<(), DaqError> {
        for (key, value, most) in [
            ("controller.horizon", self.horizon, 500),
            ("controller.periods_per_step", self.periods_per_step, 10_000),
            ("controller.iterations", self.iterations, 100_000),
        ] {
            if !(1..=most).contains(&value) {
                return Err(DaqError::config(key, value, format!("accepted are 1 to {most}")));
            }
        }
        within("controller.error", self.error, 1e-9..=1e12)?;
        within("controller.speed", self.speed, 0.0..=1e12)?;
        within("controller.input", self.input, 1e-9..=1e12)?;
        within("controller.observer", self.observer, 0.0..=1e6)
    }
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Mpc {
    config: MpcConfig,
    plant: PlantConfig,
    reference: Reference,
    point: State,
    step_s: f64,
    /// Hessian of the cost, row by row.
    hessian: Vec<f64>,
    /// Gradient = hessian u + from_state x + from_load w - from_reference r - input u_hold.
    from_state: Vec<[f64; 2]>,
    from_load: Vec<f64>,
    from_constant: Vec<f64>,
    from_reference: DMatrix<f64>,
    /// 1 / L, the step of the descent.
    descent: f64,
    momentum: f64,
    /// The plan, and what the descent needs beside it.
    plan: Vec<f64>,
    ahead: Vec<f64>,
    linear: Vec<f64>,
    wanted: Vec<f64>,
    /// Acceleration that the model does not explain.
    load: f64,
    /// State and input of the turn before.
    before: Option<(Vector2<f64>, f64)>,
}

impl Mpc {
    /// Condenses the problem.
    ///
    /// # Errors
    /// [`DaqError::Controller`] where the numbers leave what can be computed with.
    pub fn new(config: &MpcConfig, plant: &PlantConfig, reference: &Reference) -> Result<Self, DaqError> {
        let n = config.horizon;
        let point = reference.operating_point();
        let step_s = plant.period_s() * config.periods_per_step as f64;
        let Sampled { a, b, c, d } = model::sampled(plant, point, step_s);
        // x_k = a^k x + sum of a^(k-1-j) (b u_j + c + d w), k = 1..n.
        let mut powers = vec![Matrix2::identity()];
        for k in 0..n {
            powers.push(powers[k] * a);
        }
        let mut gamma = DMatrix::<f64>::zeros(2 * n, n);
        let (mut state, mut load, mut constant) =
            (DMatrix::<f64>::zeros(2 * n, 2), DVector::<f64>::zeros(2 * n), DVector::<f64>::zeros(2 * n));
        let mut sum = Matrix2::<f64>::zeros();
        for k in 1..=n {
            sum += powers[k - 1];
            let row = 2 * (k - 1);
            state.fixed_view_mut::<2, 2>(row, 0).copy_from(&powers[k]);
            load.fixed_view_mut::<2, 1>(row, 0).copy_from(&(sum * d));
            constant.fixed_view_mut::<2, 1>(row, 0).copy_from(&(sum * c));
            for j in 0..k {
                gamma.fixed_view_mut::<2, 1>(row, j).copy_from(&(powers[k - 1 - j] * b));
            }
        }
        let weights = DVector::from_fn(2 * n, |i, _| if i % 2 == 0 { config.error } else { config.speed });
        let weighted = gamma.transpose() * DMatrix::from_diagonal(&weights);
        let mut hessian = &weighted * &gamma;
        for i in 0..n {
            hessian[(i, i)] += config.input;
        }
        let eigenvalues = hessian.clone().symmetric_eigenvalues();
        let (least, most) = (eigenvalues.min().max(config.input), eigenvalues.max());
        if !(most.is_finite() && most > 0.0) {
            let reason = "the predicted plant grows beyond all numbers; shorten controller.horizon or \
                          controller.periods_per_step"
                .to_owned();
            return Err(DaqError::Controller { controller: "mpc", reason });
        }
        let from_state = &weighted * state;
        Ok(Self {
            config: config.clone(),
            plant: plant.clone(),
            reference: *reference,
            point,
            step_s,
            // Symmetric: columns are rows.
            hessian: hessian.as_slice().to_vec(),
            from_state: (0..n).map(|i| [from_state[(i, 0)], from_state[(i, 1)]]).collect(),
            from_load: (&weighted * load).as_slice().to_vec(),
            from_constant: (&weighted * constant).as_slice().to_vec(),
            // Transposed, so that what belongs to one input lies together.
            from_reference: weighted.transpose(),
            descent: 1.0 / most,
            momentum: (most.sqrt() - least.sqrt()) / (most.sqrt() + least.sqrt()),
            plan: vec![0.0; n],
            ahead: vec![0.0; n],
            linear: vec![0.0; n],
            wanted: vec![0.0; 2 * n],
            load: 0.0,
            before: None,
        })
    }

    /// The plan: inputs from now on, one per step.
    pub fn plan(&self) -> &[f64] {
        &self.plan
    }

    /// The linear part of the cost's gradient for this state and reference.
    fn set_linear(&mut self, t_s: f64, x: State) {
        let mut hold = 0.0;
        for (k, wanted) in self.wanted.chunks_exact_mut(2).enumerate() {
            let desired = self.reference.at(t_s + self.step_s * (k + 1) as f64);
            wanted[0] = desired.x;
            wanted[1] = desired.dx;
        }
        let [f1, f2] = self.plant.dynamics.gradient(self.point);
        let gain = self.plant.g(self.point);
        let rest = self.plant.dynamics.f(self.point) - f1 * self.point[0] - f2 * self.point[1];
        for (i, linear) in self.linear.iter_mut().enumerate() {
            // The input that would hold the reference in the middle of the step.
            if i == 0 || !matches!(self.reference, Reference::Constant { .. }) {
                let desired = self.reference.at(t_s + self.step_s * (i as f64 + 0.5));
                hold = (desired.ddx - f1 * desired.x - f2 * desired.dx - rest - self.load) / gain;
            }
            let column = self.from_reference.column(i);
            let pull: f64 =
                column.as_slice().iter().zip(&self.wanted).map(|(weight, wanted)| weight * wanted).sum();
            let [s1, s2] = self.from_state[i];
            *linear = s1 * x[0] + s2 * x[1] + self.from_load[i] * self.load + self.from_constant[i]
                - pull
                - self.config.input * hold;
        }
    }

    /// Descends from the last plan.
    fn descend(&mut self) {
        let n = self.plan.len();
        let limit = self.plant.input_limit;
        self.ahead.copy_from_slice(&self.plan);
        for _ in 0..self.config.iterations {
            // The gradient at `ahead`, column by column (the Hessian is symmetric): the sums do not wait for each
            // other. It is kept in `wanted`, which is free now.
            let slope = &mut self.wanted[..n];
            slope.copy_from_slice(&self.linear);
            for (column, u) in self.hessian.chunks_exact(n).zip(&self.ahead) {
                for (slope, h) in slope.iter_mut().zip(column) {
                    *slope += h * u;
                }
            }
            for (slope, u) in slope.iter_mut().zip(&self.ahead) {
                *slope = (u - self.descent * *slope).clamp(-limit, limit);
            }
            for i in 0..n {
                let (new, old) = (self.wanted[i], self.plan[i]);
                self.plan[i] = new;
                self.ahead[i] = new + self.momentum * (new - old);
            }
        }
    }
}

impl Controller for Mpc {
    fn control(&mut self, t_s: f64, dt_s: f64, x: State) -> f64 {
        let now = Vector2::new(x[0], x[1]);
        if let Some((before, u)) = self.before {
            let Sampled { a, b, c, d } = model::sampled(&self.plant, self.point, dt_s);
            let surprise = now - (a * before + b * u + c + d * self.load);
            // Of the speed: d[1] is about the time that has passed.
            self.load +=
                (self.config.observer * surprise[1] * dt_s / d[1].max(f64::MIN_POSITIVE)).clamp(-1e6, 1e6);
            if !self.load.is_finite() {
                self.load = 0.0;
            }
        }
        // The start for the descent is the last plan itself: a period is a small part of its step.
        self.set_linear(t_s, x);
        self.descend();
        let u = self.plan[0];
        self.before = Some((now, u));
        u
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn built(config: &MpcConfig, plant: &PlantConfig) -> Mpc {
        Mpc::new(config, plant, &Reference::default()).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// At the optimum of a convex cost in a box no input can improve: the slope is 0 inside, and points outwards at
        /// the limits.
        #[test]
        fn the_descent_ends_at_the_optimum(x1 in -2.0f64..2.0, x2 in -4.0f64..4.0, limit in 1.0f64..50.0) {
            let plant = PlantConfig { input_limit: limit, ..PlantConfig::default() };
            let config = MpcConfig { iterations: 20_000, ..MpcConfig::default() };
            let mut mpc = built(&config, &plant);
            mpc.set_linear(0.0, [x1, x2]);
            mpc.descend();
            let n = mpc.plan.len();
            let scale = 1.0 / mpc.descent;
            for i in 0..n {
                let u = mpc.plan[i];
                prop_assert!(u.abs() <= limit);
                let row = &mpc.hessian[i * n..(i + 1) * n];
                let slope = row.iter().zip(&mpc.plan).map(|(h, u)| h * u).sum::<f64>() + mpc.linear[i];
                let tolerance = 1e-9 * scale * limit.max(1.0);
                if u.abs() < limit {
                    prop_assert!(slope.abs() < tolerance, "input {i}: slope {slope}");
                } else {
                    prop_assert!(slope * u < tolerance, "input {i} at {u}: slope {slope}");
                }
            }
        }
    }

    #[test]
    fn a_plan_that_grows_beyond_numbers_is_refused() {
        let plant =
            PlantConfig { dynamics: crate::plant::Dynamics::VanDerPol { mu: 1e6 }, ..PlantConfig::default() };
        let reference = Reference::Constant { value: 0.0 };
        let error = Mpc::new(&MpcConfig::default(), &plant, &reference).unwrap_err().to_string();
        assert!(error.contains("mpc") && error.contains("horizon"), "{error}");
    }
}
