//! Did the robot react in time? A verdict with its reasons.

use serde::{Deserialize, Serialize};

use crate::evt::Estimate;

/// The answer to "did everything meet its deadline, and was enough seen to say so".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// No miss, and enough samples.
    Pass,
    /// At least one miss: more samples cannot mend that.
    Fail,
    /// No miss seen, but the evidence does not carry a PASS.
    Inconclusive,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Inconclusive => "INCONCLUSIVE",
        })
    }
}

/// What a verdict about one deadline rests on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadlineEvidence {
    /// The deadline, milliseconds.
    pub deadline_ms: f64,
    /// Number of reactions measured.
    pub samples: u64,
    /// Reactions later than the deadline.
    pub misses: u64,
    /// Greatest reaction, milliseconds.
    pub worst_ms: f64,
    /// Inputs whose reaction was not over when the run ended and that were already past the deadline.
    pub unfinished_late: u64,
    /// Inputs that were never taken up, because a newer one took their place, and whose deadline was over when that was answered.
    pub dropped_late: u64,
    /// Records that were lost on the way to the run directory.
    pub records_lost: u64,
    /// Settings that were asked for and not granted (a lenient run).
    pub not_granted: u64,
}

/// What a verdict about one measured series rests on, for any robot. Every field but the deadline may be left at its
/// default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SeriesEvidence {
    /// What was counted, plural: "reactions", "activations", "edges".
    pub unit: String,
    /// The deadline, nanoseconds.
    pub deadline_ns: u64,
    /// Values per second, where known: turns numbers of values into durations.
    pub rate_hz: Option<f64>,
    /// Values measured.
    pub samples: u64,
    /// Values later than the deadline.
    pub misses: u64,
    /// Longest unbroken run of misses.
    pub longest_run: u64,
    /// Greatest value, nanoseconds.
    pub worst_ns: u64,
    /// Values that never came (skipped releases), or were past the deadline and not over when the run ended.
    pub unfinished_late: u64,
    /// Records that were lost on the way to the run directory.
    pub records_lost: u64,
    /// Settings that were asked for and not granted (a lenient run).
    pub not_granted: u64,
    /// Share of CPU time (0 to 1) that a hypervisor gave to others during the run, where known.
    pub stolen: Option<f64>,
    /// Probability of a miss in an hour, from the fitted tail ([`crate::evt::Tail::per_hour`]), where there is one.
    pub tail_per_hour: Option<Estimate>,
    /// The probability of a miss in an hour that the user allows. Asks for more than "no miss seen": without it,
    /// evidence for less than 1 % of misses is enough.
    pub allowed_per_hour: Option<f64>,
}

impl Default for SeriesEvidence {
    fn default() -> Self {
        Self {
            unit: "values".to_owned(),
            deadline_ns: 0,
            rate_hz: None,
            samples: 0,
            misses: 0,
            longest_run: 0,
            worst_ns: 0,
            unfinished_late: 0,
            records_lost: 0,
            not_granted: 0,
            stolen: None,
            tail_per_hour: None,
            allowed_per_hour: None,
        }
    }
}

/// A verdict with its reasons, each a sentence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictReport {
    /// The verdict.
    pub verdict: Verdict,
    /// Why.
    pub reasons: Vec<String>,
    /// Values without a miss that are still to be measured, where measuring longer would help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure_more_samples: Option<u64>,
    /// How long that takes, seconds, where the rate is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure_more_s: Option<f64>,
}

impl VerdictReport {
    fn new(verdict: Verdict, reasons: Vec<String>) -> Self {
        Self { verdict, reasons, measure_more_samples: None, measure_more_s: None }
    }
}

/// One of several series that a verdict is about.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its name.
    pub name: &'a str,
    /// What was found about it alone.
    pub report: &'a VerdictReport,
    /// Why its misses do not count: it was given up in a declared order. `None`: they count.
    pub excused: Option<&'a str>,
}

/// One verdict about several series: FAIL if any that is not excused fails, PASS if all that are not excused pass. The reasons are a line
/// for each series, in the order given.
pub fn overall(parts: &[Part<'_>]) -> VerdictReport {
    if let [Part { report, excused: None, .. }] = parts {
        return (*report).clone();
    }
    let counted = || parts.iter().filter(|part| part.excused.is_none()).map(|part| part.report);
    let any = |verdict: Verdict| counted().any(|report| report.verdict == verdict);
    let verdict = if any(Verdict::Fail) {
        Verdict::Fail
    } else if any(Verdict::Inconclusive) || counted().next().is_none() {
        Verdict::Inconclusive
    } else {
        Verdict::Pass
    };
    let line = |part: &Part<'_>| {
        let why = part.report.reasons.join("; ");
        match part.excused {
            Some(excuse) => format!("{}: does not count, {excuse} ({why})", part.name),
            None => format!("{}: {}, {why}", part.name, part.report.verdict),
        }
    };
    let mut report = VerdictReport::new(verdict, parts.iter().map(line).collect());
    if counted().next().is_none() {
        report.reasons.push("nothing is left that the verdict could be about".to_owned());
    }
    if verdict == Verdict::Inconclusive {
        report.measure_more_samples = counted().filter_map(|report| report.measure_more_samples).max();
        report.measure_more_s = counted().filter_map(|report| report.measure_more_s).reduce(f64::max);
    }
    report
}

/// Samples without a miss below which no PASS is given. With n samples and no miss, the miss probability is
/// below 3/n at 95 % confidence (rule of three, Hanley & Lippman-Hand 1983): 300 samples say "below 1 %".
const MIN_SAMPLES: u64 = 300;

/// Judges the evidence.
pub fn judge(evidence: &DeadlineEvidence) -> VerdictReport {
    let e = evidence;
    let mut reasons = Vec::new();
    let never = e.unfinished_late.saturating_add(e.dropped_late);
    let missed = e.misses.saturating_add(never);
    if missed > 0 {
        reasons.push(format!(
            "{} of {} reactions missed the {} ms deadline; {} {:.1} ms",
            missed,
            e.samples.saturating_add(never),
            e.deadline_ms,
            if never > 0 { "worst of the answered ones" } else { "worst" },
            e.worst_ms
        ));
        if e.unfinished_late > 0 {
            reasons.push(format!("{} of them were still unanswered when the run ended", e.unfinished_late));
        }
        if e.dropped_late > 0 {
            reasons.push(format!(
                "{} of them were never looked at: a newer one took their place, and its answer came too late for them",
                e.dropped_late
            ));
        }
        return VerdictReport::new(Verdict::Fail, reasons);
    }
    if e.samples < MIN_SAMPLES {
        reasons.push(format!(
            "only {} reactions were measured; at least {MIN_SAMPLES} without a miss are needed: measure {} times \
             as long",
            e.samples,
            MIN_SAMPLES.div_ceil(e.samples.max(1))
        ));
    }
    if e.records_lost > 0 {
        reasons.push(format!("{} records were lost, so that a miss may be among them", e.records_lost));
    }
    if e.not_granted > 0 {
        reasons
            .push(format!("{} settings that were asked for were not granted by the kernel", e.not_granted));
    }
    if !reasons.is_empty() {
        return VerdictReport::new(Verdict::Inconclusive, reasons);
    }
    reasons.push(format!(
        "all {} reactions met the {} ms deadline; worst {:.1} ms; at 95 % confidence less than one in {} misses",
        e.samples,
        e.deadline_ms,
        e.worst_ms,
        e.samples / 3
    ));
    VerdictReport::new(Verdict::Pass, reasons)
}

/// ln 20: with n values and no miss the miss probability is below this over n at 95 % confidence.
const ZERO_MISSES: f64 = 2.995_732_273_553_991;

/// Share of stolen CPU time from which it is told with a verdict: 0.1 %.
const STOLEN_TOLD: f64 = 1e-3;

/// Judges the evidence of any measured series.
///
/// FAIL: a miss was seen; more values cannot mend that. PASS: no miss, every record there, every setting granted, and
/// enough values: 300, or where a probability per hour is allowed, as many as show that (the rule of three over the
/// time measured), or a fitted tail whose upper end lies below it. INCONCLUSIVE: anything else, also a fitted tail that
/// makes a miss within the next hour likelier than not.
pub fn judge_series(evidence: &SeriesEvidence) -> VerdictReport {
    let e = evidence;
    let missed = e.misses.saturating_add(e.unfinished_late);
    if missed > 0 {
        return VerdictReport::new(Verdict::Fail, failure_reasons(e, missed));
    }
    let mut reasons = Vec::new();
    let mut needed = 0;
    if e.samples < MIN_SAMPLES {
        needed = MIN_SAMPLES;
        reasons.push(format!(
            "only {} {} were measured; at least {MIN_SAMPLES} without a miss are needed",
            e.samples, e.unit
        ));
    }
    if let Some((reason, samples)) = allowed_probability(e) {
        needed = needed.max(samples);
        reasons.push(reason);
    } else if let Some(tail) = e.tail_per_hour.filter(|t| e.allowed_per_hour.is_none() && t.value > 0.5) {
        // Measuring until a miss is expected settles it either way: an hour in which it is likelier than not.
        let hours = std::f64::consts::LN_2 / -(-tail.value.min(1.0 - 1e-12)).ln_1p();
        if let Some(rate) = e.rate_hz.filter(|r| *r > 0.0) {
            let expected = (hours * 3600.0 * rate).ceil();
            needed = needed.max(e.samples.saturating_add(expected as u64));
        }
        reasons.push(format!(
            "none of {} {} missed, but the fitted tail gives a miss within an hour a probability of {}",
            e.samples,
            e.unit,
            interval(&tail)
        ));
    }
    if e.records_lost > 0 {
        reasons.push(format!("{} records were lost, so that a miss may be among them", e.records_lost));
    }
    if e.not_granted > 0 {
        reasons
            .push(format!("{} settings that were asked for were not granted by the kernel", e.not_granted));
    }
    if reasons.is_empty() {
        return VerdictReport::new(Verdict::Pass, success_reasons(e));
    }
    reasons.extend(stolen_note(e));
    let mut report = VerdictReport::new(Verdict::Inconclusive, reasons);
    let more = needed.saturating_sub(e.samples);
    if more > 0 {
        report.measure_more_samples = Some(more);
        report.measure_more_s = e.rate_hz.filter(|r| *r > 0.0 && r.is_finite()).map(|r| more as f64 / r);
        report.reasons.push(match report.measure_more_s {
            Some(s) => format!("measure {} longer ({more} more {} without a miss)", duration(s), e.unit),
            None => format!("measure {more} more {} without a miss", e.unit),
        });
    }
    report
}

fn failure_reasons(e: &SeriesEvidence, missed: u64) -> Vec<String> {
    let seen = e.samples.saturating_add(e.unfinished_late);
    let mut reasons = vec![format!(
        "{missed} of {seen} {} missed the {} deadline; worst {}",
        e.unit,
        time(e.deadline_ns),
        time(e.worst_ns)
    )];
    if e.longest_run > 1 {
        reasons.push(format!("up to {} missed in a row", e.longest_run));
    }
    if e.unfinished_late > 0 {
        reasons.push(format!(
            "{} of them never came, or were late and not over when the run ended",
            e.unfinished_late
        ));
    }
    reasons.extend(stolen_note(e));
    reasons
}

fn success_reasons(e: &SeriesEvidence) -> Vec<String> {
    let one_in = (e.samples as f64 / ZERO_MISSES) as u64;
    let mut reasons = vec![format!(
        "all {} {} met the {} deadline; worst {}; at 95 % confidence less than one in {one_in} misses",
        e.samples,
        e.unit,
        time(e.deadline_ns),
        time(e.worst_ns)
    )];
    if let Some(tail) = e.tail_per_hour {
        reasons.push(format!(
            "the fitted tail gives a miss within an hour of this load a probability of {}",
            interval(&tail)
        ));
    }
    reasons.extend(stolen_note(e));
    reasons
}

/// Where a probability per hour is allowed: why the evidence does not show it, and how many values without a miss
/// would. `None` where it does, or where nothing is asked.
fn allowed_probability(e: &SeriesEvidence) -> Option<(String, u64)> {
    let allowed = e.allowed_per_hour.filter(|a| *a > 0.0 && *a < 1.0)?;
    let Some(rate) = e.rate_hz.filter(|r| *r > 0.0 && r.is_finite()) else {
        return Some((format!("a probability of {allowed} per hour was asked for, but no rate is known"), 0));
    };
    // No miss in h hours: the rate of misses is below ln 20 / h at 95 %; its probability per hour 1 - exp(-rate).
    let hours_needed = ZERO_MISSES / -(-allowed).ln_1p();
    let samples_needed = (hours_needed * 3600.0 * rate).ceil();
    if e.samples as f64 >= samples_needed || e.tail_per_hour.is_some_and(|t| t.high <= allowed) {
        return None;
    }
    let tail = match e.tail_per_hour {
        Some(t) => format!("the fitted tail says {}", interval(&t)),
        None => "there is no fitted tail".to_owned(),
    };
    let reason = format!(
        "a miss within an hour may have a probability of at most {allowed}; {tail}, and without one {} free of misses \
         are needed",
        duration(hours_needed * 3600.0)
    );
    Some((reason, samples_needed as u64))
}

fn stolen_note(e: &SeriesEvidence) -> Option<String> {
    let stolen = e.stolen.filter(|s| *s >= STOLEN_TOLD)?;
    Some(format!(
        "a hypervisor took {:.1} % of the CPU time: late values may be its doing, and another host's would differ",
        100.0 * stolen
    ))
}

fn interval(p: &Estimate) -> String {
    format!("{:.2e} (95 %: {:.2e} to {:.2e})", p.value, p.low, p.high)
}

/// A time in the unit that reads best.
fn time(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..10_000_000_000 => format!("{:.3} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// A duration in the unit that reads best, rounded up.
fn duration(seconds: f64) -> String {
    let up = |value: f64, unit: &str| format!("{:.1} {unit}", (value * 10.0).ceil() / 10.0);
    match seconds {
        s if s < 120.0 => up(s, "s"),
        s if s < 7200.0 => up(s / 60.0, "min"),
        s if s < 172_800.0 => up(s / 3600.0, "h"),
        s => up(s / 86_400.0, "days"),
    }
}

#[cfg(test)]
mod tests {
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

        let failed =
            judge_series(&SeriesEvidence { misses: 3, longest_run: 2, stolen: Some(0.2), ..series() });
        assert_eq!((failed.verdict, failed.reasons.len()), (Verdict::Fail, 3));
        assert!(failed.reasons[0].starts_with("3 of 10000 activations missed"));

        let short = judge_series(&SeriesEvidence { samples: 50, ..series() });
        assert_eq!((short.verdict, short.measure_more_samples), (Verdict::Inconclusive, Some(250)));
        assert_eq!(short.measure_more_s, Some(1.0));
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
        assert!(all.reasons[2].starts_with("last: does not count, degraded (3 of"), "{:?}", all.reasons);
        assert_eq!(all.measure_more_s, short.measure_more_s);
    }

    #[test]
    fn an_allowed_probability_asks_for_its_evidence() {
        // 1 % an hour: ln 20 / -ln 0.99 = 298 h.
        let asked = SeriesEvidence { allowed_per_hour: Some(0.01), ..series() };
        let report = judge_series(&asked);
        assert_eq!(report.verdict, Verdict::Inconclusive);
        assert!((report.measure_more_s.unwrap() / 3600.0 - 298.07).abs() < 0.1, "{report:?}");
        let tail = |high: f64| Some(Estimate { value: high / 10.0, low: 0.0, high });
        let shown = judge_series(&SeriesEvidence { tail_per_hour: tail(0.009), ..asked.clone() });
        assert_eq!((shown.verdict, shown.reasons.len()), (Verdict::Pass, 2));
        let not = judge_series(&SeriesEvidence { tail_per_hour: tail(0.02), ..asked.clone() });
        assert_eq!(not.verdict, Verdict::Inconclusive);
        let long = judge_series(&SeriesEvidence { samples: 270_000_000, ..asked.clone() });
        assert_eq!(long.verdict, Verdict::Pass);
        let no_rate = judge_series(&SeriesEvidence { rate_hz: None, ..asked });
        assert_eq!(no_rate.verdict, Verdict::Inconclusive);
    }

    #[test]
    fn a_tail_that_expects_a_miss_forbids_a_pass() {
        let likely = Some(Estimate { value: 0.75, low: 0.1, high: 1.0 });
        let report = judge_series(&SeriesEvidence { tail_per_hour: likely, ..series() });
        assert_eq!(report.verdict, Verdict::Inconclusive);
        // p = 0.75 an hour is one miss in half an hour with probability 1/2.
        assert!((report.measure_more_s.unwrap() - 1800.0).abs() < 1.0);
        let rare = Some(Estimate { value: 1e-6, low: 0.0, high: 1e-4 });
        let report = judge_series(&SeriesEvidence { tail_per_hour: rare, ..series() });
        assert_eq!((report.verdict, report.reasons.len()), (Verdict::Pass, 2));
    }

    #[test]
    fn durations_read_well() {
        assert_eq!([1.0, 600.0, 10_000.0, 1e7].map(duration), ["1.0 s", "10.0 min", "2.8 h", "115.8 days"]);
        assert_eq!([950, 37_300_000, 12_000_000_000].map(time), ["0.9 us", "37.300 ms", "12.0 s"]);
    }

    proptest! {
        #[test]
        fn any_evidence_is_judged(
            samples in any::<u64>(), misses in prop_oneof![Just(0u64), any::<u64>()],
            unfinished_late in prop_oneof![Just(0u64), any::<u64>()],
            rate in proptest::option::of(any::<f64>()), allowed in proptest::option::of(any::<f64>()),
            p in proptest::option::of(0.0f64..=1.0), deadline_ns in any::<u64>()
        ) {
            let e = SeriesEvidence {
                samples, misses, unfinished_late, rate_hz: rate, allowed_per_hour: allowed, deadline_ns,
                tail_per_hour: p.map(|p| Estimate { value: p, low: 0.0, high: 1.0 }),
                ..SeriesEvidence::default()
            };
            let report = judge_series(&e);
            prop_assert!(!report.reasons.is_empty());
            prop_assert_eq!(report.verdict == Verdict::Fail, misses > 0 || unfinished_late > 0);
            prop_assert!(report.verdict != Verdict::Pass || samples >= 300);
        }
    }

    const CLEAN: DeadlineEvidence = DeadlineEvidence {
        deadline_ms: 37.3,
        samples: 900,
        misses: 0,
        worst_ms: 21.0,
        unfinished_late: 0,
        dropped_late: 0,
        records_lost: 0,
        not_granted: 0,
    };

    #[test]
    fn clean_passes() {
        assert_eq!(judge(&CLEAN).verdict, Verdict::Pass);
    }

    #[test]
    fn one_miss_fails_whatever_else_holds() {
        for e in [
            DeadlineEvidence { misses: 1, ..CLEAN },
            DeadlineEvidence { unfinished_late: 1, ..CLEAN },
            DeadlineEvidence { dropped_late: 1, ..CLEAN },
            DeadlineEvidence { misses: 1, samples: 5, records_lost: 9, ..CLEAN },
        ] {
            assert_eq!(judge(&e).verdict, Verdict::Fail);
        }
    }

    #[test]
    fn weak_evidence_is_inconclusive_with_a_reason_each() {
        for e in [
            DeadlineEvidence { samples: 299, ..CLEAN },
            DeadlineEvidence { samples: 0, ..CLEAN },
            DeadlineEvidence { records_lost: 1, ..CLEAN },
            DeadlineEvidence { not_granted: 1, ..CLEAN },
        ] {
            let report = judge(&e);
            assert_eq!(report.verdict, Verdict::Inconclusive);
            assert_eq!(report.reasons.len(), 1);
        }
    }
}
