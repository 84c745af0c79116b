use super::*;
use crate::random::Pcg;
use proptest::prelude::*;
use rand::RngExt;

fn exponential(rng: &mut Pcg) -> f64 {
    -(1.0 - rng.random::<f64>()).ln()
}

/// Latencies of 20 µs plus an exponential tail of 2 µs.
fn plain(n: usize, seed: u64) -> Vec<u64> {
    let mut rng = generator(seed);
    (0..n).map(|_| 20_000 + (2000.0 * exponential(&mut rng)) as u64).collect()
}

#[test]
fn no_confidence_rate_or_deadline_breaks_it() {
    let series = plain(5000, 3);
    for confidence in [-5.0, 0.0, 0.95, 1.0, 2.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let tail = analyse_at(&series, 1000.0, 70_000, confidence).unwrap();
        assert!(tail.per_hour.low <= tail.per_hour.high, "{confidence}: {:?}", tail.per_hour);
    }
    for (rate_hz, deadline_ns) in [(1e300, 0), (1e-300, u64::MAX), (1.0, 1)] {
        assert!(analyse_at(&series, rate_hz, deadline_ns, 0.95).is_ok());
    }
    for rate_hz in [-250.0, 0.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(analyse_at(&series, rate_hz, 1, 0.95), Err(Refusal::Rate { .. })), "{rate_hz}");
    }
}

#[test]
fn an_exponential_tail_gives_its_known_answer() {
    // P(X > 70 µs) = e^-25 each; at 1 kHz 3.6e6 an hour: 5.0e-5.
    let tail = analyse(&plain(100_000, 1), 1000.0, 70_000).unwrap();
    let truth = 3.6e6 * (-25f64).exp();
    assert!(tail.shape.low < 0.0 && tail.shape.high > 0.0, "{:?}", tail.shape);
    assert!(tail.per_hour.low <= truth && truth <= tail.per_hour.high, "{:?} {truth}", tail.per_hour);
    assert_eq!(tail.extremal_index, 1.0);
    assert!(tail.peaks >= 50 && tail.fit_p_value >= REFUSED_BELOW);
    // The 1-h level is 20 + 2 ln 3.6e6 = 50.2 µs.
    assert!(tail.hour_level_ns.low < 50_193.0 && tail.hour_level_ns.high > 50_193.0);
    let blocks = tail.blocks.as_ref().unwrap();
    assert!(blocks.shape.low < 0.0 && blocks.shape.high > 0.0, "{blocks:?}");
    assert_eq!(blocks.blocks, 200);
}

#[test]
fn the_same_data_gives_the_same_answer() {
    let series = plain(20_000, 2);
    let text = |t: &Tail| serde_json::to_string(t).unwrap();
    let (a, b) = (analyse(&series, 250.0, 80_000), analyse(&series, 250.0, 80_000));
    assert_eq!(text(&a.unwrap()), text(&b.unwrap()));
}

#[test]
fn probabilities_fall_with_the_deadline_and_levels_rise_with_time() {
    let tail = analyse(&plain(20_000, 3), 1000.0, 40_000).unwrap();
    let p: Vec<f64> =
        (20..100).map(|us| tail.exceedance_per_hour(f64::from(us) * 1000.0, 1000.0).value).collect();
    assert!(p.windows(2).all(|w| w[1] <= w[0]) && p[0] > 0.999);
    let levels: Vec<f64> = [0.1, 1.0, 24.0, 1000.0].map(|h| tail.return_level_ns(h, 1000.0).value).to_vec();
    assert!(levels.windows(2).all(|w| w[1] >= w[0]));
    assert_eq!(tail.exceedance_per_hour(0.0, 1000.0).high, 1.0);
}

#[test]
fn bursts_are_declustered() {
    let series: Vec<u64> = plain(50_000, 4).windows(4).filter_map(|w| w.iter().max().copied()).collect();
    let tail = analyse(&series, 1000.0, 70_000).unwrap();
    assert!((tail.extremal_index - 0.25).abs() < 0.1, "{}", tail.extremal_index);
    assert!(tail.peaks < tail.exceedances / 2);
    assert!(tail.caveats.iter().any(|c| c.contains("bursts")));
    let truth = 3.6e6 * (-25f64).exp();
    assert!(tail.per_hour.low <= truth && truth <= tail.per_hour.high, "{:?} {truth}", tail.per_hour);
}

#[test]
fn a_rare_second_population_is_refused() {
    // Every now and then 500 µs more: 8 times, and once.
    for times in [8, 1] {
        let mut series = plain(20_000, 5);
        (0..times).for_each(|i| series[1000 + i * 2300] += 500_000 + 7919 * i as u64);
        let refusal = analyse(&series, 1000.0, 1_000_000).unwrap_err();
        assert!(
            matches!(
                refusal,
                Refusal::Mixture { .. } | Refusal::StandsApart { .. } | Refusal::TooHeavy { .. }
            ),
            "{times}: {refusal}"
        );
    }
}

#[test]
fn a_second_population_that_is_large_enough_is_the_tail() {
    let mut series = plain(100_000, 6);
    let mut rng = generator(7);
    for _ in 0..2000 {
        let at = rng.random_range(0..series.len());
        series[at] = 500_000 + (3000.0 * exponential(&mut rng)) as u64;
    }
    let tail = analyse(&series, 1000.0, 600_000).unwrap();
    assert!(tail.threshold_ns > 499_000, "{}", tail.threshold_ns);
}

#[test]
fn what_cannot_be_extrapolated_is_refused_with_its_reason() {
    assert!(matches!(analyse(&plain(400, 8), 1000.0, 1), Err(Refusal::TooFewSamples { needed: 500, .. })));
    assert!(matches!(analyse(&[5; 1000], 1000.0, 1), Err(Refusal::NoVariation { value_ns: 5 })));
    assert!(matches!(analyse(&plain(1000, 9), 0.0, 1), Err(Refusal::Rate { .. })));
    assert!(matches!(analyse(&plain(1000, 9), f64::NAN, 1), Err(Refusal::Rate { .. })));

    let coarse: Vec<u64> = plain(20_000, 10).iter().map(|v| v / 1000 * 1000).collect();
    assert!(matches!(analyse(&coarse, 1000.0, 1), Err(Refusal::Discretised { .. })));

    let drifting: Vec<u64> = plain(20_000, 11).iter().enumerate().map(|(i, v)| v + i as u64 / 2).collect();
    assert!(matches!(analyse(&drifting, 1000.0, 1), Err(Refusal::NonStationary { .. })));
    let second_half: Vec<u64> =
        plain(20_000, 12).iter().enumerate().map(|(i, v)| v + 8000 * u64::from(i > 10_000)).collect();
    assert!(matches!(analyse(&second_half, 1000.0, 1), Err(Refusal::NonStationary { .. })));

    // One burst of 40 large values a second.
    let bursts: Vec<u64> = plain(5000, 13)
        .iter()
        .enumerate()
        .map(|(i, v)| if i % 1000 < 60 { v + 300_000 } else { *v })
        .collect();
    let refusal = analyse(&bursts, 1000.0, 1).unwrap_err();
    assert!(matches!(refusal, Refusal::TooFewPeaks { .. } | Refusal::StandsApart { .. }), "{refusal}");

    let mut rng = generator(14);
    let heavy: Vec<u64> =
        (0..20_000).map(|_| (20_000.0 + 2000.0 * (exponential(&mut rng)).exp()) as u64).collect();
    let refusal = analyse(&heavy, 1000.0, 1).unwrap_err();
    assert!(matches!(refusal, Refusal::TooHeavy { .. } | Refusal::StandsApart { .. }), "{refusal}");
}

#[test]
fn sound_tails_are_rarely_refused() {
    let refused = (0..30).filter(|&seed| analyse(&plain(10_000, 100 + seed), 250.0, 60_000).is_err()).count();
    assert!(refused <= 5, "{refused} of 30");
}

#[test]
fn intervals_cover_end_to_end() {
    // Threshold choice and all: how often is the truth of the exponential tail inside?
    let truth = 3.6e6 * (-15f64).exp();
    let answers: Vec<Estimate> = (0..60)
        .filter_map(|seed| analyse(&plain(10_000, 500 + seed), 1000.0, 50_000).ok().map(|t| t.per_hour))
        .collect();
    let truth = -(-truth).exp_m1();
    // Standard error of 60 at 92 %: 3.5 %.
    let covered = answers.iter().filter(|e| (e.low..=e.high).contains(&truth)).count();
    assert!(
        answers.len() >= 50 && covered as f64 / answers.len() as f64 >= 0.86,
        "{covered} of {}",
        answers.len()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_series_gives_an_answer_or_a_reason(
        values in proptest::collection::vec(prop_oneof![0u64..50, 0u64..100_000, any::<u64>()], 490..900),
        rate in 0.1f64..1e6, deadline in any::<u64>()
    ) {
        match analyse(&values, rate, deadline) {
            Ok(t) => {
                for e in [t.per_hour, t.hour_level_ns, t.shape, t.scale_ns] {
                    prop_assert!(e.low <= e.value && e.value <= e.high, "{:?}", e);
                }
                prop_assert!((0.0..=1.0).contains(&t.per_hour.low) && t.per_hour.high <= 1.0);
            }
            Err(refusal) => prop_assert!(!refusal.to_string().is_empty()),
        }
    }
}

#[test]
fn a_slowly_converging_tail_is_not_underestimated() {
    // Half-normal: no upper end, but fitted shapes are about -0.1.
    let deviation = 6000.0;
    let deadline = 20_000 + (4.7 * deviation) as u64;
    // P(|Z| > 4.7) = 2.60e-6, 360,000 values an hour.
    let truth = -(-360_000.0 * 2.60e-6f64).exp_m1();
    for seed in 0..20 {
        let mut rng = generator(9000 + seed);
        let mut normal = || {
            let radius = (2.0 * exponential(&mut rng)).sqrt();
            (radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()).abs()
        };
        let series: Vec<u64> = (0..10_000).map(|_| 20_000 + (deviation * normal()) as u64).collect();
        if let Ok(tail) = analyse(&series, 100.0, deadline) {
            assert!(tail.per_hour.high >= truth, "{:?}", tail.per_hour);
        }
    }
}
