//! Checks of configuration values, and the error that says which key was refused, what it was and
//! what is accepted.

use std::fmt;

/// A configuration that cannot be meant or run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// A number outside its range. NaN lies in none.
    #[error("{key} = {received}: accepted are {low} to {high}")]
    Range {
        /// The key, with its section.
        key: String,
        /// The received value.
        received: f64,
        /// The least value that is accepted.
        low: f64,
        /// The greatest value that is accepted.
        high: f64,
    },
    /// A value that is none of those accepted.
    #[error("{key} = {received}: {expected}")]
    Value {
        /// The key, with its section.
        key: String,
        /// The received value, as it would be written.
        received: String,
        /// The accepted values and, where it helps, the reason.
        expected: String,
    },
    /// Keys that do not fit together.
    #[error("{keys}: {expected}")]
    Conflict {
        /// The keys, with their values where these matter.
        keys: String,
        /// The way out.
        expected: String,
    },
}

impl SettingError {
    /// A [`SettingError::Value`].
    pub fn value(key: impl Into<String>, received: impl fmt::Display, expected: impl Into<String>) -> Self {
        Self::Value { key: key.into(), received: received.to_string(), expected: expected.into() }
    }

    /// A [`SettingError::Conflict`].
    pub fn conflict(keys: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Conflict { keys: keys.into(), expected: expected.into() }
    }

    /// The same of a section: `prefix` (`motion.`) stands before the key.
    #[must_use]
    pub fn within_section(mut self, prefix: &str) -> Self {
        let (Self::Range { key, .. } | Self::Value { key, .. } | Self::Conflict { keys: key, .. }) =
            &mut self;
        key.insert_str(0, prefix);
        self
    }
}

/// Refuses a number outside `low..=high`, and what is no number.
///
/// ```
/// use takt_rt::config::within;
///
/// assert!(within("rate_hz", 500.0, 1.0, 1000.0).is_ok());
/// let refused = within("rate_hz", f64::NAN, 1.0, 1000.0).unwrap_err();
/// assert_eq!(refused.to_string(), "rate_hz = NaN: accepted are 1 to 1000");
/// ```
///
/// # Errors
/// [`SettingError::Range`].
pub fn within(key: &str, value: f64, low: f64, high: f64) -> Result<(), SettingError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(SettingError::Range { key: key.to_owned(), received: value, low, high })
}

/// As [`within`], for several keys of one section: `ssm.` before the name of each.
///
/// # Errors
/// The first that is outside.
pub fn all_within(section: &str, keys: &[(&str, f64, f64, f64)]) -> Result<(), SettingError> {
    keys.iter().try_for_each(|&(key, value, low, high)| within(&format!("{section}{key}"), value, low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_stands_before_the_key_of_every_kind() {
        let range = all_within("ssm.", &[("near_m", 0.5, 0.0, 1.0), ("far_m", -1.0, 0.0, 2.5)]).unwrap_err();
        let SettingError::Range { key, received, low, high } = &range else { panic!("{range}") };
        assert_eq!((key.as_str(), *received, *low, *high), ("ssm.far_m", -1.0, 0.0, 2.5));
        assert_eq!(range.within_section("cell.").to_string(), "cell.ssm.far_m = -1: accepted are 0 to 2.5");
        let value = SettingError::value("robot", "\"uav\"", "this file is for \"daq\"").within_section("a.");
        assert_eq!(value.to_string(), "a.robot = \"uav\": this file is for \"daq\"");
        let keys =
            SettingError::conflict("command and workload", "expected one of them").within_section("b.");
        assert_eq!(keys.to_string(), "b.command and workload: expected one of them");
    }
}
