//! Policies as text: the short form (`fifo:80`), and the table form of configurations.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use super::Policy;
use crate::duration;
use crate::error::Error;

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Other { nice: 0 } => f.write_str("other"),
            Self::Other { nice } => write!(f, "other:{nice}"),
            Self::Fifo { priority } => write!(f, "fifo:{priority}"),
            Self::RoundRobin { priority } => write!(f, "rr:{priority}"),
            Self::Deadline { runtime, deadline, period, reclaim } => {
                let [runtime, deadline, period] = [runtime, deadline, period].map(duration::format);
                let reclaim = if reclaim { "/reclaim" } else { "" };
                write!(f, "deadline:{runtime}/{deadline}/{period}{reclaim}")
            }
        }
    }
}

impl FromStr for Policy {
    type Err = Error;

    /// Reads the short form and validates it.
    fn from_str(text: &str) -> Result<Self, Error> {
        let error = |reason: String| Error::InvalidPolicy { given: text.to_owned(), reason };
        let (kind, parameters) = match text.trim().split_once(':') {
            Some((kind, parameters)) => (kind.trim(), Some(parameters.trim())),
            None => (text.trim(), None),
        };
        let priority = || {
            let given = parameters.ok_or_else(|| error("the priority is missing".into()))?;
            given.parse::<u8>().map_err(|_| error(format!("`{given}` is not a priority")))
        };
        let policy = match kind {
            "other" => Self::Other {
                nice: parameters.map_or(Ok(0), |given| {
                    given.parse().map_err(|_| error(format!("`{given}` is not a nice value")))
                })?,
            },
            "fifo" => Self::Fifo { priority: priority()? },
            "rr" => Self::RoundRobin { priority: priority()? },
            "deadline" => {
                let parts: Vec<_> = parameters.unwrap_or_default().split('/').collect();
                let (times, reclaim) = match parts[..] {
                    [.., "reclaim"] => (&parts[..parts.len() - 1], true),
                    _ => (&parts[..], false),
                };
                let [runtime, deadline, period] = times[..] else {
                    return Err(error(format!("expected three durations, found {}", times.len())));
                };
                let read = |part| duration::parse(part).map_err(|reason| error(reason.to_string()));
                Self::Deadline {
                    runtime: read(runtime)?,
                    deadline: read(deadline)?,
                    period: read(period)?,
                    reclaim,
                }
            }
            _ => return Err(error(format!("unknown policy `{kind}`"))),
        };
        policy.validate()?;
        Ok(policy)
    }
}

/// The table form, field by field.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum Table {
    Other {
        #[serde(default)]
        nice: i32,
    },
    Fifo {
        priority: u8,
    },
    Rr {
        priority: u8,
    },
    Deadline {
        #[serde(with = "duration")]
        runtime: Duration,
        #[serde(with = "duration")]
        deadline: Duration,
        #[serde(with = "duration")]
        period: Duration,
        #[serde(default)]
        reclaim: bool,
    },
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Policy;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a policy such as `fifo:80`, or a table with `kind`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Policy, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Policy, A::Error> {
                let policy = match Table::deserialize(de::value::MapAccessDeserializer::new(map))? {
                    Table::Other { nice } => Policy::Other { nice },
                    Table::Fifo { priority } => Policy::Fifo { priority },
                    Table::Rr { priority } => Policy::RoundRobin { priority },
                    Table::Deadline { runtime, deadline, period, reclaim } => {
                        Policy::Deadline { runtime, deadline, period, reclaim }
                    }
                };
                policy.validate().map_err(de::Error::custom)?;
                Ok(policy)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Serialize;

    fn any_policy() -> impl Strategy<Value = Policy> {
        prop_oneof![
            (-20..=19).prop_map(|nice| Policy::Other { nice }),
            (1..=99u8).prop_map(|priority| Policy::Fifo { priority }),
            (1..=99u8).prop_map(|priority| Policy::RoundRobin { priority }),
            (1024u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40, any::<bool>()).prop_map(
                |(runtime, slack, rest, reclaim)| {
                    Policy::Deadline {
                        runtime: Duration::from_nanos(runtime),
                        deadline: Duration::from_nanos(runtime + slack),
                        period: Duration::from_nanos(runtime + slack + rest),
                        reclaim,
                    }
                }
            ),
        ]
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Config {
        policy: Policy,
    }

    #[test]
    fn toml_reads_both_forms() {
        let read = |text: &str| toml::from_str::<Config>(text).unwrap().policy;
        assert_eq!(read("policy = 'fifo:80'"), Policy::Fifo { priority: 80 });
        assert_eq!(read("policy = { kind = 'rr', priority = 10 }"), Policy::RoundRobin { priority: 10 });
        assert_eq!(read("policy = { kind = 'other' }"), Policy::default());
        let reservation = read("policy = 'deadline:500us/2ms/2ms'");
        assert_eq!(
            read("policy = { kind = 'deadline', runtime = '500us', deadline = '2ms', period = '2ms' }"),
            reservation
        );
        assert_eq!(reservation.to_string(), "deadline:500us/2ms/2ms");
    }

    #[test]
    fn wrong_policies_say_what_is_accepted() {
        for text in [
            "fifo",
            "fifo:0",
            "fifo:100",
            "fifo:-1",
            "rr:x",
            "other:20",
            "idle",
            "",
            "deadline:1ms",
            "deadline:",
            "deadline:3ms/2ms/2ms",
            "deadline:1ms/3ms/2ms",
            "deadline:1us/1ms/1ms",
            "deadline:1/2/3",
        ] {
            let message = text.parse::<Policy>().unwrap_err().to_string();
            assert!(message.contains("accepted:"), "{message}");
        }
        let unknown =
            toml::from_str::<Config>("policy = { kind = 'fifo', priority = 1, nice = 3 }").unwrap_err();
        assert!(unknown.to_string().contains("nice"), "{unknown}");
        assert!(toml::from_str::<Config>("policy = { kind = 'fifo', priority = 0 }").is_err());
        assert!(toml::from_str::<Config>("policy = 3").is_err());
    }

    proptest! {
        #[test]
        fn text_and_toml_round_trip(policy in any_policy()) {
            prop_assert_eq!(policy.to_string().parse::<Policy>().unwrap(), policy);
            let text = toml::to_string(&Config { policy }).unwrap();
            prop_assert_eq!(toml::from_str::<Config>(&text).unwrap(), Config { policy });
        }

        #[test]
        fn parsing_never_panics(text in "(other|fifo|rr|deadline|x)?:?[0-9a-z/.µ-]{0,16}") {
            if let Ok(policy) = text.parse::<Policy>() {
                prop_assert!(policy.validate().is_ok());
            }
        }
    }
}
