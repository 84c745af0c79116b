//! Requirements of a robot: the permitted miss rate, and the confidence with which it must be
//! shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Confidence where none is stated: 95 %, as all intervals of the reports have.
pub const CONFIDENCE: f64 = 0.95;

/// Longest burst of misses that is reckoned with where none is stated, seconds. A machine that
/// stalls loses every job of the stall, so that jobs are no independent trials: 0.1 s is twice the
/// longest common stall (real-time throttling and the fair server take 50 ms), and above SMIs (up
/// to some ms).
pub const BURST_S: f64 = 0.1;

/// Section `[verdict]` of a robot's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VerdictConfig {
    /// Misses per hour that the robot bears, on average. Without this and `misses_per_job`, any
    /// miss is a FAIL, and a PASS shows less than one miss in 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses_per_hour: Option<f64>,
    /// Probability that a job misses, on average over all jobs. One of the two may be stated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses_per_job: Option<f64>,
    /// Confidence that a PASS or a FAIL must have: [`CONFIDENCE`]. Less counts only with a claim.
    pub confidence: f64,
    /// Longest burst of misses to reckon with, seconds: [`BURST_S`]. 0 says that jobs miss
    /// independently of each other.
    pub burst_s: f64,
    /// The same for single measures, by their names; such a measure is judged beside those that
    /// always are.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub measures: BTreeMap<String, MeasureClaim>,
}

/// Claims for one measure; missing keys are as for all measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MeasureClaim {
    /// As [`VerdictConfig::misses_per_hour`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses_per_hour: Option<f64>,
    /// As [`VerdictConfig::misses_per_job`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses_per_job: Option<f64>,
    /// As [`VerdictConfig::confidence`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// As [`VerdictConfig::burst_s`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_s: Option<f64>,
}

impl Default for VerdictConfig {
    fn default() -> Self {
        Self {
            misses_per_hour: None,
            misses_per_job: None,
            confidence: CONFIDENCE,
            burst_s: BURST_S,
            measures: BTreeMap::new(),
        }
    }
}

/// Permitted rate of misses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Misses per hour, on average.
    MissesPerHour(f64),
    /// Probability per job.
    MissesPerJob(f64),
}

/// Claim about one measure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// Permitted misses; `None`: nothing is claimed, and any miss is one too many.
    pub limit: Option<Limit>,
    /// Confidence.
    pub confidence: f64,
    /// Longest burst of misses to reckon with, seconds.
    pub burst_s: f64,
}

impl Default for Claim {
    fn default() -> Self {
        Self { limit: None, confidence: CONFIDENCE, burst_s: BURST_S }
    }
}

impl VerdictConfig {
    /// Whether nothing is stated: a file that says nothing needs no section.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the claim about the measure `name`.
    pub fn claim(&self, name: &str) -> Claim {
        let own = self.measures.get(name).copied().unwrap_or_default();
        let limit = |per_hour: Option<f64>, per_job: Option<f64>| {
            per_hour.map(Limit::MissesPerHour).or(per_job.map(Limit::MissesPerJob))
        };
        Claim {
            limit: limit(own.misses_per_hour, own.misses_per_job)
                .or(limit(self.misses_per_hour, self.misses_per_job)),
            confidence: own.confidence.unwrap_or(self.confidence),
            burst_s: own.burst_s.unwrap_or(self.burst_s),
        }
    }

    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// The first value that is refused.
    pub fn validate(&self) -> Result<(), ClaimError> {
        let whole = MeasureClaim {
            misses_per_hour: self.misses_per_hour,
            misses_per_job: self.misses_per_job,
            confidence: Some(self.confidence),
            burst_s: Some(self.burst_s),
        };
        whole.validate("verdict")?;
        self.measures.iter().try_for_each(|(name, own)| own.validate(&format!("verdict.measures.{name}")))
    }
}

/// A claim that cannot be meant.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// A number outside what is accepted. NaN always is.
    #[error("{key} = {received}: accepted is {accepted}")]
    Value {
        /// The key, with its section.
        key: String,
        /// The received value.
        received: f64,
        /// The accepted values.
        accepted: &'static str,
    },
    /// Two limits of one measure.
    #[error(
        "{section}: misses_per_hour = {misses_per_hour} and misses_per_job = {misses_per_job} are both stated. \
         Fix: leave one of them out"
    )]
    TwoLimits {
        /// The section of the configuration.
        section: String,
        /// The one.
        misses_per_hour: f64,
        /// The other.
        misses_per_job: f64,
    },
}

impl MeasureClaim {
    fn validate(&self, section: &str) -> Result<(), ClaimError> {
        let check = |key, value: Option<f64>, accepted, is_good: &dyn Fn(f64) -> bool| match value {
            Some(received) if !is_good(received) => {
                Err(ClaimError::Value { key: format!("{section}.{key}"), received, accepted })
            }
            _ => Ok(()),
        };
        check("misses_per_hour", self.misses_per_hour, "a number above 0, up to 1e9", &|v| {
            v > 0.0 && v <= 1e9
        })?;
        check("misses_per_job", self.misses_per_job, "a probability above 0 and below 1", &|v| {
            v > 0.0 && v < 1.0
        })?;
        check("confidence", self.confidence, "0.5 to 0.999999", &|v| (0.5..=0.999_999).contains(&v))?;
        check("burst_s", self.burst_s, "0 to 3600 seconds", &|v| (0.0..=3600.0).contains(&v))?;
        match (self.misses_per_hour, self.misses_per_job) {
            (Some(misses_per_hour), Some(misses_per_job)) => {
                Err(ClaimError::TwoLimits { section: section.to_owned(), misses_per_hour, misses_per_job })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_has_its_own_claim_and_the_rest_of_all() {
        let text = "misses_per_hour = 1e-3\nconfidence = 0.99\n[measures.response]\nmisses_per_job = 1e-6\n[measures.age]\nburst_s = 0";
        let config: VerdictConfig = toml::from_str(text).unwrap();
        config.validate().unwrap();
        let claim = |name: &str| config.claim(name);
        assert_eq!(claim("lateness").limit, Some(Limit::MissesPerHour(1e-3)));
        assert_eq!(claim("response").limit, Some(Limit::MissesPerJob(1e-6)));
        assert_eq!((claim("response").confidence, claim("response").burst_s), (0.99, BURST_S));
        assert_eq!((claim("age").limit, claim("age").burst_s), (claim("lateness").limit, 0.0));
        let again: VerdictConfig = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
        assert_eq!(again, config);
        assert!(VerdictConfig::default().is_default() && !config.is_default());
        assert_eq!(VerdictConfig::default().claim("x"), Claim::default());
    }

    #[test]
    fn nonsense_is_refused_with_key_value_and_what_is_accepted() {
        for (text, part) in [
            ("misses_per_hour = 0", "verdict.misses_per_hour = 0: accepted is a number above 0"),
            ("misses_per_hour = nan", "misses_per_hour = NaN"),
            ("misses_per_job = 1.0", "below 1"),
            ("misses_per_job = -1e-3", "verdict.misses_per_job = -0.001"),
            ("confidence = 95", "verdict.confidence = 95: accepted is 0.5 to 0.999999"),
            ("burst_s = inf", "verdict.burst_s = inf"),
            ("misses_per_hour = 1\nmisses_per_job = 0.1", "leave one of them out"),
            ("measures.age.confidence = 1", "verdict.measures.age.confidence = 1"),
        ] {
            let error = toml::from_str::<VerdictConfig>(text).unwrap().validate().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(toml::from_str::<VerdictConfig>("misses_per_second = 1").is_err());
        assert!(toml::from_str::<VerdictConfig>("measures.age.hours = 1").is_err());
    }
}
