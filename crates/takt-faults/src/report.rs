//! Results of the cases.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::case::CaseKind;

/// Forbidden behaviour of a robot or a verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Violation {
    pub rule: &'static str,
    /// The behaviour seen, with times and rows of the controller's log.
    pub evidence: String,
}

/// One case and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseReport {
    pub name: String,
    /// Group.
    pub kind: CaseKind,
    /// Whether it could be tried at all here; else why not.
    pub skipped: Option<String>,
    /// From when the fault could be known until the robot was commanded to stand, milliseconds.
    pub commanded_after_ms: Option<f64>,
    /// Time that the rule allowed for that, milliseconds, with the time that was taken from the
    /// test.
    pub allowed_ms: Option<f64>,
    /// The part of it that was taken from the test.
    pub taken_ms: f64,
    /// From the end of the fault until the arm moved again, milliseconds.
    pub moved_after_ms: Option<f64>,
    /// The cell's verdict and reasons.
    pub verdict: String,
    /// Violations.
    pub violations: Vec<Violation>,
}

/// Cases and violations of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    pub cases: usize,
    pub violations: usize,
}

/// All cases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Cases that were tried.
    pub cases: usize,
    pub violations: usize,
    /// Both by group.
    pub by_kind: BTreeMap<CaseKind, Count>,
    /// Cases that could not be tried here.
    pub skipped: usize,
    /// Total time, seconds.
    pub seconds: f64,
    /// The rule, in words.
    pub rule: &'static str,
    pub details: Vec<CaseReport>,
}

/// The rule, for readers of a report.
pub(crate) const RULE: &str = "judged by the controller's own log: the stop must be commanded within the sum of the fault's documented \
     limit, one SSM period (2 ms), the link time (one packet period and two controller cycles: 6 ms) and the CPU time that witness threads \
     of ordinary priority saw taken from the test; the command and the standstill must last as long as the fault; the arm may move again \
     only after the recovery time; the cell's own verdict is only checked for naming the fault";

impl Report {
    pub(crate) fn new(mut details: Vec<CaseReport>, seconds: f64) -> Self {
        details.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        let mut by_kind: BTreeMap<CaseKind, Count> = BTreeMap::new();
        for case in details.iter().filter(|case| case.skipped.is_none()) {
            let count = by_kind.entry(case.kind).or_default();
            count.cases += 1;
            count.violations += case.violations.len();
        }
        Self {
            cases: by_kind.values().map(|count| count.cases).sum(),
            violations: by_kind.values().map(|count| count.violations).sum(),
            skipped: details.iter().filter(|case| case.skipped.is_some()).count(),
            by_kind,
            seconds,
            rule: RULE,
            details,
        }
    }
}
