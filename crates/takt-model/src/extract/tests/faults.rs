//! Bad input: what is lost, torn, stepped or gone is never guessed.

use proptest::prelude::*;
use takt_ros::event::{Event, Kind, ServiceStep};

use super::script::{MS, Script, callback, check};
use crate::{Extractor, Options, OptionsError};

#[test]
fn a_lost_end_drops_the_activation() {
    let mut script = Script::new();
    let node = script.node(1, "n");
    let timer = script.timer(1, node, 10 * MS);
    script.run(1, 1, timer, None, MS, &[]);
    script.start(1, 1, timer);
    script.work(1, 1, 500 * MS);
    script.emit(1, 1, Kind::Lost { count: 7 });
    script.end(1, 1, timer);
    script.run(1, 1, timer, None, 2 * MS, &[]);
    let extractor = script.extract(Options::default());
    let counters = extractor.counters();
    assert_eq!((counters.lost_events, counters.gaps), (7, 1));
    assert_eq!((counters.dropped_activations, counters.ends_without_start), (1, 1));
    let model = extractor.snapshot(script.now_ns);
    assert_eq!(model.lost_events, 7);
    // No window of two reaches across.
    assert_eq!(callback(&model, "/n timer 10ms").1.cost.most_ns, [2 * MS]);
}

/// A buffer of a processor was full: whose events are missing, nobody knows.
#[test]
fn losses_without_a_thread_concern_all() {
    let mut script = Script::new();
    let timers: Vec<_> = (1..4)
        .map(|pid| {
            let node = script.node(pid, &format!("n{pid}"));
            (pid, script.timer(pid, node, 10 * MS))
        })
        .collect();
    for &(pid, timer) in &timers {
        script.run(pid, pid, timer, None, MS, &[]);
        script.start(pid, pid, timer);
    }
    script.emit(0, 0, Kind::Lost { count: 5 });
    for &(pid, timer) in &timers {
        script.run(pid, pid, timer, None, MS, &[]);
    }
    let extractor = script.extract(Options::default());
    assert_eq!((extractor.counters().dropped_activations, extractor.counters().lost_events), (3, 5));
    let model = extractor.snapshot(script.now_ns);
    assert_eq!(model.threads.len(), 3);
    assert!(model.callbacks.iter().all(|c| c.cost.most_ns == [MS]), "{model:?}");
}

#[test]
fn a_start_without_an_end_is_dropped_at_the_next_start() {
    let mut script = Script::new();
    let node = script.node(1, "n");
    let (a, b) = (script.timer(1, node, 10 * MS), script.timer(1, node, 20 * MS));
    script.start(1, 1, a);
    script.work(1, 1, MS);
    // An exception left the callback.
    script.start(1, 1, b);
    script.work(1, 1, MS);
    script.end(1, 1, b);
    script.start(1, 1, a);
    script.work(1, 1, MS);
    script.end(1, 1, a);
    let extractor = script.extract(Options::default());
    assert_eq!(extractor.counters().dropped_activations, 1);
    let model = extractor.snapshot(script.now_ns);
    assert_eq!(callback(&model, "/n timer 10ms").1.cost.seen, 1);
}

#[test]
fn callbacks_inside_callbacks_are_named() {
    let mut script = Script::new();
    let node = script.node(1, "n");
    let (outer, inner) = (script.timer(1, node, 10 * MS), script.timer(1, node, 20 * MS));
    for _ in 0..3 {
        script.start(1, 1, outer);
        script.work(1, 1, MS);
        script.start(1, 1, inner);
        script.work(1, 1, 2 * MS);
        script.end(1, 1, inner);
        script.work(1, 1, MS);
        script.end(1, 1, outer);
        script.now_ns += 20 * MS;
    }
    let model = script.model();
    assert_eq!(model.unanalysable.len(), 1);
    assert_eq!(callback(&model, "/n timer 10ms").1.cost.most_ns[0], 4 * MS);
    assert_eq!(callback(&model, "/n timer 20ms").1.cost.most_ns[0], 2 * MS);
}

#[test]
fn a_restarted_process_goes_on_with_its_curves() {
    let mut script = Script::new();
    let run = |script: &mut Script, pid: u32, cost| {
        let node = script.node(pid, "n");
        let out = script.publisher(pid, node, "/out");
        let timer = script.timer(pid, node, 10 * MS);
        for _ in 0..5 {
            script.now_ns += 10 * MS;
            script.run(pid, pid, timer, None, cost, &[out]);
        }
    };
    run(&mut script, 1, 3 * MS);
    let first = script.model();
    script.emit(1, 1, Kind::ThreadEnd);
    let between = script.model();
    assert!(between.callbacks.is_empty() && between.executors.is_empty() && between.threads.is_empty());
    run(&mut script, 2, MS);
    let extractor = script.extract(Options::default());
    let model = extractor.snapshot(script.now_ns);
    check(&model);
    assert_eq!(extractor.counters().succeeded, 1);
    let (_, timer) = callback(&model, "/n timer 10ms");
    assert_eq!((timer.cost.seen, timer.cost.most_ns[0]), (10, 3 * MS));
    assert_eq!(model.nodes.iter().map(|n| n.pid).collect::<Vec<_>>(), [2]);
    assert_eq!(first.callbacks.len(), model.callbacks.len());
    // A recording keeps both.
    let both = script.extract(Options { keep_ended: true, ..Options::default() }).snapshot(script.now_ns);
    check(&both);
    assert_eq!(both.callbacks[1].name, "/n timer 10ms (2)");
}

/// The main thread's buffer can end long before those of other threads are read.
#[test]
fn a_process_ends_with_its_last_thread() {
    let mut script = Script::new();
    let node = script.node(1, "lidar");
    let scan = script.publisher(1, node, "/scan");
    let timer = script.timer(1, node, 10 * MS);
    script.run(1, 7, timer, None, MS, &[]);
    script.emit(1, 1, Kind::ThreadEnd);
    for _ in 0..100 {
        script.now_ns += 100 * MS;
        script.publish(1, 2, scan);
        script.run(1, 7, timer, None, MS, &[]);
    }
    let names = |model: &crate::Model| model.callbacks.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
    let model = script.model();
    assert_eq!(names(&model), ["/lidar timer 10ms", "/lidar source /scan"]);
    // The others end and say so, or are heard of no more.
    let mut quiet = Script::new();
    quiet.events = script.events.clone();
    quiet.now_ns = script.now_ns + 1_001 * MS;
    quiet.emit(9, 9, Kind::ExecutorNextReady);
    assert!(quiet.model().callbacks.is_empty());
    script.emit(1, 7, Kind::ThreadEnd);
    script.emit(1, 2, Kind::ThreadEnd);
    let model = script.model();
    assert!(model.callbacks.is_empty() && model.threads.is_empty(), "{model:?}");
}

#[test]
fn memory_is_bounded_over_restarts() {
    let mut extractor = Extractor::new(Options { most_objects: 64, most_ended: 8, ..Options::default() });
    for round in 0..200u32 {
        let mut script = Script::new();
        script.now_ns += u64::from(round) * 1000 * MS;
        let pid = 1000 + round;
        let node = script.node(pid, &format!("n{round}"));
        let timer = script.timer(pid, node, 10 * MS);
        let on = script.subscription(pid, node, "/same");
        script.run(pid, pid, timer, None, MS, &[]);
        script.run(pid, pid, on, Some(i64::from(round)), MS, &[]);
        script.emit(pid, pid, Kind::ThreadEnd);
        script.events.iter().for_each(|event| extractor.event(event));
    }
    assert_eq!(extractor.counters().refused, 0);
    assert!(extractor.tables.callbacks.len() <= 8 && extractor.tables.nodes.is_empty());
    assert!(extractor.tables.subscriptions.is_empty() && extractor.tables.timers.is_empty());
    assert!(extractor.tables.threads.len() <= 64);
}

#[test]
fn addresses_that_come_again_are_new_objects() {
    let mut script = Script::new();
    let node = script.node(1, "n");
    for (round, name) in ["/first", "/second", "/third"].iter().enumerate() {
        script.emit(
            1,
            1,
            Kind::SubscriptionInit {
                subscription: 1,
                node,
                rmw_subscription: 2,
                topic: (*name).into(),
                depth: 1,
            },
        );
        script.emit(1, 1, Kind::SubscriptionObject { subscription: 1, object: 3 });
        script.emit(1, 1, Kind::SubscriptionCallback { object: 3, callback: 4 });
        script.take(1, 1, 1, round as i64);
        script.start(1, 1, 4);
        script.work(1, 1, MS);
        script.end(1, 1, 4);
    }
    let extractor = script.extract(Options::default());
    let model = extractor.snapshot(script.now_ns);
    check(&model);
    assert_eq!(
        model.callbacks.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
        ["/n subscription /third"]
    );
    assert_eq!(extractor.tables.subscriptions.len(), 1);
}

#[test]
fn a_reused_thread_number_and_a_mad_clock_leave_no_costs() {
    let mut script = Script::new();
    let node = script.node(1, "n");
    let timer = script.timer(1, node, 10 * MS);
    script.run(1, 1, timer, None, MS, &[]);
    let event = |at_ns, cpu_ns, kind| Event { at_ns, cpu_ns: Some(cpu_ns), pid: 1, tid: 1, kind };
    let start = Kind::CallbackStart { callback: timer, intra_process: false };
    let end = Kind::CallbackEnd { callback: timer };
    let now = script.now_ns;
    // The CPU clock steps back within an activation, and in another one runs faster than time.
    script.events.extend([
        event(now + 1, 50 * MS, start.clone()),
        event(now + 2, 3, end.clone()),
        event(now + 3, 10, start),
        event(now + 4, u64::MAX / 2, end),
    ]);
    let extractor = script.extract(Options::default());
    assert_eq!(extractor.counters().clock_steps, 2);
    let model = extractor.snapshot(now + 5);
    assert_eq!(callback(&model, "/n timer 10ms").1.cost.total_ns, MS);
}

#[test]
fn options_say_what_is_wrong() {
    assert!(Options::default().validate().is_ok());
    let few = Options { arrival_events: 1, ..Options::default() };
    assert_eq!(few.validate(), Err(OptionsError::TooSmall { option: "arrival_events", value: 1, least: 2 }));
    let odd = Options { exceedance: vec![1.5], ..Options::default() };
    assert_eq!(
        odd.validate().unwrap_err().to_string(),
        "exceedance has 1.5; probabilities lie between 0 and 1, both excluded (1e-3: one in a thousand)"
    );
    assert!(serde_json::from_str::<Options>("{\"arrival_event\": 3}").is_err());
}

fn any_kind() -> impl Strategy<Value = Kind> {
    let h = 0u64..6;
    prop_oneof![
        (h.clone()).prop_map(|node| Kind::NodeInit { node, name: "n".into(), namespace: "/".into() }),
        (h.clone(), h.clone(), h.clone(), "[ab]").prop_map(|(publisher, node, rmw_publisher, topic)| {
            Kind::PublisherInit { publisher, node, rmw_publisher, topic: topic.into(), depth: 1 }
        }),
        (h.clone(), h.clone(), h.clone(), "[ab]").prop_map(
            |(subscription, node, rmw_subscription, topic)| {
                Kind::SubscriptionInit { subscription, node, rmw_subscription, topic: topic.into(), depth: 1 }
            }
        ),
        (h.clone(), h.clone())
            .prop_map(|(subscription, object)| Kind::SubscriptionObject { subscription, object }),
        (h.clone(), h.clone()).prop_map(|(object, callback)| Kind::SubscriptionCallback { object, callback }),
        (h.clone(), h.clone(), h.clone()).prop_map(|(service, node, rmw_service)| Kind::ServiceInit {
            service,
            node,
            rmw_service,
            name: "s".into()
        }),
        (h.clone(), h.clone()).prop_map(|(service, callback)| Kind::ServiceCallback { service, callback }),
        (h.clone(), h.clone(), h.clone()).prop_map(|(client, node, rmw_client)| Kind::ClientInit {
            client,
            node,
            rmw_client,
            name: "s".into()
        }),
        (h.clone(), -1i64..100).prop_map(|(timer, period_ns)| Kind::TimerInit { timer, period_ns }),
        (h.clone(), h.clone()).prop_map(|(timer, callback)| Kind::TimerCallback { timer, callback }),
        (h.clone(), h.clone()).prop_map(|(timer, node)| Kind::TimerNode { timer, node }),
        (h.clone(), any::<bool>())
            .prop_map(|(callback, intra_process)| Kind::CallbackStart { callback, intra_process }),
        (h.clone(), any::<bool>())
            .prop_map(|(callback, intra_process)| Kind::CallbackStart { callback, intra_process }),
        h.clone().prop_map(|callback| Kind::CallbackEnd { callback }),
        h.clone().prop_map(|callback| Kind::CallbackEnd { callback }),
        (h.clone()).prop_map(|publisher| Kind::RclPublish { publisher, message: 1 }),
        (h.clone(), prop::option::of(0i64..4)).prop_map(|(rmw_publisher, source_ns)| Kind::RmwPublish {
            rmw_publisher,
            message: 1,
            source_ns
        }),
        h.clone().prop_map(|publisher| Kind::IntraPublish { publisher, message: 1 }),
        (h.clone(), 0i64..4, any::<bool>()).prop_map(|(rmw_subscription, source_ns, taken)| Kind::RmwTake {
            rmw_subscription,
            message: 1,
            source_ns,
            taken
        }),
        (h.clone(), 0i64..4, 0usize..4).prop_map(|(rmw_handle, sequence, step)| {
            let steps = [
                ServiceStep::SendRequest,
                ServiceStep::TakeRequest,
                ServiceStep::SendResponse,
                ServiceStep::TakeResponse,
            ];
            Kind::Service {
                step: steps[step],
                rmw_handle,
                sequence,
                client: (rmw_handle % 3) << 32 | (sequence as u64 & 1),
            }
        }),
        Just(Kind::ExecutorWait { timeout_ns: -1 }),
        Just(Kind::ExecutorNextReady),
        h.clone().prop_map(|handle| Kind::ExecutorExecute { handle }),
        (any::<u64>(), any::<u64>()).prop_map(|(released_ns, used_ns)| Kind::Job {
            task: "t".into(),
            released_ns,
            started_ns: 0,
            used_ns
        }),
        Just(Kind::ThreadName { name: "x".into() }),
        Just(Kind::ThreadEnd),
        (h.clone(), any::<bool>()).prop_map(|(executor, multi)| Kind::ExecutorInit {
            executor,
            kind: if multi { "multi_threaded_executor" } else { "single_threaded_executor" }.into()
        }),
        (h.clone(), h.clone()).prop_map(|(executor, group)| Kind::CallbackGroup {
            executor,
            group,
            kind: "reentrant".into()
        }),
        (h.clone(), h.clone()).prop_map(|(group, handle)| Kind::CallbackGroupMember { group, handle }),
        (0u64..3).prop_map(|count| Kind::Lost { count }),
    ]
}

fn any_event() -> impl Strategy<Value = Event> {
    let at = prop_oneof![0u64..1000, any::<u64>()];
    let cpu = prop::option::of(prop_oneof![0u64..1000, any::<u64>()]);
    (at, cpu, 0u32..4, 0u32..4, any_kind()).prop_map(|(at_ns, cpu_ns, pid, tid, kind)| Event {
        at_ns,
        cpu_ns,
        pid,
        tid,
        kind,
    })
}

proptest! {
    /// Nothing that a torn ring or a hostile trace holds makes it panic, loop, or hand out a model
    /// that does not hold together.
    #[test]
    fn no_stream_breaks_it(events in prop::collection::vec(any_event(), 0..400), keep_ended: bool, most_objects in 1usize..20) {
        let options = Options { keep_ended, most_objects, messages: 8, most_ended: 2, exceedance: vec![0.2], ..Options::default() };
        let mut extractor = Extractor::new(options);
        extractor.watch(crate::ChainSpec { name: "c".into(), path: vec!["/n timer 5ns".into(), "/n subscription a".into()], goal_ns: Some(1) });
        for (i, event) in events.iter().enumerate() {
            extractor.event(event);
            if i % 37 == 0 {
                check(&extractor.snapshot(event.at_ns));
            }
        }
        check(&extractor.snapshot(0));
    }
}
