//! The workload generator's robot, as a system to simulate.

use std::path::Path;

use takt_manager::Goals;
use takt_manager::simulate::{System, Trigger};
use takt_ros_workload::{Cost, System as Spec};

pub fn goals() -> Goals {
    Goals::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goals/turtlebot.toml")).unwrap()
}

fn ns(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

fn costs(cost: &Cost, phase: usize) -> Vec<u64> {
    let usual = cost.ms.get(phase).or(cost.ms.last()).copied().unwrap_or(0.0) * (1.0 + cost.jitter);
    let length = cost.peak_every.max(1);
    (0..length).map(|i| ns(if i == 0 { usual * cost.peak_factor } else { usual })).collect()
}

/// Phase 0: no load, 1: medium, 2: high.
pub fn system(phase: usize) -> System {
    // The heavier load: plans are to be found for more than the paper's.
    let spec = Spec::eight_trackers();
    let mut system = System { eager_timers: true, ..System::default() };
    for node in &spec.node {
        for source in &node.source {
            let executor = system.executor(&node.name, true);
            let topics = source.publishes.iter().map(|t| system.topic(t)).collect();
            let trigger = Trigger::Periodic { period_ns: ns(source.period_ms), jitter_ns: 0 };
            let name = format!("/{} source {}", node.name, source.publishes[0]);
            system.callback(executor, &name, trigger, costs(&source.cost, phase), topics);
        }
        if node.timer.is_empty() && node.subscription.is_empty() {
            continue;
        }
        let executor = system.executor(&node.name, false);
        for timer in &node.timer {
            let topics = timer.publishes.iter().map(|t| system.topic(t)).collect();
            let trigger = Trigger::Periodic { period_ns: ns(timer.period_ms), jitter_ns: 0 };
            let name = format!("/{} timer {}ms", node.name, timer.period_ms);
            system.callback(executor, &name, trigger, costs(&timer.cost, phase), topics);
        }
        for subscription in &node.subscription {
            // What it publishes to its own topics is cut (section V.a).
            let own =
                |t: &&String| !node.subscription.iter().any(|s| s.topic == **t) || t.contains("filtered");
            let topics = subscription.publishes.iter().filter(own).map(|t| system.topic(t)).collect();
            let topic = system.topic(&subscription.topic);
            let name = format!("/{} subscription {}", node.name, subscription.topic);
            system.callback(executor, &name, Trigger::Topic(topic), costs(&subscription.cost, phase), topics);
        }
    }
    system
}
