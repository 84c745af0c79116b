//! What ROS 2 systems do.

use takt_ros::event::{Kind, ServiceStep};

use super::script::{MS, Script, activates, callback, check, topic};
use crate::{CallbackKind, ChainSpec, ExecutorKind, Options, ThreadRole};

/// A timer, a subscription in another process behind it, and a chain over both.
#[test]
fn a_pipeline_of_two_processes() {
    let mut script = Script::new();
    let (camera, tracker) = (script.node(10, "camera"), script.node(20, "tracker"));
    let rgb = script.publisher(10, camera, "/rgb");
    let timer = script.timer(10, camera, 100 * MS);
    let track = script.subscription(20, tracker, "/rgb");
    let found = script.publisher(20, tracker, "/found");
    let mut extractor = crate::Extractor::new(Options::default());
    let chain = extractor.watch(ChainSpec {
        name: "tracker".into(),
        path: vec!["/camera timer 100ms".into(), "/tracker subscription /rgb".into()],
        goal_ns: Some(50 * MS),
    });
    script.wait_until(1_990 * MS);
    script.idle(10, 11);
    for k in 0..20u64 {
        script.wait_until(2_000 * MS + k * 100 * MS);
        let stamps = script.run(10, 11, timer, None, 2 * MS, &[rgb]);
        script.idle(10, 11);
        script.now_ns += MS;
        let cost = if k == 7 { 60 * MS } else { 10 * MS };
        script.run(20, 21, track, Some(stamps[0]), cost, &[found]);
        script.idle(20, 21);
    }
    script.events.iter().for_each(|event| extractor.event(event));
    let model = extractor.snapshot(script.now_ns);
    check(&model);

    let (_, timer) = callback(&model, "/camera timer 100ms");
    assert_eq!(timer.kind, CallbackKind::Timer { period_ns: 100 * MS });
    assert_eq!(timer.arrivals.least_span_ns[..2], [100 * MS, 200 * MS]);
    assert_eq!((timer.cost.seen, timer.cost.most_ns[0], timer.cost.cpu_time), (20, 2 * MS, true));
    let (_, track) = callback(&model, "/tracker subscription /rgb");
    assert_eq!(track.arrivals.least_span_ns[0], 100 * MS);
    assert_eq!(track.cost.most_ns[..3], [60 * MS, 70 * MS, 80 * MS]);
    assert_eq!(activates(&model, "/camera timer 100ms"), ["/tracker subscription /rgb"]);
    assert!(activates(&model, "/tracker subscription /rgb").is_empty());
    let transport = topic(&model, "/rgb").transport.unwrap();
    assert_eq!((transport.seen, transport.most_ns), (20, MS));

    assert_eq!(model.executors.len(), 2);
    assert!(model.executors.iter().all(|e| e.kind == ExecutorKind::SingleThreaded && e.threads.len() == 1));
    let roles: Vec<(u32, bool)> =
        model.threads.iter().map(|t| (t.tid, matches!(t.role, ThreadRole::Executor(_)))).collect();
    assert_eq!(roles, [(10, false), (20, false), (11, true), (21, true)]);
    assert!(model.unanalysable.is_empty(), "{:?}", model.unanalysable);

    let json = serde_json::to_string(&model).unwrap();
    assert_eq!(serde_json::from_str::<crate::Model>(&json).unwrap(), model);
    let dot = model.to_dot(crate::DotOptions::default());
    assert!(dot.contains("label=\"/rgb\"") && dot.contains("subgraph cluster_1"), "{dot}");
    assert!(
        model
            .to_text()
            .contains("└─ /tracker subscription /rgb  20×, every 100.000 ms or more, up to 60.000 ms")
    );

    let measured = extractor.watched(chain).unwrap();
    assert_eq!((measured.began, measured.completions, measured.violations, measured.dropped), (20, 20, 1, 0));
    assert_eq!(measured.worst_ns, 63 * MS);
}

/// Humble: publications have no time stamp, takes have one that nobody can join.
#[test]
fn without_stamps_publications_still_are_arrivals() {
    let mut script = Script::new();
    let (a, b) = (script.node(1, "a"), script.node(2, "b"));
    let out = script.publisher(1, a, "/t");
    let timer = script.timer(1, a, 50 * MS);
    let on = script.subscription(2, b, "/t");
    for _ in 0..10 {
        script.now_ns += 50 * MS;
        let stamp = script.run(1, 1, timer, None, MS, &[out])[0];
        script.now_ns += MS;
        script.run(2, 2, on, Some(stamp), MS, &[]);
    }
    for event in &mut script.events {
        if let Kind::RmwPublish { rmw_publisher, source_ns, .. } = &mut event.kind {
            (*rmw_publisher, *source_ns) = (0, None);
        }
    }
    let extractor = script.extract(Options::default());
    assert_eq!((extractor.counters().joined, extractor.counters().unjoined), (0, 10));
    let model = extractor.snapshot(script.now_ns);
    check(&model);
    let (_, on) = callback(&model, "/b subscription /t");
    assert_eq!((on.arrivals.seen, on.arrivals.least_span_ns[0]), (10, 53 * MS));
    assert_eq!(topic(&model, "/t").transport, None);
    assert_eq!(activates(&model, "/a timer 50ms"), ["/b subscription /t"]);
}

/// A publisher that no probe sees: messages taken are arrivals too.
#[test]
fn unseen_publishers_make_arrivals_denser() {
    let mut script = Script::new();
    let (a, b) = (script.node(1, "a"), script.node(2, "b"));
    let out = script.publisher(1, a, "/t");
    let timer = script.timer(1, a, 100 * MS);
    let on = script.subscription(2, b, "/t");
    for k in 0..10 {
        script.now_ns += 90 * MS;
        let stamp = script.run(1, 1, timer, None, MS, &[out])[0];
        script.run(2, 2, on, Some(stamp), MS, &[]);
        if k > 4 {
            script.now_ns += 8 * MS;
            script.run(2, 2, on, Some(-k), MS, &[]);
        }
    }
    let model = script.model();
    let (_, on) = callback(&model, "/b subscription /t");
    assert_eq!(on.arrivals.least_span_ns[0], 9 * MS);
    assert_eq!(on.cost.seen, 15);
    // From the take of an unseen message on, both kinds count.
    assert!(on.arrivals.least_span_ns[1] < 110 * MS, "{:?}", on.arrivals);
}

/// A thread that publishes two topics in a loop, and one of them now and then only.
#[test]
fn a_driver_is_an_event_source() {
    let mut script = Script::new();
    let driver = script.node(5, "lidar");
    let scan = script.publisher(5, driver, "/scan");
    let health = script.publisher(5, driver, "/health");
    let node = script.node(6, "map");
    let map = script.subscription(6, node, "/scan");
    let mut extractor = crate::Extractor::new(Options::default());
    let chain = extractor.watch(ChainSpec {
        name: "scan".into(),
        path: vec!["/lidar source /scan".into(), "/map subscription /scan".into()],
        goal_ns: None,
    });
    for k in 0..10u64 {
        script.wait_until(2_000 * MS + k * 200 * MS);
        script.work(5, 7, 3 * MS);
        let stamp = script.publish(5, 7, scan);
        if k % 3 == 0 {
            script.work(5, 7, MS);
            script.publish(5, 7, health);
        }
        script.run(6, 6, map, Some(stamp), MS, &[]);
    }
    script.events.iter().for_each(|event| extractor.event(event));
    let model = extractor.snapshot(script.now_ns);
    check(&model);
    let (_, source) = callback(&model, "/lidar source /scan");
    assert_eq!(source.kind, CallbackKind::Source);
    assert_eq!(model.executors[source.executor.0].kind, ExecutorKind::Source);
    assert_eq!(source.publishes.len(), 2);
    assert_eq!((source.arrivals.seen, source.arrivals.least_span_ns[1] / MS), (10, 400));
    // From the last publication of a turn to the last of the next: what the thread used between.
    assert_eq!(source.cost.most_ns[0], 4 * MS);
    assert_eq!(activates(&model, "/lidar source /scan"), ["/map subscription /scan"]);
    let measured = extractor.watched(chain).unwrap();
    assert_eq!((measured.began, measured.completions, measured.worst_ns), (10, 10, 2 * MS));
}

/// Service events of newer tracetools: the call and its answer are joined.
#[test]
fn a_service_is_two_hidden_topics() {
    let mut script = Script::new();
    let (plan, brain) = (script.node(1, "planner"), script.node(2, "brain"));
    let serve = script.service(1, plan, "/make_plan");
    let client = script.client(2, brain, "/make_plan");
    let tick = script.timer(2, brain, 500 * MS);
    let command = script.publisher(2, brain, "/cmd");
    let step = |script: &mut Script, pid, tid, step, rmw_handle, sequence| {
        script.emit(pid, tid, Kind::Service { step, rmw_handle, sequence, client: 0 });
    };
    let mut extractor = crate::Extractor::new(Options::default());
    let chain = extractor.watch(ChainSpec {
        name: "plan".into(),
        path: vec![
            "/brain timer 500ms".into(),
            "/planner service /make_plan".into(),
            "/brain client /make_plan".into(),
        ],
        goal_ns: None,
    });
    script.wait_until(1_990 * MS);
    script.idle(2, 2);
    for k in 0..5 {
        script.wait_until(2_000 * MS + k * 500 * MS);
        script.emit(2, 2, Kind::ExecutorNextReady);
        script.start(2, 2, tick);
        script.work(2, 2, MS);
        step(&mut script, 2, 2, ServiceStep::SendRequest, client + 1, k as i64);
        script.end(2, 2, tick);
        script.idle(2, 2);
        script.emit(1, 1, Kind::ExecutorNextReady);
        step(&mut script, 1, 1, ServiceStep::TakeRequest, serve + 1, k as i64);
        script.start(1, 1, serve);
        script.work(1, 1, 20 * MS);
        step(&mut script, 1, 1, ServiceStep::SendResponse, serve + 1, k as i64);
        script.end(1, 1, serve);
        script.idle(1, 1);
        script.emit(2, 2, Kind::ExecutorNextReady);
        step(&mut script, 2, 2, ServiceStep::TakeResponse, client + 1, k as i64);
        script.work(2, 2, 2 * MS);
        script.publish(2, 2, command);
        script.idle(2, 2);
    }
    script.events.iter().for_each(|event| extractor.event(event));
    let model = extractor.snapshot(script.now_ns);
    check(&model);
    assert_eq!(activates(&model, "/brain timer 500ms"), ["/planner service /make_plan"]);
    assert_eq!(activates(&model, "/planner service /make_plan"), ["/brain client /make_plan"]);
    let (_, answer) = callback(&model, "/brain client /make_plan");
    assert_eq!((answer.cost.seen, answer.cost.most_ns[0]), (5, 2 * MS));
    assert_eq!(model.topics[answer.publishes[0].0].name, "/cmd");
    assert!(topic(&model, "/make_plan (requests)").hidden);
    let measured = extractor.watched(chain).unwrap();
    // All but the first, at which the client's callback was found.
    assert_eq!((measured.completions, measured.dropped, measured.worst_ns), (4, 1, 23 * MS));
}

/// Jazzy: nothing shows requests and responses, but what runs between two selections without a
/// start is the client's.
#[test]
fn clients_are_inferred_where_no_event_names_them() {
    let mut script = Script::new();
    let (plan, brain) = (script.node(1, "planner"), script.node(2, "brain"));
    let serve = script.service(1, plan, "/make_plan");
    script.client(2, brain, "/make_plan");
    let tick = script.timer(2, brain, 500 * MS);
    let command = script.publisher(2, brain, "/cmd");
    for k in 0..5 {
        script.wait_until(2_000 * MS + k * 500 * MS);
        script.run(2, 2, tick, None, MS, &[]);
        script.idle(2, 2);
        script.run(1, 1, serve, None, 20 * MS, &[]);
        script.idle(1, 1);
        script.emit(2, 2, Kind::ExecutorNextReady);
        script.work(2, 2, 2 * MS);
        script.publish(2, 2, command);
        script.idle(2, 2);
    }
    let model = script.model();
    check(&model);
    let (_, answer) = callback(&model, "/brain client /make_plan");
    assert_eq!((answer.cost.seen, answer.cost.most_ns[0]), (5, 2 * MS));
    assert_eq!(model.topics[answer.publishes[0].0].name, "/cmd");
    assert_eq!(activates(&model, "/brain timer 500ms"), ["/planner service /make_plan"]);
    assert_eq!(activates(&model, "/planner service /make_plan"), ["/brain client /make_plan"]);
}

/// The preload library reads the CPU clock where it matters most, not at every event of an
/// executor.
#[test]
fn executor_events_without_cpu_time_do() {
    let mut script = Script::new();
    let (plan, brain) = (script.node(1, "planner"), script.node(2, "brain"));
    let serve = script.service(1, plan, "/make_plan");
    script.client(2, brain, "/make_plan");
    let tick = script.timer(2, brain, 500 * MS);
    for k in 0..5 {
        script.wait_until(2_000 * MS + k * 500 * MS);
        script.run(2, 2, tick, None, MS, &[]);
        script.idle(2, 2);
        script.run(1, 1, serve, None, 20 * MS, &[]);
        script.emit(2, 2, Kind::ExecutorNextReady);
        script.work(2, 2, 2 * MS);
        script.idle(2, 2);
    }
    for event in &mut script.events {
        if matches!(event.kind, Kind::ExecutorNextReady | Kind::ExecutorExecute { .. } | Kind::RmwTake { .. })
        {
            event.cpu_ns = None;
        }
    }
    let model = script.model();
    check(&model);
    let (_, answer) = callback(&model, "/brain client /make_plan");
    assert_eq!((answer.cost.seen, answer.cost.most_ns[0], answer.cost.cpu_time), (5, 2 * MS, true));
    assert_eq!(callback(&model, "/brain timer 500ms").1.cost.most_ns[0], MS);
}

/// AMCL: subscribes and publishes `/tf` (section V.a).
#[test]
fn a_callback_does_not_activate_itself() {
    let mut script = Script::new();
    let (amcl, nav) = (script.node(1, "amcl"), script.node(2, "nav"));
    let tf = script.publisher(1, amcl, "/tf");
    let listen = script.subscription(1, amcl, "/tf");
    let other = script.subscription(2, nav, "/tf");
    for _ in 0..5 {
        script.now_ns += 100 * MS;
        let stamp = script.run(1, 1, listen, Some(1), 5 * MS, &[tf])[0];
        script.run(2, 2, other, Some(stamp), MS, &[]);
    }
    let model = script.model();
    check(&model);
    assert_eq!(activates(&model, "/amcl subscription /tf"), ["/nav subscription /tf"]);
    let virtual_topic = topic(&model, "/tf#1");
    assert!(virtual_topic.hidden);
    assert_eq!(topic(&model, "/tf").subscribers.len(), 2);
    // Whoever published what amcl took is not there.
    assert!(model.unanalysable.iter().all(|u| u.reason.contains("not observed")));
}

#[test]
fn circles_over_one_topic_are_cut_and_others_are_named() {
    let mut script = Script::new();
    let nodes = [script.node(1, "a"), script.node(2, "b"), script.node(3, "c"), script.node(4, "d")];
    let tf: Vec<_> = (0..2).map(|i| script.publisher(i + 1, nodes[i as usize], "/tf")).collect();
    let listen: Vec<_> = (0..3).map(|i| script.subscription(i + 1, nodes[i as usize], "/tf")).collect();
    let (x, y) = (script.publisher(3, nodes[2], "/x"), script.publisher(4, nodes[3], "/y"));
    let (on_x, on_y) = (script.subscription(4, nodes[3], "/x"), script.subscription(3, nodes[2], "/y"));
    for _ in 0..3 {
        script.now_ns += 100 * MS;
        script.run(1, 1, listen[0], None, MS, &[tf[0]]);
        script.run(2, 2, listen[1], None, MS, &[tf[1]]);
        script.run(3, 3, listen[2], None, MS, &[]);
        script.run(4, 4, on_x, None, MS, &[y]);
        script.run(3, 3, on_y, None, MS, &[x]);
    }
    let model = script.model();
    check(&model);
    assert_eq!(activates(&model, "/a subscription /tf"), ["/c subscription /tf"]);
    assert_eq!(activates(&model, "/b subscription /tf"), ["/c subscription /tf"]);
    let reasons: Vec<(usize, bool)> =
        model.unanalysable.iter().map(|u| (u.callbacks.len(), u.towards.is_some())).collect();
    assert_eq!(reasons, [(2, true), (2, false)], "{:?}", model.unanalysable);
    assert!(model.unanalysable[1].reason.contains("/x, /y"), "{:?}", model.unanalysable[1]);
}

#[test]
fn message_filters_are_named_and_plain_subscriptions_are_not() {
    let mut script = Script::new();
    let node = script.node(1, "fusion");
    let joint = script.publisher(1, node, "/fused");
    let (left, right) = (script.subscription(1, node, "/left"), script.subscription(1, node, "/right"));
    let plain = script.publisher(1, node, "/plain");
    let (one, two) = (script.subscription(1, node, "/one"), script.subscription(1, node, "/two"));
    for k in 0..30 {
        script.now_ns += 50 * MS;
        // Whichever comes last publishes.
        let order = if k % 3 == 0 { [left, right] } else { [right, left] };
        script.run(1, 1, order[0], None, MS, &[]);
        script.run(1, 1, order[1], None, 4 * MS, &[joint]);
        script.run(1, 1, one, None, MS, &[plain]);
        script.run(1, 1, two, None, MS, &[plain]);
    }
    let model = script.model();
    check(&model);
    assert_eq!(model.unanalysable.len(), 1, "{:?}", model.unanalysable);
    let filter = &model.unanalysable[0];
    assert_eq!(model.topics[filter.towards.unwrap().0].name, "/fused");
    assert_eq!(
        filter.callbacks,
        [callback(&model, "/fusion subscription /left").0, callback(&model, "/fusion subscription /right").0]
    );
    // Either may be the last and pay for both.
    assert_eq!(callback(&model, "/fusion subscription /left").1.cost.most_ns[0], 4 * MS);
    assert_eq!(callback(&model, "/fusion subscription /left").1.publishes.len(), 1);
}

#[test]
fn several_threads_of_one_executor_are_recognised_and_a_move_is_not_taken_for_them() {
    let mut script = Script::new();
    let node = script.node(1, "node");
    let (a, b) = (script.timer(1, node, 10 * MS), script.timer(1, node, 20 * MS));
    let idle = script.timer(1, node, 1_000 * MS);
    let moved = script.node(2, "moved");
    let c = script.timer(2, moved, 10 * MS);
    for k in 0..10u32 {
        script.now_ns += 10 * MS;
        script.run(1, 100 + k % 2, a, None, MS, &[]);
        script.run(1, 100 + (k / 2) % 2, b, None, MS, &[]);
        script.run(2, if k < 2 { 2 } else { 200 }, c, None, MS, &[]);
    }
    let _ = idle;
    let model = script.model();
    check(&model);
    let (_, a) = callback(&model, "/node timer 10ms");
    let executor = &model.executors[a.executor.0];
    assert_eq!(
        (executor.kind, executor.threads.len(), executor.callbacks.len()),
        (ExecutorKind::MultiThreaded, 2, 3)
    );
    let (_, c) = callback(&model, "/moved timer 10ms");
    let executor = &model.executors[c.executor.0];
    assert_eq!((executor.kind, executor.threads.len()), (ExecutorKind::SingleThreaded, 1));
    assert_eq!(model.threads[executor.threads[0].0].tid, 200);
    assert_eq!(model.unanalysable.len(), 1);
    assert!(model.unanalysable[0].reason.contains("100, 101"));
}

#[test]
fn intra_process_messages_are_one_callback_and_one_publication() {
    let mut script = Script::new();
    let node = script.node(1, "container");
    let publisher = script.publisher(1, node, "/image");
    let timer = script.timer(1, node, 100 * MS);
    // The subscription has two callbacks, one of them registered before its object is.
    let (subscription, object, intra, callback_intra) =
        (script.handle(), script.handle(), script.handle(), script.handle());
    script.emit(1, 1, Kind::SubscriptionCallback { object: intra, callback: callback_intra });
    script.emit(
        1,
        1,
        Kind::SubscriptionInit { subscription, node, rmw_subscription: 77, topic: "/image".into(), depth: 2 },
    );
    script.emit(1, 1, Kind::SubscriptionObject { subscription, object: intra });
    script.emit(1, 1, Kind::SubscriptionObject { subscription, object });
    script.emit(1, 1, Kind::SubscriptionCallback { object, callback: 0x9999 });
    let mut extractor = crate::Extractor::new(Options::default());
    let chain = extractor.watch(ChainSpec {
        name: "image".into(),
        path: vec!["/container timer 100ms".into(), "/container subscription /image".into()],
        goal_ns: None,
    });
    script.wait_until(1_990 * MS);
    script.idle(1, 1);
    for k in 0..10 {
        script.wait_until(2_000 * MS + k * 100 * MS);
        script.emit(1, 1, Kind::ExecutorNextReady);
        script.start(1, 1, timer);
        script.work(1, 1, MS);
        script.emit(1, 1, Kind::IntraPublish { publisher, message: 5 });
        // And to other processes.
        script.publish(1, 1, publisher);
        script.end(1, 1, timer);
        script.emit(1, 1, Kind::ExecutorNextReady);
        script.emit(1, 1, Kind::CallbackStart { callback: callback_intra, intra_process: true });
        script.work(1, 1, 3 * MS);
        script.end(1, 1, callback_intra);
        script.idle(1, 1);
    }
    script.events.iter().for_each(|event| extractor.event(event));
    let model = extractor.snapshot(script.now_ns);
    check(&model);
    assert_eq!(model.callbacks.len(), 2);
    assert_eq!(activates(&model, "/container timer 100ms"), ["/container subscription /image"]);
    let (_, image) = callback(&model, "/container subscription /image");
    assert_eq!((image.arrivals.seen, image.cost.most_ns[0]), (10, 3 * MS));
    assert_eq!(image.arrivals.least_span_ns[1], 200 * MS);
    // All but the first, at which the buffer was found.
    let measured = extractor.watched(chain).unwrap();
    assert_eq!((measured.began, measured.completions, measured.worst_ns), (10, 9, 4 * MS));
}

#[test]
fn attached_late_everything_has_a_placeholder() {
    let mut whole = Script::new();
    let (a, b) = (whole.node(1, "a"), whole.node(2, "b"));
    let out = whole.publisher(1, a, "/t");
    let timer = whole.timer(1, a, 50 * MS);
    let on = whole.subscription(2, b, "/t");
    let odd = whole.service(2, b, "/s");
    let registrations = whole.events.len();
    for _ in 0..10 {
        whole.now_ns += 50 * MS;
        whole.emit(1, 1, Kind::ExecutorNextReady);
        whole.emit(1, 1, Kind::ExecutorExecute { handle: 0x1 });
        whole.start(1, 1, timer);
        whole.work(1, 1, MS);
        let stamp = whole.publish(1, 1, out);
        whole.end(1, 1, timer);
        whole.run(2, 2, on, Some(stamp), MS, &[]);
        whole.run(2, 2, odd, None, MS, &[]);
    }
    whole.events.drain(..registrations);
    let model = whole.model();
    check(&model);
    assert!(model.callbacks.iter().all(|c| c.name.starts_with('?')), "{:?}", model.callbacks);
    let timer = model.callbacks.iter().find(|c| c.name.contains("timer")).unwrap();
    assert!(
        matches!(timer.kind, CallbackKind::Timer { period_ns } if period_ns == 53 * MS),
        "{:?}",
        timer.kind
    );
    // The stamps report that publisher and subscription share a topic.
    let next = activates(&model, &timer.name);
    assert!(next.len() == 1 && next[0].contains("subscription"), "{next:?}");
    assert_eq!(model.executors.len(), 2);
}

#[test]
fn tasks_of_our_own_robots_are_their_own_executors() {
    let mut script = Script::new();
    for k in 0..20u64 {
        script.now_ns = 2_000 * MS + k * 2 * MS + MS;
        let released_ns = 2_000 * MS + k * 2 * MS;
        script.emit(
            9,
            90,
            Kind::Job { task: "ssm".into(), released_ns, started_ns: released_ns + 10, used_ns: 500_000 },
        );
    }
    let model = script.model();
    check(&model);
    let (_, task) = callback(&model, "task ssm");
    assert_eq!(model.executors[task.executor.0].kind, ExecutorKind::Task);
    assert_eq!((task.cost.most_ns[1], task.arrivals.least_span_ns[1]), (MS, 4 * MS));
    assert!(matches!(task.kind, CallbackKind::Timer { period_ns: 2_000_000 }));
}

/// `while (ok) { publish; spin_some; sleep; }`.
#[test]
fn a_thread_with_a_loop_of_its_own_is_named() {
    let mut script = Script::new();
    let node = script.node(1, "loop");
    let out = script.publisher(1, node, "/state");
    let on = script.subscription(1, node, "/command");
    let ten_times = |script: &mut Script| {
        for _ in 0..10 {
            script.now_ns += 20 * MS;
            script.emit(1, 1, Kind::ExecutorWait { timeout_ns: 0 });
            script.run(1, 1, on, None, MS, &[]);
            script.emit(1, 1, Kind::ExecutorNextReady);
            script.publish(1, 1, out);
        }
    };
    // At start-up anything may be published: nodes come into being beside an executor that was
    // there before.
    ten_times(&mut script);
    assert_eq!(script.model().unanalysable, []);
    script.now_ns += 2_000 * MS;
    ten_times(&mut script);
    let model = script.model();
    check(&model);
    assert_eq!(model.unanalysable.len(), 1, "{:?}", model.unanalysable);
    assert!(model.unanalysable[0].reason.contains("between calls of its executor"));
    assert!(model.callbacks.iter().all(|c| c.kind != CallbackKind::Source));
}

#[test]
fn a_timer_on_a_simulated_clock_is_believed_to_be_what_it_does() {
    let mut script = Script::new();
    let node = script.node(1, "sim");
    let timer = script.timer(1, node, 100 * MS);
    for _ in 0..50 {
        script.now_ns += 20 * MS;
        script.run(1, 1, timer, None, MS, &[]);
    }
    let model = script.model();
    let (_, timer) = callback(&model, "/sim timer 100ms");
    assert!(matches!(timer.kind, CallbackKind::Timer { period_ns } if period_ns < 22 * MS));
    assert_eq!(timer.arrivals.least_span_ns[1], 42 * MS);
}

#[test]
fn the_executors_own_work_is_charged() {
    let mut script = Script::new();
    let node = script.node(1, "n");
    let on = script.subscription(1, node, "/image");
    script.idle(1, 1);
    for _ in 0..5 {
        script.now_ns += 100 * MS;
        script.emit(1, 1, Kind::ExecutorNextReady);
        script.work(1, 1, 7 * MS); // deserialising
        script.take(1, 1, on, 5);
        script.start(1, 1, on);
        script.work(1, 1, 3 * MS);
        script.end(1, 1, on);
        script.idle(1, 1);
    }
    let most = |charge_executor| {
        let model = script.extract(Options { charge_executor, ..Options::default() }).snapshot(script.now_ns);
        callback(&model, "/n subscription /image").1.cost.most_ns[0]
    };
    assert_eq!((most(true), most(false)), (10 * MS, 3 * MS));
}

#[test]
fn probable_costs_are_there_when_asked_for() {
    let mut script = Script::new();
    let node = script.node(1, "n");
    let timer = script.timer(1, node, MS);
    for k in 0..1000u64 {
        script.now_ns += 10 * MS;
        script.run(1, 1, timer, None, if k % 200 == 0 { 5 * MS } else { MS }, &[]);
    }
    let extractor = script.extract(Options { exceedance: vec![0.1, 0.02, 1e-9], ..Options::default() });
    let model = extractor.snapshot(script.now_ns);
    let probable = &model.callbacks[0].probable_cost;
    assert_eq!(probable.iter().map(|p| p.exceedance).collect::<Vec<_>>(), [0.02, 0.1]);
    assert!(probable[0].most_ns[0] < 2 * MS && model.callbacks[0].cost.most_ns[0] == 5 * MS);
}
