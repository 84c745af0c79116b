//! Plants of the controllers: nonlinear plants in the affine form of the paper's equation 1,
//! `x1' = x2, x2' = f(x) + g(x) u + d`, simulated in real time at the far end of the link
//! ([`serve`]).

#![deny(missing_docs)]

use std::f64::consts::TAU;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::DaqError;

mod real_time;
pub use real_time::serve;
pub(crate) use real_time::{Description, Wiring};

/// The state `(x1, x2)`: position and speed.
pub type State = [f64; 2];

/// `f(x)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Dynamics {
    /// `-gravity sin(x1) - damping x2`: a pendulum that hangs at 0.
    Pendulum {
        /// g/l, 1/s². 9.81: one metre long.
        #[serde(default = "gravity")]
        gravity: f64,
        /// 1/s. 0.5.
        #[serde(default = "half")]
        damping: f64,
    },
    /// `linear x1 - cubic x1³ - damping x2`: two wells.
    Duffing {
        /// 1/s². 1.
        #[serde(default = "one")]
        linear: f64,
        /// 1/s². 2: the reference 1 is then no equilibrium, and holding it takes force.
        #[serde(default = "two")]
        cubic: f64,
        /// 1/s. 0.2.
        #[serde(default = "fifth")]
        damping: f64,
    },
    /// `mu (1 - x1²) x2 - x1`: an oscillator that excites itself.
    VanDerPol {
        /// 1.
        #[serde(default = "one")]
        mu: f64,
    },
}

fn gravity() -> f64 {
    9.81
}
fn half() -> f64 {
    0.5
}
fn one() -> f64 {
    1.0
}
fn two() -> f64 {
    2.0
}
fn fifth() -> f64 {
    0.2
}

impl Default for Dynamics {
    fn default() -> Self {
        Self::Pendulum { gravity: gravity(), damping: half() }
    }
}

impl Dynamics {
    /// `f(x)`.
    pub fn f(&self, [x1, x2]: State) -> f64 {
        match *self {
            Self::Pendulum { gravity, damping } => -gravity * x1.sin() - damping * x2,
            Self::Duffing { linear, cubic, damping } => linear * x1 - cubic * x1.powi(3) - damping * x2,
            Self::VanDerPol { mu } => mu * (1.0 - x1 * x1) * x2 - x1,
        }
    }

    /// `(df/dx1, df/dx2)`.
    pub fn gradient(&self, [x1, x2]: State) -> [f64; 2] {
        match *self {
            Self::Pendulum { gravity, damping } => [-gravity * x1.cos(), -damping],
            Self::Duffing { linear, cubic, damping } => [linear - 3.0 * cubic * x1 * x1, -damping],
            Self::VanDerPol { mu } => [-2.0 * mu * x1 * x2 - 1.0, mu * (1.0 - x1 * x1)],
        }
    }
}

/// The plant (`[plant]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlantConfig {
    /// `f(x)`.
    pub dynamics: Dynamics,
    /// `g(x) = gain (1 + gain_variation cos(x1))`. 2.
    pub gain: f64,
    /// Dependence of the input gain on the state. 0.2.
    pub gain_variation: f64,
    /// Amplitude of the disturbance, a sine. 0: none.
    pub disturbance: f64,
    /// Its frequency. 0.5 Hz.
    pub disturbance_hz: f64,
    /// Greatest input; what a controller asks beyond is cut off. 50.
    pub input_limit: f64,
    /// Assumed duration of one iteration of the control loop where it is unknown: in the first
    /// iteration, for the steps of a predictive law, and for the largest leak of the neuro-adaptive
    /// law. 1 ms. The loop itself runs as fast as the link lets it, and the plant in real time.
    #[serde(with = "takt_rt::duration")]
    pub period: Duration,
    /// Input of the plant for each volt of the drive. 5: the greatest input at the 10 V of a board.
    pub drive_per_v: f64,
    /// Position for each volt of the first sensor. 0.5: 5 either way.
    pub position_per_v: f64,
    /// Speed for each volt of the second sensor. 2: 20 either way.
    pub speed_per_v: f64,
    /// The state at the start. At rest at 0.
    pub start: State,
}

impl Default for PlantConfig {
    fn default() -> Self {
        Self {
            dynamics: Dynamics::default(),
            gain: 2.0,
            gain_variation: 0.2,
            disturbance: 0.0,
            disturbance_hz: 0.5,
            input_limit: 50.0,
            period: Duration::from_millis(1),
            drive_per_v: 5.0,
            position_per_v: 0.5,
            speed_per_v: 2.0,
            start: [0.0, 0.0],
        }
    }
}

impl PlantConfig {
    /// `g(x)`.
    pub fn g(&self, [x1, _]: State) -> f64 {
        self.gain * (1.0 + self.gain_variation * x1.cos())
    }

    /// Simulated seconds of one turn.
    pub fn period_s(&self) -> f64 {
        self.period.as_secs_f64()
    }

    pub(crate) fn validate(&self) -> Result<(), DaqError> {
        let coefficients = match self.dynamics {
            Dynamics::Pendulum { gravity, damping } => [gravity, damping, 0.0],
            Dynamics::Duffing { linear, cubic, damping } => [linear, cubic, damping],
            Dynamics::VanDerPol { mu } => [mu, 0.0, 0.0],
        };
        if coefficients.iter().any(|c| !(-1e6..=1e6).contains(c)) {
            let given = format!("{:?}", self.dynamics);
            return Err(DaqError::config(
                "plant.dynamics",
                given,
                "accepted are coefficients of -1e6 to 1e6",
            ));
        }
        // The paper demands a gain that is nowhere zero.
        if !(1e-6..=1e6).contains(&self.gain.abs()) {
            return Err(DaqError::config(
                "plant.gain",
                self.gain,
                "accepted are gains of 1e-6 to 1e6, or negative",
            ));
        }
        if !(0.0..=0.9).contains(&self.gain_variation.abs()) {
            let accepted = "accepted are -0.9 to 0.9: the gain must nowhere be zero";
            return Err(DaqError::config("plant.gain_variation", self.gain_variation, accepted));
        }
        for (key, value) in
            [("plant.disturbance", self.disturbance), ("plant.disturbance_hz", self.disturbance_hz)]
        {
            if !(0.0..=1e6).contains(&value) {
                return Err(DaqError::config(key, value, "accepted are 0 to 1e6"));
            }
        }
        if !(1e-6..=1e9).contains(&self.input_limit) {
            return Err(DaqError::config("plant.input_limit", self.input_limit, "accepted are 1e-6 to 1e9"));
        }
        if !(Duration::from_micros(1)..=Duration::from_millis(100)).contains(&self.period) {
            let given = takt_rt::duration::format(self.period);
            return Err(DaqError::config("plant.period", given, "accepted are 1us to 100ms"));
        }
        for (key, value) in [
            ("plant.drive_per_v", self.drive_per_v),
            ("plant.position_per_v", self.position_per_v),
            ("plant.speed_per_v", self.speed_per_v),
        ] {
            if !(1e-6..=1e6).contains(&value.abs()) {
                return Err(DaqError::config(key, value, "accepted are 1e-6 to 1e6, or negative"));
            }
        }
        if self.start.iter().any(|x| !(-1e3..=1e3).contains(x)) {
            let given = format!("{:?}", self.start);
            return Err(DaqError::config("plant.start", given, "accepted are states of -1000 to 1000"));
        }
        Ok(())
    }
}

/// A running plant.
#[derive(Clone, Debug)]
pub struct Plant {
    config: PlantConfig,
    state: State,
    steps: u64,
    /// Seconds that were no whole periods.
    between_s: f64,
}

impl Plant {
    /// At its start.
    pub fn new(config: &PlantConfig) -> Self {
        Self { config: config.clone(), state: config.start, steps: 0, between_s: 0.0 }
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Simulated seconds since the start.
    pub fn time_s(&self) -> f64 {
        self.steps as f64 * self.config.period_s() + self.between_s
    }

    /// One period under the input `u`. Returns the input after the limit.
    pub fn step(&mut self, u: f64) -> f64 {
        let u = self.integrate(self.config.period_s(), u);
        self.steps += 1;
        u
    }

    /// Any time under the input `u`, at most some milliseconds: one step of the integration.
    pub fn advance(&mut self, h_s: f64, u: f64) -> f64 {
        let u = self.integrate(h_s, u);
        self.between_s += h_s;
        u
    }

    /// Runge and Kutta's fourth order. An invalid number counts as no input; a state that diverged
    /// starts again from the beginning.
    fn integrate(&mut self, h: f64, u: f64) -> f64 {
        let limit = self.config.input_limit;
        let u = if u.is_nan() { 0.0 } else { u.clamp(-limit, limit) };
        let t = self.time_s();
        let slope = |x: State, t: f64| {
            let d = self.config.disturbance * (TAU * self.config.disturbance_hz * t).sin();
            [x[1], self.config.dynamics.f(x) + self.config.g(x) * u + d]
        };
        let along = |x: State, k: State, h: f64| [x[0] + h * k[0], x[1] + h * k[1]];
        let x = self.state;
        let k1 = slope(x, t);
        let k2 = slope(along(x, k1, h / 2.0), t + h / 2.0);
        let k3 = slope(along(x, k2, h / 2.0), t + h / 2.0);
        let k4 = slope(along(x, k3, h), t + h);
        let next = [0, 1].map(|i| x[i] + h / 6.0 * (k1[i] + 2.0 * k2[i] + 2.0 * k3[i] + k4[i]));
        self.state = if next.iter().all(|x| x.abs() < 1e9) { next } else { self.config.start };
        u
    }
}

/// Reference of the plant (`[reference]`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Reference {
    /// Always the same.
    Constant {
        /// The paper's is 1.
        value: f64,
    },
    /// `amplitude sin(2 pi frequency_hz t)`.
    Sine {
        /// In the plant's unit.
        amplitude: f64,
        /// Of the simulated time.
        frequency_hz: f64,
    },
}

impl Default for Reference {
    fn default() -> Self {
        Self::Constant { value: 1.0 }
    }
}

/// A reference and its derivatives at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Desired {
    /// `xr`.
    pub x: f64,
    /// `xr'`.
    pub dx: f64,
    /// `xr''`.
    pub ddx: f64,
}

impl Reference {
    /// The reference at a time.
    pub fn at(&self, t_s: f64) -> Desired {
        match *self {
            Self::Constant { value } => Desired { x: value, dx: 0.0, ddx: 0.0 },
            Self::Sine { amplitude, frequency_hz } => {
                let omega = TAU * frequency_hz;
                let (sin, cos) = (omega * t_s).sin_cos();
                Desired {
                    x: amplitude * sin,
                    dx: amplitude * omega * cos,
                    ddx: -amplitude * omega * omega * sin,
                }
            }
        }
    }

    /// A point to linearise about.
    pub(crate) fn operating_point(&self) -> State {
        match *self {
            Self::Constant { value } => [value, 0.0],
            Self::Sine { .. } => [0.0, 0.0],
        }
    }

    pub(crate) fn validate(&self) -> Result<(), DaqError> {
        let (key, value, most) = match *self {
            Self::Constant { value } => ("reference.value", value, 1e3),
            Self::Sine { amplitude, .. } if !(0.0..=1e3).contains(&amplitude) => {
                ("reference.amplitude", amplitude, 1e3)
            }
            Self::Sine { frequency_hz, .. } => ("reference.frequency_hz", frequency_hz, 100.0),
        };
        if value.abs() <= most {
            return Ok(());
        }
        Err(DaqError::config(key, value, format!("accepted are values up to {most}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Dynamics; 3] = [
        Dynamics::Pendulum { gravity: 9.81, damping: 0.5 },
        Dynamics::Duffing { linear: 1.0, cubic: 2.0, damping: 0.2 },
        Dynamics::VanDerPol { mu: 1.0 },
    ];

    #[test]
    fn a_free_pendulum_without_damping_keeps_its_energy() {
        let config = PlantConfig {
            dynamics: Dynamics::Pendulum { gravity: 9.81, damping: 0.0 },
            start: [1.0, 0.0],
            ..PlantConfig::default()
        };
        let mut plant = Plant::new(&config);
        let energy = |[x1, x2]: State| x2 * x2 / 2.0 - 9.81 * x1.cos();
        let before = energy(plant.state());
        for _ in 0..10_000 {
            plant.step(0.0);
        }
        assert!((energy(plant.state()) - before).abs() < 1e-8);
        assert_eq!(plant.time_s(), 10.0);
    }

    #[test]
    fn the_input_is_cut_off_and_nan_is_none() {
        let mut plant = Plant::new(&PlantConfig::default());
        assert_eq!(plant.step(1e12), 50.0);
        assert_eq!(plant.step(f64::NAN), 0.0);
        assert!(plant.state().iter().all(|x| x.is_finite()));
    }

    proptest! {
        #[test]
        fn gradients_are_those_of_f(x1 in -3.0f64..3.0, x2 in -3.0f64..3.0, which in 0..3usize) {
            let dynamics = ALL[which];
            let h = 1e-6;
            let [g1, g2] = dynamics.gradient([x1, x2]);
            let d1 = (dynamics.f([x1 + h, x2]) - dynamics.f([x1 - h, x2])) / (2.0 * h);
            let d2 = (dynamics.f([x1, x2 + h]) - dynamics.f([x1, x2 - h])) / (2.0 * h);
            prop_assert!((g1 - d1).abs() < 1e-5 && (g2 - d2).abs() < 1e-5);
        }

        #[test]
        fn derivatives_of_the_reference_are_its_derivatives(t in 0.0f64..10.0, f in 0.01f64..2.0) {
            let reference = Reference::Sine { amplitude: 1.5, frequency_hz: f };
            let h = 1e-5;
            let (a, b, c) = (reference.at(t - h), reference.at(t), reference.at(t + h));
            prop_assert!(((c.x - a.x) / (2.0 * h) - b.dx).abs() < 1e-4);
            prop_assert!(((c.dx - a.dx) / (2.0 * h) - b.ddx).abs() < 1e-3);
        }

        #[test]
        fn no_input_makes_the_state_anything_but_a_number(
            inputs in proptest::collection::vec(any::<f64>(), 1..200),
            which in 0..3usize,
        ) {
            let mut plant = Plant::new(&PlantConfig {
                dynamics: ALL[which], period: Duration::from_millis(100), input_limit: 1e9, ..PlantConfig::default()
            });
            for u in inputs {
                plant.step(u);
                prop_assert!(plant.state().iter().all(|x| x.is_finite()));
            }
        }
    }
}
