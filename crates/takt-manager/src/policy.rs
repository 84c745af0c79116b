//! Manager that makes the plans: Takt's, or the paper's.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Manager that makes the plans. Both observe, measure and enact in the same way; they differ in
/// the analysis and in the search for budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Takt's own manager.
    #[default]
    Takt,
    /// The manager of *ROS-Llama* (Blass and others, RTAS 2021) as the paper prints it, and nothing
    /// beyond that.
    RosLlama,
}

impl Policy {
    /// All of them, Takt's first.
    pub const ALL: [Self; 2] = [Self::Takt, Self::RosLlama];

    /// As in goals files and on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Takt => "takt",
            Self::RosLlama => "ros-llama",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No policy has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no policy is named `{given}`; accepted are {}", Policy::ALL.map(Policy::name).join(" and "))]
pub struct UnknownPolicy {
    /// The received name.
    pub given: String,
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == text.trim());
        found.ok_or_else(|| UnknownPolicy { given: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_everywhere() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse::<Policy>().unwrap(), policy);
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.to_string());
        }
        let refused = "llama".parse::<Policy>().unwrap_err().to_string();
        assert_eq!(refused, "no policy is named `llama`; accepted are takt and ros-llama");
    }
}
