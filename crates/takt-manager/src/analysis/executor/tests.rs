//! The analysis as it is written down, beside the one that looks at no more than it must.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use takt_rt::random::SplitMix64;

use super::*;
use crate::analysis::{Analysis, Enforcement};
use crate::simulate::{Features, random_with};
use crate::workload::Reading;

/// Lengths of intervals up to this one in which one more arrives.
fn rises(flows: &Flows, to_ns: u64) -> Vec<u64> {
    let mut all = Vec::new();
    let mut at = flows.risen(flows.stretch(0));
    while let Some((at_ns, stretch)) = at.filter(|(at_ns, _)| *at_ns <= to_ns) {
        all.push(at_ns);
        at = flows.risen(stretch);
    }
    all
}

/// RTSS'21, Theorem 3: every offset of Lemma 19, each from the beginning, and all loads summed up.
fn plain(served: &Served<'_>, on: Supply<'_>, own: usize, points: u64, last: u64) -> Option<u64> {
    let kinds = served.kinds(own);
    let flows = |i: usize| served.demands[i].arrivals.flows();
    let load = |i: usize, count| served.demands[i].activity.load(count);
    let mut offsets = vec![0];
    for (i, kind) in kinds.iter().enumerate() {
        let rises = rises(flows(i), last + 1);
        match kind {
            Interference::Own => offsets.extend(rises.iter().map(|at_ns| at_ns - 1)),
            Interference::Polled(_) => offsets.extend(rises),
            Interference::All => {}
        }
    }
    let mut worst = None;
    for offset in offsets.into_iter().filter(|offset| *offset < last) {
        let others = |at_ns: u64| -> Load {
            let of = |(i, kind): (usize, &Interference)| match kind {
                Interference::Own => Load::default(),
                Interference::All => load(i, flows(i).count(at_ns)),
                Interference::Polled(more) => {
                    load(i, flows(i).count(at_ns).min(flows(i).count(offset) + points + more))
                }
            };
            kinds.iter().enumerate().map(of).sum()
        };
        let count = flows(own).count(offset + 1);
        let earlier = load(own, count.saturating_sub(1));
        let start = search(on, 0, 1, |at_ns| Some(Load::INSTANT + others(at_ns) + earlier))?;
        let all = others(start) + load(own, count);
        worst = worst.max(Some(bound(on, all, Load::default(), offset, Method::Rtss21Bw)?.ns));
    }
    worst
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn bounds_are_those_of_every_offset(seed in any::<u64>(), share in 20_u64..95) {
        let system = random_with(seed, Features { threads: false, ..Features::ALL });
        let exact = Reading { cost_margin: 0.0, arrival_margin: 0.0, exceedance: None };
        let workload = Workload::new(&system.exact_model(), &exact);
        let (period_ns, limit_ns) = (10_000_000, 2_000_000_000);
        let mut random = SplitMix64::new(seed);
        let all: Vec<usize> = (0..workload.executors.len()).collect();
        let budgets_ns = vec![period_ns * share / 100; all.len()];
        let mut analysis = Analysis::new(&workload, period_ns, limit_ns, 0);
        let solution = analysis.solve(&budgets_ns, &all);
        for server in all {
            let callbacks = &workload.executors[server].callbacks;
            let arrivals = callbacks.iter().map(|c| solution.arrivals[*c].clone());
            let Some(flows) = arrivals.collect::<Option<Vec<_>>>() else { continue };
            let line = Rc::new(time_line(&workload, server, &flows));
            let served = Served::new(&workload, server, &flows, line);
            let on = Supply::new(budgets_ns[server], period_ns, Enforcement::default(), limit_ns).unwrap();
            let Some(last) = served.last_offset(on) else { continue };
            for own in 0..served.demands.len() {
                let points = random.within(1, 6);
                let expected = plain(&served, on, own, points, last);
                let mut scratch = Scratch::new(served.kinds(own));
                let mut found = |below| {
                    let bound = served.busy_window_aware(on, own, points, last, Some(below), &mut scratch);
                    bound.map(|bound| bound.ns)
                };
                prop_assert_eq!(found(u64::MAX), expected, "callback {} of {}", own, server);
                // Where it is no less than what is known it is none.
                if let Some(ns) = expected {
                    prop_assert_eq!((found(ns), found(ns + 1)), (None, expected));
                }
            }
        }
    }
}
