//! Suspensions, yields and messages beyond what a plan assumed: the word goes at once, the callback
//! is named, and the next plan has it.

use super::*;
use takt_ros::event::Event;

/// Actions of one step's activation besides computing 2 ms.
#[derive(Clone, Copy, Default)]
struct Does {
    /// It gives the CPU up so often, for 20 us together.
    switches: u64,
    yields: u64,
    messages: u64,
}

/// A driver whose timer of 50 ms publishes to `/t`, on one thread, and a listener on another.
fn talking(from_ns: u64, does: impl Fn(u64) -> Does) -> Script {
    let mut events: Vec<Event> = Vec::new();
    let mut cpu_ns = [0; 2];
    let mut push = |at_ns: u64, cpu_ns: u64, tid: u32, kind: Kind| {
        events.push(Event { at_ns, cpu_ns: Some(cpu_ns), pid: 10, tid, kind });
    };
    driver(from_ns, &mut |at_ns, cpu_ns, kind| push(at_ns, cpu_ns, 10, kind));
    let topic = || "/t".into();
    push(
        from_ns,
        0,
        10,
        Kind::PublisherInit { publisher: 20, node: 1, rmw_publisher: 21, topic: topic(), depth: 10 },
    );
    push(from_ns, 0, 11, Kind::NodeInit { node: 30, name: "listener".into(), namespace: "/".into() });
    let subscription = Kind::SubscriptionInit {
        subscription: 31,
        node: 30,
        rmw_subscription: 32,
        topic: topic(),
        depth: 10,
    };
    push(from_ns, 0, 11, subscription);
    push(from_ns, 0, 11, Kind::SubscriptionObject { subscription: 31, object: 33 });
    push(from_ns, 0, 11, Kind::SubscriptionCallback { object: 33, callback: 34 });
    let mut stamp = 1_700_000_000_000_000_000;
    for step in 1..800 {
        let mut at_ns = from_ns + step * 50 * MS;
        let Does { switches, yields, messages } = does(step);
        push(at_ns - 1000, cpu_ns[0], 10, Kind::ExecutorWait { timeout_ns: -1 });
        push(at_ns, cpu_ns[0], 10, Kind::CallbackStart { callback: 3, intra_process: false });
        cpu_ns[0] += 2 * MS;
        at_ns += 2 * MS;
        let first = stamp + 1;
        for _ in 0..messages {
            stamp += 1;
            push(at_ns, cpu_ns[0], 10, Kind::RclPublish { publisher: 20, message: 7 });
            let source_ns = Some(stamp);
            push(at_ns, cpu_ns[0], 10, Kind::RmwPublish { rmw_publisher: 21, message: 7, source_ns });
        }
        if switches + yields > 0 {
            at_ns += 20_000;
            let (switches, yields) = (Some(switches), Some(yields));
            push(at_ns, cpu_ns[0], 10, Kind::OffCpu { switches, ready_ns: Some(0), yields, early_ns: 0 });
        }
        push(at_ns, cpu_ns[0], 10, Kind::CallbackEnd { callback: 3 });
        for source_ns in first..=stamp {
            at_ns += 10_000;
            push(at_ns, cpu_ns[1], 11, Kind::ExecutorNextReady);
            let taken = Kind::RmwTake { rmw_subscription: 32, message: 8, source_ns, taken: true };
            push(at_ns, cpu_ns[1], 11, taken);
            push(at_ns, cpu_ns[1], 11, Kind::CallbackStart { callback: 34, intra_process: false });
            (cpu_ns[1], at_ns) = (cpu_ns[1] + MS, at_ns + MS);
            push(at_ns, cpu_ns[1], 11, Kind::CallbackEnd { callback: 34 });
        }
        push(at_ns + 1000, cpu_ns[1], 11, Kind::ExecutorWait { timeout_ns: -1 });
    }
    Script { events: events.into(), now_ns: 0, ..Script::default() }
}

fn chain() -> Goals {
    let text = "degradation_order = [\"talk\"]\n[[chain]]\nname = \"talk\"\nstart = \"/driver\"\nend = \"/listener\"\ngoal = \"200 ms\"\n";
    Goals::parse(text, "test").unwrap()
}

/// Kept until step 200, at 10 s, when the driver does more than ever before: what is then reported.
/// The next plan has it, as the word is there again 20 s later.
fn broken(before: Does, after: Does) -> String {
    let does = move |step| if step < 200 { before } else { after };
    let mut setup = setup_with(chain(), false, |from_ns| talking(from_ns, does));
    setup.pass(0.0, 9.5);
    let state =
        |setup: &Setup, at_s: f64| setup.live.status(setup.from_ns + (at_s * 1e9) as u64).chains[0].clone();
    let kept = state(&setup, 9.5);
    assert_eq!(kept.state, "guaranteed", "{}", kept.why);
    assert!(kept.assumptions.iter().all(|one| one.holds == Some(true)), "{:#?}", kept.assumptions);
    let plans = setup.live.plans();
    setup.pass(10.0, 10.5);
    let lost = state(&setup, 10.5);
    assert_ne!(lost.state, "guaranteed", "the word goes at this look");
    assert_eq!(setup.live.plans(), plans + 1, "and a new plan is made at once");
    let reported = lost.run.refutations[0].1.clone();
    setup.pass(11.0, 30.0);
    let again = state(&setup, 30.0);
    assert_eq!(again.state, "guaranteed", "{}", again.why);
    reported
}

const ONE: Does = Does { switches: 0, yields: 0, messages: 1 };

#[test]
fn a_suspension_of_20_us_takes_the_word_back() {
    let reported = broken(ONE, Does { switches: 1, ..ONE });
    assert!(
        reported.contains("/driver timer 50ms: ") && reported.contains("suspended themselves"),
        "{reported}"
    );
}

#[test]
fn one_suspension_more_takes_the_word_back() {
    let reported = broken(Does { switches: 1, ..ONE }, Does { switches: 2, ..ONE });
    let words = "one activation suspended themselves 2 times (sleep, lock, device); at most 1 was assumed";
    assert!(reported.contains(words), "{reported}");
}

#[test]
fn a_yield_takes_the_word_back() {
    let reported = broken(ONE, Does { yields: 1, ..ONE });
    assert!(
        reported.contains("one activation yielded the CPU 1 times (sched_yield); at most 0 was assumed"),
        "{reported}"
    );
}

#[test]
fn one_message_more_takes_the_word_back() {
    let reported = broken(ONE, Does { messages: 2, ..ONE });
    let words = "/driver timer 50ms: one activation sent 2 messages to a topic; at most 1 was assumed";
    assert!(reported.contains(words), "{reported}");
}

/// A source that says nothing of an activation that was off the CPU: no word, and the reason.
#[test]
fn where_suspensions_cannot_be_seen_nothing_is_guaranteed() {
    let silent = |from_ns| {
        let mut script = script(from_ns, 40);
        script.events.retain(|event| !matches!(event.kind, Kind::OffCpu { .. }));
        script
    };
    let mut setup = setup_of(100, false, silent);
    setup.pass(0.0, 13.0);
    let chain = &setup.live.status(setup.from_ns + 13_000 * MS).chains[0];
    assert_eq!(chain.state, "not_measurable");
    let why = "whether /driver timer 50ms suspends itself or yields cannot be reported by what observes it";
    assert_eq!(chain.why, why);
}
