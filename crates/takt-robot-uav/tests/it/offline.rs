//! The cascade flies its references in simulated time.

#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use nalgebra::Vector3;
use takt_robot_uav::UavConfig;
use takt_robot_uav::plant::Loss;
use takt_robot_uav::reference::Reference;
use takt_robot_uav::sim::{JobTiming, Pattern, Simulation, fly};

const MS: u64 = 1_000_000;

fn flying(reference: Reference) -> UavConfig {
    UavConfig { reference, ..UavConfig::default() }
}

#[test]
fn hover_holds() {
    let quality = fly(&flying(Reference::Hover { at_m: [1.0, -2.0, 3.0] }), 20.0, Pattern::Punctual).unwrap();
    assert_eq!(quality.loss, None);
    assert!(quality.max_position_error_m < 1e-6, "{quality:?}");
}

#[test]
fn a_heavier_vehicle_than_the_controller_knows_is_brought_back() {
    // The integral of the position controller is there for this.
    let config = flying(Reference::Hover { at_m: [0.0, 0.0, 5.0] });
    let mut simulation = Simulation::new(&config).unwrap();
    let mut heavier = config.clone();
    heavier.vehicle.mass_kg *= 1.05;
    simulation.replace_vehicle(&heavier.vehicle).unwrap();
    simulation.fly_to(15_000 * MS, Pattern::Punctual);
    let settled_from = simulation.quality();
    simulation.restart_figures();
    simulation.fly_to(20_000 * MS, Pattern::Punctual);
    let settled = simulation.quality();
    assert!(settled_from.max_position_error_m > 0.02, "it sank first: {settled_from:?}");
    assert!(settled.max_position_error_m < 0.01, "{settled:?}");
}

#[test]
fn a_step_settles_with_little_overshoot() {
    let step = Reference::Step { from_m: [0.0, 0.0, 5.0], to_m: [1.0, 0.5, 5.5], hold_s: 10.0 };
    let mut simulation = Simulation::new(&flying(step)).unwrap();
    let way = Vector3::new(1.0, 0.5, 0.5);
    let mut most = 0.0f64;
    while simulation.next_release_ns() < 19_990 * MS {
        simulation.job(JobTiming::default());
        let at = simulation.plant().state().position_m - Vector3::new(0.0, 0.0, 5.0);
        most = most.max(at.dot(&way) / way.norm_squared());
    }
    assert!((1.0..1.12).contains(&most), "overshoot: {most}");
    assert!(simulation.plant().position_error_m() < 0.01);
}

#[test]
fn the_eight_is_kept_to_three_centimetres() {
    let quality = fly(&UavConfig::default(), 40.0, Pattern::Punctual).unwrap();
    assert_eq!(quality.loss, None);
    assert!(quality.position_rms_m < 0.03 && quality.max_position_error_m < 0.06, "{quality:?}");
}

#[test]
fn every_shipped_reference_survives_one_period_of_jitter_and_delay() {
    for reference in [Reference::default(), Reference::aggressive_step()] {
        for pattern in [Pattern::Jitter { most_ns: 4 * MS, seed: 7 }, Pattern::Delay { delay_ns: 4 * MS }] {
            let quality = fly(&flying(reference), 20.0, pattern).unwrap();
            assert_eq!(quality.loss, None, "{reference:?} {pattern:?}");
        }
    }
}

#[test]
fn lateness_costs_quality_and_more_of_it_costs_more() {
    let rms = |hold_ms| {
        let pattern = Pattern::Blackouts { every_ns: 1_000 * MS, hold_ns: hold_ms * MS };
        fly(&UavConfig::default(), 30.0, pattern).unwrap().position_rms_m
    };
    let row = [0, 100, 200, 300].map(rms);
    assert!(row.windows(2).all(|pair| pair[1] > pair[0]), "{row:?}");
    let delayed =
        |delay_ms| fly(&UavConfig::default(), 30.0, Pattern::Delay { delay_ns: delay_ms * MS }).unwrap();
    // Beyond the attitude loop's phase margin.
    assert!(delayed(4).loss.is_none());
    assert!(delayed(120).loss.is_some());
}

#[test]
fn a_held_command_in_the_middle_of_a_step_loses_the_vehicle() {
    let mut simulation = Simulation::new(&flying(Reference::aggressive_step())).unwrap();
    simulation.fly_to(4_060 * MS, Pattern::Punctual);
    let mut short = simulation.clone();
    short.job(JobTiming { lateness_ns: 10 * MS, actuation_ns: 0 });
    short.fly_to(8_000 * MS, Pattern::Punctual);
    assert_eq!(short.quality().loss, None);
    simulation.job(JobTiming { lateness_ns: 900 * MS, actuation_ns: 0 });
    assert_eq!(simulation.quality().loss, Some(Loss::Tilt));
}

#[test]
fn the_same_flight_twice_is_the_same() {
    let pattern = Pattern::Jitter { most_ns: 9 * MS, seed: 3 };
    let run = || fly(&UavConfig::default(), 10.0, pattern).unwrap();
    assert_eq!(run(), run());
}

#[test]
fn slower_loops_keep_the_eight_less_well() {
    let quality = |attitude_hz, position_hz| {
        let mut config = UavConfig::default();
        config.attitude.rate_hz = attitude_hz;
        config.position.rate_hz = position_hz;
        fly(&config, 30.0, Pattern::Punctual).unwrap()
    };
    assert!(quality(250.0, 50.0).loss.is_none());
    let slow = quality(10.0, 10.0);
    assert!(
        slow.loss.is_some() || slow.position_rms_m > 2.0 * quality(250.0, 50.0).position_rms_m,
        "{slow:?}"
    );
}

#[test]
fn a_punctual_flight_can_be_looked_up_at_any_time() {
    let mut looked = Simulation::new(&UavConfig::default()).unwrap();
    let mut flown = looked.clone();
    for at_ns in [0, 1_000_000, 4_000_000, 9_500_000, 2_000_000_000] {
        let state = looked.punctual_at(at_ns);
        flown.fly_to(at_ns, Pattern::Punctual);
        let mut plant = flown.plant().clone();
        plant.advance_to(at_ns);
        assert!((plant.state().position_m - state.position_m).norm() < 1e-9, "{at_ns}");
    }
}
