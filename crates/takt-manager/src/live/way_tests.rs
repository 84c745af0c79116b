//! A chain whose way ends while another one leads on.

use super::*;
use crate::simulate::{Machine, Supply, System, Trigger, events, simulate_on};
use takt_stats::Verdict;

/// A timer's messages go to two nodes, and from both to a third. The first of the two, over which
/// the chain takes longer, ends after 15 s.
#[test]
fn instances_of_a_way_that_ended_are_not_awaited() {
    let mut system = System::default();
    let [timer, slow, quick, sink] = ["t", "slow", "quick", "s"].map(|name| system.executor(name, false));
    let (from, to) = (system.topic("/from"), system.topic("/to"));
    let every = Trigger::Periodic { period_ns: 50 * MS, jitter_ns: 0 };
    system.callback(timer, "/t timer", every, vec![MS], vec![from]);
    system.callback(slow, "/slow subscription /from", Trigger::Topic(from), vec![8 * MS], vec![to]);
    system.callback(quick, "/quick subscription /from", Trigger::Topic(from), vec![2 * MS], vec![to]);
    system.callback(sink, "/s subscription /to", Trigger::Topic(to), vec![MS], vec![]);
    let supply = |core| Supply { budget_ns: 9 * MS, period_ns: 10 * MS, core };
    let supplies: Vec<Supply> = (0..4).map(supply).collect();
    let machine = Machine { capacity_percent: 95, ..Machine::default() };
    let trace = simulate_on(machine, &system, &supplies, &[], 30_000 * MS, 7).1;
    let cut_ns = 15_000 * MS;
    let (mut gone, mut skipping) = (std::collections::BTreeSet::new(), false);
    let mut all: Vec<Event> = Vec::new();
    for event in events(&system, &trace) {
        if event.tid == 1001 && event.at_ns > cut_ns {
            if let Kind::RmwPublish { source_ns: Some(stamp), .. } = event.kind {
                gone.insert(stamp);
            }
            continue;
        }
        // Nothing is taken that was not sent.
        if event.tid == 1003 {
            if let Kind::RmwTake { source_ns, .. } = &event.kind {
                skipping = gone.contains(source_ns);
            }
            if skipping {
                skipping = !matches!(event.kind, Kind::CallbackEnd { .. });
                continue;
            }
        }
        all.push(event);
    }
    all.push(Event { at_ns: cut_ns + MS, cpu_ns: None, pid: 1001, tid: 1001, kind: Kind::ThreadEnd });
    all.sort_by_key(|event| event.at_ns);
    let text = "[[chain]]\nname = \"beat\"\nstart = \"/t\"\nend = \"/s\"\ngoal = \"200 ms\"\n";
    let mut setup = setup_with(Goals::parse(text, "test").unwrap(), false, |from_ns| {
        all.iter_mut().for_each(|event| event.at_ns += from_ns);
        Script { events: all.into(), now_ns: 0, ..Script::default() }
    });
    setup.pass(0.0, 29.0);
    let status = setup.live.status(setup.from_ns + 29_000 * MS);
    let chain = &status.chains[0];
    assert_eq!(setup.live.watch_ids(0).count(), 2, "{:?}", chain.path);
    assert_eq!((chain.overdue, chain.run.missing, chain.violations), (0, 0, 0), "{chain:#?}");
    assert_ne!(status.verdict().verdict, Verdict::Fail, "{:?}", status.verdict());
}
