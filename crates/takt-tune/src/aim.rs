//! Aim of a search: "p99.9 lateness of control < 100 us".

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::error::TuneError;

/// The measured time of a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// From the release to the CPU.
    Lateness,
    /// From the release to the sleep after the cycle.
    Response,
}

/// The statistic to improve, and the limit at which it is good enough.
#[derive(Debug, Clone, PartialEq)]
pub struct Aim {
    /// The quantile, 0 to 1; 1 is the worst.
    pub quantile: f64,
    pub time: Time,
    /// Of which thread: a part of its name or of its process's; the fastest periodic one when
    /// absent.
    pub thread: Option<String>,
    /// Good enough.
    pub limit: Option<Duration>,
}

impl Default for Aim {
    /// The worst lateness of the watched loop.
    fn default() -> Self {
        Self { quantile: 1.0, time: Time::Lateness, thread: None, limit: None }
    }
}

impl Aim {
    /// The statistic of one block, in the unit of the values; `None` without values.
    pub fn of(&self, values: &mut [f64]) -> Option<f64> {
        values.sort_unstable_by(f64::total_cmp);
        if self.quantile >= 1.0 {
            return values.last().copied();
        }
        takt_stats::quantile::of_sorted(values, self.quantile)
    }

    fn statistic(&self) -> String {
        match self.quantile {
            q if q >= 1.0 => "worst".to_owned(),
            0.5 => "median".to_owned(),
            // No more digits than were given: 0.999 * 100 is not 99.9 to the last bit.
            q => format!("p{}", (q * 1e8).round() / 1e6),
        }
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = match self.time {
            Time::Lateness => "lateness",
            Time::Response => "response",
        };
        write!(f, "{} {time}", self.statistic())?;
        if let Some(thread) = &self.thread {
            write!(f, " of {thread}")?;
        }
        match self.limit {
            Some(limit) => write!(f, " < {}", takt_rt::duration::format(limit)),
            None => Ok(()),
        }
    }
}

impl Serialize for Aim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Aim {
    type Err = TuneError;

    fn from_str(text: &str) -> Result<Self, TuneError> {
        let refused = |reason: String| TuneError::Aim { given: text.to_owned(), reason };
        let (what, limit) = match text.split_once('<') {
            Some((what, limit)) => (what, Some(limit)),
            None => (text, None),
        };
        let limit = limit
            .map(|limit| {
                let limit = takt_rt::duration::parse(limit.trim_start_matches('=').trim())
                    .map_err(|error| refused(error.to_string()))?;
                if limit.is_zero() { Err(refused("the limit is zero".to_owned())) } else { Ok(limit) }
            })
            .transpose()?;
        let mut words = what.split_whitespace().peekable();
        let statistic = words.next().ok_or_else(|| refused("it is empty".to_owned()))?;
        let quantile = match statistic {
            "worst" | "max" | "maximum" => 1.0,
            "median" => 0.5,
            other => {
                let percent = other.strip_prefix(['p', 'P']).and_then(|digits| digits.parse::<f64>().ok());
                let percent = percent.filter(|percent| (0.0..=100.0).contains(percent) && *percent > 0.0);
                percent.ok_or_else(|| refused(format!("`{other}` is not a statistic")))? / 100.0
            }
        };
        let time = match words.peek() {
            Some(&"lateness") => Some(Time::Lateness),
            Some(&"response") => Some(Time::Response),
            _ => None,
        };
        if time.is_some() {
            words.next();
        }
        let thread = match words.next() {
            None => None,
            Some("of") => {
                let name = words.collect::<Vec<_>>().join(" ");
                if name.is_empty() {
                    return Err(refused("a thread is missing after `of`".to_owned()));
                }
                Some(name)
            }
            Some(other) => return Err(refused(format!("`{other}` is not understood"))),
        };
        Ok(Self { quantile, time: time.unwrap_or(Time::Lateness), thread, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_aim_is_read_as_people_write_it() {
        let aim: Aim = "p99.9 lateness of control < 100 us".parse().unwrap();
        let expected = Aim {
            quantile: 0.999,
            time: Time::Lateness,
            thread: Some("control".to_owned()),
            limit: Some(Duration::from_micros(100)),
        };
        assert!((aim.quantile - expected.quantile).abs() < 1e-12);
        assert_eq!(Aim { quantile: 0.999, ..aim }, expected);
        for (text, shown) in [
            ("worst", "worst lateness"),
            ("worst response of my loop", "worst response of my loop"),
            ("p50<=2ms", "median lateness < 2ms"),
            ("P99.99 response < 1.5 ms", "p99.99 response < 1500us"),
            ("p100", "worst lateness"),
        ] {
            assert_eq!(text.parse::<Aim>().unwrap().to_string(), shown, "{text}");
        }
        for (text, reason) in [
            ("", "empty"),
            ("p0", "not a statistic"),
            ("p101", "not a statistic"),
            ("pinf", "not a statistic"),
            ("pnan", "not a statistic"),
            ("mean lateness", "not a statistic"),
            ("worst jitter", "`jitter`"),
            ("worst of", "missing after `of`"),
            ("worst < 100", "no unit"),
            ("worst < 0us", "is zero"),
        ] {
            let message = text.parse::<Aim>().unwrap_err().to_string();
            assert!(message.contains(reason) && message.contains("expected"), "{text}: {message}");
        }
    }

    #[test]
    fn the_statistic_of_a_block() {
        let mut values: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        assert_eq!(Aim::default().of(&mut values), Some(1000.0));
        let median = "median".parse::<Aim>().unwrap().of(&mut values).unwrap();
        assert!((499.0..=502.0).contains(&median), "{median}");
        assert_eq!(Aim::default().of(&mut []), None);
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_shown_is_read_back(text in "(p?[0-9.]{0,5}|worst|median)( lateness| response)?( of [a-z ]{1,9})?( ?< ?[0-9.]{1,5} ?(us|ms))?|.{0,40}") {
            if let Ok(aim) = text.parse::<Aim>() {
                let again: Aim = aim.to_string().parse().unwrap();
                prop_assert_eq!(again.to_string(), aim.to_string());
            }
        }
    }
}
