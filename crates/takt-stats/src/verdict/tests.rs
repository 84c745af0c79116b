use super::longer::duration;
use super::words::time;
use super::*;
use proptest::prelude::*;

fn series() -> SeriesEvidence {
    SeriesEvidence {
        unit: "activations".to_owned(),
        deadline_ns: 4_000_000,
        rate_hz: Some(250.0),
        samples: 10_000,
        worst_ns: 95_220,
        ..SeriesEvidence::default()
    }
}

#[test]
fn series_pass_fail_and_in_between() {
    let clean = judge_series(&series());
    assert_eq!((clean.verdict, clean.reasons.len()), (Verdict::Pass, 1));
    assert!(clean.reasons[0].contains("worst 95.2 us") && clean.reasons[0].contains("4.000 ms deadline"));

    let failed = judge_series(&SeriesEvidence { misses: 3, longest_run: 2, stolen: Some(0.2), ..series() });
    assert_eq!((failed.verdict, failed.reasons.len()), (Verdict::Fail, 2));
    assert!(failed.reasons[0].starts_with("3 of 10000 activations missed"));

    let short = judge_series(&SeriesEvidence { samples: 50, ..series() });
    // 0.1 s are 25 activations, and 298.07 such bursts show one in 100.
    assert_eq!((short.verdict, short.measure_more_samples), (Verdict::Inconclusive, Some(7402)));
    assert_eq!(short.measure_more_s, Some(7402.0 / 250.0));
    let no_rate = judge_series(&SeriesEvidence { samples: 50, rate_hz: None, ..series() });
    assert_eq!((no_rate.measure_more_samples, no_rate.measure_more_s), (Some(250), None));

    for weak in
        [SeriesEvidence { records_lost: 1, ..series() }, SeriesEvidence { not_granted: 2, ..series() }]
    {
        let report = judge_series(&weak);
        assert_eq!((report.verdict, report.reasons.len()), (Verdict::Inconclusive, 1));
        assert_eq!(report.measure_more_samples, None);
    }
}

#[test]
fn one_late_series_of_many_is_a_fail_unless_it_was_given_up() {
    let pass = judge_series(&series());
    let fail = judge_series(&SeriesEvidence { misses: 3, ..series() });
    let short = judge_series(&SeriesEvidence { samples: 50, ..series() });
    let part = |name, report| Part { name, report, excused: None };
    let given_up = |report| Part { name: "last", report, excused: Some("degraded") };
    let of = |parts: &[Part<'_>]| overall(parts).verdict;
    assert_eq!(of(&[part("a", &pass), part("b", &pass)]), Verdict::Pass);
    assert_eq!(of(&[part("a", &pass), part("b", &fail)]), Verdict::Fail);
    assert_eq!(of(&[part("a", &short), part("b", &fail)]), Verdict::Fail);
    assert_eq!(of(&[part("a", &pass), given_up(&fail)]), Verdict::Pass);
    assert_eq!(of(&[given_up(&fail)]), Verdict::Inconclusive);
    assert_eq!(of(&[]), Verdict::Inconclusive);
    // One alone speaks for itself.
    assert_eq!(overall(&[part("a", &fail)]), fail);
    let all = overall(&[part("a", &pass), part("b", &short), given_up(&fail)]);
    assert_eq!((all.verdict, all.reasons.len()), (Verdict::Inconclusive, 3));
    assert!(all.reasons[0].starts_with("a: PASS, all 10000"), "{:?}", all.reasons);
    assert!(all.reasons[2].starts_with("last: does not count, because degraded (3 of"), "{:?}", all.reasons);
    assert_eq!(all.measure_more_s, short.measure_more_s);
}

#[test]
fn a_pass_without_a_claim_shows_less_than_one_miss_in_100() {
    // One second at 1 kHz was a PASS with "less than one miss in 3".
    let of = |seconds: f64, rate_hz: f64| SeriesEvidence {
        rate_hz: Some(rate_hz),
        samples: (seconds * rate_hz) as u64,
        measured_s: Some(seconds),
        ..series()
    };
    let second = judge_series(&of(1.0, 1000.0));
    assert_eq!(second.verdict, Verdict::Inconclusive);
    let sentence = second.sentence();
    assert!(
        sentence.contains("about 10 independent trials: miss rate below 1 in 3 (95 % confidence)"),
        "{sentence}"
    );
    assert!(
        sentence.ends_with("measure 30 s more (28808 activations without a miss): `--seconds 31`"),
        "{sentence}"
    );
    assert_eq!((second.measure_more_samples, second.measure_more_s), (Some(28_808), Some(30.0)));
    assert_eq!(judge_series(&of(31.0, 1000.0)).verdict, Verdict::Pass);
    assert_eq!(judge_series(&of(29.0, 1000.0)).verdict, Verdict::Inconclusive);
    // Slow jobs are a trial each, and 300 of them are needed.
    assert!(judge_series(&of(10.0, 5.0)).sentence().ends_with("`--seconds 61`"));
    assert_eq!([of(60.0, 5.0), of(59.0, 5.0)].map(|e| judge_series(&e).verdict), {
        [Verdict::Pass, Verdict::Inconclusive]
    });
    // A rate that nobody states is the one that was seen: no shortcut.
    let unstated = SeriesEvidence { rate_hz: None, ..of(1.0, 1000.0) };
    assert_eq!(judge_series(&unstated), second);
    // Independent jobs, by the file's word.
    let alone = |samples| {
        let claim = Claim { burst_s: 0.0, ..Claim::default() };
        judge_series(&SeriesEvidence { samples, claim, ..of(1.0, 1000.0) })
    };
    assert_eq!([alone(300), alone(299)].map(|report| report.verdict), {
        [Verdict::Pass, Verdict::Inconclusive]
    });
    // A lower confidence is no way around it, a higher one counts.
    for (confidence, trials) in [(0.5, 299.0), (0.95, 299.0), (0.999, 688.0)] {
        let claim = Claim { confidence, ..Claim::default() };
        let of = |seconds| judge_series(&SeriesEvidence { claim, ..of(seconds, 1000.0) }).verdict;
        assert_eq!([of(trials / 10.0 + 0.5), of(trials / 10.0 - 0.5)], {
            [Verdict::Pass, Verdict::Inconclusive]
        });
    }
    // Nothing at all.
    let nothing = judge_series(&SeriesEvidence { samples: 0, ..of(1.0, 1000.0) }).sentence();
    assert!(nothing.starts_with("INCONCLUSIVE: no activations were measured"), "{nothing}");
}

#[test]
fn how_much_longer_is_asked_of_those_who_can_measure_longer() {
    let e = SeriesEvidence { samples: 2500, measured_s: Some(10.0), ..series() };
    let asks = |e: &SeriesEvidence| judge_series(e).reasons.pop().unwrap();
    assert_eq!(asks(&e), "measure 21 s more (4952 activations without a miss): `--seconds 31`");
    // Three repetitions share what is missing.
    let three = SeriesEvidence { runs: 3, ..e.clone() };
    assert_eq!(
        asks(&three),
        "measure 7.7 s more in each of 3 runs (4952 activations without a miss): `--seconds 11`"
    );
    // A run will again have the same time besides the measured one.
    let besides = SeriesEvidence { besides_s: 5.0, ..e.clone() };
    assert!(asks(&besides).ends_with("`--seconds 36`"), "{}", asks(&besides));
    // A recording has no option.
    let recorded = SeriesEvidence { longer: Longer::Recording, ..e.clone() };
    assert_eq!(asks(&recorded), "record 21 s more (4952 activations without a miss)");
    // Nor has a run that ended by its number of jobs.
    let counted = SeriesEvidence { longer: Longer::OwnEnd, ..e.clone() };
    assert_eq!(asks(&counted), "measure 21 s more (4952 activations without a miss)");
    // Nobody types 51 days.
    let slow = SeriesEvidence { rate_hz: Some(1e-4), ..e.clone() };
    assert!(asks(&slow).starts_with("measure 0") || !asks(&slow).contains("--seconds"), "{}", asks(&slow));
    // Values that are correlated for longer need longer runs, and a forecast asks for more than was
    // seen.
    let asked = |dispersion: f64, dispersion_to_come: f64| {
        judge_series(&SeriesEvidence { dispersion, dispersion_to_come, ..e.clone() }).measure_more_s.unwrap()
    };
    assert!(asked(1.0, 1.0) < asked(50.0, 50.0) && asked(50.0, 50.0) < asked(50.0, 100.0));
}

fn claiming(limit: Limit) -> SeriesEvidence {
    SeriesEvidence { claim: Claim { limit: Some(limit), burst_s: 0.0, ..Claim::default() }, ..series() }
}

#[test]
fn a_claim_per_job_is_shown_refuted_or_neither() {
    let of = |samples: u64, misses: u64| {
        let e = claiming(Limit::MissesPerJob(1e-3));
        judge_series(&SeriesEvidence { samples, misses, ..e })
    };
    // Exact binomial: 2995 jobs without a miss show 1e-3 at 95 %, 2994 do not.
    assert_eq!((of(2995, 0).verdict, of(2994, 0).verdict), (Verdict::Pass, Verdict::Inconclusive));
    assert_eq!(of(2000, 0).measure_more_samples, Some(995));
    // 10 in 20,000 are few enough (Clopper-Pearson: 8.5e-4); 10 in 16,000 are not; 30 in 16,000
    // refute it (1.35e-3).
    assert_eq!([of(20_000, 10), of(16_000, 10), of(16_000, 30)].map(|r| r.verdict), {
        [Verdict::Pass, Verdict::Inconclusive, Verdict::Fail]
    });
    let more = of(16_000, 10);
    let then = of(16_000 + more.measure_more_samples.unwrap(), 10);
    assert_eq!(then.verdict, Verdict::Pass, "what is asked for is enough: {more:?}");
    assert!(more.sentence().contains("without a further miss"), "{}", more.sentence());
    let refuted = of(16_000, 30).sentence();
    assert!(
        refuted.starts_with("FAIL: 30 of 16000 activations missed") && refuted.contains("refutes"),
        "{refuted}"
    );
    let gaps = SeriesEvidence { samples: 20_000, records_lost: 1, ..claiming(Limit::MissesPerJob(1e-3)) };
    let report = judge_series(&gaps);
    assert_eq!((report.verdict, report.measure_more_s), (Verdict::Inconclusive, None), "{report:?}");
}

#[test]
fn a_burst_is_one_trial() {
    // 0.1 s at 250 Hz are 25 activations.
    let with = |claim: Claim| judge_series(&SeriesEvidence { claim, ..series() });
    let plain = with(Claim { burst_s: 0.0, ..Claim::default() });
    let bursts = with(Claim::default());
    let below = |report: &VerdictReport| report.misses_per_job_below.unwrap();
    assert!((below(&bursts) / below(&plain) - 25.0).abs() < 0.2, "{plain:?} {bursts:?}");
    assert!(
        plain.sentence().contains("; miss rate below 1 in 3338 (95 % confidence)"),
        "{}",
        plain.sentence()
    );
    let words =
        "10000 activations count as about 400 independent trials: miss rate below 1 in 134 (95 % confidence)";
    assert!(bursts.sentence().contains(words), "{}", bursts.sentence());
    // Correlated values count likewise, and so does an observed run of misses.
    for e in [SeriesEvidence { dispersion: 50.0, ..series() }, SeriesEvidence { longest_run: 50, ..series() }]
    {
        assert!((below(&judge_series(&e)) / below(&bursts) - 2.0).abs() < 0.05);
    }
    // A run of 40 misses in 10,000 is one event: it does not refute 1e-4 (it is likely once in
    // 10,000), 20 such do.
    let run = |misses, longest_run| {
        judge_series(&SeriesEvidence { misses, longest_run, ..claiming(Limit::MissesPerJob(1e-4)) }).verdict
    };
    assert_eq!(
        [run(40, 40), run(40, 1), run(800, 40)],
        [Verdict::Inconclusive, Verdict::Fail, Verdict::Fail]
    );
}

#[test]
fn a_claim_per_hour_asks_for_its_evidence() {
    // 0.01 an hour, independent jobs: ln 20 / 0.01 = 300 h.
    let asked = claiming(Limit::MissesPerHour(0.01));
    let report = judge_series(&asked);
    assert_eq!(report.verdict, Verdict::Inconclusive);
    assert!((report.measure_more_s.unwrap() / 3600.0 - 299.6).abs() < 0.1, "{report:?}");
    let tail = |high: f64| Some(Estimate { value: high / 10.0, low: 0.0, high });
    // 10,000 jobs are 40 s: too few for a tail to be asked for 0.01 an hour, which 18 min are
    // enough for.
    let short = judge_series(&SeriesEvidence { tail_per_hour: tail(0.009), ..asked.clone() });
    assert_eq!(short.verdict, Verdict::Inconclusive);
    assert!((short.measure_more_s.unwrap() / 60.0 - 17.3).abs() < 0.1, "{short:?}");
    let shown = SeriesEvidence { samples: 300_000, tail_per_hour: tail(0.009), ..asked.clone() };
    let report = judge_series(&shown);
    assert_eq!((report.verdict, report.reasons.len()), (Verdict::Pass, 2), "{report:?}");
    assert!(report.sentence().contains("by the fitted tail"), "{}", report.sentence());
    // A tail with an end before the deadline.
    let ends = judge_series(&SeriesEvidence { tail_per_hour: tail(0.0), ..shown.clone() }).sentence();
    assert!(
        ends.starts_with("PASS") && ends.contains("ends before the deadline") && !ends.contains("0e0"),
        "{ends}"
    );
    // Bursts of three by the tail's own index are three misses.
    let bursts = SeriesEvidence { tail_burst: 3.0, ..shown.clone() };
    assert_eq!(judge_series(&bursts).verdict, Verdict::Inconclusive);
    let not = judge_series(&SeriesEvidence { tail_per_hour: tail(0.02), ..shown.clone() });
    assert_eq!(not.verdict, Verdict::Inconclusive);
    // A tail is no excuse for a miss that was seen.
    let seen = judge_series(&SeriesEvidence { misses: 1, ..shown });
    assert_ne!(seen.verdict, Verdict::Pass);
    let long = judge_series(&SeriesEvidence { samples: 270_000_000, ..asked.clone() });
    assert_eq!(long.verdict, Verdict::Pass);
    let no_rate = judge_series(&SeriesEvidence { rate_hz: None, ..asked });
    assert_eq!(no_rate.verdict, Verdict::Inconclusive);
    assert!(no_rate.sentence().contains("misses_per_job"));
}

#[test]
fn failures_and_doubts_are_in_the_one_sentence() {
    let [failures, doubts] = [["the link was lost".to_owned()], ["the census is not whole".to_owned()]];
    let pass = judge_series(&series());
    let failed = pass.clone().concluded(&failures, &doubts);
    assert_eq!(failed.verdict, Verdict::Fail);
    assert!(failed.sentence().starts_with("FAIL: the link was lost; all 10000"), "{}", failed.sentence());
    let doubted = pass.clone().concluded(&[], &doubts);
    assert_eq!(doubted.verdict, Verdict::Inconclusive);
    assert!(doubted.sentence().starts_with("INCONCLUSIVE: the census"), "{}", doubted.sentence());
    let missed = judge_series(&SeriesEvidence { misses: 3, ..series() }).concluded(&failures, &[]);
    assert!(missed.sentence().starts_with("FAIL: 3 of 10000"), "{}", missed.sentence());
    assert_eq!(pass.clone().concluded(&[], &[]), pass);
}

#[test]
fn a_tail_that_expects_a_miss_forbids_a_pass() {
    let likely = Some(Estimate { value: 0.75, low: 0.1, high: 1.0 });
    let report = judge_series(&SeriesEvidence { tail_per_hour: likely, ..series() });
    assert_eq!(report.verdict, Verdict::Inconclusive);
    assert!(
        report
            .sentence()
            .contains("by the fitted tail, the probability of a miss within an hour of this load is 0.75"),
        "{}",
        report.sentence()
    );
    // An interval from 0 to 1 is no prediction.
    let open = Some(Estimate { value: 1.0, low: 2.96e-10, high: 1.0 });
    let sentence = judge_series(&SeriesEvidence { tail_per_hour: open, ..series() }).sentence();
    assert!(sentence.contains("cannot say whether a miss will occur within an hour"), "{sentence}");
    // p = 0.75 an hour is one miss in half an hour with probability 1/2.
    assert!((report.measure_more_s.unwrap() - 1800.0).abs() < 1.0);
    let rare = Some(Estimate { value: 1e-6, low: 0.0, high: 1e-4 });
    let report = judge_series(&SeriesEvidence { tail_per_hour: rare, ..series() });
    assert_eq!((report.verdict, report.reasons.len()), (Verdict::Pass, 2));
}

#[test]
fn misses_that_never_completed_have_a_sentence() {
    let of = |unfinished_late| judge_series(&SeriesEvidence { unfinished_late, ..series() }).sentence();
    assert_eq!(
        of(1),
        "FAIL: 1 of 10001 activations missed the 4.000 ms deadline (worst completed 95.2 us); one miss never completed \
         (skipped, dropped, unanswered, or still running at the end)"
    );
    assert!(of(2).contains("; 2 misses never completed ("), "{}", of(2));
}

#[test]
fn durations_read_well() {
    assert_eq!([1.0, 600.0, 10_000.0, 1e7].map(duration), ["1 s", "10 min", "2.8 h", "116 days"]);
    assert_eq!([950, 37_300_000, 12_000_000_000].map(time), ["0.9 us", "37.300 ms", "12.0 s"]);
}

proptest! {
    #[test]
    fn any_evidence_is_judged(
        samples in any::<u64>(), misses in prop_oneof![Just(0u64), any::<u64>()],
        unfinished_late in prop_oneof![Just(0u64), any::<u64>()],
        rate in proptest::option::of(any::<f64>()), limit in proptest::option::of(0.0f64..1.0),
        per_hour in any::<bool>(), burst_s in 0.0f64..3600.0, dispersion in any::<f64>(), longest_run in any::<u64>(),
        p in proptest::option::of(0.0f64..=1.0), deadline_ns in any::<u64>(),
        measured_s in proptest::option::of(any::<f64>()), runs in any::<u64>(),
        besides_s in any::<f64>(), dispersion_to_come in any::<f64>()
    ) {
        let e = SeriesEvidence {
            samples, misses, unfinished_late, rate_hz: rate, deadline_ns, dispersion, longest_run,
            measured_s, runs, besides_s, dispersion_to_come,
            claim: Claim {
                limit: limit.map(if per_hour { Limit::MissesPerHour } else { Limit::MissesPerJob }),
                burst_s,
                ..Claim::default()
            },
            tail_per_hour: p.map(|p| Estimate { value: p, low: 0.0, high: 1.0 }),
            ..SeriesEvidence::default()
        };
        let report = judge_series(&e);
        prop_assert!(!report.reasons.is_empty());
        let missed = misses > 0 || unfinished_late > 0;
        prop_assert!(limit.is_some() || (report.verdict == Verdict::Fail) == missed);
        prop_assert!(limit.is_some() || report.verdict != Verdict::Pass || samples >= 300);
        let shown = report.misses_per_job_below.is_some_and(|below| below <= 0.01);
        prop_assert!(limit.is_some() || report.verdict != Verdict::Pass || shown);
        prop_assert!(report.measure_more_s.is_none_or(|s| s > 0.0 && s.is_finite()), "{:?}", report);
        prop_assert!(missed || report.verdict != Verdict::Fail);
    }
}
