//! Result of a gate as JUnit XML, which CI systems show next to their tests.

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::gate::show::{numbers, sentence};
use crate::gate::{Decision, Gate};

/// The report: a test for each measure in each configuration, and one for the runs where these
/// decide. Worse is a failure; what cannot be reported is skipped, with the reason.
///
/// # Errors
/// The text cannot be made, which takes a fault of the writer.
pub fn junit(gate: &Gate) -> Result<String, quick_junit::SerializeError> {
    let mut suite = TestSuite::new("takt gate");
    if !gate.reasons.is_empty() {
        let reasons = gate.reasons.join("; ");
        let mut case = TestCase::new("runs", status(gate.whole, format!("{}: {reasons}", gate.whole.word())));
        case.set_classname("takt.gate");
        case.set_system_out(reasons);
        suite.add_test_case(case);
    }
    for pair in &gate.pairs {
        let status = status(pair.decision, sentence(pair));
        let name = format!("{} of {}, {}", pair.figure, pair.measure, pair.configuration);
        let mut case = TestCase::new(name, status);
        case.set_classname(format!("takt.gate.{}", pair.robot));
        case.set_system_out([vec![sentence(pair), numbers(pair)], pair.reasons.clone()].concat().join("\n"));
        suite.add_test_case(case);
    }
    whole(suite)
}

/// The report of a gate that came to no decision, so that none of an earlier one is taken for its
/// own.
///
/// # Errors
/// As [`junit`].
pub fn junit_error(error: &str) -> Result<String, quick_junit::SerializeError> {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
    status.set_message(takt_report::clean(error));
    let mut case = TestCase::new("gate", status);
    case.set_classname("takt.gate");
    let mut suite = TestSuite::new("takt gate");
    suite.add_test_case(case);
    whole(suite)
}

fn whole(suite: TestSuite) -> Result<String, quick_junit::SerializeError> {
    let mut report = Report::new("takt gate");
    let skipped = format!(" skipped=\"{}\"", suite.skipped);
    report.add_test_suite(suite);
    // The library writes the attribute twice, first for all suites together, where Jenkins' schema
    // (junit-10.xsd of its xUnit plugin) has none.
    Ok(report.to_string()?.replacen(&skipped, "", 1))
}

fn status(decision: Decision, message: String) -> TestCaseStatus {
    let mut status = match decision {
        Decision::Same | Decision::Better => return TestCaseStatus::success(),
        Decision::Worse => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Decision::Inconclusive => TestCaseStatus::skipped(),
    };
    if decision == Decision::Worse {
        status.set_type("regression");
    }
    status.set_message(message);
    status
}
