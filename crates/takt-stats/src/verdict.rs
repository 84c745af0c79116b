//! Did the robot react in time? A verdict with its reasons.

use serde::{Deserialize, Serialize};

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
    /// Records that were lost on the way to the run directory.
    pub records_lost: u64,
    /// Settings that were asked for and not granted (a lenient run).
    pub not_granted: u64,
}

/// A verdict with its reasons, each a sentence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictReport {
    /// The verdict.
    pub verdict: Verdict,
    /// Why.
    pub reasons: Vec<String>,
}

/// Samples without a miss below which no PASS is given. With n samples and no miss, the miss probability is
/// below 3/n at 95 % confidence (rule of three, Hanley & Lippman-Hand 1983): 300 samples say "below 1 %".
const MIN_SAMPLES: u64 = 300;

/// Judges the evidence.
pub fn judge(evidence: &DeadlineEvidence) -> VerdictReport {
    let e = evidence;
    let mut reasons = Vec::new();
    let missed = e.misses + e.unfinished_late;
    if missed > 0 {
        reasons.push(format!(
            "{} of {} reactions missed the {} ms deadline; worst {:.1} ms",
            missed,
            e.samples + e.unfinished_late,
            e.deadline_ms,
            e.worst_ms
        ));
        if e.unfinished_late > 0 {
            reasons.push(format!("{} of them were still unanswered when the run ended", e.unfinished_late));
        }
        return VerdictReport { verdict: Verdict::Fail, reasons };
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
        return VerdictReport { verdict: Verdict::Inconclusive, reasons };
    }
    reasons.push(format!(
        "all {} reactions met the {} ms deadline; worst {:.1} ms; at 95 % confidence less than one in {} misses",
        e.samples,
        e.deadline_ms,
        e.worst_ms,
        e.samples / 3
    ));
    VerdictReport { verdict: Verdict::Pass, reasons }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: DeadlineEvidence = DeadlineEvidence {
        deadline_ms: 37.3,
        samples: 900,
        misses: 0,
        worst_ms: 21.0,
        unfinished_late: 0,
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
