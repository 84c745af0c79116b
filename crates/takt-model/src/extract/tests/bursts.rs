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

/// The demonstration of a false guarantee: five messages at every tenth call. The mean would be
/// half a message a call.
#[test]
fn five_messages_at_every_tenth_call() {
    let counts: Vec<usize> = (0..100).map(|k| if k % 10 == 9 { 5 } else { 0 }).collect();
    let (outputs, _) = burst(&counts, MS);
    let [output] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(output.most_per_activation, 5);
    let spans = &output.arrivals.least_span_ns;
    assert_eq!(spans[..5], [MS, 2 * MS, 3 * MS, 4 * MS, 200 * MS]);
    assert_eq!(output.arrivals.seen, 50);
    assert_eq!((output.most[0], output.most[9], output.most[10]), (5, 5, 10), "{:?}", output.most);
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

/// One topic twice within an activation, another once: each has its own count, in a driver's loop
/// as well.
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

/// Six processes of default nodes come up: each announces its parameters to all. A steady node must
/// not be held to expect that burst for ever, nor one that comes later to be forgotten.
#[test]
fn the_burst_of_start_up_is_kept_apart() {
    let mut script = Script::new();
    let nodes: Vec<(u32, u64, u64, u64)> = (1..=6)
        .map(|pid| {
            let node = script.node(pid, &format!("n{pid}"));
            let out = script.publisher(pid, node, "/parameter_events");
            let on = script.subscription(pid, node, "/parameter_events");
            (pid, out, on, script.timer(pid, node, 100 * MS))
        })
        .collect();
    let announce = |script: &mut Script, count: usize, nodes: &[(u32, u64, u64, u64)]| {
        for &(pid, out, ..) in nodes {
            for _ in 0..count {
                script.now_ns += 10_000;
                let stamp = script.publish(pid, pid + 50, out);
                for &(to, _, on, _) in nodes {
                    script.run(to, to, on, Some(stamp), 1000, &[]);
                }
            }
        }
    };
    announce(&mut script, 15, &nodes);
    let spans = |script: &Script| {
        let model = script.model();
        check(&model);
        let (_, on) = callback(&model, "/n3 subscription /parameter_events");
        (on.arrivals.clone(), model.starting.clone())
    };
    let (fresh, starting) = spans(&script);
    assert!(fresh.least_span_ns.len() == 63 && fresh.least_span_ns[62] < 10 * MS, "{fresh:?}");
    assert_eq!(starting, [1, 2, 3, 4, 5, 6]);
    for k in 0..300 {
        script.wait_until(3_000 * MS + k * 100 * MS);
        for &(pid, _, _, timer) in &nodes {
            script.run(pid, pid, timer, None, MS, &[]);
            script.idle(pid, pid);
        }
    }
    let (steady, starting) = spans(&script);
    assert!(starting.is_empty());
    assert!(steady.least_span_ns.is_empty() && steady.observed_ns > 30_000 * MS, "{steady:?}");
    assert_eq!(steady.seen, 90);
    // The same at work: somebody sets parameters in a loop. It counts in full from now on.
    announce(&mut script, 3, &nodes);
    script.now_ns += 60_000 * MS;
    let (later, _) = spans(&script);
    assert_eq!(later.least_span_ns.len(), 18, "{later:?}");
    assert!(later.least_span_ns[16] < 5 * MS && later.least_span_ns[17] > 30_000 * MS, "{later:?}");
    // One of them is started again: its announcements are start-up, those of the others at work
    // stay known.
    let known = later.least_span_ns[..17].to_vec();
    let node = script.node(7, "n7");
    let out = script.publisher(7, node, "/parameter_events");
    for _ in 0..80 {
        script.now_ns += 1000;
        let stamp = script.publish(7, 57, out);
        nodes.iter().for_each(|&(to, _, on, _)| _ = script.run(to, to, on, Some(stamp), 10, &[]));
    }
    let (after, starting) = spans(&script);
    assert_eq!((&after.least_span_ns[..17], &starting[..]), (&known[..], &[7][..]));
}

/// What a callback sends at once while its process starts is not what it sends at work.
#[test]
fn a_latched_burst_is_kept_apart_and_a_rare_one_is_not() {
    let mut script = Script::new();
    let node = script.node(1, "map");
    let out = script.publisher(1, node, "/tiles");
    let timer = script.timer(1, node, 500 * MS);
    for k in 0..40 {
        script.wait_until(1_100 * MS + k * 500 * MS);
        let count = match k {
            0 => 9,
            30 => 4,
            _ => 1,
        };
        script.run(1, 1, timer, None, MS, &vec![out; count]);
        script.idle(1, 1);
        let model = script.model();
        let most = callback(&model, "/map timer 500ms").1.outputs[0].most_per_activation;
        assert_eq!(
            most,
            if k < 2 {
                9
            } else if k < 30 {
                1
            } else {
                4
            },
            "{k}"
        );
    }
}
