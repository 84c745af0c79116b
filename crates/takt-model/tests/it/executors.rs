//! Events of real nodes (rclcpp of Jazzy, Fast DDS, the preload library), recorded and cut to about
//! a second: what kind of executor runs them, which callbacks exclude each other, and chains
//! through services, message filters and from publishers that are not observed.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use takt_model::{CallbackKind, ChainSpec, ChainStats, ExecutorKind, Extractor, Model, Options, Outside};
use takt_ros::event::{Event, Kind, ServiceStep};

fn events(name: &str) -> Vec<Event> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Measurements of the chain, and the model at the end.
fn extract(events: &[Event], path: &[&str]) -> (ChainStats, Model) {
    let mut extractor = Extractor::new(Options::default());
    let path = path.iter().map(|step| (*step).to_owned()).collect();
    let chain = extractor.watch(ChainSpec { name: "chain".into(), path, goal_ns: None });
    for event in events {
        extractor.event(event);
    }
    let model = extractor.snapshot(events.last().unwrap().at_ns);
    (extractor.watched(chain).unwrap().clone(), model)
}

fn callback<'a>(model: &'a Model, name: &str) -> &'a takt_model::Callback {
    model.callbacks.iter().find(|c| c.name == name).unwrap_or_else(|| panic!("{name}:\n{}", model.to_text()))
}

fn kind(model: &Model, name: &str) -> ExecutorKind {
    model.executors[callback(model, name).executor.0].kind
}

const CALL: [&str; 4] =
    ["/caller timer 100ms", "/server service /make", "/caller client /make", "/sink subscription /plan"];

/// A timer calls a service, the answer's callback publishes: Jazzy has no event of any of that but
/// the service's callback, and the answer is sent after it has ended.
#[test]
fn a_chain_goes_through_a_service() {
    for (recording, expected) in
        [("service.jsonl", ExecutorKind::SingleThreaded), ("events.jsonl", ExecutorKind::Events)]
    {
        let events = events(recording);
        let (chain, model) = extract(&events, &CALL);
        // The first calls found no service, the last may be under way.
        let answer = |e: &&Event| matches!(e.kind, Kind::Service { step: ServiceStep::TakeResponse, .. });
        let answers = events.iter().filter(answer).count() as u64;
        assert!(answers >= 9, "{recording}: {answers}");
        assert!(chain.completions <= answers && chain.completions + 3 >= answers, "{recording}: {chain:?}");
        assert!(chain.worst_ns > 8_000_000 && chain.repeated == 0, "{recording}");
        assert!(CALL.iter().all(|name| kind(&model, name) == expected), "{recording}\n{}", model.to_text());
        // The answer is not a publication between calls of the executor, and nothing is work
        // without events.
        assert!(model.unanalysable.is_empty(), "{:?}", model.unanalysable);
        assert!(!model.callbacks.iter().any(|c| c.name.contains("without events")));
        let client = callback(&model, CALL[2]);
        assert!(client.cost.cpu_time && client.cost.most_ns[0] >= 1_000_000, "{:?}", client.cost.most_ns);
    }
}

/// A service whose answers come from another thread, as those of actions do that execute their
/// goals in threads: how long that takes is not known, and a chain through it says so.
#[test]
fn answers_of_another_thread_have_no_bound() {
    let mut events = events("service.jsonl");
    let answers =
        |event: &&mut Event| matches!(event.kind, Kind::Service { step: ServiceStep::SendResponse, .. });
    for event in events.iter_mut().filter(answers) {
        event.tid += 100_000;
    }
    let (_, model) = extract(&events, &CALL);
    let later = model.unanalysable.iter().find(|it| it.reason.contains("is answered later")).unwrap();
    let topic = &model.topics[later.towards.unwrap().0];
    assert_eq!(later.callbacks.len(), 1);
    assert_eq!(model.callbacks[later.callbacks[0].0].name, CALL[1]);
    assert!(topic.subscribers.iter().any(|id| model.callbacks[id.0].name == CALL[2]), "{topic:?}");
}

/// Another client of the service whose requests have the same numbers at the same time, in another
/// process.
#[test]
fn clients_that_count_alike_are_distinguished() {
    let mut events = events("service.jsonl");
    let (before, _) = extract(&events, &CALL);
    let caller = events
        .iter()
        .find(|e| matches!(e.kind, Kind::Service { step: ServiceStep::SendRequest, .. }))
        .map(|e| e.pid)
        .unwrap();
    let duplicate: Vec<Event> = events
        .iter()
        .filter(|e| e.pid == caller)
        .map(|event| {
            let mut event = event.clone();
            (event.pid, event.tid) = (event.pid + 100_000, event.tid + 100_000);
            event.at_ns += 1000;
            match &mut event.kind {
                Kind::NodeInit { name, .. } => *name = "duplicate".into(),
                Kind::Service { client, .. } => *client ^= 1 << 40,
                Kind::RmwPublish { source_ns: Some(stamp), .. } => *stamp += 1,
                _ => {}
            }
            event
        })
        .collect();
    events.extend(duplicate);
    events.sort_by_key(|event| event.at_ns);
    let (after, _) = extract(&events, &CALL);
    assert_eq!((after.completions, after.worst_ns), (before.completions, before.worst_ns));
}

#[test]
fn a_multi_threaded_executor_has_its_threads_and_groups() {
    let events = events("multi.jsonl");
    let path = ["/work timer 20ms", "/work subscription /w", "/work subscription /w2"];
    let (chain, model) = extract(&events, &path);
    assert_eq!(chain.completions + chain.dropped + chain.under_way() as u64, chain.began);
    assert!(chain.completions >= 9);
    let executor = &model.executors[callback(&model, path[0]).executor.0];
    assert_eq!((executor.kind, executor.threads.len()), (ExecutorKind::MultiThreaded, 3));
    let group = |name: &str| {
        executor
            .groups
            .iter()
            .find(|g| g.callbacks.iter().any(|id| model.callbacks[id.0].name == name))
            .unwrap()
    };
    assert_eq!(group(path[0]), group("/work timer 50ms"));
    assert!(!group(path[0]).reentrant && group(path[1]).reentrant);
    assert_eq!(group(path[1]), group(path[2]));
    // Wake-ups for nothing (four thousand a second) are no callbacks.
    assert!(!model.callbacks.iter().any(|c| c.name.contains("without events")), "{}", model.to_text());
    assert!(model.unanalysable.is_empty(), "{:?}", model.unanalysable);
    // Without what reports of the groups, the executor is not analysable, and says why.
    let silent: Vec<Event> =
        events.into_iter().filter(|e| !matches!(e.kind, Kind::GroupMember { .. })).collect();
    let (_, model) = extract(&silent, &path);
    assert!(
        model.unanalysable.iter().any(|u| u.reason.contains("callback groups")),
        "{:?}",
        model.unanalysable
    );
}

/// Without what reports of executors, one that never shows that it waits could be any.
#[test]
fn an_executor_that_never_waits_is_not_taken_for_one_that_does() {
    let silent: Vec<Event> = events("events.jsonl")
        .into_iter()
        .filter(|e| !matches!(e.kind, Kind::ExecutorSpin { .. } | Kind::ExecutorExecuted { .. }))
        .collect();
    let (_, model) = extract(&silent, &CALL);
    assert_eq!(kind(&model, CALL[0]), ExecutorKind::Events);
    assert!(model.unanalysable.iter().any(|u| u.reason.contains("without the events of an executor")));
}

/// A `TimeSynchronizer`: measured over each input, whichever came last, and not analysable over
/// either, since no input has to be the last.
#[test]
fn a_join_is_measured_over_each_input() {
    let events = events("join.jsonl");
    for (sensor, input) in
        [("/sa timer 50ms", "/fuse subscription /a"), ("/sb timer 50ms", "/fuse subscription /b")]
    {
        let (chain, model) = extract(&events, &[sensor, input, "/sink subscription /out"]);
        assert!(chain.began >= 15 && chain.completions + 4 >= chain.began, "{input}: {chain:?}");
        let [filter] = &model.unanalysable[..] else { panic!("{:?}", model.unanalysable) };
        assert!(filter.reason.contains("message filter") && filter.callbacks.len() == 2, "{filter:?}");
        let out = filter.towards.unwrap();
        assert!(filter.callbacks.iter().all(|c| model.callbacks[c.0].publishes.contains(&out)));
    }
}

/// A node of Python, and one that is not observed.
#[test]
fn python_is_named_and_publishers_outside_are_believed_by_their_stamps() {
    let events = events("python.jsonl");
    let (chain, model) = extract(&events, &["/sinko subscription /o"]);
    let nodes: Vec<&str> = model.python.nodes.iter().map(|id| model.nodes[id.0].name.as_str()).collect();
    assert_eq!(nodes, ["/talker"]);
    // The thread of the node, and one of the middleware that takes what reports of the graph.
    assert!((1..=2).contains(&model.python.threads.len()));
    // What it subscribes to is where chains end.
    let of_talker = |topic: &takt_model::Subscribed| topic.nodes == model.python.nodes;
    assert!(model.python.subscribed.iter().all(of_talker), "{:?}", model.python.subscribed);
    let source = callback(&model, "/talker source /chatter");
    assert_eq!(source.kind, CallbackKind::Source);
    let outside = |model: &Model| model.topics.iter().find(|t| t.name == "/o").unwrap().outside;
    assert!(
        matches!(outside(&model), Outside::Stamped { seen: 10.., most_ns: 1.., .. }),
        "{:?}",
        outside(&model)
    );
    assert!(chain.completions >= 10);
    // The same messages, with a clock that is ahead by a second: from the future, and so not
    // believed.
    let ahead: Vec<Event> = events
        .into_iter()
        .map(|mut event| {
            if let Kind::RmwTake { source_ns, .. } = &mut event.kind {
                *source_ns += 1_000_000_000;
            }
            event
        })
        .collect();
    let (chain, model) = extract(&ahead, &["/sinko subscription /o"]);
    assert!(matches!(outside(&model), Outside::Unknown { .. }));
    assert!(chain.completions == 0 && chain.unmeasured >= 10);
    assert!(model.unanalysable.iter().any(|u| u.reason.contains("cannot be known")));
}

/// The same events give the same answer, in whatever order hash tables come.
#[test]
fn the_same_events_give_the_same_model() {
    for recording in ["service.jsonl", "join.jsonl", "multi.jsonl"] {
        let events = events(recording);
        let (_, first) = extract(&events, &[]);
        for _ in 0..3 {
            assert_eq!(extract(&events, &[]).1, first);
        }
    }
}
