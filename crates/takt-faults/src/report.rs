//! What came of the cases.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::case::CaseKind;

/// What a robot, or a verdict, did and should not have done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Violation {
    pub rule: &'static str,
    /// What happened instead, with times and rows of the controller's log.
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
    /// What the rule allowed for that, milliseconds, with the time that was taken from the test.
    pub allowed_ms: Option<f64>,
    /// The part of it that was taken from the test.
    pub taken_ms: f64,
    /// From the end of the fault until the arm moved again, milliseconds.
    pub moved_after_ms: Option<f64>,
    /// What the cell said: its verdict and reasons.
    pub verdict: String,
    /// What must not have happened.
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
    /// How long it all took, seconds.
    pub seconds: f64,
    /// The rule, in words.
    pub rule: &'static str,
    pub details: Vec<CaseReport>,
}

/// The rule, for readers of a report.
pub(crate) const RULE: &str = "judged by the controller's own log: commanded to stand within the fault's documented limit, one SSM \
     period (2 ms), link time (one packet period and two controller cycles: 6 ms) and the time that witness threads of \
     ordinary priority measured to be taken from the test; the command stays and the arm stands while the fault lasts; it \
     moves again, where it may, not before the recovery time; only whether the verdict names the fault is asked of the cell";

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
