//! What the processes are: nodes, their callbacks, their costs in each load phase.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use takt_rt::random::SplitMix64;

/// The mobile robot of *ROS-Llama*, section VI, with the seven chains of its Table I; costs are
/// made for two cores.
pub const TURTLEBOT: &str = include_str!("turtlebot.toml");

/// A system of nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Names of the load phases, in order; costs may differ between them. The run's time is divided
    /// equally.
    pub phases: Vec<String>,
    /// Seed of the costs' randomness; the same seed gives every callback the same sequence of
    /// costs.
    #[serde(default = "seed")]
    pub seed: u64,
    /// The nodes, one process each.
    pub node: Vec<NodeSpec>,
}

fn seed() -> u64 {
    1
}

/// One node: one process with one executor thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// Its name, without the leading slash.
    pub name: String,
    /// Timers, in the order of registration, which is the executor's priority order.
    #[serde(default)]
    pub timer: Vec<TimerSpec>,
    /// Subscriptions, likewise.
    #[serde(default)]
    pub subscription: Vec<SubscriptionSpec>,
    /// Event sources: threads that publish without callbacks.
    #[serde(default)]
    pub source: Vec<SourceSpec>,
}

/// A timer callback.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimerSpec {
    /// Its function's name.
    pub name: String,
    pub period_ms: f64,
    /// Its CPU time.
    pub cost: Cost,
    /// Topics that it publishes to when it ends.
    #[serde(default)]
    pub publishes: Vec<String>,
}

/// A subscription callback.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionSpec {
    pub topic: String,
    /// Its function's name.
    pub name: String,
    /// Its CPU time.
    pub cost: Cost,
    /// Topics that it publishes to when it ends.
    #[serde(default)]
    pub publishes: Vec<String>,
    /// A message filter: publishes only when the node has received a message on this topic since it
    /// last published.
    #[serde(default)]
    pub needs: Option<String>,
    /// Queue depth (KEEP_LAST); older messages are overwritten.
    #[serde(default = "depth")]
    pub depth: usize,
}

fn depth() -> usize {
    // ROS 2's default for sensor data and most examples.
    10
}

/// A thread that publishes in a loop of its own, as a driver does that reads a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// Its name, which its thread bears (15 bytes).
    pub name: String,
    /// Time between readings of the device.
    pub period_ms: f64,
    /// CPU time for each reading.
    pub cost: Cost,
    /// Topics that it publishes to.
    pub publishes: Vec<String>,
}

/// CPU time of an activation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Usual cost, in each phase; a single value holds for all.
    pub ms: Vec<f64>,
    /// Spread: uniformly up to this share more.
    #[serde(default)]
    pub jitter: f64,
    /// Expensive activations: every so many (0: never) ...
    #[serde(default)]
    pub peak_every: u64,
    /// ... takes this many times the usual cost. Peaks far apart are what execution-time curves are
    /// for (section V.b).
    #[serde(default = "one")]
    pub peak_factor: f64,
}

fn one() -> f64 {
    1.0
}

/// What is wrong with a system.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Not TOML, an unknown key, or a value of the wrong kind.
    #[error("the system's description cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A value that makes no sense.
    #[error("{place}: {what}")]
    Value {
        place: String,
        /// What is expected, and what was found.
        what: String,
    },
}

impl System {
    /// Reads and checks a description.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let system: Self = toml::from_str(text)?;
        system.validate()?;
        Ok(system)
    }

    /// The robot of the paper.
    #[must_use]
    pub fn turtlebot() -> Self {
        // The shipped text is read by a test.
        Self::parse(TURTLEBOT).unwrap_or(Self { phases: Vec::new(), seed: 1, node: Vec::new() })
    }

    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodeSpec> {
        self.node.iter().find(|node| node.name == name)
    }

    #[must_use]
    pub fn topics(&self) -> BTreeSet<&str> {
        let mut topics = BTreeSet::new();
        for node in &self.node {
            topics.extend(node.timer.iter().flat_map(|timer| &timer.publishes).map(String::as_str));
            topics.extend(node.source.iter().flat_map(|source| &source.publishes).map(String::as_str));
            for subscription in &node.subscription {
                topics.insert(&subscription.topic);
                topics.extend(subscription.publishes.iter().map(String::as_str));
            }
        }
        topics
    }

    /// Checks what no type does.
    ///
    /// # Errors
    ///
    /// [`Problem::Value`].
    pub fn validate(&self) -> Result<(), Problem> {
        let wrong = |place: &str, what: String| Err(Problem::Value { place: place.to_owned(), what });
        if self.phases.is_empty() {
            return wrong("phases", "at least one is needed".to_owned());
        }
        if self.node.is_empty() {
            return wrong("node", "a system needs at least one".to_owned());
        }
        let mut names = BTreeSet::new();
        for node in &self.node {
            let well =
                !node.name.is_empty() && node.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !well {
                return wrong(
                    &node.name,
                    "a node's name is made of letters, digits and underscores".to_owned(),
                );
            }
            if !names.insert(&node.name) {
                return wrong(&node.name, "two nodes have this name".to_owned());
            }
            let periods = node.timer.iter().map(|timer| (&timer.name, timer.period_ms));
            for (name, period_ms) in
                periods.chain(node.source.iter().map(|source| (&source.name, source.period_ms)))
            {
                if !(period_ms.is_finite() && (0.1..=3_600_000.0).contains(&period_ms)) {
                    return wrong(
                        &format!("{}/{name}", node.name),
                        format!("a period is from 0.1 ms to an hour, not {period_ms} ms"),
                    );
                }
            }
            let costs = (node.timer.iter().map(|timer| (&timer.name, &timer.cost)))
                .chain(node.subscription.iter().map(|subscription| (&subscription.name, &subscription.cost)))
                .chain(node.source.iter().map(|source| (&source.name, &source.cost)));
            for (name, cost) in costs {
                if let Err(what) = cost.check(self.phases.len()) {
                    return wrong(&format!("{}/{name}", node.name), what);
                }
            }
            for subscription in &node.subscription {
                if subscription.depth == 0 {
                    return wrong(
                        &format!("{}/{}", node.name, subscription.name),
                        "depth is at least 1".to_owned(),
                    );
                }
                if let Some(topic) = &subscription.needs
                    && !node.subscription.iter().any(|other| &other.topic == topic)
                {
                    return wrong(
                        &format!("{}/{}", node.name, subscription.name),
                        format!("it needs {topic}, to which the node does not subscribe"),
                    );
                }
            }
        }
        for topic in self.topics() {
            let well = topic.strip_prefix('/').is_some_and(|rest| {
                !rest.is_empty()
                    && rest.split('/').all(|part| {
                        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                    })
            });
            if !well {
                return wrong(
                    topic,
                    "a topic looks like /name or /name/name, of letters, digits and underscores".to_owned(),
                );
            }
        }
        Ok(())
    }
}

impl Cost {
    fn check(&self, phases: usize) -> Result<(), String> {
        if self.ms.len() != 1 && self.ms.len() != phases {
            return Err(format!(
                "ms has one value, or one for each of {phases} phases, not {}",
                self.ms.len()
            ));
        }
        if !self.ms.iter().all(|ms| (0.0..=60_000.0).contains(ms)) {
            return Err(format!("ms is from 0 to 60000, not {:?}", self.ms));
        }
        if !(0.0..=10.0).contains(&self.jitter) {
            return Err(format!("jitter is from 0 to 10 (shares of the usual cost), not {}", self.jitter));
        }
        if !(0.0..=1000.0).contains(&self.peak_factor) {
            return Err(format!("peak_factor is from 0 to 1000, not {}", self.peak_factor));
        }
        Ok(())
    }

    /// CPU time of the activation number `index` in a phase; `random` is from 0 up to, without, 1.
    #[must_use]
    pub fn ns(&self, phase: usize, index: u64, random: f64) -> u64 {
        let usual = self.ms.get(phase).or(self.ms.last()).copied().unwrap_or(0.0);
        let peak = self.peak_every > 0 && index % self.peak_every == self.peak_every - 1;
        let ms = usual * (1.0 + self.jitter * random) * if peak { self.peak_factor } else { 1.0 };
        // Saturating conversion of a value that validation bounds.
        (ms * 1e6) as u64
    }
}

/// Numbers of a callback of its own: costs are the same in every run of a seed.
#[must_use]
pub fn random(seed: u64, name: &str) -> SplitMix64 {
    // FNV-1a, so that names differ early.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    SplitMix64::new(seed ^ hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_robot_has_what_the_papers_table_names() {
        let system = System::parse(TURTLEBOT).unwrap();
        assert_eq!(system.phases.len(), 3);
        for topic in ["/cmd_vel", "/odom", "/scan", "/tf", "/rgb"] {
            assert!(system.topics().contains(topic), "{topic}");
        }
        assert!(!System::turtlebot().node.is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        let of =
            |from: &str, to: &str| System::parse(&TURTLEBOT.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(of("period_ms", "periode_ms").contains("periode_ms"));
        assert!(of("\"/cmd_vel\"", "\"cmd vel\"").contains("a topic looks like"));
        assert!(System::parse("phases = []\nnode = []").unwrap_err().to_string().contains("at least one"));
    }

    #[test]
    fn peaks_come_when_they_should_and_phases_change_the_cost() {
        let cost = Cost { ms: vec![1.0, 2.0], jitter: 0.5, peak_every: 4, peak_factor: 10.0 };
        let seen: Vec<u64> = (0..8).map(|index| cost.ns(0, index, 0.0)).collect();
        assert_eq!(seen, [1_000_000, 1_000_000, 1_000_000, 10_000_000].repeat(2));
        assert_eq!(cost.ns(1, 0, 0.0), 2_000_000);
        assert_eq!(cost.ns(7, 0, 0.0), 2_000_000, "after the last phase its costs stay");
        assert!(cost.ns(0, 0, 0.999) < 1_500_000);
        let mut a = random(1, "a");
        let (first, second) = (a.unit(), a.unit());
        assert!(first != second && (0.0..1.0).contains(&first));
        assert_ne!(first, random(1, "b").unit());
    }
}
