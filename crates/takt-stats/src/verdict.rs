//! Did the robot react in time? A verdict with its reasons.

use serde::{Deserialize, Serialize};

use crate::INTERVAL_CONFIDENCE;
use crate::binomial;
use crate::claim::{CONFIDENCE, Claim, Limit};
use crate::dependence;
use crate::evt::{self, Estimate, Refusal, Tail};
use crate::percent;

mod longer;
mod words;

use longer::{MAX_MEASURED_S, measure_more};
use words::{
    incomplete, met, missed, number, shown, stolen_note, tail_words, too_few, trials, unfinished_note,
};

/// The answer to "did everything meet its deadline, and was enough seen to say so".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// No miss, and enough evidence that misses are rare.
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

/// Way to make a measurement longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Longer {
    /// The option `--seconds`.
    #[default]
    Seconds,
    /// A longer recording.
    Recording,
    /// A later end than the run's own: it ended by its jobs, and not by its time.
    OwnEnd,
}

/// Evidence for a verdict about one measured series, for any robot. Every field but the deadline
/// may be left at its default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SeriesEvidence {
    /// Plural name of the counted things: "reactions", "activations", "edges".
    pub unit: String,
    /// The deadline, nanoseconds.
    pub deadline_ns: u64,
    /// Values per second, where known: turns numbers of values into durations. If it is unknown,
    /// the measured time gives it.
    pub rate_hz: Option<f64>,
    /// Time that was measured, seconds, over all runs.
    pub measured_s: Option<f64>,
    /// Runs that it was measured in.
    pub runs: u64,
    /// Part of a run's length (`--seconds`) besides the measured time, seconds.
    pub besides_s: f64,
    /// Way to make the measured time longer.
    pub longer: Longer,
    /// Values measured.
    pub samples: u64,
    /// Values later than the deadline.
    pub misses: u64,
    /// Longest unbroken run of misses.
    pub longest_run: u64,
    /// Greatest value, nanoseconds.
    pub worst_ns: u64,
    /// Values that are missing (skipped releases), or were past the deadline and not over when the
    /// run ended.
    pub unfinished_late: u64,
    /// Records that were lost on the way to the run directory.
    pub records_lost: u64,
    /// Settings that were asked for and not granted (a lenient run).
    pub not_granted: u64,
    /// Share of CPU time (0 to 1) that a hypervisor gave to others during the run, where known.
    pub stolen: Option<f64>,
    /// Claim of the robot's file; by default there is none, and any miss is a FAIL.
    pub claim: Claim,
    /// Number of jobs that count as one trial, according to the series itself
    /// ([`crate::dependence::dispersion`]); at least 1.
    pub dispersion: f64,
    /// The same number for a longer series of the same process
    /// ([`crate::dependence::Dispersion::to_come`]).
    pub dispersion_to_come: f64,
    /// Probability of a miss in an hour, from the fitted tail ([`crate::evt::Tail::per_hour`]),
    /// where there is one. Its interval has the claim's (two-sided) confidence.
    pub tail_per_hour: Option<Estimate>,
    /// Misses that come together, by the tail's extremal index: its reciprocal. At least 1.
    pub tail_burst: f64,
}

impl Default for SeriesEvidence {
    fn default() -> Self {
        Self {
            unit: "values".to_owned(),
            deadline_ns: 0,
            rate_hz: None,
            measured_s: None,
            runs: 1,
            besides_s: 0.0,
            longer: Longer::Seconds,
            samples: 0,
            misses: 0,
            longest_run: 0,
            worst_ns: 0,
            unfinished_late: 0,
            records_lost: 0,
            not_granted: 0,
            stolen: None,
            claim: Claim::default(),
            dispersion: 1.0,
            dispersion_to_come: 1.0,
            tail_per_hour: None,
            tail_burst: 1.0,
        }
    }
}

impl SeriesEvidence {
    /// Takes from a series in time order (all of it, or the part that was kept) what it says of
    /// dependence and tail. Returns the tail with intervals of [`INTERVAL_CONFIDENCE`], or why none
    /// is reported; `None` where no rate is known.
    pub fn see(&mut self, values_ns: &[u64]) -> Option<Result<Tail, Refusal>> {
        let found = dependence::measure(values_ns, Some(self.deadline_ns));
        (self.dispersion, self.dispersion_to_come) = (found.index, found.to_come);
        let rate_hz = self.rate_hz?;
        let reported = evt::analyse(values_ns, rate_hz, self.deadline_ns);
        let confidence = self.claim.confidence;
        let own = match &reported {
            Ok(_) if (confidence - INTERVAL_CONFIDENCE).abs() > 1e-9 => {
                evt::analyse_at(values_ns, rate_hz, self.deadline_ns, confidence).ok()
            }
            _ => None,
        };
        if let Some(tail) = own.as_ref().or(reported.as_ref().ok()) {
            self.tail_per_hour = Some(tail.per_hour);
            self.tail_burst = 1.0 / tail.extremal_index.clamp(1e-6, 1.0);
        }
        Some(reported)
    }
}

/// A verdict with its reasons, each a sentence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictReport {
    /// The verdict.
    pub verdict: Verdict,
    /// The reasons.
    pub reasons: Vec<String>,
    /// Values without a miss that are still to be measured, where measuring longer would help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure_more_samples: Option<u64>,
    /// Time that this takes, seconds, if the rate is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure_more_s: Option<f64>,
    /// The reason that asks for it, as an instruction: `measure 30 s more …`.
    #[serde(skip)]
    pub measure_more: Option<String>,
    /// The miss probability per job lies below this at the claim's confidence, by what was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses_per_job_below: Option<f64>,
}

impl VerdictReport {
    /// A verdict with its reasons and nothing else.
    pub fn new(verdict: Verdict, reasons: Vec<String>) -> Self {
        Self {
            verdict,
            reasons,
            measure_more_samples: None,
            measure_more_s: None,
            measure_more: None,
            misses_per_job_below: None,
        }
    }

    /// The verdict in one sentence: the same wherever it is shown.
    pub fn sentence(&self) -> String {
        sentence(self.verdict, &self.reasons)
    }

    /// With what no series can tell: `failures` fail the run whatever was measured (a link that was
    /// lost, a robot that did not obey, frames that never came); `doubts` keep it from a PASS.
    #[must_use]
    pub fn concluded(mut self, failures: &[String], doubts: &[String]) -> Self {
        let about_series = self.verdict;
        if !failures.is_empty() {
            self.verdict = Verdict::Fail;
        } else if !doubts.is_empty() && about_series == Verdict::Pass {
            self.verdict = Verdict::Inconclusive;
        }
        // A deadline that was met is no reason for a FAIL, so it comes last.
        let at = if about_series == Verdict::Fail { self.reasons.len() } else { 0 };
        self.reasons.splice(at..at, failures.iter().cloned());
        let at = if about_series == Verdict::Pass && failures.is_empty() { 0 } else { self.reasons.len() };
        self.reasons.splice(at..at, doubts.iter().cloned());
        self
    }
}

/// A verdict and its reasons in one sentence.
pub fn sentence(verdict: Verdict, reasons: &[String]) -> String {
    format!("{verdict}: {}", reasons.join("; "))
}

/// One of several series that a verdict is about.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its name.
    pub name: &'a str,
    /// Verdict on this series alone.
    pub report: &'a VerdictReport,
    /// Reason why its misses do not count: it was given up in a declared order. `None`: they count.
    pub excused: Option<&'a str>,
}

/// One verdict about several series: FAIL if any that is not excused fails, PASS if all that are
/// not excused pass. The reasons are a line for each series, in the order given.
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
            Some(excuse) => format!("{}: does not count, because {excuse} ({why})", part.name),
            None => format!("{}: {}, {why}", part.name, part.report.verdict),
        }
    };
    let mut report = VerdictReport::new(verdict, parts.iter().map(line).collect());
    if counted().next().is_none() {
        report.reasons.push("no series is left to judge".to_owned());
    }
    if verdict == Verdict::Inconclusive {
        report.measure_more_samples = counted().filter_map(|report| report.measure_more_samples).max();
        report.measure_more_s = counted().filter_map(|report| report.measure_more_s).reduce(f64::max);
    }
    report
}

/// Miss rate below which a PASS without a claim must show the rate to be: one miss in 100 jobs.
const SHOWN_UNCLAIMED: f64 = 0.01;

/// Samples without a miss below which no PASS is given where nothing is claimed, however
/// independent they are. With n samples and no miss, the miss probability is below 3/n at 95 %
/// confidence (rule of three, Hanley & Lippman-Hand 1983): 300 samples say "below 1 %".
const MIN_SAMPLES: u64 = 300;

/// A fitted tail carries a claim at most this many times beyond what was counted. It says how the
/// values seen go on, and nothing of what was never seen at all: three orders of magnitude are what
/// a tail of some hundred peaks can be asked for.
const TAIL_REACH: f64 = 1000.0;

/// Share of stolen CPU time from which it is reported with a verdict: 0.1 %.
const STOLEN_NOTED: f64 = 1e-3;

/// Counts, as trials.
struct Counted {
    /// Jobs that should have been done.
    due: u64,
    /// Those that were late, skipped or dropped.
    missed: u64,
    /// Jobs that count as one trial: the longest burst, stated or seen.
    burst: f64,
    /// The same for a longer series of this process.
    burst_to_come: f64,
    /// Jobs per second, where known.
    rate_hz: Option<f64>,
}

impl Counted {
    fn of(e: &SeriesEvidence) -> Self {
        let due = e.samples.saturating_add(e.unfinished_late);
        let good = |value: &f64| *value > 0.0 && value.is_finite();
        let seen = || e.measured_s.filter(|s| *s > 0.0 && *s <= MAX_MEASURED_S).map(|s| due as f64 / s);
        let rate_hz = e.rate_hz.filter(good).or_else(seen).filter(good);
        let stated = rate_hz.map_or(1.0, |rate| rate * e.claim.burst_s.max(0.0));
        let at_least_one = |value: f64| if value.is_finite() { value.max(1.0) } else { 1.0 };
        let burst = stated.max(at_least_one(e.dispersion)).max(e.longest_run as f64);
        Self {
            due,
            missed: e.misses.saturating_add(e.unfinished_late),
            burst,
            burst_to_come: burst.max(at_least_one(e.dispersion_to_come)),
            rate_hz,
        }
    }

    /// The miss probability per job lies below this.
    fn upper(&self, confidence: f64) -> f64 {
        binomial::upper(self.missed as f64 / self.burst, self.due as f64 / self.burst, confidence)
    }

    /// It lies above this: a burst is one event, and has one miss at least.
    fn lower(&self, e: &SeriesEvidence) -> f64 {
        let seen =
            (e.longest_run as f64).max(if e.dispersion.is_finite() { e.dispersion } else { 1.0 }).max(1.0);
        let events = (self.missed as f64 / seen).ceil();
        binomial::lower(events, (self.due as f64).max(events), e.claim.confidence)
    }

    /// Jobs without a further miss that show `p`.
    fn needed(&self, p: f64, confidence: f64) -> f64 {
        binomial::trials_needed(self.missed as f64 / self.burst_to_come, p, confidence) * self.burst_to_come
    }
}

/// Judges the evidence of any measured series: the one verdict function.
///
/// Without a claim: FAIL, a miss was seen. PASS: no miss, every record there, every setting
/// granted, and less than one miss in 100 at 95 % confidence (or the file's, where that is higher)
/// shown by what was counted, bursts as one trial each. INCONCLUSIVE: anything else, with how much
/// longer to measure; also a fitted tail that makes a miss within the next hour likelier than not.
///
/// With a claim: FAIL, it is refuted at its confidence. PASS, it is shown at its confidence, by
/// what was counted (exact binomial, bursts as one trial each) or, without a miss, by the fitted
/// tail. INCONCLUSIVE: anything else, with how much longer to measure.
pub fn judge_series(evidence: &SeriesEvidence) -> VerdictReport {
    let e = evidence;
    let counted = Counted::of(e);
    match e.claim.limit {
        None => judge_unclaimed(e, &counted),
        Some(limit) => judge_claim(e, &counted, limit),
    }
}

fn judge_unclaimed(e: &SeriesEvidence, counted: &Counted) -> VerdictReport {
    // A lower confidence is part of a claim, and none is stated.
    let confidence = e.claim.confidence.max(CONFIDENCE);
    let upper = counted.upper(confidence);
    if counted.missed > 0 {
        let mut reasons = vec![missed(e, counted)];
        reasons.extend(unfinished_note(e));
        reasons.extend(stolen_note(e));
        return VerdictReport {
            misses_per_job_below: Some(upper),
            ..VerdictReport::new(Verdict::Fail, reasons)
        };
    }
    let mut reasons = Vec::new();
    let mut needed = 0.0f64;
    if upper > SHOWN_UNCLAIMED || e.samples < MIN_SAMPLES {
        needed = counted.needed(SHOWN_UNCLAIMED, confidence).max(MIN_SAMPLES as f64);
        reasons.push(too_few(e, counted, upper, confidence));
    }
    if let Some(tail) = e.tail_per_hour.filter(|t| t.value > 0.5) {
        // Measuring until a miss is expected settles it either way: an hour in which it is likelier
        // than not.
        let hours = std::f64::consts::LN_2 / -(-tail.value.min(1.0 - 1e-12)).ln_1p();
        if let Some(rate) = counted.rate_hz {
            needed = needed.max(e.samples as f64 + (hours * 3600.0 * rate).ceil());
        }
        reasons.push(format!(
            "none of {} {} missed, but {}",
            e.samples,
            e.unit,
            tail_words(&tail, e.claim.confidence)
        ));
    }
    reasons.extend(incomplete(e));
    let below = Some(upper).filter(|_| e.samples > 0);
    if reasons.is_empty() {
        let mut reasons = vec![format!("{}; {}", met(e), shown(e, counted, upper, confidence))];
        reasons.extend(e.tail_per_hour.map(|tail| tail_words(&tail, e.claim.confidence)));
        reasons.extend(stolen_note(e));
        return VerdictReport { misses_per_job_below: below, ..VerdictReport::new(Verdict::Pass, reasons) };
    }
    reasons.extend(stolen_note(e));
    let report =
        VerdictReport { misses_per_job_below: below, ..VerdictReport::new(Verdict::Inconclusive, reasons) };
    measure_more(report, e, counted, needed)
}

/// The claim in words, and per job.
struct Asked {
    per_job: f64,
    words: String,
    /// Shows a probability per job in the claim's unit.
    hourly: Option<f64>,
}

impl Asked {
    fn show(&self, per_job: f64) -> String {
        match self.hourly {
            Some(jobs_per_hour) => format!("{} an hour", number(per_job * jobs_per_hour)),
            None => format!("{} per job", number(per_job)),
        }
    }
}

fn judge_claim(e: &SeriesEvidence, counted: &Counted, limit: Limit) -> VerdictReport {
    let asked = match (limit, counted.rate_hz) {
        (Limit::MissesPerJob(p), _) => {
            Asked { per_job: p, words: format!("{} misses per job", number(p)), hourly: None }
        }
        (Limit::MissesPerHour(h), Some(rate)) => Asked {
            per_job: (h / (rate * 3600.0)).min(1.0),
            words: format!("{} misses an hour", number(h)),
            hourly: Some(rate * 3600.0),
        },
        (Limit::MissesPerHour(h), None) => {
            let why = format!(
                "the claim is at most {} misses an hour, but the rate of the {} is unknown. Fix: claim misses_per_job",
                number(h),
                e.unit
            );
            let met = if counted.missed > 0 { missed(e, counted) } else { met(e) };
            return VerdictReport::new(Verdict::Inconclusive, vec![met, why]);
        }
    };
    let percent = percent(e.claim.confidence);
    let upper = counted.upper(e.claim.confidence);
    let lower = counted.lower(e);
    let first = if counted.missed > 0 { missed(e, counted) } else { met(e) };
    let with = |verdict, mut reasons: Vec<String>| {
        reasons.extend(unfinished_note(e));
        reasons.extend(stolen_note(e));
        VerdictReport { misses_per_job_below: Some(upper), ..VerdictReport::new(verdict, reasons) }
    };
    if lower > asked.per_job {
        let claim = format!(
            "this refutes the claim of at most {}: the miss rate is above {} ({percent} confidence)",
            asked.words,
            asked.show(lower)
        );
        return with(Verdict::Fail, vec![first, claim]);
    }
    // Two ways to be shown right are two ways to be shown right by chance: each gets half of the
    // error then.
    let tail = e.tail_per_hour.filter(|t| counted.missed == 0 && t.high < 1.0);
    let counting_confidence =
        if tail.is_some() { 1.0 - 0.5 * (1.0 - e.claim.confidence) } else { e.claim.confidence };
    let shown_by_count = counted.due > 0 && counted.upper(counting_confidence) <= asked.per_job;
    let tail_per_job = tail.zip(counted.rate_hz).map(|(tail, rate)| {
        let bursts_per_hour = -(-tail.high).ln_1p();
        bursts_per_hour * e.tail_burst.max(1.0) / (rate * 3600.0)
    });
    // Without a miss in n jobs the rate of bursts is below this.
    let least_for_tail = -(1.0 - e.claim.confidence).ln() / (TAIL_REACH * asked.per_job);
    let tail_is_low = tail_per_job.is_some_and(|p| p <= asked.per_job);
    let shown_by_tail = tail_is_low && counted.due as f64 >= least_for_tail;
    let gaps: Vec<String> = incomplete(e).collect();
    if gaps.is_empty() && (shown_by_count || shown_by_tail) {
        let how = match tail_per_job.filter(|_| !shown_by_count) {
            // A probability of 0 is the model's word for it, and nobody's evidence.
            Some(p) if p <= 0.0 => format!(
                "if the fitted tail goes on as seen, it ends before the deadline ({percent} confidence); the claim is at most {}",
                asked.words
            ),
            Some(p) => format!(
                "miss rate below {} by the fitted tail, if it goes on as seen ({percent} confidence); the claim is at most {}",
                asked.show(p),
                asked.words
            ),
            None => format!(
                "{}miss rate below {} ({percent} confidence); the claim is at most {}",
                trials(e, counted),
                asked.show(counted.upper(counting_confidence)),
                asked.words
            ),
        };
        return with(Verdict::Pass, vec![first, how]);
    }
    let by_count = counted.needed(asked.per_job, counting_confidence);
    let needed = if tail_is_low { by_count.min(least_for_tail) } else { by_count };
    let mut reasons = vec![first];
    if !(shown_by_count || shown_by_tail) {
        let tail_bound = match (tail_per_job, e.tail_per_hour) {
            (Some(p), _) if p <= 0.0 => "; the fitted tail ends before the deadline".to_owned(),
            (Some(p), _) => format!("; below {} by the fitted tail", asked.show(p)),
            (None, Some(_)) if counted.missed == 0 => "; the fitted tail gives no bound".to_owned(),
            _ => String::new(),
        };
        reasons.push(format!(
            "this does not show the claim of at most {}: {}miss rate below {} ({percent} confidence){tail_bound}",
            asked.words,
            trials(e, counted),
            asked.show(upper)
        ));
    }
    reasons.extend(gaps);
    measure_more(with(Verdict::Inconclusive, reasons), e, counted, needed)
}

/// A sentence about the share of CPU time (0 to 1) that a hypervisor took; `None` if it is too
/// small to matter.
pub fn stolen_words(share: f64) -> Option<String> {
    (share >= STOLEN_NOTED).then(|| {
        format!(
            "the hypervisor took {:.1} % of the CPU time, which may explain late values; another host may differ",
            100.0 * share
        )
    })
}

#[cfg(test)]
mod tests;
