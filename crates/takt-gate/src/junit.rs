//! What a gate says as JUnit XML, which CI systems show beside their tests.

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::show::{numbers, sentence};
use crate::{Decision, Gate};

/// The report: a test for each measure in each configuration. Worse is a failure; what cannot be
/// reported is skipped, with the reason.
///
/// # Errors
/// Where the text cannot be made, which takes a fault of the writer.
pub fn junit(gate: &Gate) -> Result<String, quick_junit::SerializeError> {
    let mut suite = TestSuite::new("takt gate");
    for pair in &gate.pairs {
        let mut status = match pair.decision {
            Decision::Same | Decision::Better => TestCaseStatus::success(),
            Decision::Worse => TestCaseStatus::non_success(NonSuccessKind::Failure),
            Decision::Inconclusive => TestCaseStatus::skipped(),
        };
        if pair.decision == Decision::Worse {
            status.set_type("regression");
        }
        if matches!(pair.decision, Decision::Worse | Decision::Inconclusive) {
            status.set_message(sentence(pair));
        }
        let name = format!("{} of {}, {}", pair.figure, pair.measure, pair.configuration);
        let mut case = TestCase::new(name, status);
        case.set_classname(format!("takt.gate.{}", pair.robot));
        case.set_system_out([vec![sentence(pair), numbers(pair)], pair.reasons.clone()].concat().join("\n"));
        suite.add_test_case(case);
    }
    let mut report = Report::new("takt gate");
    report.add_test_suite(suite);
    report.to_string()
}
