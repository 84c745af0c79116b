//! Callbacks that wait inside: what the extractor makes of it.

use takt_ros::event::Kind;

use super::script::{MS, Script, callback, check};
use crate::Options;

/// One activation of `work_ns`, off the CPU for `off_ns` of which the source says `known`.
fn activation(
    script: &mut Script,
    timer: u64,
    work_ns: u64,
    off_ns: u64,
    known: Option<(Option<u64>, Option<u64>)>,
) {
    script.emit(1, 1, Kind::ExecutorNextReady);
    script.start(1, 1, timer);
    script.work(1, 1, work_ns);
    script.now_ns += off_ns;
    if let Some((switches, ready_ns)) = known {
        script.emit(1, 1, Kind::OffCpu { switches, ready_ns, yields: Some(0), early_ns: 0 });
    }
    script.end(1, 1, timer);
    script.idle(1, 1);
}

fn timers() -> (Script, u64, u64) {
    let mut script = Script::new();
    let node = script.node(1, "a");
    let fast = script.timer(1, node, 100 * MS);
    let slow = script.timer(1, node, 200 * MS);
    (script, fast, slow)
}

/// The demonstration of a false guarantee: 80 ms asleep in a callback beside another. Its CPU time
/// shows nothing of it.
#[test]
fn a_callback_that_sleeps_has_a_suspension_curve() {
    let (mut script, fast, slow) = timers();
    for k in 0..20 {
        script.wait_until(2_000 * MS + k * 200 * MS);
        // Preempted, and for long: not its own doing.
        activation(&mut script, fast, 2 * MS, 30 * MS, Some((Some(0), None)));
        let sleeps = k % 4 == 3;
        // 90 ms off the CPU, 10 of which it was ready again.
        let (off_ns, known) = if sleeps { (90 * MS, Some((Some(2), Some(10 * MS)))) } else { (0, None) };
        activation(&mut script, slow, 3 * MS, off_ns, known);
    }
    let model = script.model();
    check(&model);
    let (_, fast) = callback(&model, "/a timer 100ms");
    assert_eq!((fast.cost.most_ns[0], fast.suspension.most_ns.len(), fast.most_suspensions), (2 * MS, 0, 0));
    let (_, slow) = callback(&model, "/a timer 200ms");
    assert_eq!((slow.cost.most_ns[0], slow.cost.seen), (3 * MS, 20));
    let suspension = &slow.suspension.most_ns;
    assert_eq!(suspension.len(), slow.cost.most_ns.len());
    assert_eq!(suspension[..9], [80, 80, 80, 80, 160, 160, 160, 160, 240].map(|ms| ms * MS));
    assert_eq!(slow.most_suspensions, 2);
}

/// A source that says nothing of an activation that was off the CPU leaves it open: it counts.
#[test]
fn what_a_source_cannot_tell_counts_as_suspension() {
    let (mut script, fast, _) = timers();
    for k in 0..5 {
        script.wait_until(2_000 * MS + k * 100 * MS);
        activation(&mut script, fast, 2 * MS, if k == 2 { 40 * MS } else { 0 }, None);
    }
    let (_, found) = {
        let model = script.model();
        let (id, found) = callback(&model, "/a timer 100ms");
        (id, found.clone())
    };
    assert_eq!((found.suspension.most_ns[0], found.most_suspensions), (40 * MS, 1));
    // Another one, and the kernel counted this time: it was preempted.
    script.now_ns += 100 * MS;
    activation(&mut script, fast, 2 * MS, 25 * MS, Some((Some(0), None)));
    let model = script.model();
    assert_eq!(callback(&model, "/a timer 100ms").1.suspension.most_ns.len(), 0);
}

/// Without a CPU clock the execution time is wall time: it has the suspension in it already.
#[test]
fn wall_times_contain_it() {
    let (mut script, fast, _) = timers();
    for k in 0..5 {
        script.wait_until(2_000 * MS + k * 100 * MS);
        activation(&mut script, fast, 2 * MS, 40 * MS, None);
    }
    script.events.iter_mut().for_each(|event| event.cpu_ns = None);
    let model = script.extract(Options::default()).snapshot(script.now_ns);
    let (_, found) = callback(&model, "/a timer 100ms");
    assert_eq!((found.cost.most_ns[0], found.cost.cpu_time), (42 * MS, false));
    assert!(found.suspension.most_ns.is_empty());
}
