//! Every controller, on every plant, on a constant and a sine.

use super::*;
use crate::error_meter::ErrorMeter;
use crate::plant::{Dynamics, Plant};
use crate::record::Tracking;
use proptest::prelude::*;

const PLANTS: [Dynamics; 3] = [
    Dynamics::Pendulum { gravity: 9.81, damping: 0.5 },
    Dynamics::Duffing { linear: 1.0, cubic: 2.0, damping: 0.2 },
    Dynamics::VanDerPol { mu: 1.0 },
];
const SINE: Reference = Reference::Sine { amplitude: 1.0, frequency_hz: 0.2 };

fn run(controller: &ControllerConfig, plant: &PlantConfig, reference: Reference, seconds: f64) -> Tracking {
    let mut plant_now = Plant::new(plant);
    let mut law = controller.build(plant, &reference).unwrap().unwrap();
    let mut meter = ErrorMeter::default();
    for _ in 0..(seconds / plant.period_s()) as u64 {
        let t_s = plant_now.time_s();
        meter.push(plant_now.state()[0] - reference.at(t_s).x);
        let u = law.control(t_s, plant.period_s(), plant_now.state());
        plant_now.step(u);
    }
    meter.tracking()
}

/// Greatest error without any control, over the same time.
fn without_control(plant: &PlantConfig, reference: Reference) -> f64 {
    let mut plant_now = Plant::new(plant);
    let mut meter = ErrorMeter::default();
    for _ in 0..20_000 {
        meter.push(plant_now.state()[0] - reference.at(plant_now.time_s()).x);
        plant_now.step(0.0);
    }
    meter.tracking().rms_error
}

fn controllers() -> Vec<ControllerConfig> {
    let kinds = ControllerConfig::KINDS.iter().skip(1);
    let corrected = ControllerConfig::NeuroAdaptive(NeuroConfig::corrected());
    kinds.map(|kind| ControllerConfig::of_kind(kind).unwrap()).chain([corrected]).collect()
}

#[test]
fn every_controller_tracks_one_and_a_sine_on_every_plant() {
    for controller in controllers() {
        for dynamics in PLANTS {
            for reference in [Reference::default(), SINE] {
                let plant = PlantConfig { dynamics, ..PlantConfig::default() };
                let tracking = run(&controller, &plant, reference, 20.0);
                let kind = controller.kind();
                let alone = without_control(&plant, reference);
                println!("{kind} {dynamics:?} {reference:?}: {tracking:?} (without control {alone:.3})");
                assert!(alone > 0.3, "the plant would track by itself: {alone}");
                assert!(tracking.rms_error < 0.03, "{kind} {dynamics:?} {reference:?}: {tracking:?}");
                assert!(tracking.max_error < 0.1, "{kind} {dynamics:?} {reference:?}: {tracking:?}");
            }
        }
    }
}

#[test]
fn a_disturbance_is_withstood() {
    for controller in controllers() {
        let plant = PlantConfig { disturbance: 5.0, ..PlantConfig::default() };
        let tracking = run(&controller, &plant, Reference::default(), 20.0);
        assert!(tracking.rms_error < 0.04, "{}: {tracking:?}", controller.kind());
    }
}

fn neuro(change: impl Fn(&mut NeuroConfig)) -> ControllerConfig {
    let mut config = NeuroConfig::default();
    change(&mut config);
    ControllerConfig::NeuroAdaptive(config)
}

/// Purpose of the networks: with weak gains the same law without learning stays far off.
#[test]
fn learning_is_what_brings_the_neuro_adaptive_law_to_the_reference() {
    let plant = PlantConfig::default();
    let weak = |alpha1: f64, lambda: f64| {
        neuro(move |c| {
            (c.k1, c.k2) = (30.0, 10.0);
            (c.alpha1, c.alpha2, c.lambda) = (alpha1, if alpha1 > 0.0 { 0.05 } else { 0.0 }, lambda);
            c.leak = Leak::W2;
        })
    };
    let fixed = run(&weak(0.0, 0.0), &plant, Reference::default(), 40.0);
    let printed = run(&weak(50.0, 0.0), &plant, Reference::default(), 40.0);
    let integral = run(&weak(50.0, 2.0), &plant, Reference::default(), 40.0);
    println!("fixed {fixed:?}\nas printed {printed:?}\nwith lambda {integral:?}");
    // Without learning: f / (g k1) of about 8.25 / (2.2 * 30).
    assert!(fixed.rms_error > 0.1, "{fixed:?}");
    assert!(integral.rms_error < fixed.rms_error / 10.0, "{integral:?}");
    assert!(printed.rms_error > fixed.rms_error, "{printed:?}: correct the module's words");
    let moving = |lambda: f64, alpha1: f64| run(&weak(alpha1, lambda), &plant, SINE, 40.0).rms_error;
    let (learned, plain) = (moving(2.0, 50.0), moving(0.0, 0.0));
    println!("on a sine: fixed {plain}, as printed {}, with lambda {learned}", moving(0.0, 50.0));
    assert!(learned < plain / 3.0, "{learned} {plain}");
}

/// The printed law runs: equations 8 to 10 written out again, neuron by neuron.
#[test]
fn the_default_is_the_law_as_printed() {
    let config = NeuroConfig::default();
    assert_eq!(config.deviations(), Vec::<String>::new());
    let reference = Reference::default();
    let mut law = NeuroAdaptive::new(&config, &reference);
    let centres: Vec<State> = config
        .f
        .centres_x1
        .iter()
        .flat_map(|&c1| config.f.centres_x2.iter().map(move |&c2| [c1, c2]))
        .collect();
    let phi = |x: State| -> Vec<f64> {
        let of = |c: &State| {
            let d1 = (x[0] - c[0]) / config.f.width_x1;
            let d2 = (x[1] - c[1]) / config.f.width_x2;
            (-(d1 * d1 + d2 * d2) / 2.0).exp()
        };
        centres.iter().map(of).collect()
    };
    let (mut w1, mut w2) = (vec![0.0; centres.len()], vec![0.0; centres.len()]);
    let dt_s = 1e-3;
    for step in 0..2000 {
        // Any states do: the law does not ask what made them.
        let t_s = f64::from(step) * dt_s;
        let x = [(2.0 * t_s).sin(), 2.0 * (2.0 * t_s).cos()];
        let phi = phi(x);
        let dot = |w: &[f64]| w.iter().zip(&phi).map(|(w, phi)| w * phi).sum::<f64>();
        let (f, g) = (dot(&w1), dot(&w2));
        let (e, de) = (x[0] - 1.0, x[1]);
        // v1 = -f^ - K E + xr'', and (8).
        let v1 = -f - config.k1 * e - config.k2 * de;
        let expected = v1 / (1.0 + g.abs());
        // (9) and (10), one step of Euler's: both with W1 as it was.
        let before = w1.clone();
        for i in 0..w1.len() {
            w1[i] += dt_s * config.alpha1 * (phi[i] * de - config.beta * before[i]);
            let push = v1 * phi[i] * de / (1.0 + g.abs());
            w2[i] += dt_s * config.alpha2 * (push - config.gamma * before[i]);
        }
        let u = law.control(t_s, dt_s, x);
        assert!((u - expected).abs() <= 1e-9 * expected.abs().max(1.0), "step {step}: {u} {expected}");
    }
    // Whatever leaves the printed law says so, and is another law.
    for (changed, word) in [
        (NeuroConfig { leak: Leak::W2, ..config.clone() }, "W2"),
        (NeuroConfig { lambda: 0.5, ..config.clone() }, "0.5 e"),
    ] {
        let deviations = ControllerConfig::NeuroAdaptive(changed.clone()).deviations();
        assert!(deviations.len() == 1 && deviations[0].contains(word), "{deviations:?}");
        let mut other = NeuroAdaptive::new(&changed, &reference);
        let mut same = NeuroAdaptive::new(&config, &reference);
        let differs = (0..2000).any(|step| {
            let t_s = f64::from(step) * dt_s;
            let x = [(2.0 * t_s).sin(), 2.0 * (2.0 * t_s).cos()];
            other.control(t_s, dt_s, x) != same.control(t_s, dt_s, x)
        });
        assert!(differs, "{word}");
    }
    assert_eq!(NeuroConfig::corrected().deviations().len(), 2);
}

/// A pendulum, a Van der Pol oscillator and their integration, which share nothing with
/// [`crate::plant`] but the numbers: steps of 20 us, speeds first (symplectic Euler).
struct Independent {
    acceleration: fn(f64, f64, f64) -> f64,
    x: State,
}

impl Independent {
    const STEP_S: f64 = 20e-6;

    fn hold(&mut self, u: f64, seconds: f64) {
        for _ in 0..(seconds / Self::STEP_S).round() as u64 {
            self.x[1] += Self::STEP_S * (self.acceleration)(self.x[0], self.x[1], u);
            self.x[0] += Self::STEP_S * self.x[1];
        }
    }

    /// Greatest error of the last of `seconds` under `law`, and the greatest input.
    fn under(&mut self, law: &mut dyn FnMut(f64, State) -> f64, wanted: f64, seconds: f64) -> [f64; 2] {
        let [mut error, mut input] = [0.0f64; 2];
        for turn in 0..(seconds * 1e3) as u64 {
            let t_s = turn as f64 * 1e-3;
            let u = law(t_s, self.x);
            input = input.max(u.abs());
            self.hold(u, 1e-3);
            if t_s >= seconds - 1.0 {
                error = error.max((self.x[0] - wanted).abs());
            }
            if !self.x.iter().all(|x| x.abs() < 1e6) {
                return [f64::INFINITY, input];
            }
        }
        [error, input]
    }
}

fn pendulum(angle: f64, speed: f64, u: f64) -> f64 {
    -9.81 * angle.sin() - 0.5 * speed + 2.0 * (1.0 + 0.2 * angle.cos()) * u
}

fn oscillator(x: f64, speed: f64, u: f64) -> f64 {
    (1.0 - x * x) * speed - x + 2.0 * (1.0 + 0.2 * x.cos()) * u
}

/// Equilibria that are unstable without control: the pendulum upside down, the oscillator at rest.
#[test]
fn model_predictive_control_stabilises_what_falls_by_itself() {
    use std::f64::consts::PI;
    let van_der_pol = Dynamics::VanDerPol { mu: 1.0 };
    for (dynamics, acceleration, wanted, start, limit) in [
        (Dynamics::default(), pendulum as fn(f64, f64, f64) -> f64, PI, [PI - 0.4, 0.0], 50.0),
        // Barely stronger than the weight.
        (Dynamics::default(), pendulum, PI, [PI - 0.4, 0.0], 6.0),
        (Dynamics::default(), pendulum, 1.0, [0.0, 0.0], 5.0),
        (van_der_pol, oscillator, 0.0, [1.0, -1.0], 50.0),
    ] {
        let plant = PlantConfig { dynamics, input_limit: limit, ..PlantConfig::default() };
        let reference = Reference::Constant { value: wanted };
        let mut law = Mpc::new(&MpcConfig::default(), &plant, &reference).unwrap();
        let run = |law: &mut dyn FnMut(f64, State) -> f64| {
            Independent { acceleration, x: start }.under(law, wanted, 10.0)
        };
        let [alone, _] = run(&mut |_, _| 0.0);
        let [error, input] = run(&mut |t_s, x| law.control(t_s, 1e-3, x));
        println!("{dynamics:?} to {wanted}: {error:.2e} (alone {alone:.2}), greatest input {input:.2}");
        assert!(alone > 0.3, "it stays by itself: {alone}");
        assert!(error < 0.01, "{dynamics:?} to {wanted} with {limit}: {error}");
        assert!(input <= limit, "{input}");
        // The simulation would see a law that does not stabilise: the same one, turned round.
        let mut wrong = Mpc::new(&MpcConfig::default(), &plant, &reference).unwrap();
        let [error, _] = run(&mut |t_s, x| -wrong.control(t_s, 1e-3, x));
        assert!(error > 0.3, "{dynamics:?}: {error}");
    }
}

/// Effect of the last term of equation 10: as printed it lets W2 drift where f is not zero.
#[test]
fn equation_10_as_printed_drifts() {
    let weights = |leak: Leak| {
        let config = NeuroConfig { leak, gamma: 1.0, ..NeuroConfig::corrected() };
        let plant = PlantConfig::default();
        let reference = Reference::default();
        let mut law = NeuroAdaptive::new(&config, &reference);
        let mut now = Plant::new(&plant);
        let mut after = [0.0; 2];
        for half in &mut after {
            for _ in 0..20_000 {
                let u = law.control(now.time_s(), plant.period_s(), now.state());
                now.step(u);
            }
            *half = law.estimates([1.0, 0.0]).1.abs();
        }
        after
    };
    let (printed, meant) = (weights(Leak::W1), weights(Leak::W2));
    println!("|g^| after 20 s and 40 s: W1 {printed:?}, W2 {meant:?}");
    let drift = |[first, second]: [f64; 2]| (second - first).abs();
    assert!(drift(printed) > 10.0 * drift(meant), "{printed:?} {meant:?}");
}

#[test]
fn kinds_are_read_and_checked() {
    for kind in ControllerConfig::KINDS {
        let config = ControllerConfig::of_kind(kind).unwrap();
        assert_eq!(config.kind(), kind);
        let read: ControllerConfig = toml::from_str(&format!("kind = '{kind}'")).unwrap();
        assert_eq!(read, config);
        assert!(toml::from_str::<ControllerConfig>(&format!("kind = '{kind}'\ngian = 1")).is_err());
    }
    assert!(ControllerConfig::of_kind("fuzzy").is_none());
    let error = toml::from_str::<ControllerConfig>("kind = 'lqr'").unwrap_err().to_string();
    assert!(
        error.contains("lqr") && ControllerConfig::KINDS.iter().all(|kind| error.contains(kind)),
        "{error}"
    );
    let plant = PlantConfig::default();
    for (text, key) in [
        ("kind = 'neuro_adaptive'\nk1 = 0.0", "controller.k1"),
        ("kind = 'neuro_adaptive'\nbeta = nan", "controller.beta"),
        ("kind = 'neuro_adaptive'\nalpha1 = 1e6\nbeta = 1e3", "controller.beta"),
        (
            "kind = 'neuro_adaptive'\nleak = 'w1'\n[f]\ncentres_x1 = [0.0]\ncentres_x2 = [0.0]\nwidth_x1 = 1.0\n\
          width_x2 = 1.0",
            "controller.leak",
        ),
        ("kind = 'pid'\nproportional = inf", "controller.proportional"),
        ("kind = 'mpc'\nhorizon = 0", "controller.horizon"),
        ("kind = 'mpc'\ninput = 0.0", "controller.input"),
    ] {
        let config: ControllerConfig = toml::from_str(text).unwrap();
        let error = config.validate(&plant).unwrap_err().to_string();
        assert!(error.contains(key), "{text}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever state comes, also none that a plant can have, a law neither panics nor leaves the
    /// plant broken.
    #[test]
    fn no_state_breaks_a_controller(states in proptest::collection::vec((any::<f64>(), any::<f64>()), 1..20)) {
        for controller in controllers() {
            let plant = PlantConfig::default();
            let mut law = controller.build(&plant, &Reference::default()).unwrap().unwrap();
            let mut now = Plant::new(&plant);
            for &(x1, x2) in &states {
                let u = law.control(0.0, plant.period_s(), [x1, x2]);
                now.step(u);
                prop_assert!(now.state().iter().all(|x| x.is_finite()));
            }
        }
    }
}
