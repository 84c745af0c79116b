//! What a plan assumed, held against what happens: numbers of suspensions, yields, messages,
//! senders, threads.

use takt_ros::event::Kind;

use super::script::{MS, Script, callback};
use crate::{Assumed, Breach, Extractor, Options};

/// Feeds what the script has got since the last call.
fn feed(extractor: &mut Extractor, script: &mut Script) {
    script.events.drain(..).for_each(|event| extractor.event(&event));
}

fn reported(extractor: &mut Extractor) -> Vec<String> {
    extractor.broken().iter().map(ToString::to_string).collect()
}

/// One activation that gave the CPU up `switches` times and yielded `yields` times, and sends a
/// message by each of `publishers`.
fn activation(script: &mut Script, tid: u32, timer: u64, (switches, yields): (u64, u64), publishers: &[u64]) {
    script.emit(1, tid, Kind::ExecutorNextReady);
    script.start(1, tid, timer);
    script.work(1, tid, MS);
    for &publisher in publishers {
        script.publish(1, tid, publisher);
    }
    if switches + yields > 0 {
        script.now_ns += 5_000;
        let (switches, yields) = (Some(switches), Some(yields));
        script.emit(1, tid, Kind::OffCpu { switches, ready_ns: Some(0), yields, early_ns: 0 });
    }
    script.end(1, tid, timer);
    script.idle(1, tid);
}

#[test]
fn numbers_are_kept_by_activations_in_a_row_and_guarded() {
    let mut script = Script::new();
    let node = script.node(1, "a");
    let timer = script.timer(1, node, 100 * MS);
    for k in 0..40 {
        script.wait_until(2_000 * MS + k * 100 * MS);
        // Five microseconds, three times, at every tenth; and a yield at another.
        let does = match k % 10 {
            3 => (3, 0),
            7 => (0, 1),
            _ => (0, 0),
        };
        activation(&mut script, 1, timer, does, &[]);
    }
    let mut extractor = script.extract(Options::default());
    script.events.clear();
    let model = extractor.snapshot(script.now_ns);
    let (_, found) = callback(&model, "/a timer 100ms");
    assert_eq!((found.most_suspensions, found.suspension.most_ns[0]), (3, 5_000));
    assert_eq!(found.suspensions[..11], [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 6]);
    assert_eq!(found.yields[..11], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
    assert!(!found.suspension_unseen);

    let assumed = Assumed {
        callback: found.name.clone(),
        suspension_ns: Some(found.suspension.most_ns.clone()),
        suspensions: found.suspensions.clone(),
        yields: found.yields.clone(),
        ..Assumed::default()
    };
    extractor.assume(&[assumed]);
    let mut next = |does: (u64, u64)| {
        script.now_ns += 100 * MS;
        activation(&mut script, 1, timer, does, &[]);
        feed(&mut extractor, &mut script);
        reported(&mut extractor)
    };
    assert!(next((3, 1)).is_empty());
    // Each as often as ever; within ten activations too often.
    let broken = next((1, 0));
    assert!(
        broken
            .iter()
            .any(|reported| reported.contains("2 activations in a row suspended themselves 4 times")),
        "{broken:?}"
    );
    let broken = next((0, 1));
    let words = "yielded the CPU 2 times (sched_yield); at most 1 was assumed";
    assert!(broken.iter().any(|reported| reported.contains(words)), "{broken:?}");
}

/// Each activation alone is within what is assumed, and so is each plan's; two in a row are not,
/// with a new plan between them.
#[test]
fn windows_do_not_begin_anew_with_a_plan() {
    let mut script = Script::new();
    let (a, b) = (script.node(1, "a"), script.node(2, "b"));
    let (counted, other) = (script.publisher(1, a, "/counted"), script.publisher(1, a, "/other"));
    let timer = script.timer(1, a, 100 * MS);
    let listener = script.subscription(2, b, "/other");
    script.run(2, 2, listener, None, MS, &[]);
    script.idle(2, 2);
    let activation = |script: &mut Script, ns: u64, messages: usize, (switches, yields): (u64, u64)| {
        script.emit(1, 1, Kind::ExecutorNextReady);
        script.start(1, 1, timer);
        script.work(1, 1, ns);
        for _ in 0..messages {
            script.publish(1, 1, counted);
        }
        script.publish(1, 1, other);
        if switches + yields > 0 {
            script.now_ns += 5_000;
            let (switches, yields) = (Some(switches), Some(yields));
            script.emit(1, 1, Kind::OffCpu { switches, ready_ns: Some(0), yields, early_ns: 0 });
        }
        script.end(1, 1, timer);
        script.idle(1, 1);
    };
    for k in 0..20 {
        script.wait_until(2_000 * MS + k * 100 * MS);
        activation(&mut script, MS, 1, (0, 0));
    }
    let mut extractor = script.extract(Options::default());
    script.events.clear();
    let assumed = [
        Assumed {
            callback: "/a timer 100ms".into(),
            cost_ns: Some(vec![3 * MS, 5 * MS]),
            suspension_ns: Some(vec![MS]),
            suspensions: vec![3, 4],
            yields: vec![1, 1],
            outputs: vec![("/counted".into(), vec![2, 3])],
            ..Assumed::default()
        },
        // Three messages come in 120 ms or more.
        Assumed {
            callback: "/b subscription /other".into(),
            spans_ns: Some(vec![40 * MS, 120 * MS]),
            ..Assumed::default()
        },
    ];
    extractor.assume(&assumed);
    script.wait_until(2_000 * MS + 19 * 100 * MS + 60 * MS);
    activation(&mut script, 3 * MS, 2, (3, 1));
    feed(&mut extractor, &mut script);
    assert_eq!(reported(&mut extractor), [""; 0]);
    extractor.assume(&assumed);
    script.wait_until(2_000 * MS + 19 * 100 * MS + 110 * MS);
    activation(&mut script, 3 * MS, 2, (2, 1));
    feed(&mut extractor, &mut script);
    let broken = extractor.broken();
    let is = |what: fn(&Breach) -> bool| broken.iter().any(|one| what(&one.what));
    assert!(is(|what| matches!(what, Breach::Cost(_))), "{broken:?}");
    assert!(is(|what| matches!(what, Breach::Suspensions(_))), "{broken:?}");
    assert!(is(|what| matches!(what, Breach::Yields(_))), "{broken:?}");
    assert!(is(|what| matches!(what, Breach::Output(_))), "{broken:?}");
    assert!(is(|what| matches!(what, Breach::Arrivals(excess) if excess.events == 3)), "{broken:?}");
    // What was reported is not reported again by the plan that follows.
    extractor.assume(&assumed);
    script.wait_until(2_000 * MS + 19 * 100 * MS + 400 * MS);
    activation(&mut script, MS, 1, (0, 0));
    feed(&mut extractor, &mut script);
    assert_eq!(reported(&mut extractor), [""; 0]);
}

#[test]
fn messages_beyond_what_was_assumed_are_reported_and_so_are_strangers() {
    let mut script = Script::new();
    let (a, b) = (script.node(1, "a"), script.node(2, "b"));
    let (out, other) = (script.publisher(1, a, "/t"), script.publisher(1, a, "/t"));
    let timer = script.timer(1, a, 100 * MS);
    let stranger = script.timer(1, a, 300 * MS);
    let listener = script.subscription(2, b, "/t");
    script.run(2, 2, listener, None, MS, &[]);
    script.idle(2, 2);
    for k in 0..20 {
        script.wait_until(2_000 * MS + k * 100 * MS);
        activation(&mut script, 1, timer, (0, 0), &[out]);
        if k % 3 == 0 {
            activation(&mut script, 1, stranger, (0, 0), &[]);
        }
    }
    let mut extractor = script.extract(Options::default());
    script.events.clear();
    extractor.assume(&[
        Assumed {
            callback: "/a timer 100ms".into(),
            outputs: vec![("/t".into(), vec![1, 2, 3])],
            ..Assumed::default()
        },
        Assumed { callback: "/b subscription /t".into(), senders: vec!["/t".into()], ..Assumed::default() },
    ]);
    activation(&mut script, 1, timer, (0, 0), &[other]);
    feed(&mut extractor, &mut script);
    assert!(reported(&mut extractor).is_empty());
    activation(&mut script, 1, timer, (0, 0), &[out, other]);
    feed(&mut extractor, &mut script);
    let words = "/a timer 100ms: one activation sent 2 messages to a topic; at most 1 was assumed";
    assert_eq!(reported(&mut extractor), [words]);
    activation(&mut script, 1, stranger, (0, 0), &[other]);
    feed(&mut extractor, &mut script);
    let broken = extractor.broken();
    assert_eq!(broken.len(), 1);
    assert_eq!((broken[0].callback.as_str(), broken[0].what), ("/b subscription /t", Breach::Sender));
}

/// A callback that no plan knew, on each thread of an executor: on those that served it last,
/// before, and never.
#[test]
fn executors_of_several_threads_are_closed_on_all_of_them() {
    for tid in [1, 11, 12] {
        let mut script = Script::new();
        let node = script.node(1, "a");
        let timer = script.timer(1, node, 100 * MS);
        let unknown = script.timer(1, node, 300 * MS);
        let spin = |script: &mut Script, tid| {
            let executor = 0x77;
            let kind = "N6rclcpp9executors21MultiThreadedExecutorE".into();
            script.emit(1, tid, Kind::ExecutorSpin { executor, kind });
        };
        [1, 11].iter().for_each(|&tid| spin(&mut script, tid));
        for k in 0..10 {
            script.wait_until(2_000 * MS + k * 100 * MS);
            activation(&mut script, if k % 2 == 0 { 1 } else { 11 }, timer, (0, 0), &[]);
        }
        let mut extractor = script.extract(Options::default());
        script.events.clear();
        extractor.assume(&[Assumed {
            callback: "/a timer 100ms".into(),
            closed: true,
            ..Assumed::default()
        }]);
        spin(&mut script, tid);
        activation(&mut script, tid, unknown, (0, 0), &[]);
        feed(&mut extractor, &mut script);
        let broken = extractor.broken();
        assert_eq!(broken.len(), 1, "thread {tid}");
        // By a thread that the plan knows.
        assert!(matches!(broken[0].what, Breach::Unplanned { tid: 1 | 11 }), "{broken:?}");
    }
}
