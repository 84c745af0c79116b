//! How many messages an activation sends, and how densely.

use proptest::prelude::*;
use takt_ros::event::Kind;

use super::script::{MS, Script, callback, check};
use crate::Output;

/// A timer of 20 ms that publishes so many messages in each activation, `apart_ns` from each other.
fn burst(counts: &[usize], apart_ns: u64) -> (Vec<Output>, Vec<u64>) {
    let mut script = Script::new();
    let (a, b) = (script.node(1, "a"), script.node(2, "b"));
    let out = script.publisher(1, a, "/t");
    let timer = script.timer(1, a, 20 * MS);
    script.subscription(2, b, "/t");
    script.idle(2, 2);
    let mut published = Vec::new();
    for (k, &count) in counts.iter().enumerate() {
        script.wait_until(2_000 * MS + 20 * MS * k as u64);
        script.emit(1, 1, Kind::ExecutorNextReady);
        script.start(1, 1, timer);
        for _ in 0..count {
            script.work(1, 1, apart_ns);
            published.push(script.now_ns);
            script.publish(1, 1, out);
        }
        script.end(1, 1, timer);
        script.idle(1, 1);
    }
    let model = script.model();
    check(&model);
    let outputs = callback(&model, "/a timer 20ms").1.outputs.clone();
    if !published.is_empty() {
        let (_, on) = callback(&model, "/b subscription /t");
        assert_eq!(on.arrivals.least_span_ns, outputs[0].arrivals.least_span_ns);
    }
    (outputs, published)
}

/// The demonstration of a false guarantee: five messages at every tenth call. The mean would be half a message a call.
#[test]
fn five_messages_at_every_tenth_call() {
    let counts: Vec<usize> = (0..100).map(|k| if k % 10 == 9 { 5 } else { 0 }).collect();
    let (outputs, _) = burst(&counts, MS);
    let [output] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(output.most_per_activation, 5);
    let spans = &output.arrivals.least_span_ns;
    assert_eq!(spans[..5], [MS, 2 * MS, 3 * MS, 4 * MS, 200 * MS]);
    assert_eq!(output.arrivals.seen, 50);
}

proptest! {
    #[test]
    fn the_most_of_any_activation_and_the_densest_of_all(
        counts in proptest::collection::vec(0usize..9, 1..40), apart_ns in 0u64..2 * MS,
    ) {
        let (outputs, published) = burst(&counts, apart_ns);
        let most = counts.iter().copied().max().unwrap_or(0) as u64;
        prop_assert_eq!(outputs.first().map_or(0, |output| output.most_per_activation), most);
        if let Some(output) = outputs.first() {
            for (i, span) in output.arrivals.least_span_ns.iter().enumerate() {
                let least = published.windows(i + 2).map(|w| w[i + 1] - w[0]).min();
                // The last entry may count the start of observation.
                prop_assert!(least.is_none_or(|least| *span == least), "{} messages", i + 2);
            }
        }
    }
}

/// One topic twice within an activation, another once: each has its own count, in a driver's loop as well.
#[test]
fn topics_are_counted_apart() {
    let mut script = Script::new();
    let node = script.node(5, "lidar");
    let (scan, health) = (script.publisher(5, node, "/scan"), script.publisher(5, node, "/health"));
    let on = script.node(6, "map");
    let callback_in = script.subscription(6, on, "/scan");
    let (grid, odd) = (script.publisher(6, on, "/grid"), script.publisher(6, on, "/odd"));
    for k in 0..10 {
        script.wait_until(2_000 * MS + k * 100 * MS);
        script.work(5, 7, MS);
        let stamp = script.publish(5, 7, scan);
        script.publish(5, 7, health);
        let out = if k == 3 { vec![grid, odd, grid, grid] } else { vec![grid] };
        script.run(6, 6, callback_in, Some(stamp), MS, &out);
    }
    let model = script.model();
    let counts = |name: &str| {
        let (_, callback) = callback(&model, name);
        let mut counts: Vec<(&str, u64)> = callback
            .outputs
            .iter()
            .map(|output| (&*model.topics[output.topic.0].name, output.most_per_activation))
            .collect();
        assert_eq!(
            callback.publishes,
            callback.outputs.iter().map(|output| output.topic).collect::<Vec<_>>()
        );
        counts.sort_unstable();
        counts
    };
    assert_eq!(counts("/map subscription /scan"), [("/grid", 3), ("/odd", 1)]);
    assert_eq!(counts("/lidar source /scan"), [("/health", 1), ("/scan", 1)]);
}

/// A callback that publishes to its own topic gets a virtual one, and its counts go there.
#[test]
fn counts_follow_a_cut_cycle() {
    let mut script = Script::new();
    let node = script.node(1, "a");
    let on = script.subscription(1, node, "/tf");
    let out = script.publisher(1, node, "/tf");
    let mut stamp = -1;
    for _ in 0..20 {
        script.now_ns += 10 * MS;
        stamp = script.run(1, 1, on, Some(stamp), MS, &[out, out])[0];
    }
    let model = script.model();
    check(&model);
    let (_, callback) = callback(&model, "/a subscription /tf");
    assert_eq!(callback.outputs[0].topic, callback.publishes[0]);
    assert_eq!(callback.outputs[0].most_per_activation, 2);
}
