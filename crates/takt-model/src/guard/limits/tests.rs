use super::*;

#[test]
fn what_is_beyond_a_curve_is_distinguished_from_what_is_within() {
    let mut limit = CostLimit::new(vec![10, 15]).with_account();
    for (at, took) in [(1, 10), (2, 5), (3, 30), (4, 5), (5, 11), (6, 4)] {
        limit.see(at, took);
    }
    // 20 beyond one of 10; then 5 fit beside 10; 11 after 5 are 1 beyond both; 4 fit.
    let beyond: Vec<(u64, u64, u64)> =
        limit.take_beyond().iter().map(|b| (b.excess.at_ns, b.excess.events, b.more_ns)).collect();
    assert_eq!(beyond, [(3, 1, 20), (5, 1, 1)]);
    assert!(limit.take_beyond().is_empty() && limit.take().is_none());
    // Whatever is distinguished, the rest is within the curve: so often that it is no
    // disturbance, it is a broken curve.
    for at in 0..2 * MAX_BEYOND as u64 {
        limit.see(at + 10, 11);
    }
    assert!(limit.take().is_some());
}

proptest::proptest! {
    /// The remaining activations are within the curve in every window, and nothing is reported that
    /// need not be left out.
    #[test]
    fn the_rest_is_within_the_curve(costs in proptest::collection::vec(0u64..30, 1..120), limits in proptest::collection::vec(5u64..15, 1..6)) {
        let most: Vec<u64> = limits.iter().scan(0, |sum, l| { *sum += l; Some(*sum) }).collect();
        let mut limit = CostLimit::new(most.clone()).with_account();
        costs.iter().zip(0..).for_each(|(took, at)| limit.see(at, *took));
        let mut rest = costs.clone();
        for one in limit.take_beyond() {
            let at = usize::try_from(one.excess.at_ns).unwrap();
            proptest::prop_assert!(one.more_ns <= costs[at]);
            rest[at] -= one.more_ns;
        }
        for (at, n) in (0..rest.len()).flat_map(|at| (1..=most.len().min(at + 1)).map(move |n| (at, n))) {
            proptest::prop_assert!(rest[at + 1 - n..=at].iter().sum::<u64>() <= most[n - 1]);
        }
        let within = (0..costs.len()).all(|at| (1..=most.len().min(at + 1)).all(|n| costs[at + 1 - n..=at].iter().sum::<u64>() <= most[n - 1]));
        proptest::prop_assert_eq!(within, rest == costs);
    }
}

#[test]
fn spans_are_held_against_every_event() {
    let mut limit = SpanLimit::new(vec![90, 190]);
    for at in [100, 200, 300, 390] {
        limit.see(at);
    }
    assert_eq!(limit.take(), None);
    // 80 ns after the one before, and three in 170.
    limit.see(470);
    let excess = Excess { events: 2, assumed_ns: Some(90), seen_ns: 80, at_ns: 470 };
    assert_eq!((limit.take(), limit.take()), (Some(excess), None));
    // Each pair is far enough apart, three together are not.
    let mut limit = SpanLimit::new(vec![90, 190]);
    [0, 92, 184].into_iter().for_each(|at| limit.see(at));
    let excess = limit.take().unwrap();
    assert_eq!((excess.events, excess.seen_ns, excess.assumed_ns), (3, 184, Some(190)));
    // No window across a gap.
    limit.gap();
    limit.see(185);
    assert_eq!(limit.take(), None);
}

#[test]
fn what_should_never_come_is_reported_when_it_does() {
    let mut limit = SpanLimit::new(Vec::new());
    assert_eq!(limit.take(), None);
    limit.see(7);
    assert_eq!(limit.take(), Some(Excess { events: 1, assumed_ns: None, seen_ns: 0, at_ns: 7 }));
}

#[test]
fn costs_are_held_against_every_activation() {
    let mut limit = CostLimit::new(vec![10, 15, 18]);
    for (at, took) in [(1, 10), (2, 5), (3, 3), (4, 2), (5, 10)] {
        limit.see(at, took);
    }
    assert_eq!(limit.take(), None);
    limit.see(6, 6);
    let excess = Excess { events: 2, assumed_ns: Some(15), seen_ns: 16, at_ns: 6 };
    assert_eq!(limit.take(), Some(excess));
    limit.gap();
    limit.see(7, 10);
    assert_eq!(limit.take(), None);
    limit.see(8, 11);
    assert_eq!(limit.take().map(|e| (e.events, e.seen_ns)), Some((1, 11)));
}

#[test]
fn any_curve_can_be_held_against() {
    // Curves that fall are no curves, and still no reason to end.
    for with_account in [false, true] {
        let mut limit = CostLimit::new(vec![10, 3, 0]);
        if with_account {
            limit = limit.with_account();
        }
        for (at, took) in [(1, 9), (2, 0), (3, 4), (4, 0), (5, 0), (6, u64::MAX), (7, u64::MAX), (8, 0)] {
            limit.see(at, took);
        }
        assert!(limit.take().is_some() || !limit.take_beyond().is_empty());
    }
}

#[test]
fn messages_are_held_against_every_window() {
    // Two at a time, three in two, three in three.
    let mut limit = CountLimit::new(vec![2, 3, 3]);
    for (at, activation) in [(1, 1), (2, 1), (3, 2), (4, 4), (5, 4), (6, 7)] {
        limit.see(at, activation);
    }
    assert_eq!(limit.take(), None);
    limit.see(7, 8);
    limit.see(8, 9);
    assert_eq!(limit.take(), None);
    limit.see(9, 9);
    assert_eq!(limit.take(), Some(Excess { events: 3, assumed_ns: Some(3), seen_ns: 4, at_ns: 9 }));
    limit.gap();
    limit.see(10, 10);
    limit.see(11, 10);
    assert_eq!(limit.take(), None);
    limit.see(12, 10);
    assert_eq!(limit.take().map(|excess| (excess.events, excess.seen_ns)), Some((1, 3)));
    let mut empty = CountLimit::new(Vec::new());
    empty.see(1, 5);
    assert_eq!(empty.take().map(|excess| excess.assumed_ns), Some(Some(0)));
}

proptest::proptest! {
    /// Found exactly where brute force finds it.
    #[test]
    fn counts_equal_brute_force(sent in proptest::collection::vec(0u64..4, 1..80), limits in proptest::collection::vec(0u64..4, 1..6)) {
        let most: Vec<u64> = limits.iter().scan(0, |sum, l| { *sum += l; Some(*sum) }).collect();
        let mut limit = CountLimit::new(most.clone());
        let mut first = None;
        for (activation, &count) in sent.iter().enumerate() {
            (0..count).for_each(|_| limit.see(activation as u64, activation as u64));
            let left = (1..=most.len().min(activation + 1)).any(|n| sent[activation + 1 - n..=activation].iter().sum::<u64>() > most[n - 1]);
            if first.is_none() && left {
                first = Some(activation as u64);
            }
        }
        proptest::prop_assert_eq!(limit.take().map(|e| e.at_ns), first);
    }

    /// A limit that another one continues reports what it would have, and nothing of before.
    #[test]
    fn a_limit_goes_on_in_another(
        events in proptest::collection::vec((0u64..20, 0u64..20, 0u64..4), 1..120),
        limits in proptest::collection::vec((1u64..12, 8u64..20, 1u64..4), 1..6),
        at in 0usize..120,
    ) {
        let sums = |each: fn(&(u64, u64, u64)) -> u64| -> Vec<u64> {
            limits.iter().scan(0, |sum, one| { *sum += each(one); Some(*sum) }).collect()
        };
        let mut spans = [SpanLimit::new(sums(|one| one.0)), SpanLimit::new(sums(|one| one.0))];
        let mut costs = [CostLimit::new(sums(|one| one.1)), CostLimit::new(sums(|one| one.1))];
        let mut counts = [CountLimit::new(sums(|one| one.2)), CountLimit::new(sums(|one| one.2))];
        let mut now_ns = 0;
        let mut left = [false; 3];
        for (number, (gap_ns, took_ns, messages)) in (0..).zip(&events) {
            if number == at as u64 {
                spans[1] = SpanLimit::new(sums(|one| one.0)).after(&spans[1]);
                costs[1] = CostLimit::new(sums(|one| one.1)).after(&costs[1]);
                counts[1] = CountLimit::new(sums(|one| one.2)).after(&counts[1]);
            }
            now_ns += gap_ns;
            spans.iter_mut().for_each(|limit| limit.see(now_ns));
            costs.iter_mut().for_each(|limit| limit.see(now_ns, *took_ns));
            counts.iter_mut().for_each(|limit| (0..*messages).for_each(|_| limit.see(now_ns, number)));
            // What was left once is nothing that another one goes on with.
            let [one, other] = spans.each_mut().map(SpanLimit::take);
            left[0] |= number < at as u64 && one.is_some();
            proptest::prop_assert!(left[0] || one == other, "{one:?}, {other:?}");
            let [one, other] = costs.each_mut().map(CostLimit::take);
            left[1] |= number < at as u64 && one.is_some();
            proptest::prop_assert!(left[1] || one == other, "{one:?}, {other:?}");
            let [one, other] = counts.each_mut().map(CountLimit::take);
            left[2] |= number < at as u64 && one.is_some();
            proptest::prop_assert!(left[2] || one == other, "{one:?}, {other:?}");
        }
    }

    /// Activations that an earlier limit reported are in no window of its successor: only later
    /// ones, in a row that is within the limit up to there, can be.
    #[test]
    fn what_was_reported_is_not_reported_again(
        gaps in proptest::collection::vec(0u64..20, 2..60),
        costs in proptest::collection::vec(0u64..20, 2..60),
        account in proptest::bool::ANY,
    ) {
        let (spans_ns, most_ns) = (vec![8, 20, 35], vec![12, 20, 27]);
        let stamps = gaps.iter().scan(0, |now, gap| { *now += gap; Some(*now) });
        let mut before = SpanLimit::new(vec![0, 0, 0]);
        stamps.for_each(|at_ns| before.see(at_ns));
        let mut limit = SpanLimit::new(spans_ns).after(&before);
        proptest::prop_assert!(limit.take().is_none());
        // Far from everything before.
        limit.see(10_000);
        proptest::prop_assert!(limit.take().is_none());
        let mut before = CostLimit::new(vec![u64::MAX; 3]);
        (0..).zip(&costs).for_each(|(at_ns, took_ns)| before.see(at_ns, *took_ns));
        let limit = CostLimit::new(most_ns);
        let mut limit = if account { limit.with_account() } else { limit }.after(&before);
        proptest::prop_assert!(limit.take().is_none() && limit.take_beyond().is_empty());
        // Nothing is within any limit.
        limit.see(10_000, 0);
        proptest::prop_assert!(limit.take().is_none() && limit.take_beyond().is_empty());
    }

    /// Found exactly where brute force finds it, with tails moved down many times.
    #[test]
    fn equals_brute_force(costs in proptest::collection::vec(0u64..20, 1..200), limits in proptest::collection::vec(5u64..15, 1..6)) {
        let most: Vec<u64> = limits.iter().scan(0, |sum, l| { *sum += l; Some(*sum) }).collect();
        let mut limit = CostLimit::new(most.clone());
        let mut first = None;
        for (at, &took) in costs.iter().enumerate() {
            limit.see(at as u64, took);
            let left = (1..=most.len().min(at + 1)).find(|n| costs[at + 1 - n..=at].iter().sum::<u64>() > most[n - 1]);
            if let (None, Some(n)) = (first, left) {
                first = Some((n as u64, at as u64));
            }
        }
        proptest::prop_assert_eq!(limit.take().map(|e| (e.events, e.at_ns)), first);
    }
}
