//! Findings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::doctor::change::Change;

/// Severity of a finding; the order is from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As real time wants it.
    Ok,
    /// Could not be distinguished from here.
    Unknown,
    /// Costs latency, or may.
    Warn,
    /// Makes the machine unfit until it is put right.
    Fail,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Stable name, for programs.
    pub id: String,
    /// Name for people.
    pub title: String,
    /// Severity.
    pub status: Status,
    /// The evidence, a sentence with numbers.
    pub evidence: String,
    /// Its importance.
    pub why: String,
    /// The way out, as a command where there is one; `None` when nothing is to be fixed.
    pub fix: Option<String>,
    /// Whether [`apply`](crate::doctor::apply) may do the fix: it concerns only settings that
    /// revert whole.
    pub safe: bool,
    /// Changes that [`apply`](crate::doctor::apply) would write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// The numbers of the evidence, units in the names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measured: BTreeMap<String, f64>,
}

impl Check {
    /// A finding that is still to be made.
    pub(crate) fn new(id: &str, title: &str, why: &str) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            status: Status::Unknown,
            evidence: String::new(),
            why: why.into(),
            fix: None,
            safe: false,
            changes: Vec::new(),
            measured: BTreeMap::new(),
        }
    }

    pub(crate) fn ok(self, evidence: impl Into<String>) -> Self {
        Self { status: Status::Ok, evidence: evidence.into(), ..self }
    }

    pub(crate) fn unknown(self, evidence: impl Into<String>) -> Self {
        Self { status: Status::Unknown, evidence: evidence.into(), ..self }
    }

    pub(crate) fn warn(self, evidence: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: Status::Warn, evidence: evidence.into(), fix: Some(fix.into()), ..self }
    }

    pub(crate) fn fail(self, evidence: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: Status::Fail, evidence: evidence.into(), fix: Some(fix.into()), ..self }
    }

    /// A fix that [`apply`](crate::doctor::apply) may do.
    pub(crate) fn with_changes(mut self, changes: Vec<Change>) -> Self {
        self.safe = !changes.is_empty();
        self.changes = changes;
        self
    }

    pub(crate) fn with_number(mut self, name: &str, value: f64) -> Self {
        // JSON knows no infinities.
        if value.is_finite() {
            self.measured.insert(name.into(), value);
        }
        self
    }
}

/// All findings; serialises as their list.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Report {
    /// In the order of a reader's interest: what was measured first.
    pub checks: Vec<Check>,
}

impl Report {
    /// The worst of all findings; [`Status::Ok`] without any.
    pub fn worst(&self) -> Status {
        self.checks.iter().map(|check| check.status).max().unwrap_or(Status::Ok)
    }

    /// The finding of this name.
    pub fn get(&self, id: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.id == id)
    }

    /// Number of findings with this status.
    pub fn count(&self, status: Status) -> usize {
        self.checks.iter().filter(|check| check.status == status).count()
    }
}
