//! The analysis as it is written down, beside the one that looks at no more than it must.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use takt_rt::random::SplitMix64;

use super::*;
use crate::analysis::{Analysis, Enforcement};
use crate::curves::Rising;
use crate::simulate::{Features, random_with};
use crate::workload::Reading;

/// Lengths of intervals up to this one in which one more arrives.
fn rises(flows: &Flows, to_ns: u64) -> Vec<u64> {
    let mut rising = Rising::from(flows, 0);
    let all = std::iter::from_fn(|| rising.next(flows)).map(|(at_ns, _)| at_ns);
    all.take_while(|at_ns| *at_ns <= to_ns).collect()
}

/// RTSS'21, Theorem 3: every offset of Lemma 19, each from the beginning, and all loads summed up.
fn plain(
    served: &Served<'_>,
    on: Supply<'_>,
    own: usize,
    points: u64,
    last: u64,
    single: bool,
) -> Option<Bound> {
    let kinds: Vec<Interference> = served.kinds(own).collect();
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
    offsets.sort_unstable();
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
        let from = if single { offset } else { 0 };
        keep_worst(&mut worst, bound(on, all, served.marginal(own, count), from, Method::Rtss21Bw)?);
    }
    worst
}

/// ECRTS'19, Lemmas 4 and 5: every activation of a busy window, each from the beginning.
fn plainly_polled(served: &Served<'_>, on: Supply<'_>, own: usize, window: u64) -> Option<Bound> {
    let demand = &served.demands[own];
    let flows = |i: usize| served.demands[i].arrivals.flows();
    let mut worst = None;
    for at_ns in rises(flows(own), window + 1) {
        let (offset, count) = (at_ns - 1, flows(own).count(at_ns));
        let need = |finish: u64| -> Load {
            let to = served.interfered(demand, offset, finish);
            let of = |i: usize| served.demands[i].activity.load(flows(i).count(to));
            let others: Load = (0..served.demands.len()).filter(|i| *i != own).map(of).sum();
            demand.activity.load(count) + others
        };
        let finish = search(on, offset, offset + 1, |finish| Some(need(finish)))?;
        let own_load = served.marginal(own, count);
        keep_worst(&mut worst, bound(on, need(finish), own_load, offset, Method::Ecrts19)?);
    }
    worst.or(Some(Bound::NONE))
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
            let line = Rc::new(time_line(&workload, server, &flows, None));
            let served = Served::new(&workload, server, &flows, line);
            let on = Supply::new(budgets_ns[server], period_ns, Enforcement::default(), limit_ns).unwrap();
            if let Some(window) = served.window(on) {
                for own in 0..served.demands.len() {
                    let expected = plainly_polled(&served, on, own, window);
                    let mut floors_ns = vec![0, random.within(1, limit_ns)];
                    // At, below and above what it is.
                    floors_ns.extend(expected.iter().flat_map(|it| [it.ns.saturating_sub(1), it.ns, it.ns + 1, it.ns / 2]));
                    for floor_ns in floors_ns {
                        let found = served.polled(on, own, window, floor_ns);
                        let above = if expected.is_some_and(|it| it.ns <= floor_ns) { Bound::floor(floor_ns) } else { expected };
                        prop_assert_eq!(found, above, "callback {} of {} from {}", own, server, floor_ns);
                    }
                }
            }
            let Some(last) = served.last_offset(on) else { continue };
            for own in 0..served.demands.len() {
                let points = random.within(1, 6);
                let expected = plain(&served, on, own, points, last, true);
                let mut scratch = Scratch::default();
                scratch.begin(served.kinds(own));
                let mut found = |below_ns, floor_ns| {
                    let sought = Sought { floor_ns, below_ns };
                    served.busy_window_aware(on, own, points, last, sought, &mut scratch)
                };
                prop_assert_eq!(found(Some(u64::MAX), 0), expected, "callback {} of {}", own, server);
                // A bound that is not below the known one is not found.
                if let Some(bound) = expected {
                    prop_assert_eq!((found(Some(bound.ns), 0), found(Some(bound.ns + 1), 0)), (None, expected));
                    // And what is no greater than its floor is that.
                    for floor_ns in [bound.ns / 2, bound.ns - 1] {
                        prop_assert_eq!((found(Some(bound.ns), floor_ns), found(Some(bound.ns + 1), floor_ns)), (None, expected));
                    }
                    for floor_ns in [bound.ns, bound.ns + random.within(1, limit_ns)] {
                        prop_assert_eq!(found(Some(u64::MAX), floor_ns), Bound::floor(floor_ns));
                    }
                }
                // Of a chain that ends there.
                prop_assert_eq!(found(None, 0), plain(&served, on, own, points, last, false));
            }
        }
    }
}
