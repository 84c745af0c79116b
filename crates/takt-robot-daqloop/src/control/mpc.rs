//! Linear model predictive control with limits on the input, which the paper names as its future
//! work.
//!
//! The states are eliminated ("condensed"). A quadratic cost of the inputs in a box is left, which
//! a fixed number of Nesterov's fast gradient steps descends, from the plan of the turn before
//! (Richter, Jones, Morari 2012). So each turn takes the same time, and nothing is allocated.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};
use takt_rt::config::{SettingError, within};

use super::Controller;
use super::model::{self, Sampled};
use crate::error::DaqError;
use crate::plant::{PlantConfig, Reference, State};

/// Horizon and weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MpcConfig {
    /// Inputs that are planned. 25.
    pub horizon: usize,
    /// Time that each of them holds in the plan, in periods of the plant. 20: the plan reaches half
    /// a second ahead, about as long as the plant takes to move.
    pub periods_per_step: usize,
    /// Weight of the squared error. 100.
    pub error: f64,
    /// Weight of the squared error of the speed. 1.
    pub speed: f64,
    /// Weight of the squared deviation from the input that would hold the reference. 0.01.
    pub input: f64,
    /// Gradient steps per turn. 50.
    pub iterations: usize,
    /// Rate at which a load unknown to the model is found, 1/s. 20.
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
    pub(crate) fn validate(&self) -> Result<(), SettingError> {
        for (key, value, most) in [
            ("controller.horizon", self.horizon, 500),
            ("controller.periods_per_step", self.periods_per_step, 10_000),
            ("controller.iterations", self.iterations, 100_000),
        ] {
            within(key, value as f64, 1.0, f64::from(most))?;
        }
        within("controller.error", self.error, 1e-9, 1e12)?;
        within("controller.speed", self.speed, 0.0, 1e12)?;
        within("controller.input", self.input, 1e-9, 1e12)?;
        within("controller.observer", self.observer, 0.0, 1e6)
    }
}

/// Greatest state that is believed: what a sensor shows beyond it is no state of a plant.
const MAX_STATE: f64 = 1e6;
/// Steps of the power iteration for the greatest eigenvalue, at start-up.
const POWER_STEPS: usize = 1000;

/// The controller.
#[derive(Clone, Debug)]
pub struct Mpc {
    config: MpcConfig,
    plant: PlantConfig,
    reference: Reference,
    point: State,
    step_s: f64,
    /// Hessian of the cost, row by row; symmetric.
    hessian: Vec<f64>,
    /// Gradient = hessian u + from_state x + from_load w + from_constant - from_reference r
    /// - input u_hold.
    from_state: Vec<[f64; 2]>,
    from_load: Vec<f64>,
    from_constant: Vec<f64>,
    /// A row for each input: what belongs to one lies together.
    from_reference: Vec<f64>,
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
    before: Option<(State, f64)>,
}

/// Powers of the model, of which the steps ahead are made.
struct Ahead {
    /// `a^m b`: what an input does `m + 1` steps later.
    response: Vec<State>,
    /// `a^k`, k = 1..n.
    power: Vec<[[f64; 2]; 2]>,
    /// The sum of `a^j d` and of `a^j c` up to step k.
    load: Vec<State>,
    constant: Vec<State>,
}

impl Ahead {
    fn of(model: &Sampled, steps: usize) -> Self {
        let times = |a: &[[f64; 2]; 2], x: State| [0, 1].map(|i| a[i][0] * x[0] + a[i][1] * x[1]);
        let columns = |a: &[[f64; 2]; 2]| [[a[0][0], a[1][0]], [a[0][1], a[1][1]]];
        let mut ahead =
            Self { response: Vec::new(), power: Vec::new(), load: Vec::new(), constant: Vec::new() };
        let mut response = model.b;
        let mut power = model.a;
        let (mut load, mut constant) = (model.d, model.c);
        for _ in 0..steps {
            ahead.response.push(response);
            ahead.power.push(power);
            ahead.load.push(load);
            ahead.constant.push(constant);
            response = times(&model.a, response);
            let [first, second] = columns(&power).map(|column| times(&model.a, column));
            power = [[first[0], second[0]], [first[1], second[1]]];
            // x_k+1 = a x_k + d: the sum of all powers before.
            load = [0, 1].map(|i| times(&model.a, load)[i] + model.d[i]);
            constant = [0, 1].map(|i| times(&model.a, constant)[i] + model.c[i]);
        }
        ahead
    }
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
        let ahead = Ahead::of(&model::sampled(plant, point, step_s), n);
        let weights = [config.error, config.speed];
        // Effect of an input at step `k`, weighted.
        let weighted = |k: usize, input: usize| {
            let response = ahead.response[k - input];
            [weights[0] * response[0], weights[1] * response[1]]
        };
        let dot = |a: State, b: State| a[0] * b[0] + a[1] * b[1];
        let (mut hessian, mut from_reference) = (vec![0.0; n * n], vec![0.0; 2 * n * n]);
        let (mut from_state, mut from_load, mut from_constant) =
            (vec![[0.0; 2]; n], vec![0.0; n], vec![0.0; n]);
        for i in 0..n {
            for k in i..n {
                let own = weighted(k, i);
                from_load[i] += dot(own, ahead.load[k]);
                from_constant[i] += dot(own, ahead.constant[k]);
                let power = ahead.power[k];
                for (column, sum) in from_state[i].iter_mut().enumerate() {
                    *sum += dot(own, [power[0][column], power[1][column]]);
                }
                from_reference[2 * n * i + 2 * k..][..2].copy_from_slice(&own);
                for j in 0..=k {
                    hessian[n * i + j] += dot(own, ahead.response[k - j]);
                }
            }
            hessian[n * i + i] += config.input;
        }
        let greatest = greatest_eigenvalue(&hessian, n);
        if !(greatest.is_finite() && greatest > 0.0 && hessian.iter().all(|h| h.is_finite())) {
            let reason =
                "the predicted plant diverges. Shorten controller.horizon or controller.periods_per_step"
                    .to_owned();
            return Err(DaqError::Controller { controller: "mpc", reason });
        }
        // No eigenvalue is below the weight of the input.
        let (greatest_root, least_root) = (greatest.sqrt(), config.input.min(greatest).sqrt());
        Ok(Self {
            config: config.clone(),
            plant: plant.clone(),
            reference: *reference,
            point,
            step_s,
            hessian,
            from_state,
            from_load,
            from_constant,
            from_reference,
            descent: 1.0 / greatest,
            momentum: (greatest_root - least_root) / (greatest_root + least_root),
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
        for (k, wanted) in self.wanted.chunks_exact_mut(2).enumerate() {
            let desired = self.reference.at(t_s + self.step_s * (k + 1) as f64);
            wanted[0] = desired.x;
            wanted[1] = desired.dx;
        }
        let ([f1, f2], rest) = model::linearised(&self.plant, self.point);
        let gain = self.plant.g(self.point);
        let rows = self.from_reference.chunks_exact(self.wanted.len());
        for (i, (linear, row)) in self.linear.iter_mut().zip(rows).enumerate() {
            // The input that would hold the reference in the middle of the step.
            let desired = self.reference.at(t_s + self.step_s * (i as f64 + 0.5));
            let hold = (desired.ddx - f1 * desired.x - f2 * desired.dx - rest - self.load) / gain;
            let pull: f64 = row.iter().zip(&self.wanted).map(|(weight, wanted)| weight * wanted).sum();
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
            // The gradient at `ahead`, row by row (the Hessian is symmetric): the sums do not wait
            // for each other. It is kept in `wanted`, which is free now.
            let slope = &mut self.wanted[..n];
            slope.copy_from_slice(&self.linear);
            for (row, u) in self.hessian.chunks_exact(n).zip(&self.ahead) {
                for (slope, h) in slope.iter_mut().zip(row) {
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

    /// Follows the load that the model does not know by what the last turn did otherwise than
    /// predicted.
    fn observe(&mut self, dt_s: f64, x: State) {
        let Some((before, u)) = self.before else { return };
        let model = model::sampled(&self.plant, self.point, dt_s);
        // Of the speed: d[1] is about the time that has passed.
        let surprise = x[1] - model.next(before, u, self.load)[1];
        let step = self.config.observer * surprise * dt_s / model.d[1].max(f64::MIN_POSITIVE);
        // No more than twice what an input could hold against.
        let most = 2.0 * self.plant.g(self.point).abs() * self.plant.input_limit;
        let load = (self.load + step).clamp(-most, most);
        self.load = if load.is_finite() { load } else { 0.0 };
    }
}

/// The greatest eigenvalue of a symmetric, positive matrix of `n` rows, not less than it is: by
/// power iteration, and never above the greatest sum of a row, which bounds it.
fn greatest_eigenvalue(matrix: &[f64], n: usize) -> f64 {
    let bound = matrix.chunks_exact(n).map(|row| row.iter().map(|h| h.abs()).sum()).fold(0.0, f64::max);
    let mut vector: Vec<f64> = (0..n).map(|i| 1.0 + i as f64 / n as f64).collect();
    let mut estimate = 0.0;
    for _ in 0..POWER_STEPS {
        let length = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
        vector.iter_mut().for_each(|v| *v /= length);
        let next: Vec<f64> =
            matrix.chunks_exact(n).map(|row| row.iter().zip(&vector).map(|(h, v)| h * v).sum()).collect();
        estimate = next.iter().zip(&vector).map(|(a, b)| a * b).sum();
        vector = next;
    }
    // The iteration comes from below.
    f64::min(bound, 1.01 * estimate)
}

impl Controller for Mpc {
    fn control(&mut self, t_s: f64, dt_s: f64, x: State) -> f64 {
        if !x.iter().all(|x| x.abs() <= MAX_STATE) {
            // A sensor that shows no number, or nonsense: the plan goes on, and nothing is learned
            // of this turn.
            self.before = None;
            return self.plan[0];
        }
        self.observe(dt_s, x);
        // The descent starts from the last plan itself: a turn is a small part of its step.
        self.set_linear(t_s, x);
        self.descend();
        if self.plan.iter().any(|u| !u.is_finite()) {
            self.plan.fill(0.0);
        }
        let u = self.plan[0];
        self.before = Some((x, u));
        u
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plant::Dynamics;
    use proptest::prelude::*;

    fn built(config: &MpcConfig, plant: &PlantConfig) -> Mpc {
        Mpc::new(config, plant, &Reference::default()).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// At the optimum of a convex cost in a box no input can improve: the slope is 0 inside,
        /// and points outwards at the limits.
        #[test]
        fn the_descent_ends_at_the_optimum(
            x1 in -2.0f64..2.0, x2 in -4.0f64..4.0, limit in 1.0f64..50.0
        ) {
            let plant = PlantConfig { input_limit: limit, ..PlantConfig::default() };
            let config = MpcConfig { iterations: 20_000, horizon: 12, ..MpcConfig::default() };
            let mut mpc = built(&config, &plant);
            mpc.set_linear(0.0, [x1, x2]);
            mpc.descend();
            let n = mpc.plan.len();
            let tolerance = 1e-9 / mpc.descent * limit.max(1.0);
            for i in 0..n {
                let u = mpc.plan[i];
                prop_assert!(u.abs() <= limit);
                let row = &mpc.hessian[i * n..(i + 1) * n];
                let slope = row.iter().zip(&mpc.plan).map(|(h, u)| h * u).sum::<f64>() + mpc.linear[i];
                if u.abs() < limit {
                    prop_assert!(slope.abs() < tolerance, "input {i}: slope {slope}");
                } else {
                    prop_assert!(slope * u < tolerance, "input {i} at {u}: slope {slope}");
                }
            }
        }

        /// The cost that the condensed problem has is that of the steps one by one.
        #[test]
        fn the_condensed_cost_is_that_of_the_steps(
            x1 in -1.0f64..1.0, x2 in -1.0f64..1.0, load in -3.0f64..3.0, seed in 0u32..1000
        ) {
            let config = MpcConfig { horizon: 6, ..MpcConfig::default() };
            let plant = PlantConfig::default();
            let mut mpc = built(&config, &plant);
            mpc.load = load;
            mpc.set_linear(0.0, [x1, x2]);
            let step = model::sampled(&plant, mpc.point, mpc.step_s);
            let ([f1, _], rest) = model::linearised(&plant, mpc.point);
            let hold = (-f1 - rest - load) / plant.g(mpc.point);
            let cost = |plan: &[f64]| {
                let mut x = [x1, x2];
                let mut sum = 0.0;
                for &u in plan {
                    x = step.next(x, u, load);
                    sum += config.error * (x[0] - 1.0).powi(2) + config.speed * x[1] * x[1];
                    sum += config.input * (u - hold).powi(2);
                }
                sum / 2.0
            };
            let at = |i: usize, by: f64| {
                let plan: Vec<f64> = (0..6).map(|j| f64::from((seed * 7 + j * 31) % 11) - 5.0).collect();
                let plan: Vec<f64> =
                    plan.iter().enumerate().map(|(j, u)| if i == j { u + by } else { *u }).collect();
                plan
            };
            for i in 0..6 {
                let measured = (cost(&at(i, 1e-3)) - cost(&at(i, -1e-3))) / 2e-3;
                let row = &mpc.hessian[6 * i..6 * (i + 1)];
                let slope: f64 = row.iter().zip(&at(i, 0.0)).map(|(h, u)| h * u).sum::<f64>() + mpc.linear[i];
                prop_assert!((measured - slope).abs() < 1e-6 * (1.0 + slope.abs()), "{i}: {measured} {slope}");
            }
        }
    }

    #[test]
    fn the_greatest_eigenvalue_is_not_underestimated() {
        let known = greatest_eigenvalue(&[2.0, 1.0, 1.0, 2.0], 2);
        assert!((3.0..3.04).contains(&known), "{known}");
        let diagonal = greatest_eigenvalue(&[5.0, 0.0, 0.0, 1.0], 2);
        assert!((5.0..5.06).contains(&diagonal), "{diagonal}");
    }

    #[test]
    fn a_plan_that_grows_beyond_numbers_is_refused() {
        let plant = PlantConfig { dynamics: Dynamics::VanDerPol { mu: 1e6 }, ..PlantConfig::default() };
        let reference = Reference::Constant { value: 0.0 };
        let error = Mpc::new(&MpcConfig::default(), &plant, &reference).unwrap_err().to_string();
        assert!(error.contains("mpc") && error.contains("horizon"), "{error}");
    }

    #[test]
    fn a_sensor_without_a_number_costs_that_turn_alone() {
        let mut mpc = built(&MpcConfig::default(), &PlantConfig::default());
        mpc.control(0.0, 1e-3, [0.0, 0.0]);
        for x in [[f64::NAN, 0.0], [0.0, f64::INFINITY], [1e308, -1e308]] {
            assert!(mpc.control(0.0, 1e-3, x).is_finite(), "{x:?}");
        }
        let u = mpc.control(0.0, 1e-3, [0.0, 0.0]);
        assert!(u > 0.0 && u <= 50.0, "it goes on towards the reference: {u}");
    }
}
