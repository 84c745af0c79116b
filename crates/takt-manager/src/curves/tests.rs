use super::*;
use proptest::prelude::*;
use response_time_analysis::arrival::{ArrivalBound, Curve};
use response_time_analysis::time::Duration;

fn spans(ns: &[u64]) -> Result<Spans, CurveError> {
    let curve = ArrivalCurve { least_span_ns: ns.to_vec(), seen: ns.len() as u64 + 1, observed_ns: 1000 };
    Spans::measured(&curve, 0.0)
}

#[test]
fn degenerate_curves_have_a_meaning_or_a_reason() {
    assert!(Spans::measured(&ArrivalCurve::default(), 0.0).unwrap().is_zero());
    let one = ArrivalCurve { least_span_ns: vec![], seen: 1, observed_ns: 500 };
    assert_eq!(Spans::measured(&one, 0.0).unwrap().count(500), 1);
    let two_at_once = ArrivalCurve { least_span_ns: vec![0], seen: 2, observed_ns: 1000 };
    assert_eq!(
        Spans::measured(&two_at_once, 0.0),
        Err(CurveError::Simultaneous { seen: 2 }),
        "the span of start and both is missing"
    );
    let with_start = ArrivalCurve { least_span_ns: vec![0, 700], seen: 2, observed_ns: 1000 };
    let curve = Spans::measured(&with_start, 0.0).unwrap();
    assert_eq!((curve.count(1), curve.count(700), curve.count(701)), (2, 2, 4));
    assert!(Cost::new(&[], 0.0).of(5) == 0);
}

#[test]
fn costs_repeat_and_margins_apply() {
    let cost = Cost::new(&[10, 12, 14], 0.0);
    assert_eq!((cost.of(0), cost.of(1), cost.of(3), cost.of(4), cost.of(7)), (0, 10, 14, 24, 38));
    assert_eq!(Cost::new(&[10, 12], 0.5).of(2), 18);
    assert!(cost.within(&Cost::new(&[10, 12, 14], 0.1)));
    assert!(!cost.within(&Cost::new(&[10, 12, 13], 0.0)));
}

#[test]
fn messages_of_activations_in_a_row_compose() {
    // Five of every tenth activation.
    let tenth = Counts::measured(&[5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 10], 5);
    assert_eq!((tenth.of(0), tenth.of(1), tenth.of(10), tenth.of(11), tenth.of(12)), (0, 5, 5, 10, 15));
    assert_eq!(Counts::measured(&[], 3).of(4), 12);
    assert_eq!(Counts::measured(&[9, 9], 3).of(2), 6, "no more than the most of each");
    let twice = Counts::each(2);
    assert_eq!((twice.after(&tenth).of(10), tenth.after(&twice).of(5)), (10, 5));
    assert_eq!(twice.with(&tenth).of(10), 25);
    assert!(tenth.within(&Counts::each(5)) && !Counts::each(5).within(&tenth));
    assert!(Counts::each(0).is_zero());
}

proptest! {
    #[test]
    fn agrees_with_the_crates_own_curves(
        mut ns in prop::collection::vec(1_u64..500, 2..12),
        deltas in prop::collection::vec(0_u64..3000, 1..30),
        jitter in 0_u64..400,
    ) {
        ns.sort_unstable();
        ns.dedup();
        prop_assume!(ns.len() > 1);
        let ours = Flows::root(0, Arc::new(spans(&ns).unwrap()));
        let mut jittered = Flows::none();
        jittered.add(&ours, jitter, &Arc::new(Counts::each(1)));
        let theirs: Curve = ns.iter().map(|n| Duration::from(*n)).collect();
        let theirs_jittered = theirs.clone_with_jitter(Duration::from(jitter));
        for d in deltas {
            prop_assert_eq!(ours.count(d), theirs.number_arrivals(d.into()) as u64);
            prop_assert_eq!(jittered.count(d), theirs_jittered.number_arrivals(d.into()) as u64);
        }
    }

    #[test]
    fn steps_are_where_counts_rise(
        mut ns in prop::collection::vec(0_u64..60, 1..6),
        jitters in prop::collection::vec(0_u64..90, 1..4),
        counts in prop::collection::vec(0_u64..6, 1..4),
    ) {
        ns.sort_unstable();
        prop_assume!(ns.last() != Some(&0) && counts.iter().any(|count| *count > 0));
        let root = Flows::root(0, Arc::new(spans(&ns).unwrap()));
        let mut sum = Flows::none();
        let counts = Arc::new(Counts::measured(&counts, 3));
        for jitter in jitters {
            sum.add(&root, jitter, &counts);
        }
        for from_ns in [0, 1, 17, 150] {
            let mut rising = Rising::from(&sum, from_ns);
            let listed: Vec<(u64, u64)> =
                std::iter::from_fn(|| rising.next(&sum)).take_while(|(at_ns, _)| *at_ns <= 300).collect();
            let risen = (from_ns + 1..=300).filter(|d| sum.count(d - 1) < sum.count(*d));
            let risen: Vec<(u64, u64)> = risen.map(|d| (d, sum.count(d))).collect();
            prop_assert_eq!(listed, risen, "from {}", from_ns);
        }
    }
}
