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
    kinds.map(|kind| ControllerConfig::of_kind(kind).unwrap()).collect()
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

/// What the networks are for: with weak gains the same law without learning stays far off.
#[test]
fn learning_is_what_brings_the_neuro_adaptive_law_to_the_reference() {
    let plant = PlantConfig::default();
    let weak = |alpha1: f64, lambda: f64| {
        neuro(move |c| {
            (c.k1, c.k2) = (30.0, 10.0);
            (c.alpha1, c.alpha2, c.lambda) = (alpha1, if alpha1 > 0.0 { 0.05 } else { 0.0 }, lambda);
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

#[test]
fn the_law_as_printed_tracks_with_small_rates() {
    let printed = neuro(|c| (c.lambda, c.alpha1, c.leak) = (0.0, 5.0, Leak::W1));
    for dynamics in PLANTS {
        for reference in [Reference::default(), SINE] {
            let plant = PlantConfig { dynamics, ..PlantConfig::default() };
            let tracking = run(&printed, &plant, reference, 20.0);
            assert!(tracking.rms_error < 0.03, "{dynamics:?} {reference:?} {tracking:?}");
        }
    }
}

/// What the last term of equation 10 does: as printed it lets W2 drift where f is not zero.
#[test]
fn equation_10_as_printed_drifts() {
    let weights = |leak: Leak| {
        let config = NeuroConfig { leak, lambda: 2.0, gamma: 1.0, ..NeuroConfig::default() };
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
    let error = toml::from_str::<ControllerConfig>("kind = 'mpc'").unwrap_err().to_string();
    assert!(
        error.contains("mpc") && ControllerConfig::KINDS.iter().all(|kind| error.contains(kind)),
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
