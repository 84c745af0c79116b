//! Callbacks that were released and did not run, while their executor ran others.

use takt_ros::event::{GapCause, Handle, Kind};

use super::script::{MS, Script, callback, check, topic};
use crate::{Extractor, Model, Options, PassedOver};

/// A node whose timer of 50 ms takes 60 ms, so that its executor always has it to run; beside it a
/// subscription of `/in`, which somebody else publishes every 100 ms, and which would publish
/// `/out`.
struct Starved {
    script: Script,
    busy: Handle,
    takes: Handle,
    feeds: Handle,
    publishes: Handle,
    at_ns: u64,
    fed: u64,
}

impl Starved {
    fn new() -> Self {
        let mut script = Script::new();
        let (ss, feed, sink) = (script.node(1, "ss"), script.node(2, "feed"), script.node(3, "sink"));
        let publishes = script.publisher(1, ss, "/out");
        let takes = script.subscription(1, ss, "/in");
        let busy = script.timer(1, ss, 50 * MS);
        let to_in = script.publisher(2, feed, "/in");
        let feeds = script.timer(2, feed, 100 * MS);
        script.subscription(3, sink, "/out");
        script.idle(3, 3);
        let at_ns = script.now_ns + 1_000 * MS;
        script.wait_until(at_ns);
        script.idle(1, 1);
        Self { script, busy, takes, feeds, publishes: (to_in << 32) | publishes, at_ns, fed: 0 }
    }

    /// For so many tenths of a second the timer alone runs; the stamps of what was published.
    fn starve(&mut self, tenths: u64) -> Vec<i64> {
        let to_in = self.publishes >> 32;
        let mut stamps = Vec::new();
        for _ in 0..tenths {
            self.script.wait_until(self.at_ns + self.fed * 100 * MS);
            stamps.extend(self.script.run(2, 2, self.feeds, None, 0, &[to_in]));
            self.script.idle(2, 2);
            self.script.run(1, 1, self.busy, None, 60 * MS, &[]);
            self.fed += 1;
        }
        stamps
    }

    fn takes(&mut self, stamp: i64) {
        let out = self.publishes & 0xffff_ffff;
        self.script.run(1, 1, self.takes, Some(stamp), MS, &[out]);
    }
}

fn only(list: &[PassedOver]) -> &PassedOver {
    let [one] = list else { panic!("{list:?}") };
    one
}

#[test]
fn messages_for_a_subscription_that_never_ran_are_counted() {
    let mut starved = Starved::new();
    starved.starve(30);
    let model = starved.script.model();
    check(&model);
    let never = only(&model.never_ran);
    assert_eq!(never.callback, callback(&model, "/ss subscription /in").0);
    // The last was published before the timer began for the last time.
    assert_eq!((never.releases, never.period_ns, never.others_ran), (30, None, 30), "{never:?}");
    assert_eq!((never.newest_ns.len(), never.first_release_ns), (30, starved.at_ns));
    let [silent] = &model.silent[..] else { panic!("{:?}", model.silent) };
    assert_eq!(model.nodes[silent.node.0].name, "/ss");
    assert_eq!(silent.topics, [topic_id(&model, "/out")]);
    let text = model.to_text();
    assert!(text.contains("never ran in 30 messages, while its executor ran others 30 times"), "{text}");
}

fn topic_id(model: &Model, name: &str) -> crate::TopicId {
    let found = topic(model, name);
    crate::TopicId(model.topics.iter().position(|it| std::ptr::eq(it, found)).unwrap())
}

#[test]
fn what_runs_is_not_passed_over_and_what_stops_is() {
    let mut starved = Starved::new();
    let stamps = starved.starve(5);
    let last = *stamps.last().unwrap();
    starved.takes(last);
    let model = starved.script.model();
    assert!(model.never_ran.is_empty() && model.stopped.is_empty() && model.silent.is_empty());
    starved.starve(9);
    assert!(starved.script.model().stopped.is_empty(), "a queue may hold as many");
    let stamps = starved.starve(20);
    let model = starved.script.model();
    let stopped = only(&model.stopped);
    assert_eq!((stopped.releases, model.never_ran.len()), (29, 0), "{stopped:?}");
    assert_eq!(stopped.first_release_ns, starved.at_ns + 500 * MS);
    assert!(model.to_text().contains("then no more in 29 messages"), "{}", model.to_text());
    starved.takes(*stamps.last().unwrap());
    assert!(starved.script.model().stopped.is_empty());
}

#[test]
fn messages_before_the_publisher_can_know_of_a_subscription_do_not_count() {
    let mut script = Script::new();
    let (a, b) = (script.node(1, "a"), script.node(2, "b"));
    let out = script.publisher(1, a, "/t");
    let timer = script.timer(1, a, 100 * MS);
    script.subscription(2, b, "/t");
    let busy = script.timer(2, b, 50 * MS);
    let begin_ns = script.now_ns;
    for k in 0..15 {
        script.wait_until(begin_ns + k * 100 * MS);
        script.run(1, 1, timer, None, 0, &[out]);
        script.run(2, 2, busy, None, 60 * MS, &[]);
    }
    let model = script.model();
    // From the eleventh on, a second after its making.
    assert_eq!(only(&model.never_ran).releases, 5);
}

#[test]
fn a_timer_behind_a_callback_that_never_returns_is_passed_over() {
    let mut script = Script::new();
    let node = script.node(1, "stuck");
    let other = script.node(2, "other");
    let stuck = script.timer(1, node, 20 * MS);
    script.timer(1, node, 50 * MS);
    let ticks = script.timer(2, other, 100 * MS);
    let begin_ns = script.now_ns;
    script.wait_until(begin_ns + 20 * MS);
    script.emit(1, 1, Kind::ExecutorNextReady);
    script.start(1, 1, stuck);
    script.wait_until(begin_ns + 1_050 * MS);
    script.run(2, 2, ticks, None, 0, &[]);
    let model = script.model();
    let never = only(&model.never_ran);
    assert_eq!(never.callback, callback(&model, "/stuck timer 50ms").0);
    assert_eq!((never.releases, never.others_ran), (21, 1), "{never:?}");
    // It returns when the program ends, which makes nothing better.
    script.end(1, 1, stuck);
    let model = script.model();
    assert_eq!((only(&model.never_ran).releases, only(&model.never_ran).others_ran), (21, 1));
}

#[test]
fn a_timer_that_stops_is_reported_and_one_that_is_merely_late_is_not() {
    let mut script = Script::new();
    let node = script.node(1, "later");
    let (a, b) = (script.timer(1, node, 50 * MS), script.timer(1, node, 50 * MS));
    let begin_ns = script.now_ns;
    for k in 1..10 {
        script.wait_until(begin_ns + k * 50 * MS);
        script.run(1, 1, a, None, MS, &[]);
        script.run(1, 1, b, None, MS, &[]);
        script.idle(1, 1);
    }
    assert!(script.model().stopped.is_empty());
    for _ in 0..8 {
        script.run(1, 1, b, None, 60 * MS, &[]);
    }
    assert!(script.model().stopped.is_empty(), "it may catch up");
    for _ in 0..20 {
        script.run(1, 1, b, None, 60 * MS, &[]);
    }
    let model = script.model();
    let stopped = only(&model.stopped);
    assert_eq!(stopped.callback, callback(&model, "/later timer 50ms").0);
    // Due at 500 ms; the last run of the other ended at 452 + 28 * 60 ms.
    assert_eq!((stopped.releases, stopped.first_release_ns), (33, begin_ns + 500 * MS), "{stopped:?}");
}

#[test]
fn a_gap_is_no_release_that_was_passed_over() {
    let mut starved = Starved::new();
    starved.starve(10);
    let from_ns = starved.script.now_ns;
    starved.script.wait_until(from_ns + 2_000 * MS);
    starved.script.emit(0, 0, Kind::Gap { from_ns, why: GapCause::Paused });
    starved.fed += 20;
    starved.starve(10);
    assert_eq!(only(&starved.script.model().never_ran).releases, 20);
}

#[test]
fn what_had_not_run_is_known_after_its_process_has_ended() {
    let mut starved = Starved::new();
    starved.starve(30);
    let thread_end = |script: &mut Script, tid| script.emit(1, tid, Kind::ThreadEnd);
    thread_end(&mut starved.script, 1);
    let mut extractor = starved.script.extract(Options::default());
    let farewells = Extractor::take_farewells(&mut extractor);
    let [farewell] = &farewells[..] else { panic!("{} of them", farewells.len()) };
    assert_eq!(only(&farewell.never_ran).releases, 30);
    assert!(extractor.take_farewells().is_empty());
    assert!(extractor.snapshot(starved.script.now_ns).never_ran.is_empty());
    // A recording keeps what has ended.
    let options = Options { keep_ended: true, ..Options::default() };
    let mut extractor = starved.script.extract(options);
    assert!(extractor.take_farewells().is_empty());
    assert_eq!(only(&extractor.snapshot(starved.script.now_ns).never_ran).releases, 30);
}
