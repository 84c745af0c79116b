//! What the jobs cost without scheduling. Goal: the attitude job's control law within 5 µs.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use takt_robot_uav::UavConfig;
use takt_robot_uav::control::{AttitudeLaw, PositionController};
use takt_robot_uav::plant::Plant;
use takt_robot_uav::reference::Reference;
use takt_robot_uav::sim::{Pattern, Simulation};
use takt_robot_uav::vehicle::Vehicle;

fn jobs(criterion: &mut Criterion) {
    let config = UavConfig::default();
    let mut simulation = Simulation::new(&config).expect("the default is valid");
    simulation.fly_to(7_300_000_000, Pattern::Punctual);
    let state = *simulation.plant().state();
    let law = AttitudeLaw::new(&config.control, &config.vehicle);
    let mut position = PositionController::new(&config.control, &config.vehicle, 0.02);
    let command = position.follow(&config.reference, 7.3, &state);

    criterion.bench_function("attitude control law", |bencher| {
        bencher.iter(|| law.rotors(black_box(&state), black_box(&command)));
    });
    criterion.bench_function("position control law", |bencher| {
        bencher.iter(|| position.follow(black_box(&config.reference), black_box(7.3), black_box(&state)));
    });
    criterion.bench_function("vehicle, one period of 4 ms", |bencher| {
        let vehicle = Vehicle::new(&config.vehicle).expect("the default is valid");
        // Hovering for ever: a lost flight would cost nothing.
        let hover = Reference::Hover { at_m: [0.0, 0.0, 5.0] };
        let mut plant = Plant::new(vehicle, config.limits, hover);
        bencher.iter(|| {
            plant.advance_to(plant.now_ns() + 4_000_000);
            black_box(plant.state().position_m)
        });
    });
}

criterion_group!(benches, jobs);
criterion_main!(benches);
