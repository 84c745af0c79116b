use super::*;
use crate::low;
use proptest::prelude::*;

fn recorder(values: &[u64], deadline_ns: Option<u64>) -> Recorder {
    let mut r = Recorder::new(deadline_ns).unwrap();
    values.iter().for_each(|&v| r.record(v));
    r
}

fn state(r: &Recorder) -> String {
    serde_json::to_string(r).unwrap()
}

#[test]
fn stays_below_four_mebibytes() {
    assert!(recorder(&[], None).memory_bytes() < 4 << 20);
}

#[test]
fn a_compact_recorder_is_small_and_exact_in_all_but_quantiles() {
    let values: Vec<u64> = (1..=20_000u64).map(|v| v * 7919 % 50_000_000).collect();
    let (whole, mut compact) = (recorder(&values, Some(30_000)), Recorder::compact(Some(30_000)).unwrap());
    values.iter().for_each(|&v| compact.record(v));
    assert!(compact.memory_bytes() < 320 << 10, "{}", compact.memory_bytes());
    let again: Recorder = serde_json::from_str(&state(&compact)).unwrap();
    let exact = |r: &Recorder| {
        let s = r.summary();
        (s.count, s.mean, s.stddev, s.min, s.worst, r.misses())
    };
    assert_eq!((exact(&again), again.summary()), (exact(&whole), compact.summary()));
    let (expected, found) = (whole.quantile(0.99).unwrap(), compact.quantile(0.99).unwrap());
    assert!((found - expected).abs() / expected < 1e-3, "{found} for {expected}");
}

#[test]
fn resolution_is_as_documented() {
    let r = recorder(&[], None);
    assert_eq!((r.resolution_ns(32_767), r.resolution_ns(32_768)), (1, 2));
    for value in [40_000u64, 1_000_000, 37_300_000, 10_000_000_000, RANGE_NS] {
        assert!(r.resolution_ns(value) as f64 / value as f64 <= 1.0 / 16384.0, "{value}");
    }
}

#[test]
fn nothing_is_dropped_beyond_the_range() {
    let r = recorder(&[5, RANGE_NS + 1, u64::MAX], Some(10));
    let s = r.summary();
    assert_eq!((r.beyond(), r.count(), s.worst, s.min), (2, 3, u64::MAX as f64, 5.0));
    assert_eq!((r.misses().misses, r.quantile(0.5)), (2, Some(u64::MAX as f64)));
    assert_eq!(r.low_table().last().map(|row| row.count), Some(3));
}

#[test]
fn empty_and_foreign() {
    let mut r = recorder(&[], None);
    assert_eq!((r.summary(), r.quantile(0.5), r.low_table().len()), (Summary::default(), None, 0));
    assert!(matches!(r.merge(&recorder(&[], Some(1))), Err(RecorderError::Deadlines { .. })));
}

#[test]
fn damaged_checkpoints_are_refused() {
    let text = state(&recorder(&[5, 6, 7, 1 << 43], Some(6)));
    assert!(serde_json::from_str::<Recorder>(&text).is_ok());
    let one_more = text.replace("\"beyond\":1", "\"beyond\":2");
    let foreign = text.replacen("HISTF", "HISTX", 1);
    let runs = text.replace("\"longest_run\":2", "\"longest_run\":9");
    for bad in [one_more, runs, text.replace("\"histogram\":\"", "\"histogram\":\"!")] {
        assert_ne!(bad, text);
        assert!(serde_json::from_str::<Recorder>(&bad).unwrap_err().to_string().contains("damaged"));
    }
    assert!(foreign == text || serde_json::from_str::<Recorder>(&foreign).is_err());
}

/// Values over the whole range, most of them where latencies are.
fn values() -> impl Strategy<Value = Vec<u64>> {
    let value = prop_oneof![0u64..32_768, 32_768u64..5_000_000, any::<u32>().prop_map(u64::from)];
    proptest::collection::vec(value, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn equals_the_batch(values in values(), deadline in 0u64..5_000_000) {
        let r = recorder(&values, Some(deadline));
        let mut batch: Vec<f64> = values.iter().map(|&v| v as f64).collect();
        let expected = Summary::of(&mut batch);
        let got = r.summary();
        prop_assert_eq!((got.count, got.mean, got.stddev, got.min, got.worst),
            (expected.count, expected.mean, expected.stddev, expected.min, expected.worst));
        for (got, expected) in [(got.median, expected.median), (got.p90, expected.p90), (got.p99, expected.p99)] {
            prop_assert!(got >= expected && got - expected < r.resolution_ns(expected as u64) as f64);
        }
        prop_assert_eq!(r.misses(), Misses::of(&values, deadline));
        for (got, expected) in r.low_table().iter().zip(low::table(&batch)) {
            prop_assert_eq!(got.count, expected.count);
            let tolerance = 1e-9 + expected.max / 16384.0;
            prop_assert!((got.max - expected.max).abs() <= tolerance);
            prop_assert!((got.mean - expected.mean).abs() <= tolerance);
            prop_assert!((got.stddev - expected.stddev).abs() <= 2.0 * tolerance);
        }
    }

    #[test]
    fn exact_where_the_resolution_is_one(
        values in proptest::collection::vec(0u64..32_768, 1..300), q in 0.0f64..=1.0
    ) {
        let r = recorder(&values, None);
        let mut batch: Vec<f64> = values.iter().map(|&v| v as f64).collect();
        prop_assert_eq!(r.summary(), Summary::of(&mut batch));
        prop_assert_eq!(r.quantile(q), quantile::of_sorted(&batch, q));
        prop_assert_eq!(r.quantile_estimate(0.5, 0.9), quantile::estimate(&batch, 0.5, 0.9));
    }

    #[test]
    fn checkpoint_and_merge_lose_nothing(a in values(), b in values()) {
        let mut resumed: Recorder = serde_json::from_str(&state(&recorder(&a, Some(1000)))).unwrap();
        let mut merged = resumed.clone();
        b.iter().for_each(|&v| resumed.record(v));
        let whole = recorder(&[a.clone(), b.clone()].concat(), Some(1000));
        prop_assert_eq!(state(&resumed), state(&whole));
        prop_assert_eq!(resumed.summary(), whole.summary());
        merged.merge(&recorder(&b, Some(1000))).unwrap();
        prop_assert_eq!(merged.summary(), whole.summary());
        prop_assert_eq!(merged.misses().misses, whole.misses().misses);
    }

    #[test]
    fn damaged_text_never_panics(at in 0usize..4000, with in "[ -~]") {
        let mut text = state(&recorder(&[5, 6, 7, 900_000, 1 << 43], Some(6)));
        let at = at % text.len();
        text.replace_range(at..=at, &with);
        if let Ok(mut r) = serde_json::from_str::<Recorder>(&text) {
            r.record(5);
            r.summary();
            r.low_table();
        }
    }
}
