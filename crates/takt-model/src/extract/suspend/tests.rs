use proptest::prelude::*;

use super::*;

const KEEP: Keep = Keep { activations: 16, horizon_ns: Some(1_000_000_000_000) };
const MS: u64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
enum Truth {
    Ran,
    Preempted(u64),
    Slept(u64, u64),
    Unknown(u64),
}

fn truth() -> impl Strategy<Value = Truth> {
    prop_oneof![
        (0u64..1).prop_map(|_| Truth::Ran),
        (1u64..50).prop_map(|ms| Truth::Preempted(ms * MS)),
        (1u64..50, 0u64..9).prop_map(|(ms, ready)| Truth::Slept(ms * MS, ready * MS)),
        (1u64..50).prop_map(|ms| Truth::Unknown(ms * MS)),
    ]
}

fn off_ns(truth: Truth) -> u64 {
    match truth {
        Truth::Ran => 0,
        Truth::Preempted(ns) | Truth::Unknown(ns) => ns,
        Truth::Slept(ns, ready) => ns + ready,
    }
}

fn known(switches: Option<u64>, ready_ns: Option<u64>) -> Option<OffCpu> {
    Some(OffCpu { switches, ready_ns, yields: Some(0), early_ns: 0 })
}

/// Lengths, and how often at most.
fn found(of: &Suspensions, now_ns: u64) -> (CostCurve, u64) {
    let known = of.known(now_ns, KEEP);
    (known.curve, known.most)
}

fn record(to: &mut Suspensions, number: u64, truth: Truth) {
    let (off, known) = match truth {
        Truth::Ran => (OFF_CPU_NS, None),
        Truth::Preempted(ns) => (ns, known(Some(0), None)),
        Truth::Slept(ns, ready) => (ns + ready, known(Some(2), Some(ready))),
        Truth::Unknown(ns) => (ns, None),
    };
    let at_ns = number * 100 * MS;
    to.record(Ended { number, at_ns, off_ns: off, known, reports: true }, KEEP, false);
}

proptest! {
    /// Every window's suspension is covered, and that of undecided ones until they are decided.
    #[test]
    fn windows_are_covered(truths in proptest::collection::vec(truth(), 1..80)) {
        let mut suspensions = Suspensions::default();
        for (number, truth) in truths.iter().enumerate() {
            record(&mut suspensions, number as u64 + 1, *truth);
        }
        let (curve, most) = found(&suspensions, 0);
        let slept: Vec<u64> =
            truths.iter().map(|t| if let Truth::Slept(ns, _) = t { *ns } else { 0 }).collect();
        let any = slept.iter().any(|&ns| ns > 0);
        prop_assert!(!any || most == 2);
        if any {
            prop_assert!(curve.most_ns.len() >= truths.len().min(KEEP.activations));
        }
        for (i, entry) in curve.most_ns.iter().enumerate() {
            let sum = slept.windows(i + 1).map(|w| w.iter().sum::<u64>()).max().unwrap_or(0);
            prop_assert!(*entry >= sum, "{} activations: {entry} < {sum}", i + 1);
            let off: u64 = truths.windows(i + 1).map(|w| w.iter().map(|&t| off_ns(t)).sum()).max().unwrap_or(0);
            prop_assert!(*entry <= 2 * off, "{} activations: {entry} > {off}", i + 1);
            if suspensions.undecided.is_none() {
                prop_assert_eq!(*entry, sum);
            }
        }
        if let Some(Truth::Unknown(ns)) = truths.last() {
            prop_assert!(curve.most_ns[0] >= *ns && most >= 1);
        }
    }
}

#[test]
fn preemption_alone_is_no_suspension() {
    let mut suspensions = Suspensions::default();
    for number in 1..100 {
        record(&mut suspensions, number, Truth::Preempted(number * MS));
    }
    assert_eq!(found(&suspensions, 0), (CostCurve::default(), 0));
}

#[test]
fn what_nobody_knows_counts_until_it_is_decided_or_forgotten() {
    let mut suspensions = Suspensions::default();
    record(&mut suspensions, 1, Truth::Unknown(20 * MS));
    record(&mut suspensions, 2, Truth::Preempted(9 * MS));
    let (curve, most) = found(&suspensions, 0);
    assert_eq!((curve.most_ns, most), (vec![20 * MS, 20 * MS], 1));
    let later_ns = 100 * MS + KEEP.horizon_ns.unwrap_or(0) + 1;
    assert_eq!(found(&suspensions, later_ns).1, 0);
    record(&mut suspensions, 3, Truth::Preempted(10 * MS));
    assert_eq!(found(&suspensions, 0), (CostCurve::default(), 0));
}

#[test]
fn one_that_gave_the_cpu_up_for_who_knows_how_long_is_decided_by_its_like() {
    let mut suspensions = Suspensions::default();
    let open = |to: &mut Suspensions, number| {
        let known = known(Some(3), None);
        to.record(Ended { number, at_ns: number * MS, off_ns: 30 * MS, known, reports: true }, KEEP, false);
    };
    open(&mut suspensions, 1);
    record(&mut suspensions, 2, Truth::Preempted(40 * MS));
    assert_eq!((found(&suspensions, 0).0.most_ns[0], found(&suspensions, 0).1), (30 * MS, 3));
    record(&mut suspensions, 3, Truth::Slept(20 * MS, 10 * MS));
    assert_eq!((found(&suspensions, 0).0.most_ns[0], found(&suspensions, 0).1), (20 * MS, 2));
    // So many in a row for which the source would have reported.
    let mut suspensions = Suspensions::default();
    open(&mut suspensions, 1);
    (2..=SPOKEN).for_each(|number| record(&mut suspensions, number, Truth::Ran));
    assert_eq!(found(&suspensions, 0).1, 3);
    record(&mut suspensions, SPOKEN + 1, Truth::Ran);
    assert_eq!(found(&suspensions, 0).1, 0);
}

#[test]
fn what_was_seen_in_start_up_counts_until_the_steady_state_has_shown_itself() {
    let mut suspensions = Suspensions::default();
    let slept = Some(OffCpu { switches: Some(2), ready_ns: Some(0), yields: Some(0), early_ns: 0 });
    let at =
        |number: u64, off_ns, known| Ended { number, at_ns: number * 100 * MS, off_ns, known, reports: true };
    suspensions.record(at(1, 300 * MS, slept), KEEP, true);
    suspensions.record(at(2, 30 * MS, slept), KEEP, true);
    let known = suspensions.known(0, KEEP);
    assert_eq!((&known.curve.most_ns[..2], known.most), (&[300 * MS, 330 * MS][..], 2));
    for number in 3..2 + STEADY {
        suspensions.record(at(number, 0, None), KEEP, false);
    }
    assert_eq!(suspensions.known(0, KEEP).curve.most_ns[0], 300 * MS);
    suspensions.record(at(2 + STEADY, MS, slept), KEEP, false);
    let known = suspensions.known(0, KEEP);
    assert_eq!((known.curve.most_ns[0], known.most), (MS, 2));
    // The same later, without a start, counts for good.
    suspensions.record(at(3 + STEADY, 300 * MS, slept), KEEP, false);
    assert_eq!(suspensions.known(0, KEEP).curve.most_ns[0], 300 * MS);
}
