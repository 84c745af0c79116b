//! What one turn of each controller costs.

use criterion::{Criterion, criterion_group, criterion_main};
use takt_robot_daqloop::control::ControllerConfig;
use takt_robot_daqloop::plant::{Plant, PlantConfig, Reference};

fn controllers(criterion: &mut Criterion) {
    let plant = PlantConfig::default();
    let reference = Reference::Sine { amplitude: 1.0, frequency_hz: 0.2 };
    for kind in ControllerConfig::KINDS.iter().skip(1) {
        let config = ControllerConfig::of_kind(kind).expect("a known kind");
        let mut law = config.build(&plant, &reference).expect("the defaults are valid").expect("not none");
        let mut now = Plant::new(&plant);
        criterion.bench_function(kind, |bencher| {
            bencher.iter(|| {
                let u = law.control(now.time_s(), plant.period_s(), now.state());
                now.step(u)
            });
        });
    }
}

criterion_group!(benches, controllers);
criterion_main!(benches);
