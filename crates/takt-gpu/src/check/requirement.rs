//! Something that must be reached, with its figure or with why there is none.

use serde::{Deserialize, Serialize};

/// One requirement of a device and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// The requirement.
    pub what: String,
    /// The measurement, in words with figures; `None` if it was impossible.
    pub measured: Option<String>,
    /// Whether that reaches it; `None` where nothing was measured, or where it says nothing about a
    /// GPU.
    pub reached: Option<bool>,
    /// Reason why it was not measured, or does not count.
    pub why_not: Option<String>,
}

impl Requirement {
    pub fn measured(what: &str, measured: String, reached: bool) -> Self {
        Self { what: what.to_owned(), measured: Some(measured), reached: Some(reached), why_not: None }
    }

    /// One that could not be run.
    pub fn not_run(what: &str, why: impl Into<String>) -> Self {
        Self { what: what.to_owned(), measured: None, reached: None, why_not: Some(why.into()) }
    }

    /// The same, with figures that do not count, for a reason.
    #[must_use]
    pub fn does_not_count(mut self, why: &str) -> Self {
        if self.measured.is_some() {
            (self.reached, self.why_not) = (None, Some(why.to_owned()));
        }
        self
    }

    /// As a line for people.
    pub fn line(&self) -> String {
        let verdict = match self.reached {
            Some(true) => "REACHED",
            Some(false) => "MISSED",
            None if self.measured.is_some() => "DOES NOT COUNT",
            None => "NOT RUN",
        };
        let mut line = format!("{verdict:<15}{}", self.what);
        for part in [&self.measured, &self.why_not].into_iter().flatten() {
            line += &format!("\n{:15}{part}", "");
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_run_says_so() {
        let run = Requirement::measured("p99.9 at most 5 ms", "4.20 ms".to_owned(), true);
        assert!(run.line().starts_with("REACHED") && run.line().contains("4.20 ms"));
        let emulated = run.clone().does_not_count("the GPU is emulated");
        assert!(emulated.line().starts_with("DOES NOT COUNT") && emulated.line().contains("emulated"));
        assert_eq!(emulated.reached, None);
        let absent = Requirement::not_run("p99.9 at most 5 ms", "no CUDA driver");
        assert!(absent.line().starts_with("NOT RUN") && absent.line().contains("no CUDA driver"));
        assert_eq!(absent.clone().does_not_count("x"), absent);
    }
}
