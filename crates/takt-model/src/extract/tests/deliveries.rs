//! How long the middleware takes with messages, and when messages of others arrive.

use takt_ros::event::{Handle, Kind};

use super::script::{MS, Script, callback, check, topic};
use crate::guard::{Assumed, Breach};
use crate::{Extractor, Options, Outside};

/// A publisher on thread 11 and a subscriber on thread 21.
struct Pair {
    script: Script,
    timer: Handle,
    on: Handle,
    out: Handle,
}

fn pair() -> Pair {
    let mut script = Script::new();
    let (a, b) = (script.node(10, "a"), script.node(20, "b"));
    let out = script.publisher(10, a, "/t");
    let timer = script.timer(10, a, 100 * MS);
    let on = script.subscription(20, b, "/t");
    // What comes now is no start-up any more.
    script.now_ns += 10_000 * MS;
    Pair { script, timer, on, out }
}

impl Pair {
    /// Published in the middle of 4 ms, received `after_ns` after that, and taken 20 ms after it.
    fn message(&mut self, after_ns: Option<u64>) {
        let Self { script, timer, on, out } = self;
        script.now_ns += 70 * MS;
        script.emit(10, 11, Kind::ExecutorNextReady);
        script.start(10, 11, *timer);
        script.work(10, 11, 2 * MS);
        let stamp = script.publish(10, 11, *out);
        script.work(10, 11, 2 * MS);
        script.end(10, 11, *timer);
        script.idle(10, 11);
        script.now_ns += 18 * MS;
        script.emit(20, 21, Kind::ExecutorNextReady);
        if let Some(after_ns) = after_ns {
            script.emit(20, 21, Kind::MessageReceived { after_ns: after_ns as i64 });
        }
        script.take(20, 21, *on, stamp);
        script.start(20, 21, *on);
        script.work(20, 21, MS);
        script.end(20, 21, *on);
        script.idle(20, 21);
    }
}

#[test]
fn receipts_are_distinguished_from_queueing_and_from_the_publisher_s_own_time() {
    let mut pair = pair();
    // During the publisher's activation; 3 ms after its end; while the subscriber was busy for the
    // rest of the 18 ms.
    [1, 5, 2].iter().for_each(|ms| pair.message(Some(ms * MS)));
    let model = pair.script.model();
    check(&model);
    let delivery = callback(&model, "/b subscription /t").1.delivery.unwrap();
    assert_eq!((delivery.seen, delivery.most_ns, delivery.own_most_ns), (3, Some(3 * MS), None));
    assert!(delivery.stamped);
    // From publication to take it was 20 ms each time.
    assert_eq!(topic(&model, "/t").transport.unwrap().most_ns, 20 * MS);
}

#[test]
fn without_receipts_idle_executors_report_how_long_it_takes() {
    let mut pair = pair();
    pair.message(None);
    // The first take: nobody knows since when it waited.
    assert_eq!(callback(&pair.script.model(), "/b subscription /t").1.delivery, None);
    pair.message(None);
    let delivery = callback(&pair.script.model(), "/b subscription /t").1.delivery.unwrap();
    assert_eq!((delivery.seen, delivery.most_ns, delivery.stamped), (1, Some(18 * MS), false));
    // What is reported replaces what was guessed.
    pair.message(Some(3 * MS));
    let delivery = callback(&pair.script.model(), "/b subscription /t").1.delivery.unwrap();
    assert_eq!((delivery.most_ns, delivery.stamped), (Some(MS), true));
    // And is not mixed with it.
    pair.message(None);
    assert_eq!(callback(&pair.script.model(), "/b subscription /t").1.delivery.unwrap().most_ns, Some(MS));
}

#[test]
fn messages_of_the_own_thread_are_counted_apart() {
    let mut pair = pair();
    let Pair { script, timer, on, out } = &mut pair;
    // The subscriber's callback runs on the publisher's thread here.
    for _ in 0..5 {
        script.now_ns += 90 * MS;
        let stamp = script.run(20, 21, *timer, None, MS, &[*out]).first().copied();
        // Delivered within the publication.
        script.now_ns += 7 * MS;
        script.emit(20, 21, Kind::MessageReceived { after_ns: 0 });
        script.run(20, 21, *on, stamp, MS, &[]);
        script.idle(20, 21);
    }
    let model = script.model();
    let delivery = model.callbacks.iter().find_map(|c| c.delivery).unwrap();
    assert_eq!((delivery.seen, delivery.most_ns, delivery.own_most_ns), (5, None, Some(0)));
}

#[test]
fn a_delivery_above_what_is_assumed_is_reported_once() {
    let mut pair = pair();
    (0..5).for_each(|_| pair.message(Some(3 * MS)));
    let mut extractor = pair.script.extract(Options::default());
    let name = "/b subscription /t".to_owned();
    let assumed = Assumed { callback: name.clone(), delivery_ns: Some(2 * MS), ..Assumed::default() };
    extractor.assume(&[assumed]);
    let feed = |pair: &mut Pair, extractor: &mut Extractor, after_ns: u64| {
        pair.script.events.clear();
        pair.message(Some(after_ns));
        pair.script.events.iter().for_each(|event| extractor.event(event));
        extractor.broken()
    };
    assert!(feed(&mut pair, &mut extractor, 4 * MS).is_empty());
    let broken = feed(&mut pair, &mut extractor, 9 * MS);
    assert!(matches!(&broken[..], [one] if matches!(one.what, Breach::Delivery(e) if e.seen_ns == 7 * MS)));
    assert!(broken[0].to_string().contains("was received 7.000 ms after it was sent"), "{}", broken[0]);
}

#[test]
fn what_start_up_holds_up_is_forgotten_when_messages_came_since() {
    let mut pair = pair();
    pair.script.now_ns -= 9_900 * MS;
    pair.message(Some(9 * MS));
    let most_ns = |pair: &Pair| {
        let model = pair.script.model();
        callback(&model, "/b subscription /t").1.delivery.map(|delivery| (delivery.seen, delivery.most_ns))
    };
    assert_eq!(most_ns(&pair), Some((1, Some(7 * MS))));
    pair.script.now_ns += 9_900 * MS;
    pair.message(Some(3 * MS));
    assert_eq!(most_ns(&pair), Some((2, Some(MS))));
}

/// Sent every 100 ms by somebody who is not observed, held up by the network, and received all at
/// once: that is how densely they come.
#[test]
fn what_the_network_holds_up_comes_as_densely_as_it_is_received() {
    let arrivals = |stamped: bool| {
        let mut pair = pair();
        // Two clocks' distance is reported by messages that are seen being published.
        let day_ns = 1_700_000_000_000_000_000_i64;
        let mut extractor = Extractor::new(Options::default());
        extractor.clock(0, day_ns);
        let Pair { script, on, .. } = &mut pair;
        let from_ns = script.now_ns;
        for k in 0..20_u64 {
            let sent_ns = from_ns + k * 100 * MS;
            // The last five stay in the network until 1 ms after the last one was sent.
            let received_ns = if k < 15 { sent_ns + MS } else { from_ns + 1901 * MS + (k - 15) * 1000 };
            // And the subscriber is busy, so that all are taken 30 ms later.
            script.wait_until(received_ns + 30 * MS);
            script.emit(20, 21, Kind::ExecutorNextReady);
            if stamped {
                script.emit(20, 21, Kind::MessageReceived { after_ns: (received_ns - sent_ns) as i64 });
            }
            script.take(20, 21, *on, day_ns + sent_ns as i64);
            script.start(20, 21, *on);
            script.work(20, 21, 1000);
            script.end(20, 21, *on);
            script.idle(20, 21);
        }
        script.events.iter().for_each(|event| extractor.event(event));
        let model = extractor.snapshot(script.now_ns);
        check(&model);
        let found = callback(&model, "/b subscription /t").1.clone();
        assert!(matches!(topic(&model, "/t").outside, Outside::Stamped { seen: 20, .. }));
        (found.arrivals.least_span_ns[..5].to_vec(), found.delivery)
    };
    let (spans_ns, delivery) = arrivals(true);
    assert_eq!(spans_ns[..4], [1000, 2000, 3000, 4000], "as received");
    assert!(spans_ns[4] > 400 * MS);
    // The chain begins with the stamp, so what the network takes is in the bound.
    assert_eq!(delivery.unwrap().most_ns, Some(401 * MS));
    // Where nothing shows receipts, takes are what there is.
    let (spans_ns, delivery) = arrivals(false);
    assert!(spans_ns[3] < MS, "{spans_ns:?}");
    assert_eq!(delivery, None);
}
